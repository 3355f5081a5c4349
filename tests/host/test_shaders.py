"""The shaders and their compiled modules: constants, the build, and damaged installations."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dmlgpu.errors import DeviceError
from dmlgpu.lowering.accumulators import SumResult
from dmlgpu.lowering.plan import NumberKind, Shader, Values
from dmlgpu.runtime import spirv
from tests.support.instructions import CAPABILITY, instructions
from tests.support.processes import ROOT, output_of
from tests.support.shaders import MODULES, SHADERS, SOURCES, build


def test_the_workgroup_size_is_the_first_constant():
    numbers = {int(n) for source in SOURCES.values() for n in re.findall(r"local_size_x_id = (\d+)", source)}
    assert numbers == {spirv.layout_of(module).constants["group_size"] for module in MODULES} == {0}


def test_layouts_are_what_the_shaders_declare():
    layout = spirv.layout_of("scatter_mark_last_32")
    assert list(layout.push)[:4] == ["first_output", "output_count", "size", "first_element"]
    assert [layout.push[name] for name in ("output_count", "size", "indices_stride")] == [(1, 1), (2, 4), (9, 4)]
    assert {name: layout.constants[name] for name in ("item_stride", "packed")} == {"item_stride": 2, "packed": 10}
    source = build.source_of("columns_cooperating.comp", "selection", 32)
    declared = {(name.lower(), int(n)) for n, name in re.findall(r"constant_id = (\d+)\) const \w+ (\w+) =", source)}
    assert {*spirv.layout_of("columns_cooperating_selection_32").constants.items()} == declared


SIZES = {"size": (1, 1, 2, 3), "plane": (4, 5), "values_stride": (0, 0, 5, 1), "values_first": 0, "values_count": 20}
PUSH = {"first_output": 0, "output_count": 1, **SIZES, "values_base": 7}


def test_names_that_a_module_lacks_are_refused():
    assert spirv.push_words("scatter_clear_last_32", Values(**PUSH)) == [0, 1, 1, 1, 2, 3, 4, 5, 0, 0, 5, 1, 0, 20, 7]
    lacking = "the plan lacks push constants ['output_count', 'values_base'], and has unknown ones []"
    for push, message in (
        (PUSH | {"item_stride": 1}, "the plan lacks push constants [], and has unknown ones ['item_stride']; "),
        ({"first_output": 0, **SIZES}, lacking),
        (PUSH | {"values_base": (0, 0)}, "push constant values_base has 1 words, not 2; "),
    ):
        with pytest.raises(DeviceError, match=re.escape(f"shader scatter_clear_last_32: {message}")):
            spirv.push_words("scatter_clear_last_32", Values(**push))
    shader = Shader("rows", "sum", 32, Values(group_size=64, threads=1))
    with pytest.raises(DeviceError, match=r"^shader rows_sum_32: the plan lacks constants .*'short'.*\['threads'\]"):
        spirv.constant_words(shader)


def specialized(module, **values):
    """The text of a module whose constants are 1, except these values."""
    variant, accumulator, bits = module.rsplit("_", 2)
    ones = dict.fromkeys(spirv.layout_of(module).constants, 1)
    code, _ = spirv.specialized(Shader(variant, accumulator, int(bits), Values(**{**ones, **values})))
    subprocess.run(["spirv-val", "--target-env", "vulkan1.1", "-"], input=code, check=True)
    return subprocess.run(
        ["spirv-dis", "--no-indent", "-"], input=code, check=True, capture_output=True
    ).stdout.decode()


@pytest.mark.parametrize("module", [module for module in MODULES if not module.startswith(spirv._UNROLLED)])
def test_drivers_get_no_specialization_constants(module):
    """A choice between constant vectors is an exception: drivers compute it."""
    assert not re.search("SpecId|SpecConstant(?!Op %v2uint Select)", specialized(module))


def test_drivers_get_the_values_of_constants():
    for again in (False, True):
        text = specialized("scatter_last_32", group_size=64, write=int(again))
        for line in ("GROUP_SIZE = OpConstant %uint 64", f"AGAIN = OpConstant{again} %bool"):
            assert f"%{line}\n" in text


def test_loops_that_drivers_unroll_count_between_constants():
    """Mesa does not unroll other loops, and keeps the arrays that they write in memory.

    Mesa 25.0 keeps loops that begin at a function's parameter, 22.3 those with a second part in their condition.
    """
    constant = r"[A-Z\d_ +*/()-]+"
    loops = set().union(*(re.findall(r"\[\[unroll\]\]\s*for \(uint (.+?); (.+?);", text) for text in SOURCES.values()))
    assert len(loops) > 30
    for first, condition in loops:
        assert re.fullmatch(rf"\w+ = {constant}", first)
        assert re.fullmatch(rf"\w+ <=? {constant}|\w+-- > 0|int\(\w+\) >= 0", condition)


def test_numbers_of_kinds_and_results_are_the_enumerations():
    (line,) = [line for source in SOURCES.values() for line in re.findall(r"const uint (UINT = .*);", source)]
    assert line == ", ".join(f"{kind.name} = {kind.value}" for kind in NumberKind)
    results = set()
    for accumulator in ("sum", "exact"):
        (line,) = re.findall(r"^const uint (SUM = .*);", SOURCES[f"accumulators/{accumulator}.glsl"], re.MULTILINE)
        results |= set(line.split(", "))
    assert results == {f"{result.name} = {result.value}" for result in SumResult}


def test_every_entry_point_is_compiled_and_needs_no_feature_of_the_device():
    assert set(MODULES.values()) == {name for name in SOURCES if name.endswith(".comp")}
    for module in MODULES:
        assert spirv.load(module)[:4] == (0x07230203).to_bytes(4, "little")
        capabilities = [operands for number, operands in instructions(module) if number == CAPABILITY]
        assert capabilities == [(1,)]  # Shader


# The build

# A pattern in a module, its replacement, and the problem of the result.
REFUSED = {
    **{
        name: (
            rf"OpDecorate (%\d+) NoContraction\n(?=(?s:.*)\1 = {name} )",
            "",
            "has 1 operations of floats without NoContraction, and 0 Fma; ",
        )
        for name in ("OpFAdd", "OpFSub", "OpFMul", "OpFDiv")
    },
    "none precise": (
        r"(OpDecorate %\d+ NoContraction\n)+",
        "",
        r"has \d{3} operations of floats without .*, and 0 Fma; ",
    ),
    "Fma": (
        r"(%\d+ = )OpFMul (%\d+) (%\d+) (%\d+)",
        r"\1OpExtInst \2 %1 Fma \3 \4 \4",
        "has 0 operations of floats without NoContraction, and 1 Fma; ",
    ),
    "capability": (
        "OpCapability Shader\n",
        r"\g<0>OpCapability Int64\n",
        r"declares the capabilities \[1, 11\]; allowed is 1, Shader, alone$",
    ),
}


def assembled(text):
    command = ["spirv-as", "--preserve-numeric-ids", "-", "-o", "-"]
    return subprocess.run(command, input=text.encode(), check=True, capture_output=True).stdout


@pytest.mark.parametrize(("pattern", "replacement", "message"), REFUSED.values(), ids=REFUSED)
def test_the_build_refuses_modules_that_drivers_may_compute_differently(pattern, replacement, message):
    command = ["spirv-dis", "--raw-id", "-"]
    shipped = subprocess.run(
        command, input=spirv.load("columns_sum_32"), check=True, capture_output=True
    ).stdout.decode()
    shipped = re.sub(" {2,}", "", shipped)
    assert build.problem(assembled(shipped)) == ""
    problem = build.problem(assembled(re.sub(pattern, replacement, shipped, count=1)))
    assert re.match(message, problem), problem


def add_a_line(file):
    file.write_text(file.read_text() + "// new\n")


TABLE = "reduce_sum_32 reduce.comp BITS=32\nrows_last_32 scatter_mark.comp OUTPUTS_ONLY BITS=32\n"


@pytest.fixture
def built(tmp_path, monkeypatch):
    """A function that builds a copy of the shaders, and returns the exit code and the output."""
    shutil.copytree(SHADERS, tmp_path / "shaders")
    (tmp_path / "modules.txt").write_text(TABLE)

    def run():
        command = [sys.executable, "shaders/build.py", "modules.txt", "spirv"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        return done.returncode, re.sub(r"\d+ s\)$", "N s)", (done.stdout + done.stderr).strip())

    assert run() == (0, "Compiled 2 of 2 shaders (N s)")
    return run


def test_only_what_has_changed_is_built_again(built, tmp_path):
    folder = tmp_path / "spirv"
    assert built() == (0, "")
    for change, count in {
        lambda: add_a_line(tmp_path / "shaders/reduce.comp"): 1,
        lambda: add_a_line(tmp_path / "shaders/core/kernel.glsl"): 2,
        lambda: add_a_line(tmp_path / "shaders/accumulators/sum.glsl"): 1,
        lambda: (tmp_path / "modules.txt").write_text(TABLE.replace("OUTPUTS_ONLY ", "")): 1,
        lambda: (folder / "reduce_sum_32.spv").unlink(): 1,
        lambda: (folder / "reduce_sum_32.spv").write_bytes(b"cut"): 1,
        lambda: (folder / "layouts.json").write_text("{"): 2,
        lambda: (folder / "layouts.json").write_text("[]"): 2,
        lambda: (folder / "layouts.json").write_text('{"reduce_sum_32": 1}'): 2,
    }.items():
        change()
        assert built() == (0, f"Compiled {count} of 2 shaders (N s)")
        assert built() == (0, "")
    (tmp_path / "modules.txt").write_text(TABLE.splitlines()[0])
    assert built() == (0, "Compiled 0 of 1 shaders (N s)")
    assert {file.name for file in folder.iterdir()} == {"layouts.json", "reduce_sum_32.spv"}


def test_a_build_that_fails_changes_nothing(built, tmp_path):
    before = {file: file.read_bytes() for file in (tmp_path / "spirv").iterdir()}
    add_a_line(tmp_path / "shaders/core/kernel.glsl")
    (tmp_path / "shaders/accumulators/sum.glsl").write_text("\nno GLSL")
    code, output = built()
    assert code == 1
    assert re.search("accumulators/sum.glsl:2: .*syntax error", output)
    assert {file: file.read_bytes() for file in (tmp_path / "spirv").iterdir()} == before
    assert {path.name for path in tmp_path.iterdir()} == {"shaders", "modules.txt", "spirv"}


def test_a_compiler_that_is_missing_is_named(built, tmp_path, monkeypatch):
    add_a_line(tmp_path / "shaders/core/kernel.glsl")
    monkeypatch.setenv("PATH", str(tmp_path))
    message = "glslangValidator was not found. Install Debian's package glslang-tools, or the Vulkan SDK."
    assert built() == (1, message)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A copy of the folder of modules, which a test may damage."""

    def forget():
        for function in spirv.load, spirv.layouts, spirv.layout_of:
            function.cache_clear()

    folder = tmp_path / "spirv"
    shutil.copytree(spirv._FOLDER, folder)
    monkeypatch.setattr(spirv, "_FOLDER", folder)
    forget()
    yield folder
    forget()


