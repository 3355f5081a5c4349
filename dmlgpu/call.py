"""Calls of functions as data: what a function knows of an array (`Operand`), and what it computes (`Call`)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from dmlgpu.descriptors.cumulative import CumulativeKind, CumulativeProductOperatorDesc
from dmlgpu.descriptors.dtypes import DataType, check_holds, conversion, element_type, listed
from dmlgpu.descriptors.operator import SELECTED_TYPES, ExecutionFlags, OperatorDesc
from dmlgpu.descriptors.pooling import (
    AveragePoolingGradOperatorDesc,
    MaxPoolingGradOperatorDesc,
    MaxUnpoolingOperatorDesc,
    PoolingOperatorDesc,
    QuantizedLinearAveragePoolingOperatorDesc,
)
from dmlgpu.descriptors.reduction import (
    ARG_TYPES,
    REDUCE_TYPES,
    ArgOperatorDesc,
    AxisDirection,
    ExtremumOperatorDesc,
    ReduceFunction,
    ReduceOperatorDesc,
    axis_of,
)
from dmlgpu.descriptors.roi_pooling import RoiPoolingOperatorDesc
from dmlgpu.descriptors.tensor import (
    MAX_ELEMENTS,
    MAX_RANK,
    LargeTensorDesc,
    TensorDesc,
    flag,
    is_integer,
    unsigned_array,
)
from dmlgpu.descriptors.top_k import TopK1OperatorDesc
from dmlgpu.descriptors.window import Window
from dmlgpu.errors import DescriptorError, shown
from dmlgpu.lowering.problem import problems_with

Shape = tuple[int, ...]
Type = np.dtype[Any]


class Operand(NamedTuple):
    """An array without its elements."""

    shape: Shape
    dtype: Type
    layout: TensorDesc | Shape | None = None
    """Descriptor of a device tensor, or strides of an array in bytes; None: C order."""
    in_parts: bool = False
    """Whether the array is computed in parts, so that it may have more elements than a tensor."""

    @property
    def native(self) -> Type:
        """The type of an element in native byte order, without metadata, for results."""
        return np.dtype(self.dtype.str).newbyteorder("=") if self.dtype.kind in "biufc" else self.dtype

    @property
    def is_on_device(self) -> bool:
        """Whether the array is a device tensor."""
        return isinstance(self.layout, TensorDesc)

    def tensor(self, field: str, allowed: Iterable[DataType], dtype: Type | None = None) -> TensorDesc:
        """The tensor that a device computes with: with the array's layout if that has no gaps, otherwise packed.

        DirectML has neither 0-D nor empty tensors: () becomes (1,), and a size 0 becomes 1, so that all other arguments
        of the call can still be checked.

        Args:
            field: the tensor's name in errors: a descriptor and its field.
            allowed: the types that errors list.
            dtype: the type that the elements are converted to first; None: no conversion.
        """
        if isinstance(self.layout, TensorDesc):
            return self.layout
        data_type = DataType.of(self.dtype if dtype is None else dtype, f"{field}.data_type", allowed)
        kind = LargeTensorDesc if self.in_parts else TensorDesc
        packed = kind(data_type, tuple([max(size, 1) for size in self.shape]) or (1,))
        strides = [divmod(stride, self.dtype.itemsize) for stride in self.layout or ()]
        if not strides or any(stride < 0 or remainder for stride, remainder in strides):
            return packed
        strided = TensorDesc(data_type, self.shape, tuple(stride for stride, _ in strides))
        return strided if strided.reach <= packed.element_count else packed


@dataclass(frozen=True)
class Call:
    """The computation of a function: an operator, and the form of its results."""

    desc: OperatorDesc
    shape: Shape
    """Shape of every result: the sizes of an output, but dimensions of size 1 may be missing or added."""
    dtypes: tuple[Type, ...]
    """Types of the results."""
    flags: ExecutionFlags = ExecutionFlags.NONE
    converted: Type | None = None
    """Type that the elements of x are converted to first; None: no conversion."""
    fill: float | None = None
    """Value of all results if x or the results have no elements, so that no device computes them; otherwise None."""
    padding: tuple[tuple[int, int], ...] | None = None
    """Numbers of elements to add before and after x along each dimension, with any values; None: 0."""
    warning: str = ""
    """Text of a warning to the caller."""

    # Cached, because functions read them in every call, and calls are cached.

    @cached_property
    def inputs(self) -> tuple[TensorDesc, ...]:
        """The input tensors of the operator."""
        return self.desc.inputs

    @cached_property
    def outputs(self) -> tuple[TensorDesc, ...]:
        """The output tensors of the operator."""
        return self.desc.outputs

    @cached_property
    def tensors(self) -> tuple[TensorDesc, ...]:
        """The packed tensors of the results, for results on a device."""
        return tuple(TensorDesc(DataType.of(dtype), self.shape or (1,)) for dtype in self.dtypes)

    @cached_property
    def operators(self) -> WeakValueDictionary[int, Any]:
        """The operators that have computed the call, by the `id` of their device, as long as the device keeps them."""
        return WeakValueDictionary()


# Over axes

_WIDENING = (ReduceFunction.SUM, ReduceFunction.MULTIPLY)  # sums and products of integers have 64 bits, as in NumPy
_OF_EMPTY = {ReduceFunction.SUM: 0, ReduceFunction.MULTIPLY: 1, ReduceFunction.AVERAGE: np.nan}  # others raise an error


def arg(kind: type[ArgOperatorDesc], x: Operand, axis: Any, keepdims: Any, axis_direction: Any, dtype: Any) -> Call:
    """The indices of maxima or minima along axes."""
    source = x.tensor(f"{kind.__name__}.input_tensor", kind.types["input_tensor"])
    desc = kind.of(source, axis=axis, axis_direction=axis_direction, output_data_type=dtype)
    return _over_axes(desc, x, keepdims, desc.output_tensor.data_type.numpy)


def reduced(
    x: Operand, function: Any, axis: Any, keepdims: Any, *, dtype: Any = None, exact: Any = False, converted: Any = None
) -> Call:
    """A function of the elements along axes; without axes, of each element alone.

    Args:
        x: the array.
        function: a ReduceFunction, or its name.
        axis: as in NumPy's functions.
        keepdims: whether reduced axes stay, with size 1.
        dtype: the type of indices; None: INT64.
        exact: whether sums are rounded once.
        converted: the type that elements are converted to first; if it is not None, x may be empty, as in NumPy.
    """
    name = ReduceOperatorDesc.__name__
    member = ReduceFunction.member(function)
    types = ReduceOperatorDesc.types if member is None else REDUCE_TYPES[member]
    source = x.tensor(f"{name}.input_tensor", types["input_tensor"], converted)
    has_indices = types is ARG_TYPES
    without_axes = _has_no_axis(axis) and not has_indices
    if without_axes and x.in_parts:
        raise DescriptorError(f"{name}.axis: () is not allowed for chunked and Dask arrays; give at least one axis")
    if without_axes:
        # Reduce each element along an added dimension of size 1.
        source, axis = _with_trailing(source), -1
    if dtype is None and has_indices:
        dtype = DataType.INT64
    desc = ReduceOperatorDesc.of(function, source, axis=axis, output_data_type=dtype)
    result = desc.output_tensor.data_type.numpy
    if dtype is None and desc.function in (ReduceFunction.MAX, ReduceFunction.MIN):
        result = x.native if converted is None else converted  # may be bool, which descriptors lack
    flags = ExecutionFlags.NONE
    if flag(name, "exact", exact):
        flags = ExecutionFlags.EXACT_SUMS
        problems_with(desc, flags)  # raises if the sum cannot be exact, also for empty arrays
    fill = None if converted is None else _OF_EMPTY.get(desc.function)
    call = replace(_over_axes(desc, x, keepdims, result, fill=fill), flags=flags, converted=converted)
    return replace(call, shape=x.shape, fill=_fill_of(x.shape)) if without_axes else call


def _over_axes(
    desc: ArgOperatorDesc | ReduceOperatorDesc | ExtremumOperatorDesc,
    x: Operand,
    keepdims: Any,
    *results: Type,
    fill: float | None = None,
) -> Call:
    """The call of an operator on x, or on x with an added dimension.

    Args:
        desc: the operator.
        x: the array.
        keepdims: whether reduced axes stay, with size 1.
        results: the types of the results.
        fill: the result of empty reduced axes; None: these are an error.
    """
    name, axes, shape = type(desc).__name__, desc.axes, x.shape
    keepdims = flag(name, "keepdims", keepdims)
    sizes = tuple([1 if i in axes else size for i, size in enumerate(shape) if keepdims or i not in axes])
    if not any(shape[axis] == 0 for axis in axes if axis < len(shape)):
        fill = _fill_of(sizes)
    elif fill is None:
        raise DescriptorError(f"{name}.input_tensor.sizes: axes {axes} of {shape} are empty")
    return Call(desc, sizes, results, fill=fill)


def numpy_reduced(
    name: str, function: ReduceFunction, x: Operand, axis: Any, keepdims: Any, dtype: Any = None, exact: Any = False
) -> Call:
    """NumPy's function of this name; the result has the type `dtype`, or that of NumPy's result.

    Raises:
        TypeError: the function does not support x's type or `dtype`, or x is a device tensor of another type.
    """
    computed, result = _numpy_types(name, function, x, dtype)
    call = reduced(x, function, axis, keepdims, exact=exact, converted=computed)
    return replace(call, dtypes=(result,))


def extremum(
    name: str, function: ReduceFunction, x: Operand, axis: Any, keepdims: Any, output_indices: Any, dtype: Any
) -> Call:
    """NumPy's max or min, and if `output_indices` is True also indices, of type `dtype`."""
    index_type = DataType.of(dtype, f"{name}.indices_data_type", ARG_TYPES["output_tensor"], of_input=False)
    if not flag(name, "output_indices", output_indices):
        return numpy_reduced(name, function, x, axis, keepdims)
    values = x.native
    _numpy_types(name, function, x, None)  # raises if the function does not support x's type
    kind = ExtremumOperatorDesc
    source = x.tensor(f"{kind.__name__}.input_tensor", kind.types["input_tensor"])
    desc = kind.of(function, source, axis=axis, indices_data_type=index_type)
    return _over_axes(desc, x, keepdims, values, desc.output_indices_tensor.data_type.numpy)


