"""Kernels by name: those that can compute a case are exact; the others raise errors that tell why they cannot."""

import dataclasses
import functools
import re

import pytest

from dmlgpu import ArgmaxOperatorDesc, explain
from dmlgpu.comparison import check_outputs
from dmlgpu.lowering.limits import Limits
from dmlgpu.lowering.lower import DESCRIPTIONS, KERNELS, lower
from dmlgpu.lowering.problem import problems_of
from dmlgpu.testing.cases import CASES, FLOAT32, FLOAT64, UINT8, arg_desc, pool_desc
from tests.support.errors import refuses
from tests.support.limits import LIMITS, LOWERED

argmax = functools.partial(arg_desc, ArgmaxOperatorDesc)
ROWS = argmax(FLOAT32, (30, 50), [1])
COLUMNS = argmax(FLOAT32, (30, 50), [0])


# The kernel of each variant.
KERNEL_OF = {variant: kind.name for kinds in KERNELS.values() for kind in kinds for variant in kind.variants}


def kernels_of(desc, limits=LIMITS["CPU"]):
    """The kernels that can compute an operator, and the reasons why the others cannot."""
    problem = problems_of(desc.canonical())[0]
    kinds = [kind(problem, limits) for kind in KERNELS[type(problem.domain)]]
    return {kernel.name: kernel.why_impossible for kernel in kinds}


@functools.cache
def chosen():
    """For each kernel and width of elements, the first case that it can compute, but for which another is chosen."""
    cases = {}
    for case in CASES:
        usual = KERNEL_OF[lower(case.desc, LIMITS["CPU"]).dispatches[0].shader.variant]
        for name, why in kernels_of(case.desc).items():
            if name != usual and not why:
                cases.setdefault(name, {}).setdefault(case.desc.inputs[0].data_type.bits, case)
    return cases


NOT_FIRST = [
    *("reduce", "pool_small", "pool_separable", "pool_direct"),
    *("pool_backward_small", "pool_backward_separable", "pool_backward"),
]


@pytest.mark.parametrize("name", NOT_FIRST)
def test_a_kernel_by_name_computes_exactly(any_device, name):
    for case in chosen()[name].values():
        if why := kernels_of(case.desc, any_device.limits)[name]:
            # Tensors in several segments leave little choice.
            refuses(re.escape(why), any_device.compile, case.desc, kernel=name)
            continue
        operator = any_device.compile(case.desc, kernel=name)
        assert any_device.limits is LOWERED or KERNEL_OF[operator.plan.dispatches[0].shader.variant] == name
        outputs = operator(*case.inputs())
        check_outputs(operator.plan, case.inputs(), outputs if isinstance(outputs, tuple) else (outputs,))


def test_kernels_that_are_not_the_first_choice_are_tested():
    assert chosen().keys() == {*NOT_FIRST}


@pytest.mark.parametrize("limits", [LIMITS["CPU"], LOWERED], ids=["full", "lowered"])
@pytest.mark.parametrize("name", ["rows", "reduce"])
def test_the_kernel_is_in_the_plan(name, limits):
    plan = lower(ROWS, limits, name)
    assert plan.dispatches[0].shader.variant in {name, "reduce"}
    if limits is not LOWERED:
        assert [dispatch.shader.variant for dispatch in plan.dispatches] == [name]
        assert plan.kernel_choice[0] == f"{name}: {DESCRIPTIONS[name]}"


def test_operators_with_different_kernels_are_remembered_apart(device):
    operators = [device.compile(ROWS, kernel=name) for name in (None, "rows", "reduce")]
    assert len(set(operators)) == 3
    assert device.compile(ROWS, kernel="reduce") is operators[2]
    assert explain(ROWS, device=device, kernel="reduce") is operators[2].plan
    assert explain(ROWS, device=device) is operators[0].plan


@pytest.mark.parametrize(
    ("desc", "name", "why"),
    [
        (ROWS, "columns", "because the elements of neighbouring outputs are not adjacent; allowed are"),
        (ROWS, "pool_small", "it; allowed are rows, reduce"),
        (ROWS, "", "it; allowed are rows, reduce"),
        (ROWS, 3, "it; allowed are rows, reduce"),
        (arg_desc(ArgmaxOperatorDesc, FLOAT32, (3, 4, 5), [0, 2]), "rows", "are not contiguous; allowed are reduce"),
        (
            arg_desc(ArgmaxOperatorDesc, UINT8, (30, 15), [1]),
            "rows",
            "an output has 15 elements, fewer than a vector of 16",
        ),
        (
            arg_desc(ArgmaxOperatorDesc, UINT8, (30, 15), [0]),
            "columns",
            "a row has 15 outputs, fewer than a vector of 16",
        ),
        (arg_desc(ArgmaxOperatorDesc, FLOAT32, (1, 15), [0]), "columns", "an output has one element"),
        (arg_desc(ArgmaxOperatorDesc, FLOAT32, (3, 4, 5), [0, 2]), "columns", "have several strides; allowed are"),
        (
            pool_desc(FLOAT32, (1, 1, 40, 20), (32, 2)),
            "pool_small",
            "larger than 31 along a dimension; allowed are pool_separable, pool_direct",
        ),
        (pool_desc(FLOAT32, (1, 1, 40, 99), (2, 2), (2, 21)), "pool_small", "loads 65 elements of a row, more than 64"),
        (
            pool_desc(FLOAT64, (1, 1, 40, 99), (2, 12), None, (0, 33), (0, 33), (1, 3)),
            "pool_small",
            "the padding before a row has 33 elements, more than 32",
        ),
    ],
    ids=str,
)
def test_a_kernel_that_cannot_compute_it_tells_why(desc, name, why):
    message = f"^{type(desc).__name__}: kernel .* cannot compute .*{re.escape(why)}(?![\\w,])"
    refuses(message, lower, desc, Limits(1 << 27, 64, 16), name)


def test_a_plan_has_the_reasons_against_other_kernels():
    assert [line for line in lower(COLUMNS, LIMITS["CPU"]).kernel_choice if line.startswith("not ")] == [
        "not rows: the elements of an output are not contiguous"
    ]
    for mapping, window, why in (
        ("CPU", (10, 2), "the window has more than 81 elements, or 9 along a dimension"),
        ("CPU", (5, 5, 5), "the window has more than 81 elements, or 9 along a dimension"),
        ("GPU", (10, 2), "the window is larger than 9 along a dimension"),
    ):
        pooled = pool_desc(FLOAT32, (1, 1, *(20,) * len(window)), window)
        assert (
            f"not pool_small: {why}" in lower(pooled, dataclasses.replace(LIMITS[mapping], unrolls=True)).kernel_choice
        )
    # Windows with little in common.
    far = pool_desc(FLOAT32, (1, 1, 60, 60), (13, 13), strides=(13, 13))
    assert lower(far, dataclasses.replace(LIMITS["CPU"], unrolls=True)).kernel_choice[0].startswith("pool_small:")
    spread = pool_desc(UINT8, (1, 1, 40, 86), (2, 7), None, None, None, (1, 9))
    assert (
        "not pool_small: an invocation would need more than 110 registers" in lower(spread, LIMITS["GPU"]).kernel_choice
    )
