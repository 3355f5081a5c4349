"""The functions of REDUCE: any number of elements, special values, error bounds."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

import dmlgpu
from dmlgpu import ReduceFunction, ReduceOperatorDesc, TensorDesc, VerificationError, reduce, verify
from dmlgpu.comparison import differences
from dmlgpu.descriptors.reduction import ARG_TYPES, REDUCE_TYPES, ExtremumOperatorDesc, ShortSumOperatorDesc
from dmlgpu.reference import reference
from dmlgpu.reference.bounds import bounds
from dmlgpu.runtime.tuning import device_limits
from dmlgpu.testing.cases import FLOAT16, FLOAT32, INT32, INT64, UINT8, UINT32, UINT64
from dmlgpu.testing.fills import arranged, small, ties
from tests.support.errors import refuses
from tests.support.limits import LOWERED
from tests.support.plans import check

F = ReduceFunction
VALUES = [function for function, types in REDUCE_TYPES.items() if types is not ARG_TYPES]
ARITHMETIC = [function for function in VALUES if function not in (F.MAX, F.MIN)]
by_float = pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=["float32", "float16"])


@pytest.mark.parametrize("data_type", [FLOAT32, FLOAT16], ids=lambda data_type: data_type.name)
def test_the_largest_exponential_may_stand_anywhere(mapped, data_type):
    """The largest element is at each position of a row and of a column; and before short rows, which do not have it."""

    def check(x, axis):
        x = np.ascontiguousarray(x, data_type.numpy)
        verify(ReduceOperatorDesc.of(F.LOG_SUM_EXP, x, (axis,)), x, device=mapped)

    diagonal = np.zeros((67, 72))
    np.fill_diagonal(diagonal, 200)
    # Other elements are so close to the largest that its exponential, shifted by theirs, stays in range: a sum with
    # their shift would have few digits left.
    below = np.repeat(np.linspace(-50, -80, 67)[:, None], 72, 1)
    np.fill_diagonal(below, np.random.default_rng(0).random(67))
    for x, axis in (diagonal, 0), (diagonal, 1), (below, 1), (below.T, 0):
        check(x, axis)
    # Much smaller elements add nothing, however many they are.
    most = np.full((1, 2000 if mapped.limits is LOWERED else 20_000), -60)
    most[0, 999] = 0
    check(most, 1)
    for size in range(1, 20):
        check(np.arange(0, -200 * 33, -200).repeat(size).reshape(33, size), 1)


# A vector has 2 elements of 64 bits, 4 of 32, 8 of 16: rows of vectors, of one element less and of one more. These
# values have exact sums, so an element that is left out, or added twice, shows. One function of each accumulator; rows
# have one type each.
@pytest.mark.parametrize("function", [F.MAX, F.SUM, F.MULTIPLY, F.LOG_SUM_EXP], ids=lambda function: function.name)
def test_any_number_of_elements_matches_the_oracle(mapped, function):
    types = [t for t in (FLOAT32, UINT64, FLOAT16, INT32) if t in REDUCE_TYPES[function]["input_tensor"]]
    for number, (sizes, axes) in enumerate(
        (
            *(((3, size), (1,)) for size in (1, 3, 7, 9, 65, 255, 257, 999)),
            *(((size, 9), (0,)) for size in (257, 2)),
            ((40, 66), (0,)),
            ((6, 15, 10), (0, 2)),
            ((6, 15, 10), (0, 1, 2)),
        )
    ):
        for data_type in types[number % 2 :: 2] if number >= 8 else [types[number % len(types)]]:
            source = TensorDesc(data_type, sizes)
            verify(ReduceOperatorDesc.of(function, source, axes), arranged(source, small), device=mapped)


@pytest.mark.every_driver
@pytest.mark.parametrize("function", [F.ARGMAX, F.MIN, F.SUM, F.AVERAGE], ids=lambda f: f.name)
def test_outputs_with_several_columns_match_the_oracle(driver, open_device, function):
    """In several segments and splits. The last split of some has fewer elements than an output has columns."""
    limits = replace(device_limits(driver), segment_bytes=1 << 14, group_count=1, least_loads=16, cooperating=False)
    device = open_device(driver.index, limits)
    types = [t for t in (UINT8, FLOAT32, FLOAT16) if t in REDUCE_TYPES[function]["input_tensor"]]
    for number, (sizes, axis) in enumerate((((7751, 3), 0), ((3, 973, 6), 1), ((2, 1000, 10), 1))):
        source = TensorDesc(types[number % len(types)], sizes)
        desc = ReduceOperatorDesc.of(function, source, (axis,))
        plan = device.compile(desc).plan
        check(plan)
        shaders = [dispatch.shader for dispatch in plan.dispatches if dispatch.shader.variant != "combine"]
        several = all(shader.constants.get("output_columns", 1) > 1 for shader in shaders)
        assert several or not limits.unrolls
        verify(desc, arranged(source, ties if function is F.ARGMAX else small), device=device)


@pytest.mark.every_driver
@by_float
@pytest.mark.parametrize(
    ("function", "x", "expected"),
    [
        (F.SUM, [1, 2, np.inf], np.inf),
        (F.SUM, [1, -np.inf, 2], -np.inf),
        (F.SUM, [np.inf, 1, -np.inf], np.nan),
        (F.SUM, [1, -np.nan, 2], np.nan),
        (F.SUM, [6e4, 6e4, -6e4], 6e4),
        (F.AVERAGE, [1, np.inf], np.inf),
        (F.AVERAGE, [6e4, 6e4, 6e4], 6e4),
        (F.AVERAGE, [1, 1, 0], 2 / 3),
        (F.L1, [1, -np.inf], np.inf),
        (F.L1, [-1, np.nan], np.nan),
        (F.L1, [-3, 4, -0.0], 7),
        (F.L2, [-np.inf, 1], np.inf),
        (F.L2, [300, -400], 500),
        (F.L2, [0, -0.0], 0),
        (F.SUM_SQUARE, [-3, 4], 25),
        (F.SUM_SQUARE, [np.inf, -np.inf], np.inf),
        (F.LOG_SUM, [0.5, 0.5], 0),
        (F.LOG_SUM, [2, -2], -np.inf),
        (F.LOG_SUM, [1, -2], np.nan),
        (F.LOG_SUM, [-np.inf, 1], np.nan),
        (F.LOG_SUM, [np.inf, 1], np.inf),
        (F.LOG_SUM, [np.inf, -np.inf], np.nan),
        (F.LOG_SUM, [np.e, 0], 1),
        (F.LOG_SUM_EXP, [1e4, 1e4], 1e4 + math.log(2)),
        (F.LOG_SUM_EXP, [-1e4, -1e4], -1e4 + math.log(2)),
        (F.LOG_SUM_EXP, [-np.inf, 3], 3),
        (F.LOG_SUM_EXP, [-np.inf, -np.inf], -np.inf),
        (F.LOG_SUM_EXP, [np.inf, -np.inf], np.inf),
        (F.LOG_SUM_EXP, [np.inf, np.nan], np.nan),
        (F.LOG_SUM_EXP, [0, 5, -5], math.log(1 + math.exp(5) + math.exp(-5))),
        (F.MULTIPLY, [2, -3, 4], -24),
        (F.MULTIPLY, [np.inf, -2], -np.inf),
        (F.MULTIPLY, [np.inf, 0], np.nan),
        (F.MULTIPLY, [np.nan, 0], np.nan),
        (F.MULTIPLY, [6e4, 6e4, 1 / 6e4], 6e4),
        (F.MULTIPLY, [2**-14, 2**-14, 2**14], 2**-14),
        (F.MULTIPLY, [2**-24, 0.5, 4], 2**-23),
        (F.MAX, [1, np.nan, 3], np.nan),
        (F.MIN, [1, -np.inf], -np.inf),
    ],
    ids=str,
)
def test_functions_have_the_expected_values(device, dtype, function, x, expected):
    x = np.array(x, dtype)
    result = verify(ReduceOperatorDesc.of(function, x), x, device=device)
    assert result.dtype == dtype
    assert np.isclose(result[0], expected, rtol=2 * np.finfo(dtype).eps, atol=2e-6, equal_nan=True)


@pytest.mark.every_driver
@pytest.mark.parametrize(
    ("function", "x", "expected"),
    [
        (F.SUM, [3e38, 3e38, -3e38], math.inf),  # a sum whose partial sums leave the range is infinite
        (F.SUM_SQUARE, [2e19, 1], math.inf),
        (F.L2, [2e19, 1], math.inf),
        (F.LOG_SUM_EXP, [3e38, -3e38], 3e38),
        (F.LOG_SUM_EXP, [-3e38, -3.4e38], -3e38),
        (F.MULTIPLY, [1e38, 1e38, 1e-38, 1e-38], 1),
        (F.MULTIPLY, [1e-30, 1e-12], 1e-42),  # a denormal
        (F.MULTIPLY, [2.0**-149, 2.0**100], 2.0**-49),
        (F.MULTIPLY, [-(2.0**-100), 2.0**-60], 0),
        (F.MULTIPLY, [-(2.0**100), 2.0**60], -math.inf),
        (F.AVERAGE, [1e38, 1e38, 1e38], 1e38),
    ],
    ids=str,
)
def test_values_at_the_ends_of_float32_are_kept(device, function, x, expected):
    x = np.array(x, np.float32)
    result = verify(ReduceOperatorDesc.of(function, x), x, device=device)
    assert result[0] == pytest.approx(expected, rel=1e-6, abs=2e-45)


@pytest.mark.every_driver
@pytest.mark.parametrize("data_type", [INT32, UINT32, INT64, UINT64], ids=lambda data_type: data_type.name.lower())
def test_integers_wrap(any_device, data_type):
    info = np.iinfo(data_type.numpy)
    numbers = [info.max, info.max, 3, info.min, info.max - 5]
    x = np.array(numbers, data_type.numpy)
    for function, exact in (
        (F.SUM, sum(numbers)),
        (F.L1, sum(map(abs, numbers))),
        (F.SUM_SQUARE, sum(number * number for number in numbers)),
        (F.MULTIPLY, math.prod(numbers)),
    ):
        result = reduce(x, function, device=any_device)
        assert result.dtype == x.dtype
        assert (int(result) - exact) % 2**data_type.bits == 0


@pytest.mark.every_driver
def test_every_float16_is_read_and_written(any_device):
    """A sum of one element is the element; a sum of two in float32 is rounded to the nearest, as by NumPy."""
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    assert np.array_equal(reduce(x[:, None], F.SUM, 1, device=any_device), x, equal_nan=True)
    finite = x[np.isfinite(x)].astype(np.float32)
    pairs = np.stack([finite, np.random.default_rng(0).permutation(finite)], 1)
    sums = reduce(pairs.astype(np.float16), F.SUM, 1, device=any_device)
    with np.errstate(over="ignore"):
        assert np.array_equal(sums, pairs.sum(1).astype(np.float16))


def test_a_sum_of_2_to_the_26_ones_is_exact(device):
    desc = ReduceOperatorDesc.of(F.SUM, TensorDesc(FLOAT32, (1 << 26,), (0,)))
    x = np.broadcast_to(np.ones(1, np.float32), 1 << 26)
    assert device.compile(desc)(x).tolist() == [1 << 26]


def naive(function, x):
    """The result in float32, one element after the other, without the compensation of kernels."""
    terms = {F.L1: np.abs(x), F.L2: x * x, F.SUM_SQUARE: x * x}.get(function, x)
    total = np.add.accumulate(terms, dtype=np.float32)[-1:]
    return {F.AVERAGE: total / np.float32(len(x)), F.L2: np.sqrt(total), F.LOG_SUM: np.log(total)}.get(function, total)


@pytest.mark.parametrize("function", [F.SUM, F.AVERAGE, F.L1, F.L2, F.LOG_SUM, F.SUM_SQUARE], ids=lambda f: f.name)
def test_bounds_are_not_loose(function):
    """Bounds exclude sums without compensation."""
    x = np.full(1 << 20, 1.1, np.float32)
    desc = ReduceOperatorDesc.of(function, x)
    expected = reference(desc, x)
    assert list(differences(desc, (x,), (naive(function, x),), expected))
    near = np.nextafter(expected[0], np.float32(np.inf))
    assert not list(differences(desc, (x,), (near,), expected))


@pytest.mark.parametrize("function", ARITHMETIC, ids=lambda function: function.name)
def test_infinities_and_nan_have_no_room(function):
    x = np.array([[1, np.inf], [np.inf, -np.inf], [np.nan, 1], [-np.inf, -np.inf], [1, 2]], np.float32)
    desc = ReduceOperatorDesc.of(function, x, (1,))
    (value,), (bound,) = reference(desc, x), bounds(desc, x)
    assert (bound[~np.isfinite(value)] == 0).all()
    assert (bound[np.isfinite(value)] < 1e-5).all()


@pytest.mark.every_driver
def test_roots_and_quotients_are_mostly_right_to_the_last_bit(device):
    """Roots and quotients of a driver may be wrong by several units; those of kernels are corrected."""
    x = np.random.default_rng(0).uniform(0.5, 2, (4000, 3)).astype(np.float32)
    exact = x.astype(np.float64)
    for function, expected in ((F.L2, np.sqrt(np.square(exact).sum(1))), (F.AVERAGE, exact.mean(1))):
        assert np.mean(reduce(x, function, 1, device=device) == expected.astype(np.float32)) > 0.9


@pytest.mark.every_driver
@by_float
@pytest.mark.parametrize("function", ARITHMETIC, ids=lambda function: function.name)
def test_long_rows_and_columns_keep_to_their_bounds(any_device, function, dtype):
    rng = np.random.default_rng(0)
    row, column = (3001, 401) if any_device.limits == LOWERED else (30_001, 7001)
    for sizes, axes in ((2, row), 1), ((column, 12), 0):
        for x in (rng.standard_normal(sizes), rng.uniform(0.5, 1.5, sizes), rng.exponential(3, sizes)):
            x = x.astype(dtype)
            verify(ReduceOperatorDesc.of(function, x, (axes,)), x, device=any_device)


X = np.array([[1, 5, 2], [4, 0, 3]], np.float32)


def test_a_result_beyond_its_bound_is_found(device, monkeypatch):
    desc = ReduceOperatorDesc.of(F.SUM, X, (1,))
    wrong = tuple(y + 1e-4 for y in reference(desc, X))
    monkeypatch.setattr("dmlgpu.comparison.reference", lambda desc, x, flags: wrong)
    message = r"2 of 2 elements differ, .* and at most \S+ between them is allowed"
    refuses(message, verify, desc, X, device=device, error=VerificationError)


@pytest.mark.every_driver
@pytest.mark.parametrize("x", [(0, -np.inf), (2e-38, -np.inf), (2e-38, -88), (-np.inf, 3), (3, -90, -1e30)], ids=str)
def test_exponentials_below_the_least_number_are_0(device, x):
    """By each kernel over axes."""
    row = np.array([*x, *[-np.inf] * 20], np.float32)
    columns, planes = np.tile(row, (64, 1)).T, np.tile(row, (3, 2, 1))
    for array, axis, times in (row, 0, 1), (np.tile(row, (4, 1)), 1, 1), (columns, 0, 1), (planes, (0, 2), 3):
        sums = reduce(array, ReduceFunction.LOG_SUM_EXP, axis, device=device)
        assert np.allclose(sums, np.float32(max(x) + np.log(times)), rtol=1e-6, atol=0)


SHORT_INTEGERS = [np.uint8, np.int8, np.uint16, np.int16]
by_short_integer = pytest.mark.parametrize("dtype", SHORT_INTEGERS)


@by_short_integer
def test_sums_of_short_integers_are_right_modulo_2_to_the_32(mapped, dtype):
    """Sums of rows, of columns and over other axes, modulo 2^32."""
    limits = np.iinfo(dtype)
    sizes = (5, 11 if mapped.limits is LOWERED else 41, 35)
    x = np.random.default_rng(0).integers(limits.min, limits.max, sizes, dtype, endpoint=True)
    # Each view over every fourth set of axes; views of other types over the others.
    views = x, x[:, :, :32], x.transpose(2, 0, 1), x[:, :9, ::2]
    for number, view in enumerate(views, SHORT_INTEGERS.index(dtype)):
        for axes in ((0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2))[number % 4 :: 4]:
            desc = ShortSumOperatorDesc.of(view if view.flags.c_contiguous else TensorDesc.of(view), axes)
            verify(desc, view, device=mapped)
    if mapped.limits is not LOWERED:  # else it has thousands of segments
        wraps = np.full((1, 70000), limits.max, dtype)
        verify(ShortSumOperatorDesc.of(wraps, (1,)), wraps, device=mapped)


@by_short_integer
def test_sums_of_short_integers_may_exceed_32_bits(device, dtype):
    """Such sums are computed in parts: over all elements, over some axes, and over one axis that is too long."""
    limits = np.iinfo(dtype)
    # Elements of 8 bits must be 2^24; of 16 bits so few suffice that all views and axes are fast.
    few = limits.bits == 8
    for extreme in {limits.min, limits.max} - {0}:
        x = np.full((3, (1 << 32 - limits.bits) // 2 + 5, 1 if few else 2), extreme, dtype)
        for view in (x,) if few else (x, x.transpose(1, 0, 2), x[:, ::-1], x[..., :1]):
            for axis in (None, (0, 1)) if few else (None, (0, 1), (1, 2), (0, 2), 1):
                for keepdims in (False,) if few else (False, True):
                    result = dmlgpu.sum(view, axis, keepdims=keepdims, device=device)
                    np.testing.assert_array_equal(result, np.sum(view, axis, keepdims=keepdims), strict=True)
    assert dmlgpu.sum(np.full(1 << 17, -1, np.int16), dtype=np.int32, device=device) == -(1 << 17)


def test_sums_of_short_integers_have_the_arguments_of_sums(device):
    x = np.ones((2, 3), np.uint8)
    for name, value in ("axis", 2), ("keepdims", 1), ("exact", 1):
        refuses(rf"\.{name}: {value} is ", dmlgpu.sum, x, device=device, **{name: value})
    for source, axis, expected in (
        (x > 0, 1, np.array([3, 3])),
        (np.uint8(7), None, np.uint64(7)),
        (x, (), x.astype(np.uint64)),
        (x, [], x.astype(np.uint64)),
        (x, (1, 0), np.uint64(6)),
    ):
        np.testing.assert_array_equal(dmlgpu.sum(source, axis, device=device), expected, strict=True)


def test_the_first_of_equal_floats_wins_in_any_layout(any_device):
    """Zeros of both signs, transposed: the first in row-major order is not the first in memory."""
    for columns, (function, least), first in itertools.product((5, 50), ((F.MAX, -1), (F.MIN, 1)), (-0.0, 0.0)):
        x = np.full((3, columns), -first, np.float32)
        x[0] = first
        x[0, 0] = least
        desc = ReduceOperatorDesc.of(function, TensorDesc(FLOAT32, x.shape, (1, 3)), (0, 1))
        verify(desc, x, device=any_device)


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32, np.float64], ids=lambda dtype: dtype.__name__)
def test_an_extremum_and_its_index_are_of_one_element(mapped, dtype):
    """In rows and columns of many splits, the first of equal elements wins, with its sign; so does the first NaN."""
    count = 100 if mapped.limits is LOWERED else 35_001
    x = np.zeros((3, count), dtype)
    if x.dtype.kind == "f":
        x[0, [7, 9]] = x[2, :5] = -0.0
        x[1, [count // 2, count - 1]] = np.array([0x7E01, 0xFE02], np.uint16).view(np.float16).astype(dtype)
    else:
        x[1, [count // 2, count - 1]] = 1
    views = (x, (1,)), (np.tile(x, (12, 1)).T.copy(), (0,)), (x, (0, 1)), (x.T, (0,))
    # Each view has a maximum of one width, and a minimum of the next.
    for number, (view, axes) in enumerate(views, x.itemsize.bit_length()):
        source = view if view.flags.c_contiguous else TensorDesc.of(view)
        desc = ExtremumOperatorDesc.of((F.MAX, F.MIN)[number % 2], source, axes)
        values, indices = verify(desc, view, device=mapped)
        rows = view.T if axes == (0,) else view.reshape(values.size, -1)
        assert np.take_along_axis(rows, indices.reshape(-1, 1), 1).tobytes() == values.tobytes()


@pytest.mark.parametrize("axis", [0, 1])
def test_values_and_indices_are_written_to_the_caller_s_tensors(device, axis):
    """The tensors begin at different offsets of a buffer."""
    x = np.random.default_rng(0).integers(0, 9, (37, 51)).astype(np.uint8)
    others = [device.tensor(np.ones(size, np.uint8)) for size in (3, 77, 300)]
    desc = ExtremumOperatorDesc.of(F.MAX, x, (axis,), indices_data_type=UINT32)
    values, indices = out = [device.tensor(np.full(y.sizes, 99, y.data_type.numpy)) for y in desc.outputs]
    device.compile(desc)(device.tensor(x), out=out)
    np.testing.assert_array_equal(values.numpy(), x.max(axis, keepdims=True))
    np.testing.assert_array_equal(indices.numpy(), x.argmax(axis, keepdims=True))
    assert all((other.numpy() == 1).all() for other in others)
