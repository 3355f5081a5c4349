"""Plans as values, without a device: what any correct plan keeps to."""

import collections
import copy
import dataclasses
import math

import pytest

from dmlgpu import (
    ArgmaxOperatorDesc,
    ArgminOperatorDesc,
    AveragePooling1OperatorDesc,
    AveragePoolingGradOperatorDesc,
    DescriptorError,
    LpPooling1OperatorDesc,
    OperatorDesc,
    ReduceFunction,
    ReduceOperatorDesc,
    TensorDesc,
)
from dmlgpu.lowering.kernels.sweep import ColumnsPush, RowsPush
from dmlgpu.lowering.limits import Limits
from dmlgpu.lowering.lower import lower
from dmlgpu.lowering.plan import Dispatch, Plan, Push
from dmlgpu.lowering.problem import Role, problems_of
from tests.cases import CASES, CASES_OF, FLOAT16, FLOAT32, INT64, UINT8, UINT64, arg_desc, pool_desc
from tests.conftest import LOWERED

MIB = 1 << 20
LIMITS = {
    "cpu": Limits(segment_bytes=128 * MIB, group_size=64, group_count=64),
    "gpu": Limits(4096 * MIB - 256, group_size=64, group_count=4096, least_loads=16, cooperating=True),
    "lowered": LOWERED,
    "short": Limits(segment_bytes=128 * MIB, group_size=64, group_count=8, dispatch_elements=2000),
    "odd": Limits(
        segment_bytes=768, group_size=7, group_count=5, records_bytes=1000, loop_iterations=400, dispatch_count=1 << 20
    ),
}
# As large as tensors may be, in every way.
LARGE = {
    "one-axis": arg_desc(ArgmaxOperatorDesc, UINT8, (2**32 - 1,), [0]),
    "one-axis-64-bit": arg_desc(ArgminOperatorDesc, UINT64, (2**32 - 1,), [0]),
    "first-axis": arg_desc(ArgmaxOperatorDesc, UINT8, (65535, 65536), [0]),
    "last-axis": arg_desc(ArgmaxOperatorDesc, INT64, (65535, 65536), [1]),
    # Shared by 4,096 invocations these are whole blocks, and their shares are not.
    "blocks-of-4": arg_desc(ArgmaxOperatorDesc, FLOAT32, (1, 4_202_500), [1]),
    "blocks-of-2": arg_desc(ArgminOperatorDesc, INT64, (1, 4_202_498), [1]),
    "axis-of-1": arg_desc(ArgmaxOperatorDesc, UINT8, (2**32 - 1, 1), [1]),
    "short-rows": arg_desc(ArgmaxOperatorDesc, UINT8, (2**27, 31), [1]),
    "short-columns": arg_desc(ArgminOperatorDesc, FLOAT32, (2**22, 3, 64), [1]),
    "long-first-axis": arg_desc(ArgmaxOperatorDesc, FLOAT16, (2**31 - 1, 2), [0]),
    "windows": pool_desc(UINT8, (1, 1, 65536, 65535), (2, 2), (2, 2)),
    "many-planes": pool_desc(FLOAT32, (1, 2**20, 64, 63), (3, 3), (2, 2), (1, 1)),
    "many-global-windows": pool_desc(FLOAT32, (2**20, 1, 64, 63), (64, 63)),
    "long-rows": pool_desc(UINT8, (1, 1, 1, 2**32 - 1), (1, 2**16), (1, 2**16)),
}

by_limits = pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)


