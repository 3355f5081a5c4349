"""Checks on a device how the operators order all bit patterns of a type.

A kernel compares the keys of elements, which are unsigned numbers. The element with the highest key wins; of elements
with equal keys the first or the last wins. This check assumes that, and that a key depends only on the bits of its
element. The order of unsigned numbers is total and transitive. So only the key of an element can be wrong.

The check has all patterns p[0], p[1], ... of a type in ascending order. The operators choose between p[i] and p[i + 1],
for every i. ARGMAX chooses the first of equal elements: if it chooses p[i + 1], the key of p[i + 1] is higher. ARGMIN
with DECREASING chooses the last of equal elements: if it chooses p[i], the key of p[i] is higher. Some neighbours are
equal: -0 and +0, and two NaNs. If operators choose the first of them, but the second with DECREASING, their keys are
equal. From neighbour to neighbour this proves the order of the keys of any two patterns: 2^32 pairs of neighbours prove
all 2^63 pairs.

The patterns form a circle: -inf follows the last NaN. NaN also wins as a minimum, so in the order for minima it is a
neighbour of -inf. For integers the circle adds a pair that needs no check.

rows.comp assumes more: it computes the highest key of many elements without the key of each (extremes.glsl). There,
neighbours prove nothing about other pairs. So it gets rows of two neighbours, in which all elements but one are equal:
with all neighbours of types of 8 and 16 bits, and with those near `_borders` of types of 32 bits. All other patterns of
32 bits are in ascending rows: each is in a row, and must not win unless it is the last, or for ARGMIN the first.

REDUCE with MAX and MIN, MAX_POOLING, and reduce.comp, which accumulates one element after the other, choose only
between the neighbours of these rows. That suffices, because they compare the same keys as ARGMAX and ARGMIN. For
reduce.comp `tests/host/test_order_proofs.py` proves the order of any two patterns; it proves the compiled module, not a
driver's compilation of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from dmlgpu.descriptors.dtypes import DataType
from dmlgpu.descriptors.operator import OperatorDesc
from dmlgpu.descriptors.pooling import MaxPoolingOperatorDesc
from dmlgpu.descriptors.reduction import (
    ArgmaxOperatorDesc,
    ArgminOperatorDesc,
    ArgOperatorDesc,
    AxisDirection,
    ReduceFunction,
    ReduceOperatorDesc,
)
from dmlgpu.descriptors.tensor import Array, TensorDesc, bits, elements
from dmlgpu.errors import VerificationError
from dmlgpu.reference import reference
from dmlgpu.runtime.device import Device

TYPES = tuple(data_type for data_type in DataType if 8 <= data_type.bits <= 32)
"""The types with few enough patterns."""

# Pairs of a section, few enough for the caches of a CPU.
_SECTION = 1 << 20
# Pairs of a section around a border.
_BORDER = 1 << 12
# Bytes of a row: one vector more than rows.comp loads with SHORT.
_ROW_BYTES = 17 * 16

_ALL = tuple(product((ArgmaxOperatorDesc, ArgminOperatorDesc), AxisDirection))
# If two ascending elements have equal keys, these choose the wrong one.
_STRICT = ((ArgmaxOperatorDesc, AxisDirection.INCREASING), (ArgminOperatorDesc, AxisDirection.DECREASING))


def ascending(data_type: DataType, begin: int, count: int) -> Array:
    """Elements number `begin` to `begin + count - 1` of a type, in ascending order.

    Number 0 is the least element. Floats begin with -inf; -0 precedes +0; NaNs follow +inf, those with a sign bit last.
    The first element follows the last.
    """
    # As wide as the type, so that numbers after the last one wrap around.
    number = (np.arange(count, dtype=np.uint32) + np.uint32(begin)).astype(f"u{data_type.bits // 8}")
    sign, infinity = _sign_and_infinity(data_type)
    if data_type.is_float:
        # -inf to -0, then +0 to the last NaN without a sign bit, then the NaNs with one.
        patterns = number - number.dtype.type(infinity + 1)
        np.copyto(patterns, number.dtype.type(sign + infinity) - number, where=number <= infinity)
        np.copyto(patterns, number, where=number > infinity + sign)
    else:
        patterns = number ^ number.dtype.type(sign)
    ordered: Array = patterns.view(data_type.numpy)
    return ordered


def _sign_and_infinity(data_type: DataType) -> tuple[int, int]:
    """The sign bit, 0 for unsigned types, and the pattern of infinity, 0 for integers."""
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
    """Whether to check several kernels, and every pair in separate rows."""

    def check(self, device: Device) -> None:
        """Lets the operators choose between the elements of each pair.

        Raises:
            VerificationError: an output is wrong; the message has the operator, the device, the plan, and the element
                that was chosen in place of the expected one.
        """
        x = ascending(self.data_type, self.begin, self.count + 1)
        if self.thorough:
            self._check_thoroughly(device, x)
        else:
            self._check_once(device, x)

    def _check_once(self, device: Device, x: Array) -> None:
        # If the elements ascend for NumPy, too, the winners are known without the oracle.
        ascends = bool((x[1:] > x[:-1]).all())
        pairs, rows = _Input.of_pairs(device, x), _Input(device, _rows(x))
        for source, kernel in (pairs, None), (rows, "rows"):
            last = source.array.shape[1] - 1
            for arg, direction in _STRICT if ascends else _ALL:
                winners = np.uint32(last if arg is ArgmaxOperatorDesc else 0) if ascends else None
                source.check(arg.of(source.tensor, (1,), direction), kernel, winners)

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
    """Sections with all pairs of a type. For 32 bits the pairs near borders come first, and again later."""
    patterns = 1 << data_type.bits
    if patterns <= _SECTION:
        return (Section(data_type, 0, patterns, True),)
    borders = (Section(data_type, (at - _BORDER // 2) % patterns, _BORDER, True) for at in _borders(data_type))
    return (*borders, *(Section(data_type, begin, _SECTION, False) for begin in range(0, patterns, _SECTION)))


def _borders(data_type: DataType) -> list[int]:
    """Numbers of elements at borders between kinds of values: signs, denormals, 1, infinities, NaN."""
    sign, infinity = _sign_and_infinity(data_type)
    if not data_type.is_float:
        return [0, 1 << (data_type.bits - 1)]
    values = np.array([0, np.finfo(data_type.numpy).tiny, 1, np.inf], data_type.numpy)
    magnitudes = [int(pattern) for pattern in bits(values)]
    return [n for m in magnitudes for n in (infinity - m, infinity + 1 + m)] + [infinity + 1 + sign]


def _rows(x: Array) -> Array:
    """Consecutive elements in rows. The last row ends with the last element, and repeats some of the row before it."""
    length = _ROW_BYTES // x.itemsize
    return np.concatenate([x[: x.size // length * length].reshape(-1, length), x[np.newaxis, -length:]])


def _decided_by_one(x: Array) -> Array:
    """Two rows for each pair of neighbours: one neighbour is a single element of the row, the other fills the rest."""
    count, length = x.size - 1, _ROW_BYTES // x.itemsize
    rows = np.stack([x[:-1], x[1:]]).reshape(-1, 1).repeat(length, 1)
    number = np.arange(2 * count)
    rows[number, number % length] = np.concatenate([x[1:], x[:-1]])
    return rows


class _Input:
    """An input on a device, and the checks of operators on it."""

    def __init__(self, device: Device, x: Array, desc: TensorDesc | None = None) -> None:
        desc = desc or TensorDesc(DataType.of(x.dtype), x.shape)
        # With bytes up to the next word, because a buffer has whole words.
        memory = np.resize(x.reshape(-1).view(np.uint8), desc.size_in_bytes)
        self.tensor = device.tensor_from_bytes(memory, desc)
        self.array = elements(desc, memory)

    @classmethod
    def of_pairs(cls, device: Device, x: Array) -> _Input:
        """Overlapping rows: each element and the next one."""
        return cls(device, x, TensorDesc(DataType.of(x.dtype), (x.size - 1, 2), strides=(1, 1)))

    def check(self, desc: OperatorDesc, kernel: str | None = None, winners: Any = None) -> None:
        """Compares an operator's output with `winners`; None: with the oracle's output."""
        device = self.tensor.device
        operator = device.compile(desc, kernel=kernel)
        actual = operator(self.tensor).numpy()
        desired = reference(desc, self.array)[0] if winners is None else np.broadcast_to(winners, actual.shape)
        different = bits(actual).reshape(-1) != bits(desired).reshape(-1)
        if not different.any():
            return
        first = int(different.argmax())
        chosen, expected = (self._element(desc, y.reshape(-1)[first], first) for y in (actual, desired))
        raise VerificationError(
            f"{type(desc).__name__} on device {device.info.index}: {device.info.name}, driver {device.info.driver}:\n"
            f"it chose {chosen}, the reference {expected}; "
            f"{np.count_nonzero(different):,} of {different.size:,} outputs differ, the first is number {first:,}\n"
            f"{operator.plan}"
        )

    def _element(self, desc: OperatorDesc, result: Any, number: int) -> str:
        """The element that an output contains, or whose index it contains, for errors: its bits and its value."""
        position = ""
        if isinstance(desc, ArgOperatorDesc):
            if result >= self.array.shape[1]:
                return f"index {result}"
            result, position = self.array[number, result], f" at {result}"
        width = result.itemsize * 2
        return f"0x{int(bits(np.array(result))):0{width}X} ({result!s}){position}"
