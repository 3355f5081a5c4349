"""What is wrong with a library: its differences by function and reason, each with documents and a reproducer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from dmlgpu.testing.isolated import Isolated
from dmlgpu.testing.libraries import Library
from dmlgpu.testing.outcomes import CRASHED, REFUSED, SAME, Outcome, outcome_of
from dmlgpu.testing.reproducers import reproducer, smaller
from dmlgpu.testing.trials import Trial

# Maximum number of attempts to make a reproducer smaller.
_ATTEMPTS = 150
_RULES = {
    "tie": "docs/semantics.md, decision 20 and Which element wins: the first of equal elements, or the last",
    "NaN": "docs/semantics.md, decision 5: a NaN wins, the first of several",
    "sign of zero": "docs/semantics.md, decision 8: -0 and +0 are equal, and the winner keeps its bits",
    "rounding": "docs/operators.md, Bounds: the error of compensated sums",
}
_RULES_OF_FUNCTIONS = {
    "quantized average pooling": "docs/semantics.md, decision 25: the exact quotient is rounded once, ties to even",
    "max unpooling": "docs/semantics.md, decision 11: the last of equal indices is kept, others are ignored",
    "ROI pooling": "docs/semantics.md, decision 27: how corners are rounded, and what is outside of the input",
}


@dataclass
class Difference:
    """A group of cases of one function, which differ in the same way from the oracle for the same reason."""

    function: str
    outcome: str
    wrong: bool
    """Whether the library is wrong; False: its documents leave the value open."""
    rule: str
    """The rule of dmlgpu's documents."""
    document: str
    """The document that decides whether the library is wrong."""
    text: str
    """How the result of the reproducer differs."""
    reproducer: str
    cases: list[str] = field(default_factory=list)


def differences(child: Isolated, library: Library, outcomes: Iterable[tuple[Trial, Outcome]]) -> Iterator[Difference]:
    """Groups of outcomes, without those that are the same, and those that the library refuses."""
    groups: dict[tuple[str, str, bool, str], list[tuple[Trial, Outcome]]] = {}
    for trial, outcome in outcomes:
        if outcome.word not in (SAME, REFUSED):
            key = trial.function, outcome.word, *_judgement(library, trial, outcome)
            groups.setdefault(key, []).append((trial, outcome))
    for (function, word, wrong, document), members in groups.items():
        trial, outcome = min(members, key=lambda member: sum(x.size for x in member[0].inputs.values()))
        trial, outcome = _reduced(child, library, trial, outcome)
        text, names = reproducer(trial, outcome, library), [member.id for member, _ in members]
        yield Difference(function, word, wrong, _rule(trial, word), document, outcome.text, text, names)


def _judgement(library: Library, trial: Trial, outcome: Outcome) -> tuple[bool, str]:
    """Whether a difference is wrong, and the document that decides it or leaves it open."""
    word, is_flushed = outcome.word, "subnormal floats" in outcome.text
    if word == CRASHED:
        return True, "no document allows a crash"
    has_infinities = any(np.isinf(x).any() for x in trial.inputs.values())
    for name in (word, *["subnormals"] * is_flushed, *["infinities"] * has_infinities):
        if ("", name) in library.disclaimers:
            return False, library.disclaimers["", name]
    key = trial.function.removesuffix(", last").removesuffix(", least"), word
    if key in library.promises:
        return True, library.promises[key]
    if key in library.disclaimers:
        return False, library.disclaimers[key]
    is_selection = any(name in trial.function for name in ("arg", "max", "min", "top-k", "ROI"))
    match word, outcome.is_open:
        case "value", _ if trial.expected is None:
            return False, "open: no document was found that demands an error"
        case "value", True:
            return False, "open: no document was found that says what follows an integer beyond the range of its type"
        case "value", _ if is_flushed:
            return True, "IEEE 754, 5.11: subnormal floats are numbers that differ from 0"
        case "value", _ if trial.function in _RULES_OF_FUNCTIONS:
            return False, "open: no document was found that says which value is right for such parameters"
        case "value", _:
            return True, "the definition of the function"
        case "sign of zero", False:
            return True, "IEEE 754: the result is none of the elements"
        case "sign of zero", True:
            return False, "open: IEEE 754 has -0 equal to +0"
        case "NaN", _ if not is_selection:
            return True, "IEEE 754, 6.2 and 7.2: operations with NaN, and invalid ones, give NaN"
    return False, "open: no document was found that says which"


def _rule(trial: Trial, word: str) -> str:
    """The rule of dmlgpu's documents for the oracle's value."""
    if trial.desc is None:
        decision = "22: empty arrays" if trial.inputs["x"].size == 0 else "6: a window wholly in padding"
        return f"docs/semantics.md, decision {decision}"
    if "top-k" in trial.function and word in ("tie", "NaN"):
        return "docs/semantics.md, decision 24: NaN is the greatest, equal elements follow their indices"
    if word == "NaN" and trial.function.split()[0].strip(",") not in ("argmax", "argmin", "max", "min", "ROI"):
        return "docs/semantics.md, Sums and products: NaN and infinities as in IEEE 754"
    of_function = _RULES_OF_FUNCTIONS.get(trial.function) if word in ("value", "rounding") else None
    return of_function or _RULES.get(word, f"docs/operators.md: {type(trial.desc).__name__}")


def _reduced(child: Isolated, library: Library, trial: Trial, outcome: Outcome) -> tuple[Trial, Outcome]:
    """A smaller trial with the same outcome."""
    attempts = _ATTEMPTS
    if outcome.word == CRASHED:  # each attempt starts another process, and may last until the timeout
        attempts = 0 if outcome.text.startswith("no answer") else 2
    judgement = _judgement(library, trial, outcome)
    candidates = smaller(trial)
    for _ in range(attempts):
        candidate = next(candidates, None)
        if candidate is None:
            break
        new = outcome_of(candidate, library, child)
        if new and new.word == outcome.word and _judgement(library, candidate, new) == judgement:
            trial, outcome, candidates = candidate, new, smaller(candidate)
    return trial, outcome
