"""The results of a Dask array are those of the whole array, whatever its chunks are."""

import math
import os
import pickle

import dask
import dask.array as da
import jax.numpy
import numpy as np
import pytest

import dmlgpu
from dmlgpu import AxisDirection, DataType, DescriptorError, ReduceFunction
from dmlgpu.chunks.reduction import Reduction
from dmlgpu.descriptors.reduction import REDUCE_TYPES
from dmlgpu.descriptors.tensor import bits
from tests.support.errors import refuses

POOLINGS = ["max_pooling", "average_pooling", "lp_pooling"]
# A function of a 3-D array, for each way in which results are computed.
CALLS = {
    "argmax": lambda x, **options: dmlgpu.argmax(x, (0, 2), **options),
    "argmin": lambda x, **options: dmlgpu.argmin(x, 0, keepdims=True, **options),
    "reduce": lambda x, **options: dmlgpu.reduce(x, "sum", 2, **options),
    "max_pooling": lambda x, **options: dmlgpu.max_pooling(x, 2, strides=2, **options),
    "average_pooling": lambda x, **options: dmlgpu.average_pooling(x, 2, **options),
    "lp_pooling": lambda x, **options: dmlgpu.lp_pooling(x, 2, p=1, **options),
}
FLOATS = ["float32", "float16"]
SELECTED = [*FLOATS, "int32", "uint32", "int64", "uint64", "int8", "uint8", "int16", "uint16", "float64", "bool"]
SELECTIONS = [ReduceFunction.ARGMAX, ReduceFunction.ARGMIN, ReduceFunction.MAX, ReduceFunction.MIN]
EXACT_SUMS = [ReduceFunction.SUM, ReduceFunction.L1, ReduceFunction.SUM_SQUARE, ReduceFunction.MULTIPLY]


@pytest.fixture(autouse=True)
def _in_this_thread(default_device):
    with dask.config.set(scheduler="synchronous"):
        yield


def chunked(x, rng):
    """The array in random chunks, some of which have no elements."""

    def sizes(size):
        cuts = sorted(rng.integers(0, size + 1, rng.integers(0, 4)).tolist())
        return tuple(np.diff([0, *cuts, size]).tolist())

    return da.from_array(x, chunks=tuple(map(sizes, x.shape)))


def elements(dtype, shape, rng):
    """Elements with so few values that there are ties; floats have special values in random frequency."""
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    x = rng.integers(0 if np.dtype(dtype).kind == "u" else -3, 4, shape).astype(dtype)
    if x.dtype.kind == "f":
        special = rng.choice(np.array([0.0, -0.0, np.nan, np.inf, -np.inf], dtype), shape)
        x = np.where(rng.random(shape) < rng.choice([0, 0.2, 0.8]), special, x)
    return x


def computed(*results):
    """Computes Dask arrays; shapes and types, also those of blocks, must be as declared."""
    arrays = dask.compute(*results)
    for lazy, array in zip(results, arrays, strict=True):
        assert isinstance(lazy, da.Array)
        assert (lazy.shape, lazy.dtype) == (np.shape(array), array.dtype)
        assert (lazy._meta.ndim, lazy._meta.dtype) == (lazy.ndim, lazy.dtype)
        blocks = dask.compute(*lazy.to_delayed().ravel())
        for block, numbers in zip(blocks, np.ndindex(lazy.numblocks), strict=True):
            assert np.shape(block) == tuple(sizes[i] for sizes, i in zip(lazy.chunks, numbers, strict=True))
    return arrays


def check(function, x, d, *arguments, **options):
    """Checks that a function of a Dask array has the bits of the function of the whole array."""
    results, expected = (function(array, *arguments, **options) for array in (d, x))
    pairs = zip(results, expected, strict=True) if isinstance(expected, tuple) else [(results, expected)]
    for lazy, theirs in pairs:
        (ours,) = computed(lazy)
        assert type(ours) is type(theirs)
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(bits(np.asarray(ours)), bits(np.asarray(theirs)), strict=True)


