"""Model files of DxDispatch: their fields, what they print, and the messages for mistakes."""

import copy
import functools
import json
import operator
import os
import re

import numpy as np
import pytest

from dmlgpu import CompiledOperator
from dmlgpu.registry import OPERATORS
from dmlgpu.tools import cli, dxdispatch
from dmlgpu.tools.dxdispatch import Model, ModelError, Options
from tests.support.errors import refuses
from tests.support.processes import ROOT

MODELS = ROOT / "docs" / "models"
MODEL = str(MODELS / "reduce.json")
NAMES = sorted(path.name for path in MODELS.glob("*.json"))
PAGE = (MODELS / "README.md").read_text(encoding="utf-8")


def resource(data_type, values, **fields):
    return {"initialValuesDataType": data_type, "initialValues": values, **fields}


SUM = {
    "resources": {
        "input": resource("FLOAT32", {"valueCount": 6, "valueStart": 1, "valueDelta": 1}),
        "output": resource("FLOAT32", {"valueCount": 2, "value": 0}),
    },
    "dispatchables": {
        "sum": {
            "type": "DML_OPERATOR_REDUCE",
            "desc": {
                "Function": "DML_REDUCE_FUNCTION_SUM",
                "InputTensor": {"DataType": "FLOAT32", "Sizes": [2, 3]},
                "OutputTensor": {"DataType": "FLOAT32", "Sizes": [2, 1]},
                "AxisCount": 1,
                "Axes": [1],
            },
        }
    },
    "commands": [
        {"type": "dispatch", "dispatchable": "sum", "bindings": {"InputTensor": "input", "OutputTensor": "output"}},
        {"type": "print", "resource": "input"},
        {"type": "print", "resource": "output"},
    ],
}


def changed(*changes):
    """SUM with changes: each path precedes its new value; None removes a field."""
    document = copy.deepcopy(SUM)
    for path, value in zip(changes[::2], changes[1::2], strict=True):
        *parents, last = (int(name) if name.isdecimal() else name for name in re.findall(r"\w+", path))
        parent = functools.reduce(operator.getitem, parents, document)
        if value is None:
            del parent[last]
        else:
            parent[last] = value
    return document


def dispatching(*commands, resources=(), **bindings):
    """SUM with further resources, other bindings, and other commands after the dispatch."""
    document = copy.deepcopy(SUM)
    document["resources"].update(resources)
    document["commands"][0]["bindings"].update(bindings)
    document["commands"][1:] = commands
    return document


def writing(*paths):
    """SUM, and commands that write its output."""
    return dispatching(*({"type": "writeFile", "resource": "output", "targetPath": path} for path in paths))


def refused(message):
    """A ModelError; in its message ... stands for anything."""
    return pytest.raises(ModelError, match=f"(?s)^{'.*'.join(map(re.escape, message.split('...')))}$")


@pytest.fixture
def run(device, tmp_path):
    """A function that runs a document, or its text, and returns the lines that are printed."""

    def run(document, **options):
        path = tmp_path / "model.json"
        path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
        lines = []
        Model(path).run(device, Options(**options), lines.append)
        return lines

    return run


@pytest.fixture
def resources_of(tmp_path):
    """A function that returns the resources of a model before any dispatch."""

    def resources_of(input_path=None, **resources):
        path = tmp_path / "model.json"
        path.write_text(json.dumps({"resources": resources, "dispatchables": {}, "commands": []}), encoding="utf-8")
        return Model(path, input_path).resources

    return resources_of


@pytest.fixture
def printed(resources_of):
    """A function that returns the text that is printed for a resource."""
    return lambda resource, verbose=False: dxdispatch._printed("x", resources_of(x=resource)["x"], verbose)


# The models of the page's headings, and what they print according to the page.
SHOWN = re.findall(r"^## \[(.+)\]\(\1\)\n\n.*\n\n```text\n((?:(?!```).*\n)*)```$", PAGE, re.MULTILINE)


def test_there_is_a_model_of_each_operator():
    assert {name.removesuffix(".json") for name in NAMES} == {o.name.partition(" ")[0].lower() for o in OPERATORS}
    assert [name for name, _ in SHOWN] == NAMES


