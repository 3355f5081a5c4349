"""The benchmarks measure what they say: small cases, and runs made up."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import dmlgpu
from benchmarks import calls, cli, compare, measure, peer_usual
from benchmarks import run as running
from benchmarks.cases import (
    CASES,
    LARGE,
    SCALES,
    WINDOWS,
    argmax_case,
    describe,
    operator_case,
    pooling_case,
    reduce_case,
    unpooling_case,
)
from benchmarks.kompute import Kompute
from benchmarks.measure import Timing, interleave
from benchmarks.peer_exact import ExactPeer
from benchmarks.peer_numpy import NumpyPeer
from benchmarks.peer_onnxruntime import OnnxruntimePeer, WebgpuPeer
from benchmarks.peer_torch import TorchPeer
from benchmarks.peer_usual import UsualPeer
from benchmarks.peers import Contender, UnavailableError
from benchmarks.report import case_tables, digits, duration
from benchmarks.results import BenchmarkError, Result, Run, load, save
from benchmarks.run import _BATCH_BYTES, run_case
from benchmarks.scale import scale_tables, scaled
from dmlgpu import ExecutionFlags, ReduceFunction, TensorDesc, reference
from dmlgpu.comparison import differences
from dmlgpu.descriptors.pooling import WINDOW_FIELDS
from dmlgpu.lowering.problem import sums_can_be_exact
from tests.support import drivers
from tests.support.cases import FLOAT16, FLOAT32, INT8, INT64, UINT8, UINT32, permuted_strides
from tests.support.processes import ROOT

# As the cases that are measured, but small.
TINY = [
    argmax_case("rows", (7, 300), [1]),
    argmax_case("columns", (7, 300), [0]),
    argmax_case("all", (7, 300), [0, 1]),
    argmax_case("planes", (2, 5, 3, 4), [1]),
    argmax_case("short", (600, 3), [1]),
    *(argmax_case(data_type.name, (5, 40), [1], data_type) for data_type in (FLOAT16, UINT8, INT8, INT64)),
    argmax_case("transposed", (5, 40), [1], strides=permuted_strides((5, 40), (1, 0))),
    *(
        case
        for indices in (False, True)
        for case in (
            pooling_case("padded", (2, 3, 9, 7), 3, 2, 1, indices=indices),
            pooling_case("dilated", (2, 3, 9, 7), 3, padding=1, dilation=2, indices=indices),
            pooling_case("3d", (1, 2, 5, 6, 7), 3, 2, 1, indices=indices),
            pooling_case("global", (2, 3, 5, 5), 5, indices=indices),
            pooling_case("float16", (2, 3, 9, 7), 3, 2, 1, data_type=FLOAT16, indices=indices),
            pooling_case("uint8", (2, 3, 9, 7), 3, 2, 1, data_type=UINT8, indices=indices),
        )
    ),
    *(
        reduce_case(function, name, sizes, axes)
        for function in (ReduceFunction.SUM, ReduceFunction.MAX, ReduceFunction.AVERAGE, ReduceFunction.LOG_SUM_EXP)
        for name, sizes, axes in (
            ("rows", (7, 300), [1]),
            ("columns", (7, 300), [0]),
            ("all", (7, 300), [0, 1]),
            ("planes", (2, 5, 3, 4), [1]),
        )
    ),
    *(
        pooling_case(name, sizes, 3, 2, 1, operator=operator)
        for operator in ("AVERAGE_POOLING1", "LP_POOLING1", "MAX_POOLING_GRAD", "AVERAGE_POOLING_GRAD")
        for name, sizes in (("padded", (2, 3, 9, 7)), ("3d", (1, 2, 5, 6, 7)))
    ),
    *(
        pooling_case("dilated", (2, 3, 9, 7), 3, padding=1, dilation=2, operator=operator)
        for operator in ("AVERAGE_POOLING1", "LP_POOLING1", "MAX_POOLING_GRAD")
    ),
    *(
        pooling_case("counted", (2, 3, 9, 7), 3, 2, 1, operator=operator, include_padding=True)
        for operator in ("AVERAGE_POOLING1", "AVERAGE_POOLING_GRAD")
    ),
    unpooling_case("2x2", (2, 3, 8, 6), 2),
]
BY_NAME = {case.id: case for case in TINY}
NOT_PACKED = {"argmax-transposed"}
GRADIENTS = {case.id for case in TINY if "-grad-" in case.id}
# What the usual kernels are for.
USUAL = (
    {case.id for case in TINY if case.desc.inputs[0].data_type is FLOAT32}
    - NOT_PACKED
    - GRADIENTS
    - {"average-pool-counted", "unpool-2x2"}
)
# What ONNX Runtime's WebGPU provider has shaders for.
WEBGPU = USUAL - GRADIENTS - {case.id for case in TINY if case.id.startswith("lp-") or case.id.endswith("-indices")} | {
    "average-pool-counted"
}
HEADER = {"device": "a device", "CPU": "a CPU, 2 cores", "date": "today"}


@pytest.fixture(autouse=True)
def _width(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def kompute(device):
    with Kompute(device) as opened:
        yield opened


@pytest.fixture
def run(driver, monkeypatch, capsys):
    """Runs `python -m benchmarks` on tiny cases: its exit code, output and errors."""
    monkeypatch.setattr(cli, "CASES", TINY)

    def ran(*argv):
        code = cli.main(["--device", str(driver.index), "--rounds", "2", *map(str, argv)])
        return code, *capsys.readouterr()

    return ran


@pytest.fixture
def numpy_peer(monkeypatch):
    """Puts another peer in place of NumPy."""
    return lambda peer: monkeypatch.setitem(cli._PEERS, "numpy", lambda _: peer)


def measured(case, kompute, peers, absent=(), rounds=1, fresh=True, advance=lambda: None):
    """The result of a case."""
    options = {"rounds": rounds, "seconds": 1, "fresh": fresh, "strict": True, "advance": advance}
    return run_case(case, kompute, peers, dict(absent), **options)


def agreed(case, peer):
    """Whether a peer computes a case; its outputs are then the oracle's."""
    inputs = case.inputs()
    try:
        contender = peer.contender(case.desc, *inputs)
    except UnavailableError:
        return False
    assert not list(differences(case.desc, inputs, contender.outputs(contender.run()), reference(case.desc, *inputs)))
    return True


