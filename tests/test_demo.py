import re
import sys

import numpy as np
import pytest
from PIL import Image

from dmlgpu.reference import reference
from dmlgpu.tools import demo
from dmlgpu.tools.cli import main
from tests.test_cli import hide

OPERATORS = ["ARGMIN", "MAX_POOLING2", "MAX_POOLING2 dilated", "ARGMAX"]


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(demo, "RUNS", 1)
    monkeypatch.setenv("COLUMNS", "120")


@pytest.fixture
def save(tmp_path):
    """Saves an image; its path."""

    def saved(image, name="photo.png", **options):
        image.save(tmp_path / name, **options)
        return str(tmp_path / name)

    return saved


@pytest.fixture
def run(driver, tmp_path, capsys):
    """Runs `dmlgpu demo`: its exit code, the picture, what it printed and its errors."""

    def ran(*argv):
        output = tmp_path / "made.png"
        code = main(["demo", "--device", str(driver.index), "--output", str(output), *argv])
        if not output.exists():
            return code, None, *capsys.readouterr()
        with Image.open(output) as picture:
            assert picture.format == "PNG"
            return code, picture.convert("RGB"), *capsys.readouterr()

    return ran


def noise(height, width):
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)


# Reading photographs


def test_the_sample_is_a_colour_photograph():
    photo = demo.load_photograph(None)
    assert (photo.shape, photo.dtype) == ((600, 512, 3), np.uint8)
    assert len(np.unique(photo.reshape(-1, 3), axis=0)) > 10_000


def test_a_colour_image_is_read_as_it_is(save):
    pixels = noise(7, 5)
    assert np.array_equal(demo.load_photograph(save(Image.fromarray(pixels))), pixels)


@pytest.mark.parametrize("mode", ["1", "L", "P", "CMYK"])
def test_other_modes_become_colour(mode, save):
    photo = demo.load_photograph(save(Image.fromarray(noise(9, 8)).convert(mode), "photo.tiff"))
    assert (photo.shape, photo.dtype) == ((9, 8, 3), np.uint8)


def test_transparent_pixels_become_white(save):
    pixels = np.zeros((1, 2, 4), np.uint8)
    pixels[0, 1, 3] = 255
    assert demo.load_photograph(save(Image.fromarray(pixels))).tolist() == [[[255] * 3, [0] * 3]]


@pytest.mark.parametrize(("dtype", "name"), [(np.uint16, "photo.png"), (np.float32, "photo.tiff")])
def test_deep_grey_spreads_over_eight_bits(dtype, name, save):
    grey = np.array([[1000, 1500, 2000]], dtype)
    photo = demo.load_photograph(save(Image.fromarray(grey), name))
    assert photo[0, :, 0].tolist() == [0, 127, 255]


def test_large_images_are_scaled_down(save):
    assert demo.load_photograph(save(Image.new("RGB", (3000, 1500)))).shape == (512, 1024, 3)
    assert demo.load_photograph(save(Image.new("RGB", (1, 3000)))).shape == (1024, 1, 3)


def test_the_camera_may_have_been_turned(save):
    turned = Image.Exif()
    turned[0x0112] = 6
    assert demo.load_photograph(save(Image.new("RGB", (30, 20)), "photo.jpg", exif=turned)).shape == (30, 20, 3)


# The operators


