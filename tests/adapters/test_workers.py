"""The benchmark of workers measures what it says, and its model is what is fitted."""

import itertools

import numpy as np
import pytest
from PIL import Image

from benchmarks import workers
from benchmarks.workers import Model, Sample

GIB = 1 << 30


def samples(model, *, noise=0.0):
    rng = np.random.default_rng(0)
    return [
        Sample("argmax", chunk, count, GIB // chunk, seconds * (1 + noise * rng.standard_normal()), 0)
        for chunk, count in itertools.product([1 << 18, 1 << 20, 1 << 24, 1 << 28], [1, 2])
        for seconds in [model.seconds(GIB // chunk, GIB, count)]
    ]


@pytest.mark.parametrize("model", [Model(0.1, 1e-3, 3e-3, 2e-9), Model(0, 2e-3, 0, 1e-9)])
def test_fit_finds_the_model(model):
    found = workers.fit(samples(model), GIB)
    assert [*vars(found).values()] == pytest.approx([*vars(model).values()], rel=1e-6, abs=1e-12)
    noisy = workers.fit(samples(model, noise=0.05), GIB)
    assert noisy.seconds(64, GIB, 2) == pytest.approx(model.seconds(64, GIB, 2), rel=0.1)
    assert min(vars(noisy).values()) >= 0


def test_model():
    assert Model(1, 2, 3, 4).seconds(chunks=10, size=100, workers=5) == 1 + 20 + (30 + 400) / 5


def test_run(tmp_path, monkeypatch, driver):
    monkeypatch.setenv("DMLGPU_DEVICE", str(driver.index))
    file, plot, markdown = tmp_path / "x.bin", tmp_path / "plot.png", tmp_path / "x.md"
    options = ["--gib", "0.004", "--chunk-mib", "1", "3", "--workers", "1", "--rounds", "2"]
    assert workers.main([str(file), *options, "--plot", str(plot), "--markdown", str(markdown)]) == 0
    assert file.stat().st_size == int(0.004 * GIB) // (4 * workers.WIDTH) * 4 * workers.WIDTH
    text = markdown.read_text()
    assert driver.name in text
    tables = text.split("**")[1::2]
    assert tables == [*workers.CASES, "memory"]
    for case in workers.CASES:
        of_case = text.split(f"**{case}**")[1].split("**")[0]
        assert "| 1 MiB | 5 |" in of_case
        assert "| 3 MiB | 2 |" in of_case
    with Image.open(plot) as image:
        assert image.size[0] > 1000


def test_cases_give_what_numpy_gives(tmp_path, monkeypatch, driver):
    monkeypatch.setenv("DMLGPU_DEVICE", str(driver.index))
    file = tmp_path / "x.bin"
    workers.make(file, 0.001)
    x = np.fromfile(file, np.float32).reshape(-1, workers.WIDTH)
    array = workers.array(file, 5 * 4 * workers.WIDTH)
    assert array.chunks[0] == (5,) * (len(x) // 5) + ((len(x) % 5,) if len(x) % 5 else ())
    np.testing.assert_array_equal(array.compute(scheduler="synchronous"), x)
    pooled = x[: (len(x) - 3) // 2 * 2 + 3, :-1].max()
    assert [case(array).compute(scheduler="synchronous") for case in workers.CASES.values()] == [
        x.argmax(),
        pooled,
        x.argmax(),
    ]
