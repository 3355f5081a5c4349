"""A library in a child process, which is started again after a crash or a timeout."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np

from dmlgpu.descriptors.tensor import Array
from dmlgpu.testing.child import read, write

_CHILD = Path(__file__).with_name("child.py")
# Maximum seconds of the imports, if a program's maximum is less: the import of a large library may be slow.
_SECONDS_OF_IMPORTS = 300.0


class RefusedError(Exception):
    """The library raised an exception; the message is its type and text."""


class CrashedError(Exception):
    """The process of the library ended, or did not answer in time; the message tells how."""


class Isolated:
    """Runs programs in a child process.

    Args:
        imports: the statements that every child runs first.
        to_numpy: an expression that makes an array of `result`.
        folders: folders of modules, searched before those of this process.
        seconds: maximum duration of a program.
    """

    def __init__(self, imports: str, to_numpy: str, seconds: float, folders: Sequence[str] = ()) -> None:
        self._imports, self._to_numpy, self._seconds = imports, to_numpy, seconds
        self._path = [*folders, *sys.path]
        self._process: subprocess.Popen[bytes] | None = None
        self._replies: queue.SimpleQueue[bytes | None]
        self._errors: IO[bytes]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    def run(self, program: str, arrays: Mapping[str, Array]) -> list[Array]:
        """The results of a program, whose last line is an expression.

        Args:
            program: its text.
            arrays: its variables, by name; the child's copies have the same strides.

        Raises:
            RefusedError: the program raised an exception.
            CrashedError: the process ended, or did not answer in time.
        """
        if self._process is None:
            self._start()
        return self._answer(program, arrays, self._seconds)

    def _start(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        # In a separate session, Ctrl-C does not reach the child, and processes that the child starts end with it.
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        self._replies = queue.SimpleQueue()
        threading.Thread(target=_read_all, args=(self._process.stdout, self._replies), daemon=True).start()
        self._answer(f"{self._imports}\n()", {}, max(self._seconds, _SECONDS_OF_IMPORTS))

    def _answer(self, program: str, arrays: Mapping[str, Array], seconds: float) -> list[Array]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        buffers = {name: buffer_of(x).tobytes() for name, x in arrays.items()}
        sent = {name: (x.dtype.str, len(buffers[name]), x.shape, x.strides) for name, x in arrays.items()}
        request = {"path": self._path, "program": program, "arrays": sent, "to_numpy": self._to_numpy}
        with contextlib.suppress(OSError):  # the child has ended: there is no reply
            write(process.stdin, json.dumps(request).encode() + b"\n", *buffers.values())  # type: ignore[arg-type]
        content = self._reply(process, seconds)
        head, _, data = content.partition(b"\n")
        reply = json.loads(head)
        if "refused" in reply:
            raise RefusedError(reply["refused"])
        if "crashed" in reply:
            self._end()
            raise CrashedError(reply["crashed"])
        results = []
        for name, shape in reply["results"]:
            dtype = np.dtype(name)
            if dtype.kind not in "biufc":
                results.append(np.broadcast_to(np.array(None), shape))
                continue
            count = int(np.prod(shape)) * dtype.itemsize
            results.append(np.frombuffer(data[:count], dtype).reshape(shape))
            data = data[count:]
        return results

    def _reply(self, process: subprocess.Popen[bytes], seconds: float) -> bytes:
        deadline = time.monotonic() + seconds
        while True:
            # A process that the child has started may keep the pipe open after the child has ended.
            ended = process.poll() is not None
            with contextlib.suppress(queue.Empty):
                content = self._replies.get(timeout=0.1)
                if content is not None:
                    return content
                ended = True
            if ended or time.monotonic() > deadline:
                break
        end = self._end(1 if ended else 0)
        raise CrashedError(end if ended else f"no answer in {seconds:g} s")

    def _end(self, patience: float = 0) -> str:
        """Ends the child, unless it ends within `patience` seconds. Returns a text about its end."""
        process, self._process = self._process, None
        if process is None:
            return ""
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
        code = process.poll()
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()
        process.wait()
        with contextlib.suppress(OSError):
            process.stdin.close()  # type: ignore[union-attr]
        with self._errors as errors:
            errors.seek(0)
            lines = errors.read().decode(errors="replace").strip().splitlines()
        last_line = f": {lines[-1][:200]}" if lines and code else ""
        if code is not None and code < 0:
            with contextlib.suppress(ValueError):
                return f"ended by {signal.Signals(-code).name}{last_line}"
        return f"exited with {code}{last_line}"


def _read_all(file: Any, replies: queue.SimpleQueue[bytes | None]) -> None:
    with file, contextlib.suppress(OSError, MemoryError):
        while (content := read(file)) is not None:
            replies.put(content)
    replies.put(None)


def buffer_of(x: Array) -> Array:
    """A packed view of the memory from the first to the last element of an array without negative strides."""
    count = sum((size - 1) * stride for size, stride in zip(x.shape, x.strides, strict=True)) // x.itemsize + 1
    return np.lib.stride_tricks.as_strided(x, (count if x.size else 0,), (x.itemsize,), writeable=False)
