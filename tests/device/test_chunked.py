"""Arrays that are read in chunks: results, what is read and when, memory, and what is refused."""

import contextlib
import errno
import gc
import itertools
import mmap
import operator
import os
import re
import signal
import subprocess
import sys
import threading
import tracemalloc
import types
import weakref
from pathlib import Path

import numpy as np
import pytest

import dmlgpu
from dmlgpu import DescriptorError, ReduceFunction, chunked
from dmlgpu.chunks import reduction, source
from dmlgpu.chunks.reduction import Reduction
from dmlgpu.reference.bounds import bounds
from tests.support.errors import refuses


class Sliced:
    """An array that is read by slices, and says what was read.

    Attributes:
        reads: the slices of every read, and the number of its thread.
        alive: how many of the arrays that it gave are alive.
        most: the most that were.
    """

    def __init__(self, x, chunks=None):
        self.x, self.shape, self.dtype = x, x.shape, x.dtype
        if chunks:
            self.chunks = chunks
        self.reads, self.began = [], [threading.Event() for _ in range(10_000)]
        self.alive = self.most = 0

    def __getitem__(self, region):
        self.began[len(self.reads)].set()
        self.reads.append((region, threading.get_ident()))
        part = self.x[region].copy()
        self.alive += 1
        self.most = max(self.most, self.alive)
        weakref.finalize(part, self._ended)
        return part

    def _ended(self):
        self.alive -= 1

    def times_read(self):
        """How often each element was."""
        times = np.zeros(self.shape, int)
        for region, _ in self.reads:
            times[region] += 1
        return times

    def largest_read(self):
        """Bytes of the largest."""
        return max(self.x[region].nbytes for region, _ in self.reads)


class Declared(Sliced):
    """An array that says of itself what its slices are not."""

    def __init__(self, x, **said):
        super().__init__(x)
        vars(self).update(said)


def values(*sizes, dtype="float32"):
    return np.random.default_rng(len(sizes)).integers(0, 9, sizes).astype(dtype)


@pytest.fixture(autouse=True)
def _on_the_driver(driver, monkeypatch):
    monkeypatch.setenv("DMLGPU_DEVICE", str(driver.index))


def few(chunk_bytes):
    """Fewer elements where each is a chunk."""
    return Sliced(values(4, 5, 4) if chunk_bytes == 4 else values(6, 7, 8))


def same(name, x, *arguments, chunk_bytes=64 << 20, **options):
    """A function gives of chunks what it gives of the whole array, bit for bit."""
    got = getattr(dmlgpu, name)(chunked(x, chunk_bytes=chunk_bytes), *arguments, **options)
    expected = getattr(dmlgpu, name)(x.x if isinstance(x, Sliced) else x, *arguments, **options)
    assert type(got) is type(expected)
    for one, other in zip(*((y if isinstance(y, tuple) else (y,)) for y in (got, expected)), strict=True):
        assert type(one) is type(other)
        np.testing.assert_array_equal(one, other, strict=True)


def refuses_out(words, name, x, *arguments, error=DescriptorError, **options):
    """A result is refused before anything is read."""
    with pytest.raises(error, match=f"(?s)^out: .*{words}"):
        getattr(dmlgpu, name)(chunked(x), *arguments, **options)
    assert getattr(x, "reads", []) == []


@pytest.mark.parametrize("chunk_bytes", [4, 60, 500, 3000, 1 << 20])
@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 2), (1, 2)])
def test_reductions_of_chunks(axis, chunk_bytes):
    x = few(chunk_bytes)
    options = {"axis": axis, "chunk_bytes": chunk_bytes}
    for keepdims in (False, True):
        x.reads.clear()
        same("argmax", x, **options, keepdims=keepdims, axis_direction=dmlgpu.AxisDirection.DECREASING)
        assert (x.times_read() == 1).all()
        assert x.largest_read() <= chunk_bytes
    same("argmin", x, **options)
    same("reduce", x, ReduceFunction.MAX, **options)
    same("reduce", x, ReduceFunction.SUM, **options)  # sums of small integers are exact


@pytest.mark.parametrize("chunk_bytes", [4, 60, 500, 3000, 1 << 20])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_top_k_of_chunks(axis, chunk_bytes):
    """With ties; chunks may have fewer elements along the axis than are asked for."""
    x = few(chunk_bytes)
    for k, mode in ((1, "largest"), (4, "smallest"), (x.shape[axis], "largest")):
        x.reads.clear()
        same("top_k", x, k, axis=axis, mode=mode, indices_data_type="uint32", chunk_bytes=chunk_bytes)
        assert (x.times_read() == 1).all()
        assert x.largest_read() <= chunk_bytes
    bools = x.x[:, 2] > 4
    same("top_k", bools, 3, axis=axis % 2, chunk_bytes=chunk_bytes)
    same("top_k", x.x.astype(">f8").T[::-1], 2, axis=axis, chunk_bytes=chunk_bytes)
    same("top_k", x.x[:0] if axis else x.x[:, :0], 3, axis=axis, chunk_bytes=chunk_bytes)


def test_chunks_of_top_k_have_whole_lines_if_these_fit():
    x = Sliced(values(64, 1 << 15, dtype="uint8"))
    same("top_k", x, 50, axis=0, chunk_bytes=1 << 20)
    assert all(part[0] == slice(0, 64) for part, _ in x.reads)


TYPES = ["bool", "int8", "uint8", ">i2", "uint16", "int32", "uint32", "int64", ">u8", "float16", ">f4"]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("chunk_bytes", [1, 60, 1 << 20])
def test_functions_of_numpy_of_chunks(dtype, chunk_bytes):
    x = values(5, 6) % 3 + 1
    x = x.astype(dtype) if dtype != "bool" else x > 1
    for axis, keepdims in ((None, False), (0, True), ((0, 1), False), (-1, False)):
        options = {"axis": axis, "keepdims": keepdims, "chunk_bytes": chunk_bytes}
        for name in ("sum", "prod", "max", "min"):
            same(name, x, **options)
            got = getattr(dmlgpu, name)(chunked(x, chunk_bytes=chunk_bytes), axis, keepdims=keepdims)
            with np.errstate(over="ignore"):
                np.testing.assert_array_equal(got, getattr(np, name)(x, axis, keepdims=keepdims))
        if np.dtype(dtype).kind == "f":
            same("mean", x, **options, exact=True)


def test_sums_of_uint8_beyond_32_bits():
    x = np.broadcast_to(np.uint8(255), (1 << 13, 1 << 12))
    assert dmlgpu.sum(chunked(x, chunk_bytes=1 << 22)) == 255 << 25
    assert dmlgpu.sum(chunked(x, chunk_bytes=1 << 22), dtype="uint32") == (255 << 25) % (1 << 32)
    got = dmlgpu.sum(chunked(x, chunk_bytes=1 << 22), 0, dtype=np.uint8)
    np.testing.assert_array_equal(got, x.sum(0, np.uint8), strict=True)


