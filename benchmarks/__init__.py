"""Benchmarks: `python -m benchmarks` in a checkout."""

# Turns off the drivers' shader caches on disk, from which a later run would load what it should compile.
CACHES_OFF = {"MESA_SHADER_CACHE_DISABLE": "true", "__GL_SHADER_DISK_CACHE": "0"}
