"""Cases of every operator: for the tests of the oracle, of plans and of devices, for drivers, and for other libraries.

Tests that are not about one operator run CASES. A list for each subject has its special cases. SAMPLES has some of the
samples of every operator of the registry, and `samples` returns all.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dmlgpu import (
    ArgmaxOperatorDesc,
    ArgminOperatorDesc,
    AveragePooling1OperatorDesc,
    AveragePoolingGradOperatorDesc,
    AxisDirection,
    CumulativeProductOperatorDesc,
    CumulativeSummationOperatorDesc,
    DataType,
    Device,
    ExecutionFlags,
    LpPooling1OperatorDesc,
    MaxPooling1OperatorDesc,
    MaxPooling2OperatorDesc,
    MaxPoolingGradOperatorDesc,
    MaxPoolingOperatorDesc,
    MaxUnpoolingOperatorDesc,
    OperatorDesc,
    QuantizedLinearAveragePoolingOperatorDesc,
    ReduceFunction,
    ReduceOperatorDesc,
    RoiPoolingOperatorDesc,
    TensorDesc,
    TopK1OperatorDesc,
    TopKOperatorDesc,
    VerificationError,
    verify,
)
from dmlgpu.descriptors.pooling import WINDOW_FIELDS
from dmlgpu.descriptors.reduction import ARG_TYPES, REDUCE_TYPES, ExtremumOperatorDesc
from dmlgpu.descriptors.tensor import Array, packed_strides
from dmlgpu.lowering.limits import Limits
from dmlgpu.lowering.lower import lower
from dmlgpu.lowering.plan import Plan
from dmlgpu.lowering.problem import sums_can_be_exact
from dmlgpu.reference.bounds import is_exact
from dmlgpu.registry import OPERATORS, Operator, inputs_of, name_of, with_outputs
from dmlgpu.testing.fills import (
    Fill,
    any_bits,
    arranged,
    distinct,
    factors,
    few_extremes,
    few_nan,
    greatest,
    least,
    literal,
    negative,
    negative_zeros,
    normal,
    rising,
    small,
    special,
    special_without_nan,
    ties,
)

FLOAT64, FLOAT32, FLOAT16 = DataType.FLOAT64, DataType.FLOAT32, DataType.FLOAT16
INT64, INT32, INT16, INT8 = DataType.INT64, DataType.INT32, DataType.INT16, DataType.INT8
UINT64, UINT32, UINT16, UINT8 = DataType.UINT64, DataType.UINT32, DataType.UINT16, DataType.UINT8
ELEMENT_TYPES = (FLOAT32, FLOAT16, INT64, INT32, INT16, INT8, UINT64, UINT32, UINT16, UINT8, FLOAT64)
# A type of every width, each of another kind of number.
WIDTHS = (UINT8, FLOAT16, INT32, UINT64)
INDEX_TYPES = (INT64, INT32, UINT64, UINT32)
INCREASING, DECREASING = AxisDirection.INCREASING, AxisDirection.DECREASING


@dataclass(frozen=True, eq=False)
class Case:
    """An operator, its inputs, and the outputs if a document states them."""

    id: str
    desc: OperatorDesc
    fills: tuple[Fill, ...]
    """A fill for each input tensor."""
    expected: tuple[Any, ...] | None = None
    """A nested list for each output tensor."""
    flags: ExecutionFlags = ExecutionFlags.NONE

    @property
    def operator(self) -> str:
        """The operator's name in the registry, or that of its class."""
        return name_of(self.desc)

    def plan(self, limits: Limits) -> Plan:
        """The plan for a device with these limits."""
        return lower(self.desc, limits, flags=self.flags)

    def inputs(self) -> tuple[Array, ...]:
        """The same arrays every time, of the descriptor's sizes; elements that share memory are equal."""
        fills = dict(zip(map(id, self.desc.inputs), self.fills, strict=True))
        return inputs_of(self.desc, lambda tensor: arranged(tensor, fills[id(tensor)]))

    def verify(self, device: Device) -> VerificationError | None:
        """Runs the operator, and compares its outputs with the oracle's; None: they agree."""
        try:
            verify(self.desc, *self.inputs(), flags=self.flags, device=device)
        except VerificationError as error:
            return error
        return None


@dataclass(frozen=True)
class Undescribed:
    """A call that no descriptor can describe: of an empty array, or with windows wholly in padding."""

    id: str
    function: str
    """Name of a function of dmlgpu."""
    sizes: tuple[int, ...]
    axes: tuple[int, ...] = ()
    window: Any = None
    """The fields of WINDOW_FIELDS."""
    data_type: DataType = DataType.FLOAT32
    expected: tuple[tuple[int, ...], ...] | None = None
    """The sizes of the results. None: nothing can win, which is an error. (): any result may be right."""


# Strides with so many different sums that the search for overlaps ends without a result.
NO_END = (1, 80508469, 74289224, 67866763, 84346775, 56023097, 82628941, 79342657)


# Descriptors


def spaced(tensor: TensorDesc, gap: int) -> TensorDesc:
    """The tensor with gaps of `gap` elements after its rows, planes and so on."""
    return dataclasses.replace(tensor, strides=packed_strides([size + gap for size in tensor.sizes]))


def permuted_strides(sizes: Sequence[int], order: Sequence[int], gap: int = 0) -> tuple[int, ...]:
    """Strides of dimensions that lie in this order, outermost first, with `gap` elements after each one's end."""
    strides, step = [0] * len(sizes), 1
    for dim in reversed(order):
        strides[dim] = step
        step = step * sizes[dim] + gap
    return tuple(strides)


def arg_desc(
    kind: type[ArgmaxOperatorDesc | ArgminOperatorDesc],
    data_type: DataType,
    sizes: Sequence[int],
    axes: Sequence[int],
    direction: AxisDirection = INCREASING,
    index_type: DataType = UINT32,
    *,
    strides: Sequence[int] | None = None,
    output_strides: Sequence[int] | None = None,
) -> ArgmaxOperatorDesc | ArgminOperatorDesc:
    """ARGMAX or ARGMIN with the inferred output sizes."""
    desc = kind.of(TensorDesc(data_type, sizes, strides), axes, direction, output_data_type=index_type)
    return dataclasses.replace(desc, output_tensor=dataclasses.replace(desc.output_tensor, strides=output_strides))


def extremum_desc(
    function: ReduceFunction,
    data_type: DataType,
    sizes: tuple[int, ...],
    axes: Sequence[int],
    index_type: DataType = UINT64,
    *,
    strides: tuple[int, ...] | None = None,
    output_strides: tuple[int, ...] | None = None,
    indices_strides: tuple[int, ...] | None = None,
) -> ExtremumOperatorDesc:
    """MAX or MIN with its index, with the inferred output sizes."""
    desc = ExtremumOperatorDesc.of(function, TensorDesc(data_type, sizes, strides), axes, indices_data_type=index_type)
    return dataclasses.replace(
        desc,
        output_tensor=dataclasses.replace(desc.output_tensor, strides=output_strides),
        output_indices_tensor=dataclasses.replace(desc.output_indices_tensor, strides=indices_strides),
    )


