"""Arrays that are read in chunks: results, when chunks are read, memory, files, and errors."""

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
from dmlgpu.chunks import reduction, source, targets
from dmlgpu.chunks.reduction import Reduction
from dmlgpu.reference.bounds import bounds
from tests.support.errors import refuses


class Sliced:
    """An array that is read and written by slices, and records what was read.

    Attributes:
        reads: the region and the thread of every read.
        began: an event for every read.
        alive: number of slices in memory.
        most_alive: maximum of `alive`.
        others: attributes, such as `chunks`; also those that contradict x.
    """

    def __init__(self, x, **others):
        self.x, self.shape, self.dtype = x, x.shape, x.dtype
        self.reads, self.began = [], [threading.Event() for _ in range(10_000)]
        self.alive = self.most_alive = 0
        vars(self).update(others)

    def __getitem__(self, region):
        self.began[len(self.reads)].set()
        self.reads.append((region, threading.get_ident()))
        part = self.x[region].copy()
        self.alive += 1
        self.most_alive = max(self.most_alive, self.alive)
        weakref.finalize(part, self._ended)
        return part

    def _ended(self):
        self.alive -= 1

    def __setitem__(self, region, part):
        self.x[region] = part

    def largest_read(self):
        """Bytes of the largest slice that was read."""
        return max(self.x[region].nbytes for region, _ in self.reads)

    def check_reads(self, chunk_bytes):
        """Every element was read once, in slices that are small enough."""
        times = np.zeros(self.shape, int)
        for region, _ in self.reads:
            times[region] += 1
        assert (times == 1).all()
        assert self.largest_read() <= chunk_bytes
        self.reads.clear()


def values(*sizes, dtype="float32"):
    return np.random.default_rng(len(sizes)).integers(0, 9, sizes).astype(dtype)


@pytest.fixture(autouse=True)
def _on_the_driver(driver, monkeypatch):
    monkeypatch.setenv("DMLGPU_DEVICE", str(driver.index))


def array_for(chunk_bytes):
    """An array for chunks of this size: a small one if chunks have one element."""
    return Sliced(values(4, 5, 4) if chunk_bytes == 4 else values(6, 7, 8))


def check(name, x, *arguments, chunk_bytes=64 << 20, **options):
    """A function of chunks has the results of the function of the whole array."""
    results = getattr(dmlgpu, name)(chunked(x, chunk_bytes=chunk_bytes), *arguments, **options)
    expected = getattr(dmlgpu, name)(x.x if isinstance(x, Sliced) else x, *arguments, **options)
    assert type(results) is type(expected)
    for ours, theirs in zip(*((y if isinstance(y, tuple) else (y,)) for y in (results, expected)), strict=True):
        assert type(ours) is type(theirs)
        np.testing.assert_array_equal(ours, theirs, strict=True)


def refuses_out(words, name, x, *arguments, error=DescriptorError, **options):
    """`out` is refused before x is read."""
    refuses(f"(?s)^out: .*{words}", getattr(dmlgpu, name), chunked(x), *arguments, error=error, **options)
    assert getattr(x, "reads", []) == []


@pytest.mark.parametrize("chunk_bytes", [4, 60, 500, 3000, 1 << 20])
@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 2), (1, 2)])
def test_reductions_are_those_of_the_whole_array(axis, chunk_bytes):
    x = array_for(chunk_bytes)
    options = {"axis": axis, "chunk_bytes": chunk_bytes}
    for keepdims in (False, True):
        check("argmax", x, **options, keepdims=keepdims, axis_direction=dmlgpu.AxisDirection.DECREASING)
        x.check_reads(chunk_bytes)
    check("argmin", x, **options, dtype="uint32")
    check("reduce", x, ReduceFunction.MAX, **options)
    check("reduce", x, ReduceFunction.SUM, **options)  # sums of small integers are exact


@pytest.mark.parametrize("chunk_bytes", [4, 60, 500, 3000, 1 << 20])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_top_k_is_that_of_the_whole_array(axis, chunk_bytes):
    """Elements have ties, and some chunks have fewer than k elements along the axis."""
    x = array_for(chunk_bytes)
    for k, mode in ((1, "largest"), (4, "smallest"), (x.shape[axis], "largest")):
        check("top_k", x, k, axis=axis, mode=mode, indices_data_type="uint32", chunk_bytes=chunk_bytes)
        x.check_reads(chunk_bytes)
    check("top_k", x.x[:, 2] > 4, 3, axis=axis % 2, chunk_bytes=chunk_bytes)
    check("top_k", x.x.astype(">f8").T[::-1], 2, axis=axis, chunk_bytes=chunk_bytes)
    check("top_k", x.x[:0] if axis else x.x[:, :0], 3, axis=axis, chunk_bytes=chunk_bytes)


TYPES = ["bool", "int8", "uint8", ">i2", "uint16", "int32", "uint32", "int64", ">u8", "float16", ">f4", "float64"]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("chunk_bytes", [1, 60, 1 << 20])
def test_results_of_all_types_are_those_of_the_whole_array(dtype, chunk_bytes):
    x = (values(5, 6) % 3 + (dtype != "bool")).astype(dtype)
    is_float = x.dtype.kind == "f"
    for axis, keepdims in ((None, False), (0, True), ((0, 1), False), (-1, False)):
        for name in ("max", "min") if dtype == "float64" else ("sum", "prod", "max", "min"):
            check(name, x, axis, keepdims=keepdims, chunk_bytes=chunk_bytes)
    for result in ("int8", np.uint16, dmlgpu.DataType.INT64, "float16", np.float32):
        for exact in (False, True):
            check("sum", x, 0, dtype=result, exact=exact, chunk_bytes=chunk_bytes)
        check("prod", x, 1, dtype=result, chunk_bytes=chunk_bytes)
    for result in ("float16", "float32", *[None] * (is_float and dtype != "float64")):
        check("mean", x, dtype=result, exact=True, chunk_bytes=chunk_bytes)


