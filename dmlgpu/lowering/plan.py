"""Plans: the dispatches of an operator, as frozen values that can be compared, hashed and printed.

A tensor is stored in segments of at most `Limits.segment_bytes`, because a shader can bind no more. Most tensors have
one segment. If there are several, their size depends on the tensor for which the memory was allocated; the tensor of
the plan may be a view of it. A dispatch reads one segment of the input. If the elements of an output are in several, a
dispatch per segment writes partials, and a second pass combines them (`combine.comp`). docs/architecture.md has a
picture.
"""

from __future__ import annotations

import enum
import textwrap
from collections import Counter
from collections.abc import ItemsView, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dmlgpu.descriptors.dtypes import DataType
from dmlgpu.descriptors.operator import ExecutionFlags, OperatorDesc
from dmlgpu.descriptors.tensor import TensorDesc
from dmlgpu.lowering.limits import Limits, segment_sizes
from dmlgpu.lowering.problem import Role


class NumberKind(enum.IntEnum):
    """How the bits of an element are read (kernel.glsl)."""

    UINT = 0
    INT = 1
    FLOAT = 2

    @classmethod
    def of(cls, data_type: DataType) -> NumberKind:
        """The kind of a type's elements."""
        return cls[data_type.name.rstrip("0123456789")]


