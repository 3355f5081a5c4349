"""Profiles: what is timed, how events nest, and that a profile changes nothing else."""

import contextlib
import json
import re
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import dmlgpu
from dmlgpu import ArgmaxOperatorDesc, DescriptorError, Device, DeviceError, DeviceLostError, TensorDesc, argmax
from dmlgpu.runtime.profile import KINDS, Event, Profile, kind_rows, run_rows
from dmlgpu.runtime.schedule import RECORDED_STEPS
from dmlgpu.testing.cases import FLOAT32, UNPOOLED, arg_desc, pool_desc
from tests.support.drivers import opened_as, unified
from tests.support.errors import refuses
from tests.support.limits import LOWERED

X = np.random.default_rng(0).permutation(600).astype(np.float32).reshape(20, 30)
ROWS = arg_desc(ArgmaxOperatorDesc, FLOAT32, (20, 30), [1])
# An axis so long that it needs two passes.
LONG = arg_desc(ArgmaxOperatorDesc, FLOAT32, (1, 100_000), [1])
LONG_X = np.random.default_rng(1).standard_normal((1, 100_000), dtype=np.float32)


def kinds(profile):
    """Number of events of each kind, except waiting, which is an event whenever the lock is acquired."""
    return Counter(event.kind for event in profile.events if event.kind != "wait")


def of_kind(profile, *wanted):
    return [event for event in profile.events if event.kind in wanted]


def only(profile, kind):
    (event,) = of_kind(profile, kind)
    return event


def names(profile, kind):
    return [event.name for event in of_kind(profile, kind)]


def inside(event, holder):
    return event.thread == holder.thread and holder.begin <= event.begin <= event.end <= holder.end


def test_a_first_call_plans_compiles_copies_and_dispatches(either):
    began = time.perf_counter()
    with either.profile() as profile:
        argmax(X, 1, device=either)
    assert all(0 <= event.begin <= event.end <= time.perf_counter() - began for event in profile.events)
    copies = 1 if either.info.unified else 2
    once = dict.fromkeys(("call", "plan", "record", "compile", "dispatch"), 1)
    # On a device with memory of its own each of the two tensors has a buffer.
    assert kinds(profile) == once | dict.fromkeys(("allocate", "upload", "download"), copies)
    call = only(profile, "call")
    # The end of the profile acquires the lock, too.
    *parts, last = (event for event in profile.events if event is not call)
    assert all(inside(part, call) for part in parts)
    assert (last.kind, inside(last, call)) == ("wait", False)
    assert inside(only(profile, "compile"), only(profile, "record"))
    order = [part.kind for part in parts if part.kind in ("plan", "upload", "record", "dispatch", "download")]
    assert (order[0], order[-1]) == ("plan", "download")
    if either.info.unified:
        assert order == ["plan", "upload", "record", "dispatch", "download"]


def test_a_second_call_has_less(either):
    argmax(X, 1, device=either)
    with either.profile() as first:
        argmax(X, 1, device=either)
    with either.profile() as second:
        argmax(X, 1, device=either)
    to_device, to_host = ([], []) if either.info.unified else (["view to device"], ["device to view"])
    moves = 1 + len(to_device)
    assert kinds(second) == {"call": 1, "upload": moves, "dispatch": 1, "download": moves}
    assert kinds(first) - kinds(second) <= Counter({"record": 1})
    assert names(second, "upload") == ["array to view", *to_device]
    assert names(second, "download") == [*to_host, "view to array"]
    sizes = {event.name: event.bytes for event in of_kind(second, "upload", "download")}
    assert (sizes["array to view"], sizes["view to array"]) == (X.nbytes, 20 * 8)
    # Whole buffers are copied.
    assert all(sizes[name] >= X.nbytes for name in to_device)
    assert all(event.submitted for event in second.events if event.name in (*to_device, *to_host))


def test_events_have_names_operators_and_sizes(either):
    with either.profile() as profile:
        operator = either.compile(ROWS)
        operator(X)
    call, plan, compiled, dispatch = (only(profile, kind) for kind in ("call", "plan", "compile", "dispatch"))
    for event in call, plan:
        assert (event.name, event.operator, event.submitted) == ("ArgmaxOperatorDesc", ROWS, False)
    module = operator.plan.dispatches[0].shader.module
    assert compiled.name == module
    assert (dispatch.name, dispatch.operator, dispatch.submitted) == (module, ROWS, True)
    assert dispatch.bytes == X.nbytes + 20 * 4
    assert (dispatch.elements, dispatch.group_count) == (operator.plan.elements, either.limits.group_count)
    assert all(inside(event, call) for event in of_kind(profile, "upload", "dispatch", "download"))
    assert plan.end <= compiled.begin <= call.begin
    assert ROWS.summary == "ArgmaxOperatorDesc of FLOAT32 (20, 30) to UINT32 (20, 1)"


