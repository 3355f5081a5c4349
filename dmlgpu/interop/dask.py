"""Reductions, cumulative functions and poolings of Dask arrays, chunk by chunk, on the Vulkan devices of the workers.

    from dmlgpu.interop.dask import LocalVulkanCluster
    with LocalVulkanCluster() as cluster, cluster.get_client():
        dmlgpu.argmax(x, axis=(1, 2)).compute()

dmlgpu's functions accept Dask arrays with any chunks, and return Dask arrays: no chunk is loaded until these are
computed. With `out=` the results are computed at once, must fit in memory, and are written to `out`, as for
`dmlgpu.chunked`. Results equal those of the whole array: indices count over all chunks, and of equal elements in
several chunks the same one wins. Sums and products of floats are also rounded once per chunk, unless they are exact:
docs/scaling.md has the bound.

The process that has a chunk computes it, on the device that `device=` names there, or its default device.

Needs the extra `dask`.

Raises:
    DescriptorError: chunks of x are not NumPy arrays, or its shape is unknown; another argument is not allowed; or a
        computed chunk has another type or shape than x declares.
    TypeError: `device` is neither an integer nor a string.
    DeviceError, OutOfMemoryError: as for dmlgpu's functions, from the worker, when the result is computed.
"""

from __future__ import annotations

import itertools
import math
import warnings
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from dmlgpu.call import Call, Operand
from dmlgpu.chunks.pooling import Pooling, elements_of
from dmlgpu.chunks.reduction import Reduction
from dmlgpu.chunks.regions import Region
from dmlgpu.chunks.scan import Scan
from dmlgpu.chunks.targets import targets_of
from dmlgpu.descriptors.cumulative import CumulativeOperatorDesc
from dmlgpu.descriptors.pooling import PoolingOperatorDesc
from dmlgpu.descriptors.tensor import Array, as_array, check_plain, described, unsigned
from dmlgpu.descriptors.window import Window
from dmlgpu.errors import DescriptorError, extra
from dmlgpu.runtime import drivers
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.drivers import index_of
from dmlgpu.runtime.settings import setting
from dmlgpu.sources import Source

with extra("dask", "dask", "distributed"):
    import dask
    import dask.array as da
    from dask import config
    from dask.array.chunk import getitem
    from dask.base import tokenize
    from dask.blockwise import Blockwise
    from dask.core import flatten
    from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
    from dask.layers import ArrayBlockIdDep, ArrayChunkShapeDep
    from dask.task_spec import DataNode, Task, TaskRef
    from dask.utils import format_bytes, parse_bytes
    from distributed import Client, LocalCluster
    from distributed.system import MEMORY_LIMIT

__all__ = ["LocalVulkanCluster"]

# Allowed values of `device=`; None: the default device of the process.
Selector = int | str | None


