"""Finds what is broken, slow or odd on this machine, and how to fix it.

Code that loads drivers runs in subprocesses: a driver that ends its process, hangs or prints is a finding.
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
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from random import Random
from typing import TYPE_CHECKING, Any

from dmlgpu.errors import DeviceError, SettingError
from dmlgpu.runtime import kompute_module, spirv
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.drivers import DeviceInfo, choose, devices, loader_messages, loader_version, preference
from dmlgpu.runtime.settings import level, setting, switch

if TYPE_CHECKING:
    from dmlgpu.testing.cases import Case

OK, ODD, BROKEN = "ok", "odd", "broken"

_OLDEST_NUMPY = (2, 0)
# Maximum duration of a subprocess in seconds.
_TIMEOUT = 120.0
_REINSTALL_DRIVER = "install the driver again, or choose another device with DMLGPU_DEVICE"
# The oldest Mesa whose llvmpipe is not reported as slow.
_OLDEST_MESA = 25
# Environment variables that a bug report shows.
_PREFIXES = ("DMLGPU_", "VK_", "MESA_", "LP_", "LIBGL_", "NODEVICE_SELECT", "LD_LIBRARY_PATH", "XDG_DATA_DIRS")
# Layers that choose devices, and cost nothing.
_CHEAP_LAYERS = ("VK_LAYER_MESA_device_select", "VK_LAYER_NV_optimus", "VK_LAYER_AMD_switchable_graphics_64")


@dataclass(frozen=True)
class Finding:
    """The result of examining one subject."""

    subject: str
    state: str
    """OK; ODD: slow or unexpected, but results are right; or BROKEN."""
    text: str
    fix: str = ""
    """How to fix it, unless it is OK."""


@dataclass(frozen=True)
class Report:
    """All findings, and other facts for a bug report."""

    healthy: bool
    """Whether nothing is broken."""
    findings: list[Finding]
    versions: dict[str, str]
    environment: dict[str, str]
    """The environment variables that the loader, drivers and dmlgpu read."""
    devices: list[DeviceInfo]


def examine() -> Report:
    """Examines Kompute, NumPy, shaders, loader, drivers, devices and settings, and checks results of every device."""
    loader = [*_loader()]
    infos, together = _devices() if loader[0].state == OK else ([], [])
    findings = [_numpy(), _kompute(), _shaders(), *_settings(), *loader, *together]
    for info in infos:
        findings += _device(info)
    findings = [_printable(finding) for finding in findings]
    versions = {name: _version(name) for name in ("dmlgpu", "kp", kompute_module.PACKAGE, "numpy", "vulkan")}
    versions |= {"python": platform.python_version(), "platform": platform.platform()}
    environment = {name: value for name, value in sorted(os.environ.items()) if name.startswith(_PREFIXES)}
    return Report(all(finding.state != BROKEN for finding in findings), findings, versions, environment, infos)


def _printable(finding: Finding) -> Finding:
    """Escapes the unprintable characters that names of files and drivers may have."""
    texts = asdict(finding).values()
    return Finding(*("".join(c if c.isprintable() else repr(c)[1:-1] for c in text) for text in texts))


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


# Subprocesses, which load drivers


def _ask(task: str, *arguments: object, **variables: str) -> tuple[Any, str, str]:
    """Runs one of _TASKS in a subprocess. Returns its result, its problem, and the output of drivers and layers.

    There may be both a result and a problem: a process can crash after its answer.
    """
    # The subprocess imports modules from the same folders as this process.
    program = f"import sys; sys.path[:] = {sys.path!r}; from dmlgpu.tools import doctor; doctor.answer(*sys.argv[1:])"
    # stderr counts as output of drivers: dmlgpu must not log there.
    environment = {**os.environ, "DMLGPU_LOG": "", **variables}
    command = [sys.executable, "-c", program, task, *map(str, arguments)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, timeout=_TIMEOUT, check=False)
    except subprocess.TimeoutExpired as error:
        return None, f"the process did not end within {_TIMEOUT:.0f} s", (error.stderr or b"").decode(errors="replace")
    noise = done.stderr.decode(errors="replace")
    try:
        result, problem = json.loads(done.stdout)
    except ValueError:
        result, problem = None, "the process printed no answer"
    if done.returncode:
        number = -done.returncode
        end = f"signal {number} ({signal.strsignal(number)})" if number > 0 else f"exit code {-number}"
        problem = ": ".join([f"the process ended with {end}", *noise.strip().splitlines()[-1:]])
    return result, problem, noise


def answer(task: str, *arguments: str) -> None:
    """The program of `_ask`'s subprocess: writes a task's result to stdout; drivers print to stderr."""
    with os.fdopen(os.dup(1), "w") as output:
        os.dup2(2, 1)
        try:
            result, problem = _TASKS[task](*arguments), ""
        except Exception as error:
            known = isinstance(error, (DeviceError, SettingError))
            result, problem = None, str(error) if known else f"{type(error).__name__}: {error}"
        json.dump((result, problem), output)


def _check(index: str) -> tuple[int, str]:
    """Number of cases that a device computed exactly before the first error, and that error, or an empty string."""
    cases = _cases()
    with Device(int(index)) as device:
        for exact, case in enumerate(cases):
            error = case.verify(device)
            if error is not None:
                return exact, f"{case.operator}: {error}"
    return len(cases), ""


def _cases() -> list[Case]:
    """A case of each operator, the same in every run; together they have all types. More would take long to compile."""
    # Imported here, because the import takes 0.6 s, and the other subprocesses do not need the cases.
    from dmlgpu.testing.cases import samples

    operators = defaultdict(list)
    for case in samples():
        operators[case.operator].append(case)
    chosen: list[Case] = []
    for name, same in operators.items():
        seen = {case.desc.inputs[0].data_type for case in chosen}
        new = [case for case in same if case.desc.inputs[0].data_type not in seen]
        chosen.append(Random(name).choice(new or same))
    return chosen


_TASKS: dict[str, Callable[..., Any]] = {
    "kompute": lambda: kompute_module.package_of(kompute_module.kompute()),
    "loader": lambda: (loader_version(), loader_messages()),
    "devices": lambda: [info.as_dict() for info in devices()],
    "check": _check,
}


def _problem(subject: str, problem: str, fix: str) -> Finding:
    """The finding for a problem. The last sentence of a DeviceError may tell how to fix it."""
    text, _, last = problem.rpartition(". Install ")
    return Finding(subject, BROKEN, text, f"install {last}") if text else Finding(subject, BROKEN, problem, fix)


# Requirements of the package


def _numpy() -> Finding:
    version = _version("numpy")
    if tuple(map(int, re.findall(r"\d+", version)[:2])) >= _OLDEST_NUMPY:
        return Finding("NumPy", OK, version)
    needed = ".".join(map(str, _OLDEST_NUMPY))
    return Finding("NumPy", BROKEN, f"{version}; dmlgpu needs {needed}", f"pip install 'numpy>={needed}'")


def _kompute() -> Finding:
    install = f"install {kompute_module.PACKAGE} {kompute_module.PACKAGE_VERSION} as in docs/installing.md"
    unset = "unset DMLGPU_KOMPUTE"
    package, problem, _ = _ask("kompute")
    if problem:
        return _problem("Kompute", problem, unset if setting("DMLGPU_KOMPUTE") else install)
    version = _version(package)
    if package != kompute_module.PACKAGE:
        text = "ends the process if a driver refuses a call; other threads wait while a device computes"
        return Finding("Kompute", ODD, f"{package} {version} {text}", unset)
    if version != kompute_module.PACKAGE_VERSION:
        return Finding(
            "Kompute", BROKEN, f"{package} {version}; dmlgpu needs {kompute_module.PACKAGE_VERSION}", install
        )
    return Finding("Kompute", OK, f"{package} {version}; other Python threads run while a device computes")


def _shaders() -> Finding:
    try:
        modules = [spirv.load(name) for name in spirv.layouts()]
    except DeviceError as error:
        return Finding("shaders", BROKEN, str(error), spirv.FIX)
    return Finding("shaders", OK, f"{len(modules)} modules, all undamaged")


def _settings() -> Iterator[Finding]:
    for name, read, slow in (
        ("DMLGPU_VERIFY", switch, "NumPy computes every call again to compare: slow"),
        ("DMLGPU_LOG", level, "every call is logged: slow for small calls"),
    ):
        try:
            if read(name):
                yield Finding(name, ODD, slow, "unset it")
        except SettingError as error:
            yield Finding(name, BROKEN, str(error), "unset it, or set it to one of the allowed values")


# Loader, drivers and devices


def _loader() -> Iterator[Finding]:
    """The loader's reports on drivers and layers."""
    result, problem, noise = _ask("loader", VK_LOADER_DEBUG="driver")
    version, messages = result or ("", [])
    if result:
        yield Finding("loader", OK, f"Vulkan {version}")
    if problem:
        last_driver = re.findall("Searching for ICD drivers named .*", noise)[-1:]
        yield _problem("loader", "; ".join([problem, *last_driver]), _REINSTALL_DRIVER)
    for kind, text in messages:
        layer = re.match('Insert instance layer "(.*?)"', text)
        if layer and layer[1] not in _CHEAP_LAYERS:
            cost = f"{text}: layers cost time, and validation layers a lot of it"
            fix = f"set VK_LOADER_LAYERS_DISABLE={layer[1]}, or unset the variable that enables it"
            yield Finding(f"layer {layer[1]}", ODD, cost, fix)
        elif "wrong ELF class" in text:  # machines that run 32-bit programs also have 32-bit drivers
            yield Finding("loader", OK, text)
        elif kind != "info":
            fix = "reinstall what the message names, or fix or unset the setting that names it"
            yield Finding("loader", BROKEN if kind == "error" else ODD, text, fix)


