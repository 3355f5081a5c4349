"""Guards: every tensor in a shared buffer lies between bytes that must not be written.

Memory is filled when it is allocated, so that tests see unwritten bytes: reused memory often has the results of a
similar call.

The whole suite runs with guards. Tensors with separate buffers (on devices whose memory the host cannot map), and
tensors that would need a larger buffer than a shared one, are only filled.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np

import dmlgpu.runtime.engine
from dmlgpu.descriptors.tensor import Bytes
from dmlgpu.runtime.kompute import Kompute, KpBuffer, KpStep
from dmlgpu.runtime.memory import ALIGNMENT, Allocator, Buffer, Slice

# A pattern that no operator writes by chance, and in which adjacent bytes differ.
_GUARD = (np.arange(ALIGNMENT, dtype=np.uint16) * 89 + 0xA5).astype(np.uint8)
_OFFSETS = np.arange(ALIGNMENT)
# An index of these bytes is far beyond all elements of a test; a float is a small number that is not 0.
_FILL = 0xA5

_allocators: weakref.WeakKeyDictionary[Kompute, weakref.WeakSet[GuardedAllocator]] = weakref.WeakKeyDictionary()
_execute = Kompute.execute


@dataclass(frozen=True, eq=False)
class _Guarded(Slice[KpBuffer]):
    """An allocated slice."""

    whole: Slice[KpBuffer]
    """The slice with its guards."""


class GuardedAllocator(Allocator[KpBuffer]):
    """Allocates slices with a guard before, and one after that begins with the first byte beyond the requested size."""

    def __init__(self, create: Any, destroy: Any, **options: Any) -> None:
        super().__init__(create, destroy, **options)
        self._guarded: weakref.WeakSet[_Guarded] = weakref.WeakSet()
        _allocators.setdefault(create.__self__, weakref.WeakSet()).add(self)

    def allocate(self, size: int) -> Slice[KpBuffer]:
        room = -(-size // ALIGNMENT) * ALIGNMENT + 2 * ALIGNMENT
        if not self._shared:
            return self._uploaded(self._filled(super().allocate(size)))
        if room > self._most:
            return self._filled(super().allocate(size))
        whole = super().allocate(room)
        part = _Guarded(whole.buffer, whole.offset + ALIGNMENT, size, whole)
        self._filled(part)
        self._guarded.add(part)
        blocks, offsets, begins = self._guards(whole.buffer, [part])
        blocks[offsets] = np.where(begins <= _OFFSETS, _GUARD, blocks[offsets])
        return part

    @staticmethod
    def _filled(part: Slice[KpBuffer]) -> Slice[KpBuffer]:
        part.buffer.handle.view[part.offset : part.offset + part.size] = _FILL
        return part

    def _uploaded(self, part: Slice[KpBuffer]) -> Slice[KpBuffer]:
        """Copies the fill to the device; kompute_seam.py does not count it."""
        kompute: Kompute = self._create.__self__  # type: ignore[attr-defined]
        sequence = getattr(kompute._manager, "_manager", kompute._manager).sequence()
        sequence.record(kompute._kp.OpTensorSyncDevice([part.buffer.handle.tensor]))
        sequence.eval()
        return part

    @staticmethod
    def _guards(buffer: Buffer[KpBuffer], parts: list[_Guarded]) -> tuple[Bytes, Any, Any]:
        """A buffer as blocks of bytes, the numbers of the blocks with guards, and where in each the guard begins."""
        blocks = buffer.handle.view[: buffer.size // ALIGNMENT * ALIGNMENT].reshape(-1, ALIGNMENT)
        before = [(part.offset // ALIGNMENT - 1, 0) for part in parts]
        around = [divmod(part.offset + part.size, ALIGNMENT) for part in parts]
        after = [((part.offset + part.size) // ALIGNMENT + 1, 0) for part in parts if part.size % ALIGNMENT]
        offsets, begins = np.array(before + around + after).T
        return blocks, offsets, begins[:, None]

    def check(self) -> None:
        """Raises an AssertionError if a guard has changed."""
        parts: dict[Buffer[KpBuffer], list[_Guarded]] = {}
        for part in self._guarded:
            parts.setdefault(part.buffer, []).append(part)
        for buffer, slices in parts.items():
            blocks, offsets, begins = self._guards(buffer, slices)
            wrong = (blocks[offsets] != _GUARD) & (begins <= _OFFSETS)
            if wrong.any():
                i, offset = np.argwhere(wrong)[0]
                byte = offsets[i] * ALIGNMENT + offset
                raise AssertionError(f"a guard was written to: byte {byte} of a buffer of {buffer.size}")


def _guarded_execute(kompute: Kompute, steps: tuple[KpStep, ...], *copied: tuple[KpBuffer, ...]) -> None:
    _execute(kompute, steps, *copied)
    for allocator in _allocators.get(kompute, ()):
        allocator.check()


def install() -> None:
    """Guards the tensors of all devices that are opened from now on."""
    dmlgpu.runtime.engine.Allocator = GuardedAllocator  # type: ignore[misc]
    Kompute.execute = _guarded_execute  # type: ignore[method-assign]
