"""The command line: measures, shows saved results again, and compares them."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.cases import CASES, LARGE, SCALES, describe
from benchmarks.compare import compared, differences
from benchmarks.compiled import FAMILIES, Source, compile_for, compiled_table, sources
from benchmarks.kompute import Kompute
from benchmarks.machine import header
from benchmarks.peer_exact import ExactPeer
from benchmarks.peer_numpy import NumpyPeer
from benchmarks.peer_onnxruntime import OnnxruntimePeer, WebgpuPeer
from benchmarks.peer_torch import TorchPeer
from benchmarks.peer_usual import UsualPeer
from benchmarks.peers import Peer, UnavailableError
from benchmarks.report import COLUMNS, Table, absences, show, times_table, to_markdown
from benchmarks.results import BenchmarkError, Run, load, save
from benchmarks.run import run_case
from dmlgpu import Device, DeviceError, SettingError
from dmlgpu.runtime.settings import switch
from dmlgpu.tools.terminal import exit_code, fail, open_console, written_to_the_end

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
    """Runs the command line.

    Returns:
        The exit code: 0 success, 2 the command could not run or a case failed, 130 Ctrl-C ended it, 141 the reader of
        its output closed the pipe.
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
        "  python -m benchmarks --compiled gfx1100 -k pool_small --assembly\n"
        "  python -m benchmarks compare old.json new.json\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=_measure)
    add = parser.add_argument
    add("-k", metavar="TEXT", default="", help="only cases (with --compiled: and kernels) with this in their names")
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--list", action="store_true", help="list the cases and stop")
    modes.add_argument(
        "--compiled",
        metavar="FAMILY",
        choices=FAMILIES,
        nargs="?",
        const="navi21",
        help="measure nothing, but compile the cases' kernels for AMD's GPUs, without a GPU, and show their "
        f"registers and loads; one of {', '.join(FAMILIES)} (default: %(const)s)",
    )
    add("--assembly", action="store_true", help="with --compiled: print the assembly instead of a table")
    add("--device", metavar="INDEX|NAME|UUID", help="default: DMLGPU_DEVICE, else the best device")
    add("--peers", metavar="NAMES", default=",".join(_PEERS), help="separated by commas (default: %(default)s)")
    add("--rounds", metavar="N", type=int, default=15, help="rounds of samples (default: 15)")
    add(
        "--seconds",
        metavar="S",
        type=float,
        default=5.0,
        help="maximum seconds of each contender per case, but at least three rounds; a peer whose single call is "
        "longer is left out (default: 5)",
    )
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--scale", action="store_true", help="measure sizes from 2^10 elements to 2^27 instead")
    sizes.add_argument("--large", action="store_true", help="measure cases of some 250 MB instead, for GPUs")
    add("--limit", metavar="S", type=float, default=math.inf, help="begin no case after S seconds")
    add("--json", metavar="FILE", help="write all samples, after every case")
    _add_outputs(parser)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    show_parser = commands.add_parser("show", help="show what --json wrote", description="Shows what --json wrote.")
    show_parser.add_argument("file", metavar="FILE")
    _add_outputs(show_parser)
    show_parser.set_defaults(run=_show)
    compare_parser = commands.add_parser(
        "compare", help="compare two runs", description="Shows what changed between two files that --json wrote."
    )
    compare_parser.add_argument("old", metavar="OLD")
    compare_parser.add_argument("new", metavar="NEW")
    compare_parser.set_defaults(run=_compare)
    return parser


def _add_outputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--plot", metavar="FILE", help="draw the ratios to the fastest library's times: .png, .svg or .pdf"
    )
    parser.add_argument("--markdown", metavar="FILE", help="write the table as Markdown")


def _check_outputs(args: argparse.Namespace) -> None:
    """Checks, before a long run, that its results can be shown and written."""
    open_console(COLUMNS)
    for path in filter(None, (getattr(args, "json", None), args.plot, args.markdown)):
        if not Path(path).absolute().parent.is_dir():
            raise BenchmarkError(f"{path}: there is no such folder")
    if args.plot:
        from benchmarks.plot import check_path

        check_path(args.plot)


