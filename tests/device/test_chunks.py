"""Chunks of arrays: whatever they are and in whatever order they merge, the results are those of the whole array."""

import math
import pickle
import random
import re

import numpy as np
import pytest

import dmlgpu
from dmlgpu import AveragePooling1OperatorDesc, LpPooling1OperatorDesc, MaxPooling2OperatorDesc, ReduceFunction
from dmlgpu.call import Operand, arg, pooled, reduced, top_k
from dmlgpu.chunks.pooling import Pooling
from dmlgpu.chunks.reduction import Reduction
from dmlgpu.chunks.regions import Regions
from dmlgpu.descriptors.reduction import REDUCE_TYPES
from dmlgpu.descriptors.tensor import bits
from dmlgpu.reference import reference
from dmlgpu.reference.bounds import U, bounds
from tests.support.errors import refuses

SPECIAL = [np.nan, -np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -1.0]
SELECTIONS = [ReduceFunction.ARGMAX, ReduceFunction.ARGMIN, ReduceFunction.MAX, ReduceFunction.MIN]


def array_of(shape, dtype):
    """What a function is told of an array that is computed in parts."""
    return Operand(shape, np.dtype(dtype), in_parts=True)


def indices_of(kind, shape, dtype, axis=None, keepdims=False, axis_direction="increasing", output=np.int64):
    x = array_of(shape, dtype)
    return Reduction.of(arg(kind, x, axis, keepdims, axis_direction, output), x)


def reduction_of(shape, element_type, function, axis=None, keepdims=False, **options):
    x = array_of(shape, element_type)
    return Reduction.of(reduced(x, function, axis, keepdims, **options), x)


def top_k_of(shape, dtype, k, axis, mode="largest"):
    x = array_of(shape, dtype)
    return Reduction.of(top_k(x, k, axis, True, mode, True, np.int64), x)


def pooling_of(kind, shape, dtype, window_size, **window):
    return Pooling.of(pooled(kind, array_of(shape, dtype), window_size, **window), shape)


def index_type(function):
    """The type of the results where they are indices."""
    return np.int64 if "ARG" in function.name else None


def few_values(rng, dtype, shape):
    """Each of them many times, so that every result has ties."""
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return rng.choice(np.array(SPECIAL[rng.integers(len(SPECIAL)) :], dtype), shape)
    return rng.integers(0, 3, shape).astype(dtype)


def numbers(rng, dtype, shape, function):
    """What the function has a value for; sums are small beside their terms, products go far beyond a float."""
    dtype = np.dtype(dtype)
    if dtype.kind != "f":
        return rng.integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)
    if function is ReduceFunction.MULTIPLY:
        return np.exp2(rng.uniform(-14, 14, shape)).astype(dtype) * rng.choice([-1, 1], shape).astype(dtype)
    x = rng.uniform(-100, 100, shape).astype(dtype)
    return np.abs(x) if function is ReduceFunction.LOG_SUM else x


def sizes_of(shape, choose):
    return tuple(choose.randint(1, size) for size in shape)


def axes_of(shape, choose):
    return tuple(choose.sample(range(len(shape)), choose.randint(1, len(shape))))


def merged(reduction, x, sizes, choose, device):
    """The first result of chunks."""
    return all_merged(reduction, x, sizes, choose, device)[0]


def all_merged(reduction, x, sizes, choose, device):
    """The results of every chunk alone, merged in a random order and in random groups."""
    results = [np.full(reduction.reduced(reduction.sizes), 77, dtype) for dtype in reduction.dtypes]
    along = tuple(size if axis in reduction.axes else 1 for axis, size in enumerate(x.shape))
    whole = tuple(reduction.sizes[i] if i in reduction.axes else size for i, size in enumerate(sizes))
    for outputs in Regions(reduction.sizes, whole):
        partials = []
        for part in Regions(along, sizes):
            chunk = tuple((part if axis in reduction.axes else outputs)[axis] for axis in range(x.ndim))
            partials.append(reduction.partial(x[chunk], tuple(each.start for each in chunk), device))
        choose.shuffle(partials)
        while len(partials) > 1:
            count = choose.randint(2, len(partials))
            partials.append(reduction.merged(np.concatenate(partials[:count], choose.choice(reduction.axes))))
            partials = partials[count:]
        assert partials[0].dtype == reduction.partial_type
        for result, part in zip(results, reduction.results(partials[0]), strict=True):
            result[reduction.reduced(outputs)] = part
    return results


