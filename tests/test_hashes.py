"""That results are the bits that docs/reliability.md says, on every driver and with every mapping."""

from pathlib import Path

import pytest

from tests import hashes
from tests.cases import ELEMENT_TYPES

TABLE = Path(__file__).parents[1] / "docs" / "reliability.md"


def documented(name, data_type):
    """The hash of an operator and a type."""
    begin = f"| {name} | {data_type.name} | "
    (line,) = (line for line in TABLE.read_text().splitlines() if line.startswith(begin))
    return line.removeprefix(begin).removesuffix(" |")


@pytest.mark.parametrize("name", hashes.OPERATORS)
@pytest.mark.parametrize("mapping", hashes.MAPPINGS)
def test_bits_are_those_of_the_table(driver, open_device, mapping, name):
    device = open_device(driver.index, hashes.limits_of(driver, mapping))
    for data_type in ELEMENT_TYPES:
        assert hashes.hash_of(hashes.results(device, name, data_type)) == documented(name, data_type)
