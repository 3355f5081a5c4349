"""Many mixed calls in one process, which must not hold more and more memory, pipelines or files.

    python -m tests.soak CALLS [DRIVER]

Runs on a driver, or on all drivers under test one after the other. Results are compared with the oracle's. At the end,
resident memory, the device's buffers and pipelines, and open files must be within 1 % of those after 1,000 calls.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmlgpu
from dmlgpu import DescriptorError, Device
from dmlgpu.descriptors.tensor import Array
from dmlgpu.testing.cases import CASES, Case
from tests.support.drivers import DRIVERS, device_of, use_drivers_under_test

WARM_UP = 1000
# Number of cases: few enough that the first 1,000 calls run each of them several times.
OPERATORS = 60

Call = Callable[[Device, Case, tuple[Array, ...]], Any]


def with_arrays(device: Device, case: Case, inputs: tuple[Array, ...]) -> Any:
    return device.compile(case.desc, flags=case.flags)(*inputs)


def with_tensors(device: Device, case: Case, inputs: tuple[Array, ...]) -> Any:
    tensors = [device.tensor(x, tensor) for x, tensor in zip(inputs, case.desc.inputs, strict=True)]
    return device.compile(case.desc, flags=case.flags)(*tensors)


def in_a_batch(device: Device, case: Case, inputs: tuple[Array, ...]) -> Any:
    with device.batch():
        with_tensors(device, case, inputs)
        return with_tensors(device, case, inputs)


def after_an_error(device: Device, case: Case, inputs: tuple[Array, ...]) -> Any:
    with pytest.raises(DescriptorError):
        device.compile(case.desc, flags=case.flags)(*[np.zeros((1,) * 9, np.float32)] * len(inputs))
    return with_arrays(device, case, inputs)


CALLS: tuple[Call, ...] = (with_arrays, with_tensors, in_a_batch, after_an_error)


def arrays(result: Any) -> tuple[bytes, ...]:
    """The bits of the results of a call."""
    outputs = result if isinstance(result, tuple) else (result,)
    return tuple((x.numpy() if isinstance(x, dmlgpu.DeviceTensor) else x).tobytes() for x in outputs)


def mixed_calls(device: Device, count: int) -> Iterator[None]:
    """Calls of operators of all kinds in all ways, each checked against the oracle."""
    numbers = random.Random(0)
    cases: list[Case] = numbers.sample(CASES, OPERATORS)
    inputs = [case.inputs() for case in cases]
    expected = [
        arrays(dmlgpu.verify(case.desc, *x, flags=case.flags, device=device))
        for case, x in zip(cases, inputs, strict=True)
    ]
    # First every call of every case, then random ones.
    ways = [*itertools.product(range(OPERATORS), CALLS)]
    for i in range(count):
        which, call = ways[i] if i < len(ways) else numbers.choice(ways)
        assert arrays(call(device, cases[which], inputs[which])) == expected[which], cases[which]
        yield


def resources(device: Device) -> dict[str, int]:
    """Memory of this process in KiB, and numbers of other resources."""
    gc.collect()
    # glibc keeps freed memory.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim:
        trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    info = device.cache_info()
    return {
        "resident memory (KiB)": pages * os.sysconf("SC_PAGE_SIZE") // 1024,
        "tensors on the device (KiB)": info.tensor_bytes // 1024,
        "buffers without tensors (KiB)": info.buffer_bytes // 1024,
        "pipelines": info.pipelines,
        "operators": info.operators,
        "open files": len(os.listdir("/proc/self/fd")),
    }


def soak(device: Device, count: int) -> bool:
    """Prints the resources after the warm-up and at the end; returns whether they agree within 1 %."""
    calls = mixed_calls(device, count)
    begin = time.monotonic()
    for _ in itertools.islice(calls, WARM_UP):
        pass
    before = resources(device)
    done = WARM_UP + sum(1 for _ in calls)
    after = resources(device)
    print(f"{device.info.driver}: {done} calls in {time.monotonic() - begin:.0f} s")
    for name, number in after.items():
        print(f"  {name}: {before[name]} after {WARM_UP} calls, {number} at the end")
    return all(abs(after[name] - number) <= number / 100 for name, number in before.items())


def main() -> int:
    use_drivers_under_test()
    good = True
    for driver in sys.argv[2:] or DRIVERS:
        with Device(device_of(DRIVERS[driver]).index) as device:
            good = soak(device, int(sys.argv[1])) and good
    print("within 1 %" if good else "NOT within 1 %")
    return not good


if __name__ == "__main__":
    sys.exit(main())
