"""The benchmarks measure small cases; tables and pictures show invented times."""

import json
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks import calls, cli, compare, measure, peer_usual
from benchmarks.cases import (
    CASES,
    LARGE,
    SCALES,
    argmax_case,
    cumulative_case,
    describe,
    pooling_case,
    reduce_case,
    roi_case,
    top_k_case,
    unpooling_case,
)
from benchmarks.kompute import Kompute
from benchmarks.measure import Timing, interleave
from benchmarks.peer_exact import ExactPeer
from benchmarks.peer_numpy import NumpyPeer
from benchmarks.peer_onnxruntime import OnnxruntimePeer, WebgpuPeer
from benchmarks.peer_torch import TorchPeer
from benchmarks.peer_usual import UsualPeer
from benchmarks.peers import UnavailableError
from benchmarks.report import absences, digits, duration, times_table
from benchmarks.results import BenchmarkError, Result, Run, load, save
from benchmarks.run import _BATCH_BYTES
from dmlgpu import ExecutionFlags, ReduceFunction, reference
from dmlgpu.comparison import differences
from dmlgpu.lowering.problem import sums_can_be_exact
from dmlgpu.testing.cases import FLOAT16, FLOAT32, INT64, UINT8, permuted_strides
from tests.support import drivers
from tests.support.processes import ROOT

# Cases like those of the benchmarks, but small.
_AXES = {"rows": ((7, 300), [1]), "columns": ((7, 300), [0]), "all": ((7, 300), [0, 1]), "planes": ((2, 5, 3, 4), [1])}
_PADDED = partial(pooling_case, sizes=(2, 3, 9, 7), window_size=3, stride=2, padding=1)
_POOLS = {
    "padded": _PADDED,
    "dilated": partial(_PADDED, stride=1, dilation=2),
    "3d": partial(_PADDED, sizes=(1, 2, 5, 6, 7)),
    "float16": partial(_PADDED, data_type=FLOAT16),
    "uint8": partial(_PADDED, data_type=UINT8),
    "global": partial(pooling_case, sizes=(2, 3, 5, 5), window_size=5),
}
_OTHER_POOLS = "AVERAGE_POOLING1", "LP_POOLING1", "MAX_POOLING_GRAD", "AVERAGE_POOLING_GRAD"
TINY = [
    *(argmax_case(name, *case) for name, case in _AXES.items()),
    *(argmax_case(data_type.name, (5, 40), [1], data_type) for data_type in (FLOAT16, UINT8, INT64)),
    argmax_case("transposed", (5, 40), [1], strides=permuted_strides((5, 40), (1, 0))),
    *(
        reduce_case(function, name, *case)
        for function in (ReduceFunction.SUM, ReduceFunction.MAX, ReduceFunction.AVERAGE, ReduceFunction.LOG_SUM_EXP)
        for name, case in _AXES.items()
    ),
    *(pool(name, indices=indices) for name, pool in _POOLS.items() for indices in (False, True)),
    *(_POOLS[name](name, operator=operator) for operator in _OTHER_POOLS for name in ("padded", "3d")),
    *(_POOLS["dilated"]("dilated", operator=operator) for operator in _OTHER_POOLS[:3]),
    *(_PADDED("counted", operator=operator, include_padding=True) for operator in _OTHER_POOLS[::3]),
    unpooling_case("2x2", (2, 3, 8, 6), 2),
    top_k_case("rows", (5, 40), 7),
    cumulative_case("rows", (5, 40), 1),
]
BY_NAME = {case.id: case for case in TINY}
GRADIENTS = {name for name in BY_NAME if "-grad-" in name}
# Names of the cases that the usual kernels compute, and of those for which ONNX Runtime's WebGPU provider has shaders.
USUAL = {name for name, case in BY_NAME.items() if case.desc.inputs[0].data_type is FLOAT32} - GRADIENTS
USUAL -= {"argmax-transposed", "average-pool-counted", "unpool-2x2", "top-k-rows", "cumulative-sum-rows"}
WEBGPU = {name for name in USUAL if not name.startswith("lp-") and not name.endswith("-indices")}
WEBGPU |= {"average-pool-counted", "top-k-rows", "cumulative-sum-rows"}
HEADER = {"device": "a device", "driver": "a driver", "CPU": "a CPU, 2 cores", "date": "today"}


