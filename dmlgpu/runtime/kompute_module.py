"""Chooses the build of Kompute: dmlgpu_kp, or the original kp if DMLGPU_KOMPUTE is kp."""

from __future__ import annotations

import logging
from importlib import metadata
from typing import Any

from dmlgpu.errors import DeviceError, import_problem
from dmlgpu.runtime.settings import choice

KP_VERSION = "0.9.0"
PACKAGE = "dmlgpu-kp"
PACKAGE_VERSION = "0.9.0.post9"
# All classes and methods of Kompute that dmlgpu uses. Kompute's later sources, still of version 0.9.0, renamed some.
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
    """Kompute's module: dmlgpu_kp, or kp if DMLGPU_KOMPUTE is kp. kp ends the process if a driver refuses a call.

    Raises:
        DeviceError: the module is not installed, or cannot be used.
        SettingError: DMLGPU_KOMPUTE is neither dmlgpu_kp nor kp.
    """
    if choice("DMLGPU_KOMPUTE", ("dmlgpu_kp", "kp")) == "kp":
        return _kp()
    try:
        import dmlgpu_kp
    except ImportError as error:
        raise DeviceError(
            f"the package {PACKAGE} {import_problem(error, 'dmlgpu_kp')}. "
            f"Install {PACKAGE} {PACKAGE_VERSION} as in docs/installing.md"
        ) from None
    return dmlgpu_kp


def _kp() -> Any:
    """The original module kp, if it is the version that dmlgpu knows."""
    # Importing kp adds a handler to the root logger.
    handlers = list(logging.root.handlers)
    try:
        problem = f"is version {metadata.version('kp')}"
        if problem == f"is version {KP_VERSION}":
            import kp

            if _is_complete(kp):
                return kp
            problem = "lacks some of the names of that version"
    except metadata.PackageNotFoundError:
        problem = "is not installed"
    except ImportError as error:
        problem = import_problem(error, "kp")
    finally:
        logging.root.handlers[:] = handlers
    raise DeviceError(f"DMLGPU_KOMPUTE asks for the package kp {KP_VERSION}, which {problem}")


def _is_complete(kp: Any) -> bool:
    return all(hasattr(kp, name) and all(hasattr(getattr(kp, name), part) for part in NAMES[name]) for name in NAMES)


def package_of(module: Any) -> str:
    """The name of the package that contains `module`, a result of `kompute`."""
    return "kp" if module.__name__ == "kp" else PACKAGE
