"""Plans and buffers keep to the limits of real devices, and cases of every kernel run within them."""

import contextlib
import dataclasses
import functools
import math

import pytest

import dmlgpu
from benchmarks.cases import CASES as MEASURED
from dmlgpu import LpPooling1OperatorDesc, ReduceFunction, ReduceOperatorDesc, TensorDesc
from dmlgpu.lowering.limits import segment_sizes
from dmlgpu.lowering.lower import lower
from dmlgpu.runtime import spirv
from dmlgpu.runtime.engine import Engine
from dmlgpu.runtime.memory import Allocator
from dmlgpu.runtime.schedule import SUBMISSION_SECONDS
from dmlgpu.runtime.tuning import device_limits
from dmlgpu.testing.cases import CASES, FLOAT32
from tests.support.devices import DEVICES
from tests.support.drivers import opened_as
from tests.support.instructions import instructions
from tests.support.plans import LARGE, by_operator, check, first_of_each, modules_of

by_device = pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)

# 2^30 elements, strided ones, and large windows that overlap.
HUGE = (
    ReduceOperatorDesc.of(ReduceFunction.SUM, TensorDesc(FLOAT32, (1, 1 << 30)), axes=(1,)),
    ReduceOperatorDesc.of(ReduceFunction.LOG_SUM_EXP, TensorDesc(FLOAT32, (1 << 16, 1 << 13), (1, 1 << 16)), axes=(0,)),
    LpPooling1OperatorDesc.of(TensorDesc(FLOAT32, (8, 64, 256, 256)), (33, 33), p=3, strides=(1, 1)),
)
DESCS = [*LARGE.values(), *(case.desc for case in (*CASES[::4], *MEASURED))]


@functools.cache
def plans(limits):
    """The plans of all cases, each checked; devices with the same limits share them."""
    lowered = [lower(desc, limits) for desc in DESCS]
    for plan in lowered:
        check(plan)
    return lowered


@by_device
def test_the_first_run_of_a_dispatch_is_no_case_for_a_watchdog(device):
    """LOG_SUM_EXP has the most operations per element: 200, as compiled for GPUs."""
    limits = device_limits(device.info)
    assert limits.dispatch_elements * 200 / device.operations < SUBMISSION_SECONDS
    for desc in HUGE:
        plan = lower(desc, limits)
        assert plan.elements / len(plan.dispatches) <= limits.dispatch_elements


@by_device
def test_dispatches_keep_to_the_limits_of_a_device(device):
    limits = device_limits(device.info)
    assert limits.segment_bytes <= min(device.storage_range, device.allocation_size)
    assert limits.group_size <= min(device.group_size, device.invocations)
    assert limits.group_count <= device.group_count
    for plan in plans(limits):
        assert plan.partial_bytes <= device.storage_range
        for dispatch in plan.dispatches:
            constants = dispatch.shader.constants
            assert constants["group_size"] == limits.group_size
            assert shared_bytes(dispatch.shader.module, constants["group_size"]) <= device.shared_bytes
            assert 4 * len(spirv.push_words(dispatch.shader.module, dispatch.push)) <= device.push_bytes
            assert len(dispatch.bindings) + dispatch.has_status <= device.storage_buffers


@functools.cache
def shared_bytes(module, group_size):
    """Bytes of a module's shared memory, whose arrays have some elements for each invocation of a group."""
    sizes, pointers, numbers, total = {}, {}, {}, 0
    for opcode, operands in instructions(module):
        if opcode in (21, 22):  # OpTypeInt, OpTypeFloat
            sizes[operands[0]] = operands[1] // 8
        elif opcode == 23:  # OpTypeVector
            sizes[operands[0]] = sizes.get(operands[1], 0) * operands[2]
        elif opcode == 71 and operands[1:] == (1, 0):  # OpDecorate SpecId 0: GROUP_SIZE
            numbers[operands[0]] = group_size
        elif opcode in (43, 50):  # OpConstant, OpSpecConstant
            numbers.setdefault(operands[1], operands[2])
        elif opcode == 52 and operands[2] == 132:  # OpSpecConstantOp OpIMul
            numbers[operands[1]] = math.prod(numbers.get(operand, 0) for operand in operands[3:])
        elif opcode == 28:  # OpTypeArray
            sizes[operands[0]] = sizes.get(operands[1], 0) * numbers.get(operands[2], 0)
        elif opcode == 30:  # OpTypeStruct
            sizes[operands[0]] = sum(sizes.get(member, 0) for member in operands[1:])
        elif opcode == 32:  # OpTypePointer
            pointers[operands[0]] = operands[2]
        elif opcode == 59 and operands[2] == 4:  # OpVariable in StorageClass Workgroup
            total += sizes[pointers[operands[0]]]
    return total


