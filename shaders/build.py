"""Compiles the shaders; CMakeLists.txt says which modules there are.

    python shaders/build.py MODULES FOLDER

Each line of the file MODULES has the name of a module, which ends with its accumulator and the bits of an element, its
.comp file, and its defines. FOLDER gets NAME.spv for each, and layouts.json, which has for each:

    constants  of each specialization constant its constant_id
    push       of each push constant its first word, and how many words it has
    sha256     of the module
    source     a hash of all that the module is made from, compilers included; while it is the same, nothing is compiled

All is compiled before the first file is replaced, and layouts.json is replaced last. A process that computes meanwhile
gets an error at worst: spirv.py loads only modules that layouts.json lists with their sha256.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

SHADERS = Path(__file__).resolve().parent
TARGET = "vulkan1.1"

# Optimization. Drivers unroll the loops that add floats: SPIRV-Tools 2023.1 drops NoContraction from loop bodies that
# it copies (https://github.com/KhronosGroup/SPIRV-Tools/issues/5902), and -O copies some.
FLOAT_PASSES = (
    *("--merge-return", "--inline-entry-points-exhaustive", "--eliminate-dead-functions", "--scalar-replacement=100"),
    *("--ssa-rewrite", "--eliminate-dead-code-aggressive", "--simplify-instructions"),
)
OF_FLOATS = "sum", "cumulative", "product", "logsumexp"
PASSES = ("-O",)

# SPIR-V's numbers: of instructions, of decorations, of the capability Shader, and of GLSL's fma().
NAME, MEMBER_NAME, EXT_INST, CAPABILITY, TYPE_INT, TYPE_ARRAY, TYPE_STRUCT, CONSTANT = 5, 6, 12, 17, 21, 28, 30, 43
DECORATE, MEMBER_DECORATE = 71, 72
SPEC_ID, OFFSET, NO_CONTRACTION = 1, 35, 42
SHADER, FMA = 1, 50
# Additions, subtractions, multiplications and divisions of floats, of vectors too.
ARITHMETIC = {129, 131, 133, 136, 142, 148}


def instructions(code: bytes) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The number of each instruction of a module, and its operands."""
    words, at = struct.unpack(f"<{len(code) // 4}I", code), 5
    while at < len(words):
        end = at + (words[at] >> 16)
        yield words[at] & 0xFFFF, words[at + 1 : end]
        at = end


def text(words: tuple[int, ...]) -> str:
    """The string that operands end with."""
    return struct.pack(f"<{len(words)}I", *words).rstrip(b"\0").decode()


def layout(code: bytes) -> dict[str, Any]:
    """The names and places of a module's constants. The module is glslang's: spirv-opt drops what is not used."""
    names, members, offsets, numbers, constants = {}, {}, {}, {}, {}
    types: dict[int, tuple[int, ...]] = {}
    for number, operands in instructions(code):
        if number == NAME:
            names[operands[0]] = text(operands[1:])
        elif number == MEMBER_NAME:
            members[operands[:2]] = text(operands[2:])
        elif number == MEMBER_DECORATE and operands[2] == OFFSET:
            offsets[operands[:2]] = operands[3]
        elif number == DECORATE and operands[1] == SPEC_ID:
            numbers[operands[0]] = operands[2]
        elif number == CONSTANT:
            constants[operands[1]] = operands[2]
        elif number in (TYPE_INT, TYPE_ARRAY, TYPE_STRUCT):
            types[operands[0]] = number, *operands[1:]
    (push,) = (struct for struct in types if names.get(struct) == "Push")
    words = {}
    for i, member in enumerate(types[push][1:]):
        # An integer of 32 bits, or an array of them.
        kind, *array = types[member]
        count = constants[array[1]] if kind == TYPE_ARRAY else 1
        assert types[array[0] if kind == TYPE_ARRAY else member][:2] == (TYPE_INT, 32), members[push, i]
        words[members[push, i]] = offsets[push, i] // 4, count
    # local_size_x_id has a constant of its own, without a name.
    named = {names[i].lower(): number for i, number in numbers.items() if i in names}
    return {"constants": named, "push": words}


def problem(code: bytes) -> str:
    """Why a module must not be shipped; empty if it may be.

    Its only capability is Shader, which every Vulkan device has without enabling a feature. Drivers must compute its
    float arithmetic exactly as written: one that drops an addition, or fuses it with a multiplication, makes sums
    wrong. `precise` in GLSL becomes NoContraction in SPIR-V.
    """
    capabilities, precise, arithmetic, fused = set(), set(), set(), 0
    for number, operands in instructions(code):
        if number == CAPABILITY:
            capabilities.add(operands[0])
        elif number == DECORATE and operands[1] == NO_CONTRACTION:
            precise.add(operands[0])
        elif number in ARITHMETIC:
            arithmetic.add(operands[1])
        elif number == EXT_INST:
            fused += operands[3] == FMA
    if capabilities != {SHADER}:
        return f"declares the capabilities {sorted(capabilities)}; allowed is {SHADER}, Shader, alone"
    if fused or not arithmetic <= precise:
        return (
            f"has {len(arithmetic - precise)} operations of floats without NoContraction, and {fused} Fma; allowed is "
            "none. Either GLSL lacks `precise`, or spirv-opt lost it"
        )
    return ""


