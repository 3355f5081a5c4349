"""Keeps a forked child from using Vulkan if it could wait forever for a thread that only its parent has."""

from __future__ import annotations

import os
import threading

from dmlgpu.errors import DeviceError

SPAWN = "open a device in a process that is started by spawn"
# Held while a thread lists or opens devices, because drivers then hold locks.
driver_lock = threading.RLock()
_forked = False


def check_process() -> None:
    """Raises a DeviceError in a fork in which drivers may hang.

    The parent of such a fork had open devices, or NVIDIA's driver, which stays loaded, or was listing devices.
    """
    if _forked:
        raise DeviceError(
            f"process {os.getpid()} is the fork of a process with open devices, NVIDIA's driver, or a thread that was "
            f"listing devices; drivers may hang here; {SPAWN}"
        )


def abandon() -> None:
    """Makes `check_process` fail in this child from now on."""
    global _forked
    _forked = True


def _check_lock_in_child() -> None:
    if driver_lock.acquire(blocking=False):
        driver_lock.release()
    else:
        abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_check_lock_in_child)
