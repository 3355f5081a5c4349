"""pool.comp: one invocation a word of outputs, element by element, windows of any size over any layout.

The other kernels over windows plan as it does, and leave to it what they do not cover. It is compiled three times:
`pool_blocks` reads long rows of a window in blocks of 16 bytes (lavapipe with Mesa 22.3 and 2 cores, 1 x 512 x 28 x 28,
global: 0.8 ms); `pool_parts` writes records of windows in parts, which lie in several segments or are too long for one
invocation; `pool` does the rest.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from dmlgpu.lowering.geometry import coordinate_ranges, segments_touched
from dmlgpu.lowering.kernels.kernel import GRANULE, InPlace, Piece, PlanesKernel, Records, Target, shader_of
from dmlgpu.lowering.plan import Binding, Constants, Dispatch, Push, Shader
from dmlgpu.lowering.problem import Windows


@dataclass(frozen=True)
class _AnyPoolPush(Push):
    """What all variants of pool.comp have."""

    plane_stride: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    output_size: tuple[int, ...]
    window_size: tuple[int, ...]
    window_stride: tuple[int, ...]
    dilation: tuple[int, ...]
    start_padding: tuple[int, ...]
    first_output: int
    output_count: int
    source_base: int
    indices_base: int
    values_base: int


@dataclass(frozen=True)
class PoolPush(_AnyPoolPush):
    """Those of pool.comp in place."""

    counts_padding: bool
    counted_end: tuple[int, ...]


@dataclass(frozen=True)
class PartsPush(_AnyPoolPush):
    """Those of pool.comp with records."""

    window_offset: tuple[int, ...]
    source_first: int
    source_count: int


@dataclass(frozen=True)
class WindowsPiece(Piece):
    """The part of every window that begins `offset` steps of the dilation into it and is `size` elements large."""

    offset: tuple[int, ...]
    size: tuple[int, ...]


@dataclass(frozen=True)
class Pool(PlanesKernel):
    """Over windows: any layout and any window."""

    name: ClassVar = "pool"
    variants: ClassVar = {
        "pool": "one invocation a word of outputs, element by element: any layout, window or driver",
        "pool_blocks": "one invocation a word of outputs: long rows of a window are read in blocks of 16 bytes",
        "pool_parts": "as pool, for windows in parts: in several segments, or too long for one invocation",
    }

    @property
    def windows(self) -> Windows:
        assert isinstance(self.problem.domain, Windows)
        return self.problem.domain

    @property
    def plane_outputs(self) -> int:
        return math.prod(self.windows.output_size)

    @property
    def row_steps(self) -> tuple[int, ...]:
        """What leads from one row of the input to another: planes, batch entries, depths, heights."""
        return (self.planes.stride, self.source.element_strides[0], *self.windows.stride[:2])

    def segments(self, begin: int, end: int, offset: Sequence[int], size: Sequence[int]) -> tuple[int, ...]:
        """The segments that hold elements of a part of the windows of outputs begin to end - 1."""
        windows, strides = self.windows, self.source.element_strides
        ranges = self.ranges(begin, end)
        low = sum(first * stride for (first, _), stride in zip(ranges[:2], strides[:2], strict=True))
        high = sum(last * stride for (_, last), stride in zip(ranges[:2], strides[:2], strict=True))
        for i, (first, last) in enumerate(ranges[2:]):
            origin = offset[i] * windows.dilation[i] - windows.start_padding[i]
            reach = (size[i] - 1) * windows.dilation[i]
            least = max(0, first * windows.window_stride[i] + origin)
            most = min(windows.size[i] - 1, last * windows.window_stride[i] + origin + reach)
            low += least * windows.stride[i]
            high += most * windows.stride[i]
        return segments_touched(low, high, (), self.limits.segment_elements(self.source))

    def ranges(self, begin: int, end: int) -> tuple[tuple[int, int], ...]:
        """For batch, channel, depth, height and width the lowest and highest coordinate of outputs begin to end - 1."""
        return coordinate_ranges((*self.source.sizes[:2], *self.windows.output_size), begin, end)

    @cached_property
    def most_inside(self) -> tuple[int, ...]:
        """Elements of a window that can lie in the input together."""
        windows = self.windows
        rows = zip(windows.window_size, windows.size, windows.dilation, strict=True)
        return tuple(min(window, (size - 1) // dilation + 1) for window, size, dilation in rows)

    def iterations(self, size: Sequence[int]) -> int:
        """Loop iterations of an invocation for the outputs of a word, at most, with such a part of the windows."""
        depth, height, width = map(min, size, self.most_inside)
        # Twice what the loops have: llvmpipe was seen to count 20 for the 14 of a 2 x 2 window.
        each = 2 * (1 + self.problem.accumulator.iterations)
        return 4 + (32 // self.source.data_type.bits or 1) * (4 + depth * (4 + height * (6 + each * width)))

    @cached_property
    def part(self) -> tuple[int, ...]:
        """What of a window one invocation looks at: all, if that is not too long."""
        size = list(self.windows.window_size)
        for i in range(3):
            while size[i] > 1 and self.iterations(size) > self.limits.loop_iterations:
                size[i] = -(-min(size[i], self.most_inside[i]) // 2)
        return tuple(size)

    @property
    def short_outputs(self) -> int:
        """Outputs that a dispatch computes in a short time."""
        return self.limits.dispatch_elements // math.prod(map(min, self.part, self.most_inside))

    @cached_property
    def most_recorded(self) -> int:
        words = self.limits.invocations * (self.limits.loop_iterations // self.iterations(self.part))
        return max(min(words * 32 // self.source.data_type.bits, self.short_outputs) // GRANULE, 1) * GRANULE

    def offsets(self, begin: int, end: int) -> Iterator[range]:
        """Along each dimension where the parts begin that are not wholly padding for outputs begin to end - 1."""
        windows = self.windows
        for i, (first, last) in enumerate(self.ranges(begin, end)[2:]):
            start, stride, dilation = windows.start_padding[i], windows.window_stride[i], windows.dilation[i]
            low = max(0, -((last * stride - start) // dilation))
            high = min(windows.window_size[i] - 1, (windows.size[i] - 1 + start - first * stride) // dilation)
            yield range(low // self.part[i] * self.part[i], high + 1, self.part[i])

    def pieces(self, begin: int, end: int) -> Sequence[WindowsPiece]:
        window_size = self.windows.window_size
        parts = [
            (offset, tuple(map(min, self.part, (n - k for n, k in zip(window_size, offset, strict=True)))))
            for offset in itertools.product(*self.offsets(begin, end))
        ]
        return [WindowsPiece(segment, *part) for part in parts for segment in self.segments(begin, end, *part)]

    def push(self, begin: int, end: int, piece: WindowsPiece, target: Target) -> dict[str, Any]:
        """The push constants that all kernels over windows have."""
        windows = self.windows
        return {
            "plane_stride": self.planes.stride,
            "size": windows.size,
            "output_size": windows.output_size,
            "window_stride": windows.window_stride,
            "start_padding": windows.start_padding,
            "first_output": begin,
            "output_count": end - begin,
            **self.source_place(begin, piece.segment, target),
            "indices_base": self.target_base(begin, end, self.indices, target),
            "values_base": self.target_base(begin, end, 0, target),
        }

    @property
    def counted(self) -> dict[str, Any]:
        """The push constants that say which elements of a window count for an average."""
        windows = self.windows
        counts_padding = windows.counted_begin != windows.start_padding
        return {"counts_padding": counts_padding, "counted_end": windows.counted_end}

    @property
    def indices(self) -> int:
        """The output with the indices; without one its binding holds the values, unused."""
        return len(self.problem.outputs) - 1

    def bindings(self, begin: int, piece: WindowsPiece, target: Target) -> tuple[Binding, ...]:
        """Those of all kernels over windows."""
        return (
            self.source_binding(piece.segment),
            self.target_binding(begin, self.indices, "indices_base", target),
            self.target_binding(begin, 0, "values_base", target),
        )

    def dispatch(self, begin: int, end: int, piece: WindowsPiece, target: Target) -> Dispatch:
        given = self.push(begin, end, piece, target)
        given |= {"stride": self.windows.stride, "dilation": self.windows.dilation}
        push: Push
        if isinstance(target, Records):
            offset = tuple(k * d for k, d in zip(piece.offset, self.windows.dilation, strict=True))
            push = PartsPush(**given, window_size=piece.size, window_offset=offset)
        else:
            push = PoolPush(**given, window_size=self.windows.window_size, **self.counted)
        return Dispatch(self.pool_shader(target), push, self.bindings(begin, piece, target))

    def pool_shader(self, target: Target) -> Shader:
        """What of pool.comp computes a piece."""
        windows = self.windows
        if isinstance(target, Records):
            # A part of a window may have no element in the input.
            return shader_of("pool_parts", self.problem, self.constants(Constants, target, segmented=True))
        if windows.stride[2] != 1 or windows.dilation[2] > 1 or windows.window_size[2] < 2 * self.block:
            return shader_of("pool", self.problem, self.constants(Constants, InPlace()))
        # A part of a window that is all of it, as what comes before is padding, begins where the input does.
        steps = [windows.window_stride[2], windows.start_padding[2], *self.row_steps]
        aligned = all(step % self.block == 0 for step in steps)
        return shader_of("pool_blocks", self.problem, self.constants(Constants, InPlace(), aligned=aligned))
