import io
import os
import re
import sys

import numpy as np
import pytest
from PIL import Image, ImageFont

from dmlgpu.reference import reference
from dmlgpu.tools import demo
from dmlgpu.tools.cli import main
from tests.support.processes import hide

# The operators in the order of the table, with the first input for the sample photograph.
OPERATORS = {
    "ARGMAX": "uint8 1x3x600x512",
    "ARGMIN": "float32 600x512x12",
    "MAX_POOLING2": "float32 1x3x600x512",
    "MAX_UNPOOLING": "float32 1x3x300x256",
    "AVERAGE_POOLING1": "float32 1x3x600x512",
    "MAX_POOLING2 dilated": "uint8 1x3x600x512",
}


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(demo, "RUNS", 1)
    monkeypatch.setenv("COLUMNS", "120")


@pytest.fixture
def save(tmp_path):
    """Saves an image; returns its path."""

    def save_image(image, name="photo.png", **options):
        image.save(tmp_path / name, **options)
        return str(tmp_path / name)

    return save_image


def wrong_oracle(operator):
    """An oracle whose results of an operator are too large by 1."""

    def wrong(desc, *inputs):
        outputs = reference(desc, *inputs)
        return tuple(y + 1 for y in outputs) if type(desc).__name__.startswith(operator) else outputs

    return wrong


def noise(height, width):
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)


def test_the_sample_is_a_colour_photograph():
    photo = demo.load_photograph(None)
    assert (photo.shape, photo.dtype) == ((600, 512, 3), np.uint8)
    assert len(np.unique(photo.reshape(-1, 3), axis=0)) > 10_000


TURNED = Image.Exif()
TURNED[0x0112] = 6  # a camera that was turned
GREY = [[1000, 1500, 2000]]


@pytest.mark.parametrize(
    ("image", "name", "options", "expected"),
    [
        (Image.fromarray(noise(7, 5)), "photo.png", {}, noise(7, 5).tolist()),
        *((Image.fromarray(noise(9, 8)).convert(mode), "photo.tiff", {}, (9, 8)) for mode in ("1", "L", "P", "CMYK")),
        # Transparent pixels become white, and deep grey spreads over eight bits.
        (Image.fromarray(np.uint8([[[0, 0, 0, 0], [0, 0, 0, 255]]])), "photo.png", {}, [[[255] * 3, [0] * 3]]),
        (Image.fromarray(np.uint16(GREY)), "photo.png", {}, [[[0] * 3, [127] * 3, [255] * 3]]),
        (Image.fromarray(np.float32(GREY)), "photo.tiff", {}, [[[0] * 3, [127] * 3, [255] * 3]]),
        # Large images are scaled down.
        (Image.new("RGB", (3000, 1500)), "photo.png", {}, (512, 1024)),
        (Image.new("RGB", (1, 3000)), "photo.png", {}, (1024, 1)),
        (Image.new("RGB", (30, 20)), "photo.jpg", {"exif": TURNED}, (30, 20)),
    ],
)
def test_any_image_becomes_a_colour_photograph(save, image, name, options, expected):
    photo = demo.load_photograph(save(image, name, **options))
    assert photo.dtype == np.uint8
    assert photo.tolist() == expected if isinstance(expected, list) else photo.shape == (*expected, 3)


def test_results_equal_those_of_numpy(device):
    photo = noise(41, 30)
    results = demo.run(device, photo)
    assert [m.operator for m in results.measurements] == [*OPERATORS]
    assert all(m.agrees and min(m.kernel_time, m.call_time) > 0 for m in results.measurements)
    # 41 x 30 x 3 bytes in words, and three indices.
    argmax = results.measurements[0]
    assert argmax.bandwidth * argmax.kernel_time == pytest.approx(3692 + 12)

    assert len(results.palette) == 12
    distances = ((photo[:, :, None].astype(int) - results.palette) ** 2).sum(3)
    assert np.array_equal(results.posterised, results.palette[distances.argmin(2)])

    def windows(dilation):
        padded = np.pad(photo.astype(float), ((dilation,) * 2, (dilation,) * 2, (0, 0)), constant_values=np.nan)
        covered = np.lib.stride_tricks.sliding_window_view(padded, (2 * dilation + 1,) * 2, (0, 1))
        return covered[::2, ::2, :, ::dilation, ::dilation]

    assert np.array_equal(results.max_pooled, np.nanmax(windows(1), (3, 4)))
    assert np.array_equal(results.dilated, np.nanmax(windows(2), (3, 4)))
    # The device and NumPy may round an average between two integers to either.
    assert np.abs(results.average_pooled - np.nanmean(windows(1), (3, 4))).max() < 0.501

    maxima = results.unpooled != 0
    assert np.array_equal(results.unpooled[maxima], photo[maxima])
    assert set(results.unpooled[maxima]) | {0} == set(results.max_pooled.flat) | {0}
    assert np.count_nonzero(maxima.any(2)) <= results.winners < photo.shape[0] * photo.shape[1]

    assert results.brightest == tuple(divmod(int(photo[..., c].argmax()), 30) for c in range(3))


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 300), (300, 1), (3, 4)])
def test_any_size_can_be_run_and_drawn(height, width, device):
    """The photograph has one colour."""
    results = demo.run(device, np.full((height, width, 3), 77, np.uint8))
    assert all(m.agrees for m in results.measurements)
    assert results.unpooled.shape == (height, width, 3)
    assert results.palette.tolist() == [[77, 77, 77]]
    assert np.all(results.posterised == 77)
    assert results.brightest == ((0, 0),) * 3
    assert demo.draw(results, device.info).width == 1296


