"""Averages of quantized elements: exact quotients, scales, and the arguments of the function."""

import re

import numpy as np
import pytest

import dmlgpu
from dmlgpu import TensorDesc, quantized_average_pooling, verify
from dmlgpu.lowering.lower import lower
from dmlgpu.testing.cases import FLOAT32, INT8, UINT8, quantized_desc
from tests.support.errors import refuses
from tests.support.limits import LIMITS

X = np.array([[[10, 20, 30], [40, 50, 60], [70, 80, 90]], [[1, 2, 3], [4, 5, 6], [7, 8, 255]]], np.uint8)


def scales():
    """Pairs of scales with which many averages lie halfway between integers; scales next to these; and extreme ones.

    Extreme scales are denormal, or of very different magnitude.
    """
    ratios = np.float32([0.5, 1.5, 2.5, 0.25, 0.75, 3, 1 / 3, 127.5])
    near = np.concatenate([ratios, np.nextafter(ratios, np.float32(0)), np.nextafter(ratios, np.float32(1000))])
    pairs = [(near * power, np.full_like(near, power)) for power in np.float32([1, 2**-120, 2**100])]
    least, most = np.float32(2**-149), np.finfo(np.float32).max
    special = np.float32([0, -0.0, least, -least, 2**-126, 1, -1, most, np.inf, -np.inf, np.nan])
    pairs += [np.meshgrid(special, special)]
    far = 2.0 ** np.arange(8, 36, dtype=np.float32)
    pairs += [(np.float32([3 * least, 2**-140, most]), np.float32([2 * least, 2**-139, most / 2]))]
    pairs += [(far, np.ones_like(far)), (np.ones_like(far), far)]
    return [np.concatenate([np.ravel(pair[side]) for pair in pairs]) for side in (0, 1)]


@pytest.mark.every_driver
@pytest.mark.parametrize("width", [1, 2, 3], ids="of {}".format)
def test_quotients_are_rounded_exactly(any_device, width):
    inputs, outputs = scales()
    sizes = (1, len(inputs), 1, 1)
    desc = quantized_desc(TensorDesc(UINT8, (*sizes[:3], 256)), (1, width), INT8, sizes, (1,), sizes, sizes)
    x = np.tile(np.arange(256, dtype=np.uint8), (*sizes[:3], 1))
    zero_points = np.arange(len(inputs)).astype(np.int8)
    parameters = (inputs.reshape(sizes), np.uint8([100]), outputs.reshape(sizes), zero_points.reshape(sizes))
    verify(desc, x, *parameters, device=any_device)


@pytest.mark.every_driver
def test_the_largest_sums_have_32_bits(device):
    side = 2902
    x = np.full((side, side), 255, np.uint8)
    refuses("window_size: .* has 8421604 elements; at most 8421504 are", quantized_average_pooling, x, side)
    window = (side, side - 1)
    options = {"input_scale": 0.5, "dtype": "int8", "device": device}
    assert quantized_average_pooling(x, window, **options).tolist() == [[127, 127]]
    assert quantized_average_pooling(x - 255, window, input_zero_point=255, **options).tolist() == [[-128, -128]]
    x[0, 0] = 254
    steps = {"input_scale": 2.0**23, "output_scale": 2.0**23, "dtype": "uint8", "device": device}
    assert quantized_average_pooling(x, window, **steps).tolist() == [[255, 255]]


def test_parameters_are_a_number_or_one_for_each_channel(device):
    assert quantized_average_pooling(X, 2, device=device).tolist() == [[[30, 40], [60, 70]], [[3, 4], [6, 68]]]
    # The averages are 30, 40, 60 and 70 in the first channel; in the second 3, 4, 6 and 68.5.
    parameters = {"input_zero_point": np.uint8([10, 1]), "output_zero_point": 3, "output_scale": np.float32([2, 1])}
    expected = [[[13, 18], [28, 33]], [[5, 6], [8, 71]]]
    assert quantized_average_pooling(X, 2, **parameters, device=device).tolist() == expected
    tensors = {name: device.tensor(values) for name, values in parameters.items() if isinstance(values, np.ndarray)}
    for x in X, X[None], device.tensor(X):
        for options in parameters, parameters | tensors:
            result = quantized_average_pooling(x, 2, **options, device=device)
            assert isinstance(result, dmlgpu.DeviceTensor) == isinstance(x, dmlgpu.DeviceTensor)
            assert np.asarray(result).reshape(2, 2, 2).tolist() == expected
    strided = parameters | {"output_scale": np.float32([2, 0, 1, 0])[::2], "input_scale": np.float32(1)}
    assert quantized_average_pooling(X, 2, **strided, device=device).tolist() == expected


