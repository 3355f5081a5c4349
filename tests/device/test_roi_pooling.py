"""ROI_POOLING: regions that need several invocations, and the function."""

import itertools

import numpy as np
import pytest

import dmlgpu
from dmlgpu import RoiPoolingOperatorDesc, TensorDesc, verify
from dmlgpu.lowering.limits import Limits
from dmlgpu.lowering.lower import lower
from dmlgpu.testing.cases import FLOAT32
from tests.support.errors import refuses
from tests.support.limits import LOWERED

X = np.arange(72, dtype=np.float32).reshape(2, 1, 6, 6)
ROIS = np.float32([[0, 0, 0, 5, 5], [1, 1, 1, 2, 2]])


@pytest.mark.every_driver
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(("shape", "rois", "size"), [
    ((1, 2, 150, 160), 5, (1, 2)),  # bins of more elements than an invocation loads
    ((2, 1, 5, 31), 600, (1, 9)),  # rows of bins
], ids=["long", "rows"])  # fmt: skip
def test_work_of_an_invocation(device, shape, rois, size, dtype):
    rng = np.random.default_rng(0)
    x = rng.permutation(np.prod(shape)).reshape(shape).astype(dtype)
    batches, _, height, width = shape
    corners = rng.integers(-2, [width + 3, height + 3] * 2, (rois, 4))
    regions = np.column_stack([rng.integers(0, batches, rois), corners]).astype(dtype).reshape(1, 1, rois, 5)
    regions[0, 0, 0] = 0, 0, 0, width, height
    verify(RoiPoolingOperatorDesc.of(x, size, roi_tensor=regions), x, regions, device=device)


@pytest.mark.every_driver
def test_every_product_is_that_of_float32(device):
    """Corners and scales whose products are near halves, with all kinds of exponents."""
    rng = np.random.default_rng(1)
    x = np.arange(4000, dtype=np.float32).reshape(1, 1, 1, 4000)
    for scale in (0.7, 1 / 3, 1.9999999, 3e-38, 1e-43, 1e38):
        halves = (rng.integers(0, 4000, 300) + 0.5) / np.float64(np.float32(scale))
        with np.errstate(over="ignore"):
            corners = halves.astype(np.float32)
        check_columns(device, x, (corners.view(np.int32) + rng.integers(-1, 2, 300, np.int32)).view(np.float32), scale)
    # Denormals; the greatest float times 2^20 of the least ones is a bit less than 0.5.
    check_columns(device, x, np.arange(0, 1 << 23, 1 << 16, dtype=np.int32).view(np.float32), np.finfo(np.float32).max)
    check_columns(device, x[..., :2000].astype(np.float16), np.arange(0x900, dtype=np.int16).view(np.float16), 3e6)
    # 24929 * 336.5 is rounded to the even one of two floats: the second bin begins with column 43.
    rois = np.float32([[0, -24929, 0, 24929.25, 0]])
    assert dmlgpu.roi_pooling(-x, rois, (1, 2), 336.5, device=device)[0, 0, 0, 1] == -43


def check_columns(device, x, corners, scale):
    rois = np.zeros((1, 1, len(corners), 5), x.dtype)
    rois[0, 0, :, 1] = rois[0, 0, :, 3] = corners
    verify(RoiPoolingOperatorDesc.of(x, 1, scale, roi_tensor=rois), x, rois, device=device)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_regions_outside_of_the_input(device, dtype):
    nan, inf = np.nan, np.inf
    rois, expected = np.array([0, 1, -0.9, 1.9, -1, 2, nan, inf, -inf]), [35, 71, 35, 71, 0, 0, 0, 0, 0]
    rois = np.column_stack([rois, np.broadcast_to([-inf, -60000, inf, 60000], (9, 4))])
    corners = [0, nan, -nan, 2, 1], [0, 1e-7, -1e-7, nan, nan], [0, inf, inf, inf, inf], [-0.0, 0, 0, 1, 0]
    result = dmlgpu.roi_pooling(X.astype(dtype), np.concatenate([rois, corners]).astype(dtype), 1, 100.0, device=device)
    assert result.reshape(-1).tolist() == [*expected, 35, 0, 0, 5]


def test_function(device):
    expected = [[[[14.0, 17.0], [32.0, 35.0]]], [[[43.0, 44.0], [49.0, 50.0]]]]
    assert dmlgpu.roi_pooling(X, ROIS, 2, device=device).tolist() == expected
    for rois in ROIS, device.tensor(ROIS):
        result = dmlgpu.roi_pooling(device.tensor(X), rois, (2, 2), 1.0)
        assert isinstance(result, dmlgpu.DeviceTensor)
        assert result.numpy().tolist() == expected
    views = X.transpose(0, 1, 3, 2), ROIS[:, [0, 2, 1, 4, 3]]
    assert dmlgpu.roi_pooling(*views, 2, device=device).swapaxes(2, 3).tolist() == expected
    out = np.empty((2, 1, 2, 2), np.float32)
    assert dmlgpu.roi_pooling(X, ROIS, 2, device=device, out=out) is out
    assert out.tolist() == expected


@pytest.mark.parametrize(("shape", "rois"), [((0, 2, 6, 6), 3), ((2, 0, 6, 6), 3), ((2, 2, 6, 6), 0)], ids=str)
def test_no_regions_and_no_planes(shape, rois):
    result = dmlgpu.roi_pooling(np.ones(shape, np.float16), np.ones((rois, 5), np.float16), (2, 3))
    assert result.shape == (rois, shape[1], 2, 3)
    assert result.dtype == np.float16
    assert not result.any()


def test_splits_of_several_dispatches():
    desc = RoiPoolingOperatorDesc.of(TensorDesc(FLOAT32, (1, 1, 300, 400)), 1)
    plan = lower(desc, Limits(1 << 27, 64, 4, dispatch_elements=1 << 16))
    *pooled, combined = [dispatch.push for dispatch in plan.dispatches]
    assert len(pooled) > 1
    begins = [0, *itertools.accumulate(push["split_count"] for push in pooled)]
    assert begins == [*(push["split_begin"] for push in pooled), pooled[0]["bin_splits"]]
    assert combined["partial_count"] == begins[-1]


def test_regions_have_one_buffer():
    desc = RoiPoolingOperatorDesc.of(TensorDesc(FLOAT32, (1, 1, 2, 2)), 1, roi_count=13)
    refuses(r"^RoiPoolingOperatorDesc\.roi_tensor: it spans 65 .* are 64, ", lower, desc, LOWERED)
