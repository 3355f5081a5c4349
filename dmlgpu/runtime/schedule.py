"""Decides which steps share a submission and where barriers stand, and learns how long steps take.

Nothing here knows Kompute or Vulkan. A buffer is any object that says whether it `relays`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

# The submissions of a call are cached, to be run again, if it has at most this many steps. A batch submits its pending
# steps when it has this many.
RECORDED_STEPS = 64
# Staged buffers of up to this size relay. A barrier copies the whole buffer. On two cores of lavapipe and SwiftShader
# a further submission costs 30 to 60 us. A copy of 1 MiB costs as much; a copy of 64 KiB costs too little to be seen.

RELAY_BYTES = 64 << 10
# A submission of several steps should take no longer than this. Python handles Ctrl-C only between submissions, and
# watchdogs reset a GPU that is busy with one submission for seconds.
SUBMISSION_SECONDS = 0.2
# A submission that takes less time is not measured: most of its time is not spent in its steps.
_MEASURED_SECONDS = 0.001


class Buffer(Protocol):
    """What this module needs of a buffer."""

    @property
    def relays(self) -> bool:
        """Whether a barrier lets later steps of a submission read what earlier ones wrote to it."""


B = TypeVar("B", bound=Buffer)
# A buffer, and the offset in it where a segment of a tensor, or scratch memory, begins. What begins at two places never
# overlaps, so steps share memory only if they name the same place.
Place = tuple[B, int]


@dataclass(eq=False)
class Pace:
    """The speed of a pipeline, in seconds per element, as its submissions show. Equal only to itself."""

    seconds: float
    """Seconds per element, as last measured; before that, as assumed."""
    has_run: bool = False
    """Whether the pipeline has run. The first run may take long, and is not measured."""
    is_too_slow: bool = False
    """Whether a step of the pipeline, submitted alone, took longer than SUBMISSION_SECONDS when last measured."""


@dataclass(frozen=True, eq=False)
class Step(Generic[B]):
    """What this module needs of a dispatch. Equal only to itself."""

    reads: frozenset[Place[B]]
    writes: frozenset[Place[B]]
    elements: int
    """How many elements it looks at."""
    pace: Pace
    """The speed of its pipeline, shared with all steps of that."""

    @property
    def seconds(self) -> float:
        """How long it should take."""
        return self.elements * self.pace.seconds


@dataclass(frozen=True)
class Barrier(Generic[B]):
    """Steps after it see what steps before it wrote to these buffers."""

    buffers: tuple[B, ...]


S = TypeVar("S", bound=Step[Any])


def submissions(steps: Iterable[S]) -> Iterator[list[S | Barrier[Any]]]:
    """Cuts steps into submissions, with the barriers that they need.

    The device may run the steps of a submission in any order, or at the same time. The host waits for the end of a
    submission before it starts the next. Each submission costs time, so there are as few as possible. A new one begins
    if a step depends on an earlier step and no barrier can stand between the two; or if the steps together should take
    longer than SUBMISSION_SECONDS. In this picture `a>b` reads a and writes b, and only B relays:

        steps         a>B           B>c   d>e     c>f

        submissions   a>B  [  B  ]  B>c   d>e  |  c>f
                           barrier             |  B>c must end before c is read, and c does not relay

    A step can depend on an earlier one of its submission in three ways:

        it reads what the other wrote      a barrier if the buffer relays, otherwise a new submission
        it writes what the other wrote     a new submission
        it writes what the other read      nothing if a barrier stands between the two, otherwise a new submission

    The reason is what Kompute offers. Before a dispatch it puts a barrier for what copies wrote, but none for what
    other dispatches wrote. The only other barrier is that of OpTensorSyncLocal, which copies a staged buffer to its
    view: the copy waits for the steps before it, and the dispatch after it waits for the copy.

        a>B  --wait-->  copy of B  --wait-->  B>c

    All steps before the copy end before any step after it begins. So a step after a barrier may overwrite what steps
    before the barrier read; but of what they wrote it sees only B. Only staged buffers can be copied in this way, and
    only for small ones is it faster than a new submission. Nothing orders two copies of the same buffer, so a buffer
    gets at most one barrier in a submission.
    """
    submission: list[S | Barrier[Any]] = []
    seconds = 0.0
    # In this submission: places read since its last barrier, places written, and those of them that later steps can
    # read because a barrier stands behind the write.
    reads: set[Place[Any]] = set()
    writes: set[Place[Any]] = set()
    visible: set[Place[Any]] = set()
    for step in steps:
        unseen = (step.reads & writes) - visible
        overwrites = step.writes & writes or (step.writes & reads and not unseen)
        too_long = submission and seconds + step.seconds > SUBMISSION_SECONDS
        if overwrites or too_long or not all(buffer.relays for buffer, _ in unseen):
            yield submission
            submission, unseen, seconds = [], frozenset(), 0.0
            reads, writes, visible = set(), set(), set()
        if unseen:
            submission.append(Barrier(tuple(buffer for buffer, _ in unseen)))
            visible |= unseen
            reads = set()
        submission.append(step)
        seconds += step.seconds
        reads |= step.reads
        writes |= step.writes
    yield submission


def learn(submission: Iterable[Step[Any] | Barrier[Any]], seconds: float) -> bool:
    """Corrects the seconds per element of a submission's pipelines by the time that the submission took.

    Args:
        submission: its steps and barriers.
        seconds: the time from its begin to its end.

    Returns:
        Whether the same steps should be cut into submissions again: this submission was measured, has several steps,
        and took longer than SUBMISSION_SECONDS.
    """
    steps = [part for part in submission if isinstance(part, Step)]
    paces = {step.pace for step in steps}
    measured = seconds > _MEASURED_SECONDS and all(pace.has_run for pace in paces)
    if measured:
        factor = seconds / sum(step.seconds for step in steps)
        for pace in paces:
            pace.seconds *= factor
            pace.is_too_slow = seconds > SUBMISSION_SECONDS and len(steps) == 1
    for pace in paces:
        pace.has_run = True
    return measured and seconds > SUBMISSION_SECONDS and len(steps) > 1
