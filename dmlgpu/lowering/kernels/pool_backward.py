"""pool_backward.comp: gradients of pooling. Each output adds what the windows that cover it give.

On lavapipe (Mesa 22.3) one output at a time, each of which is divided by sizes and strides, takes twice as long.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from dmlgpu.lowering.geometry import coordinate_ranges, segments_touched
from dmlgpu.lowering.kernels.kernel import constants_of, segment_push, shader_of
from dmlgpu.lowering.kernels.ranged import Piece, PlanesKernel, RangeRules, States, Target, Tiling
from dmlgpu.lowering.plan import Binding, Dispatch, Values
from dmlgpu.lowering.problem import CoveringWindows, Source

# Words of outputs in a tile, at most: they share the divisions that find where the tile begins. On a GPU tiles are
# shorter, as neighbouring invocations should write neighbouring words.
_TILE, _COOPERATING_TILE = 8, 4


@dataclass(frozen=True)
class PoolBackward(PlanesKernel):
    """Gradients of pooling, over the windows that cover an element."""

    name: ClassVar = "pool_backward"
    variants: ClassVar = {
        "pool_backward_shares": "gradient of average pooling: an output adds its shares of the windows that cover it",
        "pool_backward_shares_splits": "the same for windows in several segments, or too many for one invocation",
        "pool_backward_maxima": "gradient of max pooling: an output adds those of the windows whose maximum it is",
        "pool_backward_maxima_splits": "the same for windows in several segments, or too many for one invocation",
    }

    @cached_property
    def windows(self) -> CoveringWindows:
        assert isinstance(self.problem.domain, CoveringWindows)
        return self.problem.domain

    @property
    def maxima(self) -> Source | None:
        """The windows' maxima; None: each window's gradient is shared by all of its elements."""
        return self.problem.sources[1] if len(self.problem.sources) > 1 else None

    @property
    def index_words(self) -> int:
        """The constant of both kernels for gradients: 2 where indices of 64 bits are given."""
        return 2 if self.maxima and self.maxima.tensor.data_type.bits == 64 else 0

    @property
    def what(self) -> str:
        """What outputs add, in names of variants."""
        return "maxima" if self.maxima else "shares"

    @property
    def work(self) -> int:
        return self.problem.output_count * math.prod(self.most)

    @cached_property
    def most(self) -> tuple[int, ...]:
        """Windows that may cover an element, along each dimension."""
        return tuple([min(window.output_size, window.overlap) for window in self.windows.along])

    def tiling_of(self, words: int, windows: int, loads: int) -> Tiling:
        """This many words of outputs, each with so many windows, which take so many loads."""
        outputs = words * self.per_word
        # A tile may begin anywhere in a row of outputs, in each invocation at another output.
        width = min(outputs, self.windows.along[2].size)
        rows = (outputs + width - 2) // width + 1
        return Tiling(outputs, windows, rows * (1 + width * (1 + loads)))

    @cached_property
    def in_place(self) -> Tiling:
        """How it writes outputs."""
        depth, height, width = self.most
        loads = 1 + depth * (1 + height * (1 + width))
        words = self.problem.output_count // self.per_word // self.limits.invocations
        tile = max(1, min(_COOPERATING_TILE if self.limits.cooperating else _TILE, words))
        while tile > 1 and not self.fits(self.tiling_of(tile, math.prod(self.most), loads)):
            tile -= 1
        return self.tiling_of(tile, math.prod(self.most), loads)

    @cached_property
    def with_states(self) -> Tiling:
        """How it writes states."""
        split = math.prod(self.most)
        while split > 1 and not self.fits(self.tiling_of(1, split, split)):
            split = -(-split // 2)
        return self.tiling_of(1, split, split)

    @cached_property
    def rules(self) -> RangeRules:
        return self.planes_rules(self.in_place, self.with_states)

    def pieces(self, begin: int, end: int) -> Sequence[Piece]:
        total = math.prod(self.most)
        return [Piece(segments, 0, total, self.with_states.elements) for segments in self.segments(begin, end)]

    def segments(self, begin: int, end: int) -> list[tuple[int, int]]:
        """The pairs of segments, of the source and of the maxima, with windows that cover outputs begin to end - 1."""
        windows, source = self.windows, self.source
        leading, spatial = source.sizes[:2], coordinate_ranges((*source.sizes[:2], *windows.fields["size"]), begin, end)
        covering = (window.covering(*row) for window, row in zip(windows.along, spatial[2:], strict=True))
        ranges = [*spatial[:2], *covering]
        if any(low > high for low, high in ranges):
            return [(0, 0)]  # No window covers any of them: they are 0.
        strides = (*source.element_strides[:2], *windows.stride)
        low, high = (sum(r[side] * stride for r, stride in zip(ranges, strides, strict=True)) for side in (0, 1))
        found = segments_touched(low, high, (), self.problem.sources[0].segment)
        if self.maxima is None:
            return [(segment, 0) for segment in found]
        sizes = (*leading, *windows.fields["output_size"])
        numbers = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
        low, high = (sum(r[side] * number for r, number in zip(ranges, numbers, strict=True)) for side in (0, 1))
        size = self.maxima.segment
        return list(itertools.product(found, segments_touched(low, high, (), size)))

    def push(self, begin: int, end: int, piece: Piece, target: Target) -> dict[str, Any]:
        """The push constants of both kernels for gradients."""
        windows, fields = self.windows, self.windows.fields
        given = {
            "plane_stride": self.planes.stride,
            "size": fields["size"],
            "window_count": fields["output_size"],
            "stride": windows.stride,
            "reach": fields["reach"],
            "window_stride": fields["stride"],
            "start_padding": fields["start_padding"],
            "first_output": begin,
            "output_count": end - begin,
            "values_base": self.target_base(begin, end, 0, target),
            **self.source_place(begin, piece.segments[0], target),
        }
        if self.maxima is None:
            return given | windows.counted
        bound = segment_push("maxima", self.maxima.segment, piece.segments[1])
        return given | (bound if isinstance(target, States) else {"maxima_base": bound["maxima_base"]})

    def bindings(self, begin: int, piece: Piece, target: Target) -> tuple[Binding, ...]:
        """The bindings of both kernels for gradients."""
        found = self.source_binding(piece.segments[0]), self.target_binding(begin, 0, "values_base", target)
        if self.maxima is None:
            return found
        bits = self.maxima.tensor.data_type.bits
        return *found, Binding(self.maxima.role, self.maxima.number, piece.segments[1], "maxima_base", bits)

    def dispatch(self, begin: int, end: int, piece: Piece, target: Target) -> Dispatch:
        given, variant = self.push(begin, end, piece, target), f"pool_backward_{self.what}"
        if isinstance(target, States):
            tiling = self.with_states
            push = Values(**given, split_begin=piece.begin, split_end=piece.end, split_size=piece.size)
            constants = self.constants(target, segmented=True, index_words=self.index_words)
            shader = shader_of(f"{variant}_splits", self.problem, constants)
        else:
            tiling = self.in_place
            push = Values(**given, tile=tiling.width // self.per_word)
            outputs = self.problem.outputs
            constants = constants_of(self.problem, self.limits, outputs, index_words=self.index_words)
            shader = shader_of(variant, self.problem, constants)
        loads = self.dispatch_loads(end - begin, tiling, piece, target)
        return Dispatch(shader, push, self.bindings(begin, piece, target), loads, range(begin, end))
