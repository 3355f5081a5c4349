"""Problems: computations, in terms that operators share.

problem  =  domain       which elements of the source an output reduces
          x accumulator  how they combine
          x outputs      which results are written: values, indices
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, singledispatch
from typing import Any, Self

from dmlgpu.descriptors.cumulative import CumulativeOperatorDesc, CumulativeProductOperatorDesc
from dmlgpu.descriptors.dtypes import DataType
from dmlgpu.descriptors.operator import ExecutionFlags, OperatorDesc
from dmlgpu.descriptors.pooling import (
    AveragePooling1OperatorDesc,
    AveragePoolingGradOperatorDesc,
    LpPooling1OperatorDesc,
    MaxPooling2OperatorDesc,
    MaxPoolingGradOperatorDesc,
    MaxUnpoolingOperatorDesc,
    QuantizedLinearAveragePoolingOperatorDesc,
)
from dmlgpu.descriptors.reduction import (
    ArgminOperatorDesc,
    ArgOperatorDesc,
    AxisDirection,
    ExactSquaresOperatorDesc,
    ExactSumOperatorDesc,
    ExtremumOperatorDesc,
    ReduceFunction,
    ReduceOperatorDesc,
    ShortSumOperatorDesc,
)
from dmlgpu.descriptors.roi_pooling import RoiPoolingOperatorDesc
from dmlgpu.descriptors.tensor import MAX_ELEMENTS, TensorDesc
from dmlgpu.descriptors.top_k import TopK1OperatorDesc
from dmlgpu.descriptors.window import Window
from dmlgpu.errors import DescriptorError
from dmlgpu.lowering.accumulators import (
    Accumulator,
    CumulativeSum,
    ExactSquares,
    ExactSum,
    Integer,
    Last,
    Product,
    Selection,
    Sum,
    SumResult,
    accumulator_of,
)
from dmlgpu.lowering.geometry import Dim, merged


@dataclass(frozen=True)
class Axes:
    """Each output reduces the elements along some axes. Dimensions are merged if possible, the outermost first."""

    kept: tuple[Dim, ...]
    reduced: tuple[Dim, ...]
    index_step: int = 0
    """Distance from the first index of an output to that of the next. 0: the indices of every output count from 0."""
    are_windows: bool = False
    """Whether the elements of an output are a window of a pooling."""

    @cached_property
    def element_count(self) -> int:
        """Elements of an output."""
        return math.prod(dim.size for dim in self.reduced)

    @classmethod
    def of(cls, source: TensorDesc, axes: Sequence[int], *, ordered: bool = True) -> Axes:
        """The axes of a tensor as merged dimensions; at least one is reduced, possibly of size 1.

        `ordered`: whether the order of an output's elements matters. If not, they are loaded in memory order.
        """
        dims = [Dim(*pair) for pair in zip(source.sizes, source.element_strides, strict=True)]
        kept = merged(dim for axis, dim in enumerate(dims) if axis not in axes)
        reduced = [dims[axis] for axis in axes]
        if not ordered:
            # Dimensions of stride 0 are the outermost, because the innermost one should be contiguous.
            reduced.sort(key=lambda dim: (dim.stride > 0, -dim.stride))
        return cls(kept, merged(reduced) or (Dim(1, 0),))


# Kernels over axes compute windows of at least 8 vectors of 16 bytes as rows.
_LONG_BITS = 8 * 128


@dataclass(frozen=True)
class _OverWindows:
    """Windows along depth, height and width; a 4-D tensor has depth 1."""

    along: tuple[Window, ...]
    """The windows along each of these dimensions."""
    stride: tuple[int, ...]
    """Strides of the source along these dimensions."""
    include_padding: bool
    """Whether the padding counts in an average."""

    @classmethod
    def of(cls, source: TensorDesc, along: tuple[Window, ...], *, include_padding: bool = False) -> Self:
        """The windows of a pooling along the spatial dimensions; the source has N and C before these."""
        added = 3 - len(along)
        stride = (0,) * added + source.element_strides[2:]
        return cls((Window(1, 1),) * added + along, stride, include_padding)

    @cached_property
    def fields(self) -> dict[str, tuple[int, ...]]:
        """Entries for the three dimensions, by name: the fields of `Window`, and what counts in an average."""
        names = *Window._fields, "reach", "counted_begin", "counted_end"
        rows = [(*window, window.reach, *window.counted(self.include_padding)) for window in self.along]
        return dict(zip(names, zip(*rows, strict=True), strict=True))

    @property
    def counted(self) -> dict[str, Any]:
        """The push constants for the range whose elements an average counts."""
        counts_padding = self.fields["counted_begin"] != self.fields["start_padding"]
        return {"counts_padding": counts_padding, "counted_end": self.fields["counted_end"]}


@dataclass(frozen=True)
class Windows(_OverWindows):
    """Each output reduces the elements of a window."""

    def along_axes(self, source: TensorDesc) -> Axes | None:
        """These windows as axes; None if that is impossible, or slower because windows are small.

        It is possible if the elements of each window are contiguous in memory, and in no other window.
        """
        elements = math.prod([window.window_size for window in self.along])
        if elements * source.data_type.bits < _LONG_BITS:
            return None
        if any(window.overhang or window.start_padding for window in self.along):
            return None

        def dims(strides: Sequence[int]) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
            """The merged dimensions of the outputs, and of a window."""
            spatial = [*zip(self.along, strides[2:], strict=True)]
            outputs = [Dim(window.output_size, window.stride * stride) for window, stride in spatial]
            reduced = merged(Dim(window.window_size, window.dilation * stride) for window, stride in spatial)
            return merged([*map(Dim, source.sizes[:2], strides[:2]), *outputs]), reduced

        sizes = (*source.sizes[:2], *[window.size for window in self.along])
        # The test is the same for addresses and for indices, which are the addresses in a packed tensor.
        kept, reduced = dims((*source.element_strides[:2], *self.stride))
        kept_indices, reduced_indices = dims([math.prod(sizes[i + 1 :]) for i in range(len(sizes))])
        contiguous = (Dim(elements, 1),)
        disjoint = len(kept_indices) < 2 and all(dim.stride >= elements for dim in kept_indices)
        if not (reduced == reduced_indices == contiguous and disjoint):
            return None
        return Axes(kept, reduced, sum(dim.stride for dim in kept_indices), are_windows=True)


@dataclass(frozen=True)
class CoveringWindows(_OverWindows):
    """Each output is an element of the pooled input, and reduces the windows that cover it, one source element each."""


@dataclass(frozen=True)
class Scattered:
    """A second source holds indices: each output reduces the elements i of the first with indices[i] == output."""


@dataclass(frozen=True)
class Regions:
    """A second source holds regions of the first, in rows: each output reduces the elements of a region's bin."""

    pooled_size: tuple[int, int]
    """Bins of a region along height and width."""
    scale: float
    """Factor of the coordinates of regions' corners."""


