"""Devices, device tensors and compiled operators: wrong calls, memory, and their end."""

import contextlib
import dataclasses
import gc
import re
from functools import partial

import numpy as np
import pytest

import dmlgpu
from dmlgpu import ArgmaxOperatorDesc, Device, DeviceError, OutOfMemoryError, TensorDesc, verify
from dmlgpu.runtime.tuning import device_limits
from dmlgpu.testing.cases import FLOAT32, INT32, POOLED_STRIDED, STRIDED_ARGS, UINT8, UINT32, arg_desc, pool_desc
from dmlgpu.testing.fills import any_bits
from tests.support.drivers import discrete, opened_as
from tests.support.errors import refuses
from tests.support.layouts import check_all_bytes
from tests.support.plans import by_operator, chosen, of_operator

pytestmark = pytest.mark.every_driver

ROWS = np.array([[1, 2, 3], [3, 0, 4], [2, 5, 2]], np.float32)
ARGMAX = arg_desc(ArgmaxOperatorDesc, FLOAT32, (3, 3), [1])
POOL = pool_desc(FLOAT32, (1, 1, 3, 3), (2, 2))


def exactly(text):
    """A regular expression that matches only this text."""
    return f"^{re.escape(text)}$"


# Calls


def test_the_same_bits_every_time(any_device):
    for desc in (arg_desc(dmlgpu.ArgminOperatorDesc, FLOAT32, (20, 25), [0]), pool_desc(FLOAT32, (2, 2, 9, 9), (3, 3))):
        x = any_bits(np.dtype(np.float32), desc.input_tensor.element_count).reshape(desc.input_tensor.sizes)
        operator, tensor = any_device.compile(desc), any_device.tensor(x)
        results = {
            tuple(t.bytes().tobytes() for t in (result if isinstance(result, tuple) else (result,)))
            for result in [operator(tensor) for _ in range(5)]
        }
        assert len(results) == 1


def test_an_operator_outlives_hundreds_of_others(device):
    first = device.compile(ARGMAX)
    for size in range(1, 300):
        device.compile(arg_desc(ArgmaxOperatorDesc, FLOAT32, (size, 2), [1]))
    assert first(ROWS).tolist() == device.compile(ARGMAX)(ROWS).tolist() == [[2], [2], [1]]


def test_an_operator_prints_its_descriptor_and_device(device):
    operator = device.compile(ARGMAX)
    assert repr(operator) == f"<dmlgpu.CompiledOperator {ARGMAX} on device {device.info.index}: {device.info.name}>"
    assert (operator.desc, operator.device) == (ARGMAX, device)
    assert dmlgpu.explain(ARGMAX, device=device) is operator.plan


@pytest.mark.parametrize(("kind", "groups"), [("cpu", 12), ("discrete", 4096), ("integrated", 4096)])
def test_groups_of_a_dispatch_follow_the_cores_on_a_cpu_only(driver, monkeypatch, kind, groups):
    monkeypatch.setattr("dmlgpu.runtime.tuning._cores", lambda: 3)
    info = dataclasses.replace(driver, type=kind)
    assert device_limits(info).group_count == groups
    assert device_limits(dataclasses.replace(info, max_group_count=7)).group_count == 7


def test_swiftshader_neither_unrolls_nor_loads_vectors(driver):
    limits, is_llvmpipe = device_limits(driver), "llvmpipe" in driver.name
    assert (limits.unrolls, limits.loads_vectors) == (is_llvmpipe, is_llvmpipe)


@pytest.mark.parametrize(
    ("name", "gathers"),
    [
        ("llvmpipe Mesa 22.3.6 (LLVM 15.0.6)", False),
        ("llvmpipe Mesa 25.0.7-2~bpo12+1 (LLVM 15.0.6)", True),
        ("llvmpipe Mesa 30.1.0", True),
        ("radv Mesa 25.0.7", False),
    ],
)
def test_some_drivers_gather(driver, name, gathers):
    assert device_limits(dataclasses.replace(driver, driver=name)).gathers == gathers


@pytest.mark.parametrize(("limit", "room"), [("max_storage_buffer_range", 0), ("max_memory_allocation_size", 256)])
@pytest.mark.parametrize("more", [0, 1, 100, 255])
def test_segments_are_whole_vectors(driver, limit, room, more):
    changed = dataclasses.replace(driver, **{limit: (1 << 27) + more + room})
    assert device_limits(changed).segment_bytes == 1 << 27