@pytest.mark.parametrize("source", ["bool", "int8", "int32", "int64", "float16", "float64"])
@pytest.mark.parametrize("exact", [False, True])
def test_types_that_chunks_are_summed_in(source, exact):
    x = values(5, 6, dtype=source)
    for chunk_bytes in (1, 60, 1 << 20):
        for dtype in ("int8", np.uint16, dmlgpu.DataType.INT64, "float16", np.float32):
            same("sum", x, 0, dtype=dtype, exact=exact, chunk_bytes=chunk_bytes)
            same("prod", x, 1, dtype=dtype, chunk_bytes=chunk_bytes)
        for dtype in ("float16", np.float32):  # all in one rounding: of float16 no other is on the way
            same("mean", x, dtype=dtype, exact=True, chunk_bytes=chunk_bytes)


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "uint8", "bool"])
def test_identities_of_no_elements(dtype, tmp_path):
    x = Sliced(np.zeros((2, 0, 3), dtype))
    for name in ("sum", "prod", "mean")[: 2 + (x.dtype.kind == "f")]:
        for axis, keepdims in ((None, False), (1, False), ((0, 1), True), (0, False)):
            same(name, x, axis, keepdims=keepdims)
    same("sum", x, dtype="float32")
    out, path = np.full((2, 3), 7, dmlgpu.sum(x.x, 1).dtype), tmp_path / "x.npy"
    assert dmlgpu.prod(chunked(x), 1, out=out) is out
    assert dmlgpu.prod(chunked(x), 1, out=path).tolist() == np.load(path).tolist() == out.tolist() == [[1] * 3] * 2
    for name in ("max", "min"):
        same(name, x, 0)
        with pytest.raises(DescriptorError, match=r"axes \(1,\) of \(2, 0, 3\) are empty"):
            getattr(dmlgpu, name)(chunked(x), 1)
    refuses_out("the shape", "sum", x, 1, out=out[0])
    assert x.reads == []


# Each function in two or three of the twelve ways.
@pytest.mark.parametrize(
    ("dtype", "axis", "by", "function"),
    [
        (*way, function)
        for way, function in zip(
            itertools.product(["float32", "float16"], [None, 1, (0, 2)], ["NumPy", "device"]),
            itertools.cycle(["sum", "average", "l1", "l2", "sum_square"]),
            strict=False,
        )
    ],
)
def test_exact_sums_of_chunks(dtype, axis, by, function, monkeypatch):
    """Over so many binades that every order and chunking gives the usual sums other bits; with what is not finite."""
    if by == "device":
        monkeypatch.setattr(reduction, "_FEW_OF_WHOLE", 0)
        monkeypatch.setattr(reduction, "_FEW_OF_OUTPUT", 0)
        monkeypatch.setattr(reduction, "_FEW_OF_CHUNK", 0)
    random, sizes = np.random.default_rng(0), (5, 16, 7)
    binades = random.integers(-9, 9, sizes, np.int32) * (1 if dtype == "float16" else 5)
    x = np.ldexp(random.standard_normal(sizes), binades).astype(dtype)
    x[3] = 0
    for chunk_bytes in (100, 900, 1 << 20):
        same("reduce", x, function, axis, exact=True, chunk_bytes=chunk_bytes)
    x[4, 0, 0] = np.inf
    same("reduce", x, function, axis, exact=True, chunk_bytes=300)
    # One in an output, and both, along each axis.
    x[[4, 4, 4, 4, 0], [1, 3, 4, 5, 5], [1, 3, 3, 4, 5]] = -np.inf, np.inf, -np.inf, np.inf, -np.inf
    x[4, 2, 2] = np.nan
    same("reduce", x, function, axis, exact=True, chunk_bytes=300)


def test_numpy_adds_few_elements_of_each_output(monkeypatch):
    x = np.random.default_rng(2).standard_normal((9, 100)).astype(np.float32)
    expected = dmlgpu.sum(x, 0, exact=True), dmlgpu.sum(x[:8], 0, exact=True)
    computed, calls = reduction.computed, []
    monkeypatch.setattr(
        reduction, "computed", lambda *args, **options: calls.append(args) or computed(*args, **options)
    )
    got = dmlgpu.sum(chunked(x[:8]), 0, exact=True)
    assert (got.tobytes(), len(calls)) == (expected[1].tobytes(), 0)
    got = dmlgpu.sum(chunked(x), 0, exact=True)
    assert (got.tobytes(), len(calls)) == (expected[0].tobytes(), 1)


def test_exact_sums_of_arrays_as_they_lie():
    """Reversed, with gaps, of one field, and of the other byte order: all are copied for the device, or packed."""
    x = np.random.default_rng(1).standard_normal((24, 50)).astype(np.float32)
    record = np.zeros(x.shape, [("flag", "i1"), ("value", "f4")])
    record["value"] = x
    wide = np.lib.stride_tricks.as_strided(np.zeros((24 << 20) + 50, np.float32), x.shape, (4 << 20, 4))
    for view in (x[::-1], x[:, ::-1], x[::3, ::7], x.T, record["value"], wide, x.astype(">f4")):
        packed = np.ascontiguousarray(view, np.float32)
        for chunk_bytes in (400, 1 << 20):
            for axis in (0, 1):
                got = dmlgpu.reduce(chunked(view, chunk_bytes=chunk_bytes), "sum", axis, exact=True)
                assert got.tobytes() == dmlgpu.sum(packed, axis, exact=True).tobytes()


def test_chunks_of_exact_sums_have_all_elements_of_an_output_if_these_fit():
    x = Sliced(values(9, 4, 1 << 15).astype(np.float32))
    for axis, sizes in ((0, (9, 1, 1 << 14)), (1, (1, 4, 1 << 15)), (2, (1, 4, 1 << 15)), ((0, 1), (3, 4, 1 << 14))):
        x.reads.clear()
        same("reduce", x, "sum", axis, exact=True, chunk_bytes=15 * 4 << 14)
        assert tuple(part.stop - part.start for part in x.reads[0][0]) == sizes


def test_exact_sums_that_no_chunk_can_hold():
    """Chunks whose sums are beyond float32 and cancel; ties that only the last chunk breaks; nothing."""
    greatest = np.finfo(np.float32).max
    for row, expected in (
        ([greatest] * 8 + [-greatest] * 7, greatest),
        ([1, *[2**-24] * 6, 2**-149], 1 + 3 * 2**-23),
        ([1, 2**-24, -(2**-149)], 1),
        ([1, 2**-24, 2**-149], 1 + 2**-23),
    ):
        got = dmlgpu.reduce(chunked(np.float32(row), chunk_bytes=4), "sum", exact=True)
        assert got.tobytes() == np.float32(expected).tobytes()
    for function in ("sum", "l2"):
        assert dmlgpu.reduce(chunked(np.zeros((3, 0), np.float32)), function, 0, exact=True).shape == (0,)


SCANS = [
    {"axis": axis, "axis_direction": direction, "include_initial": initial}
    for axis, direction, initial in ((0, "increasing", False), (1, "decreasing", False), (1, "increasing", True))
]