def test_sums_of_uint8_may_exceed_32_bits():
    x = chunked(np.broadcast_to(np.uint8(255), (1 << 13, 1 << 12)), chunk_bytes=1 << 22)
    assert dmlgpu.sum(x) == 255 << 25
    assert dmlgpu.sum(x, dtype="uint32") == (255 << 25) % (1 << 32)


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "uint8", "bool"])
def test_reductions_of_no_elements_are_those_of_the_whole_array(dtype, tmp_path):
    x = Sliced(np.zeros((2, 0, 3), dtype))
    for name in ("sum", "prod", "mean")[: 2 + (x.dtype.kind == "f")]:
        for axis, keepdims in ((None, False), (1, False), ((0, 1), True), (0, False)):
            check(name, x, axis, keepdims=keepdims)
    check("sum", x, dtype="float32")
    out = np.full((2, 3), 7, dmlgpu.sum(x.x, 1).dtype)
    assert dmlgpu.prod(chunked(x), 1, out=out) is out
    assert out.tolist() == [[1] * 3] * 2
    assert dmlgpu.prod(chunked(x), 1, out=tmp_path / "x.npy").tolist() == np.load(tmp_path / "x.npy").tolist()
    assert np.load(tmp_path / "x.npy").tolist() == [[1] * 3] * 2
    check("max", x, 0)
    refuses(r"axes \(1,\) of \(2, 0, 3\) are empty", dmlgpu.max, chunked(x), 1)
    refuses_out("the shape", "sum", x, 1, out=out[0])
    assert x.reads == []


# Each function with two or three of the twelve combinations.
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
def test_exact_sums_are_those_of_the_whole_array(dtype, axis, by, function, monkeypatch):
    """Elements have so many binades that rounded sums would depend on the chunks; some are not finite."""
    if by == "device":
        for limit in ("_FEW_OF_WHOLE", "_FEW_OF_OUTPUT", "_FEW_OF_CHUNK"):
            monkeypatch.setattr(reduction, limit, 0)
    random, sizes = np.random.default_rng(0), (5, 16, 7)
    binades = random.integers(-9, 9, sizes, np.int32) * (1 if dtype == "float16" else 5)
    x = np.ldexp(random.standard_normal(sizes), binades).astype(dtype)
    x[3] = 0
    for chunk_bytes in (100, 900, 1 << 20):
        check("reduce", x, function, axis, exact=True, chunk_bytes=chunk_bytes)
    x[4, 0, 0] = np.inf
    check("reduce", x, function, axis, exact=True, chunk_bytes=300)
    # Along each axis, outputs with one infinity and outputs with both.
    x[[4, 4, 4, 4, 0], [1, 3, 4, 5, 5], [1, 3, 3, 4, 5]] = -np.inf, np.inf, -np.inf, np.inf, -np.inf
    x[4, 2, 2] = np.nan
    check("reduce", x, function, axis, exact=True, chunk_bytes=300)


def test_numpy_adds_few_elements_of_each_output(monkeypatch):
    x, computed, calls = np.random.default_rng(2).standard_normal((9, 100)).astype(np.float32), reduction.computed, []
    monkeypatch.setattr(
        reduction, "computed", lambda *call, **options: calls.append(call) or computed(*call, **options)
    )
    check("sum", x[:8], 0, exact=True)
    assert len(calls) == 0
    check("sum", x, 0, exact=True)
    assert len(calls) == 1


def test_exact_sums_accept_any_strides_and_byte_order():
    """Devices get all of these as copies, or packed."""
    x = np.random.default_rng(1).standard_normal((24, 50)).astype(np.float32)
    record = np.zeros(x.shape, [("flag", "i1"), ("value", "f4")])
    record["value"] = x
    wide = np.lib.stride_tricks.as_strided(np.zeros((24 << 20) + 50, np.float32), x.shape, (4 << 20, 4))
    for view in (x[::-1], x[:, ::-1], x[::3, ::7], x.T, record["value"], wide, x.astype(">f4")):
        for chunk_bytes, axis in itertools.product((400, 1 << 20), (0, 1)):
            check("sum", view, axis, exact=True, chunk_bytes=chunk_bytes)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ([np.finfo(np.float32).max] * 8 + [-np.finfo(np.float32).max] * 7, np.finfo(np.float32).max),
        ([1, *[2**-24] * 6, 2**-149], 1 + 3 * 2**-23),
        ([1, 2**-24, -(2**-149)], 1),
        ([1, 2**-24, 2**-149], 1 + 2**-23),
    ],
    ids=["overflow on the way", "many halves", "tie broken downwards", "tie broken upwards"],
)
def test_exact_sums_may_exceed_the_range_of_floats_on_the_way(row, expected):
    assert dmlgpu.sum(chunked(np.float32(row), chunk_bytes=4), exact=True) == expected


@pytest.mark.parametrize("function", ["sum", "l2"])
def test_exact_sums_without_outputs_are_empty(function):
    assert dmlgpu.reduce(chunked(np.zeros((3, 0), np.float32)), function, 0, exact=True).shape == (0,)


SCANS = [
    {"axis": axis, "axis_direction": direction, "include_initial": initial}
    for axis, direction, initial in (
        (0, "increasing", False),
        (1, "decreasing", False),
        (1, "increasing", True),
        (0, "decreasing", True),
    )
]


