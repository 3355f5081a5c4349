"""Reductions with the signatures of the array API standard."""

import inspect
import itertools

import numpy as np
import pytest

import dmlgpu
from dmlgpu.descriptors.reduction import ShortSumOperatorDesc
from dmlgpu.interop import array_api as xp
from tests.support.errors import refuses

SIGNED = ["int8", "int16", "int32", "int64"]
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]
NAMES = ["argmax", "argmin", "max", "min", "sum", "prod", "mean"]


@pytest.fixture(autouse=True)
def _on_the_driver(driver, monkeypatch):
    monkeypatch.setenv("DMLGPU_DEVICE", str(driver.index))


def values(dtype, *sizes):
    """Small numbers, each several times, whose sums and products exceed the small types."""
    return np.random.default_rng(3).integers(0, 2 if dtype == "bool" else 90, sizes).astype(dtype)


def same(result, expected):
    assert type(result) is type(expected)
    np.testing.assert_array_equal(result, expected, strict=True)


def test_functions_have_the_standard_s_names_and_defaults():
    assert sorted(xp.__all__) == sorted([*NAMES, "cumulative_prod", "cumulative_sum", "top_k"])
    assert all(getattr(xp, name) is getattr(dmlgpu, name) for name in xp.__all__)
    for name in NAMES:
        defaults = {p.name: p.default for p in inspect.signature(getattr(xp, name)).parameters.values()}
        assert (defaults["axis"], defaults["keepdims"]) == (None, False)
        assert defaults.get("dtype", 0) is None or name not in ("sum", "prod")


def test_top_k_has_the_standard_s_arguments_and_numpy_s():
    defaults = {p.name: p.default for p in inspect.signature(xp.top_k).parameters.values()}
    assert [*defaults][:2] == ["x", "k"]
    # `mode` is None, that is, "largest", like `largest`.
    assert [defaults[name] for name in ("axis", "largest", "sorted", "mode")] == [-1, True, True, None]
    values, indices = xp.top_k(np.float32([[3, 1], [2, 5]]), 1, axis=0, mode="smallest")
    same(values, np.float32([[2, 1]]))
    same(indices, np.array([[1, 0]]))


@pytest.mark.parametrize("dtype", [*SIGNED, *UNSIGNED, "bool", "float32"])
@pytest.mark.parametrize(("name", "numpy"), [("cumulative_sum", np.cumsum), ("cumulative_prod", np.cumprod)])
def test_cumulative_sums_and_products_are_those_of_numpy(name, numpy, dtype):
    x, function, first = (values("int8", 3, 4, 4) % 10).astype(dtype), getattr(xp, name), name == "cumulative_prod"
    for axis in 0, 1, -1:
        descending = np.flip(numpy(np.flip(x, axis), axis), axis)
        for direction, expected, start in ("increasing", numpy(x, axis), 0), ("decreasing", descending, x.shape[axis]):
            same(function(x, axis=axis, axis_direction=direction), expected)
            with_initial = np.insert(expected, start, first, axis)
            same(function(x, axis=axis, axis_direction=direction, include_initial=True), with_initial)
    for line in x[0, 0], x[0, 0, 0]:
        same(function(line), numpy(line))
    same(function(x[0, 0, 0], include_initial=True), np.insert(numpy(x[0, 0, 0]), 0, first))
    same(function(x[:0], axis=0, include_initial=True), np.insert(numpy(x[:0], 0), 0, first, 0))
    same(function(x[:, :0], axis=0), numpy(x[:, :0], 0))
    if dtype != "bool":
        same(function(x, axis=1, dtype=dtype), numpy(x, 1, dtype))


@pytest.mark.parametrize("dtype", [*SIGNED, *UNSIGNED, "bool", "float16", "float32", "float64"])
@pytest.mark.parametrize("name", ["argmax", "argmin", "max", "min"])
def test_selections_are_those_of_numpy(name, dtype):
    x = values(dtype, 3, 5, 4)
    for axis, keepdims in itertools.product((None, 0, 2, -2), (False, True)):
        same(getattr(xp, name)(x, axis=axis, keepdims=keepdims), getattr(np, name)(x, axis=axis, keepdims=keepdims))