def pooled_sizes(
    sizes: Sequence[int],
    window: Sequence[int],
    strides: Sequence[int],
    start: Sequence[int],
    end: Sequence[int],
    dilations: Sequence[int],
    ceil: bool = False,
) -> tuple[int, ...]:
    """The inferred output sizes, each rounded up with `ceil`."""
    lines = zip(sizes[2:], window, strides, start, end, dilations, strict=True)
    return *sizes[:2], *((size + a + b - (1 + (w - 1) * d) + ceil * (s - 1)) // s + 1 for size, w, s, a, b, d in lines)


def pool_desc(
    data_type: DataType,
    sizes: Sequence[int],
    window: Sequence[int],
    strides: Sequence[int] | None = None,
    start: Sequence[int] | None = None,
    end: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    indices: DataType | None = UINT32,
    *,
    ceil: bool = False,
    input_strides: Sequence[int] | None = None,
) -> MaxPooling2OperatorDesc:
    """MAX_POOLING2 with the inferred output sizes."""
    ones, zeros = (1,) * len(window), (0,) * len(window)
    steps = strides or ones, start or zeros, end or zeros, dilations or ones
    return MaxPooling2OperatorDesc.of(
        TensorDesc(data_type, sizes, input_strides),
        window,
        strides=strides,
        start_padding=start,
        end_padding=end,
        dilations=dilations,
        output_sizes=pooled_sizes(sizes, window, *steps, ceil=True) if ceil else None,
        indices_data_type=indices,
    )


# Examples of the documents

MATRIX = [[1, 2, 3], [3, 0, 4], [2, 5, 2]]
PLANE = [[1, 3, 2, 4, -1], [5, 7, 6, 8, -2], [9, 11, 10, 12, -3], [13, 15, 14, 16, -4]]
ROW = [1, 3, 2, 4, -1, -3, -2, -4, -6, -5, -4, -2]
ZIGZAG = [1, 9, 2, 8, 3, 7, 4, 6, 5]


def _arg_example(
    id: str,
    kind: type[ArgmaxOperatorDesc | ArgminOperatorDesc],
    x: Any,
    axes: Sequence[int],
    expected: Any,
    direction: AxisDirection = INCREASING,
) -> Case:
    return Case(id, arg_desc(kind, FLOAT32, np.shape(x), axes, direction), (literal(x),), (expected,))


def _pool_example(id: str, x: Any, values: Any, indices: Any, *args: Any, **kwargs: Any) -> Case:
    """A plane (height, width), pooled with 2-D windows; all arrays are 2-D."""
    desc = pool_desc(FLOAT32, (1, 1, *np.shape(x)), *args, **kwargs)
    return Case(id, desc, (literal(x),), ([[values]], [[indices]]))


def quantized_desc(
    source: TensorDesc, window: Sequence[int], data_type: DataType, *sizes: Sequence[int] | None, **steps: Any
) -> QuantizedLinearAveragePoolingOperatorDesc:
    """QUANTIZED_LINEAR_AVERAGE_POOLING to a type; sizes of scales and zero points in order, None: no zero point."""
    names = "input_scale_tensor", "input_zero_point_tensor", "output_scale_tensor", "output_zero_point_tensor"
    types = FLOAT32, source.data_type, FLOAT32, data_type
    tensors = {
        name: None if size is None else TensorDesc(kind, size)
        for name, kind, size in zip(names, types, sizes, strict=True)
    }
    kind = QuantizedLinearAveragePoolingOperatorDesc
    return kind.of(source, window, output_data_type=data_type, **tensors, **steps)


_TENTHS = [[10, 20, 30], [40, 50, 60], [70, 80, 90]]
_PAIRS, _POWERS = [[[4, 8]]] * 2, [[[1, 2, 4, 8, 16, 32]]]
_APART = {"dilations": (1, 3), "strides": (1, 2), "start_padding": (0, 1), "end_padding": (0, 1)}
_CORNERS = {"strides": (2, 2), "start_padding": (1, 1)}
_COUNTED = {"include_padding": True}

# Results were computed with fractions. Parameters are scale and zero point of the input, then of the output.
_QUANTIZED_EXAMPLES = [
    Case(
        f"quantized-{tag}",
        quantized_desc(
            TensorDesc(data_type, (1, *np.shape(x))),
            window,
            to,
            *(None if value is None else (1, np.size(value), 1, 1) for value in parameters),
            **steps,
        ),
        (literal(x), *(literal(value) for value in parameters if value is not None)),
        ([expected],),
    )
    for tag, data_type, to, x, window, parameters, steps, expected in (
        ("both", UINT8, UINT8, [_TENTHS], (2, 2), (0.5, 10, 1, 3), {}, [[[13, 18], [28, 33]]]),
        ("padded", UINT8, UINT8, [_TENTHS], (2, 2), (1, 10, 1, 0), _CORNERS, [[[0, 15], [45, 60]]]),
        ("ties", UINT8, UINT8, [_TENTHS], (2, 2), (1, 10, 1, 0), _CORNERS | _COUNTED, [[[0, 8], [22, 60]]]),
        ("even", INT8, INT8, [[[0, 1, 2, 3, 4]]], (1, 2), (1, None, 1, 0), {}, [[[0, 2, 2, 4]]]),
        ("moved", INT8, INT8, [[[0, 1, 2, 3, 4]]], (1, 2), (1, 0, 1, 1), {}, [[[1, 3, 3, 5]]]),
        ("saturated", UINT8, UINT8, [[[0, 255, 255, 0]]], (1, 2), (2, 128, 1, None), {}, [[[0, 254, 0]]]),
        ("signed", UINT8, INT8, [[[0, 255, 255, 0]]], (1, 2), (2, 128, 1, None), {}, [[[-1, 127, -1]]]),
        ("channels", UINT8, UINT8, _PAIRS, (1, 2), ([0.5, 2], [0, 4], [1, 0.5], [0, 100]), {}, [[[3]], [[108]]]),
        ("apart", UINT8, UINT8, _POWERS, (1, 2), (1, None, 0.5, None), _APART, [[[8, 18, 16]]]),
        ("apart-ties", UINT8, UINT8, _POWERS, (1, 2), (1, None, 0.5, None), _APART | _COUNTED, [[[4, 18, 8]]]),
    )
]

# Indices within the planes of two batch entries and channels; repeated indices; indices beyond the output.
_UNPOOLED_EXAMPLES = [
    Case(
        f"unpooled-{tag}",
        MaxUnpoolingOperatorDesc.of(TensorDesc(FLOAT32, np.shape(x)), np.shape(expected)),
        (literal(x), literal(indices)),
        (expected,),
    )
    for tag, x, indices, expected in (
        (
            "planes",
            [[[[1, 2]], [[3, 4]]], [[[5, 6]], [[7, 8]]]],
            [1, 4, 6, 7, 17, 12, 23, 18],
            [[[[0, 1, 0], [0, 2, 0]], [[3, 4, 0], [0, 0, 0]]], [[[6, 0, 0], [0, 0, 5]], [[8, 0, 0], [0, 0, 7]]]],
        ),
        ("repeated", [[[[5, 7, -0.0]]]], [3, 3, 0], [[[[-0.0, 0, 0, 7]]]]),
        ("beyond", [[[[5, 7]]]], [4, 2], [[[[0, 0, 7, 0]]]]),
    )
]

_SIXES = [[1, 2, 2, 3], [3, 4, 5, 5], [6, 6, 6, 6]]
_TENS = [[0, 1, 10, 11], [3, 2, 9, 8], [4, 5, 6, 7]]

_TOP_K_EXAMPLES = [
    Case(
        f"top-k-{tag}",
        TopK1OperatorDesc.of(TensorDesc(data_type, np.shape(x)), k, axis, direction),
        (literal(x),),
        (values, indices),
    )
    for tag, data_type, x, axis, k, direction, values, indices in (
        ("rows", FLOAT32, _TENS, 1, 2, DECREASING, [[11, 10], [9, 8], [7, 6]], [[3, 2], [2, 3], [3, 2]]),
        ("columns", FLOAT32, _TENS, 0, 2, DECREASING, [[4, 5, 10, 11], [3, 2, 9, 8]], [[2, 2, 0, 0], [1, 1, 1, 1]]),
        ("ties", FLOAT32, _SIXES, 1, 3, DECREASING, [[3, 2, 2], [5, 5, 4], [6] * 3], [[3, 1, 2], [2, 3, 1], [0, 1, 2]]),
        ("least", FLOAT32, _SIXES, 1, 3, INCREASING, [[1, 2, 2], [3, 4, 5], [6] * 3], [[0, 1, 2]] * 3),
        ("cut-in-ties", FLOAT32, [5, 7, 7, 7, 5], 0, 2, DECREASING, [7, 7], [1, 2]),
        ("least-cut-in-ties", FLOAT32, [5, 7, 7, 7, 5], 0, 3, INCREASING, [5, 5, 7], [0, 4, 1]),
        ("wide", INT64, [2**53, 2**53 + 1, 2**53 - 1, 2**53 + 1], 0, 2, DECREASING, [2**53 + 1] * 2, [1, 3]),
        ("zeros", FLOAT32, [-0.0, 0.0, -1, 0.0, -0.0], 0, 4, DECREASING, [-0.0, 0.0, 0.0, -0.0], [0, 1, 3, 4]),
    )
]

# Elements y * 6 + x + 1.
_SQUARE = np.arange(1, 37).reshape(6, 6)

_ROI_EXAMPLES = [
    Case(
        f"roi-{tag}-{data_type.name}".lower(),
        RoiPoolingOperatorDesc.of(TensorDesc(data_type, (1, 1, *np.shape(x))), size, scale),
        (literal(x), literal([0, *roi])),
        ([[expected]],),
    )
    for data_type in (FLOAT32, FLOAT16)
    for tag, x, roi, scale, size, expected in (
        ("all", _SQUARE, (0, 0, 5, 5), 1, 2, [[15, 18], [33, 36]]),
        ("in-common", _SQUARE, (0, 0, 4, 4), 1, 2, [[15, 17], [27, 29]]),
        ("row", _SQUARE, (1, 1, 3, 2), 1, (2, 3), [[8, 9, 10], [14, 15, 16]]),
        ("repeated", _SQUARE, (2, 3, 2, 3), 1, 2, [[21, 21], [21, 21]]),
        ("halves", _SQUARE, (1, 1, 5, 5), 0.5, 1, [[22]]),
        ("behind", -_SQUARE, (4, 4, 7, 7), 1, 2, [[-29, 0], [0, 0]]),
        ("before", _SQUARE, (-2, -2, 1, 1), 1, 2, [[0, 0], [0, 8]]),
        ("outside", _SQUARE, (7, 7, 9, 9), 1, 2, [[0, 0], [0, 0]]),
        ("backwards", _SQUARE, (3, 4, 1, 2), 1, 1, [[28]]),
        ("integers", np.arange(60)[:, None], (0, 0, 0, 56), 1, (7, 1), [[8], [16], [24], [32], [40], [48], [56]]),
        # In float32 5 * 0.7 is 3.5, which rounds to 4; the exact product of 5 and the float32 0.7 is less.
        ("float32-product", _SQUARE, (5, 5, 5, 5), 0.7, 1, [[29]]),
        ("denormal-scale", _SQUARE, (0, 0, 60000, 3), 1e-40, 1, [[1]]),
    )
]

_CUMULATIVE_EXAMPLES = [
    Case(
        f"{name}-{axis}-{direction.name}-{exclusive}".lower(),
        kind(TensorDesc(FLOAT32, (3, 4)), TensorDesc(FLOAT32, (3, 4)), axis, direction, exclusive),
        (literal([[2, 1, 3, 5], [3, 8, 7, 3], [9, 6, 2, 4]]),),
        (values,),
    )
    for (name, kind), examples in {
        ("cumulative-sum", CumulativeSummationOperatorDesc): (
            (1, INCREASING, False, [[2, 3, 6, 11], [3, 11, 18, 21], [9, 15, 17, 21]]),
            (1, INCREASING, True, [[0, 2, 3, 6], [0, 3, 11, 18], [0, 9, 15, 17]]),
            (1, DECREASING, False, [[11, 9, 8, 5], [21, 18, 10, 3], [21, 12, 6, 4]]),
            (1, DECREASING, True, [[9, 8, 5, 0], [18, 10, 3, 0], [12, 6, 4, 0]]),
            (0, INCREASING, False, [[2, 1, 3, 5], [5, 9, 10, 8], [14, 15, 12, 12]]),
            (0, DECREASING, True, [[12, 14, 9, 7], [9, 6, 2, 4], [0, 0, 0, 0]]),
        ),
        ("cumulative-product", CumulativeProductOperatorDesc): (
            (1, INCREASING, False, [[2, 2, 6, 30], [3, 24, 168, 504], [9, 54, 108, 432]]),
            (1, INCREASING, True, [[1, 2, 2, 6], [1, 3, 24, 168], [1, 9, 54, 108]]),
            (1, DECREASING, False, [[30, 15, 15, 5], [504, 168, 21, 3], [432, 48, 8, 4]]),
            (1, DECREASING, True, [[15, 15, 5, 1], [168, 21, 3, 1], [48, 8, 4, 1]]),
            (0, INCREASING, False, [[2, 1, 3, 5], [6, 8, 21, 15], [54, 48, 42, 60]]),
            (0, DECREASING, True, [[27, 48, 14, 12], [9, 6, 2, 4], [1, 1, 1, 1]]),
        ),
    }.items()
    for axis, direction, exclusive, values in examples
]

DOCUMENTED = [
    _arg_example("argmax-of-columns", ArgmaxOperatorDesc, MATRIX, [0], [[1, 2, 1]]),
    _arg_example("argmax-of-rows", ArgmaxOperatorDesc, MATRIX, [1], [[2], [2], [1]]),
    _arg_example("argmax-of-all", ArgmaxOperatorDesc, MATRIX, [0, 1], [[7]]),
    _arg_example("argmin-of-columns", ArgminOperatorDesc, MATRIX, [0], [[0, 1, 2]]),
    _arg_example("argmin-of-rows", ArgminOperatorDesc, MATRIX, [1], [[0], [1], [0]]),
    _arg_example("argmin-of-rows-last", ArgminOperatorDesc, MATRIX, [1], [[0], [1], [2]], DECREASING),
    _arg_example("argmin-of-all", ArgminOperatorDesc, MATRIX, [0, 1], [[4]]),
    _arg_example("first-of-equal-maxima", ArgmaxOperatorDesc, [3, 2, 1, 2, 3], [0], [0]),
    _arg_example("last-of-equal-maxima", ArgmaxOperatorDesc, [3, 2, 1, 2, 3], [0], [4], DECREASING),
    _arg_example("first-of-equal-minima", ArgminOperatorDesc, [1, 2, 3, 2, 1], [0], [0]),
    _arg_example("last-of-equal-minima", ArgminOperatorDesc, [1, 2, 3, 2, 1], [0], [4], DECREASING),
    *(
        Case(
            f"reduce-{function.name.lower()}-of-all",
            ReduceOperatorDesc(function, TensorDesc(FLOAT32, (3, 3)), TensorDesc(UINT32, (1, 1)), (0, 1)),
            (literal(MATRIX),),
            ([[index]],),
        )
        for function, index in ((ReduceFunction.ARGMAX, 7), (ReduceFunction.ARGMIN, 4))
    ),
    _pool_example(
        "dilated", PLANE, [[10, 12, 10], [14, 16, 14]], [[12, 13, 12], [17, 18, 17]], (2, 2), dilations=(2, 2)
    ),
    _pool_example(
        "dilated-and-padded",
        PLANE,
        [[7, 6, 8, 6, 8], [11, 10, 12, 10, 12], [15, 14, 16, 14, 16], [11, 10, 12, 10, 12]],
        [[6, 7, 8, 7, 8], [11, 12, 13, 12, 13], [16, 17, 18, 17, 18], [11, 12, 13, 12, 13]],
        (2, 2),
        start=(1, 1),
        end=(1, 1),
        dilations=(2, 2),
    ),
    _pool_example("dilated-stride-2-floor", PLANE, [[10, 12, 10]], [[12, 13, 12]], (2, 2), (2, 1), dilations=(2, 2)),
    _pool_example(
        "dilated-stride-2-ceil",
        PLANE,
        [[10, 12, 10], [10, 12, 10]],
        [[12, 13, 12], [12, 13, 12]],
        (2, 2),
        (2, 1),
        dilations=(2, 2),
        ceil=True,
    ),
    _pool_example("row-dilation-3", [ROW], [[4, 3, 2, 4, -1, -2]], [[3, 1, 2, 3, 4, 11]], (1, 3), dilations=(1, 3)),
    _pool_example(
        "column-dilation-3",
        [[value] for value in ROW],
        [[4], [3], [2], [4], [-1], [-2]],
        [[3], [1], [2], [3], [4], [11]],
        (3, 1),
        dilations=(3, 1),
    ),
    _pool_example(
        "row-dilation-3-padded",
        [ROW],
        [[2, 4, 3, 2, 4, -1, -2, -2]],
        [[2, 3, 1, 2, 3, 4, 11, 6]],
        (1, 3),
        start=(0, 1),
        end=(0, 1),
        dilations=(1, 3),
    ),
    _pool_example(
        "row-dilation-2-padded",
        [ZIGZAG],
        [[9, 2, 9, 3, 8, 4, 7, 5, 6]],
        [[1, 2, 1, 4, 3, 6, 5, 8, 7]],
        (1, 2),
        start=(0, 1),
        end=(0, 1),
        dilations=(1, 2),
    ),
    Case(
        "max-pooling1",
        MaxPooling1OperatorDesc(
            TensorDesc(FLOAT32, (1, 1, 2, 4)),
            TensorDesc(FLOAT32, (1, 1, 2, 2)),
            TensorDesc(UINT32, (1, 1, 2, 2)),
            (1, 1),
            (1, 3),
            (0, 0),
            (0, 0),
        ),
        (literal([[3, 5, 7, 1], [9, 4, 2, 8]]),),
        ([[[[7, 7], [9, 8]]]], [[[[2, 2], [4, 7]]]]),
    ),
    _pool_example(
        "forward-of-the-gradient-example", [[1, 2, 3], [2, 4, 2], [5, 6, 7]], [[4, 4], [6, 7]], [[4, 4], [7, 8]], (2, 2)
    ),
    _pool_example(
        "padding-does-not-win",
        [[-5, -3], [-2, -9]],
        [[-5, -3, -3], [-2, -2, -3], [-2, -2, -9]],
        [[0, 1, 1], [2, 2, 1], [2, 2, 3]],
        (2, 2),
        start=(1, 1),
        end=(1, 1),
    ),
    *_QUANTIZED_EXAMPLES,
    *_UNPOOLED_EXAMPLES,
    *_ROI_EXAMPLES,
    *_TOP_K_EXAMPLES,
    *_CUMULATIVE_EXAMPLES,
]

# ARGMAX, ARGMIN

ARG_KINDS = (ArgmaxOperatorDesc, ArgminOperatorDesc)


def _arg_case(id: str, fill: Fill, kind: Any, data_type: DataType, *args: Any, **kwargs: Any) -> Case:
    return Case(id, arg_desc(kind, data_type, *args, **kwargs), (fill,))


def _name(kind: type[OperatorDesc]) -> str:
    return kind.__name__.removesuffix("OperatorDesc").lower()


# Every type of element with a type of index; a type of each width with every type of index.
TYPE_PAIRS = [
    _arg_case(
        f"{_name(kind)}-{data_type.name}-{index_type.name}-{direction.name}".lower(),
        ties,
        kind,
        data_type,
        (3, 7, 5),
        (0, 2),
        direction,
        index_type,
    )
    for kind, shift in zip(ARG_KINDS, (0, 2), strict=True)
    for i, data_type in enumerate(ELEMENT_TYPES)
    for j, (index_type, direction) in enumerate(zip(INDEX_TYPES, (INCREASING, DECREASING) * 2, strict=True))
    if (i + shift) % 4 == j or (data_type in WIDTHS and kind is ArgmaxOperatorDesc)
]

_SIZES = (3, 2, 4, 1, 3, 2, 5, 2)
RANKS = [
    _arg_case(f"rank-{rank}-{name}", any_bits, kind, INT16, _SIZES[:rank], axes)
    for kind, rank in zip(itertools.cycle(ARG_KINDS), range(1, 9))
    for name, axes in (("first", [0]), ("last", [rank - 1]), ("all", range(rank)), ("odd", range(0, rank, 2)))
]


def _subsets(rank: int) -> list[tuple[int, ...]]:
    return [axes for n in range(1, rank + 1) for axes in itertools.combinations(range(rank), n)]


AXES_OF_RANK_4 = [
    _arg_case("axes-" + "".join(map(str, axes)), distinct, ArgmaxOperatorDesc, INT32, (3, 4, 5, 7), axes)
    for axes in _subsets(4)
]
AXES_OF_RANK_8 = [
    _arg_case("axes-" + "".join(map(str, axes)), distinct, ArgminOperatorDesc, FLOAT32, (2, 3, 1, 2, 3, 2, 2, 3), axes)
    for axes in random.Random(8).sample(_subsets(8), 20)
]

# One element; one less and one more than fit in a word, a workgroup and a segment of the lowered limits.
BOUNDARIES = [
    _arg_case(f"{data_type.name.lower()}-{outputs}-of-{axis}", ties, kind, data_type, (outputs, axis), [1])
    for kind, data_type in zip(itertools.cycle(ARG_KINDS), WIDTHS)
    for outputs, axis in ((1, 1), (1, 257), (3, 5), (31, 33), (32, 32), (33, 31), (63, 4), (65, 3), (97, 2), (257, 1))
]

# Consecutive elements along the reduced axis, or along another one; vectors of 16 bytes, and odd sizes.
ROWS_AND_COLUMNS = [
    _arg_case(
        f"{name}-{data_type.name.lower()}-{direction.name.lower()}", ties, kind, data_type, sizes, [axis], direction
    )
    for data_type in (INT8, FLOAT16, FLOAT32, INT64)
    for name, sizes, axis in (
        ("rows", (3, 320), 1),
        ("odd-rows", (2, 267), 1),
        ("short-rows", (7, 21), 1),
        ("columns", (6, 32), 0),
        ("odd-columns", (5, 37), 0),
        ("planes", (2, 5, 4, 8), 1),
    )
    for kind, direction in zip(ARG_KINDS, AxisDirection, strict=True)
]

# Rows that begin with a vector of 16 bytes and end within one: elements after a row must not count.
ROWS_WITH_ENDS = [
    _arg_case(
        f"{name}-{data_type.name.lower()}", fill, ArgmaxOperatorDesc, data_type, sizes, [axis], DECREASING, **strides
    )
    for data_type in WIDTHS
    for name, fill, sizes, axis, strides in (
        ("rows-with-ends", ties, (3, 331), 1, {"strides": (336, 1)}),
        ("columns-with-ends", ties, (5, 37), 0, {"strides": (48, 1)}),
        ("planes-with-ends", ties, (2, 5, 37), 1, {"strides": (320, 48, 1)}),
        ("planes-apart", ties, (3, 5, 32), 1, {"strides": (163, 32, 1)}),
    )
]

SPECIAL_ARGS = [
    _arg_case(
        f"{_name(kind)}-{fill.__name__}-{data_type.name}-{direction.name}".lower().replace("_", "-"),
        fill,
        kind,
        data_type,
        (64, 9),
        [1],
        direction,
    )
    for kind in ARG_KINDS
    for data_type in ELEMENT_TYPES
    for fill in (special, special_without_nan, any_bits)
    for direction in AxisDirection
    # The only special integers are the extremes: one direction with each kind.
    if data_type in (FLOAT16, FLOAT32) or (fill is not special_without_nan and direction == ARG_KINDS.index(kind))
]

REDUCTIONS = [
    Case(
        f"reduce-{function.name}-{data_type.name}-{index_type.name}".lower(),
        ReduceOperatorDesc(function, TensorDesc(data_type, (4, 6, 3)), TensorDesc(index_type, (4, 1, 3)), (1,)),
        (ties,),
    )
    for function, data_type, index_type in zip(
        itertools.cycle((ReduceFunction.ARGMAX, ReduceFunction.ARGMIN)),
        (FLOAT32, *ELEMENT_TYPES),
        itertools.cycle(INDEX_TYPES),
    )
]

# Every function of REDUCE that writes a value, with every type, along rows, columns and axes between others; REDUCTIONS
# has those that write an index.
REDUCED = [
    Case(
        f"reduce-{function.name}-{data_type.name}-{name}".lower().replace("_", "-"),
        ReduceOperatorDesc.of(function, TensorDesc(data_type, sizes), axes),
        (fill,),
    )
    for function, types in REDUCE_TYPES.items()
    for data_type in types["input_tensor"]
    for name, sizes, axes, fill in (
        ("rows", (5, 37), (1,), small),
        ("columns", (37, 20), (0,), special_without_nan),
        ("wide-columns", (9, 67), (0,), special_without_nan),
        ("between", (4, 6, 5), (0, 2), any_bits),
        ("long", (1, 17_000), (1,), small),
    )
    # Types of the same width and kind run the same modules.
    if types is not ARG_TYPES and (data_type in (FLOAT32, FLOAT16, INT32, UINT64) or name == "rows")
]

# Rows in which a finite initial value, or +0, would win; rows with NaN.
EXTREME_ROWS = [
    Case(
        f"{kind.__name__}-{function.name}-{fill.__name__}-{data_type.name}".lower().replace("_", "-"),
        kind.of(function, TensorDesc(data_type, (5, 37)), (1,)),
        (fill,),
    )
    for kind in (ReduceOperatorDesc, ExtremumOperatorDesc)
    for data_type in (FLOAT32, FLOAT16)
    for function, fill in (
        (ReduceFunction.MAX, least),
        (ReduceFunction.MIN, greatest),
        (ReduceFunction.MAX, negative_zeros),
        (ReduceFunction.MAX, special),
        (ReduceFunction.MIN, special),
    )
]


def _gradient(
    kind: type[AveragePoolingGradOperatorDesc | MaxPoolingGradOperatorDesc],
    data_type: DataType,
    sizes: Sequence[int],
    window: dict[str, Any],
    count: Sequence[int] | None,
    gap: int,
    index_type: DataType | None = None,
    **arguments: Any,
) -> OperatorDesc:
    """The gradient of a pooling of `sizes`, with `count` windows along each dimension; None: as many as fit."""
    pooled = MaxPooling2OperatorDesc.of(TensorDesc(data_type, sizes), **window, output_sizes=count)
    elements, windows = spaced(pooled.input_tensor, gap), spaced(pooled.output_tensor, gap)
    fields = {"input_tensor": elements, "input_gradient_tensor": windows, "output_gradient_tensor": elements}
    fields |= {**window, **arguments}
    if index_type:
        fields["indices_tensor"] = dataclasses.replace(windows, data_type=index_type)
    return kind(**{field: value for field, value in fields.items() if field in kind.__dataclass_fields__})


# Sizes, windows, strides, paddings at the start and at the end, and dilations, for every kernel over windows.
WINDOW_SHAPES = (
    ((2, 3, 9, 11), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1)),
    ((1, 1, 11, 13), (7, 5), (2, 3), (3, 4), (2, 0), (1, 1)),
    ((1, 1, 9, 11), (9, 8), (1, 1), (4, 3), (2, 5), (1, 1)),
    ((1, 1, 6, 50), (3, 41), (2, 3), (1, 3), (1, 0), (1, 1)),
    ((2, 1, 9, 12), (2, 3), (2, 2), (1, 2), (0, 1), (3, 2)),
    ((1, 2, 6, 7, 8), (2, 3, 2), (1, 2, 2), (1, 1, 0), (0, 2, 1), (1, 1, 2)),
    # Few windows, fewer along width than could contain an element; those of a plane may lie in two segments.
    ((1, 24, 20, 16), (12, 12), (4, 4), (0, 0), (0, 0), (1, 1)),
)
_SUMMING = {
    "average": (AveragePooling1OperatorDesc, {"include_padding": False}),
    "average-padding": (AveragePooling1OperatorDesc, {"include_padding": True}),
    "lp-1": (LpPooling1OperatorDesc, {"p": 1}),
    "lp-2": (LpPooling1OperatorDesc, {"p": 2}),
    "lp-3": (LpPooling1OperatorDesc, {"p": 3}),
}
# Averages and norms: small and long windows, padded, dilated, overhanging; outputs with gaps.
SUMMED_WINDOWS = [
    Case(
        f"{name}-{tag}-{data_type.name}".lower(),
        with_outputs(
            kind.of(
                TensorDesc(data_type, sizes),
                window,
                **dict(zip(("strides", "start_padding", "end_padding", "dilations"), steps, strict=True)),
                output_sizes=output,
                **arguments,
            ),
            partial(spaced, gap=gap),
        ),
        (fill,),
    )
    for name, (kind, arguments) in _SUMMING.items()
    for data_type in (FLOAT32, FLOAT16)
    for tag, sizes, window, steps, output, gap, fill in (
        ("small", (2, 3, 7, 9), (3, 3), ((2, 2), (1, 1), (1, 1), (1, 1)), None, 0, small),
        ("bits", (1, 2, 9, 12), (2, 3), ((1, 1), (0, 2), (1, 1), (2, 1)), None, 0, any_bits),
        ("ceil", (1, 2, 9, 10), (3, 3), ((2, 2), (1, 1), (0, 1), (1, 1)), (5, 6), 0, small),
        ("gaps", (1, 2, 6, 9), (3, 2), ((2, 1), (1, 1), (1, 0), (1, 2)), None, 1, small),
        ("long", (1, 2, 5, 48), (4, 37), ((1, 2), (2, 5), (1, 3), (1, 1)), None, 0, small),
        ("apart", (1, 2, 7, 140), (3, 33), ((3, 70), (1, 2), (1, 0), (1, 2)), None, 0, small),
        ("apart-row", (1, 1, 1, 60), (1, 33), ((1, 34), (0, 9), (0, 0), (1, 1)), None, 0, small),
        ("separable", (1, 1, 2, 36), (2, 33), ((1, 1), (0, 0), (0, 0), (1, 1)), None, 0, small),
        ("3-d", (1, 2, 4, 5, 6), (2, 3, 2), ((1, 2, 2), (1, 1, 0), (0, 2, 1), (1, 1, 1)), None, 0, small),
    )
]

