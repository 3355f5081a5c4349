"""The instructions of compiled shaders."""

import functools
import struct
from collections.abc import Iterator

from dmlgpu.runtime import spirv

# SPIR-V's numbers of instructions, and of decorations.
CAPABILITY, TYPE_POINTER, VARIABLE, DECORATE, MEMBER_DECORATE = 17, 32, 59, 71, 72
NON_WRITABLE, BINDING = 24, 33


def instructions(module: str) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The number of every instruction of a module, and its operands."""
    code = spirv.load(module)
    words = struct.unpack(f"<{len(code) // 4}I", code)
    at = 5
    while at < len(words):
        end = at + (words[at] >> 16)
        yield words[at] & 0xFFFF, words[at + 1 : end]
        at = end


@functools.cache
def writable(module: str) -> list[bool]:
    """For each binding of a module: whether one of its buffers is not declared `readonly`."""
    bindings, types, pointees, readonly = {}, {}, {}, set()
    for number, operands in instructions(module):
        if number == DECORATE and operands[1] == BINDING:
            bindings[operands[0]] = operands[2]
        elif number == MEMBER_DECORATE and operands[2] == NON_WRITABLE:
            readonly.add(operands[0])
        elif number == TYPE_POINTER:
            pointees[operands[0]] = operands[2]
        elif number == VARIABLE:
            types[operands[1]] = operands[0]
    mutable = {binding for variable, binding in bindings.items() if pointees[types[variable]] not in readonly}
    return [binding in mutable for binding in range(max(bindings.values()) + 1)]
