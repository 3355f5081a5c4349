"""Devices that calls share: each is opened once."""

from __future__ import annotations

import os
import threading

from dmlgpu.runtime.device import Device
from dmlgpu.runtime.drivers import index_of, select
from dmlgpu.runtime.settings import setting

# What `device=` takes; None: the device that DMLGPU_DEVICE names, or the best device.
Selector = Device | int | str | None

_devices: dict[int | str | None, Device] = {}
_devices_lock = threading.Lock()
if hasattr(os, "register_at_fork"):
    # No fork while a device is being opened: the child would wait for ever for the lock, or in the driver.
    os.register_at_fork(
        before=_devices_lock.acquire, after_in_parent=_devices_lock.release, after_in_child=_devices_lock.release
    )


def open_device(selector: Selector = None) -> Device:
    """The device for the argument `device` of a function; selectors of the same device share one `Device`.

    It is opened again if it was closed or lost.

    Args:
        selector: a Device, which is returned; or what `Device` takes.

    Raises:
        DeviceError: there is no such device. TypeError: the selector is neither an integer nor a string.
    """
    if isinstance(selector, Device):
        return selector
    wanted = setting("DMLGPU_DEVICE") if selector is None else selector
    # `index_of` refuses True, which would be the key 1.
    key = wanted if wanted is None or isinstance(wanted, str) else index_of(wanted)
    with _devices_lock:
        device = _devices.get(key)
        if device is None or not device.is_open:
            others = [other for other in _devices.values() if other.is_open]
            # `select` asks the drivers, which takes time: skip it if no open device can be the same.
            info = select(selector) if others else None
            same = (other for other in others if other.info == info)
            device = _devices[key] = next(same, None) or Device(selector)
        return device
