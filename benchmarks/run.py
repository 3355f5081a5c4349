"""One case: everything that computes it is checked, then timed."""

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
from dmlgpu.reference.bounds import is_exact
from tests.support.cases import Array, Case

# Devices that are opened to time a compilation.
_FRESH_DEVICES = 3
# The oracle takes many times the memory of its input: above this many elements all must agree with our kernel.
_ORACLE_ELEMENTS = 1 << 23
# It looks at every element of every window, some 2^24 in a second: above this many of them the same.
_ORACLE_LOOKS = 1 << 28
# A batch has as many calls as last so long, but no less than two, and no more than are recorded together: a call has up
# to 4 steps, and a submission 64; where memory is unified, 8 buffers are kept, of which a call may take several.
_BATCH_SECONDS = 0.01
_MOST_CALLS, _MOST_CALLS_UNIFIED = 16, 4
# Its calls write to outputs of their own, and its copies too: no more of them than take so many bytes.
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
        case: what is computed.
        kompute: the device, and what copies on it.
        peers: by their names.
        missing: peers that are not there, and why.
        rounds: of samples.
        seconds: that a contender's rounds may take; see `interleave`.
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
    # Half of the bytes are read and half of them written, so that as many are moved.
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
    """How many calls are timed together; 0 where two already take too much memory."""
    remembered = _MOST_CALLS_UNIFIED if device.info.unified else _MOST_CALLS
    most = min(remembered, _BATCH_BYTES // sum(tensor.size_in_bytes for tensor in desc.outputs))
    return min(most, max(2, int(_BATCH_SECONDS / mean_time(kernel.run)))) if most > 1 else 0


def _as_tuple(outputs: Any) -> tuple[Any, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)


def _ours(device: Device, desc: OperatorDesc, *inputs: Array) -> dict[str, Contender]:
    """Device tensors to device tensors, and ndarrays to ndarrays."""
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
    """What has other results, and which of them differ; what takes longer than so many seconds, and how long."""
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
        took = time.perf_counter() - begin
        if took > seconds:
            slow[name] = f"a call takes {took:.1f} s"
        for number, _ in differences(desc, inputs, contender.outputs(returned), expected):
            how = "differs from" if is_exact(desc) else "is not within the bound around"
            wrong.setdefault(name, f"output {number} of {name} {how} that of {by}")
    return wrong, slow


def _first_times(index: int, desc: OperatorDesc, inputs: tuple[Array, ...]) -> dict[str, Timing]:
    """Compiling an operator, and calling it for the first time, on devices that did nothing before."""
    times = []
    for _ in range(_FRESH_DEVICES):
        with Device(index) as device:
            compiling = mean_time(partial(device.compile, desc))
            op = device.compile(desc)
            times.append((compiling, mean_time(partial(op, *inputs))))
    compiles, first_calls = zip(*times, strict=True)
    return {COMPILE: Timing(compiles), FIRST_CALL: Timing(first_calls)}
