"""Builds dmlgpu-kp: Kompute as wheels that need no compiler, and as a source distribution.

    python .ci/kp/recipe.py OUT                  # OUT/source, and a wheel for each Python and platform
    python .ci/kp/recipe.py OUT --platforms win_amd64 --pythons 3.12    # only these
    python .ci/kp/recipe.py OUT --here           # the wheel for this Python on this machine
    python .ci/kp/recipe.py OUT --here --tests   # also the folder that only tests need; builds only what OUT lacks

Everything but Python's headers comes from PyPI, pinned by hashes: Kompute, the headers of Vulkan and fmt, pybind11, and
the compiler Zig, which contains the C libraries of Linux, Windows and macOS. Python's headers are those of the
interpreters on this machine; for other versions apt-get downloads the sources that pythons.txt pins. Only pyconfig.h
differs between platforms: this folder has one for all. The same sources give the same bytes, whatever the folder. The
compiler and the downloads are in .cache/kp/toolchain; the caller deletes them.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import setup as settings

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TOOLCHAIN = ROOT / ".cache/kp/toolchain"
ZIG = {f"ZIG_{kind}_CACHE_DIR": str(TOOLCHAIN / "zig") for kind in ("GLOBAL", "LOCAL")}
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
# The sources of Zig's C++ library that Kompute needs; `check` notices if one is missing.
NEEDED = (
    *("call_once", "chrono", "error_category", "exception", "functional", "hash", "memory", "mutex", "new"),
    *("new_handler", "new_helpers", "stdexcept", "string", "system_error", "typeinfo", "verbose_abort"),
)
# Modification time of all files in wheels and archives: that of Kompute's release.
TIME = 1705795200


@dataclass(frozen=True)
class System:
    """Properties that platforms share."""

    suffix: str
    """Suffix of the file name of a Python module."""
    loader: str
    """File name of the Vulkan loader."""
    libraries: str
    """Libraries that a module may need, as a regular expression."""
    link: tuple[str, ...]
    """Options of the linker."""


# The C++ library is linked in; its symbols are not exported.
ELF = "-Wl,--gc-sections", "-Wl,--version-script=build/exports.map"
GNU_LIBRARIES = r"lib(vulkan|c|m|dl|pthread|rt)\.so\.\d|ld-linux-(x86-64|aarch64)\.so\.\d"
GNU = System(".so", "libvulkan.so.1", GNU_LIBRARIES, ELF)
MUSL = System(".so", "libvulkan.so.1", r"libvulkan\.so\.1|libc\.so", ELF)
WINDOWS = System(
    ".pyd", "vulkan-1.dll", r"vulkan-1\.dll|python3\d+\.dll|KERNEL32\.dll|api-ms-win-crt-\w+-l1-1-0\.dll", ELF[:1]
)
MACOS = System(
    ".so",
    "@rpath/libvulkan.1.dylib",
    r"@rpath/libvulkan\.1\.dylib|/usr/lib/libSystem\.B\.dylib",
    (
        *("-Wl,-dead_strip", "-Wl,-undefined,dynamic_lookup", f"-Wl,-install_name,{settings.NAME}.so"),
        # Where Homebrew has the loader, on Apple silicon and on Intel; the SDK copies its own to the latter.
        *("-Wl,-rpath,/opt/homebrew/lib", "-Wl,-rpath,/usr/local/lib"),
    ),
)


@dataclass(frozen=True)
class Platform:
    """The platform of a wheel."""

    target: str
    """Zig's name of the platform."""
    tags: str
    """Platform tags of the wheel."""
    system: System