# Quantized elements, by every kernel over windows. Scales and zero points in order: 1 is a single one, C one for each
# channel, - none.
QUANTIZED = [
    Case(
        f"quantized-{number}-{data_type.name}".lower(),
        with_outputs(
            quantized_desc(
                TensorDesc(data_type, sizes),
                window,
                to,
                *(None if kind == "-" else (1, sizes[1] if kind == "C" else 1, *(1,) * len(window)) for kind in counts),
                **dict(zip(("strides", "start_padding", "end_padding", "dilations"), steps, strict=True)),
                include_padding=number % 2 == 1,
            ),
            partial(spaced, gap=number % 4 == 3),
        ),
        (any_bits,) * (5 - counts.count("-")),
    )
    for number, ((sizes, window, *steps), data_type, to, counts) in enumerate(
        zip(
            (
                *WINDOW_SHAPES,
                ((1, 300, 2, 3), (2, 2), (1, 1), (0, 0), (0, 0), (1, 1)),
                # Sums over axes: whole planes, and strips of rows.
                ((2, 3, 16, 16), (16, 16), (1, 1), (0, 0), (0, 0), (1, 1)),
                ((1, 2, 3, 256), (1, 128), (1, 128), (0, 0), (0, 0), (1, 1)),
            ),
            itertools.cycle((UINT8, INT8)),
            itertools.cycle((UINT8, INT8, INT8)),
            itertools.cycle(("1-CC", "C11-", "1-1-", "CCCC")),
            strict=False,
        )
    )
]

