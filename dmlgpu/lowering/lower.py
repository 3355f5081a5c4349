"""Lowers operators: from a descriptor and a device's limits to a plan."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from dmlgpu.descriptors.operator import ExecutionFlags, OperatorDesc
from dmlgpu.descriptors.tensor import TensorDesc
from dmlgpu.errors import DescriptorError, shown
from dmlgpu.lowering.accumulators import ExactSum
from dmlgpu.lowering.kernels.axes import Columns, Reduce, Rows
from dmlgpu.lowering.kernels.combine import COMBINE
from dmlgpu.lowering.kernels.exact import ExactColumns, ExactPoolDirect, ExactPoolSmall, ExactReduce, ExactRows
from dmlgpu.lowering.kernels.kernel import Kernel
from dmlgpu.lowering.kernels.pool_backward import PoolBackward
from dmlgpu.lowering.kernels.pool_backward_separable import PoolBackwardSeparable
from dmlgpu.lowering.kernels.pool_backward_small import PoolBackwardSmall
from dmlgpu.lowering.kernels.pool_direct import PoolDirect
from dmlgpu.lowering.kernels.pool_separable import PoolSeparable
from dmlgpu.lowering.kernels.pool_small import PoolSmall
from dmlgpu.lowering.kernels.requantize import Requantize
from dmlgpu.lowering.kernels.roi_pool import RoiPool
from dmlgpu.lowering.kernels.scan import Scan
from dmlgpu.lowering.kernels.scatter import Scatter
from dmlgpu.lowering.kernels.top_k import TopK
from dmlgpu.lowering.limits import Limits
from dmlgpu.lowering.plan import Dispatch, Plan
from dmlgpu.lowering.problem import (
    Axes,
    CoveringWindows,
    Lines,
    OutputTensor,
    Prefixes,
    Problem,
    Regions,
    Requantized,
    Role,
    Scattered,
    Source,
    Windows,
    problems_with,
)


def lower(
    desc: OperatorDesc,
    limits: Limits,
    kernel: str | None = None,
    flags: ExecutionFlags = ExecutionFlags.NONE,
    memory: tuple[int, ...] = (),
) -> Plan:
    """The plan of an operator on a device with these limits.

    Args:
        desc: the operator.
        limits: the device's limits.
        kernel: name of the kernel that reads the input; None: the first one of KERNELS that fits.
        flags: the execution flags.
        memory: bytes of a full segment of each input and output; empty: each has newly allocated memory.

    Raises:
        DescriptorError: the operator cannot be computed by the requested kernel, with these flags, or within the
            limits.
    """
    problems = problems_with(desc, flags)
    memory = memory or tuple(map(limits.full_segment, (*desc.inputs, *desc.outputs)))
    problems = _in_memory(desc, problems, limits, memory)
    temporaries = _temporaries(problems)
    kernels, passed_over = _kernels(desc, problems, limits, kernel, len(temporaries))
    plan_limits = limits.of_plan(sum([one.elements for one in kernels]))
    if plan_limits != limits:
        # `of_plan` adds workgroups: tiles are smaller, and another kernel may be the first that fits.
        kernels, passed_over = _kernels(desc, problems, plan_limits, kernel, len(temporaries))
    elements = sum([one.elements for one in kernels])
    dispatches, partial_bytes = _dispatches(desc, kernels, plan_limits, elements)
    _check_loads(desc, dispatches, plan_limits)
    temporaries += sum([one.temporaries for one in kernels], ())
    variants = [*dict.fromkeys([dispatch.shader.variant for dispatch in dispatches])]
    choice = _kernel_choice(kernels, passed_over, variants)
    return Plan(desc, flags, plan_limits, dispatches, elements, memory, temporaries, partial_bytes, choice)


def _in_memory(
    desc: OperatorDesc, problems: Sequence[Problem], limits: Limits, memory: tuple[int, ...]
) -> tuple[Problem, ...]:
    """The problems, with the segment size of each tensor: from `memory`, or for temporaries that of new memory."""
    first = {Role.INPUT: 0, Role.OUTPUT: len(desc.inputs)}

    def segment_size(operand: Source | OutputTensor) -> int:
        role, tensor = operand.role, operand.tensor
        full = memory[first[role] + operand.number] if role in first else limits.full_segment(tensor)
        return full * 8 // tensor.data_type.bits

    return tuple([problem.in_memory(segment_size) for problem in problems])


def _temporaries(problems: Sequence[Problem]) -> tuple[TensorDesc, ...]:
    """The tensors that one problem writes for another, ordered by number."""
    between = [output for problem in problems for output in problem.outputs if output.role is Role.TEMPORARY]
    return tuple([output.tensor for output in sorted(between, key=lambda output: output.number)])


# Choose

# Kernels by domain, in the order in which they are tried; the last one fits every problem.
KERNELS: dict[type, tuple[type[Kernel], ...]] = {
    Axes: (Rows, Columns, Reduce),
    Windows: (PoolSmall, PoolSeparable, PoolDirect),
    CoveringWindows: (PoolBackwardSmall, PoolBackwardSeparable, PoolBackward),
    Scattered: (Scatter,),
    Regions: (RoiPool,),
    Lines: (TopK,),
    Requantized: (Requantize,),
    Prefixes: (Scan,),
}
# Kernels of exact sums.
_EXACT: dict[type, tuple[type[Kernel], ...]] = {
    Axes: (ExactRows, ExactColumns, ExactReduce),
    Windows: (ExactPoolSmall, ExactPoolDirect),
    Prefixes: (Scan,),
}

# What each variant of a kernel does: a variant is a shader that the kernel may choose.
DESCRIPTIONS: dict[str, str] = COMBINE | {
    name: text
    for kernels in (*_EXACT.values(), *KERNELS.values())
    for kernel in kernels
    for name, text in kernel.variants.items()
}


def _kinds(problem: Problem) -> tuple[type[Kernel], ...]:
    """The classes of kernels for a problem, in the order in which they are tried."""
    kinds = _EXACT if isinstance(problem.accumulator, ExactSum) else KERNELS
    return kinds[type(problem.domain)]


def _kernels(
    desc: OperatorDesc, problems: Sequence[Problem], limits: Limits, requested: str | None, first_temporary: int
) -> tuple[list[Kernel], dict[str, str]]:
    """The kernels of all problems, and why others were passed over."""
    kinds = [_kinds(problem) for problem in problems]
    known = {kind.name for kind in itertools.chain(*kinds)}
    kernels, passed_over = [], dict[str, str]()
    for problem, of_problem in zip(problems, kinds, strict=True):
        candidates = [kind(problem, limits, first_temporary) for kind in of_problem]
        is_for_another = requested in known.difference([kind.name for kind in of_problem])
        kernel, why_not = _kernel(desc, candidates, None if is_for_another else requested)
        kernels.append(kernel)
        passed_over |= why_not
    if sum([bool(kernel.temporaries) for kernel in kernels]) > 1:
        raise NotImplementedError("temporaries of two kernels would have the same numbers")
    return kernels, passed_over


def _kernel(desc: OperatorDesc, candidates: Sequence[Kernel], requested: str | None) -> tuple[Kernel, dict[str, str]]:
    """The kernel that computes a problem, the requested one or the first that fits; and why others were passed over."""
    passed_over: dict[str, str] = {}
    for kernel in candidates:
        why_not = kernel.why_impossible or (kernel.why_slow if requested is None else "")
        if not why_not and requested in (None, kernel.name):
            return kernel, passed_over
        passed_over[kernel.name] = why_not or f"{requested} was requested"
    allowed = [kernel.name for kernel in candidates if not kernel.why_impossible]
    why = f", because {passed_over[requested]}" if requested in passed_over else ""
    raise DescriptorError(
        f"{type(desc).__name__}: kernel {shown(requested)} cannot compute it{why}; allowed are {', '.join(allowed)}"
    )


def _kernel_choice(kernels: Sequence[Kernel], passed_over: dict[str, str], variants: Sequence[str]) -> tuple[str, ...]:
    """`Plan.kernel_choice` of a plan with dispatches of these variants."""
    unused = [one.name for one in kernels if not one.variants.keys() & variants]
    why_not = passed_over | dict.fromkeys(unused, "it suits no part of the work; another kernel computes all parts")
    choice = [f"{name}: {DESCRIPTIONS[name]}" for name in variants]
    if any(isinstance(one.problem.domain, Axes) and one.problem.domain.are_windows for one in kernels):
        choice.append("as a reduction: the elements of a window are contiguous, and in no other window")
    return (*choice, *[f"not {name}: {why}" for name, why in why_not.items() if name not in variants])


# Plan dispatches, and check


def _dispatches(
    desc: OperatorDesc, kernels: Sequence[Kernel], limits: Limits, elements: int
) -> tuple[tuple[Dispatch, ...], int]:
    """The dispatches of all kernels, and the maximum of bytes of their partials."""
    planned = itertools.chain.from_iterable([kernel.dispatches() for kernel in kernels])
    too_much = elements > limits.dispatch_count * limits.dispatch_elements
    pairs = list(itertools.islice(planned, 0 if too_much else limits.dispatch_count))
    if too_much or next(planned, None):
        what = f"loads {elements} elements" if too_much else f"needs more than {limits.dispatch_count} dispatches"
        raise DescriptorError(
            f"{type(desc).__name__}: it {what}; allowed on this device are {limits.dispatch_count} dispatches of "
            f"{limits.dispatch_elements} elements; use a smaller tensor, or dmlgpu.chunked"
        )
    return tuple([dispatch for dispatch, _ in pairs]), max([size for _, size in pairs])


def _check_loads(desc: OperatorDesc, dispatches: Sequence[Dispatch], limits: Limits) -> None:
    """Raises if an invocation has more loads than the limits allow."""
    longest = max(dispatches, key=lambda dispatch: dispatch.loads)
    if longest.loads > limits.invocation_loads:
        raise DescriptorError(
            f"{type(desc).__name__}: an invocation of {longest.shader.module} has {longest.loads} loads; allowed on "
            f"this device are {limits.invocation_loads}; use a smaller tensor, or another kernel"
        )
