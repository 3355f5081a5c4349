"""Unpooling: elements with the same index, indices out of range, and the function."""

import dataclasses
import itertools

import numpy as np
import pytest

import dmlgpu
from dmlgpu import MaxUnpoolingOperatorDesc, TensorDesc, max_unpooling, verify
from dmlgpu.lowering.kernels.scatter import Scatter
from dmlgpu.lowering.limits import Limits
from dmlgpu.lowering.lower import lower
from dmlgpu.lowering.plan import Values
from dmlgpu.testing.cases import ELEMENT_TYPES, FLOAT32, UINT8, UINT32
from dmlgpu.testing.fills import any_bits, arranged
from tests.support.drivers import discrete, opened_as
from tests.support.limits import LOWERED, limits_of


@pytest.mark.every_driver
def test_the_last_of_elements_with_one_index_stays(driver, open_device):
    """The two elements of each index are far apart, in ranges that invocations process at the same time."""
    device = open_device(driver.index, dataclasses.replace(limits_of(driver, "CPU"), simd_width=1))
    to = np.random.default_rng(0).permutation(np.arange(70_000) % 35_000)
    many = np.arange(70_000, 0, -1, dtype=np.float32)
    expected = np.zeros(35_000, np.float32)
    expected[to] = many  # the last assignment counts
    result = max_unpooling(many.reshape(1, 1, 100, 700), to.reshape(1, 1, 100, 700), (50, 700), device=device)
    assert np.array_equal(result.reshape(-1), expected)


@pytest.mark.every_driver
@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.uint32, ">i8", ">u8"])
def test_indices_out_of_range_are_left_out(any_device, dtype):
    """All 64 bits of an index count: 2^32 is not 0."""
    beyond = [2**32 - 1, 12, 13] if dtype == np.uint32 else [2**32, 2**32 + 11, 2**63 - 1]
    x = np.arange(1, 13, dtype=np.float32).reshape(1, 3, 2, 2)
    indices = np.array([0, 11, 3, *beyond * 3], dtype).reshape(x.shape)
    if np.dtype(dtype).kind == "i":
        indices[0, 2] = [[-1, -(2**63)], [-12, -(2**32)]]
    result = max_unpooling(x, indices, (1, 3, 2, 2), device=any_device).reshape(-1)
    assert result.tolist() == [1, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 2]


@pytest.mark.parametrize("data_type", ELEMENT_TYPES, ids=lambda data_type: data_type.name.lower())
def test_bits_of_any_type_and_layout(mapped, data_type):
    rng = np.random.default_rng(1)
    for sizes, output, source, target, places in (
        ((2, 3, 5, 7), (6, 9), None, None, None),
        ((1, 2, 4, 9), (9, 5), (100, 1, 20, 2), (1, 2, 4, 40), None),
        ((2, 1, 6, 5), (4, 4), (0, 0, 5, 1), (70, 70, 9, 2), (1, 1, 2, 12)),
        ((2, 2, 3, 3), (1, 1), None, (8, 4, 4, 1), (0, 0, 3, 1)),
    ):
        tensor, indices = TensorDesc(data_type, sizes, source), TensorDesc(UINT32, sizes, places)
        sizes_out = (*sizes[:2], *output)
        desc = MaxUnpoolingOperatorDesc(tensor, indices, TensorDesc(data_type, sizes_out, target))
        most = int(np.prod(sizes_out)) + 5
        where = arranged(indices, lambda dtype, count, most=most: rng.integers(0, most, count).astype(dtype))
        verify(desc, arranged(tensor, any_bits), where, device=mapped)


def test_no_index_beyond_a_segment_is_read(driver):
    """The second row begins the second segment, and each has a buffer of its own."""
    x, indices = TensorDesc(UINT32, (1, 1, 2, 40)), TensorDesc(UINT32, (1, 1, 2, 40), (0, 0, 64, 1))
    desc = MaxUnpoolingOperatorDesc(x, indices, TensorDesc(UINT32, (1, 1, 9, 10)))
    numbers = np.arange(1, 81, dtype=np.uint32).reshape(x.sizes)
    with opened_as(driver, LOWERED, **discrete(driver)) as device:
        verify(desc, numbers, numbers, device=device)