@pytest.fixture
def kompute(device):
    with Kompute(device) as opened:
        yield opened


@pytest.fixture
def run(driver, monkeypatch, capsys):
    """Runs `python -m benchmarks` on tiny cases; returns its exit code, output and errors."""
    monkeypatch.setattr(cli, "CASES", TINY)
    monkeypatch.setenv("COLUMNS", "200")
    # Times that nobody compares need no quiet machine.
    for name, seconds in (("SAMPLE", 1e-4), ("_WARM_UP", 0.0), ("_LONGEST_SPIN", 0.0)):
        monkeypatch.setattr(measure, name, seconds)

    def run_main(*argv):
        code = cli.main(["--device", str(driver.index), "--rounds", "2", *map(str, argv)])
        return code, *capsys.readouterr()

    return run_main


@pytest.fixture
def numpy_peer(monkeypatch):
    """Puts another peer in place of NumPy."""
    return lambda peer: monkeypatch.setitem(cli._PEERS, "numpy", lambda _: peer)


def agreed(peer, cases=TINY, flags=ExecutionFlags.NONE):
    """The names of the cases that a peer computes; the outputs must be those of the oracle."""
    names = set()
    for case in cases:
        inputs = case.inputs()
        with suppress(UnavailableError):
            contender = peer.contender(case.desc, *inputs)
            expected, outputs = reference(case.desc, *inputs, flags=flags), contender.outputs(contender.run())
            assert not list(differences(case.desc, inputs, outputs, expected, flags)), case.id
            names.add(case.id)
    return names


def result(case="a", **medians):
    """A result with times in seconds: a median, a pair of median and spread, or the reason why a time is missing."""
    absent = {name: time for name, time in medians.items() if isinstance(time, str)}
    pairs = {name: time if isinstance(time, tuple) else (time, 0.0) for name, time in medians.items()}
    timings = {
        name.replace("_", " "): Timing((median - spread, median, median + spread))
        for name, (median, spread) in pairs.items()
        if name not in absent
    }
    return Result(case, 4_000_000, timings, absent)


def test_names_and_descriptions_of_cases_are_unique():
    assert len({case.id for case in CASES}) == len({describe(case.desc) for case in CASES}) == len(CASES)


def test_descriptions_have_all_fields_of_a_case():
    """test_registry.py has a description without strides and windows."""
    axes = "axes=(1,) axis_direction=AxisDirection.INCREASING"
    assert describe(BY_NAME["argmax-transposed"].desc) == f"ARGMAX float32 5x40 strides 1x5 {axes} -> 5x1"
    window = "strides=(1, 1) window_size=(3, 3) start_padding=(1, 1) end_padding=(1, 1) dilations=(2, 2)"
    expected = f"MAX_POOLING2 float32 2x3x9x7 {window} -> 2x3x7x5, 2x3x7x5"
    assert describe(BY_NAME["pool-dilated-indices"].desc) == expected


def test_cases_have_the_sizes_of_their_names():
    for case in SCALES:
        assert case.desc.inputs[0].element_count == 1 << int(case.id.partition("^")[2].removesuffix("-indices"))
    for case in LARGE:
        outputs = sum(tensor.size_in_bytes for tensor in case.desc.outputs)
        assert 150e6 < outputs + sum(tensor.size_in_bytes for tensor in case.desc.inputs) < 500e6
        assert 2 * outputs <= _BATCH_BYTES


