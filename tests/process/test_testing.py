"""`python -m dmlgpu.testing`: libraries that are wrong on purpose, crash, hang or misbehave; arguments."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from dmlgpu.testing import __main__ as command
from dmlgpu.testing.cases import CASES, LARGE_INDICES, UNDESCRIBED
from dmlgpu.testing.isolated import CrashedError, Isolated, RefusedError
from dmlgpu.testing.libraries import library_of
from dmlgpu.testing.outcomes import judge
from dmlgpu.testing.reproducers import lines
from dmlgpu.testing.trials import KINDS, trials
from tests.support.processes import ROOT, output_of

LIBRARY = """
from dmlgpu.testing.libraries import Library

class Wrong(Library):
    imports = "import os, sys, time, numpy as np"
    promises = {promises}

    def reduce(self, function, x, axes, *, last):
        if function == {function!r} and not last and len(axes) == 1:
            return {expression!r}.replace("AXIS", str(axes[0]))
"""
X = np.array([[1, 2, 3], [3, 0, 4], [2, 5, 2]], np.float32)


def write(folder, function, expression, promises=None):
    path = folder / "wrong.py"
    path.write_text(LIBRARY.format(function=function, expression=expression, promises=promises or {}))
    return str(path)


def results_of(capsys, *arguments):
    """The exit code, the outcome and text of each case, and the differences."""
    code = command.main([*arguments, "--json"])
    report = json.loads(capsys.readouterr().out)
    return code, {case["case"]: case for case in report["cases"]}, report["differences"]


def test_the_last_of_equal_elements(tmp_path, capsys):
    path = write(tmp_path, "argmax", "x.shape[AXIS] - 1 - np.flip(x, AXIS).argmax(AXIS)")
    code, cases, differences = results_of(capsys, path, "-k", "argmax /")
    assert code == 0  # its documents promise nothing
    for case in cases.values():
        expected = {"tie", "NaN", "sign of zero"} if "ties" in case["kinds"] or "NaN" in case["kinds"] else {"same"}
        assert case["outcome"] in expected | ({"same"} if case["kinds"] != ["ties"] else set()), case
    assert cases["first-of-equal-maxima"]["outcome"] == "tie"
    assert cases["first-of-equal-maxima"]["text"] == "4 instead of 0 at (0,)"
    tie = next(difference for difference in differences if difference["outcome"] == "tie")
    assert not tie["wrong"]
    assert "decision 20" in tie["rule"]
    *_, statement, shown = tie["reproducer"].splitlines()
    assert statement.startswith("x = np.array([")
    assert shown.startswith("print(x.shape[0] - 1 - np.flip(x, 0).argmax(0))  # right: [0]")


def test_a_promise_makes_a_difference_wrong(tmp_path, capsys):
    expression = "x.shape[AXIS] - 1 - np.flip(x, AXIS).argmax(AXIS)"
    path = write(tmp_path, "argmax", expression, {("argmax", "tie"): "README: the first"})
    code, _, [difference] = results_of(capsys, path, "-k", "first-of-equal-maxima")
    assert code == 1
    assert difference["wrong"]
    assert difference["document"] == "README: the first"


def test_nan_that_is_ignored(tmp_path, capsys):
    path = write(tmp_path, "max", "np.fmax.reduce(x, AXIS)")
    _, cases, differences = results_of(capsys, path, "-k", "operatordesc-max")
    wrong = {name for name, case in cases.items() if case["outcome"] != "same"}
    assert wrong == {f"reduceoperatordesc-max-special-{name}" for name in ("float32", "float16")}
    assert all("NaN" in cases[name]["kinds"] for name in wrong)
    assert {difference["outcome"] for difference in differences} == {"NaN"}
    assert "nan" in differences[0]["reproducer"]


def test_a_lost_sign_of_zero(tmp_path, capsys):
    path = write(tmp_path, "max", "x.max(AXIS) + x.dtype.type(0)")
    code, cases, differences = results_of(capsys, path, "-k", "max-")
    assert code == 1
    lost = {name for name, case in cases.items() if case["outcome"] != "same"}
    assert lost >= {f"reduceoperatordesc-max-negative-zeros-{name}" for name in ("float32", "float16")}
    assert all("-0" in cases[name]["kinds"] and cases[name]["outcome"] == "sign of zero" for name in lost)
    assert differences[0]["document"] == "IEEE 754: the result is none of the elements"
    assert differences[0]["reproducer"].splitlines()[1:] == [
        "x = np.array([[-0.0]], np.float32)",
        "print(x.max(1) + x.dtype.type(0))  # right: [[-0.0]]",
    ]


def test_a_crash_is_a_result_and_the_next_child_goes_on(tmp_path, capsys):
    path = write(tmp_path, "argmax", "os.abort() if AXIS == 0 else x.argmax(AXIS)")
    code, cases, [difference] = results_of(capsys, path, "-k", "argmax-of")
    assert code == 1
    outcomes = {name: case["outcome"] for name, case in cases.items()}
    assert outcomes == {"argmax-of-columns": "crashed", "argmax-of-rows": "same"}
    assert difference["text"] == "ended by SIGABRT"
    assert difference["wrong"]


def test_a_library_that_hangs(tmp_path, capsys):
    path = write(tmp_path, "argmax", "time.sleep(1000)")
    assert command.main([path, "-k", "argmax-of-rows", "--seconds", "0.5"]) == 1
    output = capsys.readouterr().out
    assert "wrong, crashed, 1 case (argmax-of-rows)" in output
    assert "no answer in 0.5 s" in output


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("(print('x' * 100_000), os.write(1, b'x'), sys.stdout.close(), os.close(1), x.argmax(1))[-1]", [2, 2, 1]),
        ("(x.argmax(1), x.fill(0))[0]", [2, 2, 1]),
        ("x.argmax(1) if os.fork() else 0", [2, 2, 1]),
        ("(os.fork() or time.sleep(1000), x.argmax(1))[-1]", [2, 2, 1]),
        ("x.argmax(1)[::-1][::-1]", [2, 2, 1]),
        ("x[:, 1]", [2, 0, 5]),
        ("None", None),
        ("1 / 0", "refused: ZeroDivisionError: division by zero"),
        ("sys.exit(3)", "crashed: raised SystemExit(3)"),
        ("os._exit(0)", "crashed: exited with 0"),
        ("(sys.stderr.write('out of luck'), sys.stderr.flush(), os.abort())", "crashed: ended by SIGABRT: out of luck"),
        ("(os.closerange(0, 100), os._exit(5))", "crashed: exited with 5"),
    ],
)
def test_what_a_library_may_do(shared, expression, expected):
    def outcome():
        try:
            return shared.run(expression, {"x": X})[0].tolist()
        except RefusedError as error:
            return f"refused: {error}"
        except CrashedError as error:
            return f"crashed: {error}"

    assert outcome() == expected
    assert shared.run("x.argmax(1)", {"x": X})[0].tolist() == [2, 2, 1]
    assert X[0, 0] == 1


@pytest.fixture(scope="module")
def shared():
    with Isolated("import os, sys, time, numpy as np", "result", 10) as child:
        yield child


def test_arrays_have_their_strides(shared):
    for x in X.T, np.broadcast_to(X[0], (4, 3)), X[:, ::2], X[:0]:
        shape, strides, values = shared.run("x.shape, x.strides, x", {"x": x})
        assert (tuple(shape), values.tolist()) == (x.shape, x.tolist())
        assert not x.size or tuple(strides) == x.strides


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("x.argmax(AXIS)[:2]", "a result of (2,) instead of (3, 1)"),
        ("x.argmax(AXIS) * 1.0", "indices of float64"),
        ("np.array([object()] * 3)", "indices of object"),
        ("None", "a result of () instead of (3, 1)"),
        ("(x, x)", "2 results instead of 1"),
        ("x.argmax(AXIS) + 1", "3 instead of 2 at (0, 0)"),
        ("x.argmax(AXIS) - 9", "-7 instead of 2 at (0, 0)"),
    ],
)
def test_results_of_another_form(shared, expression, text):
    [trial] = trials([case for case in CASES if case.id == "argmax-of-rows"], [])
    results = shared.run(expression.replace("AXIS", "1"), trial.inputs)
    assert judge(trial, results, library_of("numpy")) == ("value", text, False)


def judged(name, function):
    """The outcome of a case whose result a function of its input computes."""
    [trial] = trials([case for case in CASES if case.id == name], [])
    with np.errstate(all="ignore"):
        return judge(trial, [function(trial.inputs["x"])], library_of("numpy"))


def test_sums():
    limits = np.iinfo(np.int32)
    saturated = judged(
        "reduce-sum-int32-columns", lambda x: x.sum(0, np.int64).clip(limits.min, limits.max).astype("i4")
    )
    assert (saturated.word, saturated.is_open) == ("value", True)
    wrong = judged("reduce-sum-int32-rows", lambda x: x.sum(1, np.int32) + np.int32(1))
    assert (wrong.word, wrong.is_open) == ("value", False)
    assert judged("reduce-sum-float32-rows", lambda x: x.sum(1) + np.float32(1)).word == "value"
    assert judged("reduce-sum-float32-rows", lambda x: x.sum(1) + np.float32(1e-4)).word == "rounding"
    assert judged("reduce-sum-float32-rows", lambda x: x.sum(1) * np.float32(np.nan)).word == "NaN"
    partial = judged("reduce-sum-float32-wide-columns", lambda x: np.add.accumulate(x, 0)[-1])
    assert partial.word == "rounding"  # -max - max + inf
    product = judged("reduce-multiply-float32-wide-columns", lambda x: np.multiply.accumulate(x, 0)[-1])
    assert product.word == "rounding"  # 0 times inf


def test_nan_in_another_row():
    [trial] = trials([case for case in CASES if case.id == "argmax-special-float32-increasing"], [])
    x, moved = trial.inputs["x"].copy(), trial.expected[0].copy()
    x[0] = range(9)
    trial = replace(trial, make=lambda: {"x": x})
    moved[0] = 0
    assert np.isnan(x[1:]).any()
    assert judge(trial, [moved], library_of("numpy")).word == "value"


def test_indices_of_pooling():
    numpy, torch = library_of("numpy"), library_of("torch")
    [trial] = trials([case for case in CASES if case.id == "pool-least-int8"], [])
    values, indices = trial.expected
    moved = indices.copy()
    moved[0, 0, 1, 1] += 2  # an equal element of the same window
    assert judge(trial, [values, moved], numpy).word == "tie"
    moved[0, 0, 1, 1] -= 1  # between the elements of the window
    assert judge(trial, [values, moved], numpy).word == "value"
    moved[0, 0, 1, 1] = indices[0, 0, -1, -1]  # outside of it
    assert judge(trial, [values, moved], numpy).word == "value"
    [trial] = trials([case for case in CASES if case.id == "no-indices-ceil"], [])
    assert judge(trial, [trial.expected[0][..., :-1]], numpy).word == "value"
    [trial] = trials([case for case in CASES if case.id == "many-planes"], [])
    values, indices = trial.expected
    assert judge(trial, [values, indices % 6], torch).word == "same"
    assert judge(trial, [values, indices % 6], numpy).word == "value"


def test_kinds_are_those_of_the_data():
    chosen = [case for case in CASES if "pool" in case.id or "special" in case.id or "strid" in case.id][::7]
    kinds = {kind for trial in trials([*chosen, *LARGE_INDICES[:1]], UNDESCRIBED) for kind in trial.kinds}
    assert kinds >= set(KINDS) - {"none of these", "ceiling mode"}
    [trial] = trials([case for case in CASES if case.id == "ceil-padded"], [])
    assert trial.kinds == ("ceiling mode", "padding")
    [trial] = trials([case for case in CASES if case.id == "dilated"], [])
    assert trial.kinds == ("dilation",)


PLACES = """
from dmlgpu.testing.libraries import Library

