"""The header of a run: its machine and settings."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks import CACHES_OFF
from benchmarks.measure import SAMPLE
from benchmarks.peers import cores
from dmlgpu import Device
from dmlgpu.runtime import kompute_module


def header(device: Device, peers: Mapping[str, str], rounds: int, seconds: float) -> dict[str, str]:
    """What the times of a run depend on, by name; `peers` has a description of each peer, or why it is missing."""
    off = ", ".join(f"{name}={value}" for name, value in CACHES_OFF.items())
    return {
        **environment(device),
        **{f"peer {name}": text for name, text in peers.items()},
        "shader caches": f"off ({off})" if CACHES_OFF.items() <= os.environ.items() else "on",
        "rounds": f"{rounds}, fewer for what takes longer than {seconds:g} s; a sample is one call, or the mean of "
        f"those in {SAMPLE * 1e3:g} ms",
    }


def environment(device: Device) -> dict[str, str]:
    """The device, the machine, and the versions of the packages."""
    info = device.info
    packages = "dmlgpu", kompute_module.package_of(kompute_module.kompute()), "numpy"
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "device": f"{info.name} ({info.type}), Vulkan {info.api_version}",
        "driver": info.driver,
        "versions": ", ".join(f"{name} {_version(name)}" for name in packages)
        + f", Python {platform.python_version()}",
        "CPU": f"{_cpu()}, {cores()} cores",
        "system": f"{platform.system()} on {platform.machine()}",
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "of this checkout"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()