# Directions by their names in NumPy and the array API standard.
MODES = {"largest": AxisDirection.DECREASING, "smallest": AxisDirection.INCREASING}


def top_k(x: Operand, k: Any, axis: Any, largest: Any, mode: Any, in_order: Any, dtype: Any) -> Call:
    """The first k elements along an axis, always in order, and their indices."""
    kind, name = TopK1OperatorDesc, TopK1OperatorDesc.__name__
    direction = MODES["largest" if flag(name, "largest", largest) else "smallest"]
    if mode is not None:
        if not isinstance(mode, str) or mode not in MODES:
            allowed = ", ".join(map(repr, MODES))
            raise DescriptorError(f"{name}.mode: {shown(mode)} is not allowed; allowed are {allowed}")
        if not largest:
            raise DescriptorError(f"{name}.mode: {shown(mode)} and largest=False are given; give one of them")
        direction = MODES[mode]
    flag(name, "sorted", in_order)
    source = x.tensor(f"{name}.input_tensor", kind.types["input_tensor"])
    axis = axis_of(name, axis, source.rank)
    if 0 in x.shape[axis : axis + 1]:
        raise DescriptorError(f"{name}.k: {shown(k)} is out of range; axis {axis} of {x.shape} is empty")
    desc = kind.of(source, k, axis, direction, indices_data_type=dtype)
    shape = tuple([desc.k if i == axis else size for i, size in enumerate(x.shape)])
    return Call(desc, shape, (x.native, desc.output_index_tensor.data_type.numpy), fill=_fill_of(shape))