def test_elements_may_need_several_dispatches(driver, open_device):
    limits = Limits(1 << 16, 64, 8, dispatch_elements=1000, invocation_loads=50)
    x = np.random.default_rng(0).integers(0, 256, (1, 3, 40, 50)).astype(np.uint8)
    desc = MaxUnpoolingOperatorDesc.of(x, (90, 70))
    plan = lower(desc, limits)
    steps = {dispatch.shader.variant for dispatch in plan.dispatches}
    assert steps == {"scatter_clear", "scatter_mark", "scatter"}
    assert len(plan.dispatches) > 20
    device = open_device(driver.index, limits)
    # The second call has fewer indices in range: those of the first one have no effect.
    for times in 1, 4:
        indices = np.random.default_rng(1).integers(0, times * 3 * 90 * 70, x.shape).astype(np.uint64)
        verify(desc, x, indices, device=device)


def test_numbers_of_elements_may_need_all_bits(monkeypatch, open_device, driver):
    """As if there were 2^31 elements, marks have no bit for late ones, so the last step writes all outputs again."""
    lowered = Scatter.dispatches

    def dispatches(self):
        for dispatch, partials in lowered(self):
            constants = dispatch.shader.constants
            if "late" in constants:
                assert constants["late"] == 1 << 31
                shader = dataclasses.replace(dispatch.shader, constants=Values(**{**constants, "late": 0}))
                dispatch = dataclasses.replace(dispatch, shader=shader)
            yield dispatch, partials

    monkeypatch.setattr(Scatter, "dispatches", dispatches)
    device = open_device(driver.index, dataclasses.replace(LOWERED, group_size=33))
    sizes = (2, 2, 10, 25)
    # Elements that follow each other lie in several segments: each range of them is searched several times.
    for data_type, strides in itertools.product((UINT8, FLOAT32), (None, (500, 250, 1, 10))):
        x, indices = TensorDesc(data_type, sizes, strides), TensorDesc(UINT32, sizes, strides)
        desc = MaxUnpoolingOperatorDesc(x, indices, TensorDesc(data_type, (2, 2, 3, 25), strides and (150, 75, 1, 3)))
        where = arranged(indices, lambda dtype, count: np.random.default_rng(0).integers(0, 320, count).astype(dtype))
        verify(desc, arranged(x, any_bits), where, device=device)


def test_a_call_does_not_see_the_marks_of_the_call_before(device):
    """Marks are in memory that an earlier call used."""
    t = device.tensor(np.ones((1, 1, 2, 2), np.float32))
    for indices in ([0, 1, 2, 3], [4, 5, 6, 7], [8, 8, 8, 99]):
        result = max_unpooling(t, device.tensor(np.array(indices).reshape(1, 1, 2, 2)), (3, 3)).numpy()
        assert np.flatnonzero(result).tolist() == sorted({index for index in indices if index < 9})


def test_a_window_for_sizes_gets_a_warning():
    """The third argument of PyTorch's max_unpool2d is the window."""
    x = np.ones((1, 3, 4), np.float32)
    with pytest.warns(UserWarning, match=r"output_sizes=2 is the size of the result, .* and x has \(1, 3, 4\)$"):
        assert max_unpooling(x, x.astype(np.int64), 2).shape == (1, 2, 2)


def test_batch_and_channels_may_be_missing(device):
    x, indices = np.array([[1, 2]], np.int8), np.array([[3, 0]])
    assert max_unpooling(x, indices, 2, device=device).tolist() == [[2, 0], [0, 1]]
    assert max_unpooling(x[None], indices[None], (1, 2, 2), device=device).shape == (1, 2, 2)
    assert max_unpooling(x[:0, None], indices[:0, None], 4, device=device).shape == (0, 4, 4)
    t = max_unpooling(device.tensor(x), device.tensor(indices), (2, 2))
    assert isinstance(t, dmlgpu.DeviceTensor)
    assert t.numpy().tolist() == [[2, 0], [0, 1]]
