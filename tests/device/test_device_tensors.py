"""Device tensors where NumPy's users expect arrays: a right result, or an error that says what to do."""

import copy
import itertools
import operator
import pickle
import re
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

import dmlgpu
from dmlgpu import ArgmaxOperatorDesc, MaxPooling2OperatorDesc, TensorDesc, argmax, argmin, max_pooling
from dmlgpu.lowering.limits import Limits
from dmlgpu.runtime import compiled
from dmlgpu.runtime.tensor import _ON_DEVICE
from dmlgpu.runtime.tuning import device_limits
from dmlgpu.testing.cases import FLOAT32, INT64, UINT32, UINT64
from tests.support.errors import refuses

X = np.random.default_rng(5).permutation(60).astype(np.float32).reshape(3, 4, 5)


@pytest.fixture
def t(any_device):
    return any_device.tensor(X)


def test_a_tensor_looks_like_its_array(t):
    for name in "shape", "dtype", "ndim", "size", "itemsize", "nbytes":
        assert getattr(t, name) == getattr(X, name)
    assert (len(t), np.shape(t), t.tolist(), np.max(t).tolist()) == (len(X), X.shape, X.tolist(), X.max().item())
    # Bytes between elements do not count.
    assert t.device.tensor(X[0], TensorDesc(FLOAT32, (4, 5), (8, 1))).nbytes == 80
    assert {t: 1}[t] == 1
    assert len({t, t.reshape(X.shape)}) == 2


# NumPy's functions


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("name", ["argmax", "argmin", "max", "min", "amax", "amin", "sum", "mean"])
def test_numpy_s_functions_run_ours(t, monkeypatch, name, axis):
    function = getattr(np, name)
    monkeypatch.setattr(dmlgpu.DeviceTensor, "__array__", None)
    for result, keepdims in (
        (function(t, axis), False),
        (function(a=t, axis=axis), False),
        (function(t, axis, keepdims=True), True),
    ):
        expected = function(X, axis, keepdims=keepdims)
        assert type(result) is dmlgpu.DeviceTensor
        assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(result.numpy(), expected, 1e-5)


def test_numpy_s_functions_write_to_out(t):
    out = t.device.tensor(np.zeros((4, 5), np.int64))
    assert np.argmax(t, 0, out) is np.argmax(t, 0, out=out) is out
    assert np.array_equal(out.numpy(), X.argmax(0))
    message = r"^out: .* allowed is a packed device tensor of int64$"
    refuses(message, np.argmax, t, 0, out=np.empty((4, 5), np.int64), error=TypeError)


def test_methods_of_arrays_name_numpy(t):
    for name in ("argmax", "max", "sum"):
        message = rf"^a device tensor has no {name}; use np\.{name} or dmlgpu\.{name}$"
        refuses(message, getattr, t, name, error=AttributeError)


def test_other_functions_download(t):
    for function in (
        np.asarray, np.array, np.median, np.std, np.ravel, np.from_dlpack, np.sort,
        lambda x: np.add(x, 1), lambda x: np.take(x, [1, 0]), lambda x: np.stack([x, x]), lambda x: np.hstack((x, x)),
        lambda x: np.where(np.asarray(x) > 9, x, 0),
    ):  # fmt: skip
        result, expected = function(t), function(X)
        assert np.array_equal(result, expected)
        assert type(result) is type(expected)


def test_numpy_s_functions_write_to_no_tensor(t):
    for write in (
        lambda: np.copyto(t, 0), lambda: np.fill_diagonal(t, 0), lambda: np.put(t, 0, 9),
        lambda: np.place(t, X > 1, [0]), lambda: np.putmask(t, X > 1, 0), lambda: np.cumsum(X, axis=1, out=t),
        lambda: np.clip(X, 0, 1, out=t), lambda: np.round(X, out=t),
        lambda: np.may_share_memory(t, t), lambda: np.shares_memory(t, X),
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError, AttributeError)):
            write()
    assert np.array_equal(t.numpy(), X)


