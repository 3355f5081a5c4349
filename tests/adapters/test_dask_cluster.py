"""Every worker of a cluster has a device, restarts with it, and holds no array that is larger than its memory."""

import functools
import os
from dataclasses import replace

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Variable

import dmlgpu
from dmlgpu import interop
from dmlgpu.interop.dask import LocalVulkanCluster
from tests.adapters.on_workers import falling, opened, peak, settings, slow_block
from tests.support.drivers import DRIVERS, device_of
from tests.support.errors import refuses

GIB = 1 << 30


@pytest.fixture(scope="module")
def infos():
    return [device_of(DRIVERS[name]) for name in ("lavapipe", "swiftshader")]


cluster_of = functools.partial(LocalVulkanCluster, dashboard_address=":0")


@pytest.fixture(scope="module")
def cluster(infos):
    """Two workers, one on each driver."""
    with cluster_of([info.uuid for info in infos]) as cluster:
        yield cluster


@pytest.fixture
def client(cluster):
    with cluster.get_client() as client:
        yield client


def workers_of(cluster):
    return list(cluster.scheduler_info["workers"].values())


def test_each_worker_is_a_process_with_one_of_the_named_devices(client, infos):
    uuids = sorted(info.uuid for info in infos)
    assert uuids[0] != uuids[1]
    assert sorted(client.run(opened).values()) == uuids
    chosen, processes = zip(*client.run(settings).values(), strict=True)
    assert sorted(chosen) == uuids
    assert len({*processes, os.getpid()}) == 3


def test_each_worker_has_the_resource_and_its_share_of_memory(cluster, client):
    for worker in workers_of(cluster):
        assert worker["resources"] == {"vulkan": 1}
        assert worker["nthreads"] == 1
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        assert 0 < worker["memory_limit"] <= total // 2
    assert client.submit(opened, resources={"vulkan": 1}).result()


def test_results_are_those_of_the_whole_array(client):
    rng = np.random.default_rng(1)
    x = rng.integers(0, 4, (60, 50, 9)).astype(np.float32)
    d = da.from_array(x, chunks=(17, 20, 5))
    assert dmlgpu.argmax(d).compute() == x.argmax()
    np.testing.assert_array_equal(dmlgpu.argmin(d, (0, 2)).compute(), dmlgpu.argmin(x, (0, 2)))
    np.testing.assert_array_equal(dmlgpu.sum(d, 1).compute(), x.sum(1))
    window = {"strides": (2, 1, 1), "padding": 1, "output_indices": True}
    expected = dmlgpu.max_pooling(x, (3, 5, 3), **window)
    for ours, theirs in zip(dask.compute(*dmlgpu.max_pooling(d, (3, 5, 3), **window)), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


ROWS_OF_A_FILE = 2_600, 1_000  # 10.4 MB of float32; distributed's limit is 10 MB


class File:
    """An array of a file, which is sent as a path."""

    def __init__(self, path):
        x = np.load(path, mmap_mode="r")
        self.path, self.shape, self.dtype, self.ndim = path, x.shape, x.dtype, x.ndim

    def __getitem__(self, part):
        return np.load(self.path, mmap_mode="r")[part]


def from_blocks(path):
    return da.from_array(File(path), chunks=(1_300, 1_000))


def from_memory(path):
    return da.from_array(np.load(path), chunks=(130, 1_000))


# Dask arrays whose graphs hold the elements, and others.
EMBEDDED = {
    "memmap": lambda path: da.from_array(np.load(path, mmap_mode="r"), chunks=(1_300, 1_000)),
    "memmap inline": lambda path: da.from_array(np.load(path, mmap_mode="r"), chunks=(1_300, 1_000), inline_array=True),
    "ndarray": from_memory,
    "one chunk": lambda path: da.from_array(np.load(path)),
    "argument": lambda path: from_blocks(path).map_blocks(np.add, np.load(path), dtype="f4"),
    "option": lambda path: from_blocks(path).map_blocks(lambda x, y: x, y=np.load(path), dtype="f4"),
    "delayed": lambda path: da.from_delayed(dask.delayed(np.load(path)), ROWS_OF_A_FILE, "f4"),
    "task": lambda path: da.from_delayed(dask.delayed(np.negative)(np.load(path)), ROWS_OF_A_FILE, "f4"),
    "keyword": lambda path: da.from_delayed(dask.delayed(lambda x: x)(x=np.load(path)), ROWS_OF_A_FILE, "f4"),
    "chunks": lambda path: (from_memory(path) + 1)[:2_510].rechunk(500),
}
NOT_EMBEDDED = {
    "file": from_blocks,
    "part": lambda path: from_memory(path)[:2_340],
    "one option": lambda path: from_blocks(path).map_blocks(lambda x, y: x, y=np.load(path)[:1_500], dtype="f4"),
    "nothing": lambda path: da.zeros(ROWS_OF_A_FILE, dtype="f4"),
}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("arrays") / "x.npy"
    np.save(path, np.zeros(ROWS_OF_A_FILE, np.float32))
    return path


@pytest.mark.parametrize("make", EMBEDDED.values(), ids=EMBEDDED)
def test_a_warning_precedes_graphs_that_send_arrays(client, path, make):
    x = make(path)
    with pytest.warns(UserWarning, match=r"^argmax\.x: its graph holds 9\.\d\d MiB") as warnings:
        dmlgpu.argmax(x)
    assert [warning.filename for warning in warnings] == [__file__]
    with pytest.warns(UserWarning, match=r"docs/scaling\.md"):
        dmlgpu.max_pooling(x, 2)
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "11MB"}):
        dmlgpu.argmax(x)
    with dask.config.set(scheduler="threads"):
        dmlgpu.argmax(x)


