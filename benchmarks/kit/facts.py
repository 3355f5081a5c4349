"""What Vulkan says of a device, as JSON: `python -m benchmarks.kit.facts` with the device in DMLGPU_DEVICE."""

from __future__ import annotations

import json
import os
from typing import Any

import vulkan as vk

from dmlgpu.runtime.drivers import select

_MEMORY = ("DEVICE_LOCAL", "HOST_VISIBLE", "HOST_COHERENT", "HOST_CACHED", "LAZILY_ALLOCATED", "PROTECTED")
_QUEUES = ("GRAPHICS", "COMPUTE", "TRANSFER", "SPARSE_BINDING", "PROTECTED")


def facts() -> dict[str, Any]:
    """Properties, limits, heaps, memory types, queues, features and extensions of the device that is chosen."""
    info = select(os.environ.get("DMLGPU_DEVICE"))
    application = vk.VkApplicationInfo(pApplicationName="dmlgpu", apiVersion=vk.VK_MAKE_VERSION(1, 1, 0))
    instance = vk.vkCreateInstance(vk.VkInstanceCreateInfo(pApplicationInfo=application), None)
    try:
        handle = vk.vkEnumeratePhysicalDevices(instance)[info.index]
        subgroup = vk.VkPhysicalDeviceSubgroupProperties()
        properties = vk.VkPhysicalDeviceProperties2(pNext=subgroup)
        vk.vkGetPhysicalDeviceProperties2(handle, properties)
        memory = vk.vkGetPhysicalDeviceMemoryProperties(handle)
        core = properties.properties
        families = vk.vkGetPhysicalDeviceQueueFamilyProperties(handle)
        features = _plain(vk.vkGetPhysicalDeviceFeatures(handle))
        extensions = vk.vkEnumerateDeviceExtensionProperties(handle, None)
        return {
            "device": info.as_dict(),
            "ids": {name: f"{getattr(core, name):#x}" for name in ("vendorID", "deviceID", "driverVersion")},
            "limits": _plain(core.limits),
            "subgroup": {
                name: getattr(subgroup, name) for name in ("subgroupSize", "supportedStages", "supportedOperations")
            },
            "heaps": [
                {"MiB": heap.size >> 20, "device local": bool(heap.flags & 1)}
                for heap in (memory.memoryHeaps[i] for i in range(memory.memoryHeapCount))
            ],
            "memory types": [
                {"heap": kind.heapIndex, "flags": _names(_MEMORY, kind.propertyFlags)}
                for kind in (memory.memoryTypes[i] for i in range(memory.memoryTypeCount))
            ],
            "queues": [
                {
                    "count": family.queueCount,
                    "flags": _names(_QUEUES, family.queueFlags),
                    "timestamp bits": family.timestampValidBits,
                }
                for family in families
            ],
            "features": sorted(name for name, is_on in features.items() if is_on),
            "extensions": sorted(extension.extensionName for extension in extensions),
        }
    finally:
        vk.vkDestroyInstance(instance, None)


def _names(names: tuple[str, ...], flags: int) -> list[str]:
    """Names of flags; those beyond the names as a number."""
    rest = flags >> len(names) << len(names)
    return [name for bit, name in enumerate(names) if flags >> bit & 1] + ([f"{rest:#x}"] if rest else [])


def _plain(structure: Any) -> dict[str, Any]:
    """The numbers of a structure of C."""
    fields = {name: getattr(structure, name) for name, _ in vk.ffi.typeof(structure).fields}
    return {name: value if isinstance(value, int | float) else list(value) for name, value in fields.items()}


if __name__ == "__main__":
    print(json.dumps(facts()))