@pytest.mark.parametrize(
    ("open_peer", "refused"),
    [
        (NumpyPeer, set()),
        (TorchPeer, {"average-pool-dilated", "lp-pool-dilated"}),
        (partial(TorchPeer, "cuda"), {name for name in BY_NAME if "argmax" not in name}),
        (OnnxruntimePeer, GRADIENTS | {"argmax-transposed"}),
    ],
    ids=["numpy", "torch", "torch-cuda", "onnxruntime"],
)
def test_libraries_agree_with_the_oracle(open_peer, refused):
    """A library that is not installed is skipped; the test on a GPU needs one that PyTorch sees."""
    try:
        peer = open_peer()
    except UnavailableError as reason:
        pytest.skip(str(reason))
    assert agreed(peer) >= BY_NAME.keys() - refused


def test_onnx_runtime_agrees_on_regions():
    pytest.importorskip("onnxruntime")
    assert agreed(OnnxruntimePeer(), [roi_case("few", (2, 3, 30, 40), 9)])


def test_onnxruntime_on_webgpu_agrees_with_the_oracle_or_refuses(monkeypatch):
    """The provider, if it is installed, uses the only device of one driver."""
    pytest.importorskip("onnxruntime_ep_webgpu")
    with pytest.raises(UnavailableError, match=r"VK_DRIVER_FILES"):
        WebgpuPeer()
    drivers.set_drivers(monkeypatch.setenv, drivers.DRIVERS["swiftshader"])
    assert agreed(WebgpuPeer()) == WEBGPU


def test_exact_sums_agree_with_the_oracle(kompute):
    expected = {case.id for case in TINY if sums_can_be_exact(case.desc)}
    assert agreed(ExactPeer(kompute), flags=ExecutionFlags.EXACT_SUMS) == expected != set()


def test_usual_kernels_agree_with_the_oracle(kompute):
    assert agreed(UsualPeer(kompute)) == USUAL


class OtherPeer(NumpyPeer):
    """NumPy with another input or with changed outputs."""

    def __init__(self, change=lambda x: x, error=0.0):
        self.change, self.factor = change, 1 + error

    def contender(self, desc, *inputs):
        right = super().contender(desc, *map(self.change, inputs))
        return replace(
            right, outputs=lambda outputs: tuple(y * y.dtype.type(self.factor) for y in right.outputs(outputs))
        )


BITS, BOUND = "differs from that", "is not within the bound around that"


@pytest.mark.parametrize(
    ("peer", "name", "problem"),
    [
        (OtherPeer(error=2.0**-23), "average-rows", None),
        (OtherPeer(error=2.0**-10), "average-rows", BOUND),
        (OtherPeer(error=2.0**-23), "max-columns", BITS),
        (OtherPeer(np.negative), "argmax-columns", BITS),
    ],
)
def test_a_wrong_peer_is_left_out(run, numpy_peer, peer, name, problem):
    numpy_peer(peer)
    code, output, errors = run("-k", name, "--peers", "numpy")
    text = f"- numpy: output 0 of numpy {problem} of the oracle ({name})"
    assert (code, errors, text in output) == (0, "", bool(problem))


def test_a_slow_peer_is_left_out(run):
    code, output, errors = run("-k", "argmax-rows", "--peers", "numpy", "--seconds", "1e-9")
    assert (code, errors, "- numpy: a call takes 0.0 s (argmax-rows)" in output) == (0, "", True)


def test_a_case_that_dmlgpu_computes_wrongly_is_not_timed(run, monkeypatch):
    wrong = reference(BY_NAME["argmax-rows"].desc, BY_NAME["argmax-rows"].inputs()[0] * -1)
    monkeypatch.setattr("benchmarks.run.reference", lambda *_: wrong)
    code, output, errors = run("-k", "argmax-rows", "--peers", "numpy")
    assert (code, errors) == (2, "benchmarks: argmax-rows: output 0 of kernel differs from that of the oracle\n")
    assert " argmax-rows " not in output