def test_each_dispatch_is_timed_alone(either, kp):
    operator, tensor = either.compile(LONG), either.tensor(LONG_X)
    kp.counts.clear()
    with either.profile() as profile:
        result = operator(tensor)
        assert kp.counts["submissions"] == 2
    assert names(profile, "dispatch") == [dispatch.shader.module for dispatch in operator.plan.dispatches]
    first, second = of_kind(profile, "dispatch")
    call = only(profile, "call")
    assert call.begin <= first.begin <= first.end <= second.begin <= second.end <= call.end
    # Partials are written, and read.
    partials = operator.plan.partial_bytes
    assert (first.bytes, second.bytes) == (LONG_X.nbytes + partials, partials + 4)
    assert 0 <= first.elements + second.elements - operator.plan.elements < 2
    assert result.numpy().item() == LONG_X.argmax()


def test_temporaries_count_as_bytes_of_dispatches():
    plan = dmlgpu.explain(pool_desc(FLOAT32, (1, 1, 200, 200), (50, 50), indices=None), device=None)
    tensors, temporaries = (
        sum(tensor.size_in_bytes for tensor in tensors)
        for tensors in ((*plan.desc.inputs, *plan.desc.outputs), plan.temporaries)
    )
    assert temporaries
    assert sum(map(plan.bytes_of, plan.dispatches)) == tensors + 2 * temporaries
    plan = dmlgpu.explain(UNPOOLED[0].desc, device=None)
    assert all(map(plan.bytes_of, plan.dispatches))


def test_bytes_are_shared_by_the_dispatches_of_a_segment(driver):
    with opened_as(driver, LOWERED, **unified(driver)) as device:
        operator = device.compile(arg_desc(ArgmaxOperatorDesc, FLOAT32, (30, 300), [1]))
        x = np.random.default_rng(0).standard_normal((30, 300), dtype=np.float32)
        plan = operator.plan
        assert len(plan.dispatches) > RECORDED_STEPS
        with device.profile() as profile:
            assert operator(x).reshape(-1).tolist() == x.argmax(1).tolist()
    assert names(profile, "dispatch") == [dispatch.shader.module for dispatch in plan.dispatches]
    assert kinds(profile)["upload"] == kinds(profile)["download"] == 1
    moved = sum(event.bytes for event in of_kind(profile, "dispatch"))
    assert moved == pytest.approx(x.nbytes + 30 * 4 + 2 * plan.partial_bytes, rel=0.05)


def test_copies_outside_calls_are_timed(either):
    strided = TensorDesc(FLOAT32, (20, 30), (40, 1))
    with either.profile() as profile:
        tensor = either.tensor_from_bytes(bytes(strided.size_in_bytes), strided)
        tensor.bytes()
    moves = 1 if either.info.unified else 2
    # What the host wrote is not downloaded.
    counts = kinds(profile)
    assert (counts["call"], counts["upload"], counts["download"]) == (0, moves, 1)
    assert of_kind(profile, "upload")[0].bytes == strided.size_in_bytes


def test_functions_and_operators_are_one_call_each(either):
    tensor = either.tensor(X)
    with either.profile() as profile:
        np.argmax(tensor, 1)
        either.compile(ROWS)(tensor)
        dmlgpu.verify(ROWS, X, device=either)
    assert kinds(profile)["call"] == kinds(profile)["dispatch"] == 3


def test_a_batch_in_a_profile_has_its_dispatches(either):
    operator, tensor = either.compile(ROWS), either.tensor(X)
    with either.profile() as profile:
        with either.batch():
            results = [operator(tensor) for _ in range(3)]
        assert kinds(profile)["dispatch"] == 3
    batch = only(profile, "batch")
    calls, dispatches = of_kind(profile, "call"), of_kind(profile, "dispatch")
    assert len(calls) == len(dispatches) == 3
    assert all(inside(dispatch, batch) for dispatch in dispatches)
    assert all(call.end <= batch.begin for call in calls)
    assert all(result.numpy().reshape(-1).tolist() == X.argmax(1).tolist() for result in results)


