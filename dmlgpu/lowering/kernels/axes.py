"""The base of kernels over axes, which split the elements of an output among invocations."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from dmlgpu.descriptors.tensor import MAX_ELEMENTS
from dmlgpu.lowering.geometry import address_span, ascend
from dmlgpu.lowering.kernels.cut import Extent, Part, PartKernel, Rules, Tiling
from dmlgpu.lowering.kernels.kernel import by_base, dimensions
from dmlgpu.lowering.plan import Dispatch, Shader, Values
from dmlgpu.lowering.problem import Axes, Result

# A part of a row of outputs begins at a multiple of this, and has at least this many.
_ROW_PART = 64


@dataclass(frozen=True)
class AxesKernel(PartKernel):
    """A kernel over axes. An item combines a split of an output, or of several adjacent outputs."""

    @abstractmethod
    def tiling_of(self, split: int, outputs: int) -> Tiling:
        """The tiling of `outputs` outputs, in splits of `split` elements."""

    @property
    @abstractmethod
    def least_split(self) -> int:
        """Minimum of elements per split if outputs are too few for all invocations."""

    longest_split: ClassVar[int] = 1 << 32
    """Maximum of elements per split; whole vectors."""
    fallback: ClassVar[type[AxesKernel]]
    """The kernel for parts that others cannot compute."""

    @abstractmethod
    def shader(self, part: Part) -> Shader:
        """The shader of a part."""

    @property
    def others(self) -> tuple[AxesKernel, ...]:
        return ()

    @cached_property
    def axes(self) -> Axes:
        assert isinstance(self.problem.domain, Axes)
        return self.problem.domain

    @cached_property
    def element_count(self) -> int:
        return self.axes.element_count

    @property
    def row_length(self) -> int:
        """Outputs along the last kept dimension."""
        return self.axes.kept[-1].size if self.axes.kept else 1

    @property
    def address_loads(self) -> int:
        """Loads that the loop over kept dimensions counts as, for an item's address; one dimension needs no loop."""
        return len(self.axes.kept) if len(self.axes.kept) > 1 else 0

    @cached_property
    def elements(self) -> int:
        # If the addresses of an output's elements do not ascend, every segment's dispatch loops over all of them.
        looks = 1 if ascend(self.axes.reduced) else self.problem.sources[0].segment_count
        return self.problem.output_count * self.element_count * looks

    # How a problem is cut

    @cached_property
    def rules(self) -> Rules:
        outputs = self.problem.outputs
        # combine.comp writes words of states, indices that do not count from 0, outputs that are not packed, and
        # outputs that were split.
        together = len(outputs) == 1 or self.problem.accumulator.has_index
        indexed = any(output.result is Result.INDEX for output in outputs) and self.axes.index_step
        packed = together and self.problem.has_packed_outputs
        tilings, split_size = self.tilings, self.split_size
        without_partials = packed and not indexed and split_size == self.element_count
        most = max(min(self._most_outputs(tilings), self._short_outputs), 1)
        row, step, boundary = tilings[0].row, 1, MAX_ELEMENTS
        if row != MAX_ELEMENTS:
            # Whole rows, or a part of one.
            step, boundary = (row, MAX_ELEMENTS) if row <= most else (_ROW_PART, row)
        most = most // step * step or most
        return Rules(most if without_partials else 0, most, tilings, split_size, ascend(self.axes.kept), step, boundary)

    def _most_outputs(self, tilings: Sequence[Tiling]) -> int:
        """Maximum of outputs per dispatch, with one split each; 0 if a split is too long."""
        return min([tiling.most_outputs(self.limits) for tiling in tilings])

    @property
    def split_size(self) -> int:
        """Elements of a split: all of an output, or fewer if outputs are too few for all invocations."""
        return self.tilings[0].elements

    @cached_property
    def tilings(self) -> tuple[Tiling, ...]:
        """The tilings of this kernel and of `others`, with a split of each output."""
        split = self.element_count
        if self.element_count > 2 * self.least_split:
            # A dispatch has as many splits as keep the device busy.
            outputs = min(self.problem.output_count, self._short_outputs)
            elements = min(self.element_count, self.limits.dispatch_elements // outputs)
            whole = self.tiling_of(self.element_count, self.problem.output_count)
            invocations = outputs * whole.threads // whole.width  # with one split of each output
            busy = -(-elements * invocations // self.limits.busy_invocations)
            # Partials must fit in their memory: there may be one per segment and split.
            partials = -(-self.element_count * self.problem.sources[0].segment_count // max(self.most_partials, 1))
            split = max(self.least_split, busy, partials)
        # A split is a multiple of a vector: if the first begins with a vector, all do.
        split = min(-(-split // self.vector_size) * self.vector_size, self.longest_split)
        tilings = self._tilings_of(split)
        while split > self.vector_size and self._most_outputs(tilings) == 0:
            split = -(-split // (2 * self.vector_size)) * self.vector_size
            tilings = self._tilings_of(split)
        return tilings

    def _tilings_of(self, split: int) -> tuple[Tiling, ...]:
        split, outputs = min(self.element_count, split), self.problem.output_count
        return tuple([kernel.tiling_of(split, outputs) for kernel in (self, *self.others)])

    @property
    def _short_outputs(self) -> int:
        """Number of outputs that together have at most `Limits.dispatch_elements` elements in one segment.

        It is at least _ROW_PART: if so many outputs have more elements, these are cut.
        """
        outer, together = self.axes.reduced[0], self.element_count
        if outer.stride > 0:
            groups = self.problem.sources[0].segment_size // outer.stride + 1
            together = min(together, groups * (self.element_count // outer.size))
        return max(self.limits.dispatch_elements // together, _ROW_PART)

    def extents(self, outputs: range) -> tuple[Extent, ...]:
        # Steps are coordinates along the outermost reduced dimension, with a group of elements each.
        reduced = self.axes.reduced
        low, high = address_span(self.axes.kept, outputs.start, outputs.stop)
        outer, *inner = reduced
        reach = sum((dim.size - 1) * dim.stride for dim in inner)
        group = self.element_count // outer.size
        return (Extent(low, high, range(outer.size), reduced, low, high + reach, outer.stride, group),)

    # Dispatches

    def dispatch(self, part: Part) -> Dispatch:
        (segment,), outputs, elements = part.segments, part.outputs, part.elements
        written = by_base(self.problem, range(len(self.problem.outputs)))
        push = Values(
            **dimensions(self.axes.kept + self.axes.reduced),
            kept_rank=len(self.axes.kept),
            reduced_rank=len(self.axes.reduced),
            reduced_begin=elements.start,
            reduced_end=elements.stop,
            split_size=part.split_size,
            first_output=outputs.start,
            output_count=len(outputs),
            element_count=self.element_count,
            **self.source_push(segment),
            **{base: self.target_base(part, output) for base, output in written.items()},
        )
        targets = (self.target_binding(part, output, base) for base, output in written.items())
        loads = self.loads(part, self.tiling_of(min(part.split_size, len(elements)), len(outputs)))
        return Dispatch(self.shader(part), push, (self.source_binding(segment), *targets), loads, outputs)
