"""Strided tensors: where elements are read from and written to, and that nothing else is touched."""

import dataclasses
import itertools
import tracemalloc

import numpy as np
import pytest

from dmlgpu import ArgmaxOperatorDesc, TensorDesc, argmax, reference
from dmlgpu.testing.cases import (
    FLOAT32,
    POOLED_STRIDED,
    STRIDED_ARGS,
    UINT8,
    UINT32,
    UINT64,
    UNPOOLED,
    WIDTHS,
    arg_desc,
    permuted_strides,
    pool_desc,
)
from dmlgpu.testing.fills import any_bits, arranged, distinct
from tests.support.errors import refuses
from tests.support.layouts import check_all_bytes, guard, laid_out

# The same layout with every type.
LAYOUTS = itertools.groupby(
    sorted((*STRIDED_ARGS, *POOLED_STRIDED, *UNPOOLED), key=lambda case: case.id),
    lambda case: case.id.rpartition("-")[0],
)


@pytest.mark.parametrize("cases", [pytest.param(list(cases), id=layout) for layout, cases in LAYOUTS])
def test_bytes_between_elements_stay(any_device, cases):
    for case in cases:
        check_all_bytes(any_device, case.desc)


def with_outputs(desc, strides, total=None):
    """The descriptor with these strides for all of its outputs."""
    outputs = {name: getattr(desc, name) for name in desc.output_fields if getattr(desc, name) is not None}
    sizes = desc.output_tensor.sizes
    outputs = {name: TensorDesc(tensor.data_type, sizes, strides, total) for name, tensor in outputs.items()}
    return dataclasses.replace(desc, **outputs)


SIZES = (2, 3, 5, 7)
OUTPUT_STRIDES = {
    "packed": None,
    "every-other": (210, 70, 14, 2),
    "every-third": (315, 105, 21, 3),
    "padded-rows": (150, 50, 10, 1),
    "padded-planes": (120, 39, 7, 1),
    "reversed": permuted_strides(SIZES, (3, 2, 1, 0)),
    "channels-last-padded": permuted_strides(SIZES, (0, 2, 3, 1), gap=1),
    "interleaved": (1, 2, 6, 30),
}
by_width = pytest.mark.parametrize("data_type", WIDTHS, ids=lambda t: t.name.lower())
by_output_strides = pytest.mark.parametrize("strides", OUTPUT_STRIDES.values(), ids=OUTPUT_STRIDES)


@by_output_strides
def test_strided_outputs_of_pooling_leave_gaps_untouched(any_device, strides):
    for data_type in WIDTHS:
        desc = with_outputs(pool_desc(data_type, (2, 3, 6, 8), (2, 2), indices=UINT64), strides)
        check_all_bytes(any_device, desc, any_bits)


@by_width
def test_bytes_after_the_last_element_stay(any_device, data_type):
    for count in (1, 2, 3, 4, 5, 31, 33, 129):
        pool = pool_desc(data_type, (1, 1, 2, count), (2, 1))
        check_all_bytes(any_device, with_outputs(pool, None, total=8 * count + 1000))
        check_all_bytes(any_device, pool)


def test_indices_of_32_bits_may_be_low_words_of_64_bits(any_device):
    """An emulation of 64-bit indices: the high words are 0 before the call."""
    desc = arg_desc(ArgmaxOperatorDesc, FLOAT32, (5, 9), [1], output_strides=(2, 1))
    desc = dataclasses.replace(desc, output_tensor=TensorDesc(UINT32, (5, 1), (2, 1), 40))
    x = arranged(desc.input_tensor, distinct)
    target = any_device.tensor_from_bytes(bytes(40), desc.output_tensor)
    any_device.compile(desc)(any_device.tensor(x), out=target)
    assert target.bytes().view(np.int64).tolist() == x.argmax(1).tolist()


def test_tensors_may_have_another_total_than_the_descriptor(any_device):
    x = np.random.default_rng(0).permutation(300).astype(np.float32).reshape(10, 30)
    operator = any_device.compile(arg_desc(ArgmaxOperatorDesc, FLOAT32, (10, 30), [1]))
    source = any_device.tensor(x, TensorDesc(FLOAT32, (10, 30), None, 5000))
    target = any_device.tensor_from_bytes(guard(3000), TensorDesc(UINT32, (10, 1), None, 3000))
    operator(source, out=target)
    assert target.numpy().reshape(-1).tolist() == x.argmax(1).tolist()
    assert np.array_equal(target.bytes()[40:], guard(3000)[40:])


def test_results_are_packed_arrays_for_any_layout_of_outputs(any_device):
    desc = with_outputs(pool_desc(UINT8, (2, 3, 6, 8), (2, 2)), OUTPUT_STRIDES["channels-last-padded"])
    x = arranged(desc.input_tensor, any_bits)
    for result, expected in zip(any_device.compile(desc)(x), reference(desc, x), strict=True):
        assert result.flags.c_contiguous
        assert np.array_equal(result, expected)


@by_width
def test_a_tensor_has_the_layout_of_its_descriptor(any_device, data_type):
    for strides in (None, (8, 1), (1, 2), (20, 3)):
        desc = TensorDesc(data_type, (2, 5), strides)
        x = arranged(desc, any_bits)
        tensor = any_device.tensor(x, desc)
        assert (tensor.desc, tensor.shape, tensor.device) == (desc, (2, 5), any_device)
        assert tensor.numpy().tobytes() == x.tobytes()
        assert np.array_equal(tensor.bytes(), laid_out(x, desc, tensor.bytes()))


