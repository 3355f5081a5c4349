"""Measures one case: checks all contenders, then times them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from benchmarks.kompute import Kompute
from benchmarks.measure import Timing, interleave, mean_time
from benchmarks.peers import Contender, Peer, UnavailableError
from benchmarks.results import CALL, COMPILE, COPY, FIRST_CALL, KERNEL, OURS, BenchmarkError, Result, in_batches
from dmlgpu import Device, OperatorDesc, reference
from dmlgpu.comparison import differences
from dmlgpu.descriptors.tensor import Array
from dmlgpu.reference.bounds import is_exact
from dmlgpu.testing.cases import Case

# Number of devices that are opened to time a compilation.
_FRESH_DEVICES = 3
# The oracle needs many times the memory of its input, and loads every element of every window, about 2^24 per second.
# Above these numbers of elements, and of loads, all results are compared with our kernel's.
_ORACLE_ELEMENTS, _ORACLE_LOADS = 1 << 23, 1 << 28
# Seconds of a batch. The maximum number of its calls is what one submission holds: a call has up to 4 steps, a
# submission up to 64. If memory is unified, dmlgpu keeps 8 buffers, and a call may use several.
_BATCH_SECONDS = 0.01
_MOST_CALLS, _MOST_CALLS_UNIFIED = 16, 4
# Maximum bytes of the outputs of a batch: its calls, and its copies, write to separate outputs.
_BATCH_BYTES = 512 << 20


def run_case(
    case: Case,
    kompute: Kompute,
    peers: Mapping[str, Peer],
    rounds: int,
    seconds: float,
    *,
    fresh: bool,
) -> Result:
    """Measures a case, without peers that are slow, or whose results differ from the expected ones.

    Args:
        case: the operator and its inputs.
        kompute: the device, for copies.
        peers: the peers by name.
        rounds: the number of samples.
        seconds: the maximum duration of a contender's rounds (see `interleave`), and of a peer's call.
        fresh: whether to time compilations and first calls too.

    Raises:
        BenchmarkError: results of dmlgpu differ from the oracle's.
    """
    desc, inputs, device = case.desc, case.inputs(), kompute.device
    ours = _ours(device, desc, *inputs)
    contenders, absent = {}, {}
    for name, peer in peers.items():
        try:
            contenders[name] = peer.contender(desc, *inputs)
        except UnavailableError as reason:
            absent[name] = str(reason)
    for name, problem in _problems(desc, inputs, ours | contenders, seconds).items():
        if name in ours:
            raise BenchmarkError(f"{case.id}: {problem}")
        del contenders[name]
        absent[name] = problem
    size = sum(tensor.size_in_bytes for tensor in (*desc.inputs, *desc.outputs))
    # A copy reads and writes each byte: with half of the bytes it moves as many as the kernel.
    copy = partial(kompute.copy, size // 2)
    calls = _calls_of_a_batch(device, desc, ours[KERNEL])
    counts, batches = {}, {}
    for name, contender in (ours | contenders).items():
        if contender.batch and calls:
            counts[in_batches(name)], batches[in_batches(name)] = calls, contender.batch(calls)
    targets = min(calls, _BATCH_BYTES // max(1, size // 2))
    if targets > 1:
        counts[in_batches(COPY)], batches[in_batches(COPY)] = targets, copy(targets).eval
    runs = {name: contender.run for name, contender in ours.items()} | {COPY: copy().eval}
    runs |= {name: contender.run for name, contender in contenders.items()} | batches
    timings = interleave(runs, rounds, seconds)
    for name, count in counts.items():
        timings[name] = Timing(tuple(sample / count for sample in timings[name].samples))
    if fresh:
        timings |= _first_times(device.info.index, desc, inputs)
    return Result(case.id, size, timings, absent)


def _calls_of_a_batch(device: Device, desc: OperatorDesc, kernel: Contender) -> int:
    """Number of calls of a batch; 0 if two already need too much memory."""
    most = _MOST_CALLS_UNIFIED if device.info.unified else _MOST_CALLS
    most = min(most, _BATCH_BYTES // sum(tensor.size_in_bytes for tensor in desc.outputs))
    return min(most, max(2, int(_BATCH_SECONDS / mean_time(kernel.run)))) if most > 1 else 0


def _as_tuple(outputs: Any) -> tuple[Any, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)


def _ours(device: Device, desc: OperatorDesc, *inputs: Array) -> dict[str, Contender]:
    """dmlgpu, from device tensors to device tensors, and from ndarrays to ndarrays."""
    op = device.compile(desc)
    sources = [device.tensor(x, tensor) for x, tensor in zip(inputs, desc.inputs, strict=True)]
    targets = op(*sources)

    def batch(calls: int) -> Callable[[], None]:
        # Calls that write to the same tensors would wait for each other.
        outputs_of_calls = [op(*sources) for _ in range(calls)]

        def run() -> None:
            with device.batch():
                for out in outputs_of_calls:
                    op(*sources, out=out)

        return run

    def outputs(_: Any) -> tuple[Array, ...]:
        return tuple(target.numpy() for target in _as_tuple(targets))

    return {
        KERNEL: Contender(lambda: op(*sources, out=targets), outputs, batch),
        CALL: Contender(lambda: op(*inputs), _as_tuple),
    }


def _problems(
    desc: OperatorDesc, inputs: tuple[Array, ...], contenders: Mapping[str, Contender], seconds: float
) -> dict[str, str]:
    """Reasons to exclude contenders, by their names: a wrong output, or the seconds of a peer's slow call."""
    elements = max(tensor.element_count for tensor in (*desc.inputs, *desc.outputs))
    loads = desc.outputs[0].element_count * math.prod(getattr(desc, "window_size", ()))
    if elements <= _ORACLE_ELEMENTS and loads <= _ORACLE_LOADS:
        expected, judge = reference(desc, *inputs), "the oracle"
    else:
        expected, judge = contenders[KERNEL].outputs(contenders[KERNEL].run()), "our kernel"
    problems = {}
    for name, contender in contenders.items():
        begin = time.perf_counter()
        returned = contender.run()
        elapsed = time.perf_counter() - begin
        if elapsed > seconds and name not in OURS:
            problems[name] = f"a call takes {elapsed:.1f} s"
        for number, _ in differences(desc, inputs, contender.outputs(returned), expected):
            differs = "differs from" if is_exact(desc) else "is not within the bound around"
            problems[name] = f"output {number} of {name} {differs} that of {judge}"
    return problems


def _first_times(index: int, desc: OperatorDesc, inputs: tuple[Array, ...]) -> dict[str, Timing]:
    """Times of compiling an operator, and of its first call, on new devices."""
    times = []
    for _ in range(_FRESH_DEVICES):
        with Device(index) as device:
            compiling = mean_time(partial(device.compile, desc))
            op = device.compile(desc)
            times.append((compiling, mean_time(partial(op, *inputs))))
    compiles, first_calls = zip(*times, strict=True)
    return {COMPILE: Timing(compiles), FIRST_CALL: Timing(first_calls)}
