"""Gradients of pooling: which elements they reach, for all kinds of windows, and their functions."""

import dataclasses
import itertools

import numpy as np
import pytest

import dmlgpu
from dmlgpu import AveragePoolingGradOperatorDesc, MaxPoolingGradOperatorDesc, TensorDesc, max_pooling_grad, verify
from dmlgpu.lowering.limits import Limits
from dmlgpu.lowering.lower import lower
from dmlgpu.runtime.tuning import device_limits
from dmlgpu.testing.cases import FLOAT16, FLOAT32, INT64, UINT32, UINT64, WINDOW_SHAPES
from tests.support.errors import refuses
from tests.support.limits import LIMITS, by_ranges
from tests.support.plans import check, computed

GRADIENT = np.array([[1, 2], [3, 4]], np.float32)


def gradients(dtype, sizes, window, strides=None, start=None, end=None, dilations=None, *, include_padding=False):
    """Descriptors and inputs of the gradients of a maximum and of an average over the same windows."""
    random = np.random.default_rng(0)
    steps = {"strides": strides, "start_padding": start, "end_padding": end}
    x = random.integers(-3, 4, sizes).astype(dtype)
    desc = MaxPoolingGradOperatorDesc.of(x, window, dilations=dilations, **steps)
    yield desc, (x, random.standard_normal(desc.input_gradient_tensor.sizes).astype(dtype))
    pooled = dmlgpu.AveragePooling1OperatorDesc.of(x, window, **steps).output_tensor
    gradient = random.standard_normal(pooled.sizes).astype(dtype)
    desc = AveragePoolingGradOperatorDesc.of(gradient, sizes, window, include_padding=include_padding, **steps)
    yield desc, (gradient,)


def test_gradients_are_those_of_directml_s_documents(any_device):
    x = np.array([[1, 2, 3], [2, 4, 2], [5, 6, 7]], np.float32)
    assert max_pooling_grad(x, GRADIENT, 2, device=any_device).tolist() == [[0, 0, 0], [0, 3, 0], [0, 3, 4]]
    averages = dmlgpu.average_pooling_grad(GRADIENT, 3, 2, device=any_device)
    assert averages.tolist() == [[0.25, 0.75, 0.5], [1, 2.5, 1.5], [0.75, 1.75, 1]]


