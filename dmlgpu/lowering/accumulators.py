"""Accumulators: how the elements of an output are combined. All but `Last` are files in shaders/accumulators."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from dmlgpu.descriptors.dtypes import DataType
from dmlgpu.descriptors.reduction import EXACT_SQUARES_WORDS, EXACT_WORDS, ReduceFunction


@dataclass(frozen=True)
class Accumulator(ABC):
    """What planning asks of an accumulator. Its fields are its specialization constants, two at most."""

    name: ClassVar[str]
    has_index: ClassVar[bool] = False
    """Whether a result is an element, which has an index. Kernels over axes have a binding for each."""

    @property
    def needs_count(self) -> bool:
        """Whether a result depends on the number of elements."""
        return False

    def loads(self, elements: int = 1) -> int:
        """Loads that one load of so many elements counts as: more where accumulating an element is a loop."""
        return 1

    @property
    def exact(self) -> Accumulator | None:
        """What gives the same result, but rounds sums of floats once; None where that is not supported."""
        return self

    @abstractmethod
    def state_words(self, data_type: DataType) -> int:
        """Words of a state in memory."""

    def partial_words(self, data_type: DataType) -> int:
        """Words of a partial result, as a first pass leaves it: that of an average has its count, too."""
        return self.state_words(data_type) + self.needs_count

    def state_registers(self, data_type: DataType) -> int:
        """Registers of a state while elements are accumulated."""
        return self.state_words(data_type)


def _words_of(data_type: DataType) -> int:
    """Words of the bits of an element in a stored state."""
    return max(1, data_type.bits // 32)


@dataclass(frozen=True)
class Selection(Accumulator):
    """One of the elements: the greatest or least, and of equal ones the first or last (selection.glsl)."""

    minimum: bool = False
    last: bool = False

    name: ClassVar = "selection"
    has_index: ClassVar = True

    def state_words(self, data_type: DataType) -> int:
        """As stored: an index and the bits of an element."""
        return 1 + _words_of(data_type)

    def state_registers(self, data_type: DataType) -> int:
        """The stored words, and the radix key."""
        return 1 + 2 * _words_of(data_type)


class SumResult(enum.IntEnum):
    """What is made of a sum (sum.glsl)."""

    SUM = 0
    AVERAGE = 1
    ROOT = 2
    LOGARITHM = 3
    WORD = 4
    """A word of the stored state (exact.glsl alone)."""


@dataclass(frozen=True)
class Sum(Accumulator):
    """A sum of floats (sum.glsl)."""

    power: int = 0
    """Of the elements' absolute values; 0: the elements as they are."""
    result: SumResult = SumResult.SUM

    name: ClassVar = "sum"

    @property
    def needs_count(self) -> bool:
        """Whether a result depends on the number of elements."""
        return self.result is SumResult.AVERAGE

    def loads(self, elements: int = 1) -> int:
        """More with a power above 2: each element then has a loop over its bits."""
        return 1 + elements * self.power.bit_length() if self.power > 2 else 1

    @property
    def exact(self) -> Accumulator | None:
        """For sums of elements, of absolute values and of squares, for averages, and for the roots of squares."""
        if self.power == 2 and self.result in (SumResult.SUM, SumResult.ROOT):
            return ExactSquares(self.power, self.result)
        if self.power < 2 and self.result in (SumResult.SUM, SumResult.AVERAGE):
            return ExactSum(self.power, self.result)
        return None

    def state_words(self, data_type: DataType) -> int:
        """As stored: the sum as two floats, and which infinities and NaN there are."""
        return 4


@dataclass(frozen=True)
class ExactSum(Accumulator):
    """A sum of floats that is rounded once (exact.glsl)."""

    power: int = 0
    """Of the elements' absolute values; 0: the elements as they are."""
    result: SumResult = SumResult.SUM

    name: ClassVar = "exact"

    @property
    def needs_count(self) -> bool:
        """Whether a result depends on the number of elements."""
        return self.result is SumResult.AVERAGE

    def state_words(self, data_type: DataType) -> int:
        """As stored: the sum as an integer, and which infinities and NaN there are."""
        return 4 if data_type.bits == 16 else EXACT_WORDS


@dataclass(frozen=True)
class ExactSquares(ExactSum):
    """A sum of the squares of floats that is rounded once, or its root (squares.glsl)."""

    name: ClassVar = "squares"

    def state_words(self, data_type: DataType) -> int:
        """As stored: the sum as an integer, and which infinities and NaN there are."""
        return 5 if data_type.bits == 16 else EXACT_SQUARES_WORDS


@dataclass(frozen=True)
class Product(Accumulator):
    """A product of floats (product.glsl)."""

    name: ClassVar = "product"

    @property
    def exact(self) -> Accumulator | None:
        """It is no sum."""
        return None

    def state_words(self, data_type: DataType) -> int:
        """As stored: mantissa, exponent, sign, the greatest and the least magnitude."""
        return 5


@dataclass(frozen=True)
class CumulativeSum(Accumulator):
    """The sum of the first floats of a line (cumulative.glsl)."""

    name: ClassVar = "cumulative"

    @property
    def exact(self) -> Accumulator | None:
        """Not yet supported."""
        return None

    def state_words(self, data_type: DataType) -> int:
        """As stored: the sum as two floats, their scale, and which infinities and NaN there are."""
        return 5


@dataclass(frozen=True)
class LogSumExp(Accumulator):
    """The logarithm of the sum of the elements' exponentials (logsumexp.glsl)."""

    name: ClassVar = "logsumexp"

    @property
    def exact(self) -> Accumulator | None:
        """Exponentials are rounded."""
        return None

    def state_words(self, data_type: DataType) -> int:
        """As stored: the shift, the sum as two floats, infinities and NaN, the least pattern."""
        return 6


@dataclass(frozen=True)
class Integer(Accumulator):
    """A sum or a product of integers, modulo 2^bits, or 2^32 of those with fewer bits (integer.glsl)."""

    power: int = 0
    """Of the elements' absolute values, 1 or 2; 0: the elements as they are."""
    multiplies: bool = False

    name: ClassVar = "integer"

    def state_words(self, data_type: DataType) -> int:
        """As stored: the sum or the product."""
        return _words_of(data_type)


@dataclass(frozen=True)
class Last(Accumulator):
    """The last of some elements, or 0 where there is none (scattered.glsl)."""

    name: ClassVar = "last"

    def state_words(self, data_type: DataType) -> int:
        """Elements are never combined in two passes."""
        return 0


# Of elements that are floats, and of integers.
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
    """What computes a function of REDUCE on elements of a type."""
    return (_OF_FLOATS if data_type.is_float else _OF_INTEGERS)[function]
