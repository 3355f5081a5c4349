"""Parts of a problem: what a kernel computes in one dispatch, and what says how a problem is cut into them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dmlgpu.descriptors.tensor import MAX_ELEMENTS
from dmlgpu.lowering.geometry import Dim, segments_touched
from dmlgpu.lowering.limits import Limits


@dataclass(frozen=True)
class Part:
    """Some elements of some outputs, in one segment of each source."""

    outputs: range
    elements: range
    """By their numbers in an output: elements along axes, splits of a window, or windows that cover the output."""
    split: int
    """Elements of an invocation, of each of its outputs."""
    segments: tuple[int, ...]
    """The segment of each source."""
    whole: bool
    """Whether all of the elements lie in the segments, for every output. Otherwise the shader skips some."""
    states_before: int | None = 0
    """States of each output from parts before this one, whose own come behind those. None: it writes the outputs."""

    @property
    def splits(self) -> int:
        """States of each output, if it leaves any."""
        return -(-len(self.elements) // self.split)

    def cut(self, splits: int, states: int) -> Iterator[Part]:
        """Parts of at most so many splits each; there are `states` of each output before these."""
        for first in range(0, self.splits, splits):
            elements = self.elements[first * self.split : (first + splits) * self.split]
            yield replace(self, elements=elements, states_before=states + first)


@dataclass(frozen=True)
class Extent:
    """Where the elements of some outputs lie in a source. An output has them in steps that are `stride` apart."""

    lowest: int
    """The lowest address of an element, without the distances that `dims` add; `highest` likewise."""
    highest: int
    steps: range
    """Those with elements in the source."""
    dims: tuple[Dim, ...] = ()
    """Dimensions along which elements lie at a distance from these."""
    first_begin: int = 0
    """Where step 0 of the first output begins, be that in the source or not; step s lies s * stride behind it."""
    last_end: int = 0
    """The last address of step 0 of the last output."""
    stride: int = 0
    """0: all steps may lie anywhere."""
    step_elements: int = 1
    """Elements of a step, as `Part.elements` numbers them."""

    def segments(self, size: int) -> tuple[int, ...]:
        """The segments of `size` elements each where an element may lie."""
        return segments_touched(self.lowest, self.highest, self.dims, size)

    def within(self, segment: int, size: int) -> tuple[range, range]:
        """The elements that any output has in a segment, and those that all outputs have there.

        An output that begins further on has elements with lower numbers in a segment:

            elements                               0 ----------------------------->
            in the segment, of the first output            [===================]
            in the segment, of the last output     [===================]
            of any, and of all                     [-------[===========]-------]
        """
        if len(self.segments(size)) == 1:
            return self._elements(self.steps), self._elements(self.steps)
        if self.stride == 0:
            return self._elements(self.steps), range(0)
        first, last = segment * size, (segment + 1) * size - 1
        of_any = range(-(-(first - self.last_end) // self.stride), (last - self.first_begin) // self.stride + 1)
        of_all = range(-(-(first - self.first_begin) // self.stride), (last - self.last_end) // self.stride + 1)
        return self._elements(of_any), self._elements(of_all)

    def _elements(self, steps: range) -> range:
        begin, end = max(steps.start, self.steps.start), min(steps.stop, self.steps.stop)
        return range(begin * self.step_elements, end * self.step_elements)


@dataclass(frozen=True)
class Tiling:
    """What an invocation, or `lanes` of them, computes in a turn of its outermost loop: an item, a tile of outputs.

    Outputs are one row, or rows of `row` outputs each; `rows` of them are a slab. Rows and slabs begin with a tile of
    their own:

        a slab of 3 rows    | tile  | tile  | ti |      rows of 18 outputs, tiles of 8 x 2
                            |       |       |    |
                            +-------+-------+----+
                            | tile  | tile  | ti |
    """

    width: int
    """Outputs of a tile, along a row."""
    elements: int
    """Elements that an item has of each of its outputs, at most."""
    loads: int
    """Of an item, as `Limits.invocation_loads` counts them."""
    lanes: int = 1
    """Invocations that share an item."""
    height: int = 1
    """Rows of a tile."""
    row: int = MAX_ELEMENTS
    """Outputs of a row."""
    rows: int = 1
    """Rows of a slab."""

    def items(self, outputs: int) -> int:
        """Items of so many outputs: of whole slabs, of whole rows of one, or of a part of a row."""
        row = min(self.row, outputs)
        rows = min(self.rows, outputs // row)
        return outputs // row // rows * -(-rows // self.height) * -(-row // self.width)

    def most_items(self, limits: Limits) -> int:
        """Items of a dispatch, at most; 0 where one has too many loads."""
        return limits.most_items(self.loads, self.lanes)

    def most_outputs(self, limits: Limits) -> int:
        """Outputs of a dispatch, at most: whole slabs, or else whole rows of one, or else a part of a row."""
        items = self.most_items(limits)
        for whole in self.row * self.rows, self.row * self.height, self.width:
            if found := items // self.items(whole):
                return found * whole
        return 0


@dataclass(frozen=True)
class Rules:
    """How a kernel wants a problem to be cut."""

    outputs_in_place: int
    """Outputs of a part that writes them, at most; 0: no part can."""
    outputs_with_states: int
    """Outputs of a part that leaves states, at most."""
    tilings: tuple[Tiling, ...]
    """How this kernel, and each of the others that compute parts of its problem, divides a part that leaves states."""
    split: int
    """Elements of a state."""
    ascending: bool
    """Whether outputs lie one behind the other in the source, so that they change segments seldom."""
    step: int = 1
    """Parts begin at multiples of so many outputs where they can."""
    boundary: int = MAX_ELEMENTS
    """No part has outputs on both sides of a multiple of this."""

    def end(self, begin: int, end: int) -> int:
        """An end at which the next part can begin: up to `end`, a multiple of `step` if there is one."""
        over = end % self.step
        return end - over if over < end - begin else end

    def next(self, begin: int) -> int:
        """The first multiple of `step` behind an output."""
        return (begin // self.step + 1) * self.step
