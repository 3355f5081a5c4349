"""Sources of arrays, and how they compute calls: the entry of all functions.

    dmlgpu.argmax(x, axis=1)
      source_of(x)             an ndarray, a DeviceTensor, or another `Source`
      body(operand, axis=1)    the body of argmax makes a `Call`, unless the call is cached
      computed(call, x)        an operator of a device computes the call; another source computes it by `compute`

Dask and chunked arrays are other sources; their modules import this one.
"""

from __future__ import annotations

import inspect
import os
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache, wraps
from importlib import import_module
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, SupportsIndex, TypedDict, overload

import numpy as np
import numpy.typing as npt

from dmlgpu.call import Call, Operand
from dmlgpu.descriptors.cumulative import CumulativeOperatorDesc
from dmlgpu.descriptors.dtypes import DataType
from dmlgpu.descriptors.operator import OperatorDesc
from dmlgpu.descriptors.pooling import PoolingOperatorDesc
from dmlgpu.descriptors.reduction import (
    ArgOperatorDesc,
    AxisDirection,
    ExtremumOperatorDesc,
    ReduceFunction,
    ReduceOperatorDesc,
    ShortSumOperatorDesc,
)
from dmlgpu.descriptors.tensor import Array, ArrayLike, TensorDesc, as_array, check_plain, described
from dmlgpu.descriptors.top_k import TopK1OperatorDesc
from dmlgpu.errors import DescriptorError, shown
from dmlgpu.runtime.device import Device, Selector, open_device
from dmlgpu.runtime.tensor import DeviceTensor, view_of

# Types of arguments: an entry for each axis or dimension, or one for all; members of enumerations, or their names.
Ints = SupportsIndex | Iterable[SupportsIndex]
Padding = SupportsIndex | Iterable[SupportsIndex | Iterable[SupportsIndex]]
Mode = Literal["largest", "smallest"]
Direction = AxisDirection | Literal["increasing", "decreasing"]
Function = (
    ReduceFunction
    | Literal["argmax", "argmin", "average", "l1", "l2", "log_sum", "log_sum_exp"]
    | Literal["max", "min", "multiply", "sum", "sum_square"]
)
ElementType = DataType | npt.DTypeLike


class Where(TypedDict, total=False):
    """The arguments of all functions: the target of the results, and the device."""

    out: Any
    """Target of the results, as in NumPy: an array of their shape and type; for a device tensor a packed device tensor.
    None: a new one. The target is returned."""
    device: Selector
    """Device, index, part of a name, or UUID. None: the device of a device tensor, or the default device."""


class Window(Where, total=False):
    """The arguments of windows over an array, for each spatial dimension: an entry, or an int for all."""

    strides: Ints | None
    """Step from one window to the next, in elements. None: 1, for every window size."""
    padding: Padding | None
    """Positions around the elements: an int for all sides; or for each dimension an int or (before, after). None: 0."""
    dilations: Ints | None
    """Step from one element of a window to the next. None: 1."""


class Source(ABC):
    """An array that neither NumPy nor a device has as a whole, and that computes calls itself."""

    @property
    @abstractmethod
    def operand(self) -> Operand:
        """The array without its elements."""

    @abstractmethod
    def compute(self, call: Call, out: Any, device: Selector) -> Any:
        """The results of a call, which is a reduction over axes, a scan along one, or a pooling."""


class SupportsCompute(Protocol):
    """A Dask array, for type checkers."""

    def compute(self, **options: Any) -> Any:
        """The elements, as an array of NumPy."""


P = ParamSpec("P")


class FunctionOf(Protocol[P]):
    """A function of an array: returns device tensors for device tensors, and arrays for what NumPy can view."""

    __name__: str

    @overload
    def __call__(self, x: DeviceTensor, /, *args: P.args, **options: P.kwargs) -> DeviceTensor: ...
    @overload
    def __call__(self, x: ArrayLike | Source, /, *args: P.args, **options: P.kwargs) -> Array: ...
    @overload
    def __call__(self, x: SupportsCompute, /, *args: P.args, **options: P.kwargs) -> Any: ...


class FunctionOfArrays(Protocol[P]):
    """A function of several arrays: returns a device tensor if the first array is one, otherwise an array."""

    __name__: str

    @overload
    def __call__(self, x: DeviceTensor, /, *args: P.args, **options: P.kwargs) -> DeviceTensor: ...
    @overload
    def __call__(self, x: ArrayLike, /, *args: P.args, **options: P.kwargs) -> Array: ...


