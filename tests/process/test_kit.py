"""The script that tests and measures on a bare machine, and that what the kit takes along is enough."""

import importlib
import os
import re
import shlex
import subprocess
import sys

import pytest

from tests.support.drivers import DRIVERS
from tests.support.processes import ROOT


@pytest.fixture
def run(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / ".ci/kit")
    return importlib.import_module("run")


@pytest.mark.parametrize(
    ("program", "state"),
    [
        ("print('fine')", "ok"),
        ("raise ValueError('fine')", "exit code 1"),
        ("print('fine', flush=True); import os; os.kill(os.getpid(), 11)", "exit code -11"),
        ("import time; print('fine', flush=True); time.sleep(60)", "too slow"),
    ],
)
def test_a_step_ends_as_it_does(run, monkeypatch, tmp_path, program, state):
    monkeypatch.setattr(run, "KIT", tmp_path)
    seconds = 3 if "sleep" in program else 60
    said = run.step([sys.executable, "-c", program], seconds, dict(os.environ), tmp_path / "a.txt")
    assert said.startswith(f"a: {state} (")
    text = (tmp_path / "a.txt").read_text()
    assert "fine" in text
    assert ("KeyboardInterrupt" in text) == ("sleep" in program)


def test_only_libraries_that_the_machine_lacks_are_taken(run, monkeypatch, tmp_path):
    monkeypatch.setattr(run, "KIT", tmp_path)
    (tmp_path / "lib").mkdir()
    for name in ("libc.so.6", "libnosuch.so.1"):
        (tmp_path / "lib" / name).touch()
    (tmp_path / "temporary").mkdir()
    taken = tmp_path / "temporary/lib"
    assert run.environment(tmp_path / "temporary")["LD_LIBRARY_PATH"].endswith(f":{taken}")
    assert os.listdir(taken) == ["libnosuch.so.1"]


def test_the_first_driver_with_the_best_device_is_taken(run, tmp_path):
    broken = tmp_path / "broken.json"
    broken.write_text("{}")
    there_are = [broken, *DRIVERS.values()]
    found = run.find_driver(sys.executable, there_are, dict(os.environ), tmp_path / "log")
    assert found["DMLGPU_TEST_ONLY"] == str(DRIVERS["lavapipe"])
    assert "llvmpipe" in (tmp_path / "log").read_text()
    with pytest.raises(SystemExit, match=f"^no driver has a device: see {tmp_path}/log; --driver names a manifest$"):
        run.find_driver(sys.executable, [broken], dict(os.environ), tmp_path / "log")


def test_another_python_than_the_kit_is_for(run, monkeypatch, tmp_path):
    monkeypatch.setattr(run, "KIT", tmp_path)
    with pytest.raises(SystemExit, match=r"^this kit is for another Python than 3\."):
        run.install(tmp_path / "venv")


@pytest.mark.parametrize("failing", ["", "tests"])
def test_the_exit_code_says_whether_all_went_well(run, monkeypatch, tmp_path, failing):
    def step(command, seconds, variables, output):
        assert variables["VK_DRIVER_FILES"] == str(DRIVERS["lavapipe"])
        return f"{output.stem}: {'exit code 1' if output.stem == failing else 'ok'} (1 s)"

    monkeypatch.setattr(run, "install", lambda folder: sys.executable)
    monkeypatch.setattr(run, "environment", lambda folder: dict(os.environ))
    monkeypatch.setattr(run, "step", step)
    monkeypatch.setattr(sys, "argv", ["run.py", str(tmp_path), "--driver", str(DRIVERS["lavapipe"])])
    assert run.main() == (1 if failing else 0)
    assert len((tmp_path / "summary.txt").read_text().splitlines()) == 6


def test_all_that_tests_need_is_taken_along(run, tmp_path):
    script = (ROOT / ".ci/gpu-kit").read_text()
    for options, folder in re.findall(r'^cp (-r )?([^$]*) "\$kit(?:/docs)?"$', script, re.MULTILINE):
        target = tmp_path / ("" if options else "docs")
        target.mkdir(exist_ok=True)
        subprocess.run(["cp", "-r", *shlex.split(folder), target], cwd=ROOT, check=True)
    files = [file for name in run.TESTS for file in (tmp_path / "tests").rglob(f"test_{name}.py")]
    assert len(files) == len(run.TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only", "-m", "device", *files]
    environment = {**os.environ, "DMLGPU_TEST_ONLY": str(DRIVERS["lavapipe"])}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "swiftshader" not in done.stdout
