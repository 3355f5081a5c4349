"""The operators as functions of arrays and device tensors."""

from __future__ import annotations

import os
import threading
from typing import Any, Literal, overload

import numpy as np

from dmlgpu import arguments
from dmlgpu.arguments import Direction, ElementType, Function, Ints
from dmlgpu.comparison import check_outputs
from dmlgpu.descriptors.arrays import Array, ArrayLike, as_array
from dmlgpu.descriptors.dtypes import DataType
from dmlgpu.descriptors.operator import ExecutionFlags, OperatorDesc, TypeTable
from dmlgpu.descriptors.pooling import (
    AveragePooling1OperatorDesc,
    AveragePoolingGradOperatorDesc,
    LpPooling1OperatorDesc,
    MaxPooling2OperatorDesc,
    MaxPoolingGradOperatorDesc,
    MaxUnpoolingOperatorDesc,
)
from dmlgpu.descriptors.reduction import (
    REDUCE_TYPES,
    ArgmaxOperatorDesc,
    ArgminOperatorDesc,
    ArgOperatorDesc,
    AxisDirection,
    ExactSumOperatorDesc,
    ReduceFunction,
    ReduceOperatorDesc,
    ShortSumOperatorDesc,
)
from dmlgpu.descriptors.tensor import TensorDesc
from dmlgpu.lowering.plan import Plan
from dmlgpu.runtime.compiled import CompiledOperator
from dmlgpu.runtime.device import CacheInfo, Device
from dmlgpu.runtime.drivers import index_of, select
from dmlgpu.runtime.settings import setting
from dmlgpu.runtime.tensor import DeviceTensor

# What `device=` takes; None: the device that DMLGPU_DEVICE names, or the best device.
Selector = Device | int | str | None

# What DMLGPU_VERIFY compares every call with.
CompiledOperator.check = staticmethod(check_outputs)

_devices: dict[int | str | None, Device] = {}
_devices_lock = threading.Lock()
if hasattr(os, "register_at_fork"):
    # No fork while a device is being opened: the child would wait for ever for the lock, or in the driver.
    os.register_at_fork(
        before=_devices_lock.acquire, after_in_parent=_devices_lock.release, after_in_child=_devices_lock.release
    )


def open_device(selector: Selector = None) -> Device:
    """The device for the argument `device` of a function; selectors of the same device share one `Device`.

    It is opened again if it was closed or lost.

    Args:
        selector: a Device, which is returned; or what `Device` takes.

    Raises:
        DeviceError: there is no such device. TypeError: the selector is neither an integer nor a string.
    """
    if isinstance(selector, Device):
        return selector
    wanted = setting("DMLGPU_DEVICE") if selector is None else selector
    # `index_of` refuses True, which would be the key 1.
    key = wanted if wanted is None or isinstance(wanted, str) else index_of(wanted)
    with _devices_lock:
        device = _devices.get(key)
        if device is None or not device.is_open:
            others = [other for other in _devices.values() if other.is_open]
            # `select` asks the drivers, which takes time: skip it if no open device can be the same.
            info = select(selector) if others else None
            same = (other for other in others if other.info == info)
            device = _devices[key] = next(same, None) or Device(selector)
        return device


@overload
def argmax(
    x: DeviceTensor, axis: Ints | None = ..., *, axes: Ints | None = ..., keepdims: bool | None = ...,
    axis_direction: Direction = ..., output_data_type: ElementType = ..., device: Selector = ...,
) -> DeviceTensor: ...  # fmt: skip
@overload
def argmax(
    x: ArrayLike, axis: Ints | None = ..., *, axes: Ints | None = ..., keepdims: bool | None = ...,
    axis_direction: Direction = ..., output_data_type: ElementType = ..., device: Selector = ...,
) -> Array: ...  # fmt: skip
def argmax(
    x: ArrayLike,
    axis: Ints | None = None,
    *,
    axes: Ints | None = None,
    keepdims: bool | None = None,
    axis_direction: Direction = AxisDirection.INCREASING,
    output_data_type: ElementType = DataType.INT64,
    device: Selector = None,
) -> Any:
    """The index of the maximum over one or more axes: `ArgmaxOperatorDesc` of an array.

    Args:
        x: a device tensor, or anything that NumPy can view: up to 8 dimensions of bool, integers, or floats of 16 to 64
            bits.
        axis: an axis or several, negative ones counted from the last; None: all.
        axes: DirectML's argument in place of axis: axes counted from 0; the rank is kept.
        keepdims: whether reduced axes stay, with size 1. None: True with axes, False with axis.
        axis_direction: of equal maxima INCREASING takes the first, DECREASING the last. NaNs are equal, and greatest.
        output_data_type: the type of the indices: INT64, INT32, UINT64 or UINT32, its name, or the NumPy type.
        device: a Device, an index, part of a name or a UUID; None: that of x if it is a device tensor, else the default
            device.

    Returns:
        Indices into the reduced axes, flattened in row-major order; empty if a kept size is 0. A device tensor if x is
        one, else an array; a NumPy scalar if no axis is left.

    Raises:
        DescriptorError: an argument is not allowed, or a reduced axis is empty. It is a ValueError, too.
        DeviceError: there is no such device. OutOfMemoryError: x does not fit its memory.
        SettingError: an environment variable has a value that is not allowed.

    Example:
        >>> import numpy as np, dmlgpu
        >>> x = np.float32([[1, 2, 3], [3, 0, 4], [2, 5, 2]])
        >>> dmlgpu.argmax(x, axis=1).tolist()
        [2, 2, 1]
        >>> int(dmlgpu.argmax(x))  # row 2, column 1: 2 * 3 + 1
        7
        >>> dmlgpu.argmax([[3, 7, 7]], axes=1, axis_direction="decreasing").tolist()  # the last of equals
        [[2]]
    """
    return _arg(ArgmaxOperatorDesc, x, device, axis, axes, keepdims, axis_direction, output_data_type)


