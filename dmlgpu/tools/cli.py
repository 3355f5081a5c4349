"""The command line: `dmlgpu devices`, `demo`, `verify`, `explain`, `profile`, `run`, `stream` and `doctor`."""

from __future__ import annotations

import argparse
import inspect
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from difflib import get_close_matches
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import dmlgpu
from dmlgpu import __version__
from dmlgpu.chunks.source import CHUNK_BYTES
from dmlgpu.descriptors.operator import ExecutionFlags, OperatorDesc
from dmlgpu.descriptors.tensor import Array
from dmlgpu.errors import DescriptorError, DeviceError, SettingError, VerificationError, shown
from dmlgpu.files import open_npy, written
from dmlgpu.reference.bounds import is_exact
from dmlgpu.registry import DESCRIPTORS
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.drivers import DeviceInfo, devices
from dmlgpu.tools.dxdispatch import Model, ModelError, Options
from dmlgpu.tools.terminal import exit_code, fail, open_console, written_to_the_end

if TYPE_CHECKING:
    from rich.console import Console

# Modules that commands import and dmlgpu does not require, and the extras that install them.
_EXTRAS = {"rich": "cli", "PIL": "demo"}
# The functions that `dmlgpu stream` computes.
_STREAMED = (
    *("argmax", "argmin", "average_pooling", "cumulative_prod", "cumulative_sum", "lp_pooling", "max", "max_pooling"),
    *("mean", "min", "prod", "reduce", "sum", "top_k"),
)
# Width of tables in files and pipes.
_COLUMNS = 120
# Maximum number of dispatches that are shown: a plan of a tensor in many segments has thousands.
_DISPATCHES = 20


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        argv: the arguments; None: those of the process.

    Returns:
        The exit code: 0 all is well, 1 a result differs from the oracle or something is broken, 2 the command could not
        run, 130 Ctrl-C ended it, 141 the reader of its output closed the pipe: as if SIGPIPE had ended it, and without
        a message.
    """
    return exit_code(lambda: _run(argv))


def _run(argv: Sequence[str] | None) -> int:
    try:
        with written_to_the_end():
            args = _arguments(sys.argv[1:] if argv is None else argv)
            run: Callable[[argparse.Namespace], int] = args.run
            return run(args)
    except BrokenPipeError:
        raise
    except VerificationError as error:
        return fail("dmlgpu", error, 1)
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in _EXTRAS:
            raise
        return fail("dmlgpu", f"{module} is not installed: pip install dmlgpu[{_EXTRAS[module]}]")
    except (DescriptorError, DeviceError, ModelError, SettingError, OSError) as error:
        return fail("dmlgpu", error)
    except MemoryError as error:
        return fail("dmlgpu", str(error) or "out of memory on this machine")
    except KeyboardInterrupt:
        return 130


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Parses the arguments. An error prints the usage of the chosen command, and exits with 2."""
    parser, commands = _parser()
    for argument in argv:
        if "\0" in argument:
            parser.error(f"{argument!r} is not allowed; remove the character 0")
    first = argv[0] if argv else ""
    if first.startswith("-") and not any(option.startswith(first) for option in parser._option_string_actions):
        options = {option for command in commands.values() for option in command._option_string_actions}
        nearest = _nearest(first, options)
        owners = [name for name, command in commands.items() if nearest in command._option_string_actions]
        meant = f"{nearest} of {', '.join(owners)}" if nearest else ""
        parser.error(f"put a command before {first}{_hint(meant)}")
    if first and not first.startswith("-") and first not in commands:
        hint = _hint(_nearest(first, commands))
        parser.error(f"there is no command {first!r}; commands are {', '.join(commands)}{hint}")
    args, unknown = parser.parse_known_args(argv)
    if args.command is None:
        parser.print_help(sys.stderr)
        parser.exit(2, "\ndmlgpu: error: no command; give one of those above\n")
    if unknown:
        command = commands[args.command]
        if unknown[0].startswith("-"):
            command.error(
                f"there is no option {unknown[0]}{_hint(_nearest(unknown[0], command._option_string_actions))}"
            )
        advice = _advice_for_operator(args.model, *unknown) if args.command == "profile" and args.model else ""
        command.error(advice or f"unexpected argument {unknown[0]!r} (put options last)")
    return args


