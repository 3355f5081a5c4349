"""The kit for machines with a GPU and little else: what it takes along, and what its script survives."""

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from benchmarks.kit import breakdown, build, facts, run
from dmlgpu import Device
from tests.support.drivers import DRIVERS, set_drivers
from tests.support.processes import ROOT

SCRIPT = Path(run.__file__)


def wheel(folder, name, version, *requirements, files=()):
    """A wheel with one module, which holds the version."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", f"version = {version!r}\n")
        lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {text}" for text in requirements)]
        archive.writestr(f"{name}-{version}.dist-info/METADATA", "\n".join(lines) + "\n")
        for file in files:
            archive.writestr(file, "")
    return path


@pytest.fixture
def kit(tmp_path):
    """A kit of this checkout, for a machine that has all packages."""
    folder = tmp_path / "kit"
    (folder / "lib").mkdir(parents=True)
    (folder / "wheels").mkdir()
    (folder / "source").symlink_to(ROOT, target_is_directory=True)
    version = "{}.{}".format(*sys.version_info)
    (folder / "kit.json").write_text(json.dumps({"python": version, "wheels": [], "dmlgpu": "1.2", "commit": "abc"}))
    return folder


@pytest.fixture
def runner(kit, tmp_path):
    temporary, output = tmp_path / "temporary", tmp_path / "output"
    temporary.mkdir()
    output.mkdir()
    made = run.Runner(kit, output, temporary, 100)
    made.results.kit = json.loads((kit / "kit.json").read_text())
    return made


# Processes


def test_the_script_needs_the_standard_library_only():
    nodes = list(ast.walk(ast.parse(SCRIPT.read_text())))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
    assert {name.partition(".")[0] for name in names} <= {*sys.stdlib_module_names, "__future__"}


@pytest.mark.parametrize(
    ("program", "state", "detail"),
    [
        ("print('fine')", run.OK, ""),
        ("raise ValueError('broken')", run.FAILED, "exit code 1: ValueError: broken"),
        ("import os; os.kill(os.getpid(), 11)", run.FAILED, "signal 11 (Segmentation fault)"),
        ("import time; print('begun', flush=True); time.sleep(60)", run.TIMED_OUT, "after 1 s"),
    ],
)
def test_a_step_ends_as_it_does(runner, program, state, detail):
    done, text = runner.step("a step", ["-c", program], 1)
    assert (done.state, done.detail) == (state, detail)
    assert text.strip() in ("fine", "begun", "")
    assert f"a step: -c {program}: {state}" in runner.log.read_text()
    assert runner.results.steps == [done]


def test_what_a_step_leaves_running_is_ended(runner, tmp_path):
    file = tmp_path / "pid"
    child = f"import os, time; open({str(file)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    program = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(60)"
    runner.step("a step", ["-c", program], 2)
    deadline = time.monotonic() + 5
    while Path(f"/proc/{file.read_text()}/cmdline").exists() and time.monotonic() < deadline:
        # Its parent is gone: whether anybody collects it is not its matter.
        if Path(f"/proc/{file.read_text()}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.05)
    else:
        assert time.monotonic() < deadline


def test_no_step_begins_when_the_time_is_over(runner):
    runner.end = time.monotonic()
    assert runner.step("a step", ["-c", ""], 10)[0].state == run.NOT_RUN


def test_a_part_that_raises_leaves_the_others_alone(runner, monkeypatch):
    for name in ("_facts", "_doctor", "_verify", "_tests", "_breakdown", "_benchmark", "_scale", "_plots"):
        monkeypatch.setattr(run, name, lambda runner, name=name: runner.note(name, run.OK))

    def _doctor(runner):
        raise KeyError("findings")

    monkeypatch.setattr(run, "_doctor", _doctor)
    run.measure(runner)
    states = [step.state for step in runner.results.steps]
    assert states == [run.OK, run.FAILED, *[run.OK] * 6]
    assert runner.results.steps[1].detail == "KeyError('findings')"


def test_the_log_holds_the_end_of_what_was_written(runner, monkeypatch):
    monkeypatch.setattr(run, "_LOG_BYTES", 100)
    runner.step("a step", ["-c", "for i in range(10000): print(i)"], 20)
    assert "[...]" in runner.log.read_text()
    assert "9999" in runner.log.read_text()
    assert "5000" not in runner.log.read_text()


# What the machine lacks


def test_only_what_the_machine_lacks_is_unpacked(runner, monkeypatch):
    machine = {"numpy": "2.1.3", "rich": "12.0", "dmlgpu": "9.9"}
    monkeypatch.setattr(run, "version_of", lambda name: machine.get(name, ""))
    least = {"numpy": "1.26", "rich": "13", "pytest": "8", "dmlgpu": None}
    for name, bound in least.items():
        file = wheel(runner.kit / "wheels", name, "20.0")
        entry = {"file": file.name, "name": name, "version": "20.0", "least": bound}
        runner.results.kit["wheels"].append(entry)
    run.unpack(runner)
    site = runner.temporary / "site"
    assert sorted(path.stem for path in site.glob("*.py")) == ["dmlgpu", "pytest", "rich"]
    assert runner.results.machine["packages of the machine"] == ["numpy 2.1.3"]
    assert runner.environment["PYTHONPATH"].split(os.pathsep)[:2] == [str(site), str(runner.kit / "source")]
    _, text = runner.process("import", ["-c", "import pytest; print(pytest.version)"], 20)
    assert text == "20.0\n"


def test_only_libraries_that_the_machine_lacks_are_taken(runner):
    for name in ("libc.so.6", "libnosuch.so.1"):
        (runner.kit / "lib" / name).touch()
    run.libraries(runner)
    folder = runner.temporary / "lib"
    assert [path.name for path in folder.iterdir()] == ["libnosuch.so.1"]
    assert str(folder) in runner.environment["LD_LIBRARY_PATH"]


def test_a_package_of_another_version_counts_by_its_numbers():
    assert run.numbers("2.11.0+cu130") == (2, 11, 0)
    assert run.numbers("1.26") < run.numbers("2.0rc1")


@pytest.mark.parametrize("version", ["", "3.6.3", "3.8.0"])
def test_plots_are_drawn_by_a_matplotlib_that_can(runner, monkeypatch, version):
    monkeypatch.setattr(run, "version_of", lambda name: version)
    monkeypatch.setattr(runner, "step", lambda name, *rest: runner.note(name, run.OK))
    (runner.output / "scale.json").touch()
    run._plots(runner)
    expected = [("plot of scale", run.OK)] if version == "3.8.0" else [("plots", run.NOT_RUN)]
    assert [(step.name, step.state) for step in runner.results.steps] == expected


# Devices


def test_every_driver_is_asked_in_a_process_of_its_own(runner, monkeypatch, tmp_path):
    broken = tmp_path / "broken.json"
    broken.write_text("{}")
    named = os.pathsep.join(map(str, [broken, *DRIVERS.values()]))
    assert run.find_device(runner, None, named)
    assert [driver["state"] for driver in runner.results.drivers] == [run.FAILED, run.OK, run.OK]
    assert "llvmpipe" in runner.results.device["name"]
    manifest = str(DRIVERS["lavapipe"])
    assert runner.environment["VK_DRIVER_FILES"] == runner.environment["DMLGPU_TEST_ONLY"] == manifest
    assert run.find_device(runner, "swiftshader", named)
    assert runner.environment["VK_ICD_FILENAMES"] == str(DRIVERS["swiftshader"])
    assert not run.find_device(runner, "no such device", named)
    assert runner.results.steps[-1].state == run.FAILED


def test_the_first_discrete_gpu_is_taken(runner, monkeypatch):
    kinds = ("cpu", "integrated", "discrete", "discrete")
    monkeypatch.setattr(run, "manifests", lambda named: list(map(Path, "abcd")))

    def ask(runner, manifest):
        number = "abcd".index(str(manifest))
        device = {"name": f"GPU {manifest}", "type": kinds[number], "driver": "", "uuid": f"{number:032x}"}
        return [{**device, "manifest": str(manifest)}]

    monkeypatch.setattr(run, "ask_driver", ask)
    run.find_device(runner, None, None)
    assert runner.results.device["name"] == "GPU c"
    for wanted in ("gpu D", "00000000-0000-0000-0000-000000000003"):
        run.find_device(runner, wanted, None)
        assert runner.results.device["name"] == "GPU d"
    assert runner.environment["DMLGPU_DEVICE"] == runner.environment["DMLGPU_TEST_DEVICE"] == f"{3:032x}"


def test_manifests_are_found_where_drivers_put_them(monkeypatch, tmp_path):
    for variable in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES"):
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "gpu.json").touch()
    monkeypatch.setattr(run, "_MANIFESTS", (str(tmp_path / "none"), str(tmp_path)))
    assert run.manifests(None) == [tmp_path / "gpu.json"]
    assert run.manifests("/a.json") == [Path("/a.json")]
    set_drivers(monkeypatch.setenv, Path("/b.json"), Path("/c.json"))
    assert run.manifests(None) == [Path("/b.json"), Path("/c.json")]


def test_facts_are_those_of_the_device(driver, monkeypatch):
    monkeypatch.setenv("DMLGPU_DEVICE", str(driver.index))
    found = json.loads(json.dumps(facts.facts()))
    assert found["device"]["name"] == driver.name
    assert found["limits"]["maxStorageBufferRange"] == driver.max_storage_buffer_range
    assert [heap["MiB"] for heap in found["heaps"]] == [size >> 20 for size in driver.heaps]
    assert any("DEVICE_LOCAL" in kind["flags"] for kind in found["memory types"])
    assert any("COMPUTE" in queue["flags"] for queue in found["queues"])


def test_a_call_is_taken_apart(driver, monkeypatch):
    for name in ("_SECONDS", "_PROFILED_SECONDS"):
        monkeypatch.setattr(breakdown, name, 0.02)
    with Device(driver.index) as device:
        found = breakdown.parts(device, breakdown.CASES[0])
        functions = breakdown.profile(device, breakdown.CASES[0])
    assert all(microseconds > 0 for microseconds in found.values())
    assert 0 < found["kernel, what is not Kompute's"] < found["kernel"] * 2
    assert any("compiled.py" in function["function"] for function in functions)


# Tests on the machine


def counted(tmp_path, text, seconds="100"):
    """What the plugin keeps of tests with this text."""
    (tmp_path / "test_it.py").write_text(text)
    file = tmp_path / "tests.json"
    environment = {**os.environ, "DMLGPU_KIT_TESTS": str(file), "DMLGPU_KIT_SECONDS": seconds, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "benchmarks.kit.progress", "-p", "no:cacheprovider"]
    subprocess.run([*command, "test_it.py"], cwd=tmp_path, env=environment, capture_output=True, timeout=60)
    return json.loads(file.read_text())


def test_tests_are_counted(tmp_path):
    text = """