# Gradients over similar windows; tensors have gaps of `gap` elements after their rows and planes.
GRADIENTS = [
    Case(
        f"gradient-{name}-{tag}-{data_type.name}".lower(),
        _gradient(kind, data_type, sizes, dict(zip(WINDOW_FIELDS, window, strict=True)), count, gap, **arguments),
        (fill,) * inputs + (any_bits,) * ("index_type" in arguments),
    )
    for name, kind, inputs, arguments in (
        ("maxima", MaxPoolingGradOperatorDesc, 2, {}),
        ("indices-32", MaxPoolingGradOperatorDesc, 1, {"index_type": UINT32}),
        ("indices-64", MaxPoolingGradOperatorDesc, 1, {"index_type": UINT64}),
        ("shares", AveragePoolingGradOperatorDesc, 1, {"include_padding": False}),
        ("padding", AveragePoolingGradOperatorDesc, 1, {"include_padding": True}),
    )
    for data_type in (FLOAT32, FLOAT16)
    for tag, sizes, window, count, gap, fill in (
        ("dense", (2, 3, 7, 9), ((3, 3), (1, 1), (1, 1), (1, 1), (1, 1)), None, 0, small),
        ("bits", (1, 2, 9, 12), ((2, 3), (1, 2), (0, 2), (1, 1), (1, 1)), None, 0, any_bits),
        ("apart", (1, 2, 9, 12), ((2, 2), (4, 3), (0, 0), (0, 1), (1, 1)), None, 0, small),
        ("ceil", (1, 2, 9, 10), ((3, 3), (2, 2), (1, 1), (0, 1), (1, 1)), (5, 6), 1, small),
        ("dilated", (1, 2, 9, 11), ((3, 2), (1, 2), (2, 1), (1, 3), (2, 3)), None, 0, small),
        ("separable", (1, 1, 16, 18), ((8, 9), (1, 1), (1, 0), (0, 2), (1, 1)), None, 0, small),
        ("separable-row", (1, 1, 1, 52), ((1, 26), (1, 1), (0, 0), (0, 0), (1, 1)), None, 0, small),
        ("global", (2, 2, 13, 17), ((13, 17), (1, 1), (0, 0), (0, 0), (1, 1)), None, 0, small),
        ("3-d", (1, 2, 4, 5, 6), ((2, 3, 2), (1, 2, 2), (1, 1, 0), (0, 2, 1), (1, 1, 1)), None, 2, small),
    )
    if tag != "dilated" or kind is MaxPoolingGradOperatorDesc
]

