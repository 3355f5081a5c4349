"""Index arithmetic of plans: merged dimensions, and the memory that a range of outputs reads or writes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Dim:
    """A dimension: its number of elements, and their stride."""

    size: int
    stride: int


def power_of_2(number: int) -> int:
    """The greatest power of 2 up to a number; 1 for numbers below 1."""
    return 1 << max(number, 1).bit_length() - 1


def even_part(count: int, most: int) -> int:
    """The size of the fewest equal parts of `count` with at most `most` each; at least 1.

    The last part may be smaller.
    """
    parts = -(-count // max(1, most))
    return -(-count // parts)


def merged(dims: Iterable[Dim]) -> tuple[Dim, ...]:
    """The fewest dimensions with the same addresses in the same row-major order."""
    result: list[Dim] = []
    for dim in dims:
        if dim.size == 1:
            continue
        if result and result[-1].stride == dim.stride * dim.size:
            result[-1] = Dim(result[-1].size * dim.size, dim.stride)
        else:
            result.append(dim)
    return tuple(result)


def ascend(dims: Sequence[Dim]) -> bool:
    """Whether addresses ascend with the row-major flat index."""
    return all(outer.stride >= inner.size * inner.stride for outer, inner in pairwise(dims))


def coordinate_ranges(sizes: Sequence[int], begin: int, end: int) -> tuple[tuple[int, int], ...]:
    """The lowest and highest coordinate along each dimension, of the row-major flat indices begin to end - 1."""
    ranges: list[tuple[int, int]] = []
    low, high = begin, end - 1
    equal = True  # whether both ends have the same coordinates so far
    for i, size in enumerate(sizes):
        weight = math.prod(sizes[i + 1 :])
        first, low = divmod(low, weight)
        last, high = divmod(high, weight)
        ranges.append((first, last) if equal else (0, size - 1))
        equal = equal and first == last
    return tuple(ranges)


def segments_touched(low: int, high: int, dims: Sequence[Dim], size: int) -> tuple[int, ...]:
    """The segments, of `size` elements each, of the addresses low to high, plus all offsets along `dims`."""
    far = max(dims, key=lambda dim: dim.stride, default=Dim(1, 0))
    if far.stride > size:
        near = [dim for dim in dims if dim is not far]
        offsets = range(0, far.size * far.stride, far.stride)
        segments = {s for offset in offsets for s in segments_touched(low + offset, high + offset, near, size)}
        return tuple(sorted(segments))
    # No stride exceeds a segment, so no segment between the first and the last is skipped.
    high += sum((dim.size - 1) * dim.stride for dim in dims)
    return tuple(range(low // size, high // size + 1))


def runs_of_segments(
    first: int, dims: Sequence[Dim], reach: int, size: int, begin: int = 0
) -> Iterator[tuple[range, int | None]]:
    """Divides rows into runs in one segment of `size` elements each; a row in several segments is a separate run.

    Args:
        first: the address of the first row.
        dims: the dimensions of the rows, the outermost first.
        reach: the last address of a row minus its first.
        size: elements of a segment.
        begin: the number of the first row.

    Yields:
        The numbers of the rows, in row-major order, and their segment; None for a row in several.
    """
    last = first + reach + sum((dim.size - 1) * dim.stride for dim in dims)
    if first // size == last // size:
        yield range(begin, begin + math.prod(dim.size for dim in dims)), first // size
        return
    if not dims:
        yield range(begin, begin + 1), None
        return
    (outer, *inner), i = dims, 0
    rows, inner_reach = math.prod(dim.size for dim in inner), reach + sum((dim.size - 1) * dim.stride for dim in inner)
    while i < outer.size:
        address = first + i * outer.stride
        remaining = (address // size + 1) * size - 1 - address - inner_reach  # elements after these rows in the segment
        if remaining < 0:
            yield from runs_of_segments(address, inner, reach, size, begin + i * rows)
            i += 1
            continue
        # The stride is not 0: such rows, if they are in one segment, are one run, yielded above.
        end = min(outer.size, i + remaining // outer.stride + 1)
        yield range(begin + i * rows, begin + end * rows), address // size
        i = end


def address_span(dims: Sequence[Dim], begin: int, end: int) -> tuple[int, int]:
    """The lowest and highest address of the flat indices begin to end - 1."""
    ranges = coordinate_ranges([dim.size for dim in dims], begin, end)
    return (
        sum(first * dim.stride for (first, _), dim in zip(ranges, dims, strict=True)),
        sum(last * dim.stride for (_, last), dim in zip(ranges, dims, strict=True)),
    )