@pytest.mark.parametrize("wrong", [np.float32(3e38), np.float32(np.nan)])
def test_wrong_results_are_drawn_too(wrong, device, monkeypatch):
    measure = demo._measure

    def wrong_measure(*arguments):
        outputs, measurement = measure(*arguments)
        return tuple(y + np.uint32(1 << 31) if y.dtype == np.uint32 else y * 0 + wrong for y in outputs), measurement

    monkeypatch.setattr(demo, "_measure", wrong_measure)
    assert demo.draw(demo.run(device, noise(20, 10)), device.info)


def test_an_unpooling_that_differs_is_found(device, monkeypatch):
    monkeypatch.setattr(demo, "reference", wrong_oracle("MaxUnpooling"))
    measurements = demo.run(device, noise(9, 9)).measurements
    assert [m.operator for m in measurements if not m.agrees] == ["MAX_UNPOOLING"]


def test_outputs_of_another_type_differ(device, monkeypatch):
    monkeypatch.setattr(demo, "reference", lambda *call: tuple(y.astype(np.float64) for y in reference(*call)))
    assert not any(m.agrees for m in demo.run(device, noise(4, 4)).measurements)


@pytest.fixture
def results():
    """Results with the longest texts, of a large black photograph."""
    photo, pooled = np.zeros((1024, 1024, 3), np.uint8), np.zeros((512, 512, 3), np.uint8)
    palette = np.zeros((12, 3), np.uint8)
    return demo.Results(
        photo, palette, photo, pooled, pooled, pooled, photo, 1_000_000, brightest=((1000, 1000),) * 3, measurements=()
    )


def test_texts_do_not_overlap(results, driver, monkeypatch):
    texts = []

    def note(page, x, y, text, size=demo._SMALL, colour=None):
        texts.append((x, y, x + ImageFont.load_default(size).getlength(text), text))

    monkeypatch.setattr(demo._Page, "text", note)
    picture = demo.draw(results, driver)
    # Two texts of the page, two of each panel, three positions and four lines below them.
    assert len(texts) == 2 + 6 * 2 + 3 + 4
    for x, y, end, text in texts:
        next_text = min((begin for begin, line, _, _ in texts if line == y and begin > x), default=1270)
        assert end + 12 < next_text, text
    assert picture.width == 1296


