"""Large arrays equal the oracle: gradients that were wrong once, and the short form of `python -m tests.large`."""

import dataclasses
import itertools

import numpy as np
import pytest

import dmlgpu
from dmlgpu.runtime.tuning import device_limits
from tests import large

# Lavapipe ended long loops of these gradients early; test_loops.py counts the iterations of larger arrays.


def test_gradients_skip_gaps_between_indices(device):
    sizes = (2, 3, 1400, 900)
    x = np.arange(1, 1 + np.prod(sizes), dtype=np.float32).reshape(sizes)
    indices = np.zeros((2, 3, 1401, 907), np.uint32)[:, :, :1400, :900]
    indices[:] = np.arange(x.size).reshape(sizes)
    desc = dmlgpu.MaxPoolingGradOperatorDesc.of(x, (1, 1), indices_tensor=indices)
    assert not desc.indices_tensor.is_packed
    assert (device.compile(desc)(x, indices) == x).all()


@pytest.mark.parametrize(
    ("sizes", "window", "dtype", "cores"),
    [
        ((8, 8, 3000, 1, 7), 10, np.float32, None),
        *(((1, 1, 3000, 1, 7), 1000, np.float32, cores) for cores in (1, 7)),
        *(((1, 1, 4000, 1, 100), 1000, np.float32, cores) for cores in (1, 7)),
        *(((1, 1, 2000, 1, 15), 450, np.float16, cores) for cores in (1, 7)),
    ],
)
def test_gradients_of_windows_along_depth_keep_their_sum(driver, sizes, window, dtype, cores):
    """All gradients are 1, so their sum stays the same."""
    limits = device_limits(driver)
    limits = dataclasses.replace(limits, group_count=4 * cores) if cores else limits
    gradients = np.ones((*sizes[:2], sizes[2] - window + 1, *sizes[3:]), dtype)
    with dmlgpu.Device(driver.index, limits=limits) as device:
        maxima = dmlgpu.max_pooling_grad(np.zeros(sizes, dtype), gradients, (window, 1, 1), device=device)
        assert maxima.sum(dtype=np.float64) == gradients.size
        averages = dmlgpu.average_pooling_grad(gradients, sizes, (window, 1, 1), device=device)
        assert averages.sum(dtype=np.float64) == pytest.approx(gradients.size, rel=1e-3 if cores else 1e-5)


SHORT = [case for case in large.cases() if case.short]


@pytest.mark.parametrize(
    ("case", "cores"),
    [*zip(SHORT, itertools.cycle((None, 16)))],
    ids=lambda value: value.desc.summary if isinstance(value, large.Large) else None,
)
def test_large_arrays_equal_the_oracle(driver, case, cores):
    large.check(case, driver, cores)
