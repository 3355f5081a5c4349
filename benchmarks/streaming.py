"""An array in a file that is larger than a device: time and memory of reading it, of computing it, and of both at once.

    python -m benchmarks.streaming x.npy --gib 8

The file is made where it is not there. Every sample is a process of its own, which finds nothing of the file in the
page cache, and says the most memory that it had. Computing alone takes chunks that are in memory already, reading alone
takes the same chunks of the file.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import dmlgpu
from benchmarks.report import Table, duration, percent, show
from dmlgpu import streaming

WIDTH = 1 << 15  # of rows of float32
CASES: dict[str, Callable[..., Any]] = {
    "argmax, all": streaming.argmax,
    "argmax, axis 0": lambda x, **options: streaming.argmax(x, 0, **options),
    "argmax, axis 1": lambda x, **options: streaming.argmax(x, 1, **options),
    "sum, axis 1": lambda x, **options: streaming.reduce(x, dmlgpu.ReduceFunction.SUM, 1, **options),
    "max_pooling 3x3 s2": lambda x, **options: streaming.max_pooling(x, 3, strides=2, **options),
}


class InMemory:
    """An array like another one, whose chunks of equal sizes are the same: none is read twice.

    Attributes:
        regions: what was asked for.
    """

    def __init__(self, x: Any) -> None:
        self.shape, self.dtype = x.shape, x.dtype
        self.regions: list[tuple[slice, ...]] = []
        self._x = x
        self._chunks: dict[tuple[int, ...], Any] = {}

    def __getitem__(self, region: tuple[slice, ...]) -> Any:
        self.regions.append(region)
        sizes = tuple(part.stop - part.start for part in region)
        if sizes not in self._chunks:
            self._chunks[sizes] = self._x[region].copy()
        return self._chunks[sizes]


def make(path: Path, gib: float) -> None:
    """A file with an array of random numbers, of which few have the greatest value."""
    rows = int(gib * (1 << 30)) // (4 * WIDTH)
    x = np.lib.format.open_memmap(path, "w+", np.float32, (rows, WIDTH))
    some = np.random.default_rng(0).random((1 << 10, WIDTH), np.float32)
    for begin in range(0, rows, len(some)):
        x[begin : begin + len(some)] = some[: rows - begin]
    x[[rows // 2, rows - 1], WIDTH // 3] = 2
    x.flush()


def forget(path: Path) -> None:
    """Takes a file out of the page cache."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)


def sample(path: Path, case: str, chunk_bytes: int, together: bool) -> str:
    """Seconds of reading and computing together and the peak of memory; or of each alone."""
    x, run = np.load(path, mmap_mode="r"), CASES[case]
    out = None
    if "pooling" in case:  # outputs would be most of the memory
        rows, columns = ((size - 3) // 2 + 1 for size in x.shape)
        out = np.lib.format.open_memmap(path.with_suffix(".out.npy"), "w+", x.dtype, (rows, columns))
    run(x[:64], chunk_bytes=chunk_bytes)  # opens the device
    if together:
        begin = time.perf_counter()
        run(x, chunk_bytes=chunk_bytes, out=out)
        return f"{time.perf_counter() - begin} {peak()}"
    chunks = InMemory(x)
    run(chunks, chunk_bytes=chunk_bytes, out=out)
    chunks.regions.clear()
    begin = time.perf_counter()
    run(chunks, chunk_bytes=chunk_bytes, out=out)
    computing = time.perf_counter() - begin
    forget(path)
    begin = time.perf_counter()
    for region in chunks.regions:
        streaming._elements(x, region)
    return f"{time.perf_counter() - begin} {computing}"


def peak() -> int:
    """The most bytes that this process had in memory, those of files included."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


def measured(path: Path, case: str, chunk_bytes: int, together: bool) -> list[float]:
    """A sample in a process of its own."""
    forget(path)
    program = [sys.executable, "-m", "benchmarks.streaming", str(path), "--sample", case]
    program += ["--chunk-mib", str(chunk_bytes >> 20), *(["--together"] if together else [])]
    return [float(text) for text in subprocess.run(program, check=True, capture_output=True, text=True).stdout.split()]


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.streaming", description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, metavar="FILE.npy")
    parser.add_argument("--gib", type=float, default=8, help="of a file that is made (default: 8)")
    parser.add_argument("--chunk-mib", type=int, nargs="+", default=[64], help="of chunks (default: 64)")
    parser.add_argument("--rounds", type=int, default=3, help="of samples (default: 3)")
    parser.add_argument("--sample", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--together", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.sample:
        print(sample(args.file, args.sample, args.chunk_mib[0] << 20, args.together))
        return 0
    from rich.console import Console

    if not args.file.exists():
        make(args.file, args.gib)
    rows = []
    for case in CASES:
        for mib in args.chunk_mib:
            samples = [
                (*measured(args.file, case, mib << 20, True), *measured(args.file, case, mib << 20, False))
                for _ in range(args.rounds)
            ]
            both, memory, reading, computing = (median(column) for column in zip(*samples, strict=True))
            share = percent(both / (reading + computing))
            times = map(duration, (reading, computing, both))
            rows.append((case, f"{mib} MiB", *times, share, f"{memory / (1 << 20):.0f} MiB"))
    columns = ("case", "chunks", "reading", "computing", "streaming", "of the sum", "peak of memory")
    note = f"Medians of {args.rounds}. Of the sum: of reading and computing, one after the other."
    show(Console(), {}, [Table(args.file.name, columns, tuple(rows), note)], [])
    return 0


if __name__ == "__main__":
    sys.exit(main())
