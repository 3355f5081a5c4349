"""Which device is taken."""

import dataclasses
import json
import logging
import uuid

import numpy as np
import pytest

import dmlgpu
from dmlgpu import Device, DeviceError, DeviceInfo
from dmlgpu.runtime.device import open_device
from dmlgpu.runtime.drivers import select
from tests.support.devices import info
from tests.support.drivers import DRIVERS, set_drivers
from tests.support.errors import refuses


@pytest.fixture
def machine(monkeypatch):
    """A machine with other devices than this one; `select` is asked nothing else."""

    monkeypatch.delenv("DMLGPU_DEVICE", raising=False)

    def become(*infos):
        monkeypatch.setattr("dmlgpu.runtime.drivers.devices", lambda: infos)

    return become


def software(index: int, name: str, driver: str, kind: str = "cpu") -> DeviceInfo:
    return dataclasses.replace(info(index, name, kind), driver=driver)


HARDWARE = "driver 1"
SWIFTSHADER = "SwiftShader driver"
LLVMPIPE = "llvmpipe Mesa 22.3.6 (LLVM 15.0.6)"
DOZEN = "Dozen Mesa 25.0.0"


@pytest.mark.parametrize(
    ("devices", "best"),
    [
        # A discrete GPU, then an integrated, then a virtual one.
        ([(HARDWARE, kind) for kind in ("cpu", "integrated", "discrete", "virtual", "other")], 2),
        ([(HARDWARE, kind) for kind in ("cpu", "virtual", "integrated", "other")], 2),
        ([(HARDWARE, kind) for kind in ("other", "cpu", "virtual")], 2),
        ([(HARDWARE, kind) for kind in ("cpu", "other")], 1),
        ([(HARDWARE, "cpu")], 0),
        ([(HARDWARE, "discrete")] * 2, 0),
        # The faster one of software drivers, and any GPU before these.
        ([(SWIFTSHADER, "cpu"), (LLVMPIPE, "cpu")], 1),
        ([(LLVMPIPE, "cpu"), (SWIFTSHADER, "cpu")], 0),
        ([(SWIFTSHADER, "cpu"), (LLVMPIPE, "cpu"), (LLVMPIPE, "cpu")], 1),
        ([(SWIFTSHADER, "cpu")] * 2, 0),
        ([(LLVMPIPE, "cpu"), (HARDWARE, "virtual")], 1),
        # A GPU through Dozen only before a CPU.
        ([(DOZEN, "discrete"), (HARDWARE, "integrated")], 1),
        ([(DOZEN, "integrated"), (DOZEN, "discrete"), (LLVMPIPE, "cpu")], 1),
        ([(DOZEN, "cpu"), (LLVMPIPE, "cpu")], 1),
    ],
)
def test_the_best_device(machine, devices, best):
    machine(*(software(i, f"device {i}", *device) for i, device in enumerate(devices)))
    assert select(None).index == best


UUID = "0000000a-BCDE-f000-0000-00000000002a"


@pytest.mark.parametrize(
    ("selector", "index"),
    [
        *((selector, 1) for selector in (1, "1", np.int64(1), "beta", "BETA", "Beta 2", f"{1:032}")),
        *((selector, 2) for selector in (UUID, UUID.lower(), UUID.upper(), UUID.replace("-", ""))),
    ],
)
def test_index_part_of_a_name_or_uuid(machine, selector, index):
    """In any case; a UUID of decimal digits is no index."""
    digits = UUID.replace("-", "").lower()
    machine(info(0, "Alpha 1"), info(1, "Beta 2"), dataclasses.replace(info(2, "Alpha 1"), uuid=digits))
    assert select(selector).index == index


ALPHA, BETA = info(0, "Alpha"), info(1, "Beta")
NONE_OF_BOTH = "there is no device {}; devices are 0: Alpha, 1: Beta"
NEITHER = "a device is chosen by its index, part of its name or its UUID, not by {!r}"
BY_DRIVERS = software(0, "Alpha", "beta driver"), software(1, "Beta", "gamma driver")
LLVM = software(0, "SwiftShader Device (LLVM 10)", SWIFTSHADER), software(1, "llvmpipe (LLVM 15.0.6)", LLVMPIPE)
EQUAL = info(0, "GPU"), info(1, "GPU"), info(2, "llvmpipe")


