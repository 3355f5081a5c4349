"""Coverage-guided fuzzing, with atheris, of functions that read text and files.

    python -m tests.fuzz.parsers [SECONDS]              each target for this time, by default 30
    python -m tests.fuzz.parsers TARGET [OPTION...]     one target, with options of libFuzzer; by default without end

A target is a function of bytes, which fails if they lead to anything but a result or a documented error. The input of a
failure is printed, and kept in the temporary folder.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import numpy as np

from dmlgpu import DescriptorError, DeviceError, files
from dmlgpu.runtime.drivers import choose
from dmlgpu.tools import cli, demo, doctor, explain
from dmlgpu.tools.doctor import OK, Finding
from dmlgpu.tools.dxdispatch import Model, ModelError
from tests.support.devices import info

DEVICES = tuple(
    info(index, name)
    for index, name in ((0, "llvmpipe (LLVM 15.0.6, 256 bits)"), (2, "Straße \u0130"), (3, "llvmpipe"))
)


def text(data: bytes) -> str:
    """The bytes as the text of an argument or variable, in which no system allows 0."""
    return data.replace(b"\0", b"").decode(errors="surrogateescape")


def arguments(data: bytes) -> None:
    """The command line: arguments are valid, or the process ends with 0 for help and 2 for errors."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
        try:
            cli._arguments([text(part) for part in data.split(b"\n")])
        except SystemExit as end:
            code = end.code
        else:
            return
    assert code == 0 or (code == 2 and "usage: dmlgpu" in errors.getvalue())


def selector(data: bytes) -> None:
    """DMLGPU_DEVICE and --device: a device, or an error that lists all."""
    try:
        chosen = choose(DEVICES, text(data))
    except DeviceError as error:
        message = str(error)
    else:
        assert chosen in DEVICES
        return
    assert message.endswith("devices are " + ", ".join(f"{info.index}: {info.name}" for info in DEVICES))


def findings(data: bytes) -> None:
    """Output of drivers and names of files: findings that every terminal can print."""
    finding, *noise = doctor._printable(Finding("driver", OK, text(data))), *doctor._noise("driver", text(data))
    for printed in (finding, *map(doctor._printable, noise), doctor._problem("driver", text(data), "fix")):
        assert printed.state
    assert finding.text.isprintable()
    finding.text.encode()


def operator(data: bytes) -> None:
    """Words that describe an operator: its descriptor, or an error."""
    name, data_type, sizes, *arguments = (text(part) for part in [*data.split(b"\n"), b"", b"", b""])
    with contextlib.suppress(DescriptorError):
        assert explain.parse(name, data_type, sizes, arguments=[*filter(None, arguments)]).outputs


@contextlib.contextmanager
def file_of(data: bytes) -> Iterator[Path]:
    """A temporary file of these bytes."""
    file = Path(tempfile.gettempdir(), f"dmlgpu-fuzz-{os.getpid()}")
    file.write_bytes(data)
    try:
        yield file
    finally:
        file.unlink()


def document(data: bytes) -> None:
    """A model file: a model, or an error."""
    with file_of(data) as file, contextlib.suppress(ModelError):
        assert Model(file).resources is not None


def array(data: bytes) -> None:
    """A .npy file: an array, or one of the documented errors."""
    with file_of(data) as file, contextlib.suppress(ValueError, OSError):
        assert files.open_npy(file).size >= 0


def image(data: bytes) -> None:
    """A photograph: an array of the demo's size, or an OSError."""
    with file_of(data) as file:
        try:
            photo = demo.load_photograph(str(file))
        except OSError:
            return
    assert (photo.dtype, photo.shape[2]) == (np.uint8, 3)
    assert 1 <= min(photo.shape) <= max(photo.shape) <= 1024


