"""Base classes of kernels that compute parts of (batch, channel) planes."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from dmlgpu.lowering.geometry import Dim, ascend, merged
from dmlgpu.lowering.kernels.cut import Extent, Part, PartKernel, Rules, Tiling
from dmlgpu.lowering.problem import planes_of


@dataclass(frozen=True)
class PlanesKernel(PartKernel):
    """A kernel over (batch, channel) planes: source and outputs have the same number of planes."""

    @cached_property
    @abstractmethod
    def without_partials(self) -> Tiling:
        """The tiling of parts that write outputs."""

    @cached_property
    def elements(self) -> int:
        return self.problem.output_count * self.without_partials.elements

    @cached_property
    def planes(self) -> Dim:
        """The source's planes with one stride (`planes_of`)."""
        return planes_of(self.source)

    @property
    def planes_outputs(self) -> int:
        """Outputs of the planes that have one stride."""
        return self.planes.size * math.prod(self.problem.outputs[0].tensor.sizes[2:])

    def fits(self, tiling: Tiling) -> bool:
        """Whether a dispatch can compute a word of outputs."""
        return tiling.most_outputs(self.limits) >= self.per_word

    def planes_rules(self, without_partials: Tiling, with_partials: Tiling, split_size: int) -> Rules:
        """The rules for outputs in planes that have one stride."""
        writes = self.problem.has_packed_outputs and self.fits(without_partials)
        return Rules(
            outputs_without_partials=self._whole_words(without_partials) if writes else 0,
            outputs_with_partials=self._whole_words(with_partials),
            tilings=(with_partials,),
            split_size=split_size,
            ascending=ascend(merged(map(Dim, self.source.sizes, self.source.element_strides))),
            step=self.per_word,  # whole words are written
            boundary=self.planes_outputs,
        )

    def _whole_words(self, tiling: Tiling) -> int:
        """Maximum of outputs per dispatch: whole words, at least one; if that does not fit, `lower()` raises."""
        return max(tiling.dispatch_outputs(self.limits) // self.per_word, 1) * self.per_word

    def why_not(self, part: Part) -> str:
        if part.writes_outputs and part.outputs.start % self.per_word:
            return "the first output is inside a word"
        if part.writes_outputs and len(part.outputs) > self.rules.outputs_without_partials:
            return "there are more outputs than a dispatch may have"
        return ""

    def planes_push(self, part: Part) -> dict[str, Any]:
        """The push constants for the bound segment of the source; only its base if the part writes outputs."""
        # Shaders compute plane number * planes.stride; the shift corrects that if batch entries have another stride.
        plane = part.outputs.start // self.planes_outputs * self.planes.size
        batch = plane // self.source.sizes[1] * self.source.element_strides[0]
        push = self.source_push(part.segments[0], batch - plane * self.planes.stride)
        return {"source_base": push["source_base"]} if part.writes_outputs else push


@dataclass(frozen=True)
class WholeRowsKernel(PlanesKernel):
    """A kernel over planes that writes whole slabs; or, if one is too large for a dispatch, whole rows of one.

    `direct` computes the other outputs, and writes partials: also for whole rows, if a segment ends inside a slab.
    """

    @cached_property
    @abstractmethod
    def direct(self) -> PlanesKernel:
        """The kernel over the same windows that computes any outputs."""

    @property
    def fallbacks(self) -> tuple[PlanesKernel, ...]:
        return (self.direct,)

    @property
    @abstractmethod
    def unit(self) -> int:
        """Minimum of outputs per dispatch: whole rows that divide a slab; or whole slabs, if rows share words."""

    @property
    def shares_words(self) -> bool:
        """Whether two rows of outputs may share a word."""
        return self.problem.outputs[0].tensor.sizes[-1] % self.per_word != 0

    @property
    def whole_slabs(self) -> int:
        """Outputs of the fewest slabs that fill whole words."""
        return math.lcm(math.prod(self.problem.outputs[0].tensor.sizes[-2:]), self.per_word)

    @property
    def why_too_large(self) -> str:
        """Why a dispatch cannot have `unit` outputs; empty if it can."""
        if self.unit <= self.most_outputs:
            return ""
        if self.shares_words:
            return "rows of outputs share words, and slabs that fill whole words are too large for a dispatch"
        return "rows of outputs are too long for a dispatch"

    @cached_property
    def most_outputs(self) -> int:
        """Maximum of outputs per dispatch."""
        return self.without_partials.dispatch_outputs(self.limits)

    @cached_property
    def rules(self) -> Rules:
        # Parts are whole slabs that fill whole words, or parts of one. `direct` computes shorter parts: with at most as
        # many outputs as it can write, because for more it would write partials.
        rules, slabs = self.direct.rules, self.whole_slabs <= self.most_outputs
        step = self.whole_slabs if slabs else self.unit
        most = self.most_outputs // step * step
        return replace(
            rules,
            outputs_without_partials=most,
            outputs_with_partials=min(
                rules.outputs_with_partials, rules.outputs_without_partials or rules.outputs_with_partials
            ),
            step=step,
            boundary=rules.boundary if slabs else self.whole_slabs,
        )

    @property
    def element_count(self) -> int:
        return self.direct.element_count

    def extents(self, outputs: range) -> tuple[Extent, ...]:
        return self.direct.extents(outputs)

    def why_not(self, part: Part) -> str:
        if not part.writes_outputs:
            return "it writes no partials"
        begin, end, step = part.outputs.start, part.outputs.stop, self.rules.step
        whole = begin % step == 0 and (end % step == 0 or end == self.problem.output_count)
        slabs = step % self.whole_slabs == 0
        return "" if whole else f"the outputs are not whole {'slabs' if slabs else 'rows'}"
