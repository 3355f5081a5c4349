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


@pytest.fixture
def machine(monkeypatch):
    """A machine with other devices than this one; `select` is asked nothing else."""

    monkeypatch.delenv("DMLGPU_DEVICE", raising=False)

    def become(*infos):
        monkeypatch.setattr("dmlgpu.runtime.drivers.devices", lambda: infos)

    return become


@pytest.mark.parametrize(
    ("kinds", "best"),
    [
        (["cpu", "integrated", "discrete", "virtual", "other"], 2),
        (["cpu", "virtual", "integrated", "other"], 2),
        (["other", "cpu", "virtual"], 2),
        (["cpu", "other"], 1),
        (["cpu"], 0),
        (["discrete", "discrete"], 0),
    ],
)
def test_best_device_is_discrete_then_integrated_then_virtual_then_cpu(machine, kinds, best):
    machine(*(info(i, f"device {i}", kind) for i, kind in enumerate(kinds)))
    assert select(None).index == best


def software(index: int, name: str, driver: str, kind: str = "cpu") -> DeviceInfo:
    return dataclasses.replace(info(index, name, kind), driver=driver)


SWIFTSHADER = "SwiftShader driver"
LLVMPIPE = "llvmpipe Mesa 22.3.6 (LLVM 15.0.6)"


@pytest.mark.parametrize(
    ("drivers", "best"),
    [
        ([SWIFTSHADER, LLVMPIPE], 1),
        ([LLVMPIPE, SWIFTSHADER], 0),
        ([SWIFTSHADER, LLVMPIPE, LLVMPIPE], 1),
        ([SWIFTSHADER, SWIFTSHADER], 0),
    ],
)
def test_best_software_driver_is_the_faster_one(machine, drivers, best):
    machine(*(software(i, f"device {i}", driver) for i, driver in enumerate(drivers)))
    assert select(None).index == best


def test_a_gpu_is_better_than_any_software_driver(machine):
    machine(software(0, "llvmpipe", LLVMPIPE), software(1, "gpu", "driver 1", "virtual"))
    assert select(None).name == "gpu"


DOZEN = "Dozen Mesa 25.0.0"


@pytest.mark.parametrize(
    ("devices", "best"),
    [
        ([(DOZEN, "discrete"), ("driver 1", "integrated")], 1),
        ([(DOZEN, "integrated"), (DOZEN, "discrete"), (LLVMPIPE, "cpu")], 1),
        ([(DOZEN, "cpu"), (LLVMPIPE, "cpu")], 1),
    ],
)
def test_a_gpu_through_dozen_is_better_than_a_cpu_alone(machine, devices, best):
    machine(*(software(i, f"device {i}", *device) for i, device in enumerate(devices)))
    assert select(None).index == best


@pytest.mark.parametrize("wanted", [1, "1", "beta", "BETA", "Beta 2"])
def test_index_or_part_of_a_name_in_any_case(machine, wanted):
    machine(info(0, "Alpha 1"), info(1, "Beta 2"))
    assert select(wanted).name == "Beta 2"


def test_indices_are_those_of_vulkan_where_some_devices_cannot_compute(machine):
    machine(info(1, "one"), info(4, "four"))
    assert select(4).name == "four"
    with pytest.raises(DeviceError, match=r"^there is no device 0; devices are 1: one, 4: four$"):
        select(0)


@pytest.mark.parametrize("wanted", [2, -1, "2", "gamma"])
def test_unknown_device(machine, wanted):
    machine(info(0, "Alpha"), info(1, "Beta"))
    with pytest.raises(DeviceError) as caught:
        select(wanted)
    shown = int(wanted) if str(wanted).isdecimal() else wanted
    assert str(caught.value) == f"there is no device {shown!r}; devices are 0: Alpha, 1: Beta"


@pytest.mark.parametrize("digits", [9, 10, 5000])
def test_index_of_any_length(machine, digits):
    machine(info(0, "Alpha"), info(1, "Beta"))
    with pytest.raises(DeviceError, match=r"^there is no device '?9+'?; devices are 0: Alpha, 1: Beta$"):
        select("9" * digits)


def test_index_of_numpy(machine):
    machine(info(0, "Alpha"), info(1, "Beta"))
    assert select(np.int64(1)).name == "Beta"


