"""`python -m benchmarks`."""

import os

from benchmarks import CACHES_OFF, cli

# Drivers read these variables when they are loaded, which `main` does.
os.environ.update(CACHES_OFF)
raise SystemExit(cli.main())
