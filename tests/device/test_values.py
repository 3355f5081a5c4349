"""Which element wins: ties, NaN, zeros, denormals, and every value of the small types."""

import numpy as np
import pytest

from dmlgpu import (
    ArgmaxOperatorDesc,
    ArgminOperatorDesc,
    AxisDirection,
    TensorDesc,
    argmax,
    argmin,
    max_pooling,
    verify,
)
from dmlgpu.testing.cases import (
    DECREASING,
    ELEMENT_TYPES,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT64,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    arg_desc,
    pool_desc,
)
from dmlgpu.testing.fills import special_values

pytestmark = pytest.mark.every_driver

FLOATS = (FLOAT64, FLOAT32, FLOAT16)
# The bits of infinity, and of the least normal number.
INFINITIES = {64: 0x7FF << 52, 32: 0xFF << 23, 16: 0x1F << 10}
NORMALS = {64: 1 << 52, 32: 1 << 23, 16: 1 << 10}
INF, NAN = np.inf, np.nan
by_float = pytest.mark.parametrize("data_type", FLOATS, ids=lambda data_type: data_type.name.lower())
by_type = pytest.mark.parametrize("data_type", ELEMENT_TYPES, ids=lambda data_type: data_type.name.lower())
by_kind = pytest.mark.parametrize("kind", [ArgmaxOperatorDesc, ArgminOperatorDesc], ids=["argmax", "argmin"])
by_direction = pytest.mark.parametrize("direction", AxisDirection, ids=lambda direction: direction.name.lower())


def bits(array):
    return array.view(f"u{array.itemsize}").tolist()


def floats(words, data_type):
    return np.array(words, f"u{data_type.bits // 8}").view(data_type.numpy)


def index_of(kind, x, device, direction=AxisDirection.INCREASING):
    function = argmax if kind is ArgmaxOperatorDesc else argmin
    return int(function(x, axis_direction=direction, device=device).reshape(()))


def pooled(x, device, window=None):
    """The values and indices of a row, pooled with one window or with windows of this size."""
    values, indices = max_pooling(x.reshape(1, 1, 1, -1), (1, window or x.size), output_indices=True, device=device)
    return values.reshape(-1), indices.reshape(-1).tolist()


# Decision 1: axes are a set, flattened in ascending axis number.


def test_decision_1_axes_are_a_set_flattened_in_ascending_order(device):
    x = np.zeros((2, 3, 4), np.float32)
    x[1, 2, 3] = 1
    for axes in ((0, 2), (2, 0), {2, 0}, np.array([2, 0])):
        desc = ArgmaxOperatorDesc(TensorDesc(FLOAT32, (2, 3, 4)), TensorDesc(UINT32, (1, 3, 1)), tuple(axes))
        assert device.compile(desc)(x).tolist() == [[[0], [0], [7]]]


def test_decision_1_no_axes_are_all_axes_in_functions(device):
    x = np.zeros((2, 3, 4), np.float32)
    x[1, 2, 3] = 1
    assert argmax(x, device=device) == 23


# Decision 2: see test_messages.py and test_layouts.py.

# Decision 5: NaN propagates.


@by_float
@by_kind
def test_decision_5_nan_wins_over_infinity(device, data_type, kind):
    assert index_of(kind, np.array([INF, -INF, NAN, INF, -INF], data_type.numpy), device) == 2


@by_float
@by_kind
def test_decision_5_first_nan_wins_when_increasing_last_when_decreasing(device, data_type, kind):
    x = np.array([0, NAN, INF, NAN, -INF, NAN, 5], data_type.numpy)
    assert index_of(kind, x, device) == 1
    assert index_of(kind, x, device, DECREASING) == 5


@by_float
@by_kind
@by_direction
def test_decision_5_payload_and_sign_of_a_nan_do_not_matter(device, data_type, kind, direction):
    exponent, sign = INFINITIES[data_type.bits], 1 << data_type.bits - 1
    payloads = [
        exponent | 1,
        exponent | 0x155,
        exponent | NORMALS[data_type.bits] >> 1,
        sign | exponent | 1,
        sign | sign - 1,
        sign - 1,
    ]
    for order in (payloads, payloads[::-1]):
        x = floats([0, *order, exponent], data_type)
        assert np.isnan(x[1:7]).all()
        assert index_of(kind, x, device, direction) == (1 if direction is AxisDirection.INCREASING else 6)


