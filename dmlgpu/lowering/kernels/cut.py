"""Cuts a problem into parts. Each part is one dispatch, of the first kernel that can compute it.

Outputs are cut into ranges first, then the elements of each range, by their segments:

                   outputs ------>
    elements       +-----------------+--------+-----------------+     a, c: all elements are in one segment, so that
       |           |                 |   b    |                 |           the part writes the outputs
       v           |        a        +--------+        c        |     b, b': elements are in two segments, so that each
                   |                 |   b'   |                 |           part writes partials, which combine.comp
                   +-----------------+--------+-----------------+           combines into the outputs

If outputs begin at different addresses, b and b' overlap: a part has every element that any of its outputs has in the
segment, and the shader skips elements in other segments (SEGMENTED; `Part.whole` is False). Over windows both parts
often have all elements.

If each tensor has one segment, nearly every range is one part. Parts also write partials if

- an output has too many elements for an invocation, or several invocations should share it (`Rules.split_size`);
- no kernel can write these outputs (`Rules.outputs_without_partials`, `why_not`).

The memory for partials bounds a range of outputs, even if so few outputs would need none. Parts with too many elements
for a dispatch are cut again, but only their elements: combine.comp needs partials that are equally spaced.
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from dmlgpu.descriptors.tensor import MAX_ELEMENTS
from dmlgpu.lowering.geometry import Dim, segments_touched
from dmlgpu.lowering.kernels.combine import combine, most_combined, partial_count
from dmlgpu.lowering.kernels.kernel import WORKSPACE_SHARE, Kernel, constants_of, segment_push, wrapped
from dmlgpu.lowering.limits import Limits
from dmlgpu.lowering.plan import Binding, Dispatch
from dmlgpu.lowering.problem import Role

# With more outputs in a dispatch a counter of a shader could wrap around at 2^32.
_MAX_OUTPUTS = 1 << 31
# If outputs alternate between segments, a range of outputs that are cut alike (`_are_alike`) has at least
# 1/_LEAST_SHARE of the possible outputs.
_LEAST_SHARE = 16


@dataclass(frozen=True)
class Part:
    """Some elements of some outputs, in one segment of each source."""

    outputs: range
    elements: range
    """Their numbers within an output, counted in elements along axes, splits of a window, or windows that cover it."""
    split_size: int
    """Elements that an invocation combines per output."""
    segments: tuple[int, ...]
    """Segment of each source."""
    whole: bool
    """Whether all of the elements are in the segments, for every output. Otherwise the shader skips some."""
    writes_outputs: bool = False
    """Whether it writes the outputs, not partials of them."""
    partials_before: int = 0
    """Partials of each output from parts before this one; its partials come after."""

    @property
    def splits(self) -> int:
        """Splits of each output, if it writes partials."""
        return -(-len(self.elements) // self.split_size)

    def cut(self, splits: int, partials: int, columns: int = 1) -> Iterator[Part]:
        """Parts of at most `splits` splits, with `columns` partials of each output, after `partials` others."""
        for first in range(0, self.splits, splits):
            elements = self.elements[first * self.split_size : (first + splits) * self.split_size]
            yield replace(self, elements=elements, partials_before=partials + first * columns)


@dataclass(frozen=True)
class Extent:
    """The addresses of some outputs' elements in a source, in steps of `step_elements` elements, `stride` apart."""

    lowest: int
    """Lowest address of an element, without the offsets along `dims`; `highest` likewise."""
    highest: int
    steps: range
    """Steps with elements in the source."""
    dims: tuple[Dim, ...] = ()
    """Further dimensions of the elements."""
    first_begin: int = 0
    """First address of step 0 of the first output, even if outside the source; step s is s * stride after it."""
    last_end: int = 0
    """Last address of step 0 of the last output."""
    stride: int = 0
    """Distance of steps; 0: steps may be anywhere."""
    step_elements: int = 1
    """Elements of a step, as `Part.elements` numbers them."""

    def segments(self, size: int) -> tuple[int, ...]:
        """The segments of `size` elements each that may contain an element."""
        return segments_touched(self.lowest, self.highest, self.dims, size)

    def within(self, segment: int, size: int) -> tuple[range, range]:
        """The elements that any output has in a segment, and those that all outputs have there.

        An output that begins later has elements with lower numbers in a segment:

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
        """The elements of these steps, without steps outside the source."""
        begin, end = max(steps.start, self.steps.start), min(steps.stop, self.steps.stop)
        return range(begin * self.step_elements, end * self.step_elements)


@dataclass(frozen=True)
class Tiling:
    """The tile of outputs that an invocation, or `threads` of them, computes per iteration of the outermost loop.

    Outputs are one row, or rows of `row` outputs each; `rows` rows are a slab. Rows and slabs begin with a new tile:

        a slab of 3 rows    | tile  | tile  | ti |      rows of 18 outputs, tiles of 8 x 2
                            |       |       |    |
                            +-------+-------+----+
                            | tile  | tile  | ti |
    """

    width: int
    """Outputs of a tile, along a row."""
    elements: int
    """Maximum of elements that an item combines per output."""
    loads: int
    """Loads of an item, as `Limits.invocation_loads` counts them."""
    threads: int = 1
    """Invocations that share an item."""
    height: int = 1
    """Rows of a tile."""
    row: int = MAX_ELEMENTS
    """Outputs of a row."""
    rows: int = 1
    """Rows of a slab."""

    def items(self, outputs: int) -> int:
        """Number of items of `outputs` outputs: of whole slabs, of whole rows of one, or of a part of a row."""
        row = min(self.row, outputs)
        rows = min(self.rows, outputs // row)
        return outputs // row // rows * -(-rows // self.height) * -(-row // self.width)

    def most_items(self, limits: Limits) -> int:
        """Maximum of items per dispatch; 0 if one has too many loads."""
        return limits.most_items(self.loads, self.threads)

    def most_outputs(self, limits: Limits) -> int:
        """Maximum of outputs per dispatch: whole slabs, or else whole rows of one, or else a part of a row."""
        items = self.most_items(limits)
        for whole in self.row * self.rows, self.row * self.height, self.width:
            if count := items // self.items(whole):
                return count * whole
        return 0

    def dispatch_outputs(self, limits: Limits) -> int:
        """Outputs per dispatch: as many as fit, with at most about `Limits.dispatch_elements` elements; 0 if none."""
        return min(self.most_outputs(limits), limits.dispatch_elements // self.elements)


@dataclass(frozen=True)
class Rules:
    """A kernel's rules for cutting a problem."""

    outputs_without_partials: int
    """Maximum of outputs of a part that writes them; 0: no part can."""
    outputs_with_partials: int
    """Maximum of outputs of a part that writes partials."""
    tilings: tuple[Tiling, ...]
    """Tilings of parts that write partials, one for each kernel that may compute them."""
    split_size: int
    """Elements of a split, as `Part.elements` numbers them."""
    ascending: bool
    """Whether outputs ascend in the source, so that they rarely change segments."""
    step: int = 1
    """Parts begin at multiples of so many outputs if possible."""
    boundary: int = MAX_ELEMENTS
    """No part has outputs on both sides of a multiple of this."""

    def end(self, begin: int, end: int) -> int:
        """An end at which the next part can begin: up to `end`, a multiple of `step` if there is one."""
        over = end % self.step
        return end - over if over < end - begin else end

    def next(self, begin: int) -> int:
        """The first multiple of `step` after an output."""
        return (begin // self.step + 1) * self.step


@dataclass(frozen=True)
class PartKernel(Kernel):
    """A kernel that computes parts of a problem."""

    # What a kernel defines

    @cached_property
    @abstractmethod
    def rules(self) -> Rules:
        """The rules for cutting the problem."""

    @property
    @abstractmethod
    def element_count(self) -> int:
        """Elements of an output, or splits of its window, or windows that may cover it."""

    @abstractmethod
    def extents(self, outputs: range) -> tuple[Extent, ...]:
        """The addresses of some outputs' elements in each source."""

    def why_not(self, part: Part) -> str:
        """Why it cannot compute a part; empty if it can."""
        return ""

    @abstractmethod
    def dispatch(self, part: Part) -> Dispatch:
        """The dispatch of a part that it can compute."""

    @property
    def fallbacks(self) -> tuple[PartKernel, ...]:
        """The kernels that compute the parts that it cannot, in the order in which they are tried."""
        return ()

    @property
    def output_columns(self) -> int:
        """Partials that an output has for each split: more than one if columns.comp has several columns of it."""
        return 1

    # Dispatches

    def dispatches(self) -> Iterator[tuple[Dispatch, int]]:
        return self.dispatches_of(range(self.problem.output_count))

    def dispatches_of(self, outputs: range) -> Iterator[tuple[Dispatch, int]]:
        """The dispatches of some outputs, as `dispatches`."""
        while outputs:
            parts = self._first_parts(outputs)
            if parts[0].writes_outputs:
                yield self._kernel(parts[0]).dispatch(parts[0]), 0
            else:
                yield from self._with_partials(parts)
            outputs = outputs[len(parts[0].outputs) :]

    def _kernel(self, part: Part) -> PartKernel:
        """The first kernel that can compute a part."""
        return next(kernel for kernel in (self, *self.fallbacks) if not kernel.why_not(part))

    def _with_partials(self, parts: list[Part]) -> Iterator[tuple[Dispatch, int]]:
        """The dispatches that write the partials of the same outputs, and those that combine them."""
        outputs, count = parts[0].outputs, sum(map(self._partials, parts))
        size = 4 * self.partial_words * partial_count(self.limits, count) * len(outputs)
        partials, at_once = 0, self._splits_at_once(len(outputs))
        for part in parts:
            kernel = self._kernel(part)
            for smaller in part.cut(at_once, partials, kernel.output_columns):
                yield kernel.dispatch(smaller), size
            partials += self._partials(part)
        for dispatch in combine(self.problem, self.limits, outputs.start, outputs.stop, count):
            yield dispatch, size

    def _partials(self, part: Part) -> int:
        """Partials of each output of a part."""
        return part.splits * self._kernel(part).output_columns

    def _splits_at_once(self, outputs: int) -> int:
        """Maximum of splits of each output in a dispatch of `outputs` outputs."""
        elements = self.limits.dispatch_elements // outputs
        most = [
            min(tiling.most_items(self.limits) // tiling.items(outputs), elements // tiling.elements)
            for tiling in self.rules.tilings
        ]
        return max(1, min(most))

    # How outputs are cut

    def _first_parts(self, outputs: range) -> list[Part]:
        """The parts of the first range of outputs."""
        rules, sources, outputs = self.rules, self.problem.sources, self._bounded(outputs)
        if all(source.segment_count == 1 for source in sources):
            segments = (0,) * len(sources)
            part = Part(outputs, range(self.element_count), rules.split_size, segments, whole=True, writes_outputs=True)
            if self._can_write(part):
                return [part]
        outputs = self._alike(outputs)
        while True:
            parts = self._parts(outputs)
            if len(parts) == 1 and self._can_write(part := replace(parts[0], writes_outputs=True)):
                return [part]
            count = sum(map(self._partials, parts))
            most = min(rules.outputs_with_partials, self.most_partials // count, most_combined(self.limits, count))
            if len(outputs) <= max(1, most):
                return parts
            # Repeat, because the elements of fewer outputs are cut elsewhere, and may have more partials than before.
            outputs = range(outputs.start, rules.end(outputs.start, outputs.start + max(1, most)))

    def _can_write(self, part: Part) -> bool:
        """Whether a kernel can compute a part that writes its outputs."""
        return self.rules.outputs_without_partials > 0 and not all(
            kernel.why_not(part) for kernel in (self, *self.fallbacks)
        )

    def _bounded(self, outputs: range) -> range:
        """The first outputs, as many as the rules allow a part, in one segment of each output tensor."""
        rules, begin = self.rules, outputs.start
        at_step = begin % rules.step == 0
        most = (at_step and rules.outputs_without_partials) or rules.outputs_with_partials
        bounds = (rules.boundary, *(output.segment_size for output in self.problem.outputs))
        ends = [(begin // bound + 1) * bound for bound in bounds]
        end = min(outputs.stop, begin + min(most, _MAX_OUTPUTS), *ends)
        end = end if at_step else min(end, rules.next(begin))
        return range(begin, end if end == outputs.stop else rules.end(begin, end))

    def _alike(self, outputs: range) -> range:
        """The first of these outputs: those whose elements are cut alike (`_are_alike`), or more if they are few."""
        rules, begin = self.rules, outputs.start
        if self._are_alike(outputs):
            return outputs
        # If outputs are cut alike, so are the first of them.
        ends = range(rules.next(begin), outputs.stop, rules.step)
        count = bisect_left(ends, True, key=lambda end: not self._are_alike(range(begin, end)))
        alike = range(begin, ends[count - 1]) if count else range(0)
        if rules.ascending:
            return alike or self._until_alike(outputs)
        # Outputs alternate between segments.
        return alike if len(alike) * _LEAST_SHARE >= len(outputs) else outputs

    def _until_alike(self, outputs: range) -> range:
        """The outputs before the next ones that are cut alike."""
        begin, end = outputs.start, self.rules.next(outputs.start)
        while end < outputs.stop:
            if self._are_alike(range(end, min(self.rules.next(end), self.problem.output_count))):
                return range(begin, end)
            end = self.rules.next(2 * end - begin - 1)  # twice as far; that may pass the next such outputs
        return outputs

    def _are_alike(self, outputs: range) -> bool:
        """Whether all outputs have the same elements in each segment, so that no shader skips any."""
        return all(part.whole for part in self._parts(outputs))

    # How elements are cut

    def _parts(self, outputs: range) -> list[Part]:
        """The parts of outputs, one for each combination of segments of the sources."""
        extents, sizes = self.extents(outputs), [source.segment_size for source in self.problem.sources]
        touched = [extent.segments(size) for extent, size in zip(extents, sizes, strict=True)]
        parts = []
        for segments in itertools.product(*touched):
            within = [extent.within(*place) for extent, *place in zip(extents, segments, sizes, strict=True)]
            elements = within[0][0]
            if elements:
                whole = all(of_any == of_all for of_any, of_all in within)
                parts.append(Part(outputs, elements, self.rules.split_size, segments, whole))
        return parts

    # Arguments of dispatches

    @property
    def most_partials(self) -> int:
        """Maximum of partials of a range of outputs, unless one output has more."""
        limits = self.limits
        most = max(limits.partial_bytes, self.source.size_in_bytes // WORKSPACE_SHARE)
        return min(most, limits.segment_bytes) // (4 * self.partial_words)

    @property
    def partial_words(self) -> int:
        """Words of a partial result."""
        return self.problem.accumulator.partial_words(self.source.data_type)

    def is_aligned(self, *steps: int) -> bool:
        """Whether all these distances, in elements, are multiples of a vector."""
        return math.gcd(self.vector_size, *steps) == self.vector_size

    def loads(self, part: Part, tiling: Tiling) -> int:
        """Loads of an invocation of a part's dispatch."""
        items = tiling.items(len(part.outputs)) * (1 if part.writes_outputs else part.splits)
        return self.limits.loads(items, tiling.loads, tiling.threads)

    def constants(self, part: Part, *, segmented: bool = False, **constants: int) -> dict[str, int]:
        """The specialization constants of a shader that can write partials; only then it skips elements."""
        return constants_of(
            self.problem,
            self.limits,
            self.problem.outputs if part.writes_outputs else (),
            segmented=segmented and not part.writes_outputs,
            to_partials=not part.writes_outputs,
            **constants,
        )

    def source_push(self, segment: int, shift: int = 0) -> dict[str, Any]:
        """The push constants for the bound segment of the input; `shift` is added to the shaders' addresses."""
        return segment_push("source", self.problem.sources[0].segment_size, segment, shift)

    def target_binding(self, part: Part, output: int, base: str) -> Binding:
        """The binding of output tensor `output`, or of the partials."""
        if part.writes_outputs:
            return self.output_binding(part.outputs.start, output, base)
        return Binding(Role.PARTIALS, base=base, written=True)

    def target_base(self, part: Part, output: int) -> int:
        """The offset of the first output in its segment minus its number; or the first word of its partials."""
        begin = part.outputs.start
        if part.writes_outputs:
            return wrapped(self.output_offset(begin, output) - begin)
        return part.partials_before * len(part.outputs) * self.partial_words
