"""No file has a former word of the project that a word of the field has replaced."""

import re
from pathlib import Path

import pytest

from tests.support.processes import ROOT

# Former words, as regular expressions, with their replacements.
FORMER = {
    r"obstacle|drawback": "why_impossible, why_slow",
    r"granule": "range alignment",
    r"stretch(es)?": "split",
    r"receipts?": "status",
    r"order_?keys?|order keys?": "radix key",
    r"\b(pool|windows|sweep|gather).comp": "pool_direct.comp, pool_small.comp, pool_separable.comp, pool_backward.comp",
    r"record_(words|count|type)|records_(bytes|base)": "state_words, ...",
    # A state is in the registers of an accumulator.
    r"to_states|role\.states|states_(base|before|of)|state_(bytes|count|type)|(leaves?|writes?) states": "partials",
    r"loop_iterations": "invocation_loads",
    r"(\w+_)?in_place": "without_partials, OUTPUTS_ONLY",
    r"stacks?_of|stacks? of (parts|the same)": "range of outputs",
    r"plan\.mapping": "kernel_choice",
    r"\w*intermediates?(_bytes)?|scratch( memory|_\w+)": "temporary, workspace",
    r"take_(aligned_)?(columns|elements?|row|span|vectors?|window)|given_index": "accumulate_element, index_of_words",
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


@pytest.mark.parametrize(("former", "word"), FORMER.items(), ids=FORMER.values())
def test_former_words_are_gone(former, word):
    files = [file for folder in ("dmlgpu", "shaders", "tests", "docs") for file in (ROOT / folder).rglob("*.*")]
    files = [file for file in files if file.suffix in (".py", ".md", ".comp", ".glsl", ".cmake")]
    assert len(files) > 100
    lines = [
        f"{file}: {line.strip()}"
        for file in files
        if file != Path(__file__)
        for line in file.read_text(encoding="utf-8").splitlines()
        if re.search(rf"(?<![A-Za-z0-9])(?:{former})(?![A-Za-z0-9])", line, re.IGNORECASE)  # also between underscores
    ]
    assert lines == [], word