@pytest.mark.parametrize(("name", "prints"), SHOWN, ids=NAMES)
def test_model_prints_what_the_page_shows(driver, monkeypatch, capsys, name, prints):
    monkeypatch.setenv("DMLGPU_VERIFY", "1")
    assert cli.main(["run", str(MODELS / name), "--device", str(driver.index)]) == 0
    running, dispatch, *printed = capsys.readouterr().out.splitlines()
    assert running == f"Running on '{driver.name}'"
    assert re.fullmatch(r"Dispatch '\w+': 1 iterations, \d+\.\d{4} ms median \(CPU\)", dispatch)
    assert printed == prints.splitlines()


def test_comments_and_trailing_commas_are_allowed(run):
    document = changed("resources.input.note", 'a // b, ] /* " */ c', "commands[0].note", "}")
    text = (
        json.dumps(document, indent=1).replace("{\n", "{ // a comment, }\n").replace("\n ]", ", /* another,\n one */ ]")
    )
    printed = ["Resource 'input': 1, 2, 3, 4, 5, 6", "Resource 'output': 6, 15"]
    assert run("\ufeff\n" + text + "\n text after it")[1:] == run(SUM)[1:] == printed
    with refused("...model.json: ...line 3 ..."):
        run('{\n/* \n */ "resources" 1}')


@pytest.mark.parametrize(
    ("data_type", "values", "expected"),
    [
        ("FLOAT32", [1, 2.5, "nan", "INF", "-inf", -0.0], "1, 2.5, nan, inf, -inf, -0"),
        ("DML_TENSOR_DATA_TYPE_FLOAT16", [1 / 3, 65504], "0.333252, 65504"),
        ("FLOAT64", [1 / 3, 1e300, 1234567.0], "0.333333, 1e+300, 1.23457e+06"),
        ("INT8", [-128, 127], "-128, 127"),
        ("UINT64", [2**64 - 1], "18446744073709551615"),
        ("INT64", [-(2**63)], "-9223372036854775808"),
        ("UINT16", {"valueCount": 3, "value": 65535}, "65535, 65535, 65535"),
        ("INT32", {"valueCount": 4, "valueStart": 5, "valueDelta": -3}, "5, 2, -1, -4"),
        ("UINT8", {"valueCount": 3, "valueStart": 254, "valueDelta": 1}, "254, 255, 0"),
        # By repeated addition in the type: 2049 is no float16.
        ("FLOAT16", {"valueCount": 4, "valueStart": 2046, "valueDelta": 1}, "2046, 2047, 2048, 2048"),
    ],
)
def test_initial_values_have_the_declared_type(printed, data_type, values, expected):
    assert printed(resource(data_type, values)) == f"Resource 'x': {expected}"


def test_values_of_several_types_print_as_bytes(printed):
    values = [{"type": "UINT32", "value": 258}, {"name": "scale", "type": "FLOAT32", "value": 1.0}]
    assert printed({"initialValues": values}) == "Resource 'x': 2, 1, 0, 0, 0, 0, 128, 63"


def test_verbose_values_are_one_below_the_other(printed):
    text = printed(resource("FLOAT16", [0, 1.5, -1] + [0] * 8), verbose=True)
    lines = ["Resource 'x':", "[ 0] 0 (0x   0)", "[ 1] 1.5 (0x3E00)", "[ 2] -1 (0xBC00)", "[ 3] 0 (0x   0)"]
    assert text.split("\n")[:5] == lines
    assert text.endswith("\n[10] 0 (0x   0)")
    assert printed(resource("UINT8", [*range(10, 20)]), verbose=True).split("\n")[1] == "[0] 10 (0x A)"


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<i8", ">u2", "?", "<f2", "u1"])
def test_npy_files_have_initial_values(printed, tmp_path, dtype):
    array = np.array([[0, 1, 1], [1, 0, 0]]).astype(dtype)
    for order in "CF":
        np.save(tmp_path / "x.npy", np.asarray(array, order=order))
        assert printed({"initialValues": {"sourcePath": "x.npy"}}) == "Resource 'x': 0, 1, 1, 1, 0, 0"


