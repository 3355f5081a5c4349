"""Large arrays: what was wrong once, in processes of their own, and the short form of `python -m tests.large`."""

import subprocess
import sys

import pytest

from tests import large
from tests.support.drivers import DRIVERS, set_drivers

# Memory is filled before each call: what is not written shows.
PROGRAM = """
import os
import numpy as np
import dmlgpu
from dmlgpu import ReduceFunction
from tests.support import guards
guards.install()
def device(cores):
    # A device that is opened from here on has the plans of so many cores.
    os.sched_getaffinity = lambda process: set(range(cores))
    return dmlgpu.Device()
"""

# What each program says is what it asserts. Peaks stand where loops that end too early do not come.
PROGRAMS = {
    "short lines": """
x = np.ones((33, 130000, 3), np.float32)
assert (dmlgpu.reduce(x, ReduceFunction.SUM, (0, 2)) == 99).all()
assert (dmlgpu.reduce(x, ReduceFunction.L2, (0, 2)) == np.float32(np.sqrt(99))).all()
x[-1, :, -1] = 2
assert (dmlgpu.argmax(x, (0, 2)) == 98).all()
""",
    "more short lines": """
for shape, axes in ((30, 3, 50000, 3), (0, 1, 3)), ((15, 2, 15, 13000, 3), (0, 2, 4)), ((13, 3, 99999, 3), (0, 1, 3)):
    x = np.ones(shape, np.float32)
    one = device(1)
    expected = np.prod([shape[axis] for axis in axes])
    assert (dmlgpu.reduce(x, ReduceFunction.SUM, axes, device=one) == expected).all()
""",
    "exact sums of one element": """
x = np.ones((1_700_000, 1), np.float32)
for function in ReduceFunction.SUM, ReduceFunction.AVERAGE, ReduceFunction.L2:
    assert (dmlgpu.reduce(x, function, 1, exact=True) == 1).all(), function
""",
    "kept dimensions that do not merge": """
kept = {2: (2400, 1500), 3: (120, 150, 200), 4: (64, 200, 3, 100), 5: (24, 20, 25, 30, 10), 7: (8, 9, 8, 9, 8, 9, 10)}
for rank, sizes in kept.items():
    order = *reversed(range(rank)), rank
    for count in 1, 2, 4:
        x = np.ones((*reversed(sizes), count), np.float32).transpose(order)
        assert (dmlgpu.max(x, axis=rank) == 1).all(), (rank, count)
        assert (dmlgpu.sum(x, axis=rank) == count).all(), (rank, count)
        assert (dmlgpu.sum(x, axis=rank, exact=True) == count).all(), (rank, count)
""",
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
for cores in 1, 2, 4, 7:
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
    "partials of a transposed view": """
x = np.zeros((24576, 24576), np.uint8)
x[-1, -1] = 1
assert dmlgpu.argmax(x.T) == 603979775
""",
    "partials of several segments": """
x = np.zeros((384, 2, 1 << 20), np.uint8)
x[-1, :, -1] = 1
assert dmlgpu.argmax(x, (0, 2)).tolist() == [402653183, 402653183]
assert dmlgpu.reduce(x, ReduceFunction.MAX, (0, 2)).tolist() == [1, 1]
""",
    "an axis of stride 0": """
source = dmlgpu.TensorDesc(dmlgpu.DataType.UINT32, (32767, 65536), (0, 1))
desc = dmlgpu.ReduceOperatorDesc.of(ReduceFunction.SUM, source)
x = np.broadcast_to(np.ones(65536, np.uint32), source.sizes)
assert dmlgpu.Device().compile(desc)(x) == 2147418112
""",
    "many lines of two": """
x = np.zeros((134217728, 2, 2), np.uint8)
x[-1, :, -1] = 1
assert dmlgpu.argmax(x, (0, 2)).tolist() == [268435455, 268435455]
""",
    "a high power": """
x = np.zeros((1, 1, 66000, 451), np.float16)
x[..., -1, 1:-1] = 1
assert dmlgpu.lp_pooling(x, (66000, 450), p=(1 << 32) - 1).reshape(-1).tolist() == [1, 1]
""",
    "4 cores": """
x = np.zeros(1 << 30, np.uint8)
x[-1] = 1
assert dmlgpu.argmax(x, device=device(4)) == (1 << 30) - 1
""",
    "16 cores": """
x = np.zeros(1 << 28, np.float32)
x[-1] = 1
assert dmlgpu.argmax(x, device=device(16)) == (1 << 28) - 1
""",
    "64 cores": """
x = np.zeros((1 << 26, 2), np.uint8)
x[-1] = 1
assert dmlgpu.argmax(x, 0, device=device(64)).tolist() == [(1 << 26) - 1] * 2
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_loops_of_large_arrays_come_to_their_end(environment, name):
    """On lavapipe, which ends loops that turn too often."""
    set_drivers(environment.__setitem__, DRIVERS["lavapipe"])
    subprocess.run([sys.executable, "-c", PROGRAM + PROGRAMS[name]], env=environment, check=True)


@pytest.mark.parametrize("cores", [None, 16])
@pytest.mark.parametrize("case", [case for case in large.cases() if case.short], ids=lambda case: case.desc.summary)
def test_large_arrays_equal_the_oracle(driver, case, cores):
    large.check(case, driver, cores)
