"""The arguments of functions as descriptors: negative axes, results without reduced axes, ints for windows, int64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, wraps
from typing import Any, Literal, ParamSpec, SupportsIndex

import numpy as np
import numpy.typing as npt

from dmlgpu.descriptors.dtypes import DataType, conversion, element_type, listed
from dmlgpu.descriptors.operator import SELECTED_TYPES, ExecutionFlags, OperatorDesc
from dmlgpu.descriptors.pooling import (
    HOW_MANY,
    WINDOW_FIELDS,
    AveragePoolingGradOperatorDesc,
    MaxPooling2OperatorDesc,
    MaxPoolingGradOperatorDesc,
    MaxUnpoolingOperatorDesc,
    PoolingOperatorDesc,
    count_windows,
)
from dmlgpu.descriptors.reduction import (
    ARG_TYPES,
    REDUCE_TYPES,
    ArgOperatorDesc,
    AxisDirection,
    ReduceFunction,
    ReduceOperatorDesc,
    axes_of,
    one_of_both,
)
from dmlgpu.descriptors.tensor import MAX_ELEMENTS, TensorDesc, integers_or_one, is_integer, unsigned_array
from dmlgpu.errors import DescriptorError, shown
from dmlgpu.lowering.problem import problems_with

Shape = tuple[int, ...]
P = ParamSpec("P")

# What users type: an entry for each axis or dimension, or one for all; members of enumerations, or their names.
Ints = SupportsIndex | Iterable[SupportsIndex]
Direction = AxisDirection | Literal["increasing", "decreasing"]
Function = (
    ReduceFunction
    | Literal["argmax", "argmin", "average", "l1", "l2", "log_sum", "log_sum_exp"]
    | Literal["max", "min", "multiply", "sum", "sum_square"]
)
ElementType = DataType | npt.DTypeLike


@dataclass(frozen=True)
class Call:
    """A call of a function: the operator that computes it, and the shape and types of the caller's results."""

    desc: OperatorDesc
    shape: Shape
    """Of every result. It has the elements of an output, but dimensions of size 1 may be missing or added."""
    data_types: tuple[DataType, ...]
    """Of every result: the output's type; or INT64, where the output has the same bits as UINT64."""
    is_empty: bool
    """Whether the results have no elements: then nothing is computed."""
    flags: ExecutionFlags = ExecutionFlags.NONE

    @cached_property
    def tensors(self) -> tuple[TensorDesc, ...]:
        """The packed tensors of the results."""
        return tuple(packed(self.shape, data_type) for data_type in self.data_types)


def packed(shape: Shape, data_type: DataType) -> TensorDesc:
    """The packed tensor for an array of this shape.

    DirectML has neither 0-D nor empty tensors: () becomes (1,), and a size 0 becomes 1, so that everything else about
    the call can still be checked.
    """
    return TensorDesc(data_type, tuple(max(size, 1) for size in shape) or (1,))


def _with_leading(source: TensorDesc, count: int) -> TensorDesc:
    """The tensor with `count` dimensions of size 1 before its own."""
    if count == 0:
        return source
    strides = None if source.strides is None else (0,) * count + source.strides
    return replace(source, sizes=(1,) * count + source.sizes, strides=strides)


def _with_trailing(source: TensorDesc) -> TensorDesc:
    """The tensor with a dimension of size 1 behind its own; of a packed one these become one, as ranks are limited."""
    if source.is_packed:
        return replace(source, sizes=(source.element_count, 1), strides=None)
    return replace(source, sizes=(*source.sizes, 1), strides=(*source.element_strides, 0))


# Types whose values never change what they are equal to, so that they can be keys of a cache.
_LASTING = frozenset({int, bool, str, type(None), type, DataType, AxisDirection, ReduceFunction, TensorDesc})


def _cached(function: Callable[P, Call]) -> Callable[P, Call]:
    """The function with a cache of its last 256 calls: checking a descriptor takes longer than a look-up.

    Keys include the types of arguments, because True equals 1 but is refused. Calls are cached only if each argument is
    of a type in `_LASTING`, or a tuple of ints.
    """
    cached: Any = lru_cache(256, typed=True)(function)

    @wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> Call:
        values: Any = (*arguments, *options.values())
        for value in values:
            kind = type(value)
            if kind not in _LASTING and not (kind is tuple and all(type(each) is int for each in value)):
                return function(*arguments, **options)
        known: Call = cached(*arguments, **options)
        return known

    return call


