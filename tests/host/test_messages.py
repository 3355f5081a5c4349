"""Every way to get a descriptor wrong, and the whole text that says so."""

import numpy as np
import pytest

from dmlgpu import (
    ArgmaxOperatorDesc,
    ArgminOperatorDesc,
    DataType,
    DescriptorError,
    MaxPooling1OperatorDesc,
    MaxPooling2OperatorDesc,
    MaxPoolingOperatorDesc,
    ReduceFunction,
    ReduceOperatorDesc,
    TensorDesc,
    argmax,
    argmin,
    average_pooling,
    average_pooling_grad,
    max_pooling,
    max_pooling_grad,
    max_unpooling,
    reduce,
)
from tests.support.cases import FLOAT32, INT16, INT32, NO_END, UINT8, UINT32

TYPES = "FLOAT32, FLOAT16, UINT32, UINT16, UINT8, INT32, INT16, INT8, FLOAT64, UINT64, INT64, UINT4, INT4"
ROWS = np.zeros((2, 3), np.float32)
IMAGE = np.zeros((1, 1, 3, 3), np.float32)


def described(tensor):
    """Arguments of a TensorDesc as one; anything else as it is."""
    return TensorDesc(*tensor) if isinstance(tensor, tuple) else tensor


def arg(i=(FLOAT32, (2, 3)), o=(UINT32, (2, 1)), axes=(1,), *direction):
    """A valid descriptor, but for what is given."""
    return ArgmaxOperatorDesc(described(i), described(o), axes, *direction)


def pool(i=(FLOAT32, (1, 2, 5, 6)), o=(FLOAT32, (1, 2, 4, 5)), q=None, **window):
    """A valid descriptor, but for what is given."""
    valid = {
        "strides": (1, 1),
        "window_size": (2, 2),
        "start_padding": (0, 0),
        "end_padding": (0, 0),
        "dilations": (1, 1),
    }
    return MaxPooling2OperatorDesc(described(i), described(o), described(q), **valid | window)


TENSOR = [
    (
        lambda: TensorDesc(DataType.UNKNOWN, (1,)),
        f"TensorDesc.data_type: DataType.UNKNOWN is not allowed; allowed are {TYPES}",
    ),
    (lambda: TensorDesc(True, (1,)), f"TensorDesc.data_type: True is not allowed; allowed are {TYPES}"),
    (lambda: TensorDesc(14, (1,)), f"TensorDesc.data_type: 14 is not allowed; allowed are {TYPES}"),
    (lambda: TensorDesc("FLOAT32", (1,)), f"TensorDesc.data_type: 'FLOAT32' is not allowed; allowed are {TYPES}"),
    (
        lambda: TensorDesc(np.zeros(0), (1,)),
        f"TensorDesc.data_type: array([], dtype=float64) is not allowed; allowed are {TYPES}",
    ),
    (lambda: TensorDesc(None, (1,)), f"TensorDesc.data_type: None is not allowed; allowed are {TYPES}"),
    (lambda: TensorDesc(FLOAT32, 5), "TensorDesc.sizes: 5 is not a sequence of integers"),
    (lambda: TensorDesc(FLOAT32, "12"), "TensorDesc.sizes: '12' is not a sequence of integers"),
    (lambda: TensorDesc(FLOAT32, None), "TensorDesc.sizes: None is not a sequence of integers"),
    (lambda: TensorDesc(FLOAT32, (1, 2.0)), "TensorDesc.sizes[1]: 2.0 is not an integer"),
    (lambda: TensorDesc(FLOAT32, (1, "2")), "TensorDesc.sizes[1]: '2' is not an integer"),
    (lambda: TensorDesc(FLOAT32, (4, 0)), "TensorDesc.sizes[1]: 0 is not allowed; it must be 1 to 4294967295"),
    (lambda: TensorDesc(FLOAT32, (4, -1)), "TensorDesc.sizes[1]: -1 is not allowed; it must be 1 to 4294967295"),
    (
        lambda: TensorDesc(FLOAT32, (2**32,)),
        "TensorDesc.sizes[0]: 4294967296 is not allowed; it must be 1 to 4294967295",
    ),
    (lambda: TensorDesc(FLOAT32, ()), "TensorDesc.sizes: 0 dimensions; allowed are 1 to 8"),
    (lambda: TensorDesc(FLOAT32, (1,) * 9), "TensorDesc.sizes: 9 dimensions; allowed are 1 to 8"),
    (
        lambda: TensorDesc(FLOAT32, (2**16, 2**16)),
        "TensorDesc.sizes: (65536, 65536) has 4294967296 elements; at most 4294967295 are allowed",
    ),
    (lambda: TensorDesc(FLOAT32, (2, 3), 1), "TensorDesc.strides: 1 is not a sequence of integers"),
    (lambda: TensorDesc(FLOAT32, (2, 3), (3,)), "TensorDesc.strides: 1 strides for 2 sizes; give one for each"),
    (lambda: TensorDesc(FLOAT32, (2, 3), ()), "TensorDesc.strides: 0 strides for 2 sizes; give one for each"),
    (lambda: TensorDesc(FLOAT32, (2, 3), (3, 1, 1)), "TensorDesc.strides: 3 strides for 2 sizes; give one for each"),
    (
        lambda: TensorDesc(FLOAT32, (2, 3), (3, -1)),
        "TensorDesc.strides[1]: -1 is not allowed; it must be 0 to 4294967295",
    ),
    (lambda: TensorDesc(FLOAT32, (2, 3), (3, 0.5)), "TensorDesc.strides[1]: 0.5 is not an integer"),
    (
        lambda: TensorDesc(FLOAT32, (2, 3), (2**32, 1)),
        "TensorDesc.strides[0]: 4294967296 is not allowed; it must be 0 to 4294967295",
    ),
    (
        lambda: TensorDesc(FLOAT32, (2, 3), (2**32 - 2, 1)),
        "TensorDesc.strides: (4294967294, 1) reach 4294967297 elements far; at most 4294967295 are allowed",
    ),
    (
        lambda: TensorDesc(FLOAT32, (2, 3), None, 20),
        "TensorDesc.total_tensor_size_in_bytes: 20 is too small; the sizes and strides need at least 24",
    ),
    (
        lambda: TensorDesc(FLOAT32, (2, 3), None, 2**64),
        "TensorDesc.total_tensor_size_in_bytes: 18446744073709551616 is too large; "
        "at most 18446744073709551615 are allowed",
    ),
    (
        lambda: TensorDesc(FLOAT32, (10**5000,)),
        "TensorDesc.sizes[0]: int too long to print is not allowed; it must be 1 to 4294967295",
    ),
    (
        lambda: TensorDesc(10**5000, (1,)),
        f"TensorDesc.data_type: int too long to print is not allowed; allowed are {TYPES}",
    ),
    (
        lambda: TensorDesc(FLOAT32, range(10**12)),
        "TensorDesc.sizes: range(0, 1000000000000) has more entries than the 8 of any tensor",
    ),
    (lambda: TensorDesc(FLOAT32, "1" * 1000), f"TensorDesc.sizes: '{'1' * 199}... is not a sequence of integers"),
    (
        lambda: TensorDesc(FLOAT32, (2, 3), (8, 1), 40),
        "TensorDesc.total_tensor_size_in_bytes: 40 is too small; the sizes and strides need at least 44",
    ),
    (
        lambda: TensorDesc(UINT8, (5,), None, 5),
        "TensorDesc.total_tensor_size_in_bytes: 5 is too small; the sizes and strides need at least 8",
    ),
    (
        lambda: TensorDesc(FLOAT32, (2, 3), None, -1),
        "TensorDesc.total_tensor_size_in_bytes: -1 is too small; the sizes and strides need at least 24",
    ),
    (lambda: TensorDesc(FLOAT32, (1,), None, True), "TensorDesc.total_tensor_size_in_bytes: True is not an integer"),
    (lambda: TensorDesc(FLOAT32, (2, 3), None, 24.0), "TensorDesc.total_tensor_size_in_bytes: 24.0 is not an integer"),
    (
        lambda: TensorDesc.of(np.zeros((2, 3), np.float32)[::-1]),
        (
            "TensorDesc.strides: the array's strides of (-12, 4) bytes are negative or no multiple of its element"
            " size 4; copy it with numpy.ascontiguousarray"
        ),
    ),
    (
        lambda: TensorDesc.of(np.zeros(4, [("a", "u1"), ("b", "f4")])["b"]),
        (
            "TensorDesc.strides: the array's strides of (5,) bytes are negative or no multiple of its element "
            "size 4; copy it with numpy.ascontiguousarray"
        ),
    ),
    (
        lambda: TensorDesc.of(np.zeros(4, complex)),
        (
            "TensorDesc.data_type: NumPy type complex128 has no DirectML data type; allowed are float32, float16, "
            "uint32, uint16, uint8, int32, int16, int8, float64, uint64, int64"
        ),
    ),
    (lambda: TensorDesc.of(np.float32(1)), "TensorDesc.sizes: 0 dimensions; allowed are 1 to 8"),
]