@pytest.mark.parametrize("options", SCANS, ids=str)
def test_scans_are_those_of_the_whole_array(options):
    """Sums and products of integers wrap; exact sums are rounded once, because no total is rounded."""
    bits = np.random.default_rng(7).integers(0, 1 << 32, (5, 9), np.uint64).astype(np.uint32)
    for x in (values(5, 9, dtype="uint8") - 4, bits):
        check("cumulative_sum", x, **options, chunk_bytes=24)
        check("cumulative_prod", x | 1, **options, dtype="int8", chunk_bytes=24)
    for x in (bits.view(np.float32), bits.astype(np.uint16).view(np.float16)):
        x = Sliced(np.where(np.abs(x) < np.inf, x, 1))
        check("cumulative_sum", x, **options, exact=True, chunk_bytes=24)
        x.check_reads(24)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cumulative_sum", dmlgpu.CumulativeSummationOperatorDesc),
        ("cumulative_prod", dmlgpu.CumulativeProductOperatorDesc),
    ],
)
def test_rounded_scans_keep_to_their_bound(name, kind, dtype):
    """Chunks add an error of 2^-23 of the sum or product to the bound of the whole array."""
    x = np.exp(np.random.default_rng(8).standard_normal((3, 500)) / 3).astype(dtype)
    desc = kind.of(x, 1)
    (expected,), (bound,) = dmlgpu.reference(desc, x), bounds(desc, x)
    result = getattr(dmlgpu, name)(chunked(x, chunk_bytes=77), axis=1)
    assert (np.abs(result.astype(np.float64) - expected) <= bound + 2.0**-23 * np.abs(expected)).all()
    # Totals are not rounded to float16.
    assert dtype == "float32" or np.mean(result != expected) < 0.02


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_scans_return_to_finite_values(dtype):
    greatest = np.finfo(dtype).max
    x = np.array([greatest] * 9 + [1, np.finfo(dtype).smallest_subnormal] + [-greatest] * 9, dtype)
    check("cumulative_sum", x, exact=True, chunk_bytes=4)
    with np.errstate(over="ignore"):
        factors = np.array([2.0**-14] * 40 + [2.0**14] * 40, dtype)
    check("cumulative_prod", factors, chunk_bytes=20)
    check("cumulative_prod", 1 / factors, chunk_bytes=20)


def test_scans_stay_infinite_and_nan():
    check("cumulative_sum", np.float16([65504] * 9 + [-np.inf, 1]), exact=True, chunk_bytes=4)
    for row in ([1, np.inf, 2, -np.inf, 3], [np.nan, 1, 2]):
        for name in ("cumulative_sum", "cumulative_prod"):
            check(name, np.float32([row, np.ones(len(row))]), axis=1, chunk_bytes=4)


def test_scans_of_whole_lines_need_no_totals(monkeypatch):
    monkeypatch.setattr(source.Scan, "total", None)
    check("cumulative_sum", values(7, 30), axis=1, chunk_bytes=300)
    check("cumulative_sum", values(0, 3), axis=0, include_initial=True)
    check("cumulative_prod", values(3, 0), axis=0, include_initial=True)


@pytest.mark.parametrize("chunk_bytes", [4, 300, 2000, 1 << 20])
def test_poolings_are_those_of_the_whole_array(chunk_bytes):
    x = Sliced(values(2, 3, 13, 12))
    window = {"window_size": (3, 2), "strides": (2, 3), "padding": ((1, 1), (0, 1)), "dilations": (2, 1)}
    for indices in (False, True):
        check("max_pooling", x, **window, output_indices=indices, chunk_bytes=chunk_bytes)
    assert x.largest_read() <= max(chunk_bytes, 5 * 2 * 4)  # at least one window
    check("average_pooling", x, **window, include_padding=True, chunk_bytes=chunk_bytes)
    check("average_pooling", x, **window, exact=True, chunk_bytes=chunk_bytes)
    check("lp_pooling", x, **window, p=1, chunk_bytes=chunk_bytes)
    check("max_pooling", x.x[0, 0] > 4, 2, chunk_bytes=chunk_bytes)


def test_the_next_chunk_is_read_while_one_is_computed():
    x, calls = Sliced(values(8, 100)), []

    def progress(number, count):
        calls.append((number, count))
        # The read of the next chunk began before this chunk was computed; no further read began.
        assert number == count or x.began[number].wait(60)
        assert len(x.reads) <= number + 1

    dmlgpu.argmax(chunked(x, chunk_bytes=400, progress=progress), 1)
    assert calls == [(i, 8) for i in range(1, 9)]
    (reader,) = {thread for _, thread in x.reads}
    assert reader != threading.get_ident()


@pytest.mark.parametrize("function", [dmlgpu.argmax, dmlgpu.max_pooling])
def test_at_most_two_chunks_are_in_memory(function):
    x = Sliced(values(1, 12, 50))
    gc.disable()  # memory must not depend on it
    try:
        function(chunked(x, chunk_bytes=400), (1, 2))
    finally:
        gc.enable()
    assert len(x.reads) >= 6
    assert x.most_alive <= 2
    assert x.alive == 0


