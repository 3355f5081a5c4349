"""Random descriptors, valid and invalid, for the properties of the suite and for `make fuzz`.

All of them are made from choices: integers between a low one, which is the simplest choice, and a high one. Hypothesis
makes the choices for the suite, and a plain random generator, fifty times as fast, for `make fuzz`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from inspect import signature
from typing import Any, TypeVar

import numpy as np
from hypothesis import strategies as st

from dmlgpu import AxisDirection, DataType, DescriptorError, OperatorDesc, ReduceFunction, TensorDesc
from dmlgpu.descriptors.tensor import MAX_ELEMENTS, Array
from dmlgpu.lowering.limits import Limits
from dmlgpu.registry import OPERATORS, Operator, with_outputs
from dmlgpu.testing.cases import UINT32
from dmlgpu.testing.fills import Fill, any_bits, distinct, negative, special, special_without_nan, ties

T = TypeVar("T")


class Choices:
    """Choices from a function that returns an integer between a low one and a high one."""

    def __init__(self, integer: Callable[[int, int], int]) -> None:
        self.integer = integer

    def of(self, values: Sequence[T]) -> T:
        """One of these values; the first is the simplest."""
        return values[self.integer(0, len(values) - 1)]

    def chance(self, one_in: int) -> bool:
        return self.integer(0, one_in - 1) == one_in - 1

    def order(self, count: int) -> list[int]:
        """The numbers below `count` in any order."""
        numbers = list(range(count))
        return [numbers.pop(self.integer(0, len(numbers) - 1)) for _ in range(count)]


_integers = cache(st.integers)


def strategy(make: Callable[..., T], *arguments: Any) -> st.SearchStrategy[T]:
    """A strategy of Hypothesis for the results of a function of choices."""

    @st.composite
    def results(draw: st.DrawFn) -> T:
        return make(Choices(lambda low, high: draw(_integers(low, high))), *arguments)

    return results()


# Elements


@dataclass(frozen=True, repr=False)
class Data:
    """A fill of fills.py with other random numbers."""

    fill: Fill
    seed: int

    def __call__(self, dtype: np.dtype[Any], count: int) -> Array:
        return self.fill(dtype, count + self.seed)[self.seed :]

    def __repr__(self) -> str:
        return f"Data({self.fill.__name__}, {self.seed})"


FILLS = (ties, any_bits, distinct, negative, special, special_without_nan)


def data(choices: Choices) -> Data:
    return Data(choices.of(FILLS), choices.integer(0, 99))


# Valid descriptors


def near_limit(choices: Choices) -> int:
    """One of the greatest integers of 32 bits, or of 31 bits."""
    return choices.of((1 << 32, 1 << 32, 1 << 31)) - choices.integer(1, 20)


def layout(choices: Choices, sizes: Sequence[int], output: bool) -> tuple[int, ...] | None:
    """Strides for these sizes: packed, permuted, or with gaps; those of inputs also broadcast, or any small ones."""
    styles = ("packed", "packed", "permuted", "padded")
    style = choices.of(styles if output else (*styles, "broadcast", "any"))
    if style == "packed":
        return None
    if style == "any":
        strides = [choices.integer(0, 9) for _ in sizes]
    else:
        order = list(range(len(sizes))) if style == "padded" else choices.order(len(sizes))
        strides, step = [0] * len(sizes), 1
        for dim in reversed(order):
            strides[dim] = step
            step = step * sizes[dim] + (0 if style == "permuted" else choices.integer(0, 3))
        if style == "broadcast":
            strides[choices.integer(0, len(sizes) - 1)] = 0
    if choices.chance(4):
        # The stride of a single element may be anything.
        strides = [near_limit(choices) if size == 1 else stride for size, stride in zip(sizes, strides, strict=True)]
    return tuple(strides)


def tensor(choices: Choices, data_type: DataType, sizes: Sequence[int], output: bool = False) -> TensorDesc:
    desc = TensorDesc(data_type, tuple(sizes), layout(choices, sizes, output))
    extra = choices.of((None, None, None, 0, 1, 4, 1000))
    if extra is None:
        return desc
    return TensorDesc(data_type, desc.sizes, desc.strides, desc.minimum_size_in_bytes + extra)


# Maximum size of a dimension, for each rank.
LARGEST = (300, 30, 12, 7, 5, 4, 3, 3)


# An operator's input, and further arguments of its descriptor's `of`.
Arguments = tuple[TensorDesc, dict[str, Any]]


def reduction(choices: Choices, data_type: DataType, long: bool) -> Arguments:
    rank = choices.integer(1, 8)
    sizes = [choices.integer(1, LARGEST[rank - 1]) for _ in range(rank)]
    if long and rank < 4 and choices.chance(10):
        # A dimension has more elements than an invocation loads.
        longest = choices.integer(0, rank - 1)
        sizes = [choices.integer(1000, 5000) if dim == longest else min(size, 4) for dim, size in enumerate(sizes)]
    axes = choices.order(rank)[: choices.integer(1, rank)]
    return tensor(choices, data_type, sizes), {"axes": axes}


# Stride, window size, start and end padding, and dilation along one dimension.
Steps = tuple[int, int, int, int, int]
Window = tuple[Steps, ...]


def window(choices: Choices, long: bool) -> Window:
    """A window of two or three dimensions with so little padding that it always has input; its rows may be long."""
    steps = []
    spatial = choices.integer(2, 3)
    for dim in range(spatial):
        size, stride, dilation = choices.integer(1, 4), choices.integer(1, 4), choices.integer(1, 3)
        if long and dim == spatial - 1 and choices.chance(6):
            # Kernels load these rows in vectors.
            size, dilation = choices.integer(8, 40), 1
        most = min(4, (size - 1) * dilation)
        steps.append((stride, size, choices.integer(0, most), choices.integer(0, most), dilation))
    return tuple(steps)


def far(choices: Choices, size: int) -> Steps:
    """A window of this size with numbers near 2^31 and 2^32; few elements are enough for every window to have one."""
    dilation = (near_limit(choices) - 1) // max(1, size - 1)
    # The element of the first window that is in the input, and its index there.
    inside = choices.integer(0, size - 1)
    place = choices.integer(0, 3) if inside else 0
    start = inside * dilation - place
    end = max(0, (size - 1 - inside) * dilation - choices.integer(0, 9))
    style = choices.of(("near", "near", "far", "dilation"))
    if style == "near":
        return choices.integer(1, 4), size, start, end, dilation
    if style == "far":
        return near_limit(choices), size, start, end, dilation
    # The element before that one of the next window is in the input.
    stride = dilation - choices.integer(0, place)
    if inside and start + end + stride < MAX_ELEMENTS - 20 and choices.chance(2):
        end += stride
    return stride, size, start, end, dilation


def holds_input(length: int, begin: int, size: int, dilation: int) -> bool:
    """Whether a window that begins at `begin` has an element of an input of this length."""
    return any(0 <= begin + k * dilation < length for k in range(size))


def pooling(choices: Choices, data_type: DataType, windows: Sequence[Window], long: bool, dilated: bool) -> Arguments:
    steps = choices.of(windows) if windows else window(choices, long)
    steps = tuple(far(choices, step[1]) if choices.chance(5) else step for step in steps)
    if not dilated:
        steps = tuple((s, w, min(start, w - 1), min(end, w - 1), 1) for s, w, start, end, _ in steps)
    sizes = [choices.integer(1, 3), choices.integer(1, 3)]
    output = [*sizes]
    for stride, size, start, end, dilation in steps:
        padding, extent = start + end, 1 + (size - 1) * dilation
        least = max(1, extent - padding)
        length = min(choices.integer(least, least + (11 if len(steps) == 2 else 5)), MAX_ELEMENTS - padding)
        begins = range(-start, length + end - extent + 1, stride)
        while not all(holds_input(length, begin, size, dilation) for begin in begins):
            length += 1
            begins = range(-start, length + end - extent + 1, stride)
        sizes.append(length)
        rest = (length + padding - extent) % stride
        rounds_up = rest and holds_input(length, begins[-1] + stride, size, dilation)
        output.append(len(begins) + (choices.integer(0, 1) if rounds_up else 0))
    names = ("strides", "window_size", "start_padding", "end_padding", "dilations")
    fields = dict(zip(names, zip(*steps, strict=True), strict=True))
    return tensor(choices, data_type, sizes), {"output_sizes": output, **fields}


def unpooling(choices: Choices, data_type: DataType) -> Arguments:
    sizes = [choices.integer(1, 3), choices.integer(1, 3), choices.integer(1, 9), choices.integer(1, 9)]
    return tensor(choices, data_type, sizes), {"output_sizes": (choices.integer(1, 9), choices.integer(1, 9))}


def regions(choices: Choices, data_type: DataType) -> Arguments:
    sizes = [choices.integer(1, 3), choices.integer(1, 3), choices.integer(1, 12), choices.integer(1, 12)]
    # Few regions, which fit any segment.
    rois = tensor(choices, data_type, (1, 1, choices.integer(1, 3), 5))
    size = choices.integer(1, 5), choices.integer(1, 5)
    return tensor(choices, data_type, sizes), {
        "roi_tensor": rois, "pooled_size": size, "spatial_scale": choices.of((1, 0.5, 0.0625, 0.3, 3, 1e-39, 1e30))
    }  # fmt: skip


def lines(choices: Choices, data_type: DataType, long: bool) -> Arguments:
    source, arguments = reduction(choices, data_type, long)
    axis = arguments["axes"][0]
    # Often small, and sometimes all elements.
    k = min(choices.integer(1, choices.of((10, 30, MAX_ELEMENTS))), source.sizes[axis])
    return source, {"axis": axis, "k": k}


def parameters_of_channels(choices: Choices, desc: Any) -> dict[str, TensorDesc | None]:
    """Scales and zero points with any layout, and perhaps fewer elements; a zero point may be absent."""
    parameters: dict[str, TensorDesc | None] = {}
    for field in [*desc.types][1:5]:
        default = getattr(desc, field)
        sizes = choices.of((default.sizes, default.sizes, (1,) * choices.integer(1, 5)))
        parameters[field] = tensor(choices, default.data_type, sizes)
        if "zero" in field and choices.chance(3):
            parameters[field] = None
    return parameters


def operator(
    choices: Choices,
    kind: Operator,
    data_types: Sequence[DataType] = (),
    windows: Sequence[Window] = (),
    long: bool = True,
) -> OperatorDesc:
    """A valid descriptor of an operator.

    Args:
        choices: the source of the descriptor.
        kind: the operator.
        data_types: types to choose from; (): all types of the operator.
        windows: windows to choose from; (): any.
        long: whether axes and rows of windows may be long; with small segments these need thousands of dispatches.
    """
    data_type = choices.of(data_types or kind.data_types)
    if "window_size" in kind.fields:
        source, arguments = pooling(choices, data_type, windows, long, "dilations" in kind.fields)
        if kind.source_field == "input_gradient_tensor":  # the input has an element for each window of the output
            sizes, arguments["output_sizes"] = arguments["output_sizes"], source.sizes
            source = tensor(choices, data_type, sizes)
    elif "axes" in kind.fields:
        source, arguments = reduction(choices, data_type, long)
    elif "axis" in kind.fields:
        source, arguments = lines(choices, data_type, long)
    elif "pooled_size" in kind.fields:
        source, arguments = regions(choices, data_type)
    else:
        source, arguments = unpooling(choices, data_type)
    options = {name: choices.of(values) for name, values in kind.options.items()}
    desc = kind.of(source, **arguments, **options)
    if "input_scale_tensor" in kind.fields:
        desc = replace(desc, **parameters_of_channels(choices, desc))
    return with_outputs(desc, lambda target: tensor(choices, target.data_type, target.sizes, output=True))


def limits(choices: Choices) -> Limits:
    """Limits at or below the minimum of Vulkan, with the mapping of a GPU or of a CPU driver."""
    segment_bytes = choices.of((128 << 20, 128 << 20, 1 << 16, 1 << 16, 8192, 2048, 512, 256))
    return Limits(
        segment_bytes=segment_bytes,
        group_size=choices.of((64, 128, 32, 7, 1)),
        group_count=choices.of((8, 16, 3, 1)),
        partial_bytes=choices.of((1 << 20, 512, 64)),
        invocation_loads=choices.of((4096, 1000, 400)),
        dispatch_elements=choices.of((1 << 24, 1000)),
        dispatch_count=1 << 20,
        simd_width=choices.of((8, 4, 1024)),
        unrolls=choices.chance(2),
        loads_vectors=choices.chance(2),
        cooperating=choices.chance(2),
        gathers=choices.chance(2),
    )


# Descriptors that may be invalid


@dataclass(frozen=True, repr=False)
class Attempt:
    """A call that may be invalid; its `repr` is Python."""

    function: Callable[..., Any]
    arguments: dict[str, Any]

    def outcome(self) -> Any:
        """The result of the call, or None after a DescriptorError that names a descriptor or function and a field."""
        try:
            return self.function(**self.arguments)
        except DescriptorError as error:
            message = str(error)
        assert MESSAGE.match(message), message
        return None

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.function.__name__}({arguments})"


MESSAGE = re.compile(r"(TensorDesc|\w+OperatorDesc|[a-z_]+)\.[a-z_]+(\.[a-z_]+)?(\[\d+\])?: \S")
ODD = (
    *(0, 1, 2, -1, 2**31, 2**32 - 1, 2**32, 2**64, -(2**70), 10**5000, -(10**5000)),
    *(None, True, False, ..., int, 1.0, 1.5, float("nan"), float("inf"), 1j, "1", "FLOAT32", b"", b"\1"),
    *((), (0,), (1, 1), (1, -1), (2, 2.5), (2**32, 1), (10**5000,), [[1]], [(1, 1)], ["1"], [None], (True, 1)),
    *({}, {1: 2}, {1, 2}, range(3), range(2**40), range(10**30), slice(3)),
    *(np.int64(1), np.uint8(2), np.float32(1), np.bool_(True), np.str_("1"), np.datetime64(1, "s")),
    *(np.array(1), np.array([1, 1]), np.array([1.0]), np.array([[1, 1]]), np.array([]), np.array([None, "1"])),
    *(DataType.UINT8, AxisDirection.DECREASING, ReduceFunction.SUM, TensorDesc(UINT32, (1,))),
)
ODD_ENTRIES = (2**31, 2**32 - 1, 2**32, 0.5, None, "1", True, 10**5000, np.int32(2), np.float64(1), (1,), np.array(1))
TYPES = [data_type for data_type in DataType if data_type.bits]


def entries(choices: Choices) -> Any:
    """A list or ndarray of small numbers, sometimes with an odd entry."""
    numbers = [choices.integer(0, 5) for _ in range(choices.integer(0, 9))]
    if numbers and choices.chance(3):
        numbers[choices.integer(0, len(numbers) - 1)] = choices.of((*ODD_ENTRIES, -1, 9))
        return numbers
    return np.array(numbers, np.int64) if choices.chance(4) else numbers


def odd(choices: Choices) -> Any:
    return choices.of(ODD) if choices.chance(2) else entries(choices)


def small_sizes(choices: Choices, least: int = 1) -> tuple[int, ...]:
    return tuple(choices.integer(least, 5) for _ in range(choices.integer(1, 6)))


def tensor_attempt(choices: Choices) -> Attempt:
    arguments = {
        "data_type": choices.of((*DataType, *ODD)),
        "sizes": small_sizes(choices) if choices.chance(2) else odd(choices),
    }
    if choices.chance(2):
        arguments["strides"] = odd(choices)
    if choices.chance(2):
        arguments["total_tensor_size_in_bytes"] = choices.of((*ODD, 4, 20, 400, 2**63, 2**65))
    return Attempt(TensorDesc, arguments)


def operator_attempt(choices: Choices, kind: Operator) -> Attempt:
    """The call of a descriptor's type with valid fields, one or two of which are replaced by anything."""
    arguments = dict(vars(operator(choices, kind)))
    for _ in range(choices.integer(1, 2)):
        field = choices.of(sorted(arguments))
        if "tensor" in field and choices.chance(2):
            arguments[field] = tensor(choices, choices.of(TYPES), small_sizes(choices))
        else:
            arguments[field] = odd(choices)
    return Attempt(kind.desc, arguments)


