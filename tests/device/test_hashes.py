"""That results are the bits that docs/reliability.md says, on every driver and with every mapping."""

import pytest

from dmlgpu.tools.registry import CANONICAL
from tests import hashes
from tests.support.limits import MAPPINGS, limits_of
from tests.support.processes import ROOT

TABLE = ROOT / "docs" / "reliability.md"


def documented(name, data_type):
    """The hash of an operator and a type."""
    begin = f"| {name} | {data_type.name} | "
    (line,) = (line for line in TABLE.read_text().splitlines() if line.startswith(begin))
    return line.removeprefix(begin).removesuffix(" |")


@pytest.mark.parametrize("operator", CANONICAL, ids=lambda operator: operator.name)
# SwiftShader has one mapping here, and all against the oracle in test_mappings.py.
@pytest.mark.parametrize("mapping", [pytest.param("CPU", marks=pytest.mark.every_driver), *MAPPINGS[1:]])
def test_bits_are_those_of_the_table(driver, open_device, mapping, operator):
    device = open_device(driver.index, limits_of(driver, mapping))
    for data_type, flags in hashes.exact_types(operator):
        results = hashes.results(device, operator, data_type, flags)
        assert hashes.hash_of(results) == documented(hashes.title(operator, flags), data_type)
