"""Profiles: what is timed, what lies in what, and that a profile changes nothing else."""

import contextlib
import json
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
from tests.support.drivers import discrete, opened_as, unified
from tests.support.limits import LOWERED

X = np.random.default_rng(0).permutation(600).astype(np.float32).reshape(20, 30)
ROWS = arg_desc(ArgmaxOperatorDesc, FLOAT32, (20, 30), [1])
# One axis so long that it takes two passes.
LONG = arg_desc(ArgmaxOperatorDesc, FLOAT32, (1, 100_000), [1])
LONG_X = np.random.default_rng(1).standard_normal((1, 100_000), dtype=np.float32)


@pytest.fixture(params=["unified", "staged"])
def either(request, driver, kp):
    """A device that was just opened, and the same as if it were a GPU with memory of its own."""
    changes = {} if request.param == "unified" else discrete(driver)
    with opened_as(driver, **changes) as device:
        kp.counts.clear()
        yield device


def kinds(profile):
    """How many events of each kind there are, waiting left out: there is one for every time that the lock is taken."""
    return Counter(event.kind for event in profile.events if event.kind != "wait")


def of_kind(profile, *wanted):
    return [event for event in profile.events if event.kind in wanted]


def names(profile, kind):
    return [event.name for event in of_kind(profile, kind)]


def inside(event, holder):
    return event.thread == holder.thread and holder.begin <= event.begin <= event.end <= holder.end


def test_the_parts_of_a_first_call(either):
    began = time.perf_counter()
    with either.profile() as profile:
        argmax(X, 1, device=either)
    assert all(0 <= event.begin <= event.end <= time.perf_counter() - began for event in profile.events)
    copies = 1 if either.info.unified else 2
    once = dict.fromkeys(("call", "plan", "record", "compile", "dispatch"), 1)
    # On a device with memory of its own each of the two tensors has a buffer.
    assert kinds(profile) == once | dict.fromkeys(("allocate", "upload", "download"), copies)
    (call,) = of_kind(profile, "call")
    parts = [event for event in profile.events if event is not call]
    # The end of the profile takes the lock, too.
    assert [inside(part, call) for part in parts] == [True] * (len(parts) - 1) + [False]
    assert {part.kind for part in parts if part.kind in KINDS} == set(KINDS) - {"call", "batch"}
    (record,), (compiled,) = of_kind(profile, "record"), of_kind(profile, "compile")
    assert inside(compiled, record)
    order = [part.kind for part in parts if part.kind in ("plan", "upload", "record", "dispatch", "download")]
    assert list(dict.fromkeys(order)) == ["plan", "upload", "record", "dispatch", "download"] or not either.info.unified
    assert order[0] == "plan"
    assert order[-1] == "download"


def test_a_second_call_has_less(either):
    argmax(X, 1, device=either)
    with either.profile() as first:
        argmax(X, 1, device=either)
    with either.profile() as second:
        assert argmax(X, 1, device=either).tolist() == X.argmax(1).tolist()
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


def test_what_is_said_of_calls_and_plans(either):
    with either.profile() as profile:
        operator = either.compile(ROWS)
        operator(X)
    (call,), (plan,), (dispatch,) = (of_kind(profile, kind) for kind in ("call", "plan", "dispatch"))
    for event in call, plan:
        assert (event.name, event.operator, event.submitted) == ("ArgmaxOperatorDesc", ROWS, False)
    module = operator.plan.dispatches[0].shader.module
    assert names(profile, "compile") == [module]
    assert (dispatch.name, dispatch.operator, dispatch.submitted) == (module, ROWS, True)
    assert dispatch.bytes == X.nbytes + 20 * 4
    assert (dispatch.elements, dispatch.group_count) == (operator.plan.elements, either.limits.group_count)
    assert all(inside(event, call) for event in of_kind(profile, "upload", "dispatch", "download"))
    # It is compiled before it is called.
    assert plan.end <= of_kind(profile, "compile")[0].begin <= call.begin
    assert ROWS.summary == "ArgmaxOperatorDesc of FLOAT32 (20, 30) to UINT32 (20, 1)"


