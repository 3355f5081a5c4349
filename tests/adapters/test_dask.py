"""Dask arrays: whatever their chunks are, results are those of the oracle for the whole array."""

import math
import os
import pickle

import dask
import dask.array as da
import jax.numpy
import numpy as np
import pytest

import dmlgpu
from dmlgpu import AxisDirection, DataType, ReduceFunction
from dmlgpu.chunks.reduction import Reduction
from dmlgpu.comparison import differences
from dmlgpu.descriptors.tensor import bits
from dmlgpu.reference.bounds import bounds

ARGS = {"argmax": dmlgpu.ArgmaxOperatorDesc, "argmin": dmlgpu.ArgminOperatorDesc}
POOLINGS = {
    "max_pooling": dmlgpu.MaxPooling2OperatorDesc,
    "average_pooling": dmlgpu.AveragePooling1OperatorDesc,
    "lp_pooling": dmlgpu.LpPooling1OperatorDesc,
}
FUNCTIONS = [*ARGS, "reduce", *POOLINGS]
FLOATS = ["float32", "float16"]
WORDS = ["int32", "uint32", "int64", "uint64"]
SELECTED = [*FLOATS, *WORDS, "int8", "uint8", "int16", "uint16", "float64", "bool"]
SELECTIONS = {
    F.name: SELECTED for F in (ReduceFunction.ARGMAX, ReduceFunction.ARGMIN, ReduceFunction.MAX, ReduceFunction.MIN)
}
OF_INTEGERS = (ReduceFunction.SUM, ReduceFunction.MULTIPLY, ReduceFunction.L1, ReduceFunction.SUM_SQUARE)


@pytest.fixture(autouse=True)
def _on_the_driver(driver, monkeypatch):
    monkeypatch.setenv("DMLGPU_DEVICE", str(driver.index))
    with dask.config.set(scheduler="synchronous"):
        yield


def chunked(x, rng):
    """In random chunks, some of no elements."""

    def sizes(size):
        cuts = sorted(rng.integers(0, size + 1, rng.integers(0, 4)).tolist())
        return tuple(np.diff([0, *cuts, size]).tolist())

    return da.from_array(x, chunks=tuple(map(sizes, x.shape)))


def elements(dtype, shape, rng):
    """Few values, so that there are ties, and of floats those that comparisons get wrong first."""
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    x = rng.integers(0 if np.dtype(dtype).kind == "u" else -3, 4, shape).astype(dtype)
    if x.dtype.kind == "f":
        special = rng.choice(np.array([0.0, -0.0, np.nan, np.inf, -np.inf], dtype), shape)
        x = np.where(rng.random(shape) < rng.choice([0, 0.2, 0.8]), special, x)
    return x


def computed(*results):
    """Results, which are as they were announced."""
    arrays = dask.compute(*results)
    for lazy, got in zip(results, arrays, strict=True):
        assert isinstance(lazy, da.Array)
        assert (lazy.shape, lazy.dtype) == (np.shape(got), got.dtype)
        assert (lazy._meta.ndim, lazy._meta.dtype) == (lazy.ndim, lazy.dtype)
        # Every block, too.
        for block, sizes in zip(lazy.to_delayed().ravel(), np.ndindex(lazy.numblocks), strict=True):
            assert np.shape(block.compute()) == tuple(c[i] for c, i in zip(lazy.chunks, sizes, strict=True))
    return arrays


def shape_of(rng, least=1):
    return tuple(rng.integers(1, 7, rng.integers(least, 6)).tolist())


def axes_of(rank, rng):
    return tuple(rng.permutation(rank)[: rng.integers(1, rank + 1)].tolist())


def test_ties_across_chunks_in_two_dimensions():
    """dask.array.argmax gives 4."""
    x = np.zeros((4, 4), np.float32)
    x[1, 0] = x[0, 2] = 1
    for dtype in SELECTED:
        d = da.from_array(x.astype(dtype), chunks=2)
        assert dmlgpu.argmax(d).compute() == 2
        assert dmlgpu.argmax(d, axis_direction=AxisDirection.DECREASING).compute() == 4
        assert dmlgpu.argmin(d).compute() == 0
        assert dmlgpu.argmin(d, axis_direction=AxisDirection.DECREASING).compute() == 15


@pytest.mark.parametrize("seed", range(12))
def test_maxima_and_their_indices(seed):
    rng = np.random.default_rng(seed)
    x = elements(SELECTED[seed], shape_of(rng), rng)
    axis, keepdims = axes_of(x.ndim, rng), bool(rng.integers(2))
    for name in ("max", "min"):
        function = getattr(dmlgpu, name)
        got = computed(*function(chunked(x, rng), axis, keepdims=keepdims, output_indices=True))
        for array, expected in zip(got, function(x, axis, keepdims=keepdims, output_indices=True), strict=True):
            assert (array.dtype, np.shape(array)) == (expected.dtype, np.shape(expected))
            np.testing.assert_array_equal(bits(np.asarray(array)), bits(np.asarray(expected)))


