"""Mutation testing: puts one fault at a time into a copy of the code, and sees that a test fails.

    python -m tests.mutants [--seed N] [--count 60] [--only SUBSTRING]

Faults are made by the rules below, and drawn: a seed and the text of a file alone say which faults the file has, and in
which order. `--count` of all files are taken. Each runs first with the tests that are likely to see it, then with the
rest of the suite, on lavapipe, until a test fails that passes without the fault. What none sees is printed as a diff:
write a test, or, if no test can see it, an entry in `equivalent_mutants.txt`.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import filecmp
import importlib.util
import itertools
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.processes import ROOT

EQUIVALENT = ROOT / "tests/equivalent_mutants.txt"

# Copies that are tested side by side, each with one process.
COPIES = 2
# Seconds without a word after which a process hangs.
SILENCE = 600

# Tests that are likely to see a fault, by the beginning of its path; those of a module go by name, too: test_NAME*.py.
LIKELY = {
    "shaders/": ("mappings", "kernels", "values", "barriers", "cases"),
    "shaders/pool_": ("mappings", "windows", "summed_windows", "cases"),
    "shaders/pool_backward": ("mappings", "gradients", "cases"),
    "shaders/scatter": ("mappings", "unpooling", "cases"),
    "shaders/accumulators/": ("mappings", "reduce", "values", "exhaustive", "cases"),
    "shaders/accumulators/exact": ("exact_sums", "summed_windows", "hashes"),
    "shaders/core/": ("mappings", "reduce", "values", "layouts", "barriers", "cases"),
    "shaders/core/gradients": ("mappings", "gradients", "cases"),
    "dmlgpu/comparison": ("verification", "chunks"),
    "dmlgpu/arguments": ("functions", "messages", "array_api"),
    "dmlgpu/chunks/": ("chunks", "streaming"),
    "dmlgpu/errors": ("faults", "threads"),
    "dmlgpu/files": ("streaming",),
    "dmlgpu/functions": ("functions",),
    "dmlgpu/descriptors/": ("messages", "operators", "functions"),
    "dmlgpu/lowering/": ("plans", "kernels", "splitting", "cases", "loops"),
    "dmlgpu/lowering/kernels/pool_": ("plans", "kernels", "windows", "cases"),
    "dmlgpu/lowering/kernels/pool_backward": ("plans", "gradients", "cases"),
    "dmlgpu/lowering/kernels/scatter": ("plans", "unpooling", "cases", "loops"),
    "dmlgpu/reference/": ("reference", "reduce", "verification"),
    "dmlgpu/runtime/": ("devices", "reuse", "faults", "log"),
    "dmlgpu/runtime/spirv": ("shaders", "devices"),
}

# What comes in the place of what, in both languages and in Python.
SWAPPED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+": "-", "-": "+", "*": "+", "/": "*"}
SWAPPED |= {"%": "/", "<<": ">>", ">>": "<<", "&&": "||", "||": "&&", "&": "|", "|": "&", "^": "|"}
PYTHON = SWAPPED | {"//": "%", "%": "//", "is": "is not", "is not": "is", "in": "not in", "not in": "in"}
PYTHON |= {"and": "or", "or": "and"} | {
    f"{old}=": f"{new}=" for old, new in PYTHON.items() if old in ("+", "-", "*", "//")
}
EXTREMES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum"}

# A part of a text, by its first character and the one behind its last, and what comes in its place.
Edit = tuple[int, int, str]


@dataclass(frozen=True)
class Fault:
    file: str
    text: str = field(repr=False)
    begin: int
    end: int
    replacement: str

    @property
    def broken(self) -> str:
        """The text with the fault."""
        return self.text[: self.begin] + self.replacement + self.text[self.end :]

    @property
    def change(self) -> str:
        """The lines that change, before and after, as `equivalent_mutants.txt` has them."""
        first = self.text.rfind("\n", 0, self.begin) + 1
        last = self.text.find("\n", self.end)
        old, new = self.text[first:last], self.broken[first : last + len(self.broken) - len(self.text)]
        signed = [f"- {line.strip()}" for line in old.splitlines()] + [f"+ {line.strip()}" for line in new.splitlines()]
        return "\n".join([self.file, *signed])

    def __str__(self) -> str:
        return f"{self.file}:{1 + self.text.count(chr(10), 0, self.begin)}"

    @property
    def means_the_same(self) -> bool:
        """Whether what is parsed of the text does not change."""
        parsed = (lambda text: ast.dump(ast.parse(text))) if self.file.endswith(".py") else glsl_tokens
        return parsed(self.broken) == parsed(self.text)


def faults_of(file: str, text: str) -> list[Fault]:
    """All that the rules make of a file."""
    edits = python_edits(text) if file.endswith(".py") else glsl_edits(text)
    return [Fault(file, text, *edit) for edit in dict.fromkeys(edits)]


def sources() -> list[str]:
    """What is broken: all but the tools."""
    modules = [module for pattern in ("*.comp", "*/*.glsl") for module in (ROOT / "shaders").glob(pattern)]
    modules += (ROOT / "dmlgpu").glob("[!_]*.py")
    modules += [
        module
        for name in ("chunks", "descriptors", "interop", "lowering", "reference", "runtime")
        for module in (ROOT / "dmlgpu" / name).rglob("*.py")
    ]
    return sorted(module.relative_to(ROOT).as_posix() for module in modules)


# Python


def python_edits(text: str) -> Iterator[Edit]:
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))

    def at(line: int, column: int) -> int:
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    def span(node: ast.AST) -> tuple[int, int]:
        return at(node.lineno, node.col_offset), at(node.end_lineno, node.end_col_offset)

    def source(node: ast.AST) -> str:
        begin, end = span(node)
        return text[begin:end]

    def operator(left: ast.AST, right: ast.AST) -> Iterator[Edit]:
        """The one between two operands, where parentheses and comments may stand, too."""
        begin, end = span(left)[1], span(right)[0]
        between = re.sub(r"#.*", lambda comment: " " * len(comment[0]), text[begin:end])
        found = re.search(r"is not|not in|[a-z]+|[-+*/%<>=!&|^@]+", between)
        if found and found[0] in PYTHON:
            yield begin + found.start(), begin + found.end(), PYTHON[found[0]]

    def negation(test: ast.expr) -> Iterator[Edit]:
        """But of what other rules negate."""
        match test:
            case ast.UnaryOp(op=ast.Not()):
                return
            case ast.Compare(ops=[ast.Eq() | ast.NotEq() | ast.In() | ast.NotIn() | ast.Is() | ast.IsNot()]):
                return
        yield *span(test), f"not ({source(test)})"

    def rules(node: ast.AST) -> Iterator[Edit]:
        match node:
            case ast.Compare():
                for left, right in itertools.pairwise([node.left, *node.comparators]):
                    yield from operator(left, right)
            case ast.BoolOp():
                for left, right in itertools.pairwise(node.values):
                    yield from operator(left, right)
            case ast.BinOp(op=ast.BitOr() | ast.BitAnd()):
                pass  # mostly of types
            case ast.BinOp():
                yield from operator(node.left, node.right)
            case ast.AugAssign():
                yield from operator(node.target, node.value)
            case ast.UnaryOp(op=ast.USub() | ast.Not() | ast.Invert()):
                yield *span(node), re.sub(r"^(not|-|~)\s*", "", source(node))
            case ast.Constant(value=0 | 1) if type(node.value) is int:
                yield *span(node), str(1 - node.value)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                end = span(node.func)[1]
                if name in EXTREMES:
                    yield end - len(name), end, EXTREMES[name]
                elif name not in ("gcd", "lcm", "isinstance", "issubclass"):
                    yield from swaps([span(argument) for argument in node.args], text)
            case ast.If() | ast.IfExp():
                yield from negation(node.test)
            case ast.comprehension():
                for test in node.ifs:
                    yield from negation(test)
        match node:
            # Without a local name, whatever comes next would fail.
            case (
                ast.Expr()
                | ast.AugAssign()
                | ast.Raise()
                | ast.Continue()
                | ast.Break()
                | ast.Delete()
                | ast.Return(value=None)
                | ast.Assign(targets=[ast.Attribute() | ast.Subscript()])
            ):
                yield *span(node), "pass"

    def walk(node: ast.AST) -> Iterator[Edit]:
        children: Iterable[ast.AST] = ast.iter_child_nodes(node)
        match node:
            case ast.JoinedStr():
                return
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name.endswith(("Error", "warn")):
                return
            case ast.Raise():
                children = []
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                return
            case ast.Module():
                children = [n for n in node.body if not is_tuning(n)]
            case ast.FunctionDef():
                arguments = node.args
                children = [*arguments.defaults, *filter(None, arguments.kw_defaults), *node.body]
            case ast.ClassDef():
                # The defaults of Limits are numbers that were measured, too.
                children = [n for n in node.body if node.name != "Limits" or isinstance(n, ast.FunctionDef)]
            case ast.AnnAssign():
                children = [node.target, *filter(None, [node.value])]
        yield from rules(node)
        for child in children:
            if not (isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)):
                yield from walk(child)

    return walk(ast.parse(text))


def is_tuning(node: ast.stmt) -> bool:
    """Whether numbers get names in capitals: they were measured, and other ones are as right."""
    number = ast.Constant | ast.BinOp | ast.Tuple | ast.operator | ast.expr_context
    if not isinstance(node, ast.Assign) or not all(isinstance(part, number) for part in ast.walk(node.value)):
        return False
    return all(part.id.isupper() for part in ast.walk(node) if isinstance(part, ast.Name))


def swaps(arguments: Sequence[tuple[int, int]], text: str) -> Iterator[Edit]:
    """Every argument with the next one."""
    for (begin, first), (second, end) in itertools.pairwise(arguments):
        if text[begin:first] != text[second:end]:
            yield begin, end, text[second:end] + text[first:second] + text[begin:first]


# GLSL

_TOKEN = re.compile(
    r"""(?P<skipped>\s+|\\\n|//[^\n]*|/\*.*?\*/|\[\[.*?\]\])
    | (?P<directive>^[ ]*\#(?:\\\n|[^\n])*)
    | (?P<name>[A-Za-z_]\w*) | (?P<number>\.?\d(?:[eE][-+]|[\w.])*)
    | (?P<operator><<=|>>=|\+\+|--|\|\||\^\^|<<|>>|&&|[-+*/%<>=!&|^]=|.)""",
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)
_DEFINE = re.compile(r"[ ]*#[ ]*define[ ]+\w+(\([^)]*\))?")
# Words before what is no operand: here a sign is none of two operands, and a parenthesis none of a call.
_KEYWORDS = ("return", "else", "if", "for", "while", "do", "switch", "case")
_ASSIGNMENTS = ("=", "+=", "-=", "*=", "/=", "%=", "<<=", ">>=", "&=", "|=", "^=")


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    begin: int = field(compare=False)

    @property
    def end(self) -> int:
        return self.begin + len(self.text)

    @property
    def ends_operand(self) -> bool:
        return self.text in (")", "]") or self.kind == "number" or self.is_name

    @property
    def is_name(self) -> bool:
        return self.kind == "name" and self.text not in _KEYWORDS


def glsl_tokens(text: str, begin: int = 0) -> list[Token]:
    """What is compiled, the bodies of macros between two ends of lines, without layouts and other directives."""
    tokens: list[Token] = []
    while match := _TOKEN.match(text, begin):
        begin = match.end()
        kind = match.lastgroup or ""
        if kind == "directive":
            if define := _DEFINE.match(match[0]):
                body = glsl_tokens(text[: match.end()], match.start() + define.end())
                tokens += [Token("line", "\n", match.start()), *body, Token("line", "\n", match.end())]
        elif match[0] == "layout":
            begin = text.index(";", begin)
            if "{" in text[match.end() : begin]:
                begin = text.index(";", text.index("}", begin))
        elif kind != "skipped":
            tokens.append(Token(kind, match[0], match.start()))
    return tokens


def glsl_edits(text: str) -> Iterator[Edit]:
    line = Token("line", "\n", 0)
    tokens = [line, *glsl_tokens(text), line]
    partner: dict[int, int] = {}
    opened: list[int] = []
    nested: list[bool] = []
    for i, token in enumerate(tokens):
        nested.append(bool(opened))
        if token.text in ("(", "["):
            opened.append(i)
        elif token.text in (")", "]"):
            partner[i] = opened.pop()
            partner[partner[i]] = i

    def until(i: int, ends: Iterable[str], step: int = 1) -> int:
        """The next token that is one of these, or that closes what i stands in."""
        while tokens[i].text not in (*ends, "\n", *("([" if step < 0 else ")]")):
            i = partner.get(i, i) + step
        return i

    def negation(first: int, last: int) -> Iterator[Edit]:
        """But of what other rules negate."""
        inside = [token.text for token in tokens[first:last]]
        if inside[0] != "!" and not {"==", "!="} & {*inside}:
            begin, end = tokens[first].begin, tokens[last - 1].end
            yield begin, end, f"!({text[begin:end]})"

    def arguments(first: int) -> Iterator[tuple[int, int]]:
        """Of the parenthesis that opens there."""
        i = first
        while i < partner[first] - 1:
            end = until(i + 1, ",")
            yield tokens[i + 1].begin, tokens[end - 1].end
            i = end

    def ends_head(i: int) -> bool:
        return tokens[i].text == ")" and tokens[partner[i] - 1].text in ("if", "for", "while")

    for i, token in enumerate(tokens[1:-1], 1):
        before, after = tokens[i - 1], tokens[i + 1]
        if token.text in ("0", "0u", "1", "1u"):
            yield token.begin, token.begin + 1, str(1 - int(token.text[0]))
        elif token.text in SWAPPED and before.ends_operand:
            yield token.begin, token.end, SWAPPED[token.text]
        elif token.text in _ASSIGNMENTS[1:]:
            yield token.begin, token.end, SWAPPED[token.text[:-1]] + "="
        elif token.text in ("-", "~", "!"):
            yield token.begin, token.end, ""
        elif token.text == "if":
            yield from negation(i + 2, partner[i + 1])
        elif token.text == "?":
            first = until(i - 1, (*_ASSIGNMENTS, *_KEYWORDS, *",;{}?:"), -1) + 1
            yield from negation(first, i)
        elif after.text == "(" and token.text in EXTREMES:
            yield token.begin, token.end, EXTREMES[token.text]
        elif after.text == "(" and token.is_name and not before.is_name:
            yield from swaps(list(arguments(i + 1)), text)
        if not nested[i] and (before.text in (*";{}\n", "else") or ends_head(i - 1)):
            end = until(i, ";{}")
            is_declaration = token.is_name and after.kind == "name"
            statement = {part.text for part in tokens[i:end]}
            if i < end and tokens[end].text == ";" and not is_declaration and not statement & {*_KEYWORDS}:
                yield token.begin, tokens[end].begin, ""


# Runs


def suite_of(file: str) -> tuple[list[str], list[str]]:
    """The test files that are likely to see a fault of a file, by its name and LIKELY, and all others.

    Those that need other libraries are among them where the file has such tests by name, and the libraries are there.
    """
    known = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py"))
    stem = Path(file).stem.strip("_")
    named = [test for test in known if file.endswith(".py") and Path(test).stem.startswith(f"test_{stem}")]
    adapters = {test for test in known if "/adapters/" in test}
    if not adapters & {*named} or importlib.util.find_spec("torch") is None:
        known = [test for test in known if test not in adapters]
    _, names = max((beginning, names) for beginning, names in {"": (), **LIKELY}.items() if file.startswith(beginning))
    listed = [test for name in names for test in known if Path(test).stem == f"test_{name}"]
    likely = list(dict.fromkeys(test for test in [*named, *listed] if test in known))
    return likely, [test for test in known if test not in likely]


def drawn(files: Iterable[str], seed: int) -> list[Fault]:
    """All faults, of each file in an order of its own: any first ones have about the same share of every file."""
    ordered = []
    for file in files:
        faults, chance = faults_of(file, (ROOT / file).read_text()), random.Random(f"{seed} {file}")
        chance.shuffle(faults)
        begin = chance.random()
        ordered += [((begin + i) / len(faults), fault) for i, fault in enumerate(faults)]
    return [fault for _, fault in sorted(ordered, key=lambda placed: (placed[0], placed[1].file))]


def equivalents() -> dict[str, str]:
    """The reasons of `equivalent_mutants.txt`, by the lines that change."""
    reasons = {}
    for entry in EQUIVALENT.read_text().strip().split("\n\n")[1:]:
        lines = entry.splitlines()
        end = 1 + max(i for i, line in enumerate(lines) if line.startswith(("- ", "+ ")))
        reasons["\n".join(lines[:end])] = " ".join(lines[end:])
    return reasons


class Copy:
    """A copy of the checkout that may be broken."""

    def __init__(self, folder: Path, stopped: threading.Event, unfit: set[str]) -> None:
        self._checkout = folder / "checkout"
        self._built = folder / "built"
        self._stopped = stopped
        self._unfit = unfit
        """Tests that fail without a fault."""
        self._fit: set[str] = set()
        # The editable installation of the checkout would be imported otherwise: it comes before every path.
        shadows = folder / "shadows"
        shadows.mkdir()
        (shadows / "_editable_skbc_dmlgpu.py").touch()
        self._environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": f"{shadows}{os.pathsep}{self._checkout}",
            # A fault may leave a file as long and as old, to the second, as it was.
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
        }
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for name in filter(None, listed.split("\0")):
            (self._checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, self._checkout / name)
        shutil.copytree(ROOT / "dmlgpu/spirv", self._checkout / "dmlgpu/spirv")
        program = "import dmlgpu, dmlgpu.runtime.spirv as s; print(dmlgpu.__file__, s._FOLDER)"
        where = self._run(sys.executable, "-c", program)[1]
        package = self._checkout / "dmlgpu"
        if where != f"{package / '__init__.py'} {package / 'spirv'}\n":
            raise RuntimeError(f"the copy in {self._checkout} imports {where}")
        status, printed = self._run(sys.executable, "-m", "pytest", "--collect-only", "-q")
        if status != 0:
            raise RuntimeError(f"pytest ended with {status} where it looked for the copy's tests:\n{printed}")

    def _run(self, *command: str) -> tuple[int | None, str]:
        """The exit status, None where it hangs, and what was printed."""
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            process = subprocess.Popen(
                command, cwd=self._checkout, env=self._environment, stdout=output, stderr=output, start_new_session=True
            )
            size, heard = 0, time.monotonic()
            while process.poll() is None and not self._stopped.is_set() and time.monotonic() < heard + SILENCE:
                time.sleep(0.1)
                if size != (size := os.fstat(output.fileno()).st_size):
                    heard = time.monotonic()
            status = process.poll()
            # What it left behind, too.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            output.seek(0)
            return status, output.read()

    def _build(self) -> bool:
        return self._run("cmake", "--build", "build")[0] == 0

    @contextlib.contextmanager
    def _broken(self, fault: Fault) -> Iterator[bool]:
        """Whether it is a fault: it compiles, and not to the same modules. Afterwards all is as it was."""
        file, build, spirv = (self._checkout / name for name in (fault.file, "build", "dmlgpu/spirv"))
        is_shader = not fault.file.endswith(".py")
        if is_shader and not self._built.exists():
            if self._run("cmake", "-S", ".", "-B", "build")[0] != 0 or not self._build():
                raise RuntimeError("the shaders of the checkout do not compile")
            for folder in (build, spirv):
                shutil.copytree(folder, self._built / folder.name)
        age = file.stat()
        file.write_text(fault.broken)
        try:
            names = [module.name for module in spirv.glob("*.spv")]
            yield not is_shader or (
                self._build() and {*filecmp.cmpfiles(spirv, self._built / "spirv", names, shallow=False)[0]} != {*names}
            )
        finally:
            file.write_text(fault.text)
            os.utime(file, ns=(age.st_atime_ns, age.st_mtime_ns))
            # As old as they were: the next fault builds only what it changes.
            if is_shader:
                for folder in (build, spirv):
                    shutil.rmtree(folder)
                    shutil.copytree(self._built / folder.name, folder)

    def _failure(self, tests: Sequence[str]) -> str:
        """The first of these tests that fails, or how else it ends; empty where all pass."""
        options = ["-v", "-x", "--tb=no", "--no-header", "-p", "no:cacheprovider", "-k", "not swiftshader"]
        left_out = [f"--deselect={test}" for test in sorted(self._unfit)]
        status, printed = self._run(sys.executable, "-m", "pytest", *options, *left_out, *tests)
        failed = re.search(r"^(tests/\S+\.py::.+) (?:FAILED|ERROR)\b", printed, re.MULTILINE)
        if status is not None and 0 <= status <= 1 and failed:
            return failed[1]
        # 5: all are left out.
        if status in (0, 5):
            return ""
        last = [line for line in printed.splitlines() if line.startswith(("tests/", "ERROR", "E  "))][-1:]
        how = "hangs" if status is None else "crashes" if status < 0 else "does not start"
        return f"pytest {how}: {''.join(last) or printed[-200:]}"

    def examine(self, fault: Fault) -> str | None:
        """Which test sees it, or how else; empty where none does, and None where it is no fault."""
        files = [tests for tests in suite_of(fault.file) if tests]
        while files:
            with self._broken(fault) as is_fault:
                if not is_fault:
                    return None
                while files and not (failure := self._failure(files[0])):
                    del files[0]
            if not files or "::" not in failure or " " in failure.partition("[")[0] or failure in self._fit:
                break
            # A test that fails without the fault, too, says nothing.
            if not self._failure([failure]):
                self._fit.add(failure)
                break
            self._unfit.add(failure)
            files[0] = files[0][files[0].index(failure.partition("::")[0]) :]
        return failure


def examine_all(faults: Iterable[Fault], count: int) -> tuple[int, list[Fault], set[str]]:
    """How many faults there were, those that survive, and the tests that fail without one."""
    waiting, known = iter(faults), equivalents()
    survivors: list[Fault] = []
    unfit: set[str] = set()
    stopped, lock = threading.Event(), threading.Lock()
    # Begun, less those that are no faults; and over.
    begun = done = 0

    def work(folder: str) -> None:
        nonlocal begun, done
        copy = Copy(Path(folder), stopped, unfit)
        while True:
            with lock:
                fault = next(waiting, None) if begun < count else None
                if fault is None:
                    return
                begun += 1
            begin = time.monotonic()
            killed = f"none can: {known[fault.change]}" if fault.change in known else copy.examine(fault)
            with lock:
                if stopped.is_set():
                    return
                if killed is None:
                    begun -= 1
                    continue
                done += 1
                if not killed:
                    survivors.append(fault)
                seconds = time.monotonic() - begin
                print(
                    f"{done:3}  {fault} {killed or f'SURVIVES:{chr(10)}{fault.change}'} ({seconds:.0f} s)", flush=True
                )

    def work_or_stop(folder: str) -> None:
        try:
            work(folder)
        except Exception:
            # Of two errors the second follows from the stop.
            if not stopped.is_set():
                stopped.set()
                raise

    with contextlib.ExitStack() as stack:
        folders = [stack.enter_context(tempfile.TemporaryDirectory(prefix="mutants-")) for _ in range(COPIES)]
        with ThreadPoolExecutor(COPIES) as pool:
            try:
                list(pool.map(work_or_stop, folders))
            finally:
                stopped.set()
    return done, survivors, unfit


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description="put one fault at a time into the code"
    )
    parser.add_argument("--seed", type=int, default=0, help="which faults are drawn")
    parser.add_argument("--count", type=int, default=60, help="how many")
    parser.add_argument("--only", metavar="SUBSTRING", default="", help="of a file's name")
    arguments = parser.parse_args()
    # As Ctrl-C: no process of a copy is left behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    begin = time.monotonic()
    faults = drawn([file for file in sources() if arguments.only in file], arguments.seed)
    made = {fault.change for fault in faults}
    stale = [entry for entry in equivalents() if arguments.only in entry.splitlines()[0] and entry not in made]
    untested = {file for file in {fault.file for fault in faults} if not suite_of(file)[0]}
    faults_here = (fault for fault in faults if fault.file not in untested and not fault.means_the_same)
    done, survivors, unfit = examine_all(faults_here, arguments.count)
    for file in sorted(untested):
        print(f"left out: {file}, as tests of its own need libraries that are not installed")
    for test in sorted(unfit):
        print(f"left out: {test}, as it fails without a fault")
    for entry in stale:
        print(f"\nno fault any more, but in {EQUIVALENT.name}:\n{entry}")
    for fault in survivors:
        print(f"\n{fault} survives:\n{fault.change}")
    print(f"\n{done - len(survivors)} of {done} faults killed, or none can, in {time.monotonic() - begin:.0f} s")
    return bool(survivors or stale) or not done


if __name__ == "__main__":
    sys.exit(main())
