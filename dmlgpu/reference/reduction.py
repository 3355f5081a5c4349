"""What reductions over axes mean."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dmlgpu.descriptors.arrays import Array
from dmlgpu.descriptors.dtypes import AxisDirection, ReduceFunction
from dmlgpu.descriptors.reduction import ArgmaxOperatorDesc, ArgOperatorDesc, ReduceOperatorDesc


def arg(desc: ArgOperatorDesc, x: Array) -> tuple[Array, ...]:
    """The indices."""
    # NumPy's argmax and argmin know all the rules: the first of equal elements, the first NaN before all else,
    # -0 equal to +0. The last one is the first from the other end.
    argument = np.argmax if isinstance(desc, ArgmaxOperatorDesc) else np.argmin
    rows = rows_of(x, desc.axes)
    if desc.axis_direction is AxisDirection.INCREASING:
        index = argument(rows, axis=-1)
    else:
        index = rows.shape[-1] - 1 - argument(rows[..., ::-1], axis=-1)
    output = desc.output_tensor
    return (index.reshape(output.sizes).astype(output.data_type.numpy),)


def reduce(desc: ReduceOperatorDesc, x: Array) -> tuple[Array, ...]:
    """The values: floats are computed in float64, integers wrap."""
    output = desc.output_tensor
    with np.errstate(all="ignore"):
        values = exact(desc, x).reshape(output.sizes).astype(output.data_type.numpy)
    return (values,)


def exact(desc: ReduceOperatorDesc, x: Array) -> Array:
    """The values before they are rounded to the type of the output."""
    rows = rows_of(x, desc.axes)
    with np.errstate(all="ignore"):
        if desc.function in _SELECTIONS:
            where = _SELECTIONS[desc.function](rows, axis=-1)[..., np.newaxis]
            value: Array = np.take_along_axis(rows, where, -1)[..., 0]
        elif rows.dtype.kind == "f":
            value = _OF_FLOATS[desc.function](rows.astype(np.float64))
        else:
            value = _OF_INTEGERS[desc.function](rows)
    return value


def rows_of(x: Array, axes: tuple[int, ...]) -> Array:
    """The elements of every output, along the last axis."""
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    return x.transpose(*kept, *axes).reshape(*(x.shape[axis] for axis in kept), -1)


_Function = Callable[..., Array]
_SELECTIONS: dict[ReduceFunction, _Function] = {ReduceFunction.MAX: np.argmax, ReduceFunction.MIN: np.argmin}
_OF_FLOATS: dict[ReduceFunction, _Function] = {}
# In the elements' own type, which wraps.
_OF_INTEGERS: dict[ReduceFunction, _Function] = {}
