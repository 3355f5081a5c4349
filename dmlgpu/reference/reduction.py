"""The oracle of reductions over axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from dmlgpu.descriptors.reduction import (
    ArgmaxOperatorDesc,
    ArgminOperatorDesc,
    ArgOperatorDesc,
    AxisDirection,
    ExactSquaresOperatorDesc,
    ExactSumOperatorDesc,
    ExtremumOperatorDesc,
    ReduceFunction,
    ReduceOperatorDesc,
    ShortSumOperatorDesc,
)
from dmlgpu.descriptors.tensor import Array, bits
from dmlgpu.descriptors.top_k import TopK1OperatorDesc
from dmlgpu.reference.bounds import Bounds, U, bounds_of, relative_error, rounded, sum_error, terms_of, through


def arg(desc: ArgOperatorDesc, x: Array) -> tuple[Array, ...]:
    """The indices of the maxima or minima."""
    # NumPy's argmax and argmin follow all rules: they select the first of equal elements, the first NaN before all
    # other elements, and -0 equals +0. The last of equal elements is the first in the reversed row.
    argument = np.argmax if isinstance(desc, ArgmaxOperatorDesc) else np.argmin
    rows = rows_of(x, desc.axes)
    if desc.axis_direction is AxisDirection.INCREASING:
        index = argument(rows, axis=-1)
    else:
        index = rows.shape[-1] - 1 - argument(rows[..., ::-1], axis=-1)
    output = desc.output_tensor
    return (index.reshape(output.sizes).astype(output.data_type.numpy),)


def reduce(desc: ReduceOperatorDesc, x: Array) -> tuple[Array, ...]:
    """The values of a function: floats are computed in float64, integers wrap."""
    output = desc.output_tensor
    with np.errstate(all="ignore"):
        values = unrounded(desc, x).reshape(output.sizes).astype(output.data_type.numpy)
    return (values,)


def reduce_with_exact_sums(desc: ReduceOperatorDesc, x: Array) -> tuple[Array, ...]:
    """As `reduce`, but floats are rounded once, from exact sums."""
    if desc.function in _SELECTIONS or x.dtype.kind != "f":
        return reduce(desc, x)
    rows, output = rows_of(x, desc.axes), desc.output_tensor
    value = _EXACT[desc.function]
    values = [value(row) for row in rows.reshape(-1, rows.shape[-1])]
    return (np.array(values, output.data_type.numpy).reshape(output.sizes),)


def extremum(desc: ExtremumOperatorDesc, x: Array) -> tuple[Array, ...]:
    """The maxima or minima, and their indices."""
    kind = ArgmaxOperatorDesc if desc.function is ReduceFunction.MAX else ArgminOperatorDesc
    values = reduce(ReduceOperatorDesc(desc.function, desc.input_tensor, desc.output_tensor, desc.axes), x)
    return *values, *arg(kind(desc.input_tensor, desc.output_indices_tensor, desc.axes), x)


def top_k(desc: TopK1OperatorDesc, x: Array) -> tuple[Array, ...]:
    """The first k elements, and their indices."""
    rows = np.moveaxis(x, desc.axis, -1)
    # NumPy's stable sort follows all rules for the least elements: NaN last, -0 equal to +0, equal elements by index.
    # For the greatest elements the order of the reversed row is reversed.
    if desc.axis_direction is AxisDirection.INCREASING:
        order = np.argsort(rows, axis=-1, kind="stable")
    else:
        order = rows.shape[-1] - 1 - np.argsort(rows[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    first = order[..., : desc.k]
    values = np.moveaxis(np.take_along_axis(rows, first, -1), -1, desc.axis)
    return values, np.moveaxis(first, -1, desc.axis).astype(desc.output_index_tensor.data_type.numpy)


def short_sum(desc: ShortSumOperatorDesc, x: Array) -> tuple[Array, ...]:
    """The sums, modulo 2^32."""
    return (rows_of(x, desc.axes).sum(-1, np.int64).astype(np.uint32).reshape(desc.output_tensor.sizes),)


def exact_sum(desc: ExactSumOperatorDesc, x: Array) -> tuple[Array, ...]:
    """The words of exact sums, which tensors of the descriptor have one by one."""
    rows = rows_of(x, desc.axes)
    of_squares = isinstance(desc, ExactSquaresOperatorDesc)
    sums = [_words(np.abs(row) if desc.absolute else row, of_squares) for row in rows.reshape(-1, rows.shape[-1])]
    return tuple(np.array(word, np.uint32).reshape(desc.output_tensor.sizes) for word in zip(*sums, strict=True))


def _words(row: Array, of_squares: bool) -> list[int]:
    """The words of the sum of the finite floats, and a word with bits for NaN, infinity and -infinity."""
    total = (units(row[np.isfinite(row)]) ** (2 if of_squares else 1)).sum()
    row = np.abs(row) if of_squares else row
    specials = np.isnan(row).any() * 1 + (row == np.inf).any() * 2 + (row == -np.inf).any() * 4
    return [*(total >> 32 * i & 0xFFFFFFFF for i in range(19 if of_squares else 10)), int(specials)]


def units(x: Array) -> Array:
    """Finite floats as Python integers, in units of 2^-149: exact, because a float64 holds each scaled float32."""
    return np.array(list(map(int, np.ldexp(x.astype(np.float64), 149).flat)), object).reshape(x.shape)


def _exact_squares(row: Array, *, root: bool) -> np.floating[Any]:
    """The sum of the squares of floats, or its root, as the nearest float of their type."""
    if not np.isfinite(row).all():
        infinite: np.floating[Any] = row.dtype.type(np.nan if np.isnan(row).any() else np.inf)
        return infinite
    total = (units(row) ** 2).sum()
    if not root:
        return nearest(Fraction(total, 1 << 298), row.dtype)
    # 64 more bits of the root, and a sticky bit for the rest: no tie of floats has as many.
    floor = math.isqrt(total << 128)
    return nearest(Fraction(2 * floor + (floor**2 != total << 128), 1 << 149 + 65), row.dtype)


def _exact_sum(row: Array, count: int) -> np.floating[Any]:
    """The sum of floats, divided by `count`, as the nearest float of their type."""
    if not np.isfinite(row).all():
        # Add only infinities and NaN: a sum of finite elements may overflow.
        with np.errstate(invalid="ignore"):
            special: np.floating[Any] = row[~np.isfinite(row)].sum()
        return row.dtype.type(np.nan) if np.isnan(special) else special
    return nearest(Fraction(units(row).sum(), count << 149), row.dtype)


def nearest(value: Fraction, dtype: np.dtype[Any]) -> np.floating[Any]:
    """The float nearest to a number; of two equally near floats the even float."""
    greatest = float(np.finfo(dtype).max)
    # Infinity counts as the number that would follow the greatest float.
    beyond = 2 * Fraction(greatest) - Fraction(float(np.nextafter(np.finfo(dtype).max, dtype.type(0))))
    guess = dtype.type(max(min(float(value), greatest), -greatest))

    def distance(number: np.floating[Any]) -> tuple[Fraction, int]:
        at = Fraction(float(number)) if np.isfinite(number) else beyond if number > 0 else -beyond
        return abs(at - value), int(bits(np.asarray(number))) & 1

    with np.errstate(over="ignore"):
        around = [np.nextafter(guess, dtype.type(-np.inf)), guess, np.nextafter(guess, dtype.type(np.inf))]
    return min(around, key=distance)


def unrounded(desc: ReduceOperatorDesc, x: Array) -> Array:
    """The values before they are rounded to the type of the output."""
    rows = rows_of(x, desc.axes)
    with np.errstate(all="ignore"):
        if desc.function in _SELECTIONS:
            index = _SELECTIONS[desc.function](rows, axis=-1)[..., np.newaxis]
            value: Array = np.take_along_axis(rows, index, -1)[..., 0]
        elif rows.dtype.kind == "f":
            value = _OF_FLOATS[desc.function](rows.astype(np.float64))
        else:
            value = _OF_INTEGERS[desc.function](rows)
    return value


@bounds_of.register
def _reduce_bounds(desc: ReduceOperatorDesc) -> Bounds | None:
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
    error, output = _ERRORS.get(desc.function), desc.output_tensor
    if error is None or not output.data_type.is_float:
        return None

    def bounds(x: Array) -> tuple[Array, ...]:
        rows, value = rows_of(x, desc.axes).astype(np.float64), unrounded(desc, x)
        return (rounded(error(rows, value), value, output.data_type.numpy).reshape(output.sizes),)

    return bounds


def rows_of(x: Array, axes: tuple[int, ...]) -> Array:
    """The elements of x, with the elements of each output along the last axis."""
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    return x.transpose(*kept, *axes).reshape(*(x.shape[axis] for axis in kept), -1)


def _log_sum_exp(rows: Array) -> Array:
    """log(sum(exp(row))), with the greatest element subtracted before exp, so that no sum overflows."""
    greatest = rows.max(-1)
    # With an infinite shift the differences would be NaN.
    shift = np.where(np.isfinite(greatest), greatest, 0)
    value: Array = shift + np.log(np.exp(rows - shift[..., np.newaxis]).sum(-1))
    return value


def _product(rows: Array) -> Array:
    """The product of each row: multiplies the first half by the second, until a factor is left.

    Mantissas and exponents are separate: the product of many mantissas would be too small for a float64.
    """
    mantissas, exponents = np.frexp(rows)
    exponents = exponents.astype(np.int64)
    while mantissas.shape[-1] > 1:
        half = mantissas.shape[-1] // 2
        odd = slice(2 * half, None)
        product, more = np.frexp(mantissas[..., :half] * mantissas[..., half : 2 * half])
        mantissas = np.concatenate([product, mantissas[..., odd]], -1)
        exponents = np.concatenate(
            [exponents[..., :half] + exponents[..., half : 2 * half] + more, exponents[..., odd]], -1
        )
    return np.ldexp(mantissas[..., 0], exponents[..., 0].clip(-2000, 2000).astype(np.int32))


_Function = Callable[..., Array]
_SELECTIONS: dict[ReduceFunction, _Function] = {ReduceFunction.MAX: np.argmax, ReduceFunction.MIN: np.argmin}
_EXACT: dict[ReduceFunction, Callable[[Array], np.floating[Any]]] = {
    ReduceFunction.AVERAGE: lambda row: _exact_sum(row, len(row)),
    ReduceFunction.L1: lambda row: _exact_sum(np.abs(row), 1),
    ReduceFunction.L2: partial(_exact_squares, root=True),
    ReduceFunction.SUM: lambda row: _exact_sum(row, 1),
    ReduceFunction.SUM_SQUARE: partial(_exact_squares, root=False),
}
_OF_FLOATS: dict[ReduceFunction, _Function] = {
    ReduceFunction.AVERAGE: lambda rows: rows.mean(-1),
    ReduceFunction.L1: lambda rows: np.abs(rows).sum(-1),
    ReduceFunction.L2: lambda rows: np.sqrt(np.square(rows).sum(-1)),
    ReduceFunction.LOG_SUM: lambda rows: np.log(rows.sum(-1)),
    ReduceFunction.LOG_SUM_EXP: _log_sum_exp,
    ReduceFunction.MULTIPLY: _product,
    ReduceFunction.SUM: lambda rows: rows.sum(-1),
    ReduceFunction.SUM_SQUARE: lambda rows: np.square(rows).sum(-1),
}
# Computed in the elements' type, so that integers wrap.
_OF_INTEGERS: dict[ReduceFunction, _Function] = {
    ReduceFunction.L1: lambda rows: np.abs(rows).sum(-1, rows.dtype),
    ReduceFunction.MULTIPLY: lambda rows: rows.prod(-1, rows.dtype),
    ReduceFunction.SUM: lambda rows: rows.sum(-1, rows.dtype),
    ReduceFunction.SUM_SQUARE: lambda rows: np.square(rows).sum(-1, rows.dtype),
}
# The largest error of a function of floats, by its reduced rows and its value. Other functions are exact.
_ERRORS: dict[ReduceFunction, _Function] = {
    ReduceFunction.AVERAGE: lambda rows, value: sum_error(terms_of(rows), 0) / rows.shape[-1],
    ReduceFunction.L1: lambda rows, value: sum_error(terms_of(rows), 0),
    ReduceFunction.L2: lambda rows, value: through(
        np.sqrt, np.square(rows).sum(-1), sum_error(terms_of(np.square(rows)), 1)
    ),
    ReduceFunction.LOG_SUM: lambda rows, value: (
        through(np.log, rows.sum(-1), sum_error(terms_of(rows), 0)) + relative_error(value, 2)
    ),
    # The sum is at least 1, or e^-4 if the shift was less than the greatest element.
    ReduceFunction.LOG_SUM_EXP: lambda rows, value: np.where(
        np.isfinite(value), 8 * U + 2 * U * (4 + np.log(rows.shape[-1])), 0
    ),
    ReduceFunction.MULTIPLY: lambda rows, value: relative_error(value, rows.shape[-1]),
    ReduceFunction.SUM: lambda rows, value: sum_error(terms_of(rows), 0),
    ReduceFunction.SUM_SQUARE: lambda rows, value: sum_error(terms_of(np.square(rows)), 1),
}
