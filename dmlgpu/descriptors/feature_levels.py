"""The element types that DirectML documents for the tensors of its operators, by feature level.

They come from DirectML's documentation. A type that a descriptor's table has, and no level here, is an extension.
"""

from __future__ import annotations

import re

from dmlgpu.descriptors.dtypes import DataType
from dmlgpu.descriptors.operator import OperatorDesc, TypeTable
from dmlgpu.descriptors.reduction import ReduceOperatorDesc
from dmlgpu.descriptors.tensor import TensorDesc
from dmlgpu.errors import shown

FLOAT32, FLOAT16 = DataType.FLOAT32, DataType.FLOAT16
INT64, INT32, INT16, INT8 = DataType.INT64, DataType.INT32, DataType.INT16, DataType.INT8
UINT64, UINT32, UINT16, UINT8 = DataType.UINT64, DataType.UINT32, DataType.UINT16, DataType.UINT8

# The types that each feature level adds to the tensors of an operator.
Levels = dict[str, TypeTable]

FLOATS = (FLOAT32, FLOAT16)
SMALL_INTEGERS = (INT32, INT16, INT8, UINT32, UINT16, UINT8)
INDICES = (INT64, INT32, UINT64, UINT32)


def same(levels: TypeTable) -> Levels:
    """The same types of input and output, by level."""
    return {level: {"input_tensor": types, "output_tensor": types} for level, types in levels.items()}


def top_k(levels: TypeTable) -> Levels:
    """The types of TOP_K or TOP_K1, from the types of elements by level."""
    sorted_types = {
        level: dict.fromkeys(("input_tensor", "output_value_tensor"), types) for level, types in levels.items()
    }
    first = next(iter(levels))
    sorted_types[first] |= {"output_index_tensor": (UINT32,)}
    sorted_types["5_0"] |= {"output_index_tensor": (UINT64,)}
    return sorted_types


def max_pooling(introduced: str) -> Levels:
    """The types of a max pooling that level `introduced` added; indices do not matter for MAX_POOLING."""
    values = same({introduced: FLOATS, "3_0": (INT8, UINT8), "5_0": (INT64, INT32, INT16, UINT64, UINT32, UINT16)})
    indices = {introduced: {"output_indices_tensor": (UINT32,)}, "5_0": {"output_indices_tensor": (UINT64,)}}
    return {level: types | indices.get(level, {}) for level, types in values.items()}


ARG: Levels = {
    "3_0": {"input_tensor": (*FLOATS, *SMALL_INTEGERS), "output_tensor": INDICES},
    "4_1": {"input_tensor": (INT64, UINT64)},
}
REDUCE_ARG: Levels = {
    "1_0": {"input_tensor": FLOATS, "output_tensor": (UINT32,)},
    "2_1": {"input_tensor": SMALL_INTEGERS},
    "3_0": {"output_tensor": (INT64, INT32, UINT64)},
    "4_1": {"input_tensor": (INT64, UINT64)},
}
EXTREME = same({"1_0": FLOATS, "2_1": (INT32, UINT32), "3_0": (INT16, INT8, UINT16, UINT8), "5_0": (INT64, UINT64)})
ABSOLUTE = same({"1_0": FLOATS, "5_0": INDICES})
TOTAL = same({"1_0": FLOATS, "2_1": (INT32, UINT32), "5_0": (INT64, UINT64)})
OF_FLOATS = same({"1_0": FLOATS})


