"""Functions of arrays: their arguments, and the shapes and types of their results."""

import array
import collections
import itertools
import re
import typing
import warnings
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

import dmlgpu
from dmlgpu import DataType, DescriptorError, ReduceFunction, argmax, argmin, max_pooling, reduce, reference
from dmlgpu.testing.cases import INDEX_TYPES, INT64, UINT64
from tests.support.errors import refuses
from tests.support.processes import output_of

ROWS = [[1, 2, 3], [3, 0, 4], [2, 5, 2]]
X = np.array(ROWS, np.float32)
IMAGE = np.random.default_rng(0).permutation(2 * 3 * 7 * 9).reshape(2, 3, 7, 9).astype(np.float32)


class Exported:
    """Exports X only by DLPack."""

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
    # Objects of other libraries, each with one protocol.
    "array": SimpleNamespace(__array__=lambda dtype=None, copy=None: X),
    "array interface": SimpleNamespace(__array_interface__=X.__array_interface__),
    "array struct": SimpleNamespace(__array_struct__=X.__array_struct__),
    "dlpack": Exported(),
}


class Quantity(np.ndarray):
    """An array with units, which overrides NumPy's functions."""

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
    """NumPy 2 imports them in 50 ms."""
    program = """
import sys
import numpy as np
loaded = "numpy.ma" in sys.modules
import dmlgpu
dmlgpu.argmax(np.ones((2, 3), np.float32), device=int(sys.argv[1]))
print(loaded == ("numpy.ma" in sys.modules))
"""
    assert output_of(program, str(driver.index)) == "True\n"


@pytest.mark.parametrize(("call", "field"), [(argmax, "argmax.x"), (dmlgpu.TensorDesc.of, "TensorDesc.of")])
@pytest.mark.parametrize("x", MORE_THAN_ELEMENTS.values(), ids=MORE_THAN_ELEMENTS)
def test_arrays_that_are_more_than_their_elements_are_refused(call, field, x):
    reason = "a masked array; .*has no mask: fill it|an array of type (?!.*fill it)"
    refuses(rf"^{field}: ({reason}).*; pass np\.asarray\(x\) for its elements alone$", call, x)


def test_operators_and_tensors_refuse_masks(device):
    op = device.compile(dmlgpu.ArgmaxOperatorDesc.of(X, (1,)))
    for call in op, device.tensor, lambda x: dmlgpu.verify(op.desc, x, device=device), partial(reference, op.desc):
        refuses("has no mask", call, MASKED)
    array = np.ma.masked_array(X.view(np.uint8)).reshape(-1)
    refuses("has no mask", device.tensor_from_bytes, array, dmlgpu.TensorDesc.of(X))


@pytest.mark.parametrize("x", VIEWABLE.values(), ids=VIEWABLE)
def test_anything_that_numpy_can_view_is_an_array(device, x):
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
def test_axis_and_keepdims_shape_the_result(device, axis, expected):
    assert argmax(X, axis, keepdims=True, device=device).tolist() == expected
    assert argmax(X, axis=axis, device=device).tolist() == np.squeeze(expected).tolist()


def test_names_and_numbers_are_members(device):
    ties, rows = np.float32([3, 1, 3]), np.float32([[1, 2], [3, 4]])
    for direction, index in (("decreasing", 2), ("DECREASING", 2), (1, 2), (0, 0)):
        assert argmax(ties, axis_direction=direction, device=device) == index
    assert reduce(rows, "sum_square", 1, device=device).tolist() == [5, 25]
    assert reduce(rows, "argmax", 1, device=device).dtype == np.int64
    assert argmax(ties, dtype="uint32", device=device).dtype == np.uint32
    desc = dmlgpu.ReduceOperatorDesc.of("max", dmlgpu.TensorDesc("float32", (2, 2)), (0,))
    assert (desc.function, desc.input_tensor.data_type) == (ReduceFunction.MAX, DataType.FLOAT32)


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
    result = reduce(x, "l1", (), keepdims=keepdims, device=device)
    np.testing.assert_array_equal(result, np.abs(x))
    assert (result.shape, result.dtype) == (np.shape(x), x.dtype)


