"""Average and Lp pooling: the elements that count, windows of any shape, special values."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import dmlgpu
from dmlgpu import AveragePooling1OperatorDesc, LpPooling1OperatorDesc, TensorDesc, average_pooling, lp_pooling, verify
from dmlgpu.lowering.limits import Limits
from dmlgpu.lowering.lower import lower
from dmlgpu.testing.cases import FLOAT16, FLOAT32, UINT8, WINDOW_SHAPES, pool_desc
from tests.support.limits import LIMITS as MAPPED
from tests.support.limits import by_ranges, gpu_of_eight, limits_of
from tests.support.plans import computed


@pytest.mark.parametrize("include_padding", [False, True])
def test_what_hangs_over_the_padding_never_counts(any_device, include_padding):
    """A window of ceiling mode hangs over the padding (decision 3)."""
    row = np.array([[1, 2, 4, 8, 16]], np.float32)
    options = {"strides": (1, 2), "output_sizes": (1, 3), "include_padding": include_padding, "device": any_device}
    assert average_pooling(row, (1, 2), **options).tolist() == [[1.5, 6, 16]]
    averages = average_pooling(row[:, :4], (1, 3), padding=(0, 1), **options)
    assert averages == pytest.approx(np.array([[1, 14 / 3, 4]] if include_padding else [[1.5, 14 / 3, 8]]))


@pytest.mark.every_driver
def test_norms_of_large_powers_do_not_overflow(any_device):
    x = np.array([[0.5, 1, 0.25, 1]], np.float32)
    for p in (1000, 2**31, 2**32 - 1):
        assert lp_pooling(x, (1, 2), p=p, strides=(1, 2), device=any_device).tolist() == [[1, 1]]


@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=["float32", "float16"])
def test_windows_of_many_shapes_match_the_oracle(mapped, dtype):
    rng = np.random.default_rng(3)
    for number, (sizes, window, strides, start, end, dilations) in enumerate(WINDOW_SHAPES):
        x = rng.standard_normal(sizes).astype(dtype)
        steps = {"strides": strides, "start_padding": start, "end_padding": end, "dilations": dilations}
        # Averages and norms alternate, in the opposite order for the other type. Half of each have an option.
        option = number // 2 % 2
        if (number + x.itemsize // 2) % 2:
            desc = LpPooling1OperatorDesc.of(x, window, p=2 + option, **steps)
        else:
            desc = AveragePooling1OperatorDesc.of(x, window, include_padding=option == 0, **steps)
        verify(desc, x, device=mapped)


@pytest.mark.parametrize(
    ("window", "dtype"),
    [
        *((window, np.float32) for window in ((2, 9), (17, 2), (2, 31))),
        *((window, np.float16) for window in ((3, 16), (31, 1), (9, 24))),
    ],
    ids=str,
)
def test_windows_that_share_rows_match_the_oracle(driver, open_device, window, dtype):
    """One invocation computes all rows of a plane, with a ring of as many rows as a window has."""
    limits = replace(limits_of(driver, "CPU"), group_size=1, group_count=1, simd_width=1, unrolls=True)
    device = open_device(driver.index, limits)
    # Large terms of both signs, so one that is left out, or added twice, shows.
    x = np.random.default_rng(0).standard_normal((1, 2, window[0] + 9, 2 * window[1] + 9)).astype(dtype) * 1000
    kinds = partial(AveragePooling1OperatorDesc.of, include_padding=True), LpPooling1OperatorDesc.of
    # The kinds alternate, each first with half of the windows.
    for number, steps in enumerate(({}, {"strides": (2, 3)}, {"dilations": (1, 2)}), window[1]):
        desc = kinds[number % 2](x, window, start_padding=(1, 0), end_padding=(1, 0), **steps)
        variants = {dispatch.shader.variant for dispatch in lower(desc, device.limits).dispatches}
        assert variants == {"pool_small"} or desc.output_tensor.sizes[-1] * np.dtype(dtype).itemsize % 4
        verify(desc, x, device=device)


# Strides, dilations and padding at both ends; tiles of all lengths, and residue classes.
SEPARABLE = [
    ((1, 2, 30, 41), (17, 18), (1, 1), (3, 0), (2, 5), (1, 1)),
    ((2, 1, 21, 40), (9, 12), (2, 3), (4, 11), (8, 1), (1, 2)),
    ((1, 1, 40, 7), (20, 1), (1, 1), (10, 0), (9, 0), (1, 1)),
    ((1, 2, 3, 50), (1, 33), (1, 1), (0, 7), (0, 32), (1, 1)),
    ((1, 2, 29, 26), (8, 9), (3, 2), (5, 7), (6, 8), (3, 4)),
    ((1, 2, 9, 10, 12), (4, 8, 5), (1, 1, 2), (2, 3, 0), (1, 4, 2), (2, 1, 1)),
    ((1, 1, 12, 2, 9), (7, 1, 3), (1, 1, 1), (3, 0, 1), (2, 0, 1), (1, 1, 2)),
]


@by_ranges
def test_separable_passes_match_the_oracle(driver, open_device, changes, dtype):
    limits = replace(limits_of(driver, "CPU"), dispatch_count=1 << 20, **changes)
    device, rng, plans = open_device(driver.index, limits), np.random.default_rng(0), []
    for number, (sizes, window, strides, start, end, dilations) in enumerate(SEPARABLE, "segment_bytes" in changes):
        # Large terms of both signs, so one that is left out, or added twice, shows.
        x = (rng.standard_normal(sizes) * 1000).astype(dtype)
        # Special ones at the ends of a plane, if there is another.
        if sizes[1] > 1:
            x[0, 0].reshape(-1)[[2, -9, -4]] = np.inf, np.nan, -np.inf
        steps = {"strides": strides, "start_padding": start, "end_padding": end, "dilations": dilations}
        # Every other shape is averaged; in several segments, the others are.
        if number % 2:
            desc = LpPooling1OperatorDesc.of(x, window, p=(1, 2, 5)[number % 3], **steps)
        else:
            desc = AveragePooling1OperatorDesc.of(x, window, include_padding=number % 4 == 0, **steps)
        plans.append(computed(device, desc, (x,), "pool_separable"))
    # The windows of a row of outputs may exceed a segment.
    assert len(list(filter(None, plans))) >= (2 if "segment_bytes" in changes else len(plans))


def test_an_infinite_term_wins_over_an_overflow(driver, open_device):
    """-inf is a term, and a sum of finite terms overflows to +inf: the term decides."""
    device = open_device(driver.index)
    x = np.zeros((1, 1, 12, 20), np.float32)
    x[0, 0, 3, 2:6], x[0, 0, 8, 4] = 3e38, -np.inf
    operator = device.compile(LpPooling1OperatorDesc.of(x, (10, 10), p=1), kernel="pool_separable")
    assert (operator(x)[0, 0, :, :5] == np.inf).all()
    operator = device.compile(AveragePooling1OperatorDesc.of(x, (10, 10)), kernel="pool_separable")
    assert (operator(x)[0, 0, :, :5] == -np.inf).all()


@pytest.mark.parametrize("width", range(1, 8))
@pytest.mark.parametrize(("cooperating", "tile"), [(False, 4), (True, 8)])
def test_every_element_of_a_row_counts(driver, open_device, cooperating, tile, width):
    """A special value on every diagonal of a plane, so that each element of a window has it in turn."""
    device = gpu_of_eight(driver, open_device, unrolls=True, cooperating=cooperating)
    x = np.random.default_rng(width).standard_normal((1, 4, 12, 36)).astype(np.float32)
    for plane, value in enumerate((np.inf, -np.inf, np.nan)):
        x[0, plane, range(12), range(width, width + 24, 2)] = value
    pad = 0, min(1, width - 1)
    for desc in (
        AveragePooling1OperatorDesc.of(x, (1, width), start_padding=pad, end_padding=pad),
        LpPooling1OperatorDesc.of(x, (2, width), strides=(1, 2)),
    ):
        (dispatch,) = device.compile(desc).plan.dispatches
        assert (dispatch.shader.variant, dispatch.shader.constants["tile_width"]) == ("pool_small", tile), desc
        verify(desc, x, device=device)


def test_a_window_may_be_too_long_for_an_invocation(driver, open_device):
    """The combination of partials computes the number of a window's elements again; powers need loops, too."""
    limits = Limits(1 << 27, 64, 8, invocation_loads=40)
    device = open_device(driver.index, limits)
    x = np.random.default_rng(0).random((1, 2, 21, 34)).astype(np.float32)
    steps = {"strides": (2, 1), "start_padding": (3, 2), "end_padding": (1, 4), "dilations": (1, 1)}
    for desc in (
        AveragePooling1OperatorDesc.of(x, (19, 33), **steps),
        AveragePooling1OperatorDesc.of(x, (19, 33), include_padding=True, **steps),
        LpPooling1OperatorDesc.of(x, (19, 33), p=5, **steps),
    ):
        assert device.compile(desc).plan.partial_bytes
        verify(desc, x, device=device)
    partials = [lower(LpPooling1OperatorDesc.of(x, (19, 33), p=p), limits).partial_bytes for p in (2, 1 << 20)]
    assert partials[0] < partials[1]


