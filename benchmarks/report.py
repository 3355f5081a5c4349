"""Results as tables, for the terminal and as Markdown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.results import BATCH, CALL, FIRST_CALL, KERNEL, OTHERS, Result, in_batches

if TYPE_CHECKING:
    from rich.console import Console

DASH = "-"
# Width of tables in files and pipes.
COLUMNS = 200


@dataclass(frozen=True)
class Table:
    """Rows of text; the first column names them."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str


# Maximum number of cases that a reason for dashes lists.
_NAMED = 3
_NOTE = (
    "Times are medians. Columns of the copy and of libraries show the kernel's time divided by theirs: below 1 the "
    "kernel is faster. In columns named `batch` both were timed in batches. docs/performance.md explains the columns."
)


def digits(number: float) -> str:
    """A positive number with three digits, without an exponent."""
    rounded = float(f"{number:.2e}")
    return f"{rounded:.{max(0, 2 - math.floor(math.log10(rounded)))}f}"


def duration(seconds: float) -> str:
    """A time with three digits."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        # A number that rounds to 1000 is written in the larger unit.
        if seconds * scale >= 0.9995:
            return f"{digits(seconds * scale)} {unit}"
    return f"{digits(seconds * 1e9)} ns"


def percent(fraction: float) -> str:
    return f"{100 * fraction:.0f} %"


def times_table(results: Sequence[Result]) -> Table:
    """A row for each case: its times, and ratios to the times of OTHERS."""
    timed = {name for result in results for name in result.timings}
    call_names = [name for name in (CALL, FIRST_CALL, BATCH) if name in timed]
    others = [name for other in OTHERS for name in (other, in_batches(other)) if name in timed]
    rows = []
    for result in results:
        kernel = result.timings[KERNEL]
        cells = [duration(kernel.median), percent(kernel.spread / kernel.median)]
        cells += [digits(result.bytes / kernel.median / 1e9)]
        cells += [duration(result.timings[name].median) if name in result.timings else DASH for name in call_names]
        cells += [digits(result.ratio(name)) if name in result.timings else DASH for name in others]
        rows.append((result.case, *cells))
    return Table("times", ("case", KERNEL, "spread", "GB/s", *call_names, *others), tuple(rows), _NOTE)


def absences(results: Sequence[Result]) -> list[str]:
    """The reasons for dashes, each once, with its libraries, and its cases or their number if there are many."""
    cases: dict[tuple[str, str], list[str]] = {}
    for result in results:
        for name, reason in result.absent.items():
            cases.setdefault((name, reason), []).append(result.case)
    names: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (name, reason), where in cases.items():
        names.setdefault((reason, tuple(where)), []).append(name)
    return [
        f"{', '.join(who)}: {reason} ({', '.join(where) if len(where) <= _NAMED else f'{len(where)} cases'})"
        for (reason, where), who in names.items()
    ]


def to_markdown(header: Mapping[str, str], table: Table, dashes: Sequence[str]) -> str:
    """A header and a table as Markdown, with the reasons for dashes."""
    parts = [_markdown_rows(("what", "value"), tuple(header.items())), f"**{table.title}**"]
    parts += [_markdown_rows(table.columns, table.rows), table.note]
    if dashes:
        parts.append("\n".join([f"`{DASH}` stands for:\n", *(f"- {text}" for text in dashes)]))
    return "\n\n".join(parts) + "\n"


def _markdown_rows(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    numbers = [all(text == DASH or text[:1].isdecimal() for text in column) for column in zip(*rows, strict=True)]
    lines = [columns, ["---", *("---:" if number else "---" for number in numbers[1:])], *rows]
    return "\n".join(f"| {' | '.join(text.replace('|', chr(92) + '|') for text in line)} |" for line in lines)


def show(console: Console, header: Mapping[str, str], table: Table, dashes: Sequence[str]) -> None:
    """Prints a header and a table on a terminal, with the reasons for dashes."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table as RichTable

    for name, value in header.items():
        console.print(f"{name}: {value}", markup=False, soft_wrap=True)
    grid = RichTable(title=escape(table.title), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    grid.add_column(table.columns[0], overflow="fold")
    for name in table.columns[1:]:
        grid.add_column(name, justify="right", overflow="fold")
    for row in table.rows:
        grid.add_row(*map(escape, row))
    console.print(grid)
    console.print(table.note, markup=False, style="dim")
    for text in dashes:
        console.print(f"{DASH} {text}", markup=False, style="dim")
