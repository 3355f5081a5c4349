"""The demo: operators search, posterise, pool and unpool a photograph, and a picture shows the results."""

from __future__ import annotations

import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

from dmlgpu.comparison import differences
from dmlgpu.descriptors.dtypes import DataType
from dmlgpu.descriptors.operator import OperatorDesc
from dmlgpu.descriptors.pooling import AveragePooling1OperatorDesc, MaxPooling2OperatorDesc, MaxUnpoolingOperatorDesc
from dmlgpu.descriptors.reduction import ArgmaxOperatorDesc, ArgminOperatorDesc
from dmlgpu.descriptors.tensor import Array
from dmlgpu.reference import reference
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.drivers import DeviceInfo

_LARGEST_SIDE = 1024
# Formats that Pillow reads itself; for PostScript it would run another program.
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
# Formats of the picture, by the suffix of its file.
WRITTEN = {
    ".png": "PNG",
    ".jpg": "JPEG",
    ".jpeg": "JPEG",
    ".webp": "WEBP",
    ".bmp": "BMP",
    ".tif": "TIFF",
    ".tiff": "TIFF",
}
# Maximum size of a file. Pillow itself limits the number of pixels.
_MOST_BYTES = 512 << 20
_COLOURS = 12
RUNS = 5


def load_photograph(path: str | None) -> Array:
    """A photograph as an (H, W, 3) array of uint8.

    Args:
        path: a BMP, GIF, JPEG, PNG, PPM, TIFF or WebP file of up to 512 MiB and Image.MAX_IMAGE_PIXELS pixels, scaled
            down if it is large; None: a portrait of Grace Hopper by the US Navy (public domain).

    Raises:
        OSError: the file cannot be read, or is larger.
    """
    path = path or str(Path(__file__).with_name("grace_hopper.jpg"))
    try:
        if os.stat(path).st_size > _MOST_BYTES:
            raise ValueError(f"it has more than {_MOST_BYTES >> 20} MiB")
        with _no_bombs(), Image.open(path, formats=_FORMATS) as file:
            image = ImageOps.exif_transpose(file)
            if image.mode.startswith(("I", "F")):
                image = _eight_bits(image)
            if image.has_transparency_data:
                image = image.convert("RGBA")
                image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
            image = image.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise OSError(f"cannot read image {path}: {error}") from None
    image.thumbnail((_LARGEST_SIDE, _LARGEST_SIDE))
    return np.asarray(image)


@contextmanager
def _no_bombs() -> Iterator[None]:
    """Raises Pillow's warning about images of more than Image.MAX_IMAGE_PIXELS as an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def _eight_bits(image: Image.Image) -> Image.Image:
    """A grey image with more than 8 bits per pixel, its range of values scaled to 0 to 255."""
    grey = np.asarray(image, np.float64)
    low, high = grey.min(), grey.max()
    return Image.fromarray(np.uint8((grey - low) * (255 / max(high - low, 1))))


@dataclass(frozen=True)
class Measurement:
    """Times and correctness of one operator; times in seconds, medians of RUNS runs."""

    operator: str
    desc: OperatorDesc
    kernel_time: float
    """Seconds of its dispatches, from their submission until the host sees their end."""
    call_time: float
    """Seconds from ndarrays to ndarrays: the kernel, the copies, and the call itself."""
    agrees: bool
    """Whether the outputs equal the oracle's, or differ by at most the operator's bound."""

    @property
    def bandwidth(self) -> float:
        """Bytes per second of the kernel, which reads each input and writes each output once."""
        return sum(t.size_in_bytes for t in (*self.desc.inputs, *self.desc.outputs)) / self.kernel_time


def _measure(
    device: Device, operator: str, desc: OperatorDesc, *inputs: Array
) -> tuple[tuple[Array, ...], Measurement]:
    """The outputs of an operator, and its measurement."""
    compiled = device.compile(desc)
    sources = [device.tensor(x) for x in inputs]
    targets = compiled(*sources)
    outputs = _as_tuple(compiled(*inputs))
    return outputs, Measurement(
        operator,
        desc,
        kernel_time=statistics.median(
            _kernel_time(device, lambda: compiled(*sources, out=targets)) for _ in range(RUNS)
        ),
        call_time=statistics.median(_call_time(lambda: compiled(*inputs)) for _ in range(RUNS)),
        agrees=not any(differences(desc, inputs, outputs, reference(desc, *inputs))),
    )


def _as_tuple(outputs: Any) -> tuple[Array, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)


def _kernel_time(device: Device, call: Callable[[], object]) -> float:
    with device.profile() as profile:
        call()
    return sum(event.seconds for event in profile.events if event.kind == "dispatch")


def _call_time(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


@dataclass(frozen=True)
class Results:
    """The operators' results for a photograph; images are (H, W, 3) arrays of uint8."""

    photo: Array
    palette: Array
    posterised: Array
    max_pooled: Array
    average_pooled: Array
    dilated: Array
    unpooled: Array
    winners: int
    """Number of pixels that are the maximum of a window in some channel."""
    brightest: tuple[tuple[int, int], ...]
    """Row and column of the brightest pixel of each channel."""
    measurements: tuple[Measurement, ...]


