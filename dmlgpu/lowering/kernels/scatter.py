"""The three scatter*.comp: out[index[i]] = source[i].

The last of equal indices wins. Outputs that have no index are 0.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from dmlgpu.descriptors.dtypes import DataType
from dmlgpu.descriptors.tensor import TensorDesc
from dmlgpu.lowering.geometry import Dim, address_span, merged
from dmlgpu.lowering.kernels.kernel import WORKSPACE_SHARE, Kernel, constants_of, segment_push, wrapped
from dmlgpu.lowering.plan import Binding, Dispatch, Shader, Values
from dmlgpu.lowering.problem import Role, Source

# Ranges begin at multiples of this unless a segment ends before, so that a vector is in one range.
_ALIGNMENT = 64
# Elements of an item, and its loads: for each element two words of its index, its output's mark, and the element.
_ITEM, _LOADS = 4, 16


class Write(enum.IntEnum):
    """Which elements scatter.comp writes (core/scattered.glsl)."""

    MARKED = 0
    """Those that marked their outputs."""
    AGAIN = 1
    """Those that replaced a mark in the step before."""
    ALL = 2
    COMPARES = 3
    """None: it compares elements with the outputs."""


@dataclass(frozen=True)
class Scatter(Kernel):
    """Each element is written to the output that its index numbers."""

    name: ClassVar = "scatter"
    variants: ClassVar = {
        "scatter_clear": "sets outputs to 0",
        "scatter_mark": "marks each output with the number of an element that has its index",
        "scatter": "writes the elements whose numbers mark their outputs; again where that was not the last one",
    }

    @property
    def elements(self) -> int:
        steps = 3 * -(-self.problem.output_count // self._most_marked) + 2 * self._is_checked
        return steps * self.source.element_count + self.problem.output_count

    @cached_property
    def _most_marked(self) -> int:
        """Maximum of outputs with a mark at a time."""
        most = self.limits.segment_bytes
        if self.source.data_type.bits < 32:
            tensors = self.problem.outputs[0].tensor, *[source.tensor for source in self.problem.sources]
            size = sum([tensor.size_in_bytes for tensor in tensors])
            most = min(most, max(self.limits.temporary_bytes, size // WORKSPACE_SHARE))
        return most // 4 - 1

    @property
    def _is_checked(self) -> bool:
        """Whether elements are first written without marks."""
        return self.source.data_type.bits < 32 and self.problem.output_count > self._most_marked

    @cached_property
    def temporaries(self) -> tuple[TensorDesc, ...]:
        """The marks, and the word `again` before them (core/scattered.glsl)."""
        return (TensorDesc(DataType.UINT32, (min(self.problem.output_count, self._most_marked) + 1,)),)

    def dispatches(self) -> Iterator[tuple[Dispatch, int]]:
        (output,), (source, indices) = self.problem.outputs, self.problem.sources
        values = Source(output.tensor, output.role, output.number, output.segment_size)
        marks = {"marks": (Source(self.temporaries[0], Role.TEMPORARY), 0)}
        all_outputs, all_elements = range(self.problem.output_count), range(self.source.element_count)
        most, checked = self._most(_ITEM, _LOADS), self._is_checked
        late = 1 << 31 if len(all_elements) < 1 << 31 else 0

        def mark(outputs: range, numbers: range, **constants: int) -> Iterator[tuple[Dispatch, int]]:
            for elements, (indices_segment,) in self._ranges(numbers, most, indices):
                bound = {"indices": (indices, indices_segment)} | marks
                yield self._dispatch("scatter_mark", outputs, elements, bound, **constants), 0

        def write(which: Write, outputs: range, values_segment: int) -> Iterator[tuple[Dispatch, int]]:
            constants = {"write": which, "late": late, "checked": checked and which in (Write.MARKED, Write.AGAIN)}
            for elements, (indices_segment, source_segment) in self._ranges(all_elements, most, indices, source):
                bound = {"indices": (indices, indices_segment)} | marks
                bound |= {"source": (source, source_segment), "values": (values, values_segment)}
                yield self._dispatch("scatter", outputs, elements, bound, **constants), 0

        for outputs, (segment,) in self._ranges(all_outputs, self._most(*_cleared(values.tensor)), values):
            yield self._dispatch("scatter_clear", outputs, range(0), {"values": (values, segment)}), 0
        if checked:
            # This mark sets `again` to 0, and is overwritten.
            yield from mark(range(1), range(1), reports=False, checked=False)
            for which in Write.ALL, Write.COMPARES:
                for outputs, (segment,) in self._ranges(all_outputs, len(all_outputs), values):
                    yield from write(which, outputs, segment)
        for outputs, (segment,) in self._ranges(all_outputs, self._most_marked, values):
            yield from mark(outputs, all_elements, reports=False, checked=checked)
            yield from write(Write.MARKED, outputs, segment)
            yield from write(Write.AGAIN, outputs, segment)
            yield from mark(outputs, range(1), reports=True, checked=False)

    def _most(self, item: int, loads: int) -> int:
        """Maximum of elements, or outputs, per dispatch, with `item` of them and `loads` loads per item."""
        most = min(self.limits.dispatch_elements, self.limits.most_items(loads) * item)
        return max(1, most // _ALIGNMENT) * _ALIGNMENT

    def _ranges(self, numbers: range, most: int, *sources: Source) -> Iterator[tuple[range, tuple[int, ...]]]:
        """Ranges of numbers, with every combination of the tensors' segments that may contain elements of a range.

        If a tensor is packed, a range ends with its segment.
        """
        begin = numbers.start
        sizes = [source.segment_size for source in sources]
        dims = [merged(map(Dim, source.tensor.sizes, source.tensor.element_strides)) for source in sources]
        while begin < numbers.stop:
            ends = [(begin // n + 1) * n for n, source in zip(sizes, sources, strict=True) if source.tensor.is_packed]
            end = min(begin + most, numbers.stop, *ends)
            spans = [address_span(source_dims, begin, end) for source_dims in dims]
            touched = [range(low // n, high // n + 1) for n, (low, high) in zip(sizes, spans, strict=True)]
            for segments in itertools.product(*touched):
                yield range(begin, end), segments
            begin = end

    def _dispatch(
        self, variant: str, outputs: range, elements: range, bound: dict[str, tuple[Source, int]], **constants: int
    ) -> Dispatch:
        """The dispatch of a step, with the bound segment of each tensor, and these constants."""
        (target,) = self.problem.outputs
        push: dict[str, Any] = {"first_output": outputs.start, "output_count": len(outputs), "size": self.source.sizes}
        if elements:
            push |= {"first_element": elements.start, "element_count": len(elements)}
        bindings = []
        for name, (one, segment) in bound.items():
            if name != "marks":
                push |= segment_push(name, one.segment_size, segment) | {f"{name}_stride": one.tensor.element_strides}
            bits, written = one.tensor.data_type.bits, name in ("marks", "values")
            bindings.append(Binding(one.role, one.number, segment, f"{name}_base", bits, written=written))
        if "values" in bound:
            push["plane"] = target.tensor.sizes[2:]
        if "marks" in bound:
            push["marks_base"] = wrapped(1 - outputs.start)
        constants["packed"] = all(one.tensor.is_packed for one, _ in bound.values())
        constants["index_words"] = self.problem.sources[1].tensor.data_type.bits // 32
        constants = constants_of(self.problem, self.limits, (), **constants)
        bits = self.source.data_type.bits if "values" in bound else 32
        shader = Shader(variant, self.problem.accumulator.name, bits, Values(**constants))
        item, item_loads = (_ITEM, _LOADS) if elements else _cleared(target.tensor)
        loads = self.limits.loads(-(-len(elements or outputs) // item), item_loads)
        return Dispatch(shader, Values(**push), tuple(bindings), loads, outputs)


def _cleared(tensor: TensorDesc) -> tuple[int, int]:
    """Outputs of an item of scatter_clear, and its loads: one vector, or as many elements."""
    vector = 128 // tensor.data_type.bits
    return vector, 1 if tensor.is_packed else vector