def _nearest(word: str, known: Iterable[str]) -> str:
    """The known word that is most similar; empty if none is similar."""
    return next(iter(get_close_matches(word.partition("=")[0], sorted(known), 1)), "")


def _hint(meant: str) -> str:
    return f"; did you mean {meant}?" if meant else ""


def _parser() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """The main parser, and the parsers of the commands by their names."""
    *names, last = DESCRIPTORS
    parser = argparse.ArgumentParser(
        prog="dmlgpu",
        description=f"DirectML's {', '.join(names)} and {last} on any Vulkan device.",
        epilog="exit code: 0 success, 1 a result differs from the oracle or something is broken, "
        "2 the command could not run",
    )
    parser.add_argument("--version", action="version", version=f"dmlgpu {__version__}", help="show the version")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")

    def command(
        name: str, run: Callable[[argparse.Namespace], int], text: str, *examples: str, words: Sequence[str] = ()
    ) -> argparse.ArgumentParser:
        added = commands.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog="\n".join(
                [
                    *(["what it prints:", *(f"  {word}" for word in words), ""] if words else []),
                    "examples:",
                    *(f"  {example}" for example in examples),
                ]
            ),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        added.set_defaults(run=run)
        return added

    listing = command(
        "devices",
        _devices,
        "list the Vulkan devices of this machine",
        "dmlgpu devices",
        "dmlgpu devices --json",
        words=(
            "buffer      the largest buffer that a kernel can bind",
            "allocation  the largest single allocation of memory",
            "group size  the maximum number of invocations in a workgroup",
            "groups      the maximum number of workgroups in a dispatch",
            "heaps       the device's memory heaps; device: for tensors; host: for copies to and from the host",
        ),
    )
    listing.add_argument("--json", action="store_true", help="print a JSON array with all properties, sizes in bytes")

    demo = command(
        "demo",
        _demo,
        "run the operators on a photograph and draw the results",
        "dmlgpu demo",
        "dmlgpu demo --image holiday.jpg --output operators.webp",
        "dmlgpu demo --device 0",
        words=(
            "exact     the result has the oracle's bits",
            "in bound  the operator rounds, and the difference is within its bound",
        ),
    )
    demo.add_argument(
        "--image",
        metavar="FILE",
        help="a BMP, GIF, JPEG, PNG, PPM, TIFF or WebP image (default: a portrait of Grace Hopper)",
    )
    demo.add_argument(
        "--output",
        metavar="FILE",
        default="demo.png",
        help="the picture to write: BMP, JPEG, PNG, TIFF or WebP, by its suffix (default: %(default)s)",
    )

    verify = command(
        "verify",
        _verify,
        "check every operator with every type on a device against the NumPy oracle",
        "dmlgpu verify",
        "dmlgpu verify --device 0",
        "dmlgpu verify --device llvmpipe --all",
        "dmlgpu verify --exhaustive",
        words=(
            "right      cases with the oracle's bits, or within the bound of an operator that rounds",
            "different  all other cases; an error shows where the first one differs",
        ),
    )
    amount = verify.add_mutually_exclusive_group()
    amount.add_argument(
        "--all", action="store_true", help="check also all cases of dmlgpu's tests; takes 1.8 minutes more on lavapipe"
    )
    amount.add_argument(
        "--exhaustive",
        action="store_true",
        help="check instead the order of all bit patterns of every type of up to 32 bits; takes minutes",
    )
    explain = command(
        "explain",
        _explain,
        "show how a device would compute an operator: which kernel and why, and every dispatch",
        "dmlgpu explain argmax float32 4096,1024 axis=1",
        "dmlgpu explain reduce float32 8,100 function=SUM axis=1",
        "dmlgpu explain max_pooling2 float16 1,64,112,112 window_size=3,3 strides=2,2 indices_data_type=uint32",
        "dmlgpu explain argmax uint8 100000,16 axis=0 --kernel reduce",
        words=(
            "outputs       the range of output elements that a dispatch computes",
            "segment       a part of a tensor that is too large for one buffer",
            "partials      partial results of each output, which the second pass combines",
            "temporary     a tensor that one dispatch writes and a later one reads",
            "word          32 bits",
        ),
    )
    explain.add_argument("operator", help=f"one of {', '.join(DESCRIPTORS).lower()}")
    explain.add_argument("type", nargs="?", help="type of the input, such as float32; an unknown type lists all")
    explain.add_argument("sizes", nargs="?", help="sizes of the input, such as 8,64,112,112")
    explain.add_argument(
        "arguments",
        nargs="*",
        default=(),
        metavar="NAME=VALUE",
        help="arguments of the operator, such as axis=0,1 or window_size=3,3; an unknown name lists all; "
        "input_strides=1,4096 describes an input that is not packed",
    )
    explain.add_argument(
        "--kernel", metavar="NAME", help="use this kernel instead of the chosen one; an unknown name lists all"
    )
    explain.add_argument("--exact", action="store_true", help="round sums of floats only once")
    profile = command(
        "profile",
        _profile,
        "show where the time of calls goes, and write a trace that chrome://tracing and Perfetto open",
        "dmlgpu profile --op argmax float32 4096,1024 axis=1",
        "dmlgpu profile --op max_pooling2 float16 1,64,112,112 window_size=3,3 --calls 100 --trace pool.json",
        "dmlgpu profile model.json --device llvmpipe",
        words=(
            "kind    what the time was spent on; docs/using.md explains each",
            "ms      total time, measured by the host",
            "own ms  the same without events inside it, such as the dispatches of a call",
            "share   part of all own ms",
            "median  time of one event in ms; also least and largest",
            "GB/s    bytes of all tensors per second",
        ),
    )
    profile.add_argument("model", nargs="?", metavar="MODEL", help="a model file, as for `dmlgpu run`")
    profile.add_argument(
        "--op",
        nargs="+",
        metavar=("OPERATOR", "TYPE, SIZES, NAME=VALUE"),
        help="an operator instead of a model file, with the arguments of `dmlgpu explain`",
    )
    profile.add_argument(
        "--calls", metavar="N", type=_from(1), default=10, help="calls after the first one (default: %(default)s)"
    )
    profile.add_argument("--trace", metavar="FILE", help="write the trace to this JSON file")
    model = command(
        "run",
        _run_model,
        "run a model file of DxDispatch with these operators, and print the time of each dispatch",
        "dmlgpu run model.json",
        "dmlgpu run model.json -i 100 -r 10 -v 1",
        "dmlgpu run model.json -a llvmpipe --output_path results",
    )
    model.add_argument("model", nargs="?", metavar="MODEL", help="the JSON document")
    model.add_argument("-a", "--adapter", dest="device", metavar="TEXT", help="the same as --device")
    model.add_argument("-s", "--show_adapters", action="store_true", help="list the devices instead")
    for short, name, least, text in (
        ("-i", "dispatch_iterations", 1, "samples of each dispatch"),
        ("-r", "dispatch_repeat", 1, "dispatches in a sample, submitted together"),
        ("-w", "warmup_samples", 0, "warm-up samples, reported separately; the last sample is never one"),
    ):
        text += " (default: %(default)s)"
        model.add_argument(short, f"--{name}", metavar="N", type=_from(least), default=1, help=text)
    model.add_argument(
        "-v",
        "--timing_verbosity",
        type=int,
        choices=(0, 1, 2),
        default=0,
        help="1: also averages, least and largest; 2: also every sample (default: %(default)s)",
    )
    model.add_argument(
        "--input_path",
        type=Path,
        metavar="DIR",
        help="the folder to read files from, before the current folder (default: the model's folder)",
    )
    model.add_argument(
        "--output_path",
        type=Path,
        metavar="DIR",
        default=Path(),
        help="the folder to write files to (default: the current folder); no file is written outside it",
    )
    model.add_argument("--force", action="store_true", help="overwrite existing files")
    stream = command(
        "stream",
        _stream,
        "compute a function of an array in a .npy file, which may be larger than the memory, in chunks",
        "dmlgpu stream argmax x.npy axis=0",
        "dmlgpu stream sum x.npy axis=1,2 --output sums.npy",
        "dmlgpu stream max_pooling x.npy window_size=3,3 strides=2,2 --output maxima.npy",
        "dmlgpu stream max_pooling x.npy window_size=2,2 output_indices=True --output values.npy indices.npy",
    )
    stream.add_argument("function", metavar="FUNCTION", choices=_STREAMED, help=f"one of {', '.join(_STREAMED)}")
    stream.add_argument("file", metavar="FILE", help="the .npy file")
    stream.add_argument(
        "arguments",
        nargs="*",
        default=(),
        metavar="NAME=VALUE",
        help="arguments of dmlgpu.FUNCTION, such as axis=0; an unknown name lists all",
    )
    stream.add_argument(
        "--output",
        nargs="+",
        metavar="FILE",
        help=".npy files for the results, indices second (default: print the results)",
    )
    stream.add_argument("--force", action="store_true", help="overwrite existing results, but never FILE")
    stream.add_argument(
        "--chunk-mib",
        type=_from(1),
        default=CHUNK_BYTES >> 20,
        metavar="N",
        help="maximum MiB to read at once; at least one window is read (default: %(default)s)",
    )
    for subparser in demo, verify, explain, profile, model, stream:
        subparser.add_argument(
            "--device",
            metavar="INDEX|NAME|UUID",
            help="index, part of a name, or UUID, as listed by `dmlgpu devices` (default: DMLGPU_DEVICE, or the best)",
        )

    doctor = command(
        "doctor",
        _doctor,
        "find what is broken, slow or odd on this machine, and how to fix it",
        "dmlgpu doctor",
        "dmlgpu doctor --json",
    )
    doctor.add_argument("--json", action="store_true", help="print all findings as JSON, for a bug report")
    return parser, commands.choices


