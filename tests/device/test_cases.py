"""Every case of cases.py on every device, bit for bit."""

import collections
import functools
from itertools import chain

import numpy as np
import pytest

import dmlgpu
from dmlgpu.lowering.limits import Limits
from dmlgpu.testing.cases import (
    CASES,
    DOCUMENTED,
    EXACT,
    FEW_OUTPUTS,
    GRADIENTS,
    LARGE_INDICES,
    POOLED_TYPES,
    REDUCED,
    REDUCTIONS,
    SAMPLES,
    SPECIAL_ARGS,
    SUMMED_WINDOWS,
    TYPE_PAIRS,
    Case,
)
from tests.support.plans import modules_of, of_operator


def by_id(cases: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.id)


@pytest.mark.every_driver
def test_device_computes_what_the_documents_say(any_device):
    for case in DOCUMENTED:
        outputs = any_device.compile(case.desc)(*case.inputs())
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        assert [output.tolist() for output in outputs] == [*case.expected], case.id


# test_mappings.py chooses from the others: there each kernel has each type.
OTHERS = {*TYPE_PAIRS, *REDUCTIONS, *REDUCED, *SUMMED_WINDOWS, *GRADIENTS, *POOLED_TYPES, *SAMPLES, *EXACT}
OWN = [case for case in CASES if case not in OTHERS and case not in DOCUMENTED]


@by_id(OWN)
def test_device_equals_reference(device, case):
    dmlgpu.verify(case.desc, *case.inputs(), device=device)


@by_id([*LARGE_INDICES, *FEW_OUTPUTS])
def test_outputs_of_many_elements_equal_reference(device, case):
    dmlgpu.verify(case.desc, *case.inputs(), device=device)


@by_id([case for case in OWN if case not in SPECIAL_ARGS])
def test_device_with_lowered_limits_equals_reference(lowered, case):
    dmlgpu.verify(case.desc, *case.inputs(), device=lowered)


@functools.cache
def together():
    """The cases whose outputs several invocations compute together.

    Some shaders differ only in what `test_mappings.py` has each of: kinds of numbers, maxima and minima. The cases have
    the first of these shaders.
    """
    limits = Limits(segment_bytes=1 << 30, group_size=64, group_count=16, cooperating=True)
    operators = (of_operator(name, OWN) for name in ("ARGMAX", "ARGMIN", "EXTREMUM"))
    cases = [case for case in chain(*operators) if any("_cooperating_" in name for name in modules_of(case, limits))]
    shaders = {case: {dispatch.shader for dispatch in case.plan(limits).dispatches} for case in cases}
    firsts = {}
    for shader in chain(*shaders.values()):
        values = dict(shader.constants.items()) | {"number_kind": 0, "minimum": False}
        firsts.setdefault((shader.module, *sorted(values.items())), shader)
    chosen = [case for case in cases if shaders[case] <= {*firsts.values()}]
    assert set().union(*(shaders[case] for case in chosen)) == {*firsts.values()}
    return chosen


@pytest.mark.parametrize("operator", ["ARGMAX", "ARGMIN", "EXTREMUM"])
def test_mapping_of_a_gpu_equals_reference(cooperating, operator):
    for case in of_operator(operator, together()):
        dmlgpu.verify(case.desc, *case.inputs(), device=cooperating)


def test_reference_computes_what_the_documents_say():
    for case in DOCUMENTED:
        outputs = dmlgpu.reference(case.desc, *case.inputs())
        assert [output.tolist() for output in outputs] == [*case.expected], case.id


def test_ids_are_unique_within_every_operator():
    counts = collections.Counter((type(case.desc), case.id) for case in CASES)
    assert counts.most_common(1)[0][1] == 1


def test_inputs_are_the_same_every_time():
    for case in CASES:
        for first, second in zip(case.inputs(), case.inputs(), strict=True):
            assert np.array_equal(first.view(f"u{first.itemsize}"), second.view(f"u{second.itemsize}"))
