"""`dmlgpu doctor`: what it finds on machines that are not as they should be."""

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
from dmlgpu.runtime import binding, spirv
from dmlgpu.runtime.packages import DRIVER, LOADER, named
from dmlgpu.tools import doctor, selfcheck
from dmlgpu.tools.cli import main
from dmlgpu.tools.doctor import BROKEN, ODD, OK, Finding, Report
from dmlgpu.tools.registry import OPERATORS
from tests.support.devices import info
from tests.support.drivers import DRIVERS, naming
from tests.support.processes import ROOT


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    """A user's environment, without what this machine may have set."""
    monkeypatch.setenv("COLUMNS", "120")
    for name in [name for name in os.environ if name.startswith(("VK_", "MESA_", "DMLGPU_"))]:
        if name not in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES"):
            monkeypatch.delenv(name)


def run(environment, *arguments) -> tuple[int, str]:
    """`dmlgpu doctor` in a process of its own: its exit code and output; it writes no errors."""
    command = [sys.executable, "-m", "dmlgpu", "doctor", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    return done.returncode, done.stdout


def report(environment) -> tuple[int, dict]:
    code, output = run(environment, "--json")
    return code, json.loads(output)


def of(found: dict, state: str) -> dict[str, str]:
    """The findings of a state: subjects and texts. What is not as it should be has a remedy."""
    assert all(bool(finding["mend"]) == (finding["state"] != OK) for finding in found["findings"])
    return {finding["subject"]: finding["text"] for finding in found["findings"] if finding["state"] == state}


# A machine that works


@pytest.fixture(scope="module")
def here():
    return report(dict(os.environ))


def test_a_machine_that_works(here):
    code, found = here
    assert (code, found["healthy"], of(found, BROKEN)) == (0, True, {})
    fine = of(found, OK)
    assert (
        fine["Kompute"] == f"dmlgpu-kp {binding.PACKAGE_VERSION}; other threads of Python run while a device computes"
    )
    assert fine["NumPy"] == np.__version__
    assert fine["shaders"] == f"{len(spirv.modules())} modules, all of them whole"
    assert re.fullmatch(r"Vulkan 1\.\d+\.\d+", fine["loader"])
    for each in dmlgpu.devices():
        assert fine[f"device {each.index}"].startswith(each.name)
        assert fine[f"device {each.index} results"] == f"{doctor._CASES} cases, exact"
        assert "heap " in fine[f"device {each.index} limits"]


def test_a_report_has_what_a_bug_report_needs(here):
    _, found = here
    assert found["devices"] == [json.loads(json.dumps(each.as_dict())) for each in dmlgpu.devices()]
    assert set(found["versions"]) == {"dmlgpu", "kp", "dmlgpu-kp", "numpy", "vulkan", "python", "platform"}
    assert found["environment"]["VK_DRIVER_FILES"] == os.environ["VK_DRIVER_FILES"]
    assert "PATH" not in found["environment"]


def test_a_readable_table(monkeypatch, capsys):
    findings = Finding("[red]device[/]", OK, "[b]fine"), Finding("kp", ODD, "slow", "unset [it]")
    monkeypatch.setattr(doctor, "examine", lambda: Report(findings, {}, {}, ()))
    assert main(["doctor"]) == 0
    table = capsys.readouterr().out
    for text in "[red]device[/]", "[b]fine", "To mend it: unset [it]", "0 broken, 1 odd, 1 ok":
        assert text in table


def test_exit_code_of_what_is_broken(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "examine", lambda: Report((Finding("kp", BROKEN, "gone", "get it"),), {}, {}, ()))
    assert main(["doctor"]) == main(["doctor", "--json"]) == 1
    assert "1 broken, 0 odd, 0 ok" in capsys.readouterr().out


# Broken machines, in processes of their own


def test_no_loader(environment, tmp_path):
    for name in "libvulkan.so", "libvulkan.so.1":
        (tmp_path / name).write_text("no library")
    environment["LD_LIBRARY_PATH"] = str(tmp_path)
    code, found = report(environment)
    broken = of(found, BROKEN)
    assert (code, found["healthy"], found["devices"], set(broken)) == (1, False, [], {"Kompute", "loader"})
    assert broken["loader"].startswith("no Vulkan loader: ")
    assert broken["Kompute"].startswith("the package dmlgpu-kp cannot be loaded: ")
    (mend,) = [finding["mend"] for finding in found["findings"] if finding["subject"] == "loader"]
    assert mend == f"install it ({named(LOADER)}) and a driver ({named(DRIVER)})"


@pytest.mark.parametrize(("package", "subject"), [("dmlgpu-kp", "Kompute"), ("vulkan", "loader")])
def test_no_package(environment, tmp_path, package, subject):
    module = package.replace("-", "_")
    (tmp_path / f"{module}.py").write_text(f"raise ModuleNotFoundError('gone', name={module!r})")
    environment |= {"PYTHONPATH": str(tmp_path), "VK_DRIVER_FILES": str(DRIVERS["lavapipe"])}
    code, found = report(environment)
    assert (code, of(found, BROKEN)[subject]) == (1, f"the package {package} is not installed")
    (mend,) = [finding["mend"] for finding in found["findings"] if finding["subject"] == subject]
    assert "as docs/installing.md says" in mend


def test_no_driver(environment):
    environment |= {"VK_DRIVER_FILES": "/nowhere"}
    code, found = report(environment)
    assert (code, of(found, BROKEN)) == (
        1,
        {
            "driver": "/nowhere does not exist, but a variable names it",
            "devices": "no Vulkan driver: there is none in VK_DRIVER_FILES=/nowhere",
        },
    )


def test_a_driver_that_fails_to_load_beside_others(environment, tmp_path):
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(naming("/nowhere/x.so")))
    environment["VK_DRIVER_FILES"] = f"{path}:{DRIVERS['lavapipe']}"
    code, found = report(environment)
    (text,) = of(found, BROKEN).values()
    assert (code, len(found["devices"])) == (1, 1)
    assert text.startswith(f"{path}: /nowhere/x.so: cannot open shared object file")