def random_shape(rng):
    return tuple(rng.integers(1, 7, rng.integers(1, 6)).tolist())


def random_axes(rank, rng):
    return tuple(rng.permutation(rank)[: rng.integers(1, rank + 1)].tolist())


def test_the_first_of_equal_elements_wins_across_chunks():
    """dask.array.argmax returns 4."""
    x = np.zeros((4, 4), np.float32)
    x[1, 0] = x[0, 2] = 1
    d = da.from_array(x, chunks=2)
    assert dmlgpu.argmax(d).compute() == 2
    assert dmlgpu.argmax(d, axis_direction=AxisDirection.DECREASING).compute() == 4
    assert dmlgpu.argmin(d).compute() == 0
    assert dmlgpu.argmin(d, axis_direction=AxisDirection.DECREASING).compute() == 15


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("function", [dmlgpu.max, dmlgpu.min])
def test_maxima_and_indices_are_those_of_the_whole_array(function, seed):
    rng = np.random.default_rng(seed)
    x = elements(SELECTED[seed], random_shape(rng), rng)
    options = {"axis": random_axes(x.ndim, rng), "keepdims": bool(rng.integers(2)), "output_indices": True}
    check(function, x, chunked(x, rng), **options)


@pytest.mark.parametrize("seed", range(24))
def test_top_k_is_that_of_the_whole_array(seed):
    rng = np.random.default_rng(seed)
    x = elements(SELECTED[seed % len(SELECTED)], random_shape(rng), rng)
    axis = int(rng.integers(-x.ndim, x.ndim))
    k, mode = int(rng.integers(1, x.shape[axis] + 1)), ("largest", "smallest")[seed % 2]
    check(dmlgpu.top_k, x, chunked(x, rng), k, axis=axis, mode=mode, indices_data_type="int32")


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint32", "bool"])
@pytest.mark.parametrize("function", [dmlgpu.cumulative_sum, dmlgpu.cumulative_prod])
def test_scans_are_those_of_the_whole_array(function, dtype):
    """Sums are exact; products are small integers, because products of floats are rounded."""
    rng, is_sum = np.random.default_rng(len(dtype)), function is dmlgpu.cumulative_sum
    for number in range(4):
        shape = random_shape(rng)
        x = (elements(dtype, shape, rng) if is_sum else rng.integers(1, 3, shape)).astype(dtype)
        x = np.where(np.isfinite(x), x, x.dtype.type(1))
        options = {"axis": int(rng.integers(x.ndim)), "axis_direction": AxisDirection(number % 2)}
        options |= {"include_initial": number > 1} | ({"exact": True} if is_sum else {})
        check(function, x, chunked(x, rng), **options)
    for initial in (False, True):
        nothing = np.zeros((0, 4), dtype), da.zeros((0, 4), chunks=(0, 3), dtype=dtype)
        check(function, *nothing, axis=0, include_initial=initial)


@pytest.fixture
def merged_sizes(monkeypatch):
    """The sizes of all partials that a test merges at once."""
    merged, sizes = Reduction.merged, []

    def spy(self, partials):
        sizes.append(partials.size)
        return merged(self, partials)

    monkeypatch.setattr(Reduction, "merged", spy)
    return sizes


def test_tasks_of_top_k_merge_few_elements(merged_sizes):
    """No task has more than k elements of a few chunks, and results have one chunk along the axis."""
    x = np.random.default_rng(11).integers(0, 99, (3, 2560)).astype(np.int16)
    d = da.from_array(x, chunks=(1, 10))
    with dask.config.set(split_every=4):
        values, indices = dmlgpu.top_k(d, 7)
        assert values.chunks == indices.chunks == ((1, 1, 1), (7,))
        check(dmlgpu.top_k, x, d, 7)
    assert max(merged_sizes) == 4 * 7
    # Both results are of the same partials.
    assert len(set(values.dask.layers) & set(indices.dask.layers)) >= 3


