"""Small calls: what a function takes beside the compiled operator, called the same way, in the same run.

    python -m benchmarks.calls

A call with few elements is mostly work of the host. `Device.compile` has planned its operator; a function looks it up,
and determines where its array lies.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from dmlgpu import ArgmaxOperatorDesc, DataType, MaxPooling2OperatorDesc, OperatorDesc, ReduceFunction
from dmlgpu import ReduceOperatorDesc as Reduce
from dmlgpu.tools.terminal import open_console

ELEMENTS = np.random.default_rng(0).random((1, 1, 20, 30), np.float32)


@dataclass(frozen=True)
class Small:
    """A function of ELEMENTS, and the same operator."""

    desc: OperatorDesc
    function: Callable[..., Any]


CASES = {
    "argmax": Small(
        ArgmaxOperatorDesc.of(ELEMENTS, (3,), output_data_type=DataType.INT64),
        partial(dmlgpu.argmax, axis=3),
    ),
    "sum": Small(Reduce.of(ReduceFunction.SUM, ELEMENTS, (3,)), partial(dmlgpu.sum, axis=3)),
    "max_pooling 2x2 s2": Small(
        MaxPooling2OperatorDesc.of(ELEMENTS, window_size=(2, 2), strides=(2, 2)),
        partial(dmlgpu.max_pooling, window_size=2, strides=2),
    ),
}


def measured(device: dmlgpu.Device, case: Small, rounds: int) -> dict[str, Timing]:
    """Times of calls with device tensors and `out=`, with only device tensors, and with arrays, in turns.

    Raises:
        BenchmarkError: the function and the operator differ.
    """
    operator, function = device.compile(case.desc), case.function
    tensor = device.tensor(ELEMENTS)
    out, functions_out = operator(tensor), function(tensor)  # functions drop reduced axes
    runs: dict[str, Callable[[], Any]] = {
        "operator, out": lambda: operator(tensor, out=out),
        "function, out": lambda: function(tensor, out=functions_out),
        "operator, tensor": lambda: operator(tensor),
        "function, tensor": lambda: function(tensor),
        "operator, array": lambda: operator(ELEMENTS),
        "function, array": lambda: function(ELEMENTS, device=device),
    }
    expected = dmlgpu.reference(case.desc, ELEMENTS)[0]
    for name, run in runs.items():
        if not np.allclose(np.asarray(run()).reshape(expected.shape), expected, rtol=1e-5):
            raise BenchmarkError(f"{name}: the results differ from the oracle's")
    return interleave(runs, rounds, math.inf, lambda: None)


def table(timings: dict[str, dict[str, Timing]]) -> Table:
    """A row for each case and way of calling."""
    ways = {"out": "device tensor, out=", "tensor": "device tensor", "array": "array"}
    rows = []
    for case, times in timings.items():
        for way, words in ways.items():
            operator, function = times[f"operator, {way}"], times[f"function, {way}"]
            # Ratio within a round, because a busy machine slows down both.
            ratio = median(ours / least for ours, least in zip(function.samples, operator.samples, strict=True))
            rows.append((case, words, duration(operator.median), duration(function.median), digits(ratio)))
    shape = "x".join(map(str, ELEMENTS.shape))
    note = f"Medians; float32 {shape}. Ratio: of the function to the compiled operator, in each round."
    return Table("small calls", ("case", "called with", "operator", "function", "ratio"), tuple(rows), note)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit code is 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calls", description=__doc__.partition("\n")[0])
    parser.add_argument("--device", metavar="INDEX|NAME|UUID", help="default: DMLGPU_DEVICE, else the best device")
    parser.add_argument("--rounds", type=int, default=31, help="of samples (default: 31)")
    parser.add_argument("--markdown", metavar="FILE", help="write the table as Markdown")
    args = parser.parse_args(arguments)
    with dmlgpu.Device(args.device) as device:
        header = machine.place(device)
        times = table({name: measured(device, case, args.rounds) for name, case in CASES.items()})
    show(open_console(COLUMNS), header, [times], ())
    if args.markdown:
        Path(args.markdown).write_text(to_markdown(header, [times], ()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
