"""The operators as functions of arrays."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np

from dmlgpu.device import CacheInfo, Device
from dmlgpu.dtypes import AxisDirection, DataType
from dmlgpu.errors import DescriptorError
from dmlgpu.operators import (
    WINDOW_FIELDS,
    ArgmaxOperatorDesc,
    ArgminOperatorDesc,
    MaxPooling2OperatorDesc,
    OperatorDesc,
    pooled_size,
)
from dmlgpu.tensor import MAX_ELEMENTS, TensorDesc, unsigned_array
from dmlgpu.words import Array, as_array

_devices: dict[str | None, Device] = {}
_devices_lock = threading.Lock()
if hasattr(os, "register_at_fork"):
    # No fork while a device is being opened: the child would wait for ever for the lock, or in the driver.
    os.register_at_fork(
        before=_devices_lock.acquire, after_in_parent=_devices_lock.release, after_in_child=_devices_lock.release
    )


def default_device() -> Device:
    """The device that functions use where none is given: `Device()`, opened once for each DMLGPU_DEVICE.

    It is opened again where it was closed or lost.

    Raises:
        DeviceError: there is none.
    """
    wanted = os.environ.get("DMLGPU_DEVICE")
    with _devices_lock:
        if wanted not in _devices or not _devices[wanted].is_open:
            _devices[wanted] = Device()
        return _devices[wanted]


def argmax(
    x: Any,
    axes: Any = None,
    *,
    axis_direction: AxisDirection = AxisDirection.INCREASING,
    output_data_type: DataType = DataType.UINT32,
    device: Device | None = None,
) -> Array:
    """The index of the maximum over one or more axes: `ArgmaxOperatorDesc` of an array.

    Args:
        x: anything that NumPy can view, of 1 to 8 dimensions and a type of ArgmaxOperatorDesc.
        axes: an axis or several; None: all.
        axis_direction: of equal maxima INCREASING takes the first, DECREASING the last.
        output_data_type: UINT32, INT32, UINT64 or INT64.
        device: None: the default device.

    Returns:
        Indices into the reduced axes, flattened in row-major order; the rank is kept, reduced sizes are 1. Empty where
        a kept size is 0.

    Raises:
        DescriptorError: an argument is not allowed; a ValueError too where a reduced axis is empty.
        DeviceError: there is no device. OutOfMemoryError: x does not fit it.
    """
    return _arg(ArgmaxOperatorDesc, x, axes, axis_direction, output_data_type, device)


def argmin(
    x: Any,
    axes: Any = None,
    *,
    axis_direction: AxisDirection = AxisDirection.INCREASING,
    output_data_type: DataType = DataType.UINT32,
    device: Device | None = None,
) -> Array:
    """The index of the minimum over one or more axes: `ArgminOperatorDesc` of an array; otherwise as `argmax`."""
    return _arg(ArgminOperatorDesc, x, axes, axis_direction, output_data_type, device)


def max_pooling(
    x: Any,
    window_size: Any,
    *,
    strides: Any = None,
    start_padding: Any = None,
    end_padding: Any = None,
    dilations: Any = None,
    output_sizes: Any = None,
    output_indices: bool = False,
    indices_data_type: DataType = DataType.UINT32,
    device: Device | None = None,
) -> Any:
    """The maximum of every window: `MaxPooling2OperatorDesc` of an array.

    Args:
        x: anything that NumPy can view, (N, C, H, W) or (N, C, D, H, W), of a type of MaxPooling2OperatorDesc.
        window_size: one entry for each spatial dimension, as in all that follow.
        strides: None: 1.
        start_padding: None: 0.
        end_padding: None: 0.
        dilations: None: 1.
        output_sizes: all sizes of the output, or the spatial ones; None: as many windows as fit.
        output_indices: whether to return indices too.
        indices_data_type: UINT32 or UINT64.
        device: None: the default device.

    Returns:
        The maxima, or (maxima, indices): the position of each maximum in x, counted over all of it in row-major order.
        Empty where N or C is 0.

    Raises:
        DescriptorError: an argument is not allowed.
        DeviceError: there is no device. OutOfMemoryError: x does not fit it.
    """
    array = as_array(x)
    source = _layout(array)
    spatial = max(source.rank - 2, 0)
    given = {
        "window_size": window_size,
        "strides": strides,
        "start_padding": start_padding,
        "end_padding": end_padding,
        "dilations": dilations,
    }
    window = {
        field: (minimum,) * spatial
        if given[field] is None and field != "window_size"
        else unsigned_array("MaxPooling2OperatorDesc", field, given[field], minimum)
        for field, minimum in WINDOW_FIELDS.items()
    }
    if output_sizes is None:
        # Where no window fits or entries are missing, any size will do: the descriptor says what is wrong.
        rows = zip(source.sizes[2:], *window.values(), strict=False)
        fitting = [pooled_size(n, w, s, start + end, d) for n, w, s, start, end, d in rows]
        sizes = [n if 1 <= n <= MAX_ELEMENTS else 1 for n in fitting]
    else:
        sizes = list(unsigned_array("MaxPooling2OperatorDesc", "output_tensor.sizes", output_sizes, 1))
    if len(sizes) <= spatial:
        sizes = [*source.sizes[:2], *sizes]
    output = TensorDesc(source.data_type, tuple(sizes))
    indices = TensorDesc(indices_data_type, output.sizes) if output_indices else None
    desc = MaxPooling2OperatorDesc(source, output, indices, **window)
    if array.size == 0:
        if 0 in array.shape[2:]:
            raise DescriptorError(f"MaxPooling2OperatorDesc.input_tensor.sizes: a window over {array.shape} is empty")
        empty = tuple(np.empty(array.shape[:2] + t.sizes[2:], t.data_type.numpy) for t in desc.outputs)
        return empty if output_indices else empty[0]
    return _run(desc, array, device)


def verify(desc: OperatorDesc, *inputs: Any, device: Device | None = None) -> Any:
    """Runs an operator on a device and checks the result, bit for bit, against the NumPy oracle.

    Args:
        desc: the operator.
        inputs: one array for each input tensor.
        device: None: the default device.

    Returns:
        What the operator returned.

    Raises:
        VerificationError: with the first differing coordinates, both values and the plan.
    """
    return (device or default_device())._operator(desc)._call(inputs, None, verified=True)


def cache_info(*, device: Device | None = None) -> CacheInfo:
    """What a device keeps for further calls of the functions, and of its operators.

    Args:
        device: None: the default device.

    Raises:
        DeviceError: there is no device, or it is closed.
    """
    return (device or default_device()).cache_info()


def clear_cache(*, device: Device | None = None) -> None:
    """Frees what a device keeps for further calls; arguments and errors as of `cache_info`."""
    (device or default_device()).clear_cache()


def _arg(
    kind: type[ArgmaxOperatorDesc | ArgminOperatorDesc],
    x: Any,
    axes: Any,
    axis_direction: AxisDirection,
    output_data_type: DataType,
    device: Device | None,
) -> Array:
    array = as_array(x)
    source = _layout(array)
    if axes is None:
        axes = range(source.rank)
    elif isinstance(axes, (int, np.integer)):
        axes = (axes,)
    axes = unsigned_array(kind.__name__, "axes", axes)
    sizes = tuple(1 if axis in axes else size for axis, size in enumerate(source.sizes))
    desc = kind(source, TensorDesc(output_data_type, sizes), axes, axis_direction)
    if array.size == 0:
        if any(array.shape[axis] == 0 for axis in axes):
            raise DescriptorError(f"{kind.__name__}.input_tensor.sizes: axes {axes} of {array.shape} are empty")
        shape = tuple(1 if axis in axes else size for axis, size in enumerate(array.shape))
        return np.empty(shape, desc.output_tensor.data_type.numpy)
    return _run(desc, array, device)  # type: ignore[no-any-return]


def _run(desc: OperatorDesc, array: Array, device: Device | None) -> Any:
    return (device or default_device())._operator(desc)(array)


def _layout(array: Array) -> TensorDesc:
    """A descriptor in which an array can be uploaded by one copy: as it lies where it has no gaps, else packed.

    DirectML has no empty tensors: a size 0 counts as 1, so that everything else about it can be checked.
    """
    sizes = tuple(max(size, 1) for size in array.shape)
    packed = TensorDesc(DataType.of(array.dtype), sizes)
    if array.flags.c_contiguous or any(stride < 0 or stride % array.itemsize for stride in array.strides):
        return packed
    as_it_lies = TensorDesc.of(array)
    return as_it_lies if as_it_lies.reach <= packed.element_count else packed
