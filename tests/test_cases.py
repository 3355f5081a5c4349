"""Every case of cases.py on every device, bit for bit."""

import collections

import numpy as np
import pytest

import dmlgpu
from tests.cases import CASES, DOCUMENTED, Case


def by_id(cases: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.id)


@by_id(DOCUMENTED)
def test_device_gives_what_the_documents_say(any_device, case):
    outputs = any_device.compile(case.desc)(*case.inputs())
    for got, expected in zip(outputs if isinstance(outputs, tuple) else (outputs,), case.expected, strict=True):
        assert got.tolist() == expected


@by_id(CASES)
def test_device_equals_reference(any_device, case):
    dmlgpu.verify(case.desc, *case.inputs(), device=any_device)


@by_id(DOCUMENTED)
def test_reference_gives_what_the_documents_say(case):
    for got, expected in zip(dmlgpu.reference(case.desc, *case.inputs()), case.expected, strict=True):
        assert got.tolist() == expected


def test_ids_are_unique_within_every_operator():
    counts = collections.Counter((type(case.desc), case.id) for case in CASES)
    assert counts.most_common(1)[0][1] == 1


def test_inputs_are_the_same_every_time():
    for case in CASES:
        for first, second in zip(case.inputs(), case.inputs(), strict=True):
            assert np.array_equal(first.view(f"u{first.itemsize}"), second.view(f"u{second.itemsize}"))
