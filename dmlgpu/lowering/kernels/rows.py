"""rows.comp: over axes, if an output's elements are contiguous, in vectors of 16 bytes.

On a CPU driver an invocation computes an output; on lavapipe (Mesa 22.3) one load per element takes seven times as
long. On a GPU several share an output, as in ggml, MLX and CUB: neighbouring threads load neighbouring vectors, which
on a CPU driver takes ten times as long.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from dmlgpu.lowering.geometry import power_of_2
from dmlgpu.lowering.kernels.axes import AxesKernel
from dmlgpu.lowering.kernels.cut import Part, Tiling
from dmlgpu.lowering.kernels.kernel import shader_of
from dmlgpu.lowering.kernels.reduce import Reduce
from dmlgpu.lowering.limits import IN_FLIGHT
from dmlgpu.lowering.plan import Shader

# For up to so many vectors, or rows that begin anywhere, it is faster to compare every element (SHORT).
_SHORT = 16
# Maximum of threads per row if rows suffice for all invocations: together they load 128 bytes.
_THREADS = 8


@dataclass(frozen=True)
class Rows(AxesKernel):
    """Over axes, if an output's elements are contiguous."""

    name: ClassVar = "rows"
    variants: ClassVar = {
        "rows": "one invocation per output, whose elements are contiguous: they are read in vectors of 16 bytes",
        "rows_cooperating": "several invocations per output, whose elements are contiguous, as suits a GPU",
    }
    fallback: ClassVar = Reduce

    @property
    def why_impossible(self) -> str:
        if len(self.axes.reduced) > 1 or self.axes.reduced[0].stride != 1:
            return "the elements of an output are not contiguous"
        if self.element_count < self.vector_size:
            return f"an output has {self.element_count} elements, fewer than a vector of {self.vector_size}"
        return ""

    @cached_property
    def threads(self) -> int:
        """Invocations that share a row."""
        # Each thread loads IN_FLIGHT vectors, unless the row is short.
        most = min(power_of_2(self.element_count // (IN_FLIGHT * self.vector_size)), self.limits.most_threads)
        return min(most, max(_THREADS, power_of_2(self.limits.busy_invocations // self.problem.output_count)))

    @property
    def least_split(self) -> int:
        return self.limits.least_loads * self.vector_size * self.threads

    def tiling_of(self, split: int, outputs: int) -> Tiling:
        accumulator = self.problem.accumulator
        loads = -(-split // self.vector_size) * accumulator.loads(self.vector_size)
        if self.limits.cooperating:
            # Other compilers may leave loops over elements that a GPU's compiler unrolls.
            at_once = IN_FLIGHT * self.vector_size
            loads = -(-split // (at_once * self.threads)) * at_once * accumulator.loads()
        return Tiling(1, split, loads + self.address_loads, self.threads)

    @cached_property
    def others(self) -> tuple[AxesKernel, ...]:
        return () if self.problem.sources[0].segment_count == 1 else (self.fallback(self.problem, self.limits),)

    def why_not(self, part: Part) -> str:
        if len(part.elements) < self.vector_size:
            return "the segment has fewer elements of an output than a vector"
        return "" if part.whole else "some elements lie in another segment"

    def shader(self, part: Part) -> Shader:
        aligned = self.is_aligned(part.elements.start, part.elements.stop, *(dim.stride for dim in self.axes.kept))
        constants = self.constants(part, aligned=aligned, flat=len(self.axes.kept) <= 1)
        if self.limits.cooperating:
            return shader_of("rows_cooperating", self.problem, {**constants, "threads": self.threads})
        return shader_of("rows", self.problem, {**constants, **self.reading(aligned=aligned)})

    def reading(self, *, aligned: bool) -> dict[str, int]:
        """The constants for how one invocation reads a row."""
        inside = self.limits.loads_vectors and not aligned
        return {"aligned_inside": inside, "short": inside or self.split_size <= _SHORT * self.vector_size}
