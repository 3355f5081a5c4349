"""Devices, and the operators that they remember."""

from __future__ import annotations

import logging
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

from dmlgpu.descriptors import conventions
from dmlgpu.descriptors.arrays import Array, as_array
from dmlgpu.descriptors.dtypes import DataType
from dmlgpu.descriptors.operator import OperatorDesc
from dmlgpu.descriptors.tensor import TensorDesc
from dmlgpu.errors import DescriptorError
from dmlgpu.lowering.limits import Limits
from dmlgpu.runtime.compiled import CompiledOperator, to_caller
from dmlgpu.runtime.drivers import DeviceInfo, select
from dmlgpu.runtime.engine import Engine
from dmlgpu.runtime.kompute import KpBuffer
from dmlgpu.runtime.log import follow_the_environment, logger
from dmlgpu.runtime.memory import Buffer
from dmlgpu.runtime.profile import Profile, timed
from dmlgpu.runtime.settings import setting
from dmlgpu.runtime.tensor import DeviceTensor, check_owns, of_array, of_bytes, view_of
from dmlgpu.runtime.tuning import device_limits

# Compiled operators that a device remembers.
_OPERATORS = 256


class Device:
    """A Vulkan device, open until `close()` or the end of a `with` block.

    Args:
        selector: an index, part of a name or a UUID of `devices()`, in upper or lower case; part of a driver's name
            where no device has it, lavapipe as llvmpipe. None: the environment variable DMLGPU_DEVICE; without it the
            best device: discrete, integrated, virtual, llvmpipe, SwiftShader.
        limits: limits lower than the device's own, for tests.

    Raises:
        DeviceError: there is no Vulkan loader, no driver, or no such device; the message lists what there is.
        SettingError: the environment variable DMLGPU_LOG has a value that is not allowed.
    """

    def __init__(self, selector: int | str | None = None, *, limits: Limits | None = None) -> None:
        follow_the_environment()
        info = select(selector)
        wanted = setting("DMLGPU_DEVICE") if selector is None else selector
        asked = "DMLGPU_DEVICE" if selector is None else "asked for"
        why = "the best there is" if wanted is None else f"{asked}: {wanted!r}"
        logger.info("device %d, %s, driver %s (%s)", info.index, info.name, info.driver, why)
        self.info: DeviceInfo = info
        self.limits: Limits = device_limits(info) if limits is None else limits
        self._engine = Engine(info)
        self._operators: OrderedDict[tuple[OperatorDesc, str | None], CompiledOperator] = OrderedDict()
        # Of what `compile` gave and is alive: the buffers that calls with arrays need.
        self._compiled: weakref.WeakKeyDictionary[CompiledOperator, set[Buffer[KpBuffer]]] = weakref.WeakKeyDictionary()

    def compile(self, desc: OperatorDesc, *, kernel: str | None = None) -> CompiledOperator:
        """An operator for this device: planned and its pipelines built now, called many times.

        Operators are remembered: compiling an equal descriptor again returns the same one. The buffers that their
        calls with arrays need are kept as long as they live; operators share them.

        Args:
            desc: any operator descriptor.
            kernel: to find a fault, the name of another kernel than the one that is chosen; what it does not cover
                takes the usual one.

        Raises:
            DescriptorError: the kernel cannot compute the operator, as the message says; or it takes more
                dispatches than a plan may have.
            OutOfMemoryError: its tensors do not fit the device.
        """
        with self._engine.lock:
            compiled = self._operator(desc, kernel)
            if compiled not in self._compiled:
                self._compiled[compiled] = compiled._prepare()
                self._keep_buffers()
            return compiled

    def _keep_buffers(self) -> None:
        self._engine.keep(set().union(*self._compiled.values()))

    def _operator(self, desc: OperatorDesc, kernel: str | None = None) -> CompiledOperator:
        """A remembered operator, or one that was only planned."""
        if not isinstance(desc, OperatorDesc):
            raise TypeError(f"{desc!r} is not an operator descriptor")
        with self._engine.lock:
            self._engine.kompute.check_usable()
            compiled = self._operators.pop((desc, kernel), None)
            level, how = (logging.DEBUG, "found") if compiled else (logging.INFO, "planned")
            if compiled is None:
                with timed(self._engine.kompute.profile, "plan", type(desc).__name__, desc):
                    compiled = CompiledOperator(self, desc, kernel)
            self._operators[desc, kernel] = compiled
            if logger.isEnabledFor(level):
                logger.log(level, "%s: %s", how, compiled.plan.summary)
            if len(self._operators) > _OPERATORS:
                self._operators.popitem(last=False)
            return compiled

    def _call(self, call: conventions.Call, *arguments: DeviceTensor | Array) -> Any:
        """The results of a function's call: device tensors where all arguments are, else arrays; one, or a tuple."""
        with timed(self._engine.kompute.profile, "call", type(call.desc).__name__, call.desc):
            return self._results(call, arguments)

    def _results(self, call: conventions.Call, arguments: Sequence[DeviceTensor | Array]) -> Any:
        inputs: list[DeviceTensor | Array] = []
        for x, source in zip(arguments, call.desc.inputs, strict=True):
            if isinstance(x, DeviceTensor):
                check_owns(self, x)
                inputs.append(view_of(x, source, source.sizes))
            else:
                inputs.append(x.reshape(source.sizes))
        targets = [
            view_of(target, desc, call.shape)
            for target, desc in zip(self._operator(call.desc)._compute(inputs), call.tensors, strict=True)
        ]
        results = to_caller(targets, inputs)
        # As NumPy: a number, not an array without dimensions.
        return results[()] if isinstance(results, np.ndarray) and call.shape == () else results

    @contextmanager
    def batch(self) -> Iterator[None]:
        """A block whose calls with device tensors are submitted together.

        They are computed at the end of the block, also where an exception ends it, or before that where memory or the
        count of them makes it necessary. Where Ctrl-C ends the computing, what is left is never computed. Reading a
        tensor in the block is safe: it has all calls so far computed. So are calls from other threads; they join the
        batch. Blocks may be nested; the outermost counts. What a driver refuses is raised, and is tried again by what
        needs the device next.

        Calls that depend on each other share a submission only on devices whose memory the host does not see, and
        where the tensors between them have at most 64 KiB: no other barrier is to be had from Kompute. Otherwise they
        are submitted one after the other, as without a batch.

        Raises:
            DeviceError: the device is closed.
        """
        batch = object()
        try:
            with self._engine.lock:
                self._engine.kompute.check_usable()
                self._engine.begin_batch(batch)
            yield
        finally:
            with self._engine.lock:
                self._engine.end_batch(batch)

    @contextmanager
    def profile(self) -> Iterator[Profile]:
        """A block whose calls are timed, in all threads: print the profile, or save its trace.

        While it goes on, each dispatch and each copy is a submission of its own, which costs 30 to 60 us: a call of
        several dispatches takes longer than without a profile. Results are the same. What a batch has put off is run
        before the block begins, and once more before it ends.

        Raises:
            DeviceError: the device is closed, or another profile of it goes on.
        """
        profile = Profile(f"device {self.info.index}: {self.info.name}")
        try:
            with self._engine.lock:
                self._engine.kompute.check_usable()
                self._engine.begin_profile(profile)
            yield profile
        finally:
            with self._engine.lock:
                self._engine.end_profile(profile)

    def cache_info(self) -> CacheInfo:
        """What is kept for calls to come.

        Raises:
            DeviceError: the device is closed.
        """
        with self._engine.lock:
            self._engine.kompute.check_usable()
            allocators = self._engine.allocators
            return CacheInfo(
                operators=len(self._operators),
                pipelines=self._engine.kompute.pipeline_count,
                tensor_bytes=sum(allocator.used_bytes for allocator in allocators),
                buffer_bytes=sum(allocator.empty_bytes for allocator in allocators),
                buffer_bytes_limit=sum(allocator.keep for allocator in allocators),
            )

    def clear_cache(self) -> None:
        """Frees all that is kept for calls to come. Tensors stay, and operators work: what they need is made anew.

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
            DescriptorError: a type or shape that DirectML lacks, or that `desc` contradicts.
            OutOfMemoryError: it does not fit.
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
        """A tensor whose whole buffer, gaps included, is given.

        Args:
            buffer: `desc.size_in_bytes` bytes.
            desc: the layout.

        Raises:
            DescriptorError: a buffer of another size.
            OutOfMemoryError: it does not fit.
        """
        if isinstance(buffer, np.ndarray):
            buffer = as_array(buffer, "TensorDesc.of").data
        given = np.frombuffer(buffer, np.uint8)
        if given.size != desc.size_in_bytes:
            raise DescriptorError(
                f"TensorDesc.total_tensor_size_in_bytes: {desc.size_in_bytes} bytes are described, {given.size} given"
            )
        return of_bytes(self, desc, given)

    @property
    def is_open(self) -> bool:
        """Whether the device was neither closed nor lost."""
        return self._engine.is_open

    def close(self) -> None:
        """Frees the device; its tensors and operators raise DeviceError from now on. A second call does nothing.

        Calls that a batch has not submitted are never computed.

        Raises:
            DeviceError: called in the middle of a call of the same thread, by a signal handler or a finalizer.
        """
        self._engine.close()

    def __enter__(self) -> Device:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> str:
        raise TypeError(f"{self!r} cannot be copied or pickled; open Device({self.info.index}) where it is needed")

    def __repr__(self) -> str:
        return f"<dmlgpu.Device {self._engine.kompute.label}>"


@dataclass(frozen=True)
class CacheInfo:
    """What a device keeps for calls to come, and what its tensors take."""

    operators: int
    """Operators that are remembered, 256 at most: plans, in the host's memory."""
    pipelines: int
    """Pipelines, 256 at most, in the driver's memory: up to 1 MiB each on lavapipe, and 0.3 MiB on SwiftShader."""
    tensor_bytes: int
    """Bytes of the device's memory that tensors are in."""
    buffer_bytes: int
    """Bytes of the device's memory in buffers that no tensor is in; on CPU drivers part of them may never have been
    written to, and takes no memory."""
    buffer_bytes_limit: int
    """The most that `buffer_bytes` can be between calls: an eighth of the memory heap that the host sees, or the
    buffers of the operators of `Device.compile` that are alive."""