@pytest.mark.every_driver
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(
    ("row", "expected"), [([2, 2, 2, np.nan, 5, np.nan], [1, 0, 0, 2, 0, 4]), ([-0.0, 0.0], [1, 0])], ids=str
)
def test_the_first_of_equal_elements_and_the_first_nan_have_the_gradient(any_device, dtype, row, expected):
    gradient = np.array([[1, 2, 4]], dtype)[:, : len(row) // 2]
    result = max_pooling_grad(np.array([row], dtype), gradient, (1, 2), strides=(1, 2), device=any_device)
    assert result.tolist() == [expected]


@pytest.mark.every_driver
def test_infinities_and_nan_propagate(any_device):
    inf, nan = np.inf, np.nan
    gradient = np.array([[inf, 1, -inf, nan, 2]], np.float32)
    averages = dmlgpu.average_pooling_grad(gradient, (1, 6), (1, 2), device=any_device)
    np.testing.assert_array_equal(averages, [[inf, inf, -inf, nan, nan, 1]])
    x, gradient = np.array([[3, 9, 1, 9, 3]], np.float32), np.array([[inf, -inf, 1]], np.float32)
    np.testing.assert_array_equal(max_pooling_grad(x, gradient, (1, 3), device=any_device), [[0, nan, 0, 1, 0]])


def test_windows_of_many_shapes_match_the_oracle(mapped):
    for number, windows in enumerate(WINDOW_SHAPES):
        dtype = (np.float32, np.float16)[number % 2]
        for desc, inputs in gradients(dtype, *windows, include_padding=number % 4 > 1):
            verify(desc, *inputs, device=mapped)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("windows", [((2, 3, 64, 65), (2, 2), (1, 1)), ((1, 4, 64, 96), (3, 3), (2, 3))], ids=str)
def test_only_indices_of_the_maxima_of_small_windows_are_written(device, cooperating, dtype, windows):
    """The first pass writes only indices of the maxima; values would overwrite indices of other windows."""
    desc, inputs = next(gradients(dtype, *windows))
    for mapped in device, cooperating:
        assert lower(desc, mapped.limits).dispatches[0].shader.variant in ("pool_small", "pool_direct")
        verify(desc, *inputs, device=mapped)


@pytest.mark.parametrize(
    ("dtype", "windows"),
    [
        (np.float32, ((3, 5, 31, 29), (3, 3), (2, 2), (1, 2), (2, 1))),
        (np.float16, ((2, 4, 37, 39), (2, 5), (3, 1), (0, 4), (1, 3))),
        (np.float32, ((2, 3, 9, 11, 19), (2, 2, 3), (1, 2, 2), (1, 0, 1), (0, 1, 2))),
    ],
    ids=str,
)
def test_runs_of_many_outputs_match_the_oracle(on_cpu, cooperating, dtype, windows):
    """Tiles continue along a row, and with the next row, within an invocation."""
    for (desc, inputs), (mapped, tile) in itertools.product(
        gradients(dtype, *windows), ((on_cpu, 8), (cooperating, 4))
    ):
        operator = mapped.compile(desc, kernel="pool_backward")
        assert 1 < operator.plan.dispatches[-1].push["tile"] <= tile
        operator.launch(inputs, verify=True)


# Sizes, window, strides, padding at the start and at the end, dilations.
SMALL = [
    ((3, 5, 31, 28), (3, 3), (2, 2), (1, 2), (2, 1), (1, 1)),
    ((2, 4, 37, 38), (2, 5), (3, 1), (0, 4), (1, 3), (1, 1)),
    ((1, 3, 40, 2), (5, 2), (1, 1), (4, 1), (0, 0), (1, 1)),
    ((1, 2, 17, 26), (1, 2), (2, 3), (0, 0), (0, 0), (1, 1)),  # elements between windows
    ((2, 2, 24, 22), (3, 3), (2, 1), (2, 2), (1, 0), (2, 3)),
    ((1, 1, 33, 18), (4, 7), (4, 5), (3, 6), (1, 4), (1, 1)),
    ((1, 2, 20, 24), (4, 4), (1, 1), (0, 3), (2, 0), (1, 1)),  # 11 columns of windows, loaded 4 at a time on a CPU
    ((2, 3, 9, 11, 20), (2, 2, 3), (1, 2, 2), (1, 0, 1), (0, 1, 2), (1, 1, 1)),
    ((1, 2, 7, 8, 10), (3, 3, 3), (3, 1, 2), (2, 1, 1), (1, 1, 0), (1, 2, 1)),
]


@pytest.mark.parametrize(
    ("windows", "dtype", "mapping"),
    [*zip(SMALL, itertools.cycle((np.float32, np.float16)), itertools.cycle(("CPU", "GPU", "few")))],
    ids=str,
)
def test_small_windows_have_the_same_bits_in_tiles(driver, open_device, device, cooperating, windows, dtype, mapping):
    """Every phase, in tiles that end after a row or a slab, has the same bits as without tiles.

    With few invocations, tiles have several steps.
    """
    few = open_device(driver.index, dataclasses.replace(device.limits, group_size=4, group_count=1, simd_width=1))
    mapped = {"CPU": device, "GPU": cooperating, "few": few}[mapping]
    for desc, (*others, gradient) in gradients(dtype, *windows, include_padding=dtype is np.float16):
        special = gradient.copy()
        special.flat[::7] = np.resize(dtype([np.nan, np.inf, -np.inf, -0.0]), special.flat[::7].shape)
        small = mapped.compile(desc, kernel="pool_backward_small")
        assert small.plan.dispatches[-1].shader.variant.startswith("pool_backward_small")
        for inputs in (*others, gradient), (*others, special):
            result = small.launch(inputs, verify=True)
            assert result.tobytes() == mapped.compile(desc, kernel="pool_backward")(*inputs).tobytes()


# For averages: padding at both ends, windows beyond the end, volumes, rows that share words; strides that divide
# windows and those that do not, windows side by side, elements after the last window.
SEPARABLE = [
    ((1, 2, 30, 41), (17, 18), (1, 1), (3, 0), (2, 5)),
    ((2, 1, 21, 33), (9, 12), (1, 1), (4, 11), (8, 1)),
    ((1, 1, 40, 7), (20, 1), (1, 1), (10, 0), (9, 0)),
    ((1, 2, 3, 50), (1, 33), (1, 1), (0, 7), (0, 32)),
    ((1, 2, 9, 10, 12), (4, 8, 5), (1, 1, 1), (2, 3, 0), (1, 4, 2)),
    ((1, 1, 12, 2, 9), (7, 1, 3), (1, 1, 1), (3, 0, 1), (2, 0, 1)),
    ((1, 2, 30, 41), (17, 18), (2, 3), (3, 0), (2, 5)),
    ((2, 1, 21, 33), (9, 12), (1, 4), (4, 11), (8, 1)),
    ((1, 1, 40, 7), (20, 3), (5, 2), (10, 0), (9, 0)),
    ((1, 2, 3, 50), (2, 33), (2, 2), (0, 7), (0, 32)),
    ((1, 2, 9, 10, 12), (4, 8, 5), (2, 2, 3), (2, 3, 0), (1, 4, 2)),
    ((1, 1, 24, 23), (12, 4), (12, 4), (0, 0), (0, 0)),
    ((1, 2, 31, 25), (5, 7), (5, 4), (1, 3), (0, 0)),
    ((1, 1, 90, 64), (7, 5), (3, 2), (2, 0), (0, 3)),
    ((1, 2, 18, 4, 40), (5, 2, 3), (5, 1, 2), (0, 0, 0), (0, 1, 0)),
    ((1, 2, 34, 200), (5, 3), (5, 3), (0, 0), (0, 0)),  # the last range is four rows after the last window
]


@by_ranges
def test_separable_passes_match_the_oracle(driver, open_device, changes, dtype):
    limits = dataclasses.replace(device_limits(driver), dispatch_count=1 << 20, **changes)
    device, plans = open_device(driver.index, limits), []
    for number, windows in enumerate(SEPARABLE):
        # Padding counts in every other shape; in several segments, in the others.
        includes = (number + ("segment_bytes" in changes)) % 2 == 0
        _, (desc, (x,)) = gradients(dtype, *windows, include_padding=includes)
        x = (x * 1000).astype(dtype, order="F" if len(x) > 1 else "C")
        if x.shape[1] > 1:
            x[0, 0].reshape(-1)[[2, -9, -4]] = np.inf, np.nan, -np.inf
        desc = dataclasses.replace(desc, input_gradient_tensor=TensorDesc.of(x))
        plans.append(computed(device, desc, (x,), "pool_backward_separable"))
    # The windows of a row of outputs may exceed a segment.
    assert len(list(filter(None, plans))) >= (2 if "segment_bytes" in changes else len(plans))


@pytest.mark.parametrize(
    ("desc", "reason"),
    [
        (
            AveragePoolingGradOperatorDesc.of(TensorDesc(FLOAT32, (1, 1, 9, 9)), (18, 18), (1, 2), strides=(2, 2)),
            "some elements are in no window",
        ),
        (MaxPoolingGradOperatorDesc.of(TensorDesc(FLOAT32, (1, 1, 9, 9)), (2, 2)), "the gradient of a window has one"),
    ],
    ids=["gaps", "maxima"],
)
def test_separable_passes_tell_what_they_cannot_compute(desc, reason):
    message = f"'pool_backward_separable' cannot compute it, because .*{reason}"
    refuses(message, lower, desc, LIMITS["CPU"], "pool_backward_separable")


def test_tiles_are_so_high_that_an_invocation_has_four():
    """1,024 invocations, and rows of 32 tiles."""
    desc = AveragePoolingGradOperatorDesc.of(TensorDesc(FLOAT32, (1, 64, 128, 128)), (256, 256), (2, 2), strides=(2, 2))
    (dispatch,) = lower(desc, LIMITS["CPU"]).dispatches
    assert dispatch.push["tile_height"] * 4 * 1024 == 64 * 256 * 32


def test_tiles_of_a_gpu_have_the_windows_that_registers_hold():
    """Tiles of 4 outputs have 3 rows of 6 windows; tiles of 5 outputs would have 21 windows."""
    desc = AveragePoolingGradOperatorDesc.of(TensorDesc(FLOAT32, (1, 1, 14, 14)), (16, 16), (3, 3))
    (dispatch,) = lower(desc, LIMITS["GPU"]).dispatches
    assert dispatch.shader.constants["tile_width"] == 4


def test_parts_of_slabs_begin_at_a_multiple_of_the_stride_along_height():
    """The strides along height and depth differ."""
    windows = TensorDesc(FLOAT32, (1, 1, 3, 17, 16))
    desc = AveragePoolingGradOperatorDesc.of(windows, (3, 34, 32), (1, 2, 2), strides=(1, 2, 2))
    plan = lower(desc, dataclasses.replace(LIMITS["CPU"], dispatch_elements=1000), "pool_backward_small")
    assert len(plan.dispatches) == 2 * 3
    check(plan)


def test_dispatches_end_with_words_if_rows_of_outputs_share_them(device):
    """Two slabs of three rows of five outputs end with a word: if no dispatch can have both, there are no tiles."""
    desc = AveragePoolingGradOperatorDesc.of(TensorDesc(FLOAT16, (4, 1, 2, 4)), (3, 5), (2, 2))
    limits = {most: dataclasses.replace(LIMITS["CPU"], dispatch_elements=most) for most in (29, 120, 240)}
    for most, dispatches in (120, 2), (240, 1):
        assert len(lower(desc, limits[most], "pool_backward_small").dispatches) == dispatches
    message = "because rows of outputs share words, and slabs that fill whole words are"
    refuses(message, lower, desc, limits[29], "pool_backward_small")
    verify(desc, np.arange(32, dtype=np.float16).reshape(4, 1, 2, 4), device=device)


def test_windows_may_have_more_elements_than_an_invocation_loads(driver, open_device):
    device = open_device(driver.index, Limits(1 << 27, 64, 8, invocation_loads=75))
    largest, average = gradients(np.float32, (1, 2, 19, 23), (17, 18), None, (9, 8), (7, 9))
    assert len(device.compile(largest[0]).plan.dispatches) > 3
    for desc, inputs in largest, average:
        verify(desc, *inputs, device=device)


@pytest.mark.parametrize("strides", [(0, 0, 0, 0), (0, 30, 6, 1), (1, 2, 6, 36)], ids=str)
def test_inputs_may_be_broadcast_and_strided(any_device, strides):
    """The gradient is broadcast, and the input's channels are innermost."""
    x = np.random.default_rng(0).standard_normal((2, 3, 6, 7)).astype(np.float32)
    windows, source = TensorDesc(FLOAT32, (2, 3, 5, 6), strides), TensorDesc(FLOAT32, x.shape, (126, 1, 21, 3))
    gradient = np.broadcast_to(np.float32(1.5), windows.sizes)
    desc = MaxPoolingGradOperatorDesc.of(source, (2, 2), input_gradient_tensor=windows)
    verify(desc, x, gradient, device=any_device)
    verify(AveragePoolingGradOperatorDesc.of(windows, (6, 7), (2, 2)), gradient, device=any_device)


def test_indices_of_the_forward_pass_lead_to_the_same_bits(mapped):
    """Packed or not, of every type."""
    types = (np.float32, UINT32), (np.float32, UINT64), (np.float16, INT64)
    for number, windows in enumerate(WINDOW_SHAPES):
        dtype, index_type = types[number % 3]
        _, (x, gradient) = next(gradients(dtype, *windows))
        _, window, strides, start, end, dilations = windows
        options = {"strides": strides, "padding": [*zip(start, end, strict=True)], "dilations": dilations}
        options["device"] = mapped
        indices = dmlgpu.max_pooling(x, window, **options, output_indices=True, indices_data_type=index_type)[1]
        expected = max_pooling_grad(x, gradient, window, **options)
        for layout in (indices, np.asfortranarray(indices)):
            result = max_pooling_grad(x, gradient, window, **options, indices=layout)
            assert result.tobytes() == expected.tobytes()


def test_indices_save_the_first_pass(device):
    x = TensorDesc(FLOAT32, (2, 3, 16, 16))
    without, packed, strided = (
        lower(MaxPoolingGradOperatorDesc.of(x, (3, 3), indices_tensor=indices), device.limits)
        for indices in (None, TensorDesc(UINT64, (2, 3, 14, 14)), TensorDesc(UINT64, (2, 3, 14, 14), (1, 2, 6, 84)))
    )
    assert len(packed.dispatches) == len(without.dispatches) - 1 == len(strided.dispatches) - 1 == 1
    assert not packed.temporaries
    assert strided.temporaries == (TensorDesc(UINT64, (2, 3, 14, 14)),)


@pytest.mark.parametrize("kernel", ["pool_backward", "pool_backward_small"])
@pytest.mark.parametrize("index_type", [UINT32, UINT64], ids=str)
def test_indices_outside_of_their_windows_count_nowhere(any_device, index_type, kernel):
    x = TensorDesc(FLOAT32, (2, 2, 8, 8))
    steps = {"strides": (2, 2), "start_padding": (1, 1), "end_padding": (1, 1)}
    pooled = dmlgpu.MaxPooling2OperatorDesc.of(x, (3, 3), **steps, indices_data_type=index_type)
    desc = MaxPoolingGradOperatorDesc.of(x, (3, 3), **steps, indices_data_type=index_type)
    operator = any_device.compile(desc, kernel=kernel)
    gradient = np.random.default_rng(0).standard_normal(desc.input_gradient_tensor.sizes).astype(np.float32)
    _, right = dmlgpu.reference(pooled, np.random.default_rng(1).standard_normal(x.sizes).astype(np.float32))
    width = 1 << index_type.bits
    wrong = {
        "another plane": (right.astype(np.uint64) + 64) % 256,
        "the next window's": np.roll(right, 1, axis=3),
        "beyond the input": np.full_like(right, 256),
        "the greatest": np.full_like(right, width - 1),
        "negative": (width - 1 - right.astype(object)).astype(right.dtype),
        "2^32 and more": right.astype(np.uint64) + (1 << 32) if index_type is UINT64 else right,
        "all equal": np.full_like(right, 9),
    }
    nowhere = {"another plane", "beyond the input", "the greatest", "negative"}
    nowhere |= {"2^32 and more"} if index_type is UINT64 else set()
    for name, indices in wrong.items():
        gradients = operator.launch((gradient, indices.astype(right.dtype)), verify=True)
        assert (name in nowhere) == (not gradients.any())
    assert operator(gradient, wrong["all equal"]).sum() == pytest.approx(gradient[0, 0, :2, :2].sum(), 1e-5)


def test_an_index_between_the_elements_of_a_dilated_window_counts(any_device):
    gradient, indices = np.float32([[[5, 7]]]), np.array([[[1, 3]]], np.int64)
    result = max_pooling_grad(
        np.zeros((1, 1, 6), np.float32), gradient, (1, 2), strides=(1, 3), dilations=(1, 2), indices=indices,
        device=any_device,
    )  # fmt: skip
    assert result.tolist() == [[[0, 5, 0, 7, 0, 0]]]


def test_with_indices_the_input_is_not_read(device):
    x = np.random.default_rng(0).standard_normal((3, 8, 8)).astype(np.float32)
    values, indices = dmlgpu.max_pooling(x, 2, strides=2, output_indices=True, device=device)
    expected = max_pooling_grad(x, values, 2, strides=2, device=device)
    shape = np.broadcast_to(np.float32(np.nan), x.shape)
    g, i = device.tensor(values), device.tensor(indices)
    with device.batch():
        results = [max_pooling_grad(shape, a, 2, strides=2, indices=b) for a, b in ((g, i), (g, indices), (values, i))]
    assert isinstance(results[0], dmlgpu.DeviceTensor)
    assert all(np.array_equal(result, expected) for result in results)


def test_a_window_may_end_beyond_2_to_the_32(any_device):
    """The first of two windows holds elements 0 and 1; the second begins with element 1, and hangs over the end.

    There are so many rows that an invocation computes several neighbouring outputs.
    """
    extent = 2**31 + 2
    gradient = np.tile(np.array([6, 5], np.float32), (2000, 1, 1))
    steps = {"strides": (1, extent - 1), "padding": (0, (2**31, 0)), "device": any_device}
    result = dmlgpu.average_pooling_grad(gradient, (1, 6), (1, extent), **steps)
    assert np.array_equal(result, np.tile(np.array([3, 4, 1, 1, 1, 1], np.float32), (2000, 1, 1)))


def test_empty_arrays_have_empty_gradients():
    x, gradient = np.zeros((0, 3, 4, 4), np.float32), np.zeros((0, 3, 2, 2), np.float32)
    assert dmlgpu.average_pooling_grad(gradient, 4, 2, strides=2).shape == x.shape
    assert max_pooling_grad(x, gradient, 2, strides=2).shape == x.shape
