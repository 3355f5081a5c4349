"""reduce.comp: one invocation per output, element by element, over axes in any layout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dmlgpu.lowering.kernels.axes import AxesKernel
from dmlgpu.lowering.kernels.cut import Part, Tiling
from dmlgpu.lowering.kernels.kernel import shader_of
from dmlgpu.lowering.plan import Shader


@dataclass(frozen=True)
class Reduce(AxesKernel):
    """Over axes: any layout, or elements in several segments."""

    name: ClassVar = "reduce"
    variants: ClassVar = {
        "reduce": "one invocation per output, element by element: any layout, or several segments",
    }

    @property
    def least_split(self) -> int:
        return self.limits.least_loads

    def tiling_of(self, split: int, outputs: int) -> Tiling:
        # A split may begin anywhere along the innermost dimension, in each invocation at another element.
        innermost = min(self.axes.reduced[-1].size, split)
        begins = (split + innermost - 2) // innermost + 1 if len(self.axes.reduced) > 1 else 1
        accumulator, rank = self.problem.accumulator, len(self.axes.reduced)
        loads = begins * (rank + innermost * accumulator.loads()) + self.address_loads
        return Tiling(1, split, loads)

    def shader(self, part: Part) -> Shader:
        constants = self.constants(part, segmented=not part.whole, flat=len(self.axes.kept) <= 1)
        return shader_of("reduce", self.problem, constants)
