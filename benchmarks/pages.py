"""What was measured, out of the tables in docs/performance: in docs/compared.md, docs/performance.md, and as pictures.

A page has a place for each of its blocks:

    <!-- measured: NAME -->
    what stands here is replaced
    <!-- end -->
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import Timing
from benchmarks.report import DASH, markdown_rows
from benchmarks.results import CALL, KERNEL, LIBRARIES, OTHERS, BenchmarkError, Result

# Rows of a table by their first cell, cells of a row by their column.
Rows = dict[str, dict[str, str]]


@dataclass(frozen=True)
class Measured:
    """What `--markdown` wrote."""

    header: dict[str, str]
    tables: dict[str, Rows]


def read(path: Path) -> Measured:
    """Reads what `--markdown` wrote.

    Raises:
        OSError: it cannot be read.
    """
    tables: dict[str, Rows] = {}
    title, columns = "", None
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            title, columns = line.strip("*") if line.startswith("**") else title, None
            continue
        cells = [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if columns is None:
            columns = cells
        elif cells[0] != "---":
            tables.setdefault(title, {})[cells[0]] = dict(zip(columns[1:], cells[1:], strict=True))
    header = {name: cells["value"] for name, cells in tables.pop("", {}).items()}
    return Measured(header, tables)


_OWN, _RATIOS, _OTHERS = "dmlgpu", "kernel / other", "others"


def _fastest(ratios: Mapping[str, str], names: Iterable[str]) -> tuple[str, str]:
    """Who of these takes least, and the kernel's time to that; dashes where none of them computes the case."""
    there = [(name, ratios[name]) for name in names if ratios.get(name, DASH) != DASH]
    return max(there, key=lambda pair: float(pair[1]), default=(DASH, DASH))


def _where(measured: Measured) -> str:
    return f"{measured.header['driver']} on {measured.header['CPU']}, {measured.header['date'].partition(' ')[0]}"


# The cases of compared.md: of each kind what is won, and what is lost.
_SUMMARY = {
    "argmax-4096x1024-first": "argmax of 4096 x 1024, first axis",
    "argmax-4096x1024-last": "argmax of 4096 x 1024, last axis",
    "log-sum-exp-4096x1024-last": "log-sum-exp of 4096 x 1024, last axis",
    "sum-4096x1024-last": "sum of 4096 x 1024, last axis",
    "pool-resnet-indices": "max pooling of 8 x 64 x 112 x 112 with indices",
    "pool-resnet": "the same without indices",
    "lp-pool-resnet": "Lp pooling of the same",
    "average-pool-resnet": "average pooling of the same",
    "pool-grad-resnet": "gradient of this max pooling",
    "unpool-2x2": "unpooling to 8 x 64 x 112 x 112",
}


def _summary(folder: Path) -> Iterator[str]:
    measured = read(folder / "llvmpipe.md")
    own, ratios, others = (measured.tables[title] for title in (_OWN, _RATIOS, _OTHERS))
    rows = []
    for case, text in _SUMMARY.items():
        fastest, ratio = _fastest(ratios[case], LIBRARIES)
        other = f"{others[case][fastest].partition(' ±')[0]} ({LIBRARIES[fastest]})"
        rows.append((text, own[case]["median"], own[case]["call"], other, ratio))
    yield f"{_where(measured)}, medians:"
    yield markdown_rows(("float32", "kernel", "call with arrays", "fastest library", "kernel to that"), rows)


@dataclass(frozen=True)
class Aim:
    """The most that a kernel may take, as a ratio to the fastest of some others, in cases of some names."""

    text: str
    cases: str
    others: tuple[str, ...]
    most: float


_AIMS = (
    Aim("0.3 of the usual kernel", r"(argmax|pool)-.*", ("usual",), 0.3),
    Aim("ARGMAX: 0.8 of PyTorch and ONNX Runtime", r"argmax-.*", ("torch", "onnxruntime"), 0.8),
    Aim(
        "ARGMAX over a contiguous last axis: 1.2 of NumPy",
        r"argmax-(?!.*(first|segmentation|float16|transposed)).*",
        ("numpy",),
        1.2,
    ),
    Aim("over other axes: 0.35 of NumPy", r"argmax-.*(first|segmentation|transposed)", ("numpy",), 0.35),
    Aim("of float16: 0.3 of NumPy", r"argmax-.*float16", ("numpy",), 0.3),
    Aim("max pooling with indices: 0.5 of PyTorch and ONNX Runtime", r"pool-.*-indices", ("torch", "onnxruntime"), 0.5),
    Aim("max pooling without: ONNX Runtime's time", r"pool-(?!grad|.*-indices).*", ("onnxruntime",), 1),
    Aim(
        "all else: the time of PyTorch and ONNX Runtime",
        r"(?!argmax-|pool-(?!grad)).*",
        ("torch", "onnxruntime"),
        1,
    ),
)


def _aims(folder: Path) -> Iterator[str]:
    ratios = read(folder / "llvmpipe.md").tables[_RATIOS]
    rows = []
    for aim in _AIMS:
        found = {case: _fastest(row, aim.others)[1] for case, row in ratios.items() if re.fullmatch(aim.cases, case)}
        reached: list[str] = []
        missed: list[str] = []
        for case, ratio in found.items():
            if ratio != DASH:
                (reached if float(ratio) <= aim.most else missed).append(f"{case} {ratio}")
        rows.append((aim.text, ", ".join(reached) or DASH, ", ".join(missed) or DASH))
    yield markdown_rows(("at most", "reached", "not reached"), rows)


