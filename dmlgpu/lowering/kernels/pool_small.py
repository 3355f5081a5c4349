"""pool_small.comp, for small windows: an invocation computes a tile of outputs, row by row.

Neighbouring windows share what is loaded; the picture is at the top of pool_small.comp.

    outputs of one depth, a slab:      | tile  | tile  | tile  |      here tiles have 2 rows
                                       |       |       |       |
                                       +-------+-------+-------+
                                       | tile  | tile  | tile  |

lavapipe (Mesa 22.3) with 2 cores, float32, 8 x 64 x 112 x 112, 3 x 3, stride 2: 17 ms. With a loop over the window
unrolled for one output at a time 50 ms, element by element 150 ms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from dmlgpu.descriptors.tensor import MAX_ELEMENTS
from dmlgpu.lowering.kernels.kernel import InPlace, Piece, Target
from dmlgpu.lowering.kernels.pool_direct import PoolDirect
from dmlgpu.lowering.plan import Dispatch, Shader, Values

# The largest window along each dimension, as its loops are unrolled.
_SMALL_WINDOW = 7
# Rows of the ring, at most, where windows share rows.
_RING = 9
# Elements of an input row per output of a tile's row, at most.
_SPAN = 4
# Registers of an invocation for states and operands: with more of them gfx1100 spills, which has the fewest.
_REGISTERS = 110


@dataclass(frozen=True)
class PoolSmall(PoolDirect):
    """Over windows so small that loops over them are unrolled."""

    name: ClassVar = "pool_small"
    variants: ClassVar = {
        "pool_small": "one invocation for neighbouring outputs of some rows: small windows share what they load",
    }

    @property
    def why_impossible(self) -> str:
        windows, per_word = self.windows, 32 // self.source.data_type.bits or 1
        if max(windows.window_size) > _SMALL_WINDOW:
            return f"the window is larger than {_SMALL_WINDOW} along a dimension"
        if max(self.window_end) > MAX_ELEMENTS:
            return "windows hang over the end so far that their positions would wrap around into the input"
        if self.span > (most := _SPAN * max(4, self.block, self.tile_width)):
            return f"a tile of {self.tile_width} outputs touches {self.span} elements of a row, more than {most}"
        if windows.stride[2] != 1 and windows.size[2] != 1:
            return "the elements of a row do not follow each other"
        if windows.output_size[2] % per_word != 0:
            return "rows of outputs share words"
        if windows.output_size[2] > self.most_with_states:
            return "a row of outputs is too long for a dispatch"
        if not all(output.tensor.is_packed for output in self.problem.outputs):
            return "an output is not packed"
        if self.limits.most_items(self._item_loads) < self.tiles_per_row:
            return "an invocation would have too many loads for a row of outputs"
        if self.source.size_in_bytes * 8 // self.source.data_type.bits >= 1 << 31:
            return "the input has 2^31 elements or more"
        return ""

    @property
    def why_slow(self) -> str:
        if not self.limits.unrolls:
            return "the driver does not unroll loops"
        registers = self._registers(self.tile_width)
        return "" if registers <= _REGISTERS else f"an invocation would need more than {_REGISTERS} registers"

    @cached_property
    def window_end(self) -> tuple[int, ...]:
        """Where the last window ends, from the start of the padding; that may be behind the end of the input.

        A position beyond 2^32 would wrap around in pool_small.comp, and might be in the input again.
        """
        windows = self.windows
        steps = zip(windows.output_size, windows.window_stride, windows.window_size, windows.dilation, strict=True)
        return tuple((n - 1) * stride + 1 + (window - 1) * dilation for n, stride, window, dilation in steps)

    @cached_property
    def tile_width(self) -> int:
        """Outputs of a tile in a row: `_widest_tile`, or fewer, so that registers hold their states.

        At least a word of outputs.
        """
        width = self._widest_tile
        while width > max(1, 32 // self.source.data_type.bits) and self._registers(width) > _REGISTERS:
            width //= 2
        return width

    @property
    def _widest_tile(self) -> int:
        """The width of tiles, if registers did not matter.

        A block, at least 4; with states of many words 4, as SwiftShader takes seconds to compile more. On a GPU that
        stays busy, 8 outputs of 32 bits: more outputs share the fixed cost of a row.
        """
        busy = self.limits.cooperating and self.problem.output_count // 8 >= self.limits.busy_invocations
        if self.block == 4 and busy and self._span(8) <= _SPAN * 8:
            return 8
        return 4 if self.state_words > 3 else max(4, self.block)

    def _registers(self, width: int) -> int:
        """Registers for the states of the ring, the operands of a span, and loops, about."""
        data_type, windows = self.source.data_type, self.windows
        states = self.ring_rows * width * self.problem.accumulator.state_registers(data_type)
        operands = self._span(width) * 2 * -(-data_type.bits // 32)
        loops = windows.window_size[0] * self.held_rows > 1 or self.problem.accumulator.loads() > 1
        return states + operands + 32 * loops

    def _span(self, width: int) -> int:
        windows = self.windows
        reach = (windows.window_size[2] - 1) * windows.dilation[2]
        return (width - 1) * windows.window_stride[2] + reach + 1

    @cached_property
    def span(self) -> int:
        """Elements of an input row from the first of a tile row's first window to the last of its last window."""
        return self._span(self.tile_width)

    @cached_property
    def shares_rows(self) -> bool:
        """Whether an output reuses rows of the ring from the output above it.

        The ring then has all rows that a window spans, with a dilation also those between the window's own rows. It
        pays where an output loads no more new rows than its window has.
        """
        windows = self.windows
        reach = (windows.window_size[1] - 1) * windows.dilation[1] + 1
        pays = windows.window_stride[1] < min(reach, windows.window_size[1] + 1) and reach <= _RING
        return pays and self._height(self._widest_tile) > 1

    @cached_property
    def ring_rows(self) -> int:
        """Rows of the ring: all that a window spans if outputs share rows; else one, for the whole window."""
        return (self.windows.window_size[1] - 1) * self.windows.dilation[1] + 1 if self.shares_rows else 1

    @cached_property
    def held_rows(self) -> int:
        """Rows of a window that a row of the ring combines."""
        return 1 if self.shares_rows else self.windows.window_size[1]

    @cached_property
    def fresh(self) -> int:
        """Rows of the ring that an output does not reuse from the one above it."""
        return self.windows.window_stride[1] if self.shares_rows else 1

    @cached_property
    def tiles_per_row(self) -> int:
        """Runs in a row of outputs."""
        return -(-self.windows.output_size[2] // self.tile_width)

    @cached_property
    def tile_height(self) -> int:
        """Rows of a tile, so that each invocation has about four tiles."""
        height = self._height(self.tile_width)
        while height > 1 and self.limits.most_items(self._loads_of(height)) < self.tiles_per_row:
            height = -(-height // 2)
        return height

    def _height(self, tile_width: int) -> int:
        height, width = self.windows.output_size[1:]
        tiles = self.problem.output_count // width * -(-width // tile_width)
        return max(1, min(height, tiles // (4 * self.limits.invocations)))

    @cached_property
    def slab(self) -> int:
        """Outputs of one depth of a plane."""
        return math.prod(self.windows.output_size[1:])

    @cached_property
    def _item_loads(self) -> int:
        return self._loads_of(self.tile_height)

    def _loads_of(self, height: int) -> int:
        """Loads of an item, a tile of this height: of the rows of the input that it spans, each loaded at once."""
        rows = 1 + self.windows.window_size[0] * (1 + self.held_rows * self.problem.accumulator.loads(self.span))
        # The first row of a tile reuses no rows of the ring.
        return height * (1 + self.fresh * rows) + (self.ring_rows - self.fresh) * rows

    @cached_property
    def most_in_place(self) -> int:
        """Outputs of a dispatch that writes in place, at most."""
        height, width = self.windows.output_size[1:]
        items = self.limits.most_items(self._item_loads)
        short = self.limits.dispatch_elements // math.prod(self.most_inside)
        rows = min(items // self.tiles_per_row * self.tile_height, short // width)
        # A multiple of a slab, if one fits. The last tiles of a slab may have fewer rows than the others.
        slabs = min(items // (self.tiles_per_row * -(-height // self.tile_height)), short // self.slab)
        return slabs * self.slab if slabs else max(rows, 1) * width

    @property
    def range_alignment(self) -> int:
        # Whole slabs, or whole rows of one. pool_direct.comp computes the rest, as at the end of a segment.
        width = self.windows.output_size[2]
        return self.slab if self.slab <= min(self.most_in_place, self.most_with_states) else width

    def furthest(self, begin: int) -> int:
        most = self.most_with_states if begin % self.range_alignment else self.most_in_place
        together = self.slab
        if self.range_alignment == self.slab:
            together = self.planes.size * self.plane_outputs
        return min(begin + most, (begin // together + 1) * together)

    def covers(self, begin: int, end: int, piece: Piece, target: Target) -> bool:
        return isinstance(target, InPlace) and begin % self.range_alignment == end % self.range_alignment == 0

    def dispatch(self, begin: int, end: int, piece: Piece, target: Target) -> Dispatch:
        push = Values(
            **self.push(begin, end, piece, target),
            stride=self.windows.stride[:2],
            tile_height=self.tile_height,
            **self.counted,
        )
        rows = (end - begin) // self.windows.output_size[2]
        height = min(self.windows.output_size[1], rows)
        items = rows // height * -(-height // self.tile_height) * self.tiles_per_row
        loads = self.limits.loads(items, self._item_loads)
        bindings = self.bindings(begin, piece, target)
        return Dispatch(self.shader(), push, bindings, loads, range(begin, end))

    def shader(self) -> Shader:
        """The shader, for whole rows in place."""
        windows = self.windows
        steps = [self.tile_width * windows.window_stride[2], *self.row_steps]
        aligned = all(step % self.block == 0 for step in steps)
        constants = self.constants(
            InPlace(),
            aligned=aligned,
            window_depth=windows.window_size[0],
            window_height=windows.window_size[1],
            window_width=windows.window_size[2],
            stride_width=windows.window_stride[2],
            dilation_depth=windows.dilation[0],
            dilation_height=windows.dilation[1],
            dilation_width=windows.dilation[2],
            ring_rows=self.ring_rows,
            phase=-windows.start_padding[2] % self.block if aligned else 0,
            tile_width=self.tile_width,
            whole_tiles=windows.output_size[2] % self.tile_width == 0 and self.tile_width % max(4, self.block) == 0,
        )
        return self.shader_of("pool_small", constants)
