"""Devices, device tensors and compiled operators: what they are given, how long they live, and what they say."""

import contextlib
import dataclasses
import gc
import re
from functools import partial

import numpy as np
import pytest

import dmlgpu
from dmlgpu import ArgmaxOperatorDesc, DescriptorError, Device, DeviceError, OutOfMemoryError, TensorDesc, verify
from dmlgpu.runtime import spirv
from dmlgpu.runtime.tuning import device_limits
from dmlgpu.testing.cases import CASES, FLOAT32, INT32, POOLED_STRIDED, STRIDED_ARGS, UINT8, UINT32, arg_desc, pool_desc
from dmlgpu.testing.fills import any_bits
from tests.support.drivers import discrete, opened_as
from tests.support.layouts import check_all_bytes
from tests.support.plans import OF_A_CPU, OF_GATHERS, by_operator, chosen, of_operator

pytestmark = pytest.mark.every_driver

ROWS = np.array([[1, 2, 3], [3, 0, 4], [2, 5, 2]], np.float32)
ARGMAX = arg_desc(ArgmaxOperatorDesc, FLOAT32, (3, 3), [1])
POOL = pool_desc(FLOAT32, (1, 1, 3, 3), (2, 2))


def raises(error, text):
    """An error that says exactly this."""
    return pytest.raises(error, match=f"^{re.escape(text)}$")


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


def test_operator_prints_what_and_where_it_is(device):
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


def test_what_swiftshader_does_badly(driver):
    limits, llvmpipe = device_limits(driver), "llvmpipe" in driver.name
    assert (limits.unrolls, limits.loads_vectors) == (llvmpipe, llvmpipe)


@pytest.mark.parametrize(
    ("name", "gathers"),
    [
        ("llvmpipe Mesa 22.3.6 (LLVM 15.0.6)", False),
        ("llvmpipe Mesa 25.0.7-2~bpo12+1 (LLVM 15.0.6)", True),
        ("llvmpipe Mesa 30.1.0", True),
        ("radv Mesa 25.0.7", False),
    ],
)
def test_drivers_that_gather(driver, name, gathers):
    assert device_limits(dataclasses.replace(driver, driver=name)).gathers == gathers


@pytest.mark.parametrize(("limit", "room"), [("max_storage_buffer_range", 0), ("max_memory_allocation_size", 256)])
@pytest.mark.parametrize("more", [0, 1, 100, 255])
def test_segments_are_whole_vectors(driver, limit, room, more):
    changed = dataclasses.replace(driver, **{limit: (1 << 27) + more + room})
    assert device_limits(changed).segment_bytes == 1 << 27


def test_a_buffer_is_smaller_than_the_largest_allocation(driver):
    """On SwiftShader a buffer of 1 GiB, which is the largest allocation, ends the process."""
    assert device_limits(driver).segment_bytes < driver.max_memory_allocation_size


def test_neighbouring_work_goes_to_a_vector_on_a_cpu_and_to_all_on_a_gpu(driver):
    assert device_limits(dataclasses.replace(driver, type="cpu")).simd_width == driver.subgroup_size
    limits = device_limits(dataclasses.replace(driver, type="discrete"))
    assert limits.simd_width == limits.invocations


# Wrong calls


@pytest.mark.parametrize(
    ("x", "says"),
    [
        (ROWS[:2], "sizes: the array has (2, 3); the descriptor has (3, 3)"),
        (ROWS[0], "sizes: the array has (3,); the descriptor has (3, 3)"),
        (ROWS[None], "sizes: the array has (1, 3, 3); the descriptor has (3, 3)"),
        (1.0, "sizes: the array has (); the descriptor has (3, 3)"),
        (ROWS.astype(np.float64), "data_type: the array is float64; the descriptor has FLOAT32"),
        (ROWS.astype(np.int32), "data_type: the array is int32; the descriptor has FLOAT32"),
        (ROWS.astype(bool), "data_type: the array is bool; the descriptor has FLOAT32"),
    ],
)
def test_array_that_does_not_match(device, x, says):
    with raises(DescriptorError, f"ArgmaxOperatorDesc.input_tensor.{says}"):
        device.compile(ARGMAX)(x)