class Values(Mapping[str, int | tuple[int, ...]]):
    """Constants, or push constants, by their names in the shader; frozen, and hashed by value."""

    __slots__ = ("_values",)

    def __init__(self, **values: int | tuple[int, ...]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def items(self) -> ItemsView[str, Any]:  # that of Mapping looks up each name
        return self._values.items()

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __repr__(self) -> str:
        return f"Values({', '.join(f'{name}={value}' for name, value in self._values.items())})"

    def __str__(self) -> str:
        """All values except 0."""
        return ", ".join(f"{name}={_text(name, value)}" for name, value in self._values.items() if value)


def _text(name: str, value: Any) -> Any:
    """A value as plans print it: bases, which shaders add modulo 2^32, are negative from 2^31 on."""
    if isinstance(value, enum.Enum):
        return value.name
    return value - (1 << 32) if name.endswith("_base") and value >= 1 << 31 else value


@dataclass(frozen=True)
class Shader:
    """A SPIR-V module and its specialization constants, from which a pipeline is compiled."""

    variant: str
    """Name of a kernel's variant."""
    accumulator: str
    bits: int
    """Bits of an element of the input."""
    constants: Values

    @property
    def module(self) -> str:
        """The name of the module, in CMakeLists.txt."""
        return f"{self.variant}_{self.accumulator}_{self.bits}"


@dataclass(frozen=True)
class Binding:
    """The memory at a binding of a shader: segment `segment` of tensor `tensor` of a role, or the partials."""

    role: Role
    tensor: int = 0
    segment: int = 0
    base: str = ""
    """Push constant to which the segment's offset in its buffer is added, modulo 2^32, as shaders add."""
    unit_bits: int = 32
    """Bits of the offset's unit: an element of the tensor, or a word of partials."""
    written: bool = False

    def __str__(self) -> str:
        return f"{self.role.name} {self.tensor} segment {self.segment} ({self.base})"


@dataclass(frozen=True)
class Dispatch:
    """One dispatch of a kernel. The writes of earlier dispatches are visible to it."""

    shader: Shader
    push: Values
    bindings: tuple[Binding, ...]
    loads: int
    """Maximum of loads per invocation, as `Limits.invocation_loads` counts them."""
    outputs: range
    """The problem's outputs that it writes, or writes partials or temporaries for."""

    @property
    def has_status(self) -> bool:
        """Whether the status buffer is bound, before `bindings` (kernel.glsl); Vulkan guarantees four buffers."""
        return len(self.bindings) < 4


@dataclass(frozen=True)
class Plan:
    """The dispatches of one call of an operator, in order, and their memory."""

    desc: OperatorDesc
    flags: ExecutionFlags
    limits: Limits
    dispatches: tuple[Dispatch, ...]
    elements: int
    """Approximate number of elements that all dispatches load."""
    memory: tuple[int, ...]
    """Bytes of a full segment of each input and output."""
    temporaries: tuple[TensorDesc, ...]
    """Tensors that dispatches write for later ones."""
    partial_bytes: int
    """Bytes of the partials between a first and a second pass."""
    kernel_choice: tuple[str, ...]
    """The chosen kernels with descriptions, then kernels that were passed over, with reasons."""

    @cached_property
    def workspace(self) -> tuple[tuple[int, ...], ...]:
        """The bytes of each segment of every temporary, and those of the partials, if there are any."""
        temporaries = [segment_sizes(tensor, self.limits.full_segment(tensor)) for tensor in self.temporaries]
        partials = [(self.partial_bytes,)] if self.partial_bytes else []
        return (*temporaries, *partials)

    @property
    def summary(self) -> str:
        """The plan in one line."""
        counts = Counter(dispatch.shader.module for dispatch in self.dispatches)
        modules = ", ".join(f"{count} x {module}" for module, count in counts.items())
        temporaries = sum(tensor.size_in_bytes for tensor in self.temporaries)
        memory = f", {self.partial_bytes} bytes of partials" if self.partial_bytes else ""
        memory += f", {temporaries} bytes of temporaries" if temporaries else ""
        return f"{self.desc.summary}: {modules}{memory}"

    def bytes_of(self, dispatch: Dispatch) -> int:
        """A dispatch's even share of the bytes that all dispatches read and write.

        The bytes of each segment, and of the partials, count once for reading and once for writing.
        """
        return round(sum(self.segments(b)[b.segment] / self._access_counts[_access(b)] for b in dispatch.bindings))

    @cached_property
    def _access_counts(self) -> Counter[_Access]:
        return Counter(_access(binding) for dispatch in self.dispatches for binding in dispatch.bindings)

    def segments(self, binding: Binding) -> tuple[int, ...]:
        """The bytes of each segment of the bound tensor, or of the partials."""
        inputs = len(self.desc.inputs)
        match binding.role:
            case Role.PARTIALS:
                return self.workspace[-1]
            case Role.TEMPORARY:
                return self.workspace[binding.tensor]
            case Role.INPUT:
                return segment_sizes(self.desc.inputs[binding.tensor], self.memory[binding.tensor])
            case Role.OUTPUT:
                return segment_sizes(self.desc.outputs[binding.tensor], self.memory[inputs + binding.tensor])

    def __str__(self) -> str:
        """The plan within 100 columns, without values of 0, and with only the first dispatches."""
        flags = [f"{self.flags}"] if self.flags else []
        paragraphs = [("", text) for text in (f"{self.desc}", *flags, f"{self.limits}", *self.kernel_choice)]
        for number, dispatch in enumerate(self.dispatches[:_SHOWN], 1):
            shader = dispatch.shader
            paragraphs.append((f"{number}. ", f"{shader.module}: {shader.constants}"))
            paragraphs.append(("   ", f"push constants: {dispatch.push}"))
            paragraphs.append(("   ", f"bindings: {', '.join(map(str, dispatch.bindings))}"))
        if len(self.dispatches) > _SHOWN:
            paragraphs.append(("", f"... and {len(self.dispatches) - _SHOWN} more dispatches"))
        return "\n".join(
            textwrap.fill(text, 100, initial_indent=indent, subsequent_indent=" " * len(indent) + "  ")
            for indent, text in paragraphs
        )


# The role, tensor and segment of a binding, and whether they are written.
_Access = tuple[Role, int, int, bool]


def _access(binding: Binding) -> _Access:
    return binding.role, binding.tensor, binding.segment, binding.written


# Dispatches in a printed plan; a plan for a tensor in many segments may have thousands.
_SHOWN = 8
