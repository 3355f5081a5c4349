"""Layers: imports point down, and only one module speaks to Kompute."""

import ast
import functools
import re
import sys
from pathlib import Path

import pytest

import dmlgpu
from tests.support.processes import ROOT, output_of

PACKAGE = Path(dmlgpu.__file__).parent
# From the bottom: modules, and folders with all their modules except `__main__`. A module may import modules of lower
# layers, and modules of its folder that do not need it.
LAYERS = [
    {"errors", "files"},
    {"descriptors"},
    {"reference", "lowering"},
    {"call", "comparison"},
    {"runtime"},
    {"sources"},
    {"chunks", "functions"},
    {"interop", "registry"},
    {"__init__"},
    {"testing"},
    {"tools"},
    {"__main__"},
]
LAYER = {name: number for number, names in enumerate(LAYERS) for name in names}


def name_of(path: Path) -> str:
    """The name of a module without `dmlgpu.`: `runtime.device`, or `runtime` for its `__init__.py`."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in PACKAGE.rglob("*.py")}


@functools.cache
def imports(module: str) -> set[str]:
    """The modules that a module imports, also in functions."""
    names = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                names.add(whole if whole.removeprefix("dmlgpu.") in MODULES else node.module)
    return {"__init__" if name == "dmlgpu" else name.removeprefix("dmlgpu.") for name in names}


def imports_deep(module: str) -> set[str]:
    """The modules of dmlgpu that a module needs, directly or through others."""
    needed: set[str] = set()
    waiting = {module}
    while waiting:
        new = imports(waiting.pop()) & set(MODULES) - needed
        needed |= new
        waiting |= new
    return needed


def folder(module: str) -> str:
    return "__main__" if module.endswith("__main__") else module.partition(".")[0]


def test_every_module_has_a_layer():
    assert set(LAYER) == set(map(folder, MODULES))


def test_imports_point_down():
    for module in MODULES:
        others = [name for name in imports(module) & set(MODULES) if folder(name) != folder(module)]
        assert [name for name in others if LAYER[folder(name)] >= LAYER[folder(module)]] == [], module


def test_no_module_needs_itself():
    assert [module for module in MODULES if module in imports_deep(module)] == []


def test_no_test_imports_another():
    """Shared code is in tests/support."""
    importing = re.compile(r"^ *(?:from|import) tests\.(?:host|device|process)\b", re.MULTILINE)
    assert [path for path in (ROOT / "tests").rglob("*.py") if importing.search(path.read_text())] == []


@pytest.mark.parametrize(
    ("library", "module"),
    [("kp", "runtime.kompute_module"), ("dmlgpu_kp", "runtime.kompute_module"), ("vulkan", "runtime.drivers")],
)
def test_only_one_module_imports_kompute_and_vulkan(library, module):
    assert [name for name in MODULES if library in {i.split(".")[0] for i in imports(name)}] == [module]


def test_the_schedule_imports_only_the_standard_library():
    assert {name.split(".")[0] for name in imports("runtime.schedule")} <= set(sys.stdlib_module_names)


@pytest.mark.parametrize(("module", "name"), [("reference", "reference"), ("lowering.lower", "lowering")])
def test_the_oracle_and_the_lowering_are_independent(module, name):
    assert {folder(needed) for needed in imports_deep(module)} == {name, "descriptors", "errors"}


def test_the_runtime_uses_the_oracle_only_to_verify():
    runtime = [name for name in MODULES if folder(name) == "runtime"]
    assert [name for name in runtime if "comparison" in imports(name)] == ["runtime.compiled"]
    assert not any(folder(needed) == "reference" for name in runtime for needed in imports(name))


def test_plans_and_the_oracle_need_neither_kompute_nor_vulkan():
    program = """
import sys
sys.modules["kp"] = sys.modules["dmlgpu_kp"] = sys.modules["vulkan"] = None
import dmlgpu
from dmlgpu.lowering.lower import lower
from dmlgpu.lowering.limits import Limits
from dmlgpu.testing.cases import DOCUMENTED
for case in DOCUMENTED:
    assert lower(case.desc, Limits(256, 32, 3)).dispatches
    assert dmlgpu.reference(case.desc, *case.inputs())[0].tolist() == case.expected[0]
print("done")
"""
    assert output_of(program) == "done\n"


def test_adapters_are_imported_at_their_first_use():
    program = """
import sys
import dmlgpu
print(sorted({"onnx", "torch", "dask", "rich", "dmlgpu.chunks.source", "dmlgpu.interop.torch"} & set(sys.modules)))
print(dmlgpu.chunked.__name__, dmlgpu.interop.array_api.sum.__name__)
for module in dmlgpu, dmlgpu.interop:
    try:
        module.anything
    except AttributeError as error:
        print(error, error.name, error.obj is module)  # for Python's "Did you mean"
"""
    expected = [
        "[]",
        "chunked sum",
        *(f"module '{name}' has no attribute 'anything' anything True" for name in ("dmlgpu", "dmlgpu.interop")),
    ]
    assert output_of(program).splitlines() == expected


def printed_error(library, set_up):
    """The name and the message of the error that the first use of an adapter raises."""
    program = f"""
import sys
{set_up}
import dmlgpu
try:
    dmlgpu.interop.{library}
except ModuleNotFoundError as error:
    print(error.name, error)
"""
    return output_of(program)


@pytest.mark.parametrize("library", ["onnx", "torch", "dask"])
def test_an_adapter_without_its_library_names_the_extra(library):
    expected = f"{library} {library} is not installed: pip install 'dmlgpu[{library}]'\n"
    assert printed_error(library, f"sys.modules[{library!r}] = None") == expected


def test_a_broken_library_is_not_called_missing(tmp_path):
    (tmp_path / "onnx.py").write_text("import its_dependency")
    set_up = f"sys.path.insert(0, {str(tmp_path)!r})"
    assert printed_error("onnx", set_up) == "its_dependency No module named 'its_dependency'\n"
