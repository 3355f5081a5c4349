"""Tensors in the memory of a device."""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from dmlgpu.descriptors.tensor import Array, Bytes, TensorDesc, check, elements, integers, parts, write
from dmlgpu.errors import DescriptorError, DeviceError, shown
from dmlgpu.lowering.limits import Limits, segment_sizes
from dmlgpu.runtime.drivers import DeviceInfo
from dmlgpu.runtime.engine import Engine


class Owner(Protocol):
    """The attributes of a `Device` that tensors and operators use: device.py imports this module."""

    info: DeviceInfo
    limits: Limits
    _engine: Engine


# Maximum number of printed elements, and maximum size in bytes of a tensor whose elements are printed.
_SHOWN, _SHOWN_BYTES = 6, 1 << 20


class DeviceTensor:
    """A tensor in the memory of a device, from `Device.tensor` or an operator.

    NumPy's functions accept device tensors: argmax, argmin, max, min, sum, prod, mean, cumsum and cumprod run on the
    device, all others download the tensor. Python's operators do not accept device tensors, so that copies are visible
    as calls of `numpy()`. A device tensor hashes by identity.
    """

    # Makes NumPy leave `array + tensor` to the methods here.
    __array_priority__ = 1000

    def __init__(self, device: Owner, desc: TensorDesc) -> None:
        """Callers hold the device's lock, and have checked that the device is open and that the tensor may fit."""
        self._device, self._desc, self._shape = device, desc, desc.sizes
        self._engine = device._engine
        self._full_segment = device.limits.full_segment(desc)
        self._segments = self._engine.allocate(segment_sizes(desc, self._full_segment))

    @property
    def device(self) -> Any:
        """The tensor's device."""
        return self._device

    @property
    def desc(self) -> TensorDesc:
        """The tensor's type and layout."""
        return self._desc

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's shape in NumPy: the sizes of the descriptor; or (), which DirectML lacks, for a 0-D tensor."""
        return self._shape

    @shape.setter
    def shape(self, shape: Any) -> None:
        raise AttributeError(f"the shape of {self.description} is read-only; use .reshape()")

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy type of an element."""
        return self.desc.data_type.numpy

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.desc.element_count

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, without gaps."""
        return self._desc.element_count * self._desc.data_type.numpy.itemsize

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a device tensor without dimensions")
        return self.shape[0]

    def reshape(self, *shape: Any) -> DeviceTensor:
        """A tensor of another shape that shares the memory.

        Args:
            shape: sizes, or a sequence of them; one size may be -1, which is inferred.

        Raises:
            DescriptorError: the sizes do not match the number of elements, there are more than 8 sizes, or the tensor
                is not packed.
        """
        sizes = integers("DeviceTensor", "shape", shape[0] if len(shape) == 1 and np.iterable(shape[0]) else shape)
        known = math.prod(size for size in sizes if size != -1)
        if sizes.count(-1) == 1 and known > 0 and self.size % known == 0:
            sizes = tuple(self.size // known if size == -1 else size for size in sizes)
        if math.prod(sizes) != self.size or min(sizes, default=1) < 1:
            raise DescriptorError(
                f"DeviceTensor.shape: {shown(sizes)} is not allowed; {self.description} has {self.size} elements"
            )
        if not self.desc.is_packed:
            raise DescriptorError(
                f"DeviceTensor.shape: {self.description} is not packed; copy it with .numpy() and reshape that"
            )
        return view_of(self, replace(self.desc, sizes=sizes or (1,), strides=None), sizes)

    def numpy(self) -> Array:
        """A copy of the elements, as a packed array.

        Raises:
            DeviceError: the device is closed.
        """
        with self._engine.lock:
            views = self._engine.download(self._segments)
            with self._engine.kompute.timed("download", "view to array", size=self.nbytes):
                memory = views[0] if len(views) == 1 else np.concatenate(views)
                packed: Array = elements(self._desc, memory).reshape(self._shape)
                return packed.copy() if len(views) == 1 or not self._desc.is_packed else packed

    def item(self) -> Any:
        """The only element, as a Python number.

        Raises:
            ValueError: the tensor has several elements.
        """
        return self.numpy().item()

    def tolist(self) -> Any:
        """The elements as Python numbers, in nested lists; the number if the tensor has no dimensions."""
        return self.numpy().tolist()

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Calls dmlgpu's functions for NumPy's functions of `_ON_DEVICE`; for all others downloads the tensor."""
        if function in _IN_MEMORY:
            raise TypeError(f"np.{function.__name__}: {self.description} is in device memory")
        if function not in _ON_DEVICE:
            return function._implementation(*args, **kwargs)  # converts tensors to arrays, and writes to none
        arguments = inspect.signature(function).bind(*args, **kwargs).arguments
        options = {name: value for name, value in arguments.items() if value is not np._NoValue}
        x = options.pop(next(iter(options)))
        if function in (np.cumsum, np.cumprod) and options.get("axis") is None:
            x, options["axis"] = x.reshape(-1), 0
        return getattr(import_module("dmlgpu.functions"), _ON_DEVICE[function])(x, **options)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError(f"{self.description} is in device memory: its array is always a copy")
        return self.numpy() if dtype is None else self.numpy().astype(dtype, copy=False)

    def __dlpack__(self, **options: Any) -> Any:
        if options.get("copy") is False:
            raise BufferError(f"{self.description} is in device memory: its export is always a copy")
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # kDLCPU: an export is a copy on the host

    if not TYPE_CHECKING:  # otherwise type checkers would accept every attribute

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):  # libraries look these up, and work without them
                advice = ""
            elif name in _ON_DEVICE.values():
                advice = f"; use np.{name} or dmlgpu.{name}"
            else:
                advice = f"; use .numpy().{name}" if hasattr(np.ndarray, name) else "; .numpy() returns an array"
            raise AttributeError(f"a device tensor has no {name}{advice}", name=name, obj=self)

    def __bool__(self) -> bool:
        return bool(self.numpy())

    def __int__(self) -> int:
        return int(self.numpy())

    def __float__(self) -> float:
        return float(self.numpy())

    def __index__(self) -> int:
        return operator.index(self.numpy())

    __hash__ = object.__hash__

    def __reduce__(self) -> str:
        raise TypeError(f"{self.description} cannot be copied or pickled; use .numpy() for an array or Device.tensor()")

    def bytes(self) -> Bytes:
        """All bytes of the tensor, gaps included: `desc.size_in_bytes` bytes.

        Raises:
            DeviceError: the device is closed.
        """
        with self._engine.lock:
            views = self._engine.download(self._segments)
            with self._engine.kompute.timed("download", "view to array", size=self.desc.size_in_bytes):
                memory: Bytes = np.concatenate(views)
        return memory[: self.desc.size_in_bytes]

    @property
    def description(self) -> str:
        """Type, shape and device, without elements, for messages."""
        shape = "" if self.shape == self.desc.sizes else f" of shape {self.shape}"
        return f"<dmlgpu.DeviceTensor {self.desc}{shape} on device {self._engine.kompute.label}>"

    def __repr__(self) -> str:
        """`description` with a few elements, unless their download is slow or a batch has not computed them yet."""
        if self.nbytes > _SHOWN_BYTES or self._engine.batches:
            return self.description
        try:
            first = np.array2string(self.numpy().reshape(-1)[:_SHOWN], separator=", ")
        except DeviceError:
            return self.description
        more = ", ...]" if self.size > _SHOWN else "]"
        return f"{self.description[:-1]}: {first[:-1]}{more}>"


# NumPy's functions that run on the device, and the names of dmlgpu's functions.
_ON_DEVICE: dict[Any, str] = {
    getattr(np, name): name
    for name in ("argmax", "argmin", "cumulative_prod", "cumulative_sum", "max", "mean", "min", "prod", "sum")
    if hasattr(np, name)  # NumPy 2.0 lacks cumulative_prod and cumulative_sum
} | {np.amax: "max", np.amin: "min", np.cumsum: "cumulative_sum", np.cumprod: "cumulative_prod"}

# NumPy's functions about the memory of arrays, which device tensors refuse.
_IN_MEMORY = {np.may_share_memory, np.shares_memory}


def _refused(name: str) -> Callable[..., Any]:
    """A method of this name that raises a TypeError."""

    def method(self: DeviceTensor, *_: object) -> Any:
        raise TypeError(f"a device tensor has no {name}; use .numpy() of {self.description}")

    method.__name__ = name
    return method


# Otherwise Python's operators would silently download, or compare by identity.
for _name in (
    *(f"__{side}{name}__" for side in ("", "r") for name in (
        "add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "divmod", "pow",
        "lshift", "rshift", "and", "or", "xor",
    )),
    *(f"__{name}__" for name in ("eq", "ne", "lt", "le", "gt", "ge", "neg", "pos", "abs", "invert")),
    *(f"__{name}__" for name in ("iter", "getitem", "setitem", "contains")),
):  # fmt: skip
    setattr(DeviceTensor, _name, _refused(_name))


# For other modules of this package, not for users


def of_array(device: Owner, desc: TensorDesc, x: Array, field: str) -> DeviceTensor:
    """A tensor with the elements of an array. Bytes between elements are 0, or arbitrary if there is only one segment.

    Raises:
        DescriptorError: x does not match `desc`; the message begins with `field`.
        OutOfMemoryError: the tensor does not fit the device.
    """
    with device._engine.lock:
        device._engine.kompute.check_fits(desc.size_in_bytes)
        tensor = staged_copy(device, desc, x, field)
        device._engine.upload(tensor._segments)
    return tensor


def staged_copy(device: Owner, desc: TensorDesc, x: Array, field: str) -> DeviceTensor:
    """As `of_array`, but only the views have the elements, until the caller, who holds the lock, uploads them."""
    tensor = DeviceTensor(device, desc)
    check(desc, field, x)
    with device._engine.kompute.timed("upload", "array to view", size=x.nbytes):
        views = device._engine.views(tensor._segments)
        if len(views) == 1:
            write(desc, field, x, views[0])
        else:
            _fill(views, parts(desc, field, x))
    return tensor


def of_bytes(device: Owner, desc: TensorDesc, memory: Bytes) -> DeviceTensor:
    """A tensor with these bytes, gaps included; errors as `of_array`."""
    with device._engine.lock:
        device._engine.kompute.check_fits(desc.size_in_bytes)
        tensor = DeviceTensor(device, desc)
        with device._engine.kompute.timed("upload", "array to view", size=memory.size):
            _fill(device._engine.views(tensor._segments), [memory])
        device._engine.upload(tensor._segments)
    return tensor


def _fill(views: list[Bytes], memory: Iterable[Bytes]) -> None:
    """Writes parts of a tensor's memory to the views of its segments, one after the other."""
    remaining = iter(views)
    view = next(remaining)
    for part in memory:
        while part.size:
            view = view if view.size else next(remaining)
            count = min(part.size, view.size)
            view[:count] = part[:count]
            part, view = part[count:], view[count:]


def view_of(tensor: DeviceTensor, desc: TensorDesc, shape: tuple[int, ...]) -> DeviceTensor:
    """A new tensor that shares the memory of `tensor`, which must be large enough for `desc`."""
    other = object.__new__(DeviceTensor)
    other._device, other._desc, other._shape = tensor._device, desc, shape
    other._engine, other._segments = tensor._engine, tensor._segments
    other._full_segment = tensor._full_segment
    return other


def check_owns(device: Owner, tensor: DeviceTensor) -> None:
    """Raises a DeviceError if a tensor is on another device."""
    if tensor.device is not device:
        again = ": the same one, opened another time" if tensor.device.info == device.info else ""
        raise DeviceError(f"{tensor.description} is on another device than {device!r}{again}")
