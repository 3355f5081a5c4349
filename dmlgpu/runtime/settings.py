"""Variables of the environment: one set of words for all of them."""

from __future__ import annotations

import os

from dmlgpu.errors import SettingError

_ON = ("1", "true", "yes", "on")
_OFF = ("0", "false", "no", "off")
_LEVELS = ("info", "debug")


def switch(name: str) -> bool:
    """Whether a variable turns something on: 1, true, yes or on, in any case.

    0, false, no, off, nothing at all and no such variable leave it off.

    Raises:
        SettingError: it has another value.
    """
    return _word(name, _ON) is not None


def level(name: str) -> str | None:
    """The level of Python's logging that a variable asks for, INFO or DEBUG; None: what leaves a switch off.

    Raises:
        SettingError: it has another value.
    """
    word = _word(name, _LEVELS)
    return word and word.upper()


def setting(name: str) -> str | None:
    """What a variable holds, blanks around it left out; None where that is nothing."""
    return os.environ.get(name, "").strip() or None


def _word(name: str, allowed: tuple[str, ...]) -> str | None:
    """The one of these words that a variable has; None where it is off."""
    word = (setting(name) or _OFF[0]).lower()
    if word not in allowed + _OFF:
        raise SettingError(f"{name}: {os.environ[name]!r} is not allowed; allowed are {', '.join(allowed + _OFF)}")
    return word if word in allowed else None
