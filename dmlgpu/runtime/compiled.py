"""Operators compiled for a device."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from dmlgpu.comparison import check_outputs
from dmlgpu.descriptors.operator import ExecutionFlags, OperatorDesc
from dmlgpu.descriptors.tensor import as_array
from dmlgpu.errors import DescriptorError, OutOfMemoryError
from dmlgpu.lowering.limits import Limits
from dmlgpu.lowering.lower import lower
from dmlgpu.lowering.plan import Dispatch, Plan
from dmlgpu.lowering.problem import Role
from dmlgpu.runtime.engine import Segments
from dmlgpu.runtime.kompute import KpBuffer, KpStep
from dmlgpu.runtime.log import logger
from dmlgpu.runtime.memory import Buffer
from dmlgpu.runtime.schedule import RECORDED_STEPS, SUBMISSION_SECONDS
from dmlgpu.runtime.settings import switch
from dmlgpu.runtime.tensor import DeviceTensor, Owner, check_owns, of_bytes, staged_copy

# Maximum number of cached tuples of steps of an operator. Calls share a tuple if their tensors and workspace are in the
# same memory. The calls of a batch use different memory, and a repeated batch should not be recorded again, so there
# are as many tuples as a batch may have steps.
_CACHED_STEPS = RECORDED_STEPS
# Maximum number of cached plans of an operator for views, whose segments may be larger than those of new tensors.
_CACHED_PLANS = 16


class CompiledOperator:
    """An operator on a device, from `Device.compile`. Several threads may call it.

    Attributes:
        desc: the operator's descriptor.
        flags: the operator's flags.
        device: the operator's device.
        plan: the dispatches of a call; `print` shows it. If a call was too slow on a GPU, a plan with shorter
            dispatches replaces it.
    """

    def __init__(
        self,
        device: Owner,
        desc: OperatorDesc,
        flags: ExecutionFlags = ExecutionFlags.NONE,
        kernel: str | None = None,
    ) -> None:
        if not isinstance(flags, ExecutionFlags):
            raise TypeError(f"flags must be ExecutionFlags, not {flags!r}")
        self.device: Any = device
        self.desc = desc
        self.flags = flags
        self._engine = device._engine
        self._input_fields, self._outputs = desc.input_fields, desc.outputs  # looked up once, not in every call
        self._tensor_bytes = sum(tensor.size_in_bytes for tensor in (*desc.inputs, *self._outputs))
        # Checked before planning, which lists all segments, and a far too large tensor has too many.
        self._engine.kompute.check_fits(self._tensor_bytes)
        self._kernel = kernel
        self._can_shorten_dispatches = device.limits.cooperating
        self._limits: Limits = device.limits
        with self._engine.kompute.timed("plan", type(desc).__name__, desc):
            self.plan = self._planned(self._limits)
        if logger.isEnabledFor(logging.INFO):
            logger.info("planned: %s", self.plan.summary)
        self._plans_of_views: OrderedDict[tuple[int, ...], Plan] = OrderedDict()
        self._steps: OrderedDict[tuple[Any, ...], tuple[KpStep, ...]] = OrderedDict()

    def _planned(self, limits: Limits, memory: tuple[int, ...] = ()) -> Plan:
        """A plan whose tensors and workspace fit the device."""
        plan = lower(self.desc, limits, self._kernel, self.flags, memory)
        workspace_bytes = sum(tensor.size_in_bytes for tensor in plan.temporaries) + plan.partial_bytes
        self._engine.kompute.check_fits(self._tensor_bytes + workspace_bytes)
        return plan

    def _prepare(self) -> set[Buffer[KpBuffer]]:
        """Creates buffers and pipelines for a first call with arrays; returns the buffers."""
        read = [DeviceTensor(self.device, desc)._segments for desc in self.desc.inputs]
        written = [DeviceTensor(self.device, desc)._segments for desc in self.desc.outputs]
        workspace = [*map(self._engine.allocate, self.plan.workspace)]
        if len(self.plan.dispatches) <= RECORDED_STEPS:
            self._engine.record(self._recall(self.plan, read, written, workspace), read, written)
        return {part.buffer for segments in (*read, *written, *workspace) for part in segments.slices}

    def __call__(self, *inputs: Any, out: DeviceTensor | Sequence[DeviceTensor] | None = None) -> Any:
        """Runs the operator.

        Args:
            inputs: an array (anything that NumPy can view), or a device tensor of this device, for each input tensor.
            out: a device tensor to write to for each output tensor; bytes between its elements keep their values.
                None: new tensors.

        Returns:
            The output, or a tuple of several: device tensors if all inputs are device tensors, packed arrays otherwise.

        Raises:
            DescriptorError: an input or `out` does not match the descriptor.
            DeviceError: a device tensor is on another device, or the device is closed.
            DeviceLostError: the driver did not run the operator, now or in an earlier call.
            OutOfMemoryError: the tensors do not fit the device.
            SettingError: DMLGPU_VERIFY is neither on nor off.
            VerificationError: DMLGPU_VERIFY is on, and the outputs differ from the oracle's.
        """
        with self._engine.kompute.timed("call", type(self.desc).__name__, self.desc):
            return self.launch(inputs, out)

    def launch(
        self,
        inputs: Sequence[Any],
        out: DeviceTensor | Sequence[DeviceTensor] | None = None,
        verify: bool = False,
    ) -> Any:
        """As `__call__`, but the caller times it.

        `verify`: whether to compare the outputs with the oracle's even if DMLGPU_VERIFY is off.
        """
        fields = self._input_fields
        if len(inputs) != len(fields):
            expected = "1 input" if len(fields) == 1 else f"{len(fields)} inputs"
            were = "1 was" if len(inputs) == 1 else f"{len(inputs)} were"
            raise TypeError(f"{type(self.desc).__name__} takes {expected}, {were} given")
        verify = verify or switch("DMLGPU_VERIFY")
        begin = time.perf_counter()
        with self._engine.lock:
            self._engine.kompute.check_usable()
            sources = [self._source(x, field) for x, field in zip(inputs, fields, strict=True)]
            targets = self._new_targets() if out is None else self._checked_targets(out, sources)
            memory = tuple([tensor._full_segment for tensor in (*sources, *targets)])
            plan = self.plan if memory == self.plan.memory else self._plan_of_views(memory)
            read, written = [tensor._segments for tensor in sources], [tensor._segments for tensor in targets]
            workspace = [*map(self._engine.allocate, plan.workspace)]
            steps = self._recall(plan, read, written, workspace)
            uploads = [segments for x, source, segments in zip(inputs, sources, read, strict=True) if source is not x]
            self._engine.enqueue(steps, (*read, *written, *workspace), uploads, written)
            if self._can_shorten_dispatches and any(step.timing.is_too_slow for step in steps):
                self._shorten(steps)
            if verify:
                arrays = [tensor.numpy().reshape(tensor.desc.sizes) for tensor in (*sources, *targets)]
                check_outputs(plan, tuple(arrays[: len(sources)]), tuple(arrays[len(sources) :]))
            done = "deferred" if self._engine.batches else "verified" if verify else "computed"
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("%s in %.3f ms: %s", done, 1000 * (time.perf_counter() - begin), plan.summary)
        results = targets if {*map(type, inputs)} == {DeviceTensor} else [target.numpy() for target in targets]
        return results[0] if len(results) == 1 else tuple(results)

    def _plan_of_views(self, memory: tuple[int, ...]) -> Plan:
        """The plan for tensors whose full segments have these sizes: a view has those of the tensor that it views."""
        plan = self._plans_of_views.pop(memory, None) or self._planned(self._limits, memory)
        self._plans_of_views[memory] = plan
        if len(self._plans_of_views) > _CACHED_PLANS:
            self._plans_of_views.popitem(last=False)
        return plan

    def _source(self, x: Any, field: str) -> DeviceTensor:
        """An input as a device tensor. An array is copied to a new tensor, which is not uploaded yet."""
        if isinstance(x, DeviceTensor):
            self._check_tensor(x, field)
            self._engine.check_computed(x._segments)
            return x
        name = f"{type(self.desc).__name__}.{field}"
        return staged_copy(self.device, getattr(self.desc, field), as_array(x, name), name)

    def _new_targets(self) -> list[DeviceTensor]:
        """Tensors for the outputs, with zeros between their elements."""
        return [
            DeviceTensor(self.device, desc)
            if desc.is_packed
            else of_bytes(self.device, desc, np.zeros(desc.size_in_bytes, np.uint8))
            for desc in self._outputs
        ]

    def _checked_targets(
        self, out: DeviceTensor | Sequence[DeviceTensor], sources: Sequence[DeviceTensor]
    ) -> list[DeviceTensor]:
        """The argument `out` as a list of tensors, which have the outputs' layouts and share no memory."""
        targets: list[Any] = list(out) if isinstance(out, (list, tuple)) else [out]
        fields = [name for name in self.desc.output_fields if getattr(self.desc, name) is not None]
        if len(targets) != len(fields) or not all(isinstance(target, DeviceTensor) for target in targets):
            types = ", ".join(type(target).__name__ for target in targets)
            what = "a device tensor" if len(fields) == 1 else f"{len(fields)} device tensors"
            raise TypeError(f"out: {types} is not allowed; allowed is {what}, for {', '.join(fields)}")
        others = list(zip(self._input_fields, sources, strict=True))
        for target, field in zip(targets, fields, strict=True):
            self._check_tensor(target, field)
            for other_field, other in others:
                if target._segments.overlap(other._segments):
                    raise DescriptorError(
                        f"{type(self.desc).__name__}.{field}: out has {target.description}, which shares memory with "
                        f"{other_field}; pass separate memory"
                    )
            others.append((field, target))
        return targets

    def _check_tensor(self, tensor: DeviceTensor, field: str) -> None:
        """Raises an error if a tensor is on another device, or has another layout than the descriptor's field."""
        check_owns(self.device, tensor)
        desc, expected = tensor.desc, getattr(self.desc, field)
        if (desc.data_type, desc.sizes, desc.layout) != (expected.data_type, expected.sizes, expected.layout):
            raise DescriptorError(
                f"{type(self.desc).__name__}.{field}: the tensor is {desc}; the descriptor has {expected}"
            )

    def _shorten(self, steps: Sequence[KpStep]) -> None:
        """Plans shorter dispatches for later calls, because a step was so slow that a watchdog may reset the GPU."""
        for step in steps:
            step.timing.is_too_slow = False
        limits, plan = self._limits, self.plan
        # At least a quarter of the elements so far: the measured time may include other work.
        elements = max(
            int(SUBMISSION_SECONDS / max(step.timing.seconds_per_element for step in steps)),
            1 + steps[0].elements // 4,
            -(-plan.elements // limits.dispatch_count),
        )
        limits = replace(limits, dispatch_elements=elements)
        with suppress(DescriptorError, OutOfMemoryError):
            plan = self._planned(limits)
        self._can_shorten_dispatches = len(plan.dispatches) > len(self.plan.dispatches)
        if self._can_shorten_dispatches:
            self.plan, self._limits = plan, limits
            self._plans_of_views.clear()
            self._steps.clear()

    def _recall(
        self, plan: Plan, read: Sequence[Segments], written: Sequence[Segments], workspace: Sequence[Segments]
    ) -> tuple[KpStep, ...]:
        """The steps of a plan for these tensors and this workspace, cached or new."""
        places = [(s.buffer, s.offset) for segments in (*read, *written, *workspace) for s in segments.slices]
        key = (plan.memory, *places)
        steps = self._steps.pop(key, None)
        if steps is None:
            count = len(plan.temporaries)
            by_role = {
                Role.INPUT: read,
                Role.OUTPUT: written,
                Role.TEMPORARY: workspace[:count],
                Role.PARTIALS: workspace[count:],
            }
            steps = tuple([self._step(plan, dispatch, by_role) for dispatch in plan.dispatches])
        if len(steps) <= RECORDED_STEPS:
            self._steps[key] = steps
        if len(self._steps) > _CACHED_STEPS:
            self._steps.popitem(last=False)
        return steps

    def _step(self, plan: Plan, dispatch: Dispatch, by_role: dict[Role, Sequence[Segments]]) -> KpStep:
        """The step of a dispatch; its push constants have the offsets of slices in their buffers added."""
        slices = [by_role[b.role][b.tensor].slices[b.segment] for b in dispatch.bindings]
        bases = {
            b.base: (dispatch.push[b.base] + s.offset * 8 // b.unit_bits) % (1 << 32)
            for b, s in zip(dispatch.bindings, slices, strict=True)
        }
        places = [(s.buffer.handle, s.offset) for s in slices]
        return self._engine.kompute.step(plan, dispatch, places, dict(dispatch.push.items()) | bases)

    def __reduce__(self) -> str:
        raise TypeError(f"{self!r} cannot be copied or pickled; its desc can, and Device.compile(desc) makes another")

    def __repr__(self) -> str:
        return f"<dmlgpu.CompiledOperator {self.desc} on device {self._engine.kompute.label}>"
