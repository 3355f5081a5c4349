"""Signatures: what type checkers find in a user's script; functions of the same name take the same arguments."""

import inspect
import re

import pytest
from mypy import api

import dmlgpu
from tests.support.processes import ROOT

SCRIPT = ROOT / "tests/support/typed_script.py"


def test_mypy_finds_the_errors_of_a_script_and_no_others(tmp_path):
    printed, problems, _ = api.run(["--strict", "--cache-dir", str(tmp_path), str(SCRIPT)])
    assert problems == ""
    found = {int(line) for line in re.findall(r"typed_script\.py:(\d+): error", printed)}
    marked = {number for number, line in enumerate(SCRIPT.read_text().splitlines(), 1) if line.endswith("# error")}
    assert found == marked, printed


FUNCTIONS = [name for name in [*dmlgpu.__all__, "max", "min", "sum"] if inspect.isfunction(getattr(dmlgpu, name))]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_docstrings_say_all_arguments(name):
    """Or that they are as of another function, whose arguments they then are."""
    function = getattr(dmlgpu, name)
    text = inspect.getdoc(function)
    missing = [each for each in inspect.signature(function).parameters if not re.search(rf"^ +\*?{each}: ", text, re.M)]
    assert not missing or re.search(r"(?im)(^ *|otherwise |errors )as (for )?`\w+`", text), missing