class DaskArray(Source):
    """A Dask array: its results are Dask arrays, and no chunk is loaded until these are computed."""

    def __init__(self, x: Any, name: str) -> None:
        if not isinstance(x, da.Array):
            raise DescriptorError(
                f"{name}: {described(x)} is not an array; allowed are Dask arrays, such as x.to_dask_array()"
            )
        if not isinstance(x._meta, np.ndarray):
            raise DescriptorError(f"{name}: chunks of x are {described(x._meta)}; allowed are those of NumPy")
        check_plain(x, name)
        if any(math.isnan(size) for size in x.shape):
            raise DescriptorError(f"{name}: the shape {x.shape} is unknown; call x.compute_chunk_sizes()")
        self._x, self._name = x, name

    @property
    def operand(self) -> Operand:
        return Operand(self._x.shape, self._x.dtype, in_parts=True)

    def compute(self, call: Call, out: Any, device: Any) -> Any:
        if isinstance(device, Device):
            raise TypeError("device: a Device stays in its process; give its index, part of its name or its UUID")
        if not isinstance(device, (str, type(None))):
            index_of(device)
        if call.fill is not None and 0 not in call.shape:  # otherwise the chunks are still checked
            results = (_filled(call),)
        elif isinstance(call.desc, PoolingOperatorDesc):
            results = _pooled(Pooling.of(call, self._x.shape), self._checked(), device)
        elif isinstance(call.desc, CumulativeOperatorDesc):
            results = (_scanned(Scan.of(call, self.operand), self._checked(), device),)
        else:
            results = _reduced(Reduction.of(call, self.operand), self._checked(), device)
        if out is not None:
            with targets_of(self._x, call, out) as targets:
                # dask.array.store has workers write: those in other processes would write to copies.
                for target, values in zip(targets, dask.compute(*results), strict=True):
                    target[...] = values
            results = tuple(targets)
        return results if len(results) > 1 else results[0]

    def _checked(self) -> Any:
        """The array with a task that checks each chunk, because chunks may differ from what the array declares."""
        x = self._x
        if _is_sent():
            limit = parse_bytes(config.get("distributed.admin.large-graph-warning-threshold"))
            # Only the tasks that x needs are sent. Their selection is slow, so all are counted first.
            if _embedded(x.dask) > limit and (size := _embedded(x.dask.cull(x.__dask_keys__()))) > limit:
                warnings.warn(
                    f"{self._name}: its graph holds {format_bytes(size)} of NumPy arrays, which are sent with it. "
                    "Let the workers read what they need, as docs/scaling.md shows",
                    stacklevel=4,
                )
        axes = tuple(range(x.ndim))
        place, sizes = ArrayBlockIdDep(x.chunks), ArrayChunkShapeDep(x.chunks)
        # `map_blocks` passes many more arguments to each chunk, and needs twice the time.
        return da.blockwise(
            _checked_chunk,
            axes,
            *(x, axes),
            *(place, axes),
            *(sizes, axes),
            field=self._name,
            declared=x.dtype,
            align_arrays=False,
            dtype=x.dtype,
            meta=x._meta,
        )


def _is_sent() -> bool:
    """Whether graphs are sent to other processes with Dask's present settings and client."""
    if config.get("scheduler", None) not in (None, "distributed", "dask.distributed"):
        return False
    try:
        Client.current()
    except ValueError:
        return False
    return True


def _embedded(graph: HighLevelGraph) -> int:
    """Bytes of the NumPy arrays in the graph itself, without those that its tasks create."""
    held: dict[int, int] = {}
    nodes: Iterable[Any]
    for layer in graph.layers.values():
        if isinstance(layer, Blockwise):
            nodes = [layer.task, *(value for value, labels in layer.indices if labels is None)]
        else:
            nodes = layer.mapping.values() if isinstance(layer, MaterializedLayer) else ()
        for node in nodes:
            match node:
                case DataNode():
                    values = [node.value]
                case Task():
                    values = [*node.args, *node.kwargs.values()]
                case _:
                    values = [node]
            held |= {id(value): value.nbytes for value in values if isinstance(value, np.ndarray)}
    return sum(held.values())


def _checked_chunk(
    chunk: Any, place: Sequence[int], sizes: Sequence[int], field: str, declared: np.dtype[Any]
) -> Array:
    """The chunk as an array. Raises if type or shape differ from what x declares; the byte order may differ."""
    name = f"{field}: chunk {place} of x"
    if not isinstance(chunk, (np.ndarray, np.generic)):  # a 0-D chunk may be either
        raise DescriptorError(f"{name} is {described(chunk)}; allowed are those of NumPy")
    array = as_array(chunk, name)
    if array.dtype.newbyteorder("=") != declared.newbyteorder("=") or array.shape != sizes:
        raise DescriptorError(f"{name} is {array.dtype} of {array.shape}, declared as {declared} of {sizes}")
    return array


def _meta(rank: int, dtype: Any) -> Array:
    return np.empty((0,) * rank, dtype)