def test_each_dispatch_is_timed_alone(either, kp):
    operator, tensor = either.compile(LONG), either.tensor(LONG_X)
    kp.counts.clear()
    with either.profile() as profile:
        result = operator(tensor)
        assert kp.counts["submissions"] == 2
    assert names(profile, "dispatch") == [dispatch.shader.module for dispatch in operator.plan.dispatches]
    first, second = of_kind(profile, "dispatch")
    (call,) = of_kind(profile, "call")
    assert inside(first, call)
    assert inside(second, call)
    assert first.end <= second.begin
    # Partials are written, and read.
    partials = operator.plan.partial_bytes
    assert (first.bytes, second.bytes) == (LONG_X.nbytes + partials, partials + 4)
    assert 0 <= first.elements + second.elements - operator.plan.elements < 2
    assert result.numpy().item() == LONG_X.argmax()


def test_temporaries_count():
    def bytes_of(plan):
        return sum(tensor.size_in_bytes for tensor in (*plan.desc.inputs, *plan.desc.outputs))

    def handed_on(plan):
        return sum(tensor.size_in_bytes for tensor in plan.temporaries)

    plan = dmlgpu.explain(UNPOOLED[0].desc, device=None)
    moved = [plan.bytes_of(dispatch) for dispatch in plan.dispatches]
    assert min(moved) > 0
    assert sum(moved) <= bytes_of(plan) + 2 * handed_on(plan)
    plan = dmlgpu.explain(pool_desc(FLOAT32, (1, 1, 200, 200), (50, 50), indices=None))
    assert handed_on(plan)
    assert sum(map(plan.bytes_of, plan.dispatches)) == bytes_of(plan) + 2 * handed_on(plan)


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


def test_tensors_outside_calls(either):
    with either.profile() as profile:
        tensor = either.tensor(X)
        tensor.bytes()
    assert kinds(profile)["call"] == 0
    moves = 1 if either.info.unified else 2
    # What the host wrote, it has.
    assert (kinds(profile)["upload"], kinds(profile)["download"]) == (moves, 1)
    strided = TensorDesc(FLOAT32, (20, 30), (40, 1))
    memory = np.zeros(strided.size_in_bytes, np.uint8)
    with either.profile() as profile:
        either.tensor_from_bytes(memory, strided)
    assert of_kind(profile, "upload")[0].bytes == memory.size


def test_functions_and_operators_are_one_call_each(either):
    tensor = either.tensor(X)
    with either.profile() as profile:
        np.argmax(tensor, 1)
        either.compile(ROWS)(tensor)
        dmlgpu.verify(ROWS, X, device=either)
    assert kinds(profile)["call"] == kinds(profile)["dispatch"] == 3


def test_a_batch_in_a_profile(either):
    operator, tensor = either.compile(ROWS), either.tensor(X)
    with either.profile() as profile:
        with either.batch():
            results = [operator(tensor) for _ in range(3)]
        assert kinds(profile)["dispatch"] == 3
    (batch,) = of_kind(profile, "batch")
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
            # What was put off before is run before.
            assert kp.counts["submissions"] == 1
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

    def made():
        kp.counts.clear()
        assert operator(tensor).numpy().item() == LONG_X.argmax()
        assert small(X).reshape(-1).tolist() == X.argmax(1).tolist()
        assert small(-X).reshape(-1).tolist() == (-X).argmax(1).tolist()
        return +kp.counts

    made()
    before = made()
    with either.profile():
        during = made()
    # Nothing was recorded or made anew.
    assert made() == before
    assert before["submissions"] == 3
    assert during["submissions"] == 4
    assert before["sequences"] == 0


def test_a_profile_that_ended_stays_as_it_is(either):
    operator = either.compile(ROWS)
    with either.profile() as profile:
        operator(X)
    events, memory = profile.events, profile.memory
    operator(X)
    either.tensor(LONG_X)
    assert (profile.events, profile.memory) == (events, memory)
    with either.profile() as another:
        operator(X)
    assert profile.events == events
    assert kinds(another)["call"] == 1


def test_a_call_that_goes_on_at_the_end_is_no_part(fresh):
    with fresh.profile() as profile:
        going_on = fresh._engine.kompute.timed("call", "of another thread")
        going_on.__enter__()
    going_on.__exit__(None, None, None)
    assert names(profile, "call") == []


