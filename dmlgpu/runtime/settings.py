"""Environment variables; all switches allow the same words for on and off."""

from __future__ import annotations

import os

from dmlgpu.errors import SettingError

_ON = ("1", "true", "yes", "on")
_OFF = ("0", "false", "no", "off")
_LEVELS = ("info", "debug")


def switch(name: str) -> bool:
    """Whether a variable is on: 1, true, yes or on, in upper or lower case.

    A variable is off if it is 0, false, no, off, empty or not set.

    Raises:
        SettingError: the variable has another value.
    """
    return bool(os.environ.get(name)) and choice(name, _ON + _OFF) in _ON


def level(name: str) -> str | None:
    """The level of Python's logging that a variable names, INFO or DEBUG; None if the variable is off, as in `switch`.

    Raises:
        SettingError: the variable has another value.
    """
    word = choice(name, _LEVELS + _OFF)
    return word.upper() if word in _LEVELS else None


def setting(name: str) -> str | None:
    """The value of a variable, without leading and trailing blanks; None if it is empty or not set."""
    return os.environ.get(name, "").strip() or None


def choice(name: str, allowed: tuple[str, ...]) -> str | None:
    """The value of a variable, one of `allowed`, in lower case; None if the variable is empty or not set.

    Raises:
        SettingError: the variable has another value.
    """
    word = os.environ.get(name, "").strip().lower()
    if word and word not in allowed:
        raise SettingError(f"{name}: {os.environ[name]!r} is not allowed; allowed are {', '.join(allowed)}")
    return word or None
