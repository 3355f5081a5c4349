"""llvmpipe silently ends loops after 65,535 iterations; no dispatch of a plan iterates as often."""

import dataclasses
import random

import pytest
import z3

import dmlgpu
from dmlgpu import ArgmaxOperatorDesc, AveragePoolingOperatorDesc, ExecutionFlags, ReduceOperatorDesc, TensorDesc
from dmlgpu.lowering.kernels.scatter import Write
from dmlgpu.lowering.limits import Limits
from dmlgpu.lowering.lower import DESCRIPTIONS, lower
from dmlgpu.testing.cases import FLOAT16, FLOAT32, INT64, UINT8, UINT32, arg_desc, pool_desc
from tests.fuzz import large
from tests.fuzz.descriptors import Choices
from tests.support import symbolic
from tests.support.drivers import DRIVERS, device_of
from tests.support.iterations import MOST, Counter
from tests.support.limits import LIMITS
from tests.support.plans import chosen, of_operator

F = dmlgpu.ReduceFunction
# Maximum numbers of iterations: for each load, and for the ends of an invocation's loops.
ITERATIONS, ENDS = 3.5, 20


@pytest.fixture(scope="module")
def counter():
    if DRIVERS.get("lavapipe") is None:
        pytest.fail("the Vulkan driver lavapipe, which counts iterations, was not found")
    counter = Counter(device_of(DRIVERS["lavapipe"]).index)
    desc = ArgmaxOperatorDesc.of(TensorDesc(FLOAT32, (4096, 1024)), axes=(1,))
    if counter.iterations(lower(desc, Limits(1 << 27, 64, 8, simd_width=8)).dispatches[0], 1) < 0:
        pytest.skip("this llvmpipe ends no loops; that of Mesa 22.3 does")
    return counter


@pytest.fixture(scope="module")
def infinite():
    """A counter whose elements are infinities, which exact sums load twice."""
    return Counter(device_of(DRIVERS["lavapipe"]).index, 0x7F800000)


@pytest.mark.parametrize(
    ("variant", "sizes", "strides", "axes"),  # poolings have window sizes as axes
    [
        ("rows", (1 << 14, 1000), (0, 1), (1,)),
        ("columns", (1 << 8, 1000, 16), (0, 16, 1), (1,)),
        ("reduce", (1 << 12, 20, 20, 2), (0, 40, 2, 1), (1, 2)),
        ("pool_small", (1, 1, 1 << 12, 1 << 9), (0, 0, 0, 1), (7, 7)),
        ("pool_small", (1, 1, 1 << 10, 1 << 8), (0, 0, 0, 1), (20, 40)),
        ("pool_small_wide", (1, 1, 1 << 10, 1 << 8), (0, 0, 0, 1), (40, 40)),
        ("pool_direct", (1, 1, 1, 1 << 20), (0, 0, 0, 0), (1, 1)),
        ("pool_direct", (1, 1, 900, 80), (0, 0, 0, 2), (25, 40)),
        ("pool_direct", (1, 1, 900, 80), (0, 0, 0, 2), (33, 40)),
    ],
)
def test_exact_sums_that_load_elements_twice_stay_within_the_limit(counter, infinite, variant, sizes, strides, axes):
    """All outputs have the same elements."""
    source = TensorDesc(FLOAT32, sizes, strides)
    if variant.startswith("pool"):
        desc = AveragePoolingOperatorDesc.of(source, axes)
    else:
        desc = ReduceOperatorDesc.of(F.SUM, source, axes)
    plan = lower(desc, Limits(1 << 27, 64, 4, simd_width=8), flags=ExecutionFlags.EXACT_SUMS)
    first = plan.dispatches[0]
    assert first.shader.variant == variant
    assert first.loads > Limits.invocation_loads / 2
    check(infinite, plan)
    assert infinite.iterations(first, 4) > first.loads / 2