def cumulative(
    name: str,
    kind: CumulativeKind,
    x: Operand,
    axis: Any,
    dtype: Any,
    initial: Any,
    direction: Any,
    exact: Any = False,
) -> Call:
    """NumPy's function of this name; `initial`: whether an additional 0, for products 1, precedes the results."""
    multiplies = kind is CumulativeProductOperatorDesc
    function, desc_name = ReduceFunction.MULTIPLY if multiplies else ReduceFunction.SUM, kind.__name__
    computed, result = _numpy_types(name, function, x, dtype)
    if axis is None and len(x.shape) > 1:
        raise DescriptorError(f"{desc_name}.axis: None is not allowed for {len(x.shape)} dimensions; give one of them")
    source, shape = x.tensor(f"{desc_name}.input_tensor", kind.types["input_tensor"], computed), x.shape or (1,)
    desc = kind.of(source, 0 if axis is None else axis, direction)
    padding = None
    if flag(desc_name, "include_initial", initial):
        if x.is_on_device:
            raise TypeError(f"{name}: include_initial=True needs an array, not a device tensor; pass x.numpy()")
        # Add an element at the end of each line, and compute exclusive results: none of them includes it.
        end = (0, 1) if desc.axis_direction is AxisDirection.INCREASING else (1, 0)
        padding = tuple([end if i == desc.axis else (0, 0) for i in range(len(shape))])
        shape = tuple([size + (i == desc.axis) for i, size in enumerate(shape)])
        source = source.packed(source.data_type, tuple([max(size, 1) for size in shape]))
        desc = kind.of(source, desc.axis, desc.axis_direction, **{kind.exclusive_field: True})
    flags = ExecutionFlags.EXACT_SUMS if flag(desc_name, "exact", exact) else ExecutionFlags.NONE
    fill = float(multiplies) if 0 in x.shape else None
    return Call(desc, shape, (result,), flags=flags, converted=computed, fill=fill, padding=padding)


