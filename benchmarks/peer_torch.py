"""PyTorch on the CPU, and on a GPU of CUDA or ROCm."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import dmlgpu
from benchmarks.peers import Contender, Peer, UnavailableError, as_outputs, cores, first_line, function_of, queued
from dmlgpu.descriptors.tensor import Array

_REDUCTIONS = {
    dmlgpu.ReduceFunction.SUM: "sum",
    dmlgpu.ReduceFunction.MAX: "amax",
    dmlgpu.ReduceFunction.AVERAGE: "mean",
    dmlgpu.ReduceFunction.LOG_SUM_EXP: "logsumexp",
}


class TorchPeer(Peer):
    """PyTorch, on tensors that exist before.

    Args:
        device: "cpu"; or "cuda", also for ROCm: the GPU with this UUID, or the first one if none has it. Each run
            waits for the GPU.
        uuid: as in DeviceInfo.
    """

    def __init__(self, device: str = "cpu", uuid: str = "") -> None:
        try:
            import torch
        except ModuleNotFoundError:
            raise UnavailableError("not installed") from None
        except (ImportError, OSError) as error:
            raise UnavailableError(f"cannot be imported: {first_line(error)}") from None
        self._torch: Any = torch
        torch.set_num_threads(cores())
        self._device = torch.device("cpu")
        place = f"{torch.get_num_threads()} threads"
        if device == "cuda":
            if not torch.cuda.is_available():
                raise UnavailableError("PyTorch sees no GPU")
            properties = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
            uuids = [str(getattr(gpu, "uuid", "")).replace("-", "") for gpu in properties]
            index = uuids.index(uuid) if uuid in uuids else 0
            self._device = torch.device("cuda", index)
            place = properties[index].name
        self.description = f"{torch.__version__}, {place}"

    def contender(self, desc: dmlgpu.OperatorDesc, *inputs: Array) -> Contender:
        try:
            contender = super().contender(desc, *inputs)
            contender.run()
        except (RuntimeError, NotImplementedError) as error:
            raise UnavailableError(first_line(error)) from None
        return contender

    def _tensor(self, x: Array) -> Any:
        """A copy of an array, with its dimensions in the same order in memory."""
        try:
            return self._torch.from_numpy(x.copy(order="K")).to(self._device)
        except (TypeError, RuntimeError) as error:
            raise UnavailableError(first_line(error)) from None

    def _contender(self, desc: dmlgpu.OperatorDesc, call: Callable[[], Any], planes: Array | int = 0) -> Contender:
        """`call` returns values, or values and indices within planes; `planes` are the positions to add to these."""

        def outputs(result: Any) -> tuple[Array, ...]:
            values, *indices = result if isinstance(result, tuple) else (result,)
            return as_outputs(desc, (values.cpu().numpy(), *(tensor.cpu().numpy() + planes for tensor in indices)))

        if self._device.type == "cpu":
            return Contender(call, outputs)
        return queued(call, partial(self._torch.cuda.synchronize, self._device), outputs)

    def argmax(self, desc: dmlgpu.ArgmaxOperatorDesc, x: Array, axis: int) -> Contender:
        return self._contender(desc, partial(self._torch.argmax, self._tensor(x), axis))

    def reduce(self, desc: dmlgpu.ReduceOperatorDesc, x: Array, axis: int) -> Contender:
        function = getattr(self._torch, function_of(_REDUCTIONS, desc))
        return self._contender(desc, partial(function, self._tensor(x), axis))

    def max_pooling(self, desc: dmlgpu.MaxPooling2OperatorDesc, x: Array) -> Contender:
        pool = self._pool("max", desc, return_indices=desc.output_indices_tensor is not None)
        return self._contender(desc, partial(pool, self._tensor(x)), _planes(x.shape))

    def average_pooling(self, desc: dmlgpu.AveragePooling1OperatorDesc, x: Array) -> Contender:
        return self._contender(desc, partial(self._pool("avg", desc), self._tensor(x)))

    def lp_pooling(self, desc: dmlgpu.LpPooling1OperatorDesc, x: Array) -> Contender:
        tensor, pad, pool = self._tensor(x), self._torch.nn.functional.pad, self._pool("lp", desc)
        # In PyTorch's order, which begins with the last dimension.
        paddings = [*itertools.chain(*zip(desc.start_padding[::-1], desc.end_padding[::-1], strict=True))]
        return self._contender(desc, lambda: pool(pad(tensor, paddings) if any(paddings) else tensor))

    def max_pooling_grad(self, desc: dmlgpu.MaxPoolingGradOperatorDesc, x: Array, gradient: Array) -> Contender:
        return self._backward(desc, self._pool("max", desc), x, gradient)

    def average_pooling_grad(self, desc: dmlgpu.AveragePoolingGradOperatorDesc, gradient: Array) -> Contender:
        x = np.zeros(desc.output_gradient_tensor.sizes, gradient.dtype)
        return self._backward(desc, self._pool("avg", desc), x, gradient)

    def _backward(self, desc: dmlgpu.OperatorDesc, pool: Callable[[Any], Any], x: Array, gradient: Array) -> Contender:
        """The backward pass of a pooling; the forward pass runs once, before the timing."""
        tensor, weights = self._tensor(x).requires_grad_(), self._tensor(gradient)
        pooled = pool(tensor)
        return self._contender(desc, lambda: self._torch.autograd.grad(pooled, tensor, weights, retain_graph=True))

    def max_unpooling(self, desc: dmlgpu.MaxUnpoolingOperatorDesc, x: Array, indices: Array) -> Contender:
        target = desc.output_tensor.sizes
        within = indices.astype(np.int64) - _planes(target)
        unpool = self._torch.ops.aten.max_unpool2d
        return self._contender(desc, partial(unpool, self._tensor(x), self._tensor(within), target[2:]))

    def cumulative_sum(self, desc: dmlgpu.CumulativeSummationOperatorDesc, x: Array) -> Contender:
        return self._contender(desc, partial(self._torch.cumsum, self._tensor(x), desc.axis))

    def top_k(self, desc: dmlgpu.TopK1OperatorDesc, x: Array) -> Contender:
        largest = desc.axis_direction is dmlgpu.AxisDirection.DECREASING
        return self._contender(desc, partial(self._torch.topk, self._tensor(x), desc.k, desc.axis, largest))

    def _pool(self, kind: str, desc: Any, **options: Any) -> Callable[..., Any]:
        """max_pool2d, avg_pool2d, lp_pool2d, or the same in 3-D, with the window of a descriptor."""
        if kind == "max":
            options |= {"padding": desc.start_padding, "dilation": desc.dilations}
        elif any(dilation > 1 for dilation in getattr(desc, "dilations", ())):
            raise UnavailableError("PyTorch has dilations in max pooling only")
        elif kind == "avg":
            options |= {"padding": desc.start_padding, "count_include_pad": desc.include_padding}
        else:
            # lp_pool2d does not pad.
            options |= {"norm_type": desc.p}
        function = getattr(self._torch.nn.functional, f"{kind}_pool{len(desc.window_size)}d")
        return partial(function, kernel_size=desc.window_size, stride=desc.strides, **options)


def _planes(sizes: Sequence[int]) -> Array:
    """Index of each plane's first element; PyTorch's indices begin with 0 in each plane."""
    planes: Array = math.prod(sizes[2:]) * np.arange(math.prod(sizes[:2]))
    return planes.reshape(*sizes[:2], *[1] * (len(sizes) - 2))
