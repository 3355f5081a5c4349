"""The parts that an array is cut into, and what descriptors check of an array that may be larger than a tensor."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dmlgpu.arguments import Shape, Type
from dmlgpu.descriptors.dtypes import DataType
from dmlgpu.descriptors.operator import OperatorDesc, TypeTable
from dmlgpu.errors import DescriptorError

# A part of an array: for every dimension a slice with a start and a stop.
Region = tuple[slice, ...]


@dataclass(frozen=True)
class Regions:
    """The regions of an array that is cut into parts of these sizes, in row-major order; smaller at the ends."""

    shape: Shape
    sizes: Shape

    @property
    def count(self) -> int:
        """The number of regions, which may exceed the limit of `len`."""
        return math.prod(-(-size // step) for size, step in zip(self.shape, self.sizes, strict=True))

    def __getitem__(self, i: int) -> Region:
        if i >= self.count:
            raise IndexError(i)
        region = []
        for size, step in zip(reversed(self.shape), reversed(self.sizes), strict=True):
            i, number = divmod(i, -(-size // step))
            region.append(slice(number * step, min((number + 1) * step, size)))
        return tuple(reversed(region))


def data_type_of(kind: type[OperatorDesc], dtype: Type, types: TypeTable) -> DataType:
    """The data type of an array's elements.

    Raises:
        DescriptorError: the operator does not take it.
    """
    return DataType.of(dtype, f"{kind.__name__}.input_tensor.data_type", types["input_tensor"])


def check_counts(name: str, data_type: DataType, count: int, what: str) -> None:
    """Raises a DescriptorError if a type cannot hold the indices of `count` elements."""
    if count - 1 > np.iinfo(data_type.numpy).max:
        raise DescriptorError(
            f"{name}: {data_type.name} cannot hold the index of {count} {what}; allowed are INT64 and UINT64"
        )