ARG = [
    (lambda: arg(None), "ArgmaxOperatorDesc.input_tensor: None is not a TensorDesc"),
    (lambda: arg(o=None), "ArgmaxOperatorDesc.output_tensor: None is not a TensorDesc"),
    (
        lambda: arg(o=(INT16, (2, 1))),
        (
            "ArgmaxOperatorDesc.output_tensor.data_type: INT16 is not supported; allowed are INT64, INT32, "
            "UINT64, UINT32"
        ),
    ),
    (lambda: arg(axes=()), "ArgmaxOperatorDesc.axes: () is empty; at least one axis is needed"),
    (lambda: arg(axes=1), "ArgmaxOperatorDesc.axes: 1 is not a sequence of integers"),
    (lambda: arg(axes=None), "ArgmaxOperatorDesc.axes: None is not a sequence of integers"),
    (lambda: arg(axes=True), "ArgmaxOperatorDesc.axes: True is not a sequence of integers"),
    (lambda: arg(axes=(True,)), "ArgmaxOperatorDesc.axes[0]: True is not an integer"),
    (lambda: arg(axes=(np.True_,)), f"ArgmaxOperatorDesc.axes[0]: {np.True_!r} is not an integer"),
    (lambda: arg(axes="1"), "ArgmaxOperatorDesc.axes: '1' is not a sequence of integers"),
    (lambda: arg(axes=(2,)), "ArgmaxOperatorDesc.axes[0]: 2 is out of range; allowed are 0 to 1"),
    (lambda: arg(axes=(-1,)), "ArgmaxOperatorDesc.axes[0]: -1 is out of range; allowed are 0 to 1"),
    (lambda: arg(axes=(1.0,)), "ArgmaxOperatorDesc.axes[0]: 1.0 is not an integer"),
    (lambda: arg(axes=(1, 1)), "ArgmaxOperatorDesc.axes[1]: 1 is given twice; every axis may be given once"),
    (lambda: arg(axes=(0, 1, 0)), "ArgmaxOperatorDesc.axes[2]: 0 is given twice; every axis may be given once"),
    (
        lambda: arg(o=(UINT32, (2,))),
        (
            "ArgmaxOperatorDesc.output_tensor.sizes: (2,) has 1 dimensions; expected (2, 1), the input's sizes "
            "with 1 on every reduced axis"
        ),
    ),
    (
        lambda: arg(o=(UINT32, (2, 1, 1))),
        (
            "ArgmaxOperatorDesc.output_tensor.sizes: (2, 1, 1) has 3 dimensions; expected (2, 1), the input's "
            "sizes with 1 on every reduced axis"
        ),
    ),
    (
        lambda: arg(o=(UINT32, (2, 3))),
        (
            "ArgmaxOperatorDesc.output_tensor.sizes[1]: 3 is wrong; expected 1 of (2, 1), the input's sizes with "
            "1 on every reduced axis"
        ),
    ),
    (
        lambda: arg(o=(UINT32, (1, 1))),
        (
            "ArgmaxOperatorDesc.output_tensor.sizes[0]: 1 is wrong; expected 2 of (2, 1), the input's sizes with "
            "1 on every reduced axis"
        ),
    ),
    (
        lambda: arg((FLOAT32, (2, 3)), (UINT32, (1, 1)), (0,)),
        (
            "ArgmaxOperatorDesc.output_tensor.sizes[1]: 1 is wrong; expected 3 of (1, 3), the input's sizes with "
            "1 on every reduced axis"
        ),
    ),
    (
        lambda: arg(o=(UINT32, (2, 1), (0, 1))),
        (
            "ArgmaxOperatorDesc.output_tensor.strides: with strides (0, 1) elements of sizes (2, 1) overlap; "
            "every output element needs its own place"
        ),
    ),
    (
        lambda: arg((FLOAT32, (2, 3, 4)), (UINT32, (2, 3, 1), (2, 1, 1)), (2,)),
        (
            "ArgmaxOperatorDesc.output_tensor.strides: with strides (2, 1, 1) elements of sizes (2, 3, 1) "
            "overlap; every output element needs its own place"
        ),
    ),
    (
        lambda: arg((FLOAT32, (8,) * 7), (UINT32, (1, *(8,) * 6), (1, *NO_END[2:])), (0,)),
        (
            "ArgmaxOperatorDesc.output_tensor.strides: with strides (1, 74289224, 67866763, 84346775, 56023097, "
            "82628941, 79342657) elements of sizes (1, 8, 8, 8, 8, 8, 8) may overlap: unknown, as a search would take "
            "too long; let each stride exceed what smaller ones reach; every output element needs its own place"
        ),
    ),
    (
        lambda: arg((UINT8, (2**31 + 1,)), (INT32, (1,)), (0,)),
        (
            "ArgmaxOperatorDesc.output_tensor.data_type: INT32 cannot hold the index of 2147483649 reduced "
            "elements; allowed are UINT32, INT64, UINT64"
        ),
    ),
    (
        lambda: arg((FLOAT32, (2, 3)), (UINT32, (2, 1)), (1,), 2),
        (
            "ArgmaxOperatorDesc.axis_direction: 2 is not allowed; allowed are AxisDirection.INCREASING, "
            "AxisDirection.DECREASING"
        ),
    ),
    (
        lambda: arg((FLOAT32, (2, 3)), (UINT32, (2, 1)), (1,), "INCREASING"),
        (
            "ArgmaxOperatorDesc.axis_direction: 'INCREASING' is not allowed; allowed are "
            "AxisDirection.INCREASING, AxisDirection.DECREASING"
        ),
    ),
    (
        lambda: ArgminOperatorDesc(TensorDesc(FLOAT32, (3,)), TensorDesc(UINT32, (1,)), (1,)),
        "ArgminOperatorDesc.axes[0]: 1 is out of range; allowed are 0 to 0",
    ),
    (
        lambda: ReduceOperatorDesc(ReduceFunction.SUM, TensorDesc(FLOAT32, (3,)), TensorDesc(UINT32, (1,)), (0,)),
        "ReduceOperatorDesc.output_tensor.data_type: UINT32 differs from the input's FLOAT32",
    ),
    (
        lambda: ReduceOperatorDesc.of(ReduceFunction.SUM, TensorDesc(UINT8, (3,))),
        "ReduceOperatorDesc.input_tensor.data_type: UINT8, which arrays of bool are too, is not supported; "
        "allowed are FLOAT32, FLOAT16, INT64, INT32, UINT64, UINT32; "
        "convert the array, as by x.astype(np.int32), a list by np.asarray(x, np.int32)",
    ),
    (
        lambda: ReduceOperatorDesc.of(ReduceFunction.AVERAGE, TensorDesc(INT32, (3,))),
        "ReduceOperatorDesc.input_tensor.data_type: INT32 is not supported; allowed are FLOAT32, FLOAT16; "
        "convert the array, as by x.astype(np.float32), a list by np.asarray(x, np.float32), which rounds",
    ),
    (
        lambda: ReduceOperatorDesc(12, TensorDesc(FLOAT32, (3,)), TensorDesc(UINT32, (1,)), (0,)),
        (
            "ReduceOperatorDesc.function: 12 is not allowed; allowed are ReduceFunction.ARGMAX, "
            "ReduceFunction.ARGMIN, ReduceFunction.AVERAGE, ReduceFunction.L1, ReduceFunction.L2, "
            "ReduceFunction.LOG_SUM, ReduceFunction.LOG_SUM_EXP, ReduceFunction.MAX, ReduceFunction.MIN, "
            "ReduceFunction.MULTIPLY, ReduceFunction.SUM, ReduceFunction.SUM_SQUARE"
        ),
    ),
    (
        lambda: ReduceOperatorDesc(0, TensorDesc(FLOAT32, (3,)), TensorDesc(UINT32, (1,)), (1,)),
        "ReduceOperatorDesc.axes[0]: 1 is out of range; allowed are 0 to 0",
    ),
]

