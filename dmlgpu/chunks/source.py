"""Arrays that are read in chunks, because they are larger than a device or than main memory."""

from __future__ import annotations

import math
import operator
import os
from bisect import bisect_left
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from dmlgpu.call import Call, Operand, Shape
from dmlgpu.chunks.pooling import Pooling
from dmlgpu.chunks.reduction import Reduction
from dmlgpu.chunks.regions import Region, Regions
from dmlgpu.chunks.scan import Scan
from dmlgpu.chunks.targets import give_pages_back, targets_of, write_region
from dmlgpu.descriptors.cumulative import CumulativeOperatorDesc
from dmlgpu.descriptors.pooling import PoolingOperatorDesc
from dmlgpu.descriptors.tensor import Array, as_array, check_plain, described, integer
from dmlgpu.errors import DescriptorError, shown
from dmlgpu.files import open_npy
from dmlgpu.runtime.device import Device, Selector, open_device
from dmlgpu.runtime.tensor import DeviceTensor
from dmlgpu.sources import Source

CHUNK_BYTES = 64 << 20
# Maximum number of chunks: even small ones cost some tenths of a millisecond, so this many cost minutes.
_MOST_CHUNKS = 1 << 20
# Adjacent elements per slice: a disk reads shorter slices much more slowly.
_RUN = 1 << 14

Progress = Callable[[int, int], object] | None


def chunked(x: Any, *, chunk_bytes: int = CHUNK_BYTES, progress: Progress = None) -> Chunked:
    """An array for dmlgpu's functions that is read in chunks: `dmlgpu.argmax(dmlgpu.chunked(x), axis=0)`.

    While the device computes a chunk, a thread reads the next one, and copies it unless x is a plain ndarray, because x
    may reuse the memory of its slices. A call needs memory for two chunks, for one slice of x, for one chunk on the
    device, and for the results unless they are written to `out`. A cumulative sum or product along an axis that is cut
    needs memory for another chunk. A chunk consists of whole chunks of zarr or HDF5 if these fit.

    Indices, maxima, minima, the elements of top_k and exact sums are those of the whole array, bit for bit, for all
    sizes of chunks. The error of another sum of floats is at most the bound of `dmlgpu.reference.bounds` plus 2^-23 of
    the sum of the absolute terms, because the sum of each chunk is rounded.

    The argument `out` of the functions is an array, anything else that can be written by slices, or the path of a new
    .npy file, which is returned as np.memmap; for two results a tuple of two. A file appears at its path when it is
    complete. Until then it has a unique name in the same folder, which ends in `.part`. An error removes it. A signal
    that ends the process, such as SIGTERM, leaves it; no call reads it.

    Args:
        x: an array with `shape`, `dtype` and slices, of any number of elements, such as np.memmap, a zarr array or an
            h5py dataset; or the path of a .npy file.
        chunk_bytes: maximum number of bytes of x in a chunk, which always has an element, or the elements of a window.
            x may have at most 1,048,576 chunks.
        progress: a function to call after each chunk, with the number of finished chunks and the number of all chunks.

    Raises:
        DescriptorError: x cannot be read by slices. The functions raise it if `out` has another shape, or shares memory
            or a file with x or another result, or if `chunk_bytes` makes too many chunks.
        TypeError: from the functions: `out` cannot be written by slices, or has another type than the results.
        FileExistsError: from the functions: a file exists at the path `out`.
        OSError: the file cannot be read; or the disk has no space for the results, which is reserved first.
        MemoryError: from the functions: the results do not fit in memory.

    Example:
        >>> import numpy as np, dmlgpu
        >>> x = np.arange(24, dtype=np.float32).reshape(4, 6)  # np.memmap, zarr, h5py ...
        >>> dmlgpu.argmax(dmlgpu.chunked(x, chunk_bytes=32), axis=0).tolist()
        [3, 3, 3, 3, 3, 3]
        >>> dmlgpu.sum(dmlgpu.chunked(x), axis=1, out="sums.npy").tolist()
        [15.0, 51.0, 87.0, 123.0]
        >>> np.load("sums.npy").shape
        (4,)
    """
    return Chunked(x, chunk_bytes, progress)