def test_raw_files_have_initial_values(printed, tmp_path):
    np.array([1, 2, 3], "<i2").tofile(tmp_path / "x.bin")
    assert printed(resource("INT16", {"sourcePath": "x.bin"})) == "Resource 'x': 1, 2, 3"
    assert printed({"initialValues": {"sourcePath": "x.bin"}}) == "Resource 'x': 1, 0, 2, 0, 3, 0"


def test_files_are_looked_for_in_the_input_folder_first(resources_of, tmp_path, monkeypatch):
    folder, here = tmp_path / "folder", tmp_path / "here"
    for parent, value in ((folder, 1), (tmp_path, 2), (here, 3)):
        parent.mkdir(exist_ok=True)
        np.save(parent / "x.npy", np.array([value]))
    np.save(here / "y.npy", np.array([4]))
    resources = {name: {"initialValues": {"sourcePath": f"{name}.npy"}} for name in ("x", "y")}
    monkeypatch.chdir(here)
    assert [read.values.tolist() for read in resources_of(**resources).values()] == [[2], [4]]
    assert [read.values.tolist() for read in resources_of(folder, **resources).values()] == [[1], [4]]


@pytest.mark.parametrize(
    ("fields", "size"), [({}, 8), ({"sizeInBytes": 21}, 21), ({"initialValuesOffsetInBytes": 4}, 12)]
)
def test_resources_are_as_large_as_declared_or_needed(resources_of, fields, size):
    memory = resources_of(x=resource("UINT8", [1, 2, 3, 4, 5], **fields))["x"].memory
    assert (memory.size, memory[:6].tolist()) == (size, [1, 2, 3, 4, 5, 0])


def test_files_are_written(run, tmp_path):
    document = dispatching(
        {"type": "writeFile", "resource": "input", "targetPath": "a/b/input.npy", "dimensions": [3, 2]},
        {"type": "WRITEFILE", "resource": "output", "targetPath": "output.npy"},
        {"type": "writeFile", "resource": "bytes", "targetPath": "bytes.bin"},
        resources={"bytes": resource("UINT8", [1, 2, 3])},
    )
    lines = run(document, output_path=tmp_path / "out")
    assert lines[1] == f"Resource 'input' written to '{tmp_path / 'out' / 'a' / 'b' / 'input.npy'}'"
    assert np.load(tmp_path / "out/a/b/input.npy").tolist() == [[1, 2], [3, 4], [5, 6]]
    assert np.load(tmp_path / "out/output.npy").tolist() == [6, 15]
    assert (tmp_path / "out/bytes.bin").read_bytes() == b"\1\2\3"  # not padded


@pytest.mark.parametrize("force", [False, True], ids=["", "force"])
@pytest.mark.parametrize(
    "name", ["../x.npy", "a/../../x.npy", "{}/x.npy", "link/x.npy", "linked.npy", "pipe", ".", "", "x\0", "\ud800"]
)
def test_nothing_is_written_outside_of_the_folder(run, tmp_path, name, force):
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path)
    (folder / "linked.npy").symlink_to(tmp_path / "x.npy")
    os.mkfifo(folder / "pipe")
    before = sorted(tmp_path.rglob("*"))
    message = r"^commands\[2\]\.targetPath: .* is (not allowed; allowed are files in .*out|not a path: .*)$"
    refuses(message, run, writing("y.npy", name.format(tmp_path)), error=ModelError, output_path=folder, force=force)
    assert sorted({*tmp_path.rglob("*")} - {tmp_path / "model.json"}) == before


def test_a_new_folder_is_made(run, tmp_path):
    for name in (".", "", "a/.."):
        with refused("...is not allowed; allowed are files in ...out"):
            run(writing(name), output_path=tmp_path / "out")
        assert not (tmp_path / "out").is_file()
    run(writing(f"{tmp_path}/out/../out/x.npy"), output_path=tmp_path / "out")
    assert np.load(tmp_path / "out" / "x.npy").tolist() == [6, 15]


