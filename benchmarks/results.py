"""Measurements, and the JSON files that store them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure import Timing

# Names of dmlgpu's timings.
KERNEL = "kernel"
CALL = "call"
COMPILE = "compile"
FIRST_CALL = "first call"
BATCH = "batch"
OURS = (KERNEL, CALL, COMPILE, FIRST_CALL, BATCH)
COPY = "copy"
# Names of libraries in prose.
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
    """A request cannot be fulfilled; the message says why."""


@dataclass(frozen=True)
class Result:
    """The measurements of one case."""

    case: str
    operator: str
    elements: int
    """Elements of the first input."""
    bytes: int
    """Bytes of the inputs and the outputs, as in the descriptor."""
    timings: dict[str, Timing]
    """Timings of OURS and OTHERS; `in_batches` names more."""
    absent: dict[str, str]
    """Peers that did not run it, and the reasons."""
    batch: int = 0
    """Calls of a batch; 0 if none was timed."""

    def bandwidth(self, name: str) -> float:
        """Bytes per second."""
        return self.bytes / self.timings[name].median

    def ratio(self, name: str) -> float:
        """Median time of our kernel divided by that of another, both in batches or neither: below 1 ours is faster."""
        ours = BATCH if name.endswith(BATCH) else KERNEL
        return self.timings[ours].median / self.timings[name].median


@dataclass(frozen=True)
class Run:
    """The measurements of one run, and its header."""

    header: dict[str, str]
    results: tuple[Result, ...]


def in_batches(name: str) -> str:
    """The name of the time per call of KERNEL or one of OTHERS in a batch."""
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
    """Reads a file of `save`.

    Raises:
        BenchmarkError: it is another kind of file.
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
    """A result, from the fields of its JSON."""
    return Result(**fields, timings={name: Timing(tuple(map(float, t["samples"]))) for name, t in timings.items()})