import pytest
def test_a(): pass
def test_b(): assert "this" == "that"
@pytest.mark.skip
def test_c(): pass
@pytest.fixture
def broken(): raise OSError("fixture")
def test_d(broken): pass
"""
    found = counted(tmp_path, text)
    assert (found["passed"], found["failed"], found["skipped"], found["of"]) == (1, 2, 1, 4)
    assert (found["complete"], found["running"]) == (True, None)
    assert [failure["test"] for failure in found["failures"]] == ["test_it.py::test_b", "test_it.py::test_d"]
    assert "assert 'this' == 'that'" in found["failures"][0]["text"]


def test_tests_end_with_their_time(tmp_path):
    found = counted(tmp_path, "def test_a(): pass\ndef test_b(): pass\n", seconds="0")
    assert (found["passed"], found["of"], found["complete"]) == (1, 2, False)


def test_a_test_that_ends_the_process_is_named(tmp_path):
    text = "import os\ndef test_a(): pass\ndef test_b(): os._exit(3)\ndef test_c(): pass\n"
    found = counted(tmp_path, text)
    assert (found["passed"], found["running"], found["complete"]) == (1, "test_it.py::test_b", False)


# The whole script


def script(*arguments, timeout=120, **options):
    return subprocess.run(
        [sys.executable, SCRIPT, *map(str, arguments)], capture_output=True, text=True, timeout=timeout, **options
    )


def test_a_run_ends_in_time_with_results(kit, tmp_path):
    output = tmp_path / "output"
    output.mkdir()
    (output / "benchmark.json").write_text("of an earlier run")
    begin = time.monotonic()
    done = script(kit, output, "--driver", DRIVERS["lavapipe"], "--minutes", "0.4")
    assert time.monotonic() - begin < 40
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines()[-1] == f"Results: {output / 'summary.md'}"
    results = json.loads((output / "results.json").read_text())
    states = {step["name"]: step["state"] for step in results["steps"]}
    assert states["device"] == states["facts"] == run.OK
    # Of the rest, the last ones found no time.
    assert states["scale"] == run.NOT_RUN
    text = (output / "summary.md").read_text()
    assert text.startswith(f"# dmlgpu on {results['device']['name']}\n\nNo GPU was found")
    for part in (
        "## Machine",
        "| kit | dmlgpu 1.2, commit abc |",
        "| memory type |",
        "## Drivers",
        "| scale | not run |",
    ):
        assert part in text
    assert len(list(output.iterdir())) <= 8
    assert max(output.iterdir(), key=lambda path: path.stat().st_mtime_ns).name == "summary.md"


def test_a_machine_without_a_driver_is_told_so(kit, tmp_path):
    done = script(kit, tmp_path / "output", "--driver", "/no/such.json")
    assert done.returncode == 2
    assert "no such device (/no/such.json: exit code 2: dmlgpu: no Vulkan driver" in done.stdout
    assert (tmp_path / "output" / "summary.md").read_text().startswith("# dmlgpu on no device\n")


def test_a_machine_that_is_taken_back_leaves_a_summary(kit, tmp_path):
    output = tmp_path / "output"
    command = [sys.executable, str(SCRIPT), str(kit), str(output), "--driver", str(DRIVERS["lavapipe"])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if line.startswith("facts"):
                break
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=60)
    assert "run: failed, SystemExit(143)" in rest
    assert "| facts | ok |" in (output / "summary.md").read_text()


def test_another_python_than_the_kit_is_for(kit, tmp_path):
    (kit / "kit.json").write_text(json.dumps({"python": "3.99", "wheels": []}))
    done = script(kit, tmp_path / "output")
    assert (done.returncode, "This kit is for Python 3.99; this is 3." in done.stderr) == (2, True)


# Making it


def test_a_package_is_taken_from_the_version_on_that_others_need(tmp_path):
    bounds = build.lower_bounds(
        [
            "numpy>=1.26",
            "numpy>=2.0; python_version >= '3.13'",
            "NumPy!=2.1,>=1.3",
            "kp==0.9.0",
            "typing_extensions>=4.6.0 ; python_version < '3.13'",
            "rich",
            "cffi>=1.10,<3",
        ]
    )
    assert bounds == {"numpy": "2.0", "kp": "0.9.0", "typing-extensions": "4.6.0", "cffi": "1.10"}


def test_a_wheel_that_must_be_installed_is_refused(tmp_path):
    found = build.read_metadata(wheel(tmp_path, "plain", "1.0", "numpy>=2"))
    assert (found["Name"], found.get_all("Requires-Dist")) == ("plain", ["numpy>=2"])
    with pytest.raises(build.KitError, match=r"^scripts-1\.0-py3-none-any\.whl has files that only an installer"):
        build.read_metadata(wheel(tmp_path, "scripts", "1.0", files=["scripts-1.0.data/scripts/run"]))


def test_the_loader_is_taken_along(tmp_path, monkeypatch):
    found = build.copy_libraries(tmp_path / "lib")
    assert (tmp_path / "lib" / "libvulkan.so.1").read_bytes()[:4] == b"\x7fELF"
    assert set(found) == {path.name for path in (tmp_path / "lib").iterdir()}
    monkeypatch.setattr(build, "_find_library", lambda name: None)
    with pytest.raises(build.KitError, match=r"^there is no libvulkan\.so\.1 here"):
        build.copy_libraries(tmp_path / "other")


def test_all_that_tests_and_benchmarks_need_is_taken_along(tmp_path):
    source = tmp_path / "source"
    build.copy_sources(source)
    for name in run._TESTS:
        assert (source / "tests" / name).exists()
    assert not list(source.rglob("__pycache__"))
    # Where it lies, no checkout is around.
    shutil.copytree(ROOT / "dmlgpu", tmp_path / "site" / "dmlgpu")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only", "-m", "device"]
    files = [f"tests/{name}" for name in run._TESTS]
    environment = {**os.environ, "DMLGPU_TEST_ONLY": str(DRIVERS["lavapipe"]), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([*command, *files], cwd=source, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "swiftshader" not in done.stdout


@pytest.mark.parametrize("python", ["3", "2.7", "python3.12"])
def test_a_version_of_python_is_asked_for(tmp_path, python):
    with pytest.raises(build.KitError, match="is no version of Python as in"):
        build.build(python, tmp_path, tmp_path / "kit")
