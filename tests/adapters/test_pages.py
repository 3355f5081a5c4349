"""The examples of pages that show PyTorch and Dask run as they stand."""

import subprocess
import sys
from collections import Counter

import pytest

from tests.support.pages import ADAPTERS_PAGES, BLOCKS, run_block
from tests.support.processes import ROOT

EXAMPLES = [block for block in BLOCKS if block[0] in ADAPTERS_PAGES]
IDS = [f"{page}-line-{line}" for page, line, _ in EXAMPLES]


def test_pages_have_examples():
    assert Counter(page for page, _, _ in EXAMPLES) == {page: 3 if "scaling" in page else 2 for page in ADAPTERS_PAGES}


@pytest.mark.parametrize(("page", "line", "block"), EXAMPLES, ids=IDS)
def test_example(driver, monkeypatch, tmp_path, page, line, block):
    monkeypatch.setenv("DMLGPU_DEVICE", str(driver.index))
    if "__main__" in block:  # starts processes, which import it
        (tmp_path / "script.py").write_text(block)
        command = [sys.executable, tmp_path / "script.py"]
        finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
        # Dask's processes may log to stderr when they end.
        assert finished.returncode == 0, finished.stderr
        assert finished.stdout.startswith("[")
    else:
        run_block(page, line, block)
