"""What counts as an integer: all that Python takes for one, but True and False."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np


def index(value: Any) -> int:
    """A value as an int.

    Raises:
        TypeError: it is none. Nor are True and False, of Python or NumPy, which Python takes for 1 and 0.
    """
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{value!r} is not an integer")
    return operator.index(value)