def test_the_list_has_exactly_the_modules(installed):
    assert {path.name for path in installed.iterdir()} == {"layouts.json", *(f"{name}.spv" for name in MODULES)}


DAMAGE = {
    "cut": lambda content: content[:-4],
    "empty": lambda content: b"",
    "a bit flipped": lambda content: content[:999] + bytes([content[999] ^ 1]) + content[1000:],
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_module_is_named(installed, damage):
    file = installed / "rows_selection_8.spv"
    content = damage(file.read_bytes())
    file.write_bytes(content)
    with pytest.raises(DeviceError) as caught:
        spirv.load("rows_selection_8")
    assert str(caught.value) == (
        f"shader {file} is not the module that layouts.json lists, or is damaged; reinstall dmlgpu "
        "(in a checkout: make demo; if a build is running there, wait for its end)"
    )
    assert spirv.load("rows_selection_16")


def test_no_more_is_read_than_a_module_can_have(installed):
    with (installed / "rows_selection_8.spv").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(DeviceError, match=r"rows_selection_8\.spv is damaged: more than 1048576 bytes; reinstall"):
        spirv.load("rows_selection_8")


@pytest.mark.parametrize("name", ["rows_selection_8.spv", "layouts.json"])
def test_a_missing_file_is_named(installed, name):
    (installed / name).unlink()
    with pytest.raises(DeviceError, match=rf"^shader .*[/\\]{name} cannot be read \(.*\); reinstall dmlgpu"):
        spirv.load("rows_selection_8")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"rows_selection_8": 1}',
        '{"rows_selection_8": {"constants": {}, "push": {}}}',
        '{"rows_selection_8": {"constants": [0], "push": {}, "sha256": ""}}',
        '{"rows_selection_8": {"constants": {"group_size": "x"}, "push": {}, "sha256": ""}}',
        '{"rows_selection_8": {"constants": {}, "push": {"size": 3}, "sha256": ""}}',
        '{"rows_selection_8": {"constants": {}, "push": {"size": [1]}, "sha256": ""}}',
    ],
)
def test_damaged_layouts_are_named(installed, content):
    (installed / "layouts.json").write_text(content)
    with pytest.raises(DeviceError, match=r"^.*[/\\]layouts\.json is damaged: .*; reinstall dmlgpu"):
        spirv.load("rows_selection_8")


