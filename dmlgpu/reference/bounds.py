"""Bounds of the difference between a device's results and the oracle's.

Selections and integers equal the oracle's, bit for bit. Results of float arithmetic have a bound, which holds for all
arithmetic that Vulkan 1.1 allows: drivers may round in any direction, and flush denormals to 0.

Devices compute all floats in float32. U is the maximum relative error of an addition or multiplication in float32, in
any rounding direction. The bounds follow from the shaders, line by line:

- Some terms are first added without compensation, in at most 3 additions each: sum.glsl adds the terms of a vector
  pairwise, columns_cooperating.comp adds those of 4 rows, and pool_small.comp those of a window's row. The error is at
  most 3 U times the sum of the terms' absolute values.
- These sums are added with compensation, so the error does not grow with their number: if an invocation adds at most
  2^20 of them, as in all plans, it grows by U times the same sum of absolute values. A power adds U per multiplication.
- Quotients and roots of functions.glsl are right to the last bit but one. Exponentials, their sum under a logarithm,
  and logarithms have a relative error of 2^-22.
- cumulative.glsl adds at most 2^20 terms, one after the other, with compensation. If a sum might overflow, the sum and
  later terms are scaled down: each term then loses less than 2^-62, far less than the last bit of such a sum, which is
  above 2^125.
- product.glsl rounds once per factor, so its bound grows with the number of factors.

In short, with U = 2^-23: E(m) = (4 + m) U sum(abs(terms)) + 2^-126 n is the error of a sum of n terms, each computed
with m multiplications. Every bound includes the rounding to the output's type, by the device and by the oracle: 2 eps
abs(value), and the larger of 2^-126 and the least float of the type. A result has no bound if a partial sum may exceed
the range of float32, if the sum under a logarithm may be 0 or less, or if the result is next to the greatest float of
its type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch

import numpy as np

from dmlgpu.descriptors.operator import ExecutionFlags, OperatorDesc
from dmlgpu.descriptors.tensor import Array

# A function of an operator's inputs that returns, for each output, the largest allowed difference of each element.
Bounds = Callable[..., tuple[Array, ...]]

U = 2.0**-23
# A driver may flush numbers of smaller magnitude to 0.
_FLUSHED = 2.0**-126
_LARGEST = float(np.finfo(np.float32).max)


def is_exact(desc: OperatorDesc, flags: ExecutionFlags = ExecutionFlags.NONE) -> bool:
    """Whether results equal the oracle's, bit for bit, on every device."""
    return ExecutionFlags.EXACT_SUMS in flags or bounds_of(desc.canonical()) is None


def bounds(desc: OperatorDesc, *inputs: Array, flags: ExecutionFlags = ExecutionFlags.NONE) -> tuple[Array | None, ...]:
    """The maximum differences between the outputs of an operator and the oracle's.

    Args:
        desc: the operator.
        inputs: an array for each input tensor, of its sizes and type.
        flags: as for `Device.compile`.

    Returns:
        For each output an array of float64 of its sizes: the largest allowed difference of each element, inf if any
        result is allowed. None: each element has the oracle's bits.
    """
    function = bounds_of(desc.canonical())
    if function is None or is_exact(desc, flags):
        return (None,) * len(desc.outputs)
    with np.errstate(all="ignore"):
        return function(*inputs)


@singledispatch
def bounds_of(desc: OperatorDesc) -> Bounds | None:
    """The function that computes an operator's bounds, from the canonical descriptor; None if the operator is exact.

    The functions are registered beside the oracles of their operators.
    """
    return None


@dataclass(frozen=True)
class Terms:
    """The properties of a sum's terms that determine the error of the sum."""

    count: Array | int
    """Number of terms."""
    total: Array
    """Sum of the terms' absolute values."""
    finite: Array | np.bool
    """Whether all terms are finite."""


def terms_of(rows: Array) -> Terms:
    """The `Terms` of the sum of each row."""
    return Terms(rows.shape[-1], np.abs(rows).sum(-1), np.isfinite(rows).all(-1))


def terms_of_sums(add: Callable[[Array], Array], terms: Array) -> Terms:
    """The `Terms` of each sum that `add` computes from an array of terms."""
    infinite = add((~np.isfinite(terms)).astype(np.float64))
    return Terms(add(np.ones(terms.shape)), add(np.abs(terms)), infinite == 0)


def sum_error(terms: Terms, multiplications: int) -> Array:
    """The largest error of a sum; inf if the sum may leave the range of float32."""
    error = (4 + multiplications) * U * terms.total + terms.count * _FLUSHED
    return np.where(terms.total <= _LARGEST, error, np.where(terms.finite, np.inf, 0))


def prefix_error(total: Array, count: Array) -> Array:
    """The largest error of a cumulative sum; 0 if `total`, the sum of absolute values, is not finite."""
    return np.where(np.isfinite(total), 4 * U * total + count * _FLUSHED, 0)


def relative_error(value: Array, units: Array | float) -> Array:
    """`units` times U of a value; 0 if the value is not finite."""
    return units * U * np.where(np.isfinite(value), np.abs(value), 0)


def through(function: Callable[[Array], Array], total: Array, error: Array) -> Array:
    """The largest error of an increasing function of a sum, `total`, whose error is at most `error`."""
    value = function(total)
    above, below = function(total + error), function(np.maximum(total - error, 0))
    bound = np.maximum(np.abs(above - value), np.abs(below - value))
    # The function may be undefined if the sum may be 0 or less.
    bound = np.where(np.isnan(bound), np.inf, bound)
    return np.where(error == np.inf, np.inf, np.where(np.isfinite(total) & (total > -error), bound, 0))


def rounded(error: Array, value: Array, dtype: np.dtype[np.generic]) -> Array:
    """`error`, plus the errors of rounding to the output's type by the device and by the oracle."""
    info = np.finfo(dtype)  # type: ignore[type-var]
    rounding = 2 * float(info.eps) * np.abs(value) + max(float(info.smallest_subnormal), _FLUSHED)
    bound = np.where(np.isfinite(value), error + rounding, error)
    # Near the greatest float, both that float and infinity are right.
    near = np.abs(np.abs(value) - float(info.max)) <= bound + float(info.eps) * float(info.max)
    bound = np.where(near | (error == np.inf), np.inf, bound)
    return np.where(np.isnan(value) & (bound < np.inf), 0, bound)
