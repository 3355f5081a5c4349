"""Devices: what Vulkan and Kompute are asked, memory, and operators compiled for a device."""
