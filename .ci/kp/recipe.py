"""Builds dmlgpu-kp: Kompute as wheels that need no compiler, and as a source distribution.

    python .ci/kp/recipe.py OUT                  # OUT/source, and a wheel for each Python and machine
    python .ci/kp/recipe.py OUT --here           # the wheel for this Python on this machine
    python .ci/kp/recipe.py OUT --here --tests   # that, and what only tests need; of both what OUT lacks

Everything comes from PyPI, pinned by hashes: Kompute, headers of Vulkan and fmt, pybind11, and as compiler Zig, which
brings the C library of any Linux. Only the headers of Python are those of interpreters that are found here. The same
sources give the same bytes, whatever the folder. All that this takes is in .cache/kp/toolchain, for the caller to
delete.
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
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import setup as settings

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TOOLCHAIN = ROOT / ".cache/kp/toolchain"
ZIG = {f"ZIG_{kind}_CACHE_DIR": str(TOOLCHAIN / "zig") for kind in ("GLOBAL", "LOCAL")}
MACHINES = ("x86_64", "aarch64")
PYTHONS = ("python3.10", "python3.11", "python3.12", "python3.13", "python3.14")
# manylinux2014. What it has beside libc.so.6 is part of the same C library.
GLIBC = (2, 17)
LIBRARIES = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libvulkan.so.1"}
LIBRARIES |= {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
# The time of every file in what is built: that of Kompute's release.
TIME = 1705795200


@dataclass(frozen=True)
class Python:
    """An interpreter whose headers are here."""

    version: str
    include: Path
    config: Path
    """pyconfig.h, which on Debian lies elsewhere."""

    @property
    def tag(self) -> str:
        """As in `cp311`."""
        return "cp" + self.version.replace(".", "")


def run(*command: object, cwd: Path | None = None, **variables: str) -> str:
    """What a command prints; it must end well."""
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env={**os.environ, **variables}, text=True, capture_output=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}exit code {done.returncode}")
    return done.stdout


# What is needed


def tools() -> Path:
    """The Python of a virtual environment with what `tools.txt` pins."""
    wanted = HERE / "tools.txt"
    state = f"{sys.version} {sys.base_prefix} {TOOLCHAIN} {hashlib.sha256(wanted.read_bytes()).hexdigest()}"
    folder = TOOLCHAIN / "tools"
    python, mark = folder / "bin/python", folder / "state"
    if not mark.exists() or mark.read_text() != state:
        shutil.rmtree(folder, ignore_errors=True)
        run(sys.executable, "-m", "venv", folder)
        options = "--no-deps", "--no-cache-dir", "--only-binary", ":all:", "--require-hashes"
        run(python, "-m", "pip", "install", *options, "-r", wanted)
        mark.write_text(state)
    return python


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
        with tarfile.open(archive) as tar:
            tar.extractall(new, filter="data") if hasattr(tarfile, "data_filter") else tar.extractall(new)
        archive.unlink()
        new.rename(folder)
    (content,) = folder.iterdir()
    return content


def headers(python: str) -> Python | None:
    """An interpreter, where it is one and its headers are there."""
    program = """
