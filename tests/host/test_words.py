"""Words that have been given up for the field's own: none of them comes back."""

import re
from pathlib import Path

import pytest

from tests.support.processes import ROOT

# What each was called, as a regular expression, and what it is called now.
GIVEN_UP = {
    r"obstacle|drawback": "why_impossible, why_slow",
    r"granule": "range alignment",
    r"stretch(es)?": "split",
    r"receipts?": "status",
    r"order_?keys?|order keys?": "radix key",
    r"\b(pool|windows|sweep|gather).comp": "pool_direct.comp, pool_small.comp, pool_separable.comp, pool_backward.comp",
    r"record_(words|count|type)|records_(bytes|base)": "state_words, ...",
    # A state is what an accumulator has in registers.
    r"to_states|role\.states|states_(base|before|of)|state_(bytes|count|type)|(leaves?|writes?) states": "partials",
    r"loop_iterations|most_in_place": "invocation_loads, Tiling",
    r"part_(begin|end|size|count)|pool_\w+_parts|parts? of (a |its |the )?windows?": "split",
    r"blocks? of (the |its )?outputs": "region",
    r"line_end": "innermost_end",
    r"sweeps?|swept": "separable pass",
    r"paces?": "seconds per element",
    r"lanes of a vector|lane by lane": "SIMD vector",
    r"lanes? of an item|(most|rows|columns|of_all)_lanes|lanes_apart|lanes\.glsl": "thread, cooperating",
    r"bundles?(_size)?": "item_stride, simd_width",
    r"(load|take|aligned|whole|row|value|index|source|loads)_?blocks?|blocks? of 16 bytes": "vector",
    r"(best|highest)_?chunk|(best|store|most)_?turns?|turn_?size": "group, iteration",
    # Dask itself has `to_dask_array`.
    r"onnx_backend|torch_ops|(?<!to_)dask_(array|cluster)": "interop.onnx, interop.torch, interop.dask",
}


@pytest.mark.parametrize(("given_up", "word"), GIVEN_UP.items(), ids=GIVEN_UP.values())
def test_words_that_were_given_up_are_gone(given_up, word):
    files = [file for folder in ("dmlgpu", "shaders", "tests", "docs") for file in (ROOT / folder).rglob("*.*")]
    files = [file for file in files if file.suffix in (".py", ".md", ".comp", ".glsl", ".cmake")]
    assert len(files) > 100
    found = [
        f"{file}: {line.strip()}"
        for file in files
        if file != Path(__file__)
        for line in file.read_text(encoding="utf-8").splitlines()
        if re.search(rf"(?<![A-Za-z0-9])(?:{given_up})(?![A-Za-z0-9])", line, re.IGNORECASE)  # also between underscores
    ]
    assert found == [], word
