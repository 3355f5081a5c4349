"""A user's script, for type checkers: they must report an error in each marked line, and in no other."""

from typing import assert_type

import numpy as np

import dmlgpu
from dmlgpu import AxisDirection, Device, DeviceTensor, ReduceFunction
from dmlgpu.descriptors.tensor import Array

x = np.zeros((2, 3), np.float32)
with Device() as device:
    t = device.tensor(x)

# Arrays return arrays, device tensors return device tensors.
assert_type(dmlgpu.argmax(x, 1), Array)
assert_type(dmlgpu.argmax([[1, 2], [3, 4]], axis=(0, -1), keepdims=True), Array)
assert_type(dmlgpu.argmin(t, [0, 1], axis_direction="decreasing"), DeviceTensor)
assert_type(dmlgpu.argmin(t, axis_direction=AxisDirection.DECREASING, dtype=np.uint32), DeviceTensor)
assert_type(dmlgpu.reduce(x, "log_sum_exp", np.int64(1)), Array)
assert_type(dmlgpu.reduce(t, ReduceFunction.L2), DeviceTensor)
assert_type(dmlgpu.sum(x, 1, dtype="int32", out=x), Array)
assert_type(dmlgpu.mean(t, keepdims=True), DeviceTensor)
assert_type(dmlgpu.average_pooling(x, 2, padding=((0, 1), 1), include_padding=True), Array)
assert_type(dmlgpu.lp_pooling(t, (2, 2), p=3, device=device), DeviceTensor)
assert_type(dmlgpu.quantized_average_pooling(x, 2, input_scale=0.5, dtype="int8"), Array)
assert_type(dmlgpu.quantized_average_pooling(t, 2, output_zero_point=t), DeviceTensor)
assert_type(dmlgpu.average_pooling_grad(t, (4, 4), 2), DeviceTensor)
assert_type(dmlgpu.max_pooling_grad(t, t, 2), DeviceTensor)
assert_type(dmlgpu.max_pooling_grad(t, x, 2), Array)
assert_type(dmlgpu.max_pooling_grad(x, t, 2, indices=x), DeviceTensor)
assert_type(dmlgpu.max_unpooling(t, x, 8), DeviceTensor)
assert_type(dmlgpu.max_unpooling(x, t, 8), Array)
assert_type(dmlgpu.roi_pooling(x, [[0, 0, 0, 1, 1]], 2), Array)
assert_type(dmlgpu.roi_pooling(t, t, (2, 1), spatial_scale=0.5), DeviceTensor)

# With indices there are two results.
assert_type(dmlgpu.max_pooling(x, 2), Array)
assert_type(dmlgpu.max_pooling(x, 2, output_indices=True, strides=(1, 2)), tuple[Array, Array])
assert_type(dmlgpu.max_pooling(t, 2, output_indices=False), DeviceTensor)
assert_type(dmlgpu.max(x, 1), Array)
assert_type(dmlgpu.min(t, output_indices=True), tuple[DeviceTensor, DeviceTensor])
assert_type(dmlgpu.cumulative_sum(x, axis=1, axis_direction="decreasing"), Array)
assert_type(dmlgpu.cumulative_prod(t, axis=np.int64(0)), DeviceTensor)
assert_type(dmlgpu.top_k(x, 2, mode="smallest"), tuple[Array, Array])
assert_type(dmlgpu.top_k(t, np.int64(1), axis=0, indices_data_type=np.uint32), tuple[DeviceTensor, DeviceTensor])
values, indices = dmlgpu.max_pooling(t, 2, strides=(1, 2), output_indices=True)
assert_type(values, DeviceTensor)

# Chunks return arrays.
assert_type(dmlgpu.argmax(dmlgpu.chunked(x, chunk_bytes=4), 0), Array)
assert_type(dmlgpu.sum(dmlgpu.chunked("x.npy"), out="sums.npy"), Array)
assert_type(dmlgpu.max_pooling(dmlgpu.chunked(x), 2, output_indices=True), tuple[Array, Array])

dmlgpu.argmax(x, axis="zero")  # error
dmlgpu.argmax(x, 1.0)  # error
dmlgpu.argmax(x, 1, direction=AxisDirection.DECREASING)  # error
dmlgpu.argmax(x, axis_direction="down")  # error
dmlgpu.reduce(x, "summ")  # error
dmlgpu.reduce(x)  # error
dmlgpu.sum(x, where=x > 0)  # error
dmlgpu.sum(x, axes=1)  # error
dmlgpu.top_k(x)  # error
dmlgpu.cumulative_sum(x, 1)  # error
dmlgpu.top_k(x, 2.0)  # error
dmlgpu.top_k(x, 2, mode="greatest")  # error
dmlgpu.max_pooling(x)  # error
dmlgpu.max_pooling(x, "2")  # error
dmlgpu.max_pooling(x, 2, stride=2)  # error
dmlgpu.lp_pooling(x, 2, padding="same")  # error
values, indices = dmlgpu.max_pooling(t, 2)  # error
dmlgpu.roi_pooling(x, x, 2, scale=0.5)  # error
dmlgpu.chunked(x, chunks=3)  # error
t.sum()  # error
t.transpose()  # error
t + 1  # error