def _numpy_types(name: str, function: ReduceFunction, x: Operand, dtype: Any) -> tuple[Type, Type]:
    """The type in which NumPy's function of this name is computed, and the type of its result.

    A result of fewer bits has the lowest bits of the computed one.
    """
    input_types = [data_type.numpy for data_type in REDUCE_TYPES[function]["input_tensor"]]
    widened = [data_type for data_type in SELECTED_TYPES if _wide(data_type.numpy) in input_types]
    allowed = [data_type.numpy for data_type in widened] + [np.dtype(bool)] * (np.dtype(np.uint8) in input_types)
    requested = source = x.native
    if dtype is not None:
        member = element_type(dtype)
        if member is None or (isinstance(member, DataType) and member.bits < 8):
            raise TypeError(f"{name}: dtype={shown(dtype)} is neither a DataType nor a NumPy type")
        requested = member.numpy if isinstance(member, DataType) else member.newbyteorder("=")
    elif source.kind == "b" and function in _WIDENING:
        requested = np.dtype(np.int64)  # the sum of bool is a count, as in NumPy
    if requested not in allowed or source.kind not in "biuf":
        refused = f"dtype={requested} of {source}" if dtype is not None else source
        has_dtype = function not in (ReduceFunction.MAX, ReduceFunction.MIN) and source.kind in "biuf"
        by_dtype = ['give dtype="{0}"'] if has_dtype else []
        advice = conversion(source.name, widened, *by_dtype) if dtype is None else ""
        if advice and x.is_on_device:
            advice = "; a device tensor is not converted: upload another type"
        raise TypeError(f"{name}: {refused} is not supported; allowed are {', '.join(map(str, allowed))}{advice}")
    result = _wide(requested) if dtype is None and function in _WIDENING else requested
    computed = result if result in input_types or result.kind == "b" else _wide(result)
    if x.is_on_device and not source == computed == result:
        raise TypeError(
            f"{name}: a device tensor of {x.layout} is not converted to {computed}; "
            "pass x.numpy(), or dtype=x.dtype if that has 32 or 64 bits"
        )
    return computed, result


def _wide(dtype: Type) -> Type:
    """The type of 64 bits of an integer type's kind, signed or unsigned; of another type, the type itself."""
    return np.dtype({"i": np.int64, "u": np.uint64}.get(dtype.kind, dtype))


def _has_no_axis(axis: Any) -> bool:
    """Whether the argument `axis` is () or another empty collection."""
    return axis.size == 0 if isinstance(axis, np.ndarray) else isinstance(axis, (tuple, list, range, Set)) and not axis


def _with_trailing(source: TensorDesc) -> TensorDesc:
    """The tensor with a last dimension of size 1; a packed tensor becomes 1-D first, because ranks are limited."""
    if source.is_packed:
        return replace(source, sizes=(source.element_count, 1), strides=None)
    return replace(source, sizes=(*source.sizes, 1), strides=(*source.element_strides, 0))


# Over windows


