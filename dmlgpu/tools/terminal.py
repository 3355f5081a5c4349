"""What command lines write to, and readers of it that go away."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

# 128 and the number of SIGPIPE, as of a program that this signal ended.
_UNREAD = 141


def open_console(columns: int) -> Console:
    """A console as wide as the terminal; files and pipes get tables of so many columns, in one piece.

    Raises:
        ModuleNotFoundError: rich is not installed.
    """
    from rich.console import Console

    class PipedConsole(Console):
        def on_broken_pipe(self) -> None:
            # Again what rich has caught: it would end the process with 1.
            raise

    return PipedConsole(width=shutil.get_terminal_size(fallback=(columns, 24)).columns, highlight=False)


@contextmanager
def written_to_the_end() -> Iterator[None]:
    """A block whose output is written at its end: what breaks at the last write breaks there.

    What the encoding lacks is written as an escape sequence: names of files may have any bytes.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        print(end="", flush=True)


def exit_code(command: Callable[[], int]) -> int:
    """Runs a command and gives its exit code; 141, and silence, where it raises a BrokenPipeError."""
    try:
        return command()
    except BrokenPipeError:
        _to_nowhere(1, 2)
        return _UNREAD
    finally:
        try:
            print(end="", file=sys.stderr, flush=True)
        except OSError:  # as of a full disk
            _to_nowhere(2)


def _to_nowhere(*descriptors: int) -> None:
    """The interpreter writes what is left of its output at its end, and ends with 120 where that fails."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in descriptors:
        os.dup2(nowhere, descriptor)
