"""pool_separable.comp for gradients of average pooling, with windows of any size.

Element i is in the windows that begin at positions i + padding - reach to i + padding, as far as these exist: its
gradient is the sum over a window of gradients. Each gradient is divided among the elements of its window when it is
loaded. On lavapipe (Mesa 25) pool_backward.comp takes 7 times as long for windows of 9 x 9, and 56 times as long for
33 x 33. Along a dimension, with windows of 3 (a reach of 2), stride 1 and a padding of 1:

    gradients of windows    0   1   2   3   4
    element 0             [ 0   1 ]
    element 1             [ 0   1   2 ]
    element 2                 [ 1   2   3 ]
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from dmlgpu.lowering.kernels.cut import PartKernel
from dmlgpu.lowering.kernels.pool_backward import PoolBackward
from dmlgpu.lowering.kernels.pool_separable import PlaneRange, PoolSeparable, SeparablePass
from dmlgpu.lowering.problem import CoveringWindows, Windows


@dataclass(frozen=True)
class PoolBackwardSeparable(PoolSeparable):
    """Gradients of average pooling, along one dimension after the other."""

    name: ClassVar = "pool_backward_separable"
    variants: ClassVar = {
        "pool_separable_rows_shares": "along width: gradients of averages, each divided among its window's elements",
    }
    rows_variant: ClassVar = "pool_separable_rows_shares"

    @property
    def covering(self) -> CoveringWindows:
        assert isinstance(self.problem.domain, CoveringWindows)
        return self.problem.domain

    @property
    def why_impossible(self) -> str:
        if len(self.problem.sources) > 1:
            return "the gradient of a window has one element"
        if any(window.stride > window.extent for window in self.covering.along):
            return "some elements are in no window"
        return super().why_impossible

    @cached_property
    def windows(self) -> Windows:
        """Windows of gradients. All of their positions count; outside the source gradients are 0."""
        transposed = tuple([window.transposed for window in self.covering.along])
        return Windows(transposed, self.covering.stride, include_padding=True)

    @cached_property
    def _direct(self) -> PartKernel:
        return PoolBackward(self.problem, self.limits)

    def _is_flat(self, part: PlaneRange) -> bool:
        # The shader counts rows along depth and height.
        return False

    def _sum_constants(self, one_pass: SeparablePass) -> dict[str, int]:
        depth, height, _ = self.covering.along
        strides = {"stride_depth": depth.stride, "stride_height": height.stride} if one_pass.axis == 2 else {}
        return super()._sum_constants(one_pass) | strides

    def _counted(self, part: PlaneRange, axis: int) -> dict[str, Any]:
        if axis < 2:
            return super()._counted(part, axis)
        return {
            "first_row": self._lines(part)[0],
            "windows": self.windows.fields["window_size"],
            "shares_begin": self.covering.fields["counted_begin"],
            "shares_end": self.covering.fields["counted_end"],
        }