@pytest.mark.parametrize("inputs", [(), (ROWS, ROWS)])
def test_wrong_number_of_inputs(device, inputs):
    with raises(TypeError, f"ArgmaxOperatorDesc takes 1 input, {len(inputs)} were given"):
        device.compile(ARGMAX)(*inputs)


@pytest.mark.parametrize(
    "given",
    [
        TensorDesc(UINT32, (3, 3)),
        TensorDesc(FLOAT32, (3, 4)),
        TensorDesc(FLOAT32, (1, 3, 3)),
        TensorDesc(FLOAT32, (3, 3), (1, 3)),
        TensorDesc(INT32, (3, 1)),
    ],
)
def test_device_tensor_that_does_not_match(device, given):
    operator = device.compile(ARGMAX)
    tensor = device.tensor_from_bytes(bytes(given.size_in_bytes), given)
    for field, desc, call in (
        ("input_tensor", ARGMAX.input_tensor, lambda: operator(tensor)),
        ("output_tensor", ARGMAX.output_tensor, lambda: operator(ROWS, out=tensor)),
    ):
        says = f"ArgmaxOperatorDesc.{field}: the tensor is {given}; the descriptor has {desc}"
        with raises(DescriptorError, says):
            call()


def test_out_that_is_no_device_tensor_or_one_too_few(device):
    out = device.tensor(np.zeros((1, 1, 2, 2), np.float32))
    words = r"^out: \w+.* is not allowed; allowed is 2 device tensors, for output_tensor, output_indices_tensor$"
    for wrong in (out, [out], [out, np.zeros((1, 1, 2, 2), np.uint32)], [out, out, out]):
        with pytest.raises(TypeError, match=words):
            device.compile(POOL)(ROWS.reshape(1, 1, 3, 3), out=wrong)


def test_device_tensor_of_another_device(device, lowered):
    for one, other in ((device, lowered), (lowered, device)):
        operator = one.compile(ARGMAX)
        tensor, out = other.tensor(ROWS), other.tensor(np.zeros((3, 1), np.uint32))
        # Both have the same name.
        assert f"on device {one.info.index}: " in repr(tensor)
        for value, call in (
            (tensor, partial(operator, tensor)),
            (tensor, partial(dmlgpu.argmax, tensor, device=one)),
            (tensor, partial(dmlgpu.argmin, tensor, device=one)),
            (out, partial(operator, ROWS, out=out)),
        ):
            with raises(
                DeviceError, f"{value.description} is on another device than {one!r}: the same one, opened another time"
            ):
                call()


@pytest.mark.parametrize("desc", [None, "argmax", TensorDesc(FLOAT32, (3,)), ArgmaxOperatorDesc])
def test_only_operator_descriptors_compile(device, desc):
    with raises(TypeError, f"{desc!r} is not an operator descriptor"):
        device.compile(desc)


def test_tensor_of_an_array_that_its_descriptor_contradicts(device):
    with pytest.raises(DescriptorError, match=r"^TensorDesc\.sizes: the array has \(3, 3\); .* \(3, 1\)$"):
        device.tensor(ROWS, TensorDesc(FLOAT32, (3, 1)))
    with pytest.raises(DescriptorError, match=r"^TensorDesc\.data_type: the array is float32; .* UINT32$"):
        device.tensor(ROWS, TensorDesc(UINT32, (3, 3)))


# The end of a device


@pytest.fixture
def closed(driver):
    """A closed device, and what was made on it before."""
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
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_use_after_close(closed, use):
    with raises(DeviceError, f"device {closed[0].info.name} is closed"):
        use(*closed)


def test_closing_again_does_nothing(closed):
    device, operator, tensor = closed
    device.close()
    device.close()
    assert device.info.name in repr(device)
    assert repr(tensor)
    assert repr(operator)
    del operator, tensor
    gc.collect()


def test_with_closes_also_after_an_error(driver):
    with pytest.raises(ZeroDivisionError), Device(driver.index) as device:
        raise ZeroDivisionError
    with raises(DeviceError, f"device {driver.name} is closed"):
        device.tensor(ROWS)


# Memory


