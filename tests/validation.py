"""Runs the device tests under the Khronos validation layer, in one of its modes or in several at once.

    python -m tests.validation core|sync|gpu|core,sync|... [PYTEST ARGUMENTS]

core: the rules of Vulkan's functions. sync: hazards between reads and writes of a submission. gpu: shaders check their
accesses to buffers. Fails if a test fails, if the layer reports anything but known faults of kp, or if the layer does
not report the fault of a control program on each driver.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.drivers import DRIVERS, use_drivers_under_test

LAYER = "VK_LAYER_KHRONOS_validation"
SETTINGS = """\
khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG
khronos_validation.report_flags = error,warn,perf
khronos_validation.log_filename = {log}
khronos_validation.syncval_shader_accesses_heuristic = true
"""
WITHOUT_CORE = "khronos_validation.disables = VK_VALIDATION_FEATURE_DISABLE_CORE_CHECKS_EXT\n"

# Messages about faults of kp 0.9.0 itself, as (identifier, why it is harmless). At present dmlgpu causes none.
KNOWN_FAULTS: dict[str, str] = {}

# The kernel of the control programs adds 1 to elements from `first` on.
SHADER = """\
#version 450
layout(local_size_x = 64) in;
layout(set = 0, binding = 0) buffer Words { uint words[]; };
layout(push_constant) uniform Push { uint first; };
void main() { words[gl_GlobalInvocationID.x + first] += 1; }
"""
CONTROL = """
import sys
from dmlgpu.runtime import kompute_module
from numpy import array, uint32, zeros
kp = kompute_module.kompute()
manager = kp.Manager(0)
tensor = manager.tensor_t(zeros(64, uint32))
sequence = manager.sequence()
sequence.record(kp.OpTensorSyncDevice([tensor]))
shader = open({shader!r}, "rb").read()
algorithm = manager.algorithm([tensor], shader, ({groups}, 1, 1), array([], uint32), array([0], uint32))
for first in {firsts}:
    sequence.record(kp.OpAlgoDispatch(algorithm, array([first], uint32)))
sequence.eval()
"""


@dataclass(frozen=True)
class Mode:
    """A mode of the layer, and a control program whose dispatches begin at the elements `firsts`."""

    enables: tuple[str, ...]
    messages: tuple[str, ...]
    """The layer must report one of these: 1.3.239 and 1.4.309 name them differently."""
    firsts: tuple[int, ...] = ()
    groups: int = 1
    """Workgroups of a dispatch."""


MODES = {
    # A dispatch of more workgroups than drivers for CPUs allow.
    "core": Mode((), ("VUID-vkCmdDispatch-groupCountX-00386",), firsts=(0,), groups=1 << 16),
    # Two dispatches that write to the same elements with no barrier between them.
    "sync": Mode(("SYNCHRONIZATION_VALIDATION",), ("SYNC-HAZARD-WRITE-AFTER-WRITE",), firsts=(0, 0)),
    # A dispatch that writes beyond the end of its buffer.
    "gpu": Mode(
        ("GPU_ASSISTED", "GPU_ASSISTED_RESERVE_BINDING_SLOT"), ("VUID-vkCmdDispatch-None-02706",), firsts=(1000,)
    ),
}


def settings(modes: list[str]) -> str:
    """The layer's settings for some modes; the name of the log is still to be inserted."""
    enables = [f"VK_VALIDATION_FEATURE_ENABLE_{name}_EXT" for mode in modes for name in MODES[mode].enables]
    text = "" if "core" in modes else WITHOUT_CORE
    return SETTINGS + text + (f"khronos_validation.enables = {','.join(enables)}\n" if enables else "")


