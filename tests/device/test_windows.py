"""Max pooling: every combination of strides, padding and dilations, on odd shapes."""

import dataclasses
import itertools

import numpy as np
import pytest

import dmlgpu
from dmlgpu import AveragePooling1OperatorDesc, AveragePoolingGradOperatorDesc, TensorDesc, verify
from dmlgpu.comparison import check_outputs
from dmlgpu.lowering.kernels.pool_direct import PoolDirect
from dmlgpu.lowering.lower import lower
from dmlgpu.lowering.problem import problems_of
from dmlgpu.runtime.tuning import device_limits
from dmlgpu.testing.cases import (
    FAR_WINDOWS,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT16,
    INT32,
    SEPARABLE,
    SEPARABLE_STRIDED,
    SMALL_WINDOWS,
    UINT8,
    UINT32,
    UINT64,
    pool_desc,
)
from dmlgpu.testing.fills import distinct, least, ties
from tests.support.errors import refuses
from tests.support.limits import gpu_of_eight, limits_of
from tests.support.plans import check, computed

STRIDES, PADDINGS, DILATIONS = (1, 2, 3), (0, 1, 2), (1, 2, 3)
# (stride, start padding, end padding, dilation) of one dimension; each end padding is in a third of them.
DIMENSIONS = [
    (stride, start, (start + stride + dilation) % 3, dilation)
    for stride, start, dilation in itertools.product(STRIDES, PADDINGS, DILATIONS)
]


def images(data_type, sizes, fill=distinct):
    return fill(data_type.numpy, int(np.prod(sizes))).reshape(sizes)


def pool_all(device, data_type, sizes, window, combinations, fill=distinct, **options):
    """Pools one image with all combinations, and with sizes rounded down and up; returns the number of poolings."""
    x = images(data_type, sizes, fill)
    count = 0
    for combination in combinations:
        strides, start, end, dilations = zip(*combination, strict=True)
        window_fields = window, strides, start, end, dilations
        floor = pool_desc(data_type, sizes, *window_fields, **options)
        descs = {floor}
        # Rounding up adds a window, unless that lies wholly in the padding.
        added = zip(floor.output_tensor.sizes[2:], strides, start, sizes[2:], strict=True)
        if all(n * stride - padding < size for n, stride, padding, size in added):
            descs.add(pool_desc(data_type, sizes, *window_fields, ceil=True, **options))
        for desc in descs:
            verify(desc, x, device=device)
        count += len(descs)
    return count


# A ninth of all pairs: every stride, padding and dilation of one dimension with each of the other dimension.
PAIRS = [
    (a, b)
    for a, b in itertools.product(DIMENSIONS, repeat=2)
    if (a[0] + a[1] + b[0] - b[3]) % 3 == (a[3] + b[1] + b[3]) % 3 == 0
]
by_rows = pytest.mark.parametrize(("stride", "dilation"), [*itertools.product(STRIDES, DILATIONS)])


def pairs_of(stride, dilation):
    return [(row, column) for row, column in PAIRS if (row[0], row[3]) == (stride, dilation)]


# Each device has every other pair.
@by_rows
def test_combinations_in_two_dimensions_are_exact(device, stride, dilation):
    assert pool_all(device, FLOAT32, (1, 2, 11, 13), (3, 3), pairs_of(stride, dilation)[1::2]) >= 4


@pytest.fixture
def going_down(driver, open_device):
    """A device whose only invocation has tiles of many rows, which share their loads."""
    limits = dataclasses.replace(device_limits(driver), group_size=1, group_count=1, simd_width=1)
    return open_device(driver.index, limits)


@by_rows
def test_combinations_down_strips_are_exact(going_down, stride, dilation):
    assert pool_all(going_down, FLOAT32, (1, 2, 11, 13), (3, 3), pairs_of(stride, dilation)[::2], ties) >= 5


