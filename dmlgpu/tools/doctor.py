"""What is broken, slow or odd on this machine, and how to mend it.

What loads drivers runs in processes of its own: a driver that ends its process, hangs or prints is a finding.
"""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from itertools import chain, islice, zip_longest
from pathlib import Path
from random import Random
from typing import Any

from dmlgpu.errors import DeviceError, SettingError
from dmlgpu.runtime import binding, manifests, spirv
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.drivers import DeviceInfo, choose, devices, loader_version, preference
from dmlgpu.runtime.packages import DRIVER, LOADER, NVIDIA, named
from dmlgpu.runtime.settings import level, setting, switch
from dmlgpu.tools.registry import OPERATORS
from dmlgpu.tools.selfcheck import Check, checks

OK, ODD, BROKEN = "ok", "odd", "broken"

_NUMPY = (1, 26)
# Cases of the exactness check: three of each operator, with all types among them. A device should take seconds.
_CASES = 3 * len(OPERATORS)
# Seconds that any process may take.
_TIMEOUT = 120.0
_LOADER = f"install the Vulkan loader again ({named(LOADER)})"
_DRIVER = f"install the driver again ({named(DRIVER)}; for NVIDIA, {named(NVIDIA)})"
_UNSET = "name manifests that exist in VK_DRIVER_FILES or VK_ICD_FILENAMES, or set neither"
# What Vulkan requires of every device.
_MINIMUMS = {
    "max_storage_buffer_range": 1 << 27,
    "max_memory_allocation_size": 1 << 30,
    "max_memory_allocation_count": 4096,
    "max_group_size": 128,
    "max_group_count": 65535,
}
# The oldest Mesa whose llvmpipe is not noted as slow.
_MESA = 25
# Variables that a bug report shows.
_PREFIXES = ("DMLGPU_", "VK_", "MESA_", "LP_", "LIBGL_", "NODEVICE_SELECT", "LD_LIBRARY_PATH", "XDG_DATA_DIRS")
# Layers that choose between devices, and cost nothing.
_CHEAP_LAYERS = ("VK_LAYER_MESA_device_select", "VK_LAYER_NV_optimus", "VK_LAYER_AMD_switchable_graphics_64")


@dataclass(frozen=True)
class Finding:
    """What was found of one thing."""

    subject: str
    state: str
    """OK; ODD: slow, or not what one expects, but results are right; BROKEN."""
    text: str
    mend: str = ""
    """How to mend what is not OK."""


