"""The cases that benchmarks measure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

from dmlgpu import AxisDirection, DataType, MaxPooling2OperatorDesc, OperatorDesc, ReduceFunction, TensorDesc, reference
from dmlgpu.descriptors.tensor import Array
from dmlgpu.registry import OPERATORS, name_of
from dmlgpu.testing.cases import Case, permuted_strides
from dmlgpu.testing.fills import Fill, distinct

FLOAT32, FLOAT16 = DataType.FLOAT32, DataType.FLOAT16
INT8, UINT8, INT64 = DataType.INT8, DataType.UINT8, DataType.INT64


def random_values(dtype: np.dtype[Any], count: int) -> Array:
    """Normally distributed floats, or any integers of the type; no NaN, because peers disagree on NaN."""
    generator = np.random.default_rng(count)
    if dtype.kind == "f":
        return generator.standard_normal(count, np.float32).astype(dtype)
    return np.frombuffer(generator.bytes(count * dtype.itemsize), dtype)


def _joined(numbers: Sequence[int]) -> str:
    return "x".join(map(str, numbers))


_OPERATORS = {operator.name: operator for operator in OPERATORS}


def operator_case(name: str, id: str, source: TensorDesc, **arguments: Any) -> Case:
    """An operator of the registry on a tensor; `arguments` are the others of its descriptor's `of`."""
    desc = _OPERATORS[name].of(source, **arguments)
    return Case(id, desc, (random_values,) * len(desc.inputs))


def argmax_case(
    name: str,
    sizes: tuple[int, ...],
    axes: Sequence[int],
    data_type: DataType = FLOAT32,
    strides: tuple[int, ...] | None = None,
) -> Case:
    source = TensorDesc(data_type, sizes, strides)
    return operator_case("ARGMAX", f"argmax-{name}", source, axes=axes, output_data_type=DataType.UINT32)


def reduce_case(function: ReduceFunction, name: str, sizes: tuple[int, ...], axes: Sequence[int]) -> Case:
    id = f"{function.name.lower().replace('_', '-')}-{name}"
    return operator_case(f"REDUCE {function.name}", id, TensorDesc(FLOAT32, sizes), axes=axes)


def top_k_case(name: str, sizes: tuple[int, ...], k: int) -> Case:
    """TOP_K of distinct elements, because peers disagree on ties."""
    options = {"axis_direction": AxisDirection.DECREASING, "indices_data_type": INT64}
    case = operator_case("TOP_K1", f"top-k-{name}", TensorDesc(FLOAT32, sizes), k=k, **options)
    return replace(case, fills=(distinct,))


def cumulative_case(name: str, sizes: tuple[int, ...], axis: int) -> Case:
    return operator_case("CUMULATIVE_SUMMATION", f"cumulative-sum-{name}", TensorDesc(FLOAT32, sizes), axis=axis)


# Prefixes of case names, by operator.
_POOLS = {
    "MAX_POOLING2": "pool",
    "AVERAGE_POOLING1": "average-pool",
    "LP_POOLING1": "lp-pool",
    "MAX_POOLING_GRAD": "pool-grad",
    "AVERAGE_POOLING_GRAD": "average-pool-grad",
    "QUANTIZED_LINEAR_AVERAGE_POOLING": "quantized-average-pool",
}
# Poolings of floats, besides the first.
_FLOAT_POOLS = "AVERAGE_POOLING1", "LP_POOLING1", "MAX_POOLING_GRAD", "AVERAGE_POOLING_GRAD"


def pooling_case(
    name: str,
    sizes: tuple[int, ...],
    window_size: int,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    data_type: DataType = FLOAT32,
    indices: bool = False,
    operator: str = "MAX_POOLING2",
    **options: Any,
) -> Case:
    """A pooling, or a gradient, with the same window along every spatial dimension of the pooled tensor's `sizes`."""
    values = {
        "window_size": window_size,
        "strides": stride,
        "start_padding": padding,
        "end_padding": padding,
        "dilations": dilation,
    }
    window = {field: (value,) * (len(sizes) - 2) for field, value in values.items()}
    source = TensorDesc(data_type, sizes)
    if operator == "AVERAGE_POOLING_GRAD":
        # The input has an element for each window.
        (source,) = _OPERATORS["AVERAGE_POOLING1"].of(source, **window).outputs
        options["output_sizes"] = sizes
    if indices:
        options["indices_data_type"] = DataType.UINT32
    id = f"{_POOLS[operator]}-{name}{'-indices' if indices else ''}"
    return operator_case(operator, id, source, **window, **options)


