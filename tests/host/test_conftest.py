"""Which drivers and devices are under test."""

import os
from types import SimpleNamespace

import pytest

from tests import conftest
from tests.support.drivers import DRIVERS, device_of, find_drivers

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


@pytest.mark.parametrize(
    ("params", "left_out"),
    [
        ({"driver": "swiftshader", "any_device": "lowered-limits"}, True),
        ({"driver": "swiftshader", "mapped": "split", "kind": 1}, True),
        ({"driver": "swiftshader", "any_device": "full-limits"}, False),
        ({"driver": "swiftshader", "mapped": "GPU"}, False),
        ({"driver": "swiftshader", "mapping": "split"}, False),  # test_mappings.py
        ({"driver": "lavapipe", "any_device": "lowered-limits"}, False),
        ({"driver": "nvidia", "mapped": "split"}, False),
    ],
    ids=str,
)
def test_what_planning_knows_is_left_out_on_swiftshader_alone(monkeypatch, params, left_out):
    item = SimpleNamespace(nodeid="tests/device/test_layouts.py::test", callspec=SimpleNamespace(params=params))
    assert conftest.is_planned_again(item) is left_out
    hashed = SimpleNamespace(nodeid="tests/device/test_hashes.py::test", callspec=item.callspec)
    assert not conftest.is_planned_again(hashed)
    for fixture in "lowered_devices", "cooperating", "staged":
        alone = SimpleNamespace(**vars(item), fixturenames=["driver", fixture])
        assert conftest.is_planned_again(alone) is left_out
        of_cases = SimpleNamespace(params={**params, "case": None})
        with_cases = SimpleNamespace(nodeid=item.nodeid, callspec=of_cases, fixturenames=["driver", fixture])
        assert conftest.is_planned_again(with_cases) is (params["driver"] == "swiftshader")
    monkeypatch.setattr(conftest, "DRIVERS", {"swiftshader": None})
    assert not conftest.is_planned_again(item)
    assert not conftest.is_planned_again(SimpleNamespace(nodeid=item.nodeid))


def test_a_device_of_several(monkeypatch):
    """Two drivers taken for one that has two devices."""
    together = os.pathsep.join(map(str, HERE))
    names = [device_of(manifest).name for manifest in HERE]
    for name in names:
        monkeypatch.setenv("DMLGPU_TEST_DEVICE", name)
        assert device_of(together).name == name
    monkeypatch.delenv("DMLGPU_TEST_DEVICE")
    assert device_of(together) == conftest.select(None)
