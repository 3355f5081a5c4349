"""Reductions with the signatures of the Python array API standard: argmax, argmin, max, min, sum, prod and mean.

    from dmlgpu.interop import array_api as xp
    xp.sum(x, axis=(0, 2), keepdims=True)

The result for a device tensor is a device tensor. For anything that NumPy can view, such as arrays of other libraries
on the host, it is a NumPy array, or a NumPy scalar if no axis is left. The standard has no `device=`: functions run on
the device of a device tensor, else on the default device of dmlgpu.

All functions raise:
    TypeError: the function does not take x's type or `dtype`; the message lists the types that it takes.
    ValueError: an axis is not allowed, or a maximum, a minimum or an index is asked of no elements.
    DeviceError: there is no device. OutOfMemoryError: x does not fit it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dmlgpu import functions
from dmlgpu.descriptors.arrays import as_array
from dmlgpu.descriptors.dtypes import conversion
from dmlgpu.descriptors.operator import SELECTED_TYPES
from dmlgpu.descriptors.reduction import REDUCE_TYPES, ReduceFunction
from dmlgpu.runtime.tensor import DeviceTensor

__all__ = ["argmax", "argmin", "max", "mean", "min", "prod", "sum"]

Type = np.dtype[Any]


def argmax(x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Any:
    """The int64 index of the first maximum along an axis; axis=None: in all of x, in row-major order.

    x is of an integer type, bool, float16, float32 or float64. A NaN counts as greater than any number.
    """
    return _reduced(ReduceFunction.ARGMAX, x, axis, keepdims)


def argmin(x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Any:
    """The index of the first minimum; otherwise as `argmax`. A NaN counts as less than any number."""
    return _reduced(ReduceFunction.ARGMIN, x, axis, keepdims)


def max(x: Any, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Any:
    """The maximum along axes (None: all of them), in x's type, which is any type of `argmax`. A NaN wins."""
    return _reduced(ReduceFunction.MAX, x, axis, keepdims)


def min(x: Any, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Any:
    """The minimum along axes; otherwise as `max`."""
    return _reduced(ReduceFunction.MIN, x, axis, keepdims)


def sum(x: Any, /, *, axis: int | tuple[int, ...] | None = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """The sum along axes (None: all of them).

    x is of an integer type, float16 or float32; so is `dtype`, which x is converted to before it is summed. dtype=None:
    int64 for signed integers, uint64 for unsigned ones, x's type for floats. Integers wrap. A device tensor is not
    converted: int32 and uint32 need dtype=x.dtype. The sum of no elements is 0.
    """
    return _reduced(ReduceFunction.SUM, x, axis, keepdims, dtype)


def prod(x: Any, /, *, axis: int | tuple[int, ...] | None = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """The product along axes. The product of no elements is 1; otherwise as `sum`."""
    return _reduced(ReduceFunction.MULTIPLY, x, axis, keepdims, dtype)


def mean(x: Any, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Any:
    """The mean along axes (None: all of them), of x's type, float16 or float32. The mean of no elements is NaN."""
    return _reduced(ReduceFunction.AVERAGE, x, axis, keepdims)


_NAMES = {ReduceFunction.MULTIPLY: "prod", ReduceFunction.AVERAGE: "mean"}
# Results for no elements; the other functions have none.
_OF_NOTHING = {ReduceFunction.SUM: 0, ReduceFunction.MULTIPLY: 1, ReduceFunction.AVERAGE: np.nan}
_WIDENING = (ReduceFunction.SUM, ReduceFunction.MULTIPLY)


def _reduced(function: ReduceFunction, x: Any, axis: Any, keepdims: bool, dtype: Any = None) -> Any:
    name = f"array_api.{_NAMES.get(function, function.name.lower())}"
    if not isinstance(x, DeviceTensor):
        x = as_array(x, f"{name}.x")
    computed, narrow = _types(name, function, x.dtype.newbyteorder("="), dtype)
    if isinstance(x, DeviceTensor) and (narrow or computed != x.dtype):
        raise TypeError(
            f"{name}: {x!r} would have to be converted to {computed}, and a device tensor is not; "
            "pass x.numpy(), or dtype=x.dtype where that has 32 or 64 bits"
        )
    if computed != x.dtype:
        x = x.astype(computed)
    if x.size == 0 and function in _OF_NOTHING:
        shape = np.any(x, axis=axis, keepdims=keepdims).shape
        result = np.full(shape, _OF_NOTHING[function], computed)[()]
    elif isinstance(axis, tuple) and not axis and x.ndim:
        # Over no axes each element is a result: reduce over an added last axis of size 1.
        result = functions.reduce(x.reshape(-1, 1), function, 1).reshape(x.shape)
    else:
        result = functions.reduce(x, function, axis if x.ndim else axis or None, keepdims=keepdims)
    return result if narrow is None else result.astype(narrow)


def _types(name: str, function: ReduceFunction, source: Type, dtype: Any) -> tuple[Type, Type | None]:
    """The type that x is converted to; and a narrower type for the result, which keeps its lowest bits, or None."""
    taken = [each.numpy for each in REDUCE_TYPES[function]["input_tensor"]]
    widening = function in _WIDENING
    data_types = [each for each in SELECTED_TYPES if _wide(each.numpy) in taken]
    allowed = [each.numpy for each in data_types]
    if np.dtype(np.uint8) in taken:
        allowed.append(np.dtype(bool))
    wanted = source if dtype is None else np.dtype(dtype).newbyteorder("=")
    if wanted not in allowed or source.kind not in "biuf":
        refused = f"dtype={wanted} of {source}" if dtype is not None else source
        how = conversion(source.name, data_types) if dtype is None else ""
        raise TypeError(f"{name}: {refused} is not supported; allowed are {', '.join(map(str, allowed))}{how}")
    if dtype is None:
        return (_wide(wanted) if widening else wanted), None
    return (wanted, None) if wanted in taken else (_wide(wanted), wanted)


def _wide(dtype: Type) -> Type:
    """The 64-bit type for integers, signed or unsigned; floats stay."""
    return np.dtype({"i": np.int64, "u": np.uint64}.get(dtype.kind, dtype))