PLATFORMS = {
    "manylinux_x86_64": Platform("x86_64-linux-gnu.2.17", "manylinux2014_x86_64.manylinux_2_17_x86_64", GNU),
    "manylinux_aarch64": Platform("aarch64-linux-gnu.2.17", "manylinux2014_aarch64.manylinux_2_17_aarch64", GNU),
    "musllinux_x86_64": Platform("x86_64-linux-musl", "musllinux_1_2_x86_64", MUSL),
    "musllinux_aarch64": Platform("aarch64-linux-musl", "musllinux_1_2_aarch64", MUSL),
    "win_amd64": Platform("x86_64-windows-gnu", "win_amd64", WINDOWS),
    "win_arm64": Platform("aarch64-windows-gnu", "win_arm64", WINDOWS),
    "macosx_arm64": Platform("aarch64-macos.11.0", "macosx_11_0_arm64", MACOS),
    "macosx_x86_64": Platform("x86_64-macos.10.15", "macosx_10_15_x86_64", MACOS),
}


@dataclass(frozen=True)
class Python:
    """A version of Python whose headers are here."""

    version: str
    include: Path

    @property
    def tag(self) -> str:
        """The tag in names of wheels, such as `cp311`."""
        return "cp" + self.version.replace(".", "")


def run(*command: object, cwd: Path | None = None, **variables: str) -> str:
    """Runs a command, and returns what it prints; if it fails, the program ends."""
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env={**os.environ, **variables}, text=True, capture_output=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}exit code {done.returncode}")
    return done.stdout


# Tools, sources and headers


def tools() -> Path:
    """The Python of a virtual environment with the packages of `tools.txt`."""
    wanted = HERE / "tools.txt"
    state = f"{sys.version} {sys.base_prefix} {TOOLCHAIN} {hashlib.sha256(wanted.read_bytes()).hexdigest()}"
    folder = TOOLCHAIN / "tools"
    python, mark = folder / "bin/python", folder / "state"
    if not mark.exists() or mark.read_text() != state:
        shutil.rmtree(folder, ignore_errors=True)
        # Installing pip takes as long as what it installs, so this Python's pip is used, if it has one.
        has_pip = find_spec("pip") is not None
        run(sys.executable, "-m", "venv", *["--without-pip"] * has_pip, folder)
        pip = sys.executable if has_pip else python
        options = "--no-compile", "--no-deps", "--no-cache-dir", "--only-binary", ":all:", "--require-hashes"
        run(pip, "-m", "pip", "--python", python, "install", *options, "-r", wanted)
        zig = Path(run(python, "-c", "import ziglang; print(ziglang.__path__[0])").strip())
        shorten_library(zig / "lib")
        mark.write_text(state)
    return python


def shorten_library(folder: Path) -> None:
    """Empties files of the C++ library that Kompute does not need, so that Zig compiles it in an eighth of the time.

    The other files are joined, so that headers are read once. Names are not demangled: only messages about C++
    types without bindings show them.
    """
    for source in (folder / "libcxx/src").rglob("*.cpp"):
        if source.stem not in NEEDED and source.parent.name != "win32":
            source.write_text("")
    (folder / "libcxxabi/src/cxa_demangle.cpp").write_text(
        'extern "C" char* __cxa_demangle(const char*, char*, __SIZE_TYPE__*, int* status) {\n'
        "    if (status)\n        *status = -2;\n    return nullptr;\n}\n"
    )
    # These are not joined: mutex would need another file on Windows, where nothing uses it; the others are for some
    # systems only, or for programs without exceptions.
    apart = "mutex.cpp", "cxa_thread_atexit.cpp", "cxa_noexception.cpp"
    for library in "libcxx", "libcxxabi":
        parts = [part for part in (folder / library / "src").glob("*.cpp") if part.name not in apart]
        first, *others = sorted(part for part in parts if part.stat().st_size)
        for part in first, *others:
            # Headers define these functions inline; the library defines them again, for old programs.
            text = re.sub(r"^# *define _LIBCPP_\w+_LEGACY_INLINE_FUNCTIONS$", "", part.read_text(), flags=re.M)
            part.with_suffix(".inc").write_text(text)
            part.write_text("")
        first.write_text("".join(f'#include "{part.stem}.inc"\n' for part in (first, *others)))


def extract(archive: Path, folder: Path) -> None:
    """Extracts a whole archive."""
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data") if hasattr(tarfile, "data_filter") else tar.extractall(folder)


