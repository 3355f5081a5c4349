"""Reductions over axes of arrays in chunks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from dmlgpu.call import Call, Operand, Shape, Type, arg, reduced, top_k
from dmlgpu.chunks.rounding import added, quotients, roots, sums
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
from dmlgpu.descriptors.tensor import Array
from dmlgpu.descriptors.top_k import TopK1OperatorDesc
from dmlgpu.runtime.device import Selector, open_device
from dmlgpu.sources import computed, operand_of


@dataclass(frozen=True)
class Reduction:
    """A reduction over axes of a whole array. It can be pickled."""

    shape: Shape
    """The shape of the array; (1,) for a 0-D array."""
    axes: Shape
    keepdims: bool
    dtypes: tuple[Type, ...]
    """The types of the results: of one, or of values and their indices."""
    element_type: Type
    """The type that elements are converted to."""
    function: ReduceFunction
    last: bool
    """Whether the last of equal elements is selected."""
    exact: bool = False
    """Whether sums of floats are rounded once."""
    k: int = 0
    """Number of elements along the axis that TOP_K selects, by MAX or MIN; 0: another reduction."""

    @classmethod
    def of(cls, call: Call, operand: Operand) -> Self:
        """The reduction of a call on an array."""
        desc = call.desc
        axes: Shape
        last, k = False, 0
        if isinstance(desc, TopK1OperatorDesc):
            greatest = desc.axis_direction is AxisDirection.DECREASING
            function, axes, k = ReduceFunction.MAX if greatest else ReduceFunction.MIN, (desc.axis,), desc.k
        elif isinstance(desc, ArgOperatorDesc):
            function = ReduceFunction.ARGMAX if isinstance(desc, ArgmaxOperatorDesc) else ReduceFunction.ARGMIN
            axes, last = desc.axes, desc.axis_direction is AxisDirection.DECREASING
        else:
            assert isinstance(desc, (ReduceOperatorDesc, ExtremumOperatorDesc))
            function, axes = desc.function, desc.axes
        shape = operand.shape or (1,)
        element_type = (call.converted or operand.dtype).newbyteorder("=")
        exact = ExecutionFlags.EXACT_SUMS in call.flags and element_type.kind == "f" and function in _EXACT
        keepdims = len(call.shape) == len(shape)
        return cls(shape, axes, keepdims, call.dtypes, element_type, function, last, exact, k)

    @property
    def count(self) -> int:
        """The number of elements that an output reduces."""
        return math.prod(self.shape[axis] for axis in self.axes)

    @property
    def sizes(self) -> Shape:
        """The sizes of the outputs, with 1 on every reduced axis, or k."""
        return self._outputs_of(self.shape)

    def _outputs_of(self, shape: Shape) -> Shape:
        """The sizes of the outputs of an array of this shape."""
        return tuple((self.k or 1) if axis in self.axes else size for axis, size in enumerate(shape))

    def reduced(self, entries: tuple[Any, ...]) -> tuple[Any, ...]:
        """The entries for the dimensions of the results, from an entry for each dimension of x."""
        if self.keepdims:
            return entries
        return tuple(entry for axis, entry in enumerate(entries) if axis not in self.axes)

    @property
    def _aggregation(self) -> Aggregation:
        """How chunks are reduced and merged."""
        if self.k:
            return _TOP_K
        table = _OF_INTEGERS if self.element_type.kind != "f" else _EXACT if self.exact else _AGGREGATIONS
        return table[self.function]

    @property
    def partial_type(self) -> Type:
        """The type of partials."""
        return self._aggregation.partial_type(self.element_type)

    def partial(self, chunk: Array, begin: Shape, device: Selector = None) -> Array:
        """The partials of a chunk: an array with size 1 on every reduced axis.

        The first of these axes is longer for exact sums, which have several terms, and for TOP_K, which has k elements.

        Args:
            chunk: a part of the array; no size on a reduced axis is 0.
            begin: the coordinates of the chunk's first element in the whole array.
            device: the device that computes the partials.
        """
        with np.errstate(all="ignore"):
            return self._aggregation.of_chunk(self, self._as_floats(chunk), begin, device)

    def _as_floats(self, chunk: Array) -> Array:
        """The chunk with elements of `element_type` if that is a float; integers are converted in the reduction."""
        is_other = self.element_type.kind == "f" and chunk.dtype.newbyteorder("=") != self.element_type
        return chunk.astype(self.element_type) if is_other else chunk

    def outputs(self, chunk: Array, begin: Shape, device: Selector = None) -> tuple[Array, ...]:
        """The outputs of a chunk that contains all elements of these outputs; arguments as for `partial`."""
        if not self.exact or self.count <= _FEW_OF_WHOLE:
            return self.results(self.partial(chunk, begin, device))
        outputs = _reduced(self._as_floats(chunk), self.function, self.axes, device, exact=True)
        return (outputs.reshape(self.reduced(outputs.shape)),)

    def merged(self, partials: Array) -> Array:
        """The partials of several chunks, from partials that are concatenated along a reduced axis."""
        with np.errstate(all="ignore"):
            return along(self._aggregation.merge(self, rows_of(partials, self.axes)), partials.shape, self.axes)

    def results(self, partial: Array) -> tuple[Array, ...]:
        """The outputs, as one array for each result, from the merged partials of all chunks."""
        rows = rows_of(partial, self.axes)
        sizes = self.reduced(self._outputs_of(partial.shape))
        with np.errstate(all="ignore"):
            values = (
                [rows["value"], rows["index"]] if len(self.dtypes) > 1 else [self._aggregation.finish(rows, self.count)]
            )
            columns = [y.astype(dtype).reshape(self.k or 1, -1) for y, dtype in zip(values, self.dtypes, strict=True)]
            return tuple([along(y, partial.shape, self.axes).reshape(sizes) for y in columns])


def _reduced(
    x: Array, function: ReduceFunction, axes: Shape, device: Selector, *, exact: bool = False, converted: Any = None
) -> Array:
    """A function of the elements along axes, which stay with size 1."""
    call = reduced(operand_of(x), function, axes, True, exact=exact, converted=converted)
    values: Array = computed(call, x, device=device)
    return values


@dataclass(frozen=True)
class Aggregation:
    """How chunks are reduced and merged: a row of the tables at the end."""

    partial_type: Callable[[Type], Type]
    """The type of partials, from that of the elements."""
    of_chunk: Callable[[Reduction, Array, Shape, Selector], Array]
    """The partials of a chunk; arguments: a reduction, and those of `Reduction.partial`."""
    merge: Callable[[Reduction, Array], Array]
    """The partial result of each column of partials; several terms for exact sums, several elements for TOP_K."""
    finish: Callable[[Array, int], Array] = lambda partial, count: partial
    """The outputs, from the merged partials of all chunks, and the number of elements of an output."""


def rows_of(x: Array, axes: Shape) -> Array:
    """The elements of x in rows and columns, with a column for each output over `axes`."""
    x = np.moveaxis(x, axes, range(len(axes)))
    return x.reshape(math.prod(x.shape[: len(axes)]), math.prod(x.shape[len(axes) :]))


def along(columns: Array, shape: Shape, axes: Shape) -> Array:
    """The inverse of `rows_of`: columns along the first of `axes` of an array of this shape; the others have size 1."""
    kept = [1 if axis in axes else size for axis, size in enumerate(shape) if axis != axes[0]]
    moved: Array = np.moveaxis(columns.reshape(len(columns), *kept), 0, axes[0])
    return moved


def _float32(chunk: Array) -> Array:
    """A chunk in float32, so that its result is in float32: a float16 might overflow before chunks are merged."""
    return chunk.astype(np.float32, copy=False)


# ARGMAX, ARGMIN, MAX and MIN: a partial result is the selected element and its index in the whole array.

_GREATEST = (ReduceFunction.ARGMAX, ReduceFunction.MAX)


def _selections_of_chunk(reduction: Reduction, chunk: Array, begin: Shape, device: Selector) -> Array:
    direction = AxisDirection.DECREASING if reduction.last else AxisDirection.INCREASING
    kind = ArgmaxOperatorDesc if reduction.function in _GREATEST else ArgminOperatorDesc
    call = arg(kind, operand_of(chunk), reduction.axes, True, direction, DataType.INT64)
    index: Array = computed(call, chunk, device=device)
    coordinates = list(np.ogrid[tuple(slice(size) for size in index.shape)])
    partial = np.zeros(index.shape, reduction.partial_type)
    # np.unravel_index of NumPy 2.3.0 to 2.5.1 has a bug if more than 8,192 indices have a last dimension of 1.
    quotient, step = index, 1
    for axis in reversed(reduction.axes):
        quotient, coordinates[axis] = np.divmod(quotient, chunk.shape[axis])
        partial["index"] += (coordinates[axis] + begin[axis]) * step
        step *= reduction.shape[axis]
    partial["value"] = chunk[tuple(coordinates)]
    return partial


def _merged_selections(reduction: Reduction, rows: Array) -> Array:
    best = rows[:1]
    for i in range(1, len(rows)):
        row = rows[i : i + 1]
        best = np.where(_beats(reduction, row, best), row, best)
    return best


def _beats(reduction: Reduction, a: Array, b: Array) -> Array:
    """Where a is selected, not b: NaN before all other elements, the first or the last of equal elements."""
    x, y = a["value"], b["value"]
    x_is_nan, y_is_nan = x != x, y != y
    greater = x > y if reduction.function in _GREATEST else x < y
    before = a["index"] > b["index"] if reduction.last else a["index"] < b["index"]
    beats: Array = (x_is_nan & ~y_is_nan) | greater | (((x == y) | (x_is_nan & y_is_nan)) & before)
    return beats


def _selection(field: str) -> Aggregation:
    """The aggregation whose outputs are this field of partials."""

    def partial_type(dtype: Type) -> Type:
        return np.dtype([("value", dtype), ("index", np.int64)])

    return Aggregation(partial_type, _selections_of_chunk, _merged_selections, lambda partial, count: partial[field])


# TOP_K: a partial result is the first k elements of a chunk, in order, with their indices in the whole array.


def _first_of_chunk(reduction: Reduction, chunk: Array, begin: Shape, device: Selector) -> Array:
    (axis,) = reduction.axes
    k, largest = min(reduction.k, chunk.shape[axis]), reduction.function in _GREATEST
    call = top_k(operand_of(chunk), k, axis, largest, None, True, DataType.INT64)
    values, indices = computed(call, chunk, device=device)
    partial = np.empty(values.shape, reduction.partial_type)
    partial["value"], partial["index"] = values, indices + begin[axis]
    return partial


def _first_of_all(reduction: Reduction, rows: Array) -> Array:
    # np.lexsort follows all rules for the least elements: NaN last, -0 equal to +0. The greatest are in reverse order.
    sign = -1 if reduction.function in _GREATEST else 1
    order = np.lexsort((sign * rows["index"], rows["value"]), axis=0)[::sign]
    first: Array = np.take_along_axis(rows, order[: reduction.k], 0)
    return first


# Sums, and products of integers: a partial result is the result of a chunk. Floats are rounded to float32, so the error
# may be larger than for the whole array, by 2^-23 of the sum of the absolute terms. Integers wrap.


def _joined(
    function: ReduceFunction,
    join: np.ufunc = np.add,
    finish: Callable[[Array, int], Array] = lambda partial, count: partial,
) -> Aggregation:
    """The aggregation whose partials are results of `function`, which `join` merges."""

    def partial_type(dtype: Type) -> Type:
        return np.dtype(np.float64) if dtype.kind == "f" else dtype

    def of_chunk(reduction: Reduction, chunk: Array, begin: Shape, device: Selector) -> Array:
        if reduction.element_type.kind == "f":
            values = _reduced(_float32(chunk), function, reduction.axes, device)
        else:
            values = _reduced(chunk, function, reduction.axes, device, converted=reduction.element_type)
        return values.astype(reduction.partial_type)

    def merge(reduction: Reduction, rows: Array) -> Array:
        merged: Array = join.reduce(rows, axis=0, dtype=rows.dtype, keepdims=True)
        return merged

    return Aggregation(partial_type, of_chunk, merge, finish)


# Exact sums: a partial result is the terms of a sum (rounding.py), along the first reduced axis.

# NumPy adds up to so many elements per output, or per chunk, as fast as a device computes the words of their sum.
_FEW_OF_OUTPUT, _FEW_OF_CHUNK = 160, 1 << 20
# NumPy adds up to so many elements of a whole output as fast as a device rounds their sum.
_FEW_OF_WHOLE = 8


def _exact(function: ReduceFunction) -> Aggregation:
    of_squares = function in (ReduceFunction.L2, ReduceFunction.SUM_SQUARE)
    kind = ExactSquaresOperatorDesc if of_squares else ExactSumOperatorDesc

    def of_chunk(reduction: Reduction, chunk: Array, begin: Shape, device: Selector) -> Array:
        count = math.prod(chunk.shape[axis] for axis in reduction.axes)
        if count <= _FEW_OF_OUTPUT or chunk.size <= _FEW_OF_CHUNK:
            open_device(device)  # raises if there is no such device
            rows = rows_of(chunk, reduction.axes)
            terms = added(np.abs(rows) if function is ReduceFunction.L1 else rows, 2 if of_squares else 1)
        else:
            terms = added(words_of(chunk, reduction.axes, device))
        return along(terms, chunk.shape, reduction.axes)

    def words_of(chunk: Array, axes: Shape, device: Selector) -> Array:
        operand = operand_of(chunk := _float32(chunk))
        source = operand.tensor(f"{kind.__name__}.input_tensor", kind.types["input_tensor"])
        desc = kind.of(source, axes, absolute=function is ReduceFunction.L1)
        sizes = desc.output_tensor.sizes
        call = Call(desc, sizes, (np.dtype(np.uint32),) * len(desc.outputs), fill=0 if 0 in sizes else None)
        *words, specials = [word.ravel() for word in computed(call, chunk, device=device)]
        words[-1] = words[-1].view(np.int32)
        least = -298 if of_squares else -149
        return np.array([_SPECIALS[specials], *(np.ldexp(word, least + 32 * i) for i, word in enumerate(words))])

    def finish(terms: Array, count: int) -> Array:
        if function is ReduceFunction.L2:
            return roots(terms)
        return quotients(terms, count) if function is ReduceFunction.AVERAGE else sums(terms)

    return Aggregation(lambda dtype: np.dtype(np.float64), of_chunk, lambda _, rows: added(rows), finish)


# Sums of infinities and NaN, by the bits that a device returns: bit 0 for NaN, bit 1 for infinity, bit 2 for -infinity.
_SPECIALS = np.array([0, np.nan, np.inf, np.nan, -np.inf, np.nan, np.nan, np.nan])


# Products of floats: a partial result is a mantissa and an exponent, because products may exceed the range of floats.

_FACTOR: Type = np.dtype([("mantissa", np.float64), ("exponent", np.int64)])


def _products(reduction: Reduction, chunk: Array, begin: Shape, device: Selector) -> Array:
    # Mantissas are 0, or from 0.5 to 1: the product of 100 is in the range of float32.
    mantissas, exponents = np.frexp(rows_of(_float32(chunk), reduction.axes))
    count, outputs = mantissas.shape
    factors = np.ones((outputs, -(-count // 100) * 100), np.float32)
    factors[:, :count] = mantissas.T
    products = _reduced(factors.reshape(-1, 100), ReduceFunction.MULTIPLY, (1,), device)
    rows = np.zeros((factors.shape[1] // 100, outputs), _FACTOR)
    rows["mantissa"] = products.reshape(rows.shape[::-1]).T
    rows["exponent"][0] = exponents.sum(0, np.int64)
    return along(_multiplied(reduction, rows), chunk.shape, reduction.axes)


def _multiplied(reduction: Reduction, rows: Array) -> Array:
    mantissas, exponents = np.frexp(rows["mantissa"])
    exponents = exponents + rows["exponent"]
    # The product of 1,000 mantissas is in the range of float64.
    while len(mantissas) > 1:
        begins = np.arange(0, len(mantissas), 1000)
        mantissas, more = np.frexp(np.multiply.reduceat(mantissas, begins))
        exponents = np.add.reduceat(exponents, begins) + more
    product = np.empty(mantissas.shape, _FACTOR)
    product["mantissa"], product["exponent"] = mantissas, exponents
    return product


def _number(partial: Array, count: int) -> Array:
    # With an exponent beyond 2000 or -2000 every result is infinite or 0.
    number: Array = np.ldexp(partial["mantissa"], partial["exponent"].clip(-2000, 2000).astype(np.int32))
    return number


_F = ReduceFunction
_AGGREGATIONS: dict[ReduceFunction, Aggregation] = {
    _F.ARGMAX: _selection("index"),
    _F.ARGMIN: _selection("index"),
    _F.AVERAGE: _joined(_F.SUM, finish=lambda partial, count: partial / count),
    _F.L1: _joined(_F.L1),
    _F.L2: _joined(_F.SUM_SQUARE, finish=lambda partial, count: np.sqrt(partial)),
    _F.LOG_SUM: _joined(_F.SUM, finish=lambda partial, count: np.log(partial)),
    _F.LOG_SUM_EXP: _joined(_F.LOG_SUM_EXP, np.logaddexp),
    _F.MAX: _selection("value"),
    _F.MIN: _selection("value"),
    _F.MULTIPLY: Aggregation(lambda dtype: _FACTOR, _products, _multiplied, _number),
    _F.SUM: _joined(_F.SUM),
    _F.SUM_SQUARE: _joined(_F.SUM_SQUARE),
}
_EXACT = {function: _exact(function) for function in (_F.AVERAGE, _F.L1, _F.L2, _F.SUM, _F.SUM_SQUARE)}
_TOP_K = replace(_selection("value"), of_chunk=_first_of_chunk, merge=_first_of_all)
_OF_INTEGERS = _AGGREGATIONS | {_F.MULTIPLY: _joined(_F.MULTIPLY, np.multiply)}
