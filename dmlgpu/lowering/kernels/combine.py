"""combine.comp, the second pass of all kernels: combines the partials of an output of any layout."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from dmlgpu.lowering.geometry import Dim, address_span, power_of_2
from dmlgpu.lowering.kernels.kernel import by_base, constants_of, dimensions, shader_of, wrapped
from dmlgpu.lowering.limits import IN_FLIGHT, Limits
from dmlgpu.lowering.plan import Binding, Dispatch, Shader, Values
from dmlgpu.lowering.problem import Axes, OutputTensor, Problem, Result, Role

COMBINE = {"combine": "second pass: combines the partials of each output, in any layout"}

# Maximum of an output's partials that an invocation combines; if there are more, splits are combined first.
_MOST_PARTIALS = 2048


def levels(limits: Limits, partials: int) -> tuple[int, ...]:
    """The numbers of an output's partials after the first pass, and after each level, until they are few enough.

    A level of n partials combines splits of about sqrt(n) partials each.
    """
    most = min(_MOST_PARTIALS, max(2, limits.invocation_loads // 2))
    if partials <= most * limits.most_threads:
        return (partials,)
    return partials, *levels(limits, -(-partials // max(2, min(math.isqrt(partials), most))))


def partial_count(limits: Limits, partials: int) -> int:
    """The number of an output's partials in memory, on all levels, if the first pass writes this many."""
    return sum(levels(limits, partials))


def most_combined(limits: Limits, partials: int) -> int:
    """Maximum of outputs for which one dispatch of any level can combine a split of each output."""
    counts = levels(limits, partials)
    splits = *(-(-count // splits) for count, splits in pairwise(counts)), counts[-1]
    return min(min(limits.most_items(_item_loads(size, 1)), limits.dispatch_elements // size) for size in splits)


def combine(problem: Problem, limits: Limits, begin: int, end: int, partials: int) -> Iterator[Dispatch]:
    """The dispatches that combine `partials` of each output, for outputs begin to end - 1.

    The last level has one for each segment of an output tensor that contains some of these.
    """
    words = problem.accumulator.partial_words(problem.source.data_type)
    base, counts = 0, levels(limits, partials)
    for count, splits in pairwise(counts):
        target_base = base + count * (end - begin) * words
        yield from _level(problem, limits, begin, end, count, -(-count // splits), base, target_base)
        base = target_base
    yield from _outputs(problem, limits, begin, end, counts[-1], base)


def _level(
    problem: Problem, limits: Limits, begin: int, end: int, partials: int, split_size: int, base: int, target_base: int
) -> Iterator[Dispatch]:
    """Combines splits of the partials at word `base` into partials at word `target_base`."""
    outputs, words = end - begin, problem.accumulator.partial_words(problem.source.data_type)
    splits = -(-partials // split_size)
    threads = _threads(limits, outputs * splits, split_size)
    shader = _shader(problem, limits, (), threads)
    item_loads = _item_loads(split_size, threads)
    most = max(1, min(limits.most_items(item_loads, threads), limits.dispatch_elements // split_size) // outputs)
    for split in range(0, splits, most):
        count, first = min(most, splits - split), split * split_size
        bases = by_base(problem, [target_base + split * outputs * words])
        bindings = _PARTIALS, *(Binding(Role.PARTIALS, base=base, written=True) for base in bases)
        push = Values(
            **_outputs_push(begin, end, min(count * split_size, partials - first), base + first * outputs * words),
            **_target_push(()),
            split_size=split_size,
            target_first=0,
            target_count=0,
            **bases,
        )
        yield Dispatch(shader, push, bindings, limits.loads(outputs * count, item_loads, threads), range(begin, end))


def _outputs(problem: Problem, limits: Limits, begin: int, end: int, partials: int, base: int) -> Iterator[Dispatch]:
    """Combines partials into outputs."""
    threads = _threads(limits, end - begin, partials)
    loads = limits.loads(end - begin, _item_loads(partials, threads), threads)
    for outputs in _written_together(problem):
        output = outputs[-1]
        tensor = output.tensor
        dims = [Dim(size, stride) for size, stride in zip(tensor.sizes, tensor.element_strides, strict=True)]
        shader, size = _shader(problem, limits, outputs, threads), output.segment_size
        index_step = problem.domain.index_step if isinstance(problem.domain, Axes) else 0
        low, high = (begin, end - 1) if tensor.is_packed else address_span(dims, begin, end)
        for segment in range(low // size, high // size + 1):
            bases, targets = dict[str, int](), []
            for name, target in by_base(problem, outputs).items():
                elements, bits = target.segment_size, target.tensor.data_type.bits
                # If two tensors are written together, the outputs are in one segment of each.
                number = segment if target is output else begin // elements
                bases[name] = wrapped(-number * elements)
                targets.append(Binding(target.role, target.number, number, name, bits, written=True))
            push = Values(
                **_outputs_push(begin, end, partials, base),
                **_target_push(dims, index_step, output.number if output.result is Result.WORD else 0),
                split_size=0,
                target_first=segment * size,
                target_count=size,
                **bases,
            )
            yield Dispatch(shader, push, (_PARTIALS, *targets), loads, range(begin, end))


def _written_together(problem: Problem) -> Sequence[tuple[OutputTensor, ...]]:
    """The outputs that each dispatch writes: a value and its index if both have the same address."""
    if problem.accumulator.has_index and problem.has_packed_outputs:
        return [problem.outputs]
    return [(output,) for output in problem.outputs]


def _outputs_push(begin: int, end: int, partials: int, base: int) -> dict[str, Any]:
    """The push constants for outputs with `partials` partials each, from word `base` on."""
    return {"partial_count": partials, "first_output": begin, "output_count": end - begin, "partials_base": base}


def _target_push(dims: Sequence[Dim], index_step: int = 0, word: int = 0) -> dict[str, Any]:
    """The push constants for an output tensor with these dimensions."""
    return {**dimensions(dims), "rank": len(dims), "index_step": index_step, "word": word}


_PARTIALS = Binding(Role.PARTIALS, base="partials_base")


def _shader(problem: Problem, limits: Limits, outputs: Sequence[OutputTensor], threads: int) -> Shader:
    """The shader that writes these outputs, or partials if there are none."""
    constants = constants_of(
        problem,
        limits,
        outputs,
        segmented=False,
        to_partials=not outputs,
        threads=threads,
        loads_together=limits.cooperating,
    )
    return shader_of("combine", problem, constants)


def _threads(limits: Limits, items: int, partials: int) -> int:
    """Threads of an item with this many partials."""
    return min(power_of_2(partials // IN_FLIGHT), power_of_2(limits.invocations // items), limits.most_threads)


def _item_loads(partials: int, threads: int) -> int:
    """Loads of an item with this many partials, besides the loop that computes its address."""
    return -(-partials // threads) + 3
