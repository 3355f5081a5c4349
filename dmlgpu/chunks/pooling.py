"""Poolings of arrays in chunks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dmlgpu.call import Call, Shape, Type, arguments_of, pooled
from dmlgpu.chunks.regions import Region
from dmlgpu.descriptors.operator import ExecutionFlags
from dmlgpu.descriptors.pooling import PoolingOperatorDesc
from dmlgpu.descriptors.tensor import Array
from dmlgpu.descriptors.window import Window
from dmlgpu.runtime.device import Selector
from dmlgpu.sources import computed, operand_of


def _windows_to_compute(windows: Window, part: slice) -> range:
    """The windows to compute for a part of the outputs along a dimension.

    If the last window extends beyond the end padding, the window before it is computed, too: a pooling cannot have such
    a window alone.
    """
    hangs_over = windows.span(part.stop) > windows.padded
    return range(min(part.start, part.stop - 2) if hangs_over else part.start, part.stop)


def elements_of(windows: Window, part: slice) -> slice:
    """The elements along a dimension that the windows of a part of the outputs read."""
    first, along = windows.part(_windows_to_compute(windows, part))
    return slice(first, first + along.size)


@dataclass(frozen=True)
class Pooling:
    """A pooling of a whole array. It can be pickled."""

    kind: type[PoolingOperatorDesc]
    shape: Shape
    """The shape of the array."""
    windows: tuple[Window, ...]
    """The windows along each spatial dimension."""
    options: dict[str, Any]
    """Further arguments of `pooled`."""
    dtypes: tuple[Type, ...]
    """The types of the results: of the values, and of the indices if there are any."""

    @classmethod
    def of(cls, call: Call, shape: Shape) -> Self:
        """The pooling of a call on an array of this shape."""
        desc = call.desc
        assert isinstance(desc, PoolingOperatorDesc)
        options = {name: value for name, value in vars(desc).items() if name in ("include_padding", "p")}
        if ExecutionFlags.EXACT_SUMS in call.flags:
            options["exact"] = True
        return cls(type(desc), shape, desc.windows, options, call.dtypes)

    @property
    def leading(self) -> int:
        """The number of dimensions before the spatial ones."""
        return len(self.shape) - len(self.windows)

    @property
    def output_shape(self) -> Shape:
        """The shape of each result."""
        return (*self.shape[: self.leading], *(windows.output_size for windows in self.windows))

    def source(self, region: Region) -> Region:
        """The region of the array that the windows of a region of the outputs read."""
        return (*region[: self.leading], *map(elements_of, self.windows, region[self.leading :]))

    def outputs(self, x: Array, region: Region, device: Selector = None) -> tuple[Array, ...]:
        """A region of the outputs.

        Args:
            x: the elements of the array in the region that `source` returns.
            region: the region of the outputs.
            device: the device that computes the outputs.
        """
        spatial = region[self.leading :]
        parts = [*map(_windows_to_compute, self.windows, spatial)]
        along = [windows.part(part)[1] for windows, part in zip(self.windows, parts, strict=True)]
        with_indices = len(self.dtypes) > 1
        call = pooled(self.kind, operand_of(x), **arguments_of(along), output_indices=with_indices, **self.options)
        results = computed(call, x, device=device)
        selected = ..., *(slice(outputs.start - part.start, None) for part, outputs in zip(parts, spatial, strict=True))
        if not with_indices:
            return (results[selected],)
        values, indices = (result[selected] for result in results)
        begin = tuple(part.start for part in self.source(region))
        return values, _indices_in_whole(indices, x.shape, begin, self.shape).astype(self.dtypes[1], copy=False)


def _indices_in_whole(indices: Array, sizes: Shape, begin: Shape, shape: Shape) -> Array:
    """Indices in the whole array, from indices in a part of it.

    Args:
        indices: indices in the part, of int64.
        sizes: the sizes of the part.
        begin: the coordinates of the part's first element in the whole array.
        shape: the shape of the whole array.
    """
    # Along the last dimensions, if the part has all of them, indices are the same in both.
    split = len(shape)
    while split > 1 and sizes[split - 1] == shape[split - 1]:
        split -= 1
    step = math.prod(shape[split:])
    quotient, result = np.divmod(indices, step)
    for axis in reversed(range(split)):
        quotient, coordinate = np.divmod(quotient, sizes[axis])
        result += (coordinate + begin[axis]) * step
        step *= shape[axis]
    return result
