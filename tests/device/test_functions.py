"""argmax, argmin and max_pooling: what they take and give back."""

import array
import collections
import itertools
import typing
import warnings
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

import dmlgpu
from dmlgpu import DataType, DescriptorError, ReduceFunction, argmax, argmin, max_pooling, reduce, reference
from dmlgpu.descriptors.tensor import bits
from dmlgpu.testing.cases import INDEX_TYPES, INT64, UINT64
from tests.support.errors import refuses
from tests.support.processes import output_of

ROWS = [[1, 2, 3], [3, 0, 4], [2, 5, 2]]
X = np.array(ROWS, np.float32)
IMAGE = np.random.default_rng(0).permutation(2 * 3 * 7 * 9).reshape(2, 3, 7, 9).astype(np.float32)


class Exported:
    """Offers X by DLPack, and in no other way."""

    def __dlpack__(self, **arguments):
        return X.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return X.__dlpack_device__()


VIEWABLE = {
    "ndarray": X,
    "subclass": X.view(type("Plain", (np.ndarray,), {})),
    "list": ROWS,
    "tuple": tuple(map(tuple, ROWS)),
    "list of arrays": list(X),
    "memoryview": memoryview(X),
    "list of Python's arrays": [array.array("f", row) for row in ROWS],
    # Objects of other libraries, each with one way to their elements.
    "array": SimpleNamespace(__array__=lambda dtype=None, copy=None: X),
    "array interface": SimpleNamespace(__array_interface__=X.__array_interface__),
    "array struct": SimpleNamespace(__array_struct__=X.__array_struct__),
    "dlpack": Exported(),
}


class Quantity(np.ndarray):
    """An array with units: its functions are its own."""

    def __array_ufunc__(self, *arguments, **options):
        raise NotImplementedError


MASKED = np.ma.masked_array(X, mask=X > 4)
MORE_THAN_ELEMENTS = {
    "masked": MASKED,
    "nothing masked": np.ma.masked_array(X),
    "list of masked": [MASKED, MASKED],
    "tuple in list": [(MASKED[0], MASKED[1])],
    "deque": collections.deque([MASKED, MASKED]),
    "deque in list": [collections.deque([MASKED, MASKED])],
    # As a variable of netCDF4.
    "gives masked": SimpleNamespace(__array__=lambda dtype=None, copy=None: MASKED),
    "list of what gives masked": [SimpleNamespace(__array__=lambda dtype=None, copy=None: MASKED)],
    "list of units": [X.view(Quantity)],
    "functions of its own": X.view(type("Own", (np.ndarray,), {"__array_function__": lambda *arguments: None})),
    "units": X.view(Quantity),
    "matrix": X.view(np.matrix),
}


def test_a_first_call_does_not_wait_for_masked_arrays(driver):
    """NumPy 2 takes 50 ms to load them."""
    program = """
import sys
import numpy as np
loaded = "numpy.ma" in sys.modules
import dmlgpu
dmlgpu.argmax(np.ones((2, 3), np.float32), device=int(sys.argv[1]))
print(loaded == ("numpy.ma" in sys.modules))
"""
    assert output_of(program, str(driver.index)) == "True\n"


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (argmax, "argmax.x"),
        (argmin, "argmin.x"),
        (partial(max_pooling, window_size=2), "max_pooling.x"),
        (dmlgpu.TensorDesc.of, "TensorDesc.of"),
    ],
    ids=["argmax", "argmin", "max_pooling", "of"],
)
@pytest.mark.parametrize("x", MORE_THAN_ELEMENTS.values(), ids=MORE_THAN_ELEMENTS)
def test_refuses_arrays_that_are_more_than_their_elements(call, field, x):
    says = "a masked array; .*has no mask: fill it|an array of type (?!.*fill it)"
    refuses(rf"^{field}: ({says}).*; pass np\.asarray\(x\) for its elements alone$", call, x)


def test_operators_and_tensors_refuse_masks(device):
    op = device.compile(dmlgpu.ArgmaxOperatorDesc.of(X, (1,)))
    for call in op, device.tensor, lambda x: dmlgpu.verify(op.desc, x, device=device), partial(reference, op.desc):
        refuses("has no mask", call, MASKED)
    with pytest.raises(DescriptorError, match="has no mask"):
        device.tensor_from_bytes(np.ma.masked_array(X.view(np.uint8)).reshape(-1), dmlgpu.TensorDesc.of(X))


@pytest.mark.parametrize("x", VIEWABLE.values(), ids=VIEWABLE)
def test_takes_anything_that_numpy_can_view(device, x):
    assert argmax(x, 1, device=device).tolist() == [2, 2, 1]
    assert device.tensor(x).numpy().tolist() == ROWS


@pytest.mark.parametrize(
    ("axis", "expected"),
    [
        (None, [[7]]),
        (0, [[1, 2, 1]]),
        (1, [[2], [2], [1]]),
        (np.int64(1), [[2], [2], [1]]),
        ((0,), [[1, 2, 1]]),
        ([0, 1], [[7]]),
        ((1, 0), [[7]]),
        ({0, 1}, [[7]]),
        (range(2), [[7]]),
        (np.array([0, 1]), [[7]]),
        (np.array([1], np.uint8), [[2], [2], [1]]),
    ],
    ids=str,
)
def test_axis_and_keepdims(device, axis, expected):
    assert argmax(X, axis, keepdims=True, device=device).tolist() == expected
    assert argmax(X, axis=axis, device=device).tolist() == np.squeeze(expected).tolist()