def result(case="a", **medians):
    """A result with these times in seconds; a pair is a median and a spread, a text why there is none."""
    absent = {name: time for name, time in medians.items() if isinstance(time, str)}
    timings = {}
    for name, time in medians.items():
        if name not in absent:
            median, spread = time if isinstance(time, tuple) else (time, 0.0)
            timings[name.replace("_", " ")] = Timing((median - spread, median, median + spread))
    for name in ("kernel", "call", "compile", "first call"):
        timings.setdefault(name, Timing((1.0,)))
    return Result(case, f"ARGMAX of {case}", 1 << 20, 4_000_000, timings, absent)


def table_rows(table):
    return {row[0]: dict(zip(table.columns[1:], row[1:], strict=True)) for row in table.rows}


# Cases


def test_cases_have_names_and_descriptions_of_their_own():
    assert len({case.id for case in CASES}) == len({describe(case.desc) for case in CASES}) == len(CASES) >= 41


def test_reductions_have_cases_over_the_axes_of_argmax():
    axes = {case.id.removeprefix("argmax-"): case.desc.axes for case in CASES[:3]}
    assert list(axes.values()) == [(1,), (0,), (0, 1)]
    found = {case.id: case.desc for case in CASES}
    for function in ("sum", "max", "average", "log-sum-exp"):
        for name in axes:
            desc = found[f"{function}-{name}"]
            assert (desc.function.name, desc.axes) == (function.upper().replace("-", "_"), axes[name])
            assert desc.input_tensor == CASES[0].desc.input_tensor


def test_pooling_and_what_goes_back_have_cases_of_one_tensor():
    found = {case.id: case.desc for case in CASES}
    pooled = found["pool-resnet"]
    for name in ("average-pool", "lp-pool", "pool-grad", "average-pool-grad"):
        desc = found[f"{name}-resnet"]
        assert getattr(desc, desc.pooled_field) == pooled.input_tensor
        assert getattr(desc, desc.windows_field) == pooled.output_tensor
        assert all(getattr(desc, field) == getattr(pooled, field) for field in WINDOW_FIELDS if hasattr(desc, field))
    assert found["lp-pool-resnet"].p == 2
    assert found["unpool-2x2"].output_tensor == pooled.input_tensor


def test_what_is_unpooled_was_pooled():
    case = BY_NAME["unpool-2x2"]
    values, indices = case.inputs()
    (back,) = reference(case.desc, values, indices)
    assert np.count_nonzero(back) == values.size == 4 * 3 * 2 * 3
    assert np.array_equal(back.reshape(2, 3, 4, 2, 3, 2).max((3, 5)) * (values > 0), values * (values > 0))


DESCRIPTIONS = {
    "argmax-rows": "ARGMAX float32 7x300 axes 1",
    "argmax-transposed": "ARGMAX float32 5x40 strides 1x5 axes 1",
    "pool-dilated-indices": "MAX_POOLING2 float32 2x3x9x7 window 3x3 strides 1x1 padding 1x1 dilations 2x2 with "
    "indices",
    "lp-pool-3d": "LP_POOLING1 float32 1x2x5x6x7 window 3x3x3 strides 2x2x2 padding 1x1x1 p 2",
    "average-pool-grad-counted": "AVERAGE_POOLING_GRAD float32 2x3x5x4 window 3x3 strides 2x2 padding 1x1 with padding",
    "unpool-2x2": "MAX_UNPOOLING float32 2x3x4x3 to 2x3x8x6",
    "pool-global": "MAX_POOLING2 float32 2x3x5x5 window 5x5 strides 1x1 padding 0x0",
}


def test_descriptions_say_what_is_computed():
    assert {name: describe(BY_NAME[name].desc) for name in DESCRIPTIONS} == DESCRIPTIONS
    case = operator_case("REDUCE ARGMIN", "least", TensorDesc(UINT8, (3, 4)), axes=(0, 1))
    assert describe(case.desc) == "REDUCE ARGMIN uint8 3x4 axes 0, 1"
    assert [len(x.flat) for x in case.inputs()] == [12]


@pytest.mark.parametrize("name", SCALES)
def test_a_scaled_case_has_its_power_of_two_of_elements(name):
    for exponent in (10, 16, 27):
        case = scaled(name, exponent)
        assert (case.id, case.desc.inputs[0].element_count) == (f"{name}-2^{exponent}", 1 << exponent)


def test_large_cases_are_large_and_fit_a_batch():
    sizes = {case.id: (case.desc.inputs, case.desc.outputs) for case in LARGE}
    assert len(sizes) == len(LARGE)
    assert sizes.keys().isdisjoint(case.id for case in CASES)
    for inputs, outputs in sizes.values():
        assert 150e6 < sum(tensor.size_in_bytes for tensor in (*inputs, *outputs)) < 500e6
        assert 2 * sum(tensor.size_in_bytes for tensor in outputs) <= _BATCH_BYTES


