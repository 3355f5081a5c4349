"""Limits of real devices, from public reports. Limits that no report has are the minimum of Vulkan.

Reports of vulkan.gpuinfo.org are those that Khronos exported to its repositories Vulkan-Profiles and
Vulkan-ValidationLayers (the latter's folder tests/device_profiles, as of commit 15064d5b). They lack memory, which is
from another report, of the same device or of one with the same driver.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

from dmlgpu.runtime import drivers
from dmlgpu.runtime.drivers import DeviceInfo

GIB = 1 << 30

# VkMemoryPropertyFlagBits, in the combinations that occur.
OTHER, DEVICE, HOST, CACHED = 0, 1, 6, 14
SHARED, SHARED_CACHED, SHARED_INCOHERENT, LAZY = 7, 15, 11, 17


@dataclass(frozen=True)
class Memory:
    """VkPhysicalDeviceMemoryProperties; sizes in bytes."""

    source: str
    heaps: tuple[int, ...]
    types: tuple[tuple[int, int], ...]
    """(flags, heap) of every memory type, in order, up to the last one that Kompute could use."""


@dataclass(frozen=True)
class RealDevice:
    """A device's limits by Vulkan's names; sizes in bytes."""

    name: str
    driver: str
    source: str
    type: str
    storage_range: int  # maxStorageBufferRange
    allocation_size: int  # maxMemoryAllocationSize
    allocation_count: int  # maxMemoryAllocationCount
    group_size: int  # maxComputeWorkGroupSize along the first dimension
    invocations: int  # maxComputeWorkGroupInvocations
    group_count: int  # maxComputeWorkGroupCount along the first dimension
    shared_bytes: int  # maxComputeSharedMemorySize
    push_bytes: int  # maxPushConstantsSize
    storage_buffers: int  # maxPerStageDescriptorStorageBuffers
    alignment: int  # minStorageBufferOffsetAlignment
    subgroup_size: int
    operations: float  # of float32 per second: units times clock, from data sheets
    memory: Memory

    @property
    def info(self) -> DeviceInfo:
        """What `devices()` would return for it."""
        types = [SimpleNamespace(propertyFlags=flags, heapIndex=heap) for flags, heap in self.memory.types]
        memory = SimpleNamespace(memoryTypes=types, memoryTypeCount=len(types))
        device, host = drivers._memory_type(memory, DEVICE), drivers._host_type(memory)
        return DeviceInfo(
            index=0,
            name=self.name,
            type=self.type,
            driver=self.driver,
            uuid="0" * 32,
            api_version="1.1.0",
            max_storage_buffer_range=self.storage_range,
            max_memory_allocation_size=self.allocation_size,
            max_memory_allocation_count=self.allocation_count,
            max_group_size=min(self.group_size, self.invocations),
            max_group_count=self.group_count,
            subgroup_size=self.subgroup_size,
            heaps=self.memory.heaps,
            device_heap=device.heapIndex,
            host_heap=host.heapIndex,
            unified=host.propertyFlags & SHARED_CACHED == SHARED_CACHED,
        )


ALL = 2**32 - 1

NVIDIA = Memory(
    "heaps: GeForce RTX 2080, github.com/KhronosGroup/Vulkan-Tools/issues/446; "
    "types: github.com/haasn/libplacebo/issues/178",
    (8 * GIB, 6_227_162_112, 257_949_696),
    ((OTHER, 1), (DEVICE, 0), (HOST, 1), (CACHED, 1), (SHARED, 2)),
)
AMD_DISCRETE = Memory(
    "heaps: github.com/nowrep/obs-vkcapture/issues/6; types: Mesa's src/amd/vulkan/radv_physical_device.c",
    (8_321_499_136, 8_573_157_376, 256 << 20),
    ((DEVICE, 0), (HOST, 1), (SHARED, 2), (CACHED, 1)),
)
AMD_INTEGRATED = Memory(
    "heaps: github.com/KhronosGroup/Vulkan-Tools/issues/582; types as for the discrete ones",
    (1_431_654_400, 2_863_312_896),
    ((DEVICE, 1), (HOST, 0), (SHARED, 1), (CACHED, 0)),
)
INTEL_DISCRETE = Memory(
    "Arc A380, heaps in whole MiB: github.com/haasn/libplacebo/issues/240",
    (5800 << 20, 31 * GIB, 256 << 20),
    ((DEVICE, 0), (HOST, 1)),
)
INTEL_INTEGRATED = Memory("github.com/SaschaWillems/Vulkan/issues/557", (1_610_612_736,), ((SHARED_CACHED, 0),))
APPLE = Memory(
    "github.com/KhronosGroup/MoltenVK/issues/2292",
    (16 * GIB,),
    ((DEVICE, 0), (SHARED_CACHED, 0), (SHARED_INCOHERENT, 0), (LAZY, 0)),
)
MALI = Memory("github.com/termux/termux-packages/issues/19460", (3_825_762_304,), ((SHARED, 0),))
ADRENO = Memory(
    "Adreno 620, github.com/termux/termux-packages/pull/7165",
    (7_819_997_184, 256 << 20),
    ((DEVICE, 0), (SHARED_INCOHERENT, 0), (SHARED_CACHED, 0)),
)
V3D = Memory(
    "Mesa's src/broadcom/vulkan/v3dv_device.c: one type; the heap is maxMemoryAllocationCount pages of 4 KiB",
    (4 * GIB,),
    ((SHARED, 0),),
)
LEAST = Memory("Vulkan: one type is enough; the heap holds one allocation", (GIB,), ((SHARED, 0),))

PROFILES = "Vulkan-Profiles, profiles/LunarG/VP_LUNARG_desktop_"

# The numbers are in the order of the fields.
DEVICES = (
    RealDevice(
        "NVIDIA GeForce RTX 5090",
        "NVIDIA 610.43.02",
        f"{PROFILES}baseline_2026/vp_gpuinfo_nvidia_geforce_rtx_5090_610_43_2_0_freebsd_15_1.json",
        "discrete",
        *(ALL, 2**63 - 1, ALL, 1024, 1024, 2**31 - 1, 49_152, 256, 1 << 20, 16, 32, 52e12, NVIDIA),
    ),
    RealDevice(
        "NVIDIA GeForce GTX 660",
        "NVIDIA 470.161.03",
        f"{PROFILES}baseline_2023/vp_gpuinfo_nvidia_geforce_gtx_660_470_161_3_0_ubuntu_22_04.json",
        "discrete",
        *(ALL, 4_292_870_144, ALL, 1536, 1536, 2**31 - 1, 49_152, 256, 1 << 20, 16, 32, 0.94e12, NVIDIA),
    ),
    RealDevice(
        "AMD Radeon RX 6800 XT",
        "AMD proprietary driver 23.9.2",
        f"{PROFILES}max_2024/vp_gpuinfo_amd_radeon_rx_6800_xt_2_0_283_windows_11.json",
        "discrete",
        *(ALL, 2 * GIB, 4096, 1024, 1024, ALL, 32_768, 128, ALL, 4, 64, 10e12, AMD_DISCRETE),
    ),
    RealDevice(
        "AMD Radeon RX 7800 XT (RADV NAVI32)",
        "radv Mesa 24.1.0-devel",
        f"{PROFILES}baseline_2023/vp_gpuinfo_amd_radeon_rx_7800_xt__radv_navi32__24_0_99_arch_unknown.json",
        "discrete",
        *(ALL, 4_294_967_292, ALL, 1024, 1024, 65_535, 65_536, 256, 8_388_606, 4, 64, 9.3e12, AMD_DISCRETE),
    ),
    RealDevice(
        "AMD APU (RADV)",
        "radv Mesa 24.1.0-devel",
        "limits as for the RX 7800 XT: Mesa's src/amd/vulkan/radv_physical_device.c has the same for both",
        "integrated",
        *(ALL, 4_294_967_292, ALL, 1024, 1024, 65_535, 65_536, 256, 8_388_606, 4, 64, 0.24e12, AMD_INTEGRATED),
    ),
    RealDevice(
        "Intel(R) Arc(TM) A770 Graphics",
        "Intel Corporation 101.8801",
        f"{PROFILES}max_2026/vp_gpuinfo_intel_r__arc_tm__a770_graphics_0_406_609_windows_11.json",
        "discrete",
        *(
            1_073_741_820,
            4_294_901_760,
            4_338_836,
            1024,
            1024,
            65_536,
            49_152,
            256,
            33_554_432,
            64,
            32,
            8.6e12,
            INTEL_DISCRETE,
        ),
    ),
    RealDevice(
        "Intel(R) UHD Graphics 620 (WHL GT2)",
        "Intel open-source Mesa driver Mesa 23.1.7",
        f"{PROFILES}baseline_2024/vp_gpuinfo_intel_r__uhd_graphics_620__whl_gt2__23_1_7_arch_unknown.json",
        "integrated",
        *(ALL, 15_538_538_496, ALL, 1024, 1024, 65_535, 65_536, 128, 65_535, 4, 32, 0.19e12, INTEL_INTEGRATED),
    ),
    RealDevice(
        "Apple M1",
        "MoltenVK 1.4.1",
        f"{PROFILES}baseline_2026/vp_gpuinfo_apple_m1_0_2_2209_macos_26_5_1.json",
        "integrated",
        *(ALL, 4 * GIB, 1 << 30, 1024, 1024, 1 << 30, 32_768, 4096, 31, 16, 32, 1.3e12, APPLE),
    ),
    RealDevice(
        "Mali-G78",
        "Mali-G78 v1.r36p0",
        "Vulkan-ValidationLayers, tests/device_profiles/pixel_6_mali.json",
        "integrated",
        *(256 << 20, 7_951_626_240, ALL, 512, 512, ALL, 32_768, 256, 500_000, 64, 16, 0.8e12, MALI),
    ),
    RealDevice(
        "Adreno 6xx",
        "Qualcomm Technologies Inc. Adreno Vulkan Driver 512.502.0",
        "Vulkan-ValidationLayers, tests/device_profiles/pixel_6_adreno.json",
        "integrated",
        *(512 << 20, GIB, 4096, 512, 1024, 65_535, 32_768, 128, 524_288, 64, 64, 0.25e12, ADRENO),
    ),
    RealDevice(
        "V3D 7.1 (Raspberry Pi 5)",
        "V3DV Mesa",
        "github.com/bevyengine/bevy/issues/18867, and Mesa's src/broadcom/vulkan/v3dv_device.c and v3dv_limits.h",
        "integrated",
        *(GIB, GIB, 1 << 20, 256, 256, 65_535, 32_768, 128, 8, 32, 16, 38e9, V3D),
    ),
    RealDevice(
        "the least that Vulkan 1.1 allows",
        "none",
        "Vulkan's table Required Limits; Vulkan-ValidationLayers, tests/device_profiles/min_core.json",
        "integrated",
        *(128 << 20, GIB, 4096, 128, 128, 65_535, 16_384, 128, 4, 256, 1, 38e9, LEAST),
    ),
)


def info(index: int, name: str, kind: str = "cpu") -> DeviceInfo:
    uuid, size, groups = f"{index:032x}", 1 << 30, 65535
    return DeviceInfo(
        index, name, kind, "driver 1", uuid, "1.3.0", size, size, 4096, 256, groups, 8, (1 << 31,), 0, 0, True
    )
