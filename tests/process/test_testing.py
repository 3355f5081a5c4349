"""`python -m dmlgpu.testing` finds libraries that are wrong, crash, hang or misbehave, and checks its arguments."""

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
from tests.support.processes import ROOT

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


@pytest.fixture
def written(tmp_path):
    """Writes a library; returns its path."""

    def write(text):
        path = tmp_path / "library.py"
        path.write_text(text)
        return str(path)

    return write


@pytest.fixture
def results_of(written, capsys):
    """Runs cases with a library or its text; returns the exit code, the results by case, and the differences."""

    def run(library, cases):
        code = command.main([written(library) if "\n" in library else library, "-k", cases, "--json"])
        report = json.loads(capsys.readouterr().out)
        return code, {case["case"]: case for case in report["cases"]}, report["differences"]

    return run


def wrong(function, expression, promises=()):
    """A library in which an expression computes a function."""
    return LIBRARY.format(function=function, expression=expression, promises=dict(promises))


LAST_INDEX = "x.shape[AXIS] - 1 - np.flip(x, AXIS).argmax(AXIS)"


def test_the_last_of_equal_elements_is_a_tie(results_of):
    code, cases, differences = results_of(wrong("argmax", LAST_INDEX), "argmax /")
    assert code == 0  # its documents promise nothing
    for case in cases.values():
        assert (case["outcome"] == "same") <= (case["kinds"] != ["ties"]), case
        assert case["outcome"] == "same" or {"ties", "NaN"} & set(case["kinds"]), case
    (tie,) = (difference for difference in differences if difference["outcome"] == "tie")
    assert (tie["wrong"], "decision 20" in tie["rule"]) == (False, True)


def test_a_promise_makes_a_difference_wrong(results_of):
    library = wrong("argmax", LAST_INDEX, {("argmax", "tie"): "README: the first"})
    code, _, [difference] = results_of(library, "first-of-equal-maxima")
    assert (code, difference["wrong"], difference["document"]) == (1, True, "README: the first")


def test_a_lost_sign_of_zero_is_wrong(results_of):
    code, cases, differences = results_of(wrong("max", "x.max(AXIS) + x.dtype.type(0)"), "max-")
    assert code == 1
    lost = {name for name, case in cases.items() if case["outcome"] != "same"}
    assert lost >= {f"reduceoperatordesc-max-negative-zeros-{name}" for name in ("float32", "float16")}
    assert all("-0" in cases[name]["kinds"] and cases[name]["outcome"] == "sign of zero" for name in lost)
    assert differences[0]["document"] == "IEEE 754: the result is none of the elements"
    assert differences[0]["reproducer"].splitlines()[1:] == [
        "x = np.array([[-0.0]], np.float32)",
        "print(x.max(1) + x.dtype.type(0))  # right: [[-0.0]]",
    ]


def test_a_crash_is_a_result_and_the_next_child_continues(results_of):
    code, cases, [difference] = results_of(wrong("argmax", "os.abort() if AXIS == 0 else x.argmax(AXIS)"), "argmax-of")
    assert (code, difference["text"], difference["wrong"]) == (1, "ended by SIGABRT", True)
    outcomes = {name: case["outcome"] for name, case in cases.items()}
    assert outcomes == {"argmax-of-columns": "crashed", "argmax-of-rows": "same"}


def test_a_library_that_hangs_is_stopped(written, capsys):
    assert command.main([written(wrong("argmax", "time.sleep(1000)")), "-k", "argmax-of-rows", "--seconds", "0.5"]) == 1
    assert "no answer in 0.5 s" in capsys.readouterr().out


