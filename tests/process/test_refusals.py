"""If a driver refuses a call of Vulkan, dmlgpu raises an error and frees everything, and the device still works.

A library between Kompute and the loader refuses the calls, on any driver.
"""

import os
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.processes import output_of

# The set-up builds it.
SHIM = Path(sys.prefix) / "tests/refusals.so"

PRELUDE = """
import ctypes, gc, os, sys
from contextlib import contextmanager
import numpy as np
import dmlgpu
from dmlgpu import Device, DeviceError
from tests.support.drivers import discrete, opened_as

driver = next(info for info in dmlgpu.devices() if info.index == int(sys.argv[1]))
changes = {"unified": {}, "staged": discrete(driver)}[sys.argv[2]]
alive, looked = (ctypes.c_long.in_dll(ctypes.CDLL(os.environ["LD_PRELOAD"]), name) for name in ("alive", "looked"))

@contextmanager
def refused(function, result, after=0, once=False):
    os.environ.update(REFUSE=f"{function}={result}", REFUSE_AFTER=str(after), **{"REFUSE_ONCE": "1"} if once else {})
    yield
    del os.environ["REFUSE"]
    os.environ.pop("REFUSE_ONCE", None)

# The operator has two passes, with partials between them.
x = np.zeros((1, 1 << 18), np.float32)
x[0, 70_000] = 1
desc = dmlgpu.ArgmaxOperatorDesc(dmlgpu.TensorDesc.of(x), dmlgpu.TensorDesc(dmlgpu.DataType.UINT32, (1, 1)), (1,))

def outcome(call):
    try:
        return str(call())
    except Exception as error:
        return f"{type(error).__name__}: {error}"
"""


def run(program: str, driver, memory: str = "unified", **variables: str) -> list[str]:
    assert SHIM.exists(), "make pytest builds it"
    environment = {**os.environ, "LD_PRELOAD": str(SHIM), **variables}
    return output_of(PRELUDE + program, str(driver.index), memory, environment=environment, timeout=240).splitlines()


# VkResult
NOT_READY, HOST_MEMORY, DEVICE_MEMORY, INITIALIZATION, LOST, MAP, OBJECTS = 1, -1, -2, -3, -4, -5, -10
# Functions that open a device, functions of any submission, and functions of pipelines, with their errors.
OPENING = {"vkCreateInstance": INITIALIZATION, "vkCreateDevice": INITIALIZATION}
SUBMITTING = {
    "vkCreateBuffer": DEVICE_MEMORY,
    "vkAllocateMemory": OBJECTS,
    "vkBindBufferMemory": DEVICE_MEMORY,
    "vkMapMemory": MAP,
    "vkCreateCommandPool": DEVICE_MEMORY,
    "vkAllocateCommandBuffers": DEVICE_MEMORY,
    "vkBeginCommandBuffer": HOST_MEMORY,
    "vkEndCommandBuffer": DEVICE_MEMORY,
    "vkCreateFence": HOST_MEMORY,
    "vkQueueSubmit": DEVICE_MEMORY,
}
PIPELINES = {
    "vkCreateDescriptorPool": DEVICE_MEMORY,
    "vkCreateDescriptorSetLayout": HOST_MEMORY,
    "vkAllocateDescriptorSets": DEVICE_MEMORY,
    "vkCreateShaderModule": HOST_MEMORY,
    "vkCreatePipelineLayout": HOST_MEMORY,
    "vkCreatePipelineCache": HOST_MEMORY,
    "vkCreateComputePipelines": INITIALIZATION,
}


def error_for(result: int) -> str:
    return "OutOfMemoryError" if result in (HOST_MEMORY, DEVICE_MEMORY, OBJECTS) else "DeviceError"


def check(lines: list[str], functions: dict[str, int], expected: str) -> Counter[str]:
    """Checks that refused calls raise errors and leak nothing, and that the next result is right. Counts refusals."""
    refusals = Counter()
    for line in lines:
        function, after, alive, next_result, result = line.split(maxsplit=4)
        assert (alive, next_result) == ("0", expected), line
        is_error = result.startswith(f"{error_for(functions[function])}: ")
        assert is_error or (after != "0" and result == expected), line
        refusals[function] += is_error
    assert refusals.keys() == functions.keys()
    return refusals


