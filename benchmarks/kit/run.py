"""Tests and measures dmlgpu on a machine with a GPU, from the kit that `make gpu-kit` makes.

    python3 run.py KIT OUTPUT

KIT is the folder with this file, OUTPUT the one that results go to: at most 8 files, summary.md last. Nothing is
installed, no network and no compiler are needed. Each step is a process of its own: one that fails, hangs or crashes is
reported, and the next begins. The exit code is 1 where a step did not do well, and 2 where none could be done.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

MINUTES = 8.5
# Left for the summary.
_RESERVE = 10.0
_LOG_BYTES, _FILE_BYTES = 512 << 10, 16 << 20
_MANIFESTS = (
    "/etc/vulkan/icd.d",
    "/usr/local/etc/vulkan/icd.d",
    "/usr/local/share/vulkan/icd.d",
    "/usr/share/vulkan/icd.d",
    "~/.local/share/vulkan/icd.d",
    "/usr/local/nvidia/share/vulkan/icd.d",
)
_NVIDIA_LIBRARIES = ("/usr/local/nvidia/lib64", "/usr/local/nvidia/lib")
# A driver in a container may have lost its manifest.
_NVIDIA_DRIVERS = ("libGLX_nvidia.so.0", "libEGL_nvidia.so.0")
_PREFERENCE = ("discrete", "integrated", "virtual", "other", "cpu")
_TESTS = tuple(f"device/test_{name}.py" for name in ("mappings", "hashes", "values", "layouts", "windows", "cases"))
# The least that draws them, as in pyproject.toml.
_MATPLOTLIB = (3, 8)
_MEASURED = ("benchmark", "scale")
_PEERS = "usual,torch-cuda,cupy"
_CLOCKS = (
    "name driver_version pstate clocks.sm clocks.mem clocks.max.sm clocks.max.mem power.draw power.limit "
    "temperature.gpu utilization.gpu memory.used"
)
_SYSFS_CLOCKS = ("pp_dpm_sclk", "pp_dpm_mclk", "gt_cur_freq_mhz", "gt_act_freq_mhz")

OK, FAILED, TIMED_OUT, NOT_RUN = "ok", "failed", "timed out", "not run"


@dataclass
class Step:
    """What was done, and how that went."""

    name: str
    state: str
    seconds: float = 0.0
    detail: str = ""


@dataclass
class Results:
    """All that results.json holds."""

    kit: dict[str, Any] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    drivers: list[dict[str, Any]] = field(default_factory=list)
    device: dict[str, Any] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    doctor: dict[str, Any] = field(default_factory=dict)
    tests: dict[str, Any] = field(default_factory=dict)
    breakdown: dict[str, Any] = field(default_factory=dict)
    clocks: list[dict[str, str]] = field(default_factory=list)


class Runner:
    """The steps of a run, and what they share."""

    def __init__(self, kit: Path, output: Path, temporary: Path, seconds: float) -> None:
        self.kit, self.output, self.temporary = kit, output, temporary
        self.end = time.monotonic() + seconds
        self.results = Results()
        self.log = output / "log.txt"
        for old in (
            "summary.md",
            "results.json",
            *(f"{name}.{kind}" for name in _MEASURED for kind in ("json", "png")),
        ):
            (output / old).unlink(missing_ok=True)
        self.log.write_text("", encoding="utf-8")
        self.environment = {
            **os.environ,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "COLUMNS": "160",
            # No traces in the home folder, and no shaders of an earlier run.
            "MESA_SHADER_CACHE_DIR": str(temporary / "shaders"),
            "__GL_SHADER_DISK_CACHE_PATH": str(temporary),
        }
        for variable in ("DMLGPU_VERIFY", "DMLGPU_LOG", "DMLGPU_DEVICE", "DMLGPU_TEST_DRIVERS"):
            self.environment.pop(variable, None)

    @property
    def left(self) -> float:
        return self.end - time.monotonic() - _RESERVE

    def note(self, name: str, state: str, seconds: float = 0.0, detail: str = "") -> None:
        self.results.steps.append(Step(name, state, seconds, detail))
        print(f"{name}: {state}{f', {detail}' if detail else ''} ({seconds:.1f} s)", flush=True)

    def process(self, name: str, arguments: Sequence[str], limit: float, **variables: str) -> tuple[Step, str]:
        """Runs Python; how that went, and what it wrote to stdout. All that it wrote goes to the log."""
        command = [sys.executable, *arguments]
        out, err = self.temporary / "stdout", self.temporary / "stderr"
        limit = min(limit, self.left)
        begin = time.monotonic()
        if limit <= 0:
            return Step(name, NOT_RUN, detail="the time was over"), ""
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                command,
                cwd=self.kit / "source",
                env={**self.environment, **variables},
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
            try:
                code = process.wait(limit)
                state, detail = (OK, "") if code == 0 else (FAILED, f"exit code {code}")
                if code < 0:
                    detail = f"signal {-code} ({signal.strsignal(-code)})"
            except subprocess.TimeoutExpired:
                state, detail = TIMED_OUT, f"after {limit:.0f} s"
            finally:
                _kill(process)
        seconds = time.monotonic() - begin
        text, errors = _tail(out), _tail(err)
        if state == FAILED and errors.strip():
            detail += f": {errors.strip().splitlines()[-1][:300]}"
        with self.log.open("a", encoding="utf-8") as log:
            log.write(f"===== {name}: {' '.join(arguments)}: {state} {detail} ({seconds:.1f} s)\n{text}\n")
            if errors:
                log.write(f"----- stderr\n{errors}\n")
        return Step(name, state, seconds, detail), text

    def step(self, name: str, arguments: Sequence[str], limit: float, **variables: str) -> tuple[Step, str]:
        """As `process`, and noted; the clocks right after it too."""
        done, text = self.process(name, arguments, limit, **variables)
        self.note_step(done)
        return done, text

    def note_step(self, done: Step) -> None:
        self.note(done.name, done.state, done.seconds, done.detail)
        self.results.clocks += clocks(done.name)

    def json_step(self, name: str, arguments: Sequence[str], limit: float) -> dict[str, Any]:
        """What a step writes as JSON, whatever its exit code."""
        _, text = self.step(name, arguments, limit)
        try:
            found = json.loads(text)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Ends a process and all that it started; one that hangs in a driver is left alone."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:
        return
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)


def _tail(path: Path) -> str:
    """The end of a file, of no more bytes than the log takes."""
    content = path.read_bytes()
    return ("[...]\n" if len(content) > _LOG_BYTES else "") + content[-_LOG_BYTES:].decode(errors="replace")


# What the machine has


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:3]))


def version_of(package: str) -> str:
    """The version that this Python has; empty where it has none."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def unpack(runner: Runner) -> None:
    """Unpacks the wheels that the machine lacks, where its Python finds them; everything else stays its own."""
    begin = time.monotonic()
    site = runner.temporary / "site"
    taken, own = [], []
    for wheel in runner.results.kit["wheels"]:
        there = version_of(wheel["name"])
        if wheel["least"] is not None and there and numbers(there) >= numbers(wheel["least"]):
            own.append(f"{wheel['name']} {there}")
            continue
        with zipfile.ZipFile(runner.kit / "wheels" / wheel["file"]) as archive:
            archive.extractall(site)
        taken.append(f"{wheel['name']} {wheel['version']}")
    paths = [str(site), str(runner.kit / "source"), os.environ.get("PYTHONPATH", "")]
    runner.environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    runner.results.machine["packages of the kit"] = taken
    runner.results.machine["packages of the machine"] = own
    runner.note("unpack", OK, time.monotonic() - begin, f"{len(taken)} packages of the kit, {len(own)} of the machine")


