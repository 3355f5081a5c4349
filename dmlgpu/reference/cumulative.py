"""The oracle of cumulative sums and products."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np

from dmlgpu.descriptors.cumulative import CumulativeOperatorDesc, CumulativeProductOperatorDesc
from dmlgpu.descriptors.reduction import AxisDirection
from dmlgpu.descriptors.tensor import Array
from dmlgpu.reference.bounds import Bounds, bounds_of, prefix_error, relative_error, rounded
from dmlgpu.reference.reduction import units


def cumulative(desc: CumulativeOperatorDesc, x: Array) -> tuple[Array, ...]:
    """The values: floats are computed in float64, integers wrap."""
    with np.errstate(all="ignore"):
        return (_unrounded(desc, x).astype(x.dtype),)


def cumulative_with_exact_sums(desc: CumulativeOperatorDesc, x: Array) -> tuple[Array, ...]:
    """As `cumulative`, but sums of floats are rounded once, from exact sums."""
    return (_along(desc, x, _exact_sums, 0),) if x.dtype.kind == "f" else cumulative(desc, x)


def _unrounded(desc: CumulativeOperatorDesc, x: Array) -> Array:
    """The values before they are rounded to the type of the output."""
    multiplies, is_float = isinstance(desc, CumulativeProductOperatorDesc), x.dtype.kind == "f"
    scan = np.multiply.accumulate if multiplies else np.add.accumulate
    if multiplies and is_float:
        return _along(desc, x.astype(np.float64), _products, 1)
    return _along(desc, x.astype(np.float64 if is_float else x.dtype), lambda lines: scan(lines, -1), multiplies)


def _along(desc: CumulativeOperatorDesc, x: Array, scan: Callable[[Array], Array], first: float) -> Array:
    """The results of `scan` of lines in the axis direction; exclusive results begin with `first`."""
    step = 1 if desc.axis_direction is AxisDirection.INCREASING else -1
    values = scan(np.moveaxis(x, desc.axis, -1)[..., ::step])
    if desc.is_exclusive:
        values = np.concatenate([np.full_like(values[..., :1], first), values[..., :-1]], -1)
    return np.moveaxis(values[..., ::step], -1, desc.axis)


def _products(lines: Array) -> Array:
    """Cumulative products.

    Mantissas and exponents are separate: the product of many mantissas would be too small for a float64. Each step
    multiplies an element by the element at a distance before it. Then the distance doubles, as has the number of
    factors.
    """
    mantissas, exponents = np.frexp(lines)
    exponents = exponents.astype(np.int64)
    distance = 1
    while distance < lines.shape[-1]:
        products, more = np.frexp(mantissas[..., distance:] * mantissas[..., :-distance])
        sums = exponents[..., distance:] + exponents[..., :-distance] + more
        mantissas = np.concatenate([mantissas[..., :distance], products], -1)
        exponents = np.concatenate([exponents[..., :distance], sums], -1)
        distance *= 2
    return np.ldexp(mantissas, exponents.clip(-2000, 2000).astype(np.int32))


def _exact_sums(lines: Array) -> Array:
    """Cumulative sums, rounded once."""
    numbers, precision = np.where(np.isfinite(lines), lines, 0), np.finfo(lines.dtype).nmant + 1

    def nearest(total: int) -> float:
        shift = max(abs(total).bit_length() - precision, 0)
        mantissa, remainder = divmod(total, 1 << shift)
        mantissa += 2 * remainder + (mantissa & 1) > 1 << shift  # to nearest, ties to even
        return math.ldexp(mantissa, shift - 149)

    rows = units(numbers).reshape(-1, lines.shape[-1])
    sums = [[nearest(total) for total in itertools.accumulate(row)] for row in rows]
    with np.errstate(invalid="ignore", over="ignore"):
        specials = np.add.accumulate(np.where(np.isfinite(lines), 0, lines), -1)
        values: Array = np.where(np.isfinite(specials), np.reshape(sums, lines.shape), specials).astype(lines.dtype)
    values[np.isnan(values)] = np.nan
    return values


@bounds_of.register
def _cumulative_bounds(desc: CumulativeOperatorDesc) -> Bounds | None:
    """A sum of n floats has E(0), a product n U abs(value); integers are exact.

    The bound holds for all values within the range of their type, also after values beyond it.
    """
    if not desc.output_tensor.data_type.is_float:
        return None

    def bounds(x: Array) -> tuple[Array, ...]:
        value = _unrounded(desc, x)
        count = _along(desc, np.ones(x.shape), lambda lines: np.add.accumulate(lines, -1), 0)
        if isinstance(desc, CumulativeProductOperatorDesc):
            error = relative_error(value, count)
        else:
            total = _along(desc, np.abs(x.astype(np.float64)), lambda lines: np.add.accumulate(lines, -1), 0)
            error = prefix_error(total, count)
        return (rounded(error, value, x.dtype),)

    return bounds
