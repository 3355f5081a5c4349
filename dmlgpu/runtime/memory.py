"""An allocator of slices of buffers; the handle of a buffer may be any object."""

from __future__ import annotations

import weakref
from bisect import insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Generic, TypeVar

Handle = TypeVar("Handle")

ALIGNMENT = 256  # bytes; every element size and every device's nonCoherentAtomSize divides it


@dataclass(eq=False)
class Buffer(Generic[Handle]):
    """A buffer and its free ranges."""

    handle: Handle
    size: int
    free: list[tuple[int, int]]
    """(offset, size) of every free range, sorted by offset; adjacent ranges are merged."""
    last_used: int = 0
    """Number of slices that were allocated, from all buffers, when this buffer was last used."""

    @property
    def is_empty(self) -> bool:
        """Whether no slice of the buffer is in use."""
        return self.free == [(0, self.size)]


@dataclass(frozen=True, eq=False)
class Slice(Generic[Handle]):
    """A part of a buffer; offset and size in bytes. The allocator reclaims it after the last reference is dropped."""

    buffer: Buffer[Handle]
    offset: int
    size: int


class Allocator(Generic[Handle]):
    """Allocates slices of buffers.

    A new buffer has room for more than its first slice if `step` and `growth` demand it.

    Args:
        create: creates a buffer of a size in bytes, or raises MemoryError.
        destroy: frees a buffer.
        shared: whether slices share buffers. If not, each slice has a separate buffer.
        step: the bytes of a new buffer are rounded up to a multiple of `step`.
        growth: a new buffer is at least `growth` times as large as the largest buffer so far.
        most: maximum size in bytes to which `step` and `growth` enlarge a buffer. If there is no memory for that, the
            new buffer is only as large as its first slice.
        keep: bytes of empty buffers that are kept for later slices.
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
        # Sorted by size: a slice uses the smallest buffer with room, so small slices seldom keep large buffers in use.
        self._buffers: list[Buffer[Handle]] = []
        # The buffer of each slice, and the offset and size of the range that the slice uses.
        self._ranges: dict[weakref.ref[Slice[Handle]], tuple[Buffer[Handle], int, int]] = {}
        # Slices that a thread has dropped, and whose ranges are not reclaimed yet.
        self._released: deque[weakref.ref[Slice[Handle]]] = deque()
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
        """Bytes of all ranges that slices use."""
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
        needed = -(-size // ALIGNMENT) * ALIGNMENT
        for buffer in self._buffers:
            for i, (_, room) in enumerate(buffer.free):
                if needed <= room and (self._shared or room <= max(2 * needed, self._step)):
                    return self._slice(buffer, i, size, needed)
        return self._slice(self._new_buffer(needed), 0, size, needed)

    def _slice(self, buffer: Buffer[Handle], i: int, size: int, needed: int) -> Slice[Handle]:
        """A slice of the first `size` bytes of a free range: it uses `needed` bytes if slices share buffers, or all."""
        offset, room = buffer.free[i]
        used = needed if self._shared else room
        part = Slice(buffer, offset, size)
        buffer.last_used = self._allocated
        remainder = [(offset + used, room - used)] if room > used else []
        # These two statements are the last, and Ctrl-C can interrupt nothing between them, so no exception loses the
        # range. The callback is implemented in C: Ctrl-C could end a Python function before its first statement.
        self._ranges[weakref.ref(part, self._released.append)] = buffer, offset, used
        buffer.free[i : i + 1] = remainder
        return part

    def _new_buffer(self, size: int) -> Buffer[Handle]:
        """A new buffer with room for a slice of `size` bytes."""
        largest = self._buffers[-1].size if self._buffers else 0
        roomy = max(size, min(max(-(-size // self._step) * self._step, self._growth * largest), self._most))
        try:
            # If slices share buffers, a multiple of `size`, so that slices of this size can fill a heap.
            size_in_bytes = roomy // size * size if self._shared else roomy
            handle = self._create(size_in_bytes)
        except MemoryError:
            self.trim(0)
            size_in_bytes, handle = size, self._create(size)
        buffer = Buffer(handle, size_in_bytes, [(0, size_in_bytes)])
        insort(self._buffers, buffer, key=attrgetter("size"))
        return buffer

    def collect(self) -> None:
        """Reclaims the ranges of dropped slices, and destroys empty buffers beyond `keep` bytes."""
        while self._released:
            # A slice leaves the queue last: if Ctrl-C comes before, it is reclaimed again, which is harmless.
            released = self._released[0]
            buffer, begin, used = self._ranges[released]
            free = buffer.free
            insort(free, (begin, used))
            merged = [free[0]]
            for offset, size in free[1:]:
                last_offset, last_size = merged[-1]
                if offset <= last_offset + last_size:
                    merged[-1] = (last_offset, max(last_size, offset + size - last_offset))
                else:
                    merged.append((offset, size))
            buffer.free = merged
            self._released.popleft()
            del self._ranges[released]
        self.trim(self.keep)

    def trim(self, keep: int) -> None:
        """Destroys empty buffers, the least recently used first, until at most `keep` bytes of them are left."""
        empty = [buffer for buffer in self._buffers if buffer.is_empty]
        excess = sum(map(attrgetter("size"), empty)) - keep
        for buffer in sorted(empty, key=attrgetter("last_used")):
            if excess <= 0:
                break
            excess -= buffer.size
            self._buffers.remove(buffer)
            self._destroy(buffer.handle)
