"""Barriers between stores and loads of shared memory by the invocations of a workgroup.

Drivers of CPUs may run invocations in an order that hides a missing barrier. So these tests search every path of the
shipped modules, including loops:

- Between a store and a later load there is a barrier, because invocations load what others stored.
- Between a load and a later store there is a barrier, because others may not have loaded yet. Exempt are invocations
  that on every path load before they store: one half of them loads the elements of the other half, and stores where
  no invocation loads before the next barrier.

The tests ignore which elements are loaded and stored; `test_mappings.py` compares results.
"""

import dataclasses
from collections.abc import Collection, Iterator

import pytest

from dmlgpu.runtime import spirv
from tests.support.symbolic import Instruction, instructions

MODULES = [module for module in spirv.layouts() if "_cooperating_" in module or module.startswith("combine_")]


@dataclasses.dataclass(eq=False)
class Point:
    """A point of a module's flow, and the points that may follow."""

    kind: str = ""
    """`load` or `store` of shared memory, `barrier`, or empty."""
    nexts: list["Point"] = dataclasses.field(default_factory=list)


class Flow:
    """The points of a module, beginning with the first; called functions are expanded."""

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

    def _expand(self, function: str, caller: Point) -> Point:
        """The first point of a function, whose end leads to `caller`."""
        body = self._functions[function]
        points = [Point(self._kind(line)) for line in body]
        self.points += points
        labels = {line.result: point for line, point in zip(body, points, strict=True) if line.name == "Label"}
        for line, point, after in zip(body, points, [*points[1:], caller], strict=True):
            if line.name in ("Branch", "BranchConditional", "Switch"):
                point.nexts = [labels[operand] for operand in line.operands if operand in labels]
            elif line.name in ("Return", "ReturnValue"):
                point.nexts = [caller]
            elif line.name == "FunctionCall":
                point.nexts = [self._expand(line.operands[1], after)]
            elif line.name != "Unreachable":
                point.nexts = [after]
        return points[0]

    def _kind(self, line: Instruction) -> str:
        if line.name == "ControlBarrier":
            # Barriers of shared memory have scope Workgroup and semantics AcquireRelease | WorkgroupMemory.
            execution, memory, semantics = (int(self._constants[operand]) for operand in line.operands)
            return "barrier" if (execution, memory) == (2, 2) and semantics & 0x108 == 0x108 else ""
        if not self._shared & set(line.operands) or line.name in ("AccessChain", "InBoundsAccessChain", "EntryPoint"):
            return ""
        return {"Load": "load", "Store": "store"}[line.name]

    def reached(self, begin: Point, stops: Collection[Point]) -> set[Point]:
        """The points that may follow a point, up to points that stop the search."""
        points: set[Point] = set()
        waiting = list(begin.nexts)
        while waiting:
            point = waiting.pop()
            if point not in points:
                points.add(point)
                waiting += [] if point in stops else point.nexts
        return points

    def of(self, *kinds: str) -> set[Point]:
        return {point for point in self.points if point.kind in kinds}

    def races(self, without: Collection[Point] = ()) -> Iterator[tuple[Point, Point]]:
        """Ordered pairs of accesses that lack a barrier between them, if some barriers are ignored."""
        barriers = self.of("barrier") - set(without)
        for access in self.of("load", "store"):
            others = self.reached(access, barriers) & self.of("load", "store") - self.of(access.kind)
            if access.kind == "load":
                others &= self.reached(self.points[0], {access})
            yield from ((access, other) for other in others)


@pytest.mark.parametrize("module", MODULES)
def test_barriers_are_between_stores_and_loads(module):
    flow = Flow(module)
    assert flow.of("load")
    assert flow.of("store")
    assert not list(flow.races())
    for barrier in flow.of("barrier"):
        assert list(flow.races(without=[barrier])), "a needless barrier"


def test_other_modules_have_no_shared_memory():
    for module in set(spirv.layouts()) - set(MODULES):
        assert not Flow(module).of("load", "store", "barrier"), module
