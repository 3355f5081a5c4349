"""The regions that an array is cut into."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dmlgpu.call import Shape

# A part of an array: a slice with a start and a stop for each dimension.
Region = tuple[slice, ...]


@dataclass(frozen=True)
class Regions:
    """The regions of an array, in row-major order."""

    shape: Shape
    """Shape of the array."""
    sizes: Shape
    """Sizes of a region; smaller at the end of a dimension."""

    @property
    def count(self) -> int:
        """The number of regions, which may exceed the limit of `len`."""
        return math.prod(-(-size // step) for size, step in zip(self.shape, self.sizes, strict=True))

    def __getitem__(self, i: int) -> Region:
        if i >= self.count:
            raise IndexError(i)
        region = []
        for size, step in zip(reversed(self.shape), reversed(self.sizes), strict=True):
            i, position = divmod(i, -(-size // step))
            region.append(slice(position * step, min((position + 1) * step, size)))
        return tuple(reversed(region))