@dataclass(frozen=True)
class Lines:
    """The outputs of a line are its first k elements in order. Lines are numbered outer * inner.size + inner."""

    outer: Dim
    inner: Dim
    element: Dim
    """The dimension along a line."""
    k: int
    increasing: bool
    """Whether the least elements come first, not the greatest; NaN is greater than all numbers."""
    inner_outputs: int
    """Number of lines that are adjacent in the outputs."""

    @property
    def count(self) -> int:
        """Number of lines."""
        return self.outer.size * self.inner.size


@dataclass(frozen=True)
class Requantized:
    """Each output is the average of a window of quantized elements, whose sum is in the source.

    The other sources are the scale and the zero point of the input, then those of the output.
    """

    windows: Windows
    channels: int
    """Number of scales and zero points of each tensor; 1: all channels share them."""
    has_zero_points: tuple[bool, bool]
    """Whether the input, and the output, have zero points; if not, these are 0."""


@dataclass(frozen=True)
class Prefixes:
    """Each output combines the elements of its line up to its position.

    Lines have an outer and an inner dimension, and one for their elements, with strides in source and output.
    """

    source: tuple[Dim, ...]
    target: tuple[Dim, ...]
    descending: bool
    """Whether a line is scanned from its last element on."""
    exclusive: bool
    """Whether outputs exclude the element at their position."""


