"""The command line: measures, shows saved results again, and compares them."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.cases import CASES, LARGE, LARGEST, SCALES, SMALLEST, describe, exponents, scaled
from benchmarks.compare import compared, differences
from benchmarks.compiled import FAMILIES, compile_for, compiled_table, save_compiled, sources
from benchmarks.kompute import Kompute
from benchmarks.machine import header
from benchmarks.peer_exact import ExactPeer
from benchmarks.peer_numpy import NumpyPeer
from benchmarks.peer_onnxruntime import OnnxruntimePeer, WebgpuPeer
from benchmarks.peer_torch import TorchPeer
from benchmarks.peer_usual import UsualPeer
from benchmarks.peers import Peer, UnavailableError
from benchmarks.report import COLUMNS, absences, show, times_table, to_markdown
from benchmarks.results import BenchmarkError, Run, load, save
from benchmarks.run import run_case
from dmlgpu import Device, DeviceError, SettingError
from dmlgpu.runtime.settings import switch
from dmlgpu.testing.cases import Case
from dmlgpu.tools.terminal import exit_code, fail, open_console, written_to_the_end

if TYPE_CHECKING:
    from rich.console import Console

# RDNA 2, neither the oldest family nor the newest.
_FAMILY = "navi21"

_PEERS: dict[str, Callable[[Kompute], Peer]] = {
    "exact": ExactPeer,
    "usual": UsualPeer,
    "numpy": lambda _: NumpyPeer(),
    "torch": lambda _: TorchPeer(),
    "torch-cuda": lambda kompute: TorchPeer("cuda", kompute.device.info.uuid),
    "onnxruntime": lambda _: OnnxruntimePeer(),
    "onnxruntime-webgpu": lambda _: WebgpuPeer(),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; the exit code is 0, or 2 if the command could not run or results differ.

    It is 130 if Ctrl-C ended it, and 141 if its output's reader closed the pipe.
    """
    return exit_code(lambda: _run(argv))