def test_top_k_writes_files_and_refuses_a_large_k(tmp_path):
    x = da.from_array(np.float32([[5, 1, 5], [2, 2, 9]]), chunks=(1, 2))
    paths = tmp_path / "values.npy", tmp_path / "indices.npy"
    dmlgpu.top_k(x, 2, mode="smallest", out=paths)
    assert [np.load(path).tolist() for path in paths] == [[[1, 5], [2, 2]], [[1, 0], [0, 1]]]
    check(dmlgpu.top_k, np.int8(3), da.from_array(np.int8(3)), 1)
    check(dmlgpu.top_k, np.zeros((0, 4), np.float32), da.zeros((0, 4), chunks=(0, 3), dtype=np.float32), 3)
    refuses(r"^TopK1OperatorDesc\.k: 4 is out of range; allowed are 1 to 3", dmlgpu.top_k, x, 4)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("function", [dmlgpu.argmax, dmlgpu.argmin])
def test_indices_are_those_of_the_whole_array(function, seed):
    rng = np.random.default_rng(seed)
    x = elements(SELECTED[seed % len(SELECTED)], random_shape(rng), rng)
    axes = tuple(sorted(random_axes(x.ndim, rng)))
    options = {
        "axis_direction": AxisDirection(int(rng.integers(2))),
        "dtype": (DataType.INT64, DataType.UINT32, DataType.INT32, DataType.UINT64)[rng.integers(4)],
    }
    d = chunked(x, rng)
    check(function, x, d, axes, keepdims=True, **options)
    check(function, x, d, axes, **options)
    check(function, x, d, tuple(i - x.ndim for i in axes), keepdims=True, **options)


@pytest.mark.parametrize("function", [*SELECTIONS, *EXACT_SUMS], ids=lambda function: function.name)
def test_reductions_are_those_of_the_whole_array(function):
    """Sums and products are of small numbers, so that they are exact."""
    rng = np.random.default_rng(function.value)
    for data_type in [*REDUCE_TYPES[function]["input_tensor"]] * 3:
        shape, dtype = random_shape(rng), data_type.numpy
        x = elements(dtype, shape, rng) if function in SELECTIONS else rng.integers(1, 3, shape).astype(dtype)
        axes, keepdims = random_axes(x.ndim, rng), bool(rng.integers(2))
        check(dmlgpu.reduce, x, chunked(x, rng), function, axes, keepdims=keepdims)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("function", ["sum", "average", "l1", "l2", "sum_square"])
@pytest.mark.parametrize("chunks", [(30, 41, 5), (7, 9, 2), (1, 41, 5)], ids=str)
def test_exact_sums_are_those_of_the_whole_array(chunks, function, dtype):
    x = np.random.default_rng(3).standard_normal((30, 41, 5)).astype(dtype)
    for axis in (None, 1, (0, 2)):
        check(dmlgpu.reduce, x, da.from_array(x, chunks=chunks), function, axis, exact=True)
    if function == "average":
        check(dmlgpu.average_pooling, x, da.from_array(x, chunks=chunks), (3, 2), padding=1, exact=True)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize(("axis", "chunks"), [(0, (9, 2)), (1, (2, 10)), ((0, 1), (9, 10))])
def test_an_exact_sum_of_one_chunk_is_computed_without_partials(axis, chunks, keepdims, monkeypatch):
    x = np.random.default_rng(4).standard_normal((9, 10)).astype(np.float32)
    monkeypatch.setattr(Reduction, "partial", None)
    check(dmlgpu.sum, x, da.from_array(x, chunks=chunks), axis, keepdims=keepdims, exact=True)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", ">i2", "uint32", "int64", "float16", ">f4"])