def test_names_and_numbers_are_members(device):
    ties, rows = np.float32([3, 1, 3]), np.float32([[1, 2], [3, 4]])
    for decreasing in "decreasing", "DECREASING", 1:
        assert argmax(ties, axis_direction=decreasing) == 2
    assert argmax(ties, axis_direction=0) == 0
    assert reduce(rows, "sum_square", 1, device=device).tolist() == [5, 25]
    assert argmax(ties, dtype="uint32").dtype == np.uint32
    desc = dmlgpu.ReduceOperatorDesc.of("max", dmlgpu.TensorDesc("float32", (2, 2)), (0,))
    assert desc.function is ReduceFunction.MAX
    assert desc.input_tensor.data_type is DataType.FLOAT32


NOTHING_REDUCED = {
    "rows": X,
    "columns": np.asfortranarray(np.arange(24, dtype=np.float16).reshape(2, 3, 4)),
    "gaps": np.arange(24, dtype=np.int32).reshape(2, 3, 4)[:, ::2],
    "no dimensions": np.float32(-5),
    "no elements": np.zeros((0, 3), np.float32),
    "eight dimensions": np.full((1,) * 8, -3, np.int64),
}


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("x", NOTHING_REDUCED.values(), ids=NOTHING_REDUCED)
def test_over_no_axes_each_element_is_an_output(device, x, keepdims):
    for axis in (), []:
        got = reduce(x, "l1", axis, keepdims=keepdims, device=device)
        assert (got.shape, got.dtype) == (np.shape(x), x.dtype)
        np.testing.assert_array_equal(got, np.abs(x))
    assert reduce(device.tensor(X), "sum_square", ()).numpy().tolist() == (X * X).tolist()


@pytest.mark.parametrize("data_type", INDEX_TYPES, ids=lambda data_type: data_type.name.lower())
def test_types_of_indices(device, data_type):
    _, expected = max_pooling(IMAGE, (2, 3), output_indices=True, device=device)
    assert argmax(X, device=device).dtype == argmin(X, device=device).dtype == expected.dtype == np.int64
    for dtype in data_type, data_type.numpy, data_type.numpy.name, data_type.numpy.type:
        result = argmax(X, 0, dtype=dtype, device=device)
        assert (result.dtype, result.tolist()) == (data_type.numpy, [1, 2, 1])
        is_top_k(dmlgpu.top_k(X, 2, axis=0, indices_data_type=dtype, device=device), X, 2, 0, dtype=data_type.numpy)
        if data_type is not DataType.INT32:
            indices = max_pooling(IMAGE, (2, 3), output_indices=True, indices_data_type=dtype, device=device)[1]
            assert (indices.dtype, indices.tolist()) == (data_type.numpy, expected.tolist())


def test_results_are_new_arrays_and_x_stays(device):
    x = IMAGE.copy()
    x.setflags(write=False)
    for result in (argmax(x, 0, device=device), *max_pooling(x, (2, 2), output_indices=True, device=device)):
        assert result.flags.c_contiguous
        result[...] = 0
    assert np.array_equal(x, IMAGE)


# max_pooling


def windows(x, size, strides=(1, 1), dilations=(1, 1)):
    """The elements of every window, along a last axis."""
    extent = [1 + (n - 1) * d for n, d in zip(size, dilations, strict=True)]
    view = np.lib.stride_tricks.sliding_window_view(x, extent, axis=(2, 3))
    view = view[:, :, :: strides[0], :: strides[1], :: dilations[0], :: dilations[1]]
    return view.reshape(*view.shape[:4], -1)


def padded(start, end):
    """IMAGE with padding before and after its rows and columns."""
    return np.pad(IMAGE, ((0, 0), (0, 0), *zip(start, end, strict=True)), constant_values=-np.inf)


@pytest.mark.parametrize(
    ("arguments", "taken"),
    [
        ({"window_size": (2, 3)}, windows(IMAGE, (2, 3))),
        ({"window_size": (2, 3), "strides": (3, 2), "dilations": [2, 1]}, windows(IMAGE, (2, 3), (3, 2), (2, 1))),
        (
            {"window_size": np.array([2, 4]), "padding": ([1, 0], np.array([2, 1]))},
            windows(padded((1, 2), (0, 1)), (2, 4)),
        ),
        # Sizes that are rounded up.
        *(
            (
                {"window_size": (2, 2), "strides": (2, 2), "output_sizes": sizes},
                windows(padded((0, 0), (1, 1)), (2, 2), (2, 2)),
            )
            for sizes in ((4, 5), (2, 3, 4, 5), np.array([4, 5]))
        ),
    ],
)
def test_values_and_indices(device, arguments, taken):
    alone = max_pooling(IMAGE, **arguments, device=device)
    values, indices = max_pooling(IMAGE, **arguments, output_indices=True, device=device)
    assert type(alone) is np.ndarray
    assert np.array_equal(alone, taken.max(-1))
    assert np.array_equal(values, taken.max(-1))
    assert np.array_equal(IMAGE.reshape(-1)[indices], values)


