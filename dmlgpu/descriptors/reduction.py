"""The descriptors of reductions over axes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from dmlgpu.descriptors.dtypes import DataType, Enumeration
from dmlgpu.descriptors.operator import SELECTED_TYPES, OperatorDesc, TypeTable
from dmlgpu.descriptors.tensor import TensorDesc, integer, integers, integers_or_one, is_integer
from dmlgpu.errors import DescriptorError, shown


class AxisDirection(Enumeration):
    """DML_AXIS_DIRECTION: which of equal elements ARGMAX and ARGMIN select; for TOP_K the order of the results.

    Attributes:
        INCREASING: the first; for TOP_K the least elements first.
        DECREASING: the last; for TOP_K the greatest elements first.
    """

    INCREASING = 0
    DECREASING = 1


class ReduceFunction(Enumeration):
    """DML_REDUCE_FUNCTION: the function that reduces n elements x to one output.

    Attributes:
        ARGMAX: the index of max(x), as in `ArgmaxOperatorDesc`.
        ARGMIN: the index of min(x), as in `ArgminOperatorDesc`.
        AVERAGE: sum(x) / n.
        L1: sum(abs(x)).
        L2: sqrt(sum(x * x)).
        LOG_SUM: log(sum(x)); NaN if the sum is negative.
        LOG_SUM_EXP: log(sum(exp(x))), computed without overflow.
        MAX: max(x), the bits of the first NaN, or else of the first maximum.
        MIN: min(x), the bits of the first NaN, or else of the first minimum.
        MULTIPLY: the product of all x.
        SUM: sum(x).
        SUM_SQUARE: sum(x * x).
    """

    ARGMAX = 0
    ARGMIN = 1
    AVERAGE = 2
    L1 = 3
    L2 = 4
    LOG_SUM = 5
    LOG_SUM_EXP = 6
    MAX = 7
    MIN = 8
    MULTIPLY = 9
    SUM = 10
    SUM_SQUARE = 11


INDEX_TYPES = (DataType.INT64, DataType.INT32, DataType.UINT64, DataType.UINT32)
ARG_TYPES: TypeTable = {"input_tensor": SELECTED_TYPES, "output_tensor": INDEX_TYPES}  # feature level 4_1


def _same(*types: DataType) -> TypeTable:
    """The types of an operator whose output has the input's type."""
    return {"input_tensor": types, "output_tensor": types}


_SELECTED = _same(*SELECTED_TYPES)
_FLOATS = _same(DataType.FLOAT32, DataType.FLOAT16)
_NUMBERS = _same(*_FLOATS["input_tensor"], DataType.INT64, DataType.INT32, DataType.UINT64, DataType.UINT32)

# The types of REDUCE by function, at feature level 5_0; for ARGMAX and ARGMIN, which 5_0 lacks, at 4_1.
REDUCE_TYPES: dict[ReduceFunction, TypeTable] = {
    ReduceFunction.ARGMAX: ARG_TYPES,
    ReduceFunction.ARGMIN: ARG_TYPES,
    ReduceFunction.AVERAGE: _FLOATS,
    ReduceFunction.L1: _NUMBERS,
    ReduceFunction.L2: _FLOATS,
    ReduceFunction.LOG_SUM: _FLOATS,
    ReduceFunction.LOG_SUM_EXP: _FLOATS,
    ReduceFunction.MAX: _SELECTED,
    ReduceFunction.MIN: _SELECTED,
    ReduceFunction.MULTIPLY: _NUMBERS,
    ReduceFunction.SUM: _NUMBERS,
    ReduceFunction.SUM_SQUARE: _NUMBERS,
}