def test_nothing_is_written_over_another_file(run, tmp_path):
    (tmp_path / "x.bin").write_text("another file")
    for paths, number in ((("y.npy", "x.bin"), 2), (("model.json",), 1), (("y.npy", "a.npy", "./y.npy"), 3)):
        with refused(f"commands[{number}].targetPath: ... exists or is written twice; overwrite it with --force"):
            run(writing(*paths), output_path=tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["model.json", "x.bin"]
    assert (tmp_path / "x.bin").read_text() == "another file"
    run(writing("x.bin", "model.json", "x.bin"), output_path=tmp_path, force=True)
    for name in "x.bin", "model.json":
        assert np.fromfile(tmp_path / name, "<f4").tolist() == [6, 15]


def test_half_a_file_is_not_written(run, tmp_path, monkeypatch):
    def save(file, values):
        file.write(b"half")
        raise OSError("the disk is full")

    monkeypatch.setattr(np, "save", save)
    (tmp_path / "x.npy").write_text("another file")
    refuses("the disk is full", run, writing("x.npy"), error=OSError, output_path=tmp_path, force=True)
    assert (tmp_path / "x.npy").read_text() == "another file"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.json", "x.npy"]


DESC, TENSOR = "dispatchables.sum.desc", "dispatchables.sum.desc.InputTensor"
VALUES, TYPE = "resources.input.initialValues", "resources.input.initialValuesDataType"
BINDINGS = "commands[0].bindings"
BOUND = f"{BINDINGS}.InputTensor"
WRITE = {"type": "writeFile", "resource": "input", "targetPath": "x.npy"}
PRINT_BOTH = {"type": "print", "resource": "both"}
REDUCE = SUM["dispatchables"]["sum"]["desc"]
POOL = json.loads((MODELS / "max_pooling1.json").read_text(encoding="utf-8").partition("\n")[2])
del POOL["dispatchables"]["pool"]["desc"]["OutputIndicesTensor"], POOL["commands"][0]["bindings"]["OutputIndicesTensor"]

# Documents, and a line that they print.
DOCUMENTS = {
    # Offsets are in elements of the resource, or of elementSizeInBytes.
    "tensors of one resource": (
        dispatching(
            PRINT_BOTH,
            resources={"both": resource("FLOAT32", [9, 1, 2, 3, 4, 5, 6, 0, 0])},
            InputTensor=[{"name": "both", "elementOffset": 1}],
            OutputTensor={"name": "both", "elementOffset": 14, "elementSizeInBytes": 2},
        ),
        "Resource 'both': 9, 1, 2, 3, 4, 5, 6, 6, 15",
    ),
    "an output right before an input": (
        dispatching(
            PRINT_BOTH,
            resources={"both": resource("FLOAT32", [0, 0, 1, 2, 3, 4, 5, 6])},
            InputTensor={"name": "both", "elementOffset": 2},
            OutputTensor="both",
        ),
        "Resource 'both': 6, 15, 1, 2, 3, 4, 5, 6",
    ),
    "no indices": (POOL, "Resource 'output': 6, 8, 14, 16"),
    "null": (
        changed(TENSOR, REDUCE["InputTensor"] | {"Strides": None, "TotalTensorSizeInBytes": None}),
        "Resource 'output': 6, 15",
    ),
    "gaps of an output stay": (
        changed("resources.output.initialValues", [7, 7, 7], f"{DESC}.OutputTensor.Strides", [2, 1]),
        "Resource 'output': 6, 7, 15",
    ),
    # A tensor that DirectML owns is bound where the operator is made.
    "owned": (
        changed(BINDINGS, {"OutputTensor": "output"}, "dispatchables.sum.bindings", {"InputTensor": "input"}),
        "Resource 'output': 6, 15",
    ),
    "other spellings": (
        changed(
            *(DESC, None, "commands[0].type", "Dispatch"),
            "dispatchables.sum",
            {"type": "REDUCE", "dmlCompileType": "DmlCompileGraph"}
            | REDUCE
            | {
                "Function": "MAX",
                "InputTensor": {
                    "Type": "DML_TENSOR_TYPE_BUFFER",
                    "Desc": REDUCE["InputTensor"] | {"Strides": [], "DimensionCount": 2},
                },
                "OutputTensor": REDUCE["OutputTensor"]
                | {"TotalTensorSizeInBytes": 0, "Flags": "NONE", "GuaranteedBaseOffsetAlignment": 0},
            },
        ),
        "Resource 'output': 3, 6",
    ),
}


@pytest.mark.parametrize(("document", "line"), DOCUMENTS.values(), ids=DOCUMENTS)
def test_a_document_prints_its_results(run, document, line):
    assert line in run(document)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
def test_documents_are_utf_8_16_or_32(tmp_path, encoding):
    file = tmp_path / "model.json"
    file.write_text(json.dumps(SUM), encoding=encoding)
    assert list(Model(file).resources) == ["input", "output"]
    file.write_bytes(b"{}\xff\xff")
    with refused(f"{file}: byte 2 is not text; allowed are UTF-8, UTF-16 and UTF-32"):
        Model(file)


def test_commands_see_what_those_before_them_wrote(run):
    document = dispatching(
        {"type": "dispatch", "dispatchable": "total", "bindings": {"InputTensor": "output", "OutputTensor": "total"}},
        {"type": "print", "resource": "total"},
        resources={"total": resource("FLOAT32", [0])},
    )
    total = document["dispatchables"]["total"] = copy.deepcopy(document["dispatchables"]["sum"])
    total["desc"]["InputTensor"]["Sizes"], total["desc"]["OutputTensor"]["Sizes"] = [1, 2], [1, 1]
    assert run(document)[2:] == ["Resource 'total': 21"]


def test_a_timing_is_the_mean_of_repeated_dispatches(run, monkeypatch):
    calls, call = [], CompiledOperator.__call__
    monkeypatch.setattr(CompiledOperator, "__call__", lambda *args, **to: calls.append(1) or call(*args, **to))
    ticks = iter([0.0, 0.25, 1, 1.020, 2, 2.006, 3, 3.002, 4, 4.004])
    monkeypatch.setattr(dxdispatch, "perf_counter", lambda: next(ticks))
    lines = run(SUM, dispatch_iterations=4, dispatch_repeat=2, warmup_samples=1, timing_verbosity=2)
    assert len(calls) == 8
    assert lines[:-2] == [
        "Initialize 'sum': 250.0000 ms",
        "Dispatch 'sum': 4 iterations",
        "CPU Timings (Cold) : 1 samples, 10.0000 ms average, 10.0000 ms min, 10.0000 ms median, 10.0000 ms max",
        "CPU Timings (Hot)  : 3 samples, 2.0000 ms average, 1.0000 ms min, 2.0000 ms median, 3.0000 ms max",
        "The timings of each iteration: ",
        *(f"iteration {i}: {sample:.4f} ms (CPU)" for i, sample in enumerate([10, 3, 1, 2])),
    ]


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("resources", None, "the document: field resources is required"),
        ("commands", {}, "commands: {} is not an array"),
        ("resources.input", 3, "resources.input: 3 is not an object"),
        (f"{TENSOR}.Sizes", [1] * 65, f"{TENSOR}: TensorDesc.sizes: ... has more entries than the 8 of any..."),
        (
            "commands[1]",
            WRITE | {"dimensions": [6] + [1] * 64},
            ".dimensions: NumPy has no arrays of 65 dimensions: ...",
        ),
        (VALUES, [], ": there are no values"),
        (VALUES, [1, "x"], "[1]: 'x' is not a number"),
        (VALUES, [True], "[0]: True is not a number"),
        (VALUES, {"valueCount": 0, "value": 1}, ".valueCount: 0 is not allowed; ... from 1 on"),
        (VALUES, {"valueCount": 1}, ": field valueDelta is required"),
        (VALUES, {"valueCount": 1, "value": 1, "valueStart": 1}, ": value and valueStart are given; give one of them"),
        (VALUES, {"sourcePath": "nothing.npy"}, ".sourcePath: there is no file 'nothing.npy' in ..."),
        (TYPE, None, f"{VALUES}: initialValuesDataType is required..."),
        (TYPE, "FLOAT", ": 'FLOAT' is not allowed; ..."),
        (TYPE, "UINT4", ": UINT4 is not supported"),
        ("resources.input.sizeInBytes", 23, "resources.input: sizeInBytes is too small: provided 23, expected 24"),
        ("dispatchables.sum.type", "hlsl", ": 'hlsl' is not supported; allowed are ARGMAX, ARG..."),
        (f"{DESC}.Axes", None, f"{DESC}: field Axes is required"),
        (f"{DESC}.Axes", [-1], "[0]: -1 is not allowed; allowed are integers from 0 on"),
        (f"{DESC}.Axes", [2], f"{DESC}: ReduceOperatorDesc.axes[0]: 2 is out of range..."),
        (f"{DESC}.AxisCount", None, f"{DESC}: field AxisCount is required"),
        (f"{DESC}.AxisCount", 2, ": 2 is wrong; the arrays have 1 entries"),
        (f"{DESC}.Function", "SUMS", ": 'SUMS' is not allowed; allowed are ARGMAX, ..."),
        (f"{TENSOR}.TotalTensorSizeInBytes", 28, f"{BOUND}: resource 'input' is too small: provided 24, expected 28"),
        (f"{TENSOR}.Sizes", [2, 1.5], "[1]: 1.5 is not an integer"),
        (f"{TENSOR}.DimensionCount", 3, ": 3 is wrong; ... 2 entries"),
        ("commands[0].type", "hop", ": 'hop' is not supported; allowed are dispatch, print, writeFile"),
        ("commands[0].dispatchable", "max", ": there is no dispatchable 'max'; there are sum"),
        (BOUND, "in", ": there is no resource 'in'; there are input, output"),
        (BOUND, None, "commands[0].bindings: field InputTensor is required..."),
        ("commands[0].bindings.Input", "input", ": the operator has no tensor of this name; ..."),
        (BOUND, ["input", "input"], ": 2 resources are bound; allowed is 1"),
        (BOUND, "output", ": resource 'output' is too small: provided 8, expected 24"),
        (BOUND, {"name": "input", "elementOffset": 1}, ": resource 'input' is too small: provided 20, expected 24"),
        (
            "commands[0].bindings.OutputTensor",
            {"name": "input", "elementOffset": 4},
            f": an output shares memory with what is bound at {BOUND}",
        ),
        ("commands[1].verbose", 1, ": 1 is not true or false"),
        ("commands[1]", {"type": "writeFile", "resource": "input"}, ": field targetPath is required"),
        ("commands[1]", WRITE | {"dimensions": [4]}, ".dimensions: [4] is wrong; the resource has 6 elements"),
        ("commands[1]", WRITE | {"targetPath": "x.PNG"}, ".targetPath: images are not..."),
    ],
)
def test_mistakes_are_named_before_anything_runs(tmp_path, path, value, message):
    file = tmp_path / "model.json"
    file.write_text(json.dumps(changed(path, value)), encoding="utf-8")
    with refused(path + message if message[0] in ":[." else message):
        Model(file)


