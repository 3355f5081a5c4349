"""Runs plans on devices: Vulkan drivers, Kompute, memory, tensors, and operators compiled for a device."""