def terms_of(x, function):
    """The sum of the absolute terms of a function."""
    x = np.abs(x.astype(np.float64))
    return x * x if function in (ReduceFunction.SUM_SQUARE, ReduceFunction.L2) else x


@pytest.mark.parametrize("function", ReduceFunction, ids=lambda function: function.name)
def test_values_of_any_chunks(function, device):
    rng, choose = np.random.default_rng(function.value), random.Random(function.value)
    for data_type in REDUCE_TYPES[function]["input_tensor"]:
        for _ in range(3):
            shape = choose.choice([(37,), (9, 10), (4, 5, 6), (2, 3, 4, 5), (3, 2, 2, 3, 4)])
            axes = axes_of(shape, choose)
            x = numbers(rng, data_type.numpy, shape, function)
            desc = dmlgpu.ReduceOperatorDesc.of(function, x, axes, output_data_type=index_type(function))
            reduction = reduction_of(shape, x.dtype, function, axes, keepdims=True)
            got = merged(reduction, x, sizes_of(shape, choose), choose, device)
            (expected,), (bound,) = reference(desc, x), bounds(desc, x)
            assert got.dtype == expected.dtype
            if bound is None:
                np.testing.assert_array_equal(bits(got), bits(expected))
                continue
            more = terms_of(x, function).sum(axes, keepdims=True) * U
            if function is ReduceFunction.AVERAGE:
                more /= reduction.count
            elif function is ReduceFunction.L2:
                more = more / expected.astype(np.float64)
            elif function is ReduceFunction.LOG_SUM:
                more = more / np.exp(expected.astype(np.float64))
            elif function in (ReduceFunction.LOG_SUM_EXP, ReduceFunction.MULTIPLY):
                more = 0
            with np.errstate(invalid="ignore"):
                off = np.abs(got.astype(np.float64) - expected)
            assert ((off <= bound + more) | (got == expected) | np.isinf(bound)).all()


@pytest.mark.parametrize("direction", dmlgpu.AxisDirection, ids=lambda direction: direction.name)
@pytest.mark.parametrize("kind", [dmlgpu.ArgmaxOperatorDesc, dmlgpu.ArgminOperatorDesc])
def test_ties_of_any_chunks(kind, direction, device):
    rng, choose = np.random.default_rng(3), random.Random(direction.value)
    for dtype in ("float32", "float16", "float64", "uint8", "int64", "bool") * 5:
        shape = choose.choice([(12, 13), (5, 4, 6), (3, 4, 3, 4)])
        axes, x = axes_of(shape, choose), few_values(rng, dtype, shape)
        reduction = indices_of(kind, shape, x.dtype, axes, keepdims=True, axis_direction=direction)
        got = merged(reduction, x, sizes_of(shape, choose), choose, device)
        seen = x.view(np.uint8) if dtype == "bool" else x
        (expected,) = reference(kind.of(seen, axes, direction, output_data_type=np.int64), seen)
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("mode", ["largest", "smallest"])
def test_top_k_of_any_chunks(mode, device):
    rng, choose = np.random.default_rng(5), random.Random(mode)
    for dtype in ("float32", "float16", "float64", "uint8", "int64", "uint64", "bool") * 5:
        shape = choose.choice([(37,), (12, 13), (5, 4, 6), (3, 4, 3, 4)])
        axis, x = choose.randrange(len(shape)), few_values(rng, dtype, shape)
        k = choose.randint(1, shape[axis])
        reduction = top_k_of(shape, x.dtype, k, axis, mode)
        got = all_merged(reduction, x, sizes_of(shape, choose), choose, device)
        seen = x.view(np.uint8) if dtype == "bool" else x
        direction = dmlgpu.AxisDirection.DECREASING if mode == "largest" else dmlgpu.AxisDirection.INCREASING
        values, indices = reference(dmlgpu.TopK1OperatorDesc.of(seen, k, axis, direction), seen)
        assert [each.dtype for each in got] == [x.dtype, np.int64]
        np.testing.assert_array_equal(bits(got[0]), bits(values))
        np.testing.assert_array_equal(got[1], indices)


