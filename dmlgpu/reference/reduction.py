"""What reductions over axes mean."""

from __future__ import annotations

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
    """The values: the bits of the elements that argmax and argmin find."""
    argument = {ReduceFunction.MAX: np.argmax, ReduceFunction.MIN: np.argmin}[desc.function]
    rows = rows_of(x, desc.axes)
    index = argument(rows, axis=-1, keepdims=True)
    output = desc.output_tensor
    return (np.take_along_axis(rows, index, -1).reshape(output.sizes).astype(output.data_type.numpy),)


def rows_of(x: Array, axes: tuple[int, ...]) -> Array:
    """The elements of every output, along the last axis."""
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    return x.transpose(*kept, *axes).reshape(*(x.shape[axis] for axis in kept), -1)
