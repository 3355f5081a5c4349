"""Kompute without dmlgpu, for comparisons on dmlgpu's device."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from dmlgpu import Device
from dmlgpu.descriptors.tensor import Array
from dmlgpu.runtime import kompute_module


class Kompute(AbstractContextManager["Kompute"]):
    """A Kompute manager on the device of an open dmlgpu.Device, until the end of a `with` block.

    Its objects are freed with their last reference, and must not be used after the block.
    """

    def __init__(self, device: Device) -> None:
        kp = kompute_module.kompute()
        self.device = device
        self._kp: Any = kp
        self._manager: Any = kp.Manager(device.info.index)
        self._kind = kp.TensorTypes.host if device.info.unified else kp.TensorTypes.device

    def __exit__(self, *_: object) -> None:
        self._manager.destroy()

    def upload(self, x: Array) -> Any:
        """A tensor with the bytes of an array; their number must be a multiple of 4."""
        tensor = self._manager.tensor_t(np.ascontiguousarray(x).reshape(-1).view(np.uint32), self._kind)
        self._manager.sequence().eval(self._kp.OpTensorSyncDevice([tensor]))
        return tensor

    def download(self, tensor: Any, dtype: Any) -> Array:
        """A copy of a tensor's content."""
        self._manager.sequence().eval(self._kp.OpTensorSyncLocal([tensor]))
        content: Array = tensor.data().view(dtype).copy()
        return content

    def dispatch(
        self,
        module: bytes,
        groups: Sequence[int],
        constants: Sequence[int],
        push: Sequence[int],
        tensors: Sequence[Any],
    ) -> Any:
        """A recorded dispatch; `eval()` runs it."""
        algorithm = self._manager.algorithm(
            list(tensors), module, tuple(groups), np.array(constants, np.uint32), np.array(push, np.uint32)
        )
        sequence = self._manager.sequence()
        sequence.record(self._kp.OpAlgoDispatch(algorithm, np.array(push, np.uint32)))
        return sequence

    def copy(self, size: int, targets: int = 1) -> Any:
        """A recorded copy of this many bytes, rounded up to words, in the device's memory; `eval()` runs it.

        A copy that exceeds a buffer is cut into pieces, and each piece is copied to `targets` buffers.
        """
        sequence = self._manager.sequence()
        words, buffer_words = -(-size // 4), self.device.limits.segment_bytes // 4
        for begin in range(0, words, buffer_words):
            piece = np.arange(begin, min(begin + buffer_words, words), dtype=np.uint32)
            uploaded = self.upload(piece)
            # Tensors of type `storage`, because Kompute copies those of other types on the host, too.
            source, *copies = (
                self._manager.tensor_t(np.zeros_like(piece), self._kp.TensorTypes.storage) for _ in range(1 + targets)
            )
            # A driver may allocate memory only when it is first written.
            self._manager.sequence().eval(self._kp.OpTensorCopy([uploaded, source, *copies]))
            sequence.record(self._kp.OpTensorCopy([source, *copies]))
        return sequence
