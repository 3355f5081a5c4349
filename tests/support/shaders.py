"""The sources of the shaders, and the program that compiles them."""

import importlib.util
import re
import sys

from dmlgpu.runtime import spirv
from tests.support.processes import ROOT

SHADERS = ROOT / "shaders"
SOURCES = {
    path.relative_to(SHADERS).as_posix(): path.read_text()
    for path in SHADERS.rglob("*.*")
    if path.suffix in (".comp", ".glsl")
}

specification = importlib.util.spec_from_file_location("shaders_build", SHADERS / "build.py")
assert specification is not None
assert specification.loader is not None
build = importlib.util.module_from_spec(specification)
sys.modules[specification.name] = build
specification.loader.exec_module(build)


def variants(prefix: str) -> dict[str, list[str]]:
    """The entry point and the definitions of every variant."""
    lines = re.findall(rf"^set\({prefix}_(\w+) (.*)\)$", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE)
    return {name: words.split() for name, words in lines}


VARIANTS = variants("variant")
EXACT_VARIANTS = {**VARIANTS, **variants("exact")}


def entry_point(module: str) -> str:
    variant, accumulator, _ = module.rsplit("_", 2)
    return (EXACT_VARIANTS if accumulator in ("exact", "squares") else VARIANTS)[variant][0]


# The entry point of every module.
MODULES = {module: entry_point(module) for module in spirv.layouts()}
