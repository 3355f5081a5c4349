"""Splitting: the outputs of a problem as ranges, each computed in place, or in two passes with states between them.

A range is computed in place where all its outputs lie in one segment of each output tensor, and all their elements in
one segment of the input. It ends where either of the two ends:

    input     [ segment 0          ][ segment 1          ...
    elements   000 111 222 333 444 555 666 777 888              of outputs 0, 1, 2, ...
    ranges    |---- in place -----|---|---- in place ---- ...
                                  states

Other ranges are computed with states. They end where the memory for states is full (`Limits.state_bytes`), or
where the next outputs can be computed in place.

Both kinds begin at multiples of `kernel.range_alignment` where they can.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dmlgpu.lowering.kernels.combine import most_combined
from dmlgpu.lowering.kernels.kernel import Piece, RangedKernel

# With more outputs in a dispatch a counter of a shader could wrap around at 2^32.
_MAX_OUTPUTS = 1 << 31
# A range in place has at least this part of the outputs that a dispatch could compute.
_FEWEST = 64


@dataclass(frozen=True)
class Range:
    """Outputs begin to end - 1."""

    begin: int
    end: int
    in_place: bool


def ranges(kernel: RangedKernel) -> Iterator[Range]:
    """All outputs as ranges, in order."""
    count = kernel.problem.output_count
    packed = kernel.writes_outputs
    begin = 0
    while begin < count:
        last = min(count, begin + _MAX_OUTPUTS, kernel.furthest(begin))
        end = _reach_in_place(kernel, begin, last) if packed and begin % kernel.range_alignment == 0 else begin
        # Where neighbouring outputs have elements in many segments, all of them are computed with states.
        in_place = end - begin > (last - begin) // _FEWEST
        if not in_place:
            end = _reach_with_states(kernel, begin, last, packed and end == begin)
        yield Range(begin, end, in_place)
        begin = end


def _reach_in_place(kernel: RangedKernel, begin: int, last: int) -> int:
    """The end of the range from `begin` that one piece computes in place, at most `last`; `begin` if there is none."""
    alignment, outputs = kernel.range_alignment, kernel.problem.outputs
    segments = (kernel.limits.segment_elements(output.tensor) for output in outputs)
    here = min(last, *((begin // n + 1) * n for n in segments))
    ends = range(begin + alignment, here + alignment, alignment)
    # The more outputs, the more pieces: a binary search finds the last end that leaves one piece.
    fits = _count(ends, lambda end: len(kernel.pieces(begin, min(end, here))) == 1)
    end = min(begin + fits * alignment, here)
    # `here` may be no multiple of it.
    if alignment < end - begin and end < kernel.problem.output_count:
        end -= end % alignment
    return end


def _reach_with_states(kernel: RangedKernel, begin: int, last: int, packed: bool) -> int:
    """The end of the range from `begin` on whose states fit their memory, at most `last`."""
    alignment = kernel.range_alignment

    def fitting(end: int) -> int:
        """Outputs whose states fit, and are combined in one dispatch, if the range went on to `end`."""
        states = states_of(kernel.pieces(begin, end))
        return max(1, min(kernel.most_states // states, most_combined(kernel.limits, states)))

    most = min(fitting(last), kernel.most_with_states)
    # To the next multiple of the alignment at most, as the next range may then be in place; else to any multiple.
    if packed and begin % alignment != 0:
        most = min(most, alignment - begin % alignment)
    elif most > alignment:
        most -= (begin + most) % alignment
    if packed and begin % alignment == 0 and begin + alignment < last:
        after = kernel.pieces(begin + alignment, min(begin + 2 * alignment, last))
        # Often one step of outputs has elements in two segments, and those behind it can be computed in place.
        most = min(most, alignment) if states_of(after) < 2 else most
    end = min(last, begin + most)
    # A shorter range may need more states per output, as the pieces that it is cut into are others.
    while end - begin > fitting(end):
        end = begin + fitting(end)
    return end


def _count(numbers: Sequence[int], fits: Callable[[int], bool]) -> int:
    """How many of these numbers fit, if all before one that fits do. Often all fit, or none."""
    if fits(numbers[-1]):
        return len(numbers)
    return bisect_left(numbers, True, key=lambda number: not fits(number)) if fits(numbers[0]) else 0


def states_of(pieces: Sequence[Piece]) -> int:
    """The states that pieces give for each output."""
    return sum(piece.states for piece in pieces)
