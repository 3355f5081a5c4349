"""Differences between devices: the limits of plans, and the options of the allocator of tensors.

The sections are their causes: limits of Vulkan and Kompute, choices for a class of devices, and weaknesses of drivers.
"""

from __future__ import annotations

import math
import os
import re
from typing import TypedDict

from dmlgpu.lowering.limits import Limits
from dmlgpu.runtime.drivers import DeviceInfo
from dmlgpu.runtime.memory import ALIGNMENT
from dmlgpu.runtime.schedule import SUBMISSION_SECONDS

# Limits of Vulkan and Kompute

# kp counts the bytes of a buffer in 32 bits.
_KP_MAX_BYTES = (1 << 32) - ALIGNMENT


def _largest_buffer(info: DeviceInfo) -> int:
    """Maximum size of a buffer in bytes, a multiple of ALIGNMENT."""
    # A buffer may need more memory than its size: on SwiftShader, one of max_memory_allocation_size does not fit.
    largest = min(info.max_storage_buffer_range, info.max_memory_allocation_size - ALIGNMENT, _KP_MAX_BYTES)
    return largest // ALIGNMENT * ALIGNMENT


# Choices for a class of devices: CPU drivers, or GPUs of any kind

# Invocations of a workgroup, for both classes.
_GROUP_SIZE = 64
# Workgroups of every dispatch. A GPU needs many to be busy. On a CPU driver a group runs on one core, and every idle
# group costs time: on two cores, ARGMAX of (8, 100) needs 85 us with 8 groups and 160 us with 64 on lavapipe, 250 us
# and 1300 us on SwiftShader. ARGMAX of (4096, 1024) and pooling are as fast with 8 groups as with 64.
_CPU_GROUPS_PER_CORE = 4
_GPU_GROUPS = 4096
# Minimum number of loads of an invocation, if several invocations share an output and a second pass combines their
# partials.
_CPU_LEAST_LOADS, _GPU_LEAST_LOADS = 1024, 16
# Seconds per element on a slow device, because a watchdog resets a GPU that is busy for seconds. LOG_SUM_EXP has 200
# instructions for each element: the VideoCore VII of a Raspberry Pi 5 needs 5 ns for them (38 billion in a second), and
# a GeForce GTX 660 0.2 ns. lavapipe and SwiftShader on two cores need 10 ns for pool_direct.comp.
_SECONDS_PER_ELEMENT = 10e-9
_DISCRETE_SECONDS_PER_ELEMENT = 0.5e-9
# Maximum number of dispatches of a plan. First plans assume a slow device, so large operators need many.
_GPU_DISPATCHES = 1 << 14
# Buffers for tensors. A pipeline is bound to buffers, and building a pipeline takes 50 to 250 ms. Therefore tensors
# share buffers, and with them pipelines. On a CPU driver, memory that nobody writes to costs at most 0.5 ms per MiB
# when its buffer is created (SwiftShader), and nothing later (see kompute.py). Buffers of CPU drivers therefore have
# room for many tensors, and a new buffer has more room than the last.
_CPU_STEP, _CPU_GROWTH, _CPU_MOST = 24 << 20, 4, 96 << 20
# On a GPU that shares the host's memory, a new buffer has less than 1 MiB of spare room.
_SHARED_STEP = 1 << 20
# Maximum size of a buffer that is copied between host and device in the submissions of steps. Another submission costs
# 30 to 60 us, on two cores with lavapipe and SwiftShader. A copy of 1 MiB costs as much; a copy of 64 KiB is too fast
# to measure.
SMALL_COPY_BYTES = 64 << 10
# On a GPU with separate memory each tensor has a separate buffer, because Kompute copies whole buffers between host and
# device. Sizes are rounded up, so that tensors of similar sizes can use the same buffer, one after the other.
_DEDICATED_STEP = SMALL_COPY_BYTES


def _is_cpu(info: DeviceInfo) -> bool:
    return info.type == "cpu"


def _group_count(info: DeviceInfo) -> int:
    return _CPU_GROUPS_PER_CORE * _cores() if _is_cpu(info) else _GPU_GROUPS


def _cores() -> int:
    """The processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def assumed_seconds_per_element(info: DeviceInfo) -> float:
    """Seconds per element before any measurement: those of a slow device of this type."""
    return _DISCRETE_SECONDS_PER_ELEMENT if info.type == "discrete" else _SECONDS_PER_ELEMENT


# Weaknesses of drivers

# llvmpipe silently ends long loops: plans respect `Limits.invocation_loads` on every driver. SwiftShader unrolls no
# loops over local arrays, and loads four words as fast as a vector. llvmpipe (Mesa 25.0, not 22.3) gathers each word of
# a vector for all invocations of a SIMD vector, as slowly as words that are far apart.
_GATHERING = re.compile(r"llvmpipe Mesa (2[5-9]|[3-9]\d)\b")


def _is_swiftshader(info: DeviceInfo) -> bool:
    return "SwiftShader" in info.driver


# Limits, and options of the allocator


def device_limits(info: DeviceInfo) -> Limits:
    """The limits of plans for a device."""
    group_size = min(_GROUP_SIZE, info.max_group_size)
    group_count = min(_group_count(info), info.max_group_count)
    return Limits(
        segment_bytes=_largest_buffer(info),
        group_size=group_size,
        group_count=group_count,
        dispatch_elements=1 << int(math.log2(SUBMISSION_SECONDS / assumed_seconds_per_element(info))),
        dispatch_count=Limits.dispatch_count if _is_cpu(info) else _GPU_DISPATCHES,
        unrolls=not _is_swiftshader(info),
        loads_vectors=not _is_swiftshader(info),
        gathers=bool(_GATHERING.match(info.driver)),
        simd_width=info.subgroup_size if _is_cpu(info) else group_size * group_count,
        least_loads=_CPU_LEAST_LOADS if _is_cpu(info) else _GPU_LEAST_LOADS,
        cooperating=not _is_cpu(info),
    )


class AllocatorOptions(TypedDict):
    """The options of an `Allocator`; sizes in bytes."""

    shared: bool
    step: int
    growth: int
    most: int
    keep: int


def tensor_memory(info: DeviceInfo) -> AllocatorOptions:
    """The options of the allocator of tensors and workspaces."""
    heap, largest = info.heaps[info.host_heap], _largest_buffer(info)
    step, growth, most = _SHARED_STEP if info.unified else _DEDICATED_STEP, 0, largest
    if info.unified and _is_cpu(info):
        step, growth, most = min(_CPU_STEP, heap // 16), _CPU_GROWTH, min(_CPU_MOST, heap // 16, largest)
    return AllocatorOptions(shared=info.unified, step=step, growth=growth, most=most, keep=heap // 8)
