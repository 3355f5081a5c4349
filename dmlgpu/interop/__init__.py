"""The operators with the interfaces of other libraries; the first use of a module imports it and its library.

array_api: reductions with the signatures of the Python array API standard. torch: tensors of PyTorch. onnx: models.
dask: a cluster of workers for Dask arrays, which dmlgpu's functions accept.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["array_api", "dask", "onnx", "torch"]

if TYPE_CHECKING:
    from dmlgpu.interop import array_api, dask, onnx, torch
else:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])
        return import_module(f"{__name__}.{name}")
