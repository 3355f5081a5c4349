"""A self-check: every operator with every type it takes, run on a device and compared with the NumPy oracle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from dmlgpu.arrays import Array
from dmlgpu.device import Device
from dmlgpu.dtypes import AxisDirection, DataType, ReduceFunction
from dmlgpu.errors import VerificationError
from dmlgpu.functional import verify
from dmlgpu.operators import (
    ALL_TYPES,
    INDEX_TYPES,
    ArgmaxOperatorDesc,
    ArgminOperatorDesc,
    MaxPooling1OperatorDesc,
    MaxPooling2OperatorDesc,
    MaxPoolingOperatorDesc,
    OperatorDesc,
    ReduceOperatorDesc,
    pooled_size,
)
from dmlgpu.tensor import TensorDesc, packed_strides

Ints = tuple[int, ...]


def _packed(sizes: Ints) -> Ints | None:
    return None


def _spaced(sizes: Ints) -> Ints:
    """Gaps behind every row and plane."""
    return packed_strides([size + 1 for size in sizes])


def _reversed(sizes: Ints) -> Ints:
    """The first dimension innermost."""
    return packed_strides(sizes[::-1])[::-1]


def _broadcast(sizes: Ints) -> Ints:
    """The first dimension repeats the rest."""
    return (0, *packed_strides(sizes)[1:])


# Sizes, axes, and the layouts of input and output.
_REDUCTIONS = (
    ((37,), (0,), _packed, _packed),
    ((1, 1), (0, 1), _packed, _packed),
    ((4, 70), (0,), _spaced, _packed),
    ((5, 6, 7), (1,), _packed, _spaced),
    ((4, 6, 5), (0, 2), _broadcast, _packed),
    ((3, 4, 5, 6), (1, 3), _reversed, _reversed),
    ((2, 3, 1, 2, 2, 3, 1, 2), (0, 3, 5), _spaced, _packed),
    ((3, 5000), (1,), _packed, _packed),
)
# No indices, or indices of these types.
_INDICES = (None, DataType.UINT32, DataType.UINT64)


@dataclass(frozen=True)
class _Pooling:
    sizes: Ints
    window: Ints
    strides: Ints
    start: Ints
    end: Ints
    dilations: Ints
    source: Ints | None = None
    spaced_outputs: bool = False


_POOLINGS = (
    _Pooling((2, 3, 7, 9), (3, 3), (2, 2), (1, 1), (1, 1), (1, 1)),
    _Pooling((1, 2, 9, 8), (2, 3), (1, 2), (1, 2), (0, 1), (3, 2)),
    _Pooling((2, 2, 6, 5), (1, 1), (1, 1), (0, 0), (0, 0), (1, 1), source=_reversed((2, 2, 6, 5))),
    _Pooling((1, 3, 8, 8), (3, 2), (3, 3), (0, 0), (0, 0), (1, 2), source=_spaced((1, 3, 8, 8))),
    _Pooling((3, 2, 5, 5), (2, 2), (1, 1), (1, 0), (0, 1), (2, 2), source=_broadcast((3, 2, 5, 5))),
    _Pooling((2, 1, 6, 6), (3, 3), (1, 2), (2, 1), (1, 2), (1, 1), spaced_outputs=True),
    _Pooling((2, 2, 4, 5, 6), (2, 3, 2), (1, 2, 2), (1, 1, 0), (0, 2, 1), (1, 1, 1)),
    _Pooling((1, 2, 5, 6, 7), (2, 2, 3), (2, 1, 1), (0, 1, 2), (1, 1, 2), (2, 3, 2), source=_reversed((1, 2, 5, 6, 7))),
)


@dataclass(frozen=True)
class Check:
    """An operator and the kind of values that it is given."""

    operator: str
    desc: OperatorDesc
    values: str

    def run(self, device: Device) -> VerificationError | None:
        """Runs the operator: None where its outputs are the oracle's, bit for bit."""
        try:
            verify(self.desc, _values(self.desc.inputs[0], self.values), device=device)
        except VerificationError as error:
            return error
        return None


def checks() -> tuple[Check, ...]:
    """All checks, operator by operator."""
    return tuple(Check(name, desc, values) for name, desc in _operators() for values in _kinds(desc.inputs[0]))


