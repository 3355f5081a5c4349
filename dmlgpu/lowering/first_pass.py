"""The first pass of an operator: which elements every output is chosen from."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from dmlgpu.descriptors.dtypes import AxisDirection
from dmlgpu.descriptors.operator import OperatorDesc
from dmlgpu.descriptors.reduction import ArgminOperatorDesc
from dmlgpu.descriptors.tensor import MAX_RANK, TensorDesc
from dmlgpu.lowering.geometry import Dim
from dmlgpu.lowering.limits import Limits
from dmlgpu.lowering.plan import Binding, Constants, Dispatch, Kernel, NumberKind, Role

# Ranges of outputs begin at multiples of this where they can: writing 8- or 16-bit elements in place needs a range
# to begin with a word.
GRANULE = 64


@dataclass(frozen=True)
class Piece:
    """A piece of the work on some outputs: of their elements, those in one segment of the input."""

    segment: int

    @property
    def records(self) -> int:
        """Records that it gives for each output."""
        return 1


@dataclass(frozen=True)
class FirstPass(ABC):
    """Which elements every output is chosen from."""

    desc: OperatorDesc
    limits: Limits

    values_output: ClassVar[int | None] = None
    """The output that holds the elements chosen; all others hold their indices."""

    @abstractmethod
    def pieces(self, begin: int, end: int) -> Sequence[Piece]:
        """All the work on outputs begin to end - 1."""

    @abstractmethod
    def furthest(self, begin: int) -> int:
        """The end of the outputs from `begin` that one dispatch can compute."""

    @abstractmethod
    def dispatch(self, begin: int, end: int, piece: Any, record: int | None) -> Dispatch:
        """The dispatch of a piece that writes its records from number `record` on; None: the outputs themselves."""

    @property
    @abstractmethod
    def most_outputs(self) -> int:
        """Outputs that a dispatch can compute in place."""

    @property
    def most_recorded(self) -> int:
        """Outputs that a dispatch can write records of."""
        return self.most_outputs

    @property
    def unit(self) -> int:
        """Ranges of outputs begin at multiples of this where they can."""
        return GRANULE

    @property
    def source(self) -> TensorDesc:
        return self.desc.inputs[0]

    @property
    def block(self) -> int:
        """Elements of a block of 16 bytes (blocks.glsl)."""
        return 128 // self.source.data_type.bits

    @property
    def record_words(self) -> int:
        """An index and the bits of an element (best.glsl)."""
        return 1 + max(1, self.source.data_type.bits // 32)

    def kernel(self, shader: str, outputs: Sequence[int], **flags: Any) -> Kernel:
        """A shader for the input's elements that writes these of the outputs."""
        data_type = self.source.data_type
        constants = Constants(
            group_size=self.limits.group_size,
            bundle=math.gcd(self.limits.bundle, self.limits.invocations),
            number_kind=NumberKind[data_type.name.rstrip("0123456789")],
            minimum=isinstance(self.desc, ArgminOperatorDesc),
            last=getattr(self.desc, "axis_direction", None) is AxisDirection.DECREASING,
            values=self.values_output in outputs,
            index_words=max(
                (self.desc.outputs[i].data_type.bits // 32 for i in outputs if i != self.values_output), default=0
            ),
            **flags,
        )
        return Kernel(f"{shader}_{data_type.bits}", constants)

    def first_kernel(self, shader: str, record: int | None, **flags: Any) -> Kernel:
        if record is None:
            return self.kernel(shader, range(len(self.desc.outputs)), **flags | {"segmented": False})
        return self.kernel(shader, (), records=True, **flags)

    def source_push(self, segment: int, shift: int = 0) -> dict[str, Any]:
        """The push constants that say which elements of the input are bound, and where; addresses lack `shift`."""
        size = self.limits.segment_elements(self.source)
        first = wrapped(segment * size - shift)
        return {"source_first": first, "source_count": size, "source_base": wrapped(-first)}

    def source_binding(self, segment: int) -> Binding:
        return Binding(Role.INPUT, 0, segment, "source_base", self.source.data_type.bits)

    def target_binding(self, begin: int, output: int, base: str, record: int | None) -> Binding:
        """An output that is written in place, or the records."""
        if record is not None:
            return Binding(Role.RECORDS, base=base)
        tensor = self.desc.outputs[output]
        segment = begin // self.limits.segment_elements(tensor)
        return Binding(Role.OUTPUT, output, segment, base, tensor.data_type.bits)

    def target_base(self, begin: int, end: int, output: int, record: int | None) -> int:
        """What to add to the number of an output for its place in the segment, or where the records begin."""
        if record is not None:
            return record * (end - begin) * self.record_words
        size = self.limits.segment_elements(self.desc.outputs[output])
        return wrapped(-(begin // size * size))


def wrapped(number: int) -> int:
    """A number as shaders hold it, modulo 2^32."""
    return number % (1 << 32)


def dimensions(dims: Sequence[Dim]) -> dict[str, Any]:
    """The push constants `size` and `stride`, filled up to the rank that shaders reserve."""
    filled = (*dims, *(Dim(1, 0),) * (MAX_RANK - len(dims)))
    return {"size": tuple(dim.size for dim in filled), "stride": tuple(dim.stride for dim in filled)}
