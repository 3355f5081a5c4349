"""reduce.comp: one invocation per output, element by element, over axes in any layout.

The other kernels over axes are subclasses, which plan in the same way. This one computes the pieces they do not cover.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from dmlgpu.lowering.geometry import Dim, address_span, ascend, segments_touched
from dmlgpu.lowering.kernels.kernel import RANGE_ALIGNMENT, Piece, RangedKernel, States, Target, dimensions, shader_of
from dmlgpu.lowering.plan import Dispatch, Shader, Values
from dmlgpu.lowering.problem import Axes, Result


@dataclass(frozen=True)
class Reduce(RangedKernel):
    """Over axes: any layout, or elements in several segments."""

    name: ClassVar = "reduce"
    variants: ClassVar = {
        "reduce": "one invocation per output, element by element: any layout, or several segments",
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
        """Elements of an output."""
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
    def least_split(self) -> int:
        """Elements of a split, at least, where outputs are too few for all invocations."""
        return self.limits.least_loads

    @property
    def range_alignment(self) -> int:
        return 1

    @property
    def writes_outputs(self) -> bool:
        # combine.comp writes several tensors, indices that do not count from 0, and outputs that were split.
        indices = any(output.result is Result.INDEX for output in self.problem.outputs)
        one = len(self.problem.outputs) == 1 and not (indices and self.axes.index_step)
        return super().writes_outputs and one and self.split_size == self.count

    @property
    def row(self) -> int:
        """Outputs along the last kept dimension."""
        return self.kept[-1].size if self.kept else 1

    @property
    def work(self) -> int:
        # If the addresses of an output's elements do not ascend, every segment looks at all of them.
        looks = 1 if ascend(self.reduced) else len(self.limits.segments(self.source))
        return self.problem.output_count * self.count * looks

    @property
    def ascending(self) -> bool:
        return ascend(self.kept)

    def item_loads(self, split_size: int) -> int:
        """Loads of an item, for an invocation: of a split of one output, or of a block of columns."""
        # A split may begin anywhere in a line along the last dimension, in each invocation at another element.
        line = min(self.reduced[-1].size, split_size)
        lines = (split_size + line - 2) // line + 1 if len(self.reduced) > 1 else 1
        return lines * (len(self.reduced) + line * self.problem.accumulator.loads())

    @property
    def covers_all(self) -> bool:
        """Whether it covers every piece."""
        return True

    def _most_outputs(self, split_size: int) -> int:
        """Outputs of a dispatch, at most, with a split of this size each; 0 where one has too many loads."""
        most = self.outputs_of(self.limits.most_items(self.item_loads(split_size), self.lanes))
        return most if self.covers_all else min(most, Reduce(self.problem, self.limits)._most_outputs(split_size))

    # How the work is cut

    @cached_property
    def most_with_states(self) -> int:
        return max(min(self._most_outputs(self.split_size), self.short_outputs), 1)

    @property
    def short_outputs(self) -> int:
        """Outputs whose elements in one segment are no more than `Limits.dispatch_elements`.

        At least RANGE_ALIGNMENT: where these have more elements than that, `cut` cuts their elements.
        """
        outer, together = self.reduced[0], self.count
        if outer.stride > 0:
            groups = self.limits.segment_elements(self.source) // outer.stride + 1
            together = min(together, groups * (self.count // outer.size))
        return max(self.limits.dispatch_elements // together, RANGE_ALIGNMENT)

    @cached_property
    def split_size(self) -> int:
        """Elements of a split: all of an output, or fewer where outputs are too few for all invocations."""
        # Of a dispatch.
        outputs = min(self.problem.output_count, self.short_outputs)
        count = min(self.count, self.limits.dispatch_elements // outputs)
        items = outputs * self.lanes // self.outputs_per_item
        split = self.count
        if self.count > 2 * self.least_split:
            # Each segment may leave a state for each split.
            states = -(-self.count * len(self.limits.segments(self.source)) // max(self.most_states, 1))
            split = max(self.least_split, -(-count * items // self.limits.busy_invocations), states)
        # A multiple of a block: if the first split begins with a block, all do.
        split = -(-split // self.block) * self.block
        while split > self.block and self._most_outputs(min(self.count, split)) == 0:
            split = -(-split // (2 * self.block)) * self.block
        return min(self.count, split)

    def furthest(self, begin: int) -> int:
        most = self.most_with_states
        return begin + (most // self.range_alignment * self.range_alignment or most)

    def pieces(self, begin: int, end: int) -> Sequence[Piece]:
        size, (outer, *inner) = self.limits.segment_elements(self.source), self.reduced
        low, high = address_span(self.kept, begin, end)
        segments = segments_touched(low, high, self.reduced, size)
        if len(segments) == 1:
            return [Piece(segments, 0, self.count, self.split_size, True)]
        if outer.stride == 0:
            return [Piece((segment,), 0, self.count, self.split_size) for segment in segments]
        # The elements of the outputs come in groups, one for each place along the outermost reduced dimension. Group 0
        # of the outputs is between addresses `low` and `high`, group g is g * stride further on. So the higher an
        # output begins, the lower are the numbers of those of its groups that lie in the segment:
        #
        #   number g of a group                  0 ----------------------------->
        #   in the segment, of output at high        [===================]
        #   in the segment, of output at low                 [===================]
        #   every: of all outputs                            [===========]
        #   some: of at least one output             [===========================]
        #
        # `every` can take a fast kernel. reduce.comp takes the rest of `some`, where it asks of each element whether it
        # lies in the segment; and all of it, where `every` is shorter than a block.
        each = self.count // outer.size
        reach = sum((dim.size - 1) * dim.stride for dim in inner)
        pieces: list[Piece] = []
        for segment in segments:
            first, last = segment * size, (segment + 1) * size - 1
            begins = max(0, -(-(first - high - reach) // outer.stride)), max(0, -(-(first - low) // outer.stride))
            ends = (last - low) // outer.stride + 1, (last - high - reach) // outer.stride + 1
            some, every = ((a * each, min(b, outer.size) * each) for a, b in zip(begins, ends, strict=True))
            if every[1] - every[0] < self.block:
                every = some[1], some[1]
            shares = (some[0], every[0], False), (*every, True), (every[1], some[1], False)
            pieces += [Piece((segment,), a, b, self.split_size, whole) for a, b, whole in shares if a < b]
        return pieces

    def states_at_once(self, outputs: int) -> int:
        return min(self.limits.dispatch_elements // self.split_size, self._most_outputs(self.split_size)) // outputs

    # What runs

    def shader(self, begin: int, end: int, piece: Piece, target: Target) -> Shader:
        """The shader of a piece."""
        constants = self.constants(target, segmented=not piece.whole, flat=len(self.kept) <= 1)
        return shader_of("reduce", self.problem, constants)

    def item_count(self, outputs: int) -> int:
        """Items of this number of outputs, with one split each."""
        return outputs

    def outputs_of(self, items: int) -> int:
        """Outputs that take no more than this number of items, wherever they begin."""
        return items

    def dispatch(self, begin: int, end: int, piece: Piece, target: Target) -> Dispatch:
        push = Values(
            **dimensions(self.kept + self.reduced),
            kept_rank=len(self.kept),
            reduced_rank=len(self.reduced),
            reduced_begin=piece.begin,
            reduced_end=piece.end,
            split_size=piece.size,
            first_output=begin,
            output_count=end - begin,
            element_count=self.count,
            **self.source_push(piece.segments[0]),
            target_base=self.target_base(begin, end, 0, target),
        )
        bindings = self.source_binding(piece.segments[0]), self.target_binding(begin, 0, "target_base", target)
        items = self.item_count(end - begin) * (piece.states if isinstance(target, States) else 1)
        loads = self.limits.loads(items, self.item_loads(min(piece.size, piece.end - piece.begin)), self.lanes)
        return Dispatch(self.shader(begin, end, piece, target), push, bindings, loads, range(begin, end))

    def is_aligned(self, *steps: int) -> bool:
        """Whether all these distances, in elements, are multiples of a block."""
        return all(step % self.block == 0 for step in steps)
