"""Results as pictures, which are read on pages 800 pixels wide and, being opaque, on dark pages too."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FixedLocator, LogLocator, NullFormatter

from benchmarks.results import CALL, COPY, KERNEL, LIBRARIES, BenchmarkError, Result, others
from benchmarks.scale import by_name, quantity_of

# Okabe and Ito's colours, which colour-blind people can tell apart, and markers for everybody.
COLOURS = {
    "black": "#000000",
    "orange": "#E69F00",
    "sky": "#56B4E9",
    "green": "#009E73",
    "yellow": "#B5A300",  # darker than theirs: it stands on white
    "blue": "#0072B2",
    "vermilion": "#D55E00",
    "purple": "#CC79A7",
    "grey": "#999999",
}
_STYLES = {
    KERNEL: ("black", "o"),
    COPY: ("grey", "d"),
    "exact": ("black", "x"),
    "usual": ("purple", "s"),
    "numpy": ("blue", "v"),
    "torch": ("vermilion", "^"),
    "torch-cuda": ("orange", ">"),
    "onnxruntime": ("green", "X"),
    "onnxruntime-webgpu": ("green", "*"),
}
_LABELS = {
    KERNEL: "dmlgpu, device tensors",
    COPY: "copy of as many bytes",
    "exact": "exact sums",
    "usual": "usual kernel",
    **LIBRARIES,
}


def _look(name: str) -> dict[str, Any]:
    """Colour and marker of what was timed."""
    colour, marker = _STYLES[name]
    return {"color": COLOURS[colour], "marker": marker, "markeredgecolor": "white", "markeredgewidth": 0.5}


Place = Literal["outside lower left", "outside lower center", "outside lower right"]


def new_figure(height: float) -> Figure:
    """A figure 8 inches wide: 1600 pixels, twice what a page shows, for screens that have them."""
    return Figure(figsize=(8, height), dpi=200, layout="constrained")


def check_path(path: str) -> None:
    """Raises a BenchmarkError where matplotlib has no such format."""
    formats = Figure().canvas.get_supported_filetypes()
    if Path(path).suffix.removeprefix(".").lower() not in formats:
        raise BenchmarkError(f"{path}: give a picture the suffix of its format: {', '.join(sorted(formats))}")


def _family(operator: str) -> str:
    """The panel of an operator, as `describe` writes it."""
    name = operator.partition(" ")[0]
    if name == "ARGMAX":
        return "ARGMAX"
    if name == "REDUCE":
        return "REDUCE: sum, maximum, average, log-sum-exp"
    if name == "MAX_POOLING2":
        return f"Max pooling {'with' if operator.endswith('with indices') else 'without'} indices"
    return "Gradients and unpooling" if name.endswith(("GRAD", "UNPOOLING")) else "Average and Lp pooling"


def plot_cases(header: Mapping[str, str], results: Sequence[Result]) -> Figure:
    """The time of every case as a multiple of the fastest library's; a panel for each family of operators.

    Where no library computes a case, the usual kernel takes its place.

    Raises:
        BenchmarkError: no case has either.
    """
    families: dict[str, list[tuple[float, str, Result]]] = {}
    for result in results:
        there = [name for name in LIBRARIES if name in result.timings] or [n for n in ["usual"] if n in result.timings]
        if there:
            fastest = max((result.ratio(name), name) for name in there)
            families.setdefault(_family(result.operator), []).append((*fastest, result))
    if not families:
        raise BenchmarkError("--plot compares with the fastest library, or the usual kernel: neither was timed")
    heights = [len(rows) + 0.6 for rows in families.values()]
    figure = new_figure(2 + 0.23 * sum(heights) + 0.5 * len(heights))
    panels = figure.subplots(len(heights), sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (family, rows) in zip(panels, families.items(), strict=True):
        _family_panel(axes, sorted(rows, key=lambda row: row[0]))
        # Above the names of the cases.
        axes.set_title(family, loc="left", x=-0.41, fontsize="medium", fontweight="bold")
    for text, alignment in ("← dmlgpu is faster  ", "right"), ("  slower →", "left"):
        panels[0].text(1, 1.02, text, transform=panels[0].get_xaxis_transform(), ha=alignment, va="bottom")
    panels[-1].set_xlabel("time of dmlgpu / time of the fastest library")
    add_title(figure, header, "dmlgpu, compared with the library that is fastest in each case")
    add_legend(figure, panels, "outside lower center", columns=2)
    return figure


def _family_panel(axes: Axes, rows: Sequence[tuple[float, str, Result]]) -> None:
    """A row for each case: a marker for the ratio with device tensors, and a bar to the ratio with arrays."""
    ratios = [ratio for ratio, _, _ in rows]
    with_arrays = [result.timings[CALL].median / result.timings[name].median for _, name, result in rows]
    for fastest in _LABELS:
        found = [(ratio, row) for row, (ratio, name, _) in enumerate(rows) if name == fastest]
        if found:
            label = f"device tensors, against {_LABELS[fastest]}"
            axes.plot(
                *zip(*found, strict=True), linestyle="none", markersize=8, zorder=4, label=label, **_look(fastest)
            )
    axes.hlines(range(len(rows)), ratios, with_arrays, color="0.75", zorder=3)
    label = "arrays in and out, which are copied"
    axes.plot(with_arrays, range(len(rows)), "|", color="0.5", markeredgewidth=1.5, markersize=8, label=label)
    for row, ratio in enumerate(ratios):
        axes.annotate(
            f"{ratio:.2g}",
            (max(ratio, with_arrays[row]), row),
            (7, 0),
            textcoords="offset points",
            va="center",
            fontsize="small",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
        )
    axes.axvline(1, color="black", linewidth=1, zorder=1)
    axes.set_yticks(range(len(rows)), [result.case for _, _, result in rows])
    axes.set_ylim(len(rows) - 0.2, -0.8)
    axes.set_xscale("log")
    axes.margins(x=0.08)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="x", labelbottom=True)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="0.88", zorder=0)
    axes.set_axisbelow(True)


def plot_scale(header: Mapping[str, str], results: Sequence[Result]) -> Figure:
    """Time against size, a panel for each case of SCALES or WINDOWS."""
    groups = by_name(results)
    columns = min(2, len(groups))
    rows = math.ceil(len(groups) / columns)
    figure = new_figure(3.2 * rows + 1.2)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes, (name, group) in zip(panels, groups.items(), strict=False):
        quantity = quantity_of(name)
        sizes = {result.case: quantity.size(result) for result in group}
        for other in (KERNEL, *others(group)):
            points = [(sizes[result.case], result.timings[other].median) for result in group if other in result.timings]
            if points:
                axes.plot(
                    *zip(*points, strict=True),
                    markersize=6,
                    linewidth=2.2 if other == KERNEL else 1.3,
                    zorder=4 if other == KERNEL else 3,
                    label=_LABELS[other],
                    **_look(other),
                )
        axes.set_title(name)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.xaxis.set_major_locator(FixedLocator([*sizes.values()][:: -(-len(group) // 8)]))
        if quantity.tick:
            axes.xaxis.set_major_formatter(quantity.tick)
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(EngFormatter("s"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel(quantity.axis)
        axes.grid(color="0.88")
    for axes in panels[::columns]:
        axes.set_ylabel("time of a call, median")
    for axes in panels[len(groups) :]:
        axes.remove()
    add_title(figure, header, f"Time of a call over the {quantity_of(next(iter(groups))).axis}")
    add_legend(figure, figure.axes, "outside lower center", columns=3)
    return figure


def add_title(figure: Figure, header: Mapping[str, str], title: str) -> None:
    """A title, and what it was measured on."""
    figure.suptitle(f"{title}\n{header['device']}, {header['CPU']}", fontsize="medium")


def add_legend(figure: Figure, panels: Iterable[Axes], place: Place, columns: int) -> None:
    """One legend for some panels, below all of them."""
    labels: dict[str, Artist] = {}
    for axes in panels:
        handles, texts = axes.get_legend_handles_labels()
        labels |= dict(zip(texts, handles, strict=True))
    figure.legend(list(labels.values()), list(labels), loc=place, ncols=columns, frameon=False)