def test_a_profile_in_a_batch_has_its_own_calls(either, kp):
    operator, other = either.compile(ROWS), either.compile(LONG)
    tensor, long = either.tensor(X), either.tensor(LONG_X)
    with either.batch():
        before = operator(tensor)
        kp.counts.clear()
        with either.profile() as profile:
            assert kp.counts["submissions"] == 1  # of the calls before
            during = other(long)
            assert kinds(profile)["dispatch"] == 0
        assert kp.counts["submissions"] == 3
        after = operator(tensor)
    assert [event.operator for event in of_kind(profile, "dispatch")] == [LONG, LONG]
    assert kinds(profile)["batch"] == kinds(profile)["call"] == 1
    assert before.numpy().tolist() == after.numpy().tolist()
    assert during.numpy().item() == LONG_X.argmax()


def test_submissions_are_as_before_afterwards(either, kp):
    operator, small, tensor = either.compile(LONG), either.compile(ROWS), either.tensor(LONG_X)

    def counts():
        kp.counts.clear()
        assert operator(tensor).numpy().item() == LONG_X.argmax()
        for x in X, -X:
            assert small(x).reshape(-1).tolist() == x.argmax(1).tolist()
        return +kp.counts

    counts()
    before = counts()
    with either.profile():
        during = counts()
    assert counts() == before
    assert (before["sequences"], before["submissions"], during["submissions"]) == (0, 3, 4)


def test_a_call_that_goes_on_at_the_end_is_no_part(fresh):
    with fresh.profile() as profile:
        call = fresh._engine.kompute.timed("call", "of another thread")
        call.__enter__()
    call.__exit__(None, None, None)
    assert names(profile, "call") == []


def test_without_a_profile_nothing_is_timed(fresh):
    kompute = fresh._engine.kompute
    assert kompute.timed("call", "a") is kompute.timed("plan", "b")
    assert fresh._engine.lock is kompute.lock


def test_one_profile_at_a_time(fresh):
    operator = fresh.compile(ROWS)
    with fresh.profile() as profile:
        message = f"^device {re.escape(fresh.info.name)} is already being profiled; end that profile first$"
        refuses(message, fresh.profile().__enter__, error=DeviceError)
        operator(X)
    assert kinds(profile)["call"] == 1


def test_an_exception_ends_a_profile(fresh):
    operator, tensor = fresh.compile(ROWS), fresh.tensor(X)
    with pytest.raises(DescriptorError), fresh.profile() as profile:  # noqa: PT012
        operator(tensor)
        operator(X[:3])
    # The call that failed is timed, too.
    assert (kinds(profile)["call"], kinds(profile)["dispatch"]) == (2, 1)
    with fresh.profile() as profile:
        operator(tensor)
    assert kinds(profile)["call"] == 1


@pytest.mark.parametrize("in_a_batch", [False, True])
def test_a_device_may_be_closed_in_a_profile(driver, in_a_batch):
    device = Device(driver.index)
    with device.profile() as profile, device.batch() if in_a_batch else contextlib.nullcontext():
        device.compile(ROWS)(device.tensor(X))
        device.close()
        memory = profile.memory
    assert profile.memory == memory
    assert (kinds(profile)["call"], kinds(profile)["dispatch"]) == (1, not in_a_batch)
    assert profile.peak_bytes > 0
    check_trace(profile)
    refuses(r"is closed$", device.profile().__enter__, error=DeviceError)


def test_a_device_may_be_lost_in_a_profile(driver, kp):
    with Device(driver.index) as other, other.profile() as of_other:
        device = Device(driver.index)
        operator = device.compile(ROWS)
        kp.before = lambda: True
        with pytest.raises(DeviceLostError), device.profile() as profile:
            operator(X)
        kp.before = bool
    assert (kinds(profile)["call"], kinds(profile)["dispatch"]) == (1, 0)
    assert kinds(of_other)["call"] == 0
    check_trace(profile)


def test_events_have_their_threads(fresh):
    operator, tensor = fresh.compile(ROWS), fresh.tensor(X)
    with fresh.profile() as profile:
        threads = [threading.Thread(target=operator, args=(tensor,), name=f"worker {i}") for i in range(3)]
        for thread in threads:
            thread.start()
        operator(tensor)
        for thread in threads:
            thread.join()
    calls, dispatches = of_kind(profile, "call"), of_kind(profile, "dispatch")
    assert len(calls) == len(dispatches) == 4
    assert threading.get_native_id() in {call.thread for call in calls}
    for dispatch in dispatches:
        assert sum(inside(dispatch, call) for call in calls) == 1
    # Numbers of threads that ended are used again.
    labels = {entry["args"]["name"] for entry in check_trace(profile) if entry["name"] == "thread_name"}
    assert {threading.current_thread().name, "worker 2"} <= labels


