"""The descriptors of CUMULATIVE_SUMMATION and CUMULATIVE_PRODUCT."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from dmlgpu.descriptors.operator import OperatorDesc, TypeTable
from dmlgpu.descriptors.reduction import REDUCE_TYPES, AxisDirection, ReduceFunction, axis_of
from dmlgpu.descriptors.tensor import TensorDesc


@dataclass(frozen=True)
class CumulativeOperatorDesc(OperatorDesc):
    """The fields of both operators, except the last one, whose name is `exclusive_field`."""

    types: ClassVar[TypeTable] = REDUCE_TYPES[ReduceFunction.SUM]
    exclusive_field: ClassVar[str]

    input_tensor: TensorDesc
    output_tensor: TensorDesc
    axis: int
    axis_direction: AxisDirection = AxisDirection.INCREASING

    @property
    def is_exclusive(self) -> bool:
        """Whether a value excludes the element at its position."""
        exclusive: bool = getattr(self, self.exclusive_field)
        return exclusive

    @classmethod
    def _of(cls, input_tensor: Any, axis: int, *others: Any) -> Self:
        source = TensorDesc.of(input_tensor)
        axis = axis_of(cls.__name__, axis, source.rank)
        return cls(source, cls._packed("output_tensor", source, source.sizes), axis, *others)

    def __post_init__(self) -> None:
        source = self._check_tensor("input_tensor")
        self._check_tensor("output_tensor")
        self._check_axis("axis", source.rank)
        self._check_enum("axis_direction", AxisDirection)
        self._check_flag(self.exclusive_field)
        self._check_sizes("output_tensor", source.sizes, "the input's sizes")
        self._check_same_type()


@dataclass(frozen=True)
class CumulativeSummationOperatorDesc(CumulativeOperatorDesc):
    """The cumulative sums along an axis (DML_CUMULATIVE_SUMMATION_OPERATOR_DESC).

    Integers wrap around. Floats are added in float32 with compensation, and each sum is rounded once. A sum beyond the
    range of its type is infinite; later sums may be finite again. The sum of only -0 is -0. With EXACT_SUMS each sum is
    exact before it is rounded, and a sum of zeros is +0.

    Decisions of docs/semantics.md: 7, 14, 26.

    Formula:
        output[i] = the sum of input[j] for all j <= i along the axis
                    DECREASING: for all j >= i; has_exclusive_sum: without j = i

    Args:
        input_tensor: 1 to 8 dimensions; FLOAT32, FLOAT16 or an integer of 32 or 64 bits.
        output_tensor: the input's sizes and type.
        axis: the axis along which elements are added.
        axis_direction: INCREASING begins at the first element, DECREASING at the last one.
        has_exclusive_sum: whether each sum excludes the element at its position; the first sum is then 0.

    Raises:
        DescriptorError: naming the field that breaks a rule.

    Example:
        >>> import numpy as np
        >>> from dmlgpu import CumulativeSummationOperatorDesc, verify
        >>> x = np.array([[2, 1, 3, 5], [3, 8, 7, 3]], np.float32)
        >>> verify(CumulativeSummationOperatorDesc.of(x, 1), x).tolist()
        [[2.0, 3.0, 6.0, 11.0], [3.0, 11.0, 18.0, 21.0]]
        >>> verify(CumulativeSummationOperatorDesc.of(x, 1, has_exclusive_sum=True), x).tolist()
        [[0.0, 2.0, 3.0, 6.0], [0.0, 3.0, 11.0, 18.0]]
        >>> verify(CumulativeSummationOperatorDesc.of(x, 1, "decreasing"), x).tolist()
        [[11.0, 9.0, 8.0, 5.0], [21.0, 18.0, 10.0, 3.0]]
    """

    exclusive_field: ClassVar[str] = "has_exclusive_sum"

    has_exclusive_sum: bool = False

    @classmethod
    def of(
        cls,
        input_tensor: Any,
        axis: int,
        axis_direction: AxisDirection = AxisDirection.INCREASING,
        *,
        has_exclusive_sum: bool = False,
    ) -> Self:
        """The descriptor for an input; its output is inferred, and packed.

        Args:
            input_tensor: a TensorDesc, an array or a device tensor; only its type and layout count.
            axis: see the field; a negative one counts from the last.
            axis_direction: see the field.
            has_exclusive_sum: see the field.

        Raises:
            DescriptorError: naming the field that breaks a rule.
        """
        return cls._of(input_tensor, axis, axis_direction, has_exclusive_sum)


@dataclass(frozen=True)
class CumulativeProductOperatorDesc(CumulativeOperatorDesc):
    """The cumulative products along an axis (DML_CUMULATIVE_PRODUCT_OPERATOR_DESC).

    Integers wrap around. The exponent of a product of floats is kept as an integer while elements are multiplied, so a
    product beyond the range of its type is infinite, but later products may be finite again.

    Decisions of docs/semantics.md: 7, 14, 26.

    Formula:
        output[i] = the product of input[j] for all j <= i along the axis
                    DECREASING: for all j >= i; has_exclusive_product: without j = i

    Args:
        input_tensor: 1 to 8 dimensions; FLOAT32, FLOAT16 or an integer of 32 or 64 bits.
        output_tensor: the input's sizes and type.
        axis: the axis along which elements are multiplied.
        axis_direction: INCREASING begins at the first element, DECREASING at the last one.
        has_exclusive_product: whether each product excludes the element at its position; the first is then 1.

    Raises:
        DescriptorError: naming the field that breaks a rule.

    Example:
        >>> import numpy as np
        >>> from dmlgpu import CumulativeProductOperatorDesc, verify
        >>> x = np.array([[2, 1, 3, 5], [3, 8, 7, 3]], np.float32)
        >>> verify(CumulativeProductOperatorDesc.of(x, 1), x).tolist()
        [[2.0, 2.0, 6.0, 30.0], [3.0, 24.0, 168.0, 504.0]]
        >>> verify(CumulativeProductOperatorDesc.of(x, 0, has_exclusive_product=True), x).tolist()
        [[1.0, 1.0, 1.0, 1.0], [2.0, 1.0, 3.0, 5.0]]
    """

    exclusive_field: ClassVar[str] = "has_exclusive_product"

    has_exclusive_product: bool = False

    @classmethod
    def of(
        cls,
        input_tensor: Any,
        axis: int,
        axis_direction: AxisDirection = AxisDirection.INCREASING,
        *,
        has_exclusive_product: bool = False,
    ) -> Self:
        """The descriptor for an input; its output is inferred, and packed.

        Args:
            input_tensor: a TensorDesc, an array or a device tensor; only its type and layout count.
            axis: see the field; a negative one counts from the last.
            axis_direction: see the field.
            has_exclusive_product: see the field.

        Raises:
            DescriptorError: naming the field that breaks a rule.
        """
        return cls._of(input_tensor, axis, axis_direction, has_exclusive_product)


CumulativeKind = type[CumulativeSummationOperatorDesc] | type[CumulativeProductOperatorDesc]
