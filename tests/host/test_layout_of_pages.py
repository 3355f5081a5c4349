"""The layout of pages, as far as it is visible without a browser."""

import json
import re

import pytest

from tests.support.pages import PAGES
from tests.support.processes import ROOT

CELLS = json.loads((ROOT / "docs" / "tour.ipynb").read_text(encoding="utf-8"))["cells"]
CODE = {"docs/tour.ipynb": ["".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "code"]} | {
    page: re.findall(r"^ *```\w*\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL) for page, text in PAGES.items()
}
# Pages without code.
PROSE = {page: re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.MULTILINE | re.DOTALL) for page, text in PAGES.items()}


@pytest.mark.parametrize("page", CODE)
def test_code_is_no_wider_than_a_page(page):
    """`.ci/docs/site.css` makes room for 100 characters."""
    assert [line for code in CODE[page] for line in code.splitlines() if len(line) > 100] == []


@pytest.mark.parametrize("page", PROSE)
def test_columns_have_headers(page):
    headers = re.findall(r"^(\|.*\|)\n\|[ :|-]*-[ :|-]*\|$", PROSE[page], re.MULTILINE)
    assert [header for header in headers if not all(map(str.strip, header[1:-1].split("|")))] == []


@pytest.mark.parametrize("page", PROSE)
def test_links_and_pictures_have_descriptions(page):
    texts = re.findall(r"\[([^\[\]]*)\]\(", PROSE[page])
    assert [text for text in texts if not re.search(r"[a-z]{2}", text, re.IGNORECASE) or "://" in text] == []
    assert {"here", "link", "this"}.isdisjoint(text.lower() for text in texts)