@pytest.mark.parametrize("wrong", [
    ("argmax", "axes", "axis, with keepdims=True for axes that stay; descriptors, such as ArgmaxOperatorDesc"),
    ("argmax", "dim", "axis$"),
    ("max_pooling", "dim", "window_size: windows lie over the last axes of x$"),
    ("roi_pooling", "output_size", "pooled_size$"), ("adaptive_max_pooling", "output_size", "output_sizes$"),
    ("reduce", "output_data_type", "dtype$"),
    ("sum", "keepdim", "keepdims$"), ("max_pooling", "stride", "strides$"),
    ("max_pooling", "kernel_size", "window_size$"),
    ("average_pooling", "ceil_mode", "output_sizes, with one window more"),
    ("lp_pooling", "start_padding", r"padding, with a pair \(before, after\)"), ("lp_pooling", "norm_type", "p$"),
    ("argmax", "indices_data_type", "dtype$"), ("max", "dtype", "indices_data_type$"),
    ("max", "return_index", "output_indices$"),
    ("top_k", "dim", "axis$"),
    ("top_k", "dtype", "indices_data_type$"),
    ("sum", "chunk_bytes", r"dmlgpu\.chunked\(x, chunk_bytes=\.\.\.\) for x$"),
], ids=lambda wrong: wrong[1])  # fmt: skip
def test_keywords_of_others_get_their_name_here(wrong):
    name, keyword, says = wrong
    with pytest.raises(TypeError, match=rf"^{name}\(\) has no argument '{keyword}'; write {says}"):
        getattr(dmlgpu, name)(IMAGE, **{keyword: 1})


def test_other_keywords_get_a_list():
    # `strides` of others is no argument here.
    for keyword in "foo", "stride", "kernel_size":
        with pytest.raises(
            TypeError, match=rf"^argmax\(\) has no argument '{keyword}'; its arguments are x, axis, keep"
        ):
            argmax(X, **{keyword: 1})
    refuses("missing 1 required positional argument: 'window_size'", max_pooling, IMAGE, error=TypeError)
    refuses(r"^argmax\(\) missing 1 required positional argument: 'x'", argmax, error=TypeError, axis=1)
    x, indices = np.array(ROWS, np.float32), np.zeros(np.shape(ROWS), np.int64)
    for arguments, options, says in (
        ((x,), {"output_sizes": 4}, "missing 1 required positional argument: 'indices'"),
        ((x, indices), {}, "missing 1 required positional argument: 'output_sizes'"),
        ((x, indices, 4, 4), {}, "takes 3 positional arguments but 4 were given; name the others: out, device"),
        ((x, indices), {"x": x, "output_sizes": 4}, "got multiple values for argument 'x'"),
    ):
        refuses(rf"^max_unpooling\(\) {says}$", dmlgpu.max_unpooling, *arguments, error=TypeError, **options)


def test_x_may_be_named_and_options_must_be(device):
    assert argmax(x=X, axis=1, device=device).tolist() == [2, 2, 1]
    assert dmlgpu.average_pooling_grad(gradient=X, input_sizes=3, window_size=1, device=device).tolist() == ROWS
    refuses("positional argument", argmax, X, 0, dmlgpu.AxisDirection.INCREASING, error=TypeError)
    names = r"2 positional arguments but 3 .*; name the others: .* strides, padding, dil"
    refuses(names, max_pooling, IMAGE, (2, 2), (1, 1), error=TypeError)


