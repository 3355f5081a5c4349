"""Which drivers and devices are under test."""

import os

import pytest

from tests import conftest
from tests.conftest import DRIVERS, device_of, find_drivers

HERE = [manifest for manifest in DRIVERS.values() if manifest]


@pytest.fixture(autouse=True)
def _unset(monkeypatch):
    for variable in ("DMLGPU_TEST_DRIVERS", "DMLGPU_TEST_ONLY", "DMLGPU_TEST_DEVICE"):
        monkeypatch.delenv(variable, raising=False)


def test_only_named_drivers(monkeypatch):
    manifest = HERE[-1]
    monkeypatch.setenv("DMLGPU_TEST_ONLY", str(manifest))
    assert find_drivers() == {manifest.stem: manifest}
    monkeypatch.setenv("DMLGPU_TEST_ONLY", os.pathsep.join(["/no/such.json", str(manifest)]))
    assert find_drivers() == {"/no/such.json": None, manifest.stem: manifest}


def test_drivers_beside_those_of_every_run(monkeypatch, tmp_path):
    both = {"lavapipe", "swiftshader"}
    assert set(find_drivers()) == both
    manifest = tmp_path / "gpu.json"
    manifest.touch()
    monkeypatch.setenv("DMLGPU_TEST_DRIVERS", str(manifest))
    assert find_drivers()["gpu"] == manifest
    assert set(find_drivers()) == {*both, "gpu"}


def test_a_device_of_several(monkeypatch):
    """Two drivers taken for one that has two devices."""
    together = os.pathsep.join(map(str, HERE))
    names = [device_of(manifest).name for manifest in HERE]
    for name in names:
        monkeypatch.setenv("DMLGPU_TEST_DEVICE", name)
        assert device_of(together).name == name
    monkeypatch.delenv("DMLGPU_TEST_DEVICE")
    assert device_of(together) == conftest.select(None)
