"""The usual kernels for these operators, on dmlgpu's device: a workgroup per row, an invocation per output."""

from __future__ import annotations

import functools
import math
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.kompute import Kompute
from benchmarks.peers import Contender, Peer, UnavailableError, as_outputs
from dmlgpu import (
    ArgmaxOperatorDesc,
    AveragePooling1OperatorDesc,
    AxisDirection,
    DataType,
    LpPooling1OperatorDesc,
    MaxPooling2OperatorDesc,
    OperatorDesc,
    ReduceFunction,
    ReduceOperatorDesc,
)
from dmlgpu.descriptors.tensor import Array

_SHADERS = Path(__file__).with_name("shaders")
_GROUP_SIZE = 256
# The numbers of functions in the shaders of reductions.
_FUNCTIONS = {
    ReduceFunction.SUM: 0,
    ReduceFunction.MAX: 1,
    ReduceFunction.AVERAGE: 2,
    ReduceFunction.LOG_SUM_EXP: 3,
}


class UsualPeer(Peer):
    """Kernels for packed FLOAT32 tensors of one buffer, compiled when a benchmark runs or before, by `compile_all`."""

    name = "benchmarks/shaders"

    def __init__(self, kompute: Kompute) -> None:
        self._kompute = kompute
        self._group_size = min(_GROUP_SIZE, kompute.device.info.max_group_size)
        if not all(_module(shader).exists() for shader in _shaders()):
            _compiler()

    @property
    def description(self) -> str:
        return f"GLSL of benchmarks/shaders, workgroups of {self._group_size}"

    def contender(self, desc: OperatorDesc, *inputs: Array) -> Contender:
        self._check_tensors(desc)
        return super().contender(desc, *inputs)

    def _check_tensors(self, desc: OperatorDesc) -> None:
        tensors = (*desc.inputs, *desc.outputs)
        if {tensor.data_type for tensor in tensors} - {DataType.FLOAT32, DataType.UINT32} or not all(
            tensor.is_packed for tensor in tensors
        ):
            raise UnavailableError("the kernels need packed float32 or uint32")
        if max(tensor.size_in_bytes for tensor in tensors) > self._kompute.device.limits.segment_bytes:
            raise UnavailableError("kernels are for tensors of one buffer")

    def argmax(self, desc: ArgmaxOperatorDesc, x: Array) -> Contender:
        if desc.axis_direction is not AxisDirection.INCREASING:
            raise UnavailableError("kernels take the first of equal elements")
        return self._over_axes(desc, x, "argmax")

    def reduce(self, desc: ReduceOperatorDesc, x: Array) -> Contender:
        return self._over_axes(desc, x, "reduce", self._function(_FUNCTIONS, desc))

    def _over_axes(
        self, desc: ArgmaxOperatorDesc | ReduceOperatorDesc, x: Array, shader: str, *constants: int
    ) -> Contender:
        sizes, axes = desc.input_tensor.sizes, desc.axes
        if axes != tuple(range(axes[0], axes[-1] + 1)):
            raise UnavailableError("kernels reduce neighbouring axes")
        outputs = desc.output_tensor.element_count
        length, inner = math.prod(sizes[axes[0] : axes[-1] + 1]), math.prod(sizes[axes[-1] + 1 :])
        if inner == 1:
            self._check_loop(math.ceil(length / self._group_size))
            return self._contender(desc, x, f"{shader}_rows.comp", outputs, constants, [outputs, length])
        self._check_loop(length)
        groups = math.ceil(outputs / self._group_size)
        return self._contender(desc, x, f"{shader}.comp", groups, constants, [outputs, length, inner])

    def max_pooling(self, desc: MaxPooling2OperatorDesc, x: Array) -> Contender:
        return self._over_windows(desc, x, "max_pooling.comp", desc.output_indices_tensor is not None)

    def average_pooling(self, desc: AveragePooling1OperatorDesc, x: Array) -> Contender:
        if desc.include_padding:
            raise UnavailableError("kernels divide by the number of elements in the input")
        return self._over_windows(desc, x, "sum_pooling.comp", False)

    def lp_pooling(self, desc: LpPooling1OperatorDesc, x: Array) -> Contender:
        if desc.p != 2:
            raise UnavailableError("kernels have p = 2")
        return self._over_windows(desc, x, "sum_pooling.comp", True)

    def _over_windows(
        self,
        desc: MaxPooling2OperatorDesc | AveragePooling1OperatorDesc | LpPooling1OperatorDesc,
        x: Array,
        shader: str,
        constant: bool,
    ) -> Contender:
        self._check_loop(math.prod(desc.window_size))
        source, target = desc.input_tensor.sizes[2:], desc.output_tensor.sizes[2:]
        fields = (
            (source, 1),
            (target, 1),
            (desc.window_size, 1),
            (desc.strides, 1),
            (desc.start_padding, 0),
            (desc.dilations, 1),
        )
        # A plane is a volume of depth 1.
        volumes = [(*(filler,) * (3 - len(values)), *values) for values, filler in fields]
        outputs = desc.output_tensor.element_count
        push = [outputs, *(value for volume in volumes for value in volume)]
        return self._contender(desc, x, shader, math.ceil(outputs / self._group_size), [constant], push)

    @staticmethod
    def _check_loop(iterations: int) -> None:
        if iterations >= 65_535:
            raise UnavailableError("more iterations than llvmpipe does")

    def _contender(
        self, desc: OperatorDesc, x: Array, shader: str, groups: int, constants: Sequence[int], push: Sequence[int]
    ) -> Contender:
        kompute = self._kompute
        # Several rows of workgroups if they exceed the maximum of a row.
        columns = min(groups, kompute.device.info.max_group_count)
        targets = [kompute.upload(np.zeros(tensor.sizes, tensor.data_type.numpy)) for tensor in desc.outputs]
        unused = [kompute.upload(np.zeros(1, np.uint32))] if len(targets) == 1 else []
        submission = kompute.dispatch(
            _load(_SHADERS / shader),
            (columns, math.ceil(groups / columns), 1),
            [self._group_size, *constants],
            push,
            [kompute.upload(x), *targets, *unused],
        )

        def outputs(_: Any) -> tuple[Array, ...]:
            arrays = (
                kompute.download(target, tensor.data_type.numpy)
                for target, tensor in zip(targets, desc.outputs, strict=True)
            )
            return as_outputs(desc, *arrays)

        return Contender(submission.eval, outputs)


def compile_all(folder: Path) -> None:
    """Writes the kernels' modules to a folder: next to their sources, a machine without a compiler uses them."""
    for shader in _shaders():
        _compile(shader, _module(folder / shader.name))


def _shaders() -> list[Path]:
    return sorted(_SHADERS.glob("*.comp"))


def _module(shader: Path) -> Path:
    return shader.with_suffix(".spv")


@functools.cache
def _load(shader: Path) -> bytes:
    if _module(shader).exists():
        return _module(shader).read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        module = Path(folder, "module.spv")
        _compile(shader, module)
        return module.read_bytes()


def _compile(shader: Path, module: Path) -> None:
    options = ["--quiet", "--target-env", "vulkan1.1", "-o", str(module)]
    subprocess.run([_compiler(), *options, str(shader)], check=True, stdout=subprocess.DEVNULL)


def _compiler() -> str:
    path = shutil.which("glslangValidator") or shutil.which("glslang")
    if path is None:
        raise UnavailableError("glslangValidator is not installed")
    return path