def identifiers(log: Path) -> dict[str, str]:
    """The first text of every message of a log, by identifier."""
    texts: dict[str, str] = {}
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    for line, after in itertools.pairwise([*lines, ""]):
        if match := re.match(r"(\S+?)\((?:ERROR|WARN|PERF|INFO).*?\): (.*)", line):
            texts.setdefault(match[1], match[2])
        # The format of 1.4.309.
        elif match := re.match(r"Validation [\w ]+: \[ (\S+) \] \| MessageID", line):
            texts.setdefault(match[1], after)
    return texts


def run(folder: Path, modes: list[str], command: list[str], **variables: str) -> tuple[int, dict[str, str]]:
    """Runs a command under the layer; returns its exit code and the layer's messages."""
    folder.mkdir()
    (folder / "vk_layer_settings.txt").write_text(settings(modes).format(log=folder / "log.txt"))
    variables |= {"VK_INSTANCE_LAYERS": LAYER, "VK_LAYER_SETTINGS_PATH": str(folder)}
    if "sync" in modes:
        variables["DMLGPU_TEST_WHOLE_BUFFERS"] = "1"
    environment = {**os.environ, **variables}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout, flush=True)
    logs = [identifiers(log) for log in folder.rglob("log.txt")]
    return done.returncode, {name: text for messages in logs for name, text in messages.items()}


def pytest_configure(config: Any) -> None:
    """Sets a separate log for each process of pytest-xdist, because the layer empties a log when it opens it."""
    if worker := getattr(config, "workerinput", {}).get("workerid"):
        shared = Path(os.environ["VK_LAYER_SETTINGS_PATH"])
        separate = shared / worker
        separate.mkdir()
        text = (shared / "vk_layer_settings.txt").read_text()
        text = text.replace(str(shared / "log.txt"), str(separate / "log.txt"))
        (separate / "vk_layer_settings.txt").write_text(text)
        os.environ["VK_LAYER_SETTINGS_PATH"] = str(separate)


def listens(folder: Path, modes: list[str], control: Mode, manifest: Path) -> bool:
    """Whether the layer reports the fault of a control program on a driver."""
    folder.mkdir()
    shader = folder / "control.spv"
    source = folder / "control.comp"
    source.write_text(SHADER)
    compiler = ["glslangValidator", "-V", "--quiet", "--target-env", "vulkan1.1", "-o", str(shader), str(source)]
    subprocess.run(compiler, check=True)
    program = CONTROL.format(groups=control.groups, shader=str(shader), firsts=control.firsts)
    # Kompute's device 0 is then the only one.
    alone = {"VK_DRIVER_FILES": str(manifest), "VK_ICD_FILENAMES": str(manifest)}
    _, messages = run(folder / "run", modes, [sys.executable, "-c", program], **alone)
    return not messages.keys().isdisjoint(control.messages)


def main() -> int:
    use_drivers_under_test()
    modes = sys.argv[1].split(",") if len(sys.argv) > 1 else []
    if not modes or not set(modes) <= set(MODES):
        print(__doc__)
        return 2
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for (i, (name, manifest)), mode in itertools.product(enumerate(DRIVERS.items()), modes):
            if manifest is None or not listens(folder / f"control-{mode}-{i}", modes, MODES[mode], manifest):
                message = " or ".join(MODES[mode].messages)
                print(f"{name}: the layer did not report {message}; is it there (vulkan-validationlayers)?")
                return 1
        select = "device and not parts_of_buffers" if "sync" in modes else "device"
        pytest = [sys.executable, "-m", "pytest", "-p", "tests.validation", "-q", "-n", "auto", "--maxprocesses", "4"]
        code, messages = run(folder / "tests", modes, [*pytest, "--dist", "worksteal", "-m", select, *sys.argv[2:]])
    unknown = {name: text for name, text in messages.items() if name not in KNOWN_FAULTS}
    for name, text in unknown.items():
        print(f"{name}: {text}")
    print(
        f"Validation layer, {' and '.join(modes)}: {len(messages)} kinds of messages, "
        f"{len(unknown)} of them not known faults of kp"
    )
    return code or bool(unknown)


if __name__ == "__main__":
    sys.exit(main())