@pytest.mark.parametrize("options", [*SCANS, {**SCANS[2], "axis": 0, "axis_direction": "decreasing"}], ids=str)
def test_scans_of_chunks(options):
    """Integers, which wrap, and exact sums have the bits of the whole array: none of its totals is rounded."""
    random = np.random.default_rng(7)
    bits = random.integers(0, 1 << 32, (5, 9), np.uint64).astype(np.uint32)
    single, half = (x.view(f"f{x.itemsize}") for x in (bits, bits.astype(np.uint16)))
    for x in (values(5, 9, dtype="uint8") - 4, bits):
        same("cumulative_sum", x, **options, chunk_bytes=24)
        same("cumulative_prod", x | 1, **options, dtype="int8", chunk_bytes=24)
    for x in (single, half):
        x = Sliced(np.where(np.abs(x) < np.inf, x, 1))
        same("cumulative_sum", x, **options, exact=True, chunk_bytes=24)
        assert (x.times_read() == 1).all()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_scans_of_chunks_of_floats(dtype):
    """Within the bound of the whole array, and 2^-23 of the sum or the product."""
    x = np.exp(np.random.default_rng(8).standard_normal((3, 500)) / 3).astype(dtype)
    for name, kind in (
        ("cumulative_sum", dmlgpu.CumulativeSummationOperatorDesc),
        ("cumulative_prod", dmlgpu.CumulativeProductOperatorDesc),
    ):
        desc = kind.of(x, 1)
        (expected,), (bound,) = dmlgpu.reference(desc, x), bounds(desc, x)
        got = getattr(dmlgpu, name)(chunked(x, chunk_bytes=77), axis=1)
        assert (np.abs(got.astype(np.float64) - expected) <= bound + 2.0**-23 * np.abs(expected)).all()
        # What chunks pass on is not rounded to float16.
        assert dtype == "float32" or np.mean(got != expected) < 0.02


def test_scans_of_chunks_come_back_from_what_is_beyond_floats():
    for dtype in (np.float16, np.float32):
        greatest = np.finfo(dtype).max
        x = np.array([greatest] * 9 + [1, np.finfo(dtype).smallest_subnormal] + [-greatest] * 9, dtype)
        same("cumulative_sum", x, exact=True, chunk_bytes=4)
        with np.errstate(over="ignore"):
            factors = np.array([2.0**-14] * 40 + [2.0**14] * 40, dtype)
        same("cumulative_prod", factors, chunk_bytes=20)
        same("cumulative_prod", 1 / factors, chunk_bytes=20)
    x = np.float16([65504] * 9 + [-np.inf, 1])
    same("cumulative_sum", x, exact=True, chunk_bytes=4)
    for row in ([1, np.inf, 2, -np.inf, 3], [np.nan, 1, 2]):
        x = np.float32([row, np.ones(len(row))])
        for function in (dmlgpu.cumulative_sum, dmlgpu.cumulative_prod):
            np.testing.assert_array_equal(function(chunked(x, chunk_bytes=4), axis=1), function(x, axis=1))


def test_scans_of_chunks_with_whole_lines_need_no_totals(monkeypatch):
    monkeypatch.setattr(source.Scan, "total", None)
    same("cumulative_sum", values(7, 30), axis=1, chunk_bytes=300)
    same("cumulative_sum", values(0, 3), axis=0, include_initial=True)
    same("cumulative_prod", values(3, 0), axis=0, include_initial=True)


@pytest.mark.parametrize("chunk_bytes", [4, 300, 2000, 1 << 20])
def test_poolings_of_chunks(chunk_bytes):
    x = Sliced(values(2, 3, 13, 12))
    window = {"window_size": (3, 2), "strides": (2, 3), "padding": ((1, 1), (0, 1)), "dilations": (2, 1)}
    for indices in (False, True):
        same("max_pooling", x, **window, output_indices=indices, chunk_bytes=chunk_bytes)
    assert x.largest_read() <= max(chunk_bytes, 5 * 2 * 4)  # one window at least
    same("max_pooling", x, **window, output_indices=True, indices_data_type=np.uint32)
    same("average_pooling", x, **window, include_padding=True, chunk_bytes=chunk_bytes)
    same("average_pooling", x, **window, exact=True, chunk_bytes=chunk_bytes)
    same("lp_pooling", x, **window, p=1, chunk_bytes=chunk_bytes)
    same("max_pooling", x.x[0, 0] > 4, 2, chunk_bytes=chunk_bytes)


def test_arguments_reach_what_is_computed():
    x = values(3, 9, 11)
    for function, arguments in (
        ("argmin", {"axis": (0, 2), "keepdims": True, "dtype": "uint32"}),
        ("argmin", {"axis": 1, "axis_direction": dmlgpu.AxisDirection.DECREASING}),
        ("argmax", {"axis": -1, "dtype": np.int32}),
        ("reduce", {"function": ReduceFunction.ARGMIN, "axis": 0, "dtype": np.uint64}),
        ("reduce", {"function": ReduceFunction.L1, "axis": 2, "keepdims": True}),
        ("max_pooling", {"window_size": 2, "strides": 2, "output_sizes": (5, 6)}),
        ("average_pooling", {"window_size": 2, "strides": 2, "output_sizes": (5, 6), "padding": 0}),
        ("average_pooling", {"window_size": 3, "padding": 1}),
        ("lp_pooling", {"window_size": 2, "padding": ((1, 0), 1), "output_sizes": (9, 12)}),
        ("lp_pooling", {"window_size": 2, "strides": (3, 1), "p": 3}),
    ):
        expected = getattr(dmlgpu, function)(x, **arguments)
        for chunk_bytes in (200, 1 << 20):
            got = getattr(dmlgpu, function)(chunked(x, chunk_bytes=chunk_bytes), **arguments)
            assert got.dtype == expected.dtype
            np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_the_next_chunk_is_read_while_one_is_computed():
    x = Sliced(values(8, 100))
    done = []

    def progress(number, count):
        done.append((number, count))
        # The read of the next chunk began before this one was computed; no read began after it.
        if number < count:
            assert x.began[number].wait(60)
        assert len(x.reads) <= number + 1

    dmlgpu.argmax(chunked(x, chunk_bytes=400, progress=progress), 1)
    assert done == [(i, 8) for i in range(1, 9)]
    assert {thread for _, thread in x.reads}.isdisjoint({threading.get_ident()})
    assert len({thread for _, thread in x.reads}) == 1


@pytest.mark.parametrize("function", ["argmax", "max_pooling"])
def test_two_chunks_are_in_memory(function):
    x = Sliced(values(1, 12, 50))
    gc.disable()  # nothing waits for it
    try:
        getattr(dmlgpu, function)(chunked(x, chunk_bytes=400, progress=lambda *_: None), (1, 2))
    finally:
        gc.enable()
    assert len(x.reads) >= 6
    assert x.most <= 2
    assert x.alive == 0


