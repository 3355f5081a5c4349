"""Tests and measures dmlgpu on this machine's GPU: see docs/gpu.md.

Each step is a separate process that prints into a file, so the others run even if one fails, ends or hangs.
"""

import argparse
import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

KIT = Path(__file__).resolve().parent
# Folders with Vulkan's manifests of drivers, in vulkan/icd.d.
ROOTS = ("/etc", "/usr/local/etc", "/usr/local/share", "/usr/share", "~/.local/share", "/usr/local/nvidia/share")
# Types of devices, the best first.
TYPES = ("discrete", "integrated", "virtual", "other", "cpu")
# Tests that need only pytest: every kernel and type first.
TESTS = ("mappings", "hashes", "values", "layouts", "windows", "cases")


def install(folder: Path) -> str:
    """The Python of a new virtual environment, which has the machine's packages, and those that dmlgpu needs."""
    wheels = KIT / "wheels"
    if not list(wheels.glob("dmlgpu_kp-*-cp{}{}-*.whl".format(*sys.version_info))):
        sys.exit(f"this kit is for another Python than {sys.version.split()[0]}: see wheels/dmlgpu_kp-*.whl")
    venv.create(folder, symlinks=True)
    # The packages of this Python, which may itself be in a virtual environment.
    packages = "\n".join(path for path in sys.path if path.endswith("-packages"))
    next(folder.glob("lib/python*/site-packages")).joinpath("machine.pth").write_text(packages + "\n")
    python = str(folder / "bin/python")
    # pip runs from its wheel, because many systems cannot install it into a virtual environment.
    pip = [python, str(next(wheels.glob("pip-*.whl")) / "pip"), "install", "-q", "--no-index", "--no-cache-dir"]
    ours = [str(wheel) for wheel in wheels.glob("dmlgpu*.whl")]
    subprocess.run([*pip, "--no-deps", "--force-reinstall", *ours], check=True)
    subprocess.run([*pip, "--find-links", str(wheels), "dmlgpu[cli]", "pytest"], check=True)
    return python


def environment(folder: Path) -> dict[str, str]:
    """The environment of all steps: with the kit's libraries that this machine lacks, and with caches in `folder`."""
    lib = folder / "lib"
    lib.mkdir()
    for file in (KIT / "lib").iterdir():
        try:
            ctypes.CDLL(file.name)
        except OSError:
            shutil.copy(file, lib)
    folders = [os.environ.get("LD_LIBRARY_PATH", ""), "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", str(lib)]
    return {
        **os.environ,
        "LD_LIBRARY_PATH": ":".join(filter(None, folders)),
        "MESA_SHADER_CACHE_DIR": str(folder),
        "__GL_SHADER_DISK_CACHE_PATH": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def manifests(folder: Path) -> list[Path]:
    """The manifests of all drivers, and one for NVIDIA's, which containers may lack."""
    nvidia = folder / "nvidia.json"
    driver = {"library_path": "libGLX_nvidia.so.0", "api_version": "1.3.0"}
    nvidia.write_text(json.dumps({"file_format_version": "1.0.0", "ICD": driver}))
    folders = [Path(root).expanduser() / "vulkan/icd.d" for root in ROOTS]
    return [*(file for place in folders for file in sorted(place.glob("*.json"))), nvidia]


def find_driver(python: str, drivers: list[Path], variables: dict[str, str], log: Path) -> dict[str, str]:
    """Environment variables that name one driver: the first one with a device of the best type."""
    best: dict[str, str] = {}
    best_type = len(TYPES)
    with log.open("w", encoding="utf-8") as file:
        for manifest in map(str, drivers):
            named = {"VK_DRIVER_FILES": manifest, "VK_ICD_FILENAMES": manifest, "DMLGPU_TEST_ONLY": manifest}
            command = [python, "-m", "dmlgpu", "devices", "--json"]
            try:
                done = subprocess.run(command, env={**variables, **named}, capture_output=True, text=True, timeout=60)
            except subprocess.TimeoutExpired:
                file.write(f"{manifest}\nno answer\n")
                continue
            file.write(f"{manifest}\n{done.stdout or done.stderr}\n")
            for device in json.loads(done.stdout) if done.returncode == 0 else []:
                if TYPES.index(device["type"]) < best_type:
                    best, best_type = named, TYPES.index(device["type"])
    if not best:
        sys.exit(f"no driver has a device: see {log}; --driver names a manifest")
    return best


def step(command: list[str], seconds: float, variables: dict[str, str], output: Path) -> str:
    """Runs a command for a limited time; returns a line with its result."""
    begin = time.monotonic()
    # Background processes of a shell ignore Ctrl-C, and their children inherit that, unless a handler is set.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with output.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(command, cwd=KIT, env=variables, stdout=file, stderr=file, start_new_session=True)
        try:
            code = process.wait(seconds)
            state = f"exit code {code}" if code else "ok"
        except subprocess.TimeoutExpired:
            state = "too slow"
            # pytest and the benchmarks then print their results so far.
            os.killpg(process.pid, signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return f"{output.stem}: {state} ({time.monotonic() - begin:.0f} s)"


def main() -> int:
    """Runs all steps; the exit code is 0 if all succeeded."""
    parser = argparse.ArgumentParser(description="Tests and measures dmlgpu on this machine's GPU.")
    parser.add_argument("results", type=Path, help="the folder of the results")
    parser.add_argument("--driver", metavar="MANIFEST", type=Path, help="default: that of the first discrete GPU")
    parser.add_argument("--minutes", type=float, default=8.5, help="for all steps (default: %(default)s)")
    args = parser.parse_args()
    end = time.monotonic() + 60 * args.minutes
    results = args.results.absolute()
    results.mkdir(parents=True, exist_ok=True)
    tests = [str(file) for name in TESTS for file in (KIT / "tests").rglob(f"test_{name}.py")]
    benchmarks = ["-m", "benchmarks", "--peers", "usual,torch-cuda", "--rounds", "9"]
    # The share of the remaining time that each step may use, and its arguments.
    steps = {
        "doctor": (0.1, ["-m", "dmlgpu", "doctor"]),
        "verify": (0.2, ["-m", "dmlgpu", "verify"]),
        "tests": (0.4, ["-m", "pytest", "-q", "-m", "device", "-p", "no:cacheprovider", *tests]),
        "benchmark": (0.6, [*benchmarks, "--seconds", "1"]),
        "large": (0.7, [*benchmarks, "--large", "--seconds", "0.5"]),
        "scale": (0.9, [*benchmarks, "--scale", "--seconds", "0.5"]),
    }
    with tempfile.TemporaryDirectory(prefix="dmlgpu-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        variables, python = environment(folder), install(folder / "venv")
        drivers = [args.driver.absolute()] if args.driver else manifests(folder)
        variables |= find_driver(python, drivers, variables, results / "drivers.txt")
        if "DMLGPU_DEVICE" in variables:
            variables["DMLGPU_TEST_DEVICE"] = variables["DMLGPU_DEVICE"]
        lines: list[str] = []
        for name, (share, arguments) in steps.items():
            seconds = max(1.0, share * (end - time.monotonic()))
            if "benchmarks" in arguments:
                saved = results / f"{name}.json"
                saved.unlink(missing_ok=True)
                arguments += ["--limit", f"{0.7 * seconds:.0f}", "--json", str(saved)]
            lines.append(step([python, *arguments], seconds, variables, results / f"{name}.txt"))
            print(lines[-1], flush=True)
            (results / "summary.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0 if all(": ok (" in line for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