def _from(least: int) -> Callable[[str], int]:
    """A function that parses an integer of `least` or more."""

    def read(text: str) -> int:
        # No count is that large, and int() refuses more than 4,300 digits.
        if not text.isdecimal() or len(text) > 18 or int(text) < least:
            raise argparse.ArgumentTypeError(f"{shown(text)} is not allowed; allowed are integers from {least} on")
        return int(text)

    return read


def _devices(args: argparse.Namespace) -> int:
    if args.json:
        print(json.dumps([info.as_dict() for info in devices()], indent=2))
        return 0
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Column, Table

    # UUIDs must not be cut: users copy them for --device.
    table = Table("Index", Column("Name, driver and UUID", overflow="fold"), "Type", "Vulkan", box=SIMPLE_HEAD)
    table.add_column("Limits", no_wrap=True)
    table.add_column("Heaps")
    for info in devices():
        limits = {
            "buffer": _bytes(info.max_storage_buffer_range),
            "allocation": _bytes(info.max_memory_allocation_size),
            "group size": f"{info.max_group_size:,}",
            "groups": f"{info.max_group_count:,}",
        }
        table.add_row(
            str(info.index),
            f"{escape(info.name)}\n[dim]{escape(info.driver)}\n{info.uuid}[/]",
            info.type,
            info.api_version,
            "\n".join(f"{name} {limit}" for name, limit in limits.items()),
            "\n".join(_heaps(info)),
        )
    open_console(_COLUMNS).print(table)
    return 0


