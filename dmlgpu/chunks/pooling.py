"""Poolings of arrays in chunks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dmlgpu import arguments, functions
from dmlgpu.arguments import Shape, Type
from dmlgpu.chunks.regions import Region, check_counts, data_type_of
from dmlgpu.descriptors.arrays import Array
from dmlgpu.descriptors.dtypes import DataType
from dmlgpu.descriptors.pooling import (
    WINDOW_FIELDS,
    AveragePooling1OperatorDesc,
    LpPooling1OperatorDesc,
    MaxPooling2OperatorDesc,
    PoolingOperatorDesc,
    window_extent,
)


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


# The functions that compute regions of the outputs, by their descriptors.
_POOLINGS: dict[type[PoolingOperatorDesc], Any] = {
    MaxPooling2OperatorDesc: functions.max_pooling,
    AveragePooling1OperatorDesc: functions.average_pooling,
    LpPooling1OperatorDesc: functions.lp_pooling,
}


@dataclass(frozen=True)
class Pooling:
    """A pooling of a whole array. It can be pickled."""

    kind: type[PoolingOperatorDesc]
    shape: Shape
    """Of the array."""
    dimensions: tuple[Dimension, ...]
    """The spatial ones."""
    options: dict[str, Any]
    """Further arguments of the function."""
    dtypes: tuple[Type, ...]
    """Of the results: the values, and the indices where there are any."""

    @classmethod
    def of(
        cls,
        kind: type[PoolingOperatorDesc],
        shape: Shape,
        dtype: Type,
        window_size: Any,
        *,
        output_indices: Any = False,
        indices_data_type: Any = DataType.INT64,
        **given: Any,
    ) -> Self:
        """The pooling that the function of this descriptor computes of an array; the arguments are the function's.

        Raises:
            DescriptorError: an argument is not allowed.
        """
        options: dict[str, Any] = {name: given[name] for name in ("include_padding", "p", "exact") if name in given}
        data_type = data_type_of(kind, dtype, kind.types)
        # Of the dimensions alone nothing is added up: what `exact` may be is checked here.
        arguments.pooling(kind, (1, 1), arguments.packed((1, 1), data_type), (1, 1), exact=given.pop("exact", False))
        alone = arguments.pooled_dimensions(kind, shape, data_type, window_size, **given)
        dimensions = tuple(
            Dimension(
                desc.input_tensor.sizes[2 + i],
                desc.output_tensor.sizes[2 + i],
                *(getattr(desc, name)[i] for name in WINDOW_FIELDS),
            )
            for i, desc in enumerate(alone)
        )
        dtypes = [dtype.newbyteorder("=")]
        if kind is MaxPooling2OperatorDesc:
            one = arguments.packed((1, 1), data_type)
            call = arguments.max_pooling(
                (1, 1), one, (1, 1), output_indices=output_indices, indices_data_type=indices_data_type
            )
            for index_type in call.data_types[1:]:
                name = f"{kind.__name__}.output_indices_tensor.data_type"
                check_counts(name, index_type, math.prod(shape), "elements")
                dtypes.append(index_type.numpy)
        return cls(kind, shape, dimensions, options, tuple(dtypes))

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

    def outputs(self, x: Array, region: Region, device: functions.Selector = None) -> tuple[Array, ...]:
        """A region of the outputs.

        Args:
            x: the part of the array that `source` returns.
            region: which one.
            device: the device that computes it.
        """
        spatial = [*zip(self.dimensions, region[self.leading :], strict=True)]
        computed = [dimension.computed(part) for dimension, part in spatial]
        before, behind = zip(*(dimension.padding(part) for dimension, part in spatial), strict=True)
        further = {"output_indices": True} if len(self.dtypes) > 1 else {}
        results = _POOLINGS[self.kind](
            x,
            tuple(dimension.window_size for dimension in self.dimensions),
            strides=tuple(dimension.stride for dimension in self.dimensions),
            dilations=tuple(dimension.dilation for dimension in self.dimensions),
            start_padding=before,
            end_padding=behind,
            output_sizes=tuple(part.stop - part.start for part in computed),
            device=device,
            **self.options,
            **further,
        )
        wanted = (
            ...,
            *(slice(part.start - each.start, None) for each, (_, part) in zip(computed, spatial, strict=True)),
        )
        if not further:
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