def axes_of(owner: str, axis: Any, rank: int) -> tuple[int, ...]:
    """DirectML's axes for NumPy's `axis`: negative axes count from the last, None means all; errors name the owner."""
    if axis is None:
        return tuple(range(rank))
    axes = (integer(owner, "axis", axis),) if is_integer(axis) else integers_or_one(owner, "axis", axis, ordered=False)
    if not axes:
        raise DescriptorError(f"{owner}.axis: () is empty; at least one axis is needed")
    for i, value in enumerate(axes):
        if not -rank <= value < rank:
            raise DescriptorError(f"{owner}.axis: {shown(value)} is out of range; allowed are {-rank} to {rank - 1}")
        if value % rank in (other % rank for other in axes[:i]):
            raise DescriptorError(
                f"{owner}.axis: {value} of {shown(axes)} is given twice; every axis may be given once"
            )
    return tuple(value % rank for value in axes)


def axis_of(owner: str, axis: Any, rank: int) -> int:
    """The axis that an integer names; negative ones count from the last; errors name the owner."""
    return axes_of(owner, integer(owner, "axis", axis), rank)[0]


class _ReductionOperatorDesc(OperatorDesc):
    """Validation that ARGMAX, ARGMIN and REDUCE share."""

    input_tensor: TensorDesc
    output_tensor: TensorDesc
    axes: tuple[int, ...]

    @classmethod
    def _inferred(
        cls, input_tensor: Any, axes: Any, axis: Any, output_data_type: Any, types: TypeTable
    ) -> dict[str, Any]:
        """The fields for an input, and `axes` or `axis`; the output is packed."""
        source = TensorDesc.of(input_tensor)
        if axes is None:
            axes = axes_of(cls.__name__, axis, source.rank)
        elif axis is not None:
            text = f"{shown(axes)} is given beside axis={shown(axis)}; give one of them"
            raise DescriptorError(f"{cls.__name__}.axes: {text}")
        else:
            axes = integers(cls.__name__, "axes", axes, ordered=False)
        sizes = tuple(1 if axis in axes else size for axis, size in enumerate(source.sizes))
        field = f"{cls.__name__}.output_tensor.data_type"
        data_type = DataType.of(output_data_type, field, types["output_tensor"], of_input=False)
        return {"input_tensor": source, "output_tensor": source.packed(data_type, sizes), "axes": axes}

    def _check_reduction(self) -> None:
        source = self._check_tensor("input_tensor")
        self._check_tensor("output_tensor")
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
        if self._allowed_types is ARG_TYPES:
            self._check_indices("output_tensor")

    def _check_indices(self, field: str) -> None:
        """Raises unless the type of a tensor of indices can hold the largest index."""
        count = self.input_tensor.element_count // self.output_tensor.element_count
        self._check_holds(field, count, "reduced elements")


@dataclass(frozen=True)
class ArgOperatorDesc(_ReductionOperatorDesc):
    """The fields of ARGMAX and ARGMIN."""

    types: ClassVar[TypeTable] = ARG_TYPES

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
        axis: Any = None,
        output_data_type: Any = DataType.UINT32,
    ) -> Self:
        """The descriptor for an input; its output is inferred: packed, with size 1 on every reduced axis.

        Args:
            input_tensor: a TensorDesc, an array or a device tensor; only its type and layout count.
            axes: the reduced axes; None: all.
            axis_direction: see the field.
            axis: instead of axes, as in NumPy: an axis or several; negative axes count from the last.
            output_data_type: the type of the indices: a DataType, or a NumPy type.

        Raises:
            DescriptorError: naming the field that breaks a rule.
        """
        return cls(
            **cls._inferred(input_tensor, axes, axis, output_data_type, cls.types), axis_direction=axis_direction
        )

    def __post_init__(self) -> None:
        self._check_reduction()
        self._check_enum("axis_direction", AxisDirection)