def _run(argv: Sequence[str] | None) -> int:
    try:
        with written_to_the_end():
            args = _parser().parse_args(argv)
            run: Callable[[argparse.Namespace], None] = args.run
            run(args)
    except BrokenPipeError:
        raise
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("rich", "matplotlib"):
            raise
        return fail("benchmarks", f'{error.name} is not installed: pip install "dmlgpu[bench]"')
    except (BenchmarkError, DeviceError, SettingError, OSError) as error:
        return fail("benchmarks", error)
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measures dmlgpu and its peers alternately.",
        epilog="examples:\n"
        "  python -m benchmarks -k pool --device llvmpipe --json new.json\n"
        "  python -m benchmarks --device llvmpipe --markdown table.md --plot picture.png\n"
        "  python -m benchmarks --compiled --only windows --show Assembly\n"
        "  python -m benchmarks compare old.json new.json\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=_measure)
    parser.add_argument("-k", metavar="TEXT", default="", help="only cases with this in their names")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--list", action="store_true", help="list the cases and stop")
    instead.add_argument(
        "--compiled",
        dest="run",
        action="store_const",
        const=_compile,
        help="show what the compiler of AMD's GPUs makes of the cases' kernels, without a GPU, and measure nothing",
    )
    parser.add_argument("--device", metavar="INDEX|NAME|UUID", help="default: DMLGPU_DEVICE, else the best device")
    parser.add_argument(
        "--peers", metavar="NAMES", default=",".join(_PEERS), help="peers, separated by commas (default: %(default)s)"
    )
    parser.add_argument(
        "--rounds", metavar="N", type=_positive(int), default=15, help="rounds of samples (default: 15)"
    )
    parser.add_argument(
        "--seconds",
        metavar="S",
        type=_positive(float),
        default=5.0,
        help="maximum seconds of a contender per case, but at least three rounds (default: 5)",
    )
    over = parser.add_mutually_exclusive_group()
    over.add_argument(
        "--scale",
        metavar="LOW-HIGH",
        nargs="?",
        const=f"{SMALLEST}-{LARGEST}",
        help="measure sizes doubled from 2^LOW elements to 2^HIGH (default: %(const)s) instead",
    )
    over.add_argument("--large", action="store_true", help="measure cases of some 250 MB instead, for GPUs")
    parser.add_argument(
        "--limit", metavar="S", type=_positive(float), default=math.inf, help="begin no case after S seconds"
    )
    parser.add_argument(
        "--keep-going",
        action="store_true",
        help="leave out a peer whose results differ or that takes longer than --seconds for a call, and a case that "
        "fails, with exit code 2 at the end",
    )
    parser.add_argument("--json", metavar="FILE", help="write all samples, after every case; or what was compiled")
    _add_outputs(parser)
    compiling = parser.add_argument_group("with --compiled")
    compiling.add_argument(
        "--family", metavar="NAME", help=f"family of GPUs: {', '.join(FAMILIES)} (default: {_FAMILY})"
    )
    compiling.add_argument("--only", metavar="TEXT", help="only kernels with this in their names")
    compiling.add_argument("--spirv", metavar="FOLDER", help="load the modules of this folder instead of dmlgpu's")
    compiling.add_argument(
        "--show", metavar="NAME", help="print this representation instead of a table: Assembly, ACO IR, NIR Shader(s)"
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    showing = commands.add_parser("show", help="show what --json wrote", description="Shows what --json wrote.")
    showing.add_argument("file", metavar="FILE")
    _add_outputs(showing)
    showing.set_defaults(run=_show)
    comparing = commands.add_parser(
        "compare", help="compare two runs", description="Shows what changed between two files that --json wrote."
    )
    comparing.add_argument("old", metavar="OLD")
    comparing.add_argument("new", metavar="NEW")
    comparing.set_defaults(run=_compare)
    return parser


def _add_outputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--plot", metavar="FILE", help="draw the ratios to the fastest library's times: .png, .svg or .pdf"
    )
    parser.add_argument("--markdown", metavar="FILE", help="write the table as Markdown")


def _positive(kind: type[int] | type[float]) -> Callable[[str], float]:
    def parse(text: str) -> float:
        number = kind(text)
        if number <= 0:
            raise argparse.ArgumentTypeError(f"{text} is not positive")
        return number

    parse.__name__ = f"positive {kind.__name__}"
    return parse


def _check_files(args: argparse.Namespace) -> None:
    """Checks, before a long run, that its results can be written."""
    for path in filter(None, (getattr(args, "json", None), args.plot, args.markdown)):
        if not Path(path).absolute().parent.is_dir():
            raise BenchmarkError(f"{path}: there is no such folder")
    if args.plot:
        from benchmarks.plot import check_path

        check_path(args.plot)


def _cases(args: argparse.Namespace) -> list[Case]:
    text = args.k.lower()
    if args.scale:
        sizes = exponents(args.scale)
        # All cases of a size before the next: --limit excludes the largest.
        chosen = [scaled(name, exponent) for exponent in sizes for name in SCALES if text in name.lower()]
        names = list(SCALES)
    else:
        cases = LARGE if args.large else CASES
        chosen = [case for case in cases if text in case.id.lower()]
        names = [case.id for case in cases]
    if not chosen:
        raise BenchmarkError(f"no case has {args.k!r} in its name; cases are {', '.join(names)}")
    return chosen


def _open_peers(names: str, kompute: Kompute) -> tuple[dict[str, Peer], dict[str, str]]:
    """The available peers, and the reasons for missing ones."""
    present, missing = {}, {}
    for name in filter(None, (name.strip() for name in names.split(","))):
        if name not in _PEERS:
            raise BenchmarkError(f"there is no peer {name!r}; peers are {', '.join(_PEERS)}")
        try:
            present[name] = _PEERS[name](kompute)
        except UnavailableError as reason:
            missing[name] = str(reason)
    return present, missing


