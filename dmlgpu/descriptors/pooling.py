"""The descriptors of windowed pooling."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, ClassVar, Self

from dmlgpu.descriptors.dtypes import DataType
from dmlgpu.descriptors.operator import SELECTED_TYPES, OperatorDesc, TypeTable
from dmlgpu.descriptors.tensor import MAX_ELEMENTS, LargeTensorDesc, TensorDesc, unsigned, unsigned_array
from dmlgpu.descriptors.window import Window

MAX_POOLING_TYPES: TypeTable = {  # feature level 5_0
    "input_tensor": SELECTED_TYPES,
    "output_tensor": SELECTED_TYPES,
    "output_indices_tensor": (DataType.UINT64, DataType.UINT32),
}


FLOAT_POOLING_TYPES: TypeTable = {  # feature levels 1_0 and 6_2
    "input_tensor": (DataType.FLOAT32, DataType.FLOAT16),
    "output_tensor": (DataType.FLOAT32, DataType.FLOAT16),
}

QUANTIZED_TYPES = (DataType.INT8, DataType.UINT8)

# Maximum number of elements of a quantized window: sums of their differences from a zero point fit in 32 bits.
MAX_QUANTIZED_WINDOW = ((1 << 31) - 1) // 255


# Names of the spatial dimensions in errors; 2-D pooling has the last two.
_DIMENSIONS = ("depth", "height", "width")

# The number of windows, as errors explain it.
_HOW_MANY = "(input + padding - extent) / stride + 1"

# The fields that describe a window, each with DimensionCount entries, and the least value of an entry.
WINDOW_FIELDS = {"window_size": 1, "strides": 1, "start_padding": 0, "end_padding": 0, "dilations": 1}

# The other fields of poolings, and their defaults in `of`.
_OTHER_FIELDS = {"include_padding": False, "p": 2}


def _windows(sizes: Sequence[int], fields: Mapping[str, Sequence[int]], counts: Iterable[int]) -> tuple[Window, ...]:
    """The windows along each dimension; the default of a field is its least value."""
    entries = [fields.get(field) or repeat(least) for field, least in WINDOW_FIELDS.items()]
    return tuple(map(Window, sizes, *entries, counts))


def _all_sizes(source: TensorDesc, sizes: tuple[int, ...], spatial: int) -> tuple[int, ...]:
    """All sizes of a tensor, from all or only the `spatial` last ones; N and C are those of `source`."""
    return (*source.sizes[:2], *sizes) if len(sizes) <= spatial else sizes


def _per_channel(source: TensorDesc) -> tuple[int, ...]:
    """The sizes of a tensor with an element for each channel."""
    return tuple([size if axis == 1 else 1 for axis, size in enumerate(source.sizes)])


class WindowedOperatorDesc(OperatorDesc):
    """Base of pooling and its gradients: windows over one tensor, and a second tensor with an element per window."""

    pooled_field: ClassVar[str] = "input_tensor"
    """Field of the tensor under the windows."""
    windows_field: ClassVar[str] = "output_tensor"
    """Field of the tensor with one element per window."""

    window_size: tuple[int, ...]

    def __post_init__(self) -> None:
        self._check_windows()

    @classmethod
    def _window_fields(cls, spatial: int, window: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a window, and the others of a pooling, with defaults for those that `window` lacks.

        Raises:
            DescriptorError: the value of a field is not a sequence of integers, or an entry is out of range.
            TypeError: an argument for a field that the descriptor lacks.
        """
        fields = cls.__dataclass_fields__  # type: ignore[attr-defined]
        allowed = [field for field in (*WINDOW_FIELDS, *_OTHER_FIELDS) if field in fields]
        unknown = [field for field in window if field not in allowed]
        if unknown:
            raise TypeError(f"{cls.__name__}.of has no {unknown[0]}; it has {', '.join(allowed)}")
        values = {field: default for field, default in _OTHER_FIELDS.items() if field in allowed} | dict(window)
        for field, minimum in WINDOW_FIELDS.items():
            if field == "window_size" or values.get(field) is not None:
                values[field] = unsigned_array(cls.__name__, field, values[field], minimum)
            elif field in allowed:
                values[field] = (minimum,) * spatial
        return values

    @classmethod
    def _window_sizes(cls, pooled: TensorDesc, window: Mapping[str, Any], counts: Any) -> tuple[int, ...]:
        """All sizes of the tensor with one element per window.

        `counts`: all of them, or the spatial ones; None: as many windows as fit.

        Raises:
            DescriptorError: `counts` are not valid sizes.
        """
        spatial = max(pooled.rank - 2, 0)
        if counts is None:
            # If no window fits, too many do or entries are missing, any size will do: the constructor raises the error.
            fitting = [along.fitting for along in _windows(pooled.sizes[2:], window, repeat(1))]
            sizes = tuple([n if 1 <= n <= MAX_ELEMENTS else 1 for n in fitting])
            if cls._exceeds(pooled, (*pooled.sizes[:2], *sizes)):
                sizes = (1,) * len(sizes)
        else:
            sizes = unsigned_array(cls.__name__, f"{cls.windows_field}.sizes", counts, 1)
        return _all_sizes(pooled, sizes, spatial)

    def _check_windows(self) -> None:
        # Inputs first: an output has the type of an input.
        for field in sorted((self.pooled_field, self.windows_field), key=self.output_fields.__contains__):
            self._check_tensor(field)
        pooled: TensorDesc = getattr(self, self.pooled_field)
        windows: TensorDesc = getattr(self, self.windows_field)
        if pooled.rank not in (4, 5):
            raise self._error(
                f"{self.pooled_field}.sizes",
                f"{pooled.sizes} has {pooled.rank} dimensions; allowed are 4 (NCHW) and 5 (NCDHW)",
            )
        self._check_same_type()
        spatial = pooled.rank - 2
        for field, minimum in WINDOW_FIELDS.items():
            if hasattr(self, field):
                values = unsigned_array(type(self).__name__, field, getattr(self, field), minimum)
                if len(values) != spatial:
                    text = f"{values} has {len(values)} entries; expected are {spatial}, one for each spatial dimension"
                    raise self._error(field, text)
                self._set(field, values)
        if windows.rank != pooled.rank:
            raise self._error(
                f"{self.windows_field}.sizes", f"{windows.sizes} has another rank than the input {pooled.sizes}"
            )
        self._check_counts(pooled, windows)

    def _check_counts(self, pooled: TensorDesc, windows: TensorDesc) -> None:
        """Raises unless the tensor `windows` has an element for each window over `pooled`."""
        spatial = pooled.rank - 2
        counts = tuple(map(self._count, range(spatial), self.windows))
        if self._exceeds(pooled, (*pooled.sizes[:2], *counts)):
            elements = math.prod((*pooled.sizes[:2], *counts))
            text = f"{counts} windows make {elements} elements; at most {MAX_ELEMENTS} are allowed"
            raise self._error(f"{self.windows_field}.sizes", text)
        self._check_sizes(self.windows_field, (*pooled.sizes[:2], *windows.sizes[2:]), "the input's N and C")
        for i, (size, count) in enumerate(zip(windows.sizes[2:], counts, strict=True)):
            if size != count:
                text = f"{size} is wrong; expected {count} along the {_DIMENSIONS[i - spatial]}, {_HOW_MANY}"
                raise self._error(f"{self.windows_field}.sizes[{2 + i}]", text)

    @staticmethod
    def _exceeds(pooled: TensorDesc, sizes: tuple[int, ...]) -> bool:
        """Whether a tensor for the windows over `pooled` would have too many elements."""
        return math.prod(sizes) > MAX_ELEMENTS and not isinstance(pooled, LargeTensorDesc)

    @property
    def windows(self) -> tuple[Window, ...]:
        """The windows along each spatial dimension."""
        pooled, windows = getattr(self, self.pooled_field), getattr(self, self.windows_field)
        return _windows(pooled.sizes[2:], vars(self), windows.sizes[2:])

    def _count(self, i: int, window: Window) -> int:
        """The number of windows along a dimension: as many as fit, or the tensor's size if it is one more (ceiling)."""
        along = _DIMENSIONS[i - len(self.window_size)]
        padded, extent = window.padded, window.extent
        if padded > MAX_ELEMENTS:
            field = "start_padding" if window.start_padding > window.end_padding else "end_padding"
            value = getattr(window, field)
            text = f"{value} is too large: the padded input has {padded} places; at most {MAX_ELEMENTS} are allowed"
            raise self._error(f"{field}[{i}]", text)
        if extent > padded:
            what = f"{window.window_size} with dilation {window.dilation}"
            text = f"{what} extends over {extent}; the padded input has only {padded}"
            raise self._error(f"window_size[{i}]", text)
        count = window.fitting
        if (padded - extent) % window.stride:
            # Ceiling mode: the last window may extend beyond the end padding.
            if window.output_size > count + 1:
                text = f"{window.output_size} is wrong; expected {count} along the {along}, or {count + 1} rounded up"
                raise self._error(f"{self.windows_field}.sizes[{2 + i}]", text)
            count = max(window.output_size, count)
        empty = window.first_empty(count)
        if empty is not None:
            text = f"window {empty} along the {along} lies wholly in the padding; every window must hold input"
            raise self._error(f"window_size[{i}]", text)
        return count


