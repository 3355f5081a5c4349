"""Chooses the build of Kompute: dmlgpu_kp, or the original kp if only that is installed."""

from __future__ import annotations

import logging
from importlib import metadata
from typing import Any

from dmlgpu.errors import DeviceError, import_problem

KP_VERSION = "0.9.0"
PACKAGE = "dmlgpu-kp"
PACKAGE_VERSION = "0.9.0.post5"
# All names that dmlgpu uses. Kompute's later sources still say 0.9.0, but have renamed some of them.
NAMES = {
    "Manager": ("algorithm", "destroy", "get_device_properties", "sequence", "tensor_t"),
    "OpAlgoDispatch": (),
    "OpTensorSyncDevice": (),
    "OpTensorSyncLocal": (),
    "Sequence": ("eval", "record"),
    "Tensor": ("data", "destroy"),
    "TensorTypes": ("device", "host"),
}


def kompute() -> Any:
    """Kompute's module: if possible dmlgpu_kp, because kp ends the process if a driver refuses something.

    Raises:
        DeviceError: no module is installed, or it cannot be loaded.
    """
    try:
        import dmlgpu_kp
    except ImportError as error:
        # Importing kp adds a handler to the root logger.
        handlers = list(logging.root.handlers)
        kp = _kp()
        logging.root.handlers[:] = handlers
        if kp is None:
            problem = import_problem(error, "dmlgpu_kp")
            raise DeviceError(
                f"the package {PACKAGE} {problem}. Install {PACKAGE} {PACKAGE_VERSION} as docs/installing.md says"
            ) from None
        return kp
    return dmlgpu_kp


def _kp() -> Any:
    """The original module kp; None if it is not installed, or is not the version that dmlgpu knows."""
    try:
        if metadata.version("kp") != KP_VERSION:
            return None
        import kp
    except ImportError:  # also metadata's PackageNotFoundError
        return None
    return kp if _is_complete(kp) else None


def _is_complete(kp: Any) -> bool:
    return all(hasattr(kp, name) and all(hasattr(getattr(kp, name), part) for part in NAMES[name]) for name in NAMES)


def package_of(module: Any) -> str:
    """The name of the package that has `module`, a result of `kompute`."""
    return "kp" if module.__name__ == "kp" else PACKAGE


def memory_left(manager: Any) -> list[int]:
    """Bytes that the driver would still give of every heap; empty if the driver, or the original kp, does not say."""
    return manager.get_memory_left() if hasattr(manager, "get_memory_left") else []
