"""Lets the API reference show functions and their docstrings as users see them."""

import re

import griffe

RULES = {
    r"^Example:$": "Examples:",
    # An indented block after an empty line is code.
    r"^Formula:$": "Formula:\n",
    r"^Decisions of docs/semantics\.md:": "[Decisions](../semantics.md#decisions):",
    # A line with two exceptions is split.
    r"^( +)(\w+Error: .*\.) (?=\w+Error: )": r"\1\2\n\1",
}


class Docstrings(griffe.Extension):
    """Rewrites docstrings for Griffe's parser of Google's style, and the signatures of functions."""

    def on_object(self, *, obj, **kwargs):
        """Rewrites the docstring of an object; Griffe calls it for every object."""
        if obj.docstring:
            for pattern, new in RULES.items():
                obj.docstring.value = re.sub(pattern, new, obj.docstring.value, flags=re.MULTILINE)

    def on_package(self, *, pkg, **kwargs):
        """Rewrites signatures, because the decorators of `dmlgpu.sources` change arguments and results."""
        if pkg.name == "dmlgpu":
            for function in pkg["functions"].functions.values():
                if str(function.returns) == "Call":
                    as_called(function, pkg)


def as_called(function, package):
    """Replaces operands by arrays, and `**where: Unpack[Where]` by the entries of the TypedDict; removes `Call`."""
    array = griffe.ExprName("ArrayLike", parent=package["functions"])
    *parameters, last = function.parameters
    for parameter in parameters:
        text = str(parameter.annotation)
        if text.partition(" ")[0] == "Operand":
            optional = griffe.ExprBinOp(array, "|", "None")
            parameter.annotation = optional if text.endswith("| None") else array
    entries = package["sources"][str(last.annotation.slice)]
    keywords = [
        griffe.Parameter(name, annotation=entry.annotation, kind=griffe.ParameterKind.keyword_only, default="None")
        for name, entry in (entries.members | entries.inherited_members).items()
    ]
    function.parameters = griffe.Parameters(*parameters, *keywords)
    function.returns = None