def test_a_device_that_cannot_be_opened_is_an_error(driver):
    functions = OPENING | SUBMITTING
    program = f"""
for function, error in {functions}.items():
    for after in range(3):
        with refused(function, error, after):
            result = outcome(lambda: Device(driver.index).close())
        gc.collect()
        print(function, after, alive.value, outcome(lambda: Device(driver.index).close()), result)
"""
    check(run(program, driver), functions, "None")


@pytest.mark.parametrize("memory", ["unified", "staged"])
def test_a_refused_call_of_any_function_is_an_error_that_leaks_nothing(driver, memory):
    functions = SUBMITTING | PIPELINES
    program = f"""
for function, error in {functions}.items():
    for after in range(100):
        with opened_as(driver, **changes) as device:
            with refused(function, error, after):
                result = outcome(lambda: device.compile(desc)(x))
            device.clear_cache()
            next_result = outcome(lambda: device.compile(desc)(x))
        gc.collect()
        print(function, after, alive.value, next_result, result)
        if result == next_result:
            break
"""
    refusals = check(run(program, driver, memory), functions, "[[70000]]")
    # A pipeline for each pass.
    assert refusals["vkCreateComputePipelines"] == 2


@pytest.mark.parametrize("memory", ["unified", "staged"])
def test_memory_that_is_refused_once_is_allocated_after_empty_buffers_are_freed(driver, memory):
    program = """
with opened_as(driver, **changes) as device:
    for after in range(4):
        device.clear_cache()
        with refused("vkAllocateMemory", -2, after, once=True):
            print(outcome(lambda: device.compile(desc)(x)))
"""
    assert run(program, driver, memory) == ["[[70000]]"] * 4


@pytest.mark.parametrize("memory", ["unified", "staged"])
def test_a_refused_batch_is_computed_later(driver, memory):
    program = f"""
with opened_as(driver, **changes) as device:
    operator, tensor = device.compile(desc), device.tensor(x)
    # In unified memory both tensors fill the buffer of 24 MiB, and results need another one.
    large = device.tensor(np.zeros(23 << 20, np.uint8))
    for function, result in {SUBMITTING | PIPELINES}.items():
        device.clear_cache()
        with refused(function, result):
            def batch():
                with device.batch():
                    batch.results = [operator(tensor) for _ in range(3)]
            batch.results = []
            error = outcome(batch)
            refusals = [outcome(y.numpy) for y in batch.results].count(error)
        print(error.partition(":")[0], refusals, *(outcome(y.numpy) for y in batch.results))
"""
    for (function, result), line in zip((SUBMITTING | PIPELINES).items(), run(program, driver, memory), strict=True):
        error, refusals, *results = line.split()
        # Calls whose results cannot be allocated are not made.
        assert (error, results) == (error_for(result), ["[[70000]]"] * len(results)), (function, line)
        assert int(refusals) == len(results)


@pytest.mark.parametrize("memory", ["unified", "staged"])
def test_a_recording_that_runs_again_keeps_its_fence(driver, memory):
    program = f"""
with opened_as(driver, **changes) as device:
    operator, tensor = device.compile(desc), device.tensor(x)
    target = operator(tensor)
    def again():
        operator(tensor, out=target)
        return target.numpy()
    again()
    with refused("vkCreateFence", {HOST_MEMORY}):
        print(outcome(again))
    with refused("vkResetFences", {DEVICE_MEMORY}):
        print(outcome(again).partition(":")[0])
    print(outcome(again))
gc.collect()
print(alive.value)
"""
    assert run(program, driver, memory) == ["[[70000]]", "OutOfMemoryError", "[[70000]]", "0"]


