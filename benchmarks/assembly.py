"""What ACO's assembly says of how a kernel waits for memory.

A line is a label (`BB8:`) or an instruction. A branch to a label above it ends a loop that begins there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_LABEL = re.compile(r"(BB\d+):")
_BRANCH = re.compile(r"\s*s_c?branch\w* (BB\d+)\b")
# Of memory that invocations read each for itself: not s_load (scalars), nor ds_load and ds_read (shared memory).
# They load words: GCN and RDNA 1 and 2 say how many, RDNA 3 how many bits.
_LOAD = re.compile(r"\s*(?:buffer|global|flat)_load_(?:dword(?:x(\d))?|b(\d+)) ")
_INSTRUCTION = re.compile(r"\s+[a-z]")
_SCALAR = re.compile(r"\s+s_")
# Waits until at most so many of the loads that were issued have not arrived.
_WAIT = re.compile(r"\s*s_waitcnt\b.*\bvmcnt\((\d+)\)")


@dataclass(frozen=True)
class MainLoop:
    """Where a kernel reads most.

    Each load belongs to the smallest loop around it. The main loop is the one that lies deepest of those with loads; of
    several the one with most loads, then the first. Loops within it, which have none, do not count. What lies in no
    loop counts as the least deep one.
    """

    vector: int
    """Instructions that `vector_instructions` counts."""
    loads: int
    bytes: int
    """What one invocation loads in a turn."""
    in_flight: int
    """Loads that are issued before the first wait for one of them.

    Each turn waits at least once: with one load in flight a turn takes as long as memory takes to answer, with four as
    long for four times the data.
    """


def main_loop(assembly: str) -> MainLoop:
    lines = assembly.splitlines()
    loops = _loops(lines).items()
    # The lines of each loop that lie in none within it, by the begins of the loops around them.
    own: dict[tuple[int, ...], list[str]] = {}
    for number, line in enumerate(lines):
        if line[:1].isspace():
            own.setdefault(tuple(begin for begin, end in loops if begin <= number <= end), []).append(line)
    loads = {around: [load for load in map(_LOAD.match, text) if load] for around, text in own.items()}
    main = max(own, key=lambda around: (len(loads[around]) > 0, len(around), len(loads[around])), default=())
    words = [int(load[1] or 1) if load[2] is None else int(load[2]) // 32 for load in loads.get(main, ())]
    text = own.get(main, [])
    return MainLoop(vector_instructions(text), len(words), 4 * sum(words), _before_the_first_wait(text))


def vector_instructions(lines: Sequence[str]) -> int:
    """Instructions that each invocation has its own of. All others are a wave's, and units of their own run them."""
    return sum(bool(_INSTRUCTION.match(line)) and not _SCALAR.match(line) for line in lines)


def _loops(lines: Sequence[str]) -> dict[int, int]:
    """The last line of every loop, by its first."""
    labels: dict[str, int] = {}
    loops: dict[int, int] = {}
    for number, line in enumerate(lines):
        if label := _LABEL.match(line):
            labels[label[1]] = number
        elif (branch := _BRANCH.match(line)) and branch[1] in labels:
            loops[labels[branch[1]]] = number
    return loops


def _before_the_first_wait(lines: Sequence[str]) -> int:
    loads = 0
    for line in lines:
        if _LOAD.match(line):
            loads += 1
        elif (wait := _WAIT.match(line)) and int(wait[1]) < loads:
            break
    return loads
