"""Which steps share a submission, where barriers stand between them, and how long they should take.

Nothing here knows Kompute or Vulkan. A buffer is any object that says whether it `relays`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

# Submissions of up to so many steps are kept to be evaluated again, and a batch submits after so many steps.
RECORDED_STEPS = 64
# Staged buffers up to this size relay. The barrier for one copies the whole buffer: on two cores of lavapipe and
# SwiftShader one more submission costs 30 to 60 us, the copy of 64 KiB nothing to be seen beside it, that of 1 MiB as
# much as the submission.
RELAY_BYTES = 64 << 10
# A submission of several steps should take no longer: between submissions Ctrl-C is heard, and watchdogs reset GPUs
# that are busy with one for seconds.
SUBMISSION_SECONDS = 0.2
# What takes less tells little about the pace of its pipelines.
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
    """Steps behind it see what steps before it wrote to these buffers."""

    buffers: tuple[B, ...]


S = TypeVar("S", bound=Step[Any])


def submissions(steps: Iterable[S]) -> Iterator[list[S | Barrier[Any]]]:
    """Steps as submissions, with the barriers that they need.

    The device may run the steps of a submission in any order, or at the same time. The host waits for the end of a
    submission before it starts the next. Each submission takes time of its own, so they are few: a new one begins only
    where a step depends on an earlier one and no barrier can stand between them, and where the steps together should
    take longer than SUBMISSION_SECONDS. In this picture `a>b` reads a and writes b, and of all buffers only B relays:

        steps         a>B           B>c   d>e     c>f

        submissions   a>B  [  B  ]  B>c   d>e  |  c>f
                           barrier             |  B>c must end before c is read, and c does not relay

    A step depends on an earlier one of its submission in three ways:

        it reads what that wrote        a barrier where the buffer relays, otherwise a new submission
        it writes what that wrote       a new submission
        it writes what that read        nothing where a barrier stands between the two, otherwise a new submission

    This follows from what Kompute offers. Before a dispatch it puts a barrier for what copies wrote, but none for what
    other dispatches wrote. The only other barrier is that of OpTensorSyncLocal, which copies a staged buffer to where
    the host sees it: the copy waits for the steps before it, and the dispatch behind it waits for the copy.

        a>B  --wait-->  copy of B  --wait-->  B>c

    All steps before the copy end before any step behind it begins, but only what was written to B is seen there. So a
    step behind a barrier may also overwrite what steps before it read. Only staged buffers can be copied so, and only
    small ones are worth it. Nothing orders two copies of one buffer: it gets one barrier in a submission at most.
    """
    submission: list[S | Barrier[Any]] = []
    seconds = 0.0
    # Of this submission: what was read since its last barrier, what was written, and for what of that a barrier stands.
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
    """Takes the pace of the pipelines of a submission from the time that it took.

    Args:
        submission: its steps, and barriers.
        seconds: what it took from begin to end.

    Returns:
        Whether it should be cut anew: it took longer than SUBMISSION_SECONDS, has several steps, and was measured.
    """
    steps = [part for part in submission if isinstance(part, Step)]
    paces = {step.pace for step in steps}
    measured = seconds > _MEASURED_SECONDS and all(pace.has_run for pace in paces)
    if measured:
        factor = seconds / sum(step.seconds for step in steps)
        for pace in paces:
            pace.seconds *= factor
    for pace in paces:
        pace.has_run = True
    return measured and seconds > SUBMISSION_SECONDS and len(steps) > 1
