"""Processes on machines with a broken Vulkan end well and say what is wrong."""

import contextlib
import json
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
import vulkan

import dmlgpu
from dmlgpu.runtime import drivers
from dmlgpu.runtime.kompute_module import PACKAGE_VERSION
from tests.support.drivers import DRIVERS, LOADER_FOLDERS, manifests, naming, set_drivers
from tests.support.errors import refuses
from tests.support.processes import ROOT, output_of

NONE = "no usable Vulkan device; drivers come from "
FIX = (
    f"Install the driver of your GPU, or one that needs no GPU ({drivers._DRIVER}); VK_DRIVER_FILES and "
    "VK_ICD_FILENAMES, if set, must name its manifest"
)


@pytest.fixture
def environment(environment):
    """The variables of a user without those of the loader."""
    return {name: value for name, value in environment.items() if not name.startswith(("VK_", "XDG_"))}


@pytest.fixture
def manifest(tmp_path):
    """Writes a driver manifest; returns its path."""

    def write(content):
        path = tmp_path / "manifest.json"
        path.write_text(json.dumps(content))
        return path

    return write


# The program tries all ways to a device, then what works without a device.
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
    """The error message that all ways to a device raise."""
    *messages, oracle, descriptor = output_of(EVERYTHING, environment=environment).splitlines()
    assert oracle == "[[1]] (0,)"
    assert descriptor == "ArgmaxOperatorDesc.axes[0]: 2 is out of range; allowed are 0 to 1"
    assert len(messages) == 5
    (message,) = set(messages)
    assert message.startswith("True ")
    return message.removeprefix("True ")


def test_a_missing_loader_is_a_device_error(environment, tmp_path):
    # The vulkan package raises this error if it finds no libvulkan.
    (tmp_path / "vulkan.py").write_text("raise OSError('Cannot find Vulkan SDK version')")
    environment["PYTHONPATH"] = f"{tmp_path}:{environment.get('PYTHONPATH', '')}"
    assert errors(environment) == (
        f"no Vulkan loader: Cannot find Vulkan SDK version. Install it ({drivers._LOADER}) "
        f"and a driver ({drivers._DRIVER})"
    )


# Packages that are missing, or do not load

FIX_KP = f"Install dmlgpu-kp {PACKAGE_VERSION} as in docs/installing.md"
FIX_VULKAN = "Install dmlgpu's dependencies as in docs/installing.md, or only vulkan: pip install vulkan"


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        ("ModuleNotFoundError('No module named {0}', name='{0}')", "is not installed"),
        ("ModuleNotFoundError('No module named x', name='x')", "cannot be loaded: No module named x"),
        ("ImportError('libvulkan.so.1: no such file', name='{0}')", "cannot be loaded: libvulkan.so.1: no such file"),
    ],
    ids=["missing", "incomplete", "broken"],
)
@pytest.mark.parametrize(
    ("module", "package", "fix"),
    [("vulkan", "vulkan", FIX_VULKAN), ("dmlgpu_kp", "dmlgpu-kp", FIX_KP)],
    ids=["vulkan", "dmlgpu_kp"],
)
def test_a_package_that_cannot_be_imported_is_a_device_error(
    monkeypatch, tmp_path, module, package, fix, error, problem
):
    monkeypatch.setattr("dmlgpu.runtime.device._devices", {})
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, module, raising=False)
    (tmp_path / f"{module}.py").write_text(f"raise {error.format(module)}")
    for call in dmlgpu.Device, lambda: dmlgpu.argmax([1, 2]):
        refuses(f"^{re.escape(f'the package {package} {problem}. {fix}')}$", call, error=dmlgpu.DeviceError)
    assert module == "vulkan" or dmlgpu.devices()


@pytest.mark.skipif(sys.platform != "linux", reason="LD_LIBRARY_PATH and the name of the loader")
def test_a_loader_that_does_not_load_is_a_device_error(environment, tmp_path):
    for name in "libvulkan.so", "libvulkan.so.1":
        (tmp_path / name).write_text("no library")
    environment["LD_LIBRARY_PATH"] = str(tmp_path)
    assert errors(environment).startswith("no Vulkan loader: ")


@pytest.mark.parametrize(("variable", "is_folder"), [("VK_DRIVER_FILES", False), ("VK_ICD_FILENAMES", True)])
def test_a_missing_driver_is_a_device_error(environment, tmp_path, variable, is_folder):
    path = tmp_path / "drivers"
    if is_folder:
        path.mkdir()
    # The loader ignores this variable if VK_DRIVER_FILES is set.
    environment["VK_ICD_FILENAMES"] = "/elsewhere"
    reason = "VkErrorIncompatibleDriver; vkCreateInstance: Found no drivers!"
    assert errors(environment | {variable: str(path)}) == f"{NONE}{variable}={path} ({reason}). {FIX}"


