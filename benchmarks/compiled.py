"""Compiles the kernels for AMD's GPUs, on a machine without one.

RADV, Mesa's driver, pretends to have a GPU of the family that RADV_FORCE_FAMILY names: it compiles as for a real one,
and runs nothing. RADV is loaded in a separate process, because a process loads its drivers once, and because RADV ends
its process if it does not know the family.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import CACHES_OFF
from benchmarks.assembly import loads_in_flight
from benchmarks.report import Table
from benchmarks.results import BenchmarkError
from dmlgpu.errors import DeviceError
from dmlgpu.lowering.limits import Limits
from dmlgpu.lowering.lower import lower
from dmlgpu.lowering.plan import Shader
from dmlgpu.runtime import spirv
from dmlgpu.runtime.drivers import DeviceInfo, loader_version
from dmlgpu.runtime.tuning import device_limits
from dmlgpu.testing.cases import Case

# From GCN 4 to RDNA 3: names in Mesa 22.3, then later ones.
FAMILIES = {name: (name,) for name in ("polaris10", "vega10", "navi10", "navi21")} | {"gfx1100": ("gfx1100", "navi31")}

# Folders of driver manifests.
_FOLDERS = ("/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/usr/share/vulkan/icd.d")
_INSTALL = "Install it (Debian: mesa-vulkan-drivers)"
# Maximum seconds for all kernels; a few are usual.
_TIMEOUT = 600
# More than dmlgpu uses of any resource.
_PLENTY = 1 << 32
# RADV's names of the statistics whose sum is in a column.
_STATISTICS = {
    "VGPRs": ("VGPRs",),
    "SGPRs": ("SGPRs",),
    "spilt": ("Spilled VGPRs", "Spilled SGPRs"),
    "scratch": ("Scratch size",),
    "LDS": ("LDS size",),
    "instructions": ("Instructions",),
    "clauses": ("VMEM Clause",),
}
_DISCRETE = DeviceInfo(
    index=0,
    name="any discrete GPU",
    type="discrete",
    driver="RADV",
    uuid="",
    api_version="",
    max_storage_buffer_range=_PLENTY,
    max_memory_allocation_size=_PLENTY,
    max_memory_allocation_count=_PLENTY,
    max_group_size=_PLENTY,
    max_group_count=_PLENTY,
    subgroup_size=64,
    heaps=(_PLENTY, _PLENTY),
    device_heap=0,
    host_heap=1,
    unified=False,
)


@dataclass
class Source:
    """The input of a pipeline's compilation."""

    module: str
    code: bytes
    constants: list[int]
    push_words: int
    bindings: int
    cases: list[str]
    """Names of the cases whose plans have the kernel."""


@dataclass(frozen=True)
class Compiled:
    """The result of a compilation."""

    kernel: str
    cases: list[str]
    numbers: dict[str, int]
    """Statistics by the columns of `compiled_table`, whose note explains them."""
    assembly: str


def limits() -> Limits:
    """Limits of a discrete GPU with plenty of everything."""
    return device_limits(_DISCRETE)


def sources(cases: Sequence[Case], part: str = "") -> list[Source]:
    """The kernels in the plans of cases, ordered by their modules' names.

    Args:
        cases: the cases to plan.
        part: text in lower case that the name of a module, or of one of its cases, must contain.

    Raises:
        BenchmarkError: there is no such kernel.
    """
    kernels: dict[Shader, Source] = {}
    for case in cases:
        for dispatch in lower(case.desc, limits()).dispatches:
            kernel = dispatch.shader
            if part not in kernel.module and part not in case.id.lower():
                continue
            if kernel not in kernels:
                kernels[kernel] = Source(
                    kernel.module,
                    spirv.load(kernel.module),
                    spirv.constant_words(kernel),
                    len(spirv.push_words(kernel.module, dispatch.push)),
                    len(dispatch.bindings) + dispatch.has_status,
                    [],
                )
            if case.id not in kernels[kernel].cases:
                kernels[kernel].cases.append(case.id)
    if not kernels:
        raise BenchmarkError(f"no kernel, and no case, has {part!r} in its name")
    return sorted(kernels.values(), key=lambda source: source.module)


