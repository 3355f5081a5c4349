"""PyTorch on the CPU, and on a GPU that CUDA or ROCm sees."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.peers import Contender, Peer, UnavailableError, as_outputs, cores, first_line, number_of, with_one_axis
from dmlgpu import ArgmaxOperatorDesc, MaxPooling2OperatorDesc, OperatorDesc
from tests.cases import Array


class TorchPeer(Peer):
    """PyTorch, on tensors made beforehand.

    Args:
        device: "cpu", or "cuda" for the GPU with this UUID, or the first one where none has it. ROCm's GPUs are "cuda"
            too. What runs there is waited for.
        uuid: as in DeviceInfo.
    """

    def __init__(self, device: str = "cpu", uuid: str = "") -> None:
        try:
            import torch
        except ModuleNotFoundError:
            raise UnavailableError("not installed") from None
        except (ImportError, OSError) as error:
            raise UnavailableError(f"cannot be imported: {first_line(error)}") from None
        self._torch: Any = torch
        torch.set_num_threads(cores())
        self._device = torch.device("cpu")
        self._where = f"{torch.get_num_threads()} threads"
        if device == "cuda":
            if not torch.cuda.is_available():
                raise UnavailableError("PyTorch sees no GPU")
            properties = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
            index = number_of(uuid, [str(getattr(found, "uuid", "")) for found in properties])
            self._device = torch.device("cuda", index)
            self._where = properties[index].name

    @property
    def description(self) -> str:
        return f"{self._torch.__version__}, {self._where}"

    def contender(self, desc: OperatorDesc, x: Array) -> Contender:
        if isinstance(desc, ArgmaxOperatorDesc):
            contender = self._argmax(desc, x)
        elif isinstance(desc, MaxPooling2OperatorDesc):
            contender = self._max_pooling(desc, x)
        else:
            raise UnavailableError(f"no {type(desc).__name__} in PyTorch")
        try:
            contender.run()
        except (RuntimeError, NotImplementedError) as error:
            raise UnavailableError(first_line(error)) from None
        return contender

    def _tensor(self, x: Array) -> Any:
        """A copy of an array, with the order of its strides."""
        try:
            return self._torch.from_numpy(x.copy(order="K")).to(self._device)
        except (TypeError, RuntimeError) as error:
            raise UnavailableError(first_line(error)) from None

    def _contender(self, call: Callable[[], Any], outputs: Callable[[Any], tuple[Array, ...]]) -> Contender:
        if self._device.type == "cpu":
            return Contender(call, outputs)

        def run() -> Any:
            result = call()
            self._torch.cuda.synchronize(self._device)
            return result

        def batch(calls: int) -> Callable[[], Any]:
            def run_all() -> None:
                for _ in range(calls):
                    call()
                self._torch.cuda.synchronize(self._device)

            return run_all

        return Contender(run, outputs, batch)

    def _argmax(self, desc: ArgmaxOperatorDesc, x: Array) -> Contender:
        rows, axis = with_one_axis(desc, x)
        tensor = self._tensor(rows)
        return self._contender(
            lambda: self._torch.argmax(tensor, axis), lambda index: as_outputs(desc, index.cpu().numpy())
        )

    def _max_pooling(self, desc: MaxPooling2OperatorDesc, x: Array) -> Contender:
        if desc.start_padding != desc.end_padding:
            raise UnavailableError("PyTorch pads both sides alike")
        tensor = self._tensor(x)
        functional = self._torch.nn.functional
        pool: Callable[..., Any] = functional.max_pool2d if x.ndim == 4 else functional.max_pool3d
        indices = desc.output_indices_tensor is not None

        def call() -> Any:
            return pool(
                tensor, desc.window_size, desc.strides, desc.start_padding, desc.dilations, return_indices=indices
            )

        if not indices:
            return self._contender(call, lambda maxima: as_outputs(desc, maxima.cpu().numpy()))
        # PyTorch counts within each plane.
        planes = math.prod(x.shape[2:]) * np.arange(math.prod(x.shape[:2])).reshape(*x.shape[:2], *[1] * (x.ndim - 2))
        return self._contender(
            call, lambda pair: as_outputs(desc, pair[0].cpu().numpy(), pair[1].cpu().numpy() + planes)
        )