# Names of arguments in other libraries and functions, and what to write here.
_ELSEWHERE = (
    ("auto_pad", "padding, with a pair (before, after) for each dimension"),
    ("axes", "axis, with keepdims=True for axes that stay; descriptors, such as ArgmaxOperatorDesc, have axes"),
    ("axes", "window_size: windows lie over the last axes of x"),
    ("axis", "window_size: windows lie over the last axes of x"),
    ("ceil_mode", "output_sizes, with one window more where the windows leave a remainder"),
    ("chunk_bytes", "dmlgpu.chunked(x, chunk_bytes=...) for x"),
    ("count_include_pad", "include_padding"),
    ("dilation", "dilations"),
    ("dim", "axis"),
    ("dim", "window_size: windows lie over the last axes of x"),
    ("dtype", "indices_data_type"),
    ("end_padding", "padding, with a pair (before, after) for each dimension"),
    ("indices_data_type", "dtype"),
    ("keepdim", "keepdims"),
    ("kernel_size", "window_size"),
    ("norm_type", "p"),
    ("output_data_type", "dtype"),
    ("output_size", "pooled_size"),
    ("output_size", "output_sizes"),
    ("pool_size", "window_size"),
    ("progress", "dmlgpu.chunked(x, progress=...) for x"),
    ("return_index", "output_indices"),
    ("return_indices", "output_indices"),
    ("select_last_index", "axis_direction='decreasing'"),
    ("start_padding", "padding, with a pair (before, after) for each dimension"),
    ("stride", "strides"),
)

# Arguments of functions, by the fields of descriptors that errors name.
_FIELDS = {
    "start_padding": "padding",
    "end_padding": "padding",
    "output_tensor.data_type": "dtype",
    "output_indices_tensor.data_type": "indices_data_type",
    "output_index_tensor.data_type": "indices_data_type",
    "output_tensor.sizes": "output_sizes",
    "roi_tensor.sizes": "rois.shape",
    "output_gradient_tensor.sizes": "input_sizes",
    "input_gradient_tensor.sizes": "gradient.shape",
}

# The classes of arrays that NumPy or a device has as a whole; all other sources compute calls themselves.
_WHOLE = {np.ndarray, DeviceTensor}

# The operators that other sources compute.
_IN_PARTS = (
    ArgOperatorDesc,
    CumulativeOperatorDesc,
    ExtremumOperatorDesc,
    PoolingOperatorDesc,
    ReduceOperatorDesc,
    TopK1OperatorDesc,
)

# The types of immutable values, which can be keys of a cache.
_IMMUTABLE = {int, float, bool, str, type(None), DataType, AxisDirection, ReduceFunction, Operand}


def function(body: Callable[Concatenate[Operand, P], Call]) -> FunctionOf[P]:
    """The function for users, with the arguments of `Where`, from a `body` that makes its `Call`."""
    first = next(iter(inspect.signature(body).parameters))
    wrapper: FunctionOf[P] = _decorated(body, (first,), first)
    return wrapper


def function_of_arrays(
    *names: str, like: str = "x"
) -> Callable[[Callable[Concatenate[Operand, P], Call]], FunctionOfArrays[P]]:
    """As `function`, if the arguments of these names are arrays; the body gets their Operands.

    `like`: the name of the array that decides whether the result is a device tensor.
    """
    return lambda body: _decorated(body, names, like)