class Role(enum.Enum):
    """The role of a tensor, or of memory, in an operator."""

    INPUT = enum.auto()
    OUTPUT = enum.auto()
    TEMPORARY = enum.auto()
    """A tensor that one dispatch writes and a later one reads, for the same problem or another."""
    PARTIALS = enum.auto()
    """Partial results, which a first pass writes and combine.comp combines."""


@dataclass(frozen=True)
class Source:
    """A tensor that is read, with its number among those of its role."""

    tensor: TensorDesc
    role: Role = Role.INPUT
    number: int = 0
    segment_size: int = MAX_ELEMENTS
    """Elements of a segment of its memory; the last one may be smaller."""

    @property
    def segment_count(self) -> int:
        """Number of its segments."""
        return -(-self.tensor.size_in_bytes * 8 // self.tensor.data_type.bits // self.segment_size)


class Result(enum.Enum):
    """The contents of an output tensor."""

    VALUE = enum.auto()
    INDEX = enum.auto()
    """An index of 32 or 64 bits, or a sum of short integers: neither has the width of the elements."""
    WORD = enum.auto()
    """A word of the state of an exact sum, as stored: output number i has word i."""


@dataclass(frozen=True)
class OutputTensor:
    """A tensor that is written, and its contents, with its number among those of its role."""

    tensor: TensorDesc
    result: Result
    role: Role = Role.OUTPUT
    number: int = 0
    segment_size: int = MAX_ELEMENTS
    """Elements of a segment of its memory; the last one may be smaller."""


@dataclass(frozen=True)
class Problem:
    """A computation on the first source, with arguments in the others. All outputs have the same sizes."""

    sources: tuple[Source, ...]
    domain: Axes | Windows | CoveringWindows | Scattered | Lines | Prefixes | Regions | Requantized
    accumulator: Accumulator
    outputs: tuple[OutputTensor, ...]

    def __post_init__(self) -> None:
        # Checked here, because no kernel does.
        other_selection = isinstance(self.accumulator, Selection) and self.accumulator != Selection()
        if isinstance(self.domain, Windows) and other_selection:
            raise NotImplementedError("kernels over windows look for the first maximum")
        results = [output.result for output in self.outputs]
        together = [Result.VALUE], [Result.VALUE, Result.INDEX], [Result.INDEX]
        if isinstance(self.domain, (Axes, Windows)) and results not in together and set(results) != {Result.WORD}:
            raise NotImplementedError("kernels over axes and windows write the value, then the index, or words")

    def in_memory(self, segment_size: Callable[[Source | OutputTensor], int]) -> Problem:
        """The problem, whose tensors have the segment sizes that `segment_size` returns."""
        sources = tuple(replace(source, segment_size=segment_size(source)) for source in self.sources)
        outputs = tuple(replace(output, segment_size=segment_size(output)) for output in self.outputs)
        return replace(self, sources=sources, outputs=outputs)

    @cached_property
    def source(self) -> TensorDesc:
        """The tensor whose elements are reduced."""
        return self.sources[0].tensor

    @cached_property
    def has_packed_outputs(self) -> bool:
        """Whether the elements of each output tensor are contiguous."""
        return all(output.tensor.is_packed for output in self.outputs)

    @cached_property
    def output_count(self) -> int:
        """Elements of each output tensor."""
        return self.outputs[0].tensor.element_count


def sums_can_be_exact(desc: OperatorDesc) -> bool:
    """Whether an operator adds floats, and supports EXACT_SUMS."""
    problems = problems_with(desc, ExecutionFlags.NONE)
    try:
        return problems_with(desc, ExecutionFlags.EXACT_SUMS) != problems
    except DescriptorError:
        return False


def problems_with(desc: OperatorDesc, flags: ExecutionFlags) -> tuple[Problem, ...]:
    """The problems of an operator, in the order in which they are computed, with the accumulators for these flags.

    Raises:
        DescriptorError: the flags ask for exact sums, which the operator does not support.
    """
    problems = tuple(_with_copies(problems_of(desc.canonical())))
    if ExecutionFlags.EXACT_SUMS not in flags:
        return problems
    adds = isinstance(desc.canonical(), (ReduceOperatorDesc, AveragePooling1OperatorDesc, CumulativeOperatorDesc))
    exact = []
    for problem in problems:
        accumulator = problem.accumulator.exact
        if accumulator is None or (accumulator != problem.accumulator and not adds):
            what = f".function: {desc.function.name}" if isinstance(desc, ReduceOperatorDesc) else " of floats"
            raise DescriptorError(
                f"{type(desc).__name__}{what} is not supported with EXACT_SUMS; allowed are SUM, AVERAGE, L1, L2 "
                "and SUM_SQUARE of REDUCE, average pooling, cumulative sums, and operators that round nothing"
            )
        exact.append(replace(problem, accumulator=accumulator))
    return tuple(exact)


def planes_of(source: TensorDesc) -> Dim:
    """The planes: those of all batches if one stride leads from plane to plane, otherwise those of one batch."""
    batches, channels = map(Dim, source.sizes[:2], source.element_strides[:2])
    planes = merged((batches, channels))
    if len(planes) > 1:
        return channels
    return planes[0] if planes else Dim(1, 0)


# If planes have several strides, kernels over windows have a dispatch per batch entry. With more entries than this, the
# input is copied first.
_MOST_BATCHES = 256


def _with_copies(problems: Sequence[Problem]) -> Iterator[Problem]:
    """The problems, after copies of inputs whose (batch, channel) planes have several strides."""
    number = sum(output.role is Role.TEMPORARY for problem in problems for output in problem.outputs)
    for problem in problems:
        source, domain = problem.source, problem.domain
        if not isinstance(domain, (Windows, CoveringWindows)) or not _needs_copy(source):
            yield problem
            continue
        packed = TensorDesc(source.data_type, source.sizes)
        yield copy_of(problem.sources[0], packed, number)
        stride = (*domain.stride[: 5 - source.rank], *packed.element_strides[2:])
        sources = Source(packed, Role.TEMPORARY, number), *problem.sources[1:]
        yield replace(problem, sources=sources, domain=replace(domain, stride=stride))
        number += 1


def _needs_copy(source: TensorDesc) -> bool:
    """Whether planes have several strides, and there are too many batch entries for a dispatch each."""
    return source.sizes[0] > _MOST_BATCHES and planes_of(source).size < math.prod(source.sizes[:2])


def copy_of(source: Source, packed: TensorDesc, number: int) -> Problem:
    """A copy to temporary `number`: a maximum over no axes."""
    outputs = (OutputTensor(packed, Result.VALUE, Role.TEMPORARY, number),)
    return Problem((source,), Axes.of(source.tensor, ()), Selection(), outputs)


@singledispatch
def problems_of(desc: OperatorDesc) -> tuple[Problem, ...]:
    """The problems of an operator, by its canonical descriptor, in the order in which they are computed."""
    raise NotImplementedError(f"{type(desc).__name__} has no lowering")


@problems_of.register
def _arg(desc: ArgOperatorDesc) -> tuple[Problem, ...]:
    selection = Selection(
        minimum=isinstance(desc, ArgminOperatorDesc),
        last=desc.axis_direction is AxisDirection.DECREASING,
    )
    return _over_axes(desc, selection, Result.INDEX)


# If the last axes have larger strides than the first ones, the last ones are reduced first, so that each segment is
# read once. The first of equal elements still wins. The temporary between the reductions has at most 1 / _FEWEST_STEPS
# of the elements.
_FEWEST_STEPS = 16


@problems_of.register
def _reduce(desc: ReduceOperatorDesc) -> tuple[Problem, ...]:
    source, axes = desc.input_tensor, desc.axes
    accumulator = accumulator_of(desc.function, source.data_type)
    farthest = max(range(len(axes)), key=lambda i: source.element_strides[axes[i]])
    first, last = axes[:farthest], axes[farthest:]
    steps = math.prod([source.sizes[axis] for axis in last])
    is_ordered = isinstance(accumulator, Selection) and source.data_type.is_float
    if not (is_ordered and first and steps >= _FEWEST_STEPS):
        return _over_axes(desc, accumulator, Result.VALUE)
    between = source.packed(source.data_type, tuple([1 if i in last else n for i, n in enumerate(source.sizes)]))
    maxima = (OutputTensor(between, Result.VALUE, Role.TEMPORARY),)
    outputs = (OutputTensor(desc.output_tensor, Result.VALUE),)
    return (
        Problem((Source(source),), Axes.of(source, last), accumulator, maxima),
        Problem((Source(between, Role.TEMPORARY),), Axes.of(between, first), accumulator, outputs),
    )


@problems_of.register
def _extremum(desc: ExtremumOperatorDesc) -> tuple[Problem, ...]:
    outputs = (
        OutputTensor(desc.output_tensor, Result.VALUE),
        OutputTensor(desc.output_indices_tensor, Result.INDEX, number=1),
    )
    selection = Selection(minimum=desc.function is ReduceFunction.MIN)
    return (Problem((Source(desc.input_tensor),), Axes.of(desc.input_tensor, desc.axes), selection, outputs),)


@problems_of.register
def _short_sum(desc: ShortSumOperatorDesc) -> tuple[Problem, ...]:
    # An index has 32 bits for elements of any width.
    outputs = (OutputTensor(desc.output_tensor, Result.INDEX),)
    axes = Axes.of(desc.input_tensor, desc.axes, ordered=False)
    return (Problem((Source(desc.input_tensor),), axes, Integer(), outputs),)


@problems_of.register
def _exact_sum(desc: ExactSumOperatorDesc) -> tuple[Problem, ...]:
    of_squares = isinstance(desc, ExactSquaresOperatorDesc)
    kind, power = (ExactSquares, 2) if of_squares else (ExactSum, int(desc.absolute))
    accumulator = kind(power, SumResult.WORD)
    outputs = tuple(OutputTensor(word, Result.WORD, number=i) for i, word in enumerate(desc.outputs))
    axes = Axes.of(desc.input_tensor, desc.axes, ordered=False)
    return (Problem((Source(desc.input_tensor),), axes, accumulator, outputs),)


def _over_axes(
    desc: ArgOperatorDesc | ReduceOperatorDesc, accumulator: Accumulator, result: Result
) -> tuple[Problem, ...]:
    outputs = (OutputTensor(desc.output_tensor, result),)
    # Equal floats may have different bits: the sign of zero.
    selects = isinstance(accumulator, Selection)
    ordered = selects and (result is Result.INDEX or desc.input_tensor.data_type.is_float)
    axes = Axes.of(desc.input_tensor, desc.axes, ordered=ordered)
    return (Problem((Source(desc.input_tensor),), axes, accumulator, outputs),)


def _over_windows(
    source: TensorDesc, windows: Windows, accumulator: Accumulator, outputs: tuple[OutputTensor, ...]
) -> Problem:
    axes = windows.along_axes(source)
    if axes and not isinstance(accumulator, Selection):
        # Sums of short integers are written like indices, but no first index of a window is added to them.
        axes = replace(axes, index_step=0)
    return Problem((Source(source),), axes or windows, accumulator, outputs)


@problems_of.register
def _average_pooling(desc: AveragePooling1OperatorDesc) -> tuple[Problem, ...]:
    windows = Windows.of(desc.input_tensor, desc.windows, include_padding=desc.include_padding)
    outputs = (OutputTensor(desc.output_tensor, Result.VALUE),)
    return (_over_windows(desc.input_tensor, windows, Sum(result=SumResult.AVERAGE), outputs),)


@problems_of.register
def _quantized_average_pooling(desc: QuantizedLinearAveragePoolingOperatorDesc) -> tuple[Problem, ...]:
    source, target = desc.input_tensor, desc.output_tensor
    sum_type = DataType.INT32 if source.data_type is DataType.INT8 else DataType.UINT32
    windows = Windows.of(source, desc.windows, include_padding=desc.include_padding)
    sums = TensorDesc(sum_type, target.sizes)
    first = _over_windows(source, windows, Integer(), (OutputTensor(sums, Result.INDEX, Role.TEMPORARY),))
    zero_points = desc.input_zero_point_tensor, desc.output_zero_point_tensor
    domain = Requantized(windows, desc.channels, (zero_points[0] is not None, zero_points[1] is not None))
    parameters = [Source(tensor, number=i) for i, tensor in enumerate(desc.inputs)][1:]
    written, after = _packed_output(OutputTensor(target, Result.VALUE), 1)
    sources = (Source(sums, Role.TEMPORARY), *parameters)
    return first, Problem(sources, domain, Integer(), (written,)), *after


def _packed_output(output: OutputTensor, number: int) -> tuple[OutputTensor, tuple[Problem, ...]]:
    """What a kernel of packed outputs writes: the output, or temporary `number`, which the returned problem copies."""
    if output.tensor.is_packed:
        return output, ()
    packed = TensorDesc(output.tensor.data_type, output.tensor.sizes)
    target = replace(output, result=Result.VALUE)
    source = Source(packed, Role.TEMPORARY, number)
    copy = Problem((source,), Axes.of(packed, ()), Selection(), (target,))
    return replace(output, tensor=packed, role=Role.TEMPORARY, number=number), (copy,)


@problems_of.register
def _lp_pooling(desc: LpPooling1OperatorDesc) -> tuple[Problem, ...]:
    windows = Windows.of(desc.input_tensor, desc.windows)
    outputs = (OutputTensor(desc.output_tensor, Result.VALUE),)
    return (_over_windows(desc.input_tensor, windows, Sum(power=desc.p, result=SumResult.ROOT), outputs),)


@problems_of.register
def _average_pooling_grad(desc: AveragePoolingGradOperatorDesc) -> tuple[Problem, ...]:
    pooled, gradient = desc.output_gradient_tensor, desc.input_gradient_tensor
    windows = CoveringWindows.of(gradient, desc.windows, include_padding=desc.include_padding)
    outputs = (OutputTensor(pooled, Result.VALUE),)
    return (Problem((Source(gradient),), windows, Sum(), outputs),)


@problems_of.register
def _max_pooling_grad(desc: MaxPoolingGradOperatorDesc) -> tuple[Problem, ...]:
    gradient, indices = desc.input_gradient_tensor, desc.indices_tensor
    covering = CoveringWindows.of(gradient, desc.windows)
    outputs = (OutputTensor(desc.output_gradient_tensor, Result.VALUE),)
    if indices is not None and indices.is_packed:
        return (Problem((Source(gradient), Source(indices, number=1)), covering, Sum(), outputs),)
    maxima = TensorDesc(DataType.UINT32 if indices is None else indices.data_type, gradient.sizes)
    if indices is None:
        temporaries = (OutputTensor(maxima, Result.INDEX, Role.TEMPORARY),)
        windows = Windows.of(desc.input_tensor, desc.windows)
        first, number = _over_windows(desc.input_tensor, windows, Selection(), temporaries), 1
    else:
        first, number = copy_of(Source(indices, number=1), maxima, 0), 0
    sources = Source(gradient, number=number), Source(maxima, Role.TEMPORARY)
    return first, Problem(sources, covering, Sum(), outputs)


@problems_of.register
def _max_unpooling(desc: MaxUnpoolingOperatorDesc) -> tuple[Problem, ...]:
    sources = Source(desc.input_tensor), Source(desc.indices_tensor, number=1)
    return (Problem(sources, Scattered(), Last(), (OutputTensor(desc.output_tensor, Result.VALUE),)),)


@problems_of.register
def _roi_pooling(desc: RoiPoolingOperatorDesc) -> tuple[Problem, ...]:
    sources = Source(desc.input_tensor), Source(desc.roi_tensor, number=1)
    regions = Regions(desc.pooled_size, desc.spatial_scale)
    return (Problem(sources, regions, Selection(), (OutputTensor(desc.output_tensor, Result.VALUE),)),)


@problems_of.register
def _top_k(desc: TopK1OperatorDesc) -> tuple[Problem, ...]:
    tensor, axis = desc.input_tensor, desc.axis
    increasing = desc.axis_direction is AxisDirection.INCREASING
    outputs = (
        OutputTensor(desc.output_value_tensor, Result.VALUE),
        OutputTensor(desc.output_index_tensor, Result.INDEX, number=1),
    )
    if desc.k == 1 and not (increasing and tensor.data_type.is_float):
        # A minimum of floats is NaN if there is one; here NaN comes last.
        return (Problem((Source(tensor),), Axes.of(tensor, (axis,)), Selection(minimum=increasing), outputs),)
    before: list[Problem] = []
    after: list[Problem] = []
    source, written = Source(tensor), list[OutputTensor]()
    lines = _lines(tensor, axis)
    if lines is None:
        # A copy has the axis innermost.
        order = [*(i for i in range(tensor.rank) if i != axis), axis]
        sizes, strides = (tuple([of[i] for i in order]) for of in (tensor.sizes, tensor.element_strides))
        packed = TensorDesc(tensor.data_type, sizes)
        before.append(copy_of(Source(TensorDesc(tensor.data_type, sizes, strides)), packed, 0))
        source = Source(packed, Role.TEMPORARY, 0)
        lines = Dim(math.prod(sizes[:-1]), sizes[-1]), Dim(1, 0), Dim(sizes[-1], 1)
    for output in outputs:
        target, copies = _packed_output(output, len(before) + len(after))
        written.append(target)
        after += copies
    domain = Lines(*lines, desc.k, increasing, math.prod(outputs[0].tensor.sizes[axis + 1 :]))
    return *before, Problem((source,), domain, Selection(), tuple(written)), *after


# Tensors with more bits are copied if their lines are not contiguous: each line then lies in many segments.
_LARGE = 64 << 23


def _lines(source: TensorDesc, axis: int) -> tuple[Dim, Dim, Dim] | None:
    """The outer, inner and element dimension of the lines along an axis; None if the tensor should be copied."""
    dims = [Dim(*pair) for pair in zip(source.sizes, source.element_strides, strict=True)]
    element = dims.pop(axis)
    kept = merged(dims)
    if len(kept) > 2 or (element.stride != 1 and source.size_in_bytes * 8 > _LARGE):
        return None
    outer, inner = (*(Dim(1, 0),) * (2 - len(kept)), *kept)
    return outer, inner, element


@problems_of.register
def _cumulative(desc: CumulativeOperatorDesc) -> tuple[Problem, ...]:
    data_type = desc.input_tensor.data_type
    multiplies = isinstance(desc, CumulativeProductOperatorDesc)
    accumulator: Accumulator = Product() if multiplies else CumulativeSum()
    if not data_type.is_float:
        accumulator = Integer(multiplies=multiplies)
    source, output = Source(desc.input_tensor), OutputTensor(desc.output_tensor, Result.VALUE)
    packed = TensorDesc(data_type, desc.input_tensor.sizes)
    before: list[Problem] = []
    after: tuple[Problem, ...] = ()
    lines = [_by_line(tensor, desc.axis) for tensor in (desc.input_tensor, desc.output_tensor)]
    sizes = [[dim.size for dim in dims] for dims in lines]
    if sizes[0] != sizes[1] or len(sizes[0]) > 3:
        # Packed tensors have at most two dimensions of lines.
        lines = [_by_line(packed, desc.axis)] * 2
        if not desc.input_tensor.is_packed:
            before.append(copy_of(source, packed, 0))
            source = Source(packed, Role.TEMPORARY)
        output, after = _packed_output(output, len(before))
    of_source, of_target = ((*(Dim(1, 0),) * (3 - len(dims)), *dims) for dims in lines)
    descending = desc.axis_direction is AxisDirection.DECREASING
    domain = Prefixes(of_source, of_target, descending, desc.is_exclusive)
    return *before, Problem((source,), domain, accumulator, (output,)), *after


def _by_line(tensor: TensorDesc, axis: int) -> tuple[Dim, ...]:
    """The merged dimensions of a tensor without those of size 1, and the axis as the last one."""
    dims = [Dim(*pair) for pair in zip(tensor.sizes, tensor.element_strides, strict=True)]
    element = dims.pop(axis)
    return *merged(dims), element


@problems_of.register
def _max_pooling(desc: MaxPooling2OperatorDesc) -> tuple[Problem, ...]:
    windows = Windows.of(desc.input_tensor, desc.windows)
    values, *indices = desc.outputs
    outputs = OutputTensor(values, Result.VALUE), *(OutputTensor(tensor, Result.INDEX, number=1) for tensor in indices)
    return (_over_windows(desc.input_tensor, windows, Selection(), outputs),)
