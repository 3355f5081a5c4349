"""Reductions and poolings of arrays that are larger than a device, or than the memory of the machine.

    x = np.load("x.npy", mmap_mode="r")
    dmlgpu.streaming.argmax(x, axis=0)

x is anything with `shape`, `dtype` and slices: np.memmap, an array of zarr or a dataset of h5py. It is read in chunks
of at most `chunk_bytes`, or of one element or window if that is larger. While the device computes a chunk, a thread
reads the next one, and copies it unless x is a plain ndarray: x may reuse the memory of its slices. So a call needs
memory for two chunks, for one slice of x, for one chunk on the device, and for the results, unless they go to `out`. A
chunk consists of whole chunks of zarr or HDF5 if these fit.

Each function takes the arguments of the function of the same name in dmlgpu, but any number of elements in x, and
those below. Besides the errors below it raises those of that function, and those of reading x and writing to `out`.

Args:
    out: where results are written: an array of their shape and type, anything else that takes slices, or the path of a
        new .npy file; for two results a tuple of two. The function returns `out`, and np.memmap for a path. None: new
        arrays.
    chunk_bytes: the most bytes of x that are read at once; enough that x has 1,048,576 chunks at most.
    progress: a function that is called after each chunk, with the number of chunks done and the number of all chunks.

Indices, maxima and minima are those of the whole array, bit for bit, whatever the chunks. A sum of floats is within the
bound of `dmlgpu.reference.bounds` plus 2^-23 of the sum of the absolute terms, as the sum of each chunk is rounded.
Exact sums are those of the whole array, bit for bit: chunks hand on their sums as integers.

Raises:
    DescriptorError: x cannot be read by slices; `out` is not as many arrays as there are results, has another shape, or
        shares memory or a file with x or another result; `chunk_bytes` makes too many chunks.
    TypeError: `out` cannot be written by slices, or has another type than the results.
    FileExistsError: there is a file at the path `out`, when the call begins or when it ends.
    OSError: the disk has no space for the results. It is reserved before anything is read.
    MemoryError: the results do not fit the memory.

A file appears at its path when it is complete. Until then it has a unique name in the same folder, which ends in
`.part`. An error removes it. A signal that ends the process, such as SIGTERM, leaves it there; no call reads it.
"""

from __future__ import annotations

import errno
import math
import mmap
import operator
import os
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, cast, overload

import numpy as np

from dmlgpu.arguments import Direction, ElementType, Function, Ints, Shape
from dmlgpu.chunks.pooling import Pooling
from dmlgpu.chunks.reduction import Reduction
from dmlgpu.chunks.regions import Region, Regions
from dmlgpu.descriptors.arrays import Array, as_array, check_plain, described
from dmlgpu.descriptors.dtypes import DataType
from dmlgpu.descriptors.pooling import AveragePooling1OperatorDesc, LpPooling1OperatorDesc, MaxPooling2OperatorDesc
from dmlgpu.descriptors.reduction import ArgmaxOperatorDesc, ArgminOperatorDesc, AxisDirection
from dmlgpu.descriptors.tensor import integer
from dmlgpu.errors import DescriptorError, shown
from dmlgpu.files import written
from dmlgpu.functions import Selector, open_device
from dmlgpu.runtime.tensor import DeviceTensor

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import TypeVar

    Out = TypeVar("Out", default=Array)  # what a call returns: its `out`, else an array

__all__ = ["argmax", "argmin", "average_pooling", "lp_pooling", "max_pooling", "reduce"]

CHUNK_BYTES = 64 << 20
# The system or the file system cannot reserve space, or there is nothing to reserve. None: no posix_fallocate.
_NO_FALLOCATE = (None, errno.EINVAL, errno.ENODEV, errno.ENOSYS, errno.EOPNOTSUPP)
# Each chunk takes some tenths of a millisecond, however small it is: this many take minutes.
_MOST_CHUNKS = 1 << 20

# Adjacent elements: slices of fewer take a disk much longer than longer ones.
_RUN = 1 << 14

Progress = Callable[[int, int], object] | None


