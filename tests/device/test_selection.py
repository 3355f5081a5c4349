"""The choice of a device."""

import dataclasses
import json
import logging
import re
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
    """A function that replaces the devices of this machine for `select`."""
    monkeypatch.delenv("DMLGPU_DEVICE", raising=False)
    return lambda *infos: monkeypatch.setattr("dmlgpu.runtime.drivers.devices", lambda: infos)


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


ALPHA, BETA = info(0, "Alpha"), info(1, "Beta")
THREE = ALPHA, BETA, dataclasses.replace(info(2, "Alpha"), uuid=UUID.replace("-", "").lower())
BY_DRIVERS = software(0, "Alpha", "beta driver"), software(1, "Beta", "gamma driver")
LLVM = software(0, "SwiftShader Device (LLVM 10)", SWIFTSHADER), software(1, "llvmpipe (LLVM 15.0.6)", LLVMPIPE)
EQUAL = info(0, "GPU"), info(1, "GPU"), info(2, "llvmpipe")


@pytest.mark.parametrize(
    ("devices", "selector", "index"),
    [
        # Upper or lower case; a UUID of decimal digits is no index.
        *((THREE, selector, 1) for selector in (1, "1", np.int64(1), "beta", "BETA", "Bet", f"{1:032}")),
        *((THREE, selector, 2) for selector in (UUID, UUID.lower(), UUID.upper(), THREE[2].uuid)),
        # Indices are those of Vulkan, where some devices cannot compute.
        ((info(1, "one"), info(4, "four")), 4, 4),
        *((LLVM, selector, 1) for selector in ("llvmpipe", "lavapipe", "LavaPipe (LLVM", " lavapipe ")),
        # Names of drivers count where no device has them.
        *((BY_DRIVERS, selector, index) for selector, index in (("beta", 1), ("BETA D", 0), ("gamma", 1))),
        *((EQUAL, f"{index:032}", index) for index in (0, 1)),
    ],
)
def test_index_part_of_a_name_or_uuid(machine, devices, selector, index):
    machine(*devices)
    assert select(selector).index == index


@pytest.mark.parametrize(
    ("devices", "selector", "message"),
    [
        *(
            ((ALPHA, BETA), selector, f"there is no device {shown}; devices are 0: Alpha, 1: Beta")
            for selector, shown in (
                *((number, str(number)) for number in (2, -1, "2", "9" * 9)),
                *((text, repr(text)) for text in ("gamma", UUID, f"{1:031}", "9" * 10, "9" * 5000)),
            )
        ),
        ((info(1, "one"), info(4, "four")), 0, "there is no device 0; devices are 1: one, 4: four"),
        (
            (info(0, "Alpha"), info(1, "Alphabet"), info(2, "Beta")),
            *("alpha", "several devices match 'alpha'; devices are 0: Alpha, 1: Alphabet, 2: Beta"),
        ),
        (BY_DRIVERS, "driver", "several devices match 'driver'; devices are 0: Alpha, 1: Beta"),
        (
            *(EQUAL, "gpu"),
            f"several devices match 'gpu'; devices are 0: GPU (UUID {0:032}), 1: GPU (UUID {1:032}), 2: llvmpipe",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_no_such_device_or_several(machine, devices, selector, message):
    machine(*devices)
    refuses(f"^{re.escape(message)}$", select, selector, error=DeviceError)


@pytest.mark.parametrize(
    "selector", [1.0, b"0", [0], True, False, np.True_, np.array([0, 1]), np.array(True)], ids=repr
)
def test_no_selector(driver, selector):
    for equal in driver.index, str(driver.index), 0:
        open_device(equal)
    message = f"^a device is chosen by its index, part of its name or its UUID, not by {re.escape(repr(selector))}$"
    for select_device in select, open_device:
        refuses(message, select_device, selector, error=TypeError)


def test_devices_are_described(driver):
    infos = dmlgpu.devices()
    assert driver in infos
    assert len({device.index for device in infos}) == len(infos)
    for device in infos:
        assert device.name
        assert device.driver
        assert len(bytes.fromhex(device.uuid)) == 16
        assert device.type in ("discrete", "integrated", "virtual", "cpu", "other")
        assert [part.isdecimal() for part in device.api_version.split(".")] == [True] * 3
        assert device.max_storage_buffer_range >= 1 << 27
        assert device.max_group_size >= 128
        assert device.max_group_count >= 65535
        assert min(device.heaps) > 0


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


def test_a_description_is_a_value_for_json(driver):
    described = json.loads(json.dumps(driver.as_dict()))
    assert {name: tuple(value) if isinstance(value, list) else value for name, value in described.items()} == vars(
        driver
    )
    assert hash(driver) == hash(dataclasses.replace(driver))
    with pytest.raises(dataclasses.FrozenInstanceError):
        driver.name = "another"


def opened(*selectors) -> DeviceInfo:
    with Device(*selectors) as device:
        return device.info


def test_blanks_around_a_selector_do_not_count(driver, monkeypatch):
    uuid_text = str(uuid.UUID(driver.uuid)).upper()
    for text in str(driver.index), driver.name, driver.name[:8].upper(), driver.uuid, uuid_text:
        assert opened(text) == opened(f" {text} ") == driver
        monkeypatch.setenv("DMLGPU_DEVICE", f" {text} ")
        assert opened() == driver


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
    # `device or default` would open the default device, because 0 is false.
    assert open_device(0).info.index == 0


def test_opening_a_device_leaves_logging_as_it_is(device):
    assert repr(device) == f"<dmlgpu.Device {device.info.index}: {device.info.name}>"
    before = list(logging.root.handlers)
    opened(device.info.index)
    assert logging.root.handlers == before


def test_functions_have_the_selectors_of_devices(driver, monkeypatch):
    monkeypatch.setenv("DMLGPU_DEVICE", "no such device")
    device = open_device(driver.index)
    assert device.info == driver
    for selector in device, driver.index, str(driver.index), driver.name, driver.name.lower():
        assert open_device(selector) is device
        assert dmlgpu.argmax([3, 5, 4], device=selector) == 1
        assert dmlgpu.max_pooling(np.zeros((2, 2), np.int8), 2, device=selector).tolist() == [[0]]
        assert dmlgpu.cache_info(device=selector) == device.cache_info()


def test_a_selector_is_looked_up_once(driver, monkeypatch):
    device = open_device(driver.index)
    monkeypatch.setattr("dmlgpu.runtime.device.select", lambda selector: pytest.fail("looked up again"))
    assert open_device(driver.index) is device


def test_one_selector_after_another(driver):
    """A device that was opened by its index, closed, and selected by its name is open."""
    first = open_device(driver.index)
    open_device(str(driver.index))
    first.close()
    for selector in str(driver.index), driver.name, driver.index:
        assert open_device(selector).is_open


@pytest.mark.parametrize("blank", ["", " ", "\t"])
def test_a_blank_selects_nothing(blank, monkeypatch):
    refuses("there is no device '", Device, blank, error=DeviceError)
    monkeypatch.setenv("DMLGPU_DEVICE", blank)
    assert opened() == select(None)
