"""The interface of kernels to planning, and what they share.

A range of outputs is computed in pieces, because the elements of an output may lie in several segments of the input, or
be too many for one dispatch. If there is one piece, the kernel writes the outputs in place. Otherwise each piece writes
states, and combine.comp computes the outputs from them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

from dmlgpu.descriptors.tensor import MAX_RANK, TensorDesc
from dmlgpu.lowering.geometry import Dim, ascend, merged
from dmlgpu.lowering.limits import Limits
from dmlgpu.lowering.plan import Binding, Dispatch, NumberKind, Shader, Values
from dmlgpu.lowering.problem import OutputTensor, Problem, Result, Role

# Ranges of outputs begin at multiples of this where they can: writing 8- or 16-bit elements in place needs a range
# to begin with a word.
RANGE_ALIGNMENT = 64
# States, or intermediates, may take this part of the bytes of a large source, so that its ranges are few.
SCRATCH_SHARE = 16


@dataclass(frozen=True)
class Piece:
    """A part of the work on a range of outputs: some elements of each, in one segment of each source.

    `begin` and `end` number the elements of an output, the windows that cover it, or the parts of its window; each
    invocation takes `size` of them. A kernel that never takes but all of them leaves them as they are.
    """

    segments: tuple[int, ...]
    begin: int = 0
    end: int = 1
    size: int = 1
    whole: bool = False
    """Whether all of these elements lie in the segments, for every output (axes)."""

    @property
    def states(self) -> int:
        """States that it leaves for each output."""
        return -(-(self.end - self.begin) // self.size)


@dataclass(frozen=True)
class InPlace:
    """A dispatch writes the outputs themselves."""


@dataclass(frozen=True)
class States:
    """A dispatch writes states of its outputs."""

    first: int
    """How many states of each output come before these, from other pieces of the range."""


Target = InPlace | States


@dataclass(frozen=True)
class Kernel(ABC):
    """A way to compute a problem within limits: the shader is a .comp file; this says when it fits, and plans it."""

    problem: Problem
    limits: Limits

    name: ClassVar[str]
    variants: ClassVar[dict[str, str]]
    """The modules' names before their accumulator, and what each does. A single variant has the kernel's name."""

    @property
    def why_impossible(self) -> str:
        """Why it cannot compute the problem; empty where it can."""
        return ""

    @property
    def why_slow(self) -> str:
        """Why a kernel that comes after it in the list is faster on this device; empty where none is."""
        return ""

    @property
    def work(self) -> int:
        """Elements that it loads, about: its time is proportional to them."""
        return self.source.element_count + self.problem.output_count

    @property
    def loads(self) -> int:
        """Loads of all invocations together, as `Limits.invocation_loads` counts them, about."""
        return self.work * self.problem.accumulator.loads() + self.problem.output_count

    @property
    def source(self) -> TensorDesc:
        return self.problem.source

    def source_binding(self, segment: int) -> Binding:
        source = self.problem.sources[0]
        return Binding(source.role, source.number, segment, "source_base", source.tensor.data_type.bits)


@dataclass(frozen=True)
class PlanningKernel(Kernel):
    """A kernel that plans all of its dispatches itself."""

    @abstractmethod
    def dispatches(self) -> Iterable[Dispatch]:
        """All dispatches, in order."""

    @property
    def intermediates(self) -> tuple[TensorDesc, ...]:
        """What its dispatches hand on; they are numbered after the operator's other intermediates."""
        return ()


