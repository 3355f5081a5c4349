"""How often the loops of an invocation turn, as llvmpipe counts it.

llvmpipe (Mesa 22.3; no longer with 25.0) ends every loop without a word once it has counted 65,535 turns. What comes
then is never computed. It has one counter for all loops of the invocations that a vector holds: a loop turns as often
as the invocation that needs it most. The turn in which a loop ends is counted too, and in it all loops inside:

    for (3 turns)          3 * (1 + 6) + 1 + 1 = 23 turns
        for (5 turns)      5 + 1

Kernels write their loops down as they stand in the shader, each with the most turns that an invocation may need.
`tests/host/test_loops.py` compares that with llvmpipe's counter.
"""

from __future__ import annotations

from collections.abc import Sequence


class Loop:
    """A loop, and those inside it, each as often as it stands there.

    Attributes:
        turns: how often it turns, at most.
        iterations: what is counted, at most.
    """

    def __init__(self, turns: int, inner: Sequence[Loop] = ()) -> None:
        self.turns = turns
        self._turn = 1 + sum([loop.iterations for loop in inner])
        self._end: int = 1 + sum([loop._end for loop in inner])
        self.iterations: int = turns * self._turn + self._end

    def most_turns(self, iterations: int) -> int:
        """How often it could turn, for so many to be counted at most; 0 where it could not even begin."""
        return max(0, (iterations - self._end) // self._turn)


def unrolled(turns: int, inner: Sequence[Loop]) -> Sequence[Loop]:
    """A loop that drivers unroll: they leave it as it is where it has others inside."""
    return (Loop(turns, inner),) if inner else ()