@by_float
def test_decision_5_pooling_gives_the_first_nan_with_its_bits(device, data_type):
    exponent, sign = INFINITIES[data_type.bits], 1 << data_type.bits - 1
    for first, second in ((exponent | 5, sign - 1), (sign | exponent | 3, exponent | 1), (sign - 1, sign | sign - 1)):
        values, indices = pooled(floats([0, exponent, first, second, exponent], data_type), device)
        assert (bits(values), indices) == ([first], [2])


@by_float
def test_decision_5_nan_is_in_every_window_that_holds_it_and_in_no_other(device, data_type):
    x = np.arange(25, dtype=data_type.numpy).reshape(1, 1, 5, 5)
    x[0, 0, 2, 2] = NAN
    values, indices = max_pooling(x, (2, 2), output_indices=True, device=device)
    assert np.isnan(values[0, 0]).astype(int).tolist() == [[0, 0, 0, 0], [0, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 0]]
    assert (indices[np.isnan(values)] == 12).all()


# Decision 6: a window wholly in padding is an error; see test_operators.py and test_messages.py.

# Decision 8: -0 and +0 are equal.


@by_float
def test_decision_8_zeros_of_a_long_row(device, data_type):
    for first, last in ((-0.0, 0.0), (0.0, -0.0)):
        x = np.full(5000, 3, data_type.numpy)
        x[[77, 4100]] = first, last
        assert index_of(ArgminOperatorDesc, x, device) == index_of(ArgmaxOperatorDesc, -x, device) == 77
        assert index_of(ArgminOperatorDesc, x, device, DECREASING) == 4100
        assert index_of(ArgmaxOperatorDesc, -x, device, DECREASING) == 4100
    x[77], x[4100] = -0.0, 3
    assert index_of(ArgminOperatorDesc, x, device) == index_of(ArgmaxOperatorDesc, -x, device) == 77


@by_float
@by_kind
def test_decision_8_zeros_are_equal(device, data_type, kind):
    for x in ([-0.0, 0.0, -0.0], [0.0, -0.0, 0.0]):
        assert index_of(kind, np.array(x, data_type.numpy), device) == 0
        assert index_of(kind, np.array(x, data_type.numpy), device, DECREASING) == 2


@by_float
def test_decision_8_pooling_keeps_the_sign_of_the_zero_that_won(device, data_type):
    for x in ([-0.0, 0.0], [0.0, -0.0]):
        values, indices = pooled(np.array([-1, *x, -1], data_type.numpy), device)
        assert (bits(values), indices) == (bits(np.array(x[:1], data_type.numpy)), [1])


# Decision 9: denormals are compared exactly.


@by_float
@by_kind
def test_decision_9_denormals_are_not_flushed(device, data_type, kind):
    sign = 1 << data_type.bits - 1
    ascending = floats([sign | 3, sign | 2, sign | 1, 0, 1, 2, 3], data_type)
    largest = 6 if kind is ArgmaxOperatorDesc else 0
    assert index_of(kind, ascending, device) == index_of(kind, ascending, device, DECREASING) == largest
    assert index_of(kind, ascending[::-1], device) == 6 - largest


@by_float
def test_decision_9_pooling_tells_denormals_apart(device, data_type):
    sign = 1 << data_type.bits - 1
    values, indices = pooled(floats([sign | 1, 0, 2, 1, sign, 3, 1], data_type), device, window=2)
    assert (bits(values), indices) == ([0, 2, 2, 1, 3, 3], [1, 2, 2, 3, 5, 5])


@by_float
def test_denormals_are_below_the_least_normal_number(device, data_type):
    normal = NORMALS[data_type.bits]
    assert index_of(ArgmaxOperatorDesc, floats([normal - 1, normal, normal - 1], data_type), device) == 1


# Ties


@by_type
def test_first_of_equal_elements_when_increasing_last_when_decreasing(device, data_type):
    x = np.full(131, 7, data_type.numpy)
    assert index_of(ArgmaxOperatorDesc, x, device) == 0
    assert index_of(ArgminOperatorDesc, x, device, DECREASING) == 130


