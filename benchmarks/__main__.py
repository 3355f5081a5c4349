"""`python -m benchmarks`."""

import os

# Drivers read these when they are loaded; with a cache on disk a compile time could be that of an earlier run.
os.environ["MESA_SHADER_CACHE_DISABLE"] = "true"
os.environ["__GL_SHADER_DISK_CACHE"] = "0"

from benchmarks.cli import main

raise SystemExit(main())
