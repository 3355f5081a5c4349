"""An array in a file that is larger than a device: time and memory of reading it, of computing it, and of both at once.

    python -m benchmarks.streaming x.npy --gib 8

The file is made where it is not there. Every sample is a process of its own, which finds nothing of the file in the
page cache, and says the most memory that it had. Computing alone takes chunks that are in memory already, reading alone
takes the same chunks of the file.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

import dmlgpu
from benchmarks import machine
from benchmarks.report import COLUMNS, Table, duration, percent, show, to_markdown
from dmlgpu.tools.terminal import open_console

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 1 << 15  # of rows of float32
CASES: dict[str, Callable[..., Any]] = {
    "argmax, all": dmlgpu.argmax,
    "argmax, axis 0": lambda x, **options: dmlgpu.argmax(x, 0, **options),
    "sum, axis 1": lambda x, **options: dmlgpu.sum(x, 1, **options),
    "max_pooling 3x3 s2": lambda x, **options: dmlgpu.max_pooling(x, 3, strides=2, **options),
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
    run(dmlgpu.chunked(x[:64], chunk_bytes=chunk_bytes))  # opens the device
    file = dmlgpu.chunked(x, chunk_bytes=chunk_bytes)
    if together:
        begin = time.perf_counter()
        run(file, out=out)
        return f"{time.perf_counter() - begin} {peak()}"
    in_memory = InMemory(x)
    chunks = dmlgpu.chunked(in_memory, chunk_bytes=chunk_bytes)
    run(chunks, out=out)
    in_memory.regions.clear()
    begin = time.perf_counter()
    run(chunks, out=out)
    computing = time.perf_counter() - begin
    forget(path)
    begin = time.perf_counter()
    for region in in_memory.regions:
        file._elements(region)
    return f"{time.perf_counter() - begin} {computing}"


def peak() -> int:
    """The most bytes that this process had in memory, those of files included.

    getrusage would give a child what its parent had before exec.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


def measured(path: Path, case: str, chunk_bytes: int, together: bool) -> list[float]:
    """A sample in a process of its own."""
    forget(path)
    program = [sys.executable, "-m", "benchmarks.streaming", str(path), "--sample", case]
    program += ["--chunk-mib", str(chunk_bytes >> 20), *(["--together"] if together else [])]
    return [float(text) for text in subprocess.run(program, check=True, capture_output=True, text=True).stdout.split()]


@dataclass(frozen=True)
class Streamed:
    """What a case took: medians of seconds, and the most bytes in memory."""

    case: str
    chunk_bytes: int
    reading: float
    computing: float
    both: float
    peak: int

    @property
    def share(self) -> float:
        """Of reading and computing, one after the other."""
        return self.both / (self.reading + self.computing)


def table(found: Sequence[Streamed], rounds: int) -> Table:
    columns = ("case", "chunks of", "reading", "computing", "both at once", "of the sum", "peak of memory")
    rows = tuple(
        (
            each.case,
            f"{each.chunk_bytes >> 20} MiB",
            *map(duration, (each.reading, each.computing, each.both)),
            percent(each.share),
            f"{each.peak >> 20} MiB",
        )
        for each in found
    )
    note = f"Medians of {rounds}. Of the sum: of reading and computing, one after the other."
    return Table("streaming", columns, rows, note)


def plot(header: dict[str, str], found: Sequence[Streamed]) -> Figure:
    """Reading and computing one after the other, and both at once, for each case."""
    from benchmarks.plot import COLOURS, add_legend, add_title, new_figure

    figure = new_figure(1.5 + 0.6 * len(found))
    axes = figure.subplots()
    rows, reading = range(len(found)), [each.reading for each in found]
    above, below = [row - 0.2 for row in rows], [row + 0.2 for row in rows]
    computing, both = [each.computing for each in found], [each.both for each in found]
    axes.barh(above, reading, 0.35, color=COLOURS["blue"], label="reading alone")
    axes.barh(above, computing, 0.35, reading, color=COLOURS["orange"], label="then computing alone", hatch="//")
    axes.barh(below, both, 0.35, color=COLOURS["black"], label="both at once")
    axes.set_yticks(rows, [f"{each.case}\nchunks of {each.chunk_bytes >> 20} MiB" for each in found])
    axes.invert_yaxis()
    axes.set_xlabel("seconds, median")
    axes.grid(axis="x", color="0.88")
    axes.set_axisbelow(True)
    add_title(figure, header, f"Time for {header['array']}")
    add_legend(figure, [axes], "outside lower center", columns=3)
    return figure


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.streaming", description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, metavar="FILE.npy")
    parser.add_argument("--gib", type=float, default=8, help="of a file that is made (default: 8)")
    parser.add_argument("--chunk-mib", type=int, nargs="+", default=[64], help="of chunks (default: 64)")
    parser.add_argument("--rounds", type=int, default=4, help="of samples (default: 4)")
    parser.add_argument("--plot", metavar="FILE", help="draw the times: .png, .svg or .pdf")
    parser.add_argument("--markdown", metavar="FILE", help="write the table as Markdown")
    parser.add_argument("--sample", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--together", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.sample:
        print(sample(args.file, args.sample, args.chunk_mib[0] << 20, args.together))
        return 0
    if not args.file.exists():
        make(args.file, args.gib)
    with dmlgpu.Device() as device:
        header = machine.place(device)
    header["array"] = f"{args.file.stat().st_size / (1 << 30):.3g} GiB of float32 in a file, not in the page cache"
    found = []
    for case, mib in itertools.product(CASES, args.chunk_mib):
        together: list[list[float]] = []
        alone: list[list[float]] = []
        for i in range(args.rounds):
            # In turns, as what lies below the page cache remembers what was read last.
            for kind in (together, alone) if i % 2 == 0 else (alone, together):
                kind.append(measured(args.file, case, mib << 20, kind is together))
        both, memory = map(median, zip(*together, strict=True))
        reading, computing = map(median, zip(*alone, strict=True))
        found.append(Streamed(case, mib << 20, reading, computing, both, int(memory)))
    tables = [table(found, args.rounds)]
    show(open_console(COLUMNS), header, tables, ())
    if args.markdown:
        Path(args.markdown).write_text(to_markdown(header, tables, ()), encoding="utf-8")
    if args.plot:
        plot(header, found).savefig(args.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
