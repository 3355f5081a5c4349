"""Lets the API reference show all sections of our docstrings."""

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
    """Rewrites docstrings as Griffe's parser of Google's style takes them."""

    def on_object(self, *, obj, **kwargs):
        """Called for every object that was read."""
        if obj.docstring:
            for pattern, new in RULES.items():
                obj.docstring.value = re.sub(pattern, new, obj.docstring.value, flags=re.MULTILINE)
