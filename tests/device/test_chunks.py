"""Partial results: whatever the chunks and the order of merging are, results are those of the whole array."""

import pickle
import random

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


def operand_of(shape, dtype):
    """An array that is computed in parts."""
    return Operand(shape, np.dtype(dtype), in_parts=True)


def indices_of(kind, shape, dtype, axis=None, axis_direction="increasing", output=np.int64):
    x = operand_of(shape, dtype)
    return Reduction.of(arg(kind, x, axis, True, axis_direction, output), x)


def reduction_of(shape, element_type, function, axis=None, keepdims=False, **options):
    x = operand_of(shape, element_type)
    return Reduction.of(reduced(x, function, axis, keepdims, **options), x)


def top_k_of(shape, dtype, k, axis, mode="largest"):
    x = operand_of(shape, dtype)
    return Reduction.of(top_k(x, k, axis, True, mode, True, np.int64), x)


def pooling_of(kind, shape, dtype, window_size, **window):
    return Pooling.of(pooled(kind, operand_of(shape, dtype), window_size, **window), shape)


def index_type(function):
    """The type of a function's results, if they are indices."""
    return np.int64 if "ARG" in function.name else None


def few_values(rng, dtype, shape):
    """Elements with so few values that every result has ties."""
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return rng.choice(np.array(SPECIAL[rng.integers(len(SPECIAL)) :], dtype), shape)
    return rng.integers(0, 3, shape).astype(dtype)


def elements_for(function, rng, dtype, shape):
    """Elements whose sums are much smaller than their terms, and whose products exceed the range of floats."""
    dtype = np.dtype(dtype)
    if function in SELECTIONS:
        return few_values(rng, dtype, shape)
    if dtype.kind != "f":
        return rng.integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)
    if function is ReduceFunction.MULTIPLY:
        return np.exp2(rng.uniform(-14, 14, shape)).astype(dtype) * rng.choice([-1, 1], shape).astype(dtype)
    x = rng.uniform(-100, 100, shape).astype(dtype)
    return np.abs(x) if function is ReduceFunction.LOG_SUM else x


def random_sizes(shape, choose):
    return tuple(choose.randint(1, size) for size in shape)


def random_axes(shape, choose):
    return tuple(choose.sample(range(len(shape)), choose.randint(1, len(shape))))


def results_of(reduction, x, sizes, choose, device):
    """The results of chunks of these sizes, merged in a random order and in random groups."""
    results = [np.full(reduction.reduced(reduction.sizes), 77, dtype) for dtype in reduction.dtypes]
    along = tuple(size if axis in reduction.axes else 1 for axis, size in enumerate(x.shape))
    whole = tuple(reduction.sizes[i] if i in reduction.axes else size for i, size in enumerate(sizes))
    for outputs in Regions(reduction.sizes, whole):
        partials = []
        for part in Regions(along, sizes):
            chunk = tuple((part if axis in reduction.axes else outputs)[axis] for axis in range(x.ndim))
            partials.append(reduction.partial(x[chunk], tuple(side.start for side in chunk), device))
        choose.shuffle(partials)
        while len(partials) > 1:
            count = choose.randint(2, len(partials))
            partials.append(reduction.merged(np.concatenate(partials[:count], choose.choice(reduction.axes))))
            partials = partials[count:]
        assert partials[0].dtype == reduction.partial_type
        for result, part in zip(results, reduction.results(partials[0]), strict=True):
            result[reduction.reduced(outputs)] = part
    return results


def rounding_of_chunks(function, x, axes, expected):
    """The error that rounding the sums of chunks adds to the bound of the whole array."""
    expected, terms = expected.astype(np.float64), np.abs(x.astype(np.float64))
    match function:
        case ReduceFunction.SUM | ReduceFunction.L1:
            error = terms.sum(axes, keepdims=True)
        case ReduceFunction.AVERAGE:
            error = terms.mean(axes, keepdims=True)
        case ReduceFunction.SUM_SQUARE:
            error = (terms**2).sum(axes, keepdims=True)
        case ReduceFunction.L2:
            error = (terms**2).sum(axes, keepdims=True) / expected
        case ReduceFunction.LOG_SUM:
            error = terms.sum(axes, keepdims=True) / np.exp(expected)
        case _:
            error = 0
    return error * U