def test_a_buffer_is_smaller_than_the_largest_allocation(driver):
    """On SwiftShader a buffer of 1 GiB, which is the largest allocation, ends the process."""
    assert device_limits(driver).segment_bytes < driver.max_memory_allocation_size


def test_neighbouring_work_is_for_a_vector_of_a_cpu_and_for_all_of_a_gpu(driver):
    assert device_limits(dataclasses.replace(driver, type="cpu")).simd_width == driver.subgroup_size
    limits = device_limits(dataclasses.replace(driver, type="discrete"))
    assert limits.simd_width == limits.invocations


# Wrong calls


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (ROWS[:2], "sizes: the array has (2, 3); the descriptor has (3, 3)"),
        (ROWS[None], "sizes: the array has (1, 3, 3); the descriptor has (3, 3)"),
        (1.0, "sizes: the array has (); the descriptor has (3, 3)"),
        (ROWS.astype(np.float64), "data_type: the array is float64; the descriptor has FLOAT32"),
        (ROWS.astype(bool), "data_type: the array is bool; the descriptor has FLOAT32"),
    ],
)
def test_an_array_that_does_not_match_is_refused(device, x, message):
    refuses(exactly(f"ArgmaxOperatorDesc.input_tensor.{message}"), device.compile(ARGMAX), x)


@pytest.mark.parametrize("inputs", [(), (ROWS, ROWS)])
def test_a_wrong_number_of_inputs_is_refused(device, inputs):
    message = f"ArgmaxOperatorDesc takes 1 input, {len(inputs)} were given"
    refuses(exactly(message), device.compile(ARGMAX), *inputs, error=TypeError)


@pytest.mark.parametrize(
    "desc",
    [
        TensorDesc(UINT32, (3, 3)),
        TensorDesc(FLOAT32, (3, 4)),
        TensorDesc(FLOAT32, (1, 3, 3)),
        TensorDesc(FLOAT32, (3, 3), (1, 3)),
        TensorDesc(INT32, (3, 1)),
    ],
)
def test_a_device_tensor_that_does_not_match_is_refused(device, desc):
    operator, tensor = device.compile(ARGMAX), device.tensor_from_bytes(bytes(desc.size_in_bytes), desc)
    message = "ArgmaxOperatorDesc.{}: the tensor is {}; the descriptor has {}"
    refuses(exactly(message.format("input_tensor", desc, ARGMAX.input_tensor)), operator, tensor)
    refuses(exactly(message.format("output_tensor", desc, ARGMAX.output_tensor)), operator, ROWS, out=tensor)


def test_out_has_one_device_tensor_for_each_output(device):
    out = device.tensor(np.zeros((1, 1, 2, 2), np.float32))
    message = r"^out: \w+.* is not allowed; allowed is 2 device tensors, for output_tensor, output_indices_tensor$"
    for wrong in (out, [out], [out, np.zeros((1, 1, 2, 2), np.uint32)], [out, out, out]):
        refuses(message, device.compile(POOL), ROWS.reshape(1, 1, 3, 3), out=wrong, error=TypeError)


def test_a_device_tensor_of_another_device_is_refused(device, lowered):
    for one, other in ((device, lowered), (lowered, device)):
        operator = one.compile(ARGMAX)
        tensor, out = other.tensor(ROWS), other.tensor(np.zeros((3, 1), np.uint32))
        # Both have the same name.
        assert f"on device {one.info.index}: " in repr(tensor)
        for value, call in (
            (tensor, partial(operator, tensor)),
            (tensor, partial(dmlgpu.argmax, tensor, device=one)),
            (out, partial(operator, ROWS, out=out)),
        ):
            message = f"{value.description} is on another device than {one!r}: the same one, opened another time"
            refuses(exactly(message), call, error=DeviceError)


@pytest.mark.parametrize("desc", [None, "argmax", TensorDesc(FLOAT32, (3,)), ArgmaxOperatorDesc])
def test_only_operator_descriptors_compile(device, desc):
    refuses(exactly(f"{desc!r} is not an operator descriptor"), device.compile, desc, error=TypeError)


def test_an_array_that_a_descriptor_contradicts_is_refused(device):
    shape, dtype = TensorDesc(FLOAT32, (3, 1)), TensorDesc(UINT32, (3, 3))
    refuses(r"^TensorDesc\.sizes: the array has \(3, 3\); .* \(3, 1\)$", device.tensor, ROWS, shape)
    refuses(r"^TensorDesc\.data_type: the array is float32; .* UINT32$", device.tensor, ROWS, dtype)


