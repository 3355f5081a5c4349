"""The bits of results, as hashes: one for every operator, type, driver and mapping.

    python -m tests.hashes

prints the table that docs/reliability.md holds. Inputs come from SHAKE-128, which gives the same bits for ever.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from dmlgpu import ArgmaxOperatorDesc, ArgminOperatorDesc, DataType, Device, DeviceInfo, OperatorDesc
from dmlgpu.lowering.limits import Limits
from dmlgpu.runtime.tuning import device_limits
from tests.cases import DECREASING, ELEMENT_TYPES, UINT64, Array, arg_desc, arranged, pool_desc
from tests.conftest import DRIVERS, LOWERED, device_of

OPERATORS = ("ARGMAX", "ARGMIN", "MAX_POOLING2")
MAPPINGS = ("CPU", "GPU", "split")


def limits_of(info: DeviceInfo, mapping: str) -> Limits:
    """Limits of a device with the mapping of a CPU or of a GPU, whatever it is, or so low that tensors are split."""
    if mapping == "split":
        return LOWERED
    if mapping == "GPU":
        return dataclasses.replace(device_limits(info), cooperating=True, unrolls=True, group_count=16)
    return device_limits(dataclasses.replace(info, type="cpu"))


def descs(name: str, data_type: DataType) -> tuple[OperatorDesc, ...]:
    """An operator's descriptors: long rows, columns, and strided tensors; small windows, and long ones."""
    if name == "MAX_POOLING2":
        return (
            pool_desc(data_type, (2, 1, 9, 24), (2, 2), (2, 1), (1, 0), (0, 1)),
            pool_desc(data_type, (1, 2, 6, 50), (4, 41), (1, 2), (2, 7), (1, 5), (1, 1), UINT64),
        )
    kind = ArgmaxOperatorDesc if name == "ARGMAX" else ArgminOperatorDesc
    return (
        arg_desc(kind, data_type, (3, 2500), [1]),
        arg_desc(kind, data_type, (40, 36), [0], DECREASING, UINT64),
        arg_desc(kind, data_type, (5, 6, 7), [0, 2], strides=(1, 40, 5), output_strides=(1, 3, 1)),
    )


def same_bits(dtype: np.dtype[Any], count: int) -> Array:
    """Any bits; every other element repeats one of eight, so that many are equal."""
    x = np.frombuffer(hashlib.shake_128(dtype.name.encode()).digest(count * dtype.itemsize), dtype).copy()
    x[8::2] = x[np.arange(len(x[8::2])) % 8]
    return x


def hash_of(outputs: Iterable[Array]) -> str:
    """Twelve hexadecimal digits of SHA-256 over the elements, little-endian."""
    sha = hashlib.sha256()
    for output in outputs:
        sha.update(output.astype(output.dtype.newbyteorder("<")).tobytes())
    return sha.hexdigest()[:12]


def results(device: Device, name: str, data_type: DataType) -> Iterable[Array]:
    for desc in descs(name, data_type):
        outputs = device._operator(desc)(arranged(desc.inputs[0], same_bits))
        yield from outputs if isinstance(outputs, tuple) else (outputs,)


def main() -> None:
    devices = []
    for manifest in DRIVERS.values():
        info = device_of(manifest)
        devices += [Device(info.index, limits=limits_of(info, mapping)) for mapping in MAPPINGS]
    print("| operator | type | every driver, CPU, GPU and split |\n|---|---|---|")
    for name in OPERATORS:
        for data_type in ELEMENT_TYPES:
            hashes = dict.fromkeys(hash_of(results(device, name, data_type)) for device in devices)
            print(f"| {name} | {data_type.name} | {' and '.join(hashes)} |", flush=True)


if __name__ == "__main__":
    main()
