"""Machines whose Vulkan is broken: each in a process of its own, which must end well and say what is wrong."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import vulkan

import dmlgpu
from dmlgpu.runtime import manifests
from dmlgpu.runtime.binding import PACKAGE_VERSION
from dmlgpu.runtime.packages import DRIVER, LOADER, named
from tests.support.drivers import DRIVERS, LOADER_FOLDERS, naming, set_drivers
from tests.support.drivers import manifests as manifests_in
from tests.support.processes import ROOT, output_of

INSTALL = named(DRIVER)


@pytest.fixture
def environment(environment):
    """The variables of a user who has set none of the loader's."""
    return {name: value for name, value in environment.items() if not name.startswith(("VK_", "XDG_"))}


@pytest.fixture
def manifest(tmp_path):
    """Writes a driver manifest; its path."""

    def written(content, name="broken.json"):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return written


# Every way to a device, then what works without one.
EVERYTHING = """
import numpy as np, dmlgpu
from dmlgpu import *
x = np.array([[1, 3, 2]], np.float32)
desc = ArgmaxOperatorDesc(TensorDesc.of(x), TensorDesc(DataType.UINT32, (1, 1)), (1,))
for call in (devices, Device, lambda: Device(0), lambda: argmax(x), lambda: verify(desc, x)):
    try:
        call()
    except Exception as error:
        print(type(error) is DeviceError, error)
print(reference(desc, x)[0].tolist(), argmax(np.zeros((0, 3), np.float32), 1).shape)
try:
    ArgmaxOperatorDesc(TensorDesc.of(x), TensorDesc(DataType.UINT32, (1, 1)), (2,))
except DescriptorError as error:
    print(error)
"""


def errors(environment) -> str:
    """The one message that every way to a device ends in."""
    *found, oracle, descriptor = output_of(EVERYTHING, environment=environment).splitlines()
    assert oracle == "[[1]] (0,)"
    assert descriptor == "ArgmaxOperatorDesc.axes[0]: 2 is out of range; allowed are 0 to 1"
    assert len(found) == 5
    (message,) = set(found)
    assert message.startswith("True ")
    return message.removeprefix("True ")


def test_no_loader(environment, tmp_path):
    # What the vulkan package does where it finds no libvulkan.
    (tmp_path / "vulkan.py").write_text("raise OSError('Cannot find Vulkan SDK version')")
    environment["PYTHONPATH"] = f"{tmp_path}:{environment.get('PYTHONPATH', '')}"
    assert errors(environment) == (
        f"no Vulkan loader: Cannot find Vulkan SDK version. Install it ({named(LOADER)}) and a driver ({INSTALL})"
    )


# Packages that are not there, or do not load

KP_MEND = f"Install dmlgpu-kp {PACKAGE_VERSION} as docs/installing.md says"
VULKAN_MEND = "Install what dmlgpu needs as docs/installing.md says, or vulkan alone: pip install vulkan"


@pytest.fixture
def package(environment, tmp_path):
    """Has importing a package fail: the variables of a process where it does."""

    def failing(name, error):
        (tmp_path / f"{name}.py").write_text(f"raise {error}")
        return environment | {"PYTHONPATH": f"{tmp_path}:{environment.get('PYTHONPATH', '')}"}

    environment["VK_DRIVER_FILES"] = str(DRIVERS["lavapipe"])
    return failing


MISSING = [
    ("ModuleNotFoundError('No module named {0}', name='{0}')", "is not installed"),
    ("ModuleNotFoundError('No module named x', name='x')", "cannot be loaded: No module named x"),
    ("ImportError('libvulkan.so.1: no such file', name='{0}')", "cannot be loaded: libvulkan.so.1: no such file"),
]


@pytest.mark.parametrize(("error", "problem"), MISSING)
def test_no_vulkan_package(package, error, problem):
    environment = package("vulkan", error.format("vulkan"))
    assert errors(environment) == f"the package vulkan {problem}. {VULKAN_MEND}"


