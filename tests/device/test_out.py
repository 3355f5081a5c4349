"""Where functions write results: arrays and device tensors of the caller."""

import numpy as np
import pytest

import dmlgpu
from dmlgpu import DescriptorError

X = np.random.default_rng(3).integers(0, 9, (2, 6, 8)).astype(np.float32)
WINDOW = {"window_size": 2, "strides": 2, "output_indices": True}
# Calls of every function, the arrays first.
CALLS = {
    "argmax": lambda x, **options: dmlgpu.argmax(x, 1, **options),
    "argmin of all": lambda x, **options: dmlgpu.argmin(x, dtype="uint32", **options),
    "sum": lambda x, **options: dmlgpu.sum(x, (0, 2), **options),
    "prod": lambda x, **options: dmlgpu.prod(x, 2, keepdims=True, **options),
    "mean": lambda x, **options: dmlgpu.mean(x, **options),
    "max": lambda x, **options: dmlgpu.max(x, -1, **options),
    "min": lambda x, **options: dmlgpu.min(x, (0, 1, 2), keepdims=True, **options),
    "reduce": lambda x, **options: dmlgpu.reduce(x, "l2", 0, **options),
    "reduce over none": lambda x, **options: dmlgpu.reduce(x, "sum_square", (), **options),
    "max_pooling": lambda x, **options: dmlgpu.max_pooling(x, 2, **options),
    "average_pooling": lambda x, **options: dmlgpu.average_pooling(x, 3, padding=1, **options),
    "lp_pooling": lambda x, **options: dmlgpu.lp_pooling(x, (1, 2), **options),
    "average_pooling_grad": lambda x, **options: dmlgpu.average_pooling_grad(x, (7, 9), 2, **options),
    "max_pooling_grad": lambda x, **options: dmlgpu.max_pooling_grad(np.tile(X, (1, 2, 2)), x, (7, 9), **options),
    "max_unpooling": lambda x, **options: dmlgpu.max_unpooling(x, np.arange(96).reshape(X.shape), (6, 8), **options),
}
# What chooses the type of their results; that of others is x's.
TYPED = dict.fromkeys(("argmax", "argmin of all", "sum", "prod", "mean"), "; for another type give dtype=")


@pytest.fixture(autouse=True)
def _on_the_driver(driver, monkeypatch):
    monkeypatch.setenv("DMLGPU_DEVICE", str(driver.index))


def refuses(words, call, *arguments, error=DescriptorError, **options):
    with pytest.raises(error, match=f"(?s)^out: .*{words}"):
        call(*arguments, **options)


@pytest.mark.parametrize("name", CALLS)
def test_arrays(name):
    call = CALLS[name]
    expected = call(X)
    wide = np.zeros((*expected.shape, 2), expected.dtype)
    for out in (np.empty(expected.shape, expected.dtype), wide[..., 1]):
        assert call(X, out=out) is out
        np.testing.assert_array_equal(out, expected, strict=expected.shape != ())
    assert not wide[..., 0].any()
    other = np.dtype(np.int16)
    words = rf"ndarray of int16 and .*; allowed is an array of \w+{TYPED.get(name, '')}$"
    refuses(words, call, X, out=out.astype(other), error=TypeError)
    refuses(r"the shape \(.*5,?\) is wrong; expected ", call, X, out=np.empty((*expected.shape, 5), expected.dtype))
    out = np.empty(expected.shape, expected.dtype)
    out.flags.writeable = False
    refuses("is read-only; allowed is an array that can be written$", call, X, out=out)


@pytest.mark.parametrize("name", CALLS)
def test_device_tensors(name, device):
    call = CALLS[name]
    expected, x = call(X), device.tensor(X)
    out = device.tensor(np.full(expected.shape, 77, expected.dtype))
    assert call(x, out=out) is out
    np.testing.assert_array_equal(out.numpy(), expected, strict=expected.shape != ())
    kind = r"allowed is a packed device tensor of \w+$"
    refuses(f"ndarray of .*{kind}", call, x, out=np.empty(expected.shape, expected.dtype), error=TypeError)
    words = rf"DeviceTensor of int16 .*; allowed is a packed device tensor of \w+{TYPED.get(name, '')}$"
    refuses(words, call, x, out=device.tensor(expected.astype(np.int16)), error=TypeError)
    refuses("the shape", call, x, out=device.tensor(np.zeros((*expected.shape, 5), expected.dtype)))
    kind = r"allowed is an array of \w+$"
    refuses(f"DeviceTensor of .*{kind}", call, X, out=out, error=TypeError)