def run(device: Device, photo: Array) -> Results:
    """Runs the operators on a photograph, an (H, W, 3) array of uint8."""
    palette = _palette(photo)
    distances = np.stack([((photo - colour) ** 2).sum(2) for colour in palette.astype(np.float32)], axis=2)
    (nearest,), posterising = _measure(device, "ARGMIN", ArgminOperatorDesc.of(distances, (2,)), distances)

    planes = np.ascontiguousarray(photo.transpose(2, 0, 1))[np.newaxis]
    (brightest,), searching = _measure(device, "ARGMAX", ArgmaxOperatorDesc.of(planes, (2, 3)), planes)

    unit = planes / np.float32(255)
    maximum = MaxPooling2OperatorDesc.of(unit, **_window(dilation=1), indices_data_type=DataType.UINT32)
    (maxima, indices), pooling = _measure(device, "MAX_POOLING2", maximum, unit)
    unpool = MaxUnpoolingOperatorDesc.of(maxima, unit.shape, indices_tensor=indices)
    (unpooled,), unpooling = _measure(device, "MAX_UNPOOLING", unpool, maxima, indices)
    average = AveragePooling1OperatorDesc.of(unit, **_window(dilation=1))
    (averages,), averaging = _measure(device, "AVERAGE_POOLING1", average, unit)
    spread = MaxPooling2OperatorDesc.of(planes, **_window(dilation=2))
    (dilated,), dilating = _measure(device, "MAX_POOLING2 dilated", spread, planes)
    return Results(
        photo,
        palette,
        # Clipped, so that a wrong index raises no error, and the picture shows it.
        posterised=np.take(palette, nearest[:, :, 0], axis=0, mode="clip"),
        max_pooled=_image(maxima, 255),
        average_pooled=_image(averages, 255),
        dilated=_image(dilated, 1),
        unpooled=_image(unpooled, 255),
        winners=np.unique(indices % (photo.shape[0] * photo.shape[1])).size,
        brightest=tuple(divmod(min(int(i), planes[0, 0].size - 1), photo.shape[1]) for i in brightest.flat),
        measurements=(searching, posterising, pooling, unpooling, averaging, dilating),
    )


def _palette(photo: Array) -> Array:
    """The main colours of a photograph, at most _COLOURS, from dark to light."""
    small = Image.fromarray(photo)
    small.thumbnail((256, 256))
    quantized = small.quantize(_COLOURS, Image.Quantize.MAXCOVERAGE, kmeans=5)
    palette = np.array(quantized.getpalette(), np.uint8).reshape(-1, 3)[np.unique(np.asarray(quantized))]
    dark_to_light: Array = palette[np.argsort(palette @ [0.299, 0.587, 0.114])]
    return dark_to_light


def _window(dilation: int) -> dict[str, Any]:
    """3 x 3 windows with stride 2, padded so that the centre of each is in the image."""
    fields = {"strides": 2, "start_padding": dilation, "end_padding": dilation, "dilations": dilation}
    return {"window_size": (3, 3)} | {field: (value, value) for field, value in fields.items()}


def _image(planes: Array, scale: int) -> Array:
    # Wrong values raise no warning, so the picture shows them.
    with np.errstate(over="ignore", invalid="ignore"):
        image: Array = np.rint(planes[0] * scale).astype(np.uint8).transpose(1, 2, 0)
    return image


# The picture: six panels, each with a title, a subtitle, an image and a strip that explains it. Wide photographs have
# fewer panels per row.
_WIDTH, _MOST_HEIGHT = 1296, 512  # of the page, of an image
_MARGIN, _HEADER, _TITLE, _STRIP = 36, 108, 74, 64
_LARGE, _MIDDLE, _SMALL = 32, 24, 17  # font sizes
_PAPER, _INK, _FAINT = "#ffffff", "#1d2330", "#6a7080"
_CHANNELS = ("#ff3b30", "#2fd65a", "#3f8cff")
# The part of every image that is enlarged in its corner: left, top, right and bottom as fractions of the image's size.
_CLOSE_UP = (0.55, 0.28, 0.64, 0.37)
# Width and height of the corner, as such fractions.
_CORNER = 0.4


