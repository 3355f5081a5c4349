"""How a kernel waits for memory, read from ACO's assembly.

A line is a label (`BB8:`) or an instruction. A branch to a label above it ends a loop that begins there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_LABEL = re.compile(r"(BB\d+):")
_BRANCH = re.compile(r"\s*s_c?branch\w* (BB\d+)\b")
# Loads of words by each invocation: not s_load (scalars), nor ds_load and ds_read (shared memory). Names end with the
# number of words on GCN and RDNA 1 and 2, of bits on RDNA 3.
_LOAD = re.compile(r"\s*(?:buffer|global|flat)_load_(?:dword(?:x\d)?|b\d+) ")
# Waits until at most this many of the issued loads have not arrived.
_WAIT = re.compile(r"\s*s_waitcnt\b.*\bvmcnt\((\d+)\)")


def loads_in_flight(assembly: str) -> int:
    """Loads that the main loop issues before the first wait for one of them.

    Each iteration waits at least once, and waits as long for four loads as for one.

    A load belongs to the innermost loop around it. The main loop is the deepest one with loads; among several the one
    with most loads, then the first. Code outside loops counts as the outermost loop.
    """
    lines = assembly.splitlines()
    loops = _loops(lines).items()
    # Lines of each loop without those of its inner loops. A key has the first lines of the loop and of all around it.
    bodies: dict[tuple[int, ...], list[str]] = {}
    for number, line in enumerate(lines):
        if line[:1].isspace():
            bodies.setdefault(tuple(begin for begin, end in loops if begin <= number <= end), []).append(line)
    loads = {nest: sum(map(bool, map(_LOAD.match, body))) for nest, body in bodies.items()}
    main = max(bodies, key=lambda nest: (loads[nest] > 0, len(nest), loads[nest]), default=())
    return _before_the_first_wait(bodies.get(main, []))


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
