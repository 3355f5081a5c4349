"""Splitting: the outputs of a problem as ranges, each computed in place, or in two passes with states between them.

A range goes on as long as its outputs have elements in the same segments of the input. Where that is one segment, they
are computed in place:

    input     [ segment 0          ][ segment 1          ...
    elements   000 111 222 333 444 555 666 777 888              of outputs 0, 1, 2, ...
    ranges    |---- in place -----|---|---- in place ---- ...
                                  states

A range with states ends where the memory for states is full (`Limits.state_bytes`). No range goes on into another
segment of an output tensor. Ranges begin at multiples of `kernel.range_alignment` where they can.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dmlgpu.lowering.kernels.combine import most_combined
from dmlgpu.lowering.kernels.kernel import Piece, RangedKernel

# With more outputs in a dispatch a counter of a shader could wrap around at 2^32.
_MAX_OUTPUTS = 1 << 31
# Where outputs go back and forth between segments, a range in place has at least this part of those that it could have.
_FEWEST = 64


@dataclass(frozen=True)
class Range:
    """Outputs begin to end - 1, and the pieces of their elements."""

    begin: int
    end: int
    pieces: Sequence[Piece]
    in_place: bool

    @property
    def states(self) -> int:
        """The states that its pieces give for each output."""
        return sum(piece.states for piece in self.pieces)


def ranges(kernel: RangedKernel) -> Iterator[Range]:
    """All outputs as ranges, in order."""
    count, begin = kernel.problem.output_count, 0
    segments = [kernel.limits.segment_elements(output.tensor) for output in kernel.problem.outputs]
    while begin < count:
        last = min(count, begin + _MAX_OUTPUTS, kernel.furthest(begin), *((begin // n + 1) * n for n in segments))
        found = _alike(kernel, begin, last if last == count else _aligned(kernel, begin, last))
        if not found.in_place:
            found = _fitting(kernel, found)
        yield found
        begin = found.end


def _range(kernel: RangedKernel, begin: int, end: int) -> Range:
    pieces = kernel.pieces(begin, end)
    aligned = begin % kernel.range_alignment == 0
    return Range(begin, end, pieces, len(pieces) == 1 and aligned and kernel.writes_outputs)


def _aligned(kernel: RangedKernel, begin: int, end: int) -> int:
    """An end at which the next range can begin: up to `end`, a multiple of the alignment if there is one."""
    over = end % kernel.range_alignment
    return end - over if over < end - begin else end


def _alike(kernel: RangedKernel, begin: int, last: int) -> Range:
    """The longest range up to `last` whose outputs have elements in the same segments."""
    found = _range(kernel, begin, _alike_end(kernel, begin, last))
    if kernel.ascending or (found.in_place and (found.end - begin) * _FEWEST > last - begin):
        return found
    # Outputs go back and forth between segments: all are computed with states of all segments.
    return _range(kernel, begin, last)


def _alike_end(kernel: RangedKernel, begin: int, last: int) -> int:
    """The last end up to `last` of outputs that all have elements in the segments of the first ones."""
    alignment = kernel.range_alignment
    steps = range(begin // alignment * alignment + alignment, last + alignment, alignment)

    def segments(begin: int, end: int) -> set[tuple[int, ...]]:
        return {piece.segments for piece in kernel.pieces(begin, end)}

    first = segments(begin, min(steps[0], last))

    def differ(end: int) -> bool:
        end = min(end, last)
        return first != segments(begin, end) or first != segments(max(begin, (end - 1) // alignment * alignment), end)

    return steps[max(1, bisect_left(steps, True, key=differ)) - 1] if differ(last) else last


def _fitting(kernel: RangedKernel, longest: Range) -> Range:
    """The longest part of a range from its begin on whose states fit their memory, and are combined in one dispatch."""
    begin, over = longest.begin, longest.begin % kernel.range_alignment
    # Up to the next multiple of the alignment at most, as the next range may then be in place.
    most = min(kernel.most_with_states, kernel.range_alignment - over if over else longest.end)
    found = longest
    while True:
        most = max(1, min(most, kernel.most_states // found.states, most_combined(kernel.limits, found.states)))
        if found.end - begin <= most:
            return found
        # A shorter range may need more states for an output, as the pieces that it is cut into are others.
        found = _range(kernel, begin, _aligned(kernel, begin, begin + most))
