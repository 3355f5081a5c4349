"""`python -m dmlgpu.testing` with PyTorch, ONNX Runtime, JAX and array_api_strict."""

import json

import numpy as np
import pytest

from dmlgpu.testing import __main__ as command
from dmlgpu.testing.cases import CASES
from dmlgpu.testing.isolated import Isolated
from dmlgpu.testing.libraries import library_of
from dmlgpu.testing.outcomes import judge
from dmlgpu.testing.trials import trials

# A case of each function that a library has, whose values all documents agree on.
AGREED = {
    "argmax-of-rows",
    "argmin-of-columns",
    "average-padding-small-float32",
    "average-small-float32",
    "cumulative-product-0-decreasing-true",
    "cumulative-product-1-increasing-false",
    "cumulative-sum-1-decreasing-false",
    "cumulative-sum-1-increasing-false",
    "dilated",
    "dilated-stride-2-ceil",
    "forward-of-the-gradient-example",
    "gradient-maxima-global-float32",
    "gradient-shares-global-float32",
    "last-of-equal-maxima",
    "lp-2-separable-float32",
    "many-planes",
    "no-indices-ceil",
    "quantized-both",
    "reduce-average-float32-rows",
    "reduce-l2-float32-rows",
    "reduce-log-sum-exp-float32-rows",
    "reduce-max-float32-rows",
    "reduce-sum-int32-rows",
    "roi-all-float32",
    "top-k-columns",
    "unpooled-planes",
    "window-1-stride-3",
}


@pytest.mark.parametrize(
    ("name", "least"), [("torch", 17), ("onnxruntime", 20), ("jax", 11), ("array-api:array_api_strict", 8)]
)
def test_every_library_is_right_about_cases_that_documents_define(name, least):
    library, counts = library_of(name), 0
    with Isolated(library.imports, library.to_numpy, 100) as child:
        for trial in trials([case for case in CASES if case.id in AGREED], []):
            program = trial.program(library)
            if program is not None and (trial.inputs["x"].dtype == np.float32 or "x_scale" in trial.inputs):
                assert judge(trial, child.run(program, trial.inputs), library).word == "same", trial.id
                counts += 1
    assert counts >= least


@pytest.mark.parametrize(
    ("name", "cases"),
    [("torch", "top-k-type"), ("onnxruntime", "special-float32"), ("jax", "special-without-nan-float32")],
)
def test_reproducers_need_the_library_alone(name, cases, capsys):
    command.main([name, "-k", cases, "--json"])
    report = json.loads(capsys.readouterr().out)
    programs = {difference["reproducer"] for difference in report["differences"]}
    assert (report["library"].startswith(f"{name} "), len(programs) > 1) == (True, True)
    with Isolated("import sys; sys.modules['dmlgpu'] = None", "result", 100) as child:
        for program in programs:
            assert len(program.splitlines()) <= 5
            # No program sees the names of another one.
            child.run(f"exec({program!r}, {{}})\n()", {})


def test_a_write_outside_of_memory_is_an_error():
    """PyTorch 2.13 writes the gradient of windows that lie wholly in the padding."""
    assert command.main(["torch", "-k", "padding-alone"]) == 1
