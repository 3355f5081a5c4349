"""Whatever is valid is computed exactly; whatever is not is a DescriptorError that says where."""

import math
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from dmlgpu import (
    ArgmaxOperatorDesc,
    ArgminOperatorDesc,
    AxisDirection,
    DataType,
    DescriptorError,
    MaxPooling1OperatorDesc,
    MaxPooling2OperatorDesc,
    MaxPoolingOperatorDesc,
    OperatorDesc,
    ReduceFunction,
    ReduceOperatorDesc,
    TensorDesc,
    argmax,
    max_pooling,
    reference,
    verify,
)
from tests.cases import (
    ELEMENT_TYPES,
    INDEX_TYPES,
    UINT32,
    UINT64,
    any_bits,
    arranged,
    distinct,
    negative,
    reduced_sizes,
    special,
    special_without_nan,
    ties,
)
from tests.test_layouts import guard, laid_out

KINDS = (
    ArgmaxOperatorDesc,
    ArgminOperatorDesc,
    ReduceOperatorDesc,
    MaxPoolingOperatorDesc,
    MaxPooling1OperatorDesc,
    MaxPooling2OperatorDesc,
)
FILLS = (ties, any_bits, distinct, negative, special, special_without_nan)


def bounded(examples):
    """The same examples every time; the device is shared by all of them."""
    return settings(
        derandomize=True,
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


# Valid descriptors


@st.composite
def layouts(draw, sizes, *, output=False):
    """Strides for these sizes: packed, or permuted with gaps; of inputs also broadcast or anything small."""
    styles = ("packed", "packed", "permuted", "padded")
    style = draw(st.sampled_from(styles if output else (*styles, "broadcast", "any")))
    if style == "packed":
        return None
    if style == "any":
        return tuple(draw(st.integers(0, 9)) for _ in sizes)
    order = draw(st.permutations(range(len(sizes)))) if style != "padded" else range(len(sizes))
    strides, step = [0] * len(sizes), 1
    for dim in reversed(order):
        strides[dim] = step
        step = step * sizes[dim] + (0 if style == "permuted" else draw(st.integers(0, 3)))
    if style == "broadcast":
        strides[draw(st.integers(0, len(sizes) - 1))] = 0
    return tuple(strides)


@st.composite
def tensors(draw, data_type, sizes, *, output=False):
    strides = draw(layouts(sizes, output=output))
    extra = draw(st.sampled_from((None, None, None, 0, 1, 4, 1000)))
    least = TensorDesc(data_type, sizes, strides).minimum_size_in_bytes
    return TensorDesc(data_type, sizes, strides, None if extra is None else least + extra)


@st.composite
def arg_ops(draw, kind):
    rank = draw(st.integers(1, 8))
    largest = (300, 30, 12, 7, 5, 4, 3, 3)[rank - 1]
    sizes = draw(st.tuples(*[st.integers(1, largest)] * rank))
    axes = draw(st.lists(st.integers(0, rank - 1), min_size=1, unique=True))
    source = draw(tensors(draw(st.sampled_from(ELEMENT_TYPES)), sizes))
    target = draw(tensors(draw(st.sampled_from(INDEX_TYPES)), reduced_sizes(sizes, axes), output=True))
    if kind is ReduceOperatorDesc:
        function = draw(st.sampled_from((ReduceFunction.ARGMAX, ReduceFunction.ARGMIN)))
        return ReduceOperatorDesc(function, source, target, axes)
    return kind(source, target, axes, draw(st.sampled_from(AxisDirection)))


@st.composite
def poolings(draw, kind):
    spatial = draw(st.integers(2, 3))
    sizes = [draw(st.integers(1, 3)), draw(st.integers(1, 3))]
    output, rows = [*sizes], []
    for _ in range(spatial):
        dilation = draw(st.integers(1, 3)) if kind is MaxPooling2OperatorDesc else 1
        window, stride = draw(st.integers(1, 4)), draw(st.integers(1, 4))
        extent = 1 + (window - 1) * dilation
        # With these every window holds input.
        start, end = draw(st.integers(0, min(4, extent - 1))), draw(st.integers(0, min(4, extent - 1)))
        least = max(dilation, extent - start - end)
        size = draw(st.integers(least, least + (11 if spatial == 2 else 5)))
        rest = size + start + end - extent
        count = rest // stride + 1
        rounds_up = rest % stride and count * stride - start < size
        sizes.append(size)
        output.append(count + draw(st.booleans()) if rounds_up else count)
        rows.append((stride, window, start, end, dilation))
    data_type = draw(st.sampled_from(ELEMENT_TYPES))
    fields = {
        "input_tensor": draw(tensors(data_type, tuple(sizes))),
        "output_tensor": draw(tensors(data_type, tuple(output), output=True)),
        "output_indices_tensor": draw(
            st.none() | st.sampled_from((UINT32, UINT64)).flatmap(lambda t: tensors(t, tuple(output), output=True))
        ),
    }
    names = ("strides", "window_size", "start_padding", "end_padding", "dilations")
    fields |= dict(zip(names, zip(*rows, strict=True), strict=True))
    if kind is not MaxPooling2OperatorDesc:
        del fields["dilations"]
    if kind is MaxPoolingOperatorDesc:
        del fields["output_indices_tensor"]
    return kind(**fields)


def descs(kind):
    return poolings(kind) if "Pooling" in kind.__name__ else arg_ops(kind)


# The others are planned as these are.
EXAMPLES = {ArgmaxOperatorDesc: 60, ArgminOperatorDesc: 40, MaxPooling2OperatorDesc: 80}

by_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__.removesuffix("OperatorDesc"))


