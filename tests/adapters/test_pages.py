"""The examples for users of PyTorch run as they stand."""

import pytest

from tests.test_readme import BLOCKS, PYTORCH_PAGE, run

EXAMPLES = [block for block in BLOCKS if block[0] == PYTORCH_PAGE]


def test_page_has_examples():
    assert len(EXAMPLES) == 2


@pytest.mark.parametrize(("page", "line", "block"), EXAMPLES)
def test_example(driver, monkeypatch, page, line, block):
    monkeypatch.setenv("DMLGPU_DEVICE", str(driver.index))
    run(page, line, block)
