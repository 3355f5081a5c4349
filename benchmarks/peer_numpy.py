"""NumPy: argmax, and max pooling as the maximum of shifted slices."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import numpy as np

from benchmarks.peers import Contender, Peer, UnavailableError, as_outputs, with_one_axis
from dmlgpu import ArgmaxOperatorDesc, MaxPooling2OperatorDesc, OperatorDesc
from tests.cases import Array


class NumpyPeer(Peer):
    """NumPy, on one thread."""

    @property
    def description(self) -> str:
        return f"{np.__version__}, 1 thread (what is used here calls no BLAS)"

    def contender(self, desc: OperatorDesc, x: Array) -> Contender:
        if isinstance(desc, ArgmaxOperatorDesc):
            rows, axis = with_one_axis(desc, x)
            return Contender(partial(np.argmax, rows, axis), lambda index: as_outputs(desc, index))
        if isinstance(desc, MaxPooling2OperatorDesc):
            pool = partial(_maxima, desc, x, _shifts(desc))
            if desc.output_indices_tensor:
                position = np.arange(x.size, dtype=np.uint32).reshape(x.shape)
                pool = partial(_maxima_and_indices, desc, x, position, _shifts(desc))
            return Contender(pool, lambda outputs: as_outputs(desc, *outputs))
        raise UnavailableError(f"no {type(desc).__name__} in NumPy")


# For an element of the window: which outputs it is an input of, and which inputs these are.
Shift = tuple[tuple[slice, ...], tuple[slice, ...]]


def _shifts(desc: MaxPooling2OperatorDesc) -> list[Shift]:
    shifts = []
    for offset in itertools.product(*map(range, desc.window_size)):
        outputs, inputs = [slice(None)] * 2, [slice(None)] * 2
        for k, dilation, start, stride, n, count in zip(
            offset,
            desc.dilations,
            desc.start_padding,
            desc.strides,
            desc.input_tensor.sizes[2:],
            desc.output_tensor.sizes[2:],
            strict=True,
        ):
            shift = k * dilation - start
            begin = max(0, -(shift // stride))
            end = max(begin, min(count, (n - 1 - shift) // stride + 1))
            outputs.append(slice(begin, end))
            inputs.append(slice(begin * stride + shift, (end - 1) * stride + shift + 1, stride))
        if all(part.stop > part.start for part in outputs[2:]):
            shifts.append((tuple(outputs), tuple(inputs)))
    return shifts


def _least(dtype: np.dtype[Any]) -> Any:
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


def _maxima(desc: MaxPooling2OperatorDesc, x: Array, shifts: list[Shift]) -> tuple[Array, ...]:
    best = np.full(desc.output_tensor.sizes, _least(x.dtype), x.dtype)
    for outputs, inputs in shifts:
        np.maximum(best[outputs], x[inputs], out=best[outputs])
    return (best,)


def _maxima_and_indices(
    desc: MaxPooling2OperatorDesc, x: Array, position: Array, shifts: list[Shift]
) -> tuple[Array, ...]:
    best = np.full(desc.output_tensor.sizes, _least(x.dtype), x.dtype)
    where = np.zeros(desc.output_tensor.sizes, np.uint32)
    for outputs, inputs in shifts:
        wins = x[inputs] > best[outputs]
        np.copyto(best[outputs], x[inputs], where=wins)
        np.copyto(where[outputs], position[inputs], where=wins)
    return best, where
