"""The header of a run: its machine and settings."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.measure import SAMPLE
from benchmarks.peers import cores
from dmlgpu import Device
from dmlgpu.runtime import kompute_module

# Set before any driver is loaded, in __main__.py.
_CACHE_VARIABLES = {"MESA_SHADER_CACHE_DISABLE": "true", "__GL_SHADER_DISK_CACHE": "0"}


def header(device: Device, peers: Mapping[str, str], rounds: int, seconds: float) -> dict[str, str]:
    """What the times of a run depend on, by name; `peers` has a description of each, or why it is missing."""
    off = [f"{name}={value}" for name, value in _CACHE_VARIABLES.items() if os.environ.get(name) == value]
    return {
        **place(device),
        **{f"peer {name}": text for name, text in peers.items()},
        "shader caches": f"off ({', '.join(off)})" if len(off) == len(_CACHE_VARIABLES) else "on",
        "rounds": f"{rounds}, or fewer of what takes longer than {seconds:g} s; a call or {SAMPLE * 1e3:g} ms a sample",
    }


def place(device: Device) -> dict[str, str]:
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
