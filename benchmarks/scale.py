"""One operator over many sizes: of the input, doubled from step to step, or of the window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from benchmarks.cases import SCALES, WINDOWS
from benchmarks.report import DASH, Table, digits, duration, other_cells
from benchmarks.results import BATCH, COPY, FIRST_CALL, KERNEL, BenchmarkError, Result, others
from tests.support.cases import Case

# Exponents of 2: the smallest and the largest size, and those among which the best time per element is looked for.
SMALLEST, LARGEST = 10, 27
BEST_FROM, BEST_TO = 16, 26


def exponents(text: str) -> range:
    """LOW-HIGH as the exponents from LOW to HIGH.

    Raises:
        BenchmarkError: it is something else.
    """
    low, _, high = text.partition("-")
    if not (low.isdecimal() and high.isdecimal() and SMALLEST <= int(low) <= int(high) <= LARGEST):
        raise BenchmarkError(f"--scale {text}: give exponents of 2 as LOW-HIGH, from {SMALLEST} to {LARGEST}")
    return range(int(low), int(high) + 1)


def scaled(name: str, exponent: int) -> Case:
    """A case of SCALES with 2^exponent elements."""
    return replace(SCALES[name](1 << exponent), id=f"{name}-2^{exponent}")


def by_name(results: Sequence[Result]) -> dict[str, list[Result]]:
    """The results of every case of SCALES or WINDOWS, in the order of their sizes."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result.case.rpartition("-")[0], []).append(result)
    return groups


def time_per_element(result: Result, name: str = KERNEL) -> float:
    return result.timings[name].median / result.elements


def _to_the_best(group: Sequence[Result]) -> list[str]:
    compared = [result for result in group if 1 << BEST_FROM <= result.elements <= 1 << BEST_TO]
    best = min(map(time_per_element, compared), default=0.0)
    return [f"{time_per_element(result) / best:.2f}" if result in compared else DASH for result in group]


def _to_the_faster(group: Sequence[Result]) -> list[str]:
    peers = [name for name in others(group) if name != COPY]
    ratios = [[result.ratio(name) for name in peers if name in result.timings] for result in group]
    return [f"{max(found):.2f}" if found else DASH for found in ratios]


def _side(result: Result) -> int:
    return int(_step(result).partition("x")[0])


def _step(result: Result) -> str:
    return result.case.rpartition("-")[2]


@dataclass(frozen=True)
class Quantity:
    """What differs from one case to the next."""

    name: str
    axis: str
    """In plots."""
    tick: str
    """How a plot writes it; empty for a power of two."""
    size: Callable[[Result], int]
    ratio: str
    ratios: Callable[[Sequence[Result]], list[str]]
    note: str


_ELEMENTS = Quantity(
    "elements",
    "elements of the input",
    "",
    lambda result: result.elements,
    "to the best",
    _to_the_best,
    f"To the best: the kernel's time per element to the least of those from 2^{BEST_FROM} to 2^{BEST_TO}.",
)
_WINDOW = Quantity(
    "window",
    "elements of the window along a dimension",
    "{x:g}",
    _side,
    "to the faster",
    _to_the_faster,
    "Per element: of the input. To the faster: the kernel's time to the least of the peers'.",
)


_NOTES = {BATCH: "Batch: a call in a batch.", FIRST_CALL: "First call: on a device opened for it, after `compile`."}


def quantity_of(name: str) -> Quantity:
    """What differs between the cases of this name."""
    return _WINDOW if name in WINDOWS else _ELEMENTS


def scale_tables(results: Sequence[Result]) -> list[Table]:
    """For every case of SCALES or WINDOWS what each size took, and what an element of it."""
    return [_table(name, group) for name, group in by_name(results).items()]


def _table(name: str, group: Sequence[Result]) -> Table:
    quantity = quantity_of(name)
    names = others(group)
    own = [name for name in (BATCH, FIRST_CALL) if any(name in result.timings for result in group)]
    rows = []
    for result, ratio in zip(group, quantity.ratios(group), strict=True):
        rows.append(
            (
                _step(result),
                duration(result.timings[KERNEL].median),
                f"{digits(time_per_element(result) * 1e9)} ns",
                ratio,
                *other_cells(result, [*own, *names], _median),
            )
        )
    return Table(
        name,
        (quantity.name, "kernel", "per element", quantity.ratio, *own, *names),
        tuple(rows),
        " ".join((f"The last is {group[-1].operator}. Medians. {quantity.note}", *(_NOTES[name] for name in own))),
    )


def _median(result: Result, name: str) -> str:
    return duration(result.timings[name].median)