@_cached
def arg(
    kind: type[ArgOperatorDesc],
    shape: Shape,
    source: TensorDesc,
    axis: Any = None,
    axes: Any = None,
    keepdims: bool | None = None,
    axis_direction: AxisDirection = AxisDirection.INCREASING,
    output_data_type: Any = DataType.INT64,
) -> Call:
    """A call of argmax or argmin, with its arguments, on an array of this shape and the layout of `source`."""
    fields = {"axis_direction": axis_direction, "output_data_type": output_data_type}
    return _reduction(kind, shape, source, axis, axes, keepdims, fields)


@_cached
def reduce(
    shape: Shape,
    source: TensorDesc,
    function: Any,
    axis: Any = None,
    *,
    axes: Any = None,
    keepdims: bool | None = None,
    output_data_type: Any = None,
    exact: bool = False,
) -> Call:
    """A call of reduce, with its arguments, on an array of this shape and the layout of `source`."""
    gives_indices = REDUCE_TYPES.get(ReduceFunction.member(function)) is ARG_TYPES
    if axes is None and isinstance(axis, (tuple, list)) and not axis and not gives_indices:
        # As in NumPy: over no axes each element is an output. It is reduced along an added dimension.
        _flag(ReduceOperatorDesc.__name__, "keepdims", False if keepdims is None else keepdims)
        alone = _with_trailing(source)
        call = reduce_axes(alone.sizes, alone, function, -1, output_data_type=output_data_type, exact=exact)
        return replace(call, shape=shape, is_empty=0 in shape)
    options = {"axes": axes, "keepdims": keepdims, "output_data_type": output_data_type, "exact": exact}
    return reduce_axes(shape, source, function, axis, **options)


def reduce_axes(
    shape: Shape,
    source: TensorDesc,
    function: Any,
    axis: Any = None,
    *,
    axes: Any = None,
    keepdims: bool | None = None,
    output_data_type: Any = None,
    exact: bool = False,
) -> Call:
    """As `reduce`, over one axis at least: the descriptor's axes are those of the array."""
    if output_data_type is None and REDUCE_TYPES.get(ReduceFunction.member(function)) is ARG_TYPES:
        output_data_type = DataType.INT64
    fields = {"function": function, "output_data_type": output_data_type}
    return _with_sums(_reduction(ReduceOperatorDesc, shape, source, axis, axes, keepdims, fields), exact)


def _with_sums(call: Call, exact: Any) -> Call:
    """A call whose sums of floats are exact, or as they are."""
    if not _flag(type(call.desc).__name__, "exact", exact):
        return call
    problems_with(call.desc, ExecutionFlags.EXACT_SUMS)  # refuses what cannot be exact, also of empty arrays
    return replace(call, flags=ExecutionFlags.EXACT_SUMS)


Type = np.dtype[Any]
# Functions whose results are wider than integers of x.
_WIDENING = (ReduceFunction.SUM, ReduceFunction.MULTIPLY)


def converted(name: str, function: ReduceFunction, source: Type, dtype: Any) -> tuple[Type, Type | None]:
    """The types that NumPy's function of this name computes in.

    Returns:
        What x is converted to, and another type for the result, or None. A narrower one keeps the lowest bits.

    Raises:
        TypeError: the function does not take x's type or `dtype`.
    """
    taken, widened, allowed = _numpy_types(function)
    if dtype is None and source.kind == "b" and function in _WIDENING:
        dtype = np.int64  # counts, as NumPy does
    found = source if dtype is None else element_type(dtype)
    if found is None or (isinstance(found, DataType) and found.bits < 8):
        raise TypeError(f"{name}: dtype={shown(dtype)} is neither a DataType nor a NumPy type")
    wanted = found.numpy if isinstance(found, DataType) else found.newbyteorder("=")
    if wanted not in allowed or source.kind not in "biuf":
        refused = f"dtype={wanted} of {source}" if dtype is not None else source
        how = conversion(source.name, widened) if dtype is None else ""
        raise TypeError(f"{name}: {refused} is not supported; allowed are {', '.join(map(str, allowed))}{how}")
    result = _wide(wanted) if dtype is None and function in _WIDENING else wanted
    computed = result if result in taken else _wide(result)
    return computed, result if result != computed else None


