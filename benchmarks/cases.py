"""What is measured: named cases, of the same type as those of the tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from dmlgpu import ArgmaxOperatorDesc, DataType, MaxPooling2OperatorDesc, OperatorDesc
from tests.cases import Array, Case, arg_desc, permuted_strides, pool_desc

FLOAT32, FLOAT16 = DataType.FLOAT32, DataType.FLOAT16
INT8, UINT8, INT64 = DataType.INT8, DataType.UINT8, DataType.INT64


def random_values(dtype: np.dtype[Any], count: int) -> Array:
    """Normal floats and integers of the whole type, no NaN among them: peers disagree on NaN."""
    generator = np.random.default_rng(count)
    if dtype.kind == "f":
        return generator.standard_normal(count, np.float32).astype(dtype)
    return np.frombuffer(generator.bytes(count * dtype.itemsize), dtype)


def argmax_case(
    name: str,
    sizes: Sequence[int],
    axes: Sequence[int],
    data_type: DataType = FLOAT32,
    strides: Sequence[int] | None = None,
) -> Case:
    desc = arg_desc(ArgmaxOperatorDesc, data_type, sizes, axes, strides=strides)
    return Case(f"argmax-{name}", desc, (random_values,))


def pooling_case(
    name: str,
    sizes: Sequence[int],
    window_size: int,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    data_type: DataType = FLOAT32,
    indices: bool = False,
) -> Case:
    """A pooling that is the same along every spatial dimension."""
    window, strides, paddings, dilations = (
        (value,) * (len(sizes) - 2) for value in (window_size, stride, padding, dilation)
    )
    index_type = DataType.UINT32 if indices else None
    desc = pool_desc(data_type, sizes, window, strides, paddings, paddings, dilations, index_type)
    return Case(f"pool-{name}{'-indices' if indices else ''}", desc, (random_values,))


_RESNET = partial(pooling_case, sizes=(8, 64, 112, 112), window_size=3, stride=2, padding=1)
_POOLINGS = {
    "resnet": _RESNET,
    "2x2": partial(pooling_case, sizes=(8, 64, 56, 56), window_size=2, stride=2),
    "dilated": partial(pooling_case, sizes=(8, 32, 56, 56), window_size=3, padding=1, dilation=2),
    "3d": partial(pooling_case, sizes=(2, 16, 32, 64, 64), window_size=3, stride=2, padding=1),
    "global": partial(pooling_case, sizes=(1, 512, 28, 28), window_size=28),
}

CASES = [
    argmax_case("4096x1024-last", (4096, 1024), [1]),
    argmax_case("4096x1024-first", (4096, 1024), [0]),
    argmax_case("4096x1024-all", (4096, 1024), [0, 1]),
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
]

# Cases of any power of two of elements, from 2^10.
SCALES: dict[str, Callable[[int], Case]] = {
    "argmax-rows": lambda n: argmax_case("rows", (n >> 10, 1 << 10), [1]),
    "argmax-columns": lambda n: argmax_case("columns", (1 << 10, n >> 10), [0]),
    "argmax-all": lambda n: argmax_case("all", (n,), [0]),
    "pool-planes": lambda n: pooling_case("planes", (1, n >> 10, 32, 32), 3, 2, 1, indices=True),
}


def describe(desc: OperatorDesc) -> str:
    """An operator in one line."""
    (source,) = desc.inputs
    text = f"{source.data_type.name.lower()} {_by(source.sizes)}"
    if not source.is_packed:
        text += f" strides {_by(source.element_strides)}"
    if isinstance(desc, ArgmaxOperatorDesc):
        return f"ARGMAX {text} axes {', '.join(map(str, desc.axes))}"
    assert isinstance(desc, MaxPooling2OperatorDesc)
    text += f" window {_by(desc.window_size)} strides {_by(desc.strides)} padding {_by(desc.start_padding)}"
    if set(desc.dilations) != {1}:
        text += f" dilations {_by(desc.dilations)}"
    return f"MAX_POOLING2 {text}{' with indices' if desc.output_indices_tensor else ''}"


def _by(numbers: Sequence[int]) -> str:
    return "x".join(map(str, numbers))