@dataclass(frozen=True)
class Report:
    """Everything that was found; `as_dict` is what a bug report needs."""

    findings: tuple[Finding, ...]
    versions: dict[str, str]
    environment: dict[str, str]
    """The variables that loader, drivers and dmlgpu read."""
    devices: tuple[DeviceInfo, ...]

    @property
    def healthy(self) -> bool:
        """Whether nothing is broken."""
        return all(finding.state != BROKEN for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return {"healthy": self.healthy, **asdict(self)}


def examine() -> Report:
    """Looks at Kompute, NumPy, shaders, loader, drivers, devices and settings, and checks results of every device."""
    findings = [_numpy(), _kompute(), _shaders()]
    loader = _loader()
    found, infos = _devices() if loader.state == OK else ([], ())
    findings += [loader, *_drivers(), *found, *_choice(infos), *_settings(), *_layers()]
    for info in infos:
        findings += [*_limits(info), *_oddities(info), *_exactness(info)]
    versions = {name: _version(name) for name in ("dmlgpu", "kp", binding.PACKAGE, "numpy", "vulkan")}
    versions |= {"python": platform.python_version(), "platform": platform.platform()}
    environment = {name: value for name, value in sorted(os.environ.items()) if name.startswith(_PREFIXES)}
    return Report(tuple(map(_printable, findings)), versions, environment, infos)


def _printable(finding: Finding) -> Finding:
    """Without what files and drivers may have in their names but no terminal takes."""
    texts = (text.encode(errors="backslashreplace").decode() for text in asdict(finding).values())
    return Finding(*("".join(c if c.isprintable() else repr(c)[1:-1] for c in text) for text in texts))


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


# Processes that load drivers


@dataclass(frozen=True)
class _Answer:
    """What a process of its own found."""

    result: Any
    problem: str
    """Why there is no result, or why the process ended badly after giving it; empty where all is well."""
    noise: str
    """What was printed by others."""


def _ask(task: str, *arguments: object) -> _Answer:
    """Runs one of _TASKS in a process of its own."""
    program = "import sys; from dmlgpu.tools import doctor; doctor.answer(*sys.argv[1:])"
    # The process imports what this one would.
    paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
    # What it writes to stderr is taken for noise.
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONSAFEPATH": "1", "DMLGPU_LOG": ""}
    command = [sys.executable, "-c", program, task, *map(str, arguments)]
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        return _Answer(None, f"it did not end in {_TIMEOUT:.0f} s", "")
    noise = done.stderr.decode(errors="replace")
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        answer = {"result": None, "problem": "it gave no answer"}
    problem = answer["problem"]
    if done.returncode < 0:
        problem = f"the process ended with signal {-done.returncode} ({signal.strsignal(-done.returncode)})"
    elif done.returncode:
        last = noise.strip().splitlines()[-1:] or [""]
        problem = f"the process ended with exit code {done.returncode}: {last[0]}"
    return _Answer(answer["result"], problem, noise)


def answer(task: str, *arguments: str) -> None:
    """The other side of `_ask`: writes what a task found to stdout, and has all that is printed meanwhile in stderr."""
    with os.fdopen(os.dup(1), "w") as output:
        os.dup2(2, 1)
        try:
            found = {"result": _TASKS[task](*arguments), "problem": ""}
        except Exception as error:
            known = isinstance(error, DeviceError)
            found = {"result": None, "problem": str(error) if known else f"{type(error).__name__}: {error}"}
        json.dump(found, output)


def _find_kompute() -> tuple[str, str]:
    module = binding.kompute()
    return binding.package_of(module), module.__file__


def _find_devices() -> list[dict[str, Any]]:
    return [info.as_dict() for info in devices()]


def _find_drivers() -> list[tuple[str, str]]:
    return [(str(manifest.path), manifest.problem) for manifest in manifests.drivers()]


def _check(index: str) -> tuple[int, str]:
    """How many cases were exact on a device, and what was wrong with the first that was not."""
    with Device(int(index)) as device:
        for exact, check in enumerate(islice(_mixed(checks()), _CASES)):
            error = check.run(device)
            if error is not None:
                return exact, f"{check.operator}: {error}"
    return _CASES, ""


def _mixed(found: Iterable[Check]) -> Iterator[Check]:
    """Checks in an order that begins with all operators, and many types."""
    operators = defaultdict(list)
    for check in found:
        operators[check.operator].append(check)
    for operator, same in operators.items():
        Random(operator).shuffle(same)
    return (check for check in chain(*zip_longest(*operators.values())) if check is not None)


_TASKS: dict[str, Callable[..., Any]] = {
    "kompute": _find_kompute,
    "loader": loader_version,
    "drivers": _find_drivers,
    "devices": _find_devices,
    "check": _check,
}


# What the package needs


def _numpy() -> Finding:
    version = _version("numpy")
    if tuple(map(int, re.findall(r"\d+", version)[:2])) >= _NUMPY:
        return Finding("NumPy", OK, version)
    needed = ".".join(map(str, _NUMPY))
    return Finding("NumPy", BROKEN, f"{version}; dmlgpu needs {needed}", f"pip install 'numpy>={needed}'")


def _kompute() -> Finding:
    answer = _ask("kompute")
    if answer.problem:
        mend = f"{_LOADER}, then {binding.PACKAGE} {binding.PACKAGE_VERSION} as docs/installing.md says"
        return _problem("Kompute", answer.problem, mend)
    package, path = answer.result
    found = f"{package} {_version(package)}"
    if package == binding.PACKAGE:
        return Finding("Kompute", OK, f"{found}; other threads of Python run while a device computes")
    text = f"{found} ends the process where a driver refuses something; other threads wait while a device computes"
    if _validates(Path(path)):
        text += "; it loads the Khronos validation layer where it is installed: slow"
    return Finding("Kompute", ODD, text, f"install {binding.PACKAGE} {binding.PACKAGE_VERSION}; it is used then")


def _validates(module: Path) -> bool:
    """Whether Kompute was built to load layers by itself: their names are in its library then."""
    with module.open("rb") as file:
        return b"VK_LAYER_KHRONOS_validation" in file.read(64 << 20)


def _shaders() -> Finding:
    problems: list[str] = []
    names: tuple[str, ...] = ()
    try:
        names = spirv.modules()
    except DeviceError as error:
        problems.append(str(error))
    for name in names:
        try:
            spirv.load(name)
        except DeviceError as error:
            problems.append(str(error))
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        mend = "pip install --force-reinstall --no-deps dmlgpu; in a checkout cmake --build build"
        return Finding("shaders", BROKEN, problems[0].removesuffix(f"; {spirv.MEND}") + more, mend)
    return Finding("shaders", OK, f"{len(names)} modules, all of them whole")


# Loader, drivers and devices


def _loader() -> Finding:
    answer = _ask("loader")
    if answer.problem:
        return _problem("loader", answer.problem, _LOADER)
    return Finding("loader", OK, f"Vulkan {answer.result}")


def _problem(subject: str, problem: str, mend: str) -> Finding:
    """What a DeviceError says; its last sentence is how to mend it."""
    text, _, last = problem.rpartition(". Install ")
    return Finding(subject, BROKEN, text, f"install {last}") if text else Finding(subject, BROKEN, problem, mend)


def _drivers() -> Iterator[Finding]:
    answer = _ask("drivers")
    if answer.problem:
        yield Finding("drivers", BROKEN, f"loading the drivers of this machine fails: {answer.problem}", _DRIVER)
    for path, problem in answer.result or ():
        # Machines that run programs of 32 bits have drivers for these too.
        if not problem or "wrong ELF class" in problem:
            yield Finding("driver", OK, path + (": for programs of another architecture" if problem else ""))
        elif problem.endswith("does not exist"):
            yield Finding("driver", BROKEN, f"{problem}, but a variable names it", _UNSET)
        else:
            yield Finding("driver", BROKEN, problem, f"{_DRIVER}, or remove this manifest")


def _devices() -> tuple[list[Finding], tuple[DeviceInfo, ...]]:
    answer = _ask("devices")
    infos = tuple(DeviceInfo(**{**info, "heaps": tuple(info["heaps"])}) for info in answer.result or ())
    findings = [
        Finding(
            f"device {info.index}", OK, f"{info.name} ({info.type}), driver {info.driver}, Vulkan {info.api_version}"
        )
        for info in infos
    ]
    if answer.problem:
        findings.append(_problem("devices", answer.problem, _DRIVER))
    findings += _noise("devices", answer.noise)
    if infos and {info.type for info in infos} == {"cpu"}:
        mend = f"install the driver of your GPU, if there is one ({named(DRIVER)}; for NVIDIA, {named(NVIDIA)})"
        findings.append(Finding("devices", ODD, "software drivers only: results are the same, but slower", mend))
    return findings, infos


def _choice(infos: tuple[DeviceInfo, ...]) -> Iterator[Finding]:
    """Which device is the default."""
    if not infos:
        return
    wanted = setting("DMLGPU_DEVICE")
    if wanted is not None:
        try:
            chosen = choose(infos, wanted)
        except DeviceError as error:
            yield Finding("DMLGPU_DEVICE", BROKEN, str(error), "unset it, or set it to one of these indices")
            return
        gpus = [info for info in infos if info.type not in ("cpu", "other")]
        if gpus and chosen.type == "cpu":
            text = f"{wanted!r} chooses a software driver, but there is {gpus[0].name}"
            yield Finding("DMLGPU_DEVICE", ODD, text, f"unset it, or set it to {gpus[0].index}")
            return
        yield Finding("default device", OK, f"{chosen.index}: {chosen.name}, by DMLGPU_DEVICE")
        return
    chosen = choose(infos, None)
    equals = [info for info in infos if preference(info) == preference(chosen)]
    if len(equals) > 1:
        text = f"{chosen.index}: {chosen.name}, the first of {len(equals)} devices of type {chosen.type}"
        yield Finding("default device", ODD, text, "set DMLGPU_DEVICE to the index or UUID of the one you want")
    else:
        yield Finding("default device", OK, f"{chosen.index}: {chosen.name}")


def _limits(info: DeviceInfo) -> Iterator[Finding]:
    subject = f"device {info.index} limits"
    low = {name: getattr(info, name) for name, least in _MINIMUMS.items() if getattr(info, name) < least}
    if low:
        text = ", ".join(f"{name} is {value:,}, Vulkan requires {_MINIMUMS[name]:,}" for name, value in low.items())
        yield Finding(subject, BROKEN, text, _DRIVER)
        return
    heap, range_ = info.heaps[info.device_heap] >> 20, info.max_storage_buffer_range >> 20
    text = f"heap {heap:,} MiB, buffer {range_:,} MiB, group size {info.max_group_size:,}"
    yield Finding(subject, OK, text)


def _oddities(info: DeviceInfo) -> Iterator[Finding]:
    mesa = re.search(r"llvmpipe Mesa (\d+)\.\S+", info.driver)
    if mesa and int(mesa[1]) < _MESA:
        text = f"{mesa[0]} is old: it compiles to slower code than Mesa {_MESA}"
        mend = f"install a newer Mesa, on Debian that of backports ({named(DRIVER)})"
        yield Finding(f"device {info.index}", ODD, text, mend)


def _exactness(info: DeviceInfo) -> Iterator[Finding]:
    subject = f"device {info.index} results"
    answer = _ask("check", info.index)
    exact, different = answer.result or (0, "")
    if answer.problem:
        yield _problem(subject, answer.problem, f"{_DRIVER}, or choose another device with DMLGPU_DEVICE")
    elif different:
        mend = f"{_DRIVER}; report it with the output of dmlgpu doctor --json"
        yield Finding(subject, BROKEN, f"after {exact} exact cases, {different}", mend)
    else:
        yield Finding(subject, OK, f"{exact} cases, exact")
    yield from _noise(subject, answer.noise)


def _noise(subject: str, noise: str) -> Iterator[Finding]:
    lines = [line for line in noise.splitlines() if line.strip()]
    if not lines:
        return
    text = f"loader, layers or driver print {len(lines)} lines, first {lines[0].strip()[:200]!r}"
    if os.environ.get("VK_LOADER_DEBUG"):
        yield Finding(subject, ODD, text, "unset VK_LOADER_DEBUG")
    else:
        yield Finding(subject, ODD, text, "harmless where the results are exact; a newer driver may be silent")


# Settings


def _settings() -> Iterator[Finding]:
    for name, read, slow in (
        ("DMLGPU_VERIFY", switch, "every call is computed by NumPy too, and compared: slow"),
        ("DMLGPU_LOG", level, "every call is written down: slow where calls are small"),
    ):
        try:
            if read(name):
                yield Finding(name, ODD, slow, "unset it")
        except SettingError as error:
            yield Finding(name, BROKEN, str(error), "unset it, or set it to one of these")
    for name in "MESA_SHADER_CACHE_DISABLE", "MESA_GLSL_CACHE_DISABLE":
        if os.environ.get(name, "").lower() in ("1", "true", "yes", "y"):
            yield Finding(name, ODD, "Mesa compiles every shader anew in every process: slow first calls", "unset it")


def _layers() -> Iterator[Finding]:
    for layer in manifests.layers():
        if layer.missing:
            yield Finding(
                f"layer {layer.name}",
                ODD,
                f"{layer.reason} names it, but it is not installed",
                f"install it, or unset {layer.reason}",
            )
        elif layer.name not in _CHEAP_LAYERS:
            variable = layer.reason.startswith("VK_")
            text = f"between dmlgpu and every driver, by {layer.reason}: layers cost time, those that validate much"
            mend = f"unset {layer.reason}" if variable else f"set VK_LOADER_LAYERS_DISABLE={layer.name}"
            yield Finding(f"layer {layer.name}", ODD, text, mend)
