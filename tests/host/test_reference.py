"""The oracle against literal loops over elements."""

import itertools
import math
import operator
from fractions import Fraction

import numpy as np
import pytest

import dmlgpu
from dmlgpu import ArgmaxOperatorDesc, ArgminOperatorDesc, AveragePooling1OperatorDesc, ReduceFunction, reference
from dmlgpu.descriptors.cumulative import CumulativeOperatorDesc
from dmlgpu.descriptors.reduction import ExtremumOperatorDesc
from dmlgpu.reference.bounds import bounds, is_exact
from dmlgpu.testing.cases import CASES_OF, DECREASING, ELEMENT_TYPES, INCREASING, arg_desc
from dmlgpu.testing.fills import factors, small
from tests.support.errors import refuses


def bits(array):
    return array.view(f"u{array.itemsize}").tolist()


def is_nan(value):
    return value != value


def wins(value, champion, minimum, on_ties):
    """Whether a later value replaces the champion."""
    if is_nan(value) or is_nan(champion):
        return is_nan(value) and (on_ties or not is_nan(champion))
    if value == champion:
        return on_ties
    return value < champion if minimum else value > champion


def winner(values, minimum=False, last=False):
    """The index of the value that wins: the first or the last of equal ones."""
    best = 0
    for index in range(1, len(values)):
        if wins(values[index], values[best], minimum, last):
            best = index
    return best


def lines_along(sizes, axes):
    """For each output, in order, the coordinates of its elements, in order."""
    kept = [range(1) if axis in axes else range(size) for axis, size in enumerate(sizes)]
    reduced = [range(size) if axis in axes else range(1) for axis, size in enumerate(sizes)]
    for output in itertools.product(*kept):
        yield [tuple(map(sum, zip(output, at, strict=True))) for at in itertools.product(*reduced)]


def windows_over(desc, sizes, output_sizes):
    """For each output, in order, the coordinates of its elements, and how many positions precede the padding's end."""
    dilations = getattr(desc, "dilations", (1,) * len(desc.strides))
    for n, c, *output in np.ndindex(output_sizes):
        elements, count = [], 0
        for offset in itertools.product(*map(range, desc.window_size)):
            rows = zip(output, desc.strides, desc.start_padding, offset, dilations, strict=True)
            at = [o * stride - start + k * dilation for o, stride, start, k, dilation in rows]
            count += all(i < size + end for i, size, end in zip(at, sizes[2:], desc.end_padding, strict=True))
            if all(0 <= i < size for i, size in zip(at, sizes[2:], strict=True)):
                elements.append((n, c, *at))
        yield elements, count


def values_at(x, coordinates):
    return [x[at].item() for at in coordinates]


def maximum_of(x, elements):
    """The coordinates of the first maximum of some elements."""
    return elements[winner(values_at(x, elements))]


def logarithm(value):
    return math.log(value) if value > 0 else math.nan if value else -math.inf


def logsumexp(values):
    return max(values) + math.log(math.fsum(math.exp(value - max(values)) for value in values))


LITERAL = {
    ReduceFunction.AVERAGE: lambda values: math.fsum(values) / len(values),
    ReduceFunction.L1: lambda values: sum(map(abs, values)),
    ReduceFunction.L2: lambda values: math.hypot(*values),
    ReduceFunction.LOG_SUM: lambda values: logarithm(math.fsum(values)),
    ReduceFunction.LOG_SUM_EXP: logsumexp,
    ReduceFunction.MULTIPLY: math.prod,
    ReduceFunction.SUM: sum,
    ReduceFunction.SUM_SQUARE: lambda values: sum(value * value for value in values),
}


def check_reduce(desc, x):
    """Floats have the last bits of their type; integers wrap."""
    (output,) = reference(desc, x)
    for result, line in zip(output.flat, lines_along(x.shape, desc.axes), strict=True):
        expected = LITERAL[desc.function](values_at(x, line))
        if output.dtype.kind != "f":
            assert (int(result) - expected) % (1 << 8 * output.itemsize) == 0
        elif math.isnan(expected):
            assert np.isnan(result)
        else:
            eps = float(np.finfo(output.dtype).eps)
            assert result == output.dtype.type(expected) or result == pytest.approx(expected, rel=eps)


def windows_of(desc, x):
    """For each output, in order, the elements of its window, and how many positions precede the padding's end."""
    for elements, count in windows_over(desc, x.shape, desc.output_tensor.sizes):
        yield values_at(x, elements), count