# The types by DirectML's names of operators; that of REDUCE ends with the function.
FEATURE_LEVELS: dict[str, Levels] = {
    "ARGMAX": ARG,
    "ARGMIN": ARG,
    "REDUCE ARGMAX": REDUCE_ARG,
    "REDUCE ARGMIN": REDUCE_ARG,
    "REDUCE AVERAGE": OF_FLOATS,
    "REDUCE L1": ABSOLUTE,
    "REDUCE L2": OF_FLOATS,
    "REDUCE LOG_SUM": OF_FLOATS,
    "REDUCE LOG_SUM_EXP": OF_FLOATS,
    "REDUCE MAX": EXTREME,
    "REDUCE MIN": EXTREME,
    "REDUCE MULTIPLY": TOTAL,
    "REDUCE SUM": TOTAL,
    "REDUCE SUM_SQUARE": ABSOLUTE,
    "AVERAGE_POOLING": OF_FLOATS,
    "AVERAGE_POOLING1": same({"6_2": FLOATS}),
    "AVERAGE_POOLING_GRAD": {"3_0": {"input_gradient_tensor": FLOATS, "output_gradient_tensor": FLOATS}},
    "CUMULATIVE_PRODUCT": same({"3_1": (*FLOATS, INT32, UINT32), "5_0": (INT64, UINT64)}),
    "CUMULATIVE_SUMMATION": same({"2_1": (*FLOATS, INT32, UINT32), "5_0": (INT64, UINT64)}),
    "LP_POOLING": OF_FLOATS,
    "LP_POOLING1": same({"6_2": FLOATS}),
    "MAX_POOLING": max_pooling("1_0"),
    "MAX_POOLING1": max_pooling("2_0"),
    "MAX_POOLING2": max_pooling("2_1"),
    "MAX_POOLING_GRAD": {
        "3_0": dict.fromkeys(("input_tensor", "input_gradient_tensor", "output_gradient_tensor"), FLOATS)
    },
    "MAX_UNPOOLING": {
        "3_0": {"input_tensor": FLOATS, "indices_tensor": (UINT32,), "output_tensor": FLOATS},
        "5_0": {
            "input_tensor": (INT64, UINT64, *SMALL_INTEGERS),
            "indices_tensor": (UINT64,),
            "output_tensor": (INT64, UINT64, *SMALL_INTEGERS),
        },
    },
    "QUANTIZED_LINEAR_AVERAGE_POOLING": {
        "6_2": dict.fromkeys(
            ("input_tensor", "input_zero_point_tensor", "output_zero_point_tensor", "output_tensor"), (INT8, UINT8)
        )
        | dict.fromkeys(("input_scale_tensor", "output_scale_tensor"), (FLOAT32,))
    },
    "ROI_POOLING": {"1_0": dict.fromkeys(("input_tensor", "roi_tensor", "output_tensor"), FLOATS)},
    "TOP_K": top_k({"2_0": FLOATS, "2_1": SMALL_INTEGERS, "5_0": (INT64, UINT64)}),
    "TOP_K1": top_k({"2_1": (*FLOATS, *SMALL_INTEGERS), "5_0": (INT64, UINT64)}),
}


def feature_level(desc: OperatorDesc) -> str | None:
    """The least feature level of DirectML that has an operator with these types; None: no level has it.

    Args:
        desc: the operator. Only its kind and the types of its tensors count.

    Raises:
        TypeError: desc is not an operator descriptor.

    Example:
        >>> import numpy as np, dmlgpu
        >>> dmlgpu.feature_level(dmlgpu.ArgmaxOperatorDesc.of(np.zeros((3, 4), np.int64)))
        '4_1'
        >>> print(dmlgpu.feature_level(dmlgpu.ArgmaxOperatorDesc.of(np.zeros((3, 4)))))  # float64
        None
    """
    if not isinstance(desc, OperatorDesc):
        raise TypeError(f"{shown(desc)} is not an operator descriptor")
    name = re.sub("(?<=[a-z])(?=[A-Z])", "_", type(desc).__name__.removesuffix("OperatorDesc")).upper()
    if isinstance(desc, ReduceOperatorDesc):
        name += f" {desc.function.name}"
    tensors = {field: tensor.data_type for field, tensor in vars(desc).items() if isinstance(tensor, TensorDesc)}
    for level, added in FEATURE_LEVELS.get(name, {}).items():
        tensors = {field: data_type for field, data_type in tensors.items() if data_type not in added.get(field, ())}
        if not tensors:
            return level
    return None