def test_the_demo_prints_a_table_and_draws_six_panels(driver, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--device", str(driver.index)]) == 0
    output, error = capsys.readouterr()
    assert error == ""
    assert output.startswith(f"device {driver.index}: {driver.name} ({driver.type}), driver {driver.driver}\n")
    for operator, tensor in OPERATORS.items():
        result = "in bound" if operator.startswith("AVERAGE") else "exact"
        name = operator.partition(" ")[0]
        assert re.search(rf"^ *{name} +{tensor}( +\d+\.\d\d){{3}} +{result} *$", output, re.MULTILINE)
    assert "-> uint32 1x3x300x256" in output
    assert "Medians of 1 runs." in output
    assert "compared with the NumPy oracle's" in output.replace("\n", " ").replace("  ", " ")
    # Each of the six panels shows something.
    picture = Image.open("demo.png").convert("RGB")
    assert picture.size == (1296, 1284)
    for row in range(2):
        for column in range(3):
            left, top = 36 + 420 * column, 182 + 588 * row
            panel = np.asarray(picture.crop((left, top, left + 384, top + 450)))
            assert len(np.unique(panel.reshape(-1, 3), axis=0)) >= 12


def test_demo_exits_with_1_if_a_result_differs(save, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo, "reference", wrong_oracle("Argmax"))
    photo, picture = save(Image.new("RGB", (16, 16))), tmp_path / "demo.png"
    assert main(["demo", "--image", photo, "--output", str(picture)]) == 1
    output, error = capsys.readouterr()
    assert error == "dmlgpu: a result differs from the oracle\n"
    assert (output.count(" exact"), output.count(" in bound")) == (4, 1)
    assert re.search("ARGMAX .* DIFFERENT", output)
    assert picture.exists()


@pytest.mark.parametrize(
    ("name", "file_format"),
    [("made.jpg", "JPEG"), ("made.webp", "WEBP"), ("made.bmp", "BMP"), ("made.TIFF", "TIFF"), ("made.jpg.Png", "PNG")],
)
def test_the_suffix_chooses_the_format(save, tmp_path, name, file_format):
    photo, output = save(Image.new("RGB", (16, 16))), tmp_path / name
    assert main(["demo", "--image", photo, "--output", str(output)]) == 0
    with Image.open(output) as picture:
        assert (picture.format, picture.width) == (file_format, 1296)


@pytest.mark.parametrize("name", ["made", ".png", "made.pdf"])
def test_demo_refuses_other_suffixes_before_it_computes(save, tmp_path, monkeypatch, capsys, name):
    monkeypatch.setattr("dmlgpu.tools.cli.Device", lambda selector: pytest.fail("it opens a device"))
    assert main(["demo", "--image", save(Image.new("RGB", (16, 16))), "--output", str(tmp_path / name)]) == 2
    assert capsys.readouterr() == (
        "",
        f"dmlgpu: {tmp_path / name}: give the picture the suffix of its format: "
        ".png, .jpg, .jpeg, .webp, .bmp, .tif, .tiff\n",
    )
    assert [path.name for path in tmp_path.iterdir()] == ["photo.png"]


def encoded(image, file_format="PNG"):
    file = io.BytesIO()
    image.save(file, file_format)
    return file.getvalue()


UNREADABLE = {
    "missing": (None, ".*No such file or directory.*"),
    "empty": (b"", "cannot identify image file.*"),
    "ends early": (encoded(Image.fromarray(noise(100, 100)))[:10_000], "image file is truncated.*"),
    # Pillow starts another program for this format.
    "a program": (encoded(Image.new("RGB", (4, 4)), "EPS"), "cannot identify image file.*"),
    # Up to twice its limit, Pillow only warns.
    "many pixels": (encoded(Image.new("RGB", (100, 100))), r"Image size \(10000 pixels\) exceeds.*"),
    "too many pixels": (encoded(Image.new("RGB", (1000, 10))), r"Image size \(10000 pixels\) exceeds.*"),
    "too many bytes": (encoded(Image.new("RGB", (4, 4))), "it has more than 512 MiB"),
}


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("content", "text"), UNREADABLE.values(), ids=UNREADABLE)
def test_images_that_cannot_be_read_are_refused(content, text, tmp_path, monkeypatch, capsys, request):
    path, name = tmp_path / "photo.png", request.node.callspec.id
    if content is not None:
        path.write_bytes(content)
    if "pixels" in name:
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100 if "too" in name else 9_000)
    elif "bytes" in name:
        os.truncate(path, (512 << 20) + 1)
    assert main(["demo", "--image", str(path)]) == 2
    assert re.fullmatch(rf"dmlgpu: cannot read image {re.escape(str(path))}: {text}\n", capsys.readouterr().err)


def test_a_missing_folder_or_pillow_is_named(save, tmp_path, monkeypatch, capsys):
    photo, output = save(Image.new("RGB", (4, 4))), tmp_path / "nowhere" / "made.png"
    assert main(["demo", "--image", photo, "--output", str(output)]) == 2
    assert capsys.readouterr().err == f"dmlgpu: [Errno 2] No such file or directory: {str(output)!r}\n"
    hide(monkeypatch, "PIL")
    monkeypatch.delitem(sys.modules, "dmlgpu.tools.demo")
    monkeypatch.delattr("dmlgpu.tools.demo")
    assert main(["demo"]) == 2
    assert capsys.readouterr().err == "dmlgpu: PIL is not installed: pip install dmlgpu[demo]\n"