@pytest.mark.parametrize(("error", "problem"), MISSING)
def test_no_kp(package, error, problem):
    program = """
import dmlgpu, logging
print(len(dmlgpu.devices()))
for call in (dmlgpu.Device, lambda: dmlgpu.argmax([1, 2])):
    try:
        call()
    except dmlgpu.DeviceError as error:
        print(error)
"""
    message = f"the package dmlgpu-kp {problem}. {KP_MEND}\n"
    assert output_of(program, environment=package("dmlgpu_kp", error.format("dmlgpu_kp"))) == "1\n" + 2 * message


@pytest.mark.parametrize("name", ["dmlgpu-kp", "vulkan"])
def test_commands_name_the_package_that_is_missing(package, name):
    module = name.replace("-", "_")
    environment = package(module, MISSING[0][0].format(module))
    done = subprocess.run([sys.executable, "-m", "dmlgpu", "verify"], env=environment, capture_output=True, text=True)
    message = f"dmlgpu: the package {name} is not installed. {KP_MEND if name == 'dmlgpu-kp' else VULKAN_MEND}\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", message)


@pytest.mark.skipif(sys.platform != "linux", reason="LD_LIBRARY_PATH and the name of the loader")
def test_a_loader_that_does_not_load(environment, tmp_path):
    for name in "libvulkan.so", "libvulkan.so.1":
        (tmp_path / name).write_text("no library")
    environment["LD_LIBRARY_PATH"] = str(tmp_path)
    assert errors(environment).startswith("no Vulkan loader: ")


@pytest.mark.parametrize("variable", ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"])
@pytest.mark.parametrize("there_is", ["nothing", "empty folder"])
def test_no_driver(environment, tmp_path, variable, there_is):
    place = tmp_path / "drivers"
    if there_is == "empty folder":
        place.mkdir()
    environment[variable] = str(place)
    assert errors(environment) == (
        f"no Vulkan driver: there is none in {variable}={place}. Install one ({INSTALL}), "
        "and let VK_DRIVER_FILES and VK_ICD_FILENAMES, where set, name its manifest"
    )


def test_no_driver_is_installed(environment, tmp_path, monkeypatch):
    # A machine without drivers cannot be made here: what would be said on one.
    monkeypatch.setattr(manifests, "_folders", lambda: [tmp_path / "etc", tmp_path / "share"])
    for variable in "VK_DRIVER_FILES", "VK_ICD_FILENAMES":
        monkeypatch.delenv(variable, raising=False)
    assert manifests.drivers() == ()
    assert manifests.driver_source() == f"{tmp_path}/etc/icd.d, {tmp_path}/share/icd.d"


def failing(environment, path) -> str:
    """The reason that is given for a driver that fails to load."""
    environment["VK_DRIVER_FILES"] = str(path)
    message = errors(environment)
    begin, end = "a Vulkan driver fails to load: ", f". Install it again ({INSTALL}), or name only others in "
    assert message.startswith(begin)
    assert message.endswith(f"{end}VK_DRIVER_FILES")
    return message.removeprefix(begin).removesuffix(f"{end}VK_DRIVER_FILES")


def test_manifest_naming_a_missing_library(environment, manifest):
    path = manifest(naming("/nowhere/libdriver.so"))
    assert failing(environment, path).startswith(f"{path}: /nowhere/libdriver.so: cannot open shared object file")


def test_manifest_naming_a_broken_library(environment, manifest, tmp_path):
    (tmp_path / "libdriver.so").write_text("no library")
    path = manifest(naming("./libdriver.so"))
    assert failing(environment, path).startswith(f"{path}: {tmp_path}/libdriver.so: ")


def test_manifest_naming_another_library(environment, manifest):
    path = manifest(naming("libm.so.6"))
    assert failing(environment, path) == f"{path}: libm.so.6 is no Vulkan driver"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"ICD', "Unterminated string starting at: line 1 column 2 (char 1)"),
        ("", "Expecting value: line 1 column 1 (char 0)"),
        ("[]", "no JSON object"),
        ("{}", "it has no ICD.library_path"),
        ('{"ICD": {"library_path": 5}}', "it has no ICD.library_path"),
        ("[" * 100_000, "nested too deep"),
        (" " * (1 << 20) + "{}", "more than 1048576 bytes"),
    ],
)
def test_damaged_manifest(manifest, monkeypatch, content, reason):
    path = manifest(content)
    monkeypatch.setenv("VK_DRIVER_FILES", str(path))
    (found,) = manifests.drivers()
    assert (found.path, found.missing, found.problem) == (path, False, f"{path} is damaged ({reason})")


