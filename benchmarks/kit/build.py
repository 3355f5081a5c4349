"""Makes the kit: `python -m benchmarks.kit.build 3.12 WHEELS FOLDER`, in a checkout.

WHEELS is a folder with our own wheels: of dmlgpu, and of Kompute. FOLDER then holds wheels, libraries, tests,
benchmarks and run.py: all that Linux on x86_64 with that Python and a GPU's driver needs.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Any

from benchmarks.peer_usual import compile_all

ROOT = Path(__file__).parents[2]
# The machine's glibc must be that old or newer, and so is that of any system with Python 3.10 or newer.
_GLIBC = 28
_TESTS = "pytest>=8"
# What pip takes from the Python that it runs on, not from the one it downloads for.
_BEFORE_311 = ("exceptiongroup", "tomli", "typing_extensions")
# Ours: they must be of this checkout, whatever the machine has.
_OURS = ("dmlgpu", "dmlgpu-kp", "kp")
# The Vulkan loader, and what drivers with windows need to be loaded without any.
_LOADER = "libvulkan.so.1"
_LIBRARIES = (
    _LOADER,
    *("libGLdispatch.so.0", "libX11.so.6", "libXext.so.6", "libxcb.so.1"),
    *("libXau.so.6", "libXdmcp.so.6", "libbsd.so.0", "libmd.so.0"),
)
_SOURCES = ("pyproject.toml", "docs/reliability.md")
_MOST_BYTES = 60 << 20


class KitError(Exception):
    """The kit cannot be made; the message says why."""


def build(python: str, own: Path, folder: Path) -> dict[str, Any]:
    """Makes the kit for a version of Python, with wheels of our own; what is written to its kit.json."""
    if platform.machine() != "x86_64" or platform.system() != "Linux":
        raise KitError("the kit is for Linux on x86_64, and is made there")
    if not re.fullmatch(r"3\.\d+", python):
        raise KitError(f"{python} is no version of Python as in 3.12")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    wheels = download(python, own, folder / "wheels")
    description = {
        "dmlgpu": next(wheel["version"] for wheel in wheels if wheel["name"] == "dmlgpu"),
        "commit": _commit(),
        "python": python,
        "wheels": wheels,
        "libraries": copy_libraries(folder / "lib"),
    }
    copy_sources(folder / "source")
    compile_all(folder / "source" / "benchmarks" / "shaders")
    shutil.copy(Path(__file__).with_name("run.py"), folder)
    (folder / "kit.json").write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if size > _MOST_BYTES:
        raise KitError(f"the kit has {size >> 20} MiB, more than {_MOST_BYTES >> 20}")
    print(f"{folder}: {size / (1 << 20):.1f} MiB, {len(wheels)} wheels")
    return description


def download(python: str, own: Path, folder: Path) -> list[dict[str, Any]]:
    """Gathers wheels: our own, and of all that they and the tests need.

    For each it says its name, its version, and the least version that does instead of it on a machine that has one.
    """
    platforms = [f"manylinux_2_{minor}_x86_64" for minor in range(_GLIBC, 4, -1)]
    platforms += ["manylinux2014_x86_64", "manylinux1_x86_64", "linux_x86_64"]
    # Named as files, so that no index has a say in which they are.
    ours = [f"{wheel}[cli]" if wheel.name.startswith("dmlgpu-") else str(wheel) for wheel in sorted(own.glob("*.whl"))]
    requirements = [*ours, _TESTS, *(_BEFORE_311 if int(python.partition(".")[2]) < 11 else ())]
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--only-binary=:all:"),
            *("-c", str(ROOT / ".ci" / "constraints.txt")),
            *("--implementation", "cp", "--python-version", python),
            *(argument for name in platforms for argument in ("--platform", name)),
            *("-d", str(folder), *requirements),
        ],
        check=True,
    )
    files = sorted(folder.glob("*.whl"))
    metadata = [read_metadata(file) for file in files]
    least = lower_bounds(requirement for found in metadata for requirement in found.get_all("Requires-Dist", []))
    return [
        {
            "file": file.name,
            "name": _plain(found["Name"]),
            "version": found["Version"],
            "least": None if _plain(found["Name"]) in _OURS else least.get(_plain(found["Name"]), "0"),
        }
        for file, found in zip(files, metadata, strict=True)
    ]


def read_metadata(wheel: Path) -> Message:
    """The metadata of a wheel that needs no more than to be unpacked."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        if any(".data/" in name for name in names):
            raise KitError(f"{wheel.name} has files that only an installer puts where they belong")
        (name,) = (name for name in names if name.endswith(".dist-info/METADATA") and name.count("/") == 1)
        return Parser().parsestr(archive.read(name).decode())


def lower_bounds(requirements: Iterable[str]) -> dict[str, str]:
    """The greatest of the lower bounds that requirements have for each package."""
    found: dict[str, str] = {}
    for requirement in requirements:
        bounds, _, _ = requirement.partition(";")
        name = re.split(r"[^A-Za-z0-9._-]", bounds)[0]
        for version in re.findall(r"(?:>=|~=|==)\s*([0-9.]+)", bounds):
            found[_plain(name)] = max(version, found.get(_plain(name), "0"), key=_numbers)
    return found


def _numbers(version: str) -> list[int]:
    return list(map(int, re.findall(r"\d+", version)))


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def copy_libraries(folder: Path) -> dict[str, str]:
    """Copies libraries of this machine; the SHA-256 of each."""
    folder.mkdir()
    found = {}
    for name in _LIBRARIES:
        path = _find_library(name)
        if path is not None:
            shutil.copy(path, folder / name)
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        elif name == _LOADER:
            raise KitError(f"there is no {name} here (Debian: libvulkan1)")
        else:
            print(f"there is no {name} here; the kit goes without it")
    return found


def _find_library(name: str) -> Path | None:
    """The file that programs of this machine get under this name."""
    try:
        ctypes.CDLL(name)
    except OSError:
        return None
    paths = {line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}
    stem = name.partition(".so")[0]
    return next((Path(path) for path in sorted(paths) if Path(path).name.startswith(f"{stem}.so")), None)


def copy_sources(folder: Path) -> None:
    """Copies what the tests and benchmarks need; dmlgpu itself is in a wheel."""
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")
    for name in ("tests", "benchmarks"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in _SOURCES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def main() -> int:
    if len(sys.argv) != 4:
        print(__doc__)
        return 2
    try:
        build(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
    except (KitError, OSError, subprocess.CalledProcessError) as error:
        print(f"kit: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
