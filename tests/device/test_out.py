"""Where functions write results: arrays and device tensors of the caller."""

import numpy as np
import pytest

import dmlgpu
from dmlgpu import DescriptorError

X = np.random.default_rng(3).integers(0, 9, (2, 6, 8)).astype(np.float32)

# A call of every function with one result; x is its first array.
CALLS = {
    "argmax": lambda x, **options: dmlgpu.argmax(x, 1, **options),
    "argmin of all": lambda x, **options: dmlgpu.argmin(x, dtype="uint32", **options),
    "sum": lambda x, **options: dmlgpu.sum(x, (0, 2), **options),
    "prod": lambda x, **options: dmlgpu.prod(x, 2, keepdims=True, **options),
    "mean": lambda x, **options: dmlgpu.mean(x, **options),
    "max": lambda x, **options: dmlgpu.max(x, -1, **options),
    "min": lambda x, **options: dmlgpu.min(x, (0, 1, 2), keepdims=True, **options),
    "reduce": lambda x, **options: dmlgpu.reduce(x, "l2", 0, **options),
    "reduce to indices": lambda x, **options: dmlgpu.reduce(x, "argmin", 1, **options),
    "reduce over none": lambda x, **options: dmlgpu.reduce(x, "sum_square", (), **options),
    "max_pooling": lambda x, **options: dmlgpu.max_pooling(x, 2, **options),
    "average_pooling": lambda x, **options: dmlgpu.average_pooling(x, 3, padding=1, **options),
    "lp_pooling": lambda x, **options: dmlgpu.lp_pooling(x, (1, 2), **options),
    "average_pooling_grad": lambda x, **options: dmlgpu.average_pooling_grad(x, (7, 9), 2, **options),
    "max_pooling_grad": lambda x, **options: dmlgpu.max_pooling_grad(np.tile(X, (1, 2, 2)), x, (7, 9), **options),
    "max_unpooling": lambda x, **options: dmlgpu.max_unpooling(x, np.arange(96).reshape(X.shape), (6, 8), **options),
}
# Calls with two results.
PAIRS = {
    "max": lambda x, **options: dmlgpu.max(x, 1, output_indices=True, **options),
    "max_pooling": lambda x, **options: dmlgpu.max_pooling(x, 2, strides=2, output_indices=True, **options),
    "top_k": lambda x, **options: dmlgpu.top_k(x, 3, axis=1, **options),
}
by_pair = pytest.mark.parametrize("call", PAIRS.values(), ids=PAIRS)

# The functions whose results have a type of their own; those of others have the type of x.
TYPED = dict.fromkeys(
    ("argmax", "argmin of all", "sum", "prod", "mean", "reduce to indices"), "; for another type give dtype="
)


@pytest.fixture(autouse=True)
def _on_the_driver(driver, monkeypatch):
    monkeypatch.setenv("DMLGPU_DEVICE", str(driver.index))


def refuses(message, call, *arguments, error=DescriptorError, **options):
    with pytest.raises(error, match=f"(?s)^out: .*{message}"):
        call(*arguments, **options)


@pytest.mark.parametrize("name", CALLS)
def test_results_are_written_to_arrays(name):
    call = CALLS[name]
    expected = call(X)
    wide = np.zeros((*expected.shape, 2), expected.dtype)
    for out in (np.empty(expected.shape, expected.dtype), wide[..., 1]):
        assert call(X, out=out) is out
        np.testing.assert_array_equal(out, expected, strict=expected.shape != ())
    assert not wide[..., 0].any()
    message = rf"ndarray of int16 and .*; allowed is an array of \w+{TYPED.get(name, '')}$"
    refuses(message, call, X, out=out.astype(np.int16), error=TypeError)
    refuses(r"the shape \(.*5,?\) is wrong; expected ", call, X, out=np.empty((*expected.shape, 5), expected.dtype))
    out = np.empty(expected.shape, expected.dtype)
    out.flags.writeable = False
    refuses("is read-only; allowed is an array that can be written$", call, X, out=out)


@pytest.mark.parametrize("name", CALLS)
def test_results_are_written_to_device_tensors(name, device):
    call = CALLS[name]
    expected, x = call(X), device.tensor(X)
    out = device.tensor(np.full(expected.shape, 77, expected.dtype))
    assert call(x, out=out) is out
    np.testing.assert_array_equal(out.numpy(), expected, strict=expected.shape != ())
    allowed = r"allowed is a packed device tensor of \w+"
    refuses(f"ndarray of .*{allowed}$", call, x, out=np.empty(expected.shape, expected.dtype), error=TypeError)
    message = rf"DeviceTensor of int16 .*; {allowed}{TYPED.get(name, '')}$"
    refuses(message, call, x, out=device.tensor(expected.astype(np.int16)), error=TypeError)
    refuses("the shape", call, x, out=device.tensor(np.zeros((*expected.shape, 5), expected.dtype)))
    refuses(r"DeviceTensor of .*allowed is an array of \w+$", call, X, out=out, error=TypeError)


