"""Which build of Kompute is used, and what both do in one process."""

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
from dmlgpu.runtime import kompute, kompute_module
from dmlgpu.tools import doctor
from tests.support.processes import PLAIN, ROOT, output_of

COMPLETE = "\n".join(
    f"class {name}: {'; '.join(f'{part} = 1' for part in parts) or 'pass'}"
    for name, parts in kompute_module.NAMES.items()
)


@pytest.fixture
def install(monkeypatch, tmp_path):
    """Puts a module named kp where it is found, as of a package of some version, and asks for it."""
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
def test_kp_is_not_even_imported_where_nobody_asks_for_it(install, monkeypatch, wanted):
    install("raise SystemExit('imported')", "0.9.0")
    monkeypatch.setenv("DMLGPU_KOMPUTE", wanted)
    assert kompute_module.kompute().__name__ == kompute_module.kompute().__name__ == "dmlgpu_kp"
    monkeypatch.setitem(sys.modules, "dmlgpu_kp", None)
    with pytest.raises(DeviceError, match=r"^the package dmlgpu-kp .* Install dmlgpu-kp 0\.9\.0\.post8 as in docs"):
        kompute_module.kompute()
    monkeypatch.setenv("DMLGPU_KOMPUTE", "this")
    with pytest.raises(SettingError, match=r"^DMLGPU_KOMPUTE: 'this' is not allowed; allowed are dmlgpu_kp, kp$"):
        kompute_module.kompute()


def test_the_right_kp(install):
    install(COMPLETE, "0.9.0")
    kp = kompute_module.kompute()
    assert (kp.__name__, kompute_module.package_of(kp)) == ("kp", "kp")
    assert kompute._memory_left(kp.Manager()) == []
    assert kompute._new_tensor(SimpleNamespace(tensor_t=lambda *given: given), 3, "host")[1:] == ("host",)


MISSING = [*kompute_module.NAMES, *(f"{name}.{part}" for name, parts in kompute_module.NAMES.items() for part in parts)]


