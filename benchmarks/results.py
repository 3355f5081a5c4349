"""Measurements, and the JSON files that store them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.measure import Timing

# Names of dmlgpu's timings.
KERNEL = "kernel"
CALL = "call"
COMPILE = "compile"
FIRST_CALL = "first call"
BATCH = "batch"
OURS = (KERNEL, CALL, COMPILE, FIRST_CALL, BATCH)
COPY = "copy"
LIBRARIES = ("numpy", "torch", "torch-cuda", "onnxruntime", "onnxruntime-webgpu")
OTHERS = (COPY, "exact", "usual", *LIBRARIES)

_FORMAT = "dmlgpu benchmarks 2"
# A run of all cases has less than 1 MiB.
_MOST_BYTES = 64 << 20


class BenchmarkError(Exception):
    """A request cannot be fulfilled; the message says why."""


@dataclass(frozen=True)
class Result:
    """The measurements of one case."""

    case: str
    bytes: int
    """Bytes of the inputs and the outputs, as in the descriptor."""
    timings: Mapping[str, Timing]
    """Timings by name: OURS, OTHERS, and those of `in_batches`."""
    absent: Mapping[str, str]
    """Reasons why peers did not run the case, by their names."""

    def ratio(self, name: str) -> float:
        """Median time of our kernel divided by that of another, both in batches or neither: below 1 ours is faster."""
        ours = BATCH if name.endswith(BATCH) else KERNEL
        return self.timings[ours].median / self.timings[name].median


@dataclass(frozen=True)
class Run:
    """The measurements of one run, and its header."""

    header: Mapping[str, str]
    results: tuple[Result, ...]


def in_batches(name: str) -> str:
    """Name of the timing of batches, per call, for KERNEL or one of OTHERS."""
    return BATCH if name == KERNEL else f"{name} {BATCH}"


def save(run: Run, path: str) -> None:
    """Writes a JSON file with all samples, in seconds."""
    content = {"format": _FORMAT, **asdict(run)}
    Path(path).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def load(path: str) -> Run:
    """Reads a file that `save` wrote.

    Raises:
        BenchmarkError: the file has another content.
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        text = file.read(_MOST_BYTES + 1)
    if len(text) > _MOST_BYTES:
        raise BenchmarkError(f"{path} has more than {_MOST_BYTES} bytes")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BenchmarkError(f"{path} is no JSON file: {error}") from None
    try:
        if content.pop("format") != _FORMAT:
            raise ValueError(path)
        results = []
        for fields in content["results"]:
            timings = {name: Timing(tuple(map(float, time["samples"]))) for name, time in fields["timings"].items()}
            results.append(Result(**{**fields, "timings": timings}))
        return Run(dict(content["header"]), tuple(results))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BenchmarkError(f"{path} was not written by this version of `python -m benchmarks --json`") from error