def check_summed_windows(desc, x):
    (output,) = reference(desc, x)
    for result, (elements, count) in zip(output.flat, windows_of(desc, x), strict=True):
        if isinstance(desc, dmlgpu.LpPooling1OperatorDesc):
            expected = sum(abs(element) ** desc.p for element in elements) ** (1 / desc.p)
        else:
            expected = sum(elements) / (count if desc.include_padding else len(elements))
        assert result == pytest.approx(expected, rel=float(np.finfo(output.dtype).eps))


def quantized(total, count, input_scale, output_scale):
    """An average in output scales, rounded to the nearest integer; 0 if it is undefined."""
    if total == 0 or input_scale == 0 or math.isinf(output_scale) or math.isnan(input_scale + output_scale):
        return 0
    if math.isinf(input_scale) or output_scale == 0:
        sign = total * math.copysign(1, input_scale) * math.copysign(1, output_scale)
        return math.copysign(1000, sign)
    return round(Fraction(total) * Fraction(input_scale) / (count * Fraction(output_scale)))


def check_quantized(desc, x, *parameters):
    (output,) = reference(desc, x, *parameters)
    by_field = dict(zip(desc.input_fields[1:], parameters, strict=True))
    info = np.iinfo(output.dtype)
    for (at, result), (elements, count) in zip(np.ndenumerate(output), windows_of(desc, x), strict=True):
        input_scale, input_zero, output_scale, output_zero = (
            values.reshape(-1)[at[1] % values.size].item() if (values := by_field.get(field)) is not None else 0
            for field in [*desc.types][1:5]
        )
        total = sum(element - input_zero for element in elements)
        count = count if desc.include_padding else len(elements)
        expected = quantized(total, count, input_scale, output_scale) + output_zero
        assert result == min(max(expected, info.min), info.max)


def literal_shares(desc, gradient):
    """For each output the sum of its shares, as a fraction."""
    sums = np.full(desc.output_gradient_tensor.sizes, Fraction(0))
    for value, (elements, count) in zip(gradient.flat, windows_over(desc, sums.shape, gradient.shape), strict=True):
        for at in elements:
            sums[at] += Fraction(value.item()) / (count if desc.include_padding else len(elements))
    return sums


def literal_maxima(desc, x, gradient):
    """For each output the sum of the gradients of windows whose maximum it is, as a fraction."""
    sums = np.full(x.shape, Fraction(0))
    for value, (elements, _) in zip(gradient.flat, windows_over(desc, x.shape, gradient.shape), strict=True):
        sums[maximum_of(x, elements)] += Fraction(value.item())
    return sums


def literal_indices(desc, gradient, indices):
    """For each output the sum of the gradients of windows whose index it is, as a fraction.

    The index must lie between the first and the last element of the window.
    """
    sums = np.full(desc.output_gradient_tensor.sizes, Fraction(0))
    places = [*np.ndindex(sums.shape)]
    for n, c, *window in np.ndindex(gradient.shape):
        index = int(indices[(n, c, *window)])
        if index < len(places) and places[index][:2] == (n, c):
            rows = zip(window, desc.strides, desc.start_padding, desc.window_size, desc.dilations, strict=True)
            spans = [range(o * step - start, o * step - start + (k - 1) * d + 1) for o, step, start, k, d in rows]
            if all(at in span for at, span in zip(places[index][2:], spans, strict=True)):
                sums[places[index]] += Fraction(gradient[(n, c, *window)].item())
    return sums


def check_gradient(desc, *inputs):
    literal = literal_maxima if len(inputs) == 2 else literal_shares
    literal = literal_indices if "indices_tensor" in desc.input_fields else literal
    (output,) = reference(desc, *inputs)
    for result, expected in zip(output.flat, literal(desc, *inputs).flat, strict=True):
        assert result == pytest.approx(float(expected), rel=float(np.finfo(output.dtype).eps), abs=1e-7)


def check_max_pooling(desc, x):
    windows = windows_over(desc, x.shape, desc.output_tensor.sizes)
    positions = [int(np.ravel_multi_index(maximum_of(x, elements), x.shape)) for elements, _ in windows]
    output, *indices = reference(desc, x)
    assert bits(output.reshape(-1)) == bits(x.reshape(-1)[positions])
    assert all(array.reshape(-1).tolist() == positions for array in indices)


def check_unpooling(desc, x, indices):
    elements = [0] * desc.output_tensor.element_count
    for element, index in zip(bits(x.reshape(-1)), indices.reshape(-1).tolist(), strict=True):
        if index < len(elements):
            elements[index] = element
    (output,) = reference(desc, x, indices)
    assert bits(output.reshape(-1)) == elements


