"""That the guards of guards.py are there, and notice what lies outside of an output."""

import pytest

from dmlgpu import ArgmaxOperatorDesc, Device, DeviceTensor, OperatorDesc, TensorDesc
from dmlgpu.runtime.memory import ALIGNMENT, Slice
from dmlgpu.testing.cases import FLOAT32, INT64, arg_desc, pool_desc
from dmlgpu.testing.fills import arranged, ties

DESCS = {
    "argmax": arg_desc(ArgmaxOperatorDesc, FLOAT32, (8, 100), [1]),
    "argmax-64": arg_desc(ArgmaxOperatorDesc, FLOAT32, (64, 10), [1], index_type=INT64),
    "argmax-strided": arg_desc(ArgmaxOperatorDesc, FLOAT32, (8, 100), [1], output_strides=(3, 1)),
    "max-pooling": pool_desc(FLOAT32, (1, 1, 9, 9), (3, 3), indices=None),
}
by_desc = pytest.mark.parametrize("desc", DESCS.values(), ids=DESCS)


def displaced_call(device: Device, desc: OperatorDesc, bytes: int) -> None:
    """A call whose output is taken to lie so many bytes further on than it does."""
    (tensor,) = desc.outputs
    target = device.tensor_from_bytes(
        b"\0" * tensor.size_in_bytes, TensorDesc(tensor.data_type, tensor.sizes, tensor.strides)
    )
    (part,) = target._segments.slices
    target._segments.slices[0] = Slice(part.buffer, part.offset + bytes, part.size)
    try:
        device.planned(desc)(device.tensor(arranged(desc.inputs[0], ties)), out=target)
    finally:
        target._segments.slices[0] = part


@by_desc
def test_tensors_lie_between_guards(on_cpu, desc):
    displaced_call(on_cpu, desc, 0)
    for tensor in desc.inputs + desc.outputs:
        part = on_cpu._engine.memory.allocate(tensor.size_in_bytes)
        assert part.size == tensor.size_in_bytes
        room = -(-part.size // ALIGNMENT) * ALIGNMENT
        assert (part.offset - part.whole.offset, part.whole.size - room) == (ALIGNMENT, 2 * ALIGNMENT)


@by_desc
@pytest.mark.parametrize("bytes", [-256, -8, 8, 256])
def test_a_write_outside_of_an_output_is_noticed(on_cpu, desc, bytes):
    with pytest.raises(AssertionError, match=r"^a guard was written to: byte "):
        displaced_call(on_cpu, desc, bytes)
    displaced_call(on_cpu, desc, 0)


def test_what_is_not_written_shows(on_cpu, staged):
    for device in on_cpu, staged:
        assert set(DeviceTensor(device, TensorDesc(FLOAT32, (1000,))).bytes()) == {0xA5}
