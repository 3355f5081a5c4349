"""The windows of a pooling along one dimension: docs/semantics.md, "Windows", has the formulas."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np


class Window(NamedTuple):
    """Windows along a dimension. Element i is at place i; places below 0, and after the last element, are padding."""

    size: int
    """Number of elements along the dimension."""
    window_size: int
    """Number of elements of a window."""
    stride: int = 1
    start_padding: int = 0
    """Number of places before the first element; negative if the first window begins after it."""
    end_padding: int = 0
    dilation: int = 1
    output_size: int = 1
    """The number of windows."""
    base_dilation: int = 1
    """Distance in places from one element to the next, as in XLA; for gradients it is the stride of their pooling."""

    @property
    def extent(self) -> int:
        """Number of places from the first element of a window to its last, both included (decision 15)."""
        return (self.window_size - 1) * self.dilation + 1

    @property
    def reach(self) -> int:
        """Distance from the first element of a window to its last."""
        return self.extent - 1

    @property
    def padded(self) -> int:
        """Number of places, those of the padding included."""
        return self.start_padding + (self.size - 1) * self.base_dilation + 1 + self.end_padding

    def begin(self, window: int) -> int:
        """The place of a window's first element."""
        return window * self.stride - self.start_padding

    def first_from(self, place: int) -> int:
        """The first window that begins at a place or after it."""
        return -(-(place + self.start_padding) // self.stride)

    def span(self, count: int) -> int:
        """Number of places from the first element of `count` windows to their last, both included."""
        return (count - 1) * self.stride + self.extent

    @property
    def end(self) -> int:
        """End of the last window, counted from the start of the padding; it may be after the end of the padding."""
        return self.span(self.output_size)

    @property
    def overhang(self) -> int:
        """Number of places of the last window after the last element."""
        return max(0, self.end - self.start_padding - self.size)

    @property
    def inside(self) -> int:
        """Maximum number of elements of a window that are not in the padding."""
        return min(self.window_size, (self.size - 1) // self.dilation + 1)

    def counted(self, include_padding: bool) -> tuple[int, int]:
        """Half-open range of the places that count in an average, counted from the start of the padding."""
        return (0, self.padded) if include_padding else (self.start_padding, self.start_padding + self.size)

    # Number of windows

    @property
    def fitting(self) -> int:
        """The number of windows that fit, rounded down (decision 15)."""
        return (self.padded - self.extent) // self.stride + 1

    def rounded(self, ceil_mode: bool) -> int:
        """The number of windows in PyTorch and ONNX; one that would begin in the padding at the end is left out."""
        steps = self.padded - self.extent
        count = -(-steps // self.stride) + 1 if ceil_mode else self.fitting
        return count - 1 if self.begin(count - 1) >= self.size else count

    @property
    def cut(self) -> Self:
        """One window over all places, for a window that is larger."""
        return self._replace(window_size=(self.padded - 1) // self.dilation + 1, stride=self.dilation)

    def first_empty(self, count: int) -> int | None:
        """The first of `count` windows that has only padding; None if there is none (decision 6)."""
        # The first place from 0 on of a window that begins in the start padding is `begin % dilation`.
        leading = min(count, self.first_from(0))
        for first in range(0, leading, 1 << 20):
            windows = np.arange(first, min(leading, first + (1 << 20)), dtype=np.int64)
            begin = windows * self.stride - self.start_padding
            empty = (begin % self.dilation >= self.size) | (begin + self.reach < 0)
            if empty.any():
                return first + int(empty.argmax())
        # The other windows have elements unless they begin after the last one.
        trailing = self.first_from(self.size)
        return trailing if max(trailing, leading) < count else None

    # Elements of windows, and windows over elements

    def part(self, windows: range) -> tuple[int, Self]:
        """The first element that some windows need, and these windows over the elements from there on."""
        begin, stop = self.begin(windows.start), self.begin(windows.stop - 1) + self.extent
        # Windows may lack the last elements, or be after them.
        first = min(max(0, -(-begin // self.base_dilation)), self.size - 1)
        end = min(self.size, (stop - 1) // self.base_dilation + 1)
        return first, self._replace(
            size=end - first,
            start_padding=first * self.base_dilation - begin,
            end_padding=max(0, min(self.end_padding, stop - (self.size - 1) * self.base_dilation - 1)),
            output_size=len(windows),
        )

    @property
    def overlap(self) -> int:
        """Maximum number of windows over an element."""
        return self.reach // self.stride + 1

    def covering(self, first: int, last: int) -> tuple[int, int]:
        """The first and the last window over the elements first to last; the last is before the first if none is."""
        return max(0, self.first_from(first - self.reach)), min(self.first_from(last + 1), self.output_size) - 1

    @property
    def transposed(self) -> Self:
        """The windows of the gradient: one for each element, over the windows that cover it."""
        return type(self)(
            size=self.output_size,
            window_size=self.extent,
            start_padding=self.reach - self.start_padding,
            end_padding=self.size - 1 - self.begin(self.output_size - 1),
            output_size=self.size,
            base_dilation=self.stride,
        )
