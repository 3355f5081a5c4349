"""The kernels, and the list of them. Most have a .comp file of the same name in shaders/."""

from dmlgpu.lowering.accumulators import ExactSum
from dmlgpu.lowering.kernels.columns import Columns
from dmlgpu.lowering.kernels.combine import COMBINE
from dmlgpu.lowering.kernels.exact import ExactColumns, ExactPoolDirect, ExactPoolSmall, ExactReduce, ExactRows
from dmlgpu.lowering.kernels.kernel import Kernel
from dmlgpu.lowering.kernels.pool_backward import PoolBackward
from dmlgpu.lowering.kernels.pool_backward_separable import PoolBackwardSeparable
from dmlgpu.lowering.kernels.pool_backward_small import PoolBackwardSmall
from dmlgpu.lowering.kernels.pool_direct import PoolDirect
from dmlgpu.lowering.kernels.pool_separable import PoolSeparable
from dmlgpu.lowering.kernels.pool_small import PoolSmall
from dmlgpu.lowering.kernels.reduce import Reduce
from dmlgpu.lowering.kernels.rows import Rows
from dmlgpu.lowering.kernels.scatter import Scatter
from dmlgpu.lowering.kernels.top_k import TopK
from dmlgpu.lowering.problem import Axes, CoveringWindows, Lines, Problem, Scattered, Windows

# By domain, in the order in which they are tried; the last one fits every problem.
KERNELS: dict[type, tuple[type[Kernel], ...]] = {
    Axes: (Rows, Columns, Reduce),
    Windows: (PoolSmall, PoolSeparable, PoolDirect),
    CoveringWindows: (PoolBackwardSmall, PoolBackwardSeparable, PoolBackward),
    Scattered: (Scatter,),
    Lines: (TopK,),
}
# Of exact sums.
_EXACT: dict[type, tuple[type[Kernel], ...]] = {
    Axes: (ExactRows, ExactColumns, ExactReduce),
    Windows: (ExactPoolSmall, ExactPoolDirect),
}


def kernels_of(problem: Problem) -> tuple[type[Kernel], ...]:
    """The kernels for a problem."""
    return (_EXACT if isinstance(problem.accumulator, ExactSum) else KERNELS)[type(problem.domain)]


# What runs, by its variant.
DESCRIPTIONS: dict[str, str] = COMBINE | {
    name: text for kernels in KERNELS.values() for kernel in kernels for name, text in kernel.variants.items()
}
