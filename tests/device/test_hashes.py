"""Results have the hashes of docs/reliability.md on every driver; test_mappings.py compares the mappings."""

import pytest

import dmlgpu
from dmlgpu.registry import CANONICAL
from tests import hashes
from tests.support.processes import ROOT

TABLE = ROOT / "docs" / "reliability.md"
by_operator = pytest.mark.parametrize("operator", CANONICAL, ids=lambda operator: operator.name)


def check(run, operator):
    for data_type, flags in hashes.exact_types(operator):
        begin = f"| {hashes.title(operator, flags)} | {data_type.name} | "
        (line,) = (line for line in TABLE.read_text().splitlines() if line.startswith(begin))
        results = hashes.results(run, operator, data_type, flags)
        assert hashes.hash_of(results) == line.removeprefix(begin).removesuffix(" |")


@pytest.mark.every_driver
@by_operator
def test_bits_are_those_of_the_table(device, operator):
    check(device.run, operator)


@by_operator
def test_bits_of_the_oracle_are_those_of_the_table(operator):
    check(lambda desc, inputs, flags: dmlgpu.reference(desc, *inputs, flags=flags), operator)
