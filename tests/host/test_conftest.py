"""Which drivers and devices are under test."""

import os
from types import SimpleNamespace

import pytest

from dmlgpu.runtime.drivers import select
from tests import conftest
from tests.support.drivers import DRIVERS, device_of, find_drivers

HERE = [manifest for manifest in DRIVERS.values() if manifest]


@pytest.fixture(autouse=True)
def _unset(monkeypatch):
    for variable in ("DMLGPU_TEST_DRIVERS", "DMLGPU_TEST_ONLY", "DMLGPU_TEST_DEVICE"):
        monkeypatch.delenv(variable, raising=False)


def test_only_named_drivers(monkeypatch):
    name, manifest = list(DRIVERS.items())[-1]
    monkeypatch.setenv("DMLGPU_TEST_ONLY", str(manifest))
    assert find_drivers() == {name: manifest}
    monkeypatch.setenv("DMLGPU_TEST_ONLY", os.pathsep.join(["/no/such.json", str(manifest)]))
    assert find_drivers() == {"/no/such.json": None, name: manifest}


def test_drivers_beside_those_of_every_run(monkeypatch, tmp_path):
    both = {"lavapipe", "swiftshader"}
    assert set(find_drivers()) == both
    manifest = tmp_path / "gpu.json"
    manifest.touch()
    monkeypatch.setenv("DMLGPU_TEST_DRIVERS", str(manifest))
    assert find_drivers()["gpu"] == manifest
    assert set(find_drivers()) == {*both, "gpu"}


def item(marked, fixtures=(), **params):
    """A test with a driver, as pytest collects it."""
    return SimpleNamespace(
        callspec=SimpleNamespace(params=params), fixturenames=fixtures, get_closest_marker=lambda name: marked
    )


@pytest.mark.parametrize(
    ("marked", "fixtures", "params"),
    [
        (False, (), {}),
        (True, (), {"any_device": "lowered-limits"}),
        (True, (), {"mapped": "split", "kind": 1}),
        (True, (), {"mapping": "CPU-1"}),
        (True, ("driver", "lowered_devices"), {"case": None}),
        (True, ("driver", "cooperating"), {"case": None}),
        (True, ("driver", "staged"), {"operator": None}),
    ],
    ids=str,
)
def test_what_swiftshader_leaves_out(monkeypatch, marked, fixtures, params):
    assert conftest.is_left_out(item(marked, fixtures, driver="swiftshader", **params))
    assert not conftest.is_left_out(item(marked, fixtures, driver="lavapipe", **params))
    assert not conftest.is_left_out(item(marked, fixtures, driver="nvidia", **params))
    monkeypatch.setattr(conftest, "DRIVERS", {"swiftshader": None})
    assert not conftest.is_left_out(item(marked, fixtures, driver="swiftshader", **params))
    assert conftest.is_left_out(item(marked, fixtures, driver="lavapipe", **params))


@pytest.mark.parametrize(
    ("fixtures", "params"),
    [
        ((), {"any_device": "full-limits"}),
        ((), {"mapped": "GPU"}),
        ((), {"mapping": "split"}),  # test_mappings.py
        (("staged",), {}),
        (("device",), {"case": None}),
    ],
    ids=str,
)
def test_what_swiftshader_runs(fixtures, params):
    assert not conftest.is_left_out(item(True, fixtures, driver="swiftshader", **params))
    assert not conftest.is_left_out(SimpleNamespace())


def test_a_device_of_several(monkeypatch):
    """Two drivers taken for one that has two devices."""
    together = os.pathsep.join(map(str, HERE))
    names = [device_of(manifest).name for manifest in HERE]
    for name in names:
        monkeypatch.setenv("DMLGPU_TEST_DEVICE", name)
        assert device_of(together).name == name
    monkeypatch.delenv("DMLGPU_TEST_DEVICE")
    assert device_of(together) == select(None)