RIGHT = [2, 2, 1]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("(print('x' * 100_000), os.write(1, b'x'), sys.stdout.close(), os.close(1), x.argmax(1))[-1]", RIGHT),
        ("(x.argmax(1), x.fill(0))[0]", RIGHT),
        ("x.argmax(1) if os.fork() else 0", RIGHT),
        ("(os.fork() or time.sleep(1000), x.argmax(1))[-1]", RIGHT),
        ("x[:, 1]", [2, 0, 5]),
        ("None", None),
        ("1 / 0", "refused: ZeroDivisionError: division by zero"),
        ("sys.exit(3)", "crashed: raised SystemExit(3)"),
        ("os._exit(0)", "crashed: exited with 0"),
        ("(sys.stderr.write('out of luck'), sys.stderr.flush(), os.abort())", "crashed: ended by SIGABRT: out of luck"),
        ("(os.closerange(0, 100), os._exit(5))", "crashed: exited with 5"),
    ],
)
def test_a_library_may_print_fork_and_crash(shared, expression, expected):
    def outcome():
        try:
            return shared.run(expression, {"x": X})[0].tolist()
        except RefusedError as error:
            return f"refused: {error}"
        except CrashedError as error:
            return f"crashed: {error}"

    assert outcome() == expected
    assert shared.run("x.argmax(1)", {"x": X})[0].tolist() == RIGHT
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
        ("x.argmax(1)[:2]", "a result of (2,) instead of (3, 1)"),
        ("x.argmax(1) * 1.0", "indices of float64"),
        ("np.array([object()] * 3)", "indices of object"),
        ("None", "a result of () instead of (3, 1)"),
        ("(x, x)", "2 results instead of 1"),
        ("x.argmax(1) + 1", "3 instead of 2 at (0, 0)"),
        ("x.argmax(1) - 9", "-7 instead of 2 at (0, 0)"),
    ],
)
def test_results_of_another_form_differ(shared, expression, text):
    trial = trial_of("argmax-of-rows")
    results = shared.run(expression, trial.inputs)
    assert judge(trial, results, library_of("numpy")) == ("value", text, False)


def trial_of(name):
    """The trial of a case."""
    [trial] = trials([case for case in CASES if case.id == name], [])
    return trial


def word_of(trial, *results, library="numpy"):
    """How these results of a trial differ from the right ones."""
    return judge(trial, results, library_of(library)).word


def test_only_overflowing_sums_of_integers_are_open():
    limits, numpy = np.iinfo(np.int32), library_of("numpy")
    columns, rows = trial_of("reduce-sum-int32-columns"), trial_of("reduce-sum-int32-rows")
    saturated = columns.inputs["x"].sum(0, np.int64).clip(limits.min, limits.max).astype("i4")
    assert judge(columns, [saturated], numpy)[::2] == ("value", True)
    assert judge(rows, [rows.inputs["x"].sum(1, np.int32) + np.int32(1)], numpy)[::2] == ("value", False)