def argmax(
    x: Any,
    axis: Ints | None = None,
    *,
    axes: Ints | None = None,
    keepdims: bool | None = None,
    axis_direction: Direction = AxisDirection.INCREASING,
    output_data_type: ElementType = DataType.INT64,
    device: Selector = None,
    out: Out | str | Path | None = None,
    chunk_bytes: int = CHUNK_BYTES,
    progress: Progress = None,
) -> Out:
    """The index of the maximum over one or more axes; see `dmlgpu.argmax`.

    Example:
        >>> import numpy as np
        >>> from dmlgpu import streaming
        >>> x = np.arange(24, dtype=np.float32).reshape(4, 6)  # np.memmap, zarr, h5py ...
        >>> streaming.argmax(x, axis=0, chunk_bytes=32).tolist()
        [3, 3, 3, 3, 3, 3]
    """
    shape, dtype = _array(x, "argmax")
    arguments = axis, axes, keepdims, axis_direction, output_data_type
    reduction = Reduction.of_arg(ArgmaxOperatorDesc, shape, dtype, *arguments)
    return _reduced(reduction, x, device, out, chunk_bytes, progress)


def argmin(
    x: Any,
    axis: Ints | None = None,
    *,
    axes: Ints | None = None,
    keepdims: bool | None = None,
    axis_direction: Direction = AxisDirection.INCREASING,
    output_data_type: ElementType = DataType.INT64,
    device: Selector = None,
    out: Out | str | Path | None = None,
    chunk_bytes: int = CHUNK_BYTES,
    progress: Progress = None,
) -> Out:
    """The index of the minimum over one or more axes; see `dmlgpu.argmin`.

    Example:
        >>> import numpy as np
        >>> from dmlgpu import streaming
        >>> x = np.arange(24, dtype=np.float32).reshape(4, 6)  # np.memmap, zarr, h5py ...
        >>> int(streaming.argmin(x, chunk_bytes=32))
        0
    """
    shape, dtype = _array(x, "argmin")
    arguments = axis, axes, keepdims, axis_direction, output_data_type
    reduction = Reduction.of_arg(ArgminOperatorDesc, shape, dtype, *arguments)
    return _reduced(reduction, x, device, out, chunk_bytes, progress)


def reduce(
    x: Any,
    function: Function,
    axis: Ints | None = None,
    *,
    keepdims: bool | None = None,
    axes: Ints | None = None,
    output_data_type: ElementType | None = None,
    exact: bool = False,
    device: Selector = None,
    out: Out | str | Path | None = None,
    chunk_bytes: int = CHUNK_BYTES,
    progress: Progress = None,
) -> Out:
    """A function of the elements along one or more axes; see `dmlgpu.reduce`.

    Example:
        >>> import numpy as np
        >>> from dmlgpu import streaming
        >>> x = np.arange(24, dtype=np.float32).reshape(4, 6)  # np.memmap, zarr, h5py ...
        >>> streaming.reduce(x, "sum", axis=1, out="sums.npy").tolist()
        [15.0, 51.0, 87.0, 123.0]
        >>> np.load("sums.npy").shape
        (4,)
    """
    shape, dtype = _array(x, "reduce")
    reduction = Reduction.of_reduce(
        shape, dtype, function, axis, axes=axes, keepdims=keepdims, output_data_type=output_data_type, exact=exact
    )
    return _reduced(reduction, x, device, out, chunk_bytes, progress)