def test_numpy_of_a_tensor_is_a_copy(any_device):
    tensor = any_device.tensor(np.arange(6, dtype=np.int32))
    tensor.numpy()[:] = 0
    tensor.bytes()[:] = 0
    assert tensor.numpy().tolist() == [0, 1, 2, 3, 4, 5]


def test_tensor_from_bytes_keeps_them_all(any_device):
    desc = TensorDesc(UINT8, (3, 5), (100, 7), 701)
    tensor = any_device.tensor_from_bytes(guard(701), desc)
    assert np.array_equal(tensor.bytes(), guard(701))
    assert tensor.numpy().tolist() == guard(701)[[[i * 100 + j * 7 for j in range(5)] for i in range(3)]].tolist()


@pytest.mark.parametrize("buffer", [bytes(12), bytearray(12), memoryview(bytes(12)), np.zeros(3, np.float32)])
def test_a_tensor_is_made_from_any_buffer(device, buffer):
    assert device.tensor_from_bytes(buffer, TensorDesc(FLOAT32, (3,))).numpy().tolist() == [0, 0, 0]


@pytest.mark.parametrize("size", [0, 11, 13, 16])
def test_too_few_or_too_many_bytes_for_a_tensor_are_refused(device, size):
    message = f"^TensorDesc.total_tensor_size_in_bytes: desc has 12 bytes, the data {size}$"
    refuses(message, device.tensor_from_bytes, bytes(size), TensorDesc(FLOAT32, (3,)))


def test_a_dimension_that_is_repeated_is_written_once(device):
    """All elements would be 8 GiB."""
    desc = TensorDesc(UINT32, (32767, 65536), (0, 1))
    tracemalloc.start()
    tensor = device.tensor(np.broadcast_to(np.arange(65536, dtype=np.uint32), desc.sizes), desc)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert tensor.nbytes == 8 * 32767 * 32768
    assert peak < 100 << 20


@pytest.mark.parametrize(
    ("sizes", "strides"), [((2, 3), (0, 1)), ((2, 3), (1, 1)), ((3, 4), (3, 2)), ((2, 2, 2), (4, 2, 2))]
)
def test_elements_that_share_memory_must_be_equal(any_device, sizes, strides):
    x = np.arange(np.prod(sizes), dtype=np.float32).reshape(sizes)
    message = rf"strides: with strides \({strides[0]}, .*\) elements share memory, but differ in the array$"
    refuses("^TensorDesc." + message, any_device.tensor, x, TensorDesc(FLOAT32, sizes, strides))
    operator = any_device.compile(arg_desc(ArgmaxOperatorDesc, FLOAT32, sizes, [0], strides=strides))
    refuses("^ArgmaxOperatorDesc.input_tensor." + message, operator, x)


def test_elements_that_may_share_memory_must_be_equal(device, monkeypatch):
    monkeypatch.setattr("dmlgpu.descriptors.tensor._MOST_WORK", 0)
    desc = TensorDesc(FLOAT32, (3, 4), (3, 2))
    assert desc.overlaps is None
    refuses(r"differ in the array$", device.tensor, np.arange(12, dtype=np.float32).reshape(3, 4), desc)
    x = np.lib.stride_tricks.as_strided(np.arange(13, dtype=np.float32), (3, 4), (12, 8))
    assert np.array_equal(device.tensor(x, desc).numpy(), x)


def test_nan_that_shares_memory_is_equal_to_itself(any_device):
    desc = arg_desc(ArgmaxOperatorDesc, FLOAT32, (2, 3), [0, 1], strides=(0, 1))
    assert any_device.compile(desc)(np.broadcast_to(np.float32([1, np.nan, 2]), (2, 3))).tolist() == [[1]]


def misaligned(x):
    """The same elements, 1 byte off."""
    copy = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    copy[...] = x
    return copy


VIEWS = {
    "packed": lambda x: x,
    "transposed": lambda x: x.T,
    "fortran": np.asfortranarray,
    "reversed": lambda x: x[::-1, :, ::-1],
    "sliced": lambda x: x[::2, 1:, ::3],
    "permuted": lambda x: x.transpose(2, 0, 1),
    "broadcast": lambda x: np.broadcast_to(x[:1], (5, *x.shape[1:])),
    "sliding": lambda x: np.lib.stride_tricks.sliding_window_view(x, 2, axis=2),
    "big-endian": lambda x: x.astype(x.dtype.newbyteorder(">")),
    "big-endian-reversed": lambda x: x.astype(x.dtype.newbyteorder(">"))[::-1].T,
    "misaligned": misaligned,
    "read-only": lambda x: np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_argmax_of_any_view_is_that_of_numpy(any_device, view):
    for dtype in (np.float32, np.int16, np.uint8, np.uint64):
        x = view(np.random.default_rng(3).integers(0, 100, (6, 5, 8)).astype(dtype))
        assert argmax(x, 0, device=any_device).tolist() == x.argmax(0).tolist()
        assert argmax(x, device=any_device).item() == x.argmax()
