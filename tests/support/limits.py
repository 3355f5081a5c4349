"""Limits for tests: mappings, with which any device plans like a CPU or a GPU, or splits small tensors; and others."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import dmlgpu
from dmlgpu.lowering.limits import Limits
from dmlgpu.runtime.tuning import device_limits

# Limits so low that small tensors need many segments, ranges, parts and partials; the driver gathers.
LOWERED = Limits(
    segment_bytes=256,
    group_size=32,
    group_count=3,
    partial_bytes=512,
    invocation_loads=100,
    dispatch_count=1 << 20,
    gathers=True,
)
# Plans for a CPU depend on the number of its cores: mappings for other numbers than this machine's.
CORES = {f"CPU-{cores}": cores for cores in (1, 256)}
MAPPINGS = ("CPU", *CORES, "GPU", "split")


def limits_of(info: dmlgpu.DeviceInfo, mapping: str) -> Limits:
    """Limits of a device that plans like a CPU or a GPU, whatever its type, or LOWERED ones that split tensors."""
    if mapping == "split":
        return LOWERED
    if mapping == "GPU":
        return dataclasses.replace(device_limits(info), cooperating=True, unrolls=True, group_count=16, least_loads=16)
    cpu = device_limits(dataclasses.replace(info, type="cpu"))
    return dataclasses.replace(cpu, group_count=4 * CORES[mapping]) if mapping in CORES else cpu


# The same mappings without a device.
LIMITS = {
    "CPU": Limits(segment_bytes=1 << 27, group_size=64, group_count=16, simd_width=8),
    **{name: Limits(1 << 27, group_size=64, group_count=4 * cores, simd_width=8) for name, cores in CORES.items()},
    "GPU": Limits(1 << 27, group_size=64, group_count=16, simd_width=1024, cooperating=True, least_loads=16),
    "split": LOWERED,
}
MIB = 1 << 20
# Limits for tests that only plan: of large devices, LOWERED ones, and limits that cut work at odd positions.
PLANNED = {
    "cpu": Limits(segment_bytes=128 * MIB, group_size=64, group_count=64),
    "gpu": Limits(4096 * MIB - 256, group_size=64, group_count=4096, least_loads=16, cooperating=True),
    "lowered": LOWERED,
    "short": Limits(segment_bytes=128 * MIB, group_size=64, group_count=8, dispatch_elements=2000),
    "odd": Limits(
        segment_bytes=768, group_size=7, group_count=5, partial_bytes=1000, invocation_loads=100, dispatch_count=1 << 20
    ),
}


# Limits with which separable passes compute whole planes, ranges of some outputs, or planes in several segments.
by_ranges = pytest.mark.parametrize(
    ("changes", "dtype"),
    [({}, np.float32), ({"temporary_bytes": 4096}, np.float16), ({"segment_bytes": 2048}, np.float32)],
    ids=["planes", "outputs", "segments"],
)


def gpu_of_eight(driver, open_device, **changes):
    """A device that plans like a GPU that eight invocations keep busy: tiles of 32 bits have eight outputs."""
    few = {"group_size": 8, "group_count": 4, "simd_width": 32, "cooperating": True}
    return open_device(driver.index, dataclasses.replace(device_limits(driver), **few | changes))
