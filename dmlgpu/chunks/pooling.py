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


def _computed(windows: Window, part: slice) -> range:
    """The windows that are computed for a part of the outputs.

    A last window that extends beyond the end padding does not fit alone: the one before it is computed, too.
    """
    hangs_over = windows.span(part.stop) > windows.padded
    return range(min(part.start, part.stop - 2) if hangs_over else part.start, part.stop)


def elements_of(windows: Window, part: slice) -> slice:
    """The elements along a dimension that a part of the outputs needs."""
    first, along = windows.part(_computed(windows, part))
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
    """Further arguments of the function."""
    dtypes: tuple[Type, ...]
    """The types of the results; if there are two, the values and their indices."""

    @classmethod
    def of(cls, call: Call, shape: Shape) -> Self:
        """The pooling that a function computes of an array of this shape."""
        desc = call.desc
        assert isinstance(desc, PoolingOperatorDesc)
        options: dict[str, Any] = {
            name: value for name, value in vars(desc).items() if name in ("include_padding", "p")
        }
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
        """The part of the array that a region of the outputs needs."""
        return (*region[: self.leading], *map(elements_of, self.windows, region[self.leading :]))

    def outputs(self, x: Array, region: Region, device: Selector = None) -> tuple[Array, ...]:
        """A region of the outputs.

        Args:
            x: the part of the array that `source` returns.
            region: the region.
            device: the device that computes it.
        """
        spatial = region[self.leading :]
        parts = [*map(_computed, self.windows, spatial)]
        along = [windows.part(part)[1] for windows, part in zip(self.windows, parts, strict=True)]
        with_indices = len(self.dtypes) > 1
        call = pooled(
            self.kind,
            operand_of(x),
            **arguments_of(along),
            output_indices=with_indices,
            **self.options,
        )
        results = computed(call, x, device=device)
        selected = ..., *(slice(outputs.start - part.start, None) for part, outputs in zip(parts, spatial, strict=True))
        if not with_indices:
            return (results[selected],)
        values, indices = (result[selected] for result in results)
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
    # Along the last dimensions, if the part has these whole, indices are the same in both.
    whole = len(shape)
    while whole > 1 and sizes[whole - 1] == shape[whole - 1]:
        whole -= 1
    step = math.prod(shape[whole:])
    quotient, numbered = np.divmod(indices, step)
    for axis in reversed(range(whole)):
        quotient, number = np.divmod(quotient, sizes[axis])
        numbered += (number + begin[axis]) * step
        step *= shape[axis]
    return numbered
