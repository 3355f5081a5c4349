"""Checks of all bytes of an operator's tensors, also those between and around elements."""

import numpy as np

from dmlgpu import Device, OperatorDesc, TensorDesc, reference
from dmlgpu.comparison import differences
from dmlgpu.registry import inputs_of
from dmlgpu.testing.fills import arranged, ties


def laid_out(array, tensor: TensorDesc, buffer):
    """A copy of the buffer in which an array's elements are at the addresses of a tensor."""
    size = tensor.data_type.bits // 8
    addresses = sum(
        (np.arange(n) * stride).reshape(-1, *[1] * (tensor.rank - 1 - dim))
        for dim, (n, stride) in enumerate(zip(tensor.sizes, tensor.element_strides, strict=True))
    )
    buffer = buffer.copy()
    elements = np.frombuffer(array.tobytes(), np.uint8).reshape(-1, size)
    buffer[addresses.reshape(-1, 1) * size + np.arange(size)] = elements
    return buffer


def guard(size: int):
    """Random bytes that no result has by chance."""
    return np.random.default_rng(size).integers(0x80, 0x100, size).astype(np.uint8)


def check_all_bytes(device: Device, desc: OperatorDesc, fill=ties) -> None:
    """Runs an operator on device tensors, and checks every byte of its outputs and inputs."""
    inputs = inputs_of(desc, lambda tensor: arranged(tensor, fill))
    buffers = [laid_out(x, tensor, guard(tensor.size_in_bytes)) for x, tensor in zip(inputs, desc.inputs, strict=True)]
    sources = [device.tensor_from_bytes(before, tensor) for before, tensor in zip(buffers, desc.inputs, strict=True)]
    targets = [device.tensor_from_bytes(guard(tensor.size_in_bytes), tensor) for tensor in desc.outputs]
    device.planned(desc)(*sources, out=targets)
    outputs = [target.numpy() for target in targets]
    for target, array in zip(targets, outputs, strict=True):
        expected = laid_out(array, target.desc, guard(target.desc.size_in_bytes))
        assert np.array_equal(target.bytes(), expected), np.flatnonzero(target.bytes() != expected)
    assert not list(differences(desc, inputs, outputs, reference(desc, *inputs)))
    for source, before in zip(sources, buffers, strict=True):
        assert np.array_equal(source.bytes(), before)