def draw(results: Results, info: DeviceInfo) -> Image.Image:
    """Draws the results as one picture."""
    height, width, _ = results.photo.shape
    page = _Page(width, height)
    page.text(_MARGIN, 24, "A photograph through DirectML's operators on Vulkan", _LARGE)
    page.text(_MARGIN, 68, f"{info.name}, driver {info.driver}", colour=_FAINT)

    left, below = page.panel(0, "Brightest pixels", "ARGMAX over height and width: x, y", results.photo)
    for channel, (row, column) in enumerate(results.brightest):
        page.ring(0, (column + 0.5) / width, (row + 0.5) / height, 10 + 4 * channel, _CHANNELS[channel])
        x = left + 128 * channel
        page.draw.ellipse((x, below + 3, x + 14, below + 17), fill=_CHANNELS[channel])
        page.text(x + 22, below, f"{column}, {row}")

    subtitle = f"ARGMIN over distances to {len(results.palette)} colours"
    left, below = page.panel(1, "Posterised", subtitle, results.posterised)
    for i, colour in enumerate(results.palette.tolist()):
        x = left + 32 * i
        page.draw.rectangle((x, below - 2, x + 27, below + 20), fill=tuple(colour), outline=_FAINT)

    maximum, average = "MAX_POOLING2, 3 x 3, stride 2", "AVERAGE_POOLING1, 3 x 3, stride 2"
    for number, title, subtitle, pooled, dilation, text in (
        (2, "Max pooled", maximum, results.max_pooled, 1, "the maximum of 9 neighbours"),
        (3, "Average pooled", average, results.average_pooled, 1, "the average of 9 neighbours"),
        (4, "Max pooled, dilated", f"{maximum}, dilation 2", results.dilated, 2, "the maximum of 9 over 5 x 5"),
    ):
        left, below = page.panel(number, title, subtitle, pooled)
        page.window(left, below, dilation)
        page.text(left + 40, below, f"{text}: {pooled.shape[1]} x {pooled.shape[0]}")

    subtitle = "MAX_UNPOOLING by the indices of the maxima"
    left, below = page.panel(5, "Maxima put back", subtitle, results.unpooled)
    page.text(left, below, f"{results.winners:,} of {width * height:,} pixels won, the rest is 0")
    return page.image


class _Page:
    """The picture during drawing. All images have the size at which the photograph fits into a panel."""

    def __init__(self, width: int, height: int) -> None:
        self.columns = 3 if width < 1.25 * height else 2 if width < 3 * height else 1
        self.panel_width = (_WIDTH - _MARGIN) // self.columns - _MARGIN
        scale = min(self.panel_width / width, _MOST_HEIGHT / height)
        self.size = max(1, round(width * scale)), max(1, round(height * scale))
        page_height = _HEADER + 6 // self.columns * (_TITLE + self.size[1] + _STRIP)
        self.image = Image.new("RGB", (_WIDTH, page_height), _PAPER)
        self.draw = ImageDraw.Draw(self.image)

    def text(self, x: int, y: int, text: str, size: int = _SMALL, colour: str = _INK) -> None:
        self.draw.text((x, y), text, fill=colour, font=ImageFont.load_default(size))

    def corner(self, number: int) -> tuple[int, int]:
        """Left and top of a panel's image."""
        row, column = divmod(number, self.columns)
        return _MARGIN + column * (self.panel_width + _MARGIN), _HEADER + row * (
            _TITLE + self.size[1] + _STRIP
        ) + _TITLE

    def panel(self, number: int, title: str, subtitle: str, pixels: Array) -> tuple[int, int]:
        """Draws a panel, and returns left and top of its strip."""
        left, top = self.corner(number)
        self.text(left, top - _TITLE, title, _MIDDLE)
        self.text(left, top - _TITLE + 32, subtitle, colour=_FAINT)
        self.image.paste(self.with_close_up(Image.fromarray(pixels)), (left, top))
        return left, top + self.size[1] + 14

    def with_close_up(self, image: Image.Image) -> Image.Image:
        """An image scaled to its size on the page, with a part of it enlarged in the corner, and frames around both."""
        width, height = self.size
        resample = Image.Resampling.NEAREST if width >= 2 * image.width else Image.Resampling.LANCZOS
        shown = image.resize(self.size, resample)
        left, top, right, bottom = _CLOSE_UP
        part = left * image.width, top * image.height, right * image.width, bottom * image.height
        inset = round(width * (1 - _CORNER)), round(height * (1 - _CORNER))
        size = width - inset[0], height - inset[1]
        if min(size) > 0:
            shown.paste(image.resize(size, Image.Resampling.NEAREST, part), inset)
        enlarged = round(left * width), round(top * height), round(right * width), round(bottom * height)
        for x0, y0, x1, y1 in enlarged, (*inset, width, height):
            for outset, colour in (3, "black"), (2, "white"), (1, "white"):
                ImageDraw.Draw(shown).rectangle((x0 - outset, y0 - outset, x1 + outset, y1 + outset), outline=colour)
        return shown

    def ring(self, number: int, x: float, y: float, radius: int, colour: str) -> None:
        """Marks a point of a panel's image; x and y are fractions of the image's size."""
        left, top = self.corner(number)
        x, y = left + x * self.size[0], top + y * self.size[1]
        for r, width, outline in (radius + 2, 7, "black"), (radius, 3, colour):
            self.draw.ellipse((x - r, y - r, x + r, y + r), outline=outline, width=width)

    def window(self, left: int, below: int, dilation: int) -> None:
        """Draws a 5 x 5 neighbourhood, and marks the elements of a 3 x 3 window."""
        cells = {2 + dilation * k for k in (-1, 0, 1)}
        for row, column in np.ndindex(5, 5):
            x, y = left + 6 * column, below - 6 + 6 * row
            self.draw.rectangle((x, y, x + 4, y + 4), fill=_INK if {row, column} <= cells else "#d5d9e0")
