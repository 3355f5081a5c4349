"""Exact sums as floats. Rows of words are integers, the lowest word first.

Results are rounded to odd: 53 bits, the last of which is set where others are lost. So they round to float32 and
float16 as the sums themselves do (Boldo and Melquiond, When double rounding is odd, 2004).
"""

from __future__ import annotations

import numpy as np

from dmlgpu.descriptors.arrays import Array


def quotients(words: Array, count: int, unit: int) -> Array:
    """Sums of 2^-unit, divided by a count."""
    negative = words[:, -1] >> 31 == 1
    digits = np.where(negative[:, None], ~words, words)
    # Where all lower words are 0 now, the 1 that makes a complement the negative number is carried on.
    carries = negative
    for i in range(digits.shape[1]):
        digits[:, i] += carries
        carries = carries & (digits[:, i] == 0)
    if count > 1:
        # 128 more bits behind the point: a quotient has 53 at least, unless it is 0.
        digits = np.pad(digits, ((0, 0), (4, 0)))
        unit += 128
        # Long division. A remainder and a digit fit 64 bits.
        kind = np.dtype("<u4" if count < 1 << 32 else "<u2" if count < 1 << 48 else "u1")
        divided = np.ascontiguousarray(digits, "<u4").view(kind)
        rest, divisor, bits = np.zeros(len(words), np.uint64), np.uint64(count), np.uint64(8 * kind.itemsize)
        for i in reversed(range(divided.shape[1])):
            rest = rest << bits | divided[:, i]
            divided[:, i] = rest // divisor
            rest %= divisor
        digits = divided.view("<u4")
        digits[:, 0] |= rest != 0
    length, lowest = _ends(digits)
    mantissas = _bits(digits, length - 53) | (lowest < length - 53)
    numbers = np.ldexp(mantissas.astype(np.float64), (length - 53 - unit).astype(np.int32))
    return np.where(negative, -numbers, numbers)


def roots(words: Array) -> Array:
    """The roots of sums of 2^-298, which are not negative."""
    length, lowest = _ends(words)
    # The highest 105 or 106 bits, so that 53 bits are those of the root, rounded down.
    begin = length - 105 & -2
    low, high = _bits(words, begin), _bits(words, begin + 64)
    root = np.sqrt(high * 2.0**64 + low).astype(np.uint64)
    # That is up to two too large, or one too small. The remainder has less than 63 bits: what is beyond 64 cancels.
    rest = (low - root * root).view(np.int64)
    for wrong in (rest < 0), (rest + 2 * root.view(np.int64) - 1 < 0):
        root -= wrong
    rest = (low - root * root).view(np.int64)
    root += rest > 2 * root.view(np.int64)
    rest = (low - root * root).view(np.int64)
    mantissas = root | ((rest != 0) | (lowest < begin))
    numbers: Array = np.ldexp(mantissas.astype(np.float64), ((begin - 298) // 2).astype(np.int32))
    return numbers


def _ends(words: Array) -> tuple[Array, Array]:
    """The number of bits of each row up to its highest 1, and the number of the lowest 1; of 0 both are 0."""
    rows, count = np.arange(len(words)), words.shape[1]
    first, last = (words != 0).argmax(1), count - 1 - (words[:, ::-1] != 0).argmax(1)
    lowest, highest = words[rows, first].astype(np.int64), words[rows, last].astype(np.int64)
    ends = np.frexp(highest)[1] + 32 * last, np.frexp(lowest & -lowest)[1] - 1 + 32 * first
    return np.where(highest == 0, 0, ends[0]), np.where(highest == 0, 0, ends[1])


def _bits(words: Array, begin: Array) -> Array:
    """64 bits of each row, from bit `begin` on; 0 outside of it."""
    rows, count, first, shift = np.arange(len(words)), words.shape[1], begin // 32, (begin % 32).astype(np.uint64)
    low, middle, high = (
        np.where((at >= 0) & (at < count), words[rows, at.clip(0, count - 1)], 0).astype(np.uint64)
        for at in (first, first + 1, first + 2)
    )
    return (low | middle << np.uint64(32)) >> shift | high << np.uint64(1) << (np.uint64(63) - shift)
