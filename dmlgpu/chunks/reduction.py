"""Reductions over axes of arrays in chunks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dmlgpu.call import Call, Operand, Shape, Type, arg, reduced
from dmlgpu.chunks.rounding import quotients, roots
from dmlgpu.descriptors.arrays import Array
from dmlgpu.descriptors.dtypes import DataType
from dmlgpu.descriptors.operator import ExecutionFlags
from dmlgpu.descriptors.reduction import (
    ArgmaxOperatorDesc,
    ArgminOperatorDesc,
    ArgOperatorDesc,
    AxisDirection,
    ExactSquaresOperatorDesc,
    ExactSumOperatorDesc,
    ExtremumOperatorDesc,
    ReduceFunction,
    ReduceOperatorDesc,
)
from dmlgpu.runtime.shared import Selector
from dmlgpu.sources import computed, operand_of

# The operators that are reductions over axes.
REDUCTIONS = (ArgOperatorDesc, ReduceOperatorDesc, ExtremumOperatorDesc)


@dataclass(frozen=True)
class Reduction:
    """A reduction over axes of a whole array. It can be pickled."""

    shape: Shape
    """The shape of the array; (1,) for a 0-D array."""
    axes: Shape
    keepdims: bool
    dtypes: tuple[Type, ...]
    """The types of the results: of two, the values and their indices."""
    element_type: Type
    """The type that elements are computed in."""
    function: ReduceFunction
    last: bool
    """Whether of equal elements the last one wins."""
    exact: bool = False
    """Whether sums of floats are rounded once."""

    @classmethod
    def of(cls, call: Call, operand: Operand) -> Self:
        """The reduction that a function computes of an array."""
        desc = call.desc
        if isinstance(desc, ArgOperatorDesc):
            function = ReduceFunction.ARGMAX if isinstance(desc, ArgmaxOperatorDesc) else ReduceFunction.ARGMIN
            last = desc.axis_direction is AxisDirection.DECREASING
        else:
            assert isinstance(desc, (ReduceOperatorDesc, ExtremumOperatorDesc))
            function, last = desc.function, False
        shape = operand.shape or (1,)
        element_type = (call.converted or operand.dtype).newbyteorder("=")
        exact = ExecutionFlags.EXACT_SUMS in call.flags and element_type.kind == "f"
        return cls(shape, desc.axes, len(call.shape) == len(shape), call.dtypes, element_type, function, last, exact)

    @property
    def count(self) -> int:
        """The number of elements that are reduced to one output."""
        return math.prod(self.shape[axis] for axis in self.axes)

    @property
    def sizes(self) -> Shape:
        """The sizes of the outputs, with 1 on every reduced axis."""
        return tuple(1 if axis in self.axes else size for axis, size in enumerate(self.shape))

    def reduced(self, sizes: tuple[Any, ...]) -> tuple[Any, ...]:
        """Takes an entry for each dimension of x; returns those for the dimensions of the results."""
        if self.keepdims:
            return sizes
        return tuple(size for axis, size in enumerate(sizes) if axis not in self.axes)

    @property
    def _aggregation(self) -> Aggregation:
        table = _OF_INTEGERS if self.element_type.kind != "f" else _EXACT if self.exact else _AGGREGATIONS
        return table[self.function]

    @property
    def state_type(self) -> Type:
        """The type of states."""
        return self._aggregation.state_type(self.element_type)

    def state(self, chunk: Array, begin: Shape, device: Selector = None) -> Array:
        """The states of a chunk: an array with size 1 on every reduced axis.

        Args:
            chunk: a part of the array; no size on a reduced axis is 0.
            begin: the coordinates of its first element in the whole array.
            device: the device that computes it.
        """
        return self._aggregation.of_chunk(self, self._as_floats(chunk), begin, device)

    def _as_floats(self, chunk: Array) -> Array:
        """The chunk in the type that floats are computed in; integers are converted where they are reduced."""
        is_other = self.element_type.kind == "f" and chunk.dtype.newbyteorder("=") != self.element_type
        return chunk.astype(self.element_type) if is_other else chunk

    def outputs(self, chunk: Array, begin: Shape, device: Selector = None) -> tuple[Array, ...]:
        """The outputs of a chunk that has all their elements; the arguments are those of `state`."""
        if not self.exact:
            return self.results(self.state(chunk, begin, device))
        outputs = _reduced(self._as_floats(chunk), self.function, self.axes, device, exact=True)
        return (outputs.reshape(self.reduced(outputs.shape)),)

    def merged(self, states: Array) -> Array:
        """Merges the states of chunks that are side by side along the reduced axes: these get size 1."""
        sizes = [1 if axis in self.axes else size for axis, size in enumerate(states.shape)]
        with np.errstate(all="ignore"):
            return self._aggregation.merge(self, _rows(states, self.axes)).reshape(sizes)

    def results(self, state: Array) -> tuple[Array, ...]:
        """The outputs, from the merged states of all chunks: of each result."""
        sizes = self.reduced(state.shape)
        with np.errstate(all="ignore"):
            values = (
                [state["value"], state["index"]]
                if len(self.dtypes) > 1
                else [self._aggregation.finish(state, self.count)]
            )
            return tuple([y.astype(dtype).reshape(sizes) for y, dtype in zip(values, self.dtypes, strict=True)])


def _reduced(
    x: Array, function: ReduceFunction, axes: Shape, device: Selector, *, exact: bool = False, converted: Any = None
) -> Array:
    """The function of the elements along axes, which stay with size 1."""
    call = reduced(operand_of(x), function, axes, True, exact=exact, converted=converted)
    values: Array = computed(call, {"x": x}, x, device=device)
    return values


@dataclass(frozen=True)
class Aggregation:
    """How a function is computed in chunks: a row of the table at the end."""

    state_type: Callable[[Type], Type]
    """The type of states, from that of the elements."""
    of_chunk: Callable[[Reduction, Array, Shape, Selector], Array]
    """The states of a chunk; the arguments are a reduction and those of its `state`."""
    merge: Callable[[Reduction, Array], Array]
    """One state of the states along the last axis."""
    finish: Callable[[Array, int], Array] = lambda state, count: state
    """The outputs, from the states of all elements, and the number of elements of each output."""


def _rows(x: Array, axes: Shape) -> Array:
    """Moves the elements of each output to the last axis."""
    kept = [size for axis, size in enumerate(x.shape) if axis not in axes]
    return np.moveaxis(x, axes, range(-len(axes), 0)).reshape(*kept, math.prod(x.shape[axis] for axis in axes))


def _float32(chunk: Array) -> Array:
    """A chunk as float32, so that its result is one, too: as float16 it might overflow before chunks are merged."""
    return chunk.astype(np.float32, copy=False)


# ARGMAX, ARGMIN, MAX and MIN: a state is the winning element and its index in the whole array.

_GREATEST = (ReduceFunction.ARGMAX, ReduceFunction.MAX)


def _winners(reduction: Reduction, chunk: Array, begin: Shape, device: Selector) -> Array:
    direction = AxisDirection.DECREASING if reduction.last else AxisDirection.INCREASING
    kind = ArgmaxOperatorDesc if reduction.function in _GREATEST else ArgminOperatorDesc
    call = arg(kind, operand_of(chunk), reduction.axes, True, direction, DataType.INT64)
    index: Array = computed(call, {"x": chunk}, chunk, device=device)
    place = list(np.ogrid[tuple(slice(size) for size in index.shape)])
    state = np.zeros(index.shape, reduction.state_type)
    # np.unravel_index of NumPy 2.3.0 to 2.5.1 has a bug if more than 8,192 indices have a last dimension of 1.
    rest, step = index, 1
    for axis in reversed(reduction.axes):
        rest, place[axis] = np.divmod(rest, chunk.shape[axis])
        state["index"] += (place[axis] + begin[axis]) * step
        step *= reduction.shape[axis]
    state["value"] = chunk[tuple(place)]
    return state


def _best(reduction: Reduction, rows: Array) -> Array:
    best = rows[..., 0]
    for i in range(1, rows.shape[-1]):
        best = np.where(_beats(reduction, rows[..., i], best), rows[..., i], best)
    return best


def _beats(reduction: Reduction, a: Array, b: Array) -> Array:
    """Where a wins: NaN over all other elements, and of equal elements the first or the last."""
    x, y = a["value"], b["value"]
    x_is_nan, y_is_nan = x != x, y != y
    greater = x > y if reduction.function in _GREATEST else x < y
    before = a["index"] > b["index"] if reduction.last else a["index"] < b["index"]
    found: Array = (x_is_nan & ~y_is_nan) | greater | (((x == y) | (x_is_nan & y_is_nan)) & before)
    return found


def _selection(field: str) -> Aggregation:
    def state_type(dtype: Type) -> Type:
        return np.dtype([("value", dtype), ("index", np.int64)])

    return Aggregation(state_type, _winners, _best, lambda state, count: state[field])


# Sums, and products of integers: a state is that of a chunk. That of floats is rounded to float32, so the error may be
# larger than for the whole array, by 2^-23 of the sum of the absolute terms. Integers wrap.


def _joined(
    function: ReduceFunction,
    join: np.ufunc = np.add,
    finish: Callable[[Array, int], Array] = lambda state, count: state,
) -> Aggregation:
    def state_type(dtype: Type) -> Type:
        return np.dtype(np.float64) if dtype.kind == "f" else dtype

    def of_chunk(reduction: Reduction, chunk: Array, begin: Shape, device: Selector) -> Array:
        if reduction.element_type.kind == "f":
            values = _reduced(_float32(chunk), function, reduction.axes, device)
        else:
            values = _reduced(chunk, function, reduction.axes, device, converted=reduction.element_type)
        return values.astype(reduction.state_type)

    return Aggregation(state_type, of_chunk, lambda _, rows: join.reduce(rows, axis=-1, dtype=rows.dtype), finish)


# Exact sums: a state is the words of `ExactSumOperatorDesc`, or of squares, which add up to those of the whole.

_NAN, _INFINITY, _MINUS_INFINITY = 1, 2, 4


def _exact(function: ReduceFunction) -> Aggregation:
    of_squares = function in (ReduceFunction.L2, ReduceFunction.SUM_SQUARE)
    kind = ExactSquaresOperatorDesc if of_squares else ExactSumOperatorDesc
    count_of_words = len(kind.output_fields) - 1
    state_type: Type = np.dtype([("words", np.uint32, (count_of_words,)), ("specials", np.uint32)])

    def of_chunk(reduction: Reduction, chunk: Array, begin: Shape, device: Selector) -> Array:
        operand = operand_of(chunk := _float32(chunk))
        source = operand.tensor(f"{kind.__name__}.input_tensor", kind.types["input_tensor"])
        desc = kind.of(source, reduction.axes, absolute=function is ReduceFunction.L1)
        sizes = tuple([1 if axis in reduction.axes else size for axis, size in enumerate(chunk.shape)])
        call = Call(desc, sizes, (np.dtype(np.uint32),) * len(desc.outputs), fill=0 if 0 in sizes else None)
        *words, specials = computed(call, {"x": chunk}, chunk, device=device)
        states = np.empty(specials.shape, state_type)
        states["words"], states["specials"] = np.stack(words, -1), specials
        return states

    def finish(state: Array, count: int) -> Array:
        words = state["words"].reshape(-1, count_of_words)
        numbers = (
            roots(words)
            if function is ReduceFunction.L2
            else quotients(words, count if function is ReduceFunction.AVERAGE else 1, 298 if of_squares else 149)
        )
        both, specials = _INFINITY | _MINUS_INFINITY, state["specials"].ravel()
        numbers[specials & _INFINITY != 0] = np.inf
        numbers[specials & _MINUS_INFINITY != 0] = -np.inf
        numbers[(specials & _NAN != 0) | (specials & both == both)] = np.nan
        return numbers.reshape(state.shape)

    return Aggregation(lambda dtype: state_type, of_chunk, _added, finish)


def _added(reduction: Reduction, rows: Array) -> Array:
    states = np.empty(rows.shape[:-1], rows.dtype)
    carry = np.uint64(0)
    for i in range(rows["words"].shape[-1]):
        total = rows["words"][..., i].sum(-1, np.uint64) + carry
        states["words"][..., i], carry = total & np.uint64(0xFFFFFFFF), total >> np.uint64(32)
    states["specials"] = np.bitwise_or.reduce(rows["specials"], axis=-1)
    return states


# Products of floats: a state is a mantissa and an exponent, as a chunk's product may leave the range of floats.

_FACTOR: Type = np.dtype([("mantissa", np.float64), ("exponent", np.int64)])


def _products(reduction: Reduction, chunk: Array, begin: Shape, device: Selector) -> Array:
    # Mantissas are 0, or from 0.5 to 1: the product of 100 is in the range of float32.
    mantissas, exponents = np.frexp(_rows(_float32(chunk), reduction.axes))
    *kept, count = mantissas.shape
    factors = np.ones((*kept, -(-count // 100) * 100), np.float32)
    factors[..., :count] = mantissas
    products = _reduced(factors.reshape(-1, 100), ReduceFunction.MULTIPLY, (1,), device)
    rows = np.empty((*kept, factors.shape[-1] // 100), _FACTOR)
    rows["mantissa"] = products.reshape(rows.shape)
    rows["exponent"] = 0
    rows["exponent"][..., 0] = exponents.sum(-1, np.int64)
    sizes = [1 if axis in reduction.axes else size for axis, size in enumerate(chunk.shape)]
    return _multiplied(reduction, rows).reshape(sizes)


def _multiplied(reduction: Reduction, rows: Array) -> Array:
    mantissas, exponents = np.frexp(rows["mantissa"])
    exponents = exponents + rows["exponent"]
    # The product of 1,000 mantissas is in the range of float64.
    while mantissas.shape[-1] > 1:
        begins = np.arange(0, mantissas.shape[-1], 1000)
        mantissas, more = np.frexp(np.multiply.reduceat(mantissas, begins, axis=-1))
        exponents = np.add.reduceat(exponents, begins, axis=-1) + more
    product = np.empty(rows.shape[:-1], _FACTOR)
    product["mantissa"], product["exponent"] = mantissas[..., 0], exponents[..., 0]
    return product


def _number(state: Array, count: int) -> Array:
    # Beyond these exponents every result is 0 or infinite.
    found: Array = np.ldexp(state["mantissa"], state["exponent"].clip(-2000, 2000).astype(np.int32))
    return found


_F = ReduceFunction
_AGGREGATIONS: dict[ReduceFunction, Aggregation] = {
    _F.ARGMAX: _selection("index"),
    _F.ARGMIN: _selection("index"),
    _F.AVERAGE: _joined(_F.SUM, finish=lambda state, count: state / count),
    _F.L1: _joined(_F.L1),
    _F.L2: _joined(_F.SUM_SQUARE, finish=lambda state, count: np.sqrt(state)),
    _F.LOG_SUM: _joined(_F.SUM, finish=lambda state, count: np.log(state)),
    _F.LOG_SUM_EXP: _joined(_F.LOG_SUM_EXP, np.logaddexp),
    _F.MAX: _selection("value"),
    _F.MIN: _selection("value"),
    _F.MULTIPLY: Aggregation(lambda dtype: _FACTOR, _products, _multiplied, _number),
    _F.SUM: _joined(_F.SUM),
    _F.SUM_SQUARE: _joined(_F.SUM_SQUARE),
}
_EXACT = _AGGREGATIONS | {function: _exact(function) for function in (_F.AVERAGE, _F.L1, _F.L2, _F.SUM, _F.SUM_SQUARE)}
_OF_INTEGERS = _AGGREGATIONS | {_F.MULTIPLY: _joined(_F.MULTIPLY, np.multiply)}
