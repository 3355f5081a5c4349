"""A self-check: every operator with every type it takes, run on a device and compared with the NumPy oracle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from dmlgpu.descriptors.arrays import Array
from dmlgpu.descriptors.dtypes import AxisDirection, DataType, ReduceFunction
from dmlgpu.descriptors.operator import ALL_TYPES, OperatorDesc
from dmlgpu.descriptors.pooling import MaxPooling1OperatorDesc, MaxPooling2OperatorDesc, MaxPoolingOperatorDesc
from dmlgpu.descriptors.reduction import INDEX_TYPES, ArgmaxOperatorDesc, ArgminOperatorDesc, ReduceOperatorDesc
from dmlgpu.descriptors.tensor import TensorDesc, packed_strides
from dmlgpu.errors import VerificationError
from dmlgpu.functional import verify
from dmlgpu.runtime.device import Device

Ints = tuple[int, ...]
Layout = Callable[[Ints], Ints | None]


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
        for (source, axes, index_type, target), direction in product(_reductions(), AxisDirection):
            desc: OperatorDesc = arg.of(source, axes, direction, output_data_type=index_type)
            yield "ARGMAX" if arg is ArgmaxOperatorDesc else "ARGMIN", _laid_out(desc, target)
    for function in ReduceFunction.ARGMAX, ReduceFunction.ARGMIN:
        for source, axes, index_type, target in _reductions():
            desc = ReduceOperatorDesc.of(function, source, axes, output_data_type=index_type)
            yield f"REDUCE {function.name}", _laid_out(desc, target)
    for name, kind, indices in (
        ("MAX_POOLING", MaxPoolingOperatorDesc, (None,)),
        ("MAX_POOLING1", MaxPooling1OperatorDesc, _INDICES),
        ("MAX_POOLING2", MaxPooling2OperatorDesc, _INDICES),
    ):
        for data_type, case, indices_type in product(ALL_TYPES, _POOLINGS, indices):
            yield name, _pooling(kind, data_type, case, indices_type)


def _reductions() -> Iterator[tuple[TensorDesc, Ints, DataType, Layout]]:
    """Inputs, axes, and types and layouts of outputs."""
    for data_type, index_type, (sizes, axes, source, target) in product(ALL_TYPES, INDEX_TYPES, _REDUCTIONS):
        yield TensorDesc(data_type, sizes, source(sizes)), axes, index_type, target


def _pooling(
    kind: type[MaxPoolingOperatorDesc | MaxPooling1OperatorDesc | MaxPooling2OperatorDesc],
    data_type: DataType,
    case: _Pooling,
    indices_data_type: DataType | None,
) -> OperatorDesc:
    dilations = {"dilations": case.dilations} if kind is MaxPooling2OperatorDesc else {}
    desc = kind.of(
        TensorDesc(data_type, case.sizes, case.source),
        case.window,
        strides=case.strides,
        start_padding=case.start,
        end_padding=case.end,
        indices_data_type=indices_data_type,
        **dilations,
    )
    return _laid_out(desc, _spaced if case.spaced_outputs else _packed)


def _laid_out(desc: OperatorDesc, layout: Layout) -> OperatorDesc:
    """The same with outputs of this layout."""
    outputs = ((field, getattr(desc, field)) for field in desc.output_fields)
    return replace(desc, **{field: replace(t, strides=layout(t.sizes)) for field, t in outputs if t is not None})  # type: ignore[type-var]


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