@pytest.mark.parametrize("make", NOT_EMBEDDED.values(), ids=NOT_EMBEDDED)
def test_no_warning_precedes_other_graphs(client, path, make):
    dmlgpu.argmax(make(path))


def test_no_warning_precedes_graphs_that_are_not_sent(path):
    dmlgpu.argmax(EMBEDDED["memmap"](path))


def test_errors_of_devices_come_from_the_worker(client):
    lazy = dmlgpu.argmax(da.ones(4, chunks=2, dtype=np.float32), device="another")
    refuses("there is no device 'another'", lazy.compute, error=dmlgpu.DeviceError)


def test_a_worker_that_is_killed_restarts_with_its_device(client, infos):
    before = client.run(settings)
    Variable("times").set(0)
    numbers = da.arange(40, chunks=1).reshape(40, 1)
    x = numbers.map_blocks(slow_block, chunks=((32,) * 40, (32,)), dtype=np.float32, meta=np.empty((0, 0), np.float32))
    index, maxima = dask.compute(dmlgpu.argmax(x), dmlgpu.max(x, 1))
    assert Variable("times").get() == 2
    assert index == (19 * 32 + 3) * 32 + 4
    expected = np.full((40, 32), -1)
    expected[:, 3] = np.arange(40) % 20
    np.testing.assert_array_equal(maxima, expected.ravel())
    client.wait_for_workers(2, timeout=30)
    after = client.run(settings)
    (new,) = set(after.values()) - set(before.values())
    (old,) = set(before.values()) - set(after.values())
    assert new[0] == old[0]
    assert sorted(client.run(opened).values()) == sorted(info.uuid for info in infos)


def test_workers_share_devices_in_turn(infos):
    lavapipe, swiftshader = (info.uuid for info in infos)
    with cluster_of([infos[0].name, infos[1].index], n_workers=3) as cluster:
        assert devices_of(cluster) == [lavapipe, swiftshader, lavapipe]
        cluster.scale(1)
        cluster.scale(4)
        assert sorted(devices_of(cluster)) == sorted([lavapipe, swiftshader] * 2)


def devices_of(cluster):
    return [spec["options"]["env"]["DMLGPU_DEVICE"] for spec in cluster.worker_spec.values()]