@pytest.mark.parametrize(
    ("sizes", "regions", "size"),
    [((1, 1, 90, 100), 1 << 11, 1), ((1, 1, 50, 50), 1 << 12, (3, 7)), ((1, 1, 300, 400), 3, 1)],
    ids=["bins", "rows", "splits"],
)
def test_regions_of_whole_planes_stay_within_the_limit(counter, sizes, regions, size):
    """All regions have infinite corners."""
    counter = Counter(device_of(DRIVERS["lavapipe"]).index, 0, 0xFF800000, 0xFF800000, 0x7F800000, 0x7F800000)
    desc = dmlgpu.RoiPoolingOperatorDesc.of(TensorDesc(FLOAT32, sizes), size, roi_count=regions)
    plan = lower(desc, Limits(1 << 27, 64, 4, simd_width=8))
    first = plan.dispatches[0]
    assert first.shader.variant == "roi_pool"
    assert first.loads > Limits.invocation_loads / 2
    assert counter.iterations(first, 4) > first.loads / 10
    check(counter, plan)


def reversed_strides(sizes, gap):
    """Strides with the first dimension innermost, and a gap after each dimension, so that no two merge."""
    strides, step = [], 1
    for size in sizes:
        strides.append(step)
        step = step * size + gap
    return tuple(strides)


REDUCTIONS = [
    (F.MAX, FLOAT32, False),
    (F.MAX, UINT8, False),
    (F.SUM, FLOAT32, False),
    (F.SUM, INT64, False),
    (F.LOG_SUM_EXP, FLOAT32, False),
    (F.MULTIPLY, FLOAT16, False),
    (F.SUM, FLOAT32, True),
    (F.AVERAGE, FLOAT16, True),
    (F.L2, FLOAT32, True),
]


@pytest.mark.parametrize("rank", [1, 2, 5, 8])
@pytest.mark.parametrize("axis", ["first", "last"])
def test_short_outputs_of_every_rank_stay_within_the_limit(counter, infinite, rank, axis):
    """Millions of outputs have a few elements, so that loops over outputs are as long as loops over elements."""
    size = round((1 << 22) ** (1 / max(rank - 1, 1)))
    kept = [size + 1, *[size] * (rank - 2)] if rank > 1 else []
    for count in 1, 2, 3, 4, 8, 17:
        # The reduced axis, or the first kept axis, has stride 1.
        strides = reversed_strides([count, *kept] if axis == "first" else [*kept, count], gap=3)
        strides = [*strides[1:], strides[0]] if axis == "first" else strides
        for function, data_type, exact in REDUCTIONS[(rank + count) % 5 :: 5]:
            desc = ReduceOperatorDesc.of(function, TensorDesc(data_type, [*kept, count], strides), (rank - 1,))
            flags = ExecutionFlags.EXACT_SUMS if exact else ExecutionFlags.NONE
            plan = lower(desc, Limits(1 << 31, 64, 4, simd_width=8), flags=flags)
            check(infinite if exact else counter, plan)
            first = plan.dispatches[0]
            if rank > 1 and count < 4 and first.shader.variant == "reduce":
                assert first.loads > Limits.invocation_loads / 2


def check(counter, plan):
    """Checks, for every shader of a plan, the dispatch with the most loads."""
    for dispatch in {d.shader: d for d in sorted(plan.dispatches, key=lambda d: d.loads)}.values():
        iterations = counter.iterations(dispatch, plan.limits.group_count)
        assert iterations <= ITERATIONS * dispatch.loads + ENDS, f"{plan.desc}\n{plan.limits}\n{dispatch}"
        assert dispatch.loads <= plan.limits.invocation_loads


def test_the_most_loads_stay_within_the_limit_of_llvmpipe():
    assert ITERATIONS * Limits.invocation_loads + ENDS < MOST


def test_the_counter_finds_loops_that_are_ended(counter):
    """An eighth of the invocations cannot finish the work of all."""
    limits = Limits(1 << 27, 64, 8, simd_width=8, invocation_loads=1 << 16)
    (dispatch,) = lower(ArgmaxOperatorDesc.of(TensorDesc(FLOAT32, (64, 512, 512)), axes=(0, 2)), limits).dispatches
    assert counter.iterations(dispatch, 8) < MOST
    assert counter.iterations(dispatch, 1) >= MOST - 1