def test_a_case_that_fails_is_left_out(run, numpy_peer, tmp_path):
    def refuse(x):
        if x.dtype == np.float16:
            raise MemoryError("no memory")
        return x

    numpy_peer(OtherPeer(refuse))
    file = str(tmp_path / "run.json")
    argv = ["-k", "argmax-", "--peers", "numpy", "--json", file]
    assert run(*argv)[::2] == (2, "benchmarks: argmax-FLOAT16: MemoryError('no memory')\n")
    saved = [result.case for result in load(file).results]
    assert saved == [name for name in BY_NAME if name.startswith("argmax-") and name != "argmax-FLOAT16"]


def test_runs_alternate_before_and_while_they_are_timed(monkeypatch):
    monkeypatch.setattr(measure, "SAMPLE", 1e-12)  # a single call
    called, begin = [], measure.time.perf_counter()
    runs = {name: lambda name=name: called.append((name, measure.time.perf_counter() - begin)) for name in "abc"}
    timed = interleave(runs, 20, 10)
    early = [name for name, at in called if at < 0.2]
    assert early[:30] == [*"abc"] * 10
    names = "".join(name for name, _ in called[-60:])
    rounds = [names[i : i + 3] for i in range(0, 60, 3)]
    assert {"".join(sorted(order)) for order in rounds} == {"abc"}
    assert len(set(rounds)) > 1
    assert {name: len(timing.samples) for name, timing in timed.items()} == dict.fromkeys("abc", 20)


def test_durations_and_numbers_have_three_digits():
    times = 12.345, 0.99951, 0.0123, 4.567e-6, 3e-9
    assert [*map(duration, times)] == ["12.3 s", "1.00 s", "12.3 ms", "4.57 µs", "3.00 ns"]
    assert [*map(digits, (1234.5, 99.96, 9.996, 0.00123456))] == ["1230", "100", "10.0", "0.00123"]


def test_the_table_has_times_ratios_and_dashes():
    table = times_table(
        [
            result("a", kernel=(0.002, 0.0005), call=0.003, batch=0.001, copy=0.001, copy_batch=0.0002, numpy=0.004),
            result("b", kernel=0.002, call=0.003, torch="of no use", copy=0.001),
        ]
    )
    assert table.columns == ("case", "kernel", "spread", "GB/s", "call", "batch", "copy", "copy batch", "numpy")
    assert table.rows == (
        ("a", "2.00 ms", "25 %", "2.00", "3.00 ms", "1.00 ms", "2.00", "5.00", "0.500"),
        ("b", "2.00 ms", "0 %", "2.00", "3.00 ms", "-", "2.00", "-", "-"),
    )


def test_reasons_for_dashes_name_all_libraries_and_few_cases():
    results = [result(case, kernel=0.004, numpy="slow", torch="slow" if case == "e" else "none") for case in "abcde"]
    assert absences(results) == ["numpy: slow (5 cases)", "torch: none (4 cases)", "torch: slow (e)"]
    assert absences([result("a", kernel=0.004, numpy="none", torch="none")]) == ["numpy, torch: none (a)"]


def test_the_picture_has_ratios_to_the_fastest_library():
    from benchmarks.plot import plot

    figure = plot(
        HEADER,
        [
            result("slow", kernel=8.0, call=16.0, copy=1.0, usual=1.0, numpy=4.0, torch=2.0),
            result("fast", kernel=1.0, call=3.0, copy=0.1, usual=0.1, numpy=2.0, torch="none"),
            result("usual", kernel=1.0, call=2.0, usual=2.0),
            result("alone", kernel=1.0, call=1.0, copy=1.0),
        ],
    )
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["slow", "fast", "usual"]
    points = {dots.get_label(): dots.get_offsets().tolist() for dots in axes.collections[1:]}
    assert points == {
        "device tensors, against PyTorch": [[4, 0]],
        "device tensors, against NumPy": [[0.5, 1]],
        "device tensors, against usual kernel": [[0.5, 2]],
    }
    assert axes.get_lines()[0].get_xdata().tolist() == [8, 1.5, 1]
    with pytest.raises(BenchmarkError, match=r"^--plot compares with the fastest library, or the usual kernel: "):
        plot(HEADER, [result("a", kernel=1.0, copy=1.0)])


