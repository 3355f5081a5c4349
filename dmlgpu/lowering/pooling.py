"""The first pass of MAX_POOLING: in the windows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from dmlgpu.descriptors.pooling import MaxPooling2OperatorDesc, window_extent
from dmlgpu.descriptors.tensor import MAX_ELEMENTS
from dmlgpu.lowering.first_pass import GRANULE, FirstPass, Piece
from dmlgpu.lowering.geometry import Dim, coordinate_ranges, merged, segments_touched
from dmlgpu.lowering.plan import Dispatch, Kernel, Push

# The largest window, along each dimension, that windows.comp is compiled for: it is unrolled.
_SMALL_WINDOW = 7
# Rows of its ring, at most.
_RING = 9


@dataclass(frozen=True)
class _PoolPush(Push):
    plane_stride: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    output_size: tuple[int, ...]
    window_size: tuple[int, ...]
    window_stride: tuple[int, ...]
    window_offset: tuple[int, ...]
    dilation: tuple[int, ...]
    start_padding: tuple[int, ...]
    first_output: int
    output_count: int
    source_first: int
    source_count: int
    source_base: int
    indices_base: int
    values_base: int


@dataclass(frozen=True)
class _WindowsPush(Push):
    plane_stride: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    output_size: tuple[int, ...]
    window_stride: tuple[int, ...]
    start_padding: tuple[int, ...]
    dilation_depth: int
    row_step: int
    fresh: int
    strip: int
    first_output: int
    output_count: int
    source_base: int
    indices_base: int
    values_base: int


@dataclass(frozen=True)
class _Window(Piece):
    """The part of every window that begins `offset` steps of the dilation into it and is `size` elements large."""

    offset: tuple[int, ...]
    size: tuple[int, ...]


@dataclass(frozen=True)
class Pooling(FirstPass):
    """Chosen from the elements of a window."""

    desc: MaxPooling2OperatorDesc

    values_output: ClassVar = 0

    def spatial(self, values: Sequence[int], flat: int) -> tuple[int, ...]:
        """Depth, height and width; where there are two values, the depth is `flat`."""
        return (flat,) * (5 - self.source.rank) + tuple(values)

    @cached_property
    def size(self) -> tuple[int, ...]:
        return self.spatial(self.source.sizes[2:], 1)

    @cached_property
    def stride(self) -> tuple[int, ...]:
        return self.spatial(self.source.element_strides[2:], 0)

    @cached_property
    def output_size(self) -> tuple[int, ...]:
        return self.spatial(self.desc.output_tensor.sizes[2:], 1)

    @cached_property
    def window_size(self) -> tuple[int, ...]:
        return self.spatial(self.desc.window_size, 1)

    @cached_property
    def window_stride(self) -> tuple[int, ...]:
        return self.spatial(self.desc.strides, 1)

    @cached_property
    def dilation(self) -> tuple[int, ...]:
        return self.spatial(self.desc.dilations, 1)

    @cached_property
    def start_padding(self) -> tuple[int, ...]:
        return self.spatial(self.desc.start_padding, 0)

    @cached_property
    def planes(self) -> Dim:
        """The (batch, channel) planes of the input that stand at one stride: all of them, or those of a batch entry."""
        dims = [Dim(*pair) for pair in zip(self.source.sizes[:2], self.source.element_strides[:2], strict=True)]
        together = merged(dims)
        return Dim(dims[0].size * dims[1].size, together[0].stride if together else 0) if len(together) < 2 else dims[1]

    @property
    def row_steps(self) -> tuple[int, ...]:
        """What leads from one row of the input to another: planes, batch entries, depths, heights."""
        return (self.planes.stride, self.source.element_strides[0], *self.stride[:2])

    @cached_property
    def small(self) -> bool:
        """Whether windows.comp can compute the outputs."""
        per_word = 32 // self.source.data_type.bits or 1
        return (
            self.limits.unrolls
            and max(self.window_size) <= _SMALL_WINDOW
            and self.window == self.window_size
            and max(self.window_end) <= MAX_ELEMENTS
            and self.span <= 4 * self.run
            and (self.stride[2] == 1 or self.size[2] == 1)
            and self.output_size[2] % per_word == 0
            and self.output_size[2] <= self.most_recorded
            and all(tensor.is_packed for tensor in self.desc.outputs)
            and self.source.size_in_bytes * 8 // self.source.data_type.bits < 1 << 31
        )

    @cached_property
    def window_end(self) -> tuple[int, ...]:
        """Where the last window ends, counted from the start of the padding; it may hang over the end.

        Beyond 2^32 the positions in windows.comp would wrap around into the input; pool.comp stops there.
        """
        steps = zip(self.output_size, self.window_stride, self.window_size, self.dilation, strict=True)
        return tuple((n - 1) * stride + window_extent(window, dilation) for n, stride, window, dilation in steps)

    @cached_property
    def run(self) -> int:
        """Outputs in a row that one invocation of windows.comp computes."""
        return max(4, self.block)

    @cached_property
    def span(self) -> int:
        """Elements of a row that a run touches."""
        return (self.run - 1) * self.window_stride[2] + (self.window_size[2] - 1) * self.dilation[2] + 1

    @cached_property
    def shares_rows(self) -> bool:
        """Whether a window shares more rows with the one below it than it would read in vain."""
        reach = (self.window_size[1] - 1) * self.dilation[1] + 1
        return self.window_stride[1] < min(reach, self.window_size[1] + 1) and reach <= _RING

    @cached_property
    def rows(self) -> int:
        """Rows of the ring: all that a window spans where they are shared, else those that it looks at."""
        return (self.window_size[1] - 1) * (self.dilation[1] if self.shares_rows else 1) + 1

    @cached_property
    def fresh(self) -> int:
        return self.window_stride[1] if self.shares_rows else self.rows

    @cached_property
    def runs(self) -> int:
        """Runs in a row of outputs."""
        return -(-self.output_size[2] // self.run)

    @cached_property
    def strip(self) -> int:
        """Rows of outputs that one invocation goes down: as many as leave work for all."""
        rows = self.desc.output_tensor.element_count // self.output_size[2]
        return max(1, min(self.output_size[1], rows * self.runs // (4 * self.limits.invocations)))

    def ranges(self, begin: int, end: int) -> tuple[tuple[int, int], ...]:
        """For batch, channel, depth, height and width the lowest and highest coordinate of outputs begin to end - 1."""
        return coordinate_ranges((*self.source.sizes[:2], *self.output_size), begin, end)

    def segments(self, begin: int, end: int, offset: Sequence[int], size: Sequence[int]) -> tuple[int, ...]:
        """The segments that hold elements of a part of the windows of outputs begin to end - 1."""
        strides = self.source.element_strides
        ranges = self.ranges(begin, end)
        low = sum(first * stride for (first, _), stride in zip(ranges[:2], strides[:2], strict=True))
        high = sum(last * stride for (_, last), stride in zip(ranges[:2], strides[:2], strict=True))
        for i, (first, last) in enumerate(ranges[2:]):
            origin, reach = offset[i] * self.dilation[i] - self.start_padding[i], (size[i] - 1) * self.dilation[i]
            least = max(0, first * self.window_stride[i] + origin)
            most = min(self.size[i] - 1, last * self.window_stride[i] + origin + reach)
            low += least * self.stride[i]
            high += most * self.stride[i]
        return segments_touched(low, high, (), self.limits.segment_elements(self.source))

    @cached_property
    def most_inside(self) -> tuple[int, ...]:
        """Elements of a window that can lie in the input together."""
        steps = zip(self.window_size, self.size, self.dilation, strict=True)
        return tuple(min(window, (size - 1) // dilation + 1) for window, size, dilation in steps)

    def iterations(self, size: Sequence[int]) -> int:
        """Loop iterations of an invocation of pool.comp for the outputs of a word, at most."""
        depth, height, width = map(min, size, self.most_inside)
        # Twice what the loops have: llvmpipe was seen to count 20 for the 14 of a 2 x 2 window.
        return 4 + (32 // self.source.data_type.bits or 1) * (4 + depth * (4 + height * (6 + 2 * width)))

    @cached_property
    def window(self) -> tuple[int, ...]:
        """What of a window one invocation looks at: all, if that is not too long."""
        size = list(self.window_size)
        for i in range(3):
            while size[i] > 1 and self.iterations(size) > self.limits.loop_iterations:
                size[i] = -(-min(size[i], self.most_inside[i]) // 2)
        return tuple(size)

    @cached_property
    def slab(self) -> int:
        """Outputs of one depth."""
        return self.output_size[1] * self.output_size[2]

    @cached_property
    def most_outputs(self) -> int:
        if not self.small:
            return self.most_recorded
        row_iterations = 2 + self.window_size[0]
        iterations = 2 * (2 + self.rows * row_iterations + self.strip * (1 + self.fresh * row_iterations))
        items = self.limits.invocations * (self.limits.loop_iterations // iterations)
        rows = min(items // self.runs * self.strip, self.short_outputs // self.output_size[2])
        # The last strip of a slab may be shorter.
        slabs = min(items // (self.runs * -(-self.output_size[1] // self.strip)), self.short_outputs // self.slab)
        return slabs * self.slab if slabs else max(rows, 1) * self.output_size[2]

    @cached_property
    def most_recorded(self) -> int:
        words = self.limits.invocations * (self.limits.loop_iterations // self.iterations(self.window))
        return max(min(words * 32 // self.source.data_type.bits, self.short_outputs) // GRANULE, 1) * GRANULE

    @property
    def short_outputs(self) -> int:
        """Outputs that a dispatch computes in a short time."""
        return self.limits.dispatch_elements // math.prod(map(min, self.window, self.most_inside))

    @property
    def unit(self) -> int:
        # windows.comp takes whole slabs, or whole rows of one; what lies around the end of a segment takes pool.comp.
        if self.small:
            return self.slab if self.slab <= min(self.most_outputs, self.most_recorded) else self.output_size[2]
        return GRANULE

    def furthest(self, begin: int) -> int:
        together = self.planes.size * math.prod(self.output_size)
        if self.small and self.unit < self.slab:
            together = self.slab
        most = self.most_recorded if begin % self.unit else self.most_outputs
        return min(begin + most, (begin // together + 1) * together)

    def offsets(self, begin: int, end: int) -> Iterator[range]:
        """Along each dimension where the parts begin that are not wholly padding for outputs begin to end - 1."""
        for i, (first, last) in enumerate(self.ranges(begin, end)[2:]):
            start, stride, dilation = self.start_padding[i], self.window_stride[i], self.dilation[i]
            low = max(0, -((last * stride - start) // dilation))
            high = min(self.window_size[i] - 1, (self.size[i] - 1 + start - first * stride) // dilation)
            yield range(low // self.window[i] * self.window[i], high + 1, self.window[i])

    def pieces(self, begin: int, end: int) -> Sequence[_Window]:
        parts = [
            (offset, tuple(map(min, self.window, (n - k for n, k in zip(self.window_size, offset, strict=True)))))
            for offset in itertools.product(*self.offsets(begin, end))
        ]
        return [_Window(segment, *part) for part in parts for segment in self.segments(begin, end, *part)]

    def dispatch(self, begin: int, end: int, piece: _Window, record: int | None) -> Dispatch:
        indices = len(self.desc.outputs) - 1  # without indices their binding holds the values, unused
        plane = begin // math.prod(self.output_size) // self.planes.size * self.planes.size
        batch = plane // self.source.sizes[1] * self.source.element_strides[0]
        source = self.source_push(piece.segment, shift=batch - plane * self.planes.stride)
        push: dict[str, Any] = {
            "plane_stride": self.planes.stride,
            "size": self.size,
            "output_size": self.output_size,
            "window_stride": self.window_stride,
            "start_padding": self.start_padding,
            "first_output": begin,
            "output_count": end - begin,
            "indices_base": self.target_base(begin, end, indices, record),
            "values_base": self.target_base(begin, end, 0, record),
        }
        bindings = (
            self.source_binding(piece.segment),
            self.target_binding(begin, indices, "indices_base", record),
            self.target_binding(begin, 0, "values_base", record),
        )
        if self.small and record is None and begin % self.unit == end % self.unit == 0:
            windows_push = _WindowsPush(
                **push,
                stride=self.stride[:2],
                dilation_depth=self.dilation[0],
                row_step=1 if self.shares_rows else self.dilation[1],
                fresh=self.fresh,
                strip=self.strip,
                source_base=source["source_base"],
            )
            return Dispatch(self.windows_kernel(), windows_push, bindings)
        pool_push = _PoolPush(
            **push,
            **source,
            stride=self.stride,
            window_size=piece.size,
            window_offset=tuple(k * d for k, d in zip(piece.offset, self.dilation, strict=True)),
            dilation=self.dilation,
        )
        return Dispatch(self.pool_kernel(record), pool_push, bindings)

    def windows_kernel(self) -> Kernel:
        steps = [self.run * self.window_stride[2], *self.row_steps]
        aligned = all(step % self.block == 0 for step in steps)
        return self.first_kernel(
            "windows",
            None,
            aligned=aligned,
            window_depth=self.window_size[0],
            window_height=self.window_size[1],
            window_width=self.window_size[2],
            stride_width=self.window_stride[2],
            dilation_width=self.dilation[2],
            rows=self.rows,
            row_step=self.dilation[1] if self.shares_rows else 1,
            phase=-self.start_padding[2] % self.block if aligned else 0,
            whole_runs=self.output_size[2] % self.run == 0,
        )

    def pool_kernel(self, record: int | None) -> Kernel:
        if record is not None:
            # A part of a window may have no element in the input.
            return self.first_kernel("pool_parts", record, segmented=True)
        if self.stride[2] != 1 or self.dilation[2] > 1 or self.window_size[2] < 2 * self.block:
            return self.first_kernel("pool", record)
        # A part of a window that is all of it, as what comes before is padding, begins where the input does.
        steps = [self.window_stride[2], self.start_padding[2], *self.row_steps]
        return self.first_kernel("pool_blocks", record, aligned=all(step % self.block == 0 for step in steps))