MAXIMA, SHARES = dmlgpu.MaxPoolingGradOperatorDesc, dmlgpu.AveragePoolingGradOperatorDesc


def grad(kind, sizes, window, strides=(1, 1)):
    x = TensorDesc(FLOAT32, sizes)
    if kind is MAXIMA:
        return kind.of(x, window, strides=strides)
    pooled = AveragePoolingOperatorDesc.of(x, window, strides=strides)
    return kind.of(pooled.output_tensor, sizes, window, strides=strides)


def average(sizes, window):
    return AveragePoolingOperatorDesc.of(TensorDesc(FLOAT32, sizes), window)


def lp(window, p):
    return dmlgpu.LpPooling1OperatorDesc.of(TensorDesc(FLOAT32, (1, 1, 4096, 1024)), window, p=p)


def top_k(data_type, sizes, k):
    return dmlgpu.TopKOperatorDesc.of(TensorDesc(data_type, sizes), k)


def unpooling(strides=None):
    return dmlgpu.MaxUnpoolingOperatorDesc.of(TensorDesc(UINT8, (1, 1, 4096, 4096), strides), (4096, 4096))


def quantized(channels):
    return dmlgpu.QuantizedLinearAveragePoolingOperatorDesc.of(
        TensorDesc(UINT8, (1, channels, 1, 1)), (1, 1), per_channel=True
    )


@pytest.mark.parametrize(
    ("variant", "desc"),
    [
        # For each line two loops end: that over its two elements, and that which computes its address.
        ("reduce", ArgmaxOperatorDesc.of(TensorDesc(UINT8, (700, 16368, 2), (0, 3, 1)), axes=(1, 2))),
        ("reduce", ReduceOperatorDesc.of(F.SUM, TensorDesc(FLOAT16, (1 << 24, 3)), axes=(1,))),
        # Rows that are not aligned, and one row.
        ("rows", ArgmaxOperatorDesc.of(TensorDesc(FLOAT32, (1 << 14, 1001)), axes=(1,))),
        ("rows", ArgmaxOperatorDesc.of(TensorDesc(FLOAT32, (1 << 24,)), axes=(0,))),
        # Windows of one element, in rows of one.
        ("pool_direct", pool_desc(UINT8, (1, 1, 1 << 23, 1), (1, 1), (2, 1))),
        ("pool_direct", lp((2, 40), p=2**31)),
        ("pool_direct_splits", average((1, 1, 2048, 2048), (2000, 2000))),
        ("pool_small", lp((2, 2), p=3)),
        ("pool_separable_rows", pool_desc(FLOAT32, (1, 4, 512, 512), (33, 33))),
        ("pool_separable_rows", lp((2, 40), p=2**31)),
        ("pool_separable_columns", average((1, 1, 2048, 2048), (2000, 9))),
        ("pool_separable_rows_shares", grad(SHARES, (1, 4, 2048, 512), (33, 33))),
        ("pool_backward_small_maxima", grad(MAXIMA, (1, 1, 1 << 23, 1), (1, 1))),
        ("pool_backward_small_maxima_turns", grad(MAXIMA, (1, 1, 1 << 20, 36), (1, 33))),
        ("pool_backward_small_shares", grad(SHARES, (1, 1, 1 << 22, 1), (1, 1))),
        # Tiles do not fit strides of 9.
        ("pool_backward_maxima", grad(MAXIMA, (1, 1, 1 << 23, 1), (1, 1), (9, 1))),
        ("pool_backward_shares", grad(SHARES, (1, 1, 1 << 22, 1), (1, 1), (9, 1))),
        ("scatter", unpooling()),
        ("scatter", unpooling(strides=(0, 0, 4097, 1))),
        ("roi_pool", dmlgpu.RoiPoolingOperatorDesc.of(TensorDesc(FLOAT32, (1, 1, 1, 1)), 1, roi_count=1 << 20)),
        ("top_k_sort", top_k(FLOAT32, (4, 1 << 22), 3)),
        ("top_k_sort_long", top_k(FLOAT32, (4, 1 << 22), 60)),
        ("top_k_merge", top_k(FLOAT32, (1 << 21,), 1 << 21)),
        ("top_k_write", top_k(UINT8, (1 << 21,), 1 << 21)),
        ("requantize", quantized(1 << 23)),
        ("scan", dmlgpu.CumulativeSummationOperatorDesc.of(TensorDesc(FLOAT32, (253, 16001)), 1)),
        ("scan_rows", dmlgpu.CumulativeProductOperatorDesc.of(TensorDesc(FLOAT32, (256, 1 << 16)), 1)),
        ("scan_columns", dmlgpu.CumulativeSummationOperatorDesc.of(TensorDesc(UINT32, (16000, 1024)), 0)),
    ],
    ids=str,
)
def test_the_longest_loops_of_each_variant_stay_within_the_limit(counter, variant, desc):
    """With one core, an invocation has almost as many loads as are allowed."""
    kernel = "pool_direct" if variant.startswith("pool_direct") else None
    plan = lower(desc, Limits(1 << 27, 64, 4, simd_width=8, gathers=variant.endswith("turns")), kernel)
    most = max(d.loads for d in plan.dispatches if d.shader.variant == variant)
    assert most > Limits.invocation_loads / 2
    check(counter, plan)