def program(package: str, *names: str) -> str:
    """The path of a program that has one of these names."""
    for name in names:
        if path := shutil.which(name):
            return path
    sys.exit(f"{names[0]} was not found. Install Debian's package {package}, or the Vulkan SDK.")


def run(*command: object) -> str:
    """What a program prints. If it fails, this program ends with its messages."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def source_of(name: str, accumulator: str, bits: int) -> str:
    """The text of a file of this folder and of all that it includes, with #line for the compiler's messages."""
    width = str(bits) if bits >= 32 else "narrow"
    lines = []
    for number, line in enumerate((SHADERS / name).read_text().splitlines(), 1):
        if include := re.fullmatch('#include "(.*)"', line):
            other = include[1].replace("ACCUMULATOR", accumulator).replace("WIDTH", width)
            line = f'#line 1 "{other}"\n{source_of(other, accumulator, bits)}\n#line {number + 1} "{name}"'
        lines.append(line)
    return "\n".join(lines)


@dataclass(frozen=True)
class Module:
    """What is compiled: a .comp file for an accumulator and a width of elements."""

    name: str
    entry_point: str
    defines: tuple[str, ...]

    @property
    def accumulator(self) -> str:
        """The last part of the name but one."""
        return self.name.rsplit("_", 2)[1]

    @property
    def bits(self) -> int:
        """The width of elements, the last part of the name."""
        return int(self.name.rsplit("_", 1)[1])

    @cached_property
    def text(self) -> str:
        """The text that is compiled.

        It is GLSL 4.30, the first version with compute shaders: for 4.50 glslang reads twice as many built-in
        functions, which takes longer than reading the file.
        """
        version, _, lines = source_of(self.entry_point, self.accumulator, self.bits).partition("\n")
        extensions = "GL_EXT_control_flow_attributes", "GL_GOOGLE_cpp_style_line_directive"
        head = version, *(f"#extension {extension} : require" for extension in extensions)
        return "\n".join((*head, f'#line 2 "{self.entry_point}"', lines, ""))

    @property
    def source(self) -> str:
        """A hash of all that the module is made from, compilers included."""
        return hashlib.sha256("\0".join((*versions(), *self.defines, self.text)).encode()).hexdigest()

    def compile(self, folder: Path) -> dict[str, Any]:
        """Writes the module to a folder; returns its entry of layouts.json."""
        text, raw, module = (folder / f"{self.name}.{end}" for end in ("comp", "raw", "spv"))
        text.write_text(self.text)
        glslang = program("glslang-tools", "glslangValidator", "glslang")
        run(glslang, "--target-env", TARGET, *(f"-D{define}" for define in self.defines), "-o", raw, text)
        shutil.copy(raw, module)
        if optimizer := shutil.which("spirv-opt"):
            passes = FLOAT_PASSES if self.accumulator in OF_FLOATS else PASSES
            run(optimizer, *passes, f"--target-env={TARGET}", raw, "-o", module)
        run(program("spirv-tools", "spirv-val"), "--target-env", TARGET, module)
        code = module.read_bytes()
        if why := problem(code):
            sys.exit(f"module {self.name} {why}")
        return {**layout(raw.read_bytes()), "sha256": hashlib.sha256(code).hexdigest(), "source": self.source}


@cache
def versions() -> tuple[str, ...]:
    """The text of this program, and the versions of the compilers."""
    glslang, optimizer = program("glslang-tools", "glslangValidator", "glslang"), shutil.which("spirv-opt")
    return Path(__file__).read_text(), run(glslang, "--version"), run(optimizer, "--version") if optimizer else ""


def up_to_date(module: Module, entry: Any, folder: Path) -> bool:
    """Whether a module is in the folder as its entry says, and made from what there is now."""
    file = folder / f"{module.name}.spv"
    if not isinstance(entry, dict) or entry.get("source") != module.source or not file.exists():
        return False
    return bool(entry.get("sha256") == hashlib.sha256(file.read_bytes()).hexdigest())


def main() -> None:
    """Compiles what is not up to date."""
    table, folder = map(Path, sys.argv[1:])
    begin = time.monotonic()
    rows = (line.split() for line in table.read_text().splitlines())
    modules = [Module(name, entry_point, tuple(defines)) for name, entry_point, *defines in rows]
    folder.mkdir(parents=True, exist_ok=True)
    layouts = folder / "layouts.json"
    try:
        entries = json.loads(layouts.read_text())
    except (OSError, ValueError):
        entries = None
    entries = entries if isinstance(entries, dict) else {}
    stale = [module for module in modules if not up_to_date(module, entries.get(module.name), folder)]
    names = {module.name for module in modules}
    if not stale and entries.keys() == names:
        return
    with tempfile.TemporaryDirectory(dir=table.parent) as temporary:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            compiled = pool.map(lambda module: module.compile(Path(temporary)), stale)
            entries |= dict(zip((module.name for module in stale), compiled, strict=True))
        for module in stale:
            Path(temporary, f"{module.name}.spv").replace(folder / f"{module.name}.spv")
        lines = (f"{json.dumps(name)}: {json.dumps(entries[name])}" for name in sorted(names))
        new = Path(temporary, layouts.name)
        new.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        new.replace(layouts)
    for file in folder.iterdir():
        if file != layouts and file.stem not in names:
            file.unlink()
    print(f"Compiled {len(stale)} of {len(modules)} shaders ({time.monotonic() - begin:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
