"""The sources of the shaders."""

import re

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
