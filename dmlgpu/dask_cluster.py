"""A cluster of Dask workers on this machine, each with a Vulkan device.

    with LocalVulkanCluster() as cluster, cluster.get_client():
        dask_array.argmax(x, axes=(1, 2)).compute()

Needs the extra `dask`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from dmlgpu.descriptors.tensor import unsigned
from dmlgpu.errors import extra
from dmlgpu.runtime import drivers
from dmlgpu.runtime.settings import setting

with extra("dask", "dask", "distributed"):
    import dask
    from distributed import LocalCluster
    from distributed.system import MEMORY_LIMIT


class LocalVulkanCluster(LocalCluster):  # type: ignore[misc]  # mypy skips distributed
    """One worker process for each Vulkan device of this machine; it is the default device of the worker's tasks.

    Workers have the resource `vulkan`: 1. They are started by spawn, so a script needs `if __name__ == "__main__":`
    around the code that makes the cluster. A worker that dies is started again with the same device.

    Args:
        devices: a list of what `Device` takes: indices, parts of names, or UUIDs. None: the device that DMLGPU_DEVICE
            names; if it is not set, all GPUs, or the best device if there is no GPU.
        n_workers: the number of workers. None: one for each device. If there are more, they share devices evenly.
        threads_per_worker: the number of tasks that a worker runs at a time; only one of them uses the device.
        **kw: further arguments of `distributed.LocalCluster`. If `memory_limit` is left out, each worker gets an equal
            share of the machine's memory.

    Raises:
        DeviceError: no device, or more than one, matches an entry of `devices`; the message lists the devices.
        TypeError: `devices` is no list, or an entry is neither an integer nor a string.
        ValueError: `devices` is empty, a number is no integer or too small, `env` has DMLGPU_DEVICE, `processes` is
            False, or Dask's setting for starting processes is not spawn.
    """

    def __init__(
        self,
        devices: Sequence[int | str] | None = None,
        n_workers: int | None = None,
        threads_per_worker: int = 1,
        **kw: Any,
    ) -> None:
        self._devices = _names(devices)
        count = len(self._devices) if n_workers is None else unsigned("LocalVulkanCluster", "n_workers", n_workers)
        method = dask.config.get("distributed.worker.multiprocessing-method")
        if method != "spawn":
            raise ValueError(f"distributed.worker.multiprocessing-method: {method!r} is not allowed; allowed is spawn")
        unsigned("LocalVulkanCluster", "threads_per_worker", threads_per_worker, 1)
        if "DMLGPU_DEVICE" in (kw.get("env") or {}):
            raise ValueError("env: DMLGPU_DEVICE is not allowed; devices= says which devices workers have")
        if not kw.pop("processes", True):
            raise ValueError("processes: False is not allowed; each worker is a process with a device of its own")
        kw = {"memory_limit": MEMORY_LIMIT // max(count, 1), **kw}
        resources = {"vulkan": 1, **(kw.pop("resources", None) or {})}
        super().__init__(n_workers=0, threads_per_worker=threads_per_worker, resources=resources, **kw)
        for _ in range(count):
            self.worker_spec.update(self.new_worker_spec())
        # An asynchronous cluster starts its workers when it is awaited.
        if not self.asynchronous:
            try:
                self.sync(self._correct_state)
            except BaseException:
                self.close()
                raise

    def new_worker_spec(self) -> dict[Any, Any]:
        """The next worker's name and specification, with the device that the fewest workers have."""
        ((name, spec),) = super().new_worker_spec().items()
        options = spec["options"]
        used = Counter(other["options"]["env"]["DMLGPU_DEVICE"] for other in self.worker_spec.values())
        env = {**options.get("env", {}), "DMLGPU_DEVICE": min(self._devices, key=used.__getitem__)}
        return {name: {**spec, "options": {**options, "env": env}}}


def _names(devices: Sequence[int | str] | None) -> list[str]:
    """The names by which worker processes select their devices."""
    found = drivers.devices()
    if devices is None:
        gpus = [info for info in found if info.type != "cpu"]
        chosen = gpus if gpus and setting("DMLGPU_DEVICE") is None else [drivers.default(found)]
    elif isinstance(devices, (list, tuple)):
        chosen = [drivers.choose(found, wanted) for wanted in devices]
    else:
        raise TypeError(f"devices: {devices!r} is not allowed; give a list of indices, parts of names or UUIDs")
    if not chosen:
        raise ValueError(f"devices: {devices!r} is empty; leave it out for all GPUs")
    uuids = [info.uuid for info in found]
    # Several CPU drivers may have the same UUID.
    return [info.uuid if uuids.count(info.uuid) == 1 else str(info.index) for info in chosen]