@overload
def argmin(
    x: DeviceTensor, axis: Ints | None = ..., *, axes: Ints | None = ..., keepdims: bool | None = ...,
    axis_direction: Direction = ..., output_data_type: ElementType = ..., device: Selector = ...,
) -> DeviceTensor: ...  # fmt: skip
@overload
def argmin(
    x: ArrayLike, axis: Ints | None = ..., *, axes: Ints | None = ..., keepdims: bool | None = ...,
    axis_direction: Direction = ..., output_data_type: ElementType = ..., device: Selector = ...,
) -> Array: ...  # fmt: skip
def argmin(
    x: ArrayLike,
    axis: Ints | None = None,
    *,
    axes: Ints | None = None,
    keepdims: bool | None = None,
    axis_direction: Direction = AxisDirection.INCREASING,
    output_data_type: ElementType = DataType.INT64,
    device: Selector = None,
) -> Any:
    """The index of the minimum over one or more axes, NaNs being least: `ArgminOperatorDesc`; otherwise as `argmax`.

    Example:
        >>> import dmlgpu
        >>> dmlgpu.argmin([[3, 1, 2], [0, 5, 0]], axis=-1).tolist()
        [1, 0]
    """
    return _arg(ArgminOperatorDesc, x, device, axis, axes, keepdims, axis_direction, output_data_type)


@overload
def reduce(
    x: DeviceTensor, function: Function, axis: Ints | None = ..., *, keepdims: bool | None = ...,
    axes: Ints | None = ..., output_data_type: ElementType | None = ..., exact: bool = ..., device: Selector = ...,
) -> DeviceTensor: ...  # fmt: skip
@overload
def reduce(
    x: ArrayLike, function: Function, axis: Ints | None = ..., *, keepdims: bool | None = ...,
    axes: Ints | None = ..., output_data_type: ElementType | None = ..., exact: bool = ..., device: Selector = ...,
) -> Array: ...  # fmt: skip
def reduce(
    x: ArrayLike,
    function: Function,
    axis: Ints | None = None,
    *,
    keepdims: bool | None = None,
    axes: Ints | None = None,
    output_data_type: ElementType | None = None,
    exact: bool = False,
    device: Selector = None,
) -> Any:
    """A function of the elements along one or more axes: `ReduceOperatorDesc` of an array.

    Args:
        x: as for `argmax`. Of its types only max, min, argmax and argmin take all; sum, multiply, l1 and sum_square
            take float32, float16, and integers of 32 and 64 bits; the others float32 and float16.
        function: a ReduceFunction, or its name.
        axis: as for `argmax`; (): none, so that each element is reduced alone (not by argmax and argmin).
        keepdims: as for `argmax`.
        axes: as for `argmax`.
        output_data_type: for ARGMAX and ARGMIN as for `argmax`; results of other functions have x's type.
        exact: whether sum, average, l1, l2 and sum_square of floats are rounded once:
            `ExecutionFlags.EXACT_SUMS`. The others that compute with floats refuse it.
        device: as for `argmax`.

    Returns:
        The values, of x's type, or the indices; otherwise as `argmax`. Integers wrap around; `reference.bounds` gives
        the error bounds of floats.

    Raises:
        DescriptorError: an argument is not allowed, or a reduced axis is empty. It is a ValueError, too.
        DeviceError: there is no such device. OutOfMemoryError: x does not fit its memory.
        SettingError: an environment variable has a value that is not allowed.

    Example:
        >>> import numpy as np, dmlgpu
        >>> x = np.float32([[3, 4], [6, 8]])
        >>> dmlgpu.reduce(x, "l2", axis=1).tolist()
        [5.0, 10.0]
        >>> dmlgpu.reduce(x, dmlgpu.ReduceFunction.SUM_SQUARE, axes=(0, 1)).tolist()
        [[125.0]]
    """
    x, shape, source = _input(x, ReduceOperatorDesc, types=REDUCE_TYPES.get(ReduceFunction.member(function)))
    call = arguments.reduce(
        shape, source, function, axis, axes=axes, keepdims=keepdims, output_data_type=output_data_type, exact=exact
    )
    return _run(call, device, x)


