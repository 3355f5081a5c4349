"""Lets the API reference show functions and their docstrings as users see them."""

import re

import griffe

RULES = {
    r"^Example:$": "Examples:",
    # An indented block after an empty line is code.
    r"^Formula:$": "Formula:\n",
    r"^Decisions of docs/semantics\.md:": "[Decisions](../semantics.md#decisions):",
    # Two exceptions in a line.
    r"^( +)(\w+Error: .*\.) (?=\w+Error: )": r"\1\2\n\1",
}


class Docstrings(griffe.Extension):
    """Rewrites docstrings as Griffe's parser of Google's style takes them, and the signatures of functions."""

    def on_object(self, *, obj, **kwargs):
        """Called for every object that was read."""
        if obj.docstring:
            for pattern, new in RULES.items():
                obj.docstring.value = re.sub(pattern, new, obj.docstring.value, flags=re.MULTILINE)

    def on_package(self, *, pkg, **kwargs):
        """Called when all is read: the decorators of `dmlgpu.sources` change what users pass and get."""
        if pkg.name == "dmlgpu":
            for function in pkg["functions"].functions.values():
                if str(function.returns) == "Call":
                    as_called(function, pkg)


def as_called(function, package):
    """Arrays in place of operands, the entries of a TypedDict in place of `**where: Unpack[Where]`, no `Call`."""
    array = griffe.ExprName("ArrayLike", parent=package["functions"])
    *parameters, last = function.parameters
    for parameter in parameters:
        text = str(parameter.annotation)
        if text.partition(" ")[0] == "Operand":
            optional = griffe.ExprBinOp(array, "|", "None")
            parameter.annotation = optional if text.endswith("| None") else array
    entries = package["sources"][str(last.annotation.slice)]
    added = [
        griffe.Parameter(name, annotation=entry.annotation, kind=griffe.ParameterKind.keyword_only, default="None")
        for name, entry in (entries.members | entries.inherited_members).items()
    ]
    function.parameters = griffe.Parameters(*parameters, *added)
    function.returns = None