@overload
def max_pooling(
    x: Any, window_size: Ints, *,
    strides: Ints | None = ..., padding: Ints | None = ..., start_padding: Ints | None = ...,
    end_padding: Ints | None = ..., dilations: Ints | None = ..., output_sizes: Ints | None = ...,
    output_indices: Literal[False] = ..., indices_data_type: ElementType = ..., device: Selector = ...,
    out: Out | str | Path | None = ..., chunk_bytes: int = ..., progress: Progress = ...,
) -> Out: ...  # fmt: skip
@overload
def max_pooling(
    x: Any, window_size: Ints, *,
    strides: Ints | None = ..., padding: Ints | None = ..., start_padding: Ints | None = ...,
    end_padding: Ints | None = ..., dilations: Ints | None = ..., output_sizes: Ints | None = ...,
    output_indices: Literal[True], indices_data_type: ElementType = ..., device: Selector = ...,
    out: Sequence[Out | str | Path | None] | None = ..., chunk_bytes: int = ..., progress: Progress = ...,
) -> tuple[Out, Out]: ...  # fmt: skip
@overload
def max_pooling(
    x: Any, window_size: Ints, *,
    strides: Ints | None = ..., padding: Ints | None = ..., start_padding: Ints | None = ...,
    end_padding: Ints | None = ..., dilations: Ints | None = ..., output_sizes: Ints | None = ...,
    output_indices: bool, indices_data_type: ElementType = ..., device: Selector = ...,
    out: Any = ..., chunk_bytes: int = ..., progress: Progress = ...,
) -> Any: ...  # fmt: skip
def max_pooling(
    x: Any,
    window_size: Ints,
    *,
    strides: Ints | None = None,
    padding: Ints | None = None,
    start_padding: Ints | None = None,
    end_padding: Ints | None = None,
    dilations: Ints | None = None,
    output_sizes: Ints | None = None,
    output_indices: bool = False,
    indices_data_type: ElementType = DataType.INT64,
    device: Selector = None,
    out: Any = None,
    chunk_bytes: int = CHUNK_BYTES,
    progress: Progress = None,
) -> Any:
    """The maximum of every window, and its index where that is asked for; see `dmlgpu.max_pooling`.

    Example:
        >>> import numpy as np
        >>> from dmlgpu import streaming
        >>> x = np.arange(24, dtype=np.float32).reshape(4, 6)  # np.memmap, zarr, h5py ...
        >>> values, indices = streaming.max_pooling(x, 2, strides=2, output_indices=True, chunk_bytes=64)
        >>> indices.tolist()
        [[7, 9, 11], [19, 21, 23]]
    """
    shape, dtype = _array(x, "max_pooling")
    pooling = Pooling.of(
        MaxPooling2OperatorDesc,
        shape,
        dtype,
        window_size,
        strides=strides,
        padding=padding,
        start_padding=start_padding,
        end_padding=end_padding,
        dilations=dilations,
        output_sizes=output_sizes,
        output_indices=output_indices,
        indices_data_type=indices_data_type,
    )
    return _pooled(pooling, x, device, out, chunk_bytes, progress)


def average_pooling(
    x: Any,
    window_size: Ints,
    *,
    strides: Ints | None = None,
    padding: Ints | None = None,
    start_padding: Ints | None = None,
    end_padding: Ints | None = None,
    dilations: Ints | None = None,
    output_sizes: Ints | None = None,
    include_padding: bool = False,
    exact: bool = False,
    device: Selector = None,
    out: Out | str | Path | None = None,
    chunk_bytes: int = CHUNK_BYTES,
    progress: Progress = None,
) -> Out:
    """The average of every window; see `dmlgpu.average_pooling`.

    Example:
        >>> import numpy as np
        >>> from dmlgpu import streaming
        >>> x = np.arange(24, dtype=np.float32).reshape(4, 6)  # np.memmap, zarr, h5py ...
        >>> streaming.average_pooling(x, 2, strides=2).tolist()
        [[3.5, 5.5, 7.5], [15.5, 17.5, 19.5]]
    """
    shape, dtype = _array(x, "average_pooling")
    pooling = Pooling.of(
        AveragePooling1OperatorDesc,
        shape,
        dtype,
        window_size,
        strides=strides,
        padding=padding,
        start_padding=start_padding,
        end_padding=end_padding,
        dilations=dilations,
        output_sizes=output_sizes,
        include_padding=include_padding,
        exact=exact,
    )
    return _pooled(pooling, x, device, out, chunk_bytes, progress)


def lp_pooling(
    x: Any,
    window_size: Ints,
    *,
    p: int = 2,
    strides: Ints | None = None,
    padding: Ints | None = None,
    start_padding: Ints | None = None,
    end_padding: Ints | None = None,
    dilations: Ints | None = None,
    output_sizes: Ints | None = None,
    device: Selector = None,
    out: Out | str | Path | None = None,
    chunk_bytes: int = CHUNK_BYTES,
    progress: Progress = None,
) -> Out:
    """The Lp norm of every window; see `dmlgpu.lp_pooling`.

    Example:
        >>> import numpy as np
        >>> from dmlgpu import streaming
        >>> x = np.arange(24, dtype=np.float32).reshape(4, 6)  # np.memmap, zarr, h5py ...
        >>> streaming.lp_pooling(x, (4, 1), p=1).tolist()
        [[36.0, 40.0, 44.0, 48.0, 52.0, 56.0]]
    """
    shape, dtype = _array(x, "lp_pooling")
    pooling = Pooling.of(
        LpPooling1OperatorDesc,
        shape,
        dtype,
        window_size,
        strides=strides,
        padding=padding,
        start_padding=start_padding,
        end_padding=end_padding,
        dilations=dilations,
        output_sizes=output_sizes,
        p=p,
    )
    return _pooled(pooling, x, device, out, chunk_bytes, progress)