def test_functions_of_numpy_are_those_of_the_whole_array(dtype):
    rng = np.random.default_rng(6)
    x = rng.integers(*((0, 2) if dtype == "bool" else (1, 3)), (5, 6)).astype(dtype)
    for axis, keepdims in ((None, False), (0, True), ((0, 1), False), (-1, False)):
        for function in (dmlgpu.sum, dmlgpu.prod, dmlgpu.max, dmlgpu.min):
            check(function, x, chunked(x, rng), axis, keepdims=keepdims)
        if x.dtype.kind == "f":
            check(dmlgpu.mean, x, chunked(x, rng), axis, keepdims=keepdims, exact=True)
    for result in ("uint8", "float32"):
        check(dmlgpu.sum, x, chunked(x, rng), 0, dtype=result)
        check(dmlgpu.prod, x, chunked(x, rng), 0, dtype=result)


@pytest.mark.parametrize("dtype", ["uint8", "float16"])
def test_reductions_of_no_elements_are_those_of_numpy(dtype):
    x, d = np.zeros((3, 0, 2), dtype), da.zeros((3, 0, 2), chunks=(2, 1, 1), dtype=dtype)
    for function in (dmlgpu.sum, dmlgpu.prod, dmlgpu.mean)[: 2 + (x.dtype.kind == "f")]:
        for axis, keepdims in ((None, False), (1, False), ((0, 1), True), (0, False)):
            check(function, x, d, axis, keepdims=keepdims)
    for function in (dmlgpu.max, dmlgpu.argmax, dmlgpu.argmin):
        refuses("are empty", function, d, 1)


def test_numpy_keeps_its_functions():
    """Dask computes them, so np.argmax differs from dmlgpu.argmax where there are ties."""
    d = da.zeros((4, 4), chunks=2, dtype=np.float32)
    assert isinstance(np.argmax(d), da.Array)
    assert np.argmax(d).dask.layers.keys() == d.argmax().dask.layers.keys()
    assert np.sum(d, axis=0).name == d.sum(axis=0).name


def test_chunks_may_be_read_one_after_another():
    x, shapes = np.random.default_rng(1).random((9, 8), np.float32), []
    d = da.from_array(x, chunks=4).map_blocks(lambda chunk: shapes.append(chunk.shape) or chunk, meta=x[:0, :0])
    assert dmlgpu.argmax(dmlgpu.chunked(d, chunk_bytes=64)) == x.argmax()
    assert max(shapes) <= (4, 4)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (dmlgpu.average_pooling_grad, (da.ones((1, 3, 3), dtype=np.float32), (4, 4), 2)),
        (dmlgpu.max_pooling_grad, (da.ones((1, 3, 3), dtype=np.float32), np.ones((1, 2, 2), np.float32), 2)),
        (dmlgpu.max_unpooling, (np.ones((1, 3, 3), np.float32), da.ones((1, 3, 3), dtype=np.int64), 4)),
    ],
)
def test_gradients_and_unpooling_refuse_dask_arrays(function, arguments):
    words = rf"^{function.__name__}\(\) takes neither chunked nor Dask arrays; pass arrays or device tensors$"
    refuses(words, function, *arguments, error=TypeError)


WINDOWS = {
    "strides": lambda rng, spatial: rng.integers(1, 5, spatial).tolist(),
    "dilations": lambda rng, spatial: rng.integers(1, 4, spatial).tolist(),
    "padding": lambda rng, spatial: rng.integers(0, 4, (spatial, 2)).tolist(),
}