POOLING = [
    (lambda: pool(None), "MaxPooling2OperatorDesc.input_tensor: None is not a TensorDesc"),
    (lambda: pool(o=None), "MaxPooling2OperatorDesc.output_tensor: None is not a TensorDesc"),
    (
        lambda: pool((FLOAT32, (2, 5, 6)), (FLOAT32, (2, 4, 5))),
        ("MaxPooling2OperatorDesc.input_tensor.sizes: (2, 5, 6) has 3 dimensions; allowed are 4 (NCHW) and 5 (NCDHW)"),
    ),
    (
        lambda: pool((FLOAT32, (1, 1, 1, 2, 5, 6)), (FLOAT32, (1, 1, 1, 2, 4, 5))),
        (
            "MaxPooling2OperatorDesc.input_tensor.sizes: (1, 1, 1, 2, 5, 6) has 6 dimensions; allowed are 4 "
            "(NCHW) and 5 (NCDHW)"
        ),
    ),
    (
        lambda: pool(o=(INT32, (1, 2, 4, 5))),
        "MaxPooling2OperatorDesc.output_tensor.data_type: INT32 differs from the input's FLOAT32",
    ),
    (
        lambda: pool(o=(FLOAT32, (1, 2, 1, 4, 5))),
        ("MaxPooling2OperatorDesc.output_tensor.sizes: (1, 2, 1, 4, 5) has another rank than the input (1, 2, 5, 6)"),
    ),
    (
        lambda: pool(o=(FLOAT32, (1, 2, 5, 5))),
        (
            "MaxPooling2OperatorDesc.output_tensor.sizes[2]: 5 is wrong; expected 4 of (1, 2, 4, 5), (input + "
            "padding - extent) / stride + 1"
        ),
    ),
    (
        lambda: pool(o=(FLOAT32, (1, 2, 4, 6))),
        (
            "MaxPooling2OperatorDesc.output_tensor.sizes[3]: 6 is wrong; expected 5 of (1, 2, 4, 5), (input + "
            "padding - extent) / stride + 1"
        ),
    ),
    (
        lambda: pool(o=(FLOAT32, (2, 2, 4, 5))),
        (
            "MaxPooling2OperatorDesc.output_tensor.sizes[0]: 2 is wrong; expected 1 of (1, 2, 4, 5), (input + "
            "padding - extent) / stride + 1"
        ),
    ),
    (
        lambda: pool(o=(FLOAT32, (1, 1, 4, 5))),
        (
            "MaxPooling2OperatorDesc.output_tensor.sizes[1]: 1 is wrong; expected 2 of (1, 2, 4, 5), (input + "
            "padding - extent) / stride + 1"
        ),
    ),
    (
        lambda: pool(o=(FLOAT32, (1, 2, 3, 5))),
        (
            "MaxPooling2OperatorDesc.output_tensor.sizes[2]: 3 is wrong; expected 4 of (1, 2, 4, 5), (input + "
            "padding - extent) / stride + 1"
        ),
    ),
    (
        lambda: pool(o=(FLOAT32, (1, 2, 4, 5), (40, 19, 5, 1))),
        (
            "MaxPooling2OperatorDesc.output_tensor.strides: with strides (40, 19, 5, 1) elements of sizes (1, 2, "
            "4, 5) overlap; every output element needs its own place"
        ),
    ),
    (
        lambda: pool(q=(UINT32, (1, 2, 4, 4))),
        (
            "MaxPooling2OperatorDesc.output_indices_tensor.sizes[3]: 4 is wrong; expected 5 of (1, 2, 4, 5), the "
            "sizes of output_tensor"
        ),
    ),
    (
        lambda: pool(q=(UINT32, (2, 4, 5))),
        (
            "MaxPooling2OperatorDesc.output_indices_tensor.sizes: (2, 4, 5) has 3 dimensions; expected (1, 2, 4, "
            "5), the sizes of output_tensor"
        ),
    ),
    (
        lambda: pool(q=(UINT32, (1, 2, 4, 5), (0, 0, 5, 1))),
        (
            "MaxPooling2OperatorDesc.output_indices_tensor.strides: with strides (0, 0, 5, 1) elements of sizes "
            "(1, 2, 4, 5) overlap; every output element needs its own place"
        ),
    ),
    (lambda: pool(q=7), "MaxPooling2OperatorDesc.output_indices_tensor: 7 is not a TensorDesc"),
    (lambda: pool(strides=(0, 1)), "MaxPooling2OperatorDesc.strides[0]: 0 is not allowed; it must be 1 to 4294967295"),
    (
        lambda: pool(dilations=(1, 0)),
        "MaxPooling2OperatorDesc.dilations[1]: 0 is not allowed; it must be 1 to 4294967295",
    ),
    (
        lambda: pool(window_size=(0, 2)),
        "MaxPooling2OperatorDesc.window_size[0]: 0 is not allowed; it must be 1 to 4294967295",
    ),
    (
        lambda: pool(start_padding=(-1, 0)),
        "MaxPooling2OperatorDesc.start_padding[0]: -1 is not allowed; it must be 0 to 4294967295",
    ),
    (
        lambda: pool(end_padding=(0, 2**32)),
        "MaxPooling2OperatorDesc.end_padding[1]: 4294967296 is not allowed; it must be 0 to 4294967295",
    ),
    (lambda: pool(strides=(1,)), "MaxPooling2OperatorDesc.strides: (1,) has 1 entries; the input's rank asks for 2"),
    (
        lambda: pool(window_size=(2, 2, 2)),
        "MaxPooling2OperatorDesc.window_size: (2, 2, 2) has 3 entries; the input's rank asks for 2",
    ),
    (
        lambda: pool(start_padding=()),
        "MaxPooling2OperatorDesc.start_padding: () has 0 entries; the input's rank asks for 2",
    ),
    (
        lambda: pool(end_padding=(0, 0, 0)),
        "MaxPooling2OperatorDesc.end_padding: (0, 0, 0) has 3 entries; the input's rank asks for 2",
    ),
    (
        lambda: pool(dilations=(1,)),
        "MaxPooling2OperatorDesc.dilations: (1,) has 1 entries; the input's rank asks for 2",
    ),
    (lambda: pool(dilations=1), "MaxPooling2OperatorDesc.dilations: 1 is not a sequence of integers"),
    (lambda: pool(strides=(1, 1.5)), "MaxPooling2OperatorDesc.strides[1]: 1.5 is not an integer"),
    (
        lambda: pool((FLOAT32, (1, 2, 5, 6, 7)), (FLOAT32, (1, 2, 4, 5, 6))),
        "MaxPooling2OperatorDesc.window_size: (2, 2) has 2 entries; the input's rank asks for 3",
    ),
    (
        lambda: pool(window_size=(6, 2)),
        ("MaxPooling2OperatorDesc.window_size[0]: 6 with dilation 1 extends over 6; the padded input has only 5"),
    ),
    (
        lambda: pool(window_size=(2, 4), dilations=(1, 2)),
        ("MaxPooling2OperatorDesc.window_size[1]: 4 with dilation 2 extends over 7; the padded input has only 6"),
    ),
    (
        lambda: pool(start_padding=(2**32 - 5, 0)),
        ("MaxPooling2OperatorDesc.start_padding[0]: 4294967291 pads to 4294967296; at most 4294967295 are allowed"),
    ),
    (
        lambda: pool(start_padding=(2, 0), o=(FLOAT32, (1, 2, 6, 5))),
        (
            "MaxPooling2OperatorDesc.window_size[0]: window 0 along the height lies wholly in the padding; every "
            "window must hold input"
        ),
    ),
    (
        lambda: pool(end_padding=(0, 2), o=(FLOAT32, (1, 2, 4, 7))),
        (
            "MaxPooling2OperatorDesc.window_size[1]: window 6 along the width lies wholly in the padding; every "
            "window must hold input"
        ),
    ),
    (
        lambda: pool(o=(FLOAT32, (1, 2, 2, 5)), window_size=(1, 2), strides=(5, 1)),
        (
            "MaxPooling2OperatorDesc.window_size[0]: window 1 along the height lies wholly in the padding; every "
            "window must hold input"
        ),
    ),
    (
        lambda: pool(o=(FLOAT32, (1, 2, 2, 5)), window_size=(1, 2), strides=(5, 1), end_padding=(1, 0)),
        (
            "MaxPooling2OperatorDesc.window_size[0]: window 1 along the height lies wholly in the padding; every "
            "window must hold input"
        ),
    ),
    (
        lambda: MaxPooling1OperatorDesc(
            TensorDesc(FLOAT32, (1, 1, 3, 3)), TensorDesc(FLOAT32, (1, 1, 2, 2)), None, (1, 1), (2, 2), (0,), (0, 0)
        ),
        "MaxPooling1OperatorDesc.start_padding: (0,) has 1 entries; the input's rank asks for 2",
    ),
    (
        lambda: MaxPoolingOperatorDesc(
            TensorDesc(FLOAT32, (1, 1, 3, 3)), TensorDesc(FLOAT32, (1, 1, 3, 2)), (1, 1), (2, 2), (0, 0), (0, 0)
        ),
        (
            "MaxPoolingOperatorDesc.output_tensor.sizes[2]: 3 is wrong; expected 2 of (1, 1, 2, 2), (input + "
            "padding - extent) / stride + 1"
        ),
    ),
]

