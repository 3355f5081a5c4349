"""Which build of Kompute is used: dmlgpu_kp, or kp as it is where that is all there is."""

from __future__ import annotations

import logging
from importlib import metadata
from typing import Any

from dmlgpu.errors import DeviceError, import_problem

KP_VERSION = "0.9.0"
PACKAGE = "dmlgpu-kp"
PACKAGE_VERSION = "0.9.0.post2"
# All that dmlgpu calls. What Kompute calls 0.9.0 after its release has renamed some of it.
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
    """Kompute's module: dmlgpu_kp, because kp ends the process where a driver refuses something.

    Raises:
        DeviceError: there is none, or it cannot be loaded.
    """
    try:
        import dmlgpu_kp
    except ImportError as error:
        # Importing kp puts a handler on the root logger.
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
    """The module kp as it is; None where it is not there, or another than dmlgpu knows."""
    try:
        if metadata.version("kp") != KP_VERSION:
            return None
        import kp
    except ImportError:  # what metadata raises is one, too
        return None
    return kp if _is_complete(kp) else None


def _is_complete(kp: Any) -> bool:
    return all(hasattr(kp, name) and all(hasattr(getattr(kp, name), part) for part in NAMES[name]) for name in NAMES)


def package_of(module: Any) -> str:
    """The package that a module of `kompute()` is of."""
    return "kp" if module.__name__ == "kp" else PACKAGE


def memory_left(manager: Any) -> list[int]:
    """Bytes that the driver would still give of every memory heap; empty where it, or kp as it is, does not say."""
    return manager.get_memory_left() if hasattr(manager, "get_memory_left") else []
