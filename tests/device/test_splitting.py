"""Work that exceeds a buffer, a dispatch, a workgroup or a loop is split, and exact."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

import dmlgpu
from dmlgpu import ArgmaxOperatorDesc, ArgminOperatorDesc, ExecutionFlags, ReduceFunction, argmax, argmin, max_pooling
from dmlgpu.lowering.limits import Limits
from dmlgpu.lowering.lower import lower
from dmlgpu.runtime.tuning import device_limits
from dmlgpu.testing.cases import (
    DECREASING,
    FLOAT16,
    FLOAT32,
    INDEX_TYPES,
    INT8,
    INT64,
    UINT8,
    UINT32,
    UINT64,
    WIDTHS,
    arg_desc,
    permuted_strides,
    pool_desc,
)
from dmlgpu.testing.fills import any_bits, arranged, ties


def check(device: dmlgpu.Device, desc, fill=any_bits):
    dmlgpu.verify(desc, arranged(desc.inputs[0], fill), device=device)


by_width = pytest.mark.parametrize("data_type", WIDTHS, ids=lambda data_type: data_type.name.lower())


@pytest.mark.parametrize("rank", [1, 2, 5, 8])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_full_dispatches_of_every_rank_are_right(driver, open_device, rank, count):
    """One workgroup of 64 invocations computes each dispatch; no two dimensions merge."""
    device = open_device(driver.index, replace(device_limits(driver), group_count=1))
    size = math.ceil(400_000 ** (1 / max(rank - 1, 1)))
    gaps = np.full((count + 1, *(size + 1,) * (rank - 1)), 5, np.float32)
    x = gaps[(slice(1, None),) * rank].T
    for function, flags, expected in (
        (ReduceFunction.MAX, ExecutionFlags.NONE, 5),
        (ReduceFunction.SUM, ExecutionFlags.NONE, 5 * count),
        (ReduceFunction.SUM, ExecutionFlags.EXACT_SUMS, 5 * count),
    ):
        op = device.compile(dmlgpu.ReduceOperatorDesc.of(function, x, (rank - 1,)), flags=flags)
        assert rank == 1 or len(op.plan.dispatches) > 1
        assert (op(x) == expected).all()


# Segments: a tensor in several buffers


@by_width
@pytest.mark.parametrize("kind", [ArgmaxOperatorDesc, ArgminOperatorDesc])
def test_an_axis_may_end_around_a_segment(lowered, kind, data_type):
    segment = 256 * 8 // data_type.bits
    for segments, more in itertools.product((1, 2, 5), (-1, 0, 1)):
        check(lowered, arg_desc(kind, data_type, (segments * segment + more,), [0]), ties)


@pytest.mark.parametrize("index_type", INDEX_TYPES, ids=lambda index_type: index_type.name.lower())
def test_outputs_may_lie_in_several_segments(lowered, index_type):
    for outputs in (31, 32, 33, 63, 64, 65, 200):
        check(lowered, arg_desc(ArgmaxOperatorDesc, INT8, (outputs, 3), [1], index_type=index_type))
        check(lowered, arg_desc(ArgmaxOperatorDesc, INT8, (3, outputs), [0], index_type=index_type))


@by_width
def test_windows_may_lie_in_several_segments(lowered, data_type):
    segment = 256 * 8 // data_type.bits
    for width, indices in zip((segment - 1, segment, segment + 1), (UINT32, None, UINT64), strict=True):
        check(lowered, pool_desc(data_type, (1, 2, 3, width), (2, 3), (1, 2), (1, 0), (0, 1), indices=indices), ties)


# Loops and dispatches, with limits lowered in other ways

OTHER_LIMITS = {
    "one-group": Limits(segment_bytes=1 << 20, group_size=1, group_count=1, partial_bytes=1024),
    "odd-groups": Limits(segment_bytes=1 << 16, group_size=7, group_count=5, partial_bytes=1 << 10, simd_width=14),
    "short-loops": Limits(segment_bytes=1 << 16, group_size=64, group_count=4, invocation_loads=75),
    "short-dispatches": Limits(segment_bytes=1 << 16, group_size=64, group_count=4, dispatch_elements=1000),
    "few-partials": Limits(segment_bytes=2048, group_size=64, group_count=64, partial_bytes=64),
    "few-loads": Limits(segment_bytes=256, group_size=1, group_count=8, invocation_loads=60, dispatch_count=1 << 20),
}


@pytest.fixture(params=OTHER_LIMITS)
def limited(request, driver, open_device):
    return open_device(driver.index, low(driver, request.param))


def low(driver, name):
    """Low limits; drivers that do not unroll loops would compile kernels with unrolled ones for minutes."""
    return replace(OTHER_LIMITS[name], unrolls=device_limits(driver).unrolls)


def doubled(sizes, axes):
    """Strides of outputs with a gap after each."""
    outputs = [1 if i in axes else n for i, n in enumerate(sizes)]
    return [2 * stride for stride in permuted_strides(outputs, range(len(sizes)))]


@pytest.mark.parametrize(
    ("data_type", "sizes", "axes"),
    [
        (UINT8, (5000,), [0]),
        (FLOAT32, (3, 2500), [1]),
        (FLOAT32, (1100, 3), [0]),
        (INT64, (12, 30, 3), [0, 2]),
        (FLOAT16, (150, 5), [1]),
        (UINT8, (2,) * 8, [0, 2, 4, 6]),
    ],
    ids=str,
)
def test_axes_are_exact_within_other_limits(limited, data_type, sizes, axes):
    for options in {"direction": DECREASING}, {"output_strides": doubled(sizes, axes)}:
        check(limited, arg_desc(ArgmaxOperatorDesc, data_type, sizes, axes, **options), ties)


@by_width
@pytest.mark.parametrize(("sizes", "axis"), [((40, 331), 0), ((2, 40, 331), 1), ((90, 129), 0)], ids=str)
def test_rows_of_columns_may_have_parts_with_odd_ends(driver, open_device, data_type, sizes, axis):
    device = open_device(driver.index, low(driver, "short-dispatches"))
    desc = arg_desc(ArgmaxOperatorDesc, data_type, sizes, [axis], DECREASING)
    assert len(device.compile(desc).plan.dispatches) > 2
    check(device, desc, ties)


@pytest.mark.parametrize(
    "desc",
    [
        pool_desc(UINT8, (1, 3, 33, 35), (5, 4), (2, 1), (2, 1), (1, 2)),
        pool_desc(FLOAT32, (2, 1, 30, 31), (17, 13), (3, 2), (8, 6), (8, 6)),
        pool_desc(INT64, (1, 1, 5, 9, 8), (3, 4, 2), None, (1, 2, 0), (1, 1, 1), (1, 2, 3), UINT64),
        pool_desc(FLOAT16, (1, 2, 40, 40), (40, 40), indices=None),
    ],
    ids=lambda desc: desc.input_tensor.data_type.name.lower(),
)
def test_windows_are_exact_within_other_limits(limited, desc):
    check(limited, desc)


# Large tensors, with the limits of the device. Results are known from how the tensors are made.


def planted(shape, axis, dtype):
    """Zeros with a one for every output, and its index along the axis."""
    kept = tuple(1 if i == axis else n for i, n in enumerate(shape))
    where = np.arange(np.prod(kept), dtype=np.int64).reshape(kept) * 7919 % shape[axis]
    x = np.zeros(shape, dtype)
    np.put_along_axis(x, where, 1, axis)
    return x, where


@pytest.mark.parametrize(
    ("shape", "axis", "dtype"),
    [
        ((70_000,), 0, np.int64),
        ((1 << 20,), 0, np.uint8),
        ((70_001, 3), 0, np.float32),
        ((3, 70_001), 1, np.float16),
        ((2, 66_000, 2), 1, np.uint8),
        ((40, 800_001), 0, np.uint8),
        ((4_200_000, 2), 1, np.uint8),  # more outputs than 65,535 workgroups have invocations
    ],
    ids=str,
)
def test_long_axes_and_many_outputs_are_exact(device, shape, axis, dtype):
    x, where = planted(shape, axis, dtype)
    assert np.array_equal(argmax(x, axis, keepdims=True, device=device), where)
    assert np.array_equal(argmin(x.max() - x, axis, keepdims=True, device=device), where)


@pytest.mark.parametrize("cores", [3, 5])
def test_results_do_not_depend_on_the_cores(driver, open_device, cores):
    """Each number of workgroups cuts the axes differently. Axes are whole vectors, or odd."""
    limits = device_limits(replace(driver, type="cpu"))
    device = open_device(driver.index, replace(limits, group_count=4 * cores))
    for desc in (
        arg_desc(ArgmaxOperatorDesc, UINT8, (1, 655_376), [1], DECREASING),
        arg_desc(ArgminOperatorDesc, FLOAT32, (2, 300_007), [1]),
        arg_desc(ArgmaxOperatorDesc, UINT8, (40_003, 33), [0], DECREASING),
    ):
        check(device, desc, ties)
    check(device, pool_desc(FLOAT32, (3, 5, 37, 40), (3, 3), (2, 1), (1, 1), (1, 1)))
    check(device, pool_desc(UINT8, (2, 7, 41, 44), (2, 3), (1, 2), (0, 1), (1, 1)))


# columns.comp packs an index of at most 24 bits with an 8-bit element, and of 16 bits with a 16-bit element.
@pytest.mark.parametrize(
    ("dtype", "rows"),
    [*itertools.product([np.int8, np.uint8], [300, 5000]), *itertools.product([np.float16], [65_535, 65_536, 65_537])],
)
def test_long_columns_of_small_elements_are_exact(device, dtype, rows):
    x = np.zeros((rows, 33), dtype)
    first = np.arange(33) * 7919 % (rows - 255)
    last = first + np.arange(33) * 255 // 32
    x[first, range(33)] = x[last, range(33)] = 1
    assert argmax(x, 0, device=device).tolist() == first.tolist()
    assert argmax(x, 0, axis_direction=DECREASING, device=device).tolist() == last.tolist()
    x[-1] = 1
    assert argmax(x, 0, axis_direction=DECREASING, device=device).tolist() == [rows - 1] * 33
    zeros = x[::-1] == 0
    assert argmin(x, 0, axis_direction=DECREASING, device=device).tolist() == (rows - 1 - zeros.argmax(0)).tolist()


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((1, 1, 300, 300), np.uint8),
        ((2, 3, 260, 257), np.float32),
        ((1, 1, 1, 100_000), np.uint8),
        ((1, 1, 100_000, 1), np.float32),
        ((1, 2, 41, 42, 43), np.uint8),
    ],
    ids=str,
)
def test_a_window_may_have_more_elements_than_loops_have_iterations(device, shape, dtype):
    x = np.random.default_rng(1).integers(0, 250, shape).astype(dtype)
    values, indices = max_pooling(x, shape[2:], output_indices=True, device=device)
    planes = x.reshape(shape[0] * shape[1], -1)
    assert values.reshape(-1).tolist() == planes.max(1).tolist()
    assert indices.reshape(-1).tolist() == (planes.argmax(1) + np.arange(len(planes)) * planes.shape[1]).tolist()


@pytest.mark.parametrize("start", [0, 32, 90])
def test_splits_of_windows_may_lie_in_the_padding(limited, start):
    for end, width, window in itertools.product((0, 3, 50, 90), (8, 41, 64), (33, 64, 100, 130)):
        stride = (1, 4, 7)[(start + end + width + window) % 3]
        if max(start, end) < window <= width + start + end:
            check(limited, pool_desc(FLOAT32, (1, 2, 2, width), (1, window), (1, stride), (0, start), (0, end)), ties)


def test_windows_may_outnumber_the_invocations_of_65535_groups(device):
    x = np.random.default_rng(3).integers(0, 256, (1, 1, 2050, 2055)).astype(np.int32)
    values = max_pooling(x, (2, 2), device=device)[0, 0]
    plane = x[0, 0]
    assert np.array_equal(values, np.maximum.reduce([plane[:-1, :-1], plane[:-1, 1:], plane[1:, :-1], plane[1:, 1:]]))


# Four rows in a segment; a row in two segments; a row in four.
@pytest.mark.parametrize("sizes", [(8, 1 << 18), (9, 300_000), (3, 3_333_328), (2, 2, 2, 1 << 18)], ids=str)
@pytest.mark.parametrize("kernel", ["rows", "rows_cooperating"])
def test_fast_kernels_reduce_long_rows_in_several_segments(sizes, kernel):
    limits = Limits(segment_bytes=1 << 20, group_size=64, group_count=8, cooperating=kernel == "rows_cooperating")
    dispatches = lower(arg_desc(ArgmaxOperatorDesc, UINT8, sizes, [len(sizes) - 1]), limits).dispatches
    dispatches = [dispatch for dispatch in dispatches if not dispatch.shader.variant.startswith("combine")]
    assert {dispatch.shader.variant for dispatch in dispatches} == {kernel}
    # No element is loaded twice.
    pushes = [dispatch.push for dispatch in dispatches]
    loads = sum(push["output_count"] * (push["reduced_end"] - push["reduced_begin"]) for push in pushes)
    assert loads == math.prod(sizes)


# Tensors of more than maxStorageBufferRange, 128 MiB on lavapipe

only_lavapipe = pytest.mark.parametrize("driver", ["lavapipe"], indirect=True)


@only_lavapipe
def test_input_and_output_may_exceed_128_mib(device):
    x = np.zeros((4, 33_600_000), np.uint8)
    for row in range(4):
        x[row, row::4] = 1
    indices = argmax(x, 0, device=device)
    assert min(x.nbytes, indices.nbytes) > device.info.max_storage_buffer_range
    assert (indices.reshape(-1, 4) == np.arange(4)).all()


@pytest.mark.parametrize(
    ("sizes", "axis", "order"),
    [
        *((sizes, 1, (0, 1)) for sizes in ((3, 48_000_000), (5, 7_000_000), (1, 120_000_000), (70, 2_000_000))),
        *(((3_000_000, 40), 0, (0, 1)), ((2, 700_000, 33), 1, (0, 1, 2)), ((100_000_000, 16), 0, (0, 1))),
        # Outputs that follow each other lie in different segments.
        *(((4, 4, 3_000_000), 2, (1, 0, 2)), ((4, 5, 2_500_000), 2, (1, 0, 2))),
    ],
    ids=str,
)
@pytest.mark.parametrize("segment_bytes", [128 << 20, 8 << 20], ids=["few-segments", "many-segments"])
@pytest.mark.parametrize("cooperating", [False, True], ids=["cpu", "gpu"])
def test_long_axes_keep_to_the_loads_of_an_invocation(sizes, axis, order, segment_bytes, cooperating):
    # Few invocations, as with two cores: splits are long, and an invocation may have several.
    limits = Limits(segment_bytes, group_size=64, group_count=2, dispatch_count=1 << 14, cooperating=cooperating)
    desc = arg_desc(ArgmaxOperatorDesc, UINT8, sizes, [axis], strides=permuted_strides(sizes, order))
    limits = lower(desc, limits).limits
    for dispatch in lower(desc, limits).dispatches:
        kernel = dispatch.shader.variant
        if not kernel.startswith("combine"):
            push, threads = dispatch.push, dispatch.shader.constants.get("threads", 1)
            outputs = -(-push["output_count"] // 16) if kernel.startswith("columns") else push["output_count"]
            elements = push["reduced_end"] - push["reduced_begin"]
            items = outputs * -(-elements // push["split_size"])
            rounds = -(-items // (limits.invocations // threads))
            at_once = {"rows": 16, "rows_cooperating": 16 * threads, "columns_cooperating": threads}.get(kernel, 1)
            assert rounds * (min(push["split_size"], elements) // at_once) <= dispatch.loads <= limits.invocation_loads


@pytest.mark.parametrize("strides", [(1, 1), (2, 1), (2, 2)])
@pytest.mark.parametrize("height", [20, 43, 46, 64])
def test_tiles_keep_to_the_loads_of_an_invocation(height, strides):
    for loads, planes in itertools.product(range(150, 1000, 70), (2, 3)):
        limits = Limits(segment_bytes=128 << 20, group_size=8, group_count=1, invocation_loads=loads)
        for dispatch in lower(pool_desc(FLOAT32, (1, planes, height, 40), (3, 3), strides), limits).dispatches:
            push, constants = dispatch.push, dispatch.shader.constants
            slab_rows, per_row = push["output_count"] // push["output_size"][2], -(-push["output_size"][2] // 4)
            slabs, remainder = divmod(slab_rows, push["output_size"][1])
            tiles = slabs * -(-push["output_size"][1] // push["tile_height"]) or -(-remainder // push["tile_height"])
            # A ring of one row has three of input. Iterations without outputs fill a longer one.
            rows, fresh = constants["ring_rows"], constants["fresh_rows"]
            tile_loads = 1 + (3 if rows == 1 else fresh) * (push["tile_height"] + (rows - 1) // fresh)
            assert -(-tiles * per_row // 8) * tile_loads <= dispatch.loads <= limits.invocation_loads


@pytest.mark.parametrize(
    ("sizes", "window"),
    [
        ((2, 3, 23, 20), ((3, 3), (1, 1), (1, 1), (1, 1))),
        ((2, 3, 33, 20), ((3, 2), (2, 1), (1, 0), (1, 2), (1, 2))),
        ((3, 2, 27, 24), ((2, 3), (2, 2), (0, 2), (1, 2), (3, 2))),
        ((1, 2, 5, 19, 20), ((2, 3, 3), (2, 1, 1), (1, 1, 1), (0, 1, 1))),
    ],
    ids=str,
)
@pytest.mark.parametrize("data_type", [FLOAT32, INT8], ids=lambda data_type: data_type.name.lower())
def test_strips_may_lie_in_several_planes(driver, open_device, data_type, sizes, window):
    device = open_device(driver.index, replace(device_limits(driver), group_size=8, group_count=1, unrolls=True))
    desc = pool_desc(data_type, sizes, *window)
    for dispatch in device.compile(desc).plan.dispatches:
        height = desc.output_tensor.sizes[-2]
        assert 1 < dispatch.push["tile_height"] < height
        assert height % dispatch.push["tile_height"]
    check(device, desc, any_bits)