class PoolingOperatorDesc(WindowedOperatorDesc):
    """Base of the pooling operators."""

    input_tensor: TensorDesc
    output_tensor: TensorDesc

    @classmethod
    def of(
        cls,
        input_tensor: Any,
        window_size: Any,
        *,
        output_sizes: Any = None,
        indices_data_type: Any = None,
        **window: Any,
    ) -> Self:
        """The descriptor for an input and a window; its outputs are inferred and packed.

        Args:
            input_tensor: a TensorDesc, an array or a device tensor; only its type and layout count.
            window_size: see the field.
            output_sizes: all sizes of the output, or the spatial ones; None: as many windows as fit.
            indices_data_type: UINT32 or UINT64, or the NumPy type; None: no indices.
            window: the other fields. Defaults: strides and dilations 1, start_padding and end_padding 0,
                `include_padding` False, `p` 2.

        Raises:
            DescriptorError: naming the field that breaks a rule.
            TypeError: an argument for a field that the descriptor lacks.
        """
        source = TensorDesc.of(input_tensor)
        if indices_data_type is not None and "output_indices_tensor" not in cls.output_fields:
            window["indices_data_type"] = indices_data_type
        fields = {"input_tensor": source, **cls._window_fields(source.rank - 2, {"window_size": window_size, **window})}
        sizes = cls._window_sizes(source, fields, output_sizes)
        if indices_data_type is not None:
            fields["output_indices_tensor"] = cls._packed_indices(source, sizes, indices_data_type)
        elif "output_indices_tensor" in cls.output_fields:
            fields["output_indices_tensor"] = None
        fields["output_tensor"] = cls._packed("output_tensor", source, sizes)
        return cls(**fields)

    def _check_windows(self) -> None:
        super()._check_windows()
        if "output_indices_tensor" in self.output_fields and len(self.outputs) > 1:
            self._check_tensor("output_indices_tensor")
            self._check_sizes("output_indices_tensor", self.output_tensor.sizes, "the sizes of output_tensor")
            self._check_holds("output_indices_tensor", self.input_tensor.element_count, "elements")


