"""`python -m dmlgpu.testing LIBRARY`: runs the cases of the project's tests with another library.

The oracle computes the right values, so no Vulkan device is opened. Cases run in a child process, which may crash.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from dmlgpu import __version__
from dmlgpu.errors import shown
from dmlgpu.testing.cases import ALL_CASES, UNDESCRIBED
from dmlgpu.testing.differences import Difference, differences
from dmlgpu.testing.isolated import CrashedError, Isolated, RefusedError
from dmlgpu.testing.libraries import LIBRARIES, LibraryError, library_of
from dmlgpu.testing.outcomes import CRASHED, OUTCOMES, Outcome, outcome_of
from dmlgpu.testing.trials import KINDS, Trial, trials
from dmlgpu.tools import cli
from dmlgpu.tools.terminal import exit_code, fail, written_to_the_end


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
                    raise LibraryError("with vulkan:NAME, which is `dmlgpu verify --all`, no other options are allowed")
                return cli.main(["verify", "--all", f"--device={args.library.removeprefix('vulkan:')}"])
            return _test(args)
    except BrokenPipeError:
        raise
    except (LibraryError, ModuleNotFoundError, OSError) as error:
        return fail("dmlgpu.testing", error)
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dmlgpu.testing",
        description="Runs the cases of dmlgpu's tests with another library, and compares with dmlgpu's oracle.",
        epilog="exit code: 0 nothing is wrong, 1 a result is wrong or the library crashed, 2 the command could not run",
    )
    parser.add_argument("library", metavar="LIBRARY", help=f"one of {LIBRARIES}")
    parser.add_argument("-k", metavar="TEXT", default="", help="only cases with this text in function, kind or name")
    parser.add_argument(
        "--seconds",
        metavar="N",
        type=_seconds,
        default=60.0,
        help="seconds until a case counts as crashed (default: 60)",
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
    library, text = library_of(args.library), args.k.lower()
    with Isolated(library.imports, library.to_numpy, args.seconds, library.folders) as child:
        try:
            version = child.run(f"str({library.version})", {})[0].tobytes().decode(errors="replace")
        except (RefusedError, CrashedError) as error:
            raise LibraryError(f"{args.library}: {error}") from None
        chosen = [trial for trial in trials(ALL_CASES, UNDESCRIBED) if _is_chosen(trial, text)]
        if not chosen:
            raise LibraryError(f"-k {shown(args.k)}: no case has this text")
        rows = []
        for number, trial in enumerate(chosen, 1):
            if (outcome := outcome_of(trial, library, child)) is not None:
                rows.append((trial, outcome))
            if sys.stderr.isatty():
                print(f"\r{number} of {len(chosen)} cases ", end="" if number < len(chosen) else "\r", file=sys.stderr)
        reported = sorted(differences(child, library, rows), key=lambda difference: not difference.wrong)
    title = f"{args.library} {version}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    if args.json:
        print(json.dumps(_as_json(title, rows, reported), indent=1))
    else:
        _print_table(title, rows, len(chosen) - len(rows), markdown=args.markdown)
        _print_differences(reported, markdown=args.markdown)
    return int(any(difference.wrong for difference in reported))


def _is_chosen(trial: Trial, text: str) -> bool:
    if text in f"{trial.function} / {trial.id}".lower():
        return True
    return any(text in kind.lower() for kind in KINDS) and any(text in kind.lower() for kind in trial.kinds)


def _as_json(title: str, rows: list[tuple[Trial, Outcome]], reported: list[Difference]) -> dict[str, object]:
    cases = [
        {"case": trial.id, "function": trial.function, "kinds": trial.kinds, "outcome": word, "text": text}
        for trial, (word, text, _) in rows
    ]
    return {"library": title, "dmlgpu": __version__, "cases": cases, "differences": list(map(asdict, reported))}


def _print_table(title: str, rows: list[tuple[Trial, Outcome]], left_out: int, *, markdown: bool) -> None:
    counts: dict[tuple[str, int], Counter[str]] = {}
    for trial, outcome in rows:
        for number in (-1, *map(KINDS.index, trial.kinds)):
            counts.setdefault((trial.function, number), Counter())[outcome.word] += 1
    table: list[tuple[str, ...]] = [("function", "kind", "cases", *OUTCOMES)]
    for (function, number), words in sorted(counts.items()):
        numbers = (str(n or "") for n in (words.total(), *map(words.__getitem__, OUTCOMES)))
        table.append((function, "all" if number < 0 else KINDS[number], *numbers))
    if markdown:
        table.insert(1, ("---", "---", *("---:",) * (len(table[0]) - 2)))
    widths = [0 if markdown else max(map(len, column)) for column in zip(*table, strict=True)]
    print(f"{title}\n")
    for first, second, *others in table:
        cells = [first.ljust(widths[0]), second.ljust(widths[1]), *map(str.rjust, others, widths[2:])]
        print(f"| {' | '.join(cells)} |" if markdown else "  ".join(cells).rstrip())
    total = Counter(outcome.word for _, outcome in rows)
    print(f"\nCases: {len(rows)}; {', '.join(f'{total[word]} {word}' for word in OUTCOMES if total[word])}.")
    print(f"Cases without a function in the library: {left_out}")


def _print_differences(reported: list[Difference], *, markdown: bool) -> None:
    mark, end, fence = ("### ", ".  ", ("```python\n", "\n```")) if markdown else ("", "", ("", ""))
    for difference in reported:
        count, how = len(difference.cases), "wrong" if difference.wrong else "open"
        names = ", ".join(difference.cases[:3]) + ", ..." * (count > 3)
        differs = "crashed" if difference.outcome == CRASHED else f"differs by {difference.outcome}"
        print(f"\n{mark}{difference.function}: {how}, {differs}, {count} case{'s' * (count > 1)} ({names})\n")
        print(f"{difference.text}{end}\ndmlgpu: {difference.rule}{end}\nlibrary: {difference.document}\n")
        print(difference.reproducer.join(fence))


if __name__ == "__main__":
    sys.exit(main())
