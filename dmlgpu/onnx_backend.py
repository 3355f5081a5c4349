"""ONNX models of the operators that dmlgpu has, through the standard interface `onnx.backend.base.Backend`.

    outputs = dmlgpu.onnx_backend.prepare(model).run([x])

ArgMax, ArgMin, MaxPool, AveragePool, LpPool, their global forms, MaxUnpool and Reduce*, of every opset that has them;
and Constant, which exporters write for axes. What lies between two operators stays on the device. Results are those of
ONNX's operator specifications, types those of the descriptors.

Done on the host: indices with `storage_order` 1, and the part of an output of MaxUnpool that its windows do not reach.
A reduction of no elements gives what NumPy gives; of integers, where that is NaN or infinite, 0 or the end of the type.
Needs the extra `onnx`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from dmlgpu import AxisDirection, DescriptorError, Device, DeviceTensor, functional
from dmlgpu import ReduceFunction as F
from dmlgpu.errors import extra

with extra("onnx", "onnx"):
    import onnx
    from onnx.backend import base

# On the device; or on the host, what is empty, or was given and is not computed with.
Value = DeviceTensor | np.ndarray[Any, Any]


class UnsupportedError(NotImplementedError):
    """A model has an operator or an attribute that dmlgpu lacks; the message names it and its node."""


def _name_of(node: onnx.NodeProto) -> str:
    return f"{'.'.join(filter(None, (node.domain, node.op_type)))} ({node.name or node.output[0]})"


class _Call:
    """A node that is executed."""

    def __init__(self, node: onnx.NodeProto, values: dict[str, Value], booleans: set[str], device: Device) -> None:
        self.name = _name_of(node)
        self.attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
        self.outputs, self.device = tuple(node.output), device
        self._inputs, self._values, self._booleans = tuple(node.input), values, booleans

    def flag(self, name: str, default: int = 0) -> bool:
        """An attribute that is 0 or 1."""
        return bool(self.attributes.get(name, default))

    def data(self, i: int) -> Value:
        """Input i on the device; an empty array stays on the host."""
        name = self._inputs[i]
        value = self._values[name]
        if isinstance(value, np.ndarray) and value.size:
            if value.dtype == np.bool_:
                self._booleans.add(name)
            value = self._values[name] = self.device.tensor(value)
        return value

    def integers(self, attribute: str, i: int) -> tuple[int, ...] | None:
        """Integers that are an attribute in some opsets, and input i in others; None where they are not given."""
        if attribute in self.attributes:
            return tuple(self.attributes[attribute])
        if i >= len(self._inputs) or not self._inputs[i]:
            return None
        return tuple(np.asarray(self._values[self._inputs[i]]).reshape(-1).tolist())

    def finish(self, results: Sequence[Value]) -> None:
        """Keeps the outputs. What comes of bool and has the type of its elements on the device is bool again."""
        from_booleans = not self._booleans.isdisjoint(self._inputs)
        for name, value in zip(self.outputs, results, strict=False):
            self._values[name] = value
            if from_booleans and value.dtype == np.uint8:
                self._booleans.add(name)


def _arg(function: Callable[..., Any], call: _Call) -> Sequence[Value]:
    axis, keepdims = call.attributes.get("axis", 0), call.flag("keepdims", 1)
    direction = AxisDirection.DECREASING if call.flag("select_last_index") else AxisDirection.INCREASING
    return [function(call.data(0), axis, keepdims=keepdims, axis_direction=direction, device=call.device)]


def _of_nothing(function: F, dtype: np.dtype[Any]) -> Any:
    least, most = {"b": (0, 1), "f": (-np.inf, np.inf)}.get(dtype.kind) or (np.iinfo(dtype).min, np.iinfo(dtype).max)
    average = np.nan if dtype.kind == "f" else 0
    values = {F.MAX: least, F.MIN: most, F.LOG_SUM: least, F.LOG_SUM_EXP: least, F.MULTIPLY: 1, F.AVERAGE: average}
    return values.get(function, 0)


def _reduce(function: F, call: _Call) -> Sequence[Value]:
    x, axes = call.data(0), call.integers("axes", 1) or None
    keepdims = call.flag("keepdims", 1)
    if axes is None and call.flag("noop_with_empty_axes"):
        # Over no axes: each element is an output. A last dimension of size 1 stands for them.
        return [functional.reduce(x.reshape(-1, 1), function, 1, device=call.device).reshape(x.shape)]
    if isinstance(x, np.ndarray):
        sizes = np.any(x, axis=axes, keepdims=keepdims).shape
        return [np.full(sizes, _of_nothing(function, x.dtype), x.dtype)]
    return [functional.reduce(x, function, axes, keepdims=keepdims, device=call.device)]


def _geometry(call: _Call, rank: int) -> tuple[list[int], ...]:
    """Of a window over so many dimensions its sizes, strides, dilations, and padding at the start and at the end."""
    defaults = {"kernel_shape": [], "strides": [1] * rank, "dilations": [1] * rank, "pads": [0] * 2 * rank}
    found = {name: [*call.attributes.get(name, default)] for name, default in defaults.items()}
    for name, entries in found.items():
        least = int(name != "pads")
        if len(entries) != (rank if least else 2 * rank):
            raise UnsupportedError(f"{call.name}: {name} {entries} does not go with {rank} spatial dimensions")
        if any(entry < least for entry in entries):
            raise UnsupportedError(
                f"{call.name}: {name} {entries} is not allowed; allowed are integers from {least} on"
            )
    *fields, pads = found.values()
    return *fields, pads[:rank], pads[rank:]


_AUTO_PADS = "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"


def _window(call: _Call, sizes: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """The window of a node over these spatial sizes, with an entry for each in every field."""
    window, strides, dilations, start, end = _geometry(call, len(sizes))
    automatic, counts = call.attributes.get("auto_pad", b"NOTSET").decode(), []
    if automatic not in _AUTO_PADS:
        raise UnsupportedError(
            f"{call.name}: auto_pad {automatic!r} is not allowed; allowed are {', '.join(_AUTO_PADS)}"
        )
    ceil = call.flag("ceil_mode") and automatic == "NOTSET"
    for i, (size, k, stride, dilation) in enumerate(zip(sizes, window, strides, dilations, strict=True)):
        reach = (k - 1) * dilation + 1
        if automatic == "VALID":
            start[i] = end[i] = 0
        if automatic.startswith("SAME"):
            counts.append(-(-size // stride))
            padding = max(0, (counts[i] - 1) * stride + reach - size)
            start[i] = padding // 2 if automatic == "SAME_UPPER" else padding - padding // 2
            end[i] = padding - start[i]
            continue
        steps = size + start[i] + end[i] - reach
        # Below 0 ONNX Runtime rounds up without ceil_mode, too.
        count = (-(-steps // stride) if ceil or steps < 0 else steps // stride) + 1
        # No window begins in the padding at the end.
        counts.append(count - ((count - 1) * stride >= size + start[i]))
        if steps < 0:
            # A window that is larger than the padded input is cut to the elements in there. It is the only one: with a
            # stride like this no other fits behind it.
            window[i], strides[i] = (steps + reach - 1) // dilation + 1, max(stride, dilation)
    if min(counts, default=0) < 0:
        kernel_shape = call.attributes["kernel_shape"]
        raise DescriptorError(f"{call.name}: kernel_shape {kernel_shape} does not fit spatial sizes {tuple(sizes)}")
    fields = "window_size", "strides", "dilations", "start_padding", "end_padding", "output_sizes"
    return dict(zip(fields, map(tuple, (window, strides, dilations, start, end, counts)), strict=True))


def _pool(function: Callable[..., Any], call: _Call, **options: Any) -> Sequence[Value]:
    """The outputs of a window over 1 to 3 spatial dimensions; 1-D is 2-D with a height of 1."""
    x = call.data(0)
    window = _window(call, x.shape[2:])
    sizes = *x.shape[:2], *window["output_sizes"]
    if 0 in window["output_sizes"]:
        return [np.empty(sizes, x.dtype), np.empty(sizes, np.int64)]
    if x.ndim == 3:
        x = x.reshape(*x.shape[:2], 1, x.shape[2])
        window = {name: (int("padding" not in name), *values) for name, values in window.items()}
    found = function(x, **window, **options, device=call.device)
    return [result.reshape(*sizes) for result in (found if isinstance(found, tuple) else (found,))]


def _max_pool(call: _Call) -> Sequence[Value]:
    if len(call.outputs) == 1:
        return _pool(functional.max_pooling, call)
    values, indices = _pool(functional.max_pooling, call, output_indices=True)
    if call.flag("storage_order"):
        sizes = call.data(0).shape[2:]
        # The number by columns of every place by rows.
        numbers = np.arange(math.prod(sizes)).reshape(sizes, order="F")
        planes, places = np.divmod(np.asarray(indices), numbers.size)
        indices = planes * numbers.size + numbers.take(places)
    return values, indices


def _power(call: _Call) -> int:
    p = call.attributes.get("p", 2)  # a float in opset 1
    return int(p) if p == int(p) else p


def _global_pool(function: F, call: _Call) -> Sequence[Value]:
    x = call.data(0)
    return [functional.reduce(x, function, tuple(range(2, x.ndim)), keepdims=True, device=call.device)]


def _global_lp_pool(call: _Call) -> Sequence[Value]:
    x = call.data(0)
    plane = x.reshape(*x.shape[:2], 1, math.prod(x.shape[2:]))
    norm = functional.lp_pooling(plane, (1, plane.shape[3]), p=_power(call), device=call.device)
    return [norm.reshape(*x.shape[:2], *(1,) * (x.ndim - 2))]


def _max_unpool(call: _Call) -> Sequence[Value]:
    x, indices = call.data(0), call.data(1)
    if indices.shape != x.shape:
        raise DescriptorError(f"{call.name}: indices of shape {indices.shape} do not go with an input of {x.shape}")
    window, strides, _, *pads = _geometry(call, x.ndim - 2)
    lines = zip(x.shape[2:], strides, window, *pads, strict=True)
    reached = [(size - 1) * stride + k - start - end for size, stride, k, start, end in lines]
    # Indices count the whole output, whatever its spatial sizes are.
    source, places = (each.reshape(*x.shape[:2], 1, math.prod(x.shape[2:])) for each in (x, indices))
    found = functional.max_unpooling(source, places, (1, math.prod(reached)), device=call.device)
    found = found.reshape(*x.shape[:2], *reached)
    sizes = call.integers("output_shape", 2)
    if sizes in (None, found.shape):
        return [found]
    if len(sizes) != len(found.shape) or any(map(operator.lt, sizes, found.shape)):
        raise DescriptorError(f"{call.name}: output_shape {sizes} is not allowed; allowed is {found.shape} or more")
    larger = np.zeros(sizes, x.dtype)
    larger[tuple(map(slice, found.shape))] = np.asarray(found)
    return [larger]


def _constant(call: _Call) -> Sequence[Value]:
    ((name, value),) = call.attributes.items()
    if name not in ("value", "value_int", "value_ints"):
        raise UnsupportedError(f"{call.name}: its attribute {name} is not supported")
    return [onnx.numpy_helper.to_array(value) if name == "value" else np.asarray(value, np.int64)]


_NAMES = {F.AVERAGE: "Mean", F.MULTIPLY: "Prod"}
_OPERATORS: Mapping[str, Callable[[_Call], Sequence[Value]]] = {
    "ArgMax": partial(_arg, functional.argmax),
    "ArgMin": partial(_arg, functional.argmin),
    "MaxPool": _max_pool,
    "AveragePool": lambda call: _pool(functional.average_pooling, call, include_padding=call.flag("count_include_pad")),
    "LpPool": lambda call: _pool(functional.lp_pooling, call, p=_power(call)),
    "GlobalMaxPool": partial(_global_pool, F.MAX),
    "GlobalAveragePool": partial(_global_pool, F.AVERAGE),
    "GlobalLpPool": _global_lp_pool,
    "MaxUnpool": _max_unpool,
    "Constant": _constant,
    **{
        f"Reduce{_NAMES.get(function, function.name.title().replace('_', ''))}": partial(_reduce, function)
        for function in F
        if function not in (F.ARGMAX, F.ARGMIN)
    },
}


def _is_known(node: onnx.NodeProto) -> bool:
    return node.domain in ("", "ai.onnx") and node.op_type in _OPERATORS


class Representation(base.BackendRep):  # type: ignore[misc]  # onnx has no types
    """A graph that is ready to run. `executions` counts the nodes that were executed, in all runs."""

    def __init__(self, graph: onnx.GraphProto, device: str) -> None:
        if not Backend.supports_device(device):
            raise ValueError(f"device: {device!r} is not supported; allowed are CPU, VULKAN and VULKAN:SELECTOR")
        if unknown := [_name_of(node) for node in graph.node if not _is_known(node)]:
            raise UnsupportedError(f"dmlgpu lacks operators of this model: {', '.join(unknown)}")
        selector = device.partition(":")[2]
        self.device = functional.open_device(int(selector) if selector.isdecimal() else selector or None)
        self._constants = {each.name: onnx.numpy_helper.to_array(each) for each in graph.initializer}
        self._nodes, self._outputs, self.executions = tuple(graph.node), [each.name for each in graph.output], 0
        self._results = base.namedtupledict("Outputs", self._outputs)
        self._inputs = [each.name for each in graph.input if each.name not in self._constants]

    def run(self, inputs: Any) -> tuple[Any, ...]:
        """The outputs, as a tuple of arrays that have names, too; `inputs` is a list in order, or a dictionary by name.

        Raises:
            ValueError: other inputs than the model's. UnsupportedError: an attribute is not supported.
            DescriptorError: an operator does not take that. DeviceError: the device is closed.
        """
        given = dict(inputs) if isinstance(inputs, Mapping) else dict(zip(self._inputs, inputs, strict=True))
        if set(given) != set(self._inputs):
            raise ValueError(f"the model's inputs are {self._inputs}, not {[*given]}")
        values: dict[str, Value] = {**self._constants, **{name: np.asarray(x) for name, x in given.items()}}
        booleans: set[str] = set()
        with self.device.batch():
            for node in self._nodes:
                call = _Call(node, values, booleans, self.device)
                call.finish(_OPERATORS[node.op_type](call))
                self.executions += 1
        found = (np.array(values[name], bool if name in booleans else None) for name in self._outputs)
        return self._results(*found)  # type: ignore[no-any-return]


class Backend(base.Backend):  # type: ignore[misc]  # onnx has no types
    """Devices are CPU, for the default device of dmlgpu, and VULKAN:SELECTOR, as `dmlgpu.Device` takes it."""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether `device` is CPU, VULKAN, or VULKAN: with an index, a part of a name or a UUID."""
        return device == "CPU" or device.partition(":")[0] == "VULKAN"

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether dmlgpu has all operators of a model."""
        return cls.supports_device(device) and all(map(_is_known, model.graph.node))

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Representation:
        """A model that is ready to run.

        Raises:
            UnsupportedError: it has an operator that dmlgpu lacks. ValidationError: it is no model that ONNX allows.
            ValueError: `device` is not supported. DeviceError: there is no such device.
        """
        super().prepare(model, device, **kwargs)
        return Representation(model.graph, device)

    @classmethod
    def run_node(cls, node: Any, inputs: Any, device: str = "CPU", outputs_info: Any = None, **kwargs: Any) -> Any:
        """The outputs of one node, of the inputs that it names, in order; errors as of `prepare` and `run`."""
        super().run_node(node, inputs, device, outputs_info, **kwargs)
        names = ([onnx.ValueInfoProto(name=name) for name in each if name] for each in (node.input, node.output))
        graph = onnx.helper.make_graph([node], "node", *names)
        return Representation(graph, device).run(inputs)


is_compatible, supports_device = Backend.is_compatible, Backend.supports_device
prepare, run_model, run_node = Backend.prepare, Backend.run_model, Backend.run_node