def test_an_image_with_channels_last_gets_a_warning(device):
    photograph = np.zeros((20, 30, 3), np.float32)
    says = r"^max_pooling: windows lie over the last two axes of \(20, 30, 3\); .* pass x\.transpose\(2, 0, 1\)$"
    for _ in range(2):  # also where the call is known
        with pytest.warns(UserWarning, match=says) as caught:
            max_pooling(photograph, 2, device=device)
        assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match=r"of \(2, 20, 30, 3\); .* pass x\.transpose\(0, 3, 1, 2\)$"):
        max_pooling(np.stack([photograph] * 2), 2, device=device)
    for x in photograph, photograph[..., :1]:  # fewer channels than the window has columns
        with pytest.raises(ValueError, match=rf"size\[1\]: 5 .* only {x.shape[2]}; .* pass x\.transpose\(2, 0, 1\)$"):
            max_pooling(x, 5)
    with pytest.raises(ValueError, match=r"size\[0\]: 99 with .* only 30$"):
        max_pooling(photograph, (99, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for x, window in ((photograph.transpose(2, 0, 1), 2), (photograph[:, :9], 2), (photograph, (2, 2, 2)), (X, 2),
                          (np.zeros((20, 30, 5), np.float32), 2), (np.zeros((3, 30, 4), np.float32), 2)):  # fmt: skip
            max_pooling(x, window, device=device)


# Empty arrays, as NumPy


@pytest.mark.parametrize(
    ("shape", "axes", "kept"),
    [((0, 3), 1, (0, 1)), ((2, 0), 0, (1, 0)), ((2, 0, 3), (0, 2), (1, 0, 1)), ((0, 2, 0), 1, (0, 1, 0))],
    ids=str,
)
def test_reductions_without_outputs_are_empty(shape, axes, kept):
    x = np.zeros(shape, np.float32)
    for function in argmax, argmin:
        empty = function(x, axes, keepdims=True, dtype=INT64)
        assert (empty.shape, empty.dtype) == (kept, np.int64)
        assert function(x, axes).shape == tuple(np.delete(kept, axes))


@pytest.mark.parametrize("shape", [(0, 3, 4, 5), (2, 0, 4, 5), (0, 0, 4, 5), (0, 1, 4, 5, 6), (0, 4, 5)], ids=str)
def test_pooling_of_no_planes_is_empty(shape):
    size = (2,) * max(len(shape) - 2, 2)
    expected = (*shape[: -len(size)], *(n - 1 for n in shape[-len(size) :]))
    values, indices = max_pooling(np.zeros(shape, np.float16), size, output_indices=True, indices_data_type=UINT64)
    assert (values.shape, values.dtype) == (expected, np.float16)
    assert (indices.shape, indices.dtype) == (expected, np.uint64)
    assert max_pooling(np.zeros(shape, np.float16), size).shape == expected
    assert max_pooling(np.zeros(shape, np.float16), size, output_sizes=expected).shape == expected


def test_empty_arrays_are_checked_as_others(device):
    refuses("FLOAT64 is not supported", dmlgpu.average_pooling, np.zeros((0, 3, 3)), 1)
    refuses("out of range", argmax, np.zeros((0, 3), np.float32), 2)
    refuses("sizes", device.tensor, np.zeros((0, 3), np.float32))
    refuses("nope", dmlgpu.sum, np.zeros(0, np.float32), device="nope", error=dmlgpu.DeviceError)


# bool

# Views of bytes as bool: NumPy takes any byte but 0 for True.
MASK = np.random.default_rng(3).choice([0, 0, 0, 1, 2, 255], (2, 3, 6, 7)).astype(np.uint8).view(bool)
KINDS = {argmax: dmlgpu.ArgmaxOperatorDesc, argmin: dmlgpu.ArgminOperatorDesc}
EXTREMES = {ReduceFunction.MAX: "max", ReduceFunction.MIN: "min"}


@pytest.mark.parametrize("axis", [None, 0, 3, (1, 2), (0, 1, 2, 3)], ids=str)
def test_reductions_of_bool_are_numpy_s(any_device, axis):
    mask = MASK if axis != 3 else MASK.transpose(0, 3, 2, 1)  # strided
    for function in argmax, argmin:
        if not np.ndim(axis):
            assert np.array_equal(function(mask, axis, device=any_device), getattr(np, function.__name__)(mask, axis))
            continue
        for direction in dmlgpu.AxisDirection:
            (expected,) = reference(KINDS[function].of(mask, axis, direction), mask)
            got = function(mask, axis, keepdims=True, axis_direction=direction, device=any_device)
            assert np.array_equal(got, expected)
    for function, name in EXTREMES.items():
        got, expected = reduce(mask, function, axis, device=any_device), getattr(mask, name)(axis)
        assert (type(got), got.dtype) == (type(expected), np.bool_)
        assert np.array_equal(np.asarray(got).view(np.uint8), np.asarray(expected).astype(np.uint8))


def test_bool_is_pooled_and_put_back(device):
    values, indices = max_pooling(MASK, 2, strides=2, output_indices=True, device=device)
    numbers = max_pooling(MASK.astype(np.uint8), 2, strides=2, output_indices=True, device=device)
    assert (values.dtype, indices.dtype) == (np.bool_, np.int64)
    assert np.array_equal(values.view(np.uint8), numbers[0])
    assert np.array_equal(indices, numbers[1])
    back = dmlgpu.max_unpooling(values, indices, MASK.shape, device=device)
    assert back.dtype == np.bool_
    assert np.array_equal(max_pooling(back, 2, strides=2, device=device), values)
    none = np.zeros((0, 3, 3), bool)
    values, indices = max_pooling(none, 2, output_indices=True)
    assert (values.dtype, indices.dtype) == (np.bool_, np.int64)
    assert reduce(none, "max", 1).dtype == reduce(np.array([True, False]), "max", device=device).dtype == np.bool_
    assert reduce(np.array([True, False]), "max", dtype=np.uint8, device=device).dtype == np.uint8
    assert argmax(none, 1).dtype == np.int64


def test_device_tensors_of_bool_are_uint8(device):
    t = device.tensor(MASK)
    assert (t.desc.data_type, t.dtype) == (DataType.UINT8, np.uint8)
    assert np.array_equal(t.numpy(), MASK.astype(np.uint8))
    assert np.max(t, 1).dtype == np.uint8
    assert np.array_equal(np.argmax(t, 3), MASK.argmax(3))
    # Equal elements in one place, whatever their bytes.
    desc = dmlgpu.TensorDesc(DataType.UINT8, (2, 3), (0, 1))
    x = np.array([[1, 2, 0], [2, 1, 0]], np.uint8).view(bool)
    assert device.tensor(x, desc).numpy().tolist() == [[1, 1, 0], [1, 1, 0]]


def test_operators_take_bool_for_uint8(device, monkeypatch):
    monkeypatch.setenv("DMLGPU_VERIFY", "1")
    desc = dmlgpu.ReduceOperatorDesc.of(ReduceFunction.MAX, MASK, (3,))
    assert desc.input_tensor.data_type is DataType.UINT8
    values = dmlgpu.verify(desc, MASK, device=device)
    assert (values.dtype, reference(desc, MASK)[0].dtype) == (np.uint8, np.uint8)
    assert np.array_equal(values, MASK.max(3, keepdims=True).astype(np.uint8))
    with pytest.raises(DescriptorError, match="the array is bool; the descriptor has INT8"):
        device.compile(dmlgpu.ArgmaxOperatorDesc.of(MASK.astype(np.int8)))(MASK)


# Bad arrays


def test_device_is_not_opened_for_bad_input(monkeypatch):
    monkeypatch.setattr(dmlgpu.sources, "open_device", lambda selector: pytest.fail("a device was opened"))
    refuses(rf"^argmax\.x: range\(0, {2**61}\) has more elements than fit in memory", argmax, range(2**61))
    for call in (partial(argmax, X, 5), partial(max_pooling, IMAGE, (9, 9))):
        with pytest.raises(DescriptorError):
            call()
    for padding in (({2, 1}, 0), (0, {1: 2}), (b"ab", 0), b"ab", {1, 2}):
        refuses(r"padding.*neither an integer nor", max_pooling, X, 2, padding=padding)


def test_functions_by_name_are_those_by_member(device):
    for name in ("argmax", "argmin", "max"):
        by_name, by_member = (
            reduce(X, function, 1, device=device) for function in (name, ReduceFunction[name.upper()])
        )
        assert by_name.dtype == by_member.dtype == (np.int64 if "arg" in name else np.float32)
    for none in ((), [], set(), range(0), np.zeros(0, int)):
        refuses("is empty", reduce, X, "argmax", none)
        assert np.array_equal(dmlgpu.sum(X, none, device=device), X)


def test_a_cached_call_has_no_type_of_another(device):
    noted = np.dtype(np.int32, metadata={"unit": "m"})
    assert dmlgpu.max(np.zeros((2, 41), noted), 1, device=device).dtype.metadata is None
    assert dmlgpu.max(np.zeros((2, 41), np.int32), 1, device=device).dtype.metadata is None
    other = type("Other", (), {"dtype": np.dtype(np.int64)})
    assert dmlgpu.sum(np.ones(3, np.int32), dtype=other, device=device).dtype == np.int64
    other.dtype = np.dtype(np.int32)
    assert dmlgpu.sum(np.ones(3, np.int32), dtype=other, device=device).dtype == np.int32


def test_hints_have_the_types_of_functions():
    hints = typing.get_type_hints(max_pooling)
    assert {"x", "strides", "out", "device"} <= set(hints)
    assert "Operand" not in str(hints)


# What NumPy's users type


@pytest.mark.parametrize(
    "options",
    [{}, {"strides": 2}, {"padding": 1}, {"padding": (0, 1)}, {"padding": ((1, 0), 1), "dilations": 2},
     {"padding": ((0, 1), (0, 1))},
     {"output_sizes": (4, 5), "strides": 2}],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("shape", [(8, 9), (3, 8, 9), (2, 3, 8, 9)], ids=str)
def test_an_int_and_missing_dimensions(device, shape, options):
    x = np.random.default_rng(1).permutation(np.prod(shape)).astype(np.float32).reshape(shape)
    full = x.reshape((1,) * (4 - x.ndim) + shape)
    spelled = {name: (n, n) if isinstance(n, int) else n for name, n in options.items()}
    if "padding" in spelled:
        spelled["padding"] = [(n, n) if isinstance(n, int) else n for n in spelled["padding"]]
    expected = max_pooling(full, (2, 2), output_indices=True, device=device, **spelled)
    values, indices = max_pooling(x, 2, output_indices=True, device=device, **options)
    assert values.shape == indices.shape == (*shape[:-2], *expected[0].shape[2:])
    assert np.array_equal(values, expected[0].reshape(values.shape))
    assert np.array_equal(x.reshape(-1)[indices], values)
    assert np.array_equal(max_pooling(x, 2, device=device, **options), values)


@pytest.mark.parametrize("shape", [(4, 8, 9), (3, 4, 8, 9), (2, 3, 4, 8, 9)], ids=str)
def test_three_entries_mean_depth_too(device, shape):
    x = np.random.default_rng(1).permutation(np.prod(shape)).astype(np.float32).reshape(shape)
    values, indices = max_pooling(x, (2, 3, 3), output_indices=True, device=device)
    windows = np.lib.stride_tricks.sliding_window_view(x, (2, 3, 3), axis=(-3, -2, -1))
    assert np.array_equal(values, windows.max((-3, -2, -1)))
    assert np.array_equal(x.reshape(-1)[indices], values)
    if x.ndim == 5:
        assert np.array_equal(max_pooling(x, 2, device=device), max_pooling(x, (2, 2, 2), device=device))
    else:
        # An int has two spatial dimensions there.
        assert max_pooling(x, 2, device=device).shape == (*shape[:-2], 7, 8)


def test_sizes_of_an_output_of_fewer_dimensions(device):
    for sizes in ((3, 4, 5), (4, 5)):
        assert max_pooling(IMAGE[0], 2, strides=2, output_sizes=sizes, device=device).shape == (3, 4, 5)
    assert max_pooling(IMAGE[:, :, :, :7], 2, strides=2, output_sizes=4, device=device).shape == (2, 3, 4, 4)
    # An iterator is read once.
    once = max_pooling(IMAGE, iter((2, 3)), strides=iter((1, 2)), output_sizes=iter((6, 4)), device=device)
    assert np.array_equal(once, windows(IMAGE, (2, 3), (1, 2)).max(-1))


def test_large_strides_are_uploaded_packed(device):
    x = np.zeros((4, 5000), np.float32)[:, ::1000]
    assert dmlgpu.sources.operand_of(x).tensor("x", [DataType.FLOAT32]) == dmlgpu.TensorDesc(DataType.FLOAT32, (4, 5))
    x = np.zeros(7, [("a", "<u2"), ("b", "<f4")])
    x["b"] = [3, 1, 9, 2, 9, 0, 4]
    assert argmax(x["b"], device=device) == 2


def test_the_oracle_knows_windows_that_are_almost_all_padding():
    x = np.float32([[1, 9, 3]])
    far = dmlgpu.MaxPooling2OperatorDesc.of(
        x.reshape(1, 1, 1, 3), (1, 2**31), end_padding=(0, 2**31 - 3), indices_data_type=DataType.UINT32
    )
    values, indices = reference(far, x.reshape(1, 1, 1, 3))
    assert (values.tolist(), indices.tolist()) == ([[[[9]]]], [[[[1]]]])


class Changing:
    """An integer that may change."""

    value = 1

    def __index__(self):
        return self.value


def test_a_call_that_is_known_is_not_checked_again(device, monkeypatch):
    x = np.zeros((2, 3, 5, 17 + device.info.index), np.float32)  # which no other test has
    calls = []
    original = dmlgpu.MaxPooling2OperatorDesc.__post_init__
    monkeypatch.setattr(dmlgpu.MaxPooling2OperatorDesc, "__post_init__", lambda d: calls.append(1) or original(d))
    for _ in range(3):
        max_pooling(x, (2, 3), strides=(2, 1), padding=1, device=device)
    assert len(calls) == 1
    max_pooling(x, (2, 3), strides=(2, 1), padding=(1, 0), device=device)
    max_pooling(x[:1], (2, 3), strides=(2, 1), padding=1, device=device)
    max_pooling(x.astype(np.float16), (2, 3), strides=(2, 1), padding=1, device=device)
    assert len(calls) == 4


def test_what_only_equals_a_known_call_is_checked(device):
    assert argmax(X, (1,), device=device).shape == (3,)
    assert argmax(X, 1, device=device).shape == (3,)
    assert argmax(X, 1, keepdims=True, device=device).shape == (3, 1)
    assert max_pooling(X, (1, 1), device=device).shape == (3, 3)
    for wrong in (True, 1.0, np.bool_(True)):
        for call in (partial(argmax, X, wrong), partial(argmax, X, (wrong,)), partial(max_pooling, X, (1, wrong))):
            with pytest.raises(DescriptorError):
                call(device=device)
    refuses("keepdims", argmax, X, 1, keepdims=1, device=device)
    for _ in range(2):
        refuses("out of range", argmax, X, 2, device=device)
    # Directions are numbers of DirectML; the same number as an axis is something else.
    assert argmax([[1.0, 1.0]], 1, axis_direction=1, device=device).tolist() == [1]
    assert argmax([[1.0, 1.0]], 1, axis_direction=0, device=device).tolist() == [0]


def test_what_changes_is_looked_at_every_time(device):
    axis, axes = Changing(), [0]
    for changing in (axis, (axis,), axes):
        for value in (1, 0):
            axis.value = axes[0] = value
            assert argmax(X, changing, device=device).tolist() == X.argmax(value).tolist()


# NumPy's reductions


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int8", "uint16", "int64", "bool"])
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2)], ids=str)
def test_maxima_and_minima_with_indices(device, axis, dtype):
    x = np.random.default_rng(0).integers(0, 7, (5, 40, 6)).astype(dtype)
    if x.dtype.kind == "f":
        x[2, 3] = np.nan
        x[3, 4] = -0.0
    chunks = dmlgpu.chunked(x, chunk_bytes=300)
    for source, keepdims in itertools.product((x, x[::2, ::-1], x.T, chunks), (False, True)):
        whole = x if source is chunks else source
        for name, index in (("max", argmax), ("min", argmin)):
            values, indices = getattr(dmlgpu, name)(source, axis, keepdims=keepdims, output_indices=True, device=device)
            np.testing.assert_array_equal(values, getattr(dmlgpu, name)(whole, axis, keepdims=keepdims, device=device))
            np.testing.assert_array_equal(indices, index(whole, axis, keepdims=keepdims, device=device))
            assert (values.dtype, indices.dtype) == (x.dtype, np.int64)
            assert type(values) is type(getattr(np, name)(whole, axis, keepdims=keepdims))
            if axis is None and not keepdims:
                assert type(indices) is np.int64


