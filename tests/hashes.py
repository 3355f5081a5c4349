"""Hashes of the bits of results, for every operator, type, driver and mapping.

    python -m tests.hashes

prints the table of docs/reliability.md. Inputs are bits of SHAKE-128, which are always the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from dmlgpu import DataType, Device, ExecutionFlags, OperatorDesc
from dmlgpu.descriptors.pooling import WINDOW_FIELDS
from dmlgpu.descriptors.tensor import Array
from dmlgpu.lowering.problem import sums_can_be_exact
from dmlgpu.reference.bounds import is_exact
from dmlgpu.registry import CANONICAL, Operator, Sample, inputs_of
from dmlgpu.testing.cases import DECREASING, INCREASING, UINT32, UINT64
from dmlgpu.testing.fills import arranged
from tests.support.drivers import DRIVERS, device_of, use_drivers_under_test
from tests.support.limits import MAPPINGS, limits_of

# Long rows, columns, and strided tensors; operators ignore options that they lack.
_REDUCTIONS = (
    Sample((3, 2500), {"axes": (1,), "output_data_type": UINT32}),
    Sample((40, 36), {"axes": (0,), "output_data_type": UINT64, "axis_direction": DECREASING}),
    Sample((5, 6, 7), {"axes": (0, 2), "output_data_type": UINT32}, lambda _: (1, 40, 5), lambda _: (1, 3, 1)),
)
# Small windows, and long ones.
_WINDOWS = tuple(
    Sample(
        sizes, dict(zip(WINDOW_FIELDS, window, strict=True)) | {"indices_data_type": index_type, "per_channel": True}
    )
    for sizes, window, index_type in (
        ((2, 1, 9, 24), ((2, 2), (2, 1), (1, 0), (0, 1), (1, 1)), UINT32),
        ((1, 2, 6, 50), ((4, 41), (1, 2), (2, 7), (1, 5), (1, 1)), UINT64),
    )
)
# Outputs with fewer elements than the input, and with more.
_PLACES = (Sample((2, 3, 9, 7), {"output_sizes": (5, 6)}), Sample((1, 2, 5, 6), {"output_sizes": (10, 13)}))
# Lines of many times k elements, and lines that are sorted as a whole.
_LINES = (
    Sample((3, 2500), {"axis": 1, "k": 20, "indices_data_type": UINT32}),
    Sample((40, 36), {"axis": 0, "k": 40, "indices_data_type": UINT64, "axis_direction": INCREASING}),
)
# Regions whose bins have several elements, and less than one.
_REGIONS = (
    Sample((2, 2, 12, 11), {"roi_count": 10, "pooled_size": (3, 2), "spatial_scale": 1.0}),
    Sample((1, 3, 5, 6), {"roi_count": 9, "pooled_size": (4, 7), "spatial_scale": 0.3}),
)


def descs(operator: Operator, data_type: DataType) -> tuple[OperatorDesc, ...]:
    by_field = {"axes": _REDUCTIONS, "window_size": _WINDOWS, "axis": _LINES, "pooled_size": _REGIONS}
    samples = next((samples for field, samples in by_field.items() if field in operator.fields), _PLACES)
    return tuple(operator.on(sample, data_type) for sample in samples)


def exact_types(operator: Operator) -> list[tuple[DataType, ExecutionFlags]]:
    """The types whose results have the same bits everywhere, and the flag that this needs."""
    types = []
    for data_type in operator.data_types:
        desc = operator.on(operator.samples[0], data_type)
        if is_exact(desc):
            types.append((data_type, ExecutionFlags.NONE))
        elif sums_can_be_exact(desc):
            types.append((data_type, ExecutionFlags.EXACT_SUMS))
    return types


def same_bits(dtype: np.dtype[Any], count: int) -> Array:
    """Any bits; every second element repeats one of eight, so that many are equal."""
    x = np.frombuffer(hashlib.shake_128(dtype.name.encode()).digest(count * dtype.itemsize), dtype).copy()
    x[8::2] = x[np.arange(len(x[8::2])) % 8]
    return x


def hash_of(outputs: Iterable[Array]) -> str:
    """Twelve hexadecimal digits of SHA-256 over the elements, little-endian."""
    sha = hashlib.sha256()
    for output in outputs:
        sha.update(output.astype(output.dtype.newbyteorder("<")).tobytes())
    return sha.hexdigest()[:12]


def finite(dtype: np.dtype[Any], count: int) -> Array:
    """`same_bits`, with 1 instead of NaN and infinities."""
    x = same_bits(dtype, count)
    return np.where(np.isfinite(x), x, dtype.type(1))


def results(
    run: Callable[..., Any], operator: Operator, data_type: DataType, flags: ExecutionFlags = ExecutionFlags.NONE
) -> Iterable[Array]:
    """The outputs of an operator; `run` is Device.run, or another function with the same arguments."""
    values = finite if flags else same_bits
    for desc in descs(operator, data_type):
        outputs = run(desc, inputs_of(desc, lambda tensor: arranged(tensor, values)), flags=flags)
        yield from outputs if isinstance(outputs, tuple) else (outputs,)


def title(operator: Operator, flags: ExecutionFlags) -> str:
    """The operator's name in the table."""
    return f"{operator.name}, EXACT_SUMS" if flags else operator.name


def main() -> None:
    use_drivers_under_test()
    devices = []
    for manifest in DRIVERS.values():
        info = device_of(manifest)
        devices += [Device(info.index, limits=limits_of(info, mapping)) for mapping in MAPPINGS]
    print("| operator | type | every driver, CPU, GPU and split |\n|---|---|---|")
    for operator in CANONICAL:
        for data_type, flags in exact_types(operator):
            hashes = dict.fromkeys(hash_of(results(device.run, operator, data_type, flags)) for device in devices)
            print(f"| {title(operator, flags)} | {data_type.name} | {' and '.join(hashes)} |", flush=True)


if __name__ == "__main__":
    main()