def test_without_a_profile_nothing_is_made(fresh):
    kompute = fresh._engine.kompute
    assert kompute.timed("call", "a") is kompute.timed("plan", "b")
    assert fresh._engine.lock is kompute.lock


def test_one_profile_at_a_time(either):
    operator = either.compile(ROWS)
    with either.profile() as profile:
        operator(X)
        with pytest.raises(DeviceError) as caught, either.profile():
            pytest.fail("it began")
        operator(X)
    assert str(caught.value) == f"device {either.info.name} is already being profiled; end that profile first"
    assert kinds(profile)["call"] == 2


def test_an_exception_ends_a_profile(either):
    operator, tensor = either.compile(ROWS), either.tensor(X)
    with pytest.raises(DescriptorError), either.profile() as profile:  # noqa: PT012
        operator(tensor)
        operator(X[:3])
    # The call that failed took time, too.
    assert (kinds(profile)["call"], kinds(profile)["dispatch"]) == (2, 1)
    with either.profile() as profile:
        operator(tensor)
    assert kinds(profile)["call"] == 1


@pytest.mark.parametrize("in_a_batch", [False, True])
def test_a_closed_device(driver, in_a_batch):
    device = Device(driver.index)
    with device.profile() as profile, device.batch() if in_a_batch else contextlib.nullcontext():
        device.compile(ROWS)(device.tensor(X))
        device.close()
        memory = profile.memory
    assert profile.memory == memory
    assert (kinds(profile)["call"], kinds(profile)["dispatch"]) == (1, not in_a_batch)
    assert profile.peak_bytes > 0
    check_trace(profile)
    with pytest.raises(DeviceError, match=r"is closed$"):
        device.profile().__enter__()


def test_a_lost_device(driver, kp):
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


def test_events_have_their_threads(either):
    operator, tensor = either.compile(ROWS), either.tensor(X)
    with either.profile() as profile:
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
    # Numbers of threads that ended are given again.
    named = {entry["args"]["name"] for entry in check_trace(profile) if entry["name"] == "thread_name"}
    assert threading.current_thread().name in named
    assert "worker 2" in named


def test_waiting_for_another_thread(fresh, kp):
    operator, tensor = fresh.compile(ROWS), fresh.tensor(X)
    second = threading.Thread(target=operator, args=(tensor,))

    def waits():
        """Runs where the first thread submits: starts the second one, and goes on when that waits for the lock."""
        kp.before = bool
        second.start()
        while sys._current_frames()[second.ident].f_code.co_name != "waiting":
            time.sleep(0.001)
        time.sleep(0.05)

    with fresh.profile() as profile:
        kp.before = waits
        operator(tensor)
        second.join()
    first, _ = of_kind(profile, "dispatch")
    wait = max(of_kind(profile, "wait"), key=lambda event: event.seconds)
    assert wait.thread != first.thread
    assert wait.begin < first.end < wait.end
    (call,) = (event for event in of_kind(profile, "call") if event.thread == wait.thread)
    assert inside(wait, call)


