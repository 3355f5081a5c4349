"""Accumulators: what becomes of the elements of an output. Each has a file of its name in shaders/accumulators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from dmlgpu.descriptors.dtypes import DataType


class Accumulator(Protocol):
    """What planning asks of an accumulator."""

    name: ClassVar[str]

    @property
    def constants(self) -> dict[str, Any]:
        """Its specialization constants."""

    def state_words(self, data_type: DataType) -> int:
        """Words of a record: of the state of some elements of this type."""


@dataclass(frozen=True)
class Selection:
    """One of the elements: the greatest or least, and of equal ones the first or last (selection.glsl)."""

    minimum: bool = False
    last: bool = False

    name: ClassVar = "selection"

    @property
    def constants(self) -> dict[str, Any]:
        """Its specialization constants."""
        return {"minimum": self.minimum, "last": self.last}

    def state_words(self, data_type: DataType) -> int:
        """Words of a record: an index and the bits of an element."""
        return 1 + max(1, data_type.bits // 32)
