"""Random descriptors of tensors of up to 2^32 - 1 elements, and limits of devices, for plans alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dmlgpu import DescriptorError, OperatorDesc, TensorDesc
from dmlgpu.descriptors.tensor import MAX_ELEMENTS
from dmlgpu.lowering.limits import Limits
from dmlgpu.registry import OPERATORS, Operator
from tests.fuzz.descriptors import Choices

# Sizes near the widths of vectors, threads and loops, and far larger ones.
SIZES = (1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 451, 1000, 3000, 4096, 65536, 99999, 1 << 20)
CORES = (1, 2, 3, 4, 7, 16, 64, 256)


def limits(choices: Choices) -> Limits:
    """Limits of a CPU with some cores, or of a GPU; segments of Vulkan's minimum, or larger."""
    segment_bytes = choices.of((1 << 27, 1 << 27, 1 << 28, 1 << 30, (1 << 32) - 256))
    if choices.chance(8):
        return Limits(segment_bytes, 64, 16, simd_width=1024, cooperating=True, least_loads=16)
    unrolls, simd_width = not choices.chance(8), choices.of((8, 8, 4))
    return Limits(segment_bytes, 64, 4 * choices.of(CORES), simd_width=simd_width, unrolls=unrolls)


def sizes(choices: Choices, rank: int) -> list[int]:
    """Sizes of at most MAX_ELEMENTS elements."""
    left, shape = min(MAX_ELEMENTS, 1 << choices.integer(6, 32)), []
    for _ in range(rank):
        shape.append(min(choices.of(SIZES), left))
        left //= shape[-1]
    shape[-1] *= choices.of((1, left))
    return [shape[i] for i in choices.order(rank)]


def strides(choices: Choices, shape: Sequence[int]) -> tuple[int, ...] | None:
    """Strides of a transposed or broadcast view; None: packed."""
    if not choices.chance(3):
        return None
    steps, step = [0] * len(shape), 1
    for dim in choices.order(len(shape)):
        steps[dim] = step
        step *= shape[dim]
    if choices.chance(4):
        steps[choices.integer(0, len(shape) - 1)] = 0
    return tuple(steps)


def reduction(choices: Choices, kind: Operator) -> OperatorDesc:
    rank = choices.integer(1, 6)
    shape, options = sizes(choices, rank), {name: choices.of(values) for name, values in kind.options.items()}
    source = TensorDesc(choices.of(kind.data_types), tuple(shape), strides(choices, shape))
    return kind.of(source, axes=choices.order(rank)[: choices.integer(1, rank)], **options)


def pooling(choices: Choices, kind: Operator) -> OperatorDesc:
    """A pooling with any windows, padding, strides and dilations; some last windows extend beyond the end."""
    options = {name: choices.of(values) for name, values in kind.options.items()}
    shape = [min(n, 1 << choices.of((10, 14, 17))) for n in sizes(choices, choices.integer(2, 3))]
    window = [min(n, choices.of((1, 2, 3, 4, 7, 8, 10, 30, 101, 1000, n, n, n // 2 + 1))) for n in shape]
    fields = {
        "window_size": window,
        "strides": [choices.of((1, 1, 2, 3, w)) for w in window],
        "start_padding": [choices.of((0, 0, w // 2, w - 1)) for w in window],
        "end_padding": [choices.of((0, 0, w // 2)) for w in window],
        "dilations": [choices.of((1, 1, 2, 3)) if "dilations" in kind.fields else 1 for _ in window],
    }
    steps = list(zip(shape, *fields.values(), strict=True))
    rooms = [n + start + end - (w - 1) * dilation - 1 for n, w, _, start, end, dilation in steps]
    rounds_up = choices.chance(4)
    counts = [
        room // stride + 1 + (rounds_up and room % stride > 0)
        for room, (_, _, stride, *_) in zip(rooms, steps, strict=True)
    ]
    planes = [choices.of((1, 1, 2, 8, 33)), choices.of((1, 1, 3, 8, 64))]
    arguments = {"output_sizes": (*planes, *counts), **fields}
    if kind.source_field == "input_gradient_tensor":
        shape, arguments["output_sizes"] = counts, (*planes, *shape)
    return kind.of(TensorDesc(choices.of(kind.data_types), (*planes, *shape)), **arguments, **options)


def operator(choices: Choices) -> OperatorDesc:
    """A valid descriptor that loads less than 2^40 elements, approximately."""
    while True:
        kind = choices.of([operator for operator in OPERATORS if operator.fields & {"axes", "window_size"}])
        try:
            desc = (pooling if "window_size" in kind.fields else reduction)(choices, kind)
        except DescriptorError:
            continue
        window = math.prod(getattr(desc, "window_size", (1,)))
        if window * max(tensor.element_count for tensor in (*desc.inputs, *desc.outputs)) < 1 << 40:
            return desc
