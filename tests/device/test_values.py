"""Which element wins: ties, NaN, zeros, denormals, and every value of the small types."""

import itertools

import numpy as np
import pytest

from dmlgpu import ArgmaxOperatorDesc, ArgminOperatorDesc, AxisDirection, argmax, argmin, verify
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
    UINT64,
    arg_desc,
    pool_desc,
)
from dmlgpu.testing.fills import special_values

pytestmark = pytest.mark.every_driver

FLOATS = (FLOAT64, FLOAT32, FLOAT16)
INF = np.inf
by_float = pytest.mark.parametrize("data_type", FLOATS, ids=lambda data_type: data_type.name.lower())
by_type = pytest.mark.parametrize("data_type", ELEMENT_TYPES, ids=lambda data_type: data_type.name.lower())
by_kind = pytest.mark.parametrize("kind", [ArgmaxOperatorDesc, ArgminOperatorDesc], ids=["argmax", "argmin"])


def index_of(kind, x, device, direction=AxisDirection.INCREASING):
    function = argmax if kind is ArgmaxOperatorDesc else argmin
    return int(function(x, axis_direction=direction, device=device).reshape(()))


@by_float
def test_zeros_of_both_signs_are_equal_in_a_long_row(device, data_type):
    for first, last in ((-0.0, 0.0), (0.0, -0.0)):
        x = np.full(5000, 3, data_type.numpy)
        x[[77, 4100]] = first, last
        assert index_of(ArgminOperatorDesc, x, device) == index_of(ArgmaxOperatorDesc, -x, device) == 77
        assert index_of(ArgminOperatorDesc, x, device, DECREASING) == 4100
        assert index_of(ArgmaxOperatorDesc, -x, device, DECREASING) == 4100
    x[77], x[4100] = -0.0, 3
    assert index_of(ArgminOperatorDesc, x, device) == index_of(ArgmaxOperatorDesc, -x, device) == 77


@by_type
def test_every_pair_of_special_values_has_the_right_winner(device, data_type):
    """The first NaN wins, with its bits; zeros are equal, and denormals are compared exactly."""
    values = special_values(data_type.numpy).view(f"u{data_type.bits // 8}")
    pairs = np.stack(np.meshgrid(values, values), -1).reshape(-1, 2).view(data_type.numpy)
    for kind, direction in itertools.product((ArgmaxOperatorDesc, ArgminOperatorDesc), AxisDirection):
        verify(arg_desc(kind, data_type, pairs.shape, [1], direction), pairs, device=device)
    verify(pool_desc(data_type, (1, 1, *pairs.shape), (1, 2)), pairs[None, None], device=device)


@by_type
def test_a_segment_of_nothing_but_least_values_has_an_index(lowered, data_type):
    """The elements of an output lie in all segments."""
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
def test_all_values_of_an_axis_are_in_order(any_device, data_type, kind, direction):
    x = np.random.default_rng(1).permutation(all_values(data_type))
    for row in (x, x[~np.isnan(x)], x[np.isfinite(x)]) if data_type is FLOAT16 else (x,):
        verify(arg_desc(kind, data_type, row.shape, [0], direction), row, device=any_device)


@by_small_type
def test_all_values_of_a_plane_are_in_order(device, data_type):
    side = 1 << data_type.bits // 2
    x = np.random.default_rng(2).permutation(all_values(data_type)).reshape(1, 1, side, side)
    verify(pool_desc(data_type, x.shape, (3, 3), (1, 1), (1, 1), (1, 1)), x, device=device)