import json, sys, sysconfig
variable = sysconfig.get_config_var
print(json.dumps(["%d.%d" % sys.version_info[:2], sysconfig.get_path("include"), variable("MULTIARCH") or ""]))
"""
    path = shutil.which(python)
    done = path and subprocess.run([path, "-c", program], text=True, capture_output=True, check=False)
    if not done or done.returncode:
        return None
    version, folder, triplet = json.loads(done.stdout)
    include = Path(folder)
    # Debian's are apart, so that headers of several architectures can be installed.
    configs = include.parent / triplet / include.name / "pyconfig.h", include / "pyconfig.h"
    found = Python(version, include, next(filter(Path.exists, configs), configs[-1]))
    return found if (found.include / "Python.h").exists() and found.config.exists() else None


# The source


def lay_out(tree: Path, python: Path, *, plain: bool) -> None:
    """Puts everything that is compiled into a new folder, with the patches unless `plain`."""
    kompute, older = unpacked("sources.txt", python), unpacked("headers.txt", python)
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(kompute / "src", tree / "src")
    shutil.copytree(kompute / "python/src", tree / "python/src")
    shutil.copytree(older / "external/fmt/include/fmt", tree / "external/fmt/fmt")
    (tree / "external/vulkan/vulkan").mkdir(parents=True)
    for name in "vulkan.hpp", "vulkan.h", "vulkan_core.h", "vk_platform.h":
        shutil.copy(older / "external/Vulkan-Headers/include/vulkan" / name, tree / "external/vulkan/vulkan")
    (tree / "external/shaders").mkdir()
    for shader in (tree / "src/shaders/glsl").glob("*.hpp.in"):
        shutil.copy(shader, tree / "external/shaders" / shader.stem)
    shutil.copy(kompute / "LICENSE", tree)
    bindings = run(python, "-c", "import pybind11; print(pybind11.__path__[0])").strip()
    zig = run(python, "-c", "import ziglang; print(ziglang.__path__[0])").strip()
    (tree / "licenses").mkdir()
    for name, licence in {
        "fmt": older / "external/fmt/LICENSE.rst",
        "Vulkan-Headers": older / "external/Vulkan-Headers/LICENSE.txt",
        "pybind11": next(Path(bindings).parent.glob("pybind11-*.dist-info")) / "LICENSE",
        "libcxx": Path(zig) / "lib/libcxx/LICENSE.TXT",
        "libcxxabi": Path(zig) / "lib/libcxxabi/LICENSE.TXT",
        "libunwind": Path(zig) / "lib/libunwind/LICENSE.TXT",
        "zig": Path(zig) / "LICENSE",
    }.items():
        shutil.copy(licence, tree / "licenses" / f"{name}.txt")
    shutil.copy(HERE / settings.LIBRARY, tree)
    if not plain:
        # Git takes no notice of a file outside the repository that it finds: it must not find ours.
        ceiling = {"GIT_CEILING_DIRECTORIES": str(tree.parent)}
        for patch in sorted((HERE / "patches").iterdir()):
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


def build(tree: Path, python: Path, machine: str, pythons: list[Python], *, plain: bool) -> dict[Python, bytes]:
    """The compiled module for each of these Pythons on a machine."""
    name, version = ("kp", settings.KOMPUTE) if plain else (settings.NAME, settings.VERSION)
    objects = Path("build", machine)
    (tree / objects).mkdir(parents=True)
    bindings = Path(run(python, "-c", "import pybind11; print(pybind11.get_include())").strip())
    if not (tree / "build/pybind11").exists():
        shutil.copytree(bindings, tree / "build/pybind11")

    def zig(tool: str, *arguments: object) -> None:
        run(python, "-m", "ziglang", tool, "-target", f"{machine}-linux-gnu.2.17", *arguments, cwd=tree, **ZIG)

    # All paths are relative: none gets into what is compiled.
    flags = [*settings.FLAGS, "-fno-sanitize=all", *(f"-D{key}={value}" for key, value in settings.MACROS.items())]
    flags += [f"-I{folder}" for folder in settings.INCLUDES]

    # Small rather than fast is only what comes with Zig: the C++ library.
    link = "-shared", "-s", "-Os", *settings.LINK_FLAGS

    def build_library_of_zig() -> None:
        # Zig makes it from source at the first link, on one core, and keeps it.
        (tree / objects / "empty.cpp").touch()
        zig("c++", *link, objects / "empty.cpp", "-o", objects / "empty.so")

    def translate(source: str, target: Path, *more: str) -> Path:
        zig("c++", *flags, *more, "-c", source, "-o", target)
        return target

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        first = pool.submit(build_library_of_zig)
        bound = {}
        for found in pythons:
            include = Path("build", found.tag)
            if not (tree / include).exists():
                # Those of x86_64 serve aarch64 too. In Debian's two pyconfig.h of one version are four differences:
                # HAVE_GCC_ASM_FOR_X64 and _X87, HAVE_USABLE_WCHAR_T, PY_SUPPORT_TIER; no public header uses them.
                shutil.copytree(found.include, tree / include)
                (tree / include / "pyconfig.h").unlink(missing_ok=True)
                shutil.copy(found.config, tree / include / "pyconfig.h")
            more = f"-I{include}", "-Ibuild/pybind11", f'-DVERSION_INFO="{version}"'
            bound[found] = pool.submit(translate, settings.BINDINGS, objects / f"{found.tag}.o", *more)
        library = pool.submit(translate, settings.LIBRARY, objects / "kompute.o")

    # What is linked with, in place of a Vulkan loader: functions with its names.
    declared = (tree / "external/vulkan/vulkan/vulkan_core.h").read_text()
    functions = sorted(set(re.findall(r"VKAPI_CALL (vk\w+)\(", declared)))
    (tree / objects / "loader.c").write_text("".join(f"void {function}(void) {{}}\n" for function in functions))
    loader = objects / "libvulkan.so.1"
    zig("cc", "-shared", "-nostdlib", "-Wl,-soname,libvulkan.so.1", objects / "loader.c", "-o", loader)

    first.result()
    modules = {}
    for found, translated in bound.items():
        module = objects / f"{name}.{found.tag}.so"
        zig("c++", *link, translated.result(), library.result(), loader, "-o", module)
        content = (tree / module).read_bytes()
        check(content)
        modules[found] = content
    return modules


def check(module: bytes) -> None:
    """Ends the program where a module needs more than manylinux2014 has, or knows this folder."""
    needed = {name.decode() for name in re.findall(rb"\0((?:lib|ld-linux)[\w+.-]*\.so\.\d+)(?=\0)", module)}
    versions = {tuple(map(int, version.split(b"."))) for version in re.findall(rb"\0GLIBC_([\d.]+)(?=\0)", module)}
    if not needed <= LIBRARIES or not versions or max(versions) > GLIBC:
        sys.exit(f"the module needs {needed - LIBRARIES or max(versions)}, which manylinux2014 has not")
    for path in HERE.parents[1], Path.home():
        # With what ends it: a name of one letter is found in any module.
        if len(path.parts) > 1 and os.fsencode(f"{path}/") in module:
            sys.exit(f"the module names {path}")


def write_wheel(module: bytes, found: Python, machine: str, tree: Path, info: str, out: Path) -> None:
    """A wheel with one module."""
    platforms = f"manylinux2014_{machine}", "manylinux_{}_{}_{}".format(*GLIBC, machine)
    folder = f"{settings.NAME}-{settings.VERSION}.dist-info"
    tags = "".join(f"Tag: {found.tag}-{found.tag}-{platform}\n" for platform in platforms)
    files = {
        f"{settings.NAME}.cpython-{found.tag[2:]}-{machine}-linux-gnu.so": module,
        f"{folder}/METADATA": info.encode(),
        f"{folder}/WHEEL": f"Wheel-Version: 1.0\nGenerator: dmlgpu\nRoot-Is-Purelib: false\n{tags}".encode(),
        f"{folder}/licenses/LICENSE": (tree / "LICENSE").read_bytes(),
    }
    for licence in (tree / "licenses").iterdir():
        files[f"{folder}/licenses/licenses/{licence.name}"] = licence.read_bytes()
    record = ""
    for path, content in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        record += f"{path},sha256={digest},{len(content)}\n"
    files[f"{folder}/RECORD"] = f"{record}{folder}/RECORD,,\n".encode()
    path = out / f"{settings.NAME}-{settings.VERSION}-{found.tag}-{found.tag}-{'.'.join(platforms)}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, content in sorted(files.items()):
            entry = zipfile.ZipInfo(member)
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED, 9)
    print(path, f"{path.stat().st_size >> 10} KiB", flush=True)


def write_for_tests(module: bytes, found: Python, machine: str, python: Path, out: Path) -> None:
    """A folder with kp as it is, where `sys.path` may find it, and with tests/refusals.c compiled."""
    new = out / "new"
    shutil.rmtree(new, ignore_errors=True)
    info = new / f"kp-{settings.KOMPUTE}.dist-info"
    info.mkdir(parents=True)
    shutil.copy(unpacked("sources.txt", python) / "PKG-INFO", info / "METADATA")
    (new / f"kp.cpython-{found.tag[2:]}-{machine}-linux-gnu.so").write_bytes(module)
    options = "-shared", "-fPIC", "-O1", "-fno-sanitize=all"
    run(python, "-m", "ziglang", "cc", *options, ROOT / "tests/refusals.c", "-o", new / "refusals.so", **ZIG)
    new.rename(out / f"tests-{found.tag}")


def main() -> None:
    """Builds what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the folder of what is built")
    parser.add_argument("--here", action="store_true", help="only the wheel for this Python and machine")
    parser.add_argument("--tests", action="store_true", help="and what only tests need, for the same")
    arguments = parser.parse_args()
    out = arguments.out.resolve()

    found = [headers(name) for name in (sys.executable, *(() if arguments.here else PYTHONS))]
    pythons = {python.version: python for python in found if python is not None}
    missing = [name for name in PYTHONS if name.removeprefix("python") not in pythons]
    if not pythons:
        sys.exit("There is no Python with headers (Debian: libpython3-dev)")
    if missing and not arguments.here:
        # Not a fault: others are there.
        print(
            f"Wheels for Python {', '.join(pythons)}; none for {', '.join(missing)}, which are not on PATH or lack "
            "Python.h",
            flush=True,
        )

    TOOLCHAIN.mkdir(parents=True, exist_ok=True)
    out.mkdir(parents=True, exist_ok=True)
    python = tools()

    def make(plain: bool) -> None:
        tree = TOOLCHAIN / ("plain" if plain else "tree")
        lay_out(tree, python, plain=plain)
        info = "" if plain else metadata(tree, python)
        if not arguments.here:
            write_sdist(tree, info, out / "source")
        for machine in [platform.machine()] if arguments.here else MACHINES:
            for built, module in build(tree, python, machine, [*pythons.values()], plain=plain).items():
                if plain:
                    write_for_tests(module, built, machine, python, out)
                else:
                    write_wheel(module, built, machine, tree, info, out)
        shutil.rmtree(tree)

    unpacked("sources.txt", python), unpacked("headers.txt", python)
    tags = [found.tag for found in pythons.values()]
    kept = arguments.here and any(out.glob(f"{settings.NAME}-*-{tags[0]}-*.whl"))
    with ThreadPoolExecutor() as pool:
        list(pool.map(make, [False] * (not kept) + [True] * arguments.tests))


if __name__ == "__main__":
    main()
