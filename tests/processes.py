"""Programs in processes of their own: what they break, they break there."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]


def output_of(
    program: str,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    options: tuple[str, ...] = (),
    timeout: float = 60,
) -> str:
    """What a Python program prints; it must end well, and say nothing on stderr.

    Args:
        program: its text.
        arguments: those of the program.
        environment: its variables; None: those of this process.
        options: those of the interpreter.
        timeout: seconds.
    """
    command = [sys.executable, *options, "-c", program, *arguments]
    finished = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout)
    assert (finished.returncode, finished.stderr) == (0, "")
    return finished.stdout