def check_limits(plan: Plan, limits: Limits) -> None:
    """Nothing in a plan is beyond what Vulkan or the limits allow."""
    sizes = {
        Role.INPUT: [limits.segments(tensor) for tensor in plan.desc.inputs],
        Role.OUTPUT: [limits.segments(tensor) for tensor in plan.desc.outputs],
        Role.INTERMEDIATE: [limits.segments(tensor) for tensor in plan.intermediates],
        Role.PARTIALS: [(size,) for size in plan.partials],
        Role.RECORDS: [(plan.records_bytes,)],
    }
    assert plan.dispatches
    assert sum(plan.partials) <= limits.partials_bytes
    for dispatch in plan.dispatches:
        words = dispatch.push.words()
        assert 4 * len(words) <= 128  # maxPushConstantsSize is at least that
        assert all(0 <= word < 1 << 32 for word in words)
        assert 1 <= len(dispatch.bindings) <= 4  # maxPerStageDescriptorStorageBuffers is at least that
        assert dispatch.shader.constants.group_size <= limits.group_size
        for binding in dispatch.bindings:
            size = sizes[binding.role][binding.tensor][binding.segment]
            assert size % 4 == 0
            assert 0 < size <= limits.segment_bytes or binding.role is Role.RECORDS
            assert binding.base in vars(dispatch.push)


