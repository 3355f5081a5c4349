"""Comparison of outputs with the oracle's, for verification, test cases, the demo and the benchmarks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from dmlgpu.descriptors.operator import ExecutionFlags, OperatorDesc
from dmlgpu.descriptors.tensor import Array, bits
from dmlgpu.errors import VerificationError
from dmlgpu.lowering.plan import Plan
from dmlgpu.reference import reference
from dmlgpu.reference.bounds import bounds


def differences(
    desc: OperatorDesc,
    inputs: tuple[Array, ...],
    outputs: Iterable[Array],
    expected: Iterable[Array],
    flags: ExecutionFlags = ExecutionFlags.NONE,
) -> Iterator[tuple[int, str]]:
    """Compares the outputs of an operator with the expected ones.

    An output agrees if it has the expected sizes and type, and every element has the expected bits. If the operator has
    a bound, an element may differ from the expected element by the bound of `reference.bounds`.

    Args:
        desc: the operator.
        inputs: an array for each input tensor.
        outputs: an array for each output tensor.
        expected: the outputs of the oracle, or others that are known to be right.
        flags: as for `Device.compile`.

    Yields:
        For each output that does not agree: its number, and a text with its field and the difference.
    """
    fields = [field for field in desc.output_fields if getattr(desc, field) is not None]
    allowed = bounds(desc, *inputs, flags=flags)
    for number, (field, actual, desired, bound) in enumerate(zip(fields, outputs, expected, allowed, strict=True)):
        where = f"{type(desc).__name__}.{field}"
        if actual.shape != desired.shape:
            yield number, f"{where}: sizes are {actual.shape}, the reference has {desired.shape}"
        elif actual.dtype != desired.dtype:
            yield number, f"{where}: type is {actual.dtype}, the reference has {desired.dtype}"
        elif (wrong := different(actual, desired, bound)).any():
            first = tuple(int(i) for i in np.unravel_index(int(wrong.argmax()), wrong.shape))
            most = "" if bound is None else f", and at most {bound[first]:.3g} between them is allowed"
            yield (
                number,
                f"{where}: {np.count_nonzero(wrong)} of {wrong.size} elements differ, the first at {first}: "
                f"the device gives {actual[first]!r}, the reference {desired[first]!r}{most}",
            )


def different(a: Array, b: Array, bound: Array | None) -> Array:
    """Where elements differ: in bits; or by more than `bound` if it is not None, where NaN equals NaN, and -0 +0."""
    differ: Array
    if bound is None:
        differ = bits(a) != bits(b)
    else:
        with np.errstate(invalid="ignore"):
            distance = np.abs(a.astype(np.float64) - b)
        differ = ~((a == b) | (np.isnan(a) & np.isnan(b)) | (distance <= bound) | (bound == np.inf))
    return differ


def check_outputs(plan: Plan, inputs: tuple[Array, ...], outputs: tuple[Array, ...]) -> None:
    """Compares outputs with the oracle's.

    Raises:
        VerificationError: an output differs; the message has the output, the first coordinates where it differs, both
            values and the plan.
    """
    expected = reference(plan.desc, *inputs, flags=plan.flags)
    for _, text in differences(plan.desc, inputs, outputs, expected, plan.flags):
        raise VerificationError(f"{text}\n{plan}")
