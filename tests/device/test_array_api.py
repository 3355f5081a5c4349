"""Reductions with the signatures of the array API standard."""

import inspect
import itertools

import numpy as np
import pytest

import dmlgpu
from dmlgpu.descriptors.reduction import ShortSumOperatorDesc
from dmlgpu.interop import array_api as xp

SIGNED = ["int8", "int16", "int32", "int64"]
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]
NAMES = ["argmax", "argmin", "max", "min", "sum", "prod", "mean"]


@pytest.fixture(autouse=True)
def _on_the_driver(driver, monkeypatch):
    monkeypatch.setenv("DMLGPU_DEVICE", str(driver.index))


def values(dtype, *sizes):
    """Small numbers, each several times; their sums and products need more than the small types."""
    return np.random.default_rng(3).integers(0, 2 if dtype == "bool" else 90, sizes).astype(dtype)


def same(got, expected):
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    assert type(got) is type(expected)
    np.testing.assert_array_equal(got, expected)


def test_names_and_signatures():
    assert sorted(xp.__all__) == sorted([*NAMES, "cumulative_prod", "cumulative_sum", "top_k"])
    for name in NAMES:
        function = getattr(xp, name)
        assert function is getattr(dmlgpu, name)
        has = {each.name: each.default for each in inspect.signature(function).parameters.values()}
        assert has["axis"] is None
        assert has["keepdims"] is False
        assert has.get("dtype", 0) is None or name not in ("sum", "prod")


def test_top_k_has_the_standard_s_arguments_and_numpy_s():
    assert xp.top_k is dmlgpu.top_k
    has = {each.name: each.default for each in inspect.signature(xp.top_k).parameters.values()}
    assert [*has][:2] == ["x", "k"]
    # `mode` is None, that is, "largest", as `largest` says so, too.
    assert (has["axis"], has["largest"], has["sorted"], has["mode"]) == (-1, True, True, None)
    values, indices = xp.top_k(np.float32([[3, 1], [2, 5]]), 1, axis=0, mode="smallest")
    same(values, np.float32([[2, 1]]))
    same(indices, np.array([[1, 0]]))


@pytest.mark.parametrize("dtype", [*SIGNED, *UNSIGNED, "bool", "float32"])
@pytest.mark.parametrize(("name", "numpy"), [("cumulative_sum", np.cumsum), ("cumulative_prod", np.cumprod)])
def test_cumulative_sums_and_products_are_those_of_numpy(name, numpy, dtype):
    x, function = (values("int8", 3, 4, 4) % 10).astype(dtype), getattr(xp, name)
    assert function is getattr(dmlgpu, name)
    for axis in 0, 1, -1:
        same(function(x, axis=axis), numpy(x, axis))
        with_first = np.insert(numpy(x, axis), 0, name == "cumulative_prod", axis)
        same(function(x, axis=axis, include_initial=True), with_first)
        descending = np.flip(numpy(np.flip(x, axis), axis), axis)
        same(function(x, axis=axis, axis_direction="decreasing"), descending)
        with_last = np.insert(descending, x.shape[axis], name == "cumulative_prod", axis)
        same(function(x, axis=axis, axis_direction="decreasing", include_initial=True), with_last)
    same(function(x[0, 0]), numpy(x[0, 0]))
    same(function(x[0, 0, 0]), numpy(x[0, 0, 0]))
    same(function(x[0, 0, 0], include_initial=True), np.insert(numpy(x[0, 0, 0]), 0, name == "cumulative_prod"))
    same(function(x[:0], axis=0, include_initial=True), np.insert(numpy(x[:0], 0), 0, name == "cumulative_prod", 0))
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
    for axis, keepdims in itertools.product((None, 1, (0, 2), (-1,), ()), (False, True)):
        got = getattr(xp, name)(x, axis=axis, keepdims=keepdims)
        exact = getattr(np, name)(x.astype(object), axis=axis, keepdims=keepdims)
        wide = {"i": "int64", "u": "uint64"}.get(x.dtype.kind, dtype)
        assert got.dtype == wide
        if dtype == "float32":
            np.testing.assert_allclose(got, np.asarray(exact, wide), rtol=1e-6)
        else:
            np.testing.assert_array_equal(got, np.asarray(np.asarray(exact, object) % 2**64, "uint64").astype(wide))


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
def test_sums_of_short_integers_as_they_are(monkeypatch, dtype, most):
    """As long as 32 bits hold them; a row that is not contiguous cannot be summed in parts."""
    computed = []
    planned = dmlgpu.Device.planned
    monkeypatch.setattr(
        dmlgpu.Device, "planned", lambda self, desc, **flags: computed.append(desc) or planned(self, desc, **flags)
    )
    count = (2**32 if most > 0 else 2**31) // (most + 1 if most > 0 else -most)
    for size, short in ((count, True), (count + 1, False)):
        x = np.broadcast_to(np.full((), most, dtype), (2, size) if size < 1 << 20 else (size,))
        same(xp.sum(x, axis=-1), np.sum(x, axis=-1))
        assert isinstance(computed.pop(), ShortSumOperatorDesc) == short


