"""The base class of operator descriptors.

A descriptor is a frozen dataclass with the fields of DirectML's structure, in the same order, without the counts
(`AxisCount` is `len(axes)`). The constructor validates it, so every descriptor is valid.
"""

from __future__ import annotations

import enum
from typing import Any, ClassVar

from dmlgpu.descriptors.dtypes import EXTENSIONS, DataType, check_holds, conversion, listed
from dmlgpu.descriptors.tensor import TensorDesc, flag, integer
from dmlgpu.errors import DescriptorError, shown

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

# The types of operators that select elements, and compute nothing from them.
SELECTED_TYPES = (*ALL_TYPES, *EXTENSIONS)

# The types that each tensor of an operator may have, by field: those of the feature level that added the last one.
TypeTable = dict[str, tuple[DataType, ...]]


class ExecutionFlags(enum.Flag):
    """How an operator is computed, like DirectML's DML_EXECUTION_FLAGS, with other values."""

    NONE = 0
    EXACT_SUMS = 1
    """Sums of floats are rounded once, to the nearest float, with ties to even: they have the same bits on every
    device, in any order of additions."""


class OperatorDesc:
    """Base of all descriptors: their tensors, and errors that name the descriptor and the field."""

    output_fields: ClassVar[tuple[str, ...]] = ("output_tensor",)
    types: ClassVar[TypeTable]
    """The types that each tensor may have; for REDUCE, those of all functions together."""

    @property
    def input_fields(self) -> tuple[str, ...]:
        """The fields of the input tensors, in the order of the operator's arguments."""
        fields = vars(self).items()
        return tuple([name for name, x in fields if isinstance(x, TensorDesc) and name not in self.output_fields])

    @property
    def inputs(self) -> tuple[TensorDesc, ...]:
        """The input tensors."""
        return tuple([getattr(self, name) for name in self.input_fields])

    @property
    def outputs(self) -> tuple[TensorDesc, ...]:
        """The output tensors, in the order of the operator's results, without those that are None."""
        tensors = [getattr(self, name) for name in self.output_fields]
        return tuple([tensor for tensor in tensors if tensor is not None])

    @property
    def summary(self) -> str:
        """One line: its class, and the types and sizes of its tensors."""
        inputs, outputs = (
            ", ".join(f"{tensor.data_type.name} {tensor.sizes}" for tensor in tensors)
            for tensors in (self.inputs, self.outputs)
        )
        return f"{type(self).__name__} of {inputs} to {outputs}"

    def canonical(self) -> OperatorDesc:
        """The descriptor that DirectML names as its equivalent or successor; itself if there is none."""
        return self

    @property
    def _allowed_types(self) -> TypeTable:
        """The types that each tensor of this descriptor may have: for REDUCE, those of its function."""
        return self.types

    @classmethod
    def _packed(
        cls, field: str, source: TensorDesc, sizes: tuple[int, ...], data_type: DataType | None = None
    ) -> TensorDesc:
        """A packed tensor for a field; its type is that of `source` if `data_type` is None."""
        try:
            return source.packed(data_type or source.data_type, sizes)
        except DescriptorError as error:
            raise DescriptorError(str(error).replace("TensorDesc", f"{cls.__name__}.{field}", 1)) from None

    @classmethod
    def _packed_indices(cls, source: TensorDesc, sizes: tuple[int, ...], data_type: Any) -> TensorDesc:
        """A packed tensor for `output_indices_tensor`, of the type that a caller names."""
        field = "output_indices_tensor"
        chosen = DataType.of(data_type, f"{cls.__name__}.{field}.data_type", cls.types[field], of_input=False)
        return cls._packed(field, source, sizes, chosen)

    def _error(self, field: str, text: str) -> DescriptorError:
        return DescriptorError(f"{type(self).__name__}.{field}: {text}")

    def _set(self, field: str, value: Any) -> None:
        object.__setattr__(self, field, value)

    def _check_enum(self, field: str, enumeration: type[Any]) -> None:
        value = getattr(self, field)
        member = enumeration.member(value)
        if member is None:
            allowed = ", ".join(str(entry) for entry in enumeration)
            raise self._error(field, f"{shown(value)} is not allowed; allowed are {allowed}, or their names")
        self._set(field, member)

    def _check_flag(self, field: str) -> None:
        self._set(field, flag(type(self).__name__, field, getattr(self, field)))

    def _check_axis(self, field: str, rank: int) -> None:
        axis = integer(type(self).__name__, field, getattr(self, field))
        if not 0 <= axis < rank:
            raise self._error(field, f"{shown(axis)} is out of range; allowed are 0 to {rank - 1}")
        self._set(field, axis)

    def _check_tensor(self, field: str) -> TensorDesc:
        """The tensor of a field. Raises if its type is not supported, or if elements of an output may overlap."""
        tensor, types = getattr(self, field), self._allowed_types[field]
        if not isinstance(tensor, TensorDesc):
            raise self._error(field, f"{shown(tensor)} is not a TensorDesc")
        if tensor.data_type not in types:
            name = tensor.data_type.name
            text = f"is not supported; allowed are {listed(types)}"
            if field not in self.output_fields:
                name += ", which arrays of bool are too," if tensor.data_type is DataType.UINT8 else ""
                text += conversion(tensor.data_type.name.lower(), types)
            raise self._error(f"{field}.data_type", f"{name} {text}")
        if field in self.output_fields and tensor.overlaps is not False:
            unknown = (
                "may overlap: unknown, as a search would take too long; let each stride exceed what smaller ones reach"
            )
            raise self._error(
                f"{field}.strides",
                f"with strides {tensor.element_strides} elements of sizes {tensor.sizes} "
                f"{'overlap' if tensor.overlaps else unknown}; every output element needs its own place",
            )
        return tensor

    def _check_same_type(self) -> None:
        """Raises unless all tensors except indices have the type of the first input."""
        source = getattr(self, next(iter(self.types))).data_type
        for field in self.types:
            tensor = getattr(self, field, None)
            if (
                isinstance(tensor, TensorDesc)
                and "index" not in field
                and "indices" not in field
                and tensor.data_type is not source
            ):
                raise self._error(
                    f"{field}.data_type", f"{tensor.data_type.name} differs from the input's {source.name}"
                )

    def _check_holds(self, field: str, count: int, what: str) -> None:
        """Raises unless the type of a tensor can hold the indices of `count` elements."""
        path = f"{type(self).__name__}.{field}.data_type"
        check_holds(path, getattr(self, field).data_type, count, what, self._allowed_types[field])

    def _check_sizes(self, field: str, expected: tuple[int, ...], why: str) -> None:
        sizes = getattr(self, field).sizes
        if len(sizes) != len(expected):
            raise self._error(f"{field}.sizes", f"{sizes} has {len(sizes)} dimensions; expected {expected}, {why}")
        for i, size in enumerate(expected):
            if sizes[i] != size:
                raise self._error(f"{field}.sizes[{i}]", f"{sizes[i]} is wrong; expected {size} of {expected}, {why}")
