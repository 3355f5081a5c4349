"""How every operator runs: from a descriptor and a device's limits to a plan."""

from __future__ import annotations

from dmlgpu.descriptors.operator import OperatorDesc
from dmlgpu.errors import DescriptorError, shown
from dmlgpu.lowering.kernels import DESCRIPTIONS, KERNELS
from dmlgpu.lowering.kernels.combine import combine
from dmlgpu.lowering.kernels.kernel import InPlace, PlanningKernel, RangedKernel, Records
from dmlgpu.lowering.limits import Limits
from dmlgpu.lowering.plan import Dispatch, Plan
from dmlgpu.lowering.problem import Problem, Role, problems_of
from dmlgpu.lowering.split import ranges


def lower(desc: OperatorDesc, limits: Limits, kernel: str | None = None) -> Plan:
    """The plan of an operator on a device of these limits.

    Args:
        desc: the operator.
        limits: those of the device.
        kernel: the kernel of the first pass, by name; None: the first of the list that fits.

    Raises:
        DescriptorError: the operator cannot be computed by the kernel that is asked for.
    """
    problems = problems_of(desc.canonical())
    dispatches: list[Dispatch] = []
    work = records_bytes = 0
    partials: tuple[int, ...] = ()
    passed_over: dict[str, str] = {}
    for problem in problems:
        # Of several problems each has kernels of its own.
        others = {kind.name for other in problems if other is not problem for kind in KERNELS[type(other.domain)]}
        chosen, not_chosen = _choose(desc, problem, limits, None if kernel in others else kernel)
        passed_over |= not_chosen
        work += chosen.work
        if isinstance(chosen, RangedKernel):
            computed, size = _dispatches(problem, chosen)
            dispatches += computed
            records_bytes = max(records_bytes, size)
        else:
            dispatches += chosen.dispatches()
            partials = partials or chosen.partials
    kernels = dict.fromkeys(dispatch.shader.variant for dispatch in dispatches)
    taken = (f"{name}: {DESCRIPTIONS[name]}" for name in kernels)
    not_taken = (f"not {name}: {why}" for name, why in passed_over.items() if name not in kernels)
    between = (output for problem in problems for output in problem.outputs if output.role is Role.INTERMEDIATE)
    intermediates = tuple(output.tensor for output in sorted(between, key=lambda output: output.number))
    return Plan(desc, limits, tuple(dispatches), work, intermediates, partials, records_bytes, (*taken, *not_taken))


def _dispatches(problem: Problem, kernel: RangedKernel) -> tuple[list[Dispatch], int]:
    """What computes a problem, and the bytes that its records take."""
    dispatches: list[Dispatch] = []
    records_bytes = 0
    for outputs in ranges(kernel):
        pieces = kernel.pieces(outputs.begin, outputs.end)
        if outputs.in_place:
            dispatches.append(kernel.dispatch(outputs.begin, outputs.end, pieces[0], InPlace()))
            continue
        records = 0
        for piece in pieces:
            dispatches.append(kernel.dispatch(outputs.begin, outputs.end, piece, Records(records)))
            records += piece.records
        dispatches += combine(problem, kernel.limits, outputs.begin, outputs.end, records)
        records_bytes = max(records_bytes, 4 * kernel.record_words * records * (outputs.end - outputs.begin))
    return dispatches, records_bytes


def _choose(
    desc: OperatorDesc, problem: Problem, limits: Limits, wanted: str | None
) -> tuple[RangedKernel | PlanningKernel, dict[str, str]]:
    """The kernel that computes a problem, and those before it in the list, with why they do not."""
    passed_over: dict[str, str] = {}
    kernels = KERNELS[type(problem.domain)]
    for kind in kernels:
        kernel = kind(problem, limits)
        why_not = kernel.obstacle or (kernel.drawback if wanted is None else "")
        if not why_not and wanted in (None, kernel.name):
            return kernel, passed_over
        passed_over[kernel.name] = why_not or f"{wanted} is asked for"
    allowed = [kind.name for kind in kernels if not kind(problem, limits).obstacle]
    why = f", because {passed_over[wanted]}" if wanted in passed_over else ""
    raise DescriptorError(
        f"{type(desc).__name__}: kernel {shown(wanted)} cannot compute it{why}; allowed are {', '.join(allowed)}"
    )