def test_what_is_known_of_a_tensor_is_not_downloaded(t, monkeypatch):
    assert np.max(t, keepdims=np._NoValue, initial=np._NoValue).item() == 59
    monkeypatch.setattr(type(t), "numpy", lambda self: pytest.fail("it was downloaded"))
    assert (np.shape(t), np.ndim(t), np.size(t)) == (X.shape, 3, 60)


def test_array_protocols_copy(t, staged):
    assert np.asarray(t, np.int32).dtype == np.int32
    np.testing.assert_array_equal(t.__array__(np.float64), X.astype(np.float64), strict=True)
    refuses("its array is always a copy", t.__array__, error=ValueError, copy=False)
    assert t.__dlpack_device__() == (1, 0)  # the host
    refuses("its export is always a copy", t.__dlpack__, error=BufferError, copy=False)
    np.asarray(t)[...] = 0
    assert np.array_equal(t.numpy(), X)
    assert np.array_equal(staged.tensor(t).numpy(), X)


# Python's operators

BINARY = [
    operator.add, operator.sub, operator.mul, operator.matmul, operator.truediv, operator.floordiv, operator.mod,
    divmod, pow, operator.lshift, operator.rshift, operator.and_, operator.or_, operator.xor, operator.eq, operator.ne,
    operator.lt, operator.le, operator.gt, operator.ge, operator.iadd,
]  # fmt: skip


def test_operators_name_numpy(t):
    pairs = (t, 1), (1, t), (t, X), (X.copy(), t), (t, t), (t, None)
    for function, (left, right) in itertools.product(BINARY, pairs):
        refuses(r"^a device tensor has no __\w+__; use \.numpy\(\) of <dml", function, left, right, error=TypeError)


def test_other_operators_name_numpy(t):
    for use in (
        iter, list, operator.neg, operator.pos, abs, operator.inv, lambda t: t[0], lambda t: t[:, 1], lambda t: 3 in t,
        lambda t: operator.setitem(t, 0, 1),
    ):  # fmt: skip
        refuses(r"use \.numpy\(\) of <dmlgpu\.DeviceTensor TensorDesc\(.* on device \d+: ", use, t, error=TypeError)


OF_ARRAYS = [name for name in dir(np.ndarray) if name[0] != "_" and name not in _ON_DEVICE.values()]


@pytest.mark.parametrize(
    ("names", "hint"),
    [
        (OF_ARRAYS, r"use \.numpy\(\)\.{name}"),
        (["cpu", "detach", "to", "unsqueeze", "clone", "get"], r"\.numpy\(\) returns an array"),
    ],
    ids=["arrays", "tensors of others"],
)
def test_missing_attributes_name_numpy(t, names, hint):
    missing = [name for name in names if not hasattr(t, name)]
    assert len(missing) > 5
    for name in missing:
        refuses(rf"^a device tensor has no {name}; {hint.format(name=name)}$", getattr, t, name, error=AttributeError)


@pytest.mark.parametrize(
    ("elements", "printed"),
    [([1, 2, 3], "[1, 2, 3]"), (range(7), "[0, 1, 2, 3, 4, 5, ...]"), (np.float32([[0.5, np.nan]]), "[0.5, nan]")],
    ids=["all", "many", "floats"],
)
def test_a_tensor_prints_its_first_elements(device, elements, printed):
    t = device.tensor(elements)
    assert repr(t) == f"<dmlgpu.DeviceTensor {t.desc} on device {device.info.index}: {device.info.name}: {printed}>"


def test_a_large_or_pending_tensor_prints_no_elements(device):
    large = device.tensor(np.zeros((1 << 18) + 1, np.float32))
    on_device = f"on device {device.info.index}: {device.info.name}>"
    assert repr(large) == large.description == f"<dmlgpu.DeviceTensor {large.desc} {on_device}"
    with device.batch():
        assert repr(np.max(device.tensor(X))).endswith(on_device)