def _reduced(reduction: Reduction, x: Any, device: Selector) -> tuple[Any, ...]:
    """The results of a reduction of x, as Dask arrays."""
    x = _without_empty_chunks(x.reshape(reduction.shape))
    if reduction.exact and all(x.numblocks[axis] == 1 for axis in reduction.axes):
        # All elements of an output are in one chunk, so there are no partials.
        return (
            x.map_blocks(
                _outputs_of_whole,
                reduction=reduction,
                device=device,
                chunks=reduction.reduced(
                    tuple((1,) if i in reduction.axes else sizes for i, sizes in enumerate(x.chunks))
                ),
                drop_axis=() if reduction.keepdims else reduction.axes,
                dtype=reduction.dtypes[0],
                meta=_meta(len(reduction.reduced(reduction.sizes)), reduction.dtypes[0]),
            ),
        )
    partials = x.map_blocks(
        _partial,
        reduction=reduction,
        device=device,
        chunks=tuple((1,) * len(sizes) if i in reduction.axes else sizes for i, sizes in enumerate(x.chunks)),
        dtype=reduction.partial_type,
        meta=_meta(x.ndim, reduction.partial_type),
    )
    return tuple(
        da.reduction(
            partials,
            chunk=_unchanged,
            combine=partial(_merged, reduction),
            aggregate=partial(_result, reduction, i),
            axis=reduction.axes,
            keepdims=reduction.keepdims,
            output_size=reduction.k or 1,
            concatenate=False,
            # The type of partials, also merged ones; results have the type of `meta`.
            dtype=reduction.partial_type,
            meta=_meta(len(reduction.reduced(reduction.sizes)), dtype),
        )
        for i, dtype in enumerate(reduction.dtypes)
    )


def _without_empty_chunks(x: Any) -> Any:
    """The array without its empty chunks, which have no partial result."""
    return x.rechunk(tuple(tuple(size for size in sizes if size) or (0,) for sizes in x.chunks))


def _filled(call: Call) -> Any:
    """The results, as a Dask array, of a reduction over no elements."""
    (dtype,) = call.dtypes
    results = da.full(call.shape, call.fill, dtype=dtype)
    # As in NumPy: a scalar, not a 0-D array.
    return results if call.shape else results.map_blocks(itemgetter(()), dtype=dtype, meta=_meta(0, dtype))


def _partial(chunk: Array, reduction: Reduction, device: Selector, block_info: Any) -> Array:
    begin = tuple(begin for begin, _ in block_info[0]["array-location"])
    return reduction.partial(chunk, begin, device)


def _outputs_of_whole(chunk: Array, reduction: Reduction, device: Selector) -> Any:
    # As in NumPy: a scalar, not a 0-D array.
    return reduction.outputs(chunk, (0,) * chunk.ndim, device)[0][()]


def _unchanged(partials: Array, axis: Any, keepdims: bool) -> Array:
    return partials


def _merged(reduction: Reduction, partials: Any, axis: Any, keepdims: bool) -> Array:
    # Dask passes nested lists of partials, one level per axis. Exact sums have any number of terms along axes[0], and
    # size 1 along the other reduced axes.
    return reduction.merged(np.concatenate([*flatten([partials])], reduction.axes[0]))


def _result(reduction: Reduction, number: int, partials: Any, axis: Any, keepdims: bool) -> Any:
    # As in NumPy: a scalar, not a 0-D array.
    return reduction.results(_merged(reduction, partials, axis, keepdims))[number][()]


