"""CUMULATIVE_SUMMATION and CUMULATIVE_PRODUCT: special values, sums beyond the range of floats, and long lines."""

import numpy as np
import pytest

import dmlgpu
from dmlgpu import AxisDirection, CumulativeProductOperatorDesc, CumulativeSummationOperatorDesc, DescriptorError
from dmlgpu.reference import reference
from dmlgpu.reference.bounds import bounds
from dmlgpu.testing.fills import factors
from tests.support.errors import refuses

Sum, Product = CumulativeSummationOperatorDesc, CumulativeProductOperatorDesc
INF, NAN = np.inf, np.nan


def same_bits(result, expected):
    """NaN may have any bits."""
    np.testing.assert_array_equal(result, expected)
    numbers = ~np.isnan(result)
    assert np.signbit(result[numbers]).tolist() == np.signbit(expected[numbers]).tolist()


@pytest.mark.every_driver
@pytest.mark.parametrize(
    ("kind", "dtype", "x", "direction", "exclusive", "expected"),
    [
        (Sum, "f4", [1, NAN, 2, 3], 0, False, [1, NAN, NAN, NAN]),
        (Sum, "f2", [1, NAN, 2, 3], 1, True, [NAN, 5, 3, 0]),
        (Sum, "f4", [INF, 1, -INF, 5], 0, True, [0, INF, INF, NAN]),
        (Product, "f4", [0, 5, 7], 0, True, [1, 0, 0]),
        (Product, "f2", [2, 0, INF, 3], 0, True, [1, 2, 0, NAN]),
        (Sum, "f4", [-0.0, -0.0, 1], 0, False, [-0.0, -0.0, 1]),
        (Sum, "f4", [-0.0, -0.0, 1], 0, True, [0.0, -0.0, -0.0]),
        (Sum, "f2", [-0.0, 0.0, -0.0], 0, False, [-0.0, 0.0, 0.0]),
        (Product, "f4", [-0.0, -1, -1], 0, False, [-0.0, 0.0, -0.0]),
        (Sum, "i4", [2**31 - 1, 1, 1], 0, False, [2**31 - 1, -(2**31), 1 - 2**31]),
        (Sum, "u4", [2**32 - 1, 2, 5], 0, False, [2**32 - 1, 1, 6]),
        (Product, "i4", [65536, 65536, 3], 0, False, [65536, 0, 0]),
        (Product, "u8", [2**63 + 1, 2**63 + 1, 3], 1, False, [3, 2**63 + 3, 3]),
        (Product, "f2", [256, 256, 0.5], 0, False, [256, INF, 32768]),
        (Sum, "f2", [60000, 60000, -60000], 0, False, [60000, INF, 60000]),
        (Sum, "f4", [-3e38, 3e38, 3e38], 0, False, [-3e38, 0, 3e38]),
        (Sum, "f4", [3e38, 3e38, -3e38, -3e38, 2.5], 0, False, [3e38, INF, 3e38, 0, 2.5]),
        (Product, "f4", [0, 1e30, 1e30], 0, False, [0, 0, 0]),
        (Product, "f4", [2.0**100, 2.0**100, 2.0**-100], 0, False, [2.0**100, INF, 2.0**100]),
    ],
)
def test_special_values_propagate(mapped, kind, dtype, x, direction, exclusive, expected):
    x, expected = np.array(x, dtype), np.array(expected, dtype)
    desc = kind.of(x, 0, AxisDirection(direction), **{kind.exclusive_field: exclusive})
    for result in mapped.compile(desc)(x), *reference(desc, x):
        same_bits(result, expected)


def test_a_float16_sum_does_not_stall(device):
    x = np.ones(2052, np.float16)
    assert dmlgpu.verify(Sum.of(x, 0), x, device=device)[2047:].tolist() == [2048, 2048, 2050, 2052, 2052]


def test_blocks_neither_overflow_nor_lose_what_is_small(mapped):
    """Sums of some blocks exceed the range of floats, but no cumulative sum does."""
    x = np.full((3, 4161), 1e-30, np.float32)
    x[0, [0, 1500, 1501]] = -3e38, 3e38, 3e38
    x[1, [100, 1500, 1501, 3000]] = 3e38, -3e38, -3e38, 3e38
    assert np.isfinite(dmlgpu.verify(Sum.of(x, 1), x, device=mapped)).all()