def test_chunks_are_whole_ones_of_the_file():
    x = Sliced(values(40, 60), chunks=(8, 16))
    dmlgpu.argmax(chunked(x, chunk_bytes=3000), 0)
    dmlgpu.max_pooling(chunked(x, chunk_bytes=3000), 1)
    for region, _ in x.reads:
        for part, unit, size in zip(region, (8, 16), (40, 60), strict=True):
            assert part.start % unit == 0
            assert part.stop % unit == 0 or part.stop == size
    x.reads.clear()
    dmlgpu.max_pooling(chunked(x, chunk_bytes=600), 2, strides=2)  # one of them
    assert {(region[0].start % 8, region[1].start % 16) for region, _ in x.reads} == {(0, 0)}
    planes = Sliced(values(6, 16, 16), chunks=(3, 8, 8))
    dmlgpu.max_pooling(chunked(planes, chunk_bytes=768), 1, strides=1)
    assert {region[0].start % 3 for region, _ in planes.reads} == {0}
    x.reads.clear()
    dmlgpu.argmax(chunked(x, chunk_bytes=100), 0)  # less than one of them
    assert x.largest_read() <= 100


def test_chunks_are_even():
    x = Sliced(values(100, 10))
    dmlgpu.argmax(chunked(x, chunk_bytes=90 * 40), 1)
    assert [region[0] for region, _ in x.reads] == [slice(0, 50), slice(50, 100)]


@pytest.mark.parametrize("order", ["C", "F"])
def test_what_lies_together_is_read_together(order):
    x = np.asarray(values(32, 16), order=order)
    sizes = chunked(x, chunk_bytes=512)._chunk_sizes(x.shape, (1, 1), lambda sizes: 4 * sizes[0] * sizes[1])
    assert sizes == ((8, 16) if order == "C" else (32, 4))


def test_where_nothing_is_left_or_nothing_there():
    empty = np.empty((0, 3), np.int8)
    same("argmax", values(5))
    same("argmax", empty, 1)
    same("max_pooling", np.empty((0, 3, 3), np.int8), 2)
    refuses(r"axes \(0,\) of \(0, 3\) are empty", dmlgpu.argmax, chunked(empty), 0)
    refuses(r"a window over \(0, 3\) is empty", dmlgpu.max_pooling, chunked(empty), 1)


@pytest.mark.parametrize("is_array", [False, True], ids=["slices", "subclass"])
def test_a_source_may_use_its_memory_again(is_array, monkeypatch):
    x = np.random.default_rng(5).random((8, 20), np.float32)
    memory, reads, partial = np.empty((2, 20), np.float32), threading.Semaphore(0), Reduction.partial

    class Source(np.ndarray):
        def __getitem__(self, region):
            memory[:] = x[region]
            reads.release()
            return memory

    class Behind:
        shape, dtype, __getitem__ = x.shape, x.dtype, Source.__getitem__

    def after_the_next_read(self, elements, begin, device):
        assert reads.acquire(timeout=60)
        if begin[0] == 0:
            assert reads.acquire(timeout=60)
        elif begin[0] == 4:
            reads.release()
        return partial(self, elements, begin, device)

    monkeypatch.setattr(Reduction, "partial", after_the_next_read)
    source = x.view(Source) if is_array else Behind()
    np.testing.assert_array_equal(dmlgpu.argmax(chunked(source, chunk_bytes=160), 1), x.argmax(1))


# Files


@pytest.fixture
def file(tmp_path):
    """A file of 64 MiB that holds an array."""
    path = tmp_path / "x.npy"
    x = np.lib.format.open_memmap(path, "w+", np.float32, (4096, 4096))
    x[:] = np.arange(4096, dtype=np.float32) % 1000
    x[77, 4095] = 5000
    x.flush()
    return path


