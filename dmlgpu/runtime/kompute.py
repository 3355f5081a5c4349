"""The only module that calls Kompute: never in a way that could end the process."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmlgpu.descriptors.operator import OperatorDesc
from dmlgpu.descriptors.tensor import Array, Bytes
from dmlgpu.errors import DeviceError, DeviceLostError, OutOfMemoryError
from dmlgpu.lowering.plan import Dispatch, Plan, Shader
from dmlgpu.runtime import forks, kompute_module, spirv
from dmlgpu.runtime.drivers import DeviceInfo, devices, keep_loaded
from dmlgpu.runtime.profile import Profile
from dmlgpu.runtime.schedule import RECORDED_STEPS, Barrier, Place, Step, Timing, submissions, update_timings
from dmlgpu.runtime.tuning import assumed_seconds_per_element

# Maximum number of cached pipelines. A pipeline uses up to 1 MiB on lavapipe, a quarter of that on SwiftShader.
_PIPELINES = 256
# Maximum number of cached recordings. A recording has the submissions of a tuple of steps, and uses 5 to 16 KiB.
_RECORDINGS = 256
# Values of the status, a word on the device that each submission copies to the host at its end; 0: nothing has run.
# Shaders set the bit _ENDED_EARLY if the driver ended one of their loops (kernel.glsl).
_RAN, _ENDED_EARLY = 1, 2
_UNTIMED = nullcontext()


class LoopEndedEarlyError(DeviceError):
    """The driver ended a loop of a shader early: the results of the steps are wrong."""


class KpBuffer:
    """A Kompute tensor of 32-bit words, and its bytes as the host maps them."""

    def __init__(self, tensor: Any, staged: bool) -> None:
        self.tensor = tensor
        self.staged = staged
        # The view never leaves dmlgpu: to read it after the tensor, which owns the memory, is destroyed would end the
        # process.
        self.view: Bytes = tensor.data().view(np.uint8)
        self.current = False
        """Whether the view of a staged buffer equals the content on the device: True after a copy in either direction,
        False after a step that writes to the buffer."""
        self.transfers: dict[Any, Any] = {}
        """The recorded copies to and from the device: Kompute's sequence of each operation."""


@dataclass(eq=False)
class Pipeline:
    """A shader, and the buffers that are bound to it. Equal only to itself."""

    shader: Shader
    group_count: int
    buffers: tuple[KpBuffer, ...]
    timing: Timing
    algorithm: Any = None
    """Kompute's object; None before it is created, and after the cache has dropped it."""
    last_used: int = 0
    """Number of the call of `execute` that last submitted or recorded the pipeline."""


@dataclass(frozen=True, eq=False)
class KpStep(Step[KpBuffer]):
    """A step with the objects that Kompute needs to record it. Equal only to itself."""

    pipeline: Pipeline
    push: Array
    plan: Plan
    dispatch: Dispatch


Submission = list[KpStep | Barrier[KpBuffer]]
# The sequence of a submission, and its steps without barriers.
_Recording = tuple[Any, list[KpStep]]
# Steps, the buffers to upload before them, and the buffers to download after them.
_Work = tuple[tuple[KpStep, ...], tuple[KpBuffer, ...], tuple[KpBuffer, ...]]