def test_memory_and_its_peak(either):
    kept = either.tensor(X)
    with either.profile() as profile:
        tensor = either.tensor(np.zeros(40 << 20, np.uint8))
        most = either.cache_info().tensor_bytes
        del tensor
        either.tensor(X)
        either.clear_cache()
        cleared = either.cache_info()
    begin, *between, end = profile.memory
    assert len(between) == 2
    assert begin.tensor_bytes == end.tensor_bytes == cleared.tensor_bytes
    assert between[0].tensor_bytes == max(memory.tensor_bytes for memory in profile.memory) == most >= 40 << 20
    assert profile.peak_bytes >= between[0].buffer_bytes > end.buffer_bytes
    assert all(memory.tensor_bytes <= memory.buffer_bytes for memory in profile.memory)
    times = [memory.at for memory in profile.memory]
    assert times == sorted(times)
    assert f"at most {profile.peak_bytes:,}; tensors use {end.tensor_bytes:,} of them" in str(profile)
    assert kept.numpy().tolist() == X.tolist()
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
    """Holds a trace to the Trace Event Format, and gives its entries."""
    trace = profile.trace()
    assert json.loads(json.dumps(trace, allow_nan=False)) == trace
    assert set(trace) == {"traceEvents", "displayTimeUnit"}
    assert trace["displayTimeUnit"] in ("ms", "ns")
    entries = trace["traceEvents"]
    tracks = {entry["tid"]: entry["args"]["name"] for entry in entries if entry["name"] == "thread_name"}
    assert [entry["args"]["name"] for entry in entries if entry["name"] == "process_name"] == ["dmlgpu"]
    assert len({entry["pid"] for entry in entries}) == 1
    (device,) = (track for track, name in tracks.items() if name == profile.device)
    # Perfetto takes 0 for the main thread.
    assert device not in {0, *(event.thread for event in profile.events)}
    for entry in entries:
        keys = {"M": {"tid"}, "C": {"ts"}, "X": {"tid", "ts", "dur", "cat"}}[entry["ph"]]
        assert set(entry) == {"ph", "pid", "name", "args"} | keys
        assert entry.get("ts", 0) >= 0
        assert entry.get("dur", 0) >= 0
        assert "tid" not in entry or entry["name"] == "process_name" or entry["tid"] in tracks
    spans = [entry for entry in entries if entry["ph"] == "X"]
    for track in tracks:
        # What begins in another ends in it: viewers draw no others.
        ends = []
        here = [entry for entry in spans if entry["tid"] == track]
        assert here == sorted(here, key=lambda entry: (entry["ts"], -entry["dur"]))
        for entry in here:
            while ends and ends[-1] <= entry["ts"]:
                ends.pop()
            end = entry["ts"] + entry["dur"]
            assert not ends or end <= ends[-1] + 1e-3
            assert not ends or track != device, "the device does one thing after the other"
            ends.append(end)
    return entries


def test_a_trace_has_tracks_for_threads_and_the_device(either):
    either.compile(LONG)
    with either.profile() as profile:
        either.compile(LONG)(LONG_X)
        with either.batch():
            either.compile(ROWS)(either.tensor(X))
    entries = check_trace(profile)
    device = next(entry["tid"] for entry in entries if entry["args"].get("name") == profile.device)
    spans = [entry for entry in entries if entry["ph"] == "X"]
    there = [entry for entry in spans if entry["tid"] == device]
    of_thread = [entry for entry in spans if entry["tid"] == threading.get_native_id()]
    assert [entry["name"] for entry in there] == [event.name for event in profile.events if event.submitted]
    assert Counter(entry["cat"] for entry in of_thread) == Counter(event.kind for event in profile.events)
    assert sum(entry["name"] == "submission" and entry["cat"] == "dispatch" for entry in of_thread) == 3
    (call,) = (entry for entry in of_thread if entry["cat"] == "call" and "100000" in entry["args"]["operator"])
    assert call["args"]["operator"] == LONG.summary
    event = of_kind(profile, "call")[0]
    assert (call["ts"], call["dur"]) == (1e6 * event.begin, 1e6 * event.seconds)
    dispatch = next(entry for entry in there if entry["cat"] == "dispatch")
    assert set(dispatch["args"]) == {"name", "operator", "bytes", "elements", "group_count"}
    counters = [entry for entry in entries if entry["ph"] == "C"]
    assert [sum(entry["args"].values()) for entry in counters] == [memory.buffer_bytes for memory in profile.memory]
    assert [entry["args"]["tensors"] for entry in counters] == [memory.tensor_bytes for memory in profile.memory]


def test_traces_are_saved(fresh, tmp_path):
    with fresh.profile() as profile:
        argmax(X, device=fresh)
    for path in (tmp_path / "trace.json", str(tmp_path / "again.json")):
        profile.save(path)
        assert json.loads(Path(path).read_text(encoding="utf-8")) == profile.trace()
    with pytest.raises(FileNotFoundError):
        profile.save(tmp_path / "no folder" / "trace.json")


def event(kind, name, begin, end, **more):
    return Event(kind, name, begin, end, more.pop("thread", 1), **more)


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