def random_pooling(name, rng):
    """An array, and arguments of a pooling that are valid for it; averages and norms are exact."""
    function, spatial = getattr(dmlgpu, name), int(rng.integers(2, 4))
    while True:
        shape = (*rng.integers(1, 4, rng.integers(0, 3)).tolist(), *rng.integers(1, 13, spatial).tolist())
        x = elements(rng.choice(SELECTED if name == "max_pooling" else FLOATS), shape, rng)
        window = {field: draw(rng, spatial) for field, draw in WINDOWS.items() if rng.random() < 0.6}
        window["window_size"] = tuple(rng.integers(1, 6, spatial).tolist())
        if name == "average_pooling":
            window |= {"include_padding": bool(rng.integers(2)), "exact": True}
        elif name == "lp_pooling":
            window |= {"p": int(rng.integers(1, 4))}
            x = rng.integers(-3, 4, shape).astype(x.dtype)
        try:
            outputs = function(x, **window)
            if rng.random() < 0.3:  # the last windows extend beyond the end
                window["output_sizes"] = [size + 1 for size in outputs.shape[-spatial:]]
                function(x, **window)
        except DescriptorError:
            continue
        return x, window


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("name", POOLINGS)
def test_poolings_are_those_of_the_whole_array(name, seed):
    rng = np.random.default_rng(seed)
    x, window = random_pooling(name, rng)
    check(getattr(dmlgpu, name), x, chunked(x, rng), **window)
    if name == "max_pooling":
        check(dmlgpu.max_pooling, x, chunked(x, rng), output_indices=True, **window)


@pytest.mark.parametrize(("stride", "dilation", "width"), [(2, 1, 18), (2, 3, 18), (5, 1, 17), (5, 3, 22), (3, 2, 20)])
@pytest.mark.parametrize(
    ("name", "options"), [*((name, {}) for name in POOLINGS), ("average_pooling", {"include_padding": True})]
)
def test_a_last_window_beyond_the_end_may_be_alone_in_its_block(name, options, stride, dilation, width):
    x = np.random.default_rng(4).uniform(1, 2, (5, width)).astype(np.float32)
    window = {"strides": (1, stride), "dilations": (1, dilation), "padding": (0, (0, 1)), **options}
    outputs = getattr(dmlgpu, name)(x, (2, 4), **window).shape[1] + 1
    window["output_sizes"] = (4, outputs)
    begin = (outputs - 1) * stride
    result = getattr(dmlgpu, name)(da.from_array(x, chunks=((5,), (begin, width - begin))), (2, 4), **window)
    assert result.chunks[1] == (outputs - 1, 1)
    np.testing.assert_allclose(result.compute(), getattr(dmlgpu, name)(x, (2, 4), **window), rtol=1e-6)


@pytest.mark.parametrize("data_type", [DataType.INT64, DataType.UINT64, DataType.UINT32])
def test_indices_of_poolings_have_the_requested_type(data_type):
    x = np.zeros((2, 3, 8, 8), np.float32)
    options = {"strides": 2, "output_indices": True, "indices_data_type": data_type}
    check(dmlgpu.max_pooling, x, da.from_array(x, chunks=3), 2, **options)


def test_indices_may_exceed_32_bits():
    x = da.zeros((1 << 20, 1 << 13), chunks=(1 << 8, 1 << 10), dtype=np.float32)
    _, indices = dmlgpu.max_pooling(x, 4, strides=4, output_indices=True)
    assert indices[-1, -1].compute() == ((1 << 20) - 4 << 13) + (1 << 13) - 4
    words = "UINT32 cannot hold the index"
    refuses(words, dmlgpu.argmax, x, dtype=DataType.UINT32)
    refuses(words, dmlgpu.max_pooling, x, 4, output_indices=True, indices_data_type=DataType.UINT32)


# Graphs


def test_nothing_is_computed_until_results_are():
    def block():
        raise AssertionError("a chunk was loaded")

    x = da.map_blocks(block, chunks=((3, 3), (5, 4), (7,)), dtype=np.float32, meta=np.empty((0,) * 3, np.float32))
    results = [call(x) for call in CALLS.values()]
    assert [y.shape for y in results] == [(9,), (1, 9, 7), (6, 9), (6, 4, 3), (6, 8, 6), (6, 8, 6)]
    for y in results:
        refuses("a chunk was loaded", y.compute, error=AssertionError)