def test_indices_of_maxima_come_from_one_look_at_x(device):
    t = device.tensor(X)
    with device.profile() as profile:
        values, indices = dmlgpu.max(t, 1, output_indices=True, indices_data_type="uint32")
    assert [event.kind for event in profile.events].count("dispatch") == 1
    assert (values.tolist(), indices.tolist(), indices.dtype) == ([3, 4, 5], [2, 2, 1], np.uint32)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"axis": ()}, r"max\.axis: \(\) is empty"),
        ({"axis": 2}, r"max\.axis: 2 is out of range"),
        ({"output_indices": 1}, r"max\.output_indices: 1 is not allowed; allowed are True and False"),
        ({"indices_data_type": np.int8}, r"max\.indices_data_type: INT8 is not supported; allowed are INT64, INT32"),
    ],
    ids=str,
)
def test_wrong_arguments_of_maxima_with_indices(wrong, says):
    refuses(f"^{says}", dmlgpu.max, X, **{"output_indices": True, **wrong})


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "max", "min"])
def test_what_functions_of_numpy_have_beyond_is_refused_by_name(device, name):
    tensor = device.tensor(X)
    for wrong in "where", "initial":
        for function, x in ((getattr(dmlgpu, name), X), (getattr(np, name), tensor)):
            if name == "mean" and wrong == "initial" and x is tensor:
                continue  # np.mean has none
            with pytest.raises(TypeError, match=rf"^{name}\(\) has no argument '{wrong}'; its arguments are x, axis, "):
                function(x, **{wrong: np.ones(3)})