def _compile(args: argparse.Namespace) -> None:
    console = open_console(COLUMNS)
    if args.plot:
        raise BenchmarkError("--plot draws times: --compiled has none")
    _check_files(args)
    selected = sources(_cases(args), args.only or "", args.spirv)
    compiler, kernels, texts = compile_for(args.family or _FAMILY, selected, args.show)
    if args.json:
        save_compiled(kernels, args.json)
    if args.show:
        for compiled, text in zip(kernels, texts, strict=True):
            print(f"{compiled.kernel} of {', '.join(compiled.cases)}\n{text}")
        return
    header, tables = {"compiler": compiler}, [compiled_table(kernels)]
    show(console, header, tables, ())
    if args.markdown:
        Path(args.markdown).write_text(to_markdown(header, tables, ()), encoding="utf-8")


def _measure(args: argparse.Namespace) -> None:
    for name in ("family", "only", "spirv", "show"):
        if getattr(args, name):
            raise BenchmarkError(f"--{name} is an option of --compiled")
    console = open_console(COLUMNS)
    cases = _cases(args)
    if args.list:
        for case in cases:
            console.print(f"{case.id}: {describe(case.desc)}", markup=False, soft_wrap=True)
        return
    _check_files(args)
    if switch("DMLGPU_VERIFY"):
        raise BenchmarkError("DMLGPU_VERIFY is set: every call would be timed together with the oracle's")

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    terminal = Console(stderr=True)
    with ExitStack() as stack:
        device = stack.enter_context(Device(args.device))
        kompute = stack.enter_context(Kompute(device))
        peers, missing = _open_peers(args.peers, kompute)
        where = header(device, peers, args.rounds, args.seconds)
        # Drawn between rounds, never during one.
        bars = stack.enter_context(
            Progress(*columns, console=terminal, transient=True, auto_refresh=False, disable=not terminal.is_terminal)
        )
        bar = bars.add_task("", total=len(cases) * args.rounds)
        run, problems = Run(where, ()), []
        end = time.monotonic() + args.limit
        for number, case in enumerate(cases):
            if time.monotonic() > end:
                left_out = f"{len(cases) - number} cases after {args.limit:g} s, from {case.id} on"
                run = replace(run, header={**run.header, "left out": left_out})
                break
            bars.update(bar, description=case.id, refresh=True)
            try:
                result = run_case(
                    case,
                    kompute,
                    peers,
                    missing,
                    rounds=args.rounds,
                    seconds=args.seconds,
                    fresh=not args.scale,
                    strict=not args.keep_going,
                    advance=lambda: bars.update(bar, advance=1, refresh=True),
                )
            except Exception as error:  # any error of a driver or library
                if not args.keep_going:
                    raise
                problems.append(str(error) if isinstance(error, BenchmarkError) else f"{case.id}: {error!r}")
                continue
            run = replace(run, results=(*run.results, result))
            if args.json:
                save(run, args.json)
    if args.json:
        save(run, args.json)
    _present(run, console, args)
    if problems:
        raise BenchmarkError("; ".join(problems))


def _show(args: argparse.Namespace) -> None:
    console = open_console(COLUMNS)
    _check_files(args)
    _present(load(args.file), console, args)


def _present(run: Run, console: Console, args: argparse.Namespace) -> None:
    tables, dashes = [times_table(run.results)], absences(run.results)
    show(console, run.header, tables, dashes)
    if args.markdown:
        Path(args.markdown).write_text(to_markdown(run.header, tables, dashes), encoding="utf-8")
    if args.plot and run.results:
        from benchmarks.plot import plot

        plot(run.header, run.results).savefig(args.plot)


def _compare(args: argparse.Namespace) -> None:
    old, new = load(args.old), load(args.new)
    table = compared(old, new)
    if not table.rows:
        raise BenchmarkError(f"{args.old} and {args.new} have no case in common")
    show(open_console(COLUMNS), {}, [table], differences(old, new))