@pytest.mark.parametrize("out", [[0, 0], (np.zeros(6, np.int64),), 3, {}], ids=repr)
def test_what_is_no_array_is_refused(out):
    error = DescriptorError if isinstance(out, (tuple, list)) else TypeError
    refuses("is not allowed; allowed is an array", dmlgpu.argmax, X[0], 1, out=out, error=error)


def test_a_path_is_for_chunks():
    refuses(
        r"'x\.npy' is not allowed; paths are for dmlgpu\.chunked\(x\)$", dmlgpu.argmax, X, out="x.npy", error=TypeError
    )


def test_arrays_may_be_scalars_bools_or_fields():
    total, none, flags = np.empty((), np.float32), np.full((6, 8), 9, np.float32), np.empty((2, 8), bool)
    assert dmlgpu.sum(X, out=total) is total
    assert total == X.sum()
    assert not dmlgpu.sum(X[:0], 0, out=none).any()
    np.testing.assert_array_equal(dmlgpu.max(X > 8, 1, out=flags), (X > 8).any(1))
    pairs = np.zeros((2, 8), [("value", "f4"), ("index", "i8")])  # side by side, and apart
    dmlgpu.max(X, 1, output_indices=True, out=(pairs["value"], pairs["index"]))
    np.testing.assert_array_equal(pairs["value"], X.max(1))
    np.testing.assert_array_equal(pairs["index"], X.argmax(1))


def test_arrays_that_cannot_be_written_are_refused():
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


@by_pair
def test_two_results_are_written_to_two_arrays(call):
    pair = call(X)
    values, indices = outs = tuple(np.zeros((*result.shape, 2), result.dtype)[..., 1] for result in pair)
    assert call(X, out=outs) is outs
    for out, expected in zip(outs, pair, strict=True):
        np.testing.assert_array_equal(out, expected)
    for wrong in (values, (values,), (*outs, values), np.stack([values, values])):
        refuses("is not allowed; allowed is a tuple, for each of 2 results an array$", call, X, out=wrong)
    for wrong, message in (
        ((values, None), "None is not allowed; .* array of int64$"),
        ((indices, values), "array of float32$"),
        ((values, indices.astype(np.int32)), "array of int64; for another type give indices_data_type=$"),
    ):
        refuses(message, call, X, out=wrong, error=TypeError)
    refuses(r"the shape \(.*, 1\) is wrong; expected", call, X, out=(values, indices[..., None]))
    for same in indices, indices[::-1]:
        refuses("lies in another result", call, X.astype(np.int64), out=(indices, same))


def test_top_k_may_overwrite_its_input():
    x, indices = X.astype(np.int64), np.empty(X.shape, np.int64)
    expected = dmlgpu.top_k(x, 6, axis=1)
    dmlgpu.top_k(x, 6, axis=1, out=(x, indices))
    np.testing.assert_array_equal((x, indices), expected)


@by_pair
def test_two_results_are_written_to_two_device_tensors(call, device):
    x, pair = device.tensor(X), call(X)
    values, indices = outs = tuple(device.tensor(np.zeros_like(result)) for result in pair)
    assert [*map(id, call(x, out=outs))] == [*map(id, outs)]
    for out, expected in zip(outs, pair, strict=True):
        np.testing.assert_array_equal(out.numpy(), expected)
    refuses("allowed is a tuple, for each of 2 results a packed device tensor$", call, x, out=values)
    refuses("device tensor of float32$", call, x, out=(indices, values), error=TypeError)
    with pytest.raises(DescriptorError, match=r"shares memory with .*pass separate memory$"):
        call(device.tensor(X.astype(np.int64)), out=(indices, indices))


def test_device_tensors_that_cannot_be_written_are_refused(device):
    x = device.tensor(X)
    gaps = device.tensor(X[0], dmlgpu.TensorDesc(dmlgpu.DataType.FLOAT32, (6, 8), (16, 2)))
    refuses(r"\(6, 8\), .* is not packed; allowed is a packed device tensor$", dmlgpu.sum, x, 0, out=gaps)
    with pytest.raises(DescriptorError, match=r"shares memory with input_tensor; pass separate memory$"):
        dmlgpu.max_pooling(x, 1, out=x)
    np.testing.assert_array_equal(x.numpy(), X)
    with dmlgpu.Device(device.info.index) as other, pytest.raises(dmlgpu.DeviceError, match="is on another device"):
        dmlgpu.max(x, 0, out=other.tensor(X[0]))