@pytest.mark.parametrize(
    ("data_type", "value", "message"),
    [
        ("UINT8", 256, "256 is not allowed; UINT8 ends at 255"),
        ("UINT8", -1, "-1 is not allowed; allowed are integers from 0 on"),
        ("INT8", -129, "-129 is not allowed; allowed are integers from -128 on"),
        ("INT32", 1.0, "1.0 is not an integer"),
        ("INT32", "nan", "'nan' is not an integer"),
        ("INT64", 2**63, "9223372036854775808 is not allowed; INT64 ends at 9223372036854775807"),
        ("FLOAT16", 65536, "65536 is not allowed; FLOAT16 ends at 65504..."),
        ("FLOAT16", -65536.0, "-65536.0 is not allowed; FLOAT16 ends at 65504.0"),
        ("FLOAT32", 1e39, "1e+39 is not allowed; FLOAT32 ends at 3.40282..."),
        ("FLOAT64", 10**400, "1000... is not allowed; FLOAT64 ends at..."),
    ],
)
def test_numbers_that_a_type_lacks_are_refused(resources_of, data_type, value, message):
    with refused(f"resources.x.initialValues[0]: {message}"):
        resources_of(x=resource(data_type, [value]))


@pytest.mark.parametrize("count", [2**58, 2**70])
def test_resources_that_fit_no_memory_are_refused(resources_of, count):
    for values, fields in ((count, {}), (1, {"sizeInBytes": 8 * count})):
        with refused("resources.x: does not fit in this machine's memory..."):
            resources_of(x=resource("FLOAT64", {"valueCount": values, "value": 0}, **fields))