def test_the_error_without_drivers_names_the_folders_of_the_system(monkeypatch):
    """The drivers of this machine stay installed, so the test sees the message alone."""
    for variable in "VK_DRIVER_FILES", "VK_ICD_FILENAMES":
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(drivers, "loader_messages", lambda: [("info", "Searching"), ("error", "Found no drivers!")])
    assert str(drivers._no_device("VkError")) == (
        f"{NONE}the system, as in /usr/share/vulkan/icd.d (VkError; Found no drivers!). {FIX}"
    )


# test_doctor.py has drivers that do not load.


def test_a_driver_that_implements_vulkan_in_part_computes(environment, manifest):
    """MoltenVK says that it does; here the manifest of lavapipe says it."""
    content = json.loads(DRIVERS["lavapipe"].read_text())
    content["ICD"]["is_portability_driver"] = True
    environment["VK_DRIVER_FILES"] = str(manifest(content))
    assert output_of("import dmlgpu; print(dmlgpu.argmax([3, 5, 4]).tolist())", environment=environment) == "1\n"


# Devices that lack what Kompute and plans need


def test_a_device_without_memory_is_left_out(environment):
    """Mesa's AMD driver then lists a device without memory, before the others, and may print to stderr."""
    (radeon, *_) = manifests(LOADER_FOLDERS, "radeon_icd*.json") or [None]
    assert radeon, "Mesa's AMD driver was not found; install it: Debian has it in mesa-vulkan-drivers"
    environment |= {"VK_DRIVER_FILES": f"{radeon}:{DRIVERS['lavapipe']}", "RADV_FORCE_FAMILY": "navi21"}
    program = "import dmlgpu; print(*(d.index for d in dmlgpu.devices())); print(dmlgpu.argmax([3, 5, 4]).tolist())"
    noise = r"(ac_compute_device_uuid's output is based on invalid pci bus info\.\n)*"
    assert output_of(program, environment=environment, errors=noise) == "1\n1\n"


def test_drivers_that_list_no_device_are_a_device_error(monkeypatch):
    monkeypatch.setattr(vulkan, "vkEnumeratePhysicalDevices", lambda _: [])
    with pytest.raises(dmlgpu.DeviceError, match=r" \(they have no device\)\. Install "):
        dmlgpu.devices()


@pytest.fixture
def lacking(monkeypatch):
    """Changes what a function of Vulkan returns for the first device of this machine."""

    def change_first(function, change):
        original = getattr(vulkan, function)
        first = None

        def changed(handle):
            nonlocal first
            first = first or handle
            return change(original(handle)) if handle == first else original(handle)

        monkeypatch.setattr(vulkan, function, changed)

    return change_first


# These limits are one less than Vulkan requires of every device.
TOO_LOW = {
    "maxStorageBufferRange": (1 << 27) - 1,
    "maxPushConstantsSize": 127,
    "maxPerStageDescriptorStorageBuffers": 3,
    "maxComputeSharedMemorySize": 16_383,
}


def with_properties(**changes):
    """Changes the version or the limits of a device."""

    def changed(properties):
        limits = {name: changes.get(name, getattr(properties.limits, name)) for name in TOO_LOW}
        version = changes.get("apiVersion", properties.apiVersion)
        return SimpleNamespace(apiVersion=version, deviceName=properties.deviceName, limits=SimpleNamespace(**limits))

    return changed


def memory_types(*flags):
    types = [SimpleNamespace(propertyFlags=flag, heapIndex=0) for flag in flags]
    return SimpleNamespace(memoryTypes=types, memoryTypeCount=len(types))


PROPERTIES, MEMORY = "vkGetPhysicalDeviceProperties", "vkGetPhysicalDeviceMemoryProperties"
LACKING = [
    (PROPERTIES, with_properties(apiVersion=vulkan.VK_MAKE_VERSION(1, 0, 300)), "Vulkan 1.1"),
    *(
        (PROPERTIES, with_properties(**{name: value}), f"a {name} of {value + 1} (it is {value})")
        for name, value in TOO_LOW.items()
    ),
    ("vkGetPhysicalDeviceQueueFamilyProperties", lambda _: [SimpleNamespace(queueFlags=1)], "a queue that computes"),
    (MEMORY, lambda _: memory_types(1, 3, 5), "memory that the host sees"),
    (MEMORY, lambda _: memory_types(6, 14), "device memory"),
    (MEMORY, lambda _: memory_types(), "memory that the host sees, device memory"),
]


