"""`python -m dmlgpu.testing LIBRARY`: runs the cases of the project's tests with another library.

Right values are the oracle's: no Vulkan device is opened. Each case runs in a child process, which may crash.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from dmlgpu import __version__
from dmlgpu.errors import shown
from dmlgpu.testing.cases import CASES, LARGE_INDICES, UNDESCRIBED
from dmlgpu.testing.isolated import CrashedError, Isolated, RefusedError
from dmlgpu.testing.libraries import LIBRARIES, Library, LibraryError, library_of
from dmlgpu.testing.trials import CRASHED, DIFFERENCES, KINDS, REFUSED, SAME, Outcome, Trial, lines, smaller, trials
from dmlgpu.tools import cli
from dmlgpu.tools.terminal import exit_code, written_to_the_end

# How often a reproducer is made smaller, at most.
_ATTEMPTS = 150
# Elements of an input that a reproducer shows.
_MOST_SHOWN = 1000
# Characters of right values that it shows.
_MOST_RIGHT = 200
_HEADS = {
    "same": SAME,
    "value": "value",
    "tie": "tie",
    "NaN": "NaN",
    "zero sign": "sign of zero",
    "rounding": "rounding",
    "refused": REFUSED,
    "crashed": CRASHED,
}


@dataclass
class Difference:
    """What several cases of a function have in common: how they differ, and what makes the oracle right."""

    function: str
    outcome: str
    wrong: bool
    """False: the library's documents leave it open."""
    rule: str
    document: str
    text: str
    """The difference of the reproducer."""
    reproducer: str
    cases: list[str] = field(default_factory=list)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Returns:
        The exit code: 0 nothing is wrong, 1 a result is wrong or the library crashed, 2 the command could not run, 130
        Ctrl-C ended it, 141 the reader of its output closed the pipe.
    """
    return exit_code(lambda: _run(argv))


def _run(argv: Sequence[str] | None) -> int:
    try:
        with written_to_the_end():
            args = _parser().parse_args(argv)
            if args.library.startswith("vulkan:"):
                if args.json or args.markdown or args.k:
                    raise LibraryError("with vulkan:NAME, which is `dmlgpu verify`, no other options are allowed")
                return cli.main(["verify", f"--device={args.library.removeprefix('vulkan:')}"])
            return _test(args)
    except BrokenPipeError:
        raise
    except (LibraryError, ModuleNotFoundError, OSError) as error:
        return _fail(error)
    except KeyboardInterrupt:
        return 130


def _fail(error: object) -> int:
    try:
        print(f"dmlgpu.testing: {error}", file=sys.stderr)
    except BrokenPipeError:
        raise
    except OSError:  # a full disk: only the exit code can report it
        pass
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dmlgpu.testing",
        description="Runs the cases of dmlgpu's tests with another library, and compares with dmlgpu's oracle.",
        epilog="exit code: 0 nothing is wrong, 1 a result is wrong or the library crashed, 2 the command could not run",
    )
    parser.add_argument("library", metavar="LIBRARY", help=f"one of {LIBRARIES}")
    parser.add_argument("-k", metavar="TEXT", default="", help="only cases with this text in function, kind or name")
    parser.add_argument(
        "--seconds", metavar="N", type=_seconds, default=60.0, help="a case that takes longer hangs (default: 60)"
    )
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print all results as JSON")
    output.add_argument("--markdown", action="store_true", help="print tables of Markdown")
    return parser


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < 1e6:
        raise argparse.ArgumentTypeError(f"{shown(text)} is not allowed; allowed are numbers above 0")
    return seconds


def _test(args: argparse.Namespace) -> int:
    library = library_of(args.library)
    with Isolated(library.imports, library.to_numpy, args.seconds, library.folders) as child:
        try:
            version = child.run(f"str({library.version})", {})[0].tobytes().decode(errors="replace")
        except (RefusedError, CrashedError) as error:
            raise LibraryError(f"{args.library}: {error}") from None
        outcomes, left_out = [], 0
        text = args.k.lower()
        is_kind = any(text in kind.lower() for kind in KINDS)
        for trial in trials([*CASES, *LARGE_INDICES], UNDESCRIBED, lambda name: is_kind or text in name.lower()):
            kinds = trial.kinds
            if text not in " / ".join([trial.function, trial.id, *kinds]).lower():
                continue
            program = trial.program(library)
            if program is None:
                left_out += 1
                continue
            outcomes.append((trial, kinds, _outcome(child, trial, program, library)))
            if sys.stderr.isatty():
                print(f"\r{len(outcomes)} cases ", end="", file=sys.stderr)
        if not outcomes and not left_out:
            raise LibraryError(f"-k {shown(args.k)}: no case has this text")
        differences = list(_differences(child, library, outcomes))
    if sys.stderr.isatty():
        print("\r", end="", file=sys.stderr)
    title = f"{args.library} {version}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    if args.json:
        print(json.dumps(_as_json(title, outcomes, differences), indent=1))
    else:
        _print(title, outcomes, left_out, differences, markdown=args.markdown)
    return int(any(difference.wrong for difference in differences))


def _outcome(child: Isolated, trial: Trial, program: str, library: Library) -> Outcome:
    try:
        results = child.run(program, trial.inputs)
    except CrashedError as error:
        return Outcome(CRASHED, str(error))
    except RefusedError as error:
        return Outcome(SAME if trial.expected is None else REFUSED, str(error))
    outcome = trial.judge(results, library)
    if outcome.word in DIFFERENCES and trial.flushed(results, library):
        return Outcome(outcome.word, f"{outcome.text}, as if subnormal floats were 0", outcome.is_open)
    return outcome


Row = tuple[Trial, tuple[str, ...], Outcome]


def _differences(child: Isolated, library: Library, outcomes: list[Row]) -> Iterator[Difference]:
    """The outcomes that are not the same, a refusal left out, by function and reason; each with a reproducer."""
    groups: dict[tuple[str, str, bool, str], list[tuple[Trial, Outcome]]] = {}
    for trial, _, outcome in outcomes:
        if outcome.word not in (SAME, REFUSED):
            wrong, document = _judged(library, trial, outcome)
            groups.setdefault((trial.function, outcome.word, wrong, document), []).append((trial, outcome))
    for (function, word, wrong, document), members in groups.items():
        trial, outcome = min(members, key=lambda member: sum(x.size for x in member[0].inputs.values()))
        trial, outcome = _reduced(child, library, trial, outcome)
        names = [member.id for member, _ in members]
        text = _reproducer(trial, outcome, library)
        yield Difference(function, word, wrong, _rule(trial, word), document, outcome.text, text, names)


def _judged(library: Library, trial: Trial, outcome: Outcome) -> tuple[bool, str]:
    """Whether a difference is wrong, and the document that decides it or leaves it open."""
    if outcome.word == CRASHED:
        return True, "no document allows a crash"
    key = trial.function.removesuffix(", last").removesuffix(", least"), outcome.word
    of_input = [outcome.word] + ["subnormals"] * ("subnormal floats" in outcome.text)
    of_input += ["infinities"] * bool(np.isinf(trial.inputs["x"]).any())
    for name in of_input:
        if ("", name) in library.disclaimers:
            return False, library.disclaimers["", name]
    if key in library.promises:
        return True, library.promises[key]
    if key in library.disclaimers:
        return False, library.disclaimers[key]
    if outcome.word == "value" and trial.expected is None:
        return False, "open: no document was found that demands an error"
    if outcome.word == "value" and outcome.is_open:
        return False, "open: no document was found that says what follows an integer beyond the range of its type"
    if outcome.word == "value" and "subnormal floats" in outcome.text:
        return True, "IEEE 754, 5.11: subnormal floats are numbers that differ from 0"
    if outcome.word == "value":
        return True, "the definition of the function"
    if outcome.word == "sign of zero" and not outcome.is_open:
        return True, "IEEE 754: the result is none of the elements"
    if outcome.word == "sign of zero":
        return False, "open: IEEE 754 has -0 equal to +0"
    if outcome.word == "NaN" and not any(w in trial.function for w in ("arg", "max", "min", "top-k")):
        return True, "IEEE 754, 6.2 and 7.2: operations with NaN, and invalid ones, give NaN"
    return False, "open: no document was found that says which"


_RULES = {
    "tie": "docs/semantics.md, decision 20 and Which element wins: the first of equal elements, or the last",
    "NaN": "docs/semantics.md, decision 5: a NaN wins, the first of several",
    "sign of zero": "docs/semantics.md, decision 8: -0 and +0 are equal, and the winner keeps its bits",
    "rounding": "docs/operators.md, Bounds: the error of compensated sums",
}


def _rule(trial: Trial, word: str) -> str:
    """The rule of dmlgpu's documents for the oracle's value."""
    if trial.desc is None:
        decision = "22: empty arrays" if trial.inputs["x"].size == 0 else "6: a window wholly in padding"
        return f"docs/semantics.md, decision {decision}"
    if "top-k" in trial.function and word in ("tie", "NaN"):
        return "docs/semantics.md, decision 24: NaN is the greatest, equal elements follow their indices"
    if word == "NaN" and trial.function.split()[0] not in ("argmax", "argmax,", "argmin", "argmin,", "max", "min"):
        return "docs/semantics.md, Sums and products: NaN and infinities as in IEEE 754"
    return _RULES.get(word, f"docs/operators.md: {type(trial.desc).__name__}")


def _reduced(child: Isolated, library: Library, trial: Trial, outcome: Outcome) -> tuple[Trial, Outcome]:
    """A smaller trial with the same outcome."""
    attempts = _ATTEMPTS
    if outcome.word == CRASHED:  # each starts another process, and may last as long as it is allowed to
        attempts = 0 if outcome.text.startswith("no answer") else 2
    expected = outcome.word, _judged(library, trial, outcome)
    changed = True
    while changed:
        changed = False
        for candidate in smaller(trial):
            attempts -= 1
            if attempts < 0:
                return trial, outcome
            program = candidate.program(library)
            if program is None:
                continue
            new = _outcome(child, candidate, program, library)
            if new.word == expected[0] and _judged(library, candidate, new) == expected[1]:
                trial, outcome, changed = candidate, new, True
                break
    return trial, outcome


def _reproducer(trial: Trial, outcome: Outcome, library: Library) -> str:
    program = trial.program(library)
    assert program is not None
    if sum(x.size for x in trial.inputs.values()) > _MOST_SHOWN:
        return f"# {trial.id}: its input is too large to print; run with -k {trial.id}"
    text = "\n".join(lines(trial, library, program))
    right = _right(trial, library)
    return f"{text}  # {f'right: {right}' if len(right) <= _MOST_RIGHT else outcome.text}"


def _right(trial: Trial, library: Library) -> str:
    if trial.expected is None:
        return "an exception"
    if not trial.expected:
        return "anything, or an exception"
    values = [y.tolist() for y in trial.expected]
    if library.plane_indices and trial.function == "max pooling with indices":
        assert trial.desc is not None
        area = math.prod(trial.inputs["x"].shape[2:])
        values[1] = (trial.expected[1] % area).tolist()
    return ", ".join(map(str, values))


def _as_json(title: str, outcomes: list[Row], differences: list[Difference]) -> dict[str, object]:
    cases = [
        {"case": trial.id, "function": trial.function, "kinds": kinds, "outcome": outcome.word, "text": outcome.text}
        for trial, kinds, outcome in outcomes
    ]
    return {
        "library": title,
        "dmlgpu": __version__,
        "cases": cases,
        "differences": [asdict(difference) for difference in differences],
    }


def _print(title: str, outcomes: list[Row], left_out: int, differences: list[Difference], *, markdown: bool) -> None:
    counts: dict[tuple[str, str], Counter[str]] = {}
    for trial, kinds, outcome in outcomes:
        for kind in ("all", *kinds):
            counts.setdefault((trial.function, kind), Counter())[outcome.word] += 1
    order = ("all", *KINDS)
    rows = [("function", "kind", "cases", *_HEADS)]
    for (function, kind), words in sorted(counts.items(), key=lambda entry: (entry[0][0], order.index(entry[0][1]))):
        numbers = [words[word] for word in _HEADS.values()]
        rows.append((function, kind, *(str(n or "") for n in (sum(numbers), *numbers))))
    print(title)
    print()
    _print_table(rows, markdown=markdown)
    total = Counter(outcome.word for _, _, outcome in outcomes)
    print(f"\nCases: {len(outcomes)}; {', '.join(f'{total[w]} {w}' for w in _HEADS.values() if total[w])}.")
    print(f"Cases without a function in the library: {left_out}")
    for difference in sorted(differences, key=lambda difference: not difference.wrong):
        names = ", ".join(difference.cases[:3]) + (", ..." if len(difference.cases) > 3 else "")
        head = f"{difference.function}: {'wrong' if difference.wrong else 'open'}, "
        head += "crashed" if difference.outcome == CRASHED else f"differs by {difference.outcome}"
        count = f"{len(difference.cases)} case{'s' * (len(difference.cases) > 1)}"
        print(f"\n{'### ' if markdown else ''}{head}, {count} ({names})\n")
        print(f"{difference.text}.  " if markdown else difference.text)
        print(f"dmlgpu: {difference.rule}.  " if markdown else f"dmlgpu: {difference.rule}")
        print(f"library: {difference.document}\n")
        print(f"```python\n{difference.reproducer}\n```" if markdown else difference.reproducer)


def _print_table(rows: Sequence[Sequence[str]], *, markdown: bool) -> None:
    if markdown:
        rows = [rows[0], ("---", "---", *("---:",) * (len(rows[0]) - 2)), *rows[1:]]
        for row in rows:
            print(f"| {' | '.join(row)} |")
        return
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.ljust(width) if i < 2 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())


if __name__ == "__main__":
    sys.exit(main())
