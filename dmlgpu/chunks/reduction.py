"""Reductions over axes of arrays in chunks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dmlgpu import arguments, functions
from dmlgpu.chunks.regions import Shape, Type, check_counts, data_type_of
from dmlgpu.descriptors.arrays import Array
from dmlgpu.descriptors.operator import OperatorDesc, TypeTable
from dmlgpu.descriptors.reduction import (
    REDUCE_TYPES,
    ArgmaxOperatorDesc,
    ArgOperatorDesc,
    AxisDirection,
    ReduceFunction,
    ReduceOperatorDesc,
)
from dmlgpu.descriptors.tensor import TensorDesc

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class Selection:
    """ARGMAX, ARGMIN, MAX and MIN: a state is the winning element and its index in the whole array."""

    function: ReduceFunction
    last: bool
    """Whether of equal elements the last one wins."""
    dtype: Type

    @property
    def state_type(self) -> Type:
        return np.dtype([("value", self.dtype), ("index", np.int64)])

    def state(self, chunk: Array, axes: Shape, shape: Shape, begin: Shape, device: functions.Selector) -> Array:
        greatest = self.function in (ReduceFunction.ARGMAX, ReduceFunction.MAX)
        direction = AxisDirection.DECREASING if self.last else AxisDirection.INCREASING
        function = functions.argmax if greatest else functions.argmin
        index = function(chunk, axes=axes, axis_direction=direction, device=device)
        place = list(np.ogrid[tuple(slice(size) for size in index.shape)])
        state = np.zeros(index.shape, self.state_type)
        # np.unravel_index of NumPy 2.3.0 to 2.5.1 has a bug if more than 8,192 indices have a last dimension of 1.
        rest, step = index, 1
        for axis in reversed(axes):
            rest, place[axis] = np.divmod(rest, chunk.shape[axis])
            state["index"] += (place[axis] + begin[axis]) * step
            step *= shape[axis]
        state["value"] = chunk[tuple(place)]
        return state

    def merged(self, rows: Array) -> Array:
        best = rows[..., 0]
        for i in range(1, rows.shape[-1]):
            best = np.where(self._beats(rows[..., i], best), rows[..., i], best)
        return best

    def _beats(self, a: Array, b: Array) -> Array:
        """Where a wins: NaN over all other elements, and of equal elements the first or the last."""
        x, y = a["value"], b["value"]
        x_is_nan, y_is_nan = x != x, y != y
        greater = x > y if self.function in (ReduceFunction.ARGMAX, ReduceFunction.MAX) else x < y
        before = a["index"] > b["index"] if self.last else a["index"] < b["index"]
        found: Array = (x_is_nan & ~y_is_nan) | greater | (((x == y) | (x_is_nan & y_is_nan)) & before)
        return found

    def result(self, state: Array, count: int) -> Array:
        name = "index" if self.function in (ReduceFunction.ARGMAX, ReduceFunction.ARGMIN) else "value"
        found: Array = state[name]
        return found


@dataclass(frozen=True)
class Integer:
    """Sums and products of integers: a state is that of a chunk, modulo 2^32 or 2^64."""

    function: ReduceFunction
    dtype: Type

    @property
    def state_type(self) -> Type:
        return self.dtype

    def state(self, chunk: Array, axes: Shape, shape: Shape, begin: Shape, device: functions.Selector) -> Array:
        state: Array = functions.reduce(chunk, self.function, axes=axes, device=device)
        return state

    def merged(self, rows: Array) -> Array:
        join = np.multiply if self.function is ReduceFunction.MULTIPLY else np.add
        merged: Array = join.reduce(rows, axis=-1, dtype=self.dtype)
        return merged

    def result(self, state: Array, count: int) -> Array:
        return state


def _float32(chunk: Array) -> Array:
    """A chunk as float32, so that its result is one, too: as float16 it might overflow before chunks are merged."""
    return chunk.astype(np.float32, copy=False)


@dataclass(frozen=True)
class Sum:
    """Sums of floats and functions of a sum: a state is the sum of a chunk, rounded to float32.

    So the error may be larger than for the whole array, by 2^-23 of the sum of the absolute terms.
    """

    function: ReduceFunction

    state_type: ClassVar[Type] = np.dtype(np.float64)
    # The sum that each function of a sum needs.
    _SUMS: ClassVar[dict[ReduceFunction, ReduceFunction]] = {
        ReduceFunction.AVERAGE: ReduceFunction.SUM,
        ReduceFunction.LOG_SUM: ReduceFunction.SUM,
        ReduceFunction.L2: ReduceFunction.SUM_SQUARE,
    }

    def state(self, chunk: Array, axes: Shape, shape: Shape, begin: Shape, device: functions.Selector) -> Array:
        function = self._SUMS.get(self.function, self.function)
        state: Array = functions.reduce(_float32(chunk), function, axes=axes, device=device)
        return state.astype(np.float64)

    def merged(self, rows: Array) -> Array:
        join = np.logaddexp if self.function is ReduceFunction.LOG_SUM_EXP else np.add
        merged: Array = join.reduce(rows, axis=-1)
        return merged

    def result(self, state: Array, count: int) -> Array:
        match self.function:
            case ReduceFunction.AVERAGE:
                return state / count
            case ReduceFunction.LOG_SUM:
                return np.log(state)
            case ReduceFunction.L2:
                return np.sqrt(state)
        return state


@dataclass(frozen=True)
class Product:
    """Products of floats: a state is a mantissa and an exponent, as a chunk's product may leave the range of floats."""

    state_type: ClassVar[Type] = np.dtype([("mantissa", np.float64), ("exponent", np.int64)])

    def state(self, chunk: Array, axes: Shape, shape: Shape, begin: Shape, device: functions.Selector) -> Array:
        # Mantissas are 0, or from 0.5 to 1: the product of 100 is in the range of float32.
        mantissas, exponents = np.frexp(_rows(_float32(chunk), axes))
        *kept, count = mantissas.shape
        factors = np.ones((*kept, -(-count // 100) * 100), np.float32)
        factors[..., :count] = mantissas
        products = functions.reduce(factors.reshape(-1, 100), ReduceFunction.MULTIPLY, 1, device=device)
        rows = np.empty((*kept, factors.shape[-1] // 100), self.state_type)
        rows["mantissa"] = products.reshape(rows.shape)
        rows["exponent"] = 0
        rows["exponent"][..., 0] = exponents.sum(-1, np.int64)
        sizes = [1 if axis in axes else size for axis, size in enumerate(chunk.shape)]
        return self.merged(rows).reshape(sizes)

    def merged(self, rows: Array) -> Array:
        mantissas, exponents = np.frexp(rows["mantissa"])
        exponents = exponents + rows["exponent"]
        # The product of 1,000 mantissas is in the range of float64.
        while mantissas.shape[-1] > 1:
            begins = np.arange(0, mantissas.shape[-1], 1000)
            mantissas, more = np.frexp(np.multiply.reduceat(mantissas, begins, axis=-1))
            exponents = np.add.reduceat(exponents, begins, axis=-1) + more
        merged = np.empty(rows.shape[:-1], self.state_type)
        merged["mantissa"], merged["exponent"] = mantissas[..., 0], exponents[..., 0]
        return merged

    def result(self, state: Array, count: int) -> Array:
        # Beyond these exponents every result is 0 or infinite.
        result: Array = np.ldexp(state["mantissa"], state["exponent"].clip(-2000, 2000).astype(np.int32))
        return result


Accumulator = Selection | Integer | Sum | Product


def _rows(x: Array, axes: Shape) -> Array:
    """Moves the elements of each output to the last axis."""
    kept = [size for axis, size in enumerate(x.shape) if axis not in axes]
    return np.moveaxis(x, axes, range(-len(axes), 0)).reshape(*kept, math.prod(x.shape[axis] for axis in axes))


@dataclass(frozen=True)
class Reduction:
    """A reduction over axes of a whole array. It can be pickled."""

    shape: Shape
    """Of the array; (1,) for a 0-D array."""
    axes: Shape
    keepdims: bool
    dtype: Type
    """Of the results."""
    accumulator: Accumulator

    @classmethod
    def of_arg(cls, kind: type[ArgOperatorDesc], shape: Shape, dtype: Type, *given: Any, **options: Any) -> Self:
        """The reduction that `argmax` or `argmin` computes of an array of this shape and type.

        The other arguments are those of the function.

        Raises:
            DescriptorError: an argument is not allowed.
        """
        call = arguments.arg(kind, *_described(kind, shape, dtype, kind.types), *given, **options)
        desc = call.desc
        assert isinstance(desc, ArgOperatorDesc)
        function = ReduceFunction.ARGMAX if kind is ArgmaxOperatorDesc else ReduceFunction.ARGMIN
        return cls._of(call, desc.axes, shape, dtype, function, desc.axis_direction is AxisDirection.DECREASING)

    @classmethod
    def of_reduce(cls, shape: Shape, dtype: Type, function: Any, *given: Any, **options: Any) -> Self:
        """The reduction that `reduce` computes; otherwise as `of_arg`."""
        types = REDUCE_TYPES.get(ReduceFunction.member(function), ReduceOperatorDesc.types)
        source = _described(ReduceOperatorDesc, shape, dtype, types)
        call = arguments.reduce(*source, function, *given, **options)
        desc = call.desc
        assert isinstance(desc, ReduceOperatorDesc)
        return cls._of(call, desc.axes, shape, dtype, desc.function, False)

    @classmethod
    def _of(
        cls, call: arguments.Call, axes: Shape, shape: Shape, dtype: Type, function: ReduceFunction, last: bool
    ) -> Self:
        dtype = dtype.newbyteorder("=")
        data_type = call.data_types[0]
        # Selected values keep the array's type. It may be bool, which descriptors do not have.
        result_type = dtype if function in (ReduceFunction.MAX, ReduceFunction.MIN) else data_type.numpy
        keepdims = len(call.shape) == len(shape or (1,))
        found = cls(shape or (1,), axes, keepdims, result_type, _accumulator(function, dtype, last))
        if function in (ReduceFunction.ARGMAX, ReduceFunction.ARGMIN):
            name = f"{type(call.desc).__name__}.output_tensor.data_type"
            check_counts(name, data_type, found.count, "reduced elements")
        return found

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
    def state_type(self) -> Type:
        """The type of states."""
        return self.accumulator.state_type

    def state(self, chunk: Array, begin: Shape, device: functions.Selector = None) -> Array:
        """The states of a chunk: an array with size 1 on every reduced axis.

        Args:
            chunk: a part of the array; no size on a reduced axis is 0.
            begin: the coordinates of its first element in the whole array.
            device: the device that computes it.
        """
        return self.accumulator.state(chunk, self.axes, self.shape, begin, device)

    def merged(self, states: Array) -> Array:
        """Merges the states of chunks that are side by side along the reduced axes: these get size 1."""
        sizes = [1 if axis in self.axes else size for axis, size in enumerate(states.shape)]
        with np.errstate(all="ignore"):
            return self.accumulator.merged(_rows(states, self.axes)).reshape(sizes)

    def result(self, state: Array) -> Array:
        """The outputs, from the merged states of all chunks."""
        with np.errstate(all="ignore"):
            result = self.accumulator.result(state, self.count).astype(self.dtype)
        return result.reshape(self.reduced(state.shape))


def _accumulator(function: ReduceFunction, dtype: Type, last: bool) -> Accumulator:
    match function:
        case ReduceFunction.ARGMAX | ReduceFunction.ARGMIN | ReduceFunction.MAX | ReduceFunction.MIN:
            return Selection(function, last, dtype)
        case _ if dtype.kind != "f":
            return Integer(function, dtype)
        case ReduceFunction.MULTIPLY:
            return Product()
    return Sum(function)


def _described(kind: type[OperatorDesc], shape: Shape, dtype: Type, types: TypeTable) -> tuple[Shape, TensorDesc]:
    """The shape and tensor with which descriptors check a call.

    All sizes are 1, unless one is 0: the array may have more elements than a tensor.
    """
    sizes = shape if 0 in shape else (1,) * len(shape)
    return sizes, arguments.packed(sizes, data_type_of(kind, dtype, types))
