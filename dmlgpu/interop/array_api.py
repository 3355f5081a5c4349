"""Reductions with the signatures of the Python array API standard: argmax, argmin, max, min, sum, prod and mean.

    from dmlgpu.interop import array_api as xp
    xp.sum(x, axis=(0, 2), keepdims=True)

The result for a device tensor is a device tensor. For anything that NumPy can view, such as arrays of other libraries
on the host, it is a NumPy array, or a NumPy scalar if no axis is left. The standard has no `device=`: functions run on
the device of a device tensor, else on the default device of dmlgpu.

Raises:
    TypeError: the function does not take x's type or `dtype`; the message lists the types that it takes.
    ValueError: x is no array, an axis is not allowed, or a maximum, a minimum or an index is asked of no elements.
    DeviceError: there is no device. OutOfMemoryError: x does not fit it.
"""

from __future__ import annotations

from typing import Any

from dmlgpu import functions
from dmlgpu.arguments import ElementType
from dmlgpu.descriptors.arrays import ArrayLike
from dmlgpu.descriptors.reduction import ReduceFunction

__all__ = ["argmax", "argmin", "max", "mean", "min", "prod", "sum"]


def argmax(x: ArrayLike, /, *, axis: int | None = None, keepdims: bool = False) -> Any:
    """The int64 index of the first maximum along an axis; axis=None: in all of x, in row-major order.

    x is of an integer type, bool, float16, float32 or float64. A NaN counts as greater than any number.

    Example:
        >>> import numpy as np
        >>> from dmlgpu.interop import array_api as xp
        >>> x = np.int8([[1, 5], [7, 2]])
        >>> xp.argmax(x, axis=1).tolist()
        [1, 0]
    """
    return functions.numpy_reduce("argmax", ReduceFunction.ARGMAX, x, axis, keepdims)


def argmin(x: ArrayLike, /, *, axis: int | None = None, keepdims: bool = False) -> Any:
    """The index of the first minimum; otherwise as `argmax`. A NaN counts as less than any number.

    Example:
        >>> import numpy as np
        >>> from dmlgpu.interop import array_api as xp
        >>> x = np.int8([[1, 5], [7, 2]])
        >>> int(xp.argmin(x))
        0
    """
    return functions.numpy_reduce("argmin", ReduceFunction.ARGMIN, x, axis, keepdims)


def max(x: ArrayLike, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Any:
    """The maximum along axes (None: all of them), in x's type, which is any type of `argmax`. A NaN wins.

    Example:
        >>> import numpy as np
        >>> from dmlgpu.interop import array_api as xp
        >>> x = np.int8([[1, 5], [7, 2]])
        >>> xp.max(x, axis=0).tolist()
        [7, 5]
    """
    return functions.max(x, axis, keepdims=keepdims)


def min(x: ArrayLike, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Any:
    """The minimum along axes; otherwise as `max`.

    Example:
        >>> import numpy as np
        >>> from dmlgpu.interop import array_api as xp
        >>> x = np.int8([[1, 5], [7, 2]])
        >>> xp.min(x, axis=(0, 1), keepdims=True).tolist()
        [[1]]
    """
    return functions.min(x, axis, keepdims=keepdims)


def sum(
    x: ArrayLike,
    /,
    *,
    axis: int | tuple[int, ...] | None = None,
    dtype: ElementType | None = None,
    keepdims: bool = False,
) -> Any:
    """The sum along axes (None: all of them).

    x is of an integer type, float16 or float32; so is `dtype`, which x is converted to before it is summed. dtype=None:
    int64 for signed integers, uint64 for unsigned ones, x's type for floats. Integers wrap. A device tensor is not
    converted: int32 and uint32 need dtype=x.dtype. The sum of no elements is 0.

    Example:
        >>> import numpy as np
        >>> from dmlgpu.interop import array_api as xp
        >>> x = np.int8([[1, 5], [7, 2]])
        >>> xp.sum(x, axis=1).dtype
        dtype('int64')
    """
    return functions.sum(x, axis, dtype=dtype, keepdims=keepdims)


def prod(
    x: ArrayLike,
    /,
    *,
    axis: int | tuple[int, ...] | None = None,
    dtype: ElementType | None = None,
    keepdims: bool = False,
) -> Any:
    """The product along axes. The product of no elements is 1; otherwise as `sum`.

    Example:
        >>> import numpy as np
        >>> from dmlgpu.interop import array_api as xp
        >>> x = np.int8([[1, 5], [7, 2]])
        >>> xp.prod(x, axis=1).tolist()
        [5, 14]
    """
    return functions.prod(x, axis, dtype=dtype, keepdims=keepdims)


def mean(x: ArrayLike, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Any:
    """The mean along axes (None: all of them), of x's type, float16 or float32. The mean of no elements is NaN.

    Example:
        >>> import numpy as np
        >>> from dmlgpu.interop import array_api as xp
        >>> float(xp.mean(np.float32([1, 2, 6])))
        3.0
    """
    return functions.mean(x, axis, keepdims=keepdims)