class Chunked(Source):
    """An array that is read in chunks, from `chunked`."""

    def __init__(self, x: Any, chunk_bytes: int, progress: Progress) -> None:
        if isinstance(x, (str, os.PathLike)):
            try:
                x = open_npy(os.fspath(x))
            except ValueError as error:
                raise DescriptorError(f"chunked.x: {error}") from None
        if isinstance(x, DeviceTensor):
            raise DescriptorError(f"chunked.x: {x.description} is on a device; pass it without chunked()")
        check_plain(x, "chunked.x")
        try:
            self._shape, self._dtype = tuple(map(operator.index, x.shape)), np.dtype(x.dtype)
            has_slices = callable(x.__getitem__) and all(0 <= size < 1 << 63 for size in self._shape)
        except (AttributeError, TypeError):
            has_slices = False
        if not has_slices or not self._shape:
            raise DescriptorError(
                f"chunked.x: {described(x)} cannot be read by slices; allowed are arrays with a NumPy type and one "
                "dimension or more, such as np.memmap, zarr arrays and h5py datasets, and paths of .npy files"
            )
        if progress is not None and not callable(progress):
            raise TypeError(f"chunked.progress: {shown(progress)} is not allowed; allowed is a function, or None")
        self._x, self._progress = x, progress
        self._chunk_bytes = integer("chunked", "chunk_bytes", chunk_bytes)
        if self._chunk_bytes < 1:
            raise DescriptorError(
                f"chunked.chunk_bytes: {shown(chunk_bytes)} is not allowed; allowed are integers from 1 on"
            )

    def __repr__(self) -> str:
        return f"<dmlgpu.chunked {described(self._x)}>"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        # Otherwise NumPy's functions would treat the array as one object: np.argmax would return 0.
        raise TypeError(f"{self!r} is never read as a whole; pass it to a function of dmlgpu, such as dmlgpu.argmax(x)")

    @property
    def operand(self) -> Operand:
        return Operand(self._shape, self._dtype, in_parts=True)

    def compute(self, call: Call, out: Any, device: Selector) -> Any:
        if isinstance(call.desc, PoolingOperatorDesc):
            targets = self._pool(Pooling.of(call, self._shape), call, out, open_device(device))
        elif isinstance(call.desc, CumulativeOperatorDesc):
            targets = self._scan(Scan.of(call, self.operand), call, out, open_device(device))
        else:
            targets = self._reduce(Reduction.of(call, self.operand), call, out, open_device(device))
        # As in NumPy: a scalar if no axis is left.
        returned = tuple(target[()] if out is None else target for target in targets)
        return returned[0] if len(returned) == 1 else returned

    def _reduce(self, reduction: Reduction, call: Call, out: Any, device: Device) -> list[Any]:
        axes = reduction.axes
        itemsize: int = self._dtype.itemsize
        # For exact sums and TOP_K, chunks have as many elements of an output as fit: if a chunk has all, NumPy has
        # nothing to merge.
        first = axes if reduction.exact or reduction.k else ()
        sizes = self._chunk_sizes(reduction.shape, self._stored, lambda sizes: itemsize * math.prod(sizes), first)
        # In order: all chunks of a region of the outputs, then all chunks of the next region.
        reduced = tuple(size if axis in axes else 1 for axis, size in enumerate(reduction.shape))
        whole = tuple(reduction.sizes[axis] if axis in axes else size for axis, size in enumerate(sizes))
        regions, parts = Regions(reduction.sizes, whole), Regions(reduced, sizes)
        partial: Array | None = None

        def chunk(i: int) -> Region:
            region, part = regions[i // parts.count], parts[i % parts.count]
            return tuple((part if axis in axes else region)[axis] for axis in range(len(sizes)))

        def write(i: int, elements: Array) -> None:
            nonlocal partial
            number, part = divmod(i, parts.count)
            begin = tuple(side.start for side in chunk(i))
            if parts.count == 1:
                outputs = reduction.outputs(elements, begin, device)
            else:
                of_chunk = reduction.partial(elements, begin, device)
                partial = of_chunk if part == 0 else reduction.merged(np.concatenate([partial, of_chunk], axes[0]))
                if part + 1 < parts.count:
                    return
                outputs = reduction.results(partial)
            write_region(targets, reduction.reduced(regions[number]), outputs)

        with targets_of(self._x, call, out) as targets:
            if call.fill is None:
                self._for_each_chunk(regions.count * parts.count, chunk, write)
            else:
                for target in targets:
                    target[...] = call.fill
        return targets

    def _scan(self, scan: Scan, call: Call, out: Any, device: Device) -> list[Any]:
        shape, axis = self._shape, scan.axis
        itemsize: int = self._dtype.itemsize
        sizes = self._chunk_sizes(shape, self._stored, lambda sizes: itemsize * math.prod(sizes))
        # In order: all chunks of some lines, from the first elements of these lines to the last.
        lines = Regions(shape, (*sizes[:axis], max(shape[axis], 1), *sizes[axis + 1 :]))
        parts = range(0, shape[axis], sizes[axis])[:: 1 if scan.ascends else -1]
        before: Array | None = None

        def chunk(i: int) -> Region:
            region, begin = lines[i // len(parts)], parts[i % len(parts)]
            return (*region[:axis], slice(begin, min(begin + sizes[axis], shape[axis])), *region[axis + 1 :])

        def write(i: int, elements: Array) -> None:
            nonlocal before
            part = i % len(parts)
            before = before if part else None
            write_region(targets, scan.target(chunk(i)), [scan.values(elements, before, device)])
            if part + 1 < len(parts):
                before = scan.joined(before, scan.total(elements, device))

        with targets_of(self._x, call, out) as targets:
            if call.fill is not None:
                targets[0][...] = call.fill
            else:
                if scan.has_initial:
                    targets[0][scan.initial_target] = scan.initial
                self._for_each_chunk(lines.count * len(parts), chunk, write)
        return targets

    def _pool(self, pooling: Pooling, call: Call, out: Any, device: Device) -> list[Any]:
        leading = pooling.leading
        itemsize: int = self._dtype.itemsize
        strides = (*(1,) * leading, *(windows.stride for windows in pooling.windows))
        stored = tuple(max(size // stride, 1) for size, stride in zip(self._stored, strides, strict=True))

        def needed(sizes: Shape) -> int:
            spatial = zip(pooling.windows, sizes[leading:], strict=True)
            extents = (min(windows.span(count), windows.size) for windows, count in spatial)
            return itemsize * math.prod((*sizes[:leading], *extents))

        regions = Regions(pooling.output_shape, self._chunk_sizes(pooling.output_shape, stored, needed))

        def write(i: int, elements: Array) -> None:
            write_region(targets, regions[i], pooling.outputs(elements, regions[i], device))

        with targets_of(self._x, call, out) as targets:
            self._for_each_chunk(regions.count, lambda i: pooling.source(regions[i]), write)
        return targets

    @property
    def _stored(self) -> Shape:
        """The sizes of the chunks in which zarr or HDF5 stores the array; all 1 if it has none."""
        chunks = getattr(self._x, "chunks", None)
        rank = len(self._shape)
        if isinstance(chunks, tuple) and len(chunks) == rank and all(isinstance(size, int) for size in chunks):
            return chunks
        return (1,) * rank

    def _chunk_sizes(self, shape: Shape, stored: Shape, needed: Callable[[Shape], int], first: Shape = ()) -> Shape:
        """The sizes of chunks: as much of each dimension as fits, beginning with that of adjacent elements.

        Args:
            shape: the shape of the array or outputs that are cut into chunks.
            stored: chunk sizes are multiples of these, if that fits.
            needed: the bytes of x that are read for a chunk, from the chunk's sizes.
            first: dimensions to begin with; slices still have _RUN adjacent elements, if that fits.
        """
        x, most = self._x, self._chunk_bytes
        order = [*reversed(range(len(shape)))]
        if isinstance(x, np.ndarray):
            order.sort(key=lambda axis: abs(x.strides[axis]))
        if first and max(stored) <= 1:
            stored = tuple(_RUN if axis == order[0] else 1 for axis in range(len(shape)))
        order.sort(key=lambda axis: axis not in first)
        unit = tuple(min(max(stored_size, 1), max(size, 1)) for stored_size, size in zip(stored, shape, strict=True))
        if needed(unit) > most:
            unit = (1,) * len(shape)
        sizes = unit

        def cut(sizes: Shape, axis: int, parts: int) -> Shape:
            """`sizes` with one dimension cut into `parts` parts of whole units, as equal as possible."""
            units = -(-shape[axis] // unit[axis])
            return (*sizes[:axis], min(-(-units // parts) * unit[axis], shape[axis]), *sizes[axis + 1 :])

        for axis in order:
            counts = range(1, max(-(-shape[axis] // unit[axis]), 1))
            fits = partial(lambda sizes, axis, parts: needed(cut(sizes, axis, parts)) <= most, sizes, axis)
            sizes = cut(sizes, axis, 1 + bisect_left(counts, True, key=fits))
        sizes = tuple(max(size, 1) for size in sizes)
        count = Regions(shape, sizes).count
        if count > _MOST_CHUNKS:
            raise DescriptorError(
                f"chunked.chunk_bytes: {most} bytes make {count} chunks; at most {_MOST_CHUNKS} are allowed, and the "
                f"default is {CHUNK_BYTES} bytes"
            )
        return sizes

    def _for_each_chunk(self, count: int, chunk: Callable[[int], Region], write: Callable[[int, Array], None]) -> None:
        """Calls `write` with the number and the elements of each chunk; meanwhile a thread reads the next chunk."""
        with ThreadPoolExecutor(1, "dmlgpu reader") as reader:
            reads = [reader.submit(self._elements, chunk(0))] if count else []
            for i in range(count):
                elements = reads.pop().result()
                if i + 1 < count:
                    reads.append(reader.submit(self._elements, chunk(i + 1)))
                write(i, elements)
                if self._progress is not None:
                    self._progress(i + 1, count)

    def _elements(self, chunk: Region) -> Array:
        """The elements of a chunk, read from x."""
        x = self._x
        part = as_array(x[chunk], "x")
        expected = tuple(side.stop - side.start for side in chunk)
        if part.shape != expected or part.dtype.newbyteorder("=") != self._dtype.newbyteorder("="):
            raise DescriptorError(
                f"x[{chunk}] is {described(part)}; x.shape and x.dtype declare {expected} and {self._dtype}"
            )
        if type(x) is not np.ndarray:
            # The next read may overwrite the memory of this part. If it is mapped, the copy is what reads the file.
            part = part.copy()
            give_pages_back(x)
        return part