@lru_cache
def _numpy_types(function: ReduceFunction) -> tuple[list[Type], list[DataType], list[Type]]:
    """The types that a function takes; those that it takes when they are widened; and all that callers may give."""
    taken = [each.numpy for each in REDUCE_TYPES[function]["input_tensor"]]
    widened = [each for each in SELECTED_TYPES if _wide(each.numpy) in taken]
    booleans = [np.dtype(bool)] if np.dtype(np.uint8) in taken else []
    return taken, widened, [each.numpy for each in widened] + booleans


def _wide(dtype: Type) -> Type:
    """The 64-bit type for integers, signed or unsigned; floats stay."""
    return np.dtype({"i": np.int64, "u": np.uint64}.get(dtype.kind, dtype))


def numpy_reduce(
    name: str,
    function: ReduceFunction,
    shape: Shape,
    source: TensorDesc,
    axis: Any,
    dtype: Any,
    keepdims: Any,
    exact: bool = False,
) -> Call:
    """A call of NumPy's function of this name on a tensor, which is not converted.

    Raises:
        TypeError: the function does not take its type or `dtype`, or would have to convert it.
    """
    computed, other = converted(name, function, source.data_type.numpy, dtype)
    if other or computed != source.data_type.numpy:
        raise TypeError(
            f"{name}: {source} would have to be converted to {computed}, and a device tensor is not; "
            "pass x.numpy(), or dtype=x.dtype where that has 32 or 64 bits"
        )
    return reduce(shape, source, function, axis, keepdims=keepdims, exact=exact)


def _reduction(
    kind: type[ArgOperatorDesc | ReduceOperatorDesc],
    shape: Shape,
    source: TensorDesc,
    axis: Any,
    axes: Any,
    keepdims: Any,
    fields: dict[str, Any],
) -> Call:
    """A call of a reduction; `fields` are further arguments of its descriptor's `of`."""
    name = kind.__name__
    if axes is None:
        axes = axes_of(name, axis, source.rank)
        keepdims = False if keepdims is None else _flag(name, "keepdims", keepdims)
    else:
        if axis is not None:
            raise one_of_both(name, axes, axis)
        if keepdims is not None and not _flag(name, "keepdims", keepdims):
            raise DescriptorError(f"{name}.axes: {shown(axes)} keeps the rank; give axis= for keepdims=False")
        axes = (axes,) if is_integer(axes) else axes
        keepdims = True
    desc = kind.of(input_tensor=source, axes=axes, **fields)
    if any(shape[i] == 0 for i in desc.axes if i < len(shape)):
        raise DescriptorError(f"{name}.input_tensor.sizes: axes {desc.axes} of {shape} are empty")
    sizes = [(1 if i in desc.axes else size) for i, size in enumerate(shape) if keepdims or i not in desc.axes]
    return Call(desc, tuple(sizes), (desc.output_tensor.data_type,), 0 in shape)