def compile_for(family: str, kernels: Sequence[Source]) -> tuple[str, list[Compiled]]:
    """The compiler, and the kernels that it compiled for one of FAMILIES.

    Raises:
        BenchmarkError: there is no Vulkan loader, no RADV, or it does not know the family or cannot compile a kernel.
    """
    radv = next((manifest for folder in _FOLDERS for manifest in sorted(Path(folder).glob("radeon_icd*.json"))), None)
    if radv is None:
        raise BenchmarkError(f"there is no RADV, Mesa's driver for AMD. {_INSTALL}")
    variables = {"VK_DRIVER_FILES": str(radv), "VK_ICD_FILENAMES": str(radv), **CACHES_OFF}
    request = [{**vars(source), "code": source.code.hex()} for source in kernels]
    for name in FAMILIES[family]:
        child = subprocess.run(
            [sys.executable, "-m", "benchmarks.compiled"],
            input=json.dumps(request),
            capture_output=True,
            env={**os.environ, **variables, "RADV_FORCE_FAMILY": name},
            text=True,
            timeout=_TIMEOUT,
        )
        if child.stdout:
            break
    compiler, *results = map(json.loads, child.stdout.splitlines() or ["null"])
    if child.returncode:
        progress = f"after {len(results)} of {len(kernels)} kernels for {family}"
        raise BenchmarkError(f"RADV ends {progress}: {(child.stderr.splitlines() or ['no message'])[-1]}")
    return compiler, [
        Compiled(source.module, source.cases, numbers, assembly)
        for source, (numbers, assembly) in zip(kernels, results, strict=True)
    ]


def compiled_table(kernels: Sequence[Compiled]) -> Table:
    """A row for every kernel."""
    return Table(
        "compiled kernels",
        ("kernel", *kernels[0].numbers, "first case"),
        tuple((compiled.kernel, *map(str, compiled.numbers.values()), compiled.cases[0]) for compiled in kernels),
        "Waves: number that a SIMD runs at a time. Spilt: scalar and vector registers moved out of their register "
        "file. Scratch: bytes per wave. LDS: bytes per workgroup. Clauses: groups of memory accesses that are issued "
        "together; fewer groups for the same accesses wait less often. Loads: number that the main loop issues "
        "before it waits for one of them. Latency: cycles of a wave in the compiler's model, which does not know "
        "how often loops run: compare builds of a kernel by it, but do not read it as a time.",
    )


# The functions below run in the process that loads the driver. They destroy nothing, because the end of the process
# frees all. The vulkan package frees the memory that a structure points to together with the structure, so a variable
# holds each structure until the driver has been called.


def _main() -> None:
    """Prints a line with the compiler, then a line with the statistics and the assembly of each kernel."""
    vk, physical, device = _device()
    print(json.dumps(_describe(vk, physical)), flush=True)
    for fields in json.load(sys.stdin):
        source = Source(**{**fields, "code": bytes.fromhex(fields["code"])})
        try:
            pipeline = _pipeline(vk, device, source)
        except vk.VkError as error:
            raise BenchmarkError(f"cannot compile {source.module} of {source.cases[0]}: {error!r}") from None
        assembly = _assembly(vk, device, pipeline)
        print(json.dumps([_statistics(vk, physical, device, pipeline, assembly), assembly]), flush=True)


def _device() -> tuple[Any, Any, Any]:
    """The vulkan package, and RADV's device with its physical device."""
    loader_version()
    import vulkan as vk

    extension = "VK_KHR_pipeline_executable_properties"
    application = vk.VkApplicationInfo(apiVersion=vk.VK_MAKE_VERSION(1, 1, 0))
    statistics = vk.VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR(pipelineExecutableInfo=True)
    queue = vk.VkDeviceQueueCreateInfo(queueFamilyIndex=0, pQueuePriorities=[1.0])
    try:
        instance = vk.vkCreateInstance(vk.VkInstanceCreateInfo(pApplicationInfo=application), None)
        (physical,) = vk.vkEnumeratePhysicalDevices(instance)
        info = vk.VkDeviceCreateInfo(pNext=statistics, pQueueCreateInfos=[queue], ppEnabledExtensionNames=[extension])
        device = vk.vkCreateDevice(physical, info, None)
    except (vk.VkError, ValueError) as error:
        raise BenchmarkError(f"RADV has no device with {extension}: {error!r}") from None
    return vk, physical, device


def _describe(vk: Any, physical: Any) -> str:
    """The device and its driver."""
    driver = vk.VkPhysicalDeviceDriverProperties()
    vk.vkGetPhysicalDeviceProperties2(physical, vk.VkPhysicalDeviceProperties2(pNext=driver))
    name = vk.vkGetPhysicalDeviceProperties(physical).deviceName
    return f"{name}, {vk.ffi.string(driver.driverInfo).decode(errors='replace')}"


