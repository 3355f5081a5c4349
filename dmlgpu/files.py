"""Files from outside, of any length."""

from __future__ import annotations

import os


def read_at_most(path: str | os.PathLike[str], most_bytes: int) -> bytes:
    """The content of a file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is longer.
    """
    with open(path, "rb") as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(f"more than {most_bytes} bytes")
    return content