@pytest.fixture
def small_heap(driver, kp):
    """A device whose heaps have 24 MiB."""
    with opened_as(driver, heaps=(24 << 20,) * len(driver.heaps)) as device:
        yield device


@contextlib.contextmanager
def without_asking(kp):
    """Fails where Kompute is asked for memory: a failed allocation would end the process."""
    before, kp.most_bytes = len(kp.asked_bytes), 256
    try:
        yield
        assert kp.asked_bytes[before:] == []
    finally:
        kp.most_bytes = None


@pytest.mark.parametrize(("heaps", "most"), [((24 << 20, 30 << 20), 24 << 20), ((24 << 20,), 12 << 20)])
def test_all_of_a_heap_may_be_taken(driver, heaps, most):
    """A heap that the host does not see, and the heap that it sees, in which each buffer then is twice."""
    host = len(heaps) - 1
    with opened_as(driver, **discrete(driver) | {"heaps": heaps, "host_heap": host}) as device:
        device._engine.kompute.check_fits(most)
        with pytest.raises(OutOfMemoryError):
            device._engine.kompute.check_fits(most + 1)


@pytest.mark.parametrize("size", [1 << 31, 3 << 30, (1 << 32) - 1])
def test_a_tensor_that_does_not_fit_the_heap(driver, kp, size):
    heap = driver.host_heap if driver.unified else driver.device_heap
    words = (f"do not fit on device {driver.name}: ", f"of {1 << 30} bytes of heap {heap} are left")
    with opened_as(driver, heaps=(1 << 30,) * len(driver.heaps)) as device:
        with without_asking(kp), pytest.raises(OutOfMemoryError, match=".*".join(map(re.escape, words))):
            device.compile(arg_desc(ArgmaxOperatorDesc, UINT8, (size,), [0]))
        assert device.compile(ARGMAX)(ROWS).tolist() == [[2], [2], [1]]


@pytest.mark.parametrize("total", [1 << 40, 1 << 45, 1 << 62, (1 << 64) - 1])
def test_a_buffer_of_any_size_is_refused_at_once(fresh, kp, total):
    source, x = TensorDesc(UINT8, (8,), None, total), np.zeros(8, np.uint8)
    desc = ArgmaxOperatorDesc(source, TensorDesc(UINT32, (1,)), (0,))
    before = fresh.cache_info().buffer_bytes
    for call in (lambda: fresh.compile(desc), lambda: verify(desc, x, device=fresh), lambda: fresh.tensor(x, source)):
        with without_asking(kp), pytest.raises(OutOfMemoryError, match=r"^\d+ bytes do not fit on device "):
            call()
    assert fresh.cache_info().buffer_bytes == before
    assert fresh.compile(ARGMAX)(ROWS).tolist() == [[2], [2], [1]]


def test_an_operator_that_never_fits_is_not_compiled(small_heap, kp):
    # 10 MiB in and 40 MiB out.
    desc = arg_desc(ArgmaxOperatorDesc, UINT8, (10 << 20, 1), [1])
    with without_asking(kp), pytest.raises(OutOfMemoryError):
        small_heap.compile(desc)
    assert small_heap.compile(ARGMAX)(ROWS).tolist() == [[2], [2], [1]]


def test_an_output_that_does_not_fit_now_gives_the_input_back(small_heap):
    # 4 MiB in and 16 MiB out beside 10 MiB: the input fits, the output does not.
    beside = small_heap.tensor(np.zeros(10 << 20, np.uint8))
    desc = arg_desc(ArgmaxOperatorDesc, UINT8, (4 << 20, 1), [1])
    message = r"^\d+ bytes do not fit on device .*: \d+ of 25165824 bytes of heap \d+ are left$"
    for _ in range(3):
        with pytest.raises(OutOfMemoryError, match=message):
            small_heap.compile(desc)
    assert small_heap.tensor(np.ones(13 << 20, np.uint8)).numpy()[-1] == 1
    assert beside.numpy().max() == 0


