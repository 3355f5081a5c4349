"""combine.comp: the second pass, the same for all kernels: combines an output's records, wherever the output lies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dmlgpu.lowering.geometry import Dim, address_span, power_of_2
from dmlgpu.lowering.kernels.kernel import constants_of, dimensions, shader_of, wrapped
from dmlgpu.lowering.limits import LOADS, Limits
from dmlgpu.lowering.plan import Binding, Constants, Dispatch, Push
from dmlgpu.lowering.problem import Axes, Problem, Role, Windows

COMBINE = {
    "combine": "second pass: what the first left of every output, combined, wherever the output lies",
    "combine_lanes": "as combine, with several invocations an output, as suits a GPU",
    "combine_windows": "as combine, for averages over windows, which have different numbers of elements",
    "combine_windows_lanes": "as combine_windows, with several invocations an output, as suits a GPU",
}


@dataclass(frozen=True)
class CombineConstants(Constants):
    """Those of lanes.glsl."""

    lanes: int = 1


@dataclass(frozen=True)
class _AnyCombinePush(Push):
    """What both variants of combine.comp have."""

    record_count: int
    first_output: int
    output_count: int
    records_base: int
    target_first: int
    target_count: int
    target_base: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True)
class CombinePush(_AnyCombinePush):
    """Those of combine.comp."""

    rank: int
    element_count: int
    index_step: int


@dataclass(frozen=True)
class CombineWindowsPush(_AnyCombinePush):
    """Those of combine.comp for averages over windows."""

    window_size: tuple[int, ...]
    window_stride: tuple[int, ...]
    dilation: tuple[int, ...]
    counted_begin: tuple[int, ...]
    counted_end: tuple[int, ...]


def combine(problem: Problem, limits: Limits, begin: int, end: int, records: int) -> Iterator[Dispatch]:
    """The dispatches that combine a range's records into every segment of every output that it touches."""
    for output in problem.outputs:
        tensor = output.tensor
        dims = [Dim(size, stride) for size, stride in zip(tensor.sizes, tensor.element_strides, strict=True)]
        size = limits.segment_elements(tensor)
        low, high = address_span(dims, begin, end)
        idle = power_of_2(limits.invocations // (end - begin))
        lanes = min(power_of_2(records // LOADS), idle, limits.most_lanes)
        constants = constants_of(CombineConstants, problem, limits, (output,), lanes=lanes)
        for segment in range(low // size, high // size + 1):
            given = {
                "record_count": records,
                "first_output": begin,
                "output_count": end - begin,
                "records_base": 0,
                "target_first": segment * size,
                "target_count": size,
                "target_base": wrapped(-segment * size),
            }
            variant, push = "combine", _push(problem, dims, given)
            if isinstance(push, CombineWindowsPush):
                variant = "combine_windows"
            if limits.cooperating:
                variant += "_lanes"
            target = Binding(output.role, output.number, segment, "target_base", tensor.data_type.bits, written=True)
            bindings = (Binding(Role.RECORDS, base="records_base"), target)
            yield Dispatch(shader_of(variant, problem, constants), push, bindings)


def _push(problem: Problem, dims: list[Dim], given: dict[str, Any]) -> CombinePush | CombineWindowsPush:
    """The push constants of a problem whose output has these dimensions."""
    domain = problem.domain
    if isinstance(domain, Axes):
        return CombinePush(
            **dimensions(dims),
            rank=len(dims),
            element_count=domain.element_count,
            index_step=domain.index_step,
            **given,
        )
    if not (isinstance(domain, Windows) and problem.accumulator.counts):
        return CombinePush(**dimensions(dims), rank=len(dims), element_count=0, index_step=0, **given)
    # Always with a depth, as windows have.
    filled = [*dims[:2], *(Dim(1, 0),) * (5 - len(dims)), *dims[2:]]
    return CombineWindowsPush(
        size=tuple(dim.size for dim in filled),
        stride=tuple(dim.stride for dim in filled),
        window_size=domain.window_size,
        window_stride=domain.window_stride,
        dilation=domain.dilation,
        counted_begin=domain.counted_begin,
        counted_end=domain.counted_end,
        **given,
    )