@pytest.mark.parametrize(
    ("program", "version", "problem"),
    [
        # Another version is not even imported.
        *(
            ("raise SystemExit('imported')", v, f"is version {re.escape(v)}$")
            for v in ("0.8.1", "0.9.1", "0.9.0.post8")
        ),
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
def test_logging_stays_as_it_was(install, last):
    install(f"import logging\nlogging.root.addHandler(logging.NullHandler())\n{COMPLETE}{last}", "0.9.0")
    before = list(logging.root.handlers)
    with suppress(DeviceError):
        kompute_module.kompute()
    assert logging.root.handlers == before


def test_the_names_are_those_that_are_called():
    tree = ast.parse(Path(dmlgpu.__file__).parent.joinpath("runtime/kompute.py").read_text())
    called = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names = {found[1] for text in called if (found := re.fullmatch(r"self\._kp\.(\w+)", text))}
    assert names <= set(kompute_module.NAMES)
    assert {"Manager", "OpAlgoDispatch"} <= names
    manager = {found[1] for text in called if (found := re.fullmatch(r"(?:self\._)?manager\.(\w+)", text))}
    assert manager - {"empty", "get_memory_left"} == set(kompute_module.NAMES["Manager"])
    sequence = {found[1] for text in called if (found := re.fullmatch(r"(?:sequence|submit)\.(\w+)", text))}
    assert sequence == set(kompute_module.NAMES["Sequence"])


# kp as it is, beside ours


@pytest.fixture
def beside(environment):
    """Variables of a process that finds kp as it is."""
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
def test_both_in_one_process(beside, order):
    assert output_of(BOTH, *order, environment=beside).splitlines() == [f"{name} device" for name in order]


def test_kp_as_it_is(beside, driver):
    program = """
import sys
from dmlgpu.runtime import kompute_module
from dmlgpu.tools import doctor
print(kompute_module.package_of(kompute_module.kompute()), doctor._check(sys.argv[1]))
"""
    environment = beside | {"DMLGPU_KOMPUTE": "kp"}
    assert output_of(program, str(driver.index), environment=environment) == f"kp ({len(doctor._cases())}, '')\n"


@pytest.fixture
def recipe(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / ".ci/kp")
    return importlib.import_module("recipe")


def test_one_version():
    text = (ROOT / ".ci/kp/setup.py").read_text()
    assert 'KOMPUTE = "0.9.0"' in text
    assert 'VERSION = f"{KOMPUTE}.post8"' in text
    assert (kompute_module.KP_VERSION, kompute_module.PACKAGE_VERSION) == ("0.9.0", "0.9.0.post8")


def test_every_type_stays_in_the_module():
    bindings = (ROOT / ".ci/kp/bindings.cpp").read_text()
    # Three operations have one template.
    assert bindings.count("py::module_local()") == len(re.findall(r"py::(class_|enum_)<", bindings)) == 9


def test_the_wheel_says_what_is_linked_in_and_has_its_licence():
    distribution = importlib.metadata.distribution("dmlgpu-kp")
    bill = json.loads(distribution.read_text("sboms/dmlgpu_kp.cdx.json"))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    versions = {each["name"]: each["version"] for each in bill["components"]}
    assert (versions["Kompute"], versions["fmt"]) == (kompute_module.KP_VERSION, "7.1.3")
    assert versions["libc++"] == versions["libunwind"] > "20"
    licences = {file.stem for file in distribution.files if "licenses" in file.parts}
    # That of Kompute is the wheel's own.
    assert {name.replace("libc++", "libcxx").lower() for name in versions} - {"kompute"} == {
        name.lower() for name in licences - {"LICENSE"}
    }


def test_the_module_exports_nothing_of_the_cpp_library():
    import dmlgpu_kp

    assert not hasattr(ctypes.CDLL(dmlgpu_kp.__file__), "_Znwm")  # operator new


def test_the_headers_of_an_interpreter(recipe, tmp_path):
    include = tmp_path / "an include"
    include.mkdir()
    python = tmp_path / "python3.9"
    python.write_text(f"#!/bin/sh\necho 3.9 '{include}'\n")
    python.chmod(0o755)
    assert recipe.headers(str(python)) is None
    (include / "Python.h").touch()
    assert recipe.headers(str(python)) == recipe.Python("3.9", include)
    assert recipe.headers(str(tmp_path / "python3.98")) is None


# As apt-get: it finds the sources of Python 3.98, if an address that it was given has the release.
APT_GET = """#!/bin/sh
case "$*" in
*indextargets*) echo one: two: one: ;;
*update) cp sources.list "$TMPDIR" ;;
*"source --download-only --tar-only python3.98") cp "$TMPDIR"/python.tar . ;;
esac
"""


@pytest.fixture
def sources(recipe, monkeypatch, tmp_path):
    """A folder where an apt-get finds sources, and pythons.txt."""
    (tmp_path / "apt-get").write_text(APT_GET)
    (tmp_path / "apt-get").chmod(0o755)
    with tarfile.open(tmp_path / "python.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("Python-3.98.1/Include/Python.h"))
    digest = hashlib.sha256((tmp_path / "python.tar").read_bytes()).hexdigest()
    (tmp_path / "pythons.txt").write_text(f"# Sources\n3.98 toy python.tar sha256:{digest}\n")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(recipe, "HERE", tmp_path)
    monkeypatch.setattr(recipe, "TOOLCHAIN", tmp_path / "toolchain")
    return tmp_path


def test_headers_of_a_python_that_is_not_here(recipe, sources, monkeypatch):
    include = sources / "toolchain/python3.98/Python-3.98.1/Include"
    assert recipe.headers_of_sources("3.98") == recipe.Python("3.98", include)
    assert (include / "Python.h").exists()
    lines = (sources / "sources.list").read_text().splitlines()
    key = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
    assert lines == [f"deb-src {key} {address} toy main" for address in ("one:", "two:")]
    # Those that are not pinned, and those that cannot be had.
    monkeypatch.setattr(recipe, "TOOLCHAIN", sources / "another")
    content = (sources / "python.tar").read_bytes()
    (sources / "python.tar").write_bytes(content + b"more")
    with pytest.raises(SystemExit, match=r"Debian's python\.tar is not that of pythons\.txt"):
        recipe.headers_of_sources("3.98")
    assert recipe.headers_of_sources("3.99") is None
    (sources / "python.tar").unlink()
    assert recipe.headers_of_sources("3.98") is None
    monkeypatch.setenv("PATH", "")
    assert recipe.headers_of_sources("3.98") is None


def test_one_pyconfig_for_all_pythons():
    text = (ROOT / ".ci/kp/pyconfig.h").read_text()
    text = re.sub(r"#ifdef _WIN32.*?#else", "", text, flags=re.DOTALL)
    ours = {name: int(value) for name, value in re.findall(r"#define (\w+) (\d+)", text)}
    theirs = sysconfig.get_config_vars()
    assert {name: value for name, value in ours.items() if theirs.get(name, value) != value} == {}
    assert {name for name in ours if name.startswith("SIZEOF_")} <= set(theirs)


def test_make_wheels_says_first_which_pythons_it_lacks(recipe, tmp_path, monkeypatch, capsys):
    version = sysconfig.get_python_version()
    monkeypatch.setattr(recipe, "PYTHONS", ("3.98", version, "3.99"))
    monkeypatch.setattr(recipe, "tools", lambda: sys.exit("builds"))
    monkeypatch.setattr(recipe, "TOOLCHAIN", tmp_path / "toolchain")
    monkeypatch.setattr(sys, "argv", ["recipe.py", str(tmp_path / "dist")])
    with pytest.raises(SystemExit, match="builds"):
        recipe.main()
    assert capsys.readouterr().out.startswith(f"Wheels for Python {version}; none for 3.98, 3.99, which")


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
        ("musllinux_x86_64", b"\0libvulkan.so\0_ZNKSt3__15ctypeIcEE\0", "the module needs .*_ZNKSt3__15ctypeIcEE"),
        ("musllinux_x86_64", b"\0libvulkan.so.1\0libc.so\0", None),
        ("musllinux_x86_64", b"\0libvulkan.so.1\0libc.so.6\0", "the module needs libc.so.6"),
        ("win_amd64", b"\0vulkan-1.dll\0python311.dll\0", None),
        ("win_amd64", b"\0vulkan-1.dll\0libc++.dll\0", r"the module needs libc\+\+.dll"),
        ("macosx_arm64", FROM % (0, 11) + FOUND + LOADS % b"/usr/lib/libSystem.B.dylib", None),
        ("macosx_arm64", FROM % (1, 11) + FOUND, r"the module needs macos\.11\.1"),
        ("macosx_x86_64", FROM % (15, 10) + FOUND, None),
        ("macosx_x86_64", FROM % (0, 11) + FOUND, r"the module needs macos\.11\.0"),
        ("macosx_arm64", FOUND + LOADS % b"/usr/lib/libc++.1.dylib", r"needs /usr/lib/libc\+\+"),
        ("macosx_arm64", HOMEBREW + VULKAN, "needs -Wl,-rpath,/usr/local/lib"),
        ("macosx_arm64", FOUND.replace(VULKAN, b""), "the module needs nothing"),
        ("manylinux_x86_64", b"\0libvulkan.so.1\0%s/x.cpp\0" % os.fsencode(ROOT), "the module names /"),
    ],
)
def test_a_module_that_needs_more_than_its_platform_has(recipe, platform, module, error):
    with pytest.raises(SystemExit, match=error) if error else nullcontext():
        recipe.check(module, recipe.PLATFORMS[platform])


def test_wheels_that_were_built_are_copied(recipe, tmp_path, capsys):
    found, platform = recipe.Python("3.11", tmp_path), recipe.PLATFORMS["manylinux_x86_64"]
    name = f"dmlgpu_kp-{recipe.settings.VERSION}-cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64.whl"
    built, out = tmp_path / "built", tmp_path / "out"
    built.mkdir(), out.mkdir()
    assert not recipe.copied(found, platform, None, out)
    assert not recipe.copied(found, platform, built, out)
    (built / name).write_text("wheel")
    assert recipe.copied(found, platform, built, out)
    assert not recipe.copied(recipe.Python("3.13", tmp_path), platform, built, out)
    assert (out / name).read_text() == "wheel"
    assert capsys.readouterr().out == f"{out / name} was built before\n"


def test_the_platforms_are_those_of_the_page(recipe):
    page = (ROOT / "docs/installing.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+_\w+)` \|", page, re.MULTILINE) == [*recipe.PLATFORMS]