def test_chunks_of_results_follow_those_of_the_input():
    x = da.zeros((2, 6, 9, 7), chunks=((2,), (3, 3), (5, 4), (7,)), dtype=np.float32)
    assert dmlgpu.argmax(x, (1, 3)).chunks == ((2,), (5, 4))
    assert dmlgpu.reduce(x, ReduceFunction.MAX, 1, keepdims=True).chunks == ((2,), (1,), (5, 4), (7,))
    assert dmlgpu.max_pooling(x, 3, strides=2).chunks == ((2,), (3, 3), (3, 1), (3,))
    # No window begins in the second chunk.
    x = da.zeros((9, 4), chunks=((3, 1, 5), (4,)), dtype=np.float32)
    assert dmlgpu.max_pooling(x, 1, strides=(4, 1)).chunks == ((1, 2), (4,))


def parts_of_chunks(x, size, **window):
    """The slices of chunks that the tasks of a max pooling read."""
    graph = dmlgpu.max_pooling(x, size, **window).__dask_graph__().to_dict()
    return [task.args[1] for key, task in graph.items() if key[0].startswith("pooling-part")]


def test_poolings_read_only_the_parts_of_chunks_that_windows_need():
    x = da.zeros((100, 100), chunks=10, dtype=np.float32)
    parts = parts_of_chunks(x, 3)
    assert sum(math.prod(len(range(10)[part]) for part in slices) for slices in parts) == (9 * 12 + 10) ** 2
    assert len(parts) == (9 * 2 + 1) ** 2
    # Windows end with chunks, so none needs parts of two.
    assert len(parts_of_chunks(x, 5, strides=5)) == 100


def test_partials_of_many_chunks_are_merged_step_by_step(merged_sizes):
    """No task has the partials of all chunks."""
    x = np.random.default_rng(11).permutation(256).astype(np.float32)
    with dask.config.set(split_every=4):
        assert dmlgpu.argmax(da.from_array(x, chunks=1)).compute() == x.argmax()
    assert max(merged_sizes) == 4


def test_graphs_have_a_layer_for_each_step():
    """Graphs of 10,000 chunks are made at once, because no chunk has a layer of its own."""
    x = da.zeros((10_000, 10_000), chunks=100, dtype=np.float32)
    values, indices = dmlgpu.max_pooling(x, 3, output_indices=True)
    assert len(dmlgpu.argmax(x).dask.layers) < 15
    assert len(values.dask.layers) == 4
    # Both results are of the same tasks.
    assert len(set(values.dask.layers) & set(indices.dask.layers)) == 3


def test_checks_of_chunks_add_little_to_graphs():
    x = da.zeros((3_000, 3_000), chunks=100, dtype=np.float32)
    (lazy,) = dask.optimize(dmlgpu.argmax(x))
    assert len(pickle.dumps(dict(lazy.dask))) < 450 * x.npartitions


def test_equal_calls_alone_have_the_same_name(driver):
    x = da.zeros((6, 9, 7), chunks=4, dtype=np.float32)
    assert [call(x).name for call in CALLS.values()] == [call(x).name for call in CALLS.values()]
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


# Inputs and outputs


def test_threads_share_the_device():
    x = np.random.default_rng(8).integers(0, 99, (64, 64, 16)).astype(np.float32)
    d = da.from_array(x, chunks=(8, 8, 16))
    with dask.config.set(scheduler="threads", num_workers=8):
        assert dmlgpu.argmax(d).compute() == x.argmax()
        np.testing.assert_array_equal(dmlgpu.max_pooling(d, (3, 3, 3)).compute(), dmlgpu.max_pooling(x, (3, 3, 3)))


def test_other_operations_may_come_before_and_after():
    x = np.random.default_rng(9).integers(0, 99, (12, 10)).astype(">i4")
    d = da.from_array(x, chunks=5)
    assert (dmlgpu.argmax(d.T + 1, 1)[2:4] * 2).compute().tolist() == (x.argmax(0)[2:4] * 2).tolist()
    assert dmlgpu.reduce(d[::2, ::-1], ReduceFunction.SUM).compute() == x[::2].sum()


