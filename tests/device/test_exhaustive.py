"""The checks of `dmlgpu verify --exhaustive`: short types, and types of 32 bits where bits change in kind."""

import numpy as np
import pytest

from dmlgpu import ArgmaxOperatorDesc, ArgminOperatorDesc, DataType, Device, VerificationError
from dmlgpu.descriptors.tensor import bits
from dmlgpu.lowering.lower import lower
from dmlgpu.tools import exhaustive
from dmlgpu.tools.exhaustive import TYPES, Section, ascending, sections
from tests.support.limits import PLANNED


def each_type(types=TYPES):
    return pytest.mark.parametrize("data_type", types, ids=lambda data_type: data_type.name)


@pytest.mark.every_driver
@each_type()
def test_patterns_are_in_order(device, data_type):
    """A failure shows that the device, or `ascending`, is wrong."""
    for section in sections(data_type):
        if section.thorough:
            section.check(device)


@each_type([data_type for data_type in TYPES if data_type.bits <= 16])
def test_every_pattern_occurs_once(data_type):
    count = 1 << data_type.bits
    (section,) = sections(data_type)
    assert (section.begin, section.count, section.thorough) == (0, count, True)
    patterns = bits(ascending(data_type, 0, count + 1))
    assert sorted(patterns[:-1].tolist()) == list(range(count))
    assert patterns[0] == patterns[-1]


@each_type([DataType.FLOAT32, DataType.INT32, DataType.UINT32])
def test_sections_have_every_neighbour(data_type):
    whole = [section for section in sections(data_type) if not section.thorough]
    assert whole[0].begin == 0
    assert [a.begin + a.count for a in whole] == [*(b.begin for b in whole[1:]), 1 << 32]


def test_floats_are_checked_where_their_bits_change_in_kind():
    patterns = np.concatenate(
        [bits(ascending(DataType.FLOAT32, s.begin, s.count)) for s in sections(DataType.FLOAT32) if s.thorough]
    )
    magnitudes = [0, 1, 0x7FFFFF, 0x800000, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x7F7FFFFF, 0x7F800000, 0x7F800001]
    assert set(magnitudes) <= set(patterns.tolist())
    assert {sign | 0x80000000 for sign in (*magnitudes, 0x7FFFFFFF)} <= set(patterns.tolist())


@each_type()
def test_rows_are_long_enough_for_two_looks(data_type):
    rows = exhaustive._decided_by_one(ascending(data_type, 0, 9))
    (dispatch,) = lower(ArgmaxOperatorDesc.of(rows, (1,)), PLANNED["cpu"]).dispatches
    assert dispatch.shader.variant == "rows"
    assert not dispatch.shader.constants["short"]


@pytest.mark.parametrize("count", [68, 69, 200, 1 << 12])
def test_every_element_is_in_a_row(count):
    x = np.arange(count, dtype=np.float32)
    rows = exhaustive._rows(x)
    assert set(rows.flat) == set(x)
    assert (np.diff(rows) == 1).all()


def test_rows_are_decided_by_one():
    rows = exhaustive._decided_by_one(np.arange(10, 13, dtype=np.int32)).tolist()
    assert [len(row) for row in rows] == [68] * 4
    assert [row[i] for i, row in enumerate(rows)] == [11, 12, 10, 11]
    assert [{*row[:i], *row[i + 1 :]} for i, row in enumerate(rows)] == [{10}, {11}, {11}, {12}]


@pytest.mark.parametrize(
    ("section", "chosen", "right"),
    [
        (Section(DataType.FLOAT32, 0x7F800000, 4096, False), "0x00000000 (0.0) at 0", "0x00000001 (1e-45) at 1"),
        (Section(DataType.FLOAT32, 0, 4096, False), "0xFF800000 (-inf) at 0", "0xFF7FFFFF (-3.4028235e+38) at 1"),
        (Section(DataType.INT8, 0, 256, True), "0x80 (-128) at 0", "0x81 (-127) at 1"),
    ],
    ids=str,
)
def test_a_wrong_order_is_found(device, driver, monkeypatch, section, chosen, right):
    """The device itself computes the minimum."""
    compile_right = Device.compile

    def compile_wrong(self, desc, *, kernel=None):
        wrong = ArgminOperatorDesc(**vars(desc)) if isinstance(desc, ArgmaxOperatorDesc) else desc
        return compile_right(self, wrong, kernel=kernel)

    monkeypatch.setattr(Device, "compile", compile_wrong)
    with pytest.raises(VerificationError) as caught:
        section.check(device)
    first, second, plan = str(caught.value).split("\n", 2)
    assert first == f"ArgmaxOperatorDesc on device {driver.index}: {driver.name}, driver {driver.driver}:"
    assert second.startswith(f"it chose {chosen}, the reference {right}; ")
    assert "axis_direction=AxisDirection.INCREASING" in plan