def _open_peers(names: str, kompute: Kompute) -> tuple[dict[str, Peer], dict[str, str]]:
    """The available peers; and for every name a description, or the reason why that peer is missing."""
    peers, texts = {}, {}
    for name in filter(None, (name.strip() for name in names.split(","))):
        if name not in _PEERS:
            raise BenchmarkError(f"there is no peer {name!r}; peers are {', '.join(_PEERS)}")
        try:
            peers[name] = _PEERS[name](kompute)
            texts[name] = peers[name].description
        except UnavailableError as reason:
            texts[name] = str(reason)
    return peers, texts


def _measure(args: argparse.Namespace) -> None:
    cases, text = SCALES if args.scale else LARGE if args.large else CASES, args.k.lower()
    if args.compiled:
        _compile(args, sources(cases, text))
        return
    if args.assembly:
        raise BenchmarkError("--assembly is an option of --compiled")
    chosen = [case for case in cases if text in case.id.lower()]
    if not chosen:
        raise BenchmarkError(f"no case has {args.k!r} in its name; cases are {', '.join(case.id for case in cases)}")
    if args.list:
        for case in chosen:
            print(f"{case.id}: {describe(case.desc)}")
        return
    _check_outputs(args)
    if args.rounds < 1:
        raise BenchmarkError(f"--rounds {args.rounds}: at least one is necessary")
    if switch("DMLGPU_VERIFY"):
        raise BenchmarkError("DMLGPU_VERIFY is set, so every time would include the oracle's: unset it")
    with Device(args.device) as device, Kompute(device) as kompute:
        peers, texts = _open_peers(args.peers, kompute)
        run, problems = Run(header(device, texts, args.rounds, args.seconds), ()), []
        end = time.monotonic() + args.limit
        for number, case in enumerate(chosen):
            if time.monotonic() > end:
                left_out = f"{len(chosen) - number} of {len(chosen)} cases after {args.limit:g} s, from {case.id} on"
                run = replace(run, header={**run.header, "left out": left_out})
                break
            if sys.stderr.isatty():
                print(f"{number + 1} of {len(chosen)}: {case.id}", file=sys.stderr)
            try:
                result = run_case(case, kompute, peers, args.rounds, args.seconds, fresh=not args.scale)
                run = replace(run, results=(*run.results, result))
            except Exception as error:  # any error of a driver or library
                problems.append(str(error) if isinstance(error, BenchmarkError) else f"{case.id}: {error!r}")
            if args.json:
                save(run, args.json)
    if args.json:
        save(run, args.json)
    _present(run, args)
    if problems:
        raise BenchmarkError("; ".join(problems))


def _compile(args: argparse.Namespace, kernels: Sequence[Source]) -> None:
    if args.plot or args.json:
        raise BenchmarkError("--plot and --json need times, but --compiled measures none: omit them")
    _check_outputs(args)
    compiler, results = compile_for(args.compiled, kernels)
    if args.assembly:
        for kernel in results:
            print(f"{kernel.kernel} of {', '.join(kernel.cases)}\n{kernel.assembly}")
    else:
        _write({"compiler": compiler}, compiled_table(results), (), args.markdown)


def _show(args: argparse.Namespace) -> None:
    _check_outputs(args)
    _present(load(args.file), args)


def _present(run: Run, args: argparse.Namespace) -> None:
    _write(run.header, times_table(run.results), absences(run.results), args.markdown)
    if args.plot and run.results:
        from benchmarks.plot import plot

        plot(run.header, run.results).savefig(args.plot)


def _write(header: Mapping[str, str], table: Table, notes: Sequence[str], markdown: str | None) -> None:
    """Shows results on the terminal; with `markdown`, the path of a file, also writes them there."""
    show(open_console(COLUMNS), header, table, notes)
    if markdown:
        Path(markdown).write_text(to_markdown(header, table, notes), encoding="utf-8")


def _compare(args: argparse.Namespace) -> None:
    old, new = load(args.old), load(args.new)
    table = compared(old, new)
    if not table.rows:
        raise BenchmarkError(f"{args.old} and {args.new} have no case in common")
    _write({}, table, differences(old, new), None)
