"""pool_separable.comp: windows of any size, along one dimension after the other.

Each dimension of a window is one pass; pool_separable.comp has a picture. An output needs some loads per dimension;
with pool_direct.comp it needs one per element of the window:

    input      --- along width --->  temporary  --- along height ---> temporary --- along depth --->  outputs
    D x H x W                        D x H x w                           D x h x w                          d x h x w

Windows of 33 x 33 take 29 to 40 times as long with pool_direct.comp on lavapipe (Mesa 25). If the driver compiles the
load of a vector to gathers (`Limits.gathers`), passes along height and depth load words
(`pool_separable_columns_words`). With vectors first calls would take 1.2 to 1.9 times as long there, later calls 0.8 to
1.2 times. Elements of 8 bits are loaded in vectors: first calls take 1.04 to 1.1 times as long, but later calls 0.7.

The first of equal elements along width wins, then that of the first row, then of the first depth: the first in
row-major order. Rows of temporaries have a multiple of 4 elements, so that passes load and store vectors.

If tensors have several segments, the pass along width has a dispatch for the rows of each segment, and a row that lies
in two is copied first. If the outputs of a row, or of a depth, lie in two, pool_direct.comp computes them.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

from dmlgpu.descriptors.dtypes import DataType
from dmlgpu.descriptors.tensor import TensorDesc
from dmlgpu.descriptors.window import Window
from dmlgpu.lowering.accumulators import Integer, Selection
from dmlgpu.lowering.geometry import Dim, runs_of_segments
from dmlgpu.lowering.kernels.axes import Reduce
from dmlgpu.lowering.kernels.cut import Part, PartKernel
from dmlgpu.lowering.kernels.kernel import WORKSPACE_SHARE, Kernel, by_base, constants_of, shader_of, wrapped
from dmlgpu.lowering.kernels.pool_direct import PoolDirect
from dmlgpu.lowering.plan import Binding, Dispatch, Values
from dmlgpu.lowering.problem import Result, Role, Windows, copy_of, planes_of

# Maximum of windows per tile. If loops are unrolled, it is _UNROLLED_TILE along height and depth, and along width for
# windows of up to _SHORT elements with indices: such tiles are as fast, and compile faster.
_MOST_TILE, _UNROLLED_TILE, _SHORT = 16, 8, 31
# Maximum of elements of a tile after its first window: the loop that loads them is unrolled.
_MOST_SUFFIX = 16


class Line(Window):
    """The windows along one dimension, in tiles. With a `base_dilation`, their stride and dilation are 1."""

    __slots__ = ()

    @property
    def needs_pass(self) -> bool:
        """Whether the windows along this dimension differ from the elements themselves."""
        return (self.window_size, self.stride, self.start_padding, self.size) != (1, 1, 0, self.output_size)

    @property
    def spacing(self) -> int:
        """Outputs whose windows share elements are a multiple of this apart."""
        return self.base_dilation * self.dilation // math.gcd(self.stride, self.dilation)

    @property
    def step(self) -> int:
        """The distance between two such windows that are `spacing` outputs apart, in elements of a window."""
        return self.stride // math.gcd(self.stride, self.dilation)

    @property
    def fewest_elements(self) -> int:
        """Minimum of elements per window."""
        return self.window_size // self.base_dilation

    @property
    def most_elements(self) -> int:
        """Maximum of elements per window."""
        return -(-self.window_size // self.base_dilation)

    def tile(self, most: int) -> int:
        """Windows of a tile, up to `most`: they all share an element, unless each window has only one."""
        tile, step, spacing = 1, self.step, self.spacing
        while 2 * tile <= most and 2 * tile * step <= _MOST_SUFFIX and tile * spacing < self.output_size:
            if self.most_elements > 1 and self.fewest_elements <= (2 * tile - 1) * step:
                break
            tile *= 2
        return tile

    def elements(self, tile: int) -> int:
        """Elements that an invocation loads for a tile."""
        return tile if self.most_elements == 1 else self.most_elements + (tile - 1) * self.step

    def tiles(self, tile: int) -> int:
        """Number of tiles."""
        residues = min(self.spacing, self.output_size)
        return ((self.output_size - 1) // self.spacing // tile + 1) * residues

    def widest(self, outputs: int) -> Line:
        """A range of so many windows, with the maximum of elements that such a range can need."""
        size = min(self.size, -(-self.span(outputs) // self.base_dilation))
        return self._replace(size=size, output_size=outputs, start_padding=0)


@dataclass(frozen=True)
class SeparablePass:
    """A pass along a dimension, for some planes or outputs: one dispatch, or several."""

    axis: int
    """0 to 2: depth, height, width."""
    line: Line
    outer_count: int
    """Rows of the input along width; slabs, which have the elements at one depth, along height; planes along depth."""
    row_count: int
    """Rows of the temporary at one position of a line: 1 along height, those of a slab along depth."""
    tile: int
    vectors: int
    """Vectors of columns at one position of a line."""
    written: int
    """Elements that are written, of a temporary or of outputs."""
    element_loads: int
    """Loads that accumulating an element counts as."""

    @property
    def items(self) -> int:
        """Items of all dispatches."""
        return self.outer_count * self.line.tiles(self.tile) * self.vectors

    @property
    def item_loads(self) -> int:
        """Loads of an item."""
        # In the middle of a tile (pool_separable.comp has a picture) an iteration has two loads. Prefixes and suffixes
        # have a loop for each window.
        suffix = (self.tile - 1) * self.line.step
        return ((self.line.elements(self.tile) - suffix) // 2 + 2 * suffix) * self.element_loads + 2 * self.tile + 1

    @property
    def elements(self) -> int:
        """Elements that all items load."""
        return self.items * self.line.elements(self.tile)


@dataclass(frozen=True)
class PlaneRange:
    """A range of outputs: whole planes, or some outputs of a plane along depth or height."""

    planes: range
    outputs: range


@dataclass(frozen=True)
class PoolSeparable(Kernel):
    """Pooling with windows of any size, along one dimension after the other."""

    name: ClassVar = "pool_separable"
    variants: ClassVar = {
        "pool_separable_rows": "along width: one invocation per tile of windows, which share loads",
        "pool_separable_columns": "along height or depth: the same, from the results of the pass before",
        "pool_separable_columns_words": "along height or depth: loads words, not vectors, of fewer columns",
    }

    rows_variant: ClassVar = "pool_separable_rows"

    @cached_property
    def windows(self) -> Windows:
        """The windows that are computed."""
        assert isinstance(self.problem.domain, Windows)
        return self.problem.domain

    @property
    def why_impossible(self) -> str:
        if isinstance(self.problem.accumulator, Integer):
            return "it does not add integers"
        if 4 % self.words:
            return "states do not fill a vector"
        # Positions are signed, and a tile continues after the last output.
        if max(line.end + line.stride * line.spacing * _MOST_TILE for line in self.lines) >= 1 << 31:
            return "windows extend so far beyond the end that positions would wrap around"
        if not self.problem.has_packed_outputs:
            return "an output is not packed"
        if not (self.planes_at_once or self.outputs_at_once):
            return "the temporaries of a row of outputs, or of a slab, are too large"
        if not all(map(self._most_items, self._passes(1, self.lines))):
            return "a tile needs more loads than an invocation may have"
        return ""

    @property
    def why_slow(self) -> str:
        counts = self.windows.fields["output_size"]
        outputs = counts[self.range_axis] if self.planes_at_once else self.outputs_at_once
        count = math.prod(counts) // counts[self.range_axis] * outputs
        elements = sum(one_pass.elements for one_pass in self._passes(1, self._widest(outputs)))
        # Costs are in loads of pool_direct.comp, where each output costs 4 more. A load of a pass costs 12 on
        # SwiftShader, or 5 for sums, because adding takes as long in both kernels; elsewhere 2.5. On llvmpipe it costs
        # only 1, but the alternative may be pool_small.comp, which needs half the time of pool_direct.comp.
        direct_loads = count * (4 + self._direct.elements // self.problem.output_count)
        load_cost = 2.5 if self.limits.unrolls else 12 if self.selects else 5
        if load_cost * elements >= direct_loads:
            return "windows overlap too little"
        # At least one dispatch per run of rows, and per further pass of a range.
        dispatches, further = 0, len(self._passes(1, self.lines)) - 1
        in_segments = self.problem.sources[0].segment_count > 1
        for part in self._ranges():
            dispatches += further + (sum(1 for _ in self._runs(part)) if in_segments else 1)
            if dispatches > self.limits.dispatch_count:
                return f"it needs more than {self.limits.dispatch_count} dispatches"
        return ""

    # How the work is divided

    @cached_property
    def planes(self) -> Dim:
        """The source's planes with one stride (`planes_of`)."""
        return planes_of(self.source)

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """The windows along depth, height and width."""
        return tuple(map(Line._make, self.windows.along))

    @property
    def indexed(self) -> bool:
        """Whether an output has indices."""
        return self.problem.outputs[-1].result is Result.INDEX

    @cached_property
    def selects(self) -> bool:
        """Whether maxima are computed, not sums."""
        return isinstance(self.problem.accumulator, Selection)

    @cached_property
    def words(self) -> int:
        """Words of a temporary's element, without its index: of a maximum's bits, or of a sum's state."""
        data_type = self.source.data_type
        return max(1, data_type.bits // 32) if self.selects else self.problem.accumulator.state_words(data_type)

    @property
    def words_and_index(self) -> int:
        """Words of a temporary's element, with its index if there are any."""
        return self.words + self.indexed

    @cached_property
    def range_axis(self) -> int:
        """The dimension along which a plane is divided into ranges: depth, or height if there is one depth."""
        return 0 if self.windows.along[0].output_size > 1 else 1

    @cached_property
    def pitch(self) -> int:
        """Elements of a row of a temporary: whole vectors, of values and of indices."""
        return -(-self.windows.along[2].output_size // 4) * 4

    @property
    def _loads_words(self) -> bool:
        """Whether passes along height and depth load words. The state of a sum is a vector."""
        return self.selects and self.limits.gathers and self.source.data_type.bits > 8

    @property
    def columns(self) -> int:
        """Columns that an invocation computes along height or depth: COLUMNS of the shader."""
        return self.per_word if self._loads_words else 4 // self.words

    @property
    def _is_unrolled(self) -> bool:
        """Whether a driver for CPUs unrolls loops. lavapipe (Mesa 25) compiles long ones for seconds."""
        return self.limits.unrolls and not self.limits.cooperating

    def _most_tile(self, axis: int, line: Line) -> int:
        """Maximum of windows per tile."""
        if self.limits.cooperating:
            # RADV keeps more states in memory, not in registers.
            return _MOST_TILE // self.words if axis == 2 else _MOST_TILE // 4
        if not self.selects:
            # Volumes have two passes of columns to compile.
            return _UNROLLED_TILE // 2 if line.step > 1 or self.lines[0].needs_pass else _UNROLLED_TILE
        if not self._is_unrolled:
            # SwiftShader compiles longer tiles of 64 bits for minutes.
            return _MOST_TILE if self.words == 1 else 4
        if axis == 2:
            return _MOST_TILE // self.words if line.window_size > _SHORT or not self.indexed else _UNROLLED_TILE
        return (_MOST_TILE // self.columns if self._loads_words else _UNROLLED_TILE) // self.words

    def _unrolled(self, one_pass: SeparablePass) -> int:
        """Windows of a tile whose writes are unrolled.

        If fewer writes are unrolled, short windows along height without indices take a tenth longer (lavapipe, Mesa
        22.3). In volumes fewer are, because there are two such passes to compile.
        """
        if not self._is_unrolled:
            return _MOST_TILE
        if not self.selects:
            return 1
        if one_pass.axis == 2:
            return 4
        if self.indexed or one_pass.line.step > 1 or self._loads_words:
            return 1
        return 2 if self.lines[0].needs_pass or one_pass.line.window_size > _MOST_TILE else _MOST_TILE

    def _lines(self, part: PlaneRange) -> tuple[tuple[int, ...], tuple[Line, ...]]:
        """The first element that a range needs along depth and height, and its windows."""
        firsts, lines = [0, 0], list(self.lines)
        firsts[self.range_axis], lines[self.range_axis] = lines[self.range_axis].part(part.outputs)
        return tuple(firsts), tuple(lines)

    def _widest(self, outputs: int) -> tuple[Line, ...]:
        """The windows of a range with this many outputs along `range_axis`, over the most elements it can need."""
        return tuple(line.widest(outputs) if d == self.range_axis else line for d, line in enumerate(self.lines))

    def _passes(self, planes: int, lines: Sequence[Line]) -> list[SeparablePass]:
        """The passes of a range, in order. That along width is always included, because it reads the input."""
        depth, height, width = lines
        passes = []
        for axis, line in (2, width), (1, height), (0, depth):
            if axis < 2 and not line.needs_pass:
                continue
            slabs = planes if axis == 0 else planes * depth.size
            rows = height.output_size if axis == 0 else 1
            outer = slabs * height.size if axis == 2 else slabs
            vectors = 1 if axis == 2 else rows * self.pitch // self.columns
            written = outer * self.pitch if axis == 2 else outer * line.output_size * rows * self.pitch
            tile = line.tile(self._most_tile(axis, line))
            loads = self.problem.accumulator.loads() if axis == 2 else 1
            passes.append(SeparablePass(axis, line, outer, rows, tile, vectors, written, loads))
        return passes

    def _bytes(self, planes: int, outputs: int) -> list[int]:
        """Bytes of the temporaries of ranges with `planes` planes, and `outputs` outputs along `range_axis`."""
        passes = self._passes(planes, self._widest(outputs))
        return [4 * one_pass.written * self.words_and_index for one_pass in passes[:-1]]

    def _fits(self, planes: int, outputs: int) -> bool:
        """Whether the temporaries of such ranges are within the limits."""
        temporaries = self._bytes(planes, outputs)
        return sum(temporaries) <= self.most_bytes and max(temporaries, default=0) <= self.limits.segment_bytes

    @cached_property
    def most_bytes(self) -> int:
        """Maximum of bytes of temporaries: at least so many that no row is computed for more than two ranges."""
        line = self.lines[self.range_axis]
        outputs = min(line.output_size, line.overlap)
        largest = max(self.source.size_in_bytes, self.problem.outputs[0].tensor.size_in_bytes)
        return max(self.limits.temporary_bytes, largest // WORKSPACE_SHARE, sum(self._bytes(1, outputs)))

    def _most_items(self, one_pass: SeparablePass) -> int:
        """Maximum of items per dispatch; a pass may need several dispatches."""
        elements = one_pass.line.elements(one_pass.tile)
        return min(self.limits.most_items(one_pass.item_loads), max(1, self.limits.dispatch_elements // elements))

    @cached_property
    def planes_at_once(self) -> int:
        """Number of whole planes per range; 0 if not even one fits."""
        outputs = self.windows.along[self.range_axis].output_size
        return _greatest(self.planes.size, lambda count: self._fits(count, outputs))

    @cached_property
    def outputs_at_once(self) -> int:
        """Number of outputs along `range_axis` per range if a whole plane does not fit; 0 if not even one does."""
        return _greatest(self.windows.along[self.range_axis].output_size, lambda count: self._fits(1, count))

    def _ranges(self) -> Iterator[PlaneRange]:
        """The ranges of all outputs, in order; the outputs of each are in one segment, or `_direct` computes them."""
        return itertools.chain.from_iterable(map(self._in_segments, self._large_ranges()))

    def _large_ranges(self) -> Iterator[PlaneRange]:
        """The ranges of all outputs, in order, as if a tensor were one segment."""
        count, of_batch = math.prod(self.source.sizes[:2]), self.planes.size
        outputs = range(self.windows.along[self.range_axis].output_size)
        if not self.planes_at_once:
            starts = outputs[:: self.outputs_at_once]
            for plane, first in itertools.product(range(count), starts):
                yield PlaneRange(range(plane, plane + 1), outputs[first : first + self.outputs_at_once])
            return
        for batch in range(0, count, of_batch):
            end = batch + of_batch
            for begin in range(batch, end, self.planes_at_once):
                yield PlaneRange(range(begin, min(begin + self.planes_at_once, end)), outputs)

    def _outputs(self, part: PlaneRange) -> range:
        """The outputs of a range."""
        sizes = self.windows.fields["output_size"]
        together = math.prod(sizes[self.range_axis + 1 :])
        first = part.planes.start * math.prod(sizes) + part.outputs.start * together
        return range(first, first + len(part.planes) * len(part.outputs) * together)

    def _segment_end(self, output: int) -> int:
        """The first output after this one at which a segment of an output tensor begins."""
        sizes = (output.segment_size for output in self.problem.outputs)
        return min((output // size + 1) * size for size in sizes)

    def _is_direct(self, part: PlaneRange) -> bool:
        """Whether outputs of a range are in two segments, so that `_direct` computes them."""
        outputs = self._outputs(part)
        return self._segment_end(outputs.start) < outputs.stop

    def _in_segments(self, part: PlaneRange) -> Iterator[PlaneRange]:
        """A range, divided where a segment of an output ends."""
        ranges = [part]
        while ranges:
            part = ranges.pop()
            outputs = self._outputs(part)
            end = self._segment_end(outputs.start)
            axis, steps = ("planes", part.planes) if len(part.planes) > 1 else ("outputs", part.outputs)
            if end >= outputs.stop or len(steps) == 1:
                yield part
                continue
            # The steps before the one in which the segment ends; or, if there are none, that step.
            count = max(1, (end - outputs.start) // (len(outputs) // len(steps)))
            ranges += (replace(part, **{axis: half}) for half in (steps[count:], steps[:count]))

    # Dispatches

    @cached_property
    def _direct(self) -> PartKernel:
        """The kernel for outputs in two segments."""
        return PoolDirect(self.problem, self.limits)

    @cached_property
    def elements(self) -> int:
        elements = 0
        for part in self._ranges():
            if self._is_direct(part):
                elements += len(self._outputs(part)) * self._direct.elements // self.problem.output_count
            else:
                elements += sum(one_pass.elements for one_pass in self._passes(len(part.planes), self._lines(part)[1]))
        return elements

    def dispatches(self) -> Iterator[tuple[Dispatch, int]]:
        for part in self._ranges():
            if self._is_direct(part):
                yield from self._direct.dispatches_of(self._outputs(part))
                continue
            passes = self._passes(len(part.planes), self._lines(part)[1])
            for dispatch in self._rows(part, passes[0], to_outputs=len(passes) == 1):
                yield dispatch, 0
            for number, (before, one_pass) in enumerate(itertools.pairwise(passes), 1):
                for items in self._item_ranges(one_pass, range(one_pass.items)):
                    to_outputs = number == len(passes) - 1
                    yield self._columns(part, one_pass, number, before, items, to_outputs=to_outputs), 0

    def _item_ranges(self, one_pass: SeparablePass, items: range) -> Iterator[range]:
        """Items of a pass, as one range per dispatch."""
        parts = -(-len(items) // self._most_items(one_pass))
        size = -(-len(items) // parts)
        return (items[i : i + size] for i in range(0, len(items), size))

    @cached_property
    def temporaries(self) -> tuple[TensorDesc, ...]:
        """The results of the first pass, then of the second: all values, and after them all indices.

        The last is the copy of a row in several segments.
        """
        outputs = self.windows.along[self.range_axis].output_size if self.planes_at_once else self.outputs_at_once
        passes = self._passes(self.planes_at_once or 1, self._widest(outputs))
        between = (TensorDesc(DataType.UINT32, (one_pass.written * self.words_and_index,)) for one_pass in passes[:-1])
        return (*between, *([self._copy] if self.problem.sources[0].segment_count > 1 else []))

    @property
    def _copy(self) -> TensorDesc:
        """A row of the input."""
        return TensorDesc(self.source.data_type, (self.windows.along[2].size,))

    def _copy_binding(self, base: str) -> Binding:
        """The binding of the copied row."""
        number = len(self._passes(1, self.lines)) - 1
        return replace(self._temporary(number, base), unit_bits=self.source.data_type.bits)

    def _runs(self, part: PlaneRange) -> Iterator[tuple[range, int | None]]:
        """Runs of the rows that a range needs, with the segment of each run; None for a row in several segments."""
        windows, (depth, height, width) = self.windows, self._lines(part)[1]
        first = self._first_row(part)[0]
        planes, slabs = Dim(len(part.planes), self.planes.stride), Dim(depth.size, windows.stride[0])
        size, reach = self.problem.sources[0].segment_size, (width.size - 1) * windows.stride[2]
        runs = runs_of_segments(first, (planes, slabs, Dim(height.size, windows.stride[1])), reach, size)
        # Consecutive runs may have the same segment: the last rows of a plane, and whole planes.
        for segment, together in itertools.groupby(runs, key=lambda run: run[1]):
            if segment is None:
                yield from together
            else:
                rows = [numbers for numbers, _ in together]
                yield range(rows[0].start, rows[-1].stop), segment

    def _rows(self, part: PlaneRange, one_pass: SeparablePass, *, to_outputs: bool) -> Iterator[Dispatch]:
        """The pass along width of a range: the rows of each segment, and those in several."""
        tiles = one_pass.line.tiles(one_pass.tile)
        for rows, segment in self._runs(part):
            if segment is None:
                yield from self._copied(part, rows.start)
            items = range(rows.start * tiles, rows.stop * tiles)
            yield from self._rows_of(part, one_pass, items, segment, to_outputs=to_outputs)

    def _rows_of(
        self, part: PlaneRange, one_pass: SeparablePass, items: range, segment: int | None, *, to_outputs: bool
    ) -> Iterator[Dispatch]:
        """Some tiles along width: of rows in a segment, or of the copied row."""
        windows, lines = self.windows, self._lines(part)[1]
        first, first_row = self._first_row(part)
        push: dict[str, Any] = {
            "rows": (lines[0].size, lines[1].size),
            "plane_stride": self.planes.stride,
            "stride": windows.stride,
        }
        if self.selects:
            *sizes, row = windows.fields["size"]
            push |= {"input_rows": tuple(sizes), "first_index": first_row * row}
        if segment is None:
            address, _ = self._row(part, items.start // lines[2].tiles(one_pass.tile))
            push |= {"stride": (*windows.stride[:2], 1), "source_base": wrapped(first - address)}
            source = self._copy_binding("source_base")
        else:
            push["source_base"] = wrapped(first - segment * self.problem.sources[0].segment_size)
            source = self.source_binding(segment)
        for dispatched in self._item_ranges(one_pass, items):
            yield self._dispatch(part, one_pass, 0, dispatched, push, source, to_outputs=to_outputs)

    def _copied(self, part: PlaneRange, row: int) -> Iterator[Dispatch]:
        """Copies a row of the input that is in several segments."""
        target = replace(self._copy_binding("target_base"), written=True)
        copy = Reduce(copy_of(self.problem.sources[0], self._copy, target.tensor), self.limits)
        size, stride = self.problem.sources[0].segment_size, self.windows.stride[2]
        (width,) = self._copy.sizes
        (address, row_number), column = self._row(part, row), 0
        while column < width:
            segment = (address + column * stride) // size
            of_segment = ((segment + 1) * size - 1 - address) // stride + 1
            end = min(width, of_segment, column + copy.rules.outputs_without_partials)
            elements = range(row_number * width + column, row_number * width + end)
            dispatch = copy.dispatch(Part(elements, range(1), 1, (segment,), whole=True, writes_outputs=True))
            bases = by_base(copy.problem, [wrapped(-row_number * width)])
            targets = (replace(target, base=base) for base in bases)
            push, bindings = Values(**{**dispatch.push, **bases}), (dispatch.bindings[0], *targets)
            yield replace(dispatch, push=push, bindings=bindings, outputs=self._outputs(part))
            column = end

    def _columns(
        self,
        part: PlaneRange,
        one_pass: SeparablePass,
        number: int,
        before: SeparablePass,
        items: range,
        *,
        to_outputs: bool,
    ) -> Dispatch:
        """Some tiles of pass `number` of a range, along height or depth; they load the results of pass `before`."""
        push = {"row_count": one_pass.row_count, "source_base": 0, "source_indices": before.written * self.words}
        source = self._temporary(number - 1, "source_base")
        return self._dispatch(part, one_pass, number, items, push, source, to_outputs=to_outputs)

    def _dispatch(
        self,
        part: PlaneRange,
        one_pass: SeparablePass,
        number: int,
        items: range,
        pass_push: dict[str, Any],
        source: Binding,
        *,
        to_outputs: bool,
    ) -> Dispatch:
        """A dispatch of some tiles of pass `number` of a range."""
        line, width, outputs = one_pass.line, self.windows.along[2].output_size, self._outputs(part)
        values, indices = self._written(outputs, number, to_outputs=to_outputs)
        push = Values(
            size=line.size,
            output_size=line.output_size,
            window_size=line.window_size,
            window_stride=line.stride,
            dilation=line.dilation,
            start_padding=wrapped(line.start_padding),
            spacing=line.spacing,
            width=width,
            pitch=width if one_pass.axis == 2 and to_outputs else self.pitch,
            outer_count=one_pass.outer_count,
            first_item=items.start,
            most_items=len(items),
            values_base=self.output_offset(outputs.start, 0) if to_outputs else 0,
            indices_base=self.output_offset(outputs.start, -1) if to_outputs else one_pass.written * self.words,
            **pass_push,
            **self._counted(part, one_pass.axis),
        )
        columns_variant = "pool_separable_columns" + "_words" * self._loads_words
        variant = self.rows_variant if one_pass.axis == 2 else columns_variant
        constants = self._constants(part, one_pass, to_outputs=to_outputs)
        shader = shader_of(variant, self.problem, constants, built_in=self.selects)
        loads = self.limits.loads(len(items), one_pass.item_loads)
        return Dispatch(shader, push, (source, values, indices), loads, outputs)

    def _constants(self, part: PlaneRange, one_pass: SeparablePass, *, to_outputs: bool) -> dict[str, int]:
        """The specialization constants of a pass of a range."""
        line, width = one_pass.line, self.windows.along[2].output_size
        # Results side by side are stored as one vector. For sums they are not: a state is a vector already, and
        # SwiftShader takes minutes to compile several square roots.
        side_by_side = self.selects and one_pass.axis == 2 and line.spacing == 1 and one_pass.tile % 4 == 0
        group = (4 if side_by_side else 1) if one_pass.axis == 2 else self.columns
        return constants_of(
            self.problem,
            self.limits,
            self.problem.outputs if to_outputs else (),
            tile=one_pass.tile,
            step=line.step,
            copies=line.most_elements == 1,
            dilated=(line.dilation, line.spacing) != (1, 1),
            flat=one_pass.axis == 2 and self._is_flat(part),
            to_outputs=to_outputs,
            indexed=self.indexed,
            side_by_side=side_by_side,
            whole=width % group == 0,
            unrolled=min(one_pass.tile, self._unrolled(one_pass)),
            shared_words=to_outputs and (group % self.per_word != 0 or width % self.per_word != 0),
            **self._sum_constants(one_pass),
        )

    def _sum_constants(self, one_pass: SeparablePass) -> dict[str, int]:
        """The specialization constants that shaders of maxima lack."""
        return {} if self.selects else {"base_dilation": one_pass.line.base_dilation}

    def _counted(self, part: PlaneRange, axis: int) -> dict[str, Any]:
        """The push constants for what counts in an average: along the dimension of a pass, and along the others."""
        if self.selects:
            return {}
        fields = self.windows.fields
        begins, ends = list(fields["counted_begin"]), list(fields["counted_end"])
        # Positions count from the first window of the range.
        before = part.outputs.start * fields["stride"][self.range_axis]
        begins[self.range_axis] = max(0, begins[self.range_axis] - before)
        ends[self.range_axis] -= before
        along = {"counted_begin": begins[axis], "counted_end": ends[axis]}
        if axis == 2:
            return along
        rows = fields["window_size"], fields["stride"], fields["dilation"], begins, ends
        # Windows along height have one element if this pass is along height.
        height, width = (1, 1, 1, 0, 1) if axis == 1 else [row[1] for row in rows], [row[2] for row in rows]
        names = "window_sizes", "window_strides", "dilations", "counted_begins", "counted_ends"
        return along | dict(zip(names, zip(height, width, strict=True), strict=True))

    def _first_row(self, part: PlaneRange) -> tuple[int, int]:
        """The address of the first row of the input that a range needs, and the row's number."""
        windows, source, plane = self.windows, self.source, part.planes.start
        depth, height = self._lines(part)[0]
        batch, channel = divmod(plane, source.sizes[1])
        address = batch * source.element_strides[0] + channel * source.element_strides[1]
        address += depth * windows.stride[0] + height * windows.stride[1]
        return address, (plane * windows.along[0].size + depth) * windows.along[1].size + height

    def _row(self, part: PlaneRange, row: int) -> tuple[int, int]:
        """The address and the number of row `row` of those that a range needs."""
        windows, (depths, heights, _) = self.windows, self._lines(part)[1]
        slab, height = divmod(row, heights.size)
        plane, depth = divmod(slab, depths.size)
        address, number = self._first_row(part)
        address += plane * self.planes.stride + depth * windows.stride[0] + height * windows.stride[1]
        return address, number + (plane * windows.along[0].size + depth) * windows.along[1].size + height

    def _is_flat(self, part: PlaneRange) -> bool:
        """Whether the rows that a range needs have one stride, and consecutive indices."""
        windows, (depth, height, _) = self.windows, self._lines(part)[1]
        slab, plane = (height.size, windows.stride[1] * height.size), depth.size * height.size * windows.stride[1]
        sizes = windows.fields["size"]
        slabs_follow = depth.size == 1 or slab == (sizes[1], windows.stride[0])
        whole = (depth.size, height.size) == sizes[:2]
        return slabs_follow and (len(part.planes) == 1 or (whole and plane == self.planes.stride))

    def _written(self, outputs: range, number: int, *, to_outputs: bool) -> tuple[Binding, Binding]:
        """The bindings of values and indices; if only one is written, both have it."""
        if to_outputs:
            begin = outputs.start
            return self.output_binding(begin, 0, "values_base"), self.output_binding(begin, -1, "indices_base")
        values = replace(self._temporary(number, "values_base"), written=True)
        return values, replace(values, base="indices_base")

    def _temporary(self, number: int, base: str) -> Binding:
        """The binding of the results of pass `number`."""
        return Binding(Role.TEMPORARY, number + self.first_temporary, base=base)


def _greatest(count: int, fits: Callable[[int], bool]) -> int:
    """The greatest number up to `count` that fits, if all below it do; 0 if none does."""
    return bisect_left(range(1, count + 1), True, key=lambda number: not fits(number))
