"""Reductions and poolings of arrays in chunks: what is computed from each chunk, and how the parts are combined.

    chunks       -- state -->   states   -- merged -->   one state   -- result -->   outputs        Reduction
    chunk of x   -- outputs -->  a block of the outputs                                             Pooling

A reduction computes a state from each chunk. States merge in any order and grouping, so any process can compute any
chunk. A pooling computes each block of its outputs from the part of x that the block's windows read.

Devices compute the chunks. NumPy merges their results, in float64 where that rounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dmlgpu import arguments, functions
from dmlgpu.descriptors.arrays import Array
from dmlgpu.descriptors.dtypes import DataType
from dmlgpu.descriptors.operator import OperatorDesc, TypeTable
from dmlgpu.descriptors.pooling import (
    WINDOW_FIELDS,
    AveragePooling1OperatorDesc,
    LpPooling1OperatorDesc,
    MaxPooling2OperatorDesc,
    PoolingOperatorDesc,
    window_extent,
)
from dmlgpu.descriptors.reduction import (
    REDUCE_TYPES,
    ArgmaxOperatorDesc,
    ArgOperatorDesc,
    AxisDirection,
    ReduceFunction,
    ReduceOperatorDesc,
)
from dmlgpu.descriptors.tensor import TensorDesc
from dmlgpu.errors import DescriptorError

if TYPE_CHECKING:
    from typing_extensions import Self

Shape = tuple[int, ...]
Type = np.dtype[Any]
# A part of an array: for every dimension a slice with a start and a stop.
Region = tuple[slice, ...]


@dataclass(frozen=True)
class Regions:
    """The regions of an array that is cut into parts of these sizes, in row-major order; smaller at the ends."""

    shape: Shape
    sizes: Shape

    @property
    def count(self) -> int:
        """The number of regions, which may exceed the limit of `len`."""
        return math.prod(-(-size // step) for size, step in zip(self.shape, self.sizes, strict=True))

    def __getitem__(self, i: int) -> Region:
        if i >= self.count:
            raise IndexError(i)
        region = []
        for size, step in zip(reversed(self.shape), reversed(self.sizes), strict=True):
            i, number = divmod(i, -(-size // step))
            region.append(slice(number * step, min((number + 1) * step, size)))
        return tuple(reversed(region))


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
            _check_counts(name, data_type, found.count, "reduced elements")
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
    return sizes, arguments.packed(sizes, _data_type(kind, dtype, types))


def _data_type(kind: type[OperatorDesc], dtype: Type, types: TypeTable) -> DataType:
    return DataType.of(dtype, f"{kind.__name__}.input_tensor.data_type", types["input_tensor"])


def _check_counts(name: str, data_type: DataType, count: int, what: str) -> None:
    """Raises a DescriptorError if a type cannot hold the indices of `count` elements."""
    if count - 1 > np.iinfo(data_type.numpy).max:
        raise DescriptorError(
            f"{name}: {data_type.name} cannot hold the index of {count} {what}; allowed are INT64 and UINT64"
        )


@dataclass(frozen=True)
class Dimension:
    """The windows along one spatial dimension."""

    size: int
    outputs: int
    # In the order of WINDOW_FIELDS.
    window_size: int
    stride: int
    start_padding: int
    end_padding: int
    dilation: int

    def computed(self, block: slice) -> slice:
        """The windows that are computed for a block.

        A last window that extends beyond the end padding does not fit alone: the one before it is computed, too.
        """
        hangs_over = self._places(block)[1] > self.size + self.end_padding
        return slice(min(block.start, block.stop - 2), block.stop) if hangs_over else block

    def source(self, block: slice) -> slice:
        """The part of the input that the computed windows of a block read."""
        begin, end = self._places(self.computed(block))
        return slice(max(begin, 0), min(end, self.size))

    def padding(self, block: slice) -> tuple[int, int]:
        """The paddings before and after `source`; a last window that extends beyond the end padding still does."""
        begin, end = self._places(self.computed(block))
        return max(-begin, 0), max(min(end, self.size + self.end_padding) - self.size, 0)

    def extent(self, outputs: int) -> int:
        """The most elements of the input that this number of windows read."""
        return min((outputs - 1) * self.stride + window_extent(self.window_size, self.dilation), self.size)

    def _places(self, block: slice) -> tuple[int, int]:
        begin = block.start * self.stride - self.start_padding
        last = (block.stop - 1) * self.stride - self.start_padding
        return begin, last + window_extent(self.window_size, self.dilation)


# The functions that compute blocks, by their descriptors.
_POOLINGS: dict[type[PoolingOperatorDesc], Any] = {
    MaxPooling2OperatorDesc: functions.max_pooling,
    AveragePooling1OperatorDesc: functions.average_pooling,
    LpPooling1OperatorDesc: functions.lp_pooling,
}


@dataclass(frozen=True)
class Pooling:
    """A pooling of a whole array. It can be pickled."""

    kind: type[PoolingOperatorDesc]
    shape: Shape
    """Of the array."""
    dimensions: tuple[Dimension, ...]
    """The spatial ones."""
    options: dict[str, Any]
    """Further arguments of the function."""
    dtypes: tuple[Type, ...]
    """Of the results: the values, and the indices where there are any."""

    @classmethod
    def of(
        cls,
        kind: type[PoolingOperatorDesc],
        shape: Shape,
        dtype: Type,
        window_size: Any,
        *,
        output_indices: Any = False,
        indices_data_type: Any = DataType.INT64,
        **given: Any,
    ) -> Self:
        """The pooling that the function of this descriptor computes of an array; the arguments are the function's.

        Raises:
            DescriptorError: an argument is not allowed.
        """
        options: dict[str, Any] = {name: given[name] for name in ("include_padding", "p") if name in given}
        data_type = _data_type(kind, dtype, kind.types)
        alone = arguments.pooled_dimensions(kind, shape, data_type, window_size, **given)
        dimensions = tuple(
            Dimension(
                desc.input_tensor.sizes[2 + i],
                desc.output_tensor.sizes[2 + i],
                *(getattr(desc, name)[i] for name in WINDOW_FIELDS),
            )
            for i, desc in enumerate(alone)
        )
        dtypes = [dtype.newbyteorder("=")]
        if kind is MaxPooling2OperatorDesc:
            one = arguments.packed((1, 1), data_type)
            call = arguments.max_pooling(
                (1, 1), one, (1, 1), output_indices=output_indices, indices_data_type=indices_data_type
            )
            for index_type in call.data_types[1:]:
                name = f"{kind.__name__}.output_indices_tensor.data_type"
                _check_counts(name, index_type, math.prod(shape), "elements")
                dtypes.append(index_type.numpy)
        return cls(kind, shape, dimensions, options, tuple(dtypes))

    @property
    def leading(self) -> int:
        """The number of dimensions before the spatial ones."""
        return len(self.shape) - len(self.dimensions)

    @property
    def output_shape(self) -> Shape:
        """The shape of each result."""
        return (*self.shape[: self.leading], *(dimension.outputs for dimension in self.dimensions))

    def source(self, block: Region) -> Region:
        """The part of the array that a block of outputs needs."""
        spatial = zip(self.dimensions, block[self.leading :], strict=True)
        return (*block[: self.leading], *(dimension.source(part) for dimension, part in spatial))

    def outputs(self, x: Array, block: Region, device: functions.Selector = None) -> tuple[Array, ...]:
        """A block of the outputs.

        Args:
            x: the part of the array that `source` returns.
            block: the region of the outputs.
            device: the device that computes it.
        """
        spatial = [*zip(self.dimensions, block[self.leading :], strict=True)]
        computed = [dimension.computed(part) for dimension, part in spatial]
        before, behind = zip(*(dimension.padding(part) for dimension, part in spatial), strict=True)
        further = {"output_indices": True} if len(self.dtypes) > 1 else {}
        results = _POOLINGS[self.kind](
            x,
            tuple(dimension.window_size for dimension in self.dimensions),
            strides=tuple(dimension.stride for dimension in self.dimensions),
            dilations=tuple(dimension.dilation for dimension in self.dimensions),
            start_padding=before,
            end_padding=behind,
            output_sizes=tuple(part.stop - part.start for part in computed),
            device=device,
            **self.options,
            **further,
        )
        wanted = (
            ...,
            *(slice(part.start - each.start, None) for each, (_, part) in zip(computed, spatial, strict=True)),
        )
        if not further:
            return (results[wanted],)
        values, indices = (result[wanted] for result in results)
        begin = tuple(part.start for part in self.source(block))
        return values, _numbered(indices, x.shape, begin, self.shape).astype(self.dtypes[1], copy=False)


def _numbered(indices: Array, sizes: Shape, begin: Shape, shape: Shape) -> Array:
    """Indices in the whole array, from indices in a part of it.

    Args:
        indices: indices in the part, of int64.
        sizes: the sizes of the part.
        begin: the coordinates of its first element in the whole array.
        shape: the shape of the whole array.
    """
    # Along the last dimensions that the part has whole, indices are the same in both.
    whole = len(shape)
    while whole > 1 and sizes[whole - 1] == shape[whole - 1]:
        whole -= 1
    step = math.prod(shape[whole:])
    rest, numbered = np.divmod(indices, step)
    for axis in reversed(range(whole)):
        rest, number = np.divmod(rest, sizes[axis])
        numbered += (number + begin[axis]) * step
        step *= shape[axis]
    return numbered
