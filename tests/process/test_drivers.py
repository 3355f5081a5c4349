"""Machines whose Vulkan is broken: each in a process of its own, which must end well and say what is wrong."""

import contextlib
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import vulkan

import dmlgpu
from dmlgpu.runtime import drivers
from dmlgpu.runtime.kompute_module import PACKAGE_VERSION
from tests.support.drivers import DRIVERS, LOADER_FOLDERS, manifests, naming, set_drivers
from tests.support.processes import ROOT, output_of

NONE = "no usable Vulkan device; drivers come from "
FIX = (
    f"Install the driver of your GPU, or one that needs no GPU ({drivers._DRIVER}); VK_DRIVER_FILES and "
    "VK_ICD_FILENAMES, if set, must name its manifest"
)


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


def errors(environment, noise="") -> str:
    """The one message that every way to a device ends in, and no more on stderr than a pattern of noise allows."""
    *found, oracle, descriptor = output_of(EVERYTHING, environment=environment, errors=noise).splitlines()
    assert oracle == "[[1]] (0,)"
    assert descriptor == "ArgmaxOperatorDesc.axes[0]: 2 is out of range; allowed are 0 to 1"
    assert len(found) == 5
    (message,) = set(found)
    assert message.startswith("True ")
    return message.removeprefix("True ")


def reason_of(environment, path, variable="VK_DRIVER_FILES", noise="") -> str:
    """Why there is no device with the drivers of a variable; the message names it, and says how to fix it."""
    message = errors(environment | {variable: str(path)}, noise)
    before, after = f"{NONE}{variable}={path} (", f"). {FIX}"
    assert message.startswith(before)
    assert message.endswith(after)
    return message[len(before) : -len(after)]


def test_no_loader(environment, tmp_path):
    # What the vulkan package does where it finds no libvulkan.
    (tmp_path / "vulkan.py").write_text("raise OSError('Cannot find Vulkan SDK version')")
    environment["PYTHONPATH"] = f"{tmp_path}:{environment.get('PYTHONPATH', '')}"
    assert errors(environment) == (
        f"no Vulkan loader: Cannot find Vulkan SDK version. Install it ({drivers._LOADER}) "
        f"and a driver ({drivers._DRIVER})"
    )


# Packages that are not there, or do not load

KP_MEND = f"Install dmlgpu-kp {PACKAGE_VERSION} as in docs/installing.md"
VULKAN_MEND = "Install dmlgpu's dependencies as in docs/installing.md, or only vulkan: pip install vulkan"


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
    # The loader ignores this one if VK_DRIVER_FILES is set.
    environment["VK_ICD_FILENAMES"] = "/elsewhere"
    reason = "VkErrorIncompatibleDriver; vkCreateInstance: Found no drivers!"
    assert reason_of(environment, place, variable) == reason


def test_no_driver_is_installed(monkeypatch):
    # A machine without drivers cannot be made here: what would be said on one.
    for variable in "VK_DRIVER_FILES", "VK_ICD_FILENAMES":
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(drivers, "loader_messages", lambda: [("info", "Searching"), ("error", "Found no drivers!")])
    assert str(drivers._no_device("VkError")) == (
        f"{NONE}the system, as in /usr/share/vulkan/icd.d (VkError; Found no drivers!). {FIX}"
    )


# More such manifests: test_doctor.py.
@pytest.mark.parametrize(
    ("content", "reason"),
    [(naming("/nowhere/x.so"), "/nowhere/x.so: cannot open shared object file"), ('{"ICD', "JSON file ")],
)
def test_a_driver_that_fails_to_load_is_named(environment, manifest, content, reason):
    found = reason_of(environment, manifest(content))
    assert found.startswith("VkError")
    assert reason in found


# Mesa's AMD driver has a device without memory where this variable names one.
RADEON = next(iter(manifests(LOADER_FOLDERS, "radeon_icd*.json")), None)
NULL = {"RADV_FORCE_FAMILY": "navi21"}
# What Mesa 25 prints each time it makes one.
NULL_NOISE = r"(ac_compute_device_uuid's output is based on invalid pci bus info\.\n)*"


