"""Switches in the environment: one set of words for all of them."""

from __future__ import annotations

import os

from dmlgpu.errors import SettingError

_ON = ("1", "true", "yes", "on")
_OFF = ("0", "false", "no", "off")


def switch(name: str) -> bool:
    """Whether a variable of the environment turns something on: 1, true, yes or on, in any case.

    0, false, no, off, nothing at all and no such variable leave it off.

    Raises:
        SettingError: it has another value.
    """
    value = os.environ.get(name, "")
    word = value.strip().lower()
    if word and word not in _ON + _OFF:
        raise SettingError(f"{name}: {value!r} is not allowed; allowed are {', '.join(_ON)}, {', '.join(_OFF)}")
    return word in _ON