def test_damaged_manifest_in_a_process(environment, manifest):
    path = manifest('{"ICD')
    assert failing(environment, path).startswith(f"{path} is damaged (")


# Mesa's AMD driver has a device without memory where this variable names one.
RADEON = next(iter(manifests_in(LOADER_FOLDERS, "radeon_icd*.json")), None)
NULL = {"RADV_FORCE_FAMILY": "navi21"}


@pytest.fixture
def radeon():
    if RADEON is None:
        pytest.fail("Mesa's AMD driver was not found; install it: Debian has it in mesa-vulkan-drivers")
    return RADEON


def test_driver_without_a_device(environment, radeon):
    # A driver of which there is no device here: what Mesa's AMD driver is on most machines.
    if os.path.exists("/dev/dri"):
        pytest.skip("this machine may have a device of that driver")
    environment["VK_DRIVER_FILES"] = str(radeon)
    message = errors(environment)
    assert message.startswith(
        f"no Vulkan device: there are drivers ({radeon}), but they have none that dmlgpu can use ("
    )
    assert message.endswith(f"). Install the driver of your GPU, or one that needs none ({INSTALL})")


# Devices that lack what Kompute and plans need


def test_a_device_without_memory(environment, radeon):
    environment |= {"VK_DRIVER_FILES": str(radeon), **NULL}
    message = errors(environment)
    assert message.startswith(
        f"no Vulkan device: there are drivers ({radeon}), but they have none that dmlgpu can use ("
    )
    assert " lacks memory that the host sees, device memory). Install the driver of your GPU, or " in message


def test_a_device_without_memory_is_left_out(environment, radeon):
    environment |= {"VK_DRIVER_FILES": f"{radeon}:{DRIVERS['lavapipe']}", **NULL}
    program = "import dmlgpu; print(*(d.index for d in dmlgpu.devices())); print(dmlgpu.argmax([3, 5, 4]).tolist())"
    # The loader lists GPUs first.
    assert output_of(program, environment=environment) == "1\n1\n"


def test_drivers_that_list_no_device(monkeypatch):
    monkeypatch.setattr(vulkan, "vkEnumeratePhysicalDevices", lambda _: [])
    with pytest.raises(dmlgpu.DeviceError, match=r"have none that dmlgpu can use \(they list no device\)\. Install "):
        dmlgpu.devices()


@pytest.fixture
def lacking(monkeypatch):
    """Has the first device of this machine answer as one that lacks something."""

    def become(function, change):
        asked = getattr(vulkan, function)
        first = None

        def answer(handle):
            nonlocal first
            first = first or handle
            return change(asked(handle)) if handle == first else asked(handle)

        monkeypatch.setattr(vulkan, function, answer)

    return become


# One less than Vulkan requires of every device.
TOO_LOW = {
    "maxStorageBufferRange": (1 << 27) - 1,
    "maxPushConstantsSize": 127,
    "maxPerStageDescriptorStorageBuffers": 3,
    "maxComputeSharedMemorySize": 16_383,
}


def with_properties(**changes):
    """Has the device say something else of itself, or of its limits."""

    def changed(properties):
        limits = {name: changes.get(name, getattr(properties.limits, name)) for name in TOO_LOW}
        version = changes.get("apiVersion", properties.apiVersion)
        return SimpleNamespace(apiVersion=version, deviceName=properties.deviceName, limits=SimpleNamespace(**limits))

    return changed