@pytest.mark.parametrize("dtype", [*SIGNED, *UNSIGNED, "float32"])
@pytest.mark.parametrize("name", ["sum", "prod"])
def test_sums_of_integers_widen(name, dtype):
    x = values(dtype, 2, 3, 2) - np.array(2, dtype)
    x.flat[:3] = 100
    wide = {"i": "int64", "u": "uint64"}.get(x.dtype.kind, dtype)
    for axis, keepdims in itertools.product((None, 1, (0, 2), (-1,), ()), (False, True)):
        result = getattr(xp, name)(x, axis=axis, keepdims=keepdims)
        exact = getattr(np, name)(x.astype(object), axis=axis, keepdims=keepdims)
        assert result.dtype == wide
        if dtype == "float32":
            np.testing.assert_allclose(result, np.asarray(exact, wide), rtol=1e-6)
        else:
            modulo = np.asarray(np.asarray(exact, object) % 2**64, "uint64")
            np.testing.assert_array_equal(result, modulo.astype(wide))


@pytest.mark.parametrize("source", ["int8", "uint32", "uint64", "float64", "bool"])
@pytest.mark.parametrize("name", ["sum", "prod"])
def test_dtype_is_the_type_of_the_result(name, source):
    x = (values(source, 15) % 2 + 1).astype(source)  # their product is more than 8 bits hold, and exact in floats
    for dtype in (*SIGNED, *UNSIGNED, "float16", "float32"):
        same(getattr(xp, name)(x, dtype=dtype), getattr(np, name)(x.astype(dtype), dtype=dtype))


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), [0, 1], ()], ids=str)
def test_sums_and_products_of_bool_count(axis):
    """Views of bytes as bool, too: any byte but 0 is True."""
    x = np.random.default_rng(3).choice([0, 1, 2, 255], (5, 6, 7)).astype(np.uint8).view(bool)
    numpys = tuple(axis) if isinstance(axis, list) else axis
    for name in ("sum", "prod"):
        same(getattr(xp, name)(x, axis=axis), getattr(np, name)(x, axis=numpys))
    same(xp.sum(np.zeros((0, 3), bool), axis=0), np.zeros(3, np.int64))


@pytest.mark.parametrize(("dtype", "most"), [("uint8", 255), ("int8", -128), ("uint16", 65535), ("int16", -32768)])
def test_short_integers_are_not_widened_while_32_bits_hold_their_sum(monkeypatch, dtype, most):
    """A row that is not contiguous cannot be summed in parts."""
    planned, kinds = dmlgpu.Device.planned, []
    monkeypatch.setattr(
        dmlgpu.Device, "planned", lambda self, desc, **flags: kinds.append(type(desc)) or planned(self, desc, **flags)
    )
    count = (2**32 if most > 0 else 2**31) // (most + 1 if most > 0 else -most)
    for size, is_short in ((count, True), (count + 1, False)):
        x = np.broadcast_to(np.full((), most, dtype), (2, size) if size < 1 << 20 else (size,))
        same(xp.sum(x, axis=-1), np.sum(x, axis=-1))
        assert (kinds.pop() is ShortSumOperatorDesc) == is_short


def test_integers_wrap_in_the_wanted_type():
    x = np.full(300, 255, np.uint16)
    same(xp.sum(x, dtype=np.uint8), np.sum(x, dtype=np.uint8))
    same(xp.sum(x, dtype=np.int8), np.sum(x.astype(np.int8), dtype=np.int8))
    same(xp.prod(x, dtype=np.int32), np.prod(x, dtype=np.int32))
    same(xp.prod(x, dtype=">i4"), np.prod(x, dtype=np.int32))
    same(xp.prod(x), np.prod(x))


@pytest.mark.parametrize("axis", [None, 1, (0, 2), ()])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_means_are_those_of_numpy(dtype, axis):
    x = values(dtype, 2, 4, 4)
    same(xp.mean(x, axis=axis), np.mean(x, axis=axis))  # exact: of integers over powers of two


