"""NumPy: reductions, pooling by shifted slices, and its gradients."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import dmlgpu
from benchmarks.peers import Contender, Peer, as_outputs, function_of
from dmlgpu.descriptors.tensor import Array

_Windowed = (
    dmlgpu.MaxPooling2OperatorDesc
    | dmlgpu.AveragePooling1OperatorDesc
    | dmlgpu.LpPooling1OperatorDesc
    | dmlgpu.MaxPoolingGradOperatorDesc
    | dmlgpu.AveragePoolingGradOperatorDesc
)


def _log_sum_exp(rows: Array, axis: int) -> Any:
    maxima = rows.max(axis, keepdims=True)
    return np.log(np.exp(rows - maxima).sum(axis)) + maxima.squeeze(axis)


_REDUCTIONS: dict[dmlgpu.ReduceFunction, Callable[[Array, int], Any]] = {
    dmlgpu.ReduceFunction.SUM: np.sum,
    dmlgpu.ReduceFunction.MAX: np.max,
    dmlgpu.ReduceFunction.AVERAGE: np.mean,
    dmlgpu.ReduceFunction.LOG_SUM_EXP: _log_sum_exp,
}


class NumpyPeer(Peer):
    """NumPy, on one thread."""

    description = f"{np.__version__}, 1 thread (without BLAS)"

    def argmax(self, desc: dmlgpu.ArgmaxOperatorDesc, x: Array, axis: int) -> Contender:
        return _contender(desc, partial(np.argmax, x, axis))

    def reduce(self, desc: dmlgpu.ReduceOperatorDesc, x: Array, axis: int) -> Contender:
        return _contender(desc, partial(function_of(_REDUCTIONS, desc), x, axis))

    def max_pooling(self, desc: dmlgpu.MaxPooling2OperatorDesc, x: Array) -> Contender:
        if desc.output_indices_tensor:
            return _contender(desc, partial(_maxima_and_indices, desc, x, _positions(x), _shifts(desc)))
        return _contender(desc, partial(_maxima, desc, x, _shifts(desc)))

    def average_pooling(self, desc: dmlgpu.AveragePooling1OperatorDesc, x: Array) -> Contender:
        shifts, counts = _shifts(desc), _counts(desc)
        return _contender(desc, lambda: _sums(desc, x, shifts) / counts)

    def lp_pooling(self, desc: dmlgpu.LpPooling1OperatorDesc, x: Array) -> Contender:
        shifts = _shifts(desc)
        return _contender(desc, lambda: _sums(desc, np.abs(x) ** desc.p, shifts) ** (1 / desc.p))

    def max_pooling_grad(self, desc: dmlgpu.MaxPoolingGradOperatorDesc, x: Array, gradient: Array) -> Contender:
        position, shifts = _positions(x), _shifts(desc)

        def call() -> Array:
            _, where = _maxima_and_indices(desc, x, position, shifts)
            return np.bincount(where.reshape(-1), gradient.reshape(-1), x.size)

        return _contender(desc, call)

    def average_pooling_grad(self, desc: dmlgpu.AveragePoolingGradOperatorDesc, gradient: Array) -> Contender:
        shifts, counts = _shifts(desc), _counts(desc)

        def call() -> Array:
            share, total = gradient / counts, np.zeros(desc.output_gradient_tensor.sizes, gradient.dtype)
            for windows, elements in shifts:
                total[elements] += share[windows]
            return total

        return _contender(desc, call)

    def max_unpooling(self, desc: dmlgpu.MaxUnpoolingOperatorDesc, x: Array, indices: Array) -> Contender:
        def call() -> Array:
            output = np.zeros(desc.output_tensor.element_count, x.dtype)
            output[indices] = x
            return output

        return _contender(desc, call)

    def cumulative_sum(self, desc: dmlgpu.CumulativeSummationOperatorDesc, x: Array) -> Contender:
        return _contender(desc, partial(np.cumsum, x, desc.axis))

    def top_k(self, desc: dmlgpu.TopK1OperatorDesc, x: Array) -> Contender:
        rows = np.moveaxis(x, desc.axis, -1)

        def call() -> tuple[Array, ...]:
            any_order = np.argpartition(rows, -desc.k)[..., -desc.k :]
            order = np.argsort(np.take_along_axis(rows, any_order, -1))[..., ::-1]
            indices = np.take_along_axis(any_order, order, -1)
            return tuple(np.moveaxis(y, -1, desc.axis) for y in (np.take_along_axis(rows, indices, -1), indices))

        return _contender(desc, call)


def _contender(desc: dmlgpu.OperatorDesc, call: Callable[[], Any]) -> Contender:
    return Contender(call, partial(as_outputs, desc))


# For one offset within windows: slices of the windows that have an element of the input there, and of these elements.
Shift = tuple[tuple[slice, ...], tuple[slice, ...]]


def _sizes(desc: _Windowed) -> tuple[int, ...]:
    """Sizes of the tensor with an element for each window."""
    sizes: tuple[int, ...] = getattr(desc, desc.windows_field).sizes
    return sizes


def _shifts(desc: _Windowed) -> list[Shift]:
    shifts = []
    pooled = getattr(desc, desc.pooled_field).sizes
    dilations = getattr(desc, "dilations", (1,) * len(desc.strides))
    for offset in itertools.product(*map(range, desc.window_size)):
        windows, elements = [slice(None)] * 2, [slice(None)] * 2
        for k, dilation, start, stride, n, count in zip(
            offset, dilations, desc.start_padding, desc.strides, pooled[2:], _sizes(desc)[2:], strict=True
        ):
            shift = k * dilation - start
            begin = max(0, -(shift // stride))
            end = max(begin, min(count, (n - 1 - shift) // stride + 1))
            windows.append(slice(begin, end))
            elements.append(slice(begin * stride + shift, (end - 1) * stride + shift + 1, stride))
        if all(part.stop > part.start for part in windows[2:]):
            shifts.append((tuple(windows), tuple(elements)))
    return shifts


def _positions(x: Array) -> Array:
    return np.arange(x.size, dtype=np.uint32).reshape(x.shape)


def _lowest(dtype: np.dtype[Any]) -> Any:
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


def _maxima(desc: dmlgpu.MaxPooling2OperatorDesc, x: Array, shifts: list[Shift]) -> Array:
    best = np.full(_sizes(desc), _lowest(x.dtype), x.dtype)
    for windows, elements in shifts:
        np.maximum(best[windows], x[elements], out=best[windows])
    return best


def _maxima_and_indices(desc: _Windowed, x: Array, position: Array, shifts: list[Shift]) -> tuple[Array, Array]:
    best = np.full(_sizes(desc), _lowest(x.dtype), x.dtype)
    where = np.zeros(_sizes(desc), np.uint32)
    for windows, elements in shifts:
        wins = x[elements] > best[windows]
        np.copyto(best[windows], x[elements], where=wins)
        np.copyto(where[windows], position[elements], where=wins)
    return best, where


def _sums(desc: _Windowed, terms: Array, shifts: list[Shift]) -> Array:
    """Sums of the terms in every window."""
    total = np.zeros((*terms.shape[:2], *_sizes(desc)[2:]), terms.dtype)
    for windows, elements in shifts:
        total[windows] += terms[elements]
    return total


def _counts(desc: dmlgpu.AveragePooling1OperatorDesc | dmlgpu.AveragePoolingGradOperatorDesc) -> Array:
    """Divisors of averages, if no window overhangs the padding."""
    pooled = getattr(desc, desc.pooled_field)
    dtype = pooled.data_type.numpy
    if desc.include_padding:
        return np.array(math.prod(desc.window_size), dtype)
    return _sums(desc, np.ones((1, 1, *pooled.sizes[2:]), dtype), _shifts(desc))
