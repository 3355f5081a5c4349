"""The tables of speed in docs have the cases and columns of the command line."""

import re
from pathlib import Path

import pytest

from benchmarks.cases import CASES
from benchmarks.report import DASH
from benchmarks.results import BATCH, CALL, FIRST_CALL, KERNEL, OTHERS, in_batches
from tests.support.processes import ROOT

# Cases with separate pages.
TOP_K = [case for case in CASES if case.id.startswith("top-k-")]
CUMULATIVE = [case for case in CASES if case.id.startswith("cumulative-")]
# The rows of docs/compared.md, with patterns that match the names of their cases.
SUMMARY = {
    "argmax over one axis": r"argmax-(4096x1024-(last|first)|segmentation|2\^20x8|8x2\^20|65536x33)",
    "argmax of all elements": "argmax-4096x1024-all",
    "argmax of 129,280 elements": "argmax-vocabulary",
    "sum, maximum, average": "(sum|max|average)-4096.*",
    "log-sum-exp": "log-sum-exp-.*",
    "max pooling with indices": "pool-(resnet|2x2|dilated|3d)-indices",
    "max pooling": "pool-(resnet|2x2|dilated|3d)",
    "global max pooling": "pool-global.*",
    "average pooling": "average-pool-resnet",
    "Lp pooling": "lp-pool-resnet",
    "gradients of pooling": ".*-grad-.*",
    "unpooling": "unpool-2x2",
}


def table(page: Path, first: str) -> tuple[list[str], dict[str, dict[str, str]]]:
    """The columns and the rows of the table whose first column has this name."""
    lines = page.read_text(encoding="utf-8").split(f"| {first} |", 1)[1].split("\n\n")[0].splitlines()
    columns, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return columns, {name: dict(zip(columns, cells, strict=True)) for name, *cells in rows}


@pytest.mark.parametrize("driver", ["llvmpipe-25", "llvmpipe", "swiftshader"])
def test_tables_of_drivers_have_every_case_and_all_columns(driver):
    columns, rows = table(ROOT / "docs" / "performance" / f"{driver}.md", "case")
    others = [name for other in OTHERS for name in (other, in_batches(other)) if name in columns]
    assert columns == [KERNEL, "spread", "GB/s", CALL, FIRST_CALL, BATCH, *others]
    assert list(rows) == [case.id for case in CASES if case not in (*TOP_K, *CUMULATIVE)]


@pytest.mark.parametrize(("page", "cases"), [("top-k", TOP_K), ("cumulative", CUMULATIVE)])
def test_tables_of_operators_have_their_cases(page, cases):
    assert list(table(ROOT / "docs" / "performance" / f"{page}.md", "case")[1]) == [case.id for case in cases]


def test_compared_summarizes_the_table_of_the_reference():
    _, rows = table(ROOT / "docs" / "performance" / "llvmpipe-25.md", "case")
    libraries = "numpy", "torch", "onnxruntime"
    expected = {}
    for text, cases in SUMMARY.items():
        ratios = [
            max(float(row[name]) for name in libraries if row[name] != DASH)
            for case, row in rows.items()
            if re.fullmatch(cases, case)
        ]
        expected[text] = {"least ratio": f"{min(ratios):.2g}", "largest ratio": f"{max(ratios):.2g}"}
    assert table(ROOT / "docs" / "compared.md", "cases")[1] == expected
