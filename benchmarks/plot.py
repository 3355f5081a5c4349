"""Results as a picture for pages 800 pixels wide; opaque, and so readable on dark pages too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from benchmarks.results import CALL, LIBRARIES, BenchmarkError, Result

# Labels; Okabe and Ito's colours, which colour-blind people can distinguish; markers.
_STYLES = {
    "usual": ("usual kernel", "#CC79A7", "s"),
    "numpy": ("NumPy", "#0072B2", "v"),
    "torch": ("PyTorch", "#D55E00", "^"),
    "torch-cuda": ("PyTorch on CUDA", "#E69F00", ">"),
    "onnxruntime": ("ONNX Runtime", "#009E73", "X"),
    "onnxruntime-webgpu": ("ONNX Runtime on WebGPU", "#56B4E9", "*"),
}


def check_path(path: str) -> None:
    """Raises a BenchmarkError if matplotlib has no such format."""
    formats = Figure().canvas.get_supported_filetypes()
    if Path(path).suffix.removeprefix(".").lower() not in formats:
        raise BenchmarkError(f"{path}: give a picture the suffix of its format: {', '.join(sorted(formats))}")


def plot(header: Mapping[str, str], results: Sequence[Result]) -> Figure:
    """The time of every case as a multiple of the fastest library's, or if none computes it, of the usual kernel's.

    A row has a marker for the ratio with device tensors, and a bar to the ratio with arrays.

    Raises:
        BenchmarkError: no case has either.
    """
    rows = []
    for result in results:
        timed = [name for name in LIBRARIES if name in result.timings] or [n for n in ["usual"] if n in result.timings]
        if timed:
            fastest = min(timed, key=lambda name: result.timings[name].median)
            with_arrays = result.timings[CALL].median / result.timings[fastest].median
            rows.append((result.case, fastest, result.ratio(fastest), with_arrays))
    if not rows:
        raise BenchmarkError("--plot compares with the fastest library, or the usual kernel: neither was timed")
    # 1600 pixels, twice the width on a page, for high-resolution screens.
    figure = Figure(figsize=(8, 1.7 + 0.23 * len(rows)), dpi=200, layout="constrained")
    axes = figure.subplots()
    cases, _, ratios, all_with_arrays = zip(*rows, strict=True)
    axes.hlines(range(len(rows)), ratios, all_with_arrays, color="0.75", zorder=3)
    label = "arrays in and out, which are copied"
    axes.plot(all_with_arrays, range(len(rows)), "|", color="0.5", markeredgewidth=1.5, markersize=8, label=label)
    for name, (peer, colour, marker) in _STYLES.items():
        ys = [row for row, (_, fastest, _, _) in enumerate(rows) if fastest == name]
        if ys:
            label = f"device tensors, against {peer}"
            axes.scatter([ratios[y] for y in ys], ys, 60, colour, marker=marker, zorder=4, label=label)
    for row, (_, _, ratio, with_arrays) in enumerate(rows):
        right_end = max(ratio, with_arrays), row
        axes.annotate(f"{ratio:.2g}", right_end, (7, 0), textcoords="offset points", va="center", fontsize="small")
    axes.axvline(1, color="black", linewidth=1, zorder=1)
    axes.set_yticks(range(len(rows)), cases)
    axes.set_ylim(len(rows) - 0.2, -0.8)
    axes.set_xscale("log")
    axes.margins(x=0.08)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="0.88", zorder=0)
    axes.set_axisbelow(True)
    axes.set_xlabel("time of dmlgpu / time of the fastest library; left of 1 dmlgpu is faster")
    figure.suptitle(f"{header['device']}\n{header['driver']}, {header['CPU']}", fontsize="medium")
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    return figure
