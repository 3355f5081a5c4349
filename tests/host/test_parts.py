"""Problems are cut into parts: each element of each output lies in one part, whose segment is bound."""

import itertools
import math
import random
from dataclasses import replace

import pytest

import dmlgpu
from dmlgpu import ArgmaxOperatorDesc, AveragePoolingGradOperatorDesc, MaxPooling2OperatorDesc, TensorDesc
from dmlgpu.lowering.geometry import Dim
from dmlgpu.lowering.kernels.cut import Extent, Part, PartKernel, Rules, Tiling
from dmlgpu.lowering.kernels.pool_backward import PoolBackward
from dmlgpu.lowering.limits import Limits
from dmlgpu.lowering.lower import KERNELS, lower
from dmlgpu.lowering.problem import Axes, CoveringWindows, problems_of
from dmlgpu.testing.cases import FLOAT16, FLOAT32, INT64, UINT8, arg_desc, pool_desc
from tests.support.plans import check

SMALL = Limits(256, group_size=4, group_count=4, dispatch_count=1 << 20)
# Limits with memory for many partials.
ROOMY = replace(SMALL, segment_bytes=1 << 16)


def kernels_of(desc, segments, limits=SMALL):
    """The kernels that can compute parts of an operator, whose segments have this number of elements."""
    for problem in problems_of(desc.canonical()):
        placed = problem.in_memory(lambda of: segments)
        for kind in KERNELS[type(problem.domain)]:
            kernel = kind(placed, limits)
            if isinstance(kernel, PartKernel) and not kernel.why_impossible:
                yield kernel


def parts_by_outputs(kernel):
    outputs = range(kernel.problem.output_count)
    while outputs:
        parts = kernel._first_parts(outputs)
        yield parts
        outputs = outputs[len(parts[0].outputs) :]