FUNCTIONS = [
    (lambda: argmax(np.zeros((1,) * 9, np.float32)), "TensorDesc.sizes: 9 dimensions; allowed are 1 to 8"),
    (
        lambda: argmax(["a", "b"]),
        (
            "ArgmaxOperatorDesc.input_tensor.data_type: NumPy type <U1 has no DirectML data type; "
            "allowed are float32, float16, int64, int32, int16, int8, uint64, uint32, uint16, uint8, "
            "beyond DirectML float64"
        ),
    ),
    (
        lambda: reduce(np.zeros((2, 3), bool), ReduceFunction.SUM),
        (
            "ReduceOperatorDesc.input_tensor.data_type: NumPy type bool has no DirectML data type; "
            "allowed are float32, float16, int64, int32, uint64, uint32; "
            "convert the array, as by x.astype(np.int32), a list by np.asarray(x, np.int32)"
        ),
    ),
    (
        lambda: average_pooling(np.zeros((2, 3), bool), 2),
        (
            "AveragePooling1OperatorDesc.input_tensor.data_type: NumPy type bool has no DirectML data type; "
            "allowed are float32, float16; "
            "convert the array, as by x.astype(np.float32), a list by np.asarray(x, np.float32)"
        ),
    ),
    (
        lambda: ReduceOperatorDesc.of(ReduceFunction.AVERAGE, np.zeros((2, 3), bool)),
        (
            "ReduceOperatorDesc.input_tensor.data_type: UINT8, which arrays of bool are too, is not supported; allowed "
            "are FLOAT32, FLOAT16; convert the array, as by x.astype(np.float32), a list by np.asarray(x, np.float32)"
        ),
    ),
    (lambda: argmax(ROWS, axes=2), "ArgmaxOperatorDesc.axes[0]: 2 is out of range; allowed are 0 to 1"),
    (lambda: argmax(ROWS, axes=-1), "ArgmaxOperatorDesc.axes[0]: -1 is out of range; allowed are 0 to 1"),
    (lambda: argmax(ROWS, axes=True), "ArgmaxOperatorDesc.axes[0]: True is not an integer"),
    (lambda: argmax(ROWS, 2), "ArgmaxOperatorDesc.axis: 2 is out of range; allowed are -2 to 1"),
    (lambda: argmax(ROWS, (0, -3)), "ArgmaxOperatorDesc.axis: -3 is out of range; allowed are -2 to 1"),
    (lambda: argmax(ROWS, True), "ArgmaxOperatorDesc.axis: True is not an integer"),
    (lambda: argmax(ROWS, (0, True)), "ArgmaxOperatorDesc.axis[1]: True is not an integer"),
    (
        lambda: argmax(ROWS, (0, -2)),
        "ArgmaxOperatorDesc.axis: -2 of (0, -2) is given twice; every axis may be given once",
    ),
    (
        lambda: argmax(ROWS, (0, 0, 10**5000)),
        "ArgmaxOperatorDesc.axis: 0 of tuple too long to print is given twice; every axis may be given once",
    ),
    (
        lambda: argmax(ROWS, 0, axes=(0,)),
        "ArgmaxOperatorDesc.axes: (0,) is given beside axis=0; give one of them",
    ),
    (
        lambda: argmax(ROWS, axes=(0,), keepdims=False),
        "ArgmaxOperatorDesc.axes: (0,) keeps the rank; give axis= for keepdims=False",
    ),
    (lambda: argmax(ROWS, 0, keepdims=1), "ArgmaxOperatorDesc.keepdims: 1 is not allowed; allowed are True and False"),
    (lambda: argmax(ROWS, ()), "ArgmaxOperatorDesc.axis: () is empty; at least one axis is needed"),
    (lambda: argmax(ROWS, axes=(0, 0)), "ArgmaxOperatorDesc.axes[1]: 0 is given twice; every axis may be given once"),
    (
        lambda: argmax(ROWS, axes=1, keepdims=0),
        "ArgmaxOperatorDesc.keepdims: 0 is not allowed; allowed are True and False",
    ),
    (
        lambda: argmax(ROWS, axis=np.True_),
        f"ArgmaxOperatorDesc.axis: {np.True_!r} is not an integer",
    ),
    (lambda: argmax(ROWS, {0: 1}), "ArgmaxOperatorDesc.axis: {0: 1} is not a sequence of integers"),
    (lambda: max_pooling(IMAGE, {2, 3}), "MaxPooling2OperatorDesc.window_size: {2, 3} is not a sequence of integers"),
    (
        lambda: max_pooling(IMAGE, 2, strides={1, 2}),
        "MaxPooling2OperatorDesc.strides: {1, 2} is not a sequence of integers",
    ),
    (
        lambda: max_pooling(IMAGE, 2, padding=-1),
        "MaxPooling2OperatorDesc.padding[0]: -1 is not allowed; it must be 0 to 4294967295",
    ),
    (
        lambda: max_pooling(IMAGE, 2, padding=(1,)),
        "MaxPooling2OperatorDesc.padding: (1,) has 1 entries; the window has 2",
    ),
    (
        lambda: argmax(ROWS, axis_direction=FLOAT32),
        (
            "ArgmaxOperatorDesc.axis_direction: DataType.FLOAT32 is not allowed; allowed are "
            "AxisDirection.INCREASING, AxisDirection.DECREASING"
        ),
    ),
    (
        lambda: argmax(ROWS, output_data_type=bool),
        (
            "ArgmaxOperatorDesc.output_tensor.data_type: NumPy type bool has no DirectML "
            "data type; allowed are int64, int32, uint64, uint32"
        ),
    ),
    (
        lambda: MaxPooling2OperatorDesc.of(IMAGE, None),
        "MaxPooling2OperatorDesc.window_size: None is not a sequence of integers",
    ),
    (lambda: argmax(ROWS, "0"), "ArgmaxOperatorDesc.axis: '0' is neither an integer nor a sequence of integers"),
    (lambda: argmax(ROWS, 1.0), "ArgmaxOperatorDesc.axis: 1.0 is neither an integer nor a sequence of integers"),
    (lambda: argmax(ROWS, axes=1.0), "ArgmaxOperatorDesc.axes: 1.0 is not a sequence of integers"),
    (
        lambda: ArgmaxOperatorDesc.of(TensorDesc(DataType.UINT4, (3,))),
        (
            "ArgmaxOperatorDesc.input_tensor.data_type: UINT4 is not supported; allowed are FLOAT32, FLOAT16, INT64, "
            "INT32, INT16, INT8, UINT64, UINT32, UINT16, UINT8, beyond DirectML FLOAT64"
        ),
    ),
    (
        lambda: reduce(np.zeros((2, 3)), ReduceFunction.SUM),
        (
            "ReduceOperatorDesc.input_tensor.data_type: FLOAT64 is not supported; allowed are FLOAT32, FLOAT16, INT64, "
            "INT32, UINT64, UINT32; convert the array, as by x.astype(np.float32), "
            "a list by np.asarray(x, np.float32), which rounds"
        ),
    ),
    (
        lambda: argmax(ROWS, output_data_type=DataType.INT8),
        ("ArgmaxOperatorDesc.output_tensor.data_type: INT8 is not supported; allowed are INT64, INT32, UINT64, UINT32"),
    ),
    (
        lambda: argmax(ROWS, output_data_type="index"),
        "ArgmaxOperatorDesc.output_tensor.data_type: 'index' is neither a DataType nor a NumPy type",
    ),
    (
        lambda: argmax(ROWS, output_data_type=None),
        "ArgmaxOperatorDesc.output_tensor.data_type: None is neither a DataType nor a NumPy type",
    ),
    (
        lambda: argmax(ROWS, output_data_type=np.float32),
        (
            "ArgmaxOperatorDesc.output_tensor.data_type: FLOAT32 is not supported; "
            "allowed are INT64, INT32, UINT64, UINT32"
        ),
    ),
    (
        lambda: argmin(ROWS, axis_direction=3),
        (
            "ArgminOperatorDesc.axis_direction: 3 is not allowed; allowed are AxisDirection.INCREASING, "
            "AxisDirection.DECREASING"
        ),
    ),
    (
        lambda: argmin(np.zeros((2, 0), np.float32), 1),
        "ArgminOperatorDesc.input_tensor.sizes: axes (1,) of (2, 0) are empty",
    ),
    (
        lambda: argmin(np.zeros((2, 0), np.float32)),
        "ArgminOperatorDesc.input_tensor.sizes: axes (0, 1) of (2, 0) are empty",
    ),
    (
        lambda: max_pooling(np.zeros((1, 1, 3, 3, 3), np.float32), (2, 2)),
        (
            "MaxPooling2OperatorDesc.input_tensor.sizes: (1, 1, 3, 3, 3) has 5 dimensions; "
            "a window of 2 entries takes 2 to 4"
        ),
    ),
    (
        lambda: max_pooling(np.zeros((3, 3), np.float32), (2, 2, 2)),
        "MaxPooling2OperatorDesc.input_tensor.sizes: (3, 3) has 2 dimensions; a window of 3 entries takes 3 to 5",
    ),
    (
        lambda: max_pooling(np.float32(3), 2),
        "MaxPooling2OperatorDesc.input_tensor.sizes: () has 0 dimensions; an int as window takes 2 to 5",
    ),
    (
        lambda: max_pooling(np.zeros((1,) * 6, np.float32), (1, 1)),
        "MaxPooling2OperatorDesc.input_tensor.sizes: (1, 1, 1, 1, 1, 1) has 6 dimensions; "
        "a window of 2 entries takes 2 to 4",
    ),
    (
        lambda: max_pooling(IMAGE, 2, output_sizes=(1, 3, 2, 2)),
        "MaxPooling2OperatorDesc.output_sizes: (1, 3, 2, 2) is wrong; it must begin as (1, 1, 3, 3) does",
    ),
    (lambda: argmax(None), "ArgmaxOperatorDesc.input_tensor: None is nothing that NumPy can view as an array"),
    (lambda: argmax({1}), "ArgmaxOperatorDesc.input_tensor: {1} is nothing that NumPy can view as an array"),
    (
        lambda: argmax([1, [2]]),
        "ArgmaxOperatorDesc.input_tensor: setting an array element with a sequence. The requested array has an "
        "inhomogeneous shape after 1 dimensions. The detected shape was (2,) + inhomogeneous part.",
    ),
    (
        lambda: max_unpooling(ROWS, None, 4),
        "MaxUnpoolingOperatorDesc.indices_tensor: None is nothing that NumPy can view as an array",
    ),
    (
        lambda: max_pooling_grad(ROWS, len, 2),
        "MaxPoolingGradOperatorDesc.input_gradient_tensor: <built-in function len> is nothing that NumPy can view as "
        "an array",
    ),
    (lambda: TensorDesc.of(None), "TensorDesc.of: None is nothing that NumPy can view as an array"),
    (
        lambda: max_pooling(np.array(None), 2),
        "MaxPooling2OperatorDesc.input_tensor.data_type: NumPy type object has no DirectML data type; allowed are "
        "float32, float16, int64, int32, int16, int8, uint64, uint32, uint16, uint8, beyond DirectML float64",
    ),
    (
        lambda: argmax([None, 1]),
        "ArgmaxOperatorDesc.input_tensor.data_type: NumPy type object has no DirectML data type; allowed are "
        "float32, float16, int64, int32, int16, int8, uint64, uint32, uint16, uint8, beyond DirectML float64",
    ),
    (
        lambda: reduce(np.zeros(3, np.int16), ReduceFunction.SUM),
        "ReduceOperatorDesc.input_tensor.data_type: INT16 is not supported; allowed are FLOAT32, FLOAT16, INT64, "
        "INT32, UINT64, UINT32; convert the array, as by x.astype(np.int32), a list by np.asarray(x, np.int32)",
    ),
    (
        lambda: average_pooling(np.zeros((2, 2), np.int64), 2),
        "AveragePooling1OperatorDesc.input_tensor.data_type: INT64 is not supported; allowed are FLOAT32, FLOAT16; "
        "convert the array, as by x.astype(np.float32), a list by np.asarray(x, np.float32), which rounds",
    ),
    (
        lambda: max_pooling(IMAGE, (2,)),
        (
            "MaxPooling2OperatorDesc.window_size: (2,) over (1, 1, 3, 3) is 1-D; pooling is 2-D or 3-D: "
            "reshape x to (..., 1, width), and take a window of (1, width)"
        ),
    ),
    (
        lambda: max_pooling(np.zeros(9, np.float32), 2),
        (
            "MaxPooling2OperatorDesc.window_size: 2 over (9,) is 1-D; pooling is 2-D or 3-D: "
            "reshape x to (..., 1, width), and take a window of (1, width)"
        ),
    ),
    (
        lambda: max_pooling(IMAGE, (2, 2, 2, 2)),
        "MaxPooling2OperatorDesc.window_size: (2, 2, 2, 2) has 4 entries; allowed are 2 and 3",
    ),
    (
        lambda: max_pooling(IMAGE, 2, strides=(10**5000,)),
        "MaxPooling2OperatorDesc.strides: tuple too long to print has 1 entries; the window has 2",
    ),
    (
        lambda: max_pooling(IMAGE, (2, 2, 2, 10**5000)),
        "MaxPooling2OperatorDesc.window_size: tuple too long to print has 4 entries; allowed are 2 and 3",
    ),
    (
        lambda: max_pooling(IMAGE, 2, strides=(1, 2, 2)),
        "MaxPooling2OperatorDesc.strides: (1, 2, 2) has 3 entries; the window has 2",
    ),
    (lambda: max_pooling(IMAGE, True), "MaxPooling2OperatorDesc.window_size[0]: True is not an integer"),
    (
        lambda: max_pooling(IMAGE, 2, padding="same"),
        "MaxPooling2OperatorDesc.padding: 'same' is neither an integer nor a sequence of integers",
    ),
    (
        lambda: max_pooling(IMAGE, 2, padding=1, end_padding=0),
        "MaxPooling2OperatorDesc.end_padding: padding is given too, which is both sides; give one of them",
    ),
    (
        lambda: max_pooling(IMAGE, 2, padding=0, start_padding=0),
        "MaxPooling2OperatorDesc.start_padding: padding is given too, which is both sides; give one of them",
    ),
    (
        lambda: max_pooling(IMAGE, 2, output_indices=DataType.UINT64),
        "MaxPooling2OperatorDesc.output_indices: DataType.UINT64 is not allowed; allowed are True and False",
    ),
    (
        lambda: max_pooling(IMAGE, 2, output_indices=True, indices_data_type=np.int32),
        (
            "MaxPooling2OperatorDesc.output_indices_tensor.data_type: INT32 is not "
            "supported; allowed are INT64, UINT64, UINT32"
        ),
    ),
    (
        lambda: max_pooling(IMAGE, None),
        "MaxPooling2OperatorDesc.window_size: None is neither an integer nor a sequence of integers",
    ),
    (
        lambda: max_pooling(IMAGE, (4, 2)),
        ("MaxPooling2OperatorDesc.window_size[0]: 4 with dilation 1 extends over 4; the padded input has only 3"),
    ),
    (
        lambda: max_pooling(IMAGE, (2, 2), strides=(0, 1)),
        "MaxPooling2OperatorDesc.strides[0]: 0 is not allowed; it must be 1 to 4294967295",
    ),
    (
        lambda: max_pooling(IMAGE, (2, 2), dilations=(3, 1)),
        ("MaxPooling2OperatorDesc.window_size[0]: 2 with dilation 3 extends over 4; the padded input has only 3"),
    ),
    (
        lambda: max_pooling(IMAGE, (2, 2), output_sizes=(3, 2)),
        (
            "MaxPooling2OperatorDesc.output_sizes: (3, 2) is wrong; expected (2, 2), "
            "(input + padding - extent) / stride + 1"
        ),
    ),
    (
        lambda: max_pooling(IMAGE, (2, 2), output_sizes=(1, 1, 3, 2)),
        (
            "MaxPooling2OperatorDesc.output_sizes: (3, 2) is wrong; expected (2, 2), "
            "(input + padding - extent) / stride + 1"
        ),
    ),
    (
        lambda: max_pooling(IMAGE, (2, 2), output_sizes=(2,)),
        "MaxPooling2OperatorDesc.output_sizes: (2,) has 1 entries; 2 are spatial",
    ),
    (
        lambda: max_pooling(IMAGE, (2, 2), output_sizes="2"),
        "MaxPooling2OperatorDesc.output_sizes: '2' is neither an integer nor a sequence of integers",
    ),
    (
        lambda: max_pooling(IMAGE, (2, 2), start_padding=(2, 0)),
        (
            "MaxPooling2OperatorDesc.window_size[0]: window 0 along the height lies wholly in the padding; every "
            "window must hold input"
        ),
    ),
    (
        lambda: max_pooling(IMAGE, (2, 2), output_sizes=4),
        "MaxPooling2OperatorDesc.output_sizes: (4, 4) is wrong; expected (2, 2), "
        "(input + padding - extent) / stride + 1",
    ),
    (
        lambda: max_pooling(ROWS, (1, 2), strides=2, output_sizes=(1, 4)),
        "MaxPooling2OperatorDesc.output_sizes: 4 is wrong; expected 1 along the width, or 2 rounded up",
    ),
    (
        lambda: max_pooling(ROWS, 2, padding=2),
        "MaxPooling2OperatorDesc.window_size[0]: window 0 along the height lies wholly in the padding; every window "
        "must hold input",
    ),
    (
        lambda: max_pooling(ROWS, 2, padding=100_000),
        "MaxPooling2OperatorDesc.window_size[0]: window 0 along the height lies wholly in the padding; every window "
        "must hold input",
    ),
    (
        lambda: max_pooling(np.zeros((2, 2, 2, 2), np.float32), (2, 2, 2), padding=(2, 0, 0)),
        "MaxPooling2OperatorDesc.window_size[0]: window 0 along the depth lies wholly in the padding; every window "
        "must hold input",
    ),
    (
        lambda: max_pooling(ROWS, 2, padding=(0, 2**31)),
        "MaxPooling2OperatorDesc.padding[1]: 2147483648 pads to 4294967299; at most 4294967295 are allowed",
    ),
    (
        lambda: max_pooling(ROWS, 2, end_padding=(0, 2**32 - 1)),
        "MaxPooling2OperatorDesc.end_padding[1]: 4294967295 pads to 4294967298; at most 4294967295 are allowed",
    ),
    (
        lambda: max_pooling(ROWS, (10**5, 10**5), padding=10**5 - 1),
        "MaxPooling2OperatorDesc.output_tensor.sizes: (100001, 100002) has 10000300002 elements; "
        "at most 4294967295 are allowed",
    ),
    (
        lambda: max_unpooling(ROWS, np.zeros((2, 3), np.int64), 2**31),
        "MaxUnpoolingOperatorDesc.output_sizes: (2147483648, 2147483648) has 4611686018427387904 elements; "
        "at most 4294967295 are allowed",
    ),
    (
        lambda: average_pooling_grad(ROWS, (3, 5), 2),
        "AveragePoolingGradOperatorDesc.input_gradient_tensor.sizes: (2, 3) is wrong; expected (2, 4), "
        "(input + padding - extent) / stride + 1",
    ),
    (
        lambda: average_pooling_grad(ROWS, 2**31, 2**31, padding=1),
        "AveragePoolingGradOperatorDesc.input_gradient_tensor.sizes: (2, 3) is wrong; expected (3, 3), "
        "(input + padding - extent) / stride + 1",
    ),
    (
        lambda: average_pooling_grad(ROWS, (2**31, 2**31 + 1), 2**31 - 1),
        "AveragePoolingGradOperatorDesc.input_sizes: (2147483648, 2147483649) has 4611686020574871552 elements; "
        "at most 4294967295 are allowed",
    ),
    (
        lambda: max_pooling_grad(ROWS, ROWS, 2, padding=1),
        "MaxPoolingGradOperatorDesc.input_gradient_tensor.sizes: (2, 3) is wrong; expected (3, 4), "
        "(input + padding - extent) / stride + 1",
    ),
    (
        lambda: max_pooling(np.zeros((0, 3), np.float32), 2),
        "MaxPooling2OperatorDesc.input_tensor.sizes: a window over (0, 3) is empty",
    ),
    (
        lambda: max_pooling(np.zeros((1, 1, 0, 3), np.float32), (1, 2)),
        "MaxPooling2OperatorDesc.input_tensor.sizes: a window over (1, 1, 0, 3) is empty",
    ),
    (
        lambda: max_pooling(np.zeros((0, 1, 3, 3), np.float32), (4, 2)),
        ("MaxPooling2OperatorDesc.window_size[0]: 4 with dilation 1 extends over 4; the padded input has only 3"),
    ),
]