@dataclass(frozen=True)
class RangedKernel(Kernel):
    """A kernel whose outputs are computed in ranges, each in pieces: in place, or with states."""

    @abstractmethod
    def pieces(self, begin: int, end: int) -> Sequence[Piece]:
        """The pieces of outputs begin to end - 1."""

    @abstractmethod
    def states_at_once(self, outputs: int) -> int:
        """States of each of so many outputs that one dispatch can leave, if that is more than one."""

    def cut(self, outputs: int, piece: Piece) -> Iterator[Piece]:
        """A piece for this number of outputs, cut so that each dispatch is short."""
        most = max(self.states_at_once(outputs), 1) * piece.size
        for begin in range(piece.begin, piece.end, most):
            yield replace(piece, begin=begin, end=min(begin + most, piece.end))

    @abstractmethod
    def furthest(self, begin: int) -> int:
        """The last end of a range from `begin` on that one dispatch can compute."""

    @property
    @abstractmethod
    def most_with_states(self) -> int:
        """Outputs of a dispatch that writes states, at most."""

    @property
    def most_in_place(self) -> int:
        """Outputs of a dispatch that writes in place, at most."""
        return self.most_with_states

    @property
    @abstractmethod
    def range_alignment(self) -> int:
        """Ranges of outputs begin at multiples of this where they can."""

    @property
    @abstractmethod
    def ascending(self) -> bool:
        """Whether outputs lie one behind the other in the input, so that ranges of them change segments seldom."""

    @property
    def writes_outputs(self) -> bool:
        """Whether it can write outputs in place, if one piece has all of their elements."""
        return all(output.tensor.is_packed for output in self.problem.outputs)

    def covers(self, begin: int, end: int, piece: Piece, target: Target) -> bool:
        """Whether it can compute a piece of outputs begin to end - 1. The last kernel of the list covers all."""
        return True

    @abstractmethod
    def dispatch(self, begin: int, end: int, piece: Piece, target: Target) -> Dispatch:
        """The dispatch of a piece that it covers."""

    @property
    def block(self) -> int:
        """Elements of a block of 16 bytes (blocks.glsl)."""
        return 128 // self.source.data_type.bits

    @property
    def state_words(self) -> int:
        """Words of a stored state."""
        return self.problem.accumulator.state_words(self.source.data_type)

    @property
    def most_states(self) -> int:
        """States of a range, at most, unless one output alone has more."""
        limits = self.limits
        most = max(limits.state_bytes, self.source.size_in_bytes // SCRATCH_SHARE)
        return min(most, limits.segment_bytes) // (4 * self.state_words)

    def constants(self, target: Target, *, segmented: bool = False, **own: int) -> dict[str, int]:
        """The specialization constants of a shader that can write states; in place it leaves no elements out."""
        in_place = isinstance(target, InPlace)
        return constants_of(
            self.problem,
            self.limits,
            self.problem.outputs if in_place else (),
            segmented=segmented and not in_place,
            to_states=not in_place,
            **own,
        )

    def source_push(self, segment: int, shift: int = 0) -> dict[str, Any]:
        """The push constants for the bound segment of the input; shaders compute addresses less `shift`."""
        return segment_push("source", self.limits.segment_elements(self.source), segment, shift)

    def target_binding(self, begin: int, output: int, base: str, target: Target) -> Binding:
        """The binding of an output tensor, or of the states."""
        if isinstance(target, States):
            return Binding(Role.STATES, base=base, written=True)
        written = self.problem.outputs[output]
        segment = begin // self.limits.segment_elements(written.tensor)
        return Binding(written.role, written.number, segment, base, written.tensor.data_type.bits, written=True)

    def target_base(self, begin: int, end: int, output: int, target: Target) -> int:
        """Where states begin; in place what to add to the number of an output for its place in the segment."""
        if isinstance(target, States):
            return target.first * (end - begin) * self.state_words
        size = self.limits.segment_elements(self.problem.outputs[output].tensor)
        return wrapped(-(begin // size * size))


@dataclass(frozen=True)
class PlanesKernel(RangedKernel):
    """A kernel over (batch, channel) planes: source and outputs have the same number of them."""

    @property
    @abstractmethod
    def plane_outputs(self) -> int:
        """Outputs of a plane."""

    @cached_property
    def planes(self) -> Dim:
        """As `planes_of` the source."""
        return planes_of(self.source)

    @property
    def range_alignment(self) -> int:
        return RANGE_ALIGNMENT

    @cached_property
    def ascending(self) -> bool:
        return ascend(merged(map(Dim, self.source.sizes, self.source.element_strides)))

    def fits(self, loads: int, words: int = 1) -> bool:
        """Whether a dispatch can have RANGE_ALIGNMENT outputs, in items of so many loads and words of outputs each."""
        return self.limits.most_items(loads) * words * 32 // self.source.data_type.bits >= RANGE_ALIGNMENT

    def furthest(self, begin: int) -> int:
        together = self.planes.size * self.plane_outputs
        most = self.most_in_place if self.writes_outputs else self.most_with_states
        return min(begin + most, (begin // together + 1) * together)

    def plane_shift(self, begin: int) -> int:
        """Shaders address planes with one stride: how much less that gives than the address, from output `begin` on."""
        plane = begin // self.plane_outputs // self.planes.size * self.planes.size
        batch = plane // self.source.sizes[1] * self.source.element_strides[0]
        return batch - plane * self.planes.stride

    def source_place(self, begin: int, segment: int, target: Target) -> dict[str, Any]:
        """The push constants for the bound segment of the source; in place only its base."""
        push = self.source_push(segment, self.plane_shift(begin))
        return push if isinstance(target, States) else {"source_base": push["source_base"]}


def planes_of(source: TensorDesc) -> Dim:
    """The (batch, channel) planes with one stride: all planes, or those of a batch entry."""
    dims = [Dim(*pair) for pair in zip(source.sizes[:2], source.element_strides[:2], strict=True)]
    together = merged(dims)
    return Dim(dims[0].size * dims[1].size, together[0].stride if together else 0) if len(together) < 2 else dims[1]


def constants_of(problem: Problem, limits: Limits, outputs: Sequence[OutputTensor], **own: int) -> dict[str, int]:
    """The specialization constants of a shader that writes these outputs: constants.glsl's, and its own."""
    index_bits = [output.tensor.data_type.bits for output in outputs if output.result is Result.INDEX]
    return {
        "group_size": limits.group_size,
        "number_kind": NumberKind[problem.source.data_type.name.rstrip("0123456789")],
        "bundle": limits.bundle_size,
        "index_words": max(index_bits, default=0) // 32,
        "values": any(output.result is Result.VALUE for output in outputs),
        "aligned": False,
        **own,
    }


def shader_of(variant: str, problem: Problem, constants: Mapping[str, int], *, built_in: bool = False) -> Shader:
    """The shader of a variant for a problem's accumulator and the width of its elements.

    `built_in`: the accumulator has no constants. Kernels over windows have the first maximum built in (selection.glsl).
    """
    accumulator = problem.accumulator
    own = {} if built_in else asdict(accumulator)
    return Shader(variant, accumulator.name, problem.source.data_type.bits, Values(**constants, **own))


def segment_push(name: str, size: int, segment: int, shift: int = 0) -> dict[str, Any]:
    """The push constants for the bound segment of a tensor; shaders compute addresses less `shift`."""
    first = wrapped(segment * size - shift)
    return {f"{name}_first": first, f"{name}_count": size, f"{name}_base": wrapped(-first)}


def wrapped(number: int) -> int:
    """A number modulo 2^32, as shaders add."""
    return number % (1 << 32)


def dimensions(dims: Sequence[Dim]) -> dict[str, Any]:
    """The push constants `size` and `stride`, padded to the rank that shaders reserve."""
    filled = (*dims, *(Dim(1, 0),) * (MAX_RANK - len(dims)))
    return {"size": tuple(dim.size for dim in filled), "stride": tuple(dim.stride for dim in filled)}
