"""pick.comp: out[i] = source[places[i] - 1], and 0 where places[i] is 0 (a gather)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from dmlgpu.lowering.kernels.kernel import (
    RANGE_ALIGNMENT,
    Piece,
    RangedKernel,
    Target,
    segment_push,
    shader_of,
)
from dmlgpu.lowering.plan import Binding, Dispatch, Values


@dataclass(frozen=True)
class Pick(RangedKernel):
    """out[i] = source[places[i] - 1]."""

    name: ClassVar = "pick"
    variants: ClassVar = {"pick": "one invocation per word of outputs: the element whose number stands there, or 0"}

    @property
    def _per_word(self) -> int:
        """Outputs of an item, a word of them; an output of 64 bits is two words."""
        return max(1, 32 // self.source.data_type.bits)

    @cached_property
    def most_with_states(self) -> int:
        words = self.limits.most_items(2 * self._per_word)
        most = min(words * 32 // self.source.data_type.bits, self.limits.dispatch_elements)
        return max(most // RANGE_ALIGNMENT, 1) * RANGE_ALIGNMENT

    @property
    def ascending(self) -> bool:
        return True

    @property
    def range_alignment(self) -> int:
        return RANGE_ALIGNMENT

    def furthest(self, begin: int) -> int:
        return begin + self.most_with_states

    def pieces(self, begin: int, end: int) -> Sequence[Piece]:
        size = self.limits.segment_elements(self.problem.sources[1].tensor)
        places = range(begin // size, (end - 1) // size + 1)
        sources = range(len(self.limits.segments(self.source)))
        return [Piece(segments) for segments in itertools.product(sources, places)]

    def states_at_once(self, outputs: int) -> int:
        return 1

    def dispatch(self, begin: int, end: int, piece: Piece, target: Target) -> Dispatch:
        places, (of_source, of_places) = self.problem.sources[1], piece.segments
        push = Values(
            size=self.source.sizes,
            stride=self.source.element_strides,
            **self.source_push(of_source),
            **segment_push("places", self.limits.segment_elements(places.tensor), of_places),
            first_output=begin,
            output_count=end - begin,
            values_base=self.target_base(begin, end, 0, target),
        )
        bindings = (
            self.source_binding(of_source),
            self.target_binding(begin, 0, "values_base", target),
            Binding(places.role, places.number, of_places, "places_base"),
        )
        constants = self.constants(target, segmented=True, packed=self.source.is_packed)
        # Of each output its place, and the element that stands there.
        loads = self.limits.loads(-(-(end - begin) // self._per_word), 2 * self._per_word)
        return Dispatch(shader_of("pick", self.problem, constants), push, bindings, loads, range(begin, end))
