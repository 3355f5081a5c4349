"""Programs in separate processes, where faults do not affect other tests."""

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]


def output_of(
    program: str,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    options: tuple[str, ...] = (),
    timeout: float = 60,
    errors: str = "",
) -> str:
    """The output of a Python program, which must exit with 0 and write nothing unexpected to stderr.

    Args:
        program: the text of the program.
        arguments: arguments of the program.
        environment: environment variables; None: those of this process.
        options: options of the interpreter.
        timeout: seconds.
        errors: a pattern that all output to stderr must match.
    """
    command = [sys.executable, *options, "-c", program, *arguments]
    finished = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout)
    assert finished.returncode == 0, finished.stderr
    assert re.fullmatch(errors, finished.stderr), finished.stderr
    return finished.stdout


# The folder in which the set-up installed the original kp.
PLAIN = Path(sys.prefix) / "tests"
PRELUDE = """
import concurrent.futures, contextlib, gc, multiprocessing, os, signal, sys, threading, time
import numpy as np
import dmlgpu
from dmlgpu import *

x = np.array([[1, 2, 3], [3, 0, 4], [2, 5, 2]], np.float32)
desc = ArgmaxOperatorDesc(TensorDesc.of(x), TensorDesc(DataType.UINT32, (3, 1)), (1,))
index = int(sys.argv[1])

def outcome(call, *args):
    try:
        return call(*args)
    except Exception as error:
        return f"{type(error).__name__}: {error}"

"""
# A device, an operator, and a tensor on it, all in use.
OPENED = (
    PRELUDE
    + """
device = Device(index)
operator = device.compile(desc)
tensor = operator(device.tensor(x))
print(tensor.numpy().tolist(), flush=True)
"""
)
RESULT = "[[2], [2], [1]]"


def run(program: str, driver, timeout: float = 60) -> list[str]:
    """The lines that a program prints; it must exit with 0, and write nothing to stderr."""
    # Python 3.12 warns of forks of processes with threads.
    options = ("-W", "ignore::DeprecationWarning")
    return output_of(program, str(driver.index), options=options, timeout=timeout).splitlines()


def hide(monkeypatch, package):
    """Makes importing a package fail as if it were not installed."""
    for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