def elements_of(kernel, output):
    """For each element of an output, its number, as in `Part.elements`, and its address in the first source."""
    domain, source = kernel.problem.domain, kernel.source
    if isinstance(domain, Axes):
        sizes = [dim.size for dim in domain.kept]
        first = sum(i * dim.stride for i, dim in zip(unraveled(output, sizes), domain.kept, strict=True))
        for number in range(domain.element_count):
            places = unraveled(number, [dim.size for dim in domain.reduced])
            yield number, first + sum(i * dim.stride for i, dim in zip(places, domain.reduced, strict=True))
        return
    strides = (*source.element_strides[:2], *domain.stride)
    if isinstance(domain, CoveringWindows):
        *planes, depth, height, width = unraveled(output, (*source.sizes[:2], *domain.fields["size"]))
        covering = [window.covering(i, i) for window, i in zip(domain.along, (depth, height, width), strict=True)]
        for windows in itertools.product(*(range(first, last + 1) for first, last in covering)):
            yield None, sum(i * stride for i, stride in zip((*planes, *windows), strides, strict=True))
        return
    direct = getattr(kernel, "direct", kernel)
    *planes, depth, height, width = unraveled(output, (*source.sizes[:2], *domain.fields["output_size"]))
    for places in itertools.product(*(range(window.window_size) for window in domain.along)):
        along = zip(domain.along, (depth, height, width), places, strict=True)
        elements = [window.begin(first) + i * window.dilation for window, first, i in along]
        if all(0 <= i < window.size for i, window in zip(elements, domain.along, strict=True)):
            splits = [place // size for place, size in zip(places, direct.split_sizes, strict=True)]
            number = 0
            for split, count in zip(splits, direct.split_counts, strict=True):
                number = number * count + split
            yield number, sum(i * stride for i, stride in zip((*planes, *elements), strides, strict=True))


def unraveled(number, sizes):
    places = []
    for size in reversed(sizes):
        number, place = divmod(number, size)
        places.append(place)
    return places[::-1]


def max_pooling(data_type, sizes, window, window_strides=(1, 1), strides=None):
    return MaxPooling2OperatorDesc.of(TensorDesc(data_type, sizes, strides), window, strides=window_strides)


def max_gradient(data_type, sizes):
    return dmlgpu.MaxPoolingGradOperatorDesc.of(TensorDesc(data_type, sizes), (3, 3), strides=(2, 2))


def average_gradient(sizes, output_sizes, window, strides):
    return AveragePoolingGradOperatorDesc.of(TensorDesc(FLOAT32, sizes), output_sizes, window, strides=strides)


OPERATORS = {
    "rows": arg_desc(ArgmaxOperatorDesc, FLOAT32, (9, 37), [1]),
    "columns": arg_desc(ArgmaxOperatorDesc, FLOAT32, (37, 9), [0]),
    "middle": arg_desc(ArgmaxOperatorDesc, FLOAT16, (4, 13, 10), [1]),
    "outer-and-inner": arg_desc(ArgmaxOperatorDesc, UINT8, (5, 7, 6), [0, 2]),
    "back-and-forth": arg_desc(ArgmaxOperatorDesc, FLOAT32, (6, 5, 7), [1], strides=(1, 42, 6)),
    "far-apart": arg_desc(ArgmaxOperatorDesc, FLOAT32, (3, 4, 5), [1, 2], strides=(7, 300, 21)),
    "without-a-stride": dmlgpu.ReduceOperatorDesc.of(
        dmlgpu.ReduceFunction.SUM, TensorDesc(FLOAT32, (3, 40), (0, 1)), (0,)
    ),
    "one-output": arg_desc(ArgmaxOperatorDesc, INT64, (333,), [0]),
    "windows": pool_desc(FLOAT32, (2, 3, 9, 12), (3, 3), (2, 2), (1, 1)),
    "odd-windows": pool_desc(FLOAT16, (2, 2, 7, 9), (2, 3), (1, 1)),
    "long-windows": pool_desc(FLOAT32, (1, 2, 30, 8), (15, 5), (3, 3)),
    "planes-apart": pool_desc(FLOAT32, (3, 2, 6, 8), (3, 3), input_strides=(301, 90, 9, 1)),
    "shares": average_gradient((2, 3, 5, 6), (2, 3, 11, 13), (3, 3), (2, 2)),
    "maxima": max_gradient(FLOAT16, (2, 2, 11, 13)),
}


@pytest.mark.parametrize("segment", [16, 40, 64, 100, 1 << 20])
@pytest.mark.parametrize("name", OPERATORS)
def test_each_element_lies_in_one_part(name, segment):
    kernels = list(kernels_of(OPERATORS[name], segment))
    assert kernels
    for kernel in kernels:
        end = 0
        for parts in parts_by_outputs(kernel):
            outputs = parts[0].outputs
            assert outputs.start == end
            end = outputs.stop
            assert {part.outputs for part in parts} == {outputs}
            assert len({part.segments for part in parts}) == len(parts)
            # A tensor's or the partials' size may force an unaligned end; soon after it, parts begin aligned again.
            assert outputs.start % kernel.rules.step == 0 or end <= kernel.rules.next(outputs.start)
            for output in outputs:
                for number, address in elements_of(kernel, output):
                    bound = [part for part in parts if part.segments[0] == address // segment]
                    assert bound
                    assert number is None or all(number in part.elements for part in bound)
            check_whole(kernel, parts, segment)
            if parts[0].writes_outputs:
                assert len(parts) == 1
                assert parts[0].whole
        assert end == kernel.problem.output_count


def check_whole(kernel, parts, segment):
    """Checks that a whole part has all elements of its segment, and that each part has a kernel that computes it."""
    for part in parts:
        for output in part.outputs if part.whole and isinstance(kernel.problem.domain, Axes) else ():
            numbers = [number for number, at in elements_of(kernel, output) if at // segment == part.segments[0]]
            assert numbers == [*part.elements]
        assert any(not kernel.why_not(part) for kernel in (kernel, *kernel.fallbacks))


def test_maxima_in_several_segments_are_cut_though_gradients_are_in_one():
    *_, problem = problems_of(OPERATORS["maxima"].canonical())
    placed = problem.in_memory(lambda of: 40 if of is problem.sources[1] else 1 << 20)
    ranges = list(parts_by_outputs(PoolBackward(placed, ROOMY)))
    assert max(map(len, ranges)) == 2
    assert {part.segments for parts in ranges for part in parts} == {(0, 0), (0, 1), (0, 2)}


def test_an_argmax_of_one_segment_is_one_part():
    (kernel, *_) = kernels_of(arg_desc(ArgmaxOperatorDesc, FLOAT32, (8, 100), [1]), 1 << 20)
    assert list(parts_by_outputs(kernel)) == [[Part(range(8), range(100), 100, (0,), whole=True, writes_outputs=True)]]


def test_rows_of_three_segments_are_three_parts_if_segments_end_with_rows():
    desc = arg_desc(ArgmaxOperatorDesc, FLOAT32, (12, 100), [1])
    rows = next(kernels_of(desc, 500))
    assert [[(part.outputs, part.segments) for part in parts] for parts in parts_by_outputs(rows)] == [
        [(range(5), (0,))],
        [(range(5, 10), (1,))],
        [(range(10, 12), (2,))],
    ]
    # If they do not, an output in two segments is a separate range.
    outputs = [(parts[0].outputs, len(parts)) for parts in parts_by_outputs(next(kernels_of(desc, 520)))]
    assert outputs == [(range(5), 1), (range(5, 6), 2), (range(6, 10), 1), (range(10, 11), 2), (range(11, 12), 1)]


def test_columns_of_segments_that_end_with_rows_are_one_range():
    desc = arg_desc(ArgmaxOperatorDesc, FLOAT32, (12, 100), [0])
    columns = next(kernels_of(desc, 500, ROOMY))
    (parts,) = parts_by_outputs(columns)
    assert [(part.elements, part.whole) for part in parts] == [
        (range(5), True),
        (range(5, 10), True),
        (range(10, 12), True),
    ]


def test_outputs_that_alternate_between_segments_share_ranges():
    """Runs of adjacent outputs in one segment are short."""
    source = TensorDesc(FLOAT32, (512, 2, 3), (3, 1600, 1))
    kernel = next(kernels_of(dmlgpu.ReduceOperatorDesc.of(dmlgpu.ReduceFunction.SUM, source, (2,)), 1600, ROOMY))
    assert not kernel.rules.ascending
    assert len(list(parts_by_outputs(kernel))) < 20


@pytest.mark.parametrize("seed", range(20))
def test_an_extent_knows_its_steps_in_a_segment(seed):
    """The elements are those of two outputs, and of all outputs between these."""
    rng = random.Random(seed)
    low, reach, apart = rng.randrange(50), rng.randrange(20), rng.randrange(30)
    stride, steps, size = rng.randrange(1, 40), rng.randrange(1, 9), rng.randrange(10, 100)
    high = low + apart + reach
    extent = Extent(low, low + apart, range(steps), (Dim(steps, stride), Dim(reach + 1, 1)), low, high, stride, 2)
    touched = extent.segments(size)
    assert touched == tuple(range(low // size, (high + (steps - 1) * stride) // size + 1))
    for segment in touched:
        of_any, of_all = extent.within(segment, size)
        places = [range(low + i * stride, high + i * stride + 1) for i in range(steps)]
        inside = [place[0] // size == segment == place[-1] // size for place in places]
        partly = [place[0] // size <= segment <= place[-1] // size for place in places]
        assert list(of_any[::2]) == [2 * i for i in range(steps) if partly[i]]
        assert list(of_all[::2]) == [2 * i for i in range(steps) if inside[i]]


def test_steps_without_a_stride_lie_in_all_segments_of_the_extent():
    extent = Extent(0, 150, range(7), step_elements=3)
    assert extent.within(1, 100) == (range(21), range(0))
    assert extent.within(0, 200) == (range(21), range(21))


def test_a_part_has_at_most_2_to_the_31_outputs():
    limits = Limits((1 << 32) - 256, 1 << 10, 1 << 16, dispatch_elements=1 << 40, invocation_loads=1 << 30)
    (kernel, *_) = kernels_of(arg_desc(ArgmaxOperatorDesc, UINT8, (2**32 - 1, 1), [1]), 2**32, limits)
    assert [len(parts[0].outputs) for parts in parts_by_outputs(kernel)] == [1 << 31, (1 << 31) - 1]


def test_parts_are_cut_between_splits():
    part = Part(range(8), range(10, 47), 5, (0,), whole=True)
    assert part.splits == 8
    cut = list(part.cut(3, partials=4))
    assert [(short.elements, short.partials_before, short.splits) for short in cut] == [
        (range(10, 25), 4, 3),
        (range(25, 40), 7, 3),
        (range(40, 47), 10, 2),
    ]


def test_parts_end_at_multiples_of_a_step_if_possible():
    rules = Rules(100, 100, (Tiling(1, 1, 1),), 1, True, step=10)
    assert [rules.end(*ends) for ends in ((0, 35), (30, 35), (32, 45), (0, 30))] == [30, 35, 40, 30]
    assert [rules.next(begin) for begin in (0, 9, 10)] == [10, 10, 20]


@pytest.mark.parametrize(
    ("desc", "limits"),
    [
        # Rows longer than a segment, each a separate range.
        (arg_desc(ArgmaxOperatorDesc, UINT8, (3, 3333), [1]), Limits(1024, 4, 4)),
        # Odd planes, so that a batch entry may begin within a word.
        (max_pooling(FLOAT16, (4, 3, 25, 82), (5, 5), (2, 2), strides=(6299, 2080, 83, 1)), Limits(4096, 4, 4)),
        # More elements than a dispatch may have, in several segments.
        (arg_desc(ArgmaxOperatorDesc, FLOAT32, (2, 5000), [1]), Limits(1024, 4, 4, dispatch_elements=512)),
        # A slab that is too large for a dispatch of the kernel that computes the other parts.
        (max_gradient(FLOAT32, (1, 2, 60, 60)), Limits(2048, 4, 4, invocation_loads=150)),
        (max_pooling(FLOAT32, (2, 1, 61, 110), (1, 1), strides=(6800, 1, 1, 61)), Limits(2560, 4, 4)),
        # More rows without a window than a dispatch has, and windows in several segments.
        (
            average_gradient((1, 1, 20, 100), (2000, 100), (1, 1), (100, 1)),
            Limits(2048, 4, 4, dispatch_elements=300),
        ),
    ],
    ids=range(6),
)
def test_plans_of_odd_segments_keep_all_rules(desc, limits):
    plan = lower(desc, replace(limits, dispatch_count=1 << 20))
    check(plan)
    assert max(len(plan.segments(binding)) for dispatch in plan.dispatches for binding in dispatch.bindings) > 2


def test_max_pooling_of_one_segment_is_one_part():
    desc = max_pooling(FLOAT32, (2, 3, 8, 8), (3, 3), (2, 2))
    for kernel in kernels_of(desc, 1 << 20, replace(SMALL, group_count=64)):
        ((part,),) = parts_by_outputs(kernel)
        assert (part.outputs, part.writes_outputs) == (range(math.prod(desc.output_tensor.sizes)), True)
