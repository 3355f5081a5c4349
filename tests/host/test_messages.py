"""Messages about wrong arguments: they name the field, the value received, and the allowed values."""

import re
from functools import partial

import numpy as np
import pytest

import dmlgpu
from dmlgpu import ArgmaxOperatorDesc, MaxPooling2OperatorDesc, ReduceOperatorDesc, TensorDesc, argmax
from dmlgpu.errors import shown
from dmlgpu.testing.cases import FLOAT16, FLOAT32, INT16, INT32, NO_END, UINT8, UINT32, UINT64
from tests.support.errors import refuses

ROWS = np.zeros((2, 3), np.float32)
IMAGE = np.zeros((1, 1, 3, 3), np.float32)
BOOLS = np.zeros((2, 3), bool)
PLANES = np.zeros((1, 4, 4), np.float32)
POOLED, PLACES = np.zeros((1, 2, 2), np.float32), np.zeros((1, 2, 2), np.int64)
# Sizes and strides of a tensor for which the search for overlaps is ended without a result.
UNKNOWN = (1, *(8,) * 6), (1, *NO_END[2:])
WINDOW = {"window_size": (2, 2), "strides": (1, 1), "start_padding": (0, 0), "end_padding": (0, 0), "dilations": (1, 1)}

# By the names of calls in messages: each call with valid arguments.
CALLS = {
    TensorDesc: ("TensorDesc", {"data_type": FLOAT32, "sizes": (2, 3)}),
    TensorDesc.of: ("TensorDesc", {}),
    ArgmaxOperatorDesc: (
        "ArgmaxOperatorDesc",
        {"input_tensor": (FLOAT32, (2, 3)), "output_tensor": (UINT32, (2, 1)), "axes": (1,)},
    ),
    ArgmaxOperatorDesc.of: ("ArgmaxOperatorDesc", {}),
    ReduceOperatorDesc.of: ("ReduceOperatorDesc", {"function": "average", "input_tensor": (FLOAT32, (3,))}),
    MaxPooling2OperatorDesc: (
        "MaxPooling2OperatorDesc",
        {
            "input_tensor": (FLOAT32, (1, 2, 5, 6)),
            "output_tensor": (FLOAT32, (1, 2, 4, 5)),
            "output_indices_tensor": None,
            **WINDOW,
        },
    ),
    MaxPooling2OperatorDesc.of: ("MaxPooling2OperatorDesc", {"input_tensor": IMAGE}),
    dmlgpu.MaxPoolingGradOperatorDesc: (
        "MaxPoolingGradOperatorDesc",
        {
            "input_tensor": (FLOAT32, (1, 1, 4, 4)),
            "input_gradient_tensor": (FLOAT32, (1, 1, 3, 3)),
            "output_gradient_tensor": (FLOAT32, (1, 1, 4, 4)),
            **WINDOW,
        },
    ),
    dmlgpu.MaxPoolingGradOperatorDesc.of: (
        "MaxPoolingGradOperatorDesc",
        {"input_tensor": (FLOAT32, (1, 1, 4, 4)), "window_size": (2, 2)},
    ),
    dmlgpu.MaxUnpoolingOperatorDesc: (
        "MaxUnpoolingOperatorDesc",
        {
            "input_tensor": (FLOAT32, (1, 1, 2, 2)),
            "indices_tensor": (UINT64, (1, 1, 2, 2)),
            "output_tensor": (FLOAT32, (1, 1, 4, 4)),
        },
    ),
    dmlgpu.MaxUnpoolingOperatorDesc.of: (
        "MaxUnpoolingOperatorDesc",
        {"input_tensor": (FLOAT32, (1, 1, 2, 2)), "output_sizes": (1, 1, 4, 4)},
    ),
    dmlgpu.CumulativeSummationOperatorDesc.of: ("CumulativeSummationOperatorDesc", {"input_tensor": ROWS, "axis": 0}),
    dmlgpu.CumulativeProductOperatorDesc: (
        "CumulativeProductOperatorDesc",
        {"input_tensor": (FLOAT32, (2, 3)), "output_tensor": (FLOAT32, (2, 3)), "axis": 0},
    ),
    argmax: ("ArgmaxOperatorDesc", {"x": ROWS}),
    dmlgpu.argmin: ("ArgminOperatorDesc", {"x": ROWS}),
    dmlgpu.reduce: ("ReduceOperatorDesc", {"function": dmlgpu.ReduceFunction.SUM}),
    dmlgpu.top_k: ("TopK1OperatorDesc", {"x": ROWS, "k": 1}),
    dmlgpu.max_pooling: ("MaxPooling2OperatorDesc", {"x": IMAGE, "window_size": 2}),
    dmlgpu.adaptive_max_pooling: ("MaxPooling2OperatorDesc", {"x": IMAGE}),
    dmlgpu.average_pooling: ("AveragePooling1OperatorDesc", {"x": IMAGE, "window_size": 2}),
    dmlgpu.lp_pooling: ("LpPooling1OperatorDesc", {"x": IMAGE, "window_size": 2}),
    dmlgpu.average_pooling_grad: (
        "AveragePoolingGradOperatorDesc",
        {"gradient": ROWS, "input_sizes": (3, 4), "window_size": 2},
    ),
    dmlgpu.max_pooling_grad: (
        "MaxPoolingGradOperatorDesc",
        {"x": PLANES, "gradient": PLANES[:, :3, :3], "window_size": 2},
    ),
    dmlgpu.max_unpooling: ("MaxUnpoolingOperatorDesc", {"x": POOLED, "indices": PLACES, "output_sizes": 4}),
    dmlgpu.roi_pooling: (
        "RoiPoolingOperatorDesc",
        {"x": IMAGE, "rois": np.zeros((2, 5), np.float32), "pooled_size": 2},
    ),
}

