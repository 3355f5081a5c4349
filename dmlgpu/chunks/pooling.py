"""Poolings of arrays in chunks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dmlgpu.call import Call, Shape, Type, pooled
from dmlgpu.chunks.regions import Region
from dmlgpu.descriptors.arrays import Array
from dmlgpu.descriptors.operator import ExecutionFlags
from dmlgpu.descriptors.pooling import WINDOW_FIELDS, PoolingOperatorDesc, window_extent
from dmlgpu.runtime.shared import Selector
from dmlgpu.sources import computed, operand_of


@dataclass(frozen=True)
class Dimension:
    """The windows along one spatial dimension."""

    size: int
    outputs: int
    # In the order of WINDOW_FIELDS.
    window_size: int
    stride: int
    start_padding: int
    end_padding: int
    dilation: int

    def computed(self, part: slice) -> slice:
        """The windows that are computed for a part of the outputs.

        A last window that extends beyond the end padding does not fit alone: the one before it is computed, too.
        """
        hangs_over = self._places(part)[1] > self.size + self.end_padding
        return slice(min(part.start, part.stop - 2), part.stop) if hangs_over else part

    def source(self, part: slice) -> slice:
        """The part of the input that these windows read."""
        begin, end = self._places(self.computed(part))
        return slice(max(begin, 0), min(end, self.size))

    def padding(self, part: slice) -> tuple[int, int]:
        """The paddings before and after `source`; a last window that extends beyond the end padding still does."""
        begin, end = self._places(self.computed(part))
        return max(-begin, 0), max(min(end, self.size + self.end_padding) - self.size, 0)

    def extent(self, outputs: int) -> int:
        """The most elements of the input that this number of windows read."""
        return min((outputs - 1) * self.stride + window_extent(self.window_size, self.dilation), self.size)

    def _places(self, part: slice) -> tuple[int, int]:
        begin = part.start * self.stride - self.start_padding
        last = (part.stop - 1) * self.stride - self.start_padding
        return begin, last + window_extent(self.window_size, self.dilation)


@dataclass(frozen=True)
class Pooling:
    """A pooling of a whole array. It can be pickled."""

    kind: type[PoolingOperatorDesc]
    shape: Shape
    """The shape of the array."""
    dimensions: tuple[Dimension, ...]
    """The spatial ones."""
    options: dict[str, Any]
    """Further arguments of the function."""
    dtypes: tuple[Type, ...]
    """The types of the results: of two, the values and their indices."""

    @classmethod
    def of(cls, call: Call, shape: Shape) -> Self:
        """The pooling that a function computes of an array of this shape."""
        desc = call.desc
        assert isinstance(desc, PoolingOperatorDesc)
        windows = zip(*(getattr(desc, field) for field in WINDOW_FIELDS), strict=True)
        sizes = zip(desc.input_tensor.sizes[2:], desc.output_tensor.sizes[2:], strict=True)
        dimensions = tuple(Dimension(*pair, *window) for pair, window in zip(sizes, windows, strict=True))
        options: dict[str, Any] = {
            name: value for name, value in vars(desc).items() if name in ("include_padding", "p")
        }
        if ExecutionFlags.EXACT_SUMS in call.flags:
            options["exact"] = True
        return cls(type(desc), shape, dimensions, options, call.dtypes)

    @property
    def leading(self) -> int:
        """The number of dimensions before the spatial ones."""
        return len(self.shape) - len(self.dimensions)

    @property
    def output_shape(self) -> Shape:
        """The shape of each result."""
        return (*self.shape[: self.leading], *(dimension.outputs for dimension in self.dimensions))

    def source(self, region: Region) -> Region:
        """The part of the array that a region of the outputs needs."""
        spatial = zip(self.dimensions, region[self.leading :], strict=True)
        return (*region[: self.leading], *(dimension.source(part) for dimension, part in spatial))

    def outputs(self, x: Array, region: Region, device: Selector = None) -> tuple[Array, ...]:
        """A region of the outputs.

        Args:
            x: the part of the array that `source` returns.
            region: which one.
            device: the device that computes it.
        """
        spatial = [*zip(self.dimensions, region[self.leading :], strict=True)]
        parts = [dimension.computed(part) for dimension, part in spatial]
        with_indices = len(self.dtypes) > 1
        call = pooled(
            self.kind,
            operand_of(x),
            tuple(dimension.window_size for dimension in self.dimensions),
            strides=tuple(dimension.stride for dimension in self.dimensions),
            dilations=tuple(dimension.dilation for dimension in self.dimensions),
            padding=tuple(dimension.padding(part) for dimension, part in spatial),
            output_sizes=tuple(part.stop - part.start for part in parts),
            output_indices=with_indices,
            **self.options,
        )
        results = computed(call, {"x": x}, x, device=device)
        wanted = (
            ...,
            *(slice(part.start - each.start, None) for each, (_, part) in zip(parts, spatial, strict=True)),
        )
        if not with_indices:
            return (results[wanted],)
        values, indices = (result[wanted] for result in results)
        begin = tuple(part.start for part in self.source(region))
        return values, _numbered(indices, x.shape, begin, self.shape).astype(self.dtypes[1], copy=False)


def _numbered(indices: Array, sizes: Shape, begin: Shape, shape: Shape) -> Array:
    """Indices in the whole array, from indices in a part of it.

    Args:
        indices: indices in the part, of int64.
        sizes: the sizes of the part.
        begin: the coordinates of its first element in the whole array.
        shape: the shape of the whole array.
    """
    # Along the last dimensions that the part has whole, indices are the same in both.
    whole = len(shape)
    while whole > 1 and sizes[whole - 1] == shape[whole - 1]:
        whole -= 1
    step = math.prod(shape[whole:])
    rest, numbered = np.divmod(indices, step)
    for axis in reversed(range(whole)):
        rest, number = np.divmod(rest, sizes[axis])
        numbered += (number + begin[axis]) * step
        step *= shape[axis]
    return numbered
