"""The registry of operators: the name, the descriptor, the function and the test samples of each.

The cases, the command line, the benchmarks, and the tests of random descriptors, of hashes and of the README's table
iterate over these rows. A new operator needs a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from dmlgpu.descriptors.cumulative import CumulativeProductOperatorDesc, CumulativeSummationOperatorDesc
from dmlgpu.descriptors.dtypes import DataType
from dmlgpu.descriptors.operator import OperatorDesc, TypeTable
from dmlgpu.descriptors.pooling import (
    WINDOW_FIELDS,
    AveragePooling1OperatorDesc,
    AveragePoolingGradOperatorDesc,
    AveragePoolingOperatorDesc,
    LpPooling1OperatorDesc,
    LpPoolingOperatorDesc,
    MaxPooling1OperatorDesc,
    MaxPooling2OperatorDesc,
    MaxPoolingGradOperatorDesc,
    MaxPoolingOperatorDesc,
    MaxUnpoolingOperatorDesc,
    QuantizedLinearAveragePoolingOperatorDesc,
)
from dmlgpu.descriptors.reduction import (
    ARG_TYPES,
    INDEX_TYPES,
    REDUCE_TYPES,
    ArgmaxOperatorDesc,
    ArgminOperatorDesc,
    AxisDirection,
    ReduceFunction,
    ReduceOperatorDesc,
)
from dmlgpu.descriptors.roi_pooling import RoiPoolingOperatorDesc
from dmlgpu.descriptors.tensor import Array, TensorDesc, bits, packed_strides
from dmlgpu.descriptors.top_k import TopK1OperatorDesc, TopKOperatorDesc
from dmlgpu.functions import (
    argmax,
    argmin,
    average_pooling,
    average_pooling_grad,
    cumulative_prod,
    cumulative_sum,
    lp_pooling,
    max_pooling,
    max_pooling_grad,
    max_unpooling,
    quantized_average_pooling,
    reduce,
    roi_pooling,
    top_k,
)

Ints = tuple[int, ...]
# A function of sizes that returns strides; None: packed.
Layout = Callable[[Ints], Ints | None]


def _packed(sizes: Ints) -> Ints | None:
    return None


def _spaced(sizes: Ints) -> Ints:
    """Strides with gaps after every row and plane."""
    return packed_strides([size + 1 for size in sizes])


def _reversed(sizes: Ints) -> Ints:
    """Strides with the first dimension innermost."""
    return packed_strides(sizes[::-1])[::-1]


def _broadcast(sizes: Ints) -> Ints:
    """Packed strides, but 0 along the first dimension, so that all its entries share memory."""
    return (0, *packed_strides(sizes)[1:])


@dataclass(frozen=True)
class Sample:
    """Sizes, arguments and layouts of a test, which runs with every type, for the operators of a family."""

    sizes: Ints
    """Sizes of the first input."""
    arguments: Mapping[str, Any]
    """Arguments of the descriptors' `of`, without the input."""
    source: Layout = _packed
    """Layout of the first input."""
    target: Layout = _packed
    """Layout of every output."""


@dataclass(frozen=True)
class Operator:
    """A row of the registry."""

    name: str
    """DirectML's name; for REDUCE with the function, because every function has a row."""
    desc: type[OperatorDesc]
    function: Callable[..., Any] | None
    """The public function that computes the operator; None: there is none."""
    samples: tuple[Sample, ...]
    options: Mapping[str, tuple[Any, ...]]
    """Values of further arguments of the descriptor's `of`; every sample is tested with all combinations of them."""

    @property
    def types(self) -> TypeTable:
        """The types that the operator's tensors may have."""
        return REDUCE_TYPES[self.options["function"][0]] if "function" in self.options else self.desc.types

    @property
    def source_field(self) -> str:
        """The field of the first input."""
        return next(iter(self.types))

    @property
    def data_types(self) -> tuple[DataType, ...]:
        """The types that the first input may have."""
        return self.types[self.source_field]

    @property
    def fields(self) -> frozenset[str]:
        """The fields of the descriptor: a reduction has `axes`, a pooling `window_size` or `pooled_size`."""
        return frozenset(self.desc.__dataclass_fields__)  # type: ignore[attr-defined]

    def describes(self, desc: OperatorDesc) -> bool:
        """Whether a descriptor is of this operator."""
        fields = vars(desc)
        fits = (fields[name] in values for name, values in self.options.items() if name in fields)
        return type(desc) is self.desc and all(fits)

    def of(self, source: TensorDesc, **arguments: Any) -> OperatorDesc:
        """The operator on a tensor, with packed outputs.

        Args:
            source: the first input.
            arguments: arguments of the descriptor's `of`. Fields and options of other operators of the family are
                ignored. A missing option has its first value.

        Raises:
            DescriptorError: a field breaks a rule; the message names the field.
        """
        names = {*self.fields, *self.options, "output_sizes", "roi_count"}
        values = {name: allowed[0] for name, allowed in self.options.items()} | arguments
        fields = {self.source_field: source} | {name: value for name, value in values.items() if name in names}
        desc: OperatorDesc = self.desc.of(**fields)  # type: ignore[attr-defined]
        return desc

    def on(self, sample: Sample, data_type: DataType, **options: Any) -> OperatorDesc:
        """The operator on a sample with elements of a type; `options`: further arguments of `of`."""
        source = TensorDesc(data_type, sample.sizes, sample.source(sample.sizes))
        desc = self.of(source, **{**sample.arguments, **options})
        return with_outputs(desc, lambda target: replace(target, strides=sample.target(target.sizes)))

    def descs(self) -> Iterator[OperatorDesc]:
        """The operator on every sample, with every type and all combinations of options."""
        for data_type, sample in product(self.data_types, self.samples):
            for values in product(*self.options.values()):
                yield self.on(sample, data_type, **dict(zip(self.options, values, strict=True)))


