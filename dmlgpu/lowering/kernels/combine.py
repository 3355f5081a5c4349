"""combine.comp: the second pass, the same for all kernels: combines an output's records, wherever the output lies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dmlgpu.lowering.geometry import Dim, address_span
from dmlgpu.lowering.kernels.kernel import constants_of, dimensions, shader_of, wrapped
from dmlgpu.lowering.limits import Limits
from dmlgpu.lowering.plan import Binding, Constants, Dispatch, Push, Role
from dmlgpu.lowering.problem import Axes, Problem

COMBINE = {"combine": "second pass: what the first left of every output, combined, wherever the output lies"}


@dataclass(frozen=True)
class CombinePush(Push):
    """Those of combine.comp."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    rank: int
    record_count: int
    first_output: int
    output_count: int
    element_count: int
    records_base: int
    target_first: int
    target_count: int
    target_base: int


def combine(problem: Problem, limits: Limits, begin: int, end: int, records: int) -> Iterator[Dispatch]:
    """The dispatches that combine a range's records into every segment of every output that it touches."""
    # Windows differ in it; no accumulator asks for it there.
    element_count = problem.domain.element_count if isinstance(problem.domain, Axes) else 0
    for number, output in enumerate(problem.outputs):
        tensor = output.tensor
        dims = [Dim(size, stride) for size, stride in zip(tensor.sizes, tensor.element_strides, strict=True)]
        size = limits.segment_elements(tensor)
        low, high = address_span(dims, begin, end)
        constants = constants_of(Constants, problem, limits, (output,))
        shader = shader_of("combine", problem, constants)
        for segment in range(low // size, high // size + 1):
            push = CombinePush(
                **dimensions(dims),
                rank=len(dims),
                record_count=records,
                first_output=begin,
                output_count=end - begin,
                element_count=element_count,
                records_base=0,
                target_first=segment * size,
                target_count=size,
                target_base=wrapped(-segment * size),
            )
            target = Binding(Role.OUTPUT, number, segment, "target_base", tensor.data_type.bits)
            yield Dispatch(shader, push, (Binding(Role.RECORDS, base="records_base"), target))
