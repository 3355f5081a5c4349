"""The oracle: what every operator means, in literal NumPy.

It shares no code with what computes the same on a device, and prefers the obvious to the fast.
"""

from __future__ import annotations

import itertools
from functools import singledispatch
from typing import Any

import numpy as np

from dmlgpu.arrays import Array, as_array
from dmlgpu.dtypes import AxisDirection
from dmlgpu.operators import ArgmaxOperatorDesc, ArgOperatorDesc, MaxPooling2OperatorDesc, OperatorDesc


def reference(desc: OperatorDesc, *inputs: Array) -> tuple[Array, ...]:
    """The outputs of an operator, as packed arrays of the descriptor's sizes and types.

    Args:
        desc: the operator.
        inputs: one array for each input tensor, of its sizes and type.

    Raises:
        DescriptorError: an array that is more than its elements, as a masked one.
    """
    fields = (f"{type(desc).__name__}.{field}" for field in desc.input_fields)
    return _reference(desc.canonical(), *map(as_array, inputs, fields))


@singledispatch
def _reference(desc: OperatorDesc, *inputs: Array) -> tuple[Array, ...]:
    raise NotImplementedError(f"{type(desc).__name__} has no reference")


@_reference.register
def _arg(desc: ArgOperatorDesc, x: Array) -> tuple[Array, ...]:
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


@_reference.register
def _max_pooling(desc: MaxPooling2OperatorDesc, x: Array) -> tuple[Array, ...]:
    sizes = desc.output_tensor.sizes
    best, where = np.zeros(sizes, x.dtype), np.zeros(sizes, np.int64)
    found = np.zeros(sizes, bool)
    position = np.arange(x.size, dtype=np.int64).reshape(x.shape)
    # One element of every window at a time, in row-major order of the window; those that lie in the input for none of
    # the windows, as they may be very many, left out.
    reaching = [
        range(max(0, -((last - start) // d)), min(size, (n - 1 + start) // d + 1))
        for size, last, start, d, n in zip(
            desc.window_size,
            [(count - 1) * stride for count, stride in zip(sizes[2:], desc.strides, strict=True)],
            desc.start_padding,
            desc.dilations,
            x.shape[2:],
            strict=True,
        )
    ]
    for offset in itertools.product(*reaching):
        coordinates = [
            np.arange(n) * stride - start + k * dilation
            for n, stride, start, k, dilation in zip(
                sizes[2:], desc.strides, desc.start_padding, offset, desc.dilations, strict=True
            )
        ]
        inside = [(c >= 0) & (c < n) for c, n in zip(coordinates, x.shape[2:], strict=True)]
        windows: Any = (slice(None), slice(None), *np.ix_(*map(np.flatnonzero, inside)))
        elements: Any = (slice(None), slice(None), *np.ix_(*(c[i] for c, i in zip(coordinates, inside, strict=True))))
        value, champion = x[elements], best[windows]
        # A later element wins if it is greater, or NaN where there was none yet.
        wins = ~found[windows] | (value > champion) | ((value != value) & (champion == champion))
        best[windows] = np.where(wins, value, champion)
        where[windows] = np.where(wins, position[elements], where[windows])
        found[windows] = True
    if desc.output_indices_tensor is None:
        return (best,)
    return best, where.astype(desc.output_indices_tensor.data_type.numpy)