def unpacked(requirement: str, python: Path) -> Path:
    """The folder of a source distribution, which is downloaded once."""
    wanted = HERE / requirement
    folder = TOOLCHAIN / f"{wanted.stem}-{hashlib.sha256(wanted.read_bytes()).hexdigest()[:12]}"
    if not folder.exists():
        new = folder.with_suffix(".new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        options = "--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--require-hashes"
        run(python, "-m", "pip", "download", *options, "-d", new, "-r", wanted)
        (archive,) = new.iterdir()
        extract(archive, new)
        archive.unlink()
        new.rename(folder)
    (content,) = folder.iterdir()
    return content


def headers(python: str) -> Python | None:
    """An interpreter with its headers; None if there is no such interpreter, or it has none."""
    program = "import sys, sysconfig; print('%d.%d' % sys.version_info[:2], sysconfig.get_path('include'))"
    path = shutil.which(python)
    done = path and subprocess.run([path, "-c", program], text=True, capture_output=True, check=False)
    if not done or done.returncode:
        return None
    version, _, include = done.stdout.strip().partition(" ")
    return Python(version, Path(include)) if Path(include, "Python.h").exists() else None


def headers_of_sources(version: str) -> Python | None:
    """A Python of `pythons.txt`; None if apt-get does not find its sources in the Debian of this machine's packages."""
    rows = (line.split() for line in (HERE / "pythons.txt").read_text().splitlines())
    row = next((row for row in rows if row[0] == version), None)
    if not row or not shutil.which("apt-get"):
        return None
    _, release, name, digest = row
    folder = TOOLCHAIN / f"python{version}"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "lists/partial").mkdir(parents=True)
    key = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
    list_addresses = "apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"
    addresses = subprocess.run(list_addresses, text=True, capture_output=True, check=False).stdout.split()
    lines = [f"deb-src {key} {address} {release} main\n" for address in sorted(set(addresses))]
    (folder / "sources.list").write_text("".join(lines))
    # apt-get writes to this folder only, so that it does not need root.
    options = f"-oDir::Etc::SourceList={folder}/sources.list", "-oDir::Etc::SourceParts=/dev/null"
    options += f"-oDir::State={folder}", f"-oDir::Cache={folder}"
    for command in ("update",), ("source", "--download-only", "--tar-only", f"python{version}"):
        # Some addresses may not be Debian's, or lack this release.
        subprocess.run(["apt-get", *options, *command], cwd=folder, capture_output=True, check=False)
    archive = folder / name
    if not archive.exists():
        return None
    if f"sha256:{hashlib.sha256(archive.read_bytes()).hexdigest()}" != digest:
        sys.exit(f"Debian's {name} is not that of pythons.txt")
    extract(archive, folder)
    return Python(version, next(folder.glob("*/Include")))


# The source