def _decorated(body: Callable[..., Call], names: Sequence[str], like: str) -> Any:
    """The function for users of a body; `names` and `like` as for `function_of_arrays`."""
    signature = _expanded(inspect.signature(body))
    parameters = dict(signature.parameters)
    by_position = [name for name, p in parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    needed = {name for name in by_position if parameters[name].default is inspect.Parameter.empty}
    first, *others = names
    paths = {name: f"{body.__name__}.{name}" for name in names}

    def checked(*args: Any, **options: Any) -> Call:
        """The call that the body makes; raises a TypeError if the body has no such arguments."""
        if not options.keys() <= parameters.keys():
            name = min(options.keys() - parameters.keys())
            raise TypeError(f"{body.__name__}() has no argument {name!r}; {write_instead(name, parameters)}")
        if len(args) > len(by_position):
            most = f"{len(by_position)} positional argument" + "s" * (len(by_position) > 1)
            others = ", ".join([name for name in parameters if name not in by_position])
            raise TypeError(f"{body.__name__}() takes {most} but {len(args)} were given; name the others: {others}")
        return body(*args, **options)

    # Checking a descriptor takes about 60 us, ten times as long as a look-up. Typed, because True equals 1, but is not
    # allowed.
    cached: Any = lru_cache(256, typed=True)(checked)

    @wraps(body)
    def wrapper(*args: Any, out: Any = None, device: Selector = None, **options: Any) -> Any:
        if others or not args:  # the first array may be a named argument, and the others become Operands
            named = dict(zip(by_position, args, strict=False)) | options
            if len(named) < len(args) + len(options) or not needed <= named.keys():
                checked(*args, **options)  # raises a TypeError
            args, options = (named.pop(first),), named
        arrays: dict[str, Any] = {first: source_of(args[0], paths[first])}
        for name in others:
            # The default of an optional array is None, for no array, or a number.
            default = parameters[name].default
            argument = options.get(name, default)
            if argument is not None or default is not None:
                arrays[name] = source_of(argument, paths[name])
                options[name] = operand_of(arrays[name])
        values = (*args[1:], *options.values())
        call_of = cached if all(map(_is_immutable, values)) else checked
        try:
            call: Call = call_of(operand_of(arrays[first]), *args[1:], **options)
            if call.warning:
                warnings.warn(f"{body.__name__}: {call.warning}", stacklevel=2)
            if _WHOLE.issuperset(map(type, arrays.values())):
                return computed(call, *arrays.values(), like=arrays[like], out=out, device=device)
            if others or not isinstance(call.desc, _IN_PARTS):
                raise TypeError(
                    f"{body.__name__}() takes neither chunked nor Dask arrays; pass arrays or device tensors"
                )
            return arrays[first].compute(call, out, device)
        except DescriptorError as error:
            raise _in_callers_words(error, body.__name__) from None

    wrapper.__signature__ = signature  # type: ignore[attr-defined]
    wrapper.__annotations__ = {name: p.annotation for name, p in parameters.items()}
    return wrapper


def _expanded(signature: inspect.Signature) -> inspect.Signature:
    """The signature for users of a body, whose last argument, a TypedDict, is replaced by its entries."""
    *parameters, last = signature.parameters.values()
    entries = (Window if last.name == "window" else Where).__annotations__
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=entries[name].__forward_arg__)
        for name in sorted(entries, key=list(Where.__annotations__).__contains__)  # `out` and `device` are the last
    ]
    parameters = [p.replace(annotation=p.annotation.replace("Operand", "ArrayLike")) for p in parameters]
    return inspect.Signature([*parameters, *added])


def write_instead(argument: str, known: Collection[str]) -> str:
    """What to write instead of an unknown argument, for errors: the known one with its meaning, or a list of all."""
    for name, advice in _ELSEWHERE:
        first = re.split(r"\W", advice)[0]
        # Functions have `out`; the command line has options in place of `chunked`.
        if name == argument and (first in known or (first == "dmlgpu" and "out" in known)):
            return f"write {advice}"
    return f"its arguments are {', '.join(known)}"


def _in_callers_words(error: DescriptorError, name: str) -> DescriptorError:
    """The error with arguments of the function `name` instead of fields of the descriptor."""
    descriptor, dot, message = str(error).partition(".")
    if descriptor == ExtremumOperatorDesc.__name__:  # not an operator of DirectML
        descriptor = name
    for field, argument in _FIELDS.items():
        if message.startswith(field):
            message = message.removeprefix(field)
            # A descriptor counts N and C, which the caller's array may lack.
            message = argument + (message[message.index(":") :] if field.endswith("sizes") else message)
    return DescriptorError(descriptor + dot + message)


def _is_immutable(value: Any) -> bool:
    """Whether an argument can be part of a cache's key; False if in doubt."""
    if type(value) is tuple:
        return all(type(entry) is int or (type(entry) is tuple and _is_immutable(entry)) for entry in value)
    return (
        type(value) in _IMMUTABLE
        or isinstance(value, np.dtype)
        or (type(value) is type and issubclass(value, np.generic))
    )