@dataclass(frozen=True)
class MaxPooling2OperatorDesc(PoolingOperatorDesc):
    """The maximum of every window, and optionally its position (DML_MAX_POOLING2_OPERATOR_DESC).

    Padding never wins. The first of equal elements in row-major order wins; the first NaN of a window wins over all
    other elements. The output has the bits of the winner.

    Decisions of docs/semantics.md: 5, 6, 8, 9, 15, 16, 18, 19, 20, 23.

    Formula:
        place(o, k) = o * strides - start_padding + k * dilations, for 0 <= k < window_size
        output[n, c, o] = max of input[n, c, place(o, k)] over all k with a place in the input
        indices[n, c, o] = the position of this element in the input

    Args:
        input_tensor: (N, C, H, W) or (N, C, D, H, W); FLOAT32, FLOAT16 or any integer of 8 to 64 bits; beyond DirectML
            also FLOAT64.
        output_tensor: the input's type, N and C; spatial sizes `(input + padding - extent) // stride + 1` with extent
            `1 + (window_size - 1) * dilation`, or one more if the division leaves a remainder (ceiling mode).
        output_indices_tensor: None, or a tensor of the output's sizes, UINT32 or UINT64: the position of each
            maximum in the whole input, in row-major order.
        strides: distance between windows along each spatial dimension, in elements; 1 or more.
        window_size: number of elements of a window along each dimension; 1 or more.
        start_padding: number of places before the first element of each dimension.
        end_padding: number of places after the last element of each dimension.
        dilations: distance between the elements of a window along each dimension; 1 or more.

    Raises:
        DescriptorError: naming the field that breaks a rule.

    Example:
        >>> import numpy as np
        >>> from dmlgpu import MaxPooling2OperatorDesc, verify
        >>> x = np.array([[[[1, 9, 2, 8, 3, 7, 4, 6, 5]]]], np.float32)
        >>> window = {"dilations": (1, 2), "start_padding": (0, 1), "end_padding": (0, 1)}
        >>> desc = MaxPooling2OperatorDesc.of(x, (1, 2), indices_data_type=np.uint32, **window)
        >>> values, indices = verify(desc, x)
        >>> values.tolist()
        [[[[9.0, 2.0, 9.0, 3.0, 8.0, 4.0, 7.0, 5.0, 6.0]]]]
        >>> indices.tolist()
        [[[[1, 2, 1, 4, 3, 6, 5, 8, 7]]]]
    """

    types: ClassVar[TypeTable] = MAX_POOLING_TYPES
    output_fields: ClassVar[tuple[str, ...]] = ("output_tensor", "output_indices_tensor")

    input_tensor: TensorDesc
    output_tensor: TensorDesc
    output_indices_tensor: TensorDesc | None
    strides: tuple[int, ...]
    window_size: tuple[int, ...]
    start_padding: tuple[int, ...]
    end_padding: tuple[int, ...]
    dilations: tuple[int, ...]


@dataclass(frozen=True)
class MaxPooling1OperatorDesc(PoolingOperatorDesc):
    """`MaxPooling2OperatorDesc` with all dilations 1 (DML_MAX_POOLING1_OPERATOR_DESC).

    Example:
        >>> import numpy as np
        >>> from dmlgpu import MaxPooling1OperatorDesc, verify
        >>> x = np.array([[[[3, 5, 7, 1], [9, 4, 2, 8]]]], np.float32)
        >>> values, indices = verify(MaxPooling1OperatorDesc.of(x, (1, 3), indices_data_type=np.uint32), x)
        >>> values.tolist(), indices.tolist()
        ([[[[7.0, 7.0], [9.0, 8.0]]]], [[[[2, 2], [4, 7]]]])
    """

    types: ClassVar[TypeTable] = MAX_POOLING_TYPES
    output_fields: ClassVar[tuple[str, ...]] = ("output_tensor", "output_indices_tensor")

    input_tensor: TensorDesc
    output_tensor: TensorDesc
    output_indices_tensor: TensorDesc | None
    strides: tuple[int, ...]
    window_size: tuple[int, ...]
    start_padding: tuple[int, ...]
    end_padding: tuple[int, ...]

    def canonical(self) -> OperatorDesc:
        return MaxPooling2OperatorDesc(**vars(self), dilations=(1,) * len(self.strides))


@dataclass(frozen=True)
class MaxPoolingOperatorDesc(PoolingOperatorDesc):
    """`MaxPooling2OperatorDesc` without indices and with all dilations 1 (DML_MAX_POOLING_OPERATOR_DESC).

    Example:
        >>> import numpy as np
        >>> from dmlgpu import MaxPoolingOperatorDesc, verify
        >>> x = np.array([[[[3, 5, 7, 1], [9, 4, 2, 8]]]], np.float32)
        >>> verify(MaxPoolingOperatorDesc.of(x, (2, 2), strides=(1, 2)), x).tolist()
        [[[[9.0, 8.0]]]]
    """

    types: ClassVar[TypeTable] = MAX_POOLING_TYPES

    input_tensor: TensorDesc
    output_tensor: TensorDesc
    strides: tuple[int, ...]
    window_size: tuple[int, ...]
    start_padding: tuple[int, ...]
    end_padding: tuple[int, ...]

    def canonical(self) -> OperatorDesc:
        return MaxPooling2OperatorDesc(**vars(self), output_indices_tensor=None, dilations=(1,) * len(self.strides))