@by_kind
def test_device_equals_reference(any_device, kind):
    @bounded(EXAMPLES.get(kind, 10))
    @given(descs(kind), st.sampled_from(FILLS))
    def run(desc, fill):
        verify(desc, arranged(desc.inputs[0], fill), device=any_device)

    run()


@by_kind
def test_only_elements_of_outputs_are_written(any_device, kind):
    @bounded(EXAMPLES.get(kind, 10) // 3)
    @given(descs(kind), st.sampled_from(FILLS))
    def run(desc, fill):
        x = arranged(desc.inputs[0], fill)
        targets = [any_device.tensor_from_bytes(guard(tensor.size_in_bytes), tensor) for tensor in desc.outputs]
        any_device.compile(desc)(any_device.tensor(x, desc.inputs[0]), out=targets)
        for target, expected in zip(targets, reference(desc, x), strict=True):
            before = guard(target.desc.size_in_bytes)
            assert np.array_equal(target.bytes(), laid_out(expected, target.desc, before))

    run()


@by_kind
def test_descriptors_are_values(kind):
    @bounded(50)
    @given(descs(kind))
    def run(desc):
        again = eval(repr(desc))
        assert again == desc
        assert hash(again) == hash(desc)
        assert desc.canonical().canonical() == desc.canonical()

    run()


# Invalid descriptors

ODD = st.sampled_from(
    (None, 0, 1, -1, 2**32, 2**70, 1.5, "1", (), (0,), (1, 1), (1, -1), (2, 2.5), (2**32, 1), {}, b"", [[1]])
)
ENTRIES = st.lists(st.one_of(st.integers(-1, 9), st.sampled_from((2**31, 2**32 - 1, 2**32, 0.5, None))), max_size=9)
SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=6).map(tuple)
ANY_TENSOR = st.builds(TensorDesc, st.sampled_from([t for t in DataType if t.bits]), SIZES)


def outcome(build, *names):
    """None where something was built; an error must be a DescriptorError that begins with one of the names."""
    try:
        return build()
    except DescriptorError as error:
        message = str(error)
    assert re.match(rf"({'|'.join(names)})\.[a-z_]+(\.[a-z_]+)?(\[\d+\])?: \S", message), message
    return None


@bounded(300)
@given(st.one_of(st.sampled_from(list(DataType)), ODD), ODD | ENTRIES, ODD | ENTRIES, ODD | st.integers(-9, 2**34))
def test_any_tensor_is_valid_or_a_descriptor_error(data_type, sizes, strides, total):
    tensor = outcome(lambda: TensorDesc(data_type, sizes, strides, total), "TensorDesc")
    if tensor is not None:
        assert 1 <= tensor.rank <= 8
        assert 1 <= tensor.element_count < 2**32
        assert tensor.reach < 2**32
        assert tensor.size_in_bytes >= tensor.minimum_size_in_bytes > 0
        assert eval(repr(tensor)) == tensor


@by_kind
def test_any_fields_are_valid_or_a_descriptor_error(kind):
    """A valid descriptor with some of its fields replaced by anything."""

    @bounded(100)
    @given(descs(kind), st.data())
    def run(desc, data):
        fields = dict(vars(desc))
        for field in data.draw(st.sets(st.sampled_from(sorted(fields)), min_size=1, max_size=2)):
            fields[field] = data.draw(ANY_TENSOR | ODD if "tensor" in field else ODD | ENTRIES)
        built = outcome(lambda: kind(**fields), kind.__name__)
        assert built is None or isinstance(built, OperatorDesc)

    run()


@bounded(150)
@given(st.lists(st.integers(0, 4), max_size=9), ODD | ENTRIES, st.sampled_from(("f4", "i1", "f8", "?")))
def test_any_arguments_of_argmax_are_valid_or_a_descriptor_error(shape, axes, dtype):
    # Empty results need no device: valid calls are made with an empty axis that is kept.
    assume(0 in shape and math.prod(shape) == 0)
    names = "ArgmaxOperatorDesc", "TensorDesc"
    if dtype == "?":
        with pytest.raises(DescriptorError, match=r"^NumPy type bool has no DirectML data type"):
            argmax(np.zeros(shape, dtype), axes)
    else:
        result = outcome(lambda: argmax(np.zeros(shape, dtype), axes), *names)
        assert result is None or result.size == 0


@bounded(250)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=6), st.data())
def test_any_arguments_of_max_pooling_are_valid_or_a_descriptor_error(shape, data):
    names = ("window_size", "strides", "start_padding", "end_padding", "dilations", "output_sizes")
    given = {name: data.draw(ODD | ENTRIES) for name in data.draw(st.sets(st.sampled_from(names)))}
    window = given.pop("window_size", (1,) * max(0, len(shape) - 2))
    x = np.zeros((0, *shape[1:]), np.float32)
    result = outcome(lambda: max_pooling(x, window, **given), "MaxPooling2OperatorDesc", "TensorDesc")
    assert result is None or result.shape[:2] == x.shape[:2]
