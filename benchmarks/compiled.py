"""The kernels as the compiler of AMD's GPUs compiles them, on a machine without one.

RADV, Mesa's driver, pretends to have a GPU of the family that RADV_FORCE_FAMILY names: it compiles as for a real one
and runs nothing. It needs a separate process, because a process loads its drivers once. Only that process has the
necessary variables.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

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

# From GCN 4 to RDNA 3: names in Mesa 22.3; later names where they changed.
FAMILIES = ("polaris10", "vega10", "navi10", "navi21", "gfx1100")
_LATER_NAMES = {"gfx1100": "navi31"}

# Folders of driver manifests.
_FOLDERS = ("/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/usr/share/vulkan/icd.d")
_INSTALL = "Install it (Debian: mesa-vulkan-drivers)"
# Seconds for all kernels, which take a few.
_TIMEOUT = 600
# More than dmlgpu uses of any resource.
_PLENTY = 1 << 32
# RADV's names of its numbers.
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
    code: bytes = field(repr=False)
    constants: list[int]
    push_words: int
    bindings: int
    cases: list[str]
    """Cases whose plans have it."""


@dataclass(frozen=True)
class Compiled:
    """The result of a compilation."""

    kernel: str
    cases: list[str]
    numbers: dict[str, int]
    """By the columns of `compiled_table`, whose note explains them."""


def limits() -> Limits:
    """Limits of a discrete GPU with plenty of everything."""
    return device_limits(_DISCRETE)


def sources(cases: Sequence[Case], part: str, folder: str | None) -> list[Source]:
    """The kernels of cases, by their modules.

    Args:
        cases: cases whose plans have the kernels.
        part: a part of the names of modules.
        folder: the folder of the SPIR-V; None: that of dmlgpu.

    Raises:
        BenchmarkError: no kernel has such a name.
    """
    kernels: dict[Shader, Source] = {}
    for case in cases:
        for dispatch in lower(case.desc, limits()).dispatches:
            kernel = dispatch.shader
            if part not in kernel.module:
                continue
            if kernel not in kernels:
                kernels[kernel] = Source(
                    kernel.module,
                    Path(folder, f"{kernel.module}.spv").read_bytes() if folder else spirv.load(kernel.module),
                    spirv.constant_words(kernel),
                    len(spirv.push_words(kernel.module, dispatch.push)),
                    len(dispatch.bindings) + dispatch.has_status,
                    [],
                )
            if case.id not in kernels[kernel].cases:
                kernels[kernel].cases.append(case.id)
    if not kernels:
        raise BenchmarkError(f"the plans of these cases have no kernel with {part!r} in its name")
    return sorted(kernels.values(), key=lambda source: source.module)


def compile_for(
    family: str, kernels: Sequence[Source], representation: str | None = None
) -> tuple[str, list[Compiled], list[str]]:
    """The compiler, the kernels that it compiled for a family of GPUs, and one representation of each.

    Args:
        family: one of FAMILIES.
        kernels: what is compiled.
        representation: the driver's name of a form of its code; None: an empty text for each kernel.

    Raises:
        BenchmarkError: there is no such family or representation, no Vulkan loader, no RADV, or it cannot compile a
            kernel.
    """
    if family not in FAMILIES:
        raise BenchmarkError(f"there is no family {family!r}; families are {', '.join(FAMILIES)}")
    request = {
        "family": family,
        "representation": representation,
        "sources": [{**asdict(source), "code": source.code.hex()} for source in kernels],
    }
    answers, errors = _ask(request)
    if not answers and family in _LATER_NAMES:
        # RADV ends the process if it does not know a name.
        answers, errors = _ask({**request, "family": _LATER_NAMES[family]})
    if answers and "problem" in answers[-1]:
        raise BenchmarkError(answers[-1]["problem"])
    if len(answers) <= len(kernels):
        what = f"at {kernels[len(answers) - 1].module}" if answers else f"as {family}, which this Mesa may not know"
        message = (errors or ["nothing is said"])[-1]
        raise BenchmarkError(f"RADV ends {what}: {message}; families are {', '.join(FAMILIES)}")
    compiler, *results = answers
    return (
        compiler["compiler"],
        [Compiled(**result["compiled"]) for result in results],
        [result["text"] for result in results],
    )


def _ask(request: dict[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """The answers of a process that loads the driver, and the lines of its stderr."""
    child = subprocess.run(
        [sys.executable, "-m", "benchmarks.compiled"],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
    )
    return [json.loads(line) for line in child.stdout.splitlines()], child.stderr.splitlines()


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


def save_compiled(kernels: Sequence[Compiled], path: str) -> None:
    """Writes a JSON file: an object for every kernel."""
    Path(path).write_text(json.dumps([asdict(compiled) for compiled in kernels], indent=1) + "\n", encoding="utf-8")


# From here on: the process that loads the driver. It destroys nothing, because its end frees all. The vulkan package
# keeps the memory that a structure points to only as long as the structure: each has a name until the driver was
# called.


def _answers(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The lines that `compile_for` reads: the compiler, then every kernel, or the problem that ended it."""
    try:
        vk, physical, device = _device(request["family"])
        yield {"compiler": _describe(vk, physical)}
        for fields in request["sources"]:
            source = Source(**{**fields, "code": bytes.fromhex(fields["code"])})
            compiled, text = _compile(vk, physical, device, source, request["family"], request["representation"])
            yield {"compiled": asdict(compiled), "text": text}
    except (BenchmarkError, DeviceError) as error:
        yield {"problem": str(error)}


