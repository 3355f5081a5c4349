"""Plans of the cases, and checks of any plan."""

import collections
import contextlib
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from dmlgpu import ArgmaxOperatorDesc, ArgminOperatorDesc, DescriptorError, Device, OperatorDesc, ReduceFunction
from dmlgpu.descriptors.tensor import Array
from dmlgpu.lowering.limits import Limits
from dmlgpu.lowering.plan import Dispatch, Plan, Values
from dmlgpu.lowering.problem import Role, problems_with
from dmlgpu.registry import OPERATORS
from dmlgpu.runtime import spirv
from dmlgpu.testing.cases import CASES, FLOAT16, FLOAT32, INT64, UINT8, UINT64, Case, arg_desc, extremum_desc, pool_desc
from tests.support.instructions import writable
from tests.support.limits import CORES, LIMITS

# Modules that run only on a GPU, only on a CPU, or only with a driver that gathers.
OF_A_GPU = r"\w+_cooperating_"
OF_A_CPU = r"(rows|columns|scan_rows)_(?!\w*cooperating)|pool_small_wide_|top_k_sort_long_"
OF_GATHERS = r"pool_separable_columns_words_|pool_backward_small_maxima_turns_"


@functools.cache
def modules_of(case: Case, limits: Limits) -> frozenset[str]:
    """The modules of a case's plan, with the suffix `_vectors` if they read vectors."""
    shaders = {dispatch.shader for dispatch in case.plan(limits).dispatches}
    return frozenset(shader.module + "_vectors" * reads_vectors(shader.constants) for shader in shaders)


def reads_vectors(constants: Values) -> bool:
    return constants.get("vectors", False) or constants.get("item_vectors", 1) > 1


# Not an operator of DirectML, and not in the registry.
EXTREMUM = "EXTREMUM"


@functools.cache
def modules_in(case: Case, mapping: str) -> frozenset[str]:
    """The modules of a case; none if split tensors would need more than 150 dispatches."""
    with contextlib.suppress(DescriptorError):
        return modules_of(case, dataclasses.replace(LIMITS[mapping], dispatch_count=150))
    return frozenset()


@functools.cache
def modules_with_types(mapping: str) -> frozenset[str]:
    """The modules that chosen cases run with every type; each in one mapping, because types do not depend on it."""
    if mapping in CORES:
        return frozenset()
    modules = frozenset[str]().union(*(modules_in(case, mapping) for case in candidates(mapping)))
    return modules.difference(*map(modules_with_types, ("CPU", "GPU")[: ("CPU", "GPU", "split").index(mapping)]))


def covered(case: Case, mapping: str) -> set[Any]:
    """The coverage of a case: its operator, its modules, and the types of its tensors in `modules_with_types`."""
    modules = modules_in(case, mapping)
    types = [tensor.data_type for tensor in (*case.desc.inputs, *case.desc.outputs)]
    with_types = itertools.product(modules & modules_with_types(mapping), enumerate(types))
    return {case.operator, *modules, *with_types} if modules else set()


def first_of_each(covers: Callable[[Case], set[Any]], cases: Sequence[Case] = CASES) -> list[Case]:
    """For each element of the cases' coverage, the first case that has it."""
    firsts, done = [], set()
    for case in cases:
        new = covers(case) - done
        if new:
            firsts.append(case)
            done |= new
    return firsts


@functools.cache
def candidates(mapping: str) -> Sequence[Case]:
    """The cases to choose from. Plans of split tensors are long: only the first and the smallest that cover a CPU."""
    if mapping != "split":
        return CASES
    by_size = sorted(CASES, key=lambda case: sum(x.size_in_bytes for x in (*case.desc.inputs, *case.desc.outputs)))
    return [*chosen("CPU"), *first_of_each(lambda case: covered(case, "CPU"), by_size)]


@functools.cache
def chosen(mapping: str) -> list[Case]:
    """Few cases whose plans for this mapping have every operator and kernel; for a CPU, also with every type."""
    return first_of_each(lambda case: covered(case, mapping), candidates(mapping))


