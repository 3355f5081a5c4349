"""TensorDesc: sizes, strides, bytes and overlap."""

import itertools
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlgpu import DataType, TensorDesc
from dmlgpu.descriptors.tensor import packed_strides
from dmlgpu.testing.cases import FLOAT16, FLOAT32, INT8, INT64, NO_END, UINT8, UINT16, UINT32
from tests.support.errors import refuses


@pytest.mark.parametrize(
    ("data_type", "sizes", "strides", "size_in_bytes"),
    [
        # Results of DMLCalcBufferTensorSize.
        (FLOAT16, (1, 1, 1, 5), None, 12),
        (FLOAT32, (1, 1, 1, 5), (5, 5, 5, 0), 4),
        (UINT8, (3,), None, 4),
        (FLOAT32, (1, 1, 2, 3), (0, 0, 8, 1), 44),
        (INT64, (3, 1), (2, 2), 40),
        # Other values, by its definition.
        (UINT16, (2, 3), (1, 2), 12),
        (UINT16, (2, 3), (1, 3), 16),
        (DataType.UINT4, (3,), None, 4),
        (DataType.INT4, (9,), None, 8),
        (UINT8, (2**32 - 1,), None, 2**32),
        (INT64, (2**32 - 1,), None, 8 * (2**32 - 1)),
        (UINT8, (2, 2), (2**32 - 3, 1), 2**32),
    ],
)
def test_the_minimum_size_is_that_of_directml(data_type, sizes, strides, size_in_bytes):
    assert TensorDesc(data_type, sizes, strides).minimum_size_in_bytes == size_in_bytes
    assert TensorDesc(data_type, sizes, strides).size_in_bytes == size_in_bytes


@pytest.mark.parametrize(("sizes", "stride"), [((2,), 2**32 - 2), ((3,), 2**31 - 1), ((2, 2), 2**32 - 3)], ids=str)
def test_a_tensor_reaches_at_most_2_to_the_32_minus_1_elements_far(sizes, stride):
    strides = (stride, *(1,) * (len(sizes) - 1))
    assert TensorDesc(UINT8, sizes, strides).reach == 2**32 - 1
    refuses("reach 42949672.. elements far", TensorDesc, UINT8, sizes, (stride + 1, *strides[1:]))


@pytest.mark.parametrize(
    ("sizes", "strides"),
    [((7,), (1,)), ((2, 3), (3, 1)), ((4, 1, 5), (5, 5, 1)), ((2,) * 8, (128, 64, 32, 16, 8, 4, 2, 1))],
)
def test_packed_strides_are_those_of_row_major_order(sizes, strides):
    packed = TensorDesc(FLOAT32, sizes)
    assert (packed.strides, packed.element_strides) == (None, strides)
    assert packed.is_packed
    assert TensorDesc(FLOAT32, sizes, strides).is_packed
    for strides in ((8, 1), (1, 2), (0, 1), (3, 2)):
        assert not TensorDesc(FLOAT32, (2, 3), strides).is_packed


@pytest.mark.parametrize("strides", [(3, 1, 1), (0, 1, 0), (9999, 1, 12345)])
def test_strides_of_dimensions_of_size_1_do_not_matter(strides):
    desc = TensorDesc(FLOAT32, (1, 3, 1), strides)
    assert desc.is_packed
    assert not desc.overlaps
    assert desc.minimum_size_in_bytes == 12
    assert desc.layout == TensorDesc(FLOAT32, (1, 3, 1)).layout


def test_a_tensor_prints_as_python():
    assert repr(TensorDesc(FLOAT32, (2, 3))) == "TensorDesc(DataType.FLOAT32, (2, 3))"
    assert (
        str(TensorDesc(UINT8, [2, 3], [8, 1], 64))
        == "TensorDesc(DataType.UINT8, (2, 3), strides=(8, 1), total_tensor_size_in_bytes=64)"
    )