UUID = "0000000a-BCDE-f000-0000-00000000002a"


@pytest.mark.parametrize("wanted", [UUID, UUID.lower(), UUID.upper(), UUID.replace("-", "")])
def test_uuid_in_any_case_with_and_without_dashes(machine, wanted):
    digits = UUID.replace("-", "").lower()
    machine(info(0, "Same"), dataclasses.replace(info(1, "Same"), uuid=digits))
    assert select(wanted).index == 1


def test_uuid_of_decimal_digits_is_no_index(machine):
    machine(info(0, "Alpha"), info(1, "Beta"))
    assert select(f"{1:032}").name == "Beta"


@pytest.mark.parametrize("wanted", [UUID, f"{1:031}"])
def test_no_such_uuid(machine, wanted):
    machine(info(0, "Alpha"), info(1, "Beta"))
    with pytest.raises(DeviceError, match=f"^there is no device '{wanted}'; devices are 0: Alpha, 1: Beta$"):
        select(wanted)


@pytest.mark.parametrize(
    "wanted", [1.0, b"Alpha", [0], True, False, np.True_, np.array([0, 1]), np.array(True)], ids=repr
)
def test_neither_index_nor_name_nor_uuid(machine, wanted):
    machine(info(0, "Alpha"), info(1, "Beta"))
    with pytest.raises(TypeError) as caught:
        select(wanted)
    assert str(caught.value) == f"a device is chosen by its index, part of its name or its UUID, not by {wanted!r}"


def test_ambiguous_name(machine):
    machine(info(0, "Alpha"), info(1, "Alphabet"), info(2, "Beta"))
    with pytest.raises(DeviceError) as caught:
        select("alpha")
    assert str(caught.value) == "several devices match 'alpha'; devices are 0: Alpha, 1: Alphabet, 2: Beta"


@pytest.mark.parametrize("wanted", ["llvmpipe", "lavapipe", "LavaPipe (LLVM", " lavapipe "])
def test_lavapipe_and_llvmpipe_are_the_same(machine, wanted):
    machine(software(0, "SwiftShader Device (LLVM 10)", SWIFTSHADER), software(1, "llvmpipe (LLVM 15.0.6)", LLVMPIPE))
    assert select(wanted).index == 1


def test_names_of_drivers_count_where_no_device_has_them(machine):
    machine(software(0, "Alpha", "beta driver"), software(1, "Beta", "gamma driver"))
    assert (select("beta").index, select("BETA D").index, select("gamma").index) == (1, 0, 1)
    with pytest.raises(DeviceError, match=r"^several devices match 'driver'; devices are 0: Alpha, 1: Beta$"):
        select("driver")


def test_names_that_are_equal_are_told_apart_by_their_uuids(machine):
    machine(info(0, "GPU"), info(1, "GPU"), info(2, "llvmpipe"))
    with pytest.raises(DeviceError) as caught:
        select("gpu")
    zero, one = f"{0:032}", f"{1:032}"
    assert str(caught.value) == (
        f"several devices match 'gpu'; devices are 0: GPU (UUID {zero}), 1: GPU (UUID {one}), 2: llvmpipe"
    )
    assert (select(zero).index, select(one).index) == (0, 1)


# This machine


def test_devices_are_described(driver):
    found = dmlgpu.devices()
    assert driver in found
    assert len({each.index for each in found}) == len(found)
    for each in found:
        assert each.name
        assert each.driver
        assert len(bytes.fromhex(each.uuid)) == 16
        assert each.type in ("discrete", "integrated", "virtual", "cpu", "other")
        assert [part.isdecimal() for part in each.api_version.split(".")] == [True] * 3
        assert each.max_storage_buffer_range >= 1 << 27
        assert each.max_group_size >= 128
        assert each.max_group_count >= 65535
        assert min(each.heaps) > 0


