"""The parts that an array is cut into."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dmlgpu.call import Shape

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
