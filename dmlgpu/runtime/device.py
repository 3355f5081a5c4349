"""Devices and their cached operators; the devices that calls share."""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

from dmlgpu.descriptors.dtypes import DataType
from dmlgpu.descriptors.operator import ExecutionFlags, OperatorDesc
from dmlgpu.descriptors.tensor import TensorDesc, as_array
from dmlgpu.errors import DescriptorError, OutOfMemoryError
from dmlgpu.lowering.limits import Limits
from dmlgpu.runtime.compiled import CompiledOperator
from dmlgpu.runtime.drivers import DeviceInfo, index_of, select
from dmlgpu.runtime.engine import Engine
from dmlgpu.runtime.kompute import KpBuffer
from dmlgpu.runtime.log import follow_the_environment, logger
from dmlgpu.runtime.memory import Buffer
from dmlgpu.runtime.profile import Profile
from dmlgpu.runtime.settings import setting
from dmlgpu.runtime.tensor import DeviceTensor, of_array, of_bytes
from dmlgpu.runtime.tuning import device_limits

# Maximum number of compiled operators that a device caches.
_OPERATORS = 256


class Device:
    """A Vulkan device, open until `close()` or the end of a `with` block.

    Args:
        selector: the index, the UUID or part of the name of one of `devices()`, in upper or lower case. If no device's
            name matches, part of its driver's name; lavapipe means llvmpipe. None: the environment variable
            DMLGPU_DEVICE; if it is not set, the best device: discrete, integrated, virtual, llvmpipe, SwiftShader.
        limits: limits lower than the device's, for tests.

    Attributes:
        info: the device's name, driver and properties.
        limits: the limits of its plans.

    Raises:
        DeviceError: there is no Vulkan loader, no driver, or no such device; the message lists the devices.
        SettingError: the environment variable DMLGPU_LOG has a value that is not allowed.
    """

    def __init__(self, selector: int | str | None = None, *, limits: Limits | None = None) -> None:
        follow_the_environment()
        info = select(selector)
        source = "DMLGPU_DEVICE" if selector is None else "asked for"
        selector = setting("DMLGPU_DEVICE") if selector is None else selector
        reason = "the best there is" if selector is None else f"{source}: {selector!r}"
        logger.info("device %d, %s, driver %s (%s)", info.index, info.name, info.driver, reason)
        self.info: DeviceInfo = info
        self.limits: Limits = device_limits(info) if limits is None else limits
        self._engine = Engine(info)
        self._operators: OrderedDict[tuple[OperatorDesc, ExecutionFlags, str | None], CompiledOperator] = OrderedDict()
        # The buffers for calls with arrays of each live operator that `compile` returned.
        self._compiled: weakref.WeakKeyDictionary[CompiledOperator, set[Buffer[KpBuffer]]] = weakref.WeakKeyDictionary()

    def compile(
        self, desc: OperatorDesc, *, flags: ExecutionFlags = ExecutionFlags.NONE, kernel: str | None = None
    ) -> CompiledOperator:
        """Plans an operator for this device, and creates the pipelines and buffers for its first call with arrays now.

        Operators are cached: compiling an equal descriptor again returns the same operator. The buffers for calls with
        arrays are kept as long as the operators live; operators share them.

        Args:
            desc: any operator descriptor.
            flags: EXACT_SUMS rounds sums of floats only once.
            kernel: the name of a kernel to use instead of the chosen one, to isolate a fault. Problems of other domains
                keep their usual kernels.

        Raises:
            DescriptorError: the kernel cannot compute the operator, or not with these flags; or the plan would have too
                many dispatches.
            OutOfMemoryError: the operator's tensors do not fit the device.
        """
        with self._engine.lock:
            compiled = self.planned(desc, flags=flags, kernel=kernel)
            if compiled not in self._compiled:
                self._compiled[compiled] = compiled._prepare()
                self._keep_buffers()
            return compiled

    def _keep_buffers(self) -> None:
        """Makes the allocator keep the buffers of all live operators of `compile`."""
        self._engine.keep(set().union(*self._compiled.values()))

    def planned(
        self, desc: OperatorDesc, *, flags: ExecutionFlags = ExecutionFlags.NONE, kernel: str | None = None
    ) -> CompiledOperator:
        """As `compile`, but the first call creates pipelines and buffers, and no buffers are kept for the operator."""
        if not isinstance(desc, OperatorDesc):
            raise TypeError(f"{desc!r} is not an operator descriptor")
        with self._engine.lock:
            self._engine.kompute.check_usable()
            key = desc, flags, kernel
            compiled = self._operators.pop(key, None) or CompiledOperator(self, desc, flags, kernel)
            self._operators[key] = compiled
            if len(self._operators) > _OPERATORS:
                self._operators.popitem(last=False)
            return compiled

    def supports(self, desc: OperatorDesc, *, flags: ExecutionFlags = ExecutionFlags.NONE) -> Support:
        """Whether this device can compute an operator, and the reason if it cannot. Nothing is compiled or allocated.

        Args:
            desc: any operator descriptor.
            flags: as for `compile`.

        Example:
            >>> import dmlgpu
            >>> desc = dmlgpu.ArgmaxOperatorDesc.of(dmlgpu.TensorDesc(dmlgpu.DataType.FLOAT32, (3, 4)))
            >>> with dmlgpu.Device() as device:
            ...     print(bool(device.supports(desc)))
            True
        """
        try:
            self.planned(desc, flags=flags)
        except (DescriptorError, OutOfMemoryError) as error:
            return Support(str(error))
        return Support()

    def run(
        self,
        desc: OperatorDesc,
        inputs: Sequence[Any],
        out: Sequence[DeviceTensor] | None = None,
        *,
        flags: ExecutionFlags = ExecutionFlags.NONE,
        verify: bool = False,
        operators: MutableMapping[int, CompiledOperator] | None = None,
    ) -> Any:
        """Plans an operator, unless it is cached, and calls it: in a profile both are one call.

        Args:
            desc: the operator.
            inputs: as for `CompiledOperator`.
            out: as for `CompiledOperator`.
            flags: as for `compile`.
            verify: whether to compare the outputs with the oracle's even if DMLGPU_VERIFY is off.
            operators: the caller's operators of this descriptor, by the `id` of their device. A look-up there is faster
                than by the descriptor, whose hash costs most of the time of a look-up.
        """
        with self._engine.kompute.timed("call", type(desc).__name__, desc):
            operator = None if operators is None else operators.get(id(self))
            if operator is None:
                operator = self.planned(desc, flags=flags)
                if operators is not None:
                    operators[id(self)] = operator
            return operator.launch(inputs, out, verify)

    @contextmanager
    def batch(self) -> Iterator[None]:
        """A block whose calls with device tensors are submitted together.

        The calls are computed at the end of the block, even if an exception ends it; earlier, if memory runs short or
        there are too many calls. If Ctrl-C stops the computation, the rest is never computed. Reading a tensor in the
        block is safe: all calls so far are computed first. Calls from other threads join the batch. Blocks may be
        nested; the end of the outermost block submits the calls. If the driver refuses a call, the error is raised, and
        the next use of the device tries again.

        Dependent calls share a submission, with barriers between them; with the original `kp`, which lacks these
        barriers, each is a submission, as without a batch.

        Raises:
            DeviceError: the device is closed.
        """
        batch = object()
        try:
            with self._engine.lock:
                self._engine.kompute.check_usable()
                self._engine.batches.add(batch)
            yield
        finally:
            # First, in a call that Ctrl-C cannot interrupt: otherwise later calls could stay pending forever.
            self._engine.batches.discard(batch)
            with self._engine.lock:
                if not self._engine.batches:
                    self._engine.submit_pending()

    @contextmanager
    def profile(self) -> Iterator[Profile]:
        """A block whose calls are timed, in all threads: print the profile, or save its trace.

        In the block each dispatch and each copy is a separate submission, which costs 30 to 60 us: a call of several
        dispatches takes longer than without a profile. Results are the same. Pending calls of a batch run before the
        block begins, and those that follow before it ends.

        Raises:
            DeviceError: the device is closed, or has another active profile.
        """
        profile = Profile(f"device {self.info.index}: {self.info.name}")
        try:
            with self._engine.lock:
                self._engine.kompute.check_usable()
                self._engine.begin_profile(profile)
            yield profile
        finally:
            try:
                with self._engine.lock:
                    self._engine.complete_profile(profile)
            finally:
                # An assignment: Ctrl-C could interrupt a call, and later calls would be timed forever.
                if self._engine.kompute.profile is profile:
                    self._engine.kompute.profile = None
                profile._is_active = False

    def cache_info(self) -> CacheInfo:
        """What the device keeps for later calls.

        Raises:
            DeviceError: the device is closed.
        """
        with self._engine.lock:
            self._engine.kompute.check_usable()
            memory = self._engine.memory
            return CacheInfo(
                operators=len(self._operators),
                pipelines=self._engine.kompute.pipeline_count,
                tensor_bytes=memory.used_bytes,
                buffer_bytes=memory.empty_bytes,
                buffer_bytes_limit=memory.keep,
            )

    def clear_cache(self) -> None:
        """Frees all that the device keeps for later calls. Tensors stay, and operators still work, with new pipelines.

        Raises:
            DeviceError: the device is closed.
        """
        with self._engine.lock:
            self._engine.kompute.check_usable()
            self._engine.submit_pending()
            self._operators.clear()
            self._engine.kompute.forget()
            self._keep_buffers()
            self._engine.free_buffers()

    def tensor(self, x: Any, desc: TensorDesc | None = None) -> DeviceTensor:
        """A tensor in the device's memory with the elements of an array.

        Args:
            x: anything that NumPy can view; bool becomes UINT8.
            desc: the layout in memory, with x's type and sizes; None: packed.

        Raises:
            DescriptorError: DirectML lacks x's type or shape, or `desc` has another.
            OutOfMemoryError: the tensor does not fit the device.
        """
        array = as_array(x, "TensorDesc.of")
        if desc is None and array.ndim == 0:
            # DirectML has no tensors without dimensions.
            return self.tensor(array.reshape(1)).reshape(())
        if desc is None:
            desc = TensorDesc(DataType.of(array.dtype), array.shape)
        elif not isinstance(desc, TensorDesc):
            raise TypeError(f"desc must be a TensorDesc, not {desc!r}")
        return of_array(self, desc, array, "TensorDesc")

    def tensor_from_bytes(self, buffer: Any, desc: TensorDesc) -> DeviceTensor:
        """A tensor with the bytes of a whole buffer, including gaps.

        Args:
            buffer: an object with `desc.size_in_bytes` bytes, such as bytes or an array.
            desc: the layout.

        Raises:
            DescriptorError: the buffer has another size.
            OutOfMemoryError: the tensor does not fit the device.
        """
        if isinstance(buffer, np.ndarray):
            buffer = as_array(buffer, "TensorDesc.of").data
        memory = np.frombuffer(buffer, np.uint8)
        if memory.size != desc.size_in_bytes:
            raise DescriptorError(
                f"TensorDesc.total_tensor_size_in_bytes: desc has {desc.size_in_bytes} bytes, the data {memory.size}"
            )
        return of_bytes(self, desc, memory)

    @property
    def is_open(self) -> bool:
        """Whether the device was neither closed nor lost."""
        return self._engine.kompute.is_open

    def close(self) -> None:
        """Frees the device; uses of its tensors and operators then raise a DeviceError. A second call does nothing.

        Calls that a batch has not submitted are never computed.

        Raises:
            DeviceError: a signal handler or finalizer calls it during a call of the same thread.
        """
        self._engine.close()

    def __enter__(self) -> Device:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> str:
        raise TypeError(f"{self!r} cannot be copied or pickled; open Device({self.info.index}) there")

    def __repr__(self) -> str:
        return f"<dmlgpu.Device {self._engine.kompute.label}>"


