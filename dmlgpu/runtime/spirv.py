"""The SPIR-V modules in dmlgpu/spirv, from the build, and the layouts of their constants in layouts.json."""

from __future__ import annotations

import hashlib
import json
import operator
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from dmlgpu.errors import DeviceError
from dmlgpu.lowering.plan import Shader

# Maximum size of a file, ten times that of the largest module: a longer file is not from the build.
_MOST_BYTES = 1 << 20
_HEADER_BYTES = 20
# SPIR-V's numbers of instructions, of a decoration, and of the operations of _SPEC_OP in the modules.
_TYPE_BOOL, _TRUE, _FALSE, _CONSTANT, _COMPOSITE = 20, 41, 42, 43, 44
_SPEC_TRUE, _SPEC_FALSE, _SPEC_CONSTANT, _SPEC_COMPOSITE, _SPEC_OP, _FUNCTION, _DECORATE = 48, 49, 50, 51, 52, 54, 71
_SPEC_ID = 1
_COMPUTED: dict[int, Callable[..., int]] = {
    128: operator.add,
    130: operator.sub,
    132: operator.mul,
    134: operator.floordiv,
    137: operator.mod,
    166: operator.or_,
    167: operator.and_,
    168: operator.not_,
    169: lambda condition, a, b: a if condition else b,
    170: operator.eq,
    171: operator.ne,
    172: operator.gt,
    178: operator.le,
    200: operator.invert,
}
_FOLDER = Path(__file__).parents[1] / "spirv"
_LAYOUTS = "layouts.json"

FIX = "reinstall dmlgpu (in a checkout: make demo; if a build is running there, wait for its end)"


@cache
def load(module: str) -> bytes:
    """The SPIR-V of a module, by the module's name in CMakeLists.txt; checked at the first load.

    Raises:
        DeviceError: the module or layouts.json is missing, or both are not of one build; the message names the file.
    """
    layout = layout_of(module)
    file = _FOLDER / f"{module}.spv"
    content = _read(file)
    if hashlib.sha256(content).hexdigest() != layout.sha256:
        raise DeviceError(f"shader {file} is not the module that {_LAYOUTS} lists, or is damaged; {FIX}")
    return content


@dataclass(frozen=True)
class Layout:
    """The constants of a module by name, as shaders/build.py read them from the module."""

    constants: Mapping[str, int]
    """constant_id of each specialization constant."""
    push: Mapping[str, tuple[int, int]]
    """First word of each push constant, and its number of words."""
    sha256: str
    """Digest of the module."""


@cache
def layouts() -> dict[str, Any]:
    """The entries of layouts.json by module; errors as `load`."""
    try:
        return {**json.loads(_read(_FOLDER / _LAYOUTS))}
    except (ValueError, TypeError) as error:
        raise _damaged(error) from None


@cache
def layout_of(module: str) -> Layout:
    """The layout of a module; errors as `load`."""
    entry = layouts().get(module)
    if entry is None:
        raise DeviceError(f"{_FOLDER / _LAYOUTS} has no shader {module}; {FIX}")
    try:
        return Layout(
            {name: int(number) for name, number in entry["constants"].items()},
            {name: (int(first), int(count)) for name, (first, count) in entry["push"].items()},
            entry["sha256"],
        )
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        raise _damaged(error) from None


def _damaged(error: Exception) -> DeviceError:
    """The error to raise if layouts.json cannot be parsed."""
    return DeviceError(f"{_FOLDER / _LAYOUTS} is damaged: {error}; {FIX}")


def constant_words(shader: Shader) -> list[int]:
    """The specialization constants of a shader as words, by constant_id; 0 for unused ones.

    Raises:
        DeviceError: as `load`; or the shader and its module have different names of constants.
    """
    numbers = layout_of(shader.module).constants
    _check_names(shader.module, "constants", shader.constants, numbers.keys())
    words = [0] * (max(numbers.values()) + 1)
    for name, value in shader.constants.items():
        words[numbers[name]] = int(value)
    return words


