"""Maps arrays in files, and writes files whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import tokenize
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

# All errors that NumPy may raise for an unreadable header.
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


def open_npy(path: str | os.PathLike[str]) -> npt.NDArray[Any]:
    """The array of a .npy file, mapped read-only.

    Raises:
        OSError: the file cannot be read or mapped.
        ValueError: the file is no .npy file, has fewer elements than its header declares, or has Python objects.
    """
    try:
        with np.errstate(over="ignore"):  # if the size overflows, the next line raises an error
            array: npt.NDArray[Any] = np.lib.format.open_memmap(path, "r")
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    except _NO_HEADER as error:
        with open(path, "rb") as file:
            is_zip = file.read(4) == b"PK\3\4"
        what = "a .npz file, which has several arrays; allowed are .npy files, as numpy.save writes one array"
        raise ValueError(f"{path}: {what if is_zip else error}") from None
    return array


@contextlib.contextmanager
def written(path: str, *, force: bool = False) -> Iterator[str]:
    """A block that writes a file under a temporary name in the folder of `path`; its end renames the file to `path`.

    An error in the block removes the file. If the process ends in the block, the file keeps its temporary name, which
    ends in `.part`.

    Args:
        path: the file's final name; absolute if the current folder may change in the block.
        force: whether to replace an existing file of this name.

    Raises:
        FileExistsError: there is a file of this name, before or after the block, and `force` is False.
        OSError: the file cannot be renamed.
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
    """The error to raise if there is a file of this name."""
    return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)


def _rename(part: str, path: str) -> None:
    """Renames a file; raises a FileExistsError if there is a file of the new name, which os.rename would replace."""
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
