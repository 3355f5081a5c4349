"""dmlgpu.chunks.rounding, with Python's integers."""

import math
import random
from fractions import Fraction

import numpy as np
import pytest

from dmlgpu.chunks.rounding import quotients, roots
from dmlgpu.descriptors.reduction import EXACT_SQUARES_WORDS, EXACT_WORDS

COUNTS = [1, 2, 3, 7, 1000, 2**31 + 1, 2**32 - 1, 2**32, 2**32 + 1, 2**40 + 3, 2**48 - 1, 2**48, 2**48 + 5, 2**55 + 3]


def rows(numbers, count):
    """The words of each number, as a row."""
    return np.array([[number >> 32 * i & 0xFFFFFFFF for i in range(count)] for number in numbers], np.uint32)


def integers(rng, bits, count):
    """Numbers of 0 to `bits` bits, many of which end with zeros."""
    yield from (0, 1, 2, 3, 2**53 - 1, 2**53, 2**53 + 1, 2**54, 2**54 + 1, 2**64 - 1, 2**64, 2**bits - 1)
    for _ in range(count):
        length = rng.randrange(1, bits)
        number = rng.getrandbits(length) | 1 << length
        yield number & -(1 << rng.randrange(length)) | rng.randrange(2)


def to_odd(number):
    """A fraction that is not negative, rounded to odd."""
    if number == 0:
        return 0.0
    shift = 54 - number.numerator.bit_length() + number.denominator.bit_length()
    scaled = number * Fraction(2) ** shift
    mantissa, more = math.floor(scaled), math.floor(scaled).bit_length() - 53
    lost = scaled != mantissa or mantissa & ((1 << more) - 1)
    return math.ldexp(mantissa >> more | bool(lost), more - shift)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(("words", "unit"), [(EXACT_WORDS - 1, 149), (EXACT_SQUARES_WORDS - 1, 298)])
def test_quotients(words, unit, count):
    rng = random.Random(count)
    magnitudes = list(integers(rng, 32 * words - 2, 300))
    signs = [rng.choice((-1, 1)) if magnitude else 1 for magnitude in magnitudes]
    got = quotients(rows(map(int.__mul__, signs, magnitudes), words), count, unit)
    expected = [sign * to_odd(Fraction(n, count << unit)) for sign, n in zip(signs, magnitudes, strict=True)]
    assert got.tobytes() == np.array(expected).tobytes()


def test_roots():
    rng = random.Random(0)
    numbers = list(integers(rng, 560, 2000))
    numbers += [rng.getrandbits(bits) ** 2 + more for bits in range(2, 280) for more in (0, 1, 2)]
    got = roots(rows(numbers, EXACT_SQUARES_WORDS - 1))
    # 240 more bits, of which the last says whether the root ends there: each has far more than 53.
    doubled = [math.isqrt(number << 240) for number in numbers]
    expected = [
        to_odd(Fraction(2 * root + (root**2 != number << 240), 2 << 120 + 149))
        for root, number in zip(doubled, numbers, strict=True)
    ]
    assert got.tobytes() == np.array(expected).tobytes()


def test_no_rows():
    assert quotients(rows([], 10).reshape(0, 10), 3, 149).shape == (0,) == roots(rows([], 19).reshape(0, 19)).shape
