"""Code runs no data, the set-up installs pinned packages, and wheels contain all licences."""

import ast
import importlib
import importlib.metadata
import platform
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

import dmlgpu
from dmlgpu.runtime import kompute_module
from tests.support.processes import ROOT

SOURCES = sorted(path for folder in ("dmlgpu", "benchmarks", ".ci") for path in (ROOT / folder).rglob("*.py"))
SCRIPTS = sorted(path for path in (ROOT / ".ci").iterdir() if path.is_file() and not path.suffix)

# Modules that may run data, and calls that run text.
MODULES = [
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
]
NAMES = {"eval", "exec", "compile", "__import__"}
CALLS = {
    *(f"builtins.{name}" for name in NAMES),
    *("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput", "pty.spawn"),
    *("asyncio.create_subprocess_shell", "yaml.load", "torch.load"),
}


def forbidden(source: str) -> Iterator[str]:
    """The parts of a program that may run data."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=modules):
                yield from (module.name for module in modules if module.name.partition(".")[0] in MODULES)
            case ast.ImportFrom(module=str(module)) if module.partition(".")[0] in MODULES:
                yield module
            case ast.ImportFrom(names=names):
                yield from {f"{node.module}.{alias.name}" for alias in names} & CALLS
            case ast.Name(id=name) if name in NAMES:
                yield name
            case ast.Attribute() if ast.unparse(node) in CALLS:
                yield ast.unparse(node)
            case ast.keyword(arg="shell" | "allow_pickle", value=value) if ast.unparse(value) != "False":
                yield node.arg


def test_no_code_runs_pickles_texts_or_shells():
    for path in SOURCES:
        # child.py runs the programs that `python -m dmlgpu.testing` prints, in a separate process.
        allowed = ["exec", "eval", "eval"] if path.match("dmlgpu/testing/child.py") else []
        assert list(forbidden(path.read_text(encoding="utf-8"))) == allowed, path


def test_the_search_finds_all_forms():
    program = "import pickle, a.b; from os import popen; from dill import x; y = eval; os.system(''); a.eval()"
    assert [*forbidden(program)] == ["pickle", "os.popen", "dill", "eval", "os.system"]
    assert [*forbidden("run('ls', shell=maybe); run([], shell=False); load(x, allow_pickle=True)")] == [
        "shell",
        "allow_pickle",
    ]


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
    """Packages with the versions that a text requires."""
    packages = re.findall(r"^([\w.-]+)(?:\[.*?\])? *([^\s;]*)", text, re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in packages}


PROJECT = (ROOT / "pyproject.toml").read_text()
PINNED = requirements(re.sub(r"^#.*\n|^\n", "", (ROOT / ".ci/constraints.txt").read_text(), flags=re.MULTILINE))
# The lists of requirements, in quotes.
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
    # The source distribution requires the same version.
    (wanted,) = re.findall(r"^pybind11==[\d.]+", (ROOT / ".ci/kp/tools.txt").read_text(), re.MULTILINE)
    assert f'"{wanted}"' in (ROOT / ".ci/kp/pyproject.toml").read_text()


PYTHON = "{}.{}".format(*sys.version_info)
TAG = f"cp{PYTHON}-cp{PYTHON}".replace(".", "")


@pytest.mark.parametrize(
    ("present", "error"),
    [
        ("README.md", "dmlgpu-kp, which no package index has: run `make wheels`"),
        (
            "dist/dmlgpu_kp-1-cp27-cp27-linux_x86_64.whl",
            "only dmlgpu_kp-1-cp27-cp27-linux_x86_64.whl: run `make wheels`",
        ),
        (f"dist/dmlgpu_kp-1-{TAG}-win32.whl", f"no wheel for Python {PYTHON} on this machine"),
        (f"dist/dmlgpu_kp-1-{TAG}-linux_{platform.machine()}.whl", None),
        ("site/dmlgpu_kp-1.dist-info", None),
        ("PKG-INFO", None),
        ("MAKING_WHEELS", None),
    ],
)
def test_pip_in_a_clone_names_make_wheels(monkeypatch, tmp_path, present, error):
    monkeypatch.syspath_prepend(ROOT / ".ci/backend")
    backend = importlib.import_module("backend")
    monkeypatch.setattr(backend, "sysconfig", SimpleNamespace(get_path={"platlib": "site"}.get))
    for name in "pyproject.toml", "CMakeLists.txt":
        shutil.copy(ROOT / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / present).parent.mkdir(exist_ok=True)
    (tmp_path / present).touch()
    if present == "MAKING_WHEELS":
        monkeypatch.setenv(present, "1")
    for hook in backend.get_requires_for_build_wheel, backend.get_requires_for_build_editable:
        with pytest.raises(SystemExit, match=error) if error else nullcontext():
            hook()


def test_wheels_and_source_distributions_have_all_licences(tmp_path):
    program = (
        "import sys; from scikit_build_core.build import build_sdist, prepare_metadata_for_build_wheel as metadata; "
        "metadata(sys.argv[1]); build_sdist(sys.argv[1])"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path], cwd=ROOT, check=True, capture_output=True)
    (licences,) = tmp_path.glob("dmlgpu-*.dist-info/licenses")
    assert {path.name for path in licences.iterdir()} == {"LICENSE", "NOTICE"}
    with tarfile.open(next(tmp_path.glob("dmlgpu-*.tar.gz"))) as source:
        assert {"LICENSE", "NOTICE"} <= {Path(name).name for name in source.getnames()}