def test_results_are_what_numpy_makes_of_a_photograph(device):
    photo = noise(41, 30)
    results = demo.run(device, photo)
    assert [m.operator for m in results.measurements] == OPERATORS
    assert all(m.exact and min(m.device_time, m.end_to_end_time, m.numpy_time) > 0 for m in results.measurements)

    assert len(results.palette) == 12
    distances = ((photo[:, :, None].astype(int) - results.palette) ** 2).sum(3)
    assert np.array_equal(results.posterised, results.palette[distances.argmin(2)])

    for pooled, dilation in (results.pooled, 1), (results.dilated, 2):
        padded = np.pad(photo, ((dilation,) * 2, (dilation,) * 2, (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (2 * dilation + 1,) * 2, (0, 1))
        expected = windows[::2, ::2, :, ::dilation, ::dilation].max((3, 4))
        assert np.array_equal(pooled, expected)

    won = results.put_back != 0
    assert np.array_equal(results.put_back[won], photo[won])
    assert set(results.put_back[won]) | {0} == set(results.pooled.flat) | {0}
    assert np.count_nonzero(won.any(2)) <= results.winners < photo.shape[0] * photo.shape[1]

    assert results.brightest == tuple(divmod(int(photo[..., c].argmax()), 30) for c in range(3))


@pytest.mark.parametrize(("height", "width"), [(1, 1), (2, 2), (1, 300), (300, 1), (3, 4)])
def test_any_size_can_be_run_and_drawn(height, width, device):
    results = demo.run(device, noise(height, width))
    assert all(m.exact for m in results.measurements)
    assert results.put_back.shape == (height, width, 3)
    assert demo.draw(results, device.info).width == demo.draw(results, device.info).size[0] > 1000


def test_one_colour_is_a_palette_of_one(device):
    results = demo.run(device, np.full((5, 6, 3), 77, np.uint8))
    assert results.palette.tolist() == [[77, 77, 77]]
    assert np.all(results.posterised == 77)
    assert results.brightest == ((0, 0),) * 3


def test_wrong_indices_are_drawn_too(device, monkeypatch):
    measure = demo._measure

    def wrong(*arguments):
        outputs, measurement = measure(*arguments)
        return (*outputs[:-1], outputs[-1] + np.uint32(1 << 31)), measurement

    monkeypatch.setattr(demo, "_measure", wrong)
    assert demo.draw(demo.run(device, noise(20, 10)), device.info)


# The command


def test_demo_on_the_sample_photograph(run, driver):
    code, picture, output, error = run()
    assert (code, error) == (0, "")
    assert output.startswith(f"device {driver.index}: {driver.name} ({driver.type}), driver {driver.driver}\n")
    for operator, tensor in [
        ("ARGMIN", "float32 600x512x12"),
        ("MAX_POOLING2", "float32 1x3x600x512"),
        ("MAX_POOLING2", "uint8 1x3x600x512"),
        ("ARGMAX", "uint8 1x3x600x512"),
    ]:
        assert re.search(rf"{operator} +{tensor}( +\d+\.\d\d){{3}} +exact", output)
    assert "-> uint32 1x3x300x256" in output
    assert "Medians of 1 runs." in output
    assert "NumPy oracle: dmlgpu.reference" in output
    # Six panels in two rows, and something in each.
    assert picture.size == (1296, 1256)
    for row in range(2):
        for column in range(3):
            left, top = 36 + 420 * column, 164 + 578 * row
            panel = np.asarray(picture.crop((left, top, left + 384, top + 450)))
            assert len(np.unique(panel.reshape(-1, 3), axis=0)) >= 12


@pytest.mark.parametrize("image", [Image.new("RGB", (1, 1)), Image.new("L", (33, 20), 9), Image.new("RGBA", (64, 48))])
def test_demo_on_other_images(image, run, save):
    code, picture, output, error = run("--image", save(image))
    assert (code, error) == (0, "")
    assert picture.width == 1296
    assert output.count(" exact") == 4


def test_demo_exits_with_1_where_a_result_differs(run, save, monkeypatch):
    def wrong_maxima(desc, *inputs):
        outputs = reference(desc, *inputs)
        return tuple(y + 1 for y in outputs) if type(desc).__name__ == "ArgmaxOperatorDesc" else outputs

    monkeypatch.setattr(demo, "reference", wrong_maxima)
    code, picture, output, error = run("--image", save(Image.new("RGB", (16, 16))))
    assert (code, error) == (1, "dmlgpu: a result differs from the oracle\n")
    assert output.count(" exact") == 3
    assert re.search("ARGMAX .* DIFFERENT", output)
    assert picture is not None


def test_another_type_of_output_differs_too(device, monkeypatch):
    monkeypatch.setattr(demo, "reference", lambda desc, x: tuple(y.astype(np.float64) for y in reference(desc, x)))
    assert not any(m.exact for m in demo.run(device, noise(4, 4)).measurements)


def test_results_agree_as_those_of_verify_do(device, monkeypatch):
    monkeypatch.setattr("dmlgpu.comparison.bits", np.zeros_like)
    monkeypatch.setattr(demo, "reference", lambda desc, x: tuple(y + 1 for y in reference(desc, x)))
    assert all(m.exact for m in demo.run(device, noise(4, 4)).measurements)


def test_demo_checks_itself_where_the_environment_says_so(run, save, monkeypatch):
    monkeypatch.setenv("DMLGPU_VERIFY", "1")
    monkeypatch.setattr("dmlgpu.comparison.reference", lambda desc, x: tuple(y + 1 for y in reference(desc, x)))
    code, _, _, error = run("--image", save(Image.new("RGB", (16, 16))))
    assert code == 1
    assert error.startswith("dmlgpu: ArgminOperatorDesc.output_tensor: ")


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("made.jpg", "JPEG"),
        ("made.jpeg", "JPEG"),
        ("made.webp", "WEBP"),
        ("made.bmp", "BMP"),
        ("made.tif", "TIFF"),
        ("made.TIFF", "TIFF"),
        ("made.jpg.Png", "PNG"),
    ],
)
def test_demo_writes_what_the_suffix_says(save, tmp_path, name, written):
    photo, output = save(Image.new("RGB", (16, 16))), tmp_path / name
    assert main(["demo", "--image", photo, "--output", str(output)]) == 0
    with Image.open(output) as picture:
        assert (picture.format, picture.width) == (written, 1296)


