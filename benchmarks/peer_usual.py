"""Kernels as usually written, on dmlgpu's device: a workgroup for each row, or an invocation for each output."""

from __future__ import annotations

import math
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import dmlgpu
from benchmarks.kompute import Kompute
from benchmarks.peers import Contender, Peer, UnavailableError, as_outputs, function_of
from dmlgpu.descriptors.tensor import Array

_Pooling = dmlgpu.MaxPooling2OperatorDesc | dmlgpu.AveragePooling1OperatorDesc | dmlgpu.LpPooling1OperatorDesc

_SHADERS = Path(__file__).with_name("shaders")
_GROUP_SIZE = 256
# The numbers of functions in the shaders of reductions.
_FUNCTIONS = {
    dmlgpu.ReduceFunction.SUM: 0,
    dmlgpu.ReduceFunction.MAX: 1,
    dmlgpu.ReduceFunction.AVERAGE: 2,
    dmlgpu.ReduceFunction.LOG_SUM_EXP: 3,
}


class UsualPeer(Peer):
    """Kernels for packed FLOAT32 tensors of one buffer, compiled by `compile_all`, at the latest for this peer."""

    def __init__(self, kompute: Kompute) -> None:
        self._kompute = kompute
        self._group_size = min(_GROUP_SIZE, kompute.device.info.max_group_size)
        self._modules = _modules()
        self.description = f"GLSL of benchmarks/shaders, workgroups of {self._group_size}"

    def contender(self, desc: dmlgpu.OperatorDesc, *inputs: Array) -> Contender:
        tensors = (*desc.inputs, *desc.outputs)
        types = {tensor.data_type for tensor in tensors}
        if types - {dmlgpu.DataType.FLOAT32, dmlgpu.DataType.UINT32} or not all(tensor.is_packed for tensor in tensors):
            raise UnavailableError("the kernels need packed float32 or uint32")
        if max(tensor.size_in_bytes for tensor in tensors) > self._kompute.device.limits.segment_bytes:
            raise UnavailableError("the kernels need tensors of one buffer")
        return super().contender(desc, *inputs)

    def argmax(self, desc: dmlgpu.ArgmaxOperatorDesc, x: Array, axis: int) -> Contender:
        return self._over_axis(desc, x, axis, "argmax")

    def reduce(self, desc: dmlgpu.ReduceOperatorDesc, x: Array, axis: int) -> Contender:
        return self._over_axis(desc, x, axis, "reduce", function_of(_FUNCTIONS, desc))

    def _over_axis(self, desc: dmlgpu.OperatorDesc, x: Array, axis: int, kernel: str, *constants: int) -> Contender:
        outputs, length, inner = desc.outputs[0].element_count, x.shape[axis], math.prod(x.shape[axis + 1 :])
        if inner == 1:
            self._check_loop(math.ceil(length / self._group_size))
            return self._contender(desc, x, f"{kernel}_rows", outputs, constants, [outputs, length])
        self._check_loop(length)
        groups = math.ceil(outputs / self._group_size)
        return self._contender(desc, x, kernel, groups, constants, [outputs, length, inner])

    def max_pooling(self, desc: dmlgpu.MaxPooling2OperatorDesc, x: Array) -> Contender:
        return self._over_windows(desc, x, "max_pooling", desc.output_indices_tensor is not None)

    def average_pooling(self, desc: dmlgpu.AveragePooling1OperatorDesc, x: Array) -> Contender:
        if desc.include_padding:
            raise UnavailableError("the kernels divide by the number of elements in the input")
        return self._over_windows(desc, x, "sum_pooling", False)

    def lp_pooling(self, desc: dmlgpu.LpPooling1OperatorDesc, x: Array) -> Contender:
        if desc.p != 2:
            raise UnavailableError("the kernels compute p = 2")
        return self._over_windows(desc, x, "sum_pooling", True)

    def _over_windows(self, desc: _Pooling, x: Array, kernel: str, constant: bool) -> Contender:
        self._check_loop(math.prod(desc.window_size))
        outputs = desc.output_tensor.element_count
        # The kernels pool volumes: a plane has depth 1.
        ones, zeros = (1,) * (5 - x.ndim), (0,) * (5 - x.ndim)
        push = [outputs, *ones, *x.shape[2:], *ones, *desc.output_tensor.sizes[2:], *ones, *desc.window_size]
        push += [*ones, *desc.strides, *zeros, *desc.start_padding, *ones, *desc.dilations]
        return self._contender(desc, x, kernel, math.ceil(outputs / self._group_size), [constant], push)

    @staticmethod
    def _check_loop(iterations: int) -> None:
        if iterations >= 65_535:
            raise UnavailableError("more iterations than llvmpipe does")

    def _contender(
        self,
        desc: dmlgpu.OperatorDesc,
        x: Array,
        kernel: str,
        groups: int,
        constants: Sequence[int],
        push: Sequence[int],
    ) -> Contender:
        kompute = self._kompute
        # Several rows of workgroups, if there are more than a row may have.
        columns = min(groups, kompute.device.info.max_group_count)
        targets = [kompute.upload(np.zeros(tensor.sizes, tensor.data_type.numpy)) for tensor in desc.outputs]
        unused = [kompute.upload(np.zeros(1, np.uint32))] if len(targets) == 1 else []
        submission = kompute.dispatch(
            self._modules[kernel],
            (columns, math.ceil(groups / columns), 1),
            [self._group_size, *constants],
            push,
            [kompute.upload(x), *targets, *unused],
        )

        def outputs(_: Any) -> tuple[Array, ...]:
            pairs = zip(targets, desc.outputs, strict=True)
            return as_outputs(desc, tuple(kompute.download(target, tensor.data_type.numpy) for target, tensor in pairs))

        return Contender(submission.eval, outputs)


def compile_all(folder: Path) -> None:
    """Writes the kernels' modules to a folder. In the folder of the sources, they serve machines without a compiler.

    Raises:
        UnavailableError: this machine has no compiler.
    """
    compiler = shutil.which("glslangValidator") or shutil.which("glslang")
    if compiler is None:
        raise UnavailableError("glslangValidator is not installed")
    for shader in _SHADERS.glob("*.comp"):
        options = ["--quiet", "--target-env", "vulkan1.1", "-o", str(folder / f"{shader.stem}.spv")]
        subprocess.run([compiler, *options, str(shader)], check=True, stdout=subprocess.DEVNULL)


def _modules() -> dict[str, bytes]:
    """The modules by name, from the folder of their sources, or compiled now."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = _SHADERS
        if not list(folder.glob("*.spv")):
            folder = Path(temporary)
            compile_all(folder)
        return {module.stem: module.read_bytes() for module in folder.glob("*.spv")}
