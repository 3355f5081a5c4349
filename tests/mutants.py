"""Mutation testing: breaks the code in one place at a time, and sees that two tests notice.

    python -m tests.mutants [--only SUBSTRING]

Every mutation of `mutations.py` is made in a copy of the checkout in a temporary folder, never in the checkout itself.
The tests that are likely to see it run first, without SwiftShader. Where fewer than two fail, all files of LIKELY run
on all drivers, after the other mutations.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutations import MUTATIONS, Mutation
from tests.support.processes import ROOT

# Copies that are tested side by side. Without a pytest-xdist of its own each has a core to itself, and stops at once.
COPIES = 2
NEEDED = 2
TIME_LIMIT = 20 * 60

# SwiftShader takes many times as long as lavapipe to compile.
FIRST = ("-k", "not swiftshader")

# The test files that are likely to see a mutation of a file, the likeliest first; without `test_` and `.py`.
LIKELY = {
    "shaders/accumulators/selection.glsl": ("mappings", "values", "order_proofs", "splitting", "layouts", "cases"),
    "shaders/accumulators/extremes.glsl": ("mappings", "values", "exhaustive", "splitting", "cases"),
    "shaders/accumulators/packed.glsl": ("mappings", "exhaustive", "splitting", "cases"),
    "shaders/accumulators/sum.glsl": ("reduce", "summed_windows", "mappings", "cases"),
    "shaders/accumulators/integer.glsl": ("reduce", "mappings", "cases"),
    "shaders/accumulators/product.glsl": ("reduce", "mappings", "cases"),
    "shaders/accumulators/logsumexp.glsl": ("reduce", "mappings", "cases"),
    "shaders/core/floats.glsl": ("reduce", "mappings", "cases"),
    "shaders/core/functions.glsl": ("reduce", "mappings", "cases"),
    "dmlgpu/reference/bounds.py": ("reduce", "verification"),
    "shaders/core/axes.glsl": ("splitting", "mappings", "cases"),
    "shaders/core/blocks.glsl": ("mappings", "cases"),
    "shaders/core/items.glsl": ("mappings", "cases", "splitting"),
    "shaders/core/row.glsl": ("accumulators", "mappings", "values", "splitting", "cases"),
    "shaders/core/stores.glsl": ("mappings", "layouts", "splitting", "cases"),
    "shaders/core/values.glsl": ("values", "cases"),
    "shaders/reduce.comp": ("mappings", "splitting", "properties", "cases"),
    "shaders/rows.comp": ("mappings", "values", "splitting", "cases"),
    "shaders/core/lanes.glsl": ("barriers", "mappings", "cases", "values"),
    "shaders/columns.comp": ("barriers", "mappings", "splitting", "cases"),
    "shaders/sweep.comp": ("mappings", "kernels", "cases"),
    "shaders/windows.comp": ("windows", "summed_windows", "splitting", "mappings", "values", "cases"),
    "shaders/pool.comp": ("mappings", "windows", "layouts", "cases"),
    "shaders/gather.comp": ("gradients", "mappings", "cases"),
    "shaders/core/address.glsl": ("unpooling", "mappings", "cases"),
    "shaders/place.comp": ("unpooling", "mappings", "cases"),
    "shaders/pick.comp": ("unpooling", "mappings", "cases"),
    "shaders/accumulators/last.glsl": ("unpooling", "mappings", "cases"),
    "shaders/combine.comp": ("splitting", "layouts", "cases"),
    "dmlgpu/lowering/accumulators.py": ("reduce", "splitting", "layouts", "cases", "plans"),
    "dmlgpu/lowering/geometry.py": ("splitting", "cases", "plans"),
    "dmlgpu/lowering/loops.py": ("loops", "plans", "large"),
    "dmlgpu/lowering/limits.py": ("loops", "plans", "large"),
    "dmlgpu/lowering/lower.py": ("plans", "kernels", "splitting", "layouts", "cases"),
    "dmlgpu/lowering/split.py": ("splitting", "layouts", "cases", "plans"),
    "dmlgpu/lowering/kernels/columns.py": ("kernels", "splitting", "mappings", "cases", "plans", "loops"),
    "dmlgpu/lowering/kernels/combine.py": ("splitting", "layouts", "cases", "plans", "loops"),
    "dmlgpu/lowering/kernels/gather.py": ("gradients", "mappings", "cases", "plans", "loops"),
    "dmlgpu/lowering/kernels/place.py": ("unpooling", "mappings", "cases", "plans"),
    "dmlgpu/lowering/kernels/pick.py": ("unpooling", "mappings", "cases", "plans"),
    "dmlgpu/lowering/kernels/kernel.py": ("splitting", "layouts", "cases", "plans", "loops"),
    "dmlgpu/lowering/kernels/pool.py": ("windows", "splitting", "mappings", "cases", "plans", "loops"),
    "dmlgpu/lowering/kernels/reduce.py": ("splitting", "mappings", "cases", "plans", "loops"),
    "dmlgpu/lowering/kernels/rows.py": ("kernels", "splitting", "mappings", "cases", "plans", "loops"),
    "dmlgpu/lowering/kernels/sweep.py": ("windows", "mappings", "kernels", "cases", "plans", "loops"),
    "dmlgpu/lowering/kernels/windows.py": ("windows", "splitting", "mappings", "cases", "plans", "loops"),
    "dmlgpu/runtime/schedule.py": ("schedule", "reuse", "faults"),
    "dmlgpu/runtime/kompute.py": ("reuse", "devices", "faults"),
    "dmlgpu/runtime/memory.py": ("memory", "limits", "devices", "reuse"),
    "dmlgpu/runtime/tuning.py": ("limits", "devices", "faults", "splitting"),
    "dmlgpu/runtime/engine.py": ("devices", "device_tensors", "reuse", "faults"),
    "dmlgpu/runtime/compiled.py": ("reuse", "devices", "device_tensors", "layouts", "faults"),
    "dmlgpu/runtime/tensor.py": ("reduce", "device_tensors"),
    "dmlgpu/descriptors/tensor.py": ("tensor", "messages", "operators", "properties"),
    "dmlgpu/descriptors/operator.py": ("operators", "messages", "tensor", "properties"),
    "dmlgpu/descriptors/reduction.py": ("operators", "messages", "tensor", "properties"),
    "dmlgpu/descriptors/pooling.py": ("operators", "messages", "tensor", "properties"),
    "dmlgpu/runtime/spirv.py": ("shaders",),
    "dmlgpu/runtime/drivers.py": ("drivers", "selection", "faults"),
}


@dataclass(frozen=True)
class Result:
    number: int
    mutation: Mutation
    failed: tuple[str, ...]
    """The tests that failed, NEEDED of them at most."""
    fault: str
    """Why it says nothing about the tests."""
    seconds: float

    @property
    def is_good(self) -> bool:
        """Whether two tests notice the mutation, or none does if none can."""
        wanted = 0 if self.mutation.unseen else NEEDED
        return not self.fault and len(self.failed) == wanted

    @property
    def verdict(self) -> str:
        if self.fault:
            return f"FAULT: {self.fault}"
        if self.failed:
            return ("" if self.is_good else "NOT ENOUGH: ") + ", ".join(self.failed)
        return f"none can: {self.mutation.unseen}" if self.mutation.unseen else "SURVIVES"

    def __str__(self) -> str:
        what = f"{self.mutation.file}: {self.mutation.breaks}"
        return f"{self.number:3}  {what}\n     {self.verdict} ({self.seconds:.0f} s)"

    @property
    def row(self) -> str:
        """A row of a Markdown table."""
        cells = (str(self.number), self.mutation.file, self.mutation.breaks, self.verdict, f"{self.seconds:.0f}")
        return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


class Processes:
    """Commands in process groups of their own, which end when this program does."""

    def __init__(self) -> None:
        self.stopped = False
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()

    def run(self, command: Sequence[str], folder: Path, environment: dict[str, str]) -> tuple[int | None, str]:
        """The exit status, None at the time limit, and what was printed."""
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            with self._lock:
                if self.stopped:
                    return None, ""
                process = subprocess.Popen(
                    command,
                    cwd=folder,
                    env=environment,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    text=True,
                )
                self._running.add(process)
            try:
                status = process.wait(TIME_LIMIT)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                kill(process)
                with self._lock:
                    self._running.discard(process)
            output.seek(0)
            return status, output.read()

    def stop(self) -> None:
        """Ends all that runs; nothing starts any more."""
        with self._lock:
            self.stopped = True
            for process in self._running:
                kill(process)


def kill(process: subprocess.Popen[str]) -> None:
    """Ends a process and what it started and left behind."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Copy:
    """A copy of the checkout that may be broken."""

    def __init__(self, folder: Path, processes: Processes) -> None:
        self.folder = folder / "checkout"
        self._processes = processes
        # The editable installation of the checkout would be imported otherwise: it comes before every path.
        shadows = folder / "shadows"
        shadows.mkdir()
        (shadows / "_editable_skbc_dmlgpu.py").touch()
        self._environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": f"{shadows}{os.pathsep}{self.folder}",
            # A mutation may leave a file as long and as old, to the second, as it was.
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        command = ["git", "ls-files", "-z"]
        listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for name in filter(None, listed.split("\0")):
            target = self.folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target)
        self._checked("cmake", "-S", ".", "-B", "build")
        self.build()
        program = "import dmlgpu, dmlgpu.runtime.spirv as s; print(dmlgpu.__file__, s._FOLDER)"
        where = self._checked(sys.executable, "-c", program)
        package = self.folder / "dmlgpu"
        if where != f"{package / '__init__.py'} {package / 'spirv'}\n":
            raise RuntimeError(f"the copy in {self.folder} imports {where}")

    def _checked(self, *command: str) -> str:
        status, printed = self._processes.run(command, self.folder, self._environment)
        if status != 0:
            raise RuntimeError(f"{' '.join(command)} ended with {status}:\n{printed}")
        return printed

    @contextlib.contextmanager
    def mutated(self, mutation: Mutation) -> Iterator[None]:
        file = self.folder / mutation.file
        text = file.read_text()
        if text.count(mutation.pattern) != 1:
            raise RuntimeError(f"the pattern stands {text.count(mutation.pattern)} times in the file")
        file.write_text(text.replace(mutation.pattern, mutation.replacement))
        try:
            yield
        finally:
            # It is newer than what was built of it: the next build builds it again.
            file.write_text(text)

    def build(self) -> None:
        """Compiles the shaders that changed."""
        self._checked("cmake", "--build", "build")

    def failing(self, names: Iterable[str], chosen: Iterable[str] = ()) -> tuple[str, ...]:
        """The first tests of some files that fail, NEEDED of them at most; `chosen` are pytest's arguments."""
        files = [f"tests/test_{name}.py" for name in names]
        options = ["-v", "--tb=no", "--no-header", "-p", "no:cacheprovider", f"--maxfail={NEEDED}"]
        status, printed = self._processes.run(
            [sys.executable, "-m", "pytest", *options, *chosen, *files], self.folder, self._environment
        )
        failed = tuple(re.findall(r"^tests/(\S+\.py::.+) FAILED\b", printed, re.MULTILINE))[:NEEDED]
        if status in (0, 1) and not re.search(r"^ERROR ", printed, re.MULTILINE):
            return failed
        # Whatever ends a process or hangs is seen by everybody, but by no test.
        how = "time limit" if status is None else "a signal ended pytest" if status < 0 else "pytest had errors"
        last = [line for line in printed.splitlines() if line.startswith(("tests/", "ERROR", "E  "))][-1:]
        raise RuntimeError(f"{how} after {len(failed)} failed tests ({''.join(last) or printed[-200:]})")


