"""PyTorch on the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.peers import Contender, Peer, UnavailableError, as_outputs, cores, with_one_axis
from dmlgpu import ArgmaxOperatorDesc, MaxPooling2OperatorDesc, OperatorDesc
from tests.cases import Array


class TorchPeer(Peer):
    """PyTorch, on tensors made beforehand."""

    def __init__(self) -> None:
        try:
            import torch
        except ModuleNotFoundError:
            raise UnavailableError("not installed") from None
        self._torch: Any = torch
        torch.set_num_threads(cores())

    @property
    def description(self) -> str:
        return f"{self._torch.__version__}, {self._torch.get_num_threads()} threads"

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
            raise UnavailableError(str(error).splitlines()[0]) from None
        return contender

    def _tensor(self, x: Array) -> Any:
        """A copy of an array, with the order of its strides."""
        try:
            return self._torch.from_numpy(x.copy(order="K"))
        except TypeError as error:
            raise UnavailableError(str(error).splitlines()[0]) from None

    def _argmax(self, desc: ArgmaxOperatorDesc, x: Array) -> Contender:
        rows, axis = with_one_axis(desc, x)
        tensor = self._tensor(rows)
        return Contender(lambda: self._torch.argmax(tensor, axis), lambda index: as_outputs(desc, index.numpy()))

    def _max_pooling(self, desc: MaxPooling2OperatorDesc, x: Array) -> Contender:
        if desc.start_padding != desc.end_padding:
            raise UnavailableError("PyTorch pads both sides alike")
        tensor = self._tensor(x)
        functional = self._torch.nn.functional
        pool: Callable[..., Any] = functional.max_pool2d if x.ndim == 4 else functional.max_pool3d
        indices = desc.output_indices_tensor is not None

        def run() -> Any:
            return pool(
                tensor, desc.window_size, desc.strides, desc.start_padding, desc.dilations, return_indices=indices
            )

        if not indices:
            return Contender(run, lambda maxima: as_outputs(desc, maxima.numpy()))
        # PyTorch counts within each plane.
        planes = math.prod(x.shape[2:]) * np.arange(math.prod(x.shape[:2])).reshape(*x.shape[:2], *[1] * (x.ndim - 2))
        return Contender(run, lambda pair: as_outputs(desc, pair[0].numpy(), pair[1].numpy() + planes))