# Allowed values, as messages list them.
LIST = "a sequence of integers"
FROM_0, FROM_1 = "0 to 4294967295", "1 to 4294967295"
TYPES = "FLOAT32, FLOAT16, UINT32, UINT16, UINT8, INT32, INT16, INT8, FLOAT64, UINT64, INT64, UINT4, INT4"
SELECTED = "FLOAT32, FLOAT16, INT64, INT32, INT16, INT8, UINT64, UINT32, UINT16, UINT8, beyond DirectML FLOAT64"
FLOATS = "FLOAT32, FLOAT16"
NUMBERS = "FLOAT32, FLOAT16, INT64, INT32, UINT64, UINT32"
INDICES = "INT64, INT32, UINT64, UINT32"
PLACE_TYPES = "INT64, UINT64, UINT32"
NUMPY_TYPES = "float32, float16, uint32, uint16, uint8, int32, int16, int8, float64, uint64, int64"
NUMPY_SELECTED = "float32, float16, int64, int32, int16, int8, uint64, uint32, uint16, uint8, beyond DirectML float64"
TO_INT32 = "x.astype(np.int32) ... np.asarray(x, np.int32)"
TO_FLOAT32 = "x.astype(np.float32) ... np.asarray(x, np.float32)"
DIRECTIONS = "AxisDirection.INCREASING, AxisDirection.DECREASING, or their names"
FUNCTIONS = ", ".join(f"ReduceFunction.{function.name}" for function in dmlgpu.ReduceFunction) + ", or their names"
FORMULA = "(input + padding - extent) / stride + 1"