def name_of(desc: OperatorDesc) -> str:
    """The name of a descriptor's operator; if the operator has no row, that of the descriptor's class."""
    names = (operator.name for operator in OPERATORS if operator.describes(desc))
    return next(names, type(desc).__name__.removesuffix("OperatorDesc").upper())


def inputs_of(desc: OperatorDesc, fill: Callable[[TensorDesc], Array]) -> tuple[Array, ...]:
    """An array for every input of an operator.

    Args:
        desc: the operator.
        fill: returns an array of any elements for a tensor. Then most indices are replaced by indices of elements of
            the output, or of the windows, most scales by numbers near 1, and most regions by regions that overlap the
            input.
    """
    arrays = [fill(tensor) for tensor in desc.inputs]
    for i, field in enumerate(desc.input_fields):
        if isinstance(desc, RoiPoolingOperatorDesc) and field == "roi_tensor":
            # Leave elements that share memory equal.
            arrays[i] = arrays[i] if desc.roi_tensor.overlaps else _regions(desc, arrays[i])
        elif "indices" in field:
            count = desc.outputs[0].element_count
            if isinstance(desc, MaxPoolingGradOperatorDesc):
                arrays[i] = np.where(arrays[i] % 8 == 0, arrays[i], _in_windows(desc, arrays[i]))
            else:
                arrays[i] = arrays[i] % np.array(count + count // 8 + 1, arrays[i].dtype)
        if "scale" in field:
            words = arrays[i].view(np.uint32)
            near = words & 0x807FFFFF | (124 + (words >> 23) % 8) << 23
            arrays[i] = np.where(words % 8 == 0, words, near).view(np.float32)
    return tuple(arrays)


def _in_windows(desc: MaxPoolingGradOperatorDesc, numbers: Array) -> Array:
    """The index of an element of each window, chosen by a number; in place of padding, that of the nearest element."""
    coordinates, dtype = [*np.indices(numbers.shape)], numbers.dtype
    for d, window in enumerate(desc.windows, 2):
        numbers, k = np.divmod(numbers, np.array(window.window_size, dtype))
        begin = coordinates[d] * window.stride - window.start_padding
        coordinates[d] = begin + k.astype(np.int64) * window.dilation
    indices: Array = np.ravel_multi_index(coordinates, desc.output_gradient_tensor.sizes, mode="clip").astype(dtype)
    return indices


def _regions(desc: RoiPoolingOperatorDesc, rois: Array) -> Array:
    """Regions with corners at quarters of elements, from the bits of any numbers.

    Regions near the input, and every eighth region, stay as they are.
    """
    numbers, (batches, _, height, width) = bits(rois).astype(np.int64), desc.input_tensor.sizes
    numbers = (numbers ^ numbers >> 13) * 40503 >> 5
    sizes = np.array([1, width, height, width, height])
    with np.errstate(all="ignore"):
        corners = (numbers % (6 * sizes) - sizes) / 4
        corners[..., 3:] += corners[..., 1:3] - (sizes[1:3] % 7) / 4
        corners /= desc.spatial_scale
        corners[..., 0] = numbers[..., 0] % (8 * batches + 1) // 8
        is_near = (abs(rois * desc.spatial_scale) < 4 * max(batches, height, width)).all(-1, keepdims=True)
        return np.where(is_near | (numbers[..., 1:2] % 8 == 0), rois, corners.astype(rois.dtype))


def with_outputs(desc: OperatorDesc, change: Callable[[TensorDesc], TensorDesc]) -> OperatorDesc:
    """The same operator with `change` applied to every output tensor."""
    targets = ((field, getattr(desc, field)) for field in desc.output_fields)
    return replace(desc, **{field: change(target) for field, target in targets if target is not None})  # type: ignore[type-var]


_REDUCTIONS = tuple(
    Sample(sizes, {"axes": axes}, source, target)
    for sizes, axes, source, target in (
        ((37,), (0,), _packed, _packed),
        ((1, 1), (0, 1), _packed, _packed),
        ((4, 70), (0,), _spaced, _packed),
        ((5, 6, 7), (1,), _packed, _spaced),
        ((4, 6, 5), (0, 2), _broadcast, _packed),
        ((3, 4, 5, 6), (1, 3), _reversed, _reversed),
        ((2, 3, 1, 2, 2, 3, 1, 2), (0, 3, 5), _spaced, _packed),
        ((3, 5000), (1,), _packed, _packed),
    )
)
# Columns: window size, strides, start padding, end padding, dilations.
_WINDOWS = tuple(
    Sample(sizes, dict(zip(WINDOW_FIELDS, window, strict=True)), source, target)
    for sizes, window, source, target in (
        ((2, 3, 7, 9), ((3, 3), (2, 2), (1, 1), (1, 1), (1, 1)), _packed, _packed),
        ((1, 2, 9, 8), ((2, 3), (1, 2), (1, 2), (0, 1), (3, 2)), _packed, _packed),
        ((2, 2, 6, 5), ((1, 1), (1, 1), (0, 0), (0, 0), (1, 1)), _reversed, _packed),
        ((1, 3, 8, 8), ((3, 2), (3, 3), (0, 0), (0, 0), (1, 2)), _spaced, _packed),
        ((3, 2, 5, 5), ((2, 2), (1, 1), (1, 0), (0, 1), (2, 2)), _broadcast, _packed),
        ((2, 1, 6, 6), ((3, 3), (1, 2), (2, 1), (1, 2), (1, 1)), _packed, _spaced),
        ((2, 2, 4, 5, 6), ((2, 3, 2), (1, 2, 2), (1, 1, 0), (0, 2, 1), (1, 1, 1)), _packed, _packed),
        ((1, 2, 5, 6, 7), ((2, 2, 3), (2, 1, 1), (0, 1, 2), (1, 1, 2), (2, 3, 2)), _reversed, _packed),
    )
)
# For gradients of averages. The outputs have the sizes of _WINDOWS; the inputs have an element for each window.
_GRADIENTS = tuple(
    replace(
        sample,
        sizes=AveragePoolingOperatorDesc.of(TensorDesc(DataType.FLOAT32, sample.sizes), **window).output_tensor.sizes,
        arguments=window | {"output_sizes": sample.sizes},
    )
    for sample in _WINDOWS
    for window in [{name: value for name, value in sample.arguments.items() if name != "dilations"}]
)
# For unpooling, into larger and into smaller outputs. `output` is height and width of the output.
_UNPOOLED = tuple(
    Sample(sizes, {"output_sizes": output}, source, target)
    for sizes, output, source, target in (
        ((2, 3, 4, 5), (8, 10), _packed, _packed),
        ((1, 2, 7, 9), (3, 5), _packed, _packed),
        ((2, 2, 3, 4), (7, 7), _spaced, _spaced),
        ((3, 2, 4, 3), (5, 6), _reversed, _reversed),
        ((2, 2, 3, 3), (6, 6), _broadcast, _packed),
        ((1, 1, 1, 1), (1, 1), _packed, _packed),
    )
)
# For operators along lines. For TOP_K: k below and above the number of elements that are sorted at a time, k of all
# elements, and lines much longer than k.
_LINES = tuple(
    Sample(sizes, {"axis": axis, "k": k}, source, target)
    for sizes, axis, k, source, target in (
        ((37,), 0, 5, _packed, _packed),
        ((1, 1), 1, 1, _packed, _packed),
        ((4, 70), 0, 3, _spaced, _packed),
        ((5, 6, 7), 1, 6, _packed, _spaced),
        ((4, 30, 5), 1, 20, _broadcast, _packed),
        ((3, 4, 5, 6), 2, 2, _reversed, _reversed),
        ((2, 3, 1, 2, 2, 3, 1, 2), 5, 2, _spaced, _packed),
        ((3, 5000), 1, 17, _packed, _packed),
    )
)
# For ROI_POOLING: bins of several elements, and of less than an element; rows that share a word.
_REGIONS = tuple(
    Sample(sizes, {"roi_count": regions, "pooled_size": size, "spatial_scale": scale}, source, target)
    for sizes, regions, size, scale, source, target in (
        ((2, 2, 7, 9), 12, (2, 3), 1.0, _packed, _packed),
        ((1, 2, 6, 5), 7, (7, 7), 0.25, _spaced, _packed),
        ((3, 2, 8, 7), 9, (1, 1), 0.3, _reversed, _spaced),
        ((2, 4, 5, 6), 5, (3, 2), 1.5, _broadcast, _reversed),
        ((1, 1, 1, 1), 1, (1, 1), 1.0, _packed, _packed),
    )
)
_INDEX_TYPES = {"output_data_type": INDEX_TYPES}
_DIRECTIONS = {"axis_direction": tuple(AxisDirection)}
_AVERAGES = {"include_padding": (False, True)}
_QUANTIZED = {
    "include_padding": (False, True),
    "per_channel": (False, True),
    "output_data_type": (None, DataType.UINT8, DataType.INT8),
}
_NORMS = {"p": (2, 1, 3)}
_SUMS = _DIRECTIONS | {"has_exclusive_sum": (False, True)}
_PRODUCTS = _DIRECTIONS | {"has_exclusive_product": (False, True)}
_INPUT_INDICES = {"indices_data_type": (DataType.UINT64, DataType.UINT32)}
_SORTED_INDICES = {"indices_data_type": INDEX_TYPES}
_INDICES = {"indices_data_type": (None, DataType.UINT32, DataType.UINT64)}


def _reduce(function: ReduceFunction) -> Operator:
    """The row of REDUCE with a function."""
    options = (_INDEX_TYPES if REDUCE_TYPES[function] is ARG_TYPES else {}) | {"function": (function,)}
    return Operator(f"REDUCE {function.name}", ReduceOperatorDesc, reduce, _REDUCTIONS, options)


OPERATORS = (
    Operator("ARGMAX", ArgmaxOperatorDesc, argmax, _REDUCTIONS, _INDEX_TYPES | _DIRECTIONS),
    Operator("ARGMIN", ArgminOperatorDesc, argmin, _REDUCTIONS, _INDEX_TYPES | _DIRECTIONS),
    *(_reduce(function) for function in REDUCE_TYPES),
    Operator("AVERAGE_POOLING", AveragePoolingOperatorDesc, None, _WINDOWS, _AVERAGES),
    Operator("AVERAGE_POOLING1", AveragePooling1OperatorDesc, average_pooling, _WINDOWS, _AVERAGES),
    Operator("AVERAGE_POOLING_GRAD", AveragePoolingGradOperatorDesc, average_pooling_grad, _GRADIENTS, _AVERAGES),
    Operator("CUMULATIVE_PRODUCT", CumulativeProductOperatorDesc, cumulative_prod, _LINES, _PRODUCTS),
    Operator("CUMULATIVE_SUMMATION", CumulativeSummationOperatorDesc, cumulative_sum, _LINES, _SUMS),
    Operator("LP_POOLING", LpPoolingOperatorDesc, None, _WINDOWS, _NORMS),
    Operator("LP_POOLING1", LpPooling1OperatorDesc, lp_pooling, _WINDOWS, _NORMS),
    Operator("MAX_POOLING", MaxPoolingOperatorDesc, None, _WINDOWS, {}),
    Operator("MAX_POOLING1", MaxPooling1OperatorDesc, None, _WINDOWS, _INDICES),
    Operator("MAX_POOLING2", MaxPooling2OperatorDesc, max_pooling, _WINDOWS, _INDICES),
    Operator("MAX_POOLING_GRAD", MaxPoolingGradOperatorDesc, max_pooling_grad, _WINDOWS, _INDICES),
    Operator("MAX_UNPOOLING", MaxUnpoolingOperatorDesc, max_unpooling, _UNPOOLED, _INPUT_INDICES),
    Operator(
        "QUANTIZED_LINEAR_AVERAGE_POOLING",
        QuantizedLinearAveragePoolingOperatorDesc,
        quantized_average_pooling,
        _WINDOWS,
        _QUANTIZED,
    ),
    Operator("ROI_POOLING", RoiPoolingOperatorDesc, roi_pooling, _REGIONS, {}),
    Operator("TOP_K", TopKOperatorDesc, None, _LINES, _SORTED_INDICES),
    Operator("TOP_K1", TopK1OperatorDesc, top_k, _LINES, _SORTED_INDICES | _DIRECTIONS),
)
# Descriptors by the names of DirectML, which has REDUCE only once.
DESCRIPTORS = {operator.name.partition(" ")[0]: operator.desc for operator in OPERATORS}
# Operators with canonical descriptors; each of the others is computed as one of these.
CANONICAL = tuple(operator for operator in OPERATORS if operator.describes(next(operator.descs()).canonical()))
