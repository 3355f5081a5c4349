"""pool_backward_small.comp, for gradients of pooling with small windows: an invocation computes a tile, row by row.

The compiler knows which windows cover an output; the shader has a picture. On lavapipe (Mesa 22.3) pool_backward.comp
takes three to ten times as long, and on Mesa 25 twice to five times as long for windows of 3 x 3.

Mesa 25 compiles loads slowly (`Limits.gathers`), so gradients of maxima are loaded in turns there. If they were loaded
at once, first calls with windows of 3 x 3 to 7 x 7 would take 1.25 to 1.4 times as long, later calls 0.85 to 0.9 times.
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
# Maximum of additions per step for maxima, which are unrolled: four outputs of 7x7 windows. With twice as many, first
# calls take longer on lavapipe, and later calls as long.
_ADDITIONS = 196
# Maximum of unrolled work per step for shares: a loaded window counts 5, an output 2, a sum of the ring 1. lavapipe
# (Mesa 25) compiles 190 in 0.9 s.
_UNROLLED = 190
# Maximum of windows, or sums, in the ring: 12x12. On a GPU, gfx1100, with the fewest registers, spills with more.
_RING, _GPU_RING = 150, 20
# Columns of maxima that are loaded at a time if a driver compiles loads slowly (`Limits.gathers`): at most _COLUMNS, or
# more if there would be more than _TURNS turns, which Tiling.loads does not count.
_COLUMNS, _TURNS = 5, 4


@dataclass(frozen=True)
class PoolBackwardSmall(WholeRowsKernel):
    """Gradients of pooling with windows so small that loops over them are unrolled."""

    name: ClassVar = "pool_backward_small"
    variants: ClassVar = {
        "pool_backward_small_shares": "gradient of average pooling: windows are loaded once for a tile of outputs",
        "pool_backward_small_maxima": "gradient of max pooling: windows are loaded once for a tile of outputs",
        "pool_backward_small_maxima_turns": "the same, with few loads in a loop, which compile sooner",
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

    @cached_property
    def phase(self) -> tuple[int, ...]:
        """The position of the first output in the last window that begins with it or before it, by dimension."""
        return tuple([window.start_padding % window.stride for window in self.windows.along])

    @property
    def depths(self) -> int:
        """Windows along depth that can cover an output."""
        return self.windows.along[0].overlap

    def _windows_of(self, d: int, outputs: int) -> int:
        """Windows along a dimension that can cover `outputs` neighbouring outputs: ROWS, or COLUMNS, of the shader."""
        window, phase = self.windows.along[d], self.phase[d]
        return (window.reach - phase) // window.stride + (outputs - 1 + phase) // window.stride + 1

    @property
    def _sums_of_window(self) -> int:
        """SUMS_OF_WINDOW of the shader."""
        window = self.windows.along[2]
        return 1 if window.extent % window.stride == 0 else 2

    @property
    def _additions(self) -> float:
        """Additions per output of an average's gradient: two for each addition of sums, three for each division."""
        _, height, row = self.windows.along
        steps = self.without_partials.height // height.stride
        iterations = self._iterations(steps) / steps  # rows of windows per step
        divisions = 3 * self.depths * self._windows_of(2, self.width) * iterations / self.width
        additions = self._sums_of_window * (self.depths * row.overlap * iterations + 2 * height.overlap) / row.stride
        return (divisions + additions) / height.stride

    def _iterations(self, steps: int) -> int:
        """Rows of windows that a tile of `steps` steps loads, each of all depths; the first ones fill the ring."""
        return steps + self._windows_of(1, self.windows.along[1].stride) - 1

    def _is_light(self, width: int) -> bool:
        """Whether the ring and the unrolled work of a tile of this width are small enough."""
        _, height, row = self.windows.along
        outputs, rows, columns = height.stride * width, self._windows_of(1, height.stride), self._windows_of(2, width)
        if self.direct.maxima:
            ring = self.depths * rows * columns
            unrolled, most = outputs * math.prod([window.overlap for window in self.windows.along]), _ADDITIONS
        else:
            ring = rows * ((width - 1 + self.phase[2]) // row.stride + 1) * self._sums_of_window  # ROWS * SUMS
            unrolled, most = 5 * self.depths * columns + 2 * outputs + ring, _UNROLLED
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

    @cached_property
    def turns(self) -> dict[str, int]:
        """The constant of the variant that loads columns of windows in turns; empty if all are loaded at once."""
        columns = self._windows_of(2, self.width)
        loaded = even_part(columns, max(_COLUMNS, -(-columns // _TURNS)))
        in_turns = self.direct.maxima is not None and self.limits.gathers and loaded < columns
        return {"loaded": loaded} if in_turns else {}

    @property
    def unit(self) -> int:
        # Tiles begin at a multiple of the stride, counted from the start of a slab.
        (_, rows, row), step = self.windows.fields["size"], self.windows.along[1].stride
        return row * step if rows % step == 0 and not self.shares_words else self.whole_slabs

    @cached_property
    def without_partials(self) -> Tiling:
        (_, rows, row), step = self.windows.fields["size"], self.windows.along[1].stride
        # Tiles are so high that each invocation has about four tiles.
        tiles = self.problem.output_count // row * -(-row // self.width)
        most = tiles // step // (4 * self.limits.invocations)
        steps = even_part(-(-rows // step), most)
        while True:
            iterations, elements = self._iterations(steps), self.element_count
            if self.direct.maxima is None:  # an output has a share of each row that its tile adds, and adds rows
                depth, height, width = self.direct.most_covering
                elements = min(elements, -(-depth * width * iterations // (steps * step)) + height)
            tiling = Tiling(
                self.width,
                elements,
                loads=1 + iterations * (1 + self.depths),
                height=steps * step,
                row=row,
                rows=rows,
            )
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
            phase_height=self.phase[1],
            phase_width=self.phase[2],
            tile_width=self.width,
            shared_words=self.shares_words,
            whole_vectors=self.width % self.vector_size == width.size % self.vector_size == 0,
            **self.turns,
        )
        push = Values(**self.direct.push(part), tile_height=self.without_partials.height)
        variant = f"pool_backward_small_{self.direct.terms}" + "_turns" * bool(self.turns)
        shader = shader_of(variant, self.problem, constants)
        loads = self.loads(part, self.without_partials)
        return Dispatch(shader, push, self.direct.bindings(part), loads, part.outputs)