class Kompute:
    """A Vulkan device opened through Kompute. Callers hold `lock`, except for `close`, `is_open` and `label`."""

    def __init__(self, info: DeviceInfo) -> None:
        forks.check_process()
        self.info = info
        self.profile: Profile | None = None
        """The active profile, which receives all times. It may end while another thread holds the lock, so methods read
        it only once."""
        self.lock = threading.RLock()
        self._process = os.getpid()
        self._kp = kompute_module.kompute()
        self._assumed_seconds = assumed_seconds_per_element(info)
        self._barrier: Any = getattr(self._kp, "OpMemoryBarrier", None)  # only dmlgpu_kp has it
        with forks.driver_lock:
            self._start()

    def _start(self) -> None:
        """Opens the device, and runs a first submission."""
        info = self.info
        try:
            self._manager: Any = self._kp.Manager(info.index)
        except (RuntimeError, MemoryError) as error:
            raise DeviceError(f"Kompute cannot open device {info.index} ({info.name}): {error}") from error
        self._check_identity()
        if info.driver.startswith("NVIDIA"):
            keep_loaded()
        # The pipelines of all steps that exist, with their measured speed. _kept_pipelines are those with an algorithm.
        self._pipelines: weakref.WeakValueDictionary[tuple[Any, ...], Pipeline] = weakref.WeakValueDictionary()
        self._kept_pipelines: set[Pipeline] = set()
        self._recordings: OrderedDict[_Work, list[_Recording]] = OrderedDict()
        self._executed = 0
        self.computed = 0
        """Number of steps of the last `execute` that have run."""
        # Weak references: even if a call is interrupted, an unused buffer is freed and not counted.
        self._buffers: weakref.WeakSet[KpBuffer] = weakref.WeakSet()
        self._lost: str | None = None
        # On the device the status is _RAN, and shaders add _ENDED_EARLY; all submissions end with a copy to the view.
        self._status = self._new_buffer(4, staged=True)
        with self._translating_errors("its first submission"):
            self._status_upload: Any = self._manager.sequence()
            self._status_upload.record(self._kp.OpTensorSyncDevice([self._status.tensor]))
            self._reset_status()
        # Not empty if the device is destroyed: a list, because the finalizer must not refer to self.
        self._destroyed: list[bool] = []
        # At the end of the process this runs before Python unloads modules.
        self._finalizer = weakref.finalize(self, _destroy, self._manager, self.lock, self._destroyed)
        _open.add(self)

    def _reset_status(self) -> None:
        self._status.view[0] = _RAN
        self._status_upload.eval()

    def _check_identity(self) -> None:
        """Raises a DeviceError if Kompute opened another device than the requested device.

        Kompute lists the devices itself, opens the device at an index, and reports its name and group sizes, but no
        UUID. dmlgpu therefore lists the devices before and after Kompute. If both lists have the same device at this
        index, Kompute's list had this device there, too.
        """
        info, properties = self.info, self._manager.get_device_properties()
        group_size = min(properties["max_work_group_invocations"], properties["max_work_group_size"][0])
        opened, uuid = properties["device_name"], next((x.uuid for x in devices() if x.index == info.index), None)
        if (opened, group_size, uuid) != (info.name, info.max_group_size, info.uuid):
            raise DeviceError(
                f"device {info.index} was {info.name} with UUID {info.uuid}, but Kompute opened {opened}, and "
                f"the device with this index now has UUID {uuid}: the devices have changed; open a Device again"
            )

    def check_usable(self) -> None:
        """Raises a DeviceError if the device is closed or this is a forked child, a DeviceLostError if it is lost."""
        if os.getpid() != self._process:
            raise DeviceError(
                f"device {self.info.name} was opened in process {self._process} and cannot be used in its fork "
                f"{os.getpid()}; {forks.SPAWN}"
            )
        if self._lost is not None:
            raise DeviceLostError(self._lost)
        if self._destroyed:
            raise DeviceError(f"device {self.info.name} is closed")

    @property
    def is_open(self) -> bool:
        """Whether the device was neither closed nor lost."""
        return not self._destroyed

    @property
    def label(self) -> str:
        """The device's index, name and state, for texts."""
        state = "" if self.is_open else ", closed" if self._lost is None else ", lost"
        return f"{self.info.index}: {self.info.name}{state}"

    def close(self) -> None:
        """Frees the device and all its objects; a second call does nothing.

        Raises:
            DeviceError: this thread is in the middle of a call, as in a signal handler or a finalizer.
        """
        if self.lock._is_owned():  # type: ignore[attr-defined]
            raise DeviceError(f"device {self.info.name} cannot be closed during a call")
        with self.lock:
            self._close()

    def _close(self) -> None:
        """As `close`; the caller holds the lock."""
        self.forget()
        self._finalizer()

    @property
    def pipeline_count(self) -> int:
        """The number of cached pipelines."""
        return len(self._kept_pipelines)

    def forget(self) -> None:
        """Drops all cached pipelines and recordings; later calls create them again."""
        self._recordings.clear()
        self._drop(self._kept_pipelines)

    @contextmanager
    def _translating_errors(self, request: str) -> Iterator[None]:
        """Replaces Kompute's exception, if Vulkan refuses a call, by an OutOfMemoryError or a DeviceError."""
        try:
            yield
        except DeviceError:
            raise
        except MemoryError as error:
            raise OutOfMemoryError(f"device {self.info.name} has no memory left for {request}: {error}") from error
        except RuntimeError as error:
            raise DeviceError(f"device {self.info.name} refused {request}: {error}") from error

    def check_fits(self, size: int) -> None:
        """As `check_usable`; also raises an OutOfMemoryError if `size` bytes do not fit even into empty heaps."""
        self.check_usable()
        self._check(size, not self.info.unified, self.info.heaps)

    def _free(self) -> list[int]:
        """Free bytes of every heap: the fewer of dmlgpu's count and the driver's, which includes other processes."""
        free = list(self.info.heaps)
        for buffer in self._buffers:
            for heap, used in self._needs(buffer.view.size, buffer.staged):
                free[heap] -= used
        return list(map(min, free, _memory_left(self._manager) or free))

    def _check(self, size: int, staged: bool, free: Sequence[int]) -> None:
        """Raises an OutOfMemoryError if a buffer of `size` bytes needs more than the `free` bytes of a heap."""
        for heap, needed in self._needs(size, staged):
            if needed > free[heap]:
                raise OutOfMemoryError(
                    f"{needed} bytes do not fit on device {self.info.name}: "
                    f"{free[heap]} of {self.info.heaps[heap]} bytes of heap {heap} are left"
                )

    def create_buffer(self, size: int) -> KpBuffer:
        """A new buffer of `size` bytes for tensors: staged if the host cannot map the device's memory.

        Raises:
            OutOfMemoryError: a heap has too few free bytes, or the driver allows no more allocations.
            DeviceError: the driver refuses the buffer for another reason.
        """
        staged = not self.info.unified
        self._check(size, staged, self._free())
        if len(self._buffers) >= self.info.max_memory_allocation_count // 2:
            raise OutOfMemoryError(f"device {self.info.name} allows no more than {len(self._buffers)} buffers")
        with self.timed("allocate", "allocating a buffer", size=size):
            buffer = self._new_buffer(size, staged=staged)
            if self.info.type == "cpu" and not staged:
                _give_pages_back(buffer.view)
        return buffer

    def _new_buffer(self, size: int, *, staged: bool) -> KpBuffer:
        """As `create_buffer`, without checks."""
        kind = self._kp.TensorTypes.device if staged else self._kp.TensorTypes.host
        with self._translating_errors(f"a buffer of {size} bytes"):
            buffer = KpBuffer(_new_tensor(self._manager, size // 4, kind), staged)
        self._buffers.add(buffer)
        return buffer

    def destroy_buffer(self, buffer: KpBuffer) -> None:
        """Frees a buffer, and the pipelines bound to it."""
        self._drop({pipeline for pipeline in self._kept_pipelines if buffer in pipeline.buffers})
        self._buffers.discard(buffer)
        buffer.transfers.clear()
        del buffer.view
        buffer.tensor.destroy()

    def _needs(self, size: int, staged: bool) -> tuple[tuple[int, int], ...]:
        """(heap, bytes) of all memory that a buffer uses; a staged buffer also has a copy that the host maps."""
        device, host = self.info.device_heap, self.info.host_heap
        if not staged:
            return ((host, size),)
        return ((device, 2 * size),) if device == host else ((device, size), (host, size))

    def step(
        self, plan: Plan, dispatch: Dispatch, places: Sequence[Place[KpBuffer]], push: Mapping[str, Any]
    ) -> KpStep:
        """A dispatch of a plan, ready to be submitted.

        Args:
            plan: the plan.
            dispatch: a dispatch of the plan.
            places: where the memory of the dispatch's bindings begins, in the order of the bindings.
            push: the push constants.
        """
        key = (dispatch.shader, plan.limits.group_count, tuple([buffer for buffer, _ in places]))
        pipeline = self._pipelines.setdefault(key, Pipeline(*key, Timing(self._assumed_seconds)))
        bound = list(zip(dispatch.bindings, places, strict=True))
        return KpStep(
            reads=frozenset([place for binding, place in bound if not binding.written]),
            writes=frozenset([place for binding, place in bound if binding.written]),
            elements=-(-plan.elements // len(plan.dispatches)),
            timing=pipeline.timing,
            pipeline=pipeline,
            push=np.array(spirv.push_words(dispatch.shader.module, push), np.uint32),
            plan=plan,
            dispatch=dispatch,
        )

    def execute(
        self,
        steps: tuple[KpStep, ...],
        uploads: tuple[KpBuffer, ...] = (),
        downloads: tuple[KpBuffer, ...] = (),
    ) -> None:
        """Runs steps in order and waits for their end.

        `schedule.submissions` cuts the steps into submissions by the measured seconds per element. If a submission is
        still too slow, the same steps are cut and recorded again the next time, by the new measurement.

        While a profile is active, each step and each copy is a separate submission, because the host can only time
        whole submissions. The speed of these steps is measured, too.

        Raises:
            LoopEndedEarlyError: the driver ended a loop early; the first `computed` steps are right.

        Args:
            steps: the steps, in order; at most RECORDED_STEPS if there are uploads or downloads.
            uploads: small staged buffers; the first submission begins with their copies. No step writes them.
            downloads: small staged buffers; the last submission ends with their copies. No step reads them.
        """
        self._executed += 1
        self.computed = 0
        for step in steps:
            step.pipeline.last_used = self._executed
            for buffer, _ in step.writes:
                buffer.current = False
        works: list[_Work] = [(steps, uploads, downloads)]
        profile = self.profile
        if profile is not None:
            for buffer in uploads:
                self.upload(buffer)
            # No downloads: buffers that steps wrote to are not current, so a later read downloads them.
            uploads = downloads = ()
            works = [((step,), (), ()) for step in steps]
        for work in works:
            for sequence, submitted in self.recorded(*work):
                begin = time.perf_counter()
                self._submit(sequence)
                end = time.perf_counter()
                if self._status.view[0] & _ENDED_EARLY:
                    raise self._ended_early(submitted)
                self.computed += len(submitted)
                if profile is not None:
                    self._add_to(profile, submitted[0], begin, end)
                if update_timings(submitted, end - begin):
                    self._recordings.pop(work, None)
        for buffer in (*uploads, *downloads):
            buffer.current = True

    def _ended_early(self, steps: Sequence[KpStep]) -> DeviceError:
        """The error to raise if the driver ended a loop of a submission early."""
        self._reset_status()
        plans = dict.fromkeys(step.plan for step in steps)
        return LoopEndedEarlyError(
            f"device {self.info.name} ended a loop of a shader early, so there is no result; report it with the plan, "
            "and meanwhile use another driver:\n" + "\n".join(map(str, plans))
        )

    def timed(
        self, kind: str, name: str, operator: OperatorDesc | None = None, size: int = 0, submitted: bool = False
    ) -> AbstractContextManager[None]:
        """Times a block as an event of the active profile, if there is one."""
        profile = self.profile
        return _UNTIMED if profile is None else profile.timing(kind, name, operator, size, submitted)

    def _add_to(self, profile: Profile, step: KpStep, begin: float, end: float) -> None:
        """Adds the event of a step that was submitted alone."""
        plan, dispatch = step.plan, step.dispatch
        size, groups = plan.bytes_of(dispatch), step.pipeline.group_count
        name = dispatch.shader.module
        profile.add("dispatch", name, begin, end, plan.desc, size, step.elements, groups, submitted=True)

    def recorded(
        self, steps: tuple[KpStep, ...], uploads: tuple[KpBuffer, ...], downloads: tuple[KpBuffer, ...]
    ) -> Iterable[_Recording]:
        """The recorded submissions, cached or new, each with its steps.

        Submissions of more than RECORDED_STEPS steps are not cached, but recorded just before they run.
        """
        work = steps, uploads, downloads
        recording = self._recordings.pop(work, None)
        if recording is None:
            cut = submissions(steps, has_barriers=self._barrier is not None)
            if len(steps) > RECORDED_STEPS:
                return map(self._record, cut)
            first, *others = cut
            recording = [self._record(first, uploads, () if others else downloads)]
            recording += [self._record(other, (), downloads if other is others[-1] else ()) for other in others]
        self._recordings[work] = recording
        if len(self._recordings) > _RECORDINGS:
            self._recordings.popitem(last=False)
        return recording

    def _record(
        self, submission: Submission, uploads: Sequence[KpBuffer] = (), downloads: Sequence[KpBuffer] = ()
    ) -> _Recording:
        """Records a submission, which begins with uploads and ends with downloads."""
        steps = [part for part in submission if isinstance(part, KpStep)]
        written = {buffer for step in steps for buffer, _ in step.writes}
        with self.timed("record", "recording"), self._translating_errors("a recording"):
            sequence = self._manager.sequence()
            if uploads:
                sequence.record(self._kp.OpTensorSyncDevice([buffer.tensor for buffer in uploads]))
            for part in submission:
                if isinstance(part, KpStep):
                    sequence.record(self._kp.OpAlgoDispatch(self._algorithm(part), part.push))
                else:
                    sequence.record(self._barrier([buffer.tensor for buffer in part.buffers]))
            visible = (*downloads, *(buffer for buffer in written if not buffer.staged))
            return self._with_status(sequence, visible), steps

    def _with_status(self, sequence: Any, visible: Sequence[KpBuffer] = ()) -> Any:
        """Ends a recording with copies that make the status and the content of `visible` visible to the host."""
        sequence.record(self._kp.OpTensorSyncLocal([buffer.tensor for buffer in (*visible, self._status)]))
        return sequence

    def _submit(self, sequence: Any) -> None:
        """Runs a submission and waits for its end.

        Kompute ignores the result of vkWaitForFences; the original kp also ignores that of vkQueueSubmit. After a
        VK_ERROR_DEVICE_LOST it continues as if the work had been done. Only the status shows whether it was.
        """
        self._status.view[0] = 0
        try:
            sequence.eval()
        except MemoryError as error:
            # Nothing was submitted, and Vulkan may have refused to end this recording: drop all recordings.
            self._recordings.clear()
            for buffer in self._buffers:
                buffer.transfers.clear()
            raise OutOfMemoryError(f"device {self.info.name} has no memory left for a submission: {error}") from error
        except RuntimeError as error:
            raise self._lose(str(error)) from error
        if not self._status.view[0]:
            raise self._lose("the driver did not run the submission")

    def _lose(self, reason: str) -> DeviceLostError:
        """Closes the device as lost; returns the error to raise."""
        self._lost = f"device {self.info.name} is lost and closed: {reason}; open a new Device"
        self._close()
        return DeviceLostError(self._lost)

    def _algorithm(self, step: KpStep) -> Any:
        """Kompute's object for the pipeline of a step, cached or new."""
        pipeline = step.pipeline
        pipeline.last_used = self._executed
        if pipeline.algorithm is None:
            if len(self._kept_pipelines) >= _PIPELINES:
                self._drop({min(self._kept_pipelines, key=lambda kept: kept.last_used)})
            module = pipeline.shader.module
            code, constants = spirv.specialized(pipeline.shader)
            status = (self._status,) if step.dispatch.has_status else ()
            with self.timed("compile", module), self._translating_errors(f"a pipeline of {module}"):
                pipeline.algorithm = self._manager.algorithm(
                    [buffer.tensor for buffer in (*status, *pipeline.buffers)],
                    code,
                    (pipeline.group_count, 1, 1),
                    np.array(constants, np.uint32),
                    step.push,
                )
            self._kept_pipelines.add(pipeline)
        return pipeline.algorithm

    def _drop(self, pipelines: set[Pipeline]) -> None:
        """Frees pipelines, and the recorded submissions that use them."""
        for work in [work for work in self._recordings if any(step.pipeline in pipelines for step in work[0])]:
            del self._recordings[work]
        for pipeline in pipelines:
            pipeline.algorithm = None
            pipeline.timing.has_run = False
        self._kept_pipelines = self._kept_pipelines - pipelines

    def upload(self, buffer: KpBuffer) -> None:
        """Copies to the device what the host wrote to a buffer's view."""
        if buffer.staged:
            with self.timed("upload", "view to device", size=buffer.view.size, submitted=True):
                self._transfer(buffer, self._kp.OpTensorSyncDevice)

    def download(self, buffer: KpBuffer) -> None:
        """Copies the content of a buffer to its view."""
        if buffer.staged and not buffer.current:
            with self.timed("download", "device to view", size=buffer.view.size, submitted=True):
                self._transfer(buffer, self._kp.OpTensorSyncLocal)

    def _transfer(self, buffer: KpBuffer, operation: Any) -> None:
        """Copies a staged buffer in a separate submission; `operation`: Kompute's class for the direction."""
        if operation not in buffer.transfers:
            with self._translating_errors("a recording"):
                sequence = self._manager.sequence()
                sequence.record(operation([buffer.tensor]))
                buffer.transfers[operation] = self._with_status(sequence)
        self._submit(buffer.transfers[operation])
        buffer.current = True


def _destroy(manager: Any, lock: Any, destroyed: list[bool]) -> None:
    """Destroys a device after the running call: at the end of the process a daemon thread may still be in a call.

    At the end of the process the lock is not released, so that daemon threads make no more calls.
    """
    lock.acquire()
    try:
        destroyed.append(True)
        manager.destroy()
    finally:
        if threading.main_thread().is_alive():
            lock.release()


def _memory_left(manager: Any) -> list[int]:
    """Free bytes of every heap, as the driver reports them; empty if the driver, or the original kp, does not."""
    return manager.get_memory_left() if hasattr(manager, "get_memory_left") else []


def _new_tensor(manager: Any, words: int, kind: Any) -> Any:
    """A new tensor of 32-bit words with arbitrary values. The original kp can only copy an array."""
    if hasattr(manager, "empty"):
        return manager.empty(words, kind)
    return manager.tensor_t(np.empty(words, np.uint32), kind)


def _give_pages_back(view: Bytes) -> None:
    """Returns the pages of a CPU driver's new buffer to the system; a page uses memory again after a write to it.

    SwiftShader and the original kp write to all of a new buffer. With them a buffer of 16 MiB adds 16 MiB to the
    resident memory of the process. On Linux this function subtracts them again.
    """
    advice = getattr(mmap, "MADV_DONTNEED", None)
    if advice is None:
        return
    begin = -(-view.ctypes.data // mmap.PAGESIZE) * mmap.PAGESIZE
    size = (view.ctypes.data + view.size - begin) // mmap.PAGESIZE * mmap.PAGESIZE
    if size > 0:
        ctypes.CDLL(None).madvise(ctypes.c_void_p(begin), ctypes.c_size_t(size), advice)


_open: weakref.WeakSet[Kompute] = weakref.WeakSet()


def _abandon_in_child() -> None:
    """Keeps a forked child from using Vulkan, where it could wait forever for a thread that only its parent has."""
    if keep_loaded.cache_info().currsize:
        forks.abandon()
    for kompute in list(_open):
        if kompute.is_open:
            forks.abandon()
        kompute._finalizer.detach()
        kompute._destroyed.append(True)
        # A thread that only the parent has may hold the old lock.
        kompute.lock = threading.RLock()
        # The child never frees the device or its buffers: at the fork another thread may have been in a call, and may
        # have held locks of the driver.
        for kept in (kompute, *kompute._buffers):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_in_child)
