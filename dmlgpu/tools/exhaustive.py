"""The order of all patterns of a type, checked on a device through the operators themselves.

A kernel decides by keys: each element has one, an unsigned number. The highest key wins, and of equal ones that of the
first or of the last element. This is assumed, and that a key depends on nothing but the bits of its element. The order
of unsigned numbers is total and transitive, whatever they are. What may be wrong is which key an element has.

So all patterns p[0], p[1], ... of a type stand in ascending order here, and the operators choose between p[i] and
p[i + 1], for every i. ARGMAX, which takes the first of equal elements, must take the second one here; ARGMIN, which is
asked for the last, the first one. So the keys of the two differ, the right way round. Where neighbours are equal, which
is -0 and +0, and NaN and NaN, the operators must take the first one, and if asked for the last the second one: so their
keys are equal. By way of the patterns between them this gives the order of the keys of any two patterns: 2^32 pairs of
neighbours prove all 2^63 pairs.

The patterns stand in a circle: behind the last NaN comes -inf again. NaN wins as a minimum, too, so in the order for
minima its neighbour is -inf. Of integers the circle adds a pair that needs no check.

rows.comp assumes more: it finds the highest key of many elements without computing the key of each (extremes.glsl).
Neighbours prove nothing about other pairs there. Of types of 8 and 16 bits, and of those of 32 bits where patterns
change in kind, it chooses between all neighbours, in rows of equal elements but one. All other patterns of 32 bits
stand in ascending rows: each is in one, and must not win unless it is the last, or for ARGMIN the first.

REDUCE with MAX and MIN, MAX_POOLING, and the kernel that looks at one element after the other, choose between the
neighbours that `rows` has in rows of equal elements but one: their keys are those that ARGMAX and ARGMIN compare. For
any two patterns `tests/host/test_order_proofs.py` proves this kernel, as it is compiled; not what a driver makes of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from dmlgpu.descriptors.arrays import Array
from dmlgpu.descriptors.dtypes import AxisDirection, DataType, ReduceFunction
from dmlgpu.descriptors.layout import bits, elements
from dmlgpu.descriptors.operator import OperatorDesc
from dmlgpu.descriptors.pooling import MaxPoolingOperatorDesc
from dmlgpu.descriptors.reduction import ArgmaxOperatorDesc, ArgminOperatorDesc, ArgOperatorDesc, ReduceOperatorDesc
from dmlgpu.descriptors.tensor import TensorDesc
from dmlgpu.errors import VerificationError
from dmlgpu.reference import reference
from dmlgpu.runtime.device import Device

TYPES = tuple(data_type for data_type in DataType if 8 <= data_type.bits <= 32)
"""Those of few enough patterns."""

# Pairs of a section: as many as stay in the caches of a CPU.
_SECTION = 1 << 20
# Those around a place where bits change in kind.
_BORDER = 1 << 12
# Bytes of a row: one block more than rows.comp takes for short.
_ROW_BYTES = 17 * 16

_ALL = tuple(product((ArgmaxOperatorDesc, ArgminOperatorDesc), AxisDirection))
# What takes neither of two ascending elements if they have equal keys.
_STRICT = ((ArgmaxOperatorDesc, AxisDirection.INCREASING), (ArgminOperatorDesc, AxisDirection.DECREASING))


def ascending(data_type: DataType, begin: int, count: int) -> Array:
    """Elements of a type in ascending order, those with the numbers `begin` to `begin + count - 1`.

    Number 0 is the least element. Floats begin with -inf; -0 comes before +0, and NaN behind +inf, with the sign bit of
    the last ones set. Behind the last element the first one comes again.
    """
    # Of the type's width: what goes over the end wraps around.
    number = (np.arange(count, dtype=np.uint32) + np.uint32(begin)).astype(f"u{data_type.bits // 8}")
    sign, infinity = _sign_and_infinity(data_type)
    if data_type.is_float:
        # -inf to -0, then +0 to the NaN without sign, then those with it.
        patterns = number - number.dtype.type(infinity + 1)
        np.copyto(patterns, number.dtype.type(sign + infinity) - number, where=number <= infinity)
        np.copyto(patterns, number, where=number > infinity + sign)
    else:
        patterns = number ^ number.dtype.type(sign)
    ordered: Array = patterns.view(data_type.numpy)
    return ordered


def _sign_and_infinity(data_type: DataType) -> tuple[int, int]:
    """What in a pattern says that it is negative, which unsigned numbers never are, and the pattern of infinity."""
    if data_type.is_float:
        return 1 << (data_type.bits - 1), int(bits(np.array(np.inf, data_type.numpy)))
    return int(bits(np.array(np.iinfo(data_type.numpy).min, data_type.numpy))), 0


@dataclass(frozen=True)
class Section:
    """Neighbours in the ascending order of a type: `count` pairs, from element number `begin` on."""

    data_type: DataType
    begin: int
    count: int
    thorough: bool
    """With several kernels, and every pair in a row of its own."""

    def check(self, device: Device) -> None:
        """Has the operators choose between each two neighbours.

        Raises:
            VerificationError: with the operator, the kernel, the device, and the two elements that it confused.
        """
        x = ascending(self.data_type, self.begin, self.count + 1)
        if self.thorough:
            self._check_thoroughly(device, x)
        else:
            self._check_once(device, x)

    def _check_once(self, device: Device, x: Array) -> None:
        # NumPy finds, too, that each element is above the one before it: that tells the winners without the oracle.
        rises = bool((x[1:] > x[:-1]).all())
        pairs, rows = _Input.of_pairs(device, x), _Input(device, _rows(x))
        for given, kernel in (pairs, None), (rows, "rows"):
            last = given.array.shape[1] - 1
            for arg, direction in _STRICT if rises else _ALL:
                winners = np.uint32(last if arg is ArgmaxOperatorDesc else 0) if rises else None
                given.check(arg.of(given.tensor, (1,), direction), kernel, winners)

    def _check_thoroughly(self, device: Device, x: Array) -> None:
        pairs, rows = _Input.of_pairs(device, x), _Input(device, _decided_by_one(x))
        for arg, direction in _ALL:
            pairs.check(arg.of(pairs.tensor, (1,), direction))
            pairs.check(arg.of(pairs.tensor, (1,), direction), kernel="reduce")
            rows.check(arg.of(rows.tensor, (1,), direction))
            rows.check(arg.of(rows.tensor, (1,), direction), kernel="rows")
        for function in ReduceFunction.MAX, ReduceFunction.MIN:
            pairs.check(ReduceOperatorDesc.of(function, pairs.tensor, (1,)))
        image = _Input(device, x.reshape(1, 1, 1, -1))
        image.check(MaxPoolingOperatorDesc.of(image.tensor, (1, 2)))


def sections(data_type: DataType) -> tuple[Section, ...]:
    """Sections with all neighbours of a type; of 32 bits those where bits change in kind come first, once more."""
    patterns = 1 << data_type.bits
    if patterns <= _SECTION:
        return (Section(data_type, 0, patterns, True),)
    borders = (Section(data_type, (at - _BORDER // 2) % patterns, _BORDER, True) for at in _borders(data_type))
    return (*borders, *(Section(data_type, begin, _SECTION, False) for begin in range(0, patterns, _SECTION)))


def _borders(data_type: DataType) -> list[int]:
    """Numbers of elements at which bits change in kind: signs, denormals, 1, infinities, NaN."""
    sign, infinity = _sign_and_infinity(data_type)
    if not data_type.is_float:
        return [0, 1 << (data_type.bits - 1)]
    values = np.array([0, np.finfo(data_type.numpy).tiny, 1, np.inf], data_type.numpy)
    magnitudes = [int(pattern) for pattern in bits(values)]
    return [n for m in magnitudes for n in (infinity - m, infinity + 1 + m)] + [infinity + 1 + sign]


def _rows(x: Array) -> Array:
    """Elements in rows, one after the other; the last row ends with the last element, and repeats others."""
    length = _ROW_BYTES // x.itemsize
    return np.concatenate([x[: x.size // length * length].reshape(-1, length), x[np.newaxis, -length:]])


def _decided_by_one(x: Array) -> Array:
    """Rows of equal elements but one, which is the next or the one before: two for each pair of neighbours."""
    count, length = x.size - 1, _ROW_BYTES // x.itemsize
    rows = np.stack([x[:-1], x[1:]]).reshape(-1, 1).repeat(length, 1)
    number = np.arange(2 * count)
    rows[number, number % length] = np.concatenate([x[1:], x[:-1]])
    return rows


class _Input:
    """An input in the memory of a device, and what operators make of it."""

    def __init__(self, device: Device, x: Array, desc: TensorDesc | None = None) -> None:
        desc = desc or TensorDesc(DataType.of(x.dtype), x.shape)
        # A buffer ends with a whole word.
        memory = np.resize(x.reshape(-1).view(np.uint8), desc.size_in_bytes)
        self.tensor = device.tensor_from_bytes(memory, desc)
        self.array = elements(desc, memory)

    @classmethod
    def of_pairs(cls, device: Device, x: Array) -> _Input:
        """Rows that overlap: each element and the next one."""
        return cls(device, x, TensorDesc(DataType.of(x.dtype), (x.size - 1, 2), strides=(1, 1)))

    def check(self, desc: OperatorDesc, kernel: str | None = None, winners: Any = None) -> None:
        """Compares what an operator gives with `winners`; None: with the oracle's."""
        device = self.tensor.device
        operator = device.compile(desc, kernel=kernel)
        got = operator(self.tensor).numpy()
        wanted = reference(desc, self.array)[0] if winners is None else np.broadcast_to(winners, got.shape)
        different = bits(got).reshape(-1) != bits(wanted).reshape(-1)
        if not different.any():
            return
        first = int(different.argmax())
        taken, right = (self._element(desc, y.reshape(-1)[first], first) for y in (got, wanted))
        raise VerificationError(
            f"{type(desc).__name__} on device {device.info.index}: {device.info.name}, driver {device.info.driver}:\n"
            f"it takes {taken}, and the reference {right}; "
            f"{np.count_nonzero(different):,} of {different.size:,} outputs differ, the first is number {first:,}\n"
            f"{operator.plan}"
        )

    def _element(self, desc: OperatorDesc, result: Any, number: int) -> str:
        """The element that an output names, as errors print it: its bits and its value."""
        place = ""
        if isinstance(desc, ArgOperatorDesc):
            if result >= self.array.shape[1]:
                return f"index {result}"
            result, place = self.array[number, result], f" at {result}"
        width = result.itemsize * 2
        return f"0x{int(bits(np.array(result))):0{width}X} ({result!s}){place}"
