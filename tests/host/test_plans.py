"""Plans as values, without a device: the rules of every plan, and the choice of kernels."""

import copy
import dataclasses
import math
from functools import partial

import pytest

import dmlgpu
from dmlgpu import ArgmaxOperatorDesc, AveragePoolingGradOperatorDesc, ReduceFunction, ReduceOperatorDesc, TensorDesc
from dmlgpu.descriptors.top_k import TopK1OperatorDesc
from dmlgpu.descriptors.window import Window
from dmlgpu.lowering.accumulators import Selection
from dmlgpu.lowering.limits import Limits, segment_sizes
from dmlgpu.lowering.lower import lower
from dmlgpu.lowering.plan import Values
from dmlgpu.lowering.problem import Axes, OutputTensor, Problem, Result, Role, Source, Windows
from dmlgpu.testing.cases import (
    CASES,
    CASES_OF,
    FLOAT16,
    FLOAT32,
    INT64,
    UINT8,
    UINT32,
    UINT64,
    arg_desc,
    extremum_desc,
    pool_desc,
)
from tests.support.errors import refuses
from tests.support.limits import LOWERED, MIB, PLANNED
from tests.support.plans import LARGE, check, check_coverage, check_limits

CPU, GPU = PLANNED["cpu"], PLANNED["gpu"]
by_limits = pytest.mark.parametrize("limits", PLANNED)
by_device = pytest.mark.parametrize("limits", [CPU, GPU], ids=["cpu", "gpu"])


@by_limits
@pytest.mark.parametrize("kind", CASES_OF, ids=lambda kind: kind.__name__)
def test_plan_keeps_to_the_limits_and_covers_every_output_once(kind, limits):
    # Plans of split tensors are long, so each of their limits runs a third of the cases.
    first, step = {"lowered": (0, 3), "odd": (1, 3)}.get(limits, (0, 1))
    for case in CASES_OF[kind][first::step]:
        check(case.plan(PLANNED[limits]))


def variants(plan):
    return {dispatch.shader.variant for dispatch in plan.dispatches}


def constants(plan):
    """The specialization constants of the first dispatch."""
    return plan.dispatches[0].shader.constants


def written_by(plan):
    """The variant of each dispatch, and the output tensors that it writes."""
    return [
        (dispatch.shader.variant, {binding.tensor for binding in dispatch.bindings if binding.role is Role.OUTPUT})
        for dispatch in plan.dispatches
    ]


maxima = partial(extremum_desc, ReduceFunction.MAX, FLOAT32)


@pytest.mark.parametrize(
    ("desc", "expected"),
    [
        (maxima((4096, 1024), (1,)), [("rows", {0, 1})]),
        (maxima((200, 65536), (0,)), [("columns", {0, 1})]),
        (maxima((512, 3, 40, 2), (1, 3)), [("reduce", {0, 1})]),
        (maxima((3, 100_000), (1,)), [("rows", set()), ("combine", {0, 1})]),
        # Only one of the outputs is packed.
        (maxima((4, 5, 6), (2,), output_strides=(9, 1, 1)), [("rows", set()), ("combine", {0}), ("combine", {1})]),
        (maxima((4, 5, 6), (2,), indices_strides=(9, 1, 1)), [("rows", set()), ("combine", {0}), ("combine", {1})]),
        # A global pooling, whose indices count through the whole tensor.
        (pool_desc(FLOAT32, (2, 3, 64, 64), (64, 64)), [("rows", set()), ("combine", {0, 1})]),
    ],
    ids=range(7),
)
def test_values_and_indices_are_written_together_if_possible(desc, expected):
    plan = lower(desc, CPU)
    assert written_by(plan) == expected
    check(plan)


