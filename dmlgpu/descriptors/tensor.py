"""`TensorDesc`: DML_BUFFER_TENSOR_DESC, the layout of a tensor in a linear buffer; and the arrays of callers."""

from __future__ import annotations

import itertools
import math
import operator
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dmlgpu.descriptors.dtypes import DataType, index
from dmlgpu.errors import DescriptorError, shown

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]


class SupportsDLPack(Protocol):
    """An array of another library, by DLPack."""

    def __dlpack__(self, *arguments: Any, **options: Any) -> Any:
        """The capsule."""


# Anything that NumPy can view.
ArrayLike = npt.ArrayLike | SupportsDLPack

MAX_RANK = 8  # DML_TENSOR_DIMENSION_COUNT_MAX1
MAX_ELEMENTS = 2**32 - 1  # of a tensor; also the maximum of a stride, and of `TensorDesc.reach`
MAX_BYTES = 2**64 - 1  # TotalTensorSizeInBytes is a UINT64
# Maximum number of entries that are read from a sequence: more than any field has, and few enough for a message.
_MOST_ENTRIES = 64
# Maximum number of steps of the search for elements that share memory.
_MOST_WORK = 1 << 18
# Maximum number of bytes of an array that are copied at a time.
_PART_BYTES = 1 << 20


def integer(owner: str, field: str, value: Any) -> int:
    """`value` as an int; errors name its owner and field. True and False are not allowed."""
    try:
        return index(value)
    except TypeError:
        raise DescriptorError(f"{owner}.{field}: {shown(value)} is not an integer") from None


def flag(owner: str, field: str, value: Any) -> bool:
    """`value` as a bool; errors name its owner and field. 0 and 1 are not allowed."""
    if not isinstance(value, (bool, np.bool_)):
        raise DescriptorError(f"{owner}.{field}: {shown(value)} is not allowed; allowed are True and False")
    return bool(value)


def unsigned(owner: str, field: str, value: Any, minimum: int = 0) -> int:
    """`value` as a UINT of at least `minimum`; errors name its owner and field."""
    number = integer(owner, field, value)
    if not minimum <= number <= MAX_ELEMENTS:
        raise DescriptorError(
            f"{owner}.{field}: {shown(number)} is not allowed; it must be {minimum} to {MAX_ELEMENTS}"
        )
    return number


def integers(owner: str, field: str, values: Any, *, ordered: bool = True) -> tuple[int, ...]:
    """`values` as a tuple of ints; errors name the entry. Sets are allowed only if the order does not matter."""
    unordered = isinstance(values, Mapping) or (ordered and isinstance(values, Set))
    if isinstance(values, str) or unordered or not np.iterable(values):
        raise DescriptorError(f"{owner}.{field}: {shown(values)} is not a sequence of integers")
    entries = tuple(itertools.islice(values, _MOST_ENTRIES + 1))
    if len(entries) > _MOST_ENTRIES:
        raise DescriptorError(f"{owner}.{field}: {shown(values)} has more entries than the {MAX_RANK} of any tensor")
    if {*map(type, entries)} <= {int}:
        return entries
    return tuple(integer(owner, f"{field}[{i}]", value) for i, value in enumerate(entries))


def integers_or_one(owner: str, field: str, values: Any, *, ordered: bool = True) -> tuple[int, ...]:
    """`integers`, with errors for a field that may also be a single integer."""
    if isinstance(values, str) or not np.iterable(values):
        raise DescriptorError(f"{owner}.{field}: {shown(values)} is neither an integer nor a sequence of integers")
    return integers(owner, field, values, ordered=ordered)


def is_integer(value: Any) -> bool:
    """Whether a value counts as an int. True does, so that `integer` refuses it."""
    if isinstance(value, np.bool_):
        return True
    try:
        operator.index(value)
    except TypeError:
        return False
    return True


def unsigned_array(owner: str, field: str, values: Any, minimum: int = 0) -> tuple[int, ...]:
    """`values` as a tuple of UINTs of at least `minimum`; errors name the entry."""
    numbers = integers(owner, field, values)
    for i, number in enumerate(numbers):
        if not minimum <= number <= MAX_ELEMENTS:
            unsigned(owner, f"{field}[{i}]", number, minimum)
    return numbers