@pytest.mark.parametrize("function", [ReduceFunction.MAX, ReduceFunction.MIN], ids=lambda function: function.name)
def test_bits_of_the_first_of_equal_elements(function, device):
    rng, choose = np.random.default_rng(4), random.Random(4)
    for dtype in ("float32", "float16", "float64") * 5:
        x = few_values(rng, dtype, (5, 4, 6))
        axes = axes_of(x.shape, choose)
        reduction = reduction_of(x.shape, x.dtype, function, axes, keepdims=True)
        got = merged(reduction, x, sizes_of(x.shape, choose), choose, device)
        (expected,) = reference(dmlgpu.ReduceOperatorDesc.of(function, x, axes), x)
        np.testing.assert_array_equal(bits(got), bits(expected))


@pytest.mark.parametrize("function", SELECTIONS, ids=lambda function: function.name)
@pytest.mark.parametrize(
    ("shape", "axes", "sizes"),
    [
        ((9001, 8), (1,), (9001, 3)),
        ((8, 9001), (0,), (3, 9001)),
        ((97, 5, 95), (1,), (97, 2, 95)),
        ((5, 9001, 4), (0, 2), (2, 9001, 3)),
        ((97, 95, 3, 4), (2, 3), (97, 95, 2, 3)),
        ((3, 4, 20_000), (0, 1), (2, 3, 9001)),
    ],
    ids=str,
)
def test_more_outputs_of_a_chunk_than_numpy_buffers(function, shape, axes, sizes, device):
    """NumPy takes 8,192 elements at a time."""
    x = np.random.default_rng(function.value).integers(0, 256, shape, np.uint8)
    (expected,) = reference(dmlgpu.ReduceOperatorDesc.of(function, x, axes, output_data_type=index_type(function)), x)
    for keepdims, order in (False, "C"), (True, "F"):
        x = np.asarray(x, order=order)
        reduction = reduction_of(shape, x.dtype, function, axes, keepdims=keepdims)
        got = merged(reduction, x, sizes, random.Random(0), device)
        np.testing.assert_array_equal(got, expected if keepdims else expected.squeeze(axes))


@pytest.mark.parametrize(
    "chunks",
    [
        ([1e30] * 4, [1e-30] * 4),
        ([1e-40, 1e-42], [1e38, 1e38]),  # denormals
        ([1e-30] * 3, [0.0], [1e30] * 3),
        ([1e-30] * 3, [-np.inf]),
        ([1e30] * 3, [0.0], [np.inf]),
        ([2.0] * 230, [-0.5] * 231),
        ([0.5] * 130, [1.0]),
        ([3e38] * 2, [-3e38] * 2),
    ],
    ids=str,
)
def test_products_of_chunks_may_be_out_of_range(chunks, device):
    parts = [np.array(chunk, np.float32) for chunk in chunks]
    x = np.concatenate(parts)
    reduction = reduction_of(x.shape, x.dtype, ReduceFunction.MULTIPLY)
    begins = np.cumsum([0, *map(len, parts)])
    partials = [reduction.partial(part, (int(b),), device) for part, b in zip(parts, begins, strict=False)]
    got = reduction.results(reduction.merged(np.concatenate(partials)))[0]
    with np.errstate(all="ignore"):
        expected = np.float32(np.prod(x.astype(np.longdouble)))
    np.testing.assert_allclose(got, expected, rtol=x.size * U)
    assert np.signbit(got) == np.signbit(expected)


