"""Files: read up to a length, mapped, and written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import tokenize
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

# What NumPy raises for a header that it cannot read, whatever is in it.
_NO_HEADER = (
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    SyntaxError,
    tokenize.TokenError,
    RecursionError,
    MemoryError,
)


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


def open_npy(path: str | os.PathLike[str]) -> npt.NDArray[Any]:
    """The array of a .npy file, mapped to be read.

    Raises:
        OSError: it cannot be read or mapped.
        ValueError: it is no .npy file, has fewer elements than it says, or Python's objects.
    """
    try:
        with np.errstate(over="ignore"):  # of the size; making the array raises then
            array: npt.NDArray[Any] = np.lib.format.open_memmap(path, "r")
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    except _NO_HEADER as error:
        raise ValueError(f"{path}: {error}") from None
    return array


@contextlib.contextmanager
def written(path: str, *, force: bool = False) -> Iterator[str]:
    """Gives another name, beside it, for a file to be made by the block; it is renamed where the block ends well.

    An error in the block removes it. What ends the process leaves it under the other name, which ends in `.part`.

    Args:
        path: the file's name, absolute where the current folder may change meanwhile.
        force: whether another file of that name is replaced.

    Raises:
        FileExistsError: there is another, before the block or behind it. OSError: the file cannot be renamed.
    """
    if not force and os.path.lexists(path):
        raise _exists(path)
    part = f"{path}.{os.urandom(4).hex()}.part"
    try:
        yield part
        if force:
            os.replace(part, path)
        else:
            _rename(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


def _exists(path: str) -> FileExistsError:
    return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)


def _rename(part: str, path: str) -> None:
    """Renames a file; one that was made under its new name meanwhile stays, which os.rename would replace."""
    try:
        os.link(part, path)
    except FileExistsError:
        raise _exists(path) from None
    except OSError:  # a file system without links
        if os.path.lexists(path):
            raise _exists(path) from None
        os.rename(part, path)
    else:
        os.unlink(part)
