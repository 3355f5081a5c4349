"""DirectML's axis reductions and windowed pooling, with exact results, on any Vulkan device."""

from dmlgpu.device import CacheInfo, CompiledOperator, Device, DeviceTensor
from dmlgpu.drivers import DeviceInfo, devices
from dmlgpu.dtypes import AxisDirection, DataType, ReduceFunction
from dmlgpu.errors import (
    DescriptorError,
    DeviceError,
    DeviceLostError,
    OutOfMemoryError,
    SettingError,
    VerificationError,
)
from dmlgpu.functional import argmax, argmin, cache_info, clear_cache, explain, max_pooling, verify
from dmlgpu.operators import (
    ArgmaxOperatorDesc,
    ArgminOperatorDesc,
    MaxPooling1OperatorDesc,
    MaxPooling2OperatorDesc,
    MaxPoolingOperatorDesc,
    OperatorDesc,
    ReduceOperatorDesc,
)
from dmlgpu.reference import reference
from dmlgpu.tensor import TensorDesc

__version__ = "0.1.0"

__all__ = [
    "ArgmaxOperatorDesc",
    "ArgminOperatorDesc",
    "AxisDirection",
    "CacheInfo",
    "CompiledOperator",
    "DataType",
    "DescriptorError",
    "Device",
    "DeviceError",
    "DeviceInfo",
    "DeviceLostError",
    "DeviceTensor",
    "MaxPooling1OperatorDesc",
    "MaxPooling2OperatorDesc",
    "MaxPoolingOperatorDesc",
    "OperatorDesc",
    "OutOfMemoryError",
    "ReduceFunction",
    "ReduceOperatorDesc",
    "SettingError",
    "TensorDesc",
    "VerificationError",
    "argmax",
    "argmin",
    "cache_info",
    "clear_cache",
    "devices",
    "explain",
    "max_pooling",
    "reference",
    "verify",
]
