"""Arrays from outside, as plain ndarrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dmlgpu.errors import DescriptorError

Array = npt.NDArray[Any]

_ELEMENTS_ALONE = "its elements alone are np.asarray(x)"


def as_array(x: Any, field: str) -> Array:
    """Anything that NumPy can view, as an ndarray: `__array__`, `__array_interface__`, buffers, DLPack on the CPU.

    Args:
        x: what is viewed.
        field: what errors call it, a descriptor and its field.

    Raises:
        DescriptorError: a masked array, or an array with another meaning of its own (units, a matrix): as an ndarray it
            would lose that without a word.
    """
    viewable = ("__array__", "__array_interface__", "__array_struct__")
    if hasattr(x, "__dlpack__") and not any(hasattr(x, name) for name in viewable):
        array: Array = np.from_dlpack(x)
    else:
        # Also what `__array__` returns may be masked.
        array = np.asanyarray(x)
    if isinstance(array, np.ma.MaskedArray) or _holds_masks(x, array.ndim):
        raise DescriptorError(
            f"{field}: a masked array, and a tensor has no mask; fill it, as by x.filled(...); {_ELEMENTS_ALONE}"
        )
    kind = type(array)
    if isinstance(array, np.matrix) or any(
        getattr(kind, hook) is not getattr(np.ndarray, hook) for hook in ("__array_ufunc__", "__array_function__")
    ):
        raise DescriptorError(f"{field}: a {kind.__name__}, and a tensor is an ndarray only; {_ELEMENTS_ALONE}")
    return np.asarray(array)


def _holds_masks(x: Any, depth: int) -> bool:
    """Whether masked arrays stand in lists: NumPy stacks them without their masks."""
    return isinstance(x, (list, tuple)) and any(
        isinstance(item, np.ma.MaskedArray) or (depth > 1 and _holds_masks(item, depth - 1)) for item in x
    )
