"""The exceptions that dmlgpu raises on purpose, and what their messages share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class DescriptorError(ValueError):
    """A descriptor, or an array given to it, breaks one of DirectML's rules.

    The message names the descriptor, the field, the value received and what is allowed.
    """


class SettingError(ValueError):
    """A variable of the environment has a value that is not allowed; the message says which are."""


class DeviceError(RuntimeError):
    """There is no such driver or device, or a device or device tensor cannot be used in this way."""


class DeviceLostError(DeviceError):
    """The driver did not run what was submitted to it. The device is closed; a new one can be opened."""


class OutOfMemoryError(DeviceError, MemoryError):
    """A tensor does not fit the memory of the device."""


class VerificationError(AssertionError):
    """A result of the device differs from the NumPy oracle."""


def import_problem(error: ImportError, module: str) -> str:
    """What is wrong with a package whose module raised this."""
    missing = isinstance(error, ModuleNotFoundError) and error.name == module
    return "is not installed" if missing else f"cannot be loaded: {error}"


@contextmanager
def extra(name: str, *modules: str) -> Iterator[None]:
    """Around the imports of these modules, which an extra of dmlgpu installs.

    Raises:
        ModuleNotFoundError: one is missing; the message says how the extra is installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in modules:  # what they import themselves
            raise
        message = f"{error.name} is not installed: pip install 'dmlgpu[{name}]'"
        raise ModuleNotFoundError(message, name=error.name) from None


def shown(value: Any) -> str:
    """`value` as errors print it, whatever it is."""
    try:
        text = repr(value)
    except ValueError:  # Python prints no integers of thousands of digits
        text = f"{type(value).__name__} too long to print"
    return text if len(text) <= 200 else text[:200] + "..."
