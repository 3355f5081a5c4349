"""The order of elements, proved by a solver for all their bits, in the compiled modules.

Each kernel is executed with symbols for elements (`symbolic.py`), and with the constants of a plan. On each path
through the module the selected element is then a number. The proof shows that it is the right one for all values that
lead to this path, by z3's rules of integers and of IEEE 754.

`reduce` and `columns` compare two elements, and `combine` compares two partials with any indices. So the keys of
elements, and the comparison of keys, have the order of semantics.md for all pairs. `rows` searches a vector whose
elements are equal but for one, twice (extremes.glsl). To save time, `rows` and `combine` run only two of the four
operators: ARGMAX that selects the first of equal elements, and ARGMIN that selects the last.
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
from tests.support.symbolic import executions

Arg = type[ArgOperatorDesc]
OPERATORS = [*product((ArgmaxOperatorDesc, ArgminOperatorDesc), AxisDirection)]


def is_below(data_type: DataType, minimum: bool, a: z3.BitVecRef, b: z3.BitVecRef) -> z3.BoolRef:
    """Whether b wins over a at any positions."""
    if data_type.is_float:
        sort = {16: z3.Float16, 32: z3.Float32, 64: z3.Float64}[data_type.bits]()
        a, b = z3.fpBVToFP(a, sort), z3.fpBVToFP(b, sort)
        better = z3.fpGT(a, b) if minimum else z3.fpLT(a, b)
        return z3.Or(better, z3.And(z3.fpIsNaN(b), z3.Not(z3.fpIsNaN(a))))
    low, high = (b, a) if minimum else (a, b)
    return z3.ULT(low, high) if data_type.name.startswith("U") else low < high


def words_of(elements: Sequence[z3.BitVecRef]) -> list[z3.BitVecRef]:
    """The words of packed elements."""
    bits = reduce(lambda low, high: z3.Concat(high, low), elements)
    words = -(-bits.size() // 32)
    bits = z3.ZeroExt(32 * words - bits.size(), bits)
    return [z3.Extract(32 * i + 31, 32 * i, bits) for i in range(words)]


def changed(values: Values, **others: int) -> Values:
    return Values(**{**values, **others})


@dataclass
class Choice:
    """Elements from which every output selects one, and the buffer that has them."""

    elements: Sequence[z3.BitVecRef]
    indices: Sequence[z3.BitVecRef]
    source: Sequence[z3.BitVecRef]
    """Words of the input, or of partials."""
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

    def is_right(self, data_type: DataType, arg: Arg, direction: AxisDirection, selected) -> z3.BoolRef:
        """Whether the selected index is that of the element that wins over all others."""
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


# All kernels share the keys of elements: `reduce` has every type, other kernels one type of each width.
PROVED = [
    (kernel, data_type)
    for kernel in ("reduce", "columns", "rows", "combine")
    for data_type in (ARG_TYPES["input_tensor"] if kernel == "reduce" else WIDTHS)
]


@pytest.mark.parametrize(("kernel", "data_type"), PROVED, ids=lambda value: getattr(value, "name", value))
def test_the_right_element_is_selected(kernel, data_type):
    a, b = z3.BitVecs("a b", data_type.bits)
    chosen = choice(kernel, data_type, a, b)
    outputs = [z3.BitVec(f"before{i}", 32) for i in range(chosen.sizes[1 - chosen.axis])]
    for arg, direction in OPERATORS[:: 3 if kernel in ("rows", "combine") else 1]:
        dispatch = chosen.dispatch(kernel, data_type, arg, direction)
        # `rows` compares so many elements that merged terms would need more time.
        for conditions, buffers in executions(dispatch, {0: chosen.source, 1: outputs}, merges=kernel != "rows"):
            solver = z3.Solver()
            solver.add(*conditions, z3.Distinct(*chosen.indices), *(index != 0xFFFFFFFF for index in chosen.indices))
            are_right = z3.And([chosen.is_right(data_type, arg, direction, selected) for selected in buffers[1]])
            assert solver.check(z3.Not(are_right)) == z3.unsat, (arg, direction, solver.model())


@pytest.mark.parametrize("data_type", ARG_TYPES["input_tensor"], ids=lambda data_type: data_type.name)
def test_two_elements_are_sorted(data_type):
    """TOP_K sorts and merges any number of entries by this comparison of two."""
    a, b = z3.BitVecs("a b", data_type.bits)
    words = 1 + max(1, data_type.bits // 32)
    for direction in AxisDirection:
        desc = TopK1OperatorDesc.of(TensorDesc(data_type, (1, 2)), 2, 1, direction)
        sort, *_ = lower(desc, PLANNED["cpu"]).dispatches
        # NaN is greater than all numbers in both directions.
        larger, smaller = (b, a) if direction is AxisDirection.DECREASING else (a, b)
        swapped = is_below(data_type, False, smaller, larger)
        unknown = [z3.BitVec(f"before{i}", 32) for i in range(2 * words)]
        for conditions, buffers in executions(sort, {0: words_of([a, b]), 1: unknown, 2: [z3.BitVecVal(0, 32)]}):
            solver = z3.Solver()
            solver.add(*conditions)
            first, second = (z3.If(swapped, z3.BitVecVal(i, 32), z3.BitVecVal(1 - i, 32)) for i in (1, 0))
            are_sorted = z3.And(buffers[1][0] == first, buffers[1][words] == second)
            assert solver.check(z3.Not(are_sorted)) == z3.unsat, (direction, solver.model())


@pytest.mark.parametrize(("short", "inside"), [(False, False), (True, False), (True, True)])
def test_positions_do_not_wrap_around_at_the_end_of_a_row(short, inside):
    # The row ends with element 2^32 - 2. Its last 255 elements begin the buffer, and the last one is the greatest.
    row = Choice([], [], words_of([z3.BitVecVal(int(i == 254), 8) for i in range(256)]), (1, 255))
    dispatch = row.dispatch("rows", DataType.UINT8, ArgmaxOperatorDesc, AxisDirection.INCREASING)
    constants = changed(dispatch.shader.constants, short=short, aligned_inside=inside)
    push = changed(dispatch.push, reduced_begin=2**32 - 256, reduced_end=2**32 - 1, split_size=256, source_base=256)
    at_the_end = replace(dispatch, shader=replace(dispatch.shader, constants=constants), push=push)
    ((_, buffers),) = executions(at_the_end, {0: row.source, 1: [z3.BitVec("before", 32)]})
    assert str(z3.simplify(buffers[1][0])) == str(2**32 - 2)
