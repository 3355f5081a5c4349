"""What a plan has to keep to on a device."""

from __future__ import annotations

from dataclasses import dataclass

from dmlgpu.descriptors.tensor import TensorDesc

# Loads that an invocation waits for together, on a GPU.
LOADS = 4


@dataclass(frozen=True)
class Limits:
    """What a plan has to keep to on a device."""

    # What Vulkan says, and how many invocations we chose within that.

    segment_bytes: int
    """Bytes of the largest buffer, a multiple of 256."""
    group_size: int
    """Invocations of a workgroup."""
    group_count: int
    """Workgroups of a dispatch; the same for every shape, so that shapes share a pipeline."""

    # What we chose for a class of devices.

    records_bytes: int = 1 << 20
    """Bytes of the records between two passes, at most; more only where the records of one output are."""
    partials_bytes: int = 16 << 20
    """Bytes of the partials between sweeps along dimensions, at most."""
    dispatch_elements: int = 1 << 24
    """Elements that a dispatch looks at, about: so many that it is over in 200 ms on a slow device of its kind."""
    bundle: int = 8
    """Invocations that work on neighbouring items at a time, while other bundles are at other ranges of them. On a CPU
    driver the lanes of a vector, so that a core reads on where it has read; on a GPU all invocations."""
    least_loads: int = 1024
    """Loads of an invocation, at least, where invocations share an output and leave records of it to a second pass."""
    cooperating: bool = False
    """Whether neighbouring invocations do best to read neighbouring memory, as on a GPU. On a CPU driver they are the
    lanes of a vector, each reading for itself, and a barrier costs more than a row."""

    # What a driver does badly.

    loop_iterations: int = 60_000
    """Iterations of an invocation, all its loops together. Mesa's llvmpipe ends every loop of an invocation, without
    a word, once it has counted 65,535 (seen with Mesa 22.3)."""
    unrolls: bool = True
    """Whether the driver unrolls loops over local arrays, so that they become registers."""

    @property
    def invocations(self) -> int:
        """Invocations of a dispatch."""
        return self.group_size * self.group_count

    @property
    def busy_invocations(self) -> int:
        """Invocations that keep the device busy. On a GPU each waits for LOADS loads at a time."""
        return max(1, self.invocations // LOADS) if self.cooperating else self.invocations

    @property
    def most_lanes(self) -> int:
        """Invocations of a workgroup that can share an item: a power of 2 that divides the workgroup."""
        return self.group_size & -self.group_size if self.cooperating else 1

    def segment_elements(self, tensor: TensorDesc) -> int:
        """Elements of a full segment of a tensor."""
        return self.segment_bytes * 8 // tensor.data_type.bits

    def segments(self, tensor: TensorDesc) -> tuple[int, ...]:
        """The bytes of every segment of a tensor: all full but the last, each a multiple of 4."""
        full, rest = divmod(tensor.size_in_bytes, self.segment_bytes)
        return (self.segment_bytes,) * full + (((rest + 3) // 4 * 4,) if rest else ())