@pytest.mark.parametrize("name", ["made", "made.", "made.of-things", ".png", "made.pdf", "png"])
def test_demo_refuses_other_suffixes_before_it_computes(save, tmp_path, monkeypatch, capsys, name):
    monkeypatch.setattr("dmlgpu.tools.cli.Device", lambda wanted: pytest.fail("it opens a device"))
    assert main(["demo", "--image", save(Image.new("RGB", (16, 16))), "--output", str(tmp_path / name)]) == 2
    assert capsys.readouterr() == (
        "",
        f"dmlgpu: {tmp_path / name}: give the picture the suffix of its format: "
        ".png, .jpg, .jpeg, .webp, .bmp, .tif, .tiff\n",
    )
    assert [path.name for path in tmp_path.iterdir()] == ["photo.png"]


# Errors


@pytest.mark.parametrize(
    ("content", "text"),
    [(None, "No such file or directory"), (b"", "cannot identify image file"), (b"text", "cannot identify image file")],
)
def test_images_that_cannot_be_read(content, text, tmp_path, capsys):
    path = tmp_path / "photo.png"
    if content is not None:
        path.write_bytes(content)
    assert main(["demo", "--image", str(path)]) == 2
    error = capsys.readouterr().err
    assert re.fullmatch(rf"dmlgpu: cannot read image {re.escape(str(path))}: .*{text}.*\n", error)


def test_an_image_that_ends_early(save, capsys):
    path = save(Image.fromarray(noise(100, 100)))
    with open(path, "r+b") as file:
        file.truncate(10_000)
    assert main(["demo", "--image", path]) == 2
    assert capsys.readouterr().err == f"dmlgpu: cannot read image {path}: image file is truncated\n"


def test_an_image_too_large_to_trust(save, monkeypatch, capsys):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    path = save(Image.new("RGB", (100, 100)))
    assert main(["demo", "--image", path]) == 2
    assert capsys.readouterr().err.startswith(f"dmlgpu: cannot read image {path}: Image size (10000 pixels) exceeds")


@pytest.mark.filterwarnings("default")
def test_an_image_that_pillow_only_warns_of(save, monkeypatch, capsys):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 9_000)
    path = save(Image.new("RGB", (100, 100)))
    assert main(["demo", "--image", path]) == 2
    assert capsys.readouterr().err.startswith(f"dmlgpu: cannot read image {path}: Image size (10000 pixels) exceeds")


def test_a_file_too_large_to_read(save, capsys):
    path = save(Image.new("RGB", (4, 4)))
    with open(path, "r+b") as file:
        file.truncate((512 << 20) + 1)
    assert main(["demo", "--image", path]) == 2
    assert capsys.readouterr().err == f"dmlgpu: cannot read image {path}: it has more than 512 MiB\n"


def test_a_format_for_which_pillow_runs_another_program(tmp_path, capsys):
    path = tmp_path / "photo.eps"
    Image.new("RGB", (4, 4)).save(path, "EPS")
    assert main(["demo", "--image", str(path)]) == 2
    assert capsys.readouterr().err == f"dmlgpu: cannot read image {path}: cannot identify image file '{path}'\n"


def test_a_folder_that_does_not_exist(driver, save, tmp_path, capsys):
    photo, output = save(Image.new("RGB", (4, 4))), tmp_path / "nowhere" / "made.png"
    assert main(["demo", "--device", str(driver.index), "--image", photo, "--output", str(output)]) == 2
    assert capsys.readouterr().err == f"dmlgpu: [Errno 2] No such file or directory: '{output}'\n"


def test_without_pillow_it_names_the_extra(monkeypatch, capsys):
    hide(monkeypatch, "PIL")
    monkeypatch.delitem(sys.modules, "dmlgpu.tools.demo")
    monkeypatch.delattr("dmlgpu.tools.demo")
    assert main(["demo"]) == 2
    assert capsys.readouterr().err == "dmlgpu: PIL is not installed: pip install dmlgpu[demo]\n"


def test_without_matplotlib_there_is_no_sample(monkeypatch, capsys):
    hide(monkeypatch, "matplotlib")
    assert main(["demo"]) == 2
    assert capsys.readouterr().err == "dmlgpu: matplotlib is not installed: pip install dmlgpu[demo]\n"