@pytest.mark.parametrize("dtype", ["int32", "INT32", "i4", np.int32, np.dtype(">i4"), DataType.INT32])
def test_dtype_of_functions_of_numpy(device, dtype):
    x = np.arange(4, dtype=np.int32)
    assert dmlgpu.sum(x, dtype=dtype, device=device).dtype == np.prod(device.tensor(x), dtype=dtype).dtype == np.int32
    for wrong, says in (
        ("int33", "neither a DataType nor"),
        (DataType.UINT4, "neither"),
        ("complex64", "not supported"),
    ):
        refuses(f"^sum: dtype=.*{says}", dmlgpu.sum, x, error=TypeError, dtype=wrong)


@pytest.mark.parametrize("function", [dmlgpu.sum, dmlgpu.prod, dmlgpu.mean])
@pytest.mark.parametrize(
    "wrong", [{"keepdims": 1}, {"axis": 1.0}, {"axis": 2}, {"axis": (0, 0)}, {"exact": "no"}], ids=str
)
def test_arguments_are_checked_where_there_are_no_elements(function, wrong):
    if function is dmlgpu.prod and "exact" in wrong:
        return
    messages = set()
    for rows in 0, 2:
        with pytest.raises(DescriptorError) as caught:
            function(np.zeros((rows, 3), np.float32), **{"axis": 0, **wrong})
        messages.add(str(caught.value))
    assert len(messages) == 1


