"""The SPIR-V modules that the build installs into dmlgpu/spirv, and the list of them."""

from functools import cache
from pathlib import Path

from dmlgpu.errors import DeviceError
from dmlgpu.files import read_at_most

# Ten times the largest module: what is longer is none of the build's.
_MOST_BYTES = 1 << 20
_HEADER_BYTES = 20
_MAGIC = 0x07230203.to_bytes(4, "little")
# The last instruction of a module: OpFunctionEnd, of one word.
_END = (1 << 16 | 56).to_bytes(4, "little")
_FOLDER = Path(__file__).parents[1] / "spirv"

MEND = "reinstall dmlgpu (in a checkout: cmake --build build)"


@cache
def load(module: str) -> bytes:
    """The SPIR-V of a module, by its name in CMakeLists.txt. It is checked when it is first loaded.

    Raises:
        DeviceError: the module or the list of modules is missing, or not whole; the message names the file.
    """
    if module not in modules():
        raise DeviceError(f"{_FOLDER / 'modules.txt'} has no shader {module}; {MEND}")
    file = _FOLDER / f"{module}.spv"
    content = _read(file)
    whole = len(content) % 4 == 0 and len(content) > _HEADER_BYTES
    if not (whole and content.startswith(_MAGIC) and content.endswith(_END)):
        raise DeviceError(f"shader {file} is damaged: {len(content)} bytes, no whole SPIR-V module; {MEND}")
    return content


@cache
def modules() -> tuple[str, ...]:
    """The names of all modules; errors as `load`."""
    return tuple(_read(_FOLDER / "modules.txt").decode(errors="replace").split())


def _read(file: Path) -> bytes:
    try:
        return read_at_most(file, _MOST_BYTES)
    except OSError as error:
        raise DeviceError(f"shader {file} cannot be read ({error}); {MEND}") from None
    except ValueError as error:
        raise DeviceError(f"shader {file} is damaged: {error}; {MEND}") from None
