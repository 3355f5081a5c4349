"""The SPIR-V modules that the build installs into dmlgpu/spirv, and the layouts of their constants in layouts.json."""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dmlgpu.errors import DeviceError
from dmlgpu.files import read_at_most
from dmlgpu.lowering.plan import Shader, Values

# Ten times the largest module: a longer file is not from the build.
_MOST_BYTES = 1 << 20
_HEADER_BYTES = 20
_MAGIC = 0x07230203.to_bytes(4, "little")
# The last instruction of a module: OpFunctionEnd, of one word.
_END = (1 << 16 | 56).to_bytes(4, "little")
_FOLDER = Path(__file__).parents[1] / "spirv"
_LAYOUTS = "layouts.json"

MEND = "reinstall dmlgpu (in a checkout: cmake --build build)"


@cache
def load(module: str) -> bytes:
    """The SPIR-V of a module, by its name in CMakeLists.txt. It is checked when it is first loaded.

    Raises:
        DeviceError: the module or layouts.json is missing, or not whole; the message names the file.
    """
    layout_of(module)
    file = _FOLDER / f"{module}.spv"
    content = _read(file)
    whole = len(content) % 4 == 0 and len(content) > _HEADER_BYTES
    if not (whole and content.startswith(_MAGIC) and content.endswith(_END)):
        raise DeviceError(f"shader {file} is damaged: {len(content)} bytes, no whole SPIR-V module; {MEND}")
    return content


@dataclass(frozen=True)
class Layout:
    """Where the constants of a module are, by name, as shaders/layout.cmake found them in it."""

    constants: Mapping[str, int]
    """The number of each specialization constant: its constant_id."""
    push: Mapping[str, tuple[int, int]]
    """The first word of each push constant, and how many words it has."""


@cache
def layouts() -> dict[str, Layout]:
    """The layouts of all modules; errors as `load`."""
    file = _FOLDER / _LAYOUTS
    try:
        return {module: _layout(**found) for module, found in json.loads(_read(file)).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise DeviceError(f"{file} is damaged: {error}; {MEND}") from None


def _layout(constants: Mapping[str, int], push: Mapping[str, tuple[int, int]]) -> Layout:
    """What a file says, if it is what a build writes."""
    return Layout(
        {name: int(number) for name, number in constants.items()},
        {name: (int(first), int(count)) for name, (first, count) in push.items()},
    )


def layout_of(module: str) -> Layout:
    """The layout of one module; errors as `load`."""
    if module not in layouts():
        raise DeviceError(f"{_FOLDER / _LAYOUTS} has no shader {module}; {MEND}")
    return layouts()[module]


def constant_words(shader: Shader) -> list[int]:
    """The specialization constants of a shader as words, in the order of their numbers; 0 for numbers not in use.

    Raises:
        DeviceError: as `load`; or the shader and its module have different names of constants.
    """
    numbers = layout_of(shader.module).constants
    _check_names(shader.module, "constants", shader.constants, numbers.keys())
    words = [0] * (max(numbers.values()) + 1)
    for name, number in numbers.items():
        words[number] = int(shader.constants[name])
    return words


def push_words(module: str, push: Values) -> list[int]:
    """The push constants of a module as words; errors as `constant_words`."""
    places = layout_of(module).push
    _check_names(module, "push constants", push, places.keys())
    words = [0] * max(first + count for first, count in places.values())
    for name, (first, count) in places.items():
        value = push[name] if isinstance(push[name], tuple) else (int(push[name]),)
        if len(value) != count:
            raise DeviceError(f"shader {module}: push constant {name} has {count} words, not {len(value)}; {MEND}")
        words[first : first + count] = value
    return words


def _check_names(module: str, what: str, given: Values, declared: Set[str]) -> None:
    if given.keys() != declared:
        missing, unknown = sorted(declared - given.keys()), sorted(given.keys() - declared)
        raise DeviceError(f"shader {module}: of its {what} the plan lacks {missing}, and has {unknown} besides; {MEND}")


def _read(file: Path) -> bytes:
    try:
        return read_at_most(file, _MOST_BYTES)
    except OSError as error:
        raise DeviceError(f"shader {file} cannot be read ({error}); {MEND}") from None
    except ValueError as error:
        raise DeviceError(f"shader {file} is damaged: {error}; {MEND}") from None