def test_other_protocols_are_missing(t):
    for name in ("__array_interface__", "__cuda_array_interface__", "_private", "__deepcopy__"):
        refuses(rf"^a device tensor has no {name}$", getattr, t, name, error=AttributeError)
    assert getattr(t, "cpu", None) is None
    # As copy and pickle make one.
    assert not hasattr(object.__new__(type(t)), "nonsense")


def test_closed_devices_and_their_tensors_print_that(driver):
    with dmlgpu.Device(driver.index) as device:
        t = device.tensor(X)
        compiled = device.compile(ArgmaxOperatorDesc.of(X))
        assert "closed" not in repr(t) + repr(device) + repr(compiled)
    closed = f"{driver.index}: {driver.name}, closed>"
    assert repr(device) == f"<dmlgpu.Device {closed}"
    assert repr(compiled).endswith(f"on device {closed}")
    assert repr(t) == t.description == f"<dmlgpu.DeviceTensor {t.desc} on device {closed}"


def test_one_element_is_a_number_and_several_are_none(t):
    one = t.device.tensor(np.int16([[7]]))
    scalar = one.reshape(())
    assert (int(scalar), float(scalar), one.item(), bool(one)) == (7, 7.0, 7, True)
    assert range(9)[scalar] == 7
    refuses("without dimensions", len, scalar, error=TypeError)
    refuses("index|indices", [1, 2].__getitem__, t.device.tensor(np.float32(1)), error=TypeError)
    for use in bool, t.__class__.item:
        refuses(r"ambiguous|size 1", use, t, error=ValueError)


def test_a_tensor_may_have_no_dimensions(any_device):
    scalar = any_device.tensor(np.float32(3))
    assert (scalar.shape, scalar.desc) == ((), TensorDesc(FLOAT32, (1,)))
    assert (scalar.numpy().shape, scalar.numpy().item()) == ((), 3)
    assert argmax(scalar).item() == argmax(scalar, -1, keepdims=True).item() == 0
    maximum = argmax(any_device.tensor(X))
    assert maximum.shape == ()
    assert " of shape () on device " in repr(maximum)
    assert " of shape" not in repr(any_device.tensor(X))


# Reshaping


