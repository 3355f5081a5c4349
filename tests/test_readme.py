"""The README's Python examples run as they stand."""

import doctest
import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
TEXT = README.read_text(encoding="utf-8") if README.exists() else ""
# (line, text) of every block.
BLOCKS = [
    (TEXT[: match.start(1)].count("\n") + 1, match[1])
    for match in re.finditer(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
]


def test_readme_has_examples():
    assert BLOCKS


@pytest.mark.parametrize(("line", "block"), BLOCKS, ids=[f"line-{line}" for line, _ in BLOCKS])
def test_example(driver, monkeypatch, tmp_path, line, block):
    """On each device; lines after `>>>` print what the README says, everything else just runs."""
    monkeypatch.setenv("DMLGPU_DEVICE", str(driver.index))
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "readme"}
    if ">>>" not in block:
        # As many newlines in front as put the README's line numbers into a traceback.
        exec(compile("\n" * (line - 1) + block, str(README), "exec"), namespace)
        return
    test = doctest.DocTestParser().get_doctest(block, namespace, f"line {line}", str(README), line - 1)
    report = []
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    doctest.DocTestRunner(optionflags=flags, verbose=False).run(test, out=report.append)
    assert not report, "".join(report)
