"""Where tensors lie in buffers: a first-fit allocator over any kind of buffer."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Handle = TypeVar("Handle")

ALIGNMENT = 256  # bytes; every element size and every device's nonCoherentAtomSize divides it


def aligned(size: int) -> int:
    """`size`, rounded up to the alignment."""
    return -(-size // ALIGNMENT) * ALIGNMENT


@dataclass(eq=False)
class Buffer(Generic[Handle]):
    """A buffer and its free ranges."""

    handle: Handle
    size: int
    free: list[tuple[int, int]] = field(default_factory=list)
    """(offset, size) of every free range, by offset; no two touch."""

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


class Allocator(Generic[Handle]):
    """Hands out slices of buffers.

    Args:
        create: makes a buffer of so many bytes, or raises MemoryError.
        destroy: ends one.
        chunk: bytes of a buffer that slices share; 0 gives every slice a buffer of its own.
        keep: bytes of empty buffers that are kept for later.
    """

    def __init__(
        self, create: Callable[[int], Handle], destroy: Callable[[Handle], None], *, chunk: int, keep: int
    ) -> None:
        self._create, self._destroy = create, destroy
        self._chunk, self._keep = chunk, keep
        self._buffers: list[Buffer[Handle]] = []
        self._released: deque[Slice[Handle]] = deque()

    def allocate(self, size: int) -> Slice[Handle]:
        """A slice of at least `size` bytes; its content is arbitrary."""
        self.collect()
        size = aligned(size)
        for buffer in self._buffers:
            for i, (offset, room) in enumerate(buffer.free):
                if size <= room and (self._chunk or (buffer.is_empty and room <= 2 * size)):
                    rest = [(offset + size, room - size)] if self._chunk and room > size else []
                    buffer.free[i : i + 1] = rest
                    return Slice(buffer, offset, size if self._chunk else room)
        buffer = self._new_buffer(max(size, self._chunk))
        self._buffers.append(buffer)
        if buffer.size > size:
            buffer.free.append((size, buffer.size - size))
        return Slice(buffer, 0, size)

    def _new_buffer(self, size: int) -> Buffer[Handle]:
        try:
            return Buffer(self._create(size), size)
        except MemoryError:
            self.trim(0)
            return Buffer(self._create(size), size)

    def release(self, part: Slice[Handle]) -> None:
        """Gives a slice back. May be called from a finalizer at any time: the slice is only queued."""
        self._released.append(part)

    def collect(self) -> None:
        """Takes queued slices back, and destroys empty buffers beyond what is kept."""
        while self._released:
            part = self._released.popleft()
            free = part.buffer.free
            insort(free, (part.offset, part.size))
            merged = [free[0]]
            for offset, size in free[1:]:
                last_offset, last_size = merged[-1]
                if last_offset + last_size == offset:
                    merged[-1] = (last_offset, last_size + size)
                else:
                    merged.append((offset, size))
            part.buffer.free = merged
        self.trim(self._keep)

    def trim(self, keep: int) -> None:
        """Destroys empty buffers, the largest first, until no more than `keep` bytes of them are left."""
        empty = sorted((buffer for buffer in self._buffers if buffer.is_empty), key=lambda buffer: -buffer.size)
        excess = sum(buffer.size for buffer in empty) - keep
        for buffer in empty:
            if excess <= 0:
                break
            excess -= buffer.size
            self._buffers.remove(buffer)
            self._destroy(buffer.handle)
