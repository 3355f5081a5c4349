"""dmlgpu chooses a build of Kompute; both builds work in one process; the wheel of dmlgpu-kp is complete."""

import ast
import ctypes
import hashlib
import importlib
import importlib.metadata
import json
import logging
import os
import re
import sys
import sysconfig
import tarfile
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

import dmlgpu
from dmlgpu import DeviceError, SettingError
from dmlgpu.registry import OPERATORS
from dmlgpu.runtime import kompute, kompute_module
from tests.support.processes import PLAIN, ROOT, output_of

COMPLETE = "\n".join(
    f"class {name}: {'; '.join(f'{part} = 1' for part in parts) or 'pass'}"
    for name, parts in kompute_module.NAMES.items()
)


@pytest.fixture
def install(monkeypatch, tmp_path):
    """Installs a module kp with a version of its package, and chooses it by DMLGPU_KOMPUTE."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "kp", raising=False)
    monkeypatch.setenv("DMLGPU_KOMPUTE", "kp")

    def installed(program, version):
        (tmp_path / "kp.py").write_text(program)
        if version:
            folder = tmp_path / f"kp-{version}.dist-info"
            folder.mkdir()
            (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: kp\nVersion: {version}\n")

    yield installed
    sys.modules.pop("kp", None)


@pytest.mark.parametrize("wanted", ["", "dmlgpu_kp", " DMLGPU_KP "])
def test_kp_is_imported_only_if_it_is_chosen(install, monkeypatch, wanted):
    install("raise SystemExit('imported')", "0.9.0")
    monkeypatch.setenv("DMLGPU_KOMPUTE", wanted)
    assert kompute_module.kompute().__name__ == kompute_module.kompute().__name__ == "dmlgpu_kp"
    monkeypatch.setitem(sys.modules, "dmlgpu_kp", None)
    with pytest.raises(DeviceError, match=r"^the package dmlgpu-kp is not installed"):
        kompute_module.kompute()


def test_other_packages_are_refused(monkeypatch):
    monkeypatch.setenv("DMLGPU_KOMPUTE", "this")
    with pytest.raises(SettingError, match=r"^DMLGPU_KOMPUTE: 'this' is not allowed; allowed are dmlgpu_kp, kp$"):
        kompute_module.kompute()


def test_the_right_kp_is_accepted(install):
    install(COMPLETE, "0.9.0")
    kp = kompute_module.kompute()
    assert (kp.__name__, kompute_module.package_of(kp)) == ("kp", "kp")
    assert kompute._memory_left(kp.Manager()) == []
    assert kompute._new_tensor(SimpleNamespace(tensor_t=lambda *arguments: arguments), 3, "host")[1:] == ("host",)


MISSING = [*kompute_module.NAMES, *(f"{name}.{part}" for name, parts in kompute_module.NAMES.items() for part in parts)]


@pytest.mark.parametrize(
    ("program", "version", "problem"),
    [
        # Another version is not imported.
        ("raise SystemExit('imported')", "0.8.1", r"is version 0\.8\.1$"),
        ("raise SystemExit('imported')", "0.9.0.post8", r"is version 0\.9\.0\.post8$"),
        ("raise SystemExit('imported')", None, "is not installed$"),
        *((f"{COMPLETE}\ndel {name}", "0.9.0", "lacks some of the names of that version$") for name in MISSING),
        ("raise ImportError('libvulkan.so.1')", "0.9.0", r"cannot be loaded: libvulkan\.so\.1$"),
    ],
)
def test_another_kp_is_refused(install, program, version, problem):
    install(program, version)
    with pytest.raises(DeviceError, match=rf"^DMLGPU_KOMPUTE asks for the package kp 0\.9\.0, which {problem}"):
        kompute_module.kompute()


@pytest.mark.parametrize("last", ["", "\ndel Manager", "\nimport that_is_missing"])
def test_importing_kp_changes_no_logging(install, last):
    install(f"import logging\nlogging.root.addHandler(logging.NullHandler())\n{COMPLETE}{last}", "0.9.0")
    before = list(logging.root.handlers)
    with suppress(DeviceError):
        kompute_module.kompute()
    assert logging.root.handlers == before


def test_the_names_are_those_that_are_called():
    tree = ast.parse(Path(dmlgpu.__file__).parent.joinpath("runtime/kompute.py").read_text())
    attributes = "\n".join({ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)})
    names = set(re.findall(r"^self\._kp\.(\w+)$", attributes, re.MULTILINE))
    assert {"Manager", "OpAlgoDispatch"} <= names <= set(kompute_module.NAMES)
    of_managers = set(re.findall(r"^(?:self\._)?manager\.(\w+)$", attributes, re.MULTILINE))
    assert of_managers - {"empty", "get_memory_left"} == set(kompute_module.NAMES["Manager"])
    of_sequences = set(re.findall(r"^(?:sequence|submit)\.(\w+)$", attributes, re.MULTILINE))
    assert of_sequences == set(kompute_module.NAMES["Sequence"])


# The original kp beside dmlgpu-kp


@pytest.fixture
def beside(environment):
    """The variables of a process that finds the original kp."""
    assert PLAIN.is_dir(), "make pytest puts kp there"
    return environment | {"PYTHONPATH": f"{PLAIN}{os.pathsep}{environment.get('PYTHONPATH', '')}"}


BOTH = """
import importlib, sys
from numpy import arange, uint32
modules = [importlib.import_module(name) for name in sys.argv[1:]]
managers = [module.Manager(0) for module in modules]
for module, manager in zip(modules, managers):
    tensor = manager.tensor_t(arange(5, dtype=uint32), module.TensorTypes.device)
    assert type(tensor) is module.Tensor and type(manager) is module.Manager, (tensor, manager)
    sequence = manager.sequence()
    sequence.record(module.OpTensorSyncDevice([tensor]))
    assert type(sequence.eval()) is module.Sequence
    tensor.data()[:] = 0
    manager.sequence().eval(module.OpTensorSyncLocal([tensor]))
    assert tensor.data().tolist() == [0, 1, 2, 3, 4]
    try:
        module.Manager(99)
    except RuntimeError as error:
        print(module.__name__, module.TensorTypes.device.name)
