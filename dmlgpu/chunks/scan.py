"""Cumulative sums and products of arrays in chunks.

Before each line of a chunk, the device scans a few added elements. Their sum or product is that of the line's elements
in all earlier chunks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from dmlgpu.call import Call, Operand, Type
from dmlgpu.chunks.reduction import Reduction, along, rows_of
from dmlgpu.chunks.regions import Region
from dmlgpu.chunks.rounding import addends
from dmlgpu.descriptors.cumulative import CumulativeKind, CumulativeProductOperatorDesc, CumulativeSummationOperatorDesc
from dmlgpu.descriptors.operator import ExecutionFlags
from dmlgpu.descriptors.reduction import AxisDirection, ReduceFunction
from dmlgpu.descriptors.tensor import Array
from dmlgpu.runtime.device import Selector
from dmlgpu.sources import computed, operand_of


@dataclass(frozen=True)
class Scan:
    """Cumulative sums or products of a whole array. It can be pickled."""

    totals: Reduction
    """The sums or products of whole lines."""
    kind: CumulativeKind
    ascends: bool
    """Whether a line begins at its first element."""
    has_initial: bool
    """Whether the values of a line begin with `initial`."""

    @classmethod
    def of(cls, call: Call, operand: Operand) -> Self:
        """The scan of a call on an array."""
        desc = call.desc
        assert isinstance(desc, (CumulativeSummationOperatorDesc, CumulativeProductOperatorDesc))
        function = ReduceFunction.MULTIPLY if isinstance(desc, CumulativeProductOperatorDesc) else ReduceFunction.SUM
        element_type = (call.converted or operand.dtype).newbyteorder("=")
        exact = ExecutionFlags.EXACT_SUMS in call.flags and element_type.kind == "f"
        if element_type.kind == "f" and not exact:
            # A total may be beyond the range of float16.
            element_type = np.dtype(np.float32)
        shape = operand.shape or (1,)
        totals = Reduction(shape, (desc.axis,), True, call.dtypes, element_type, function, False, exact)
        return cls(totals, type(desc), desc.axis_direction is AxisDirection.INCREASING, call.padding is not None)

    @property
    def axis(self) -> int:
        """The axis of lines."""
        return self.totals.axes[0]

    @property
    def initial(self) -> int:
        """The sum or product of no elements."""
        return int(self.kind is CumulativeProductOperatorDesc)

    def target(self, region: Region) -> Region:
        """The region of the results that has the values of a region of x."""
        part, axis = region[self.axis], self.axis
        shift = int(self.has_initial and self.ascends)
        return (*region[:axis], slice(part.start + shift, part.stop + shift), *region[axis + 1 :])

    @property
    def initial_target(self) -> Region:
        """The region of the results that has `initial`."""
        size = self.totals.shape[self.axis]
        part = slice(0, 1) if self.ascends else slice(size, size + 1)
        return (*(slice(None),) * self.axis, part)

    def total(self, chunk: Array, device: Selector = None) -> Array:
        """The totals of the lines of a chunk, as partial results."""
        return self.totals.partial(chunk, (0,) * chunk.ndim, device)

    def joined(self, before: Array | None, total: Array) -> Array:
        """The totals of all chunks up to one, from those of the chunks before it (None: no chunk) and of the chunk."""
        return total if before is None else self.totals.merged(np.concatenate([before, total], self.axis))

    def values(self, chunk: Array, before: Array | None, device: Selector = None) -> Array:
        """The values of a chunk.

        Args:
            chunk: a part of the array.
            before: the totals of the chunks before this one in its lines; None: it is the first.
            device: the device that computes the values.
        """
        x, axis, axes = chunk.astype(self.totals.element_type, copy=False), self.axis, self.totals.axes
        count = x.shape[axis]
        if before is not None:
            with np.errstate(all="ignore"):
                elements = along(self._elements(rows_of(before, axes), count), before.shape, axes)
            x = np.concatenate([elements, x] if self.ascends else [x, elements], axis)
        source = operand_of(x).tensor(f"{self.kind.__name__}.input_tensor", self.kind.types["input_tensor"])
        desc = self.kind.of(source, axis, AxisDirection.INCREASING if self.ascends else AxisDirection.DECREASING)
        flags = ExecutionFlags.EXACT_SUMS if self.totals.exact else ExecutionFlags.NONE
        call = Call(desc, x.shape, self.totals.dtypes, flags=flags, fill=0 if 0 in x.shape else None)
        with np.errstate(over="ignore"):
            values: Array = computed(call, x, device=device)
        first = x.shape[axis] - count if self.ascends else 0
        return values[(*(slice(None),) * axis, slice(first, first + count))]

    def _elements(self, totals: Array, count: int) -> Array:
        """Elements, as rows, whose sums or products are these totals; `count` elements of x follow them.

        If a total is so far beyond all floats that no value after it can be finite, the elements have a nearer total:
        the values stay the same.
        """
        dtype = self.totals.element_type
        if dtype.kind != "f":
            return totals.astype(dtype)
        if self.kind is CumulativeProductOperatorDesc:
            return _factors(totals[0], dtype, count)
        return addends(totals, dtype, count + 2)


def _factors(total: Array, dtype: Type, count: int) -> Array:
    """Floats, as rows, whose products are these mantissas and exponents."""
    step = int(np.finfo(dtype).maxexp) - 2
    # An element changes an exponent by at most 149.
    most = 150 * (count + 2)
    exponent = total["exponent"].clip(-most, most)
    number = np.arange(-(-int(np.abs(exponent).max(initial=0)) // step))
    powers = (np.abs(exponent) - step * number[:, np.newaxis]).clip(0, step) * np.sign(exponent)
    return np.concatenate([total["mantissa"][np.newaxis], np.ldexp(1.0, powers.astype(np.int32))]).astype(dtype)
