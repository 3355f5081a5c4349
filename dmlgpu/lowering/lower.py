"""How every operator runs: from a descriptor and a device's limits to a plan."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from dmlgpu.descriptors.operator import OperatorDesc
from dmlgpu.errors import DescriptorError, shown
from dmlgpu.lowering.geometry import power_of_2
from dmlgpu.lowering.kernels import DESCRIPTIONS, KERNELS
from dmlgpu.lowering.kernels.combine import combine, state_count
from dmlgpu.lowering.kernels.kernel import InPlace, Piece, PlanningKernel, RangedKernel, States, Target
from dmlgpu.lowering.limits import Limits
from dmlgpu.lowering.plan import Dispatch, Plan
from dmlgpu.lowering.problem import Problem, Role, problems_of
from dmlgpu.lowering.split import Range, ranges


def lower(desc: OperatorDesc, limits: Limits, kernel: str | None = None) -> Plan:
    """The plan of an operator on a device of these limits.

    Args:
        desc: the operator.
        limits: those of the device.
        kernel: the kernel of the first pass, by name; None: the first of the list that fits.

    Raises:
        DescriptorError: the operator cannot be computed by the kernel that is asked for, or not within the limits.
    """
    problems = problems_of(desc.canonical())
    kernels: list[RangedKernel | PlanningKernel] = []
    passed_over: dict[str, str] = {}
    for problem in problems:
        # Of several problems each has kernels of its own.
        others = {kind.name for other in problems if other is not problem for kind in KERNELS[type(other.domain)]}
        chosen, not_chosen = _choose(desc, problem, limits, None if kernel in others else kernel)
        kernels.append(chosen)
        passed_over |= not_chosen
    limits = _widened(limits, sum(kernel.loads for kernel in kernels))
    kernels = [replace(kernel, limits=limits) for kernel in kernels]
    work = sum(kernel.work for kernel in kernels)
    steps = itertools.chain.from_iterable(map(_steps, kernels))
    too_much = work > limits.dispatch_count * limits.dispatch_elements
    planned = list(itertools.islice(steps, 0 if too_much else limits.dispatch_count))
    if too_much or next(steps, None):
        raise DescriptorError(
            f"{type(desc).__name__}: it looks at {work} elements, which takes more than {limits.dispatch_count} "
            f"dispatches; allowed is what takes so many, each of {limits.dispatch_elements} elements at most"
        )
    dispatches = tuple(dispatch for dispatch, _ in planned)
    longest = max(dispatches, key=lambda dispatch: dispatch.loads)
    if longest.loads > limits.invocation_loads:
        raise DescriptorError(
            f"{type(desc).__name__}: an invocation of {longest.shader.module} has {longest.loads} loads; allowed on "
            f"this device are {limits.invocation_loads}"
        )
    names = dict.fromkeys(dispatch.shader.variant for dispatch in dispatches)
    taken = (f"{name}: {DESCRIPTIONS[name]}" for name in names)
    not_taken = (f"not {name}: {why}" for name, why in passed_over.items() if name not in names)
    between = (output for problem in problems for output in problem.outputs if output.role is Role.INTERMEDIATE)
    of_problems = tuple(output.tensor for output in sorted(between, key=lambda output: output.number))
    of_kernels = [kernel.intermediates for kernel in kernels if isinstance(kernel, PlanningKernel)]
    if sum(map(bool, of_kernels)) > 1:
        raise NotImplementedError("intermediates of two kernels would have the same numbers")
    state_bytes = max(size for _, size in planned)
    return Plan(desc, limits, dispatches, work, of_problems + sum(of_kernels, ()), state_bytes, (*taken, *not_taken))


# No watchdog resets a CPU: where a plan would need more than 1/_MANY of the dispatches that it may have, they become up
# to _LONGER times longer; where it would need _FEW or more, they have up to _WIDER times as many workgroups, so that
# loops stay short. Every device allows _GROUPS workgroups.
_MANY, _FEW = 8, 16
_LONGER, _WIDER, _GROUPS = 64, 8, (1 << 16) - 1


def _widened(limits: Limits, loads: int) -> Limits:
    """The limits for a plan with so many loads in all."""
    dispatches = loads // limits.dispatch_elements
    if limits.cooperating or dispatches < _FEW:
        return limits
    longer = min(_LONGER, power_of_2(dispatches * _MANY // limits.dispatch_count))
    return replace(
        limits,
        group_count=max(limits.group_count, min(_WIDER * longer * limits.group_count, _GROUPS)),
        dispatch_elements=longer * limits.dispatch_elements,
        least_loads=longer * limits.least_loads,
    )


def _steps(kernel: RangedKernel | PlanningKernel) -> Iterator[tuple[Dispatch, int]]:
    """The dispatches of a kernel, each with the bytes of the states of its range."""
    if isinstance(kernel, PlanningKernel):
        yield from ((dispatch, 0) for dispatch in kernel.dispatches())
        return
    general = KERNELS[type(kernel.problem.domain)][-1](kernel.problem, kernel.limits)
    assert isinstance(general, RangedKernel)

    def dispatch_of(outputs: Range, piece: Piece, target: Target) -> Dispatch:
        covered = kernel.covers(outputs.begin, outputs.end, piece, target)
        return (kernel if covered else general).dispatch(outputs.begin, outputs.end, piece, target)

    for outputs in ranges(kernel):
        if outputs.in_place:
            yield dispatch_of(outputs, outputs.pieces[0], InPlace()), 0
            continue
        count, first = outputs.end - outputs.begin, 0
        size = 4 * kernel.state_words * state_count(kernel.limits, outputs.states) * count
        for piece in outputs.pieces:
            for part in kernel.cut(count, piece):
                yield dispatch_of(outputs, part, States(first)), size
                first += part.states
        for dispatch in combine(kernel.problem, kernel.limits, outputs.begin, outputs.end, outputs.states):
            yield dispatch, size


def _choose(
    desc: OperatorDesc, problem: Problem, limits: Limits, wanted: str | None
) -> tuple[RangedKernel | PlanningKernel, dict[str, str]]:
    """The kernel that computes a problem, and why those before it in the list do not."""
    passed_over: dict[str, str] = {}
    kernels = KERNELS[type(problem.domain)]
    for kind in kernels:
        kernel = kind(problem, limits)
        why_not = kernel.why_impossible or (kernel.why_slow if wanted is None else "")
        if not why_not and wanted in (None, kernel.name):
            return kernel, passed_over
        passed_over[kernel.name] = why_not or f"{wanted} is asked for"
    allowed = [kind.name for kind in kernels if not kind(problem, limits).why_impossible]
    why = f", because {passed_over[wanted]}" if wanted in passed_over else ""
    raise DescriptorError(
        f"{type(desc).__name__}: kernel {shown(wanted)} cannot compute it{why}; allowed are {', '.join(allowed)}"
    )
