"""The three top_k_*.comp: the first k elements of each line, in order, with their indices.

An invocation keeps a list of the first 8, 16 or 64 elements of a part of the line. If k is greater, a part has no more
elements than that, and lists are merged four by four, which keeps the first k entries:

    elements   [ 16 ][ 16 ][ 16 ][ 16 ][ 16 ][ 16 ][ 16 ][ 3 ]     k = 40
    merged     [          40          ][          40         ]
               [          40          ]                             the outputs

Otherwise there are as many parts as invocations, and top_k_sort.comp also merges their lists, up to _PARTS at a time.

Lines of many times k elements are not sorted as a whole, but divided into groups. The first elements of groups are
sorted in this way, then all elements of the groups of the first k of these: no other group has one of the first k
elements of the line. If k is at most 64, the invocation that has the last list of a line sorts these elements, too.

    groups     [ 3 9 1 ][ 4 4 2 ][ 7 8 5 ][ 1 0 6 ]           k = 2
    first      [     9          4         8        6 ]         9 and 8: the first and the third group

Lists are partial results. Passes write the two halves of their memory alternately. Lines that do not fit in a half are
computed in chunks of elements, each merged with the result of those before. A chunk also ends where a segment ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from dmlgpu.errors import DescriptorError
from dmlgpu.lowering.geometry import power_of_2, runs_of_segments
from dmlgpu.lowering.kernels.kernel import (
    BINDABLE,
    WORKSPACE_SHARE,
    Kernel,
    constants_of,
    segment_push,
    shader_of,
    wrapped,
)
from dmlgpu.lowering.plan import Binding, Dispatch, Values
from dmlgpu.lowering.problem import Lines, Role

# Entries of a list in registers, and elements of a row (top_k_sort.comp). Items of top_k_merge.comp have a multiple of
# _BLOCK entries of _WAYS lists.
_SHORT, _MIDDLE, _LONG, _ROW, _BLOCK, _WAYS = 8, 16, 64, 8, 4, 4
# Maximum of lists that an item of top_k_sort.comp merges.
_PARTS = 64
# Elements of a line, divided by k, from which on groups are faster.
_GROUPED = 16
# Time for a group's first element, divided by the time for an element of a chosen group, most of which are dropped.
_DROPPED = 4


@dataclass(frozen=True)
class _Lists:
    """The lists of a line; absent entries fill up the last one."""

    count: int
    size: int

    @property
    def entries(self) -> int:
        """Entries of all lists."""
        return self.count * self.size


class _Pass(NamedTuple):
    """A pass of top_k_sort.comp if `group` is not 0, otherwise of top_k_merge.comp."""

    lists: _Lists
    """The lists of a line that it writes."""
    group: int = 0
    """Elements of a group, a power of 2."""
    item: int = 0
    """Groups of an item, or elements of chosen groups."""
    chosen: int = 0
    """Entries of the lists of the pass before, if their groups are chosen."""
    next_group: int = 0
    """Elements of a group, if the entries of a line's only list then choose groups to be sorted; otherwise 0."""

    @property
    def loads(self) -> int:
        """Loads of an item of top_k_sort.comp."""
        return self.item * (2 if self.chosen else self.group) + 2 * self.lists.size * self.next_group


class _Chunk(NamedTuple):
    """Elements of a line in one segment."""

    begin: int
    end: int
    segment: int