@dataclass(frozen=True)
class Support:
    """The result of `Device.supports`: true if the device can compute the operator."""

    why_not: str = ""
    """The message of the error that planning raises; empty if it raises none."""

    def __bool__(self) -> bool:
        return not self.why_not


@dataclass(frozen=True)
class CacheInfo:
    """What a device keeps for later calls, and the memory of its tensors."""

    operators: int
    """Number of cached operators, at most 256: plans, in host memory."""
    pipelines: int
    """Number of cached pipelines, at most 256, in the driver's memory: up to 1 MiB each on lavapipe, 0.3 MiB on
    SwiftShader."""
    tensor_bytes: int
    """Bytes of device memory that tensors use."""
    buffer_bytes: int
    """Bytes of device memory in empty buffers. On CPU drivers, pages that were never written use no memory."""
    buffer_bytes_limit: int
    """Maximum of `buffer_bytes` between calls: an eighth of the memory heap that the host maps, or the bytes of the
    buffers of all live operators of `Device.compile`, if these are more."""


# Devices that calls share: opened once

# Allowed values of `device=`; None: the device that DMLGPU_DEVICE names, or the best device.
Selector = Device | int | str | None

_devices: dict[int | str | None, Device] = {}
_devices_lock = threading.Lock()
if hasattr(os, "register_at_fork"):
    # No fork while a device is being opened: the child would wait forever for the lock, or in the driver.
    os.register_at_fork(
        before=_devices_lock.acquire, after_in_parent=_devices_lock.release, after_in_child=_devices_lock.release
    )


def open_device(selector: Selector = None) -> Device:
    """The device for the argument `device` of a function; selectors of the same device share a `Device`.

    A device that was closed or lost is opened again.

    Args:
        selector: a Device, which is returned; or what `Device` takes.

    Raises:
        DeviceError: there is no such device. TypeError: the selector is neither an integer nor a string.
    """
    if isinstance(selector, Device):
        return selector
    key = setting("DMLGPU_DEVICE") if selector is None else selector
    if not (key is None or isinstance(key, str)):
        key = index_of(key)  # refuses True, which would be the key 1
    with _devices_lock:
        device = _devices.get(key)
        if device is None or not device.is_open:
            others = [other for other in _devices.values() if other.is_open]
            # `select` is slow, because it lists the devices: skip it if no open device can be the same.
            info = select(selector) if others else None
            same = (other for other in others if other.info == info)
            device = _devices[key] = next(same, None) or Device(selector)
        return device