def lay_out(tree: Path, python: Path, *, plain: bool) -> None:
    """Copies everything that is compiled to a new folder, and applies the patches unless `plain`."""
    kompute, external = unpacked("sources.txt", python), unpacked("headers.txt", python) / "external"
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(kompute / "src", tree / "src")
    shutil.copytree(external / "fmt/include/fmt", tree / "external/fmt/fmt")
    (tree / "external/vulkan/vulkan").mkdir(parents=True)
    for name in "vulkan.hpp", "vulkan.h", "vulkan_core.h", "vk_platform.h":
        shutil.copy(external / "Vulkan-Headers/include/vulkan" / name, tree / "external/vulkan/vulkan")
    (tree / "external/shaders").mkdir()
    for shader in (tree / "src/shaders/glsl").glob("*.hpp.in"):
        shutil.copy(shader, tree / "external/shaders" / shader.stem)
    bindings = Path(run(python, "-c", "import pybind11; print(pybind11.__path__[0])").strip())
    zig = Path(run(python, "-c", "import ziglang; print(ziglang.__path__[0])").strip())
    (vulkan,) = re.findall(r"HEADER_VERSION (\d+)", (tree / "external/vulkan/vulkan/vulkan_core.h").read_text())
    fmt = version_in(tree / "external/fmt/fmt/core.h", "FMT_VERSION")
    (pybind11,) = bindings.parent.glob("pybind11-*.dist-info")
    llvm = version_in(zig / "lib/libcxx/include/__config", "_LIBCPP_VERSION"), "Apache-2.0 WITH LLVM-exception"
    # What is linked in: its version and licence, the text of the licence, and the name of its copy.
    linked = {
        "Kompute": (settings.KOMPUTE, "Apache-2.0", kompute / "LICENSE", "../LICENSE"),
        "fmt": (fmt, "MIT", external / "fmt/LICENSE.rst", "fmt.txt"),
        "Vulkan-Headers": (vulkan, "Apache-2.0", external / "Vulkan-Headers/LICENSE.txt", "Vulkan-Headers.txt"),
        "pybind11": (pybind11.stem.partition("-")[2], "BSD-3-Clause", pybind11 / "LICENSE", "pybind11.txt"),
        "libc++": (*llvm, zig / "lib/libcxx/LICENSE.TXT", "libcxx.txt"),
        "libc++abi": (*llvm, zig / "lib/libcxxabi/LICENSE.TXT", "libcxxabi.txt"),
        "libunwind": (*llvm, zig / "lib/libunwind/LICENSE.TXT", "libunwind.txt"),
        "Zig": (run(python, "-m", "ziglang", "version").strip(), "MIT", zig / "LICENSE", "zig.txt"),
        "mingw-w64": ("as in Zig, on Windows", "ZPL-2.1", zig / "lib/libc/mingw/COPYING", "mingw-w64.txt"),
    }
    (tree / "licenses").mkdir()
    for *_, text, name in linked.values():
        shutil.copy(text, tree / "licenses" / name)
    components = [
        {"type": "library", "name": name, "version": version, "licenses": [{"expression": licence}]}
        for name, (version, licence, *_) in linked.items()
    ]
    # CycloneDX (PEP 770)
    bill = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "components": components}
    (tree / "sbom.cdx.json").write_text(json.dumps(bill, indent=1))
    shutil.copy(HERE / "kompute.cpp", tree)
    if plain:
        shutil.copytree(kompute / "python/src", tree / "python/src")
        (tree / settings.SOURCE).write_text('#include "kompute.cpp"\n#include "python/src/main.cpp"\n')
    else:
        shutil.copy(HERE / settings.SOURCE, tree)
        # Git ignores files outside of the repository that it finds, so it must not find ours.
        ceiling = {"GIT_CEILING_DIRECTORIES": str(tree.parent)}
        for patch in sorted((HERE / "patches").iterdir(), key=lambda path: int(path.name.partition("-")[0])):
            run("git", "apply", patch, cwd=tree, **ceiling)
        for name in "setup.py", "pyproject.toml", "README.md":
            shutil.copy(HERE / name, tree)


def metadata(tree: Path, python: Path) -> str:
    """PKG-INFO of a tree, as setuptools writes it."""
    out = tree.with_name("metadata")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    run(python, "setup.py", "-q", "egg_info", "-e", out, cwd=tree)
    return (out / f"{settings.NAME}.egg-info/PKG-INFO").read_text()


def write_sdist(tree: Path, info: str, out: Path) -> None:
    """A source distribution of a tree."""
    out.mkdir(exist_ok=True)
    root = f"{settings.NAME}-{settings.VERSION}"
    files = {str(path.relative_to(tree)): path.read_bytes() for path in tree.rglob("*") if path.is_file()}
    files["PKG-INFO"] = info.encode()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in sorted(files.items()):
            member = tarfile.TarInfo(f"{root}/{name}")
            member.size, member.mtime = len(content), TIME
            tar.addfile(member, io.BytesIO(content))
    with (out / f"{root}.tar.gz").open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, TIME) as file:
        file.write(packed.getvalue())


# Wheels