@pytest.mark.parametrize("data_type", [INT8, "int8", np.int8], ids=str)
def test_the_result_has_the_wanted_type(device, data_type):
    result = quantized_average_pooling(X, 3, dtype=data_type, output_zero_point=-100, device=device)
    assert (result.dtype, result.tolist()) == (np.int8, [[[-50]], [[-68]]])
    out = np.empty((2, 1, 1), np.int8)
    assert quantized_average_pooling(X, 3, dtype=data_type, out=out, device=device) is out
    assert out.tolist() == [[[50]], [[32]]]


NAMES = "input_scale", "input_zero_point", "output_scale", "output_zero_point"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"input_scale": np.ones(3, np.float32)},
            ".sizes: (3,) is wrong; allowed are a number, and (2,), one for each",
        ),
        (
            {"output_scale": np.ones((1, 2, 1, 1), np.float32)},
            ".sizes: (1, 2, 1, 1) is wrong; allowed are a number, and",
        ),
        ({"input_scale": np.ones(2)}, ".data_type: FLOAT64 is not supported; allowed are FLOAT32; convert the array"),
        ({"input_scale": 1e300}, ": 1e+300 is out of range; FLOAT32 has -3.4028234"),
        ({"output_scale": 1e-50}, ": 1e-50 is too small; it is 0 in FLOAT32"),
        ({"input_zero_point": True}, ".data_type: bool is not allowed; allowed is UINT8"),
        ({"input_zero_point": 256}, ": 256 is out of range; UINT8 has 0 to 255"),
        ({"output_zero_point": -129, "dtype": "int8"}, ": -129 is out of range; INT8 has -128 to 127"),
        ({"input_zero_point": 0.5}, ".data_type: FLOAT64 is not supported; allowed are INT8, UINT8"),
        ({"output_zero_point": np.int8([1])}, ".data_type: INT8 differs from the output's UINT8"),
    ],
    ids=str,
)
def test_what_is_no_scale_or_zero_point_is_refused(options, message):
    (name,) = NAMES & options.keys()
    start = f"QuantizedLinearAveragePoolingOperatorDesc.{name}_tensor{message}"
    refuses(f"^{re.escape(start)}", quantized_average_pooling, X, 2, **options)


def test_descriptors_refuse_wrong_sizes_and_types():
    source = TensorDesc(UINT8, (1, 2, 4, 4))
    for sizes, text in (
        (((1, 4, 1, 1), None, (1,), None), "input_scale_tensor.sizes: (1, 4, 1, 1) is wrong"),
        (((2, 1, 1), None, (1,), None), "input_scale_tensor.sizes: (2, 1, 1) is wrong"),
        (((1,), None, (1,) * 6, None), "output_scale_tensor.sizes: (1, 1, 1, 1, 1, 1) is wrong"),
        (((1,), None, (1,), (1, 2)), "output_zero_point_tensor.sizes: (1, 2) is wrong"),
    ):
        message = f"^QuantizedLinearAveragePoolingOperatorDesc.{re.escape(text)}"
        refuses(message, quantized_desc, source, (2, 2), UINT8, *sizes)
    floats = TensorDesc(FLOAT32, (1, 2, 4, 4)), (2, 2), UINT8, (1,), None, (1,), None
    refuses(r"input_tensor\.data_type: FLOAT32 is not supported; .* INT8, UINT8$", quantized_desc, *floats)


def test_chunks_are_refused():
    message = "takes neither chunked nor Dask arrays"
    refuses(message, quantized_average_pooling, dmlgpu.chunked(X), 2, error=TypeError)


def test_more_channels_than_a_buffer_holds_are_refused():
    sizes = (1, 1 << 24, 1, 1)
    source = TensorDesc(UINT8, sizes)
    desc = quantized_desc(source, (1, 1), UINT8, sizes, None, (1,), None)
    refuses(r"input_scale_tensor\.sizes\[1\]: 16777216 .* numbers up to 8388608$", lower, desc, LIMITS["CPU"])
    assert lower(quantized_desc(source, (1, 1), UINT8, (1,), None, (1,), None), LIMITS["CPU"]).partial_bytes == 16
