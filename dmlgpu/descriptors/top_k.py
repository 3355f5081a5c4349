"""The descriptors of TOP_K."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from dmlgpu.descriptors.dtypes import DataType
from dmlgpu.descriptors.operator import SELECTED_TYPES, OperatorDesc, TypeTable
from dmlgpu.descriptors.reduction import INDEX_TYPES, AxisDirection, axis_of
from dmlgpu.descriptors.tensor import TensorDesc, integer
from dmlgpu.errors import shown


@dataclass(frozen=True)
class _TopK(OperatorDesc):
    """The fields of TOP_K."""

    output_fields: ClassVar[tuple[str, ...]] = ("output_value_tensor", "output_index_tensor")
    types: ClassVar[TypeTable] = {
        "input_tensor": SELECTED_TYPES,
        "output_value_tensor": SELECTED_TYPES,
        "output_index_tensor": INDEX_TYPES,
    }  # feature level 5_0

    input_tensor: TensorDesc
    output_value_tensor: TensorDesc
    output_index_tensor: TensorDesc
    axis: int
    k: int

    @classmethod
    def _of(cls, input_tensor: Any, k: int, axis: int, indices_data_type: Any, **others: Any) -> Self:
        source, name = TensorDesc.of(input_tensor), cls.__name__
        axis = axis_of(name, axis, source.rank)
        k, sizes = integer(name, "k", k), [*source.sizes]
        if 1 <= k <= sizes[axis]:  # the constructor refuses others
            sizes[axis] = k
        path = f"{name}.output_index_tensor.data_type"
        data_type = DataType.of(indices_data_type, path, cls.types["output_index_tensor"], of_input=False)
        values = cls._packed("output_value_tensor", source, tuple(sizes))
        indices = cls._packed("output_index_tensor", source, tuple(sizes), data_type)
        return cls(source, values, indices, axis, k, **others)

    def __post_init__(self) -> None:
        source = self._check_tensor("input_tensor")
        self._check_tensor("output_value_tensor")
        self._check_tensor("output_index_tensor")
        self._check_axis("axis", source.rank)
        self._set("k", integer(type(self).__name__, "k", self.k))
        size = source.sizes[self.axis]
        if not 1 <= self.k <= size:
            raise self._error("k", f"{shown(self.k)} is out of range; allowed are 1 to {size}, the size of the axis")
        expected = (*source.sizes[: self.axis], self.k, *source.sizes[self.axis + 1 :])
        for field in self.output_fields:
            self._check_sizes(field, expected, "the input's sizes with k on the axis")
        self._check_holds("output_index_tensor", size, "elements along the axis")
        self._check_same_type()


@dataclass(frozen=True)
class TopKOperatorDesc(_TopK):
    """`TopK1OperatorDesc` with DECREASING: the k greatest elements along an axis (DML_TOP_K_OPERATOR_DESC).

    Example:
        >>> import numpy as np
        >>> from dmlgpu import TopKOperatorDesc, verify
        >>> x = np.array([[1, 2, 2, 3], [6, 6, 6, 6]], np.float32)
        >>> values, indices = verify(TopKOperatorDesc.of(x, 3), x)
        >>> values.tolist(), indices.tolist()
        ([[3.0, 2.0, 2.0], [6.0, 6.0, 6.0]], [[3, 1, 2], [0, 1, 2]])
    """

    @classmethod
    def of(cls, input_tensor: Any, k: int, axis: int = -1, *, indices_data_type: Any = DataType.UINT32) -> Self:
        """The descriptor for an input; its outputs are inferred, and packed.

        Args:
            input_tensor: a TensorDesc, an array or a device tensor; only its type and layout count.
            k: see the field.
            axis: see the field; a negative one counts from the last.
            indices_data_type: the type of the indices: a DataType, or a NumPy type.

        Raises:
            DescriptorError: naming the field that breaks a rule.
        """
        return cls._of(input_tensor, k, axis, indices_data_type)

    def canonical(self) -> OperatorDesc:
        """As TOP_K1 with AxisDirection.DECREASING."""
        return TopK1OperatorDesc(
            self.input_tensor, self.output_value_tensor, self.output_index_tensor, self.axis, self.k
        )


@dataclass(frozen=True)
class TopK1OperatorDesc(_TopK):
    """The k greatest or least elements along an axis, in order, and their indices (DML_TOP_K1_OPERATOR_DESC).

    Equal elements are in ascending order of their indices, in both directions. NaN counts as greater than all numbers,
    -0 and +0 are equal, and denormals are compared exactly. A value has the bits of the element at its index.

    Decisions of docs/semantics.md: 8, 9, 21, 23, 24.

    Formula:
        order = all j along the axis, by input[j]; equal ones by j
                the greatest first, or with INCREASING the least
        output_value[i] = input[order[i]], output_index[i] = order[i], for i from 0 to k - 1

    Args:
        input_tensor: 1 to 8 dimensions; FLOAT32, FLOAT16 or any integer of 8 to 64 bits; beyond DirectML also FLOAT64.
        output_value_tensor: the input's sizes with k on the axis, and the input's type.
        output_index_tensor: the same sizes; UINT32, INT32, UINT64 or INT64. Indices count along the axis.
        axis: the axis along which elements are compared.
        k: number of elements per line; 1 to the size of the axis.
        axis_direction: DECREASING selects the greatest elements, greatest first; INCREASING the least, least first.

    Raises:
        DescriptorError: naming the field that breaks a rule.

    Example:
        >>> import numpy as np
        >>> from dmlgpu import AxisDirection, TopK1OperatorDesc, verify
        >>> x = np.array([5, 7, np.nan, 7, 5], np.float32)
        >>> values, indices = verify(TopK1OperatorDesc.of(x, 4, axis_direction=AxisDirection.INCREASING), x)
        >>> values.tolist(), indices.tolist()
        ([5.0, 5.0, 7.0, 7.0], [0, 4, 1, 3])
    """

    axis_direction: AxisDirection = AxisDirection.DECREASING

    @classmethod
    def of(
        cls,
        input_tensor: Any,
        k: int,
        axis: int = -1,
        axis_direction: AxisDirection = AxisDirection.DECREASING,
        *,
        indices_data_type: Any = DataType.UINT32,
    ) -> Self:
        """The descriptor for an input; its outputs are inferred, and packed.

        Args:
            input_tensor: a TensorDesc, an array or a device tensor; only its type and layout count.
            k: see the field.
            axis: see the field; a negative one counts from the last.
            axis_direction: see the field.
            indices_data_type: the type of the indices: a DataType, or a NumPy type.

        Raises:
            DescriptorError: naming the field that breaks a rule.
        """
        return cls._of(input_tensor, k, axis, indices_data_type, axis_direction=axis_direction)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_enum("axis_direction", AxisDirection)