def test_further_arguments_are_those_of_local_cluster(infos):
    more = {"resources": {"disk": 2}, "env": {"OTHER": "1"}, "memory_limit": GIB, "threads_per_worker": 2}
    with cluster_of([infos[0].index], **more) as cluster:
        (worker,) = workers_of(cluster)
        assert worker["resources"] == {"vulkan": 1, "disk": 2}
        assert (worker["memory_limit"], worker["nthreads"]) == (GIB, 2)
        (spec,) = cluster.worker_spec.values()
        assert spec["options"]["env"] == {"OTHER": "1", "DMLGPU_DEVICE": infos[0].uuid}


def test_no_process_holds_an_array_of_4_gib(infos):
    size, chunks, before = 4096, 64, peak()
    empty = np.empty((0, 0), np.float32)
    x = da.map_blocks(falling, chunks=((size,) * chunks, (size,)), dtype=np.float32, meta=empty)
    assert x.nbytes == 4 * GIB
    expected = np.zeros(size)
    expected[1234] = row = 37 * size + size // 2
    with cluster_of([infos[0].uuid], n_workers=2) as cluster, cluster.get_client() as client:
        index, rows = dask.compute(dmlgpu.argmax(x), dmlgpu.argmax(x, 0))
        assert index == row * size + 1234
        np.testing.assert_array_equal(rows, expected)
        peaks = client.run(peak).values()
        assert len(peaks) == 2
        assert max(peaks) < GIB
        # The scheduler is in this process, which other tests have filled.
        assert peak() - before < GIB


# Arguments


def test_devices_are_gpus_or_the_best_one(infos, monkeypatch):
    def names_of(*listed, devices=None):
        monkeypatch.setattr("dmlgpu.runtime.drivers.devices", lambda: listed)
        return interop.dask._names(devices)

    lavapipe, swiftshader = (replace(info, index=i) for i, info in enumerate(infos))
    gpus = [replace(lavapipe, index=i, type=kind, uuid=f"{i}" * 32) for i, kind in ((2, "discrete"), (3, "integrated"))]
    assert names_of(swiftshader, lavapipe) == [lavapipe.uuid]
    assert names_of(lavapipe, swiftshader, *gpus) == ["2" * 32, "3" * 32]
    assert names_of(lavapipe, *gpus, devices=[3]) == ["3" * 32]
    # Drivers that run on the CPU may have the same UUID.
    assert names_of(lavapipe, replace(swiftshader, uuid=lavapipe.uuid)) == ["0"]
    monkeypatch.setenv("DMLGPU_DEVICE", "1")
    assert names_of(lavapipe, swiftshader, *gpus) == [swiftshader.uuid]
    monkeypatch.setenv("DMLGPU_DEVICE", "another")
    words = r"^DMLGPU_DEVICE: there is no device 'another'; devices are 0: "
    refuses(words, names_of, lavapipe, swiftshader, *gpus, error=dmlgpu.DeviceError)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"devices": ["another"]}, dmlgpu.DeviceError, r"there is no device 'another'; devices are 0: "),
        ({"devices": [99]}, dmlgpu.DeviceError, "there is no device 99; devices are"),
        ({"devices": [True]}, TypeError, "a device is chosen by its index"),
        ({"devices": "llvmpipe"}, TypeError, "devices: 'llvmpipe' is not allowed; give a list"),
        ({"devices": []}, ValueError, r"devices: \[\] is empty"),
        *(({"n_workers": count}, ValueError, r"LocalVulkanCluster\.n_workers: ") for count in (-1, 1.5, "2", True)),
        *(
            ({"threads_per_worker": count}, ValueError, r"LocalVulkanCluster\.threads_per_worker: ")
            for count in (0, -1, 1.5, "2", True)
        ),
        ({"env": {"DMLGPU_DEVICE": "0"}}, ValueError, "env: DMLGPU_DEVICE is not .* choose the devices with devices="),
        ({"processes": False}, ValueError, "processes: False is not allowed"),
    ],
)
def test_wrong_arguments_are_refused(options, error, words):
    refuses(words, LocalVulkanCluster, error=error, **options)


def test_workers_start_by_spawn_alone():
    with dask.config.set({"distributed.worker.multiprocessing-method": "fork"}):
        refuses("'fork' is not allowed; allowed is spawn", LocalVulkanCluster, error=ValueError)
