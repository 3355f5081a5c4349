"""What the code never does, and what the set-up takes from where."""

import ast
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import dmlgpu
from dmlgpu.runtime import kompute_module
from tests.support.processes import ROOT

SOURCES = sorted(path for folder in ("dmlgpu", "benchmarks", ".ci") for path in (ROOT / folder).rglob("*.py"))
SCRIPTS = sorted(path for path in (ROOT / ".ci").iterdir() if path.is_file() and not path.suffix)

# Modules that run what they read, and calls that run text.
MODULES = {
    "pickle",
    "_pickle",
    "cPickle",
    "marshal",
    "shelve",
    "dill",
    "cloudpickle",
    "joblib",
    "multiprocessing",
    "code",
}
NAMES = {"eval", "exec", "compile", "__import__"}
ATTRIBUTES = {
    *(("os", name) for name in ("system", "popen")),
    *(("builtins", name) for name in NAMES),
    *(("subprocess", name) for name in ("getoutput", "getstatusoutput")),
    ("asyncio", "create_subprocess_shell"),
    ("pty", "spawn"),
    ("yaml", "load"),
    ("torch", "load"),
}


def forbidden(source: str) -> list[str]:
    """What a program does that none of ours may."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.partition(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom):
            names = {(node.module, a.name) for a in node.names}
            found += [node.module] if str(node.module).partition(".")[0] in MODULES else []
            found += [".".join(name) for name in names & ATTRIBUTES]
        elif isinstance(node, ast.Name) and node.id in NAMES:
            found.append(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found += [f"{node.value.id}.{node.attr}"] if (node.value.id, node.attr) in ATTRIBUTES else []
        elif isinstance(node, ast.keyword) and node.arg in ("shell", "allow_pickle"):
            found += [] if isinstance(node.value, ast.Constant) and node.value.value is False else [node.arg]
    return found


def test_no_pickle_no_eval_no_shell():
    for path in SOURCES:
        # This one runs the programs that `python -m dmlgpu.testing` prints, in a process of its own.
        runs = ["exec", "eval", "eval"] if path.match("dmlgpu/testing/child.py") else []
        assert forbidden(path.read_text(encoding="utf-8")) == runs, path


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("import pickle", 1),
        ("from pickle import loads", 1),
        ("import multiprocessing.pool", 1),
        ("eval('1')", 1),
        ("run = exec", 1),
        ("import builtins; builtins.eval('1')", 1),
        ("import os; os.system('ls')", 1),
        ("from os import popen", 1),
        ("import subprocess; subprocess.run('ls', shell=True)", 1),
        ("import subprocess; subprocess.run('ls', shell=maybe)", 1),
        ("import subprocess; subprocess.getoutput('ls')", 1),
        ("import numpy as np; np.load('x', allow_pickle=True)", 1),
        ("sequence.eval()", 0),
        ("import subprocess; subprocess.run(['ls'], shell=False)", 0),
    ],
)
def test_the_scan_finds(source, count):
    assert len(forbidden(source)) == count


def test_one_place_holds_the_version():
    assert importlib.metadata.version("dmlgpu") == dmlgpu.__version__
    assert not re.search(r"^version *=", PROJECT, re.MULTILINE)
    sections = re.findall(r"^## \[?([\w.]+)", (ROOT / "docs/changelog.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sections[0] in (dmlgpu.__version__, "Unreleased")


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_stop_and_run_nothing_that_was_read(path):
    text = re.sub(r"#.*", "", path.read_text())
    assert text.strip().partition("\n")[0] in ("set -eu", "set -euo pipefail")
    assert not re.search(r"\beval\b|\bcurl\b|\bwget\b|\|\s*(ba)?sh\b|--trusted-host|--allow-unauthenticated", text)


def requirements(text: str) -> dict[str, str]:
    """Packages and what is required of their versions."""
    found = re.findall(r"^([\w.-]+)(?:\[.*?\])? *([^\s;]*)", text, re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found}


PROJECT = (ROOT / "pyproject.toml").read_text()
PINNED = requirements(re.sub(r"^#.*\n|^\n", "", (ROOT / ".ci/constraints.txt").read_text(), flags=re.MULTILINE))
# The quoted requirements of the lists that hold some.
LISTS = re.findall(
    r"^(?:dependencies|requires|cli|demo|bench|fuzz|dev) = \[(.*?)\]$", PROJECT, re.MULTILINE | re.DOTALL
)
RANGES = requirements("\n".join(text for part in LISTS for text in re.findall(r'"(.+?)"', part)))


def test_one_file_pins_what_the_project_has_ranges_for():
    assert set(RANGES) >= {"dmlgpu-kp", "numpy", "vulkan", "rich", "pytest", "scikit-build-core", "dmlgpu"}
    assert {name: version for name, version in RANGES.items() if not version.startswith(">=")} == {
        "dmlgpu-kp": f"=={kompute_module.PACKAGE_VERSION}",
        "dmlgpu": "",
    }
    assert all(re.fullmatch(r"==[\w.]+", version) for version in PINNED.values()), PINNED
    assert set(RANGES) - {"dmlgpu-kp", "dmlgpu"} <= set(PINNED)


def test_all_that_these_need_is_pinned():
    needed = ["dmlgpu"]
    for name in needed:
        extras = ("cli", "demo", "bench", "onnx", "dev") if name == "dmlgpu" else ("",)
        for requirement in map(Requirement, importlib.metadata.requires(name) or ()):
            marker, other = requirement.marker, canonicalize_name(requirement.name)
            if other not in needed and (not marker or any(marker.evaluate({"extra": extra}) for extra in extras)):
                needed.append(other)
    assert set(needed) - {"dmlgpu", "dmlgpu-kp"} <= set(PINNED)
    assert {"z3-solver", "pyparsing", "pycparser"} <= set(needed)


def test_actions_are_pinned_by_hashes():
    used = [line for path in (ROOT / ".github/workflows").iterdir() for line in path.read_text().splitlines()]
    used = [line.partition("uses: ")[2] for line in used if "uses: " in line]
    assert len(used) >= 5
    for action in used:
        assert action.startswith("./") or re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action


def test_what_builds_kompute_is_pinned_by_hashes():
    package = r"[\w.-]+==[\w.]+( --hash=sha256:[0-9a-f]{64})+"
    python = r"(3\.\d+) \w+ python\1_\1\.\d+\.orig\.tar\.[gx]z sha256:[0-9a-f]{64}"
    for name, row in (("sources", package), ("headers", package), ("tools", package), ("pythons", python)):
        lines = re.sub(r"^#.*\n", "", (ROOT / f".ci/kp/{name}.txt").read_text(), flags=re.MULTILINE).splitlines()
        assert lines
        assert all(re.fullmatch(row, line) for line in lines)
    downloads = re.findall(r'"pip", (.*)', (ROOT / ".ci/kp/recipe.py").read_text())
    assert len(downloads) == 2
    assert all("--require-hashes" in line or "*options" in line for line in downloads)
    # The source distribution takes the same.
    (wanted,) = re.findall(r"^pybind11==[\d.]+", (ROOT / ".ci/kp/tools.txt").read_text(), re.MULTILINE)
    assert f'"{wanted}"' in (ROOT / ".ci/kp/pyproject.toml").read_text()


VERSION = "{}.{}".format(*sys.version_info)
CPYTHON = VERSION.replace(".", "")

# make wheels


def test_make_wheels_leaves_other_things_in_dist(tmp_path):
    (tmp_path / ".ci").mkdir()
    for script in "wheels", "lock", "kp-wheel":
        shutil.copy(ROOT / ".ci" / script, tmp_path / ".ci")
    for name in "site/index.html", "gpu-kit/run.py", "deps/rich-1.whl", "dmlgpu-0.whl", "dmlgpu_kp-0-cp311.whl":
        (tmp_path / "dist" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "dist" / name).touch()
    done = subprocess.run(["sh", ".ci/wheels"], cwd=tmp_path, env={**os.environ, "PYTHON": "false"}, timeout=60)
    assert done.returncode == 1
    assert sorted(path.name for path in (tmp_path / "dist").rglob("*.*")) == ["index.html", "run.py"]


@pytest.mark.parametrize("hook", ["get_requires_for_build_wheel", "get_requires_for_build_editable"])
@pytest.mark.parametrize(
    ("present", "error"),
    [
        ("README.md", "dmlgpu-kp, which no package index has: run `make wheels`"),
        (
            "dist/dmlgpu_kp-1-cp27-cp27-linux_x86_64.whl",
            "only dmlgpu_kp-1-cp27-cp27-linux_x86_64.whl: run `make wheels`",
        ),
        (f"dist/dmlgpu_kp-1-cp{CPYTHON}-cp{CPYTHON}-win32.whl", f"no wheel for Python {VERSION} on this machine"),
        (f"dist/dmlgpu_kp-1-cp{CPYTHON}-cp{CPYTHON}-linux_{platform.machine()}.whl", None),
        ("site/dmlgpu_kp-1.dist-info", None),
        ("PKG-INFO", None),
        ("MAKING_WHEELS", None),
    ],
)
def test_pip_in_a_clone_names_make_wheels(tmp_path, hook, present, error):
    environment = {**os.environ, **({present: "1"} if present == "MAKING_WHEELS" else {})}
    (tmp_path / present).parent.mkdir(exist_ok=True)
    (tmp_path / present).touch()
    for name in "pyproject.toml", "CMakeLists.txt":
        shutil.copy(ROOT / name, tmp_path)
    program = f"""
