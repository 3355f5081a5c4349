"""EXACT_SUMS: the float nearest to the exact sum, bit for bit, whatever the kernel, the mapping and the order."""

import contextlib
import functools
import itertools
import math
import re
from dataclasses import replace

import numpy as np
import pytest

import dmlgpu
from dmlgpu import (
    AveragePooling1OperatorDesc,
    DataType,
    DescriptorError,
    ReduceOperatorDesc,
    TensorDesc,
    VerificationError,
)
from dmlgpu.comparison import check_outputs
from dmlgpu.descriptors.reduction import ExactSquaresOperatorDesc, ExactSumOperatorDesc
from dmlgpu.lowering.lower import lower
from dmlgpu.testing.cases import FLOAT16, FLOAT32, INT32
from tests.support.errors import refuses
from tests.support.limits import LIMITS, limits_of

F = dmlgpu.ReduceFunction
EXACT = dmlgpu.ExecutionFlags.EXACT_SUMS
EXACT_FUNCTIONS = (F.SUM, F.AVERAGE, F.L1, F.L2, F.SUM_SQUARE)
GREATEST = float(np.finfo(np.float32).max)
by_float = pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=["float32", "float16"])


def verify(x, axes, function=F.SUM, device=None):
    return dmlgpu.verify(ReduceOperatorDesc.of(function, x, axes), x, flags=EXACT, device=device)


def any_finite(dtype, count, random):
    """Any bits but those of infinities and NaN."""
    size = 8 * np.dtype(dtype).itemsize
    x = random.integers(0, 1 << size, count, np.uint32).astype(f"u{size // 8}").view(dtype)
    return np.where(np.isfinite(x), x, dtype(1))