@pytest.mark.parametrize("case", SMALL_WINDOWS[::2], ids=lambda case: case.id)
def test_small_windows_down_strips_are_exact(going_down, case):
    verify(case.desc, *case.inputs(), device=going_down)


@pytest.mark.parametrize("case", SEPARABLE_STRIDED, ids=lambda case: case.id)
@pytest.mark.parametrize("most_bytes", [16 << 20, 12 << 10])
def test_separable_passes_of_some_planes_or_slabs_are_exact(driver, open_device, most_bytes, case):
    """A pass has all planes; or two planes, or some slabs, at a time."""
    device = open_device(driver.index, dataclasses.replace(device_limits(driver), temporary_bytes=most_bytes))
    operator, inputs = device.compile(case.desc, kernel="pool_separable"), case.inputs()
    check_outputs(operator.plan, inputs, operator(*inputs))


@pytest.mark.parametrize("name", ["float32-uint32", "float16-uint32", "int8-uint64", "float64-uint64"])
def test_separable_passes_of_words_are_exact(driver, open_device, name):
    """Invocations are so few that each continues from one line to the next."""
    limits = dataclasses.replace(device_limits(driver), gathers=True, unrolls=True, group_size=8, group_count=1)
    device = open_device(driver.index, limits)
    (case,) = (case for case in SEPARABLE if case.id == f"separable-small-{name}")
    assert computed(device, case.desc, case.inputs(), "pool_separable")


@pytest.mark.parametrize("segment_bytes", [1024, 2560])
def test_separable_passes_over_several_segments_are_exact(driver, open_device, segment_bytes):
    """Segments end within rows, of the input and of outputs. SwiftShader compiles the other cases for minutes."""
    limits = dataclasses.replace(device_limits(driver), segment_bytes=segment_bytes, dispatch_count=1 << 20)
    device, modules = open_device(driver.index, limits), set()
    ids = "separable-shared-float16-uint32", "separable-ceil-float32-none"
    shared = (case for case in SEPARABLE if case.id in ids)
    for case in (*shared, *SEPARABLE_STRIDED):
        plan = computed(device, case.desc, case.inputs(), "pool_separable")
        # Rows may be too long for such a segment.
        if plan and case.desc.inputs[0].size_in_bytes > plan.memory[0]:
            modules |= {dispatch.shader.variant.removesuffix("_words") for dispatch in plan.dispatches}
    assert modules >= {"pool_separable_rows", "pool_separable_columns", "reduce"}


@pytest.mark.parametrize("data_type", [FLOAT32, FLOAT16, UINT64], ids=lambda data_type: data_type.name.lower())
def test_vectors_in_the_padding_before_a_buffer_are_not_loaded(staged, data_type):
    """Vectors in the padding of the first window would lie before the buffer; other tensors begin after a guard."""
    x = images(data_type, (1, 1, 4, 24))
    tensor = staged.tensor(x)
    assert tensor._segments.slices[0].offset == 0
    desc = pool_desc(data_type, x.shape, (1, 7), None, (0, 6), None, (1, 1))
    operator = staged.compile(desc, kernel="pool_small")
    check_outputs(operator.plan, (x,), tuple(output.numpy() for output in operator(tensor)))


def test_windows_of_least_values_down_strips_are_exact(going_down):
    # Rows of the padding, before and after the input, have no element that wins; nor do those between others.
    for dilation, volume in itertools.product((1, 2, 3), (False, True)):
        sizes, window, pad, dilations = (4, 9, 10), (2, 3, 3), (1, 2, 2), (1, dilation, 1)
        first = 0 if volume else 1
        desc = pool_desc(
            INT16, (1, 2, *sizes[first:]), window[first:], None, pad[first:], pad[first:], dilations[first:]
        )
        x = images(INT16, desc.input_tensor.sizes, least)
        verify(desc, x, device=going_down)