def examine(copy: Copy, number: int, mutation: Mutation, thorough: bool) -> Result:
    begin = time.monotonic()
    failed: tuple[str, ...] = ()
    fault = ""
    try:
        with copy.mutated(mutation):
            copy.build()
            if thorough:
                failed = copy.failing(dict.fromkeys(name for names in LIKELY.values() for name in names))
            else:
                failed = copy.failing(LIKELY[mutation.file], FIRST)
    except RuntimeError as error:
        fault = str(error)
    return Result(number, mutation, failed, fault, time.monotonic() - begin)


def examine_all(mutations: Sequence[tuple[int, Mutation]]) -> list[Result]:
    """The results of all, in order; each is printed as soon as it is there."""
    waiting: queue.SimpleQueue[tuple[int, Mutation, bool]] = queue.SimpleQueue()
    for number, mutation in mutations:
        waiting.put((number, mutation, False))
    results: list[Result] = []
    errors: list[Exception] = []
    processes = Processes()

    def work(folder: Path) -> None:
        try:
            copy = Copy(folder, processes)
            while not processes.stopped:
                number, mutation, thorough = waiting.get_nowait()
                result = examine(copy, number, mutation, thorough)
                if processes.stopped:
                    return
                print(result, flush=True)
                if result.is_good or result.fault or thorough or mutation.unseen:
                    results.append(result)
                else:
                    waiting.put((number, mutation, True))
        except queue.Empty:
            return
        except Exception as error:
            errors.append(error)

    with contextlib.ExitStack() as stack:
        folders = [stack.enter_context(tempfile.TemporaryDirectory(prefix="mutants-")) for _ in range(COPIES)]
        threads = [threading.Thread(target=work, args=(Path(folder),)) for folder in folders]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            processes.stop()
            for thread in threads:
                thread.join()
    if errors:
        raise errors[0]
    return sorted(results, key=lambda result: result.number)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description="break the code in one place at a time"
    )
    parser.add_argument(
        "--only", metavar="SUBSTRING", default="", help="of a file's name, or of what a mutation breaks"
    )
    only = parser.parse_args().only
    chosen = [
        (number, mutation)
        for number, mutation in enumerate(MUTATIONS, 1)
        if only in mutation.file or only in mutation.breaks
    ]
    begin = time.monotonic()
    results = examine_all(chosen)
    print("\n| | file | what it breaks | noticed by | s |\n|---:|---|---|---|---:|")
    for result in results:
        print(result.row)
    bad = [result for result in results if not result.is_good]
    print(f"\n{len(results) - len(bad)} of {len(results)} as they should be, in {time.monotonic() - begin:.0f} s")
    for result in bad:
        print(result)
    return bool(bad) or not results


if __name__ == "__main__":
    sys.exit(main())
