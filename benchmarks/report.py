"""Results as tables, for the terminal and as Markdown."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.results import BATCH, BATCHED, CALL, COMPILE, FIRST_CALL, KERNEL, Result, in_batches, others

if TYPE_CHECKING:
    from rich.console import Console

DASH = "-"
# How wide tables are in files and pipes.
COLUMNS = 160


@dataclass(frozen=True)
class Table:
    """Columns of text; the first one names the row."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str


def digits(number: float) -> str:
    """A positive number with three digits, without an exponent."""
    rounded = float(f"{number:.2e}")
    return f"{rounded:.{max(0, 2 - math.floor(math.log10(rounded)))}f}"


def duration(seconds: float) -> str:
    """A time with three digits."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        # What rounds to 1000 is written in the larger unit.
        if seconds * scale >= 0.9995:
            return f"{digits(seconds * scale)} {unit}"
    return f"{digits(seconds * 1e9)} ns"


def percent(fraction: float) -> str:
    return f"{100 * fraction:.0f} %"


def case_tables(results: Sequence[Result]) -> list[Table]:
    """What every case took, how that compares with others, and what these took."""
    names = others(results)
    return [
        Table(
            "dmlgpu",
            ("case", "minimum", "median", "spread", "GB/s", "call", "compile", "first call"),
            tuple((result.case, *_own_cells(result)) for result in results),
            "Minimum, median, spread and GB/s are the kernel's: device tensors in, device tensors out. Call: ndarrays "
            "in and out; compile, first call: on a device opened for it; medians. The spread is the interquartile "
            "range. GB/s: the bytes of the inputs and the outputs, each counted once.",
        ),
        Table(
            "kernel / other",
            ("case", *names),
            tuple((result.case, *other_cells(result, names, _ratio)) for result in results),
            "Ratios of medians; below 1 the kernel is faster. The copy moves as many bytes on the same device: it "
            "reads half of them and writes the other half.",
        ),
        Table(
            "others",
            ("case", *names),
            tuple((result.case, *other_cells(result, names, _median_and_spread)) for result in results),
            "Medians and interquartile ranges.",
        ),
        *_batches_table(results),
    ]


def _batches_table(results: Sequence[Result]) -> list[Table]:
    """What a call takes in a batch; no table where none was timed."""
    batched = [result for result in results if BATCH in result.timings]
    names = [name for name in BATCHED if any(in_batches(name) in result.timings for result in batched)]
    if not batched:
        return []
    return [
        Table(
            "in batches",
            ("case", "calls", "a call", "GB/s", "alone / batch", *names),
            tuple(
                (
                    result.case,
                    str(result.batch),
                    duration(result.timings[BATCH].median),
                    digits(result.bandwidth(BATCH) / 1e9),
                    digits(result.timings[KERNEL].median / result.timings[BATCH].median),
                    *(_batch_ratio(result, in_batches(name)) for name in names),
                )
                for result in batched
            ),
            "Calls that are submitted together and write to tensors of their own; medians of what one of them takes. "
            "Alone / batch: the kernel's median above to that. The others: that to what a call takes of theirs, which "
            "are waited for together too.",
        )
    ]


def _batch_ratio(result: Result, name: str) -> str:
    if name not in result.timings:
        return DASH
    return digits(result.timings[BATCH].median / result.timings[name].median)


def _own_cells(result: Result) -> list[str]:
    kernel = result.timings[KERNEL]
    return [
        duration(kernel.minimum),
        duration(kernel.median),
        percent(kernel.spread / kernel.median),
        digits(result.bandwidth(KERNEL) / 1e9),
        *(duration(result.timings[name].median) for name in (CALL, COMPILE, FIRST_CALL)),
    ]


def other_cells(result: Result, names: Sequence[str], cell: Callable[[Result, str], str]) -> list[str]:
    """A cell for each name, a dash where it did not run."""
    return [cell(result, name) if name in result.timings else DASH for name in names]


def _ratio(result: Result, name: str) -> str:
    return digits(result.ratio(name))


def _median_and_spread(result: Result, name: str) -> str:
    timing = result.timings[name]
    return f"{duration(timing.median)} ± {percent(timing.spread / timing.median)}"


def absences(results: Sequence[Result]) -> list[str]:
    """What the dashes stand for: each reason once, with the cases that it holds for."""
    cases: dict[tuple[str, str], list[str]] = {}
    for result in results:
        for name, reason in result.absent.items():
            cases.setdefault((name, reason), []).append(result.case)
    return [
        f"{name}: {reason}" + ("" if len(where) == len(results) else f" ({', '.join(where)})")
        for (name, reason), where in cases.items()
    ]


def operators_table(results: Sequence[Result]) -> Table:
    rows = tuple((result.case, result.operator, f"{result.bytes / 1e6:.3g} MB") for result in results)
    return Table("cases", ("case", "operator", "bytes"), rows, "Bytes of the inputs and the outputs.")


def to_markdown(header: Mapping[str, str], tables: Sequence[Table], dashes: Sequence[str]) -> str:
    """A header and tables as Markdown."""
    parts = [markdown_rows(("what", "value"), tuple(header.items()))]
    parts += [f"**{t.title}**\n\n{markdown_rows(t.columns, t.rows)}\n\n{t.note}" for t in tables]
    if dashes:
        parts.append("\n".join([f"`{DASH}` stands for:\n", *(f"- {text}" for text in dashes)]))
    return "\n\n".join(parts) + "\n"


def markdown_rows(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    numbers = [all(text == DASH or text[:1].isdecimal() for text in column) for column in zip(*rows, strict=True)]
    lines = [columns, ["---", *("---:" if number else "---" for number in numbers[1:])], *rows]
    return "\n".join(f"| {' | '.join(text.replace('|', chr(92) + '|') for text in line)} |" for line in lines)


def show(console: Console, header: Mapping[str, str], tables: Sequence[Table], dashes: Sequence[str]) -> None:
    """The same on a terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table as RichTable

    for name, value in header.items():
        console.print(f"{name}: {value}", markup=False, soft_wrap=True)
    for table in tables:
        grid = RichTable(title=escape(table.title), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
        grid.add_column(table.columns[0], overflow="fold")
        for name in table.columns[1:]:
            grid.add_column(name, justify="right")
        for row in table.rows:
            grid.add_row(*map(escape, row))
        console.print(grid)
        console.print(table.note, markup=False, style="dim")
    for text in dashes:
        console.print(f"{DASH} {text}", markup=False, style="dim")
