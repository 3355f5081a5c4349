"""Large arrays: faults of the past, in separate processes, and the short form of `python -m tests.large`."""

import itertools
import subprocess
import sys

import pytest

from tests import large
from tests.support.drivers import DRIVERS, set_drivers

# The guards fill memory before each call, so that an element that is not written differs.
PROGRAM = """
import os
import numpy as np
import dmlgpu
from dmlgpu import ReduceFunction
from tests.support import guards
guards.install()
def device(cores):
    # Devices that are opened from now on have the plans of this number of cores.
    os.sched_getaffinity = lambda process: set(range(cores))
    return dmlgpu.Device()
"""

# The programs assert the results.
PROGRAMS = {
    "indices with gaps": """
sizes = (2, 3, 1400, 900)
x = np.arange(1, 1 + np.prod(sizes), dtype=np.float32).reshape(sizes)
indices = np.zeros((2, 3, 1401, 907), np.uint32)[:, :, :1400, :900]
indices[:] = np.arange(x.size).reshape(sizes)
desc = dmlgpu.MaxPoolingGradOperatorDesc.of(x, (1, 1), indices_tensor=indices)
assert not desc.indices_tensor.is_packed
assert (dmlgpu.Device().compile(desc)(x, indices) == x).all()
""",
    "windows along depth": """
g = np.ones((8, 8, 2991, 1, 7), np.float32)
sums = dmlgpu.average_pooling_grad(g, (8, 8, 3000, 1, 7), (10, 1, 1)).sum(dtype=np.float64)
assert abs(sums - 1339968) < 10
x = np.zeros((8, 8, 3000, 1, 7), np.float32)
assert dmlgpu.max_pooling_grad(x, g, (10, 1, 1)).sum() == 1339968
""",
    "gradients of other cores": """
for cores in 1, 7:
    d = device(cores)
    for shape, window, dtype in (
        ((1, 1, 3000, 1, 7), (1000, 1, 1), np.float32),
        ((1, 1, 4000, 1, 100), (1000, 1, 1), np.float32),
        ((1, 1, 2000, 1, 15), (450, 1, 1), np.float16),
    ):
        g = np.ones((1, 1, shape[2] - window[0] + 1, 1, shape[4]), dtype)
        sums = dmlgpu.max_pooling_grad(np.zeros(shape, dtype), g, window, device=d).sum(dtype=np.float64)
        assert sums == g.size, (cores, shape)
        shares = dmlgpu.average_pooling_grad(g, shape, window, device=d).sum(dtype=np.float64)
        assert abs(shares / g.size - 1) < 1e-3, (cores, shape)
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_loops_of_large_arrays_end(environment, name):
    """On lavapipe, which ends long loops early; test_loops.py counts the iterations of larger arrays."""
    set_drivers(environment.__setitem__, DRIVERS["lavapipe"])
    subprocess.run([sys.executable, "-c", PROGRAM + PROGRAMS[name]], env=environment, check=True)


SHORT = [case for case in large.cases() if case.short]


@pytest.mark.parametrize(
    ("case", "cores"),
    [*zip(SHORT, itertools.cycle((None, 16)))],
    ids=lambda value: value.desc.summary if isinstance(value, large.Large) else None,
)
def test_large_arrays_equal_the_oracle(driver, case, cores):
    large.check(case, driver, cores)
