"""The only module that speaks to Kompute. It asks nothing of Kompute that could end the process."""

from __future__ import annotations

import ctypes
import logging
import os
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from dmlgpu import spirv
from dmlgpu.drivers import DeviceInfo
from dmlgpu.errors import DeviceError, OutOfMemoryError
from dmlgpu.plan import Kernel, Limits
from dmlgpu.words import Bytes


def _import_kp() -> Any:
    """Kompute's module, without the handler that importing it puts on the root logger."""
    handlers = list(logging.root.handlers)
    import kp

    logging.root.handlers[:] = handlers
    return kp


class KpBuffer:
    """A Kompute tensor of 32-bit words, and the bytes of it that the host sees."""

    def __init__(self, tensor: Any, staged: bool) -> None:
        self.tensor = tensor
        self.staged = staged
        # The view dies with the tensor: reading it after that would end the process, so it never leaves dmlgpu.
        self.view: Bytes = tensor.data().view(np.uint8)


class Kompute:
    """A Vulkan device opened through Kompute. Callers hold `lock` around everything else."""

    def __init__(self, info: DeviceInfo) -> None:
        self.info = info
        self.lock = threading.RLock()
        self._process = os.getpid()
        self._kp = _import_kp()
        self._manager: Any = self._kp.Manager(info.index)
        name = self._manager.get_device_properties()["device_name"]
        if name != info.name:
            raise DeviceError(f"asked Kompute for device {info.index} ({info.name}), got {name}")
        self._algorithms: dict[tuple[Any, ...], Any] = {}
        self._used = [0] * len(info.heaps)
        self._buffer_count = 0
        # At exit this runs before the interpreter takes modules apart.
        self._finalizer = weakref.finalize(self, self._manager.destroy)
        _open.add(self)

    def check_usable(self) -> None:
        """Raises a DeviceError after close() and in a forked child."""
        if os.getpid() != self._process:
            raise DeviceError(
                f"device {self.info.name} was opened in process {self._process} and cannot be used in its fork "
                f"{os.getpid()}; open a device there, in a process started by spawn"
            )
        if not self._finalizer.alive:
            raise DeviceError(f"device {self.info.name} is closed")

    def close(self) -> None:
        """Frees the device and all that was made on it; a second call does nothing."""
        with self.lock:
            self._algorithms.clear()
            self._finalizer()

    def check_fits(self, size: int) -> None:
        """Raises an OutOfMemoryError where so many bytes do not fit, whatever else is freed."""
        self._check(size, [0] * len(self._used))

    def _check(self, size: int, used: Sequence[int]) -> None:
        for heap, needed in self._needs(size):
            left = self.info.heaps[heap] - used[heap]
            if needed > left:
                raise OutOfMemoryError(
                    f"{needed} bytes do not fit device {self.info.name}: "
                    f"{left} of {self.info.heaps[heap]} bytes of heap {heap} are left"
                )

    def create_buffer(self, size: int) -> KpBuffer:
        """A buffer of `size` bytes.

        Raises:
            OutOfMemoryError: the heaps have not so much left, or the driver allows no more allocations.
        """
        self._check(size, self._used)
        if self._buffer_count >= self.info.max_memory_allocation_count // 2:
            raise OutOfMemoryError(f"device {self.info.name} allows no more than {self._buffer_count} buffers")
        kind = self._kp.TensorTypes.host if self.info.unified else self._kp.TensorTypes.device
        tensor = self._manager.tensor_t(np.empty(size // 4, np.uint32), kind)
        self._account(size, 1)
        return KpBuffer(tensor, not self.info.unified)

    def destroy_buffer(self, buffer: KpBuffer) -> None:
        """Frees a buffer, and the pipelines bound to it."""
        size = buffer.view.size
        bound = [key for key in self._algorithms if buffer in key]
        for key in bound:
            del self._algorithms[key]
        del buffer.view
        buffer.tensor.destroy()
        self._account(size, -1)

    def _needs(self, size: int) -> tuple[tuple[int, int], ...]:
        """(heap, bytes) that a buffer takes; a staged one is there twice."""
        device, host = self.info.device_heap, self.info.host_heap
        if self.info.unified:
            return ((host, size),)
        return ((device, 2 * size),) if device == host else ((device, size), (host, size))

    def _account(self, size: int, sign: int) -> None:
        for heap, needed in self._needs(size):
            self._used[heap] += sign * needed
        self._buffer_count += sign

    def record(self, kernel: Kernel, limits: Limits, buffers: Sequence[KpBuffer], push: Sequence[int]) -> Any:
        """A submission of one dispatch, to be evaluated any number of times."""
        push_words = np.array(push, np.uint32)
        key = (kernel, limits.group_count, *buffers)
        algorithm = self._algorithms.get(key)
        if algorithm is None:
            constants = np.array([int(value) for value in vars(kernel.constants).values()], np.uint32)
            algorithm = self._manager.algorithm(
                [buffer.tensor for buffer in buffers],
                spirv.load(kernel.module),
                (limits.group_count, 1, 1),
                constants,
                push_words,
            )
            self._algorithms[key] = algorithm
        sequence = self._manager.sequence()
        sequence.record(self._kp.OpAlgoDispatch(algorithm, push_words))
        return sequence

    def upload(self, buffer: KpBuffer) -> None:
        """Makes what the host wrote to a buffer's view the content of the buffer."""
        if buffer.staged:
            self._manager.sequence().eval(self._kp.OpTensorSyncDevice([buffer.tensor]))

    def download(self, buffer: KpBuffer) -> None:
        """Makes the content of a buffer visible in its view."""
        if buffer.staged:
            self._manager.sequence().eval(self._kp.OpTensorSyncLocal([buffer.tensor]))


_open: weakref.WeakSet[Kompute] = weakref.WeakSet()


def _abandon_in_child() -> None:
    """Keeps a forked child from destroying Vulkan devices, which waits for ever for threads that it does not have."""
    for kompute in list(_open):
        kompute._finalizer.detach()
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kompute._manager))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_in_child)