def _scanned(scan: Scan, x: Any, device: Selector) -> Any:
    """The values of a scan of x, as a Dask array.

    Each chunk has three tasks: for its totals, for the totals of all elements up to its end, and for its values.
    """
    x = _without_empty_chunks(x.reshape(scan.totals.shape))
    token, dtype = tokenize(x, scan, device), scan.totals.dtypes[0]
    name, total_name, joined_name = (f"scan-{what}{token}" for what in ("", "total-", "joined-"))
    tasks = {}
    *parts, last = range(x.numblocks[scan.axis])[:: 1 if scan.ascends else -1]
    for place in itertools.product(*map(range, (*x.numblocks[: scan.axis], 1, *x.numblocks[scan.axis + 1 :]))):
        before = None
        for i in (*parts, last):
            chunk = (*place[: scan.axis], i, *place[scan.axis + 1 :])
            elements, key = TaskRef((x.name, *chunk)), (name, *chunk)
            tasks[key] = Task(key, scan.values, elements, before, device)
            if i != last:
                key = (total_name, *chunk)
                tasks[key] = Task(key, scan.total, elements, device)
                total, key = TaskRef(key), (joined_name, *chunk)
                tasks[key] = Task(key, scan.joined, before, total)
                before = TaskRef(key)
    graph = HighLevelGraph.from_collections(name, tasks, dependencies=[x])
    values = da.Array(graph, name, x.chunks, dtype=dtype)
    if not scan.has_initial:
        return values
    initial = da.full(tuple(1 if i == scan.axis else size for i, size in enumerate(x.shape)), scan.initial, dtype=dtype)
    return da.concatenate([initial, values] if scan.ascends else [values, initial], scan.axis)


def _pooled(pooling: Pooling, x: Any, device: Selector) -> tuple[Any, ...]:
    outputs = _outputs(pooling, x, device)
    if len(pooling.dtypes) == 1:
        return (outputs,)
    return tuple(
        outputs.map_blocks(itemgetter(i), dtype=dtype, meta=_meta(x.ndim, dtype))
        for i, dtype in enumerate(pooling.dtypes)
    )


def _outputs(pooling: Pooling, x: Any, device: Selector) -> Any:
    """The outputs as a Dask array; its chunks are tuples if there are several results.

    There is a task for each region, and one for each part of a chunk that the region needs: only these parts are sent.
    """
    token = tokenize(x, pooling, device)
    name, part_name = f"pooling-{token}", f"pooling-part-{token}"
    leading = [_whole(sizes) for sizes in x.chunks[: pooling.leading]]
    along = leading + list(map(_needed, pooling.windows, x.chunks[pooling.leading :]))
    tasks = {}
    for place in itertools.product(*(range(len(cuts)) for cuts in along)):
        region, needed = zip(*(cuts[i] for cuts, i in zip(along, place, strict=True)), strict=True)
        parts = []
        for number, part in enumerate(itertools.product(*needed)):
            chunk, slices = zip(*part, strict=True)
            key = (part_name, *place, number)
            tasks[key] = Task(key, getitem, TaskRef((x.name, *chunk)), slices)
            parts.append(TaskRef(key))
        key = (name, *place)
        tasks[key] = Task(key, _pool, pooling, device, region, tuple(map(len, needed)), *parts)
    graph = HighLevelGraph.from_collections(name, tasks, dependencies=[x])
    chunks = tuple(tuple(part.stop - part.start for part, _ in cuts) for cuts in along)
    return da.Array(graph, name, chunks, dtype=pooling.dtypes[0] if len(pooling.dtypes) == 1 else object)


# Ranges of outputs along a dimension; for each range the parts of chunks that it needs, as chunk number and slice.
Cuts = list[tuple[slice, list[tuple[int, slice]]]]


def _whole(sizes: Sequence[int]) -> Cuts:
    """Along a dimension without windows: a range for each chunk."""
    ends = itertools.accumulate(sizes)
    return [(slice(end - size, end), [(i, slice(size))]) for i, (size, end) in enumerate(zip(sizes, ends, strict=True))]


