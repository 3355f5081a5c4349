"""What was measured, and the JSON files that keep it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure import Timing

# Ours, by what is timed.
KERNEL = "kernel"
CALL = "call"
COMPILE = "compile"
FIRST_CALL = "first call"
BATCH = "batch"
OURS = (KERNEL, CALL, COMPILE, FIRST_CALL, BATCH)
COPY = "copy"
# Their names in prose.
LIBRARIES = {
    "numpy": "NumPy",
    "torch": "PyTorch",
    "torch-cuda": "PyTorch on CUDA",
    "onnxruntime": "ONNX Runtime",
    "onnxruntime-webgpu": "ONNX Runtime on WebGPU",
}
OTHERS = (COPY, "exact", "usual", *LIBRARIES)

_FORMAT = "dmlgpu benchmarks 1"
# A run of all cases has less than 1 MiB.
_MOST_BYTES = 64 << 20


class BenchmarkError(Exception):
    """What was asked for cannot be done; the message says why."""


@dataclass(frozen=True)
class Result:
    """What was measured of one case."""

    case: str
    operator: str
    elements: int
    """Of the first input."""
    bytes: int
    """Of the inputs and the outputs, as the descriptor has them."""
    timings: dict[str, Timing]
    """Of OURS and OTHERS; `in_batches` names more."""
    absent: dict[str, str]
    """Peers that did not run it, and why."""
    batch: int = 0
    """Calls of a batch; 0 where none was timed."""

    def bandwidth(self, name: str) -> float:
        """Bytes per second."""
        return self.bytes / self.timings[name].median

    def ratio(self, name: str) -> float:
        """Our kernel's time to that of another, of their medians, both in batches or neither: below 1 it is faster."""
        ours = BATCH if name.endswith(BATCH) else KERNEL
        return self.timings[ours].median / self.timings[name].median


@dataclass(frozen=True)
class Run:
    """What one run of the benchmarks measured, and where."""

    header: dict[str, str]
    results: tuple[Result, ...]


def in_batches(name: str) -> str:
    """The name of what KERNEL or one of OTHERS takes for a call in a batch."""
    return BATCH if name == KERNEL else f"{name} {BATCH}"


def save(run: Run, path: str) -> None:
    """Writes a JSON file; times are in seconds, the spread is the interquartile range."""
    results = [
        {
            **{field: value for field, value in vars(result).items() if field != "timings"},
            "timings": {
                name: {
                    "minimum": timing.minimum,
                    "median": timing.median,
                    "spread": timing.spread,
                    "samples": timing.samples,
                }
                for name, timing in result.timings.items()
            },
        }
        for result in run.results
    ]
    content = {"format": _FORMAT, "header": run.header, "results": results}
    Path(path).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def load(path: str) -> Run:
    """Reads what `save` wrote.

    Raises:
        BenchmarkError: it is something else.
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        text = file.read(_MOST_BYTES + 1)
    if len(text) > _MOST_BYTES:
        raise BenchmarkError(f"{path} has more than {_MOST_BYTES} bytes")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BenchmarkError(f"{path} is no JSON file: {error}") from None
    foreign = BenchmarkError(f"{path} was not written by `python -m benchmarks --json`")
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise foreign
    try:
        results = [_result(**fields) for fields in content["results"]]
        return Run(dict(content["header"]), tuple(results))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise foreign from error


def _result(*, timings: dict[str, Any], **fields: Any) -> Result:
    """A result, by the fields of its JSON."""
    return Result(**fields, timings={name: Timing(tuple(map(float, t["samples"]))) for name, t in timings.items()})
