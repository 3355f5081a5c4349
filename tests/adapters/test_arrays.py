"""Functions accept arrays of other libraries that are on the host."""

import array_api_strict
import jax.numpy
import numpy as np
import pytest
import torch
import xarray

import dmlgpu
from dmlgpu.interop import array_api
from tests.support.errors import refuses

pytestmark = pytest.mark.usefixtures("default_device")
X = np.random.default_rng(5).integers(-50, 50, (3, 4, 5)).astype(np.float32)


class OnGPU:
    """An array like those of CuPy: it has DLPack, and refuses silent copies to the host."""

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
def test_every_function_accepts_arrays_of_other_libraries(x):
    for name in set(array_api.__all__) - {"top_k"}:
        result = getattr(array_api, name)(x, axis=1)
        assert type(result) is np.ndarray
        np.testing.assert_allclose(result, getattr(np, name)(X, axis=1), rtol=1e-5, atol=1e-3)
    np.testing.assert_array_equal(array_api.top_k(x, 2, axis=1)[0], -np.sort(-X, 1)[:, :2])
    np.testing.assert_array_equal(dmlgpu.argmin(x, (0, 2)), X.transpose(1, 0, 2).reshape(4, -1).argmin(1))
    np.testing.assert_array_equal(dmlgpu.max_pooling(x, 2), dmlgpu.max_pooling(X, 2))


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float16", "bool"])
def test_types_stay(dtype):
    x = (X % 2).astype(dtype)
    for array in (torch.from_numpy(x), xarray.DataArray(x)):
        assert array_api.max(array).dtype == dtype


def test_bfloat16_of_jax_is_refused():
    words = r"^max: bfloat16 is not supported; .*; convert .*float32\)$"
    refuses(words, array_api.max, jax.numpy.ones(3, jax.numpy.bfloat16), error=TypeError)


def test_device_tensors_reach_the_others(device):
    t = device.tensor(X)
    assert torch.equal(torch.from_dlpack(t), torch.from_numpy(X))
    assert (jax.numpy.from_dlpack(t) == X).all()
    np.testing.assert_array_equal(np.from_dlpack(t), X)
    assert array_api_strict.all(array_api_strict.from_dlpack(t) == array_api_strict.asarray(X))
    refuses("always a copy", torch.from_dlpack, t, error=BufferError, copy=False)


def test_arrays_on_a_gpu_are_not_copied_silently():
    refuses(r"\.get\(\)", array_api.max, OnGPU(X), error=TypeError)


def test_gradients_are_not_lost_silently():
    refuses("detach", array_api.max, torch.ones(3, requires_grad=True), error=RuntimeError)