def source_of(x: Any, name: str) -> Array | DeviceTensor | Source:
    """The source that x is, or becomes: an array, a device tensor, or another source.

    Raises:
        DescriptorError: x is none of these; the message begins with `name`.
    """
    if isinstance(x, (np.ndarray, DeviceTensor, Source)):
        return as_array(x, name) if isinstance(x, np.ndarray) else x
    if "dask" in {kind.__module__.partition(".")[0] for kind in type(x).__mro__}:
        # The import of Dask needs a second, so only an array of Dask causes it.
        source: Source = import_module("dmlgpu.interop.dask").DaskArray(x, name)
        return source
    if isinstance(x, (str, os.PathLike)):
        advice = f"pass dmlgpu.chunked({shown(x)})" if str(x).endswith(".npy") else "load the file first"
        raise DescriptorError(f"{name}: {shown(x)} is not an array; {advice}")
    return as_array(x, name)


def operand_of(source: Array | DeviceTensor | Source) -> Operand:
    """A source without its elements."""
    if isinstance(source, DeviceTensor):
        desc = source.desc
        return Operand(source.shape, desc.data_type.numpy, desc)
    if isinstance(source, Source):
        return source.operand
    return Operand(source.shape, source.dtype, None if source.flags.c_contiguous else source.strides)


def computed(
    call: Call,
    *arrays: Any,
    like: Array | DeviceTensor | None = None,
    out: Any = None,
    device: Selector = None,
) -> Any:
    """The results of a call: one, or a tuple of several.

    Args:
        call: the call.
        arrays: its arrays and device tensors, in the order of the operator's tensors; if the operator has fewer inputs,
            it reads the last ones.
        like: results are device tensors if this is one, otherwise arrays, or NumPy scalars; None: the first array.
        out: as in `Where`.
        device: as in `Where`.

    Raises:
        TypeError: `out` is of another class or type. DescriptorError: `out` has another shape, or two targets share
            memory.
    """
    inputs = arrays[-len(call.inputs) :]
    if isinstance(arrays[0] if like is None else like, DeviceTensor) and call.fill is None:
        return _on_device(call, inputs, out, device)
    targets = None if out is None else _targets(call, out, np.ndarray, "an array")
    if call.fill is not None:
        if device is not None:
            open_device(device)  # raises if there is no such device
        results: list[Any] = [np.full(call.shape, call.fill, dtype) for dtype in call.dtypes]
    elif call.converted is not None and (sums := _short_sum(call, inputs[0], device)) is not None:
        results = [sums]
    else:
        results = _on_host(call, inputs, device)
    if targets is not None:
        for target, result in zip(targets, results, strict=True):
            np.copyto(target, result)
        return out
    if call.shape == ():
        results = [result[()] for result in results]  # scalars, as in NumPy
    return results[0] if len(results) == 1 else tuple(results)


def _on_device(call: Call, inputs: Sequence[Any], out: Any, device: Selector) -> Any:
    """The results as device tensors: `out` if that is not None."""
    owner = device_for(device, inputs)
    targets = None if out is None else _targets(call, out, DeviceTensor, "a packed device tensor")
    sources = [
        _viewed(x, call.inputs[i])
        if isinstance(x, DeviceTensor)
        else owner.tensor(_elements(call, i, x), call.inputs[i])
        for i, x in enumerate(inputs)
    ]
    views = None if targets is None else [*map(_viewed, targets, call.outputs)]
    outputs = owner.run(call.desc, sources, views, flags=call.flags, operators=call.operators)
    if targets is not None:
        return out
    if len(call.tensors) == 1:
        return view_of(outputs, call.tensors[0], call.shape)
    return tuple([view_of(y, tensor, call.shape) for y, tensor in zip(outputs, call.tensors, strict=True)])


def _viewed(x: DeviceTensor, tensor: TensorDesc) -> DeviceTensor:
    """A device tensor with the layout of an operator's tensor."""
    return x if x.desc is tensor else view_of(x, tensor, tensor.sizes)