@pytest.mark.parametrize("name", ["argmax", "argmin", "sum", "prod", "max"])
def test_arrays_without_dimensions_are_reduced(name):
    check(getattr(dmlgpu, name), np.float32(-3), da.from_array(np.float32(-3)))


def test_results_may_have_no_elements():
    x = da.zeros((2, 0, 3), chunks=((1, 1), (0,), (2, 1)), dtype=np.float32)
    for function in ReduceFunction:
        (result,) = computed(dmlgpu.reduce(x, function, (0, 2)))
        assert result.shape == (0,)
    assert computed(dmlgpu.sum(x, (0, 2), exact=True))[0].shape == (0,)
    planes = da.zeros((0, 3, 8, 8), chunks=(1, 3, 5, 8), dtype=np.float32)
    for result in computed(*dmlgpu.max_pooling(planes, 2, output_indices=True), dmlgpu.average_pooling(planes, 2)):
        assert result.shape == (0, 3, 7, 7)
    refuses("is empty", dmlgpu.max_pooling, da.zeros((3, 0), dtype=np.float32), 2)


@pytest.mark.parametrize(
    "call",
    [
        dmlgpu.argmax,
        lambda x, **options: dmlgpu.max_pooling(x, 2, **options),
        lambda x, **options: dmlgpu.sum(x, 0, exact=True, **options),
    ],
    ids=["argmax", "max_pooling", "sum"],
)
def test_the_named_device_computes_or_that_of_the_process(call, driver, monkeypatch):
    x = da.ones((4, 4), chunks=2, dtype=np.float32)
    monkeypatch.setenv("DMLGPU_DEVICE", "no such device")
    refuses("no such device", call(x).compute, error=dmlgpu.DeviceError)
    for selector in (driver.index, np.int64(driver.index), driver.uuid, driver.name):
        call(x, device=selector).compute()


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
        refuses(r"^chunk \(1, 0\) cannot be read$", call, error=RuntimeError)
        assert os.listdir(tmp_path) == []


def test_out_is_written_at_once(tmp_path):
    x = np.random.default_rng(0).standard_normal((6, 8, 9)).astype(np.float32)
    d, sums, empty = da.from_array(x, chunks=(4, 3, 5)), np.full((6, 9), 7, np.float32), np.full(9, 7, np.float32)
    assert dmlgpu.sum(d, axis=1, exact=True, out=sums) is sums
    np.testing.assert_array_equal(sums, dmlgpu.sum(x, axis=1, exact=True), strict=True)
    assert dmlgpu.sum(d[:, :0], axis=(0, 1), out=empty) is empty
    assert not empty.any()
    window = {"window_size": 2, "strides": 2, "output_indices": True}
    values, path = np.empty((6, 4, 4), np.float32), tmp_path / "indices.npy"
    results = dmlgpu.max_pooling(d, **window, out=(values, path))
    assert results[0] is values
    assert isinstance(results[1], np.memmap)
    for result, expected in zip((values, np.load(path)), dmlgpu.max_pooling(x, **window), strict=True):
        np.testing.assert_array_equal(result, expected, strict=True)
    words = "out: ndarray of .* is not allowed; allowed is an array of float32"
    refuses(words, dmlgpu.sum, d, axis=1, error=TypeError, out=np.empty((6, 9), np.float64))


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_other_inputs_are_refused(call, device):
    x = da.ones((4, 4, 4), chunks=2, dtype=np.float32)
    refuses(r"\.x: .* is not an array; .* as x\.to_dask_array\(\)$", call, dask.delayed(np.ones)((4, 4, 4)))
    refuses("a Device stays in its process; give its index", call, x, error=TypeError, device=device)
    for wrong in (True, 1.5, ["llvmpipe"]):
        words = "a device is chosen by its index, part of its name or its UUID"
        refuses(words, call, x, error=TypeError, device=wrong)
    refuses(r"input_tensor\.data_type", call, x.astype(np.complex64))
    unknown = x[da.ones(4, dtype=bool, chunks=2)]
    refuses(r"the shape \(nan, 4, 4\) is unknown; call x\.compute_chunk_sizes\(\)", call, unknown)
    of_jax = x.map_blocks(jax.numpy.asarray, meta=jax.numpy.ones((0, 0, 0)))
    refuses(r"chunks of x are ArrayImpl of float32 and .*; allowed are those", call, of_jax)


