"""docs/operators.md, which is written from docstrings and tables. `test_readme.py` runs its examples."""

import re

import pytest

from dmlgpu.descriptors.feature_levels import FEATURE_LEVELS
from dmlgpu.registry import OPERATORS
from tests import operators_page


def test_the_page_is_up_to_date():
    text = operators_page.PAGE.read_text(encoding="utf-8")
    assert text == operators_page.page(), "write it anew: python -m tests.operators_page"


def test_every_descriptor_has_a_section_with_an_example():
    sections = re.findall(r"^## ([A-Z]\w+)\n(?:(?!## ).*\n)*?```python\n", operators_page.page(), re.MULTILINE)
    assert sections == list(dict.fromkeys(operator.name.partition(" ")[0] for operator in OPERATORS))


def test_every_decision_is_cited():
    cited = re.findall(r"\(semantics\.md#decision-(\d+)-", operators_page.page())
    assert set(cited) == set(operators_page.DECISIONS)


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
def test_docstrings_name_the_structure_and_the_canonical_operator(operator):
    text = operators_page.parts(operator.desc)[""]
    name = operator.name.partition(" ")[0]
    assert f" (DML_{name}_OPERATOR_DESC)." in text
    if operator not in operators_page.CANONICAL and name != "REDUCE":
        assert operators_page.named(text) == type(next(operator.descs()).canonical()).__name__


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
def test_all_types_of_directml_are_supported(operator):
    for new_types in FEATURE_LEVELS[operator.name].values():
        for field, types in new_types.items():
            assert set(types) <= set(operator.types[field])


def test_only_float64_bool_and_some_indices_are_extensions():
    rows = [
        row for operator in OPERATORS for row in operators_page.types(operator) if row[0] == operators_page.EXTENSION
    ]
    assert {types for row in rows for types in row[1:] if types} == {
        "FLOAT64, bool as UINT8",
        "bool as UINT8",  # quantized elements
        "UINT64, UINT32",  # indices of a gradient
        "INT64, INT32",  # indices of TOP_K
    }
