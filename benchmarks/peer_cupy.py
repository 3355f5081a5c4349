"""CuPy on a GPU: argmax, and max pooling as the maximum of a sliding window."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.peers import Contender, Peer, UnavailableError, as_outputs, first_line, number_of, with_one_axis
from dmlgpu import ArgmaxOperatorDesc, MaxPooling2OperatorDesc, OperatorDesc
from tests.cases import Array


class CupyPeer(Peer):
    """CuPy, on arrays made beforehand; what runs is waited for.

    Args:
        uuid: of the GPU, as in DeviceInfo; the first one is taken where none has it.
    """

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

    def contender(self, desc: OperatorDesc, x: Array) -> Contender:
        if isinstance(desc, ArgmaxOperatorDesc):
            make: Callable[[Any, Array], Contender] = self._argmax
        elif isinstance(desc, MaxPooling2OperatorDesc):
            make = self._max_pooling
        else:
            raise UnavailableError(f"no {type(desc).__name__} in CuPy")
        try:
            contender = make(desc, x)
            contender.run()
        except UnavailableError:
            raise
        except Exception as error:  # its compiler and its allocator have types of their own
            raise UnavailableError(first_line(error)) from None
        return contender

    def _contender(self, call: Callable[[], Any], outputs: Callable[[Any], tuple[Array, ...]]) -> Contender:
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

        return Contender(run, outputs, batch)

    def _argmax(self, desc: ArgmaxOperatorDesc, x: Array) -> Contender:
        rows, axis = with_one_axis(desc, x)
        array = self._cupy.asarray(rows.copy(order="K"))
        return self._contender(
            lambda: self._cupy.argmax(array, axis), lambda index: as_outputs(desc, self._cupy.asnumpy(index))
        )

    def _max_pooling(self, desc: MaxPooling2OperatorDesc, x: Array) -> Contender:
        if desc.output_indices_tensor is not None:
            raise UnavailableError("CuPy has no indices of a sliding window's maximum")
        cupy = self._cupy
        array = cupy.asarray(x.copy(order="K"))
        spatial = tuple(range(2, x.ndim))
        padding = [(0, 0), (0, 0), *zip(desc.start_padding, desc.end_padding, strict=True)]
        least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
        extents = tuple(1 + (w - 1) * d for w, d in zip(desc.window_size, desc.dilations, strict=True))
        # A window at every stride, and of it every dilation.
        chosen = (
            *[slice(None)] * 2,
            *(slice(None, None, stride) for stride in desc.strides),
            *(slice(None, None, dilation) for dilation in desc.dilations),
        )

        def call() -> Any:
            padded = cupy.pad(array, padding, constant_values=least) if any(map(any, padding)) else array
            windows = cupy.lib.stride_tricks.sliding_window_view(padded, extents, spatial)
            return windows[chosen].max(tuple(range(x.ndim, x.ndim + len(spatial))))

        return self._contender(call, lambda maxima: as_outputs(desc, cupy.asnumpy(maxima)))
