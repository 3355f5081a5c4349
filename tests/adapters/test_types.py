"""pyright reports the marked errors of the script on which tests/host/test_types.py runs mypy."""

import json
import subprocess
import sys

from tests.support.processes import ROOT

SCRIPT = ROOT / "tests/support/typed_script.py"
WITH_DASK = """
import dask.array
dmlgpu.max_pooling(dask.array.ones((4, 4)), 2).compute()
dmlgpu.sum(dask.array.ones((4, 4)), 1).compute()
"""


def test_pyright_finds_the_errors_of_a_script_and_no_others(tmp_path):
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "standard"}))
    (tmp_path / "script.py").write_text(SCRIPT.read_text() + WITH_DASK)
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable]
    finished = subprocess.run([*command, "--project", tmp_path], cwd=ROOT, capture_output=True, text=True, timeout=300)
    diagnostics = json.loads(finished.stdout)["generalDiagnostics"]
    errors = {error["range"]["start"]["line"] + 1 for error in diagnostics if error["severity"] == "error"}
    lines = enumerate((tmp_path / "script.py").read_text().splitlines(), 1)
    assert errors == {number for number, line in lines if line.endswith("# error")}, finished.stdout
