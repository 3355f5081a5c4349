"""Output of command lines, whose reader may close the pipe."""

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

# The exit code of a program that SIGPIPE ended, in shells: 128 + 13.
_UNREAD = 141


def open_console(columns: int) -> Console:
    """A console as wide as the terminal; in files and pipes it is `columns` wide.

    Raises:
        ModuleNotFoundError: rich is not installed.
    """
    from rich.console import Console

    class PipedConsole(Console):
        def on_broken_pipe(self) -> None:
            # Raises again what rich has caught: rich would exit with 1.
            raise

    return PipedConsole(width=shutil.get_terminal_size(fallback=(columns, 24)).columns, highlight=False)


@contextmanager
def written_to_the_end() -> Iterator[None]:
    """A block that flushes stdout at its end, so that an error of the last write is raised there.

    Characters that the encoding lacks are written as escape sequences: file names may have any bytes.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        print(end="", flush=True)


def exit_code(command: Callable[[], int]) -> int:
    """Runs a command and returns its exit code; 141, without a message, if it raises a BrokenPipeError."""
    try:
        return command()
    except BrokenPipeError:
        _to_nowhere(1, 2)
        return _UNREAD
    finally:
        try:
            print(end="", file=sys.stderr, flush=True)
        except OSError:  # for example a full disk
            _to_nowhere(2)


def fail(program: str, message: object, code: int = 2) -> int:
    """Prints why a program failed, and returns its exit code."""
    try:
        print(f"{program}: {message}", file=sys.stderr)
    except BrokenPipeError:
        raise
    except OSError:  # a full disk, for example: only the exit code can report it
        pass
    return code


def _to_nowhere(*descriptors: int) -> None:
    """Redirects file descriptors to os.devnull: if the last flush failed, the interpreter would exit with 120."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in descriptors:
        os.dup2(nowhere, descriptor)