class _AveragingOperatorDesc(WindowedOperatorDesc):
    """Validation that average pooling and its gradient share."""

    include_padding: bool

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_flag("include_padding")


@dataclass(frozen=True)
class AveragePooling1OperatorDesc(_AveragingOperatorDesc, PoolingOperatorDesc):
    """The average of every window (DML_AVERAGE_POOLING1_OPERATOR_DESC).

    The sum of a window's elements in the input, divided by their number; with `include_padding`, divided by the number
    of its places in the input and the padding. Places beyond the end padding never count.

    Decisions of docs/semantics.md: 3, 6, 7, 15, 16.

    Formula:
        place(o, k) = o * strides - start_padding + k * dilations, for 0 <= k < window_size
        output[n, c, o] = (sum of input[n, c, place(o, k)] over all k with a place in the input) / count(o)
        count(o) = the number of these k; with include_padding also those with a place in the padding

    Args:
        input_tensor: (N, C, H, W) or (N, C, D, H, W); FLOAT32 or FLOAT16.
        output_tensor: the input's type; sizes as for `MaxPooling2OperatorDesc`.
        strides, window_size, start_padding, end_padding, dilations: as for `MaxPooling2OperatorDesc`.
        include_padding: whether padding counts as zeros.

    Raises:
        DescriptorError: naming the field that breaks a rule.

    Example:
        >>> import numpy as np
        >>> from dmlgpu import AveragePooling1OperatorDesc, verify
        >>> x = np.array([[[[1, 2, 3], [4, 5, 6], [7, 8, 9]]]], np.float32)
        >>> verify(AveragePooling1OperatorDesc.of(x, (2, 2), dilations=(2, 2)), x).tolist()
        [[[[5.0]]]]
        >>> window = {"strides": (2, 2), "start_padding": (1, 1), "include_padding": True}
        >>> verify(AveragePooling1OperatorDesc.of(x, (2, 2), **window), x).tolist()
        [[[[0.25, 1.25], [2.75, 7.0]]]]
    """

    types: ClassVar[TypeTable] = FLOAT_POOLING_TYPES

    input_tensor: TensorDesc
    output_tensor: TensorDesc
    strides: tuple[int, ...]
    window_size: tuple[int, ...]
    start_padding: tuple[int, ...]
    end_padding: tuple[int, ...]
    dilations: tuple[int, ...]
    include_padding: bool


@dataclass(frozen=True)
class AveragePoolingOperatorDesc(_AveragingOperatorDesc, PoolingOperatorDesc):
    """`AveragePooling1OperatorDesc` with all dilations 1 (DML_AVERAGE_POOLING_OPERATOR_DESC).

    Example:
        >>> import numpy as np
        >>> from dmlgpu import AveragePoolingOperatorDesc, verify
        >>> x = np.array([[[[1, 2, 3], [4, 5, 6], [7, 8, 9]]]], np.float32)
        >>> verify(AveragePoolingOperatorDesc.of(x, (2, 2)), x).tolist()
        [[[[3.0, 4.0], [6.0, 7.0]]]]
    """

    types: ClassVar[TypeTable] = FLOAT_POOLING_TYPES

    input_tensor: TensorDesc
    output_tensor: TensorDesc
    strides: tuple[int, ...]
    window_size: tuple[int, ...]
    start_padding: tuple[int, ...]
    end_padding: tuple[int, ...]
    include_padding: bool

    def canonical(self) -> OperatorDesc:
        return AveragePooling1OperatorDesc(**vars(self), dilations=(1,) * len(self.strides))