def memory_types(*flags):
    types = [SimpleNamespace(propertyFlags=flag, heapIndex=0) for flag in flags]
    return SimpleNamespace(memoryTypes=types, memoryTypeCount=len(types))


LACKING = [
    ("vkGetPhysicalDeviceProperties", with_properties(apiVersion=vulkan.VK_MAKE_VERSION(1, 0, 300)), "Vulkan 1.1"),
    *(
        (
            "vkGetPhysicalDeviceProperties",
            with_properties(**{name: value}),
            f"a {name} of {value + 1} (it is {value})",
        )
        for name, value in TOO_LOW.items()
    ),
    ("vkGetPhysicalDeviceQueueFamilyProperties", lambda _: [SimpleNamespace(queueFlags=1)], "a queue that computes"),
    ("vkGetPhysicalDeviceMemoryProperties", lambda _: memory_types(1, 3, 5), "memory that the host sees"),
    ("vkGetPhysicalDeviceMemoryProperties", lambda _: memory_types(6, 14), "device memory"),
    ("vkGetPhysicalDeviceMemoryProperties", lambda _: memory_types(), "memory that the host sees, device memory"),
]


# (property flags, heap) of every memory type, as GPUs list them; then whether no copy is needed, and the heaps.
MEMORIES = {
    "discrete": ([(0, 1), (1, 0), (6, 1), (14, 1)], (False, 0, 1)),
    "discrete-with-a-small-bar": ([(1, 0), (6, 1), (14, 1), (7, 2)], (False, 0, 1)),
    "discrete-whose-bar-comes-first": ([(1, 0), (7, 2), (6, 1), (14, 1)], (False, 0, 1)),
    "integrated": ([(1, 0), (15, 0)], (True, 0, 0)),
    "integrated-uncached-first": ([(1, 0), (7, 0), (15, 0)], (True, 0, 0)),
    "cpu": ([(15, 0)], (True, 0, 0)),
}


@pytest.mark.parametrize(("types", "expected"), MEMORIES.values(), ids=MEMORIES)
def test_memory_that_needs_a_copy(lacking, types, expected):
    sizes = 8 << 30, 16 << 30, 256 << 20
    memory = SimpleNamespace(
        memoryTypes=[SimpleNamespace(propertyFlags=flags, heapIndex=heap) for flags, heap in types],
        memoryTypeCount=len(types),
        memoryHeaps=[SimpleNamespace(size=size) for size in sizes],
        memoryHeapCount=len(sizes),
    )
    lacking("vkGetPhysicalDeviceMemoryProperties", lambda _: memory)
    first = dmlgpu.devices()[0]
    assert (first.unified, first.device_heap, first.host_heap) == expected
    assert first.heaps == sizes


@pytest.mark.parametrize(("function", "change", "lack"), LACKING, ids=[lack for *_, lack in LACKING])
def test_a_device_that_lacks_something_is_left_out(lacking, function, change, lack):
    there_are = dmlgpu.devices()
    lacking(function, change)
    assert dmlgpu.devices() == there_are[1:]


@pytest.mark.parametrize(("function", "change", "lack"), LACKING, ids=[lack for *_, lack in LACKING])
def test_what_the_only_device_lacks_is_said(lacking, monkeypatch, function, change, lack):
    set_drivers(monkeypatch.setenv, DRIVERS["lavapipe"])
    (info,) = dmlgpu.devices()
    lacking(function, change)
    with pytest.raises(dmlgpu.DeviceError) as caught:
        dmlgpu.devices()
    assert f"they have none that dmlgpu can use ({info.name} lacks {lack}). Install " in str(caught.value)


@pytest.mark.parametrize("driver", [name for name, path in DRIVERS.items() if path])
def test_a_driver_that_fails_to_load_leaves_the_others(environment, manifest, driver):
    environment["VK_DRIVER_FILES"] = os.pathsep.join(
        [str(manifest(naming("/nowhere/libdriver.so"))), "/nowhere", str(DRIVERS[driver])]
    )
    assert output_of("import dmlgpu; print(dmlgpu.argmax([3, 5, 4]).tolist())", environment=environment) == "1\n"


