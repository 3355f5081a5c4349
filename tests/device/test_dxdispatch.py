"""Model files of DxDispatch: what they may say, what is printed, and where mistakes are."""

import copy
import json
import os
import re

import numpy as np
import pytest

from dmlgpu import CompiledOperator
from dmlgpu.tools import cli, dxdispatch
from dmlgpu.tools.dxdispatch import Model, ModelError, Options
from dmlgpu.tools.registry import OPERATORS
from tests.support.processes import ROOT

MODELS = ROOT / "docs" / "models"
NAMES = sorted(path.name for path in MODELS.glob("*.json"))
PAGE = (MODELS / "README.md").read_text(encoding="utf-8")

SUM = {
    "resources": {
        "input": {
            "initialValuesDataType": "FLOAT32",
            "initialValues": {"valueCount": 6, "valueStart": 1, "valueDelta": 1},
        },
        "output": {"initialValuesDataType": "FLOAT32", "initialValues": {"valueCount": 2, "value": 0}},
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


def changed(path, value):
    """SUM with another value at a path; None takes it away."""
    document = copy.deepcopy(SUM)
    *parents, last = re.findall(r"\w+", path)
    place = document
    for name in parents:
        place = place[int(name) if name.isdecimal() else name]
    if value is None:
        del place[last]
    else:
        place[int(last) if last.isdecimal() else last] = value
    return document


@pytest.fixture
def run(device, tmp_path):
    """Runs a document, or its text, and gives the lines that are said."""

    def runs(document, **options):
        path = tmp_path / "model.json"
        path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
        lines = []
        Model(path).run(device, Options(**options), lines.append)
        return lines

    return runs


def resources_of(tmp_path, **resources):
    """Resources as a model has them; nothing is dispatched."""
    path = tmp_path / "model.json"
    path.write_text(json.dumps({"resources": resources, "dispatchables": {}, "commands": []}), encoding="utf-8")
    return Model(path).resources


def printed(tmp_path, verbose=False, **resource):
    return dxdispatch._printed("x", resources_of(tmp_path, x=resource)["x"], verbose)


def shown():
    """The models that the page has a heading for, and what it says that they print."""
    return re.findall(r"^## \[(.+)\]\(\1\)\n\n.*\n\n```text\n((?:(?!```).*\n)*)```$", PAGE, re.MULTILINE)


def test_there_is_a_model_of_each_operator():
    assert {name.removesuffix(".json") for name in NAMES} == {o.name.partition(" ")[0].lower() for o in OPERATORS}
    assert [name for name, _ in shown()] == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_model_prints_what_the_page_shows(driver, monkeypatch, capsys, name):
    monkeypatch.setenv("DMLGPU_VERIFY", "1")
    assert cli.main(["run", str(MODELS / name), "--device", str(driver.index)]) == 0
    running, dispatch, *printed = capsys.readouterr().out.splitlines()
    assert running == f"Running on '{driver.name}'"
    assert re.fullmatch(r"Dispatch '\w+': 1 iterations, \d+\.\d{4} ms median \(CPU\)", dispatch)
    assert printed == dict(shown())[name].splitlines()


def test_dispatch_and_print(run):
    dispatch, *printed = run(SUM)
    assert dispatch.startswith("Dispatch 'sum': 1 iterations, ")
    assert printed == ["Resource 'input': 1, 2, 3, 4, 5, 6", "Resource 'output': 6, 15"]


def test_comments_and_commas_that_json_lacks(run):
    text = json.dumps(changed("resources.input", SUM["resources"]["input"] | {"note": 'a // b, ] /* " */ c'}), indent=1)
    text = text.replace("{", "{ // a comment, }\n", 3).replace("]", ", /* another,\n one */ ]").replace("}", ", }")
    text = text.replace(", , ", ", ").replace(", /* another,\n one */ ] /*", "] /*")
    assert run("\ufeff\n" + text + "\n text behind it")[1:] == run(SUM)[1:]


def test_an_error_of_json_names_its_line(run):
    with pytest.raises(ModelError, match=r"model\.json: .*line 3 "):
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
def test_initial_values(tmp_path, data_type, values, expected):
    assert printed(tmp_path, initialValuesDataType=data_type, initialValues=values) == f"Resource 'x': {expected}"


def test_values_of_several_types(tmp_path):
    values = [{"type": "UINT32", "value": 258}, {"name": "scale", "type": "FLOAT32", "value": 1.0}]
    assert printed(tmp_path, initialValues=values) == "Resource 'x': 2, 1, 0, 0, 0, 0, 128, 63"


def test_values_one_below_the_other(tmp_path):
    values = [0, 1.5, -1] + [0] * 8
    text = printed(tmp_path, verbose=True, initialValuesDataType="FLOAT16", initialValues=values)
    lines = ["Resource 'x':", "[ 0] 0 (0x   0)", "[ 1] 1.5 (0x3E00)", "[ 2] -1 (0xBC00)", "[ 3] 0 (0x   0)"]
    assert text.split("\n")[:5] == lines
    assert text.endswith("\n[10] 0 (0x   0)")
    text = printed(tmp_path, verbose=True, initialValuesDataType="UINT8", initialValues=list(range(10, 20)))
    assert text.split("\n")[1] == "[0] 10 (0x A)"


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<i8", ">u2", "?", "<f2", "u1"])
def test_npy_files(tmp_path, dtype):
    array = np.array([[0, 1, 1], [1, 0, 0]]).astype(dtype)
    for order in "CF":
        np.save(tmp_path / "x.npy", np.asarray(array, order=order))
        assert printed(tmp_path, initialValues={"sourcePath": "x.npy"}) == "Resource 'x': 0, 1, 1, 1, 0, 0"


def test_raw_files(tmp_path):
    np.array([1, 2, 3], "<i2").tofile(tmp_path / "x.bin")
    given = {"initialValues": {"sourcePath": "x.bin"}}
    assert printed(tmp_path, **given, initialValuesDataType="INT16") == "Resource 'x': 1, 2, 3"
    assert printed(tmp_path, **given) == "Resource 'x': 1, 0, 2, 0, 3, 0"


def test_where_files_are_looked_for(tmp_path, monkeypatch):
    given, here = tmp_path / "given", tmp_path / "here"
    for folder, value in ((given, 1), (tmp_path, 2), (here, 3)):
        folder.mkdir(exist_ok=True)
        np.save(folder / "x.npy", np.array([value]))
    np.save(here / "y.npy", np.array([4]))
    document = {name: {"initialValues": {"sourcePath": f"{name}.npy"}} for name in ("x", "y")}
    path = tmp_path / "model.json"
    path.write_text(json.dumps({"resources": document, "dispatchables": {}, "commands": []}))
    monkeypatch.chdir(here)
    assert [resource.values.tolist() for resource in Model(path).resources.values()] == [[2], [4]]
    assert [resource.values.tolist() for resource in Model(path, given).resources.values()] == [[1], [4]]


def test_sizes_of_resources(tmp_path):
    values = {"initialValuesDataType": "UINT8", "initialValues": [1, 2, 3, 4, 5]}
    found = resources_of(
        tmp_path, x=values, y=values | {"sizeInBytes": 21}, z=values | {"initialValuesOffsetInBytes": 4}
    )
    assert [found[name].memory.size for name in "xyz"] == [8, 21, 12]
    assert all(found[name].memory[:6].tolist() == [1, 2, 3, 4, 5, 0] for name in "xyz")


def test_files_are_written(run, tmp_path):
    document = copy.deepcopy(SUM)
    document["commands"][1:] = [
        {"type": "writeFile", "resource": "input", "targetPath": "a/b/input.npy", "dimensions": [3, 2]},
        {"type": "WRITEFILE", "resource": "output", "targetPath": "output.npy"},
        {"type": "writeFile", "resource": "output", "targetPath": "output.bin"},
    ]
    lines = run(document, output_path=tmp_path / "out")
    assert lines[1] == f"Resource 'input' written to '{tmp_path / 'out' / 'a' / 'b' / 'input.npy'}'"
    assert np.load(tmp_path / "out/a/b/input.npy").tolist() == [[1, 2], [3, 4], [5, 6]]
    assert np.load(tmp_path / "out/output.npy").tolist() == [6, 15]
    assert np.fromfile(tmp_path / "out/output.bin", "<f4").tolist() == [6, 15]


def writing(*targets):
    """SUM, and commands that write its output."""
    document = copy.deepcopy(SUM)
    document["commands"][1:] = [{"type": "writeFile", "resource": "output", "targetPath": each} for each in targets]
    return document


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
    message = r"^commands\[2\]\.targetPath: .* is (not allowed; allowed are files in .*out|no path: .*)$"
    with pytest.raises(ModelError, match=message):
        run(writing("y.npy", name.format(tmp_path)), output_path=folder, force=force)
    assert sorted({*tmp_path.rglob("*")} - {tmp_path / "model.json"}) == before


@pytest.mark.parametrize("name", [".", "", "a/.."])
def test_the_folder_itself_is_no_file_where_it_is_not_there_yet(run, tmp_path, name):
    with pytest.raises(ModelError, match=r"is not allowed; allowed are files in .*out$"):
        run(writing(name), output_path=tmp_path / "out")
    assert not (tmp_path / "out").is_file()


def test_absolute_paths_in_the_folder_are_taken(run, tmp_path):
    run(writing(f"{tmp_path}/out/../out/x.npy"), output_path=tmp_path / "out")
    assert np.load(tmp_path / "out" / "x.npy").tolist() == [6, 15]


def test_nothing_is_written_over_another_file(run, tmp_path):
    (tmp_path / "x.bin").write_text("another file")
    for targets, number in ((("y.npy", "x.bin"), 2), (("model.json",), 1), (("y.npy", "a.npy", "./y.npy"), 3)):
        words = (
            rf"^commands\[{number}\]\.targetPath: .* is there, or is written twice; with --force it is written over$"
        )
        with pytest.raises(ModelError, match=words):
            run(writing(*targets), output_path=tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["model.json", "x.bin"]
    assert (tmp_path / "x.bin").read_text() == "another file"
    run(writing("x.bin", "model.json", "x.bin"), output_path=tmp_path, force=True)
    assert np.fromfile(tmp_path / "x.bin", "<f4").tolist() == [6, 15]
    assert np.fromfile(tmp_path / "model.json", "<f4").tolist() == [6, 15]


def test_half_a_file_is_not_written(run, tmp_path, monkeypatch):
    def save(file, values):
        file.write(b"half")
        raise OSError("the disk is full")

    monkeypatch.setattr(np, "save", save)
    (tmp_path / "x.npy").write_text("another file")
    with pytest.raises(OSError, match="the disk is full"):
        run(writing("x.npy"), output_path=tmp_path, force=True)
    assert (tmp_path / "x.npy").read_text() == "another file"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.json", "x.npy"]


@pytest.mark.parametrize("name", ["x.NPY", "x.Npy"])
def test_suffixes_in_any_case(run, tmp_path, name):
    lines = run(writing(name), output_path=tmp_path)
    assert lines[1] == f"Resource 'output' written to '{tmp_path / name}'"
    assert np.load(tmp_path / name).tolist() == [6, 15]
    values = resources_of(tmp_path, x={"initialValues": {"sourcePath": name}})["x"].values
    assert values.tolist() == [6, 15]


def test_what_is_written_is_not_padded(run, tmp_path):
    document = changed("resources.x", {"initialValuesDataType": "UINT8", "initialValues": [1, 2, 3]})
    document["commands"] = [{"type": "writeFile", "resource": "x", "targetPath": name} for name in ("x.npy", "x.bin")]
    run(document, output_path=tmp_path)
    assert np.load(tmp_path / "x.npy").tolist() == [1, 2, 3]
    assert (tmp_path / "x.bin").read_bytes() == b"\1\2\3"


def test_tensors_of_one_resource(run):
    """Offsets count elements of the resource, or of a size that is given; results come before what reads them."""
    document = changed(
        "resources.both", {"initialValuesDataType": "FLOAT32", "initialValues": [9, 1, 2, 3, 4, 5, 6, 0, 0]}
    )
    document["commands"] = [
        {
            "type": "dispatch",
            "dispatchable": "sum",
            "bindings": {
                "InputTensor": [{"name": "both", "elementOffset": 1}],
                "OutputTensor": {"name": "both", "elementOffset": 14, "elementSizeInBytes": 2},
            },
        },
        {"type": "print", "resource": "both"},
    ]
    assert run(document)[1:] == ["Resource 'both': 9, 1, 2, 3, 4, 5, 6, 6, 15"]


def test_an_output_may_stand_right_before_an_input(run):
    document = changed(
        "resources.both", {"initialValuesDataType": "FLOAT32", "initialValues": [0, 0, 1, 2, 3, 4, 5, 6]}
    )
    document["commands"][0]["bindings"] = {"InputTensor": {"name": "both", "elementOffset": 2}, "OutputTensor": "both"}
    document["commands"][1:] = [{"type": "print", "resource": "both"}]
    assert run(document)[1:] == ["Resource 'both': 6, 15, 1, 2, 3, 4, 5, 6"]


def test_indices_may_be_left_out(run):
    document = json.loads((MODELS / "max_pooling1.json").read_text(encoding="utf-8").partition("\n")[2])
    del document["dispatchables"]["pool"]["desc"]["OutputIndicesTensor"]
    del document["commands"][0]["bindings"]["OutputIndicesTensor"]
    assert run(document)[1] == "Resource 'output': 6, 8, 14, 16"


def test_commands_see_what_those_before_them_wrote(run):
    document = copy.deepcopy(SUM)
    document["resources"]["total"] = {"initialValuesDataType": "FLOAT32", "initialValues": [0]}
    total = copy.deepcopy(document["dispatchables"]["sum"])
    total["desc"]["InputTensor"]["Sizes"], total["desc"]["OutputTensor"]["Sizes"] = [1, 2], [1, 1]
    document["dispatchables"]["total"] = total
    document["commands"][1:] = [
        {"type": "dispatch", "dispatchable": "total", "bindings": {"InputTensor": "output", "OutputTensor": "total"}},
        {"type": "print", "resource": "total"},
    ]
    assert run(document)[2:] == ["Resource 'total': 21"]


def test_gaps_of_an_output_stay(run):
    document = changed("resources.output.initialValues", [7, 7, 7])
    document["dispatchables"]["sum"]["desc"]["OutputTensor"] = {
        "DataType": "FLOAT32",
        "Sizes": [2, 1],
        "Strides": [2, 1],
    }
    assert run(document)[2] == "Resource 'output': 6, 7, 15"


def test_other_spellings(run):
    document = copy.deepcopy(SUM)
    desc = document["dispatchables"]["sum"].pop("desc") | {"Function": "MAX"}
    desc["InputTensor"] = {
        "Type": "DML_TENSOR_TYPE_BUFFER",
        "Desc": desc["InputTensor"] | {"Strides": [], "DimensionCount": 2},
    }
    desc["OutputTensor"] |= {"TotalTensorSizeInBytes": 0, "Flags": "NONE", "GuaranteedBaseOffsetAlignment": 0}
    document["dispatchables"]["sum"] |= desc | {"type": "REDUCE", "dmlCompileType": "DmlCompileGraph"}
    document["commands"][0]["type"] = "Dispatch"
    assert run(document)[2] == "Resource 'output': 3, 6"


def test_tensors_that_directml_owns(run):
    """They are bound where the operator is made."""
    document = changed("commands[0].bindings", {"OutputTensor": "output"})
    document["dispatchables"]["sum"]["bindings"] = {"InputTensor": "input"}
    assert run(document)[2] == "Resource 'output': 6, 15"


def test_timings(run, monkeypatch):
    ticks = iter([0.0, 0.25, 1, 1.010, 2, 2.003, 3, 3.001, 4, 4.002])
    monkeypatch.setattr(dxdispatch, "perf_counter", lambda: next(ticks))
    lines = run(SUM, dispatch_iterations=4, dispatch_repeat=1, warmup_samples=1, timing_verbosity=2)
    assert lines[:-2] == [
        "Initialize 'sum': 250.0000 ms",
        "Dispatch 'sum': 4 iterations",
        "CPU Timings (Cold) : 1 samples, 10.0000 ms average, 10.0000 ms min, 10.0000 ms median, 10.0000 ms max",
        "CPU Timings (Hot)  : 3 samples, 2.0000 ms average, 1.0000 ms min, 2.0000 ms median, 3.0000 ms max",
        "The timings of each iteration: ",
        *(f"iteration {i}: {sample:.4f} ms (CPU)" for i, sample in enumerate([10, 3, 1, 2])),
    ]


@pytest.mark.parametrize(
    ("samples", "warmup", "cold", "hot"),
    [([5], 2, 0, 1), ([5, 4], 2, 1, 1), ([5, 4, 3], 2, 2, 1), ([5, 4, 3], 0, 0, 3)],
)
def test_the_last_sample_is_hot(samples, warmup, cold, hot):
    lines = dxdispatch._timings("x", samples, Options(warmup_samples=warmup, timing_verbosity=1))
    counts = [int(re.search(r": (\d+) samples", line)[1]) for line in lines[1:]]
    assert counts == [count for count in (cold, hot) if count]


def test_of_two_medians_the_larger_is_said():
    assert dxdispatch._timings("x", [9, 1, 4, 2, 3], Options())[0].endswith(" 3.0000 ms median (CPU)")


def test_a_sample_is_a_share_of_the_repeated_dispatches(run, monkeypatch):
    calls, call = [], CompiledOperator.__call__
    monkeypatch.setattr(CompiledOperator, "__call__", lambda *given, **to: calls.append(1) or call(*given, **to))
    ticks = iter([0.0, 1, 1.030])
    monkeypatch.setattr(dxdispatch, "perf_counter", lambda: next(ticks))
    line, *_ = run(SUM, dispatch_repeat=3)
    assert line == "Dispatch 'sum': 1 iterations, 10.0000 ms median (CPU)"
    assert len(calls) == 3


DESC = "dispatchables.sum.desc"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("resources", None, r"^the document: field resources is required$"),
        ("commands", {}, r"^commands: \{\} is not an array$"),
        ("resources.input", 3, r"^resources\.input: 3 is not an object$"),
        (
            f"{DESC}.InputTensor.Sizes",
            [1] * 65,
            r"InputTensor: TensorDesc\.sizes: .* has more entries than the 8 of any",
        ),
        (
            "commands[1]",
            {"type": "writeFile", "resource": "input", "targetPath": "x.npy", "dimensions": [6] + [1] * 64},
            r"^commands\[1\]\.dimensions: NumPy has no arrays of 65 dimensions: ",
        ),
        ("resources.input.initialValues", None, r"^resources\.input: field initialValues is required$"),
        ("resources.input.initialValues", [], r"^resources\.input\.initialValues: there are no values$"),
        ("resources.input.initialValues", [1, "x"], r"^resources\.input\.initialValues\[1\]: 'x' is not a number$"),
        ("resources.input.initialValues", [True], r"^resources\.input\.initialValues\[0\]: True is not a number$"),
        (
            "resources.input.initialValues",
            {"valueCount": 0, "value": 1},
            r"valueCount: 0 is not allowed; .* from 1 on$",
        ),
        (
            "resources.input.initialValues",
            {"valueCount": 1},
            r"^resources\.input\.initialValues: field valueDelta is req",
        ),
        ("resources.input.initialValues", {"valueCount": 1, "value": 1, "valueStart": 1}, r"give one of them$"),
        (
            "resources.input.initialValues",
            {"sourcePath": "nothing.npy"},
            r"sourcePath: there is no file 'nothing\.npy' in",
        ),
        (
            "resources.input.initialValuesDataType",
            None,
            r"^resources\.input\.initialValues: initialValuesDataType is req",
        ),
        (
            "resources.input.initialValuesDataType",
            "FLOAT",
            r"^resources\.input\.initialValuesDataType: 'FLOAT' is not all",
        ),
        (
            "resources.input.initialValuesDataType",
            "UINT4",
            r"^resources\.input\.initialValuesDataType: UINT4 is not supp",
        ),
        ("resources.input.sizeInBytes", 23, r"^resources\.input: sizeInBytes is too small: provided 23, expected 24$"),
        (
            "dispatchables.sum.type",
            "hlsl",
            r"^dispatchables\.sum\.type: 'hlsl' is not supported; allowed are ARGMAX, ARG",
        ),
        (f"{DESC}.Axes", None, rf"^{re.escape(DESC)}: field Axes is required$"),
        (f"{DESC}.InputTensor.TotalTensorSizeInBytes", 20, r"InputTensor: TensorDesc\.total_tensor_size_in_bytes: 20 "),
        (
            "dispatchables.sum.desc.InputTensor.TotalTensorSizeInBytes",
            28,
            r"'input' is too small: provided 24, expected 28$",
        ),
        (f"{DESC}.AxisCount", None, rf"^{re.escape(DESC)}: field AxisCount is required$"),
        (f"{DESC}.AxisCount", 2, rf"^{re.escape(DESC)}\.AxisCount: 2 is wrong; the arrays have 1 entries$"),
        (f"{DESC}.Axes", [-1], rf"^{re.escape(DESC)}\.Axes\[0\]: -1 is not allowed; allowed are integers from 0 on$"),
        (f"{DESC}.Axes", [2], rf"^{re.escape(DESC)}: ReduceOperatorDesc\.axes\[0\]: 2 is out of range"),
        (f"{DESC}.Function", "SUMS", rf"^{re.escape(DESC)}\.Function: 'SUMS' is not allowed; allowed are ARGMAX, "),
        (f"{DESC}.InputTensor.Sizes", [2, 0], rf"^{re.escape(DESC)}\.InputTensor: TensorDesc\.sizes"),
        (
            f"{DESC}.InputTensor.Sizes",
            [2, 1.5],
            rf"^{re.escape(DESC)}\.InputTensor\.Sizes\[1\]: 1\.5 is not an integer$",
        ),
        (
            f"{DESC}.InputTensor.DimensionCount",
            3,
            rf"^{re.escape(DESC)}\.InputTensor\.DimensionCount: 3 is wrong; .* 2 en",
        ),
        (
            f"{DESC}.OutputTensor.Sizes",
            [2, 3],
            rf"^{re.escape(DESC)}: ReduceOperatorDesc\.output_tensor\.sizes\[1\]: 3 is",
        ),
        (
            "commands[0].type",
            "hop",
            r"^commands\[0\]\.type: 'hop' is not supported; allowed are dispatch, print, writeF",
        ),
        (
            "commands[0].dispatchable",
            "max",
            r"^commands\[0\]\.dispatchable: there is no dispatchable 'max'; there are sum$",
        ),
        (
            "commands[0].bindings.InputTensor",
            "in",
            r"^commands\[0\]\.bindings\.InputTensor: there is no resource 'in'; th",
        ),
        ("commands[0].bindings.InputTensor", None, r"^commands\[0\]\.bindings: field InputTensor is required"),
        (
            "commands[0].bindings.Input",
            "input",
            r"^commands\[0\]\.bindings\.Input: the operator has no tensor of this n",
        ),
        (
            "commands[0].bindings.InputTensor",
            ["input", "input"],
            r"InputTensor: 2 resources are bound; the tensor takes 1$",
        ),
        (
            "commands[0].bindings.InputTensor",
            "output",
            r"InputTensor: resource 'output' is too small: provided 8, expecte",
        ),
        (
            "commands[0].bindings.InputTensor",
            {"name": "input", "elementOffset": 1},
            r"InputTensor: resource 'input' is too small: provided 20, expected 24$",
        ),
        (
            "commands[0].bindings.OutputTensor",
            {"name": "input", "elementOffset": 4},
            r"^commands\[0\]\.bindings\.OutputTensor: an output shares memory with what is bound at .*\.InputTensor$",
        ),
        ("commands[1].resource", "x", r"^commands\[1\]\.resource: there is no resource 'x'; there are input, output$"),
        ("commands[1].verbose", 1, r"^commands\[1\]\.verbose: 1 is not true or false$"),
        ("commands[1]", {"type": "writeFile", "resource": "input"}, r"^commands\[1\]: field targetPath is required$"),
        (
            "commands[1]",
            {"type": "writeFile", "resource": "input", "targetPath": "x.npy", "dimensions": [4]},
            r"^commands\[1\]\.dimensions: \[4\] is wrong; the resource has 6 elements$",
        ),
        (
            "commands[1]",
            {"type": "writeFile", "resource": "input", "targetPath": "x.PNG"},
            r"targetPath: images are not",
        ),
    ],
)
def test_mistakes_are_named_before_anything_runs(tmp_path, path, value, message):
    file = tmp_path / "model.json"
    file.write_text(json.dumps(changed(path, value)), encoding="utf-8")
    with pytest.raises(ModelError, match=message):
        Model(file)


@pytest.mark.parametrize(
    ("data_type", "value", "message"),
    [
        ("UINT8", 256, r"\[0\]: 256 is not allowed; UINT8 ends at 255$"),
        ("UINT8", -1, r"\[0\]: -1 is not allowed; allowed are integers from 0 on$"),
        ("INT8", -129, r"\[0\]: -129 is not allowed; allowed are integers from -128 on$"),
        ("INT32", 1.0, r"\[0\]: 1\.0 is not an integer$"),
        ("INT32", "nan", r"\[0\]: 'nan' is not an integer$"),
        ("INT64", 2**63, r"\[0\]: 9223372036854775808 is not allowed; INT64 ends at 9223372036854775807$"),
        ("FLOAT16", 65536, r"\[0\]: 65536 is not allowed; FLOAT16 ends at 65504"),
        ("FLOAT16", -65536.0, r"\[0\]: -65536\.0 is not allowed; FLOAT16 ends at 65504\.0$"),
        ("FLOAT32", 1e39, r"\[0\]: 1e\+39 is not allowed; FLOAT32 ends at 3\.40282"),
        ("FLOAT64", 10**400, r"\[0\]: 1000.* is not allowed; FLOAT64 ends at"),
    ],
)
def test_numbers_that_a_type_does_not_have(tmp_path, data_type, value, message):
    with pytest.raises(ModelError, match=message):
        resources_of(tmp_path, x={"initialValuesDataType": data_type, "initialValues": [value]})


@pytest.mark.parametrize("count", [2**58, 2**70])
def test_resources_that_fit_no_memory(tmp_path, count):
    values = {"initialValuesDataType": "FLOAT64", "initialValues": {"valueCount": count, "value": 0}}
    with pytest.raises(ModelError, match=r"^resources\.x: does not fit this machine's memory"):
        resources_of(tmp_path, x=values)
    values["initialValues"]["valueCount"] = 1
    with pytest.raises(ModelError, match=r"^resources\.x: does not fit this machine's memory"):
        resources_of(tmp_path, x=values | {"sizeInBytes": 8 * count})


def test_files_that_cannot_be_read(tmp_path):
    np.save(tmp_path / "x.npy", np.array([1.0]))
    with pytest.raises(ModelError, match=r"x\.npy has FLOAT64, but initialValuesDataType is FLOAT32$"):
        resources_of(tmp_path, x={"initialValuesDataType": "FLOAT32", "initialValues": {"sourcePath": "x.npy"}})
    for name, content in (("bad.npy", b"no array"), ("c.npy", None)):
        if content is None:
            np.save(tmp_path / name, np.array([1j]))
        else:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(ModelError, match=rf"^resources\.x\.initialValues\.sourcePath: .*{name}: "):
            resources_of(tmp_path, x={"initialValues": {"sourcePath": name}})
    (tmp_path / "x.png").write_bytes(b"")
    with pytest.raises(ModelError, match="images are not supported"):
        resources_of(tmp_path, x={"initialValues": {"sourcePath": "x.png"}})


def test_fields_that_are_given_twice(run):
    text = json.dumps(SUM)
    for field, path in (('"Axes"', f"{DESC}.Axes"), ('"commands"', "commands"), ('"valueCount"', "")):
        with pytest.raises(ModelError, match=rf"{re.escape(path)}[\w.]*: the field is given twice$"):
            run(text.replace(field, f"{field}: 1, {field}", 1))


def test_files_of_half_an_element(tmp_path):
    (tmp_path / "x.bin").write_bytes(bytes(13))
    source = {"initialValues": {"sourcePath": "x.bin"}}
    words = r"^resources\.x\.initialValues\.sourcePath: .*x\.bin has 13 bytes, which is no multiple of the 4 of a F"
    with pytest.raises(ModelError, match=words):
        resources_of(tmp_path, x=source | {"initialValuesDataType": "FLOAT32"})
    assert printed(tmp_path, **source).endswith("0, 0, 0")


@pytest.mark.parametrize("name", ["folder", "folder.npy", "x\0.npy", "\ud800.bin", "x.npz"])
def test_what_is_no_file(tmp_path, name):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(ModelError, match=r"^resources\.x\.initialValues\.sourcePath: there is no file "):
        resources_of(tmp_path, x={"initialValues": {"sourcePath": name}})


def test_names_that_no_terminal_takes(device, tmp_path, capsys):
    document = {"resources": {"\ud800": {"initialValuesDataType": "UINT8", "initialValues": [7]}}, "dispatchables": {}}
    (tmp_path / "x.json").write_text(json.dumps(document | {"commands": [{"type": "print", "resource": "\ud800"}]}))
    assert cli.main(["run", str(tmp_path / "x.json")]) == 0
    assert r"Resource '\ud800': 7" in capsys.readouterr().out


def test_an_archive_is_no_npy_file(tmp_path):
    np.savez(tmp_path / "x.npz", np.zeros(3))
    (tmp_path / "x.npz").rename(tmp_path / "x.npy")
    with pytest.raises(ModelError, match=r"^resources\.x\.initialValues\.sourcePath: .*x\.npy: "):
        resources_of(tmp_path, x={"initialValues": {"sourcePath": "x.npy"}})


def test_command_line(driver, capsys, tmp_path):
    assert cli.main(["run", "-s"]) == 0
    assert f"{driver.index}: {driver.name}" in capsys.readouterr().out.splitlines()
    assert cli.main(["run"]) == 2
    assert "a model file is needed" in capsys.readouterr().err
    assert cli.main(["run", str(tmp_path / "nothing.json")]) == 2
    assert "nothing.json" in capsys.readouterr().err
    (tmp_path / "bad.json").write_text("{}")
    assert cli.main(["run", str(tmp_path / "bad.json")]) == 2
    assert capsys.readouterr().err == "dmlgpu: the document: field resources is required\n"
    model = str(MODELS / "reduce.json")
    assert cli.main(["run", model, "-a", "no such device"]) == 2
    capsys.readouterr()
    arguments = ["-i", "3", "-r", "2", "-w", "2", "-v", "1", "-a", str(driver.index)]
    assert cli.main(["run", model, *arguments]) == 0
    assert "CPU Timings (Cold) : 2 samples" in capsys.readouterr().out
    (tmp_path / "model.json").write_text(json.dumps(writing("x.npy")))
    arguments = ["run", str(tmp_path / "model.json"), "--output_path", str(tmp_path), "-a", str(driver.index)]
    assert [cli.main(arguments), cli.main(arguments), cli.main([*arguments, "--force"])] == [0, 2, 0]
    assert "x.npy is there, or is written twice; with --force it is written over\n" in capsys.readouterr().err
    for wrong in (["-i", "0"], ["-r", "-1"], ["-w", "-1"], ["-v", "3"]):
        with pytest.raises(SystemExit, match="2"):
            cli.main(["run", model, *wrong])
    assert "is not allowed" in capsys.readouterr().err
