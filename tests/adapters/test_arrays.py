"""Arrays of other libraries, on the host, go in as they are."""

import array_api_strict
import jax.numpy
import numpy as np
import pytest
import torch
import xarray

import dmlgpu
from dmlgpu.interop import array_api

X = np.random.default_rng(5).integers(-50, 50, (3, 4, 5)).astype(np.float32)


@pytest.fixture(autouse=True)
def _on_the_driver(driver, monkeypatch):
    monkeypatch.setenv("DMLGPU_DEVICE", str(driver.index))


class OnGPU:
    """As CuPy's arrays: they have DLPack, and refuse what would copy them to the host in silence."""

    def __init__(self, x):
        self.x = x

    def __array__(self, *_, **__):
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")

    def __dlpack_device__(self):
        return 2, 0  # kDLCUDA

    def __dlpack__(self, **_):
        raise BufferError("on another device")

    def get(self):
        return self.x


KINDS = {
    "torch": torch.from_numpy(X),
    "torch.transposed": torch.from_numpy(X.transpose(2, 0, 1).copy()).permute(1, 2, 0),
    "jax": jax.numpy.asarray(X),
    "array_api_strict": array_api_strict.asarray(X),
    "xarray": xarray.DataArray(X, dims=("a", "b", "c")),
    "cupy.get": OnGPU(X).get(),
}


@pytest.mark.parametrize("x", KINDS.values(), ids=KINDS)
def test_every_function_takes_it(x):
    for name in set(array_api.__all__) - {"top_k"}:
        got = getattr(array_api, name)(x, axis=1)
        assert type(got) is np.ndarray
        np.testing.assert_allclose(got, getattr(np, name)(X, axis=1), rtol=1e-5, atol=1e-3)
    np.testing.assert_array_equal(array_api.top_k(x, 2, axis=1)[0], -np.sort(-X, 1)[:, :2])
    np.testing.assert_array_equal(dmlgpu.argmin(x, (0, 2)), X.transpose(1, 0, 2).reshape(4, -1).argmin(1))
    np.testing.assert_array_equal(dmlgpu.max_pooling(x, 2), dmlgpu.max_pooling(X, 2))


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float16", "bool"])
def test_types_stay(dtype):
    x = (X % 2).astype(dtype)
    for given in (torch.from_numpy(x), xarray.DataArray(x)):
        assert array_api.max(given).dtype == dtype


def test_jax_has_bfloat16_which_is_refused():
    with pytest.raises(TypeError, match=r"^max: bfloat16 is not supported; .*; convert .*float32\)$"):
        array_api.max(jax.numpy.ones(3, jax.numpy.bfloat16))


def test_device_tensors_reach_the_others(device):
    t = device.tensor(X)
    assert torch.equal(torch.from_dlpack(t), torch.from_numpy(X))
    assert (jax.numpy.from_dlpack(t) == X).all()
    np.testing.assert_array_equal(np.from_dlpack(t), X)
    assert array_api_strict.all(array_api_strict.from_dlpack(t) == array_api_strict.asarray(X))
    with pytest.raises(BufferError, match="always a copy"):
        torch.from_dlpack(t, copy=False)


def test_arrays_on_a_gpu_are_not_copied_in_silence():
    with pytest.raises(TypeError, match=r"\.get\(\)"):
        array_api.max(OnGPU(X))


def test_gradients_are_not_lost_in_silence():
    with pytest.raises(RuntimeError, match="detach"):
        array_api.max(torch.ones(3, requires_grad=True))