def _bytes(size: float) -> str:
    unit, *larger = "bytes", "KiB", "MiB", "GiB", "TiB"
    while size >= 1024 and larger:
        size, unit = size / 1024, larger.pop(0)
    return f"{size:.4g} {unit}"


def _heaps(info: DeviceInfo) -> list[str]:
    uses = {info.device_heap: ["device"]}
    uses.setdefault(info.host_heap, []).append("host")
    return [f"{_bytes(size)} {', '.join(uses.get(heap, ()))}".strip() for heap, size in enumerate(info.heaps)]


def _print_device(console: Console, device: Device) -> None:
    info = device.info
    console.print(f"device {info.index}: {info.name} ({info.type}), driver {info.driver}", markup=False, soft_wrap=True)


def _demo(args: argparse.Namespace) -> int:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from dmlgpu.tools import demo

    written = demo.WRITTEN.get(Path(args.output).suffix.lower())
    if written is None:
        return fail("dmlgpu", f"{args.output}: give the picture the suffix of its format: {', '.join(demo.WRITTEN)}")
    console = open_console(_COLUMNS)
    photograph = demo.load_photograph(args.image)
    with Device(args.device) as device:
        _print_device(console, device)
        results = demo.run(device, photograph)
        demo.draw(results, device.info).save(args.output, written)
    # With these line breaks the table fits 80 columns.
    table = Table("Operator", "Tensors", box=SIMPLE_HEAD, pad_edge=False)
    for name in "Kernel\nms", "Kernel\nGB/s", "Call\nms":
        table.add_column(name, justify="right")
    table.add_column("Result")
    for m in results.measurements:
        table.add_row(
            m.operator.replace(" ", "\n"),
            _tensors(m.desc),
            f"{1e3 * m.kernel_time:.2f}",
            f"{1e-9 * m.bandwidth:.2f}",
            f"{1e3 * m.call_time:.2f}",
            "[red]DIFFERENT[/]" if not m.agrees else "[green]exact[/]" if is_exact(m.desc) else "[green]in bound[/]",
        )
    console.print(table)
    console.print(
        f"Medians of {demo.RUNS} runs. Kernel: its dispatches, and the bytes of its tensors in that time. "
        "Call: arrays in and out, including the kernel, all copies and the call itself. "
        "Each result was compared with the NumPy oracle's."
    )
    console.print(f"The picture is in {args.output}.", markup=False, soft_wrap=True)
    if not all(m.agrees for m in results.measurements):
        return fail("dmlgpu", "a result differs from the oracle", 1)
    return 0