def pooled(
    kind: type[PoolingOperatorDesc],
    x: Operand,
    window_size: Any,
    *,
    output_sizes: Any = None,
    output_indices: Any = False,
    indices_data_type: Any = DataType.INT64,
    exact: Any = False,
    **window: Any,
) -> Call:
    """The results of windows over an array: values, or values and indices. Arguments are those of the functions."""
    name = kind.__name__
    leading, fields = _window(name, x.shape, window_size, **window)
    if output_sizes is not None:
        output_sizes = _spatial_sizes(name, "output_sizes", output_sizes, x, leading)
    _check_windowed(name, x.shape, leading)
    dtypes = [x.native]
    index_type, unsigned_type = _index_types(f"{name}.indices_data_type", indices_data_type)
    if flag(name, "output_indices", output_indices):
        fields["indices_data_type"] = unsigned_type
        dtypes.append(index_type.numpy)
        check_holds(f"{name}.indices_data_type", index_type, math.prod(x.shape), "elements", POSITION_TYPES)
    flags = ExecutionFlags.EXACT_SUMS if flag(name, "exact", exact) else ExecutionFlags.NONE
    source = _with_leading(x.tensor(f"{name}.input_tensor", kind.types["input_tensor"]), leading)
    # Probably images (height, width, channels), of which windows would pool width and channels.
    are_images = leading == len(x.shape) - 2 > 0 and x.shape[-1] <= 4 and min(x.shape[-3:-1]) >= 16
    advice = f"for an image (height, width, channels) pass x.transpose{(2, 0, 1) if leading == 1 else (0, 3, 1, 2)}"
    try:
        desc = kind.of(source, output_sizes=output_sizes, **fields)
    except DescriptorError as error:
        if are_images and f"{name}.window_size[1]: " in str(error):
            raise DescriptorError(f"{error}; {advice}") from None
        raise
    shape = x.shape[:leading] + desc.output_tensor.sizes[2:]
    warning = ""
    if are_images and x.shape[-1] > 2:
        warning = f"windows lie over the last two axes of {x.shape}; {advice}"
    return Call(desc, shape, tuple(dtypes), flags, fill=_fill_of(shape), warning=warning)


