"""docs/compared.md and docs/performance.md have what the tables in docs/performance have."""

import re
import shutil

import pytest

from benchmarks import pages
from benchmarks.results import BenchmarkError
from tests.support.processes import ROOT

PAGES = "docs/compared.md", "docs/performance.md"


@pytest.mark.parametrize("page", PAGES)
def test_pages_have_what_was_measured(page):
    assert pages.written(page, ROOT) == (ROOT / page).read_text(encoding="utf-8"), "run python -m benchmarks pages"


@pytest.fixture
def copied(tmp_path):
    """The pages and the tables that they are made of."""
    shutil.copytree(ROOT / "docs" / "performance", tmp_path / "docs" / "performance")
    for page in PAGES:
        shutil.copy(ROOT / page, tmp_path / page)
    return tmp_path


def set_cells(path, title, row, cells):
    """Writes cells into a row of the table of this title."""
    before, after = path.read_text(encoding="utf-8").split(f"**{title}**\n\n")
    columns = [name.strip() for name in after.splitlines()[0].split("|")]
    line = next(line for line in after.splitlines() if line.startswith(f"| {row} |"))
    new = " | ".join(cells.get(*pair) for pair in zip(columns, map(str.strip, line.split("|")), strict=True))
    path.write_text(f"{before}**{title}**\n\n{after.replace(line, new.strip(), 1)}", encoding="utf-8")


SUM = "sum-4096x1024-last"


@pytest.mark.parametrize(
    ("file", "title", "row", "cells", "expected"),
    [
        ("llvmpipe", "dmlgpu", SUM, {"median": "2 s", "call": "5 s"}, r"\| sum of 4096 .* \| 2 s \| 5 s \|"),
        ("llvmpipe", "dmlgpu", SUM, {"median": "2 s"}, rf"\| {SUM} \| 2 s \|"),
        ("llvmpipe-25", "dmlgpu", SUM, {"median": "2 s"}, rf"\| {SUM} \|[^|]*\|[^|]*\| 2 s \|"),
        ("swiftshader", "dmlgpu", SUM, {"median": "2 s"}, rf"\| {SUM} \|.*\| 2 s \|[^|]*\|$"),
        ("swiftshader", "kernel / other", SUM, {"usual": "7.5"}, rf"\| {SUM} \|.*\| 7.5 \|$"),
        ("llvmpipe", "kernel / other", SUM, {"numpy": "99"}, r"\| sum of 4096 .* \(NumPy\) \| 99 \|"),
        ("llvmpipe", "kernel / other", SUM, {"numpy": "99"}, rf"\| {SUM} \|[^|]*\| 99 \|"),
        (
            "llvmpipe",
            "others",
            SUM,
            {"torch": "9 s ± 1 %", "onnxruntime": "9 s ± 2 %"},
            r"\| sum of 4096 .* \| 9 s \([OP]",
        ),
        ("llvmpipe", "kernel / other", SUM, {"torch": "-", "onnxruntime": "1"}, rf"^\| all else[^|]*\|[^|]*{SUM} 1,"),
        (
            "llvmpipe",
            "kernel / other",
            SUM,
            {"torch": "1.1", "onnxruntime": "0.5"},
            rf"^\| all else[^|]*\|[^|]*\|[^|]*{SUM} ",
        ),
        ("llvmpipe", "kernel / other", SUM, {"torch": "-", "onnxruntime": "-"}, rf"\| all else((?!{SUM} ).)*$"),
        ("scale", "argmax-rows", "2^26", {"to the best": "1.51"}, r"\| argmax-rows \| - \| 2\^16 to 2\^26: 1.0 to "),
        (
            "windows",
            "pool-256x256",
            "2x2",
            {"to the faster": "1.21"},
            r"\| pool-256x256 \| 3x3 to 101x101: .* \| 1x1 to 2x2: 1.21 to ",
        ),
    ],
)
def test_pages_follow_the_tables(copied, file, title, row, cells, expected):
    set_cells(copied / "docs" / "performance" / f"{file}.md", title, row, cells)
    pages.write(copied)
    text = "".join((copied / page).read_text(encoding="utf-8") for page in PAGES)
    assert re.search(expected, text, re.MULTILINE)


def test_a_page_without_a_place_is_named(copied):
    page = copied / "docs/compared.md"
    page.write_text(page.read_text(encoding="utf-8").replace("measured: summary", "measured: sumary"), encoding="utf-8")
    with pytest.raises(BenchmarkError, match=r"^docs/compared\.md has places for sumary; needed are summary$"):
        pages.write(copied)


def test_pictures_are_drawn_of_the_tables(copied):
    set_cells(copied / "docs" / "performance" / "llvmpipe.md", "others", SUM, {"torch": "1.5 µs ± 1 %", "numpy": "-"})
    measured = pages.read(copied / "docs" / "performance" / "llvmpipe.md")
    (found,) = [result for result in pages.case_results(measured) if result.case == SUM]
    assert found.operator == "REDUCE SUM float32 4096x1024 axes 1"
    assert found.timings["torch"].median == pytest.approx(1.5e-6)
    assert "numpy" not in found.timings
    assert {"kernel", "call", "copy", "onnxruntime"} <= set(found.timings)
    names = "llvmpipe", "scale", "windows"
    for name in names:
        (copied / "docs" / "performance" / f"{name}.png").unlink()
    pages.draw(copied)
    assert all((copied / "docs" / "performance" / f"{name}.png").stat().st_size > 100_000 for name in names)


def test_sizes_and_windows_of_the_tables_are_drawn():
    folder = ROOT / "docs" / "performance"
    (size,) = [r for r in pages.scale_results(pages.read(folder / "scale.md")) if r.case == "argmax-rows-2^12"]
    assert (size.elements, size.timings["kernel"].median > 0, "batch" in size.timings) == (4096, True, False)
    assert "pool-256x256-7x7" in [r.case for r in pages.scale_results(pages.read(folder / "windows.md"))]
