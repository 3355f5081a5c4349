"""Results as pictures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FixedLocator, NullFormatter

from benchmarks.results import CALL, COPY, KERNEL, BenchmarkError, Result, others
from benchmarks.scale import by_name, quantity_of

# Okabe and Ito's colours, which colour-blind people can tell apart, and markers for everybody.
_STYLES = {
    KERNEL: ("#000000", "o"),
    CALL: ("#999999", "s"),
    COPY: ("#E69F00", "|"),
    "usual": ("#CC79A7", "D"),
    "numpy": ("#0072B2", "v"),
    "scipy": ("#0072B2", "<"),
    "torch": ("#D55E00", "^"),
    "torch-cuda": ("#D55E00", ">"),
    "cupy": ("#56B4E9", "P"),
    "onnxruntime": ("#009E73", "X"),
}
_LABELS = {
    KERNEL: "dmlgpu, device tensors",
    CALL: "dmlgpu, ndarrays",
    COPY: "copy of as many bytes",
    "usual": "usual kernel",
}


def check_path(path: str) -> None:
    """Raises a BenchmarkError where matplotlib has no such format."""
    formats = Figure().canvas.get_supported_filetypes()
    if Path(path).suffix.removeprefix(".").lower() not in formats:
        raise BenchmarkError(f"{path}: give a picture the suffix of its format: {', '.join(sorted(formats))}")


def plot_cases(header: Mapping[str, str], results: Sequence[Result]) -> Figure:
    """The median time of everything that ran each case, a row for each case."""
    names = [name for name in (KERNEL, CALL, *others(results)) if any(name in result.timings for result in results)]
    figure = Figure(figsize=(10, 2 + 0.4 * len(results)), layout="constrained")
    axes = figure.subplots()
    for number, name in enumerate(names):
        # One below the other within the row, so that none hides another.
        offset = 0.7 * ((number + 0.5) / len(names) - 0.5)
        rows = [row for row, result in enumerate(results) if name in result.timings]
        colour, marker = _STYLES[name]
        axes.plot(
            [results[row].timings[name].median for row in rows],
            [row + offset for row in rows],
            marker=marker,
            color=colour,
            linestyle="none",
            markersize=10 if marker == "|" else 6,
            markeredgewidth=2.5 if marker == "|" else 0.5,
            markeredgecolor=colour if marker == "|" else "white",
            zorder=4 if name == KERNEL else 3,
            label=_LABELS.get(name, name),
        )
    axes.set_yticks(range(len(results)), [result.case for result in results])
    axes.set_ylim(len(results) - 0.5, -0.5)
    axes.set_xscale("log")
    axes.set_xlabel("time of a call, median (left is better)")
    axes.xaxis.set_major_formatter(EngFormatter("s"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="x", color="0.85")
    for row in range(0, len(results), 2):
        axes.axhspan(row - 0.5, row + 0.5, color="0.96", zorder=0)
    finish(figure, header)
    return figure


def plot_scale(header: Mapping[str, str], results: Sequence[Result]) -> Figure:
    """Time against size, a panel for each case of SCALES or WINDOWS."""
    groups = by_name(results)
    columns = min(2, len(groups))
    rows = math.ceil(len(groups) / columns)
    figure = Figure(figsize=(5.5 * columns + 0.5, 4 * rows + 1.2), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes, (name, group) in zip(panels, groups.items(), strict=False):
        quantity = quantity_of(name)
        sizes = {result.case: quantity.size(result) for result in group}
        for other in (KERNEL, CALL, *others(group)):
            points = [(sizes[result.case], result.timings[other].median) for result in group if other in result.timings]
            if points:
                colour, marker = _STYLES[other]
                axes.plot(
                    *zip(*points, strict=True),
                    marker=marker,
                    color=colour,
                    markersize=5,
                    linewidth=2 if other == KERNEL else 1.2,
                    zorder=4 if other == KERNEL else 3,
                    label=_LABELS.get(other, other),
                )
        axes.set_title(name)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.xaxis.set_major_locator(FixedLocator([*sizes.values()][:: max(1, len(group) // 6)]))
        if quantity.tick:
            axes.xaxis.set_major_formatter(quantity.tick)
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(EngFormatter("s"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel(quantity.axis)
        axes.set_ylabel("time of a call, median")
        axes.grid(color="0.85")
    for axes in panels[len(groups) :]:
        axes.remove()
    finish(figure, header)
    return figure


def finish(figure: Figure, header: Mapping[str, str]) -> None:
    """What it was measured on, and one legend for all panels."""
    labels: dict[str, Artist] = {}
    for axes in figure.axes:
        handles, texts = axes.get_legend_handles_labels()
        labels |= dict(zip(texts, handles, strict=True))
    figure.legend(list(labels.values()), list(labels), loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(f"{header['device']}\n{header['CPU']}", fontsize="medium")
