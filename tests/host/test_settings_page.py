"""docs/settings.md has exactly the environment variables that the sources read."""

import re

import pytest

from tests.support.pages import PAGES
from tests.support.processes import ROOT


def variables(*folders):
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    assert files
    text = "".join(path.read_text(encoding="utf-8") for path in files)
    # Names in quotes: arguments, keys of `os.environ`, or entries of tables.
    return set(re.findall(r'"(DMLGPU_[A-Z_]*[A-Z])"', text))


@pytest.mark.parametrize(
    ("section", "folders", "prefix"),
    [("For users", ["dmlgpu", "benchmarks"], "DMLGPU_(?!TEST_)"), ("For the tests", ["tests", ".ci"], "DMLGPU_TEST_")],
)
def test_the_page_has_the_variables_of_the_sources(section, folders, prefix):
    text = re.split(r"^## ", PAGES["docs/settings.md"], flags=re.MULTILINE)
    (text,) = (part for part in text if part.startswith(f"{section}\n"))
    listed = re.findall(r"^\| `(DMLGPU_\w+)` ", text, re.MULTILINE)
    assert sorted(listed) == sorted(name for name in variables(*folders) if re.match(prefix, name))


def test_the_product_reads_no_variable_of_the_tests():
    assert not [name for name in variables("dmlgpu", "benchmarks") if name.startswith("DMLGPU_TEST_")]
