"""Pooling and reductions of PyTorch tensors on a Vulkan device, with PyTorch's signatures.

    from dmlgpu import interop
    interop.torch.max_pool2d(x, 3, stride=2, return_indices=True)

max_pool1d to max_pool3d, avg_pool1d to avg_pool3d, lp_pool2d and max_unpool2d are as in `torch.nn.functional`, their
modules as in `torch.nn`; adaptive_max_pool1d to adaptive_max_pool3d and adaptive_avg_pool1d to adaptive_avg_pool3d as
well, if all windows have one size; argmax, argmin, sum, mean, amax, amin, topk, cumsum and cumprod as in `torch`;
roi_pool as in torchvision. Tensors must be on the CPU: they are copied to dmlgpu's default device, and results are
copied back. Indices count within a plane, as in PyTorch. The first of equal maxima wins; the first NaN wins over all
numbers. Autograd, except of roi_pool, and torch.compile work; the transforms of torch.func do not. Only reductions,
topk, cumsum, cumprod and max_unpool2d have gradients of gradients.

Needs the extra `torch`.

Raises:
    TypeError: `input` is not a tensor, its type is not supported, or a flag is neither True nor False.
    ValueError: the tensor is not on the CPU, or an argument is not allowed.
    IndexError: the tensor does not have the dimension.
    DeviceError: there is no device. OutOfMemoryError: the tensor does not fit it.
"""

import math
from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any

import numpy as np

from dmlgpu import functions
from dmlgpu.descriptors.reduction import AxisDirection
from dmlgpu.descriptors.tensor import described
from dmlgpu.descriptors.window import Window
from dmlgpu.errors import extra
from dmlgpu.interop import array_api

with extra("torch", "torch"):
    import torch
    from torch import Tensor
    from torch.autograd.forward_ad import unpack_dual
    from torch.nn import functional

__all__ = [
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "LPPool2d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "MaxUnpool2d",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "amax",
    "amin",
    "argmax",
    "argmin",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "cumprod",
    "cumsum",
    "lp_pool2d",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "max_unpool2d",
    "mean",
    "roi_pool",
    "sum",
    "topk",
]

_FLOATS = torch.float32, torch.float16
_INTEGERS = torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8
_SELECTED = *_FLOATS, torch.float64, *_INTEGERS, torch.uint64, torch.uint32, torch.uint16, torch.bool

Entries = int | Sequence[int]  # an int: the same for every dimension


