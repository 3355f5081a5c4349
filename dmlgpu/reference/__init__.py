"""The oracle: every operator in plain NumPy.

The oracle shares no code with devices, and prefers obvious code to fast code.
"""

from __future__ import annotations

from functools import singledispatch

import numpy as np

from dmlgpu.descriptors.cumulative import CumulativeOperatorDesc
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
    ArgOperatorDesc,
    ExactSumOperatorDesc,
    ExtremumOperatorDesc,
    ReduceOperatorDesc,
    ShortSumOperatorDesc,
)
from dmlgpu.descriptors.roi_pooling import RoiPoolingOperatorDesc
from dmlgpu.descriptors.tensor import Array, as_array, check
from dmlgpu.descriptors.top_k import TopK1OperatorDesc
from dmlgpu.reference.cumulative import cumulative, cumulative_with_exact_sums
from dmlgpu.reference.pooling import (
    average_pooling,
    average_pooling_grad,
    average_pooling_with_exact_sums,
    lp_pooling,
    max_pooling,
    max_pooling_grad,
    max_unpooling,
    quantized_average_pooling,
    roi_pooling,
)
from dmlgpu.reference.reduction import arg, exact_sum, extremum, reduce, reduce_with_exact_sums, short_sum, top_k


def reference(desc: OperatorDesc, *inputs: Array, flags: ExecutionFlags = ExecutionFlags.NONE) -> tuple[Array, ...]:
    """The outputs of an operator, as packed arrays of the descriptor's sizes and types.

    Args:
        desc: the operator.
        inputs: an array for each input tensor, of its sizes and type; bool is allowed for UINT8.
        flags: as for `Device.compile`.

    Raises:
        DescriptorError: an input is not an array of its tensor's sizes and type.

    Example:
        >>> import numpy as np, dmlgpu
        >>> x = np.float32([[1, 2, 3], [3, 0, 4]])
        >>> (indices,) = dmlgpu.reference(dmlgpu.ArgmaxOperatorDesc.of(x, axes=(1,)), x)
        >>> indices.tolist()
        [[2], [2]]
    """
    arrays = []
    for x, tensor, field in zip(inputs, desc.inputs, desc.input_fields, strict=True):
        name = f"{type(desc).__name__}.{field}"
        arrays.append(as_array(x, name))
        check(tensor, name, arrays[-1])
    arrays = [x.astype(np.uint8) if x.dtype == np.bool_ else x for x in arrays]
    canonical = desc.canonical()
    if ExecutionFlags.EXACT_SUMS in flags and isinstance(desc, ReduceOperatorDesc):
        return reduce_with_exact_sums(desc, *arrays)
    if ExecutionFlags.EXACT_SUMS in flags and isinstance(canonical, AveragePooling1OperatorDesc):
        return average_pooling_with_exact_sums(canonical, *arrays)
    if ExecutionFlags.EXACT_SUMS in flags and isinstance(canonical, CumulativeOperatorDesc):
        return cumulative_with_exact_sums(canonical, *arrays)
    return _reference(canonical, *arrays)


@singledispatch
def _reference(desc: OperatorDesc, *inputs: Array) -> tuple[Array, ...]:
    raise NotImplementedError(f"{type(desc).__name__} has no reference")


_reference.register(ArgOperatorDesc, arg)
_reference.register(ReduceOperatorDesc, reduce)
_reference.register(ExactSumOperatorDesc, exact_sum)
_reference.register(ExtremumOperatorDesc, extremum)
_reference.register(ShortSumOperatorDesc, short_sum)
_reference.register(TopK1OperatorDesc, top_k)
_reference.register(CumulativeOperatorDesc, cumulative)
_reference.register(MaxPooling2OperatorDesc, max_pooling)
_reference.register(AveragePooling1OperatorDesc, average_pooling)
_reference.register(QuantizedLinearAveragePoolingOperatorDesc, quantized_average_pooling)
_reference.register(LpPooling1OperatorDesc, lp_pooling)
_reference.register(AveragePoolingGradOperatorDesc, average_pooling_grad)
_reference.register(MaxPoolingGradOperatorDesc, max_pooling_grad)
_reference.register(MaxUnpoolingOperatorDesc, max_unpooling)
_reference.register(RoiPoolingOperatorDesc, roi_pooling)