def reduction(function, data_type, sizes, axes, strides=None):
    return ReduceOperatorDesc.of(function, TensorDesc(data_type, sizes, strides), axes)


@pytest.mark.parametrize(
    ("cores", "desc"),
    [
        *((2, reduction(f, FLOAT32, (33, 130000, 3), (0, 2))) for f in (F.SUM, F.L2, F.ARGMAX)),
        (1, reduction(F.SUM, FLOAT32, (30, 3, 50000, 3), (0, 1, 3))),
        (1, reduction(F.SUM, FLOAT32, (15, 2, 15, 13000, 3), (0, 2, 4))),
        (1, reduction(F.SUM, FLOAT32, (13, 3, 99999, 3), (0, 1, 3))),
        (2, reduction(F.ARGMAX, UINT8, (24576, 24576), (0, 1), (1, 24576))),
        *((2, reduction(f, UINT8, (384, 2, 1 << 20), (0, 2))) for f in (F.ARGMAX, F.MAX)),
        (2, reduction(F.SUM, UINT32, (32767, 65536), (0, 1), (0, 1))),
        (2, reduction(F.ARGMAX, UINT8, (1 << 27, 2, 2), (0, 2))),
        (2, dmlgpu.LpPooling1OperatorDesc.of(TensorDesc(FLOAT16, (1, 1, 66000, 451)), (66000, 450), p=(1 << 32) - 1)),
        (4, reduction(F.ARGMAX, UINT8, (1 << 30,), (0,))),
        (16, reduction(F.ARGMAX, FLOAT32, (1 << 28,), (0,))),
        (64, reduction(F.ARGMAX, UINT8, (1 << 26, 2), (0,))),
    ],
    ids=lambda value: value if isinstance(value, int) else value.summary,
)
def test_loops_that_once_ended_early_are_complete(counter, cores, desc):
    check(counter, lower(desc, Limits(1 << 27, 64, 4 * cores, simd_width=8)))


@pytest.mark.parametrize("seed", range(12))
def test_plans_of_any_size_stay_within_the_limit(counter, seed):
    integer = random.Random(seed).randint
    limits, checked = large.limits(Choices(integer)), 0
    while checked < 2:
        try:
            plan = lower(large.operator(Choices(integer)), limits)
        except dmlgpu.DescriptorError:
            continue  # too much work
        if plan.limits.group_count > 4096:
            continue  # slow
        checked += 1
        check(counter, plan)


