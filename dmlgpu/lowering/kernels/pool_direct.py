"""pool_direct.comp: one invocation per word of outputs (four of 8 bits, two of 16, else one); any window, any layout.

It computes what other kernels over windows cannot. `pool_direct` writes outputs; it loads long rows of a window in
vectors of 16 bytes. If windows are in several segments, or too long for one invocation, they are divided into splits:
`pool_direct_splits` combines the elements of each, and writes partial results for combine.comp.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from dmlgpu.lowering.accumulators import Selection
from dmlgpu.lowering.geometry import coordinate_ranges
from dmlgpu.lowering.kernels.cut import Extent, Part, Rules, Tiling
from dmlgpu.lowering.kernels.kernel import constants_of, shader_of
from dmlgpu.lowering.kernels.planes import PlanesKernel
from dmlgpu.lowering.plan import Binding, Dispatch, Shader, Values
from dmlgpu.lowering.problem import Windows


@dataclass(frozen=True)
class Split:
    """The split of a window that an invocation combines.

    It has `size` elements along dimension `cut`, one along the dimensions before, and all along those after.
    """

    cut: int
    size: int

    def sizes(self, window_size: Sequence[int]) -> tuple[int, ...]:
        """The sizes along each dimension."""
        return (*(1,) * self.cut, self.size, *window_size[self.cut + 1 :])


@dataclass(frozen=True)
class PoolDirect(PlanesKernel):
    """Over windows: any layout and any window."""

    name: ClassVar = "pool_direct"
    variants: ClassVar = {
        "pool_direct": "one invocation per word of outputs, element by element or in vectors: any layout or window",
        "pool_direct_splits": "splits of windows that lie in several segments, or are too long for one invocation",
    }

    @cached_property
    def windows(self) -> Windows:
        assert isinstance(self.problem.domain, Windows)
        return self.problem.domain

    @property
    def row_steps(self) -> tuple[int, ...]:
        """The strides from one row of the input to another: of planes, batch entries, depths, heights."""
        return (self.planes.stride, self.source.element_strides[0], *self.windows.stride[:2])

    @cached_property
    def most_inside(self) -> tuple[int, ...]:
        """The most elements of a window that can lie in the input, along each dimension."""
        return tuple([window.inside for window in self.windows.along])

    @property
    def loads_vectors(self) -> bool:
        """Whether rows of a window are long enough to be loaded in vectors."""
        width = self.windows.along[2]
        return self.windows.stride[2] == width.dilation == 1 and width.window_size >= 2 * self.vector_size

    def tiling_of(self, size: Sequence[int], *, vectors: bool = False) -> Tiling:
        """The tiling of words of outputs, where each output combines a split of this size of its window."""
        depth, height, width = map(min, size, self.most_inside)
        accumulator = self.problem.accumulator
        row = width * accumulator.loads()
        if vectors:
            # At the edge of the input the invocations of a SIMD vector have rows of different lengths.
            tail = min(width, self.vector_size - 1) * accumulator.loads()
            row = width // self.vector_size * accumulator.loads(self.vector_size) + tail
        loads = 1 + depth * (1 + height * (1 + row))
        return Tiling(self.per_word, depth * height * width, self.per_word * loads)

    @cached_property
    def without_partials(self) -> Tiling:
        return self.tiling_of(self.windows.fields["window_size"], vectors=self.loads_vectors)

    @cached_property
    def with_partials(self) -> Tiling:
        """The tiling of parts that write partials."""
        return self.tiling_of(self.split_sizes)

    @cached_property
    def rules(self) -> Rules:
        return self.planes_rules(self.without_partials, self.with_partials, split_size=1)

    @cached_property
    def split(self) -> Split:
        """The split of a window for an item that writes partials: the whole window, if it is not too long.

        Otherwise some of its slabs, or else rows of a slab, or elements of a row: half as many until they fit.
        """
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

    @property
    def element_count(self) -> int:
        return math.prod(self.split_counts)

    def extents(self, outputs: range) -> tuple[Extent, ...]:
        windows, strides = self.windows, self.source.element_strides
        sizes = (*self.source.sizes[:2], *windows.fields["output_size"])
        *planes, depth, height, width = coordinate_ranges(sizes, outputs.start, outputs.stop)
        low, high = (sum(r[side] * stride for r, stride in zip(planes, strides, strict=False)) for side in (0, 1))
        # A step is all splits at one position along the outermost dimension that is split. Along the other dimensions
        # it may have any elements of the window.
        along = next((d for d in range(3) if self.split_counts[d] > 1), 0)
        begins, ends = [0] * 3, [0] * 3
        for d, (window, (first, last)) in enumerate(zip(windows.along, (depth, height, width), strict=True)):
            size = self.split_sizes[d] if d == along else window.window_size
            begins[d], ends[d] = window.begin(first), window.begin(last) + (size - 1) * window.dilation
            if d != along:
                low += max(0, begins[d]) * windows.stride[d]
                high += min(window.size - 1, ends[d]) * windows.stride[d]
        begin, end, stride, last = begins[along], ends[along], windows.stride[along], windows.along[along].size - 1
        step = self.split_sizes[along] * windows.along[along].dilation
        inside = range(max(0, -(end // step)), min((last - begin) // step + 1, self.split_counts[along]))
        return (
            Extent(
                lowest=low + max(0, begin + inside.start * step) * stride,
                highest=high + min(last, end + (inside.stop - 1) * step) * stride,
                steps=inside,
                first_begin=low + begin * stride,
                last_end=high + end * stride,
                stride=step * stride,
                step_elements=math.prod(self.split_counts[along + 1 :]),
            ),
        )

    def push(self, part: Part) -> dict[str, Any]:
        """The push constants of all kernels over windows."""
        fields = self.windows.fields
        push = {
            "plane_stride": self.planes.stride,
            "size": fields["size"],
            "output_size": fields["output_size"],
            "window_stride": fields["stride"],
            "start_padding": fields["start_padding"],
            "first_output": part.outputs.start,
            "output_count": len(part.outputs),
            **self.planes_push(part),
        }
        if not part.writes_outputs:
            return push | {"partials_base": self.target_base(part, 0)}
        return push | {"indices_base": self.target_base(part, self.indices), "values_base": self.target_base(part, 0)}

    @property
    def indices(self) -> int:
        """Number of the output tensor with indices; without indices that of the values, which is bound in its place."""
        return len(self.problem.outputs) - 1

    def bindings(self, part: Part) -> tuple[Binding, ...]:
        """The bindings of all kernels over windows."""
        source = self.source_binding(part.segments[0])
        if not part.writes_outputs:
            return source, self.target_binding(part, 0, "partials_base")
        indices = self.target_binding(part, self.indices, "indices_base")
        return source, indices, self.target_binding(part, 0, "values_base")

    def dispatch(self, part: Part) -> Dispatch:
        push, fields = self.push(part), self.windows.fields
        push |= {"stride": self.windows.stride, "dilation": fields["dilation"], "window_size": fields["window_size"]}
        if part.writes_outputs:
            # If padding cuts off the start of a window's row, it starts at the input's edge, as aligned as any row.
            width = self.windows.along[2]
            aligned = self.loads_vectors and self.is_aligned(width.stride, width.start_padding, *self.row_steps)
            outputs = self.problem.outputs
            constants = constants_of(self.problem, self.limits, outputs, aligned=aligned, vectors=self.loads_vectors)
            shader, tiling = self.shader_of("pool_direct", constants), self.without_partials
            push |= self.windows.counted
        else:
            # A split of a window may have no element in the input.
            constants = self.constants(part, segmented=True, **self.counted_constants)
            shader = self.shader_of("pool_direct_splits", constants)
            tiling = self.with_partials
            push |= {"cut": self.split.cut, "split_size": self.split.size}
            push |= {"split_begin": part.elements.start, "split_count": part.splits}
        return Dispatch(shader, Values(**push), self.bindings(part), self.loads(part, tiling), part.outputs)

    @property
    def counted_constants(self) -> dict[str, int]:
        """The constants for the range whose elements an average counts, for shaders without room in push constants."""
        counts = self.windows.include_padding and self.problem.accumulator.needs_count
        paddings = zip(("depth", "height", "width"), self.windows.fields["end_padding"], strict=True)
        constants = {f"end_padding_{name}": padding if counts else 0 for name, padding in paddings}
        return {"counts_padding": counts, **constants}

    def shader_of(self, variant: str, constants: Mapping[str, int]) -> Shader:
        """The shader of a variant."""
        built_in = isinstance(self.problem.accumulator, Selection)
        return shader_of(variant, self.problem, constants, built_in=built_in)