@pytest.mark.parametrize("axes", [(), [], set(), range(0), np.zeros(0, int)], ids=repr)
def test_no_axes_are_any_empty_sequence(device, axes):
    assert reduce(device.tensor(X), "sum_square", axes).numpy().tolist() == (X * X).tolist()
    refuses("is empty", reduce, X, "argmax", axes)


@pytest.mark.parametrize("data_type", INDEX_TYPES, ids=lambda data_type: data_type.name.lower())
def test_indices_have_the_wanted_type(device, data_type):
    assert argmax(X, device=device).dtype == argmin(X, device=device).dtype == np.int64
    for dtype in data_type, data_type.numpy, data_type.numpy.name, data_type.numpy.type:
        result = argmax(X, 0, dtype=dtype, device=device)
        assert (result.dtype, result.tolist()) == (data_type.numpy, [1, 2, 1])
        assert dmlgpu.top_k(X, 2, indices_data_type=dtype, device=device)[1].dtype == data_type.numpy
        if data_type is not DataType.INT32:
            options = {"output_indices": True, "device": device}
            indices = max_pooling(IMAGE, (2, 3), **options, indices_data_type=dtype)[1]
            assert indices.dtype == data_type.numpy
            assert np.array_equal(indices, max_pooling(IMAGE, (2, 3), **options)[1])


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


WINDOWS = {
    "size": ({"window_size": (2, 3)}, windows(IMAGE, (2, 3))),
    "int": ({"window_size": 2, "strides": 3}, windows(IMAGE, (2, 2), (3, 3))),
    "strides and dilations": ({"window_size": (2, 3), "strides": (3, 2), "dilations": (2, 1)},
                  windows(IMAGE, (2, 3), (3, 2), (2, 1))),
    "padding": ({"window_size": (2, 3), "padding": 1}, windows(padded((1, 1), (1, 1)), (2, 3))),
    "padding of rows": ({"window_size": 2, "padding": (0, 1)}, windows(padded((0, 1), (0, 1)), (2, 2))),
    "padding by sides": ({"window_size": (2, 4), "padding": ([1, 0], np.array([2, 1]))},
                         windows(padded((1, 2), (0, 1)), (2, 4))),
    **{f"output sizes {sizes}": ({"window_size": 2, "strides": 2, "output_sizes": sizes},
                                 windows(padded((0, 0), (1, 1)), (2, 2), (2, 2)))
       for sizes in ((4, 5), np.array([4, 5]))},
}  # fmt: skip


@pytest.mark.parametrize("leading", [(2, 3), (3,), ()], ids=str)
@pytest.mark.parametrize(("arguments", "elements"), WINDOWS.values(), ids=WINDOWS)
def test_maxima_of_windows_and_their_indices(device, arguments, elements, leading):
    first = (0,) * (2 - len(leading))
    x, expected = IMAGE[first], elements[first].max(-1)
    values, indices = max_pooling(x, **arguments, output_indices=True, device=device)
    assert np.array_equal(values, expected)
    assert np.array_equal(x.reshape(-1)[indices], expected)
    assert np.array_equal(max_pooling(x, **arguments, device=device), expected)


def test_output_sizes_may_have_leading_dimensions_and_be_one_int(device):
    whole, of_plane = (max_pooling(IMAGE, 2, strides=2, output_sizes=sizes, device=device)
                       for sizes in ((2, 3, 4, 5), (4, 5)))  # fmt: skip
    assert np.array_equal(whole, of_plane)
    assert max_pooling(IMAGE[0], 2, strides=2, output_sizes=(3, 4, 5), device=device).shape == (3, 4, 5)
    assert max_pooling(IMAGE[..., :7], 2, strides=2, output_sizes=4, device=device).shape == (2, 3, 4, 4)


def test_sizes_may_be_iterators(device):
    result = max_pooling(IMAGE, iter((2, 3)), strides=iter((1, 2)), output_sizes=iter((6, 4)), device=device)
    assert np.array_equal(result, windows(IMAGE, (2, 3), (1, 2)).max(-1))


@pytest.mark.parametrize(("name", "keyword", "advice"), [
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
])  # fmt: skip
def test_keywords_of_others_get_their_name_here(name, keyword, advice):
    message = rf"^{name}\(\) has no argument '{keyword}'; write {advice}"
    refuses(message, getattr(dmlgpu, name), IMAGE, error=TypeError, **{keyword: 1})