# Calls with one wrong argument: its field, wrong values, and the allowed values. The message shows the value, or its
# entry if the field has an index.
ALONE = {
    TensorDesc: [
        ("data_type", [dmlgpu.DataType.UNKNOWN, True, 14, "FLOAT33", np.zeros(0), None], TYPES),
        ("sizes", [5, "12", None, np.array(1)], LIST),
        ("sizes[1]", [(1, 2.0), (1, "2")], "an integer"),
        ("sizes[1]", [(4, 0), (4, -1), (4, 2**32)], FROM_1),
        ("strides", [1, np.array(1)], LIST),
        ("strides[1]", [(3, 0.5)], "an integer"),
        ("strides[1]", [(3, -1), (3, 2**32)], FROM_0),
        ("total_tensor_size_in_bytes", [True, 24.0], "an integer"),
        ("total_tensor_size_in_bytes", [20, -1], "at least 24"),
        ("total_tensor_size_in_bytes", [2**64], "at most 18446744073709551615"),
    ],
    ArgmaxOperatorDesc: [
        ("input_tensor", [None], "a TensorDesc"),
        ("output_tensor", [None], "a TensorDesc"),
        ("axes", [()], "at least one axis"),
        ("axes", [1, None, True, "1", np.array(1)], LIST),
        ("axes[0]", [(True,), (np.True_,), (1.0,)], "an integer"),
        ("axes[0]", [(2,), (-1,)], "0 to 1"),
        ("axes[1]", [(1, 1)], "once"),
        ("axes[2]", [(0, 1, 0)], "once"),
        ("axis_direction", [2, "UP"], DIRECTIONS),
    ],
    ReduceOperatorDesc.of: [("function", [12], FUNCTIONS)],
    MaxPooling2OperatorDesc: [
        ("output_indices_tensor", [7], "a TensorDesc"),
        ("strides[0]", [(0, 1)], FROM_1),
        ("dilations[1]", [(1, 0)], FROM_1),
        ("window_size[0]", [(0, 2)], FROM_1),
        ("start_padding[0]", [(-1, 0)], FROM_0),
        ("end_padding[1]", [(0, 2**32)], FROM_0),
        ("dilations", [1], LIST),
        ("strides", [(1,)], "1 entries ... 2"),
        ("window_size[0]", [(6, 2)], "dilation 1 ... 6 ... 5"),
        ("start_padding[0]", [(2**32 - 5, 0)], "the padded input has 4294967296 places; at most 4294967295"),
        ("end_padding[0]", [(2**32 - 1, 0)], "4294967300 ... at most 4294967295"),
    ],
    MaxPooling2OperatorDesc.of: [("window_size", [None], LIST)],
    dmlgpu.CumulativeSummationOperatorDesc.of: [
        ("axis", [2], "-2 to 1"),
        ("axis", [(0,)], "an integer"),
        ("axis_direction", [2], DIRECTIONS),
        ("has_exclusive_sum", [1], "True and False"),
    ],
    dmlgpu.CumulativeProductOperatorDesc: [("axis", [-1], "0 to 1")],
    argmax: [
        ("axis", ["0", 1.0], f"an integer ... {LIST}"),
        ("axis", [True, np.True_], "an integer"),
        ("axis", [()], "at least one axis"),
        ("axis", [{0: 1}], LIST),
        ("axis[1]", [(0, True)], "an integer"),
        ("keepdims", [1], "True and False"),
    ],
    dmlgpu.lp_pooling: [("p", [0], FROM_1), ("p", [2.5], "an integer")],
    dmlgpu.average_pooling_grad: [
        ("input_sizes", [None], "the sizes of what was pooled"),
        ("input_sizes", [(1, 2, 3)], "3 entries ... 2"),
        ("include_padding", [1], "True and False"),
    ],
    dmlgpu.max_unpooling: [
        ("output_sizes", [(4, 4, 4, 4)], "4 entries ... 2"),
        ("output_sizes", [None], "the sizes of what was pooled"),
    ],
    dmlgpu.adaptive_max_pooling: [
        ("output_sizes", [(2, 3), (1, 2), (4, 3)], "divisors of (3, 3)"),
        ("output_sizes", [(3,), (1, 1, 1, 1), ()], "(1, 1, 3, 3) ... (height, width) or (depth, height, width)"),
        ("output_sizes[1]", [(1, 0)], FROM_1),
    ],
    dmlgpu.roi_pooling: [
        ("pooled_size", [(0, 1), (1, 65536), (-1, 2), (1,), (1, 2, 3)], "a height and a width of 1 to 65535"),
        ("pooled_size", [None, "2", {2, 3}], LIST),
        ("spatial_scale", [0, -1.0, np.inf, np.nan, 1e39, 1e-46, 10**400, True, "1", None], "numbers above 0"),
    ],
    dmlgpu.top_k: [
        ("k", [0, -1, 4, 2**40], "1 to 3, the size of the axis"),
        ("k", [True, np.True_, 1.0, np.float32(1), "1", None, (1,)], "an integer"),
        ("axis", [2, -3, 2**40], "-2 to 1"),
        ("axis", [None, (1,), 1.0, False], "an integer"),
        ("largest", [1, None, "no"], "True and False"),
        ("mode", ["LARGEST", "max", 1, True, np.array(["largest", "smallest"])], "'largest', 'smallest'"),
        ("sorted", [1, None, "yes"], "True and False"),
    ],
    dmlgpu.max_pooling: [
        ("window_size", [None], f"an integer ... {LIST}"),
        ("window_size", [{2, 3}], LIST),
        ("window_size", [(2,)], "(1, 1, 3, 3) ... 1-D ... (1, width)"),
        ("window_size", [(2, 2, 2, 2)], "4 entries ... 2 and 3"),
        ("strides", [{1, 2}], LIST),
        ("padding", ["same"], "padding=((0, 1), (0, 1))"),
        ("padding", ["valid"], "leave it out"),
        ("padding", ["reflect", ""], "an integer ... a pair (before, after)"),
        ("padding", [{1, 2}, 1.5], f"an integer ... {LIST} or pairs (before, after)"),
        ("padding", [(1,)], "1 entries ... 2"),
        ("padding", [(0, 0, 0), ((0, 1),) * 3], "3 entries ... 2, an integer or a pair"),
        ("padding[1]", [(1, (1, 2, 3)), (1, 1.5), (1, "12"), (1, ())], "an integer ... (before, after)"),
        ("output_sizes", ["2"], f"an integer ... {LIST}"),
        ("output_sizes", [(2,)], "1 entries ... 2"),
        ("output_sizes", [(1, 3, 2, 2)], "begin with (1, 1)"),
        ("output_indices", [dmlgpu.DataType.UINT64], "True and False"),
    ],
}

