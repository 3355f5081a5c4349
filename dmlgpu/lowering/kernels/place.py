"""place.comp: for each output 1 + the number of the last element whose index it is; 0: none (a scatter)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from dmlgpu.lowering.geometry import Dim, address_span
from dmlgpu.lowering.kernels.kernel import Kernel, constants_of, segment_push, shader_of, wrapped
from dmlgpu.lowering.plan import Binding, Dispatch, Values


@dataclass(frozen=True)
class Place(Kernel):
    """Per output 1 + the number of the last element with its index."""

    name: ClassVar = "place"
    variants: ClassVar = {
        "place_clear": "clears the numbers of the elements that go to each output",
        "place": "writes the number of each element to the output of its index; the greatest stays",
    }

    @property
    def most(self) -> int:
        """Outputs, or elements, of a dispatch."""
        return max(1, min(self.limits.dispatch_elements, self.limits.most_items(1)))

    def dispatches(self) -> Iterator[tuple[Dispatch, int]]:
        # For each segment of the places all segments of the indices.
        (places,) = self.problem.outputs
        size, count = self.limits.segment_elements(places.tensor), self.problem.output_count
        constants = constants_of(self.problem, self.limits, (), segmented=False, to_states=False)
        clearing, placing = (
            shader_of(variant, self.problem, {**constants, "packed": packed})
            for variant, packed in (("place_clear", False), ("place", self.source.is_packed))
        )
        for segment, first in enumerate(range(0, count, size)):
            end, base = min(first + size, count), wrapped(-first)
            target = Binding(places.role, places.number, segment, "places_base", written=True)
            for begin in range(first, end, self.most):
                outputs = range(begin, min(begin + self.most, end))
                clear = Values(first_output=begin, output_count=len(outputs), places_base=base)
                loads = self.limits.loads(len(outputs), 0)
                yield Dispatch(clearing, clear, (target,), loads, outputs), 0
            for begin, of, push in self._elements():
                place = Values(
                    **push, first_element=begin, first_output=first, output_count=end - first, places_base=base
                )
                bindings = self.source_binding(of), target
                loads = self.limits.loads(place["element_count"], 1)
                yield Dispatch(placing, place, bindings, loads, range(first, end)), 0

    def _elements(self) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """Ranges of elements: where each begins, a segment that has some of them, and push constants."""
        source = self.source
        dims = [Dim(size, stride) for size, stride in zip(source.sizes, source.element_strides, strict=True)]
        size = self.limits.segment_elements(source)
        for begin in range(0, source.element_count, self.most):
            end = min(begin + self.most, source.element_count)
            low, high = address_span(dims, begin, end)
            for segment in range(low // size, high // size + 1):
                push = {"size": source.sizes, "stride": source.element_strides, "element_count": end - begin}
                yield begin, segment, push | segment_push("source", size, segment)
