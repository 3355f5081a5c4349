"""A self-check: every operator with every type, run on a device and compared with the NumPy oracle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmlgpu.descriptors.operator import ExecutionFlags, OperatorDesc
from dmlgpu.descriptors.tensor import Array, TensorDesc
from dmlgpu.errors import VerificationError
from dmlgpu.functions import verify
from dmlgpu.lowering.problem import sums_can_be_exact
from dmlgpu.reference.bounds import is_exact
from dmlgpu.runtime.device import Device
from dmlgpu.tools.registry import OPERATORS, inputs_of


@dataclass(frozen=True)
class Check:
    """An operator, its flags and kernel, and the kind of values of its inputs."""

    operator: str
    desc: OperatorDesc
    flags: ExecutionFlags
    values: str

    def run(self, device: Device) -> VerificationError | None:
        """Runs the operator, and compares its outputs with the oracle's; None: they agree."""
        try:
            inputs = inputs_of(self.desc, lambda tensor: values(tensor, self.values))
            verify(self.desc, *inputs, flags=self.flags, device=device)
        except VerificationError as error:
            return error
        return None


def checks() -> tuple[Check, ...]:
    """All checks, operator by operator."""
    return tuple(
        Check(operator.name, desc, flags, values)
        for operator in OPERATORS
        for desc in operator.descs()
        for flags in _flags(desc)
        for values in _kinds(desc, flags)
    )


def _flags(desc: OperatorDesc) -> Iterator[ExecutionFlags]:
    yield ExecutionFlags.NONE
    if sums_can_be_exact(desc):
        yield ExecutionFlags.EXACT_SUMS


def _kinds(desc: OperatorDesc, flags: ExecutionFlags = ExecutionFlags.NONE) -> tuple[str, ...]:
    if not is_exact(desc, flags):
        return ("small integers", "normal", "few extremes")
    is_float = desc.inputs[0].data_type.numpy.kind == "f"
    return ("ties", "any bits", "few NaN") if is_float else ("ties", "any bits")


def values(tensor: TensorDesc, kind: str) -> Array:
    """An array for a tensor, of one of the kinds in `_kinds`; the same in every run."""
    dtype, rng = tensor.data_type.numpy, np.random.default_rng(0)
    sizes = tuple(1 if stride == 0 else size for size, stride in zip(tensor.sizes, tensor.element_strides, strict=True))
    if kind == "any bits":
        count = np.empty(sizes, dtype).nbytes
        x = rng.integers(0, 256, count, np.uint8).view(dtype).reshape(sizes)
    elif kind == "small integers":
        # Sums of these have no rounding errors: no bound hides a missing element.
        x = rng.integers(-8, 9, sizes).astype(dtype)
    elif kind in ("normal", "few extremes"):
        x = rng.standard_normal(sizes).astype(dtype)
    else:
        x = rng.choice(_extremes(dtype), sizes)
    if kind == "few NaN" and dtype.kind == "f":
        x[rng.random(sizes) < 0.02] = np.nan
    if kind == "few extremes":
        x = np.where(rng.random(sizes) < 0.02, rng.choice(_extremes(dtype), sizes), x)
    return np.broadcast_to(x, tensor.sizes)


def _extremes(dtype: np.dtype[Any]) -> Array:
    """Edge cases of the order: zeros, limits, infinities and their neighbours. Few, so that many elements are equal."""
    if dtype.kind == "f":
        limits = np.finfo(dtype)
        positive = np.array([0, limits.smallest_subnormal, limits.tiny, 1, limits.max, np.inf], dtype)
        return np.concatenate([positive, -positive])
    bounds = np.iinfo(dtype)
    return np.array(sorted({bounds.min, bounds.min + 1, max(bounds.min, -1), 0, 1, bounds.max - 1, bounds.max}), dtype)
