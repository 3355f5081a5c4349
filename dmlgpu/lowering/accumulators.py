"""Accumulators: what becomes of the elements of an output. Each has a file of its name in shaders/accumulators."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from dmlgpu.descriptors.dtypes import DataType, ReduceFunction


@dataclass(frozen=True)
class Accumulator(ABC):
    """What planning asks of an accumulator. Its fields are its specialization constants, two at most."""

    name: ClassVar[str]

    @abstractmethod
    def state_words(self, data_type: DataType) -> int:
        """Words of a record: of the state of some elements of this type."""


@dataclass(frozen=True)
class Selection(Accumulator):
    """One of the elements: the greatest or least, and of equal ones the first or last (selection.glsl)."""

    minimum: bool = False
    last: bool = False

    name: ClassVar = "selection"

    def state_words(self, data_type: DataType) -> int:
        """Words of a record: an index and the bits of an element."""
        return 1 + max(1, data_type.bits // 32)


# Of elements that are floats, and of integers.
_OF_FLOATS: dict[ReduceFunction, Accumulator] = {
    ReduceFunction.MAX: Selection(),
    ReduceFunction.MIN: Selection(minimum=True),
}
_OF_INTEGERS: dict[ReduceFunction, Accumulator] = {
    ReduceFunction.MAX: Selection(),
    ReduceFunction.MIN: Selection(minimum=True),
}


def accumulator_of(function: ReduceFunction, data_type: DataType) -> Accumulator:
    """What computes a function of REDUCE on elements of a type."""
    return (_OF_FLOATS if data_type.is_float else _OF_INTEGERS)[function]
