"""Every kernel with every type on every driver, mapped as on CPUs, as on a GPU, and with split tensors.

Few cases, chosen so that nothing is left out: what a GPU that is there for minutes computes first.
"""

import dataclasses
import re

import pytest

import dmlgpu
from dmlgpu.runtime import spirv
from dmlgpu.tools.registry import OPERATORS
from tests.support.cases import ELEMENT_TYPES, INDEX_TYPES
from tests.support.limits import CORES, LIMITS, MAPPINGS, limits_of
from tests.support.plans import OF_A_CPU, OF_A_GPU, OF_GATHERS, by_operator, chosen, covered, of_operator

pytestmark = pytest.mark.every_driver


@by_operator
@pytest.mark.parametrize("mapping", MAPPINGS)
def test_mapping_equals_reference(driver, open_device, mapping, operator):
    device = open_device(driver.index, limits_of(driver, mapping))
    for case in of_operator(operator, chosen(mapping)):
        dmlgpu.verify(case.desc, *case.inputs(), flags=case.flags, device=device)


def test_chosen_cases_cover_every_kernel_and_type():
    found = {mapping: set() for mapping in MAPPINGS}
    for mapping in MAPPINGS:
        for case in chosen(mapping):
            found[mapping] |= covered(case, LIMITS[mapping])
    # Split tensors are combined of partials, for which others have what they need.
    short = "|".join(
        (
            r"columns_(wide_)?(sum_16|exact|squares|product|logsumexp)",
            r"columns_wide_(integer|sum|selection_64)",
            r"pool_small_wide_",
            r"pool_separable_columns_selection_",
            r"top_k_sort_long_",  # an item has more loads than these limits allow
            r"scan_columns_(cumulative|product)_16",
            r"scan_states_\w+_(32|64)",
        )
    )
    others_of = {
        **dict.fromkeys(("CPU", *CORES), f"{OF_A_GPU}|{OF_GATHERS}"),
        "GPU": f"{OF_A_CPU}|{OF_GATHERS}",
        "split": f"{OF_A_GPU}|{short}",
    }
    # Sums of short integers have tests of their own: test_reduce.py over axes, test_quantized.py over windows.
    layouts = {name for name in spirv.layouts() if not name.endswith(("_integer_8", "_integer_16"))}
    for mapping, others in others_of.items():
        kernels = {name for name, *_ in found[mapping]} & layouts
        assert kernels == {name for name in layouts if not re.match(others, name)}
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