# Windows that lie side by side


@pytest.mark.parametrize(("shape", "output_sizes", "window"), [
    ((2, 3, 6, 8), (3, 2), (2, 4)), ((6, 8), 1, (6, 8)), ((3, 6, 8), [6, 8], (1, 1)),
    ((1, 2, 4, 6, 8), 2, (2, 3, 4)), ((4, 6, 8), (1, 3, 8), (4, 2, 1)), ((0, 3, 6, 8), 2, (3, 4)),
], ids=str)  # fmt: skip
def test_adaptive_pooling(device, shape, output_sizes, window):
    x = np.random.default_rng(0).integers(-9, 10, shape).astype(np.float32)
    options = {"window_size": window, "strides": window, "device": device}
    for exact in False, True:
        got = dmlgpu.adaptive_average_pooling(x, output_sizes, exact=exact, device=device)
        np.testing.assert_array_equal(got, dmlgpu.average_pooling(x, **options, exact=exact))
    assert got.shape[-len(window) :] == tuple(n // k for n, k in zip(shape[-len(window) :], window, strict=True))
    got = dmlgpu.adaptive_max_pooling(x, output_sizes, output_indices=True, indices_data_type=UINT64, device=device)
    expected = dmlgpu.max_pooling(x, **options, output_indices=True, indices_data_type=UINT64)
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs, strict=True)


# The first k elements of a line


def first_of(line, k, mode):
    """The indices of the first k elements, by Python's sort, which leaves equal ones in their order."""
    keys = [(bool(value != value), 0 if value != value else value) for value in line.tolist()]
    return sorted(range(len(keys)), key=keys.__getitem__, reverse=mode == "largest")[:k]


def top_k_of(x, k, axis=-1, mode="largest"):
    indices = np.apply_along_axis(first_of, axis, x, k, mode).astype(np.int64)
    return np.take_along_axis(x, indices, axis), indices


def is_top_k(got, x, k, axis=-1, mode="largest", dtype=np.int64):
    """Elements have their bits, too."""
    values, indices = top_k_of(x, k, axis, mode)
    assert isinstance(got, tuple)
    assert [y.dtype for y in got] == [x.dtype.newbyteorder("="), dtype]
    np.testing.assert_array_equal(bits(np.asarray(got[0])), bits(values.astype(got[0].dtype)))
    np.testing.assert_array_equal(got[1], indices)