def of_operator(operator: str, cases: list[Case]) -> list[Case]:
    """The cases of an operator, at least one."""
    chosen = [case for case in cases if case.operator == operator]
    assert chosen
    return chosen


by_operator = pytest.mark.parametrize("operator", [*(operator.name for operator in OPERATORS), EXTREMUM])


# Tensors with as many elements as DirectML allows, along each dimension.
LARGE = {
    "one-axis": arg_desc(ArgmaxOperatorDesc, UINT8, (2**32 - 1,), [0]),
    "one-axis-64-bit": arg_desc(ArgminOperatorDesc, UINT64, (2**32 - 1,), [0]),
    "first-axis": arg_desc(ArgmaxOperatorDesc, UINT8, (65535, 65536), [0]),
    "last-axis": arg_desc(ArgmaxOperatorDesc, INT64, (65535, 65536), [1]),
    # 4,096 invocations share the input, which has whole vectors; their shares do not.
    "vectors-of-4": arg_desc(ArgmaxOperatorDesc, FLOAT32, (1, 4_202_500), [1]),
    "vectors-of-2": arg_desc(ArgminOperatorDesc, INT64, (1, 4_202_498), [1]),
    "axis-of-1": arg_desc(ArgmaxOperatorDesc, UINT8, (2**32 - 1, 1), [1]),
    "short-rows": arg_desc(ArgmaxOperatorDesc, UINT8, (2**27, 31), [1]),
    "short-columns": arg_desc(ArgminOperatorDesc, FLOAT32, (2**22, 3, 64), [1]),
    "long-first-axis": arg_desc(ArgmaxOperatorDesc, FLOAT16, (2**31 - 1, 2), [0]),
    "rows-with-indices": extremum_desc(ReduceFunction.MAX, UINT8, (2**27, 31), (1,)),
    "columns-with-indices": extremum_desc(ReduceFunction.MIN, FLOAT16, (2**31 - 1, 2), (0,)),
    "windows": pool_desc(UINT8, (1, 1, 65536, 65535), (2, 2), (2, 2)),
    "many-planes": pool_desc(FLOAT32, (1, 2**20, 64, 63), (3, 3), (2, 2), (1, 1)),
    "many-global-windows": pool_desc(FLOAT32, (2**20, 1, 64, 63), (64, 63)),
    "long-rows": pool_desc(UINT8, (1, 1, 1, 2**32 - 1), (1, 2**16), (1, 2**16)),
}


def check_limits(plan: Plan, limits: Limits) -> None:
    """Nothing in a plan exceeds the limits of Vulkan or of the device."""
    assert plan.dispatches
    for dispatch in plan.dispatches:
        assert spirv.constant_words(dispatch.shader)
        words = spirv.push_words(dispatch.shader.module, dispatch.push)
        assert 4 * len(words) <= 128  # the minimum of maxPushConstantsSize
        assert all(0 <= word < 1 << 32 for word in words)
        # The minimum of maxPerStageDescriptorStorageBuffers is 4.
        assert 1 <= len(dispatch.bindings) <= len(dispatch.bindings) + dispatch.has_status <= 4
        # Barriers and copies rely on which buffers the plan declares as written.
        written = [True] * dispatch.has_status + [binding.written for binding in dispatch.bindings]
        assert written == writable(dispatch.shader.module)
        assert dispatch.shader.constants["group_size"] <= limits.group_size
        for binding in dispatch.bindings:
            assert binding.segment >= 0
            size = plan.segments(binding)[binding.segment]
            assert size % 4 == 0
            assert 0 < size <= limits.segment_bytes or binding.role is Role.PARTIALS
            assert binding.base in dispatch.push