def _tensors(desc: OperatorDesc) -> str:
    """The types and sizes of a descriptor's tensors, a line each."""
    texts = [f"{t.data_type.name.lower()} {'x'.join(map(str, t.sizes))}" for t in (*desc.inputs, *desc.outputs)]
    return "\n-> ".join(texts)


def _verify(args: argparse.Namespace) -> int:
    if args.exhaustive:
        return _verify_order(args)
    from rich.box import SIMPLE_HEAD
    from rich.progress import track
    from rich.table import Table

    from dmlgpu.testing.cases import ALL_CASES, samples

    console = open_console(_COLUMNS)
    counts, right = Counter[str](), Counter[str]()
    first_error = None
    start = time.perf_counter()
    with Device(args.device) as device:
        _print_device(console, device)
        cases = [*samples(), *(ALL_CASES if args.all else ())]
        for case in track(cases, "checking", console=console, transient=True, disable=not console.is_terminal):
            error = case.verify(device)
            counts[case.operator] += 1
            right[case.operator] += error is None
            first_error = first_error or error
    table = Table("Operator", box=SIMPLE_HEAD)
    for name in "Cases", "Right", "Different":
        table.add_column(name, justify="right")
    for operator, count in counts.items():
        table.add_row(operator, f"{count:,}", f"{right[operator]:,}", f"{count - right[operator]:,}")
    console.print(table)
    console.print(f"{len(cases):,} cases in {time.perf_counter() - start:.1f} s")
    if first_error is not None:
        raise first_error
    return 0


def _verify_order(args: argparse.Namespace) -> int:
    from rich.box import SIMPLE_HEAD
    from rich.progress import track
    from rich.table import Table

    from dmlgpu.tools import exhaustive

    console = open_console(_COLUMNS)
    table = Table("Type", box=SIMPLE_HEAD)
    for name in "Pairs", "Minutes":
        table.add_column(name, justify="right")
    with Device(args.device) as device:
        _print_device(console, device)
        for data_type in exhaustive.TYPES:
            start = time.perf_counter()
            sections = exhaustive.sections(data_type)
            text = f"ordering {data_type.name}"
            for section in track(sections, text, console=console, transient=True, disable=not console.is_terminal):
                section.check(device)
            minutes = (time.perf_counter() - start) / 60
            table.add_row(data_type.name, f"{1 << data_type.bits:,}", f"{minutes:.1f}")
    console.print(table)
    console.print("The operators choose correctly between all neighbours, so they order all bit patterns correctly.")
    return 0


