"""The order of elements, proved by a solver for all their bits, of the modules as they are compiled.

Each kernel is executed with symbols for elements (`symbolic.py`), with the constants that a plan gives it. Which
element it takes is then a number, on each way that it may go. That it is the right one is proved for all values with
which it goes this way, against what z3 knows of integers and of IEEE 754.

`reduce` and `columns` compare two elements, and `combine` two partials with any indices: so the keys of elements, and
what compares keys, have the order of semantics.md for all pairs. `rows` has a vector of elements, all equal but one,
and looks twice (extremes.glsl). To save time, `rows` and `combine` have two of the four operators: ARGMAX that selects
the first of equal elements, and ARGMIN that selects the last.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product

import pytest
import z3

from dmlgpu import ArgmaxOperatorDesc, ArgminOperatorDesc, AxisDirection, DataType, TensorDesc, TopK1OperatorDesc
from dmlgpu.descriptors.reduction import ARG_TYPES, ArgOperatorDesc
from dmlgpu.lowering.lower import lower
from dmlgpu.lowering.plan import Dispatch, Values
from dmlgpu.testing.cases import WIDTHS
from tests.support.limits import LOWERED, PLANNED
from tests.support.symbolic import ways

Arg = type[ArgOperatorDesc]
OPERATORS = [*product((ArgmaxOperatorDesc, ArgminOperatorDesc), AxisDirection)]


def is_below(data_type: DataType, minimum: bool, a: z3.BitVecRef, b: z3.BitVecRef) -> z3.BoolRef:
    """Whether b wins over a, wherever they stand."""
    if data_type.is_float:
        sort = {16: z3.Float16, 32: z3.Float32, 64: z3.Float64}[data_type.bits]()
        a, b = z3.fpBVToFP(a, sort), z3.fpBVToFP(b, sort)
        better = z3.fpGT(a, b) if minimum else z3.fpLT(a, b)
        return z3.Or(better, z3.And(z3.fpIsNaN(b), z3.Not(z3.fpIsNaN(a))))
    low, high = (b, a) if minimum else (a, b)
    return z3.ULT(low, high) if data_type.name.startswith("U") else low < high


def words_of(elements: Sequence[z3.BitVecRef]) -> list[z3.BitVecRef]:
    """The words in which elements lie side by side."""
    bits = reduce(lambda low, high: z3.Concat(high, low), elements)
    words = -(-bits.size() // 32)
    bits = z3.ZeroExt(32 * words - bits.size(), bits)
    return [z3.Extract(32 * i + 31, 32 * i, bits) for i in range(words)]


def changed(values: Values, **others: int) -> Values:
    return Values(**{**values, **others})


@dataclass
class Choice:
    """Elements between which every output chooses, and how they are given to a kernel."""

    elements: Sequence[z3.BitVecRef]
    indices: Sequence[z3.BitVecRef]
    source: Sequence[z3.BitVecRef]
    """Words: of the input, or of partials."""
    sizes: tuple[int, int] = (1, 2)
    axis: int = 1

    def dispatch(self, kernel: str, data_type: DataType, arg: Arg, direction: AxisDirection) -> Dispatch:
        desc = arg.of(TensorDesc(data_type, self.sizes), (self.axis,), direction)
        if kernel == "combine":
            *_, dispatch = lower(desc, LOWERED).dispatches
            return replace(dispatch, push=changed(dispatch.push, partial_count=2, partials_base=0))
        (dispatch,) = lower(desc, PLANNED["cpu"], kernel).dispatches
        if kernel == "rows":
            shader = dispatch.shader
            return replace(dispatch, shader=replace(shader, constants=changed(shader.constants, short=False)))
        return dispatch

    def right(self, data_type: DataType, arg: Arg, direction: AxisDirection, selected) -> z3.BoolRef:
        """Whether this index is that of the element that wins over all others."""
        count, minimum = range(len(self.elements)), arg is ArgminOperatorDesc

        def wins(i: int, j: int) -> z3.BoolRef:
            before, after = (i, j) if direction is AxisDirection.INCREASING else (j, i)
            return z3.Or(
                is_below(data_type, minimum, self.elements[j], self.elements[i]),
                z3.And(
                    z3.Not(is_below(data_type, minimum, self.elements[i], self.elements[j])),
                    z3.ULT(self.indices[before], self.indices[after]),
                ),
            )

        return z3.Or([z3.And(selected == self.indices[i], *(wins(i, j) for j in count if j != i)) for i in count])


def choice(kernel: str, data_type: DataType, a: z3.BitVecRef, b: z3.BitVecRef) -> Choice:
    vector = 128 // data_type.bits
    numbers = [z3.BitVecVal(i, 32) for i in range(vector)]
    if kernel == "reduce":
        return Choice([a, b], numbers[:2], words_of([a, b]))
    if kernel == "columns":
        return Choice([a, b], numbers[:2], words_of([a] * vector + [b] * vector), (2, vector), 0)
    if kernel == "rows":
        row = [b if i == vector // 2 else a for i in range(vector)]
        return Choice(row, numbers, words_of(row), (1, vector))
    i, j = z3.BitVecs("i j", 32)
    return Choice([a, b], [i, j], [i, *words_of([a]), j, *words_of([b])], (1, 1 << 12))


# Keys of elements are the same in all kernels: others have a type of each width, each of another kind of number.
PROVED = [
    (kernel, data_type)
    for kernel in ("reduce", "columns", "rows", "combine")
    for data_type in (ARG_TYPES["input_tensor"] if kernel == "reduce" else WIDTHS)
]


@pytest.mark.parametrize(("kernel", "data_type"), PROVED, ids=lambda each: getattr(each, "name", each))
def test_the_right_element_is_taken(kernel, data_type):
    a, b = z3.BitVecs("a b", data_type.bits)
    chosen = choice(kernel, data_type, a, b)
    outputs = [z3.BitVec(f"before{i}", 32) for i in range(chosen.sizes[1 - chosen.axis])]
    for arg, direction in OPERATORS[:: 3 if kernel in ("rows", "combine") else 1]:
        dispatch = chosen.dispatch(kernel, data_type, arg, direction)
        # Rows compare so many elements that merged terms take the solver longer.
        for conditions, buffers in ways(dispatch, {0: chosen.source, 1: outputs}, merges=kernel != "rows"):
            solver = z3.Solver()
            solver.add(*conditions, z3.Distinct(*chosen.indices), *(index != 0xFFFFFFFF for index in chosen.indices))
            right = z3.And([chosen.right(data_type, arg, direction, selected) for selected in buffers[1]])
            if solver.check(z3.Not(right)) != z3.unsat:
                x, y = (solver.model().eval(symbol, True).as_long() for symbol in (a, b))
                selected = [solver.model().eval(selected, True) for selected in buffers[1]]
                pytest.fail(
                    f"{arg.__name__} {direction.name} of {data_type.name} by {dispatch.shader.module}: "
                    f"of {x:#x} and {y:#x} it takes {selected[0]}"
                )


@pytest.mark.parametrize("data_type", ARG_TYPES["input_tensor"], ids=lambda data_type: data_type.name)
def test_two_elements_are_sorted(data_type):
    """With which TOP_K sorts and merges any number: all by one comparison of two entries."""
    a, b = z3.BitVecs("a b", data_type.bits)
    words = 1 + max(1, data_type.bits // 32)
    for direction in AxisDirection:
        desc = TopK1OperatorDesc.of(TensorDesc(data_type, (1, 2)), 2, 1, direction)
        sort, *_ = lower(desc, PLANNED["cpu"]).dispatches
        # NaN is greater than all numbers in both directions.
        larger, smaller = (b, a) if direction is AxisDirection.DECREASING else (a, b)
        swapped = is_below(data_type, False, smaller, larger)
        unknown = [z3.BitVec(f"before{i}", 32) for i in range(2 * words)]
        for conditions, buffers in ways(sort, {0: words_of([a, b]), 1: unknown, 2: [z3.BitVecVal(0, 32)]}):
            solver = z3.Solver()
            solver.add(*conditions)
            first, second = (z3.If(swapped, z3.BitVecVal(i, 32), z3.BitVecVal(1 - i, 32)) for i in (1, 0))
            right = z3.And(buffers[1][0] == first, buffers[1][words] == second)
            assert solver.check(z3.Not(right)) == z3.unsat, (direction, solver.model())


def test_a_wrong_order_is_refuted(monkeypatch):
    monkeypatch.setattr("tests.host.test_order_proofs.is_below", lambda data_type, minimum, a, b: z3.ULT(a, b))
    message = r"^ArgmaxOperatorDesc INCREASING of INT64 by reduce_selection_64: of 0x\w+ and 0x\w+ it takes [01]$"
    with pytest.raises(pytest.fail.Exception, match=message):
        test_the_right_element_is_taken("reduce", DataType.INT64)


@pytest.mark.parametrize(("short", "inside"), [(False, False), (True, False), (True, True)])
def test_positions_do_not_wrap_around_at_the_end_of_a_row(short, inside):
    # The last 255 of 2^32 - 1 elements, which begin the buffer; the greatest is the last.
    row = Choice([], [], words_of([z3.BitVecVal(int(i == 254), 8) for i in range(256)]), (1, 255))
    dispatch = row.dispatch("rows", DataType.UINT8, ArgmaxOperatorDesc, AxisDirection.INCREASING)
    constants = changed(dispatch.shader.constants, short=short, aligned_inside=inside)
    push = changed(dispatch.push, reduced_begin=2**32 - 256, reduced_end=2**32 - 1, split_size=256, source_base=256)
    at_the_end = replace(dispatch, shader=replace(dispatch.shader, constants=constants), push=push)
    ((_, buffers),) = ways(at_the_end, {0: row.source, 1: [z3.BitVec("before", 32)]})
    assert str(z3.simplify(buffers[1][0])) == str(2**32 - 2)