def test_tensors_until_the_heap_is_full(small_heap):
    tensors = [small_heap.tensor(np.full(5 << 20, i, np.uint8)) for i in range(4)]
    for _ in range(3):
        with pytest.raises(OutOfMemoryError):
            small_heap.tensor(np.zeros(5 << 20, np.uint8))
    assert [tensor.numpy()[0] for tensor in tensors] == [0, 1, 2, 3]
    del tensors
    assert small_heap.tensor(np.ones(20 << 20, np.uint8)).numpy()[-1] == 1


def test_as_many_buffers_as_the_driver_allows(driver):
    # One buffer is the device's own.
    with opened_as(driver, unified=False, max_memory_allocation_count=8) as device:
        tensors = [device.tensor(ROWS) for _ in range(3)]
        with pytest.raises(OutOfMemoryError, match=r"allows no more than 4 buffers$"):
            device.tensor(ROWS)
        del tensors[1:]
        assert device.tensor(-ROWS).numpy().tolist() == (-ROWS).tolist()


# Devices whose memory the host does not see


@by_operator
def test_staged_results(staged, operator):
    """Every fourth case: copies do not depend on kernels, all of which test_mappings.py runs."""
    for case in of_operator(operator, chosen("GPU"))[::4]:
        verify(case.desc, *case.inputs(), flags=case.flags, device=staged)


def test_staged_results_are_those_of_every_kernel_of_a_gpu(staged):
    plans = [staged.planned(case.desc, flags=case.flags).plan for case in CASES]
    modules = {dispatch.shader.module for plan in plans for dispatch in plan.dispatches}
    # SwiftShader, even in disguise, takes no kernel that drivers must unroll.
    others = () if staged.limits.unrolls else ("pool_small", "pool_backward_small")
    # Sums of short integers have tests of their own: test_reduce.py over axes, test_quantized.py over windows.
    layouts = {name for name in spirv.layouts() if not name.endswith(("_integer_8", "_integer_16"))}
    others_load = "pool_separable_columns_selection_" if staged.limits.gathers else OF_GATHERS
    of_others = re.compile(f"{OF_A_CPU}|{others_load}")
    assert modules & layouts == {name for name in layouts if not (of_others.match(name) or name.startswith(others))}


@pytest.mark.parametrize(("heaps", "full"), [((8 << 20, 64 << 20), 0), ((64 << 20, 8 << 20), 1)])
def test_staged_tensors_take_of_both_heaps(driver, heaps, full):
    with opened_as(driver, **{**discrete(driver), "heaps": heaps}) as device:
        tensor = device.tensor(np.ones(5 << 20, np.uint8))
        with pytest.raises(OutOfMemoryError, match=rf" of {8 << 20} bytes of heap {full} are left$"):
            device.tensor(np.ones(5 << 20, np.uint8))
        assert tensor.numpy().all()


@pytest.mark.parametrize("case", [*STRIDED_ARGS[::4], *POOLED_STRIDED[::4]], ids=lambda case: case.id)
def test_staged_bytes_between_elements_stay(staged, case):
    check_all_bytes(staged, case.desc)


def test_staged_upload_keeps_the_rest_of_a_tensor(staged):
    desc = TensorDesc(UINT8, (3,), (4,), 64)
    tensor = staged.tensor_from_bytes(bytes(range(64)), desc)
    assert tensor.bytes().tobytes() == bytes(range(64))
    assert tensor.numpy().tolist() == [0, 4, 8]


def test_what_a_device_supports(device):
    source = TensorDesc(FLOAT32, (3, 4))
    desc = dmlgpu.ReduceOperatorDesc.of("log_sum_exp", source)
    assert device.supports(desc)
    exact = device.supports(desc, flags=dmlgpu.ExecutionFlags.EXACT_SUMS)
    assert not exact
    assert exact.why_not.startswith("ReduceOperatorDesc.function: LOG_SUM_EXP is not supported with EXACT_SUMS")


def test_tensors_larger_than_the_memory_are_not_supported(driver):
    with opened_as(driver, **{**discrete(driver), "heaps": (8 << 20, 8 << 20)}) as device:
        desc = ArgmaxOperatorDesc.of(TensorDesc(FLOAT32, (1 << 10, 1 << 12)), axes=(1,))
        assert "do not fit on device" in device.supports(desc).why_not