@pytest.mark.parametrize(
    "shape", [(60,), (-1,), (12, 5), (3, -1, 2), ((5, 12),), ([2, 30],), (1, 3, 4, 5, 1), (np.int64(4), 15)], ids=str
)
def test_reshape_shares_memory(t, shape):
    reshaped = t.reshape(*shape)
    np.testing.assert_array_equal(reshaped.numpy(), X.reshape(*shape), strict=True)
    assert reshaped.shape == reshaped.desc.sizes
    assert reshaped._segments.overlap(t._segments)
    assert int(argmax(reshaped)) == X.argmax()


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        *((shape, f"{shape} is not allowed") for shape in ((7,), (-1, -1), (0,), (-1, 0), (7, -1), (-3, -20))),
        ((1.5,), "1.5 is not an integer"),
        ((True, 60), "True is not an integer"),
        ((10**5000,), "tuple too long to print is not allowed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_shapes_are_refused(t, shape, message):
    refuses(rf"^DeviceTensor\.shape.*{re.escape(message)}", t.reshape, *shape)


def test_only_packed_tensors_are_reshaped(any_device):
    refuses("9 dimensions", any_device.tensor(X).reshape, 3, 4, 5, 1, 1, 1, 1, 1, 1)
    spaced = any_device.tensor(X[0], TensorDesc(FLOAT32, (4, 5), (8, 1)))
    refuses(r"is not packed; copy it with \.numpy\(\)", spaced.reshape, 20)
    packed = any_device.tensor(X[0], TensorDesc(FLOAT32, (4, 5), (5, 1)))
    assert packed.reshape(5, 4).numpy().tolist() == X[0].reshape(5, 4).tolist()


@pytest.mark.parametrize("shape", [(70, 64), (4480,), (35, 128), (2, 5, 448)])
def test_views_keep_the_segments_of_the_shape_that_their_memory_was_allocated_for(driver, open_device, shape):
    """Segments end with rows: of 448 elements in 1,792 bytes, of 64 in 2,048."""
    device = open_device(driver.index, replace(device_limits(driver), segment_bytes=2048))
    x = np.random.default_rng(3).permutation(4480).astype(np.float32).reshape(10, 448)
    tensor = device.tensor(x)
    view, copied = tensor.reshape(*shape), device.tensor(x.reshape(shape))
    for axis in range(len(shape)):
        operator = device.compile(ArgmaxOperatorDesc.of(copied, (axis,)))
        expected = x.reshape(shape).argmax(axis, keepdims=True)
        for source in view, copied, view:
            assert np.array_equal(operator(source), expected)
    # The maximum along an axis of one element is a copy.
    for allocated, written in itertools.product(((1, 10, 448), (1, *shape)), repeat=2):
        out = device.tensor(np.zeros(allocated, np.float32)).reshape(*written)
        copy = device.compile(dmlgpu.ReduceOperatorDesc.of("max", out, (0,)))
        assert np.array_equal(copy(view.reshape(*written), out=out), x.reshape(written))


def test_an_operator_keeps_the_plans_of_few_views(driver, open_device, monkeypatch):
    monkeypatch.setattr(compiled, "_CACHED_PLANS", 2)
    device = open_device(driver.index, replace(device_limits(driver), segment_bytes=2048))
    x = np.random.default_rng(3).permutation(4480).astype(np.float32)
    operator = device.compile(ArgmaxOperatorDesc.of(x, (0,)))
    for row in (32, 56, 64, 70, 112, 448, 32):
        assert int(operator(device.tensor(x.reshape(-1, row)).reshape(4480)).numpy()[0]) == x.argmax()
        assert len(operator._plans_of_views) <= 2
    assert operator._plans_of_views


def test_a_reshaped_tensor_keeps_the_memory(any_device):
    reshaped = any_device.tensor(X).reshape(60)
    others = [any_device.tensor(np.zeros_like(X)) for _ in range(3)]
    assert np.array_equal(reshaped.numpy(), X.reshape(60))
    assert not any(reshaped._segments.overlap(other._segments) for other in others)


# Functions


@pytest.mark.parametrize("layout", [None, (40, 8, 1), (1, 3, 12)], ids=["packed", "spaced", "permuted"])
def test_functions_of_device_tensors_return_device_tensors(any_device, layout):
    t = any_device.tensor(X, TensorDesc(FLOAT32, X.shape, layout))
    for function in (
        lambda x, **options: argmax(x, 1, **options),
        lambda x, **options: argmin(x, (0, 2), keepdims=True, **options),
        lambda x, **options: max_pooling(x, 2, **options),
        lambda x, **options: max_pooling(x, 2, output_indices=True, **options)[1],
    ):
        result, expected = function(t), function(X, device=any_device)
        assert (type(result), result.device) == (dmlgpu.DeviceTensor, any_device)
        np.testing.assert_array_equal(result.numpy(), expected, strict=True)


def test_functions_run_where_the_tensor_is(t, monkeypatch):
    indices = max_pooling(t, 2, output_indices=True)[1]
    assert indices.desc.data_type is INT64
    assert max_pooling(t, 2, output_indices=True, indices_data_type=UINT64)[1].desc.data_type is UINT64
    assert argmax(t, device=t.device.info.index).device is t.device
    monkeypatch.setattr("dmlgpu.sources.open_device", lambda selector: pytest.fail("another device was opened"))
    assert int(argmax(t)) == dmlgpu.verify(ArgmaxOperatorDesc.of(X), t).item() == X.argmax()


# Memory that two arguments share


def test_an_output_that_is_an_input_is_refused(any_device):
    source = TensorDesc(FLOAT32, (1, 1, 64, 64))
    op = any_device.compile(MaxPooling2OperatorDesc.of(source, (3, 3), start_padding=(1, 1), end_padding=(1, 1)))
    x = np.random.default_rng(0).random((1, 1, 64, 64), np.float32)
    q = any_device.tensor(x)
    message = f"MaxPooling2OperatorDesc.output_tensor: out has {q.description}, which shares memory with input_tensor; "
    for out in q, q.reshape(4096).reshape(1, 1, 64, 64), [q]:
        refuses(f"^{re.escape(message)}pass separate memory$", op, q, out=out)
    assert np.array_equal(q.numpy(), x)
    # The same object may be the output of the next call.
    assert np.array_equal(op(op(q), out=q).numpy(), op(op(x)))


def test_two_outputs_in_one_memory_are_refused(any_device):
    desc = MaxPooling2OperatorDesc.of(TensorDesc(UINT32, (1, 1, 4, 4)), (2, 2), indices_data_type=UINT32)
    op = any_device.compile(desc)
    out = any_device.tensor(np.zeros((1, 1, 3, 3), np.uint32))
    words = r"^MaxPooling2OperatorDesc\.output_indices_tensor: out has .* output_"
    for second in out, out.reshape(9).reshape(1, 1, 3, 3):
        refuses(words, op, np.zeros((1, 1, 4, 4), np.uint32), out=[out, second])


# Copies


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps], ids=["copy", "deepcopy", "pickle"])
def test_what_is_on_a_device_cannot_be_copied(device, duplicate):
    for thing, advice in (
        (device, f"open Device({device.info.index}) there"),
        (device.tensor(X), "use .numpy() for an array"),
        (device.compile(ArgmaxOperatorDesc.of(X)), "Device.compile(desc) makes another"),
    ):
        message = re.escape(f"{getattr(thing, 'description', repr(thing))} cannot be copied or pickled; ")
        refuses(f"^{message}.*{re.escape(advice)}", duplicate, thing, error=TypeError)