def test_plans_of_every_kernel_stay_within_the_limit(counter):
    """The plans have each kernel with each accumulator, and with each width."""
    checked = set()
    for cases, limits in (
        (chosen("CPU"), LIMITS["CPU"]),
        (chosen("CPU"), dataclasses.replace(LIMITS["CPU"], gathers=True)),
        (chosen("GPU"), LIMITS["GPU"]),
        (of_operator("QUANTIZED_LINEAR_AVERAGE_POOLING", chosen("CPU")), LIMITS["split"]),
    ):
        for case in cases:
            plan, new = case.plan(limits), []
            for dispatch in sorted(plan.dispatches, key=lambda dispatch: -dispatch.loads):
                shader = dispatch.shader
                keys = {(shader.variant, shader.accumulator), (shader.variant, shader.bits)}
                if not keys <= checked:
                    new.append(dispatch)
                    checked |= keys
            check(counter, dataclasses.replace(plan, dispatches=tuple(new)))
    assert len(checked) > 150


@pytest.mark.parametrize("cores", [1, 2, 256])
def test_many_partials_are_combined_in_several_levels(cores):
    limits = Limits(1 << 27, 64, 4 * cores, simd_width=8)
    plan = lower(ArgmaxOperatorDesc.of(TensorDesc(UINT8, (24576, 24576), (1, 24576)), axes=(0, 1)), limits)
    first, *others = [d for d in plan.dispatches if d.shader.variant == "combine"]
    assert first.push["partial_count"] > 2048
    assert others[-1].push["partial_count"] <= 2048


# Loops that the driver ends early

# Limits of one SIMD vector of llvmpipe, without a limit of loops.
ONE = Limits(1 << 31, 8, 1, 1 << 30, dispatch_elements=1 << 31, invocation_loads=1 << 28, simd_width=8)
THREADS = dataclasses.replace(ONE, cooperating=True, least_loads=16)
PLANE, LINE = (1, 1, 4096, 2048), (1, 1, 1 << 22, 1)
GAPS = (4096 * 2049, 4096 * 2049, 2049, 1)


def too_long():
    """Plans of every variant of every kernel, with loops that llvmpipe ends early."""
    for limits, function, exact in (ONE, F.MAX, False), (ONE, F.SUM, True), (THREADS, F.SUM, False):
        flags = ExecutionFlags.EXACT_SUMS if exact else ExecutionFlags.NONE
        shapes = ((1 << 22, 3), 1), ((1 << 21, 32), 1), ((1 << 20, 4, 16), 1), ((1 << 19, 6, 17), 1)
        for sizes, axis in shapes:
            yield lower(ReduceOperatorDesc.of(function, TensorDesc(FLOAT32, sizes), (axis,)), limits, flags=flags)
        # The elements of each output lie in two segments.
        halves = TensorDesc(FLOAT32, (1 << 21, 2), (1, 1 << 22))
        split = dataclasses.replace(limits, segment_bytes=1 << 24)
        yield lower(ReduceOperatorDesc.of(function, halves, (1,)), split, flags=flags)
        if function is F.SUM:
            split = dataclasses.replace(limits, segment_bytes=1 << 23)
            yield lower(average((1, 1, 2, 1 << 21), (2, 1)), split, "pool_direct", flags)
    yield lower(average((1, 1, 1 << 14, 512), (33, 34)), ONE, flags=ExecutionFlags.EXACT_SUMS)
    yield lower(pool_desc(FLOAT32, PLANE, (3, 3)), ONE)
    for gathers in False, True:
        limits = dataclasses.replace(ONE, temporary_bytes=1 << 30, gathers=gathers)
        yield lower(pool_desc(FLOAT32, PLANE, (21, 21)), limits)
        yield lower(grad(MAXIMA, PLANE, (3, 3)), limits)
    yield lower(pool_desc(FLOAT32, LINE, (1, 1), (2, 1)), ONE, "pool_direct")
    for kind in MAXIMA, SHARES:
        yield lower(grad(kind, PLANE, (3, 3)), ONE)
        yield lower(grad(kind, LINE, (1, 1), (9, 1)), ONE)
        split = dataclasses.replace(ONE, segment_bytes=1 << 23)
        yield lower(grad(kind, (1, 1, 3, 1 << 21), (2, 1)), split, "pool_backward")
    yield lower(grad(SHARES, PLANE, (21, 21)), dataclasses.replace(ONE, temporary_bytes=1 << 30))
    for strides in None, GAPS:
        source, indices = TensorDesc(FLOAT32, PLANE, strides), TensorDesc(UINT32, PLANE, strides)
        desc = dmlgpu.MaxUnpoolingOperatorDesc.of(source, PLANE, indices_tensor=indices)
        yield lower(dataclasses.replace(desc, output_tensor=source), ONE)
    yield lower(dmlgpu.RoiPoolingOperatorDesc.of(TensorDesc(FLOAT32, (1, 1, 1, 1)), 1, roi_count=1 << 22), ONE)
    yield lower(top_k(FLOAT32, (1 << 22,), 3), ONE)
    yield lower(top_k(FLOAT32, (1 << 21,), 1 << 21), ONE)
    yield lower(quantized(1 << 20), ONE)
    for limits, sizes in (
        *((ONE, (1 << 20, lines)) for lines in (1, 3, 8)),
        (THREADS, (1 << 20,)),
        (dataclasses.replace(ONE, least_loads=1 << 20), (1 << 29,)),
    ):
        yield lower(dmlgpu.CumulativeSummationOperatorDesc.of(TensorDesc(FLOAT32, sizes), 0), limits)


