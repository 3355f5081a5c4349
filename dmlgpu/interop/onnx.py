"""Runs ONNX models on a Vulkan device, through ONNX's standard interface `onnx.backend.base.Backend`.

    outputs = dmlgpu.interop.onnx.prepare(model).run([x])

Supported operators are ArgMax, ArgMin, TopK, CumSum, CumProd, MaxPool, AveragePool, LpPool, GlobalMaxPool,
GlobalAveragePool, GlobalLpPool, MaxRoiPool, MaxUnpool and Reduce*, of every opset that has them; QLinearAveragePool and
QLinearGlobalAveragePool of com.microsoft; and Constant, because exporters write axes as constants. Results follow
ONNX's operator specifications; types are those of the descriptors. Tensors between two operators stay on the device.

The host only converts indices for `storage_order` 1, and copies MaxUnpool's output into a larger `output_shape`.
Reduce* of an empty set is 1 for a product, NaN for a mean, inf for a minimum, -inf for a maximum or a logarithm, and 0
otherwise. Integers have 0 instead of NaN, and the limits of their type instead of infinities.

Needs the extra `onnx`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from dmlgpu import functions
from dmlgpu.call import arguments_of
from dmlgpu.descriptors.cumulative import (
    CumulativeKind,
    CumulativeProductOperatorDesc,
    CumulativeSummationOperatorDesc,
)
from dmlgpu.descriptors.dtypes import DataType
from dmlgpu.descriptors.operator import TypeTable
from dmlgpu.descriptors.pooling import (
    FLOAT_POOLING_TYPES,
    MAX_POOLING_TYPES,
    MaxUnpoolingOperatorDesc,
    QuantizedLinearAveragePoolingOperatorDesc,
)
from dmlgpu.descriptors.reduction import ARG_TYPES, REDUCE_TYPES, AxisDirection, axes_of
from dmlgpu.descriptors.reduction import ReduceFunction as F
from dmlgpu.descriptors.roi_pooling import RoiPoolingOperatorDesc
from dmlgpu.descriptors.tensor import as_array
from dmlgpu.descriptors.top_k import TopK1OperatorDesc
from dmlgpu.descriptors.window import Window
from dmlgpu.errors import DescriptorError, extra
from dmlgpu.runtime.device import Device, open_device
from dmlgpu.runtime.tensor import DeviceTensor

with extra("onnx", "onnx"):
    import onnx
    from onnx.backend import base

# A device tensor; or an array on the host, which is empty or not uploaded yet.
Value = DeviceTensor | np.ndarray[Any, Any]


class UnsupportedError(NotImplementedError):
    """A model has an operator, an attribute or a type that dmlgpu lacks, which the message names with its node."""


def _name_of(node: onnx.NodeProto) -> str:
    return f"{'.'.join(filter(None, (node.domain, node.op_type)))} ({node.name or node.output[0]})"


class _Call:
    """The execution of a node."""

    def __init__(self, node: onnx.NodeProto, values: dict[str, Value], booleans: set[str], device: Device) -> None:
        self.name = _name_of(node)
        self.attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
        self.outputs, self.device = tuple(node.output), device
        self._inputs, self._values, self._booleans = tuple(node.input), values, booleans

    def flag(self, name: str, default: int = 0) -> bool:
        """An attribute that is 0 or 1."""
        value = self.attributes.get(name, default)
        if value not in (0, 1):
            raise UnsupportedError(f"{self.name}: {name} {value} is not allowed; allowed are 0 and 1")
        return bool(value)

    def has(self, i: int) -> bool:
        """Whether the node has input i."""
        return i < len(self._inputs) and self._inputs[i] != ""

    def data(self, i: int) -> Value:
        """Input i, uploaded to the device; an empty array stays on the host."""
        name = self._inputs[i]
        value = self._values[name]
        if isinstance(value, np.ndarray) and value.size:
            if value.dtype == np.bool_:
                self._booleans.add(name)
            value = self._values[name] = self.device.tensor(value)
        return value

    def image(self) -> Value:
        """Input 0, which must have spatial dimensions."""
        x = self.data(0)
        if len(x.shape) < 3:
            raise DescriptorError(f"{self.name}: an input of {x.shape} has no spatial dimensions")
        return x

    def integers(self, attribute: str, i: int) -> tuple[int, ...] | None:
        """Integers that some opsets have as an attribute, and others as input i; None: the node has neither."""
        if attribute in self.attributes:
            return tuple(np.atleast_1d(self.attributes[attribute]).tolist())
        if not self.has(i):
            return None
        return tuple(np.asarray(self._values[self._inputs[i]]).reshape(-1).tolist())

    def finish(self, results: Sequence[Value]) -> None:
        """Stores the outputs. On the device bool is uint8: a uint8 output of a bool input is marked as bool."""
        from_booleans = not self._booleans.isdisjoint(self._inputs)
        for name, value in zip(self.outputs, results, strict=False):
            self._values[name] = value
            if from_booleans and value.dtype == np.uint8:
                self._booleans.add(name)


def _arg(function: Callable[..., Any], call: _Call) -> Sequence[Value]:
    axis, keepdims = call.attributes.get("axis", 0), call.flag("keepdims", 1)
    direction = AxisDirection.DECREASING if call.flag("select_last_index") else AxisDirection.INCREASING
    return [function(call.data(0), axis, keepdims=keepdims, axis_direction=direction, device=call.device)]


def _top_k(call: _Call) -> Sequence[Value]:
    x, counts, axis = call.data(0), call.integers("k", 1), call.attributes.get("axis", -1)
    if counts is None or len(counts) != 1:
        raise DescriptorError(f"{call.name}: K {counts} is not allowed; allowed is one integer")
    call.flag("sorted", 1)  # the results are always in order
    largest = bool(call.flag("largest", 1))
    if counts == (0,) and -x.ndim <= axis < x.ndim:
        sizes = [0 if i == axis % x.ndim else size for i, size in enumerate(x.shape)]
        return [np.empty(sizes, x.dtype), np.empty(sizes, np.int64)]
    return functions.top_k(x, *counts, axis=axis, largest=largest, device=call.device)


def _cumulative(kind: CumulativeKind, call: _Call) -> Sequence[Value]:
    x, axes = call.data(0), call.integers("axis", 1)
    if axes is None or len(axes) != 1:
        raise DescriptorError(f"{call.name}: axis {axes} is not allowed; allowed is one integer")
    direction = AxisDirection.DECREASING if call.flag("reverse") else AxisDirection.INCREASING
    exclusive = {kind.exclusive_field: call.flag("exclusive")}
    if isinstance(x, np.ndarray):
        axes_of(kind.__name__, axes, x.ndim)  # raises if an axis is out of range
        return [x]
    desc = kind.of(x, *axes, direction, **exclusive)
    return [call.device.run(desc, [x])]


def _value_of_empty(function: F, dtype: np.dtype[Any]) -> Any:
    least, most = {"b": (0, 1), "f": (-np.inf, np.inf)}.get(dtype.kind) or (np.iinfo(dtype).min, np.iinfo(dtype).max)
    average = np.nan if dtype.kind == "f" else 0
    values = {F.MAX: least, F.MIN: most, F.LOG_SUM: least, F.LOG_SUM_EXP: least, F.MULTIPLY: 1, F.AVERAGE: average}
    return values.get(function, 0)


def _reduce(function: F, call: _Call) -> Sequence[Value]:
    x, axes = call.data(0), call.integers("axes", 1) or None
    keepdims = call.flag("keepdims", 1)
    if axes is None and call.flag("noop_with_empty_axes"):
        axes = ()
    if isinstance(x, np.ndarray):
        sizes = np.any(x, axis=axes, keepdims=keepdims).shape
        return [np.full(sizes, _value_of_empty(function, x.dtype), x.dtype)]
    return [functions.reduce(x, function, axes, keepdims=keepdims, device=call.device)]


def _geometry(call: _Call, rank: int) -> tuple[list[int], ...]:
    """A window over `rank` dimensions: its sizes, strides, start padding, end padding and dilations."""
    defaults = {"kernel_shape": [], "strides": [1] * rank, "dilations": [1] * rank, "pads": [0] * 2 * rank}
    attributes = {name: [*call.attributes.get(name, default)] for name, default in defaults.items()}
    for name, entries in attributes.items():
        least = int(name != "pads")
        if len(entries) != (rank if least else 2 * rank):
            raise UnsupportedError(f"{call.name}: {name} {entries} does not match {rank} spatial dimensions")
        if any(entry < least for entry in entries):
            raise UnsupportedError(
                f"{call.name}: {name} {entries} is not allowed; allowed are integers from {least} on"
            )
    window_size, strides, dilations, pads = attributes.values()
    return window_size, strides, pads[:rank], pads[rank:], dilations


_AUTO_PADS = "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"


def _windows(call: _Call, sizes: Sequence[int]) -> list[Window]:
    """A node's windows over these spatial sizes."""
    geometry, windows = _geometry(call, len(sizes)), []
    automatic = call.attributes.get("auto_pad", b"").decode() or "NOTSET"
    if automatic not in _AUTO_PADS:
        raise UnsupportedError(
            f"{call.name}: auto_pad {automatic!r} is not allowed; allowed are {', '.join(_AUTO_PADS)}"
        )
    ceil = call.flag("ceil_mode") and automatic == "NOTSET"
    for row in zip(sizes, *geometry, strict=True):
        window = Window(*row)
        if automatic == "VALID":
            window = window._replace(start_padding=0, end_padding=0)
        if automatic.startswith("SAME"):
            window = window._replace(start_padding=0, output_size=-(-window.size // window.stride))
            padding = window.overhang
            start = padding // 2 if automatic == "SAME_UPPER" else padding - padding // 2
            windows.append(window._replace(start_padding=start, end_padding=padding - start))
            continue
        steps = window.padded - window.extent
        # ONNX Runtime rounds negative steps up, also without ceil_mode.
        count = window.rounded(ceil or steps < 0)
        if steps < 0 and max(geometry[-1]) == 1 and call.flag("count_include_pad"):
            # The divisor is the size of the whole window, as in ONNX Runtime; with dilations, of the cut window.
            window = window._replace(end_padding=window.end_padding - steps)
        elif steps < 0:
            window = window.cut
        windows.append(window._replace(output_size=count))
    if min((window.output_size for window in windows), default=0) < 0:
        kernel_shape = call.attributes["kernel_shape"]
        raise DescriptorError(f"{call.name}: kernel_shape {kernel_shape} does not fit spatial sizes {tuple(sizes)}")
    return windows


def _pool(function: Callable[..., Any], call: _Call, **options: Any) -> Sequence[Value]:
    """Pools over 1 to 3 spatial dimensions; a 1-D input gets a height of 1."""
    x = call.image()
    windows = _windows(call, x.shape[2:])
    counts = [window.output_size for window in windows]
    sizes = *x.shape[:2], *counts
    if 0 in counts:
        return [np.empty(sizes, x.dtype), np.empty(sizes, np.int64)]
    if x.ndim == 3:
        x = x.reshape(*x.shape[:2], 1, x.shape[2])
        windows.insert(0, Window(1, 1))
    results = function(x, **arguments_of(windows), **options, device=call.device)
    return [result.reshape(*sizes) for result in (results if isinstance(results, tuple) else (results,))]


def _max_pool(call: _Call) -> Sequence[Value]:
    if len(call.outputs) == 1:
        return _pool(functions.max_pooling, call)
    values, indices = _pool(functions.max_pooling, call, output_indices=True)
    if call.flag("storage_order"):
        sizes = call.data(0).shape[2:]
        # numbers.take(i) is the column-major index of the element with the row-major index i.
        numbers = np.arange(math.prod(sizes)).reshape(sizes, order="F")
        planes, places = np.divmod(np.asarray(indices), numbers.size)
        indices = planes * numbers.size + numbers.take(places)
    return values, indices


def _power(call: _Call) -> int:
    p = call.attributes.get("p", 2)  # a float in opset 1
    return int(p) if p % 1 == 0 else p


def _global_pool(function: F, call: _Call) -> Sequence[Value]:
    x = call.image()
    return [functions.reduce(x, function, tuple(range(2, x.ndim)), keepdims=True, device=call.device)]


def _global_lp_pool(call: _Call) -> Sequence[Value]:
    x = call.image()
    plane = x.reshape(*x.shape[:2], 1, math.prod(x.shape[2:]))
    norm = functions.lp_pooling(plane, (1, plane.shape[3]), p=_power(call), device=call.device)
    return [norm.reshape(*x.shape[:2], *(1,) * (x.ndim - 2))]


def _max_roi_pool(call: _Call) -> Sequence[Value]:
    size, scale = tuple(call.attributes.get("pooled_shape", ())), call.attributes.get("spatial_scale", 1.0)
    return [functions.roi_pooling(call.image(), call.data(1), size, scale, device=call.device)]


def _parameters(call: _Call) -> dict[str, Value]:
    """Scales and zero points, as arguments of `quantized_average_pooling`."""
    if call.flag("channels_last"):
        raise UnsupportedError(f"{call.name}: channels_last 1 is not supported; allowed is 0")
    names = "input_scale", "input_zero_point", "output_scale", "output_zero_point"
    return {name: call.data(i) for i, name in enumerate(names, 1) if call.has(i)}


def _quantized_pool(call: _Call) -> Sequence[Value]:
    include_padding = call.flag("count_include_pad")
    return _pool(functions.quantized_average_pooling, call, include_padding=include_padding, **_parameters(call))


def _quantized_global_pool(call: _Call) -> Sequence[Value]:
    x = call.image()
    plane = x.reshape(*x.shape[:2], 1, math.prod(x.shape[2:]))
    parameters: Any = _parameters(call)
    averages = functions.quantized_average_pooling(plane, (1, plane.shape[3]), **parameters, device=call.device)
    return [averages.reshape(*x.shape[:2], *(1,) * (x.ndim - 2))]


def _max_unpool(call: _Call) -> Sequence[Value]:
    x, indices = call.image(), call.data(1)
    if indices.shape != x.shape:
        raise DescriptorError(f"{call.name}: indices of shape {indices.shape} do not match an input of {x.shape}")
    *geometry, _ = _geometry(call, x.ndim - 2)
    lines = zip(x.shape[2:], *geometry, strict=True)
    inferred = *x.shape[:2], *((size - 1) * stride + k - start - end for size, k, stride, start, end in lines)
    # Indices count in the input of MaxPool. If that may have another shape than `inferred`, its shape is an input.
    sizes = call.integers("output_shape", 2) or inferred
    if len(sizes) != x.ndim or sizes[:2] != x.shape[:2] or min(sizes[2:]) < 1:
        raise DescriptorError(
            f"{call.name}: output_shape {sizes} is not allowed; allowed are {x.ndim} sizes that begin "
            f"with {x.shape[:2]}"
        )
    # Indices are row-major over the whole output, so its spatial dimensions can be merged into one.
    source, places = (array.reshape(*x.shape[:2], 1, math.prod(x.shape[2:])) for array in (x, indices))
    result = functions.max_unpooling(source, places, (1, math.prod(sizes[2:])), device=call.device)
    return [result.reshape(*sizes)]


def _constants(graph: onnx.GraphProto) -> dict[str, np.ndarray[Any, Any]]:
    """The values of initializers and of Constant nodes, by name."""
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            (attribute,) = node.attribute
            if attribute.name not in ("value", "value_int", "value_ints"):
                raise UnsupportedError(f"{_name_of(node)}: its attribute {attribute.name} is not supported")
            value = onnx.helper.get_attribute_value(attribute)
            is_tensor = attribute.name == "value"
            constants[node.output[0]] = onnx.numpy_helper.to_array(value) if is_tensor else np.asarray(value, np.int64)
    return constants


_NAMES = {F.AVERAGE: "Mean", F.MULTIPLY: "Prod"}
# The types that an operator accepts, and the function that computes it.
_OPERATORS: Mapping[str, tuple[TypeTable, Callable[[_Call], Sequence[Value]]]] = {
    "ArgMax": (ARG_TYPES, partial(_arg, functions.argmax)),
    "ArgMin": (ARG_TYPES, partial(_arg, functions.argmin)),
    "TopK": (TopK1OperatorDesc.types, _top_k),
    "CumSum": (CumulativeSummationOperatorDesc.types, partial(_cumulative, CumulativeSummationOperatorDesc)),
    "CumProd": (CumulativeProductOperatorDesc.types, partial(_cumulative, CumulativeProductOperatorDesc)),
    "MaxPool": (MAX_POOLING_TYPES, _max_pool),
    "AveragePool": (
        FLOAT_POOLING_TYPES,
        lambda call: _pool(functions.average_pooling, call, include_padding=call.flag("count_include_pad")),
    ),
    "LpPool": (FLOAT_POOLING_TYPES, lambda call: _pool(functions.lp_pooling, call, p=_power(call))),
    "GlobalMaxPool": (REDUCE_TYPES[F.MAX], partial(_global_pool, F.MAX)),
    "GlobalAveragePool": (REDUCE_TYPES[F.AVERAGE], partial(_global_pool, F.AVERAGE)),
    "GlobalLpPool": (FLOAT_POOLING_TYPES, _global_lp_pool),
    "MaxRoiPool": (RoiPoolingOperatorDesc.types, _max_roi_pool),
    "MaxUnpool": (MaxUnpoolingOperatorDesc.types, _max_unpool),
    "com.microsoft.QLinearAveragePool": (QuantizedLinearAveragePoolingOperatorDesc.types, _quantized_pool),
    "com.microsoft.QLinearGlobalAveragePool": (QuantizedLinearAveragePoolingOperatorDesc.types, _quantized_global_pool),
    **{
        f"Reduce{_NAMES.get(function, function.name.title().replace('_', ''))}": (types, partial(_reduce, function))
        for function, types in REDUCE_TYPES.items()
        if function not in (F.ARGMAX, F.ARGMIN)
    },
}
_DOMAINS = "", "ai.onnx"


def _operator(domain: str, name: str) -> str:
    """The name of an operator in _OPERATORS: outside ONNX's domain it begins with the domain."""
    return name if domain in _DOMAINS else f"{domain}.{name}"


def _unknown(model: onnx.ModelProto) -> list[str]:
    """The nodes that dmlgpu cannot compute: unknown operators, and those that functions of the model replace."""
    known = {*_OPERATORS, "Constant"} - {_operator(function.domain, function.name) for function in model.functions}
    return [_name_of(node) for node in model.graph.node if _operator(node.domain, node.op_type) not in known]


def _check_types(graph: onnx.GraphProto, constants: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Raises an UnsupportedError if an input of a node has a known type that its operator does not accept."""
    types = {name: onnx.helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in constants.items()}
    for info in graph.input:
        if 0 not in _sizes(info.type.tensor_type):  # an empty input may have any type: nothing is computed
            types.setdefault(info.name, info.type.tensor_type.elem_type)
    integer = onnx.TensorProto.INT64
    for node in graph.node:
        if node.op_type == "Constant":
            continue
        table = _OPERATORS[_operator(node.domain, node.op_type)][0]
        allowed = [onnx.helper.np_dtype_to_tensor_dtype(data_type.numpy) for data_type in table["input_tensor"]]
        if DataType.UINT8 in table["input_tensor"] and node.domain != "com.microsoft":
            allowed.append(onnx.TensorProto.BOOL)
        _check_type(node, 0, types, allowed)
        if "indices_tensor" in table:
            _check_type(node, 1, types, [integer])
        if "roi_tensor" in table:
            _check_type(node, 1, types, allowed)
        # Outputs of ArgMax and ArgMin are indices, as are the second outputs of TopK and MaxPool.
        first = integer if table is ARG_TYPES else types.get(node.input[0], 0)
        types |= zip(node.output, (first, integer), strict=False)


def _check_type(node: onnx.NodeProto, i: int, types: Mapping[str, int], allowed: Sequence[int]) -> None:
    kind = types.get(node.input[i], 0)
    if kind not in (0, *allowed):
        name, *names = map(onnx.TensorProto.DataType.Name, (kind, *allowed))
        raise UnsupportedError(
            f"{_name_of(node)}: {node.input[i]} of {name} is not supported; allowed are {', '.join(names)}"
        )


def _sizes(kind: onnx.TypeProto.Tensor) -> list[int | str]:
    """The sizes of a tensor type; an unknown size is a string."""
    return [
        dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else dim.dim_param or "?"
        for dim in kind.shape.dim
    ]


def _checked(x: Any, name: str, kind: onnx.TypeProto.Tensor) -> np.ndarray[Any, Any]:
    """An input as an array, checked against the type and the shape if the model declares them."""
    array, sizes = as_array(x, f"input {name}"), _sizes(kind)
    if kind.elem_type:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        if array.dtype.name != dtype.name:  # names do not depend on the byte order
            raise TypeError(f"input {name}: {array.dtype} is not allowed; the model declares {dtype}")
    fits = len(sizes) == array.ndim and all(
        declared == size or isinstance(declared, str) for declared, size in zip(sizes, array.shape, strict=True)
    )
    if kind.HasField("shape") and not fits:
        raise ValueError(f"input {name}: shape {array.shape} is not allowed; the model declares {tuple(sizes)}")
    return array


class Representation(base.BackendRep):  # type: ignore[misc]  # onnx has no types
    """A graph that is ready to run. `executions` counts the nodes that were executed, in all runs."""

    def __init__(self, model: onnx.ModelProto, device: str) -> None:
        graph = model.graph
        if not Backend.supports_device(device):
            raise ValueError(f"device: {device!r} is not supported; allowed are CPU, VULKAN and VULKAN:SELECTOR")
        if unknown := _unknown(model):
            raise UnsupportedError(f"dmlgpu lacks operators of this model: {', '.join(unknown)}")
        if sparse := [tensor.values.name for tensor in graph.sparse_initializer]:
            raise UnsupportedError(f"sparse initializers are not supported: {', '.join(sparse)}")
        if others := [info.name for info in graph.input if info.type.WhichOneof("value") not in (None, "tensor_type")]:
            raise UnsupportedError(f"inputs other than tensors are not supported: {', '.join(others)}")
        self._constants = _constants(graph)
        _check_types(graph, self._constants)
        selector = device.partition(":")[2]
        self.device = open_device(int(selector) if selector.isdecimal() else selector or None)
        self._nodes = [node for node in graph.node if node.op_type != "Constant"]
        self._outputs, self.executions = [info.name for info in graph.output], 0
        self._results = base.namedtupledict("Outputs", self._outputs)
        self._types = {info.name: info.type.tensor_type for info in graph.input}
        self._inputs = [name for name in self._types if name not in self._constants]

    def run(self, inputs: Any) -> tuple[Any, ...]:
        """The outputs, as a named tuple of arrays.

        Args:
            inputs: arrays in a list or tuple, in the model's order; arrays in a dictionary, by name; or one array, if
                the model has one input. Inputs with an initializer, which is their default, are passed by name only.

        Raises:
            ValueError: inputs are not the model's, or one has another shape. TypeError: an input has another type.
            UnsupportedError: an attribute is not supported.
            DescriptorError: an operator refuses its inputs, or an input is masked.
            DeviceError: the device is closed.
        """
        values: dict[str, Value] = {**self._constants, **self._by_name(inputs)}
        booleans: set[str] = set()
        with self.device.batch():
            for node in self._nodes:
                call = _Call(node, values, booleans, self.device)
                call.finish(_OPERATORS[_operator(node.domain, node.op_type)][1](call))
                self.executions += 1
        outputs = (np.array(values[name], bool if name in booleans else None) for name in self._outputs)
        return self._results(*outputs)  # type: ignore[no-any-return]

    def _by_name(self, inputs: Any) -> dict[str, np.ndarray[Any, Any]]:
        if isinstance(inputs, Mapping):
            names, arrays = [*inputs], [*inputs.values()]
            wrong = "" if {*self._inputs} <= {*names} <= {*self._types} else f"not {names}"
        else:
            names, arrays = self._inputs, [*inputs] if isinstance(inputs, (list, tuple)) else [inputs]
            wrong = "" if len(names) == len(arrays) else f"and {len(arrays)} are given"
        if wrong:
            defaults = [name for name in self._types if name in self._constants]
            optional = f" and, by name in a dictionary, {defaults}" if defaults else ""
            raise ValueError(f"the model's inputs are {self._inputs}{optional}, {wrong}")
        return {name: _checked(x, name, self._types[name]) for name, x in zip(names, arrays, strict=True)}


def _loaded(model: Any) -> onnx.ModelProto:
    """The model itself, or the model in a file or in bytes."""
    if isinstance(model, onnx.ModelProto):
        return model
    return onnx.load_from_string(model) if isinstance(model, bytes) else onnx.load(os.fspath(model))


class Backend(base.Backend):  # type: ignore[misc]  # onnx has no types
    """dmlgpu as a backend of ONNX.

    `device` is CPU or VULKAN, the default device of dmlgpu, or VULKAN:SELECTOR, with a selector of `dmlgpu.Device`.
    """

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether `device` is CPU, VULKAN, or VULKAN: followed by an index, part of a name or a UUID.

        Example:
            >>> from dmlgpu.interop import onnx
            >>> onnx.supports_device("VULKAN:llvmpipe"), onnx.supports_device("CUDA")
            (True, False)
        """
        return device == "CPU" or device.partition(":")[0] == "VULKAN"

    @classmethod
    def is_compatible(cls, model: Any, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether dmlgpu has all operators of a model; `model` is as for `prepare`.

        Example:
            >>> from onnx import parser
            >>> from dmlgpu.interop import onnx
            >>> text = '<ir_version: 8, opset_import: ["": 13]> m (float[n] x) => (float[n] y) { y = Relu (x) }'
            >>> onnx.is_compatible(parser.parse_model(text))
            False
        """
        return cls.supports_device(device) and not _unknown(_loaded(model))

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> Representation:
        """Prepares a model. `model` is a ModelProto, the path of a file, or the bytes of a file.

        Raises:
            UnsupportedError: the model has an operator or a type that dmlgpu lacks. ValidationError: ONNX's checker
                rejects the model.
            ValueError: `device` is not supported. DeviceError: there is no such device. OSError: there is no such file.

        Example:
            >>> import numpy as np
            >>> from onnx import parser
            >>> from dmlgpu.interop import onnx
            >>> model = parser.parse_model('<ir_version: 8, opset_import: ["": 13]>'
            ...                            'm (float[n, 3] x) => (int64[n, 1] y) { y = ArgMax <axis = 1> (x) }')
            >>> onnx.prepare(model).run([np.float32([[1, 3, 2], [5, 4, 0]])]).y.tolist()
            [[1], [0]]
        """
        model = _loaded(model)
        complete = onnx.ModelProto()
        complete.CopyFrom(model)
        for info in (*complete.graph.input, *complete.graph.output):
            if info.type.HasField("tensor_type"):
                info.type.tensor_type.shape.SetInParent()  # ONNX's checker requires it; other tools leave it out
        super().prepare(complete, device, **kwargs)
        latest = onnx.defs.onnx_opset_version()
        for opset in model.opset_import:
            if opset.domain in _DOMAINS and opset.version > latest:
                raise UnsupportedError(f"opset {opset.version} is newer than {latest}, of onnx {onnx.__version__}")
        return Representation(model, device)

    @classmethod
    def run_node(cls, node: Any, inputs: Any, device: str = "CPU", outputs_info: Any = None, **kwargs: Any) -> Any:
        """The outputs of one node. If it names an input twice, pass it once. Errors as for `prepare` and `run`.

        Example:
            >>> import numpy as np
            >>> from onnx import helper
            >>> from dmlgpu.interop import onnx
            >>> node = helper.make_node("ReduceMax", ["x"], ["y"], keepdims=0)
            >>> onnx.run_node(node, [np.float32([[1, 3, 2]])]).y.tolist()
            3.0
        """
        super().run_node(node, inputs, device, outputs_info, **kwargs)
        names = ([onnx.ValueInfoProto(name=name) for name in side if name] for side in (node.input, node.output))
        graph = onnx.helper.make_graph([node], "node", *names)
        return Representation(onnx.helper.make_model(graph), device).run(inputs)


is_compatible, supports_device = Backend.is_compatible, Backend.supports_device
prepare, run_model, run_node = Backend.prepare, Backend.run_model, Backend.run_node