@pytest.mark.parametrize("keyword", ["foo", "stride", "kernel_size"])  # elsewhere poolings have these
def test_other_keywords_get_a_list(keyword):
    message = rf"^argmax\(\) has no argument '{keyword}'; its arguments are x, axis, keep"
    refuses(message, argmax, X, error=TypeError, **{keyword: 1})


@pytest.mark.parametrize(("function", "arguments", "options", "message"), [
    (argmax, (), {"axis": 1}, "missing 1 required positional argument: 'x'"),
    (max_pooling, (X,), {}, "missing 1 required positional argument: 'window_size'"),
    (dmlgpu.max_unpooling, (X,), {"output_sizes": 4}, "missing 1 required positional argument: 'indices'"),
    (dmlgpu.max_unpooling, (X, X), {}, "missing 1 required positional argument: 'output_sizes'"),
    (dmlgpu.max_unpooling, (X, X, 4, 4), {}, "takes 3 positional arguments but 4 were given; name .*: out, device"),
    (dmlgpu.max_unpooling, (X, X), {"x": X, "output_sizes": 4}, "got multiple values for argument 'x'"),
    (max_pooling, (X, 2, 1), {}, "takes 2 positional arguments but 3 .*; name the others: .* strides, padding, dil.*"),
])  # fmt: skip
def test_arguments_that_are_missing_or_too_many(function, arguments, options, message):
    refuses(rf"^{function.__name__}\(\) {message}$", function, *arguments, error=TypeError, **options)


def test_x_may_be_named(device):
    assert argmax(x=X, axis=1, device=device).tolist() == [2, 2, 1]
    assert dmlgpu.average_pooling_grad(gradient=X, input_sizes=3, window_size=1, device=device).tolist() == ROWS


@pytest.mark.parametrize("leading", [(), (2,)], ids=str)
def test_an_image_with_channels_last_gets_a_warning(device, leading):
    shape, axes = (*leading, 20, 30, 3), "0, 3, 1, 2" if leading else "2, 0, 1"
    message = (
        rf"^max_pooling: windows lie over the last two axes of {re.escape(str(shape))}; .* x\.transpose\({axes}\)$"
    )
    for _ in "first", "cached":
        with pytest.warns(UserWarning, match=message) as caught:
            max_pooling(np.zeros(shape, np.float32), 2, device=device)
        assert caught[0].filename == __file__


@pytest.mark.parametrize(("shape", "window"), [
    ((3, 20, 30), 2), ((20, 9, 3), 2), ((20, 30, 3), (2, 2, 2)), ((20, 3), 2), ((20, 30, 5), 2), ((3, 30, 4), 2),
])  # fmt: skip
def test_other_images_get_no_warning(device, shape, window):
    with warnings.catch_warnings(action="error"):
        max_pooling(np.zeros(shape, np.float32), window, device=device)


def test_a_window_with_more_columns_than_there_are_channels_gets_advice():
    for channels in 3, 1:
        message = rf"size\[1\]: 5 .* only {channels}; .* pass x\.transpose\(2, 0, 1\)$"
        refuses(message, max_pooling, np.zeros((20, 30, channels), np.float32), 5)
    refuses(r"size\[0\]: 99 with .* only 30$", max_pooling, np.zeros((20, 30, 3), np.float32), (99, 1))


# Empty arrays, as NumPy


@pytest.mark.parametrize(
    ("shape", "axes", "kept"),
    [((0, 3), 1, (0, 1)), ((2, 0), 0, (1, 0)), ((2, 0, 3), (0, 2), (1, 0, 1)), ((0, 2, 0), 1, (0, 1, 0))],
    ids=str,
)
def test_reductions_without_outputs_are_empty(shape, axes, kept):
    empty = argmax(np.zeros(shape, np.float32), axes, keepdims=True, dtype=INT64)
    assert (empty.shape, empty.dtype) == (kept, np.int64)
    assert argmax(np.zeros(shape, np.float32), axes).shape == tuple(np.delete(kept, axes))


