"""What a GPU is expected to take for the benchmark cases: a model, where no GPU can be measured.

A plan says how many invocations have work, and what each reads; the compiler says how many instructions the main loop
of a kernel has, what it loads in a turn, and how many of its loads are in flight together. A dispatch takes the longest
of three times:

- bytes: all that its bindings hold, each counted once, at the bandwidth of the device.
- latency: an invocation goes round its main loop until it has read its share, and waits for memory loads / loads in
  flight times a turn. A wait takes LATENCY, and NEARBY where the line of 128 bytes was there already: loads that lie
  `step` bytes apart find it so but for step / 128 of them. Invocations that do not fit the device run later.
- instructions: of all items, those of the main loop for each turn and all others once, at full issue. Those of a
  wave, on scalars, run beside them and do not count.

Between two dispatches of a call is a copy that stands for a barrier. What a call costs the host is left out. The roof
is the time for the bytes of inputs and outputs alone.

Registers and instructions are those of the family that was compiled for, on every GPU: sm_90 was seen to take about as
many. The caches are modelled as written above, and no other effect is: expect a factor of two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.compiled import Compiled, limits
from benchmarks.report import Table, digits, duration
from benchmarks.results import BenchmarkError
from dmlgpu.lowering.lower import lower
from dmlgpu.lowering.plan import Binding, Dispatch, Plan
from dmlgpu.lowering.problem import Role
from tests.support.cases import Case

# Seconds, assumed: memory's answer under load, and that of the cache next to a unit.
LATENCY, NEARBY = 0.6e-6, 0.03e-6
# Assumed, too: of a copy of a few bytes between two barriers.
BETWEEN = 6e-6
LINE = 128
# Invocations and registers of a unit (SM, CU), the same on both GPUs: 64 warps of 32 or 32 waves of 64.
INVOCATIONS, REGISTERS = 2048, 65536
# Integer instructions of a unit in a clock.
ISSUED = 64

# Shader, by its module and constants.
Key = tuple[str, tuple[int, ...]]


@dataclass(frozen=True)
class Gpu:
    name: str
    bandwidth: float
    units: int
    clock: float


GPUS = (
    # NVIDIA's data sheet of the H200 SXM; the boost clock of the H100 with the same chip.
    Gpu("H200", 4.8e12, 132, 1.9e9),
    # AMD's page of the Radeon RX 6800: 60 CUs, 512 GB/s, game clock.
    Gpu("RX 6800", 512e9, 60, 1.815e9),
)


@dataclass(frozen=True)
class Work:
    """How the work of a dispatch falls to invocations."""

    items: int
    """Shares of the work: one invocation does one at a time, and all are of one size."""
    bytes: float
    """What an item reads."""
    step: int = LINE
    """Bytes from one load of an invocation to its next."""


@dataclass(frozen=True)
class Estimate:
    """Of a dispatch on a GPU; seconds."""

    bytes: float
    latency: float
    instructions: float
    busy: int
    """Invocations that have work."""
    waits: float
    """Waits for memory of one of them, one after the other."""

    @property
    def seconds(self) -> float:
        return max(self.bytes, self.latency, self.instructions)

    @property
    def bound(self) -> str:
        return max(("bytes", "latency", "instructions"), key=lambda name: float(getattr(self, name)))


def work_of(dispatch: Dispatch, read: float) -> Work:
    """Of a dispatch that reads so many bytes, each counted once.

    Raises:
        BenchmarkError: the model does not know the kernel.
    """
    # Constants and push constants have a type for each kernel.
    constants: Any = dispatch.shader.constants
    push: Any = dispatch.push
    bits, kernel = dispatch.shader.bits, dispatch.shader.variant.partition("_")[0]
    block, bytes_each = 128 // bits, bits / 8
    lanes = getattr(constants, "lanes", 1)
    if kernel in ("rows", "columns"):
        items = push.output_count * lanes * -(-(push.reduced_end - push.reduced_begin) // push.stretch_size)
        if kernel == "rows":
            return Work(items, read / items, 16 * lanes)
        items = -(-items // block)
        return Work(items, read / items, int(push.stride[push.kept_rank] * bytes_each))
    if kernel == "combine":
        items = push.output_count * lanes
        return Work(items, read / items, int(read / push.record_count) * lanes)
    if kernel == "windows":
        windows = constants.window_depth * constants.window_height
        span = (constants.run - 1) * constants.stride_width + (constants.window_width - 1) * constants.dilation_width
        blocks = ((constants.phase if constants.aligned else block - 1) + span) // block + 1
        rows = push.output_count // push.output_size[2]
        items = -(-rows // push.strip) * -(-push.output_size[2] // constants.run)
        return Work(items, 16.0 * windows * blocks * push.strip)
    if kernel == "pool":
        return Work(push.output_count, math.prod(push.window_size) * bytes_each, 16)
    if kernel == "gather":
        # The windows that hold an element, on average; their gradients, and where an index says so.
        looks = math.prod((reach + 1) / stride for reach, stride in zip(push.reach, push.window_stride, strict=True))
        each = bytes_each + (4 if "maxima" in dispatch.shader.variant else 0)
        return Work(push.output_count // push.run, looks * each * push.run, int(each))
    if kernel in ("place", "pick"):
        items = getattr(push, "element_count", push.output_count)
        return Work(items, read / items)
    raise BenchmarkError(f"the model does not know {dispatch.shader.variant}")


def estimate(dispatch: Dispatch, plan: Plan, compiled: Compiled, gpu: Gpu) -> Estimate:
    moved = {(binding.role, binding.tensor): (_bytes(binding, plan), binding.written) for binding in dispatch.bindings}
    work = work_of(dispatch, sum(size for size, written in moved.values() if not written))
    turns = max(1.0, work.bytes / compiled.loop_bytes) if compiled.loop_loads else 1.0
    waits = turns * -(-compiled.loop_loads // compiled.loads) if compiled.loop_loads else 0.0
    far = max(min(1.0, waits), waits * min(1, work.step / LINE))
    busy = min(work.items, plan.limits.invocations)
    at_once = min(busy, gpu.units * min(INVOCATIONS, REGISTERS // compiled.vgpr))
    instructions = compiled.vector + (turns - 1) * compiled.loop_vector
    return Estimate(
        bytes=sum(size for size, _ in moved.values()) / gpu.bandwidth,
        latency=-(-work.items // at_once) * (far * LATENCY + (waits - far) * NEARBY),
        instructions=work.items * instructions / (gpu.units * ISSUED * gpu.clock),
        busy=busy,
        waits=-(-work.items // busy) * waits,
    )


def _bytes(binding: Binding, plan: Plan) -> int:
    if binding.role is Role.RECORDS:
        return plan.records_bytes
    tensors = {
        Role.INPUT: plan.desc.inputs,
        Role.OUTPUT: plan.desc.outputs,
        Role.INTERMEDIATE: plan.intermediates,
    }[binding.role]
    return tensors[binding.tensor].size_in_bytes


def model_table(cases: Sequence[Case], compiled: Mapping[Key, Compiled]) -> Table:
    """A row for every case; what keeps an invocation busy is that of the dispatch that takes longest."""
    rows = []
    for case in cases:
        plan = lower(case.desc, limits())
        cells: list[str] = []
        for gpu in GPUS:
            keys = [key_of(each.shader.module, each.shader.constant_words()) for each in plan.dispatches]
            each = [
                estimate(dispatch, plan, compiled[key], gpu)
                for dispatch, key in zip(plan.dispatches, keys, strict=True)
            ]
            slowest = max(each, key=lambda estimate: estimate.seconds)
            seconds = sum(estimate.seconds for estimate in each) + BETWEEN * (len(each) - 1)
            roof = sum(tensor.size_in_bytes for tensor in (*case.desc.inputs, *case.desc.outputs)) / gpu.bandwidth
            if not cells:
                cells = [str(len(each)), str(slowest.busy), f"{slowest.waits:.0f}"]
            cells += [duration(seconds), digits(seconds / roof), slowest.bound]
        rows.append((case.id, *cells))
    columns = [name for gpu in GPUS for name in (gpu.name, "to its roof", "bound by")]
    return Table(
        "model, not measured",
        ("case", "dispatches", "busy", "waits", *columns),
        tuple(rows),
        "Busy: invocations with work, and waits: for memory, one after the other, of each; both of the dispatch that "
        "takes longest. The roof is the time for inputs and outputs at the bandwidth of the device. "
        "benchmarks/model.py says how each number is made.",
    )


def key_of(module: str, constants: Sequence[int]) -> Key:
    return module, tuple(constants)
