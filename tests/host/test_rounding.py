"""dmlgpu.chunks.rounding against Python's fractions."""

import math
import random
from fractions import Fraction

import numpy as np
import pytest

from dmlgpu.chunks import rounding
from dmlgpu.chunks.rounding import added, addends, quotients, roots, sums

COUNTS = [1, 2, 3, 7, 1000, 2**31 + 1, 2**32 - 1, 2**32, 2**32 + 1, 2**40 + 3, 2**53 + 1, 2**55 + 5, 2**60 + 1]


def to_odd(number):
    """A fraction rounded to odd."""
    if number == 0:
        return 0.0
    sign, number = (1 if number > 0 else -1), abs(number)
    shift = 54 - number.numerator.bit_length() + number.denominator.bit_length()
    scaled = number * Fraction(2) ** shift
    mantissa, more = math.floor(scaled), math.floor(scaled).bit_length() - 53
    lost = scaled != mantissa or mantissa & ((1 << more) - 1)
    return sign * math.ldexp(mantissa >> more | bool(lost), more - shift)


def decisive(numbers):
    """The first 25 bits of float64 numbers, and whether a later bit is 1: these decide how the numbers round."""
    bits = np.array(numbers).view(np.int64)
    return [*zip((bits >> 28).tolist(), (bits & (1 << 28) - 1 != 0).tolist(), strict=True)]


def root_to_odd(number):
    # With 240 more bits, each root has far more than 53. The last bit is 1 if the root is inexact.
    scaled = int(number * 2**298) << 240
    root = math.isqrt(scaled)
    return to_odd(Fraction(2 * root + (root**2 != scaled), 2 << 120 + 149))


def columns(rng, count, exponents):
    """Columns of floats with these exponents. Many have simple mantissas; in half of the columns floats cancel."""
    mantissas = [1, 3, 1 << 23, (1 << 24) - 1, *(rng.getrandbits(24) for _ in range(8))]
    numbers = [[rng.choice(mantissas) * 2.0 ** rng.choice(exponents) for _ in range(count)] for _ in range(200)]
    x = np.array(numbers, np.float32).T * np.float32([[rng.choice((-1, 1))] for _ in range(count)])
    x[count // 2 : count - 1, ::2] = -x[: count - 1 - count // 2, ::2]
    return x


@pytest.mark.parametrize("exponents", [range(-149, 105), range(-10, 3), range(-2, 0), [-149], [104]], ids=str)
@pytest.mark.parametrize("count", [1, 2, 5, 30])
def test_sums_are_exact_in_any_parts(exponents, count):
    rng = random.Random(count)
    x = columns(rng, count, exponents)
    for power in (1, 2):
        expected = [sum(Fraction(float(number)) ** power for number in column) for column in x.T]
        middle = rng.randrange(count + 1)
        partials = [added(part, power) for part in (x[:middle], x[middle:]) if len(part)]
        for terms in (added(x, power), added(np.concatenate(partials))):
            assert decisive(sums(terms)) == decisive([*map(to_odd, expected)])
            divisor = rng.choice(COUNTS)
            assert decisive(quotients(terms, divisor)) == decisive([to_odd(n / divisor) for n in expected])
            if power == 2:
                assert decisive(roots(terms)) == decisive([*map(root_to_odd, expected)])


@pytest.mark.parametrize("count", COUNTS)
def test_quotients_and_roots_of_many_terms_are_exact(count):
    """Each term is smaller than the last bit of the term before it."""
    rng = random.Random(count)
    for apart in (53, 54, 60, 90):
        terms = np.array([[rng.choice((-1, 0, 1, 3)) * 2.0 ** (100 - apart * i) for _ in range(100)] for i in range(4)])
        terms[0] = np.abs(terms[0]) + 2.0**101
        exact = [sum(map(Fraction, column)) for column in terms.T.tolist()]
        assert decisive(quotients(terms, count)) == decisive([to_odd(n / count) for n in exact])
        assert decisive(roots(terms)) == decisive([*map(root_to_odd, exact)])


@pytest.mark.parametrize("cancels", [0, 2.0**20], ids=["", "terms that cancel"])
@pytest.mark.parametrize("count", COUNTS)
def test_sums_next_to_numbers_of_25_bits_are_exact(count, cancels):
    """Rounded additions of these terms would end at the other side of the number."""
    rng = random.Random(count)
    numbers = [float(rng.getrandbits(24) << 1 | 1) for _ in range(100)]
    for power, factor in (1, 1), (1, count), (2, 1):
        terms = []
        for number in numbers:
            exact = number**power * factor
            parts = [number**power * (factor & (1 << 28) - 1 << shift) for shift in (56, 28, 0)]
            bit = math.ulp(exact * max(cancels, 1)) * rng.choice((-1, 1))
            terms.append([*parts, cancels * exact, 0.6 * bit, 0.6 * bit, -1.3 * bit, -cancels * exact])
        terms = np.array(terms).T
        exact = [sum(map(Fraction, column)) for column in terms.T.tolist()]
        assert decisive(sums(terms)) == decisive([*map(to_odd, exact)])
        assert decisive(quotients(terms, count)) == decisive([to_odd(number / count) for number in exact])
        assert decisive(roots(terms)) == decisive([*map(root_to_odd, exact)])


def test_roots_of_squares_and_their_neighbours_are_exact():
    rng = random.Random(0)
    numbers = [rng.getrandbits(bits) ** 2 + more for bits in range(2, 150) for more in (-1, 0, 1, 2)]
    terms = np.zeros((7, len(numbers)))
    for i, number in enumerate(numbers):
        for k in range(7):
            terms[k, i] = float(number) if abs(number) < 2**53 else to_odd(Fraction(number >> 10)) * 1024
            number -= int(terms[k, i])
        assert number == 0
    exact = [sum(map(Fraction, column)) for column in terms.T.tolist()]
    assert decisive(roots(terms)) == decisive([*map(root_to_odd, exact)])


@pytest.mark.parametrize("power", [1, 2])
def test_infinities_and_nan_are_kept(power):
    inf, nan = math.inf, math.nan
    greatest = float(np.finfo(np.float32).max)
    x = np.float32([[inf, -inf, inf, nan, greatest, 1], [1, 2**-140, -inf, 1, inf, nan], [3, 0, 1, inf, 0, -inf]])
    infinity = -inf if power == 1 else inf
    expected = np.array([inf, infinity, nan if power == 1 else inf, nan, inf, nan])
    with np.errstate(all="ignore"):
        for terms in (added(x, power), added(np.concatenate([added(x[:1], power), added(x[1:], power)]))):
            assert sums(terms).tobytes() == quotients(terms, 3).tobytes() == expected.tobytes()
            if power == 2:
                assert roots(terms).tobytes() == expected.tobytes()


def test_zeros_have_no_sign():
    for x in (np.float32([[-0.0], [-0.0]]), np.float32([[1], [-1]]), np.float16([[-0.0]])):
        for y in (sums(added(x)), quotients(added(x), 3), roots(added(x, 2) * 0)):
            assert y.tobytes() == bytes(8)


@pytest.mark.parametrize("apart", range(24, 34))
@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8, 9])
def test_sums_at_the_limit_of_float64_are_exact(apart, count):
    """The greatest and the least number of a column differ by this many bits, in several ranges of float32."""
    for exponent in (127, 0, apart - 126, apart - 127):
        greatest, least = np.float32(2.0**exponent) * np.float32(2 - 2**-23), 2.0 ** (exponent - apart) * (1 + 2**-23)
        x = np.float32([[greatest, -greatest, greatest]] * count + [[least, least, -least]] * 3)
        for rows in (x, x.astype(">f4")):
            expected = [to_odd(sum(map(Fraction, column))) for column in rows.T.tolist()]
            assert decisive(sums(added(rows))) == decisive(expected)