def function_of(choices: Choices, family: str) -> Callable[..., Any]:
    """A function that computes an operator with this field."""
    return choices.of([kind.function for kind in OPERATORS if kind.function and family in kind.fields])


def parameters(function: Callable[..., Any]) -> list[str]:
    """The parameters of a function, except the inputs, the device, and where results go."""
    return [name for name in signature(function).parameters if name not in ("x", "gradient", "device", "out")]


def reduction_attempt(choices: Choices) -> Attempt:
    """A call with an empty axis, so that valid arguments compute nothing."""
    function = function_of(choices, "axes")
    sizes = [*small_sizes(choices, least=0), 0]
    arguments = {"x": np.zeros(sizes, choices.of(("f4", "i1", "f8", "?", "S1", "O", "c8", "m8[s]")))}
    for name in parameters(function):
        if name == "function":
            arguments[name] = choices.of((*ReduceFunction, *ReduceFunction, *ODD))
        elif choices.chance(2 if name == "axis" else 4):
            arguments[name] = choices.of((*DataType, *ODD)) if name == "dtype" else odd(choices)
    return Attempt(function, arguments)


def pooling_attempt(choices: Choices) -> Attempt:
    function = function_of(choices, "window_size")
    sizes = small_sizes(choices)
    arguments: dict[str, Any] = {"window_size": choices.of((1, (1,) * max(0, len(sizes) - 2)))}
    names = parameters(function)
    if "input_sizes" in names:
        arguments["input_sizes"] = sizes
    for _ in range(choices.integer(0, 3)):
        arguments[choices.of(names)] = odd(choices)
    inputs = [name for name in signature(function).parameters if name in ("x", "gradient")]
    return Attempt(function, dict.fromkeys(inputs, np.zeros((0, *sizes[1:]), np.float32)) | arguments)


def attempt(choices: Choices) -> Attempt:
    """Any call that may be invalid."""
    kind = choices.of((*OPERATORS, tensor_attempt, reduction_attempt, pooling_attempt))
    return operator_attempt(choices, kind) if isinstance(kind, Operator) else kind(choices)
