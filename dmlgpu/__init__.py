"""DirectML's axis reductions and windowed pooling, with exact results, on any Vulkan device."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from dmlgpu import interop
from dmlgpu.descriptors.cumulative import CumulativeProductOperatorDesc, CumulativeSummationOperatorDesc
from dmlgpu.descriptors.dtypes import DataType
from dmlgpu.descriptors.feature_levels import feature_level
from dmlgpu.descriptors.operator import ExecutionFlags, OperatorDesc
from dmlgpu.descriptors.pooling import (
    AveragePooling1OperatorDesc,
    AveragePoolingGradOperatorDesc,
    AveragePoolingOperatorDesc,
    LpPooling1OperatorDesc,
    LpPoolingOperatorDesc,
    MaxPooling1OperatorDesc,
    MaxPooling2OperatorDesc,
    MaxPoolingGradOperatorDesc,
    MaxPoolingOperatorDesc,
    MaxUnpoolingOperatorDesc,
    QuantizedLinearAveragePoolingOperatorDesc,
)
from dmlgpu.descriptors.reduction import (
    ArgmaxOperatorDesc,
    ArgminOperatorDesc,
    AxisDirection,
    ReduceFunction,
    ReduceOperatorDesc,
)
from dmlgpu.descriptors.roi_pooling import RoiPoolingOperatorDesc
from dmlgpu.descriptors.tensor import TensorDesc
from dmlgpu.descriptors.top_k import TopK1OperatorDesc, TopKOperatorDesc
from dmlgpu.errors import (
    DescriptorError,
    DeviceError,
    DeviceLostError,
    OutOfMemoryError,
    SettingError,
    VerificationError,
)
from dmlgpu.functions import (
    adaptive_average_pooling,
    adaptive_max_pooling,
    argmax,
    argmin,
    average_pooling,
    average_pooling_grad,
    cache_info,
    clear_cache,
    cumulative_prod,
    cumulative_sum,
    explain,
    lp_pooling,
    max_pooling,
    max_pooling_grad,
    max_unpooling,
    mean,
    prod,
    quantized_average_pooling,
    reduce,
    roi_pooling,
    top_k,
    verify,
)
from dmlgpu.functions import (
    max as max,
)
from dmlgpu.functions import (
    min as min,
)
from dmlgpu.functions import (
    sum as sum,
)
from dmlgpu.reference import reference
from dmlgpu.runtime.compiled import CompiledOperator
from dmlgpu.runtime.device import CacheInfo, Device, Support
from dmlgpu.runtime.drivers import DeviceInfo, devices
from dmlgpu.runtime.profile import Profile
from dmlgpu.runtime.tensor import DeviceTensor

__version__ = "0.1.0"

# Without max, min and sum, which a star import would put in the place of Python's.
__all__ = [
    "ArgmaxOperatorDesc",
    "ArgminOperatorDesc",
    "AveragePooling1OperatorDesc",
    "AveragePoolingGradOperatorDesc",
    "AveragePoolingOperatorDesc",
    "AxisDirection",
    "CacheInfo",
    "CompiledOperator",
    "CumulativeProductOperatorDesc",
    "CumulativeSummationOperatorDesc",
    "DataType",
    "DescriptorError",
    "Device",
    "DeviceError",
    "DeviceInfo",
    "DeviceLostError",
    "DeviceTensor",
    "ExecutionFlags",
    "LpPooling1OperatorDesc",
    "LpPoolingOperatorDesc",
    "MaxPooling1OperatorDesc",
    "MaxPooling2OperatorDesc",
    "MaxPoolingGradOperatorDesc",
    "MaxPoolingOperatorDesc",
    "MaxUnpoolingOperatorDesc",
    "OperatorDesc",
    "OutOfMemoryError",
    "Profile",
    "QuantizedLinearAveragePoolingOperatorDesc",
    "ReduceFunction",
    "ReduceOperatorDesc",
    "RoiPoolingOperatorDesc",
    "SettingError",
    "Support",
    "TensorDesc",
    "TopK1OperatorDesc",
    "TopKOperatorDesc",
    "VerificationError",
    "adaptive_average_pooling",
    "adaptive_max_pooling",
    "argmax",
    "argmin",
    "average_pooling",
    "average_pooling_grad",
    "cache_info",
    "chunked",
    "clear_cache",
    "cumulative_prod",
    "cumulative_sum",
    "devices",
    "explain",
    "feature_level",
    "interop",
    "lp_pooling",
    "max_pooling",
    "max_pooling_grad",
    "max_unpooling",
    "mean",
    "prod",
    "quantized_average_pooling",
    "reduce",
    "reference",
    "roi_pooling",
    "top_k",
    "verify",
]

if TYPE_CHECKING:
    from dmlgpu.chunks.source import chunked
else:

    def __getattr__(name: str) -> Any:
        # What chunks need takes a tenth of the time that all else takes to import.
        if name != "chunked":
            # With the module, Python's traceback adds the name that is most similar.
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])
        return import_module("dmlgpu.chunks.source").chunked