@pytest.mark.parametrize("p", [3, 1000])
def test_powers_in_long_windows_keep_to_the_loop_limit(driver, open_device, p):
    # One core: an invocation has several windows, each a row of elements.
    device = open_device(driver.index, replace(limits_of(driver, "CPU"), group_count=1))
    desc = LpPooling1OperatorDesc.of(TensorDesc(FLOAT32, (1, 256, 64, 64)), (64, 64), p=p)
    assert {dispatch.shader.variant for dispatch in device.compile(desc).plan.dispatches} <= {"rows", "combine"}
    verify(desc, np.ones(desc.input_tensor.sizes, np.float32), device=device)


def test_short_windows_are_no_rows():
    for limits in (MAPPED["CPU"], MAPPED["GPU"]):
        for data_type, window in ((FLOAT32, (1, 2)), (UINT8, (1, 7)), (FLOAT32, (1, 31))):
            desc = pool_desc(data_type, (1, 2, 4, 12 * window[1]), window, window)
            assert "combine" not in str(lower(desc, limits).kernel_choice), (data_type, window)
        assert lower(pool_desc(FLOAT32, (1, 2, 4, 8), (4, 8)), limits).dispatches[0].shader.variant.startswith("rows")


@pytest.mark.every_driver
def test_infinities_and_nan_propagate(any_device):
    x = np.array([[1, np.inf, -np.inf, np.nan, 2, 3]], np.float32)
    averages, norms = (pooling(x, (1, 2), device=any_device) for pooling in (average_pooling, lp_pooling))
    np.testing.assert_array_equal(averages, [[np.inf, np.nan, np.nan, np.nan, 2.5]])
    np.testing.assert_array_equal(norms[:, :4], [[np.inf, np.inf, np.nan, np.nan]])
    big = np.full((2, 2), 6e4, np.float16)
    assert average_pooling(big, 2, device=any_device) == big[0, 0]


