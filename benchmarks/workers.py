"""A Dask array of a file: time and memory over the sizes of chunks and the number of workers, and a model beyond.

    python -m benchmarks.workers x.bin --gib 2 --plot workers.png

The file is made where it is not there, and is in the page cache. Each pair of a size and a number is a cluster of its
own, in which all cases take turns. A worker is a process with one thread and, on llvmpipe, one core (LP_NUM_THREADS=1):
two workers on a machine with two cores are two devices.

The model of the time of n chunks, B bytes in all, on W workers that each have a device:

    a + s n + (o n + b B) / W

a is what a call takes at least, s what the scheduler takes for a chunk, which is one process, and o what a worker does.
b is what it takes to read and to compute a byte. They are fitted to what was measured, none below 0.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import dask.array as da
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, NullFormatter

import dmlgpu
from benchmarks import machine
from benchmarks.plot import COLOURS, add_legend, add_title, new_figure
from benchmarks.report import COLUMNS, Table, duration, percent, show, to_markdown
from benchmarks.streaming import peak
from dmlgpu.interop.dask import LocalVulkanCluster
from dmlgpu.tools.terminal import open_console

WIDTH = 1 << 12  # of rows of float32
MODELLED = [1, 2, 4, 8, 16, 32]  # workers
Points = Sequence[tuple[int, float]]
_STYLES = ("black", "o"), ("orange", "s"), ("sky", "^"), ("green", "D"), ("vermilion", "v"), ("purple", "P")


def pooled_maximum(x: Any) -> Any:
    return dmlgpu.max(dmlgpu.max_pooling(x, 3, strides=2))


# What gives one number, so that nothing but parts of chunks is moved.
CASES: dict[str, Callable[[Any], Any]] = {
    "argmax": dmlgpu.argmax,
    "max_pooling 3x3 s2, then MAX": pooled_maximum,
    "Dask's own argmax": lambda x: da.argmax(x),
}


@dataclass(frozen=True)
class Sample:
    """What a case took."""

    case: str
    chunk_bytes: int
    workers: int
    chunks: int
    seconds: float
    peak: int
    """The most bytes that a worker had in memory, in all cases."""


@dataclass(frozen=True)
class Model:
    """a, s, o and b of the model above, in seconds."""

    call: float
    scheduler: float
    worker: float
    byte: float

    def seconds(self, chunks: int, size: int, workers: int) -> float:
        """What so many chunks, which have so many bytes together, take on so many workers."""
        return self.call + self.scheduler * chunks + (self.worker * chunks + self.byte * size) / workers


def fit(samples: Sequence[Sample], size: int) -> Model:
    """The model that is nearest to samples of a case, in relative error."""
    terms = np.array([(1, s.chunks, s.chunks / s.workers, size / s.workers) for s in samples])
    terms /= np.array([s.seconds for s in samples])[:, None]
    best, least = np.zeros(4), math.inf
    # Each term is there or not: of the fits without a negative one the best.
    for present in itertools.product([False, True], repeat=4):
        found = np.zeros(4)
        found[list(present)] = np.linalg.lstsq(terms[:, present], np.ones(len(terms)), rcond=None)[0]
        error = float(np.square(terms @ found - 1).sum())
        if (found >= 0).all() and error < least:
            best, least = found, error
    return Model(*best.tolist())


def make(path: Path, gib: float) -> None:
    """A file of random float32."""
    some = np.random.default_rng(0).random(1 << 24, np.float32)
    row = 4 * WIDTH
    size = int(gib * (1 << 30)) // row * row
    with path.open("wb") as file:
        for begin in range(0, size, some.nbytes):
            file.write(some[: (size - begin) // 4].data)


def array(path: Path, chunk_bytes: int) -> Any:
    """The rows of a file, so many bytes of them in a chunk."""
    row = 4 * WIDTH
    rows, each = path.stat().st_size // row, max(chunk_bytes // row, 1)
    sizes = tuple(min(each, rows - begin) for begin in range(0, rows, each))
    meta = np.empty((0, 0), np.float32)
    return da.map_blocks(rows_of, path=str(path), chunks=(sizes, (WIDTH,)), dtype=np.float32, meta=meta)


def rows_of(path: str, block_info: Any) -> Any:
    """A chunk of `array`, on a worker."""
    (begin, end), _ = block_info[None]["array-location"]
    return np.fromfile(path, np.float32, (end - begin) * WIDTH, offset=begin * WIDTH * 4).reshape(-1, WIDTH)


def measured(path: Path, chunk_bytes: int, workers: int, rounds: int, info: dmlgpu.DeviceInfo) -> list[Sample]:
    """Every case on a cluster of its own, medians."""
    x = array(path, chunk_bytes)
    env = {"LP_NUM_THREADS": "1"} if "llvmpipe" in info.name else {}
    cluster = LocalVulkanCluster([info.index], n_workers=workers, env=env, dashboard_address=":0")
    seconds: dict[str, list[float]] = {name: [] for name in CASES}
    with cluster, cluster.get_client() as client:
        for name, case in [*CASES.items()] * (1 + rounds):
            begin = time.perf_counter()
            case(x).compute()
            seconds[name].append(time.perf_counter() - begin)
        most = max(client.run(peak).values())
    # The first round opened devices and compiled.
    return [Sample(name, chunk_bytes, workers, x.numblocks[0], median(seconds[name][1:]), most) for name in CASES]


def tables(samples: Sequence[Sample], size: int) -> list[Table]:
    """What was measured and what the model says, a table for each case; and the memory."""
    workers = sorted({sample.workers for sample in samples})
    further = [count for count in MODELLED if count > workers[-1]]
    columns = ("chunks of", "chunks", *map(_workers, workers), "off", *(f"{_workers(n)}, modelled" for n in further))
    found = []
    for case in CASES:
        own = [sample for sample in samples if sample.case == case]
        model, rows = fit(own, size), []
        for chunk_bytes, group in _by_chunk(own):
            chunks = group[0].chunks
            off = max(abs(model.seconds(chunks, size, s.workers) / s.seconds - 1) for s in group)
            times = [*(s.seconds for s in group)], [model.seconds(chunks, size, count) for count in further]
            rows.append(
                (_mib(chunk_bytes), str(chunks), *map(duration, times[0]), percent(off), *map(duration, times[1]))
            )
        note = (
            f"Medians. Model: {_term(model.call)} for a call; for a chunk {_term(model.scheduler)} of the scheduler "
            f"and {_term(model.worker)} of a worker; for a GiB {_term(model.byte * (1 << 30))} of a worker. Off: the "
            "most that the model differs from what was measured."
        )
        found.append(Table(case, columns, tuple(rows), note))
    own = [sample for sample in samples if sample.case == next(iter(CASES))]
    peaks = tuple((_mib(size), *(f"{s.peak / (1 << 20):.0f} MiB" for s in group)) for size, group in _by_chunk(own))
    note = "The most that a worker had in memory, in all these cases."
    return [*found, Table("memory", ("chunks of", *map(_workers, workers)), peaks, note)]


def _by_chunk(samples: Sequence[Sample]) -> list[tuple[int, list[Sample]]]:
    """The samples with chunks of each size, from few workers to many."""
    ordered = sorted(samples, key=lambda sample: (sample.chunk_bytes, sample.workers))
    return [(size, list(group)) for size, group in itertools.groupby(ordered, key=lambda sample: sample.chunk_bytes)]


def _workers(count: int) -> str:
    return f"{count} worker{'s' * (count > 1)}"


def _mib(size: int) -> str:
    return f"{size / (1 << 20):g} MiB"


def _term(seconds: float) -> str:
    return duration(seconds) if seconds else "nothing"


def plot(header: dict[str, str], samples: Sequence[Sample], size: int) -> Figure:
    """For each case time over the size of chunks, and over workers: filled markers are measured, lines modelled."""
    figure = new_figure(2.6 * len(CASES) + 1.8)
    panels = figure.subplots(len(CASES), 2, sharey="row")
    for (by_size, by_workers), case in zip(panels, CASES, strict=True):
        own = [sample for sample in samples if sample.case == case]
        model, groups = fit(own, size), _by_chunk(own)
        for count, style in zip(MODELLED, _STYLES, strict=True):
            line = [(chunk_bytes, model.seconds(group[0].chunks, size, count)) for chunk_bytes, group in groups]
            points = [(s.chunk_bytes, s.seconds) for s in own if s.workers == count]
            _draw(by_size, line, points, style, _workers(count))
        for (chunk_bytes, group), style in zip(groups, _STYLES, strict=False):
            line = [(count, model.seconds(group[0].chunks, size, count)) for count in MODELLED]
            points = [(s.workers, s.seconds) for s in group]
            _draw(by_workers, line, points, style, f"chunks of {_mib(chunk_bytes)}")
        for axes, label in ((by_size, "size of chunks"), (by_workers, "workers")):
            axes.set_title(case, fontsize="medium")
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.set_xlabel(label)
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.yaxis.set_major_formatter(EngFormatter("s"))
            axes.yaxis.set_minor_formatter(NullFormatter())
            axes.grid(color="0.88")
        by_size.set_xticks([chunk_bytes for chunk_bytes, _ in groups], [_mib(chunk_bytes) for chunk_bytes, _ in groups])
        by_size.set_ylabel("time, median")
        by_workers.set_xticks(MODELLED, [*map(str, MODELLED)])
    add_title(figure, header, f"Time for {header['array']}: filled markers measured, lines modelled")
    add_legend(figure, panels[:, 0], "outside lower left", columns=2)
    add_legend(figure, panels[:, 1], "outside lower right", columns=2)
    return figure


def _draw(axes: Axes, model: Points, measured: Points, style: tuple[str, str], label: str) -> None:
    colour, marker = COLOURS[style[0]], style[1]
    look: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 5}
    axes.plot(*zip(*model, strict=True), markerfacecolor="white", linewidth=1.2, label=label, **look)
    axes.plot([x for x, _ in measured], [y for _, y in measured], linestyle="none", **look)


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.workers", description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--gib", type=float, default=2, help="of a file that is made (default: 2)")
    sizes = [1, 4, 16, 64]
    parser.add_argument("--chunk-mib", type=float, nargs="+", default=sizes, help="of chunks (default: 1 4 16 64)")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2], help="how many (default: 1 2)")
    parser.add_argument("--rounds", type=int, default=3, help="of samples (default: 3)")
    parser.add_argument("--plot", metavar="FILE", help="draw the times: .png, .svg or .pdf")
    parser.add_argument("--markdown", metavar="FILE", help="write the tables as Markdown")
    args = parser.parse_args(arguments)
    if not args.file.exists():
        make(args.file, args.gib)
    size = args.file.stat().st_size
    with args.file.open("rb") as file:  # into the page cache
        while file.read(1 << 26):
            pass
    samples = []
    with dmlgpu.Device() as device:
        info, header = device.info, machine.place(device, "dask")
    header["array"] = f"{size / (1 << 30):g} GiB of float32 in a file that is in the page cache"
    header["rounds"] = str(args.rounds)
    for chunk_mib, workers in itertools.product(args.chunk_mib, args.workers):
        samples += measured(args.file, int(chunk_mib * (1 << 20)), workers, args.rounds, info)
    found = tables(samples, size)
    show(open_console(COLUMNS), header, found, ())
    if args.markdown:
        Path(args.markdown).write_text(to_markdown(header, found, ()), encoding="utf-8")
    if args.plot:
        plot(header, samples, size).savefig(args.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
