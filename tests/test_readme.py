"""The Python examples of the README and of docs/using.md run as they stand, and links lead somewhere."""

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/using.md")}
DOCS = [
    str(path.relative_to(ROOT))
    for path in (ROOT / "README.md", *sorted((ROOT / ".github").rglob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))
]
# (page, line, text) of every block.
BLOCKS = [
    (page, text[: match.start(1)].count("\n") + 1, match[1])
    for page, text in PAGES.items()
    for match in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
]


@pytest.mark.parametrize("page", PAGES)
def test_page_has_examples(page):
    assert page in {page for page, _, _ in BLOCKS}


@pytest.mark.parametrize(("page", "line", "block"), BLOCKS, ids=[f"{page}-line-{line}" for page, line, _ in BLOCKS])
def test_example(driver, monkeypatch, tmp_path, page, line, block):
    """On each device; lines after `>>>` print what the page says, everything else just runs."""
    monkeypatch.setenv("DMLGPU_DEVICE", str(driver.index))
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "readme"}
    if ">>>" not in block:
        # As many newlines in front as put the page's line numbers into a traceback.
        exec(compile("\n" * (line - 1) + block, page, "exec"), namespace)
        return
    test = doctest.DocTestParser().get_doctest(block, namespace, f"line {line}", page, line - 1)
    report = []
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    doctest.DocTestRunner(optionflags=flags, verbose=False).run(test, out=report.append)
    assert not report, "".join(report)


@pytest.mark.parametrize("page", DOCS)
def test_links_lead_somewhere(page):
    path = ROOT / page
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (path.parent / target).exists(), target
