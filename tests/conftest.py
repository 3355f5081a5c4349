"""The devices that tests run on, opened once for all of them; support/drivers.py says which."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

import dmlgpu
import dmlgpu.runtime.drivers
import dmlgpu.runtime.kompute
from dmlgpu.runtime.schedule import Place, Step
from dmlgpu.runtime.settings import switch
from dmlgpu.runtime.tuning import device_limits
from tests.support import guards
from tests.support.drivers import DRIVERS, device_of, discrete, opened_as, unified, use_drivers_under_test
from tests.support.kompute_seam import Seam
from tests.support.limits import CORES, LOWERED, limits_of


def pytest_configure() -> None:
    use_drivers_under_test()
    guards.install()
    # Otherwise the shared devices of a process keep 7 GB of pipelines, which few tests use again.
    dmlgpu.runtime.kompute._PIPELINES = 64
    if switch("DMLGPU_TEST_WHOLE_BUFFERS"):
        bind_whole_buffers()
    if switch("DMLGPU_TEST_AS_GPU"):
        treat_as_gpus()


def treat_as_gpus() -> None:
    """Treats every device as a GPU with memory of its own: what tests expect of a CPU driver fails, as on a GPU."""
    devices = dmlgpu.runtime.drivers._devices

    def as_gpus(vk: Any) -> tuple[dmlgpu.DeviceInfo, ...]:
        infos = devices(vk)
        return tuple(replace(info, **{**discrete(info), "max_group_count": info.max_group_count}) for info in infos)

    dmlgpu.runtime.drivers._devices = as_gpus
    # What a driver says of its heaps is nothing of those that are made up.
    dmlgpu.runtime.kompute._memory_left = lambda manager: []


def bind_whole_buffers() -> None:
    """Takes steps to depend on each other as soon as their buffers are the same.

    Kompute binds whole buffers, and the validation layer takes all of a binding for read or written: only then does it
    have nothing to report.
    """
    submissions = dmlgpu.runtime.kompute.submissions

    def of_whole_buffers(steps: Iterable[Step[Any]], **options: bool) -> Iterator[list[Any]]:
        def whole(places: frozenset[Place[Any]]) -> frozenset[Place[Any]]:
            return frozenset((buffer, 0) for buffer, _ in places)

        return submissions((replace(s, reads=whole(s.reads), writes=whole(s.writes)) for s in steps), **options)

    dmlgpu.runtime.kompute.submissions = of_whole_buffers


def pytest_report_header() -> list[str]:
    return [f"driver {name}: {manifest or 'NOT FOUND'}" for name, manifest in DRIVERS.items()]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    run: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        if "driver" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.device)
        (left_out if is_left_out(item) else run).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = run


def is_left_out(item: pytest.Item) -> bool:
    """Whether lavapipe has run a test, and SwiftShader would find nothing new; or it alone could, and is not tested.

    SwiftShader takes long to compile. It runs every kernel (`test_mappings.py`), every type (`test_hashes.py`), and
    what its arithmetic, its atomics or its memory may do otherwise, all marked `every_driver`; no windows, axes,
    tensors, limits or copies that the host plans for all drivers alike.
    """
    params = item.callspec.params if hasattr(item, "callspec") else {}
    if params.get("driver") == "lavapipe" and "lavapipe" not in DRIVERS:
        return True  # a test of its limits
    if params.get("driver") != "swiftshader" or "lavapipe" not in DRIVERS:
        return False
    if not item.get_closest_marker("every_driver"):
        return True
    planned = params.get("any_device") == "lowered-limits" or params.get("mapped") == "split"
    planned |= params.get("mapping") in CORES
    of_cases = "case" in params or "operator" in params
    return planned or (of_cases and not {"lowered_devices", "cooperating", "staged"}.isdisjoint(item.fixturenames))


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
def on_cpu(driver: dmlgpu.DeviceInfo) -> Iterator[dmlgpu.Device]:
    """The device as if it were a CPU, whose tensors share buffers."""
    with opened_as(driver, **unified(driver)) as device:
        yield device


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
    limits = replace(device_limits(driver), cooperating=True, group_count=16)
    return open_device(driver.index, replace(limits, simd_width=limits.invocations))


@pytest.fixture(scope="module", params=["CPU", "GPU", "split"])
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
def fresh_unified(driver: dmlgpu.DeviceInfo, kp: Seam) -> Iterator[dmlgpu.Device]:
    """The same as if it were a CPU, whose tensors share buffers."""
    with opened_as(driver, **unified(driver)) as device:
        kp.counts.clear()
        yield device


@pytest.fixture
def fresh_staged(driver: dmlgpu.DeviceInfo, kp: Seam) -> Iterator[dmlgpu.Device]:
    """The same as if it were a GPU with memory of its own."""
    with opened_as(driver, **discrete(driver)) as device:
        kp.counts.clear()
        yield device


@pytest.fixture(params=["unified", "staged"])
def either(request: pytest.FixtureRequest, driver: dmlgpu.DeviceInfo) -> Any:
    """A device that was just opened, as if it were a CPU, then as if it were a GPU."""
    return request.getfixturevalue(f"fresh_{request.param}")


@pytest.fixture
def environment() -> dict[str, str]:
    """The variables of this process, for another one."""
    return dict(os.environ)
