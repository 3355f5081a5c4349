"""The SPIR-V modules that the build installs into dmlgpu/spirv, and the layouts of their constants in layouts.json."""

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

# Ten times the largest module: a longer file is not from the build.
_MOST_BYTES = 1 << 20
_HEADER_BYTES = 20
# SPIR-V's numbers of instructions, of a decoration, and of the operations of _SPEC_OP in our modules.
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
    """The SPIR-V of a module, by its name in CMakeLists.txt; checked at its first load.

    Raises:
        DeviceError: the module or layouts.json is missing, or they are not of one build; the message names the file.
    """
    layout = layout_of(module)
    file = _FOLDER / f"{module}.spv"
    content = _read(file)
    if hashlib.sha256(content).hexdigest() != layout.sha256:
        raise DeviceError(f"shader {file} is not the module that {_LAYOUTS} lists, or is damaged; {FIX}")
    return content


@dataclass(frozen=True)
class Layout:
    """The constants of a module by name, as shaders/build.py read them from it."""

    constants: Mapping[str, int]
    """Number of each specialization constant: its constant_id."""
    push: Mapping[str, tuple[int, int]]
    """First word of each push constant, and its number of words."""
    sha256: str
    """Digest of the module."""


@cache
def layouts() -> dict[str, Any]:
    """The entry of layouts.json for each module; errors as `load`."""
    try:
        return {**json.loads(_read(_FOLDER / _LAYOUTS))}
    except (ValueError, TypeError) as error:
        raise _damaged(error) from None


@cache
def layout_of(module: str) -> Layout:
    """The layout of one module; errors as `load`. A call needs only a few."""
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
    return DeviceError(f"{_FOLDER / _LAYOUTS} is damaged: {error}; {FIX}")


def constant_words(shader: Shader) -> list[int]:
    """The specialization constants of a shader as words, in the order of their numbers; 0 for unused numbers.

    Raises:
        DeviceError: as `load`; or the shader and its module have different names of constants.
    """
    numbers = layout_of(shader.module).constants
    _check_names(shader.module, "constants", shader.constants, numbers.keys())
    words = [0] * (max(numbers.values()) + 1)
    for name, value in shader.constants.items():
        words[numbers[name]] = int(value)
    return words


# Kernels whose loop counts are constants: SwiftShader unrolls loops with known counts, for minutes and with all memory.
_UNROLLED = ("pool_small", "pool_backward_small")


def specialized(shader: Shader) -> tuple[bytes, list[int]]:
    """The SPIR-V of a shader, and the words of the specialization constants that remain in it.

    The others are replaced by constants: SwiftShader runs code that a specialization constant excludes, but not code
    that a constant excludes. Errors as `constant_words`.
    """
    code, constants = load(shader.module), constant_words(shader)
    if shader.variant.startswith(_UNROLLED):
        return code, constants
    words = np.frombuffer(code, "<u4").tolist()
    at = _HEADER_BYTES // 4
    result, numbers, known, boolean = words[:at], dict[int, int](), dict[int, int](), 0
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
            known[instruction[2]] = op == _TRUE
        elif op == _CONSTANT:
            known[instruction[2]] = instruction[3]
        elif op in (_SPEC_TRUE, _SPEC_FALSE, _SPEC_CONSTANT):
            value = constants[numbers[instruction[2]]]
        elif op == _SPEC_OP and known.keys() >= set(instruction[4:]):
            value = _COMPUTED[instruction[3]](*map(known.__getitem__, instruction[4:])) & 0xFFFFFFFF
        elif op == _SPEC_COMPOSITE:
            instruction[0] += _COMPOSITE - _SPEC_COMPOSITE
        if value is not None:
            known[instruction[2]] = value
            if instruction[1] == boolean:
                instruction = [3 << 16 | (_TRUE if value else _FALSE), *instruction[1:3]]
            else:
                instruction = [4 << 16 | _CONSTANT, *instruction[1:3], value]
        result += instruction
    return np.array(result, "<u4").tobytes() + code[4 * at :], []


def push_words(module: str, push: Mapping[str, Any]) -> list[int]:
    """The push constants of a module as words; errors as `constant_words`."""
    places = layout_of(module).push
    _check_names(module, "push constants", push, places.keys())
    words = [0] * sum(max(places.values()))  # up to the end of the last one
    for name, value in push.items():
        (first, count), values = places[name], value if isinstance(value, tuple) else (int(value),)
        if len(values) != count:
            raise DeviceError(f"shader {module}: push constant {name} has {count} words, not {len(values)}; {FIX}")
        words[first : first + count] = values
    return words


def _check_names(module: str, what: str, values: Mapping[str, Any], declared: Set[str]) -> None:
    if values.keys() != declared:
        missing, unknown = sorted(declared - values.keys()), sorted(values.keys() - declared)
        raise DeviceError(f"shader {module}: the plan lacks {what} {missing}, and has unknown ones {unknown}; {FIX}")


def _read(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            content = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise DeviceError(f"shader {file} cannot be read ({error}); {FIX}") from None
    if len(content) > _MOST_BYTES:
        raise DeviceError(f"shader {file} is damaged: more than {_MOST_BYTES} bytes; {FIX}")
    return content
