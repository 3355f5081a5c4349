"""The drivers under test, and devices that pretend to be others, or to have lower limits.

Drivers are lavapipe, SwiftShader and those of DMLGPU_TEST_DRIVERS, side by side in one process. DMLGPU_TEST_DRIVERS has
paths of driver manifests, or names: `nvidia` is every `*nvidia*.json` in the folders that the Vulkan loader searches.
They are separated as in PATH. A missing driver fails its tests.

DMLGPU_TEST_ONLY has the same form and excludes all other drivers, for a machine with only one driver.
DMLGPU_TEST_DEVICE chooses a device of a driver that has several, as DMLGPU_DEVICE does; by default the best.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dmlgpu
from dmlgpu.lowering.limits import Limits
from dmlgpu.runtime import kompute
from dmlgpu.runtime.drivers import select

LOADER_FOLDERS = [
    Path(root).expanduser() / "vulkan" / "icd.d"
    for root in ("/etc", "/usr/local/etc", "/usr/local/share", "/usr/share", "/opt/homebrew/share", "~/.local/share")
]
BROWSER_FOLDERS = [
    Path(folder)
    for folder in (
        "/usr/lib/chromium",
        "/usr/lib64/chromium",
        "/usr/lib/chromium-browser",
        "/usr/lib64/chromium-browser",
        "/opt/google/chrome",
        "/opt/chromium.org/chromium",
    )
]


def manifests(folders: list[Path], pattern: str) -> list[Path]:
    """Driver manifests in these folders, those for this machine's architecture first."""
    matching = [manifest for folder in folders for manifest in sorted(folder.glob(pattern))]
    return sorted(matching, key=lambda manifest: platform.machine() not in manifest.name)


def find_drivers() -> dict[str, Path | None]:
    """The manifest of every driver under test, by name; None if it was not found."""
    swiftshader = [
        manifest
        for manifest in manifests(BROWSER_FOLDERS + LOADER_FOLDERS, "vk_swiftshader_icd.json")
        if manifest.with_name("libvk_swiftshader.so").exists() or manifest.parent in LOADER_FOLDERS
    ]
    drivers: dict[str, Path | None] = {}
    names = os.environ.get("DMLGPU_TEST_ONLY")
    if not names:
        drivers["lavapipe"] = next(iter(manifests(LOADER_FOLDERS, "lvp_icd*.json")), None)
        drivers["swiftshader"] = next(iter(swiftshader), None)
        names = os.environ.get("DMLGPU_TEST_DRIVERS", "")
    known = {"lvp_icd": "lavapipe", "vk_swiftshader_icd": "swiftshader"}
    for entry in filter(None, names.split(os.pathsep)):
        is_path = Path(entry).suffix == ".json"
        matching = [Path(entry).absolute()] if is_path else manifests(LOADER_FOLDERS, f"*{entry}*.json")
        for manifest in matching or [None]:
            if manifest is None or not manifest.exists():
                drivers[entry] = None
            elif manifest not in drivers.values():
                name = known.get(manifest.name.partition(".")[0], manifest.stem)
                drivers[str(manifest) if name in drivers else name] = manifest
    return drivers


def set_drivers(setenv: Callable[[str, str], object], *drivers: Path | None) -> None:
    """Restricts the Vulkan loader to these drivers, from the next created instance on."""
    for variable in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES"):
        setenv(variable, os.pathsep.join(map(str, filter(None, drivers))))


def device_of(manifest: Path) -> dmlgpu.DeviceInfo:
    """A driver's device as `devices()` lists it: the chosen one, or the best."""
    with pytest.MonkeyPatch.context() as environment:
        set_drivers(environment.setenv, manifest)
        alone = select(os.environ.get("DMLGPU_TEST_DEVICE"))
    # Drivers that run on the CPU may have the same UUID.
    return next(info for info in dmlgpu.devices() if dataclasses.replace(info, index=alone.index) == alone)


DRIVERS = find_drivers()


def use_drivers_under_test() -> None:
    """Restricts this process to the drivers under test, and clears the user's settings."""
    set_drivers(os.environ.__setitem__, *DRIVERS.values())
    for variable in ("DMLGPU_DEVICE", "DMLGPU_VERIFY", "DMLGPU_LOG"):
        os.environ.pop(variable, None)


@contextlib.contextmanager
def opened_as(driver: dmlgpu.DeviceInfo, limits: Limits | None = None, **changes: object) -> Iterator[dmlgpu.Device]:
    """An open device that pretends to be another one."""
    info = dataclasses.replace(driver, **changes)
    original = kompute._memory_left

    def memory_left(manager: Any) -> list[int]:
        reported = original(manager)
        return reported if len(reported) == len(info.heaps) else []

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("dmlgpu.runtime.device.select", lambda selector: info)
        device = dmlgpu.Device(limits=limits)
    with device, pytest.MonkeyPatch.context() as patched:
        # The driver reports on its heaps, not on pretended ones.
        patched.setattr(kompute, "_memory_left", memory_left)
        yield device


def discrete(driver: dmlgpu.DeviceInfo) -> dict[str, Any]:
    """Changes of a device's description to that of a GPU whose memory the host cannot map.

    Every tensor then has a buffer and a staging copy. Plans are those of a GPU, but with few workgroups, because each
    costs time on a CPU.
    """
    heap = driver.heaps[driver.device_heap]
    return {
        "type": "discrete",
        "unified": False,
        "heaps": (heap, heap),
        "device_heap": 0,
        "host_heap": 1,
        "max_group_count": 16,
    }


def unified(driver: dmlgpu.DeviceInfo) -> dict[str, Any]:
    """Changes of a device's description to that of a CPU, which maps all memory; a CPU driver's stays the same."""
    return {"type": "cpu", "unified": True, "device_heap": driver.host_heap}


def naming(library: object) -> dict[str, object]:
    """The content of the manifest of a driver in this library."""
    return {"file_format_version": "1.0.0", "ICD": {"library_path": str(library), "api_version": "1.3.0"}}