@pytest.mark.parametrize("function", ReduceFunction, ids=lambda function: function.name)
def test_reductions_do_not_depend_on_the_chunks(function, device):
    rng, choose = np.random.default_rng(function.value), random.Random(function.value)
    for data_type in [*REDUCE_TYPES[function]["input_tensor"]] * 3:
        shape = choose.choice([(37,), (9, 10), (4, 5, 6), (2, 3, 4, 5), (3, 2, 2, 3, 4)])
        axes, x = random_axes(shape, choose), elements_for(function, rng, data_type.numpy, shape)
        desc = dmlgpu.ReduceOperatorDesc.of(function, x, axes, output_data_type=index_type(function))
        reduction = reduction_of(shape, x.dtype, function, axes, keepdims=True)
        (result,) = results_of(reduction, x, random_sizes(shape, choose), choose, device)
        (expected,), (bound,) = reference(desc, x), bounds(desc, x)
        assert result.dtype == expected.dtype
        if bound is None:
            np.testing.assert_array_equal(bits(result), bits(expected))
            continue
        with np.errstate(invalid="ignore"):
            error = np.abs(result.astype(np.float64) - expected)
        allowed = bound + rounding_of_chunks(function, x, axes, expected)
        assert ((error <= allowed) | (result == expected) | np.isinf(bound)).all()


@pytest.mark.parametrize("direction", dmlgpu.AxisDirection, ids=lambda direction: direction.name)
@pytest.mark.parametrize("kind", [dmlgpu.ArgmaxOperatorDesc, dmlgpu.ArgminOperatorDesc])
def test_ties_do_not_depend_on_the_chunks(kind, direction, device):
    rng, choose = np.random.default_rng(3), random.Random(direction.value)
    for dtype in ("float32", "float16", "float64", "uint8", "int64", "bool") * 5:
        shape = choose.choice([(12, 13), (5, 4, 6), (3, 4, 3, 4)])
        axes, x = random_axes(shape, choose), few_values(rng, dtype, shape)
        reduction = indices_of(kind, shape, x.dtype, axes, direction)
        (result,) = results_of(reduction, x, random_sizes(shape, choose), choose, device)
        numbers = x.view(np.uint8) if dtype == "bool" else x
        (expected,) = reference(kind.of(numbers, axes, direction, output_data_type=np.int64), numbers)
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("mode", ["largest", "smallest"])
def test_top_k_does_not_depend_on_the_chunks(mode, device):
    rng, choose = np.random.default_rng(5), random.Random(mode)
    for dtype in ("float32", "float16", "float64", "uint8", "int64", "uint64", "bool") * 5:
        shape = choose.choice([(37,), (12, 13), (5, 4, 6), (3, 4, 3, 4)])
        axis, x = choose.randrange(len(shape)), few_values(rng, dtype, shape)
        k = choose.randint(1, shape[axis])
        reduction = top_k_of(shape, x.dtype, k, axis, mode)
        values, indices = results_of(reduction, x, random_sizes(shape, choose), choose, device)
        numbers = x.view(np.uint8) if dtype == "bool" else x
        direction = dmlgpu.AxisDirection.DECREASING if mode == "largest" else dmlgpu.AxisDirection.INCREASING
        expected = reference(dmlgpu.TopK1OperatorDesc.of(numbers, k, axis, direction), numbers)
        assert (values.dtype, indices.dtype) == (x.dtype, np.int64)
        np.testing.assert_array_equal(bits(values), bits(expected[0]))
        np.testing.assert_array_equal(indices, expected[1])


@pytest.mark.parametrize("function", SELECTIONS, ids=lambda function: function.name)
@pytest.mark.parametrize(
    ("shape", "axes", "sizes"),
    [
        ((9001, 8), (1,), (9001, 3)),
        ((97, 5, 95), (1,), (97, 2, 95)),
        ((5, 9001, 4), (0, 2), (2, 9001, 3)),
        ((3, 4, 20_000), (0, 1), (2, 3, 9001)),
    ],
    ids=str,
)
def test_chunks_may_have_more_outputs_than_a_buffer_of_numpy(function, shape, axes, sizes, device):
    """NumPy's buffers have 8,192 elements."""
    x = np.random.default_rng(function.value).integers(0, 256, shape, np.uint8)
    (expected,) = reference(dmlgpu.ReduceOperatorDesc.of(function, x, axes, output_data_type=index_type(function)), x)
    for order in ("C", "F"):
        reduction = reduction_of(shape, x.dtype, function, axes)
        (result,) = results_of(reduction, np.asarray(x, order=order), sizes, random.Random(0), device)
        np.testing.assert_array_equal(result, expected.squeeze(axes))


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
def test_products_of_chunks_may_exceed_the_range_of_floats(chunks, device):
    x = np.concatenate([np.float32(chunk) for chunk in chunks])
    reduction = reduction_of(x.shape, x.dtype, ReduceFunction.MULTIPLY)
    partials = [reduction.partial(np.float32(chunk), (0,), device) for chunk in chunks]
    (result,) = reduction.results(reduction.merged(np.concatenate(partials)))
    with np.errstate(all="ignore"):
        expected = np.float32(np.prod(x.astype(np.longdouble)))
    np.testing.assert_allclose(result, expected, rtol=x.size * U)
    assert np.signbit(result) == np.signbit(expected)