def _explain(args: argparse.Namespace) -> int:
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Column, Table

    from dmlgpu.tools import explain

    desc = explain.parse(args.operator, args.type, args.sizes, arguments=args.arguments)
    console = open_console(_COLUMNS)
    with Device(args.device) as device:
        _print_device(console, device)
        flags = ExecutionFlags.EXACT_SUMS if args.exact else ExecutionFlags.NONE
        plan = dmlgpu.explain(desc, device=device, flags=flags, kernel=args.kernel)
    console.print(escape(str(desc)), soft_wrap=True)
    kernels = Table("Kernel", "What it does, or why it was not chosen", box=SIMPLE_HEAD, pad_edge=False)
    for line in plan.kernel_choice:
        name, _, text = line.partition(": ")
        kernels.add_row(escape(name), escape(text))
    console.print(kernels)
    columns = (Column(name, overflow="fold") for name in ("Outputs", "Shader", "Reads", "Writes"))
    table = Table(*columns, box=SIMPLE_HEAD, pad_edge=False)
    for row in islice(explain.rows(plan), _DISPATCHES):
        table.add_row(*map(escape, row))
    console.print(table)
    if len(plan.dispatches) > _DISPATCHES:
        console.print(f"and {len(plan.dispatches) - _DISPATCHES:,} more dispatches")
    tensors = [*desc.inputs, *desc.outputs]
    sizes = " and ".join(_bytes(tensor.size_in_bytes) for tensor in tensors)
    temporary_bytes = sum(tensor.size_in_bytes for tensor in plan.temporaries)
    between = [("partials", plan.partial_bytes), ("temporaries", temporary_bytes)]
    memory = "".join(f", {name} of {_bytes(size)}" for name, size in between if size)
    console.print(f"Tensors of {sizes}{memory}.")
    return 0


def _advice_for_operator(model: str, *words: str) -> str:
    """Advice if `model` is an operator's name, not a file, and `words` are the arguments after it; "" if it is not."""
    if model.upper() not in DESCRIPTORS or os.path.exists(model):
        return ""
    call = " ".join(words) or "TYPE SIZES NAME=VALUE, as in --op argmax float32 4096,1024 axis=1"
    return f"{model} is an operator, and there is no file of this name; write dmlgpu profile --op {model} {call}"


