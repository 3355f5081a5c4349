"""The interface of kernels to planning, and the constants and push constants that shaders share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeVar

from dmlgpu.descriptors.tensor import MAX_RANK, TensorDesc
from dmlgpu.lowering.geometry import Dim
from dmlgpu.lowering.limits import Limits
from dmlgpu.lowering.plan import Binding, Dispatch, NumberKind, Shader, Values
from dmlgpu.lowering.problem import OutputTensor, Problem, Result

T = TypeVar("T")

# Partials, or temporaries, may use 1/16 of the bytes of a large source, so that plans stay short.
WORKSPACE_SHARE = 16
# Bytes that every device can bind (maxStorageBufferRange), also if segments are smaller.
BINDABLE = 1 << 27


@dataclass(frozen=True)
class Kernel(ABC):
    """A way to compute a problem within limits: a .comp file, and this class, which plans its dispatches."""

    problem: Problem
    limits: Limits
    first_temporary: int = 0
    """Number of the kernel's first temporary; those of the operator's problems come before."""

    name: ClassVar[str]
    variants: ClassVar[dict[str, str]]
    """Names of modules, without accumulator and bits, with descriptions. A single variant has the kernel's name."""

    @property
    def why_impossible(self) -> str:
        """Why it cannot compute the problem; empty if it can."""
        return ""

    @property
    def why_slow(self) -> str:
        """Why a later kernel in the list is faster on this device; empty if none is."""
        return ""

    @property
    @abstractmethod
    def elements(self) -> int:
        """Approximate number of elements that all invocations load, proportional to the kernel's time."""

    @abstractmethod
    def dispatches(self) -> Iterator[tuple[Dispatch, int]]:
        """All dispatches, in order, each with the bytes of the partials of its outputs."""

    @property
    def temporaries(self) -> tuple[TensorDesc, ...]:
        """Tensors that its dispatches write for later ones."""
        return ()

    @cached_property
    def source(self) -> TensorDesc:
        return self.problem.source

    @cached_property
    def vector_size(self) -> int:
        """Elements of a vector of 16 bytes (kernel.glsl)."""
        return 128 // self.source.data_type.bits

    @cached_property
    def per_word(self) -> int:
        """Elements of a word; an element of 64 bits is two words."""
        return max(1, 32 // self.source.data_type.bits)

    def source_binding(self, segment: int) -> Binding:
        source = self.problem.sources[0]
        return Binding(source.role, source.number, segment, "source_base", source.tensor.data_type.bits)

    def output_binding(self, begin: int, number: int, base: str) -> Binding:
        """The binding of the segment of output tensor `number` that contains output `begin`."""
        output = self.problem.outputs[number]
        segment = begin // output.segment_size
        return Binding(output.role, output.number, segment, base, output.tensor.data_type.bits, written=True)

    def output_offset(self, begin: int, number: int) -> int:
        """The offset of output `begin` in its segment of output tensor `number`, in elements."""
        return begin % self.problem.outputs[number].segment_size


def constants_of(problem: Problem, limits: Limits, outputs: Sequence[OutputTensor], **constants: int) -> dict[str, int]:
    """The specialization constants of a shader that writes these outputs: those of kernel.glsl, and `constants`."""
    index_bits = [output.tensor.data_type.bits for output in outputs if output.result is Result.INDEX]
    return {
        "group_size": limits.group_size,
        "number_kind": NumberKind.of(problem.source.data_type),
        "item_stride": limits.item_stride,
        "index_words": max(index_bits, default=0) // 32,
        "values": any(output.result is not Result.INDEX for output in outputs),
        "aligned": False,
        **constants,
    }


def shader_of(variant: str, problem: Problem, constants: Mapping[str, int], *, built_in: bool = False) -> Shader:
    """The shader of a variant for a problem's accumulator and the width of its elements.

    `built_in`: the accumulator has no constants. Kernels over windows have the first maximum built in (selection.glsl).
    """
    accumulator = problem.accumulator
    values = Values(**constants, **({} if built_in else asdict(accumulator)))
    return Shader(variant, accumulator.name, problem.source.data_type.bits, values)


def by_base(problem: Problem, outputs: Sequence[T]) -> dict[str, T]:
    """The outputs of kernels over axes and combine.comp, by the base of their binding.

    `target_base` is for partials, or indices, or values. Selections also have `values_base`, for values; if they write
    partials, or one output tensor, both bases are that of this memory, and the shader writes it once.
    """
    last = {"target_base": outputs[-1]}
    return last | {"values_base": outputs[0]} if problem.accumulator.has_index else last


def segment_push(name: str, size: int, segment: int, shift: int = 0) -> dict[str, Any]:
    """The push constants for the bound segment of a tensor; `shift` is added to the addresses that shaders compute."""
    first = wrapped(segment * size - shift)
    return {f"{name}_first": first, f"{name}_count": size, f"{name}_base": wrapped(-first)}


def wrapped(number: int) -> int:
    """A number modulo 2^32, as shaders add."""
    return number % (1 << 32)


def dimensions(dims: Sequence[Dim]) -> dict[str, Any]:
    """The push constants `size` and `stride`, padded to the rank that shaders reserve."""
    padded = (*dims, *(Dim(1, 0),) * (MAX_RANK - len(dims)))
    return {"size": tuple([dim.size for dim in padded]), "stride": tuple([dim.stride for dim in padded])}