@dataclass(frozen=True)
class QuantizedLinearAveragePoolingOperatorDesc(_AveragingOperatorDesc, PoolingOperatorDesc):
    """The average of every window of quantized elements (DML_QUANTIZED_LINEAR_AVERAGE_POOLING_OPERATOR_DESC).

    An element q stands for the number (q - zero point) * scale. The averages of `AveragePooling1OperatorDesc` of these
    numbers are quantized: divided by the output's scale, rounded to the nearest integer, ties to even, and increased by
    the output's zero point. The result is clamped to the range of the output's type. Nothing else is rounded, so
    results have the same bits everywhere.

    A window has at most 8,421,504 elements.

    Decisions of docs/semantics.md: 3, 6, 15, 16, 25.

    Formula:
        place(o, k) = o * strides - start_padding + k * dilations, for 0 <= k < window_size
        sum(n, c, o) = sum of (input[n, c, place(o, k)] - input_zero_point[c])
        over all k with a place in the input
        quotient(n, c, o) = sum(n, c, o) * input_scale[c] / (count(o) * output_scale[c])
        output[n, c, o] = clamp(round(quotient(n, c, o)) + output_zero_point[c])
        count(o) as for AVERAGE_POOLING1

    Args:
        input_tensor: (N, C, H, W) or (N, C, D, H, W); INT8 or UINT8.
        input_scale_tensor: FLOAT32; one element, or one for each channel: sizes (1, C, 1, 1) or (1, C, 1, 1, 1). One
            element may have any rank up to 5.
        input_zero_point_tensor: None for 0, or the input's type, and sizes as for input_scale_tensor.
        output_scale_tensor: as input_scale_tensor.
        output_zero_point_tensor: None for 0, or the output's type, and sizes as for input_scale_tensor.
        output_tensor: INT8 or UINT8, whatever the input has; sizes as for `MaxPooling2OperatorDesc`.
        strides, window_size, start_padding, end_padding, dilations: as for `MaxPooling2OperatorDesc`.
        include_padding: whether the padding counts, as zero points.

    Raises:
        DescriptorError: naming the field that breaks a rule.

    Example:
        >>> import numpy as np
        >>> from dmlgpu import QuantizedLinearAveragePoolingOperatorDesc, verify
        >>> x = np.array([[[[10, 20, 30], [40, 50, 60], [70, 80, 90]]]], np.uint8)
        >>> desc = QuantizedLinearAveragePoolingOperatorDesc.of(x, (2, 2))
        >>> verify(desc, x, np.float32([0.5]), np.uint8([10]), np.float32([1]), np.uint8([3])).tolist()
        [[[[13, 18], [28, 33]]]]
    """

    types: ClassVar[TypeTable] = {  # feature level 6_2
        "input_tensor": QUANTIZED_TYPES,
        "input_scale_tensor": (DataType.FLOAT32,),
        "input_zero_point_tensor": QUANTIZED_TYPES,
        "output_scale_tensor": (DataType.FLOAT32,),
        "output_zero_point_tensor": QUANTIZED_TYPES,
        "output_tensor": QUANTIZED_TYPES,
    }

    input_tensor: TensorDesc
    input_scale_tensor: TensorDesc
    input_zero_point_tensor: TensorDesc | None
    output_scale_tensor: TensorDesc
    output_zero_point_tensor: TensorDesc | None
    output_tensor: TensorDesc
    strides: tuple[int, ...]
    window_size: tuple[int, ...]
    start_padding: tuple[int, ...]
    end_padding: tuple[int, ...]
    dilations: tuple[int, ...]
    include_padding: bool

    @classmethod
    def of(
        cls,
        input_tensor: Any,
        window_size: Any,
        *,
        input_scale_tensor: Any = None,
        input_zero_point_tensor: Any = None,
        output_scale_tensor: Any = None,
        output_zero_point_tensor: Any = None,
        output_data_type: Any = None,
        output_sizes: Any = None,
        per_channel: bool = False,
        **window: Any,
    ) -> Self:
        """The descriptor for an input and a window; its output is inferred and packed.

        Args:
            input_tensor: a TensorDesc, an array or a device tensor; only its type and layout count.
            window_size: see the field.
            input_scale_tensor: as for input_tensor; None: a packed tensor of one element, also for the zero point if
                that is None.
            input_zero_point_tensor: as for input_tensor; None, beside a scale: no zero point.
            output_scale_tensor: as input_scale_tensor.
            output_zero_point_tensor: as input_zero_point_tensor.
            output_data_type: INT8 or UINT8, or the NumPy type; None: the input's.
            output_sizes: as for `MaxPooling2OperatorDesc.of`.
            per_channel: whether these packed tensors have an element for each channel.
            window: the other fields, as for `MaxPooling2OperatorDesc.of`.

        Raises:
            DescriptorError: naming the field that breaks a rule.
            TypeError: an argument for a field that the descriptor lacks.
        """
        source = TensorDesc.of(input_tensor)
        fields = cls._window_fields(max(source.rank - 2, 0), {"window_size": window_size, **window})
        field = f"{cls.__name__}.output_tensor.data_type"
        data_type = source.data_type if output_data_type is None else output_data_type
        data_type = DataType.of(data_type, field, cls.types["output_tensor"], of_input=False)
        sizes = cls._window_sizes(source, fields, output_sizes)
        target = cls._packed("output_tensor", source, sizes, data_type)
        packed = _per_channel(source) if per_channel else (1,)
        sides = {
            "input": (source, input_scale_tensor, input_zero_point_tensor),
            "output": (target, output_scale_tensor, output_zero_point_tensor),
        }
        for side, (data, scale, zero_point) in sides.items():
            if scale is None:
                scale = TensorDesc(DataType.FLOAT32, packed)
                zero_point = TensorDesc(data.data_type, packed) if zero_point is None else zero_point
            fields[f"{side}_tensor"] = data
            fields[f"{side}_scale_tensor"] = TensorDesc.of(scale)
            fields[f"{side}_zero_point_tensor"] = None if zero_point is None else TensorDesc.of(zero_point)
        return cls(**fields)

    @property
    def channels(self) -> int:
        """Number of scales, and of zero points: 1, or the number of channels."""
        return max([math.prod(tensor.sizes) for tensor in self.inputs[1:]])

    def _check_windows(self) -> None:
        super()._check_windows()
        elements = math.prod(self.window_size)
        if elements > MAX_QUANTIZED_WINDOW:
            text = f"{self.window_size} has {elements} elements; at most {MAX_QUANTIZED_WINDOW} are allowed"
            raise self._error("window_size", text)
        for side in ("input", "output"):
            self._check_quantization(f"{side}_scale_tensor")
            field = f"{side}_zero_point_tensor"
            if getattr(self, field) is not None:
                tensor, data = self._check_quantization(field), getattr(self, f"{side}_tensor").data_type
                if tensor.data_type is not data:
                    raise self._error(
                        f"{field}.data_type", f"{tensor.data_type.name} differs from the {side}'s {data.name}"
                    )

    def _check_same_type(self) -> None:
        """Input and output may have different types."""

    def _check_quantization(self, field: str) -> TensorDesc:
        """The tensor of a scale or a zero point. Raises unless it has one element, or one for each channel."""
        tensor, per_channel = self._check_tensor(field), _per_channel(self.input_tensor)
        if tensor.rank > 5 or (tensor.element_count > 1 and tensor.sizes != per_channel):
            text = f"{tensor.sizes} is wrong; allowed are one element of rank 1 to 5, and {per_channel}"
            raise self._error(f"{field}.sizes", text)
        return tensor


