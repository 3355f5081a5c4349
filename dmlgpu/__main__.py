"""`python -m dmlgpu` is `dmlgpu`."""

import sys

from dmlgpu.tools.cli import main

if __name__ == "__main__":
    sys.exit(main())