def _on_host(call: Call, inputs: Sequence[Any], device: Selector) -> list[Any]:
    """The results as arrays."""
    owner = device_for(device, inputs)
    sources: list[Any] = []
    for i, x in enumerate(inputs):
        on_device = isinstance(x, DeviceTensor)
        sources.append(_viewed(x, call.inputs[i]) if on_device else _elements(call, i, x))
    outputs = owner.run(call.desc, sources, flags=call.flags, operators=call.operators)
    results = []
    for y, dtype in zip(outputs if len(call.dtypes) > 1 else (outputs,), call.dtypes, strict=True):
        y = y.numpy() if isinstance(y, DeviceTensor) else y
        if y.dtype != dtype:
            # Integers and bool of equal size have equal bits, such as UINT64 for INT64.
            has_same_bits = dtype.itemsize == y.dtype.itemsize and "f" not in dtype.kind + y.dtype.kind
            y = y.view(dtype) if has_same_bits else y.astype(dtype)
        results.append(y if y.shape == call.shape else y.reshape(call.shape))
    return results


def _elements(call: Call, i: int, x: Array) -> Array:
    """The elements of an array, with the type and sizes of an input tensor of the operator."""
    tensor = call.inputs[i]
    if i and x.ndim == 0:
        x = _typed(x, call.desc, call.desc.input_fields[i])
    if call.padding is not None:
        x = np.pad(np.atleast_1d(x), call.padding)
    if call.converted is not None:
        x = x.astype(call.converted, copy=False)
    if x.dtype.kind == "i" and tensor.data_type is DataType.UINT64:  # negative indices are beyond the output
        x = x.view(x.dtype.str.replace("i", "u"))
    return x if x.shape == tensor.sizes else x.reshape(tensor.sizes)


def _typed(x: Array, desc: OperatorDesc, field: str) -> Array:
    """A number as a 0-D array, converted to the type of its tensor."""
    data_type = getattr(desc, field).data_type
    if x.dtype == data_type.numpy:
        return x
    number = x.item()
    try:
        if not data_type.is_float:
            return np.array(number, data_type.numpy)
        with np.errstate(over="raise", under="ignore"):
            typed: Array = np.array(float(number)).astype(data_type.numpy)
    except (OverflowError, FloatingPointError):
        limits = np.finfo(data_type.numpy) if data_type.is_float else np.iinfo(data_type.numpy)
        text = f"{shown(number)} is out of range; {data_type.name} has {limits.min} to {limits.max}"
        raise DescriptorError(f"{type(desc).__name__}.{field}: {text}") from None
    if number and not typed:
        text = f"{shown(number)} is too small; it is 0 in {data_type.name}"
        raise DescriptorError(f"{type(desc).__name__}.{field}: {text}")
    return typed


def device_for(selector: Selector, inputs: Sequence[Any]) -> Device:
    """The selected device; the first device tensor's `Device` if `selector` is None, or selects the same device."""
    if isinstance(selector, Device):
        return selector
    for x in inputs:
        if isinstance(x, DeviceTensor):
            owner: Device = x.device
            if selector is None or open_device(selector).info == owner.info:
                return owner
            break
    return open_device(selector)


def _targets(call: Call, out: Any, kind: Any, what: str) -> list[Any]:
    """The argument `out` as a list of targets of the class `kind`, which errors call `what`.

    Raises:
        TypeError: a target is of another class or type. DescriptorError: it has another shape, there are too many or
            too few, or two share memory.
    """
    targets = out_entries(out, len(call.dtypes), what)
    for i, target in enumerate(targets):
        dtype = call.dtypes[i]
        if not isinstance(target, kind) or target.dtype != dtype:
            if isinstance(target, (str, os.PathLike)):
                raise TypeError(f"out: {shown(target)} is not allowed; paths are for dmlgpu.chunked(x)")
            advice = _type_advice(call, i) if isinstance(target, kind) else ""
            raise TypeError(f"out: {described(target)} is not allowed; allowed is {what} of {dtype}{advice}")
        check_out(target, call.shape)
        if kind is DeviceTensor:
            if not target.desc.is_packed:
                raise DescriptorError(f"out: {target.description} is not packed; allowed is {what}")
        elif any(share_memory(target, other) for other in targets[:i]):
            raise DescriptorError(f"out: {described(target)} lies in another result; pass separate memory")
    return targets


def _type_advice(call: Call, i: int) -> str:
    """How to get a result of another type, for errors; "" if no argument changes the type."""
    function = getattr(call.desc, "function", None)
    is_index = isinstance(call.desc, ArgOperatorDesc) or function in (ReduceFunction.ARGMAX, ReduceFunction.ARGMIN)
    is_summed = call.converted is not None and function not in (ReduceFunction.MAX, ReduceFunction.MIN)
    argument = "indices_data_type" if i else "dtype" if is_index or is_summed else ""
    return argument and f"; for another type give {argument}="


