"""What keeps a forked child from Vulkan where it would wait for ever for threads that it does not have."""

from __future__ import annotations

import os
import threading

from dmlgpu.errors import DeviceError

SPAWN = "open a device in a process that is started by spawn"
# Held by the thread that looks for devices or opens one: drivers hold locks meanwhile.
looking = threading.RLock()
_forked = False


def check_process() -> None:
    """Raises a DeviceError in a child of a process that had open devices, or a thread that looked for them."""
    if _forked:
        raise DeviceError(
            f"process {os.getpid()} is the fork of one with open devices, or with a thread that looked for them, where "
            f"drivers may hang; {SPAWN}"
        )


def abandon() -> None:
    """Has this child never ask for anything of Vulkan."""
    global _forked
    _forked = True


def _check_lock_in_child() -> None:
    if looking.acquire(blocking=False):
        looking.release()
    else:
        abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_check_lock_in_child)