def test_waiting_for_another_thread_is_timed(fresh, kp):
    operator, tensor = fresh.compile(ROWS), fresh.tensor(X)
    second = threading.Thread(target=operator, args=(tensor,))

    def start_second():
        """Starts the second thread while the first one submits, and returns when it waits for the lock."""
        kp.before = bool
        second.start()
        while sys._current_frames()[second.ident].f_code.co_name != "waiting":
            time.sleep(0.001)
        time.sleep(0.05)

    with fresh.profile() as profile:
        kp.before = start_second
        operator(tensor)
        second.join()
    first, _ = of_kind(profile, "dispatch")
    wait = max(of_kind(profile, "wait"), key=lambda event: event.seconds)
    assert wait.thread != first.thread
    assert wait.begin < first.end < wait.end
    (call,) = (event for event in of_kind(profile, "call") if event.thread == wait.thread)
    assert inside(wait, call)


def test_a_profile_has_the_memory_of_tensors_and_buffers(either):
    kept = either.tensor(X)
    with either.profile() as profile:
        tensor = either.tensor(np.zeros(40 << 20, np.uint8))
        most = either.cache_info().tensor_bytes
        del tensor
        either.tensor(X)
        either.clear_cache()
    begin, *between, end = profile.memory
    assert len(between) == 2
    assert begin.tensor_bytes == end.tensor_bytes == either.cache_info().tensor_bytes >= kept.nbytes
    assert between[0].tensor_bytes == max(memory.tensor_bytes for memory in profile.memory) == most >= 40 << 20
    assert profile.peak_bytes >= between[0].buffer_bytes > end.buffer_bytes >= end.tensor_bytes
    times = [memory.at for memory in profile.memory]
    assert times == sorted(times)


def test_a_profile_has_the_memory_of_partials(either):
    operator, tensor = either.compile(LONG), either.tensor(LONG_X)
    with either.profile() as profile:
        operator(tensor)
    used = [memory.tensor_bytes for memory in profile.memory]
    assert max(used) >= used[0] + operator.plan.partial_bytes


def test_the_peak_is_that_of_buffers():
    profile = Profile("device 0: a device")
    assert profile.peak_bytes == 0
    for sizes in ((10, 4), (30, 5), (20, 20)):
        profile.add_memory(*sizes)
    assert profile.peak_bytes == 30
    assert profile.memory_text == ("memory: 20 bytes in buffers, at most 30; tensors use 20 of them, at most 20")


def check_trace(profile):
    """The entries of a trace, which has the Trace Event Format."""
    trace = profile.trace()
    assert json.loads(json.dumps(trace, allow_nan=False)) == trace
    assert set(trace) == {"traceEvents", "displayTimeUnit"}
    assert trace["displayTimeUnit"] in ("ms", "ns")
    entries = trace["traceEvents"]
    tracks = {entry["tid"]: entry["args"]["name"] for entry in entries if entry["name"] == "thread_name"}
    assert [entry["args"]["name"] for entry in entries if entry["name"] == "process_name"] == ["dmlgpu"]
    assert len({entry["pid"] for entry in entries}) == 1
    (device,) = (track for track, name in tracks.items() if name == profile.device)
    # To Perfetto, 0 is the main thread.
    assert device not in {0, *(event.thread for event in profile.events)}
    for entry in entries:
        keys = {"M": {"tid"}, "C": {"ts"}, "X": {"tid", "ts", "dur", "cat"}}[entry["ph"]]
        assert set(entry) == {"ph", "pid", "name", "args"} | keys
        assert entry.get("ts", 0) >= 0
        assert entry.get("dur", 0) >= 0
        assert "tid" not in entry or entry["name"] == "process_name" or entry["tid"] in tracks
    for track in tracks:
        check_nesting([entry for entry in entries if entry["ph"] == "X" and entry["tid"] == track], track == device)
    return entries


def check_nesting(spans, is_flat):
    """Viewers need spans in order, each within the span in which it begins; spans of a device do not overlap."""
    assert spans == sorted(spans, key=lambda span: (span["ts"], -span["dur"]))
    ends = []
    for span in spans:
        while ends and ends[-1] <= span["ts"]:
            ends.pop()
        end = span["ts"] + span["dur"]
        assert not ends or (end <= ends[-1] + 1e-3 and not is_flat)
        ends.append(end)