def version_in(header: Path, name: str) -> str:
    """The version that a header defines with two digits for each number."""
    (number,) = re.findall(rf"^# *define {name} (\d+)$", header.read_text(encoding="utf-8"), re.MULTILINE)
    return f"{int(number) // 10000}.{int(number) // 100 % 100}.{int(number) % 100}"


def build(tree: Path, python: Path, platform: str, pythons: list[Python], *, plain: bool) -> dict[Python, bytes]:
    """The compiled module for each of these Pythons on a platform."""
    if not pythons:
        return {}
    name, version = ("kp", settings.KOMPUTE) if plain else (settings.NAME, settings.VERSION)
    target, system = PLATFORMS[platform].target, PLATFORMS[platform].system
    objects = Path("build", platform)
    (tree / objects).mkdir(parents=True)
    (tree / "build/exports.map").write_text("{ global: PyInit_*; local: *; };")
    bindings = Path(run(python, "-c", "import pybind11; print(pybind11.get_include())").strip())
    if not (tree / "build/pybind11").exists():
        shutil.copytree(bindings, tree / "build/pybind11")

    def zig(*arguments: object) -> None:
        run(python, "-m", "ziglang", *arguments, cwd=tree, **ZIG)

    # Paths are relative, so that modules do not contain them.
    flags = [*settings.FLAGS, "-fno-sanitize=all", *(f"-D{key}={value}" for key, value in settings.MACROS.items())]
    flags += [f"-I{folder}" for folder in settings.INCLUDES]
    if system is WINDOWS:
        flags.remove("-fPIC")

    # -Os concerns only the C++ library, which Zig compiles when it links.
    link = "c++", "-target", target, "-shared", "-s", "-Os", *system.link

    def build_library_of_zig() -> None:
        # Zig compiles the C++ library at the first link, on one core, and caches it.
        (tree / objects / "empty.cpp").touch()
        zig(*link, objects / "empty.cpp", "-o", objects / "empty.so")

    def translate(path: Path, *more: str) -> Path:
        zig("c++", "-target", target, *flags, *more, "-c", settings.SOURCE, "-o", path)
        return path

    def stand_in(library: str, functions: set[str]) -> Path:
        # For the linker: a library with the symbols of one that this machine lacks.
        path = objects / Path(library).name
        if system is WINDOWS:
            path, definition = path.with_suffix(".lib"), path.with_suffix(".def")
            (tree / definition).write_text("\n".join([f"LIBRARY {library}", "EXPORTS", *sorted(functions)]))
            zig("dlltool", "-m", "arm64" if "aarch64" in target else "i386:x86-64", "-d", definition, "-l", path)
        else:
            source = path.with_suffix(".c")
            (tree / source).write_text("".join(f"void {function}(void) {{}}\n" for function in sorted(functions)))
            named = "-install_name" if system is MACOS else "-soname"
            zig("cc", "-target", target, "-shared", "-nostdlib", f"-Wl,{named},{library}", source, "-o", path)
        return path

    def declared(folder: Path, pattern: str) -> set[str]:
        return {name for header in (tree / folder).rglob("*.h") for name in re.findall(pattern, header.read_text())}

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        first = pool.submit(build_library_of_zig)
        bound = {}
        for cpython in pythons:
            include = Path("build", cpython.tag)
            if not (tree / include).exists():
                shutil.copytree(cpython.include, tree / include)
                shutil.copy(HERE / "pyconfig.h", tree / include)
            more = f"-I{include}", "-Ibuild/pybind11", f'-DVERSION_INFO="{version}"'
            bound[cpython] = pool.submit(translate, objects / f"{cpython.tag}.o", *more)

    loader = stand_in(system.loader, declared(Path("external/vulkan"), r"VKAPI_CALL (vk\w+)\("))
    first.result()
    modules = {}
    for cpython, translated in bound.items():
        linked = [translated.result(), loader]
        if system is WINDOWS:
            names = declared(Path("build", cpython.tag), r"PyAPI_(?:FUNC|DATA)\([^)]*\)\s*\*?\s*(\w+)")
            linked.append(stand_in(f"python{cpython.tag[2:]}.dll", names))
        module = objects / f"{name}.{cpython.tag}{system.suffix}"
        zig(*link, *linked, "-o", module)
        content = (tree / module).read_bytes()
        check(content, PLATFORMS[platform])
        modules[cpython] = content
    return modules