# Elements of every width, written to outputs with more and with fewer elements, packed and with gaps.
UNPOOLED = [
    Case(
        f"unpooled-{tag}-{data_type.name}-{index_type.name}".lower(),
        MaxUnpoolingOperatorDesc(
            spaced(TensorDesc(data_type, (3, 2, 5, 7)), gap),
            spaced(TensorDesc(index_type, (3, 2, 5, 7)), gap),
            spaced(TensorDesc(data_type, output), gap),
        ),
        (any_bits, any_bits),
    )
    for data_type, index_type in zip(WIDTHS, itertools.cycle((UINT64, UINT32)), strict=False)
    for tag, output, gap in (("more", (3, 2, 10, 14), 0), ("fewer", (3, 2, 2, 3), 0), ("gaps", (3, 2, 6, 5), 1))
]

# ROI_POOLING: layouts of all tensors, with all kinds of values.


def _roi_cases() -> Iterator[Case]:
    for data_type, (tag, source, rois, target, scale, fill, regions) in itertools.product(
        (FLOAT32, FLOAT16),
        (
            ("packed", None, None, None, 0.1, special_without_nan, any_bits),
            ("channels-last", (126, 1, 18, 2), None, None, 1, ties, any_bits),
            ("broadcast", (63, 0, 9, 1), (0, 0, 0, 1), None, 1.5, special, literal([1, 0.5, -1, 4, 2])),
            ("permuted", (1, 2, 4, 28), (1, 1, 1, 7), (1, 6, 12, 24), 1 / 3, any_bits, any_bits),
            ("gaps", (155, 75, 10, 1), (36, 36, 6, 1), (48, 16, 7, 1), 2.7e-3, distinct, any_bits),
        ),
    ):
        desc = RoiPoolingOperatorDesc.of(
            TensorDesc(data_type, (2, 2, 7, 9), source),
            (2, 3),
            scale,
            roi_tensor=TensorDesc(data_type, (1, 1, 6, 5), rois),
        )
        desc = with_outputs(desc, lambda output, strides=target: dataclasses.replace(output, strides=strides))
        yield Case(f"roi-{tag}-{data_type.name}".lower(), desc, (fill, regions))


ROIS = list(_roi_cases())

# TOP_K: lines with about as many elements as an item sorts, or a merge handles at a time; lines that are sorted as a
# whole, or by groups, the last of which is not full; every type; layouts of all tensors; sorted and reversed lines.


def _top_k_cases() -> Iterator[Case]:
    types, indices = itertools.cycle(ELEMENT_TYPES), itertools.cycle(INDEX_TYPES)
    directions = itertools.cycle((DECREASING, DECREASING, INCREASING))
    fills = itertools.cycle((ties, special, any_bits, distinct, special_without_nan))

    def case(tag: str, data_type: DataType, sizes: tuple[int, ...], axis: int, k: int, **strides: Any) -> Case:
        source = TensorDesc(data_type, sizes, strides.get("strides"))
        desc = TopK1OperatorDesc.of(source, k, axis, next(directions), indices_data_type=next(indices))
        for field in "output_value_tensor", "output_index_tensor":
            tensor = dataclasses.replace(getattr(desc, field), strides=strides.get(field))
            desc = dataclasses.replace(desc, **{field: tensor})
        fill = next(fills)
        return Case(f"top-k-{tag}-{data_type.name}-{desc.axis_direction.name}-{fill.__name__}".lower(), desc, (fill,))

    for n, k in (
        *((1, 1), (7, 7), (8, 8), (9, 8), (9, 9), (16, 16), (17, 15), (31, 30), (33, 33), (100, 1), (100, 2), (127, 8)),
        *((128, 8), (129, 9), (300, 16), (300, 17), (257, 256), (1000, 4), (1000, 15), (1030, 50), (5001, 3)),
    ):
        yield case(f"{n}-{k}", next(types), (3, n), 1, k)
    for data_type in ELEMENT_TYPES:
        yield case("type", data_type, (2, 21, 5), 1, 9)
        yield case("type-groups", data_type, (3, 2, 203), 2, 5)
    for data_type, (tag, strides) in zip(
        itertools.cycle(WIDTHS),
        {
            "padded-input": {"strides": (336, 16, 1)},
            "column-major-input": {"strides": (1, 2, 40)},
            "broadcast-lines": {"strides": (0, 15, 1)},
            "broadcast-elements": {"strides": (15, 0, 1)},
            "permuted-input": {"strides": (20, 1, 41)},
            "padded-values": {"output_value_tensor": (240, 17, 1)},
            "permuted-indices": {"output_index_tensor": (1, 2, 20)},
            "padded-outputs": {"output_value_tensor": (240, 17, 1), "output_index_tensor": (200, 16, 1)},
        }.items(),
        strict=False,
    ):
        yield case(tag, data_type, (2, 20, 15), 1, 10, **strides)
    # Axes between others: four dimensions that do not merge.
    yield case("between", UINT8, (2, 3, 9, 4, 3), 2, 4, strides=(1, 350, 2, 20, 100))
    for fill, k in itertools.product((least, distinct), (10, 90)):
        yield Case(f"top-k-{fill.__name__}-{k}", TopKOperatorDesc.of(TensorDesc(FLOAT32, (2, 90)), k), (fill,))
    for tag, step in ("sorted", 1), ("reversed", -1):
        x = np.arange(600)[::step]
        yield Case(f"top-k-{tag}", TopK1OperatorDesc.of(TensorDesc(INT16, (600,)), 30), (literal(x),))


TOP_K = list(_top_k_cases())

# CUMULATIVE_SUMMATION and CUMULATIVE_PRODUCT: lines of vectors, neighbouring lines of a vector, and others; lines that
# are divided into blocks; layouts of both tensors.