def test_odd_settings(environment):
    environment |= {
        "VK_DRIVER_FILES": str(DRIVERS["lavapipe"]),
        "DMLGPU_VERIFY": "1",
        "MESA_SHADER_CACHE_DISABLE": "true",
        "VK_LOADER_DEBUG": "all",
        "VK_INSTANCE_LAYERS": "VK_LAYER_KHRONOS_validation:VK_LAYER_NOWHERE",
    }
    code, found = report(environment)
    odd = of(found, ODD)
    assert (code, of(found, BROKEN)) == (0, {})
    assert odd["DMLGPU_VERIFY"] == "every call is computed by NumPy too, and compared: slow"
    assert odd["MESA_SHADER_CACHE_DISABLE"].endswith("slow first calls")
    assert odd["layer VK_LAYER_NOWHERE"] == "VK_INSTANCE_LAYERS names it, but it is not installed"
    assert "by VK_INSTANCE_LAYERS: layers cost time" in odd["layer VK_LAYER_KHRONOS_validation"]
    assert re.match(r"loader, layers or driver print \d+ lines, first ", odd["device 0 results"])
    mend = {finding["mend"] for finding in found["findings"] if finding["text"].startswith("loader, layers or driver")}
    assert mend == {"unset VK_LOADER_DEBUG"}


# Machines that are not here


@pytest.fixture
def machine(monkeypatch):
    """A machine where processes of their own give these answers."""

    def become(**answers):
        there = {
            "kompute": doctor._Answer(["dmlgpu-kp", os.devnull], "", ""),
            "loader": doctor._Answer("1.3.0", "", ""),
            "drivers": doctor._Answer([], "", ""),
            "devices": doctor._Answer([], "", ""),
            "check": doctor._Answer([20, ""], "", ""),
        }
        there |= {task: doctor._Answer(*answer) for task, answer in answers.items()}
        monkeypatch.setattr(doctor, "_ask", lambda task, *arguments: there[task])
        return doctor.examine()

    return become


def findings(found: Report, state: str) -> dict[str, str]:
    return of(json.loads(json.dumps(found.as_dict())), state)


def devices(*infos):
    return [dataclasses.asdict(each) for each in infos], "", ""