def _drivers(folder: Path) -> Iterator[str]:
    libraries = "to the fastest library", LIBRARIES
    pages = {"llvmpipe": libraries, "llvmpipe-25": libraries, "swiftshader": ("to the usual kernel", ("usual",))}
    measured = {name: read(folder / f"{name}.md") for name in pages}
    columns = ["case"]
    rows = [[case] for case in measured["llvmpipe"].tables[_OWN]]
    for name, (column, others) in pages.items():
        own, ratios = (measured[name].tables[title] for title in (_OWN, _RATIOS))
        columns += [measured[name].header["driver"].partition(" (")[0], column]
        for row in rows:
            row += [own[row[0]]["median"], _fastest(ratios[row[0]], others)[1]] if row[0] in own else [DASH, DASH]
    yield f"Medians of kernels: {'; '.join(map(_where, measured.values()))}."
    yield markdown_rows(columns, rows)


def _range(rows: Sequence[tuple[str, float]]) -> str:
    """The first and the last step, with the least and the largest ratio."""
    if not rows:
        return DASH
    least, largest = (end(ratio for _, ratio in rows) for end in (min, max))
    return f"{rows[0][0]} to {rows[-1][0]}: {least} to {largest}" if len(rows) > 1 else f"{rows[0][0]}: {least}"


def _steps(path: Path, column: str) -> dict[str, list[tuple[str, float]]]:
    """Of each table of a run over sizes the steps, and what they have in this column."""
    return {
        title: [(step, float(row[column])) for step, row in rows.items() if row[column] != DASH]
        for title, rows in read(path).tables.items()
    }


def _sizes(folder: Path) -> Iterator[str]:
    rows = []
    for title, steps in _steps(folder / "scale.md", "to the best").items():
        # From the end: the large sizes, up to the first one that takes longer than the aim.
        first = next((i + 1 for i in reversed(range(len(steps))) if steps[i][1] > 1.5), 0)
        rows.append((title, _range(steps[first:]), _range(steps[:first])))
    yield markdown_rows(("case", "from here on at most 1.5", "below"), rows)


def _windows(folder: Path) -> Iterator[str]:
    rows = []
    for title, steps in _steps(folder / "windows.md", "to the faster").items():
        parts = ([step for step in steps if (step[1] <= 1.2) is reached] for reached in (True, False))
        rows.append((title, *map(_range, parts)))
    yield markdown_rows(("case", "at most 1.2", "above"), rows)


_BLOCKS: dict[str, dict[str, Callable[[Path], Iterator[str]]]] = {
    "docs/compared.md": {"summary": _summary},
    "docs/performance.md": {"drivers": _drivers, "aims": _aims, "sizes": _sizes, "windows": _windows},
}

_PLACE = re.compile(r"^(<!-- measured: (.*?) -->)$.*?^(<!-- end -->)$", re.MULTILINE | re.DOTALL)


def written(page: str, root: Path) -> str:
    """A page with its blocks as the tables in docs/performance have them.

    Raises:
        BenchmarkError: a block has no place on the page, or a place no block. OSError: a file cannot be read.
    """
    text, blocks = (root / page).read_text(encoding="utf-8"), _BLOCKS[page]
    names = [place[2] for place in _PLACE.finditer(text)]
    if sorted(names) != sorted(blocks):
        raise BenchmarkError(f"{page} has places for {', '.join(names) or 'nothing'}; needed are {', '.join(blocks)}")
    folder = root / "docs" / "performance"
    return _PLACE.sub(lambda place: "\n\n".join([place[1], *blocks[place[2]](folder), place[3]]), text)


def write(root: Path) -> None:
    """Writes all pages; errors as of `written`, before any is."""
    texts = {page: written(page, root) for page in _BLOCKS}
    for page, text in texts.items():
        (root / page).write_text(text, encoding="utf-8")


_UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}


def _timings(cells: Mapping[str, str]) -> dict[str, Timing]:
    """The medians in cells, which `duration` wrote; a spread may follow."""
    timings = {}
    for name, cell in cells.items():
        if cell != DASH:
            number, unit, *_ = cell.split()
            timings[name] = Timing((float(number) * _UNITS[unit],))
    return timings


def case_results(measured: Measured) -> list[Result]:
    """What a picture needs of the cases of a page."""
    own, others, cases = (measured.tables[title] for title in (_OWN, _OTHERS, "cases"))
    return [
        Result(
            case,
            cases[case]["operator"],
            elements=0,
            bytes=0,
            timings=_timings({KERNEL: row["median"], CALL: row["call"], **others[case]}),
            absent={},
        )
        for case, row in own.items()
    ]


def scale_results(measured: Measured) -> list[Result]:
    """What a picture needs of a page over sizes of the input or of the window."""
    results = []
    for title, rows in measured.tables.items():
        for step, row in rows.items():
            elements = 1 << int(step.removeprefix("2^")) if step.startswith("2^") else 0
            timings = _timings({name: row[name] for name in (KERNEL, *OTHERS) if name in row})
            results.append(Result(f"{title}-{step}", "", elements, 0, timings, {}))
    return results


def draw(root: Path) -> None:
    """Draws the pictures beside the tables."""
    from benchmarks.plot import plot_cases, plot_scale

    folder = root / "docs" / "performance"
    cases = read(folder / "llvmpipe.md")
    plot_cases(cases.header, case_results(cases)).savefig(folder / "llvmpipe.png")
    for name in "scale", "windows":
        measured = read(folder / f"{name}.md")
        plot_scale(measured.header, scale_results(measured)).savefig(folder / f"{name}.png")