def _cumulative_cases() -> Iterator[Case]:
    options = itertools.cycle(itertools.product(AxisDirection, (False, True)))

    def case(
        tag: str, kind: Any, data_type: DataType, sizes: tuple[int, ...], axis: int, fill: Fill, **strides: Any
    ) -> Case:
        source, target = (TensorDesc(data_type, sizes, strides.get(name)) for name in ("source", "target"))
        direction, exclusive = next(options)
        desc = kind(source, target, axis, direction, exclusive)
        name = f"{kind.__name__.removesuffix('OperatorDesc')}-{tag}-{data_type.name}-{direction.name}-{fill.__name__}"
        return Case(f"{name}{'-exclusive' * exclusive}".lower(), desc, (fill,))

    for kind, types in (
        (CumulativeSummationOperatorDesc, (FLOAT32, FLOAT16, INT32, UINT64)),
        (CumulativeProductOperatorDesc, (FLOAT32, FLOAT16, UINT32, INT64)),
    ):
        usual = factors if kind is CumulativeProductOperatorDesc else distinct
        for data_type in types:
            yield case("rows", kind, data_type, (3, 64), 1, usual)
            yield case("columns", kind, data_type, (70, 16), 0, special_without_nan)
            yield case("ends", kind, data_type, (5, 37), 1, special)
            yield case("between", kind, data_type, (2, 9, 5), 1, usual)
            yield case("blocks", kind, data_type, (2, 2051), 1, usual)
    for tag, sizes, axis in ("rows", (1, 40_000), 1), ("columns", (4100, 4), 0):
        yield case(f"block-{tag}", CumulativeSummationOperatorDesc, FLOAT32, sizes, axis, small)
    for data_type, (tag, strides) in itertools.product(
        (FLOAT16, INT32),
        {
            "padded": {"source": (336, 16, 1), "target": (320, 16, 1)},
            "column-major-input": {"source": (1, 2, 40)},
            "broadcast-lines": {"source": (0, 15, 1)},
            "broadcast-elements": {"source": (15, 0, 1)},
            "permuted-output": {"target": (1, 2, 40)},
            "gaps": {"source": (640, 31, 2), "target": (320, 16, 1)},
        }.items(),
    ):
        yield case(tag, CumulativeSummationOperatorDesc, data_type, (2, 20, 15), 1, small, **strides)
        yield case(tag, CumulativeSummationOperatorDesc, data_type, (2, 20, 15), 2, small, **strides)


CUMULATIVE = list(_cumulative_cases())

# All layouts of a tensor: padded, permuted, broadcast, or combined.
STRIDED_ARGS = [
    _arg_case(f"{name}-{data_type.name.lower()}", ties, ArgmaxOperatorDesc, data_type, (4, 3, 5), axes, **strides)
    for data_type in WIDTHS
    for axes in ((0, 2),)
    for name, strides in {
        "padded-input": {"strides": (24, 8, 1)},
        "column-major-input": {"strides": (1, 4, 12)},
        "permuted-padded-input": {"strides": permuted_strides((4, 3, 5), (1, 0, 2), gap=3)},
        "broadcast-kept": {"strides": (5, 0, 1)},
        "broadcast-reduced": {"strides": (0, 5, 1)},
        "broadcast-all": {"strides": (0, 0, 0)},
        "overlapping-windows": {"strides": (1, 2, 1)},
        "padded-output": {"output_strides": (9, 3, 1)},
        "size-1-strides-are-free": {"output_strides": (1000, 1, 7777)},
    }.items()
] + [
    _arg_case(f"permuted-output-{index_type.name.lower()}", any_bits, ArgminOperatorDesc, INT8, (4, 3, 5, 2), [3],
              index_type=index_type, output_strides=permuted_strides((4, 3, 5, 1), (2, 0, 3, 1), gap=gap))
    for gap, index_type in enumerate(INDEX_TYPES)
]  # fmt: skip

# Values with their indices, which no operator of DirectML computes: every type; rows and columns that kernels write
# directly, and that several invocations share; outputs that share words; several axes; layouts of the input and of
# either output.


def _extremum_cases() -> Iterator[Case]:
    functions = itertools.cycle((ReduceFunction.MAX, ReduceFunction.MIN))
    index_types = itertools.cycle(INDEX_TYPES)
    for data_type in ELEMENT_TYPES:
        for name, sizes, axes, fill in (
            ("rows", (7, 69), (1,), ties),
            ("columns", (9, 67), (0,), special),
            ("short-rows", (21, 3), (1,), any_bits),
            ("between", (4, 6, 5), (0, 2), special_without_nan),
            ("long", (2, 9000), (1,), ties),
            ("one", (5, 1), (1,), any_bits),
        ):
            if data_type in WIDTHS or data_type is FLOAT32 or name in ("rows", "columns"):
                function, index_type = next(functions), next(index_types)
                yield Case(
                    f"extremum-{function.name}-{data_type.name}-{name}".lower(),
                    extremum_desc(function, data_type, sizes, axes, index_type),
                    (fill,),
                )
    for data_type, (name, strides) in itertools.product(
        WIDTHS,
        {
            "padded-input": {"strides": (24, 8, 1)},
            "column-major-input": {"strides": (1, 4, 12)},
            "broadcast-input": {"strides": (0, 5, 1)},
            "padded-output": {"output_strides": (9, 3, 1)},
            "padded-indices": {"indices_strides": (9, 3, 1)},
            "padded-outputs": {"output_strides": (9, 3, 1), "indices_strides": (7, 2, 1)},
            "size-1-strides-are-free": {"output_strides": (1000, 1, 7777), "indices_strides": (3, 1, 5)},
        }.items(),
    ):
        desc = extremum_desc(next(functions), data_type, (4, 3, 5), (0, 2), next(index_types), **strides)
        yield Case(f"extremum-{name}-{data_type.name.lower()}", desc, (ties,))


EXTREMA = list(_extremum_cases())

# MAX_POOLING


def _pool_case(id: str, fill: Fill, *args: Any, **kwargs: Any) -> Case:
    return Case(id, pool_desc(*args, **kwargs), (fill,))


POOLED_TYPES = [
    _pool_case(
        f"pool-{data_type.name}-{indices.name if indices else 'none'}-{fill.__name__}".lower(),
        fill,
        data_type,
        (2, 3, 5, 7),
        (3, 2),
        (1, 2),
        (1, 0),
        (0, 1),
        (1, 2),
        indices,
    )
    for i, data_type in enumerate(ELEMENT_TYPES)
    for j, fill in enumerate((ties, any_bits, negative, special))
    for k, indices in enumerate((None, UINT32, UINT64))
    # Floats have special values in every combination; a type of each width has every kind of indices.
    if (i + j) % 3 == k or data_type in (FLOAT16, FLOAT32) or (data_type in WIDTHS and fill is ties)
]
POOLED_TYPES_3D = [
    _pool_case(
        f"pool-3d-{data_type.name.lower()}",
        any_bits,
        data_type,
        (1, 2, 3, 5, 7),
        (2, 3, 2),
        (1, 2, 1),
        (1, 1, 0),
        (0, 1, 1),
        (1, 1, 3),
        indices,
    )
    for data_type, indices in zip((*WIDTHS, FLOAT32), itertools.cycle((UINT32, UINT64, None)))
]

# Only the least value, so that an element of the padding or beside a row wins if it counts at all.
POOLED_LEAST = [
    _pool_case(
        f"pool-{tag}-{data_type.name.lower()}", fill, data_type, (2, 2, 7, 9), (3, 2), (2, 1), (2, 1), (2, 1), (2, 2)
    )
    for tag, fill, types in (
        ("least", least, (INT8, INT16, INT32, INT64, UINT8, FLOAT16, FLOAT32)),
        ("negative-zeros", negative_zeros, (FLOAT16, FLOAT32)),
    )
    for data_type in types
]

POOLED_EDGES = [
    _pool_case("window-1", any_bits, INT8, (3, 2, 3, 5), (1, 1)),
    _pool_case("window-1-stride-3", any_bits, INT8, (3, 2, 7, 5), (1, 1), (3, 3)),
    _pool_case("window-is-input", any_bits, INT16, (2, 3, 4, 5), (4, 5)),
    _pool_case("window-is-padded-input", any_bits, INT16, (2, 3, 4, 5), (6, 8), None, (1, 2), (1, 1)),
    _pool_case("window-larger-than-input", any_bits, UINT8, (1, 2, 3, 3), (5, 5), None, (2, 2), (2, 2)),
    _pool_case("one-element", any_bits, FLOAT32, (1, 1, 1, 1), (1, 1)),
    _pool_case("padding-around-one-element", any_bits, FLOAT32, (1, 1, 1, 1), (3, 3), None, (2, 2), (2, 2)),
    _pool_case("many-planes", any_bits, UINT8, (13, 17, 2, 3), (2, 2)),
    _pool_case("one-row", distinct, INT32, (1, 1, 1, 200), (1, 7), (1, 3)),
    _pool_case("one-column", distinct, INT32, (1, 1, 200, 1), (7, 1), (3, 1)),
    _pool_case("stride-larger-than-window", distinct, INT32, (1, 2, 13, 17), (2, 2), (5, 4)),
    _pool_case("dilation-larger-than-output", distinct, INT32, (1, 2, 13, 17), (3, 2), None, None, None, (5, 11)),
    # Window 0 begins in the padding; the dilation puts its second element into the input.
    _pool_case("dilation-over-padding", distinct, INT32, (1, 1, 4, 4), (2, 2), None, (3, 3), (3, 3), (3, 3)),
    _pool_case("ceil", distinct, INT32, (1, 2, 8, 9), (3, 2), (3, 4), ceil=True),
    _pool_case("ceil-padded", distinct, UINT8, (2, 1, 8, 9), (3, 3), (2, 2), (1, 1), (1, 0), ceil=True),
    _pool_case("ceil-3d", distinct, INT16, (1, 2, 7, 5, 8), (2, 2, 3), (3, 2, 2), ceil=True),
    _pool_case("no-indices-ceil", distinct, INT16, (1, 3, 7, 7), (2, 2), (3, 2), indices=None, ceil=True),
]