def literal_order(line, least_first):
    """The indices of a line's elements in order; each is the first of the best remaining elements."""
    unplaced = [*range(len(line))]
    while unplaced:
        best = unplaced[0]
        for index in unplaced[1:]:
            a, b = (line[best], line[index]) if least_first else (line[index], line[best])
            if (is_nan(a) and not is_nan(b)) or a > b:
                best = index
        unplaced.remove(best)
        yield best


def check_top_k(desc, x):
    values, indices = (np.moveaxis(output, desc.axis, -1) for output in reference(desc, x))
    lines = np.moveaxis(x, desc.axis, -1)
    for at in np.ndindex(lines.shape[:-1]):
        order = [*literal_order(lines[at].tolist(), desc.axis_direction is INCREASING)][: desc.k]
        assert indices[at].tolist() == order
        assert bits(values[at]) == bits(lines[at][order])


def literal_corner(corner, scale):
    """A float32 product, rounded to the nearest integer, halves away from 0."""
    with np.errstate(all="ignore"):
        product = float(np.float32(0 if is_nan(corner) else corner) * np.float32(scale))
    whole = int(min(abs(product), 2.0**30) + 0.5)
    return whole if product > 0 else -whole


def literal_bin(first, last, number, count, size):
    """The elements of a bin in a dimension of this size."""
    length = Fraction(max(last - first + 1, 1), count)
    begin, end = first + math.floor(number * length), first + math.ceil((number + 1) * length)
    return range(min(max(begin, 0), size), min(max(end, 0), size))


def check_roi_pooling(desc, x, rois):
    (output,) = reference(desc, x, rois)
    for r, c, i, j in np.ndindex(output.shape):
        batch, *corners = rois[0, 0, r].tolist()
        x1, y1, x2, y2 = (literal_corner(corner, desc.spatial_scale) for corner in corners)
        elements = []
        if -1 < batch < x.shape[0]:
            rows, columns = (
                literal_bin(*bounds)
                for bounds in zip((y1, x1), (y2, x2), (i, j), desc.pooled_size, x.shape[2:], strict=True)
            )
            elements = [x[int(batch), c, y, z] for y in rows for z in columns]
        maximum = elements[winner(elements)] if elements else x.dtype.type(0)
        assert bits(output[r, c, i, j]) == bits(maximum)


def check_cumulative(desc, x):
    """Floats have the last bits of their type; integers wrap."""
    combine, first = (operator.mul, 1) if isinstance(desc, dmlgpu.CumulativeProductOperatorDesc) else (operator.add, 0)
    (output,) = reference(desc, x)
    step = 1 if desc.axis_direction is INCREASING else -1
    lines, outputs = (np.moveaxis(array, desc.axis, -1)[..., ::step] for array in (x, output))
    for at in np.ndindex(lines.shape[:-1]):
        before = first
        for element, result in zip(lines[at].tolist(), outputs[at], strict=True):
            after = combine(before, element)
            expected, before = before if desc.is_exclusive else after, after
            if output.dtype.kind != "f":
                assert (int(result) - expected) % (1 << 8 * output.itemsize) == 0
            else:
                expected = output.dtype.type(expected)
                assert result == expected or result == pytest.approx(expected, rel=float(np.finfo(output.dtype).eps))


def check_reduction(desc, x):
    if desc.function in LITERAL:
        check_reduce(desc, x)
        return
    lines = [*lines_along(x.shape, desc.axes)]
    positions = [winner(values_at(x, line), desc.function is ReduceFunction.MIN) for line in lines]
    output, *indices = reference(desc, x)
    assert bits(output.reshape(-1)) == [bits(x[line[i]]) for line, i in zip(lines, positions, strict=True)]
    assert len(indices) == isinstance(desc, ExtremumOperatorDesc)
    assert all(array.reshape(-1).tolist() == positions for array in indices)


def check_arg(desc, x):
    (output,) = reference(desc, x)
    minimum, last = isinstance(desc, ArgminOperatorDesc), desc.axis_direction is DECREASING
    lines = lines_along(x.shape, desc.axes)
    assert output.reshape(-1).tolist() == [winner(values_at(x, line), minimum, last) for line in lines]


