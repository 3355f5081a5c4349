"""A plugin of pytest: keeps what tests gave in a file while they run, and ends the run when its time is over.

DMLGPU_KIT_TESTS names the file, DMLGPU_KIT_SECONDS is the time. A driver that ends the process leaves the name of the
test that it did so in.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

# Failures whose text is kept, and how much of each.
_FAILURES, _CHARACTERS = 20, 2000


class Progress:
    def __init__(self, file: Path, seconds: float) -> None:
        self._file = file
        self._end = time.monotonic() + seconds
        self._state: dict[str, Any] = {
            "passed": 0,
            "failed": 0,
            "skipped": 0,
            "of": 0,
            "running": None,
            "complete": False,
            "failures": [],
        }

    def _write(self) -> None:
        self._file.write_text(json.dumps(self._state), encoding="utf-8")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self._state["of"] = len(items)
        self._write()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._state["running"] = nodeid
        self._write()

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        state = self._state
        # What goes wrong before or after a test counts as its failure.
        if report.failed:
            state["failed"] += 1
            if len(state["failures"]) < _FAILURES:
                state["failures"].append({"test": report.nodeid, "text": report.longreprtext[-_CHARACTERS:]})
        elif report.when == "call" or report.skipped:
            state[report.outcome] += 1

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        yield
        if time.monotonic() > self._end:
            item.session.shouldstop = "time is over"

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._state["running"] = None
        self._state["complete"] = not session.shouldstop
        self._write()


def pytest_configure(config: pytest.Config) -> None:
    file, seconds = os.environ["DMLGPU_KIT_TESTS"], float(os.environ["DMLGPU_KIT_SECONDS"])
    config.pluginmanager.register(Progress(Path(file), seconds))