@pytest.mark.parametrize(("exponent", "expected"), [(1 << 40, np.inf), (-(1 << 40), 0), (-149, 2.0**-149)])
def test_products_may_have_any_exponent(exponent, expected):
    reduction = reduction_of((3,), "float32", ReduceFunction.MULTIPLY)
    partial = np.array([(1.0, exponent)], reduction.partial_type)
    assert reduction.results(partial)[0] == expected
    assert reduction.results(reduction.merged(np.repeat(partial, 2)))[0] == np.float32(expected * expected)


def test_products_of_very_many_mantissas(device):
    x = np.full((3, 100_001), 0.75, np.float32)
    x[:, ::2] = 1 / 0.75
    reduction = reduction_of(x.shape, x.dtype, ReduceFunction.MULTIPLY, axis=1)
    np.testing.assert_allclose(
        reduction.results(reduction.partial(x, (0, 0), device))[0], x.astype(float).prod(1), rtol=0.02
    )


def test_sums_of_float16_may_be_out_of_range_on_the_way(device):
    x = np.array([60000, 60000, -60000, -60000, 1], np.float16)
    reduction = reduction_of(x.shape, x.dtype, ReduceFunction.SUM)
    partials = [reduction.partial(x[i : i + 2], (i,), device) for i in (0, 2, 4)]
    assert reduction.results(reduction.merged(np.concatenate(partials)))[0] == 1
    norm = reduction_of(x.shape, x.dtype, ReduceFunction.L2)
    np.testing.assert_allclose(norm.results(norm.partial(x[:1], (0,), device))[0], 60000)


def windows(choose, spatial):
    """Random arguments of a pooling, and a size that they fit."""
    window = [choose.randint(1, 4) for _ in range(spatial)]
    dilations = [choose.randint(1, 3) for _ in range(spatial)]
    arguments = {
        "strides": [choose.randint(1, 4) for _ in range(spatial)],
        "dilations": dilations,
        "start_padding": [choose.randint(0, w - 1) for w in window],
        "end_padding": [choose.randint(0, w - 1) for w in window],
    }
    sizes = [choose.randint((w - 1) * d + 1, 14 + (w - 1) * d) for w, d in zip(window, dilations, strict=True)]
    return window, sizes, arguments


def outputs(pooling, x, sizes, device):
    results = [np.full(pooling.output_shape, 77, dtype) for dtype in pooling.dtypes]
    for region in Regions(pooling.output_shape, sizes):
        part = x[pooling.source(region)]
        for result, found in zip(results, pooling.outputs(part, region, device), strict=True):
            assert found.dtype == result.dtype
            result[region] = found
    return results


@pytest.mark.parametrize("kind", [MaxPooling2OperatorDesc, AveragePooling1OperatorDesc, LpPooling1OperatorDesc])
def test_poolings_of_any_blocks(kind, device):
    choose, rng = random.Random(kind.__name__), np.random.default_rng(8)
    ceilings = 0
    for number in range(12):
        spatial = 2 + number % 2
        window, sizes, arguments = windows(choose, spatial)
        leading = [choose.randint(1, 3) for _ in range(choose.randint(0, 2))]
        x = rng.integers(-9, 9, (*leading, *sizes)).astype(choose.choice(["float32", "float16"]))
        further = {}
        if kind is AveragePooling1OperatorDesc:
            further["include_padding"] = choose.random() < 0.5
        if kind is LpPooling1OperatorDesc:
            further["p"] = choose.randint(1, 4)
        nchw = x.reshape((1,) * (2 - len(leading)) + x.shape)
        desc = kind.of(nchw, window, **arguments, **further)
        sizes_out = list(desc.output_tensor.sizes[2:])
        for i in range(spatial):
            padded = sizes[i] + arguments["start_padding"][i] + arguments["end_padding"][i]
            remainder = (padded - (window[i] - 1) * arguments["dilations"][i] - 1) % arguments["strides"][i]
            begin = sizes_out[i] * arguments["strides"][i] - arguments["start_padding"][i]
            if remainder and begin < sizes[i]:  # rounded up
                sizes_out[i] += 1
                ceilings += 1
        indices = {"output_indices": True} if kind is MaxPooling2OperatorDesc else {}
        desc = kind.of(
            nchw,
            window,
            output_sizes=sizes_out,
            indices_data_type=np.uint64 if indices else None,
            **arguments,
            **further,
        )
        fields = {name: arguments[name] for name in ("strides", "dilations")} | further | indices
        fields["padding"] = [*zip(arguments["start_padding"], arguments["end_padding"], strict=True)]
        pooling = pooling_of(kind, x.shape, x.dtype, window, output_sizes=sizes_out, **fields)
        results = outputs(pooling, x, sizes_of(pooling.output_shape, choose), device)
        for got, expected, bound in zip(results, reference(desc, nchw), bounds(desc, nchw), strict=True):
            expected = expected.reshape(pooling.output_shape)
            if bound is None:
                assert (got == expected).all()
            else:
                assert (np.abs(got.astype(float) - expected) <= bound.reshape(got.shape)).all()
    assert ceilings > 2


