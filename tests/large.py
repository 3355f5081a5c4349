"""Operators on arrays of 50 MiB to 1.5 GiB, compared with the oracle.

    python -m tests.large [--short] [DRIVER]

Computes the plans for this machine's cores and for 16, on a driver, or on all drivers under test one after the other.
Memory is filled before each call (guards.py). Prints a row for every check; the exit code is 1 if a result is wrong.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import dmlgpu
from dmlgpu import AveragePooling1OperatorDesc, AveragePoolingGradOperatorDesc, MaxUnpoolingOperatorDesc, TensorDesc
from dmlgpu.comparison import check_outputs
from dmlgpu.descriptors.tensor import Array
from dmlgpu.runtime.tuning import device_limits
from dmlgpu.testing.cases import (
    DECREASING,
    FLOAT16,
    FLOAT32,
    INT16,
    INT64,
    UINT8,
    UINT32,
    arg_desc,
    permuted_strides,
    pool_desc,
)
from dmlgpu.testing.fills import arranged, small
from tests.support import guards
from tests.support.drivers import DRIVERS, device_of, use_drivers_under_test

MIB = 1 << 20
# Bytes of a segment on lavapipe and on SwiftShader.
SEGMENTS = (128 * MIB, 1024 * MIB)


def repeated(dtype: np.dtype[Any], count: int, most: int) -> Array:
    """Small numbers, many of them equal: about a million random ones, repeated."""
    return np.resize(np.random.default_rng(count).integers(0, most, (1 << 20) + 7).astype(dtype), count)


def positive(dtype: np.dtype[Any], count: int) -> Array:
    return repeated(dtype, count, 3) + 1


def peaks(dtype: np.dtype[Any], count: int) -> Array:
    """Equal maxima and minima at both ends, around the ends of segments, and at some other positions."""
    x = positive(dtype, count)
    ends = [end // dtype.itemsize * k for end in SEGMENTS for k in range(1, count * dtype.itemsize // end + 1)]
    around = [end + k for end in ends for k in (-1, 0, 1)]
    places = np.array([0, *around, *np.random.default_rng(count).integers(0, count, 20), count - 1])
    places = places[places < count]
    x[places[::2]], x[places[1::2]] = 5, 0
    return x


def with_nan(dtype: np.dtype[Any], count: int) -> Array:
    """`peaks` with NaN instead of the maxima."""
    x = peaks(dtype, count)
    x[x == 5] = np.nan
    return x


@dataclass(frozen=True)
class Large:
    """An operator, the fill of its inputs, and whether `make test` computes it."""

    desc: dmlgpu.OperatorDesc
    fill: Callable[[np.dtype[Any], int], Array] = small
    short: bool = False

    def inputs(self) -> tuple[Array, ...]:
        """Always the same numbers; indices of MAX_UNPOOLING name every third element, some of them twice."""
        arrays = [arranged(tensor, self.fill) for tensor in self.desc.inputs]
        if isinstance(self.desc, MaxUnpoolingOperatorDesc):
            tensor = self.desc.indices_tensor
            numbers = np.arange(tensor.element_count, dtype=np.uint32) * 3 % np.uint32(tensor.element_count * 3 - 1)
            arrays[1] = numbers.reshape(tensor.sizes)
        return tuple(arrays)


def reduce_desc(
    function: dmlgpu.ReduceFunction, data_type: Any, sizes: Any, axes: Any, strides: Any = None
) -> dmlgpu.OperatorDesc:
    return dmlgpu.ReduceOperatorDesc.of(function, TensorDesc(data_type, sizes, strides), axes)


def cases() -> list[Large]:
    argmax, argmin, f = dmlgpu.ArgmaxOperatorDesc, dmlgpu.ArgminOperatorDesc, dmlgpu.ReduceFunction
    window = {"window_size": (3, 5), "strides": (2, 3), "start_padding": (1, 2), "end_padding": (1, 1)}
    plane, pooled = TensorDesc(FLOAT32, (2, 3, 2401, 2501)), TensorDesc(FLOAT32, (2, 3, 1201, 834))
    return [
        # Former faults: loops of short lines, of a transposed view, of partials; many outputs.
        Large(reduce_desc(f.SUM, FLOAT32, (33, 130000, 3), (0, 2)), short=True),
        Large(arg_desc(argmax, UINT8, (24576, 24576), (0, 1), strides=(1, 24576)), peaks),
        Large(arg_desc(argmax, UINT8, (384, 2, 1 << 20), (0, 2)), peaks),
        Large(reduce_desc(f.MAX, UINT8, (384, 2, 1 << 20), (0, 2)), peaks),
        Large(arg_desc(argmax, UINT8, (1 << 27, 2, 2), (0, 2)), peaks),
        # A single output.
        Large(arg_desc(argmax, UINT8, (1536 * MIB - 5,), (0,)), peaks),
        Large(arg_desc(argmin, UINT8, (1 << 30,), (0,), DECREASING), peaks),
        Large(arg_desc(argmax, FLOAT32, (1 << 28,), (0,), DECREASING), with_nan),
        Large(arg_desc(argmin, FLOAT32, (36_000_001,), (0,)), with_nan, short=True),
        # Rows and columns in several segments.
        Large(arg_desc(argmax, FLOAT32, (5, 7_500_001), (1,)), with_nan),
        Large(arg_desc(argmin, INT64, (4999, 4001), (1,), DECREASING), peaks),
        Large(arg_desc(argmax, UINT8, (70_000_001, 2), (0,), DECREASING), peaks),
        Large(arg_desc(argmax, INT16, (70001, 1001), (0,)), peaks, short=True),
        Large(arg_desc(argmin, FLOAT16, (2001, 2, 40001), (0,)), with_nan),
        # Axes that do not merge, and views that are transposed or have gaps.
        Large(arg_desc(argmax, FLOAT32, (30, 3, 150001, 3), (0, 1, 3)), with_nan),
        Large(arg_desc(argmin, INT16, (15, 2, 15, 130001, 3), (0, 2, 4)), peaks),
        Large(
            arg_desc(argmax, FLOAT32, (301, 401, 302), (0, 2), strides=permuted_strides((301, 401, 302), (2, 0, 1), 5)),
            with_nan,
        ),
        Large(reduce_desc(f.MIN, INT16, (401, 601, 302), (1,), permuted_strides((401, 601, 302), (1, 2, 0), 3)), peaks),
        # Pooling: small windows, windows in separable passes, and large windows that overlap little.
        Large(pool_desc(FLOAT32, (2, 32, 761, 801), (3, 3), (2, 2), (1, 1), (1, 1)), with_nan, short=True),
        Large(pool_desc(UINT8, (1, 2, 9001, 8001), (2, 3), (2, 1)), peaks),
        Large(pool_desc(FLOAT16, (1, 3, 70, 601, 603), (2, 3, 2), (2, 2, 1), (1, 0, 1), (0, 1, 1)), with_nan),
        Large(pool_desc(FLOAT32, (1, 3, 3401, 3601), (21, 1), (7, 1), (10, 0)), peaks),
        Large(pool_desc(FLOAT32, (1, 1, 6001, 6003), (90, 91), (2900, 2901)), with_nan),
        # Sums of floats need twice their memory in the oracle, exponentials four times.
        *(
            Large(reduce_desc(function, data_type, sizes, (axis,)), positive)
            for function in (f.SUM, f.AVERAGE, f.L1, f.L2, f.SUM_SQUARE, f.LOG_SUM, f.LOG_SUM_EXP, f.MULTIPLY)
            for data_type, sizes, axis in ((FLOAT32, (35, 1_000_001), 1), (FLOAT16, (9001, 8001), 0))
        ),
        *(
            Large(reduce_desc(function, data_type, sizes, (0,)), fill)
            for function in (f.SUM, f.L1, f.SUM_SQUARE, f.MULTIPLY)
            for data_type, sizes, fill in ((UINT32, (35_000_003,), positive), (INT64, (19, 1_000_001), small))
        ),
        Large(AveragePooling1OperatorDesc.of(plane, include_padding=True, **window)),
        Large(dmlgpu.LpPooling1OperatorDesc.of(plane, p=3, **window)),
        Large(AveragePooling1OperatorDesc.of(TensorDesc(FLOAT32, (1, 1, 6001, 6003)), (90, 91), strides=(2900, 2901))),
        # Gradients and unpooling.
        Large(AveragePoolingGradOperatorDesc.of(pooled, output_sizes=plane.sizes, **window)),
        Large(dmlgpu.MaxPoolingGradOperatorDesc.of(plane, **window), peaks),
        Large(
            AveragePoolingGradOperatorDesc.of(
                TensorDesc(FLOAT32, (8, 8, 2991, 1, 7)), output_sizes=(8, 8, 3000, 1, 7), window_size=(10, 1, 1)
            )
        ),
        Large(
            MaxUnpoolingOperatorDesc.of(
                TensorDesc(FLOAT32, (1, 8, 1201, 1301)), output_sizes=(1, 8, 2402, 2602), indices_data_type=UINT32
            )
        ),
    ]


def check(case: Large, info: dmlgpu.DeviceInfo, cores: int | None) -> tuple[int, float]:
    """The number of segments of the largest tensor, and the seconds of a call.

    Raises:
        AssertionError: a result is wrong.
    """
    limits = device_limits(info)
    if cores is not None:
        limits = dataclasses.replace(limits, group_count=4 * cores)
    inputs = case.inputs()
    with dmlgpu.Device(info.index, limits=limits) as device:
        operator = device.compile(case.desc)
        tensors = [device.tensor(x, tensor) for x, tensor in zip(inputs, case.desc.inputs, strict=True)]
        begin = time.perf_counter()
        outputs = operator(*tensors)
        seconds = time.perf_counter() - begin
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        check_outputs(operator.plan, inputs, tuple(output.numpy() for output in outputs))
    memory = zip((*case.desc.inputs, *case.desc.outputs), operator.plan.memory, strict=True)
    return max(-(-tensor.size_in_bytes // full) for tensor, full in memory), seconds


def main(arguments: list[str]) -> int:
    use_drivers_under_test()
    short, names = "--short" in arguments, [name for name in arguments if name != "--short"]
    guards.install()
    print("| driver | operator | MiB | segments | cores | s | |\n|---|---|---:|---:|---:|---:|---|")
    wrong = 0
    for driver in names or DRIVERS:
        info = device_of(DRIVERS[driver])
        for case in cases():
            if short and not case.short:
                continue
            for cores in (None, 16):
                try:
                    segments, seconds = check(case, info, cores)
                except (AssertionError, ValueError, RuntimeError) as error:
                    segments, seconds, wrong = 0, 0.0, wrong + 1
                    print(error, file=sys.stderr)
                mib = sum(tensor.size_in_bytes for tensor in case.desc.inputs) / MIB
                result = "right" if segments else "WRONG"
                print(
                    f"| {driver} | {case.desc.summary} | {mib:.0f} | {segments} | {cores or 'own'} | {seconds:.2f} | "
                    f"{result} |",
                    flush=True,
                )
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
