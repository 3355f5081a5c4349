"""roi_pool.comp: maxima of the bins of regions of interest.

Planning does not know the regions: a bin may have all elements of a plane. An invocation computes a row of bins, which
share few elements, or one bin, or one split of a bin that may be too long for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from dmlgpu.errors import DescriptorError
from dmlgpu.lowering.geometry import Dim, coordinate_ranges
from dmlgpu.lowering.kernels.cut import Extent, Part, PartKernel, Rules, Tiling
from dmlgpu.lowering.kernels.kernel import shader_of, wrapped
from dmlgpu.lowering.plan import Binding, Dispatch, Values
from dmlgpu.lowering.problem import Regions

# Maximum of elements along a dimension that the shader counts.
_MOST_COUNTED = (1 << 31) - 1


@dataclass(frozen=True)
class RoiPool(PartKernel):
    """Over bins of regions."""

    name: ClassVar = "roi_pool"
    variants: ClassVar = {"roi_pool": "one invocation per row of bins, per bin, or per split of a bin: any layout"}

    @cached_property
    def regions(self) -> Regions:
        assert isinstance(self.problem.domain, Regions)
        return self.problem.domain

    @cached_property
    def _tile(self) -> int:
        """Outputs of an item: a row, or one."""
        row, limits = self.regions.pooled_size[1], self.limits
        enough = not limits.cooperating and self.problem.output_count >= row * limits.invocations
        return row if enough and 6 * row <= limits.invocation_loads else 1

    @cached_property
    def _tile_elements(self) -> int:
        """Maximum of elements in the bins of an item: neighbouring bins share one column."""
        height, width = self.source.sizes[2:]
        return height * (width + self._tile - 1)

    @property
    def _bin_loads(self) -> int:
        """Loads of the bins of an item besides their elements; the last load of a bin's split may be missing."""
        return 3 * self._tile

    @cached_property
    def _splits(self) -> int:
        """Number of splits of a bin."""
        return -(-self._tile_elements // max(1, self.limits.invocation_loads - 1 - self._bin_loads))

    @cached_property
    def _bin_elements(self) -> int:
        """Approximate elements of a bin: a plane's divided by its bins, or, if it is large, by the bins of a row."""
        sizes = zip(self.source.sizes[2:], self.regions.pooled_size, strict=True)
        elements, bins = math.prod([size + bins for size, bins in sizes]), self.regions.pooled_size
        return -(-elements // (math.prod(bins) if elements <= self.limits.dispatch_elements else bins[1]))

    @property
    def elements(self) -> int:
        return self.problem.output_count * self._bin_elements

    @cached_property
    def _tiling(self) -> Tiling:
        loads = self._bin_loads + -(-self._tile_elements // self._splits)
        return Tiling(self._tile, -(-self._bin_elements // self._splits), loads)

    @cached_property
    def rules(self) -> Rules:
        rois = self.problem.sources[1]
        if rois.tensor.reach > rois.segment_size:
            raise DescriptorError(
                f"RoiPoolingOperatorDesc.roi_tensor: it spans {rois.tensor.reach} elements; allowed on this device "
                f"are {rois.segment_size}, because it must be in one buffer"
            )
        tiling = self._tiling
        outputs = max(tiling.dispatch_outputs(self.limits) // tiling.width, 1) * tiling.width
        return Rules(
            outputs_without_partials=outputs if self._splits == 1 and self.problem.has_packed_outputs else 0,
            outputs_with_partials=outputs,
            tilings=(tiling,),
            split_size=1,
            ascending=False,
            step=tiling.width,
        )

    @property
    def element_count(self) -> int:
        return self._splits

    def extents(self, outputs: range) -> tuple[Extent, ...]:
        """The addresses of all batch entries, rows and columns of the outputs' channels, and of all regions."""
        source, splits = self.source, range(self._splits)
        _, channels, *_ = coordinate_ranges(self.problem.outputs[0].tensor.sizes, outputs.start, outputs.stop)
        batch, channel, *plane = map(Dim, source.sizes, source.element_strides)
        inside = sum([(dim.size - 1) * dim.stride for dim in plane])
        low, high = (at * channel.stride for at in channels)
        return Extent(low, high + inside, splits, (batch,)), Extent(0, 0, splits)

    def dispatch(self, part: Part) -> Dispatch:
        _, rois = self.problem.sources
        mantissa, exponent = math.frexp(self.regions.scale)
        height, width = self.source.sizes[2:]
        push = {
            "stride": self.source.element_strides,
            "batch_count": self.source.sizes[0],
            "channel_count": self.source.sizes[1],
            "size": (min(height, _MOST_COUNTED), min(width, _MOST_COUNTED)),
            "pooled_size": self.regions.pooled_size,
            "scale_mantissa": int(mantissa * (1 << 24)),
            "scale_exponent": wrapped(exponent - 24),
            "roi_stride": rois.tensor.element_strides[2:],
            "rois_base": 0,
            "first_output": part.outputs.start,
            "output_count": len(part.outputs),
            "tile": self._tile,
            "bin_splits": self._splits,
            "split_begin": part.elements.start,
            "split_count": part.splits,
            "target_base": self.target_base(part, 0),
            **self.source_push(part.segments[0]),
        }
        bindings = (
            self.source_binding(part.segments[0]),
            self.target_binding(part, 0, "target_base"),
            Binding(rois.role, rois.number, 0, "rois_base", rois.tensor.data_type.bits),
        )
        constants = self.constants(part, segmented=not part.whole)
        shader = shader_of("roi_pool", self.problem, constants, built_in=True)
        return Dispatch(shader, Values(**push), bindings, self.loads(part, self._tiling), part.outputs)