@pytest.mark.parametrize(
    ("name", "function", "word"),
    [
        ("reduce-sum-float32-rows", lambda x: x.sum(1) + np.float32(1), "value"),
        ("reduce-sum-float32-rows", lambda x: x.sum(1) + np.float32(1e-4), "rounding"),
        ("reduce-sum-float32-rows", lambda x: x.sum(1) * np.float32(np.nan), "NaN"),
        ("reduceoperatordesc-max-special-float32", lambda x: np.fmax.reduce(x, 1), "NaN"),
        ("reduce-sum-float32-wide-columns", lambda x: np.add.accumulate(x, 0)[-1], "rounding"),  # -max - max + inf
        ("reduce-multiply-float32-wide-columns", lambda x: np.multiply.accumulate(x, 0)[-1], "rounding"),  # 0 times inf
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_wrong_reductions_of_floats_differ_by_kind(name, function, word):
    trial = trial_of(name)
    assert word_of(trial, function(trial.inputs["x"])) == word


def test_nan_in_another_row_is_no_excuse():
    trial = trial_of("argmax-special-float32-increasing")
    x, moved = trial.inputs["x"].copy(), trial.expected[0].copy()
    x[0] = range(9)
    moved[0] = 0
    assert np.isnan(x[1:]).any()
    assert word_of(replace(trial, make=lambda: {"x": x}), moved) == "value"


def test_indices_of_equal_elements_of_a_window_are_ties():
    trial = trial_of("pool-least-int8")
    values, indices = trial.expected
    moved = indices.copy()
    moved[0, 0, 1, 1] += 2  # an equal element of the same window
    assert word_of(trial, values, moved) == "tie"
    moved[0, 0, 1, 1] -= 1  # between the elements of the window
    assert word_of(trial, values, moved) == "value"
    moved[0, 0, 1, 1] = indices[0, 0, -1, -1]  # in another window
    assert word_of(trial, values, moved) == "value"


def test_indices_of_a_library_may_begin_in_each_plane():
    trial = trial_of("many-planes")
    values, indices = trial.expected
    assert word_of(trial, values, indices % 6, library="torch") == "same"
    assert word_of(trial, values, indices % 6) == "value"


def test_kinds_are_those_of_the_data():
    chosen = [case for case in CASES if "pool" in case.id or "special" in case.id or "strid" in case.id][::7]
    kinds = {kind for trial in trials([*chosen, *LARGE_INDICES[:1]], UNDESCRIBED) for kind in trial.kinds}
    assert kinds >= set(KINDS) - {"none of these", "ceiling mode"}
    assert trial_of("ceil-padded").kinds == ("ceiling mode", "padding")
    assert trial_of("dilated").kinds == ("dilation",)


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
def test_the_last_of_repeated_places_wins(step, outcome, results_of):
    code, cases, _ = results_of(PLACES.format(step=step), "unpooled-")
    assert code == 0  # no document says which of several wins
    expected = {"unpooled-planes": "same", "unpooled-repeated": outcome, "unpooled-beyond": "refused"}
    assert expected.items() <= {name: case["outcome"] for name, case in cases.items()}.items()


def test_a_reproducer_has_one_region(results_of):
    _, cases, [difference] = results_of(PLACES.format(step=1), "roi-row-float32")
    assert cases["roi-row-float32"]["outcome"] == "value"
    *_, x, rois, output = difference["reproducer"].splitlines()
    assert rois == "rois = np.array([[0.0, 1.0, 1.0, 3.0, 2.0]], np.float32)"
    assert output.startswith("print(np.zeros((1, 1, 2, 3), x.dtype))  # right: [[[[")
    assert len(x) < len(f"x = np.array([[{np.arange(1.0, 37).reshape(6, 6).tolist()}]], np.float32)")


def test_a_step_of_quantized_elements_is_rounding(results_of):
    assert results_of(PLACES.format(step=1), "quantized-both")[1]["quantized-both"]["text"].startswith("a result of")
    trial = trial_of("quantized-both")
    assert all(trial.inputs[name].shape == () for name in ("x_scale", "x_zero_point", "y_scale", "y_zero_point"))
    words = [word_of(trial, trial.expected[0] - np.uint8(n)) for n in (0, 1, 2)]
    assert words == ["same", "rounding", "value"]


def test_reproducers_keep_views_and_special_values():
    numpy = library_of("numpy")
    assert any("as_strided(np.array(" in line for line in lines(trial_of("reduce-max-sample-4"), numpy))
    plain = replace(trial_of("argmax-of-rows"), make=lambda: {"x": np.array([[np.nan, np.inf, 1]], np.float32)})
    for trial in plain, *(trial_of(f"argmax-special-{name}-increasing") for name in ("float16", "float32", "float64")):
        *head, output = lines(trial, numpy)
        names = {}
        exec("\n".join(head), names)
        np.testing.assert_array_equal(names["x"], trial.inputs["x"])
        assert names["x"].tobytes() == trial.inputs["x"].tobytes()  # NaN with their signs and payloads
        assert output == "print(np.argmax(x, axis=1))"


def test_numpy_is_right_about_argmax(capsys):
    assert command.main(["numpy", "-k", "argmax-of"]) == 0
    output = capsys.readouterr().out
    assert output.startswith(f"numpy {np.__version__}, Python 3.")
    assert "\nCases: 4; 4 same.\nCases without a function in the library: " in output
    assert command.main(["numpy", "-k", "argmax-of", "--markdown"]) == 0
    assert "\n| argmax | all | 4 | 4 |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("library", "cases", "count"),
    [("numpy", "cumulative-", 12), ("cupy", "argmax-of", 4), ("array-api:numpy", "argmax-of", 4)],
)
def test_libraries_with_the_functions_of_numpy_are_right(library, cases, count, results_of, tmp_path, monkeypatch):
    """A module with the name of CuPy replaces it, because there is no GPU."""
    (tmp_path / "cupy.py").write_text("from numpy import *\nfrom numpy import asarray as asnumpy\n__version__ = 'fake'")
    monkeypatch.syspath_prepend(tmp_path)
    code, results, _ = results_of(library, cases)
    assert (code, len(results)) == (0, count)
    assert {result["outcome"] for result in results.values()} == {"same"}


def test_vulkan_is_verify(monkeypatch, capsys):
    calls = []
    monkeypatch.setattr(command.cli, "main", lambda argv: calls.append(argv) or 0)
    assert command.main(["vulkan:llvm"]) == 0
    assert calls == [["verify", "--all", "--device=llvm"]]
    assert command.main(["vulkan:llvm", "--json"]) == 2
    assert "no other options are allowed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("library", "error"),
    [
        ("nunpy", "'nunpy' is not allowed; allowed are numpy, torch[:DEVICE], onnxruntime[:PROVIDER], jax, cupy"),
        ("array-api:", "'array-api:' is not allowed"),
        ("array-api:a b", "'array-api:a b' is not allowed"),
        ("array-api:not_a_module", "array-api:not_a_module: ModuleNotFoundError: No module named 'not_a_module'"),
        ("numpy", "-k 'no such case': no case has this text"),
        ("missing.py", "missing.py: FileNotFoundError"),
    ],
)
def test_unknown_libraries_and_cases_are_refused(library, error, capsys):
    assert command.main([library, "-k", "no such case"]) == 2
    assert error in capsys.readouterr().err


