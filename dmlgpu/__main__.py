"""`python -m dmlgpu` runs the command line, as `dmlgpu` does."""

import sys

from dmlgpu.tools.cli import main

if __name__ == "__main__":
    sys.exit(main())