@by_type
def test_pooling_takes_the_first_of_equal_elements(device, data_type):
    values, indices = max_pooling(np.full((2, 2, 3, 4), 7, data_type.numpy), (2, 2), output_indices=True, device=device)
    assert (values == 7).all()
    assert indices[1, 1].tolist() == [[36, 37, 38], [40, 41, 42]]


# Extremes


@by_type
@by_kind
def test_every_pair_of_special_values(device, data_type, kind):
    values = special_values(data_type.numpy).view(f"u{data_type.bits // 8}")
    pairs = np.stack(np.meshgrid(values, values), -1).reshape(-1, 2).view(data_type.numpy)
    for direction in AxisDirection:
        verify(arg_desc(kind, data_type, pairs.shape, [1], direction), pairs, device=device)


@by_type
def test_least_value_wins_over_padding(device, data_type):
    kind = data_type.numpy.kind
    least = -INF if kind == "f" else np.iinfo(data_type.numpy).min
    x = np.full((1, 1, 3, 3), least, data_type.numpy)
    values = max_pooling(x, (3, 3), padding=2, device=device)
    assert (values == x[0, 0, 0, 0]).all()


@by_type
def test_a_segment_of_nothing_but_least_values_has_an_index(lowered, data_type):
    """An output's elements lie in all segments, in no order."""
    least = -INF if data_type.numpy.kind == "f" else np.iinfo(data_type.numpy).min
    x = np.full((5, 300), least, data_type.numpy, order="F")
    for direction in AxisDirection:
        desc = arg_desc(ArgmaxOperatorDesc, data_type, x.shape, [0, 1], direction, strides=(1, 5))
        operator = lowered.compile(desc, kernel="reduce")
        assert operator.plan.dispatches[0].shader.constants["segmented"]
        assert operator(x).tolist() == [[x.size - 1 if direction is DECREASING else 0]]


@pytest.mark.parametrize("data_type", [INT64, UINT64, FLOAT64], ids=["int64", "uint64", "float64"])
@by_kind
def test_64_bit_elements_differ_in_either_word(device, data_type, kind):
    words = [0, 1, 0x7FEFFFFF, 0x7FF00000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]
    values = np.array([high << 32 | low for high in words for low in words], np.uint64).view(data_type.numpy)
    shuffled = np.random.default_rng(0).permutation(values)
    expected = shuffled.argmax() if kind is ArgmaxOperatorDesc else shuffled.argmin()
    assert index_of(kind, shuffled, device) == expected
    pairs = np.stack(np.meshgrid(values, values), -1).reshape(-1, 2)
    verify(arg_desc(kind, data_type, pairs.shape, [1]), pairs, device=device)


# Every value


def all_values(data_type):
    """Every bit pattern of an 8- or 16-bit type, in ascending order of the bits."""
    return np.arange(1 << data_type.bits, dtype=f"u{data_type.bits // 8}").view(data_type.numpy)


by_small_type = pytest.mark.parametrize(
    "data_type", [UINT8, INT8, UINT16, INT16, FLOAT16], ids=lambda data_type: data_type.name.lower()
)


@by_small_type
@pytest.mark.parametrize(
    ("kind", "direction"),
    [(ArgmaxOperatorDesc, AxisDirection.INCREASING), (ArgminOperatorDesc, DECREASING)],
    ids=["argmax-increasing", "argmin-decreasing"],
)
def test_all_values_as_one_axis(any_device, data_type, kind, direction):
    x = np.random.default_rng(1).permutation(all_values(data_type))
    for row in (x, x[~np.isnan(x)], x[np.isfinite(x)]) if data_type is FLOAT16 else (x,):
        verify(arg_desc(kind, data_type, row.shape, [0], direction), row, device=any_device)


@by_small_type
def test_all_values_in_pooling(device, data_type):
    side = 1 << data_type.bits // 2
    x = np.random.default_rng(2).permutation(all_values(data_type)).reshape(1, 1, side, side)
    verify(pool_desc(data_type, x.shape, (3, 3), (1, 1), (1, 1), (1, 1)), x, device=device)