@pytest.mark.parametrize(
    ("shape", "stored", "chunk_bytes", "call", "sizes"),
    [
        # As even as possible.
        ((100, 10), None, 3600, lambda x: dmlgpu.argmax(x, 1), (50, 10)),
        # Whole chunks of the file, if one fits.
        ((40, 60), (8, 16), 3000, lambda x: dmlgpu.argmax(x, 0), (8, 60)),
        ((40, 60), (8, 16), 3000, lambda x: dmlgpu.max_pooling(x, 1), (8, 60)),
        ((40, 60), (8, 16), 600, lambda x: dmlgpu.max_pooling(x, 2, strides=2), (8, 16)),
        ((6, 16, 16), (3, 8, 8), 768, lambda x: dmlgpu.max_pooling(x, 1), (3, 8, 8)),
        ((40, 60), (8, 16), 100, lambda x: dmlgpu.argmax(x, 0), (1, 20)),
        # Stored chunks with another number of dimensions are ignored.
        ((6, 5), (4,), 40, lambda x: dmlgpu.argmax(x, 1), (2, 5)),
        # All elements of an output of TOP_K and of an exact sum, if these fit.
        ((64, 1 << 15), None, 4 << 20, lambda x: dmlgpu.top_k(x, 50, axis=0), (64, 1 << 14)),
        ((9, 4, 1 << 15), None, 60 << 14, lambda x: dmlgpu.sum(x, 0, exact=True), (9, 1, 1 << 14)),
        ((9, 4, 1 << 15), None, 60 << 14, lambda x: dmlgpu.sum(x, 1, exact=True), (1, 4, 1 << 15)),
        ((9, 4, 1 << 15), None, 60 << 14, lambda x: dmlgpu.sum(x, 2, exact=True), (1, 4, 1 << 15)),
        ((9, 4, 1 << 15), None, 60 << 14, lambda x: dmlgpu.sum(x, (0, 1), exact=True), (3, 4, 1 << 14)),
    ],
)
def test_chunks_fill_the_bytes_with_whole_stored_chunks_or_whole_lines(shape, stored, chunk_bytes, call, sizes):
    x = Sliced(values(*shape), chunks=stored)
    call(chunked(x, chunk_bytes=chunk_bytes))
    assert tuple(part.stop - part.start for part in x.reads[0][0]) == sizes


@pytest.mark.parametrize(("order", "expected"), [("C", (8, 16)), ("F", (32, 4))])
def test_contiguous_elements_are_read_together(order, expected):
    x = np.asarray(values(32, 16), order=order)
    sizes = chunked(x, chunk_bytes=512)._chunk_sizes(x.shape, (1, 1), lambda sizes: 4 * sizes[0] * sizes[1])
    assert sizes == expected


def test_results_may_be_scalars_or_empty():
    empty = np.empty((0, 3), np.int8)
    check("argmax", values(5))
    check("argmax", empty, 1)
    check("max_pooling", np.empty((0, 3, 3), np.int8), 2)
    refuses(r"axes \(0,\) of \(0, 3\) are empty", dmlgpu.argmax, chunked(empty), 0)
    refuses(r"a window over \(0, 3\) is empty", dmlgpu.max_pooling, chunked(empty), 1)