@pytest.mark.parametrize("axis", [0, 1])
def test_values_lie_in_other_segments_than_their_indices(axis):
    """900 outputs have 900 bytes of values and 7200 bytes of indices, in segments of 512 bytes."""
    sizes = (20, 900) if axis == 0 else (900, 20)
    limits = dataclasses.replace(CPU, segment_bytes=512, dispatch_count=1 << 20)
    plan = lower(extremum_desc(ReduceFunction.MIN, UINT8, sizes, (axis,)), limits)
    starts = {}
    for dispatch in plan.dispatches:
        segments = tuple(binding.segment for binding in dispatch.bindings if binding.role is Role.OUTPUT)
        starts.setdefault(segments, set()).add(dispatch.outputs.start)
    starts.pop((), None)
    # The first binding is that of the indices.
    assert {(start // 64, start // 512) for values in starts.values() for start in values} == set(starts)
    assert {values for _, values in starts} == {0, 1}
    check(plan)


@pytest.mark.parametrize(
    ("width", "loads_vectors", "short", "inside"),
    [
        (32, True, True, False),
        (33, True, True, True),
        (1000, True, False, False),
        (1001, True, True, True),
        (33, False, True, False),
        (1001, False, False, False),
    ],
)
def test_rows_are_aligned_inside_if_they_begin_anywhere(width, loads_vectors, short, inside):
    limits = dataclasses.replace(CPU, loads_vectors=loads_vectors)
    (dispatch,) = lower(arg_desc(ArgmaxOperatorDesc, FLOAT32, (4096, width), [1]), limits).dispatches
    assert (dispatch.shader.constants["short"], dispatch.shader.constants["aligned_inside"]) == (short, inside)


def test_a_line_is_divided_among_the_invocations_of_a_cpu():
    two_cores = Limits(128 * MIB, 64, 8, simd_width=8)
    assert len(lower(dmlgpu.TopKOperatorDesc.of(TensorDesc(FLOAT32, (129280,)), 5), two_cores).dispatches) == 3


@pytest.mark.parametrize("mapping", ["cpu", "gpu"])
def test_merged_lists_that_are_padded_fit_their_memory(mapping):
    limits = dataclasses.replace(PLANNED[mapping], temporary_bytes=1024)
    for k in range(350, 5000, 930):
        check(lower(dmlgpu.TopKOperatorDesc.of(TensorDesc(FLOAT32, (5000,)), k), limits))


@pytest.mark.parametrize("kind", CASES_OF, ids=lambda kind: kind.__name__)
def test_a_dispatch_has_an_output_however_few_elements_it_may_load(kind):
    limits = dataclasses.replace(CPU, dispatch_elements=1, dispatch_count=1 << 20)
    small = min(CASES_OF[kind], key=lambda case: sum(tensor.element_count for tensor in case.desc.inputs))
    plan = lower(small.desc, limits)
    check_limits(plan, limits)
    check_coverage(plan)


@pytest.mark.parametrize(("data_type", "height", "dispatches"), [(FLOAT16, 433, 2), (UINT8, 433, 2), (FLOAT16, 431, 5)])
def test_ranges_of_batch_entries_end_with_words(data_type, height, dispatches):
    """Entries with gaps between them are separate ranges. With 3 * 215 * 719 outputs, one word belongs to both."""
    source = TensorDesc(data_type, (2, 3, height, 1440), (3 * height * 1440, 1, 3 * 1440, 3))
    plan = lower(dmlgpu.MaxPooling2OperatorDesc.of(source, (3, 3), strides=(2, 2)), CPU)
    check(plan)
    assert len(plan.dispatches) == dispatches


@pytest.mark.parametrize(("columns", "late"), [(2**15 - 1, 1 << 31), (2**15, 0)])
def test_numbers_of_elements_have_a_bit_for_late_ones_if_possible(columns, late):
    """With the bit, unpooling marks elements that it finds late (scattered.glsl)."""
    desc = dmlgpu.MaxUnpoolingOperatorDesc.of(TensorDesc(UINT8, (1, 1, 2**16, columns)), (8, 8))
    shaders = [dispatch.shader for dispatch in lower(desc, GPU).dispatches]
    assert {shader.constants["late"] for shader in shaders if "late" in shader.constants} == {late}


@by_device
@pytest.mark.parametrize("data_type", [UINT8, FLOAT16])
def test_marks_of_unpooling_use_a_sixteenth_of_the_memory_of_all_tensors(data_type, limits):
    """A mark has 4 bytes, more than an element, so few outputs are marked at a time."""
    desc = dmlgpu.MaxUnpoolingOperatorDesc.of(TensorDesc(data_type, (4, 64, 512, 512)), (1024, 1024))
    tensors = sum(tensor.size_in_bytes for tensor in (*desc.inputs, *desc.outputs))
    plan = lower(desc, limits)
    assert sum(map(sum, plan.workspace)) <= tensors / 16 + 4
    assert len(plan.dispatches) <= 500


@by_device
def test_work_without_end_is_refused(limits):
    """Every element of 8000 x 8000 is in up to 2000 x 2000 windows."""
    desc = dmlgpu.MaxPoolingGradOperatorDesc.of(TensorDesc(FLOAT32, (1, 1, 8000, 8000)), (4000, 4000), strides=(2, 2))
    message = r"MaxPoolingGradOperatorDesc: it loads \d{15} elements; allowed on this device are 2048 dispatches of "
    refuses(message, lower, desc, limits)


@pytest.mark.parametrize("stride", [1, 2, 3, 5])
def test_the_work_of_a_gradient_does_not_grow_with_its_window(stride):
    """Each output of the gradient of averages loads up to 50 elements, times the stride."""
    for window in (16, 23, 33, 64, 128):
        count = (256 - window) // stride + 1
        gradient = TensorDesc(FLOAT32, (1, 4, count, count))
        desc = AveragePoolingGradOperatorDesc.of(gradient, (256, 256), (window, window), strides=(stride, stride))
        assert lower(desc, CPU).elements <= 50 * stride * 4 * 256 * 256


@pytest.mark.parametrize(
    ("window", "strides", "kernel"),
    [
        (5, (1, 1), "pool_backward_small"),
        (11, (1, 1), "pool_separable"),
        (11, (2, 2), "pool_backward_small"),
        (12, (1, 4), "pool_backward_small"),
        (31, (2, 2), "pool_separable"),
        (32, (4, 4), "pool_backward_small"),
        (256, (1, 1), "pool_backward_shares"),  # one large window
    ],
)
def test_tiles_compute_gradients_of_averages_if_outputs_need_few_additions(window, strides, kernel):
    sizes = (1, 64, *((256 - window) // stride + 1 for stride in strides))
    desc = AveragePoolingGradOperatorDesc.of(TensorDesc(FLOAT32, sizes), (256, 256), (window, window), strides=strides)
    assert lower(desc, CPU).dispatches[0].shader.variant.startswith(kernel)


@pytest.mark.parametrize(
    ("window", "columns", "loaded"),
    [((3, 3), 10, 5), ((4, 4), 11, 4), ((12, 12), 12, 4), ((3, 3, 3), 6, 3), ((1, 33), 36, 9)],
    ids=str,
)
def test_columns_of_maxima_are_loaded_a_few_at_a_time(window, columns, loaded):
    """Mesa 25 compiles loads slowly; plans of other drivers load all columns at once."""
    desc = dmlgpu.MaxPoolingGradOperatorDesc.of(TensorDesc(FLOAT32, (1, 64, *(64 for _ in window))), window)
    for limits in CPU, dataclasses.replace(CPU, gathers=True), GPU:
        constants = lower(desc, limits, "pool_backward_small").dispatches[-1].shader.constants
        at_once = constants["tile_width"] + window[-1] - 1
        assert at_once == columns or limits is GPU
        assert constants.get("loaded", at_once) == (loaded if limits.gathers else at_once)


def test_a_cpu_has_longer_dispatches_for_much_work():
    """More workgroups keep loops short. Dispatches of a GPU stay short, because a watchdog may reset it."""
    few, many = pool_desc(FLOAT32, (1, 1, 300, 300), (15, 15)), pool_desc(UINT8, (2, 8, 9000, 9001), (29, 30), (1, 2))
    cpu, gpu = (dataclasses.replace(limits, segment_bytes=1 << 30) for limits in (CPU, GPU))
    assert lower(few, cpu, "pool_direct").limits == cpu
    plan = lower(many, cpu, "pool_direct")
    assert plan.limits.dispatch_elements > cpu.dispatch_elements
    assert plan.limits.group_count > cpu.group_count
    assert len(plan.dispatches) < 2048
    check(plan)
    gpu = dataclasses.replace(gpu, dispatch_elements=1 << 30)
    assert lower(many, gpu, "pool_direct").limits == gpu


def test_kernels_of_a_long_plan_are_chosen_by_its_limits():
    """With more workgroups, tiles have one row, and a plane, whose rows share words, needs too many loads."""
    plan = lower(pool_desc(UINT8, (1, 64, 2112, 1288), (5, 5), (2, 2)), Limits(1 << 27, 64, group_count=1024))
    assert plan.limits.group_count > 1024
    assert variants(plan) == {"pool_separable_rows", "pool_separable_columns"}
    check(plan)


@by_device
@pytest.mark.parametrize(
    ("desc", "most"),
    [
        *((desc, 2000) for desc in LARGE.values()),
        # Four windows of some 10^9 elements.
        (dmlgpu.AveragePooling1OperatorDesc.of(TensorDesc(FLOAT32, (1, 1, 20000, 18000)), (19999, 17999)), 300),
        (pool_desc(UINT8, (1, 1, 30000, 30000), (29999, 29999)), 300),
    ],
    ids=[*LARGE, "average-windows", "max-windows"],
)
def test_plans_of_the_largest_tensors_are_short(desc, most, limits):
    plan = lower(desc, limits)
    assert len(plan.dispatches) < most
    check(plan)


def test_equal_descriptors_have_equal_plans():
    for case in CASES[::7]:
        plan, again = case.plan(CPU), copy.deepcopy(case).plan(copy.copy(CPU))
        assert plan == again
        assert hash(plan) == hash(again)
        assert (plan.desc, plan.limits) == (case.desc, CPU)
    desc = arg_desc(ArgmaxOperatorDesc, FLOAT32, (30, 30), [0])
    assert len({lower(desc, limits) for limits in PLANNED.values()}) == len(PLANNED)


def test_the_work_of_a_plan_is_its_number_of_loads():
    assert lower(arg_desc(ArgmaxOperatorDesc, FLOAT32, (30, 20), [0]), CPU).elements == 600
    # Each output loads the elements of its window, and combines two rows.
    assert lower(pool_desc(FLOAT32, (1, 1, 9, 9), (2, 3)), CPU).elements == 8 * 7 * (6 + 2)
    # Windows of any size share the pipelines of separable passes, and their measured seconds per element.
    few, many = (lower(pool_desc(FLOAT32, (1, 4, 256, 256), (n, n)), CPU) for n in (16, 101))
    assert {plan.dispatches[0].shader.variant for plan in (few, many)} == {"pool_separable_rows"}
    assert few.elements < many.elements < 3 * few.elements


@pytest.mark.parametrize(("window", "unrolled"), [(11, [4, 8]), (21, [4, 2])])
def test_few_windows_of_a_tile_are_unrolled(window, unrolled):
    """With more, lavapipe (Mesa 25) would need half as much time again to compile the kernel."""
    plan = lower(pool_desc(FLOAT32, (1, 1, 99, 99), (window, window), indices=None), CPU)
    assert [dispatch.shader.constants["unrolled"] for dispatch in plan.dispatches] == unrolled


@pytest.mark.parametrize(
    ("data_type", "gathers", "tile"),
    [
        (FLOAT32, False, 8),
        (UINT64, False, 4),
        (FLOAT32, True, 16),
        (UINT64, True, 8),
        (FLOAT16, True, 8),
        (UINT8, True, 8),
    ],
    ids=str,
)
def test_a_driver_that_gathers_loads_few_columns_of_more_windows(data_type, gathers, tile):
    """But not of bytes: four words of a temporary take as long as a vector."""
    limits = dataclasses.replace(CPU, gathers=gathers)
    shader = lower(pool_desc(data_type, (1, 1, 99, 99), (21, 21)), limits).dispatches[1].shader
    assert shader.variant == "pool_separable_columns" + "_words" * (gathers and data_type is not UINT8)
    assert shader.constants["tile"] == tile


@pytest.mark.parametrize(
    ("data_type", "row", "vectors"),
    [(FLOAT32, 64, 4), (FLOAT32, 48, 4), (FLOAT32, 52, 1), (FLOAT32, 65, 4), (FLOAT16, 32, 2), (UINT8, 32, 1)],
)
def test_an_item_has_several_vectors_of_a_row_if_few_columns_are_computed_twice(data_type, row, vectors):
    plan = lower(arg_desc(ArgmaxOperatorDesc, data_type, (9, row), [0]), CPU)
    assert constants(plan)["item_vectors"] == vectors


@pytest.mark.parametrize(
    ("data_type", "sizes", "columns"),
    [
        *((UINT8, (1, 50_000, n), columns) for n, columns in ((3, 16), (10, 8), (12, 4), (15, 16), (16, 1))),
        *((FLOAT16, (1, 50_000, n), columns) for n, columns in ((3, 16), (8, 1), (9, 16))),
        *((FLOAT32, (1, 50_000, n), columns) for n, columns in ((2, 8), (5, 16), (12, 1), (17, 1))),
        *((INT64, (1, 50_000, n), columns) for n, columns in ((2, 1), (3, 8))),
        # Too few elements, in all outputs together, or in each.
        *((UINT8, (4, n, 3), columns) for n, columns in ((2730, 0), (2731, 16))),
        *((FLOAT32, (99, n, 3), columns) for n, columns in ((4095, 0), (4096, 16))),
    ],
)
def test_outputs_have_several_columns_if_rows_have_few_outputs_and_many_elements(data_type, sizes, columns):
    desc = arg_desc(ArgmaxOperatorDesc, data_type, sizes, [1])
    shader = lower(desc, CPU).dispatches[0].shader
    assert (shader.variant, shader.constants.get("output_columns", 0)) == ("columns" if columns else "reduce", columns)
    strides = (sizes[1] * (sizes[2] + 1), sizes[2] + 1, 1)
    with_gaps = arg_desc(ArgmaxOperatorDesc, data_type, sizes, [1], strides=strides)
    for plan in lower(with_gaps, CPU), lower(desc, GPU):
        assert constants(plan).get("output_columns", 1) == 1


F = ReduceFunction


@pytest.mark.parametrize(("function", "columns"), [(F.SUM, 16), (F.MULTIPLY, 1), (F.LOG_SUM_EXP, 1)])
def test_an_output_with_a_long_state_has_one_column(function, columns):
    plan = lower(ReduceOperatorDesc.of(function, TensorDesc(FLOAT32, (50_000, 5)), (0,)), CPU)
    assert constants(plan)["output_columns"] == columns


@pytest.mark.parametrize(
    ("function", "elements", "vectors", "few"),
    [(F.SUM, 7, 4, True), (F.SUM, 8, 4, False), (F.LOG_SUM_EXP, 7, 2, True)],
)
def test_few_elements_are_stored_without_a_loop_and_long_states_have_half_the_columns(function, elements, vectors, few):
    plan = lower(ReduceOperatorDesc.of(function, TensorDesc(FLOAT32, (elements, 64)), (0,)), CPU)
    assert (constants(plan)["item_vectors"], constants(plan)["few_elements"]) == (vectors, few)


def test_partials_of_few_elements_are_stored_in_a_loop():
    """Unrolled, they would compile for seconds."""
    limits = dataclasses.replace(CPU, segment_bytes=1024)
    plan = lower(ReduceOperatorDesc.of(F.SUM, TensorDesc(FLOAT32, (7, 64)), (0,)), limits)
    stores = [d.shader.constants["few_elements"] for d in plan.dispatches if d.shader.variant == "columns"]
    assert set(stores) == {False}


@pytest.mark.parametrize(
    ("limits", "data_type", "k", "sixteen"),
    [
        (CPU, FLOAT32, 8, False),
        (CPU, FLOAT32, 65, None),
        (CPU, INT64, 64, None),
        (CPU, INT64, 65, True),
        (GPU, FLOAT32, 16, False),
        (GPU, FLOAT32, 17, True),
    ],
)
def test_lists_of_top_k_have_8_16_or_64_entries(limits, data_type, k, sixteen):
    shader = lower(TopK1OperatorDesc.of(TensorDesc(data_type, (9, 500)), k), limits).dispatches[0].shader
    assert shader.variant == ("top_k_sort_long" if sixteen is None else "top_k_sort")
    assert shader.constants.get("sixteen") == sixteen


@pytest.mark.parametrize(("k", "grouped"), [(62, True), (65, False)])
def test_lines_of_few_times_k_elements_are_sorted_without_groups(k, grouped):
    plan = lower(TopK1OperatorDesc.of(TensorDesc(FLOAT32, (9, 1000)), k), CPU)
    assert constants(plan)["grouped"] == grouped


def test_a_short_range_with_many_partials_fits_its_memory():
    limits = Limits(1024, 7, 3, partial_bytes=1000, invocation_loads=50, dispatch_count=1 << 20)
    check(lower(arg_desc(ArgmaxOperatorDesc, FLOAT32, (58, 12), [1], strides=(1, 60)), limits))


def test_a_column_has_at_most_as_many_elements_as_its_packed_state_counts():
    limits = Limits(128 << 20, group_size=64, group_count=8, invocation_loads=1 << 18, dispatch_elements=1 << 30)
    plan = lower(arg_desc(ArgmaxOperatorDesc, FLOAT16, (1_000_000, 4096), [0]), limits)
    assert plan.dispatches[0].shader.variant == "columns"
    assert plan.dispatches[0].push["split_size"] == 1 << 16


@pytest.mark.parametrize(("data_type", "exponent"), [(FLOAT32, 23), (FLOAT32, 24), (INT64, 22)])
def test_neighbouring_splits_are_not_a_multiple_of_64_kib_apart_on_a_cpu(data_type, exponent):
    desc = arg_desc(ArgmaxOperatorDesc, data_type, (1 << exponent,), [0])
    plan = lower(desc, dataclasses.replace(CPU, group_count=8))
    assert plan.dispatches[0].shader.variant == "rows"
    assert plan.dispatches[0].push["split_size"] * data_type.bits // 8 % (64 << 10)
    check(plan)


@pytest.mark.parametrize("cooperating", [False, True])
@pytest.mark.parametrize(("sizes", "axis"), [((3, 5000), 1), ((5000, 9), 0), ((3, 40, 5), 1)], ids=str)
def test_loops_keep_to_any_limit_or_are_refused(sizes, axis, cooperating):
    desc = arg_desc(ArgmaxOperatorDesc, FLOAT32, sizes, [axis])
    limits = Limits(1 << 20, 64, 8, dispatch_count=1 << 20, cooperating=cooperating)
    for loads in (20, 25, 75, 250):
        check(lower(desc, dataclasses.replace(limits, invocation_loads=loads)))
    message = r"ArgmaxOperatorDesc: an invocation of \w+ has \d+ loads; allowed .* are 1; use a smaller tensor, or "
    refuses(message, lower, desc, dataclasses.replace(limits, invocation_loads=1))


@pytest.mark.parametrize("count", [131, 399])
def test_partials_are_combined_in_levels_if_loops_are_short(count):
    """Each of the segments has two partials."""
    limits = Limits(256, 32, 3, partial_bytes=1 << 16, invocation_loads=260)
    plan = lower(arg_desc(ArgmaxOperatorDesc, UINT8, (256 * count,), [0]), limits)
    partials = [dispatch.push["partial_count"] for dispatch in plan.dispatches if dispatch.shader.variant == "combine"]
    assert partials[0] == 2 * count
    assert 1 < partials[-1] <= 130


def test_a_cpu_has_at_most_the_workgroups_that_every_device_allows():
    desc = dmlgpu.LpPooling1OperatorDesc.of(TensorDesc(FLOAT32, (1, 1, 4096, 4096)), (64, 64))
    assert lower(desc, Limits(1 << 27, 64, 1024), kernel="pool_direct").limits.group_count == (1 << 16) - 1


@pytest.mark.parametrize(("group_size", "threads"), [(1, 1), (7, 1), (48, 16), (64, 64), (96, 32)])
def test_threads_are_a_power_of_2_that_divides_a_workgroup(group_size, threads):
    assert Limits(1 << 20, group_size, 8, cooperating=True).most_threads == threads
    assert Limits(1 << 20, group_size, 8).most_threads == 1


def test_plans_are_frozen_all_the_way_down():
    plan = lower(pool_desc(FLOAT32, (1, 1, 9, 9), (2, 2)), LOWERED)
    dispatch = plan.dispatches[0]
    for value in (plan, plan.limits, dispatch, dispatch.shader):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, dataclasses.fields(value)[0].name, None)
    assert isinstance(plan.dispatches, tuple)
    assert isinstance(dispatch.bindings, tuple)
    for values in (dispatch.shader.constants, dispatch.push):
        with pytest.raises(TypeError, match="does not support item assignment"):
            values["output_count"] = 0
        assert hash(values) == hash(Values(**values))


def test_plans_print_what_they_do():
    plan = lower(arg_desc(ArgmaxOperatorDesc, FLOAT32, (30, 30), [0]), LOWERED)
    text = " ".join(str(plan).split())
    begin = f"{plan.desc} {plan.limits} {' '.join(plan.kernel_choice)} 1. reduce_selection_32: group_size=32, "
    assert text.startswith(begin)
    assert [line.partition(":")[0] for line in plan.kernel_choice] == ["reduce", "combine", "not rows", "not columns"]
    assert "push constants: size=(30, 30, 1, 1, 1, 1, 1, 1), stride=(1, 30, 0, 0, 0, 0, 0, 0), kept_rank=1," in text
    partials = "PARTIALS 0 segment 0 (target_base), PARTIALS 0 segment 0 (values_base)"
    assert f"bindings: INPUT 0 segment 0 (source_base), {partials} 2. reduce_selection_32" in text
    assert "source_first=64, source_count=64, source_base=-64, target_base=" in text  # -64, not 4294967232
    assert text.endswith(f" ... and {len(plan.dispatches) - 8} more dispatches")
    printed = f" {text.partition('1. reduce_selection_32: ')[2].partition(' push')[0]}"
    for name, value in constants(plan).items():
        assert (f" {name}=" in printed) == (value != 0)
    assert plan.summary == (
        "ArgmaxOperatorDesc of FLOAT32 (30, 30) to UINT32 (1, 30): 212 x reduce_selection_32, "
        f"15 x combine_selection_32, {plan.partial_bytes} bytes of partials"
    )


@by_limits
def test_plans_print_within_100_columns(limits):
    for case in CASES[::21]:
        assert max(map(len, str(case.plan(PLANNED[limits])).splitlines())) <= 100


def test_the_kernel_choice_of_a_pooling_tells_if_it_is_a_reduction():
    text = "as a reduction: the elements of a window are contiguous, and in no other window"
    for window, is_reduction in ((1, 64), True), ((8, 8), False):
        plan = lower(pool_desc(FLOAT32, (1, 2, 8, 64), window), LOWERED)
        assert (text in plan.kernel_choice) == is_reduction


@pytest.mark.parametrize(
    ("size", "segments"), [(1, (4,)), (4, (4,)), (5, (8,)), (256, (256,)), (257, (256, 4)), (640, (256, 256, 128))]
)
def test_segments_are_full_but_the_last(size, segments):
    tensor = arg_desc(ArgmaxOperatorDesc, UINT8, (size,), [0]).input_tensor
    assert segment_sizes(tensor, LOWERED.full_segment(tensor)) == segments
    # Segments are whole words whatever the total size.
    assert segment_sizes(TensorDesc(UINT8, (5,), None, 257), 256) == (256, 4)


def test_segments_are_multiples_of_256_bytes():
    message = r"^Limits\.segment_bytes: 300500 is not allowed; allowed are multiples of 256$"
    refuses(message, Limits, 300_500, 64, 8, error=ValueError)


def test_problems_without_a_kernel_are_refused():
    is_refused = partial(refuses, error=NotImplementedError)
    is_refused(r"^OperatorDesc has no lowering$", lower, dmlgpu.OperatorDesc(), LOWERED)
    source = TensorDesc(UINT32, (1, 1, 4, 4))
    sources, value, index = (Source(source),), OutputTensor(source, Result.VALUE), OutputTensor(source, Result.INDEX)
    axes, windows = Axes.of(source, (3,)), Windows.of(source, (Window(4, 1, output_size=4),) * 2)
    for selection in Selection(minimum=True), Selection(last=True):
        message = r"^kernels over windows look for the first maximum$"
        is_refused(message, Problem, sources, windows, selection, (value,))
    for domain, outputs in (axes, (value, value)), (windows, (index, value)), (windows, (value, value)):
        message = "^kernels over axes and windows write the value, then the index, or words$"
        is_refused(message, Problem, sources, domain, Selection(), outputs)
    assert Problem(sources, windows, Selection(), (value, index)).output_count == 16


@pytest.mark.parametrize(
    ("sizes", "strides", "full"),
    [
        ((10, 448), None, 1792),  # a row
        ((99, 64), None, 2048),  # 8 rows
        ((4, 3, 64), (448, 128, 1), 1792),  # a plane
        ((4, 40, 64), None, 2048),  # rows, as planes are too large
        ((10, 300), None, 2048),  # a row would waste 848 bytes
        ((40, 37), None, 2048),  # 8 rows, which are whole vectors, would waste 864 bytes
        ((40, 24), None, 2016),  # 21 rows
        ((112, 100), (1, 112), 1792),  # columns
    ],
)
def test_segments_end_with_whole_inner_dimensions_if_that_wastes_little(sizes, strides, full):
    limits, tensor = Limits(2048, 64, 8), TensorDesc(FLOAT32, sizes, strides)
    assert limits.full_segment(tensor) == full
    assert segment_sizes(tensor, full)[:-1] == (full,) * ((tensor.size_in_bytes - 1) // full)


def test_a_plan_has_the_segments_of_its_tensors():
    limits, desc = Limits(2048, 64, 8), arg_desc(ArgmaxOperatorDesc, FLOAT32, (10, 448), [1])
    plans = {memory: lower(desc, limits, memory=memory) for memory in ((), (1792, 2048), (2048, 2048))}
    assert plans[()] == plans[1792, 2048]
    assert plans[()].summary.endswith("10 x rows_selection_32")  # a segment for each row
    assert "combine" in plans[2048, 2048].summary
    assert [sum(plan.segments(plan.dispatches[0].bindings[0])) for plan in plans.values()] == [17920] * 3
    check(plans[()])


def test_partials_of_many_outputs_are_combined_in_several_dispatches():
    """Each of 134 million outputs has 8 elements in 8 segments."""
    desc = arg_desc(ArgmaxOperatorDesc, FLOAT32, (1_443_200, 31, 8, 3), [2], strides=(93, 3, 134_217_600, 1))
    plan = lower(desc, Limits(1 << 28, 64, 16))
    combined = [dispatch for dispatch in plan.dispatches if dispatch.shader.variant == "combine"]
    assert max(len(dispatch.outputs) * dispatch.push["partial_count"] for dispatch in combined) <= 1 << 24
    check(plan)


def test_a_level_of_partials_needs_several_dispatches_if_invocations_are_few():
    limits = Limits(256, 1, 8, invocation_loads=100, dispatch_count=1 << 20, cooperating=True)
    plan = lower(arg_desc(ArgmaxOperatorDesc, UINT8, (256 * 1000,), [0]), limits)
    to_partials = [dispatch.shader.constants.get("to_partials") for dispatch in plan.dispatches[-8:]]
    assert to_partials.count(True) > 2
    check(plan)


def test_a_plan_may_have_all_allowed_dispatches_with_all_allowed_elements():
    limits = dataclasses.replace(CPU, dispatch_elements=1 << 12, dispatch_count=4)
    assert len(lower(arg_desc(ArgmaxOperatorDesc, FLOAT32, (256, 64), [1]), limits).dispatches) == 4
    allowed = "allowed on this device are 4 dispatches of 4096 elements"
    refuses(f"loads 16448 elements; {allowed}", lower, arg_desc(ArgmaxOperatorDesc, FLOAT32, (257, 64), [1]), limits)
    limits = dataclasses.replace(limits, segment_bytes=256)  # 8 segments
    refuses(
        f"needs more than 4 dispatches; {allowed}", lower, arg_desc(ArgmaxOperatorDesc, FLOAT32, (8, 64), [1]), limits
    )


@by_device
@pytest.mark.parametrize(("sizes", "window"), [((1, 1, 512, 512), 31), ((1, 4, 4096, 4096), 9), ((1, 1, 600, 600), 15)])
def test_dispatches_of_tiles_load_at_most_twice_the_allowed_elements(sizes, window, limits):
    for stride in (1, 2):
        desc = dmlgpu.AveragePooling1OperatorDesc.of(
            TensorDesc(FLOAT32, sizes), (window, window), strides=(stride, stride)
        )
        plan = lower(desc, limits, kernel="pool_direct" if limits.cooperating and window > 9 else "pool_small")
        check(plan)
        most = max(dispatch.push["output_count"] for dispatch in plan.dispatches)
        outputs = math.prod(desc.output_tensor.sizes)
        assert plan.elements * most <= 2 * plan.limits.dispatch_elements * outputs or most <= sizes[-1]


@pytest.mark.parametrize("indices", [False, True])
@pytest.mark.parametrize(
    ("sizes", "window"),
    [
        ((32001, 4), (16337, 1)),
        ((4, 32001), (3, 16400)),
        ((2000, 2000), (251, 251)),
        ((3000, 3000), (193, 193)),
        ((4000, 4000), (1500, 1500)),
        ((5600, 5600), (2800, 2800)),
        ((200, 200, 200), (100, 100, 100)),
    ],
    ids=str,
)
def test_large_windows_need_few_dispatches_of_few_loads(sizes, window, indices):
    """Rows that several ranges need are computed at most twice. Long loops are cut into several dispatches."""
    x = TensorDesc(FLOAT32, (1, 1, *sizes))
    desc = dmlgpu.MaxPooling2OperatorDesc.of(x, window, indices_data_type=UINT32 if indices else None)
    limits = Limits(segment_bytes=1 << 27, group_size=32, group_count=4)
    plan = lower(desc, limits)
    check(plan)
    assert len(plan.dispatches) <= 500
    assert plan.elements <= 2 * lower(desc, dataclasses.replace(limits, temporary_bytes=1 << 40)).elements


@pytest.mark.parametrize("indices", [False, True])
def test_large_windows_over_several_segments_cost_no_more(indices):
    """A plane of the tensor lies in two segments, and so do outputs of a row."""
    works = []
    for size in (724, 726):
        x = TensorDesc(FLOAT32, (1, 64, size, size))
        desc = dmlgpu.MaxPooling2OperatorDesc.of(x, (33, 33), indices_data_type=UINT32 if indices else None)
        plan = lower(desc, Limits(segment_bytes=1 << 27, group_size=64, group_count=8))
        check(plan)
        works.append(plan.elements)
        assert len(plan.dispatches) <= 100
    assert works[1] <= 1.1 * works[0]


# Outputs are 124 times as many as gradients.
SPREAD = AveragePoolingGradOperatorDesc.of(TensorDesc(FLOAT32, (1, 99, 23, 23)), (256, 256), (31, 31), strides=(10, 10))


@pytest.mark.parametrize(
    ("segment_bytes", "most", "desc"),
    [
        # Rows of all planes are adjacent, so each plane lies in all segments.
        (1 << 16, 64, pool_desc(FLOAT32, (1, 64, 32, 32), (15, 15), input_strides=(65536, 32, 2048, 1))),
        # The temporaries of a few planes fit.
        (1 << 25, 8, SPREAD),
    ],
    ids=["segments", "temporaries"],
)
def test_windows_are_not_separated_if_that_needs_too_many_dispatches(segment_bytes, most, desc):
    limits = Limits(segment_bytes, group_size=64, group_count=256, temporary_bytes=1 << 18)
    assert lower(desc, limits).kernel_choice[0].startswith("pool_separable")
    plan = lower(desc, dataclasses.replace(limits, dispatch_count=most))
    check(plan)
    assert not any("separable" in variant for variant in variants(plan))


def test_outputs_that_are_larger_than_the_source_need_few_dispatches():
    plan = lower(SPREAD, Limits(1 << 25, group_size=64, group_count=8, temporary_bytes=1 << 18))
    assert len(plan.dispatches) == 12
    assert sum([tensor.size_in_bytes for tensor in plan.temporaries]) <= SPREAD.outputs[0].size_in_bytes // 16


@pytest.mark.parametrize("data_type", [FLOAT32, INT64], ids=lambda data_type: data_type.name.lower())
@pytest.mark.parametrize("flags", [dmlgpu.ExecutionFlags.NONE, dmlgpu.ExecutionFlags.EXACT_SUMS], ids=str)
def test_reductions_of_any_order_load_elements_in_the_order_of_memory(data_type, flags):
    """The tensor lies in several segments. It is transposed, or has an axis without a stride."""
    limits, sizes = Limits(1 << 27, group_size=64, group_count=8), (8300, 5000)
    transposed = TensorDesc(data_type, sizes[::-1], (1, 5000))
    packed = lower(ReduceOperatorDesc.of(ReduceFunction.SUM, TensorDesc(data_type, sizes)), limits, flags=flags)
    for function in ReduceFunction.SUM, ReduceFunction.MAX if data_type is INT64 else ReduceFunction.L1:
        plan = lower(ReduceOperatorDesc.of(function, transposed), limits, flags=flags)
        check(plan)
        assert variants(plan) == {"rows", "combine"}
        assert plan.elements == packed.elements
    repeated = lower(ReduceOperatorDesc.of(ReduceFunction.SUM, TensorDesc(data_type, (9, 99, 3), (99, 1, 0))), limits)
    assert repeated.dispatches[0].push["stride"][:2] == (0, 1)


@pytest.mark.parametrize("function", [ReduceFunction.MAX, ReduceFunction.MIN], ids=lambda function: function.name)
def test_each_segment_of_a_transposed_tensor_is_loaded_once(function):
    limits = Limits(1 << 27, group_size=64, group_count=8)
    for sizes, strides, axes in (
        ((5000, 8300), (1, 5000), (0, 1)),
        ((5000, 83, 100), (1, 500000, 5000), (0, 1, 2)),
        ((1000, 2, 83, 250), (1, 20750000, 250000, 1000), (0, 2, 3)),
    ):
        plan = lower(ReduceOperatorDesc.of(function, TensorDesc(FLOAT32, sizes, strides), axes), limits)
        check(plan)
        assert plan.elements < 1.1 * math.prod(sizes)
        assert variants(lower(plan.desc, limits, kernel="reduce")) == {"reduce", "combine"}
    few = lower(ReduceOperatorDesc.of(function, TensorDesc(FLOAT32, (5000000, 15), (1, 5000000))), limits)
    assert few.temporaries == ()