def test_windows_of_a_name_are_of_one_tensor_and_grow():
    found = {name: [case.desc for case in cases] for name, cases in WINDOWS.items()}
    planes, volume = (1, 4, 256, 256), (1, 1, 64, 96, 96)
    sources = {name: {desc.input_tensor for desc in descs} for name, descs in found.items()}
    assert sources == {
        "pool-256x256": {TensorDesc(FLOAT32, planes)},
        "pool-256x256-indices": {TensorDesc(FLOAT32, planes)},
        "pool-64x96x96": {TensorDesc(FLOAT32, volume)},
    }
    for name, descs in found.items():
        windows = [desc.window_size for desc in descs]
        assert windows == sorted(set(windows))
        assert all(len(set(window)) == 1 for window in windows)
        ids = [f"{name}-{'x'.join(map(str, window))}" for window in windows]
        assert [case.id for case in WINDOWS[name]] == ids
        assert all(set(desc.strides) == {1} and not any(desc.start_padding + desc.end_padding) for desc in descs)
        assert {desc.output_indices_tensor is not None for desc in descs} == {name.endswith("-indices")}


def test_values_have_no_nan():
    for case in TINY:
        for x in case.inputs():
            assert np.array_equal(x, x)
            assert len(np.unique(x)) > 15


# Peers


@pytest.mark.parametrize("case", TINY, ids=lambda case: case.id)
def test_numpy_agrees_with_the_oracle(case):
    assert agreed(case, NumpyPeer())


@pytest.mark.parametrize("case", TINY, ids=lambda case: case.id)
def test_torch_agrees_with_the_oracle(case):
    pytest.importorskip("torch")
    assert agreed(case, TorchPeer()) == (case.id not in ("average-pool-dilated", "lp-pool-dilated"))


def test_torch_refuses_what_it_does_not_have():
    pytest.importorskip("torch")
    case = reduce_case(ReduceFunction.MULTIPLY, "a", (7, 300), [1])
    with pytest.raises(UnavailableError, match=r"^no REDUCE MULTIPLY in PyTorch$"):
        TorchPeer().contender(case.desc, *case.inputs())


def test_torch_on_a_gpu_agrees_with_the_oracle():
    """Not run where PyTorch is not installed or sees no GPU; drivers under test have nothing to do with it."""
    try:
        made = TorchPeer("cuda")
    except UnavailableError as reason:
        pytest.skip(str(reason))
    assert {case.id for case in TINY if agreed(case, made)} >= {case.id for case in TINY if "argmax" in case.id}


def test_a_library_that_cannot_be_imported_says_why(monkeypatch):
    class Broken:
        def find_spec(self, wanted, path=None, target=None):
            if wanted == "torch":
                raise ImportError("libtorch.so: cannot open shared object file\nand more")

    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    with pytest.raises(UnavailableError, match=r"^cannot be imported: libtorch\.so: cannot open shared object file$"):
        TorchPeer()


@pytest.mark.parametrize("case", TINY, ids=lambda case: case.id)
def test_onnxruntime_agrees_with_the_oracle(case):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    assert agreed(case, OnnxruntimePeer()) == (case.id not in NOT_PACKED | GRADIENTS)


def test_onnxruntime_on_webgpu_agrees_with_the_oracle_or_refuses(monkeypatch):
    """Not run where the provider is not installed. It has no device but the one driver that it sees."""
    pytest.importorskip("onnxruntime_ep_webgpu")
    with pytest.raises(UnavailableError, match=r"VK_DRIVER_FILES"):
        WebgpuPeer()
    drivers.set_drivers(monkeypatch.setenv, drivers.DRIVERS["swiftshader"])
    peer = WebgpuPeer()
    assert {case.id for case in TINY if agreed(case, peer)} == WEBGPU


def test_exact_sums_agree_with_the_oracle(kompute):
    peer, taken = ExactPeer(kompute), set()
    for case in TINY:
        try:
            contender = peer.contender(case.desc, *case.inputs())
        except UnavailableError:
            continue
        taken.add(case.id)
        flags = ExecutionFlags.EXACT_SUMS
        expected = reference(case.desc, *case.inputs(), flags=flags)
        assert not list(differences(case.desc, case.inputs(), contender.outputs(contender.run()), expected, flags))
    assert taken == {case.id for case in TINY if sums_can_be_exact(case.desc)} != set()


def test_usual_kernels_agree_with_the_oracle(kompute):
    peer = UsualPeer(kompute)
    assert {case.id for case in TINY if agreed(case, peer)} == USUAL


def test_usual_kernels_take_rows_of_workgroups(kompute, monkeypatch):
    """More rows than workgroups fit a dimension of the dispatch."""
    info = replace(kompute.device.info, max_group_count=100)
    monkeypatch.setattr(kompute.device, "info", info)
    peer = UsualPeer(kompute)
    assert agreed(argmax_case("rows", (333, 5), [1]), peer)
    assert agreed(argmax_case("columns", (3, 100_000), [0]), peer)


def test_usual_kernels_need_no_compiler_where_their_modules_are(kompute, monkeypatch, tmp_path):
    for shader in peer_usual._SHADERS.iterdir():
        (tmp_path / shader.name).write_bytes(shader.read_bytes())
    peer_usual.compile_all(tmp_path)
    monkeypatch.setattr(peer_usual, "_SHADERS", tmp_path)
    monkeypatch.setattr(peer_usual.shutil, "which", lambda _: None)
    peer = UsualPeer(kompute)
    assert {case.id for case in TINY if agreed(case, peer)} == USUAL
    (tmp_path / "argmax.spv").unlink()
    with pytest.raises(UnavailableError, match=r"^glslangValidator is not installed$"):
        UsualPeer(kompute)


# Measuring


@pytest.mark.parametrize("size", [4, 1000, 5000])
def test_a_copy_moves_its_bytes_in_pieces(kompute, monkeypatch, size):
    monkeypatch.setattr(kompute.device, "limits", replace(kompute.device.limits, segment_bytes=2048))
    kompute.copy(size).eval()


