"""How far results may be from the oracle's.

Selections and integers have no bound: they are the oracle's, bit for bit. What is computed of floats has one. It holds
for all that Vulkan 1.1 leaves to drivers: they may round in any direction, and flush denormals to 0.

Floats are computed in float32, also those of 16 bits. U is the relative error of one addition or multiplication in
float32, in any rounding direction. The bounds follow from the shaders, line by line:

- sum.glsl adds the terms of a block pairwise (2 additions for each term of 32 bits, 3 for one of 16), pool_small.comp
  those of a row of a window (at most 3 for each). Both add up these sums with compensation: what rounding loses is
  kept and added, too. So the error of a sum does not grow with the number of its terms: it is at most 3 U times the sum
  of their absolute values, plus U times that for the error of the compensation, over at most 2^20 blocks. A power adds
  U for each multiplication.
- Quotients and roots of functions.glsl are right to the last bit but one. Exponentials and logarithms have a relative
  error of 2^-22; so has the sum of exponentials of which the logarithm is taken.
- product.glsl rounds once for each factor: its bound grows with the number of factors.

In short, with U = 2^-23: E(m) = (4 + m) U sum(abs(terms)) + 2^-126 n is the error of a sum of n terms, each computed
with m multiplications. Every bound also includes the rounding to the output's type, by the device and by the oracle:
2 eps abs(value), and 2^-126 or the least float of the type, whichever is more. Any result is right where finite terms
may add up to more than a float32 holds, where the sum under a logarithm may be 0 or less, and next to the greatest
float of the output's type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, singledispatch

import numpy as np

from dmlgpu.descriptors.arrays import Array
from dmlgpu.descriptors.operator import ExecutionFlags, OperatorDesc
from dmlgpu.descriptors.pooling import (
    AveragePooling1OperatorDesc,
    AveragePoolingGradOperatorDesc,
    LpPooling1OperatorDesc,
    MaxPoolingGradOperatorDesc,
)
from dmlgpu.descriptors.reduction import ReduceFunction, ReduceOperatorDesc
from dmlgpu.reference.pooling import (
    averaged,
    counts,
    exact_average,
    exact_norm,
    gathered,
    scattered,
    shares,
    sums,
    winners,
)
from dmlgpu.reference.reduction import exact, rows_of

# A function of a descriptor and its inputs. It gives, for each output, the greatest allowed difference of each element;
# None if every element must have the oracle's bits.
Bounds = Callable[..., tuple[Array | None, ...]]

U = 2.0**-23
# A driver may flush numbers below this to 0.
_FLUSHED = 2.0**-126
_LARGEST = float(np.finfo(np.float32).max)


def is_exact(desc: OperatorDesc, flags: ExecutionFlags = ExecutionFlags.NONE) -> bool:
    """Whether results are the oracle's, bit for bit, on every device."""
    return ExecutionFlags.EXACT_SUMS in flags or _bounds(desc.canonical()) is None


def bounds(desc: OperatorDesc, *inputs: Array, flags: ExecutionFlags = ExecutionFlags.NONE) -> tuple[Array | None, ...]:
    """How far each output of an operator may be from the oracle's.

    Args:
        desc: the operator.
        inputs: one array for each input tensor, of its sizes and type.
        flags: as for `Device.compile`.

    Returns:
        For each output an array of float64 of its sizes: the greatest allowed difference of each element, inf where any
        result is allowed. None: each element has the oracle's bits.
    """
    canonical = desc.canonical()
    found = _bounds(canonical)
    if found is None or is_exact(desc, flags):
        return (None,) * len(desc.outputs)
    with np.errstate(all="ignore"):
        return found(canonical, *inputs)


@singledispatch
def _bounds(desc: OperatorDesc) -> Bounds | None:
    """The function that computes an operator's bounds, by its canonical descriptor; None if it is exact."""
    return None


@_bounds.register
def _of_reduce(desc: ReduceOperatorDesc) -> Bounds | None:
    """Floats have the bound of their function, for n reduced elements; integers are exact.

    Functions:
        SUM, L1: E(0).
        AVERAGE: E(0) / n.
        SUM_SQUARE: E(1).
        L2: the change of the root when the sum of squares changes by E(1).
        LOG_SUM: the change of the logarithm when the sum changes by E(0), plus 2 U abs(value).
        LOG_SUM_EXP: 8 U + 2 U (4 + log(n)).
        MULTIPLY: n U abs(value).
    """
    selects = desc.function in (ReduceFunction.MAX, ReduceFunction.MIN)
    return None if selects or not desc.input_tensor.data_type.is_float else _reduce


def _reduce(desc: ReduceOperatorDesc, x: Array) -> tuple[Array, ...]:
    rows = rows_of(x, desc.axes).astype(np.float64)
    value, count = exact(desc, x), rows.shape[-1]
    match desc.function:
        case ReduceFunction.MULTIPLY:
            error = np.where(np.isfinite(value), count * U * np.abs(value), 0)
        case ReduceFunction.LOG_SUM_EXP:
            # The sum is at least 1; or e^-4, if the shift was less than the greatest element.
            error = np.where(np.isfinite(value), 8 * U + 2 * U * (4 + np.log(count)), 0)
        case ReduceFunction.L2:
            squares = np.square(rows)
            error = _through(np.sqrt, squares.sum(-1), sum_error(_terms_of(squares), 1))
        case ReduceFunction.SUM_SQUARE:
            error = sum_error(_terms_of(np.square(rows)), 1)
        case ReduceFunction.LOG_SUM:
            error = _through(np.log, rows.sum(-1), sum_error(_terms_of(rows), 0)) + 2 * U * np.nan_to_num(
                np.abs(value), posinf=0
            )
        case ReduceFunction.AVERAGE:
            error = sum_error(_terms_of(rows), 0) / count
        case ReduceFunction.SUM | ReduceFunction.L1:
            error = sum_error(_terms_of(rows), 0)
        case function:
            raise NotImplementedError(f"{function} has no bound")
    return (rounded(error, value, desc.output_tensor.data_type.numpy).reshape(desc.output_tensor.sizes),)