def test_a_change_counts_above_the_noise_of_both_runs():
    old = Run({**HEADER, "driver": "1"}, (result("a", kernel=(1.0, 0.1), call=(1.0, 0.1), copy=1.0), result("b")))
    new = Run(HEADER, (result("a", kernel=(1.3, 0.13), call=(1.15, 0.115), copy=1.1),))
    assert compare.compared(old, new).rows == (
        ("a", "kernel", "1.00 s", "1.30 s", "+30 %", "20 %", "+10 %", "slower"),
        ("a", "call", "1.00 s", "1.15 s", "+15 %", "20 %", "+10 %", "same"),
    )
    assert compare.compared(new, old).rows[0][-1] == "faster"
    assert compare.differences(old, new) == ["driver: 1 -> a driver", "only in the old run: b"]


def seconds(cell):
    number, unit = cell.split()
    return float(number) * {"s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[unit]


def test_a_run_writes_a_table_of_its_json_and_a_picture(run, tmp_path):
    saved, markdown, picture = (tmp_path / name for name in ("run.json", "run.md", "run.png"))
    files = "--json", saved, "--markdown", markdown, "--plot", picture
    code, output, errors = run("-k", "MAX-ALL", "--peers", "usual,numpy", *files)
    assert (code, errors, f"numpy {np.__version__}" in output) == (0, "", True)
    content = json.loads(saved.read_text())
    assert {"date", "device", "driver", "versions", "CPU", "peer usual", "peer numpy"} <= set(content["header"])
    lines = [line.strip("| ").split(" | ") for line in markdown.read_text().splitlines() if line.startswith("|")]
    assert dict(lines[2 : 2 + len(content["header"])]) == content["header"]
    columns, _, *rows = lines[2 + len(content["header"]) :]
    assert columns[4:] == ["call", "first call", "batch", "copy", "copy batch", "usual", "numpy"]
    for (case, *cells), result in zip(rows, content["results"], strict=True):
        row = dict(zip(columns[1:], cells, strict=True))
        medians = {name: np.median(timing["samples"]) for name, timing in result["timings"].items()}
        assert (case, result["bytes"]) == (result["case"], 4 * (7 * 300 + 1))
        assert len(result["timings"]["kernel"]["samples"]) == 2
        assert float(row["GB/s"]) == pytest.approx(result["bytes"] / medians["kernel"] / 1e9, rel=0.006)
        for name in ("kernel", "call", "first call", "batch"):
            assert seconds(row[name]) == pytest.approx(medians[name], rel=0.006)
        for name in ("copy", "copy batch", "usual", "numpy"):
            ours = medians["batch" if "batch" in name else "kernel"]
            assert float(row[name]) == pytest.approx(ours / medians[name], rel=0.006)
    assert [row[0] for row in rows] == [name for name in BY_NAME if "max-all" in name]
    with Image.open(picture) as image:
        assert image.size[0] == 1600


def test_missing_peers_are_named(run, monkeypatch):
    for package in ("torch", "onnxruntime"):
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(peer_usual.shutil, "which", lambda _: None)
    code, output, _ = run("-k", "argmax-rows")
    assert code == 0
    for name in ("torch", "torch-cuda", "onnxruntime", "onnxruntime-webgpu"):
        assert f"peer {name}: not installed\n" in output
    assert "peer usual: glslangValidator is not installed\n" in output


def test_scale_doubles_a_case(run):
    code, output, _ = run("--scale", "--list", "-k", "columns")
    names = [line.partition(":")[0] for line in output.splitlines()]
    assert (code, names) == (0, [f"argmax-columns-2^{exponent}" for exponent in range(10, 28)])
    code, output, _ = run("--scale", "-k", "columns-2^12", "--peers", "numpy")
    assert (code, "\n argmax-columns-2^12 " in output, "compile" in output) == (0, True, False)


def test_the_limit_leaves_cases_out(run):
    code, output, errors = run("-k", "argmax-", "--peers", "numpy", "--limit", "0")
    assert (code, errors) == (0, "")
    assert "left out: 8 of 8 cases after 0 s, from argmax-rows on\n" in output


def test_show_and_compare_read_files(tmp_path, capsys):
    old, new = (str(tmp_path / name) for name in ("old.json", "new.json"))
    for file, time in ((old, 0.001), (new, 0.002)):
        save(Run(HEADER, (result("a", kernel=time, numpy=0.004, torch="absent"),)), file)
    assert cli.main(["show", new]) == 0
    assert "- torch: absent" in capsys.readouterr().out
    assert cli.main(["compare", old, new]) == 0
    assert "a kernel 1.00 ms 2.00 ms +100 % 0 % +0 % slower" in " ".join(capsys.readouterr().out.split())


# Files that this version of `python -m benchmarks --json` did not write.
OTHER_FILES = {
    "list": "[]",
    "other": '{"format": "dmlgpu benchmarks 2"}',
    "results": '{"format": "dmlgpu benchmarks 2", "header": {}, "results": [{}]}',
    "header": '{"format": "dmlgpu benchmarks 2", "header": [1], "results": []}',
}
FILES = {"text": "text", "deep": "[" * 100_000, "large": "1" * 200_001, **OTHER_FILES}
ERRORS = {
    "-k nothing": "no case has 'nothing' in its name; cases are argmax-rows, ",
    "--peers numpy,tensorflow": "there is no peer 'tensorflow'; peers are exact, usual, numpy, torch, torch-cuda, ",
    "--device nonsense": "there is no device 'nonsense'",
    "--rounds 0": "--rounds 0: at least one is necessary",
    "--plot plot.gift": "plot.gift: give a picture the suffix of its format: ",
    "--json no/such/folder.json": "no/such/folder.json: there is no such folder",
    "show no.json": "No such file or directory: 'no.json'",
    "compare a.json b.json": "a.json and b.json have no case in common",
    "show text": "text is no JSON file: ",
    "show deep": "deep is no JSON file: ",
    "show large": "large has more than 200000 bytes\n",
    **{
        f"show {name}": f"{name} was not written by this version of `python -m benchmarks --json`\n"
        for name in OTHER_FILES
    },
}


def test_errors_say_what_is_wrong(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("benchmarks.results._MOST_BYTES", 200_000)
    for name, content in FILES.items():
        Path(name).write_text(content)
    for name in "ab":
        save(Run(HEADER, (result(name),)), f"{name}.json")
    for line, message in ERRORS.items():
        code, _, errors = run(*line.split())
        assert (code, errors.startswith("benchmarks: "), message in errors) == (2, True, True), (line, errors)


def test_the_module_turns_shader_caches_off(driver, environment):
    argv = ["--scale", "-k", "columns-2^10", "--device", str(driver.index), "--peers", "numpy", "--rounds", "1"]
    command = [sys.executable, "-m", "benchmarks", *argv]
    process = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert (process.returncode, process.stderr) == (0, "")
    assert "shader caches: off (MESA_SHADER_CACHE_DISABLE=true, __GL_SHADER_DISK_CACHE=0)" in process.stdout


def test_calls_compare_functions_with_operators(driver, tmp_path):
    markdown = tmp_path / "calls.md"
    assert calls.main(["--device", str(driver.index), "--rounds", "3", "--markdown", str(markdown)]) == 0
    rows = [line.strip("| ").split(" | ") for line in markdown.read_text().splitlines()]
    assert [row[0] for row in rows if row[0] in calls.CASES] == [name for name in calls.CASES for _ in range(3)]
