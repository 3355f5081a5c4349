"""Mutation testing makes faults that are some, and the same ones again."""

import subprocess
import textwrap
from pathlib import Path

import pytest

from tests import mutants
from tests.mutants import LIKELY, drawn, faults_of, sources, suite_of
from tests.support.processes import ROOT


def broken_lines(file, text):
    """What comes in the place of lines."""
    faults = faults_of(file, textwrap.dedent(text).lstrip() + "\n")
    return [line[2:] for fault in faults for line in fault.change.splitlines() if line.startswith("+ ")]


@pytest.mark.parametrize(
    ("line", "broken"),
    [
        ("x = a < b <= c", ["x = a <= b <= c", "x = a < b < c"]),
        ("x = a is not b", ["x = a is b"]),
        ("x = a not in b", ["x = a in b"]),
        ("x = a and b and c", ["x = a or b and c", "x = a and b or c"]),
        ("x = (a + b) * 8  # a * b", ["x = (a + b) + 8  # a * b", "x = (a - b) * 8  # a * b"]),
        ("x = a // b % c", ["x = a // b // c", "x = a % b % c"]),
        ("x = rows[0]", ["x = rows[1]"]),
        ("x = -a", ["x = a"]),
        ("x = not (a or b)", ["x = (a or b)", "x = not (a and b)"]),
        ("x = np.minimum(a, b)", ["x = np.maximum(a, b)"]),
        ("x = f(a, g(a, a), k=2)", ["x = f(g(a, a), a, k=2)"]),
        ("x = a if ready else b", ["x = a if not (ready) else b"]),
        ("x = [a for a in b if a > c]", ["x = [a for a in b if not (a > c)]", "x = [a for a in b if a >= c]"]),
        ("x = 'é', a == b", ["x = 'é', a != b"]),
        ("x.y = a", ["pass"]),
        ("x += a", ["x -= a", "pass"]),
        ("if a: raise ValueError(f(0, 1) + 'no')", ["if not (a): raise ValueError(f(0, 1) + 'no')", "if a: pass"]),
    ],
)
def test_faults_of_python(line, broken):
    assert sorted(broken_lines("a.py", line)) == sorted(broken)


def test_what_says_nothing_about_python_is_left_alone():
    text = '''
    """0 < 1"""
    _MOST = (1 << 20, 4)
    if TYPE_CHECKING:
        x = 1
    @cache(1)
    def f(a: Literal[0, 1]) -> Literal[1]:
        """0 < 1"""
        error = DeviceError(f"{a + 1}", 0)
        b: Literal[0] = f"{a + 1}"
        return b
    class Limits:
        a: int = 1 << 20
        """0 < 1"""
        b: bool = True
    '''
    assert broken_lines("a.py", text) == []


@pytest.mark.parametrize(
    ("line", "broken"),
    [
        ("return a <= b;", ["return a < b;"]),
        ("return (a + b) * c;", ["return (a - b) * c;", "return (a + b) + c;"]),
        ("return a || b && c;", ["return a && b && c;", "return a || b || c;"]),
        ("return -x;", ["return x;"]),
        ("return x[1u] << 2;", ["return x[0u] << 2;", "return x[1u] >> 2;"]),
        ("return min(a, b);", ["return max(a, b);"]),
        (
            "return f(a, g(a), -1.0e-1);",
            ["return f(g(a), a, -1.0e-1);", "return f(a, -1.0e-1, g(a));", "return f(a, g(a), 1.0e-1);"],
        ),
        ("uint x = a ? b : c;", ["uint x = !(a) ? b : c;"]),
        ("return f(a > b ? b : c);", ["return f(!(a > b) ? b : c);", "return f(a >= b ? b : c);"]),
        ("return f(a == b ? b : c);", ["return f(a != b ? b : c);"]),
        (
            "if (a) f(b); else x[a] = b;",
            ["if (!(a)) f(b); else x[a] = b;", "if (a) ; else x[a] = b;", "if (a) f(b); else ;"],
        ),
        (
            "for (uint i = a; i < b; i += c) f();",
            [
                "for (uint i = a; i <= b; i += c) f();",
                "for (uint i = a; i < b; i -= c) f();",
                "for (uint i = a; i < b; i += c) ;",
            ],
        ),
        ("#define PUT(a, b) (a)[0] = b;", ["#define PUT(a, b) (a)[1] = b;", "#define PUT(a, b) ;"]),
    ],
)
def test_faults_of_glsl(line, broken):
    assert sorted(broken_lines("a.glsl", f"uint f(uint a, uint b)\n{{\n{line}\n}}\n")) == sorted(broken)


