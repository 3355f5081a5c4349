"""The internals of an open device: Kompute, the allocator of memory, and the pending steps of batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from dmlgpu.descriptors.tensor import Bytes
from dmlgpu.errors import DeviceError, OutOfMemoryError
from dmlgpu.runtime.drivers import DeviceInfo
from dmlgpu.runtime.kompute import Kompute, KpBuffer, KpStep, LoopEndedEarlyError
from dmlgpu.runtime.memory import Allocator, Buffer, Slice
from dmlgpu.runtime.profile import Profile
from dmlgpu.runtime.schedule import RECORDED_STEPS
from dmlgpu.runtime.tuning import SMALL_COPY_BYTES, tensor_memory


@dataclass(eq=False)
class Segments:
    """The slices of buffers that hold a tensor, or the workspace of a call."""

    slices: list[Slice[KpBuffer]]
    computed: bool = True
    """Whether the content is computed: False if the last call that should have written it failed or was interrupted."""

    def overlap(self, other: Segments) -> bool:
        """Whether any slice shares bytes with a slice of `other`."""
        return any(
            a.buffer is b.buffer and a.offset < b.offset + b.size and b.offset < a.offset + a.size
            for a in self.slices
            for b in other.slices
        )


class Engine:
    """The internals of an open device. Callers hold `lock` around all but `close`.

    Attributes:
        kompute: runs steps.
        memory: the allocator of tensors and workspaces.
        batches: the active batches; while this set is not empty, steps stay pending.
    """

    def __init__(self, info: DeviceInfo) -> None:
        self.kompute = Kompute(info)
        self.memory = Allocator(self.kompute.create_buffer, self.kompute.destroy_buffer, **tensor_memory(info))
        self._keep = self.memory.keep
        self.batches: set[object] = set()
        # Each step with the segments that its call uses; the last step of a call also with those that the call writes.
        # All in one list, because Ctrl-C may come between any two statements.
        self._pending: list[tuple[KpStep, tuple[Segments, ...], Sequence[Segments]]] = []

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """The lock of the device. A forked child gets a new one."""
        lock, profile = self.kompute.lock, self.kompute.profile
        if profile is None or lock._is_owned():  # type: ignore[attr-defined]
            return lock
        return profile.waiting(lock)

    # Memory

    def allocate(self, sizes: Iterable[int]) -> Segments:
        """Memory for a tensor, or the workspace of a call: a segment for each of `sizes`, in bytes.

        Raises:
            OutOfMemoryError: no memory is left, even after pending steps have run and empty buffers were freed.
        """
        slices = []
        for size in sizes:
            try:
                slices.append(self.memory.allocate(size))
            except OutOfMemoryError:
                self.submit_pending()
                self.free_buffers()
                slices.append(self.memory.allocate(size))
        profile = self.kompute.profile
        if profile is not None:
            self._add_memory(profile)
        return Segments(slices)

    def keep(self, buffers: Iterable[Buffer[KpBuffer]]) -> None:
        """Makes the allocator keep at least as many bytes of empty buffers as `buffers` have together."""
        self.memory.keep = max(self._keep, sum(buffer.size for buffer in buffers))

    def free_buffers(self) -> None:
        """Frees all empty buffers."""
        self.memory.collect()
        self.memory.trim(0)

    # Between host and device

    def views(self, segments: Segments) -> list[Bytes]:
        """The views of all segments: the host's mappings of their bytes. The device must be open."""
        return [part.buffer.handle.view[part.offset : part.offset + part.size] for part in segments.slices]

    def upload(self, segments: Segments) -> None:
        """Copies to the device what the host wrote to the views of the segments."""
        for part in segments.slices:
            self.kompute.upload(part.buffer.handle)

    def download(self, segments: Segments) -> list[Bytes]:
        """The views of all segments, after pending steps have run and results were copied.

        Raises:
            DeviceError: the device is closed, or the content of the segments was not computed.
        """
        self.kompute.check_usable()
        self.submit_pending()
        self.check_computed(segments)
        for part in segments.slices:
            self.kompute.download(part.buffer.handle)
        return self.views(segments)

    def check_computed(self, segments: Segments) -> None:
        """Raises a DeviceError if a call that should have written to the segments failed or was interrupted."""
        if not segments.computed:
            raise DeviceError(
                f"a tensor on device {self.kompute.info.name} was not computed: the call or batch that should have "
                "written it failed or was interrupted; compute it again"
            )

    # Steps

    def enqueue(
        self,
        steps: tuple[KpStep, ...],
        held: tuple[Segments, ...],
        uploads: Sequence[Segments],
        written: Sequence[Segments],
    ) -> None:
        """Runs steps now, or later in a batch, and holds their memory until then.

        Each submission costs time, so small buffers are copied in the submissions of the steps. Large buffers are
        uploaded before, and downloaded when they are read: the time of their copies must not count as time of steps.

        Args:
            steps: the steps of a call.
            held: all segments that they read or write.
            uploads: segments whose views the host wrote to; the steps only read these segments.
            written: segments that the steps only write. If there are uploads, they are downloaded, too: a call with an
                array returns arrays, which the host will read.
        """
        first = () if self.batches else self._copied_with(steps, uploads)
        for segments in uploads:
            for part in segments.slices:
                if part.buffer.handle not in first:
                    self.kompute.upload(part.buffer.handle)
        if self.batches:
            self._pending += [*((step, held, ()) for step in steps[:-1]), (steps[-1], held, written)]
        else:
            self.submit_pending()
            for segments in written:
                segments.computed = False
            self.kompute.execute(steps, first, self._copied_with(steps, written if uploads else ()))
        for segments in written:
            segments.computed = True
        if len(self._pending) >= RECORDED_STEPS:
            self.submit_pending()

    def record(self, steps: tuple[KpStep, ...], uploads: Iterable[Segments], downloads: Iterable[Segments]) -> None:
        """Creates the pipelines and recordings for a first `enqueue` of at most RECORDED_STEPS steps."""
        self.kompute.recorded(steps, self._copied_with(steps, uploads), self._copied_with(steps, downloads))

    def _copied_with(self, steps: tuple[KpStep, ...], copied: Iterable[Segments]) -> tuple[KpBuffer, ...]:
        """The buffers among `copied` that are copied in the submissions of the steps, not in separate transfers."""
        if self.kompute.info.unified or len(steps) > RECORDED_STEPS:
            return ()
        buffers = [part.buffer.handle for segments in copied for part in segments.slices]
        return tuple([buffer for buffer in buffers if buffer.view.size <= SMALL_COPY_BYTES])

    def submit_pending(self) -> None:
        """Runs the pending steps. If the driver refuses a step, the steps that have not run stay pending.

        After any other exception no step stays pending, and results that were not computed cannot be read.

        Raises:
            DeviceError: the device is closed, or the driver refused a call or ended a loop early.
            OutOfMemoryError: the driver refused memory.
        """
        if not self._pending:
            return
        stay = False
        try:
            self.kompute.check_usable()
            with self.kompute.timed("batch", "deferred steps"):
                self.kompute.execute(tuple(step for step, *_ in self._pending))
        except LoopEndedEarlyError:
            raise
        except DeviceError:
            stay = self.kompute.is_open
            raise
        finally:
            computed = self.kompute.computed
            if not stay:
                for *_, written in self._pending[computed:]:
                    for segments in written:
                        segments.computed = False
            del self._pending[: computed if stay else None]

    # Profiles

    def begin_profile(self, profile: Profile) -> None:
        """Activates a profile. Pending steps run first, and are no part of the profile.

        Raises:
            DeviceError: another profile is active.
        """
        if self.kompute.profile is not None:
            raise DeviceError(f"device {self.kompute.info.name} is already being profiled; end that profile first")
        self.submit_pending()
        self.kompute.profile = profile
        self._add_memory(profile)

    def complete_profile(self, profile: Profile) -> None:
        """Runs pending steps, which are part of the profile, if the profile is active."""
        if self.kompute.profile is profile and self.kompute.is_open:
            self.submit_pending()
            self._add_memory(profile)

    def _add_memory(self, profile: Profile) -> None:
        """Adds the current use of memory to a profile."""
        used = self.memory.used_bytes  # first, because this may destroy buffers
        profile.add_memory(self.memory.buffer_bytes, used)

    # Closing

    def close(self) -> None:
        """Frees the device; pending steps never run.

        Raises:
            DeviceError: this thread is in the middle of a call.
        """
        self.kompute.close()
        with self.lock:
            self._pending.clear()