a, b = ({value for name, value in vars(module).items() if isinstance(value, type)} for module in modules)
assert sorted(map(len, (a, b))) == [11, 11] and not a & b, (a, b)
for manager in managers:
    manager.destroy()
"""


@pytest.mark.parametrize("order", [("kp", "dmlgpu_kp"), ("dmlgpu_kp", "kp")], ids=lambda order: order[0])
def test_both_builds_compute_in_one_process(beside, order):
    assert output_of(BOTH, *order, environment=beside).splitlines() == [f"{name} device" for name in order]


def test_the_original_kp_passes_the_checks_of_doctor(beside, driver):
    program = """
import sys
from dmlgpu.runtime import kompute_module
from dmlgpu.testing import cases
from dmlgpu.tools import doctor
# A few operators save time.
cases.samples.__defaults__ = (cases.OPERATORS[::6],)
print(kompute_module.package_of(kompute_module.kompute()), doctor._check(sys.argv[1]))
"""
    environment = beside | {"DMLGPU_KOMPUTE": "kp"}
    assert output_of(program, str(driver.index), environment=environment) == f"kp ({len(OPERATORS[::6])}, '')\n"


@pytest.fixture
def recipe(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / ".ci/kp")
    return importlib.import_module("recipe")


def test_all_files_agree_on_the_version_of_kompute():
    setup = (ROOT / ".ci/kp/setup.py").read_text()
    kompute, package = re.findall(r'^(?:KOMPUTE|VERSION) = f?"(.*)"$', setup, re.MULTILINE)
    assert (kompute, package.format(KOMPUTE=kompute)) == (kompute_module.KP_VERSION, kompute_module.PACKAGE_VERSION)


def test_the_wheel_says_what_is_linked_in_and_has_its_licence():
    distribution = importlib.metadata.distribution("dmlgpu-kp")
    bill = json.loads(distribution.read_text("sboms/dmlgpu_kp.cdx.json"))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    versions = {component["name"]: component["version"] for component in bill["components"]}
    assert (versions["Kompute"], versions["fmt"]) == (kompute_module.KP_VERSION, "7.1.3")
    assert versions["libc++"] == versions["libunwind"] > "20"
    licences = {file.stem for file in distribution.files if "licenses" in file.parts}
    # The wheel's own licence is that of Kompute.
    assert {name.replace("libc++", "libcxx").lower() for name in versions} - {"kompute"} == {
        name.lower() for name in licences - {"LICENSE"}
    }


def test_the_module_exports_nothing_of_the_cpp_library():
    import dmlgpu_kp

    assert not hasattr(ctypes.CDLL(dmlgpu_kp.__file__), "_Znwm")  # operator new


def test_headers_of_a_python_come_from_the_right_archive(recipe, monkeypatch, tmp_path):
    """A false apt-get downloads the sources of a Python 3.98."""
    archive, script = tmp_path / "python.tar", tmp_path / "apt-get"
    with tarfile.open(archive, "w") as tar:
        tar.addfile(tarfile.TarInfo("Python-3.98.1/Include/Python.h"))
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    (tmp_path / "pythons.txt").write_text(f"3.98 release python.tar sha256:{digest}\n")
    script.write_text('#!/bin/sh\ncase "$*" in *" source "*) cp "$TMPDIR/python.tar" . ;; esac\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(recipe, "HERE", tmp_path)
    monkeypatch.setattr(recipe, "TOOLCHAIN", tmp_path / "toolchain")
    include = tmp_path / "toolchain/python3.98/Python-3.98.1/Include"
    assert recipe.headers_of_sources("3.98") == recipe.Python("3.98", include)
    archive.write_bytes(archive.read_bytes() + b"more")
    with pytest.raises(SystemExit, match=r"Debian's python\.tar is not that of pythons\.txt"):
        recipe.headers_of_sources("3.98")


def test_one_pyconfig_fits_this_python():
    text = (ROOT / ".ci/kp/pyconfig.h").read_text()
    text = re.sub(r"#ifdef _WIN32.*?#else", "", text, flags=re.DOTALL)
    ours = {name: int(value) for name, value in re.findall(r"#define (\w+) (\d+)", text)}
    theirs = sysconfig.get_config_vars()
    assert {name: value for name, value in ours.items() if theirs.get(name, value) != value} == {}
    assert {name for name in ours if name.startswith("SIZEOF_")} <= set(theirs)


# Commands of a Mach-O file.
LOADS = b"\x0c\0\0\0\x38\0\0\0\x18\0\0\0" + bytes(12) + b"%s\0"
LOOKS_IN = b"\x1c\0\0\x80\x20\0\0\0\x0c\0\0\0%s\0"
FROM = b"\x32\0\0\0\x18\0\0\0\x01\0\0\0\0%c%c\0"
VULKAN = LOADS % b"@rpath/libvulkan.1.dylib"
HOMEBREW = LOOKS_IN % b"/opt/homebrew/lib"
FOUND = HOMEBREW + LOOKS_IN % b"/usr/local/lib" + VULKAN


@pytest.mark.parametrize(
    ("platform", "module", "error"),
    [
        ("manylinux_x86_64", b"\0libvulkan.so.1\0libc.so.6\0GLIBC_2.17\0", None),
        ("manylinux_x86_64", b"\0libvulkan.so.1\0libc.so.6\0GLIBC_2.18\0", "the module needs GLIBC_2.18"),
        ("manylinux_x86_64", b"\0libvulkan.so.1\0libstdc++.so.6\0", r"the module needs libstdc\+\+.so.6"),
        ("manylinux_x86_64", b"\0libvulkan.so.1\0_ZNSt3__15mutexD1Ev\0", "the module needs _ZNSt3__15mutexD1Ev"),
        ("manylinux_x86_64", b"\0libvulkan.so.1\0%s/x.cpp\0" % os.fsencode(ROOT), "the module names /"),
        ("musllinux_x86_64", b"\0libvulkan.so.1\0libc.so\0", None),
        ("musllinux_x86_64", b"\0libvulkan.so.1\0libc.so.6\0", "the module needs libc.so.6"),
        ("win_amd64", b"\0vulkan-1.dll\0python311.dll\0", None),
        ("win_amd64", b"\0vulkan-1.dll\0libc++.dll\0", r"the module needs libc\+\+.dll"),
        ("macosx_arm64", FROM % (0, 11) + FOUND + LOADS % b"/usr/lib/libSystem.B.dylib", None),
        ("macosx_arm64", FROM % (1, 11) + FOUND, r"the module needs macos\.11\.1"),
        ("macosx_arm64", FOUND + LOADS % b"/usr/lib/libc++.1.dylib", r"needs /usr/lib/libc\+\+"),
        ("macosx_arm64", HOMEBREW + VULKAN, "needs -Wl,-rpath,/usr/local/lib"),
    ],
)
def test_modules_need_no_more_than_their_platform_has(recipe, platform, module, error):
    with pytest.raises(SystemExit, match=error) if error else nullcontext():
        recipe.check(module, recipe.PLATFORMS[platform])


def test_the_platforms_are_those_of_the_page(recipe):
    page = (ROOT / "docs/installing.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+_\w+)` \|", page, re.MULTILINE) == [*recipe.PLATFORMS]
