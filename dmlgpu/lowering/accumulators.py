"""Accumulators: how the elements of an output combine. All except `Last` are files in shaders/accumulators."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from dmlgpu.descriptors.dtypes import DataType
from dmlgpu.descriptors.reduction import EXACT_SQUARES_WORDS, EXACT_WORDS, ReduceFunction


@dataclass(frozen=True)
class Accumulator(ABC):
    """The properties that planning needs. The fields are specialization constants, at most two."""

    name: ClassVar[str]
    has_index: ClassVar[bool] = False
    """Whether a result is an element, with an index. Kernels over axes bind both."""

    @property
    def needs_count(self) -> bool:
        """Whether a result depends on the number of elements."""
        return False

    def loads(self, elements: int = 1) -> int:
        """Loads that one load of `elements` elements counts as: more if accumulating an element is a loop."""
        return 1

    @property
    def exact(self) -> Accumulator | None:
        """The accumulator with the same result that rounds sums of floats once; None if there is none."""
        return self

    @abstractmethod
    def state_words(self, data_type: DataType) -> int:
        """Words of a state in memory."""

    def partial_words(self, data_type: DataType) -> int:
        """Words of a partial result in memory: a state, and for averages the count."""
        return self.state_words(data_type) + self.needs_count

    def state_registers(self, data_type: DataType) -> int:
        """Registers of a state while elements are accumulated."""
        return self.state_words(data_type)


def _words_of(data_type: DataType) -> int:
    """Words of an element's bits in a stored state."""
    return max(1, data_type.bits // 32)


@dataclass(frozen=True)
class Selection(Accumulator):
    """The greatest or least element, the first or last of equal ones (selection.glsl)."""

    minimum: bool = False
    last: bool = False

    name: ClassVar = "selection"
    has_index: ClassVar = True

    def state_words(self, data_type: DataType) -> int:
        """The index and the bits of an element."""
        return 1 + _words_of(data_type)

    def state_registers(self, data_type: DataType) -> int:
        """The stored words, and the radix key."""
        return 1 + 2 * _words_of(data_type)


class SumResult(enum.IntEnum):
    """The result that is computed from a sum (sum.glsl)."""

    SUM = 0
    AVERAGE = 1
    ROOT = 2
    LOGARITHM = 3
    WORD = 4
    """A word of the stored state (only exact.glsl)."""


@dataclass(frozen=True)
class Sum(Accumulator):
    """A sum of floats (sum.glsl)."""

    power: int = 0
    """Power of the elements' absolute values; 0: the elements unchanged."""
    result: SumResult = SumResult.SUM

    name: ClassVar = "sum"

    @property
    def needs_count(self) -> bool:
        return self.result is SumResult.AVERAGE

    def loads(self, elements: int = 1) -> int:
        """More with a power above 2: each element then needs a loop over the power's bits."""
        return 1 + elements * self.power.bit_length() if self.power > 2 else 1

    @property
    def exact(self) -> Accumulator | None:
        """For sums of elements, of absolute values and of squares, averages, and roots of sums of squares."""
        if self.power == 2 and self.result in (SumResult.SUM, SumResult.ROOT):
            return ExactSquares(self.power, self.result)
        if self.power < 2 and self.result in (SumResult.SUM, SumResult.AVERAGE):
            return ExactSum(self.power, self.result)
        return None

    def state_words(self, data_type: DataType) -> int:
        """The sum as two floats, and which infinities and NaN occurred."""
        return 4


@dataclass(frozen=True)
class ExactSum(Accumulator):
    """A sum of floats that is rounded once (exact.glsl)."""

    power: int = 0
    """Power of the elements' absolute values; 0: the elements unchanged."""
    result: SumResult = SumResult.SUM

    name: ClassVar = "exact"

    @property
    def needs_count(self) -> bool:
        return self.result is SumResult.AVERAGE

    def state_words(self, data_type: DataType) -> int:
        """The sum as an integer, and which infinities and NaN occurred."""
        return 4 if data_type.bits == 16 else EXACT_WORDS


@dataclass(frozen=True)
class ExactSquares(ExactSum):
    """A sum of the squares of floats that is rounded once, or its root (squares.glsl)."""

    name: ClassVar = "squares"

    def state_words(self, data_type: DataType) -> int:
        """The sum as an integer, and which infinities and NaN occurred."""
        return 5 if data_type.bits == 16 else EXACT_SQUARES_WORDS


@dataclass(frozen=True)
class Product(Accumulator):
    """A product of floats (product.glsl)."""

    name: ClassVar = "product"

    @property
    def exact(self) -> Accumulator | None:
        """None: it is not a sum."""
        return None

    def state_words(self, data_type: DataType) -> int:
        """Mantissa, exponent, sign, the greatest and the least magnitude."""
        return 5


@dataclass(frozen=True)
class CumulativeSum(Accumulator):
    """The sum of the first floats of a line (cumulative.glsl)."""

    name: ClassVar = "cumulative"

    @property
    def exact(self) -> Accumulator | None:
        """That of other sums."""
        return ExactSum()

    def state_words(self, data_type: DataType) -> int:
        """The sum as two floats, their scale, and which infinities and NaN occurred."""
        return 5


@dataclass(frozen=True)
class LogSumExp(Accumulator):
    """The logarithm of the sum of the elements' exponentials (logsumexp.glsl)."""

    name: ClassVar = "logsumexp"

    @property
    def exact(self) -> Accumulator | None:
        """None: exponentials are rounded."""
        return None

    def state_words(self, data_type: DataType) -> int:
        """The shift, the sum as two floats, infinities and NaN, and the least pattern of an element."""
        return 6


@dataclass(frozen=True)
class Integer(Accumulator):
    """A sum or a product of integers modulo 2^bits, or modulo 2^32 if they have fewer bits (integer.glsl)."""

    power: int = 0
    """Power of the elements' absolute values, 1 or 2; 0: the elements unchanged."""
    multiplies: bool = False

    name: ClassVar = "integer"

    def state_words(self, data_type: DataType) -> int:
        """The sum or the product."""
        return _words_of(data_type)


@dataclass(frozen=True)
class Last(Accumulator):
    """The last element, or 0 if there is none (scattered.glsl)."""

    name: ClassVar = "last"

    def state_words(self, data_type: DataType) -> int:
        """0: elements are never combined in two passes."""
        return 0


# Accumulators of floats, and of integers.
_OF_FLOATS: dict[ReduceFunction, Accumulator] = {
    ReduceFunction.AVERAGE: Sum(result=SumResult.AVERAGE),
    ReduceFunction.L1: Sum(power=1),
    ReduceFunction.L2: Sum(power=2, result=SumResult.ROOT),
    ReduceFunction.LOG_SUM: Sum(result=SumResult.LOGARITHM),
    ReduceFunction.LOG_SUM_EXP: LogSumExp(),
    ReduceFunction.MAX: Selection(),
    ReduceFunction.MIN: Selection(minimum=True),
    ReduceFunction.MULTIPLY: Product(),
    ReduceFunction.SUM: Sum(),
    ReduceFunction.SUM_SQUARE: Sum(power=2),
}
_OF_INTEGERS: dict[ReduceFunction, Accumulator] = {
    ReduceFunction.L1: Integer(power=1),
    ReduceFunction.MAX: Selection(),
    ReduceFunction.MIN: Selection(minimum=True),
    ReduceFunction.MULTIPLY: Integer(multiplies=True),
    ReduceFunction.SUM: Integer(),
    ReduceFunction.SUM_SQUARE: Integer(power=2),
}


def accumulator_of(function: ReduceFunction, data_type: DataType) -> Accumulator:
    """The accumulator of a function of REDUCE for elements of a type."""
    return (_OF_FLOATS if data_type.is_float else _OF_INTEGERS)[function]
