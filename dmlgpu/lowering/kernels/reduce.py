"""reduce.comp: one invocation an output, element by element, over axes in any layout.

The other kernels over axes are subclasses: they plan in the same way, and leave to it what they do not cover.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

from dmlgpu.lowering.geometry import Dim, address_span, segments_touched
from dmlgpu.lowering.kernels.kernel import GRANULE, Piece, RangedKernel, Target, dimensions, shader_of
from dmlgpu.lowering.plan import Constants, Dispatch, Push, Shader
from dmlgpu.lowering.problem import Axes, Result

# Elements that one iteration of the loop in reduce.comp takes.
_UNROLLED = 4


@dataclass(frozen=True)
class AxesConstants(Constants):
    """Those of axes.glsl."""

    flat: bool = False


@dataclass(frozen=True)
class LanesConstants(AxesConstants):
    """Those of kernels whose invocations may share outputs (lanes.glsl)."""

    lanes: int = 1


@dataclass(frozen=True)
class AxesPush(Push):
    """Those of axes.glsl."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    kept_rank: int
    reduced_rank: int
    reduced_begin: int
    reduced_end: int
    stretch_size: int
    first_output: int
    output_count: int
    element_count: int
    source_first: int
    source_count: int
    source_base: int
    target_base: int


@dataclass(frozen=True)
class AxesPiece(Piece):
    """Elements begin to end - 1 of each output, in stretches of `stretch_size` elements, each for one invocation."""

    begin: int
    end: int
    stretch_size: int
    whole: bool
    """Whether all of them lie in the segment, for every output."""

    @property
    def records(self) -> int:
        return -(-(self.end - self.begin) // self.stretch_size)


@dataclass(frozen=True)
class Reduce(RangedKernel):
    """Over axes: any layout, or elements in several segments."""

    name: ClassVar = "reduce"
    variants: ClassVar = {
        "reduce": "one invocation an output, element by element: any layout, or several segments",
    }

    @property
    def axes(self) -> Axes:
        assert isinstance(self.problem.domain, Axes)
        return self.problem.domain

    @property
    def kept(self) -> tuple[Dim, ...]:
        return self.axes.kept

    @property
    def reduced(self) -> tuple[Dim, ...]:
        return self.axes.reduced

    @property
    def count(self) -> int:
        """The elements of an output."""
        return self.axes.element_count

    @property
    def lanes(self) -> int:
        """Invocations that share an item."""
        return 1

    @property
    def outputs_per_item(self) -> int:
        """Outputs that an invocation computes together."""
        return 1

    @property
    def least_stretch(self) -> int:
        """Elements of the shortest stretch, where an output is shared among invocations that would be idle."""
        return self.limits.least_loads

    @property
    def unit(self) -> int:
        return 1

    @property
    def writes_outputs(self) -> bool:
        # One tensor, with indices that count from 0; combine.comp does what else there is.
        indices = any(output.result is Result.INDEX for output in self.problem.outputs)
        return super().writes_outputs and len(self.problem.outputs) == 1 and not (indices and self.axes.index_step)

    @property
    def row(self) -> int:
        """Outputs along the last kept dimension."""
        return self.kept[-1].size if self.kept else 1

    @cached_property
    def most_recorded(self) -> int:
        splits = -(-self.count // self.stretch_size)  # stretches of an output
        rounds = self.limits.loop_iterations // self.iterations(self.stretch_size)
        items = self.limits.invocations // self.lanes * rounds
        return max(min(items // splits, self.short_outputs), 1)

    @property
    def short_outputs(self) -> int:
        """Outputs whose elements in one segment are no more than `Limits.dispatch_elements`; GRANULE at least.

        Where GRANULE outputs have more elements than that, `pieces` cuts their elements.
        """
        stride, together = self.reduced[0].stride, self.count
        if len(self.reduced) == 1 and stride > 0:
            together = min(together, self.limits.segment_elements(self.source) // stride + 1)
        return max(self.limits.dispatch_elements // together, GRANULE)

    @cached_property
    def stretch_size(self) -> int:
        """Elements of a stretch: all of an output, or fewer where outputs are too few to keep all invocations busy."""
        outputs = min(self.problem.output_count, self.short_outputs)  # in a dispatch
        count = min(self.count, self.limits.dispatch_elements // outputs)  # elements of each of them, in a dispatch
        items = outputs * self.lanes // self.outputs_per_item
        stretch = self.count
        if self.count > 2 * self.least_stretch:
            stretch = max(self.least_stretch, -(-count * items // self.limits.busy_invocations))
        while stretch > 1 and self.iterations(stretch) > self.limits.loop_iterations:
            stretch = -(-stretch // 2)
        # Whole blocks: if the first stretch begins with a block, all do.
        return min(self.count, -(-stretch // self.block) * self.block)

    def iterations(self, stretch_size: int) -> int:
        """Loop iterations of an invocation for one output or one block of columns, at most."""
        lines = stretch_size // self.reduced[-1].size + 2
        own = 1 + len(self.kept) + lines * (len(self.reduced) + 4) + stretch_size // _UNROLLED
        return own + self.accumulating(stretch_size)

    def accumulating(self, elements: int) -> int:
        """Loop iterations of the accumulator for so many elements: twice what its loop has, as in pool.py."""
        return 2 * elements * self.problem.accumulator.iterations

    def dispatch_end(self, begin: int) -> int:
        """The end of the outputs from `begin` on that one dispatch can compute, wherever their elements lie."""
        most = self.most_recorded
        return min(begin + (most // self.unit * self.unit or most), self.problem.output_count)

    def furthest(self, begin: int) -> int:
        end = self.dispatch_end(begin)
        if len(self.limits.segments(self.source)) == 1 or not self.ascending:
            return end
        # The elements of all outputs of a range begin in the same segment, and end in the same one. So few ranges
        # have elements in several segments, and a fast kernel, which needs one, takes the others. `alike` counts units.
        ends = range(begin + self.unit, end + self.unit, self.unit)
        alike = bisect_left(ends, True, key=lambda last: not self.are_alike(begin, min(last, end)))
        return min(begin + max(alike, 1) * self.unit, end)

    @cached_property
    def ascending(self) -> bool:
        """Whether the elements of each output begin behind those of the output before: segments change seldom then."""
        return all(outer.stride >= inner.size * inner.stride for outer, inner in pairwise(self.kept))

    def are_alike(self, begin: int, end: int) -> bool:
        """Whether the elements of all outputs begin in the same segment, and end in the same one."""
        size, (low, high) = self.limits.segment_elements(self.source), address_span(self.kept, begin, end)
        reach = sum((dim.size - 1) * dim.stride for dim in self.reduced)
        return low // size == high // size and (low + reach) // size == (high + reach) // size

    def pieces(self, begin: int, end: int) -> Sequence[AxesPiece]:
        size, stride = self.limits.segment_elements(self.source), self.reduced[0].stride
        low, high = address_span(self.kept, begin, end)
        segments = segments_touched(low, high, self.reduced, size)
        most = max(self.limits.dispatch_elements // (end - begin) // self.stretch_size, 1) * self.stretch_size

        def cut(segment: int, first: int, last: int, whole: bool) -> list[AxesPiece]:
            starts = range(first, last, most)
            return [AxesPiece(segment, at, min(at + most, last), self.stretch_size, whole) for at in starts]

        if len(segments) == 1 or len(self.reduced) > 1 or stride == 0:
            return [piece for segment in segments for piece in cut(segment, 0, self.count, len(segments) == 1)]
        # Element 0 of the outputs is between addresses `low` and `high`, element e is e * stride further on. So the
        # higher an output begins, the lower are the numbers of those of its elements that lie in the segment:
        #
        #   number e of an element               0 ----------------------------->
        #   in the segment, of output at high        [===================]
        #   in the segment, of output at low                 [===================]
        #   every: of all outputs                            [===========]
        #   some: of at least one output             [===========================]
        #
        # `every` can take a fast kernel. reduce.comp takes the rest of `some`, where it asks of each element whether it
        # lies in the segment; and all of it, where `every` is shorter than a block.
        pieces: list[AxesPiece] = []
        for segment in segments:
            first, last = segment * size, (segment + 1) * size - 1
            some = max(0, -(-(first - high) // stride)), min(self.count, (last - low) // stride + 1)
            every = max(0, -(-(first - low) // stride)), min(self.count, (last - high) // stride + 1)
            if every[1] - every[0] < self.block:
                every = some[1], some[1]
            pieces += cut(segment, some[0], every[0], False)
            pieces += cut(segment, *every, True)
            pieces += cut(segment, every[1], some[1], False)
        return pieces

    def shader(self, begin: int, end: int, piece: AxesPiece, target: Target) -> Shader:
        """What computes a piece."""
        constants = self.constants(AxesConstants, target, segmented=not piece.whole, flat=len(self.kept) <= 1)
        return shader_of("reduce", self.problem, constants)

    def dispatch(self, begin: int, end: int, piece: AxesPiece, target: Target) -> Dispatch:
        push = AxesPush(
            **dimensions(self.kept + self.reduced),
            kept_rank=len(self.kept),
            reduced_rank=len(self.reduced),
            reduced_begin=piece.begin,
            reduced_end=piece.end,
            stretch_size=piece.stretch_size,
            first_output=begin,
            output_count=end - begin,
            element_count=self.count,
            **self.source_push(piece.segment),
            target_base=self.target_base(begin, end, 0, target),
        )
        bindings = self.source_binding(piece.segment), self.target_binding(begin, 0, "target_base", target)
        return Dispatch(self.shader(begin, end, piece, target), push, bindings)

    def is_aligned(self, *steps: int) -> bool:
        """Whether all these distances between addresses, in elements, are whole blocks."""
        return all(step % self.block == 0 for step in steps)