def _needed(windows: Window, sizes: Sequence[int]) -> Cuts:
    """Along a spatial dimension: a range for the windows that begin in a chunk; the first also for earlier windows."""
    ends = [*itertools.accumulate(sizes)]
    # For each chunk, the first output whose window begins after it.
    cuts = {min(windows.first_from(end), windows.output_size) for end in ends}
    ranges = []
    for begin, end in itertools.pairwise(sorted(cuts | {0})):
        source = elements_of(windows, slice(begin, end))
        numbers = range(bisect_right(ends, source.start), bisect_left(ends, source.stop) + 1)
        parts = []
        for i in numbers:
            first = ends[i] - sizes[i]
            parts.append((i, slice(max(source.start - first, 0), min(source.stop, ends[i]) - first)))
        ranges.append((slice(begin, end), parts))
    return ranges


def _pool(pooling: Pooling, device: Selector, region: Region, counts: Sequence[int], *parts: Array) -> Any:
    """A region of the outputs, or a tuple of two, from parts of x in row-major order, `counts` along each dimension."""
    joined = [*parts]
    for axis in reversed(range(len(counts))):
        rows = range(0, len(joined), counts[axis])
        if counts[axis] > 1:
            joined = [np.concatenate(joined[i : i + counts[axis]], axis) for i in rows]
    results = pooling.outputs(joined[0], region, device)
    return results if len(results) > 1 else results[0]


# A cluster on this machine


class LocalVulkanCluster(LocalCluster):  # type: ignore[misc]  # mypy skips distributed
    """A worker process for each Vulkan device of this machine, which is the default device of the worker's tasks.

    Workers have the resource `vulkan`: 1. Worker processes are started with spawn, so a script needs `if __name__ ==
    "__main__":` around the code that makes the cluster. A worker that dies is restarted with the same device.

    Args:
        devices: a list of indices, parts of names or UUIDs, as for `Device`. None: the device that DMLGPU_DEVICE names;
            if it is not set, all GPUs, or the best device if there is no GPU.
        n_workers: number of workers. None: one per device. More workers than devices share devices evenly.
        threads_per_worker: number of tasks that a worker runs at a time; only one of them uses the device.
        **kw: further arguments of `distributed.LocalCluster`. By default `memory_limit` is an equal share of the
            machine's memory.

    Raises:
        DeviceError: no device, or more than one, matches an entry of `devices`; the message lists the devices.
        TypeError: `devices` is not a list, or an entry is neither an integer nor a string.
        ValueError: `devices` is empty, a number is not an integer or too small, `env` has DMLGPU_DEVICE, `processes` is
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
            raise ValueError("env: DMLGPU_DEVICE is not allowed; choose the devices with devices=")
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
        """The next worker's name and specification, with the device that the fewest workers use."""
        ((name, spec),) = super().new_worker_spec().items()
        options = spec["options"]
        used = Counter(other["options"]["env"]["DMLGPU_DEVICE"] for other in self.worker_spec.values())
        env = {**options.get("env", {}), "DMLGPU_DEVICE": min(self._devices, key=used.__getitem__)}
        return {name: {**spec, "options": {**options, "env": env}}}


def _names(devices: Sequence[int | str] | None) -> list[str]:
    """The names by which worker processes select their devices."""
    infos = drivers.devices()
    if devices is None:
        gpus = [info for info in infos if info.type != "cpu"]
        chosen = gpus if gpus and setting("DMLGPU_DEVICE") is None else [drivers.default(infos)]
    elif isinstance(devices, (list, tuple)):
        chosen = [drivers.choose(infos, selector) for selector in devices]
    else:
        raise TypeError(f"devices: {devices!r} is not allowed; give a list of indices, parts of names or UUIDs")
    if not chosen:
        raise ValueError(f"devices: {devices!r} is empty; leave it out for all GPUs")
    uuids = [info.uuid for info in infos]
    # Several CPU drivers may have the same UUID.
    return [info.uuid if uuids.count(info.uuid) == 1 else str(info.index) for info in chosen]
