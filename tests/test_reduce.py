"""REDUCE as a function, and as methods of device tensors that NumPy's functions call."""

import numpy as np
import pytest

import dmlgpu
from dmlgpu import DescriptorError, ReduceFunction, reduce
from tests.cases import UINT32

F = ReduceFunction
X = np.array([[1, 5, 2], [4, 0, 3]], np.float32)


def test_axes_as_numpy_and_directml_spell_them(any_device):
    assert reduce(X, F.MAX, 1, device=any_device).tolist() == [5, 4]
    assert reduce(X, F.MIN, -1, keepdims=True, device=any_device).tolist() == [[1], [0]]
    assert reduce(X, F.MAX, axes=(0,), device=any_device).tolist() == [[4, 5, 3]]
    assert reduce(X, F.MIN, (0, 1), device=any_device) == 0
    assert reduce(X, 7, 1, device=any_device).tolist() == [5, 4]
    assert reduce(np.zeros((0, 3), np.float32), F.MAX, 1, device=any_device).shape == (0,)


def test_indices_have_the_types_of_argmax(device):
    assert reduce(X, F.ARGMAX, 0, device=device).dtype == np.int64
    got = reduce(X, F.ARGMIN, 0, output_data_type=UINT32, device=device)
    assert (got.dtype, got.tolist()) == (np.uint32, [0, 1, 0])


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.uint64])
def test_the_winner_s_bits_are_kept(any_device, dtype):
    x = np.array([[0, 3, 3], [2, 1, 1]], dtype)
    got = reduce(x, F.MAX, 1, device=any_device)
    assert (got.dtype, got.tolist()) == (dtype, [3, 2])
    if x.dtype.kind == "f":
        zeros = np.array([-0.0, 0.0, np.nan, -1], dtype)
        assert np.signbit(reduce(zeros[:2], F.MAX, device=any_device))
        assert np.isnan(reduce(zeros, F.MIN, device=any_device))


def test_what_reduce_refuses(device):
    with pytest.raises(DescriptorError, match=r"^ReduceOperatorDesc\.function: 'MAX' is not allowed"):
        reduce(X, "MAX", device=device)
    with pytest.raises(
        DescriptorError, match=r"^ReduceOperatorDesc\.function: SUM is not supported; allowed are ARGMAX"
    ):
        reduce(X, F.SUM, device=device)
    with pytest.raises(DescriptorError, match=r"^ReduceOperatorDesc\.output_tensor\.data_type: FLOAT16 differs"):
        reduce(X, F.MAX, output_data_type=np.float16, device=device)
    with pytest.raises(DescriptorError, match=r"^ReduceOperatorDesc\.input_tensor\.sizes: axes \(0,\) .* are empty"):
        reduce(np.zeros((0, 3), np.float32), F.MAX, 0, device=device)


@pytest.mark.parametrize(("of_numpy", "function"), [(np.max, F.MAX), (np.amin, F.MIN)])
def test_functions_of_numpy_compute_on_the_device(any_device, of_numpy, function):
    t = any_device.tensor(X)
    for options in ({}, {"axis": 1}, {"axis": 0, "keepdims": True}):
        got = of_numpy(t, **options)
        assert isinstance(got, dmlgpu.DeviceTensor)
        assert np.array_equal(got.numpy(), of_numpy(X, **options))
    with pytest.raises(TypeError, match="out must be None"):
        of_numpy(t, out=np.zeros(()))