@pytest.mark.parametrize(("invocations", "along_x", "most"), [(64, 1024, 64), (1024, 32, 32)])
def test_a_workgroup_keeps_to_both_limits(driver, monkeypatch, invocations, along_x, most):
    import vulkan

    ask = vulkan.vkGetPhysicalDeviceProperties2

    def lowered(handle, properties):
        ask(handle, properties)
        limits = properties.properties.limits
        limits.maxComputeWorkGroupInvocations, limits.maxComputeWorkGroupSize[0] = invocations, along_x

    monkeypatch.setattr(vulkan, "vkGetPhysicalDeviceProperties2", lowered)
    assert {each.max_group_size for each in dmlgpu.devices()} == {most}


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


def test_device_of_an_index(driver):
    assert opened(driver.index) == opened(str(driver.index)) == driver


def test_device_of_a_name(driver):
    assert opened(driver.name) == opened(driver.name[:8].upper()) == driver


def test_device_of_a_uuid(driver):
    assert opened(driver.uuid) == opened(str(uuid.UUID(driver.uuid)).upper()) == driver


@pytest.mark.parametrize("by", ["index", "name", "uuid"])
def test_environment_selects_a_device(driver, by, monkeypatch):
    monkeypatch.setenv("DMLGPU_DEVICE", str(getattr(driver, by)))
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
        with pytest.raises(DeviceError, match=r"^DMLGPU_DEVICE: there is no device 'no such device'; devices are 0: "):
            opening()


def test_functions_use_the_device_of_the_environment(driver, monkeypatch):
    monkeypatch.setenv("DMLGPU_DEVICE", str(driver.index))
    assert open_device().info == driver
    assert open_device() is open_device()
    assert dmlgpu.argmax([3, 5, 4]) == 1


def test_device_prints_its_index_and_name(device):
    assert repr(device) == f"<dmlgpu.Device {device.info.index}: {device.info.name}>"


def test_limits_are_those_of_the_device(device):
    limits = device.limits
    assert limits.segment_bytes % 256 == 0
    assert limits.segment_bytes <= min(device.info.max_storage_buffer_range, device.info.max_memory_allocation_size)
    assert limits.segment_bytes < 1 << 32
    assert 1 <= limits.group_size <= device.info.max_group_size
    assert 1 <= limits.group_count <= device.info.max_group_count


def test_opening_a_device_leaves_logging_as_it_is(device):
    before = list(logging.root.handlers)
    opened(device.info.index)
    assert logging.root.handlers == before


# What functions take as `device`


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


def test_index_0_is_no_missing_device():
    """`device or default` opened another one."""
    assert open_device(0).info.index == 0


def test_a_selector_is_looked_up_once(driver, monkeypatch):
    device = open_device(driver.index)
    with monkeypatch.context() as patched:
        patched.setattr("dmlgpu.runtime.device.select", lambda wanted: pytest.fail("looked up again"))
        assert open_device(driver.index) is device
    device.close()
    assert open_device(driver.index).info == driver


@pytest.mark.parametrize("wrong", [True, False, 1.5, [0], b"0"], ids=repr)
def test_what_selects_no_device(wrong):
    # After the int that equals it.
    open_device(0)
    with pytest.raises(TypeError, match="a device is chosen by"):
        dmlgpu.argmax([3, 5, 4], device=wrong)


def test_a_device_that_does_not_exist_is_named():
    with pytest.raises(DeviceError, match="there is no device 99; devices are 0: "):
        dmlgpu.argmax([3, 5, 4], device=99)


def test_one_selector_after_another(driver):
    """A device that was opened by its index, closed, and selected by its name is open."""
    first = open_device(driver.index)
    open_device(str(driver.index))
    first.close()
    for way in str(driver.index), driver.name, driver.index:
        assert open_device(way).is_open
    for wrong in float(driver.index), bytes(str(driver.index), "ascii"), True:
        with pytest.raises(TypeError, match="a device is chosen by"):
            open_device(wrong)


@pytest.mark.parametrize("blank", ["", " ", "\t"])
def test_a_blank_selects_nothing(blank, monkeypatch):
    with pytest.raises(DeviceError, match="there is no device '"):
        Device(blank)
    monkeypatch.setenv("DMLGPU_DEVICE", blank)
    assert opened() == select(None)


def test_blanks_around_a_selector_do_not_count(driver, monkeypatch):
    monkeypatch.setenv("DMLGPU_DEVICE", f" {driver.index} ")
    assert opened() == opened(f" {driver.name} ") == opened(f"{driver.index} ") == driver