@pytest.mark.parametrize("out", [[0, 0], (np.zeros(6, np.int64),), 3, {}], ids=repr)
def test_what_is_no_array(out):
    error = DescriptorError if isinstance(out, (tuple, list)) else TypeError
    refuses("is not allowed; allowed is an array", dmlgpu.argmax, X[0], 1, out=out, error=error)


def test_a_path_is_for_chunks():
    refuses(
        r"'x\.npy' is not allowed; paths are for dmlgpu\.chunked\(x\)$", dmlgpu.argmax, X, out="x.npy", error=TypeError
    )


def test_arrays_of_other_kinds():
    total, none, flags = np.empty((), np.float32), np.full((6, 8), 9, np.float32), np.empty((2, 8), bool)
    assert dmlgpu.sum(X, out=total) is total
    assert total == X.sum()
    assert not dmlgpu.sum(X[:0], 0, out=none).any()
    np.testing.assert_array_equal(dmlgpu.max(X > 8, 1, out=flags), (X > 8).any(1))
    pairs = np.zeros((2, 8), [("value", "f4"), ("index", "i8")])  # side by side, and apart
    dmlgpu.max(X, 1, output_indices=True, out=(pairs["value"], pairs["index"]))
    np.testing.assert_array_equal(pairs["value"], X.max(1))
    np.testing.assert_array_equal(pairs["index"], X.argmax(1))


def test_arrays_that_cannot_be_written():
    masked, one = np.ma.masked_array(np.zeros((2, 8), np.int64)), np.zeros(1, np.int64)
    refuses("a masked array", dmlgpu.argmax, X, 1, out=masked)
    refuses("may share memory$", dmlgpu.argmax, X, 1, out=np.lib.stride_tricks.as_strided(one, (2, 8), (0, 0)))


def test_arrays_may_be_in_x():
    """As with NumPy: results are written when all are computed."""
    x = X.copy()
    assert dmlgpu.max_pooling(x, 3, padding=1, out=x) is x
    np.testing.assert_array_equal(x, dmlgpu.max_pooling(X, 3, padding=1))
    x = X.copy()
    np.testing.assert_array_equal(dmlgpu.sum(x, 0, out=x[1]), X.sum(0))


def test_two_arrays():
    pair = dmlgpu.max_pooling(X, **WINDOW)
    values, indices = outs = tuple(map(np.empty_like, pair))
    assert dmlgpu.max_pooling(X, **WINDOW, out=outs) is outs
    for got, expected in zip(outs, pair, strict=True):
        np.testing.assert_array_equal(got, expected)
    allowed = "is not allowed; allowed is a tuple, for each of 2 results an array$"
    for out in (values, (values,), (*outs, values), np.stack([values, values])):
        refuses(allowed, dmlgpu.max_pooling, X, **WINDOW, out=out)
    refuses(
        "None is not allowed; .* array of int64$", dmlgpu.max_pooling, X, **WINDOW, out=(values, None), error=TypeError
    )
    refuses("array of float32$", dmlgpu.max_pooling, X, **WINDOW, out=(indices, values), error=TypeError)
    narrow = values, indices.astype(np.int32)
    words = "array of int64; for another type give indices_data_type=$"
    refuses(words, dmlgpu.max_pooling, X, **WINDOW, out=narrow, error=TypeError)
    refuses("array of float32$", dmlgpu.max, X, 1, out=np.empty((2, 8)), error=TypeError)
    words = "array of int64; for another type give dtype=$"
    refuses(words, dmlgpu.reduce, X, "argmin", 1, out=np.empty((2, 8)), error=TypeError)
    x = X.astype(np.int64)
    refuses("lies in another result", dmlgpu.max_pooling, x, **WINDOW, out=(indices, indices))
    refuses("lies in another result", dmlgpu.max_pooling, x, **WINDOW, out=(indices, indices[::-1]))


