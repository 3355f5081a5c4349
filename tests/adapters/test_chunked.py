"""Files of zarr and HDF5, read and written in chunks."""

import h5py
import numpy as np
import pytest
import zarr

import dmlgpu
from dmlgpu import DescriptorError, ReduceFunction, chunked

X = np.random.default_rng(7).integers(0, 9, (30, 40, 22)).astype(np.float32)
CHUNKS = (7, 16, 8)


@pytest.fixture(autouse=True)
def _on_the_driver(driver, monkeypatch):
    monkeypatch.setenv("DMLGPU_DEVICE", str(driver.index))


def zarr_file(path, shape, dtype):
    return zarr.create_array(path / "x.zarr", shape=shape, chunks=CHUNKS[: len(shape)], dtype=dtype)


def hdf5_file(path, shape, dtype):
    return h5py.File(path / "x.h5", "w").create_dataset(
        "x", shape, dtype, chunks=CHUNKS[: len(shape)], compression="gzip"
    )


FILES = {"zarr": zarr_file, "hdf5": hdf5_file}


@pytest.fixture(params=FILES)
def create(request, tmp_path):
    """Makes an array in a file; each of a test has a folder of its own."""
    folders = (tmp_path / str(i) for i in range(100))

    def made(shape, dtype):
        folder = next(folders)
        folder.mkdir()
        return FILES[request.param](folder, shape, dtype)

    return made


@pytest.mark.parametrize("chunk_bytes", [100, 5000, 40_000, 1 << 20])
def test_what_is_read_of_a_file(create, chunk_bytes):
    x = create(X.shape, X.dtype)
    x[...] = X
    for axis in (None, 0, (0, 2)):
        if chunk_bytes > 1000 or axis == 0:
            np.testing.assert_array_equal(
                dmlgpu.argmax(chunked(x, chunk_bytes=chunk_bytes), axis), dmlgpu.argmax(X, axis)
            )
    if chunk_bytes > 1000:
        got = dmlgpu.max_pooling(chunked(x, chunk_bytes=chunk_bytes), (3, 2), strides=(2, 3), output_indices=True)
        for one, other in zip(got, dmlgpu.max_pooling(X, (3, 2), strides=(2, 3), output_indices=True), strict=True):
            np.testing.assert_array_equal(one, other)


def test_chunks_are_those_of_the_file(create):
    x = create(X.shape, X.dtype)
    assert chunked(x)._stored == CHUNKS
    sizes = chunked(x, chunk_bytes=20_000)._chunk_sizes(
        x.shape, CHUNKS, lambda sizes: 4 * sizes[0] * sizes[1] * sizes[2]
    )
    assert all(size % unit == 0 or size == whole for size, unit, whole in zip(sizes, CHUNKS, x.shape, strict=True))


def test_results_go_to_a_file(create):
    x, out = create(X.shape, X.dtype), create((40, 22), X.dtype)
    x[...] = X
    assert dmlgpu.reduce(chunked(x, chunk_bytes=20_000), ReduceFunction.MAX, 0, out=out) is out
    np.testing.assert_array_equal(out[...], X.max(0))
    same = create(X.shape, X.dtype)
    dmlgpu.max_pooling(chunked(x, chunk_bytes=20_000), 3, padding=1, out=same)
    np.testing.assert_array_equal(same[...], dmlgpu.max_pooling(X, 3, padding=1))
    with pytest.raises(DescriptorError, match="lies in x"):
        dmlgpu.max_pooling(chunked(x), 3, padding=1, out=x)


@pytest.mark.parametrize("name", ["link/x.zarr", "file://{}/x.zarr"])
def test_results_do_not_go_to_the_same_file_by_another_path(name, tmp_path):
    x = zarr_file(tmp_path, X.shape, X.dtype)
    (tmp_path / "link").symlink_to(tmp_path)
    out = zarr.open_array(name.format(tmp_path) if "{" in name else tmp_path / name)
    with pytest.raises(DescriptorError, match="lies in x"):
        dmlgpu.max_pooling(chunked(x), 3, padding=1, out=out)


def test_types_that_directml_lacks_are_refused(create):
    with pytest.raises(DescriptorError, match="complex64"):
        dmlgpu.argmax(chunked(create((8, 16), np.complex64)))
