"""The programs of docs/examples print what its page shows."""

import re
import runpy
import sys

import pytest

from tests.support.processes import ROOT

EXAMPLES = ROOT / "docs" / "examples"
PROGRAMS = sorted(path.name for path in EXAMPLES.glob("*.py"))


def sections() -> list[tuple[str, str]]:
    """The names and the output of the programs on the page."""
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    section = r"^## \[(.+)\]\(\1\)\n(?:(?!##|```).*\n)*```text\n((?:(?!```).*\n)*)```$"
    return re.findall(section, page, re.MULTILINE)


def test_page_shows_every_program_once():
    assert PROGRAMS
    assert sorted(name for name, _ in sections()) == PROGRAMS


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_prints_what_the_page_shows(driver, monkeypatch, capfd, name):
    monkeypatch.setenv("DMLGPU_DEVICE", str(driver.index))
    monkeypatch.setattr(sys, "argv", [name])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert capfd.readouterr() == (dict(sections())[name], "")