def libraries(runner: Runner) -> None:
    """Lets programs find NVIDIA's libraries, and of the kit's libraries those that the machine lacks."""
    folders = [os.environ.get("LD_LIBRARY_PATH", ""), *(f for f in _NVIDIA_LIBRARIES if os.path.isdir(f))]
    runner.environment["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, folders))
    names = sorted(path.name for path in (runner.kit / "lib").iterdir())
    program = "import ctypes, sys\nfor name in sys.argv[1:]:\n try: ctypes.CDLL(name)\n except OSError: print(name)"
    done, text = runner.process("libraries", ["-c", program, *names], 20)
    missing = [name for name in names if name in text.split()] if done.state == OK else names
    folder = runner.temporary / "lib"
    folder.mkdir()
    for name in missing:
        shutil.copy(runner.kit / "lib" / name, folder)
    runner.environment["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [*folders, str(folder)]))
    runner.results.machine["libraries of the kit"] = missing
    runner.note("libraries", done.state, done.seconds, f"of the kit: {', '.join(missing) or 'none'}")


def manifests(named: str | None) -> list[Path]:
    """The manifests of Vulkan drivers: those that are named, by the option or by a variable, or all there are."""
    given = named or os.environ.get("VK_DRIVER_FILES") or os.environ.get("VK_ICD_FILENAMES")
    if given:
        return [Path(part).absolute() for part in given.split(os.pathsep) if part]
    folders = [Path(folder).expanduser() for folder in _MANIFESTS]
    return [manifest for folder in folders for manifest in sorted(folder.glob("*.json"))]


def ask_driver(runner: Runner, manifest: Path) -> list[dict[str, Any]]:
    """The devices of a driver, asked in a process of its own."""
    variables = {name: str(manifest) for name in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")}
    done, text = runner.process(f"driver {manifest}", ["-m", "dmlgpu", "devices", "--json"], 30, **variables)
    try:
        devices = json.loads(text) if done.state == OK else []
    except ValueError:
        devices = []
    runner.results.drivers.append(
        {"manifest": str(manifest), "state": done.state, "detail": done.detail, "devices": [d["name"] for d in devices]}
    )
    return [{**device, "manifest": str(manifest)} for device in devices]


def find_device(runner: Runner, wanted: str | None, driver: str | None) -> bool:
    """Chooses a device: the wanted one, else the first of the best type."""
    begin = time.monotonic()
    found = [device for manifest in manifests(driver) for device in ask_driver(runner, manifest)]
    if all(device["type"] == "cpu" for device in found) and not driver and list(Path("/dev").glob("nvidia[0-9]*")):
        for library in _NVIDIA_DRIVERS:
            manifest = runner.temporary / f"{library}.json"
            content = {"file_format_version": "1.0.0", "ICD": {"library_path": library, "api_version": "1.3.0"}}
            manifest.write_text(json.dumps(content))
            found += ask_driver(runner, manifest)
    if wanted:
        uuid = wanted.lower().replace("-", "")
        found = [d for d in found if wanted.lower() in d["name"].lower() or uuid == d["uuid"]]
    found.sort(key=lambda d: (_PREFERENCE.index(d["type"]), "SwiftShader" in d["driver"]))
    seconds = time.monotonic() - begin
    if not found:
        why = "; ".join(f"{d['manifest']}: {d['detail'] or d['state']}" for d in runner.results.drivers)
        runner.note("device", FAILED, seconds, f"no such device ({why or 'no manifest of a Vulkan driver was found'})")
        return False
    device = runner.results.device = found[0]
    for name in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES", "DMLGPU_TEST_ONLY"):
        runner.environment[name] = device["manifest"]
    for name in ("DMLGPU_DEVICE", "DMLGPU_TEST_DEVICE"):
        runner.environment[name] = device["uuid"]
    runner.note("device", OK, seconds, f"{device['name']} ({device['type']}), {device['driver']}")
    return True


def describe_machine() -> dict[str, Any]:
    cpu = re.search(r"^model name\s*:\s*(.*)$", _read("/proc/cpuinfo"), re.MULTILINE)
    memory = re.search(r"^MemTotal:\s*(\d+)", _read("/proc/meminfo"), re.MULTILINE)
    name = re.search(r'^PRETTY_NAME="?([^"\n]*)', _read("/etc/os-release"), re.MULTILINE)
    packages = ("numpy", "torch", "cupy", "cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x", "matplotlib")
    return {
        "system": name[1] if name else platform.system(),
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
        "cpu": cpu[1] if cpu else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory MiB": int(memory[1]) >> 10 if memory else None,
        "packages": {package: version_of(package) for package in packages if version_of(package)},
    }


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def clocks(when: str) -> list[dict[str, str]]:
    """The clocks of every GPU as they are; nothing is set."""
    program = shutil.which("nvidia-smi") or shutil.which("nvidia-smi", path="/usr/local/nvidia/bin")
    rows = []
    if program:
        names = _CLOCKS.split()
        query = [program, f"--query-gpu={','.join(names)}", "--format=csv,noheader"]
        try:
            text = subprocess.run(query, capture_output=True, text=True, timeout=10, check=False).stdout
        except (OSError, subprocess.TimeoutExpired):
            text = ""
        for line in text.splitlines():
            values = [value.strip() for value in line.split(",")]
            if len(values) == len(names):
                rows.append({"after": when, **dict(zip(names, values, strict=True))})
    for file in sorted(Path("/sys/class/drm").glob("card*/device/*")) if Path("/sys/class/drm").is_dir() else []:
        if file.name in _SYSFS_CLOCKS:
            chosen = [line.rstrip(" *") for line in _read(str(file)).splitlines() if line.endswith("*")]
            rows.append({"after": when, "name": f"{file.parts[4]} {file.name}", "clocks": "; ".join(chosen)})
    return rows


# The steps


def measure(runner: Runner) -> None:
    """Everything that needs the device; one part that fails leaves the others alone."""
    for part in (_facts, _doctor, _verify, _tests, _breakdown, _benchmark, _scale, _plots):
        try:
            part(runner)
        except Exception as error:
            runner.note(part.__name__.strip("_"), FAILED, detail=repr(error))


def _facts(runner: Runner) -> None:
    runner.results.facts = runner.json_step("facts", ["-m", "benchmarks.kit.facts"], 20)


def _doctor(runner: Runner) -> None:
    runner.results.doctor = runner.json_step("doctor", ["-m", "dmlgpu", "doctor", "--json"], 45)


def _verify(runner: Runner) -> None:
    runner.step("verify", ["-m", "dmlgpu", "verify"], 90)


def _tests(runner: Runner) -> None:
    limit = 0.3 * runner.left
    file = runner.temporary / "tests.json"
    options = ["-q", "-m", "device", "-p", "no:cacheprovider", "-p", "benchmarks.kit.progress", "--tb=short"]
    variables = {"DMLGPU_KIT_TESTS": str(file), "DMLGPU_KIT_SECONDS": f"{0.85 * limit:.0f}"}
    done, _ = runner.process("tests", ["-m", "pytest", *options, *(f"tests/{t}" for t in _TESTS)], limit, **variables)
    found = runner.results.tests = _json(file)
    if found:
        counts = "{passed} passed, {failed} failed, {skipped} skipped of {of}".format(**found)
        # Pytest's exit code is not 0 where the time was over.
        if done.state == FAILED and not found["failed"] and not found["running"]:
            done.state, done.detail = OK, "" if found["complete"] else "the time was over"
        running = f"ended in {found['running']}" if found["running"] else ""
        done.detail = "; ".join(filter(None, [counts, done.detail, running]))
    runner.note_step(done)


def _breakdown(runner: Runner) -> None:
    runner.results.breakdown = runner.json_step("profile", ["-m", "benchmarks.kit.breakdown"], 40)


def _benchmark(runner: Runner) -> None:
    _measured(runner, "benchmark", ["--rounds", "9", "--seconds", "1"], 0.6 * runner.left)


def _scale(runner: Runner) -> None:
    _measured(runner, "scale", ["--scale", "--rounds", "5", "--seconds", "0.5"], 0.85 * runner.left)


def _measured(runner: Runner, name: str, options: list[str], limit: float) -> None:
    # What began before the time is over should end within the limit.
    soft = max(1.0, 0.5 * limit, limit - 25)
    file = runner.output / f"{name}.json"
    common = ["-m", "benchmarks", "--peers", _PEERS, "--keep-going", "--limit", f"{soft:.0f}", "--json", str(file)]
    done, _ = runner.process(name, [*common, *options], limit)
    saved = _json(file)
    left_out = saved.get("header", {}).get("left out")
    parts = [f"{len(saved.get('results', []))} cases", left_out and f"left out are {left_out}", done.detail]
    done.detail = "; ".join(filter(None, parts))
    runner.note_step(done)
    # Of what a run has saved, also where it did not come to its end.
    runner.process(
        f"tables of {name}", ["-m", "benchmarks", "show", str(file), "--markdown", str(_tables(runner, name))], 20
    )


def _tables(runner: Runner, name: str) -> Path:
    return runner.temporary / f"{name}.md"


def _plots(runner: Runner) -> None:
    if numbers(version_of("matplotlib")) < _MATPLOTLIB:
        needed = ".".join(map(str, _MATPLOTLIB))
        runner.note("plots", NOT_RUN, detail=f"no matplotlib {needed}; python -m benchmarks show draws them elsewhere")
        return
    for name in _MEASURED:
        file = runner.output / f"{name}.json"
        if file.exists():
            plot = ["--plot", str(file.with_suffix(".png"))]
            runner.step(f"plot of {name}", ["-m", "benchmarks", "show", str(file), *plot], 30)


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


# The summary


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    def written(cells: Sequence[object]) -> str:
        return f"| {' | '.join(str(cell).replace('|', '/').replace(chr(10), ' ') for cell in cells)} |"

    return "\n".join(map(written, [columns, ["---"] * len(columns), *rows]))


def summary(runner: Runner) -> str:
    """All of it on one page."""
    r = runner.results
    parts = [f"# dmlgpu on {r.device.get('name', 'no device')}"]
    if r.device.get("type") == "cpu":
        parts.append("No GPU was found: this is a driver that runs on the CPU.")
    parts.append(
        table(
            ("step", "state", "seconds", "what"),
            [(step.name, step.state, f"{step.seconds:.1f}", step.detail) for step in r.steps],
        )
    )
    parts.append("## Machine\n\n" + table(("", ""), [(k, _text(v)) for k, v in {**_made_by(r), **r.machine}.items()]))
    if r.device:
        parts.append("## Device\n\n" + table(("", ""), [(k, _text(v)) for k, v in r.device.items()]))
    if r.facts:
        heaps = [(i, *heap.values()) for i, heap in enumerate(r.facts["heaps"])]
        kinds = [(i, kind["heap"], ", ".join(kind["flags"])) for i, kind in enumerate(r.facts["memory types"])]
        parts.append(table(("heap", "MiB", "device local"), heaps))
        parts.append(table(("memory type", "heap", "flags"), kinds))
        parts.append(f"Queues: {_text(r.facts['queues'])}. Subgroups: {_text(r.facts['subgroup'])}.")
    if r.drivers:
        tried = [(d["manifest"], d["state"], ", ".join(d["devices"]), d["detail"]) for d in r.drivers]
        parts.append("## Drivers\n\n" + table(("manifest", "state", "devices", ""), tried))
    if r.clocks:
        names = list(dict.fromkeys(name for row in r.clocks for name in row))
        parts.append("## Clocks\n\n" + table(names, [[row.get(name, "") for name in names] for row in r.clocks]))
    wrong = [finding for finding in r.doctor.get("findings", []) if finding["state"] != "ok"]
    if wrong:
        rows = [(finding["subject"], finding["state"], finding["text"]) for finding in wrong]
        parts.append("## What doctor found\n\n" + table(("what", "state", "found"), rows))
    for failure in r.tests.get("failures", [])[:5]:
        parts.append(f"## Failed: {failure['test']}\n\n```\n{failure['text']}\n```")
    if r.breakdown:
        parts.append("## A call on the host\n\nMedians, in microseconds.\n\n" + _breakdown_tables(r.breakdown))
    for name in _MEASURED:
        if _tables(runner, name).exists():
            parts.append(f"## {name.capitalize()}\n\n{_tables(runner, name).read_text(encoding='utf-8')}")
    return "\n\n".join(parts) + "\n"


def _made_by(results: Results) -> dict[str, Any]:
    return {"kit": ", ".join(f"{name} {results.kit[name]}" for name in ("dmlgpu", "commit") if results.kit.get(name))}


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(part)}" for name, part in value.items())
    return ", ".join(map(_text, value)) if isinstance(value, list) else str(value)


def _breakdown_tables(found: dict[str, Any]) -> str:
    cases = found["microseconds"]
    names = list(dict.fromkeys(name for parts in cases.values() for name in parts))
    rows = [(name, *(f"{parts[name]:.1f}" for parts in cases.values())) for name in names]
    text = table(("part", *cases), rows)
    numbers = ("own", "with callees", "times a call")
    for case, functions in found["profile"].items():
        lines = [(function["function"], *(f"{function[name]:.1f}" for name in numbers)) for function in functions]
        text += f"\n\n{case}, a call with arrays under Python's profiler:\n\n" + table(("function", *numbers), lines)
    return text


def finish(runner: Runner) -> int:
    """Writes results.json, and summary.md last; the exit code."""
    content = {"format": "dmlgpu kit 1", **asdict(runner.results)}
    (runner.output / "results.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    for path in runner.output.iterdir():
        if path.is_file() and path.stat().st_size > _FILE_BYTES:
            path.write_bytes(path.read_bytes()[:_FILE_BYTES])
    try:
        text = summary(runner)
    except Exception as error:  # what is in results.json must not be lost to how it is shown
        text = f"# dmlgpu\n\nThe summary could not be made: {error!r}. Everything is in results.json.\n"
    (runner.output / "summary.md").write_text(text, encoding="utf-8")
    print(f"Results: {runner.output / 'summary.md'}", flush=True)
    states = [step.state for step in runner.results.steps if step.name != "plots"]
    return 0 if set(states) == {OK} else 1 if runner.results.device else 2


def run_all(runner: Runner, device: str | None, driver: str | None) -> None:
    runner.results.machine = describe_machine()
    runner.results.clocks += clocks("nothing yet")
    unpack(runner)
    libraries(runner)
    if find_device(runner, device, driver):
        measure(runner)


def main() -> int:
    parser = argparse.ArgumentParser(description="Tests and measures dmlgpu on a GPU.")
    parser.add_argument("kit", metavar="KIT", type=Path, help="the folder that `make gpu-kit` made")
    parser.add_argument("output", metavar="OUTPUT", type=Path, help="the folder for results")
    parser.add_argument("--device", metavar="NAME|UUID", help="default: the first discrete GPU, else the best device")
    parser.add_argument("--driver", metavar="MANIFEST", help="the driver's manifest (default: all that are found)")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="for all of it (default: %(default)s)")
    args = parser.parse_args()
    kit = json.loads((args.kit / "kit.json").read_text(encoding="utf-8"))
    if kit["python"] != "{}.{}".format(*sys.version_info):
        other = shutil.which(f"python{kit['python']}")
        if other is None:
            print(f"This kit is for Python {kit['python']}; this is {platform.python_version()}.", file=sys.stderr)
            return 2
        os.execv(other, [other, *sys.argv])
    args.output.mkdir(parents=True, exist_ok=True)
    # A machine that is taken back says so: the summary is still written.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="dmlgpu-", ignore_cleanup_errors=True) as temporary:
        runner = Runner(args.kit.absolute(), args.output.absolute(), Path(temporary), 60 * args.minutes)
        runner.results.kit = kit
        try:
            run_all(runner, args.device, args.driver)
        except BaseException as error:  # also the end of the process: what there is must be written
            runner.note("run", FAILED, detail=repr(error))
        return finish(runner)


if __name__ == "__main__":
    sys.exit(main())