# Kernels whose loop counts are specialization constants. SwiftShader would unroll loops with counts that are constants,
# for minutes and with all memory.
_UNROLLED = ("pool_small", "pool_backward_small")


def specialized(shader: Shader) -> tuple[bytes, list[int]]:
    """The SPIR-V of a shader, and the words of its specialization constants.

    Constants replace all specialization constants, unless the kernel is in _UNROLLED: SwiftShader runs code that a
    specialization constant excludes, but not code that a constant excludes. Errors as `constant_words`.
    """
    code, constants = load(shader.module), constant_words(shader)
    if shader.variant.startswith(_UNROLLED):
        return code, constants
    words = np.frombuffer(code, "<u4").tolist()
    at = _HEADER_BYTES // 4
    # By the id of a result: the constant_id of a specialization constant, and the value of a constant.
    result, numbers, values, boolean = words[:at], dict[int, int](), dict[int, int](), 0
    while (op := words[at] & 0xFFFF) != _FUNCTION:
        instruction = words[at : at + (words[at] >> 16)]
        at += len(instruction)
        value = None
        if op == _DECORATE and instruction[2] == _SPEC_ID:
            numbers[instruction[1]] = instruction[3]
            continue
        if op == _TYPE_BOOL:
            boolean = instruction[1]
        elif op in (_TRUE, _FALSE):
            values[instruction[2]] = op == _TRUE
        elif op == _CONSTANT:
            values[instruction[2]] = instruction[3]
        elif op in (_SPEC_TRUE, _SPEC_FALSE, _SPEC_CONSTANT):
            value = constants[numbers[instruction[2]]]
        elif op == _SPEC_OP and values.keys() >= set(instruction[4:]):
            value = _COMPUTED[instruction[3]](*map(values.__getitem__, instruction[4:])) & 0xFFFFFFFF
        elif op == _SPEC_COMPOSITE:
            instruction[0] += _COMPOSITE - _SPEC_COMPOSITE
        if value is not None:
            values[instruction[2]] = value
            if instruction[1] == boolean:
                instruction = [3 << 16 | (_TRUE if value else _FALSE), *instruction[1:3]]
            else:
                instruction = [4 << 16 | _CONSTANT, *instruction[1:3], value]
        result += instruction
    return np.array(result, "<u4").tobytes() + code[4 * at :], []


def push_words(module: str, push: Mapping[str, Any]) -> list[int]:
    """The push constants of a module as words; errors as `constant_words`."""
    layout = layout_of(module).push
    _check_names(module, "push constants", push, layout.keys())
    words = [0] * sum(max(layout.values()))  # up to the end of the last push constant
    for name, value in push.items():
        (first, count), values = layout[name], value if isinstance(value, tuple) else (int(value),)
        if len(values) != count:
            raise DeviceError(f"shader {module}: push constant {name} has {count} words, not {len(values)}; {FIX}")
        words[first : first + count] = values
    return words


def _check_names(module: str, what: str, values: Mapping[str, Any], declared: Set[str]) -> None:
    """Raises a DeviceError if a plan lacks constants that a module declares, or has others."""
    if values.keys() != declared:
        missing, unknown = sorted(declared - values.keys()), sorted(values.keys() - declared)
        raise DeviceError(f"shader {module}: the plan lacks {what} {missing}, and has unknown ones {unknown}; {FIX}")


def _read(file: Path) -> bytes:
    """The content of a file of the build; errors as `load`."""
    try:
        with file.open("rb") as stream:
            content = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise DeviceError(f"shader {file} cannot be read ({error}); {FIX}") from None
    if len(content) > _MOST_BYTES:
        raise DeviceError(f"shader {file} is damaged: more than {_MOST_BYTES} bytes; {FIX}")
    return content
