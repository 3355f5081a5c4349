"""Exact sums of floats as terms: rows of float64, of which each column adds up to a sum without rounding.

Results are float64 numbers that round to float32 and float16 as the sums themselves do: no number of 25 bits, such as
the middle of two float32, is between a sum and its result. Few sums are so near such a number that one addition of
terms does not decide on which side they are (Ziv, Fast evaluation of elementary mathematical functions, 1991).

Terms are floats of at most 32 bits, their squares, or sums of these: multiples of 2^-298 that are far below 2^1023.
They neither underflow nor overflow in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from dmlgpu.descriptors.tensor import Array

# Columns per block: rows of this length stay in the processor's cache.
_COLUMNS = 1 << 13
# The last 28 bits of a float64, which follow its first 25.
_LOW_BITS = (1 << 28) - 1
# Maximum error of an inexact result, in units of the last bit.
_MOST_ERROR = 1 << 7


def added(rows: Array, power: int = 1) -> Array:
    """The sums of columns as terms; with the power 2, of their squares."""
    count, columns = rows.shape
    pieces = min(_COLUMNS // max(columns, 1), count // 16)
    if pieces > 1:
        # Cut few long columns into many short ones. The sum of 16 numbers has at most 13 terms, because a term is at
        # least 2^45 times smaller than the one before it.
        length = count // pieces
        begin = rows[: length * pieces].reshape(length, pieces * columns)
        terms = added(begin, power)
        others = added(rows[length * pieces :], power)
        return added(np.concatenate([terms.reshape(len(terms) * pieces, columns), others]))
    blocks = [_added(block, power) for block in _blocks(rows)]
    terms = np.zeros((max(map(len, blocks), default=1), rows.shape[1]))
    for i, block in enumerate(blocks):
        for number, term in enumerate(block):
            terms[number, i * _COLUMNS : (i + 1) * _COLUMNS] = term
    return terms


def sums(terms: Array) -> Array:
    """The sums of terms."""
    if len(terms) == 1:
        return _plain(terms[0])
    return _computed(lambda sums: sums, lambda numbers: [numbers], terms)


def quotients(terms: Array, count: int) -> Array:
    """The sums of terms, divided by a count."""
    parts = [float(part) for shift in (0, 28, 56) if (part := count & _LOW_BITS << shift)]
    return _computed(lambda sums: sums / count, lambda numbers: [numbers * part for part in parts], terms)


def roots(terms: Array) -> Array:
    """The roots of the sums of terms, which are not negative."""
    return _computed(np.sqrt, lambda numbers: [numbers * numbers], terms)


def addends(terms: Array, dtype: np.dtype[Any], most: int) -> Array:
    """Floats of a type, as rows, whose sums are those of terms, but at most `most` times the greatest float.

    The sums of terms must be multiples of the type's least denormal.
    """
    greatest, total = float(np.finfo(dtype).max), terms.sum(0)
    is_finite = np.isfinite(total)
    times = np.where(is_finite, np.trunc(total / greatest), 0).clip(-most, most)
    row_numbers = np.arange(int(np.abs(times).max(initial=0)))[:, np.newaxis]
    multiple = np.where(row_numbers < np.abs(times), np.copysign(greatest, times), 0)
    rest = [np.where(np.abs(times) < most, row, 0) for row in _rounded([*terms, -times * greatest])]
    rows = [rest[0].astype(dtype)]
    while True:
        rest = [np.where(is_finite, row, 0) for row in _rounded([*rest, -rows[-1].astype(np.float64)])]
        if not rest[0].any():
            return np.concatenate([multiple.astype(dtype), rows])
        rows.append(rest[0].astype(dtype))


def _blocks(rows: Array) -> Iterator[Array]:
    for i in range(0, rows.shape[1], _COLUMNS):
        block = rows[:, i : i + _COLUMNS]
        # The elements of a row must be contiguous.
        yield block if block.strides[1] == block.itemsize else np.ascontiguousarray(block)


def _plain(numbers: Array) -> Array:
    """The numbers, with +0 in place of -0, and np.nan in place of all NaN."""
    numbers = numbers + 0.0
    numbers[np.isnan(numbers)] = np.nan
    return numbers


def _computed(of_sums: Callable[[Array], Array], terms_of: Callable[[Array], list[Array]], terms: Array) -> Array:
    """A function of the sums of terms, as numbers that round as the exact values do.

    Args:
        of_sums: the function of rounded sums.
        terms_of: its inverse, without rounding: terms of the sums whose results are given numbers of 25 bits.
        terms: the terms.
    """

    def of_block(terms: Array) -> Array:
        sums = terms.sum(0)
        numbers = _plain(of_sums(sums))
        unsure = (numbers.view(np.int64) + _MOST_ERROR & _LOW_BITS) <= 2 * _MOST_ERROR
        if len(terms) > 2:
            # The error of an addition is less than the last bit of the sum, unless terms cancel.
            unsure |= ~(np.abs(terms[1:]).sum(0) <= np.abs(sums))
        if unsure.any():
            numbers[unsure] = decided(terms[:, unsure])
        return numbers

    def decided(terms: Array) -> Array:
        """The nearest number of 25 bits, or the float64 next to it on the side of the exact result."""
        rows = _rounded(terms)
        numbers = _plain(of_sums(rows[0]))
        numbers = (numbers.view(np.int64) + (_LOW_BITS + 1) // 2 & ~_LOW_BITS).view(np.float64)
        error = _rounded([*rows, *(-term for term in terms_of(numbers))])[0]
        return np.where(np.abs(error) > 0, np.nextafter(numbers, np.copysign(np.inf, error)), numbers)

    return np.concatenate([np.zeros(0), *map(of_block, _blocks(terms))])


def _added(rows: Array | Iterable[Array], power: int = 1) -> list[Array]:
    """As `added`, of few columns."""
    if isinstance(rows, np.ndarray) and power == 1 and _is_narrow(rows):
        return [rows.sum(0, np.float64)]
    # A term sums the rounding errors of the term before it, as in Python's math.fsum.
    terms: list[Array] = []
    for row in rows:
        addend = row.astype(np.float64)
        if power == 2:
            addend *= addend
        for i, term in enumerate(terms):
            terms[i], addend = _two_sum(term, addend)
            if not addend.any():
                break
        else:
            terms.append(addend)
    return terms


def _is_narrow(rows: Array) -> bool:
    """Whether float64 has all bits of every sum of these floats, because their exponents are close to each other."""
    if rows.dtype != np.float32:
        return rows.dtype == np.float16 and len(rows) <= 1 << 13
    # The exponent of 0 does not count: 0 - 1 is the greatest number.
    magnitudes = rows.view(np.uint32) & np.uint32(0x7FFFFFFF)
    greatest = magnitudes.max(initial=0) >> 23
    magnitudes -= np.uint32(1)
    least = magnitudes.min(initial=0x7F800000) >> 23
    return int(greatest) - int(least) + 24 + len(rows).bit_length() <= 53


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """The rounded sums, and their errors; 0 if a sum is not finite."""
    total = a + b
    added = total - a
    error = total - added
    np.subtract(a, error, out=error)
    error += np.subtract(b, added, out=added)
    if np.isnan(error.min(initial=0)):
        error[np.isnan(error)] = 0
    return total, error


def _rounded(terms: Sequence[Array] | Array) -> list[Array]:
    """Terms with the same sums, each of which is below the last bit of the one before it."""
    rows = _added([*terms])
    changed = len(terms) > 2
    while changed:
        changed = False
        # From the last term to the first.
        for i in reversed(range(len(rows) - 1)):
            before, (rows[i], rows[i + 1]) = rows[i], _two_sum(rows[i], rows[i + 1])
            changed |= not np.array_equal(before, rows[i], equal_nan=True)
    return rows