@pytest.mark.parametrize(("exponent", "expected"), [(1 << 40, np.inf), (-(1 << 40), 0), (-149, 2.0**-149)])
def test_products_may_have_any_exponent(exponent, expected):
    reduction = reduction_of((3,), "float32", ReduceFunction.MULTIPLY)
    partial = np.array([(1.0, exponent)], reduction.partial_type)
    assert reduction.results(partial)[0] == expected
    assert reduction.results(reduction.merged(np.repeat(partial, 2)))[0] == np.float32(expected * expected)


def test_products_of_many_mantissas_stay_accurate(device):
    x = np.full((3, 100_001), 0.75, np.float32)
    x[:, ::2] = 1 / 0.75
    reduction = reduction_of(x.shape, x.dtype, ReduceFunction.MULTIPLY, axis=1)
    (result,) = reduction.results(reduction.partial(x, (0, 0), device))
    np.testing.assert_allclose(result, x.astype(float).prod(1), rtol=0.02)


def test_partial_sums_of_float16_may_exceed_its_range(device):
    x = np.array([60000, 60000, -60000, -60000, 1], np.float16)
    reduction = reduction_of(x.shape, x.dtype, ReduceFunction.SUM)
    partials = [reduction.partial(x[i : i + 2], (i,), device) for i in (0, 2, 4)]
    assert reduction.results(reduction.merged(np.concatenate(partials)))[0] == 1
    norm = reduction_of(x.shape, x.dtype, ReduceFunction.L2)
    np.testing.assert_allclose(norm.results(norm.partial(x[:1], (0,), device))[0], 60000)


def random_window(kind, choose, spatial):
    """Random arguments of a pooling, and spatial sizes that its windows fit."""
    size = [choose.randint(1, 4) for _ in range(spatial)]
    dilations = [choose.randint(1, 3) for _ in range(spatial)]
    window = {
        "window_size": size,
        "strides": [choose.randint(1, 4) for _ in range(spatial)],
        "dilations": dilations,
        "padding": [(choose.randint(0, k - 1), choose.randint(0, k - 1)) for k in size],
    }
    if kind is MaxPooling2OperatorDesc:
        window["output_indices"] = True
    if kind is AveragePooling1OperatorDesc:
        window["include_padding"] = choose.random() < 0.5
    if kind is LpPooling1OperatorDesc:
        window["p"] = choose.randint(1, 4)
    extents = [(k - 1) * dilation for k, dilation in zip(size, dilations, strict=True)]
    return window, [choose.randint(extent + 1, 14 + extent) for extent in extents]


def with_more_outputs(kind, x, window):
    """The call of a pooling with one more window along each dimension in which a begun window fits."""
    call = pooled(kind, x, **window)
    sizes = [*call.desc.output_tensor.sizes[2:]]
    for i in range(len(sizes)):
        more = [*sizes[:i], sizes[i] + 1, *sizes[i + 1 :]]
        try:
            call, sizes = pooled(kind, x, **window, output_sizes=more), more
        except dmlgpu.DescriptorError:
            continue
    return call


@pytest.mark.parametrize("kind", [MaxPooling2OperatorDesc, AveragePooling1OperatorDesc, LpPooling1OperatorDesc])
def test_poolings_do_not_depend_on_the_regions(kind, device):
    choose, rng = random.Random(kind.__name__), np.random.default_rng(8)
    for number in range(12):
        window, spatial = random_window(kind, choose, 2 + number % 2)
        leading = [choose.randint(1, 3) for _ in range(choose.randint(0, 2))]
        x = rng.integers(-9, 9, (*leading, *spatial)).astype(choose.choice(["float32", "float16"]))
        call = with_more_outputs(kind, operand_of(x.shape, x.dtype), window)
        pooling = Pooling.of(call, x.shape)
        results = [np.full(pooling.output_shape, 77, dtype) for dtype in pooling.dtypes]
        for region in Regions(pooling.output_shape, random_sizes(pooling.output_shape, choose)):
            parts = pooling.outputs(x[pooling.source(region)], region, device)
            for result, part in zip(results, parts, strict=True):
                assert part.dtype == result.dtype
                result[region] = part
        nchw = x.reshape(call.desc.input_tensor.sizes)
        for result, expected, bound in zip(results, reference(call.desc, nchw), bounds(call.desc, nchw), strict=True):
            error = np.abs(result.astype(float) - expected.reshape(result.shape))
            assert (error <= (0 if bound is None else bound.reshape(result.shape))).all()


