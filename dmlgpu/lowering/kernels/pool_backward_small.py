"""pool_backward_small.comp, for gradients of pooling with small windows: an invocation computes a tile, row by row.

The compiler knows which windows cover an output; the shader has a picture. On lavapipe (Mesa 22.3) pool_backward.comp
takes three to ten times as long.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from dmlgpu.lowering.geometry import even_part
from dmlgpu.lowering.kernels.cut import Part, Tiling
from dmlgpu.lowering.kernels.kernel import constants_of, shader_of
from dmlgpu.lowering.kernels.planes import WholeRowsKernel
from dmlgpu.lowering.kernels.pool_backward import PoolBackward
from dmlgpu.lowering.kernels.pool_backward_separable import PoolBackwardSeparable
from dmlgpu.lowering.plan import Dispatch, Values
from dmlgpu.lowering.problem import CoveringWindows

# Additions per output of an average's gradient up to which pool_backward_separable is not faster, on lavapipe.
_FEW_ADDITIONS = 33
# Approximate number of outputs of a tile's row.
_WIDTH = 8
# The longest stride and the largest window along a dimension.
_LONGEST_STRIDE, _LARGEST_WINDOW = 8, 64
# Maximum of windows over an output that adds the gradient of each, or 0. With more, an output loops over the windows
# whose maximum it is: finding these takes 3 instructions for each window, an addition 20.
_FEW_WINDOWS = 48
# Maximum of additions per row of a tile for maxima, and of comparisons before such a loop, which are unrolled. lavapipe
# (Mesa 25) compiles four outputs of 9x9 windows in a third of the time of their additions.
_ADDITIONS, _COMPARISONS = 256, 330
# Maximum of unrolled work per row of a tile for shares: a loaded window counts 5, an output 2, a sum of the ring 1.
# lavapipe (Mesa 25) compiles 190 in 0.9 s.
_UNROLLED = 190
# Maximum of windows, or sums, in the ring: 12x12, which lavapipe (Mesa 25) compiles in a second; on a GPU, gfx1100,
# with the fewest registers, spills with more.
_RING, _GPU_RING = 150, 20


@dataclass(frozen=True)
class PoolBackwardSmall(WholeRowsKernel):
    """Gradients of pooling with windows so small that loops over them are unrolled."""

    name: ClassVar = "pool_backward_small"
    variants: ClassVar = {
        "pool_backward_small_shares": "gradient of average pooling: windows are loaded once for a tile of outputs",
        "pool_backward_small_maxima": "gradient of max pooling: windows are loaded once for a tile of outputs",
    }

    @property
    def why_impossible(self) -> str:
        fields = self.windows.fields
        if max(fields["stride"]) > _LONGEST_STRIDE:
            return f"the stride is longer than {_LONGEST_STRIDE} along a dimension"
        if max(fields["reach"]) >= _LARGEST_WINDOW:
            return f"the window is larger than {_LARGEST_WINDOW} along a dimension"
        if not self.problem.has_packed_outputs:
            return "an output is not packed"
        return self.why_too_large

    @property
    def why_slow(self) -> str:
        if not self.limits.unrolls:
            return "the driver does not unroll loops"
        if self.direct.maxima is None and self._additions > _FEW_ADDITIONS:
            separable = PoolBackwardSeparable(self.problem, self.limits)
            if self._additions > self.element_count or not (separable.why_impossible or separable.why_slow):
                return f"an output needs more than {_FEW_ADDITIONS} additions"
        return "" if self._is_light(self.width) else "too many windows cover an output"

    @cached_property
    def windows(self) -> CoveringWindows:
        return self.direct.windows

    @cached_property
    def direct(self) -> PoolBackward:
        return PoolBackward(self.problem, self.limits)

    # How the work is divided

    @property
    def phase(self) -> int:
        """The position of a tile's first output in the last window along width that begins with it or before it."""
        row = self.windows.along[2]
        return row.start_padding % row.stride

    @property
    def depths(self) -> int:
        """Windows along depth that can cover an output."""
        return self.windows.along[0].overlap

    def _columns(self, width: int) -> int:
        """Windows along width that can cover a tile's row of outputs: COLUMNS of the shader."""
        row = self.windows.along[2]
        return (row.reach - self.phase) // row.stride + (width - 1 + self.phase) // row.stride + 1

    @property
    def _sums_of_window(self) -> int:
        """SUMS_OF_WINDOW of the shader."""
        window = self.windows.along[2]
        return 1 if window.extent % window.stride == 0 else 2

    @property
    def _additions(self) -> float:
        """Additions per output of an average's gradient: two for each addition of sums, three for each division."""
        _, height, row = self.windows.along
        rows = self._iterations(self.without_partials.height) / self.without_partials.height
        divisions = 3 * self.depths * self._columns(self.width) * rows / self.width
        additions = self.depths * row.overlap * rows + 2 * height.overlap / height.stride
        return divisions + self._sums_of_window * additions / row.stride

    def _iterations(self, height: int) -> int:
        """Rows of windows that a tile of this height loads, each of all depths; the first ones fill the ring."""
        along = self.windows.along[1]
        return (along.reach + height - 1) // along.stride + 1

    @property
    def searched(self) -> bool:
        """Whether outputs add only the gradients that they get: SEARCHED of the shader."""
        return self.direct.maxima is not None and self._most > _FEW_WINDOWS

    @property
    def _most(self) -> int:
        """Maximum of windows that cover an output."""
        return math.prod([window.overlap for window in self.windows.along])

    def _is_light(self, width: int) -> bool:
        """Whether the ring and the unrolled work of a tile of this width are small enough."""
        rows, columns, row = self.windows.along[1].overlap, self._columns(width), self.windows.along[2]
        if self.direct.maxima:
            ring = self.depths * rows * columns
            unrolled, most = self._most * width, _COMPARISONS if self.searched else _ADDITIONS
        else:
            ring = rows * ((width - 1 + self.phase) // row.stride + 1) * self._sums_of_window  # ROWS * SUMS
            unrolled, most = 5 * self.depths * columns + 2 * width + ring, _UNROLLED
        return unrolled <= most and ring <= (_GPU_RING if self.limits.cooperating else _RING)

    @cached_property
    def width(self) -> int:
        """Outputs of a tile's row, about _WIDTH: a multiple of the stride and of a vector, or else of a word."""
        stride, row = self.windows.along[2].stride, self.windows.along[2].size
        for unit in (self.vector_size, self.per_word) if row % self.vector_size == 0 else (self.per_word,):
            least = math.lcm(stride, unit)
            width = -(-min(_WIDTH, row) // least) * least
            while width > least and not self._is_light(width):
                width -= least
            if self._is_light(width):
                break
        return width

    @property
    def unit(self) -> int:
        return self.whole_slabs if self.shares_words else self.windows.along[2].size

    @cached_property
    def without_partials(self) -> Tiling:
        (_, rows, row), step = self.windows.fields["size"], self.windows.along[1].stride
        # Tiles are so high that each invocation has about four.
        tiles = self.problem.output_count // row * -(-row // self.width)
        most = tiles // step // (4 * self.limits.invocations)
        steps = even_part(-(-rows // step), most)
        searches = self.width * (1 + self.element_count) if self.searched else 0
        while True:
            tile_height, elements = steps * step, self.element_count
            iterations = self._iterations(tile_height)
            if self.direct.maxima is None:  # an output has a share of each row that its tile adds, and adds rows
                depth, height, width = self.direct.most
                elements = min(elements, -(-depth * width * iterations // tile_height) + height)
            loads = 1 + iterations * (1 + self.depths) + tile_height * (1 + searches)
            tiling = Tiling(self.width, elements, loads, height=tile_height, row=row, rows=rows)
            if steps == 1 or tiling.most_outputs(self.limits) >= self.unit:
                return tiling
            steps = even_part(-(-rows // step), steps // 2)

    # Dispatches

    def dispatch(self, part: Part) -> Dispatch:
        _, height, width = self.windows.along
        constants = constants_of(
            self.problem,
            self.limits,
            self.problem.outputs,
            index_words=self.direct.index_words,
            depths=self.depths,
            window_height=height.extent,
            window_width=width.extent,
            stride_height=height.stride,
            stride_width=width.stride,
            phase_width=self.phase,
            tile_width=self.width,
            shared_words=self.shares_words,
            whole_vectors=self.width % self.vector_size == width.size % self.vector_size == 0,
            **({"searched": self.searched} if self.direct.maxima else {}),
        )
        push = Values(**self.direct.push(part), tile_height=self.without_partials.height)
        shader = shader_of(f"pool_backward_small_{self.direct.what}", self.problem, constants)
        loads = self.loads(part, self.without_partials)
        return Dispatch(shader, push, self.direct.bindings(part), loads, part.outputs)