@pytest.mark.parametrize("special", [np.inf, np.nan])
@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=["float32", "float16"])
def test_special_values_beside_the_padding_do_not_count(mapped, dtype, special):
    """Where windows have padding, memory has other rows and planes, which must not count."""
    x = np.ones((2, 2, 8, 12), dtype)
    x[0, 0, 3, 0] = x[0, 0, 5, -1] = special
    x[0, 1, 0] = x[1, 0, -1] = special
    for window, padding in (((1, 3), (0, 1)), ((3, 1), (1, 0)), ((3, 5), (1, 2))):
        steps = {"start_padding": padding, "end_padding": padding}
        for desc in AveragePooling1OperatorDesc.of(x, window, **steps), LpPooling1OperatorDesc.of(x, window, **steps):
            verify(desc, x, device=mapped)


@pytest.mark.every_driver
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("window", [1, (1, 2), (2, 1), 3])
def test_the_average_of_negative_zeros_is_positive(any_device, dtype, window):
    x = np.full((1, 2, 4, 4), -0.0, dtype)
    averages = average_pooling(x, window, device=any_device)
    assert not np.signbit(averages).any()
    gradient = np.full(averages.shape, -0.0, dtype)
    assert not np.signbit(dmlgpu.average_pooling_grad(gradient, x.shape, window, device=any_device)).any()


def test_an_integer_flag_of_numpy_is_a_bool():
    desc = AveragePooling1OperatorDesc.of(TensorDesc(FLOAT16, (1, 1, 2, 2)), (2, 2), include_padding=np.bool_(True))
    assert desc.include_padding is True
    assert eval(repr(desc), vars(dmlgpu)) == desc


@pytest.mark.every_driver
def test_only_exact_sums_return_from_beyond_the_range(any_device):
    """The order of additions decides whether a rounded sum is an infinity or NaN; an exact sum is finite again."""
    x = np.float32([[3e38, 3e38, -3e38, -3e38]])
    for function in (partial(dmlgpu.average_pooling, window_size=(1, 4)), dmlgpu.mean):
        assert not np.isfinite(function(x, device=any_device))
        assert function(x, device=any_device, exact=True) == 0
