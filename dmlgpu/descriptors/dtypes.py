"""DirectML's data types and their names in NumPy, and what counts as an integer."""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

import numpy as np

from dmlgpu.errors import DescriptorError, shown


def index(value: Any) -> int:
    """A value as an int: anything that Python takes as an index, except True and False.

    Raises:
        TypeError: it is not an integer, or it is True or False of Python or NumPy, which Python takes as 1 and 0.
    """
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{value!r} is not an integer")
    return operator.index(value)


class Enumeration(enum.IntEnum):
    """An enumeration of DirectML.h. Its members print as Python code: `DataType.FLOAT32`."""

    __str__ = enum.Enum.__str__

    def __repr__(self) -> str:
        return str(self)

    @classmethod
    def member(cls, value: Any) -> Any:
        """The member for a value: a member, its name in upper or lower case, or its integer; None if there is none."""
        if isinstance(value, cls):
            return value
        if isinstance(value, str):
            return cls.__members__.get(value.upper())
        if isinstance(value, enum.Enum):
            return None
        try:
            return cls(index(value))
        except (TypeError, ValueError):
            return None


class DataType(Enumeration):
    """DML_TENSOR_DATA_TYPE, the type of an element.

    Members are UNKNOWN, FLOAT16, FLOAT32, FLOAT64, and INT and UINT of 4, 8, 16, 32 and 64 bits. No operator accepts
    UNKNOWN, INT4 or UINT4.
    """

    UNKNOWN = 0
    FLOAT32 = 1
    FLOAT16 = 2
    UINT32 = 3
    UINT16 = 4
    UINT8 = 5
    INT32 = 6
    INT16 = 7
    INT8 = 8
    FLOAT64 = 9
    UINT64 = 10
    INT64 = 11
    UINT4 = 12
    INT4 = 13

    @cached_property
    def bits(self) -> int:
        """Bits of one element; 0 for UNKNOWN."""
        return 0 if self is DataType.UNKNOWN else int(self.name.lstrip("FLOATUIN"))

    @property
    def is_float(self) -> bool:
        """Whether elements are floating-point numbers."""
        return self.name.startswith("FLOAT")

    @cached_property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy type of an element, in native byte order.

        Raises:
            DescriptorError: for UNKNOWN, UINT4 and INT4, which NumPy lacks.
        """
        if self.bits < 8:
            raise DescriptorError(f"{self} has no NumPy type")
        return np.dtype(self.name.lower())

    @classmethod
    def of(
        cls,
        dtype: Any,
        field: str = "TensorDesc.data_type",
        allowed: Iterable[DataType] | None = None,
        *,
        of_input: bool = True,
    ) -> DataType:
        """The data type of a NumPy type in any byte order; UINT8 for arrays of bool, if that is allowed.

        Args:
            dtype: anything that NumPy takes as a dtype, except None; or a DataType or its name.
            field: its name in errors: a descriptor and its field.
            allowed: the types that errors list; bool is UINT8 only if that is one of them. The result is not checked
                against them. None: all types that NumPy also has.
            of_input: whether `dtype` is that of an input array: it may be bool, and errors say how to convert it.

        Raises:
            DescriptorError: DirectML has no such type.
        """
        element = element_type(dtype)
        if element is None:
            raise DescriptorError(f"{field}: {shown(dtype)} is neither a DataType nor a NumPy type")
        if isinstance(element, cls):
            return element
        name = element.name
        types = [member for member in cls if member.bits >= 8] if allowed is None else [*allowed]
        if of_input and name == "bool" and cls.UINT8 in types:
            return cls.UINT8
        if name.upper() not in cls.__members__:
            names = ", ".join(t.name.lower() for t in types) if allowed is None else listed(types, str.lower)
            raise DescriptorError(
                f"{field}: NumPy type {element} has no DirectML data type; allowed are {names}"
                + (conversion(name, types) if of_input else "")
            )
        return cls[name.upper()]


def element_type(dtype: Any) -> DataType | np.dtype[Any] | None:
    """The member for a DataType or its name, else NumPy's type; None: it is neither."""
    member: DataType | None = DataType.member(dtype) if isinstance(dtype, (DataType, str)) else None
    if member is not None:
        return member
    try:
        # NumPy takes None as float64, parses strings, and calls repr() of what it does not know.
        return None if dtype is None else np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):
        return None


# Types beyond DirectML that operators accept if they only select elements: NumPy's default type.
EXTENSIONS = (DataType.FLOAT64,)


def listed(types: Iterable[DataType], spell: Callable[[str], str] = str) -> str:
    """An operator's types as errors list them: those beyond DirectML are marked."""
    return ", ".join("beyond DirectML " * (t in EXTENSIONS) + spell(t.name) for t in types)


def check_holds(field: str, data_type: DataType, count: int, what: str, types: Iterable[DataType]) -> None:
    """Raises a DescriptorError unless a type can hold the indices of `count` elements; `types` are all it could be."""
    if count - 1 > np.iinfo(data_type.numpy).max:
        allowed = listed(t for t in types if count - 1 <= np.iinfo(t.numpy).max)
        raise DescriptorError(
            f"{field}: {data_type.name} cannot hold the index of {count} {what}; "
            f"allowed are {allowed or 'fewer elements'}"
        )


# Types that integers can be converted to, in the order in which errors propose them.
_WIDE = (DataType.INT32, DataType.UINT32, DataType.INT64, DataType.UINT64, DataType.FLOAT32)
_INTEGERS = ("bool", *(t.name.lower() for t in DataType if t.bits >= 8 and not t.is_float))


_CONVERT = "convert the array, as by x.astype(np.{0}), a list by np.asarray(x, np.{0})"


def conversion(name: str, allowed: Iterable[DataType], how: str = _CONVERT) -> str:
    """The end of an error: how to convert an array of this NumPy type, which is not allowed; '' if it cannot be.

    `how`: the advice, with {0} for the name of the nearest type that is allowed.
    """
    exact: list[DataType] = []
    rounded = [DataType.FLOAT32]
    if name in _INTEGERS:
        exact = [t for t in _WIDE if np.can_cast(name, t.numpy)]
    elif name in ("float64", "longdouble", "float128"):
        rounded = [DataType.FLOAT64, DataType.FLOAT32]
    elif "float" in name:
        exact = [DataType.FLOAT32]
    else:
        rounded = []
    nearest = next((t for t in (*exact, *rounded) if t in allowed), None)
    if nearest is None:
        return ""
    return f"; {how.format(nearest.name.lower())}" + ("" if nearest in exact else ", which rounds")
