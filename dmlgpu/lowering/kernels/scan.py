"""scan.comp and scan_states.comp: cumulative sums and products, first reduced, then scanned (Blelloch, 1990).

One item scans a line from its first element on. If that keeps too few invocations busy, or a line is very long, lines
are divided into blocks, in three steps:

    elements   [ 1 2 1 ][ 3 1 2 ][ 5 1 1 ]       the states of blocks       [ 4 6 7 ]    scan.comp
                                                 those before each block    [ 0 4 10 ]   scan_states.comp
    outputs    [ 1 3 4 ][ 7 8 10 ][ 15 16 17 ]   each block from there on                scan.comp

Each step ends before the next one begins, so that no workgroup waits for another.

An item loads a vector, of a line or of neighbouring lines, if vectors begin at multiples of 16 bytes. On lavapipe (Mesa
25) `scan`, element by element, takes 1.3 times as long as `scan_rows` and 1.1 times as long as `scan_columns`; for
float16 6 and 5 times. On a GPU several invocations share a block (`scan_rows_cooperating`), so that neighbouring ones
load neighbouring vectors; on lavapipe that takes 13 times as long.

If lines are in several segments, they are cut into boxes: elements of neighbouring lines, in one segment of the input
and one of the output. The boxes of a line run one after the other; memory keeps the line's state between them. States
are partial results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from dmlgpu.lowering.geometry import Dim, even_part, power_of_2
from dmlgpu.lowering.kernels.kernel import WORKSPACE_SHARE, Kernel, constants_of, shader_of, wrapped
from dmlgpu.lowering.plan import Binding, Dispatch, NumberKind, Values
from dmlgpu.lowering.problem import OutputTensor, Prefixes, Role, Source

# Maximum of consecutive additions: the sum of their errors is within the bound (reference/bounds.py).
_CHAIN = 1 << 20
# Maximum of elements per block of a longer line, and of states per group.
_BLOCK, _GROUP = 1 << 13, 64
# On a CPU, lines for 1/_CPU_SHARE of the invocations suffice: those of a core share a SIMD vector.
_CPU_SHARE = 16

_OUTER, _INNER, _ELEMENT = range(3)


class _Box(NamedTuple):
    """Elements of lines: ranges of the outer and of the inner lines, and of elements by their addresses."""

    outer: range
    inner: range
    element: range

    @property
    def lines(self) -> int:
        return len(self.outer) * len(self.inner)

    def cut(self, dim: int, count: int) -> tuple[_Box, _Box]:
        """The first `count` along a dimension, and the rest."""
        head, tail = ([*self], [*self])
        head[dim], tail[dim] = self[dim][:count], self[dim][count:]
        return _Box(*head), _Box(*tail)


class _Layout(NamedTuple):
    """How items scan a box."""

    variant: str
    lines: int = 1
    """Lines of an item."""
    step: int = 1
    """Elements of a line that an item loads together."""
    threads: int = 1
    """Invocations that share an item."""

    @property
    def loads(self) -> int:
        """Loads of a step: threads loop over their states."""
        return self.threads.bit_length()


class _Slots(NamedTuple):
    """Where the states of lines begin, in states; those of a line are consecutive."""

    base: int
    outer: int
    inner: int


@dataclass(frozen=True)
class Scan(Kernel):
    """Each element, combined with those before it."""

    name: ClassVar = "scan"
    variants: ClassVar = {
        "scan": "scans blocks of lines, element by element",
        "scan_rows": "scans blocks of lines, a vector of elements at a time",
        "scan_rows_cooperating": "scans blocks of lines, a vector of elements per thread at a time",
        "scan_columns": "scans blocks of neighbouring lines, one line per element of a vector",
        "scan_states": "combines the states of blocks with those before them",
    }

    @cached_property
    def prefixes(self) -> Prefixes:
        domain = self.problem.domain
        assert isinstance(domain, Prefixes)
        return domain

    @cached_property
    def elements(self) -> int:
        is_divided = self._block(self._whole) < len(self._whole.element)
        return self.problem.output_count * (2 if is_divided else 1)

    @cached_property
    def _whole(self) -> _Box:
        """The box of all elements."""
        return _Box(*(range(dim.size) for dim in self.prefixes.source))

    @cached_property
    def _tensors(self) -> tuple[tuple[tuple[Dim, ...], Source | OutputTensor], ...]:
        """The dimensions and the tensor of the input, then of the output."""
        return (self.prefixes.source, self.problem.sources[0]), (self.prefixes.target, self.problem.outputs[0])

    @property
    def _state_words(self) -> int:
        return self.problem.accumulator.state_words(self.source.data_type)

    @cached_property
    def _most_states(self) -> int:
        """Number of states that fit in memory: half for states of lines, half for states of blocks."""
        most = max(self.limits.partial_bytes, self.source.size_in_bytes // WORKSPACE_SHARE)
        return min(most, self.limits.segment_bytes) // (4 * self._state_words)

    # Boxes

    def dispatches(self) -> Iterator[tuple[Dispatch, int]]:
        for group in self._groups():
            for box in self._boxes(group):
                yield from self._box_dispatches(box, group)

    def _groups(self) -> Iterator[_Box]:
        """Neighbouring lines in groups whose states between boxes fit in memory, or that need none."""
        most, boxes = max(1, self._most_states // 2), [self._whole]
        while boxes:
            box = boxes.pop()
            dim, lines = (_OUTER, len(box.inner)) if len(box.outer) > 1 else (_INNER, 1)
            apart = [tensor for tensor in self._tensors if len(self._segments(box, *tensor)) > 1]
            if box.lines <= most or (not apart and len(box.element) <= self._most_elements(box)):
                yield box
            else:
                fitting = min([self._fitting(box, dim, *tensor) for tensor in apart], default=1)
                boxes += reversed(box.cut(dim, min(max(most // lines, fitting), len(box[dim]) - 1)))

    def _boxes(self, box: _Box) -> Iterator[_Box]:
        """Boxes in one segment of each tensor, in the order of each line's elements."""
        boxes, descends = [box], self.prefixes.descending
        while boxes:
            box = boxes.pop()
            apart = next((tensor for tensor in self._tensors if len(self._segments(box, *tensor)) > 1), None)
            if apart is not None:
                dim = max((i for i in range(3) if len(box[i]) > 1), key=lambda i: apart[0][i].stride)
                parts = box.cut(dim, self._fitting(box, dim, *apart))
                boxes += parts if dim == _ELEMENT and descends else reversed(parts)
                continue
            most = self._most_elements(box)
            step = even_part(len(box.element), most)
            step += -step % self.vector_size if step + self.vector_size <= most else 0
            begins = range(0, len(box.element), step)
            for begin in reversed(begins) if descends else begins:
                yield box._replace(element=box.element[begin : begin + step])

    @staticmethod
    def _address(box: _Box, dims: tuple[Dim, ...]) -> int:
        """The lowest address of a box."""
        return sum(part.start * dim.stride for part, dim in zip(box, dims, strict=True))

    def _segments(self, box: _Box, dims: tuple[Dim, ...], tensor: Source | OutputTensor) -> range:
        """The segments from that of the lowest address to that of the highest."""
        lowest = self._address(box, dims)
        highest = lowest + sum((len(part) - 1) * dim.stride for part, dim in zip(box, dims, strict=True))
        return range(lowest // tensor.segment_size, highest // tensor.segment_size + 1)

    def _fitting(self, box: _Box, dim: int, dims: tuple[Dim, ...], tensor: Source | OutputTensor) -> int:
        """Number of coordinates of a box along a dimension in its first segment; at least 1, and not all."""
        first, stride = self._address(box, dims), dims[dim].stride
        reach = sum((len(box[i]) - 1) * dims[i].stride for i in range(3) if i != dim)
        remaining = (first // tensor.segment_size + 1) * tensor.segment_size - 1 - first - reach
        return min(max(1, remaining // stride + 1), len(box[dim]) - 1) if stride else len(box[dim]) - 1

    # Blocks

    def _layout(self, box: _Box) -> _Layout:
        """How a box is scanned: vectors begin at multiples of 16 bytes."""
        rows, columns = _Layout("scan_rows", step=self.vector_size), _Layout("scan_columns", lines=self.vector_size)
        if self.limits.cooperating:
            threads = min(self.limits.most_threads, power_of_2(2 * len(box.element) // self.vector_size - 1))
            rows = _Layout("scan_rows_cooperating", 1, threads * self.vector_size, threads)
        for layout, along in (rows, _ELEMENT), (columns, _INNER):
            steps = [len(box[along]), *(self._address(box, dims) for dims, _ in self._tensors)]
            steps += [dims[i].stride for dims, _ in self._tensors for i in range(3) if i != along and len(box[i]) > 1]
            contiguous = all(dims[along].stride == 1 for dims, _ in self._tensors)
            if contiguous and not any(step % self.vector_size for step in steps):
                return layout
        return _Layout("scan")

    def _most_block(self, box: _Box) -> int:
        """Maximum of elements per block."""
        _, lines, step, _ = layout = self._layout(box)
        loads = self.limits.invocation_loads - 2
        most = min(loads // layout.loads * step, self.limits.dispatch_elements // lines)
        most = min(most, _BLOCK) if self.prefixes.source[_ELEMENT].size > _CHAIN else most
        return max(step, most // step * step)

    def _most_blocks(self, box: _Box) -> int:
        """Maximum of blocks per line: their states, and those of groups of blocks, have half of the memory."""
        return max(1, self._most_states // 4 // box.lines)

    def _most_elements(self, box: _Box) -> int:
        """Maximum of elements of a line that are scanned together."""
        return self._most_blocks(box) * self._most_block(box)

    def _block(self, box: _Box) -> int:
        """Elements of a block: all of a line in the box, if lines are enough."""
        _, lines, step, threads = self._layout(box)
        items, limits = box.lines // lines, self.limits
        busy = limits.busy_invocations // threads
        blocks = -(-len(box.element) // self._most_block(box))
        if items < (busy if limits.cooperating else busy // _CPU_SHARE):
            busy_blocks = min(-(-busy // items), len(box.element) // (step * limits.least_loads))
            blocks = max(blocks, min(busy_blocks, self._most_blocks(box)))
        return -(-len(box.element) // (blocks * step)) * step

    # Dispatches

    def _box_dispatches(self, box: _Box, group: _Box) -> Iterator[tuple[Dispatch, int]]:
        size = self._block(box)
        count = -(-len(box.element) // size)
        kept = _Slots(
            (box.outer.start - group.outer.start) * len(group.inner) + box.inner.start - group.inner.start,
            len(group.inner),
            1,
        )
        first, last = box.element.start == group.element.start, box.element.stop == group.element.stop
        first, last = (last, first) if self.prefixes.descending else (first, last)
        begins, ends = None if first else kept, None if last else kept
        if first and last and count == 1:
            for dispatch in self._scan(box, size, 1, None, None):
                yield dispatch, 0
            return
        stored = group.lines  # states in memory
        if count == 1:
            planned = [*self._scan(box, size, 1, begins, ends)]
        else:
            slots = _Slots(group.lines, len(box.inner) * count, count)
            planned = [
                *self._scan(box, size, count, None, slots, to_partials=True),
                *self._states(box, group.lines, count, begins, ends),
                *self._scan(box, size, count, slots, None),
            ]
            while count > 1:
                stored, count = stored + box.lines * count, -(-count // self._group)
        for dispatch in planned:
            yield dispatch, 4 * self._state_words * stored

    @property
    def _group(self) -> int:
        """Maximum of states per group."""
        return min(max(_GROUP, self.limits.least_loads), self.limits.invocation_loads // 2)

    def _states(
        self, box: _Box, base: int, count: int, begins: _Slots | None, ends: _Slots | None
    ) -> Iterator[Dispatch]:
        """Replaces the states of `count` blocks per line, from state `base` on, with those before each block."""
        groups = -(-count // self._group)
        if groups > 1:
            after = base + box.lines * count
            slots = _Slots(after, len(box.inner) * groups, groups)
            yield from self._scan_states(box, base, count, None, slots, to_partials=True)
            yield from self._states(box, after, groups, begins, ends)
            begins, ends = slots, None
        yield from self._scan_states(box, base, count, begins, ends)

    def _scan_states(
        self, box: _Box, base: int, count: int, begins: _Slots | None, ends: _Slots | None, *, to_partials: bool = False
    ) -> Iterator[Dispatch]:
        """Scans groups of the states of `count` blocks per line, from state `base` on, or combines each group."""
        size = min(count, self._group)
        push = {
            "line_count": box.lines,
            "inner_size": len(box.inner),
            "block_count": count,
            "group_count": -(-count // size),
            "group_size": size,
            "place_base": base * self._state_words,
        }
        push |= self._slots_push(begins, ends)
        bindings = (Binding(Role.PARTIALS, base="partials_base", written=True),)
        items = box.lines * push["group_count"]
        yield from self._dispatches(_Layout("scan_states"), items, size, size, push, bindings, to_partials=to_partials)

    def _slots_push(self, begins: _Slots | None, ends: _Slots | None) -> dict[str, int]:
        slots = begins or ends or _Slots(0, 0, 0)
        return {
            "begins": begins is not None,
            "ends": ends is not None,
            "state_outer": slots.outer,
            "state_inner": slots.inner,
            "begin_base": begins.base * self._state_words if begins else 0,
            "end_base": ends.base * self._state_words if ends else 0,
            "partials_base": 0,
        }

    def _scan(
        self, box: _Box, size: int, count: int, begins: _Slots | None, ends: _Slots | None, *, to_partials: bool = False
    ) -> Iterator[Dispatch]:
        """Scans `count` blocks of `size` elements per line, or computes their states."""
        prefixes, layout = self.prefixes, self._layout(box)
        push: dict[str, Any] = {
            "line_count": box.lines,
            "inner_size": len(box.inner),
            "element_count": len(box.element),
            "block_count": count,
            "block_size": size,
            "reversed": prefixes.descending,
            "exclusive": prefixes.exclusive,
        }
        push |= self._slots_push(begins, ends)
        bindings: list[Binding] = []
        for name, (dims, tensor) in zip(("source", "target"), self._tensors, strict=True):
            outer, inner, element = (dim.stride for dim in dims)
            address, (segment,) = self._address(box, dims), self._segments(box, dims, tensor)
            if prefixes.descending:
                address, element = address + (len(box.element) - 1) * element, -element
            base = wrapped(address - segment * tensor.segment_size)
            strides = wrapped(outer), wrapped(inner), wrapped(element)
            push |= zip((f"{name}_outer", f"{name}_inner", f"{name}_step"), strides, strict=True)
            push[f"{name}_base"] = base
            bits, written = tensor.tensor.data_type.bits, name == "target"
            bindings.append(Binding(tensor.role, tensor.number, segment, f"{name}_base", bits, written=written))
        states = Binding(Role.PARTIALS, base="partials_base", written=True)
        if begins is None and ends is None:
            states = replace(bindings[1], base="partials_base")
        if to_partials:
            push |= {f"target_{name}": 0 for name in ("outer", "inner", "step", "base")}
            bindings[1] = Binding(Role.PARTIALS, base="target_base", written=True)
        items, loads = box.lines // layout.lines * count, -(-size // layout.step) * layout.loads
        yield from self._dispatches(
            layout, items, loads, size * layout.lines, push, (*bindings, states), to_partials=to_partials
        )

    def _dispatches(
        self,
        layout: _Layout,
        items: int,
        loads: int,
        elements: int,
        push: Mapping[str, Any],
        bindings: tuple[Binding, ...],
        *,
        to_partials: bool,
    ) -> Iterator[Dispatch]:
        """The dispatches of items with `loads` loads, and `elements` elements, each."""
        problem, limits = self.problem, self.limits
        # Sums and products have the same bits whether integers are signed or not.
        constants = {"to_partials": to_partials, "segmented": False, "number_kind": NumberKind.UINT}
        constants["aligned"] = layout.variant.startswith(("scan_rows", "scan_columns"))
        threads = layout.threads
        if layout.variant == "scan_rows_cooperating":
            constants["threads"] = threads
        shader = shader_of(layout.variant, problem, constants_of(problem, limits, (), **constants))
        most = limits.dispatch_items(loads + 1, elements, threads)
        for first in range(0, items, most):
            count = min(most, items - first)
            values = Values(**push, first_item=first, item_count=count)
            yield Dispatch(
                shader, values, bindings, limits.loads(count, loads + 1, threads), range(problem.output_count)
            )