def resident_of_files():
    """Bytes of files in the memory of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssFile"))


def test_paths_of_files(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in (file, str(file), "x.npy"):
        x = chunked(path, chunk_bytes=16 << 20)
        assert dmlgpu.argmax(x) == 77 * 4096 + 4095
        assert dmlgpu.max(x) == 5000
        assert repr(x) == "<dmlgpu.chunked memmap of float32 and (4096, 4096)>"
    (tmp_path / "text.npy").write_text("hello")
    np.savez(tmp_path / "several.npz", x=np.zeros(3))
    np.save(tmp_path / "number.npy", np.float32(3))
    np.save(tmp_path / "objects.npy", np.array([None]), allow_pickle=True)
    for name, words in (
        ("text.npy", r"text\.npy: EOF: reading magic string"),
        ("several.npz", r"several\.npz: a \.npz file, which has several arrays; allowed are \.npy files"),
        ("number.npy", r"memmap of float32 and \(\) cannot be read by slices; .* and paths of \.npy files$"),
        ("objects.npy", r"objects\.npy: .*objects"),
    ):
        refuses(rf"^chunked\.x: {words}", chunked, name)
    refuses(r"'nothing\.npy'", chunked, "nothing.npy", error=FileNotFoundError)


def test_a_file_does_not_stay_in_memory(file):
    x = np.load(file, mmap_mode="r")
    dmlgpu.argmax(chunked(x[:64]))  # what the driver and its compiler load
    before, most = resident_of_files(), []
    got = dmlgpu.argmax(chunked(x, chunk_bytes=1 << 20, progress=lambda *_: most.append(resident_of_files())))
    assert got == 77 * 4096 + 4095
    assert len(most) == 64
    assert max(most) - before < 16 << 20


@pytest.mark.parametrize("function", ["max_pooling", "reduce"])
def test_a_file_of_results_does_not_stay_in_memory(function, tmp_path):
    x = np.broadcast_to(np.arange(4096, dtype=np.float32), (1, 4096, 4096))
    arguments = {"max_pooling": (1,), "reduce": (ReduceFunction.MAX, 0)}[function]
    shape = x.shape if function == "max_pooling" else x.shape[1:]
    out = np.lib.format.open_memmap(tmp_path / "out.npy", "w+", np.float32, shape)
    getattr(dmlgpu, function)(chunked(x[:, :64]), *arguments)
    before, most = resident_of_files(), []
    getattr(dmlgpu, function)(
        chunked(x, chunk_bytes=1 << 20, progress=lambda *_: most.append(resident_of_files())), *arguments, out=out
    )
    assert max(most) - before < 16 << 20
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy", mmap_mode="r").reshape(x.shape), x)


def test_the_reader_reads(file, monkeypatch):
    """A view of a mapped file is only read where its elements are asked for, which would be in the other thread."""
    x, chunks = np.load(file, mmap_mode="r"), []
    run = source.Chunked._for_each_chunk
    monkeypatch.setattr(
        source.Chunked,
        "_for_each_chunk",
        lambda self, count, chunk, write: run(self, count, chunk, lambda i, elements: chunks.append(elements)),
    )
    dmlgpu.argmax(chunked(x, chunk_bytes=32 << 20))
    assert [np.may_share_memory(chunk, x) for chunk in chunks] == [False] * 2


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_what_was_changed_in_the_file_stays_changed(file, mode):
    x = np.load(file, mmap_mode=mode)
    if mode != "r":
        x[5, 5] = 9000
    for _ in range(2):  # what is given back to the system is read again
        assert dmlgpu.argmax(chunked(x, chunk_bytes=4 << 20)) == (77 * 4096 + 4095 if mode == "r" else 5 * 4096 + 5)
    assert np.load(file, mmap_mode="r")[5, 5] == (9000 if mode == "r+" else 5)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[:],
        lambda x: np.asarray(x).view(np.memmap),
        lambda x: np.lib.stride_tricks.as_strided(x).view(np.memmap),
        np.asarray,
    ],
    ids=["slice", "memmap", "strided", "ndarray"],
)
def test_changes_of_a_copy_on_write_stay(file, view):
    x = np.load(file, mmap_mode="c")
    x[5, 5] = 9000
    assert dmlgpu.argmax(chunked(view(x), chunk_bytes=4 << 20)) == 5 * 4096 + 5
    assert x[5, 5] == 9000
    dmlgpu.reduce(chunked(values(1, 4095, 4096), chunk_bytes=4 << 20), ReduceFunction.MAX, 0, out=view(x[1:]))
    np.testing.assert_array_equal(x[1:], values(1, 4095, 4096)[0])
    assert np.load(file, mmap_mode="r")[5, 5] == 5
    with open(file, "rb") as opened:  # a mapping that does not say how
        mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY)
    x = np.frombuffer(mapped, np.float32, offset=128).view(np.memmap)
    x[-1] = 9000
    assert dmlgpu.argmax(chunked(x, chunk_bytes=4 << 20)) == x.size - 1
    assert x[-1] == 9000


def test_results_go_to_files(tmp_path):
    x = values(6, 20, 30)
    expected = dmlgpu.max_pooling(x, 3, output_indices=True)
    outs = tuple(
        np.lib.format.open_memmap(tmp_path / f"{i}.npy", "w+", y.dtype, y.shape) for i, y in enumerate(expected)
    )
    got = dmlgpu.max_pooling(chunked(x, chunk_bytes=2000), 3, output_indices=True, out=outs)
    assert got == outs
    for out, y in zip(outs, expected, strict=True):
        np.testing.assert_array_equal(out, y)
    out = np.zeros((20, 30))[:, ::2].T.astype(np.float32)
    assert dmlgpu.reduce(chunked(x[:, :, :15], chunk_bytes=500), ReduceFunction.MAX, 0, out=out.T).base is out
    np.testing.assert_array_equal(out.T, x[:, :, :15].max(0))
    number = np.empty((), np.int64)
    assert dmlgpu.argmax(chunked(x), out=number) is number
    assert number == x.argmax()


def test_results_go_to_new_files(tmp_path):
    x = values(1, 20, 30)
    names = tmp_path / "values.npy", str(tmp_path / "indices.npy")
    got = dmlgpu.max_pooling(chunked(x, chunk_bytes=2000), 3, output_indices=True, out=names)
    for name, result, expected in zip(names, got, dmlgpu.max_pooling(x, 3, output_indices=True), strict=True):
        assert isinstance(result, np.memmap)
        np.testing.assert_array_equal(np.load(name), expected)
    before = names[0].read_bytes()
    for out in (names, (tmp_path / "other.npy", names[1])):
        with pytest.raises(FileExistsError):
            dmlgpu.max_pooling(chunked(x), 3, output_indices=True, out=out)
    assert sorted(tmp_path.iterdir()) == sorted(map(Path, names))
    assert names[0].read_bytes() == before
    twice = tmp_path / "x.npy", f"{tmp_path}/./x.npy"
    words = r"x\.npy' is given twice; each result needs a file of its own"
    refuses_out(words, "max_pooling", Sliced(x), 2, output_indices=True, out=twice)
    for shape, axis in (((5,), None), ((3, 0, 2), 0)):
        path = tmp_path / f"{len(shape)}.npy"
        dmlgpu.argmax(chunked(np.ones(shape, np.int8)), axis, out=path)
        assert np.load(path).shape == np.ones(shape).argmax(axis).shape
    dmlgpu.cumulative_sum(chunked(x, chunk_bytes=90), axis=1, include_initial=True, out=tmp_path / "sums.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "sums.npy"), np.insert(x.cumsum(1), 0, 0, 1))
    (tmp_path / "other").touch()
    assert (tmp_path / "sums.npy").stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.parametrize("ends", [True, False])
def test_a_file_is_where_the_folder_was_at_the_beginning(tmp_path, monkeypatch, ends):
    """Half of it does not stay."""
    here, there, x = tmp_path / "here", tmp_path / "there", values(8, 5)
    for folder in (here, there):
        folder.mkdir()
    (there / "x.npy").write_text("another file of this name")
    monkeypatch.chdir(here)

    def progress(number, count):
        if number == 2:
            monkeypatch.chdir(there)
            if ends:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) if ends else contextlib.nullcontext():
        got = dmlgpu.argmax(chunked(x, chunk_bytes=20, progress=progress), 1, out="x.npy")
        np.testing.assert_array_equal(np.load(here / "x.npy"), x.argmax(1))
        assert got.filename == str(here / "x.npy")
        got[0] = 77
        got.flush()
        assert np.load(here / "x.npy")[0] == 77
    assert len([*tmp_path.rglob("*.*")]) == 2 - ends
    assert Path("x.npy").read_text() == "another file of this name"


@pytest.mark.parametrize("name", ["argmax", "max_pooling"])
def test_half_a_file_is_not_mapped_when_it_is_removed(tmp_path, monkeypatch, name):
    """Windows does not remove a mapped file."""
    maps, unlink, mapped = Path("/proc/self/maps"), os.unlink, []

    def unlinked(path):
        mapped.append(maps.exists() and path in maps.read_text())
        unlink(path)

    monkeypatch.setattr(os, "unlink", unlinked)
    # It raises, and being C it keeps nothing.
    monkeypatch.setattr(source, "give_pages_back", operator.index)
    with pytest.raises(TypeError, match="scalar index"):
        getattr(dmlgpu, name)(chunked(values(8, 5)), 1, out=tmp_path / "x.npy")
    assert (mapped, [*tmp_path.iterdir()]) == ([False], [])


def failing(error):
    def raises(*_):
        raise error

    return raises


@pytest.mark.parametrize("fallocate", ["as it is", "absent", errno.EOPNOTSUPP, errno.EINVAL])
def test_files_have_all_of_their_space_before_anything_is_read(tmp_path, monkeypatch, fallocate):
    """A mapped file with holes ends the process where the disk is full."""
    if fallocate == "absent":
        monkeypatch.delattr(os, "posix_fallocate", raising=False)
    elif fallocate != "as it is":
        monkeypatch.setattr(os, "posix_fallocate", failing(OSError(fallocate, "")), raising=False)
    parts = []

    def progress(number, count):
        (part,) = tmp_path.iterdir()
        stat = part.stat()
        parts.append((part.suffix, stat.st_size - 128, 512 * stat.st_blocks >= stat.st_size))

    x = np.broadcast_to(np.arange(1, 101, dtype=np.float32), (1, 3000, 100))
    dmlgpu.max_pooling(chunked(x, chunk_bytes=400_000, progress=progress), 1, out=tmp_path / "x.npy")
    assert parts == [(".part", 1_200_000, True)] * 4
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), x)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EFBIG, errno.EDQUOT])
def test_a_full_disk_is_an_error_before_anything_is_read(tmp_path, monkeypatch, code):
    monkeypatch.setattr(os, "posix_fallocate", failing(OSError(code, os.strerror(code))), raising=False)
    x = Sliced(values(4, 5))
    with pytest.raises(OSError, match=re.escape(os.strerror(code))) as raised:
        dmlgpu.argmax(chunked(x), 1, out=tmp_path / "x.npy")
    assert Path(raised.value.filename).parent == tmp_path
    assert (raised.value.errno, x.reads, [*tmp_path.iterdir()]) == (code, [], [])


class Huge:
    """An array that no machine has."""

    dtype = np.dtype(np.float32)

    def __init__(self, *shape):
        self.shape = shape

    def __getitem__(self, region):
        raise AssertionError("it is read")


@pytest.mark.parametrize("shape", [(1 << 40, 1 << 18, 1), (1 << 50, 1 << 50, 2)], ids=str)
def test_results_that_fit_no_disk_and_no_memory(tmp_path, shape):
    x = Huge(*shape)
    with pytest.raises(OSError, match=r"x\.npy\.[0-9a-f]{8}\.part") as raised:
        dmlgpu.argmax(chunked(x, chunk_bytes=1 << 100), 2, out=tmp_path / "x.npy")
    assert raised.value.errno in (errno.EFBIG, errno.ENOSPC)
    assert [*tmp_path.iterdir()] == []
    with pytest.raises(MemoryError, match=r"^out: results do not fit in this machine's memory; write them to a file: "):
        dmlgpu.argmax(chunked(x, chunk_bytes=1 << 100), 2)


STREAM = """
import os, signal, sys
import numpy as np
import dmlgpu

