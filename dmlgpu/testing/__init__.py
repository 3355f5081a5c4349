"""The cases of the project's tests, also for other libraries: `python -m dmlgpu.testing LIBRARY`."""