def test_columns_are_computed_in_blocks(monkeypatch):
    x = columns(random.Random(5), 6, range(-149, 105))
    expected = [f(added(x, 2)) for f in (sums, roots, lambda terms: quotients(terms, 3))]
    monkeypatch.setattr(rounding, "_COLUMNS", 3)
    results = [f(added(x, 2)) for f in (sums, roots, lambda terms: quotients(terms, 3))]
    assert [y.tobytes() for y in results] == [y.tobytes() for y in expected]


@pytest.mark.parametrize("shape", [(40_000, 1), (9_001, 2), (500, 7), (129, 40)], ids=str)
@pytest.mark.parametrize("exponents", [range(-149, 105), range(-3, 3)], ids=str)
def test_sums_of_long_columns_are_exact(shape, exponents):
    rng = np.random.default_rng(shape)
    x = np.ldexp(rng.standard_normal(shape), rng.choice([*exponents], shape)).astype(np.float32)
    x[shape[0] // 3 :][: shape[0] // 3] = -x[: shape[0] // 3]
    for rows in (x, np.asfortranarray(x), x[::-1]):
        for power in (1, 2):
            terms = added(rows, power)
            assert len(terms) < 30
            scaled = [sum(int(n * 2**149) ** power for n in column) for column in x.T.astype(float).tolist()]
            expected = [to_odd(Fraction(n, 1 << 149 * power)) for n in scaled]
            assert decisive(sums(terms)) == decisive(expected)


@pytest.mark.parametrize("count", [3, 1000])
def test_no_columns_have_no_sums(count):
    terms = added(np.zeros((count, 0), np.float32))
    assert sums(terms).shape == quotients(terms, 3).shape == roots(terms).shape == (0,)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@np.errstate(all="ignore")
def test_addends_have_the_sums_of_terms(dtype):
    """Sums beyond the range of the type are limited to a few times its greatest float."""
    greatest, least = float(np.finfo(dtype).max), float(np.finfo(dtype).smallest_subnormal)
    x = np.float64([[1, 5 * greatest, -6.5 * greatest, 99 * greatest, 0], [least, 3 * least, greatest, 0, 0]])
    x[:, 1:3] = np.round(x[:, 1:3] / least) * least
    rows = addends(x, dtype, 7)
    assert rows.dtype == dtype
    expected = [sum(map(Fraction, column)) for column in x.T]
    expected[3] = 7 * Fraction(greatest)
    assert [sum(Fraction(float(number)) for number in column) for column in rows.T] == expected
    for special in (np.inf, -np.inf, np.nan):
        np.testing.assert_array_equal(addends(np.float64([[special], [1]]), dtype, 7).sum(0), [special])
