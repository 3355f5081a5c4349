"""The sources of the shaders, and what is compiled of them."""

import functools
import re
import struct
from collections.abc import Iterator

from dmlgpu.runtime import spirv
from tests.support.processes import ROOT

SHADERS = ROOT / "shaders"
SOURCES = {path.relative_to(SHADERS).as_posix(): path.read_text() for path in SHADERS.rglob("*.*")}


def included(name: str, accumulator: str = "selection") -> str:
    """A shader with the files that it includes."""
    name = f"accumulators/{accumulator}.glsl" if name == "accumulator.glsl" else name
    return re.sub(r'#include "(.*?)"', lambda match: included(match[1], accumulator), SOURCES[name])


# The entry point and the definitions of every variant.
VARIANTS = {
    name: words.split()
    for name, words in re.findall(r"^set\(variant_(\w+) (.*)\)$", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE)
}
# The entry point of every module.
MODULES = {module: VARIANTS[module.rsplit("_", 2)[0]][0] for module in spirv.layouts()}


# SPIR-V's numbers: of instructions, and of decorations.
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
    found = {binding for variable, binding in bindings.items() if pointees[types[variable]] not in readonly}
    return [binding in found for binding in range(max(bindings.values()) + 1)]