path, name = sys.argv[1:]


def progress(number, count):
    if number == 3:
        os.kill(os.getpid(), signal.Signals[name])


x = np.zeros((8, 5), np.float32)
dmlgpu.argmax(dmlgpu.chunked(x, chunk_bytes=20, progress=progress), 1, out=path)
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL"])
def test_a_process_that_ends_leaves_nothing_under_the_name(tmp_path, name):
    path = tmp_path / "x.npy"
    ended = subprocess.run([sys.executable, "-c", STREAM, path, name], capture_output=True, timeout=100)
    assert ended.returncode == -signal.Signals[name]
    (part,) = tmp_path.iterdir()
    assert re.fullmatch(r"x\.npy\.[0-9a-f]{8}\.part", part.name)
    x = values(8, 5)
    np.testing.assert_array_equal(dmlgpu.argmax(chunked(x), 1, out=path), x.argmax(1))
    assert sorted(tmp_path.iterdir()) == [path, part]


@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
def test_a_file_that_another_wrote_meanwhile_stays(tmp_path, monkeypatch, links):
    if not links:
        monkeypatch.setattr(os, "link", failing(OSError(errno.EPERM, "no links here")))
    path, x = tmp_path / "x.npy", values(8, 5)

    def progress(number, count):
        if number == 3:
            dmlgpu.argmin(chunked(x), 1, out=path)

    with pytest.raises(FileExistsError) as raised:
        dmlgpu.argmax(chunked(x, chunk_bytes=20, progress=progress), 1, out=path)
    assert raised.value.filename == str(path)
    assert [*tmp_path.iterdir()] == [path]
    np.testing.assert_array_equal(np.load(path), x.argmin(1))


@pytest.mark.parametrize(
    "make", [Path.mkdir, lambda path: path.symlink_to("nowhere"), lambda path: path.write_text("x")]
)
def test_whatever_is_at_the_path_stays(tmp_path, make):
    path, x = tmp_path / "x.npy", Sliced(values(8, 5))
    make(path)
    refuses(r"x\.npy'$", dmlgpu.argmax, chunked(x), 1, error=FileExistsError, out=path)
    assert ([*tmp_path.iterdir()], x.reads) == ([path], [])


# What is refused


SHAPES = [(-4, 5), (1 << 63, 1), (2.0, 3), "45", 4, None]
WITHOUT_SLICES = [[1, 2], 3.0, None, b"x", np.float32(3), np.array(3), chunked(values(1, 3, 3))]


@pytest.mark.parametrize("x", [*WITHOUT_SLICES, *(Declared(values(4, 5), shape=shape) for shape in SHAPES)])
def test_what_has_no_slices_is_refused(x):
    refuses(r"^chunked\.x: .* cannot be read by slices; allowed are arrays", chunked, x)


@pytest.mark.parametrize("chunk_bytes", [0, -1, 1.5, "1", True, None])
def test_sizes_that_are_none_are_refused(chunk_bytes):
    refuses(r"^chunked\.chunk_bytes: ", chunked, values(3), chunk_bytes=chunk_bytes)


def test_other_arguments_are_refused(device, tmp_path):
    words = r"^chunked\.progress: 5 is not allowed; allowed is a function, or None$"
    refuses(words, chunked, values(3, 4), progress=5, error=TypeError)
    words = r"axis: \(\) is not allowed for chunked and Dask arrays; give at least one"
    refuses(words, dmlgpu.sum, chunked(values(3, 4)), ())
    words = r"^chunked\.x: .* is on a device; pass it without chunked\(\)$"
    refuses(words, lambda x: dmlgpu.max_pooling(chunked(x), 2), device.tensor(values(3, 3)))
    for call in (dmlgpu.argmax, lambda x: dmlgpu.sum(x, 0)):
        refuses(r"^TensorDesc\.sizes: 9 dimensions; allowed are 1 to 8$", call, chunked(Sliced(values(*[1] * 9))))
    masked = np.ma.masked_equal(values(3, 4), 2)
    (tmp_path / "x.npy").touch()
    words = r"^chunked\.x: a masked array"  # before anything is written
    refuses(words, lambda x: dmlgpu.argmax(chunked(x), out=tmp_path / "x.npy"), masked)
    refuses(r"^x: a masked array", dmlgpu.argmax, chunked(Sliced(masked)))  # as a variable of netCDF4


def test_numpy_does_not_take_them_for_one_object():
    """np.argmax would be 0."""
    words = r"^<dmlgpu\.chunked ndarray of float32 and \(3, 4\)> is never read as a whole; pass it to a function"
    for function in (np.argmax, np.sum, np.asarray):
        refuses(words, function, chunked(values(3, 4)), error=TypeError)


