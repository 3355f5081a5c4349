"""What Vulkan drivers offer, asked before Kompute is: it says little of it, and kp as it is ends the process."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from dmlgpu.descriptors.dtypes import index
from dmlgpu.errors import DeviceError, import_problem
from dmlgpu.runtime import forks
from dmlgpu.runtime.settings import setting

# What pip cannot install, by the names that systems have for it.
_LOADER = (
    "Debian, Ubuntu: libvulkan1; Fedora: vulkan-loader; Arch: vulkan-icd-loader; macOS: Homebrew's vulkan-loader; "
    "Windows: the driver of a GPU brings it"
)
_DRIVER = (
    "Debian, Ubuntu, Fedora: mesa-vulkan-drivers; Arch: vulkan-radeon, vulkan-intel or vulkan-swrast; "
    "macOS: Homebrew's molten-vk; NVIDIA, Windows: the driver of the GPU's maker"
)

# In the order of VkPhysicalDeviceType.
_TYPES = ("other", "integrated", "discrete", "virtual", "cpu")
# Which type is taken where the user names no device.
_PREFERENCE = ("discrete", "integrated", "virtual", "other", "cpu")

# What Vulkan requires of every device, as far as plans count on it. A driver can have less: in 2021 MoltenVK said 0 for
# the range of a storage buffer on an M1.
_LEAST = {
    "maxStorageBufferRange": 1 << 27,
    "maxPushConstantsSize": 128,
    "maxPerStageDescriptorStorageBuffers": 4,
    "maxComputeSharedMemorySize": 16 << 10,
}

# VkMemoryPropertyFlagBits: what the host sees is visible (2) and coherent (4).
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
    """Invocations that run side by side; on a CPU the lanes of a vector."""
    heaps: tuple[int, ...]
    """Size of every memory heap."""
    device_heap: int
    """The heap that Kompute takes device memory from, ..."""
    host_heap: int
    """... and the one for memory that the host can see."""
    unified: bool
    """Whether what the host sees is device memory, and cached: no copy is needed between the two."""

    def as_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return asdict(self)


def loader_version() -> str:
    """The version of Vulkan that the loader speaks.

    Raises:
        DeviceError: there is no Vulkan loader, or no package that speaks to it.
    """
    return _version(_vulkan().vkEnumerateInstanceVersion())


def devices() -> tuple[DeviceInfo, ...]:
    """The Vulkan devices of this machine that have all that Kompute and plans need, without creating a device.

    Raises:
        DeviceError: there is no Vulkan loader, no driver, a driver that fails to load, or no such device; the message
            says which of them it is, what devices lack, and what to install. Or this is the fork of a process with open
            devices, or with a thread that looked for them.
    """
    forks.check_process()
    vk = _vulkan()
    with forks.looking:
        return _devices(vk)


def loader_messages() -> list[tuple[str, str]]:
    """What the loader says of drivers and layers when it makes an instance: error, warning or info, and a text.

    Raises:
        DeviceError: there is no Vulkan loader, or no package that speaks to it.
    """
    vk = _vulkan()
    kinds = {
        vk.VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT: "error",
        vk.VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT: "warning",
        vk.VK_DEBUG_UTILS_MESSAGE_SEVERITY_INFO_BIT_EXT: "info",
    }
    said = []

    # Not handed to the package, which has one callback for all messengers of a process.
    @vk.ffi.callback("PFN_vkDebugUtilsMessengerCallbackEXT")  # type: ignore[untyped-decorator]
    def hear(severity: int, _types: int, data: Any, _user: Any) -> int:
        said.append((kinds[severity], vk.ffi.string(data.pMessage).decode(errors="backslashreplace")))
        return 0

    messenger = vk.VkDebugUtilsMessengerCreateInfoEXT(
        messageSeverity=sum(kinds), messageType=vk.VK_DEBUG_UTILS_MESSAGE_TYPE_GENERAL_BIT_EXT
    )
    messenger.pfnUserCallback = hear
    with suppress(vk.VkError):
        instance = _instance(vk, pNext=messenger, ppEnabledExtensionNames=["VK_EXT_debug_utils"])
        vk.vkDestroyInstance(instance, None)
    return list(dict.fromkeys(said))


def _instance(vk: Any, **more: Any) -> Any:
    application = vk.VkApplicationInfo(
        pApplicationName="dmlgpu",
        applicationVersion=1,
        pEngineName="dmlgpu",
        engineVersion=1,
        apiVersion=vk.VK_MAKE_VERSION(1, 1, 0),
    )
    return vk.vkCreateInstance(vk.VkInstanceCreateInfo(pApplicationInfo=application, **more), None)


def _devices(vk: Any) -> tuple[DeviceInfo, ...]:
    try:
        instance = _instance(vk)
    except vk.VkError as error:
        raise _no_device(type(error).__name__) from None
    try:
        handles = vk.vkEnumeratePhysicalDevices(instance)
        lacks = [_lack(vk, handle) for handle in handles]
        found = tuple(_describe(vk, index, handle) for index, handle in enumerate(handles) if not lacks[index])
    except vk.VkError as error:
        raise _no_device(type(error).__name__) from None
    finally:
        vk.vkDestroyInstance(instance, None)
    if not found:
        raise _no_device("; ".join(lacks) or "they list no device")
    return found


def select(wanted: int | str | None) -> DeviceInfo:
    """The device of an index, of part of a name or of a UUID; None: the one that DMLGPU_DEVICE names, or the best.

    Args:
        wanted: names and UUIDs in upper or lower case, UUIDs with or without dashes. Names are those of devices; where
            none has it, those of drivers.

    Raises:
        DeviceError: there is none, or several; the message lists what there is.
        TypeError: what is wanted is none of them.
    """
    return default(devices()) if wanted is None else choose(devices(), wanted)


def default(found: tuple[DeviceInfo, ...]) -> DeviceInfo:
    """`select` of these devices where no program says which."""
    return choose(found, setting("DMLGPU_DEVICE"), "DMLGPU_DEVICE: ")


def choose(found: tuple[DeviceInfo, ...], wanted: int | str | None, asked_by: str = "") -> DeviceInfo:
    """`select` of these devices, but None: the best. Errors begin with `asked_by`."""
    if wanted is None:
        return min(found, key=preference)
    # What has more digits is no index, and int() takes no more than 4,300.
    if isinstance(wanted, str) and wanted.strip().isdecimal() and len(wanted) < 10:
        wanted = int(wanted)
    if isinstance(wanted, str):
        wanted = wanted.strip()
        matches = _matching(found, wanted.lower()) if wanted else []
    else:
        wanted = index_of(wanted)
        matches = [info for info in found if info.index == wanted]
    if len(matches) != 1:
        problem = "several devices match" if matches else "there is no device"
        raise DeviceError(f"{asked_by}{problem} {wanted!r}; devices are {_list(found)}")
    return matches[0]


def _matching(found: tuple[DeviceInfo, ...], text: str) -> list[DeviceInfo]:
    uuid = text.replace("-", "")
    # What Mesa's documents call lavapipe calls itself llvmpipe.
    part = text.replace("lavapipe", "llvmpipe")
    named = [info for info in found if part in info.name.lower() or uuid == info.uuid]
    return named or [info for info in found if part in info.driver.lower()]


def preference(info: DeviceInfo) -> tuple[int, bool]:
    """Sorts devices: which is taken where the user names none. Equal ones are taken for equally fast."""
    # SwiftShader takes many times as long as llvmpipe: docs/performance.md.
    return _PREFERENCE.index(info.type), "SwiftShader" in info.driver


def index_of(wanted: Any) -> int:
    """The index that an integer is.

    Raises:
        TypeError: it is none; nor is True, which Python takes for 1.
    """
    with suppress(TypeError):
        return index(wanted)
    raise TypeError(f"a device is chosen by its index, part of its name or its UUID, not by {wanted!r}")


def _list(found: tuple[DeviceInfo, ...]) -> str:
    """Indices and names of devices, and UUIDs where names are equal."""
    names = Counter(info.name for info in found)
    return ", ".join(
        f"{info.index}: {info.name}" + (f" (UUID {info.uuid})" if names[info.name] > 1 else "") for info in found
    )


def _vulkan() -> Any:
    """The vulkan package, which loads the Vulkan loader."""
    try:
        import vulkan
    except ImportError as error:
        problem = import_problem(error, "vulkan")
        raise DeviceError(
            f"the package vulkan {problem}. Install what dmlgpu needs as docs/installing.md says, or "
            "vulkan alone: pip install vulkan"
        ) from None
    except OSError as error:
        raise DeviceError(f"no Vulkan loader: {error}. Install it ({_LOADER}) and a driver ({_DRIVER})") from None
    return vulkan


def _version(number: int) -> str:
    return f"{number >> 22}.{number >> 12 & 0x3FF}.{number & 0xFFF}"


def _no_device(reason: str) -> DeviceError:
    variable = next((name for name in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES") if name in os.environ), None)
    source = f"{variable}={os.environ[variable]}" if variable else "the system, as in /usr/share/vulkan/icd.d"
    said = [text for kind, text in loader_messages() if kind != "info" or "wrong ELF class" in text]
    return DeviceError(
        f"no Vulkan device that dmlgpu can use; drivers are those of {source} ({'; '.join([reason, *said])}). Install "
        f"the driver of your GPU, or one that needs none ({_DRIVER}); VK_DRIVER_FILES and VK_ICD_FILENAMES, where set, "
        "must name its manifest"
    )


def _lack(vk: Any, handle: Any) -> str:
    """Says what a device lacks of what Kompute and plans need; empty where it has all of it."""
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
    lacking = [need for need, is_there in needs.items() if not is_there]
    return f"{properties.deviceName} lacks {', '.join(lacking)}" if lacking else ""


def _memory_type(memory: Any, flags: int) -> Any:
    """The memory type that Kompute takes: the first that has these flags, or None."""
    types = (memory.memoryTypes[i] for i in range(memory.memoryTypeCount))
    return next((kind for kind in types if kind.propertyFlags & flags == flags), None)


def _host_type(memory: Any) -> Any:
    """The memory type that Kompute takes for what the host sees: cached, if there is one."""
    return _memory_type(memory, _HOST | _HOST_CACHED) or _memory_type(memory, _HOST)


def _describe(vk: Any, index: int, handle: Any) -> DeviceInfo:
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