@pytest.mark.parametrize("discrete", [False, True])
def test_a_thread_polls_the_fence_of_a_gpu_before_it_sleeps(driver, discrete):
    program = f"""
for status in ({NOT_READY}, {LOST}):
    with opened_as(driver, **changes) as device:
        operator = device.compile(desc)
        with refused("vkGetFenceStatus", status):
            print(outcome(lambda: operator(x)))
gc.collect()
print(alive.value, looked.value > 0)
"""
    lines = run(program, driver, **{"DISCRETE": "1"} if discrete else {})
    assert lines == ["[[70000]]", "[[70000]]", f"0 {discrete}"]


def test_a_lost_device_is_an_error_that_leaks_nothing(driver):
    program = f"""
with opened_as(driver, **changes) as device:
    operator = device.compile(desc)
    with refused("vkQueueSubmit", {LOST}):
        print(outcome(lambda: operator(x)))
    print(outcome(lambda: operator(x)))
gc.collect()
print(alive.value)
"""
    first, second, alive = run(program, driver)
    assert first == second
    assert first.startswith("DeviceLostError: device ")
    assert alive == "0"


# What is recorded

# VkPipelineStageFlagBits and VkAccessFlagBits
SHADER, TRANSFER, HOST = 0x800, 0x1000, 0x4000
SHADER_WRITE, TRANSFER_WRITE, HOST_READ = 0x40, 0x1000, 0x2000


@pytest.mark.parametrize("memory", ["unified", "staged"])
def test_what_the_host_reads_was_made_visible_to_it(driver, memory):
    program = """
with opened_as(driver, **changes) as device:
    operator = device.compile(desc)
    tensors = device.tensor(x), device.tensor(np.zeros((1, 1), np.uint32))
    device.clear_cache()
    os.environ["TRACE"] = "1"
    operator(tensors[0], out=tensors[1])
    print(tensors[1].numpy())
"""
    *lines, result = run(program, driver, memory)
    assert result == "[[70000]]"
    assert "dispatch" in lines
    copied, visible = set(), {SHADER_WRITE: set(), TRANSFER_WRITE: set()}
    for kind, *words in map(str.split, lines):
        numbers = [int(word, 16) for word in words]
        if kind == "copy":
            copied.add(numbers[1])
        if kind == "barrier" and (numbers[1], numbers[3]) == (HOST, HOST_READ):
            stage, _, access, _, buffer = numbers
            assert (stage, access) in ((SHADER, SHADER_WRITE), (TRANSFER, TRANSFER_WRITE))
            visible[access].add(buffer)
    # The status, and staged outputs.
    assert len(copied) == (1 if memory == "unified" else 2)
    assert visible[TRANSFER_WRITE] == copied
    assert len(visible[SHADER_WRITE]) == (memory == "unified")


@pytest.mark.parametrize("memory", ["unified", "staged"])
def test_memory_of_the_host_is_cached_if_possible(driver, memory):
    program = """
os.environ["UNCACHED"] = "1"
with opened_as(driver, **changes) as device:
    device.tensor(x)
"""
    *flag, last = run(program, driver, memory)
    # The status is staged: memory of the device, then memory of the host.
    assert [*flag[:2], last] == ["memory type 0", "memory type 1", "memory type 1"]


def test_memory_that_other_processes_use_is_not_allocated(driver):
    program = """
for left in "", "1000", str(8 << 20):
    with opened_as(driver, **changes) as device:
        os.environ["LEFT"] = left
        print(outcome(lambda: device.tensor(np.ones(1 << 20, np.float32)).shape))
        print(outcome(lambda: device.compile(desc)(x)))
        del os.environ["LEFT"]
"""
    unknown, result, refused, also_refused, *enough = run(program, driver)
    assert [unknown, result] == enough == ["(1048576,)", "[[70000]]"]
    for error in refused, also_refused:
        assert error.startswith("OutOfMemoryError: ")
        assert ": 1000 of " in error


def test_a_device_that_implements_vulkan_in_part_is_opened_as_one(driver):
    program = """
with opened_as(driver, **changes) as device:
    print(device.compile(desc)(x))
"""
    assert run(program, driver, PORTABLE="1") == ["VK_KHR_portability_subset", "[[70000]]"]