def test_functions_that_take_no_chunks():
    x, plane, indices = values(1, 3, 3), values(1, 2, 2), values(1, 3, 3, dtype="int64")
    for function, *arguments in (
        (dmlgpu.average_pooling_grad, chunked(x), (4, 4), 2),
        (dmlgpu.max_pooling_grad, chunked(x), plane, 2),
        (dmlgpu.max_pooling_grad, x, chunked(plane), 2),
        (dmlgpu.max_unpooling, chunked(x), chunked(indices), 4),
    ):
        words = rf"^{function.__name__}\(\) takes neither chunked nor Dask arrays; pass arrays or device tensors$"
        refuses(words, function, *arguments, error=TypeError)


def test_more_elements_than_a_tensor_has():
    x = Huge(1 << 33)
    for dtype in ("int32", "uint32"):
        words = rf"{dtype.upper()} cannot hold the index of 8589934592 reduced elements; allowed are INT64, UINT64$"
        refuses(rf"^ArgmaxOperatorDesc\.dtype: {words}", dmlgpu.argmax, chunked(x), dtype=dtype)
        refuses(rf"^ReduceOperatorDesc\.dtype: {words}", dmlgpu.reduce, chunked(x), "argmin", dtype=dtype)
    words = r"UINT32 cannot hold the index of 8589934592 elements; allowed are INT64, UINT64$"
    with pytest.raises(DescriptorError, match=rf"^MaxPooling2OperatorDesc\.indices_data_type: {words}"):
        dmlgpu.max_pooling(chunked(Huge(1 << 16, 1 << 17)), 2, output_indices=True, indices_data_type="uint32")
    words = r"INT64 cannot hold the index of 9223372036854775810 reduced elements; allowed are UINT64$"
    refuses(rf"dtype: {words}", dmlgpu.argmax, chunked(Huge((1 << 62) + 1, 2)))
    for call in (dmlgpu.argmax, dmlgpu.sum, lambda x: dmlgpu.argmax(x, dtype="uint64")):
        refuses("it is read", call, chunked(x), error=AssertionError)


@pytest.mark.parametrize("chunk_bytes", [1, 64])
@pytest.mark.parametrize("name", ["argmax", "max_pooling"])
def test_sizes_that_make_too_many_chunks_are_refused(name, chunk_bytes):
    x = Sliced(np.broadcast_to(np.uint8(0), (1, 1 << 11, 1 << 20)))
    words = rf"{chunk_bytes} bytes make {2**31 // chunk_bytes} chunks; at most 1048576 are allowed"
    with pytest.raises(DescriptorError, match=rf"^chunked\.chunk_bytes: {words}"):
        getattr(dmlgpu, name)(chunked(x, chunk_bytes=chunk_bytes), 1)
    assert x.reads == []


@pytest.mark.parametrize("name", ["argmax", "max_pooling"])
@pytest.mark.parametrize("axis", [0, 1])
def test_memory_does_not_grow_with_the_number_of_chunks(name, axis):
    def progress(number, count):
        if number == 3:
            assert count == 1 << 18
            raise KeyboardInterrupt

    x = np.broadcast_to(np.uint8(0), (1 << 18, 1) if axis == 0 else (1, 1 << 18))
    getattr(dmlgpu, name)(chunked(x[:3, :3], chunk_bytes=1), 1)  # makes the buffers of the device
    tracemalloc.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            getattr(dmlgpu, name)(
                chunked(x, chunk_bytes=1, progress=progress), {"argmax": axis, "max_pooling": 1}[name]
            )
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 8 << 20  # 32 bytes a chunk


NO_ARRAY = "allowed is an array of int64 that can be written by slices"


class Unwritable:
    __setitem__, dtype, shape = 0, np.dtype(np.int64), (4,)


@pytest.mark.parametrize(
    ("out", "error", "words"),
    [
        (np.empty(5, np.int64), DescriptorError, r"the shape \(5,\) is wrong; expected \(4,\)"),
        (np.empty(4, np.int32), TypeError, NO_ARRAY),
        (np.empty(4, ">i8"), TypeError, NO_ARRAY),
        ({}, TypeError, NO_ARRAY),
        (types.SimpleNamespace(dtype=np.dtype(np.int64)), TypeError, NO_ARRAY),
        (types.SimpleNamespace(dtype=np.dtype(np.int64), shape=None), TypeError, NO_ARRAY),
        (Unwritable, TypeError, NO_ARRAY),
        (np.broadcast_to(np.int64(0), 4), DescriptorError, "is read-only; allowed is an array that can be written"),
        ([0] * 5, DescriptorError, r"\(0, 0, 0, 0, ...\) is not allowed; allowed is one array or path"),
        ((np.empty(4, np.int64),), DescriptorError, r"\(ndarray of int64 and \(4,\)\) .*allowed is one array or path"),
        *(
            (
                np.lib.stride_tricks.as_strided(np.zeros(40, np.int64)[9:], (4, 3), strides),
                DescriptorError,
                r"has strides \(.*\): elements may share memory$",
            )
            for strides in ((0, 8), (8, 8), (8, 0), (-8, 8), (16, 8), (24, 16))
        ),
    ],
)
def test_other_outs_are_refused_before_anything_is_read(out, error, words):
    sizes = (4, 3, 2) if np.ndim(out) == 2 else (4, 5)
    refuses_out(words, "argmax", Sliced(values(*sizes)), -1, out=out, error=error)


def test_device_tensors_and_files_that_are_read_are_no_outs(device, tmp_path):
    x, zeros = Sliced(values(4, 5)), np.zeros(4, np.int64)
    words = f"DeviceTensor of int64 .* is not allowed; {NO_ARRAY}"
    refuses_out(words, "argmax", x, 1, out=device.tensor(zeros), error=TypeError)
    np.save(tmp_path / "x.npy", zeros)
    refuses_out("memmap of int64 .* is read-only", "argmax", x, 1, out=np.load(tmp_path / "x.npy", mmap_mode="r"))


def test_outs_of_two_results():
    window = {"window_size": 2, "output_indices": True}
    x, both = Sliced(values(1, 3, 3)), (np.empty((1, 2, 2), np.float32), np.empty((1, 2, 2), np.int64))
    for out in (both[0], both[:1], (*both, both[0])):
        refuses_out("allowed is a tuple, for each of 2 results an array or a path", "max_pooling", x, **window, out=out)
    values_alone = dmlgpu.max_pooling(chunked(x), **window, out=(both[0], None))
    assert values_alone[0] is both[0]
    assert values_alone[1].dtype == np.int64
    x.reads.clear()
    words = r"ndarray of int64 and \(1, 2, 2\) is not allowed; allowed is an array of f"
    refuses_out(words, "max_pooling", x, **window, out=both[::-1], error=TypeError)


LIES = "lies in x or in another result"


def test_out_in_x_is_refused(tmp_path):
    x = np.zeros((4, 6), np.int64)
    refuses_out(LIES, "reduce", x, ReduceFunction.MAX, 0, out=x[2])
    mapped = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.int64, (4, 6))
    refuses_out(LIES, "max_pooling", mapped, 1, out=np.load(tmp_path / "x.npy", mmap_mode="r+"))
    sliced = Sliced(x)
    sliced.__class__ = type("Written", (Sliced,), {"__setitem__": lambda *_: None})
    refuses_out(LIES, "max_pooling", sliced, 1, out=sliced)
    twice = np.empty((1, 3, 3), np.int64)
    refuses_out(LIES, "max_pooling", np.zeros_like(twice), 1, output_indices=True, out=(twice, twice))


