"""The guards of guards.py notice writes outside of an output."""

import pytest

from dmlgpu import ArgmaxOperatorDesc, Device, DeviceTensor, OperatorDesc, TensorDesc
from dmlgpu.runtime.memory import Slice
from dmlgpu.testing.cases import FLOAT32, INT64, arg_desc, pool_desc
from dmlgpu.testing.fills import arranged, ties
from tests.support.errors import refuses

DESCS = {
    "argmax": arg_desc(ArgmaxOperatorDesc, FLOAT32, (8, 100), [1]),
    "argmax-64": arg_desc(ArgmaxOperatorDesc, FLOAT32, (64, 10), [1], index_type=INT64),
    "argmax-strided": arg_desc(ArgmaxOperatorDesc, FLOAT32, (8, 100), [1], output_strides=(3, 1)),
    "max-pooling": pool_desc(FLOAT32, (1, 1, 9, 9), (3, 3), indices=None),
}
by_desc = pytest.mark.parametrize("desc", DESCS.values(), ids=DESCS)


def displaced_call(device: Device, desc: OperatorDesc, offset: int) -> None:
    """A call whose output is bound at an offset from its memory, in bytes."""
    (tensor,) = desc.outputs
    target = device.tensor_from_bytes(bytes(tensor.size_in_bytes), tensor)
    (part,) = target._segments.slices
    target._segments.slices[0] = Slice(part.buffer, part.offset + offset, part.size)
    try:
        device.planned(desc)(device.tensor(arranged(desc.inputs[0], ties)), out=target)
    finally:
        target._segments.slices[0] = part


@by_desc
@pytest.mark.parametrize("offset", [-256, -8, 8, 256])
def test_a_write_outside_of_an_output_is_noticed(on_cpu, desc, offset):
    refuses(r"^a guard was written to: byte ", displaced_call, on_cpu, desc, offset, error=AssertionError)
    displaced_call(on_cpu, desc, 0)


def test_what_is_not_written_shows(on_cpu, staged):
    for device in on_cpu, staged:
        assert set(DeviceTensor(device, TensorDesc(FLOAT32, (1000,))).bytes()) == {0xA5}