@pytest.mark.parametrize("driver", [name for name, path in DRIVERS.items() if path])
def test_noise_on_stderr(environment, driver):
    environment |= {"VK_DRIVER_FILES": str(DRIVERS[driver]), "VK_LOADER_DEBUG": "all"}
    command = [sys.executable, "-c", "import dmlgpu; print(dmlgpu.argmax([3, 5, 4]).tolist())"]
    finished = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (finished.returncode, finished.stdout) == (0, "1\n")
    assert finished.stderr.count("\n") > 20


@pytest.mark.parametrize("driver", [name for name, path in DRIVERS.items() if path])
def test_validation_layer_of_the_user(environment, driver):
    environment |= {"VK_DRIVER_FILES": str(DRIVERS[driver]), "VK_INSTANCE_LAYERS": "VK_LAYER_KHRONOS_validation"}
    assert not any(layer.missing for layer in layers_of(environment))
    # The layer may print what it has to say on stdout.
    program = "import dmlgpu; print(dmlgpu.argmax([3, 5, 4]).tolist(), dmlgpu.max_pooling([[[[1, 2]]]], (1, 2)).shape)"
    assert output_of(program, environment=environment).splitlines()[-1] == "1 (1, 1, 1, 1)"


def layers_of(environment) -> tuple[manifests.Layer, ...]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "environ", environment)
        return manifests.layers()


# Layers


@pytest.fixture
def machine(tmp_path):
    """The variables of a machine with these layers: explicit ones by name, implicit ones as they are in manifests."""

    def made(explicit=(), implicit=(), **variables):
        for kind, objects in ("explicit", [{"name": name} for name in explicit]), ("implicit", implicit):
            folder = tmp_path / "vulkan" / f"{kind}_layer.d"
            folder.mkdir(parents=True)
            for i, layer in enumerate(objects):
                (folder / f"{i}.json").write_text(json.dumps({"layer": layer}))
        return {"XDG_DATA_DIRS": str(tmp_path), "XDG_CONFIG_HOME": "/nowhere", "HOME": "/nowhere", **variables}

    return made


def names(environment) -> list[tuple[str, bool]]:
    return [(layer.name, layer.missing) for layer in layers_of(environment) if "/etc/" not in layer.reason]


def test_explicit_layers_are_those_asked_for(machine):
    assert names(machine(["A", "B"])) == []


def test_layers_asked_for(machine):
    assert names(machine(["A", "B"], VK_INSTANCE_LAYERS="B:C")) == [("B", False), ("C", True)]


def test_layers_asked_for_by_pattern(machine):
    assert names(machine(["A1", "A2", "B"], VK_LOADER_LAYERS_ENABLE="A*,C")) == [("A1", False), ("A2", False)]


IMPLICIT = [
    {"name": "always", "disable_environment": {"NO_ALWAYS": "1"}},
    {"name": "sometimes", "enable_environment": {"SOMETIMES": "1"}, "disable_environment": {"NO": "1"}},
    {"name": "\ud800", "disable_environment": {"\ud800": "1"}},
]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, ["always", "\ud800"]),
        ({"SOMETIMES": "1"}, ["always", "sometimes", "\ud800"]),
        ({"SOMETIMES": "2"}, ["always", "\ud800"]),
        ({"SOMETIMES": "1", "NO": "1"}, ["always", "\ud800"]),
        ({"NO_ALWAYS": "1"}, ["\ud800"]),
        ({"VK_LOADER_LAYERS_DISABLE": "al*"}, ["\ud800"]),
        ({"VK_LOADER_LAYERS_DISABLE": "~implicit~"}, []),
    ],
)
def test_implicit_layers(machine, variables, expected):
    assert names(machine([], IMPLICIT, **variables)) == [(name, False) for name in expected]