def _reduced(
    reduction: Reduction, x: Any, device: Selector, out: Out | str | Path | None, chunk_bytes: Any, progress: Progress
) -> Out:
    device = open_device(device)
    axes = reduction.axes
    itemsize: int = np.dtype(x.dtype).itemsize
    # An exact sum has up to 20 words for each output of a chunk: so chunks have as many elements of an output as fit.
    first = axes if reduction.exact else ()
    sizes = _chunk_sizes(reduction.shape, _stored(x), x, chunk_bytes, lambda sizes: itemsize * math.prod(sizes), first)
    # First all chunks of one region of the outputs, then all of the next one.
    along = tuple(size if axis in axes else 1 for axis, size in enumerate(reduction.shape))
    regions, parts = Regions(reduction.sizes, sizes), Regions(along, sizes)
    state: Array | None = None

    def chunk(i: int) -> Region:
        region, part = regions[i // parts.count], parts[i % parts.count]
        return tuple((part if axis in axes else region)[axis] for axis in range(len(sizes)))

    def compute(i: int, elements: Array) -> None:
        nonlocal state
        number, part = divmod(i, parts.count)
        begin = tuple(each.start for each in chunk(i))
        if parts.count == 1:
            outputs = reduction.outputs(elements, begin, device)
        else:
            found = reduction.state(elements, begin, device)
            state = found if part == 0 else reduction.merged(np.concatenate([state, found], axes[0]))
            if part + 1 < parts.count:
                return
            outputs = reduction.result(state)
        targets[0][reduction.reduced(regions[number])] = outputs
        _give_pages_back(targets[0])

    with _targets(x, reduction.reduced(reduction.sizes), (reduction.dtype,), out) as targets:
        _run(x, regions.count * parts.count, chunk, compute, progress)
    return _returned(targets, out)


def _pooled(
    pooling: Pooling, x: Any, device: Selector, out: Out | str | Path | None, chunk_bytes: Any, progress: Progress
) -> Out:
    device = open_device(device)
    itemsize: int = np.dtype(x.dtype).itemsize
    leading = pooling.leading
    strides = (*(1,) * leading, *(dimension.stride for dimension in pooling.dimensions))
    stored = tuple(max(size // stride, 1) for size, stride in zip(_stored(x), strides, strict=True))

    def needed(sizes: Shape) -> int:
        extents = (dimension.extent(size) for dimension, size in zip(pooling.dimensions, sizes[leading:], strict=True))
        return itemsize * math.prod((*sizes[:leading], *extents))

    regions = Regions(pooling.output_shape, _chunk_sizes(pooling.output_shape, stored, x, chunk_bytes, needed))

    def compute(i: int, elements: Array) -> None:
        # With no name for a target: an error would keep it, and Windows cannot remove a mapped file.
        for j, part in enumerate(pooling.outputs(elements, regions[i], device)):
            targets[j][regions[i]] = part
            _give_pages_back(targets[j])

    with _targets(x, pooling.output_shape, pooling.dtypes, out) as targets:
        _run(x, regions.count, lambda i: pooling.source(regions[i]), compute, progress)
    return _returned(targets, out)


def _array(x: Any, name: str) -> tuple[Shape, np.dtype[Any]]:
    """The shape and the type of an array that is read by slices."""
    if isinstance(x, DeviceTensor):
        raise DescriptorError(f"streaming.{name}: {x.description} is on a device; call dmlgpu.{name}")
    check_plain(x, f"streaming.{name}")
    try:
        shape, dtype = tuple(map(operator.index, x.shape)), np.dtype(x.dtype)
        taken = callable(x.__getitem__)
    except (AttributeError, TypeError):
        taken = False
    if not taken or not shape:
        raise DescriptorError(
            f"streaming.{name}: {described(x)} cannot be read by slices; allowed are arrays with a NumPy type and one "
            "dimension or more, as np.memmap, arrays of zarr and datasets of h5py"
        )
    return shape, dtype


@contextmanager
def _targets(x: Any, shape: Shape, dtypes: tuple[np.dtype[Any], ...], out: Any) -> Iterator[list[Any]]:
    """The arrays that results are written to: `out`, or new ones. Files get their names when they are complete."""
    several = len(dtypes) > 1
    outs = (None,) * len(dtypes) if out is None else out if several else (out,)
    if not isinstance(outs, (tuple, list)) or len(outs) != len(dtypes) or isinstance(outs[0], (tuple, list)):
        allowed = f"a tuple of {len(dtypes)} arrays or paths" if several else "one array or path"
        raise DescriptorError(f"out: {described(out)} is not allowed; allowed is {allowed}")
    targets: list[Any] = []
    files: dict[int, str] = {}
    with ExitStack() as unfinished:
        for i, (target, dtype) in enumerate(zip(outs, dtypes, strict=True)):
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


def _in_memory(shape: Shape, dtype: np.dtype[Any]) -> Array:
    try:
        return np.empty(shape, dtype)
    except (MemoryError, OverflowError, ValueError) as error:
        raise MemoryError(f"out: results do not fit this machine's memory, and may go to a file: {error}") from None


def _in_file(path: str, shape: Shape, dtype: np.dtype[Any]) -> Any:
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
    """Reserves `size` more bytes for a file: on a full disk, writing to a mapped file would end the process.

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


def _check_target(target: Any, shape: Shape, dtype: np.dtype[Any], others: Sequence[Any]) -> None:
    if not callable(getattr(target, "__setitem__", None)) or getattr(target, "dtype", None) != dtype:
        raise TypeError(f"out: {described(target)} is not allowed; allowed is an array of {dtype} that takes slices")
    if tuple(target.shape) != shape:
        raise DescriptorError(f"out: the shape {tuple(target.shape)} is wrong; expected {shape}")
    if isinstance(target, np.ndarray) and not _is_apart(target):
        raise DescriptorError(f"out: {described(target)} has strides {target.strides}: elements may share memory")
    if any(_overlap(target, other) for other in others):
        raise DescriptorError(f"out: {described(target)} lies in x, or in another result; it needs memory of its own")


def _is_apart(x: Array) -> bool:
    """Whether each element has memory of its own, as in every slice or transposition of an array."""
    reach = x.itemsize
    for stride, size in sorted((abs(stride), size) for stride, size in zip(x.strides, x.shape, strict=True)):
        if size > 1:
            if stride < reach:
                return False
            reach += (size - 1) * stride
    return True


def _overlap(a: Any, b: Any) -> bool:
    """Whether arrays may have elements in common, as far as is known."""
    files = [file for file in (_file(a), _file(b)) if file is not None and os.path.exists(file)]
    if len(files) == 2 and os.path.samefile(*files):
        # Windows knows no number of a file that it cannot open.
        return os.stat(files[0]).st_ino != 0 or os.path.realpath(files[0]) == os.path.realpath(files[1])
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return np.may_share_memory(a, b)
    return type(a) is type(b) and bool(a == b)


def _file(x: Any) -> Any:
    """The path of the file of a mapped array, or of the folder of a zarr array; None for others."""
    if isinstance(x, np.ndarray):
        return getattr(_owner(x), "filename", None)
    store = getattr(x, "store", None)
    root, path = getattr(store, "root", getattr(store, "path", None)), getattr(x, "path", None)
    return os.path.join(root, path) if isinstance(root, (str, os.PathLike)) and isinstance(path, str) else None


def _owner(x: Any) -> Any:
    """The array that x is a view of, or x itself; for a mapped file, the np.memmap that mapped it."""
    while isinstance(x, np.ndarray) and not isinstance(x.base, (mmap.mmap, type(None))):
        # Between an array and its strided view NumPy puts an object that only has a base.
        x = x.base if isinstance(x.base, np.ndarray) else getattr(x.base, "base", x.base)
    return x


def _returned(targets: list[Any], out: Out | str | Path | None) -> Out:
    """The results as functions return them: one, or a tuple; without `out`, NumPy scalars if no axis is left."""
    returned = tuple(target[()] if out is None else target for target in targets)
    return cast("Out", returned[0] if len(returned) == 1 else returned)


def _stored(x: Any) -> Shape:
    """The sizes of the chunks in which zarr or HDF5 stores an array; all 1 if it has none."""
    chunks = getattr(x, "chunks", None)
    if isinstance(chunks, tuple) and all(isinstance(size, int) for size in chunks):
        return chunks
    return (1,) * len(x.shape)


def _chunk_sizes(
    shape: Shape, stored: Shape, x: Any, chunk_bytes: Any, needed: Callable[[Shape], int], first: Shape = ()
) -> Shape:
    """The sizes of chunks: as much of each dimension as fits, first of the one whose elements are adjacent in memory.

    Args:
        shape: the shape of the array or outputs that are cut into chunks.
        stored: chunk sizes are multiples of these, if that fits.
        x: the array that is read.
        chunk_bytes: the most bytes of x that are read at once.
        needed: the bytes of x that are read for a chunk, from its sizes.
        first: dimensions that come before all others; slices still have _RUN adjacent elements, if that fits.
    """
    most = integer("streaming", "chunk_bytes", chunk_bytes)
    if most < 1:
        raise DescriptorError(
            f"streaming.chunk_bytes: {shown(chunk_bytes)} is not allowed; allowed are bytes from 1 on"
        )
    order = [*reversed(range(len(shape)))]
    if isinstance(x, np.ndarray):
        order.sort(key=lambda axis: abs(x.strides[axis]))
    if first and max(stored) <= 1:
        stored = tuple(_RUN if axis == order[0] else 1 for axis in range(len(shape)))
    order.sort(key=lambda axis: axis not in first)
    unit = tuple(min(max(each, 1), max(size, 1)) for each, size in zip(stored, shape, strict=True))
    if needed(unit) > most:
        unit = (1,) * len(shape)
    sizes = unit

    def cut(sizes: Shape, axis: int, parts: int) -> Shape:
        """`sizes` with one dimension cut into `parts` parts, as even as units allow."""
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
            f"streaming.chunk_bytes: {most} bytes make {count} chunks; allowed are bytes that make {_MOST_CHUNKS} at "
            f"most, and the default is {CHUNK_BYTES}"
        )
    return sizes


def _run(
    x: Any, count: int, chunk: Callable[[int], Region], compute: Callable[[int, Array], None], progress: Progress
) -> None:
    """Calls `compute` with the number and the elements of each of `count` chunks; meanwhile a thread reads the next."""
    with ThreadPoolExecutor(1, "dmlgpu reader") as reader:
        ahead = [reader.submit(_elements, x, chunk(i)) for i in range(count)[:1]]
        for i in range(count):
            elements = ahead.pop().result()
            ahead += [reader.submit(_elements, x, chunk(following)) for following in range(count)[i + 1 : i + 2]]
            compute(i, elements)
            if progress is not None:
                progress(i + 1, count)


def _elements(x: Any, chunk: Region) -> Array:
    part = as_array(x[chunk], "x")
    expected = tuple(each.stop - each.start for each in chunk)
    if part.shape != expected or part.dtype != x.dtype:
        raise DescriptorError(f"x[{chunk}] is {described(part)}; x.shape and x.dtype say {expected} and {x.dtype}")
    if type(x) is not np.ndarray:
        # The next read may overwrite this memory. If it is mapped from a file, the copy is what reads the file.
        part = part.copy()
        _give_pages_back(x)
    return part


def _give_pages_back(x: Any) -> None:
    """Releases the resident pages of a mapped file, if that loses nothing.

    Otherwise the resident memory grows to the size of the file. Written pages stay in the page cache. A copy-on-write
    mapping would lose its changes; a mapping without np.memmap does not tell whether it is one, so it is left alone.
    """
    owner = _owner(x)
    mapped = getattr(owner, "base", None)
    loses_nothing = getattr(owner, "mode", None) in ("r", "r+", "w+")
    if isinstance(mapped, mmap.mmap) and loses_nothing and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)