# Other calls: arguments, and the message: the field, the value received, and the allowed values. Dots stand for any
# words.
OTHERS = {
    TensorDesc: [
        ({"data_type": 10**5000}, f"data_type: int ... {TYPES}"),
        ({"sizes": (10**5000,)}, f"sizes[0]: int ... {FROM_1}"),
        ({"sizes": range(10**12)}, "sizes: range(0, 1000000000000) ... 8"),
        ({"sizes": "1" * 1000}, f"sizes: '{'1' * 199}... ... {LIST}"),
        ({"sizes": ()}, "sizes: 0 dimensions ... 1 to 8"),
        ({"sizes": (1,) * 9}, "sizes: 9 dimensions ... 1 to 8"),
        ({"sizes": (2**16, 2**16)}, "sizes: (65536, 65536) ... 4294967296 ... at most 4294967295"),
        ({"strides": ()}, "strides: 0 ... 2"),
        ({"strides": (3,)}, "strides: 1 ... 2"),
        ({"strides": (3, 1, 1)}, "strides: 3 ... 2"),
        ({"strides": (2**32 - 2, 1)}, "strides: (4294967294, 1) ... 4294967297 ... at most 4294967295"),
    ],
    TensorDesc.of: [
        ({"array": np.float32(1)}, "sizes: 0 dimensions ... 1 to 8"),
        ({"array": np.zeros(4, complex)}, f"data_type: ... complex128 ... {NUMPY_TYPES}"),
        ({"array": ROWS[::-1]}, "strides: ... (-12, 4) ... 4 ... numpy.ascontiguousarray"),
        ({"array": np.zeros(4, "u1, f4")["f1"]}, "strides: ... (5,) ... 4 ... numpy.ascontiguousarray"),
    ],
    ArgmaxOperatorDesc: [
        ({"output_tensor": (INT16, (2, 1))}, f"output_tensor.data_type: INT16 ... {INDICES}"),
        ({"output_tensor": (UINT32, (2,))}, "output_tensor.sizes: (2,) ... 1 dimensions ... (2, 1) ... reduced axis"),
        ({"output_tensor": (UINT32, (2, 1, 1))}, "output_tensor.sizes: (2, 1, 1) ... 3 dimensions ... (2, 1)"),
        ({"output_tensor": (UINT32, (2, 3))}, "output_tensor.sizes[1]: 3 ... 1 ... (2, 1) ... reduced axis"),
        ({"output_tensor": (UINT32, (1, 1))}, "output_tensor.sizes[0]: 1 ... 2 ... (2, 1)"),
        ({"output_tensor": (UINT32, (2, 1), (0, 1))}, "output_tensor.strides: ... (0, 1) ... (2, 1) overlap"),
        (
            {"input_tensor": (FLOAT32, (8,) * 7), "output_tensor": (UINT32, *UNKNOWN), "axes": (0,)},
            f"output_tensor.strides: ... {UNKNOWN[1]} ... {UNKNOWN[0]} may overlap",
        ),
    ],
    ArgmaxOperatorDesc.of: [
        ({"input_tensor": (dmlgpu.DataType.UINT4, (3,))}, f"input_tensor.data_type: UINT4 ... {SELECTED}")
    ],
    ReduceOperatorDesc.of: [
        ({"input_tensor": BOOLS}, f"input_tensor.data_type: UINT8 ... bool ... {FLOATS} ... {TO_FLOAT32}"),
    ],
    MaxPooling2OperatorDesc: [
        ({"input_tensor": (FLOAT32, (2, 5, 6))}, "input_tensor.sizes: (2, 5, 6) ... 4 (NCHW) and 5 (NCDHW)"),
        ({"input_tensor": (FLOAT32, (1, 2, 5, 6, 7))}, "window_size: (2, 2) ... 2 entries ... 3"),
        ({"output_tensor": (INT32, (1, 2, 4, 5))}, "output_tensor.data_type: INT32 ... FLOAT32"),
        ({"output_tensor": (FLOAT32, (1, 2, 1, 4, 5))}, "output_tensor.sizes: (1, 2, 1, 4, 5) ... (1, 2, 5, 6)"),
        ({"output_tensor": (FLOAT32, (1, 1, 4, 5))}, "output_tensor.sizes[1]: 1 ... 2 ... the input's N and C"),
        ({"output_tensor": (FLOAT32, (1, 2, 3, 5))}, f"output_tensor.sizes[2]: 3 ... 4 ... height, {FORMULA}"),
        ({"output_tensor": (FLOAT32, (1, 2, 4, 6))}, f"output_tensor.sizes[3]: 6 ... 5 ... width, {FORMULA}"),
        ({"strides": (2, 1)}, "output_tensor.sizes[2]: 4 ... 2 ... height ... 3 rounded up"),
        (
            {"output_indices_tensor": (UINT32, (1, 2, 4, 4))},
            "output_indices_tensor.sizes[3]: 4 ... 5 ... output_tensor",
        ),
        ({"window_size": (2, 4), "dilations": (1, 2)}, "window_size[1]: 4 ... dilation 2 ... 7 ... 6"),
        ({"end_padding": (0, 2), "output_tensor": (FLOAT32, (1, 2, 4, 7))}, "window_size[1]: window 6 ... width"),
    ],
    argmax: [
        ({"x": ["a", "b"]}, f"input_tensor.data_type: ... <U1 ... {NUMPY_SELECTED}"),
        ({"axis": (0, -3)}, "axis: -3 ... -2 to 1"),
        ({"axis": (0, -2)}, "axis: -2 ... (0, -2) ... once"),
        ({"axis": (0, 0, 10**5000)}, "axis: 0 ... tuple ... once"),
        ({"axis": 1, "keepdims": None}, "keepdims: None ... True and False"),
        ({"dtype": None}, "dtype: None ... a DataType ... a NumPy type"),
        ({"dtype": "index"}, "dtype: 'index' ... a DataType ... a NumPy type"),
        ({"dtype": bool}, f"dtype: ... bool ... {INDICES.lower()}"),
        ({"dtype": np.float32}, f"dtype: FLOAT32 ... {INDICES}"),
    ],
    dmlgpu.argmin: [({"x": ROWS[:, :0]}, "input_tensor.sizes: ... (0, 1) ... (2, 0) ... empty")],
    dmlgpu.top_k: [
        ({"k": 10**5000}, "k: int ... 1 to 3"),
        ({"x": ROWS.astype(complex)}, f"input_tensor.data_type: ... complex128 ... {NUMPY_SELECTED}"),
        ({"x": ROWS[:, :0]}, "k: 1 ... axis 1 ... (2, 0) ... empty"),
        ({"indices_data_type": np.float32}, f"indices_data_type: FLOAT32 ... {INDICES}"),
    ],
    dmlgpu.MaxPoolingGradOperatorDesc: [
        (
            {"output_gradient_tensor": (FLOAT32, (1, 1, 4, 5))},
            "output_gradient_tensor.sizes[3]: 5 ... 4 ... input_tensor",
        ),
        ({"output_gradient_tensor": (FLOAT16, (1, 1, 4, 4))}, "output_gradient_tensor.data_type: FLOAT16 ... FLOAT32"),
    ],
    dmlgpu.MaxPoolingGradOperatorDesc.of: [
        ({"indices_tensor": (UINT32, (1, 1, 3, 4))}, "indices_tensor.sizes[3]: 4 ... 3 ... input_gradient_tensor")
    ],
    dmlgpu.MaxUnpoolingOperatorDesc: [
        ({"output_tensor": (UINT8, (1, 1, 4, 4))}, "output_tensor.data_type: UINT8 differs ... FLOAT32"),
        ({"indices_tensor": (UINT64, (1, 1, 2, 3))}, "indices_tensor.sizes[3]: 3 ... 2 ... the sizes of input_tensor"),
    ],
    dmlgpu.MaxUnpoolingOperatorDesc.of: [
        ({"input_tensor": (FLOAT32, (1, 1, 2, 2, 2))}, "input_tensor.sizes: ... 5 dimensions ... 4 (NCHW)"),
        ({"output_sizes": (1, 2, 4, 4)}, "output_tensor.sizes[1]: 2 ... 1 ... (1, 1, 4, 4), the input"),
    ],
    dmlgpu.CumulativeProductOperatorDesc: [
        ({"output_tensor": (FLOAT32, (3, 2))}, "output_tensor.sizes[0]: 3 ... 2"),
        ({"output_tensor": (INT32, (2, 3))}, "output_tensor.data_type: INT32 differs ... FLOAT32"),
    ],
    dmlgpu.reduce: [
        ({"x": ROWS, "function": "SUMS"}, f"function: 'SUMS' ... {FUNCTIONS}"),
        ({"x": ROWS.astype(np.uint8)}, f"input_tensor.data_type: UINT8, which arrays of ... {NUMBERS} ... {TO_INT32}"),
        ({"x": ROWS, "dtype": np.float16}, "dtype: FLOAT16 differs ... FLOAT32"),
        ({"x": ROWS[:0], "axis": 0}, "input_tensor.sizes: axes (0,) ... (0, 3) ... empty"),
        ({"x": BOOLS}, f"input_tensor.data_type: ... bool ... {NUMBERS.lower()} ... {TO_INT32}"),
        ({"x": np.zeros(3)}, f"input_tensor.data_type: FLOAT64 ... {NUMBERS} ... {TO_FLOAT32} ... rounds"),
    ],
    dmlgpu.max_pooling: [
        ({"x": np.float32(3)}, "input_tensor.sizes: () ... 0 dimensions ... an int ... 2 to 5"),
        ({"x": ROWS[0]}, "window_size: 2 ... (3,) ... 1-D ... (1, width)"),
        ({"x": ROWS, "window_size": (2, 2, 2)}, "input_tensor.sizes: (2, 3) ... 2 dimensions ... 3 entries ... 3 to 5"),
        ({"x": IMAGE[None], "window_size": (2, 2)}, "input_tensor.sizes: ... 5 dimensions ... 2 entries ... 2 to 4"),
        ({"x": IMAGE[:, :, :0]}, "input_tensor.sizes: ... (1, 1, 0, 3) ... empty"),
        ({"x": IMAGE[:0], "window_size": (4, 2)}, "window_size[0]: 4 ... dilation 1 ... 4 ... 3"),
        ({"window_size": True}, "window_size[0]: True ... an integer"),
        ({"strides": (3, 1), "dilations": (1, 2), "padding": "SAME_UPPER"}, "padding: ... padding=((0, 0), (1, 1))"),
        ({"padding": (0, (1, -1))}, f"padding[1]: -1 ... {FROM_0}"),
        ({"padding": ((0, 2**32 - 1), 0)}, "padding[0]: 4294967295 ... 4294967298 ... at most 4294967295"),
        ({"padding": 100_000}, "window_size[0]: window 0 ... height ... padding"),
        ({"padding": (0, (2, 0))}, "window_size[1]: window 0 ... width ... padding"),
        ({"window_size": (1, 2, 2), "padding": (1, 0, 0)}, "window_size[0]: window 0 ... depth ... padding"),
        ({"x": ROWS, "padding": (0, 2**31)}, "padding[1]: 2147483648 ... 4294967299 ... at most 4294967295"),
        ({"x": ROWS, "window_size": 10**5, "padding": 10**5 - 1}, "output_sizes: ... 10000300002 ... 4294967295"),
        ({"output_sizes": (1, 1, 3, 2)}, f"output_sizes: 3 ... 2 ... height, {FORMULA}"),
        ({"window_size": (1, 2), "strides": 2, "output_sizes": (2, 4)}, "output_sizes: 4 ... 1 ... 2 rounded up"),
        ({"output_indices": True, "indices_data_type": np.int32}, "indices_data_type: INT32 ... INT64, UINT64, UINT32"),
    ],
    dmlgpu.average_pooling: [
        ({"x": ROWS.astype(np.int64)}, f"input_tensor.data_type: INT64 ... {FLOATS} ... {TO_FLOAT32} ... rounds")
    ],
    dmlgpu.average_pooling_grad: [
        ({"gradient": POOLED, "input_sizes": 4}, "gradient.shape: 2 ... 3 ... height, "),
        (
            {"input_sizes": 2**31, "window_size": 2**31, "padding": 1},
            "input_sizes: ... 4611686018427387904 ... at most",
        ),
    ],
    dmlgpu.max_pooling_grad: [
        ({"gradient": PLANES[:, :3, :2]}, f"gradient.shape: 2 ... 3 ... width, {FORMULA}"),
        ({"gradient": PLANES[[0, 0], :3, :3]}, "gradient.shape: (2, 3, 3) ... (1, 4, 4)"),
        ({"gradient": np.zeros((1, 3, 3), "f2")}, "input_gradient_tensor.data_type: FLOAT16 differs ... FLOAT32"),
        ({"indices": np.zeros((1, 3, 2), int)}, "indices_tensor.sizes: (1, 3, 2) ... (1, 3, 3) of the gradient"),
        ({"indices": np.zeros((1, 3, 3), "i4")}, f"indices_tensor.data_type: INT32 ... {PLACE_TYPES} ... x.astype"),
        ({"x": ROWS, "gradient": ROWS, "padding": 1}, f"gradient.shape: 2 ... 3 ... height, {FORMULA}"),
    ],
    dmlgpu.roi_pooling: [
        ({"x": ROWS}, "input_tensor.sizes: (2, 3) ... (N, C, height, width)"),
        ({"x": IMAGE[:, :, :0]}, "input_tensor.sizes: ... (N, C, height, width)"),
        ({"rois": np.zeros((2, 4), np.float32)}, "rois.shape: (2, 4) ... (regions, 5)"),
        ({"rois": np.zeros((2, 5))}, f"roi_tensor.data_type: FLOAT64 ... {FLOATS} ... {TO_FLOAT32} ... rounds"),
        ({"rois": np.zeros((2, 5), np.float16)}, "roi_tensor.data_type: FLOAT16 ... FLOAT32"),
    ],
    dmlgpu.max_unpooling: [
        ({"indices": PLACES.astype("i4")}, f"indices_tensor.data_type: INT32 ... {PLACE_TYPES} ... x.astype(np.int64)"),
        ({"indices": PLACES.astype(complex)}, f"indices_tensor.data_type: ... complex128 ... {PLACE_TYPES.lower()}"),
        ({"indices": PLACES[:, :1]}, "indices_tensor.sizes: (1, 1, 2) ... (1, 2, 2) of the input"),
        ({"output_sizes": 1 << 20}, "output_sizes: (1, 1048576, 1048576) ... 1099511627776 elements; at most"),
        ({"x": POOLED[:, :0], "indices": PLACES[:, :0]}, "input_tensor.sizes: (1, 0, 2) ... empty"),
        ({"x": POOLED[0, 0], "indices": PLACES[0, 0]}, "input_tensor.sizes: (2,) ... 1 dimensions ... 2 to 4"),
    ],
}


