"""Every kernel on every driver, mapped as on CPUs, as on a GPU, and with split tensors; with every type in one mapping.

Few cases cover all of these, so that a GPU that is available for minutes can run them first.
"""

import dataclasses
import re

import pytest

import dmlgpu
from dmlgpu.registry import OPERATORS
from dmlgpu.runtime import spirv
from dmlgpu.testing.cases import ELEMENT_TYPES, INDEX_TYPES
from tests.support.limits import CORES, MAPPINGS, limits_of
from tests.support.plans import EXTREMUM, OF_A_CPU, OF_A_GPU, OF_GATHERS, by_operator, chosen, covered, of_operator

pytestmark = pytest.mark.every_driver


@by_operator
@pytest.mark.parametrize("mapping", MAPPINGS)
def test_mapping_equals_reference(driver, open_device, mapping, operator):
    device = open_device(driver.index, limits_of(driver, mapping))
    for case in of_operator(operator, chosen(mapping)):
        dmlgpu.verify(case.desc, *case.inputs(), flags=case.flags, device=device)


def test_chosen_cases_cover_every_kernel_and_type():
    coverage = {mapping: set().union(*(covered(case, mapping) for case in chosen(mapping))) for mapping in MAPPINGS}
    # Modules that no chosen case runs with split tensors: other mappings run them.
    short = "|".join(
        (
            r"columns_(sum|exact|squares|product|logsumexp)",
            r"pool_small_wide_",
            r"pool_separable_columns_selection_(16|32|64)|pool_backward_small_maxima_sum_",
            r"top_k_sort_long_",  # an item has more loads than these limits allow
            r"scan_columns_((cumulative|product)_16|exact_32)",
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
        assert coverage[mapping] & layouts == {name for name in layouts if not re.match(others, name)}
        assert {EXTREMUM, *(operator.name for operator in OPERATORS)} <= coverage[mapping]
    with_types = {key for keys in coverage.values() for key in keys if isinstance(key, tuple)}
    assert {module for module, _ in with_types} & layouts == layouts
    assert {data_type for _, (tensor, data_type) in with_types if tensor == 0} == set(ELEMENT_TYPES)
    assert {data_type for _, (tensor, data_type) in with_types if tensor == 1} >= set(INDEX_TYPES)


def test_mappings_of_a_gpu_are_those_of_any_device(driver):
    """On a GPU, kernels for a CPU are run too."""
    gpu = dataclasses.replace(driver, type="discrete")
    for info in (driver, gpu):
        assert not limits_of(info, "CPU").cooperating
        assert limits_of(info, "GPU").cooperating
    assert limits_of(gpu, "CPU") == limits_of(driver, "CPU")
