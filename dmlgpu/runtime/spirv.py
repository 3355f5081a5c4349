"""The SPIR-V modules that the build installs into dmlgpu/spirv, with their checksums."""

import hashlib
import re
from functools import cache
from pathlib import Path

from dmlgpu.errors import DeviceError
from dmlgpu.files import read_at_most

# Ten times the largest module: what is longer is none of the build's.
_MOST_BYTES = 1 << 20
_FOLDER = Path(__file__).parents[1] / "spirv"
_CHECKSUMS = _FOLDER / "SHA256SUMS"


@cache
def load(module: str) -> bytes:
    """The SPIR-V of a module, by its name in CMakeLists.txt. It is checked when it is first loaded.

    Raises:
        DeviceError: the module or the list of checksums is missing or damaged; the message names the file.
    """
    expected = _checksums().get(module)
    if expected is None:
        raise DeviceError(f"{_CHECKSUMS} has no shader {module}.spv; reinstall dmlgpu")
    file = _FOLDER / f"{module}.spv"
    content = _read(file)
    if hashlib.sha256(content).hexdigest() != expected:
        raise DeviceError(
            f"shader {file} is damaged: {len(content)} bytes that are not those of {_CHECKSUMS.name}; reinstall dmlgpu"
        )
    return content


def modules() -> tuple[str, ...]:
    """The names of all modules; errors as `load`."""
    return tuple(_checksums())


@cache
def _checksums() -> dict[str, str]:
    return parse_checksums(_read(_CHECKSUMS), str(_CHECKSUMS))


def parse_checksums(content: bytes, name: str) -> dict[str, str]:
    """The SHA-256 of every module in a file of the form that sha256sum writes.

    Args:
        content: the bytes of the file.
        name: what the error calls it.

    Raises:
        DeviceError: it is damaged.
    """
    lines = content.split(b"\n")
    found = [re.fullmatch(rb"([0-9a-f]{64})  (\w+)\.spv", line) for line in lines[:-1]]
    sums = {match[2].decode("ascii"): match[1].decode("ascii") for match in found if match}
    if not sums or len(sums) != len(found) or lines[-1]:
        raise DeviceError(f"the shaders' checksums {name} are damaged; reinstall dmlgpu")
    return sums


def _read(file: Path) -> bytes:
    try:
        return read_at_most(file, _MOST_BYTES)
    except OSError as error:
        raise DeviceError(f"shader {file} cannot be read ({error}); reinstall dmlgpu") from None
    except ValueError as error:
        raise DeviceError(f"shader {file} is damaged: {error}; reinstall dmlgpu") from None
