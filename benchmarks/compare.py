"""Compares two runs: which times changed, and whether by more than their noise."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from benchmarks.measure import Timing
from benchmarks.report import DASH, Table, duration, percent
from benchmarks.results import OURS, Result, Run


def compared(old: Run, new: Run) -> Table:
    """A row for each time of dmlgpu that both runs have."""
    before = {result.case: result for result in old.results}
    rows = [row for result in new.results if result.case in before for row in _rows(before[result.case], result)]
    return Table(
        "changes",
        ("case", "time", "old", "new", "change", "noise", "others", "verdict"),
        tuple(rows),
        "Old, new: medians. Noise: the sum of both runs' interquartile ranges, relative to their medians; only a "
        "larger change counts. Others: the median change of the copy and the peers. If these change too, the machine "
        "has changed.",
    )


def _rows(old: Result, new: Result) -> Iterator[tuple[str, ...]]:
    common = [name for name in new.timings if name in old.timings]
    drifts = [_change(old.timings[name], new.timings[name]) for name in common if name not in OURS]
    drift = _signed(statistics.median(drifts)) if drifts else DASH
    for name in common:
        if name in OURS:
            before, after = old.timings[name], new.timings[name]
            change, noise = _change(before, after), sum(timing.spread / timing.median for timing in (before, after))
            yield (
                *(new.case, name, duration(before.median), duration(after.median)),
                *(_signed(change), percent(noise), drift),
                "same" if abs(change) <= noise else "slower" if change > 0 else "faster",
            )


def _change(old: Timing, new: Timing) -> float:
    return new.median / old.median - 1


def _signed(fraction: float) -> str:
    return f"{100 * fraction:+.0f} %"


def differences(old: Run, new: Run) -> list[str]:
    """Differences between the headers and the cases of both runs."""
    lines = [
        f"{name}: {old.header.get(name, DASH)} -> {new.header.get(name, DASH)}"
        for name in dict.fromkeys([*old.header, *new.header])
        if name != "date" and old.header.get(name) != new.header.get(name)
    ]
    old_cases, new_cases = ([result.case for result in run.results] for run in (old, new))
    lines += [f"only in the old run: {case}" for case in old_cases if case not in new_cases]
    lines += [f"only in the new run: {case}" for case in new_cases if case not in old_cases]
    return lines