def test_integers_wrap_in_the_wanted_type():
    x = np.full(300, 255, np.uint16)
    same(xp.sum(x, dtype=np.uint8), np.sum(x, dtype=np.uint8))
    same(xp.sum(x, dtype=np.int8), np.sum(x.astype(np.int8), dtype=np.int8))
    same(xp.prod(x, dtype=np.int32), np.prod(x, dtype=np.int32))
    same(xp.prod(x, dtype=">i4"), np.prod(x, dtype=np.int32))
    same(xp.prod(x), np.prod(x))


@pytest.mark.parametrize("axis", [None, 1, (0, 2), ()])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_means(dtype, axis):
    x = values(dtype, 2, 4, 4)
    same(xp.mean(x, axis=axis), np.mean(x, axis=axis))  # exact: of integers over powers of two


@pytest.mark.parametrize(("axis", "shape"), [(None, ()), (0, (4,)), (1, (0,)), ((0, 1), ()), ((), (0, 4))])
@pytest.mark.parametrize("keepdims", [False, True])
def test_sums_of_nothing(axis, shape, keepdims):
    x = np.empty((0, 4), np.float32)
    for name, value in (("sum", 0), ("prod", 1), ("mean", np.nan)):
        got = getattr(xp, name)(x, axis=axis, keepdims=keepdims)
        assert got.dtype == np.float32
        assert got.shape == (shape if not keepdims else np.any(x, axis=axis, keepdims=True).shape)
        np.testing.assert_array_equal(got, np.full(got.shape, value, np.float32))
    assert type(xp.sum(np.empty(0, np.int8))) is np.int64
    assert xp.sum(np.empty(0, np.int8), dtype=np.uint8).dtype == np.uint8


@pytest.mark.parametrize("name", ["argmax", "argmin", "max", "min"])
def test_selections_of_nothing(name):
    function = getattr(xp, name)
    with pytest.raises(ValueError, match="are empty"):
        function(np.empty((0, 4), np.float32))
    assert function(np.empty((0, 4), np.float32), axis=1).shape == (0,)


def test_over_no_axes_elements_stay():
    x = values("int16", 2, 3)
    same(xp.max(x, axis=()), x)
    same(xp.sum(x, axis=()), x.astype(np.int64))
    same(xp.min(np.float32(3), axis=()), np.float32(3))
    same(xp.max(np.empty((0, 2), np.int8), axis=()), np.empty((0, 2), np.int8))


@pytest.mark.parametrize(
    ("name", "x", "options", "message"),
    [
        ("sum", "float64", {}, r"^sum: float64 is not supported; allowed are .*8; give dtype=.float32., which rounds$"),
        ("prod", "int8", {"dtype": "float64"}, r"^prod: dtype=float64 of int8 is not supported; .*8$"),
        ("prod", "int8", {"dtype": bool}, r"^prod: dtype=bool of int8 is not supported"),
        ("sum", "complex64", {"dtype": "float32"}, r"^sum: dtype=float32 of complex64 is not supported"),
        ("mean", "float64", {}, r'^mean: float64 is not supported; .*t16; give dtype="float32", which rounds$'),
        ("mean", "int32", {}, r'^mean: int32 is not supported; .*; give dtype="float32", which rounds$'),
        ("mean", "uint8", {}, r'^mean: uint8 is not supported; .*; give dtype="float32"$'),
        ("max", "complex64", {}, r"^max: complex64 is not supported; allowed are float32.*float64.* bool$"),
    ],
)
def test_other_types_are_refused(name, x, options, message):
    with pytest.raises(TypeError, match=message):
        getattr(xp, name)(np.ones(3, x), **options)
    with pytest.raises(TypeError, match=message):
        getattr(xp, name)(np.ones(0, x), **options)


def test_memory_mapped_file(tmp_path):
    written = np.memmap(tmp_path / "x", np.float32, "w+", shape=(7, 9))
    written[:] = values("float32", 7, 9)
    written.flush()
    x = np.memmap(tmp_path / "x", np.float32, "r", shape=(7, 9))
    same(xp.argmax(x, axis=1), np.asarray(x).argmax(axis=1))
    assert xp.max(x) == written.max()
    assert type(xp.max(x, axis=0)) is np.ndarray


def test_device_tensors_are_not_converted(device):
    x = values("int32", 4, 5)
    t = device.tensor(x)
    with pytest.raises(TypeError, match=r"^sum: a device tensor of TensorDesc.* is not converted to int64"):
        xp.sum(t)
    same(xp.sum(t, axis=0, dtype=np.int32).numpy(), x.sum(axis=0, dtype=np.int32))
    same(xp.sum(device.tensor(x.astype(np.int64)), axis=0).numpy(), x.sum(axis=0, dtype=np.int64))
    # Neither x nor the result of 64 bits becomes a small type on the device.
    for array, wanted in ((x.astype(np.int64), np.int8), (x.astype(np.int8), np.int8)):
        with pytest.raises(TypeError, match=r"pass x\.numpy"):
            xp.sum(device.tensor(array), dtype=wanted)
