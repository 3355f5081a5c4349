"""The shaders' interface: GLSL declares what the Python dataclasses say, field by field."""

import re
import struct
from dataclasses import fields
from pathlib import Path

import pytest

from dmlgpu import spirv
from dmlgpu.errors import DeviceError
from dmlgpu.lowering import lower
from dmlgpu.plan import Constants, NumberKind
from tests.cases import CASES
from tests.conftest import LOWERED
from tests.test_plans import LIMITS

ROOT = Path(__file__).parents[1]
SOURCES = {path.name: path.read_text() for path in (ROOT / "shaders").iterdir()}


def included(name: str) -> str:
    """A shader with the files that it includes."""
    return re.sub(r'#include "(.*?)"', lambda match: included(match[1]), SOURCES[name])


# The entry point of every module.
MODULES = dict(re.findall(r"^spirv_module\((\w+)\s+(\S+)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE))
DISPATCHES = [
    dispatch
    for case in CASES
    for limits in (LOWERED, LIMITS["cpu"], LIMITS["gpu"])
    for dispatch in lower(case.desc, limits).dispatches
]


def push_block(source: str) -> list[tuple[str, int]]:
    """The name and length of every field of a shader's Push block; length 0 is no array."""
    block = re.search(r"layout\(push_constant\) uniform Push \{(.*?)\} push;", source, re.DOTALL)[1]
    declarations = re.sub(r"//.*", "", block).replace("\n", " ").split(";")
    found = [re.fullmatch(r"\s*u?int (\w+)(?:\[(\d+)\])?\s*", text) for text in declarations[:-1]]
    return [(match[1], int(match[2] or 0)) for match in found]


@pytest.mark.parametrize("entry_point", sorted(set(MODULES.values())))
def test_push_blocks_are_the_dataclasses(entry_point):
    pushes = {dispatch.push for dispatch in DISPATCHES if MODULES[dispatch.kernel.module] == entry_point}
    assert pushes
    for push in pushes:
        values = [(field.name, getattr(push, field.name)) for field in fields(push)]
        given = [(name, len(value) if isinstance(value, tuple) else 0) for name, value in values]
        assert given == push_block(included(entry_point))


def test_specialization_constants_are_the_dataclass():
    declared = [
        match
        for source in SOURCES.values()
        for match in re.findall(r"layout\(constant_id = (\d+)\) const (\w+) (\w+) =", source)
    ]
    types = {"bool": "bool", "int": "uint", "NumberKind": "uint"}
    expected = [(str(i), types[field.type], field.name.upper()) for i, field in enumerate(fields(Constants))]
    assert sorted(declared, key=lambda constant: int(constant[0])) == expected


def test_workgroup_size_is_the_first_constant():
    (number,) = {n for source in SOURCES.values() for n in re.findall(r"local_size_x_id = (\d+)", source)}
    assert fields(Constants)[int(number)].name == "group_size"


def test_number_kinds_are_the_enumeration():
    (line,) = [line for source in SOURCES.values() for line in re.findall(r"const uint (UINT = .*);", source)]
    assert line == ", ".join(f"{kind.name} = {kind.value}" for kind in NumberKind)


def test_every_entry_point_is_compiled():
    assert set(MODULES.values()) == {name for name in SOURCES if name.endswith(".comp")}


def test_plans_use_every_module_and_no_others():
    assert {dispatch.kernel.module for dispatch in DISPATCHES} == set(MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_module_is_installed(module):
    assert spirv.load(module)[:4] == (0x07230203).to_bytes(4, "little")


@pytest.mark.parametrize("module", MODULES)
def test_module_asks_for_no_feature_of_the_device(module):
    words = struct.unpack(f"<{len(spirv.load(module)) // 4}I", spirv.load(module))
    capabilities, at = [], 5
    while at < len(words):
        if words[at] & 0xFFFF == 17:  # OpCapability
            capabilities.append(words[at + 1])
        at += words[at] >> 16
    assert capabilities == [1]  # Shader


def test_missing_module_is_named():
    with pytest.raises(DeviceError, match=r"^shader .*absent\.spv cannot be read \(.*\); reinstall dmlgpu$"):
        spirv.load("absent")
