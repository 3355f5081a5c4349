"""The descriptors of windowed pooling."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dmlgpu.descriptors.dtypes import DataType
from dmlgpu.descriptors.operator import ALL_TYPES, OperatorDesc, TypeTable
from dmlgpu.descriptors.tensor import MAX_ELEMENTS, TensorDesc, unsigned, unsigned_array
from dmlgpu.errors import shown

if TYPE_CHECKING:
    from typing_extensions import Self

MAX_POOLING_TYPES: TypeTable = {  # 5_0
    "input_tensor": ALL_TYPES,
    "output_tensor": ALL_TYPES,
    "output_indices_tensor": (DataType.UINT64, DataType.UINT32),
}


FLOAT_POOLING_TYPES: TypeTable = {  # 1_0 and 6_2
    "input_tensor": (DataType.FLOAT32, DataType.FLOAT16),
    "output_tensor": (DataType.FLOAT32, DataType.FLOAT16),
}


def window_extent(window: int, dilation: int) -> int:
    """Input elements from the first to the last of a dilated window (docs/semantics.md, decision 15)."""
    return 1 + (window - 1) * dilation


def pooled_size(size: int, window: int, stride: int, padding: int, dilation: int) -> int:
    """Windows that fit a dimension padded by `padding` in all, without rounding up (docs/semantics.md, decision 15)."""
    return (size + padding - window_extent(window, dilation)) // stride + 1


def _first_empty_window(size: int, outputs: int, window: int, stride: int, start: int, dilation: int) -> int | None:
    """The first window of a dimension that holds nothing but padding."""
    # Windows that begin in the start padding: element k stands at o*stride - start + k*dilation, and the first
    # k that is not negative stands at that sum modulo dilation.
    leading = min(outputs, -(-start // stride))
    for first in range(0, leading, 1 << 20):
        begin = np.arange(first, min(leading, first + (1 << 20)), dtype=np.int64) * stride - start
        empty = (begin % dilation >= size) | (begin + (window - 1) * dilation < 0)
        if empty.any():
            return first + int(empty.argmax())
    # The others hold input unless they begin behind it.
    behind = -(-(size + start) // stride)
    return behind if max(behind, leading) < outputs else None


# The arrays that describe a window, DimensionCount entries each, and the least value of an entry.
WINDOW_FIELDS = {"window_size": 1, "strides": 1, "start_padding": 0, "end_padding": 0, "dilations": 1}

# Further fields, and what `of` takes for them.
_OTHER_FIELDS = {"include_padding": False, "p": 2}


class PoolingOperatorDesc(OperatorDesc):
    """What the pooling operators share."""

    input_tensor: TensorDesc
    output_tensor: TensorDesc
    window_size: tuple[int, ...]

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
        """The descriptor for an input and a window, its outputs inferred and packed.

        Args:
            input_tensor: a TensorDesc, an array or a device tensor; only its type and layout count.
            window_size: as the field.
            output_sizes: all sizes of the output, or the spatial ones; None: as many windows as fit.
            indices_data_type: UINT32 or UINT64, or the NumPy type; None: no indices.
            window: the other fields. Of strides, start_padding, end_padding and dilations what is left out or None is
                1 for strides and dilations, 0 for paddings; `include_padding` is then False, and `p` is 2.

        Raises:
            DescriptorError: naming the field that breaks a rule.
            TypeError: an argument for a field that the descriptor lacks.
        """
        source = TensorDesc.of(input_tensor)
        spatial = max(source.rank - 2, 0)
        own = cls.__dataclass_fields__  # type: ignore[attr-defined]
        fields = [field for field in WINDOW_FIELDS if field in own]
        others = {field: default for field, default in _OTHER_FIELDS.items() if field in own}
        unknown = [field for field in window if field not in (*fields, *others)]
        if indices_data_type is not None and "output_indices_tensor" not in cls.output_fields:
            unknown.append("indices_data_type")
        if unknown:
            raise TypeError(f"{cls.__name__}.of has no {unknown[0]}; it has {', '.join((*fields, *others))}")
        given: dict[str, Any] = {"input_tensor": source, "window_size": window_size, **others, **window}
        for field in fields:
            minimum = WINDOW_FIELDS[field]
            if field != "window_size" and given.get(field) is None:
                given[field] = (minimum,) * spatial
            else:
                given[field] = unsigned_array(cls.__name__, field, given[field], minimum)
        if output_sizes is None:
            # Where no window fits or entries are missing, any size will do: the descriptor says what is wrong.
            ones = (1,) * spatial
            rows = zip(source.sizes[2:], *(given.get(field, ones) for field in WINDOW_FIELDS), strict=False)
            fitting = [pooled_size(n, w, s, start + end, d) for n, w, s, start, end, d in rows]
            sizes = tuple(n if 1 <= n <= MAX_ELEMENTS else 1 for n in fitting)
        else:
            sizes = unsigned_array(cls.__name__, "output_tensor.sizes", output_sizes, 1)
        if len(sizes) <= spatial:
            sizes = (*source.sizes[:2], *sizes)
        if indices_data_type is not None:
            field = "output_indices_tensor"
            types = cls.types[field]
            data_type = DataType.of(indices_data_type, f"{cls.__name__}.{field}.data_type", types, of_input=False)
            given["output_indices_tensor"] = TensorDesc(data_type, sizes)
        elif "output_indices_tensor" in cls.output_fields:
            given["output_indices_tensor"] = None
        given["output_tensor"] = TensorDesc(source.data_type, sizes)
        return cls(**given)

    @property
    def work(self) -> int:
        """Elements that are looked at for all outputs, each as often as outputs look at it."""
        return self.output_tensor.element_count * math.prod(self.window_size)

    def __post_init__(self) -> None:
        self._check_pooling()

    def _check_pooling(self) -> None:
        source = self._check_tensor("input_tensor")
        target = self._check_tensor("output_tensor")
        if source.rank not in (4, 5):
            raise self._error(
                "input_tensor.sizes", f"{source.sizes} has {source.rank} dimensions; allowed are 4 (NCHW) and 5 (NCDHW)"
            )
        self._check_same_type()
        spatial = source.rank - 2
        for field, minimum in WINDOW_FIELDS.items():
            if hasattr(self, field):
                values = unsigned_array(type(self).__name__, field, getattr(self, field), minimum)
                if len(values) != spatial:
                    raise self._error(field, f"{values} has {len(values)} entries; the input's rank asks for {spatial}")
                self._set(field, values)
        if target.rank != source.rank:
            raise self._error("output_tensor.sizes", f"{target.sizes} has another rank than the input {source.sizes}")
        sizes = tuple(self._check_dimension(i) for i in range(spatial))
        self._check_sizes("output_tensor", (*source.sizes[:2], *sizes), "(input + padding - extent) / stride + 1")
        if "output_indices_tensor" in self.output_fields and len(self.outputs) > 1:
            self._check_tensor("output_indices_tensor")
            self._check_sizes("output_indices_tensor", target.sizes, "the sizes of output_tensor")

    def _check_dimension(self, i: int) -> int:
        """Checks the windows along spatial dimension i; the output size, the given one where two are allowed."""
        size, given = self.input_tensor.sizes[2 + i], self.output_tensor.sizes[2 + i]
        window, stride, start, end, dilation = (getattr(self, f, (1,) * (i + 1))[i] for f in WINDOW_FIELDS)
        padded, extent = size + start + end, window_extent(window, dilation)
        if padded > MAX_ELEMENTS:
            field, padding = ("start_padding", start) if start > end else ("end_padding", end)
            raise self._error(f"{field}[{i}]", f"{padding} pads to {padded}; at most {MAX_ELEMENTS} are allowed")
        if extent > padded:
            raise self._error(
                f"window_size[{i}]",
                f"{window} with dilation {dilation} extends over {extent}; the padded input has only {padded}",
            )
        outputs = pooled_size(size, window, stride, start + end, dilation)
        if (padded - extent) % stride and given != outputs:
            # Ceiling mode: a last window may hang over the end.
            if given > outputs + 1:
                raise self._error(
                    f"output_tensor.sizes[{2 + i}]",
                    f"{given} is wrong; expected {outputs}, or {outputs + 1} rounded up",
                )
            outputs = max(given, outputs)
        empty = _first_empty_window(size, outputs, window, stride, start, dilation)
        if empty is not None:
            raise self._error(
                f"window_size[{i}]",
                f"window {empty} of dimension {2 + i} lies wholly in the padding; every window must hold input",
            )
        return outputs


@dataclass(frozen=True)
class MaxPooling2OperatorDesc(PoolingOperatorDesc):
    """The maximum of every window, and optionally where it stood (DML_MAX_POOLING2_OPERATOR_DESC).

    Padding never wins. Of equal elements the first in row-major order wins; the first NaN of a window wins over
    everything; the output holds the very bits of the element that won.

    Args:
        input_tensor: (N, C, H, W) or (N, C, D, H, W); FLOAT32, FLOAT16 or any integer of 8 to 64 bits.
        output_tensor: the input's type, N and C; spatial sizes `(input + padding - extent) // stride + 1` with extent
            `1 + (window_size - 1) * dilation`, or one more where the division leaves a remainder (ceiling mode).
        output_indices_tensor: None, or a tensor of the output's sizes, UINT32 or UINT64: the position of each
            maximum in the input, counted over all of it in row-major order.
        strides, window_size, start_padding, end_padding, dilations: one entry for each spatial dimension, in elements.

    Raises:
        DescriptorError: naming the field that breaks a rule.
    """

    types: ClassVar = MAX_POOLING_TYPES
    output_fields: ClassVar = ("output_tensor", "output_indices_tensor")

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
    """`MaxPooling2OperatorDesc` with all dilations 1 (DML_MAX_POOLING1_OPERATOR_DESC)."""

    types: ClassVar = MAX_POOLING_TYPES
    output_fields: ClassVar = ("output_tensor", "output_indices_tensor")

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
    """`MaxPooling2OperatorDesc` without indices and with all dilations 1 (DML_MAX_POOLING_OPERATOR_DESC)."""

    types: ClassVar = MAX_POOLING_TYPES

    input_tensor: TensorDesc
    output_tensor: TensorDesc
    strides: tuple[int, ...]
    window_size: tuple[int, ...]
    start_padding: tuple[int, ...]
    end_padding: tuple[int, ...]

    def canonical(self) -> OperatorDesc:
        return MaxPooling2OperatorDesc(**vars(self), output_indices_tensor=None, dilations=(1,) * len(self.strides))


class _AveragePoolingOperatorDesc(PoolingOperatorDesc):
    """Validation that AVERAGE_POOLING and AVERAGE_POOLING1 share."""

    include_padding: bool

    def __post_init__(self) -> None:
        self._check_pooling()
        if not isinstance(self.include_padding, (bool, np.bool_)):
            raise self._error(
                "include_padding", f"{shown(self.include_padding)} is not allowed; allowed are True and False"
            )
        self._set("include_padding", bool(self.include_padding))


@dataclass(frozen=True)
class AveragePooling1OperatorDesc(_AveragePoolingOperatorDesc):
    """The average of every window (DML_AVERAGE_POOLING1_OPERATOR_DESC).

    The sum of the elements in the input, divided by their number; or with `include_padding` by the number of the
    window's elements in the input and its padding. What hangs over the end of the padding never counts.

    Args:
        input_tensor: (N, C, H, W) or (N, C, D, H, W); FLOAT32 or FLOAT16.
        output_tensor: the input's type; sizes as for `MaxPooling2OperatorDesc`.
        strides, window_size, start_padding, end_padding, dilations: one entry for each spatial dimension, in elements.
        include_padding: whether the padding counts, as zeros.

    Raises:
        DescriptorError: naming the field that breaks a rule.
    """

    types: ClassVar = FLOAT_POOLING_TYPES

    input_tensor: TensorDesc
    output_tensor: TensorDesc
    strides: tuple[int, ...]
    window_size: tuple[int, ...]
    start_padding: tuple[int, ...]
    end_padding: tuple[int, ...]
    dilations: tuple[int, ...]
    include_padding: bool


@dataclass(frozen=True)
class AveragePoolingOperatorDesc(_AveragePoolingOperatorDesc):
    """`AveragePooling1OperatorDesc` with all dilations 1 (DML_AVERAGE_POOLING_OPERATOR_DESC)."""

    types: ClassVar = FLOAT_POOLING_TYPES

    input_tensor: TensorDesc
    output_tensor: TensorDesc
    strides: tuple[int, ...]
    window_size: tuple[int, ...]
    start_padding: tuple[int, ...]
    end_padding: tuple[int, ...]
    include_padding: bool

    def canonical(self) -> OperatorDesc:
        return AveragePooling1OperatorDesc(**vars(self), dilations=(1,) * len(self.strides))


class _LpPoolingOperatorDesc(PoolingOperatorDesc):
    """Validation that LP_POOLING and LP_POOLING1 share."""

    p: int

    def __post_init__(self) -> None:
        self._check_pooling()
        self._set("p", unsigned(type(self).__name__, "p", self.p, 1))


@dataclass(frozen=True)
class LpPooling1OperatorDesc(_LpPoolingOperatorDesc):
    """The Lp norm of every window, sum(abs(x) ** p) ** (1 / p) (DML_LP_POOLING1_OPERATOR_DESC).

    Padding adds nothing.

    Args:
        input_tensor: (N, C, H, W) or (N, C, D, H, W); FLOAT32 or FLOAT16.
        output_tensor: the input's type; sizes as for `MaxPooling2OperatorDesc`.
        strides, window_size, start_padding, end_padding, dilations: one entry for each spatial dimension, in elements.
        p: from 1 to 2^32 - 1. Powers that leave the range of float32 are infinite, or 0.

    Raises:
        DescriptorError: naming the field that breaks a rule.
    """

    types: ClassVar = FLOAT_POOLING_TYPES

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
    """`LpPooling1OperatorDesc` with all dilations 1 (DML_LP_POOLING_OPERATOR_DESC)."""

    types: ClassVar = FLOAT_POOLING_TYPES

    input_tensor: TensorDesc
    output_tensor: TensorDesc
    strides: tuple[int, ...]
    window_size: tuple[int, ...]
    start_padding: tuple[int, ...]
    end_padding: tuple[int, ...]
    p: int

    def canonical(self) -> OperatorDesc:
        return LpPooling1OperatorDesc(**vars(self), dilations=(1,) * len(self.strides))