class _LpPoolingOperatorDesc(PoolingOperatorDesc):
    """Validation that LP_POOLING and LP_POOLING1 share."""

    p: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("p", unsigned(type(self).__name__, "p", self.p, 1))


@dataclass(frozen=True)
class LpPooling1OperatorDesc(_LpPoolingOperatorDesc):
    """The Lp norm of every window, sum(abs(x) ** p) ** (1 / p) (DML_LP_POOLING1_OPERATOR_DESC).

    Padding adds nothing.

    Decisions of docs/semantics.md: 4, 6, 7, 15, 16.

    Formula:
        place(o, k) = o * strides - start_padding + k * dilations, for 0 <= k < window_size
        output[n, c, o] = (sum of abs(input[n, c, place(o, k)]) ** p) ** (1 / p)
        over all k with a place in the input

    Args:
        input_tensor: (N, C, H, W) or (N, C, D, H, W); FLOAT32 or FLOAT16.
        output_tensor: the input's type; sizes as for `MaxPooling2OperatorDesc`.
        strides, window_size, start_padding, end_padding, dilations: as for `MaxPooling2OperatorDesc`.
        p: 1 to 2^32 - 1. Powers beyond the range of float32 become infinity, or 0.

    Raises:
        DescriptorError: naming the field that breaks a rule.

    Example:
        >>> import numpy as np
        >>> from dmlgpu import LpPooling1OperatorDesc, verify
        >>> x = np.array([[[[3, 0, -4]]]], np.float32)
        >>> verify(LpPooling1OperatorDesc.of(x, (1, 2), dilations=(1, 2), p=2), x).tolist()
        [[[[5.0]]]]
    """

    types: ClassVar[TypeTable] = FLOAT_POOLING_TYPES

    input_tensor: TensorDesc
    output_tensor: TensorDesc
    strides: tuple[int, ...]
    window_size: tuple[int, ...]
    start_padding: tuple[int, ...]
    end_padding: tuple[int, ...]
    dilations: tuple[int, ...]
    p: int


@dataclass(frozen=True)
class LpPoolingOperatorDesc(_LpPoolingOperatorDesc):
    """`LpPooling1OperatorDesc` with all dilations 1 (DML_LP_POOLING_OPERATOR_DESC).

    Example:
        >>> import numpy as np
        >>> from dmlgpu import LpPoolingOperatorDesc, verify
        >>> x = np.array([[[[3, 0, -4]]]], np.float32)
        >>> verify(LpPoolingOperatorDesc.of(x, (1, 2), p=1), x).tolist()
        [[[[3.0, 4.0]]]]
    """

    types: ClassVar[TypeTable] = FLOAT_POOLING_TYPES

    input_tensor: TensorDesc
    output_tensor: TensorDesc
    strides: tuple[int, ...]
    window_size: tuple[int, ...]
    start_padding: tuple[int, ...]
    end_padding: tuple[int, ...]
    p: int

    def canonical(self) -> OperatorDesc:
        return LpPooling1OperatorDesc(**vars(self), dilations=(1,) * len(self.strides))


_FLOATS = FLOAT_POOLING_TYPES["input_tensor"]


@dataclass(frozen=True)
class AveragePoolingGradOperatorDesc(_AveragingOperatorDesc):
    """The gradient of average pooling (DML_AVERAGE_POOLING_GRAD_OPERATOR_DESC).

    Each window adds its gradient, divided by the divisor of `AveragePooling1OperatorDesc`, to each of its elements.

    Decisions of docs/semantics.md: 3, 6, 7, 16.

    Formula:
        place(o, k) = o * strides - start_padding + k, for 0 <= k < window_size
        output_gradient[n, c, i] = sum of input_gradient[n, c, o] / count(o)
        over all o and k with place(o, k) = i
        count(o) = the number of places of window o in output_gradient;
        with include_padding also those in the padding

    Args:
        input_gradient_tensor: (N, C, H, W) or (N, C, D, H, W), with one element per window; FLOAT32 or FLOAT16.
        output_gradient_tensor: the same type, N and C; the spatial sizes of the input of average pooling, which
            determine the number of windows as for `MaxPooling2OperatorDesc`.
        strides, window_size, start_padding, end_padding: as for `MaxPooling2OperatorDesc`.
        include_padding: whether places in the padding count.

    Raises:
        DescriptorError: naming the field that breaks a rule.

    Example:
        >>> import numpy as np
        >>> from dmlgpu import AveragePoolingGradOperatorDesc, verify
        >>> gradient = np.array([[[[1, 2], [3, 4]]]], np.float32)
        >>> verify(AveragePoolingGradOperatorDesc.of(gradient, (3, 3), (2, 2)), gradient).tolist()
        [[[[0.25, 0.75, 0.5], [1.0, 2.5, 1.5], [0.75, 1.75, 1.0]]]]
    """

    # Feature level 3_0.
    types: ClassVar[TypeTable] = {"input_gradient_tensor": _FLOATS, "output_gradient_tensor": _FLOATS}
    output_fields: ClassVar[tuple[str, ...]] = ("output_gradient_tensor",)
    pooled_field: ClassVar[str] = "output_gradient_tensor"
    windows_field: ClassVar[str] = "input_gradient_tensor"

    input_gradient_tensor: TensorDesc
    output_gradient_tensor: TensorDesc
    strides: tuple[int, ...]
    window_size: tuple[int, ...]
    start_padding: tuple[int, ...]
    end_padding: tuple[int, ...]
    include_padding: bool

    @classmethod
    def of(cls, input_gradient_tensor: Any, output_sizes: Any, window_size: Any, **window: Any) -> Self:
        """The descriptor for a gradient and a window; its output is packed.

        Args:
            input_gradient_tensor: a TensorDesc, an array or a device tensor; only its type and layout count.
            output_sizes: all sizes of the output, or the spatial ones.
            window_size: see the field.
            window: the other fields, with the defaults of `MaxPooling2OperatorDesc.of`.

        Raises:
            DescriptorError: naming the field that breaks a rule.
            TypeError: an argument for a field that the descriptor lacks.
        """
        source = TensorDesc.of(input_gradient_tensor)
        spatial = max(source.rank - 2, 0)
        fields = cls._window_fields(spatial, {"window_size": window_size, **window})
        sizes = unsigned_array(cls.__name__, "output_gradient_tensor.sizes", output_sizes, 1)
        target = cls._packed("output_gradient_tensor", source, _all_sizes(source, sizes, spatial))
        return cls(input_gradient_tensor=source, output_gradient_tensor=target, **fields)