@dataclass(frozen=True)
class ArgmaxOperatorDesc(ArgOperatorDesc):
    """The index of the maximum over one or more axes (DML_ARGMAX_OPERATOR_DESC).

    The index is a position in the reduced axes, flattened in row-major order. NaN counts as the maximum, -0 and +0 are
    equal, and denormals are compared exactly.

    Decisions of docs/semantics.md: 1, 5, 8, 9, 21, 23.

    Formula:
        output[i] = the first r with input[i, r] = max(input[i, :]); with DECREASING the last
        i counts along the kept axes, r along the reduced ones

    Args:
        input_tensor: 1 to 8 dimensions; FLOAT32, FLOAT16 or any integer of 8 to 64 bits; beyond DirectML also FLOAT64.
        output_tensor: the input's sizes with 1 on every reduced axis; UINT32, INT32, UINT64 or INT64.
        axes: the reduced axes, a non-empty set.
        axis_direction: INCREASING selects the first of equal maxima or minima, DECREASING the last.

    Raises:
        DescriptorError: naming the field that breaks a rule.

    Example:
        >>> import numpy as np
        >>> from dmlgpu import ArgmaxOperatorDesc, AxisDirection, verify
        >>> x = np.array([[1, 2, 3], [3, 0, 4], [2, 5, 2]], np.float32)
        >>> verify(ArgmaxOperatorDesc.of(x, axes=(1,)), x).tolist()
        [[2], [2], [1]]
        >>> verify(ArgmaxOperatorDesc.of(x, axes=(0, 1)), x).tolist()  # row 2, column 1: 2 * 3 + 1
        [[7]]
        >>> ties = np.array([3, 2, 1, 2, 3], np.int8)
        >>> verify(ArgmaxOperatorDesc.of(ties, (0,), AxisDirection.DECREASING), ties).tolist()
        [4]
    """


@dataclass(frozen=True)
class ArgminOperatorDesc(ArgOperatorDesc):
    """The index of the minimum over one or more axes (DML_ARGMIN_OPERATOR_DESC).

    The rules are those of `ArgmaxOperatorDesc`, but NaN counts as the minimum.

    Decisions of docs/semantics.md: 1, 5, 8, 9, 21, 23.

    Formula:
        output[i] = the first r with input[i, r] = min(input[i, :]); with DECREASING the last
        i counts along the kept axes, r along the reduced ones

    Example:
        >>> import numpy as np
        >>> from dmlgpu import ArgminOperatorDesc, AxisDirection, verify
        >>> x = np.array([[1, 2, 3], [3, 0, 4], [2, 5, 2]], np.float32)
        >>> verify(ArgminOperatorDesc.of(x, axes=(1,)), x).tolist()
        [[0], [1], [0]]
        >>> last = AxisDirection.DECREASING
        >>> verify(ArgminOperatorDesc.of(x, (1,), last), x).tolist()  # the last 2 of row 2
        [[0], [1], [2]]
    """


