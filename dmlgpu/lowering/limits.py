"""The limits of plans on a device."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

from dmlgpu.descriptors.tensor import TensorDesc
from dmlgpu.lowering.geometry import power_of_2

# Loads that an invocation on a GPU issues before it waits for them.
IN_FLIGHT = 4
# Segments begin with a vector of 16 bytes (kernel.glsl), and with an item of four elements (scattered.glsl).
_SEGMENT_ALIGNMENT = 32
# Long plans on a CPU (`Limits.of_plan`): from _WIDER_FROM dispatches on, they have _WIDER times the workgroups, and
# dispatches up to _LONGER times as long, so that there are some `dispatch_count` / _LONGER_FROM.
_WIDER_FROM, _LONGER_FROM = 16, 8
_WIDER, _LONGER = 8, 64
# Workgroups of a dispatch that every device allows.
_MOST_GROUPS = (1 << 16) - 1


@dataclass(frozen=True)
class Limits:
    """The limits of a plan on a device."""

    # Limits of Vulkan, and numbers of invocations that we chose within them.

    segment_bytes: int
    """Bytes of the largest buffer, a multiple of 256."""
    group_size: int
    """Invocations of a workgroup."""
    group_count: int
    """Workgroups of a dispatch; the same for every shape, so that shapes share a pipeline. Long plans have more
    (`of_plan`)."""

    # Numbers that we chose for a class of devices.

    partial_bytes: int = 1 << 20
    """Maximum of bytes of partial results, which a first pass writes and a second one combines; or a sixteenth of the
    source's bytes if that is more; at most a segment. It is exceeded only if a single output needs more."""
    temporary_bytes: int = 16 << 20
    """Maximum of bytes of the temporaries between a kernel's dispatches; or a sixteenth of the source's bytes if that
    is more, and for separable passes also a sixteenth of the output's."""
    dispatch_elements: int = 1 << 24
    """Approximate maximum of elements per dispatch, so that a slow device of the class finishes within 200 ms."""
    dispatch_count: int = 2048
    """Maximum of dispatches per plan: planning takes about 50 us for each."""
    simd_width: int = 8
    """Number of consecutive invocations that work on neighbouring items (kernel.glsl). On a CPU driver they are those
    of a SIMD vector, so that a core continues to read where it stopped; on a GPU all invocations."""
    least_loads: int = 1024
    """Minimum of loads per invocation if several share an output and write partials for a second pass."""
    cooperating: bool = False
    """Whether neighbouring invocations should load neighbouring memory, as on a GPU. On a CPU driver they are a SIMD
    vector, but load one after the other, and a barrier costs more than a row."""

    # Weaknesses of drivers.

    invocation_loads: int = 1 << 14
    """Maximum of loads per invocation. The start of a loop counts as a load.

    llvmpipe (Mesa 22.3, not 25.0) silently ends every loop after 65,535 iterations, counted over all loops of the
    invocations of a SIMD vector. tests/host/test_loops.py reads its counter: iterations <= 3.5 x loads + 20. If a plan
    has more anyway, the shader reports it (ended_early in kernel.glsl).
    """
    unrolls: bool = True
    """Whether the driver unrolls loops over local arrays, so that they become registers."""
    loads_vectors: bool = True
    """Whether the driver loads a vector of 16 bytes faster than its words."""
    gathers: bool = False
    """Whether the driver compiles a load of a vector of 16 bytes to four gathers, which compile slowly."""

    def __post_init__(self) -> None:
        if self.segment_bytes % 256:
            raise ValueError(f"Limits.segment_bytes: {self.segment_bytes} is not allowed; allowed are multiples of 256")

    # Cached, because planning reads these hundreds of times.

    @cached_property
    def invocations(self) -> int:
        """Invocations of a dispatch."""
        return self.group_size * self.group_count

    @cached_property
    def item_stride(self) -> int:
        """Distance between an invocation's items: a divisor of the number of invocations, at least 2^-16 of it."""
        return max(math.gcd(self.simd_width, self.invocations), -(-self.invocations >> 16))

    def at_once(self, threads: int = 1) -> int:
        """Items that a dispatch computes at a time, with `threads` invocations per item."""
        return self.invocations // self.item_stride * self.item_stride if threads == 1 else self.invocations // threads

    def loads(self, items: int, item_loads: int, threads: int = 1) -> int:
        """Loads of an invocation in a dispatch of `items` items with `item_loads` loads; an item itself counts as one.

        `threads`: invocations that share an item.
        """
        return -(-items // self.at_once(threads)) * (1 + item_loads)

    def most_items(self, item_loads: int, threads: int = 1) -> int:
        """Maximum of items per dispatch, with `item_loads` loads per item; 0 if one item has too many."""
        return self.invocation_loads // (1 + item_loads) * self.at_once(threads)

    def dispatch_items(self, item_loads: int, elements: int, threads: int = 1) -> int:
        """Items per dispatch, at least one, with `item_loads` loads and `elements` elements per item."""
        return max(1, min(self.most_items(item_loads, threads), self.dispatch_elements // elements))

    @property
    def busy_invocations(self) -> int:
        """Number of invocations that keep the device busy. On a GPU each has IN_FLIGHT loads in flight."""
        return max(1, self.invocations // IN_FLIGHT) if self.cooperating else self.invocations

    @property
    def most_threads(self) -> int:
        """Maximum of invocations that share an item: a power of 2 that divides the workgroup."""
        return self.group_size & -self.group_size if self.cooperating else 1

    def of_plan(self, elements: int) -> Limits:
        """The limits of a plan whose dispatches load `elements` elements.

        On a CPU, which has no watchdog, a plan of _WIDER_FROM dispatches or more has _WIDER times the workgroups, so
        that loops stay short. A plan of a quarter of `dispatch_count` (2/_LONGER_FROM) or more also has longer
        dispatches, with 2 to _LONGER times as many elements.
        """
        dispatches = elements // self.dispatch_elements
        if self.cooperating or dispatches < _WIDER_FROM:
            return self
        longer = min(_LONGER, power_of_2(dispatches * _LONGER_FROM // self.dispatch_count))
        return replace(
            self,
            group_count=max(self.group_count, min(_WIDER * longer * self.group_count, _MOST_GROUPS)),
            dispatch_elements=longer * self.dispatch_elements,
            least_loads=longer * self.least_loads,
        )

    def full_segment(self, tensor: TensorDesc) -> int:
        """Bytes of a segment of memory that is allocated for a tensor; the last one may have fewer.

        A segment ends where a row, a plane or another inner dimension ends, if it then has 7/8 of `segment_bytes` or
        more.
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
    count, remainder = divmod(tensor.size_in_bytes, full)
    return (full,) * count + (((remainder + 3) // 4 * 4,) if remainder else ())
