"""The pages of the documentation, and the Python blocks in them."""

import doctest
import re
import textwrap

from tests.support.processes import ROOT

# Their examples need PyTorch or Dask: tests/adapters runs them.
ADAPTERS_PAGES = "docs/coming-from/pytorch.md", "docs/scaling.md"
DOCS = [
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "README.md", *sorted((ROOT / ".github").rglob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))
]
PAGES = {page: (ROOT / page).read_text(encoding="utf-8") for page in DOCS}
# (page, line, text) of every block.
BLOCKS = [
    (page, text[: match.start(2)].count("\n") + 1, textwrap.dedent(match[2]))
    for page, text in PAGES.items()
    for match in re.finditer(r"^( *)```python\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL)
]


def run_block(page, line, block):
    namespace = {"__name__": "readme"}
    if ">>>" not in block:
        # With newlines before it, so that tracebacks have the page's line numbers.
        exec(compile("\n" * (line - 1) + block, page, "exec"), namespace)
        return
    test = doctest.DocTestParser().get_doctest(block, namespace, f"line {line}", page, line - 1)
    report = []
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    doctest.DocTestRunner(optionflags=flags, verbose=False).run(test, out=report.append)
    assert not report, "".join(report)
