"""Lists Vulkan devices and their properties.

Kompute reports few properties, and the original kp ends the process if a driver refuses a call. dmlgpu therefore calls
Vulkan before it calls Kompute.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from dmlgpu.descriptors.dtypes import index
from dmlgpu.errors import DeviceError, import_problem
from dmlgpu.runtime import forks
from dmlgpu.runtime.settings import setting

# Names, on each system, of the packages that pip cannot install.
_LOADER = (
    "Debian, Ubuntu: libvulkan1; Fedora: vulkan-loader; Arch: vulkan-icd-loader; macOS: Homebrew's vulkan-loader; "
    "Windows: the driver of a GPU brings it"
)
_DRIVER = (
    "Debian, Ubuntu, Fedora: mesa-vulkan-drivers; Arch: vulkan-radeon, vulkan-intel or vulkan-swrast; "
    "macOS: Homebrew's molten-vk; NVIDIA, Windows: the driver of the GPU's maker"
)

# Names of the values of VkPhysicalDeviceType, in their order.
_TYPES = ("other", "integrated", "discrete", "virtual", "cpu")
# The best type first, if the user names no device.
_PREFERENCE = ("discrete", "integrated", "virtual", "other", "cpu")

# Minimum limits that Vulkan requires of every device and that plans need. A driver may report less: in 2021 MoltenVK
# reported 0 for the range of a storage buffer on an M1.
_LEAST = {
    "maxStorageBufferRange": 1 << 27,
    "maxPushConstantsSize": 128,
    "maxPerStageDescriptorStorageBuffers": 4,
    "maxComputeSharedMemorySize": 16 << 10,
}

# VkMemoryPropertyFlagBits. The host maps memory that is HOST_VISIBLE (2) and HOST_COHERENT (4).
_DEVICE_LOCAL, _HOST, _HOST_CACHED = 1, 2 | 4, 8


@dataclass(frozen=True)
class DeviceInfo:
    """A Vulkan device of this machine; sizes in bytes."""

    index: int
    name: str
    type: str
    """discrete, integrated, virtual, cpu or other."""
    driver: str
    uuid: str
    """VkPhysicalDeviceIDProperties.deviceUUID, 32 hexadecimal digits."""
    api_version: str
    max_storage_buffer_range: int
    max_memory_allocation_size: int
    max_memory_allocation_count: int
    max_group_size: int
    """Invocations of a workgroup."""
    max_group_count: int
    """Workgroups of a dispatch, along its first dimension."""
    subgroup_size: int
    """Invocations of a subgroup; on a CPU driver those of a SIMD vector."""
    heaps: tuple[int, ...]
    """Sizes of the memory heaps."""
    device_heap: int
    """The heap from which Kompute allocates device memory."""
    host_heap: int
    """The heap from which Kompute allocates memory that the host maps."""
    unified: bool
    """Whether the memory that the host maps is cached device memory, so that no copies are needed."""

    def as_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return asdict(self)


def loader_version() -> str:
    """The loader's version of Vulkan.

    Raises:
        DeviceError: the Vulkan loader or the package `vulkan` is missing, or cannot be loaded.
    """
    return _version(_vulkan().vkEnumerateInstanceVersion())


def devices() -> tuple[DeviceInfo, ...]:
    """The Vulkan devices of this machine that dmlgpu can use. No device is opened.

    Raises:
        DeviceError: there is no Vulkan loader, no driver, or no such device, or a driver fails to load; the message has
            the reason, what devices lack, and what to install. Or this process is a fork in which drivers may hang.

    Example:
        >>> import dmlgpu
        >>> [info.index for info in dmlgpu.devices()][0]
        0
    """
    forks.check_process()
    vk = _vulkan()
    with forks.driver_lock:
        return _devices(vk)


def loader_messages() -> list[tuple[str, str]]:
    """The loader's messages about drivers and layers when it creates an instance: (error, warning or info; text).

    Raises:
        DeviceError: as `loader_version`.
    """
    vk = _vulkan()
    kinds = {
        vk.VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT: "error",
        vk.VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT: "warning",
        vk.VK_DEBUG_UTILS_MESSAGE_SEVERITY_INFO_BIT_EXT: "info",
    }
    messages = []

    # A callback of ffi, because the package's function allows only one callback for all messengers of a process.
    @vk.ffi.callback("PFN_vkDebugUtilsMessengerCallbackEXT")  # type: ignore[untyped-decorator]
    def receive(severity: int, _types: int, data: Any, _user: Any) -> int:
        messages.append((kinds[severity], vk.ffi.string(data.pMessage).decode(errors="backslashreplace")))
        return 0

    messenger = vk.VkDebugUtilsMessengerCreateInfoEXT(
        messageSeverity=sum(kinds), messageType=vk.VK_DEBUG_UTILS_MESSAGE_TYPE_GENERAL_BIT_EXT
    )
    messenger.pfnUserCallback = receive
    with suppress(vk.VkError):
        instance = _instance(vk, "VK_EXT_debug_utils", pNext=messenger)
        vk.vkDestroyInstance(instance, None)
    return list(dict.fromkeys(messages))


def _instance(vk: Any, *extensions: str, **fields: Any) -> Any:
    """A new Vulkan instance with these extensions, and further fields of VkInstanceCreateInfo."""
    application = vk.VkApplicationInfo(
        pApplicationName="dmlgpu",
        applicationVersion=1,
        pEngineName="dmlgpu",
        engineVersion=1,
        apiVersion=vk.VK_MAKE_VERSION(1, 1, 0),
    )
    # By default the loader hides drivers that implement Vulkan in part, such as MoltenVK.
    portability = vk.VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME
    # If the loader fails, vkCreateInstance reports the reason better.
    with suppress(vk.VkError):
        if portability in [offered.extensionName for offered in vk.vkEnumerateInstanceExtensionProperties(None)]:
            extensions += (portability,)
            fields["flags"] = vk.VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR
    info = vk.VkInstanceCreateInfo(pApplicationInfo=application, ppEnabledExtensionNames=extensions, **fields)
    return vk.vkCreateInstance(info, None)


def _devices(vk: Any) -> tuple[DeviceInfo, ...]:
    try:
        instance = _instance(vk)
    except vk.VkError as error:
        raise _no_device(type(error).__name__) from None
    try:
        handles = vk.vkEnumeratePhysicalDevices(instance)
        lacks = [_lack(vk, handle) for handle in handles]
        infos = tuple(_describe(vk, index, handle) for index, handle in enumerate(handles) if not lacks[index])
    except vk.VkError as error:
        raise _no_device(type(error).__name__) from None
    finally:
        vk.vkDestroyInstance(instance, None)
    if not infos:
        raise _no_device("; ".join(lacks) or "they have no device")
    return infos


@cache
def keep_loaded() -> Any:
    """Keeps the current drivers loaded until the end of the process, by an unused instance.

    Otherwise the loader unloads them with the last device. Each load of NVIDIA's driver uses static TLS, which glibc
    limits and does not always release. Without free static TLS the process can open no device.
    """
    vk = _vulkan()
    with suppress(vk.VkError):
        return _instance(vk)
    return None


def select(selector: int | str | None) -> DeviceInfo:
    """The device that an index, part of a name or a UUID selects; None: what DMLGPU_DEVICE selects, or the best device.

    Args:
        selector: names and UUIDs in upper or lower case, UUIDs with or without dashes. If no device's name matches,
            names of drivers are searched.

    Raises:
        DeviceError: no device matches, or several do; the message lists all devices.
        TypeError: `selector` is neither an integer nor a string.
    """
    return default(devices()) if selector is None else choose(devices(), selector)


def default(infos: tuple[DeviceInfo, ...]) -> DeviceInfo:
    """The device among `infos` that DMLGPU_DEVICE selects, or the best device."""
    return choose(infos, setting("DMLGPU_DEVICE"), "DMLGPU_DEVICE: ")


def choose(infos: tuple[DeviceInfo, ...], selector: int | str | None, prefix: str = "") -> DeviceInfo:
    """As `select`, but among `infos`, and None selects the best device. Error messages begin with `prefix`."""
    if selector is None:
        return min(infos, key=preference)
    # A longer number is no index, and int() refuses more than 4,300 digits.
    if isinstance(selector, str) and selector.strip().isdecimal() and len(selector) < 10:
        selector = int(selector)
    if isinstance(selector, str):
        selector = selector.strip()
        matches = _matching(infos, selector.lower()) if selector else []
    else:
        selector = index_of(selector)
        matches = [info for info in infos if info.index == selector]
    if len(matches) != 1:
        problem = "several devices match" if matches else "there is no device"
        raise DeviceError(f"{prefix}{problem} {selector!r}; devices are {_list(infos)}")
    return matches[0]


def _matching(infos: tuple[DeviceInfo, ...], text: str) -> list[DeviceInfo]:
    """The devices that part of a name, or a UUID, in lower case, selects."""
    uuid = text.replace("-", "")
    # Mesa's documentation says lavapipe; the driver reports llvmpipe.
    part = text.replace("lavapipe", "llvmpipe")
    named = [info for info in infos if part in info.name.lower() or uuid == info.uuid]
    return named or [info for info in infos if part in info.driver.lower()]


def preference(info: DeviceInfo) -> tuple[bool, bool, int, bool]:
    """A sort key, least for the best device. Devices with equal keys are assumed to be equally fast."""
    # Dozen is a driver over Direct3D 12; the driver of the GPU's maker, if installed, lists the same GPU. SwiftShader
    # is many times slower than llvmpipe: docs/performance.md.
    dozen, swiftshader = "Dozen" in info.driver, "SwiftShader" in info.driver
    return info.type == "cpu", dozen, _PREFERENCE.index(info.type), swiftshader


def index_of(selector: Any) -> int:
    """`selector` as the index of a device.

    Raises:
        TypeError: `selector` is not an integer, or is a bool.
    """
    with suppress(TypeError):
        return index(selector)
    raise TypeError(f"a device is chosen by its index, part of its name or its UUID, not by {selector!r}")


def _list(infos: tuple[DeviceInfo, ...]) -> str:
    """Indices and names of devices, and UUIDs where names are equal."""
    names = Counter(info.name for info in infos)
    return ", ".join(
        f"{info.index}: {info.name}" + (f" (UUID {info.uuid})" if names[info.name] > 1 else "") for info in infos
    )


def _vulkan() -> Any:
    """The vulkan package, which loads the Vulkan loader."""
    try:
        import vulkan
    except ImportError as error:
        problem = import_problem(error, "vulkan")
        raise DeviceError(
            f"the package vulkan {problem}. Install dmlgpu's dependencies as in docs/installing.md, or "
            "only vulkan: pip install vulkan"
        ) from None
    except OSError as error:
        raise DeviceError(f"no Vulkan loader: {error}. Install it ({_LOADER}) and a driver ({_DRIVER})") from None
    return vulkan


def _version(number: int) -> str:
    """A version of Vulkan as text, from its number."""
    return f"{number >> 22}.{number >> 12 & 0x3FF}.{number & 0xFFF}"


def _no_device(reason: str) -> DeviceError:
    """The error for a machine without usable devices."""
    variable = next((name for name in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES") if name in os.environ), None)
    source = f"{variable}={os.environ[variable]}" if variable else "the system, as in /usr/share/vulkan/icd.d"
    messages = [text for kind, text in loader_messages() if kind != "info" or "wrong ELF class" in text]
    return DeviceError(
        f"no usable Vulkan device; drivers come from {source} ({'; '.join([reason, *messages])}). Install the driver "
        f"of your GPU, or one that needs no GPU ({_DRIVER}); VK_DRIVER_FILES and VK_ICD_FILENAMES, if set, must name "
        "its manifest"
    )


def _lack(vk: Any, handle: Any) -> str:
    """What the device lacks of what Kompute and plans need, as a text; empty if it lacks nothing."""
    properties = vk.vkGetPhysicalDeviceProperties(handle)
    families = vk.vkGetPhysicalDeviceQueueFamilyProperties(handle)
    memory = vk.vkGetPhysicalDeviceMemoryProperties(handle)
    needs = {
        "Vulkan 1.1": properties.apiVersion >= vk.VK_MAKE_VERSION(1, 1, 0),
        "a queue that computes": any(family.queueFlags & vk.VK_QUEUE_COMPUTE_BIT for family in families),
        "memory that the host sees": _host_type(memory) is not None,
        "device memory": _memory_type(memory, _DEVICE_LOCAL) is not None,
    }
    for name, least in _LEAST.items():
        value = getattr(properties.limits, name)
        needs[f"a {name} of {least} (it is {value})"] = value >= least
    driver = vk.VkPhysicalDeviceDriverProperties()
    properties2 = vk.VkPhysicalDeviceProperties2(pNext=driver)
    vk.vkGetPhysicalDeviceProperties2(handle, properties2)
    # MoltenVK before 1.3 ignores specialization constants that are sizes of arrays. Version 1.2.11 is 10211.
    needs["MoltenVK 1.3"] = driver.driverID != vk.VK_DRIVER_ID_MOLTENVK or properties2.properties.driverVersion >= 10300
    lacking = [need for need, is_met in needs.items() if not is_met]
    return f"{properties.deviceName} lacks {', '.join(lacking)}" if lacking else ""


def _memory_type(memory: Any, flags: int) -> Any:
    """The memory type that Kompute uses: the first type that has these flags, or None."""
    types = (memory.memoryTypes[i] for i in range(memory.memoryTypeCount))
    return next((kind for kind in types if kind.propertyFlags & flags == flags), None)


def _host_type(memory: Any) -> Any:
    """The memory type that Kompute uses for memory that the host maps: if possible a cached type; or None."""
    return _memory_type(memory, _HOST | _HOST_CACHED) or _memory_type(memory, _HOST)


def _describe(vk: Any, index: int, handle: Any) -> DeviceInfo:
    """The properties of a device that lacks nothing."""
    maintenance = vk.VkPhysicalDeviceMaintenance3Properties()
    subgroup = vk.VkPhysicalDeviceSubgroupProperties(pNext=maintenance)
    identity = vk.VkPhysicalDeviceIDProperties(pNext=subgroup)
    driver = vk.VkPhysicalDeviceDriverProperties(pNext=identity)
    properties = vk.VkPhysicalDeviceProperties2(pNext=driver)
    vk.vkGetPhysicalDeviceProperties2(handle, properties)
    core, limits = properties.properties, properties.properties.limits
    memory = vk.vkGetPhysicalDeviceMemoryProperties(handle)
    host = _host_type(memory)
    unified = _DEVICE_LOCAL | _HOST_CACHED
    texts = core.deviceName, driver.driverName, driver.driverInfo
    name, driver_name, driver_version = (vk.ffi.string(text).decode(errors="replace") for text in texts)
    return DeviceInfo(
        index=index,
        name=name,
        type=_TYPES[core.deviceType],
        driver=f"{driver_name} {driver_version}".strip()
        or f"vendor {core.vendorID:#x}, version {core.driverVersion:#x}",
        uuid=bytes(identity.deviceUUID).hex(),
        api_version=_version(core.apiVersion),
        max_storage_buffer_range=limits.maxStorageBufferRange,
        max_memory_allocation_size=maintenance.maxMemoryAllocationSize,
        max_memory_allocation_count=limits.maxMemoryAllocationCount,
        max_group_size=min(limits.maxComputeWorkGroupInvocations, limits.maxComputeWorkGroupSize[0]),
        max_group_count=limits.maxComputeWorkGroupCount[0],
        subgroup_size=subgroup.subgroupSize,
        heaps=tuple(memory.memoryHeaps[i].size for i in range(memory.memoryHeapCount)),
        device_heap=_memory_type(memory, _DEVICE_LOCAL).heapIndex,
        host_heap=host.heapIndex,
        unified=host.propertyFlags & unified == unified,
    )
