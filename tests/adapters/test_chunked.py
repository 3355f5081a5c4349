"""Files of zarr and HDF5 are read and written in chunks."""

import h5py
import numpy as np
import pytest
import zarr

import dmlgpu
from dmlgpu import chunked
from tests.support.errors import refuses

pytestmark = pytest.mark.usefixtures("default_device")
X = np.random.default_rng(7).integers(0, 9, (30, 40, 22)).astype(np.float32)
CHUNKS = (7, 16, 8)


def zarr_array(path, shape, dtype):
    return zarr.create_array(path.with_suffix(".zarr"), shape=shape, chunks=CHUNKS[: len(shape)], dtype=dtype)


def hdf5_dataset(path, shape, dtype):
    file = h5py.File(path.with_suffix(".h5"), "w")
    return file.create_dataset("x", shape, dtype, chunks=CHUNKS[: len(shape)], compression="gzip")


@pytest.fixture(params=[zarr_array, hdf5_dataset], ids=["zarr", "hdf5"])
def create(request, tmp_path):
    """Creates an array in a file of this name."""
    return lambda name, shape, dtype: request.param(tmp_path / name, shape, dtype)


@pytest.fixture
def x(create):
    file = create("x", X.shape, X.dtype)
    file[...] = X
    return file


@pytest.mark.parametrize(
    ("chunk_bytes", "axes"), [(1000, [0]), (5000, [None, 0, (0, 2)]), (40_000, [None, 0, (0, 2)]), (1 << 20, [None])]
)
def test_reductions_of_a_file_are_those_of_the_array(x, chunk_bytes, axes):
    for axis in axes:
        result = dmlgpu.argmax(chunked(x, chunk_bytes=chunk_bytes), axis)
        np.testing.assert_array_equal(result, dmlgpu.argmax(X, axis))


@pytest.mark.parametrize("chunk_bytes", [5000, 40_000])
def test_poolings_of_a_file_are_those_of_the_array(x, chunk_bytes):
    results, expected = (
        dmlgpu.max_pooling(array, (3, 2), strides=(2, 3), output_indices=True)
        for array in (chunked(x, chunk_bytes=chunk_bytes), X)
    )
    for ours, theirs in zip(results, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_chunks_are_those_of_the_file(x):
    assert chunked(x)._stored == CHUNKS


def test_results_go_to_a_file(x, create):
    out = create("maxima", (40, 22), X.dtype)
    assert dmlgpu.max(chunked(x, chunk_bytes=20_000), 0, out=out) is out
    np.testing.assert_array_equal(out[...], X.max(0))
    refuses("lies in x", dmlgpu.max_pooling, chunked(x), 3, padding=1, out=x)


@pytest.mark.parametrize("name", ["link/x.zarr", "file://{}/x.zarr"])
def test_results_do_not_go_to_the_same_file_by_another_path(name, tmp_path):
    x = zarr_array(tmp_path / "x", X.shape, X.dtype)
    (tmp_path / "link").symlink_to(tmp_path)
    out = zarr.open_array(name.format(tmp_path) if "{" in name else tmp_path / name)
    refuses("lies in x", dmlgpu.max_pooling, chunked(x), 3, padding=1, out=out)


def test_types_that_directml_lacks_are_refused(create):
    refuses("complex64", dmlgpu.argmax, chunked(create("x", (8, 16), np.complex64)))