def adaptively_pooled(kind: type[PoolingOperatorDesc], x: Operand, output_sizes: Any, **options: Any) -> Call:
    """As `pooled`, with adjacent windows of equal size; `output_sizes`: their number along each dimension."""
    name = kind.__name__
    counts = (output_sizes,) * (3 if len(x.shape) == 5 else 2) if is_integer(output_sizes) else output_sizes
    counts = unsigned_array(name, "output_sizes", counts, 1)
    spatial = x.shape[-len(counts) :]
    if len(counts) not in (2, 3) or not len(counts) <= len(x.shape) <= len(counts) + 2:
        allowed = "(height, width) or (depth, height, width)"
        raise DescriptorError(f"{name}.output_sizes: {counts} does not match {x.shape}; allowed are {allowed}")
    if any(size % count for size, count in zip(spatial, counts, strict=True)):
        raise DescriptorError(
            f"{name}.output_sizes: {counts} is not allowed; allowed are divisors of {spatial}, as windows have one size"
        )
    window = tuple([size // count for size, count in zip(spatial, counts, strict=True)])
    return pooled(kind, x, window, strides=window, **options)


def quantized_pooled(
    x: Operand, window_size: Any, parameters: Mapping[str, Operand | None], dtype: Any, **window: Any
) -> Call:
    """The averages of quantized elements; `parameters`: scales and zero points, by their fields."""
    kind = QuantizedLinearAveragePoolingOperatorDesc
    name = kind.__name__
    leading, _ = _window(name, x.shape, window_size)
    types = dict.fromkeys(("input_scale_tensor", "output_scale_tensor"), DataType.FLOAT32)
    types["input_zero_point_tensor"] = x.tensor(f"{name}.input_tensor", kind.types["input_tensor"]).data_type
    types["output_zero_point_tensor"] = types["input_zero_point_tensor"]
    if dtype is not None:
        types["output_zero_point_tensor"] = DataType.of(
            dtype, f"{name}.output_tensor.data_type", kind.types["output_tensor"], of_input=False
        )
    tensors = {
        field: _of_channels(f"{name}.{field}", operand, types[field], x.shape, leading)
        for field, operand in parameters.items()
        if operand is not None
    }
    call = pooled(kind, x, window_size, output_data_type=dtype, **tensors, **window)
    return replace(call, dtypes=(call.desc.outputs[0].data_type.numpy,))


def _of_channels(field: str, operand: Operand, data_type: DataType, shape: Shape, leading: int) -> TensorDesc:
    """The tensor of a scale or zero point of an array of this shape: a number, or a number for each channel."""
    channels = shape[leading - 1] if leading else 1
    if operand.dtype.kind == "b":
        raise DescriptorError(f"{field}.data_type: bool is not allowed; allowed is {data_type.name}")
    if operand.shape not in ((), (1,), (channels,)):
        raise DescriptorError(
            f"{field}.sizes: {operand.shape} is wrong; allowed are a number, and ({channels},), one for each channel"
        )
    if (
        operand.shape == ()
        and not operand.is_on_device
        and operand.dtype.kind in ("iuf" if data_type.is_float else "iu")
    ):
        return TensorDesc(data_type, (1,))
    tensor = operand.tensor(field, (data_type,))
    if tensor.element_count == 1:
        return tensor
    spatial = (1,) * (len(shape) - leading)
    strides = (0, *tensor.element_strides, *(0 for _ in spatial))
    return replace(tensor, sizes=(1, *tensor.sizes, *spatial), strides=strides)


def average_pooled_grad(x: Operand, input_sizes: Any, window_size: Any, **window: Any) -> Call:
    """The gradient of average pooling; x: the gradient of each window's average."""
    name = AveragePoolingGradOperatorDesc.__name__
    leading, fields = _window(name, x.shape, window_size, **window)
    sizes = _spatial_sizes(name, "input_sizes", input_sizes, x, leading)
    _check_windowed(name, x.shape, leading, "input_gradient_tensor")
    source = x.tensor(f"{name}.input_gradient_tensor", AveragePoolingGradOperatorDesc.types["input_gradient_tensor"])
    desc = AveragePoolingGradOperatorDesc.of(_with_leading(source, leading), sizes, **fields)
    shape = x.shape[:leading] + sizes
    return Call(desc, shape, (x.native,), fill=_fill_of(shape))


def max_pooled_grad(x: Operand, gradient: Operand, window_size: Any, indices: Operand | None, **window: Any) -> Call:
    """The gradient of max pooling; with indices the elements of x are not read."""
    kind = MaxPoolingGradOperatorDesc
    name = kind.__name__
    leading, fields = _window(name, x.shape, window_size, **window)
    if len(gradient.shape) != len(x.shape) or gradient.shape[:leading] != x.shape[:leading]:
        raise DescriptorError(
            f"{name}.input_gradient_tensor.sizes: {gradient.shape} does not match an input of {x.shape}"
        )
    _check_windowed(name, x.shape, leading)
    _check_windowed(name, gradient.shape, leading, "input_gradient_tensor")
    windows = gradient.tensor(f"{name}.input_gradient_tensor", kind.types["input_gradient_tensor"])
    if indices is not None:
        fields["indices_tensor"] = _with_leading(_indices(name, indices, gradient.shape, "gradient"), leading)
    source = x.tensor(f"{name}.input_tensor", kind.types["input_tensor"])
    fields["input_gradient_tensor"] = _with_leading(windows, leading)
    desc = kind.of(_with_leading(source, leading), **fields)
    return Call(desc, x.shape, (x.native,), fill=_fill_of(x.shape))


def max_unpooled(x: Operand, indices: Any, output_sizes: Any) -> Call:
    """The elements of x at the positions `indices`, and 0 elsewhere."""
    name, leading = MaxUnpoolingOperatorDesc.__name__, len(x.shape) - 2
    if not 0 <= leading <= 2:
        raise DescriptorError(f"{name}.input_tensor.sizes: {x.shape} has {len(x.shape)} dimensions; allowed are 2 to 4")
    source = x.tensor(f"{name}.input_tensor", MaxUnpoolingOperatorDesc.types["input_tensor"])
    positions = _indices(name, indices, x.shape, "input")
    sizes = _spatial_sizes(name, "output_sizes", output_sizes, x, leading)
    if 0 in x.shape[leading:]:
        raise DescriptorError(f"{name}.input_tensor.sizes: {x.shape} is empty")
    indices_tensor = _with_leading(positions, leading)
    desc = MaxUnpoolingOperatorDesc.of(_with_leading(source, leading), sizes, indices_tensor=indices_tensor)
    shape = x.shape[:leading] + desc.output_tensor.sizes[2:]
    warning = ""
    if is_integer(output_sizes) and any(size > output_sizes for size in x.shape[leading:]):
        warning = f"output_sizes={output_sizes} is the size of the result, not of the window, and x has {x.shape}"
    return Call(desc, shape, (x.native,), fill=_fill_of(shape), warning=warning)


def roi_pooled(x: Operand, rois: Any, pooled_size: Any, spatial_scale: Any) -> Call:
    """The maxima of the bins of regions of interest."""
    kind, name = RoiPoolingOperatorDesc, RoiPoolingOperatorDesc.__name__
    if len(x.shape) != 4 or 0 in x.shape[2:]:
        raise DescriptorError(f"{name}.input_tensor.sizes: {x.shape} is not allowed; allowed is (N, C, height, width)")
    if len(rois.shape) != 2 or rois.shape[1] != 5:
        raise DescriptorError(f"{name}.roi_tensor.sizes: {rois.shape} is not allowed; allowed is (regions, 5)")
    source = x.tensor(f"{name}.input_tensor", kind.types["input_tensor"])
    regions = rois.tensor(f"{name}.roi_tensor", kind.types["roi_tensor"])
    desc = kind.of(source, pooled_size, spatial_scale, roi_tensor=_with_leading(regions, 0))
    shape = (rois.shape[0], x.shape[1], *desc.pooled_size)
    # If x has no batch entries, all regions are outside x: their results are 0.
    return Call(desc, shape, (x.native,), fill=0 if 0 in x.shape + shape else None)


def _fill_of(shape: Shape) -> float | None:
    """The `Call.fill` of results of this shape: any number if they have no elements."""
    return 0 if 0 in shape else None


def _check_windowed(name: str, shape: Shape, leading: int, field: str = "input_tensor") -> None:
    """Raises a DescriptorError if a spatial size is 0."""
    if 0 in shape[leading:]:
        raise DescriptorError(f"{name}.{field}.sizes: a window over {shape} is empty")


def _with_leading(source: TensorDesc, leading: int) -> TensorDesc:
    """The tensor with leading dimensions of size 1, so that N and C come before the spatial ones."""
    added = 2 - leading
    if added == 0:
        return source
    strides = None if source.strides is None else (0,) * added + source.strides
    return replace(source, sizes=(1,) * added + source.sizes, strides=strides)


# Types of indices in functions. Descriptors allow no INT64, and UINT64 replaces it: below 2^63 both have equal bits.
POSITION_TYPES = (DataType.INT64, DataType.UINT64, DataType.UINT32)


def _index_types(field: str, dtype: Any, *, of_input: bool = False) -> tuple[DataType, DataType]:
    """The type of indices, and the type that replaces it in descriptors."""
    data_type = DataType.of(dtype, field, POSITION_TYPES, of_input=of_input)
    if data_type not in POSITION_TYPES:
        advice = conversion(data_type.name.lower(), POSITION_TYPES) if of_input else ""
        allowed = listed(POSITION_TYPES) + advice
        raise DescriptorError(f"{field}: {data_type.name} is not supported; allowed are {allowed}")
    return data_type, DataType.UINT64 if data_type is DataType.INT64 else data_type


def _indices(name: str, indices: Operand, expected: Shape, source: str) -> TensorDesc:
    """The tensor of indices for a descriptor; `expected`: their shape, which is that of the descriptor's `source`."""
    field = f"{name}.indices_tensor"
    _, data_type = _index_types(f"{field}.data_type", indices.dtype, of_input=True)
    if indices.shape != expected:
        raise DescriptorError(f"{field}.sizes: {indices.shape} is wrong; expected {expected} of the {source}")
    return replace(indices.tensor(field, POSITION_TYPES), data_type=data_type)


def arguments_of(windows: Sequence[Window]) -> dict[str, tuple[Any, ...]]:
    """The arguments of functions, from the windows along each spatial dimension."""
    return {
        "window_size": tuple([window.window_size for window in windows]),
        "strides": tuple([window.stride for window in windows]),
        "dilations": tuple([window.dilation for window in windows]),
        "padding": tuple([(window.start_padding, window.end_padding) for window in windows]),
        "output_sizes": tuple([window.output_size for window in windows]),
    }


def _window(
    name: str, shape: Shape, window_size: Any, *, strides: Any = None, padding: Any = None, **others: Any
) -> tuple[int, dict[str, Any]]:
    """The number of dimensions before the spatial ones, and the window's fields for a descriptor's `of`."""
    if not is_integer(window_size):
        window_size = _entries(name, "window_size", window_size, 0)
    spatial = _spatial_rank(name, window_size, shape)
    fields = {"window_size": window_size, "strides": strides, **others}
    for field in ("window_size", "strides", "dilations"):
        if fields.get(field) is not None:
            fields[field] = _entries(name, field, fields[field], spatial)
    if isinstance(padding, str):
        raise _padding_error(name, padding, shape[-spatial:], fields)
    if padding is not None:
        entries = _entries(name, "padding", padding, spatial)
        pairs = [_sides(name, i, entry) for i, entry in enumerate(entries)]
        if len(pairs) != spatial:
            raise DescriptorError(
                f"{name}.padding: {shown(entries)} has {len(pairs)} entries; expected are {spatial}, an integer or a "
                "pair (before, after) for each spatial dimension"
            )
        fields["start_padding"], fields["end_padding"] = zip(*pairs, strict=True)
    return len(shape) - spatial, fields


def _entries(name: str, field: str, value: Any, spatial: int) -> Sequence[Any]:
    """An entry for each spatial dimension; the descriptor checks their number and values."""
    if is_integer(value):
        return (value,) * spatial
    if not _is_ordered(value):
        or_pairs = " or pairs (before, after)" if field == "padding" else ""
        raise DescriptorError(
            f"{name}.{field}: {shown(value)} is neither an integer nor a sequence of integers{or_pairs}"
        )
    return tuple(islice(value, MAX_RANK + 1))


def _padding_error(name: str, padding: str, sizes: Shape, fields: dict[str, Any]) -> DescriptorError:
    """The error for a padding by name, as in other libraries, with what to write instead: 'same' is TensorFlow's."""
    advice = "write an integer, or for each dimension an integer or a pair (before, after)"
    ones = (1,) * len(sizes)
    arguments = [fields.get(field) or ones for field in ("window_size", "strides", "dilations")]
    if padding.lower() == "valid":
        advice = "leave it out"
    elif padding.lower().startswith("same") and {*map(len, arguments)} == {len(sizes)}:
        rows = zip(sizes, *arguments, strict=True)
        totals = (Window(n, k, s, dilation=d, output_size=-(-n // s)).overhang for n, k, s, d in rows)
        advice = f"for these sizes write padding={tuple((total // 2, total - total // 2) for total in totals)}"
    return DescriptorError(f"{name}.padding: {padding!r} is not allowed; {advice}")


def _is_ordered(value: Any) -> bool:
    """Whether a value has ordered entries, and is not text."""
    return np.iterable(value) and not isinstance(value, (str, bytes, Mapping, Set))


def _sides(name: str, i: int, entry: Any) -> tuple[Any, Any]:
    """The padding before and after the elements of a dimension; the descriptor checks the values."""
    if is_integer(entry):
        return entry, entry
    sides = tuple(islice(entry, 3)) if _is_ordered(entry) else ()
    if len(sides) != 2:
        raise DescriptorError(f"{name}.padding[{i}]: {shown(entry)} is neither an integer nor a pair (before, after)")
    return sides


def _spatial_sizes(name: str, field: str, sizes: Any, x: Operand, leading: int) -> Shape:
    """The spatial sizes of a result, from its spatial sizes or all its sizes."""
    if sizes is None:
        raise DescriptorError(f"{name}.{field}: None is not allowed; give the sizes of what was pooled")
    spatial = len(x.shape) - leading
    entries = unsigned_array(name, field, _entries(name, field, sizes, spatial))  # N and C may be 0
    if len(entries) not in (spatial, len(x.shape)):
        raise DescriptorError(f"{name}.{field}: {shown(entries)} has {len(entries)} entries; expected {spatial}")
    shape = x.shape[:leading] + entries[-spatial:]
    if entries not in (shape, shape[leading:]):
        raise DescriptorError(f"{name}.{field}: {shown(entries)} is wrong; it must begin with {x.shape[:leading]}")
    if math.prod(shape) > MAX_ELEMENTS and not x.in_parts:
        raise DescriptorError(
            f"{name}.{field}: {shape} has {math.prod(shape)} elements; at most {MAX_ELEMENTS} are allowed"
        )
    return shape[leading:]


def _spatial_rank(name: str, window_size: Any, shape: Shape) -> int:
    """The number of spatial dimensions of an array; no dimension, C, or N and C come before them."""
    spatial = (3 if len(shape) == 5 else 2) if is_integer(window_size) else len(window_size)
    if spatial == 1 or len(shape) == 1:
        raise DescriptorError(
            f"{name}.window_size: {shown(window_size)} over {shape} is 1-D; pooling is 2-D or 3-D: "
            "reshape x to (..., 1, width), and use a window of (1, width)"
        )
    if spatial not in (2, 3):
        raise DescriptorError(f"{name}.window_size: {shown(window_size)} has {spatial} entries; allowed are 2 and 3")
    if not spatial <= len(shape) <= spatial + 2:
        allowed = "with an int as window_size are 2 to 5"
        if not is_integer(window_size):
            allowed = f"with a window_size of {spatial} entries are {spatial} to {spatial + 2}"
        raise DescriptorError(f"{name}.input_tensor.sizes: {shape} has {len(shape)} dimensions; allowed {allowed}")
    return spatial
