"""How every operator runs: from a descriptor and a device's limits to a plan.

All operators here are one selection: of the elements that belong to an output, the one with the highest order key.
They differ in which elements those are. A first pass says that and writes the outputs in place; where it cannot,
because the elements lie in several segments or the outputs are strided, it writes records and a second pass,
the same for all, combines them into the outputs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import singledispatch

from dmlgpu.descriptors.operator import OperatorDesc
from dmlgpu.descriptors.pooling import MaxPooling2OperatorDesc
from dmlgpu.descriptors.reduction import ArgOperatorDesc
from dmlgpu.lowering.first_pass import FirstPass, Piece, dimensions, wrapped
from dmlgpu.lowering.geometry import Dim, address_span
from dmlgpu.lowering.limits import Limits
from dmlgpu.lowering.plan import Binding, Dispatch, Plan, Push, Role
from dmlgpu.lowering.pooling import Pooling
from dmlgpu.lowering.reduction import Reduction

# With more outputs in a dispatch a shader's counter could pass 2^32.
_MAX_OUTPUTS = 1 << 31


# Which kernel computes what, and why; times are those of lavapipe (Mesa 22.3) with 2 cores and float32, as medians on
# a machine at rest. llvmpipe loads every lane's words one by one, whatever their addresses, about 40 instructions for
# 4 words and 24 for one: its kernels are as fast as they load blocks and load none twice. The choices themselves are
# `Reduction.shader`, `Pooling.small` and `Pooling.pool_kernel`.
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


@singledispatch
def _first_pass(desc: OperatorDesc, limits: Limits) -> FirstPass:
    raise NotImplementedError(f"{type(desc).__name__} has no lowering")


_first_pass.register(ArgOperatorDesc, Reduction)
_first_pass.register(MaxPooling2OperatorDesc, Pooling)


def _ranges(first_pass: FirstPass) -> Iterator[tuple[int, int, bool]]:
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


def _records(pieces: Sequence[Piece]) -> int:
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


def _second_pass(first_pass: FirstPass, begin: int, end: int, parts: int) -> Iterator[Dispatch]:
    """The dispatches that combine a range's records into every segment of every output that it touches."""
    for output, tensor in enumerate(first_pass.desc.outputs):
        dims = [Dim(size, stride) for size, stride in zip(tensor.sizes, tensor.element_strides, strict=True)]
        size = first_pass.limits.segment_elements(tensor)
        low, high = address_span(dims, begin, end)
        for segment in range(low // size, high // size + 1):
            push = _CombinePush(
                **dimensions(dims),
                rank=len(dims),
                part_count=parts,
                first_output=begin,
                output_count=end - begin,
                records_base=0,
                target_first=segment * size,
                target_count=size,
                target_base=wrapped(-segment * size),
            )
            records = Binding(Role.RECORDS, base="records_base")
            target = Binding(Role.OUTPUT, output, segment, "target_base", tensor.data_type.bits)
            yield Dispatch(first_pass.kernel("combine", (output,)), push, (records, target))