def _average_pooling(desc: AveragePooling1OperatorDesc, x: Array) -> tuple[Array, ...]:
    terms, value = x.astype(np.float64), exact_average(desc, x)
    error = sum_error(_summed(partial(sums, desc), terms), 0) / counts(desc, x.shape)
    return (rounded(error, value, desc.output_tensor.data_type.numpy),)


def _lp_pooling(desc: LpPooling1OperatorDesc, x: Array) -> tuple[Array, ...]:
    terms, value = np.abs(x.astype(np.float64)) ** desc.p, exact_norm(desc, x)
    found = _summed(partial(sums, desc), terms)
    # A power is computed by squaring, with two multiplications for each bit of p; its factors have errors, too.
    error = _through(lambda total: total ** (1 / desc.p), sums(desc, terms), sum_error(found, 2 * desc.p))
    error = error + 8 * U * np.where(np.isfinite(value), np.abs(value), 0)
    return (rounded(error, value, desc.output_tensor.data_type.numpy),)


@_bounds.register
def _of_average_pooling(desc: AveragePooling1OperatorDesc) -> Bounds:
    """E(0) / count, with E(0) for the sum of a window's elements."""
    return _average_pooling


@_bounds.register
def _of_lp_pooling(desc: LpPooling1OperatorDesc) -> Bounds:
    """The change of the root when the sum of powers changes by E(2 p), plus 8 U abs(value)."""
    return _lp_pooling


def _average_pooling_grad(desc: AveragePoolingGradOperatorDesc, gradient: Array) -> tuple[Array, ...]:
    terms, pooled = shares(desc, gradient), averaged(desc)
    return (_of_gathered(partial(gathered, pooled), terms, gradient.dtype),)


def _max_pooling_grad(desc: MaxPoolingGradOperatorDesc, *inputs: Array) -> tuple[Array, ...]:
    gradient, where = winners(desc, *inputs)
    return (_of_gathered(partial(scattered, desc, where), gradient.astype(np.float64), gradient.dtype),)


def _of_gathered(gather: Callable[[Array], Array], terms: Array, dtype: np.dtype[np.generic]) -> Array:
    """The bound of the sums that `gather` makes of terms. A term may be a quotient, with an error of at most 2 U."""
    return rounded(sum_error(_summed(gather, terms), 2), gather(terms), dtype)


@_bounds.register
def _of_average_pooling_grad(desc: AveragePoolingGradOperatorDesc) -> Bounds:
    """E(2) for the sum of an element's shares: each share is a quotient, with an error of at most 2 U."""
    return _average_pooling_grad


@_bounds.register
def _of_max_pooling_grad(desc: MaxPoolingGradOperatorDesc) -> Bounds:
    """E(2) for the sum of the gradients that go to an element."""
    return _max_pooling_grad


@dataclass(frozen=True)
class Terms:
    """What the error of each sum depends on."""

    count: Array | int
    """The number of its terms."""
    total: Array
    """The sum of the terms' absolute values."""
    finite: Array | np.bool
    """Whether all terms are finite."""


def _terms_of(rows: Array) -> Terms:
    """The `Terms` of the sums of rows."""
    return Terms(rows.shape[-1], np.abs(rows).sum(-1), np.isfinite(rows).all(-1))


def _summed(add: Callable[[Array], Array], terms: Array) -> Terms:
    """The `Terms` of the sums that `add` makes of terms."""
    infinite = add((~np.isfinite(terms)).astype(np.float64))
    return Terms(add(np.ones(terms.shape)), add(np.abs(terms)), infinite == 0)


def sum_error(terms: Terms, multiplications: int) -> Array:
    """How far a sum may be off; inf where it may leave the range of float32."""
    error = (4 + multiplications) * U * terms.total + terms.count * _FLUSHED
    return np.where(terms.total <= _LARGEST, error, np.where(terms.finite, np.inf, 0))


def _through(function: Callable[[Array], Array], total: Array, error: Array) -> Array:
    """How far an increasing function of a sum may be off, if the sum may be off by `error`."""
    value = function(total)
    off = np.maximum(np.abs(function(total + error) - value), np.abs(function(np.maximum(total - error, 0)) - value))
    # The function may have no value where the sum may be 0 or less.
    off = np.where(np.isnan(off), np.inf, off)
    return np.where(error == np.inf, np.inf, np.where(np.isfinite(total) & (total > -error), off, 0))


def rounded(error: Array, value: Array, dtype: np.dtype[np.generic]) -> Array:
    """`error`, plus that of rounding to the output's type, twice: the device rounds, and so does the oracle."""
    info = np.finfo(dtype)  # type: ignore[type-var]
    steps = 2 * float(info.eps) * np.abs(value) + max(float(info.smallest_subnormal), _FLUSHED)
    bound = np.where(np.isfinite(value), error + steps, error)
    # Near the greatest float, both that float and infinity are right.
    near = np.abs(np.abs(value) - float(info.max)) <= bound + float(info.eps) * float(info.max)
    bound = np.where(near | (error == np.inf), np.inf, bound)
    return np.where(np.isnan(value) & (bound < np.inf), 0, bound)