def _images() -> list[bytes]:
    from PIL import Image

    grey = Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8))
    saved = []
    for mode, name in [
        *(("RGB", name) for name in demo._FORMATS),
        *(("P", name) for name in ("BMP", "GIF", "PNG", "TIFF")),
        *(("I;16", name) for name in ("PNG", "PPM", "TIFF")),
        *(("RGBA", name) for name in ("PNG", "WEBP")),
        *(("F", "TIFF"), ("1", "PPM"), ("CMYK", "JPEG"), ("LA", "PNG")),
    ]:
        with io.BytesIO() as file:
            image = Image.fromarray(np.asarray(grey, np.uint16) << 8) if mode == "I;16" else grey.convert(mode)
            image.save(file, name)
            saved.append(file.getvalue())
    return saved


def _documents() -> list[bytes]:
    folder = Path(__file__).parents[2] / "docs" / "models"
    return [path.read_bytes() for path in sorted(folder.glob("*.json"))]


def _arrays() -> list[bytes]:
    saved, arrays = [], (np.zeros((2, 3), "<f4"), np.array(1.0), np.zeros((3, 2), ">i2").T)
    for version, x in product([(1, 0), (2, 0), (3, 0)], arrays):
        with io.BytesIO() as file:
            np.lib.format.write_array(file, x, version)
            saved.append(file.getvalue())
    return saved


# The function of each target, and its first inputs.
TARGETS: dict[str, tuple[Callable[[bytes], None], Callable[[], list[bytes]]]] = {
    "arguments": (
        arguments,
        lambda: [
            b"demo\n--image\nx.png\n--output\ny.png\n--device\n1",
            b"devices\n--json",
            b"doctor",
            b"verify\n--help",
        ],
    ),
    "selector": (selector, lambda: [b"0", b"2", b"llvm", b"9" * 5000, "Straße".encode(), "٢".encode(), b"\xff"]),
    "findings": (findings, lambda: [b"\xff\x1b[31m", b"no driver. Install one", b"a\n\nb"]),
    "operator": (
        operator,
        lambda: [
            b"argmax\nfloat32\n4096,1024\naxes=1\naxis_direction=decreasing\noutput_data_type=int64",
            b"reduce\nfloat16\n8,100\nfunction=SUM\naxes=0,1\ninput_strides=1,8",
            b"max_pooling2\nuint8\n1,2,9,8\nwindow_size=3,3\nstrides=2,2\nindices_data_type=uint32\ndilations=1,2",
            b"average_pooling_grad\nfloat32\n1,2,9,8\nwindow_size=2,2\noutput_sizes=1,2,10,9\ninclude_padding=true",
        ],
    ),
    "document": (document, _documents),
    "array": (array, _arrays),
    "image": (image, _images),
}


# The program of a fuzzing process. Instrumented imports tell atheris which lines an input reaches.
PROGRAM = """
import sys, atheris
with atheris.instrument_imports(include=["dmlgpu", "argparse", "json", "PIL"]):
    from tests.fuzz import parsers
parsers.fuzz(sys.argv[1], sys.argv[2:])
"""


def fuzz(target: str, options: list[str]) -> None:
    """Runs a target until it fails; ends the process."""
    import atheris

    test, seeds = TARGETS[target]
    with tempfile.TemporaryDirectory(prefix=f"dmlgpu-{target}-") as corpus:
        for number, seed in enumerate(seeds()):
            Path(corpus, str(number)).write_bytes(seed)
        atheris.Setup([target, *options, corpus], test)
        atheris.Fuzz()


def main(arguments: list[str]) -> int:
    """Fuzzes the named target, or every target in a separate process."""
    program = [sys.executable, "-c", PROGRAM]
    if arguments and arguments[0] in TARGETS:
        return subprocess.run([*program, *arguments], check=False).returncode
    seconds = int(arguments[0]) if arguments else 30
    failed = False
    for target in TARGETS:
        options = [f"-max_total_time={seconds}", "-print_final_stats=1", f"-artifact_prefix={tempfile.gettempdir()}/"]
        command = [*program, target, "-max_len=8192", "-timeout=20", *options]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        counted, covered = re.search(r"executed_units: (\d+)", done.stdout), re.findall(r"cov: (\d+)", done.stdout)
        print(f"{target}: {int(counted[1]) if counted else 0:,} inputs, {covered[-1:]} branches", flush=True)
        if done.returncode:
            print(done.stdout[-4000:], flush=True)
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
