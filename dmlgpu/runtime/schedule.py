"""Which steps share a submission, where barriers stand between them, and how long they should take.

Nothing here knows Kompute or Vulkan. A buffer is any object that says whether it `relays`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

# Calls of up to so many steps have their submissions kept, to be run again; a batch submits after so many steps.
RECORDED_STEPS = 64
# Staged buffers up to this size relay. The barrier for one copies the whole buffer: on two cores of lavapipe and
# SwiftShader one more submission costs 30 to 60 us, the copy of 64 KiB nothing to be seen beside it, that of 1 MiB as
# much as the submission.
RELAY_BYTES = 64 << 10
# A submission of several steps should take no longer. Ctrl-C is only heard between submissions, and watchdogs reset a
# GPU that is busy with one submission for seconds.
SUBMISSION_SECONDS = 0.2
# A submission that takes less time is not measured: most of its time is not that of its steps.
_MEASURED_SECONDS = 0.001


class Buffer(Protocol):
    """A buffer, as far as steps in it are put in order."""

    @property
    def relays(self) -> bool:
        """Whether a barrier lets later steps of a submission read what earlier ones wrote to it."""


B = TypeVar("B", bound=Buffer)
# A buffer and the offset in it where a tensor, or the records of a call, begin. Two of them never overlap, so steps
# share memory only where they name the same place.
Place = tuple[B, int]


@dataclass(eq=False)
class Pace:
    """How fast a pipeline is, as learnt from its submissions. Equal only to itself."""

    seconds: float
    """For one element, as last measured."""
    has_run: bool = False
    """Whether the pipeline ran: the first run may take long, and is not measured."""
    is_too_slow: bool = False
    """Whether a step of it, submitted alone, took longer than SUBMISSION_SECONDS when it was last measured."""


@dataclass(frozen=True, eq=False)
class Step(Generic[B]):
    """A dispatch, as far as it is put in order. Equal only to itself."""

    reads: frozenset[Place[B]]
    writes: frozenset[Place[B]]
    elements: int
    """How many it looks at."""
    pace: Pace
    """That of its pipeline."""

    @property
    def seconds(self) -> float:
        """What it should take."""
        return self.elements * self.pace.seconds


@dataclass(frozen=True)
class Barrier(Generic[B]):
    """Steps after it see what steps before it wrote to these buffers."""

    buffers: tuple[B, ...]


S = TypeVar("S", bound=Step[Any])


def submissions(steps: Iterable[S]) -> Iterator[list[S | Barrier[Any]]]:
    """Steps as submissions, with the barriers that they need.

    The device may run the steps of a submission in any order, or at the same time. The host waits for the end of a
    submission before it starts the next. Each submission costs time, so there are as few as possible. A new one begins
    where a step depends on an earlier one and no barrier can stand between them, and where the steps together should
    take longer than SUBMISSION_SECONDS. In this picture `a>b` reads a and writes b, and only B relays:

        steps         a>B           B>c   d>e     c>f

        submissions   a>B  [  B  ]  B>c   d>e  |  c>f
                           barrier             |  B>c must end before c is read, and c does not relay

    A step can depend on an earlier one of its submission in three ways:

        it reads what the other wrote      a barrier if the buffer relays, otherwise a new submission
        it writes what the other wrote     a new submission
        it writes what the other read      nothing if a barrier stands between the two, otherwise a new submission

    The reason is what Kompute offers. Before a dispatch it puts a barrier for what copies wrote, but none for what
    other dispatches wrote. OpTensorSyncLocal, which copies a staged buffer to where the host sees it, has the only
    other one: the copy waits for the steps before it, and the dispatch after it waits for the copy.

        a>B  --wait-->  copy of B  --wait-->  B>c

    All steps before the copy end before any step after it begins. So a step after a barrier may overwrite what steps
    before it read; but of what they wrote it sees only B. Only staged buffers can be copied so, and only small ones are
    worth it. Nothing puts two copies of one buffer in order: it gets at most one barrier in a submission.
    """
    submission: list[S | Barrier[Any]] = []
    seconds = 0.0
    # Of this submission: what was read since its last barrier, what was written, and what of that is seen by steps to
    # come, as there is a barrier for it.
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
    """Corrects the pace of the pipelines of a submission by the time that it took.

    Args:
        submission: its steps, and barriers.
        seconds: what it took from begin to end.

    Returns:
        Whether the same steps should be cut into submissions anew. That is so where this one was measured, has several
        steps, and took longer than SUBMISSION_SECONDS.
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
