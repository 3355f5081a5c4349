"""Targets of the results: new arrays, arrays of the caller, and new files."""

from __future__ import annotations

import errno
import math
import mmap
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, BinaryIO

import numpy as np

from dmlgpu.call import Call, Shape, Type
from dmlgpu.chunks.regions import Region
from dmlgpu.descriptors.tensor import Array, described
from dmlgpu.errors import DescriptorError, shown
from dmlgpu.files import written
from dmlgpu.runtime.tensor import DeviceTensor
from dmlgpu.sources import check_out, out_entries, share_memory

# Errors if the system or file system cannot reserve space, or there is nothing to reserve. None: no posix_fallocate.
_NO_FALLOCATE = (None, errno.EINVAL, errno.ENODEV, errno.ENOSYS, errno.EOPNOTSUPP)


@contextmanager
def targets_of(x: Any, call: Call, out: Any) -> Iterator[list[Any]]:
    """The arrays that results are written to: `out`, or new arrays. A complete file is renamed to its path."""
    shape, entries = call.shape, [None] * len(call.dtypes)
    if out is not None:
        entries = out_entries(out, len(entries), "one array or path" if len(entries) == 1 else "an array or a path")
    targets: list[Any] = []
    files: dict[int, str] = {}
    with ExitStack() as unfinished:
        for i, (target, dtype) in enumerate(zip(entries, call.dtypes, strict=True)):
            if target is None:
                targets.append(_in_memory(shape, dtype))
            elif isinstance(target, (str, os.PathLike)):
                path = os.path.abspath(os.fsdecode(target))
                if path in files.values():
                    raise DescriptorError(f"out: {shown(target)} is given twice; each result needs a file of its own")
                files[i] = path
                part = unfinished.enter_context(written(path))
                # After an error: Windows cannot remove a mapped file.
                unfinished.push(lambda error, *_: targets.clear() if error else None)
                targets.append(_in_file(part, shape, dtype))
            else:
                _check_target(target, shape, dtype, [x, *targets])
                targets.append(target)
        yield targets
        for i in files:
            targets[i].flush()
            targets[i] = None  # Windows cannot rename a mapped file
    for i, path in files.items():
        targets[i] = np.lib.format.open_memmap(path, "r+")


def write_region(targets: list[Any], region: Region, values: Sequence[Array]) -> None:
    """Writes a region of all results."""
    # Without a local name for a target: a traceback would keep it, and Windows cannot remove a mapped file.
    for i, part in enumerate(values):
        targets[i][region] = part
        give_pages_back(targets[i])


def _in_memory(shape: Shape, dtype: Type) -> Array:
    """A new array in main memory."""
    try:
        return np.empty(shape, dtype)
    except (MemoryError, OverflowError, ValueError) as error:
        raise MemoryError(f"out: results do not fit in this machine's memory; write them to a file: {error}") from None


def _in_file(path: str, shape: Shape, dtype: Type) -> Any:
    """A new mapped .npy file, with all of its space reserved."""
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    try:
        with open(path, "xb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            _reserve(file, math.prod(shape) * dtype.itemsize)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    return np.lib.format.open_memmap(path, "r+")


def _reserve(file: BinaryIO, size: int) -> None:
    """Reserves `size` more bytes for a file: otherwise a write to a mapped file ends the process if the disk is full.

    Raises:
        OSError: the disk does not have these bytes.
    """
    try:
        os.posix_fallocate(file.fileno(), file.tell(), min(size, sys.maxsize))
    except (AttributeError, OSError) as error:
        if getattr(error, "errno", None) not in _NO_FALLOCATE:
            raise
        zeros = bytes(1 << 20)
        for begin in range(0, size, len(zeros)):
            file.write(zeros[: size - begin])


def _check_target(target: Any, shape: Shape, dtype: Type, others: Sequence[Any]) -> None:
    """Raises an error if a result of this shape and type cannot be written to a target, or overlaps the others."""
    has_slices = callable(getattr(target, "__setitem__", None)) and not isinstance(target, (DeviceTensor, type))
    has_slices = has_slices and isinstance(getattr(target, "shape", None), tuple)
    if not has_slices or getattr(target, "dtype", None) != dtype:
        raise TypeError(
            f"out: {described(target)} is not allowed; allowed is an array of {dtype} that can be written by slices"
        )
    check_out(target, shape)
    if any(_overlap(target, other) for other in others):
        raise DescriptorError(f"out: {described(target)} lies in x or in another result; pass separate memory")


def _overlap(a: Any, b: Any) -> bool:
    """Whether arrays share elements, in memory or in a file; False if dmlgpu cannot know."""
    files = [file for file in (_file(a), _file(b)) if file is not None and os.path.exists(file)]
    if len(files) == 2 and os.path.samefile(*files):
        # Windows has no number for a file that it cannot open.
        return os.stat(files[0]).st_ino != 0 or os.path.realpath(files[0]) == os.path.realpath(files[1])
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return share_memory(a, b)
    # Arrays of zarr are equal if they are the same array; other libraries compare elements, which is not True.
    return a is b or (type(a) is type(b) and (a == b) is True)


def _file(x: Any) -> Any:
    """The path of the file of a mapped array, or of the folder of a zarr array; None for others."""
    if isinstance(x, np.ndarray):
        return getattr(_owner(x), "filename", None)
    store = getattr(x, "store", None)
    root, path = getattr(store, "root", getattr(store, "path", None)), getattr(x, "path", None)
    return os.path.join(root, path) if isinstance(root, (str, os.PathLike)) and isinstance(path, str) else None


def _owner(x: Any) -> Any:
    """The array that x is a view of, or x itself; for a mapped file, the np.memmap that mapped the file."""
    while isinstance(x, np.ndarray) and not isinstance(x.base, (mmap.mmap, type(None))):
        # Between an array and its strided view NumPy inserts an object that has only a base.
        x = x.base if isinstance(x.base, np.ndarray) else getattr(x.base, "base", x.base)
    return x


def give_pages_back(x: Any) -> None:
    """Releases the resident pages of a mapped file, unless changes would be lost.

    Without this function the resident memory grows to the size of the file. Written pages stay in the page cache. A
    copy-on-write mapping would lose its changes. Only np.memmap tells whether a mapping is one, so pages of other
    mappings stay.
    """
    owner = _owner(x)
    mapped = getattr(owner, "base", None)
    loses_nothing = getattr(owner, "mode", None) in ("r", "r+", "w+")
    if isinstance(mapped, mmap.mmap) and loses_nothing and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)
