"""Cuts steps into submissions with barriers, and measures the speed of steps.

This module is independent of Kompute and Vulkan. A buffer is any object.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

# Maximum number of steps of a call whose submissions are cached for later calls, and of pending steps of a batch.
RECORDED_STEPS = 64
# Maximum duration of a submission of several steps. Python handles Ctrl-C only between submissions, and watchdogs reset
# a GPU that is busy with a submission for seconds.
SUBMISSION_SECONDS = 0.2
# Minimum duration of a submission that is measured: most of the time of a shorter one is not spent in its steps.
_MEASURED_SECONDS = 0.001

B = TypeVar("B")
# A buffer, and the offset in it where a segment of a tensor, or of a workspace, begins. Segments at different places
# never overlap, so steps share memory only if they have the same place.
Place = tuple[B, int]


@dataclass(eq=False)
class Timing:
    """The measured speed of a pipeline. Equal only to itself."""

    seconds_per_element: float
    """The last measurement; before the first, the assumed value."""
    has_run: bool = False
    """Whether the pipeline has run. The first run may take long, and is not measured."""
    is_too_slow: bool = False
    """Whether a step of the pipeline, submitted alone, lasted longer than SUBMISSION_SECONDS when last measured."""


@dataclass(frozen=True, eq=False)
class Step(Generic[B]):
    """A dispatch, as far as this module needs it. Equal only to itself."""

    reads: frozenset[Place[B]]
    writes: frozenset[Place[B]]
    elements: int
    """Number of elements that the dispatch loads."""
    timing: Timing
    """The speed of the pipeline, shared by all steps of the pipeline."""

    @property
    def seconds(self) -> float:
        """The expected duration."""
        return self.elements * self.timing.seconds_per_element


@dataclass(frozen=True)
class Barrier(Generic[B]):
    """A barrier: steps after it begin when all steps before it have ended, and see their writes to these buffers."""

    buffers: frozenset[B]


S = TypeVar("S", bound=Step[Any])


def submissions(steps: Iterable[S], *, has_barriers: bool) -> Iterator[list[S | Barrier[Any]]]:
    """Cuts steps into submissions, with the barriers that they need.

    The device may run the steps of a submission in any order, or at the same time. A step needs a barrier before it if
    it reads what an earlier step of its submission wrote, or writes what an earlier step read or wrote. The host waits
    for the end of a submission before it starts the next submission. Each submission costs time, so there are as few as
    possible: a new submission begins where the expected duration would exceed SUBMISSION_SECONDS, and in place of each
    barrier if Kompute has none. In this picture `a>b` reads a and writes b:

        steps              a>b        b>c   d>e        c>f

        with barriers      a>b  [b]   b>c   d>e  [ce]  c>f
        without            a>b   |    b>c   d>e   |    c>f

    Args:
        steps: the steps, in order.
        has_barriers: whether Kompute has barriers.
    """
    submission: list[S | Barrier[Any]] = []
    seconds = 0.0
    # Places that steps since the last barrier read and write.
    reads: set[Place[Any]] = set()
    writes: set[Place[Any]] = set()
    for step in steps:
        depends = not writes.isdisjoint(step.reads | step.writes) or not reads.isdisjoint(step.writes)
        if (depends and not has_barriers) or (submission and seconds + step.seconds > SUBMISSION_SECONDS):
            yield submission
            submission, seconds, reads, writes = [], 0.0, set(), set()
        elif depends:
            submission.append(Barrier(frozenset(buffer for buffer, _ in writes)))
            reads, writes = set(), set()
        submission.append(step)
        seconds += step.seconds
        reads |= step.reads
        writes |= step.writes
    yield submission


def update_timings(steps: Sequence[Step[Any]], seconds: float) -> bool:
    """Updates the seconds per element of a submission's pipelines by the duration of the submission.

    Args:
        steps: the steps of the submission.
        seconds: the duration of the submission.

    Returns:
        Whether the same steps should be cut into submissions again: this submission was measured, has several steps,
        and lasted longer than SUBMISSION_SECONDS.
    """
    measured = seconds > _MEASURED_SECONDS and all(step.timing.has_run for step in steps)
    if measured:
        factor = seconds / sum(step.seconds for step in steps)
        for timing in {step.timing for step in steps}:
            timing.seconds_per_element *= factor
            timing.is_too_slow = seconds > SUBMISSION_SECONDS and len(steps) == 1
    for step in steps:
        step.timing.has_run = True
    return measured and seconds > SUBMISSION_SECONDS and len(steps) > 1
