"""What a plan has to keep to on a device."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

from dmlgpu.descriptors.tensor import TensorDesc
from dmlgpu.lowering.geometry import power_of_2

# Loads that an invocation on a GPU issues before it waits for them.
IN_FLIGHT = 4
# Segments begin with a vector of 16 bytes (source.glsl), and with an item of four elements (scattered.glsl).
_SEGMENT_ALIGNMENT = 32
# Long plans of a CPU (`Limits.of_plan`): up to _LONGER times as long; every device allows _GROUPS workgroups.
_WIDER_FROM, _LONGER_FROM = 16, 8
_WIDER, _LONGER, _GROUPS = 8, 64, (1 << 16) - 1


@dataclass(frozen=True)
class Limits:
    """What a plan has to keep to on a device."""

    # What Vulkan says, and how many invocations we chose within that.

    segment_bytes: int
    """Bytes of the largest buffer, a multiple of 256."""
    group_size: int
    """Invocations of a workgroup."""
    group_count: int
    """Workgroups of a dispatch; the same for every shape, so that shapes share a pipeline. Long plans have more
    (`of_plan`)."""

    # What we chose for a class of devices.

    partial_bytes: int = 1 << 20
    """Bytes of the partials of a first pass, at most, or a sixteenth of the source's where that is more; more only
    where the partials of one output are. No more than a segment."""
    intermediate_bytes: int = 16 << 20
    """Bytes of the intermediates that a kernel's own dispatches hand on, at most, or a sixteenth of the source's; of
    separable passes also of the outputs'."""
    dispatch_elements: int = 1 << 24
    """Elements that a dispatch loads, about: a slow device of its kind is done within 200 ms."""
    dispatch_count: int = 2048
    """Dispatches of a plan, at most: planning takes some 50 us for each."""
    simd_width: int = 8
    """Invocations that work on neighbouring items, while others work elsewhere: on a CPU driver those of a SIMD vector,
    so that a core goes on reading where it has read; on a GPU all (kernel.glsl)."""
    least_loads: int = 1024
    """Loads of an invocation, at least, where several share an output and leave partials for a second pass."""
    cooperating: bool = False
    """Whether neighbouring invocations should read neighbouring memory, as on a GPU. On a CPU driver they are a SIMD
    vector, but read one after the other, and a barrier costs more than a row."""

    # What a driver does badly.

    invocation_loads: int = 1 << 14
    """Loads of an invocation, at most. Wherever a loop begins, that counts as a load, too.

    llvmpipe (Mesa 22.3; no longer with 25.0) ends every loop without a word once it has counted 65,535 iterations of
    all loops of the invocations of a SIMD vector. tests/host/test_loops.py reads its counter: iterations <= 3.5 x
    loads + 20. Where a plan has more all the same, the shader tells (ended_early in kernel.glsl).
    """
    unrolls: bool = True
    """Whether the driver unrolls loops over local arrays, so that they become registers."""
    loads_vectors: bool = True
    """Whether the driver loads a vector of 16 bytes faster than its words."""

    def __post_init__(self) -> None:
        if self.segment_bytes % 256:
            raise ValueError(f"Limits.segment_bytes: {self.segment_bytes} is not allowed; allowed are multiples of 256")

    # Kept, as planning asks for these hundreds of times.

    @cached_property
    def invocations(self) -> int:
        """Invocations of a dispatch."""
        return self.group_size * self.group_count

    @cached_property
    def item_stride(self) -> int:
        """How far apart an invocation's items are: a divisor of all invocations, at least 2^-16 of them."""
        return max(math.gcd(self.simd_width, self.invocations), -(-self.invocations >> 16))

    def at_once(self, threads: int = 1) -> int:
        """Items in work at a time, with this number of invocations for each."""
        return self.invocations // self.item_stride * self.item_stride if threads == 1 else self.invocations // threads

    def loads(self, items: int, each: int, threads: int = 1) -> int:
        """Loads of an invocation whose dispatch has so many items of so many loads each; an item itself counts as one.

        `threads`: invocations that share an item.
        """
        return -(-items // self.at_once(threads)) * (1 + each)

    def most_items(self, each: int, threads: int = 1) -> int:
        """Items of a dispatch, at most, each with so many loads; 0 where one item has too many."""
        return self.invocation_loads // (1 + each) * self.at_once(threads)

    @property
    def busy_invocations(self) -> int:
        """Invocations that keep the device busy. On a GPU each has IN_FLIGHT loads under way."""
        return max(1, self.invocations // IN_FLIGHT) if self.cooperating else self.invocations

    @property
    def most_threads(self) -> int:
        """Invocations of a workgroup that can share an item: a power of 2 that divides the workgroup."""
        return self.group_size & -self.group_size if self.cooperating else 1

    def of_plan(self, elements: int) -> Limits:
        """The limits of a plan whose dispatches load so many elements.

        On a CPU, which no watchdog resets, a plan of _WIDER_FROM dispatches or more gets _WIDER times the workgroups,
        so that loops stay short. One of 2/_LONGER_FROM or more of the dispatches that it may have gets longer ones.
        """
        dispatches = elements // self.dispatch_elements
        if self.cooperating or dispatches < _WIDER_FROM:
            return self
        longer = min(_LONGER, power_of_2(dispatches * _LONGER_FROM // self.dispatch_count))
        return replace(
            self,
            group_count=max(self.group_count, min(_WIDER * longer * self.group_count, _GROUPS)),
            dispatch_elements=longer * self.dispatch_elements,
            least_loads=longer * self.least_loads,
        )

    def full_segment(self, tensor: TensorDesc) -> int:
        """Bytes of a segment of memory made for a tensor; the last one may have fewer.

        They end with whole inner dimensions of the tensor where that is at least 7/8 of `segment_bytes`.
        """
        if tensor.size_in_bytes <= self.segment_bytes:
            return self.segment_bytes
        strides = (stride * tensor.data_type.bits // 8 for stride in tensor.element_strides if stride)
        wholes = (math.lcm(stride, _SEGMENT_ALIGNMENT) for stride in strides)
        fitting = (whole for whole in wholes if self.segment_bytes // whole * whole * 8 >= self.segment_bytes * 7)
        whole = max(fitting, default=_SEGMENT_ALIGNMENT)
        return self.segment_bytes // whole * whole


def segment_sizes(tensor: TensorDesc, full: int) -> tuple[int, ...]:
    """The bytes of every segment of a tensor: all full but the last, each a multiple of 4."""
    count, rest = divmod(tensor.size_in_bytes, full)
    return (full,) * count + (((rest + 3) // 4 * 4,) if rest else ())
