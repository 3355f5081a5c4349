"""Checks what a device computed against the oracle."""

from __future__ import annotations

import numpy as np

from dmlgpu.descriptors.arrays import Array
from dmlgpu.descriptors.words import bits
from dmlgpu.errors import VerificationError
from dmlgpu.lowering.plan import Plan
from dmlgpu.reference import reference


def check_outputs(plan: Plan, inputs: tuple[Array, ...], outputs: tuple[Array, ...]) -> None:
    """Compares outputs with the oracle's, bit for bit.

    Raises:
        VerificationError: with the output, the first differing coordinates, both values and the plan.
    """
    names = [name for name in plan.desc.output_fields if getattr(plan.desc, name) is not None]
    for name, got, expected in zip(names, outputs, reference(plan.desc, *inputs), strict=True):
        where = f"{type(plan.desc).__name__}.{name}"
        if got.shape != expected.shape:
            raise VerificationError(f"{where}: sizes are {got.shape}, the reference has {expected.shape}\n{plan}")
        if got.dtype != expected.dtype:
            raise VerificationError(f"{where}: type is {got.dtype}, the reference has {expected.dtype}\n{plan}")
        different = bits(got) != bits(expected)
        if different.any():
            first = tuple(int(i) for i in np.unravel_index(int(different.argmax()), different.shape))
            raise VerificationError(
                f"{where}: {np.count_nonzero(different)} of {different.size} elements differ, the first at {first}: "
                f"the device gives {got[first]!r}, the reference {expected[first]!r}\n{plan}"
            )
