"""`python -m benchmarks --compiled`: kernels compiled for GPUs that the machine lacks."""

import dataclasses
import functools
import itertools
import re

import pytest

from benchmarks import cli, compiled
from benchmarks.assembly import loads_in_flight
from benchmarks.cases import CASES
from benchmarks.results import BenchmarkError
from dmlgpu.lowering.lower import lower
from dmlgpu.testing import cases
from tests.support.drivers import set_drivers
from tests.support.plans import chosen

BENCHMARKS = {case.id for case in CASES}
# Families of GCN 4, RDNA 2 and RDNA 3.
FAMILIES = ("polaris10", "navi21", "gfx1100")
# Prefixes of the names of modules that are bound by memory. Two others are bound by computation:
# pool_small_selection_32, which has the three vectors of an input row in flight, and LOG_SUM_EXP of 16 bits, which has
# 200 instructions for each load.
STREAMING = (
    *(f"{kernel}_selection" for kernel in ("rows_cooperating", "columns_cooperating", "combine")),
    *(f"{kernel}_sum" for kernel in ("rows_cooperating", "columns_cooperating", "combine")),
    *(f"{kernel}_cooperating_logsumexp_32" for kernel in ("rows", "columns")),
    *("pool_small_selection_8", "pool_small_selection_16", "pool_small_sum_32"),
)


def planned():
    """The modules of all plans, with their cases."""
    kernels = {}
    for case in CASES:
        for dispatch in lower(case.desc, compiled.limits()).dispatches:
            kernels.setdefault(dispatch.shader, {})[case.id] = None
    return sorted((kernel.module, list(cases)) for kernel, cases in kernels.items())


