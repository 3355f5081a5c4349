"""Signatures: the errors that type checkers find in a script, and the arguments in docstrings."""

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
    errors = {int(line) for line in re.findall(r"typed_script\.py:(\d+): error", printed)}
    marked = {number for number, line in enumerate(SCRIPT.read_text().splitlines(), 1) if line.endswith("# error")}
    assert errors == marked, printed


FUNCTIONS = [name for name in [*dmlgpu.__all__, "max", "min", "sum"] if inspect.isfunction(getattr(dmlgpu, name))]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_docstrings_describe_all_arguments(name):
    """A docstring may also refer to another function."""
    function = getattr(dmlgpu, name)
    text = inspect.getdoc(function)
    missing = [word for word in inspect.signature(function).parameters if not re.search(rf"^ +\*?{word}: ", text, re.M)]
    assert not missing or re.search(r"(?im)(^ *|otherwise |errors )as (for )?`\w+`", text), missing
