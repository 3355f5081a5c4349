"""Devices, the tensors in their memory, and operators compiled for them."""

from __future__ import annotations

import logging
import math
import operator
import os
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from dmlgpu.comparison import check_outputs
from dmlgpu.descriptors import conventions
from dmlgpu.descriptors.arrays import Array, as_array
from dmlgpu.descriptors.dtypes import DataType
from dmlgpu.descriptors.operator import OperatorDesc
from dmlgpu.descriptors.reduction import ArgmaxOperatorDesc, ArgminOperatorDesc, ArgOperatorDesc
from dmlgpu.descriptors.tensor import TensorDesc, integers
from dmlgpu.descriptors.words import Bytes, check, elements, write
from dmlgpu.errors import DescriptorError, DeviceError, OutOfMemoryError
from dmlgpu.lowering.limits import Limits
from dmlgpu.lowering.lower import lower
from dmlgpu.lowering.plan import Dispatch, Role
from dmlgpu.runtime.drivers import DeviceInfo, select
from dmlgpu.runtime.kompute import Kompute, KpBuffer, KpStep, first_pace
from dmlgpu.runtime.log import follow_the_environment, logger
from dmlgpu.runtime.memory import ALIGNMENT, Allocator, Buffer, Slice
from dmlgpu.runtime.schedule import RECORDED_STEPS, RELAY_BYTES, SUBMISSION_SECONDS
from dmlgpu.runtime.settings import setting, switch

# kp counts the bytes of a buffer in 32 bits.
_KP_MAX_BYTES = (1 << 32) - ALIGNMENT
# A pipeline is bound to buffers, and making one takes 50 to 250 ms: tensors that share a buffer share pipelines. On a
# CPU driver memory that nobody writes to costs nothing (see kompute.py) but 1 ms for each MiB when a buffer is made:
# buffers have room for many tensors there, and each has more than the last. On a GPU that shares the host's memory the
# room left over is less than 1 MiB. Elsewhere each tensor has a buffer of its own, as Kompute moves whole buffers
# between host and device; tensors of like sizes take the same one, one after the other.
_CPU_STEP, _CPU_GROWTH, _CPU_MOST = 24 << 20, 4, 96 << 20
_SHARED_STEP = 1 << 20
_OWN_STEP = RELAY_BYTES
# Workgroups of every dispatch. A GPU needs many to be busy. On a CPU driver a group runs on one core, and every idle
# group costs time: with two cores, ARGMAX of (8, 100) takes 85 us with 8 groups and 160 with 64 on lavapipe, 250 and
# 1300 on SwiftShader. ARGMAX of (4096, 1024) and pooling are as fast with 8 groups as with 64.
_CPU_GROUPS_PER_CORE = 4
_GPU_GROUPS = 4096
# Compiled operators that a device remembers.
_OPERATORS = 256
# Sets of places where an operator finds its tensors, and remembers what it does there.
_PLACES = 8