@pytest.mark.parametrize(
    ("kinds", "wanted", "odd"),
    [
        (["cpu"], None, {"devices": "software drivers only: results are the same, but slower"}),
        (["discrete"], None, {}),
        (["discrete", "cpu"], None, {}),
        (["discrete", "cpu"], "0", {}),
        (["discrete", "cpu"], "1", {"DMLGPU_DEVICE": "'1' chooses a software driver, but there is device 0"}),
        (
            ["cpu", "discrete", "discrete"],
            None,
            {"default device": "1: device 1, the first of 2 devices of type discrete"},
        ),
        (["cpu", "discrete", "discrete"], "2", {}),
        (
            ["cpu", "cpu"],
            None,
            {
                "devices": "software drivers only: results are the same, but slower",
                "default device": "0: device 0, the first of 2 devices of type cpu",
            },
        ),
    ],
)
def test_choice_of_the_device(machine, monkeypatch, kinds, wanted, odd):
    if wanted is not None:
        monkeypatch.setenv("DMLGPU_DEVICE", wanted)
    found = machine(devices=devices(*(info(i, f"device {i}", kind) for i, kind in enumerate(kinds))))
    assert findings(found, ODD) == odd
    assert found.healthy


def test_the_faster_software_driver_is_the_default_and_not_odd(machine):
    slow = dataclasses.replace(info(0, "slow"), driver="SwiftShader driver")
    found = machine(devices=devices(slow, info(1, "fast")))
    assert findings(found, OK)["default device"] == "1: fast"
    assert "default device" not in findings(found, ODD)


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ("no such device", "there is no device 'no such device'; devices are 0: A, 1: B"),
        ("99", "there is no device 99; devices are 0: A, 1: B"),
    ],
)
def test_default_device_that_does_not_exist(machine, monkeypatch, wanted, text):
    monkeypatch.setenv("DMLGPU_DEVICE", wanted)
    found = machine(devices=devices(info(0, "A", "discrete"), info(1, "B", "discrete")))
    assert findings(found, BROKEN) == {"DMLGPU_DEVICE": text}


@pytest.mark.parametrize(("version", "is_old"), [("22.3.6", True), ("24.3.1", True), ("25.0.7-2", False)])
def test_old_llvmpipe(machine, version, is_old):
    llvmpipe = dataclasses.replace(info(0, "llvmpipe", "discrete"), driver=f"llvmpipe Mesa {version} (LLVM 15.0.6)")
    assert bool(findings(machine(devices=devices(llvmpipe)), ODD)) == is_old


def test_limits_below_those_of_vulkan(machine):
    low = dataclasses.replace(info(0, "low", "discrete"), max_group_size=64, max_memory_allocation_count=16)
    assert findings(machine(devices=devices(low)), BROKEN) == {
        "device 0 limits": "max_memory_allocation_count is 16, Vulkan requires 4,096, "
        "max_group_size is 64, Vulkan requires 128"
    }


def test_wrong_results(machine):
    found = machine(devices=devices(info(0, "gpu", "discrete")), check=([3, "ARGMAX: y[0] differs"], "", ""))
    assert findings(found, BROKEN) == {"device 0 results": "after 3 exact cases, ARGMAX: y[0] differs"}


def test_a_driver_that_ends_the_process(machine):
    found = machine(devices=devices(info(0, "gpu", "discrete")), check=(None, "the process ended with signal 11", ""))
    assert findings(found, BROKEN) == {"device 0 results": "the process ended with signal 11"}


def test_a_driver_that_prints(machine):
    found = machine(devices=(*devices(info(0, "gpu", "discrete"))[:2], "\nWARNING: not conformant\nmore\n"))
    assert findings(found, ODD) == {
        "devices": "loader, layers or driver print 2 lines, first 'WARNING: not conformant'"
    }


def test_drivers_of_another_architecture_are_no_fault(machine):
    found = machine(drivers=([("/i686.json", "/i686.json: x.so: wrong ELF class: ELFCLASS32")], "", ""))
    assert findings(found, OK)["driver"] == "/i686.json: for programs of another architecture"


def test_names_that_no_terminal_takes(machine, capsys):
    found = machine(drivers=([("/\ud800\x1b[31m.json", "")], "", ""))
    assert findings(found, OK)["driver"] == "/\\ud800\\x1b[31m.json"


@pytest.mark.parametrize(("package", "version"), [("numpy", "1.25.2"), ("numpy", None)])
def test_wrong_versions(machine, monkeypatch, package, version):
    def metadata_version(name):
        if name != package:
            return "1"
        if version is None:
            raise doctor.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(doctor.metadata, "version", metadata_version)
    ((subject, text),) = findings(machine(), BROKEN).items()
    assert subject.lower() == package
    assert text.startswith(f"{version or 'not installed'}; dmlgpu needs ")