@pytest.mark.parametrize(
    ("layout", "problem"),
    [({"rows_selection_16": 1}, "is damaged: "), ({}, "has no shader rows_selection_16; reinstall dmlgpu")],
    ids=["damaged", "not listed"],
)
def test_a_module_loads_whatever_the_layouts_of_others(installed, layout, problem):
    layouts = json.loads((installed / "layouts.json").read_text())
    del layouts["rows_selection_16"]
    (installed / "layouts.json").write_text(json.dumps(layouts | layout))
    assert spirv.load("rows_selection_8")
    with pytest.raises(DeviceError, match=rf"^.*[/\\]layouts\.json {problem}"):
        spirv.load("rows_selection_16")


DAMAGED = """
import sys
from pathlib import Path
import numpy as np
from dmlgpu import DeviceError, argmax
from dmlgpu.runtime import spirv
spirv._FOLDER = Path(sys.argv[1])
try:
    argmax(np.zeros((3, 4), np.float32))
except DeviceError as error:
    print(error)
"""


def test_damage_is_a_device_error_of_the_first_call(installed, driver, environment):
    for file in installed.glob("*.spv"):
        file.write_bytes(file.read_bytes()[:-100])
    environment["DMLGPU_DEVICE"] = str(driver.index)
    printed = output_of(DAMAGED, str(installed), environment=environment)
    folder = re.escape(str(installed))
    assert re.fullmatch(rf"shader {folder}[/\\]\w+_32\.spv is not the module .*; reinstall dmlgpu .*\n", printed)


def test_wheels_have_the_modules_and_their_list(tmp_path):
    build = tmp_path / "build"
    # The set-up's cmake, because the system may have none.
    cmake = Path(sys.executable).with_name("cmake")
    command = [cmake, "-S", ROOT, "-B", build, "-DSKBUILD=2", "-DSKBUILD_STATE=wheel"]
    subprocess.run(command, check=True, capture_output=True)
    shutil.copytree(spirv._FOLDER, build / "spirv", dirs_exist_ok=True)
    command = [cmake, "--install", build, "--prefix", tmp_path / "wheel"]
    subprocess.run(command, check=True, capture_output=True)
    files = {path.name for path in (tmp_path / "wheel/dmlgpu/spirv").iterdir()}
    assert files == {"layouts.json", *(f"{name}.spv" for name in MODULES)}
