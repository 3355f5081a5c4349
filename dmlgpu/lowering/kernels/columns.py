"""columns.comp: over axes, if the elements of neighbouring outputs are adjacent, in vectors of 16 bytes.

On a CPU driver an invocation loads two to four vectors of each row, for 32-bit elements a cache line of 64 bytes: the
loads of neighbouring invocations then wait for memory together. On lavapipe (Mesa 22.3) with one core, single vectors
take four times as long. On a GPU several invocations share the rows of a vector, and each loads four rows at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from dmlgpu.lowering.geometry import power_of_2
from dmlgpu.lowering.kernels.axes import AxesKernel
from dmlgpu.lowering.kernels.cut import Part, Tiling
from dmlgpu.lowering.kernels.kernel import shader_of
from dmlgpu.lowering.kernels.reduce import Reduce
from dmlgpu.lowering.limits import IN_FLIGHT
from dmlgpu.lowering.plan import Shader

# Maximum of elements of a column whose numbers fit below a key of 16 bits (packed.glsl): whole vectors.
_PACKED = 1 << 16
# Maximum of columns per invocation: registers hold no more states.
_COLUMNS = 16
# Maximum of threads per item, so that 4 or more neighbours load 64 bytes or more of a row.
_THREADS = 16


@dataclass(frozen=True)
class Columns(AxesKernel):
    """Over axes, if neighbouring outputs have neighbouring elements."""

    name: ClassVar = "columns"
    variants: ClassVar = {
        "columns": "one invocation per 1 to 4 vectors of neighbouring outputs, whose elements are adjacent",
        "columns_cooperating": "several invocations per vector of neighbouring outputs, as suits a GPU",
    }

    longest_split: ClassVar = _PACKED
    most_vectors: ClassVar = 4
    fallback: ClassVar = Reduce

    @property
    def why_impossible(self) -> str:
        if len(self.axes.reduced) > 1:
            return "the elements of an output have several strides"
        if self.element_count == 1:
            return "an output has one element"
        if not self.axes.kept or self.axes.kept[-1].stride != 1:
            return "the elements of neighbouring outputs are not adjacent"
        if self.row_length < self.vector_size:
            return f"a row has {self.row_length} outputs, fewer than a vector of {self.vector_size}"
        return ""

    def is_wide(self, row: int) -> bool:
        """Whether several vectors per invocation are faster, for rows of this many outputs."""
        if self.limits.cooperating or not self.limits.unrolls or self.wide == self.vector_size:
            return False
        # If a row is not a multiple of the width, its last vectors are computed twice, little work in a long row.
        return row >= 4 * self.wide or row % self.wide == 0

    @property
    def wide(self) -> int:
        """Outputs of an invocation with several vectors."""
        return min(self.most_vectors * self.vector_size, _COLUMNS)

    @cached_property
    def threads(self) -> int:
        """Invocations that share an item."""
        vectors = max(1, self.problem.output_count // self.vector_size)
        idle = power_of_2(self.limits.busy_invocations // vectors)
        return min(idle, power_of_2(self.element_count // IN_FLIGHT), _THREADS, self.limits.most_threads)

    @property
    def least_split(self) -> int:
        return self.limits.least_loads * self.vector_size // self._columns(self.row_length) * self.threads

    def _columns(self, row: int) -> int:
        """Outputs of an item, in rows of `row` outputs."""
        return self.wide if self.is_wide(row) else self.vector_size

    def tiling_of(self, split: int, outputs: int) -> Tiling:
        row = min(self.row_length, outputs)
        columns, accumulator = self._columns(row), self.problem.accumulator
        loads = split * accumulator.loads(columns)
        if self.limits.cooperating:
            # Other compilers may leave loops over elements that a GPU's compiler unrolls.
            loads = -(-split // (IN_FLIGHT * self.threads)) * IN_FLIGHT * columns * accumulator.loads()
        return self.in_row(Tiling(columns, split, loads, self.threads, row=row))

    def in_row(self, tiling: Tiling) -> Tiling:
        """The tiling; with single vectors if a dispatch has only a part of a row, which may be so short."""
        return tiling if tiling.most_outputs(self.limits) >= tiling.row else replace(tiling, width=self.vector_size)

    def why_not(self, part: Part) -> str:
        begin, end, row = part.outputs.start, part.outputs.stop, self.row_length
        whole_rows = begin % row == end % row == 0
        if not whole_rows and (begin // row != (end - 1) // row or end - begin < self.vector_size):
            return "the outputs are neither whole rows nor a vector of a row"
        return "" if part.whole else "some elements lie in another segment"

    @cached_property
    def others(self) -> tuple[AxesKernel, ...]:
        return (self.fallback(self.problem, self.limits),)

    def shader(self, part: Part) -> Shader:
        begin, rows = part.outputs.start % self.row_length, (dim.stride for dim in self.axes.kept[:-1])
        width = min(self.row_length, len(part.outputs))
        constants = self.constants(
            part,
            aligned=self.is_aligned(begin, width, self.axes.reduced[0].stride, *rows),
            flat=len(self.axes.kept) <= 2,
            vectors=self._columns(width) // self.vector_size,
        )
        if self.limits.cooperating:
            return shader_of("columns_cooperating", self.problem, {**constants, "threads": self.threads})
        return shader_of("columns", self.problem, constants)