def test_an_ended_inner_loop_of_the_only_item_is_reported(counter):
    limits = dataclasses.replace(ONE, least_loads=1 << 28)
    desc = ReduceOperatorDesc.of(F.SUM, TensorDesc(FLOAT32, (8, 1 << 19), (1, 8)), (1,))
    (dispatch,) = lower(desc, limits, "reduce").dispatches
    assert counter.iterations(dispatch, 1) >= MOST - 1
    assert counter.reports(dispatch, 1)


def test_the_last_step_of_unpooling_reports_for_all(counter):
    """The steps that write bind four buffers, and have no status."""
    plan = lower(dmlgpu.MaxUnpoolingOperatorDesc.of(TensorDesc(FLOAT32, (1, 1, 8, 8)), (16, 16)), ONE)
    *_, writes, again, last = plan.dispatches
    assert (writes.has_status, again.has_status, last.has_status) == (False, False, True)
    for flags in 0, 1, 2, 3:
        assert counter.reports(last, 1, flags) == (flags >= 2)


def test_every_kernel_reports_a_loop_that_is_ended(counter):
    """No kernel reports a complete loop."""
    reporting = set()
    for plan in too_long():
        for dispatch in {d.shader: d for d in sorted(plan.dispatches, key=lambda d: d.loads)}.values():
            constants = dispatch.shader.constants
            if constants.get("reports") or constants.get("checked") or constants.get("write") == Write.AGAIN:
                continue  # another dispatch decides whether it has work
            ended = counter.iterations(dispatch, 1) >= MOST - 1
            assert counter.reports(dispatch, 1) == ended, dispatch
            reporting |= {dispatch.shader.variant} if ended else set()
    assert DESCRIPTIONS.keys() - reporting == set()


@pytest.mark.parametrize("kernel", ["reduce", "columns", "combine"])
def test_a_driver_that_counts_each_loop_separately_is_reported(kernel):
    """An invocation has four items, and its other loops iterate at most twice."""
    limits = Limits(1 << 27, 64, 1)
    if kernel == "combine":
        desc = arg_desc(ArgmaxOperatorDesc, FLOAT32, (256, 2), [1], output_strides=(2, 1))
    else:
        sizes, axis = ((256, 2), 1) if kernel == "reduce" else ((256, 2, 16), 1)
        desc = ArgmaxOperatorDesc.of(TensorDesc(FLOAT32, sizes), axes=(axis,))
    *_, dispatch = lower(desc, limits).dispatches
    assert dispatch.shader.variant == kernel
    words = [z3.BitVecVal(0, 32)] * 8192
    assert [symbolic.status(dispatch, {0: words, 1: words}, most_iterations) for most_iterations in (4, 3)] == [1, 3]