class Places(Library):
    def unpool(self, x, indices, sizes):
        y = f"y = np.zeros({{(*x.shape[:2], *sizes)}}, x.dtype)"
        return f"{{y}}\\ny.reshape(-1)[indices.ravel()[::{step}]] = x.ravel()[::{step}]\\ny"

    def roi_pool(self, x, rois, size, scale):
        return f"np.zeros({{(len(rois), x.shape[1], *size)}}, x.dtype)"

    def quantized_pool(self, x, window, parameters, dtype):
        return None if len(parameters) < 4 else "(x_scale, x_zero_point, y_scale, y_zero_point)[:0] or x"
"""


@pytest.mark.parametrize(("step", "outcome"), [(1, "same"), (-1, "value")])
def test_elements_at_indices(step, outcome, tmp_path, capsys):
    path = tmp_path / "places.py"
    path.write_text(PLACES.format(step=step))
    code, cases, _ = results_of(capsys, str(path), "-k", "unpooled-")
    assert code == 0  # no document says which of several wins
    expected = {"unpooled-planes": "same", "unpooled-repeated": outcome, "unpooled-beyond": "refused"}
    assert expected.items() <= {name: case["outcome"] for name, case in cases.items()}.items()


def test_regions_and_quantized_elements(tmp_path, capsys):
    path = tmp_path / "places.py"
    path.write_text(PLACES.format(step=1))
    _, cases, [difference] = results_of(capsys, str(path), "-k", "roi-row-float32")
    assert cases["roi-row-float32"]["outcome"] == "value"
    *_, x, rois, shown = difference["reproducer"].splitlines()
    assert rois == "rois = np.array([[0.0, 1.0, 1.0, 3.0, 2.0]], np.float32)"
    assert shown.startswith("print(np.zeros((1, 1, 2, 3), x.dtype))  # right: [[[[")
    assert len(x) < len(f"x = np.array([[{np.arange(1.0, 37).reshape(6, 6).tolist()}]], np.float32)")
    assert results_of(capsys, str(path), "-k", "quantized-both")[1]["quantized-both"]["text"].startswith("a result of")
    [trial] = trials([case for case in CASES if case.id == "quantized-both"], [])
    assert [(name, y.shape) for name, y in trial.inputs.items() if name != "x"] == [
        (name, ()) for name in ("x_scale", "x_zero_point", "y_scale", "y_zero_point")
    ]
    (right,) = trial.expected
    words = [judge(trial, [right - np.uint8(n)], library_of("numpy")).word for n in (0, 1, 2)]
    assert words == ["same", "rounding", "value"]


def test_a_reproducer_of_a_view_and_of_special_values():
    numpy = library_of("numpy")
    [trial] = trials([case for case in CASES if case.id == "reduce-max-sample-4"], [])
    assert any("as_strided(np.array(" in line for line in lines(trial, numpy))
    ids = {f"argmax-special-{name}-increasing" for name in ("float16", "float32", "float64")}
    for trial in trials([case for case in CASES if case.id in ids], []):
        *head, shown = lines(trial, numpy)
        names = {}
        exec("\n".join(head), names)
        np.testing.assert_array_equal(names["x"], trial.inputs["x"])
        assert names["x"].tobytes() == trial.inputs["x"].tobytes()  # NaN with their signs and payloads
        assert shown == "print(np.argmax(x, axis=1))"


def test_numpy(capsys):
    assert command.main(["numpy", "-k", "argmax-of"]) == 0
    output = capsys.readouterr().out
    assert output.startswith(f"numpy {np.__version__}, Python 3.")
    assert "\nCases: 4; 4 same.\nCases without a function in the library: " in output
    assert command.main(["numpy", "-k", "argmax-of", "--markdown"]) == 0
    assert "\n| argmax | all | 4 | 4 |" in capsys.readouterr().out


def test_cumulative_functions_have_both_directions_and_initial_values(capsys):
    code, cases, _ = results_of(capsys, "numpy", "-k", "cumulative-")
    assert code == 0
    assert len(cases) == 12
    assert {case["outcome"] for case in cases.values()} == {"same"}


def test_cupy_has_numpys_functions_and_the_array_api_has_its_own(tmp_path, capsys, monkeypatch):
    """Without a GPU a module with these names stands for CuPy."""
    (tmp_path / "cupy.py").write_text("from numpy import *\nfrom numpy import asarray as asnumpy\n__version__ = 'fake'")
    monkeypatch.syspath_prepend(tmp_path)
    for name in "cupy", "array-api:numpy":
        code, cases, _ = results_of(capsys, name, "-k", "argmax-of")
        assert code == 0
        assert {case["outcome"] for case in cases.values()} == {"same"}


def test_vulkan_is_verify(monkeypatch, capsys):
    calls = []
    monkeypatch.setattr(command.cli, "main", lambda argv: calls.append(argv) or 0)
    assert command.main(["vulkan:llvm"]) == 0
    assert calls == [["verify", "--all", "--device=llvm"]]
    assert command.main(["vulkan:llvm", "--json"]) == 2
    assert "no other options are allowed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["nunpy"], "'nunpy' is not allowed; allowed are numpy, torch[:DEVICE], onnxruntime[:PROVIDER], jax, cupy"),
        (["array-api:"], "'array-api:' is not allowed"),
        (["array-api:a b"], "'array-api:a b' is not allowed"),
        (["array-api:not_a_module"], "array-api:not_a_module: ModuleNotFoundError: No module named 'not_a_module'"),
        (["numpy", "-k", "no such case"], "-k 'no such case': no case has this text"),
        (["missing.py"], "missing.py: FileNotFoundError"),
    ],
)
def test_arguments_that_are_not_allowed(arguments, error, capsys):
    assert command.main(arguments) == 2
    assert error in capsys.readouterr().err


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "soon"])
def test_seconds_are_positive(seconds, capsys):
    with pytest.raises(SystemExit, match="2"):
        command.main(["numpy", "--seconds", seconds])
    assert "is not allowed; allowed are numbers above 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("", "has no class of dmlgpu.testing.libraries.Library; allowed is one"),
        ("x = (", "SyntaxError"),
        ("import sys; sys.exit(0)", "SystemExit"),
        ("from dmlgpu.testing.libraries import Library, Numpy", "has no class"),
        ("from dmlgpu.testing.libraries import Library as L\nclass A(L): pass\nclass B(L): pass", "has 2 classes"),
        ("from dmlgpu.testing.libraries import Library as L\nclass A(L):\n def __init__(self): 1 / 0", "ZeroDivision"),
        ("from dmlgpu.testing.libraries import Library as L\nclass A(L): imports = 'import nothing'", "'nothing'"),
        ("from dmlgpu.testing.libraries import Library as L\nclass A(L):\n def reduce(self): 0", "A, of argmax-of-"),
    ],
)
def test_files_that_are_no_library(content, error, tmp_path, capsys):
    path = tmp_path / "library.py"
    path.write_text(content)
    assert command.main([str(path), "-k", "argmax-of"]) == 2
    assert error in capsys.readouterr().err


def test_no_device_is_opened():
    program = """
import sys
sys.modules["kp"] = sys.modules["dmlgpu_kp"] = sys.modules["vulkan"] = None
from dmlgpu.testing.__main__ import main
print(main(["numpy", "-k", "argmax-of-rows"]))
"""
    assert output_of(program).endswith("\n0\n")


def test_a_reader_that_closes_the_pipe():
    words = [sys.executable, "-m", "dmlgpu.testing", "numpy", "-k", "argmax-of-rows"]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.wait(60) == 141
        assert process.stderr.read() == b""
