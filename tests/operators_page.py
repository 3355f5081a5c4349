"""docs/operators.md: a section for every operator of the registry.

    python -m tests.operators_page

writes it anew, from the docstrings of the descriptors, those of the bounds in dmlgpu/reference, and the types in
dmlgpu/descriptors/feature_levels.py.
"""

from __future__ import annotations

import inspect
import itertools
import re
import textwrap
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from dmlgpu import DataType, OperatorDesc, ReduceFunction, ReduceOperatorDesc
from dmlgpu.descriptors.feature_levels import FEATURE_LEVELS
from dmlgpu.reference import bounds
from dmlgpu.registry import CANONICAL, OPERATORS, Operator
from tests.support.processes import ROOT

PAGE = ROOT / "docs" / "operators.md"
SEMANTICS = (ROOT / "docs" / "semantics.md").read_text(encoding="utf-8")
DECISIONS = dict(re.findall(r"^### Decision (\d+): (.*)$", SEMANTICS, re.MULTILINE))
# The rows of the registry for each descriptor: REDUCE has one for each function.
FAMILIES: dict[str, list[Operator]] = {}
for _operator in OPERATORS:
    FAMILIES.setdefault(_operator.desc.__name__, []).append(_operator)
EXTENSION = "**extension**"

OPENING = """\
# Operators

<!-- `python -m tests.operators_page` writes this page from docstrings: change those. -->

This page tells what each operator computes, its fields and types, and how exact its results are.
[semantics.md](semantics.md) has the rules that operators share, with pictures.

{contents}

How to read a section:

- **Fields** are in DirectML's order, without its counts, which are the lengths of the arrays.
- **Types** are listed by the feature level that added them to DirectML; a level includes the rows above it. dmlgpu has
  all types on every device. Those marked **extension** are beyond DirectML.
- **Formulas** mix mathematics and Python. All numbering begins at 0. `o`, `k` and `i` of windows have an entry per
  spatial dimension.
- **Exact** results have the same bits on every device: those of the oracle, `dmlgpu.reference`. Others are within a
  [bound](#bounds) of the oracle's.
- **Decisions** answer what DirectML's documents leave open.
- **Examples**: `of` infers the outputs; strides and dilations default to 1, paddings to 0. `verify` runs an operator on
  a device, compares the results with the oracle's, and returns them. Programs use functions or `Device.compile`.

{of_all}
"""


def parts(documented: Any) -> dict[str, str]:
    """The sections of a docstring by their headings; the text before them has the heading ''."""
    texts = re.split(r"^(\w+):\n", inspect.getdoc(documented) or "", flags=re.MULTILINE)
    return {name: textwrap.dedent(text).strip() for name, text in zip(["", *texts[1::2]], texts[::2], strict=True)}


def entries(text: str) -> dict[str, str]:
    """The text of each name in a section like Args."""
    lines = re.findall(r"^(\w[\w, ]*): (.*(?:\n .*)*)", text, re.MULTILINE)
    return {name: " ".join(meaning.split()) for names, meaning in lines for name in names.split(", ")}


def prose(text: str) -> str:
    """Paragraphs, filled; names of descriptors become links to their sections."""
    linked = re.sub(r"`(\w+OperatorDesc)`", lambda match: link(match[0], name_of(match[1])), text)
    return "\n\n".join(textwrap.fill(part, 120, break_on_hyphens=False) for part in linked.split("\n\n"))


def cell(text: str) -> str:
    """`prose` for a cell of a table."""
    return " ".join(prose(text).split())


def named(text: str) -> str:
    """The descriptor that a text names first."""
    return re.findall(r"`(\w+OperatorDesc)`", text)[0]


def fields_of(kind: type[OperatorDesc]) -> str:
    """The table of a descriptor's fields; those that its docstring describes together share a row."""
    described = entries(parts(kind)["Args"])
    rows = (
        (", ".join(f"`{f.name}`" for f in group), f"`{annotation}`".replace(" | ", "` or `"), cell(meaning))
        for (meaning, annotation), group in itertools.groupby(fields(kind), lambda f: (described[f.name], f.type))
    )
    return table(("field", "type", "meaning"), *rows)


def without(kind: type[OperatorDesc], canonical: type[OperatorDesc]) -> str:
    """The fields of its canonical descriptor that a descriptor lacks."""
    kept = {f.name for f in fields(kind)}
    lacking = [f"`{f.name}`" for f in fields(canonical) if f.name not in kept]
    return f", without {' and '.join(lacking)}" if lacking else ""


