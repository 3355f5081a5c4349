"""dmlgpu's exact sums, compared with sums within a bound."""

from __future__ import annotations

import dmlgpu
from benchmarks.kompute import Kompute
from benchmarks.peers import Contender, Peer, UnavailableError
from dmlgpu.descriptors.tensor import Array
from dmlgpu.lowering.problem import sums_can_be_exact


class ExactPeer(Peer):
    """The same operator with EXACT_SUMS, on the same device, between device tensors."""

    def __init__(self, kompute: Kompute) -> None:
        self._device = kompute.device
        self.description = f"dmlgpu {dmlgpu.__version__}"

    def contender(self, desc: dmlgpu.OperatorDesc, *inputs: Array) -> Contender:
        if not sums_can_be_exact(desc):
            raise UnavailableError("not a sum of floats with an exact variant")
        op = self._device.compile(desc, flags=dmlgpu.ExecutionFlags.EXACT_SUMS)
        sources = [self._device.tensor(x, tensor) for x, tensor in zip(inputs, desc.inputs, strict=True)]
        out = op(*sources)
        return Contender(lambda: op(*sources, out=out), lambda tensor: (tensor.numpy(),))