def _devices() -> tuple[list[DeviceInfo], list[Finding]]:
    """The devices, and the findings about all of them together."""
    result, problem, noise = _ask("devices")
    infos = [DeviceInfo(**{**info, "heaps": tuple(info["heaps"])}) for info in result or ()]
    findings = [*_noise("devices", noise)]
    if problem:
        findings.append(_problem("devices", problem, _REINSTALL_DRIVER))
    if infos:
        findings.append(_default(infos))
    if {info.type for info in infos} == {"cpu"}:
        fix = "if this machine has a GPU, install its driver"
        findings.append(Finding("devices", ODD, "software drivers only: results are the same, but slower", fix))
    return infos, findings


def _default(infos: list[DeviceInfo]) -> Finding:
    selector = setting("DMLGPU_DEVICE")
    try:
        chosen = choose(tuple(infos), selector)
    except DeviceError as error:
        return Finding("DMLGPU_DEVICE", BROKEN, str(error), "unset it, or set it to one of these indices")
    text = f"{chosen.index}: {chosen.name}" + (", by DMLGPU_DEVICE" if selector else "")
    equals = [preference(info) for info in infos].count(preference(chosen))
    if selector or equals == 1:
        return Finding("default device", OK, text)
    text += f", the first of {equals} devices of type {chosen.type}"
    return Finding("default device", ODD, text, "set DMLGPU_DEVICE to the index or UUID of the one you want")


