"""pick.comp: out[i] = source[places[i] - 1], and 0 where places[i] is 0 (a gather)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from dmlgpu.lowering.kernels.kernel import segment_push, shader_of
from dmlgpu.lowering.kernels.ranged import (
    RANGE_ALIGNMENT,
    Piece,
    RangedKernel,
    RangeRules,
    Target,
    Tiling,
    aligned_outputs,
)
from dmlgpu.lowering.plan import Binding, Dispatch, Values


@dataclass(frozen=True)
class Pick(RangedKernel):
    """out[i] = source[places[i] - 1]."""

    name: ClassVar = "pick"
    variants: ClassVar = {"pick": "one invocation per word of outputs: the element whose number stands there, or 0"}

    @cached_property
    def tiling(self) -> Tiling:
        """A word of outputs. Of each it loads its place, and the element that stands there."""
        return Tiling(self.per_word, elements=1, loads=2 * self.per_word)

    @cached_property
    def rules(self) -> RangeRules:
        most = aligned_outputs(self.limits, self.tiling)
        in_place = most if self.problem.has_packed_outputs else 0
        return RangeRules(in_place, most, (self.tiling,), ascending=True, alignment=RANGE_ALIGNMENT)

    def pieces(self, begin: int, end: int) -> Sequence[Piece]:
        size = self.limits.segment_elements(self.problem.sources[1].tensor)
        places = range(begin // size, (end - 1) // size + 1)
        sources = range(len(self.limits.segments(self.source)))
        return [Piece(segments) for segments in itertools.product(sources, places)]

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
        loads = self.dispatch_loads(end - begin, self.tiling, piece, target)
        return Dispatch(shader_of("pick", self.problem, constants), push, bindings, loads, range(begin, end))
