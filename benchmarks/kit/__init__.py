"""The kit: one folder with all that a bare machine with a GPU needs to test and measure dmlgpu. See docs/gpu.md."""
