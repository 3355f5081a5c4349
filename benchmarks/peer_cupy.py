"""CuPy on a GPU: reductions, pooling of a sliding window, and unpooling."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.peers import (
    Contender,
    Peer,
    UnavailableError,
    array_functions,
    as_outputs,
    first_line,
    number_of,
    with_one_axis,
)
from dmlgpu import (
    ArgmaxOperatorDesc,
    AveragePooling1OperatorDesc,
    LpPooling1OperatorDesc,
    MaxPooling2OperatorDesc,
    MaxUnpoolingOperatorDesc,
    OperatorDesc,
    ReduceOperatorDesc,
)
from tests.support.cases import Array

_Windowed = MaxPooling2OperatorDesc | AveragePooling1OperatorDesc | LpPooling1OperatorDesc


class CupyPeer(Peer):
    """CuPy, on arrays made beforehand; what runs is waited for.

    Args:
        uuid: of the GPU, as in DeviceInfo; the first one is taken where none has it.
    """

    name = "CuPy"

    def __init__(self, uuid: str = "") -> None:
        try:
            import cupy
        except ModuleNotFoundError:
            raise UnavailableError("not installed") from None
        except (ImportError, OSError) as error:
            raise UnavailableError(first_line(error)) from None
        self._cupy: Any = cupy
        runtime = cupy.cuda.runtime
        try:
            properties = [runtime.getDeviceProperties(i) for i in range(runtime.getDeviceCount())]
        except runtime.CUDARuntimeError as error:
            raise UnavailableError(first_line(error)) from None
        if not properties:
            raise UnavailableError("CuPy sees no GPU")
        # ROCm has no UUIDs here.
        index = number_of(uuid, [bytes(found.get("uuid", b"")).hex() for found in properties])
        self._device = cupy.cuda.Device(index)
        self._device.use()
        self._name = properties[index]["name"].decode(errors="replace")

    @property
    def description(self) -> str:
        return f"{self._cupy.__version__}, {self._name}"

    def contender(self, desc: OperatorDesc, *inputs: Array) -> Contender:
        try:
            contender = super().contender(desc, *inputs)
            contender.run()
        except UnavailableError:
            raise
        except Exception as error:  # its compiler and its allocator have types of their own
            raise UnavailableError(first_line(error)) from None
        return contender

    def _contender(self, desc: OperatorDesc, call: Callable[[], Any]) -> Contender:
        def run() -> Any:
            result = call()
            self._device.synchronize()
            return result

        def batch(calls: int) -> Callable[[], Any]:
            def run_all() -> None:
                for _ in range(calls):
                    call()
                self._device.synchronize()

            return run_all

        return Contender(run, lambda output: as_outputs(desc, self._cupy.asnumpy(output)), batch)

    def argmax(self, desc: ArgmaxOperatorDesc, x: Array) -> Contender:
        rows, axis = with_one_axis(desc, x)
        array = self._array(rows)
        return self._contender(desc, lambda: self._cupy.argmax(array, axis))

    def reduce(self, desc: ReduceOperatorDesc, x: Array) -> Contender:
        function = self._function(array_functions(self._cupy), desc)
        rows, axis = with_one_axis(desc, x)
        array = self._array(rows)
        return self._contender(desc, lambda: function(array, axis))

    def max_pooling(self, desc: MaxPooling2OperatorDesc, x: Array) -> Contender:
        if desc.output_indices_tensor is not None:
            raise UnavailableError("CuPy has no indices of a sliding window's maximum")
        array, axes = self._array(x), _axes(x)
        least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
        return self._contender(desc, lambda: self._windows(desc, array, least).max(axes))

    def average_pooling(self, desc: AveragePooling1OperatorDesc, x: Array) -> Contender:
        array, axes = self._array(x), _axes(x)
        ones = self._array(np.ones((1, 1, *x.shape[2:]), x.dtype))
        # Where no window hangs over the end of the padding.
        counts = math.prod(desc.window_size) if desc.include_padding else self._windows(desc, ones, 0).sum(axes)
        return self._contender(desc, lambda: self._windows(desc, array, 0).sum(axes) / counts)

    def lp_pooling(self, desc: LpPooling1OperatorDesc, x: Array) -> Contender:
        array, axes = self._array(x), _axes(x)
        return self._contender(desc, lambda: (abs(self._windows(desc, array, 0)) ** desc.p).sum(axes) ** (1 / desc.p))

    def max_unpooling(self, desc: MaxUnpoolingOperatorDesc, x: Array, indices: Array) -> Contender:
        array, where = self._array(x), self._array(indices)

        def call() -> Any:
            output = self._cupy.zeros(desc.output_tensor.element_count, x.dtype)
            output[where] = array
            return output

        return self._contender(desc, call)

    def _array(self, x: Array) -> Any:
        """A copy of an array, with the order of its strides."""
        return self._cupy.asarray(x.copy(order="K"))

    def _windows(self, desc: _Windowed, array: Any, padding: float) -> Any:
        """A view of an array with the elements of each window in further dimensions."""
        cupy = self._cupy
        widths = [(0, 0), (0, 0), *zip(desc.start_padding, desc.end_padding, strict=True)]
        extents = tuple(1 + (w - 1) * d for w, d in zip(desc.window_size, desc.dilations, strict=True))
        # A window at every stride, and of it every dilation.
        chosen = (
            *[slice(None)] * 2,
            *(slice(None, None, stride) for stride in desc.strides),
            *(slice(None, None, dilation) for dilation in desc.dilations),
        )
        padded = cupy.pad(array, widths, constant_values=padding) if any(map(any, widths)) else array
        return cupy.lib.stride_tricks.sliding_window_view(padded, extents, tuple(range(2, array.ndim)))[chosen]


def _axes(x: Array) -> tuple[int, ...]:
    """The dimensions that `_windows` adds."""
    return tuple(range(x.ndim, 2 * x.ndim - 2))
