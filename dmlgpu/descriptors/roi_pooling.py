"""The descriptor of ROI_POOLING."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from dmlgpu.descriptors.dtypes import DataType
from dmlgpu.descriptors.operator import OperatorDesc, TypeTable
from dmlgpu.descriptors.tensor import TensorDesc, integers, is_integer, unsigned
from dmlgpu.errors import DescriptorError, shown

_FLOATS = DataType.FLOAT32, DataType.FLOAT16

# Products of two numbers up to this fit 32 bits.
MOST_POOLED = (1 << 16) - 1


@dataclass(frozen=True)
class RoiPoolingOperatorDesc(OperatorDesc):
    """The maxima of the bins of regions of interest (DML_ROI_POOLING_OPERATOR_DESC).

    Each region is divided into height x width bins. If it cannot be divided equally, neighbouring bins share a row or a
    column. A bin without elements is 0. The first NaN of a bin wins. A value has the bits of its element.

    Decisions of docs/semantics.md: 5, 8, 9, 27.

    Formula:
        batch, x1, y1, x2, y2 = roi[0, 0, r]; a corner is round(corner * spatial_scale), ties away from 0
        rows = max(y2 - y1 + 1, 1)
        bin i = the input's rows from y1 + floor(i * rows / height)
                to y1 + ceil((i + 1) * rows / height) - 1
        output[r, c, i, j] = max of input[batch, c] over the rows of bin i and the columns of bin j

    Args:
        input_tensor: (N, C, H, W); FLOAT32 or FLOAT16.
        roi_tensor: (1, 1, R, 5), the input's type: batch entry, x1, y1, x2, y2 of each region, where (x1, y1) is its
            first column and row, and (x2, y2) its last.
        output_tensor: (R, C, height, width), the input's type.
        spatial_scale: factor of the corners' coordinates; above 0, rounded to float32.
        pooled_size: (height, width), each up to 65,535. DirectML's structure has the width first.

    Raises:
        DescriptorError: naming the field that breaks a rule.

    Example:
        >>> import numpy as np
        >>> from dmlgpu import RoiPoolingOperatorDesc, verify
        >>> x = np.arange(1, 37, dtype=np.float32).reshape(1, 1, 6, 6)
        >>> rois = np.array([[[[0, 1, 1, 3, 2]]]], np.float32)
        >>> verify(RoiPoolingOperatorDesc.of(x, (2, 3), roi_tensor=rois), x, rois).tolist()
        [[[[8.0, 9.0, 10.0], [14.0, 15.0, 16.0]]]]
    """

    # Feature level 1_0.
    types: ClassVar[TypeTable] = dict.fromkeys(("input_tensor", "roi_tensor", "output_tensor"), _FLOATS)

    input_tensor: TensorDesc
    roi_tensor: TensorDesc
    output_tensor: TensorDesc
    spatial_scale: float
    pooled_size: tuple[int, int]

    @classmethod
    def of(
        cls,
        input_tensor: Any,
        pooled_size: Any,
        spatial_scale: Any = 1.0,
        *,
        roi_tensor: Any = None,
        roi_count: int = 1,
    ) -> Self:
        """The descriptor for an input; its output is inferred, and packed.

        Args:
            input_tensor: a TensorDesc, an array or a device tensor; only its type and layout count.
            pooled_size: see the field; one integer for both.
            spatial_scale: see the field.
            roi_tensor: as for input_tensor; None: packed, with the input's type and `roi_count` regions.
            roi_count: used only if roi_tensor is None.

        Raises:
            DescriptorError: naming the field that breaks a rule.
        """
        source = TensorDesc.of(input_tensor)
        if roi_tensor is None:
            rois = cls._packed("roi_tensor", source, (1, 1, unsigned(cls.__name__, "roi_count", roi_count, 1), 5))
        else:
            rois = TensorDesc.of(roi_tensor)
        size = _size(cls.__name__, (pooled_size,) * 2 if is_integer(pooled_size) else pooled_size)
        sizes = (*rois.sizes[2:3], *source.sizes[1:2], *size)
        return cls(source, rois, cls._packed("output_tensor", source, sizes), spatial_scale, size)

    def __post_init__(self) -> None:
        source, rois, _ = (self._check_tensor(field) for field in self.types)
        self._check_same_type()
        if source.rank != 4:
            raise self._error(
                "input_tensor.sizes", f"{source.sizes} has {source.rank} dimensions; allowed are 4 (NCHW)"
            )
        self._check_sizes("roi_tensor", (1, 1, *(rois.sizes[2:3] or (1,)), 5), "(1, 1, regions, 5)")
        self._set("spatial_scale", self._scale())
        self._set("pooled_size", _size(type(self).__name__, self.pooled_size))
        expected = (rois.sizes[2], source.sizes[1], *self.pooled_size)
        self._check_sizes("output_tensor", expected, "the regions, the input's C, and pooled_size")

    def _scale(self) -> float:
        """The scale as a float32."""
        value = self.spatial_scale
        is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
        with np.errstate(all="ignore"):
            scale = float(np.float32(value)) if is_number and abs(value) < 2**128 else math.nan
        if not 0 < scale < math.inf:
            raise self._error(
                "spatial_scale", f"{shown(value)} is not allowed; allowed are numbers above 0, as FLOAT32"
            )
        return scale


def _size(owner: str, values: Any) -> tuple[int, int]:
    """A height and a width."""
    size = integers(owner, "pooled_size", values)
    if len(size) != 2 or not all(1 <= number <= MOST_POOLED for number in size):
        raise DescriptorError(
            f"{owner}.pooled_size: {shown(size)} is not allowed; allowed are a height and a width of 1 to {MOST_POOLED}"
        )
    height, width = size
    return height, width