@pytest.mark.parametrize("seconds", ["0", "nan", "inf", "soon"])
def test_seconds_are_positive(seconds, capsys):
    with pytest.raises(SystemExit, match="2"):
        command.main(["numpy", "--seconds", seconds])
    assert "is not allowed; allowed are numbers above 0" in capsys.readouterr().err


IMPORT = "from dmlgpu.testing.libraries import Library as L\n"


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("", "has no class of dmlgpu.testing.libraries.Library; allowed is one"),
        ("x = (", "SyntaxError"),
        ("import sys; sys.exit(0)", "SystemExit"),
        ("from dmlgpu.testing.libraries import Library, Numpy", "has no class"),
        (f"{IMPORT}class A(L): pass\nclass B(L): pass", "has 2 classes"),
        (f"{IMPORT}class A(L):\n def __init__(self): 1 / 0", "ZeroDivision"),
        (f"{IMPORT}class A(L): imports = 'import nothing'", "'nothing'"),
        (f"{IMPORT}class A(L):\n def reduce(self): 0", "A, of argmax-of-"),
    ],
)
def test_files_that_are_no_library_are_refused(content, error, written, capsys):
    assert command.main([written(content), "-k", "argmax-of"]) == 2
    assert error in capsys.readouterr().err


def test_a_reader_that_closes_the_pipe_ends_the_command_with_141():
    words = [sys.executable, "-m", "dmlgpu.testing", "numpy", "-k", "argmax-of-rows"]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.wait(60) == 141
        assert process.stderr.read() == b""
