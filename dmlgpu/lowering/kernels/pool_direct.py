"""pool_direct.comp: one invocation per word of outputs; any window, any layout.

It computes what the other kernels over windows do not cover. `pool_direct` writes outputs; it reads long rows of a
window in blocks of 16 bytes. `pool_direct_splits` writes states of splits of windows, which lie in several segments or
are too long for one invocation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from dmlgpu.lowering.accumulators import Selection
from dmlgpu.lowering.geometry import coordinate_ranges, segments_touched
from dmlgpu.lowering.kernels.kernel import constants_of, shader_of
from dmlgpu.lowering.kernels.ranged import InPlace, Piece, PlanesKernel, RangeRules, States, Target, Tiling
from dmlgpu.lowering.plan import Binding, Dispatch, Shader, Values
from dmlgpu.lowering.problem import Windows


@dataclass(frozen=True)
class Split:
    """The split of a window that an invocation takes.

    It has `size` elements along dimension `cut`, one along the dimensions before, and all along those after.
    """

    cut: int
    size: int

    def sizes(self, window_size: Sequence[int]) -> tuple[int, ...]:
        """Along each dimension."""
        return (*(1,) * self.cut, self.size, *window_size[self.cut + 1 :])


@dataclass(frozen=True)
class PoolDirect(PlanesKernel):
    """Over windows: any layout and any window."""

    name: ClassVar = "pool_direct"
    variants: ClassVar = {
        "pool_direct": "one invocation per word of outputs, element by element or in blocks: any layout or window",
        "pool_direct_splits": "splits of windows that lie in several segments, or are too long for one invocation",
    }

    @cached_property
    def windows(self) -> Windows:
        assert isinstance(self.problem.domain, Windows)
        return self.problem.domain

    @property
    def work(self) -> int:
        return self.problem.output_count * math.prod(self.most_inside)

    @property
    def row_steps(self) -> tuple[int, ...]:
        """The strides from one row of the input to another: of planes, batch entries, depths, heights."""
        return (self.planes.stride, self.source.element_strides[0], *self.windows.stride[:2])

    @cached_property
    def most_inside(self) -> tuple[int, ...]:
        """Elements of a window along each dimension that can lie in the input at once."""
        return tuple([window.inside for window in self.windows.along])

    @property
    def blocks(self) -> bool:
        """Whether rows of a window are long enough to be read in blocks, in place."""
        width = self.windows.along[2]
        return self.windows.stride[2] == width.dilation == 1 and width.window_size >= 2 * self.block

    def tiling_of(self, size: Sequence[int], *, blocks: bool = False) -> Tiling:
        """A word of outputs, each with a split of its window that has this size."""
        depth, height, width = map(min, size, self.most_inside)
        accumulator = self.problem.accumulator
        row = width * accumulator.cost()
        if blocks:
            # At the edge of the input the invocations of a vector have rows of different lengths.
            rest = min(width, self.block - 1) * accumulator.cost()
            row = width // self.block * accumulator.cost(self.block) + rest
        loads = 1 + depth * (1 + height * (1 + row))
        if again := accumulator.loads_again(depth * height * width):
            loads += 4 + depth * (1 + height) + again
        return Tiling(self.per_word, depth * height * width, self.per_word * loads)

    def fits(self, tiling: Tiling) -> bool:
        most = self.problem.accumulator.longest_split(self.source.data_type)
        return super().fits(tiling) and tiling.elements <= most

    @cached_property
    def in_place(self) -> Tiling:
        """How it writes outputs."""
        return self.tiling_of(self.windows.fields["window_size"], blocks=self.blocks)

    @cached_property
    def with_states(self) -> Tiling:
        """How it writes states."""
        return self.tiling_of(self.split_sizes)

    @cached_property
    def rules(self) -> RangeRules:
        return self.planes_rules(self.in_place, self.with_states)

    @cached_property
    def split(self) -> Split:
        """The split of a window for an item that writes states: the whole window, if it is not too long."""
        window_size = self.windows.fields["window_size"]
        for cut in range(3):
            split = Split(cut, window_size[cut])
            while split.size > 1 and not self.fits(self.tiling_of(split.sizes(window_size))):
                split = Split(cut, -(-min(split.size, self.most_inside[cut]) // 2))
            if split.size > 1:
                break
        return split

    @cached_property
    def split_sizes(self) -> tuple[int, ...]:
        """The size of a split along each dimension."""
        return self.split.sizes(self.windows.fields["window_size"])

    @cached_property
    def split_counts(self) -> tuple[int, ...]:
        """Splits of a window along each dimension."""
        split = zip(self.windows.along, self.split_sizes, strict=True)
        return tuple([-(-window.window_size // size) for window, size in split])

    def pieces(self, begin: int, end: int) -> Sequence[Piece]:
        windows, strides = self.windows, self.source.element_strides
        ranges = coordinate_ranges((*self.source.sizes[:2], *windows.fields["output_size"]), begin, end)
        # The outermost dimension along which there are splits; of the others the whole extent counts.
        along = next((d for d in range(3) if self.split_counts[d] > 1), 0)
        low = sum(first * stride for (first, _), stride in zip(ranges[:2], strides[:2], strict=True))
        high = sum(last * stride for (_, last), stride in zip(ranges[:2], strides[:2], strict=True))
        # Where the first split of the first output begins along each dimension, and that of the last output ends.
        begins, ends = [0] * 3, [0] * 3
        for d, (window, (first, last)) in enumerate(zip(windows.along, ranges[2:], strict=True)):
            size = self.split_sizes[d] if d == along else window.window_size
            begins[d], ends[d] = window.begin(first), window.begin(last) + (size - 1) * window.dilation
            if d != along:
                low += max(0, begins[d]) * windows.stride[d]
                high += min(window.size - 1, ends[d]) * windows.stride[d]
        begins_along, ends_along, stride = begins[along], ends[along], windows.stride[along]
        step, last = self.split_sizes[along] * windows.along[along].dilation, windows.along[along].size - 1
        inner = math.prod(self.split_counts[along + 1 :])

        def splits(least: int, most: int) -> range:
            """The splits with coordinates from least to most along that dimension; both lie in the input."""
            first, end = -(-(least - ends_along) // step), (most - begins_along) // step + 1
            return range(max(0, first), min(end, self.split_counts[along]))

        inside = splits(0, last)
        least, most = (
            low + max(0, begins_along + inside.start * step) * stride,
            high + min(last, ends_along + (inside.stop - 1) * step) * stride,
        )
        pieces = []
        size = self.problem.sources[0].segment
        for segment in segments_touched(least, most, (), size):
            here = inside
            if stride > 0:
                first, end = segment * size, (segment + 1) * size
                here = splits(max(0, -(-(first - high) // stride)), min(last, (end - 1 - low) // stride))
            if here:
                pieces.append(Piece((segment,), here.start * inner, here.stop * inner))
        return pieces

    def push(self, begin: int, end: int, piece: Piece, target: Target) -> dict[str, Any]:
        """The push constants of all kernels over windows."""
        fields = self.windows.fields
        given = {
            "plane_stride": self.planes.stride,
            "size": fields["size"],
            "output_size": fields["output_size"],
            "window_stride": fields["stride"],
            "start_padding": fields["start_padding"],
            "first_output": begin,
            "output_count": end - begin,
            **self.source_place(begin, piece.segments[0], target),
        }
        if isinstance(target, States):
            return given | {"states_base": self.target_base(begin, end, 0, target)}
        bases = self.target_base(begin, end, self.indices, target), self.target_base(begin, end, 0, target)
        return given | {"indices_base": bases[0], "values_base": bases[1]}

    @property
    def indices(self) -> int:
        """The output tensor with indices; where there is none, its binding has the values, unused."""
        return len(self.problem.outputs) - 1

    def bindings(self, begin: int, piece: Piece, target: Target) -> tuple[Binding, ...]:
        """The bindings of all kernels over windows."""
        source = self.source_binding(piece.segments[0])
        if isinstance(target, States):
            return source, self.target_binding(begin, 0, "states_base", target)
        indices = self.target_binding(begin, self.indices, "indices_base", target)
        return source, indices, self.target_binding(begin, 0, "values_base", target)

    def dispatch(self, begin: int, end: int, piece: Piece, target: Target) -> Dispatch:
        given, fields = self.push(begin, end, piece, target), self.windows.fields
        given |= {"stride": self.windows.stride, "dilation": fields["dilation"], "window_size": fields["window_size"]}
        bindings, shader = self.bindings(begin, piece, target), self.pool_shader(target)
        if isinstance(target, InPlace):
            loads = self.dispatch_loads(end - begin, self.in_place, piece, target)
            return Dispatch(shader, Values(**given, **self.windows.counted), bindings, loads, range(begin, end))
        given |= {"cut": self.split.cut, "split_size": self.split.size}
        push = Values(**given, split_begin=piece.begin, split_count=piece.states)
        loads = self.dispatch_loads(end - begin, self.with_states, piece, target)
        return Dispatch(shader, push, bindings, loads, range(begin, end))

    def pool_shader(self, target: Target) -> Shader:
        """The shader of a piece."""
        if isinstance(target, States):
            # A split of a window may have no element in the input.
            return self.shader_of("pool_direct_splits", self.constants(target, segmented=True))
        # Where padding cuts off the start of a window's row, it starts at the input's edge, as aligned as any row.
        width = self.windows.along[2]
        steps = [width.stride, width.start_padding, *self.row_steps]
        aligned = self.blocks and all(step % self.block == 0 for step in steps)
        constants = constants_of(self.problem, self.limits, self.problem.outputs, aligned=aligned, blocks=self.blocks)
        return self.shader_of("pool_direct", constants)

    def shader_of(self, variant: str, constants: Mapping[str, int]) -> Shader:
        """The shader of a variant."""
        built_in = isinstance(self.problem.accumulator, Selection)
        return shader_of(variant, self.problem, constants, built_in=built_in)