@pytest.mark.parametrize(
    ("devices", "selector", "index"),
    [
        # Indices are those of Vulkan, where some devices cannot compute.
        ((info(1, "one"), info(4, "four")), 4, 4),
        *((LLVM, selector, 1) for selector in ("llvmpipe", "lavapipe", "LavaPipe (LLVM", " lavapipe ")),
        # Names of drivers count where no device has them.
        *((BY_DRIVERS, selector, index) for selector, index in (("beta", 1), ("BETA D", 0), ("gamma", 1))),
        *((EQUAL, f"{index:032}", index) for index in (0, 1)),
    ],
)
def test_the_device_that_is_meant(machine, devices, selector, index):
    machine(*devices)
    assert select(selector).index == index


@pytest.mark.parametrize(
    ("devices", "selector", "error", "says"),
    [
        *(
            ((ALPHA, BETA), selector, DeviceError, NONE_OF_BOTH.format(shown))
            for selector, shown in (
                (2, "2"),
                (-1, "-1"),
                ("2", "2"),
                ("gamma", "'gamma'"),
                (UUID, f"'{UUID}'"),
                (f"{1:031}", f"'{1:031}'"),
                ("9" * 9, "9" * 9),
                *((digits, f"'{digits}'") for digits in ("9" * 10, "9" * 5000)),
            )
        ),
        *(
            ((ALPHA, BETA), selector, TypeError, NEITHER.format(selector))
            for selector in (1.0, b"Alpha", [0], True, False, np.True_, np.array([0, 1]), np.array(True))
        ),
        ((info(1, "one"), info(4, "four")), 0, DeviceError, "there is no device 0; devices are 1: one, 4: four"),
        (
            (info(0, "Alpha"), info(1, "Alphabet"), info(2, "Beta")),
            *("alpha", DeviceError, "several devices match 'alpha'; devices are 0: Alpha, 1: Alphabet, 2: Beta"),
        ),
        (BY_DRIVERS, "driver", DeviceError, "several devices match 'driver'; devices are 0: Alpha, 1: Beta"),
        (
            *(EQUAL, "gpu", DeviceError),
            f"several devices match 'gpu'; devices are 0: GPU (UUID {0:032}), 1: GPU (UUID {1:032}), 2: llvmpipe",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_no_such_device_or_several(machine, devices, selector, error, says):
    machine(*devices)
    with pytest.raises(error) as caught:
        select(selector)
    assert str(caught.value) == says


def test_devices_are_described(driver):
    infos = dmlgpu.devices()
    assert driver in infos
    assert len({described.index for described in infos}) == len(infos)
    for described in infos:
        assert described.name
        assert described.driver
        assert len(bytes.fromhex(described.uuid)) == 16
        assert described.type in ("discrete", "integrated", "virtual", "cpu", "other")
        assert [part.isdecimal() for part in described.api_version.split(".")] == [True] * 3
        assert described.max_storage_buffer_range >= 1 << 27
        assert described.max_group_size >= 128
        assert described.max_group_count >= 65535
        assert min(described.heaps) > 0


@pytest.mark.parametrize(("invocations", "along_x", "most"), [(64, 1024, 64), (1024, 32, 32)])
def test_a_workgroup_keeps_to_both_limits(driver, monkeypatch, invocations, along_x, most):
    import vulkan

    ask = vulkan.vkGetPhysicalDeviceProperties2

    def lowered(handle, properties):
        ask(handle, properties)
        limits = properties.properties.limits
        limits.maxComputeWorkGroupInvocations, limits.maxComputeWorkGroupSize[0] = invocations, along_x

    monkeypatch.setattr(vulkan, "vkGetPhysicalDeviceProperties2", lowered)
    assert {described.max_group_size for described in dmlgpu.devices()} == {most}


def test_description_is_a_value_that_json_takes(driver):
    assert json.loads(json.dumps(driver.as_dict())) == {
        field.name: list(value) if isinstance(value, tuple) else value
        for field in dataclasses.fields(driver)
        for value in [getattr(driver, field.name)]
    }
    assert hash(driver) == hash(dataclasses.replace(driver))
    with pytest.raises(dataclasses.FrozenInstanceError):
        driver.name = "another"


def opened(*args) -> DeviceInfo:
    with Device(*args) as device:
        return device.info


def test_selectors_of_a_device(driver, monkeypatch):
    """Blanks around them do not count."""
    for text in (
        str(driver.index),
        driver.name,
        driver.name[:8].upper(),
        driver.uuid,
        str(uuid.UUID(driver.uuid)).upper(),
    ):
        assert opened(text) == opened(f" {text} ") == driver
        monkeypatch.setenv("DMLGPU_DEVICE", f" {text} ")
        assert opened() == driver
    assert opened(driver.index) == driver


def test_the_default_device_here_is_llvmpipe(monkeypatch):
    monkeypatch.delenv("DMLGPU_DEVICE", raising=False)
    set_drivers(monkeypatch.setenv, DRIVERS["swiftshader"], DRIVERS["lavapipe"])
    assert len(dmlgpu.devices()) == 2
    assert "llvmpipe" in opened().driver


def test_an_argument_counts_more_than_the_environment(driver, monkeypatch):
    monkeypatch.setenv("DMLGPU_DEVICE", "no such device")
    assert opened(driver.index) == driver
    for opening in Device, open_device:
        refuses(r"^DMLGPU_DEVICE: there is no device 'no such device'; devices are 0: ", opening, error=DeviceError)


def test_functions_use_the_device_of_the_environment(driver, monkeypatch):
    monkeypatch.setenv("DMLGPU_DEVICE", str(driver.index))
    assert open_device().info == driver
    assert open_device() is open_device()
    assert dmlgpu.argmax([3, 5, 4]) == 1
    # `device or default` opened another one.
    assert open_device(0).info.index == 0


def test_opening_a_device_leaves_logging_as_it_is(device):
    assert repr(device) == f"<dmlgpu.Device {device.info.index}: {device.info.name}>"
    before = list(logging.root.handlers)
    opened(device.info.index)
    assert logging.root.handlers == before


def test_functions_take_what_devices_take(driver, monkeypatch):
    monkeypatch.setenv("DMLGPU_DEVICE", "no such device")
    chosen = {open_device(way) for way in (driver.index, driver.name, str(driver.index))}
    assert [device.info for device in chosen] == [driver]
    (device,) = chosen
    assert open_device(device) is device
    for way in device, driver.index, driver.name.lower():
        assert dmlgpu.argmax([3, 5, 4], device=way) == 1
        assert dmlgpu.max_pooling(np.zeros((2, 2), np.int8), 2, device=way).tolist() == [[0]]
        assert dmlgpu.cache_info(device=way) == device.cache_info()


def test_a_selector_is_looked_up_once(driver, monkeypatch):
    device = open_device(driver.index)
    with monkeypatch.context() as patched:
        patched.setattr("dmlgpu.runtime.device.select", lambda selector: pytest.fail("looked up again"))
        assert open_device(driver.index) is device
    device.close()
    assert open_device(driver.index).info == driver


def test_what_selects_no_device():
    open_device(0)  # which False equals
    for wrong in (True, False, 1.5, [0], b"0"):
        refuses("a device is chosen by", dmlgpu.argmax, [3, 5, 4], error=TypeError, device=wrong)
    refuses("there is no device 99; devices are 0: ", dmlgpu.argmax, [3, 5, 4], error=DeviceError, device=99)


def test_one_selector_after_another(driver):
    """A device that was opened by its index, closed, and selected by its name is open."""
    first = open_device(driver.index)
    open_device(str(driver.index))
    first.close()
    for way in str(driver.index), driver.name, driver.index:
        assert open_device(way).is_open
    for wrong in float(driver.index), bytes(str(driver.index), "ascii"), True:
        refuses("a device is chosen by", open_device, wrong, error=TypeError)


@pytest.mark.parametrize("blank", ["", " ", "\t"])
def test_a_blank_selects_nothing(blank, monkeypatch):
    refuses("there is no device '", Device, blank, error=DeviceError)
    monkeypatch.setenv("DMLGPU_DEVICE", blank)
    assert opened() == select(None)