def unpooling_case(name: str, sizes: tuple[int, ...], window_size: int) -> Case:
    """MAX_UNPOOLING to these sizes, of the maxima of adjacent windows of a tensor that has them."""

    @cache
    def pooled() -> tuple[Array, ...]:
        window = (window_size,) * 2
        desc = MaxPooling2OperatorDesc.of(
            TensorDesc(FLOAT32, sizes), window, strides=window, indices_data_type=DataType.UINT32
        )
        return reference(desc, random_values(np.dtype(np.float32), desc.input_tensor.element_count).reshape(sizes))

    def fill(output: int) -> Fill:
        return lambda _, count: pooled()[output].reshape(count)

    source = TensorDesc(FLOAT32, (*sizes[:2], *(size // window_size for size in sizes[2:])))
    case = operator_case(
        "MAX_UNPOOLING", f"unpool-{name}", source, output_sizes=sizes, indices_data_type=DataType.UINT32
    )
    return replace(case, fills=(fill(0), fill(1)))


def roi_case(name: str, sizes: tuple[int, ...], regions: int) -> Case:
    """ROI_POOLING as in detectors: 7 x 7 bins; regions in coordinates of an image 16 times as wide and high."""
    case = operator_case(
        "ROI_POOLING",
        f"roi-pool-{name}",
        TensorDesc(FLOAT32, sizes),
        roi_count=regions,
        pooled_size=7,
        spatial_scale=1 / 16,
    )
    batches, _, height, width = sizes

    def fill(dtype: np.dtype[Any], count: int) -> Array:
        generator = np.random.default_rng(count)
        extent = generator.uniform(32, 320, (regions, 2))
        first = generator.random((regions, 2)) * (16 * np.array([width, height]) - extent)
        rows = np.column_stack([generator.integers(0, batches, regions), first, first + extent])
        return rows.astype(dtype).reshape(count)

    return replace(case, fills=(random_values, fill))


_RESNET = partial(pooling_case, sizes=(8, 64, 112, 112), window_size=3, stride=2, padding=1)
_POOLINGS = {
    "resnet": _RESNET,
    "2x2": partial(pooling_case, sizes=(8, 64, 56, 56), window_size=2, stride=2),
    "dilated": partial(pooling_case, sizes=(8, 32, 56, 56), window_size=3, padding=1, dilation=2),
    "3d": partial(pooling_case, sizes=(2, 16, 32, 64, 64), window_size=3, stride=2, padding=1),
    "global": partial(pooling_case, sizes=(1, 512, 28, 28), window_size=28),
}

_AXES = {"last": [1], "first": [0], "all": [0, 1]}
_FUNCTIONS = ReduceFunction.SUM, ReduceFunction.MAX, ReduceFunction.AVERAGE, ReduceFunction.LOG_SUM_EXP

CASES = [
    *(argmax_case(f"4096x1024-{name}", (4096, 1024), axes) for name, axes in _AXES.items()),
    *(
        reduce_case(function, f"4096x1024-{name}", (4096, 1024), axes)
        for function in _FUNCTIONS
        for name, axes in _AXES.items()
    ),
    argmax_case("segmentation", (16, 512, 28, 28), [1]),
    argmax_case("vocabulary", (1, 129280), [1]),
    argmax_case("2^20x8", (1 << 20, 8), [1]),
    argmax_case("8x2^20", (8, 1 << 20), [1]),
    argmax_case("65536x33", (65536, 33), [1]),
    *(
        argmax_case(f"4096x1024-{data_type.name.lower()}", (4096, 1024), [1], data_type)
        for data_type in (FLOAT16, UINT8, INT8, INT64)
    ),
    argmax_case("4096x1024-transposed", (4096, 1024), [1], strides=permuted_strides((4096, 1024), (1, 0))),
    *(pooling(name, indices=indices) for name, pooling in _POOLINGS.items() for indices in (False, True)),
    *(_RESNET(f"resnet-{data_type.name.lower()}", data_type=data_type) for data_type in (FLOAT16, UINT8)),
    *(_RESNET("resnet", operator=operator) for operator in _FLOAT_POOLS),
    unpooling_case("2x2", (8, 64, 112, 112), 2),
    *(top_k_case(f"4096x1024-{k}", (4096, 1024), k) for k in (1, 5, 50, 1000)),
    *(top_k_case(f"vocabulary-{k}", (1, 129280), k) for k in (1, 50, 1000)),
    top_k_case("200000-2048", (1, 200000), 2048),
    cumulative_case("4096x1024-first", (4096, 1024), 0),
    cumulative_case("4096x1024-last", (4096, 1024), 1),
]

# Sizes of batches with which an input has 200 MB or more, so that a GPU computes longer than a submission lasts.
_LARGE_BATCHES = {"resnet": 64, "2x2": 256, "dilated": 256, "3d": 32, "global": 128}
_LARGE_POOLINGS = {
    name: partial(pooling, sizes=(_LARGE_BATCHES[name], *pooling.keywords["sizes"][1:]))
    for name, pooling in _POOLINGS.items()
}

LARGE = [
    *(argmax_case(f"65536x1024-{name}", (1 << 16, 1024), axes) for name, axes in _AXES.items()),
    argmax_case("1024x65536-first", (1024, 1 << 16), [0]),
    argmax_case("16384x4096-first", (1 << 14, 4096), [0]),
    *(
        reduce_case(function, f"65536x1024-{name}", (1 << 16, 1024), axes)
        for function in (ReduceFunction.SUM, ReduceFunction.MAX, ReduceFunction.LOG_SUM_EXP)
        for name, axes in _AXES.items()
    ),
    argmax_case("large-segmentation", (128, 512, 28, 28), [1]),
    argmax_case("512-vocabularies", (512, 129280), [1]),
    argmax_case("2^23x8", (1 << 23, 8), [1]),
    argmax_case("8x2^23", (8, 1 << 23), [1]),
    argmax_case("2^21x33", (1 << 21, 33), [1]),
    *(
        argmax_case(f"{sizes[0]}x1024-{data_type.name.lower()}", sizes, [1], data_type)
        for data_type, sizes in ((FLOAT16, (1 << 17, 1024)), (UINT8, (1 << 18, 1024)), (INT64, (1 << 15, 1024)))
    ),
    *(
        pooling(f"large-{name}", indices=indices)
        for name, pooling in _LARGE_POOLINGS.items()
        for indices in (False, True)
    ),
    *(pooling_case(f"large-{side}x{side}", (32, 64, 112, 112), side, padding=side // 2) for side in (3, 13)),
    *(_LARGE_POOLINGS["resnet"]("large-resnet", operator=operator) for operator in _FLOAT_POOLS),
    _RESNET("large-resnet", sizes=(256, 64, 112, 112), operator="QUANTIZED_LINEAR_AVERAGE_POOLING", data_type=UINT8),
    unpooling_case("large-2x2", (32, 64, 112, 112), 2),
    *(top_k_case(f"65536x1024-{k}", (1 << 16, 1024), k) for k in (5, 50)),
    roi_case("detector", (8, 512, 80, 104), 256),
]

# Sizes from 2^10 to 2^27 elements. All cases of a size precede the next, so that --limit excludes the largest.
SCALES = [
    case
    for exponent in range(10, 28)
    for case in (
        argmax_case(f"rows-2^{exponent}", (1 << exponent - 10, 1 << 10), [1]),
        argmax_case(f"columns-2^{exponent}", (1 << 10, 1 << exponent - 10), [0]),
        argmax_case(f"all-2^{exponent}", (1 << exponent,), [0]),
        pooling_case(f"planes-2^{exponent}", (1, 1 << exponent - 10, 32, 32), 3, 2, 1, indices=True),
    )
]


def describe(desc: OperatorDesc) -> str:
    """An operator in one line: its input, the fields that are no tensors, and the sizes of its outputs."""
    source = desc.inputs[0]
    parts = [name_of(desc), source.data_type.name.lower(), _joined(source.sizes)]
    if not source.is_packed:
        parts.append(f"strides {_joined(source.element_strides)}")
    for name, value in vars(desc).items():
        if isinstance(value, tuple | int | float) and not isinstance(value, ReduceFunction):
            parts.append(f"{name}={value}")
    return f"{' '.join(parts)} -> {', '.join(_joined(output.sizes) for output in desc.outputs)}"
