"""The first pass of ARGMAX and ARGMIN: along the reduced axes."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from dmlgpu.descriptors.reduction import ArgOperatorDesc
from dmlgpu.lowering.first_pass import GRANULE, FirstPass, Piece, dimensions
from dmlgpu.lowering.geometry import Dim, address_span, merged, segments_touched
from dmlgpu.lowering.plan import Dispatch, Kernel, Push

# Elements that are worth an invocation of their own, where invocations are to spare.
_LEAST_STRETCH = 1024
# Elements that reduce.comp takes in an iteration.
_UNROLLED = 4
# Blocks for which rows.comp does better to look at every element.
_SHORT = 16


@dataclass(frozen=True)
class _ReducePush(Push):
    size: tuple[int, ...]
    stride: tuple[int, ...]
    kept_rank: int
    reduced_rank: int
    reduced_begin: int
    reduced_end: int
    stretch: int
    first_output: int
    output_count: int
    source_first: int
    source_count: int
    source_base: int
    target_base: int


@dataclass(frozen=True)
class _Stretches(Piece):
    """Reduced elements begin to end - 1, `stretch` of them an invocation."""

    begin: int
    end: int
    stretch: int
    whole: bool
    """Whether all of them lie in the segment, for every output."""

    @property
    def records(self) -> int:
        return -(-(self.end - self.begin) // self.stretch)


@dataclass(frozen=True)
class Reduction(FirstPass):
    """Chosen from the elements along the reduced axes."""

    desc: ArgOperatorDesc

    @cached_property
    def dims(self) -> tuple[Dim, ...]:
        return tuple(Dim(*pair) for pair in zip(self.source.sizes, self.source.element_strides, strict=True))

    @cached_property
    def kept(self) -> tuple[Dim, ...]:
        return merged(dim for axis, dim in enumerate(self.dims) if axis not in self.desc.axes)

    @cached_property
    def reduced(self) -> tuple[Dim, ...]:
        return merged(self.dims[axis] for axis in self.desc.axes) or (Dim(1, 0),)

    @cached_property
    def count(self) -> int:
        """The elements of an output."""
        return math.prod(dim.size for dim in self.reduced)

    @cached_property
    def shader(self) -> str:
        """The kernel, by what follows what in memory: an output's elements, or those of neighbouring outputs."""
        if len(self.reduced) == 1 and self.count > 1:
            if self.reduced[0].stride == 1 and self.count >= self.block:
                return "lanes" if self.limits.cooperating else "rows"
            if self.kept and self.kept[-1].stride == 1 and self.kept[-1].size >= self.block:
                return "columns"
        return "reduce"

    @cached_property
    def lanes(self) -> int:
        """Invocations that share an output: a power of 2 that divides a group; each has a block at least."""
        most = self.count // self.block if self.shader == "lanes" else 1
        return min(1 << (most.bit_length() - 1), self.limits.group_size & -self.limits.group_size)

    @property
    def unit(self) -> int:
        # columns.comp takes whole rows of outputs, or a part of one.
        return 1 if self.shader != "columns" else self.row if self.row <= self.most_outputs else GRANULE

    @property
    def row(self) -> int:
        """Outputs along the last kept dimension."""
        return self.kept[-1].size if self.kept else 1

    @cached_property
    def most_outputs(self) -> int:
        splits = -(-self.count // self.stretch)
        items = self.limits.invocations // self.lanes * (self.limits.loop_iterations // self.iterations(self.stretch))
        return max(min(items // splits, self.short_outputs), 1)

    @property
    def short_outputs(self) -> int:
        """Outputs that a dispatch computes in a short time; where they have too many elements, these are cut."""
        stride, together = self.reduced[0].stride, self.count
        if len(self.reduced) == 1 and stride > 0:
            together = min(together, self.limits.segment_elements(self.source) // stride + 1)
        return max(self.limits.dispatch_elements // together, GRANULE)

    @cached_property
    def stretch(self) -> int:
        """The elements that one invocation looks at: a part of an output's where invocations would be idle else."""
        outputs = min(self.desc.output_tensor.element_count, self.short_outputs)
        count = min(self.count, self.limits.dispatch_elements // outputs)  # of an output, in a dispatch
        outputs = outputs * self.lanes // (self.block if self.shader == "columns" else 1)
        stretch = self.count
        if self.count > 2 * _LEAST_STRETCH:
            stretch = max(_LEAST_STRETCH, -(-count * outputs // self.limits.invocations))
        while self.iterations(stretch) > self.limits.loop_iterations:
            stretch = -(-stretch // 2)
        # Of whole blocks, so that all stretches are aligned if the first one is.
        return min(self.count, -(-stretch // self.block) * self.block)

    def iterations(self, stretch: int) -> int:
        """Loop iterations of an invocation for one output or one block of columns, at most."""
        run = self.reduced[-1].size
        any_layout = 1 + len(self.kept) + (stretch // run + 2) * (len(self.reduced) + 4) + stretch // _UNROLLED
        own = {
            "rows": 8 + stretch // self.block,
            "lanes": 16 + stretch // (self.block * self.lanes),
            "columns": 8 + stretch,
            "reduce": any_layout,
        }[self.shader]
        # What lies in several segments, and parts of rows of outputs, take reduce.comp (kernel_of).
        alone = self.shader != "columns" and len(self.limits.segments(self.source)) == 1
        return own if alone else max(own, any_layout)

    def furthest(self, begin: int) -> int:
        most = self.most_outputs
        end = min(begin + (most // self.unit * self.unit or most), self.desc.output_tensor.element_count)
        if self.shader == "columns" and self.unit != self.row:
            end = min(end, (begin // self.row + 1) * self.row)
        if len(self.limits.segments(self.source)) == 1 or not self.ascending:
            return end
        # No further than outputs begin in one segment, and end in one: fast kernels take what lies in one segment.
        ends = range(begin + self.unit, end + self.unit, self.unit)
        alike = bisect_left(ends, True, key=lambda last: not self.are_alike(begin, min(last, end)))
        return min(begin + max(alike, 1) * self.unit, end)

    @cached_property
    def ascending(self) -> bool:
        """Whether every output begins behind the one before: few ranges of outputs begin in another segment, then."""
        return all(outer.stride >= inner.size * inner.stride for outer, inner in pairwise(self.kept))

    def are_alike(self, begin: int, end: int) -> bool:
        """Whether the elements of all outputs begin in the same segment, and end in the same one."""
        size, (low, high) = self.limits.segment_elements(self.source), address_span(self.kept, begin, end)
        reach = sum((dim.size - 1) * dim.stride for dim in self.reduced)
        return low // size == high // size and (low + reach) // size == (high + reach) // size

    def pieces(self, begin: int, end: int) -> Sequence[_Stretches]:
        size, stride = self.limits.segment_elements(self.source), self.reduced[0].stride
        low, high = address_span(self.kept, begin, end)
        segments = segments_touched(low, high, self.reduced, size)
        most = max(self.limits.dispatch_elements // (end - begin) // self.stretch, 1) * self.stretch

        def cut(segment: int, first: int, last: int, whole: bool) -> list[_Stretches]:
            starts = range(first, last, most)
            return [_Stretches(segment, at, min(at + most, last), self.stretch, whole) for at in starts]

        if len(segments) == 1 or len(self.reduced) > 1 or stride == 0:
            return [piece for segment in segments for piece in cut(segment, 0, self.count, len(segments) == 1)]
        # Along one dimension only some of the elements lie in a segment: those between the first that does for any
        # output and the last. Within these are those that do for all outputs.
        pieces: list[_Stretches] = []
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

    def kernel_of(self, begin: int, end: int, piece: _Stretches, record: int | None) -> Kernel:
        shader = self.shader
        whole_rows = begin % self.row == end % self.row == 0
        part_of_a_row = begin // self.row == (end - 1) // self.row and end - begin >= self.block
        if not piece.whole or (shader == "columns" and not whole_rows and not part_of_a_row):
            shader = "reduce"
        along_rows = [piece.begin, piece.end, *(dim.stride for dim in self.kept)]
        steps = {
            "rows": along_rows,
            "lanes": along_rows,
            "columns": [begin % self.row, min(self.row, end - begin), self.reduced[0].stride]
            + [dim.stride for dim in self.kept[:-1]],
            "reduce": [1],
        }[shader]
        return self.first_kernel(
            shader,
            record,
            segmented=not piece.whole,
            aligned=all(step % self.block == 0 for step in steps),
            short=shader == "rows" and self.stretch <= _SHORT * self.block,
            lanes=self.lanes if shader == "lanes" else 1,
            flat=len(self.kept) <= (2 if shader == "columns" else 1),
        )

    def dispatch(self, begin: int, end: int, piece: _Stretches, record: int | None) -> Dispatch:
        push = _ReducePush(
            **dimensions(self.kept + self.reduced),
            kept_rank=len(self.kept),
            reduced_rank=len(self.reduced),
            reduced_begin=piece.begin,
            reduced_end=piece.end,
            stretch=piece.stretch,
            first_output=begin,
            output_count=end - begin,
            **self.source_push(piece.segment),
            target_base=self.target_base(begin, end, 0, record),
        )
        bindings = self.source_binding(piece.segment), self.target_binding(begin, 0, "target_base", record)
        return Dispatch(self.kernel_of(begin, end, piece, record), push, bindings)
