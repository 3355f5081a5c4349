"""The kit, which tests and measures on a bare machine, has all files that its tests need."""

import importlib
import os
import re
import shlex
import subprocess
import sys

from tests.support.drivers import DRIVERS
from tests.support.processes import ROOT


def test_the_kit_has_all_files_that_tests_need(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(ROOT / ".ci/kit")
    run = importlib.import_module("run")
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