@dataclass(frozen=True)
class ReduceOperatorDesc(_ReductionOperatorDesc):
    """A reduction over one or more axes (DML_REDUCE_OPERATOR_DESC).

    ARGMAX and ARGMIN are the same as `ArgmaxOperatorDesc` and `ArgminOperatorDesc` with AxisDirection.INCREASING. Sums
    and products of integers wrap around, those of floats are computed in float32, with a bound for the error.

    Decisions of docs/semantics.md: 1, 5, 7, 8, 9, 21, 23.

    Formula:
        output[i] = the function of input[i, r] for all r
        i counts along the kept axes, r along the reduced ones

    Args:
        function: the function of the n reduced elements x.
        input_tensor: 1 to 8 dimensions; FLOAT32 or FLOAT16. ARGMAX, ARGMIN, MAX and MIN take all types of
            `ArgmaxOperatorDesc`; L1, MULTIPLY, SUM and SUM_SQUARE also integers of 32 and 64 bits.
        output_tensor: the input's sizes with 1 on every reduced axis, and the input's type; for ARGMAX and ARGMIN
            UINT32, INT32, UINT64 or INT64.
        axes: the reduced axes, a non-empty set.

    Raises:
        DescriptorError: naming the field that breaks a rule.

    Example:
        >>> import numpy as np
        >>> from dmlgpu import ReduceFunction, ReduceOperatorDesc, verify
        >>> x = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]], np.float32)
        >>> verify(ReduceOperatorDesc.of(ReduceFunction.SUM, x, axes=(1,)), x).tolist()
        [[6.0], [15.0], [24.0]]
        >>> verify(ReduceOperatorDesc.of(ReduceFunction.MAX, x, axes=(0,)), x).tolist()
        [[7.0, 8.0, 9.0]]
        >>> verify(ReduceOperatorDesc.of(ReduceFunction.ARGMAX, x, axes=(0, 1)), x).tolist()
        [[8]]
    """

    types: ClassVar[TypeTable] = {
        field: tuple(dict.fromkeys(t for types in REDUCE_TYPES.values() for t in types[field]))
        for field in ("input_tensor", "output_tensor")
    }

    function: ReduceFunction
    input_tensor: TensorDesc
    output_tensor: TensorDesc
    axes: tuple[int, ...]

    @classmethod
    def of(
        cls, function: Any, input_tensor: Any, axes: Any = None, *, axis: Any = None, output_data_type: Any = None
    ) -> Self:
        """The descriptor for a function and an input; its output is inferred as by `ArgOperatorDesc.of`.

        Args:
            function: see the field.
            input_tensor: a TensorDesc, an array or a device tensor; only its type and layout count.
            axes: as for `ArgOperatorDesc.of`.
            axis: as for `ArgOperatorDesc.of`.
            output_data_type: a DataType, or a NumPy type; None: UINT32 for indices, else the input's.

        Raises:
            DescriptorError: naming the field that breaks a rule.
        """
        source, types = TensorDesc.of(input_tensor), REDUCE_TYPES.get(ReduceFunction.member(function), cls.types)
        if output_data_type is None:
            output_data_type = DataType.UINT32 if types is ARG_TYPES else source.data_type
        return cls(function, **cls._inferred(source, axes, axis, output_data_type, types))

    @property
    def _allowed_types(self) -> TypeTable:
        return REDUCE_TYPES[self.function]

    def __post_init__(self) -> None:
        self._check_enum("function", ReduceFunction)
        self._check_reduction()
        if self._allowed_types is not ARG_TYPES:
            self._check_same_type()

    def canonical(self) -> OperatorDesc:
        equivalent = _EQUIVALENTS.get(self.function)
        return equivalent(self.input_tensor, self.output_tensor, self.axes) if equivalent else self


@dataclass(frozen=True)
class ExtremumOperatorDesc(_ReductionOperatorDesc):
    """The maximum or the minimum over one or more axes, and its index. DirectML has no such operator.

    Values and indices are those of `ReduceOperatorDesc`, and of `ArgmaxOperatorDesc` or `ArgminOperatorDesc` with
    AxisDirection.INCREASING, computed in one pass over the input.

    Args:
        function: MAX or MIN.
        input_tensor: 1 to 8 dimensions, of any type that `ArgmaxOperatorDesc` takes.
        output_tensor: the input's sizes with 1 on every reduced axis, and the input's type.
        output_indices_tensor: the same sizes; UINT32, INT32, UINT64 or INT64.
        axes: the reduced axes, a non-empty set.
    """

    output_fields: ClassVar[tuple[str, ...]] = ("output_tensor", "output_indices_tensor")
    types: ClassVar[TypeTable] = {**_SELECTED, "output_indices_tensor": INDEX_TYPES}

    function: ReduceFunction
    input_tensor: TensorDesc
    output_tensor: TensorDesc
    output_indices_tensor: TensorDesc
    axes: tuple[int, ...]

    @classmethod
    def of(
        cls,
        function: Any,
        input_tensor: Any,
        axes: Any = None,
        *,
        axis: Any = None,
        indices_data_type: Any = DataType.UINT64,
    ) -> Self:
        """The descriptor for a function and an input; its outputs are packed. Axes are as for `ArgOperatorDesc.of`."""
        source = TensorDesc.of(input_tensor)
        fields = cls._inferred(source, axes, axis, source.data_type, cls.types)
        indices = cls._packed_indices(source, fields["output_tensor"].sizes, indices_data_type)
        return cls(function, output_indices_tensor=indices, **fields)

    def __post_init__(self) -> None:
        self._check_enum("function", ReduceFunction)
        if self.function not in (ReduceFunction.MAX, ReduceFunction.MIN):
            raise self._error("function", f"{self.function} is not allowed; allowed are MAX, MIN")
        self._check_reduction()
        self._check_tensor("output_indices_tensor")
        self._check_sizes("output_indices_tensor", self.output_tensor.sizes, "those of the output")
        self._check_indices("output_indices_tensor")
        self._check_same_type()


