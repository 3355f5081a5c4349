"""The Python examples of all pages run as they stand, and links and citations lead somewhere."""

import functools
import inspect
import re
import shlex
import textwrap

import pytest

import dmlgpu
from benchmarks import cli as benchmarks_cli
from dmlgpu.interop import array_api
from dmlgpu.registry import OPERATORS
from dmlgpu.testing import __main__ as testing
from dmlgpu.tools import cli
from tests.support.pages import ADAPTERS_PAGES, BLOCKS, DOCS, PAGES, run_block
from tests.support.processes import ROOT


def test_pages_have_examples():
    coming_from = {page for page in DOCS if page.startswith("docs/coming-from/")}
    assert len(coming_from) == 5
    expected = {"README.md", "docs/using.md", "docs/semantics.md", "docs/operators.md", *coming_from}
    assert expected <= {page for page, _, _ in BLOCKS}
    # Blocks of another language would not run.
    for page, text in PAGES.items():
        assert len(re.findall(r"^ *```+ *py", text, re.IGNORECASE | re.MULTILINE)) == sum(
            block[0] == page for block in BLOCKS
        ), page


RUN = [block for block in BLOCKS if block[0] not in ADAPTERS_PAGES]


@pytest.mark.parametrize(("page", "line", "block"), RUN, ids=[f"{page}-line-{line}" for page, line, _ in RUN])
def test_examples_run_as_they_stand(driver, monkeypatch, tmp_path, page, line, block):
    """On each device; lines after `>>>` print what the page says, everything else just runs."""
    monkeypatch.setenv("DMLGPU_DEVICE", str(driver.index))
    monkeypatch.chdir(tmp_path)
    run_block(page, line, block)


def shell_commands():
    """The command lines of all pages' shell blocks, as lists of words: without comments and variables set for them."""
    for page, text in PAGES.items():
        for match in re.finditer(r"^( *)```sh\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL):
            for line in match[2].replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                while "=" in words[0]:
                    del words[0]
                yield pytest.param(words, id=f"{page}: {' '.join(words)}")


@pytest.mark.parametrize("words", [*shell_commands()])
def test_shell_commands_exist(driver, monkeypatch, words):
    """Commands of `dmlgpu` run, except long ones; of all others, names and options are looked up."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("DMLGPU_DEVICE", str(driver.index))
    program, *arguments = words
    python = re.fullmatch(r"(\.venv/bin/)?python3?", program)
    if program == "dmlgpu":
        if arguments[0] in ("demo", "verify", "stream", "doctor"):  # other tests run them
            cli._arguments(arguments)
        else:
            assert cli.main(arguments) == 0
    elif program == "make":
        target, *variables = arguments
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        assert all("?=" in makefile_line(variable.partition("=")[0]) for variable in variables)
    elif python and arguments[:2] == ["-m", "benchmarks"]:
        benchmarks_cli._parser().parse_args(arguments[2:])
    elif python and arguments[:2] == ["-m", "dmlgpu.testing"]:
        testing._parser().parse_args(arguments[2:])
    elif python:
        assert (ROOT / arguments[0].replace("gpu-kit/", ".ci/kit/")).exists()
    else:
        assert words[:2] == ["pip", "install"]
        extras = re.findall(r"\[(\w+)\]", " ".join(arguments))
        assert all(f"\n{extra} = [" in (ROOT / "pyproject.toml").read_text(encoding="utf-8") for extra in extras)


def makefile_line(variable):
    (line,) = re.findall(rf"^{variable} .*$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    return line


def test_the_table_of_operators_has_those_of_the_registry():
    rows = {operator.name: operator for operator in OPERATORS}
    listed = []
    for line in re.findall(r"^\| .* \| `\w+OperatorDesc`.* \|$", PAGES["README.md"], re.MULTILINE):
        _, names, descriptors, functions, _ = line.split("|")
        # REDUCE has one row for all of its functions.
        links = dict(re.findall(r"\[(\w+)\]\(docs/operators\.md#(\w+)\)", names))
        assert list(links.values()) == [link.lower() for link in links]
        names = [name for link in links for name in rows if name.partition(" ")[0] == link]
        listed += names
        assert re.findall(r"\w+", descriptors) == list(dict.fromkeys(rows[name].desc.__name__ for name in names))
        with_function = [f.__name__ for name in names if (f := rows[name].function)]
        assert re.findall(r"\w+", functions) == list(dict.fromkeys(with_function))
    assert sorted(listed) == sorted(rows)


def anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", DOCS)
def test_links_lead_to_files_and_headings(page):
    path = ROOT / page
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?[^)]*\)", path.read_text(encoding="utf-8")):
        if "://" not in target:
            file = path.parent / target if target else path
            assert file.exists(), target
            assert not anchor or anchor in anchors(file), (target, anchor)


@functools.cache
def code_of(files):
    return "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob(files))


@pytest.mark.parametrize("page", DOCS)
def test_tests_that_are_named_exist(page):
    """In the file that is named before them in the line; `…` and `*` stand for any letters."""
    for line in PAGES[page].splitlines():
        file = "test_*.py"
        for name in re.findall(r"\btest_[\w…*]+(?:\.py)?", line):
            if name.endswith(".py"):
                file = name
            pattern = "def test_" if name == file else rf"def {re.sub('[…*]', r'[a-z0-9_]*', name)}\("
            assert re.search(pattern, code_of(file)), (file, name)


def test_decisions_that_are_cited_exist():
    decisions = set(re.findall(r"^### Decision (\d+): ", PAGES["docs/semantics.md"], re.MULTILINE))
    files = [
        path
        for folder in ("dmlgpu", "shaders", "tests")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in (".py", ".comp", ".glsl")
    ]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    cited = set(re.findall(r"docs/semantics\.md, decision (\d+)|test_decision_(\d+)_", text))
    assert cited
    assert {number for numbers in cited for number in numbers if number} <= decisions


FUNCTIONS = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in (dmlgpu, array_api)
    for name in [*dict.fromkeys((*module.__all__, "max", "min", "sum"))]
    if inspect.isfunction(getattr(module, name))
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_every_function_has_an_example(driver, monkeypatch, tmp_path, function):
    monkeypatch.setenv("DMLGPU_DEVICE", str(driver.index))
    monkeypatch.chdir(tmp_path)
    assert ">>>" in function.__doc__
    run_block(function.__module__, 1, textwrap.dedent(function.__doc__))
