"""How every operator runs: from a descriptor and a device's limits to a plan.

All operators here are one selection: of the elements that belong to an output, the one with the highest order key.
They differ in which elements those are. A first pass says that and writes the outputs in place; where it cannot,
because the elements lie in several segments or the outputs are strided, it writes records and a second pass,
the same for all, combines them into the outputs.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, singledispatch
from typing import Any, ClassVar

from dmlgpu.dtypes import AxisDirection
from dmlgpu.geometry import Dim, address_span, coordinate_ranges, merged, segments_touched
from dmlgpu.operators import ArgminOperatorDesc, ArgOperatorDesc, MaxPooling2OperatorDesc, OperatorDesc
from dmlgpu.plan import Binding, Constants, Dispatch, Kernel, Limits, NumberKind, Plan, Push, Role
from dmlgpu.tensor import MAX_RANK, TensorDesc

# Ranges of outputs begin at multiples of this where they can: writing 8- or 16-bit elements in place needs a range
# to begin with a word.
_GRANULE = 64
# With more outputs in a dispatch a shader's counter could pass 2^32.
_MAX_OUTPUTS = 1 << 31


# Which kernel computes what, and why; times are those of lavapipe (Mesa 22.3) with 2 cores and float32, as medians on
# a machine at rest. llvmpipe loads every lane's words one by one, whatever their addresses, about 40 instructions for
# 4 words and 24 for one: its kernels are as fast as they load blocks and load none twice. The choices themselves are
# `_Reduce.shader`, `_Pool.small` and `_Pool.pool_kernel`.
_MAPPINGS = {
    # 4096 x 1024: 3 ms; with one scalar load an element 22.
    "rows": "one invocation an output: its elements follow each other, and are read in blocks of 16 bytes",
    # On a CPU driver barriers make it ten times as slow as rows. On a GPU it is not measured: neighbouring lanes read
    # neighbouring blocks, as ggml, MLX and CUB have them.
    "lanes": "several invocations an output, as suits a GPU: its elements follow each other, lane next to lane",
    # 4096 x 1024, first axis: 10 ms; one output an invocation 19.
    "columns": "one invocation a block of neighbouring outputs: their elements stand side by side",
    "reduce": "one invocation an output, element by element: any layout, or several segments",
    # 8 x 64 x 112 x 112, 3 x 3, stride 2: 17 ms; unrolled an output at a time 50, element by element 150.
    # SwiftShader does not unroll it: it is slower there than pool.
    "windows": "one invocation some neighbouring outputs, down a strip of rows: small windows share what they load",
    # 1 x 512 x 28 x 28, global: 0.8 ms.
    "pool_blocks": "one invocation an output: long rows of a window are read in blocks of 16 bytes",
    "pool": "one invocation a word of outputs, element by element: any layout, window or driver",
    "pool_parts": "as pool, for windows in parts: in several segments, or too long for one invocation",
    "combine": "second pass: the best of what the first left of every output, wherever the output lies",
}


def lower(desc: OperatorDesc, limits: Limits) -> Plan:
    """The plan of an operator on a device of these limits."""
    first_pass = _first_pass(desc.canonical(), limits)
    dispatches: list[Dispatch] = []
    records_bytes = 0
    for begin, end, in_place in _ranges(first_pass):
        pieces = first_pass.pieces(begin, end)
        if in_place:
            dispatches.append(first_pass.dispatch(begin, end, pieces[0], None))
            continue
        records = 0
        for piece in pieces:
            dispatches.append(first_pass.dispatch(begin, end, piece, records))
            records += piece.records
        dispatches += _second_pass(first_pass, begin, end, records)
        records_bytes = max(records_bytes, 4 * first_pass.record_words * records * (end - begin))
    kernels = dict.fromkeys(dispatch.kernel.module.rpartition("_")[0] for dispatch in dispatches)
    mapping = tuple(f"{kernel}: {_MAPPINGS[kernel]}" for kernel in kernels)
    return Plan(desc, limits, tuple(dispatches), records_bytes, mapping)


@dataclass(frozen=True)
class _Piece:
    """A piece of the work on some outputs: of their elements, those in one segment of the input."""

    segment: int

    @property
    def records(self) -> int:
        """Records that it gives for each output."""
        return 1


@dataclass(frozen=True)
class _FirstPass(ABC):
    """Which elements every output is chosen from."""

    desc: OperatorDesc
    limits: Limits

    values_output: ClassVar[int | None] = None
    """The output that holds the elements chosen; all others hold their indices."""

    @abstractmethod
    def pieces(self, begin: int, end: int) -> Sequence[_Piece]:
        """All the work on outputs begin to end - 1."""

    @abstractmethod
    def furthest(self, begin: int) -> int:
        """The end of the outputs from `begin` that one dispatch can compute."""

    @abstractmethod
    def dispatch(self, begin: int, end: int, piece: Any, record: int | None) -> Dispatch:
        """The dispatch of a piece that writes its records from number `record` on; None: the outputs themselves."""

    @property
    @abstractmethod
    def most_outputs(self) -> int:
        """Outputs that a dispatch can compute in place."""

    @property
    def most_recorded(self) -> int:
        """Outputs that a dispatch can write records of."""
        return self.most_outputs

    @property
    def unit(self) -> int:
        """Ranges of outputs begin at multiples of this where they can."""
        return _GRANULE

    @property
    def source(self) -> TensorDesc:
        return self.desc.inputs[0]

    @property
    def block(self) -> int:
        """Elements of a block of 16 bytes (blocks.glsl)."""
        return 128 // self.source.data_type.bits

    @property
    def record_words(self) -> int:
        """An index and the bits of an element (best.glsl)."""
        return 1 + max(1, self.source.data_type.bits // 32)

    def kernel(self, shader: str, outputs: Sequence[int], **flags: Any) -> Kernel:
        """A shader for the input's elements that writes these of the outputs."""
        data_type = self.source.data_type
        constants = Constants(
            group_size=self.limits.group_size,
            bundle=math.gcd(self.limits.bundle, self.limits.invocations),
            number_kind=NumberKind[data_type.name.rstrip("0123456789")],
            minimum=isinstance(self.desc, ArgminOperatorDesc),
            last=getattr(self.desc, "axis_direction", None) is AxisDirection.DECREASING,
            values=self.values_output in outputs,
            index_words=max(
                (self.desc.outputs[i].data_type.bits // 32 for i in outputs if i != self.values_output), default=0
            ),
            **flags,
        )
        return Kernel(f"{shader}_{data_type.bits}", constants)

    def first_kernel(self, shader: str, record: int | None, **flags: Any) -> Kernel:
        if record is None:
            return self.kernel(shader, range(len(self.desc.outputs)), **flags | {"segmented": False})
        return self.kernel(shader, (), records=True, **flags)

    def source_push(self, segment: int, shift: int = 0) -> dict[str, Any]:
        """The push constants that say which elements of the input are bound, and where; addresses lack `shift`."""
        size = self.limits.segment_elements(self.source)
        first = _wrapped(segment * size - shift)
        return {"source_first": first, "source_count": size, "source_base": _wrapped(-first)}

    def source_binding(self, segment: int) -> Binding:
        return Binding(Role.INPUT, 0, segment, "source_base", self.source.data_type.bits)

    def target_binding(self, begin: int, output: int, base: str, record: int | None) -> Binding:
        """An output that is written in place, or the records."""
        if record is not None:
            return Binding(Role.RECORDS, base=base)
        tensor = self.desc.outputs[output]
        segment = begin // self.limits.segment_elements(tensor)
        return Binding(Role.OUTPUT, output, segment, base, tensor.data_type.bits)

    def target_base(self, begin: int, end: int, output: int, record: int | None) -> int:
        """What to add to the number of an output for its place in the segment, or where the records begin."""
        if record is not None:
            return record * (end - begin) * self.record_words
        size = self.limits.segment_elements(self.desc.outputs[output])
        return _wrapped(-(begin // size * size))


def _wrapped(number: int) -> int:
    """A number as shaders hold it, modulo 2^32."""
    return number % (1 << 32)


def _ranges(first_pass: _FirstPass) -> Iterator[tuple[int, int, bool]]:
    """Ranges (begin, end, in_place) of outputs that are computed together; in place where one piece suffices."""
    limits, outputs = first_pass.limits, first_pass.desc.outputs
    count = outputs[0].element_count
    unit = first_pass.unit
    packed = all(tensor.is_packed for tensor in outputs)
    begin = 0
    while begin < count:
        last = min(count, begin + _MAX_OUTPUTS, first_pass.furthest(begin))
        end = begin
        if packed and begin % unit == 0:
            # As far as the outputs lie in one segment, and what they need is one piece.
            here = min(last, *((begin // n + 1) * n for n in map(limits.segment_elements, outputs)))
            ends = range(begin + unit, here + unit, unit)
            fits = bisect_left(ends, 2, key=lambda e: _records(first_pass.pieces(begin, min(e, here))))
            end = min(begin + fits * unit, here)
            if unit < end - begin and end < count:
                end -= end % unit
        if end > begin:
            yield begin, end, True
        else:
            output_bytes = 4 * first_pass.record_words * _records(first_pass.pieces(begin, last))
            capacity = max(1, min(limits.records_bytes, limits.segment_bytes) // output_bytes)
            capacity = min(capacity, first_pass.most_recorded)
            if packed and begin % unit != 0:
                capacity = min(capacity, unit - begin % unit)
            elif capacity > unit:
                capacity -= (begin + capacity) % unit
            if packed and begin % unit == 0 and begin + unit < last:
                after = first_pass.pieces(begin + unit, min(begin + 2 * unit, last))
                # Often only the outputs here have elements in two segments.
                capacity = min(capacity, unit) if _records(after) < 2 else capacity
            end = min(last, begin + capacity)
            yield begin, end, False
        begin = end


def _records(pieces: Sequence[_Piece]) -> int:
    return sum(piece.records for piece in pieces)


@dataclass(frozen=True)
class _CombinePush(Push):
    size: tuple[int, ...]
    stride: tuple[int, ...]
    rank: int
    part_count: int
    first_output: int
    output_count: int
    records_base: int
    target_first: int
    target_count: int
    target_base: int


def _second_pass(first_pass: _FirstPass, begin: int, end: int, parts: int) -> Iterator[Dispatch]:
    """The dispatches that combine a range's records into every segment of every output that it touches."""
    for output, tensor in enumerate(first_pass.desc.outputs):
        dims = [Dim(size, stride) for size, stride in zip(tensor.sizes, tensor.element_strides, strict=True)]
        size = first_pass.limits.segment_elements(tensor)
        low, high = address_span(dims, begin, end)
        for segment in range(low // size, high // size + 1):
            push = _CombinePush(
                **_dimensions(dims),
                rank=len(dims),
                part_count=parts,
                first_output=begin,
                output_count=end - begin,
                records_base=0,
                target_first=segment * size,
                target_count=size,
                target_base=_wrapped(-segment * size),
            )
            records = Binding(Role.RECORDS, base="records_base")
            target = Binding(Role.OUTPUT, output, segment, "target_base", tensor.data_type.bits)
            yield Dispatch(first_pass.kernel("combine", (output,)), push, (records, target))


def _dimensions(dims: Sequence[Dim]) -> dict[str, Any]:
    """The push constants `size` and `stride`, filled up to the rank that shaders reserve."""
    filled = (*dims, *(Dim(1, 0),) * (MAX_RANK - len(dims)))
    return {"size": tuple(dim.size for dim in filled), "stride": tuple(dim.stride for dim in filled)}


@singledispatch
def _first_pass(desc: OperatorDesc, limits: Limits) -> _FirstPass:
    raise NotImplementedError(f"{type(desc).__name__} has no lowering")


# ARGMAX, ARGMIN


@dataclass(frozen=True)
class _ReducePush(Push):
    size: tuple[int, ...]
    stride: tuple[int, ...]
    kept_rank: int
    reduced_rank: int
    reduced_begin: int
    reduced_end: int
    stretch: int
    first_output: int
    output_count: int
    source_first: int
    source_count: int
    source_base: int
    target_base: int


# Elements that are worth an invocation of their own, where invocations are to spare.
_LEAST_STRETCH = 1024
# Elements that reduce.comp takes in an iteration.
_UNROLLED = 4
# Blocks for which rows.comp does better to look at every element.
_SHORT = 16


@dataclass(frozen=True)
class _Stretches(_Piece):
    """Reduced elements begin to end - 1, `stretch` of them an invocation."""

    begin: int
    end: int
    stretch: int
    whole: bool
    """Whether all of them lie in the segment, for every output."""

    @property
    def records(self) -> int:
        return -(-(self.end - self.begin) // self.stretch)


@dataclass(frozen=True)
class _Reduce(_FirstPass):
    """Chosen from the elements along the reduced axes."""

    desc: ArgOperatorDesc

    @cached_property
    def dims(self) -> tuple[Dim, ...]:
        return tuple(Dim(*pair) for pair in zip(self.source.sizes, self.source.element_strides, strict=True))

    @cached_property
    def kept(self) -> tuple[Dim, ...]:
        return merged(dim for axis, dim in enumerate(self.dims) if axis not in self.desc.axes)

    @cached_property
    def reduced(self) -> tuple[Dim, ...]:
        return merged(self.dims[axis] for axis in self.desc.axes) or (Dim(1, 0),)

    @cached_property
    def count(self) -> int:
        """The elements of an output."""
        return math.prod(dim.size for dim in self.reduced)

    @cached_property
    def shader(self) -> str:
        """The kernel, by what follows what in memory: an output's elements, or those of neighbouring outputs."""
        if len(self.reduced) == 1 and self.count > 1:
            if self.reduced[0].stride == 1 and self.count >= self.block:
                return "lanes" if self.limits.cooperating else "rows"
            if self.kept and self.kept[-1].stride == 1 and self.kept[-1].size >= self.block:
                return "columns"
        return "reduce"

    @cached_property
    def lanes(self) -> int:
        """Invocations that share an output: a power of 2 that divides a group; each has a block at least."""
        most = self.count // self.block if self.shader == "lanes" else 1
        return min(1 << (most.bit_length() - 1), self.limits.group_size & -self.limits.group_size)

    @property
    def unit(self) -> int:
        # columns.comp takes whole rows of outputs, or a part of one.
        return self.row if self.shader == "columns" and self.row <= self.most_outputs else _GRANULE

    @property
    def row(self) -> int:
        """Outputs along the last kept dimension."""
        return self.kept[-1].size if self.kept else 1

    @cached_property
    def most_outputs(self) -> int:
        splits = -(-self.count // self.stretch)
        items = self.limits.invocations // self.lanes * (self.limits.loop_iterations // self.iterations(self.stretch))
        return max(min(items // splits, self.short_outputs), 1)

    @property
    def short_outputs(self) -> int:
        """Outputs that a dispatch computes in a short time; where they have too many elements, these are cut."""
        stride, together = self.reduced[0].stride, self.count
        if len(self.reduced) == 1 and stride > 0:
            together = min(together, self.limits.segment_elements(self.source) // stride + 1)
        return max(self.limits.dispatch_elements // together, _GRANULE)

    @cached_property
    def stretch(self) -> int:
        """The elements that one invocation looks at: a part of an output's where invocations would be idle else."""
        outputs = min(self.desc.output_tensor.element_count, self.short_outputs)
        outputs = outputs * self.lanes // (self.block if self.shader == "columns" else 1)
        stretch = self.count
        if self.count > 2 * _LEAST_STRETCH:
            stretch = max(_LEAST_STRETCH, -(-self.count * outputs // self.limits.invocations))
        while self.iterations(stretch) > self.limits.loop_iterations:
            stretch = -(-stretch // 2)
        # Of whole blocks, so that all stretches are aligned if the first one is.
        return min(self.count, -(-stretch // self.block) * self.block)

    def iterations(self, stretch: int) -> int:
        """Loop iterations of an invocation for one output or one block of columns, at most."""
        run = self.reduced[-1].size
        any_layout = 1 + len(self.kept) + (stretch // run + 2) * (len(self.reduced) + 4) + stretch // _UNROLLED
        own = {
            "rows": 8 + stretch // self.block,
            "lanes": 16 + stretch // (self.block * self.lanes),
            "columns": 8 + stretch,
            "reduce": any_layout,
        }[self.shader]
        # What lies in several segments, and parts of rows of outputs, take reduce.comp (kernel_of).
        alone = self.shader != "columns" and len(self.limits.segments(self.source)) == 1
        return own if alone else max(own, any_layout)

    def furthest(self, begin: int) -> int:
        most = self.most_outputs
        end = begin + (most // self.unit * self.unit or most)
        in_parts = self.shader == "columns" and self.unit != self.row
        return min(end, (begin // self.row + 1) * self.row) if in_parts else end

    def pieces(self, begin: int, end: int) -> Sequence[_Stretches]:
        size, stride = self.limits.segment_elements(self.source), self.reduced[0].stride
        low, high = address_span(self.kept, begin, end)
        segments = segments_touched(low, high, self.reduced, size)
        most = max(self.limits.dispatch_elements // (end - begin) // self.stretch, 1) * self.stretch

        def cut(segment: int, first: int, last: int, whole: bool) -> list[_Stretches]:
            starts = range(first, last, most)
            return [_Stretches(segment, at, min(at + most, last), self.stretch, whole) for at in starts]

        if len(segments) == 1 or len(self.reduced) > 1 or stride == 0:
            return [piece for segment in segments for piece in cut(segment, 0, self.count, len(segments) == 1)]
        # Along one dimension only some of the elements lie in a segment: those between the first that does for any
        # output and the last. Within these are those that do for all outputs.
        pieces: list[_Stretches] = []
        for segment in segments:
            first, last = segment * size, (segment + 1) * size - 1
            some = max(0, -(-(first - high) // stride)), min(self.count, (last - low) // stride + 1)
            every = max(0, -(-(first - low) // stride)), min(self.count, (last - high) // stride + 1)
            if every[1] - every[0] < self.block:
                every = some[1], some[1]
            pieces += cut(segment, some[0], every[0], False)
            pieces += cut(segment, *every, True)
            pieces += cut(segment, every[1], some[1], False)
        return pieces

    def kernel_of(self, begin: int, end: int, piece: _Stretches, record: int | None) -> Kernel:
        shader = self.shader
        whole_rows = begin % self.row == end % self.row == 0
        part_of_a_row = begin // self.row == (end - 1) // self.row and end - begin >= self.block
        if not piece.whole or (shader == "columns" and not whole_rows and not part_of_a_row):
            shader = "reduce"
        along_rows = [piece.begin, piece.end, *(dim.stride for dim in self.kept)]
        steps = {
            "rows": along_rows,
            "lanes": along_rows,
            "columns": [begin % self.row, min(self.row, end - begin), self.reduced[0].stride]
            + [dim.stride for dim in self.kept[:-1]],
            "reduce": [1],
        }[shader]
        return self.first_kernel(
            shader,
            record,
            segmented=not piece.whole,
            aligned=all(step % self.block == 0 for step in steps),
            short=shader == "rows" and self.stretch <= _SHORT * self.block,
            lanes=self.lanes if shader == "lanes" else 1,
            flat=len(self.kept) <= (2 if shader == "columns" else 1),
        )

    def dispatch(self, begin: int, end: int, piece: _Stretches, record: int | None) -> Dispatch:
        push = _ReducePush(
            **_dimensions(self.kept + self.reduced),
            kept_rank=len(self.kept),
            reduced_rank=len(self.reduced),
            reduced_begin=piece.begin,
            reduced_end=piece.end,
            stretch=piece.stretch,
            first_output=begin,
            output_count=end - begin,
            **self.source_push(piece.segment),
            target_base=self.target_base(begin, end, 0, record),
        )
        bindings = self.source_binding(piece.segment), self.target_binding(begin, 0, "target_base", record)
        return Dispatch(self.kernel_of(begin, end, piece, record), push, bindings)


_first_pass.register(ArgOperatorDesc, _Reduce)


# MAX_POOLING


@dataclass(frozen=True)
class _PoolPush(Push):
    plane_stride: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    output_size: tuple[int, ...]
    window_size: tuple[int, ...]
    window_stride: tuple[int, ...]
    window_offset: tuple[int, ...]
    dilation: tuple[int, ...]
    start_padding: tuple[int, ...]
    first_output: int
    output_count: int
    source_first: int
    source_count: int
    source_base: int
    indices_base: int
    values_base: int


@dataclass(frozen=True)
class _WindowsPush(Push):
    plane_stride: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    output_size: tuple[int, ...]
    window_stride: tuple[int, ...]
    start_padding: tuple[int, ...]
    dilation_depth: int
    row_step: int
    fresh: int
    strip: int
    first_output: int
    output_count: int
    source_base: int
    indices_base: int
    values_base: int


# The largest window, along each dimension, that windows.comp is compiled for: it is unrolled.
_SMALL_WINDOW = 7
# Rows of its ring, at most.
_RING = 9


@dataclass(frozen=True)
class _Window(_Piece):
    """The part of every window that begins `offset` steps of the dilation into it and is `size` elements large."""

    offset: tuple[int, ...]
    size: tuple[int, ...]


@dataclass(frozen=True)
class _Pool(_FirstPass):
    """Chosen from the elements of a window."""

    desc: MaxPooling2OperatorDesc

    values_output: ClassVar = 0

    def spatial(self, values: Sequence[int], flat: int) -> tuple[int, ...]:
        """Depth, height and width; where there are two values, the depth is `flat`."""
        return (flat,) * (5 - self.source.rank) + tuple(values)

    @cached_property
    def size(self) -> tuple[int, ...]:
        return self.spatial(self.source.sizes[2:], 1)

    @cached_property
    def stride(self) -> tuple[int, ...]:
        return self.spatial(self.source.element_strides[2:], 0)

    @cached_property
    def output_size(self) -> tuple[int, ...]:
        return self.spatial(self.desc.output_tensor.sizes[2:], 1)

    @cached_property
    def window_size(self) -> tuple[int, ...]:
        return self.spatial(self.desc.window_size, 1)

    @cached_property
    def window_stride(self) -> tuple[int, ...]:
        return self.spatial(self.desc.strides, 1)

    @cached_property
    def dilation(self) -> tuple[int, ...]:
        return self.spatial(self.desc.dilations, 1)

    @cached_property
    def start_padding(self) -> tuple[int, ...]:
        return self.spatial(self.desc.start_padding, 0)

    @cached_property
    def planes(self) -> Dim:
        """The (batch, channel) planes of the input that stand at one stride: all of them, or those of a batch entry."""
        dims = [Dim(*pair) for pair in zip(self.source.sizes[:2], self.source.element_strides[:2], strict=True)]
        together = merged(dims)
        return Dim(dims[0].size * dims[1].size, together[0].stride if together else 0) if len(together) < 2 else dims[1]

    @property
    def row_steps(self) -> tuple[int, ...]:
        """What leads from one row of the input to another: planes, batch entries, depths, heights."""
        return (self.planes.stride, self.source.element_strides[0], *self.stride[:2])

    @cached_property
    def small(self) -> bool:
        """Whether windows.comp can compute the outputs."""
        per_word = 32 // self.source.data_type.bits or 1
        return (
            self.limits.unrolls
            and max(self.window_size) <= _SMALL_WINDOW
            and self.window == self.window_size
            and self.span <= 4 * self.run
            and (self.stride[2] == 1 or self.size[2] == 1)
            and self.output_size[2] % per_word == 0
            and self.output_size[2] <= self.most_recorded
            and all(tensor.is_packed for tensor in self.desc.outputs)
            and self.source.size_in_bytes * 8 // self.source.data_type.bits < 1 << 31
        )

    @cached_property
    def run(self) -> int:
        """Outputs in a row that one invocation of windows.comp computes."""
        return max(4, self.block)

    @cached_property
    def span(self) -> int:
        """Elements of a row that a run touches."""
        return (self.run - 1) * self.window_stride[2] + (self.window_size[2] - 1) * self.dilation[2] + 1

    @cached_property
    def shares_rows(self) -> bool:
        """Whether a window shares more rows with the one below it than it would read in vain."""
        reach = (self.window_size[1] - 1) * self.dilation[1] + 1
        return self.window_stride[1] < min(reach, self.window_size[1] + 1) and reach <= _RING

    @cached_property
    def rows(self) -> int:
        """Rows of the ring: all that a window spans where they are shared, else those that it looks at."""
        return (self.window_size[1] - 1) * (self.dilation[1] if self.shares_rows else 1) + 1

    @cached_property
    def fresh(self) -> int:
        return self.window_stride[1] if self.shares_rows else self.rows

    @cached_property
    def runs(self) -> int:
        """Runs in a row of outputs."""
        return -(-self.output_size[2] // self.run)

    @cached_property
    def strip(self) -> int:
        """Rows of outputs that one invocation goes down: as many as leave work for all."""
        rows = self.desc.output_tensor.element_count // self.output_size[2]
        return max(1, min(self.output_size[1], rows * self.runs // (4 * self.limits.invocations)))

    def segments(self, begin: int, end: int, offset: Sequence[int], size: Sequence[int]) -> tuple[int, ...]:
        """The segments that hold elements of a part of the windows of outputs begin to end - 1."""
        strides = self.source.element_strides
        ranges = coordinate_ranges(self.desc.output_tensor.sizes, begin, end)
        low = sum(first * stride for (first, _), stride in zip(ranges[:2], strides[:2], strict=True))
        high = sum(last * stride for (_, last), stride in zip(ranges[:2], strides[:2], strict=True))
        for i, (first, last) in enumerate(((0, 0),) * (5 - self.source.rank) + ranges[2:]):
            origin, reach = offset[i] * self.dilation[i] - self.start_padding[i], (size[i] - 1) * self.dilation[i]
            least = max(0, first * self.window_stride[i] + origin)
            most = min(self.size[i] - 1, last * self.window_stride[i] + origin + reach)
            if least > most:
                return ()  # all of it is padding
            low += least * self.stride[i]
            high += most * self.stride[i]
        return segments_touched(low, high, (), self.limits.segment_elements(self.source))

    def iterations(self, size: Sequence[int]) -> int:
        """Loop iterations of an invocation of pool.comp for the outputs of a word, at most."""
        depth, height, width = size
        # Twice what the loops have: llvmpipe was seen to count 20 for the 14 of a 2 x 2 window.
        return 4 + (32 // self.source.data_type.bits or 1) * (4 + depth * (4 + height * (6 + 2 * width)))

    @cached_property
    def window(self) -> tuple[int, ...]:
        """What of a window one invocation looks at: all, if that is not too long."""
        size = list(self.window_size)
        for i in range(3):
            while size[i] > 1 and self.iterations(size) > self.limits.loop_iterations:
                size[i] = -(-size[i] // 2)
        return tuple(size)

    @cached_property
    def slab(self) -> int:
        """Outputs of one depth."""
        return self.output_size[1] * self.output_size[2]

    @cached_property
    def most_outputs(self) -> int:
        if not self.small:
            return self.most_recorded
        row_iterations = 2 + self.window_size[0]
        iterations = 2 * (2 + self.rows * row_iterations + self.strip * (1 + self.fresh * row_iterations))
        items = self.limits.invocations * (self.limits.loop_iterations // iterations)
        rows = min(items // self.runs * self.strip, self.short_outputs // self.output_size[2])
        # The last strip of a slab may be shorter.
        slabs = min(items // (self.runs * -(-self.output_size[1] // self.strip)), self.short_outputs // self.slab)
        return slabs * self.slab if slabs else max(rows, 1) * self.output_size[2]

    @cached_property
    def most_recorded(self) -> int:
        words = self.limits.invocations * (self.limits.loop_iterations // self.iterations(self.window))
        return max(min(words * 32 // self.source.data_type.bits, self.short_outputs) // _GRANULE, 1) * _GRANULE

    @property
    def short_outputs(self) -> int:
        """Outputs that a dispatch computes in a short time."""
        return self.limits.dispatch_elements // math.prod(self.window)

    @property
    def unit(self) -> int:
        # windows.comp takes whole slabs, or whole rows of one; what lies around the end of a segment takes pool.comp.
        if self.small:
            return self.slab if self.slab <= min(self.most_outputs, self.most_recorded) else self.output_size[2]
        return _GRANULE

    def furthest(self, begin: int) -> int:
        together = self.planes.size * math.prod(self.output_size)
        if self.small and self.unit < self.slab:
            together = self.slab
        most = self.most_recorded if begin % self.unit else self.most_outputs
        return min(begin + most, (begin // together + 1) * together)

    def pieces(self, begin: int, end: int) -> Sequence[_Window]:
        steps = zip(self.window_size, self.window, strict=True)
        parts = [
            (offset, tuple(map(min, self.window, (n - k for n, k in zip(self.window_size, offset, strict=True)))))
            for offset in itertools.product(*(range(0, size, step) for size, step in steps))
        ]
        return [_Window(segment, *part) for part in parts for segment in self.segments(begin, end, *part)]

    def dispatch(self, begin: int, end: int, piece: _Window, record: int | None) -> Dispatch:
        indices = len(self.desc.outputs) - 1  # without indices their binding holds the values, unused
        plane = begin // math.prod(self.output_size) // self.planes.size * self.planes.size
        batch = plane // self.source.sizes[1] * self.source.element_strides[0]
        source = self.source_push(piece.segment, shift=batch - plane * self.planes.stride)
        push: dict[str, Any] = {
            "plane_stride": self.planes.stride,
            "size": self.size,
            "output_size": self.output_size,
            "window_stride": self.window_stride,
            "start_padding": self.start_padding,
            "first_output": begin,
            "output_count": end - begin,
            "indices_base": self.target_base(begin, end, indices, record),
            "values_base": self.target_base(begin, end, 0, record),
        }
        bindings = (
            self.source_binding(piece.segment),
            self.target_binding(begin, indices, "indices_base", record),
            self.target_binding(begin, 0, "values_base", record),
        )
        if self.small and record is None and begin % self.unit == end % self.unit == 0:
            windows_push = _WindowsPush(
                **push,
                stride=self.stride[:2],
                dilation_depth=self.dilation[0],
                row_step=1 if self.shares_rows else self.dilation[1],
                fresh=self.fresh,
                strip=self.strip,
                source_base=source["source_base"],
            )
            return Dispatch(self.windows_kernel(), windows_push, bindings)
        pool_push = _PoolPush(
            **push,
            **source,
            stride=self.stride,
            window_size=piece.size,
            window_offset=tuple(k * d for k, d in zip(piece.offset, self.dilation, strict=True)),
            dilation=self.dilation,
        )
        return Dispatch(self.pool_kernel(record), pool_push, bindings)

    def windows_kernel(self) -> Kernel:
        steps = [self.run * self.window_stride[2], *self.row_steps]
        aligned = all(step % self.block == 0 for step in steps)
        return self.first_kernel(
            "windows",
            None,
            aligned=aligned,
            window_depth=self.window_size[0],
            window_height=self.window_size[1],
            window_width=self.window_size[2],
            stride_width=self.window_stride[2],
            dilation_width=self.dilation[2],
            rows=self.rows,
            row_step=self.dilation[1] if self.shares_rows else 1,
            phase=-self.start_padding[2] % self.block if aligned else 0,
            whole_runs=self.output_size[2] % self.run == 0,
        )

    def pool_kernel(self, record: int | None) -> Kernel:
        if record is not None:
            # A part of a window may have no element in the input.
            return self.first_kernel("pool_parts", record, segmented=True)
        if self.stride[2] != 1 or self.dilation[2] > 1 or self.window_size[2] < 2 * self.block:
            return self.first_kernel("pool", record)
        # A part of a window that is all of it, as what comes before is padding, begins where the input does.
        steps = [self.window_stride[2], self.start_padding[2], *self.row_steps]
        return self.first_kernel("pool_blocks", record, aligned=all(step % self.block == 0 for step in steps))


_first_pass.register(MaxPooling2OperatorDesc, _Pool)