@pytest.mark.parametrize("seed", range(24))
def test_top_k(seed):
    rng = np.random.default_rng(seed)
    x = elements(SELECTED[seed % len(SELECTED)], shape_of(rng), rng)
    axis = int(rng.integers(-x.ndim, x.ndim))
    k, mode = int(rng.integers(1, x.shape[axis] + 1)), ("largest", "smallest")[seed % 2]
    got = computed(*dmlgpu.top_k(chunked(x, rng), k, axis=axis, mode=mode, indices_data_type="int32"))
    expected = dmlgpu.top_k(x, k, axis=axis, mode=mode, indices_data_type="int32")
    for ours, theirs in zip(got, expected, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(bits(ours), bits(theirs))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint32", "bool"])
@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod"])
def test_scans(name, dtype):
    """Those of the whole array, bit for bit, but for rounded products and sums: these are small integers."""
    rng = np.random.default_rng(len(dtype))
    exact = {"exact": True} if name == "cumulative_sum" else {}
    for number in range(4):
        x = (elements(dtype, shape_of(rng), rng) if exact else rng.integers(1, 3, shape_of(rng))).astype(dtype)
        x = np.where(np.isfinite(x), x, x.dtype.type(1))
        direction = AxisDirection(number % 2)
        options = {"axis": int(rng.integers(x.ndim)), "axis_direction": direction, "include_initial": number > 1}
        (got,) = computed(getattr(dmlgpu, name)(chunked(x, rng), **options, **exact))
        np.testing.assert_array_equal(got, getattr(dmlgpu, name)(x, **options, **exact), strict=True)
    nothing = da.zeros((0, 4), chunks=(0, 3), dtype=dtype)
    for initial in (False, True):
        (got,) = computed(getattr(dmlgpu, name)(nothing, axis=0, include_initial=initial))
        assert got.tolist() == [[name == "cumulative_prod"] * 4] * initial


def test_top_k_of_many_chunks(monkeypatch):
    """No task has more than k elements of a few chunks, and results have one chunk along the axis."""
    merged, sizes = Reduction.merged, []

    def spy(self, partials):
        sizes.append(partials.size)
        return merged(self, partials)

    monkeypatch.setattr(Reduction, "merged", spy)
    x = np.random.default_rng(11).integers(0, 99, (3, 2560)).astype(np.int16)
    with dask.config.set(split_every=4):
        values, indices = dmlgpu.top_k(da.from_array(x, chunks=(1, 10)), 7)
        assert values.chunks == indices.chunks == ((1, 1, 1), (7,))
        for got, expected in zip(computed(values, indices), dmlgpu.top_k(x, 7), strict=True):
            np.testing.assert_array_equal(got, expected, strict=True)
    assert max(sizes) == 4 * 7
    # Both results are of the same partials.
    assert len(set(values.dask.layers) & set(indices.dask.layers)) >= 3


def test_top_k_of_other_dask_arrays(tmp_path):
    x = da.from_array(np.float32([[5, 1, 5], [2, 2, 9]]), chunks=(1, 2))
    paths = tmp_path / "values.npy", tmp_path / "indices.npy"
    dmlgpu.top_k(x, 2, mode="smallest", out=paths)
    assert [np.load(path).tolist() for path in paths] == [[[1, 5], [2, 2]], [[1, 0], [0, 1]]]
    for got, expected in zip(computed(*dmlgpu.top_k(da.from_array(np.int8(3)), 1)), (3, 0), strict=True):
        assert got == expected
    nothing = da.zeros((0, 4), chunks=(0, 3), dtype=np.float32)
    for got, dtype in zip(computed(*dmlgpu.top_k(nothing, 3)), (np.float32, np.int64), strict=True):
        assert (got.shape, got.dtype) == ((0, 3), dtype)
    with pytest.raises(dmlgpu.DescriptorError, match=r"^TopK1OperatorDesc\.k: 4 is out of range; allowed are 1 to 3"):
        dmlgpu.top_k(x, 4)
    lie = x.map_blocks(lambda chunk: chunk.astype(int), dtype=np.float32, meta=np.empty((0, 0), np.float32))
    with pytest.raises(dmlgpu.DescriptorError, match=r"^top_k\.x: chunk \(\d, \d\) of x is int64 .*, declared as fl"):
        dmlgpu.top_k(lie, 1)[1].compute()


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("name", ARGS)
def test_indices(name, seed):
    rng = np.random.default_rng(seed)
    dtype = SELECTED[seed % len(SELECTED)]
    x = elements(dtype, shape_of(rng), rng)
    axes = tuple(sorted(axes_of(x.ndim, rng)))
    direction = AxisDirection(int(rng.integers(2)))
    data_type = (DataType.INT64, DataType.UINT32, DataType.INT32, DataType.UINT64)[rng.integers(4)]
    seen = x.astype(np.uint8) if dtype == "bool" else x
    desc = ARGS[name].of(seen, axes=axes, axis_direction=direction, output_data_type=data_type)
    (expected,) = dmlgpu.reference(desc, x)
    function, d = getattr(dmlgpu, name), chunked(x, rng)
    options = {"axis_direction": direction, "dtype": data_type}
    kept, dropped, negative = computed(
        function(d, axes, keepdims=True, **options),
        function(d, axes, **options),
        function(d, axis=tuple(i - x.ndim for i in axes), keepdims=True, **options),
    )
    assert kept.dtype == expected.dtype
    np.testing.assert_array_equal(kept, expected)
    np.testing.assert_array_equal(dropped, expected.squeeze(axes))
    np.testing.assert_array_equal(negative, expected)


REDUCED = [
    (function, dtype)
    for function in ReduceFunction
    for dtype in SELECTIONS.get(function.name, [*FLOATS, *(WORDS if function in OF_INTEGERS else [])])
]


@pytest.mark.parametrize(("function", "dtype"), REDUCED, ids=[f"{f.name}-{dtype}" for f, dtype in REDUCED])
def test_reductions(function, dtype):
    rng = np.random.default_rng(len(function.name))
    for _ in range(3):
        selects = function.name in SELECTIONS
        x = elements(dtype, shape_of(rng), rng)
        if not selects and dtype in FLOATS:
            least = 0.5 if function is ReduceFunction.LOG_SUM else -2
            x = rng.uniform(least, 2, x.shape).astype(dtype)
        elif not selects:  # sums and products wrap
            x = rng.integers(0, np.iinfo(dtype).max, x.shape, dtype)
        axes = axes_of(x.ndim, rng)
        seen = x.astype(np.uint8) if dtype == "bool" else x
        desc = dmlgpu.ReduceOperatorDesc.of(function, seen, axes=tuple(sorted(axes)))
        (expected,), (bound,) = dmlgpu.reference(desc, x), bounds(desc, seen)
        kept, dropped = computed(
            dmlgpu.reduce(chunked(x, rng), function, tuple(sorted(axes)), keepdims=True),
            dmlgpu.reduce(chunked(x, rng), function, axes),
        )
        assert kept.dtype == (x.dtype if "ARG" not in function.name else np.int64)
        if bound is None:
            np.testing.assert_array_equal(dropped, kept.squeeze(axes))
            np.testing.assert_array_equal(bits(np.asarray(kept).astype(expected.dtype)), bits(expected))
        else:
            distance = np.abs(kept.astype(np.float64) - expected)
            assert (distance <= bound + rounding(function, x.astype(np.float64), axes, expected)).all()
            np.testing.assert_allclose(dropped, kept.squeeze(axes), rtol=2e-3 if dtype == "float16" else 1e-5)


def rounding(function, x, axes, value):
    """What rounding the sums of chunks may add: 2^-23 of the sum of the absolute terms, and what comes of it."""
    terms = np.abs(x).sum(tuple(axes), keepdims=True)
    match function:
        case ReduceFunction.SUM | ReduceFunction.L1:
            off = terms
        case ReduceFunction.AVERAGE:
            off = terms / (x.size / terms.size)
        case ReduceFunction.SUM_SQUARE:
            off = np.square(x).sum(tuple(axes), keepdims=True)
        case ReduceFunction.LOG_SUM:
            off = 1
        case _:  # L2, LOG_SUM_EXP, MULTIPLY
            off = np.abs(value)
    return off * 2**-23


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("function", ["sum", "average", "l1", "l2", "sum_square"])
def test_exact_sums_are_those_of_the_whole_array(dtype, function):
    x = np.random.default_rng(3).standard_normal((30, 41, 5)).astype(dtype)
    for chunks in ((30, 41, 5), (7, 9, 2), (1, 41, 5)):
        for axis in (None, 1, (0, 2)):
            got = dmlgpu.reduce(da.from_array(x, chunks=chunks), function, axis, exact=True).compute()
            assert got.tobytes() == dmlgpu.reduce(x, function, axis, exact=True).tobytes()
        averages = dmlgpu.average_pooling(da.from_array(x, chunks=chunks), (3, 2), padding=1, exact=True)
        assert averages.compute().tobytes() == dmlgpu.average_pooling(x, (3, 2), padding=1, exact=True).tobytes()


def test_an_exact_sum_of_one_chunk_is_that_of_the_device(monkeypatch):
    x = np.random.default_rng(4).standard_normal((9, 10)).astype(np.float32)
    monkeypatch.setattr(Reduction, "partial", None)
    for axis in (0, 1, (0, 1)):
        d = da.from_array(x, chunks=tuple(size if i in np.atleast_1d(axis) else 2 for i, size in enumerate(x.shape)))
        for keepdims in (False, True):
            (got,) = computed(dmlgpu.sum(d, axis, keepdims=keepdims, exact=True))
            expected = dmlgpu.sum(x, axis, keepdims=keepdims, exact=True)
            assert type(got) is type(expected)
            np.testing.assert_array_equal(got, expected, strict=True)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", ">i2", "uint32", "int64", "float16", ">f4"])
def test_functions_of_numpy(dtype):
    rng = np.random.default_rng(6)
    x = rng.integers(0, 2, (5, 6)).astype(dtype) if dtype == "bool" else rng.integers(1, 3, (5, 6)).astype(dtype)
    for name in ("sum", "prod", "max", "min", "mean")[: 4 + (x.dtype.kind == "f")]:
        options = {"exact": True} if name == "mean" else {}
        function = getattr(dmlgpu, name)
        for axis, keepdims in ((None, False), (0, True), ((0, 1), False), (-1, False)):
            (got,) = computed(function(chunked(x, rng), axis, keepdims=keepdims, **options))
            expected = function(x, axis, keepdims=keepdims, **options)
            assert type(got) is type(expected)
            np.testing.assert_array_equal(got, expected, strict=True)
        if name in ("sum", "prod"):
            for other in ("uint8", "float32"):
                (got,) = computed(function(chunked(x, rng), 0, dtype=other))
                np.testing.assert_array_equal(got, function(x, 0, dtype=other), strict=True)


@pytest.mark.parametrize("dtype", ["uint8", "float16"])
def test_identities_of_no_elements(dtype):
    x = da.zeros((3, 0, 2), chunks=(2, 1, 1), dtype=dtype)
    for name in ("sum", "prod", "mean")[: 2 + (x.dtype.kind == "f")]:
        for axis, keepdims in ((None, False), (1, False), ((0, 1), True), (0, False)):
            (got,) = computed(getattr(dmlgpu, name)(x, axis, keepdims=keepdims))
            expected = getattr(dmlgpu, name)(np.zeros(x.shape, dtype), axis, keepdims=keepdims)
            assert type(got) is type(expected)
            np.testing.assert_array_equal(got, expected, strict=True)
    with pytest.raises(dmlgpu.DescriptorError, match="are empty"):
        dmlgpu.max(x, 1)


def test_numpy_keeps_its_functions():
    """They are those of Dask, of which np.argmax is another one where there are ties."""
    x = np.zeros((4, 4), np.float32)
    x[1, 0] = x[0, 2] = 1
    d = da.from_array(x, chunks=2)
    assert isinstance(np.argmax(d), da.Array)
    assert np.argmax(d).dask.layers.keys() == d.argmax().dask.layers.keys()
    assert np.sum(d, axis=0).name == d.sum(axis=0).name


def test_chunks_may_be_read_one_after_another():
    x = np.random.default_rng(1).random((9, 8), np.float32)
    read = []
    d = da.from_array(x, chunks=4).map_blocks(lambda chunk: read.append(chunk.shape) or chunk, meta=x[:0, :0])
    assert dmlgpu.argmax(dmlgpu.chunked(d, chunk_bytes=64)) == x.argmax()
    assert max(read) <= (4, 4)


def test_functions_that_take_no_dask_arrays():
    x = da.ones((1, 3, 3), dtype=np.float32)
    words = r"\(\) takes neither chunked nor Dask arrays; pass arrays or device tensors$"
    with pytest.raises(TypeError, match=f"^average_pooling_grad{words}"):
        dmlgpu.average_pooling_grad(x, (4, 4), 2)
    with pytest.raises(TypeError, match=f"^max_pooling_grad{words}"):
        dmlgpu.max_pooling_grad(x, np.ones((1, 2, 2), np.float32), 2)
    with pytest.raises(TypeError, match=f"^max_unpooling{words}"):
        dmlgpu.max_unpooling(np.ones((1, 3, 3), np.float32), x.astype(np.int64), 4)


def test_exact_sums_of_nothing():
    x = da.zeros((3, 0), chunks=(2, 1), dtype=np.float32)
    assert dmlgpu.reduce(x, "sum", 0, exact=True).compute().shape == (0,)


WINDOWS = {
    "strides": lambda rng, spatial: rng.integers(1, 5, spatial).tolist(),
    "dilations": lambda rng, spatial: rng.integers(1, 4, spatial).tolist(),
    "padding": lambda rng, spatial: rng.integers(0, 4, (spatial, 2)).tolist(),
}


def pooled_cases(name, seed):
    """An array, its windows and the descriptor: what the oracle allows."""
    rng = np.random.default_rng(seed)
    while True:
        spatial = int(rng.integers(2, 4))
        rank = spatial + int(rng.integers(0, 3))
        shape = (*rng.integers(1, 4, rank - spatial).tolist(), *rng.integers(1, 13, spatial).tolist())
        window = {field: draw(rng, spatial) for field, draw in WINDOWS.items() if rng.random() < 0.6}
        size = tuple(rng.integers(1, 6, spatial).tolist())
        dtype = SELECTED[seed % len(SELECTED)] if name == "max_pooling" else FLOATS[seed % 2]
        x = elements(dtype, shape, rng)
        if name != "max_pooling":
            x = rng.uniform(-2, 2, shape).astype(dtype)
        if name == "average_pooling":
            window["include_padding"] = bool(rng.integers(2))
        if name == "lp_pooling":
            window["p"] = int(rng.integers(1, 4))
        seen = x.astype(np.uint8) if dtype == "bool" else x
        fields = {name: value for name, value in window.items() if name != "padding"}
        if "padding" in window:
            fields["start_padding"], fields["end_padding"] = zip(*window["padding"], strict=True)
        whole = seen.reshape((1,) * (2 + spatial - rank) + shape)
        indices = {"indices_data_type": DataType.UINT64} if name == "max_pooling" else {}
        try:
            desc = POOLINGS[name].of(whole, window_size=size, **fields, **indices)
            if rng.random() < 0.3:  # a window that hangs over the end
                sizes = tuple(n + 1 for n in desc.output_tensor.sizes[2:])
                desc = POOLINGS[name].of(whole, window_size=size, output_sizes=sizes, **fields, **indices)
                window["output_sizes"] = sizes
        except dmlgpu.DescriptorError:
            continue
        return rng, x, whole, size, window, desc


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("name", POOLINGS)
def test_poolings(name, seed):
    rng, x, whole, size, window, desc = pooled_cases(name, seed)
    expected = dmlgpu.reference(desc, whole)
    if name == "max_pooling":
        results = dmlgpu.max_pooling(chunked(x, rng), size, output_indices=True, **window)
        (alone,) = computed(dmlgpu.max_pooling(chunked(x, rng), size, **window))
        values, indices = computed(*results)
        assert indices.dtype == np.int64
        np.testing.assert_array_equal(bits(alone), bits(values))
        outputs = values, indices.view(np.uint64)
    else:
        outputs = computed(getattr(dmlgpu, name)(chunked(x, rng), size, **window))
    assert outputs[0].dtype == x.dtype
    outputs = [y.reshape(z.shape).astype(z.dtype) for y, z in zip(outputs, expected, strict=True)]
    assert [*differences(desc, (whole,), outputs, expected)] == []


@pytest.mark.parametrize(("stride", "dilation", "width"), [(2, 1, 18), (2, 3, 18), (5, 1, 17), (5, 3, 22), (3, 2, 20)])
def test_a_last_window_that_hangs_over_is_alone_in_its_block(stride, dilation, width):
    x = np.random.default_rng(4).uniform(1, 2, (5, width)).astype(np.float32)
    for name, more in (*((name, {}) for name in POOLINGS), ("average_pooling", {"include_padding": True})):
        window = {"strides": (1, stride), "dilations": (1, dilation), "padding": (0, (0, 1)), **more}
        outputs = getattr(dmlgpu, name)(x, (2, 4), **window).shape[1] + 1
        window["output_sizes"] = (4, outputs)
        expected = getattr(dmlgpu, name)(x, (2, 4), **window)
        begin = (outputs - 1) * stride
        got = getattr(dmlgpu, name)(da.from_array(x, chunks=((5,), (begin, width - begin))), (2, 4), **window)
        assert got.chunks[1] == (outputs - 1, 1)
        np.testing.assert_allclose(got.compute(), expected, rtol=1e-6)


@pytest.mark.parametrize("data_type", [DataType.INT64, DataType.UINT64, DataType.UINT32])
def test_index_types_of_poolings(data_type):
    x = da.zeros((2, 3, 8, 8), chunks=3, dtype=np.float32)
    _, indices = computed(*dmlgpu.max_pooling(x, 2, strides=2, output_indices=True, indices_data_type=data_type))
    assert indices.dtype == data_type.numpy
    expected = dmlgpu.max_pooling(np.zeros(x.shape, np.float32), 2, strides=2, output_indices=True)[1]
    np.testing.assert_array_equal(indices, expected)


def test_indices_are_counted_beyond_32_bits():
    x = da.zeros((1 << 20, 1 << 13), chunks=(1 << 8, 1 << 10), dtype=np.float32)
    _, indices = dmlgpu.max_pooling(x, 4, strides=4, output_indices=True)
    assert indices[-1, -1].compute() == ((1 << 20) - 4 << 13) + (1 << 13) - 4
    last = dmlgpu.argmin(x[-512:], axis_direction=AxisDirection.DECREASING)
    assert last.compute() == (512 << 13) - 1
    with pytest.raises(dmlgpu.DescriptorError, match="UINT32 cannot hold the index"):
        dmlgpu.argmax(x, dtype=DataType.UINT32)
    with pytest.raises(dmlgpu.DescriptorError, match="UINT32 cannot hold the index"):
        dmlgpu.max_pooling(x, 4, output_indices=True, indices_data_type=DataType.UINT32)


# What is not computed


def calls():
    yield "argmax", ((1, 3),), {}
    yield "argmin", (0,), {"keepdims": True}
    yield "reduce", (ReduceFunction.SUM, 2), {}
    yield "max_pooling", (3,), {"strides": 2}
    yield "average_pooling", (2,), {}
    yield "lp_pooling", (2,), {"p": 1}


def made(x):
    return [getattr(dmlgpu, name)(x, *arguments, **options) for name, arguments, options in calls()]


def test_nothing_is_computed_until_results_are():
    def block():
        raise AssertionError("a chunk was loaded")

    x = da.map_blocks(block, chunks=((2,), (3, 3), (5, 4), (7,)), dtype=np.float32, meta=np.empty((0,) * 4, np.float32))
    shapes = [y.shape for y in made(x)]
    assert shapes == [(2, 9), (1, 6, 9, 7), (2, 6, 7), (2, 6, 4, 3), (2, 6, 8, 6), (2, 6, 8, 6)]
    for y in made(x):
        with pytest.raises(AssertionError, match="a chunk was loaded"):
            y.compute()


def test_chunks_of_results_follow_those_of_the_input():
    x = da.zeros((2, 6, 9, 7), chunks=((2,), (3, 3), (5, 4), (7,)), dtype=np.float32)
    assert dmlgpu.argmax(x, (1, 3)).chunks == ((2,), (5, 4))
    assert dmlgpu.reduce(x, ReduceFunction.MAX, 1, keepdims=True).chunks == ((2,), (1,), (5, 4), (7,))
    assert dmlgpu.max_pooling(x, 3, strides=2).chunks == ((2,), (3, 3), (3, 1), (3,))
    # No window begins in the second chunk.
    x = da.zeros((9, 4), chunks=((3, 1, 5), (4,)), dtype=np.float32)
    assert dmlgpu.max_pooling(x, 1, strides=(4, 1)).chunks == ((1, 2), (4,))


def test_only_what_windows_look_at_is_taken_of_a_chunk():
    x = da.zeros((100, 100), chunks=10, dtype=np.float32)
    graph = dmlgpu.max_pooling(x, 3).__dask_graph__().to_dict()
    parts = [task.args[1] for key, task in graph.items() if key[0].startswith("pooling-part")]
    assert sum(math.prod(len(range(10)[part]) for part in slices) for slices in parts) == (9 * 12 + 10) ** 2
    assert len(parts) == (9 * 2 + 1) ** 2
    # Where windows end with chunks, none needs a part of two.
    graph = dmlgpu.max_pooling(x, 5, strides=5).__dask_graph__().to_dict()
    assert sum(key[0].startswith("pooling-part") for key in graph) == 100


def test_records_of_many_chunks_are_merged_step_by_step(monkeypatch):
    """No task has the partials of all chunks."""
    merged, sizes = Reduction.merged, []

    def spy(self, partials):
        sizes.append(partials.size)
        return merged(self, partials)

    monkeypatch.setattr(Reduction, "merged", spy)
    x = np.random.default_rng(11).permutation(256).astype(np.float32)
    with dask.config.set(split_every=4):
        assert dmlgpu.argmax(da.from_array(x, chunks=1)).compute() == x.argmax()
    assert max(sizes) == 4


def test_graphs_of_many_chunks_are_made_at_once():
    """10,000 chunks: a layer for each step, not for each chunk."""
    x = da.zeros((10_000, 10_000), chunks=100, dtype=np.float32)
    reduced, (pooled, _) = dmlgpu.argmax(x), dmlgpu.max_pooling(x, 3, output_indices=True)
    assert len(reduced.dask.layers) < 15
    assert len(pooled.dask.layers) == 4
    # Both results are of the same tasks.
    values, indices = dmlgpu.max_pooling(x, 3, output_indices=True)
    assert len(set(values.dask.layers) & set(indices.dask.layers)) == 3


def test_checks_of_chunks_add_little_to_graphs():
    x = da.zeros((3_000, 3_000), chunks=100, dtype=np.float32)
    (lazy,) = dask.optimize(dmlgpu.argmax(x))
    assert len(pickle.dumps(dict(lazy.dask))) < 450 * x.npartitions


def test_equal_calls_have_the_same_name(driver):
    x = da.zeros((2, 6, 9, 7), chunks=4, dtype=np.float32)
    assert [y.name for y in made(x)] == [y.name for y in made(x)]
    others = [
        dmlgpu.argmax(x),
        dmlgpu.argmin(x),
        dmlgpu.argmax(x, axis_direction=AxisDirection.DECREASING),
        dmlgpu.argmax(x, 0),
        dmlgpu.argmax(x, device=driver.index),
        dmlgpu.max_pooling(x, 2),
        dmlgpu.max_pooling(x, 2, device=driver.index),
        dmlgpu.max_pooling(x, 2, padding=((0, 1), (0, 1))),
        dmlgpu.average_pooling(x, 2),
        dmlgpu.lp_pooling(x, 2),
    ]
    assert len({y.name for y in others}) == len(others)


# What goes in


def test_threads_share_the_device():
    x = np.random.default_rng(8).integers(0, 99, (64, 64, 16)).astype(np.float32)
    d = da.from_array(x, chunks=(8, 8, 16))
    with dask.config.set(scheduler="threads", num_workers=8):
        assert dmlgpu.argmax(d).compute() == x.argmax()
        np.testing.assert_array_equal(dmlgpu.max_pooling(d, (3, 3, 3)).compute(), dmlgpu.max_pooling(x, (3, 3, 3)))


def test_what_other_operations_give_and_take():
    x = np.random.default_rng(9).integers(0, 99, (12, 10)).astype(">i4")
    d = da.from_array(x, chunks=5)
    assert (dmlgpu.argmax(d.T + 1, 1)[2:4] * 2).compute().tolist() == (x.argmax(0)[2:4] * 2).tolist()
    assert dmlgpu.reduce(d[::2, ::-1], ReduceFunction.SUM).compute() == x[::2].sum()


def test_no_dimensions():
    x = da.from_array(np.float32(-3))
    for got in computed(dmlgpu.argmax(x), dmlgpu.argmax(x, 0), dmlgpu.argmin(x, 0, keepdims=True)):
        assert got == 0
    for function, expected in ((ReduceFunction.SUM, -3), (ReduceFunction.MULTIPLY, -3), (ReduceFunction.L1, 3)):
        (got,) = computed(dmlgpu.reduce(x, function))
        assert type(got) is np.float32
        assert got == expected


def test_nothing_kept_is_empty_and_nothing_reduced_an_error():
    x = da.zeros((2, 0, 3), chunks=((1, 1), (0,), (2, 1)), dtype=np.float32)
    for function in ReduceFunction:
        (got,) = computed(dmlgpu.reduce(x, function, (0, 2)))
        assert got.shape == (0,)
    for wrong in (
        dmlgpu.argmax,
        dmlgpu.argmin,
        lambda x, axis: dmlgpu.reduce(x, ReduceFunction.SUM, axis),
    ):
        with pytest.raises(dmlgpu.DescriptorError, match="are empty"):
            wrong(x, 1)
    planes = da.zeros((0, 3, 8, 8), chunks=(1, 3, 5, 8), dtype=np.float32)
    for got in computed(*dmlgpu.max_pooling(planes, 2, output_indices=True), dmlgpu.average_pooling(planes, 2)):
        assert got.shape == (0, 3, 7, 7)
    with pytest.raises(dmlgpu.DescriptorError, match="is empty"):
        dmlgpu.max_pooling(da.zeros((3, 0), dtype=np.float32), 2)


def test_device_is_that_of_the_process_or_the_named_one(driver, monkeypatch):
    x = da.ones((4, 4), chunks=2, dtype=np.float32)
    monkeypatch.setenv("DMLGPU_DEVICE", "no such device")
    for name, arguments, options in (("argmax", (), {}), ("max_pooling", (2,), {}), ("sum", (0,), {"exact": True})):
        function = getattr(dmlgpu, name)
        with pytest.raises(dmlgpu.DeviceError, match="no such device"):
            function(x, *arguments, **options).compute()
        for selector in (driver.index, np.int64(driver.index), driver.uuid, driver.name):
            function(x, *arguments, device=selector, **options).compute()


def test_a_failing_chunk_leaves_no_file(tmp_path):
    def chunk(block_id):
        if block_id == (1, 0):
            raise RuntimeError(f"chunk {block_id} cannot be read")
        return np.ones((2, 3), np.float32)

    x = da.map_blocks(chunk, chunks=((2, 2), (3, 3)), dtype=np.float32, meta=np.empty((0, 0), np.float32))
    paths = tmp_path / "values.npy", tmp_path / "indices.npy"
    for call in (
        lambda: dmlgpu.sum(x, axis=0, exact=True, out=paths[0]),
        lambda: dmlgpu.max(x, axis=1, output_indices=True, out=paths),
        lambda: dmlgpu.max_pooling(x, 2, output_indices=True, out=paths),
    ):
        with pytest.raises(RuntimeError, match=r"^chunk \(1, 0\) cannot be read$"):
            call()
        assert os.listdir(tmp_path) == []


def test_out_is_written_at_once(tmp_path):
    x = np.random.default_rng(0).standard_normal((6, 8, 9)).astype(np.float32)
    chunks = da.from_array(x, chunks=(4, 3, 5))
    sums, indices = np.full((6, 9), 7, np.float32), np.full((8, 9), 7, np.int64)
    assert dmlgpu.sum(chunks, axis=1, exact=True, out=sums) is sums
    assert dmlgpu.argmax(chunks, axis=0, out=indices) is indices
    np.testing.assert_array_equal(sums, dmlgpu.sum(x, axis=1, exact=True), strict=True)
    np.testing.assert_array_equal(indices, np.argmax(x, axis=0), strict=True)
    values, places = np.empty((6, 4, 4), np.float32), tmp_path / "places.npy"
    written = dmlgpu.max_pooling(chunks, 2, strides=2, output_indices=True, out=(values, places))
    assert written[0] is values
    assert isinstance(written[1], np.memmap)
    for got, expected in zip(
        (values, np.load(places)), dmlgpu.max_pooling(x, 2, strides=2, output_indices=True), strict=True
    ):
        np.testing.assert_array_equal(got, expected, strict=True)
    empty = np.full(9, 7, np.float32)
    assert dmlgpu.sum(chunks[:, :0], axis=(0, 1), out=empty) is empty
    assert not empty.any()
    for wrong, message in (
        (np.empty((6, 9), np.float64), "out: ndarray of .* is not allowed; allowed is an array of float32"),
        (np.empty((9, 6), np.float32), r"out: the shape \(9, 6\) is wrong; expected \(6, 9\)"),
        (dmlgpu.Device().tensor(sums), "out: DeviceTensor of .* is not allowed"),
    ):
        with pytest.raises((TypeError, dmlgpu.DescriptorError), match=message):
            dmlgpu.sum(chunks, axis=1, out=wrong)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_wrong_input(name, device):
    _, arguments, options = next(call for call in calls() if call[0] == name)
    arguments = arguments if name not in ARGS else (0,)

    def call(x, **more):
        return getattr(dmlgpu, name)(x, *arguments, **options, **more)

    x = da.ones((4, 4, 4), chunks=2, dtype=np.float32)
    with pytest.raises(dmlgpu.DescriptorError, match=rf"^{name}\.x: .* is not an array; .* as x\.to_dask_array\(\)$"):
        call(dask.delayed(np.ones)((4, 4, 4)))
    with pytest.raises(TypeError, match="a Device stays in its process; give its index"):
        call(x, device=device)
    for wrong in (True, 1.5, ["llvmpipe"]):
        with pytest.raises(TypeError, match="a device is chosen by its index, part of its name or its UUID"):
            call(x, device=wrong)
    for masked in call, dmlgpu.argmax, dmlgpu.sum, dmlgpu.chunked, device.tensor:
        with pytest.raises(dmlgpu.DescriptorError, match=r": a masked array.*x\.filled"):
            masked(da.ma.masked_greater(x, 0))
    with pytest.raises(dmlgpu.DescriptorError, match=r"input_tensor\.data_type"):
        call(x.astype(np.complex64))
    with pytest.raises(
        dmlgpu.DescriptorError, match=r"the shape \(nan, 4, 4\) is unknown; call x\.compute_chunk_sizes\(\)"
    ):
        call(x[da.ones(4, dtype=bool, chunks=2)])
    with pytest.raises(dmlgpu.DescriptorError, match=r"chunks of x are ArrayImpl of float32 and .*; allowed are those"):
        call(x.map_blocks(jax.numpy.asarray, meta=jax.numpy.ones((0, 0, 0))))


class Metres(np.ndarray):
    """Elements with a unit."""

    def __array_ufunc__(self, *arguments, **options):
        return NotImplemented


# What a chunk becomes, and what is said of it: the others are float32, of 2 x 2 x 2.
LIES = {
    "type": (lambda x: x.astype(np.float64), r" is float64 .*, declared as float32 of \(2, 2, 2\)$"),
    "sizes": (lambda x: x[:1], r" is float32 of \(1, 2, 2\), declared as float32 of \(2, 2, 2\)$"),
    "rank": (lambda x: x.sum(), r" is float32 of \(\), declared as float32 of \(2, 2, 2\)$"),
    "mask": (lambda x: np.ma.masked_greater(x, 1), ": a masked array; a tensor has no mask"),
    "subclass": (lambda x: x.view(Metres), ": an array of type Metres; a tensor is a plain ndarray"),
    "library": (jax.numpy.asarray, r" is ArrayImpl of float32 and \(2, 2, 2\); allowed are those of NumPy$"),
    "list": (lambda x: x.tolist(), r" is \(\(\(1\.0, 1\.0\).*; allowed are those of NumPy$"),
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_chunk_that_is_not_as_declared_is_named(name, lie):
    made_of, said = LIES[lie]
    x = da.ones((2, 4, 4), chunks=2, dtype=np.float32).map_blocks(
        lambda chunk, block_id: made_of(chunk) if block_id == (0, 1, 0) else chunk, meta=np.empty((0,) * 3, np.float32)
    )
    _, arguments, options = next(call for call in calls() if call[0] == name)
    lazy = getattr(dmlgpu, name)(x, *(arguments if name not in ARGS else ()), **options)
    with pytest.raises(dmlgpu.DescriptorError, match=rf"^{name}\.x: " + r"chunk \(0, 1, 0\) of x" + said):
        lazy.compute()


def test_a_chunk_of_no_elements_is_as_declared():
    x = da.zeros((0, 3), chunks=((0,), (3,)), dtype=np.float32)
    lazy = dmlgpu.argmax(x.map_blocks(lambda chunk: chunk.astype(int), meta=np.empty((0, 0), np.float32)), 1)
    with pytest.raises(ValueError, match=r"chunk \(0, 0\) of x is int64 of \(0, 3\), declared as float32 of \(0, 3\)$"):
        lazy.compute()


@pytest.mark.parametrize(("declared", "made_of"), ["<>", "><"])
def test_a_chunk_in_the_other_byte_order_has_the_same_elements(declared, made_of):
    x = np.random.default_rng(2).integers(0, 99, (6, 5)).astype("f4")
    d = da.from_array(x.astype(f"{declared}f4"), chunks=3).map_blocks(
        lambda chunk: chunk.astype(f"{made_of}f4"), dtype=f"{declared}f4", meta=np.empty((0, 0), f"{declared}f4")
    )
    assert dmlgpu.argmax(d).compute() == x.argmax()
    assert dmlgpu.reduce(d, ReduceFunction.MAX).compute() == x.max()
    np.testing.assert_array_equal(dmlgpu.max_pooling(d, 2).compute(), dmlgpu.max_pooling(x, 2))


def test_unknown_sizes_may_be_made_known():
    x = da.from_array(np.arange(10, dtype=np.float32), chunks=3)
    x = x[x > 5].compute_chunk_sizes()
    assert x.chunks == ((0, 0, 3, 1),)
    assert dmlgpu.argmax(x).compute() == 3