def test_errors_do_not_grow_with_the_elements(mapped):
    x = np.random.default_rng(0).random((2, 30_000), np.float32)
    for axis, lines in (1, x), (0, np.ascontiguousarray(x[:, :20_000].reshape(4, -1).T)):
        exact = lines.astype(np.float64).cumsum(axis)
        assert np.abs(mapped.compile(Sum.of(lines, axis))(lines) / exact - 1).max() < 2.0**-23.9


def test_products_stay_in_range_on_their_way(mapped):
    x = factors(np.dtype(np.float32), 9000).reshape(2, -1)
    x[0, :1000] *= 8
    x[0, 2000:3000] /= 8
    dmlgpu.verify(Product.of(x, 1), x, device=mapped)


@pytest.mark.parametrize(("element", "product"), [(1e-45, 0), (3e38, np.inf)])
def test_products_of_millions_of_extreme_elements_have_the_right_limit(device, element, product):
    """The exponents of 15 million denormals add up to 2^31, as do those of 17 million large elements."""
    x = np.full(17_000_000, element, np.float32)
    assert dmlgpu.prod(x, device=device) == product
    assert dmlgpu.cumulative_prod(x, device=device)[-1] == product


def test_bounds_are_those_of_sums_and_products():
    x = np.float32([[1, -2, 4]])
    (sums,), (products,) = (bounds(kind.of(x, 1), x) for kind in (Sum, Product))
    np.testing.assert_allclose(sums, [[(4 + 2) / 2**23, (12 + 2) / 2**23, (28 + 6) / 2**23]])
    np.testing.assert_allclose(products, [[3 / 2**23, 2 * 4 / 2**23, 8 * 5 / 2**23]])
    assert bounds(Sum.of(x.astype(np.int32), 1), x.astype(np.int32)) == (None,)


def test_functions_of_device_tensors_are_those_of_numpy(device):
    x = np.float32([[1, 2, 3], [4, 5, 6]])
    t = device.tensor(x)
    for function, numpy in (dmlgpu.cumulative_sum, np.cumsum), (dmlgpu.cumulative_prod, np.cumprod):
        for axis in (0, -1):
            for result in function(t, axis=axis), numpy(t, axis):
                assert isinstance(result, dmlgpu.DeviceTensor)
                np.testing.assert_array_equal(result.numpy(), numpy(x, axis))
        np.testing.assert_array_equal(numpy(t).numpy(), numpy(x))
        out = device.tensor(np.zeros_like(x))
        assert function(t, axis=1, out=out) is out
        np.testing.assert_array_equal(out.numpy(), numpy(x, 1))
        message = "include_initial=True needs an array, not a device tensor"
        refuses(message, function, t, error=TypeError, axis=0, include_initial=True)
        refuses("is not converted to int64", function, device.tensor(np.int32([1, 2])), error=TypeError)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, DescriptorError, r"CumulativeProductOperatorDesc\.axis: None is not allowed for 2 dimensions; give one"),
        ({"axis": 2}, DescriptorError, r"CumulativeProductOperatorDesc\.axis: 2 is out of range"),
        ({"axis": 2, "include_initial": True}, DescriptorError, r"CumulativeProductOperatorDesc\.axis: 2 is out of"),
        ({"axis": 0, "include_initial": 1}, DescriptorError, r"CumulativeProductOperatorDesc\.include_initial: 1 is"),
        ({"axis": 0, "dtype": "float64"}, TypeError, r"cumulative_prod: dtype=float64 of float32 is not supported"),
        ({"axis": 0, "keepdims": True}, TypeError, r"cumulative_prod\(\) has no argument 'keepdims'"),
    ],
)
def test_wrong_arguments_are_refused(arguments, error, message):
    refuses(f"^{message}", dmlgpu.cumulative_prod, np.zeros((2, 3), np.float32), error=error, **arguments)
