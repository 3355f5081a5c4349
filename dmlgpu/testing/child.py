"""Runs programs of a library in a process of its own, which may crash. Needs NumPy, and nothing of dmlgpu.

A message is 8 bytes with its length, and that many bytes: a line of JSON, and the bytes of all arrays, so that a
library that has overwritten memory harms only its own process.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, BinaryIO

import numpy as np


def read(file: BinaryIO) -> bytes | None:
    """The next message; None at the end."""
    length = file.read(8)
    content = file.read(int.from_bytes(length, "little")) if len(length) == 8 else b""
    return content if len(length) == 8 and len(content) == int.from_bytes(length, "little") else None


def write(file: BinaryIO, *parts: bytes) -> None:
    """Writes a message."""
    file.write(sum(map(len, parts)).to_bytes(8, "little"))
    for part in parts:
        file.write(part)
    file.flush()


def main() -> None:
    """Answers requests until there are no more. All programs share a namespace, so the first one may be imports."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in 0, 1:  # the library must not print into replies, nor close their pipe
        os.dup2(nowhere, descriptor)
    process, namespace = os.getpid(), dict[str, Any]()
    while (content := read(requests)) is not None:
        head, _, data = content.partition(b"\n")
        request, parts = json.loads(head), list[bytes]()
        try:
            sys.path[:] = request["path"]
            for name, (dtype, size, shape, strides) in request["arrays"].items():
                buffer = np.frombuffer(bytearray(data[:size]), dtype)
                namespace[name] = np.lib.stride_tricks.as_strided(buffer, shape, strides)
                data = data[size:]
            results = _results(namespace, request["program"], request["to_numpy"])
            parts = [result.tobytes() if result.dtype.kind in "biufc" else b"" for result in results]
            reply: dict[str, Any] = {"results": [(result.dtype.str, result.shape) for result in results]}
        except Exception as error:
            reply = {"refused": f"{type(error).__name__}: {error}"}
        except BaseException as error:
            reply = {"crashed": f"raised {error!r}"}
        if os.getpid() != process:  # the library has forked, and this is the copy
            os._exit(0)
        write(replies, json.dumps(reply).encode() + b"\n", *parts)


def _results(namespace: dict[str, Any], program: str, to_numpy: str) -> list[Any]:
    *statements, expression = program.splitlines()
    exec("\n".join(statements), namespace)
    result = eval(expression, namespace)
    if isinstance(result, str):
        return [np.frombuffer(result.encode(), np.uint8)]
    entries = result if isinstance(result, tuple | list) else (result,)
    return [np.asarray(eval(to_numpy, namespace | {"result": entry}), order="C") for entry in entries]


if __name__ == "__main__":
    main()