def test_the_pair_of_top_k(device):
    pair = dmlgpu.top_k(X, 3, axis=1)
    outs = tuple(np.zeros((*each.shape, 2), each.dtype)[..., 1] for each in pair)
    assert dmlgpu.top_k(X, 3, axis=1, out=outs) is outs
    t, on_device = device.tensor(X), tuple(device.tensor(np.zeros_like(each)) for each in pair)
    assert dmlgpu.top_k(t, 3, axis=1, out=on_device) is on_device
    for got, also, expected in zip(outs, on_device, pair, strict=True):
        np.testing.assert_array_equal(got, expected)
        np.testing.assert_array_equal(also.numpy(), expected)
    words = "array of int64; for another type give indices_data_type=$"
    refuses(words, dmlgpu.top_k, X, 3, axis=1, out=(outs[0], outs[1].astype(np.uint64)), error=TypeError)
    refuses("for each of 2 results an array$", dmlgpu.top_k, X, 3, axis=1, out=outs[0])
    refuses(r"the shape \(2, 3, 8\) is wrong; expected \(2, 3, 4\)$", dmlgpu.top_k, X.swapaxes(1, 2)[:, :, :4], 3,
            axis=1, out=pair)  # fmt: skip
    x = X.astype(np.int64)  # with all elements, sorted where they lie
    values, indices = dmlgpu.top_k(x, 6, axis=1)
    dmlgpu.top_k(x, 6, axis=1, out=(x, places := np.empty_like(x)))
    np.testing.assert_array_equal(x, values)
    np.testing.assert_array_equal(places, indices)
    refuses("lies in another result", dmlgpu.top_k, x, 6, axis=1, out=(x, x))
    t = device.tensor(x)
    for out in ((t, device.tensor(places)), (device.tensor(places), t)):
        with pytest.raises(DescriptorError, match=r"shares memory with input_tensor; pass separate memory"):
            dmlgpu.top_k(t, 6, axis=1, out=out)


def test_two_device_tensors(device):
    pair = dmlgpu.max_pooling(X, **WINDOW)
    x, outs = device.tensor(X), tuple(device.tensor(np.zeros_like(each)) for each in pair)
    got = dmlgpu.max_pooling(x, **WINDOW, out=outs)
    assert [*map(id, got)] == [*map(id, outs)]
    for got, expected in zip(outs, pair, strict=True):
        np.testing.assert_array_equal(got.numpy(), expected)
    kind = "allowed is a tuple, for each of 2 results a packed device tensor$"
    refuses(kind, dmlgpu.max_pooling, x, **WINDOW, out=outs[0])
    refuses("device tensor of float32$", dmlgpu.max_pooling, x, **WINDOW, out=outs[::-1], error=TypeError)
    with pytest.raises(DescriptorError, match=r"shares memory with .*pass separate memory$"):
        dmlgpu.max_pooling(device.tensor(X.astype(np.int64)), **WINDOW, out=(outs[1], outs[1]))


def test_device_tensors_of_others(device):
    x = device.tensor(X)
    gaps = device.tensor(X[0], dmlgpu.TensorDesc(dmlgpu.DataType.FLOAT32, (6, 8), (16, 2)))
    refuses(r"\(6, 8\), .* is not packed; allowed is a packed device tensor$", dmlgpu.sum, x, 0, out=gaps)
    with pytest.raises(DescriptorError, match=r"shares memory with input_tensor; pass separate memory$"):
        dmlgpu.max_pooling(x, 1, out=x)
    np.testing.assert_array_equal(x.numpy(), X)
    with dmlgpu.Device(device.info.index) as other, pytest.raises(dmlgpu.DeviceError, match="is on another device"):
        dmlgpu.max(x, 0, out=other.tensor(X[0]))


def test_functions_of_numpy(device):
    x, out = device.tensor(X), device.tensor(np.zeros((6, 8), np.float32))
    assert np.max(x, axis=0, out=out) is out
    np.testing.assert_array_equal(out.numpy(), X.max(0))
    assert np.max(x, 0, out) is out