def test_a_case_is_checked_and_measured(kompute):
    rounds = []
    absent = {"torch": "not installed"}
    made = measured(TINY[0], kompute, {"numpy": NumpyPeer()}, absent, rounds=2, advance=lambda: rounds.append(1))
    names = ["kernel", "call", "copy", "numpy", "batch", "copy batch", "compile", "first call"]
    assert list(made.timings) == names
    assert all(timing.minimum > 0 for timing in made.timings.values())
    assert len(made.timings["kernel"].samples) == len(rounds) == 2
    assert (made.elements, made.bytes) == (2100, 4 * (2100 + 7))
    assert made.absent == absent
    assert 2 <= made.batch <= 7


def test_a_batch_is_one_submission_of_calls_that_write_to_tensors_of_their_own(kompute, monkeypatch):
    device, case = kompute.device, TINY[0]
    run_all = running._ours(device, case.desc, *case.inputs())["kernel"].batch(3)
    executed, execute = [], device._engine.kompute.execute
    monkeypatch.setattr(device._engine.kompute, "execute", lambda steps: executed.append(steps) or execute(steps))
    run_all()
    (steps,) = executed
    assert len({step.writes for step in steps}) == 3 * len(device.compile(case.desc).plan.dispatches)


def test_the_time_in_a_batch_is_that_of_a_call(kompute, monkeypatch):
    class Sleeper(NumpyPeer):
        """Its calls take no time alone, and in a batch as long as their number says."""

        def contender(self, desc, x):
            made = super().contender(desc, x)
            return replace(made, batch=lambda calls: lambda: measure.time.sleep(0.01 * calls))

    made = measured(TINY[0], kompute, {"torch-cuda": Sleeper()}, rounds=2, fresh=False)
    assert 0.01 <= made.timings["torch-cuda batch"].median < 0.02


@pytest.mark.parametrize(("output_bytes", "calls"), [(512 << 20, 0), (200 << 20, 2), (28, 4)])
def test_calls_of_a_batch_fit_memory(kompute, monkeypatch, output_bytes, calls):
    desc = replace(TINY[0].desc, output_tensor=TensorDesc(UINT32, (7, 1), None, output_bytes))
    fast = Contender(lambda: None, lambda _: ())
    assert running._calls_of_a_batch(kompute.device, desc, fast) == calls
    slow = Contender(lambda: measure.time.sleep(0.02), lambda _: ())
    assert running._calls_of_a_batch(kompute.device, desc, slow) == min(calls, 2)


@pytest.mark.parametrize(
    ("name", "elements", "size"),
    [
        ("pool-grad-padded", 2 * 3 * 9 * 7, 4 * 2 * 3 * (63 + 20 + 63)),
        ("average-pool-grad-padded", 2 * 3 * 5 * 4, 4 * 2 * 3 * (20 + 63)),
        ("unpool-2x2", 2 * 3 * 4 * 3, 4 * 2 * 3 * (12 + 12 + 48)),
    ],
)
def test_all_inputs_are_given_and_counted(kompute, name, elements, size):
    made = measured(BY_NAME[name], kompute, {"numpy": NumpyPeer()})
    assert (made.elements, made.bytes) == (elements, size)
    assert {"kernel", "call", "numpy", "batch", "first call"} <= set(made.timings)


class WrongPeer(NumpyPeer):
    def contender(self, desc, x):
        return super().contender(desc, -x)


class ShiftedPeer(NumpyPeer):
    """Its values are off by a relative error."""

    def __init__(self, error):
        self.error = error

    def contender(self, desc, *inputs):
        made = super().contender(desc, *inputs)
        return replace(
            made, outputs=lambda outputs: tuple(y * y.dtype.type(1 + self.error) for y in made.outputs(outputs))
        )


NOT_BITS = "output 0 of numpy differs from that of the oracle"
NOT_BOUND = "output 0 of numpy is not within the bound around that of the oracle"


@pytest.mark.parametrize(
    ("peer", "name", "problem"),
    [
        *((ShiftedPeer(2.0**-23), name, None) for name in ("average-rows", "lp-pool-padded", "pool-grad-3d")),
        *((ShiftedPeer(2.0**-10), name, NOT_BOUND) for name in ("average-rows", "lp-pool-padded", "pool-grad-3d")),
        (ShiftedPeer(2.0**-23), "max-columns", NOT_BITS),
        (WrongPeer(), "argmax-columns", NOT_BITS),
    ],
)
def test_a_peer_that_is_wrong_stops_the_run_or_is_left_out(run, numpy_peer, peer, name, problem):
    numpy_peer(peer)
    argv = ["-k", name, "--peers", "numpy"]
    assert run(*argv)[::2] == ((2, f"benchmarks: {name}: {problem}\n") if problem else (0, ""))
    code, output, errors = run(*argv, "--keep-going")
    assert (code, errors) == (0, "")
    assert ("- numpy: " in output) == (f"- numpy: {problem}" in output) == bool(problem)


def test_many_elements_of_windows_are_compared_with_our_kernel(run, numpy_peer, monkeypatch):
    numpy_peer(WrongPeer())
    looks = 2 * 3 * 5 * 5
    for most, by in (looks, "the oracle"), (looks - 1, "our kernel"):
        monkeypatch.setattr(running, "_ORACLE_LOOKS", most)
        errors = run("-k", "pool-global", "--peers", "numpy")[2]
        assert errors == f"benchmarks: pool-global: output 0 of numpy differs from that of {by}\n"


def test_peers_agree_as_devices_do(run, numpy_peer, monkeypatch):
    numpy_peer(WrongPeer())
    monkeypatch.setattr("dmlgpu.comparison.bits", np.zeros_like)
    assert run("-k", "argmax-columns", "--peers", "numpy")[0] == 0


