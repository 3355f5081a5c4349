"""Peers of dmlgpu: libraries and kernels that compute the same operators."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from dmlgpu import ArgmaxOperatorDesc, OperatorDesc, ReduceFunction, ReduceOperatorDesc
from dmlgpu.descriptors.tensor import Array
from dmlgpu.registry import OPERATORS, name_of

T = TypeVar("T")


class UnavailableError(Exception):
    """A peer is not installed, or does not compute an operator; the message says why."""


@dataclass(frozen=True)
class Contender:
    """A way to compute an operator on certain inputs."""

    run: Callable[[], Any]
    """The function to time."""
    outputs: Callable[[Any], tuple[Array, ...]]
    """Converts the result of `run` to the outputs of the descriptor."""
    batch: Callable[[int], Callable[[], Any]] | None = None
    """Returns a function that runs this many calls, and waits once for their end; None if every call waits."""


# Names of functions by the descriptors that they compute.
_FUNCTIONS = {operator.desc: operator.function.__name__ for operator in OPERATORS if operator.function is not None}


class Peer:
    """A library, or kernels, that computes operators.

    A method for each operator has the name of its function, such as `max_pooling`, and returns a contender. Its
    arguments are the descriptor and the inputs; of a reduction, the descriptor, the input and one axis.

    Raises:
        UnavailableError: the library is not installed.
    """

    description: str
    """Version, and threads or GPU."""

    def contender(self, desc: OperatorDesc, *inputs: Array) -> Contender:
        """Prepares an operator, so that only the computation is timed.

        Raises:
            UnavailableError: the peer does not compute it.
        """
        method: Callable[..., Contender] | None = getattr(self, _FUNCTIONS.get(type(desc), ""), None)
        if method is None:
            raise UnavailableError(f"no {name_of(desc)}")
        if isinstance(desc, ArgmaxOperatorDesc | ReduceOperatorDesc):
            return method(desc, *_with_one_axis(desc.axes, *inputs))
        return method(desc, *inputs)


def queued(
    call: Callable[[], Any], wait: Callable[[], object], outputs: Callable[[Any], tuple[Array, ...]]
) -> Contender:
    """A contender whose calls return before the device has computed them, for which `wait` waits."""

    def batch(calls: int) -> Callable[[], Any]:
        def run() -> Any:
            for _ in range(calls):
                result = call()
            wait()
            return result

        return run

    return Contender(batch(1), outputs, batch)


def function_of(functions: Mapping[ReduceFunction, T], desc: ReduceOperatorDesc) -> T:
    """The entry for a REDUCE in a table of functions.

    Raises:
        UnavailableError: the table has none.
    """
    if desc.function not in functions:
        raise UnavailableError(f"no {name_of(desc)}")
    return functions[desc.function]


def cores() -> int:
    """Number of cores that this process may use, and of threads of each peer whose number can be set."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def first_line(error: Exception) -> str:
    """The first line of a message, which fits a table's footnote."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def _with_one_axis(axes: tuple[int, ...], x: Array) -> tuple[Array, int]:
    """The input of a reduction, and the axis to reduce: several axes become the last one."""
    if len(axes) == 1:
        return x, axes[0]
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    return x.transpose(*kept, *axes).reshape(*(x.shape[axis] for axis in kept), -1), len(kept)


def as_outputs(desc: OperatorDesc, arrays: Array | tuple[Array, ...]) -> tuple[Array, ...]:
    """One array, or several, with the sizes and types of a descriptor's outputs."""
    pairs = zip(arrays if isinstance(arrays, tuple) else (arrays,), desc.outputs, strict=True)
    return tuple(array.reshape(tensor.sizes).astype(tensor.data_type.numpy, copy=False) for array, tensor in pairs)
