"""The operators as functions of arrays.

The body of a function returns its `Call`. The decorator adds the arguments `out` and `device`, and computes the call
where the array is: in this machine's memory, on a device, or in chunks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol, SupportsIndex, Unpack, cast, overload

from dmlgpu import call as calls
from dmlgpu.call import Call, Operand
from dmlgpu.descriptors.cumulative import CumulativeProductOperatorDesc, CumulativeSummationOperatorDesc
from dmlgpu.descriptors.dtypes import DataType
from dmlgpu.descriptors.operator import ExecutionFlags, OperatorDesc
from dmlgpu.descriptors.pooling import AveragePooling1OperatorDesc, LpPooling1OperatorDesc, MaxPooling2OperatorDesc
from dmlgpu.descriptors.reduction import ArgmaxOperatorDesc, ArgminOperatorDesc, AxisDirection, ReduceFunction
from dmlgpu.descriptors.tensor import Array, ArrayLike
from dmlgpu.lowering.plan import Plan
from dmlgpu.runtime.device import CacheInfo, Selector, open_device
from dmlgpu.runtime.tensor import DeviceTensor
from dmlgpu.sources import (
    Direction,
    ElementType,
    Function,
    Ints,
    Mode,
    Padding,
    Source,
    Where,
    Window,
    device_for,
    function,
    function_of_arrays,
)


@function
def argmax(
    x: Operand,
    axis: Ints | None = None,
    *,
    keepdims: bool = False,
    axis_direction: Direction = AxisDirection.INCREASING,
    dtype: ElementType = DataType.INT64,
    **where: Unpack[Where],
) -> Call:
    """The index of the maximum along axes, like `np.argmax`: `ArgmaxOperatorDesc` of an array.

    Args:
        x: up to 8 dimensions of bool, integers, or floats of 16 to 64 bits: anything that NumPy can view, a device
            tensor, a Dask array, or `dmlgpu.chunked` of an array or a file that is read in chunks.
        axis: an axis or several; negative axes count from the last; None: all.
        keepdims: whether to keep reduced axes, with size 1.
        axis_direction: INCREASING selects the first of equal maxima, DECREASING the last. NaNs are equal, and greatest.
        dtype: the type of the indices: INT64, INT32, UINT64 or UINT32, its name, or the NumPy type.
        out: target of the result: an array of its shape and type; for a device tensor a packed device tensor; for
            `dmlgpu.chunked` and Dask arrays anything that can be written by slices, or the path of a new .npy file.
        device: a Device, an index, part of a name or a UUID; None: x's device if x is a device tensor, otherwise the
            default device.

    Returns:
        Indices into the reduced axes, flattened in row-major order; empty if a kept size is 0. The result is `out` if
        that is not None; a device tensor or a Dask array if x is one; otherwise an array, or a NumPy scalar if no axis
        is left.

    Raises:
        DescriptorError: an argument is not allowed, or a reduced axis is empty; a DescriptorError is a ValueError.
        TypeError: the function has no such argument, or `out` has another type than the result.
        DeviceError: there is no such device. OutOfMemoryError: x does not fit the device's memory.
        SettingError: an environment variable has a value that is not allowed.

    Example:
        >>> import numpy as np, dmlgpu
        >>> x = np.float32([[1, 2, 3], [3, 0, 4], [2, 5, 2]])
        >>> dmlgpu.argmax(x, axis=1).tolist()
        [2, 2, 1]
        >>> int(dmlgpu.argmax(x))  # row 2, column 1: 2 * 3 + 1
        7
        >>> dmlgpu.argmax([[3, 7, 7]], axis=1, keepdims=True, axis_direction="decreasing").tolist()  # the last 7
        [[2]]
    """
    return calls.arg(ArgmaxOperatorDesc, x, axis, keepdims, axis_direction, dtype)


@function
def argmin(
    x: Operand,
    axis: Ints | None = None,
    *,
    keepdims: bool = False,
    axis_direction: Direction = AxisDirection.INCREASING,
    dtype: ElementType = DataType.INT64,
    **where: Unpack[Where],
) -> Call:
    """The index of the minimum along axes, like `np.argmin`: `ArgminOperatorDesc` of an array.

    NaNs are less than all numbers. Otherwise as `argmax`.

    Example:
        >>> import dmlgpu
        >>> dmlgpu.argmin([[3, 1, 2], [0, 5, 0]], axis=-1).tolist()
        [1, 0]
    """
    return calls.arg(ArgminOperatorDesc, x, axis, keepdims, axis_direction, dtype)


@function
def reduce(
    x: Operand,
    function: Function,
    axis: Ints | None = None,
    *,
    keepdims: bool = False,
    dtype: ElementType | None = None,
    exact: bool = False,
    **where: Unpack[Where],
) -> Call:
    """A function of the elements along axes: `ReduceOperatorDesc` of an array.

    Args:
        x: as for `argmax`, but sum, multiply, l1 and sum_square are only of float32, float16, and integers of 32 and
            64 bits; average, l2, log_sum and log_sum_exp only of float32 and float16.
        function: a ReduceFunction, or its name.
        axis: as for `argmax`; (): no axes, so each element is reduced alone; not allowed for argmax and argmin.
        keepdims: as for `argmax`.
        dtype: for ARGMAX and ARGMIN as for `argmax`; results of other functions have x's type.
        exact: whether sum, average, l1, l2 and sum_square of floats are rounded once: `ExecutionFlags.EXACT_SUMS`. Not
            allowed for other functions that compute with floats.
        out, device: as for `argmax`.

    Returns:
        The values, of x's type, or the indices; otherwise as `argmax`. Integers wrap around; `reference.bounds` has
        the error bounds of floats.

    Raises:
        DescriptorError: an argument is not allowed, or a reduced axis is empty. Others as for `argmax`.

    Example:
        >>> import numpy as np, dmlgpu
        >>> x = np.float32([[3, 4], [6, 8]])
        >>> dmlgpu.reduce(x, "l2", axis=1).tolist()
        [5.0, 10.0]
        >>> dmlgpu.reduce(x, dmlgpu.ReduceFunction.SUM_SQUARE, axis=(0, 1), keepdims=True).tolist()
        [[125.0]]
    """
    return calls.reduced(x, function, axis, keepdims, dtype=dtype, exact=exact)


@function
def sum(
    x: Operand,
    axis: Ints | None = None,
    *,
    dtype: ElementType | None = None,
    keepdims: bool = False,
    exact: bool = False,
    **where: Unpack[Where],
) -> Call:
    """The sum along axes, like `np.sum`.

    Args:
        x: as for `argmax`, of float16, float32, bool or an integer type.
        axis: as for `argmax`; (): no axes, returns the elements.
        dtype: the type in which x is summed, any type of x except bool. None: int64 for signed integers and bool,
            uint64 for unsigned integers, x's type for floats. Elements of a device tensor are not converted: a tensor
            of int32 or uint32 needs dtype=x.dtype.
        keepdims: as for `argmax`.
        exact: whether sums of floats are rounded once: `ExecutionFlags.EXACT_SUMS`.
        out, device: as for `argmax`.

    Returns:
        The sums; integers wrap. The sum of an empty array is 0. Otherwise as `argmax`.

    Raises:
        TypeError: x's type or `dtype` is not allowed; the message lists the allowed types.
        DescriptorError: another argument is not allowed. Others as for `argmax`.

    Example:
        >>> import numpy as np, dmlgpu
        >>> x = np.int8([[100, 100], [1, 2]])
        >>> dmlgpu.sum(x, axis=1).tolist()  # int64
        [200, 3]
        >>> dmlgpu.sum(x, axis=(0, -1), keepdims=True).tolist()
        [[203]]
        >>> y = np.float32([1e8, 1, -1e8] * 1000)  # all but the 1s cancel
        >>> float(dmlgpu.sum(y, exact=True))
        1000.0
    """
    return calls.numpy_reduced("sum", ReduceFunction.SUM, x, axis, keepdims, dtype, exact)


@function
def prod(
    x: Operand,
    axis: Ints | None = None,
    *,
    dtype: ElementType | None = None,
    keepdims: bool = False,
    **where: Unpack[Where],
) -> Call:
    """The product along axes, like `np.prod`; the product of an empty array is 1. Otherwise as `sum`.

    Example:
        >>> import dmlgpu
        >>> dmlgpu.prod([[1, 2], [3, 4]], axis=0).tolist()
        [3, 8]
    """
    return calls.numpy_reduced("prod", ReduceFunction.MULTIPLY, x, axis, keepdims, dtype)


@function
def mean(
    x: Operand,
    axis: Ints | None = None,
    *,
    dtype: ElementType | None = None,
    keepdims: bool = False,
    exact: bool = False,
    **where: Unpack[Where],
) -> Call:
    """The mean along axes, like `np.mean`, of float16 or float32.

    The mean of an empty array is NaN. Otherwise as `sum`.

    Example:
        >>> import numpy as np, dmlgpu
        >>> dmlgpu.mean(np.float32([[1, 2], [3, 5]]), axis=1).tolist()
        [1.5, 4.0]
    """
    return calls.numpy_reduced("mean", ReduceFunction.AVERAGE, x, axis, keepdims, dtype, exact)


@function
def cumulative_sum(
    x: Operand,
    *,
    axis: SupportsIndex | None = None,
    dtype: ElementType | None = None,
    include_initial: bool = False,
    axis_direction: Direction = AxisDirection.INCREASING,
    exact: bool = False,
    **where: Unpack[Where],
) -> Call:
    """The cumulative sums along an axis, as `np.cumulative_sum`: `CumulativeSummationOperatorDesc`.

    Args:
        x: as for `sum`.
        axis: an axis; a negative axis counts from the last. None: the only axis.
        dtype: as for `sum`.
        include_initial: whether an additional 0 precedes the sums; not allowed for device tensors.
        axis_direction: INCREASING begins at the first element, DECREASING at the last one.
        exact: as for `sum`.
        out, device: as for `argmax`.

    Returns:
        The sums, with x's shape; with `include_initial` the axis is longer by 1. Integers wrap. The error of a sum of
        floats does not grow with the number of elements. Otherwise as `argmax`.

    Raises:
        TypeError: x's type or `dtype` is not allowed; the message lists the allowed types.
        DescriptorError: another argument is not allowed. Others as for `argmax`.

    Example:
        >>> import numpy as np, dmlgpu
        >>> dmlgpu.cumulative_sum([1, 2, 3], include_initial=True).tolist()
        [0, 1, 3, 6]
        >>> dmlgpu.cumulative_sum([[1, 2], [3, 4]], axis=0, axis_direction="decreasing").tolist()
        [[4, 6], [3, 4]]
    """
    kind = CumulativeSummationOperatorDesc
    return calls.cumulative("cumulative_sum", kind, x, axis, dtype, include_initial, axis_direction, exact)


@function
def cumulative_prod(
    x: Operand,
    *,
    axis: SupportsIndex | None = None,
    dtype: ElementType | None = None,
    include_initial: bool = False,
    axis_direction: Direction = AxisDirection.INCREASING,
    **where: Unpack[Where],
) -> Call:
    """The cumulative products along an axis, as `np.cumulative_prod`: `CumulativeProductOperatorDesc`.

    With `include_initial` an additional 1 precedes the products. Otherwise as `cumulative_sum`.

    Example:
        >>> import dmlgpu
        >>> dmlgpu.cumulative_prod([[1, 2, 3], [4, 5, 6]], axis=1).tolist()
        [[1, 2, 6], [4, 20, 120]]
    """
    kind = CumulativeProductOperatorDesc
    return calls.cumulative("cumulative_prod", kind, x, axis, dtype, include_initial, axis_direction)


class _Extremum(Protocol):
    """`max` and `min`, which return two results with `output_indices=True`."""

    __name__: str

    @overload
    def __call__(
        self, x: DeviceTensor, axis: Ints | None = ..., *, keepdims: bool = ...,
        output_indices: Literal[False] = ..., indices_data_type: ElementType = ..., **where: Unpack[Where],
    ) -> DeviceTensor: ...  # fmt: skip
    @overload
    def __call__(
        self, x: DeviceTensor, axis: Ints | None = ..., *, keepdims: bool = ...,
        output_indices: Literal[True], indices_data_type: ElementType = ..., **where: Unpack[Where],
    ) -> tuple[DeviceTensor, DeviceTensor]: ...  # fmt: skip
    @overload
    def __call__(
        self, x: ArrayLike | Source, axis: Ints | None = ..., *, keepdims: bool = ...,
        output_indices: Literal[False] = ..., indices_data_type: ElementType = ..., **where: Unpack[Where],
    ) -> Array: ...  # fmt: skip
    @overload
    def __call__(
        self, x: ArrayLike | Source, axis: Ints | None = ..., *, keepdims: bool = ...,
        output_indices: Literal[True], indices_data_type: ElementType = ..., **where: Unpack[Where],
    ) -> tuple[Array, Array]: ...  # fmt: skip
    @overload
    def __call__(
        self, x: Any, axis: Ints | None = ..., *, keepdims: bool = ...,
        output_indices: bool = ..., indices_data_type: ElementType = ..., **where: Unpack[Where],
    ) -> Any: ...  # fmt: skip


_extremum = cast("Callable[[Any], _Extremum]", function)


@_extremum
def max(
    x: Operand,
    axis: Ints | None = None,
    *,
    keepdims: bool = False,
    output_indices: bool = False,
    indices_data_type: ElementType = DataType.INT64,
    **where: Unpack[Where],
) -> Call:
    """The maximum along axes, like `np.max`, and optionally the indices of `argmax`, in one pass over x.

    Args:
        x: as for `argmax`; not empty along the reduced axes.
        axis: as for `argmax`; without indices also (): no axes, returns the elements.
        keepdims: as for `argmax`.
        output_indices: whether to also return indices.
        indices_data_type: INT64, INT32, UINT64 or UINT32, or the NumPy type.
        out: as for `argmax`; with indices a pair.
        device: as for `argmax`.

    Returns:
        The maxima, or (maxima, indices), with the first index of equal maxima. NaN propagates. Otherwise as `argmax`.

    Raises:
        TypeError: x's type is not allowed; the message lists the allowed types. Others as for `argmax`.

    Example:
        >>> import dmlgpu
        >>> dmlgpu.max([[1.0, 4.0], [float("nan"), 2.0]], axis=1).tolist()
        [4.0, nan]
        >>> values, indices = dmlgpu.max([[1, 4, 4], [3, 0, 2]], axis=1, output_indices=True)
        >>> values.tolist(), indices.tolist()
        ([4, 3], [1, 0])
    """
    return calls.extremum("max", ReduceFunction.MAX, x, axis, keepdims, output_indices, indices_data_type)


@_extremum
def min(
    x: Operand,
    axis: Ints | None = None,
    *,
    keepdims: bool = False,
    output_indices: bool = False,
    indices_data_type: ElementType = DataType.INT64,
    **where: Unpack[Where],
) -> Call:
    """The minimum along axes, like `np.min`; otherwise as `max`.

    Example:
        >>> import dmlgpu
        >>> dmlgpu.min([[1, 4], [-3, 2]], axis=1).tolist()
        [1, -3]
    """
    return calls.extremum("min", ReduceFunction.MIN, x, axis, keepdims, output_indices, indices_data_type)


class _TopK(Protocol):
    """`top_k`, which returns two results."""

    __name__: str

    @overload
    def __call__(
        self, x: DeviceTensor, k: SupportsIndex, *, axis: SupportsIndex = ..., largest: bool = ..., sorted: bool = ...,
        mode: Mode | None = ..., indices_data_type: ElementType = ..., **where: Unpack[Where],
    ) -> tuple[DeviceTensor, DeviceTensor]: ...  # fmt: skip
    @overload
    def __call__(
        self, x: ArrayLike | Source, k: SupportsIndex, *, axis: SupportsIndex = ..., largest: bool = ...,
        sorted: bool = ..., mode: Mode | None = ..., indices_data_type: ElementType = ..., **where: Unpack[Where],
    ) -> tuple[Array, Array]: ...  # fmt: skip
    @overload
    def __call__(
        self, x: Any, k: SupportsIndex, *, axis: SupportsIndex = ..., largest: bool = ..., sorted: bool = ...,
        mode: Mode | None = ..., indices_data_type: ElementType = ..., **where: Unpack[Where],
    ) -> Any: ...  # fmt: skip


_top_k = cast("Callable[[Any], _TopK]", function)


@_top_k
def top_k(
    x: Operand,
    k: SupportsIndex,
    *,
    axis: SupportsIndex = -1,
    largest: bool = True,
    sorted: bool = True,
    mode: Mode | None = None,
    indices_data_type: ElementType = DataType.INT64,
    **where: Unpack[Where],
) -> Call:
    """The k greatest or least elements along an axis, and their indices: `TopK1OperatorDesc` of an array.

    The arguments are those of PyTorch's `topk` and of NumPy 2.6's `np.top_k`. The selected elements and their order are
    the same on every device and for all chunks: equal elements are in ascending order of their indices, and the first
    of them are selected.

    Args:
        x: as for `argmax`.
        k: number of elements; 1 to the size of the axis.
        axis: an axis; a negative axis counts from the last.
        largest: True selects the greatest elements, greatest first; False the least, least first. NaN is always greater
            than all numbers; in NumPy it is always last.
        sorted: for compatibility; the elements are always in order.
        mode: NumPy's alternative to `largest`: "largest" or "smallest".
        indices_data_type: as for `max`.
        out: a pair; both as for `argmax`.
        device: as for `argmax`.

    Returns:
        (values, indices), with x's shape, but size k on the axis; values have x's type. Otherwise as `argmax`.

    Raises:
        DescriptorError: an argument is not allowed, or the axis has fewer than k elements. Others as for `argmax`.

    Example:
        >>> import dmlgpu
        >>> values, indices = dmlgpu.top_k([[1, 7, 7, 3], [6, 6, 6, 6]], 3)
        >>> values.tolist(), indices.tolist()
        ([[7, 7, 3], [6, 6, 6]], [[1, 2, 3], [0, 1, 2]])
        >>> dmlgpu.top_k([3.0, float("nan"), 1.0], 2, largest=False)[0].tolist()
        [1.0, 3.0]
    """
    return calls.top_k(x, k, axis, largest, mode, sorted, indices_data_type)


class _MaxPooling(Protocol):
    """`max_pooling`, which returns two results with `output_indices=True`."""

    __name__: str

    @overload
    def __call__(
        self, x: DeviceTensor, window_size: Ints, *, output_sizes: Ints | None = ...,
        output_indices: Literal[False] = ..., indices_data_type: ElementType = ..., **window: Unpack[Window],
    ) -> DeviceTensor: ...  # fmt: skip
    @overload
    def __call__(
        self, x: DeviceTensor, window_size: Ints, *, output_sizes: Ints | None = ...,
        output_indices: Literal[True], indices_data_type: ElementType = ..., **window: Unpack[Window],
    ) -> tuple[DeviceTensor, DeviceTensor]: ...  # fmt: skip
    @overload
    def __call__(
        self, x: ArrayLike | Source, window_size: Ints, *, output_sizes: Ints | None = ...,
        output_indices: Literal[False] = ..., indices_data_type: ElementType = ..., **window: Unpack[Window],
    ) -> Array: ...  # fmt: skip
    @overload
    def __call__(
        self, x: ArrayLike | Source, window_size: Ints, *, output_sizes: Ints | None = ...,
        output_indices: Literal[True], indices_data_type: ElementType = ..., **window: Unpack[Window],
    ) -> tuple[Array, Array]: ...  # fmt: skip
    @overload
    def __call__(
        self, x: Any, window_size: Ints, *, output_sizes: Ints | None = ...,
        output_indices: bool = ..., indices_data_type: ElementType = ..., **window: Unpack[Window],
    ) -> Any: ...  # fmt: skip


_max_pooling = cast("Callable[[Any], _MaxPooling]", function)


@_max_pooling
def max_pooling(
    x: Operand,
    window_size: Ints,
    *,
    output_sizes: Ints | None = None,
    output_indices: bool = False,
    indices_data_type: ElementType = DataType.INT64,
    **window: Unpack[Window],
) -> Call:
    """The maximum of every window: `MaxPooling2OperatorDesc` of an array.

    Args:
        x: as for `argmax`: (N, C, H, W) or (N, C, D, H, W), where N, or N and C, may be missing. Pass a photograph
            (H, W, C) as x.transpose(2, 0, 1); otherwise W and C are pooled, with a warning if C is 3 or 4.
        window_size: (height, width), or (depth, height, width). An int stands for equal entries: three if x has 5
            dimensions, otherwise two. A volume (D, H, W) therefore needs (3, 3, 3), not 3. The same holds for strides,
            padding, dilations and output_sizes.
        output_sizes: all sizes of the output, or the spatial ones. None: as many windows as fit. Along a dimension
            where the windows leave a remainder, one more window is allowed (ceiling mode).
        output_indices: whether to also return indices.
        indices_data_type: INT64, UINT64 or UINT32, or the NumPy type.
        strides: step from one window to the next. None: 1, for every window size.
        padding: number of positions before and after the elements, which are never selected: an int for all sides, or
            for each dimension an int or a pair (before, after). None: 0.
        dilations: step from one element of a window to the next. None: 1.
        out, device: as for `argmax`; with indices `out` is a pair.

    Returns:
        The maxima, or (maxima, indices), with x's rank; empty if N or C is 0. An index is the position of a window's
        first maximum in the whole of x, in row-major order. Otherwise as `argmax`.

    Raises:
        DescriptorError: an argument is not allowed. Others as for `argmax`.

    Example:
        >>> import numpy as np, dmlgpu
        >>> image = np.arange(16, dtype=np.float32).reshape(4, 4)
        >>> dmlgpu.max_pooling(image, 2, strides=2).tolist()
        [[5.0, 7.0], [13.0, 15.0]]
        >>> values, indices = dmlgpu.max_pooling(image, (1, 3), strides=(2, 1), output_indices=True)
        >>> indices.tolist()
        [[2, 3], [10, 11]]
    """
    return calls.pooled(
        MaxPooling2OperatorDesc,
        x,
        window_size,
        output_sizes=output_sizes,
        output_indices=output_indices,
        indices_data_type=indices_data_type,
        **window,
    )


class _AdaptiveMaxPooling(Protocol):
    """`adaptive_max_pooling`, which returns two results with `output_indices=True`."""

    __name__: str

    @overload
    def __call__(
        self, x: DeviceTensor, output_sizes: Ints, *, output_indices: Literal[False] = ...,
        indices_data_type: ElementType = ..., **where: Unpack[Where],
    ) -> DeviceTensor: ...  # fmt: skip
    @overload
    def __call__(
        self, x: DeviceTensor, output_sizes: Ints, *, output_indices: Literal[True],
        indices_data_type: ElementType = ..., **where: Unpack[Where],
    ) -> tuple[DeviceTensor, DeviceTensor]: ...  # fmt: skip
    @overload
    def __call__(
        self, x: ArrayLike | Source, output_sizes: Ints, *, output_indices: Literal[False] = ...,
        indices_data_type: ElementType = ..., **where: Unpack[Where],
    ) -> Array: ...  # fmt: skip
    @overload
    def __call__(
        self, x: ArrayLike | Source, output_sizes: Ints, *, output_indices: Literal[True],
        indices_data_type: ElementType = ..., **where: Unpack[Where],
    ) -> tuple[Array, Array]: ...  # fmt: skip
    @overload
    def __call__(
        self, x: Any, output_sizes: Ints, *, output_indices: bool = ...,
        indices_data_type: ElementType = ..., **where: Unpack[Where],
    ) -> Any: ...  # fmt: skip


_adaptive_max_pooling = cast("Callable[[Any], _AdaptiveMaxPooling]", function)


@_adaptive_max_pooling
def adaptive_max_pooling(
    x: Operand,
    output_sizes: Ints,
    *,
    output_indices: bool = False,
    indices_data_type: ElementType = DataType.INT64,
    **where: Unpack[Where],
) -> Call:
    """`max_pooling` over adjacent windows of equal size, from their number along each dimension.

    Args:
        x: as for `max_pooling`.
        output_sizes: numbers of windows, (height, width) or (depth, height, width): divisors of x's spatial sizes. An
            int stands for equal numbers, as in `max_pooling`; with 1 a window is the whole plane.
        output_indices: as for `max_pooling`.
        indices_data_type: as for `max_pooling`.
        out, device: as for `max_pooling`.

    Returns:
        As `max_pooling`. For the gradient, call `max_pooling_grad` with the window's size as strides.

    Example:
        >>> import numpy as np, dmlgpu
        >>> image = np.arange(16, dtype=np.float32).reshape(4, 4)
        >>> dmlgpu.adaptive_max_pooling(image, (1, 2)).tolist()
        [[13.0, 15.0]]
    """
    return calls.adaptively_pooled(
        MaxPooling2OperatorDesc, x, output_sizes, output_indices=output_indices, indices_data_type=indices_data_type
    )


@function
def adaptive_average_pooling(x: Operand, output_sizes: Ints, *, exact: bool = False, **where: Unpack[Where]) -> Call:
    """`average_pooling` over the windows of `adaptive_max_pooling`.

    Args:
        x: as for `average_pooling`.
        output_sizes: as for `adaptive_max_pooling`.
        exact: as for `average_pooling`.
        out, device: as for `argmax`.

    Returns:
        As `average_pooling`.

    Example:
        >>> import numpy as np, dmlgpu
        >>> image = np.arange(16, dtype=np.float32).reshape(4, 4)
        >>> dmlgpu.adaptive_average_pooling(image, (1, 2)).tolist()
        [[6.5, 8.5]]
    """
    return calls.adaptively_pooled(AveragePooling1OperatorDesc, x, output_sizes, exact=exact)


@function
def average_pooling(
    x: Operand,
    window_size: Ints,
    *,
    output_sizes: Ints | None = None,
    include_padding: bool = False,
    exact: bool = False,
    **window: Unpack[Window],
) -> Call:
    """The average of every window: `AveragePooling1OperatorDesc` of an array.

    Args:
        x: as for `max_pooling`, of float32 or float16.
        window_size: as for `max_pooling`.
        output_sizes: as for `max_pooling`.
        include_padding: whether the padding counts, as zeros.
        exact: whether averages are rounded once: `ExecutionFlags.EXACT_SUMS`.
        strides, padding, dilations: as for `max_pooling`.
        out, device: as for `argmax`.

    Returns:
        The averages, of x's type and rank. Otherwise as `max_pooling`.

    Example:
        >>> import numpy as np, dmlgpu
        >>> image = np.float32([[1, 2], [3, 4]])
        >>> dmlgpu.average_pooling(image, 2).tolist()
        [[2.5]]
        >>> dmlgpu.average_pooling(image, 2, strides=2, padding=1, include_padding=True).tolist()
        [[0.25, 0.5], [0.75, 1.0]]
    """
    return calls.pooled(
        AveragePooling1OperatorDesc,
        x,
        window_size,
        output_sizes=output_sizes,
        include_padding=include_padding,
        exact=exact,
        **window,
    )


@function_of_arrays("x", "input_scale", "input_zero_point", "output_scale", "output_zero_point")
def quantized_average_pooling(
    x: Operand,
    window_size: Ints,
    *,
    input_scale: ArrayLike = 1,
    input_zero_point: ArrayLike | None = None,
    output_scale: ArrayLike = 1,
    output_zero_point: ArrayLike | None = None,
    dtype: ElementType | None = None,
    output_sizes: Ints | None = None,
    include_padding: bool = False,
    **window: Unpack[Window],
) -> Call:
    """The average of every window of quantized elements: `QuantizedLinearAveragePoolingOperatorDesc` of arrays.

    Args:
        x: as for `max_pooling`, but of int8 or uint8, and neither a Dask array nor `dmlgpu.chunked`. An element q has
            the value (q - input_zero_point) * input_scale.
        window_size: as for `max_pooling`.
        input_scale: a number, or an array of float32 with a scale for each channel.
        input_zero_point: an integer, or an array of x's type with a zero point for each channel; None: 0.
        output_scale: as input_scale. Averages are divided by it, and rounded to the nearest integer, ties to even.
        output_zero_point: as input_zero_point, but of the result's type; added after rounding.
        dtype: the type of the result, INT8 or UINT8, its name, or the NumPy type; None: x's type.
        output_sizes: as for `max_pooling`.
        include_padding: whether the padding counts, as zero points.
        strides, padding, dilations: as for `max_pooling`.
        out, device: as for `argmax`.

    Returns:
        The averages, of x's rank. Otherwise as `max_pooling`, with its errors.

    Example:
        >>> import numpy as np, dmlgpu
        >>> x = np.uint8([[10, 20, 30], [40, 50, 60]])
        >>> dmlgpu.quantized_average_pooling(x, 2).tolist()
        [[30, 40]]
        >>> dmlgpu.quantized_average_pooling(x, 2, input_scale=0.5, input_zero_point=10, output_zero_point=3).tolist()
        [[13, 18]]
    """
    parameters: dict[str, Any] = {
        "input_scale_tensor": input_scale,
        "input_zero_point_tensor": input_zero_point,
        "output_scale_tensor": output_scale,
        "output_zero_point_tensor": output_zero_point,
    }
    return calls.quantized_pooled(
        x, window_size, parameters, dtype, output_sizes=output_sizes, include_padding=include_padding, **window
    )


@function
def lp_pooling(
    x: Operand, window_size: Ints, *, p: int = 2, output_sizes: Ints | None = None, **window: Unpack[Window]
) -> Call:
    """The Lp norm of every window, sum(abs(x) ** p) ** (1 / p): `LpPooling1OperatorDesc` of an array.

    Args:
        x: as for `average_pooling`.
        window_size: as for `max_pooling`.
        output_sizes: as for `max_pooling`.
        p: an integer of 1 or more.
        strides, padding, dilations: as for `max_pooling`.
        out, device: as for `argmax`.

    Returns:
        The norms, of x's type and rank. Otherwise as `max_pooling`.

    Example:
        >>> import numpy as np, dmlgpu
        >>> dmlgpu.lp_pooling(np.float32([[3, 4, 0]]), (1, 2)).tolist()
        [[5.0, 4.0]]
    """
    return calls.pooled(LpPooling1OperatorDesc, x, window_size, output_sizes=output_sizes, p=p, **window)


@function
def average_pooling_grad(
    gradient: Operand,
    input_sizes: Ints,
    window_size: Ints,
    *,
    strides: Ints | None = None,
    padding: Padding | None = None,
    include_padding: bool = False,
    **where: Unpack[Where],
) -> Call:
    """The gradient of `average_pooling` without dilations: `AveragePoolingGradOperatorDesc` of an array.

    Args:
        gradient: an array as for `average_pooling`: the gradient of each window's average.
        input_sizes: all sizes of the pooled array, or the spatial ones; an int stands for equal spatial sizes.
        window_size: as for `max_pooling`.
        strides: as for `max_pooling`.
        padding: as for `max_pooling`.
        include_padding: whether the padding counted in the averages.
        out, device: as for `argmax`.

    Returns:
        An array of the pooled array's shape, or a device tensor if `gradient` is one. Otherwise as `max_pooling`.

    Example:
        >>> import numpy as np, dmlgpu
        >>> dmlgpu.average_pooling_grad(np.float32([[4, 8]]), (1, 3), (1, 2)).tolist()
        [[2.0, 6.0, 4.0]]
    """
    return calls.average_pooled_grad(
        gradient, input_sizes, window_size, strides=strides, padding=padding, include_padding=include_padding
    )


class _MaxPoolingGrad(Protocol):
    """`max_pooling_grad`, whose result is like its gradient."""

    __name__: str

    @overload
    def __call__(
        self, x: ArrayLike, gradient: DeviceTensor, window_size: Ints, *,
        indices: ArrayLike | None = ..., **window: Unpack[Window],
    ) -> DeviceTensor: ...  # fmt: skip
    @overload
    def __call__(
        self, x: ArrayLike, gradient: ArrayLike, window_size: Ints, *,
        indices: ArrayLike | None = ..., **window: Unpack[Window],
    ) -> Array: ...  # fmt: skip


_max_pooling_grad = cast(
    "Callable[[Any], _MaxPoolingGrad]", function_of_arrays("x", "gradient", "indices", like="gradient")
)


@_max_pooling_grad
def max_pooling_grad(
    x: Operand,
    gradient: Operand,
    window_size: Ints,
    *,
    indices: Operand | None = None,
    **window: Unpack[Window],
) -> Call:
    """The gradient of `max_pooling`: `MaxPoolingGradOperatorDesc` of arrays.

    Args:
        x: the pooled array, as for `max_pooling`, of float32 or float16. If `indices` is not None, its elements are not
            read.
        gradient: an array of x's type: the gradient of each window's first maximum.
        window_size: as for `max_pooling`.
        indices: the indices that `max_pooling` returned, of the gradient's shape; INT64, UINT64 or UINT32. Indices
            outside their windows are ignored. None: the maxima are searched again, which has the same results and
            needs about twice the time.
        strides, padding, dilations: as for `max_pooling`.
        out, device: as for `argmax`.

    Returns:
        An array of x's shape, or a device tensor if `gradient` is one. Otherwise as `max_pooling`.

    Example:
        >>> import numpy as np, dmlgpu
        >>> x, gradient = np.float32([[1, 9, 2]]), np.float32([[4, 8]])
        >>> dmlgpu.max_pooling_grad(x, gradient, (1, 2)).tolist()
        [[0.0, 12.0, 0.0]]
    """
    return calls.max_pooled_grad(x, gradient, window_size, indices, **window)


@function_of_arrays("x", "indices")
def max_unpooling(x: Operand, indices: ArrayLike, output_sizes: Ints, **where: Unpack[Where]) -> Call:
    """Zeros, with the maxima of `max_pooling` at their positions: `MaxUnpoolingOperatorDesc` of arrays.

    Args:
        x: (N, C, H, W), or without N, or without N and C; of the types of `argmax`.
        indices: an array of x's shape, of INT64, UINT64 or UINT32: the position of each element in the whole output, in
            row-major order. Negative positions, and those beyond the output, are ignored.
        output_sizes: all sizes of the output, or (height, width); an int stands for equal height and width.
        out, device: as for `argmax`.

    Returns:
        An array of x's type and rank, or a device tensor if x is one: at each position the last element with this
        index, or 0 if there is none. Otherwise as `max_pooling`.

    Example:
        >>> import numpy as np, dmlgpu
        >>> image = np.float32([[1, 9], [2, 3]])
        >>> values, indices = dmlgpu.max_pooling(image, 2, output_indices=True)
        >>> dmlgpu.max_unpooling(values, indices, (2, 2)).tolist()
        [[0.0, 9.0], [0.0, 0.0]]
    """
    return calls.max_unpooled(x, indices, output_sizes)


@function_of_arrays("x", "rois")
def roi_pooling(
    x: Operand, rois: ArrayLike, pooled_size: Ints, spatial_scale: float = 1.0, **where: Unpack[Where]
) -> Call:
    """The maxima of the bins of regions of interest: `RoiPoolingOperatorDesc` of arrays.

    Args:
        x: (N, C, H, W); float32 or float16; neither a Dask array nor `dmlgpu.chunked`.
        rois: (R, 5), of x's type: batch entry, x1, y1, x2, y2 of each region, where (x1, y1) is its first column and
            row, and (x2, y2) its last. Results are 0 for a batch entry that x lacks, and for bins outside x.
        pooled_size: numbers of bins of a region, (height, width); an int stands for both.
        spatial_scale: factor of the coordinates; the products are rounded.
        out, device: as for `argmax`.

    Returns:
        An array of (R, C, height, width), or a device tensor if x is one. Errors as for `argmax`.

    Example:
        >>> import numpy as np, dmlgpu
        >>> x = np.arange(36, dtype=np.float32).reshape(1, 1, 6, 6)
        >>> dmlgpu.roi_pooling(x, np.float32([[0, 0, 0, 5, 5], [0, 1, 1, 1, 2]]), (2, 1)).tolist()
        [[[[17.0], [35.0]]], [[[7.0], [13.0]]]]
    """
    return calls.roi_pooled(x, rois, pooled_size, spatial_scale)


def verify(
    desc: OperatorDesc, *inputs: Any, flags: ExecutionFlags = ExecutionFlags.NONE, device: Selector = None
) -> Any:
    """Runs an operator on a device, and compares its outputs with the oracle's: bit for bit, or within a bound.

    Args:
        desc: the operator.
        inputs: one array or device tensor for each input tensor.
        flags: as for `Device.compile`.
        device: as for `argmax`.

    Returns:
        The output, or a tuple of several, as from `CompiledOperator`.

    Raises:
        VerificationError: the outputs differ; the message has the first coordinates where they differ, both values and
            the plan. Other errors are those of `CompiledOperator`.

    Example:
        >>> import numpy as np, dmlgpu
        >>> x = np.float32([[1, 2, 3], [3, 0, 4]])
        >>> dmlgpu.verify(dmlgpu.ArgmaxOperatorDesc.of(x, axes=(1,)), x).tolist()
        [[2], [2]]
    """
    return device_for(device, inputs).run(desc, inputs, flags=flags, verify=True)


def explain(
    desc: OperatorDesc,
    *,
    device: Selector = None,
    flags: ExecutionFlags = ExecutionFlags.NONE,
    kernel: str | None = None,
) -> Plan:
    """The plan of an operator: the dispatches that compute it on a device. `print` shows it.

    Args:
        desc: the operator, such as `ArgmaxOperatorDesc.of(x, axes=(1,))`.
        device: as for `argmax`.
        flags: as for `Device.compile`.
        kernel: as for `Device.compile`.

    Raises:
        DescriptorError: the kernel cannot compute the operator, or the plan would have too many dispatches.
        DeviceError: there is no such device. OutOfMemoryError: the operator's tensors do not fit the device's memory.

    Example:
        >>> import numpy as np, dmlgpu
        >>> desc = dmlgpu.ArgmaxOperatorDesc.of(np.zeros((3, 4), np.float32))
        >>> plan = dmlgpu.explain(desc, kernel="reduce")
        >>> plan.kernel_choice[0].partition(":")[0]
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
    """Frees what a device keeps for later calls. Otherwise as `cache_info`.

    Example:
        >>> import dmlgpu
        >>> dmlgpu.clear_cache()
        >>> dmlgpu.cache_info().operators
        0
    """
    open_device(device).clear_cache()