@dataclass(frozen=True)
class TopK(Kernel):
    """Sorted lists of elements, which are merged."""

    name: ClassVar = "top_k"
    variants: ClassVar = {
        "top_k_sort": "sorts elements, or the first elements of groups, in lists of up to 16",
        "top_k_sort_long": "sorts elements, or the first elements of groups, in lists of up to 64",
        "top_k_merge": "merges sorted lists, four by four, and keeps the first entries",
        "top_k_write": "writes the entries of the last list of each line to the outputs",
    }

    @cached_property
    def lines(self) -> Lines:
        domain = self.problem.domain
        assert isinstance(domain, Lines)
        return domain

    @cached_property
    def elements(self) -> int:
        passes = self._passes(self.lines.element.size)
        return self.lines.count * (self.lines.element.size + sum(one.lists.entries for one in passes))

    @cached_property
    def entry_words(self) -> int:
        """Words of an entry: an index, and the bits of an element."""
        return self.problem.accumulator.state_words(self.source.data_type)

    @cached_property
    def _entries(self) -> int:
        """Number of entries that fit in a half."""
        lines, bytes_of_both = self.lines, 2 * 4 * self.entry_words
        most = max(self.limits.segment_bytes, BINDABLE) // bytes_of_both
        room = self._room(lines.element.size)
        # Entries besides the k of the result so far are for a chunk.
        least = lines.k + max(lines.k // 4, self._list) + self._list
        if least > most:
            raise DescriptorError(
                f"TopK1OperatorDesc.k: {lines.k} is not allowed for {self.source.data_type.name}; allowed on this "
                f"device are numbers up to {most * 4 // 5 - self._list}"
            )
        share = max(self.limits.temporary_bytes, self.source.size_in_bytes // WORKSPACE_SHARE)
        return max(least, min(lines.count * room, min(share, self.limits.segment_bytes) // bytes_of_both))

    def _room(self, elements: int) -> int:
        """Maximum of entries of a line after a pass."""
        return max(one.lists.entries for one in self._passes(elements))

    # Passes

    @cached_property
    def _list(self) -> int:
        """Entries of a list in registers."""
        k, size = self.lines.k, self.lines.element.size
        # 64 need too many registers on a GPU, and SwiftShader keeps arrays in memory.
        few = self.limits.cooperating or not self.limits.unrolls or self.limits.invocation_loads < 8 * _LONG
        if k <= _SHORT or size <= 3 * _SHORT or (few and k <= _MIDDLE):
            return _SHORT
        # With elements of 64 bits and k above 64, lists of 16 take 0.9 to 1.3 times as long on lavapipe as lists of 64,
        # and compile in half the time.
        return _MIDDLE if few or (k > _LONG and self.source.data_type.bits == 64) else _LONG

    @property
    def _in_turns(self) -> bool:
        """Whether top_k_sort.comp loads two elements at a time.

        On Mesa 25 it then compiles in half the time, but later calls take 1.2 times as long. top_k_merge.comp does so
        with elements of any type: later calls take 0.95 to 1.1 times as long.
        """
        return self.limits.gathers and self.source.data_type.bits == 64 and self.lines.k > _SHORT

    @cached_property
    def _busy(self) -> int:
        """Number of invocations that keep the device busy: on a CPU a SIMD vector of each workgroup."""
        return min(self.limits.busy_invocations, self.limits.group_count * self.limits.simd_width)

    def _passes(self, elements: int) -> list[_Pass]:
        """The passes that reduce a line, or a chunk of it, to one list."""
        k = self.lines.k
        if elements < _GROUPED * k:
            return self._sorted(elements)
        most = self.limits.invocation_loads // (4 * self._list)
        ratio = _DROPPED if k <= self._list else 1
        group = max(_ROW, power_of_2(min(math.isqrt(ratio * elements // k), most)))
        *before, last = self._sorted(elements, group)
        both = last._replace(next_group=group)
        if last.group and both.loads < self.limits.invocation_loads:
            return [*before, both]
        return [*before, last, *self._sorted(k * group, group, chosen=k)]

    def _sorted(self, elements: int, group: int = 1, chosen: int = 0) -> list[_Pass]:
        """Passes that sort elements, or the first ones of groups, and merge them."""
        k, size = self.lines.k, self._list
        rows = -(-elements // (_ROW if chosen else _ROW * group))
        item = size
        if k <= size:
            # There are parts for all invocations, with no more loads than one may have.
            parts = -(-self._busy // self.lines.count)
            most = self.limits.invocation_loads // (4 if chosen else 2 * group) // _ROW
            item = max(item, min(-(-rows // parts), most) * _ROW)
        passes: list[_Pass] = []
        while not passes or passes[-1].lists.count > 1:
            if not passes:
                lists = _Lists(-(-rows * _ROW // item), size)
            elif k > size or self.limits.cooperating:
                group, before = 0, passes[-1].lists
                lists = _Lists(-(-before.count // _WAYS), min(_WAYS * before.size, k))
            else:
                most = self.limits.invocation_loads // (4 * size)
                group, chosen, item = 1, passes[-1].lists.entries, max(2, min(_PARTS, most)) * size
                lists = _Lists(-(-chosen // item), size)
            if lists.count == 1:
                lists = _Lists(1, min(k, lists.size, passes[-1].lists.entries if passes else k))
            passes.append(_Pass(lists, group, item, chosen))
        return passes

    # Dispatches

    def dispatches(self) -> Iterator[tuple[Dispatch, int]]:
        lines, element = self.lines, self.lines.element
        reach = (element.size - 1) * element.stride
        at_once = self._entries // self._room(element.size)
        for run, segment in runs_of_segments(
            0, (lines.outer, lines.inner), reach, self.problem.sources[0].segment_size
        ):
            if segment is not None and at_once:
                for first in range(run.start, run.stop, at_once):
                    lines_at_once = range(first, min(first + at_once, run.stop))
                    yield from self._line_dispatches(lines_at_once, [_Chunk(0, element.size, segment)])
            else:
                for line in run:
                    yield from self._line_dispatches(range(line, line + 1), self._chunks(line))

    def _chunks(self, line: int) -> Iterator[_Chunk]:
        lines, (source,) = self.lines, self.problem.sources
        outer, inner = divmod(line, lines.inner.size)
        address = outer * lines.outer.stride + inner * lines.inner.stride
        begin, room = 0, self._entries - lines.k - self._list
        while begin < lines.element.size:
            segment = (address + begin * lines.element.stride) // source.segment_size
            end = lines.element.size
            if lines.element.stride:
                end = min(end, -(-((segment + 1) * source.segment_size - address) // lines.element.stride))
            while self._room(end - begin) > room:
                end = begin + max(1, (end - begin) * 3 // 4 // self._list) * self._list
            yield _Chunk(begin, end, segment)
            begin = end

    def _line_dispatches(self, lines: range, chunks: Iterable[_Chunk]) -> Iterator[tuple[Dispatch, int]]:
        """The dispatches of some lines, whose chunks are computed one after the other."""
        # The list of the result so far has `kept` entries, at the start of a half.
        kept, half = 0, 0
        for chunk in chunks:
            passes, lists = self._passes(chunk.end - chunk.begin), _Lists(1, 0)
            grouped = any(one_pass.chosen or one_pass.next_group for one_pass in passes)
            for later, one_pass in zip(reversed(range(len(passes))), passes, strict=True):
                # The last pass writes after the result so far.
                read, written = (1 - half, half) if later % 2 == 0 else (half, 1 - half)
                if one_pass.group:
                    yield from self._sort(lines, chunk, one_pass, (read, kept), (written, kept), grouped)
                else:
                    yield from self._merge(lines, lists, lists.size, one_pass.lists, (read, kept), (written, kept))
                lists = one_pass.lists
            if kept:
                merged = _Lists(1, min(self.lines.k, kept + lists.size))
                yield from self._merge(lines, _Lists(2, kept), lists.size, merged, (half, 0), (1 - half, 0))
                lists, half = merged, 1 - half
            kept = lists.size
        yield from self._write(lines, kept, half)

    def _sort(
        self,
        lines: range,
        chunk: _Chunk,
        one: _Pass,
        read: tuple[int, int],
        written: tuple[int, int],
        grouped: bool,
    ) -> Iterator[tuple[Dispatch, int]]:
        domain, (source,) = self.lines, self.problem.sources
        push = {
            "first_line": lines.start,
            "item_size": one.item,
            "line_count": len(lines),
            "list_count": one.lists.count,
            "list_size": one.lists.size,
            "group_shift": one.group.bit_length() - 1,
            "first_element": chunk.begin,
            "element_count": chunk.end - chunk.begin,
            "chosen_count": one.chosen,
            "chosen_size": self._list if one.chosen and one.group == 1 else _ROW,
            "chosen_base": wrapped((read[0] - written[0]) * self._entries * self.entry_words),
            "step_count": 2 if one.next_group else 1,
            "next_shift": max(0, one.next_group.bit_length() - 1),
            "outer_stride": wrapped(domain.outer.stride),
            "inner_stride": domain.inner.stride,
            "inner_size": domain.inner.size,
            "element_stride": domain.element.stride,
            "source_base": wrapped(-chunk.segment * source.segment_size),
        }
        bindings = self.source_binding(chunk.segment), self._bound(push, "target_base", written, is_written=True)
        steps = domain.outer.stride, domain.inner.stride, domain.element.size, chunk.begin
        contiguous, fits = domain.element.stride == 1, self.vector_size <= _ROW and not self._in_turns
        aligned = contiguous and fits and math.gcd(self.vector_size, *steps, chunk.end) == self.vector_size
        constants = {"contiguous": contiguous, "aligned": aligned, "grouped": grouped, "in_turns": self._in_turns}
        variant = "top_k_sort_long"
        if self._list < _LONG:
            variant, constants = "top_k_sort", {**constants, "sixteen": self._list == _MIDDLE}
        yield from self._items(variant, len(lines) * one.lists.count, one.loads, lines, push, constants, bindings)

    def _merge(
        self, lines: range, lists: _Lists, second: int, merged: _Lists, read: tuple[int, int], written: tuple[int, int]
    ) -> Iterator[tuple[Dispatch, int]]:
        """Merges lists, four by four; all but the first list of a line have `second` entries."""
        least = -(-len(lines) * merged.entries // self._busy)
        size = -(-min(merged.size, least, self.limits.invocation_loads // 4) // _BLOCK) * _BLOCK
        push = {
            "item_size": size,
            "list_count": lists.count,
            "list_size": lists.size,
            "second_size": second,
            "merged_count": merged.count,
            "merged_size": merged.size,
        }
        bindings = self._bound(push, "source_base", read), self._bound(push, "target_base", written, is_written=True)
        items = len(lines) * merged.count * -(-merged.size // size)
        # The last term is a search.
        loads = size + _WAYS * _BLOCK + 4 * (_WAYS * lists.size).bit_length()
        constants = {"in_turns": self.limits.gathers}
        yield from self._items("top_k_merge", items, loads, lines, push, constants, bindings)

    def _write(self, lines: range, size: int, half: int) -> Iterator[tuple[Dispatch, int]]:
        """Writes the list of each line, for each pair of segments of both outputs that may contain it."""
        pair, inner, k = self.problem.outputs, self.lines.inner_outputs, self.lines.k
        begin, end = lines.start // inner * inner * k, -(-lines.stop // inner) * inner * k
        while begin < end:
            push = {"first_line": lines.start, "list_size": size, "k": k, "inner": inner}
            bindings = [self._bound(push, "source_base", (half, 0))]
            for i, name in enumerate(["values", "indices"]):
                push |= segment_push(name, pair[i].segment_size, begin // pair[i].segment_size)
                bindings.append(self.output_binding(begin, i, f"{name}_base"))
            yield from self._items("top_k_write", len(lines) * k, 1, lines, push, {"in_turns": False}, tuple(bindings))
            begin = min((begin // output.segment_size + 1) * output.segment_size for output in pair)

    def _bound(self, push: dict[str, Any], base: str, place: tuple[int, int], *, is_written: bool = False) -> Binding:
        """The binding of lists that are read or written; `place` is a half, and its first entry for them."""
        half, first = place
        push[base] = (half * self._entries + first) * self.entry_words
        return Binding(Role.PARTIALS, base=base, written=is_written)

    def _items(
        self,
        variant: str,
        items: int,
        loads: int,
        lines: range,
        push: Mapping[str, Any],
        constants: Mapping[str, int],
        bindings: tuple[Binding, ...],
    ) -> Iterator[tuple[Dispatch, int]]:
        """The dispatches of all items of a pass, with `loads` loads each."""
        written = self.problem.outputs if variant == "top_k_write" else ()
        all_constants = constants_of(
            self.problem,
            self.limits,
            written,
            increasing=self.lines.increasing,
            **constants,
        )
        shader = shader_of(variant, self.problem, all_constants, built_in=True)
        outputs = range(lines.start * self.lines.k, lines.stop * self.lines.k)
        most = self.limits.dispatch_items(loads, loads)
        for first in range(0, items, most):
            count = min(most, items - first)
            values = Values(**push, first_item=first, item_count=count)
            dispatch = Dispatch(shader, values, bindings, self.limits.loads(count, loads), outputs)
            yield dispatch, 2 * self._entries * self.entry_words * 4