def test_tensors_are_equal_if_their_fields_are():
    desc = TensorDesc(FLOAT32, (2, 3))
    assert desc == TensorDesc(FLOAT32, [2, 3])
    assert len({desc, TensorDesc(FLOAT32, [2, 3]), TensorDesc(1, range(2, 4))}) == 1
    others = [
        TensorDesc(FLOAT16, (2, 3)),
        TensorDesc(FLOAT32, (3, 2)),
        TensorDesc(FLOAT32, (2, 3), (3, 1)),
        TensorDesc(FLOAT32, (2, 3), None, 24),
    ]
    assert len({desc, *others}) == 5


def test_fields_become_plain_integers():
    desc = TensorDesc(np.int32(1), np.array([2, 3], np.uint8), np.array([0, 1]), np.int64(1000))
    assert desc.data_type is FLOAT32
    assert {type(n) for n in (*desc.sizes, *desc.strides, desc.total_tensor_size_in_bytes)} == {int}
    assert (desc.rank, desc.element_count, desc.reach) == (2, 6, 3)
    assert (desc.size_in_bytes, desc.minimum_size_in_bytes) == (1000, 12)


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.zeros((2, 3), np.float32), TensorDesc(FLOAT32, (2, 3))),
        (np.zeros((2, 3), ">f2"), TensorDesc(FLOAT16, (2, 3))),
        (np.zeros((1, 3, 1), np.float32)[:, :, ::-1], TensorDesc(FLOAT32, (1, 3, 1))),
        (np.zeros((3, 2), np.float32).T, TensorDesc(FLOAT32, (2, 3), (1, 2))),
        (np.zeros((4, 6), np.int8)[::2, ::3], TensorDesc(INT8, (2, 2), (12, 3))),
        (np.broadcast_to(np.float32(0), (2, 3)), TensorDesc(FLOAT32, (2, 3), (0, 0))),
        (np.zeros((2, 3, 4), np.uint16)[:, :1], TensorDesc(UINT16, (2, 1, 4), (12, 4, 1))),
        ([1.5, 2.5], TensorDesc(DataType.FLOAT64, (2,))),
    ],
)
def test_an_array_has_a_descriptor(array, expected):
    assert TensorDesc.of(array) == expected


def addresses(desc: TensorDesc) -> list[int]:
    return [
        sum(i * stride for i, stride in zip(at, desc.element_strides, strict=True))
        for at in itertools.product(*map(range, desc.sizes))
    ]


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 40)), min_size=1, max_size=5))
@settings(derandomize=True, max_examples=1000, deadline=None)
def test_overlap_and_reach_are_exact(dims):
    desc = TensorDesc(UINT32, *zip(*dims, strict=True))
    assert desc.overlaps == (len(set(addresses(desc))) < desc.element_count)
    assert desc.reach == max(addresses(desc)) + 1


@pytest.mark.parametrize(("stride", "overlaps"), [(999_999, True), (1_000_000, False), (1_000_001, False)])
def test_overlap_of_large_tensors_is_exact(stride, overlaps):
    # The two inner dimensions reach from 0 to 999,999.
    assert TensorDesc(FLOAT32, (1000, 1000, 1000), (1, 1000, stride)).overlaps == overlaps


@pytest.mark.parametrize("strides", [(46_340, 46_339), (46_339, 46_337)])
def test_overlap_of_two_dimensions_is_always_known(strides):
    """The dimensions are the longest that interleave; from a multiple of both strides on they overlap."""
    for sizes in itertools.product((46_336, 46_340, 46_341), repeat=2):
        assert TensorDesc(UINT8, sizes, strides).overlaps is (sizes[0] > strides[1] and sizes[1] > strides[0])


def test_overlap_that_takes_too_long_to_find_is_unknown():
    """The search is limited by its steps, here executed lines, not by time."""
    desc, lines = TensorDesc(UINT8, (1, 8, 8, 8, 8, 8, 8, 8), NO_END), itertools.count()

    def trace(frame, event, arg):
        assert next(lines) < 1 << 20
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        overlaps = desc.overlaps
    finally:
        sys.settrace(before)
    assert overlaps is None


def test_dimensions_whose_strides_exceed_the_reach_of_smaller_ones_do_not_overlap():
    for order in itertools.permutations((1, 8, 8**2, 8**3, 8**4)):
        assert TensorDesc(UINT8, (8,) * 5, order).overlaps is False
    assert TensorDesc(UINT8, (8,) * 8, packed_strides((9,) * 8)).overlaps is False