# Small windows: rows that are whole tiles or vectors, or not; rows that windows share, or not; borders on all sides.
# Not in CASES, because with lowered limits these have thousands of dispatches.
SMALL_WINDOWS = [
    _pool_case(
        f"small-window-{'x'.join(map(str, sizes[2:]))}-{tag}-{data_type.name.lower()}",
        fill,
        data_type,
        sizes,
        *window,
        indices=indices,
    )
    for i, (data_type, fill, indices) in enumerate(
        (
            (FLOAT32, special, UINT32),
            (INT32, ties, None),
            (FLOAT16, special, UINT64),
            (UINT8, ties, UINT32),
            (INT64, ties, UINT64),
            (INT8, least, UINT32),
            (INT64, least, UINT32),
        )
    )
    for j, (tag, sizes, window) in enumerate(
        (
            ("aligned", (1, 2, 9, 32), ((3, 3), (1, 1), (1, 1), (1, 1))),
            ("aligned-stride-2", (2, 1, 8, 64), ((3, 3), (2, 2), (1, 1), (1, 1))),
            ("unaligned", (1, 2, 7, 37), ((2, 2), (1, 1), (0, 0), (0, 1))),
            ("stride-2", (1, 2, 11, 35), ((3, 3), (2, 2), (1, 1), (1, 2))),
            ("stride-3", (1, 1, 13, 49), ((2, 3), (3, 3), (0, 1), (0, 0))),
            ("dilation", (1, 2, 12, 36), ((3, 3), (1, 1), (2, 2), (2, 2), (2, 2))),
            ("stride-and-dilation", (1, 1, 17, 40), ((3, 2), (2, 2), (3, 1), (3, 1), (3, 3))),
            ("far-rows", (1, 1, 40, 16), ((3, 1), (1, 1), (12, 0), (12, 0), (12, 1))),
            ("5x5", (1, 1, 8, 24), ((5, 5), (1, 1), (2, 2), (2, 2))),
            ("7x7", (1, 1, 12, 16), ((7, 7), (2, 2), (3, 3), (3, 3))),
            ("9x9", (1, 1, 19, 24), ((9, 9), (1, 2), (4, 4), (4, 4))),
            ("15x2", (1, 2, 33, 20), ((15, 2), (1, 1), (7, 0), (7, 1))),
            ("2x15", (1, 1, 5, 48), ((2, 15), (2, 1), (0, 14), (1, 14))),
            ("1x4", (1, 2, 3, 50), ((1, 4), (1, 4), (0, 3), (0, 3))),
            ("3-d", (1, 2, 5, 6, 20), ((3, 2, 3), (2, 1, 1), (1, 1, 1), (1, 0, 1), (1, 1, 1))),
            ("3-d-dilation", (1, 1, 6, 7, 16), ((2, 3, 2), (1, 2, 1), (0, 2, 1), (1, 2, 1), (2, 2, 1))),
        )
    )
    # Only two or three types for each window, because each needs another pipeline.
    if (i + j) % 3 == 0
]
# Windows whose rows are loaded as vectors.
LONG_WINDOWS = [
    _pool_case(f"long-window-{tag}-{data_type.name.lower()}", ties, data_type, *args)
    for data_type in (UINT8, FLOAT16, FLOAT32, UINT64)
    for tag, args in {
        "global": ((2, 3, 3, 64), (3, 64)),
        "global-unaligned": ((2, 3, 3, 53), (3, 53)),
        "padded": ((1, 2, 2, 70), (2, 41), (1, 3), (1, 5), (1, 17)),
        "3-d": ((1, 2, 3, 2, 48), (2, 2, 48)),
        # Rows and strides of whole vectors, except for the padding.
        "strided": ((1, 2, 3, 128), (2, 48), (1, 16), (0, 3)),
    }.items()
]

# Windows in separable passes: tiles of all lengths, borders and overhanging ends, rows that are whole vectors or share
# words, residue classes of a dilation, one dimension or three. Small ones fit in a segment of lowered limits.
SEPARABLE = [
    _pool_case(
        f"separable-{tag}-{data_type.name}-{indices.name if indices else 'none'}".lower(),
        fill,
        data_type,
        sizes,
        *window,
        indices=indices,
        ceil=tag == "ceil",
    )
    for tag, types, sizes, *window in (
        ("small", "abcdef", (1, 1, 2, 9), (2, 8), None, (0, 3), (1, 2)),
        ("small-row", "bcde", (1, 2, 1, 14), (1, 9)),
        ("vectors", "be", (1, 2, 20, 29), (9, 10), None, (4, 2), (3, 2)),
        ("shared", "cd", (2, 1, 11, 21), (17, 15), None, (9, 8), (16, 8)),
        ("ceil", "af", (1, 2, 30, 23), (12, 9), (2, 3), (5, 4), (5, 4)),
        ("dilated", "bd", (1, 2, 26, 31), (8, 9), (1, 2), (7, 5), (8, 6), (3, 4)),
        ("columns", "bc", (1, 2, 40, 7), (20, 1), None, (10, 0), (9, 0)),
        ("row", "be", (1, 1, 3, 44), (2, 17), None, (0, 8), (1, 8)),
        ("tiny", "be", (1, 1, 2, 16), (2, 16), None, (1, 2), (1, 3)),
        ("tiny-vectors", "e", (1, 1, 1, 32), (1, 18), (1, 14)),
        ("tiny-words", "cd", (1, 1, 2, 28), (2, 17)),
        ("3-d", "bf", (1, 2, 9, 10, 12), (4, 8, 5), (1, 1, 2), (2, 3, 0), (1, 4, 2), (2, 1, 1)),
    )
    for data_type, fill, indices in (
        {
            "a": (FLOAT32, special, None),
            "b": (FLOAT32, special, UINT32),
            "c": (FLOAT16, ties, UINT32),
            "d": (INT8, least, UINT64),
            "e": (FLOAT64, special, UINT64),
            "f": (INT64, least, None),
        }[letter]
        for letter in types
    )
]

# Separable passes over tensors with gaps between planes, slabs or rows, as in views of larger tensors, or with planes
# or slabs that overlap in whole rows. Not in CASES, for the reason of SMALL_WINDOWS.
SEPARABLE_STRIDED = [
    _pool_case(f"separable-{tag}", distinct, INT32, sizes, window, steps, input_strides=strides)
    for tag, sizes, window, steps, strides in (
        ("planes-apart", (2, 3, 30, 29), (9, 9), None, (3480, 1160, 29, 1)),
        ("batches-apart", (2, 3, 30, 29), (9, 9), None, (3480, 870, 29, 1)),
        ("rows-apart", (2, 3, 30, 29), (9, 9), None, (2880, 960, 32, 1)),
        ("one-channel", (3, 1, 30, 29), (9, 9), None, (1160, 7, 29, 1)),
        ("slabs-apart", (1, 2, 4, 20, 29), (2, 9, 9), None, (4640, 2320, 580 + 29, 29, 1)),
        ("slabs-left-out", (1, 2, 6, 20, 29), (2, 9, 9), (3, 1, 1), None),
        ("planes-overlap", (1, 3, 30, 29), (9, 9), (2, 1), (841, 841, 29, 1)),
        ("slabs-overlap", (1, 1, 3, 30, 29), (3, 9, 9), (1, 2, 1), (9999, 9999, 841, 29, 1)),
    )
]

# Outputs with gaps between their rows.
POOLED_GAPS = [
    Case(
        f"pool-gaps-{data_type.name.lower()}",
        MaxPooling2OperatorDesc(
            **vars(pool_desc(data_type, (1, 2, 5, 7), (2, 3), indices=None))
            | {"output_tensor": TensorDesc(data_type, (1, 2, 4, 5), (64, 32, 8, 1))}
        ),
        (ties,),
    )
    for data_type in WIDTHS
]

# Windows that end near 2^32 or beyond, over few elements.
FAR_WINDOWS = [
    Case(
        f"far-{tag}-{data_type.name}-{indices.name if indices else 'none'}".lower(),
        pool_desc(data_type, sizes, *window, indices=indices, ceil=True),
        (fill,),
    )
    for data_type, indices, fill in (
        (FLOAT32, UINT32, distinct),
        (UINT8, UINT64, distinct),
        (INT64, None, distinct),
        # No element exceeds the initial value, so the initial index must not be one in the padding.
        (INT16, UINT32, least),
    )
    for tag, sizes, *window in (
        ("height", (1, 1, 12, 5), (2, 2), (7, 1), None, (2**32 - 13, 0), (2**32 - 4, 1)),
        ("depth", (1, 1, 12, 3, 4), (2, 1, 1), (7, 1, 1), None, (2**32 - 13, 0, 0), (2**32 - 4, 1, 1)),
        ("width", (1, 2, 3, 4), (2, 2), None, None, (0, 2**32 - 8), (1, 2**32 - 5)),
        ("width-stride", (1, 2, 2, 12), (2, 2), (1, 7), None, (0, 2**32 - 13), (1, 2**32 - 4)),
        ("start-padding", (1, 2, 8, 4), (2, 1), None, (2**32 - 11, 0), None, (2**32 - 9, 1)),
        ("both-paddings", (1, 2, 4, 4), (3, 1), None, (2**31 - 3, 0), (2**31 - 6, 0), (2**31 - 3, 1)),
        ("stride", (1, 2, 12, 4), (2, 1), (2**32 - 3, 1), (2**32 - 14, 0), (1, 0), (2**32 - 3, 1)),
        ("half-stride", (1, 2, 4, 4), (2, 1), (2**31 - 6, 1), (2**31 - 7, 0), (2**31 - 7, 0), (2**31 - 5, 1)),
        ("one-row", (1, 2, 1, 4), (1, 1), (2**32 - 1, 1), None, None, (2**32 - 1, 2**32 - 1)),
    )
]