@pytest.fixture
def wrong_files(tmp_path):
    np.save(tmp_path / "float64.npy", np.array([1.0]))
    np.save(tmp_path / "complex.npy", np.array([1j]))
    np.savez(tmp_path / "x.npz", np.zeros(3))
    (tmp_path / "x.npz").rename(tmp_path / "archive.npy")
    for name, content in (("bad.npy", b"no array"), ("x.png", b""), ("x.bin", bytes(13))):
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.npy").mkdir()


@pytest.mark.usefixtures("wrong_files")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("float64.npy", "...float64.npy has FLOAT64, but initialValuesDataType is FLOAT32"),
        ("x.bin", "...x.bin has 13 bytes, not a multiple of the 4 of a FLOAT32"),
        ("x.png", "...images are not supported..."),
        *((name, f"...{name}: ...") for name in ("bad.npy", "complex.npy", "archive.npy")),
        *((name, "there is no file ...") for name in ("folder", "folder.npy", "x\0.npy", "\ud800.bin", "x.npz")),
    ],
)
def test_files_that_cannot_be_read_are_named(resources_of, name, message):
    with refused(f"resources.x.initialValues.sourcePath: {message}"):
        resources_of(x=resource("FLOAT32", {"sourcePath": name}))


@pytest.mark.parametrize(("field", "path"), [("Axes", f"{DESC}.Axes"), ("commands", "commands"), ("valueCount", "")])
def test_fields_that_occur_twice_are_refused(run, field, path):
    with refused(f"...{path}...: the field is given twice"):
        run(json.dumps(SUM).replace(f'"{field}"', f'"{field}": 1, "{field}"', 1))