def test_indices_may_exceed_32_bits(device):
    reduction = indices_of(dmlgpu.ArgmaxOperatorDesc, (1 << 18, 3, 1 << 17), "uint8", axis=(0, 2))
    chunk = np.zeros((2, 3, 4), np.uint8)
    chunk[1, :, 2] = 9
    (indices,) = reduction.results(reduction.partial(chunk, ((1 << 18) - 2, 0, 5), device))
    assert indices.ravel().tolist() == [((1 << 18) - 1) * (1 << 17) + 7] * 3


def test_indices_of_top_k_may_exceed_32_bits(device):
    reduction, last = top_k_of((2, 1 << 35), "uint8", 3, 1), (1 << 35) - 1
    partial = reduction.partial(np.uint8([[0, 7, 7, 0], [1, 0, 0, 9]]), (0, last - 3), device)
    assert reduction.results(partial)[1].tolist() == [[last - 2, last - 1, last - 3], [last, last - 3, last - 2]]


def test_indices_of_pooling_may_exceed_32_bits(device):
    window = {"strides": 2, "output_indices": True}
    pooling = pooling_of(MaxPooling2OperatorDesc, (3, 1 << 18, 1 << 17), "uint8", (2, 2), **window)
    assert pooling.output_shape == (3, 1 << 17, 1 << 16)
    region = (slice(2, 3), slice((1 << 17) - 1, 1 << 17), slice(10, 12))
    assert pooling.source(region) == (slice(2, 3), slice((1 << 18) - 2, 1 << 18), slice(20, 24))
    _, indices = pooling.outputs(np.array([[[0, 0, 0, 1], [0, 1, 0, 0]]], np.uint8), region, device)
    plane, row = 2 << 35, 1 << 17
    assert indices.tolist() == [[[plane + ((1 << 18) - 1) * row + 21, plane + ((1 << 18) - 2) * row + 23]]]


@pytest.mark.parametrize(("dtype", "most"), [("int32", 1 << 31), ("uint32", 1 << 32)], ids=["INT32", "UINT32"])
def test_types_of_indices_hold_them(dtype, most):
    def indices_among(count):
        return indices_of(dmlgpu.ArgminOperatorDesc, (2, count // 2), "uint8", output=dtype)

    assert indices_among(most).dtypes == (np.dtype(dtype),)
    allowed = "INT64, UINT64, UINT32" if dtype == "int32" else "INT64, UINT64"
    words = f"{dtype.upper()} cannot hold the index of {most + 2} reduced elements; allowed are {allowed}"
    refuses(rf"^ArgminOperatorDesc.output_tensor.data_type: {words}$", indices_among, most + 2)
    words = r"^ReduceOperatorDesc.output_tensor.data_type: "
    refuses(words, reduction_of, (2, most // 2 + 1), "uint8", ReduceFunction.ARGMAX, dtype=dtype)


def test_types_of_indices_of_pooling_hold_them():
    indices = {"output_indices": True, "indices_data_type": np.uint32}
    pooling = pooling_of(MaxPooling2OperatorDesc, (1 << 16, 1 << 16), "uint8", 2, **indices)
    assert pooling.dtypes == (np.dtype("uint8"), np.dtype("uint32"))
    words = "UINT32 cannot hold the index of 4295032832 elements; allowed are INT64, UINT64$"
    shape = (1 << 16) + 1, 1 << 16
    refuses(rf"indices_data_type: {words}", pooling_of, MaxPooling2OperatorDesc, shape, "uint8", 2, **indices)


def test_a_plane_may_be_larger_than_a_tensor():
    pooling = pooling_of(AveragePooling1OperatorDesc, (1 << 20, 1 << 20), "float32", (3, 3), padding=1)
    assert pooling.output_shape == (1 << 20, 1 << 20)
    refuses("window_size", pooling_of, AveragePooling1OperatorDesc, (1 << 20, 1 << 20), "float32", (3, 1 << 21))


@pytest.mark.parametrize(
    "plan",
    [
        reduction_of((4, 5), "float16", ReduceFunction.MULTIPLY, axis=0),
        indices_of(dmlgpu.ArgmaxOperatorDesc, (4, 5), "int8"),
        top_k_of((4, 5), "int8", 3, 1),
        pooling_of(LpPooling1OperatorDesc, (4, 5), "float32", 2, p=3),
    ],
    ids=["reduction", "indices", "top_k", "pooling"],
)
def test_plans_of_chunks_can_be_pickled(plan):
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_regions_cover_an_array_once():
    times = np.zeros((5, 7, 3), int)
    for region in Regions(times.shape, (2, 3, 5)):
        times[region] += 1
    assert (times == 1).all()
    assert [times[region].shape for region in Regions(times.shape, (2, 3, 5))][:3] == [(2, 3, 3), (2, 3, 3), (2, 1, 3)]