def _operators() -> Iterator[tuple[str, OperatorDesc]]:
    for arg in ArgmaxOperatorDesc, ArgminOperatorDesc:
        for (source, target, axes), direction in product(_reductions(), AxisDirection):
            yield "ARGMAX" if arg is ArgmaxOperatorDesc else "ARGMIN", arg(source, target, axes, direction)
    for function in ReduceFunction.ARGMAX, ReduceFunction.ARGMIN:
        for source, target, axes in _reductions():
            yield f"REDUCE {function.name}", ReduceOperatorDesc(function, source, target, axes)
    for data_type, case in product(ALL_TYPES, _POOLINGS):
        yield "MAX_POOLING", MaxPoolingOperatorDesc(**_pooling(data_type, case, dilated=False))
    for data_type, case, indices in product(ALL_TYPES, _POOLINGS, _INDICES):
        fields = _pooling(data_type, case, dilated=False)
        yield "MAX_POOLING1", MaxPooling1OperatorDesc(**fields, **_indices(fields["output_tensor"], indices))
    for data_type, case, indices in product(ALL_TYPES, _POOLINGS, _INDICES):
        fields = _pooling(data_type, case, dilated=True) | {"dilations": case.dilations}
        yield "MAX_POOLING2", MaxPooling2OperatorDesc(**fields, **_indices(fields["output_tensor"], indices))


def _reductions() -> Iterator[tuple[TensorDesc, TensorDesc, Ints]]:
    for data_type, index_type, (sizes, axes, source, target) in product(ALL_TYPES, INDEX_TYPES, _REDUCTIONS):
        kept = tuple(1 if axis in axes else size for axis, size in enumerate(sizes))
        yield TensorDesc(data_type, sizes, source(sizes)), TensorDesc(index_type, kept, target(kept)), axes


def _pooling(data_type: DataType, case: _Pooling, *, dilated: bool) -> dict[str, Any]:
    """The fields that all pooling operators have."""
    dilations = case.dilations if dilated else (1,) * len(case.dilations)
    rows = zip(case.sizes[2:], case.window, case.strides, case.start, case.end, dilations, strict=True)
    sizes = (*case.sizes[:2], *(pooled_size(n, w, s, start + end, d) for n, w, s, start, end, d in rows))
    return {
        "input_tensor": TensorDesc(data_type, case.sizes, case.source),
        "output_tensor": TensorDesc(data_type, sizes, _spaced(sizes) if case.spaced_outputs else None),
        "strides": case.strides,
        "window_size": case.window,
        "start_padding": case.start,
        "end_padding": case.end,
    }


def _indices(target: TensorDesc, data_type: DataType | None) -> dict[str, Any]:
    tensor = None if data_type is None else TensorDesc(data_type, target.sizes, target.strides)
    return {"output_indices_tensor": tensor}


def _kinds(source: TensorDesc) -> tuple[str, ...]:
    is_float = source.data_type.numpy.kind == "f"
    return ("ties", "any bits", "few NaN") if is_float else ("ties", "any bits")


def _values(tensor: TensorDesc, kind: str) -> Array:
    """An array for a tensor; the same in every run."""
    dtype, rng = tensor.data_type.numpy, np.random.default_rng(0)
    sizes = tuple(1 if stride == 0 else size for size, stride in zip(tensor.sizes, tensor.element_strides, strict=True))
    if kind == "any bits":
        count = np.empty(sizes, dtype).nbytes
        x = rng.integers(0, 256, count, np.uint8).view(dtype).reshape(sizes)
    else:
        x = rng.choice(_extremes(dtype), sizes)
    if kind == "few NaN":
        x[rng.random(sizes) < 0.02] = np.nan
    return np.broadcast_to(x, tensor.sizes)


def _extremes(dtype: np.dtype[Any]) -> Array:
    """The values at which orders go wrong; few, so that many elements are equal."""
    if dtype.kind == "f":
        limits = np.finfo(dtype)
        positive = np.array([0, limits.smallest_subnormal, limits.tiny, 1, limits.max, np.inf], dtype)
        return np.concatenate([positive, -positive])
    bounds = np.iinfo(dtype)
    return np.array(sorted({bounds.min, bounds.min + 1, max(bounds.min, -1), 0, 1, bounds.max - 1, bounds.max}), dtype)
