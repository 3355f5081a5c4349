"""Profiles: the times of calls, as tables and as a trace."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from dmlgpu.descriptors.operator import OperatorDesc

# Kinds of events, in the order of the tables. `call` and `batch` contain the other kinds, and `record` contains
# `compile`.
KINDS = ("call", "batch", "wait", "plan", "allocate", "upload", "record", "compile", "dispatch", "download")


@dataclass(frozen=True)
class Event:
    """An event, with the host's times in seconds since the profile began."""

    kind: str
    """`call`: an operator or a function. `batch`: running pending steps. `wait`: waiting while other threads use the
    device. `plan`: planning. `allocate`: allocating a buffer. `upload` and `download`: copies between arrays, views and
    the device. `record`: recording a submission. `compile`: creating a pipeline. `dispatch`: a submission of one
    dispatch, from its start until the host sees its end."""
    name: str
    """For `call` and `plan` the descriptor's class; for `dispatch` and `compile` the module."""
    begin: float
    end: float
    thread: int
    """The operating system's number of the thread."""
    operator: OperatorDesc | None = None
    """Descriptor of a call, a plan or a dispatch."""
    bytes: int = 0
    """Bytes copied or allocated. For a dispatch its share of all bytes that its call reads and writes: a tensor that is
    read and written counts twice, and so does the workspace."""
    elements: int = 0
    """Approximate number of elements that a dispatch loads."""
    group_count: int = 0
    """Workgroups of a dispatch."""
    submitted: bool = False
    """Whether the event was a submission, for which the host waited."""

    @property
    def seconds(self) -> float:
        """Duration of the event."""
        return self.end - self.begin


@dataclass(frozen=True)
class Memory:
    """The device memory in use at one time, without the host copies of staged buffers."""

    at: float
    """Seconds since the profile began."""
    buffer_bytes: int
    """Bytes of all buffers: of tensors, of workspaces, and kept for later calls."""
    tensor_bytes: int
    """Bytes of these buffers that tensors and workspaces use."""


class Profile:
    """The events of a block of `Device.profile`; `print` shows tables.

    Attributes:
        device: the device's number and name.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self._origin = time.perf_counter()
        self._events: list[Event] = []
        self._memory: list[Memory] = []
        self._threads: dict[int, str] = {}
        self._is_active = True

    @property
    def events(self) -> tuple[Event, ...]:
        """All ended events, in the order of their starts; an event precedes the events that it contains."""
        return tuple(sorted(self._events, key=lambda event: (event.begin, -event.end)))

    @property
    def memory(self) -> tuple[Memory, ...]:
        """The memory in use: at the start, after each allocation, and at the end unless the device is closed."""
        return tuple(self._memory)

    @property
    def peak_bytes(self) -> int:
        """Maximum of `Memory.buffer_bytes`."""
        return max((memory.buffer_bytes for memory in self._memory), default=0)

    def trace(self) -> dict[str, Any]:
        """A trace in Chrome's Trace Event Format, ready for JSON: chrome://tracing and Perfetto show it.

        Each thread and the device have a track. While a thread waits for a submission, its track shows `submission`,
        and the device's track the submitted work. A counter shows the bytes of tensors and of free memory.
        """
        process = os.getpid()
        # A number that no thread has; Perfetto treats 0 as the main thread.
        track = 1 + max(self._threads, default=0)
        names = {track: self.device} | self._threads
        entries: list[dict[str, Any]] = [_metadata(process, 0, "process_name", "dmlgpu")]
        entries += [_metadata(process, number, "thread_name", name) for number, name in names.items()]
        for event in self.events:
            entry = {
                "ph": "X",
                "pid": process,
                "cat": event.kind,
                "ts": 1e6 * event.begin,
                "dur": 1e6 * event.seconds,
                "args": _arguments(event),
            }
            name = "submission" if event.submitted else event.name
            entries.append(entry | {"tid": event.thread, "name": name})
            if event.submitted:
                entries.append(entry | {"tid": track, "name": event.name})
        for memory in self._memory:
            # Viewers stack the two.
            used = {"tensors": memory.tensor_bytes, "free": memory.buffer_bytes - memory.tensor_bytes}
            entries.append({"ph": "C", "pid": process, "name": "memory", "ts": 1e6 * memory.at, "args": used})
        return {"traceEvents": entries, "displayTimeUnit": "ms"}

    def save(self, path: str | Path) -> None:
        """Writes the trace to a file, as JSON.

        Raises:
            OSError: the file cannot be written.
        """
        Path(path).write_text(json.dumps(self.trace()), encoding="utf-8")

    def __str__(self) -> str:
        """The tables of `kind_rows` and `run_rows`, and the memory, as plain text."""
        events = self.events
        parts = [self.device, _table(KIND_COLUMNS, kind_rows(events)), _table(RUN_COLUMNS, run_rows(events))]
        return "\n\n".join([*parts, self.memory_text])

    @property
    def memory_text(self) -> str:
        """The memory in use at the end, and its peak, in a line."""
        if not self._memory:
            return "memory: not recorded"
        now, tensors = self._memory[-1], max(memory.tensor_bytes for memory in self._memory)
        return (
            f"memory: {now.buffer_bytes:,} bytes in buffers, at most {self.peak_bytes:,}; "
            f"tensors use {now.tensor_bytes:,} of them, at most {tensors:,}"
        )

    # For other modules of this package, not for users

    def add(
        self,
        kind: str,
        name: str,
        begin: float,
        end: float,
        operator: OperatorDesc | None = None,
        size: int = 0,
        elements: int = 0,
        group_count: int = 0,
        submitted: bool = False,
    ) -> None:
        """Adds an event; begin and end are times of `time.perf_counter`."""
        if not self._is_active:  # a call of another thread may end after the profile
            return
        thread = threading.get_native_id()
        self._threads[thread] = threading.current_thread().name
        times = begin - self._origin, end - self._origin
        self._events.append(Event(kind, name, *times, thread, operator, size, elements, group_count, submitted))

    def add_memory(self, buffer_bytes: int, tensor_bytes: int) -> None:
        """Adds the current use of memory."""
        self._memory.append(Memory(time.perf_counter() - self._origin, buffer_bytes, tensor_bytes))

    @contextmanager
    def waiting(self, lock: AbstractContextManager[Any]) -> Iterator[None]:
        """Holds a lock in a block, and times the wait for it. The lock is released whenever Ctrl-C comes."""
        begin = time.perf_counter()
        with lock:
            self.add("wait", "waiting for the device", begin, time.perf_counter())
            yield

    @contextmanager
    def timing(self, kind: str, name: str, operator: OperatorDesc | None, size: int, submitted: bool) -> Iterator[None]:
        """Times a block as an event, even if an exception ends it."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.add(kind, name, begin, time.perf_counter(), operator, size, submitted=submitted)


