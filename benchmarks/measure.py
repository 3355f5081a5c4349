"""Times of several functions, measured in turns."""

from __future__ import annotations

import gc
import math
import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

# Seconds of a sample, which is the mean time of the calls that fit.
SAMPLE = 0.01
_MOST_CALLS = 10_000
# Seconds of warm-up, because a GPU that was idle is up to five times slower for a while.
_WARM_UP = 0.25
# Other threads count as idle if they use almost no CPU time for _WATCHED seconds. A sample waits for that, but not
# longer than _LONGEST_SPIN.
_WATCHED = 0.002
_LONGEST_SPIN = 0.5
# Minimum number of rounds of a run, even if they last longer than its maximum.
LEAST_ROUNDS = 3


@dataclass(frozen=True)
class Timing:
    """Seconds per call, once for every round."""

    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def spread(self) -> float:
        """The interquartile range."""
        if len(self.samples) == 1:
            return 0.0
        lower, _, upper = statistics.quantiles(self.samples, n=4, method="inclusive")
        return upper - lower


def interleave(runs: Mapping[str, Callable[[], object]], rounds: int, seconds: float) -> dict[str, Timing]:
    """Times of each run, in another order every round.

    Args:
        runs: the functions to time.
        rounds: the maximum number of rounds.
        seconds: a run that took longer than this in all its rounds skips the rest, but not the first LEAST_ROUNDS.
    """
    begin = time.perf_counter()
    while time.perf_counter() < begin + _WARM_UP:
        for run in runs.values():
            run()
    calls = {name: _calls_of_a_sample(run) for name, run in runs.items()}
    samples: dict[str, list[float]] = {name: [] for name in runs}
    order, shuffler = list(runs), random.Random(0)
    collecting = gc.isenabled()
    gc.disable()
    try:
        for number in range(rounds):
            shuffler.shuffle(order)
            for name in order:
                if number < LEAST_ROUNDS or sum(samples[name]) * calls[name] < seconds:
                    samples[name].append(_sample(runs[name], calls[name]))
    finally:
        if collecting:
            gc.enable()
    return {name: Timing(tuple(times)) for name, times in samples.items()}


def _sample(run: Callable[[], object], calls: int) -> float:
    _settle()
    if calls > 1:
        # Loads what other runs evicted from the caches, which matters for so short a call.
        run()
    return mean_time(run, calls)


def _settle() -> None:
    """Waits until the other threads are idle: after their work some spin for a while, and occupy cores."""
    deadline = time.perf_counter() + _LONGEST_SPIN
    while (begin := time.perf_counter()) < deadline:
        used = time.process_time() - time.thread_time()
        # If this thread slept, its core might clock down, and the scheduler might move the thread.
        while time.perf_counter() < begin + _WATCHED:
            pass
        if time.process_time() - time.thread_time() - used < _WATCHED / 10:
            break


def mean_time(run: Callable[[], object], calls: int = 1) -> float:
    """Seconds per call."""
    start = time.perf_counter_ns()
    for _ in range(calls):
        run()
    return (time.perf_counter_ns() - start) / calls / 1e9


def _calls_of_a_sample(run: Callable[[], object]) -> int:
    """Number of calls that last SAMPLE."""
    warm = mean_time(run)
    if warm < SAMPLE:
        warm = mean_time(run, 3)
    return math.ceil(SAMPLE / max(warm, SAMPLE / _MOST_CALLS))
