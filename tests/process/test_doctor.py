"""`dmlgpu doctor` on machines where something is broken, slow or odd."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

import dmlgpu
from dmlgpu.descriptors.operator import SELECTED_TYPES
from dmlgpu.registry import OPERATORS
from dmlgpu.runtime import kompute_module, spirv
from dmlgpu.testing.cases import CASES, Case, samples
from dmlgpu.tools import doctor
from dmlgpu.tools.cli import main
from dmlgpu.tools.doctor import BROKEN, ODD, OK, Finding, Report
from tests.support.devices import info
from tests.support.drivers import DRIVERS, naming, set_drivers
from tests.support.processes import ROOT


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    """Removes variables that the machine may have set."""
    for name in [name for name in os.environ if name.startswith(("VK_", "DMLGPU_"))]:
        if name not in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES"):
            monkeypatch.delenv(name)


@pytest.fixture
def children(monkeypatch, tmp_path):
    """Makes the processes of doctor run a program first."""

    def prepare(program):
        (tmp_path / "sitecustomize.py").write_text(program)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    return prepare


def run(*arguments, redirect="") -> tuple[int, str]:
    """Runs `dmlgpu doctor` with redirections of a shell; returns its exit code and output. It must write no errors."""
    command = ["sh", "-c", f'"$@" {redirect}', "sh", sys.executable, "-m", "dmlgpu", "doctor", *arguments]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert process.stderr == ""
    return process.returncode, process.stdout


def of(findings, state) -> dict[str, str]:
    """The last text of every subject whose findings have a state. All findings that are not ok must have a fix."""
    assert all(bool(finding.fix) == (finding.state != OK) for finding in findings)
    return {finding.subject: finding.text for finding in findings if finding.state == state}


def test_a_machine_that_works_is_healthy(monkeypatch):
    set_drivers(monkeypatch.setenv, DRIVERS["lavapipe"])
    code, output = run("--json")
    report = json.loads(output)
    findings = [Finding(**finding) for finding in report["findings"]]
    assert (code, report["healthy"], of(findings, BROKEN)) == (0, True, {})
    healthy = of(findings, OK)
    version = f"dmlgpu-kp {kompute_module.PACKAGE_VERSION}"
    assert healthy["Kompute"] == f"{version}; other Python threads run while a device computes"
    assert healthy["NumPy"] == np.__version__
    assert healthy["shaders"] == f"{len(spirv.layouts())} modules, all undamaged"
    assert re.fullmatch(r"Vulkan 1\.\d+\.\d+", healthy["loader"])
    (llvmpipe,) = dmlgpu.devices()
    assert re.match(rf"{re.escape(llvmpipe.name)} .* heap [\d,]+ MiB, buffer ", healthy["device 0"])
    assert healthy["device 0 results"] == f"{len(OPERATORS)} cases, exact"
    assert of(findings, ODD)["devices"] == "software drivers only: results are the same, but slower"
    assert report["devices"] == [json.loads(json.dumps(llvmpipe.as_dict()))]
    assert set(report["versions"]) == {"dmlgpu", "kp", "dmlgpu-kp", "numpy", "vulkan", "python", "platform"}
    assert report["environment"]["VK_DRIVER_FILES"] == os.environ["VK_DRIVER_FILES"]
    assert "PATH" not in report["environment"]


def test_a_machine_without_a_loader_is_broken(monkeypatch, tmp_path):
    for name in "libvulkan.so", "libvulkan.so.1":
        (tmp_path / name).write_text("no library")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    report = doctor.examine()
    broken = of(report.findings, BROKEN)
    assert (report.healthy, report.devices, set(broken)) == (False, [], {"Kompute", "loader"})
    assert broken["loader"].startswith("no Vulkan loader: ")
    assert broken["Kompute"].startswith("the package dmlgpu-kp cannot be loaded: ")
    fixes = {finding.subject: finding.fix for finding in report.findings}
    assert fixes["loader"].startswith("install it (Debian, ")


def test_control_characters_in_names_are_escaped(monkeypatch):
    set_drivers(monkeypatch.setenv, os.fsdecode(b"/nowhere\x1b[31m\xff.json"))
    monkeypatch.setenv("COLUMNS", "1000")
    code, output = run(redirect="<&- 2>&-")
    assert code == 1
    assert r"JSON file /nowhere\x1b[31m\xff.json" in output
    assert r"VK_DRIVER_FILES=/nowhere\x1b[31m\udcff.json" in output
    assert "\x1b" not in output


def test_the_table_shows_findings_and_their_fixes(monkeypatch, capsys):
    findings = [Finding("[red]device[/]", OK, "[b]fine"), Finding("kp", ODD, "slow", "unset [it]")]
    monkeypatch.setattr(doctor, "examine", lambda: Report(True, findings, {}, {}, []))
    assert main(["doctor"]) == 0
    table = capsys.readouterr().out
    for text in "[red]device[/]", "[b]fine", "To fix it: unset [it]", "0 broken, 1 odd, 1 ok":
        assert text in table
    monkeypatch.setattr(doctor, "examine", lambda: Report(False, [Finding("kp", BROKEN, "", "get it")], {}, {}, []))
    assert main(["doctor"]) == main(["doctor", "--json"]) == 1
    assert "1 broken, 0 odd, 0 ok" in capsys.readouterr().out


# Messages of the loader

# Manifests by their names: the content, and the finding.
MANIFESTS = {
    "missing": (None, BROKEN, r"Failed to open JSON file \S+/missing\.json"),
    "empty": ("{}", ODD, r"ICD JSON \S+/empty\.json does not have a 'file_format_version' field"),
    "no_library": (json.dumps(naming("/nowhere/x.so")), BROKEN, r"/nowhere/x\.so: cannot open shared object file"),
    "32_bits": (json.dumps(naming("./elf32.so")), OK, r"elf32\.so: wrong ELF class"),
    # The loader stops at a damaged manifest.
    "damaged": ('{"ICD', BROKEN, r"JSON file \S+/damaged\.json"),
}


def test_drivers_that_do_not_load_are_named_with_the_reason(monkeypatch, tmp_path):
    paths = [tmp_path / f"{name}.json" for name in MANIFESTS]
    for path, (content, *_) in zip(paths, MANIFESTS.values(), strict=True):
        if content:
            path.write_text(content)
    (tmp_path / "elf32.so").write_bytes(b"\x7fELF\x01\x01\x01".ljust(1000, b"\0"))
    set_drivers(monkeypatch.setenv, *paths)
    findings = [*doctor._loader()]
    infos, (together,) = doctor._devices()
    assert (infos, together.state) == ([], BROKEN)
    assert re.match(r"no usable Vulkan device; .*=\S+/damaged\.json \(VkError\w+; ", together.text)
    assert together.fix.startswith("install the driver of your GPU, or one that needs no GPU (Debian, ")
    for _, state, text in MANIFESTS.values():
        assert [finding.state for finding in findings if re.search(text, finding.text)] == [state]
        assert re.search(text, together.text)


def test_a_driver_that_does_not_load_leaves_the_others_usable(monkeypatch):
    monkeypatch.setenv("VK_LOADER_DEBUG", "all")
    set_drivers(monkeypatch.setenv, "/nowhere.json", DRIVERS["lavapipe"])
    broken = of([*doctor._loader()], BROKEN)
    infos, together = doctor._devices()
    assert (len(broken), len(infos), of(together, BROKEN)) == (1, 1, {})
    noise = together[0]
    assert re.match(r"loader, layers or driver print \d\d+ lines, first '", noise.text)
    assert "unset VK_LOADER_DEBUG" in noise.fix


# A driver that fails when the loader creates an instance.
CRASH = """
import os, time, vulkan
create = vulkan.vkCreateInstance
def crash(*arguments):
    create(*arguments)
    print("noise", flush=True)
    {}
