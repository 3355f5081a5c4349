"""Devices: Vulkan drivers, Kompute, memory, tensors, and operators compiled for a device, which run plans."""