@pytest.fixture
def radeon():
    if RADEON is None:
        pytest.fail("Mesa's AMD driver was not found; install it: Debian has it in mesa-vulkan-drivers")
    return RADEON


def test_driver_without_a_device(environment, radeon):
    # A driver of which there is no device here: what Mesa's AMD driver is on most machines.
    if os.path.exists("/dev/dri"):
        pytest.skip("this machine may have a device of that driver")
    assert reason_of(environment, radeon)


def test_a_driver_that_implements_vulkan_in_part(environment, manifest):
    # As MoltenVK says of itself. The name is that of Mesa's lavapipe.
    content = json.loads(DRIVERS["lavapipe"].read_text())
    content["ICD"]["is_portability_driver"] = True
    environment["VK_DRIVER_FILES"] = str(manifest(content))
    assert output_of("import dmlgpu; print(dmlgpu.argmax([3, 5, 4]).tolist())", environment=environment) == "1\n"


# Devices that lack what Kompute and plans need


def test_a_device_without_memory(environment, radeon):
    reason = reason_of(environment | NULL, radeon, noise=NULL_NOISE)
    assert reason.endswith(" lacks memory that the host sees, device memory")


def test_a_device_without_memory_is_left_out(environment, radeon):
    environment |= {"VK_DRIVER_FILES": f"{radeon}:{DRIVERS['lavapipe']}", **NULL}
    program = "import dmlgpu; print(*(d.index for d in dmlgpu.devices())); print(dmlgpu.argmax([3, 5, 4]).tolist())"
    # The loader lists GPUs first.
    assert output_of(program, environment=environment, errors=NULL_NOISE) == "1\n1\n"


def test_drivers_that_list_no_device(monkeypatch):
    monkeypatch.setattr(vulkan, "vkEnumeratePhysicalDevices", lambda _: [])
    with pytest.raises(dmlgpu.DeviceError, match=r" \(they have no device\)\. Install "):
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
    with pytest.raises(dmlgpu.DeviceError) as caught:
        dmlgpu.devices()
    assert f" ({first.name} lacks {lack}). Install " in str(caught.value)


@pytest.mark.parametrize(("version", "lack"), [(10211, r" lacks MoltenVK 1\.3\). Install "), (10300, "")])
def test_the_least_moltenvk(monkeypatch, version, lack):
    set_drivers(monkeypatch.setenv, DRIVERS["lavapipe"])
    asked = vulkan.vkGetPhysicalDeviceProperties2

    def answer(handle, properties):
        asked(handle, properties)
        properties.properties.driverVersion = version
        driver = vulkan.ffi.cast("VkPhysicalDeviceDriverProperties *", properties.pNext)
        driver.driverID = vulkan.VK_DRIVER_ID_MOLTENVK

    monkeypatch.setattr(vulkan, "vkGetPhysicalDeviceProperties2", answer)
    with pytest.raises(dmlgpu.DeviceError, match=lack) if lack else contextlib.nullcontext():
        dmlgpu.devices()


@pytest.mark.parametrize("driver", [name for name, path in DRIVERS.items() if path])
def test_other_drivers_noise_and_layers_disturb_no_call(environment, manifest, driver):
    here, program = str(DRIVERS[driver]), "import dmlgpu; print(dmlgpu.argmax([3, 5, 4]).tolist())"
    files = os.pathsep.join([str(manifest(naming("/nowhere/libdriver.so"))), "/nowhere", here])
    assert output_of(program, environment=environment | {"VK_DRIVER_FILES": files}) == "1\n"
    # The layer may print what it has to say on stdout.
    layer = {"VK_DRIVER_FILES": here, "VK_INSTANCE_LAYERS": "VK_LAYER_KHRONOS_validation"}
    pooled = f"{program}; print(dmlgpu.max_pooling([[[[1, 2]]]], (1, 2)).shape)"
    assert output_of(pooled, environment=environment | layer).splitlines()[-2:] == ["1", "(1, 1, 1, 1)"]
    noisy = environment | {"VK_DRIVER_FILES": here, "VK_LOADER_DEBUG": "all"}
    finished = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=noisy, capture_output=True, text=True)
    assert (finished.returncode, finished.stdout) == (0, "1\n")
    assert finished.stderr.count("\n") > 20
