"""The drivers under test, and the tests that SwiftShader runs."""

import os
from types import SimpleNamespace

import pytest

from tests import conftest
from tests.support.drivers import DRIVERS, find_drivers


@pytest.fixture(autouse=True)
def _without_variables(monkeypatch):
    for variable in ("DMLGPU_TEST_DRIVERS", "DMLGPU_TEST_ONLY"):
        monkeypatch.delenv(variable, raising=False)


def test_only_named_drivers_are_under_test(monkeypatch):
    name, manifest = list(DRIVERS.items())[-1]
    monkeypatch.setenv("DMLGPU_TEST_ONLY", str(manifest))
    assert find_drivers() == {name: manifest}
    monkeypatch.setenv("DMLGPU_TEST_ONLY", os.pathsep.join(["/no/such.json", str(manifest)]))
    assert find_drivers() == {"/no/such.json": None, name: manifest}


def test_drivers_are_added_to_those_of_every_run(monkeypatch, tmp_path):
    both = {"lavapipe", "swiftshader"}
    assert set(find_drivers()) == both
    manifest = tmp_path / "gpu.json"
    manifest.touch()
    monkeypatch.setenv("DMLGPU_TEST_DRIVERS", str(manifest))
    assert find_drivers()["gpu"] == manifest
    assert set(find_drivers()) == {*both, "gpu"}


@pytest.mark.parametrize(
    ("marked", "fixtures", "params", "is_left_out"),
    [
        (False, (), {}, True),
        (True, (), {"any_device": "lowered-limits"}, True),
        (True, (), {"mapped": "split", "kind": 1}, True),
        (True, (), {"mapping": "CPU-1"}, True),
        (True, ("driver", "staged"), {"operator": None}, True),
        (True, (), {"any_device": "full-limits"}, False),
        (True, (), {"mapped": "GPU"}, False),
        (True, (), {"mapping": "split"}, False),  # test_mappings.py
        (True, ("driver", "staged"), {}, False),
        (True, ("device",), {"case": None}, False),
    ],
    ids=str,
)
def test_swiftshader_leaves_out_what_lavapipe_runs(monkeypatch, marked, fixtures, params, is_left_out):
    def leaves_out(driver):
        """Whether a driver leaves out the test, as pytest collects it."""
        callspec = SimpleNamespace(params=params | {"driver": driver})
        item = SimpleNamespace(callspec=callspec, fixturenames=fixtures, get_closest_marker=lambda name: marked)
        return conftest.is_left_out(item)

    assert leaves_out("swiftshader") == is_left_out
    assert not leaves_out("lavapipe")
    assert not leaves_out("nvidia")
    monkeypatch.setattr(conftest, "DRIVERS", {"swiftshader": None})
    assert not leaves_out("swiftshader")
    assert leaves_out("lavapipe")
