"""When outputs agree with the oracle's: verification, the self-check, the demo and the benchmarks all ask here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from dmlgpu.descriptors.arrays import Array
from dmlgpu.descriptors.operator import OperatorDesc
from dmlgpu.descriptors.words import bits
from dmlgpu.errors import VerificationError
from dmlgpu.lowering.plan import Plan
from dmlgpu.reference import reference


def differences(desc: OperatorDesc, outputs: Iterable[Array], expected: Iterable[Array]) -> Iterator[tuple[int, str]]:
    """Compares the outputs of an operator with those that are expected of it.

    An output agrees if it has the sizes, the type and, in every element, the bits of the expected one.

    Args:
        desc: the operator.
        outputs: one array for each output tensor.
        expected: the oracle's, or those of whatever else is known to be right.

    Yields:
        For each output that does not agree its number, and a text that names its field and says how it differs.
    """
    fields = [field for field in desc.output_fields if getattr(desc, field) is not None]
    for number, (field, got, wanted) in enumerate(zip(fields, outputs, expected, strict=True)):
        where = f"{type(desc).__name__}.{field}"
        if got.shape != wanted.shape:
            yield number, f"{where}: sizes are {got.shape}, the reference has {wanted.shape}"
        elif got.dtype != wanted.dtype:
            yield number, f"{where}: type is {got.dtype}, the reference has {wanted.dtype}"
        elif (different := bits(got) != bits(wanted)).any():
            first = tuple(int(i) for i in np.unravel_index(int(different.argmax()), different.shape))
            yield (
                number,
                f"{where}: {np.count_nonzero(different)} of {different.size} elements differ, the first at {first}: "
                f"the device gives {got[first]!r}, the reference {wanted[first]!r}",
            )


def check_outputs(plan: Plan, inputs: tuple[Array, ...], outputs: tuple[Array, ...]) -> None:
    """Compares outputs with the oracle's.

    Raises:
        VerificationError: with the output, the first differing coordinates, both values and the plan.
    """
    for _, text in differences(plan.desc, outputs, reference(plan.desc, *inputs)):
        raise VerificationError(f"{text}\n{plan}")
