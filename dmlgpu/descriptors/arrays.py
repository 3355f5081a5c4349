"""Converts what callers pass as arrays to plain ndarrays."""

from __future__ import annotations

import sys
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dmlgpu.errors import DescriptorError, shown

Array = npt.NDArray[Any]


class SupportsDLPack(Protocol):
    """An array of another library, by DLPack."""

    def __dlpack__(self, *arguments: Any, **options: Any) -> Any:
        """The capsule."""


# Anything that NumPy can view.
ArrayLike = npt.ArrayLike | SupportsDLPack

_VIEWABLE = ("__array__", "__array_interface__", "__array_struct__")
# A subclass of ndarray that overrides one of these gives its elements a meaning of its own.
_HOOKS = ("__array_ufunc__", "__array_function__")


def as_array(x: Any, field: str) -> Array:
    """Anything that NumPy can view, as an ndarray: `__array__`, `__array_interface__`, buffers, DLPack on the CPU.

    Args:
        x: the object to view.
        field: its name in errors: a descriptor and its field.

    Raises:
        DescriptorError: x is no array of numbers: None, a string, a list of unequal lengths. Or it is, or is a list
            with, what `check_plain` refuses.
    """
    if type(x) is np.ndarray and x.ndim:  # as almost always: nothing below would find fault with it
        return x
    if hasattr(x, "__dlpack__") and not _is_viewable(x):
        return np.from_dlpack(x)
    check_plain(x, field)
    try:
        array: Array = np.asanyarray(x)  # `__array__` may return a masked array
    except TypeError as error:
        if not hasattr(x, "dtype"):
            raise
        raise TypeError(f"{field}: {described(x)} has a type that NumPy lacks ({error}); convert it first") from error
    except ValueError as error:
        if _is_viewable(x):  # the error is its own
            raise
        raise DescriptorError(f"{field}: {error}") from error  # for example lists of unequal lengths
    except MemoryError as error:
        if not isinstance(x, range):
            raise
        raise DescriptorError(f"{field}: {x} has more elements than memory holds") from error
    if array.ndim == 0 and array.dtype.kind in "OSU":
        raise DescriptorError(f"{field}: {described(x)} is nothing that NumPy can view as an array of numbers")
    if array is not x:
        check_plain(array, field)
    if not _is_viewable(x):
        _check_items(x, field, array.ndim)
    return np.asarray(array)


def _is_viewable(x: Any) -> bool:
    return any(hasattr(x, name) for name in _VIEWABLE)


def described(x: Any) -> str:
    """What an input is, for errors: an array's class, type and shape, without elements; the first items of a list."""
    if isinstance(x, (tuple, list)):
        return f"({', '.join([*map(described, x[:4]), *['...'] * (len(x) > 4)])})"
    is_array = hasattr(x, "shape") and hasattr(x, "dtype") and not isinstance(x, type)
    return f"{type(x).__name__} of {x.dtype} and {shown(x.shape)}" if is_array else shown(x)


def check_plain(x: Any, field: str) -> None:
    """Checks, without reading it, that an array is no more than its elements; what is no array passes.

    Raises:
        DescriptorError: x, or what Dask says of its chunks, is a masked array or a subclass of ndarray with a meaning
            of its own (units, a matrix): an ndarray would lose it silently.
    """
    array = getattr(x, "_meta", x)
    if not isinstance(array, np.ndarray):
        return
    alone = "its elements alone are np.asarray(x)"
    # NumPy 2 imports numpy.ma at first use, in 50 ms. If there is a masked array, it is imported already.
    ma = sys.modules.get("numpy.ma")
    if ma is not None and isinstance(array, ma.MaskedArray):
        raise DescriptorError(f"{field}: a masked array, and a tensor has no mask; fill it, as by x.filled(0); {alone}")
    kind = type(array)
    if isinstance(array, np.matrix) or any(getattr(kind, hook) is not getattr(np.ndarray, hook) for hook in _HOOKS):
        raise DescriptorError(f"{field}: an array of type {kind.__name__}, and a tensor is a plain ndarray; {alone}")


def _check_items(x: Any, field: str, depth: int) -> None:
    """`check_plain` for each array in lists and other sequences: NumPy would stack them as plain arrays."""
    if depth == 0 or isinstance(x, (str, bytes, bytearray, memoryview)):
        return
    for item in x:
        if isinstance(item, (int, float, np.generic)):
            continue
        if _is_viewable(item):
            check_plain(np.asanyarray(item), field)
        else:
            _check_items(item, field, depth - 1)
