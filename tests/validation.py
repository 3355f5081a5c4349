"""Runs the device tests under the Khronos validation layer, synchronization validation included.

    python -m tests.validation [PYTEST ARGUMENTS]

Fails where a test fails, or where the layer has anything to say that is not a known fault of kp itself.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

LAYER = "VK_LAYER_KHRONOS_validation"
SETTINGS = """\
khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG
khronos_validation.report_flags = error,warn,perf
khronos_validation.enables = VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT
khronos_validation.log_filename = {log}
"""

# Messages that are faults of kp 0.9.0 itself, as (identifier, why it is harmless). dmlgpu meets none at present.
KNOWN_FAULTS: dict[str, str] = {}

# kp never resets the query pool of its timestamps. dmlgpu does not use them; here they prove that the layer listens.
CONTROL = "UNASSIGNED-CoreValidation-DrawState-QueryNotReset"
PROVOCATION = """
import kp
from numpy import zeros, uint32
manager = kp.Manager(0)
sequence = manager.sequence(0, 2)
sequence.record(kp.OpTensorSyncDevice([manager.tensor_t(zeros(64, uint32))]))
sequence.eval()
"""


def identifiers(log: Path) -> dict[str, str]:
    """Every message of a log: its identifier, and the first text that it came with."""
    found: dict[str, str] = {}
    for line in log.read_text(errors="replace").splitlines() if log.exists() else ():
        match = re.match(r"(\S+?)\((?:ERROR|WARN|PERF|INFO).*?\): (.*)", line)
        if match:
            found.setdefault(match[1], match[2])
    return found


def run(folder: Path, command: list[str]) -> tuple[int, dict[str, str]]:
    """Runs a command under the layer; its exit code and the layer's messages."""
    folder.mkdir()
    log = folder / "log.txt"
    (folder / "vk_layer_settings.txt").write_text(SETTINGS.format(log=log))
    layers = {"VK_INSTANCE_LAYERS": LAYER, "VK_LAYER_SETTINGS_PATH": str(folder)}
    environment = {**os.environ, **layers, "DMLGPU_TEST_WHOLE_BUFFERS": "1"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout, flush=True)
    return done.returncode, identifiers(log)


def main() -> int:
    with tempfile.TemporaryDirectory() as temporary:
        _, messages = run(Path(temporary, "control"), [sys.executable, "-c", PROVOCATION])
        if CONTROL not in messages:
            print(f"The validation layer did not report {CONTROL}: is it installed (vulkan-validationlayers)?")
            return 1
        pytest = [sys.executable, "-m", "pytest", "-q", "-m", "device and not parts_of_buffers", *sys.argv[1:]]
        # A log has one process that writes it: one for the tests of each of the two drivers, side by side.
        parts = {"lavapipe": "lavapipe", "others": "not lavapipe"}
        with ThreadPoolExecutor() as pool:
            runs = [pool.submit(run, Path(temporary, name), [*pytest, "-k", k]) for name, k in parts.items()]
        codes, logs = zip(*(done.result() for done in runs), strict=True)
    messages = {name: text for log in logs for name, text in log.items()}
    unknown = {name: text for name, text in messages.items() if name not in KNOWN_FAULTS}
    for name, text in unknown.items():
        print(f"{name}: {text}")
    print(f"Validation layer: {len(messages)} kinds of messages, {len(unknown)} of them not known faults of kp")
    return max(codes) or bool(unknown)


if __name__ == "__main__":
    sys.exit(main())
