"""The devices of the tests, opened once for all of them; support/drivers.py chooses them."""

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
    """Treats every device as a GPU with separate memory; tests of properties of CPU drivers fail, as on a GPU."""
    devices = dmlgpu.runtime.drivers._devices

    def as_gpus(vk: Any) -> tuple[dmlgpu.DeviceInfo, ...]:
        infos = devices(vk)
        return tuple(replace(info, **{**discrete(info), "max_group_count": info.max_group_count}) for info in infos)

    dmlgpu.runtime.drivers._devices = as_gpus
    # The driver reports on its heaps, not on pretended ones.
    dmlgpu.runtime.kompute._memory_left = lambda manager: []


def bind_whole_buffers() -> None:
    """Makes steps depend on each other if they use the same buffer.

    Kompute binds whole buffers, and the validation layer treats all of a binding as read or written, so it would report
    independent steps.
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
    """Whether a test is not run: on SwiftShader because lavapipe runs it, or because its driver is not under test.

    SwiftShader compiles slowly. It runs every kernel (`test_mappings.py`), every type (`test_hashes.py`), and tests
    that depend on its arithmetic, atomics or memory, all marked `every_driver`; but not the windows, axes, tensors,
    limits or copies that the host plans for all drivers alike.
    """
    params = item.callspec.params if hasattr(item, "callspec") else {}
    if params.get("driver") == "lavapipe" and "lavapipe" not in DRIVERS:
        return True  # a test of lavapipe's limits
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
    """The device of each driver, not opened."""
    manifest = DRIVERS[request.param]
    if manifest is None:
        pytest.fail(f"the Vulkan driver {request.param} was not found; install it: tests never skip a driver")
    return device_of(manifest)


@pytest.fixture(scope="session")
def open_device() -> Iterator[Callable[..., dmlgpu.Device]]:
    """Opens a device, or returns the one that was opened with the same arguments, so that tests share pipelines."""
    with contextlib.ExitStack() as stack:
        yield functools.cache(lambda index, limits=None: stack.enter_context(dmlgpu.Device(index, limits=limits)))


@pytest.fixture(scope="session")
def device(driver: dmlgpu.DeviceInfo, open_device: Callable[..., dmlgpu.Device]) -> dmlgpu.Device:
    """An open device of each driver."""
    return open_device(driver.index)


@pytest.fixture(scope="session")
def on_cpu(driver: dmlgpu.DeviceInfo) -> Iterator[dmlgpu.Device]:
    """The device, treated as a CPU, whose tensors share buffers."""
    with opened_as(driver, **unified(driver)) as device:
        yield device


@pytest.fixture(scope="session")
def staged(driver: dmlgpu.DeviceInfo) -> Iterator[dmlgpu.Device]:
    """The device, treated as a GPU with separate memory."""
    with opened_as(driver, **discrete(driver)) as device:
        yield device


@pytest.fixture(scope="session")
def lowered(driver: dmlgpu.DeviceInfo, open_device: Callable[..., dmlgpu.Device]) -> dmlgpu.Device:
    """The device with lowered limits."""
    return open_device(driver.index, LOWERED)


@pytest.fixture(scope="session")
def cooperating(driver: dmlgpu.DeviceInfo, open_device: Callable[..., dmlgpu.Device]) -> dmlgpu.Device:
    """The device, planned like a GPU."""
    limits = replace(device_limits(driver), cooperating=True, group_count=16)
    return open_device(driver.index, replace(limits, simd_width=limits.invocations))


@pytest.fixture(scope="module", params=["CPU", "GPU", "split"])
def mapped(
    request: pytest.FixtureRequest, driver: dmlgpu.DeviceInfo, open_device: Callable[..., dmlgpu.Device]
) -> dmlgpu.Device:
    """The device, planned like a CPU, like a GPU, and with split tensors."""
    return open_device(driver.index, limits_of(driver, request.param))


@pytest.fixture(scope="session", params=["full-limits", "lowered-limits"])
def any_device(request: pytest.FixtureRequest, device: dmlgpu.Device, lowered: dmlgpu.Device) -> dmlgpu.Device:
    """The device with its own limits, then with lowered ones."""
    return lowered if request.param == "lowered-limits" else device


@pytest.fixture
def kp(monkeypatch: pytest.MonkeyPatch) -> Seam:
    """Counts the calls of Kompute by every device that is opened from now on."""
    return Seam().install(monkeypatch.setattr)


@pytest.fixture
def fresh(driver: dmlgpu.DeviceInfo, kp: Seam) -> Iterator[dmlgpu.Device]:
    """A device that was just opened; calls that opened it are not counted."""
    with dmlgpu.Device(driver.index) as device:
        kp.counts.clear()
        yield device


@pytest.fixture
def fresh_unified(driver: dmlgpu.DeviceInfo, kp: Seam) -> Iterator[dmlgpu.Device]:
    """A device that was just opened, treated as a CPU, whose tensors share buffers."""
    with opened_as(driver, **unified(driver)) as device:
        kp.counts.clear()
        yield device


@pytest.fixture
def fresh_staged(driver: dmlgpu.DeviceInfo, kp: Seam) -> Iterator[dmlgpu.Device]:
    """A device that was just opened, treated as a GPU with separate memory."""
    with opened_as(driver, **discrete(driver)) as device:
        kp.counts.clear()
        yield device


@pytest.fixture(params=["unified", "staged"])
def either(request: pytest.FixtureRequest, driver: dmlgpu.DeviceInfo) -> Any:
    """A device that was just opened, treated as a CPU, then as a GPU."""
    return request.getfixturevalue(f"fresh_{request.param}")


@pytest.fixture
def environment() -> dict[str, str]:
    """A copy of the environment variables of this process, for another process."""
    return dict(os.environ)
