"""Sums of floats that are rounded once (exact.glsl), by separate shaders that are planned like other kernels.

Cumulative sums have no separate shaders (kernels/scan.py).

If a bin missed an element, a shader adds all elements of the output again, one by one; these loads count, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from dmlgpu.descriptors.tensor import MAX_ELEMENTS
from dmlgpu.lowering.accumulators import ExactSquares
from dmlgpu.lowering.kernels.axes import Columns, Reduce, Rows
from dmlgpu.lowering.kernels.cut import Part, Tiling
from dmlgpu.lowering.kernels.pool_direct import PoolDirect
from dmlgpu.lowering.kernels.pool_small import PoolSmall, Tile
from dmlgpu.lowering.plan import Binding, Dispatch, Shader, Values

# Maximum of elements per split: a bin holds them without overflow, and the second pass over them is short.
_LONGEST = 1 << 10
# The same for bins with one more digit.
_LONGEST_WIDE = 1 << 17
# Maximum of columns per piece of a window, and of rows of a window that are all added for each output (`subtracts`).
_PIECE, _HIGH = 32, 16


@dataclass(frozen=True)
class ExactReduce(Reduce):
    """Over axes: any layout, or elements in several segments."""

    longest_split: ClassVar = _LONGEST

    def tiling_of(self, split: int, outputs: int) -> Tiling:
        tiling = super().tiling_of(split, outputs)
        # Four more elements are loaded, to choose the exponents that the bin holds.
        return replace(tiling, loads=tiling.loads + (4 + split) * (1 + len(self.axes.reduced)))


@dataclass(frozen=True)
class ExactRows(Rows):
    """Over axes, if an output's elements are contiguous.

    On lavapipe (Mesa 25) reduce takes 1.2 to 1.4 times as long, and several invocations per row 1.7 times as long.
    """

    longest_split: ClassVar = _LONGEST
    fallback: ClassVar = ExactReduce

    def tiling_of(self, split: int, outputs: int) -> Tiling:
        tiling = super().tiling_of(split, outputs)
        return replace(tiling, loads=tiling.loads + split)

    def reading(self, *, aligned: bool) -> dict[str, int]:
        return {}


@dataclass(frozen=True)
class ExactColumns(Columns):
    """Over axes, if neighbouring outputs have neighbouring elements.

    On lavapipe (Mesa 25) reduce takes 1.25 times as long.
    """

    longest_split: ClassVar = _LONGEST
    fallback: ClassVar = ExactReduce

    @cached_property
    def output_columns(self) -> int:
        return 1

    def inexact_constants(self, part: Part) -> dict[str, int]:
        return {}

    @property
    def most_vectors(self) -> int:
        # With elements of 32 bits two are as fast as four, and compile in half the time. The states of squares are so
        # large that two would compile for seconds.
        return 1 if isinstance(self.problem.accumulator, ExactSquares) else 2

    def tiling_of(self, split: int, outputs: int) -> Tiling:
        tiling = super().tiling_of(split, outputs)
        return self.in_row(replace(tiling, loads=tiling.loads + tiling.width * split))


@dataclass(frozen=True)
class ExactPoolDirect(PoolDirect):
    """Any layout and any window; one module writes outputs, and partials of splits of windows."""

    variants: ClassVar = {"pool_direct": PoolDirect.variants["pool_direct"]}
    loads_vectors: ClassVar = False

    def tiling_of(self, size: Sequence[int], *, vectors: bool = False) -> Tiling:
        tiling, (depth, height, _) = super().tiling_of(size), map(min, size, self.most_inside)
        # Four more elements are loaded, to choose the exponents that the bin holds.
        again = 4 + depth * (1 + height) + tiling.elements
        return Tiling(1, tiling.elements, tiling.loads // self.per_word + again)

    def fits(self, tiling: Tiling) -> bool:
        return super().fits(tiling) and tiling.elements <= _LONGEST

    def bindings(self, part: Part) -> tuple[Binding, ...]:
        return self.source_binding(part.segments[0]), self.target_binding(part, 0, "partials_base")

    def dispatch(self, part: Part) -> Dispatch:
        dispatch = super().dispatch(replace(part, writes_outputs=False))
        if not part.writes_outputs:
            return dispatch
        # The whole window is one split.
        constants = self.constants(part, segmented=True, **self.counted_constants)
        push = Values(**{**dispatch.push, "partials_base": self.target_base(part, 0)})
        shader, loads = self.shader_of("pool_direct", constants), self.loads(part, self.without_partials)
        return replace(dispatch, shader=shader, push=push, bindings=self.bindings(part), loads=loads)

    def shader_of(self, variant: str, constants: Mapping[str, int]) -> Shader:
        return super().shader_of("pool_direct" if variant == "pool_direct_splits" else variant, constants)


@dataclass(frozen=True)
class ExactPoolSmall(PoolSmall):
    """exact_pool_small.comp: loops over pieces of windows are unrolled.

    On lavapipe (Mesa 25) pool_direct takes 9 times as long for windows of 3 x 3, and 3.5 times as long as the wide bins
    for windows of 33 x 33. With wide bins, windows of 3 x 3 and 15 x 15 take 1.5 times as long.
    """

    variants: ClassVar = {
        **PoolSmall.variants,
        "pool_small_wide": "as pool_small, for windows whose sums need one more digit",
    }
    largest_window: ClassVar = MAX_ELEMENTS
    why_separable: ClassVar = ""
    state_registers: ClassVar = 4

    @property
    def why_impossible(self) -> str:
        too_large = self.elements_of_window > _LONGEST_WIDE
        return f"the window has more than {_LONGEST_WIDE} elements" if too_large else super().why_impossible

    @property
    def elements_of_window(self) -> int:
        """Elements of a window."""
        return math.prod(self.windows.fields["window_size"])

    @cached_property
    def piece(self) -> int:
        """Columns of a piece of a window: whole vectors if there are several pieces."""
        width = self.windows.along[2].window_size
        piece = -(-width // -(-width // _PIECE))
        return piece if piece == width else -(-piece // self.vector_size) * self.vector_size

    @cached_property
    def subtracts(self) -> bool:
        """Whether rows of the input that windows leave are subtracted."""
        height = self.windows.along[1]
        rows, stride, dilation = height.window_size, height.stride, height.dilation
        return stride % dilation == 0 and 2 * stride < rows * dilation and rows > _HIGH

    def _tile_of(self, width: int) -> Tile:
        tile, along = super()._tile_of(width), self.windows.along
        tile = replace(tile, span=along[2]._replace(window_size=self.piece).span(width))
        return replace(tile, ring_rows=1, fresh=1, held_rows=along[1].window_size) if self.subtracts else tile

    def loads_of(self, tile: Tile) -> int:
        depth, height, width = self.windows.fields["window_size"]
        # Eight more elements are loaded, to choose the exponents that bins hold.
        rows = self.rows_of(tile) if self.subtracts else tile.height * height
        again = 9 + tile.width * (tile.height * (4 + 2 * depth) + rows * depth * (1 + width))
        loops = tile.iterations * (1 + tile.fresh * (1 + depth))
        return loops + self.rows_of(tile) * depth * (1 + -(-width // self.piece)) + again

    def rows_of(self, tile: Tile) -> int:
        _, height, _ = self.windows.along
        fresh = height.stride // height.dilation
        return height.window_size + 2 * fresh * (tile.height - 1) if self.subtracts else super().rows_of(tile)

    def shader(self, part: Part) -> Shader:
        shader, width = super().shader(part), self.windows.along[2].window_size
        constants = {"window_width": self.piece, "whole_width": width, "subtracts": self.subtracts}
        wide = self.source.data_type.bits == 32 and self.elements_of_window > _LONGEST
        variant = "pool_small_wide" if wide else shader.variant
        return replace(shader, variant=variant, constants=Values(**{**shader.constants, **constants}))

    @cached_property
    def direct(self) -> ExactPoolDirect:
        return ExactPoolDirect(self.problem, self.limits)

    def bindings(self, part: Part) -> tuple[Binding, ...]:
        return self.source_binding(part.segments[0]), self.target_binding(part, 0, "values_base")
