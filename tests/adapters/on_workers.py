"""Functions that the tests of interop.dask run on workers.

Importing conftest would change the environment there.
"""

import os
import signal
import time
from pathlib import Path

import numpy as np
from distributed import Lock, Variable

from dmlgpu.runtime.device import open_device


def opened():
    """The default device of a worker."""
    return open_device().info.uuid


def peak():
    """Maximum of bytes that this process had in memory, including those of files.

    In a child process, getrusage would include the memory of its parent before exec.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


def settings():
    return os.environ["DMLGPU_DEVICE"], os.getpid()


def slow_block(numbers):
    """A chunk with its number modulo 20 at (3, 4). The first process that makes chunk 12 is killed."""
    i = int(numbers[0, 0])
    time.sleep(0.05)
    if i == 12:
        with Lock("times"):
            times = Variable("times")
            count = times.get() + 1
            times.set(count)
        if count == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    block = np.full((32, 32), -1, np.float32)
    block[3, 4] = i % 20
    return block


def falling(block_info=None):
    """A chunk of 4,096 columns whose elements fall from row to row; the maximum is in the middle of chunk 37."""
    (begin, end), (_, columns) = block_info[None]["array-location"]
    block = np.empty((end - begin, columns), np.float32)
    block[:] = -np.arange(begin, end, dtype=np.float32)[:, None]
    if begin == 37 * (end - begin):
        block[(end - begin) // 2, 1234] = 5
    return block
