"""The oracle of pooling over windows.

bounds.py explains E() and U, which the docstrings of bounds use.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from dmlgpu.descriptors.dtypes import DataType
from dmlgpu.descriptors.pooling import (
    AveragePooling1OperatorDesc,
    AveragePoolingGradOperatorDesc,
    LpPooling1OperatorDesc,
    MaxPooling2OperatorDesc,
    MaxPoolingGradOperatorDesc,
    MaxUnpoolingOperatorDesc,
    QuantizedLinearAveragePoolingOperatorDesc,
)
from dmlgpu.descriptors.roi_pooling import RoiPoolingOperatorDesc
from dmlgpu.descriptors.tensor import Array, TensorDesc
from dmlgpu.reference.bounds import Bounds, bounds_of, relative_error, rounded, sum_error, terms_of_sums, through
from dmlgpu.reference.reduction import nearest, units


def max_pooling(desc: MaxPooling2OperatorDesc, x: Array) -> tuple[Array, ...]:
    """The maxima, and their indices if the descriptor has a tensor for them."""
    sizes = desc.output_tensor.sizes
    maxima, indices = np.zeros(sizes, x.dtype), np.zeros(sizes, np.int64)
    has_maximum = np.zeros(sizes, bool)
    positions = np.arange(x.size, dtype=np.int64).reshape(x.shape)
    for windows, elements in _elements(desc, x.shape):
        value, maximum = x[elements], maxima[windows]
        # A later element replaces the maximum if it is greater, or if it is the first NaN.
        replaces = ~has_maximum[windows] | (value > maximum) | ((value != value) & (maximum == maximum))
        maxima[windows] = np.where(replaces, value, maximum)
        indices[windows] = np.where(replaces, positions[elements], indices[windows])
        has_maximum[windows] = True
    if desc.output_indices_tensor is None:
        return (maxima,)
    return maxima, indices.astype(desc.output_indices_tensor.data_type.numpy)


def average_pooling(desc: AveragePooling1OperatorDesc, x: Array) -> tuple[Array, ...]:
    """The averages, computed in float64."""
    with np.errstate(all="ignore"):
        values = unrounded_averages(desc, x).astype(desc.output_tensor.data_type.numpy)
    return (values,)


def average_pooling_with_exact_sums(desc: AveragePooling1OperatorDesc, x: Array) -> tuple[Array, ...]:
    """As `average_pooling`, but the values are rounded once, from exact sums."""
    finite = np.isfinite(x)
    # Integers, in units of 2^-149.
    totals = sums(desc, units(np.where(finite, x, 0)))
    # Add only infinities and NaN: a sum of finite elements may overflow.
    specials = sums(desc, np.where(finite, 0, x).astype(np.float64))
    specials[np.isnan(specials)] = np.nan
    divisors = np.broadcast_to(counts(desc, x.shape), totals.shape)
    values = [
        nearest(Fraction(total, int(count) << 149), x.dtype) if special == 0 else special
        for total, special, count in zip(totals.flat, specials.flat, divisors.flat, strict=True)
    ]
    return (np.array(values, x.dtype).reshape(totals.shape),)


def unrounded_averages(desc: AveragePooling1OperatorDesc, x: Array) -> Array:
    """The averages before they are rounded."""
    with np.errstate(all="ignore"):
        average: Array = sums(desc, x.astype(np.float64)) / counts(desc, x.shape)
    return average


@bounds_of.register
def _average_pooling_bounds(desc: AveragePooling1OperatorDesc) -> Bounds:
    """E(0) / count, where E(0) is the error of the sum of a window's elements."""

    def bounds(x: Array) -> tuple[Array, ...]:
        error = sum_error(terms_of_sums(partial(sums, desc), x.astype(np.float64)), 0) / counts(desc, x.shape)
        return (rounded(error, unrounded_averages(desc, x), desc.output_tensor.data_type.numpy),)

    return bounds


