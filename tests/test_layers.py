"""Layers: imports point down, and only one module speaks to Kompute."""

import ast
from pathlib import Path

import pytest

import dmlgpu
from tests.processes import output_of

PACKAGE = Path(dmlgpu.__file__).parent
# From the bottom. A module may import those of the layers below its own.
LAYERS = [
    {"errors", "files", "geometry", "integers", "memory", "packages", "terminal"},
    {"arrays", "binding", "dtypes", "manifests", "settings", "spirv"},
    {"drivers", "log"},
    {"tensor"},
    {"words", "operators"},
    {"conventions", "reference", "plan"},
    {"first_pass", "comparison", "kompute"},
    {"reduction", "pooling"},
    {"lowering"},
    {"device"},
    {"functional"},
    {"__init__"},
    {"demo", "selfcheck"},
    {"doctor"},
    {"cli"},
    {"__main__"},
]
LAYER = {module: number for number, modules in enumerate(LAYERS) for module in modules}
MODULES = sorted(path.stem for path in PACKAGE.glob("*.py"))


def imports(module: str) -> set[str]:
    """All that a module imports, anywhere in it; modules of dmlgpu by their names."""
    found = set()
    for node in ast.walk(ast.parse((PACKAGE / f"{module}.py").read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            if node.module == "dmlgpu":
                found |= {a.name if (PACKAGE / f"{a.name}.py").exists() else "__init__" for a in node.names}
            else:
                found.add(node.module)
    return {name.removeprefix("dmlgpu.") if name != "dmlgpu" else "__init__" for name in found}


def imports_deep(module: str) -> set[str]:
    """The modules of dmlgpu that a module needs."""
    found: set[str] = set()
    waiting = {module}
    while waiting:
        new = imports(waiting.pop()) & set(MODULES) - found
        found |= new
        waiting |= new
    return found


def test_every_module_has_a_layer():
    assert set(LAYER) == set(MODULES)


def test_imports_point_down():
    for module in MODULES:
        assert [name for name in imports(module) & set(MODULES) if LAYER[name] >= LAYER[module]] == []


@pytest.mark.parametrize(("library", "module"), [("kp", "binding"), ("dmlgpu_kp", "binding"), ("vulkan", "drivers")])
def test_only_one_module_imports(library, module):
    assert [name for name in MODULES if library in {i.split(".")[0] for i in imports(name)}] == [module]


def test_the_oracle_and_the_lowering_know_nothing_of_each_other():
    assert not imports_deep("reference") & {"geometry", "plan", "lowering", "words", "kompute", "device"}
    assert not imports_deep("lowering") & {"reference", "comparison"}


def test_plans_are_made_without_kompute_and_vulkan():
    program = """
import sys
sys.modules["kp"] = sys.modules["dmlgpu_kp"] = sys.modules["vulkan"] = None
import dmlgpu
from dmlgpu.lowering import lower
from dmlgpu.plan import Limits
from tests.cases import DOCUMENTED
for case in DOCUMENTED:
    assert lower(case.desc, Limits(256, 32, 3)).dispatches
    assert dmlgpu.reference(case.desc, *case.inputs())[0].tolist() == case.expected[0]
print("done")
"""
    assert output_of(program) == "done\n"
