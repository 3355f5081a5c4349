"""Devices, the tensors in their memory, and operators compiled for them."""

from __future__ import annotations

import os
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any

import numpy as np

from dmlgpu.comparison import check_outputs
from dmlgpu.drivers import DeviceInfo, select
from dmlgpu.dtypes import DataType
from dmlgpu.errors import DescriptorError, DeviceError
from dmlgpu.kompute import Kompute, KpBuffer
from dmlgpu.lowering import lower
from dmlgpu.memory import ALIGNMENT, Allocator, Slice
from dmlgpu.operators import OperatorDesc
from dmlgpu.plan import Dispatch, Limits, Role
from dmlgpu.tensor import TensorDesc
from dmlgpu.words import Array, Bytes, as_array, check, elements, write

# kp counts the bytes of a buffer in 32 bits.
_KP_MAX_BYTES = (1 << 32) - ALIGNMENT
# Where the host sees device memory, small tensors share buffers of this size: a pipeline is bound to buffers, so
# tensors in the same buffer share pipelines.
_CHUNK_BYTES = 4 << 20
# Compiled operators that a device remembers.
_OPERATORS = 256
# Recorded submissions that an operator remembers, one for every set of places its tensors were found at; plans of
# more dispatches than this are recorded anew each time.
_RECORDINGS = 8
_RECORDED_DISPATCHES = 64


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
        # Empty buffers are kept for later calls up to an eighth of the heap that the host sees.
        self._kept_bytes = info.heaps[info.host_heap] // 8
        self._memory: Allocator[KpBuffer] = Allocator(
            self._kompute.create_buffer,
            self._kompute.destroy_buffer,
            chunk=min(_CHUNK_BYTES, device_limits(info).segment_bytes) if info.unified else 0,
            keep=self._kept_bytes,
        )
        self._operators: OrderedDict[OperatorDesc, CompiledOperator] = OrderedDict()

    def compile(self, desc: OperatorDesc) -> CompiledOperator:
        """An operator for this device: planned and its pipelines built now, called many times.

        Operators are remembered: compiling an equal descriptor again returns the same one.

        Args:
            desc: any operator descriptor.

        Raises:
            OutOfMemoryError: its tensors do not fit the device.
        """
        if not isinstance(desc, OperatorDesc):
            raise TypeError(f"{desc!r} is not an operator descriptor")
        with self._kompute.lock:
            self._kompute.check_usable()
            operator = self._operators.pop(desc, None) or CompiledOperator(self, desc)
            self._operators[desc] = operator
            if len(self._operators) > _OPERATORS:
                self._operators.popitem(last=False)
            return operator

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
        tensor._upload(array, "TensorDesc")
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

    def close(self) -> None:
        """Frees the device; its tensors and operators raise DeviceError from now on. A second call does nothing."""
        self._kompute.close()

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
    return Limits(
        segment_bytes=largest // ALIGNMENT * ALIGNMENT,
        group_size=min(64, info.max_group_size),
        # Idle groups cost a CPU driver time; a GPU needs many to be busy.
        group_count=min(64 if info.type == "cpu" else 4096, info.max_group_count),
    )


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
            self._segments: list[Slice[KpBuffer]] = []
            # The finalizer holds the list, so that an allocation that fails half-way is given back too.
            self._finalizer = weakref.finalize(self, _release, device._memory, self._segments)
            for size in device.limits.segments(desc):
                self._segments.append(device._memory.allocate(size))

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the descriptor."""
        return self.desc.sizes

    def numpy(self) -> Array:
        """The elements, as a packed array of its own."""
        with self._views(download=True) as views:
            memory = views[0] if len(views) == 1 else np.concatenate(views)
            packed: Array = elements(self.desc, memory).copy()
        return packed

    def bytes(self) -> Bytes:
        """The whole buffer, gaps included: `desc.size_in_bytes` bytes."""
        with self._views(download=True) as views:
            memory: Bytes = np.concatenate(views)
        return memory[: self.desc.size_in_bytes]

    def _upload(self, x: Array, field: str) -> None:
        """Writes the elements; what lies between them is left as it is only in a tensor of one segment."""
        check(self.desc, field, x)
        if len(self._segments) > 1:
            memory = np.zeros(self.desc.size_in_bytes, np.uint8)
            write(self.desc, field, x, memory)
            self._write_bytes(memory)
        else:
            with self._views(upload=True) as (view,):
                write(self.desc, field, x, view)

    def _write_bytes(self, memory: Bytes) -> None:
        with self._views(upload=True) as views:
            begin = 0
            for view in views:
                part = memory[begin : begin + view.size]
                view[: part.size] = part
                begin += view.size

    @contextmanager
    def _views(self, *, download: bool = False, upload: bool = False) -> Iterator[list[Bytes]]:
        """The bytes of every segment as the host sees them; written ones are uploaded at the end."""
        kompute = self.device._kompute
        with kompute.lock:
            kompute.check_usable()
            for part in self._segments if download else ():
                kompute.download(part.buffer.handle)
            yield [part.buffer.handle.view[part.offset : part.offset + part.size] for part in self._segments]
            for part in self._segments if upload else ():
                kompute.upload(part.buffer.handle)

    def __repr__(self) -> str:
        return f"<dmlgpu.DeviceTensor {self.desc} on {self.device.info.name}>"


def _release(memory: Allocator[KpBuffer], segments: list[Slice[KpBuffer]]) -> None:
    for part in segments:
        memory.release(part)


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
        self.plan = lower(desc, device.limits)
        self._recordings: OrderedDict[tuple[Any, ...], list[Any]] = OrderedDict()
        needed = sum(desc.size_in_bytes for desc in (*self.desc.inputs, *self.desc.outputs)) + self.plan.records_bytes
        device._kompute.check_fits(needed)
        if needed <= device._kept_bytes:
            # Pipelines are bound to buffers: these are the ones that the tensors of a first call will be given.
            self._run([DeviceTensor(device, desc) for desc in self.desc.inputs], self._new_targets(), submit=False)

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
        tensor._upload(as_array(x), f"{type(self.desc).__name__}.{field}")
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

    def _run(self, sources: Sequence[DeviceTensor], targets: Sequence[DeviceTensor], submit: bool = True) -> None:
        """Records the dispatches for these tensors, if they were not before, and submits them."""
        memory = self.device._memory
        records = [memory.allocate(self.plan.records_bytes)] if self.plan.records_bytes else []
        places = {
            Role.INPUT: [tensor._segments for tensor in sources],
            Role.OUTPUT: [tensor._segments for tensor in targets],
            Role.RECORDS: [records],
        }
        try:
            submissions: Iterable[Any]
            if len(self.plan.dispatches) <= _RECORDED_DISPATCHES:
                submissions = self._recorded(places)
            else:
                submissions = (self._record(dispatch, places) for dispatch in self.plan.dispatches)
            # A submission of its own for each dispatch: the next one may read what it wrote.
            for sequence in submissions if submit else ():
                sequence.eval()
        finally:
            _release(memory, records)

    def _recorded(self, places: Places) -> list[Any]:
        """The submissions for tensors at these places, from before if there were any."""
        key = tuple((s.buffer, s.offset) for tensors in places.values() for segments in tensors for s in segments)
        recording = self._recordings.pop(key, None)
        if recording is None:
            recording = [self._record(dispatch, places) for dispatch in self.plan.dispatches]
        self._recordings[key] = recording
        if len(self._recordings) > _RECORDINGS:
            self._recordings.popitem(last=False)
        return recording

    def _record(self, dispatch: Dispatch, places: Places) -> Any:
        slices = [places[b.role][b.tensor][b.segment] for b in dispatch.bindings]
        bases = {
            b.base: (getattr(dispatch.push, b.base) + s.offset * 8 // b.unit_bits) % (1 << 32)
            for b, s in zip(dispatch.bindings, slices, strict=True)
        }
        buffers = [s.buffer.handle for s in slices]
        push = replace(dispatch.push, **bases)
        return self.device._kompute.record(dispatch.kernel, self.device.limits, buffers, push.words())

    def __repr__(self) -> str:
        return f"<dmlgpu.CompiledOperator {self.desc} on {self.device.info.name}>"
