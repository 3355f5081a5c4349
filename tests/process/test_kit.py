"""The kit, which tests and measures on a bare machine."""

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


@pytest.mark.parametrize("failing", ["", "tests"])
def test_the_exit_code_says_whether_all_steps_passed(run, monkeypatch, tmp_path, failing):
    def step(command, seconds, variables, output):
        assert variables["VK_DRIVER_FILES"] == str(DRIVERS["lavapipe"])
        return f"{output.stem}: {'exit code 1' if output.stem == failing else 'ok'} (1 s)"

    monkeypatch.setattr(run, "install", lambda folder: sys.executable)
    monkeypatch.setattr(run, "environment", lambda folder: dict(os.environ))
    monkeypatch.setattr(run, "step", step)
    monkeypatch.setattr(sys, "argv", ["run.py", str(tmp_path), "--driver", str(DRIVERS["lavapipe"])])
    assert run.main() == (1 if failing else 0)
    assert len((tmp_path / "summary.txt").read_text().splitlines()) == 6


def test_the_kit_has_all_files_that_tests_need(run, tmp_path):
    script = (ROOT / ".ci/gpu-kit").read_text()
    for options, folder in re.findall(r'^cp (-r )?([^$]*) "\$kit(?:/docs)?"$', script, re.MULTILINE):
        target = tmp_path / ("" if options else "docs")
        target.mkdir(exist_ok=True)
        subprocess.run(["cp", "-r", *shlex.split(folder), target], cwd=ROOT, check=True)
    files = [file for name in run.TESTS for file in (tmp_path / "tests").rglob(f"test_{name}.py")]
    assert len(files) == len(run.TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only", "-m", "device", *files]
    environment = {**os.environ, "DMLGPU_TEST_ONLY": str(DRIVERS["lavapipe"])}
    process = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout
    assert "swiftshader" not in process.stdout