@pytest.mark.parametrize("is_array", [False, True], ids=["slices", "subclass"])
def test_a_source_may_reuse_the_memory_of_its_slices(is_array, monkeypatch):
    x, memory = np.random.default_rng(5).random((8, 20), np.float32), np.empty((2, 20), np.float32)
    was_read, partial = [threading.Event() for _ in range(4)], Reduction.partial

    class Slices:
        shape, dtype = x.shape, x.dtype

        def __getitem__(self, region):
            memory[:] = x[region]
            was_read[region[0].start // 2].set()
            return memory

    class Subclass(np.ndarray):
        __getitem__ = Slices.__getitem__

    def partial_after_the_next_read(self, elements, begin, device):
        assert was_read[min(begin[0] // 2 + 1, 3)].wait(60)
        return partial(self, elements, begin, device)

    monkeypatch.setattr(Reduction, "partial", partial_after_the_next_read)
    reused = x.view(Subclass) if is_array else Slices()
    np.testing.assert_array_equal(dmlgpu.argmax(chunked(reused, chunk_bytes=160), 1), x.argmax(1))


# Files


@pytest.fixture
def file(tmp_path):
    """A .npy file of 64 MiB, whose maximum is at (77, 4095)."""
    path = tmp_path / "x.npy"
    x = np.lib.format.open_memmap(path, "w+", np.float32, (4096, 4096))
    x[:] = np.arange(4096, dtype=np.float32) % 1000
    x[77, 4095] = 5000
    x.flush()
    return path


def resident_bytes():
    """Bytes of mapped files in the memory of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssFile"))


def test_a_path_opens_a_npy_file(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in (file, str(file), "x.npy"):
        x = chunked(path, chunk_bytes=16 << 20)
        assert dmlgpu.argmax(x) == 77 * 4096 + 4095
        assert dmlgpu.max(x) == 5000
        assert repr(x) == "<dmlgpu.chunked memmap of float32 and (4096, 4096)>"
    (tmp_path / "text.npy").write_text("hello")
    refuses(r"^chunked\.x: text\.npy: EOF: reading magic string", chunked, "text.npy")
    np.save(tmp_path / "number.npy", np.float32(3))
    refuses(r"^chunked\.x: memmap of float32 and \(\) cannot be read by slices; .* \.npy files$", chunked, "number.npy")
    refuses(r"'nothing\.npy'", chunked, "nothing.npy", error=FileNotFoundError)


def test_a_file_does_not_stay_in_memory(file):
    x, resident = np.load(file, mmap_mode="r"), []
    dmlgpu.argmax(chunked(x[:64]))  # loads the driver and its compiler
    before = resident_bytes()
    index = dmlgpu.argmax(chunked(x, chunk_bytes=1 << 20, progress=lambda *_: resident.append(resident_bytes())))
    assert index == 77 * 4096 + 4095
    assert len(resident) == 64
    assert max(resident) - before < 16 << 20


@pytest.mark.parametrize(
    ("shape", "call"),
    [
        ((1, 4096, 4096), lambda x, out=None: dmlgpu.max_pooling(x, 1, out=out)),
        ((4096, 4096), lambda x, out=None: dmlgpu.max(x, 0, out=out)),
    ],
    ids=["max_pooling", "max"],
)
def test_a_file_of_results_does_not_stay_in_memory(shape, call, tmp_path):
    x, resident = np.broadcast_to(np.arange(4096, dtype=np.float32), (1, 4096, 4096)), []
    out = np.lib.format.open_memmap(tmp_path / "out.npy", "w+", np.float32, shape)
    call(chunked(x[:, :64]))
    before = resident_bytes()
    call(chunked(x, chunk_bytes=1 << 20, progress=lambda *_: resident.append(resident_bytes())), out)
    assert max(resident) - before < 16 << 20
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy", mmap_mode="r").reshape(x.shape), x)


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
def test_a_copy_on_write_mapping_keeps_its_changes(file, view):
    x = np.load(file, mmap_mode="c")
    x[5, 5] = 9000
    assert dmlgpu.argmax(chunked(view(x), chunk_bytes=4 << 20)) == 5 * 4096 + 5
    assert x[5, 5] == 9000
    dmlgpu.max(chunked(values(1, 4095, 4096), chunk_bytes=4 << 20), 0, out=view(x[1:]))
    np.testing.assert_array_equal(x[1:], values(1, 4095, 4096)[0])
    assert np.load(file, mmap_mode="r")[5, 5] == 5


def test_a_mapping_without_a_mode_keeps_its_changes(file):
    with open(file, "rb") as opened:
        mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY)
    x = np.frombuffer(mapped, np.float32, offset=128).view(np.memmap)
    x[-1] = 9000
    assert dmlgpu.argmax(chunked(x, chunk_bytes=4 << 20)) == x.size - 1
    assert x[-1] == 9000


def test_results_go_to_arrays(tmp_path):
    x = values(6, 20, 30)
    expected = dmlgpu.max_pooling(x, 3, output_indices=True)
    outs = tuple(
        np.lib.format.open_memmap(tmp_path / f"{i}.npy", "w+", y.dtype, y.shape) for i, y in enumerate(expected)
    )
    assert dmlgpu.max_pooling(chunked(x, chunk_bytes=2000), 3, output_indices=True, out=outs) == outs
    for out, y in zip(outs, expected, strict=True):
        np.testing.assert_array_equal(out, y)
    number = np.empty((), np.int64)
    assert dmlgpu.argmax(chunked(x), out=number) is number
    assert number == x.argmax()


def test_results_go_to_new_files(tmp_path):
    x = values(1, 20, 30)
    paths = tmp_path / "values.npy", str(tmp_path / "indices.npy")
    results = dmlgpu.max_pooling(chunked(x, chunk_bytes=2000), 3, output_indices=True, out=paths)
    for path, result, expected in zip(paths, results, dmlgpu.max_pooling(x, 3, output_indices=True), strict=True):
        assert isinstance(result, np.memmap)
        np.testing.assert_array_equal(np.load(path), expected)
    with pytest.raises(FileExistsError):
        dmlgpu.max_pooling(chunked(x), 3, output_indices=True, out=(tmp_path / "other.npy", paths[1]))
    assert sorted(tmp_path.iterdir()) == sorted(map(Path, paths))
    twice = tmp_path / "x.npy", f"{tmp_path}/./x.npy"
    words = r"x\.npy' is given twice; each result needs a file of its own"
    refuses_out(words, "max_pooling", Sliced(x), 2, output_indices=True, out=twice)


@pytest.mark.parametrize(("shape", "axis"), [((5,), None), ((3, 0, 2), 0)])
def test_files_have_a_single_result_or_none(tmp_path, shape, axis):
    dmlgpu.argmax(chunked(np.ones(shape, np.int8)), axis, out=tmp_path / "x.npy")
    assert np.load(tmp_path / "x.npy").shape == np.ones(shape).argmax(axis).shape


def test_scans_go_to_new_files_with_usual_permissions(tmp_path):
    x, path = values(1, 20, 30), tmp_path / "sums.npy"
    dmlgpu.cumulative_sum(chunked(x, chunk_bytes=90), axis=1, include_initial=True, out=path)
    np.testing.assert_array_equal(np.load(path), np.insert(x.cumsum(1), 0, 0, 1))
    (tmp_path / "other").touch()
    assert path.stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.parametrize("ends", [True, False])
def test_a_file_is_where_the_folder_was_at_the_beginning(tmp_path, monkeypatch, ends):
    """If the call ends with an error, no part of the file stays."""
    first, second, x = tmp_path / "first", tmp_path / "second", values(8, 5)
    for folder in (first, second):
        folder.mkdir()
    (second / "x.npy").write_text("another file of this name")
    monkeypatch.chdir(first)

    def progress(number, count):
        if number == 2:
            monkeypatch.chdir(second)
            if ends:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) if ends else contextlib.nullcontext():
        result = dmlgpu.argmax(chunked(x, chunk_bytes=20, progress=progress), 1, out="x.npy")
        np.testing.assert_array_equal(np.load(first / "x.npy"), x.argmax(1))
        assert result.filename == str(first / "x.npy")
        result[0] = 77
        result.flush()
        assert np.load(first / "x.npy")[0] == 77
    assert len([*tmp_path.rglob("*.*")]) == 2 - ends
    assert Path("x.npy").read_text() == "another file of this name"


@pytest.mark.parametrize("name", ["argmax", "max_pooling"])
def test_an_incomplete_file_is_not_mapped_when_it_is_removed(tmp_path, monkeypatch, name):
    """Windows does not remove a mapped file."""
    maps, unlink, mapped = Path("/proc/self/maps"), os.unlink, []

    def unlinked(path):
        mapped.append(maps.exists() and path in maps.read_text())
        unlink(path)

    monkeypatch.setattr(os, "unlink", unlinked)
    # A function of C raises the error, without a frame that would keep the file mapped.
    monkeypatch.setattr(targets, "give_pages_back", operator.index)
    refuses("scalar index", getattr(dmlgpu, name), chunked(values(8, 5)), 1, error=TypeError, out=tmp_path / "x.npy")
    assert (mapped, [*tmp_path.iterdir()]) == ([False], [])


def failing(error):
    def raises(*_):
        raise error

    return raises


@pytest.mark.parametrize("fallocate", ["works", "absent", errno.EOPNOTSUPP, errno.EINVAL])
def test_files_have_all_of_their_space_before_anything_is_read(tmp_path, monkeypatch, fallocate):
    """On a full disk, writing to a mapped file with holes ends the process."""
    if fallocate == "absent":
        monkeypatch.delattr(os, "posix_fallocate", raising=False)
    elif fallocate != "works":
        monkeypatch.setattr(os, "posix_fallocate", failing(OSError(fallocate, "")), raising=False)
    parts = []

    def progress(number, count):
        (part,) = tmp_path.iterdir()
        stat = part.stat()
        is_part = re.fullmatch(r"x\.npy\.[0-9a-f]{8}\.part", part.name) is not None
        parts.append((is_part, stat.st_size - 128, 512 * stat.st_blocks >= stat.st_size))

    x = np.broadcast_to(np.arange(1, 101, dtype=np.float32), (1, 3000, 100))
    dmlgpu.max_pooling(chunked(x, chunk_bytes=400_000, progress=progress), 1, out=tmp_path / "x.npy")
    assert parts == [(True, 1_200_000, True)] * 4
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
    """An array that is too large to be read."""

    dtype = np.dtype(np.float32)

    def __init__(self, *shape):
        self.shape = shape

    def __getitem__(self, region):
        raise AssertionError("it is read")


@pytest.mark.parametrize("shape", [(1 << 40, 1 << 18, 1), (1 << 50, 1 << 50, 2)], ids=str)
def test_results_that_fit_no_disk_or_no_memory_are_refused(tmp_path, shape):
    x = chunked(Huge(*shape), chunk_bytes=1 << 100)
    with pytest.raises(OSError, match=r"x\.npy\.[0-9a-f]{8}\.part") as raised:
        dmlgpu.argmax(x, 2, out=tmp_path / "x.npy")
    assert raised.value.errno in (errno.EFBIG, errno.ENOSPC)
    assert [*tmp_path.iterdir()] == []
    words = r"^out: results do not fit in this machine's memory; write them to a file: "
    refuses(words, dmlgpu.argmax, x, 2, error=MemoryError)


PROGRAM = """
import os, signal, sys, numpy, dmlgpu
x = numpy.zeros((8, 5), numpy.float32)
dmlgpu.argmax(
    dmlgpu.chunked(x, chunk_bytes=20, progress=lambda *_: os.kill(os.getpid(), signal.SIGTERM)), 1, out=sys.argv[1]
)
"""


def test_a_process_that_ends_leaves_nothing_under_the_name(tmp_path):
    path = tmp_path / "x.npy"
    assert subprocess.run([sys.executable, "-c", PROGRAM, path], timeout=100).returncode == -signal.SIGTERM
    (part,) = tmp_path.iterdir()
    assert part.suffix == ".part"
    dmlgpu.argmax(chunked(values(8, 5)), 1, out=path)
    assert sorted(tmp_path.iterdir()) == [path, part]


@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
def test_a_file_that_another_call_wrote_meanwhile_stays(tmp_path, monkeypatch, links):
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


# Errors


SHAPES = [(-4, 5), (1 << 63, 1), (2.0, 3), "45", 4, None]
WITHOUT_SLICES = [[1, 2], 3.0, None, b"x", np.float32(3), np.array(3), chunked(values(1, 3, 3))]


@pytest.mark.parametrize("x", [*WITHOUT_SLICES, *(Sliced(values(4, 5), shape=shape) for shape in SHAPES)])
def test_what_has_no_slices_is_refused(x):
    refuses(r"^chunked\.x: .* cannot be read by slices; allowed are arrays", chunked, x)


@pytest.mark.parametrize("chunk_bytes", [0, -1, 1.5, "1", True, None])
def test_chunk_bytes_is_a_positive_integer(chunk_bytes):
    refuses(r"^chunked\.chunk_bytes: ", chunked, values(3), chunk_bytes=chunk_bytes)


def test_other_arguments_are_refused(device):
    x = values(3, 4)
    words = r"^chunked\.progress: 5 is not allowed; allowed is a function, or None$"
    refuses(words, chunked, x, progress=5, error=TypeError)
    words = r"axis: \(\) is not allowed for chunked and Dask arrays; give at least one"
    refuses(words, dmlgpu.sum, chunked(x), ())
    refuses(r"^chunked\.x: .* is on a device; pass it without chunked\(\)$", chunked, device.tensor(x))
    for call in (dmlgpu.argmax, lambda x: dmlgpu.sum(x, 0)):
        refuses(r"^TensorDesc\.sizes: 9 dimensions; allowed are 1 to 8$", call, chunked(Sliced(values(*[1] * 9))))


def test_masked_arrays_are_refused():
    masked = np.ma.masked_equal(values(3, 4), 2)
    refuses(r"^chunked\.x: a masked array", chunked, masked)
    refuses(r"^x: a masked array", dmlgpu.argmax, chunked(Sliced(masked)))  # like a variable of netCDF4


@pytest.mark.parametrize("function", [np.argmax, np.sum, np.asarray])
def test_functions_of_numpy_refuse_chunks(function):
    """Otherwise NumPy would treat chunks as one object, and np.argmax would be 0."""
    words = r"^<dmlgpu\.chunked ndarray of float32 and \(3, 4\)> is never read as a whole; pass it to a function"
    refuses(words, function, chunked(values(3, 4)), error=TypeError)


X = values(1, 3, 3)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (dmlgpu.average_pooling_grad, (chunked(X), (4, 4), 2)),
        (dmlgpu.max_pooling_grad, (chunked(X), values(1, 2, 2), 2)),
        (dmlgpu.max_pooling_grad, (X, chunked(values(1, 2, 2)), 2)),
        (dmlgpu.max_unpooling, (chunked(X), chunked(X.astype(np.int64)), 4)),
    ],
)
def test_other_functions_refuse_chunks(function, arguments):
    words = rf"^{function.__name__}\(\) takes neither chunked nor Dask arrays; pass arrays or device tensors$"
    refuses(words, function, *arguments, error=TypeError)


def test_arrays_may_have_more_elements_than_a_tensor():
    words = r"INT64 cannot hold the index of 9223372036854775810 reduced elements; allowed are UINT64$"
    refuses(rf"dtype: {words}", dmlgpu.argmax, chunked(Huge((1 << 62) + 1, 2)))
    for call in (dmlgpu.argmax, dmlgpu.sum, lambda x: dmlgpu.argmax(x, dtype="uint64")):
        refuses("it is read", call, chunked(Huge(1 << 33)), error=AssertionError)


@pytest.mark.parametrize("chunk_bytes", [1, 64])
@pytest.mark.parametrize("function", [dmlgpu.argmax, dmlgpu.max_pooling])
def test_sizes_that_make_too_many_chunks_are_refused(function, chunk_bytes):
    x = Sliced(np.broadcast_to(np.uint8(0), (1, 1 << 11, 1 << 20)))
    words = rf"{chunk_bytes} bytes make {2**31 // chunk_bytes} chunks; at most 1048576 are allowed"
    refuses(rf"^chunked\.chunk_bytes: {words}", function, chunked(x, chunk_bytes=chunk_bytes), 1)
    assert x.reads == []


@pytest.mark.parametrize("name", ["argmax", "max_pooling"])
@pytest.mark.parametrize("axis", [0, 1])
def test_memory_does_not_grow_with_the_number_of_chunks(name, axis):
    def progress(number, count):
        if number == 3:
            assert count == 1 << 18
            raise KeyboardInterrupt

    function, argument = getattr(dmlgpu, name), axis if name == "argmax" else 1
    x = np.broadcast_to(np.uint8(0), (1 << 18, 1) if axis == 0 else (1, 1 << 18))
    function(chunked(x[:3, :3], chunk_bytes=1), 1)  # makes the buffers of the device
    tracemalloc.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            function(chunked(x, chunk_bytes=1, progress=progress), argument)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20  # 32 bytes a chunk


class Unwritable:
    __setitem__, dtype, shape = 0, np.dtype(np.int64), (4,)


@pytest.mark.parametrize(
    "out",
    [
        np.empty(4, np.int32),
        np.empty(4, ">i8"),
        {},
        types.SimpleNamespace(dtype=np.dtype(np.int64)),
        types.SimpleNamespace(dtype=np.dtype(np.int64), shape=None),
        Unwritable,
    ],
)
def test_outs_of_other_kinds_are_refused(out):
    words = "allowed is an array of int64 that can be written by slices"
    refuses_out(words, "argmax", Sliced(values(4, 5)), -1, out=out, error=TypeError)


def test_device_tensors_are_refused_as_out(device):
    out = device.tensor(np.zeros(4, np.int64))
    words = "DeviceTensor of int64 .* is not allowed; allowed is an array of int64"
    refuses_out(words, "argmax", Sliced(values(4, 5)), -1, out=out, error=TypeError)


@pytest.mark.parametrize(
    ("out", "words"),
    [
        (np.empty(5, np.int64), r"the shape \(5,\) is wrong; expected \(4,\)"),
        ([0] * 5, r"\(0, 0, 0, 0, ...\) is not allowed; allowed is one array or path"),
        ((np.empty(4, np.int64),), r"\(ndarray of int64 and \(4,\)\) .*allowed is one array or path"),
    ],
)
def test_outs_of_other_sizes_are_refused(out, words):
    refuses_out(words, "argmax", Sliced(values(4, 5)), -1, out=out)


@pytest.mark.parametrize("strides", [(0, 8), (8, 8), (8, 0), (-8, 8), (16, 8), (24, 16)])
def test_an_out_whose_elements_share_memory_is_refused(strides):
    out = np.lib.stride_tricks.as_strided(np.zeros(40, np.int64)[9:], (4, 3), strides)
    refuses_out(r"has strides \(.*\): elements may share memory$", "argmax", Sliced(values(4, 3, 2)), -1, out=out)


@pytest.mark.parametrize(
    "out",
    [
        np.empty((3, 4), np.int64).T,
        np.empty((9, 9), np.int64)[8:0:-2, 7:1:-2],
        np.empty((4, 1, 3), np.int64)[:, 0],
        np.lib.stride_tricks.as_strided(np.empty(20, np.int64), (4, 3), (8, 32)),
    ],
    ids=["transposed", "steps", "no dimension of 1", "strides"],
)
def test_out_may_be_any_slice_of_an_array(out):
    x = values(4, 3, 2)
    assert dmlgpu.argmax(chunked(x), 2, out=out) is out
    np.testing.assert_array_equal(out, x.argmax(2))


def test_two_results_need_a_tuple_of_two_outs():
    window = {"window_size": 2, "output_indices": True}
    x, both = Sliced(values(1, 3, 3)), (np.empty((1, 2, 2), np.float32), np.empty((1, 2, 2), np.int64))
    for out in (both[0], both[:1], (*both, both[0])):
        refuses_out("allowed is a tuple, for each of 2 results an array or a path", "max_pooling", x, **window, out=out)
    words = r"ndarray of int64 and \(1, 2, 2\) is not allowed; allowed is an array of f"
    refuses_out(words, "max_pooling", x, **window, out=both[::-1], error=TypeError)
    values_alone = dmlgpu.max_pooling(chunked(x), **window, out=(both[0], None))
    assert values_alone[0] is both[0]
    assert values_alone[1].dtype == np.int64


IS_SHARED = "lies in x or in another result"


def test_out_in_x_is_refused():
    x = np.zeros((4, 6), np.int64)
    refuses_out(IS_SHARED, "reduce", x, ReduceFunction.MAX, 0, out=x[2])
    sliced = Sliced(x)
    refuses_out(IS_SHARED, "max_pooling", sliced, 1, out=sliced)
    both = np.empty((1, 3, 3), np.int64)
    refuses_out(IS_SHARED, "max_pooling", np.zeros_like(both), 1, output_indices=True, out=(both, both))


def test_out_in_the_file_of_x_by_another_path_is_refused(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, values(4, 6))
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "y.npy").hardlink_to(path)
    for name in (path, str(path), tmp_path / "y.npy", tmp_path / "link" / "x.npy"):
        for view in (np.asarray, lambda x: x, lambda x: np.lib.stride_tricks.as_strided(x, subok=False)):
            x, out = np.load(name, mmap_mode="r"), np.load(str(path), mmap_mode="r+")
            refuses_out(IS_SHARED, "max_pooling", view(x), 1, out=view(out))
    np.save(tmp_path / "z.npy", values(4, 6))
    dmlgpu.max_pooling(chunked(np.load(path, mmap_mode="r")), 1, out=np.load(tmp_path / "z.npy", mmap_mode="r+"))


def of_zarr(attribute, folder, path):
    """An array whose store names its folder, like those of zarr."""
    return Sliced(values(4, 6), store=types.SimpleNamespace(**{attribute: folder}), path=path)


def test_out_in_the_folder_of_x_by_another_path_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("x", "y"):
        (tmp_path / "group" / name).mkdir(parents=True)
    x = of_zarr("root", Path("group"), "x")
    for attribute, folder, path in (
        ("root", tmp_path / "group", "x"),
        ("root", Path("group/x"), ""),
        ("path", str(tmp_path / "group/x"), ""),
    ):
        refuses_out(IS_SHARED, "max_pooling", x, 1, out=of_zarr(attribute, folder, path))
    for folder, path in (("group", "y"), ("/no folder", "x")):
        dmlgpu.max_pooling(chunked(x), 1, out=of_zarr("root", folder, path))


@pytest.mark.parametrize("declared", [{"shape": (4, 7)}, {"dtype": np.dtype(np.int32)}], ids=["shape", "dtype"])
def test_slices_that_differ_from_what_x_declares_are_refused(declared):
    x = Sliced(values(4, 5), **declared)
    refuses(r"is ndarray of float32 and \(4, 5\); x.shape and x.dtype declare", dmlgpu.argmax, chunked(x), 1)


def test_slices_may_have_the_other_byte_order():
    x = Sliced(values(6, 5), dtype=np.dtype(">f4"))
    assert np.array_equal(dmlgpu.argmax(chunked(x, chunk_bytes=40), 1), x.x.argmax(1))
    assert np.array_equal(dmlgpu.sum(chunked(x, chunk_bytes=40), 0), x.x.sum(0))


@pytest.mark.parametrize("after", [0, 2])
def test_an_error_of_reading_ends_the_call(after):
    class Broken(Sliced):
        def __getitem__(self, region):
            if len(self.reads) == after:
                raise OSError("the disk is gone")
            return super().__getitem__(region)

    threads, finished = threading.active_count(), []
    x = chunked(Broken(values(8, 5)), chunk_bytes=20, progress=lambda number, count: finished.append(number))
    refuses("the disk is gone", dmlgpu.argmax, x, 1, error=OSError)
    assert finished == list(range(1, after + 1))
    assert threading.active_count() == threads


def test_an_error_of_progress_ends_the_call():
    x, threads = Sliced(values(8, 5)), threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        dmlgpu.argmax(chunked(x, chunk_bytes=20, progress=failing(KeyboardInterrupt)), 1)
    assert len(x.reads) <= 2
    assert threading.active_count() == threads


def test_the_named_device_computes(driver):
    x = values(63, 65)
    with dmlgpu.Device(driver.index) as device:
        for operators, call in enumerate(
            (
                lambda: dmlgpu.argmax(chunked(x), 0, device=device),
                lambda: dmlgpu.max_pooling(chunked(x), 2, device=device),
            )
        ):
            assert device.cache_info().operators == operators
            call()
        assert device.cache_info().operators == 2


def test_a_source_may_have_a_base_and_a_store_of_its_own():
    x = Sliced(values(4, 5), store=types.SimpleNamespace(root="somewhere"))
    x.base = x
    assert dmlgpu.argmax(chunked(x), 1, out=np.empty(4, np.int64)).tolist() == x.x.argmax(1).tolist()


class Elementwise(Sliced):
    """An array that is compared by elements, like those of xarray."""

    __hash__ = None

    def __eq__(self, other):
        return self.x[:1] == other.x[:1]


def test_arrays_may_be_compared_by_elements():
    x, out = Elementwise(values(6, 5)), Elementwise(np.zeros(6, np.int64))
    assert dmlgpu.argmax(chunked(x, chunk_bytes=40), 1, out=out) is out
    assert np.array_equal(out.x, x.x.argmax(1))