def test_the_command_line_shows_devices(driver, capsys):
    assert cli.main(["run", "-s"]) == 0
    assert f"{driver.index}: {driver.name}" in capsys.readouterr().out.splitlines()


def test_wrong_command_lines_are_refused(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.json").write_text("{}")
    for arguments, message in (
        ([], "give a model file"),
        (["nothing.json"], "nothing.json"),
        (["bad.json"], "dmlgpu: the document: field resources is required\n"),
        ([MODEL, "-a", "no such device"], "no such device"),
    ):
        assert cli.main(["run", *arguments]) == 2
        assert message in capsys.readouterr().err
    for wrong in (["-i", "0"], ["-r", "-1"], ["-w", "-1"], ["-v", "3"]):
        refuses("2", cli.main, ["run", MODEL, *wrong], error=SystemExit)
        assert "dmlgpu run: error: " in capsys.readouterr().err


def test_the_command_line_has_the_options_of_dxdispatch(driver, capsys, tmp_path):
    options = ["-i", "3", "-r", "2", "-w", "2", "-v", "1", "-a", str(driver.index)]
    assert cli.main(["run", MODEL, *options]) == 0
    assert "CPU Timings (Cold) : 2 samples" in capsys.readouterr().out
    (tmp_path / "model.json").write_text(json.dumps(writing("x.npy")))
    arguments = ["run", str(tmp_path / "model.json"), "--output_path", str(tmp_path), "-a", str(driver.index)]
    assert [cli.main(arguments), cli.main(arguments), cli.main([*arguments, "--force"])] == [0, 2, 0]