vulkan.vkCreateInstance = crash
"""


def test_a_driver_that_ends_the_process_is_named(monkeypatch, children):
    set_drivers(monkeypatch.setenv, DRIVERS["lavapipe"])
    children(CRASH.format("os.abort()"))
    text = of([*doctor._loader()], BROKEN)["loader"]
    assert text.startswith("the process ended with signal 6 (Aborted): noise; Searching for ICD drivers named ")
    # The manifest may name the folder, too.
    library = json.loads(DRIVERS["lavapipe"].read_text())["ICD"]["library_path"]
    assert os.path.basename(text.split()[-1]) == os.path.basename(library)


def test_a_driver_that_hangs_is_broken(monkeypatch, children):
    monkeypatch.setattr(doctor, "_TIMEOUT", 1.0)
    children(CRASH.format("time.sleep(600)"))
    assert of([*doctor._loader()], BROKEN)["loader"].startswith("the process did not end within 1 s")


def test_layers_that_check_calls_are_odd(monkeypatch):
    set_drivers(monkeypatch.setenv, DRIVERS["lavapipe"])
    monkeypatch.setenv("VK_INSTANCE_LAYERS", "VK_LAYER_KHRONOS_validation")
    findings = [*doctor._loader()]
    odd = of(findings, ODD)
    assert set(odd) == {"loader", "layer VK_LAYER_KHRONOS_validation"}
    # The loader reports this variable twice.
    assert [finding.state for finding in findings] == [OK, ODD, ODD]
    assert "'VK_INSTANCE_LAYERS'" in odd["loader"]
    assert odd["layer VK_LAYER_KHRONOS_validation"].startswith('Insert instance layer "VK_LAYER_KHRONOS_validation" (')


# The checks of a device

# What a process computes, and what `_ask` returns: its result, its problem, and the output of drivers.
ANSWERS = {
    "os.write(2, b'why') and os._exit(3)": (None, "the process ended with exit code 3: why", "why"),
    "os._exit(0)": (None, "the process printed no answer", ""),
    "1 / 0": (None, "ZeroDivisionError: division by zero", ""),
    "os.write(1, 100_000 * b'noise')": (500_000, "", 100_000 * "noise"),
    # A log would look like output of drivers.
    "os.environ['DMLGPU_LOG']": ("", "", ""),
}


@pytest.mark.parametrize("result", ANSWERS)
def test_a_process_has_a_result_or_a_problem(monkeypatch, children, result):
    monkeypatch.setenv("DMLGPU_LOG", "debug")
    program = f"k.kompute = int; k.package_of = lambda _: {result}"
    children(f"import os; from dmlgpu.runtime import kompute_module as k; {program}")
    assert doctor._ask("kompute") == ANSWERS[result]


@pytest.mark.parametrize(
    ("answer", "state", "text"),
    [
        (([2, "REDUCE: y differs"], "", ""), BROKEN, "after 2 exact cases, REDUCE: y differs"),
        ((None, "the process printed no answer", ""), BROKEN, "the process printed no answer"),
        (([3, ""], "the process ended with exit code 5", ""), BROKEN, "the process ended with exit code 5"),
        (([3, ""], "", 1000 * "noise\n"), ODD, "loader, layers or driver print 1000 lines, first 'noise'"),
    ],
    ids=["differs", "no answer", "ends", "noise"],
)
def test_checks_that_go_wrong_are_findings(monkeypatch, answer, state, text):
    monkeypatch.setattr(doctor, "_ask", lambda *_: answer)
    assert of([*doctor._device(info(0, "A"))], state)["device 0 results"] == text


def test_checks_stop_at_the_first_difference(monkeypatch, driver):
    results = iter([None, None, dmlgpu.VerificationError("y differs")])
    monkeypatch.setattr(Case, "verify", lambda *_: next(results))
    monkeypatch.setattr(doctor, "_cases", lambda: CASES[:9])
    assert doctor._check(str(driver.index)) == (2, f"{CASES[2].operator}: y differs")


def test_a_process_that_ends_badly_after_its_answer_is_broken(children):
    children("import atexit, os; atexit.register(os.abort)")
    infos, together = doctor._devices()
    assert infos == list(dmlgpu.devices())
    assert of(together, BROKEN) == {"devices": "the process ended with signal 6 (Aborted)"}


def test_checks_have_every_operator_and_type(monkeypatch):
    made = samples()
    monkeypatch.setattr("dmlgpu.testing.cases.samples", lambda: made)
    cases = doctor._cases()
    assert Counter(case.operator for case in cases) == {operator.name: 1 for operator in OPERATORS}
    assert {case.desc.inputs[0].data_type for case in cases} == set(SELECTED_TYPES)
    assert cases == doctor._cases()


@pytest.mark.parametrize(("version", "is_old"), [("22.3.6", True), ("24.3.1", True), ("25.0.7-2", False)])
def test_llvmpipe_before_mesa_25_is_odd(monkeypatch, version, is_old):
    monkeypatch.setattr(doctor, "_ask", lambda *_: ([72, ""], "", ""))
    llvmpipe = dataclasses.replace(info(0, "llvmpipe"), driver=f"llvmpipe Mesa {version} (LLVM 15.0.6)")
    text = of([*doctor._device(llvmpipe)], ODD).get("device 0", "")
    assert ("takes 17 to 34 ms with Mesa 22.3" in text) == is_old


SEVERAL = [info(0, "A", "cpu"), info(1, "B", "discrete"), info(2, "C", "discrete")]


@pytest.mark.parametrize(
    ("infos", "selector", "subject", "state", "text"),
    [
        (SEVERAL[:2], None, "default device", OK, "1: B"),
        (SEVERAL, None, "default device", ODD, "1: B, the first of 2 devices of type discrete"),
        (SEVERAL, "2", "default device", OK, "2: C, by DMLGPU_DEVICE"),
        (SEVERAL[:2], "9", "DMLGPU_DEVICE", BROKEN, "there is no device 9; devices are 0: A, 1: B"),
    ],
)
def test_the_default_device_is_a_finding(monkeypatch, infos, selector, subject, state, text):
    if selector:
        monkeypatch.setenv("DMLGPU_DEVICE", selector)
    monkeypatch.setattr(doctor, "_ask", lambda _: ([described.as_dict() for described in infos], "", ""))
    devices, (finding,) = doctor._devices()
    assert devices == infos
    assert (finding.subject, finding.state, finding.text) == (subject, state, text)


def test_each_device_is_checked(monkeypatch):
    answers = {"kompute": kompute_module.PACKAGE, "loader": ("1.3", []), "check": [72, ""]}
    answers["devices"] = [described.as_dict() for described in SEVERAL]
    monkeypatch.setattr(doctor, "_ask", lambda task, *_, **__: (answers[task], "", ""))
    healthy = of(doctor.examine().findings, OK)
    assert [healthy[f"device {index} results"] for index in range(3)] == ["72 cases, exact"] * 3


@pytest.mark.parametrize(
    ("package", "program", "state", "text", "fix"),
    [
        ("", "sys.modules['dmlgpu_kp'] = None", BROKEN, "the package dmlgpu-kp is not ", "install dmlgpu-kp "),
        ("this", "", BROKEN, "DMLGPU_KOMPUTE: 'this' is not allowed", "unset DMLGPU_KOMPUTE"),
        ("kp", "kompute_module.kompute = kompute_module.package_of = lambda *_: 'kp'", ODD, "kp ", "unset DMLGPU_"),
    ],
)
def test_a_missing_or_unusual_kompute_is_a_finding(children, monkeypatch, package, program, state, text, fix):
    monkeypatch.setenv("DMLGPU_KOMPUTE", package)
    children(f"import os, sys; from dmlgpu.runtime import kompute_module; {program}")
    finding = doctor._kompute()
    assert (finding.state, finding.text.startswith(text), finding.fix.startswith(fix)) == (state, True, True), finding


@pytest.mark.parametrize(
    ("subject", "version", "needed"),
    [("numpy", "1.26.4", "2.0"), ("kompute", "0.9.0.post1", kompute_module.PACKAGE_VERSION)],
)
def test_wrong_versions_are_broken(monkeypatch, subject, version, needed):
    """test_kompute_module.py compares the version of dmlgpu-kp with that of its package."""
    assert f'"numpy>={".".join(map(str, doctor._OLDEST_NUMPY))}"' in (ROOT / "pyproject.toml").read_text()
    monkeypatch.setattr(doctor.metadata, "version", lambda name: version)
    finding = getattr(doctor, f"_{subject}")()
    assert (finding.state, finding.subject.lower()) == (BROKEN, subject)
    assert finding.text.endswith(f"{version}; dmlgpu needs {needed}")
    assert needed in finding.fix


def test_damaged_shaders_are_broken(monkeypatch, tmp_path):
    monkeypatch.setattr(spirv, "_FOLDER", tmp_path)
    spirv.layouts.cache_clear()
    finding = doctor._shaders()
    spirv.layouts.cache_clear()
    assert (finding.state, finding.fix) == (BROKEN, spirv.FIX)
    assert finding.text.startswith(f"shader {tmp_path / 'layouts.json'} cannot be read (")


@pytest.mark.parametrize(("value", "states"), [("debug", [ODD]), ("loud", [BROKEN]), ("no", [])])
def test_a_log_is_odd_and_an_unknown_level_is_broken(monkeypatch, value, states):
    monkeypatch.setenv("DMLGPU_LOG", value)
    findings = [(finding.subject, finding.state) for finding in doctor._settings()]
    assert findings == [("DMLGPU_LOG", state) for state in states]