@dataclass(frozen=True)
class MaxPoolingGradOperatorDesc(WindowedOperatorDesc):
    """The gradient of max pooling (DML_MAX_POOLING_GRAD_OPERATOR_DESC).

    Each window adds its gradient to its maximum, the element that `MaxPooling2OperatorDesc` selects.

    Beyond DirectML, the indices of max pooling may replace the search for the maxima; the result has the same bits. The
    inputs are then the gradient and the indices; only type and sizes of input_tensor matter. A window ignores an index
    that is not between the window's first and last element along every dimension. Indices that are not packed are
    copied first.

    Decisions of docs/semantics.md: 5, 6, 7, 8, 9, 15, 16, 19, 20.

    Formula:
        output_gradient[n, c, i] = sum of input_gradient[n, c, o]
        over all windows o whose maximum is input[n, c, i]; with indices, whose index is that of [n, c, i]

    Args:
        input_tensor: the pooled tensor: (N, C, H, W) or (N, C, D, H, W); FLOAT32 or FLOAT16.
        input_gradient_tensor: the input's type, with one element per window: the output sizes of
            `MaxPooling2OperatorDesc`.
        output_gradient_tensor: the input's type and sizes.
        strides, window_size, start_padding, end_padding, dilations: as for `MaxPooling2OperatorDesc`.
        indices_tensor: None, or a tensor with the sizes of input_gradient_tensor, UINT32 or UINT64: the indices of
            `MaxPooling2OperatorDesc`.

    Raises:
        DescriptorError: naming the field that breaks a rule.

    Example:
        >>> import numpy as np
        >>> from dmlgpu import MaxPoolingGradOperatorDesc, verify
        >>> x = np.array([[[[1, 2, 3], [2, 4, 2], [5, 6, 7]]]], np.float32)
        >>> gradient = np.array([[[[1, 2], [4, 5]]]], np.float32)
        >>> verify(MaxPoolingGradOperatorDesc.of(x, (2, 2)), x, gradient).tolist()
        [[[[0.0, 0.0, 0.0], [0.0, 3.0, 0.0], [0.0, 4.0, 5.0]]]]
        >>> indices = np.array([[[[4, 4], [7, 8]]]], np.uint32)
        >>> desc = MaxPoolingGradOperatorDesc.of(x, (2, 2), indices_tensor=indices)
        >>> verify(desc, gradient, indices).tolist()
        [[[[0.0, 0.0, 0.0], [0.0, 3.0, 0.0], [0.0, 4.0, 5.0]]]]
    """

    types: ClassVar[TypeTable] = {  # feature level 4_0
        "input_tensor": _FLOATS,
        "input_gradient_tensor": _FLOATS,
        "output_gradient_tensor": _FLOATS,
        "indices_tensor": MAX_POOLING_TYPES["output_indices_tensor"],
    }
    output_fields: ClassVar[tuple[str, ...]] = ("output_gradient_tensor",)
    windows_field: ClassVar[str] = "input_gradient_tensor"

    input_tensor: TensorDesc
    input_gradient_tensor: TensorDesc
    output_gradient_tensor: TensorDesc
    strides: tuple[int, ...]
    window_size: tuple[int, ...]
    start_padding: tuple[int, ...]
    end_padding: tuple[int, ...]
    dilations: tuple[int, ...]
    indices_tensor: TensorDesc | None = None

    @property
    def input_fields(self) -> tuple[str, ...]:
        """The input tensors; with indices the operator does not read input_tensor."""
        return super().input_fields[0 if self.indices_tensor is None else 1 :]

    @classmethod
    def of(
        cls,
        input_tensor: Any,
        window_size: Any,
        *,
        input_gradient_tensor: Any = None,
        output_sizes: Any = None,
        indices_tensor: Any = None,
        indices_data_type: Any = None,
        **window: Any,
    ) -> Self:
        """The descriptor for an input and a window; its output is packed.

        Args:
            input_tensor: a TensorDesc, an array or a device tensor; only its type and layout count.
            window_size: see the field.
            input_gradient_tensor: as for input_tensor; None: packed, with the input's type and `output_sizes`.
            output_sizes: as for `MaxPooling2OperatorDesc.of`; used only if input_gradient_tensor is None.
            indices_tensor: as for input_tensor; None: no indices, or packed ones of `indices_data_type`.
            indices_data_type: UINT32 or UINT64, or the NumPy type; used only if indices_tensor is None.
            window: strides, start_padding, end_padding and dilations, as for `MaxPooling2OperatorDesc.of`.

        Raises:
            DescriptorError: naming the field that breaks a rule.
            TypeError: an argument for a field that the descriptor lacks.
        """
        source = TensorDesc.of(input_tensor)
        fields = cls._window_fields(max(source.rank - 2, 0), {"window_size": window_size, **window})
        if input_gradient_tensor is None:
            gradient = TensorDesc(source.data_type, cls._window_sizes(source, fields, output_sizes))
        else:
            gradient = TensorDesc.of(input_gradient_tensor)
        field = "indices_tensor"
        if indices_tensor is not None:
            fields[field] = TensorDesc.of(indices_tensor)
        elif indices_data_type is not None:
            data_type = DataType.of(indices_data_type, f"{cls.__name__}.{field}.data_type", cls.types[field])
            fields[field] = TensorDesc(data_type, gradient.sizes)
        target = TensorDesc(source.data_type, source.sizes)
        return cls(input_tensor=source, input_gradient_tensor=gradient, output_gradient_tensor=target, **fields)

    def _check_windows(self) -> None:
        super()._check_windows()
        self._check_tensor("output_gradient_tensor")
        self._check_sizes("output_gradient_tensor", self.input_tensor.sizes, "the sizes of input_tensor")
        if self.indices_tensor is not None:
            self._check_tensor("indices_tensor")
            self._check_sizes("indices_tensor", self.input_gradient_tensor.sizes, "the sizes of input_gradient_tensor")