def _pipeline(vk: Any, device: Any, source: Source) -> Any:
    compute, count = vk.VK_SHADER_STAGE_COMPUTE_BIT, len(source.constants)
    slots = [
        vk.VkDescriptorSetLayoutBinding(number, vk.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1, compute)
        for number in range(source.bindings)
    ]
    bindings = vk.vkCreateDescriptorSetLayout(device, vk.VkDescriptorSetLayoutCreateInfo(pBindings=slots), None)
    push = vk.VkPushConstantRange(stageFlags=compute, offset=0, size=4 * source.push_words)
    layout = vk.vkCreatePipelineLayout(
        device, vk.VkPipelineLayoutCreateInfo(pSetLayouts=[bindings], pPushConstantRanges=[push]), None
    )
    module = vk.vkCreateShaderModule(
        device, vk.VkShaderModuleCreateInfo(codeSize=len(source.code), pCode=source.code), None
    )
    constants = vk.VkSpecializationInfo(
        pMapEntries=[vk.VkSpecializationMapEntry(number, 4 * number, 4) for number in range(count)],
        dataSize=4 * count,
        pData=vk.ffi.new("uint32_t[]", source.constants),
    )
    flags = (
        vk.VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR
        | vk.VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR
    )
    stage = vk.VkPipelineShaderStageCreateInfo(
        stage=compute, module=module, pName="main", pSpecializationInfo=constants
    )
    info = vk.VkComputePipelineCreateInfo(flags=flags, stage=stage, layout=layout)
    (pipeline,) = vk.vkCreateComputePipelines(device, None, 1, [info], None)
    return pipeline


def _statistics(vk: Any, physical: Any, device: Any, pipeline: Any, assembly: str) -> dict[str, int]:
    function = vk.vkGetDeviceProcAddr(device, "vkGetPipelineExecutablePropertiesKHR")
    (wave_size,) = [executable.subgroupSize for executable in function(device, vk.VkPipelineInfoKHR(pipeline=pipeline))]
    function = vk.vkGetDeviceProcAddr(device, "vkGetPipelineExecutableStatisticsKHR")
    executable = vk.VkPipelineExecutableInfoKHR(pipeline=pipeline, executableIndex=0)
    by_name = {statistic.name: statistic.value.u64 for statistic in function(device, executable)}
    sizes = vk.VkPhysicalDeviceSubgroupSizeControlProperties()
    vk.vkGetPhysicalDeviceProperties2(physical, vk.VkPhysicalDeviceProperties2(pNext=sizes))
    try:
        return {
            # Mesa 22.3 counts waves of the family's smallest size, even if the kernel's are larger.
            "waves": by_name["Subgroups per SIMD"] * sizes.minSubgroupSize // wave_size,
            **{column: sum(by_name[name] for name in names) for column, names in _STATISTICS.items()},
            "loads": loads_in_flight(assembly),
            "latency": by_name["Latency"],
        }
    except KeyError as name:
        raise BenchmarkError(f"this RADV has no statistic {name}; it has {', '.join(by_name)}") from None


def _assembly(vk: Any, device: Any, pipeline: Any) -> str:
    """A kernel's assembly, one of several representations that the driver has."""
    # Called through cffi, because the package's function queries the lengths of the texts, but not the texts.
    name = "vkGetPipelineExecutableInternalRepresentationsKHR"
    function = vk.ffi.cast(f"PFN_{name}", vk.lib.vkGetDeviceProcAddr(device, name.encode()))
    executable = vk.VkPipelineExecutableInfoKHR(pipeline=pipeline, executableIndex=0)
    info, count = vk.ffi.addressof(executable), vk.ffi.new("uint32_t*")
    function(device, info, count, vk.ffi.NULL)
    representations = vk.ffi.new("VkPipelineExecutableInternalRepresentationKHR[]", count[0])
    function(device, info, count, representations)
    texts = [vk.ffi.new("char[]", representation.dataSize) for representation in representations]
    for representation, text in zip(representations, texts, strict=True):
        representation.pData = text
    function(device, info, count, representations)
    names = [vk.ffi.string(representation.name) for representation in representations]
    return str(vk.ffi.string(texts[names.index(b"Assembly")]).decode(errors="replace"))


if __name__ == "__main__":
    try:
        _main()
    except (BenchmarkError, DeviceError) as problem:
        sys.exit(str(problem))