@overload
def sum(
    x: DeviceTensor, axis: Ints | None = ..., *, dtype: ElementType | None = ..., keepdims: bool = ...,
    exact: bool = ..., device: Selector = ...,
) -> DeviceTensor: ...  # fmt: skip
@overload
def sum(
    x: ArrayLike, axis: Ints | None = ..., *, dtype: ElementType | None = ..., keepdims: bool = ...,
    exact: bool = ..., device: Selector = ...,
) -> Array: ...  # fmt: skip
def sum(
    x: ArrayLike,
    axis: Ints | None = None,
    *,
    dtype: ElementType | None = None,
    keepdims: bool = False,
    exact: bool = False,
    device: Selector = None,
) -> Any:
    """The sum along axes, as `np.sum`.

    Args:
        x: a device tensor, or anything that NumPy can view, of float16, float32 or an integer type; bool counts.
        axis: an axis or several, negative ones counted from the last; None: all; (): none, so that elements stay.
        dtype: one of these types but bool, in which x is summed. None: int64 for signed integers and bool, uint64 for
            unsigned integers, x's type for floats. A device tensor is not converted: int32 and uint32 need
            dtype=x.dtype.
        keepdims: whether reduced axes stay, with size 1.
        exact: whether sums of floats are rounded once: `ExecutionFlags.EXACT_SUMS`.
        device: as for `argmax`.

    Returns:
        The sums; integers wrap. Of no elements: 0. A device tensor if x is one, else an array; a NumPy scalar if no
        axis is left.

    Raises:
        TypeError: the function does not take x's type or `dtype`; the message lists the types that it takes.
        DescriptorError: another argument is not allowed.
        DeviceError: there is no such device. OutOfMemoryError: x does not fit its memory.

    Example:
        >>> import numpy as np, dmlgpu
        >>> x = np.int8([[100, 100], [1, 2]])
        >>> dmlgpu.sum(x, axis=1).tolist()  # int64
        [200, 3]
        >>> dmlgpu.sum(x, axis=(0, -1), keepdims=True).tolist()
        [[203]]
        >>> y = np.float32([1e8, 1, -1e8] * 1000)  # all but the 1s go
        >>> float(dmlgpu.sum(y, exact=True))
        1000.0
    """
    return numpy_reduce("sum", ReduceFunction.SUM, x, axis, keepdims, dtype, device, exact)


@overload
def prod(
    x: DeviceTensor, axis: Ints | None = ..., *, dtype: ElementType | None = ..., keepdims: bool = ...,
    device: Selector = ...,
) -> DeviceTensor: ...  # fmt: skip
@overload
def prod(
    x: ArrayLike, axis: Ints | None = ..., *, dtype: ElementType | None = ..., keepdims: bool = ...,
    device: Selector = ...,
) -> Array: ...  # fmt: skip
def prod(
    x: ArrayLike,
    axis: Ints | None = None,
    *,
    dtype: ElementType | None = None,
    keepdims: bool = False,
    device: Selector = None,
) -> Any:
    """The product along axes, as `np.prod`; of no elements 1. Otherwise as `sum`.

    Example:
        >>> import dmlgpu
        >>> dmlgpu.prod([[1, 2], [3, 4]], axis=0).tolist()
        [3, 8]
    """
    return numpy_reduce("prod", ReduceFunction.MULTIPLY, x, axis, keepdims, dtype, device)


@overload
def mean(
    x: DeviceTensor, axis: Ints | None = ..., *, keepdims: bool = ..., exact: bool = ..., device: Selector = ...,
) -> DeviceTensor: ...  # fmt: skip
@overload
def mean(
    x: ArrayLike, axis: Ints | None = ..., *, keepdims: bool = ..., exact: bool = ..., device: Selector = ...,
) -> Array: ...  # fmt: skip
def mean(
    x: ArrayLike, axis: Ints | None = None, *, keepdims: bool = False, exact: bool = False, device: Selector = None
) -> Any:
    """The mean along axes, as `np.mean`, of float16 or float32; of no elements NaN. Otherwise as `sum`.

    Example:
        >>> import numpy as np, dmlgpu
        >>> dmlgpu.mean(np.float32([[1, 2], [3, 5]]), axis=1).tolist()
        [1.5, 4.0]
    """
    return numpy_reduce("mean", ReduceFunction.AVERAGE, x, axis, keepdims, None, device, exact)


@overload
def max(x: DeviceTensor, axis: Ints | None = ..., *, keepdims: bool = ..., device: Selector = ...) -> DeviceTensor: ...
@overload
def max(x: ArrayLike, axis: Ints | None = ..., *, keepdims: bool = ..., device: Selector = ...) -> Array: ...
def max(x: ArrayLike, axis: Ints | None = None, *, keepdims: bool = False, device: Selector = None) -> Any:
    """The maximum along axes, as `np.max`, of the types of `argmax`; of no elements an error. A NaN wins.

    Otherwise as `sum`.

    Example:
        >>> import dmlgpu
        >>> dmlgpu.max([[1.0, 4.0], [float("nan"), 2.0]], axis=1).tolist()
        [4.0, nan]
    """
    return numpy_reduce("max", ReduceFunction.MAX, x, axis, keepdims, None, device)


@overload
def min(x: DeviceTensor, axis: Ints | None = ..., *, keepdims: bool = ..., device: Selector = ...) -> DeviceTensor: ...
@overload
def min(x: ArrayLike, axis: Ints | None = ..., *, keepdims: bool = ..., device: Selector = ...) -> Array: ...
def min(x: ArrayLike, axis: Ints | None = None, *, keepdims: bool = False, device: Selector = None) -> Any:
    """The minimum along axes, as `np.min`; otherwise as `max`.

    Example:
        >>> import dmlgpu
        >>> dmlgpu.min([[1, 4], [-3, 2]], axis=1).tolist()
        [1, -3]
    """
    return numpy_reduce("min", ReduceFunction.MIN, x, axis, keepdims, None, device)