MISTAKES = [*TENSOR, *ARG, *POOLING, *FUNCTIONS]


@pytest.mark.parametrize(("build", "message"), MISTAKES, ids=[message[:80] for _, message in MISTAKES])
def test_message(build, message):
    with pytest.raises(DescriptorError) as caught:
        build()
    assert str(caught.value) == message


def named(field: str) -> str:
    return f"^MaxPooling2OperatorDesc\\.{field}: "


@pytest.mark.parametrize("field", ["strides", "start_padding", "end_padding", "dilations"])
def test_max_pooling_names_the_array_that_has_too_few_entries(field):
    with pytest.raises(DescriptorError, match=named(field) + r"\(1,\) has 1 entries; the window has 2$"):
        max_pooling(IMAGE, (1, 1), **{field: (1,)})


@pytest.mark.parametrize("field", ["start_padding", "end_padding"])
def test_padding_beyond_what_an_index_holds_names_the_padding(field):
    with pytest.raises(DescriptorError, match=named(field + r"\[0\]") + r".*at most 4294967295"):
        pool(**{field: (2**32 - 1, 0)})
    with pytest.raises(DescriptorError, match=named(field + r"\[0\]") + r".*at most 4294967295"):
        max_pooling(IMAGE, (2, 2), **{field: (2**32 - 1, 0)})


