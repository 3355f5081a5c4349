"""pool_backward.comp: gradients of pooling. Each output adds gradients of the windows that cover it.

Averages bind no maxima, and one shader for both, and for splits, would have 35 words of push constants; Vulkan
guarantees 32. On lavapipe (Mesa 22.3) one output at a time, each with divisions by sizes and strides, takes twice as
long.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from dmlgpu.lowering.geometry import coordinate_ranges
from dmlgpu.lowering.kernels.cut import Extent, Part, Rules, Tiling
from dmlgpu.lowering.kernels.kernel import constants_of, segment_push, shader_of
from dmlgpu.lowering.kernels.planes import PlanesKernel
from dmlgpu.lowering.plan import Binding, Dispatch, Values
from dmlgpu.lowering.problem import CoveringWindows, Source

# Maximum of words of outputs per tile: they share the divisions that compute the tile's position. On a GPU tiles are
# shorter, because neighbouring invocations should write neighbouring words.
_TILE, _COOPERATING_TILE = 8, 4


@dataclass(frozen=True)
class PoolBackward(PlanesKernel):
    """Gradients of pooling, over the windows that cover an element."""

    name: ClassVar = "pool_backward"
    variants: ClassVar = {
        "pool_backward_shares": "gradient of average pooling: an output adds its shares of the windows that cover it",
        "pool_backward_shares_splits": "gradient of average pooling: splits of many windows, or in several segments",
        "pool_backward_maxima": "gradient of max pooling: an output adds the gradients of windows whose maximum it is",
        "pool_backward_maxima_splits": "gradient of max pooling: splits of many windows, or in several segments",
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
        """The constant of both kernels for gradients: 2 if the maxima are indices of 64 bits."""
        return 2 if self.maxima and self.maxima.tensor.data_type.bits == 64 else 0

    @property
    def terms(self) -> str:
        """What an output adds, in names of variants."""
        return "maxima" if self.maxima else "shares"

    @cached_property
    def most_covering(self) -> tuple[int, ...]:
        """Maximum of windows that cover an element, along each dimension."""
        return tuple([min(window.output_size, window.overlap) for window in self.windows.along])

    def tile_of(self, words: int) -> Tiling:
        """The tiling of tiles with `words` words of outputs."""
        outputs, (depth, height, width) = words * self.per_word, self.most_covering
        loads = 1 + depth * (1 + height * (1 + width))
        # A tile may begin anywhere in a row of outputs, in each invocation at another output.
        row = min(outputs, self.windows.along[2].size)
        rows = (outputs + row - 2) // row + 1
        return Tiling(outputs, self.element_count, rows * (1 + row * (1 + loads)))

    @cached_property
    def without_partials(self) -> Tiling:
        words = self.problem.output_count // self.per_word // self.limits.invocations
        tile = max(1, min(_COOPERATING_TILE if self.limits.cooperating else _TILE, words))
        while tile > 1 and not self.fits(self.tile_of(tile)):
            tile -= 1
        return self.tile_of(tile)

    @cached_property
    def with_partials(self) -> Tiling:
        """The tiling of parts that write partials."""
        split = self.element_count
        while split > 1 and not self.fits(Tiling(1, split, 2 + split)):
            split = -(-split // 2)
        return Tiling(1, split, 2 + split)

    @cached_property
    def rules(self) -> Rules:
        return self.planes_rules(self.without_partials, self.with_partials, split_size=self.with_partials.elements)

    @property
    def element_count(self) -> int:
        return math.prod(self.most_covering)

    def extents(self, outputs: range) -> tuple[Extent, ...]:
        """The addresses of the windows that cover some outputs, in the source and in the maxima."""
        windows, source = self.windows, self.source
        sizes = (*source.sizes[:2], *windows.fields["size"])
        batch, channel, *spatial = coordinate_ranges(sizes, outputs.start, outputs.stop)
        covering = (window.covering(*row) for window, row in zip(windows.along, spatial, strict=True))
        ranges = [batch, channel, *covering]
        covered = all(first <= last for first, last in ranges)  # otherwise all outputs are 0, from any segment
        sizes = (*source.sizes[:2], *windows.fields["output_size"])
        numbers = tuple(math.prod(sizes[i + 1 :]) for i in range(len(sizes)))
        strides = (*source.element_strides[:2], *windows.stride)
        extents = []
        for steps in (strides, numbers)[: len(self.problem.sources)]:
            places = [*zip(ranges, steps, strict=True)]
            low, high = (covered * sum(ends[side] * step for ends, step in places) for side in (0, 1))
            extents.append(Extent(low, high, range(self.element_count)))
        return tuple(extents)

    def push(self, part: Part) -> dict[str, Any]:
        """The push constants of both kernels for gradients."""
        windows, fields = self.windows, self.windows.fields
        push = {
            "plane_stride": self.planes.stride,
            "size": fields["size"],
            "window_count": fields["output_size"],
            "stride": windows.stride,
            "reach": fields["reach"],
            "window_stride": fields["stride"],
            "start_padding": fields["start_padding"],
            "first_output": part.outputs.start,
            "output_count": len(part.outputs),
            "values_base": self.target_base(part, 0),
            **self.planes_push(part),
        }
        if self.maxima is None:
            return push | windows.counted
        bound = segment_push("maxima", self.maxima.segment_size, part.segments[1])
        return push | ({"maxima_base": bound["maxima_base"]} if part.writes_outputs else bound)

    def bindings(self, part: Part) -> tuple[Binding, ...]:
        """The bindings of both kernels for gradients."""
        bindings = self.source_binding(part.segments[0]), self.target_binding(part, 0, "values_base")
        if self.maxima is None:
            return bindings
        bits = self.maxima.tensor.data_type.bits
        return *bindings, Binding(self.maxima.role, self.maxima.number, part.segments[1], "maxima_base", bits)

    def dispatch(self, part: Part) -> Dispatch:
        push, variant = self.push(part), f"pool_backward_{self.terms}"
        if part.writes_outputs:
            tiling, outputs = self.without_partials, self.problem.outputs
            push |= {"tile": tiling.width // self.per_word}
            constants = constants_of(self.problem, self.limits, outputs, index_words=self.index_words)
        else:
            tiling, elements, variant = self.with_partials, part.elements, f"{variant}_splits"
            push |= {"split_begin": elements.start, "split_end": elements.stop, "split_size": part.split_size}
            constants = self.constants(part, segmented=True, index_words=self.index_words)
        shader = shader_of(variant, self.problem, constants)
        return Dispatch(shader, Values(**push), self.bindings(part), self.loads(part, tiling), part.outputs)