@pytest.mark.parametrize("mode", ["largest", "smallest"])
@pytest.mark.parametrize("dtype", ["float32", "float16", ">f8", "int8", "uint16", "int64", "uint64", "bool"])
def test_top_k(device, dtype, mode):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 7, (5, 40, 6)).astype(dtype)
    if x.dtype.kind == "f":
        special = rng.choice(np.array([np.nan, -np.nan, np.inf, -np.inf, -0.0, 5e-324], dtype), x.shape)
        x = np.where(rng.random(x.shape) < 0.3, special, x)
    for number, (view, axis) in enumerate(itertools.product((x, x[::2, ::-1], x.T), (-3, -1, 1))):
        k = (1, view.shape[axis] // 2, view.shape[axis])[(number + number // 3) % 3]
        is_top_k(dmlgpu.top_k(view, k, axis=axis, mode=mode, device=device), view, k, axis, mode)
    if dtype != "bool":
        for axis in range(3):
            got = dmlgpu.top_k(device.tensor(x), 3, axis=axis, mode=mode)
            assert all(isinstance(y, dmlgpu.DeviceTensor) for y in got)
            is_top_k(tuple(y.numpy() for y in got), x, 3, axis, mode)


def test_both_words_for_the_direction_of_top_k(device):
    x = np.float32([3, np.nan, 1, 3])
    for largest, mode, expected in (True, "largest", [1, 0, 3]), (False, "smallest", [2, 0, 3]):
        assert dmlgpu.top_k(x, 3, largest=largest, device=device)[1].tolist() == expected
        assert dmlgpu.top_k(x, 3, mode=mode, device=device)[1].tolist() == expected
    words = r"mode: 'largest' and largest=False are given; give one of them$"
    refuses(words, dmlgpu.top_k, x, 3, largest=False, mode="largest", device=device)
    for is_sorted in True, False, np.False_:
        is_top_k(dmlgpu.top_k(X, 3, sorted=is_sorted, device=device), X, 3)


def test_top_k_of_device_tensors_with_strides(device):
    x = np.random.default_rng(1).integers(0, 9, (6, 7)).astype(np.int16)
    for strides in ((20, 2), (1, 8), (0, 3)):
        values = x if strides[0] else np.broadcast_to(x[0], x.shape)
        t = device.tensor(values, dmlgpu.TensorDesc(DataType.INT16, x.shape, strides))
        for k, axis, mode in ((4, 1, "largest"), (5, 0, "smallest")):
            got = dmlgpu.top_k(t, k, axis=axis, mode=mode)
            is_top_k(tuple(y.numpy() for y in got), values, k, axis, mode)


def test_top_k_of_what_numpy_can_view(device):
    for x in VIEWABLE.values():
        values, indices = dmlgpu.top_k(x, 2, device=device)
        assert (values.tolist(), indices.tolist()) == ([[3, 2], [4, 3], [5, 2]], [[2, 1], [2, 0], [1, 0]])
    values, indices = dmlgpu.top_k(bytearray(b"abca"), np.int8(3), axis=np.int64(0), mode="smallest", device=device)
    assert (values.tolist(), indices.tolist()) == ([*b"aab"], [0, 3, 1])


def test_top_k_without_dimensions_is_one_element(device):
    for x in (np.float32(3), np.array(3, np.int8), 3.5, device.tensor(np.float32(3))):
        values, indices = dmlgpu.top_k(x, 1, device=device)
        assert (values.shape, indices.shape, float(values), int(indices)) == ((), (), float(x), 0)
    assert type(dmlgpu.top_k(np.float32(3), 1, axis=0, device=device)[1]) is np.int64


@pytest.mark.parametrize(("shape", "axis", "expected"), [((0, 4), 1, (0, 3)), ((4, 2, 0), 0, (3, 2, 0))], ids=str)
def test_top_k_of_no_lines_is_empty(shape, axis, expected):
    for dtype in ("float16", "bool"):
        values, indices = dmlgpu.top_k(np.zeros(shape, dtype), 3, axis=axis, indices_data_type=UINT64)
        assert (values.shape, values.dtype, indices.shape, indices.dtype) == (expected, dtype, expected, np.uint64)
    words = r"^TopK1OperatorDesc\.k: 5 is out of range; allowed are 1 to 4, the size"
    refuses(words, dmlgpu.top_k, np.zeros(shape, np.float32), 5, axis=axis)


def test_what_only_equals_a_known_top_k_is_checked(device):
    dmlgpu.top_k(X, 1, axis=1, device=device)
    for wrong in ({"k": True}, {"k": 1.0}, {"axis": True}, {"axis": 1.0}, {"sorted": 1}):
        with pytest.raises(DescriptorError, match=f"^TopK1OperatorDesc.{next(iter(wrong))}: "):
            dmlgpu.top_k(X, **{"k": 1, "axis": 1, **wrong}, device=device)
    k = Changing()
    for k.value in 1, 3, 2:
        assert dmlgpu.top_k(X, k, device=device)[0].shape == (3, k.value)
