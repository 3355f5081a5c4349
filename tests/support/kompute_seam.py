"""A module between dmlgpu and Kompute that counts the calls of Kompute, and makes them fail.

It replaces the result of `kompute_module.kompute()`, so that tests depend on no other function of dmlgpu.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

from dmlgpu.runtime import kompute_module


class Seam:
    """Kompute's module. It has the attributes of the real module, some of which are replaced here."""

    def __init__(self) -> None:
        self._kp = kompute_module.kompute()
        self._buffers: weakref.WeakSet[Any] = weakref.WeakSet()
        self.counts: Counter[str] = Counter()
        """`buffers` and `sequences` that were created; `recordings` of submissions, which run shaders; evaluated
        `submissions` and `transfers`; their `barriers`, and `copies` of buffers other than the status."""
        self._copied: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        """Number of buffers that an operation copies."""
        self.asked_bytes: list[int] = []
        """Requested size of every buffer."""
        self.most_bytes: int | None = None
        """Size of created buffers, instead of the requested one."""
        self.dispatches = 0
        """Dispatches of the last evaluated sequence."""
        self.before: Callable[[], object] = bool
        """Called before each evaluation, which is skipped if it returns True."""
        self.after: Callable[[], object] = bool
        """Called after each evaluation."""

    def install(self, setattr: Callable[[Any, str, Any], object] = setattr) -> Seam:
        """Replaces Kompute for every device that is opened from now on."""
        setattr(kompute_module, "kompute", lambda: self)
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kp, name)

    def Manager(self, index: int) -> Manager:  # noqa: N802
        return Manager(self, self._kp.Manager(index))

    def OpTensorSyncDevice(self, buffers: list[Any]) -> Any:  # noqa: N802
        return self._copy(self._kp.OpTensorSyncDevice(buffers), buffers)

    def OpTensorSyncLocal(self, buffers: list[Any]) -> Any:  # noqa: N802
        return self._copy(self._kp.OpTensorSyncLocal(buffers), buffers)

    def _copy(self, operation: Any, buffers: list[Any]) -> Any:
        # A buffer without a staging copy only becomes visible.
        self._copied[operation] = sum(buffer.tensor_type() == self._kp.TensorTypes.device for buffer in buffers)
        return operation

    @property
    def alive_bytes(self) -> list[int]:
        """The sizes of all live buffers."""
        return sorted(buffer.data().nbytes for buffer in self._buffers if buffer.is_init())


class Manager:
    """Kompute's Manager."""

    def __init__(self, seam: Seam, manager: Any) -> None:
        self._seam, self._manager = seam, manager

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manager, name)

    def empty(self, words: int, kind: Any) -> Any:
        seam = self._seam
        seam.counts["buffers"] += 1
        seam.asked_bytes.append(4 * words)
        buffer = self._manager.empty((seam.most_bytes or 4 * words) // 4, kind)
        seam._buffers.add(buffer)
        return buffer

    def sequence(self) -> Sequence:
        self._seam.counts["sequences"] += 1
        return Sequence(self._seam, self._manager.sequence())


class Sequence:
    """Kompute's Sequence: a submission if it runs shaders, a transfer if it only copies."""

    def __init__(self, seam: Seam, sequence: Any) -> None:
        self._seam, self._sequence, self._dispatches = seam, sequence, 0
        self._copies = self._barriers = 0

    def record(self, operation: Any) -> None:
        if isinstance(operation, self._seam._kp.OpAlgoDispatch):
            self._seam.counts["recordings"] += self._dispatches == 0
            self._dispatches += 1
        elif operation in self._seam._copied:
            self._copies += self._seam._copied[operation]
        else:
            self._barriers += 1
        self._sequence.record(operation)

    def eval(self) -> None:
        self._seam.dispatches = self._dispatches
        self._seam.counts["submissions" if self._dispatches else "transfers"] += 1
        self._seam.counts["barriers"] += self._barriers
        self._seam.counts["copies"] += self._copies - 1  # the last is the status
        if not self._seam.before():
            self._sequence.eval()
        self._seam.after()