import sys, types
sys.path.insert(0, {str(ROOT / ".ci/backend")!r})
import backend
backend.sysconfig = types.SimpleNamespace(get_path={{"platlib": "site"}}.get)
assert backend.{hook}() is not None
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    if error:
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1
        assert error in done.stderr
    else:
        assert (done.returncode, done.stderr) == (0, "")


def test_wheels_and_source_distributions_have_all_licences(tmp_path):
    program = "import sys; from scikit_build_core import build; print(getattr(build, sys.argv[1])(sys.argv[2]))"
    for hook in "prepare_metadata_for_build_wheel", "build_sdist":
        subprocess.run([sys.executable, "-c", program, hook, tmp_path], cwd=ROOT, check=True, capture_output=True)
    (licences,) = tmp_path.glob("dmlgpu-*.dist-info/licenses")
    assert {path.name for path in licences.iterdir()} == {"LICENSE", "NOTICE"}
    with tarfile.open(next(tmp_path.glob("dmlgpu-*.tar.gz"))) as source:
        assert {"LICENSE", "NOTICE"} <= {Path(name).name for name in source.getnames()}


def test_tests_start_only_what_the_setup_installs(tmp_path):
    """Neither a system's cmake nor a compiler: tests that build shaders, where PATH has what README asks for."""
    for name in "git", "make", "python3", "glslangValidator", "spirv-val", "spirv-dis", "spirv-as", "spirv-opt":
        (tmp_path / name).symlink_to(shutil.which(name))
    tests = "tests/host/test_shaders.py", "-k", "wheels or refuses or built"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PATH": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
