"""The number of loop iterations of a dispatch, by llvmpipe's counter.

llvmpipe has one counter for all loops of the invocations of a SIMD vector, and ends every loop when it is used up
(`Limits.invocation_loads`). So a long loop at the end of a module iterates as often as the counter still allows:

    main:   ... the module's code ...
            while (count < 2 * MOST) ++count     until the counter ends the loop
            least = min(least, count)            over all invocations

The loop is inserted into the installed modules, because drivers compile those.
"""

from __future__ import annotations

import functools
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from dmlgpu.lowering.plan import Dispatch
from dmlgpu.runtime import kompute_module, spirv

MOST = 65_535
# Bytes of a buffer, whatever the plan's size: llvmpipe reads 0 after its end, and writes nothing there.
_BYTES = 1 << 16

_DECLARED = """
OpDecorate %iterations_block Block
OpMemberDecorate %iterations_block 0 Offset 0
OpMemberDecorate %iterations_block 1 Offset 4
OpDecorate %iterations_buffer DescriptorSet 0
OpDecorate %iterations_buffer Binding {binding}
"""
_TYPES = """
%iterations_block = OpTypeStruct %uint %uint
%iterations_block_pointer = OpTypePointer StorageBuffer %iterations_block
%iterations_pointer = OpTypePointer StorageBuffer %uint
%iterations_buffer = OpVariable %iterations_block_pointer StorageBuffer
%iterations_0 = OpConstant %uint 0
%iterations_1 = OpConstant %uint 1
"""
_LOOP = """
%iterations_bound_at = OpAccessChain %iterations_pointer %iterations_buffer %iterations_0
%iterations_bound = OpLoad %uint %iterations_bound_at
OpBranch %iterations_head
%iterations_head = OpLabel
%iterations_count = OpPhi %uint %iterations_0 {before} %iterations_next %iterations_continue
%iterations_again = OpULessThan %bool %iterations_count %iterations_bound
OpLoopMerge %iterations_end %iterations_continue None
OpBranchConditional %iterations_again %iterations_continue %iterations_end
%iterations_continue = OpLabel
%iterations_next = OpIAdd %uint %iterations_count %iterations_1
OpBranch %iterations_head
%iterations_end = OpLabel
%iterations_least_at = OpAccessChain %iterations_pointer %iterations_buffer %iterations_1
%iterations_least = OpAtomicUMin %uint %iterations_least_at %iterations_1 %iterations_0 %iterations_count
OpReturn
"""


@functools.cache
def _counting(module: str, number: int) -> bytes:
    """A module with the loop at its end, which writes its result to binding `number`."""
    with tempfile.TemporaryDirectory() as folder:
        shipped, counting = Path(folder) / "shipped.spv", Path(folder) / "counting.spv"
        shipped.write_bytes(spirv.load(module))
        text = subprocess.run(["spirv-dis", shipped], check=True, capture_output=True, text=True).stdout
        assert text.count("OpReturn\n") == text.count("OpFunctionEnd") == 1, module
        body, _, end = text.rpartition("OpReturn\n")
        labels = re.findall(r"(%\w+) = OpLabel", body)
        head, first_type, types = body.partition(re.search(r"\n[^\n]* = OpType", body)[0])
        types, function, code = types.partition(re.search(r"\n[^\n]* = OpFunction ", types)[0])
        text = (
            "".join((head, _DECLARED.format(binding=number), first_type, types, _TYPES, function, code))
            + _LOOP.format(before=labels[-1])
            + end
        )
        subprocess.run(
            ["spirv-as", "--target-env", "vulkan1.1", "-", "-o", counting], input=text, check=True, text=True
        )
        return counting.read_bytes()


class Counter:
    """Counts on a device of llvmpipe; tensors repeat `words`, and are 0 after the first 64 KiB."""

    def __init__(self, index: int, *words: int) -> None:
        self._kp: Any = kompute_module.kompute()
        self._manager = self._kp.Manager(index)
        self._buffers = [self._buffer(_BYTES // 4, *words) for _ in range(4)]
        self._result = self._buffer(2)

    def _buffer(self, count: int, *words: int) -> Any:
        return self._manager.tensor_t(np.resize(np.array(words or (0,), np.uint32), count), self._kp.TensorTypes.host)

    def iterations(self, dispatch: Dispatch, group_count: int) -> int:
        """The maximum number of iterations of a SIMD vector."""
        buffers = len(dispatch.bindings) + dispatch.has_status
        self._result.data()[:] = 2 * MOST, 0xFFFFFFFF
        module = _counting(dispatch.shader.module, buffers)
        self._run(dispatch, group_count, module, [*self._buffers[:buffers], self._result])
        return MOST - int(self._result.data()[1])

    def reports(self, dispatch: Dispatch, group_count: int, flags: int = 0) -> bool:
        """Whether the module reports that a loop ended early: in the status; without one, in its second buffer.

        `flags`: the initial first word of the second buffer.
        """
        buffers = self._buffers[: len(dispatch.bindings)]
        status = self._result if dispatch.has_status else buffers[1]
        self._buffers[1].data()[0] = flags
        status.data()[0] &= 0xFFFFFFFD
        buffers = [self._result, *buffers] if dispatch.has_status else buffers
        self._run(dispatch, group_count, spirv.load(dispatch.shader.module), buffers)
        return bool(status.data()[0] & 2)

    def _run(self, dispatch: Dispatch, group_count: int, module: bytes, buffers: list[Any]) -> None:
        push = np.array(spirv.push_words(dispatch.shader.module, dispatch.push), np.uint32)
        constants = np.array(spirv.constant_words(dispatch.shader), np.uint32)
        algorithm = self._manager.algorithm(buffers, module, (group_count, 1, 1), constants, push)
        sequence = self._manager.sequence()
        sequence.record(self._kp.OpAlgoDispatch(algorithm, push))
        sequence.eval()