@pytest.mark.parametrize("shape", [(0, 3, 4, 5), (2, 0, 4, 5), (0, 0, 4, 5), (0, 1, 4, 5, 6), (0, 4, 5)], ids=str)
def test_pooling_of_no_planes_is_empty(shape):
    x, spatial = np.zeros(shape, np.float16), max(len(shape) - 2, 2)
    expected = (*shape[:-spatial], *(n - 1 for n in shape[-spatial:]))
    values, indices = max_pooling(x, 2, output_sizes=expected, output_indices=True, indices_data_type=UINT64)
    assert (values.shape, values.dtype) == (expected, np.float16)
    assert (indices.shape, indices.dtype) == (expected, np.uint64)
    assert max_pooling(x, 2).shape == expected


def test_empty_arrays_are_checked_as_others(device):
    refuses("FLOAT64 is not supported", dmlgpu.average_pooling, np.zeros((0, 3, 3)), 1)
    refuses("out of range", argmax, np.zeros((0, 3), np.float32), 2)
    refuses("sizes", device.tensor, np.zeros((0, 3), np.float32))
    refuses("nope", dmlgpu.sum, np.zeros(0, np.float32), device="nope", error=dmlgpu.DeviceError)


# bool

# Views of bytes as bool: to NumPy any byte but 0 is True.
MASK = np.random.default_rng(3).choice([0, 0, 0, 1, 2, 255], (2, 3, 6, 7)).astype(np.uint8).view(bool)


@pytest.mark.parametrize("axis", [None, 0, 3, (1, 2), (0, 1, 2, 3)], ids=str)
def test_reductions_of_bool_are_those_of_0_and_1(any_device, axis):
    mask = MASK if axis != 3 else MASK.transpose(0, 3, 2, 1)  # strided
    numbers = (mask.view(np.uint8) > 0).astype(np.uint8)
    for function, direction in itertools.product((argmax, argmin), dmlgpu.AxisDirection):
        result, expected = (function(x, axis, axis_direction=direction, device=any_device) for x in (mask, numbers))
        np.testing.assert_array_equal(result, expected, strict=True)
    for name in "max", "min":
        result, expected = reduce(mask, name, axis, device=any_device), getattr(np, name)(numbers, axis)
        assert (type(result), result.dtype) == (np.ndarray if expected.ndim else np.bool_, np.bool_)
        assert np.array_equal(np.asarray(result).view(np.uint8), expected)


def test_bool_is_pooled_and_put_back(device):
    values, indices = max_pooling(MASK, 2, strides=2, output_indices=True, device=device)
    numbers = max_pooling(MASK.astype(np.uint8), 2, strides=2, output_indices=True, device=device)
    assert (values.dtype, indices.dtype) == (np.bool_, np.int64)
    assert np.array_equal(values.view(np.uint8), numbers[0])
    assert np.array_equal(indices, numbers[1])
    back = dmlgpu.max_unpooling(values, indices, MASK.shape, device=device)
    assert back.dtype == np.bool_
    assert np.array_equal(max_pooling(back, 2, strides=2, device=device), values)
    assert reduce(MASK, "max", dtype=np.uint8, device=device).dtype == np.uint8


def test_no_elements_of_bool_have_the_same_types():
    none = np.zeros((0, 3, 3), bool)
    values, indices = max_pooling(none, 2, output_indices=True)
    dtypes = [result.dtype for result in (values, indices, reduce(none, "max", 1), argmax(none, 1))]
    assert dtypes == [np.bool_, np.int64, np.bool_, np.int64]


def test_device_tensors_of_bool_are_uint8(device):
    t = device.tensor(MASK)
    assert (t.desc.data_type, t.dtype) == (DataType.UINT8, np.uint8)
    assert np.array_equal(t.numpy(), MASK.astype(np.uint8))
    assert np.max(t, 1).dtype == np.uint8
    assert np.array_equal(np.argmax(t, 3), MASK.argmax(3))
    # Elements that share memory are equal as bools, whatever their bytes.
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
    op = device.compile(dmlgpu.ArgmaxOperatorDesc.of(MASK.astype(np.int8)))
    refuses("the array is bool; the descriptor has INT8", op, MASK)


# Bad arrays


def test_device_is_not_opened_for_bad_input(monkeypatch):
    monkeypatch.setattr(dmlgpu.sources, "open_device", lambda selector: pytest.fail("a device was opened"))
    refuses(rf"^argmax\.x: range\(0, {2**61}\) has more elements than fit in memory", argmax, range(2**61))
    refuses("out of range", argmax, X, 5)
    refuses("only 7", max_pooling, IMAGE, (9, 9))
    for padding in (({2, 1}, 0), (0, {1: 2}), (b"ab", 0), b"ab"):
        refuses(r"padding.*neither an integer nor", max_pooling, X, 2, padding=padding)


