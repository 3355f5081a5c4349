"""The devices that tests run on, opened once for all of them; support/drivers.py says which."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import platform
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dmlgpu
import dmlgpu.runtime.kompute
from dmlgpu.lowering.limits import Limits
from dmlgpu.runtime.drivers import select
from dmlgpu.runtime.schedule import Place, Step
from dmlgpu.runtime.settings import switch
from dmlgpu.runtime.tuning import device_limits
from tests.support import guards
from tests.support.drivers import discrete, opened_as, use_drivers_under_test
from tests.support.kompute_seam import Seam

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

# Low enough that small tensors lie in many segments, and need several ranges, pieces and records.
LOWERED = Limits(
    segment_bytes=256, group_size=32, group_count=3, records_bytes=512, loop_iterations=400, dispatch_count=1 << 20
)


# The mapping of a CPU goes by the number of its cores: this machine's, and others.
CORES = {f"CPU-{cores}": cores for cores in (1, 16, 64, 256)}
MAPPINGS = ("CPU", *CORES, "GPU", "split")


def limits_of(info: dmlgpu.DeviceInfo, mapping: str) -> Limits:
    """Limits of a device with the mapping of a CPU or of a GPU, whatever it is, or so low that tensors are split."""
    if mapping == "split":
        return LOWERED
    if mapping == "GPU":
        return dataclasses.replace(device_limits(info), cooperating=True, unrolls=True, group_count=16, least_loads=16)
    cpu = device_limits(dataclasses.replace(info, type="cpu"))
    return dataclasses.replace(cpu, group_count=4 * CORES[mapping]) if mapping in CORES else cpu


def manifests(folders: list[Path], pattern: str) -> list[Path]:
    """Driver manifests in these folders, those for this machine's architecture first."""
    there_are = [manifest for folder in folders for manifest in sorted(folder.glob(pattern))]
    return sorted(there_are, key=lambda manifest: platform.machine() not in manifest.name)


def find_drivers() -> dict[str, Path | None]:
    """The manifest of every driver under test, by its name; None where there is none."""
    swiftshader = [
        manifest
        for manifest in manifests(BROWSER_FOLDERS + LOADER_FOLDERS, "vk_swiftshader_icd.json")
        if manifest.with_name("libvk_swiftshader.so").exists() or manifest.parent in LOADER_FOLDERS
    ]
    drivers: dict[str, Path | None] = {}
    wanted = os.environ.get("DMLGPU_TEST_ONLY")
    if not wanted:
        drivers["lavapipe"] = next(iter(manifests(LOADER_FOLDERS, "lvp_icd*.json")), None)
        drivers["swiftshader"] = next(iter(swiftshader), None)
        wanted = os.environ.get("DMLGPU_TEST_DRIVERS", "")
    for added in filter(None, wanted.split(os.pathsep)):
        named = Path(added).suffix == ".json"
        matching = [Path(added).absolute()] if named else manifests(LOADER_FOLDERS, f"*{added}*.json")
        for manifest in matching or [None]:
            if manifest is None or not manifest.exists():
                drivers[added] = None
            elif manifest not in drivers.values():
                drivers[str(manifest) if manifest.stem in drivers else manifest.stem] = manifest
    return drivers


def set_drivers(setenv: Callable[[str, str], object], *drivers: Path | None) -> None:
    """Lets the Vulkan loader see these drivers only; it looks when an instance is created."""
    for variable in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES"):
        setenv(variable, os.pathsep.join(map(str, filter(None, drivers))))


def device_of(manifest: Path) -> dmlgpu.DeviceInfo:
    """A driver's device, the chosen or the best one, among those of all drivers."""
    with pytest.MonkeyPatch.context() as environment:
        set_drivers(environment.setenv, manifest)
        alone = select(os.environ.get("DMLGPU_TEST_DEVICE"))
    # Drivers that run on the CPU may have the same UUID.
    return next(info for info in dmlgpu.devices() if dataclasses.replace(info, index=alone.index) == alone)


DRIVERS = find_drivers()
set_drivers(os.environ.__setitem__, *DRIVERS.values())
# The tests say themselves what they want of these.
for variable in ("DMLGPU_DEVICE", "DMLGPU_VERIFY", "DMLGPU_LOG"):
    os.environ.pop(variable, None)


def pytest_configure() -> None:
    use_drivers_under_test()
    guards.install()
    if switch("DMLGPU_TEST_WHOLE_BUFFERS"):
        bind_whole_buffers()


def bind_whole_buffers() -> None:
    """Takes steps to depend on each other as soon as their buffers are the same.

    Kompute binds whole buffers, and the validation layer takes all of a binding for read or written: only then does it
    have nothing to report.
    """
    submissions = dmlgpu.runtime.kompute.submissions

    def of_whole_buffers(steps: Iterable[Step[Any]]) -> Iterator[list[Any]]:
        def whole(places: frozenset[Place[Any]]) -> frozenset[Place[Any]]:
            return frozenset((buffer, 0) for buffer, _ in places)

        return submissions(dataclasses.replace(s, reads=whole(s.reads), writes=whole(s.writes)) for s in steps)

    dmlgpu.runtime.kompute.submissions = of_whole_buffers


