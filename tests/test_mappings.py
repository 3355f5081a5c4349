"""Every kernel with every type on every driver, mapped as on CPUs, as on a GPU, and with split tensors.

Few cases, chosen so that nothing is left out: what a GPU that is there for minutes computes first.
"""

import dataclasses
import re

import pytest

import dmlgpu
from dmlgpu.lowering.limits import Limits
from dmlgpu.lowering.lower import lower
from dmlgpu.runtime import spirv
from dmlgpu.tools.registry import OPERATORS
from tests.cases import CASES, ELEMENT_TYPES, INDEX_TYPES
from tests.conftest import CORES, LOWERED, MAPPINGS, limits_of

# Modules that only a GPU, or only a CPU, takes.
OF_A_GPU = re.compile(r"\w+_lanes_")
OF_A_CPU = re.compile(r"(rows|columns|combine)_(?!\w*lanes)")

# Like those of any device.
LIMITS = {
    "CPU": Limits(segment_bytes=1 << 27, group_size=64, group_count=16, bundle=8),
    **{name: Limits(1 << 27, group_size=64, group_count=4 * cores, bundle=8) for name, cores in CORES.items()},
    "GPU": Limits(1 << 27, group_size=64, group_count=16, bundle=1024, cooperating=True, least_loads=16),
    "split": LOWERED,
}


def covered(case, limits):
    """What a case is a test of: kernels, each with the operator and the types of the input and the outputs."""
    types = [tensor.data_type for tensor in (*case.desc.inputs, *case.desc.outputs)]
    modules = {dispatch.shader.module for dispatch in lower(case.desc, limits).dispatches}
    (operator,) = (operator.name for operator in OPERATORS if operator.describes(case.desc))
    return {(module, *types) for module in modules} | {(operator, types[0])}


def chosen(mapping):
    """The first case of everything that CASES cover."""
    cases, done = [], set()
    for case in CASES:
        new = covered(case, LIMITS[mapping]) - done
        if new:
            cases.append(case)
            done |= new
    return cases


CHOSEN = {mapping: chosen(mapping) for mapping in MAPPINGS}


@pytest.mark.parametrize(
    ("mapping", "case"),
    [
        pytest.param(mapping, case, id=f"{mapping}-{type(case.desc).__name__}-{case.id}")
        for mapping, cases in CHOSEN.items()
        for case in cases
    ],
)
def test_mapping_equals_reference(driver, open_device, mapping, case):
    device = open_device(driver.index, limits_of(driver, mapping))
    dmlgpu.verify(case.desc, *case.inputs(), device=device)


def test_chosen_cases_cover_every_kernel_and_type():
    found = {mapping: set() for mapping in MAPPINGS}
    for mapping, cases in CHOSEN.items():
        for case in cases:
            found[mapping] |= covered(case, LIMITS[mapping])
    # Split tensors are combined of records, for which others have what they need.
    short = "|".join(
        (
            r"pool_blocks_(sum|selection_(8|16))",
            r"columns_(wide_)?(sum|product|logsumexp|integer_64)",
            r"columns_wide_(integer_32|selection_64)",
        )
    )
    others_of = {
        "CPU": OF_A_GPU,
        **dict.fromkeys(CORES, OF_A_GPU),
        "GPU": OF_A_CPU,
        "split": re.compile(f"{OF_A_GPU.pattern}|{short}"),
    }
    for mapping, others in others_of.items():
        kernels = {name for name, *_ in found[mapping]} & set(spirv.modules())
        assert kernels == {name for name in spirv.modules() if not others.match(name)}
    for keys in found.values():
        assert {operator.name for operator in OPERATORS} <= {name for name, *_ in keys}
        assert {source for _, source, *_ in keys} == set(ELEMENT_TYPES)
        assert {key[2] for key in keys if len(key) == 3} >= set(INDEX_TYPES)


def test_mappings_of_a_gpu_are_those_of_any_device(driver):
    """On a GPU, kernels for a CPU are run too."""
    gpu = dataclasses.replace(driver, type="discrete")
    for info in (driver, gpu):
        assert not limits_of(info, "CPU").cooperating
        assert limits_of(info, "GPU").cooperating
    assert limits_of(gpu, "CPU") == limits_of(driver, "CPU")