class Device:
    """A Vulkan device, open until `close()` or the end of a `with` block.

    Args:
        selector: an index, part of a name or a UUID of `devices()`, in upper or lower case. None: the environment
            variable DMLGPU_DEVICE; without it the best device: discrete, integrated, virtual, llvmpipe, SwiftShader.
        limits: limits lower than the device's own, for tests.

    Raises:
        DeviceError: there is no Vulkan loader, no driver, or no such device; the message lists what there is.
        SettingError: the environment variable DMLGPU_LOG has a value that is not allowed.
    """

    def __init__(self, selector: int | str | None = None, *, limits: Limits | None = None) -> None:
        follow_the_environment()
        wanted = setting("DMLGPU_DEVICE") if selector is None else selector
        info = select(wanted)
        asked = "DMLGPU_DEVICE" if selector is None else "asked for"
        why = "the best there is" if wanted is None else f"{asked}: {wanted!r}"
        logger.info("device %d, %s, driver %s (%s)", info.index, info.name, info.driver, why)
        self.info: DeviceInfo = info
        self.limits: Limits = device_limits(info) if limits is None else limits
        self._kompute = Kompute(info)
        self._memory = _tensor_memory(info, self._kompute)
        self._relays = self._memory
        if info.unified:
            self._relays = Allocator(
                self._kompute.create_relay,
                self._kompute.destroy_buffer,
                shared=False,
                step=RELAY_BYTES,
                most=RELAY_BYTES,
                keep=4 * RELAY_BYTES,
            )
        self._keep = self._memory.keep
        self._operators: OrderedDict[OperatorDesc, CompiledOperator] = OrderedDict()
        self._compiled: weakref.WeakSet[CompiledOperator] = weakref.WeakSet()
        self._batches: set[object] = set()
        self._pending: list[KpStep] = []
        self._held: list[_Segments] = []

    def compile(self, desc: OperatorDesc) -> CompiledOperator:
        """An operator for this device: planned and its pipelines built now, called many times.

        Operators are remembered: compiling an equal descriptor again returns the same one. The buffers that their
        calls with arrays need are kept as long as they live; operators share them.

        Args:
            desc: any operator descriptor.

        Raises:
            OutOfMemoryError: its tensors do not fit the device.
        """
        with self._kompute.lock:
            compiled = self._operator(desc)
            if compiled not in self._compiled:
                compiled._prepare()
                self._compiled.add(compiled)
                self._keep_buffers()
            return compiled

    def _keep_buffers(self) -> None:
        buffers = set().union(*(compiled._buffers for compiled in self._compiled))
        self._memory.keep = max(self._keep, sum(buffer.size for buffer in buffers))

    def _operator(self, desc: OperatorDesc) -> CompiledOperator:
        """A remembered operator, or one that was only planned."""
        if not isinstance(desc, OperatorDesc):
            raise TypeError(f"{desc!r} is not an operator descriptor")
        with self._kompute.lock:
            self._kompute.check_usable()
            compiled = self._operators.pop(desc, None)
            level, how = (logging.DEBUG, "found") if compiled else (logging.INFO, "planned")
            compiled = compiled or CompiledOperator(self, desc)
            self._operators[desc] = compiled
            if logger.isEnabledFor(level):
                logger.log(level, "%s: %s", how, compiled.plan.summary)
            if len(self._operators) > _OPERATORS:
                self._operators.popitem(last=False)
            return compiled

    def _call(self, call: conventions.Call, x: DeviceTensor | Array) -> Any:
        """The results of a function's call with x: device tensors for a device tensor, else arrays; one, or a tuple."""
        (source,) = call.desc.inputs
        if isinstance(x, DeviceTensor):
            self._check_owns(x)
            x = x._sharing(source, source.sizes)
        else:
            x = x.reshape(source.sizes)
        targets = [
            target._sharing(conventions.packed(call.shape, data_type), call.shape)
            for target, data_type in zip(self._operator(call.desc)._compute((x,)), call.data_types, strict=True)
        ]
        results = _returned(targets, (x,))
        # As NumPy: a number, not an array without dimensions.
        return results[()] if isinstance(results, np.ndarray) and call.shape == () else results

    def _check_owns(self, tensor: DeviceTensor) -> None:
        if tensor.device is not self:
            again = ": the same one, opened another time" if tensor.device.info == self.info else ""
            raise DeviceError(f"{tensor!r} is on another device than {self!r}{again}")

    @contextmanager
    def batch(self) -> Iterator[None]:
        """A block whose calls with device tensors are submitted together.

        They are computed at the end of the block, also where an exception ends it, or before that where memory or the
        count of them makes it necessary. Where Ctrl-C ends the computing, what is left is never computed. Reading a
        tensor in the block is safe: it has all calls so far computed. So are calls from other threads; they join the
        batch. Blocks may be nested; the outermost counts.

        Calls that depend on each other share a submission only on devices whose memory the host does not see, and
        where the tensors between them have at most 64 KiB: no other barrier is to be had from Kompute. Otherwise they
        are submitted one after the other, as without a batch.

        Raises:
            DeviceError: the device is closed.
        """
        batch = object()
        try:
            with self._kompute.lock:
                self._kompute.check_usable()
                self._batches.add(batch)
            yield
        finally:
            with self._kompute.lock:
                self._batches.discard(batch)
                if not self._batches:
                    self._submit_pending()

    def _submit(self, steps: tuple[KpStep, ...], held: Iterable[_Segments]) -> None:
        """Runs steps now, or in a batch later; what they need is held until then."""
        if not self._batches:
            self._kompute.submit(steps)
            return
        self._pending += steps
        self._held += held
        if len(self._pending) >= RECORDED_STEPS:
            self._submit_pending()

    def _submit_pending(self) -> None:
        if not self._pending:
            return
        try:
            self._kompute.check_usable()
            self._kompute.submit(tuple(self._pending))
        finally:
            self._pending.clear()
            self._held.clear()

    def _allocate(self, memory: Allocator[KpBuffer], sizes: Iterable[int]) -> _Segments:
        segments = _Segments(memory)
        for size in sizes:
            try:
                segments.slices.append(memory.allocate(size))
            except OutOfMemoryError:
                self._submit_pending()
                self._free_buffers()
                segments.slices.append(memory.allocate(size))
        return segments

    def _free_buffers(self) -> None:
        for memory in (self._memory, self._relays):
            memory.collect()
            memory.trim(0)

    def cache_info(self) -> CacheInfo:
        """What is kept for calls to come.

        Raises:
            DeviceError: the device is closed.
        """
        with self._kompute.lock:
            self._kompute.check_usable()
            memories = {self._memory, self._relays}
            return CacheInfo(
                operators=len(self._operators),
                pipelines=self._kompute.pipeline_count,
                tensor_bytes=sum(memory.used_bytes for memory in memories),
                buffer_bytes=sum(memory.empty_bytes for memory in memories),
                buffer_bytes_limit=sum(memory.keep for memory in memories),
            )

    def clear_cache(self) -> None:
        """Frees all that is kept for calls to come. Tensors stay, and operators work: what they need is made anew.

        Raises:
            DeviceError: the device is closed.
        """
        with self._kompute.lock:
            self._kompute.check_usable()
            self._submit_pending()
            self._operators.clear()
            self._kompute.forget()
            self._keep_buffers()
            self._free_buffers()

    def tensor(self, x: Any, desc: TensorDesc | None = None) -> DeviceTensor:
        """A tensor in the device's memory with the elements of an array.

        Args:
            x: anything that NumPy can view.
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
        tensor = DeviceTensor(self, desc)
        tensor._write(array, "TensorDesc")
        return tensor

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
        tensor = DeviceTensor(self, desc)
        tensor._write_bytes(given)
        return tensor

    @property
    def is_open(self) -> bool:
        """Whether the device was neither closed nor lost."""
        return self._kompute.is_open

    def close(self) -> None:
        """Frees the device; its tensors and operators raise DeviceError from now on. A second call does nothing.

        Calls that a batch has not submitted are never computed.

        Raises:
            DeviceError: called in the middle of a call of the same thread, by a signal handler or a finalizer.
        """
        self._kompute.close()
        with self._kompute.lock:
            self._pending.clear()
            self._held.clear()

    def __enter__(self) -> Device:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> str:
        raise TypeError(f"{self!r} cannot be copied or pickled; open Device({self.info.index}) where it is needed")

    def __repr__(self) -> str:
        return f"<dmlgpu.Device {self.info.index}: {self.info.name}>"


def device_limits(info: DeviceInfo) -> Limits:
    """What plans for a device keep to."""
    largest = min(info.max_storage_buffer_range, info.max_memory_allocation_size, _KP_MAX_BYTES)
    on_cpu = info.type == "cpu"
    group_size = min(64, info.max_group_size)
    group_count = min(_CPU_GROUPS_PER_CORE * _cores() if on_cpu else _GPU_GROUPS, info.max_group_count)
    return Limits(
        segment_bytes=largest // ALIGNMENT * ALIGNMENT,
        group_size=group_size,
        group_count=group_count,
        bundle=info.subgroup_size if on_cpu else group_size * group_count,
        dispatch_elements=1 << int(math.log2(SUBMISSION_SECONDS / first_pace(info))),
        unrolls="SwiftShader" not in info.driver,
        cooperating=not on_cpu,
    )


def _cores() -> int:
    """The processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _tensor_memory(info: DeviceInfo, kompute: Kompute) -> Allocator[KpBuffer]:
    heap, largest = info.heaps[info.host_heap], device_limits(info).segment_bytes
    step, growth, most = _SHARED_STEP if info.unified else _OWN_STEP, 0, largest
    if info.unified and info.type == "cpu":
        step, growth, most = min(_CPU_STEP, heap // 16), _CPU_GROWTH, min(_CPU_MOST, heap // 16, largest)
    return Allocator(
        kompute.create_buffer,
        kompute.destroy_buffer,
        shared=info.unified,
        step=step,
        growth=growth,
        most=most,
        keep=heap // 8,
    )


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


class _Segments:
    """Slices of buffers, which go back to their allocator when this is dropped."""

    slices: list[Slice[KpBuffer]] = []  # noqa: RUF012

    def __init__(self, memory: Allocator[KpBuffer]) -> None:
        self.memory = memory
        self.slices = []

    def __del__(self) -> None:
        for part in self.slices:
            self.memory.release(part)


class DeviceTensor:
    """A tensor in the memory of a device; nothing is downloaded until asked. Made by `Device.tensor` and by operators.

    NumPy's functions take it: they download it, but argmax and argmin run on the device. Operators of Python do not:
    `numpy()` says where a copy is made. It hashes by identity.
    """

    # Arrays leave `array + tensor` to the methods here.
    __array_priority__ = 1000

    def __init__(self, device: Device, desc: TensorDesc) -> None:
        self._device, self._desc, self._shape = device, desc, desc.sizes
        with device._kompute.lock:
            device._kompute.check_usable()
            device._kompute.check_fits(desc.size_in_bytes)
            self._segments = device._allocate(device._memory, device.limits.segments(desc))

    def _shares_memory(self, other: DeviceTensor) -> bool:
        return any(
            a.buffer is b.buffer and a.offset < b.offset + b.size and b.offset < a.offset + a.size
            for a in self._segments.slices
            for b in other._segments.slices
        )

    def _sharing(self, desc: TensorDesc, shape: tuple[int, ...]) -> DeviceTensor:
        """Another tensor in the same memory, of which `desc` needs no more than there is."""
        other = object.__new__(DeviceTensor)
        other._device, other._desc, other._shape, other._segments = self.device, desc, shape, self._segments
        return other

    @property
    def device(self) -> Device:
        """Where it is."""
        return self._device

    @property
    def desc(self) -> TensorDesc:
        """Its type and layout."""
        return self._desc

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes as NumPy counts them: those of the descriptor, or () for one element."""
        return self._shape

    @shape.setter
    def shape(self, shape: Any) -> None:
        raise AttributeError(f"the shape of {self!r} stays as it is; .reshape() gives another tensor")

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy type of an element."""
        return self.desc.data_type.numpy

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.desc.element_count

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, gaps not counted."""
        return self.size * self.itemsize

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a device tensor without dimensions")
        return self.shape[0]

    def reshape(self, *shape: Any) -> DeviceTensor:
        """The same elements and the same memory under another shape.

        Args:
            shape: sizes, or a sequence of them; one may be -1, for as many as there are elements left.

        Raises:
            DescriptorError: other sizes than the elements fill, more than 8 of them, or a tensor that is not packed.
        """
        sizes = integers("DeviceTensor", "shape", shape[0] if len(shape) == 1 and np.iterable(shape[0]) else shape)
        rest = math.prod(size for size in sizes if size != -1)
        if sizes.count(-1) == 1 and rest > 0 and self.size % rest == 0:
            sizes = tuple(self.size // rest if size == -1 else size for size in sizes)
        if math.prod(sizes) != self.size or min(sizes, default=1) < 1:
            raise DescriptorError(f"DeviceTensor.shape: {sizes} is not allowed; {self!r} has {self.size} elements")
        if not self.desc.is_packed:
            raise DescriptorError(f"DeviceTensor.shape: {self!r} is not packed; copy it with .numpy() and reshape that")
        return self._sharing(replace(self.desc, sizes=sizes or (1,), strides=None), sizes)

    def numpy(self) -> Array:
        """The elements, as a packed array of its own.

        Raises:
            DeviceError: the device is closed.
        """
        with self.device._kompute.lock:
            views = self._download()
            memory = views[0] if len(views) == 1 else np.concatenate(views)
            packed: Array = elements(self.desc, memory).reshape(self.shape).copy()
        return packed

    def item(self) -> Any:
        """The only element, as a number of Python.

        Raises:
            ValueError: there are several.
        """
        return self.numpy().item()

    def argmax(self, axis: Any = None, out: None = None, **options: Any) -> DeviceTensor:
        """`dmlgpu.argmax` of this tensor, on its device; `out` is there for `np.argmax`, and must be None."""
        return self._arg(ArgmaxOperatorDesc, axis, out, options)

    def argmin(self, axis: Any = None, out: None = None, **options: Any) -> DeviceTensor:
        """`dmlgpu.argmin` of this tensor, on its device; `out` is there for `np.argmin`, and must be None."""
        return self._arg(ArgminOperatorDesc, axis, out, options)

    def _arg(self, kind: type[ArgOperatorDesc], axis: Any, out: Any, options: dict[str, Any]) -> DeviceTensor:
        if out is not None:
            raise TypeError("out must be None: the result is a new device tensor")
        tensor: DeviceTensor = self.device._call(conventions.arg(kind, self.shape, self.desc, axis, **options), self)
        return tensor

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError(f"{self!r} is in the device's memory: an array of it is always a copy")
        return self.numpy() if dtype is None else self.numpy().astype(dtype, copy=False)

    def __dlpack__(self, **options: Any) -> Any:
        if options.get("copy") is False:
            raise BufferError(f"{self!r} is in the device's memory: what is exported is always a copy")
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # kDLCPU: what is exported is a copy there

    if not TYPE_CHECKING:  # which would take every attribute for one that is there

        def __getattr__(self, name: str) -> Any:
            hint = f"; use .numpy() of {self!r}" if name in _ARRAY_ONLY else ""
            raise AttributeError(f"a device tensor has no {name}{hint}", name=name, obj=self)

    def __bool__(self) -> bool:
        return bool(self.numpy())

    def __int__(self) -> int:
        return int(self.numpy())

    def __float__(self) -> float:
        return float(self.numpy())

    def __index__(self) -> int:
        return operator.index(self.numpy())

    __hash__ = object.__hash__

    def __reduce__(self) -> str:
        raise TypeError(f"{self!r} cannot be copied or pickled; .numpy() gives an array, Device.tensor() a new tensor")

    def bytes(self) -> Bytes:
        """The whole buffer, gaps included: `desc.size_in_bytes` bytes.

        Raises:
            DeviceError: the device is closed.
        """
        with self.device._kompute.lock:
            memory: Bytes = np.concatenate(self._download())
        return memory[: self.desc.size_in_bytes]

    def _write(self, x: Array, field: str) -> None:
        """Writes the elements; what lies between them is left as it is only in a tensor of one segment."""
        check(self.desc, field, x)
        if len(self._segments.slices) > 1:
            memory = np.zeros(self.desc.size_in_bytes, np.uint8)
            write(self.desc, field, x, memory)
            self._write_bytes(memory)
            return
        with self.device._kompute.lock:
            (view,) = self._views()
            write(self.desc, field, x, view)
            self._upload()

    def _write_bytes(self, memory: Bytes) -> None:
        with self.device._kompute.lock:
            begin = 0
            for view in self._views():
                part = memory[begin : begin + view.size]
                view[: part.size] = part
                begin += view.size
            self._upload()

    def _views(self) -> list[Bytes]:
        """The bytes of every segment as the host sees them."""
        self.device._kompute.check_usable()
        return [part.buffer.handle.view[part.offset : part.offset + part.size] for part in self._segments.slices]

    def _upload(self) -> None:
        for part in self._segments.slices:
            self.device._kompute.upload(part.buffer.handle)

    def _download(self) -> list[Bytes]:
        """The bytes of every segment, all that was called computed."""
        views = self._views()
        self.device._submit_pending()
        for part in self._segments.slices:
            self.device._kompute.download(part.buffer.handle)
        return views

    def __repr__(self) -> str:
        shape = "" if self.shape == self.desc.sizes else f" of shape {self.shape}"
        return f"<dmlgpu.DeviceTensor {self.desc}{shape} on device {self.device.info.index}: {self.device.info.name}>"


# What arrays have and device tensors do not.
_ARRAY_ONLY = {name for name in dir(np.ndarray) if not name.startswith("_")} - set(dir(DeviceTensor))


def _refused(name: str) -> Callable[..., Any]:
    def method(self: DeviceTensor, *_: object) -> Any:
        raise TypeError(f"a device tensor has no {name}, an array has: use .numpy() of {self!r}")

    method.__name__ = name
    return method


# Python's operators would download in silence, or compare by identity.
for _name in (
    *(f"__{side}{name}__" for side in ("", "r") for name in (
        "add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "divmod", "pow",
        "lshift", "rshift", "and", "or", "xor",
    )),
    *(f"__{name}__" for name in ("eq", "ne", "lt", "le", "gt", "ge", "neg", "pos", "abs", "invert")),
    *(f"__{name}__" for name in ("iter", "getitem", "setitem", "contains")),
):  # fmt: skip
    setattr(DeviceTensor, _name, _refused(_name))


# The segments of every tensor, by its role.
Places = dict[Role, list[list[Slice[KpBuffer]]]]


class CompiledOperator:
    """An operator on a device. Made by `Device.compile`; safe to call from several threads.

    Attributes:
        desc: the descriptor that it was compiled from.
        device: the device.
        plan: what a call does; print it to read it.
    """

    def __init__(self, device: Device, desc: OperatorDesc) -> None:
        self.device = device
        self.desc = desc
        needed = sum(tensor.size_in_bytes for tensor in (*desc.inputs, *desc.outputs))
        # A plan has a number for every segment: none is made of tensors that have too many.
        device._kompute.check_fits(needed)
        self.plan = lower(desc, device.limits)
        device._kompute.check_fits(needed + self.plan.records_bytes)
        self._steps: OrderedDict[tuple[Any, ...], tuple[KpStep, ...]] = OrderedDict()
        self._buffers: set[Buffer[KpBuffer]] = set()

    def _prepare(self) -> None:
        """Makes the buffers that a first call with arrays is given, and the pipelines, which are bound to them."""
        tensors = [DeviceTensor(self.device, desc) for desc in (*self.desc.inputs, *self.desc.outputs)]
        count = len(self.desc.inputs)
        records = self._records()
        if len(self.plan.dispatches) <= RECORDED_STEPS:
            self.device._kompute.prepare(self._recall(tensors[:count], tensors[count:], records))
        segments = [*(tensor._segments for tensor in tensors), records]
        self._buffers = {part.buffer for owned in segments for part in owned.slices}

    def __call__(self, *inputs: Any, out: DeviceTensor | Sequence[DeviceTensor] | None = None) -> Any:
        """Runs the operator.

        Args:
            inputs: one for each input tensor: arrays (anything that NumPy can view), or device tensors of this device.
            out: device tensors to write to, one for each output tensor; bytes between their elements are left as
                they are. None: new tensors.

        Returns:
            The output, or a tuple where there are several: device tensors if all inputs are device tensors,
            packed arrays otherwise.

        Raises:
            DescriptorError: an input or `out` is not as the descriptor says.
            DeviceError: a device tensor of another device, or the device is closed.
            DeviceLostError: the driver did not run the operator, now or in an earlier call.
            OutOfMemoryError: the tensors do not fit the device.
            SettingError: DMLGPU_VERIFY is neither on nor off.
        """
        return self._call(inputs, out)

    def _call(
        self,
        inputs: Sequence[Any],
        out: DeviceTensor | Sequence[DeviceTensor] | None = None,
        verified: bool = False,
    ) -> Any:
        return _returned(self._compute(inputs, out, verified), inputs)

    def _compute(
        self,
        inputs: Sequence[Any],
        out: DeviceTensor | Sequence[DeviceTensor] | None = None,
        verified: bool = False,
    ) -> list[DeviceTensor]:
        """The outputs, compared with the oracle's where `verified` or the environment asks for it."""
        fields = self.desc.input_fields
        if len(inputs) != len(fields):
            takes = "1 input" if len(fields) == 1 else f"{len(fields)} inputs"
            were = "1 was" if len(inputs) == 1 else f"{len(inputs)} were"
            raise TypeError(f"{type(self.desc).__name__} takes {takes}, {were} given")
        verified = verified or switch("DMLGPU_VERIFY")
        begin = time.perf_counter()
        with self.device._kompute.lock:
            self.device._kompute.check_usable()
            sources = [self._source(x, field) for x, field in zip(inputs, fields, strict=True)]
            targets = self._new_targets() if out is None else self._given_targets(out, sources)
            self._run(sources, targets)
            if verified:
                arrays = [tensor.numpy().reshape(tensor.desc.sizes) for tensor in (*sources, *targets)]
                check_outputs(self.plan, tuple(arrays[: len(sources)]), tuple(arrays[len(sources) :]))
            done = "put off" if self.device._batches else "verified" if verified else "computed"
        logger.debug("%s %s in %.3f ms", type(self.desc).__name__, done, 1000 * (time.perf_counter() - begin))
        return targets

    def _source(self, x: Any, field: str) -> DeviceTensor:
        if isinstance(x, DeviceTensor):
            self._check_tensor(x, field)
            return x
        name = f"{type(self.desc).__name__}.{field}"
        array = as_array(x, name)
        tensor = DeviceTensor(self.device, getattr(self.desc, field))
        tensor._write(array, name)
        return tensor

    def _new_targets(self) -> list[DeviceTensor]:
        targets = [DeviceTensor(self.device, desc) for desc in self.desc.outputs]
        for target in targets:
            if not target.desc.is_packed:
                target._write_bytes(np.zeros(target.desc.size_in_bytes, np.uint8))
        return targets

    def _given_targets(
        self, out: DeviceTensor | Sequence[DeviceTensor], sources: Sequence[DeviceTensor]
    ) -> list[DeviceTensor]:
        targets: list[Any] = list(out) if isinstance(out, (list, tuple)) else [out]
        fields = [name for name in self.desc.output_fields if getattr(self.desc, name) is not None]
        if len(targets) != len(fields) or not all(isinstance(target, DeviceTensor) for target in targets):
            given = ", ".join(type(target).__name__ for target in targets)
            what = "a device tensor" if len(fields) == 1 else f"{len(fields)} device tensors"
            raise TypeError(f"out must be {what}, for {', '.join(fields)}; given are {given}")
        others = list(zip(self.desc.input_fields, sources, strict=True))
        for target, field in zip(targets, fields, strict=True):
            self._check_tensor(target, field)
            for other_field, other in others:
                if target._shares_memory(other):
                    raise DescriptorError(
                        f"{type(self.desc).__name__}.{field}: out has {target!r}, which shares memory with "
                        f"{other_field}; an output needs memory of its own"
                    )
            others.append((field, target))
        return targets

    def _check_tensor(self, tensor: DeviceTensor, field: str) -> None:
        self.device._check_owns(tensor)
        given, desc = tensor.desc, getattr(self.desc, field)
        if (given.data_type, given.sizes, given.layout) != (desc.data_type, desc.sizes, desc.layout):
            raise DescriptorError(
                f"{type(self.desc).__name__}.{field}: the operator is compiled for {desc}, the tensor is {given}"
            )

    def _run(self, sources: Sequence[DeviceTensor], targets: Sequence[DeviceTensor]) -> None:
        records = self._records()
        held = (*(tensor._segments for tensor in (*sources, *targets)), records)
        self.device._submit(self._recall(sources, targets, records), held)

    def _records(self) -> _Segments:
        """Memory for the records of a call."""
        size = self.plan.records_bytes
        memory = self.device._relays if size <= RELAY_BYTES else self.device._memory
        return self.device._allocate(memory, (size,) if size else ())

    def _recall(
        self, sources: Sequence[DeviceTensor], targets: Sequence[DeviceTensor], records: _Segments
    ) -> tuple[KpStep, ...]:
        """What to do for tensors at these places, from before if they were there before."""
        places = {
            Role.INPUT: [tensor._segments.slices for tensor in sources],
            Role.OUTPUT: [tensor._segments.slices for tensor in targets],
            Role.RECORDS: [records.slices],
        }
        key = tuple((s.buffer, s.offset) for tensors in places.values() for slices in tensors for s in slices)
        steps = self._steps.pop(key, None) or tuple(self._step(dispatch, places) for dispatch in self.plan.dispatches)
        if len(steps) <= RECORDED_STEPS:
            self._steps[key] = steps
        if len(self._steps) > _PLACES:
            self._steps.popitem(last=False)
        return steps

    def _step(self, dispatch: Dispatch, places: Places) -> KpStep:
        slices = [places[b.role][b.tensor][b.segment] for b in dispatch.bindings]
        bases = {
            b.base: (getattr(dispatch.push, b.base) + s.offset * 8 // b.unit_bits) % (1 << 32)
            for b, s in zip(dispatch.bindings, slices, strict=True)
        }
        # The second of two passes writes outputs and reads records, the first one writes records.
        roles = [b.role for b in dispatch.bindings]
        written = Role.OUTPUT if Role.OUTPUT in roles else Role.RECORDS
        at = [(role, (s.buffer.handle, s.offset)) for role, s in zip(roles, slices, strict=True)]
        return self.device._kompute.step(
            dispatch.kernel,
            self.device.limits.group_count,
            tuple(s.buffer.handle for s in slices),
            replace(dispatch.push, **bases).words(),
            reads=(place for role, place in at if role is not written),
            writes=(place for role, place in at if role is written),
            elements=-(-self.desc.work // len(self.plan.dispatches)),
        )

    def __reduce__(self) -> str:
        raise TypeError(f"{self!r} cannot be copied or pickled; its desc can, and Device.compile(desc) makes another")

    def __repr__(self) -> str:
        return f"<dmlgpu.CompiledOperator {self.desc} on device {self.device.info.index}: {self.device.info.name}>"


def _returned(targets: list[DeviceTensor], inputs: Sequence[Any]) -> Any:
    """What a call gives for its inputs: device tensors for device tensors, else arrays; one, or a tuple."""
    on_device = all(isinstance(x, DeviceTensor) for x in inputs)
    results = tuple(targets if on_device else (target.numpy() for target in targets))
    return results[0] if len(results) == 1 else results
