"""Small calls: compares the time of a function with that of the compiled operator, called in the same ways.

    python -m benchmarks.calls

A call with few elements is mostly work of the host. `Device.compile` has planned its operator; a function looks the
plan up, and determines where its array lies.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import dmlgpu
from benchmarks import machine
from benchmarks.measure import Timing, interleave
from benchmarks.report import COLUMNS, Table, digits, duration, show, to_markdown
from benchmarks.results import BenchmarkError
from dmlgpu.tools.terminal import open_console

ELEMENTS = np.random.default_rng(0).random((1, 1, 20, 30), np.float32)

# An operator on ELEMENTS, and the function that computes it.
CASES: dict[str, tuple[dmlgpu.OperatorDesc, Callable[..., Any]]] = {
    "argmax": (
        dmlgpu.ArgmaxOperatorDesc.of(ELEMENTS, (3,), output_data_type=dmlgpu.DataType.INT64),
        partial(dmlgpu.argmax, axis=3),
    ),
    "sum": (
        dmlgpu.ReduceOperatorDesc.of(dmlgpu.ReduceFunction.SUM, ELEMENTS, (3,)),
        partial(dmlgpu.sum, axis=3),
    ),
    "max_pooling 2x2 s2": (
        dmlgpu.MaxPooling2OperatorDesc.of(ELEMENTS, window_size=(2, 2), strides=(2, 2)),
        partial(dmlgpu.max_pooling, window_size=2, strides=2),
    ),
}
_WAYS = {"out": "device tensor, out=", "tensor": "device tensor", "array": "array"}


def measured(
    device: dmlgpu.Device, desc: dmlgpu.OperatorDesc, function: Callable[..., Any], rounds: int
) -> dict[str, Timing]:
    """Times of calls with device tensors and `out=`, with only device tensors, and with arrays, in turns.

    Raises:
        BenchmarkError: the function and the operator differ.
    """
    operator, tensor = device.compile(desc), device.tensor(ELEMENTS)
    out, functions_out = operator(tensor), function(tensor)  # functions drop reduced axes
    runs: dict[str, Callable[[], Any]] = {
        "operator, out": lambda: operator(tensor, out=out),
        "function, out": lambda: function(tensor, out=functions_out),
        "operator, tensor": lambda: operator(tensor),
        "function, tensor": lambda: function(tensor),
        "operator, array": lambda: operator(ELEMENTS),
        "function, array": lambda: function(ELEMENTS, device=device),
    }
    expected = dmlgpu.reference(desc, ELEMENTS)[0]
    for name, run in runs.items():
        if not np.allclose(np.asarray(run()).reshape(expected.shape), expected, rtol=1e-5):
            raise BenchmarkError(f"{name}: the results differ from the oracle's")
    return interleave(runs, rounds, math.inf)


def _row(case: str, way: str, timings: dict[str, Timing]) -> tuple[str, ...]:
    operator, function = timings[f"operator, {way}"], timings[f"function, {way}"]
    # Ratios of single rounds, because a busy machine slows down both.
    ratio = median(
        numerator / denominator for numerator, denominator in zip(function.samples, operator.samples, strict=True)
    )
    return case, _WAYS[way], duration(operator.median), duration(function.median), digits(ratio)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit code is 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calls", description=__doc__.partition("\n")[0])
    parser.add_argument("--device", metavar="INDEX|NAME|UUID", help="default: DMLGPU_DEVICE, else the best device")
    parser.add_argument("--rounds", type=int, default=31, help="rounds of samples (default: 31)")
    parser.add_argument("--markdown", metavar="FILE", help="write the table as Markdown")
    args = parser.parse_args(arguments)
    with dmlgpu.Device(args.device) as device:
        header = machine.environment(device)
        timings = {name: measured(device, *case, args.rounds) for name, case in CASES.items()}
    shape = "x".join(map(str, ELEMENTS.shape))
    table = Table(
        "small calls",
        ("case", "called with", "operator", "function", "ratio"),
        tuple(_row(case, way, times) for case, times in timings.items() for way in _WAYS),
        f"Medians; float32 {shape}. Ratio: the median of the function's time divided by the operator's in each round.",
    )
    show(open_console(COLUMNS), header, table, ())
    if args.markdown:
        Path(args.markdown).write_text(to_markdown(header, table, ()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