def check(module: bytes, platform: Platform) -> None:
    """Ends the program if a module needs a library that its platform may lack, or contains this folder's path."""
    system = platform.system
    # In Mach-O the load commands name libraries; a string of the C++ library is also such a name.
    loaded = rb"(?s)\x0c\0{3}.{4}\x18\0{3}.{12}([^\0]+)"
    pattern = loaded if system is MACOS else rb"\0([\w+.-]+\.(?:so[\d.]*|dll))(?=\0)"
    needed = re.findall(pattern, module)
    foreign = [name.decode() for name in needed if not re.fullmatch(system.libraries.encode(), name)]
    if system in (GNU, MUSL):
        foreign += {name.decode() for name in re.findall(rb"\0(_ZN?K?St3__1\w+)", module)}
    if system is GNU:
        # manylinux2014
        versions = set(re.findall(rb"\0(GLIBC_([\d.]+))(?=\0)", module))
        foreign += [name.decode() for name, version in versions if tuple(map(int, version.split(b"."))) > (2, 17)]
    if system is MACOS:
        # The load commands for the minimum macOS, its minor number before its major one, and for search paths.
        versions = re.findall(rb"(?s)\x32\0{3}.{4}\x01\0{4}(.)(.)\0", module)
        foreign += [least for b, a in versions if not platform.target.endswith(least := f"macos.{a[0]}.{b[0]}")]
        folders = re.findall(rb"(?s)\x1c\0\0\x80.{4}\x0c\0{3}([^\0]+)", module)
        foreign += [flag for flag in system.link if "-rpath," in flag and flag[11:].encode() not in folders]
    if foreign or not needed:
        sys.exit(f"the module needs {', '.join(foreign) or 'nothing'}")
    for path in HERE.parents[1], Path.home():
        # With a slash at its end, because a path of few letters may occur by chance.
        if len(path.parts) > 1 and os.fsencode(f"{path}/") in module:
            sys.exit(f"the module names {path}")


def write_wheel(module: bytes, cpython: Python, platform: Platform, tree: Path, info: str, out: Path) -> None:
    """A wheel with one module."""
    folder = f"{settings.NAME}-{settings.VERSION}.dist-info"
    tags = "".join(f"Tag: {cpython.tag}-{cpython.tag}-{tag}\n" for tag in platform.tags.split("."))
    files = {
        f"{settings.NAME}{platform.system.suffix}": module,
        f"{folder}/METADATA": info.encode(),
        f"{folder}/WHEEL": f"Wheel-Version: 1.0\nGenerator: dmlgpu\nRoot-Is-Purelib: false\n{tags}".encode(),
        f"{folder}/licenses/LICENSE": (tree / "LICENSE").read_bytes(),
        f"{folder}/sboms/{settings.NAME}.cdx.json": (tree / "sbom.cdx.json").read_bytes(),
    }
    for licence in (tree / "licenses").iterdir():
        files[f"{folder}/licenses/licenses/{licence.name}"] = licence.read_bytes()
    record = ""
    for path, content in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        record += f"{path},sha256={digest},{len(content)}\n"
    files[f"{folder}/RECORD"] = f"{record}{folder}/RECORD,,\n".encode()
    path = out / wheel_name(cpython, platform)
    with zipfile.ZipFile(path, "w") as archive:
        for member, content in sorted(files.items()):
            entry = zipfile.ZipInfo(member)
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED, 9)
    print(path, f"{path.stat().st_size >> 10} KiB", flush=True)


def wheel_name(cpython: Python, platform: Platform) -> str:
    """The file name of a wheel."""
    return f"{settings.NAME}-{settings.VERSION}-{cpython.tag}-{cpython.tag}-{platform.tags}.whl"