# What must not be changed from outside


def test_attributes_are_read_only(t):
    for name in ("desc", "device", "dtype"):
        with pytest.raises(AttributeError):
            setattr(t, name, getattr(t, name))
    refuses(r"is read-only; use \.reshape\(\)$", setattr, t, "shape", (60,), error=AttributeError)


def test_a_tensor_needs_a_tensor_desc(device):
    for wrong in 0, "packed":
        refuses(r"^desc must be a TensorDesc, not ", device.tensor, X, wrong, error=TypeError)


def test_gaps_of_new_outputs_are_zero(any_device):
    any_device.tensor_from_bytes(b"\xff" * 4096, TensorDesc(FLOAT32, (1024,)))
    target = TensorDesc(UINT32, (3, 1, 5), (16, 8, 1))
    op = any_device.compile(ArgmaxOperatorDesc(TensorDesc(FLOAT32, X.shape), target, (1,)))
    written = np.zeros(len(op(any_device.tensor(X)).bytes()) // 4, bool)
    written[[16 * i + k for i in range(3) for k in range(5)]] = True
    assert not op(any_device.tensor(X)).bytes().view(np.uint32)[~written].any()


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_tensors_of_several_segments_are_copied_in_parts(driver, open_device, order):
    """Arrays in the order of memory, and others: with gaps, reversed, of the other byte order, of bool."""
    device = open_device(driver.index, Limits(segment_bytes=3 << 20, group_size=4, group_count=4))
    x = np.random.default_rng(0).random((4, 1024, 1024), np.float32).transpose(order)

    def within(share, function, *arguments, **options):
        """The result of a function that allocates at most this share of its size."""
        tracemalloc.start()
        result = function(*arguments, **options)
        assert tracemalloc.get_traced_memory()[1] < share * result.nbytes
        tracemalloc.stop()
        return result

    gaps = np.random.default_rng(1).random((5, 700, 1300), np.float32)
    for array in (x, x[::-1], gaps[:4, :, ::2], x.astype(">f4"), x > 0.5, np.broadcast_to(x[:1], x.shape)):
        assert np.array_equal(within(1.1, within(0.6, device.tensor, array).numpy), array)
    if order == (2, 0, 1):
        assert np.array_equal(within(1.3, dmlgpu.argmax, x, axis=1, device=device), np.argmax(x, 1))
