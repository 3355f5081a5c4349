"""The operator descriptors: what each operator is, and which descriptions are valid.

A descriptor is a frozen dataclass with the fields of DirectML's structure, in its order, the counts left out
(`AxisCount` is `len(axes)`). Building one validates it; nothing later can find a descriptor invalid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dmlgpu.dtypes import AxisDirection, DataType, ReduceFunction, conversion
from dmlgpu.errors import DescriptorError, shown
from dmlgpu.tensor import MAX_ELEMENTS, TensorDesc, integers, unsigned_array

if TYPE_CHECKING:
    from typing_extensions import Self

ALL_TYPES = (
    DataType.FLOAT32,
    DataType.FLOAT16,
    DataType.INT64,
    DataType.INT32,
    DataType.INT16,
    DataType.INT8,
    DataType.UINT64,
    DataType.UINT32,
    DataType.UINT16,
    DataType.UINT8,
)
INDEX_TYPES = (DataType.INT64, DataType.INT32, DataType.UINT64, DataType.UINT32)

# The types of an operator's tensors, as of the newest feature level that widened them.
TypeTable = dict[str, tuple[DataType, ...]]

ARG_TYPES: TypeTable = {"input_tensor": ALL_TYPES, "output_tensor": INDEX_TYPES}  # 4_1
MAX_POOLING_TYPES: TypeTable = {  # 5_0
    "input_tensor": ALL_TYPES,
    "output_tensor": ALL_TYPES,
    "output_indices_tensor": (DataType.UINT64, DataType.UINT32),
}


class OperatorDesc:
    """What all descriptors share: their tensors, and errors that name the descriptor and the field."""

    output_fields: ClassVar[tuple[str, ...]] = ("output_tensor",)
    types: ClassVar[TypeTable]

    @property
    def input_fields(self) -> tuple[str, ...]:
        """The fields of the tensors that are read, in the order in which they are given to the operator."""
        return tuple(
            name
            for name, value in vars(self).items()
            if isinstance(value, TensorDesc) and name not in self.output_fields
        )

    @property
    def inputs(self) -> tuple[TensorDesc, ...]:
        """The tensors that are read."""
        return tuple(getattr(self, name) for name in self.input_fields)

    @property
    def outputs(self) -> tuple[TensorDesc, ...]:
        """The tensors that are written, in the order in which they are returned; absent ones left out."""
        tensors = (getattr(self, name) for name in self.output_fields)
        return tuple(tensor for tensor in tensors if tensor is not None)

    @property
    def work(self) -> int:
        """Elements that are looked at for all outputs, each as often as outputs look at it."""
        return sum(tensor.element_count for tensor in self.inputs)

    def canonical(self) -> OperatorDesc:
        """The same operation, as the descriptor that DirectML names as its equivalent or successor."""
        return self

    def _error(self, field: str, text: str) -> DescriptorError:
        return DescriptorError(f"{type(self).__name__}.{field}: {text}")

    def _set(self, field: str, value: Any) -> None:
        object.__setattr__(self, field, value)

    def _check_enum(self, field: str, enum: type[Any]) -> None:
        value = getattr(self, field)
        member = enum.member(value)
        if member is None:
            allowed = ", ".join(str(each) for each in enum)
            raise self._error(field, f"{shown(value)} is not allowed; allowed are {allowed}")
        self._set(field, member)

    def _check_tensor(self, field: str) -> TensorDesc:
        """The tensor of a field, of a supported type; outputs must not overlap themselves."""
        tensor, types = getattr(self, field), self.types[field]
        if not isinstance(tensor, TensorDesc):
            raise self._error(field, f"{shown(tensor)} is not a TensorDesc")
        if tensor.data_type not in types:
            name, allowed = tensor.data_type.name, ", ".join(t.name for t in types)
            how = "" if field in self.output_fields else conversion(name.lower())
            raise self._error(f"{field}.data_type", f"{name} is not supported; allowed are {allowed}{how}")
        if field in self.output_fields and tensor.overlaps:
            raise self._error(
                f"{field}.strides",
                f"with strides {tensor.element_strides} elements of sizes {tensor.sizes} overlap; "
                "every output element needs its own place",
            )
        return tensor

    def _check_sizes(self, field: str, expected: tuple[int, ...], why: str) -> None:
        sizes = getattr(self, field).sizes
        if len(sizes) != len(expected):
            raise self._error(f"{field}.sizes", f"{sizes} has {len(sizes)} dimensions; expected {expected}, {why}")
        for i, (size, wanted) in enumerate(zip(sizes, expected, strict=True)):
            if size != wanted:
                raise self._error(f"{field}.sizes[{i}]", f"{size} is wrong; expected {wanted} of {expected}, {why}")


class _ReductionOperatorDesc(OperatorDesc):
    """Validation that ARGMAX, ARGMIN and REDUCE share."""

    input_tensor: TensorDesc
    output_tensor: TensorDesc
    axes: tuple[int, ...]

    @classmethod
    def _inferred(cls, input_tensor: Any, axes: Any, output_data_type: Any) -> dict[str, Any]:
        """The fields for an input and its axes, the output packed."""
        source = TensorDesc.of(input_tensor)
        axes = tuple(range(source.rank)) if axes is None else integers(cls.__name__, "axes", axes, ordered=False)
        sizes = tuple(1 if axis in axes else size for axis, size in enumerate(source.sizes))
        field, types = "output_tensor", cls.types["output_tensor"]
        data_type = DataType.of(output_data_type, f"{cls.__name__}.{field}.data_type", types, of_input=False)
        return {"input_tensor": source, "output_tensor": TensorDesc(data_type, sizes), "axes": axes}

    def _check_reduction(self) -> None:
        source = self._check_tensor("input_tensor")
        target = self._check_tensor("output_tensor")
        axes = integers(type(self).__name__, "axes", self.axes, ordered=False)
        if not axes:
            raise self._error("axes", "() is empty; at least one axis is needed")
        for i, axis in enumerate(axes):
            if not 0 <= axis < source.rank:
                raise self._error(f"axes[{i}]", f"{shown(axis)} is out of range; allowed are 0 to {source.rank - 1}")
            if axis in axes[:i]:
                raise self._error(f"axes[{i}]", f"{axis} is given twice; every axis may be given once")
        # Axes are a set: the index counts the reduced axes in ascending order (directml.md 8, decision 1).
        self._set("axes", tuple(sorted(axes)))
        expected = tuple(1 if i in axes else size for i, size in enumerate(source.sizes))
        self._check_sizes("output_tensor", expected, "the input's sizes with 1 on every reduced axis")
        if target.data_type is DataType.INT32 and source.element_count // target.element_count > 2**31:
            raise self._error(
                "output_tensor.data_type",
                f"INT32 cannot hold the index of {source.element_count // target.element_count} reduced elements; "
                "allowed are UINT32, INT64, UINT64",
            )


@dataclass(frozen=True)
class ArgOperatorDesc(_ReductionOperatorDesc):
    """The fields of ARGMAX and ARGMIN."""

    types: ClassVar = ARG_TYPES

    input_tensor: TensorDesc
    output_tensor: TensorDesc
    axes: tuple[int, ...]
    axis_direction: AxisDirection = AxisDirection.INCREASING

    @classmethod
    def of(
        cls,
        input_tensor: Any,
        axes: Any = None,
        axis_direction: AxisDirection = AxisDirection.INCREASING,
        *,
        output_data_type: Any = DataType.UINT32,
    ) -> Self:
        """The descriptor for an input, its output inferred: packed, with 1 on every reduced axis.

        Args:
            input_tensor: a TensorDesc, an array or a device tensor; only its type and layout count.
            axes: the reduced axes; None: all.
            axis_direction: as the field.
            output_data_type: of the indices: a DataType, or a NumPy type.

        Raises:
            DescriptorError: naming the field that breaks a rule.
        """
        return cls(**cls._inferred(input_tensor, axes, output_data_type), axis_direction=axis_direction)

    def __post_init__(self) -> None:
        self._check_reduction()
        self._check_enum("axis_direction", AxisDirection)


@dataclass(frozen=True)
class ArgmaxOperatorDesc(ArgOperatorDesc):
    """The index of the maximum over one or more axes (DML_ARGMAX_OPERATOR_DESC).

    The index counts the reduced elements only, the reduced axes flattened in row-major order. NaN counts as the
    maximum, -0 and +0 are equal, denormals are compared exactly.

    Args:
        input_tensor: 1 to 8 dimensions; FLOAT32, FLOAT16 or any integer of 8 to 64 bits.
        output_tensor: the input's sizes with 1 on every reduced axis; UINT32, INT32, UINT64 or INT64.
        axes: the reduced axes, a non-empty set.
        axis_direction: of equal maxima INCREASING takes the first, DECREASING the last.

    Raises:
        DescriptorError: naming the field that breaks a rule.
    """


@dataclass(frozen=True)
class ArgminOperatorDesc(ArgOperatorDesc):
    """The index of the minimum over one or more axes (DML_ARGMIN_OPERATOR_DESC).

    As `ArgmaxOperatorDesc` in every field and rule; NaN counts as the minimum.
    """


@dataclass(frozen=True)
class ReduceOperatorDesc(_ReductionOperatorDesc):
    """A reduction over one or more axes (DML_REDUCE_OPERATOR_DESC).

    Of its functions ARGMAX and ARGMIN are built, which DirectML calls equivalent to `ArgmaxOperatorDesc` and
    `ArgminOperatorDesc` with AxisDirection.INCREASING; the tensors are as there.

    Raises:
        DescriptorError: naming the field that breaks a rule.
    """

    types: ClassVar = ARG_TYPES

    function: ReduceFunction
    input_tensor: TensorDesc
    output_tensor: TensorDesc
    axes: tuple[int, ...]

    @classmethod
    def of(
        cls, function: ReduceFunction, input_tensor: Any, axes: Any = None, *, output_data_type: Any = DataType.UINT32
    ) -> Self:
        """The descriptor for a function and an input, its output inferred; otherwise as `ArgmaxOperatorDesc.of`."""
        return cls(function, **cls._inferred(input_tensor, axes, output_data_type))

    def __post_init__(self) -> None:
        self._check_enum("function", ReduceFunction)
        if self.function not in (ReduceFunction.ARGMAX, ReduceFunction.ARGMIN):
            raise self._error("function", f"{self.function.name} is not supported; allowed are ARGMAX, ARGMIN")
        self._check_reduction()

    def canonical(self) -> OperatorDesc:
        successor = ArgmaxOperatorDesc if self.function is ReduceFunction.ARGMAX else ArgminOperatorDesc
        return successor(self.input_tensor, self.output_tensor, self.axes)


def window_extent(window: int, dilation: int) -> int:
    """Input elements from the first to the last of a dilated window (directml.md 2.5)."""
    return 1 + (window - 1) * dilation


def pooled_size(size: int, window: int, stride: int, padding: int, dilation: int) -> int:
    """Windows that fit a dimension padded by `padding` in all, without rounding up (directml.md 2.5)."""
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


class _PoolingOperatorDesc(OperatorDesc):
    """Validation that the pooling operators share."""

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
            window: strides, start_padding, end_padding and dilations, as the fields; what is left out or None is 1
                for strides and dilations, 0 for paddings.

        Raises:
            DescriptorError: naming the field that breaks a rule.
            TypeError: an argument for a field that the descriptor lacks.
        """
        source = TensorDesc.of(input_tensor)
        spatial = max(source.rank - 2, 0)
        fields = [field for field in WINDOW_FIELDS if field in cls.__dataclass_fields__]  # type: ignore[attr-defined]
        unknown = [field for field in window if field not in fields]
        if indices_data_type is not None and "output_indices_tensor" not in cls.output_fields:
            unknown.append("indices_data_type")
        if unknown:
            raise TypeError(f"{cls.__name__}.of has no {unknown[0]}; it has {', '.join(fields)}")
        given: dict[str, Any] = {"input_tensor": source, "window_size": window_size, **window}
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

    def _check_pooling(self) -> None:
        source = self._check_tensor("input_tensor")
        target = self._check_tensor("output_tensor")
        if source.rank not in (4, 5):
            raise self._error(
                "input_tensor.sizes", f"{source.sizes} has {source.rank} dimensions; allowed are 4 (NCHW) and 5 (NCDHW)"
            )
        if target.data_type is not source.data_type:
            raise self._error(
                "output_tensor.data_type", f"{target.data_type.name} differs from the input's {source.data_type.name}"
            )
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
class MaxPooling2OperatorDesc(_PoolingOperatorDesc):
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

    def __post_init__(self) -> None:
        self._check_pooling()


@dataclass(frozen=True)
class MaxPooling1OperatorDesc(_PoolingOperatorDesc):
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

    def __post_init__(self) -> None:
        self._check_pooling()

    def canonical(self) -> OperatorDesc:
        return MaxPooling2OperatorDesc(**vars(self), dilations=(1,) * len(self.strides))


@dataclass(frozen=True)
class MaxPoolingOperatorDesc(_PoolingOperatorDesc):
    """`MaxPooling2OperatorDesc` without indices and with all dilations 1 (DML_MAX_POOLING_OPERATOR_DESC)."""

    types: ClassVar = MAX_POOLING_TYPES

    input_tensor: TensorDesc
    output_tensor: TensorDesc
    strides: tuple[int, ...]
    window_size: tuple[int, ...]
    start_padding: tuple[int, ...]
    end_padding: tuple[int, ...]

    def __post_init__(self) -> None:
        self._check_pooling()

    def canonical(self) -> OperatorDesc:
        return MaxPooling2OperatorDesc(**vars(self), output_indices_tensor=None, dilations=(1,) * len(self.strides))
