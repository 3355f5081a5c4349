"""An allocator of slices of buffers; the buffers may be of any kind."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Generic, TypeVar

Handle = TypeVar("Handle")

ALIGNMENT = 256  # bytes; every element size and every device's nonCoherentAtomSize divides it


@dataclass(eq=False)
class Buffer(Generic[Handle]):
    """A buffer and its free ranges."""

    handle: Handle
    size: int
    free: list[tuple[int, int]] = field(default_factory=list)
    """(offset, size) of every free range, sorted by offset; ranges that touch are merged."""
    used: int = 0
    """When a slice of it was last handed out: how many slices the allocator had handed out by then."""

    @property
    def is_empty(self) -> bool:
        """Whether no slice of it is in use."""
        return self.free == [(0, self.size)]


@dataclass(frozen=True, eq=False)
class Slice(Generic[Handle]):
    """A part of a buffer; offset and size in bytes."""

    buffer: Buffer[Handle]
    offset: int
    size: int


def _aligned(size: int) -> int:
    """What a slice of so many bytes takes of its buffer."""
    return -(-size // ALIGNMENT) * ALIGNMENT


class Allocator(Generic[Handle]):
    """Hands out slices of buffers.

    A new buffer has room for more than its first slice if `step` and `growth` say so.

    Args:
        create: makes a buffer of a size in bytes, or raises MemoryError.
        destroy: frees a buffer.
        shared: whether slices share buffers. If not, each slice has a buffer of its own.
        step: the bytes of a new buffer are rounded up to a multiple of this.
        growth: a new buffer is at least this many times as large as the largest buffer so far.
        most: `step` and `growth` make no buffer larger than this, in bytes. If memory is too short for them, the new
            buffer is only as large as its first slice.
        keep: how many bytes of empty buffers are kept for later slices.
    """

    def __init__(
        self,
        create: Callable[[int], Handle],
        destroy: Callable[[Handle], None],
        *,
        shared: bool,
        step: int,
        growth: int = 0,
        most: int,
        keep: int,
    ) -> None:
        self._create, self._destroy = create, destroy
        self._shared, self._step, self._growth, self._most = shared, step, growth, most
        self.keep = keep
        # Sorted by size: a slice takes the smallest buffer with room, so small slices seldom keep large buffers in use.
        self._buffers: list[Buffer[Handle]] = []
        self._released: deque[Slice[Handle]] = deque()
        self._allocated = 0

    @property
    def empty_bytes(self) -> int:
        """Bytes of the empty buffers."""
        self.collect()
        return sum(buffer.size for buffer in self._buffers if buffer.is_empty)

    @property
    def buffer_bytes(self) -> int:
        """Bytes of all buffers."""
        return sum(buffer.size for buffer in self._buffers)

    @property
    def used_bytes(self) -> int:
        """Bytes of the buffers that slices in use take."""
        self.collect()
        return sum(buffer.size - sum(size for _, size in buffer.free) for buffer in self._buffers)

    def allocate(self, size: int) -> Slice[Handle]:
        """A slice of `size` bytes; its content is arbitrary.

        Raises:
            MemoryError: `create` raised it, even after all empty buffers were destroyed.
        """
        if self._released:
            self.collect()
        self._allocated += 1
        needed = _aligned(size)
        for buffer in self._buffers:
            for i, (_, room) in enumerate(buffer.free):
                if needed <= room and (self._shared or room <= max(2 * needed, self._step)):
                    return self._take(buffer, i, size)
        buffer = self._new_buffer(needed)
        insort(self._buffers, buffer, key=attrgetter("size"))
        return self._take(buffer, 0, size)

    def _take(self, buffer: Buffer[Handle], i: int, size: int) -> Slice[Handle]:
        """The first `size` bytes of a free range; the rest of it stays free if slices share buffers."""
        offset, room = buffer.free[i]
        part, needed = Slice(buffer, offset, size), _aligned(size)
        buffer.used = self._allocated
        # Last, so that no exception, such as a KeyboardInterrupt, loses the range.
        buffer.free[i : i + 1] = [(offset + needed, room - needed)] if self._shared and room > needed else []
        return part

    def _new_buffer(self, size: int) -> Buffer[Handle]:
        largest = self._buffers[-1].size if self._buffers else 0
        roomy = min(max(-(-size // self._step) * self._step, self._growth * largest), self._most)
        try:
            # Whole slices of this size where they share buffers, so that these can fill a heap.
            return self._buffer(max(1, roomy // size) * size if self._shared else max(size, roomy))
        except MemoryError:
            self.trim(0)
        return self._buffer(size)

    def _buffer(self, size: int) -> Buffer[Handle]:
        return Buffer(self._create(size), size, [(0, size)])

    def release(self, part: Slice[Handle]) -> None:
        """Gives a slice back. May be called from a finalizer at any time: the slice is only queued."""
        self._released.append(part)

    def collect(self) -> None:
        """Takes queued slices back, and destroys empty buffers beyond what is kept."""
        while self._released:
            # The slice leaves the queue last: if Ctrl-C comes before that, it is taken back again, which is harmless.
            part = self._released[0]
            free = part.buffer.free
            insort(free, (part.offset, _aligned(part.size) if self._shared else part.buffer.size))
            merged = [free[0]]
            for offset, size in free[1:]:
                last_offset, last_size = merged[-1]
                if offset <= last_offset + last_size:
                    merged[-1] = (last_offset, max(last_size, offset + size - last_offset))
                else:
                    merged.append((offset, size))
            part.buffer.free = merged
            self._released.popleft()
        self.trim(self.keep)

    def trim(self, keep: int) -> None:
        """Destroys empty buffers, the least recently used first, until at most `keep` bytes of them are left."""
        empty = [buffer for buffer in self._buffers if buffer.is_empty]
        excess = sum(map(attrgetter("size"), empty)) - keep
        for buffer in sorted(empty, key=attrgetter("used")):
            if excess <= 0:
                break
            excess -= buffer.size
            self._buffers.remove(buffer)
            self._destroy(buffer.handle)
