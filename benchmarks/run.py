"""Measures one case: checks all contenders, then times them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from benchmarks.cases import describe
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
# The oracle uses many times the memory of its input: above this many elements all must agree with our kernel.
_ORACLE_ELEMENTS = 1 << 23
# It reads every element of every window, about 2^24 per second; above this many, likewise.
_ORACLE_LOOKS = 1 << 28
# Seconds of a batch, which has at least two calls, and no more than are recorded together: a call has up to 4 steps,
# and a submission 64; if memory is unified, 8 buffers are kept, and a call may use several.
_BATCH_SECONDS = 0.01
_MOST_CALLS, _MOST_CALLS_UNIFIED = 16, 4
# Maximum size of the outputs of a batch: its calls, and its copies, write to separate ones.
_BATCH_BYTES = 512 << 20


def run_case(
    case: Case,
    kompute: Kompute,
    peers: Mapping[str, Peer],
    missing: Mapping[str, str],
    *,
    rounds: int,
    seconds: float,
    fresh: bool,
    strict: bool,
    advance: Callable[[], object],
) -> Result:
    """Measures a case.

    Args:
        case: the operator and its inputs.
        kompute: the device, for copies.
        peers: the peers by name.
        missing: the reasons for missing peers.
        rounds: the number of samples.
        seconds: the maximum duration of a contender's rounds; see `interleave`.
        fresh: whether to time compilations and first calls too.
        strict: whether a peer whose results differ is an error, and one that takes longer than `seconds` for a call is
            timed nonetheless; otherwise both are absent.
        advance: called after every round.

    Raises:
        BenchmarkError: results differ.
    """
    desc, inputs = case.desc, case.inputs()
    contenders = _ours(kompute.device, desc, *inputs)
    absent = dict(missing)
    for name, peer in peers.items():
        try:
            contenders[name] = peer.contender(desc, *inputs)
        except UnavailableError as reason:
            absent[name] = str(reason)
    wrong, slow = _check(desc, inputs, contenders, seconds)
    for name, text in wrong.items():
        if strict or name in OURS:
            raise BenchmarkError(f"{case.id}: {text}")
    for name, text in {} if strict else {**slow, **wrong}.items():
        if name not in OURS:
            del contenders[name]
            absent[name] = text
    size = sum(tensor.size_in_bytes for tensor in (*desc.inputs, *desc.outputs))
    runs = {name: contender.run for name, contender in contenders.items()}
    # Half of the bytes are read and half are written, so the kernel and the copy move the same number.
    copies = {COPY: kompute.copy(size // 2).eval}
    ours = {name: runs.pop(name) for name in (KERNEL, CALL)}
    calls = _calls_of_a_batch(kompute.device, desc, contenders[KERNEL])
    batches = {
        in_batches(name): (calls, contender.batch(calls))
        for name, contender in contenders.items()
        if contender.batch and calls
    }
    targets = min(calls, _BATCH_BYTES // max(1, size // 2))
    if targets > 1:
        batches[in_batches(COPY)] = targets, kompute.copy(size // 2, targets).eval
    batched = {name: run for name, (_, run) in batches.items()}
    timings = interleave({**ours, **copies, **runs, **batched}, rounds, seconds, advance)
    for name, (count, _) in batches.items():
        timings[name] = Timing(tuple(sample / count for sample in timings[name].samples))
    if fresh:
        timings |= _first_times(kompute.device.info.index, desc, inputs)
    return Result(case.id, describe(desc), desc.inputs[0].element_count, size, timings, absent, calls)


def _calls_of_a_batch(device: Device, desc: OperatorDesc, kernel: Contender) -> int:
    """Number of calls that are timed together; 0 if already two use too much memory."""
    remembered = _MOST_CALLS_UNIFIED if device.info.unified else _MOST_CALLS
    most = min(remembered, _BATCH_BYTES // sum(tensor.size_in_bytes for tensor in desc.outputs))
    return min(most, max(2, int(_BATCH_SECONDS / mean_time(kernel.run)))) if most > 1 else 0


def _as_tuple(outputs: Any) -> tuple[Any, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)


def _ours(device: Device, desc: OperatorDesc, *inputs: Array) -> dict[str, Contender]:
    """From device tensors to device tensors, and from ndarrays to ndarrays."""
    op = device.compile(desc)
    sources = [device.tensor(x, tensor) for x, tensor in zip(inputs, desc.inputs, strict=True)]
    targets = op(*sources)

    def batch(calls: int) -> Callable[[], None]:
        # Calls that write to the same tensors would wait for each other.
        every = [op(*sources) for _ in range(calls)]

        def run() -> None:
            with device.batch():
                for out in every:
                    op(*sources, out=out)

        return run

    return {
        KERNEL: Contender(
            lambda: op(*sources, out=targets),
            lambda outputs: tuple(target.numpy() for target in _as_tuple(outputs)),
            batch,
        ),
        CALL: Contender(lambda: op(*inputs), _as_tuple),
    }


def _check(
    desc: OperatorDesc, inputs: tuple[Array, ...], contenders: Mapping[str, Contender], seconds: float
) -> tuple[dict[str, str], dict[str, str]]:
    """Contenders with wrong results, and the outputs that differ; slow contenders, and their seconds per call."""
    elements = max(tensor.element_count for tensor in (*desc.inputs, *desc.outputs))
    looks = desc.outputs[0].element_count * math.prod(getattr(desc, "window_size", ()))
    if elements <= _ORACLE_ELEMENTS and looks <= _ORACLE_LOOKS:
        expected, by = reference(desc, *inputs), "the oracle"
    else:
        expected, by = contenders[KERNEL].outputs(contenders[KERNEL].run()), "our kernel"
    wrong: dict[str, str] = {}
    slow: dict[str, str] = {}
    for name, contender in contenders.items():
        begin = time.perf_counter()
        returned = contender.run()
        elapsed = time.perf_counter() - begin
        if elapsed > seconds:
            slow[name] = f"a call takes {elapsed:.1f} s"
        for number, _ in differences(desc, inputs, contender.outputs(returned), expected):
            how = "differs from" if is_exact(desc) else "is not within the bound around"
            wrong.setdefault(name, f"output {number} of {name} {how} that of {by}")
    return wrong, slow


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
