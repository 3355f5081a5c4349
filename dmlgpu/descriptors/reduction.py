"""The descriptors of reductions over axes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from dmlgpu.descriptors.dtypes import AxisDirection, DataType, ReduceFunction
from dmlgpu.descriptors.operator import ALL_TYPES, OperatorDesc, TypeTable
from dmlgpu.descriptors.tensor import TensorDesc, integers
from dmlgpu.errors import shown

if TYPE_CHECKING:
    from typing_extensions import Self

INDEX_TYPES = (DataType.INT64, DataType.INT32, DataType.UINT64, DataType.UINT32)
ARG_TYPES: TypeTable = {"input_tensor": ALL_TYPES, "output_tensor": INDEX_TYPES}  # 4_1


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
        # Axes are a set: the index counts the reduced axes in ascending order (docs/semantics.md, decision 1).
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