def test_what_says_nothing_about_glsl_is_left_alone():
    text = """
    #version 450
    #if BITS == 1  // 0 < 1
    #include "a-b.glsl"
    #endif
    /* a + b */
    layout(constant_id = 1) const uint A = 0;
    layout(push_constant) uniform Push {
        uint a[1];
        uint b;
    } push;
    struct State {
        uint a;
    };
    uint f(uint a, uint b)
    {
        State state;
        [[unroll]] while (g(a)) return 2.0e-1;
    }
    """
    assert broken_lines("a.glsl", text) == []


def test_what_is_drawn_changes_what_is_parsed():
    seen = {}
    for fault in drawn(sources(), 0)[:300]:
        seen.setdefault(fault.file, fault)
    assert len(seen) > 60
    assert [fault for fault in seen.values() if fault.means_the_same] == []
    a, b = (mutants.Fault("a.glsl", "x = a;  // b", 0, 0, added) for added in ("  ", "b"))
    assert (a.means_the_same, b.means_the_same) == (True, False)


def test_most_faults_of_a_shader_compile(tmp_path):
    (tmp_path / "accumulator.glsl").write_text('#include "accumulators/selection.glsl"\n')
    shader = tmp_path / "broken.comp"
    folders = [f"-I{ROOT / 'shaders'}", f"-I{tmp_path}"]
    command = ["glslangValidator", "--target-env", "vulkan1.1", *folders, "-DBITS=16", "-DIN_PLACE"]
    compiled = []
    for fault in drawn(["shaders/pool_separable.comp"], 0)[:10]:
        shader.write_text(fault.broken)
        finished = subprocess.run([*command, "-o", tmp_path / "broken.spv", shader], capture_output=True)
        compiled += [(tmp_path / "broken.spv").read_bytes()] if finished.returncode == 0 else []
    assert len({*compiled}) > 6


def test_a_seed_draws_the_same_of_a_file_whatever_the_others_are():
    some, more = ["dmlgpu/files.py", "shaders/pool_direct.comp"], sources()
    alone = drawn(some, 1)
    assert alone == [fault for fault in drawn(more, 1) if fault.file in some]
    assert {*alone} == {*drawn(some, 2)}
    assert alone != drawn(some, 2)


def test_files_have_the_suite_of_their_names_and_those_that_are_likely():
    stems = {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
    assert {f"test_{name}" for names in LIKELY.values() for name in names} <= stems
    assert [beginning for beginning in LIKELY if not any(file.startswith(beginning) for file in sources())] == []
    likely, others = suite_of("dmlgpu/lowering/accumulators.py")
    assert [Path(test).stem for test in likely][:2] == ["test_accumulators", "test_plans"]
    assert not {*likely} & {*others}
    assert [test for test in (*likely, *others) if "/adapters/" in test] == []


def test_entries_of_equivalents_are_found_by_the_lines_that_change(tmp_path, monkeypatch):
    fault = next(
        fault for fault in faults_of("dmlgpu/files.py", "if a:\n    x(\n        b)\n") if "pass" in fault.broken
    )
    monkeypatch.setattr(mutants, "EQUIVALENT", tmp_path / "entries.txt")
    mutants.EQUIVALENT.write_text(f"What this is.\n\n{fault.change}\nNobody\nasks.\n")
    assert fault.change == "dmlgpu/files.py\n- x(\n- b)\n+ pass"
    assert mutants.equivalents() == {fault.change: "Nobody asks."}
