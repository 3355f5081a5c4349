"""Plans: what a device has to do for an operator, as frozen values that can be compared, hashed and printed.

A tensor lies in memory as segments, the buffers of at most `Limits.segment_bytes` that a shader can see at once;
most tensors are one segment. A dispatch reads one segment of the input. Where the elements of an output lie in
several, each segment gives records, and a second pass combines them (`combine.comp`).
"""

from __future__ import annotations

import enum
from dataclasses import astuple, dataclass

from dmlgpu.operators import OperatorDesc
from dmlgpu.tensor import TensorDesc


@dataclass(frozen=True)
class Limits:
    """What a plan has to keep to on a device."""

    segment_bytes: int
    """Bytes of the largest buffer, a multiple of 256."""
    group_size: int
    """Invocations of a workgroup."""
    group_count: int
    """Workgroups of a dispatch; the same for every shape, so that shapes share a pipeline."""
    records_bytes: int = 1 << 20
    """Bytes of the records between two passes, at most; more only where the records of one output are."""
    loop_iterations: int = 60_000
    """Iterations of an invocation, all its loops together. Mesa's llvmpipe ends every loop of an invocation, without
    a word, once it has counted 65,535 (seen with Mesa 22.3)."""
    dispatch_elements: int = 1 << 24
    """Elements that a dispatch looks at, about: so many that it is over in 200 ms on a slow device of its kind."""
    unrolls: bool = True
    """Whether the driver unrolls loops over local arrays, so that they become registers."""
    bundle: int = 8
    """Invocations that work on neighbouring items at a time, while other bundles are at other ranges of them. On a CPU
    driver the lanes of a vector, so that a core reads on where it has read; on a GPU all invocations."""
    cooperating: bool = False
    """Whether neighbouring invocations do best to read neighbouring memory, as on a GPU. On a CPU driver they are the
    lanes of a vector, each reading for itself, and a barrier costs more than a row."""

    @property
    def invocations(self) -> int:
        """Invocations of a dispatch."""
        return self.group_size * self.group_count

    def segment_elements(self, tensor: TensorDesc) -> int:
        """Elements of a full segment of a tensor."""
        return self.segment_bytes * 8 // tensor.data_type.bits

    def segments(self, tensor: TensorDesc) -> tuple[int, ...]:
        """The bytes of every segment of a tensor: all full but the last, each a multiple of 4."""
        full, rest = divmod(tensor.size_in_bytes, self.segment_bytes)
        return (self.segment_bytes,) * full + (((rest + 3) // 4 * 4,) if rest else ())


class NumberKind(enum.IntEnum):
    """How the bits of an element are read (constants.glsl)."""

    UINT = 0
    INT = 1
    FLOAT = 2


@dataclass(frozen=True)
class Constants:
    """The specialization constants, in the order of their numbers; constants.glsl explains them."""

    group_size: int
    number_kind: NumberKind
    minimum: bool = False
    last: bool = False
    segmented: bool = False
    records: bool = False
    index_words: int = 0
    values: bool = False
    aligned: bool = False
    short: bool = False
    window_depth: int = 1
    window_height: int = 1
    window_width: int = 1
    stride_width: int = 1
    dilation_width: int = 1
    rows: int = 1
    row_step: int = 1
    phase: int = 0
    whole_runs: bool = False
    lanes: int = 1
    bundle: int = 1
    flat: bool = False


@dataclass(frozen=True)
class Kernel:
    """A SPIR-V module and its specialization constants: what a pipeline is compiled from."""

    module: str
    constants: Constants


@dataclass(frozen=True)
class Push:
    """Push constants: the fields of a shader's Push block, in its order."""

    def words(self) -> list[int]:
        """The block as 32-bit words."""
        return [word for value in astuple(self) for word in (value if isinstance(value, tuple) else (value,))]


class Role(enum.Enum):
    """What a buffer is to an operator."""

    INPUT = enum.auto()
    OUTPUT = enum.auto()
    RECORDS = enum.auto()


@dataclass(frozen=True)
class Binding:
    """What stands at a binding of a shader: segment `segment` of input or output `tensor`, or the records."""

    role: Role
    tensor: int = 0
    segment: int = 0
    base: str = ""
    """The push constant to which the place of the segment in its buffer is added, ..."""
    unit_bits: int = 32
    """... in units of so many bits. A base may wrap around: shaders add modulo 2^32."""


@dataclass(frozen=True)
class Dispatch:
    """One dispatch of a kernel; it must be finished before the next one starts."""

    kernel: Kernel
    push: Push
    bindings: tuple[Binding, ...]


@dataclass(frozen=True)
class Plan:
    """All that a device does for one call of an operator, in order."""

    desc: OperatorDesc
    limits: Limits
    dispatches: tuple[Dispatch, ...]
    records_bytes: int
    """What the records between a first and a second pass take."""
    mapping: tuple[str, ...]
    """Which kernels it takes, and why."""

    def __str__(self) -> str:
        lines = [f"{self.desc}", f"{self.limits}", *self.mapping]
        lines += [f"  {dispatch}" for dispatch in self.dispatches]
        return "\n".join(lines)
