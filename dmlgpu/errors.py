"""dmlgpu's exceptions, and the parts that their messages share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class DescriptorError(ValueError):
    """A descriptor, or an array for it, breaks one of DirectML's rules.

    The message names the descriptor, the field, the value received and what is allowed.
    """


class SettingError(ValueError):
    """An environment variable has a value that is not allowed; the message lists the allowed values."""


class DeviceError(RuntimeError):
    """A driver or device is missing, a device or device tensor cannot be used in this way, or a call has no result.

    A call has no result if the driver ended a loop of a shader early; the message has the plan.
    """


class DeviceLostError(DeviceError):
    """The driver did not run a submission. The device is closed; a new `Device()` works."""


class OutOfMemoryError(DeviceError, MemoryError):
    """A tensor does not fit the memory of the device."""


class VerificationError(AssertionError):
    """A result of the device differs from the NumPy oracle."""


def import_problem(error: ImportError, module: str) -> str:
    """Why a package cannot be used: the end of a sentence about `module`, whose import raised `error`."""
    missing = isinstance(error, ModuleNotFoundError) and error.name == module
    return "is not installed" if missing else f"cannot be loaded: {error}"


@contextmanager
def extra(name: str, *modules: str) -> Iterator[None]:
    """A block that imports modules which the extra `name` of dmlgpu installs.

    Raises:
        ModuleNotFoundError: a module is missing; the message says how to install the extra.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in modules:  # a module that these import is missing
            raise
        message = f"{error.name} is not installed: pip install 'dmlgpu[{name}]'"
        raise ModuleNotFoundError(message, name=error.name) from None


def shown(value: Any) -> str:
    """Any value as text for an error message: an array by its type and shape; long texts are cut."""
    rank = getattr(value, "ndim", 0)
    if hasattr(value, "dtype") and isinstance(rank, int) and rank > 0:
        return f"{type(value).__name__} of {value.dtype} and {value.shape}"
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print integers of thousands of digits
        text = f"{type(value).__name__} too long to print"
    return text if len(text) <= 200 else text[:200] + "..."