def described(field, value):
    """The TensorDesc with these arguments if the field is a tensor; other values are unchanged."""
    return TensorDesc(*value) if field.endswith("_tensor") and isinstance(value, tuple) else value


def mistakes():
    """Pairs of a call and its wrong arguments, with the message."""
    for call, rows in ALONE.items():
        for field, values, allowed in rows:
            argument, *entry = field.rstrip("]").split("[")
            for value in values:
                received = value[int(entry[0])] if entry else value
                yield call, {argument: value}, f"{CALLS[call][0]}.{field}: {shown(received)} ... {allowed}"
    for call, rows in OTHERS.items():
        for arguments, message in rows:
            yield call, arguments, f"{CALLS[call][0]}.{message}"


MISTAKES = [*mistakes()]


@pytest.mark.parametrize(("call", "wrong", "message"), MISTAKES, ids=[message[:80] for *_, message in MISTAKES])
def test_a_message_has_the_field_the_value_and_the_allowed_values(call, wrong, message):
    # Only whole words match: 1 matches neither 10 nor -1.
    words = ".*".join(rf"(?<![\w-]){re.escape(part)}(?!\w)" for part in message.split(" ... "))
    with pytest.raises(dmlgpu.DescriptorError, match=f"^{words}") as caught:
        call(**{field: described(field, value) for field, value in (CALLS[call][1] | wrong).items()})
    # The message advises a conversion only if one exists.
    assert all((word in str(caught.value)) == (word in message) for word in ("astype", "rounds"))