def test_a_cached_call_has_no_type_of_another(device):
    noted = np.dtype(np.int32, metadata={"unit": "m"})
    for dtype in noted, np.int32:
        assert dmlgpu.max(np.zeros((2, 41), dtype), 1, device=device).dtype.metadata is None
    changing = type("Changing", (), {})
    for changing.dtype in map(np.dtype, ("int64", "int32")):
        assert dmlgpu.sum(np.ones(3, np.int32), dtype=changing, device=device).dtype == changing.dtype


def test_hints_have_the_types_of_functions():
    hints = typing.get_type_hints(max_pooling)
    assert {"x", "strides", "out", "device"} <= set(hints)
    assert "Operand" not in str(hints)


# What NumPy's users type


@pytest.mark.parametrize("leading", [(), (3,), (2, 3)], ids=str)
def test_windows_of_three_entries_have_a_depth(device, leading):
    x = np.random.default_rng(1).permutation(np.prod(leading, dtype=int) * 288).reshape(*leading, 4, 8, 9)
    values, indices = max_pooling(x, (2, 3, 3), output_indices=True, device=device)
    assert np.array_equal(
        values, np.lib.stride_tricks.sliding_window_view(x, (2, 3, 3), (-3, -2, -1)).max((-3, -2, -1))
    )
    assert np.array_equal(x.reshape(-1)[indices], values)


def test_an_int_is_a_cube_only_over_five_dimensions(device):
    for shape, size in (((2, 3, 4, 8, 9), (2, 2, 2)), ((3, 4, 8, 9), (2, 2)), ((4, 8, 9), (2, 2))):
        x = np.random.default_rng(1).permutation(np.prod(shape)).reshape(shape)
        assert np.array_equal(max_pooling(x, 2, device=device), max_pooling(x, size, device=device))


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
    assert argmax(X, (1,), device=device).shape == argmax(X, 1, device=device).shape == (3,)
    assert argmax(X, 1, keepdims=True, device=device).shape == (3, 1)
    assert max_pooling(X, (1, 1), device=device).shape == (3, 3)
    for wrong in (True, 1.0, np.bool_(True)):
        for call in (partial(argmax, X, wrong), partial(argmax, X, (wrong,)), partial(max_pooling, X, (1, wrong))):
            refuses("an integer", call, device=device)
    refuses("keepdims", argmax, X, 1, keepdims=1, device=device)


def test_what_may_change_is_read_in_every_call(device):
    number, axes = Changing(), [0]
    for changing in (number, (number,), axes):
        for number.value in 1, 0:
            axes[0] = number.value
            assert argmax(X, changing, device=device).tolist() == X.argmax(number.value).tolist()
    for number.value in 1, 3, 2:
        assert dmlgpu.top_k(X, number, device=device)[0].shape == (3, number.value)


# NumPy's reductions


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int8", "uint16", "int64", "bool"])
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2)], ids=str)
@pytest.mark.parametrize(("extremum", "index"), [(dmlgpu.max, argmax), (dmlgpu.min, argmin)], ids=["max", "min"])
def test_extrema_with_indices_are_those_of_both_functions(device, extremum, index, axis, dtype):
    x = np.random.default_rng(0).integers(0, 7, (5, 40, 6)).astype(dtype)
    if x.dtype.kind == "f":
        x[2, 3], x[3, 4] = np.nan, -0.0
    chunks = dmlgpu.chunked(x, chunk_bytes=300)
    # Half of the arrays keep their axes; for minima, the others.
    for number, source in enumerate((x, x[::2, ::-1], x.T, chunks), extremum is dmlgpu.min):
        keepdims = number % 2 == 1
        whole = x if source is chunks else source
        values, indices = extremum(source, axis, keepdims=keepdims, output_indices=True, device=device)
        expected = extremum(whole, axis, keepdims=keepdims, device=device)
        np.testing.assert_array_equal(values, expected, strict=True)
        np.testing.assert_array_equal(indices, index(whole, axis, keepdims=keepdims, device=device), strict=True)
        assert type(values) is type(expected)
        assert type(indices) is (np.int64 if axis is None and not keepdims else np.ndarray)