def highest_twice(dtype, count):
    """Negative numbers, both zeros, and two NaN, so that the highest often has an equal with other bits."""
    negative, quiet = 1 << 8 * dtype.itemsize - 1, int(np.array(np.nan, dtype).view(f"u{dtype.itemsize}"))
    patterns = np.array([negative, 0, *3 * [negative | 1], quiet, negative | quiet], f"u{dtype.itemsize}")
    odds = [0.3, 0.3, 0.1, 0.1, 0.1, 0.05, 0.05]
    return np.random.default_rng(count).choice(patterns, count, p=odds).view(dtype)


@pytest.mark.parametrize("data_type", [FLOAT16, FLOAT32, FLOAT64], ids=lambda data_type: data_type.name.lower())
@pytest.mark.parametrize("window", [(3, 3), (2, 2, 3), (2, 3, 3)], ids=str)
def test_values_down_strips_have_the_bits_of_the_first(going_down, data_type, window):
    desc = pool_desc(data_type, (1, 2, 6, 9, 10)[: 2 + len(window)], window, indices=None)
    operator = going_down.compile(desc, kernel="pool_small")
    assert operator.plan.dispatches[0].shader.constants["ring_rows"] > 1
    x = images(data_type, desc.input_tensor.sizes, highest_twice)
    operator.launch((x,), verify=True)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_every_stride_padding_and_dilation_of_a_row_is_exact(device, size):
    """All combinations in which every window holds input, also dilations larger than the row; half of them run."""
    count = 0
    for window, stride, start, dilation in itertools.product((2, 3), STRIDES, (0, 1, 2, 5), (1, 2, 4, 7)):
        if (window + stride + start // 2 + dilation // 2 + size) % 2:
            continue
        extent = 1 + (window - 1) * dilation
        end = (extent - 1) * ((window + stride + start + dilation) % 2)
        steps = size + start + end - extent
        begins = [o * stride - start for o in range(steps // stride + 1)]
        if steps >= 0 and all(any(0 <= b + k * dilation < size for k in range(window)) for b in begins):
            desc = pool_desc(INT16, (1, 1, 1, size), (1, window), (1, stride), (0, start), (0, end), (1, dilation))
            verify(desc, images(INT16, (1, 1, 1, size)), device=device)
            count += 1
    assert count >= 11


@pytest.fixture
def unrolling(driver, open_device, monkeypatch):
    """A device of each driver that runs the kernel for small windows, even where another is faster."""
    for limit in "_UNROLLED_WINDOW", "_UNROLLED_ELEMENTS":
        monkeypatch.setattr(f"dmlgpu.lowering.kernels.pool_small.{limit}", 1000)
    return open_device(driver.index, dataclasses.replace(limits_of(driver, "CPU"), unrolls=True))


@pytest.mark.parametrize("case", SMALL_WINDOWS, ids=lambda case: case.id)
def test_small_windows_are_exact(unrolling, case):
    operator = unrolling.compile(case.desc)
    assert operator.plan.dispatches[0].shader.variant == "pool_small"
    verify(case.desc, *case.inputs(), device=unrolling)


@pytest.mark.parametrize(("data_type", "slabs"), [(FLOAT16, 2), (UINT8, 4)], ids=["two", "four"])
def test_small_windows_are_exact_if_rows_of_outputs_share_words(driver, open_device, data_type, slabs):
    """Slabs of 3 rows of 5 outputs: a dispatch has as many as end with a word, or the kernel cannot compute them."""
    desc = pool_desc(data_type, (1, 8, 5, 7), (3, 3))
    for most, dispatches in (30 * 12 * slabs, 8 // slabs // 2), (15 * 12 * slabs, 8 // slabs):
        device = open_device(
            driver.index, dataclasses.replace(device_limits(driver), dispatch_elements=most, unrolls=True)
        )
        plan = device.compile(desc).plan
        assert [dispatch.shader.variant for dispatch in plan.dispatches] == ["pool_small"] * dispatches
        verify(desc, images(data_type, (1, 8, 5, 7)), device=device)
    limits = dataclasses.replace(device_limits(driver), dispatch_elements=15 * slabs)
    refuses("slabs that fill whole words are too large", lower, desc, limits, "pool_small")


# Runs where outputs share rows, and where they do not.
@pytest.mark.parametrize(
    ("data_type", "window", "dilation", "shared", "alone"),
    [
        (UINT8, (1, 2), 1, 16, 16),
        (UINT8, (3, 3), 1, 8, 8),
        (UINT8, (5, 5), 1, 4, 8),
        (FLOAT16, (3, 3), 1, 8, 8),
        (FLOAT16, (5, 5), 1, 4, 8),
        (FLOAT16, (5, 5), 2, 2, 8),
        (FLOAT32, (5, 5), 1, 4, 8),
        (FLOAT32, (5, 5), 2, 2, 8),
        (FLOAT64, (3, 3), 1, 4, 4),
        (FLOAT64, (5, 5), 1, 2, 4),
        (FLOAT64, (5, 5), 2, 1, 4),
    ],
    ids=str,
)
def test_tiles_become_shorter_where_states_would_not_fit_the_registers(
    driver, open_device, data_type, window, dilation, shared, alone
):
    # Rows of outputs are whole tiles, or not.
    outputs, indices = (20, UINT64) if dilation == 2 or data_type is FLOAT64 else (16, UINT32)
    height, width = ((n - 1) * dilation for n in window)
    sizes = (1, 16, height + 5, width + outputs)
    desc = pool_desc(data_type, sizes, window, dilations=(dilation, dilation), indices=indices)
    # Eight invocations compute several rows of outputs each; more invocations compute one.
    for group_count, tile in (1, shared), (64, alone):
        limits = dataclasses.replace(device_limits(driver), group_size=8, group_count=group_count, unrolls=True)
        device = open_device(driver.index, dataclasses.replace(limits, cooperating=True))
        verify(desc, images(data_type, sizes), device=device)
        for dispatch in device.compile(desc).plan.dispatches:
            assert (dispatch.shader.variant, dispatch.shader.constants["tile_width"]) == ("pool_small", tile)


def test_combinations_of_rows_in_runs_of_eight_are_exact(driver, open_device):
    """Every combination along the width, with one of nine along the height."""
    device = gpu_of_eight(driver, open_device)
    rows = [row for row in DIMENSIONS if row[0] == 4 - row[3]]
    assert pool_all(device, FLOAT32, (2, 2, 11, 23), (3, 3), zip(itertools.cycle(rows), DIMENSIONS), ties) >= 27


@pytest.mark.parametrize(
    ("data_type", "sizes", "window", "stride", "tile"),
    [
        (FLOAT32, (1, 2, 9, 33), (2, 2), 1, 8),
        (INT32, (1, 3, 9, 34), (3, 3), 2, 8),
        (UINT32, (2, 1, 8, 39), (2, 4), 3, 8),
        (FLOAT32, (1, 2, 5, 7, 18), (2, 3, 3), 1, 8),
        # The windows of eight outputs reach too far; there are too few outputs; eight are no more than a vector.
        (FLOAT32, (3, 4, 9, 51), (1, 1), 5, 4),
        (FLOAT32, (1, 1, 6, 6), (2, 2), 1, 4),
        (FLOAT16, (1, 4, 9, 33), (2, 2), 1, 8),
        (UINT64, (1, 2, 9, 33), (2, 2), 1, 4),
    ],
    ids=str,
)
def test_tiles_of_a_gpu_have_the_expected_width(driver, open_device, data_type, sizes, window, stride, tile):
    device = gpu_of_eight(driver, open_device, unrolls=True)
    pad = tuple(int(n > 1) for n in window)
    strides = (1,) * (len(window) - 1) + (stride,)
    desc = pool_desc(data_type, sizes, window, strides, pad, pad, indices=UINT32 if stride == 1 else None)
    (dispatch,) = device.compile(desc).plan.dispatches
    assert (dispatch.shader.variant, dispatch.shader.constants["tile_width"]) == ("pool_small", tile)
    verify(desc, images(data_type, sizes, ties), device=device)


# Each of the next two tests has every window, with half of the types.
@pytest.mark.parametrize("case", FAR_WINDOWS[::2], ids=lambda case: case.id)
def test_far_windows_are_exact(unrolling, case):
    verify(case.desc, *case.inputs(), device=unrolling)


@pytest.mark.parametrize("case", FAR_WINDOWS[1::2], ids=lambda case: case.id)
def test_far_windows_are_exact_element_by_element(driver, open_device, case):
    limits = dataclasses.replace(device_limits(driver), invocation_loads=20, unrolls=False)
    device = open_device(driver.index, limits)
    assert PoolDirect(*problems_of(case.desc.canonical()), limits).with_partials.elements < 8
    verify(case.desc, *case.inputs(), device=device)


@pytest.mark.parametrize("data_type", [UINT8, INT16, FLOAT32, UINT64], ids=lambda t: t.name)
@pytest.mark.parametrize(("size", "window"), [(16, 4), (40, 32)], ids=["small", "long"])
@pytest.mark.parametrize("pad", [1, 3])
def test_batch_entries_may_have_any_stride(unrolling, data_type, size, window, pad):
    # Rows begin with a vector of 16 bytes in the first batch entry, and elsewhere in the next.
    plane = 2 * size * size
    strides = plane + pad, size * size, size, 1
    desc = pool_desc(data_type, (3, 2, size, size), (1, window), (1, 4), input_strides=strides)
    verify(desc, images(data_type, (3, 2, size, size)), device=unrolling)


@pytest.mark.parametrize("data_type", [UINT8, FLOAT32], ids=lambda t: t.name)
def test_windows_that_are_almost_all_padding_are_exact(any_device, data_type):
    # The oracle would look at every element of a window.
    padded = 2**32 - 1
    start, window = (2**31, 2**31 - 7), (padded - 1, padded - 2)
    end = padded - 4 - start[0], padded - 5 - start[1]
    desc = pool_desc(data_type, (1, 2, 4, 5), window, None, start, end)
    x = images(data_type, (1, 2, 4, 5))
    values, indices = any_device.compile(desc)(x)
    for channel in range(2):
        assert np.unique(values[0, channel]) == x[0, channel].max()
        assert np.unique(indices[0, channel]) == 20 * channel + x[0, channel].argmax()


@pytest.mark.parametrize("window", [2, 11])
def test_many_separate_batch_entries_are_copied_first(device, window):
    """A dispatch for each would be too many. Separable passes have separate temporaries, after the copy."""
    sizes, strides = (2049, 2, 12, 13), (2 * 12 * 13 + 1, 12 * 13, 13, 1)
    source = TensorDesc(FLOAT32, sizes, strides)
    x = np.random.default_rng(0).integers(0, 99, sizes).astype(np.float32)
    pooled = TensorDesc(FLOAT32, tuple(n - window + 1 if i > 1 else n for i, n in enumerate(sizes)))
    gradient = np.random.default_rng(1).random(pooled.sizes, np.float32)
    for desc, inputs in (
        (dmlgpu.MaxPooling2OperatorDesc.of(source, (window,) * 2, indices_data_type=UINT32), (x,)),
        (AveragePooling1OperatorDesc.of(source, (window,) * 2), (x,)),
        (dmlgpu.MaxPoolingGradOperatorDesc.of(source, (window,) * 2), (x, gradient)),
        (AveragePoolingGradOperatorDesc.of(source, (2049, 2, 13, 14), (2, 2)), (x,)),
    ):
        plan = device.compile(desc).plan
        check(plan)
        assert len(plan.dispatches) < 50
        verify(desc, *inputs, device=device)
