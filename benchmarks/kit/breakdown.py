"""Where the host's time goes in a call, as JSON: `python -m benchmarks.kit.breakdown` with the device in DMLGPU_DEVICE.

Each part of a call is timed alone; then the profiler of Python counts functions. This is a first look: the parts do not
add up to the call to the microsecond, and a profiler makes everything slower that is written in Python.
"""

from __future__ import annotations

import cProfile
import json
import pstats
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.cases import argmax_case, describe, pooling_case
from dmlgpu import Device
from tests.support.cases import Case

CASES = [
    argmax_case("8x100", (8, 100), [1]),
    argmax_case("4096x1024", (4096, 1024), [1]),
    pooling_case("resnet", (8, 64, 112, 112), 3, 2, 1, indices=True),
]
# Each part runs as often as it can in so many seconds, but within these numbers.
_SECONDS, _LEAST, _MOST = 0.5, 3, 300
_PROFILED_SECONDS, _FUNCTIONS = 1.0, 25


def times(run: Callable[[], object]) -> list[float]:
    """Seconds of each of many calls, after one that does not count."""
    run()
    samples: list[float] = []
    end = time.perf_counter() + _SECONDS
    while len(samples) < _LEAST or (len(samples) < _MOST and time.perf_counter() < end):
        begin = time.perf_counter()
        run()
        samples.append(time.perf_counter() - begin)
    return samples


def parts(device: Device, case: Case) -> dict[str, float]:
    """Median microseconds of what a call is made of."""
    (x,) = case.inputs()
    desc = case.desc
    op = device.compile(desc)
    source = device.tensor(x, desc.inputs[0])
    targets = op(source)
    outputs = targets if isinstance(targets, tuple) else (targets,)
    measured = {
        "a descriptor's copy": lambda: type(desc)(**vars(desc)),
        "finding the operator": lambda: device.compile(desc),
        "upload": lambda: device.tensor(x, desc.inputs[0]),
        "kernel": lambda: op(source, out=targets),
        "download": lambda: [output.numpy() for output in outputs],
        "call with arrays": lambda: op(x),
    }
    found = {name: 1e6 * statistics.median(times(run)) for name, run in measured.items()}
    found["kernel, what is not Kompute's"] = 1e6 * statistics.median(_outside(device, measured["kernel"]))
    return found


def _outside(device: Device, run: Callable[[], object]) -> list[float]:
    """Seconds of each of many calls that are spent neither in Kompute nor in the driver."""
    kompute: Any = device._engine.kompute
    evaluate = kompute._evaluate
    inside = 0.0

    def timed(sequence: Any) -> None:
        nonlocal inside
        begin = time.perf_counter()
        evaluate(sequence)
        inside += time.perf_counter() - begin

    kompute._evaluate = timed
    try:
        samples: list[float] = []
        for _ in range(len(times(run))):
            inside, begin = 0.0, time.perf_counter()
            run()
            samples.append(time.perf_counter() - begin - inside)
        return samples
    finally:
        del kompute._evaluate


def profile(device: Device, case: Case) -> list[dict[str, Any]]:
    """The functions of Python that a call with arrays spends most time in itself, in microseconds a call."""
    (x,) = case.inputs()
    op = device.compile(case.desc)
    op(x)
    profiler, calls = cProfile.Profile(), 0
    end = time.perf_counter() + _PROFILED_SECONDS
    profiler.enable()
    while time.perf_counter() < end:
        op(x)
        calls += 1
    profiler.disable()
    rows: Any = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    most = sorted(rows.items(), key=lambda row: -row[1][2])[:_FUNCTIONS]
    return [
        {
            "function": f"{'/'.join(file.split('/')[-2:])}:{line} {name}",
            "own": 1e6 * own / calls,
            "with callees": 1e6 * total / calls,
            "times a call": count / calls,
        }
        for (file, line, name), (_, count, own, total, _) in most
    ]


def breakdown() -> dict[str, Any]:
    with Device() as device:
        return {
            "microseconds": {case.id: parts(device, case) for case in CASES},
            "operators": {case.id: describe(case.desc) for case in CASES},
            "profile": {CASES[0].id: profile(device, CASES[0])},
        }


if __name__ == "__main__":
    print(json.dumps(breakdown()))