def copied(cpython: Python, platform: Platform, built: Path | None, out: Path) -> bool:
    """Copies the wheel for a Python and a platform, if it was built before; returns whether it was."""
    name = wheel_name(cpython, platform)
    if built is None or not (built / name).exists():
        return False
    shutil.copy(built / name, out)
    print(out / name, "was built before", flush=True)
    return True


def write_for_tests(module: bytes, cpython: Python, python: Path, out: Path) -> None:
    """Writes a folder for `sys.path` with the original kp, and with tests/refusals.c compiled."""
    new = out / "new"
    shutil.rmtree(new, ignore_errors=True)
    info = new / f"kp-{settings.KOMPUTE}.dist-info"
    info.mkdir(parents=True)
    shutil.copy(unpacked("sources.txt", python) / "PKG-INFO", info / "METADATA")
    (new / "kp.so").write_bytes(module)
    options = "-shared", "-fPIC", "-O1", "-fno-sanitize=all"
    run(python, "-m", "ziglang", "cc", *options, ROOT / "tests/refusals.c", "-o", new / "refusals.so", **ZIG)
    new.rename(out / f"tests-{cpython.tag}")


def main() -> None:
    """Builds the wheels and folders that the arguments select."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the folder for all that is built")
    parser.add_argument(
        "--platforms", nargs="+", choices=PLATFORMS, default=[*PLATFORMS], help="of the wheels; default: all"
    )
    parser.add_argument("--pythons", nargs="+", default=[*PYTHONS], help="of the wheels; default: all that are found")
    parser.add_argument("--here", action="store_true", help="only the wheel for this Python and machine")
    parser.add_argument("--built", type=Path, help="a folder with wheels of the same sources, which are copied")
    parser.add_argument("--tests", action="store_true", help="also the folder that only tests need")
    arguments = parser.parse_args()
    out = arguments.out.resolve()

    wanted = [] if arguments.here else arguments.pythons
    installed = [headers(name) for name in (sys.executable, *(f"python{version}" for version in wanted))]
    pythons = {
        python.version: python for python in installed if python and (arguments.here or python.version in wanted)
    }
    for version in wanted:
        if version not in pythons and (downloaded := headers_of_sources(version)):
            pythons[version] = downloaded
    missing = [version for version in wanted if version not in pythons]
    if not pythons:
        sys.exit("There is no Python with headers (Debian: libpython3-dev)")
    if missing:
        # No error, because the wheels for the others are built.
        print(
            f"Wheels for Python {', '.join(pythons)}; none for {', '.join(missing)}, which are not on PATH with "
            "Python.h, nor in pythons.txt and Debian",
            flush=True,
        )

    TOOLCHAIN.mkdir(parents=True, exist_ok=True)
    out.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    python = tools()
    unpacked("sources.txt", python), unpacked("headers.txt", python)
    print(f"Downloaded the compiler and the sources ({time.monotonic() - begin:.0f} s)", flush=True)

    def make(plain: bool) -> None:
        tree = TOOLCHAIN / ("plain" if plain else "tree")
        lay_out(tree, python, plain=plain)
        info = "" if plain else metadata(tree, python)
        if not arguments.here:
            write_sdist(tree, info, out / "source")
        for name in [f"manylinux_{platform.machine()}"] if arguments.here else arguments.platforms:
            missing_wheels = [
                cpython for cpython in pythons.values() if not copied(cpython, PLATFORMS[name], arguments.built, out)
            ]
            for cpython, module in build(tree, python, name, missing_wheels, plain=plain).items():
                if plain:
                    write_for_tests(module, cpython, python, out)
                else:
                    write_wheel(module, cpython, PLATFORMS[name], tree, info, out)
        shutil.rmtree(tree)

    tags = [cpython.tag for cpython in pythons.values()]
    exists = arguments.here and any(out.glob(f"{settings.NAME}-*-{tags[0]}-*.whl"))
    with ThreadPoolExecutor() as pool:
        list(pool.map(make, [False] * (not exists) + [True] * arguments.tests))


if __name__ == "__main__":
    main()