def counts(desc: _Averaging, shape: tuple[int, ...]) -> Array:
    """The divisor of each window's sum, in elements."""
    if not desc.include_padding:
        return sums(desc, np.ones(shape))
    rows = zip(
        shape[2:], desc.output_tensor.sizes[2:], desc.strides, desc.window_size, desc.dilations,
        desc.start_padding, desc.end_padding, strict=True,
    )  # fmt: skip
    count = np.ones(1)
    for size, outputs, stride, window, dilation, start, end in rows:
        room = size + start + end - np.arange(outputs) * stride  # from a window's first position to the padding's end
        count = np.multiply.outer(count, np.minimum(window, -(-room // dilation)))
    return count[np.newaxis]


def quantized_average_pooling(
    desc: QuantizedLinearAveragePoolingOperatorDesc, x: Array, *parameters: Array
) -> tuple[Array, ...]:
    """The averages, computed in integers and fractions."""
    arrays = dict(zip(desc.input_fields[1:], parameters, strict=True))

    def of_channels(field: str) -> list[Any]:
        values = arrays[field].reshape(-1).tolist() if field in arrays else [0]
        return values * x.shape[1] if len(values) == 1 else values

    zero_points = np.reshape(of_channels("input_zero_point_tensor"), (-1, *(1,) * (x.ndim - 2)))
    totals = sums(desc, x.astype(np.int64) - zero_points)
    divisors = np.broadcast_to(counts(desc, x.shape).astype(np.int64), totals.shape)
    outputs = np.empty(totals.shape, desc.output_tensor.data_type.numpy)
    limits = np.iinfo(outputs.dtype)
    fields = "input_scale_tensor", "output_scale_tensor", "output_zero_point_tensor"
    for channel, (*scales, zero_point) in enumerate(zip(*map(of_channels, fields), strict=True)):
        quotients = _rounded_quotients(totals[:, channel], divisors[:, channel], *scales)
        outputs[:, channel] = np.clip(quotients + zero_point, limits.min, limits.max)
    return (outputs,)


def _rounded_quotients(totals: Array, divisors: Array, input_scale: float, output_scale: float) -> Array:
    """The integers nearest to totals * input_scale / (divisors * output_scale); 0 if that is undefined."""
    if not np.isfinite([input_scale, output_scale]).all() or output_scale == 0:
        with np.errstate(all="ignore"):
            specials = totals * input_scale / np.float64(output_scale)
        return np.nan_to_num(specials, nan=0, posinf=1000, neginf=-1000).astype(np.int64)
    ratio = Fraction(input_scale) / Fraction(output_scale)
    dividends, divisors = totals.astype(object) * ratio.numerator, divisors.astype(object) * ratio.denominator
    whole, remainders = dividends // divisors, dividends % divisors
    rounds_up = (2 * remainders > divisors) | ((2 * remainders == divisors) & (whole % 2 == 1))
    quotients: Array = np.clip(whole + rounds_up, -1000, 1000).astype(np.int64)
    return quotients


def lp_pooling(desc: LpPooling1OperatorDesc, x: Array) -> tuple[Array, ...]:
    """The norms, computed in float64."""
    with np.errstate(all="ignore"):
        values = unrounded_norms(desc, x).astype(desc.output_tensor.data_type.numpy)
    return (values,)


def unrounded_norms(desc: LpPooling1OperatorDesc, x: Array) -> Array:
    """The norms before they are rounded."""
    with np.errstate(all="ignore"):
        norm: Array = sums(desc, np.abs(x.astype(np.float64)) ** desc.p) ** (1 / desc.p)
    return norm


@bounds_of.register
def _lp_pooling_bounds(desc: LpPooling1OperatorDesc) -> Bounds:
    """The change of the root when the sum of powers changes by E(2 p), plus 8 U abs(value)."""

    def bounds(x: Array) -> tuple[Array, ...]:
        terms, value = np.abs(x.astype(np.float64)) ** desc.p, unrounded_norms(desc, x)
        # A device computes a power by squaring: two multiplications for each bit of p, of factors that have errors.
        error = sum_error(terms_of_sums(partial(sums, desc), terms), 2 * desc.p)
        error = through(lambda total: total ** (1 / desc.p), sums(desc, terms), error) + relative_error(value, 8)
        return (rounded(error, value, desc.output_tensor.data_type.numpy),)

    return bounds


def average_pooling_grad(desc: AveragePoolingGradOperatorDesc, gradient: Array) -> tuple[Array, ...]:
    """For each element the sum of its shares (`shares`), computed in float64."""
    with np.errstate(all="ignore"):
        values = sums_over_windows(forward_of(desc), shares(desc, gradient)).astype(gradient.dtype)
    return (values,)


@bounds_of.register
def _average_pooling_grad_bounds(desc: AveragePoolingGradOperatorDesc) -> Bounds:
    """E(2) for the sum of an element's shares: each share is a quotient, with an error of at most 2 U."""
    add = partial(sums_over_windows, forward_of(desc))
    return lambda gradient: (_bound_of_sums(add, shares(desc, gradient), gradient.dtype),)


def _bound_of_sums(add: Callable[[Array], Array], terms: Array, dtype: np.dtype[np.generic]) -> Array:
    """The bound of the sums of terms that `add` computes; terms may be quotients, with an error of at most 2 U."""
    return rounded(sum_error(terms_of_sums(add, terms), 2), add(terms), dtype)


def forward_of(desc: AveragePoolingGradOperatorDesc) -> AveragePooling1OperatorDesc:
    """The average pooling whose gradient `desc` computes."""
    target = TensorDesc(desc.input_gradient_tensor.data_type, desc.input_gradient_tensor.sizes)
    return AveragePooling1OperatorDesc(
        desc.output_gradient_tensor, target, desc.strides, desc.window_size, desc.start_padding, desc.end_padding,
        (1,) * len(desc.strides), desc.include_padding,
    )  # fmt: skip


def shares(desc: AveragePoolingGradOperatorDesc, gradient: Array) -> Array:
    """The share of each element in the gradient of a window: the gradient divided by the window's count."""
    forward = forward_of(desc)
    with np.errstate(all="ignore"):
        share: Array = gradient.astype(np.float64) / counts(forward, forward.input_tensor.sizes)
    return share


def sums_over_windows(desc: AveragePooling1OperatorDesc, terms: Array) -> Array:
    """For every element the sum of the terms of all windows that contain the element."""
    total = np.zeros(desc.input_tensor.sizes)
    with np.errstate(all="ignore"):
        for windows, elements in _elements(desc, total.shape):
            total[elements] += terms[windows]
    return total


def max_pooling_grad(desc: MaxPoolingGradOperatorDesc, *inputs: Array) -> tuple[Array, ...]:
    """For each element the sum of the gradients that windows add to it, computed in float64."""
    gradient, indices = gradients_and_indices(desc, *inputs)
    with np.errstate(all="ignore"):
        values = sums_by_index(desc, indices, gradient.astype(np.float64)).astype(gradient.dtype)
    return (values,)


@bounds_of.register
def _max_pooling_grad_bounds(desc: MaxPoolingGradOperatorDesc) -> Bounds:
    """E(2) for the sum of the gradients that windows add to an element."""

    def bounds(*inputs: Array) -> tuple[Array, ...]:
        gradient, indices = gradients_and_indices(desc, *inputs)
        return (_bound_of_sums(partial(sums_by_index, desc, indices), gradient.astype(np.float64), gradient.dtype),)

    return bounds


def gradients_and_indices(desc: MaxPoolingGradOperatorDesc, *inputs: Array) -> tuple[Array, Array]:
    """The gradients of the windows, and the indices of the elements that they are added to; -1: no element."""
    if desc.indices_tensor is not None:
        return inputs[0], _inside(desc, inputs[1])
    x, gradient = inputs
    sizes = desc.input_gradient_tensor.sizes
    target, indices = TensorDesc(desc.input_tensor.data_type, sizes), TensorDesc(DataType.UINT32, sizes)
    pooled = MaxPooling2OperatorDesc(
        desc.input_tensor, target, indices, desc.strides, desc.window_size, desc.start_padding, desc.end_padding,
        desc.dilations,
    )  # fmt: skip
    return gradient, max_pooling(pooled, x)[1].astype(np.int64)


def _inside(desc: MaxPoolingGradOperatorDesc, indices: Array) -> Array:
    """The indices, with -1 in place of indices that are not from the first to the last element of their windows."""
    sizes = desc.output_gradient_tensor.sizes
    inside = indices < desc.output_gradient_tensor.element_count
    indices = np.where(inside, indices, 0).astype(np.int64)
    elements: Sequence[Array] = np.unravel_index(indices, sizes)
    windows: Sequence[Array] = np.indices(indices.shape, sparse=True)
    inside &= (elements[0] == windows[0]) & (elements[1] == windows[1])
    rows = zip(
        elements[2:], windows[2:], desc.strides, desc.start_padding, desc.window_size, desc.dilations, strict=True
    )
    for element, window, stride, start, size, dilation in rows:
        offset = element - (window * stride - start)
        inside &= (offset >= 0) & (offset <= (size - 1) * dilation)
    return np.where(inside, indices, -1)


def sums_by_index(desc: MaxPoolingGradOperatorDesc, indices: Array, terms: Array) -> Array:
    """For every element the sum of the terms of all windows with the element's index."""
    total = np.zeros(desc.output_gradient_tensor.element_count)
    with np.errstate(all="ignore"):
        np.add.at(total, indices[indices >= 0], terms[indices >= 0])
    return total.reshape(desc.output_gradient_tensor.sizes)


def max_unpooling(desc: MaxUnpoolingOperatorDesc, x: Array, indices: Array) -> tuple[Array, ...]:
    """Zeros, with the elements of x written at their indices, in order: of equal indices the last element stays."""
    output = np.zeros(desc.output_tensor.element_count, x.dtype)
    for value, index in zip(x.reshape(-1), indices.reshape(-1).tolist(), strict=True):
        if index < output.size:
            output[index] = value
    return (output.reshape(desc.output_tensor.sizes),)


def roi_pooling(desc: RoiPoolingOperatorDesc, x: Array, rois: Array) -> tuple[Array, ...]:
    """The maxima of the bins of each region; 0 for empty bins."""
    output = np.zeros(desc.output_tensor.sizes, x.dtype)
    batches, channels, *size = x.shape
    corners = _corners(rois[0, 0, :, 1:], desc.spatial_scale)
    for r, (batch, (x1, y1, x2, y2)) in enumerate(zip(rois[0, 0, :, 0], corners, strict=True)):
        if not -1 < float(batch) < batches:
            continue
        bins = [_bins(*ends) for ends in zip((y1, x1), (y2, x2), desc.pooled_size, size, strict=True)]
        for (i, rows), (j, columns) in itertools.product(*map(enumerate, bins)):
            elements = x[int(batch), :, rows, columns].reshape(channels, -1)
            if elements.size:
                # The first NaN, or otherwise the first maximum.
                output[r, :, i, j] = elements[np.arange(channels), elements.argmax(1)]
    return (output,)


def _corners(corners: Array, scale: float) -> list[list[int]]:
    """Corners times the scale in float32, rounded to integers, halves away from 0; NaN becomes 0."""
    with np.errstate(all="ignore"):
        products = corners.astype(np.float32) * np.float32(scale)
    products = np.where(np.isnan(products), 0, products).astype(np.float64)
    magnitudes = np.floor(np.minimum(abs(products), 1 << 30) + 0.5)
    return [[*map(int, row)] for row in np.copysign(magnitudes, products)]


def _bins(first: int, last: int, count: int, size: int) -> list[slice]:
    """`count` bins of the elements `first` to `last`, cut off at 0 and `size`. Adjacent bins may share an element."""
    elements = max(last - first + 1, 1)
    begins = [first + i * elements // count for i in range(count)]
    ends = [first - (-(i + 1) * elements // count) for i in range(count)]
    return [slice(*np.clip([begin, end], 0, size)) for begin, end in zip(begins, ends, strict=True)]


def sums(desc: _Averaging | LpPooling1OperatorDesc, terms: Array) -> Array:
    """The sums of the terms in every window."""
    total = np.zeros(desc.output_tensor.sizes, terms.dtype)
    with np.errstate(all="ignore"):
        for windows, elements in _elements(desc, terms.shape):
            total[windows] += terms[elements]
    return total


_Averaging = AveragePooling1OperatorDesc | QuantizedLinearAveragePoolingOperatorDesc
_Windowed = _Averaging | LpPooling1OperatorDesc | MaxPooling2OperatorDesc


def _elements(desc: _Windowed, shape: tuple[int, ...]) -> Iterator[tuple[Any, Any]]:
    """Iterates over the positions in a window, in row-major order.

    Yields, for each position, the windows whose element at that position lies in the input, and these elements; both as
    slices. Positions that lie in the input for no window are skipped: there may be very many.
    """
    dimensions = []
    for size, outputs, stride, start, dilation, n in zip(
        desc.window_size, desc.output_tensor.sizes[2:], desc.strides, desc.start_padding, desc.dilations, shape[2:],
        strict=True,
    ):  # fmt: skip
        pairs = []
        last = (outputs - 1) * stride - start
        for k in range(max(0, -(last // dilation)), min(size, (n - 1 + start) // dilation + 1)):
            offset = k * dilation - start
            first, end = max(0, -(offset // stride)), min(outputs, (n - 1 - offset) // stride + 1)
            if first < end:
                elements = slice(offset + first * stride, offset + end * stride, stride)
                pairs.append((slice(first, end), elements))
        dimensions.append(pairs)
    for position in itertools.product(*dimensions):
        windows, elements = zip(*position, strict=True)
        yield (..., *windows), (..., *elements)
