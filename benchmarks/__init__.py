"""Benchmarks: `python -m benchmarks` in a checkout."""

# Without shader caches on disk, which would make a compile time that of an earlier run.
CACHES_OFF = {"MESA_SHADER_CACHE_DISABLE": "true", "__GL_SHADER_DISK_CACHE": "0"}
