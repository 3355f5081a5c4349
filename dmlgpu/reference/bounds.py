"""How far results may be from the oracle's.

Selections and integers have no bound: they are the oracle's, bit for bit. What is computed of floats has one. It holds
whatever Vulkan 1.1 leaves to drivers: the direction of rounding, and whether denormals count as 0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch

from dmlgpu.descriptors.arrays import Array
from dmlgpu.descriptors.dtypes import ReduceFunction
from dmlgpu.descriptors.operator import OperatorDesc
from dmlgpu.descriptors.reduction import ReduceOperatorDesc

# Of a descriptor and its inputs the greatest difference that each output may have, element by element; None: none.
Bounds = Callable[..., tuple[Array | None, ...]]


def is_exact(desc: OperatorDesc) -> bool:
    """Whether results are the oracle's, bit for bit, on every device."""
    return _bounds(desc.canonical()) is None


def bounds(desc: OperatorDesc, *inputs: Array) -> tuple[Array | None, ...]:
    """How far each output of an operator may be from the oracle's.

    Args:
        desc: the operator.
        inputs: one array for each input tensor, of its sizes and type.

    Returns:
        Of each output an array of float64 of its sizes, with the greatest difference that each element may have; inf
        where any result is allowed. None: each element has the oracle's bits.
    """
    canonical = desc.canonical()
    found = _bounds(canonical)
    return (None,) * len(desc.outputs) if found is None else found(canonical, *inputs)


@singledispatch
def _bounds(desc: OperatorDesc) -> Bounds | None:
    """The bounds of an operator by its canonical descriptor; None: it has none."""
    return None


@_bounds.register
def _of_reduce(desc: ReduceOperatorDesc) -> Bounds | None:
    selects = desc.function in (ReduceFunction.MAX, ReduceFunction.MIN)
    return None if selects or not desc.input_tensor.data_type.is_float else _reduce


def _reduce(desc: ReduceOperatorDesc, x: Array) -> tuple[Array, ...]:
    raise NotImplementedError(f"{desc.function.name} has no bound")