def max_pool1d(
    input: Tensor, kernel_size: Entries, stride: Entries | None = None, padding: Entries = 0, dilation: Entries = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """As `torch.nn.functional.max_pool1d`: input is (N, C, L) or (C, L); otherwise as `max_pool2d`.

    Example:
        >>> import torch
        >>> from dmlgpu.interop import torch as pooling
        >>> x = torch.tensor([[1.0, 3.0, 2.0, 4.0]])
        >>> pooling.max_pool1d(x, 2)
        tensor([[3., 4.]])
    """
    pooled = _max_pool("max_pool1d", 1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)
    return tuple(result.squeeze(-2) for result in pooled) if return_indices else pooled.squeeze(-2)


def max_pool2d(
    input: Tensor, kernel_size: Entries, stride: Entries | None = None, padding: Entries = 0, dilation: Entries = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """As `torch.nn.functional.max_pool2d`: input is (N, C, H, W) or (C, H, W).

    `input` is of an integer type, bool, float16, float32 or float64, and the result has its type; with
    `return_indices` the result is (values, indices), with int64 indices. Only float32 and float16 have gradients.

    Example:
        >>> import torch
        >>> from dmlgpu.interop import torch as pooling
        >>> x = torch.arange(16.0).reshape(1, 1, 4, 4)
        >>> values, indices = pooling.max_pool2d(x, 2, return_indices=True)
        >>> values.tolist(), indices.tolist()
        ([[[[5.0, 7.0], [13.0, 15.0]]]], [[[[5, 7], [13, 15]]]])
    """
    return _max_pool("max_pool2d", 2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool3d(
    input: Tensor, kernel_size: Entries, stride: Entries | None = None, padding: Entries = 0, dilation: Entries = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """As `torch.nn.functional.max_pool3d`: input is (N, C, D, H, W) or (C, D, H, W); otherwise as `max_pool2d`.

    Example:
        >>> import torch
        >>> from dmlgpu.interop import torch as pooling
        >>> x = torch.arange(8.0).reshape(1, 1, 2, 2, 2)
        >>> pooling.max_pool3d(x, 2)
        tensor([[[[[7.]]]]])
    """
    return _max_pool("max_pool3d", 3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def avg_pool1d(
    input: Tensor, kernel_size: Entries, stride: Entries | None = None, padding: Entries = 0, ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:  # fmt: skip
    """As `torch.nn.functional.avg_pool1d`: input is (N, C, L) or (C, L), of float32 or float16.

    Example:
        >>> import torch
        >>> from dmlgpu.interop import torch as pooling
        >>> x = torch.tensor([[1.0, 3.0, 2.0, 4.0]])
        >>> pooling.avg_pool1d(x, 2)
        tensor([[2., 3.]])
    """
    arguments = kernel_size, stride, padding, ceil_mode, count_include_pad, None
    return _avg_pool("avg_pool1d", 1, input, *arguments).squeeze(-2)


def avg_pool2d(
    input: Tensor, kernel_size: Entries, stride: Entries | None = None, padding: Entries = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """As `torch.nn.functional.avg_pool2d`: input is (N, C, H, W) or (C, H, W), of float32 or float16.

    Example:
        >>> import torch
        >>> from dmlgpu.interop import torch as pooling
        >>> x = torch.arange(16.0).reshape(1, 1, 4, 4)
        >>> pooling.avg_pool2d(x, 2).tolist()
        [[[[2.5, 4.5], [10.5, 12.5]]]]
    """
    arguments = kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    return _avg_pool("avg_pool2d", 2, input, *arguments)


def avg_pool3d(
    input: Tensor, kernel_size: Entries, stride: Entries | None = None, padding: Entries = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """As `torch.nn.functional.avg_pool3d`: input is (N, C, D, H, W) or (C, D, H, W), of float32 or float16.

    Example:
        >>> import torch
        >>> from dmlgpu.interop import torch as pooling
        >>> x = torch.arange(8.0).reshape(1, 1, 2, 2, 2)
        >>> pooling.avg_pool3d(x, 2)
        tensor([[[[[3.5000]]]]])
    """
    arguments = kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    return _avg_pool("avg_pool3d", 3, input, *arguments)


def adaptive_max_pool1d(input: Tensor, output_size: Entries | None, return_indices: bool = False) -> Any:
    """As `torch.nn.functional.adaptive_max_pool1d`; otherwise as `adaptive_max_pool2d` and `max_pool1d`.

    Example:
        >>> import torch
        >>> from dmlgpu.interop import torch as pooling
        >>> pooling.adaptive_max_pool1d(torch.tensor([[1.0, 3.0, 2.0, 4.0]]), 1)
        tensor([[4.]])
    """
    window = _window_of("adaptive_max_pool1d", 1, input, output_size)
    pooled = _max_pool("adaptive_max_pool1d", 1, input, window, None, 0, 1, False, return_indices)
    return tuple(result.squeeze(-2) for result in pooled) if return_indices else pooled.squeeze(-2)


def adaptive_max_pool2d(input: Tensor, output_size: Entries | None, return_indices: bool = False) -> Any:
    """As `torch.nn.functional.adaptive_max_pool2d`, if output_size divides the sizes of input; as `max_pool2d`.

    Example:
        >>> import torch
        >>> from dmlgpu.interop import torch as pooling
        >>> pooling.adaptive_max_pool2d(torch.arange(16.0).reshape(1, 4, 4), (1, 2))
        tensor([[[13., 15.]]])
    """
    window = _window_of("adaptive_max_pool2d", 2, input, output_size)
    return _max_pool("adaptive_max_pool2d", 2, input, window, None, 0, 1, False, return_indices)


def adaptive_max_pool3d(input: Tensor, output_size: Entries | None, return_indices: bool = False) -> Any:
    """As `torch.nn.functional.adaptive_max_pool3d`; otherwise as `adaptive_max_pool2d` and `max_pool3d`.

    Example:
        >>> import torch
        >>> from dmlgpu.interop import torch as pooling
        >>> pooling.adaptive_max_pool3d(torch.arange(8.0).reshape(1, 2, 2, 2), (1, 1, None))
        tensor([[[[6., 7.]]]])
    """
    window = _window_of("adaptive_max_pool3d", 3, input, output_size)
    return _max_pool("adaptive_max_pool3d", 3, input, window, None, 0, 1, False, return_indices)


def adaptive_avg_pool1d(input: Tensor, output_size: Entries | None) -> Tensor:
    """As `torch.nn.functional.adaptive_avg_pool1d`; otherwise as `adaptive_max_pool2d` and `avg_pool1d`.

    Example:
        >>> import torch
        >>> from dmlgpu.interop import torch as pooling
        >>> pooling.adaptive_avg_pool1d(torch.tensor([[1.0, 3.0, 2.0, 4.0]]), 2)
        tensor([[2., 3.]])
    """
    window = _window_of("adaptive_avg_pool1d", 1, input, output_size)
    return _avg_pool("adaptive_avg_pool1d", 1, input, window, None, 0, False, True, None).squeeze(-2)


def adaptive_avg_pool2d(input: Tensor, output_size: Entries | None) -> Tensor:
    """As `torch.nn.functional.adaptive_avg_pool2d`; otherwise as `adaptive_max_pool2d` and `avg_pool2d`.

    Example:
        >>> import torch
        >>> from dmlgpu.interop import torch as pooling
        >>> pooling.adaptive_avg_pool2d(torch.arange(16.0).reshape(1, 4, 4), 1)
        tensor([[[7.5000]]])
    """
    window = _window_of("adaptive_avg_pool2d", 2, input, output_size)
    return _avg_pool("adaptive_avg_pool2d", 2, input, window, None, 0, False, True, None)


def adaptive_avg_pool3d(input: Tensor, output_size: Entries | None) -> Tensor:
    """As `torch.nn.functional.adaptive_avg_pool3d`; otherwise as `adaptive_max_pool2d` and `avg_pool3d`.

    Example:
        >>> import torch
        >>> from dmlgpu.interop import torch as pooling
        >>> pooling.adaptive_avg_pool3d(torch.arange(8.0).reshape(1, 2, 2, 2), 1)
        tensor([[[[3.5000]]]])
    """
    window = _window_of("adaptive_avg_pool3d", 3, input, output_size)
    return _avg_pool("adaptive_avg_pool3d", 3, input, window, None, 0, False, True, None)


def lp_pool2d(
    input: Tensor, norm_type: float, kernel_size: Entries, stride: Entries | None = None, ceil_mode: bool = False
) -> Tensor:
    """As `torch.nn.functional.lp_pool2d`: input is (N, C, H, W) or (C, H, W), of float32 or float16.

    norm_type is an integer from 1 on, or a float with such a value. If it is odd, negative elements are an error:
    PyTorch adds their powers, which are negative, but LP_POOLING adds absolute values.

    Example:
        >>> import torch
        >>> from dmlgpu.interop import torch as pooling
        >>> x = torch.tensor([[[3.0, 4.0], [0.0, 0.0]]])
        >>> pooling.lp_pool2d(x, 2, kernel_size=2)
        tensor([[[5.]]])
    """
    name = "lp_pool2d"
    _check(name, input, _FLOATS, ceil_mode=ceil_mode)
    if isinstance(norm_type, float) and norm_type.is_integer():
        norm_type = int(norm_type)
    if not _is_int(norm_type) or norm_type < 1:
        raise ValueError(f"{name}: norm_type={norm_type!r} is not allowed; allowed are integers from 1 on")
    _, windows = _windows(name, 2, input, kernel_size, stride, 0, 1, ceil_mode)
    *window, _, sizes = _fields(input, _padded(windows))
    norms = _lp_pooling(input, norm_type, *window, sizes)
    if not ceil_mode:
        return norms
    # If a window exceeds the input, PyTorch multiplies the average of its elements by the size of a whole window.
    size = math.prod(_entries(name, "kernel_size", kernel_size, 2, 1))
    ones = input.new_ones(1, *input.shape[-2:])
    return norms / functional.avg_pool2d(ones, kernel_size, stride, 0, True, True, size) ** (1 / norm_type)


def max_unpool2d(
    input: Tensor, indices: Tensor, kernel_size: Entries, stride: Entries | None = None, padding: Entries = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """As `torch.nn.functional.max_unpool2d`: input is (N, C, H, W) or (C, H, W), of the types of `max_pool2d`.

    The last of equal indices in a plane wins.

    Example:
        >>> import torch
        >>> from dmlgpu.interop import torch as pooling
        >>> values, indices = torch.tensor([[[5.0]]]), torch.tensor([[[3]]])
        >>> pooling.max_unpool2d(values, indices, 2).tolist()
        [[[0.0, 0.0], [0.0, 5.0]]]
    """
    name = "max_unpool2d"
    _check(name, input, _SELECTED)
    _check(name, indices, field="indices")
    if indices.dtype != torch.int64:
        raise TypeError(f"{name}: indices is of {indices.dtype}; allowed is torch.int64: use indices.long()")
    if input.ndim not in (3, 4):
        raise ValueError(f"{name}: input has {input.ndim} dimensions; allowed are 3 and 4")
    if indices.shape != input.shape:
        raise ValueError(f"{name}: indices of {tuple(indices.shape)} are not allowed; input is of {tuple(input.shape)}")
    window_size = _entries(name, "kernel_size", kernel_size, 2, 1)
    strides = window_size if stride is None else _entries(name, "stride", stride, 2, 1)
    paddings = _entries(name, "padding", padding, 2, 0)
    lines = zip(input.shape[-2:], window_size, strides, paddings, strict=True)
    sizes = expected = [(count - 1) * step + k - 2 * pad for count, k, step, pad in lines]
    if output_size is not None:
        whole = isinstance(output_size, (list, tuple)) and len(output_size) == 4
        sizes = _entries(name, "output_size", output_size[2:] if whole else output_size, 2, 1)
    if any(size < 1 or abs(size - near) >= step for size, near, step in zip(sizes, expected, strides, strict=True)):
        advice = f"allowed are sizes from 1 on that differ from {expected} by less than the stride, {strides}"
        raise ValueError(f"{name}: output_size={tuple(sizes)} is not allowed; {advice}")
    return _max_unpooling(input, indices, [*input.shape[:-2], *sizes])


def roi_pool(
    input: Tensor, boxes: Tensor | Sequence[Tensor], output_size: Entries, spatial_scale: float = 1.0
) -> Tensor:
    """As `torchvision.ops.roi_pool`: input is (N, C, H, W), of float32 or float16, and boxes have its type.

    boxes are (K, 5), with rows of batch index, x1, y1, x2 and y2; or a list of one (L, 4) per image. Corners are
    rounded as in torchvision. Bins are divided with integers, so no bin ends after its box. There is no gradient.

    Example:
        >>> import torch
        >>> from dmlgpu.interop import torch as pooling
        >>> x = torch.arange(16.0).reshape(1, 1, 4, 4)
        >>> pooling.roi_pool(x, [torch.tensor([[0.0, 0.0, 3.0, 1.0]])], (1, 2)).tolist()
        [[[[5.0, 7.0]]]]
    """
    name = "roi_pool"
    _check(name, input, _FLOATS)
    is_list = isinstance(boxes, (list, tuple))
    tensors: list[Any] = [*boxes] if is_list else [boxes]
    for tensor in tensors:
        _check(name, tensor, field="boxes")
        if tensor.dtype != input.dtype:
            raise TypeError(f"{name}: boxes is of {tensor.dtype}; allowed is {input.dtype}, as input")
        if tensor.ndim != 2 or tensor.shape[1] != (4 if is_list else 5):
            allowed = "(L, 4) of each batch entry" if is_list else "(K, 5)"
            raise ValueError(f"{name}: boxes of {tuple(tensor.shape)} are not allowed; allowed are {allowed}")
    if input.ndim != 4:
        raise ValueError(f"{name}: input has {input.ndim} dimensions; allowed are 4")
    if is_list:
        numbered = (functional.pad(tensor, (1, 0), value=i) for i, tensor in enumerate(tensors))
        tensors = [input.new_empty(0, 5), *numbered]
    size = _entries(name, "output_size", output_size, 2, 1)
    return _roi_pooling(input, torch.cat(tensors), size, spatial_scale)


def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """As `torch.argmax`, of the types of `max_pool2d`: the int64 index of the first maximum. dim=None: in all of input.

    Example:
        >>> import torch
        >>> from dmlgpu.interop import torch as pooling
        >>> pooling.argmax(torch.tensor([[1, 7, 7], [2, 0, 9]]), dim=1)
        tensor([1, 2])
    """
    return _reduced("argmax", input, dim, keepdim)


def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """As `torch.argmin`; otherwise as `argmax`.

    Example:
        >>> import torch
        >>> from dmlgpu.interop import torch as pooling
        >>> pooling.argmin(torch.tensor([[1, 7, 7], [2, 0, 9]]))
        tensor(4)
    """
    return _reduced("argmin", input, dim, keepdim)


def amax(input: Tensor, dim: Entries = (), keepdim: bool = False) -> Tensor:
    """As `torch.amax`, of the types of `max_pool2d`. dim=(): over all dimensions. Equal maxima share the gradient.

    Example:
        >>> import torch
        >>> from dmlgpu.interop import torch as pooling
        >>> pooling.amax(torch.tensor([[1, 7, 7], [2, 0, 9]]), dim=0)
        tensor([2, 7, 9])
    """
    return _reduced("amax", input, dim, keepdim)


def amin(input: Tensor, dim: Entries = (), keepdim: bool = False) -> Tensor:
    """As `torch.amin`; otherwise as `amax`.

    Example:
        >>> import torch
        >>> from dmlgpu.interop import torch as pooling
        >>> pooling.amin(torch.tensor([[1, 7, 7], [2, 0, 9]]), dim=1, keepdim=True)
        tensor([[1],
                [0]])
    """
    return _reduced("amin", input, dim, keepdim)


def sum(
    input: Tensor, dim: Entries | None = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    """As `torch.sum`: the sum of float32 and float16 has their type; of signed integers, uint8 and bool it is int64.

    Elements are first converted to `dtype`, any of these types except bool.

    Example:
        >>> import torch
        >>> from dmlgpu.interop import torch as pooling
        >>> pooling.sum(torch.tensor([[1, 7, 7], [2, 0, 9]]), dim=1)
        tensor([15, 11])
    """
    _check("sum", input)
    if dtype is None and input.dtype in (*_INTEGERS, torch.bool):
        dtype = torch.int64
    types = *_FLOATS, *_INTEGERS
    return _reduced("sum", _converted("sum", input, dtype, types), dim, keepdim, types)


def mean(
    input: Tensor, dim: Entries | None = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    """As `torch.mean`, of float32 and float16. Elements are first converted to `dtype`, one of these two.

    Example:
        >>> import torch
        >>> from dmlgpu.interop import torch as pooling
        >>> pooling.mean(torch.tensor([1.0, 2.0, 6.0]))
        tensor(3.)
    """
    _check("mean", input)
    return _reduced("mean", _converted("mean", input, dtype, _FLOATS), dim, keepdim, _FLOATS)


def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """As `torch.topk`, of the types of `max_pool2d`: (values, indices), with int64 indices.

    Results are always in order. Equal elements are in ascending order of their indices, and the first are selected. NaN
    is greater than all numbers. All floats have gradients.

    Example:
        >>> import torch
        >>> from dmlgpu.interop import torch as pooling
        >>> values, indices = pooling.topk(torch.tensor([3, 7, 1, 7]), 3)
        >>> values.tolist(), indices.tolist()
        ([7, 7, 3], [1, 3, 0])
    """
    name = "topk"
    _check(name, input, _SELECTED, largest=largest, sorted=sorted)
    (axis,) = _axes(name, input, dim, [dim])
    least, most = (0, input.shape[axis]) if input.ndim else (1, 1)
    if not _is_int(k) or not least <= k <= most:
        raise ValueError(f"{name}: k={k} is not allowed; allowed are integers from {least} to {most}")
    return torch.return_types.topk(_top_k(input, k, axis, largest))


def cumsum(input: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """As `torch.cumsum`, of the types of `sum`.

    Example:
        >>> import torch
        >>> from dmlgpu.interop import torch as pooling
        >>> pooling.cumsum(torch.tensor([[1, 7, 7], [2, 0, 9]]), 1)
        tensor([[ 1,  8, 15],
                [ 2,  2, 11]])
    """
    return _cumulative("cumsum", input, dim, dtype)


def cumprod(input: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """As `torch.cumprod`, of the types of `sum`. Its backward pass runs in PyTorch.

    Example:
        >>> import torch
        >>> from dmlgpu.interop import torch as pooling
        >>> pooling.cumprod(torch.tensor([1.0, 2.0, 3.0]), 0)
        tensor([1., 2., 6.])
    """
    return _cumulative("cumprod", input, dim, dtype)


# Modules: those of `torch.nn` with another `forward`. Their attributes have the names of the functions' parameters.


def _forward(pool: Callable[..., Any]) -> Callable[[torch.nn.Module, Tensor], Any]:
    names = [*signature(pool).parameters][1:]

    def forward(self: torch.nn.Module, input: Tensor) -> Any:
        return pool(input, **{name: getattr(self, name) for name in names})

    return forward


class MaxPool1d(torch.nn.MaxPool1d):  # type: ignore[misc]  # mypy skips torch
    """`torch.nn.MaxPool1d` by `max_pool1d`."""

    forward = _forward(max_pool1d)


class MaxPool2d(torch.nn.MaxPool2d):  # type: ignore[misc]
    """`torch.nn.MaxPool2d` by `max_pool2d`."""

    forward = _forward(max_pool2d)


class MaxPool3d(torch.nn.MaxPool3d):  # type: ignore[misc]
    """`torch.nn.MaxPool3d` by `max_pool3d`."""

    forward = _forward(max_pool3d)


class AvgPool1d(torch.nn.AvgPool1d):  # type: ignore[misc]
    """`torch.nn.AvgPool1d` by `avg_pool1d`."""

    forward = _forward(avg_pool1d)


class AvgPool2d(torch.nn.AvgPool2d):  # type: ignore[misc]
    """`torch.nn.AvgPool2d` by `avg_pool2d`."""

    forward = _forward(avg_pool2d)


class AvgPool3d(torch.nn.AvgPool3d):  # type: ignore[misc]
    """`torch.nn.AvgPool3d` by `avg_pool3d`."""

    forward = _forward(avg_pool3d)


class LPPool2d(torch.nn.LPPool2d):  # type: ignore[misc]
    """`torch.nn.LPPool2d` by `lp_pool2d`."""

    forward = _forward(lp_pool2d)


class MaxUnpool2d(torch.nn.MaxUnpool2d):  # type: ignore[misc]
    """`torch.nn.MaxUnpool2d` by `max_unpool2d`."""

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """As `max_unpool2d`."""
        return max_unpool2d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


# From PyTorch's arguments to those of the operators


def _check(name: str, x: Tensor, types: Sequence[torch.dtype] = (), field: str = "input", **flags: Any) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}: {field} is {described(x)}, not a tensor")
    if x.layout != torch.strided:
        raise ValueError(f"{name}: {field} is {x.layout}; allowed is torch.strided: use {field}.to_dense()")
    if x.device.type != "cpu":
        advice = "a meta tensor has no elements" if x.is_meta else f"use {field}.cpu()"
        raise ValueError(f"{name}: {field} is on {x.device}; allowed is cpu: {advice}")
    if unpack_dual(x).tangent is not None:  # it would be dropped silently
        raise ValueError(f"{name}: {field} has a tangent; gradients in forward mode are not supported")
    if types and x.dtype not in types:
        advice = "" if x.is_complex() else ": convert it, for example by input.float()"
        raise TypeError(f"{name}: input is of {x.dtype}{advice}; allowed are {', '.join(map(str, types))}")
    if wrong := [f"{field}={value!r}" for field, value in flags.items() if not isinstance(value, bool)]:
        raise TypeError(f"{name}: {', '.join(wrong)} is not allowed; allowed are True and False")


def _converted(name: str, x: Tensor, dtype: torch.dtype | None, types: Sequence[torch.dtype]) -> Tensor:
    if dtype not in (None, *types):
        raise TypeError(f"{name}: dtype={dtype} is not allowed; allowed are {', '.join(map(str, types))}")
    return x.to(dtype or x.dtype)


def _cumulative(name: str, input: Tensor, dim: int, dtype: torch.dtype | None) -> Tensor:
    _check(name, input)
    if dtype is None and input.dtype in (*_INTEGERS, torch.bool):
        dtype = torch.int64
    types = *_FLOATS, *_INTEGERS
    x = _converted(name, input, dtype, types)
    _check(name, x, types)
    (axis,) = _axes(name, x, dim, [dim])
    return _cumulative_of(x, name, axis, False)


def _is_int(value: Any) -> bool:  # not a bool; also a SymInt while PyTorch traces: Dynamo has no hasattr for it
    return (isinstance(value, int) or hasattr(value, "__index__")) and not isinstance(value, bool)


def _entries(name: str, field: str, value: Any, rank: int, least: int) -> list[int]:
    """An argument as one entry for each spatial dimension."""
    entries = [*value] if isinstance(value, (list, tuple)) else [value]
    if len(entries) not in (1, rank) or not all(_is_int(entry) and entry >= least for entry in entries):
        counts = "is 1 integer" if rank == 1 else f"are 1 or {rank} integers"
        raise ValueError(f"{name}: {field}={value} is not allowed; allowed {counts} from {least} on")
    return entries * (rank // len(entries))


def _window_of(name: str, rank: int, x: Tensor, output_size: Any) -> list[int]:
    """The window size of an adaptive pooling: input size divided by output size."""
    _check(name, x)
    if x.ndim not in (rank + 1, rank + 2):
        raise ValueError(f"{name}: input has {x.ndim} dimensions; allowed are {rank + 1} and {rank + 2}")
    entries, sizes = [*output_size] if isinstance(output_size, (list, tuple)) else [output_size] * rank, x.shape[-rank:]
    counts = [size if count is None else count for size, count in zip(sizes, entries, strict=False)]
    if len(entries) != rank or not all(
        _is_int(n) and n > 0 and size % n == 0 for size, n in zip(sizes, counts, strict=True)
    ):
        advice = f"allowed are {rank} divisors of {tuple(sizes)}, as all windows have one size"
        raise ValueError(f"{name}: output_size={output_size} is not allowed; {advice}")
    return [size // count for size, count in zip(sizes, counts, strict=True)]


def _windows(name: str, rank: int, x: Tensor, *arguments: Any) -> tuple[Tensor, list[Window]]:
    """The input, and its windows along spatial dimensions; a 1-D input gets a height of 1."""
    kernel_size, stride, padding, dilation, ceil_mode = arguments
    if x.ndim not in (rank + 1, rank + 2):
        raise ValueError(f"{name}: input has {x.ndim} dimensions; allowed are {rank + 1} and {rank + 2}")
    window_size = _entries(name, "kernel_size", kernel_size, rank, 1)
    left_out = stride is None or (isinstance(stride, (list, tuple)) and not stride)
    strides = window_size if left_out else _entries(name, "stride", stride, rank, 1)
    paddings = _entries(name, "padding", padding, rank, 0)
    dilations = _entries(name, "dilation", dilation, rank, 1)
    windows = []
    for row in zip(x.shape[-rank:], window_size, strides, paddings, paddings, dilations, strict=True):
        window = Window(*row)
        if 2 * window.start_padding > window.window_size:
            raise ValueError(f"{name}: padding={padding} is not allowed; allowed is up to half of the window")
        count = window.rounded(ceil_mode)
        if count < 1:
            raise ValueError(f"{name}: kernel_size={kernel_size} does not fit an input of {tuple(x.shape)}")
        if window.extent > window.padded:  # with `ceil_mode`
            window = window.cut
        windows.append(window._replace(output_size=count))
    return (x.unsqueeze(-2), [Window(1, 1), *windows]) if rank == 1 else (x, windows)


def _fields(x: Tensor, windows: Sequence[Window]) -> tuple[Any, ...]:
    """The window size, strides, start and end padding and dilations, and the sizes of the output."""
    _, *fields, counts, _ = map(list, zip(*windows, strict=True))
    return *fields, [*x.shape[: -len(windows)], *counts]


def _padded(windows: Sequence[Window]) -> list[Window]:
    """Windows with padding up to the end of the last one, so that each average divides by the whole window size."""
    return [window._replace(end_padding=window.overhang) for window in windows]


def _max_pool(name: str, rank: int, x: Tensor, *arguments: Any) -> Any:
    *window, ceil_mode, return_indices = arguments
    _check(name, x, _SELECTED, ceil_mode=ceil_mode, return_indices=return_indices)
    has_gradient = x.requires_grad and torch.is_grad_enabled()
    if has_gradient:
        _check(f"{name} with a gradient", x, _FLOATS)
    x, windows = _windows(name, rank, x, *window, ceil_mode)
    values, indices = _max_pooling(x, *_fields(x, windows), return_indices or has_gradient)
    if not return_indices:
        return values
    # The 32 bits of indices wrap around, and so do their differences, which are below 2^32.
    planes, plane = x.shape[: -len(windows)], math.prod(x.shape[-len(windows) :])
    firsts = torch.arange(0, x.numel(), plane).int().view(*planes, *(1 for _ in windows))
    return values, (indices - firsts).long().bitwise_and_(0xFFFFFFFF)


def _avg_pool(name: str, rank: int, x: Tensor, *arguments: Any) -> Tensor:
    kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override = arguments
    _check(name, x, _FLOATS, ceil_mode=ceil_mode, count_include_pad=count_include_pad)
    x, windows = _windows(name, rank, x, kernel_size, stride, padding, 1, ceil_mode)
    if divisor_override is None:
        *window, _, sizes = _fields(x, windows)
        return _average_pooling(x, *window, count_include_pad, sizes)
    if not _is_int(divisor_override) or divisor_override == 0:
        raise ValueError(f"{name}: divisor_override={divisor_override} is not allowed; allowed are integers but 0")
    *window, _, sizes = _fields(x, _padded(windows))
    # In float32, because in float16 the average may underflow, and the gradient of the product overflow.
    averages = _average_pooling(x.float(), *window, True, sizes)
    return (averages * (math.prod(window[0]) / divisor_override)).to(x.dtype)


def _reduced(name: str, x: Tensor, dim: Any, keepdim: bool, types: Sequence[torch.dtype] = _SELECTED) -> Tensor:
    _check(name, x, types, keepdim=keepdim)
    dims = [*dim] if isinstance(dim, (list, tuple)) else [] if dim is None else [dim]
    axes = _axes(name, x, dim, dims or range(x.ndim))
    axes = axes if x.ndim else []
    return _reduce(x, name, axes) if keepdim else _reduce(x, name, axes).squeeze(axes)


def _axes(name: str, x: Tensor, dim: Any, dims: Sequence[Any]) -> list[int]:
    """The axes of the argument `dim`, whose entries are `dims`."""
    rank = x.ndim or 1
    if not all(_is_int(axis) and -rank <= axis < rank for axis in dims):
        raise IndexError(f"{name}: dim={dim} is not allowed; allowed are integers from {-rank} to {rank - 1}")
    return [axis % rank for axis in dims]


# The operators of torch.library: `fake` returns results without values, for tracing; `save` keeps inputs of `backward`.


def _operator(function: Any, parameters: str, results: str, fake: Any, save: Any = None, backward: Any = None) -> Any:
    """An operator that calls `function` with arguments by name; its arrays and results are NumPy's."""
    names = [parameter.split()[1] for parameter in parameters.split(", ")]

    def run(*arguments: Any) -> Any:
        values = (x.numpy() if isinstance(x, Tensor) else tuple(x) if isinstance(x, list) else x for x in arguments)
        options = dict(zip(names, values, strict=True))
        if "start_padding" in options:
            options["padding"] = tuple(zip(options.pop("start_padding"), options.pop("end_padding"), strict=True))
        result = function(**options)
        return tuple(map(torch.from_numpy, result)) if isinstance(result, tuple) else torch.from_numpy(result)

    name, schema = f"dmlgpu::{function.__name__}", f"({parameters}) -> {results}"
    operator = torch.library.custom_op(name, run, mutates_args=(), device_types="cpu", schema=schema)
    operator.register_fake(fake)
    if backward:
        operator.register_autograd(backward, setup_context=save)
    return operator


def max_pooling(x: Any, output_indices: bool, **window: Any) -> Any:
    """`functions.max_pooling` with indices of 32 bits, viewed as signed; without indices their array is empty."""
    if not output_indices:
        return functions.max_pooling(x, **window), np.empty(0, np.int32)
    values, indices = functions.max_pooling(x, **window, output_indices=True, indices_data_type=np.uint32)
    return values, indices.view(np.int32)


def max_pooling_grad(x: Any, gradient: Any, indices: Any, **window: Any) -> Any:
    """`functions.max_pooling_grad` with the indices of `max_pooling`, if there are any."""
    indices = indices.view(np.uint32) if indices.size else None
    return functions.max_pooling_grad(x, gradient, **window, indices=indices)


def lp_pooling(x: Any, p: int, **window: Any) -> Any:
    """`functions.lp_pooling`; an error if p is odd and elements are negative, because PyTorch adds their powers."""
    if p % 2 and (x < 0).any():
        advice = "allowed are even ones, or input.abs() for the norm"
        raise ValueError(f"lp_pool2d: norm_type={p} is odd, and input has negative elements; {advice}")
    return functions.lp_pooling(x, p=p, **window)


def max_unpooling(x: Any, indices: Any, output_sizes: Sequence[int]) -> Any:
    """`functions.max_unpooling` with indices within a plane of the output; an error if one is outside."""
    plane = math.prod(output_sizes[-2:])
    outside = indices[(indices < 0) | (indices >= plane)]
    if outside.size:
        raise ValueError(f"max_unpool2d: index {outside[0]} is not allowed; allowed are 0 to {plane - 1}")
    planes = np.arange(math.prod(x.shape[:-2])).reshape(*x.shape[:-2], 1, 1)
    return functions.max_unpooling(x, indices + plane * planes, output_sizes)


def reduce(x: Any, name: str, axes: Sequence[int]) -> Any:
    """A reduction of `array_api` by PyTorch's name, with keepdims; a sum has x's type."""
    options = {"dtype": x.dtype} if name == "sum" else {}
    function = getattr(array_api, name.removeprefix("a") if name in ("amax", "amin") else name)
    return np.asarray(function(x, axis=tuple(axes) if x.ndim else None, keepdims=True, **options))


def top_k(x: Any, k: int, axis: int, largest: bool) -> Any:
    """`functions.top_k`, also for k = 0; returns arrays even if x has no dimensions."""
    if not k:
        sizes = (*x.shape[:axis], 0, *x.shape[axis + 1 :])
        return np.empty(sizes, x.dtype), np.empty(sizes, np.int64)
    values, indices = functions.top_k(x, k, axis=axis, largest=largest)
    return np.asarray(values), np.asarray(indices)


def cumulative(x: Any, name: str, axis: int, reverse: bool) -> Any:
    """A cumulative function of `array_api` by PyTorch's name, with x's type."""
    function = array_api.cumulative_sum if name == "cumsum" else array_api.cumulative_prod
    direction = AxisDirection.DECREASING if reverse else AxisDirection.INCREASING
    return np.asarray(function(x, axis=axis, dtype=x.dtype, axis_direction=direction)).reshape(x.shape)


def _fake_max_pooling(x: Tensor, *window: Any) -> tuple[Tensor, Tensor]:
    *_, sizes, output_indices = window
    return x.new_empty(sizes), x.new_empty(sizes if output_indices else 0, dtype=torch.int32)


def _fake_reduce(x: Tensor, name: str, axes: Sequence[int]) -> Tensor:
    sizes = [1 if i in axes else size for i, size in enumerate(x.shape)]
    return x.new_empty(sizes, dtype=torch.int64 if name.startswith("arg") else x.dtype)


def _fake_top_k(x: Tensor, k: int, axis: int, largest: bool) -> tuple[Tensor, Tensor]:
    sizes = [k if i == axis else size for i, size in enumerate(x.shape)]
    return x.new_empty(sizes), x.new_empty(sizes, dtype=torch.int64)


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    x, *ctx.window, _ = inputs
    ctx.save_for_backward(x)


def _save_maxima(ctx: Any, inputs: Any, output: Any) -> None:
    x, *ctx.window, _, _ = inputs
    ctx.save_for_backward(x, output[1])
    ctx.set_materialize_grads(False)  # no zeros as the gradient of the indices


def _max_backward(ctx: Any, gradient: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
    x, indices = ctx.saved_tensors
    x_gradient = None if gradient is None else _max_pooling_grad(x, gradient, indices, *ctx.window)
    return x_gradient, *[None] * 7


def _save_lp(ctx: Any, inputs: Any, output: Any) -> None:
    x, ctx.p, *ctx.window, _ = inputs
    ctx.save_for_backward(x, output)


def _lp_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    x, norms = (tensor.float() for tensor in ctx.saved_tensors)
    # The gradient of a norm is (x / norm) ** (p - 1); that of a sum is the average's, times the window size.
    shares = (gradient * math.prod(ctx.window[0]) / norms ** (ctx.p - 1)).where(norms != 0, 0)
    powers = x ** (ctx.p - 1) * _average_pooling_grad(shares, x.shape, *ctx.window, True)
    return powers.to(gradient.dtype), *[None] * 6


def _unpool_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    (indices,) = ctx.saved_tensors
    return gradient.flatten(-2).gather(-1, indices.flatten(-2)).view(indices.shape), None, None


def _save_reduce(ctx: Any, inputs: Any, output: Any) -> None:
    x, ctx.name, ctx.axes = inputs
    ctx.sizes = x.shape
    ctx.save_for_backward(*((x, output) if ctx.name in ("amax", "amin") else ()))


def _reduce_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    if ctx.name in ("amax", "amin"):
        x, output = ctx.saved_tensors
        ties = x == output
        return ties * gradient / ties.sum(ctx.axes, keepdim=True), None, None
    shared = math.prod(ctx.sizes[axis] for axis in ctx.axes) if ctx.name == "mean" else 1
    return (gradient / shared).expand(ctx.sizes), None, None


def _save_top_k(ctx: Any, inputs: Any, output: Any) -> None:
    x, _, ctx.axis, _ = inputs
    ctx.sizes = x.shape
    ctx.save_for_backward(output[1])
    ctx.set_materialize_grads(False)  # no zeros as the gradient of the indices


def _top_k_backward(ctx: Any, gradient: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
    (indices,) = ctx.saved_tensors
    if gradient is not None:
        gradient = gradient.new_zeros(ctx.sizes).scatter(ctx.axis, indices, gradient)
    return gradient, None, None, None


def _save_cumulative(ctx: Any, inputs: Any, output: Any) -> None:
    x, ctx.name, ctx.axis, ctx.reverse = inputs
    ctx.save_for_backward(*((x, output) if ctx.name == "cumprod" else ()))


def _cumulative_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    if ctx.name == "cumsum":
        return _cumulative_of(gradient, "cumsum", ctx.axis, not ctx.reverse), None, None, None
    x, output = ctx.saved_tensors
    return torch.ops.aten.cumprod_backward(gradient, x, ctx.axis, output), None, None, None


_WINDOW = "SymInt[] window_size, SymInt[] strides, SymInt[] start_padding, SymInt[] end_padding"

_max_pooling_grad = _operator(
    max_pooling_grad,
    f"Tensor x, Tensor gradient, Tensor indices, {_WINDOW}, SymInt[] dilations",
    "Tensor",
    fake=lambda x, *_: x.new_empty(x.shape),
)
_max_pooling = _operator(
    max_pooling,
    f"Tensor x, {_WINDOW}, SymInt[] dilations, SymInt[] output_sizes, bool output_indices",
    "(Tensor, Tensor)",
    _fake_max_pooling,
    _save_maxima,
    _max_backward,
)
_average_pooling_grad = _operator(
    functions.average_pooling_grad,
    f"Tensor gradient, SymInt[] input_sizes, {_WINDOW}, bool include_padding",
    "Tensor",
    fake=lambda gradient, sizes, *_: gradient.new_empty(sizes),
)
_average_pooling = _operator(
    functions.average_pooling,
    f"Tensor x, {_WINDOW}, bool include_padding, SymInt[] output_sizes",
    "Tensor",
    lambda x, *window: x.new_empty(window[-1]),
    _save,
    lambda ctx, gradient: (_average_pooling_grad(gradient, ctx.saved_tensors[0].shape, *ctx.window), *[None] * 6),
)
_lp_pooling = _operator(
    lp_pooling,
    f"Tensor x, SymInt p, {_WINDOW}, SymInt[] output_sizes",
    "Tensor",
    lambda x, *window: x.new_empty(window[-1]),
    _save_lp,
    _lp_backward,
)
_max_unpooling = _operator(
    max_unpooling,
    "Tensor x, Tensor indices, SymInt[] output_sizes",
    "Tensor",
    lambda x, indices, sizes: x.new_empty(sizes),
    lambda ctx, inputs, output: ctx.save_for_backward(inputs[1]),
    _unpool_backward,
)
_roi_pooling = _operator(
    functions.roi_pooling,
    "Tensor x, Tensor rois, SymInt[] pooled_size, float spatial_scale",
    "Tensor",
    lambda x, rois, size, _: x.new_empty(rois.shape[0], x.shape[1], *size),
)
_reduce = _operator(reduce, "Tensor x, str name, SymInt[] axes", "Tensor", _fake_reduce, _save_reduce, _reduce_backward)
_cumulative_of = _operator(
    cumulative,
    "Tensor x, str name, int axis, bool reverse",
    "Tensor",
    lambda x, *_: x.new_empty(x.shape),
    _save_cumulative,
    _cumulative_backward,
)
_top_k = _operator(
    top_k,
    "Tensor x, SymInt k, int axis, bool largest",
    "(Tensor, Tensor)",
    _fake_top_k,
    _save_top_k,
    _top_k_backward,
)