@dataclass(frozen=True)
class ShortSumOperatorDesc(_ReductionOperatorDesc):
    """The sums of integers of 8 or 16 bits over one or more axes, modulo 2^32. DirectML has no such operator.

    Args:
        input_tensor: 1 to 8 dimensions of UINT8, INT8, UINT16 or INT16.
        output_tensor: the input's sizes with 1 on every reduced axis, UINT32: the sums in two's complement.
        axes: the reduced axes, a non-empty set.
    """

    types: ClassVar[TypeTable] = {
        "input_tensor": (DataType.UINT8, DataType.INT8, DataType.UINT16, DataType.INT16),
        "output_tensor": (DataType.UINT32,),
    }

    input_tensor: TensorDesc
    output_tensor: TensorDesc
    axes: tuple[int, ...]

    @classmethod
    def of(cls, input_tensor: Any, axes: Any) -> Self:
        """The descriptor for an input; its output is packed."""
        return cls(**cls._inferred(input_tensor, axes, None, DataType.UINT32, cls.types))

    def __post_init__(self) -> None:
        self._check_reduction()


# Words of an exact sum of float32: the sum in units of 2^-149, as an integer in two's complement, low word first; then
# bits that tell which elements were not finite: 1 NaN, 2 infinity, 4 -infinity.
EXACT_WORDS = 11
# Words of an exact sum of squares: the same, in units of 2^-298.
EXACT_SQUARES_WORDS = 20


@dataclass(frozen=True)
class ExactSumOperatorDesc(_ReductionOperatorDesc):
    """The exact sums over one or more axes, as integers. DirectML has no such operator.

    Sums of parts can be added, as integers, and rounded at the end.

    Args:
        input_tensor: 1 to 8 dimensions of FLOAT32.
        output_tensor: one word of each sum: the input's sizes with 1 on every reduced axis, UINT32. The operator has
            EXACT_WORDS outputs, all described by this field.
        axes: the reduced axes, a non-empty set.
        absolute: whether the elements' absolute values are added.
    """

    output_fields: ClassVar[tuple[str, ...]] = ("output_tensor",) * EXACT_WORDS
    types: ClassVar[TypeTable] = {"input_tensor": (DataType.FLOAT32,), "output_tensor": (DataType.UINT32,)}

    input_tensor: TensorDesc
    output_tensor: TensorDesc
    axes: tuple[int, ...]
    absolute: bool = False

    @classmethod
    def of(cls, input_tensor: Any, axes: Any, absolute: bool = False) -> Self:
        """The descriptor for an input; its outputs are packed."""
        return cls(**cls._inferred(input_tensor, axes, None, DataType.UINT32, cls.types), absolute=absolute)

    def __post_init__(self) -> None:
        self._check_reduction()


@dataclass(frozen=True)
class ExactSquaresOperatorDesc(ExactSumOperatorDesc):
    """The exact sums of the elements' squares, with EXACT_SQUARES_WORDS outputs.

    Otherwise as `ExactSumOperatorDesc`.
    """

    output_fields: ClassVar[tuple[str, ...]] = ("output_tensor",) * EXACT_SQUARES_WORDS


# The operators that DirectML documents as equivalent to functions of REDUCE.
_EQUIVALENTS: dict[ReduceFunction, type[ArgOperatorDesc]] = {
    ReduceFunction.ARGMAX: ArgmaxOperatorDesc,
    ReduceFunction.ARGMIN: ArgminOperatorDesc,
}
