"""Devices, the tensors in their memory, and operators compiled for them."""

from __future__ import annotations

import math
import os
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

import numpy as np

from dmlgpu.comparison import check_outputs
from dmlgpu.drivers import DeviceInfo, select
from dmlgpu.dtypes import DataType
from dmlgpu.errors import DescriptorError, DeviceError, OutOfMemoryError
from dmlgpu.kompute import RECORDED_STEPS, RELAY_BYTES, SUBMISSION_SECONDS, Kompute, KpBuffer, Step, first_pace
from dmlgpu.lowering import lower
from dmlgpu.memory import ALIGNMENT, Allocator, Buffer, Slice
from dmlgpu.operators import OperatorDesc
from dmlgpu.plan import Dispatch, Limits, Role
from dmlgpu.tensor import TensorDesc
from dmlgpu.words import Array, Bytes, as_array, check, elements, write

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
        selector: an index, or part of a name in any case, of `devices()`. None: the environment variable
            DMLGPU_DEVICE, which takes either; without it the best device: discrete, integrated, virtual, then CPU.
        limits: limits lower than the device's own, for tests.

    Raises:
        DeviceError: there is no Vulkan loader, no driver, or no such device; the message lists what there is.
    """

    def __init__(self, selector: int | str | None = None, *, limits: Limits | None = None) -> None:
        info = select(os.environ.get("DMLGPU_DEVICE") if selector is None else selector)
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
        self._pending: list[Step] = []
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
            operator = self._operator(desc)
            if operator not in self._compiled:
                operator._prepare()
                self._compiled.add(operator)
                self._keep_buffers()
            return operator

    def _keep_buffers(self) -> None:
        buffers = set().union(*(operator._buffers for operator in self._compiled))
        self._memory.keep = max(self._keep, sum(buffer.size for buffer in buffers))

    def _operator(self, desc: OperatorDesc) -> CompiledOperator:
        """A remembered operator, or one that was only planned."""
        if not isinstance(desc, OperatorDesc):
            raise TypeError(f"{desc!r} is not an operator descriptor")
        with self._kompute.lock:
            self._kompute.check_usable()
            operator = self._operators.pop(desc, None) or CompiledOperator(self, desc)
            self._operators[desc] = operator
            if len(self._operators) > _OPERATORS:
                self._operators.popitem(last=False)
            return operator

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

    def _submit(self, steps: tuple[Step, ...], held: Iterable[_Segments]) -> None:
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
        array = as_array(x)
        if desc is None:
            desc = TensorDesc(DataType.of(array.dtype), array.shape)
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
    """What a device keeps for calls to come."""

    operators: int
    """Operators that are remembered, 256 at most: plans, in the host's memory."""
    pipelines: int
    """Pipelines, 256 at most, in the driver's memory: up to 1 MiB each on lavapipe, and 0.3 MiB on SwiftShader."""
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

    Attributes:
        device: where it is.
        desc: its type and layout.
    """

    def __init__(self, device: Device, desc: TensorDesc) -> None:
        self.device = device
        self.desc = desc
        with device._kompute.lock:
            device._kompute.check_usable()
            device._kompute.check_fits(desc.size_in_bytes)
            self._segments = device._allocate(device._memory, device.limits.segments(desc))

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the descriptor."""
        return self.desc.sizes

    def numpy(self) -> Array:
        """The elements, as a packed array of its own.

        Raises:
            DeviceError: the device is closed.
        """
        with self.device._kompute.lock:
            views = self._download()
            memory = views[0] if len(views) == 1 else np.concatenate(views)
            packed: Array = elements(self.desc, memory).copy()
        return packed

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
        return f"<dmlgpu.DeviceTensor {self.desc} on {self.device.info.name}>"


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
        self._steps: OrderedDict[tuple[Any, ...], tuple[Step, ...]] = OrderedDict()
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
        """
        return self._call(inputs, out, verified=os.environ.get("DMLGPU_VERIFY", "0") != "0")

    def _call(self, inputs: Sequence[Any], out: DeviceTensor | Sequence[DeviceTensor] | None, verified: bool) -> Any:
        fields = self.desc.input_fields
        if len(inputs) != len(fields):
            raise TypeError(f"{type(self.desc).__name__} takes {len(fields)} inputs, {len(inputs)} were given")
        with self.device._kompute.lock:
            self.device._kompute.check_usable()
            sources = [self._source(x, field) for x, field in zip(inputs, fields, strict=True)]
            targets = self._new_targets() if out is None else self._given_targets(out)
            self._run(sources, targets)
            if verified:
                check_outputs(self.plan, tuple(t.numpy() for t in sources), tuple(t.numpy() for t in targets))
            on_device = all(isinstance(x, DeviceTensor) for x in inputs)
            results = tuple(targets if on_device else (target.numpy() for target in targets))
        return results[0] if len(results) == 1 else results

    def _source(self, x: Any, field: str) -> DeviceTensor:
        if isinstance(x, DeviceTensor):
            self._check_tensor(x, field)
            return x
        tensor = DeviceTensor(self.device, getattr(self.desc, field))
        tensor._write(as_array(x), f"{type(self.desc).__name__}.{field}")
        return tensor

    def _new_targets(self) -> list[DeviceTensor]:
        targets = [DeviceTensor(self.device, desc) for desc in self.desc.outputs]
        for target in targets:
            if not target.desc.is_packed:
                target._write_bytes(np.zeros(target.desc.size_in_bytes, np.uint8))
        return targets

    def _given_targets(self, out: DeviceTensor | Sequence[DeviceTensor]) -> list[DeviceTensor]:
        targets = [out] if isinstance(out, DeviceTensor) else list(out)
        fields = [name for name in self.desc.output_fields if getattr(self.desc, name) is not None]
        if len(targets) != len(fields) or not all(isinstance(target, DeviceTensor) for target in targets):
            raise TypeError(f"out must be {len(fields)} device tensors, for {', '.join(fields)}")
        for target, field in zip(targets, fields, strict=True):
            self._check_tensor(target, field)
        return targets

    def _check_tensor(self, tensor: DeviceTensor, field: str) -> None:
        if tensor.device is not self.device:
            raise DeviceError(f"{tensor!r} is on another device than the operator, {self.device!r}")
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
    ) -> tuple[Step, ...]:
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

    def _step(self, dispatch: Dispatch, places: Places) -> Step:
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

    def __repr__(self) -> str:
        return f"<dmlgpu.CompiledOperator {self.desc} on {self.device.info.name}>"
