"""Cases as calls of a library: the text of the call, its inputs, the oracle's results, and kinds of values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

import dmlgpu
from dmlgpu.descriptors.cumulative import CumulativeOperatorDesc, CumulativeProductOperatorDesc
from dmlgpu.descriptors.pooling import WINDOW_FIELDS
from dmlgpu.descriptors.reduction import ArgOperatorDesc, ExtremumOperatorDesc
from dmlgpu.descriptors.tensor import Array
from dmlgpu.descriptors.window import Window as Dimension
from dmlgpu.reference.reduction import rows_of
from dmlgpu.testing.cases import INCREASING, Case, Undescribed
from dmlgpu.testing.libraries import Library, LibraryError, Window

KINDS = (
    *("ties", "NaN", "-0", "subnormals", "infinities", "empty", "ceiling mode", "padding", "dilation"),
    *("large indices", "non-contiguous", "none of these"),
)
# Maximum number of elements, with padding, of an input: a library may allocate them all.
_MOST_PADDED = 1 << 24
# Names in programs of the tensors of descriptors.
_NAMES = {
    "input_tensor": "x",
    "input_gradient_tensor": "gradient",
    "indices_tensor": "indices",
    "roi_tensor": "rois",
    "input_scale_tensor": "x_scale",
    "input_zero_point_tensor": "x_zero_point",
    "output_scale_tensor": "y_scale",
    "output_zero_point_tensor": "y_zero_point",
}
# Returns the text of a call from the library and the inputs; None: the library cannot express it.
Expression = Callable[..., str | None]


@dataclass(frozen=True)
class Trial:
    """A call of a library."""

    id: str
    function: str
    expression: Expression
    make: Callable[[], Mapping[str, Array]]
    oracle: Callable[[Mapping[str, Array]], tuple[Array, ...] | None]
    desc: dmlgpu.OperatorDesc | None = None
    """Canonical descriptor of the call; None: it has none."""

    @cached_property
    def inputs(self) -> Mapping[str, Array]:
        """The inputs, by their names in the program."""
        return self.make()

    @cached_property
    def expected(self) -> tuple[Array, ...] | None:
        """The results. None: there are none, and an exception is right. Empty: any result is right."""
        return self.oracle(self.inputs)

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """Those of KINDS that describe its inputs, its window or its result."""
        return _kinds_of(self)

    def program(self, library: Library) -> str | None:
        """The program that makes the call; None: the library cannot express it.

        Raises:
            LibraryError: a method of the library's class raised an exception.
        """
        try:
            text = self.expression(library, **self.inputs)
        except Exception as error:
            name = type(library).__name__
            raise LibraryError(f"{name}, of {self.id}: {type(error).__name__}: {error}") from error
        statements = "\n".join(f"{name} = {library.from_numpy.format(name)}" for name in self.inputs)
        return text and f"{statements}\n{text}"


def trials(cases: Iterable[Case], others: Iterable[Undescribed]) -> Iterator[Trial]:
    """The cases of functions that libraries have."""
    for case in cases:
        desc = case.desc.canonical()
        padded = np.prod([float(window.padded) for window in getattr(desc, "windows", ())])
        if _call(desc) and case.flags is dmlgpu.ExecutionFlags.NONE and padded <= _MOST_PADDED:
            yield trial_of(case.id, desc, partial(_inputs, desc, case))
    for other in others:
        yield _undescribed(other)


def _inputs(desc: dmlgpu.OperatorDesc, case: Case) -> Mapping[str, Array]:
    """The inputs of a case, in the types and shapes that libraries expect."""
    inputs = {_NAMES[field]: y for field, y in zip(desc.input_fields, case.inputs(), strict=True)}
    for name, x in inputs.items():
        if name == "indices":
            inputs[name] = x.astype(np.int64)
        elif name == "rois":
            inputs[name] = x.reshape(x.shape[2:])
        elif "_" in name and x.size == 1:
            inputs[name] = x.reshape(())
    if isinstance(desc, dmlgpu.AveragePoolingGradOperatorDesc):
        return {"x": np.zeros(desc.output_gradient_tensor.sizes, inputs["gradient"].dtype), **inputs}
    return inputs


def trial_of(id: str, desc: dmlgpu.OperatorDesc, make: Callable[[], Mapping[str, Array]]) -> Trial:
    """The trial of a canonical descriptor on inputs of its sizes."""
    call = _call(desc)
    assert call is not None
    return Trial(id, *call, make, lambda inputs: dmlgpu.reference(desc, *arguments(desc, inputs)), desc)


def arguments(desc: dmlgpu.OperatorDesc, inputs: Mapping[str, Array]) -> list[Array]:
    """The inputs in the types and shapes of the descriptor."""
    arrays = [inputs[_NAMES[field]] for field in desc.input_fields]
    return [
        y.astype(tensor.data_type.numpy, copy=False).reshape(tensor.sizes)
        for y, tensor in zip(arrays, desc.inputs, strict=True)
    ]


def _call(desc: dmlgpu.OperatorDesc) -> tuple[str, Expression] | None:
    """The name of the function that a descriptor computes, and its call; None: no library has it."""
    match desc:
        case ArgOperatorDesc(axes=axes):
            last = desc.axis_direction is dmlgpu.AxisDirection.DECREASING
            name = "argmax" if isinstance(desc, dmlgpu.ArgmaxOperatorDesc) else "argmin"
            return f"{name}{', last' * last}", lambda library, x: library.reduce(name, x, axes, last=last)
        case dmlgpu.ReduceOperatorDesc(axes=axes):
            name = desc.function.name.lower()
            return name.replace("_", " "), lambda library, x: library.reduce(name, x, axes, last=False)
        case ExtremumOperatorDesc(axes=axes):
            name = f"{desc.function.name.lower()}_with_index"
            return name.replace("_", " "), lambda library, x: library.reduce(name, x, axes, last=False)
        case dmlgpu.TopK1OperatorDesc(k=k, axis=axis):
            largest = desc.axis_direction is dmlgpu.AxisDirection.DECREASING
            name = "top-k" if largest else "top-k, least"
            return name, lambda library, x: library.top_k(x, k, axis, largest=largest)
        case CumulativeOperatorDesc(axis=axis):
            name = "product" if isinstance(desc, CumulativeProductOperatorDesc) else "sum"
            reverse, exclusive = desc.axis_direction is dmlgpu.AxisDirection.DECREASING, desc.is_exclusive
            return f"cumulative {name}", lambda library, x: library.cumulative(
                name, x, axis, reverse=reverse, exclusive=exclusive
            )
        case dmlgpu.MaxUnpoolingOperatorDesc(output_tensor=output):
            return "max unpooling", lambda library, x, indices: library.unpool(x, indices, output.sizes[2:])
        case dmlgpu.RoiPoolingOperatorDesc(pooled_size=size, spatial_scale=scale):
            return "ROI pooling", lambda library, x, rois: library.roi_pool(x, rois, size, scale)
    window = _window(desc)
    if window is None:
        return None
    match desc:
        case dmlgpu.QuantizedLinearAveragePoolingOperatorDesc(output_tensor=output):
            dtype = output.data_type.name.lower()
            return "quantized average pooling", lambda library, x, **parameters: library.quantized_pool(
                x, window, parameters, dtype
            )
        case dmlgpu.MaxPooling2OperatorDesc(output_indices_tensor=tensor):
            indices = tensor is not None
            name = "max pooling" + " with indices" * indices
            return name, lambda library, x: library.pool("max", x, window, indices=indices)
        case dmlgpu.AveragePooling1OperatorDesc() | dmlgpu.LpPooling1OperatorDesc():
            name = "average" if isinstance(desc, dmlgpu.AveragePooling1OperatorDesc) else "lp"
            return f"{name} pooling", lambda library, x: library.pool(name, x, window, indices=False)
        case dmlgpu.AveragePoolingGradOperatorDesc() | dmlgpu.MaxPoolingGradOperatorDesc(indices_tensor=None):
            name = "average" if isinstance(desc, dmlgpu.AveragePoolingGradOperatorDesc) else "max"
            return f"{name} pooling gradient", lambda library, x, gradient: library.pool_grad(name, x, window)
    return None


def _window(desc: Any) -> Window | None:
    """The window of a pooling; None: the number of windows is rounded down in one dimension and up in another."""
    windows = getattr(desc, "windows", ())
    counts = [(w.output_size - w.fitting, bool((w.padded - w.extent) % w.stride)) for w in windows]
    ceil = any(added for added, _ in counts)
    if not windows or (ceil and any(added != has_remainder for added, has_remainder in counts)):
        return None
    names = "strides", "start_padding", "end_padding", "include_padding", "p"
    options = {name: getattr(desc, name) for name in names if hasattr(desc, name)}
    dilations = getattr(desc, "dilations", (1,) * len(desc.strides))
    return Window(desc.window_size, dilations=dilations, ceil=ceil, **options)


def _undescribed(call: Undescribed) -> Trial:
    """The trial of a call that has no descriptor."""
    x = np.zeros(call.sizes, call.data_type.numpy)
    inputs = {"x": x}
    if call.function == "max_pooling_gradient":
        counts = [Dimension(*fields).fitting for fields in zip(x.shape[2:], *call.window, strict=True)]
        inputs["gradient"] = np.ones((*x.shape[:2], *counts), x.dtype)
    expected = None if call.expected is None else tuple(np.zeros(sizes, x.dtype) for sizes in call.expected)

    def expression(library: Library, x: Array, gradient: Array | None = None) -> str | None:
        if call.window is None:
            return library.reduce(call.function, x, call.axes, last=False)
        if gradient is None:
            return library.pool("max", x, Window(*call.window), indices=False)
        # Repeated, because a single write outside of memory seldom ends the process.
        text = library.pool_grad("max", x, Window(*call.window))
        return text and f"[{text} for _ in range(200)][0]"

    return Trial(call.id, call.function.replace("_", " "), expression, lambda: inputs, lambda _: expected)


def subnormal(x: Array) -> Array:
    """Which elements are subnormal floats."""
    if x.dtype.kind != "f":
        return np.zeros(x.shape, bool)
    mask: Array = (x != 0) & (np.abs(x) < np.finfo(x.dtype).tiny)
    return mask


def _kinds_of(trial: Trial) -> tuple[str, ...]:
    desc, x = trial.desc, trial.inputs["x"]
    if desc is None:
        return ("empty",) if x.size == 0 else ("padding", "dilation")
    windows, expected = getattr(desc, "windows", ()), trial.expected or ()
    indices = expected if isinstance(desc, ArgOperatorDesc) else expected[1:]
    kinds = {
        "ties": _has_ties(desc, x),
        "NaN": np.isnan(x).any(),
        "-0": ((x == 0) & np.signbit(x)).any(),
        "subnormals": subnormal(x).any(),
        "infinities": np.isinf(x).any(),
        "ceiling mode": any(window.output_size > window.fitting for window in windows),
        "padding": any(window.start_padding or window.end_padding for window in windows),
        "dilation": any(window.dilation > 1 for window in windows),
        "large indices": any(y.max() >= 1 << 16 for y in indices),
        "non-contiguous": not all(y.flags.c_contiguous for y in trial.inputs.values()),
    }
    return tuple(kind for kind, is_present in kinds.items() if is_present) or ("none of these",)


def _has_ties(desc: dmlgpu.OperatorDesc, x: Array) -> bool:
    """Whether several elements could win an output, or follow each other in the order of TOP_K."""
    if isinstance(desc, dmlgpu.MaxPooling2OperatorDesc | dmlgpu.MaxPoolingGradOperatorDesc):
        pooling = dmlgpu.MaxPooling2OperatorDesc.of(
            dmlgpu.TensorDesc(dmlgpu.DataType.INT64, x.shape),
            **{name: getattr(desc, name) for name in WINDOW_FIELDS},
            output_sizes=getattr(desc, desc.windows_field).sizes,
            indices_data_type=dmlgpu.DataType.UINT64,
        )
        # Distinct ranks in place of elements: the first of equal ones wins, then the last.
        _, ranks = np.unique(x, return_inverse=True)
        ranks, places = ranks.reshape(x.shape) * x.size, np.arange(x.size).reshape(x.shape)
        first, last = (dmlgpu.reference(pooling, y)[1] for y in (ranks - places, ranks + places))
        return bool((first != last).any())
    if isinstance(desc, dmlgpu.TopK1OperatorDesc):
        rows, k, increasing = np.moveaxis(x, desc.axis, -1), desc.k, desc.axis_direction is INCREASING
    elif isinstance(desc, ArgOperatorDesc | ExtremumOperatorDesc):
        rows, k = rows_of(x, desc.axes), 1
        is_min = getattr(desc, "function", None) is dmlgpu.ReduceFunction.MIN
        increasing = is_min or isinstance(desc, dmlgpu.ArgminOperatorDesc)
    else:
        return False
    in_order = np.sort(rows) if increasing else np.sort(rows)[..., ::-1]
    first = in_order[..., : k + 1]
    return bool((first[..., 1:] == first[..., :-1]).any())