def test_maxima_and_their_indices_are_one_dispatch(device):
    t = device.tensor(X)
    with device.profile() as profile:
        values, indices = dmlgpu.max(t, 1, output_indices=True, indices_data_type="uint32")
    assert [event.kind for event in profile.events].count("dispatch") == 1
    assert (values.tolist(), indices.tolist(), indices.dtype) == ([3, 4, 5], [2, 2, 1], np.uint32)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"axis": ()}, r"max\.axis: \(\) is empty"),
        ({"axis": 2}, r"max\.axis: 2 is out of range"),
        ({"output_indices": 1}, r"max\.output_indices: 1 is not allowed; allowed are True and False"),
        ({"indices_data_type": np.int8}, r"max\.indices_data_type: INT8 is not supported; allowed are INT64, INT32"),
    ],
    ids=str,
)
def test_wrong_arguments_of_maxima_with_indices(wrong, message):
    refuses(f"^{message}", dmlgpu.max, X, **{"output_indices": True, **wrong})


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "max", "min"])
def test_other_arguments_of_numpy_s_functions_are_refused_by_name(device, name):
    for wrong in "where", "initial":
        message = rf"^{name}\(\) has no argument '{wrong}'; its arguments are x, axis, "
        refuses(message, getattr(dmlgpu, name), X, error=TypeError, **{wrong: np.ones(3)})
        if (name, wrong) != ("mean", "initial"):  # np.mean has none
            refuses(message, getattr(np, name), device.tensor(X), error=TypeError, **{wrong: np.ones(3)})


@pytest.mark.parametrize("dtype", ["int32", "INT32", "i4", np.int32, np.dtype(">i4"), DataType.INT32])
def test_dtype_may_be_any_name_of_int32(device, dtype):
    x = np.arange(4, dtype=np.int32)
    assert dmlgpu.sum(x, dtype=dtype, device=device).dtype == np.prod(device.tensor(x), dtype=dtype).dtype == np.int32


@pytest.mark.parametrize(
    ("dtype", "reason"),
    [("int33", "neither a DataType nor"), (DataType.UINT4, "neither"), ("complex64", "not supported")],
)
def test_other_dtypes_are_refused(dtype, reason):
    refuses(f"^sum: dtype=.*{reason}", dmlgpu.sum, np.arange(4), error=TypeError, dtype=dtype)


@pytest.mark.parametrize(
    ("function", "wrong"),
    [(dmlgpu.sum, {"keepdims": 1}), (dmlgpu.prod, {"axis": 1.0}), (dmlgpu.mean, {"axis": 2}),
     (dmlgpu.sum, {"axis": (0, 0)}), (dmlgpu.mean, {"exact": "no"})],
    ids=range(5),
)  # fmt: skip
def test_without_elements_arguments_are_checked_as_with_them(function, wrong):
    with pytest.raises(DescriptorError) as caught:
        function(np.zeros((2, 3), np.float32), **{"axis": 0, **wrong})
    refuses(f"^{re.escape(str(caught.value))}$", function, np.zeros((0, 3), np.float32), **{"axis": 0, **wrong})


# Windows that lie side by side


