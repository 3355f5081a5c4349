"""lanes.comp: as rows.comp for GPUs: several invocations an output, lane next to lane.

On a CPU driver barriers make it ten times as slow as rows. On a GPU it is not measured: neighbouring lanes read
neighbouring blocks, as ggml, MLX and CUB have them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from dmlgpu.lowering.kernels.kernel import Target
from dmlgpu.lowering.kernels.reduce import AxesConstants, AxesPiece
from dmlgpu.lowering.kernels.rows import Rows


@dataclass(frozen=True)
class LanesConstants(AxesConstants):
    """Those of lanes.comp."""

    lanes: int = 1


@dataclass(frozen=True)
class Lanes(Rows):
    """Over axes, where an output's elements follow each other, and neighbouring invocations do best with neighbours."""

    name: ClassVar = "lanes"
    variants: ClassVar = {
        "lanes": "several invocations an output, as suits a GPU: its elements follow each other, lane next to lane",
    }

    @property
    def drawback(self) -> str:
        return "" if self.limits.cooperating else "invocations of this device do best to read for themselves"

    @cached_property
    def invocations_per_output(self) -> int:
        # A power of 2 that divides a group; each has a block at least.
        most = self.count // self.block
        return min(1 << (most.bit_length() - 1), self.limits.group_size & -self.limits.group_size)

    def own_iterations(self, stretch_size: int) -> int:
        return 16 + stretch_size // (self.block * self.invocations_per_output)

    def own_constants(self, piece: AxesPiece, target: Target) -> AxesConstants:
        return self.constants(
            LanesConstants,
            target,
            aligned=self.is_aligned(piece.begin, piece.end, *(dim.stride for dim in self.kept)),
            flat=len(self.kept) <= 1,
            lanes=self.invocations_per_output,
        )