def test_versions_are_those_of_the_package():
    project = (ROOT / "pyproject.toml").read_text()
    assert f'"{binding.PACKAGE}=={binding.PACKAGE_VERSION}"' in project
    assert f'"numpy>={".".join(map(str, doctor._NUMPY))}"' in project


def test_damaged_shaders(machine, monkeypatch, tmp_path):
    monkeypatch.setattr(spirv, "_FOLDER", tmp_path)
    spirv.modules.cache_clear()
    text = findings(machine(), BROKEN)["shaders"]
    spirv.modules.cache_clear()
    assert text.startswith(f"shader {tmp_path}/modules.txt cannot be read (")
    assert text.endswith(")")


def test_which_kompute(machine):
    text = findings(machine(kompute=(["dmlgpu-kp", os.devnull], "", "")), OK)["Kompute"]
    assert text.startswith("dmlgpu-kp 0.9.0.post2; ")


@pytest.mark.parametrize("layer", ["", "VK_LAYER_KHRONOS_validation"])
def test_kp_as_it_is(machine, tmp_path, layer):
    module = tmp_path / "kp.so"
    module.write_text(layer)
    text = findings(machine(kompute=(["kp", str(module)], "", "")), ODD)["Kompute"]
    assert text.startswith("kp ")
    assert "ends the process where a driver refuses something" in text
    assert ("loads the Khronos validation layer" in text) == bool(layer)


def test_a_kompute_that_crashes(machine):
    text = findings(machine(kompute=(None, "the process ended with signal 11", "")), BROKEN)["Kompute"]
    assert text == "the process ended with signal 11"


# Processes of their own


@pytest.fixture
def task(monkeypatch, tmp_path):
    """Asks a process for a program's result."""

    def asked(program):
        (tmp_path / "sitecustomize.py").write_text(
            "from dmlgpu.runtime import binding\nfrom dmlgpu.tools import doctor\n"
            f"def task():\n{program}\ndoctor._TASKS['task'] = task\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        return doctor._ask("task")

    return asked


def test_answers_are_told_from_noise(task):
    answer = task("    import os; os.write(1, b'noise 1\\n'); print('noise 2', flush=True); return [1, 'two']")
    assert (answer.result, answer.problem, answer.noise.splitlines()) == ([1, "two"], "", ["noise 1", "noise 2"])


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ("    raise ValueError('no')", "ValueError: no"),
        ("    raise doctor.DeviceError('no device')", "no device"),
        ("    import os; os._exit(3)", "the process ended with exit code 3: "),
        ("    import os; os.abort()", "the process ended with signal 6 (Aborted)"),
        ("    import time; time.sleep(60)", "it did not end in 2 s"),
    ],
)
def test_processes_that_end_badly(task, monkeypatch, program, problem):
    monkeypatch.setattr(doctor, "_TIMEOUT", 2.0 if "sleep" in program else 60.0)
    assert (task(program).result, task(program).problem) == (None, problem)


def test_a_process_that_ends_badly_after_its_answer(task):
    answer = task("    import atexit, os; atexit.register(os.abort); return 1")
    assert (answer.result, answer.problem) == (1, "the process ended with signal 6 (Aborted)")


# The check of a device


def test_checks_begin_with_every_operator():
    mixed = list(doctor._mixed(selfcheck.checks()))
    begin = mixed[: doctor._CASES]
    assert Counter(check.operator for check in begin) == dict.fromkeys(
        (o.name for o in OPERATORS), doctor._CASES // len(OPERATORS)
    )
    assert {check.desc.inputs[0].data_type for check in begin} == set(SELECTED_TYPES)
    assert sorted(map(repr, mixed)) == sorted(map(repr, selfcheck.checks()))


def test_check_of_a_device(driver):
    assert doctor._check(str(driver.index)) == (doctor._CASES, "")


def test_check_finds_wrong_results(driver, monkeypatch):
    def wrong_reductions(self, device):
        return dmlgpu.VerificationError("y[0] differs") if self.operator.startswith("REDUCE") else None

    monkeypatch.setattr(selfcheck.Check, "run", wrong_reductions)
    # ARGMAX and ARGMIN come first.
    assert doctor._check(str(driver.index)) == (2, "REDUCE ARGMAX: y[0] differs")
