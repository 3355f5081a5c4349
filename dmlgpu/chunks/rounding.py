"""Exact sums of floats as terms: rows of float64, of which each column adds up to a sum without rounding.

Results are rounded to odd: 53 bits, the last of which is set where others are lost. So they round to float32 and
float16 as the sums themselves do (Boldo and Melquiond, When double rounding is odd, 2004).

Terms are floats of at most 32 bits, their squares, or sums of these: multiples of 2^-298 that are far below 2^1023. So
nothing underflows or overflows in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from dmlgpu.descriptors.tensor import Array

# Columns that are computed at a time: rows of so many stay in the processor's cache.
_COLUMNS = 1 << 13


def added(rows: Array, power: int = 1) -> Array:
    """The sums of columns as terms; of their squares with the power 2."""
    count, columns = rows.shape
    beside = min(_COLUMNS // max(columns, 1), count // 16)
    if beside > 1:
        # Few long columns become many short ones. Sums of 16 numbers have at most 13 terms: the next one is at least
        # 2^45 times smaller.
        length = count // beside
        begin = rows[: length * beside].reshape(length, beside * columns)
        terms = added(begin, power)
        others = added(rows[length * beside :], power)
        return added(np.concatenate([terms.reshape(len(terms) * beside, columns), others]))
    blocks = [_added(block, power) for block in _blocks(rows)]
    terms = np.zeros((max(map(len, blocks), default=1), rows.shape[1]))
    for i, block in enumerate(blocks):
        for number, term in enumerate(block):
            terms[number, i * _COLUMNS : (i + 1) * _COLUMNS] = term
    return terms


def sums(terms: Array) -> Array:
    """The sums of terms."""
    return _computed(lambda terms: _to_odd(*_rounded(terms)), terms)


def quotients(terms: Array, count: int) -> Array:
    """The sums of terms, divided by a count."""
    return _computed(lambda terms: _quotients(terms, count), terms)


def roots(terms: Array) -> Array:
    """The roots of the sums of terms, which are not negative."""
    return _computed(_roots, terms)


def _blocks(rows: Array) -> Iterator[Array]:
    for i in range(0, rows.shape[1], _COLUMNS):
        block = rows[:, i : i + _COLUMNS]
        # Elements of a row shall follow each other.
        yield block if block.strides[1] == block.itemsize else np.ascontiguousarray(block)


def _computed(function: Callable[[Array], Array], terms: Array) -> Array:
    return np.concatenate([np.zeros(0), *map(function, _blocks(terms))])


def _added(rows: Array | Iterable[Array], power: int = 1) -> list[Array]:
    if isinstance(rows, np.ndarray) and power == 1 and _is_narrow(rows):
        return [rows.sum(0, np.float64)]
    # Each term has what was lost of the sum before it, as in Python's math.fsum.
    terms: list[Array] = []
    for row in rows:
        rest = row.astype(np.float64)
        if power == 2:
            rest *= rest
        for i, term in enumerate(terms):
            terms[i], rest = _two_sum(term, rest)
            if not rest.any():
                break
        else:
            terms.append(rest)
    return terms


def _is_narrow(rows: Array) -> bool:
    """Whether float64 has all bits of every sum of these floats, as their exponents are close to each other."""
    if rows.dtype != np.float32:
        return rows.dtype == np.float16 and len(rows) <= 1 << 13
    # Of a 0 the exponent does not count: 0 - 1 is the greatest number.
    magnitudes = rows.view(np.uint32) & np.uint32(0x7FFFFFFF)
    greatest = magnitudes.max(initial=0) >> 23
    magnitudes -= np.uint32(1)
    least = magnitudes.min(initial=0x7F800000) >> 23
    return int(greatest) - int(least) + 24 + len(rows).bit_length() <= 53


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """The sum as it is rounded, and what is lost; nothing where it is not finite."""
    total = a + b
    added = total - a
    rest = total - added
    np.subtract(a, rest, out=rest)
    rest += np.subtract(b, added, out=added)
    if np.isnan(rest.min(initial=0)):
        rest[np.isnan(rest)] = 0
    return total, rest


def _rounded(terms: Iterable[Array]) -> tuple[Array, Array]:
    """The sums of terms, rounded to nearest, and numbers with the sign of what is lost."""
    rows = _added([*terms])
    rows.append(np.zeros_like(rows[0]))
    # From the last term to the first, until each is below the last bit of the one before it.
    changed = len(rows) > 2
    while changed:
        changed = False
        for i in reversed(range(len(rows) - 1)):
            before, (rows[i], rows[i + 1]) = rows[i], _two_sum(rows[i], rows[i + 1])
            changed |= not np.array_equal(before, rows[i], equal_nan=True)
    return rows[0], rows[1]


def _quotients(terms: Array, count: int) -> Array:
    parts = [float(part) for part in (count & ~0xFFFFFFFF, count & 0xFFFFFFFF) if part]

    def remainders(quotient: Array) -> Array:
        return _rounded([*terms, *(-term for part in parts for term in _product(quotient, part))])[0]

    quotient = _rounded(terms)[0] / count
    # It may be off by more than its last bit, as what is divided was rounded.
    quotient += np.where(np.isfinite(quotient), remainders(quotient) / count, 0)
    return _to_odd(quotient, remainders(quotient))


def _roots(terms: Array) -> Array:
    root = np.sqrt(_rounded(terms)[0])
    return _to_odd(root, _rounded([*terms, *(-term for term in _product(root, root))])[0])


def _product(a: Array, b: Array | float) -> tuple[Array, Array]:
    """The product as it is rounded, and what is lost (Dekker, 1971)."""
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    product = a * b
    return product, a_low * b_low - (product - a_high * b_high - a_low * b_high - a_high * b_low)


def _halves(x: Array | float) -> tuple[Array | float, Array | float]:
    """The first 26 bits of a number, and the others, as two floats of 26 bits."""
    scaled = x * (2.0**27 + 1)
    high = scaled - (scaled - x)
    return high, x - high


def _to_odd(nearest: Array, rest: Array) -> Array:
    """A number rounded to odd, from the nearest float64 and a number with the sign of what is lost."""
    is_off = (rest != 0) & (nearest.view(np.int64) & 1 == 0) & np.isfinite(nearest)
    numbers = nearest + 0.0  # a sum of zeros is +0
    numbers[is_off] = np.nextafter(nearest[is_off], np.copysign(np.inf, rest[is_off]))
    numbers[np.isnan(numbers)] = np.nan
    return numbers