class BFloat16:
    """An array of a type that NumPy lacks, like a tensor of PyTorch."""

    dtype, shape = "torch.bfloat16", (2, 3)

    def __array__(self, *_, **__):
        raise TypeError("Got unsupported ScalarType BFloat16")


def test_a_type_that_numpy_lacks_is_refused():
    words = r"^argmax\.x: BFloat16 of torch\.bfloat16 and \(2, 3\) has a type that NumPy lacks"
    refuses(words, argmax, BFloat16(), error=TypeError)


def test_lists_of_unequal_lengths_are_refused():
    refuses(r"^argmax\.x: .*sequence.*\(2,\)", argmax, [1, [2]])


def test_a_path_is_no_array():
    refuses(r"^argmax\.x: 'x\.npy' is not an array; pass dmlgpu\.chunked\('x\.npy", argmax, "x.npy")
    refuses(r"^argmax\.x: 'x\.png' is not an array; load the file first$", argmax, "x.png")


@pytest.mark.parametrize(
    "x", [None, {1}, b"12", len, np.ndarray, np.array(None), object()], ids=lambda x: type(x).__name__
)
def test_objects_that_are_no_arrays_are_refused(x):
    text = re.escape("ndarray of object and ()" if isinstance(x, np.ndarray) else repr(x))
    for call, field, arguments in [
        (TensorDesc.of, "TensorDesc.of", ()),
        (argmax, "argmax.x", ()),
        (dmlgpu.sum, "sum.x", ()),
        (partial(dmlgpu.max_pooling_grad, ROWS), "max_pooling_grad.gradient", (2,)),
        (partial(dmlgpu.max_unpooling, ROWS), "max_unpooling.indices", (4,)),
        (partial(dmlgpu.reference, ArgmaxOperatorDesc.of(ROWS)), "ArgmaxOperatorDesc.input_tensor", ()),
    ]:
        refuses(rf"^{field}: {text} cannot be viewed by NumPy as an array of", call, x, *arguments)