def test_a_trace_has_tracks_for_threads_and_the_device(either):
    either.compile(LONG)
    with either.profile() as profile:
        either.compile(LONG)(LONG_X)
        with either.batch():
            either.compile(ROWS)(either.tensor(X))
    entries = check_trace(profile)
    device = next(entry["tid"] for entry in entries if entry["args"].get("name") == profile.device)
    of_device, of_thread = (
        [entry for entry in entries if entry["ph"] == "X" and entry["tid"] == track]
        for track in (device, threading.get_native_id())
    )
    assert [entry["name"] for entry in of_device] == [event.name for event in profile.events if event.submitted]
    assert Counter(entry["cat"] for entry in of_thread) == Counter(event.kind for event in profile.events)
    assert sum(entry["name"] == "submission" and entry["cat"] == "dispatch" for entry in of_thread) == 3
    call, event = next(entry for entry in of_thread if entry["cat"] == "call"), of_kind(profile, "call")[0]
    assert call["args"]["operator"] == LONG.summary
    assert (call["ts"], call["dur"]) == (1e6 * event.begin, 1e6 * event.seconds)
    dispatch = next(entry for entry in of_device if entry["cat"] == "dispatch")
    assert set(dispatch["args"]) == {"name", "operator", "bytes", "elements", "group_count"}
    counters = [entry["args"] for entry in entries if entry["ph"] == "C"]
    assert [(sum(counter.values()), counter["tensors"]) for counter in counters] == [
        (memory.buffer_bytes, memory.tensor_bytes) for memory in profile.memory
    ]


@pytest.mark.parametrize("kind", [Path, str])
def test_traces_are_saved(fresh, tmp_path, kind):
    with fresh.profile() as profile:
        argmax(X, device=fresh)
    profile.save(kind(tmp_path / "trace.json"))
    assert json.loads((tmp_path / "trace.json").read_text(encoding="utf-8")) == profile.trace()


def event(kind, name, begin, end, thread=1, **more):
    return Event(kind, name, begin, end, thread, **more)


EVENTS = (
    event("call", "A", 0.0, 1.0),
    event("upload", "array to view", 0.1, 0.2, bytes=4_000_000_000),
    event("record", "submission", 0.2, 0.5),
    event("compile", "rows", 0.3, 0.45),
    event("call", "A", 0.4, 0.8, thread=2),
    event("dispatch", "rows", 0.5, 0.6, bytes=10**9, operator=ROWS),
    event("dispatch", "rows", 0.6, 0.9, bytes=10**9, operator=ROWS),
    event("dispatch", "rows", 0.9, 1.0, bytes=10**9, operator=LONG),
)


def test_own_times_add_up_and_dispatches_of_an_operator_are_a_row():
    assert kind_rows(EVENTS) == [
        ("call", "2", "1400.000", "500.000", "35.7%"),
        ("upload", "1", "100.000", "100.000", "7.1%"),
        ("record", "1", "300.000", "150.000", "10.7%"),
        ("compile", "1", "150.000", "150.000", "10.7%"),
        ("dispatch", "3", "500.000", "500.000", "35.7%"),
    ]
    assert kind_rows(()) == []
    assert run_rows(EVENTS) == [
        ("upload", "array to view", "1", "100.000", "100.000", "100.000", "100.000", "40.00", ""),
        ("dispatch", "rows", "2", "400.000", "200.000", "100.000", "300.000", "5.00", ROWS.summary),
        ("dispatch", "rows", "1", "100.000", "100.000", "100.000", "100.000", "10.00", LONG.summary),
    ]


def test_a_profile_prints_tables(fresh):
    with fresh.profile() as profile:
        fresh.compile(ROWS)(X)
    device, kind, run, memory = str(profile).split("\n\n")
    header, *rows = kind.splitlines()
    assert device == f"device {fresh.info.index}: {fresh.info.name}"
    assert header.split()[:6] == ["kind", "count", "ms", "own", "ms", "share"]
    assert [row.split()[0] for row in rows] == [k for k in KINDS if k != "batch"]
    assert sum(float(row.split()[-1][:-1]) for row in rows) == pytest.approx(100, abs=1)
    assert len({len(row.split("%")[0]) for row in rows}) == 1
    (dispatched,) = (row for row in run.splitlines() if row.startswith("dispatch"))
    assert dispatched.split()[1] == of_kind(profile, "dispatch")[0].name
    assert dispatched.endswith(ROWS.summary)
    assert memory == profile.memory_text
    assert str(Profile("device 0: a device")).splitlines()[0] == "device 0: a device"
