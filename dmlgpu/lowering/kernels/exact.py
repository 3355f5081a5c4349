"""Sums of floats that are rounded once (exact.glsl), by shaders of their own that map them as others are mapped.

Where a bin missed an element, all elements of an output are added again, one by one: these are loads, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from dmlgpu.lowering.accumulators import ExactSquares
from dmlgpu.lowering.kernels.columns import Columns
from dmlgpu.lowering.kernels.cut import Part, Tiling
from dmlgpu.lowering.kernels.pool_direct import PoolDirect
from dmlgpu.lowering.kernels.pool_small import PoolSmall, Tile
from dmlgpu.lowering.kernels.reduce import Reduce
from dmlgpu.lowering.kernels.rows import Rows
from dmlgpu.lowering.plan import Binding, Dispatch, Shader, Values

# Elements of a split, at most: a bin holds them without overflow, and the second look is short.
_LONGEST = 1 << 10


@dataclass(frozen=True)
class ExactReduce(Reduce):
    """Over axes: any layout, or elements in several segments."""

    longest_split: ClassVar = _LONGEST

    def tiling_of(self, split: int, outputs: int) -> Tiling:
        tiling = super().tiling_of(split, outputs)
        # Four elements choose the place of the bin.
        return replace(tiling, loads=tiling.loads + (4 + split) * (1 + len(self.axes.reduced)))


@dataclass(frozen=True)
class ExactRows(Rows):
    """Over axes, where an output's elements are contiguous."""

    longest_split: ClassVar = _LONGEST
    rest: ClassVar = ExactReduce

    def tiling_of(self, split: int, outputs: int) -> Tiling:
        tiling = super().tiling_of(split, outputs)
        return replace(tiling, loads=tiling.loads + split)

    def reading(self, *, aligned: bool) -> dict[str, int]:
        return {}


@dataclass(frozen=True)
class ExactColumns(Columns):
    """Over axes, where neighbouring outputs have neighbouring elements."""

    longest_split: ClassVar = _LONGEST
    rest: ClassVar = ExactReduce

    def is_wide(self, row: int) -> bool:
        # The states of squares are so large that compiling takes seconds.
        return super().is_wide(row) and not isinstance(self.problem.accumulator, ExactSquares)

    def tiling_of(self, split: int, outputs: int) -> Tiling:
        tiling = super().tiling_of(split, outputs)
        return self.in_row(replace(tiling, loads=tiling.loads + tiling.width * split))


@dataclass(frozen=True)
class ExactPoolDirect(PoolDirect):
    """Any layout and any window; one module writes outputs, and partials of splits of windows."""

    variants: ClassVar = {"pool_direct": PoolDirect.variants["pool_direct"]}
    vectors: ClassVar = False

    def tiling_of(self, size: Sequence[int], *, vectors: bool = False) -> Tiling:
        tiling, (depth, height, _) = super().tiling_of(size), map(min, size, self.most_inside)
        # Four elements choose the place of the bin.
        again = 4 + depth * (1 + height) + tiling.elements
        return Tiling(1, tiling.elements, tiling.loads // self.per_word + again)

    def fits(self, tiling: Tiling) -> bool:
        return super().fits(tiling) and tiling.elements <= _LONGEST

    def bindings(self, part: Part) -> tuple[Binding, ...]:
        return self.source_binding(part.segments[0]), self.target_binding(part, 0, "partials_base")

    def dispatch(self, part: Part) -> Dispatch:
        dispatch = super().dispatch(replace(part, partials_before=part.partials_before or 0))
        if part.partials_before is not None:
            return dispatch
        # The whole window is one split.
        constants = self.constants(part, segmented=True, **self.counted_constants)
        push = Values(**{**dispatch.push, "partials_base": self.target_base(part, 0)})
        shader, loads = self.shader_of("pool_direct", constants), self.loads(part, self.in_place)
        return replace(dispatch, shader=shader, push=push, bindings=self.bindings(part), loads=loads)

    def shader_of(self, variant: str, constants: Mapping[str, int]) -> Shader:
        return super().shader_of("pool_direct" if variant == "pool_direct_splits" else variant, constants)


@dataclass(frozen=True)
class ExactPoolSmall(PoolSmall):
    """exact_pool_small.comp: windows so small that loops over them are unrolled."""

    why_separable: ClassVar = ""
    state_registers: ClassVar = 4

    def loads_of(self, tile: Tile) -> int:
        size = depth, height, _ = self.windows.fields["window_size"]
        # Eight elements choose the place of the bins.
        again = 9 + tile.height * tile.width * (2 + depth * (1 + height) + math.prod(size))
        return super().loads_of(tile) + again

    @cached_property
    def direct(self) -> ExactPoolDirect:
        return ExactPoolDirect(self.problem, self.limits)

    def bindings(self, part: Part) -> tuple[Binding, ...]:
        return self.source_binding(part.segments[0]), self.target_binding(part, 0, "values_base")