# (property flags, heap) of every memory type as GPUs list them; then `unified`, and the heaps of device and host.
MEMORIES = {
    "discrete": ([(0, 1), (1, 0), (6, 1), (14, 1)], (False, 0, 1)),
    "discrete-with-a-small-bar": ([(1, 0), (6, 1), (14, 1), (7, 2)], (False, 0, 1)),
    "discrete-whose-bar-comes-first": ([(1, 0), (7, 2), (6, 1), (14, 1)], (False, 0, 1)),
    "integrated": ([(1, 0), (15, 0)], (True, 0, 0)),
    "integrated-uncached-first": ([(1, 0), (7, 0), (15, 0)], (True, 0, 0)),
    "cpu": ([(15, 0)], (True, 0, 0)),
}


@pytest.mark.parametrize(("types", "expected"), MEMORIES.values(), ids=MEMORIES)
def test_memory_types_choose_the_heaps(lacking, types, expected):
    sizes = 8 << 30, 16 << 30, 256 << 20
    memory = SimpleNamespace(
        memoryTypes=[SimpleNamespace(propertyFlags=flags, heapIndex=heap) for flags, heap in types],
        memoryTypeCount=len(types),
        memoryHeaps=[SimpleNamespace(size=size) for size in sizes],
        memoryHeapCount=len(sizes),
    )
    lacking(MEMORY, lambda _: memory)
    first = dmlgpu.devices()[0]
    assert (first.unified, first.device_heap, first.host_heap) == expected
    assert first.heaps == sizes


@pytest.mark.parametrize(("function", "change", "lack"), LACKING, ids=[lack for *_, lack in LACKING])
@pytest.mark.parametrize("alone", [False, True])
def test_a_device_that_lacks_something_is_left_out(lacking, monkeypatch, alone, function, change, lack):
    if alone:
        set_drivers(monkeypatch.setenv, DRIVERS["lavapipe"])
    first, *others = dmlgpu.devices()
    lacking(function, change)
    if others:
        assert dmlgpu.devices() == (*others,)
        return
    with pytest.raises(dmlgpu.DeviceError, match=re.escape(f" ({first.name} lacks {lack}). Install ")):
        dmlgpu.devices()


@pytest.mark.parametrize(("version", "lack"), [(10211, r" lacks MoltenVK 1\.3\). Install "), (10300, "")])
def test_moltenvk_before_1_3_is_left_out(monkeypatch, version, lack):
    set_drivers(monkeypatch.setenv, DRIVERS["lavapipe"])
    original = vulkan.vkGetPhysicalDeviceProperties2

    def changed(handle, properties):
        original(handle, properties)
        properties.properties.driverVersion = version
        driver = vulkan.ffi.cast("VkPhysicalDeviceDriverProperties *", properties.pNext)
        driver.driverID = vulkan.VK_DRIVER_ID_MOLTENVK

    monkeypatch.setattr(vulkan, "vkGetPhysicalDeviceProperties2", changed)
    with pytest.raises(dmlgpu.DeviceError, match=lack) if lack else contextlib.nullcontext():
        dmlgpu.devices()


PROGRAM = "import dmlgpu; print(dmlgpu.argmax([3, 5, 4]).tolist(), dmlgpu.max_pooling([[[1, 2]]], (1, 2)).shape)"


def test_drivers_that_do_not_load_disturb_no_call(environment, manifest):
    files = manifest(naming("/nowhere/libdriver.so")), "/nowhere", DRIVERS["lavapipe"]
    environment["VK_DRIVER_FILES"] = os.pathsep.join(map(str, files))
    assert output_of(PROGRAM, environment=environment) == "1 (1, 1, 1)\n"


def test_noise_and_layers_disturb_no_call(environment):
    layer = {"VK_INSTANCE_LAYERS": "VK_LAYER_KHRONOS_validation", "VK_LOADER_DEBUG": "all"}
    environment |= layer | {"VK_DRIVER_FILES": str(DRIVERS["lavapipe"])}
    command = [sys.executable, "-c", PROGRAM]
    finished = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    # The layer may print to stdout.
    assert (finished.returncode, finished.stdout.splitlines()[-1]) == (0, "1 (1, 1, 1)")
    assert finished.stderr.count("\n") > 20