def check_sweep(dispatch: Dispatch, limits: Limits) -> None:
    """A sweep looks at no more elements than a dispatch should, and no invocation loops longer than it may."""
    constants, push = dispatch.shader.constants, dispatch.push
    lines = push.outer_count
    if isinstance(push, ColumnsPush):
        lines *= push.row_count * push.pitch * max(1, dispatch.shader.bits // 32) // 4
    classes = min(push.spacing, push.output_size)
    items = lines * classes * (1 + (push.output_size - 1) // push.spacing // constants.run)
    loads = constants.run if constants.copies else push.window_size + (constants.run - 1) * constants.step
    assert items * loads <= limits.dispatch_elements
    turns = -(-items // (limits.group_size * limits.group_count))
    assert turns * (1 + push.window_size) <= limits.loop_iterations
    # All windows of a run have an element in common, but copies.
    assert constants.copies == (push.window_size == 1)
    assert constants.copies or (constants.run - 1) * constants.step < push.window_size


def check_work(plan: Plan, limits: Limits) -> None:
    """No dispatch looks at many more elements than a dispatch should, for a range of 64 outputs at least."""
    for dispatch in plan.dispatches:
        push, least = dispatch.push, 64
        if isinstance(push, RowsPush | ColumnsPush):
            check_sweep(dispatch, limits)
            continue
        if hasattr(push, "reduced_end"):
            each = push.reduced_end - push.reduced_begin
            least = min(64, push.output_count)  # the elements of so many outputs are cut, too
            assert each * least <= limits.dispatch_elements or each <= push.stretch_size
        elif hasattr(push, "strip"):
            constants = dispatch.shader.constants
            each = constants.window_depth * constants.window_height * constants.window_width
            least = push.output_size[2]
        elif hasattr(push, "part_count"):
            within = list(map(min, push.window_size, push.size))[push.cut + 1 :]
            each = push.part_count * push.part_size * math.prod(within)
            assert each * push.output_count <= limits.dispatch_elements or push.part_count == 1
        elif hasattr(push, "window_size"):
            each = math.prod(map(min, push.window_size, getattr(push, "size", push.window_size)))
        elif hasattr(push, "places_base"):
            each = 1
        elif hasattr(push, "part_end"):
            each = push.part_end - push.part_begin
        elif hasattr(push, "window_count"):
            steps = zip(push.window_count, push.reach, push.window_stride, strict=True)
            each = math.prod(min(count, 1 + reach // stride) for count, reach, stride in steps)
        else:
            each = push.record_count
        assert push.output_count <= max(least, 2 * limits.dispatch_elements // each)


def check_records(plan: Plan, limits: Limits) -> None:
    """Records of several outputs keep to their limit and fit a buffer; those of one output may need more.

    The dispatches of a range write records that follow each other from 0 on, and the second pass reads them all.
    """
    records = [d for d in plan.dispatches if any(binding.role is Role.RECORDS for binding in d.bindings)]
    assert bool(records) == bool(plan.records_bytes)
    problems = problems_of(plan.desc.canonical())
    share = max(problem.source.size_in_bytes for problem in problems) // 16
    limit = min(max(limits.records_bytes, share), limits.segment_bytes)
    words_of = {problem.accumulator: problem.accumulator.state_words(problem.source.data_type) for problem in problems}
    written, most, combined = 0, 0, True
    for dispatch in records:
        push = dispatch.push
        words = push.output_count * words_of[dispatch.shader.accumulator]
        if hasattr(push, "record_count"):
            assert push.records_base + push.record_count * words == written
            if dispatch.shader.constants.records:
                assert push.target_base == written
                written += math.ceil(push.record_count / push.stretch_size) * words
                continue
            most, combined = max(most, written), True
            continue
        written = 0 if combined else written
        combined = False
        assert getattr(push, dispatch.bindings[1].base) == written
        written += records_of(push) * words
        assert 4 * written <= limit or push.output_count == 1
    assert plan.records_bytes == 4 * most


def records_of(push: Push) -> int:
    """The records that a dispatch of a first pass writes for each output."""
    if hasattr(push, "part_count"):
        return push.part_count
    if hasattr(push, "part_end"):
        return math.ceil((push.part_end - push.part_begin) / push.part_size)
    return (
        math.ceil((push.reduced_end - push.reduced_begin) / push.stretch_size) if hasattr(push, "stretch_size") else 1
    )


def outputs_of(dispatch: Dispatch) -> tuple[int, int]:
    """The first output that a dispatch writes, and the end of them."""
    push = dispatch.push
    if not isinstance(push, RowsPush | ColumnsPush):
        return push.first_output, push.first_output + push.output_count
    width = push.width if isinstance(push, ColumnsPush) else 1
    rows = getattr(push, "row_count", 1)
    return push.values_base, push.values_base + push.outer_count * push.output_size * rows * width


def written_ranges(plan: Plan, output: int) -> list[tuple[int, int, int]]:
    """(begin, end, segment) of what each dispatch writes of an output tensor."""
    return [
        (*outputs_of(dispatch), binding.segment)
        for dispatch in plan.dispatches
        for binding in dispatch.bindings
        if (binding.role, binding.tensor) == (Role.OUTPUT, output)
    ]


def check_coverage(plan: Plan) -> None:
    """Ranges of outputs follow each other without gap or overlap; within a range every segment stands once."""
    for output, tensor in enumerate(plan.desc.outputs):
        written = written_ranges(plan, output)
        # Without indices a kernel's indices binding holds the values too.
        assert max(collections.Counter(written).values()) <= (2 if len(plan.desc.outputs) == 1 else 1)
        ranges = sorted({(begin, end) for begin, end, _ in written})
        assert [begin for begin, _ in ranges] == [0, *(end for _, end in ranges[:-1])]
        assert ranges[-1][1] == tensor.element_count


def steps_between_blocks(dispatch: Dispatch) -> list[int]:
    """Where the blocks of 16 bytes that a kernel reads begin and end, and how far apart they are, in elements."""
    shader, push = dispatch.shader, dispatch.push
    if shader.variant in ("windows", "pool_blocks"):
        rows = [push.plane_stride, *push.stride[:2]]
        if shader.variant == "pool_blocks":
            return [*rows, push.start_padding[2], push.window_stride[2]]
        run = max(4, 128 // shader.bits)
        return [*rows, push.start_padding[2] + shader.constants.phase, run * shader.constants.stride_width]
    rank, kept = push.kept_rank, push.stride[: push.kept_rank]
    if shader.variant.startswith("columns"):
        row = push.size[rank - 1]
        return [*kept[:-1], push.stride[rank], push.first_output % row, min(row, push.output_count)]
    return [*kept, *range(push.reduced_begin, push.reduced_end, push.stretch_size), push.reduced_end]


def check_alignment(plan: Plan) -> None:
    """Where a kernel is told that blocks begin at multiples of 16 bytes, they do, and are whole."""
    for dispatch in plan.dispatches:
        if dispatch.shader.constants.aligned:
            block = 128 // dispatch.shader.bits
            assert all(step % block == 0 for step in steps_between_blocks(dispatch)), dispatch


def check_loops(plan: Plan) -> None:
    """No invocation loops longer than it may; test_loops.py holds the numbers of turns to llvmpipe's own."""
    assert all(0 < dispatch.iterations <= plan.limits.loop_iterations for dispatch in plan.dispatches)


def check(plan: Plan) -> None:
    limits = plan.limits
    check_loops(plan)
    check_limits(plan, limits)
    check_work(plan, limits)
    check_records(plan, limits)
    check_coverage(plan)
    check_alignment(plan)


@by_limits
@pytest.mark.parametrize("kind", CASES_OF, ids=lambda kind: kind.__name__)
def test_plan_keeps_to_the_limits_and_covers_every_output_once(kind, limits):
    for case in CASES_OF[kind]:
        check(lower(case.desc, limits))


def test_large_windows_take_few_dispatches():
    """Each has some 10^9 elements, and there are four of them."""
    for desc in (
        AveragePooling1OperatorDesc.of(TensorDesc(FLOAT32, (1, 1, 20000, 18000)), (19999, 17999)),
        pool_desc(UINT8, (1, 1, 30000, 30000), (29999, 29999)),
    ):
        for limits in (LIMITS["cpu"], LIMITS["gpu"]):
            plan = lower(desc, limits)
            assert len(plan.dispatches) < 300
            check(plan)


def test_outputs_whose_neighbours_lie_in_another_segment_take_few_dispatches():
    """Every seventh output along the last axis has elements in the second segment: no range is computed in place."""
    source = TensorDesc(FLOAT32, (1000, 100, 1, 100, 7), (100, 100000, 1, 1, 10_000_000))
    limits = dataclasses.replace(LIMITS["cpu"], segment_bytes=256 * MIB)
    plan = lower(ReduceOperatorDesc.of(ReduceFunction.L2, source, (1, 2)), limits)
    assert len(limits.segments(source)) == 2
    assert len(plan.dispatches) < 100
    check(plan)


def test_work_without_end_is_refused():
    """Every element of 8000 x 8000 is in up to 4000 x 4000 windows."""
    desc = AveragePoolingGradOperatorDesc.of(TensorDesc(FLOAT32, (1, 1, 4001, 4001)), (8000, 8000), (4000, 4000))
    message = r"AveragePoolingGradOperatorDesc: it looks at \d{16} elements, which takes more than 2048 dispatches; "
    for limits in (LIMITS["cpu"], LIMITS["gpu"]):
        with pytest.raises(DescriptorError, match=message):
            lower(desc, limits)


def test_a_cpu_takes_longer_dispatches_where_there_is_much_to_do():
    """Of more workgroups, so that loops do not end them; a GPU, which a watchdog may reset, does not."""
    few, many = pool_desc(FLOAT32, (1, 1, 300, 300), (15, 15)), pool_desc(UINT8, (2, 8, 9000, 9001), (29, 30), (1, 2))
    cpu, gpu = (dataclasses.replace(limits, segment_bytes=1 << 30) for limits in (LIMITS["cpu"], LIMITS["gpu"]))
    assert lower(few, cpu, "pool").limits == cpu
    plan = lower(many, cpu, "pool")
    assert plan.limits.dispatch_elements > cpu.dispatch_elements
    assert plan.limits.group_count > cpu.group_count
    assert len(plan.dispatches) < 2048
    check(plan)
    gpu = dataclasses.replace(gpu, dispatch_elements=1 << 30)
    assert lower(many, gpu, "pool").limits == gpu


@pytest.mark.parametrize("limits", [LIMITS["cpu"], LIMITS["gpu"]], ids=["cpu", "gpu"])
@pytest.mark.parametrize("desc", LARGE.values(), ids=LARGE)
def test_plans_of_the_largest_tensors_are_short(desc, limits):
    plan = lower(desc, limits)
    assert len(plan.dispatches) < 2000
    check(plan)


def test_equal_descriptors_have_equal_plans():
    for case in CASES[::7]:
        plan, again = lower(case.desc, LOWERED), lower(copy.deepcopy(case.desc), copy.copy(LOWERED))
        assert plan == again
        assert hash(plan) == hash(again)
        assert (plan.desc, plan.limits) == (case.desc, LOWERED)


def test_work_goes_by_what_is_loaded():
    cpu = LIMITS["cpu"]
    assert lower(arg_desc(ArgmaxOperatorDesc, FLOAT32, (30, 20), [0]), cpu).work == 600
    assert lower(pool_desc(FLOAT32, (1, 1, 9, 9), (2, 3)), cpu).work == 8 * 7 * 6
    # Pipelines of sweeps do not tell windows apart: the pace that is learnt of one holds for all.
    few, many = (lower(pool_desc(FLOAT32, (1, 4, 256, 256), (n, n)), cpu) for n in (16, 101))
    assert {each.dispatches[0].shader.variant for each in (few, many)} == {"sweep_rows"}
    assert few.work < many.work < 3 * few.work


def test_plans_differ_where_limits_do():
    desc = arg_desc(ArgmaxOperatorDesc, FLOAT32, (30, 30), [0])
    assert len({lower(desc, limits) for limits in LIMITS.values()}) == len(LIMITS)


def test_a_shorter_range_with_more_records_for_each_output_fits_its_memory():
    limits = Limits(1024, 7, 3, records_bytes=1000, loop_iterations=200, dispatch_count=1 << 20)
    check(lower(arg_desc(ArgmaxOperatorDesc, FLOAT32, (58, 12), [1], strides=(1, 60)), limits))


def test_a_column_has_no_more_elements_than_its_packed_state_counts():
    limits = Limits(128 << 20, group_size=64, group_count=8, loop_iterations=1 << 20, dispatch_elements=1 << 30)
    plan = lower(arg_desc(ArgmaxOperatorDesc, FLOAT16, (1_000_000, 4096), [0]), limits)
    assert plan.dispatches[0].shader.variant == "columns_wide"
    assert plan.dispatches[0].push.stretch_size == 1 << 16


@pytest.mark.parametrize("cooperating", [False, True])
@pytest.mark.parametrize(("sizes", "axis"), [((3, 5000), 1), ((5000, 9), 0), ((3, 40, 5), 1)], ids=str)
def test_loops_keep_to_any_limit_or_are_refused(sizes, axis, cooperating):
    desc = arg_desc(ArgmaxOperatorDesc, FLOAT32, sizes, [axis])
    limits = Limits(1 << 20, 64, 8, dispatch_count=1 << 20, cooperating=cooperating)
    for iterations in (60, 100, 300, 1000):
        check(lower(desc, dataclasses.replace(limits, loop_iterations=iterations)))
    with pytest.raises(
        DescriptorError, match=r"ArgmaxOperatorDesc: the loops of \w+ turn \d+ times; allowed .* are 8$"
    ):
        lower(desc, dataclasses.replace(limits, loop_iterations=8))


@pytest.mark.parametrize("count", [101, 399])
def test_records_are_combined_in_levels_where_loops_are_short(count):
    """One record of each of so many segments."""
    limits = Limits(256, 32, 3, records_bytes=1 << 16, loop_iterations=400)
    plan = lower(arg_desc(ArgmaxOperatorDesc, UINT8, (256 * count,), [0]), limits)
    records = [dispatch.push.record_count for dispatch in plan.dispatches if dispatch.shader.variant == "combine"]
    assert records[0] == count
    assert 1 < records[-1] <= 100


def test_a_cpu_has_no_more_workgroups_than_every_device_allows():
    desc = LpPooling1OperatorDesc.of(TensorDesc(FLOAT32, (1, 1, 4096, 4096)), (64, 64))
    assert lower(desc, Limits(1 << 27, 64, 1024)).limits.group_count == (1 << 16) - 1


@pytest.mark.parametrize(("group_size", "lanes"), [(1, 1), (7, 1), (48, 16), (64, 64), (96, 32)])
def test_lanes_are_a_power_of_2_that_divides_a_workgroup(group_size, lanes):
    assert Limits(1 << 20, group_size, 8, cooperating=True).most_lanes == lanes
    assert Limits(1 << 20, group_size, 8).most_lanes == 1


def test_plans_are_frozen_all_the_way_down():
    plan = lower(pool_desc(FLOAT32, (1, 1, 9, 9), (2, 2)), LOWERED)
    dispatch = plan.dispatches[0]
    for value in (plan, plan.limits, dispatch, dispatch.shader, dispatch.shader.constants, dispatch.push):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, dataclasses.fields(value)[0].name, None)
    assert isinstance(plan.dispatches, tuple)
    assert isinstance(dispatch.bindings, tuple)


def test_plans_print_what_they_do():
    plan = lower(arg_desc(ArgmaxOperatorDesc, FLOAT32, (30, 30), [0]), LOWERED)
    text = " ".join(str(plan).split())
    begin = f"{plan.desc} {plan.limits} {' '.join(plan.mapping)} 1. reduce_selection_32: group_size=32, "
    assert text.startswith(begin)
    assert [line.partition(":")[0] for line in plan.mapping] == ["reduce", "combine", "not rows"]
    assert "push constants: size=(30, 30, 1, 1, 1, 1, 1, 1), stride=(1, 30, 0, 0, 0, 0, 0, 0), kept_rank=1," in text
    assert "bindings: INPUT 0 segment 0 (source_base), RECORDS 0 segment 0 (target_base) 2. reduce_selection_32" in text
    assert text.endswith(f" ... and {len(plan.dispatches) - 8} more dispatches")
    first = plan.dispatches[0].shader.constants
    for field in dataclasses.fields(first):
        shown = f"1. reduce_selection_32: {text.partition('1. reduce_selection_32: ')[2].partition(' push')[0]}"
        assert (f" {field.name}=" in shown) == (getattr(first, field.name) != field.default)
    assert plan.summary == (
        "ArgmaxOperatorDesc of FLOAT32 (30, 30) to UINT32 (1, 30): 212 x reduce_selection_32, "
        f"15 x combine_selection_32, {plan.records_bytes} bytes of records"
    )


@by_limits
def test_plans_print_within_100_columns(limits):
    for case in CASES[::7]:
        assert max(map(len, str(lower(case.desc, limits)).splitlines())) <= 100


def test_small_tensors_take_one_dispatch():
    for desc in (
        arg_desc(ArgmaxOperatorDesc, UINT8, (64, 64), [1]),
        pool_desc(FLOAT32, (2, 3, 20, 20), (3, 3), (2, 2)),
    ):
        assert len(lower(desc, LIMITS["cpu"]).dispatches) == 1


@pytest.mark.parametrize(
    ("size", "segments"), [(1, (4,)), (4, (4,)), (5, (8,)), (256, (256,)), (257, (256, 4)), (640, (256, 256, 128))]
)
def test_segments_are_full_but_the_last(size, segments):
    tensor = arg_desc(ArgmaxOperatorDesc, UINT8, (size,), [0]).input_tensor
    assert LOWERED.segments(tensor) == segments


def test_segments_are_whole_words_whatever_the_total():
    assert LOWERED.segments(TensorDesc(UINT8, (5,), None, 257)) == (256, 4)


def test_operator_without_a_lowering_says_so():
    with pytest.raises(NotImplementedError, match=r"^OperatorDesc has no lowering$"):
        lower(OperatorDesc(), LOWERED)