# The end of a device


@pytest.fixture
def closed(driver):
    """A closed device, with an operator and a tensor of it."""
    device = Device(driver.index)
    operator, tensor = device.compile(ARGMAX), device.tensor(ROWS)
    assert operator(tensor).numpy().tolist() == [[2], [2], [1]]
    device.close()
    return device, operator, tensor


USES = {
    "operator": lambda device, operator, tensor: operator(ROWS),
    "operator-on-device": lambda device, operator, tensor: operator(tensor),
    "numpy": lambda device, operator, tensor: tensor.numpy(),
    "bytes": lambda device, operator, tensor: tensor.bytes(),
    "tensor": lambda device, operator, tensor: device.tensor(ROWS),
    "tensor_from_bytes": lambda device, operator, tensor: device.tensor_from_bytes(bytes(4), TensorDesc(FLOAT32, (1,))),
    "compile": lambda device, operator, tensor: device.compile(POOL),
    "compile-again": lambda device, operator, tensor: device.compile(ARGMAX),
    "batch": lambda device, operator, tensor: device.batch().__enter__(),
    "cache_info": lambda device, operator, tensor: device.cache_info(),
    "clear_cache": lambda device, operator, tensor: device.clear_cache(),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_use_after_close_is_refused(closed, use):
    refuses(exactly(f"device {closed[0].info.name} is closed"), use, *closed, error=DeviceError)


def test_closing_again_does_nothing(closed):
    device, operator, tensor = closed
    device.close()
    assert device.info.name in repr(device)
    assert repr(tensor)
    assert repr(operator)
    del operator, tensor
    gc.collect()


def test_with_closes_also_after_an_error(driver):
    with pytest.raises(ZeroDivisionError), Device(driver.index) as device:
        raise ZeroDivisionError
    refuses(exactly(f"device {driver.name} is closed"), device.tensor, ROWS, error=DeviceError)


# Memory


@pytest.fixture
def small_heap(driver, kp):
    """A device whose heaps have 24 MiB."""
    with opened_as(driver, heaps=(24 << 20,) * len(driver.heaps)) as device:
        yield device


@contextlib.contextmanager
def refuses_before_kompute(kp, message=""):
    """The block raises an OutOfMemoryError before it calls Kompute, whose failed allocation would end the process."""
    before, kp.most_bytes = len(kp.asked_bytes), 256
    with pytest.raises(OutOfMemoryError, match=message or None):
        yield
    kp.most_bytes = None
    assert kp.asked_bytes[before:] == []


@pytest.mark.parametrize(("heaps", "most"), [((24 << 20, 30 << 20), 24 << 20), ((24 << 20,), 12 << 20)])
def test_all_of_a_heap_may_be_used(driver, heaps, most):
    """A heap that the host cannot map, and a single heap, which has each buffer twice."""
    host = len(heaps) - 1
    with opened_as(driver, **discrete(driver) | {"heaps": heaps, "host_heap": host}) as device:
        device._engine.kompute.check_fits(most)
        refuses("do not fit", device._engine.kompute.check_fits, most + 1, error=OutOfMemoryError)


@pytest.mark.parametrize("size", [1 << 31, 3 << 30, (1 << 32) - 1])
def test_a_tensor_that_does_not_fit_the_heap_is_refused(driver, kp, size):
    heap = driver.host_heap if driver.unified else driver.device_heap
    message = rf"do not fit on device {re.escape(driver.name)}: .*of {1 << 30} bytes of heap {heap} are left"
    with opened_as(driver, heaps=(1 << 30,) * len(driver.heaps)) as device:
        with refuses_before_kompute(kp, message):
            device.compile(arg_desc(ArgmaxOperatorDesc, UINT8, (size,), [0]))
        assert device.compile(ARGMAX)(ROWS).tolist() == [[2], [2], [1]]


@pytest.mark.parametrize("total", [1 << 40, 1 << 45, 1 << 62, (1 << 64) - 1])
def test_a_buffer_of_any_size_is_refused_at_once(fresh, kp, total):
    source, x = TensorDesc(UINT8, (8,), None, total), np.zeros(8, np.uint8)
    desc = ArgmaxOperatorDesc(source, TensorDesc(UINT32, (1,)), (0,))
    before = fresh.cache_info().buffer_bytes
    for call in (lambda: fresh.compile(desc), lambda: verify(desc, x, device=fresh), lambda: fresh.tensor(x, source)):
        with refuses_before_kompute(kp, r"^\d+ bytes do not fit on device "):
            call()
    assert fresh.cache_info().buffer_bytes == before
    assert fresh.compile(ARGMAX)(ROWS).tolist() == [[2], [2], [1]]


def test_an_operator_that_never_fits_is_not_compiled(small_heap, kp):
    # The input has 10 MiB, the output 40 MiB.
    desc = arg_desc(ArgmaxOperatorDesc, UINT8, (10 << 20, 1), [1])
    with refuses_before_kompute(kp):
        small_heap.compile(desc)
    assert small_heap.compile(ARGMAX)(ROWS).tolist() == [[2], [2], [1]]


def test_an_output_that_does_not_fit_now_gives_the_input_back(small_heap):
    # An input of 4 MiB fits beside 10 MiB; its output of 16 MiB does not.
    beside = small_heap.tensor(np.zeros(10 << 20, np.uint8))
    desc = arg_desc(ArgmaxOperatorDesc, UINT8, (4 << 20, 1), [1])
    message = r"^\d+ bytes do not fit on device .*: \d+ of 25165824 bytes of heap \d+ are left$"
    for _ in range(3):
        refuses(message, small_heap.compile, desc, error=OutOfMemoryError)
    assert small_heap.tensor(np.ones(13 << 20, np.uint8)).numpy()[-1] == 1
    assert beside.numpy().max() == 0


def test_tensors_fill_the_heap(small_heap):
    tensors = [small_heap.tensor(np.full(5 << 20, i, np.uint8)) for i in range(4)]
    for _ in range(3):
        refuses("do not fit", small_heap.tensor, np.zeros(5 << 20, np.uint8), error=OutOfMemoryError)
    assert [tensor.numpy()[0] for tensor in tensors] == [0, 1, 2, 3]
    del tensors
    assert small_heap.tensor(np.ones(20 << 20, np.uint8)).numpy()[-1] == 1


def test_buffers_are_as_many_as_the_driver_allows(driver):
    # The device itself uses one.
    with opened_as(driver, unified=False, max_memory_allocation_count=8) as device:
        tensors = [device.tensor(ROWS) for _ in range(3)]
        refuses(r"allows no more than 4 buffers$", device.tensor, ROWS, error=OutOfMemoryError)
        del tensors[1:]
        assert device.tensor(-ROWS).numpy().tolist() == (-ROWS).tolist()


# Devices whose memory the host does not see


@by_operator
def test_staged_results_equal_reference(staged, operator):
    """Every fourth case: copies do not depend on kernels, all of which test_mappings.py runs."""
    case = of_operator(operator, chosen("GPU"))[0]
    verify(case.desc, *case.inputs(), flags=case.flags, device=staged)


@pytest.mark.parametrize(("heaps", "full"), [((8 << 20, 64 << 20), 0), ((64 << 20, 8 << 20), 1)])
def test_staged_tensors_need_both_heaps(driver, heaps, full):
    with opened_as(driver, **{**discrete(driver), "heaps": heaps}) as device:
        x = np.ones(5 << 20, np.uint8)
        tensor = device.tensor(x)
        refuses(rf" of {8 << 20} bytes of heap {full} are left$", device.tensor, x, error=OutOfMemoryError)
        assert tensor.numpy().all()


@pytest.mark.parametrize("case", [*STRIDED_ARGS[::4], *POOLED_STRIDED[::4]], ids=lambda case: case.id)
def test_staged_bytes_between_elements_stay(staged, case):
    check_all_bytes(staged, case.desc)


def test_a_device_tells_why_it_does_not_support_a_descriptor(device):
    desc = dmlgpu.ReduceOperatorDesc.of("log_sum_exp", TensorDesc(FLOAT32, (3, 4)))
    assert device.supports(desc)
    exact = device.supports(desc, flags=dmlgpu.ExecutionFlags.EXACT_SUMS)
    assert not exact
    assert exact.why_not.startswith("ReduceOperatorDesc.function: LOG_SUM_EXP is not supported with EXACT_SUMS")


def test_tensors_larger_than_the_memory_are_not_supported(driver):
    with opened_as(driver, **{**discrete(driver), "heaps": (8 << 20, 8 << 20)}) as device:
        desc = ArgmaxOperatorDesc.of(TensorDesc(FLOAT32, (1 << 10, 1 << 12)), axes=(1,))
        assert "do not fit on device" in device.supports(desc).why_not
