"""The array API standard's functions that dmlgpu has.

The module has argmax, argmin, max, min, sum, prod, mean, cumulative_sum, cumulative_prod and top_k:

    from dmlgpu.interop import array_api as xp
    xp.sum(x, axis=(0, 2), keepdims=True)

dmlgpu's functions have the standard's arguments and more. For device tensors they return device tensors, and for arrays
of other libraries on the host NumPy arrays, or scalars if no axis is left. A device tensor is not converted: the sum of
int32 and uint32 needs dtype=x.dtype. Sums, products and means do not accept float64.

Example:
    >>> import numpy as np
    >>> from dmlgpu.interop import array_api as xp
    >>> x = np.int8([[1, 5], [7, 2]])
    >>> xp.argmax(x, axis=1).tolist()
    [1, 0]
    >>> xp.sum(x, axis=1).dtype
    dtype('int64')
"""

from dmlgpu.functions import argmax, argmin, cumulative_prod, cumulative_sum, max, mean, min, prod, sum, top_k

__all__ = [
    "argmax",
    "argmin",
    "cumulative_prod",
    "cumulative_sum",
    "max",
    "mean",
    "min",
    "prod",
    "sum",
    "top_k",
]