def out_entries(out: Any, count: int, what: str) -> list[Any]:
    """The argument `out` as a list of `count` entries, which are not checked; errors call an entry `what`."""
    targets = [*out] if count > 1 and isinstance(out, (tuple, list)) else [out]
    if len(targets) != count or isinstance(targets[0], (tuple, list)):
        allowed = what if count == 1 else f"a tuple, for each of {count} results {what}"
        raise DescriptorError(f"out: {described(out)} is not allowed; allowed is {allowed}")
    return targets


def check_out(target: Any, shape: tuple[int, ...]) -> None:
    """Raises a DescriptorError if a target has another shape than its result, or cannot be written."""
    if tuple(target.shape) != shape:
        raise DescriptorError(f"out: the shape {tuple(target.shape)} is wrong; expected {shape}")
    if not isinstance(target, np.ndarray):
        return
    check_plain(target, "out")
    if not target.flags.writeable:
        raise DescriptorError(f"out: {described(target)} is read-only; allowed is an array that can be written")
    if not _is_apart(target):
        raise DescriptorError(f"out: {described(target)} has strides {target.strides}: elements may share memory")


def share_memory(a: Array, b: Array) -> bool:
    """Whether two arrays share elements; True if the check would take too long."""
    most_work: Any = 1 << 20
    try:
        return np.shares_memory(a, b, max_work=most_work)
    except np.exceptions.TooHardError:
        return True


def _is_apart(x: Array) -> bool:
    """Whether no two elements share memory, as in every slice or transposition of a packed array."""
    reach = x.itemsize
    for stride, size in sorted((abs(stride), size) for stride, size in zip(x.strides, x.shape, strict=True)):
        if size > 1:
            if stride < reach:
                return False
            reach += (size - 1) * stride
    return True


# Sums of integers of 8 and 16 bits

# Elements per row in the sum of a whole array: so many that the sum of elements of 16 bits fits in 32 bits.
_SHORT_ROW = 1 << 16


def _short_sum(call: Call, x: Array, device: Selector) -> Array | None:
    """The sum of integers of 8 or 16 bits: a device sums parts in 32 bits, and NumPy adds these sums.

    None: the call is another one, or there would be too many parts.
    """
    desc = call.desc
    if not isinstance(desc, ReduceOperatorDesc) or desc.function is not ReduceFunction.SUM:
        return None
    if x.itemsize > 2 or x.dtype.kind not in "iu" or call.dtypes[0].kind == "f":
        return None
    x, axes = x.reshape(desc.input_tensor.sizes), desc.axes
    wide = np.dtype(np.uint64 if x.dtype.kind == "u" else np.int64)
    most = 1 << 32 - 8 * x.itemsize  # so many elements that their sum fits in 32 bits
    if len(axes) == x.ndim and x.size > most and x.flags.c_contiguous:
        flat = x.reshape(-1)
        rows = flat[: x.size // _SHORT_ROW * _SHORT_ROW].reshape(-1, _SHORT_ROW)
        sums = _short_sums(rows, (1,), device).sum(dtype=wide) + flat[rows.size :].sum(dtype=wide)
    else:
        # The device sums over as many of the last axes as `most` allows, NumPy over the axes before them.
        first, count = len(axes), 1
        while first and count * x.shape[axes[first - 1]] <= most:
            first -= 1
            count *= x.shape[axes[first]]
        if first and count < 64:
            return None
        sums = _short_sums(x, axes[first:], device).sum(axes[:first], wide, keepdims=True)
    return np.asarray(sums).astype(call.dtypes[0]).reshape(call.shape)


def _short_sums(x: Array, axes: tuple[int, ...], device: Selector) -> Array:
    """The sums over axes, which stay with size 1, in 32 bits."""
    kind = ShortSumOperatorDesc
    desc = kind.of(operand_of(x).tensor(f"{kind.__name__}.input_tensor", kind.types["input_tensor"]), axes)
    dtype = np.dtype(np.int32 if x.dtype.kind == "i" else np.uint32)
    sums: Array = computed(Call(desc, desc.output_tensor.sizes, (dtype,)), x, device=device)
    return sums