def cancelling(dtype, count, random):
    """Elements and their opposites, and a few small ones that remain."""
    half = any_finite(dtype, count // 2, random)
    few = random.standard_normal(count - 2 * len(half)).astype(dtype)
    return random.permutation(np.concatenate([half, -half, few]))


def ties(dtype, count, random):
    """1, and halves of its last bit: every other sum of them is a tie."""
    x = np.where(random.random(count) < 0.2, np.finfo(dtype).eps / 2, 0).astype(dtype)
    x[random.integers(count)] = 1
    return x


def beside_ties(dtype, count, random):
    """As `ties`, plus or minus the least denormal."""
    x = ties(dtype, count, random)
    x[x == 0] = random.choice([-1, 0, 1], np.count_nonzero(x == 0)) * np.finfo(dtype).smallest_subnormal
    return x


def beside_bins(dtype, count, random):
    """1, which places a bin, and a few elements at both ends of the bin's range, inside and outside."""
    ends = random.choice([2.0**5, 2.0**6, 2.0**-22, 2.0**-23], count) * random.choice([-1, 1], count)
    return np.where(random.random(count) < 0.1, ends, 1).astype(dtype)


VALUES = {
    "normal": lambda dtype, count, random: random.standard_normal(count).astype(dtype),
    "half of them 0": lambda dtype, count, random: np.maximum(random.standard_normal(count), 0).astype(dtype),
    "any finite bits": any_finite,
    "cancelling": cancelling,
    "denormals": lambda dtype, count, random: (
        random.integers(-9, 9, count) * np.finfo(dtype).smallest_subnormal
    ).astype(dtype),
    "the greatest": lambda dtype, count, random: random.choice([-1, 1], count).astype(dtype) * np.finfo(dtype).max,
    # The average is the greatest, too.
    "all the greatest": lambda dtype, count, random: np.full(
        count, random.choice([-1, 1]) * np.finfo(dtype).max, dtype
    ),
    "ties": ties,
    "beside ties": beside_ties,
    "beside bins": beside_bins,
    "a few in the first place": lambda dtype, count, random: np.where(np.arange(count) < 5, 0, 3).astype(dtype),
    "-0": lambda dtype, count, random: np.full(count, -0.0, dtype),
}


# A vector has 4 elements of 32 bits, 8 of 16: rows of whole vectors, of one element less, and of one more; splits of
# 1,024 elements. Floats of 16 bits are converted to 32 bits when they are loaded, so they need only some of the values.
@pytest.mark.parametrize(
    ("dtype", "values"),
    [*((np.float32, values) for values in VALUES), *((np.float16, values) for values in [*VALUES][::3])],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_sums_are_rounded_once(mapped, dtype, values):
    random = np.random.default_rng(0)
    # Rows and columns have each function, whose kernels are compiled once for all values.
    functions = itertools.cycle(EXACT_FUNCTIONS)
    for sizes, axes in (
        *(((5, size), (1,)) for size in (1, 3, 4, 7, 9, 33, 255)),
        *(((size, 21), (0,)) for size in (2, 3, 17, 100)),
        ((3, 2050), (1,)),
        ((1026, 9), (0,)),
        ((6, 15, 10), (0, 2)),
        ((2, 3, 170), (0, 1, 2)),
    ):
        x = VALUES[values](dtype, int(np.prod(sizes)), random).reshape(sizes)
        verify(x, axes, next(functions), mapped)


@by_float
def test_cumulative_sums_are_rounded_once(mapped, dtype):
    """Lines of all values: of vectors, neighbouring ones, others, and in blocks."""
    random = np.random.default_rng(4)
    for number, (size, axis) in enumerate(((40, 1), (21, 0), (23, 1), (2064, 1))):
        x = np.stack([values(dtype, size, random) for values in (*VALUES.values(), *[*VALUES.values()][:4])])
        x[:2, -3:] = [np.inf, 1, -np.inf], [3, np.nan, -np.inf]
        x = x if axis else np.ascontiguousarray(x.T)
        direction, exclusive = dmlgpu.AxisDirection(number % 2), number > 1
        desc = dmlgpu.CumulativeSummationOperatorDesc.of(x, axis, direction, has_exclusive_sum=exclusive)
        dmlgpu.verify(desc, x, flags=EXACT, device=mapped)


@by_float
@pytest.mark.parametrize(("sizes", "axis"), [((37, 64), 1), ((64, 37), 0)], ids=str)
def test_every_kernel_rounds_sums_once(mapped, dtype, sizes, axis):
    """In any layout; kernels that cannot compute a problem are passed over."""
    x = any_finite(dtype, sizes[0] * sizes[1], np.random.default_rng(1)).reshape(sizes)
    for strides in (None, (sizes[1] + 3, 1), (1, sizes[0])):
        desc = ReduceOperatorDesc.of(F.SUM, TensorDesc(DataType.of(dtype), sizes, strides), (axis,))
        expected = dmlgpu.reference(desc, x, flags=EXACT)[0]
        for kernel in ("rows", "columns", "reduce"):
            with contextlib.suppress(DescriptorError):
                assert mapped.compile(desc, flags=EXACT, kernel=kernel)(x).tobytes() == expected.tobytes()


# Sizes of the input, windows, strides, dilations, padding at the begin and at the end, and whether it counts.
WINDOWS = {
    "2 x 2": ((2, 3, 8, 16), (2, 2), (2, 2), (1, 1), (0, 0), (0, 0), False),
    "3 x 3": ((1, 3, 11, 13), (3, 3), (2, 2), (1, 1), (1, 1), (1, 1), True),
    "7 x 7": ((1, 2, 12, 9), (7, 7), (1, 1), (1, 1), (3, 2), (3, 4), False),
    "dilated": ((1, 1, 14, 15), (3, 4), (1, 2), (3, 2), (2, 1), (0, 3), True),
    "in a volume": ((1, 2, 5, 6, 7), (2, 3, 2), (2, 1, 1), (2, 1, 3), (1, 0, 1), (0, 1, 1), False),
    "1 x 40": ((1, 1, 3, 90), (1, 40), (1, 5), (1, 1), (0, 7), (0, 7), True),
    "33 x 33": ((1, 1, 35, 36), (33, 33), (1, 2), (1, 1), (1, 0), (0, 0), False),
    "40 x 40": ((1, 1, 42, 41), (40, 40), (2, 1), (1, 1), (1, 1), (0, 1), True),
}


def special(dtype, count, random):
    """Infinities, NaN and the greatest number, far from each other."""
    x = random.standard_normal(count).astype(dtype)
    x[np.arange(1, 6) * count // 6] = np.inf, -np.inf, np.nan, 0, np.finfo(dtype).max
    return x


@functools.cache
def averages(windows, dtype):
    """The descriptor of an average over windows, its inputs, and the oracle's output for each."""
    sizes, window_size, strides, dilations, start, end, include_padding = WINDOWS[windows]
    desc = AveragePooling1OperatorDesc.of(
        TensorDesc(DataType.of(dtype), sizes), window_size, strides=strides,
        dilations=dilations, start_padding=start, end_padding=end, include_padding=include_padding,
    )  # fmt: skip
    random = np.random.default_rng(0)
    inputs = [values(dtype, math.prod(sizes), random).reshape(sizes) for values in (*VALUES.values(), special)]
    return desc, [(x, same_nan(dmlgpu.reference(desc, x, flags=EXACT)[0])) for x in inputs]


def same_nan(y):
    """The bytes of an array in which every NaN has the same bits."""
    return np.where(np.isnan(y), np.nan, y).tobytes()


# Each kernel has the windows of float32; it loads float16 in the same way for all of them.
@pytest.mark.parametrize(
    ("windows", "dtype"),
    [*((windows, np.float32) for windows in WINDOWS), *((windows, np.float16) for windows in [*WINDOWS][::3])],
)
def test_averages_over_windows_are_rounded_once(mapped, windows, dtype):
    packed, pairs = averages(windows, dtype)
    source = packed.input_tensor
    strided = replace(source, strides=tuple(2 * stride for stride in source.element_strides))
    for desc, kernel in (packed, None), (replace(packed, input_tensor=strided), "pool_direct"):
        compiled = mapped.compile(desc, flags=EXACT, kernel=kernel)
        for x, expected in pairs:
            assert same_nan(compiled(x)) == expected


@pytest.mark.every_driver
@pytest.mark.parametrize("little", [0, 2.0**-40, 2.0**-60, 2.0**-80, 2.0**-140])
def test_averages_beside_ties_are_rounded_once(mapped, little):
    x = np.float32([[[[1, 2**-24], [little, 0]]]])
    dmlgpu.verify(AveragePooling1OperatorDesc.of(x, (2, 2)), x, flags=EXACT, device=mapped)
    verify(x, (2, 3), F.AVERAGE, mapped)


@pytest.mark.every_driver
@pytest.mark.parametrize("count", [2, 3, 7, 33, 255, 1023, 1025])
def test_quotients_at_and_beside_ties_are_rounded_once(mapped, count):
    """Quotients of 25 bits, of which half are ties, and totals that are one more or less, or a quarter."""
    random = np.random.default_rng(count)
    rows = 256 if count < 1000 else 32  # split tensors have a dispatch for every 64 elements
    quotients = random.integers(1 << 24, 1 << 25, rows) * random.choice([1, 4], rows)
    totals = quotients * count + random.choice([-1, 0, 1], rows)
    # For a divisor of 255, the estimated quotient is 1 too small, and the low word of the remainder is 0.
    totals[:3] = 17120023741, 17153232901, 17173902181
    x = np.zeros((rows, count), np.float32)
    x[:, 0], x[:, -1] = totals & -(1 << 24), totals & (1 << 24) - 1
    verify(x, (1,), F.AVERAGE, mapped)


@pytest.mark.parametrize(
    ("dtype", "sizes", "window_size", "options"),
    [
        (np.float32, (2, 1, 60, 30), (20, 3), {"strides": (4, 2), "dilations": (2, 1)}),
        (np.float32, (1, 2, 50, 20), (33, 2), {"strides": (2, 1), "start_padding": (7, 0), "end_padding": (9, 1)}),
        (np.float16, (1, 1, 3, 21, 42), (2, 17, 34), {"start_padding": (1, 8, 3)}),
        (np.float16, (1, 1, 56, 51), (40, 40), {}),
    ],
)
@pytest.mark.parametrize("spread", [1, 8])
def test_rows_that_windows_leave_are_subtracted(driver, open_device, dtype, sizes, window_size, options, spread):
    """Windows so high that rows are subtracted, by invocations so few that each has several rows of outputs."""
    few = replace(limits_of(driver, "CPU"), group_size=4, group_count=1, simd_width=4, unrolls=True)
    device = open_device(driver.index, few)
    x = np.random.default_rng(5).standard_normal(sizes)
    x = (np.sign(x) * np.exp(spread * np.minimum(x, 1))).astype(dtype)
    if spread > 1:
        x.reshape(-1)[[3, 70, 400]] = np.inf, -np.inf, np.nan
    desc = AveragePooling1OperatorDesc.of(x, window_size, **options)
    first = device.compile(desc, flags=EXACT).plan.dispatches[0]
    assert first.shader.constants["subtracts"]
    assert first.push["tile_height"] > 1
    dmlgpu.verify(desc, x, flags=EXACT, device=device)


@pytest.mark.every_driver
@pytest.mark.parametrize(
    ("x", "expected"),
    [
        ([1, np.inf, 2], np.inf),
        ([1, -np.inf, -np.inf], -np.inf),
        ([np.inf, 1, -np.inf], np.nan),
        ([-np.inf, np.nan, 1], np.nan),
        ([1, -np.nan], np.nan),
        ([3e38, 3e38, -3e38], 3e38),
        ([GREATEST, 2.0**102], GREATEST),
        ([GREATEST, 2.0**103], np.inf),
        ([GREATEST, GREATEST], np.inf),
        ([GREATEST, GREATEST, -GREATEST], GREATEST),
        ([-GREATEST, -(2.0**103)], -np.inf),
        ([1e-45, 1e-45], 2.8e-45),
    ],
)
def test_infinities_and_nan_propagate(mapped, x, expected):
    """Different numbers of zeros precede the values, so that all kernels, splits and threads have them."""
    for zeros in (0, 61, 3000):
        row = np.float32([*[0] * zeros, *x])
        for source, axis in ((row[None], 1), (np.repeat(row[:, None], 5, 1), 0)):
            assert verify(source, (axis,), device=mapped).ravel()[0].tobytes() == np.float32(expected).tobytes()


def test_roots_of_exact_squares_are_rounded_once(mapped):
    """Squares beyond the range of float32, perfect squares, and squares next to a tie."""
    for row, expected in (
        ([3e30, 4e30], 5e30),
        ([3e-30, 4e-30], 5e-30),
        ([1e-45] * 4, 2.8e-45),
        ([GREATEST, GREATEST], np.inf),
        ([1] * 4095 + [2.0**-60], 4095**0.5),
        ([-np.inf, 1], np.inf),
        ([np.inf, np.nan], np.nan),
    ):
        x = np.float32([row])
        assert verify(x, (1,), F.L2, mapped).tobytes() == np.float32(expected).tobytes()


@pytest.mark.parametrize(
    ("describe", "cases"),
    [
        (ExactSumOperatorDesc.of, slice(None)),
        (functools.partial(ExactSumOperatorDesc.of, absolute=True), slice(1, None, 2)),
        (ExactSquaresOperatorDesc.of, slice(0, None, 2)),
    ],
    ids=["sums", "sums of magnitudes", "sums of squares"],
)
def test_sums_as_integers_equal_reference(mapped, describe, cases):
    """Every word of the integers, which chunked and Dask arrays merge, for elements of any bits."""
    bits = np.random.default_rng(3).integers(0, 1 << 32, (7, 1100, 5), np.uint64)
    x = bits.astype(np.uint32).view(np.float32)
    x[0, 5] = -0.0
    few = np.ascontiguousarray(x[:, :30])  # split tensors of few outputs have thousands of dispatches
    for elements, axes in ((few, (0,)), (x, (1,)), (x, (0, 1)), (x, (1, 2)), (x, (0, 1, 2)))[cases]:
        dmlgpu.verify(describe(elements, axes), elements, device=mapped)


def test_functions_with_exact_round_once(device):
    x = np.float32([[1e8, 1, -1e8, 2], [3e38, 3e38, -3e38, 0]])
    options = {"exact": True, "device": device}
    for source in x, device.tensor(x):
        for result, expected in (
            (dmlgpu.sum(source, 1, **options), [3, 3e38]),
            (dmlgpu.mean(source, 1, **options), [0.75, 7.5e37]),
            (dmlgpu.reduce(source, "l1", 1, **options), [2e8, np.inf]),
            (dmlgpu.reduce(source, "sum", (), **options), x),
            (dmlgpu.reduce(source, "max", 1, **options), [1e8, 3e38]),
            (dmlgpu.average_pooling(source, (1, 4), **options), [[0.75], [7.5e37]]),
            (dmlgpu.cumulative_sum(source, axis=1, **options), [[1e8, 1e8, 1, 3], [3e38, np.inf, 3e38, 3e38]]),
        ):
            np.testing.assert_array_equal(result, np.float32(expected))
    for source in x, x[:0]:
        refuses(
            r"\.function: LOG_SUM is not supported with EXACT_SUMS", dmlgpu.reduce, source, "log_sum", 1, exact=True
        )
        refuses(r"ReduceOperatorDesc\.exact: 1 is not allowed", dmlgpu.reduce, source, "sum", 1, exact=1)


def test_verification_knows_the_flag(device, monkeypatch):
    monkeypatch.setenv("DMLGPU_VERIFY", "1")
    assert dmlgpu.sum(np.float32([1, 2**-24, 2**-24]), exact=True, device=device) == np.float32(1 + 2**-23)


def test_the_flag_changes_no_selections_and_no_integers(device):
    for desc in (
        ReduceOperatorDesc.of(F.MAX, TensorDesc(FLOAT32, (2, 3)), (1,)),
        dmlgpu.ArgmaxOperatorDesc.of(TensorDesc(FLOAT32, (2, 3)), (1,)),
        ReduceOperatorDesc.of(F.MULTIPLY, TensorDesc(INT32, (2, 3)), (1,)),
    ):
        x = np.array([[1, 0, 3], [4, 5, 4]], desc.input_tensor.data_type.numpy)
        assert device.compile(desc, flags=EXACT).plan.dispatches == device.compile(desc).plan.dispatches
        dmlgpu.verify(desc, x, flags=EXACT, device=device)


REFUSED = [
    *(
        (ReduceOperatorDesc.of(function, TensorDesc(FLOAT32, (2, 3)), (1,)), f".function: {function.name} is")
        for function in (F.LOG_SUM, F.LOG_SUM_EXP, F.MULTIPLY)
    ),
    *(
        (desc, " of floats is")
        for desc in (
            dmlgpu.LpPoolingOperatorDesc.of(TensorDesc(FLOAT16, (1, 1, 4, 4)), (2, 2)),
            dmlgpu.LpPoolingOperatorDesc.of(TensorDesc(FLOAT32, (1, 1, 4, 64)), (4, 64), p=1),
            dmlgpu.AveragePoolingGradOperatorDesc.of(TensorDesc(FLOAT32, (1, 1, 3, 3)), (1, 1, 4, 4), (2, 2)),
            dmlgpu.CumulativeProductOperatorDesc.of(TensorDesc(FLOAT32, (2, 3)), 1),
        )
    ),
]


@pytest.mark.parametrize(("desc", "reason"), REFUSED, ids=lambda value: getattr(value, "summary", ""))
def test_what_cannot_be_exact_is_refused(desc, reason):
    """On every device, also where windows are computed as axes."""
    for limits in LIMITS.values():
        message = f"{type(desc).__name__}{reason} not supported with EXACT_SUMS"
        refuses(re.escape(message), lower, desc, limits, flags=EXACT)


def test_flags_are_execution_flags(device):
    desc = ReduceOperatorDesc.of(F.SUM, TensorDesc(FLOAT32, (2, 3)), (1,))
    refuses("flags must be ExecutionFlags, not 1", device.compile, desc, flags=1, error=TypeError)


def test_a_wrong_sum_is_found(device):
    """Also one that is right without the flag: the sum in float32, one element after the other."""
    x = np.float32([[1, 2**-24, 2**-24, 2**-24]])
    plan = device.compile(ReduceOperatorDesc.of(F.SUM, x, (1,)), flags=EXACT).plan
    check_outputs(plan, (x,), (np.float32([[1 + 2**-22]]),))
    refuses("1 of 1 elements differ", check_outputs, plan, (x,), (np.float32([[1 + 2**-23]]),), error=VerificationError)