@pytest.mark.parametrize(("shape", "output_sizes", "window"), [
    ((2, 3, 6, 8), (3, 2), (2, 4)), ((6, 8), 1, (6, 8)), ((3, 6, 8), [6, 8], (1, 1)),
    ((1, 2, 4, 6, 8), 2, (2, 3, 4)), ((4, 6, 8), (1, 3, 8), (4, 2, 1)), ((0, 3, 6, 8), 2, (3, 4)),
], ids=str)  # fmt: skip
def test_adaptive_pooling_is_pooling_with_adjacent_windows(device, shape, output_sizes, window):
    x = np.random.default_rng(0).integers(-9, 10, shape).astype(np.float32)
    options = {"window_size": window, "strides": window, "device": device}
    for exact in False, True:
        averages = dmlgpu.adaptive_average_pooling(x, output_sizes, exact=exact, device=device)
        np.testing.assert_array_equal(averages, dmlgpu.average_pooling(x, **options, exact=exact))
    assert averages.shape[-len(window) :] == tuple(n // k for n, k in zip(shape[-len(window) :], window, strict=True))
    indexed = {"output_indices": True, "indices_data_type": UINT64}
    pair = dmlgpu.adaptive_max_pooling(x, output_sizes, **indexed, device=device)
    for result, expected in zip(pair, dmlgpu.max_pooling(x, **options, **indexed), strict=True):
        np.testing.assert_array_equal(result, expected, strict=True)


# The first k elements of a line


@pytest.mark.parametrize("mode", ["largest", "smallest"])
@pytest.mark.parametrize("dtype", ["float32", "float16", ">f8", "int8", "uint16", "int64", "uint64", "bool"])
def test_top_k_is_a_stable_sort(device, dtype, mode):
    x = np.random.default_rng(0).integers(0, 7, (5, 40, 6))
    keys = -x if mode == "largest" else x
    if dtype == "bool":
        x, keys = x > 3, keys > 3 if mode == "smallest" else keys >= -3
    x = x.astype(dtype)
    views = (x, keys), (x[::2, ::-1], keys[::2, ::-1]), (x.T, keys.T)
    for (view, order), axis in itertools.product(views, (-3, -1, 1)):
        expected = np.argsort(order, axis, kind="stable").take(range(view.shape[axis] // 2), axis)
        for source in (view,) if dtype in ("bool", ">f8") else (view, device.tensor(view)):
            values, indices = dmlgpu.top_k(source, view.shape[axis] // 2, axis=axis, mode=mode, device=device)
            assert type(values) is type(indices) is (np.ndarray if source is view else dmlgpu.DeviceTensor)
            np.testing.assert_array_equal(values, np.take_along_axis(view, expected, axis))
            np.testing.assert_array_equal(indices, expected)
            assert values.dtype == x.dtype.newbyteorder("=")


@pytest.mark.parametrize(
    ("options", "expected"),
    [({"largest": True}, [1, 0, 3]), ({"mode": "largest"}, [1, 0, 3]), ({"sorted": False}, [1, 0, 3]),
     ({"largest": False}, [2, 0, 3]), ({"mode": "smallest"}, [2, 0, 3]), ({"sorted": np.False_}, [1, 0, 3])],
    ids=str,
)  # fmt: skip
def test_largest_and_mode_are_the_direction_of_top_k(device, options, expected):
    assert dmlgpu.top_k(np.float32([3, np.nan, 1, 3]), 3, **options, device=device)[1].tolist() == expected


def test_largest_and_mode_exclude_each_other():
    message = r"mode: 'largest' and largest=False are given; give one of them$"
    refuses(message, dmlgpu.top_k, X, 3, largest=False, mode="largest")


def test_top_k_without_dimensions_is_one_element(device):
    for x in (np.float32(3), np.array(3, np.int8), 3.5, device.tensor(np.float32(3))):
        values, indices = dmlgpu.top_k(x, 1, device=device)
        assert (values.shape, indices.shape, float(values), int(indices)) == ((), (), float(x), 0)
    assert type(dmlgpu.top_k(np.float32(3), np.int8(1), axis=np.int64(0), device=device)[1]) is np.int64


@pytest.mark.parametrize(("shape", "axis", "expected"), [((0, 4), 1, (0, 3)), ((4, 2, 0), 0, (3, 2, 0))], ids=str)
def test_top_k_of_no_lines_is_empty(shape, axis, expected):
    for dtype in ("float16", "bool"):
        values, indices = dmlgpu.top_k(np.zeros(shape, dtype), 3, axis=axis, indices_data_type=UINT64)
        assert (values.shape, values.dtype, indices.shape, indices.dtype) == (expected, dtype, expected, np.uint64)
    words = r"^TopK1OperatorDesc\.k: 5 is out of range; allowed are 1 to 4, the size"
    refuses(words, dmlgpu.top_k, np.zeros(shape, np.float32), 5, axis=axis)


@pytest.mark.parametrize("wrong", [{"k": True}, {"k": 1.0}, {"axis": True}, {"axis": 1.0}, {"sorted": 1}], ids=str)
def test_what_only_equals_a_known_top_k_is_checked(device, wrong):
    dmlgpu.top_k(X, 1, axis=1, device=device)
    refuses(f"^TopK1OperatorDesc.{next(iter(wrong))}: ", dmlgpu.top_k, X, **{"k": 1, "axis": 1, **wrong}, device=device)
