import dataclasses
import json
import os
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest

import dmlgpu
from dmlgpu import registry
from dmlgpu.chunks.source import Chunked
from dmlgpu.descriptors.operator import ALL_TYPES
from dmlgpu.lowering.lower import DESCRIPTIONS
from dmlgpu.reference import reference
from dmlgpu.runtime import drivers
from dmlgpu.testing import cases, fills
from dmlgpu.tools import cli, demo, exhaustive, explain
from dmlgpu.tools.cli import main
from tests.support.devices import info
from tests.support.drivers import DRIVERS, set_drivers
from tests.support.limits import LIMITS, LOWERED
from tests.support.plans import chosen, of_operator
from tests.support.processes import ROOT, hide

# A call of each command, in a folder that has `x.npy`.
CALLS = {
    "devices": "devices",
    "demo": "demo",
    "verify": "verify",
    "explain": "explain argmax float32 30,50",
    "profile": "profile --op argmax float32 30,50 --calls 2",
    "stream": "stream argmax x.npy",
    "doctor": "doctor",
}
OPERATORS = {operator.name: operator for operator in registry.OPERATORS}


@pytest.fixture(autouse=True)
def _width(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")


@pytest.fixture
def few_checks(monkeypatch):
    """Reduces the checks to a sample of each of three operators and one case, to save time."""
    chosen = [*{case.operator: case for case in cases.samples(registry.OPERATORS[:3])}.values()]
    monkeypatch.setattr(cases, "samples", lambda: chosen)
    monkeypatch.setattr(cases, "ALL_CASES", cases.EXTREMA[:1])


@pytest.fixture
def file(tmp_path, monkeypatch):
    """The path of `x.npy` in the current folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "x.npy"
    np.save(path, np.random.default_rng(0).integers(0, 9, (6, 40, 50)).astype(np.float32))
    return path


@pytest.fixture
def environment(environment):
    """The variables of a command that runs in any folder and sees one driver."""
    set_drivers(environment.__setitem__, DRIVERS["lavapipe"])
    return environment | {"PYTHONPATH": str(ROOT)}


@pytest.fixture
def help_of(capsys):
    def printed_help(*command):
        with pytest.raises(SystemExit, match="0"):
            main([*command, "--help"])
        return capsys.readouterr().out

    return printed_help


def rows(text):
    """Splits each line of a table into words."""
    return [line.split() for line in text.splitlines()]


def has_parts(text, parts):
    """Whether a text has these parts as whole words in this order; ` ... ` separates the parts."""
    return re.search(".*".join(rf"(?!\B\w){re.escape(part)}(?<!\w\B)" for part in parts.split(" ... ")), text)


# Help and errors


def test_help_names_the_operators(help_of):
    (names,) = re.findall(r" DirectML's (.*) on any Vulkan device\. ", " ".join(help_of().split()))
    assert re.findall(r"\w+", names.replace(" and ", " ")) == [*dict.fromkeys(name.split()[0] for name in OPERATORS)]


@pytest.mark.parametrize("command", [*CALLS, "run"])
def test_examples_of_help_are_accepted(command, any_cpu, file, help_of, capsys):
    np.save(file, np.zeros((4, 5, 6), np.float32))
    examples = re.findall(rf"^  dmlgpu ({command}\b.*)$", help_of(command), re.MULTILINE)
    assert examples
    for example in examples:
        cli._arguments(example.split())
        if command in ("explain", "stream"):
            assert (main(example.split()), capsys.readouterr().err) == (0, "")


def test_options_may_be_short_and_version_is_one(capsys):
    for option in "--version", "--vers", "-h":
        with pytest.raises(SystemExit, match="0"):
            main([option])
        assert capsys.readouterr().out.startswith("usage: " if option == "-h" else f"dmlgpu {dmlgpu.__version__}\n")


WRONG_ARGUMENTS = {
    "": "dmlgpu: error: no command; give one of those above",
    "devics": "commands are devices, demo, verify, explain, profile, run, stream, doctor; did you mean devices?",
    "--jsn": "dmlgpu: error: put a command before --jsn; did you mean --json of devices, doctor?",
    "--nonsense": "dmlgpu: error: put a command before --nonsense\n",
    "verify --exhuastive=1": "dmlgpu verify: error: ... --exhuastive=1; did you mean --exhaustive?",
    "verify x": "dmlgpu verify: error: unexpected argument 'x' (put options last)\n",
    "demo --image a\0b": r"dmlgpu: error: 'a\x00b' ... remove the character 0",
    "stream max_pooling_grad x.npy": "argument FUNCTION: ... 'max_pooling_grad' ... argmax ... sum",
    "profile argmax float32 3 axes=0": "argmax is an operator, ... write dmlgpu profile --op argmax float32 3 axes=0\n",
    "profile sum float32 3": "dmlgpu profile: error: unexpected argument 'float32' (put options last)",
    "profile --op argmax float32 3 --calls 0": "'0' ... integers from 1 on",
}


@pytest.mark.parametrize(("line", "parts"), WRONG_ARGUMENTS.items(), ids=map(repr, WRONG_ARGUMENTS))
def test_wrong_arguments_exit_with_2(line, parts, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(line.split())
    output, error = capsys.readouterr()
    assert (output, error.startswith("usage: dmlgpu")) == ("", True)
    assert has_parts(error, parts)


@pytest.mark.parametrize("command", CALLS)
def test_commands_without_rich_name_the_extra(command, file, monkeypatch, capsys):
    hide(monkeypatch, "rich")
    assert main(CALLS[command].split()) == 2
    assert capsys.readouterr().err == "dmlgpu: rich is not installed: pip install dmlgpu[cli]\n"


def raising(error):
    """A function that raises an error, whatever its arguments."""

    def call(*_):
        raise error

    return call


def test_ctrl_c_exits_with_130(monkeypatch):
    monkeypatch.setattr(cli, "devices", raising(KeyboardInterrupt))
    assert main(["devices"]) == 130


def test_other_missing_modules_raise_their_error(monkeypatch):
    monkeypatch.setattr(cli, "devices", raising(ModuleNotFoundError("No module named 'nonsense'", name="nonsense")))
    with pytest.raises(ModuleNotFoundError, match="nonsense"):
        main(["devices"])


# Arguments that commands refuse, with parts of the message

ARG_INDICES = "INT64, INT32, UINT64, UINT32\n"
INTEGERS = "integers between commas"
POOLED = "float32 1,1,9,9 window_size=2,2"
NO_DEVICE = "there is no device 999; devices are 0: "
TWO_RESULTS = "stream max_pooling x.npy window_size=2 output_indices=True --output"
# The names of `x.npy` in the folder `crowded`.
NAMES = "x.npy", "./x.npy", "link.npy", "hard.npy", "folder/x.npy", "x.npy/../x.npy"
REFUSED = {
    **{f"{command} --device 999": NO_DEVICE for command in ("demo", "verify", *map(CALLS.get, ("explain", "profile")))},
    "stream argmax x.npy --device 999": NO_DEVICE,
    "explain median float32 3": "operator: 'median' ... ARGMAX, ARGMIN, REDUCE, AVERAGE_POOLING ... TOP_K1\n",
    "explain sum float32 3": "operator: 'sum' ... it is an argument of REDUCE, as in: reduce ... function=SUM axis=1\n",
    "explain mean": "operator: 'mean' ... function=AVERAGE axis=1\n",
    "explain reduce sum float32 3": "type: 'sum' ... function=SUM axis=1\n",
    "explain argmax": "argmax: give its type and sizes, as in: argmax float32 4096,1024 axis=1\n",
    "explain argmax float32": "argmax: give its type and sizes, as in: argmax float32 ... axis=1\n",
    "explain argmax float32 3 output_data_type=float32": f"argmax.output_data_type: 'float32' ... {ARG_INDICES}",
    "explain reduce float32 3": "reduce.function: ... required ... ARGMAX, ARGMIN, AVERAGE, L1, L2, LOG_SUM",
    "explain 'reduce sum' float32 3 function=MAX": "reduce sum.function: 'MAX' ... function is given twice",
    "explain 'argmax sum' float32 3": "argmax sum: 'function=SUM' ... axes, axis_direction",
    "explain argmax float 3": "type: 'float' ... float32, float16, int64, int32, int16, int8",
    "explain reduce float64 3 function=SUM": "type: 'float64' ... float32, float16, int64",
    "explain argmax float32 3x3": f"sizes: '3x3' ... {INTEGERS}\n",
    "explain argmax float32 3 axes": "argmax: 'axes' ... NAME=VALUE",
    "explain argmax float32 3 axis=1": "ArgmaxOperatorDesc.axis: 1 is out of range; allowed are -1 to 0",
    "explain argmax float32 3 dim=1": "argmax: 'dim=1' is not allowed; write axis\n",
    "explain argmax float32 3 input_tensor=1": "argmax: 'input_tensor=1' ... axes, axis_direction",
    "explain argmax float32 3 axis_direction=None": "argmax.axis_direction: 'None' ... INCREASING, DECREASING\n",
    f"explain max_pooling2 {POOLED} indices_data_type=int": "indices_data_type: 'int' ... UINT32, UINT64, None\n",
    f"explain lp_pooling {POOLED} p=x": "lp_pooling.p: 'x' ... allowed are integers\n",
    f"explain average_pooling {POOLED} include_padding=1": "average_pooling.include_padding: '1' ... TRUE, FALSE\n",
    f"explain max_pooling {POOLED} indices_data_type=uint32": "'indices_data_type=uint32' ... window_size, strides",
    "explain max_pooling2 float32 1,1,9,9": f"max_pooling2.window_size: ... required ... {INTEGERS}",
    "explain argmax float32 9,3 axes=1 --kernel rows": "kernel 'rows' cannot compute it, because an output has 3",
    "explain reduce float32 9,3 function=LOG_SUM --exact": "function: LOG_SUM is not supported with EXACT_SUMS",
    "profile": "profile: give either a model file or --op",
    "profile argmax": "argmax is an operator, ... profile --op argmax TYPE SIZES NAME=VALUE, as in ... axis=1\n",
    "profile sum": "No such file or directory: 'sum'",
    "profile a.json --op argmax float32 3": "profile: give either a model file or --op",
    "profile --op argmax float32 3 --trace 'no folder/a.json'": "no folder/a.json",
    "stream reduce x.npy function=SUM dtype=float": f"reduce.dtype: 'float' ... {ARG_INDICES[:-1]}, None\n",
    "stream sum x.npy dtype=float64": "sum.dtype: 'float64' ... FLOAT32, FLOAT16, INT64, ... UINT8, None\n",
    "stream cumulative_sum x.npy axis=0 dtype=float64": "cumulative_sum.dtype: 'float64' ... FLOAT32, FLOAT16, INT64",
    "stream mean x.npy dtype=int32": "mean.dtype: 'int32' ... allowed are FLOAT32, FLOAT16, None\n",
    "stream mean integers.npy": 'mean: uint8 is not supported; allowed are float32, float16; give dtype="float32"\n',
    "stream mean integers.npy --output lost.npy --force": "mean: uint8 is not supported; ... give dtype",
    "stream argmax x.npy axes=0": "argmax: 'axes=0' is not allowed; write axis, with keepdims=True for axes that stay",
    "stream max x.npy dtype=int32": "max: 'dtype=int32' is not allowed; write indices_data_type\n",
    "stream max_pooling x.npy window_size=2 padding=1:0:1,0": f"{INTEGERS}, or pairs BEFORE:AFTER, None\n",
    "stream max_pooling x.npy window_size=2:2": f"max_pooling.window_size: '2:2' ... {INTEGERS}\n",
    **{
        f"stream argmax x.npy {argument}": f"argmax: '{argument}' ... axis, keepdims, axis_direction, dtype\n"
        for argument in ("device=0", "x=1", "out=1")
    },
    "stream top_k x.npy axis=1": "top_k.k: required; allowed are integers\n",
    "stream top_k x.npy k=2 mode=max": "top_k.mode: 'max' is not allowed; allowed are LARGEST, SMALLEST, None\n",
    "stream argmax .": "Is a directory: '.'\n",
    "stream argmax several.npz": "dmlgpu: several.npz: a .npz file ... allowed are .npy files",
    # Files of results
    "stream argmax x.npy --output a.zarr": "--output: 'a.zarr' ... .npy files\n",
    "stream argmax x.npy --output a.npy b.npy": "--output: 2 files ... argmax has 1 result here\n",
    "stream top_k x.npy k=3 --output a.npy": "--output: 1 files are not allowed; top_k has 2 results here\n",
    f"{TWO_RESULTS} a.npy": "--output: 1 files ... max_pooling has 2 results here\n",
    f"{TWO_RESULTS} a.npy folder/a.npy": "--output: 'folder/a.npy' is given twice; ... a file of its own\n",
    "stream argmax x.npy --output pipe.npy --force": "--output: 'pipe.npy' exists and is not a file; ... .npy files\n",
    "stream argmax x.npy --output lost.npy": "--output: 'lost.npy' exists; overwrite it with --force\n",
    "stream argmax x.npy/../x.npy --output x.npy": "Not a directory",
    **{
        f"stream argmax {read} --output {y}{force}": f"--output: '{y}' is the input file; give another one\n"
        for read, y in [*(("x.npy", name) for name in NAMES), *((name, "x.npy") for name in NAMES[:-1])]
        for force in ("", " --force")
    },
}


@pytest.fixture
def crowded(file, tmp_path):
    """A folder in which `x.npy` has several names, and other entries are no arrays or no files."""
    (tmp_path / "link.npy").symlink_to("x.npy")
    (tmp_path / "hard.npy").hardlink_to(file)
    (tmp_path / "folder").symlink_to(tmp_path)
    np.savez(tmp_path / "several.npz", x=np.zeros(3))
    np.save(tmp_path / "integers.npy", np.zeros(3, np.uint8))
    os.mkfifo(tmp_path / "pipe.npy")
    (tmp_path / "lost.npy").symlink_to("nowhere")
    return tmp_path


@pytest.mark.parametrize(("line", "parts"), REFUSED.items(), ids=[line[:70] for line in REFUSED])
def test_commands_refuse_wrong_words_and_files(crowded, file, capsys, line, parts):
    names, content = sorted(crowded.iterdir()), file.read_bytes()
    assert main(shlex.split(line)) == 2
    error = capsys.readouterr().err
    assert error.startswith("dmlgpu: ")
    assert error.count("\n") == 1
    assert has_parts(error, parts)
    assert (sorted(crowded.iterdir()), file.read_bytes()) == (names, content)


# Readers that go away


@pytest.fixture
def unread(environment):
    """Runs a command whose output nobody reads; returns its exit code and errors."""

    def run(line, stderr):
        reader, writer = os.pipe()
        os.close(reader)
        command = [sys.executable, "-m", "dmlgpu", *line.split()]
        process = subprocess.run(command, stdout=writer, stderr=stderr, env=environment)
        os.close(writer)
        return process.returncode, process.stderr

    # Without this variable Python writes short output when it ends.
    environment.pop("PYTHONUNBUFFERED", None)
    return run


@pytest.mark.parametrize("line", [CALLS["explain"], CALLS["stream"], "devices --json", "--help"])
def test_output_that_nobody_reads_ends_a_command_with_141(unread, line, file):
    assert unread(line, subprocess.PIPE) == (141, b"")


def test_errors_that_nobody_reads_end_a_command_with_141(unread):
    assert unread("verify --device 999", subprocess.STDOUT) == (141, None)


@pytest.mark.parametrize(
    "line",
    [
        "stream argmax x.npy --output \udcff.npy",
        "profile --op argmax float32 3 --trace \udcff.json",
        "demo --output \udcff.png",
    ],
    ids=["stream", "profile", "demo"],
)
def test_names_of_files_may_be_no_text(line, file, capsys, monkeypatch):
    monkeypatch.setattr(demo, "RUNS", 1)
    code, (output, error) = main(line.split()), capsys.readouterr()
    assert (code, error, r"\udcff." in output) == (0, "", True)


def test_a_reader_that_goes_away_changes_the_exit_code_alone(environment, tmp_path):
    command = [sys.executable, "-m", "dmlgpu", "demo", "--output", str(tmp_path / "demo.png")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stdout.readline().startswith(b"device ")
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141
    assert (tmp_path / "demo.png").exists()


# devices


def test_devices_as_json_need_no_rich(monkeypatch, capsys):
    hide(monkeypatch, "rich")
    assert main(["devices", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    infos = [dmlgpu.DeviceInfo(**fields | {"heaps": tuple(fields["heaps"])}) for fields in listed]
    assert infos == list(dmlgpu.devices())


def test_the_table_of_devices_shows_their_limits(monkeypatch, capsys):
    gpu = dataclasses.replace(
        info(7, "[red]A card[/]", "discrete"),
        driver="[b]A driver",
        max_storage_buffer_range=2**32 - 1,
        max_memory_allocation_size=1536 << 20,
        max_group_size=1024,
        max_group_count=2**31 - 1,
        heaps=(12 << 30, 256 << 20, 1000),
        host_heap=1,
    )
    monkeypatch.setattr(cli, "devices", lambda: (gpu,))
    assert main(["devices"]) == 0
    table = capsys.readouterr().out
    for text in "7", gpu.name, gpu.driver, gpu.uuid, gpu.type, gpu.api_version:
        assert text in table
    for text in "buffer 4 GiB", "allocation 1.5 GiB", "group size 1,024", "groups 2,147,483,647":
        assert text in table
    for text in "12 GiB device", "256 MiB host", "1000 bytes":
        assert text in table


# verify


def test_the_self_check_covers_every_operator_and_type():
    # A descriptor has several cases, with other values.
    descs_of = {name: [] for name in OPERATORS}
    for case in {id(case.desc): case for case in cases.samples()}.values():
        descs_of[case.operator].append(case.desc)
    for name, operator in OPERATORS.items():
        descs = descs_of[name]
        assert {type(desc) for desc in descs} == {operator.desc}
        assert {desc.inputs[0].data_type for desc in descs} == set(operator.data_types)
        assert any(not desc.inputs[0].is_packed for desc in descs)
        assert any(not desc.outputs[0].is_packed for desc in descs)
        if "window_size" in operator.fields:
            assert {desc.inputs[0].rank for desc in descs} == {4, 5}
            assert any(desc.start_padding != desc.end_padding for desc in descs)
        elif "axes" in operator.fields:
            assert {desc.inputs[0].rank for desc in descs} >= {1, 2, 3, 4, 8}
        for field in operator.desc.output_fields:
            outputs = [getattr(desc, field) for desc in descs]
            assert {output.data_type for output in outputs if output} == set(operator.types[field])
            assert (None in outputs) == (field == "output_indices_tensor")
        if "axis_direction" in operator.fields:
            assert {desc.axis_direction for desc in descs} == set(dmlgpu.AxisDirection)
        if "dilations" in operator.fields:
            assert any(set(desc.dilations) != {1} for desc in descs)


def elements_of_the_self_check(data_type, count=10_000):
    """The elements of every kind that the self-check passes to ARGMAX."""
    tensor = dmlgpu.TensorDesc(data_type, (count,))
    return [fills.arranged(tensor, fill) for fill in cases.fills_of(dmlgpu.ArgmaxOperatorDesc.of(tensor))]


def test_the_self_check_covers_the_special_values():
    special, any_bits, few_nan = elements_of_the_self_check(dmlgpu.DataType.FLOAT16)
    assert {float(x) for x in special} >= {np.inf, -np.inf, 0.0, 2.0**-24, -(2.0**-24), 65504.0}
    assert np.any(np.signbit(special) & (special == 0))
    assert len(np.unique(any_bits.view(np.uint16))) > 5000
    assert 0 < np.count_nonzero(np.isnan(few_nan)) < 500
    for data_type in ALL_TYPES:
        limits = (np.finfo if data_type.is_float else np.iinfo)(data_type.numpy)
        assert {limits.min, limits.max} <= set(elements_of_the_self_check(data_type, 1000)[0])


def test_the_self_check_gives_operators_with_a_bound_other_values(monkeypatch):
    monkeypatch.setattr(cases, "is_exact", lambda *_: False)
    integers, normal, extremes = elements_of_the_self_check(dmlgpu.DataType.FLOAT16)
    assert {x.dtype for x in (integers, normal, extremes)} == {np.dtype(np.float16)}
    assert set(integers) == set(range(-4, 5))
    assert np.isfinite(normal).all()
    assert len(np.unique(normal)) > 1000
    assert 0 < np.count_nonzero(np.isinf(extremes)) < 100


def test_verify_counts_the_cases_of_operators(driver, few_checks, capsys):
    assert main(["verify", "--all", "--device", driver.name.upper()]) == 0
    output = capsys.readouterr().out
    assert output.startswith(f"device {driver.index}: {driver.name} ({driver.type}), driver {driver.driver}\n")
    for operator in "ARGMAX", "ARGMIN", "REDUCE ARGMAX", "EXTREMUM":
        assert [*operator.split(), "1", "1", "0"] in rows(output)
    assert "\n4 cases in " in output


def test_verify_finds_a_mismatch(driver, few_checks, monkeypatch, capsys):
    """The environment chooses the device."""
    monkeypatch.setenv("DMLGPU_DEVICE", str(driver.index))

    def wrong_minima(desc, *inputs, flags):
        outputs = reference(desc, *inputs, flags=flags)
        return tuple(y + 1 for y in outputs) if isinstance(desc, dmlgpu.ArgminOperatorDesc) else outputs

    monkeypatch.setattr("dmlgpu.comparison.reference", wrong_minima)
    assert main(["verify"]) == 1
    output, error = capsys.readouterr()
    assert output.startswith(f"device {driver.index}: ")
    assert ["ARGMIN", "1", "0", "1"] in rows(output)
    assert ["ARGMAX", "1", "1", "0"] in rows(output)
    assert error.startswith("dmlgpu: ArgminOperatorDesc.output_tensor: ")


@pytest.fixture
def few_sections(monkeypatch):
    """Reduces the check to a section of two types, to save time."""
    types = dmlgpu.DataType.INT32, dmlgpu.DataType.FLOAT32
    monkeypatch.setattr(exhaustive, "TYPES", types)
    monkeypatch.setattr(
        exhaustive, "sections", lambda data_type: (exhaustive.Section(data_type, -2048 % (1 << 32), 4096, False),)
    )


def test_exhaustive_verification_finds_a_mismatch(driver, few_sections, monkeypatch, capsys):
    command = ["verify", "--exhaustive", "--device", str(driver.index)]
    assert main(command) == 0
    output = capsys.readouterr().out
    assert output.startswith(f"device {driver.index}: ")
    assert [row[:2] for row in rows(output)[-4:-2]] == [["INT32", f"{2**32:,}"], ["FLOAT32", f"{2**32:,}"]]
    monkeypatch.setattr(exhaustive, "reference", lambda desc, x: (reference(desc, x)[0] ^ 1,))
    assert main(command) == 1
    assert capsys.readouterr().err.startswith(f"dmlgpu: ArgmaxOperatorDesc on device {driver.index}: {driver.name}, ")


# explain


@pytest.fixture
def any_cpu(driver, monkeypatch):
    """Opens the device of each driver as a CPU with 16 workgroups."""
    monkeypatch.setattr(cli, "Device", lambda selector: dmlgpu.Device(driver.index, limits=LIMITS["CPU"]))


# Arguments, and parts of the output, whose white space is reduced to single blanks.
EXPLAINED = {
    "argmax float32 4096,1024 axes=0": (
        "axes=(0,), axis_direction=AxisDirection.INCREASING)",
        "columns one invocation per 1 to 4 vectors of neighbouring outputs",
        "not rows the elements of an output are not contiguous",
        "0 to 1,023 columns_selection_32 input_tensor partials 0 to 1,023 combine_selection_32 partials",
        "Tensors of 16 MiB and 4 KiB, partials of 128 KiB. END",
    ),
    "MAX_POOLING2 FLOAT16 1,2,9,8 window_size=3,3 strides=2,2 indices_data_type=uint64 dilations=1,2 start_padding=1,1 "
    "input_strides=320,160,16,2": (
        "strides=(320, 160, 16, 2)",
        "TensorDesc(DataType.UINT64, (1, 2, 4, 3))",
        "dilations=(1, 2)",
        "pool_direct_selection_16 input_tensor output_indices_tensor, output_tensor",
    ),
    "argmin uint8 40,50 axes=1 axis_direction=decreasing --kernel reduce": (
        "AxisDirection.DECREASING",
        "reduce_selection_8",
        "not rows reduce was requested",
    ),
    "argmax float32 4": ("─ 0 rows_selection_32 input_tensor output_tensor",),
    "'reduce argmin' int64 40 axes=None": ("ReduceFunction.ARGMIN",),
    "reduce float32 8,100 function=SUM axes=1": ("rows_sum_32",),
    "reduce float32 2,100 function=SUM axes=1 --exact": ("─ 0 to 1 rows_exact_32",),
    "lp_pooling float32 1,1,4,4 window_size=2,2 p=3": (" p=3)",),
    "max_pooling2 float32 1,4,256,256 window_size=17,17": (
        "0 to 230,399 pool_separable_rows_selection_32 input_tensor temporary 0 ",
        "0 to 230,399 pool_separable_columns_selection_32 temporary 0 output_tensor ",
        "Tensors of 1 MiB and 900 KiB, temporaries of 960 KiB. END",
    ),
}


def explained(capsys, line):
    assert main(["explain", *shlex.split(line)]) == 0
    return " ".join([*capsys.readouterr().out.split(), "END"])


@pytest.mark.parametrize(("line", "texts"), EXPLAINED.items(), ids=EXPLAINED)
def test_explain_says_what_runs_and_why(any_cpu, driver, capsys, line, texts):
    output = explained(capsys, line)
    for text in (driver.name, *texts):
        assert text in output


def test_explain_shortens_long_plans(driver, capsys, monkeypatch):
    monkeypatch.setattr(cli, "Device", lambda selector: dmlgpu.Device(driver.index, limits=LOWERED))
    text = explained(capsys, "argmax float32 30,300 axes=1")
    assert "input_tensor segment 3" in text
    assert re.search(r"and [1-9]\d+ more dispatches Tensors of 35.16 KiB and 120 bytes, partials of 48 bytes", text)


@pytest.mark.parametrize(
    "line",
    [
        "devices",
        "explain max_pooling2 float32 1,4,256,256 window_size=17,17 indices_data_type=uint64",
        "profile --op argmax float32 64,8 axes=1 --calls 1",
    ],
)
def test_terminals_of_80_columns_get_all_words(any_cpu, capsys, monkeypatch, line):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(line.split()) == 0
    assert "…" not in capsys.readouterr().out


def test_every_dispatch_is_explained():
    variants = set()
    gathers = dataclasses.replace(LIMITS["CPU"], gathers=True)
    mapped = [(LIMITS[mapping], chosen(mapping)) for mapping in ("CPU", "GPU")]
    mapped += (LIMITS["split"], chosen("CPU")[::7]), (gathers, of_operator("MAX_POOLING2", chosen("CPU")))
    for limits, planned in mapped:
        for case in planned:
            plan = case.plan(limits)
            lines = [*explain.rows(plan)]
            variants |= {dispatch.shader.variant for dispatch in plan.dispatches}
            assert [module for _, module, *_ in lines] == [dispatch.shader.module for dispatch in plan.dispatches]
            assert all(reads or module.startswith(("scatter_clear", "scan_states")) for _, module, reads, _ in lines)
            assert all(writes for *_, writes in lines)
    assert variants == set(DESCRIPTIONS)


# profile


def profiled(capsys, line):
    """Profiles, and splits the printed lines into words."""
    assert main(["profile", *line.split()]) == 0
    return rows(capsys.readouterr().out)


def counts_of(lines):
    """The count in each row of a table, by the first word of the row."""
    return {line[0]: int(line[1]) for line in lines if len(line) == 5 and line[1].isdecimal()}


def test_profile_says_where_the_time_goes(driver, tmp_path, capsys):
    trace = tmp_path / "trace.json"
    line = f"--op argmax float32 30,50 axes=1 --calls 3 --trace {trace} --device {driver.index}"
    lines = profiled(capsys, line)
    assert lines[0][:2] == ["device", f"{driver.index}:"]
    title = ["3", "calls", "after", "it:"]
    first, later = counts_of(lines[: lines.index(title)]), counts_of(lines[lines.index(title) :])
    assert [first[kind] for kind in ("call", "plan", "compile", "dispatch")] == [1] * 4
    assert [later[kind] for kind in ("call", "upload", "dispatch", "download")] == [3] * 4
    assert not {"plan", "compile", "batch"} & set(later)
    (dispatch,) = (line for line in lines if line[:1] == ["dispatch"] and len(line) > 5)
    desc = dmlgpu.ArgmaxOperatorDesc.of(np.zeros((30, 50), np.float32), axes=(1,))
    (planned,) = dmlgpu.explain(desc, device=driver.index).dispatches
    assert dispatch[1:3] == [planned.shader.module, "3"]
    assert any(line[:1] == ["memory:"] for line in lines)
    assert lines[-1] == ["The", "trace", "is", "in", f"{trace}."]
    spans = [entry for entry in json.loads(trace.read_text())["traceEvents"] if entry["ph"] == "X"]
    assert sum(entry["cat"] == "call" for entry in spans) == 4


def test_profile_runs_the_dispatches_of_a_model(driver, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    document = json.loads(re.sub(r"//.*", "", (ROOT / "docs/models/max_unpooling.json").read_text()))
    name = next(iter(document["resources"]))
    document["commands"] += [
        {"type": "print", "resource": name},
        {"type": "writeFile", "resource": name, "targetPath": "a.npy"},
    ]
    model = tmp_path / "model.json"
    model.write_text(json.dumps(document))
    lines = profiled(capsys, f"{model} --calls 2 --device {driver.index}")
    later = counts_of(lines[lines.index(["2", "calls", "after", "it:"]) :])
    assert (later["call"], later["batch"]) == (2, 2)
    assert "Resource" not in str(lines)
    assert list(tmp_path.iterdir()) == [model]
    document["commands"] = document["commands"][-2:]
    model.write_text(json.dumps(document))
    assert main(["profile", str(model)]) == 2
    assert capsys.readouterr().err == "dmlgpu: commands: there is no dispatch\n"


REQUIRED = {
    "AVERAGE_POOLING_GRAD": ["output_sizes=1,2,10,9"],
    "MAX_UNPOOLING": ["output_sizes=1,2,18,16"],
    "ROI_POOLING": ["pooled_size=2,3", "spatial_scale=0.5", "roi_count=4"],
    "CUMULATIVE_PRODUCT": ["axis=2"],
    "CUMULATIVE_SUMMATION": ["axis=1", "axis_direction=decreasing", "has_exclusive_sum=true"],
    "TOP_K": ["k=3", "axis=2"],
    "TOP_K1": ["k=3", "axis_direction=increasing"],
}


@pytest.mark.parametrize("operator", registry.OPERATORS, ids=lambda operator: operator.name)
def test_profile_runs_every_operator(operator):
    sizes = "9,8" if "axes" in operator.fields else "1,2,9,8"
    window = ["window_size=2,2"] if "window_size" in operator.fields else []
    words = [operator.name, operator.data_types[0].name, sizes, *window, *REQUIRED.get(operator.name, [])]
    call = cli._calls_of_operator(words)
    with dmlgpu.Device() as device, device.profile() as profile:
        call(device)
        call(device)
    assert sum(event.kind == "call" for event in profile.events) == 2


@pytest.mark.parametrize("command", [["explain"], ["profile", "--op"]], ids=["explain", "profile"])
def test_what_does_not_fit_the_device_is_refused_before_it_is_made(command, monkeypatch, capsys):
    monkeypatch.setattr(fills, "arranged", lambda *_: pytest.fail("arrays are made"))
    # On the newest drivers the largest tensor may fit in a heap.
    small = tuple(dataclasses.replace(device, heaps=(1 << 30,) * len(device.heaps)) for device in dmlgpu.devices())
    monkeypatch.setattr(drivers, "devices", lambda: small)
    assert main([*command, "argmax", "int8", "65535,65535", "axes=1"]) == 2
    assert re.match(r"dmlgpu: \d+ bytes do not fit on device ", capsys.readouterr().err)


@pytest.mark.parametrize("text", ["Unable to allocate 9 GiB", ""])
def test_what_does_not_fit_the_memory_is_no_traceback(monkeypatch, capsys, text):
    monkeypatch.setattr(fills, "arranged", raising(MemoryError(text)))
    assert main(["profile", "--op", "argmax", "float32", "3"]) == 2
    assert capsys.readouterr().err == f"dmlgpu: {text or 'out of memory on this machine'}\n"


# stream


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("argmax x.npy axis=0,2 axis_direction=decreasing", lambda x: dmlgpu.argmax(x, (0, 2), axis_direction=1)),
        ("reduce x.npy function=sum axis=1 keepdims=True", lambda x: x.sum(1, keepdims=True)),
        ("argmin x.npy axis=1 dtype=uint32", lambda x: x.argmin(1).astype(np.uint32)),
        ("sum x.npy exact=True", lambda x: dmlgpu.sum(x, exact=True)),
        ("prod x.npy axis=2 keepdims=True", lambda x: dmlgpu.prod(x, 2, keepdims=True)),
        ("mean x.npy dtype=float16 axis=0,1", lambda x: dmlgpu.mean(x, (0, 1), dtype="float16")),
        ("max x.npy axis=-1", lambda x: x.max(-1)),
        ("min x.npy", lambda x: x.min()),
        ("lp_pooling x.npy window_size=2 p=1", lambda x: dmlgpu.lp_pooling(x, 2, p=1)),
        (
            "average_pooling x.npy window_size=3,3 strides=2 padding=1:0,2",
            lambda x: dmlgpu.average_pooling(x, (3, 3), strides=2, padding=((1, 0), (2, 2))),
        ),
    ],
)
def test_stream_writes_and_prints_results(file, words, expected, any_cpu, capsys):
    result = expected(np.load(file))
    assert main(["stream", *words.split(), "--output", "y.npy"]) == 0
    np.testing.assert_array_equal(np.load("y.npy"), result)
    line, time = capsys.readouterr().out.splitlines()
    assert line == f"y.npy: {result.dtype} {result.shape}"
    assert re.fullmatch(r"read 46\.88 KiB in \d+\.\d s", time)
    assert main(["stream", *words.split(), "--chunk-mib", "1"]) == 0
    assert capsys.readouterr().out.startswith(f"{result}\n")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("top_k x.npy k=3 axis=1 mode=smallest", lambda x: dmlgpu.top_k(x, 3, axis=1, mode="smallest")),
        (
            "max_pooling x.npy window_size=2 output_indices=True",
            lambda x: dmlgpu.max_pooling(x, 2, output_indices=True),
        ),
    ],
    ids=["top_k", "max_pooling"],
)
def test_stream_writes_two_results(file, any_cpu, capsys, words, expected):
    files = ["values.npy", "indices.npy"]
    assert main(["stream", *words.split(), "--output", *files]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert ([line.partition(":")[0] for line in lines[:2]], len(lines)) == (files, 3)
    for name, y in zip(files, expected(np.load(file)), strict=True):
        np.testing.assert_array_equal(np.load(name), y, strict=True)


def test_stream_reads_in_chunks_and_says_how_many_are_done(file, driver, monkeypatch, capsys):
    computed = {}

    def compute(self, call, out, device):
        computed.update(vars(self), desc=call.desc, out=out, device=device)
        self._progress(1, 2)
        return 3

    monkeypatch.setattr(Chunked, "compute", compute)
    assert main(f"stream argmax x.npy axis=1 --chunk-mib 7 --device {driver.index}".split()) == 0
    assert isinstance(computed["_x"], np.memmap)
    assert (computed["desc"].axes, computed["out"], computed["_chunk_bytes"]) == ((1,), None, 7 << 20)
    assert computed["device"].info == driver
    assert capsys.readouterr().out.startswith("3\n")


@pytest.fixture
def refusal(file, any_cpu, capsys):
    """Streams the file, which must fail; returns the error."""

    def run():
        assert main(["stream", "argmax", str(file)]) == 2
        return capsys.readouterr().err

    return run


def test_files_that_are_no_arrays_are_refused(file, refusal):
    """test_parsers.py has damaged files."""
    file.write_text("text")
    assert refusal().startswith(f"dmlgpu: {file}: EOF")
    np.save(file, np.float32(3))
    assert refusal() == f"dmlgpu: {file}: an array without dimensions is not allowed; allowed are 1 or more\n"


@pytest.mark.parametrize(
    ("part", "damaged"),
    [("(4, 4)", "{[]: 1}"), ("(4, 4)", f"{'-' * 5000}4"), ("'<f4'", "()"), ("'<f4'", "'(1,f4'")],
    ids=["TypeError", "RecursionError", "IndexError", "SyntaxError"],
)
def test_files_with_a_damaged_header_are_refused(file, refusal, part, damaged):
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 4), }\n".replace(part, damaged).encode()
    file.write_bytes(b"\x93NUMPY\3\0" + len(header).to_bytes(4, "little") + header + bytes(64))
    assert refusal().startswith(f"dmlgpu: {file}: ")


@pytest.mark.parametrize("x", [np.zeros(3, [("a", "f4")]), np.array(["a"]), np.zeros(3, "m8[s]"), np.zeros(3, "V4")])
def test_arrays_of_types_that_no_operator_has_are_refused(file, refusal, x):
    np.save(file, x)
    assert re.match(r"dmlgpu: (ArgmaxOperatorDesc|TensorDesc)\.", refusal())


def test_stream_overwrites_files_with_force(file, any_cpu, tmp_path, capsys, monkeypatch):
    output, other = tmp_path / "y.npy", tmp_path / "other.npy"
    other.write_text("another file")
    output.symlink_to(other)
    arguments = ["stream", "argmax", str(file), "axis=0", "--output", str(output)]
    assert main(arguments) == 2
    assert capsys.readouterr().err == f"dmlgpu: --output: '{output}' exists; overwrite it with --force\n"
    with monkeypatch.context() as broken:
        broken.setattr(Chunked, "_elements", raising(OSError("the disk is gone")))
        assert main([*arguments, "--force"]) == 2
    assert (output.read_text(), sorted(tmp_path.iterdir())) == ("another file", sorted([file, other, output]))
    assert main([*arguments, "--force"]) == 0
    np.testing.assert_array_equal(np.load(output), np.load(file).argmax(0))
    assert (other.read_text(), sorted(tmp_path.iterdir())) == ("another file", sorted([file, other, output]))