def pytest_report_header() -> list[str]:
    return [f"driver {name}: {manifest or 'NOT FOUND'}" for name, manifest in DRIVERS.items()]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "driver" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.device)
    config.hook.pytest_deselected(items=[item for item in items if is_planned_again(item)])
    items[:] = [item for item in items if not is_planned_again(item)]


def is_planned_again(item: pytest.Item) -> bool:
    """Whether a test is run on SwiftShader with tensors, limits or copies that the host plans, and lavapipe has run it.

    The host plans for all drivers alike, and SwiftShader takes long to compile. There `test_mappings.py` has every
    kernel of every mapping, `test_hashes.py` every type, `test_splitting.py` what ends around a segment.
    """
    if item.nodeid.startswith("tests/device/test_hashes.py"):
        return False
    params = item.callspec.params if hasattr(item, "callspec") else {}
    planned = params.get("any_device") == "lowered-limits" or params.get("mapped") in ("split", *CORES)
    planned |= params.get("mapping") in CORES
    fixtures = getattr(item, "fixturenames", ())
    of_cases = "case" in params or "operator" in params
    planned |= of_cases and any(name in fixtures for name in ("lowered_devices", "cooperating", "staged"))
    return planned and params["driver"] == "swiftshader" and "lavapipe" in DRIVERS


@pytest.fixture(scope="session", params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> dmlgpu.DeviceInfo:
    """The device of each driver in turn, not opened."""
    manifest = DRIVERS[request.param]
    if manifest is None:
        pytest.fail(f"the Vulkan driver {request.param} was not found; install it: tests never skip a driver")
    return device_of(manifest)


@pytest.fixture(scope="session")
def open_device() -> Iterator[Callable[..., dmlgpu.Device]]:
    """Opens a device, or gives the one that was opened so before: tests that share devices share pipelines."""
    with contextlib.ExitStack() as stack:
        yield functools.cache(lambda index, limits=None: stack.enter_context(dmlgpu.Device(index, limits=limits)))


@pytest.fixture(scope="session")
def device(driver: dmlgpu.DeviceInfo, open_device: Callable[..., dmlgpu.Device]) -> dmlgpu.Device:
    """An open device of each driver in turn."""
    return open_device(driver.index)


@pytest.fixture(scope="session")
def staged(driver: dmlgpu.DeviceInfo) -> Iterator[dmlgpu.Device]:
    """The device as if it were a GPU with memory of its own."""
    with opened_as(driver, **discrete(driver)) as device:
        yield device


@pytest.fixture(scope="session")
def lowered(driver: dmlgpu.DeviceInfo, open_device: Callable[..., dmlgpu.Device]) -> dmlgpu.Device:
    """The same with limits lowered by hand."""
    return open_device(driver.index, LOWERED)


@pytest.fixture(scope="session")
def cooperating(driver: dmlgpu.DeviceInfo, open_device: Callable[..., dmlgpu.Device]) -> dmlgpu.Device:
    """The same with the mapping of a GPU."""
    limits = dataclasses.replace(device_limits(driver), cooperating=True, group_count=16)
    return open_device(driver.index, dataclasses.replace(limits, bundle=limits.invocations))


@pytest.fixture(scope="module", params=MAPPINGS)
def mapped(
    request: pytest.FixtureRequest, driver: dmlgpu.DeviceInfo, open_device: Callable[..., dmlgpu.Device]
) -> dmlgpu.Device:
    """The device mapped as a CPU, as a GPU, and with split tensors."""
    return open_device(driver.index, limits_of(driver, request.param))


@pytest.fixture(scope="session", params=["full-limits", "lowered-limits"])
def any_device(request: pytest.FixtureRequest, device: dmlgpu.Device, lowered: dmlgpu.Device) -> dmlgpu.Device:
    """The device with its own limits, then with lowered ones."""
    return lowered if request.param == "lowered-limits" else device


@pytest.fixture
def kp(monkeypatch: pytest.MonkeyPatch) -> Seam:
    """What every device that is opened from now on asks of Kompute."""
    return Seam().install(monkeypatch.setattr)


@pytest.fixture
def fresh(driver: dmlgpu.DeviceInfo, kp: Seam) -> Iterator[dmlgpu.Device]:
    """A device that was just opened; what opening it took is not counted."""
    with dmlgpu.Device(driver.index) as device:
        kp.counts.clear()
        yield device


@pytest.fixture
def environment() -> dict[str, str]:
    """The variables of this process, for another one."""
    return dict(os.environ)