def _flag(name: str, field: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise DescriptorError(f"{name}.{field}: {shown(value)} is not allowed; allowed are True and False")
    return bool(value)


# The types that the functions allow for positions.
INDEX_TYPES = (DataType.INT64, DataType.UINT64, DataType.UINT32)


def _index_type(field: str, data_type: DataType, *, of_input: bool) -> DataType:
    """The type in descriptors for positions of this type in functions.

    DirectML has only unsigned types, so INT64 becomes UINT64: positions in a tensor have the same bits in both.
    """
    if data_type not in INDEX_TYPES:
        raise DescriptorError(
            f"{field}: {data_type.name} is not supported; allowed are {listed(INDEX_TYPES)}"
            + (conversion(data_type.name.lower(), INDEX_TYPES) if of_input else "")
        )
    return DataType.UINT64 if data_type is DataType.INT64 else data_type


@_cached
def max_pooling(
    shape: Shape,
    source: TensorDesc,
    window_size: Any,
    *,
    output_indices: bool = False,
    indices_data_type: Any = DataType.INT64,
    **window: Any,
) -> Call:
    """A call of max_pooling, with its arguments, on an array of this shape and the layout of `source`."""
    name = MaxPooling2OperatorDesc.__name__
    field = f"{name}.output_indices_tensor.data_type"
    index_type = DataType.of(indices_data_type, field, INDEX_TYPES, of_input=False)
    unsigned_type = _index_type(field, index_type, of_input=False)
    if not _flag(name, "output_indices", output_indices):
        return pooling(MaxPooling2OperatorDesc, shape, source, window_size, **window)
    call = pooling(MaxPooling2OperatorDesc, shape, source, window_size, indices_data_type=unsigned_type, **window)
    return replace(call, data_types=(*call.data_types, index_type))


@_cached
def pooling(
    kind: type[PoolingOperatorDesc],
    shape: Shape,
    source: TensorDesc,
    window_size: Any,
    *,
    output_sizes: Any = None,
    indices_data_type: Any = None,
    exact: bool = False,
    **others: Any,
) -> Call:
    """A call of a pooling with one result on an array of this shape and the layout of `source`.

    The other arguments are those of `max_pooling`, and of the descriptor's `of`.
    """
    name = kind.__name__
    leading, window, counts = _pooled(name, shape, window_size, output_sizes, **others)
    sizes = shape[:leading] + counts
    _check_elements(name, "output_tensor.sizes", sizes)
    x = _with_leading(source, 2 - leading)
    desc = kind.of(x, output_sizes=counts, indices_data_type=indices_data_type, **window)
    return _with_sums(Call(desc, sizes, (source.data_type,), 0 in shape), exact)


def pooled_dimensions(
    kind: type[PoolingOperatorDesc],
    shape: Shape,
    data_type: DataType,
    window_size: Any,
    *,
    output_sizes: Any = None,
    **others: Any,
) -> list[PoolingOperatorDesc]:
    """A descriptor for each spatial dimension of a pooling; in it, sizes and window are the least along the others.

    So the array may have more elements than a tensor. Other arguments and errors as for `pooling`.
    """
    leading, window, counts = _pooled(kind.__name__, shape, window_size, output_sizes, **others)
    spatial = len(shape) - leading

    def alone(i: int, value: Any, least: int = 1) -> Any:
        return None if value is None else tuple(value[j] if i == j else least for j in range(spatial))

    return [
        kind.of(
            TensorDesc(data_type, (1, 1, *alone(i, shape[leading:]))),
            output_sizes=alone(i, counts),
            **{
                field: alone(i, value, WINDOW_FIELDS[field]) if field in WINDOW_FIELDS else value
                for field, value in window.items()
            },
        )
        for i in range(spatial)
    ]


@_cached
def average_pooling_grad(shape: Shape, source: TensorDesc, input_sizes: Any, window_size: Any, **others: Any) -> Call:
    """A call of average_pooling_grad, with its arguments, on a gradient of this shape and the layout of `source`."""
    name, field = AveragePoolingGradOperatorDesc.__name__, "input_sizes"
    leading, window, names = _window(name, shape, window_size, **others)
    spatial = _sizes(name, field, input_sizes, shape, leading)
    if spatial is None:
        raise DescriptorError(f"{name}.{field}: None is not allowed; give the sizes of what was pooled")
    if 0 in shape[leading:]:
        raise DescriptorError(f"{name}.input_gradient_tensor.sizes: {shape} has no windows")
    _counts(name, spatial, shape, leading, window, {**names, "counts": "input_gradient_tensor.sizes"})
    sizes = shape[:leading] + spatial
    _check_elements(name, field, sizes)
    desc = AveragePoolingGradOperatorDesc.of(_with_leading(source, 2 - leading), spatial, **window)
    return Call(desc, sizes, (source.data_type,), 0 in shape)


@_cached
def max_pooling_grad(
    shape: Shape,
    source: TensorDesc,
    gradient_shape: Shape,
    gradient: TensorDesc,
    window_size: Any,
    *,
    indices_shape: Shape | None = None,
    indices: TensorDesc | None = None,
    **others: Any,
) -> Call:
    """A call of max_pooling_grad, with its arguments, on an array, a gradient and indices of these shapes and layouts.

    With indices the layout of the array, which is not read, does not count.
    """
    name = MaxPoolingGradOperatorDesc.__name__
    leading, window, names = _window(name, shape, window_size, **others)
    if len(gradient_shape) != len(shape) or gradient_shape[:leading] != shape[:leading]:
        raise DescriptorError(
            f"{name}.input_gradient_tensor.sizes: {gradient_shape} does not go with an input of {shape}"
        )
    if 0 in (*shape[leading:], *gradient_shape[leading:]):
        raise DescriptorError(f"{name}.input_tensor.sizes: a window over {shape} is empty")
    names = {**names, "counts": "input_gradient_tensor.sizes"}
    _counts(name, shape[leading:], gradient_shape, leading, window, names)
    if indices is not None:
        indices = _with_leading(_indices(name, indices_shape, indices, gradient_shape, "gradient"), 2 - leading)
        source = packed(shape, source.data_type)
    x, windows = (_with_leading(tensor, 2 - leading) for tensor in (source, gradient))
    desc = MaxPoolingGradOperatorDesc.of(x, input_gradient_tensor=windows, indices_tensor=indices, **window)
    return Call(desc, shape, (source.data_type,), 0 in shape)


def _indices(name: str, shape: Shape | None, indices: TensorDesc, expected: Shape, whose: str) -> TensorDesc:
    """Positions that are given, as a descriptor takes them; they must have the shape of an input."""
    index_type = _index_type(f"{name}.indices_tensor.data_type", indices.data_type, of_input=True)
    if shape != expected:
        raise DescriptorError(f"{name}.indices_tensor.sizes: {shape} is wrong; expected {expected} of the {whose}")
    return replace(indices, data_type=index_type)


@_cached
def max_unpooling(
    shape: Shape, source: TensorDesc, indices_shape: Shape, indices: TensorDesc, output_sizes: Any
) -> Call:
    """A call of max_unpooling, with its arguments, on an array and indices of these shapes and layouts."""
    name = MaxUnpoolingOperatorDesc.__name__
    if not 2 <= len(shape) <= 4:
        raise DescriptorError(f"{name}.input_tensor.sizes: {shape} has {len(shape)} dimensions; allowed are 2 to 4")
    indices = _indices(name, indices_shape, indices, shape, "input")
    leading = len(shape) - 2
    spatial = _sizes(name, "output_sizes", output_sizes, shape, leading)
    if spatial is None:
        raise DescriptorError(f"{name}.output_sizes: None is not allowed; give the sizes of what was pooled")
    if 0 in shape[leading:]:
        raise DescriptorError(f"{name}.input_tensor.sizes: {shape} is empty")
    sizes = shape[:leading] + spatial
    _check_elements(name, "output_sizes", sizes)
    x, places = (_with_leading(tensor, 2 - leading) for tensor in (source, indices))
    desc = MaxUnpoolingOperatorDesc.of(x, spatial, indices_tensor=places)
    return Call(desc, sizes, (source.data_type,), 0 in shape[:leading])


def _pooled(
    name: str, shape: Shape, window_size: Any, output_sizes: Any, **others: Any
) -> tuple[int, dict[str, Any], Shape]:
    """What `_window` returns, without the names, and the number of windows along each spatial dimension."""
    leading, window, names = _window(name, shape, window_size, **others)
    spatial = shape[leading:]
    counts = _sizes(name, "output_sizes", output_sizes, shape, leading)
    if 0 in spatial:
        raise DescriptorError(f"{name}.input_tensor.sizes: a window over {shape} is empty")
    return leading, window, _counts(name, spatial, counts, 0, window, {**names, "counts": "output_sizes"})


def _counts(
    name: str, spatial: Shape, given: Shape | None, leading: int, window: dict[str, Any], names: dict[str, str]
) -> Shape:
    """The number of windows along each spatial dimension; errors name fields as the caller does.

    `given`, if not None, must have these numbers, after `leading` sizes of dimensions before the spatial ones.
    """

    def error(field: str, i: int, text: str) -> DescriptorError:
        place = "" if field == "counts" else f"[{i}]"
        return DescriptorError(f"{name}.{names.get(field, field)}{place}: {text}")

    counts = count_windows(spatial, given and given[leading:], window, error)
    if given is not None and given[leading:] != counts:
        raise DescriptorError(
            f"{name}.{names['counts']}: {given} is wrong; expected {given[:leading] + counts}, {HOW_MANY}"
        )
    return counts


def _check_elements(name: str, field: str, sizes: Shape) -> None:
    """Raises a DescriptorError for more elements than a tensor may have."""
    if math.prod(sizes) > MAX_ELEMENTS:
        raise DescriptorError(
            f"{name}.{field}: {sizes} has {math.prod(sizes)} elements; at most {MAX_ELEMENTS} are allowed"
        )


def _window(
    name: str,
    shape: Shape,
    window_size: Any,
    *,
    strides: Any = None,
    padding: Any = None,
    start_padding: Any = None,
    end_padding: Any = None,
    **others: Any,
) -> tuple[int, dict[str, Any], dict[str, str]]:
    """The number of dimensions before the spatial ones, the window as a descriptor's `of` takes it, and names.

    The names are the caller's for fields that have another name there: `padding` for start_padding and end_padding.
    """
    window_size = window_size if is_integer(window_size) else integers_or_one(name, "window_size", window_size)
    spatial = _spatial(name, window_size, shape)
    if padding is not None:
        if start_padding is not None or end_padding is not None:
            beside = "start_padding" if start_padding is not None else "end_padding"
            raise DescriptorError(f"{name}.{beside}: padding is given too, which is both sides; give one of them")
        start_padding = end_padding = _each(name, "padding", padding, spatial)
    window = {
        "window_size": window_size,
        "strides": strides,
        "start_padding": start_padding,
        "end_padding": end_padding,
        **others,
    }
    given = {
        field: _each(name, field, value, spatial) if field in WINDOW_FIELDS else value
        for field, value in window.items()
    }
    names = {} if padding is None else {"start_padding": "padding", "end_padding": "padding"}
    return len(shape) - spatial, given, names


def _each(name: str, field: str, value: Any, spatial: int) -> Shape | None:
    """The value of a field, with an entry for each spatial dimension; None stays None."""
    if value is None:
        return None
    given = (value,) * spatial if is_integer(value) else integers_or_one(name, field, value)
    if len(given) != spatial:
        raise DescriptorError(f"{name}.{field}: {shown(given)} has {len(given)} entries; the window has {spatial}")
    return unsigned_array(name, field, given, WINDOW_FIELDS.get(field, 0))


def _sizes(name: str, field: str, sizes: Any, shape: Shape, leading: int) -> Shape | None:
    """The spatial sizes, if these or all sizes are given; None stays None."""
    if sizes is None:
        return None
    spatial = len(shape) - leading
    given = (sizes,) * spatial if is_integer(sizes) else integers_or_one(name, field, sizes)
    if len(given) == len(shape):
        if given[:leading] != shape[:leading]:
            raise DescriptorError(f"{name}.{field}: {shown(given)} is wrong; it must begin as {shape} does")
        given = given[leading:]
    if len(given) != spatial:
        raise DescriptorError(f"{name}.{field}: {shown(given)} has {len(given)} entries; {spatial} are spatial")
    return unsigned_array(name, field, given, 1)


def _spatial(name: str, window_size: Any, shape: Shape) -> int:
    """The number of spatial dimensions of a window over an array; none, C, or N and C come before them."""
    spatial = (3 if len(shape) == 5 else 2) if is_integer(window_size) else len(window_size)
    if spatial == 1 or len(shape) == 1:
        raise DescriptorError(
            f"{name}.window_size: {shown(window_size)} over {shape} is 1-D; pooling is 2-D or 3-D: "
            "reshape x to (..., 1, width), and take a window of (1, width)"
        )
    if spatial not in (2, 3):
        raise DescriptorError(f"{name}.window_size: {shown(window_size)} has {spatial} entries; allowed are 2 and 3")
    if not spatial <= len(shape) <= spatial + 2:
        takes = "an int as window takes 2 to 5"
        if not is_integer(window_size):
            takes = f"a window of {spatial} entries takes {spatial} to {spatial + 2}"
        raise DescriptorError(f"{name}.input_tensor.sizes: {shape} has {len(shape)} dimensions; {takes}")
    return spatial
