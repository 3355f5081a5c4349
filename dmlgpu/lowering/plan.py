"""Plans: the dispatches of an operator, as frozen values that can be compared, hashed and printed.

A tensor lies in memory as segments of at most `Limits.segment_bytes`, as a shader can see no more at once. Most tensors
are one segment. How long the others' segments are depends on the tensor that the memory was made for, of which this one
may be a view. A dispatch reads one segment of the input. Where the elements of an output lie in several, each segment
gives partials, and a second pass combines them (`combine.comp`). docs/architecture.md has a picture.
"""

from __future__ import annotations

import enum
import textwrap
from collections import Counter
from collections.abc import ItemsView, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dmlgpu.descriptors.operator import ExecutionFlags, OperatorDesc
from dmlgpu.descriptors.tensor import TensorDesc
from dmlgpu.lowering.limits import Limits, segment_sizes
from dmlgpu.lowering.problem import Role


class NumberKind(enum.IntEnum):
    """How the bits of an element are read (kernel.glsl)."""

    UINT = 0
    INT = 1
    FLOAT = 2


class Values(Mapping[str, int | tuple[int, ...]]):
    """Constants, or push constants, by the names that the shader gives them; frozen, and hashed by what they are."""

    __slots__ = ("_values",)

    def __init__(self, **values: int | tuple[int, ...]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def items(self) -> ItemsView[str, Any]:  # Mapping's looks each name up
        return self._values.items()

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __repr__(self) -> str:
        return f"Values({', '.join(f'{name}={value}' for name, value in self._values.items())})"

    def __str__(self) -> str:
        """All but what is 0."""
        named = {
            name: value.name if isinstance(value, enum.Enum) else value for name, value in self._values.items() if value
        }
        return ", ".join(f"{name}={value}" for name, value in named.items())


@dataclass(frozen=True)
class Shader:
    """A SPIR-V module and its specialization constants: what a pipeline is compiled from."""

    variant: str
    """Of a kernel."""
    accumulator: str
    bits: int
    """Of an element of the input."""
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
    """The push constant to which the offset of the segment in its buffer is added, modulo 2^32, as shaders add."""
    unit_bits: int = 32
    """The bits of what the offset counts: elements of the tensor, or words of partials."""
    written: bool = False

    def __str__(self) -> str:
        return f"{self.role.name} {self.tensor} segment {self.segment} ({self.base})"


@dataclass(frozen=True)
class Dispatch:
    """One dispatch of a kernel. It sees what those before it wrote."""

    shader: Shader
    push: Values
    bindings: tuple[Binding, ...]
    loads: int
    """Of an invocation, at most, as `Limits.invocation_loads` counts them."""
    outputs: range
    """Of its problem: those that it writes, or writes partials or intermediates for."""

    @property
    def has_status(self) -> bool:
        """Whether the status buffer is bound, before `bindings` (kernel.glsl); Vulkan promises four in all."""
        return len(self.bindings) < 4


@dataclass(frozen=True)
class Plan:
    """All that a device does for one call of an operator, in order."""

    desc: OperatorDesc
    flags: ExecutionFlags
    limits: Limits
    dispatches: tuple[Dispatch, ...]
    elements: int
    """Elements that all dispatches load, about."""
    memory: tuple[int, ...]
    """Bytes of a full segment of each input and output."""
    intermediates: tuple[TensorDesc, ...]
    """What dispatches hand on to later ones."""
    partial_bytes: int
    """Of the partials between a first and a second pass."""
    mapping: tuple[str, ...]
    """The kernels that run and what each does; then those that were passed over, and why."""

    @cached_property
    def scratch(self) -> tuple[tuple[int, ...], ...]:
        """The bytes of each segment of every intermediate, and those of the partials, if there are any."""
        partials = [(self.partial_bytes,)] if self.partial_bytes else []
        between = [segment_sizes(tensor, self.limits.full_segment(tensor)) for tensor in self.intermediates]
        return (*between, *partials)

    @property
    def summary(self) -> str:
        """What runs, in a line."""
        kernels = Counter(dispatch.shader.module for dispatch in self.dispatches)
        runs = ", ".join(f"{count} x {module}" for module, count in kernels.items())
        partials = f", {self.partial_bytes} bytes of partials" if self.partial_bytes else ""
        between = sum(tensor.size_in_bytes for tensor in self.intermediates)
        partials += f", {between} bytes in between" if between else ""
        return f"{self.desc.summary}: {runs}{partials}"

    def bytes_of(self, dispatch: Dispatch) -> int:
        """A dispatch's even share of the bytes that all dispatches read and write.

        Of each segment, and of the partials, the bytes count once for reading and once for writing.
        """
        return round(sum(self._segment_bytes(b) / self._binding_counts[_seen(b)] for b in dispatch.bindings))

    @cached_property
    def _binding_counts(self) -> Counter[Seen]:
        return Counter(_seen(binding) for dispatch in self.dispatches for binding in dispatch.bindings)

    def _segment_bytes(self, binding: Binding) -> int:
        return self.segments(binding)[binding.segment]

    def segments(self, binding: Binding) -> tuple[int, ...]:
        """The bytes of each segment of what is bound."""
        inputs = len(self.desc.inputs)
        match binding.role:
            case Role.PARTIALS:
                return self.scratch[-1]
            case Role.INTERMEDIATE:
                return self.scratch[binding.tensor]
            case Role.INPUT:
                return segment_sizes(self.desc.inputs[binding.tensor], self.memory[binding.tensor])
            case Role.OUTPUT:
                return segment_sizes(self.desc.outputs[binding.tensor], self.memory[inputs + binding.tensor])

    def __str__(self) -> str:
        """The whole plan within 100 columns, what is 0 and all but a few dispatches left out."""
        flags = [("", f"{self.flags}")] if self.flags else []
        paragraphs = [("", f"{self.desc}"), *flags, ("", f"{self.limits}"), *(("", text) for text in self.mapping)]
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


# What a binding sees, and whether it writes it.
Seen = tuple[Role, int, int, bool]


def _seen(binding: Binding) -> Seen:
    return binding.role, binding.tensor, binding.segment, binding.written


# Dispatches that a printed plan shows: one for a tensor in many segments may have thousands.
_SHOWN = 8