@dataclass(frozen=True)
class MaxUnpoolingOperatorDesc(OperatorDesc):
    """Zeros, with the maxima of max pooling at their positions (DML_MAX_UNPOOLING_OPERATOR_DESC).

    Element i of the input is written to the position in the output that index i names. If several indices are equal,
    the last element in row-major order is kept. Indices beyond the output are ignored. All other elements are 0.

    Decisions of docs/semantics.md: 11, 23.

    Formula:
        output[...] = 0
        output.flat[indices.flat[i]] = input.flat[i], for i = 0, 1, 2, ...

    Args:
        input_tensor: (N, C, H, W); FLOAT32, FLOAT16 or any integer of 8 to 64 bits; beyond DirectML also FLOAT64.
        indices_tensor: the input's sizes, UINT32 or UINT64: positions in the whole output, in row-major order, like the
            indices of `MaxPooling2OperatorDesc`.
        output_tensor: the input's type, N and C, and any H and W.

    Raises:
        DescriptorError: naming the field that breaks a rule.

    Example:
        >>> import numpy as np
        >>> from dmlgpu import MaxUnpoolingOperatorDesc, verify
        >>> x = np.array([[[[4, 8]]]], np.float32)
        >>> indices = np.array([[[[5, 2]]]], np.uint64)
        >>> verify(MaxUnpoolingOperatorDesc.of(x, (2, 3)), x, indices).tolist()
        [[[[0.0, 0.0, 8.0], [0.0, 0.0, 4.0]]]]
    """

    types: ClassVar[TypeTable] = {  # feature level 5_0
        "input_tensor": SELECTED_TYPES,
        "indices_tensor": MAX_POOLING_TYPES["output_indices_tensor"],
        "output_tensor": SELECTED_TYPES,
    }

    input_tensor: TensorDesc
    indices_tensor: TensorDesc
    output_tensor: TensorDesc

    @classmethod
    def of(
        cls,
        input_tensor: Any,
        output_sizes: Any,
        *,
        indices_tensor: Any = None,
        indices_data_type: Any = DataType.UINT64,
    ) -> Self:
        """The descriptor for an input; its output is packed.

        Args:
            input_tensor: a TensorDesc, an array or a device tensor; only its type and layout count.
            output_sizes: all sizes of the output, or H and W.
            indices_tensor: as for input_tensor; None: packed, with the input's sizes and `indices_data_type`.
            indices_data_type: UINT32 or UINT64, or the NumPy type; used only if indices_tensor is None.

        Raises:
            DescriptorError: naming the field that breaks a rule.
        """
        source = TensorDesc.of(input_tensor)
        sizes = unsigned_array(cls.__name__, "output_tensor.sizes", output_sizes, 1)
        sizes = _all_sizes(source, sizes, 2)
        if indices_tensor is None:
            field = "indices_tensor"
            name = f"{cls.__name__}.{field}.data_type"
            indices = TensorDesc(DataType.of(indices_data_type, name, cls.types[field]), source.sizes)
        else:
            indices = TensorDesc.of(indices_tensor)
        return cls(source, indices, cls._packed("output_tensor", source, sizes))

    def __post_init__(self) -> None:
        source, _, target = (self._check_tensor(field) for field in self.types)
        for field, tensor in (("input_tensor", source), ("output_tensor", target)):
            if tensor.rank != 4:
                raise self._error(
                    f"{field}.sizes", f"{tensor.sizes} has {tensor.rank} dimensions; allowed are 4 (NCHW)"
                )
        self._check_same_type()
        self._check_sizes("indices_tensor", source.sizes, "the sizes of input_tensor")
        self._check_sizes("output_tensor", (*source.sizes[:2], *target.sizes[2:]), "the input's N and C")