def _profile(args: argparse.Namespace) -> int:
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    from dmlgpu.runtime.profile import KIND_COLUMNS, RUN_COLUMNS, kind_rows, run_rows

    if (args.model is None) == (args.op is None):
        return fail("dmlgpu", "profile: give either a model file or --op; see dmlgpu profile --help")
    if args.model is not None and (advice := _advice_for_operator(args.model)):
        return fail("dmlgpu", f"profile: {advice}")
    call = _calls_of_model(args.model) if args.op is None else _calls_of_operator(args.op)
    console = open_console(_COLUMNS)

    def show(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for column in columns:
            is_text = column in ("kind", "name", "operator")
            table.add_column(column, justify="left" if is_text else "right", overflow="fold")
        for row in rows:
            table.add_row(*map(escape, row))
        console.print(table)

    with Device(args.device) as device:
        _print_device(console, device)
        with device.profile() as profile:
            call(device)
            first = len(profile.events)
            for _ in range(args.calls):
                call(device)
    events = profile.events
    console.print("The first call, which plans and compiles:")
    show(KIND_COLUMNS, kind_rows(events[:first]))
    console.print(f"{args.calls:,} calls after it:")
    show(KIND_COLUMNS, kind_rows(events[first:]))
    show(RUN_COLUMNS, run_rows(events[first:]))
    console.print(profile.memory_text, soft_wrap=True)
    if args.trace is not None:
        profile.save(args.trace)
        console.print(f"The trace is in {args.trace}.", markup=False, soft_wrap=True)
    return 0


def _calls_of_model(path: str) -> Callable[[Device], object]:
    return Model(Path(path)).dispatch


def _calls_of_operator(words: Sequence[str]) -> Callable[[Device], object]:
    """A function that calls an operator with the same arrays in every run; its first call creates them."""
    from dmlgpu.registry import inputs_of
    from dmlgpu.testing import fills
    from dmlgpu.tools import explain

    desc = explain.parse(*words[:3], arguments=words[3:])

    @cache
    def inputs() -> tuple[Array, ...]:
        return inputs_of(
            desc, lambda tensor: fills.arranged(tensor, fills.normal if tensor.data_type.is_float else fills.any_bits)
        )

    return lambda device: device.compile(desc)(*inputs())


def _run_model(args: argparse.Namespace) -> int:
    if args.show_adapters:
        for info in devices():
            print(f"{info.index}: {info.name}")
        return 0
    if args.model is None:
        return fail("dmlgpu", "run: give a model file; see dmlgpu run --help")
    model = Model(Path(args.model), args.input_path)
    names = "dispatch_iterations", "dispatch_repeat", "warmup_samples", "timing_verbosity", "output_path", "force"
    with Device(args.device) as device:
        print(f"Running on '{device.info.name}'")
        model.run(device, Options(**{name: getattr(args, name) for name in names}), print)
    return 0


def _stream(args: argparse.Namespace) -> int:
    from rich.progress import Progress, TimeElapsedColumn, TimeRemainingColumn

    from dmlgpu.tools import explain

    function = getattr(dmlgpu, args.function)
    _, *parameters = inspect.signature(function).parameters.values()
    allowed = [explain.Argument.of(p, args.function) for p in parameters if p.name not in ("out", "device")]
    arguments = explain.named(args.function, args.arguments, allowed)
    try:
        x = open_npy(args.file)
    except ValueError as error:
        return fail("dmlgpu", error)
    if not x.ndim:
        return fail("dmlgpu", f"{args.file}: an array without dimensions is not allowed; allowed are 1 or more")
    count = 1 + (args.function == "top_k" or bool(arguments.get("output_indices")))
    if args.output and len(args.output) != count:
        needed = "1 result" if count == 1 else f"{count} results"
        return fail("dmlgpu", f"--output: {len(args.output)} files are not allowed; {args.function} has {needed} here")
    _check_outputs(args)
    console = open_console(_COLUMNS)
    columns = (*Progress.get_default_columns()[:-1], TimeElapsedColumn(), TimeRemainingColumn())
    with (
        ExitStack() as replaced,
        Device(args.device) as device,
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar,
    ):
        outputs = args.output or []
        if args.force:  # existing files stay until all results are written
            outputs = [replaced.enter_context(written(os.path.abspath(output), force=True)) for output in outputs]
        task = bar.add_task(args.function)
        start = time.perf_counter()
        chunks = dmlgpu.chunked(
            x,
            chunk_bytes=args.chunk_mib << 20,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
        out = tuple(outputs) if len(outputs) > 1 else next(iter(outputs), None)
        try:
            results = function(chunks, **arguments, device=device, out=out)
        except TypeError as error:  # the function refuses the type of x
            raise DescriptorError(str(error)) from None
        seconds = time.perf_counter() - start
        arrays = results if isinstance(results, tuple) else (results,)
        names = args.output or [None] * len(arrays)
        lines = [f"{name}: {y.dtype} {y.shape}" if name else str(y) for name, y in zip(names, arrays, strict=True)]
        del results, arrays  # Windows cannot rename a mapped file
    print(*lines, f"read {_bytes(x.nbytes)} in {seconds:.1f} s", sep="\n")
    return 0


def _check_outputs(args: argparse.Namespace) -> None:
    """Raises a DescriptorError, before anything is computed, if a result cannot be written to its file."""
    paths = set()
    for output in args.output or ():
        prefix = f"--output: {shown(output)}"
        path = os.path.join(os.path.realpath(os.path.dirname(output)), os.path.basename(output))
        if not output.lower().endswith(".npy"):
            raise DescriptorError(f"{prefix} is not allowed; allowed are .npy files")
        if path in paths:
            raise DescriptorError(f"{prefix} is given twice; each result needs a file of its own")
        if os.path.exists(path) and os.path.samefile(path, args.file):
            raise DescriptorError(f"{prefix} is the input file; give another one")
        if os.path.lexists(path) and not args.force:
            raise DescriptorError(f"{prefix} exists; overwrite it with --force")
        if os.path.exists(path) and not os.path.isfile(path):
            raise DescriptorError(f"{prefix} exists and is not a file; allowed are .npy files")
        paths.add(path)


def _doctor(args: argparse.Namespace) -> int:
    from dmlgpu.tools.doctor import BROKEN, ODD, OK, examine

    if args.json:
        report = examine()
        print(json.dumps(asdict(report), indent=2))
        return 0 if report.healthy else 1
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    console = open_console(_COLUMNS)
    with console.status("examining this machine"):
        report = examine()
    colours = {OK: "green", ODD: "yellow", BROKEN: "red"}
    table = Table("What", "State", "Found", box=SIMPLE_HEAD, pad_edge=False)
    for finding in report.findings:
        fix = f"\n[bold]To fix it:[/] {escape(finding.fix)}" if finding.fix else ""
        colour = colours[finding.state]
        table.add_row(escape(finding.subject), f"[{colour}]{finding.state}[/]", escape(finding.text) + fix)
    console.print(table)
    counts = Counter(finding.state for finding in report.findings)
    console.print(f"{counts[BROKEN]} broken, {counts[ODD]} odd, {counts[OK]} ok")
    return 0 if report.healthy else 1