POOLED_STRIDED = [
    _pool_case(
        f"pool-{name}-{data_type.name.lower()}",
        ties,
        data_type,
        (2, 3, 4, 5),
        (2, 3),
        (1, 1),
        (1, 0),
        (0, 1),
        input_strides=strides,
    )
    for data_type in WIDTHS
    for name, strides in {
        "channels-last": permuted_strides((2, 3, 4, 5), (0, 2, 3, 1)),
        "padded-rows": (96, 32, 8, 1),
        "batch-innermost": permuted_strides((2, 3, 4, 5), (1, 2, 3, 0), gap=1),
        "broadcast-batch": (0, 20, 5, 1),
        "broadcast-channel": (20, 0, 5, 1),
        "broadcast-rows": (15, 5, 0, 1),
        "broadcast-all": (0, 0, 0, 0),
    }.items()
]


def _earlier_descs() -> list[Case]:
    cases = []
    for rank, data_type in ((4, FLOAT32), (4, UINT8), (5, FLOAT16), (5, INT64)):
        new = pool_desc(data_type, (2, 1, 4, 5, 6)[:rank], (2,) * (rank - 2), (2,) * (rank - 2), (1,) * (rank - 2))
        fields = {name: value for name, value in vars(new).items() if name != "dilations"}
        tag = f"{rank}d-{data_type.name.lower()}"
        cases.append(Case(f"max-pooling1-{tag}", MaxPooling1OperatorDesc(**fields), (any_bits,)))
        cases.append(
            Case(
                f"max-pooling1-{tag}-none",
                MaxPooling1OperatorDesc(**{**fields, "output_indices_tensor": None}),
                (any_bits,),
            )
        )
        del fields["output_indices_tensor"]
        cases.append(Case(f"max-pooling-{tag}", MaxPoolingOperatorDesc(**fields), (any_bits,)))
    return cases


EARLIER_POOLINGS = _earlier_descs()


def _sample_cases() -> Iterator[Case]:
    """The samples of every operator of the registry, with types and options in turn."""
    for operator in OPERATORS:
        combinations = zip(
            operator.samples,
            itertools.cycle(operator.data_types),
            itertools.cycle(itertools.product(*operator.options.values())),
        )
        for number, (sample, data_type, values) in enumerate(combinations):
            desc = operator.on(sample, data_type, **dict(zip(operator.options, values, strict=True)))
            name = f"{operator.name}-sample-{number}".lower().replace(" ", "-")
            yield Case(name, desc, (any_bits,) * len(desc.inputs))


SAMPLES = list(_sample_cases())


def samples(operators: Iterable[Operator] = OPERATORS) -> list[Case]:
    """All samples of operators, with every type, all options, exact and rounded sums, and several kinds of values."""
    return [
        Case(f"{operator.name}-{number}-{fill.__name__}", desc, (fill,) * len(desc.inputs), flags=flags)
        for operator in operators
        for number, desc in enumerate(operator.descs())
        for flags in (ExecutionFlags.NONE, *[ExecutionFlags.EXACT_SUMS] * sums_can_be_exact(desc))
        for fill in fills_of(desc, flags)
    ]


def fills_of(desc: OperatorDesc, flags: ExecutionFlags = ExecutionFlags.NONE) -> tuple[Fill, ...]:
    """The fills for an operator. Sums of small integers are exact, so that no bound hides a missing element."""
    if not is_exact(desc, flags):
        return small, normal, few_extremes
    is_float = desc.inputs[0].data_type.numpy.kind == "f"
    return (special_without_nan, any_bits, few_nan) if is_float else (special, any_bits)


# Sums that are rounded once.
EXACT = [
    dataclasses.replace(case, id=f"exact-{case.id}", flags=ExecutionFlags.EXACT_SUMS)
    for case in (*REDUCED, *SUMMED_WINDOWS, *CUMULATIVE, *SAMPLES)
    if sums_can_be_exact(case.desc)
] + [
    # More than 2^10 elements: the exact sums of such windows of float32 need another digit.
    Case(
        f"exact-average-high-{data_type.name}".lower(),
        AveragePooling1OperatorDesc.of(TensorDesc(data_type, (1, 2, 40, 38)), (33, 34)),
        (small,),
        flags=ExecutionFlags.EXACT_SUMS,
    )
    for data_type in (FLOAT32, FLOAT16)
]

# Indices beyond 2^16, and beyond 2^24, where float32 lacks integers. Not in CASES, for the reason of SMALL_WINDOWS.
LARGE_INDICES = [
    *(
        _arg_case(
            f"large-{_name(kind)}-{count}", rising, kind, UINT8, (1, count), [1], DECREASING if last else INCREASING
        )
        for kind in ARG_KINDS
        for count, last in ((70_001, True), (70_001, False), ((1 << 24) + 4, False))
    ),
    Case("large-top-k", TopK1OperatorDesc.of(TensorDesc(FLOAT32, (1, 70_001)), 5), (distinct,)),
    _pool_case("large-pool", distinct, FLOAT32, (1, 1, 270, 260), (2, 2), (2, 2)),
]

# Rows of few outputs, such as the channels of an image (H, W, C), of so many elements that each has several columns.
# Not in CASES, for the reason of SMALL_WINDOWS.
FEW_OUTPUTS = [
    _arg_case(
        f"few-outputs-{data_type.name.lower()}-{direction.name.lower()}",
        ties,
        kind,
        data_type,
        (8209, 7),
        [0],
        direction,
    )
    for data_type in WIDTHS
    for kind, direction in zip(ARG_KINDS, AxisDirection, strict=True)
]

# All lists above whose cases are small enough to run on every device with any limits.
CASES = [
    *DOCUMENTED,
    *TYPE_PAIRS,
    *RANKS,
    *AXES_OF_RANK_4,
    *AXES_OF_RANK_8,
    *BOUNDARIES,
    *ROWS_AND_COLUMNS,
    *ROWS_WITH_ENDS,
    *SPECIAL_ARGS,
    *REDUCTIONS,
    *REDUCED,
    *EXTREME_ROWS,
    *SUMMED_WINDOWS,
    *QUANTIZED,
    *GRADIENTS,
    *UNPOOLED,
    *ROIS,
    *TOP_K,
    *CUMULATIVE,
    *STRIDED_ARGS,
    *EXTREMA,
    *POOLED_TYPES,
    *POOLED_TYPES_3D,
    *POOLED_LEAST,
    *POOLED_EDGES,
    *LONG_WINDOWS,
    *SEPARABLE,
    *POOLED_GAPS,
    *FAR_WINDOWS,
    *POOLED_STRIDED,
    *EARLIER_POOLINGS,
    *SAMPLES,
    *EXACT,
]
# CASES, and those with thousands of dispatches: what `dmlgpu verify --all` and `dmlgpu.testing` run.
ALL_CASES = [*CASES, *SMALL_WINDOWS, *SEPARABLE_STRIDED, *LARGE_INDICES, *FEW_OUTPUTS]
# CASES by operator.
CASES_OF = {kind: [case for case in CASES if type(case.desc) is kind] for kind in map(type, (c.desc for c in CASES))}
UNDESCRIBED = [
    *(
        Undescribed(f"empty-{name}-{tag}", name, sizes, axes, expected=expected)
        for name in ("argmax", "argmin", "max", "min")
        for tag, sizes, axes, expected in (
            ("kept", (0, 3), (1,), ((0,),)),
            ("kept-between", (2, 0, 3), (2,), ((2, 0),)),
            ("reduced", (0, 3), (0,), None),
            ("all", (0,), (0,), None),
        )
    ),
    *(
        Undescribed(f"empty-max-pooling-{tag}", "max_pooling", sizes, window=window, expected=expected)
        for tag, sizes, window, expected in (
            ("batch", (0, 2, 4, 5), ((2, 3), (1, 1), (0, 0), (0, 0), (1, 1)), ((0, 2, 3, 3),)),
            ("channels", (2, 0, 4, 5), ((2, 3), (1, 1), (0, 0), (0, 0), (1, 1)), ((2, 0, 3, 3),)),
            ("row", (1, 2, 0, 5), ((1, 1), (1, 1), (0, 0), (0, 0), (1, 1)), None),
        )
    ),
    # Windows of two rows, one above and one below the only row. PyTorch 2.13 writes their gradient beyond the tensor.
    Undescribed(
        "padding-alone",
        "max_pooling_gradient",
        (2, 4, 1, 17),
        window=((2, 4), (2, 3), (1, 1), (1, 1), (2, 2)),
        data_type=FLOAT64,
        expected=(),
    ),
]