def test_out_in_the_file_of_x_by_another_path_is_refused(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, values(4, 6))
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "y.npy").hardlink_to(path)
    for x in (path, str(path), tmp_path / "y.npy", tmp_path / "link" / "x.npy"):
        for view in (np.asarray, lambda x: x, lambda x: np.lib.stride_tricks.as_strided(x, subok=False)):
            out = np.load(str(path), mmap_mode="r+")
            refuses_out(LIES, "max_pooling", view(np.load(x, mmap_mode="r")), 1, out=view(out))
    np.save(tmp_path / "z.npy", values(4, 6))
    dmlgpu.max_pooling(chunked(np.load(path, mmap_mode="r")), 1, out=np.load(tmp_path / "z.npy", mmap_mode="r+"))


class InFolder(Sliced):
    """An array as zarr has it: in a store with a folder."""

    def __init__(self, x, attribute, folder, path):
        super().__init__(x)
        self.store, self.path = types.SimpleNamespace(**{attribute: folder}), path

    def __setitem__(self, region, part):
        self.x[region] = part


def test_out_in_the_folder_of_x_by_another_path_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("x", "y"):
        (tmp_path / "group" / name).mkdir(parents=True)
    x = InFolder(values(4, 6), "root", Path("group"), "x")
    for attribute, folder, path in (
        ("root", tmp_path / "group", "x"),
        ("root", Path("group/x"), ""),
        ("path", str(tmp_path / "group/x"), ""),
    ):
        refuses_out(LIES, "max_pooling", x, 1, out=InFolder(values(4, 6), attribute, folder, path))
    for folder, path in (("group", "y"), ("/no folder", "x")):
        dmlgpu.max_pooling(chunked(x), 1, out=InFolder(values(4, 6), "root", folder, path))


@pytest.mark.parametrize(
    "view",
    [
        lambda: np.empty((3, 4), np.int64).T,
        lambda: np.empty((9, 9), np.int64)[8:0:-2, 7:1:-2],
        lambda: np.empty((4, 1, 3), np.int64)[:, 0],
        lambda: np.lib.stride_tricks.as_strided(np.empty(20, np.int64), (4, 3), (8, 32)),
    ],
)
def test_out_may_be_any_slice_of_an_array(view):
    x = values(4, 3, 2)
    out = view()
    assert dmlgpu.argmax(chunked(x), 2, out=out) is out
    np.testing.assert_array_equal(out, x.argmax(2))


@pytest.mark.parametrize("said", [{"shape": (4, 7)}, {"dtype": np.dtype(np.int32)}], ids=["shape", "dtype"])
def test_an_array_that_gives_something_else_is_refused(said):
    x = Declared(values(4, 5), **said)
    refuses(r"is ndarray of float32 and \(4, 5\); x.shape and x.dtype declare", dmlgpu.argmax, chunked(x), 1)


def test_a_type_that_changes_while_it_is_read_is_refused(tmp_path):
    class Changing(Sliced):
        def __getitem__(self, region):
            part = super().__getitem__(region)
            if len(self.reads) < 3:
                return part
            self.dtype = np.dtype(np.float64)
            return part.astype(np.float64)

    x = Changing(values(8, 5))
    with pytest.raises(DescriptorError, match=r"is ndarray of float64 and \(1, 5\); .* declare \(1, 5\) and float32$"):
        dmlgpu.sum(chunked(x, chunk_bytes=20), 1, out=tmp_path / "x.npy")
    assert [*tmp_path.iterdir()] == []


def test_one_may_be_read_several_times_and_by_several_threads():
    x = values(64, 100)
    chunks, indices = chunked(x, chunk_bytes=800), []

    def compute():
        for _ in range(5):
            indices.append(dmlgpu.argmax(chunks, 1))

    threads = [threading.Thread(target=compute) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(indices) == 20
    assert all((got == x.argmax(1)).all() for got in indices)


@pytest.mark.parametrize("after", [0, 2])
def test_errors_of_reading_reach_the_caller(after):
    class Broken(Sliced):
        def __getitem__(self, region):
            if len(self.reads) == after:
                raise OSError("the disk is gone")
            return super().__getitem__(region)

    threads, done = threading.active_count(), []
    with pytest.raises(OSError, match="the disk is gone"):
        dmlgpu.argmax(chunked(Broken(values(8, 5)), chunk_bytes=20, progress=lambda i, _: done.append(i)), 1)
    assert done == list(range(1, after + 1))
    assert threading.active_count() == threads


def test_an_error_of_progress_ends_the_call():
    x, threads = Sliced(values(8, 5)), threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        dmlgpu.argmax(chunked(x, chunk_bytes=20, progress=failing(KeyboardInterrupt)), 1)
    assert len(x.reads) <= 2
    assert threading.active_count() == threads


def test_the_device_that_is_asked_for_computes(driver):
    x = values(63, 65)
    with dmlgpu.Device(driver.index) as device:
        assert device.cache_info().operators == 0
        dmlgpu.argmax(chunked(x), 0, device=device)
        assert device.cache_info().operators == 1
        dmlgpu.max_pooling(chunked(x), 2, device=device)
        assert device.cache_info().operators == 2


def test_a_source_may_have_a_base_and_a_store_of_its_own():
    class Source(Sliced):
        store = types.SimpleNamespace(root="somewhere")

        @property
        def base(self):
            return self

    x = np.random.default_rng(6).random((4, 5), np.float32)
    out = np.empty(4, np.int64)
    assert dmlgpu.argmax(chunked(Source(x)), 1, out=out).tolist() == x.argmax(1).tolist()


@pytest.mark.parametrize("said", [{"dtype": np.dtype(">f4")}, {"chunks": (4,)}], ids=["byte order", "rank of chunks"])
def test_what_arrays_may_say_otherwise(said):
    x = values(6, 5)
    assert np.array_equal(dmlgpu.argmax(chunked(Declared(x, **said), chunk_bytes=40), 1), x.argmax(1))
    assert np.array_equal(dmlgpu.sum(chunked(Declared(x, **said), chunk_bytes=40), 0), x.sum(0))


class Elementwise(Sliced):
    """Arrays that are compared by elements, as those of xarray."""

    __hash__ = None

    def __eq__(self, other):
        return self.x[:1] == other.x[:1]

    def __setitem__(self, region, part):
        self.x[region] = part


def test_arrays_that_are_compared_by_elements():
    x, out = Elementwise(values(6, 5)), Elementwise(np.zeros(6, np.int64))
    assert dmlgpu.argmax(chunked(x, chunk_bytes=40), 1, out=out) is out
    assert np.array_equal(out.x, x.x.argmax(1))
