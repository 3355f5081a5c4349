"""Barriers between what the invocations of a workgroup write to shared memory and what they read there.

Drivers that run on the CPU may run invocations in an order that hides a missing barrier. So it is looked for in the
modules that are shipped, on every path, loops included, whether they are unrolled or not:

- Between a store and a load that may come after it there is a barrier: invocations load what others stored.
- Between a load and a store that may come after it there is a barrier, too: others may not have loaded it yet. But an
  invocation that has to load before it stores, whatever the path, may store at once: of two halves one loads what the
  other has, and stores where none loads before the next barrier.

Which elements are loaded and stored is not looked at: `test_mappings.py` has the results.
"""

import dataclasses
from collections.abc import Collection, Iterator

import pytest

from dmlgpu.runtime import spirv
from tests.support.symbolic import Instruction, instructions

MODULES = [module for module in spirv.layouts() if "_cooperating_" in module or module.startswith("combine_")]


@dataclasses.dataclass(eq=False)
class Point:
    """A point of a module's flow, and those that may come next."""

    kind: str = ""
    """`load` or `store` of shared memory, `barrier`, or nothing of these."""
    nexts: list["Point"] = dataclasses.field(default_factory=list)


class Flow:
    """The points of a module in any order, the first one first; functions are expanded where they are called."""

    def __init__(self, module: str) -> None:
        listed = instructions(module)
        self._constants = {line.result: line.operands[-1] for line in listed if line.name == "Constant"}
        shared = {line.result for line in listed if line.name == "TypePointer" and line.operands[0] == "Workgroup"}
        self._shared = {line.result for line in listed if line.operands and line.operands[0] in shared}
        begins = [i for i, line in enumerate(listed) if line.name == "Function"]
        ends = [i for i, line in enumerate(listed) if line.name == "FunctionEnd"]
        self._functions = {listed[a].result: listed[a:b] for a, b in zip(begins, ends, strict=True)}
        (main,) = (line.operands[1] for line in listed if line.name == "EntryPoint")
        self.points: list[Point] = []
        self._expand(main, Point())

    def _expand(self, function: str, behind: Point) -> Point:
        """Where a function begins; it ends at a point of who calls it."""
        body = self._functions[function]
        points = [Point(self._kind(line)) for line in body]
        self.points += points
        labels = {line.result: point for line, point in zip(body, points, strict=True) if line.name == "Label"}
        for line, point, after in zip(body, points, [*points[1:], behind], strict=True):
            if line.name in ("Branch", "BranchConditional", "Switch"):
                point.nexts = [labels[operand] for operand in line.operands if operand in labels]
            elif line.name in ("Return", "ReturnValue"):
                point.nexts = [behind]
            elif line.name == "FunctionCall":
                point.nexts = [self._expand(line.operands[1], after)]
            elif line.name != "Unreachable":
                point.nexts = [after]
        return points[0]

    def _kind(self, line: Instruction) -> str:
        if line.name == "ControlBarrier":
            # One that orders shared memory: scope Workgroup, semantics AcquireRelease | WorkgroupMemory.
            execution, memory, semantics = (int(self._constants[operand]) for operand in line.operands)
            return "barrier" if (execution, memory) == (2, 2) and semantics & 0x108 == 0x108 else ""
        if not self._shared & set(line.operands) or line.name in ("AccessChain", "InBoundsAccessChain", "EntryPoint"):
            return ""
        return {"Load": "load", "Store": "store"}[line.name]

    def reached(self, begin: Point, stops: Collection[Point]) -> set[Point]:
        """The points that may come after one without another in between that stops."""
        found: set[Point] = set()
        waiting = list(begin.nexts)
        while waiting:
            point = waiting.pop()
            if point not in found:
                found.add(point)
                waiting += [] if point in stops else point.nexts
        return found

    def of(self, *kinds: str) -> set[Point]:
        return {point for point in self.points if point.kind in kinds}

    def races(self, without: Collection[Point] = ()) -> Iterator[tuple[Point, Point]]:
        """Accesses between which a barrier is missing, in their order; as if some barriers were not there."""
        barriers = self.of("barrier") - set(without)
        for access in self.of("load", "store"):
            others = self.reached(access, barriers) & self.of("load", "store") - self.of(access.kind)
            if access.kind == "load":
                others &= self.reached(self.points[0], {access})
            yield from ((access, other) for other in others)


@pytest.mark.parametrize("module", MODULES)
def test_barriers_stand_between_writes_and_reads(module):
    flow = Flow(module)
    assert flow.of("load")
    assert flow.of("store")
    assert not list(flow.races())
    for barrier in flow.of("barrier"):
        assert list(flow.races(without=[barrier])), "a barrier that is not needed, or a race that is not found"


def test_other_modules_have_no_shared_memory():
    for module in set(spirv.layouts()) - set(MODULES):
        assert not Flow(module).of("load", "store", "barrier"), module
