"""The examples of pages that show PyTorch and Dask, and of the adapters' docstrings, run as they stand."""

import inspect
import subprocess
import sys

import pytest

from dmlgpu.interop import onnx, torch
from tests.support.pages import ADAPTERS_PAGES, BLOCKS, run_block
from tests.support.processes import ROOT

EXAMPLES = [block for block in BLOCKS if block[0] in ADAPTERS_PAGES]
IDS = [f"{page}-line-{line}" for page, line, _ in EXAMPLES]


@pytest.mark.usefixtures("default_device")
@pytest.mark.parametrize(("page", "line", "block"), EXAMPLES, ids=IDS)
def test_an_example_runs(tmp_path, page, line, block):
    if "__main__" in block:  # starts processes, which import it
        (tmp_path / "script.py").write_text(block)
        command = [sys.executable, tmp_path / "script.py"]
        finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
        # Dask's processes may log to stderr when they end.
        assert finished.returncode == 0, finished.stderr
        assert finished.stdout.startswith("[")
    else:
        run_block(page, line, block)


FUNCTIONS = {
    f"{module.__name__}.{name}": function
    for module, names in (
        (torch, torch.__all__),
        (onnx, ("is_compatible", "prepare", "run_node", "supports_device")),
    )
    for name in names
    if not inspect.isclass(function := getattr(module, name))
}


@pytest.mark.usefixtures("default_device")
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_every_function_has_an_example(function):
    assert ">>>" in function.__doc__
    run_block(function.__module__, 1, inspect.getdoc(function))