def _device(family: str) -> tuple[Any, Any, Any]:
    """The vulkan package, and RADV's device of a family with its physical device."""
    # These name drivers to run on; RADV is searched for in the system's folders.
    for variable in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES"):
        os.environ.pop(variable, None)
    radv = next((manifest for folder in _FOLDERS for manifest in sorted(Path(folder).glob("radeon_icd*.json"))), None)
    if radv is None:
        raise BenchmarkError(f"there is no RADV, Mesa's driver for AMD. {_INSTALL}")
    os.environ.update(
        VK_DRIVER_FILES=str(radv),
        VK_ICD_FILENAMES=str(radv),
        RADV_FORCE_FAMILY=family,
        MESA_SHADER_CACHE_DISABLE="true",
    )
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
        raise BenchmarkError(f"RADV gives no device of {family} that has {extension}: {type(error).__name__}") from None
    return vk, physical, device


def _describe(vk: Any, physical: Any) -> str:
    """The device and its driver."""
    driver = vk.VkPhysicalDeviceDriverProperties()
    vk.vkGetPhysicalDeviceProperties2(physical, vk.VkPhysicalDeviceProperties2(pNext=driver))
    name = vk.vkGetPhysicalDeviceProperties(physical).deviceName
    return f"{name}, {vk.ffi.string(driver.driverInfo).decode(errors='replace')}"


def _compile(
    vk: Any, physical: Any, device: Any, source: Source, family: str, representation: str | None
) -> tuple[Compiled, str]:
    """A kernel compiled, and its representation."""
    try:
        pipeline = _pipeline(vk, device, source)
    except vk.VkError as error:
        raise BenchmarkError(
            f"RADV cannot compile {source.module} of {source.cases[0]} for {family}: {type(error).__name__}"
        ) from None
    texts = _representations(vk, device, pipeline)
    if representation not in (None, *texts):
        raise BenchmarkError(f"RADV has no representation {representation!r}; it has {', '.join(texts)}")
    compiled = _statistics(vk, physical, device, pipeline, source, texts["Assembly"])
    return compiled, texts.get(representation or "", "")


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


def _statistics(vk: Any, physical: Any, device: Any, pipeline: Any, source: Source, assembly: str) -> Compiled:
    ask = vk.vkGetDeviceProcAddr(device, "vkGetPipelineExecutablePropertiesKHR")
    (wave_size,) = [executable.subgroupSize for executable in ask(device, vk.VkPipelineInfoKHR(pipeline=pipeline))]
    ask = vk.vkGetDeviceProcAddr(device, "vkGetPipelineExecutableStatisticsKHR")
    executable = vk.VkPipelineExecutableInfoKHR(pipeline=pipeline, executableIndex=0)
    by_name = {statistic.name: statistic.value.u64 for statistic in ask(device, executable)}
    sizes = vk.VkPhysicalDeviceSubgroupSizeControlProperties()
    vk.vkGetPhysicalDeviceProperties2(physical, vk.VkPhysicalDeviceProperties2(pNext=sizes))
    try:
        numbers = {
            # Mesa 22.3 counts in waves of the family's least size, whatever the size of these.
            "waves": by_name["Subgroups per SIMD"] * sizes.minSubgroupSize // wave_size,
            **{column: sum(by_name[name] for name in names) for column, names in _STATISTICS.items()},
            "loads": loads_in_flight(assembly),
            "latency": by_name["Latency"],
        }
    except KeyError as name:
        raise BenchmarkError(f"this RADV has no statistic {name}; it has {', '.join(by_name)}") from None
    return Compiled(source.module, source.cases, numbers)


def _representations(vk: Any, device: Any, pipeline: Any) -> dict[str, str]:
    """All representations of the driver, by name."""
    # Called directly: the package asks for the lengths of the texts, but not again for the texts.
    function = "vkGetPipelineExecutableInternalRepresentationsKHR"
    ask = vk.ffi.cast(f"PFN_{function}", vk.lib.vkGetDeviceProcAddr(device, function.encode()))
    executable = vk.VkPipelineExecutableInfoKHR(pipeline=pipeline, executableIndex=0)
    where, count = vk.ffi.addressof(executable), vk.ffi.new("uint32_t*")
    ask(device, where, count, vk.ffi.NULL)
    representations = vk.ffi.new("VkPipelineExecutableInternalRepresentationKHR[]", count[0])
    ask(device, where, count, representations)
    rooms = [vk.ffi.new("char[]", representation.dataSize) for representation in representations]
    for representation, room in zip(representations, rooms, strict=True):
        representation.pData = room
    ask(device, where, count, representations)
    return {
        vk.ffi.string(representation.name).decode(): vk.ffi.string(room).decode(errors="replace")
        for representation, room in zip(representations, rooms, strict=True)
    }


if __name__ == "__main__":
    for answer in _answers(json.load(sys.stdin)):
        print(json.dumps(answer), flush=True)