def test_indices_beyond_32_bits(device):
    shape = (1 << 18, 3, 1 << 17)  # 2^36.6 elements
    reduction = indices_of(dmlgpu.ArgmaxOperatorDesc, shape, "uint8", axis=(0, 2))
    chunk = np.zeros((2, 3, 4), np.uint8)
    chunk[1, :, 2] = 9
    partial = reduction.partial(chunk, ((1 << 18) - 2, 0, 5), device)
    assert reduction.results(partial)[0].tolist() == [((1 << 18) - 1) * (1 << 17) + 7] * 3
    first = top_k_of((2, 1 << 35), "uint8", 3, 1)
    partial = first.partial(np.uint8([[0, 7, 7, 0], [1, 0, 0, 9]]), (0, (1 << 35) - 4), device)
    last = (1 << 35) - 1
    assert first.results(partial)[1].tolist() == [[last - 2, last - 1, last - 3], [last, last - 3, last - 2]]
    sizes, window = (1 << 17, 1 << 16), {"strides": 2, "output_indices": True}
    pooling = pooling_of(MaxPooling2OperatorDesc, (3, 1 << 18, 1 << 17), np.dtype("uint8"), (2, 2), **window)
    assert pooling.output_shape == (3, *sizes)
    window["output_sizes"] = sizes
    assert pooling_of(MaxPooling2OperatorDesc, (3, 1 << 18, 1 << 17), np.dtype("uint8"), (2, 2), **window) == pooling
    region = (slice(2, 3), slice((1 << 17) - 1, 1 << 17), slice(10, 12))
    assert pooling.source(region) == (slice(2, 3), slice((1 << 18) - 2, 1 << 18), slice(20, 24))
    _, indices = pooling.outputs(np.array([[[0, 0, 0, 1], [0, 1, 0, 0]]], np.uint8), region, device)
    row = 2 * (1 << 35)
    assert indices.tolist() == [[[row + ((1 << 18) - 1) * (1 << 17) + 21, row + ((1 << 18) - 2) * (1 << 17) + 23]]]


