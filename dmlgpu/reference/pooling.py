"""What windowed pooling means."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from dmlgpu.descriptors.arrays import Array
from dmlgpu.descriptors.pooling import MaxPooling2OperatorDesc


def max_pooling(desc: MaxPooling2OperatorDesc, x: Array) -> tuple[Array, ...]:
    """The maxima, and where they stood if there is a tensor for it."""
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