def name_of(kind: str) -> str:
    """DirectML's name for a descriptor."""
    return FAMILIES[kind][0].name.partition(" ")[0]


def link(text: str, heading: str, page: str = "") -> str:
    """A link to a heading, by its anchor on GitHub."""
    anchor = re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
    return f"[{text}]({page}#{anchor})"


def decisions(numbers: str) -> str:
    """Links to decisions, by their titles."""
    titles = ((number, DECISIONS[number]) for number in numbers.split(", "))
    return ", ".join(link(title, f"Decision {number}: {title}", "semantics.md") for number, title in titles)


def table(*rows: Iterable[str]) -> str:
    """A table; the first row is the heading."""
    heading, *lines = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([heading, re.sub(r"[^|]+", "---", heading), *lines])


def types(operator: Operator) -> tuple[tuple[str, ...], ...]:
    """The rows of a table: the types that each feature level adds, and extensions; equal columns are merged."""
    levels = FEATURE_LEVELS[operator.name]
    columns: dict[tuple[str, ...], list[str]] = {}
    for field, allowed in operator.types.items():
        if field in operator.fields:
            added = [level.get(field, ()) for level in levels.values()]
            extensions = [kind.name for kind in allowed if kind not in itertools.chain(*added)]
            extensions += ["bool as UINT8"] * (DataType.UINT8 in allowed)
            cells = (*(", ".join(kind.name for kind in types) for types in added), ", ".join(extensions))
            columns.setdefault(cells, []).append(f"`{field}`")
    rows = zip([*levels, EXTENSION], *columns, strict=True)
    return (("feature level", *map(", ".join, columns.values())), *(row for row in rows if any(row[1:])))


def section(operators: list[Operator]) -> str:
    """The section of a descriptor."""
    kind, function = operators[0].desc, operators[0].function
    name, docs, bound = name_of(kind.__name__), parts(kind), bounds.bounds_of.dispatch(kind)
    text, _, cited = docs[""].partition("\n\nDecisions of docs/semantics.md: ")
    is_canonical = any(operator in CANONICAL for operator in operators)
    structure = f"DML_{name}_OPERATOR_DESC"
    called = f"; its function is `{function.__name__}`" if function else ""
    blocks = [f"## {name}", f"`{structure}` is `{kind.__name__}`{called}.", prose(text.replace(f" ({structure})", ""))]
    if "Formula" in docs:
        blocks.append(f"```text\n{docs['Formula']}\n```")
    if "Args" in docs:
        blocks.append(fields_of(kind))
    else:
        canonical = FAMILIES[named(text)][0].desc
        what = "Fields" if is_canonical else "Fields, formula, results and decisions"
        blocks.append(prose(f"{what}: as `{canonical.__name__}`{without(kind, canonical)}."))
    if kind is ReduceOperatorDesc:
        values, errors = entries(parts(ReduceFunction)["Attributes"]), entries(parts(bound)["Functions"])
        rows = ((f"`{f.name}`", cell(values[f.name]), errors.get(f.name, "exact.")) for f in ReduceFunction)
        blocks.append(table(("function", "value", "[bound, E and U](#bounds) for floats"), *rows))
    for same in dict.fromkeys(map(types, operators)):
        functions = (f"`{row.name.partition(' ')[2]}`" for row in operators if types(row) == same)
        blocks += [f"Types with {', '.join(functions)}:"] * (len(operators) > 1) + [table(*same)]
    if is_canonical and bound is bounds.bounds_of.dispatch(OperatorDesc):
        blocks.append("Results: exact.")
    elif is_canonical:
        blocks.append(prose(f"Results: within a [bound](#bounds). {parts(bound)['']}"))
    if cited:
        blocks.append(prose(f"Decisions: {decisions(cited.rstrip('.'))}."))
    return "\n\n".join([*blocks, f"```python\n{docs['Example']}\n```"])


def page() -> str:
    """The whole page."""
    summaries = ((kind, parts(rows[0].desc)[""].split("\n\n")[0]) for kind, rows in FAMILIES.items())
    listed = ((link(name_of(kind), name_of(kind)), cell(re.sub(r" \(DML_\w+\)", "", text))) for kind, text in summaries)
    of_all = prose(f"Decisions for every operator: {decisions('2, 14, 17')}; for functions: {decisions('13, 22')}.")
    opening = OPENING.format(contents=table(("operator", "result"), *listed), of_all=of_all)
    return "\n\n".join([opening.strip(), *map(section, FAMILIES.values()), f"## Bounds\n\n{inspect.getdoc(bounds)}\n"])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