CHECKS = {
    (ArgmaxOperatorDesc, ArgminOperatorDesc): check_arg,
    (dmlgpu.ReduceOperatorDesc, ExtremumOperatorDesc): check_reduction,
    dmlgpu.MaxPooling2OperatorDesc: check_max_pooling,
    (AveragePooling1OperatorDesc, dmlgpu.LpPooling1OperatorDesc): check_summed_windows,
    dmlgpu.QuantizedLinearAveragePoolingOperatorDesc: check_quantized,
    (dmlgpu.AveragePoolingGradOperatorDesc, dmlgpu.MaxPoolingGradOperatorDesc): check_gradient,
    dmlgpu.MaxUnpoolingOperatorDesc: check_unpooling,
    dmlgpu.RoiPoolingOperatorDesc: check_roi_pooling,
    dmlgpu.TopK1OperatorDesc: check_top_k,
    CumulativeOperatorDesc: check_cumulative,
}


def check(desc: dmlgpu.OperatorDesc, *inputs):
    for array, tensor in zip(reference(desc, *inputs), desc.outputs, strict=True):
        assert (array.shape, array.dtype) == (tensor.sizes, tensor.data_type.numpy)
    (check_values,) = (check for kinds, check in CHECKS.items() if isinstance(desc.canonical(), kinds))
    check_values(desc.canonical(), *inputs)


@pytest.mark.parametrize("kind", CASES_OF, ids=lambda kind: kind.__name__)
def test_reference_equals_literal_loops_for_the_cases(kind):
    for case in CASES_OF[kind]:
        # Literal sums of infinities and NaN would be wrong.
        numbers = is_exact(case.desc) or case.fills[0] in (small, factors)
        if numbers and case.desc.inputs[0].element_count < 700:
            check(case.desc, *case.inputs())


def test_reference_does_not_write_its_input():
    x = np.array([3, 1, 2], np.int32)
    x.setflags(write=False)
    reference(arg_desc(ArgmaxOperatorDesc, ELEMENT_TYPES[3], (3,), [0]), x)


def test_reference_checks_its_inputs():
    desc, x = arg_desc(ArgmaxOperatorDesc, ELEMENT_TYPES[0], (2, 3), [1], INCREASING), np.zeros((2, 3), np.float32)
    for wrong, field in (x.T, "sizes"), (x.astype(object), "data_type"), (x.astype(np.float64), "data_type"):
        refuses(rf"^ArgmaxOperatorDesc\.input_tensor\.{field}: ", reference, desc, wrong)
    for inputs in (), (x, x):
        refuses("zip", reference, desc, *inputs, error=ValueError)


def test_an_operator_without_a_reference_is_refused():
    refuses("^OperatorDesc has no reference$", reference, dmlgpu.OperatorDesc(), error=NotImplementedError)


# The bounds, as the page of operators states them: E(m) = (4 + m) U sum(abs(terms)) + 2^-126 n

U, FLUSHED = 2.0**-23, 2.0**-126


def sums_error(terms, multiplications):
    return (4 + multiplications) * U * sum(map(abs, terms)) + FLUSHED * len(terms)


@pytest.mark.parametrize(
    ("function", "value", "error"),
    [
        ("sum", lambda x: sum(x), lambda x: sums_error(x, 0)),
        ("l1", lambda x: sum(map(abs, x)), lambda x: sums_error(x, 0)),
        ("average", lambda x: sum(x) / len(x), lambda x: sums_error(x, 0) / len(x)),
        ("sum_square", lambda x: sum(e * e for e in x), lambda x: sums_error([e * e for e in x], 1)),
        (
            "l2",
            lambda x: math.hypot(*x),
            lambda x: sums_error([e * e for e in x], 1) / (2 * math.hypot(*x)),  # the slope of the root
        ),
        (
            "log_sum",
            lambda x: math.log(sum(x)),
            lambda x: sums_error(x, 0) / sum(x) + 2 * U * math.log(sum(x)),  # the slope of the logarithm
        ),
        ("log_sum_exp", lambda x: math.log(sum(map(math.exp, x))), lambda x: 8 * U + 2 * U * (4 + math.log(len(x)))),
        ("multiply", math.prod, lambda x: len(x) * U * abs(math.prod(x))),
    ],
)
def test_bounds_are_as_stated(function, value, error):
    for row in ([3.0, -1.0, 5.0, 0.5], [2.0] * 1000, [7.0]):
        if function == "multiply":
            row = row[:9]
        x = np.array([row], np.float32)
        (bound,) = bounds(dmlgpu.ReduceOperatorDesc.of(function, x, (1,)), x)
        rounding = 2 * 2.0**-23 * abs(value(row)) + FLUSHED
        assert bound.item() == pytest.approx(error(row) + rounding, rel=1e-3), row