def test_every_kernel_is_in_the_table(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    kernels = kernels_of("navi21")
    assert sorted((row.kernel, row.cases) for row in kernels) == planned()
    assert cli.main(["--compiled"]) == 0
    printed = capsys.readouterr().out
    assert "RADV NAVI21" in printed
    rows = [line.split() for line in printed.splitlines() if re.match(r" \w+_(8|16|32|64) ", line)]
    assert rows == [[row.kernel, *map(str, row.numbers.values()), row.cases[0]] for row in kernels]


def test_numbers_are_plausible_for_the_family():
    for numbers in (row.numbers for row in kernels_of("navi21")):
        # RDNA 2 has 1024 registers of 32 lanes for each SIMD, at most 16 waves, and always 128 SGPRs.
        assert 1 <= numbers["waves"] <= min(16, 512 // numbers["VGPRs"])
        assert numbers["SGPRs"] == 128
        assert 0 < numbers["instructions"] < numbers["latency"]


@functools.cache
def kernels_of(family):
    """The kernels of the benchmarks; for the family with the fewest registers, every module with every type."""
    others = [*chosen("CPU"), *chosen("GPU")] if family == "gfx1100" else []
    sources = compiled.sources([*CASES, *others])
    _, kernels = compiled.compile_for(family, sources)
    assert len(kernels) == len(sources)
    return kernels


@pytest.mark.parametrize("family", FAMILIES)
def test_no_kernel_of_any_case_spills(family):
    assert [kernel for kernel in kernels_of(family) if kernel.numbers["spilt"] or kernel.numbers["scratch"]] == []


@pytest.mark.parametrize("invocations", [1 << 18, 64], ids=["alone", "tall-tiles"])
def test_no_small_window_spills(monkeypatch, invocations):
    """Tiles have the most elements if these are bytes. The family is the one with the fewest registers."""
    limits = dataclasses.replace(compiled.limits(), group_count=invocations // 64, simd_width=invocations)
    monkeypatch.setattr(compiled, "limits", lambda: limits)
    descs = []
    for rank, window, stride in itertools.product((2, 3), (2, 3, 4), (1, 2)):
        sizes = (2, 4, *(12,) * (rank - 2), 24, 63 * stride + window)
        descs.append(cases.pool_desc(cases.UINT8, sizes, (window,) * rank, (stride,) * rank))
    wanted = compiled.sources([cases.Case(str(desc), desc, ()) for desc in descs], "pool_small")
    _, kernels = compiled.compile_for("gfx1100", wanted)
    assert len(kernels) == len(descs)
    assert [kernel for kernel in kernels if kernel.numbers["spilt"] or kernel.numbers["scratch"]] == []


@pytest.mark.parametrize("family", FAMILIES)
def test_streaming_kernels_have_four_loads_in_flight(family):
    kernels = [kernel for kernel in kernels_of(family) if BENCHMARKS.intersection(kernel.cases)]
    for name in STREAMING:
        assert min(kernel.numbers["loads"] for kernel in kernels if kernel.kernel.startswith(name)) >= 4


ONE = "\tbuffer_load_dwordx4 v[0:3], v9, s[20:23], 0 offen  ; e05c1000\n"
SHARED = "\tds_read_b64 v[0:1], v2\n\ts_load_dwordx4 s[20:23], s[20:21], 0x0\n\ts_waitcnt lgkmcnt(0)\n"


def wait(count):
    return f"\ts_waitcnt vmcnt({count}) lgkmcnt(0)\n"


def loop(label, body):
    return f"{label}:\n\ts_cbranch_scc1 {label}0\n{body}\ts_branch {label}  ; bf82ffb4\n{label}0:\n"


@pytest.mark.parametrize(
    ("assembly", "loads"),
    [
        ("", 0),
        (SHARED + wait(0), 0),
        (ONE, 1),
        (ONE * 3 + SHARED + ONE + wait(0) + ONE, 4),
        ("\tglobal_load_b128 v[0:3], v4, s[0:1]\n" * 2 + wait(0) + ONE, 2),
        ("\tbuffer_load_dword v1, v2, s[4:7], 0 offen\n\tbuffer_load_b96 v[1:3], v2, s[4:7], 0 offen\n", 2),
        # A wait for a count leaves that many loads in flight.
        (ONE * 2 + wait(2) + ONE * 2 + wait(3) + ONE, 4),
        # An inner loop counts, not the code around it; a loop without loads does not count.
        (ONE * 5 + wait(0) + loop("BB1", ONE * 2 + wait(0)), 2),
        (loop("BB1", ONE * 2 + loop("BB2", SHARED + wait(0)) + ONE + wait(0)), 3),
        (loop("BB1", ONE * 5 + wait(0) + loop("BB2", ONE + wait(0)) + ONE), 1),
        # A wait before the first load is for an earlier iteration.
        (loop("BB1", wait(0) + ONE * 3), 3),
        # The loop with the most loads counts, and the first one of several.
        (loop("BB1", ONE * 2 + wait(0)) + loop("BB2", ONE * 3 + wait(0)), 3),
        (loop("BB1", ONE * 2 + wait(0)) + loop("BB2", ONE + wait(0) + ONE), 2),
    ],
    ids=range(13),
)
def test_loads_before_the_first_wait_of_the_main_loop_count(assembly, loads):
    assert loads_in_flight(assembly) == loads


def test_assembly_is_printed(capsys):
    assert cli.main(["--compiled", "navi21", "-k", "argmax-4096x1024-int64", "--assembly"]) == 0
    heading, *assembly = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"\w+_64 of argmax-4096x1024-int64", heading)
    assert any("s_endpgm" in line for line in assembly)


def test_a_missing_radv_is_an_error(monkeypatch):
    set_drivers(monkeypatch.setenv, None)
    monkeypatch.setattr(compiled, "_FOLDERS", ())
    with pytest.raises(BenchmarkError, match=r"^there is no RADV, .* Install it \(Debian: mesa-vulkan-drivers\)$"):
        compiled.compile_for("navi21", [])


def test_a_family_is_also_known_by_its_later_name_in_mesa(monkeypatch):
    monkeypatch.setitem(compiled.FAMILIES, "navi99", ("navi99", "navi21"))
    wanted = compiled.sources(CASES, "pool_small_selection_8")
    compiler, kernels = compiled.compile_for("navi99", wanted)
    assert "RADV NAVI21" in compiler
    assert len(kernels) == len(wanted)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--assembly"], "--assembly is an option of --compiled"),
        (["--compiled", "--plot", "x.png"], "--plot and --json need times, but --compiled measures none: omit them"),
        (["--compiled", "-k", "none"], "no kernel, and no case, has 'none' in its name"),
    ],
)
def test_options_that_do_not_fit_are_refused(capsys, options, problem):
    assert cli.main(options) == 2
    assert capsys.readouterr() == ("", f"benchmarks: {problem}\n")
