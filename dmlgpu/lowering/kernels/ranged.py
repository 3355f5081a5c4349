"""Kernels that compute outputs in ranges, each in place, or in two passes with states between them.

A range goes on as long as its outputs have elements in the same segments of the input. Where that is one segment, one
dispatch can compute them in place. Elsewhere there are pieces for each segment, whose dispatches write states, and
combine.comp computes the outputs from these:

    input     [ segment 0          ][ segment 1          ...
    elements   000 111 222 333 444 555 666 777 888              of outputs 0, 1, 2, ...
    ranges    |---- in place -----|---|---- in place ---- ...
                                  states

Other ranges that take states:

- an output has too many elements for an invocation, or several invocations should share it (`Tiling.elements`);
- the kernel cannot write these outputs: one is not packed; over axes also where indices do not count from 0;
- the range does not begin at a multiple of `RangeRules.alignment`.

They end where the memory for states is full (`most_states`). No range goes on into another segment of an output.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from dmlgpu.descriptors.tensor import MAX_ELEMENTS
from dmlgpu.lowering.geometry import Dim, ascend, merged
from dmlgpu.lowering.kernels.combine import combine, most_combined, state_count
from dmlgpu.lowering.kernels.kernel import SCRATCH_SHARE, Kernel, constants_of, segment_push, wrapped
from dmlgpu.lowering.limits import Limits
from dmlgpu.lowering.plan import Binding, Dispatch
from dmlgpu.lowering.problem import Role, planes_of

# With more outputs in a dispatch a counter of a shader could wrap around at 2^32.
_MAX_OUTPUTS = 1 << 31
# Where outputs go back and forth between segments, a range in place has at least 1/_LEAST_SHARE of those that it could
# have.
_LEAST_SHARE = 64


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
class Piece:
    """A part of the work on a range of outputs: of each output the same elements, as far as they lie in the segments.

    `begin` and `end` number the elements of an output, the windows that cover it, or the splits of its window; each
    item has `size` of them. Kernels that never cut an output keep the defaults.
    """

    segments: tuple[int, ...]
    begin: int = 0
    end: int = 1
    size: int = 1
    whole: bool = False
    """Whether all of these elements lie in the segments, for every output (axes). Otherwise the shader skips some."""

    @property
    def states(self) -> int:
        """States that it leaves for each output."""
        return -(-(self.end - self.begin) // self.size)


@dataclass(frozen=True)
class InPlace:
    """A dispatch writes the outputs themselves."""


@dataclass(frozen=True)
class States:
    """A dispatch writes states of its outputs."""

    first: int
    """How many states of each output come before these, from other pieces of the range."""


Target = InPlace | States


@dataclass(frozen=True)
class Range:
    """Outputs begin to end - 1, and the pieces of their elements."""

    begin: int
    end: int
    pieces: Sequence[Piece]
    in_place: bool

    @property
    def states(self) -> int:
        """The states that its pieces leave for each output."""
        return sum(piece.states for piece in self.pieces)


@dataclass(frozen=True)
class RangeRules:
    """Where ranges of outputs may begin and end."""

    outputs_in_place: int
    """Outputs of a range in place, at most; 0: the kernel cannot write these outputs."""
    outputs_with_states: int
    """Outputs of a range with states, at most."""
    tilings: tuple[Tiling, ...]
    """Of dispatches with states, by the kernel and by its fallback."""
    ascending: bool
    """Whether outputs lie one behind the other in the input, so that ranges of them change segments seldom."""
    alignment: int
    """Ranges begin at multiples of this where they can."""
    boundary: int = MAX_ELEMENTS
    """No range crosses a multiple of this."""

    def furthest(self, begin: int) -> int:
        """The last end of a range from `begin` on."""
        in_place = self.outputs_in_place if begin % self.alignment == 0 else 0
        return min(begin + (in_place or self.outputs_with_states), (begin // self.boundary + 1) * self.boundary)


@dataclass(frozen=True)
class RangedKernel(Kernel):
    """A kernel whose outputs are computed in ranges, each in pieces."""

    # What a kernel is

    @cached_property
    @abstractmethod
    def rules(self) -> RangeRules:
        """Where its ranges may begin and end."""

    @abstractmethod
    def pieces(self, begin: int, end: int) -> Sequence[Piece]:
        """The pieces of outputs begin to end - 1."""

    @abstractmethod
    def dispatch(self, begin: int, end: int, piece: Piece, target: Target) -> Dispatch:
        """The dispatch of a piece that it covers."""

    def covers(self, begin: int, end: int, piece: Piece, target: Target) -> bool:
        """Whether it can compute a piece of outputs begin to end - 1."""
        return True

    @property
    def fallback(self) -> RangedKernel:
        """The kernel for pieces that it does not cover."""
        return self

    # What runs

    def dispatches(self) -> Iterator[tuple[Dispatch, int]]:
        return self.dispatches_of(range(self.problem.output_count))

    def dispatches_of(self, outputs: range) -> Iterator[tuple[Dispatch, int]]:
        """Those of some outputs, as `dispatches`."""
        for found in self.ranges(outputs):
            if found.in_place:
                yield self._dispatch(found, found.pieces[0], InPlace()), 0
                continue
            count, first = found.end - found.begin, 0
            size = 4 * self.state_words * state_count(self.limits, found.states) * count
            for piece in found.pieces:
                most = self._states_at_once(count) * piece.size
                for begin in range(piece.begin, piece.end, most):
                    cut = replace(piece, begin=begin, end=min(begin + most, piece.end))
                    yield self._dispatch(found, cut, States(first)), size
                    first += cut.states
            for dispatch in combine(self.problem, self.limits, found.begin, found.end, found.states):
                yield dispatch, size

    def _dispatch(self, found: Range, piece: Piece, target: Target) -> Dispatch:
        kernel = self if self.covers(found.begin, found.end, piece, target) else self.fallback
        return kernel.dispatch(found.begin, found.end, piece, target)

    def _states_at_once(self, outputs: int) -> int:
        """States of each of so many outputs that one dispatch can leave."""
        short = self.limits.dispatch_elements // outputs
        most = (
            min(tiling.most_items(self.limits) // tiling.items(outputs), short // tiling.elements)
            for tiling in self.rules.tilings
        )
        return max(1, min(most))

    # Where ranges begin and end

    def ranges(self, outputs: range) -> Iterator[Range]:
        """Some outputs as ranges, in order."""
        begin, count = outputs.start, outputs.stop
        segments = [output.segment for output in self.problem.outputs]
        while begin < count:
            of_segments = ((begin // n + 1) * n for n in segments)
            last = min(count, begin + _MAX_OUTPUTS, self.rules.furthest(begin), *of_segments)
            found = self._alike(begin, last if last == count else self._aligned(begin, last))
            found = found if found.in_place else self._fitting(found)
            yield found
            begin = found.end

    def _range(self, begin: int, end: int) -> Range:
        pieces = self.pieces(begin, end)
        aligned = begin % self.rules.alignment == 0
        return Range(begin, end, pieces, len(pieces) == 1 and aligned and self.rules.outputs_in_place > 0)

    def _aligned(self, begin: int, end: int) -> int:
        """An end at which the next range can begin: up to `end`, a multiple of the alignment if there is one."""
        over = end % self.rules.alignment
        return end - over if over < end - begin else end

    def _alike(self, begin: int, last: int) -> Range:
        """The longest range up to `last` whose outputs have elements in the same segments."""
        found = self._range(begin, self._alike_end(begin, last))
        if self.rules.ascending or (found.in_place and (found.end - begin) * _LEAST_SHARE > last - begin):
            return found
        # Outputs go back and forth between segments: all are computed with states of all segments.
        return self._range(begin, last)

    def _alike_end(self, begin: int, last: int) -> int:
        """The last end up to `last` of outputs that all have elements in the segments of the first ones."""
        alignment = self.rules.alignment
        steps = range(begin // alignment * alignment + alignment, last + alignment, alignment)

        def segments(begin: int, end: int) -> set[tuple[int, ...]]:
            return {piece.segments for piece in self.pieces(begin, end)}

        first = segments(begin, min(steps[0], last))

        def differ(end: int) -> bool:
            """Whether the last step up to `end` has others; where outputs do not ascend, whether any has."""
            end = min(end, last)
            step = max(begin, (end - 1) // alignment * alignment)
            return first != segments(step, end) or (not self.rules.ascending and first != segments(begin, end))

        return steps[max(1, bisect_left(steps, True, key=differ)) - 1] if differ(last) else last

    def _fitting(self, longest: Range) -> Range:
        """The longest part of a range, from its begin on, whose states fit their memory and are combined together."""
        alignment = self.rules.alignment
        begin, over = longest.begin, longest.begin % alignment
        # A range that begins in between goes to the next multiple, from where outputs may be written in place.
        most = min(self.rules.outputs_with_states, (alignment - over) if over else longest.end - begin)
        found = longest
        while True:
            most = max(1, min(most, self.most_states // found.states, most_combined(self.limits, found.states)))
            if found.end - begin <= most:
                return found
            # A shorter range may need more states for an output, as the pieces that it is cut into are others.
            found = self._range(begin, self._aligned(begin, begin + most))

    @property
    def most_states(self) -> int:
        """States of a range, at most, unless one output alone has more."""
        limits = self.limits
        most = max(limits.state_bytes, self.source.size_in_bytes // SCRATCH_SHARE)
        return min(most, limits.segment_bytes) // (4 * self.state_words)

    # What dispatches are given

    @cached_property
    def block(self) -> int:
        """Elements of a block of 16 bytes (blocks.glsl)."""
        return 128 // self.source.data_type.bits

    @property
    def per_word(self) -> int:
        """Elements of a word; an element of 64 bits is two words."""
        return max(1, 32 // self.source.data_type.bits)

    @property
    def state_words(self) -> int:
        """Words of a stored state."""
        return self.problem.accumulator.state_words(self.source.data_type)

    def dispatch_loads(self, outputs: int, tiling: Tiling, piece: Piece, target: Target) -> int:
        """Loads of an invocation of a dispatch."""
        items = tiling.items(outputs) * (piece.states if isinstance(target, States) else 1)
        return self.limits.loads(items, tiling.loads, tiling.lanes)

    def constants(self, target: Target, *, segmented: bool = False, **own: int) -> dict[str, int]:
        """The specialization constants of a shader that can write states; in place it leaves no elements out."""
        in_place = isinstance(target, InPlace)
        return constants_of(
            self.problem,
            self.limits,
            self.problem.outputs if in_place else (),
            segmented=segmented and not in_place,
            to_states=not in_place,
            **own,
        )

    def source_push(self, segment: int, shift: int = 0) -> dict[str, Any]:
        """The push constants for the bound segment of the input; an address is what shaders compute, plus `shift`."""
        return segment_push("source", self.problem.sources[0].segment, segment, shift)

    def target_binding(self, begin: int, output: int, base: str, target: Target) -> Binding:
        """The binding of an output tensor, or of the states."""
        if isinstance(target, States):
            return Binding(Role.STATES, base=base, written=True)
        return self.output_binding(begin, output, base)

    def target_base(self, begin: int, end: int, output: int, target: Target) -> int:
        """Where states begin; in place what to add to the number of an output for its place in the segment."""
        if isinstance(target, States):
            return target.first * (end - begin) * self.state_words
        return wrapped(self.place(begin, output) - begin)


@dataclass(frozen=True)
class PlanesKernel(RangedKernel):
    """A kernel over (batch, channel) planes: source and outputs have the same number of them."""

    @cached_property
    def planes(self) -> Dim:
        """Those of the source: `planes_of`."""
        return planes_of(self.source)

    @property
    def plane_outputs(self) -> int:
        """Outputs of a plane."""
        return math.prod(self.problem.outputs[0].tensor.sizes[2:])

    def fits(self, tiling: Tiling) -> bool:
        """Whether a dispatch can compute a word of outputs."""
        return tiling.most_outputs(self.limits) >= self.per_word

    def planes_rules(self, in_place: Tiling, with_states: Tiling) -> RangeRules:
        """Ranges of outputs in planes that have one stride."""
        writes = self.problem.has_packed_outputs and self.fits(in_place)
        return RangeRules(
            outputs_in_place=self._whole_words(in_place) if writes else 0,
            outputs_with_states=self._whole_words(with_states),
            tilings=(with_states,),
            ascending=ascend(merged(map(Dim, self.source.sizes, self.source.element_strides))),
            alignment=self.per_word,  # whole words are written
            boundary=self.planes.size * self.plane_outputs,
        )

    def _whole_words(self, tiling: Tiling) -> int:
        """Outputs of a dispatch, at most: whole words; one at least, which `lower()` refuses where it does not fit."""
        most = min(tiling.most_outputs(self.limits), self.limits.dispatch_elements // tiling.elements)
        return max(most // self.per_word, 1) * self.per_word

    def plane_shift(self, begin: int) -> int:
        """Shaders address planes with one stride: what to add to that for the address, from output `begin` on."""
        plane = begin // self.plane_outputs // self.planes.size * self.planes.size
        batch = plane // self.source.sizes[1] * self.source.element_strides[0]
        return batch - plane * self.planes.stride

    def source_place(self, begin: int, segment: int, target: Target) -> dict[str, Any]:
        """The push constants for the bound segment of the source; in place only its base."""
        push = self.source_push(segment, self.plane_shift(begin))
        return push if isinstance(target, States) else {"source_base": push["source_base"]}


@dataclass(frozen=True)
class WholeRowsKernel(PlanesKernel):
    """A kernel over planes that writes whole rows of outputs in place. Its fallback computes the rest, and states."""

    @cached_property
    @abstractmethod
    def fallback(self) -> PlanesKernel:
        """The kernel over the same windows, of any size."""

    @cached_property
    @abstractmethod
    def in_place(self) -> Tiling:
        """How it writes outputs."""

    @property
    @abstractmethod
    def unit(self) -> int:
        """Outputs that it can write alone: rows, of which a slab has a multiple; or slabs, if these share words."""

    @property
    def shares_words(self) -> bool:
        """Whether two rows of outputs may share a word."""
        return self.problem.outputs[0].tensor.sizes[-1] % self.per_word != 0

    @property
    def whole_slabs(self) -> int:
        """Outputs of the fewest slabs that end with a word."""
        return math.lcm(math.prod(self.problem.outputs[0].tensor.sizes[-2:]), self.per_word)

    @property
    def why_no_slabs(self) -> str:
        """Why a dispatch cannot have slabs that end with a word, if rows share words; empty if it can."""
        if self.shares_words and self.whole_slabs > min(self.most_outputs, self.most_left):
            return "rows of outputs share words, and slabs that end with a word are too large for a dispatch"
        return ""

    @property
    def work(self) -> int:
        return self.problem.output_count * self.in_place.elements

    @property
    def most_outputs(self) -> int:
        """Outputs that a dispatch should have, at most."""
        tiling = self.in_place
        return min(tiling.most_outputs(self.limits), self.limits.dispatch_elements // tiling.elements)

    @property
    def most_left(self) -> int:
        """Outputs that a dispatch of the fallback can have, in place and with states."""
        rules = self.fallback.rules
        return min(rules.outputs_in_place or rules.outputs_with_states, rules.outputs_with_states)

    @cached_property
    def rules(self) -> RangeRules:
        rules, most, slab = self.fallback.rules, self.most_outputs, self.whole_slabs
        most = most // slab * slab or max(most // self.unit, 1) * self.unit
        # Ranges are whole slabs that end with a word, or parts of one. The fallback takes what is shorter.
        slabs = slab <= min(most, self.most_left)
        return replace(
            rules,
            outputs_in_place=most if rules.outputs_in_place else 0,
            alignment=slab if slabs else self.unit,
            boundary=rules.boundary if slabs else slab,
        )

    def pieces(self, begin: int, end: int) -> Sequence[Piece]:
        return self.fallback.pieces(begin, end)

    def covers(self, begin: int, end: int, piece: Piece, target: Target) -> bool:
        ends = end % self.rules.alignment == 0 or end == self.problem.output_count
        return isinstance(target, InPlace) and begin % self.rules.alignment == 0 and ends
