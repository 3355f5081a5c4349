"""rows.comp: one invocation an output, whose elements follow each other and are read in blocks of 16 bytes.

lavapipe (Mesa 22.3) with 2 cores, float32, 4096 x 1024: 3 ms; with one scalar load an element 22.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dmlgpu.lowering.kernels.kernel import Target, shader_of
from dmlgpu.lowering.kernels.reduce import AxesConstants, AxesPiece, Reduce
from dmlgpu.lowering.plan import Shader

# Blocks for which it does better to look at every element.
_SHORT = 16


@dataclass(frozen=True)
class RowsConstants(AxesConstants):
    """Those of rows.comp."""

    short: bool = False


@dataclass(frozen=True)
class Rows(Reduce):
    """Over axes, where an output's elements follow each other."""

    name: ClassVar = "rows"
    variants: ClassVar = {
        "rows": "one invocation an output: its elements follow each other, and are read in blocks of 16 bytes",
    }

    @property
    def obstacle(self) -> str:
        if len(self.reduced) > 1 or self.reduced[0].stride != 1:
            return "the elements of an output do not follow each other"
        if self.count < self.block:
            return f"an output has {self.count} elements, less than a block of {self.block}"
        return ""

    def iterations(self, stretch_size: int) -> int:
        own = self.own_iterations(stretch_size)
        # What lies in several segments takes reduce.comp.
        return own if len(self.limits.segments(self.source)) == 1 else max(own, super().iterations(stretch_size))

    def own_iterations(self, stretch_size: int) -> int:
        """Loop iterations of this kernel for an output."""
        return 8 + stretch_size // self.block

    def shader(self, begin: int, end: int, piece: AxesPiece, target: Target) -> Shader:
        if not piece.whole:
            return super().shader(begin, end, piece, target)
        return shader_of(self.name, self.problem, self.own_constants(piece, target))

    def own_constants(self, piece: AxesPiece, target: Target) -> AxesConstants:
        """The constants of this kernel for a piece in one segment."""
        return self.constants(
            RowsConstants,
            target,
            aligned=self.is_aligned(piece.begin, piece.end, *(dim.stride for dim in self.kept)),
            flat=len(self.kept) <= 1,
            short=self.stretch_size <= _SHORT * self.block,
        )