def _device(info: DeviceInfo) -> Iterator[Finding]:
    """Describes a device, and checks whether its results are exact."""
    subject = f"device {info.index}"
    heap, buffer = info.heaps[info.device_heap] >> 20, info.max_storage_buffer_range >> 20
    text = f"{info.name} ({info.type}), driver {info.driver}, Vulkan {info.api_version}, heap {heap:,} MiB"
    yield Finding(subject, OK, f"{text}, buffer {buffer:,} MiB, group size {info.max_group_size:,}")
    mesa = re.search(r"llvmpipe Mesa (\d+)\.\S+", info.driver)
    if mesa and int(mesa[1]) < _OLDEST_MESA:
        text = f"{mesa[0]} is old: argmax of 4096x1024 takes 17 to 34 ms with Mesa 22.3 on AMD Zen 3, 3.5 with 25.0"
        yield Finding(subject, ODD, text, "install a newer Mesa, on Debian from backports")
    subject += " results"
    result, problem, noise = _ask("check", info.index)
    exact, different = result or (0, "")
    if problem:
        yield _problem(subject, problem, _REINSTALL_DRIVER)
    elif different:
        text = f"after {exact} exact cases, {different}"
        yield Finding(subject, BROKEN, text, f"{_REINSTALL_DRIVER}; report it with the output of dmlgpu doctor --json")
    else:
        yield Finding(subject, OK, f"{exact} cases, exact")
    yield from _noise(subject, noise)


def _noise(subject: str, noise: str) -> Iterator[Finding]:
    lines = [line for line in noise.splitlines() if line.strip()]
    if lines:
        text = f"loader, layers or driver print {len(lines)} lines, first {lines[0].strip()[:200]!r}"
        fix = "harmless if results are exact; unset VK_LOADER_DEBUG if it is set; a newer driver may be silent"
        yield Finding(subject, ODD, text, fix)