def test_a_peer_that_is_slow_is_left_out(run, numpy_peer):
    class SlowPeer(NumpyPeer):
        def contender(self, desc, x):
            made = super().contender(desc, x)
            return replace(made, run=lambda: measure.time.sleep(0.3) or made.run())

    numpy_peer(SlowPeer())
    argv = ["-k", "argmax-columns", "--peers", "numpy", "--seconds", "0.25"]
    assert "- numpy: a call takes 0.3 s" in run(*argv, "--keep-going")[1]
    assert "- numpy: " not in run(*argv)[1]


class FailingPeer(NumpyPeer):
    def contender(self, desc, x):
        if desc.inputs[0].data_type is FLOAT16:
            raise MemoryError("no memory")
        return super().contender(desc, x)


def test_a_case_that_fails_is_left_out(run, numpy_peer, tmp_path):
    numpy_peer(FailingPeer())
    argv = ["-k", "argmax-", "--peers", "numpy", "--json", tmp_path / "run.json"]
    code, _, errors = run(*argv, "--keep-going")
    assert (code, errors) == (2, "benchmarks: argmax-FLOAT16: MemoryError('no memory')\n")
    saved = [result.case for result in load(str(tmp_path / "run.json")).results]
    assert saved == [case.id for case in TINY if "argmax-" in case.id and case.id != "argmax-FLOAT16"]
    # What was measured before is kept.
    with pytest.raises(MemoryError):
        run(*argv)
    assert [result.case for result in load(str(tmp_path / "run.json")).results] == saved[:5]


def test_cases_after_the_limit_are_left_out(run, tmp_path):
    file = tmp_path / "run.json"
    code, output, errors = run("-k", "argmax-", "--peers", "numpy", "--limit", "1e-9", "--json", file)
    assert (code, errors) == (0, "")
    assert "left out: 10 cases after 1e-09 s, from argmax-rows on" in output
    assert load(str(file)).results == ()


def test_runs_take_turns(monkeypatch):
    # One call is a sample.
    monkeypatch.setattr(measure, "SAMPLE", 1e-12)
    called = []
    runs = {name: lambda name=name: called.append(name) for name in "abc"}
    times = interleave(runs, 20, 10, lambda: None)
    turns = ["".join(called[i : i + 3]) for i in range(len(called) - 60, len(called), 3)]
    assert {"".join(sorted(turn)) for turn in turns} == {"abc"}
    assert len(set(turns)) > 1
    assert {name: len(timing.samples) for name, timing in times.items()} == dict.fromkeys("abc", 20)


