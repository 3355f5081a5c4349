"""The SPIR-V modules that the build installs beside this file."""

from functools import cache
from importlib import resources

from dmlgpu.errors import DeviceError


@cache
def load(module: str) -> bytes:
    """The SPIR-V of a module, by its name in CMakeLists.txt."""
    file = resources.files("dmlgpu") / "spirv" / f"{module}.spv"
    try:
        return file.read_bytes()
    except OSError as error:
        raise DeviceError(f"shader {file} cannot be read ({error}); reinstall dmlgpu") from None