def tiles_of(dispatch: Dispatch) -> int:
    """Number of tiles of a pass of pool_separable."""
    constants, push = dispatch.shader.constants, dispatch.push
    lines = push["outer_count"]
    if "row_count" in push:
        words = 4 if dispatch.shader.accumulator == "sum" else max(1, dispatch.shader.bits // 32)
        lines *= push["row_count"] * push["pitch"] * words // 4
    classes = min(push["spacing"], push["output_size"])
    return lines * classes * (1 + (push["output_size"] - 1) // push["spacing"] // constants["tile"])


def check_pass(dispatch: Dispatch, limits: Limits) -> None:
    """A dispatch of pool_separable keeps to the limit of elements, and an invocation to `loads`."""
    constants, push = dispatch.shader.constants, dispatch.push
    items = min(push["most_items"], tiles_of(dispatch) - push["first_item"])
    # Gradients are a stride apart, so some windows have one more than others.
    apart = constants.get("base_dilation", 1)
    fewest, most = push["window_size"] // apart, -(-push["window_size"] // apart)
    loads = constants["tile"] if constants["copies"] else most + (constants["tile"] - 1) * constants["step"]
    assert items * loads <= limits.dispatch_elements
    # The elements that all windows share are loaded two per iteration; those before and after, one by one.
    suffix = (constants["tile"] - 1) * constants["step"]
    iterations = loads if constants["copies"] else (loads - 2 * suffix) / 2 + 2 * suffix
    assert -(-items // (limits.group_size * limits.group_count)) * iterations <= dispatch.loads
    # All windows of a tile share an element, except for copies.
    assert constants["copies"] == (most == 1)
    assert constants["copies"] or (constants["tile"] - 1) * constants["step"] < fewest


def inside(window: Sequence[int], size: Sequence[int], dilation: Sequence[int]) -> list[int]:
    """Along each dimension, the number of a window's elements that can be in the input at once."""
    return [min(w, (n - 1) // d + 1) for w, n, d in zip(window, size, dilation, strict=True)]


def check_work(plan: Plan, limits: Limits) -> None:
    """No dispatch exceeds the limit of elements by much; a range of 64 outputs is always allowed."""
    for dispatch in plan.dispatches:
        push, least = dispatch.push, 64
        if "spacing" in push:
            check_pass(dispatch, limits)
            continue
        if dispatch.shader.variant.startswith("requantize"):
            assert push.get("output_count", push.get("channel_count")) <= max(64, limits.dispatch_elements)
            continue
        if "partial_count" in push:
            elements = push["partial_count"]
        elif "reduced_end" in push:
            elements = push["reduced_end"] - push["reduced_begin"]
            least = min(64, push["output_count"])  # the elements of fewer outputs are cut, too
            assert elements * least <= limits.dispatch_elements or elements <= push["split_size"]
        elif "tile_height" in push and "window_count" not in push:
            constants = dispatch.shader.constants
            depth, height, width = (constants[f"window_{axis}"] for axis in ("depth", "height", "width"))
            # An output's share of the rows that its tile combines, and the rows of the ring that it combines.
            ring, fresh, rows = constants["ring_rows"], constants["fresh_rows"], push["tile_height"]
            combined = (rows + (ring - 1) // fresh) * fresh * (1 if ring > 1 else height)
            if constants.get("subtracts"):
                combined = height + 2 * (rows - 1) * push["window_stride"][1] // constants["dilation_height"]
            width = constants.get("whole_width", width)
            elements = depth * width * math.ceil(combined / rows) + height
            least = push["output_size"][2]
        elif "window_size" in push:
            extents = inside(push["window_size"], push["size"], push["dilation"])
            elements = math.prod(extents)
            if "split_count" in push:
                split = min(push["split_size"], extents[push["cut"]])
                elements = push["split_count"] * split * math.prod(extents[push["cut"] + 1 :])
                assert elements * push["output_count"] <= limits.dispatch_elements or push["split_count"] == 1
        elif dispatch.shader.variant.startswith("scatter"):
            assert push.get("element_count", push["output_count"]) <= max(64, limits.dispatch_elements)
            continue
        elif dispatch.shader.variant.startswith("scan"):
            elements = push.get("block_size", push.get("group_size")) * lines_of_item(dispatch)
            assert push["item_count"] == 1 or push["item_count"] * elements <= limits.dispatch_elements
            continue
        elif dispatch.shader.variant.startswith("top_k"):
            loads = push.get("item_size", 1) * (2 if push.get("chosen_count") else 1 << push.get("group_shift", 0))
            assert push["item_count"] == 1 or push["item_count"] * loads <= limits.dispatch_elements
            continue
        elif "bin_splits" in push:
            # For all bins of a region and channel, or for a row of them.
            sizes = [a + b for a, b in zip(push["size"], push["pooled_size"], strict=True)]
            bins = math.prod(push["pooled_size"]) if math.prod(sizes) <= limits.dispatch_elements else sizes[1]
            elements = math.prod(sizes) / bins * push["split_count"] / push["bin_splits"]
            assert elements * push["output_count"] <= 2 * limits.dispatch_elements or push["split_count"] == 1
            least = push["tile"]
        elif "split_end" in push:
            elements = push["split_end"] - push["split_begin"]
        else:
            steps = zip(push["window_count"], push["reach"], push["window_stride"], strict=True)
            depth, height, width = (min(count, 1 + reach // stride) for count, reach, stride in steps)
            elements = depth * height * width
            if "tile_height" in push:
                # Rows that begin at a multiple of the stride, in each slab.
                _, rows, row = push["size"]
                step = push["window_stride"][1]
                least = max(64, row * (rows if rows % step else step))
                if "shares" in dispatch.shader.variant:
                    # An output's share of the rows that its tile adds, and the rows of the ring that it adds.
                    phase, tile = dispatch.shader.constants["phase_height"], push["tile_height"]
                    filling = (push["reach"][1] - phase) // step + (step - 1 + phase) // step
                    elements = min(elements, math.ceil(depth * width * (tile // step + filling) / tile) + height)
                assert push["tile_height"] % step == 0
                assert push["first_output"] % (rows * row) % (row * step) == 0
        assert push["output_count"] <= max(least, 2 * limits.dispatch_elements / elements)


def check_partials(plan: Plan, limits: Limits) -> None:
    """Partials of several outputs keep to their limit and fit a buffer; one output may need more.

    The dispatches of a range write consecutive partials from 0 on, and the second pass reads them all.
    """
    partials = [d for d in plan.dispatches if any(binding.role is Role.PARTIALS for binding in d.bindings)]
    assert bool(partials) == bool(plan.partial_bytes)
    if any(dispatch.shader.variant.startswith(("top_k", "scan")) for dispatch in partials):
        return  # the kernel has its own limit
    parameters = [d for d in partials if d.shader.variant.startswith("requantize")]
    partials = [d for d in partials if d not in parameters]
    problems = problems_with(plan.desc, plan.flags)
    share = max(problem.source.size_in_bytes for problem in problems) // 16
    limit = min(max(limits.partial_bytes, share), limits.segment_bytes)
    words_of = {
        problem.accumulator.name: problem.accumulator.partial_words(problem.source.data_type) for problem in problems
    }
    # The parameters of requantize.comp have four words per channel.
    read, written, most, combined = 0, 0, 4 * plan.desc.channels if parameters else 0, True
    for dispatch in partials:
        push = dispatch.push
        words = push["output_count"] * words_of[dispatch.shader.accumulator]
        if "partial_count" in push:
            assert push["partials_base"] == read
            if dispatch.shader.constants.get("to_partials"):
                assert push["target_base"] == written
                read += push["partial_count"] * words
                written += math.ceil(push["partial_count"] / push["split_size"]) * words
                continue
            assert read + push["partial_count"] * words == written
            most, combined = max(most, written), True
            continue
        read, written = 0, 0 if combined else written
        combined = False
        assert push[dispatch.bindings[1].base] == written
        written += partials_of(dispatch) * words
        assert 4 * written <= limit or push["output_count"] == 1
    assert plan.partial_bytes == 4 * most


def partials_of(dispatch: Dispatch) -> int:
    """Number of partials that a dispatch of a first pass writes for each output."""
    push = dispatch.push
    if "split_count" in push:
        return push["split_count"]
    if "split_end" in push:
        return math.ceil((push["split_end"] - push["split_begin"]) / push["split_size"])
    if "split_size" not in push:
        return 1
    splits = math.ceil((push["reduced_end"] - push["reduced_begin"]) / push["split_size"])
    return splits * dispatch.shader.constants.get("output_columns", 1)


def outputs_of(dispatch: Dispatch, segment_elements: int) -> tuple[int, int]:
    """The range of outputs that a dispatch writes to an output tensor: first and end."""
    push = dispatch.push
    if "spacing" not in push:
        return push["first_output"], push["first_output"] + push["output_count"]
    width = push["width"] if "row_count" in push else 1
    count = push["outer_count"] * push["output_size"] * push.get("row_count", 1) * width
    # Outputs in another segment than the first would be written after the bound one.
    begin = push["values_base"] + dispatch.bindings[1].segment * segment_elements
    assert push["values_base"] + count <= segment_elements
    return begin, begin + count


def written_ranges(plan: Plan, output: int) -> list[tuple[int, int, int]]:
    """(begin, end, segment) of each dispatch's writes to an output tensor."""
    first = plan.desc.outputs[0]
    size = plan.memory[len(plan.desc.inputs)] * 8 // first.data_type.bits
    return [
        (*outputs_of(dispatch, size), segment)
        for dispatch in plan.dispatches
        # If there is one output, it is at the bindings for values and for indices.
        for segment in {b.segment for b in dispatch.bindings if (b.role, b.tensor) == (Role.OUTPUT, output)}
        if "first_element" not in dispatch.push and not dispatch.push.get("first_item")
        if dispatch.shader.variant != "top_k_write" and not dispatch.shader.variant.startswith("scan")
    ]


def check_coverage(plan: Plan) -> None:
    """Ranges of outputs follow each other without gap or overlap; within a range every segment occurs once."""
    check_lines(plan)
    check_scans(plan)
    for output, tensor in enumerate(plan.desc.outputs):
        written = written_ranges(plan, output)
        if not written:
            continue
        assert max(collections.Counter(written).values()) == 1
        ranges = sorted({(begin, end) for begin, end, _ in written})
        assert [begin for begin, _ in ranges] == [0, *(end for _, end in ranges[:-1])]
        assert ranges[-1][1] == tensor.element_count
        check_scattered(plan, tensor.element_count)
    check_tiles(plan)


def check_lines(plan: Plan) -> None:
    """Each pass of TOP_K has all its items, its lists fit in a half of the partials, and each output is written."""
    passes = [d for d in plan.dispatches if d.shader.variant.startswith("top_k")]
    end = 0
    for dispatch, after in itertools.pairwise((*passes, None)):
        push = dispatch.push
        assert push["first_item"] == end
        end += push["item_count"]
        if after is None or not after.push["first_item"]:
            k = passes[-1].push["k"]
            lines = len(dispatch.outputs) // k
            lists = (
                push.get("merged_count", 1) * -(-push["merged_size"] // push["item_size"])
                if "merged_size" in push
                else k
            )
            assert end == lines * (push["list_count"] if "group_shift" in push else lists)
            end = 0
            if "target_base" in push:
                name, half = "merged" if "merged_size" in push else "list", plan.partial_bytes // 8
                entries = lines * push[f"{name}_count"] * push[f"{name}_size"]
                words = entries * (3 if dispatch.shader.bits == 64 else 2)
                assert push["target_base"] % half + words <= half
    for output, tensor in enumerate(plan.desc.outputs if passes else ()):
        written = np.zeros(tensor.element_count, np.int8)
        name = ("values", "indices")[output]
        for push in (dispatch.push for dispatch in passes if dispatch.shader.variant == "top_k_write"):
            item = np.arange(push["first_item"], push["first_item"] + push["item_count"])
            line, rank = push["first_line"] + item // push["k"], item % push["k"]
            outer, inner = np.divmod(line, push["inner"])
            at = (outer * push["k"] + rank) * push["inner"] + inner
            first = push[f"{name}_first"]
            written[at[(at >= first) & (at < first + push[f"{name}_count"])]] += 1
        assert written.all()


def lines_of_item(dispatch: Dispatch) -> int:
    """Number of lines of an item of scan.comp."""
    return 128 // dispatch.shader.bits if dispatch.shader.variant == "scan_columns" else 1


def check_scans(plan: Plan) -> None:
    """Each pass of a scan has all its items, states lie in the partials, and each element is written once."""
    scans = [dispatch for dispatch in plan.dispatches if dispatch.shader.variant.startswith("scan")]
    written: dict[tuple[Role, int, int], list[Array]] = collections.defaultdict(list)
    end = 0
    for dispatch, after in itertools.pairwise((*scans, None)):
        push, shader, lines = dispatch.push, dispatch.shader, lines_of_item(dispatch)
        count = push["group_count"] if "group_count" in push else push["block_count"]
        first, end = end, end + push["item_count"]
        assert push["first_item"] == first
        item = np.arange(first, end)
        if after is None or not after.push["first_item"]:
            assert end == push["line_count"] // lines * count
            end = 0
        if push["begins"] or push["ends"]:
            words = {"cumulative": 5, "product": 5, "exact": 4 if shader.bits == 16 else 11}.get(
                shader.accumulator, shader.bits // 32
            )
            last = (push["line_count"] // push["inner_size"] - 1) * push["state_outer"] + count
            last += (push["inner_size"] - 1) * push["state_inner"]
            assert 4 * (max(push["begin_base"], push["end_base"]) + last * words) <= plan.partial_bytes
        if "block_size" in push and not shader.constants["to_partials"]:
            block, line = np.divmod(item, push["line_count"] // lines)
            outer, inner = np.divmod(line[:, None] * lines + np.arange(lines), push["inner_size"])
            to_outer, to_inner, step = (push[f"target_{name}"] for name in ("outer", "inner", "step"))
            element = block[:, None, None] * push["block_size"] + np.arange(push["block_size"])
            at = push["target_base"] + (outer * to_outer + inner * to_inner)[..., None] + element * step
            place = dispatch.bindings[1].role, dispatch.bindings[1].tensor, dispatch.bindings[1].segment
            written[place].append(at[np.broadcast_to(element < push["element_count"], at.shape)] % (1 << 32))
    addresses = [np.concatenate(parts) for parts in written.values()]
    assert all(np.bincount(part).max() == 1 for part in addresses)
    assert sum(map(len, addresses)) == (plan.desc.outputs[0].element_count if scans else 0)


def check_tiles(plan: Plan) -> None:
    """The dispatches of a pass of pool_separable follow each other, and have all its tiles."""
    end = 0
    for dispatch, after in itertools.pairwise((*(d for d in plan.dispatches if "most_items" in d.push), None)):
        assert dispatch.push["first_item"] == end
        end += dispatch.push["most_items"]
        if after is None or not after.push["first_item"]:
            assert end - dispatch.push["most_items"] < tiles_of(dispatch) <= end
            end = 0


def check_scattered(plan: Plan, outputs: int) -> None:
    """Each step of unpooling checks each element of each segment once for each output."""
    steps = collections.defaultdict(set)
    is_checked = any(dispatch.shader.constants.get("checked", False) for dispatch in plan.dispatches)
    for dispatch in plan.dispatches:
        if "first_element" in dispatch.push and not dispatch.shader.variant.startswith("top_k"):
            push, constants = dispatch.push, dispatch.shader.constants
            pairs = push["element_count"] * push["output_count"]
            if constants.get("reports") or ("write" not in constants and constants["checked"] != is_checked):
                continue  # it marks nothing that a later step reads
            step = dispatch.shader.module, constants.get("write")
            steps[step].add((push["first_element"], push["first_output"], pairs))
    for ranges in steps.values():
        assert sum(pairs for _, _, pairs in ranges) == plan.desc.inputs[0].element_count * outputs


def steps_between_vectors(dispatch: Dispatch) -> list[int]:
    """Begins and ends of the vectors of 16 bytes that a kernel reads, and their distances, in elements."""
    shader, push = dispatch.shader, dispatch.push
    if shader.variant in ("pool_small", "pool_direct"):
        rows = [push["plane_stride"], *push["stride"][:2]]
        if shader.variant == "pool_direct":
            return [*rows, push["start_padding"][2], push["window_stride"][2]]
        run = max(4, 128 // shader.bits)
        return [*rows, push["start_padding"][2] + shader.constants["phase"], run * shader.constants["stride_width"]]
    if shader.variant.startswith("scan"):
        rows = shader.variant.startswith("scan_rows")
        back = (128 // shader.bits - 1) * push["reversed"] * rows
        lines = {"outer": push["line_count"] > push["inner_size"], "inner": rows and push["inner_size"] > 1}
        lines |= {"step": not rows and push["element_count"] > 1}
        strides = [push[f"{name}_{dim}"] for name in ("source", "target") for dim, is_one in lines.items() if is_one]
        whole = [push["element_count"], push["block_size"]] if rows else [push["inner_size"]]
        return [*strides, *whole, push["source_base"] - back, push["target_base"] and push["target_base"] - back]
    if shader.variant.startswith("top_k"):
        strides = [push["outer_stride"], push["inner_stride"]]
        return [*strides, push["element_stride"] - 1, push["first_element"], push["element_count"], push["source_base"]]
    rank, kept = push["kept_rank"], push["stride"][: push["kept_rank"]]
    if shader.variant.startswith("columns"):
        row, columns = push["size"][rank - 1], shader.constants.get("output_columns", 1)
        if columns > 1:  # the last load of a split begins so that it ends with the split
            splits = range(push["reduced_begin"], push["reduced_end"], push["split_size"])
            return [*kept[:-1], *(row * element for element in (*splits, push["reduced_end"], columns))]
        return [*kept[:-1], push["stride"][rank], push["first_output"] % row, min(row, push["output_count"])]
    return [*kept, *range(push["reduced_begin"], push["reduced_end"], push["split_size"]), push["reduced_end"]]


def check_alignment(plan: Plan) -> None:
    """Vectors are whole and begin at multiples of 16 bytes, if the kernel assumes it."""
    for dispatch in plan.dispatches:
        if dispatch.shader.constants["aligned"]:
            vector = 128 // dispatch.shader.bits
            assert all(step % vector == 0 for step in steps_between_vectors(dispatch)), dispatch


def check_loops(plan: Plan) -> None:
    """No invocation exceeds its limit of loads; test_loops.py compares loads with llvmpipe's count of iterations."""
    assert all(0 < dispatch.loads <= plan.limits.invocation_loads for dispatch in plan.dispatches)


def computed(device: Device, desc: OperatorDesc, inputs: Sequence[Array], kernel: str) -> Plan | None:
    """The plan of an operator by a kernel, checked and computed; None if the limits of the device are too low."""
    try:
        operator = device.compile(desc, kernel=kernel)
    except DescriptorError:
        return None
    check(operator.plan)
    operator.launch(inputs, verify=True)
    return operator.plan


def check(plan: Plan) -> None:
    limits = plan.limits
    check_loops(plan)
    check_limits(plan, limits)
    check_work(plan, limits)
    check_partials(plan, limits)
    check_coverage(plan)
    check_alignment(plan)