def _metadata(process: int, track: int, kind: str, name: str) -> dict[str, Any]:
    """The entry of a trace that names the process or a track."""
    return {"ph": "M", "pid": process, "tid": track, "name": kind, "args": {"name": name}}


def _arguments(event: Event) -> dict[str, Any]:
    """The fields of an event, except its times."""
    values = {"name": event.name, "bytes": event.bytes, "elements": event.elements, "group_count": event.group_count}
    operator = {"operator": event.operator.summary} if event.operator else {}
    return operator | {name: value for name, value in values.items() if value}


# Tables

KIND_COLUMNS = ("kind", "count", "ms", "own ms", "share")
RUN_COLUMNS = ("kind", "name", "count", "ms", "median", "least", "largest", "GB/s", "operator")


def kind_rows(events: Sequence[Event]) -> list[tuple[str, ...]]:
    """For every kind of event: count, time, time without nested events, and the share in the sum of these times.

    Args:
        events: in the order of `Profile.events`.
    """
    exclusive = [event.seconds for event in events]
    # For each thread, the stack of events that may contain the next event.
    stacks: dict[int, list[int]] = {}
    for i, event in enumerate(events):
        stack = stacks.setdefault(event.thread, [])
        while stack and events[stack[-1]].end <= event.begin:
            stack.pop()
        if stack:
            exclusive[stack[-1]] -= event.seconds
        stack.append(i)
    total = sum(exclusive)
    rows: list[tuple[str, ...]] = []
    for kind in KINDS:
        indices = [i for i, event in enumerate(events) if event.kind == kind]
        seconds, without_nested = sum(events[i].seconds for i in indices), sum(exclusive[i] for i in indices)
        if indices:
            share = f"{without_nested / total:.1%}"
            rows.append((kind, f"{len(indices):,}", _ms(seconds), _ms(without_nested), share))
    return rows


def run_rows(events: Sequence[Event]) -> list[tuple[str, ...]]:
    """For every dispatch and copy of an operator: count, times in milliseconds, and GB (10^9 bytes) per second."""
    groups: dict[tuple[str, str, OperatorDesc | None], list[Event]] = {}
    for event in events:
        if event.kind in ("upload", "dispatch", "download"):
            groups.setdefault((event.kind, event.name, event.operator), []).append(event)
    rows = []
    for (kind, name, operator), group in groups.items():
        times = [event.seconds for event in group]
        figures = (_ms(seconds) for seconds in (sum(times), median(times), min(times), max(times)))
        # A clock may be too coarse for a copy, and measure 0.
        rate = f"{sum(event.bytes for event in group) / max(sum(times), 1e-9) / 1e9:.2f}"
        rows.append((kind, name, f"{len(group):,}", *figures, rate, operator.summary if operator else ""))
    return rows


def _ms(seconds: float) -> str:
    """Milliseconds as text."""
    return f"{1e3 * seconds:.3f}"


def _table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Text in columns: numbers aligned to the right, words to the left."""
    lines = [columns, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    words = {"kind", "name", "operator"}
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in words else cell.rjust(width)
            for cell, width, column in zip(line, widths, columns, strict=True)
        ).rstrip()
        for line in lines
    )
