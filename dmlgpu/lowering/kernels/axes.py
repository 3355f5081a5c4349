"""Kernels over axes, which split the elements of an output among invocations."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from dmlgpu.descriptors.tensor import MAX_ELEMENTS
from dmlgpu.lowering.geometry import address_span, ascend, power_of_2
from dmlgpu.lowering.kernels.cut import Extent, Part, PartKernel, Rules, Tiling
from dmlgpu.lowering.kernels.kernel import by_base, dimensions, shader_of
from dmlgpu.lowering.limits import IN_FLIGHT
from dmlgpu.lowering.plan import Dispatch, Shader, Values
from dmlgpu.lowering.problem import Axes, Result

# A part of a row of outputs begins at a multiple of this, and has at least this many.
_ROW_PART = 64
# On a CPU driver the invocations of a SIMD vector read neighbouring splits, if there is one output. If these begin a
# multiple of _ALIASED vectors (64 KiB) apart, they get _APART vectors more: ARGMAX of 2^24 elements then takes 12 %
# less time.
_ALIASED, _APART = 4096, 64


@dataclass(frozen=True)
class AxesKernel(PartKernel):
    """A kernel over axes. An item is a split, a range of elements, of an output or of several adjacent outputs."""

    @abstractmethod
    def tiling_of(self, split: int, outputs: int) -> Tiling:
        """The tiling of `outputs` outputs, in splits of `split` elements."""

    @property
    @abstractmethod
    def least_split(self) -> int:
        """Minimum of elements per split if outputs are too few for all invocations."""

    longest_split: ClassVar[int] = 1 << 32
    """Maximum of elements per split, a multiple of a vector."""
    fallback: ClassVar[type[AxesKernel]]
    """The kernel for parts that others cannot compute."""

    @abstractmethod
    def shader(self, part: Part) -> Shader:
        """The shader of a part."""

    @property
    def fallbacks(self) -> tuple[AxesKernel, ...]:
        return ()

    @cached_property
    def axes(self) -> Axes:
        assert isinstance(self.problem.domain, Axes)
        return self.problem.domain

    @cached_property
    def element_count(self) -> int:
        return self.axes.element_count

    @property
    def row_length(self) -> int:
        """Outputs along the last kept dimension."""
        return self.axes.kept[-1].size if self.axes.kept else 1

    @property
    def address_loads(self) -> int:
        """Loads that computing an item's address counts as: one per kept dimension if there is a loop over these."""
        return len(self.axes.kept) if len(self.axes.kept) > 1 else 0

    @cached_property
    def elements(self) -> int:
        # If the addresses of an output's elements do not ascend, every segment's dispatch loops over all of them.
        loops = 1 if ascend(self.axes.reduced) else self.problem.sources[0].segment_count
        return self.problem.output_count * self.element_count * loops

    # How a problem is divided into parts

    @cached_property
    def rules(self) -> Rules:
        outputs = self.problem.outputs
        # combine.comp writes words of states, indices that do not count from 0, outputs that are not packed, and
        # outputs that were split.
        has_words = len(outputs) > 1 and not self.problem.accumulator.has_index
        shifted = self.axes.index_step and any(output.result is Result.INDEX for output in outputs)
        tilings, split_size = self.tilings, self.split_size
        is_split = split_size < self.element_count or self.output_columns > 1
        without_partials = self.problem.has_packed_outputs and not (has_words or shifted or is_split)
        most_outputs = max(min(self._most_outputs(tilings), self._outputs_at_once), 1)
        row, step, boundary = tilings[0].row, 1, MAX_ELEMENTS
        if row != MAX_ELEMENTS:
            # Whole rows, or a part of one.
            step, boundary = (row, MAX_ELEMENTS) if row <= most_outputs else (_ROW_PART, row)
        most_outputs = most_outputs // step * step or most_outputs
        without = most_outputs if without_partials else 0
        return Rules(without, most_outputs, tilings, split_size, ascend(self.axes.kept), step, boundary)

    def _most_outputs(self, tilings: Sequence[Tiling]) -> int:
        """Maximum of outputs per dispatch, with one split each; 0 if a split is too long."""
        return min([tiling.most_outputs(self.limits) for tiling in tilings])

    @property
    def split_size(self) -> int:
        """Elements of a split: all of an output, or fewer if outputs are too few for all invocations."""
        return self.tilings[0].elements

    @cached_property
    def tilings(self) -> tuple[Tiling, ...]:
        """The tilings of this kernel and of its fallbacks, with a split of each output."""
        split = self.element_count
        if self.element_count > 2 * self.least_split:
            # A dispatch has as many splits as keep the device busy.
            outputs = min(self.problem.output_count, self._outputs_at_once)
            elements = min(self.element_count, self.limits.dispatch_elements // outputs)
            whole = self.tiling_of(self.element_count, self.problem.output_count)
            invocations = outputs * whole.threads // whole.width  # with one split of each output
            busy = -(-elements * invocations // self.limits.busy_invocations)
            # Partials must fit in their memory: an output may have `per_split` for each split.
            per_split = self.problem.sources[0].segment_count * self.output_columns
            fitting = -(-self.element_count * per_split // max(self.most_partials, 1))
            split = max(self.least_split, busy, fitting)
            alone = self.problem.output_count == 1 and not self.limits.cooperating
            if alone and split % (_ALIASED * self.vector_size) == 0:
                split += _APART * self.vector_size
        # A split is a multiple of a vector: if the first begins with a vector, all do.
        step = max(self.vector_size, self.output_columns)
        split = min(-(-split // step) * step, self.longest_split)
        tilings = self._tilings_of(split)
        while split > step and self._most_outputs(tilings) == 0:
            split = -(-split // (2 * step)) * step
            tilings = self._tilings_of(split)
        return tilings

    def _tilings_of(self, split: int) -> tuple[Tiling, ...]:
        split, outputs = min(self.element_count, split), self.problem.output_count
        return tuple([kernel.tiling_of(split, outputs) for kernel in (self, *self.fallbacks)])

    @property
    def _outputs_at_once(self) -> int:
        """How many outputs together have at most `Limits.dispatch_elements` elements in a segment; at least _ROW_PART.

        If _ROW_PART outputs have more elements, these are divided among several dispatches.
        """
        outer, elements = self.axes.reduced[0], self.element_count
        if outer.stride > 0:
            groups = self.problem.sources[0].segment_size // outer.stride + 1
            elements = min(elements, groups * (self.element_count // outer.size))
        return max(self.limits.dispatch_elements // elements, _ROW_PART)

    def extents(self, outputs: range) -> tuple[Extent, ...]:
        # A step is a coordinate along the outermost reduced dimension.
        outer, *inner = self.axes.reduced
        low, high = address_span(self.axes.kept, outputs.start, outputs.stop)
        return (
            Extent(
                lowest=low,
                highest=high,
                steps=range(outer.size),
                dims=self.axes.reduced,
                first_begin=low,
                last_end=high + sum((dim.size - 1) * dim.stride for dim in inner),
                stride=outer.stride,
                step_elements=self.element_count // outer.size,
            ),
        )

    # Dispatches

    def dispatch(self, part: Part) -> Dispatch:
        (segment,), outputs, elements = part.segments, part.outputs, part.elements
        numbers = by_base(self.problem, range(len(self.problem.outputs)))
        push = Values(
            **dimensions(self.axes.kept + self.axes.reduced),
            kept_rank=len(self.axes.kept),
            reduced_rank=len(self.axes.reduced),
            reduced_begin=elements.start,
            reduced_end=elements.stop,
            split_size=part.split_size,
            first_output=outputs.start,
            output_count=len(outputs),
            element_count=self.element_count,
            **self.source_push(segment),
            **{base: self.target_base(part, number) for base, number in numbers.items()},
        )
        targets = (self.target_binding(part, number, base) for base, number in numbers.items())
        loads = self.loads(part, self.tiling_of(min(part.split_size, len(elements)), len(outputs)))
        return Dispatch(self.shader(part), push, (self.source_binding(segment), *targets), loads, outputs)


@dataclass(frozen=True)
class Reduce(AxesKernel):
    """reduce.comp: one invocation per output, element by element, in any layout, or in several segments."""

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


# Rows of up to this many vectors are short: comparing every element is faster than extremes.glsl. For rows that are not
# aligned it always is, if `Limits.loads_vectors`.
_SHORT = 16
# Maximum of threads per row if rows suffice for all invocations: together they load 128 bytes.
_ROW_THREADS = 8


@dataclass(frozen=True)
class Rows(AxesKernel):
    """rows.comp, rows_cooperating.comp: an output's elements are contiguous, in vectors of 16 bytes.

    On a CPU driver an invocation computes an output; on lavapipe (Mesa 22.3) one load per element takes seven times as
    long. On a GPU several share an output, as in ggml, MLX and CUB: neighbouring threads load neighbouring vectors,
    which on lavapipe (Mesa 25) takes 1.9 times as long. AMD's compiler has one load in flight in rows.comp, and four in
    rows_cooperating.comp.
    """

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
        return min(most, max(_ROW_THREADS, power_of_2(self.limits.busy_invocations // self.problem.output_count)))

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
    def fallbacks(self) -> tuple[AxesKernel, ...]:
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
        aligned_inside = self.limits.loads_vectors and not aligned
        short = aligned_inside or self.split_size <= _SHORT * self.vector_size
        return {"aligned_inside": aligned_inside, "short": short}


# Maximum of elements of a column: their numbers fit in 16 bits of a word, below a key of 16 bits (packed.glsl).
_LONGEST_SPLIT = 1 << 16
# Maximum of columns per invocation: registers hold no more states.
_COLUMNS = 16
# Maximum of words of a short state. If states are longer, an item has half as many columns: with all it would take 1.0
# to 1.2 times as long, and twice as long at first (Mesa 22.3 and 25). No output then has several columns, because these
# would compile for a second (Mesa 25).
_SHORT_STATE = 4
# Outputs with fewer elements take 1.1 to 1.3 times as long if a loop stores the columns of an item. With more elements
# the loop costs nothing, and compiles in a half to a quarter of the time (FLOAT16, Mesa 25: 0.1 s, not 0.4).
_FEW_ELEMENTS = 8
# Outputs have several columns only if all together, or 2 * vector_size of them if there are more, have this many times
# `Limits.least_loads` elements. With fewer, partials cost more than they save (Mesa 25, 8 to 64 bits).
_SEVERAL_COLUMNS = 32
# Minimum of columns of an item if outputs have several: SwiftShader loads four columns more slowly than elements one by
# one.
_WIDE = 8
# Maximum of threads per item, so that 4 or more neighbours load 64 bytes or more of a row.
_COLUMN_THREADS = 16


@dataclass(frozen=True)
class Columns(AxesKernel):
    """columns.comp, columns_cooperating.comp: elements of neighbouring outputs are adjacent, in vectors of 16 bytes.

    On a CPU driver an invocation loads two to four vectors of each row, for 32-bit elements a cache line of 64 bytes:
    the loads of neighbouring invocations then wait for memory together. On lavapipe (Mesa 22.3) with one core, single
    vectors take four times as long. Rows of few outputs, as the channels of an image (H, W, C), have several columns of
    each output. On a GPU several invocations share the rows of a vector, and each loads four rows at a time, which on
    lavapipe (Mesa 25) takes 1.2 to 1.3 times as long. AMD's GPUs run 10 waves of columns_cooperating.comp for ARGMAX,
    and 8 for SUM. They would run 8 and 5 of columns.comp, which holds the states of four vectors.
    """

    name: ClassVar = "columns"
    variants: ClassVar = {
        "columns": "one invocation per 1 to 4 vectors of neighbouring outputs, whose elements are adjacent",
        "columns_cooperating": "several invocations per vector of neighbouring outputs, as suits a GPU",
    }

    longest_split: ClassVar = _LONGEST_SPLIT
    fallback: ClassVar = Reduce

    @property
    def why_impossible(self) -> str:
        if len(self.axes.reduced) > 1:
            return "the elements of an output have several strides"
        if self.element_count == 1:
            return "an output has one element"
        if not self.axes.kept or self.axes.kept[-1].stride != 1:
            return "the elements of neighbouring outputs are not adjacent"
        if self.row_length * self.output_columns < self.vector_size:
            return f"a row has {self.row_length} outputs, fewer than a vector of {self.vector_size}"
        return ""

    @property
    def most_vectors(self) -> int:
        """Maximum of vectors of an item."""
        short = self.problem.accumulator.state_words(self.source.data_type) <= _SHORT_STATE
        return max(1, min(4, (_COLUMNS if short else _COLUMNS // 2) // self.vector_size))

    @cached_property
    def output_columns(self) -> int:
        """Columns of an output: element i is in column i % output_columns, so that items fill short rows."""
        row, columns = self.row_length, self.vector_size * (self.most_vectors if self.limits.unrolls else 1)
        if self.limits.cooperating or row >= columns or columns < _WIDE or row % self.vector_size == 0:
            return 1
        if self.problem.accumulator.state_words(self.source.data_type) > _SHORT_STATE:
            return 1
        elements = self.element_count * min(self.problem.output_count, 2 * self.vector_size)
        few = elements < _SEVERAL_COLUMNS * self.limits.least_loads or self.element_count < columns
        return 1 if few or self.axes.reduced[0].stride != row else columns // math.gcd(columns, row)

    def vectors(self, row: int) -> int:
        """Vectors of an item, in rows of `row` columns."""
        if self.limits.cooperating or not self.limits.unrolls:
            return 1
        # If a row is not a multiple of the width, its last vectors are computed twice, little work in a long row.
        width = self.most_vectors * self.vector_size
        return self.most_vectors if row >= 4 * width or row % width == 0 else 1

    @cached_property
    def threads(self) -> int:
        """Invocations that share an item."""
        vectors = max(1, self.problem.output_count // self.vector_size)
        idle = power_of_2(self.limits.busy_invocations // vectors)
        return min(idle, power_of_2(self.element_count // IN_FLIGHT), _COLUMN_THREADS, self.limits.most_threads)

    @property
    def least_split(self) -> int:
        vectors = self.vectors(self.row_length * self.output_columns)
        return self.limits.least_loads // vectors * self.threads * self.output_columns

    def tiling_of(self, split: int, outputs: int) -> Tiling:
        row = min(self.row_length, outputs)
        columns = self.vectors(row * self.output_columns) * self.vector_size
        accumulator = self.problem.accumulator
        loads = -(-split // self.output_columns) * accumulator.loads(columns)
        if self.limits.cooperating:
            # Other compilers may leave loops over elements that a GPU's compiler unrolls.
            loads = -(-split // (IN_FLIGHT * self.threads)) * IN_FLIGHT * columns * accumulator.loads()
        return self.in_row(Tiling(columns // self.output_columns, split, loads, self.threads, row=row))

    def in_row(self, tiling: Tiling) -> Tiling:
        """The tiling; with single vectors if a dispatch has only a part of a row, which may be one vector."""
        if self.output_columns > 1 or tiling.most_outputs(self.limits) >= tiling.row:
            return tiling
        return replace(tiling, width=self.vector_size)

    def why_not(self, part: Part) -> str:
        begin, end, row = part.outputs.start, part.outputs.stop, self.row_length
        whole_rows, columns = begin % row == end % row == 0, self.output_columns
        if not whole_rows and (columns > 1 or begin // row != (end - 1) // row or end - begin < self.vector_size):
            return "the outputs are neither whole rows nor a vector of a row"
        if len(part.elements) < columns:
            return "the segment has fewer elements of an output than an output has columns"
        return "" if part.whole else "some elements lie in another segment"

    @cached_property
    def fallbacks(self) -> tuple[AxesKernel, ...]:
        return (self.fallback(self.problem, self.limits),)

    def shader(self, part: Part) -> Shader:
        begin, rows = part.outputs.start % self.row_length, (dim.stride for dim in self.axes.kept[:-1])
        width, stride = min(self.row_length, len(part.outputs)), self.axes.reduced[0].stride
        steps = begin, width, stride
        if self.output_columns > 1:
            steps = stride * part.elements.start, stride * part.elements.stop, stride * self.output_columns
        constants = self.constants(
            part,
            aligned=self.is_aligned(*steps, *rows),
            flat=len(self.axes.kept) <= 2,
            item_vectors=self.vectors(width * self.output_columns),
        )
        variant = "columns"
        if self.limits.cooperating:
            variant, constants = "columns_cooperating", {**constants, "threads": self.threads}
        return shader_of(variant, self.problem, {**constants, **self.inexact_constants(part)})

    def inexact_constants(self, part: Part) -> dict[str, int]:
        """The constants that shaders of exact sums lack."""
        constants: dict[str, int] = {"output_columns": self.output_columns}
        if not self.limits.cooperating:
            constants["few_elements"] = part.writes_outputs and self.element_count < _FEW_ELEMENTS
        return constants
