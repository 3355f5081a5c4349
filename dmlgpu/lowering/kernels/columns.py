"""columns.comp: one invocation a block of neighbouring outputs, whose elements stand side by side.

lavapipe (Mesa 22.3) with 2 cores, float32, first axis of 4096 x 1024: 10 ms; one output an invocation 19.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from dmlgpu.lowering.kernels.kernel import GRANULE, Target, shader_of
from dmlgpu.lowering.kernels.reduce import AxesConstants, AxesPiece, Reduce
from dmlgpu.lowering.plan import Shader

# Elements of a column whose numbers fit below a key of 16 bits (packed.glsl); they are whole blocks.
_PACKED = 1 << 16


@dataclass(frozen=True)
class Columns(Reduce):
    """Over axes, where neighbouring outputs read neighbouring elements."""

    name: ClassVar = "columns"
    variants: ClassVar = {
        "columns": "one invocation a block of neighbouring outputs: their elements stand side by side",
    }

    @property
    def obstacle(self) -> str:
        if len(self.reduced) > 1:
            return "the elements of an output stand at several strides"
        if self.count == 1:
            return "an output has one element"
        if not self.kept or self.kept[-1].stride != 1:
            return "the elements of neighbouring outputs do not stand side by side"
        if self.row < self.block:
            return f"a row has {self.row} outputs, less than a block of {self.block}"
        return ""

    @property
    def outputs_per_item(self) -> int:
        return self.block

    @property
    def unit(self) -> int:
        # Whole rows of outputs, or a part of one.
        return self.row if self.row <= self.most_recorded else GRANULE

    @cached_property
    def stretch_size(self) -> int:
        return min(super().stretch_size, _PACKED)

    def iterations(self, stretch_size: int) -> int:
        # Parts of rows of outputs and what lies in several segments may take reduce.comp.
        return max(8 + stretch_size, super().iterations(stretch_size))

    def dispatch_end(self, begin: int) -> int:
        end = super().dispatch_end(begin)
        return end if self.unit == self.row else min(end, (begin // self.row + 1) * self.row)

    def shader(self, begin: int, end: int, piece: AxesPiece, target: Target) -> Shader:
        whole_rows = begin % self.row == end % self.row == 0
        part_of_a_row = begin // self.row == (end - 1) // self.row and end - begin >= self.block
        if not piece.whole or not (whole_rows or part_of_a_row):
            return super().shader(begin, end, piece, target)
        width, rows = min(self.row, end - begin), (dim.stride for dim in self.kept[:-1])
        constants = self.constants(
            AxesConstants,
            target,
            aligned=self.is_aligned(begin % self.row, width, self.reduced[0].stride, *rows),
            flat=len(self.kept) <= 2,
        )
        return shader_of("columns", self.problem, constants)
