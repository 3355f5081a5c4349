"""One operator over many sizes, doubled from step to step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from benchmarks.cases import SCALES
from benchmarks.report import DASH, Table, digits, duration, other_cells
from benchmarks.results import BATCH, KERNEL, BenchmarkError, Result, others
from tests.cases import Case

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
    """The results of every case of SCALES, in the order of their sizes."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result.case.rpartition("-")[0], []).append(result)
    return groups


def time_per_element(result: Result, name: str = KERNEL) -> float:
    return result.timings[name].median / result.elements


def scale_tables(results: Sequence[Result]) -> list[Table]:
    """For every case of SCALES what each size took, and what an element of it."""
    return [_table(name, group) for name, group in by_name(results).items()]


def _table(name: str, group: Sequence[Result]) -> Table:
    compared = [result for result in group if 1 << BEST_FROM <= result.elements <= 1 << BEST_TO]
    best = min(map(time_per_element, compared), default=0.0)
    names = others(group)
    batched = any(BATCH in result.timings for result in group)
    rows = []
    for result in group:
        ratio = f"{time_per_element(result) / best:.2f}" if result in compared else DASH
        rows.append(
            (
                f"2^{result.elements.bit_length() - 1}",
                duration(result.timings[KERNEL].median),
                f"{digits(time_per_element(result) * 1e9)} ns",
                ratio,
                *(other_cells(result, [BATCH], _median) if batched else ()),
                *other_cells(result, names, _median),
            )
        )
    return Table(
        name,
        ("elements", "kernel", "per element", "to the best", *([BATCH] if batched else []), *names),
        tuple(rows),
        f"The last is {group[-1].operator}. Medians. To the best: the kernel's time per element to the least "
        f"of those from 2^{BEST_FROM} to 2^{BEST_TO}.{' Batch: a call in a batch.' if batched else ''}",
    )


def _median(result: Result, name: str) -> str:
    return duration(result.timings[name].median)