def test_masked_arrays_are_refused(device):
    masked = da.ma.masked_greater(da.ones((4, 4), chunks=2, dtype=np.float32), 0)
    for function in (*CALLS.values(), dmlgpu.chunked, device.tensor):
        refuses(r": a masked array.*x\.filled", function, masked)


class Metres(np.ndarray):
    """Elements with a unit."""

    def __array_ufunc__(self, *arguments, **options):
        return NotImplemented


# Conversions of a chunk that is declared as float32 of 2 x 2 x 2, and the messages about it.
WRONG_CHUNKS = {
    "type": (lambda x: x.astype(np.float64), r" is float64 .*, declared as float32 of \(2, 2, 2\)$"),
    "sizes": (lambda x: x[:1], r" is float32 of \(1, 2, 2\), declared as float32 of \(2, 2, 2\)$"),
    "rank": (lambda x: x.sum(), r" is float32 of \(\), declared as float32 of \(2, 2, 2\)$"),
    "mask": (lambda x: np.ma.masked_greater(x, 1), ": a masked array; a tensor has no mask"),
    "subclass": (lambda x: x.view(Metres), ": an array of type Metres; a tensor is a plain ndarray"),
    "library": (jax.numpy.asarray, r" is ArrayImpl of float32 and \(2, 2, 2\); allowed are those of NumPy$"),
    "list": (lambda x: x.tolist(), r" is \(\(\(1\.0, 1\.0\).*; allowed are those of NumPy$"),
}


@pytest.mark.parametrize(("convert", "words"), WRONG_CHUNKS.values(), ids=WRONG_CHUNKS)
@pytest.mark.parametrize("name", CALLS)
def test_a_chunk_that_differs_from_its_declaration_is_named(name, convert, words):
    x = da.ones((2, 4, 4), chunks=2, dtype=np.float32).map_blocks(
        lambda chunk, block_id: convert(chunk) if block_id == (0, 1, 0) else chunk, meta=np.empty((0,) * 3, np.float32)
    )
    refuses(rf"^{name}\.x: chunk \(0, 1, 0\) of x{words}", CALLS[name](x).compute)


def test_a_chunk_without_elements_is_compared_with_its_declaration():
    x = da.zeros((0, 3), chunks=((0,), (3,)), dtype=np.float32)
    lazy = dmlgpu.argmax(x.map_blocks(lambda chunk: chunk.astype(int), meta=np.empty((0, 0), np.float32)), 1)
    refuses(r"chunk \(0, 0\) of x is int64 of \(0, 3\), declared as float32 of \(0, 3\)$", lazy.compute)


@pytest.mark.parametrize(("declared", "order"), ["<>", "><"])
def test_a_chunk_may_have_the_other_byte_order(declared, order):
    x = np.random.default_rng(2).integers(0, 99, (6, 5)).astype(f"{declared}f4")
    d = da.from_array(x, chunks=3).map_blocks(lambda chunk: chunk.astype(f"{order}f4"), dtype=x.dtype, meta=x[:0, :0])
    check(dmlgpu.argmax, x, d)
    check(dmlgpu.max, x, d)
    check(dmlgpu.max_pooling, x, d, 2)


def test_unknown_sizes_may_be_computed():
    x = da.from_array(np.arange(10, dtype=np.float32), chunks=3)
    x = x[x > 5].compute_chunk_sizes()
    assert x.chunks == ((0, 0, 3, 1),)
    assert dmlgpu.argmax(x).compute() == 3
