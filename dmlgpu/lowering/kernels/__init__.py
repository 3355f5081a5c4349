"""The kernels: a file for each .comp in shaders/, and the list of them."""

from dmlgpu.lowering.kernels.columns import Columns
from dmlgpu.lowering.kernels.combine import COMBINE
from dmlgpu.lowering.kernels.gather import Gather
from dmlgpu.lowering.kernels.kernel import PlanningKernel, RangedKernel
from dmlgpu.lowering.kernels.pick import Pick
from dmlgpu.lowering.kernels.place import Place
from dmlgpu.lowering.kernels.pool import Pool
from dmlgpu.lowering.kernels.reduce import Reduce
from dmlgpu.lowering.kernels.rows import Rows
from dmlgpu.lowering.kernels.sweep import Sweeps
from dmlgpu.lowering.kernels.windows import SmallWindows
from dmlgpu.lowering.problem import Axes, CoveringWindows, Named, Numbered, Windows

# By domain, in the order in which they are tried; the last one fits every problem.
KERNELS: dict[type, tuple[type[RangedKernel] | type[PlanningKernel], ...]] = {
    Axes: (Rows, Columns, Reduce),
    Windows: (SmallWindows, Sweeps, Pool),
    CoveringWindows: (Gather,),
    Named: (Place,),
    Numbered: (Pick,),
}

# What runs, by its variant.
DESCRIPTIONS: dict[str, str] = COMBINE | {
    name: text for kernels in KERNELS.values() for kernel in kernels for name, text in kernel.variants.items()
}