@pytest.mark.parametrize(("axis", "shape"), [(None, ()), (0, (4,)), (1, (0,)), ((0, 1), ()), ((), (0, 4))])
@pytest.mark.parametrize("keepdims", [False, True])
def test_empty_sums_products_and_means_are_those_of_numpy(axis, shape, keepdims):
    x = np.empty((0, 4), np.float32)
    shape = np.any(x, axis=axis, keepdims=True).shape if keepdims else shape
    for name, value in (("sum", 0), ("prod", 1), ("mean", np.nan)):
        result = getattr(xp, name)(x, axis=axis, keepdims=keepdims)
        np.testing.assert_array_equal(result, np.full(shape, value, np.float32), strict=True)
    assert type(xp.sum(np.empty(0, np.int8))) is np.int64
    assert xp.sum(np.empty(0, np.int8), dtype=np.uint8).dtype == np.uint8


@pytest.mark.parametrize("name", ["argmax", "argmin", "max", "min"])
def test_selections_of_no_elements_are_refused(name):
    refuses("are empty", getattr(xp, name), np.empty((0, 4), np.float32), error=ValueError)
    assert getattr(xp, name)(np.empty((0, 4), np.float32), axis=1).shape == (0,)


def test_over_no_axes_elements_stay():
    x = values("int16", 2, 3)
    same(xp.max(x, axis=()), x)
    same(xp.sum(x, axis=()), x.astype(np.int64))
    same(xp.min(np.float32(3), axis=()), np.float32(3))
    same(xp.max(np.empty((0, 2), np.int8), axis=()), np.empty((0, 2), np.int8))


@pytest.mark.parametrize(
    ("name", "dtype", "options", "message"),
    [
        ("sum", "float64", {}, "float64 is not supported; allowed are .*8; give dtype=.float32., which rounds$"),
        ("prod", "int8", {"dtype": "float64"}, "dtype=float64 of int8 is not supported; .*8$"),
        ("prod", "int8", {"dtype": bool}, "dtype=bool of int8 is not supported"),
        ("sum", "complex64", {"dtype": "float32"}, "dtype=float32 of complex64 is not supported"),
        ("mean", "float64", {}, 'float64 is not supported; .*t16; give dtype="float32", which rounds$'),
        ("mean", "int32", {}, 'int32 is not supported; .*; give dtype="float32", which rounds$'),
        ("mean", "uint8", {}, 'uint8 is not supported; .*; give dtype="float32"$'),
        ("mean", "float32", {"dtype": "float64"}, "dtype=float64 of float32 is not supported; .* float32, float16$"),
        ("max", "complex64", {}, "complex64 is not supported; allowed are float32.*float64.* bool$"),
    ],
)
def test_other_types_are_refused(name, dtype, options, message):
    for size in 3, 0:
        refuses(f"^{name}: {message}", getattr(xp, name), np.ones(size, dtype), error=TypeError, **options)


def test_a_memory_mapped_file_is_an_array(tmp_path):
    expected = values("float32", 7, 9)
    expected.tofile(tmp_path / "x")
    x = np.memmap(tmp_path / "x", np.float32, "r", shape=(7, 9))
    same(xp.argmax(x, axis=1), expected.argmax(axis=1))
    same(xp.max(x, axis=0), expected.max(axis=0))


def test_device_tensors_are_not_converted(device):
    x = values("int32", 4, 5)
    refuses(
        r"^sum: a device tensor of TensorDesc.* is not converted to int64", xp.sum, device.tensor(x), error=TypeError
    )
    for dtype in np.int32, np.int64:
        t = device.tensor(x.astype(dtype))
        same(xp.sum(t, axis=0, dtype=dtype).numpy(), x.sum(axis=0, dtype=dtype))
    # Neither x nor the result of 64 bits becomes a small type on the device.
    for dtype in np.int64, np.int8:
        refuses(r"pass x\.numpy", xp.sum, device.tensor(x.astype(dtype)), error=TypeError, dtype=np.int8)