def packed_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    """The strides, in elements, of a row-major tensor without gaps."""
    return tuple([math.prod(sizes[i + 1 :]) for i in range(len(sizes))])


@dataclass(frozen=True, repr=False)
class TensorDesc:
    """The type and layout of a tensor (DML_BUFFER_TENSOR_DESC).

    Args:
        data_type: the type of an element.
        sizes: 1 to 8 sizes, outermost first, each at least 1; at most 2^32 - 1 elements together.
        strides: distances in elements, one for each size; 0 broadcasts a dimension. None: packed, row-major.
        total_tensor_size_in_bytes: bytes of the buffer, gaps included. None: as many as the layout needs,
            rounded up to a multiple of 4 (DMLCalcBufferTensorSize). At most 2^64 - 1.

    Raises:
        DescriptorError: naming the field that breaks a rule.
    """

    data_type: DataType
    sizes: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    total_tensor_size_in_bytes: int | None = None

    def __post_init__(self) -> None:
        data_type = DataType.member(self.data_type) or DataType.UNKNOWN
        if data_type is DataType.UNKNOWN:
            allowed = ", ".join(member.name for member in DataType if member.bits)
            raise DescriptorError(
                f"TensorDesc.data_type: {shown(self.data_type)} is not allowed; allowed are {allowed}"
            )
        sizes = unsigned_array("TensorDesc", "sizes", self.sizes, minimum=1)
        object.__setattr__(self, "sizes", sizes)
        self._check_rank()
        if math.prod(sizes) > MAX_ELEMENTS:
            raise DescriptorError(
                f"TensorDesc.sizes: {sizes} has {math.prod(sizes)} elements; at most {MAX_ELEMENTS} are allowed"
            )
        object.__setattr__(self, "data_type", data_type)
        if self.strides is not None:
            self._check_strides()
        if self.total_tensor_size_in_bytes is not None:
            self._check_total()

    def _check_rank(self) -> None:
        if not 1 <= len(self.sizes) <= MAX_RANK:
            raise DescriptorError(f"TensorDesc.sizes: {len(self.sizes)} dimensions; allowed are 1 to {MAX_RANK}")

    def _check_strides(self) -> None:
        strides = unsigned_array("TensorDesc", "strides", self.strides)
        if len(strides) != len(self.sizes):
            raise DescriptorError(
                f"TensorDesc.strides: {len(strides)} strides for {len(self.sizes)} sizes; give one for each"
            )
        object.__setattr__(self, "strides", strides)
        if self.reach > MAX_ELEMENTS:
            raise DescriptorError(
                f"TensorDesc.strides: {strides} reach {self.reach} elements far; at most {MAX_ELEMENTS} are allowed"
            )

    def _check_total(self) -> None:
        total = integer("TensorDesc", "total_tensor_size_in_bytes", self.total_tensor_size_in_bytes)
        if total < self.minimum_size_in_bytes:
            raise DescriptorError(
                f"TensorDesc.total_tensor_size_in_bytes: {shown(total)} is too small; "
                f"the sizes and strides need at least {self.minimum_size_in_bytes}"
            )
        if total > MAX_BYTES:
            raise DescriptorError(
                f"TensorDesc.total_tensor_size_in_bytes: {shown(total)} is too large; at most {MAX_BYTES} are allowed"
            )
        object.__setattr__(self, "total_tensor_size_in_bytes", total)

    @classmethod
    def of(cls, array: Any) -> TensorDesc:
        """The descriptor of an array's layout in memory; it has strides only if the array is not packed.

        Args:
            array: anything that NumPy can view, with bool as UINT8; or a device tensor or a TensorDesc, whose
                descriptor is returned.

        Raises:
            DescriptorError: DirectML lacks the type or the layout (negative strides, misaligned elements), or the array
                is more than its elements (a mask, units).
        """
        for described in array, getattr(array, "desc", None):
            if isinstance(described, TensorDesc):
                return described
        array = as_array(array, "TensorDesc.of")
        data_type, sizes = DataType.of(array.dtype), array.shape
        if array.flags.c_contiguous:
            return cls(data_type, sizes)
        steps = [divmod(stride, array.itemsize) for stride in array.strides]
        if any(stride < 0 or remainder for stride, remainder in steps):
            raise DescriptorError(
                f"TensorDesc.strides: the array's strides of {array.strides} bytes are negative, or not multiples of "
                f"its element size {array.itemsize}; copy it with numpy.ascontiguousarray"
            )
        return cls(data_type, sizes, tuple(stride for stride, _ in steps))

    def packed(self, data_type: DataType, sizes: tuple[int, ...]) -> TensorDesc:
        """A packed tensor of the same kind: large if this one is."""
        return type(self)(data_type, sizes)

    @property
    def rank(self) -> int:
        """DimensionCount."""
        return len(self.sizes)

    @cached_property
    def element_count(self) -> int:
        """The product of the sizes, whatever the strides."""
        return math.prod(self.sizes)

    @cached_property
    def element_strides(self) -> tuple[int, ...]:
        """The strides in elements; the packed ones if `strides` is None."""
        return packed_strides(self.sizes) if self.strides is None else self.strides

    @cached_property
    def reach(self) -> int:
        """Elements of the buffer from the tensor's first to its last, inclusive."""
        if self.strides is None:
            return self.element_count
        return 1 + sum((size - 1) * stride for size, stride in zip(self.sizes, self.strides, strict=True))

    @property
    def minimum_size_in_bytes(self) -> int:
        """The bytes that sizes and strides need: DMLCalcBufferTensorSize, computed without overflow."""
        return -(-self.reach * self.data_type.bits // 32) * 4

    @cached_property
    def size_in_bytes(self) -> int:
        """Bytes of the buffer."""
        total = self.total_tensor_size_in_bytes
        return self.minimum_size_in_bytes if total is None else total

    @cached_property
    def layout(self) -> tuple[tuple[int, int], ...]:
        """(size, stride) of each dimension with more than one element; elements of equal layouts have equal offsets."""
        return tuple(pair for pair in zip(self.sizes, self.element_strides, strict=True) if pair[0] > 1)

    @cached_property
    def is_packed(self) -> bool:
        """Whether the elements are in row-major order without gaps, with or without explicit `strides`."""
        return self.strides is None or self.layout == TensorDesc(self.data_type, self.sizes).layout

    @cached_property
    def overlaps(self) -> bool | None:
        """Whether two elements share memory (a stride is 0, or smaller than the extent of inner dimensions).

        None: unknown, because the search did not end within 2^18 steps, enough for all 2-D tensors, and for
        all whose strides each exceed the sum of (size - 1) * stride over the smaller strides.
        """
        if self.is_packed:
            return False
        # Two elements coincide if their indices differ by a vector d, |d[i]| < size[i] and not all 0, with
        # d . stride = 0.
        dims = sorted(
            ((stride, size - 1) for size, stride in zip(self.sizes, self.element_strides, strict=True) if size > 1),
            reverse=True,
        )
        if any(stride == 0 for stride, _ in dims) or self.reach < self.element_count:
            return True
        # The largest stride comes first. `sums` has all values of |d . stride|, over the strides so far, that the
        # smaller strides can bring back to 0; without d = 0, and with d and -d as one. If a stride exceeds `reach`, the
        # maximum sum of the smaller ones, its d must be 0.
        sums: set[int] = set()
        work, reach = 0, self.reach - 1
        for stride, limit in dims:
            reach -= limit * stride
            new_sums: set[int] = set()
            for total in (0, *sums):
                first = 1 if total == 0 else max(-limit, -((reach + total) // stride))
                differences = range(first, min(limit, (reach - total) // stride) + 1)
                work += 1 + len(differences)
                if work > _MOST_WORK:
                    return None
                new_sums.update(abs(total + d * stride) for d in differences)
            if 0 in new_sums:
                return True
            sums = new_sums
        return False

    def __repr__(self) -> str:
        text = f"TensorDesc({self.data_type}, {self.sizes}"
        if self.strides is not None:
            text += f", strides={self.strides}"
        if self.total_tensor_size_in_bytes is not None:
            text += f", total_tensor_size_in_bytes={self.total_tensor_size_in_bytes}"
        return text + ")"


@dataclass(frozen=True, repr=False)
class LargeTensorDesc(TensorDesc):
    """A packed tensor that may have more elements than DirectML allows: operators on it are computed in parts.

    Raises:
        DescriptorError: it has too many dimensions.
    """

    def __post_init__(self) -> None:
        self._check_rank()


# The elements of arrays in a tensor's buffer


def bits(array: Array) -> Array:
    """The elements as unsigned integers, to compare them bit for bit."""
    native = array.astype(array.dtype.newbyteorder("="), order="C", copy=False)
    words: Array = native.view(f"u{native.itemsize}")
    return words


def elements(desc: TensorDesc, memory: Bytes) -> Array:
    """The elements of a tensor as a view of its bytes."""
    dtype = desc.data_type.numpy
    strides = None if desc.strides is None else [stride * dtype.itemsize for stride in desc.strides]
    view: Array = np.ndarray(desc.sizes, dtype, memory.data, strides=strides)
    return view


def check(desc: TensorDesc, field: str, x: Array) -> None:
    """Raises a DescriptorError if an array has other sizes or another type than its tensor; `field` names it.

    Arrays of bool count as UINT8.
    """
    if x.shape != desc.sizes:
        raise DescriptorError(f"{field}.sizes: the array has {x.shape}; the descriptor has {desc.sizes}")
    dtype = np.dtype(np.uint8) if x.dtype == np.bool_ else x.dtype.newbyteorder("=")
    if dtype != desc.data_type.numpy:
        raise DescriptorError(f"{field}.data_type: the array is {x.dtype}; the descriptor has {desc.data_type.name}")


def parts(desc: TensorDesc, field: str, x: Array) -> Iterator[Bytes]:
    """The bytes of a tensor with the elements of an array, one part after the other; bytes between elements are 0.

    A part of a tensor without gaps is a view of the array, or small; other tensors have one part. Errors are those of
    `write`.
    """
    order = sorted(range(x.ndim), key=lambda axis: -desc.element_strides[axis])
    sizes, strides = zip(*((x.shape[axis], desc.element_strides[axis]) for axis in order), strict=True)
    if replace(desc, sizes=sizes, strides=strides).is_packed:
        yield from _packed_parts(x.transpose(order))
        return
    memory = np.zeros(desc.size_in_bytes, np.uint8)
    write(desc, field, x, memory)
    yield memory


def _packed_parts(x: Array) -> Iterator[Bytes]:
    """The bytes of an array in row-major order."""
    dtype = np.dtype(np.uint8) if x.dtype == np.bool_ else x.dtype.newbyteorder("=")
    if (x.flags.c_contiguous and x.dtype == dtype) or x.nbytes <= _PART_BYTES:
        yield x.astype(dtype, order="C", copy=False).reshape(-1).view(np.uint8)
        return
    rows = _PART_BYTES * len(x) // x.nbytes
    for i in range(0, len(x), max(rows, 1)):
        yield from _packed_parts(x[i : i + rows] if rows else x[i])


def write(desc: TensorDesc, field: str, x: Array, memory: Bytes) -> None:
    """Writes an array to the elements of its tensor, and nothing to the gaps between them; bool as 0 and 1.

    Raises:
        DescriptorError: elements that share memory in the tensor (a stride 0) differ in the array.
    """
    target = elements(desc, memory)
    if desc.overlaps is not False:
        # Where both strides are 0, the dimension has one element: it is written and compared once.
        strides = zip(desc.element_strides, x.strides, strict=True)
        once = tuple(slice(1 if target_stride == x_stride == 0 else None) for target_stride, x_stride in strides)
        target, x = target[once], x[once]
    x = x.astype(np.uint8) if x.dtype == np.bool_ else x  # a bool's byte may be neither 0 nor 1
    target[...] = x
    if desc.overlaps is not False and not np.array_equal(bits(target), bits(x)):
        raise DescriptorError(
            f"{field}.strides: with strides {desc.element_strides} elements share memory, but differ in the array"
        )


# What callers pass as arrays

_VIEWABLE = ("__array__", "__array_interface__", "__array_struct__")
# A subclass of ndarray that overrides one of these gives its elements a meaning of its own.
_HOOKS = ("__array_ufunc__", "__array_function__")


def as_array(x: Any, field: str) -> Array:
    """Anything that NumPy can view, as an ndarray: `__array__`, `__array_interface__`, buffers, DLPack on the CPU.

    Args:
        x: the object to view.
        field: its name in errors: a descriptor and its field.

    Raises:
        DescriptorError: x is not an array of numbers, but None, a string or a list of unequal lengths; or `check_plain`
            refuses x, or an array in the list x.
    """
    if type(x) is np.ndarray and x.ndim:  # the usual case: no check below applies
        return x
    if hasattr(x, "__dlpack__") and not _is_viewable(x):
        return np.from_dlpack(x)
    check_plain(x, field)
    try:
        array: Array = np.asanyarray(x)  # `__array__` may return a masked array
    except TypeError as error:
        if not hasattr(x, "dtype"):
            raise
        raise TypeError(f"{field}: {described(x)} has a type that NumPy lacks ({error}); convert it first") from error
    except ValueError as error:
        if _is_viewable(x):  # x itself raised the error
            raise
        raise DescriptorError(f"{field}: {error}") from error  # for example lists of unequal lengths
    except MemoryError as error:
        if not isinstance(x, range):
            raise
        raise DescriptorError(f"{field}: {x} has more elements than fit in memory") from error
    if array.ndim == 0 and array.dtype.kind in "OSU":
        raise DescriptorError(f"{field}: {described(x)} cannot be viewed by NumPy as an array of numbers")
    if array is not x:
        check_plain(array, field)
    if not _is_viewable(x):
        _check_items(x, field, array.ndim)
    return np.asarray(array)


def _is_viewable(x: Any) -> bool:
    return any(hasattr(x, name) for name in _VIEWABLE)


def described(x: Any) -> str:
    """What an input is, for errors: an array's class, type and shape, without elements; the first items of a list."""
    if isinstance(x, (tuple, list)):
        return f"({', '.join([*map(described, x[:4]), *['...'] * (len(x) > 4)])})"
    is_array = hasattr(x, "shape") and hasattr(x, "dtype") and not isinstance(x, type)
    return f"{type(x).__name__} of {x.dtype} and {shown(x.shape)}" if is_array else shown(x)


def check_plain(x: Any, field: str) -> None:
    """Raises if an array is more than its elements; reads none of them, and accepts other objects.

    Raises:
        DescriptorError: x, or `_meta` of a Dask array x, is a masked array or a subclass of ndarray with a meaning of
            its own (units, a matrix): an ndarray would lose it silently.
    """
    array = getattr(x, "_meta", x)
    if not isinstance(array, np.ndarray):
        return
    alone = "pass np.asarray(x) for its elements alone"
    # NumPy 2 imports numpy.ma at first use, in 50 ms. If there is a masked array, it is imported already.
    ma = sys.modules.get("numpy.ma")
    if ma is not None and isinstance(array, ma.MaskedArray):
        raise DescriptorError(f"{field}: a masked array; a tensor has no mask: fill it, as with x.filled(0); {alone}")
    kind = type(array)
    if isinstance(array, np.matrix) or any(getattr(kind, hook) is not getattr(np.ndarray, hook) for hook in _HOOKS):
        raise DescriptorError(f"{field}: an array of type {kind.__name__}; a tensor is a plain ndarray; {alone}")


def _check_items(x: Any, field: str, depth: int) -> None:
    """`check_plain` for each array in lists and other sequences: NumPy would stack them as plain arrays."""
    if depth == 0 or isinstance(x, (str, bytes, bytearray, memoryview)):
        return
    for item in x:
        if isinstance(item, (int, float, np.generic)):
            continue
        if _is_viewable(item):
            check_plain(np.asanyarray(item), field)
        else:
            _check_items(item, field, depth - 1)
