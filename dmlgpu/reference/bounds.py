"""How far results may be from the oracle's.

Selections have no bound: they are the oracle's, bit for bit. So far all operators are selections. What is computed of
floats registers its bound here: one that holds for all that Vulkan 1.1 leaves to drivers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch

from dmlgpu.descriptors.arrays import Array
from dmlgpu.descriptors.operator import OperatorDesc

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