@overload
def max_pooling(
    x: DeviceTensor, window_size: Ints, *,
    strides: Ints | None = ..., padding: Ints | None = ..., start_padding: Ints | None = ...,
    end_padding: Ints | None = ..., dilations: Ints | None = ..., output_sizes: Ints | None = ...,
    output_indices: Literal[False] = ..., indices_data_type: ElementType = ..., device: Selector = ...,
) -> DeviceTensor: ...  # fmt: skip
@overload
def max_pooling(
    x: DeviceTensor, window_size: Ints, *,
    strides: Ints | None = ..., padding: Ints | None = ..., start_padding: Ints | None = ...,
    end_padding: Ints | None = ..., dilations: Ints | None = ..., output_sizes: Ints | None = ...,
    output_indices: Literal[True], indices_data_type: ElementType = ..., device: Selector = ...,
) -> tuple[DeviceTensor, DeviceTensor]: ...  # fmt: skip
@overload
def max_pooling(
    x: ArrayLike, window_size: Ints, *,
    strides: Ints | None = ..., padding: Ints | None = ..., start_padding: Ints | None = ...,
    end_padding: Ints | None = ..., dilations: Ints | None = ..., output_sizes: Ints | None = ...,
    output_indices: Literal[False] = ..., indices_data_type: ElementType = ..., device: Selector = ...,
) -> Array: ...  # fmt: skip
@overload
def max_pooling(
    x: ArrayLike, window_size: Ints, *,
    strides: Ints | None = ..., padding: Ints | None = ..., start_padding: Ints | None = ...,
    end_padding: Ints | None = ..., dilations: Ints | None = ..., output_sizes: Ints | None = ...,
    output_indices: Literal[True], indices_data_type: ElementType = ..., device: Selector = ...,
) -> tuple[Array, Array]: ...  # fmt: skip
@overload
def max_pooling(
    x: ArrayLike, window_size: Ints, *,
    strides: Ints | None = ..., padding: Ints | None = ..., start_padding: Ints | None = ...,
    end_padding: Ints | None = ..., dilations: Ints | None = ..., output_sizes: Ints | None = ...,
    output_indices: bool, indices_data_type: ElementType = ..., device: Selector = ...,
) -> Any: ...  # fmt: skip
def max_pooling(
    x: ArrayLike,
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
) -> Any:
    """The maximum of every window: `MaxPooling2OperatorDesc` of an array.

    Args:
        x: a device tensor, or anything that NumPy can view, of the types of `argmax`: (N, C, H, W) or (N, C, D, H, W),
            where N, or N and C, may be missing. An image (H, W, C), as a last size of 1, 3 or 4 is a sign of, takes
            x.transpose(2, 0, 1): else W and C are pooled.
        window_size: an entry for each spatial dimension: (height, width), or (depth, height, width). An int stands for
            equal entries: three for arrays of 5 dimensions, else two; so a volume (D, H, W) takes (3, 3, 3), not 3.
            The same holds for strides, paddings, dilations and spatial output_sizes.
        strides: from one window to the next. None: 1, whatever the window.
        padding: for both start_padding and end_padding.
        start_padding: None: 0. Elements of the padding are never the maximum.
        end_padding: None: 0.
        dilations: from one element of a window to the next. None: 1.
        output_sizes: all sizes of the output, or the spatial ones. None: as many windows as fit; one more is allowed.
        output_indices: whether to return indices too.
        indices_data_type: INT64, UINT64 or UINT32, or the NumPy type.
        device: a Device, an index, part of a name or a UUID; None: that of x if it is a device tensor, else the default
            device.

    Returns:
        The maxima, or (maxima, indices): the position of each maximum, the first of equals, counted over all of x in
        row-major order. They have x's rank, and are empty if N or C is 0. Device tensors if x is one, else arrays.

    Raises:
        DescriptorError: an argument is not allowed.
        DeviceError: there is no such device. OutOfMemoryError: x does not fit its memory.
        SettingError: an environment variable has a value that is not allowed.

    Example:
        >>> import numpy as np, dmlgpu
        >>> image = np.arange(16, dtype=np.float32).reshape(4, 4)
        >>> dmlgpu.max_pooling(image, 2, strides=2).tolist()
        [[5.0, 7.0], [13.0, 15.0]]
        >>> values, indices = dmlgpu.max_pooling(image, (1, 3), strides=(2, 1), output_indices=True)
        >>> indices.tolist()
        [[2, 3], [10, 11]]
    """
    x, shape, source = _input(x, MaxPooling2OperatorDesc)
    call = arguments.max_pooling(
        shape,
        source,
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
    return _run(call, device, x)


@overload
def average_pooling(
    x: DeviceTensor, window_size: Ints, *, strides: Ints | None = ..., padding: Ints | None = ...,
    start_padding: Ints | None = ..., end_padding: Ints | None = ..., dilations: Ints | None = ...,
    output_sizes: Ints | None = ..., include_padding: bool = ..., exact: bool = ..., device: Selector = ...,
) -> DeviceTensor: ...  # fmt: skip
@overload
def average_pooling(
    x: ArrayLike, window_size: Ints, *, strides: Ints | None = ..., padding: Ints | None = ...,
    start_padding: Ints | None = ..., end_padding: Ints | None = ..., dilations: Ints | None = ...,
    output_sizes: Ints | None = ..., include_padding: bool = ..., exact: bool = ..., device: Selector = ...,
) -> Array: ...  # fmt: skip
def average_pooling(
    x: ArrayLike,
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
) -> Any:
    """The average of every window: `AveragePooling1OperatorDesc` of an array.

    Args:
        x: as for `max_pooling`, of float32 or float16.
        window_size: as for `max_pooling`.
        strides: None: 1.
        padding: for both start_padding and end_padding.
        start_padding: None: 0.
        end_padding: None: 0.
        dilations: None: 1.
        output_sizes: as for `max_pooling`.
        include_padding: whether the padding counts, as zeros.
        exact: whether averages are rounded once: `ExecutionFlags.EXACT_SUMS`.
        device: as for `max_pooling`.

    Returns:
        The averages, of x's type and rank; otherwise as `max_pooling`.

    Raises:
        DescriptorError: an argument is not allowed.
        DeviceError: there is no such device. OutOfMemoryError: x does not fit its memory.
        SettingError: an environment variable has a value that is not allowed.

    Example:
        >>> import numpy as np, dmlgpu
        >>> image = np.float32([[1, 2], [3, 4]])
        >>> dmlgpu.average_pooling(image, 2).tolist()
        [[2.5]]
        >>> dmlgpu.average_pooling(image, 2, strides=2, padding=1, include_padding=True).tolist()
        [[0.25, 0.5], [0.75, 1.0]]
    """
    x, shape, source = _input(x, AveragePooling1OperatorDesc)
    call = arguments.pooling(
        AveragePooling1OperatorDesc,
        shape,
        source,
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
    return _run(call, device, x)


@overload
def lp_pooling(
    x: DeviceTensor, window_size: Ints, *, p: int = ..., strides: Ints | None = ..., padding: Ints | None = ...,
    start_padding: Ints | None = ..., end_padding: Ints | None = ..., dilations: Ints | None = ...,
    output_sizes: Ints | None = ..., device: Selector = ...,
) -> DeviceTensor: ...  # fmt: skip
@overload
def lp_pooling(
    x: ArrayLike, window_size: Ints, *, p: int = ..., strides: Ints | None = ..., padding: Ints | None = ...,
    start_padding: Ints | None = ..., end_padding: Ints | None = ..., dilations: Ints | None = ...,
    output_sizes: Ints | None = ..., device: Selector = ...,
) -> Array: ...  # fmt: skip
def lp_pooling(
    x: ArrayLike,
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
) -> Any:
    """The Lp norm of every window, sum(abs(x) ** p) ** (1 / p): `LpPooling1OperatorDesc` of an array.

    Args:
        x: as for `average_pooling`.
        window_size: as for `max_pooling`.
        p: an integer from 1 on.
        strides: None: 1.
        padding: for both start_padding and end_padding.
        start_padding: None: 0.
        end_padding: None: 0.
        dilations: None: 1.
        output_sizes: as for `max_pooling`.
        device: as for `max_pooling`.

    Returns:
        The norms, of x's type and rank; otherwise as `max_pooling`. Errors as of `average_pooling`.

    Example:
        >>> import numpy as np, dmlgpu
        >>> dmlgpu.lp_pooling(np.float32([[3, 4, 0]]), (1, 2)).tolist()
        [[5.0, 4.0]]
    """
    x, shape, source = _input(x, LpPooling1OperatorDesc)
    call = arguments.pooling(
        LpPooling1OperatorDesc,
        shape,
        source,
        window_size,
        p=p,
        strides=strides,
        padding=padding,
        start_padding=start_padding,
        end_padding=end_padding,
        dilations=dilations,
        output_sizes=output_sizes,
    )
    return _run(call, device, x)


@overload
def average_pooling_grad(
    gradient: DeviceTensor, input_sizes: Ints, window_size: Ints, *, strides: Ints | None = ...,
    padding: Ints | None = ..., start_padding: Ints | None = ..., end_padding: Ints | None = ...,
    include_padding: bool = ..., device: Selector = ...,
) -> DeviceTensor: ...  # fmt: skip
@overload
def average_pooling_grad(
    gradient: ArrayLike, input_sizes: Ints, window_size: Ints, *, strides: Ints | None = ...,
    padding: Ints | None = ..., start_padding: Ints | None = ..., end_padding: Ints | None = ...,
    include_padding: bool = ..., device: Selector = ...,
) -> Array: ...  # fmt: skip
def average_pooling_grad(
    gradient: ArrayLike,
    input_sizes: Ints,
    window_size: Ints,
    *,
    strides: Ints | None = None,
    padding: Ints | None = None,
    start_padding: Ints | None = None,
    end_padding: Ints | None = None,
    include_padding: bool = False,
    device: Selector = None,
) -> Any:
    """The gradient of `average_pooling` without dilations: `AveragePoolingGradOperatorDesc` of an array.

    Args:
        gradient: a device tensor, or anything that NumPy can view, of float32 or float16: the gradient of each window's
            average; (N, C, H, W) or (N, C, D, H, W), where N, or N and C, may be missing.
        input_sizes: all sizes of the array that was pooled, or the spatial ones; an int stands for equal spatial ones.
        window_size: as for `max_pooling`.
        strides: None: 1.
        padding: for both start_padding and end_padding.
        start_padding: None: 0.
        end_padding: None: 0.
        include_padding: whether the padding counted in the averages.
        device: as for `max_pooling`.

    Returns:
        An array of the sizes of what was pooled, or a device tensor if `gradient` is one. Errors as of
        `average_pooling`.

    Example:
        >>> import numpy as np, dmlgpu
        >>> dmlgpu.average_pooling_grad(np.float32([[4, 8]]), (1, 3), (1, 2)).tolist()
        [[2.0, 6.0, 4.0]]
    """
    gradient, shape, source = _input(gradient, AveragePoolingGradOperatorDesc, "input_gradient_tensor")
    call = arguments.average_pooling_grad(
        shape,
        source,
        input_sizes,
        window_size,
        strides=strides,
        padding=padding,
        start_padding=start_padding,
        end_padding=end_padding,
        include_padding=include_padding,
    )
    return _run(call, device, gradient)


@overload
def max_pooling_grad(
    x: DeviceTensor, gradient: DeviceTensor, window_size: Ints, *,
    strides: Ints | None = ..., padding: Ints | None = ..., start_padding: Ints | None = ...,
    end_padding: Ints | None = ..., dilations: Ints | None = ..., indices: DeviceTensor | None = ...,
    device: Selector = ...,
) -> DeviceTensor: ...  # fmt: skip
@overload
def max_pooling_grad(
    x: ArrayLike, gradient: DeviceTensor, window_size: Ints, *,
    strides: Ints | None = ..., padding: Ints | None = ..., start_padding: Ints | None = ...,
    end_padding: Ints | None = ..., dilations: Ints | None = ..., indices: DeviceTensor, device: Selector = ...,
) -> DeviceTensor: ...  # fmt: skip
@overload
def max_pooling_grad(
    x: ArrayLike, gradient: ArrayLike, window_size: Ints, *,
    strides: Ints | None = ..., padding: Ints | None = ..., start_padding: Ints | None = ...,
    end_padding: Ints | None = ..., dilations: Ints | None = ..., indices: ArrayLike | None = ...,
    device: Selector = ...,
) -> Array: ...  # fmt: skip
def max_pooling_grad(
    x: ArrayLike,
    gradient: ArrayLike,
    window_size: Ints,
    *,
    strides: Ints | None = None,
    padding: Ints | None = None,
    start_padding: Ints | None = None,
    end_padding: Ints | None = None,
    dilations: Ints | None = None,
    indices: ArrayLike | None = None,
    device: Selector = None,
) -> Any:
    """The gradient of `max_pooling`: `MaxPoolingGradOperatorDesc` of arrays.

    Args:
        x: the array that was pooled: as for `max_pooling`, of float32 or float16. With indices only its shape and type
            count.
        gradient: of x's type: the gradient of each window's maximum, of equals the first.
        window_size: as for `max_pooling`.
        strides: None: 1.
        padding: for both start_padding and end_padding.
        start_padding: None: 0.
        end_padding: None: 0.
        dilations: None: 1.
        indices: of the gradient's shape: those that `max_pooling` gave; INT64, UINT64 or UINT32. None: the maxima are
            found again, which takes about as long as the rest. The results are the same. Indices outside of their
            windows are ignored.
        device: as for `max_pooling`.

    Returns:
        An array of x's shape, or a device tensor if all that is read are: x and gradient, or gradient and indices.
        Errors as of `max_pooling`.

    Example:
        >>> import numpy as np, dmlgpu
        >>> x, gradient = np.float32([[1, 9, 2]]), np.float32([[4, 8]])
        >>> dmlgpu.max_pooling_grad(x, gradient, (1, 2)).tolist()
        [[0.0, 12.0, 0.0]]
    """
    x, shape, source = _input(x, MaxPoolingGradOperatorDesc)
    field = "input_gradient_tensor"
    gradient, gradient_shape, gradient_source = _input(gradient, MaxPoolingGradOperatorDesc, field)
    maxima = None if indices is None else _indices(indices, MaxPoolingGradOperatorDesc)
    call = arguments.max_pooling_grad(
        shape,
        source,
        gradient_shape,
        gradient_source,
        window_size,
        strides=strides,
        padding=padding,
        start_padding=start_padding,
        end_padding=end_padding,
        dilations=dilations,
        indices_shape=maxima and maxima[1],
        indices=maxima and maxima[2],
    )
    return _run(call, device, x, gradient) if maxima is None else _run(call, device, gradient, maxima[0])


@overload
def max_unpooling(
    x: DeviceTensor, indices: DeviceTensor, output_sizes: Ints, *, device: Selector = ...
) -> DeviceTensor: ...
@overload
def max_unpooling(x: ArrayLike, indices: ArrayLike, output_sizes: Ints, *, device: Selector = ...) -> Array: ...
def max_unpooling(x: ArrayLike, indices: ArrayLike, output_sizes: Ints, *, device: Selector = None) -> Any:
    """Puts elements back to where `max_pooling` found them: `MaxUnpoolingOperatorDesc` of arrays.

    Args:
        x: a device tensor, or anything that NumPy can view, of the types of `argmax`: (N, C, H, W), or without N, or
            without N and C.
        indices: of x's shape: the position of each element in the output, counted over all of it in row-major order;
            INT64, UINT64 or UINT32. Negative ones, and those beyond the output, are ignored.
        output_sizes: all sizes of the output, or (height, width); an int stands for equal height and width.
        device: as for `max_pooling`.

    Returns:
        An array of x's type and rank: 0 where no index points, and the last element where several do; a device tensor
        if x and indices are. Errors as of `max_pooling`.

    Example:
        >>> import numpy as np, dmlgpu
        >>> image = np.float32([[1, 9], [2, 3]])
        >>> values, indices = dmlgpu.max_pooling(image, 2, output_indices=True)
        >>> dmlgpu.max_unpooling(values, indices, (2, 2)).tolist()
        [[0.0, 9.0], [0.0, 0.0]]
    """
    given, shape, source = _input(x, MaxUnpoolingOperatorDesc)
    positions, indices_shape, places = _indices(indices, MaxUnpoolingOperatorDesc)
    call = arguments.max_unpooling(shape, source, indices_shape, places, output_sizes)
    return _run(call, device, given, positions)


def verify(
    desc: OperatorDesc, *inputs: Any, flags: ExecutionFlags = ExecutionFlags.NONE, device: Selector = None
) -> Any:
    """Runs an operator on a device and checks the result, bit for bit, against the NumPy oracle.

    Args:
        desc: the operator.
        inputs: one array or device tensor for each input tensor.
        flags: as for `Device.compile`.
        device: as for `argmax`.

    Returns:
        What the operator returned.

    Raises:
        VerificationError: the results differ; the message has the first such coordinates, both values and the plan.
            Other errors are those of `CompiledOperator`.

    Example:
        >>> import numpy as np, dmlgpu
        >>> x = np.float32([[1, 2, 3], [3, 0, 4]])
        >>> dmlgpu.verify(dmlgpu.ArgmaxOperatorDesc.of(x, axes=(1,)), x).tolist()
        [[2], [2]]
    """
    return _device_for(device, *inputs).planned(desc, flags=flags).run(inputs, check=check_outputs)


def explain(
    desc: OperatorDesc,
    *,
    device: Selector = None,
    flags: ExecutionFlags = ExecutionFlags.NONE,
    kernel: str | None = None,
) -> Plan:
    """The plan of an operator: the dispatches that compute it on a device. Print it to read it.

    Args:
        desc: the operator; `ArgmaxOperatorDesc.of(x, axes)` and the like describe a call.
        device: as for `argmax`.
        flags: as for `Device.compile`.
        kernel: as for `Device.compile`.

    Raises:
        DescriptorError: the kernel cannot compute the operator, or it would take more dispatches than a plan may have.
        DeviceError: there is no such device. OutOfMemoryError: the operator's tensors do not fit its memory.

    Example:
        >>> import numpy as np, dmlgpu
        >>> desc = dmlgpu.ArgmaxOperatorDesc.of(np.zeros((3, 4), np.float32))
        >>> plan = dmlgpu.explain(desc, kernel="reduce")
        >>> plan.mapping[0].partition(":")[0]
        'reduce'
    """
    return open_device(device).planned(desc, flags=flags, kernel=kernel).plan


def cache_info(*, device: Selector = None) -> CacheInfo:
    """What a device keeps for later calls of the functions and of compiled operators.

    Args:
        device: as for `argmax`.

    Raises:
        DeviceError: there is no such device, or it is closed.

    Example:
        >>> import dmlgpu
        >>> dmlgpu.cache_info().operators <= 256
        True
    """
    return open_device(device).cache_info()


def clear_cache(*, device: Selector = None) -> None:
    """Frees what a device keeps for later calls; arguments and errors as of `cache_info`.

    Example:
        >>> import dmlgpu
        >>> dmlgpu.clear_cache()
        >>> dmlgpu.cache_info().operators
        0
    """
    open_device(device).clear_cache()


def _arg(kind: type[ArgOperatorDesc], x: Any, device: Selector, *given: Any) -> Any:
    x, shape, source = _input(x, kind)
    return _run(arguments.arg(kind, shape, source, *given), device, x)


# What NumPy's functions give for no elements; the others give an error.
_OF_NOTHING = {ReduceFunction.SUM: 0, ReduceFunction.MULTIPLY: 1, ReduceFunction.AVERAGE: np.nan}


def numpy_reduce(
    name: str,
    function: ReduceFunction,
    x: Any,
    axis: Any,
    keepdims: Any,
    dtype: Any = None,
    device: Selector = None,
    exact: bool = False,
) -> Any:
    """NumPy's function of this name; arguments, results and errors as of `sum`."""
    if isinstance(x, DeviceTensor):
        return _run(arguments.numpy_reduce(name, function, x.shape, x.desc, axis, dtype, keepdims, exact), device, x)
    x = as_array(x, f"{name}.x")
    computed, other = arguments.converted(name, function, x.dtype.newbyteorder("="), dtype)
    if function is ReduceFunction.SUM and computed.kind != "f" and x.itemsize < 4 and x.size:
        short = _short_sum(x, axis, keepdims, exact, device)
        if short is not None:
            return short.astype(other or computed)[()]
    x = x.astype(computed, copy=False)
    if x.size == 0 and function in _OF_NOTHING:
        # Arguments are checked as if there were an element along each dimension.
        checked = arguments.packed(x.shape, DataType.of(x.dtype))
        arguments.reduce(checked.sizes, checked, function, axis, keepdims=keepdims, exact=exact)
        result = np.full(np.any(x, axis=axis, keepdims=keepdims).shape, _OF_NOTHING[function], computed)[()]
    else:
        axis = axis if x.ndim else axis or None
        result = reduce(x, function, axis, keepdims=keepdims, exact=exact, device=device)
    return result if other is None else result.astype(other)


# Elements of a row, where all of an array are summed: of 16 bits no more add up to 32 bits.
_SHORT_ROW = 1 << 16


def _short_sum(x: Array, axis: Any, keepdims: Any, exact: bool, device: Selector) -> Array | None:
    """The sums of integers of 8 or 16 bits, in 64; None where few of them add up to 32 bits, or no axis is reduced.

    What does not fit 32 bits is summed in parts, which NumPy adds.
    """
    described = arguments.packed(x.shape, DataType.UINT32)
    axis = axis if x.ndim else axis or None
    call = arguments.reduce(x.shape, described, ReduceFunction.SUM, axis, keepdims=keepdims, exact=exact)
    assert isinstance(call.desc, ReduceOperatorDesc)
    if call.desc.input_tensor != described:  # over an added axis
        return None
    x, axes = x.reshape(described.sizes), call.desc.axes
    wide = np.dtype(np.uint64 if x.dtype.kind == "u" else np.int64)
    most = 1 << 32 - 8 * x.itemsize
    if len(axes) == x.ndim and x.size > most and x.flags.c_contiguous:
        flat = x.reshape(-1)
        rows = flat[: x.size // _SHORT_ROW * _SHORT_ROW].reshape(-1, _SHORT_ROW)
        total = _short_sums(rows, (1,), device).sum(dtype=wide) + flat[rows.size :].sum(dtype=wide)
        return np.asarray(total).reshape(call.shape)
    first, count = len(axes), 1
    while first and count * x.shape[axes[first - 1]] <= most:
        first -= 1
        count *= x.shape[axes[first]]
    if first and count < 64:  # NumPy would add too many parts
        return None
    sums: Array = _short_sums(x, axes[first:], device).sum(axes[:first], wide, keepdims=True)
    return sums.reshape(call.shape)


def _short_sums(x: Array, axes: tuple[int, ...], device: Selector) -> Array:
    """The sums over axes, with size 1 on each of them; 32 bits hold them."""
    array, _, layout = _input(x, ShortSumOperatorDesc)
    sums: Array = _over_axes(ShortSumOperatorDesc.of(layout, axes), device, array)
    return sums.view(np.int32) if x.dtype.kind == "i" else sums


def _input(
    x: Any, kind: type[OperatorDesc], field: str = "input_tensor", types: TypeTable | None = None
) -> tuple[DeviceTensor | Array, tuple[int, ...], TensorDesc]:
    """An input of an operator as a device tensor or an array, its shape, and its layout on the device.

    The allowed types are `types`, or else those of the descriptor.
    """
    if isinstance(x, DeviceTensor):
        return x, x.shape, x.desc
    name = f"{kind.__name__}.{field}"
    array = as_array(x, name)
    data_type = DataType.of(array.dtype, f"{name}.data_type", (types or kind.types)[field])
    return array, array.shape, _layout(array, data_type)


def _indices(indices: Any, kind: type[OperatorDesc]) -> tuple[DeviceTensor | Array, tuple[int, ...], TensorDesc]:
    """As `_input`, for positions that are given."""
    found, shape, layout = _input(indices, kind, "indices_tensor", {"indices_tensor": arguments.INDEX_TYPES})
    if isinstance(found, np.ndarray) and layout.data_type is DataType.INT64:
        # As UINT64, negative indices are beyond the output.
        found = found.view(found.dtype.str.replace("i", "u"))
    return found, shape, layout


def _layout(array: Array, data_type: DataType) -> TensorDesc:
    """The layout in which an array is uploaded by one copy: its own if that has no gaps, else packed."""
    packed = arguments.packed(array.shape, data_type)
    if array.flags.c_contiguous or any(stride < 0 or stride % array.itemsize for stride in array.strides):
        return packed
    as_it_lies = TensorDesc.of(array)
    return as_it_lies if as_it_lies.reach <= packed.element_count else packed


def exact_words(
    x: Array, kind: type[ExactSumOperatorDesc], axes: tuple[int, ...], absolute: bool, device: Selector
) -> tuple[Array, ...]:
    """The words of the exact sums of an array of float32, each with size 1 on every reduced axis."""
    array, _, layout = _input(x, kind)
    words: tuple[Array, ...] = _over_axes(kind.of(layout, axes, absolute=absolute), device, array)
    return words


def _over_axes(desc: ShortSumOperatorDesc | ExactSumOperatorDesc, device: Selector, x: DeviceTensor | Array) -> Any:
    """The outputs of a descriptor that no function of NumPy has, each with size 1 on every reduced axis."""
    sizes = tuple(1 if axis in desc.axes else size for axis, size in enumerate(x.shape))
    data_types = tuple(output.data_type for output in desc.outputs)
    return _run(arguments.Call(desc, sizes, data_types, 0 in x.shape), device, x)


def _run(call: arguments.Call, device: Selector, *inputs: DeviceTensor | Array) -> Any:
    if call.is_empty:
        empty = tuple(np.empty(call.shape, data_type.numpy) for data_type in call.data_types)
        results = empty if len(empty) > 1 else empty[0]
    else:
        results = _device_for(device, *inputs).compute(call, *inputs)
    if inputs[0].dtype == np.bool_:
        results = tuple(map(_values_as_bool, results)) if isinstance(results, tuple) else _values_as_bool(results)
    return results


def _values_as_bool(result: Array) -> Array:
    """A result for a bool input: values, which are UINT8, become bool; indices, which never are UINT8, stay."""
    return result.view(np.bool_) if result.dtype == np.uint8 else result


def _device_for(selector: Selector, *inputs: Any) -> Device:
    """The selected device; if none is selected, or it is the same, that of the first device tensor."""
    owners: list[Device] = [x.device for x in inputs if isinstance(x, DeviceTensor)]
    if selector is None and owners:
        return owners[0]
    device = open_device(selector)
    if owners and not isinstance(selector, Device) and device.info == owners[0].info:
        return owners[0]
    return device