def test_both_sizes_are_named_where_rounding_up_allows_two():
    wrong = (FLOAT32, (1, 2, 4, 5))
    with pytest.raises(
        DescriptorError, match=named(r"output_tensor\.sizes\[2\]") + r"4 is wrong; expected .*2.* or .*3"
    ):
        pool(o=wrong, strides=(2, 1))


@pytest.mark.parametrize(
    ("build", "field"),
    [
        (lambda zero: TensorDesc(FLOAT32, zero), "TensorDesc.sizes"),
        (lambda zero: TensorDesc(FLOAT32, (1,), zero), "TensorDesc.strides"),
        (lambda zero: arg(axes=zero), "ArgmaxOperatorDesc.axes"),
        (lambda zero: pool(window_size=zero), "MaxPooling2OperatorDesc.window_size"),
    ],
    ids=["sizes", "strides", "axes", "descriptor"],
)
def test_an_array_of_no_dimensions_is_no_sequence(build, field):
    with pytest.raises(DescriptorError, match=f"^{field}: .* is not a sequence of integers$"):
        build(np.array(1))


def test_every_descriptor_names_itself():
    source, target = TensorDesc(FLOAT32, (1, 1, 3, 3)), TensorDesc(FLOAT32, (1, 1, 3, 3))
    window = ((1, 1), (2, 2), (0, 0), (0, 0))
    for kind, arguments in {
        ArgmaxOperatorDesc: (source, target, (0,)),
        ArgminOperatorDesc: (source, target, (0,)),
        ReduceOperatorDesc: (0, source, target, (0,)),
        MaxPoolingOperatorDesc: (source, target, *window),
        MaxPooling1OperatorDesc: (source, target, None, *window),
        MaxPooling2OperatorDesc: (source, target, None, *window, (1, 1)),
    }.items():
        with pytest.raises(DescriptorError, match=f"^{kind.__name__}\\.output_tensor"):
            kind(*arguments)
