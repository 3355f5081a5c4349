"""pool_small.comp, for small windows: an invocation computes a tile of outputs, row by row.

Neighbouring windows share loads; pool_small.comp has a picture.

    outputs of one depth, a slab:      | tile  | tile  | tile  |      here tiles have 2 rows
                                       |       |       |       |
                                       +-------+-------+-------+
                                       | tile  | tile  | tile  |

On lavapipe (Mesa 22.3), windows of 3 x 3 take three times as long if the loop over a window is unrolled for one output
at a time, and nine times as long element by element.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from dmlgpu.descriptors.tensor import MAX_ELEMENTS
from dmlgpu.lowering.geometry import even_part
from dmlgpu.lowering.kernels.cut import Part, Tiling
from dmlgpu.lowering.kernels.planes import WholeRowsKernel
from dmlgpu.lowering.kernels.pool_direct import PoolDirect
from dmlgpu.lowering.kernels.pool_separable import PoolSeparable
from dmlgpu.lowering.plan import Binding, Dispatch, Shader, Values
from dmlgpu.lowering.problem import Windows

# Largest window along each dimension, whose loops are unrolled: a CPU driver compiles for half a second. The time on
# GPUs is not measured.
_SMALL_WINDOW, _GPU_WINDOW = 31, 9
# Elements of a window, along each dimension and in all, up to which pool_separable is not faster. Without indices it is
# faster from 8 x 8 on, with indices from 11 x 11 on, for sums from 16 x 16 on, but not for long, narrow windows.
_UNROLLED_WINDOW, _UNROLLED_ELEMENTS, _UNROLLED_TERMS = 9, 81, 225
# Maximum of rows in the ring of pool_small.comp if windows share input rows.
_RING, _GPU_RING = 31, 9
# Maximum of the elements of an input row that a tile loads, divided by its outputs in a row.
_SPAN, _GPU_SPAN = 16, 4
# Maximum of vectors of padding before a row (load_span).
_PADDING_VECTORS = 16
# Maximum of registers per invocation for states and operands: gfx1100, with the fewest registers, spills with more. A
# CPU driver keeps them in memory, which is as fast.
_REGISTERS = 110


@dataclass(frozen=True)
class Tile:
    """The outputs of an item, and the rows of the input that it keeps for them."""

    width: int
    """Outputs in a row."""
    height: int
    """Rows of outputs."""
    span: int
    """Elements of an input row that the windows of a row of outputs cover, with those between them."""
    ring_rows: int
    """Rows of the ring: all that a window spans if windows share rows; otherwise one, for the whole window."""
    fresh: int
    """Rows of the ring that a window does not share with the window above it."""
    held_rows: int
    """Rows of a window that a row of the ring combines."""

    @property
    def iterations(self) -> int:
        """Iterations of the loop over rows of outputs; the first ones fill the ring."""
        return self.height + (self.ring_rows - 1) // self.fresh


@dataclass(frozen=True)
class PoolSmall(WholeRowsKernel):
    """Over windows so small that loops over them are unrolled."""

    name: ClassVar = "pool_small"
    variants: ClassVar = {
        "pool_small": "one invocation per tile of outputs, whose small windows share loads",
    }

    largest_window: ClassVar[int] = _SMALL_WINDOW
    """Largest window along a dimension."""

    @property
    def why_impossible(self) -> str:
        windows, tile, width = self.windows, self.tile, self.windows.along[2]
        if max(windows.fields["window_size"]) > self.largest_window:
            return f"the window is larger than {self.largest_window} along a dimension"
        # A position beyond 2^32 would wrap around in pool_small.comp, perhaps into the input.
        if max([window.end for window in windows.along]) > MAX_ELEMENTS:
            return "windows extend so far beyond the end that positions would wrap around"
        most = (_GPU_SPAN if self.limits.cooperating else _SPAN) * max(4, self.vector_size, tile.width)
        if tile.span > most:
            return f"a tile of {tile.width} outputs loads {tile.span} elements of a row, more than {most}"
        if width.start_padding > (most := _PADDING_VECTORS * self.vector_size):
            return f"the padding before a row has {width.start_padding} elements, more than {most}"
        if windows.stride[2] != 1 and width.size != 1:
            return "the elements of a row are not contiguous"
        if self.why_too_large:
            return self.why_too_large
        if not self.problem.has_packed_outputs:
            return "an output is not packed"
        if self.without_partials.most_items(self.limits) < self._tiles_of_row(tile.width):
            return "a row of outputs needs more loads than an invocation may have"
        if self.source.size_in_bytes * 8 // self.source.data_type.bits >= 1 << 31:
            return "the input has 2^31 elements or more"
        return ""

    @property
    def why_slow(self) -> str:
        if not self.limits.unrolls:
            return "the driver does not unroll loops"
        window = self.windows.fields["window_size"]
        if self.limits.cooperating and max(window) > _GPU_WINDOW:
            return f"the window is larger than {_GPU_WINDOW} along a dimension"
        if self.why_separable:
            return self.why_separable
        return "" if self._fits(self.tile) else f"an invocation would need more than {_REGISTERS} registers"

    @property
    def why_separable(self) -> str:
        """Why pool_separable is faster; empty if it is not."""
        window = self.windows.fields["window_size"]
        separable, elements = PoolSeparable(self.problem, self.limits), math.prod(window)
        most, longest = _UNROLLED_TERMS, _SMALL_WINDOW
        if separable.selects:
            most, longest = _UNROLLED_ELEMENTS, _UNROLLED_WINDOW
        if (max(window) > longest or elements > most) and not (separable.why_impossible or separable.why_slow):
            return f"the window has more than {most} elements, or {longest} along a dimension"
        return ""

    @cached_property
    def windows(self) -> Windows:
        return self.direct.windows

    # How the work is divided

    @cached_property
    def tile(self) -> Tile:
        """The widest tile whose states fit in registers.

        It has as many rows as leave about four tiles for each invocation; if outputs are few, one row, and so no ring.
        """
        tile = self._tile_of(self._widest)
        while tile.width > self.per_word and not self._fits(tile):
            tile = self._tile_of(tile.width // 2)
        while tile.height > 1 and self.limits.most_items(self.loads_of(tile)) < self._tiles_of_row(tile.width):
            tile = replace(tile, height=even_part(self.windows.along[1].output_size, tile.height // 2))
        return tile

    def _tile_of(self, width: int) -> Tile:
        _, along_height, along_width = self.windows.along
        rows, stride, extent = along_height.window_size, along_height.stride, along_height.extent
        span, height = along_width.span(width), self._height(width)
        # Windows share rows if that saves loads in the widest tiles, and the ring is not too long. The ring then has
        # all rows that a window spans, with a dilation also those between the window's rows.
        ring = _GPU_RING if self.limits.cooperating else _RING
        shared = Tile(width, height, span, ring_rows=extent, fresh=stride, held_rows=1)
        widest = replace(shared, height=self._height(self._widest))
        if extent <= ring and widest.iterations * stride < widest.height * rows:
            return shared
        return Tile(width, height, span, ring_rows=1, fresh=1, held_rows=rows)

    @cached_property
    def _widest(self) -> int:
        """The width of tiles without regard to registers.

        As many outputs as a vector has elements, but at least 4; with states of many words only 4, because SwiftShader
        takes seconds to compile more. On a GPU that stays busy, 8 outputs of 32 bits: they share the cost of a row.
        """
        busy = self.limits.cooperating and self.problem.output_count // 8 >= self.limits.busy_invocations
        if self.vector_size == 4 and busy and self.windows.along[2].span(8) <= _GPU_SPAN * 8:
            return 8
        return 4 if self.partial_words > 3 else max(4, self.vector_size)

    def _height(self, width: int) -> int:
        rows, row = self.windows.fields["output_size"][1:]
        tiles = self.problem.output_count // row * self._tiles_of_row(width)
        return even_part(rows, tiles // (4 * self.limits.invocations))

    def _tiles_of_row(self, width: int) -> int:
        """Tiles of this width in a row of outputs."""
        return -(-self.windows.along[2].output_size // width)

    def _fits(self, tile: Tile) -> bool:
        return not self.limits.cooperating or self._registers(tile) <= _REGISTERS

    def _registers(self, tile: Tile) -> int:
        """Approximate number of registers for the states of the ring, the operands of a span, and loops."""
        states = tile.ring_rows * tile.width * self.state_registers
        operands = tile.span * 2 * -(-self.source.data_type.bits // 32)
        loops = self.windows.along[0].window_size * tile.held_rows > 1 or self.problem.accumulator.loads() > 1
        return states + operands + 32 * loops

    @property
    def state_registers(self) -> int:
        """Registers of a state while elements are accumulated."""
        return self.problem.accumulator.state_registers(self.source.data_type)

    def loads_of(self, tile: Tile) -> int:
        """Loads of a tile: of the rows of the input that it spans, each loaded at once."""
        depth = self.windows.along[0].window_size
        rows = 1 + depth * (1 + tile.held_rows * self.problem.accumulator.loads(tile.span))
        return tile.iterations * (1 + tile.fresh * rows)

    def rows_of(self, tile: Tile) -> int:
        """Rows of the input that a tile loads, including repeated loads, for each depth."""
        return tile.iterations * tile.fresh * tile.held_rows

    @cached_property
    def without_partials(self) -> Tiling:
        tile, (_, rows, row) = self.tile, self.windows.fields["output_size"]
        depth, height, width = self.windows.fields["window_size"]
        # Each output has a share of the rows that its tile loads, and combines them.
        share = -(-self.rows_of(tile) // tile.height)
        elements = depth * width * share + height
        return Tiling(tile.width, elements, self.loads_of(tile), height=tile.height, row=row, rows=rows)

    @property
    def unit(self) -> int:
        return self.whole_slabs if self.shares_words else self.windows.along[2].output_size

    @cached_property
    def direct(self) -> PoolDirect:
        return PoolDirect(self.problem, self.limits)

    # Dispatches

    def dispatch(self, part: Part) -> Dispatch:
        push = Values(
            **self.direct.push(part),
            stride=self.windows.stride[:2],
            tile_height=self.tile.height,
            **self.windows.counted,
        )
        loads = self.loads(part, self.without_partials)
        return Dispatch(self.shader(part), push, self.bindings(part), loads, part.outputs)

    def bindings(self, part: Part) -> tuple[Binding, ...]:
        """The bindings of a part."""
        return self.direct.bindings(part)

    def shader(self, part: Part) -> Shader:
        """The shader of a part."""
        (depth, height, width), tile = self.windows.along, self.tile
        aligned = self.is_aligned(tile.width * width.stride, *self.direct.row_steps)
        # The longer of a vector of values and one of indices.
        most = max(4, self.vector_size)
        constants = self.constants(
            part,
            aligned=aligned,
            window_depth=depth.window_size,
            window_height=height.window_size,
            window_width=width.window_size,
            stride_width=width.stride,
            dilation_depth=depth.dilation,
            dilation_height=height.dilation,
            dilation_width=width.dilation,
            ring_rows=tile.ring_rows,
            fresh_rows=tile.fresh,
            phase=-width.start_padding % self.vector_size if aligned else 0,
            tile_width=tile.width,
            whole_vectors=tile.width % most == width.output_size % most == 0,
            shared_words=self.shares_words,
        )
        return self.direct.shader_of("pool_small", constants)