def test_runs_take_turns_before_they_are_timed(monkeypatch):
    monkeypatch.setattr(measure, "SAMPLE", 1e-12)
    called = []
    runs = {name: lambda name=name: called.append((name, measure.time.perf_counter())) for name in "abc"}
    interleave(runs, 1, 10, lambda: None)
    names, times = zip(*called, strict=True)
    early = sum(at < times[0] + 0.2 for at in times)
    assert "".join(names[: early // 3 * 3]) == "abc" * (early // 3)
    assert early > 30


def test_what_takes_long_sits_out_rounds_after_the_third(monkeypatch):
    monkeypatch.setattr(measure, "SAMPLE", 0.001)
    times = interleave({"slow": lambda: measure.time.sleep(0.01), "fast": int}, 6, 0.02, lambda: None)
    assert {name: len(timing.samples) for name, timing in times.items()} == {"slow": 3, "fast": 6}
    assert times["slow"].minimum >= 0.01 > 0.001 > times["fast"].median


def test_threads_that_spin_are_waited_for(monkeypatch):
    class Clock:
        now = 0.0

        def perf_counter(self):
            self.now += 0.0005
            return self.now

        def process_time(self):
            return min(self.now, 0.04)

        def thread_time(self):
            return 0.0

    clock = Clock()
    monkeypatch.setattr(measure, "time", clock)
    measure._settle()
    assert 0.04 < clock.now < 0.05


def test_a_timing_has_median_and_interquartile_range():
    timing = Timing((5.0, 1.0, 2.0, 4.0, 3.0))
    assert (timing.minimum, timing.median, timing.spread) == (1, 3, 2)
    assert Timing((2.0,)).spread == 0


# Reports


@pytest.mark.parametrize(
    ("shown", "number", "text"),
    [
        (duration, 12.345, "12.3 s"),
        (duration, 1, "1.00 s"),
        (duration, 0.99951, "1.00 s"),
        (duration, 0.0123, "12.3 ms"),
        (duration, 4.567e-6, "4.57 µs"),
        (duration, 3e-9, "3.00 ns"),
        (digits, 1234.5, "1230"),
        (digits, 99.96, "100"),
        (digits, 9.996, "10.0"),
        (digits, 0.12345, "0.123"),
        (digits, 0.00123456, "0.00123"),
    ],
)
def test_durations_and_numbers_have_three_digits(shown, number, text):
    assert shown(number) == text


def test_tables_have_times_ratios_and_dashes():
    own, ratios, times = case_tables(
        [
            result("a", kernel=(0.002, 0.0005), call=0.003, compile=0.1, first_call=0.2, copy=0.001, numpy=0.004),
            result("b", kernel=0.002, copy=0.001, numpy="of no use", torch=(0.008, 0.002)),
        ]
    )
    assert table_rows(own)["a"] == {
        "minimum": "1.50 ms",
        "median": "2.00 ms",
        "spread": "25 %",
        "GB/s": "2.00",
        "call": "3.00 ms",
        "compile": "100 ms",
        "first call": "200 ms",
    }
    assert table_rows(ratios) == {
        "a": {"copy": "2.00", "numpy": "0.500", "torch": "-"},
        "b": {"copy": "2.00", "numpy": "-", "torch": "0.250"},
    }
    assert table_rows(times)["b"] == {"copy": "1.00 ms ± 0 %", "numpy": "-", "torch": "8.00 ms ± 25 %"}


def test_batches_have_a_table_of_their_own():
    (table,) = case_tables(
        [
            replace(result("a", kernel=0.004, copy=0.001, batch=0.001, copy_batch=0.0005, torch=1.0), batch=4),
            result("b", kernel=0.002),
        ]
    )[3:]
    assert table_rows(table) == {
        "a": {"calls": "4", "a call": "1.00 ms", "GB/s": "4.00", "alone / batch": "4.00", "copy": "2.00"}
    }


def test_scale_has_the_time_in_a_batch():
    made = [result(f"argmax-rows-2^{i}", kernel=0.004, copy=0.001) for i in (16, 17)]
    made[0].timings["batch"] = Timing((0.002,))
    rows = table_rows(scale_tables([replace(r, elements=1 << 16 + i) for i, r in enumerate(made)])[0])
    assert [row["batch"] for row in rows.values()] == ["2.00 ms", "-"]


def test_a_file_from_before_batches_is_read(tmp_path):
    file = str(tmp_path / "old.json")
    save(Run(HEADER, False, (result("a"),)), file)
    content = json.loads(Path(file).read_text())
    del content["results"][0]["batch"]
    Path(file).write_text(json.dumps(content))
    (old,) = load(file).results
    assert (old, len(case_tables([old]))) == (result("a"), 3)


def test_scale_has_the_time_per_per_element_and_its_ratio_to_the_best():
    def at(exponent, per_element):
        made = result(f"argmax-rows-2^{exponent}", kernel=per_element * (1 << exponent), copy=0.001)
        return replace(made, elements=1 << exponent)

    # Sizes below 2^16 and above 2^26 do not count.
    (table,) = scale_tables([at(15, 1e-9), at(16, 4e-9), at(20, 2e-9), at(26, 3e-9), at(27, 1e-9)])
    found = table_rows(table)
    assert {size: row["to the best"] for size, row in found.items()} == {
        "2^15": "-",
        "2^16": "2.00",
        "2^20": "1.00",
        "2^26": "1.50",
        "2^27": "-",
    }
    assert found["2^20"]["per element"] == "2.00 ns"
    assert found["2^20"]["copy"] == "1.00 ms"


def test_windows_have_the_ratio_to_the_faster_peer():
    def of(window, **medians):
        return replace(result(f"pool-256x256-{window}", kernel=0.002, copy=0.0001, **medians), elements=1 << 20)

    (table,) = scale_tables(
        [
            of("1x1", numpy=0.004, torch=0.008),
            of("12x12", numpy="no use", torch=0.001),
            of("101x101", numpy="no use", torch="slow"),
        ]
    )
    assert table.columns[0] == "window"
    assert {window: row["to the faster"] for window, row in table_rows(table).items()} == {
        "1x1": "0.50",
        "12x12": "2.00",
        "101x101": "-",
    }
    assert table_rows(table)["12x12"] == {
        "kernel": "2.00 ms",
        "per element": "1.91 ns",
        "to the faster": "2.00",
        "first call": "1.00 s",
        "copy": "100 µs",
        "numpy": "-",
        "torch": "1.00 ms",
    }


def test_windows_are_drawn_at_their_sizes():
    from benchmarks.plot import plot_scale

    made = [
        result(f"pool-256x256-{side}x{side}", kernel=side, numpy=2.0 * side, torch="slow" if side == 9 else 3.0)
        for side in (1, 3, 9)
    ]
    (axes,) = plot_scale(HEADER, made).axes
    lines = {line.get_label(): [*zip(*line.get_data(), strict=True)] for line in axes.get_lines()}
    assert lines == {
        "dmlgpu, device tensors": [(1, 1), (3, 3), (9, 9)],
        "NumPy": [(1, 2), (3, 6), (9, 18)],
        "PyTorch": [(1, 3), (3, 3)],
    }
    assert axes.get_xlabel() == "elements of the window along a dimension"
    assert axes.xaxis.get_major_formatter()(3) == "3"


def test_a_plot_has_no_empty_panel():
    from benchmarks.plot import plot_scale

    made = [result(f"{name}-1x1", kernel=1.0) for name in WINDOWS]
    assert [axes.get_title() for axes in plot_scale(HEADER, made).axes] == list(WINDOWS)


def drawn(axes):
    """The points of a panel of `plot_cases`, by their labels in the legend."""
    lines = {line.get_label(): [*zip(*line.get_data(), strict=True)] for line in axes.get_lines()}
    return {label: points for label, points in lines.items() if not label.startswith("_")}


def test_cases_are_drawn_as_ratios_to_the_fastest_library():
    from benchmarks.plot import plot_cases

    figure = plot_cases(
        HEADER,
        [
            result("slow", kernel=8.0, call=16.0, copy=1.0, usual=1.0, numpy=4.0, torch=2.0),
            result("fast", kernel=1.0, call=3.0, copy=0.1, usual=0.1, numpy=2.0, torch="none"),
            replace(result("sums", kernel=1.0, call=2.0, usual=2.0), operator="REDUCE SUM float32 7x3 axes 1"),
            replace(result("alone", kernel=1.0, copy=1.0), operator="REDUCE SUM float32 7x3 axes 0"),
        ],
    )
    first, second = figure.axes
    assert [text.get_text() for text in first.get_yticklabels()] == ["fast", "slow"]
    assert drawn(first) == {
        "device tensors, against NumPy": [(0.5, 0)],
        "device tensors, against PyTorch": [(4, 1)],
        "arrays in and out, which are copied": [(1.5, 0), (8, 1)],
    }
    assert {text.get_text() for text in first.texts} >= {"0.5", "4"}
    # No library computes it, and what nothing else computes is left out.
    assert [text.get_text() for text in second.get_yticklabels()] == ["sums"]
    assert drawn(second) == {
        "device tensors, against usual kernel": [(0.5, 0)],
        "arrays in and out, which are copied": [(1, 0)],
    }


def test_every_case_has_a_panel_of_its_family():
    from benchmarks.plot import plot_cases

    made = [replace(result(case.id, numpy=1.0), operator=describe(case.desc)) for case in CASES]
    rows = {axes.get_title(loc="left"): len(axes.get_yticks()) for axes in plot_cases(HEADER, made).axes}
    assert rows == {
        "ARGMAX": 13,
        "REDUCE: sum, maximum, average, log-sum-exp": 12,
        "Max pooling without indices": 7,
        "Max pooling with indices": 5,
        "Average and Lp pooling": 2,
        "Gradients and unpooling": 3,
    }


def test_without_another_there_is_nothing_to_draw():
    from benchmarks.plot import plot_cases

    with pytest.raises(BenchmarkError, match=r"^--plot compares with the fastest library, or the usual kernel: "):
        plot_cases(HEADER, [result("a", copy=1.0)])


# Comparing


def test_a_change_counts_above_the_noise_of_both_runs():
    old = Run(HEADER, False, (result("a", kernel=(1.0, 0.1), call=(1.0, 0.1), copy=1.0, numpy=2.0),))
    new = Run(HEADER, False, (result("a", kernel=(1.3, 0.13), call=(1.15, 0.115), copy=1.1, numpy=2.2),))
    rows = {row[1]: row for row in compare.compared(old, new).rows}
    assert rows["kernel"] == ("a", "kernel", "1.00 s", "1.30 s", "+30 %", "20 %", "+10 %", "slower")
    assert rows["call"] == ("a", "call", "1.00 s", "1.15 s", "+15 %", "20 %", "+10 %", "same")
    assert {row[1]: row[-1] for row in compare.compared(new, old).rows}["kernel"] == "faster"


def test_what_only_one_run_has_is_said():
    old = Run({**HEADER, "driver": "1"}, False, (result("a"), result("b")))
    new = Run({**HEADER, "driver": "2", "date": "tomorrow"}, False, (result("b"), result("c")))
    assert [row[0] for row in compare.compared(old, new).rows] == ["b"] * 4
    assert compare.differences(old, new) == ["driver: 1 -> 2", "only in the old run: a", "only in the new run: c"]


# The command line


def test_a_run_writes_tables_json_markdown_and_a_plot(run, tmp_path):
    files = [tmp_path / name for name in ("run.json", "run.md", "run.png")]
    code, output, errors = run(
        "-k", "ARGMAX-ALL", "--peers", "usual,numpy", "--json", files[0], "--markdown", files[1], "--plot", files[2]
    )
    assert (code, errors) == (0, "")
    assert "argmax-all" in output
    assert "numpy " + np.__version__ in output

    content = json.loads(files[0].read_text())
    (measured,) = content["results"]
    assert (measured["case"], measured["operator"]) == ("argmax-all", "ARGMAX float32 7x300 axes 0, 1")
    kernel = measured["timings"]["kernel"]
    assert kernel["minimum"] <= kernel["median"] == pytest.approx(np.median(kernel["samples"]))
    assert {"date", "device", "driver", "versions", "CPU", "peer usual", "peer numpy"} <= set(content["header"])

    text = files[1].read_text()
    assert "| case | copy | usual | numpy |\n| --- | ---: | ---: | ---: |\n| argmax-all |" in text
    assert "| argmax-all | ARGMAX float32 7x300 axes 0, 1 | 0.0084 MB |" in text

    with Image.open(files[2]) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    assert pixels.shape[1] == 1600
    assert (pixels == (0x00, 0x72, 0xB2)).all(2).any()  # NumPy


def test_a_missing_peer_is_a_dash(run, monkeypatch):
    for package in ("torch", "onnxruntime"):
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(peer_usual.shutil, "which", lambda _: None)
    code, output, _ = run("-k", "argmax-rows")
    assert code == 0
    ratios = next(line.split() for line in output.split("kernel / other")[1].splitlines() if "argmax-rows" in line)
    assert (ratios[2:4], ratios[5:]) == (["-"] * 2, ["-"] * 4)
    for name in ("torch", "torch-cuda"):
        assert f"- {name}: not installed" in output
    assert "- usual: glslangValidator is not installed" in output


def test_scale_doubles_a_case(run, tmp_path):
    picture, saved = tmp_path / "scale.svg", tmp_path / "scale.json"
    code, output, _ = run("--scale", "10-12", "-k", "columns", "--peers", "numpy", "--plot", picture, "--json", saved)
    assert code == 0
    assert [line.split()[0] for line in output.splitlines() if line.lstrip().startswith("2^")] == [
        "2^10",
        "2^11",
        "2^12",
    ]
    assert "<svg" in picture.read_text()
    assert load(str(saved)).scale


def test_windows_grow(run, tmp_path, monkeypatch):
    made = [pooling_case(f"tiny-{side}x{side}", (1, 2, 9, 7), side) for side in (1, 3, 7)]
    monkeypatch.setitem(WINDOWS, "pool-tiny", tuple(made))
    picture, saved = tmp_path / "windows.svg", tmp_path / "windows.json"
    code, output, _ = run("--windows", "-k", "TINY", "--peers", "numpy", "--plot", picture, "--json", saved)
    assert code == 0
    rows = [line.split() for line in output.splitlines()]
    assert [row[0] for row in rows if row and row[0] in ("1x1", "3x3", "7x7")] == ["1x1", "3x3", "7x7"]
    assert "to the faster" in output
    assert "<svg" in picture.read_text()
    assert load(str(saved)).scale
    assert "first call" in load(str(saved)).results[0].timings
    assert "first call" in output


def test_show_and_compare_read_what_was_written(run, tmp_path, capsys):
    files = [str(tmp_path / name) for name in ("old.json", "new.json")]
    for file, time in zip(files, (0.001, 0.002), strict=True):
        save(Run(HEADER, False, (result("a", kernel=time, numpy=0.004, torch="absent"),)), file)
    assert load(files[0]).results[0].timings["kernel"].median == 0.001
    assert cli.main(["show", files[1], "--markdown", str(tmp_path / "new.md")]) == 0
    assert "a device" in capsys.readouterr().out
    assert "- torch: absent" in (tmp_path / "new.md").read_text()
    assert cli.main(["compare", *files]) == 0
    assert "a kernel 1.00 ms 2.00 ms +100 % 0 % +0 % slower" in " ".join(capsys.readouterr().out.split())


def test_list_has_the_chosen_cases(capsys):
    assert cli.main(["--list", "-k", "vocab"]) == 0
    assert capsys.readouterr().out.split() == ["argmax-vocabulary"]


def test_output_that_nobody_reads_is_silent(environment):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "benchmarks", "--list"]
    done = subprocess.run(command, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, env=environment)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


PEERS = "exact", "usual", "numpy", "torch", "torch-cuda", "onnxruntime", "onnxruntime-webgpu"
NO_CASE = "no case has 'nothing' in its name; cases are"
OTHER = "was not written by `python -m benchmarks --json`\n"
# After what names the format.
OTHER_CONTENTS = [
    {},
    {"header": {}, "scale": False},
    {"header": {}, "scale": False, "results": [1]},
    {"header": {}, "scale": False, "results": [{}]},
    {"header": [1], "scale": False, "results": []},
    {"header": {}, "scale": False, "results": [{"case": "a", "timings": {"kernel": {"samples": ["x"]}}}]},
]
# In the folder of `test_errors_say_what_is_wrong`.
FILES = {
    "text": "text",
    "deep": "[" * 100_000,
    "large": "1" * 200_001,
    "list": "[]",
    **{f"other{i}": json.dumps({"format": "dmlgpu benchmarks 1"} | each) for i, each in enumerate(OTHER_CONTENTS)},
}
ERRORS = {
    "-k nothing": f"{NO_CASE} argmax-rows, ",
    "--peers numpy,tensorflow": f"there is no peer 'tensorflow'; peers are {', '.join(PEERS)}\n",
    "--device nonsense": "there is no device 'nonsense'",
    "--scale 1-5": "--scale 1-5: give exponents of 2 as LOW-HIGH, from 10 to 27",
    "--windows -k nothing": f"{NO_CASE} pool-256x256, ",
    "--plot plot.gift": "plot.gift: give a picture the suffix of its format: ",
    "--json no/such/folder.json": "no/such/folder.json: there is no such folder",
    "show no.json": "No such file or directory: 'no.json'",
    "compare a.json b.json": "a.json and b.json have no case in common",
    "show text": "text is no JSON file: ",
    "show deep": "deep is no JSON file: ",
    "show large": "large has more than 200000 bytes\n",
    "show list": f"list {OTHER}",
    **{f"show other{i}": f"other{i} {OTHER}" for i in range(len(OTHER_CONTENTS))},
}


@pytest.mark.parametrize(("line", "message"), ERRORS.items(), ids=ERRORS)
def test_errors_say_what_is_wrong(run, tmp_path, monkeypatch, line, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("benchmarks.results._MOST_BYTES", 200_000)
    for name, content in FILES.items():
        Path(name).write_text(content)
    for name in "ab":
        save(Run(HEADER, False, (result(name),)), f"{name}.json")
    code, _, errors = run(*line.split())
    assert code == 2
    assert errors.startswith("benchmarks: ")
    assert message in errors


def test_calls_that_are_verified_are_not_measured(run, monkeypatch):
    monkeypatch.setenv("DMLGPU_VERIFY", "1")
    assert run()[2] == "benchmarks: DMLGPU_VERIFY is set: every call would be timed together with the oracle's\n"


def test_a_missing_extra_is_named(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert run("--list")[2] == 'benchmarks: rich.console is not installed: pip install "dmlgpu[bench]"\n'


def test_the_module_turns_shader_caches_off(driver, environment, tmp_path):
    argv = ["-k", "pool-global", "--device", str(driver.index), "--peers", "numpy", "--rounds", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *argv],
        env=environment,
        cwd=Path(dmlgpu.__file__).parents[1],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "shader caches: off (MESA_SHADER_CACHE_DISABLE=true" in done.stdout
    assert "pool-global-indices" in done.stdout


def test_calls_compare_functions_with_operators(driver, tmp_path):
    markdown = tmp_path / "calls.md"
    assert calls.main(["--device", str(driver.index), "--rounds", "3", "--markdown", str(markdown)]) == 0
    text = markdown.read_text()
    assert driver.name in text
    names = tuple(f"| {name} |" for name in calls.CASES)
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith(names)]
    assert [row[0] for row in rows] == [name for name in calls.CASES for _ in range(3)]
    assert all(float(row[4]) > 0 for row in rows)


def test_ratios_of_calls_are_those_of_the_same_round():
    ways = {"out": (1, 2), "tensor": (1, 3), "array": (2, 2)}
    times = {
        f"{kind}, {way}": Timing((seconds, 10 * seconds, 100 * seconds))
        for way, both in ways.items()
        for kind, seconds in zip(("operator", "function"), both, strict=True)
    }
    found = calls.table({"argmax": times})
    assert [row[4] for row in found.rows] == ["2.00", "3.00", "1.00"]
    assert [row[3] for row in found.rows] == ["20.0 s", "30.0 s", "20.0 s"]


def test_results_of_calls_are_compared(driver):
    case = replace(calls.CASES["sum"], function=partial(dmlgpu.max, axis=3))
    with dmlgpu.Device(driver.index) as device, pytest.raises(BenchmarkError, match=r"^function, out: the results"):
        calls.measured(device, case, 1)