@pytest.mark.parametrize(("dtype", "most"), [("int32", 1 << 31), ("uint32", 1 << 32)], ids=["INT32", "UINT32"])
def test_types_of_indices_hold_them(dtype, most):
    def of(count):
        return indices_of(dmlgpu.ArgminOperatorDesc, (2, count // 2), "uint8", output=dtype)

    assert of(most).dtypes == (np.dtype(dtype),)
    allowed = "INT64, UINT64, UINT32" if dtype == "int32" else "INT64, UINT64"
    words = f"{dtype.upper()} cannot hold the index of {most + 2} reduced elements; allowed are {allowed}"
    refuses(rf"^ArgminOperatorDesc.output_tensor.data_type: {words}$", of, most + 2)
    with pytest.raises(dmlgpu.DescriptorError, match=r"^ReduceOperatorDesc.output_tensor.data_type: "):
        reduction_of((2, most // 2 + 1), "uint8", ReduceFunction.ARGMAX, dtype=dtype)


def test_types_of_indices_of_pooling_hold_them():
    uint8, indices = np.dtype("uint8"), {"output_indices": True, "indices_data_type": np.uint32}
    most = pooling_of(MaxPooling2OperatorDesc, (1 << 16, 1 << 16), uint8, 2, **indices)
    assert most.dtypes == (uint8, np.dtype("uint32"))
    words = (
        r"^MaxPooling2OperatorDesc.indices_data_type: UINT32 cannot hold the index of 4295032832 elements; allowed are "
        r"INT64, UINT64$"
    )
    refuses(words, pooling_of, MaxPooling2OperatorDesc, ((1 << 16) + 1, 1 << 16), uint8, 2, **indices)


@pytest.mark.parametrize(
    "arguments",
    [
        {"axis": 2},
        {"axis": (0, 0)},
        {"axis": ()},
        {"axis": 0, "keepdims": None},
        {"axis": 0, "axis_direction": 7},
        {"axis": 0, "dtype": "int8"},
    ],
    ids=str,
)
def test_arguments_are_checked_as_those_of_the_functions(arguments):
    x = np.ones((3, 4), np.float32)
    with pytest.raises(dmlgpu.DescriptorError) as expected:
        dmlgpu.argmax(x, **arguments)
    # Sizes are not those of the array there.
    refuses(f"^{re.escape(str(expected.value).partition(';')[0])}(;|$)", dmlgpu.argmax, dmlgpu.chunked(x), **arguments)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"window_size": (4, 2)}, r"window_size\[0\]: 4 with dilation 1 extends over 4; the padded input has only 3"),
        ({"window_size": 2, "padding": (0, 2)}, r"window_size\[1\]: window 0 along the width lies wholly in"),
        ({"window_size": 2, "output_sizes": (2, 9)}, r"output_sizes.*: .*9.* is wrong; expected "),
        ({"window_size": (1, 1, 1)}, r"input_tensor.sizes: \(3, 5\) has 2 dimensions"),
        ({"window_size": 2, "strides": 0}, "strides"),
        ({"window_size": 2, "padding": (1, (0, 1, 2))}, r"padding\[1\]: \(0, 1, 2\) is neither"),
        ({"window_size": 2, "output_indices": 1}, "output_indices"),
        ({"window_size": 2, "output_indices": True, "indices_data_type": "int32"}, "indices_data_type"),
    ],
)
def test_windows_are_checked_as_those_of_the_functions(arguments, field):
    for call in (
        lambda: dmlgpu.max_pooling(np.ones((3, 5), np.float32), **arguments),
        lambda: dmlgpu.max_pooling(dmlgpu.chunked(np.ones((3, 5), np.float32)), **arguments),
    ):
        refuses(f"MaxPooling2OperatorDesc.{field}", call)


def test_a_plane_may_be_larger_than_a_tensor():
    pooling = pooling_of(AveragePooling1OperatorDesc, (1 << 20, 1 << 20), "float32", (3, 3), padding=1)
    assert pooling.output_shape == (1 << 20, 1 << 20)
    refuses("window_size", pooling_of, AveragePooling1OperatorDesc, (1 << 20, 1 << 20), "float32", (3, 1 << 21))


def test_they_travel_to_other_processes(device):
    for each in (
        reduction_of((4, 5), "float16", ReduceFunction.MULTIPLY, axis=0),
        indices_of(dmlgpu.ArgmaxOperatorDesc, (4, 5), "int8"),
        top_k_of((4, 5), "int8", 3, 1),
        pooling_of(LpPooling1OperatorDesc, (4, 5), "float32", 2, p=3),
    ):
        assert pickle.loads(pickle.dumps(each)) == each


def test_regions_are_all_of_an_array():
    seen = np.zeros((5, 7, 3), int)
    shapes = []
    for region in Regions(seen.shape, (2, 3, 5)):
        seen[region] += 1
        shapes.append(seen[region].shape)
    assert (seen == 1).all()
    assert shapes[:3] == [(2, 3, 3), (2, 3, 3), (2, 1, 3)]
    assert len(shapes) == 9
    assert math.prod(shapes[-1]) == 3