def test_shared_memory_is_that_of_threads():
    """Each invocation, or each of its columns, has a state: radix key, bits and index; a packed state is a word."""
    assert shared_bytes("rows_cooperating_selection_64", 64) == 64 * (8 + 8 + 4)
    assert shared_bytes("rows_cooperating_selection_32", 128) == 128 * (4 + 4 + 4)
    assert shared_bytes("columns_cooperating_selection_32", 64) == 64 * 4 * (4 + 4 + 4)
    assert shared_bytes("columns_cooperating_selection_8", 64) == 64 * 16 * 4
    assert shared_bytes("combine_squares_32", 64) == 64 * 20 * 4
    assert {name for name in spirv.layouts() if shared_bytes(name, 1)} == {
        name for name in spirv.layouts() if "_cooperating_" in name or name.startswith("combine_")
    }


class Kompute:
    """Buffers without memory, none larger than the device allows."""

    def __init__(self, device):
        self.device, self.profile, self.sizes = device, None, []

    def create_buffer(self, size):
        assert 0 < size <= min(self.device.storage_range, self.device.allocation_size)
        self.sizes.append(size)
        return size

    def destroy_buffer(self, buffer):
        self.sizes.remove(buffer)


@by_device
def test_buffers_keep_to_the_limits_of_a_device(device, monkeypatch):
    kompute = Kompute(device)
    monkeypatch.setattr("dmlgpu.runtime.engine.Kompute", lambda info: kompute)
    monkeypatch.setattr("dmlgpu.runtime.engine.Allocator", Allocator)  # without guards
    limits, engine = device_limits(device.info), Engine(device.info)
    for plan in plans(limits):
        tensors = map(segment_sizes, (*plan.desc.inputs, *plan.desc.outputs), plan.memory)
        allocated = [*map(engine.allocate, (*tensors, *plan.workspace))]
        slices = [part for segments in allocated for part in segments.slices]
        assert all(part.offset % device.alignment == 0 for part in slices)
        assert all(part.offset + part.size <= part.buffer.size for part in slices)
        assert 2 * len(kompute.sizes) <= device.allocation_count  # a staged buffer is two


def lower_of(device, driver):
    """A driver's device with the lower one of both devices' limits, and with the other device's kind of memory.

    The size of a group stays, because an open device is recognized by it. All devices allow more than plans need.
    """
    info = device.info
    least = {
        name: min(getattr(info, name), getattr(driver, name))
        for name in (
            "max_storage_buffer_range",
            "max_memory_allocation_size",
            "max_memory_allocation_count",
            "max_group_count",
            "subgroup_size",
        )
    }
    heaps = tuple(min(size, driver.heaps[driver.host_heap]) for size in info.heaps)
    as_there = {name: getattr(info, name) for name in ("type", "unified", "device_heap", "host_heap")}
    return dataclasses.replace(driver, heaps=heaps, **least, **as_there)


@pytest.fixture(scope="module")
def lowered_devices(driver):
    """The driver's device, once for every set of limits that makes a difference to CASES.

    Tensors of CASES are far smaller than the segments of any device: sets that differ only in segments count once.
    """
    infos = [lower_of(device, driver) for device in DEVICES]
    sets = {(dataclasses.replace(device_limits(info), segment_bytes=0), info.unified): info for info in infos}
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(opened_as(info)) for info in sets.values()]


@functools.cache
def chosen():
    """The first case of every operator, and of every variant of a kernel; test_mappings.py has all accumulators."""
    all_limits = {device_limits(device.info) for device in DEVICES}

    def variants(case):
        modules = set().union(*(modules_of(case, limits) for limits in all_limits))
        return {case.operator} | {module.removesuffix("_vectors").rsplit("_", 2)[0] for module in modules}

    return first_of_each(variants)


@by_operator
def test_kernels_run_within_the_limits_of_every_device(lowered_devices, operator):
    """The cases run with the devices in turn; test_dispatches_keep_to_the_limits_of_a_device has all plans."""
    for number, case in enumerate(chosen()):
        if case.operator == operator:
            dmlgpu.verify(case.desc, *case.inputs(), device=lowered_devices[number % len(lowered_devices)])


def test_both_kinds_of_memory_run(lowered_devices):
    assert {device.info.unified for device in lowered_devices} == {False, True}
    assert {device.limits.group_count for device in lowered_devices} == {4096}
