"""What a device, its tensors and its operators work with: Kompute, memory, and the steps that a batch puts off."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from dmlgpu.descriptors.layout import Bytes
from dmlgpu.errors import DeviceError, OutOfMemoryError
from dmlgpu.runtime.drivers import DeviceInfo
from dmlgpu.runtime.kompute import Kompute, KpBuffer, KpStep
from dmlgpu.runtime.memory import Allocator, Buffer, Slice
from dmlgpu.runtime.profile import Profile, timed
from dmlgpu.runtime.schedule import RECORDED_STEPS, RELAY_BYTES
from dmlgpu.runtime.tuning import relay_memory, tensor_memory


class Segments:
    """The slices of buffers that a tensor, or the records of a call, lie in.

    They go back to their allocator when this is dropped.
    """

    # For `__del__`, where Ctrl-C ends `__init__`.
    slices: list[Slice[KpBuffer]] = []  # noqa: RUF012

    def __init__(self, memory: Allocator[KpBuffer]) -> None:
        self.memory = memory
        self.slices = []

    def __del__(self) -> None:
        for part in self.slices:
            self.memory.release(part)

    def overlap(self, other: Segments) -> bool:
        """Whether they have bytes in common with others."""
        return any(
            a.buffer is b.buffer and a.offset < b.offset + b.size and b.offset < a.offset + a.size
            for a in self.slices
            for b in other.slices
        )


def _copied_with(steps: tuple[KpStep, ...], copied: Iterable[Segments]) -> tuple[KpBuffer, ...]:
    """The buffers of these segments that are copied in the submissions of the steps."""
    if len(steps) > RECORDED_STEPS:
        return ()
    buffers = (part.buffer.handle for segments in copied for part in segments.slices)
    return tuple(buffer for buffer in buffers if buffer.relays)


class Engine:
    """An open device, without what users see of it. Callers hold `lock` around all but `is_open` and `close`.

    Attributes:
        kompute: what runs steps.
        memory: where tensors lie, and large scratch memory.
        relays: where small scratch memory lies: buffers that relay, so that all passes of a call share a submission.
            Where tensors are staged it is `memory`, whose small buffers relay.
    """

    def __init__(self, info: DeviceInfo) -> None:
        self.kompute = Kompute(info)
        destroy = self.kompute.destroy_buffer
        self.memory = Allocator(self.kompute.create_buffer, destroy, **tensor_memory(info))
        self.relays = self.memory
        if info.unified:
            self.relays = Allocator(self.kompute.create_relay, destroy, **relay_memory())
        self._keep = self.memory.keep
        self._batches: set[object] = set()
        # Each step with what it needs, in one list: Ctrl-C may come between any two statements.
        self._pending: list[tuple[KpStep, tuple[Segments, ...]]] = []

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Held by the thread that works with the device; in a forked child it is another one."""
        lock, profile = self.kompute.lock, self.kompute.profile
        if profile is None or lock._is_owned():  # type: ignore[attr-defined]
            return lock
        return profile.waiting(lock)

    # Memory

    @property
    def allocators(self) -> set[Allocator[KpBuffer]]:
        """One, or two, that hand out all memory."""
        return {self.memory, self.relays}

    def allocate(self, sizes: Iterable[int]) -> Segments:
        """Memory for a tensor, in segments of so many bytes.

        Raises:
            OutOfMemoryError: it does not fit, though all was computed and freed that could be.
        """
        return self._allocate(self.memory, sizes)

    def allocate_scratch(self, sizes: Sequence[int]) -> Segments:
        """Memory that steps of one call write and read, in segments of so many bytes; errors as `allocate`.

        Where calls that were put off hold as many relays as are kept, they are computed first. One more relay would be
        freed after the batch, and the pipelines that are bound to it: making them anew takes a thousand times as long
        as a submission.
        """
        if max(sizes, default=0) > RELAY_BYTES:
            return self._allocate(self.memory, sizes)
        if sizes and self.relays is not self.memory and self.relays.used_bytes >= self.relays.keep:
            self.submit_pending()
        return self._allocate(self.relays, sizes)

    def _allocate(self, memory: Allocator[KpBuffer], sizes: Iterable[int]) -> Segments:
        segments = Segments(memory)
        for size in sizes:
            try:
                segments.slices.append(memory.allocate(size))
            except OutOfMemoryError:
                self.submit_pending()
                self.free_buffers()
                segments.slices.append(memory.allocate(size))
        self._add_memory()
        return segments

    def keep(self, buffers: Iterable[Buffer[KpBuffer]]) -> None:
        """Keeps at least as many bytes of empty buffers from now on as these have."""
        self.memory.keep = max(self._keep, sum(buffer.size for buffer in buffers))

    def free_buffers(self) -> None:
        """Frees all buffers that nothing lies in."""
        for memory in self.allocators:
            memory.collect()
            memory.trim(0)

    # Between host and device

    def views(self, segments: Segments) -> list[Bytes]:
        """The bytes of every segment as the host sees them.

        Raises:
            DeviceError: the device is closed.
        """
        self.kompute.check_usable()
        return [part.buffer.handle.view[part.offset : part.offset + part.size] for part in segments.slices]

    def upload(self, segments: Segments) -> None:
        """Makes what was written to views the content of the segments."""
        for part in segments.slices:
            self.kompute.upload(part.buffer.handle)

    def download(self, segments: Segments) -> list[Bytes]:
        """The bytes of every segment, all that was called computed; errors as `views`."""
        views = self.views(segments)
        self.submit_pending()
        for part in segments.slices:
            self.kompute.download(part.buffer.handle)
        return views

    # Steps

    def submit(
        self,
        steps: tuple[KpStep, ...],
        held: tuple[Segments, ...],
        uploads: Sequence[Segments],
        downloads: Sequence[Segments],
    ) -> None:
        """Runs steps now, or in a batch later; what they need is held until then.

        Each submission costs time, so small buffers are copied in those of the steps. Large ones are uploaded before,
        and downloaded when they are read: what they take must not count as the pace of the steps.

        Args:
            steps: those of a call.
            held: all that they read and write.
            uploads: what the host wrote to views of; the steps only read it.
            downloads: what the host will read; the steps only write it.
        """
        first = () if self._batches else _copied_with(steps, uploads)
        for part in (part for segments in uploads for part in segments.slices):
            if part.buffer.handle not in first:
                self.kompute.upload(part.buffer.handle)
        if not self._batches:
            self.submit_pending()
            self.kompute.submit(steps, first, _copied_with(steps, downloads))
            return
        self._pending += [(step, held) for step in steps]
        if len(self._pending) >= RECORDED_STEPS:
            self.submit_pending()

    def prepare(self, steps: tuple[KpStep, ...], uploads: Iterable[Segments], downloads: Iterable[Segments]) -> None:
        """Makes all that a first `submit` of these needs; steps are RECORDED_STEPS at most."""
        self.kompute.prepare(steps, _copied_with(steps, uploads), _copied_with(steps, downloads))

    def submit_pending(self) -> None:
        """Runs what was put off. What a driver refused stays pending; whatever else ends it, nothing does.

        Raises:
            DeviceError: the device is closed, or it refused something; OutOfMemoryError, if memory.
        """
        if not self._pending:
            return
        computed = len(self._pending)
        try:
            self.kompute.check_usable()
            with timed(self.kompute.profile, "batch", "steps that were put off"):
                self.kompute.submit(tuple(step for step, _ in self._pending))
        except DeviceError:
            if self.is_open:
                computed = self.kompute.computed
            raise
        finally:
            del self._pending[:computed]

    @property
    def in_batch(self) -> bool:
        """Whether steps are put off."""
        return bool(self._batches)

    def begin_batch(self, batch: object) -> None:
        """Puts steps off until this batch has ended, and all others that began."""
        self._batches.add(batch)

    def end_batch(self, batch: object) -> None:
        """Runs what was put off where no other batch goes on. The batch need not have begun."""
        self._batches.discard(batch)
        if not self._batches:
            self.submit_pending()

    # Profiles

    def begin_profile(self, profile: Profile) -> None:
        """Has times given to a profile; what was put off before is run, and is no part of it.

        Raises:
            DeviceError: another profile goes on.
        """
        if self.kompute.profile is not None:
            raise DeviceError(f"device {self.kompute.info.name} has a profile that goes on; end it before another one")
        self.submit_pending()
        self.kompute.profile = profile
        self._add_memory()

    def end_profile(self, profile: Profile) -> None:
        """Ends a profile, which need not have begun; what was put off is run before that."""
        if self.kompute.profile is not profile:
            return
        try:
            if self.is_open:
                self.submit_pending()
                self._add_memory()
        finally:
            self.kompute.profile = None
            profile.end()

    def _add_memory(self) -> None:
        """Tells a profile, if one goes on, what memory is in use."""
        if self.kompute.profile is not None:
            used = sum(allocator.used_bytes for allocator in self.allocators)
            self.kompute.profile.add_memory(sum(allocator.buffer_bytes for allocator in self.allocators), used)

    # The end

    @property
    def is_open(self) -> bool:
        """Whether the device was neither closed nor lost."""
        return self.kompute.is_open

    def close(self) -> None:
        """Frees the device; what is pending is never computed.

        Raises:
            DeviceError: this thread is in the middle of a call.
        """
        self.kompute.close()
        with self.lock:
            self._pending.clear()
