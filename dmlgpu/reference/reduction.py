"""What reductions over axes mean."""

from __future__ import annotations

import numpy as np

from dmlgpu.descriptors.arrays import Array
from dmlgpu.descriptors.dtypes import AxisDirection
from dmlgpu.descriptors.reduction import ArgmaxOperatorDesc, ArgOperatorDesc


def arg(desc: ArgOperatorDesc, x: Array) -> tuple[Array, ...]:
    """The indices."""
    # NumPy's argmax and argmin know all the rules: the first of equal elements, the first NaN before all else,
    # -0 equal to +0. The last one is the first from the other end.
    argument = np.argmax if isinstance(desc, ArgmaxOperatorDesc) else np.argmin
    kept = [axis for axis in range(x.ndim) if axis not in desc.axes]
    rows = x.transpose(*kept, *desc.axes).reshape(*(x.shape[axis] for axis in kept), -1)
    if desc.axis_direction is AxisDirection.INCREASING:
        index = argument(rows, axis=-1)
    else:
        index = rows.shape[-1] - 1 - argument(rows[..., ::-1], axis=-1)
    output = desc.output_tensor
    return (index.reshape(output.sizes).astype(output.data_type.numpy),)
