"""Reads and writes arrays in memory that has the layout of a `TensorDesc`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dmlgpu.descriptors.arrays import Array
from dmlgpu.descriptors.tensor import TensorDesc
from dmlgpu.errors import DescriptorError

Bytes = npt.NDArray[np.uint8]

# The most bytes of a part that is copied.
_PART_BYTES = 1 << 20


def bits(array: Array) -> Array:
    """The elements as unsigned integers, to compare them bit for bit."""
    native = array.astype(array.dtype.newbyteorder("="), order="C", copy=False)
    words: Array = native.view(f"u{native.itemsize}")
    return words


def elements(desc: TensorDesc, memory: Bytes) -> Array:
    """The elements of a tensor as a view of its bytes."""
    dtype = desc.data_type.numpy
    strides = None if desc.strides is None else [stride * dtype.itemsize for stride in desc.strides]
    view: Array = np.ndarray(desc.sizes, dtype, memory.data, strides=strides)
    return view


def check(desc: TensorDesc, field: str, x: Array) -> None:
    """Raises a DescriptorError if an array has other sizes or another type than its tensor; `field` names it.

    Arrays of bool count as UINT8.
    """
    if x.shape != desc.sizes:
        raise DescriptorError(f"{field}.sizes: the operator is compiled for {desc.sizes}, the array has {x.shape}")
    dtype = np.dtype(np.uint8) if x.dtype == np.bool_ else x.dtype.newbyteorder("=")
    if dtype != desc.data_type.numpy:
        raise DescriptorError(
            f"{field}.data_type: the operator is compiled for {desc.data_type.name}, the array is {x.dtype}"
        )


def parts(desc: TensorDesc, field: str, x: Array) -> Iterator[Bytes]:
    """The bytes of a tensor with the elements of an array, one part after the other; bytes between elements are 0.

    A part of a tensor without gaps is a view of the array, or small; others have one part. Errors as of `write`.
    """
    order = sorted(range(x.ndim), key=lambda axis: -desc.element_strides[axis])
    sizes, strides = zip(*((x.shape[axis], desc.element_strides[axis]) for axis in order), strict=True)
    if replace(desc, sizes=sizes, strides=strides).is_packed:
        yield from _packed_parts(x.transpose(order))
        return
    memory = np.zeros(desc.size_in_bytes, np.uint8)
    write(desc, field, x, memory)
    yield memory


def _packed_parts(x: Array) -> Iterator[Bytes]:
    """The bytes of an array in row-major order."""
    dtype = np.dtype(np.uint8) if x.dtype == np.bool_ else x.dtype.newbyteorder("=")
    if (x.flags.c_contiguous and x.dtype == dtype) or x.nbytes <= _PART_BYTES:
        yield x.astype(dtype, order="C", copy=False).reshape(-1).view(np.uint8)
        return
    rows = _PART_BYTES * len(x) // x.nbytes
    for i in range(0, len(x), max(rows, 1)):
        yield from _packed_parts(x[i : i + rows] if rows else x[i])


def write(desc: TensorDesc, field: str, x: Array, memory: Bytes) -> None:
    """Writes an array to the elements of its tensor, and nothing to the gaps between them; bool as 0 and 1.

    Raises:
        DescriptorError: elements that share memory in the tensor (a stride 0) differ in the array.
    """
    target = elements(desc, memory)
    if desc.overlaps is not False:
        # Where both strides are 0, the dimension has one element: it is written and compared once.
        strides = zip(desc.element_strides, x.strides, strict=True)
        once = tuple(slice(1 if there == here == 0 else None) for there, here in strides)
        target, x = target[once], x[once]
    x = x.astype(np.uint8) if x.dtype == np.bool_ else x  # a bool's byte may be neither 0 nor 1
    target[...] = x
    if desc.overlaps is not False and not np.array_equal(bits(target), bits(x)):
        raise DescriptorError(
            f"{field}.strides: elements that share memory with strides {desc.element_strides} differ in the array"
        )
