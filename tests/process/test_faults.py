"""Faults of devices and processes raise an exception or do nothing; they never crash. Most tests start a process.

SwiftShader also runs the tests that depend on a driver: which device is opened, and how processes end and fork.
"""

import dataclasses
import os
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from dmlgpu import (
    ArgmaxOperatorDesc,
    Device,
    DeviceError,
    DeviceLostError,
    DeviceTensor,
    OutOfMemoryError,
    TensorDesc,
    argmax,
)
from dmlgpu.lowering.limits import segment_sizes
from dmlgpu.lowering.lower import lower
from dmlgpu.runtime.device import open_device
from dmlgpu.runtime.tuning import device_limits
from dmlgpu.testing.cases import CASES, FLOAT32, UINT8, arg_desc
from tests.support.drivers import opened_as
from tests.support.errors import refuses
from tests.support.plans import check_limits
from tests.support.processes import OPENED, PRELUDE, RESULT, ROOT, run

# Seconds that the threads of test_threads_with_mixed_operators_share_a_device compute.
THREAD_SECONDS = float(os.environ.get("DMLGPU_TEST_THREAD_SECONDS", "3"))
X = np.array([[1, 2, 3], [3, 0, 4], [2, 5, 2]], np.float32)
ARGMAX = arg_desc(ArgmaxOperatorDesc, FLOAT32, (3, 3), [1])
INDICES = [[2], [2], [1]]


@pytest.mark.every_driver
def test_the_device_that_runs_is_the_one_that_was_chosen(driver):
    # Kompute may enumerate other drivers than dmlgpu did before, or the same ones in another order.
    program = """
import dataclasses, dmlgpu.runtime.device
chosen = devices()[index]
changes = {"name": "another"}, {"uuid": "00" * 16}, {"max_group_size": 7}, {"index": 1 - index}, {"index": 99}
for change in changes:
    dmlgpu.runtime.device.select = lambda selector: dataclasses.replace(chosen, **change)
    print(outcome(Device))
dmlgpu.runtime.device.select = lambda selector: chosen
with Device() as device:
    print(device.compile(desc)(x).tolist())
"""
    name, uuid, size, index, beyond, result = run(PRELUDE + program, driver)
    for error in (name, uuid, size, index):
        assert error.startswith("DeviceError: device ")
        assert error.endswith(": the devices have changed; open a Device again")
    assert f"another with UUID {driver.uuid}, but Kompute opened {driver.name}, " in name
    opened = f"but Kompute opened {driver.name}, and the device with this index now has UUID {driver.uuid}:"
    assert f"{driver.name} with UUID {'00' * 16}, {opened}" in uuid
    assert beyond.startswith(f"DeviceError: Kompute cannot open device 99 ({driver.name}): ")
    assert result == RESULT


@pytest.mark.every_driver
def test_drivers_that_change_while_a_device_is_opened_are_a_device_error(driver):
    program = """
import dmlgpu_kp
from unittest.mock import patch
manager = dmlgpu_kp.Manager
def of_the_other_driver(index):
    names = "VK_DRIVER_FILES", "VK_ICD_FILENAMES"
    files = {name: [file for file in os.environ[name].split(os.pathsep) if chosen not in file] for name in names}
    with patch.dict(os.environ, {name: os.pathsep.join(files[name]) for name in names}):
        return manager(0)
dmlgpu_kp.Manager = of_the_other_driver
chosen = "lvp" if "llvmpipe" in devices()[index].name else "swiftshader"
print(outcome(Device, index))
"""
    (error,) = run(PRELUDE + program, driver)
    assert error.startswith(f"DeviceError: device {driver.index} was {driver.name} with UUID ")


# Memory; test_devices.py has more tests


@pytest.mark.parametrize(
    ("storage_range", "largest"),
    [(1 << 27, 1 << 27), ((1 << 32) - 1, (1 << 32) - 256), (1 << 40, (1 << 32) - 256)],
)
def test_tensors_beyond_a_buffer_are_split(driver, kp, storage_range, largest):
    roomy = {"heaps": (1 << 40,) * len(driver.heaps), "max_memory_allocation_size": 1 << 40}
    desc = TensorDesc(UINT8, ((1 << 32) - 1,), None, 9 << 30)
    kp.most_bytes = 256
    with opened_as(driver, **roomy, max_storage_buffer_range=storage_range) as device:
        kp.asked_bytes.clear()
        DeviceTensor(device, desc)
        assert device.limits.full_segment(desc) == max(kp.asked_bytes) == largest
        assert sum(segment_sizes(desc, largest)) == 9 << 30 <= sum(kp.asked_bytes)


def test_a_failed_call_releases_its_memory(driver, kp):
    # Inputs have segments of 64 KiB; the heap, or the number of allocations, suffices for the first segment only.
    limits = dataclasses.replace(device_limits(driver), segment_bytes=64 << 10)
    for changes in ({"heaps": (400 << 10,) * len(driver.heaps)}, {"max_memory_allocation_count": 8}):
        with opened_as(driver, unified=False, **changes) as device:
            device.limits = limits
            held = device.tensor(np.zeros(64 << 10, np.uint8))
            before = kp.alive_bytes
            for _ in range(3):
                with pytest.raises(OutOfMemoryError):
                    device.tensor(np.zeros(192 << 10, np.uint8))
                device.clear_cache()
                assert kp.alive_bytes == before
            assert device.tensor(np.full(64 << 10, 7, np.uint8)).numpy().min() == 7
            assert held.numpy().max() == 0


# Limits as low as Vulkan allows

MINIMUM = {
    "max_storage_buffer_range": 1 << 27,
    "max_memory_allocation_size": 1 << 30,
    "max_group_size": 128,
    "max_group_count": 65_535,
}


@pytest.mark.every_driver  # plans of SwiftShader unroll nothing
def test_plans_keep_to_the_least_that_vulkan_promises(driver):
    """The device is a CPU; test_limits.py also runs a GPU with such limits."""
    limits = device_limits(dataclasses.replace(driver, type="cpu", **MINIMUM))
    # In columns_cooperating.comp an invocation shares at most 8 states of 24 bytes (LOG_SUM_EXP).
    assert limits.group_size * 8 * 24 <= 16 << 10
    for case in CASES:
        check_limits(case.plan(limits), limits)


@pytest.fixture
def clock(kp, monkeypatch):
    """A false clock: the first submission, which compiles, lasts 10 s, and then each dispatch lasts `seconds`.

    `lengths` has the number of dispatches of every submission.
    """
    clock = SimpleNamespace(now=0.0, seconds=0.0, lengths=[])

    def advance():
        if kp.dispatches:
            clock.now += kp.dispatches * clock.seconds if clock.lengths else 10.0
            clock.lengths.append(kp.dispatches)

    kp.after = advance
    monkeypatch.setattr("dmlgpu.runtime.kompute.time", SimpleNamespace(perf_counter=lambda: clock.now))
    return clock


@pytest.mark.parts_of_buffers
def test_submissions_are_cut_by_the_measured_speed(driver, clock):
    x = np.random.default_rng(0).permutation(600).astype(np.float32).reshape(20, 30)
    clock.seconds = 0.09
    with opened_as(driver) as device:
        operator, tensor = device.compile(arg_desc(ArgmaxOperatorDesc, FLOAT32, (20, 30), [1])), device.tensor(x)
        # The first submission compiles, the second is too long, and its duration shortens all others.
        for submissions in [9], [9], [2, 2, 2, 2, 1], [2, 2, 2, 2, 1]:
            before = len(clock.lengths)
            with device.batch():
                results = [operator(tensor) for _ in range(9)]
            assert clock.lengths[before:] == submissions
            assert all(result.numpy().reshape(-1).tolist() == x.argmax(1).tolist() for result in results)
            del results


# Rows of the input, seconds of a dispatch by the number of dispatches, dispatches in each call, number of plans.
SLOW_DISPATCHES = {
    # The time of compiling counts for nothing. The next call lasts 0.8 s; each of four parts lasts 0.2 s.
    "evenly": (20_000, lambda count: 0.8 / count, [1, 4, 4, 4], 2),
    # Each plan has four times the dispatches of the last one, because something else may be slow; 64 rows at least.
    "always": (1000, lambda count: 30.0, [1, 4, 16, 16, 16, 16, 16, 16], 4),
}


@pytest.mark.parametrize(("rows", "seconds", "expected", "planned"), SLOW_DISPATCHES.values(), ids=SLOW_DISPATCHES)
def test_dispatches_of_a_gpu_are_split_by_the_measured_speed(
    driver, clock, monkeypatch, rows, seconds, expected, planned
):
    plans = []
    monkeypatch.setattr("dmlgpu.runtime.compiled.lower", lambda *args: plans.append(args) or lower(*args))
    x = np.random.default_rng(0).integers(0, 99, (rows, 30)).astype(np.float32)
    with opened_as(driver, type="integrated", max_group_count=16) as device:
        operator, tensor = device.compile(arg_desc(ArgmaxOperatorDesc, FLOAT32, x.shape, [1])), device.tensor(x)
        counts = []
        for _ in expected:
            clock.seconds = seconds(len(operator.plan.dispatches))
            assert np.array_equal(operator(tensor).numpy().reshape(-1), x.argmax(1))
            counts.append(len(operator.plan.dispatches))
    assert counts == expected
    assert len(plans) == planned


INTERRUPTED = """
from dmlgpu.lowering.limits import Limits
from dmlgpu.runtime import schedule
from tests.support.kompute_seam import Seam
kp = Seam().install()
# The operator has hundreds of dispatches, each in a submission.
schedule.SUBMISSION_SECONDS = 0
device = Device(index, limits=Limits(segment_bytes=256, group_size=32, group_count=3, partial_bytes=512))
y = np.random.default_rng(0).permutation(20_000).astype(np.float32)
count = 0
signal.signal(signal.SIGINT, signal.default_int_handler)  # children of the shells of some CI ignore SIGINT
def interrupt():
    global count
    count += 1
    if count == stop:
        os.kill(os.getpid(), signal.SIGINT)
kp.after = interrupt
stop = 0
assert argmax(y, device=device).item() == y.argmax()
total, count, stop = count, 0, 5
try:
    argmax(y, device=device)
except KeyboardInterrupt:
    print("interrupted after", count, "of more than", min(total, 20))
stop = 0
print(argmax(y, device=device).item() == y.argmax())
"""


def test_ctrl_c_is_heard_between_submissions_and_leaves_the_device_usable(driver):
    assert run(PRELUDE + INTERRUPTED, driver) == ["interrupted after 5 of more than 20", "True"]


# Ctrl-C comes at any line of dmlgpu that a call runs. Python handles signals when it enters a function and after a
# function of C returns; it drops errors of finalizers.
ANYWHERE = """
import _thread
from pathlib import Path
from tests.support.kompute_seam import Seam
kp = Seam().install()
package = str(Path(dmlgpu.__file__).parent)
y = np.random.default_rng(0).permutation(3000).astype(np.float32).reshape(1, -1)
device = Device(index)
desc = ArgmaxOperatorDesc(TensorDesc.of(y), TensorDesc(DataType.UINT32, (1, 1)), (1,))
operator, tensor = device.compile(desc), device.tensor(y)

class Signal(int):
    # An attribute is no call: after a call Python handles signals, but not always at the traced line.
    sent = property(_thread.interrupt_main)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.unraisablehook = lambda unraisable: None
interrupt = Signal(signal.SIGINT)

def interrupted(call, at):
    lines = 0
    def line(frame, event, arg):
        nonlocal lines
        lines += event == "line"
        if lines == at:
            sys.settrace(None)
            interrupt.sent
        return line
    def enter(frame, event, arg):
        return line if frame.f_code.co_filename.startswith(package) else None
    sys.settrace(enter)
    try:
        call()
        time.sleep(0)
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    return lines >= at

def anew():
    device.clear_cache()
    device.compile(desc)(y)

def batch():
    with device.batch():
        results = operator(tensor), operator(tensor)
    results[0].numpy()

def profiled():
    with device.profile():
        operator(tensor)

def kept():
    gc.collect()
    tensor_bytes, submissions = device.cache_info().tensor_bytes, kp.counts["submissions"]
    # No call is deferred any more.
    operator(tensor)
    return tensor_bytes, kp.counts["submissions"] - submissions

def buffers():
    device.clear_cache()
    return len(kp.alive_bytes)

def right():
    with device.profile():  # raises an error during another profile
        return device.compile(desc)(y).item() == operator(tensor).numpy().item() == y.argmax()

assert right()
gc.freeze()  # collecting is quick
before, alive = kept(), buffers()
calls = (anew, 37), (lambda: operator(y), 3), (lambda: operator(tensor).numpy(), 3), (batch, 1), (profiled, 1)
for call, step in calls:
    at = 1
    while interrupted(call, at):
        assert right(), at
        assert kept() == before, (at, kept(), before)
        # The next call then replays recorded steps, and runs the same lines.
        call()
        at += step
    assert buffers() == alive
    print(at > 100)
"""


def test_an_interrupt_anywhere_in_a_call_leaves_nothing_behind(driver):
    assert run(PRELUDE + ANYWHERE, driver) == ["True"] * 5


# Lost devices. If vkQueueSubmit or vkWaitForFences fails, Kompute's eval() returns without an error, and outputs keep
# their old contents. It raises an error if it cannot create a fence.


@pytest.mark.parametrize(
    ("memory", "where", "how"),
    [
        ("unified", "call", "raises"),
        ("unified", "call", "returns"),
        ("unified", "chained", "returns"),
        ("unified", "batch", "raises"),
        ("unified", "read_in_a_batch", "returns"),
        ("staged", "call", "returns"),
        ("staged", "upload", "raises"),
        ("staged", "download", "returns"),
        ("staged", "batch", "raises"),
    ],
)
def test_a_lost_device_is_an_error_and_a_new_one_works(driver, kp, how, memory, where):
    reason = "vk::Device::createFence: ErrorDeviceLost" if how == "raises" else "the driver did not run the submission"

    def lose():
        if how == "raises":
            raise RuntimeError(reason)
        return True

    with opened_as(driver, **{"unified": False} if memory == "staged" else {}) as device:
        operator, tensor = device.compile(ARGMAX), device.tensor(X)
        computed = operator(tensor)

        def batch():
            with device.batch():
                operator(tensor), operator(tensor)

        def read_in_a_batch():
            with device.batch():
                operator(tensor).numpy()

        calls = {"call": lambda: operator(-X), "chained": lambda: operator(tensor), "upload": lambda: device.tensor(X)}
        calls |= {"download": computed.numpy, "batch": batch, "read_in_a_batch": read_in_a_batch}
        message = f"^{re.escape(f'device {driver.name} is lost and closed: {reason}; open a new Device')}$"
        kp.before = lose
        refuses(message, calls[where], error=DeviceLostError)
        kp.before = bool
        assert not device.is_open
        for use in calls[where], tensor.numpy, lambda: operator(X), device.cache_info:
            refuses(message, use, error=DeviceLostError)
    with Device(driver.index) as device:
        assert device.compile(ARGMAX)(X).tolist() == INDICES


def test_functions_open_a_new_default_device_after_the_last_was_lost(driver, kp, monkeypatch):
    monkeypatch.setenv("DMLGPU_DEVICE", str(driver.index))
    monkeypatch.setattr("dmlgpu.runtime.device._devices", {})
    lost = open_device()
    kp.before = lambda: True
    refuses("is lost and closed", argmax, X, 1, error=DeviceLostError)
    kp.before = bool
    assert argmax(X, 1, keepdims=True).tolist() == INDICES
    with open_device() as device:
        assert device is not lost
    assert str(lost) == f"<dmlgpu.Device {driver.index}: {driver.name}, lost>"


# Forks and new processes

FORK = """
child = os.fork()
if child == 0:
    uses = (
        lambda: operator(x),
        lambda: operator(tensor),
        lambda: tensor.numpy(),
        lambda: device.tensor(x),
        lambda: device.compile(operator.desc),
        lambda: argmax(x, device=device),
    )
    text = f"DeviceError: device {device.info.name} was opened in process {os.getppid()} and cannot be used in its fork"
    print([str(outcome(use)).startswith(text) for use in uses], flush=True)
    print(outcome(Device, index), flush=True)
    print(outcome(devices), flush=True)
    os.environ["DMLGPU_DEVICE"] = str(index)
    print(outcome(argmax, x), flush=True)
    del tensor, operator
    device.close()
else:
    print(os.waitpid(child, 0)[1], operator(x).tolist())
"""


@pytest.mark.every_driver
def test_forked_child_gets_a_device_error_and_the_parent_lives(driver):
    opened, uses, new, listed, default, parent = run(OPENED + FORK, driver)
    assert uses == str([True] * 6)
    assert new == default
    assert new.startswith("DeviceError: process ")
    assert new.endswith(
        "is the fork of a process with open devices, NVIDIA's driver, or a thread that was listing devices; "
        "drivers may hang here; open a device in a process that is started by spawn"
    )
    assert listed == new
    assert (opened, parent) == (RESULT, f"0 {RESULT}")


NVIDIA = """
import dataclasses, dmlgpu.runtime.device
def libraries():
    return {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}
unused, chosen = libraries(), devices()[index]
for driver in chosen.driver, "NVIDIA 580.159.04":
    dmlgpu.runtime.device.select = lambda selector: dataclasses.replace(chosen, driver=driver)
    device = Device()
    opened = libraries()
    device.close()
    kept = libraries()
    # Without the flush, the fork would write the line again.
    print(opened - unused != set(), opened - kept == set(), flush=True)
child = os.fork()
if child == 0:
    print(outcome(devices), flush=True)
    os._exit(0)
print(os.waitpid(child, 0)[1], len(devices()) > 0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc limits static TLS; /proc")
def test_the_driver_of_nvidia_stays_loaded(driver):
    usual, nvidia, child, parent = run(PRELUDE + NVIDIA, driver)
    assert (usual, nvidia, parent) == ("True False", "True True", "0 True")
    assert child.startswith("DeviceError: process ")


# Another thread creates an instance or opens a device, and drivers hold their locks.
FORK_WHILE_LOOKING = """
import dmlgpu_kp, vulkan
inside, done = threading.Event(), threading.Event()
module, name = {"look": (vulkan, "vkCreateInstance"), "open": (dmlgpu_kp, "Manager")}[what]
function = getattr(module, name)
def slow(*args):
    inside.set()
    done.wait()
    return function(*args)
setattr(module, name, slow)
thread = threading.Thread(target=lambda: Device(index).close())
thread.start()
inside.wait()
child = os.fork()
if child == 0:
    print(*(str(outcome(use)).partition("process")[0] for use in (devices, Device)), flush=True)
    sys.exit()
status = os.waitpid(child, 0)[1]
done.set()
thread.join()
# A child may open a device if no thread lists devices.
child = os.fork()
if child == 0:
    with Device(index) as device:
        print(device.compile(desc)(x).tolist(), flush=True)
    os._exit(0)
print(status, os.waitpid(child, 0)[1], flush=True)
"""


@pytest.mark.every_driver
@pytest.mark.parametrize("what", ["look", "open"])
def test_a_fork_while_a_thread_looks_for_devices_gets_a_device_error(driver, what):
    errors, result, statuses = run(f"{PRELUDE}\nwhat = {what!r}\n{FORK_WHILE_LOOKING}", driver)
    assert (errors, result, statuses) == ("DeviceError:  DeviceError: ", RESULT, "0 0")


# Spawned processes import the main module, which must be a file.
PROCESSES = """
def with_parents_device(_):
    return str(outcome(operator, x)).partition(" was opened")[0]

def with_own_device(index):
    with Device(index) as device:
        return device.compile(desc)(x).tolist()

def pools(method):
    context = multiprocessing.get_context(method)
    return context.Pool(2), concurrent.futures.ProcessPoolExecutor(2, mp_context=context)

if __name__ == "__main__":
    device = Device(index)
    operator = device.compile(desc)
    print(operator(x).tolist())
    for pool in pools("fork"):
        with pool:
            print(list(pool.map(with_parents_device, range(4))))
            print(str(outcome(lambda: list(pool.map(with_own_device, [index])))).partition(":")[0])
    for pool in pools("spawn"):
        with pool:
            print(list(pool.map(with_own_device, [index] * 4)))
    print(operator(x).tolist())
"""


def test_spawned_processes_compute_and_forked_ones_get_a_device_error(driver, tmp_path):
    (tmp_path / "program.py").write_text(PRELUDE + PROCESSES)
    start = f"import runpy, sys; sys.path.insert(0, {str(ROOT)!r}); sys.argv[0] = {str(tmp_path / 'program.py')!r}"
    first, *pools, last = run(f"{start}; runpy.run_path(sys.argv[0], run_name='__main__')", driver)
    assert first == last == RESULT
    assert pools[:4] == [str([f"DeviceError: device {driver.name}"] * 4), "DeviceError"] * 2
    assert pools[4:] == [str([[[2], [2], [1]]] * 4)] * 2


# Threads

THREADS = """
os.environ["DMLGPU_DEVICE"] = str(index)
device = Device(index)
end = time.monotonic() + float(sys.argv[2])
calls = 0

def rows(y):
    assert (argmax(y, 1).reshape(-1) == y.argmax(1)).all()

def windows(y):
    values, indices = max_pooling(y[None, None], (2, 2), output_indices=True, device=device)
    assert (values[0, 0] == np.lib.stride_tricks.sliding_window_view(y, (2, 2)).max((2, 3))).all()
    assert (y.reshape(-1)[indices] == values).all()

def batch(y):
    compiled = device.compile(ArgmaxOperatorDesc.of(y, (0,)))
    with device.batch():
        results = [compiled(device.tensor(y)) for _ in range(2)]
    assert all((result.numpy().reshape(-1) == y.argmax(0)).all() for result in results)

def copy(y):
    assert (device.tensor(y).numpy() == y).all()

def clear(y):
    device.clear_cache()
    gc.collect()

def work(seed):
    global calls
    rng = np.random.default_rng(seed)
    while time.monotonic() < end:
        shape = tuple(rng.integers(2, 40, 2))
        y = rng.permutation(shape[0] * shape[1]).astype(rng.choice([np.float32, np.int64, np.uint16])).reshape(shape)
        (rows, windows, batch, copy, clear)[rng.integers(5)](y)
        calls += 1

threads = [threading.Thread(target=work, args=(seed,), daemon=True) for seed in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(float(sys.argv[2]) + 100)
print(any(thread.is_alive() for thread in threads), calls > 8)
"""


@pytest.mark.every_driver
def test_threads_with_mixed_operators_share_a_device(driver):
    """An error in a thread is written to stderr, and fails the test."""
    program = f"import sys; sys.argv.append('{THREAD_SECONDS}')\n" + PRELUDE + THREADS
    assert run(program, driver, THREAD_SECONDS + 150) == ["False True"]


# Ends

KEEP = "import builtins; builtins.kept = device, operator, tensor"
ENDINGS = {
    "end of the program": "",
    "exit": "raise SystemExit(0)",
    "closed": "device.close()",
    "kept in a module": KEEP,
    "closed and kept in a module": f"{KEEP}; device.close()",
    "cycle": "device.self = device; tensor.self = tensor; del device, operator, tensor",
    "exit in a batch": "with device.batch(): result = operator(device.tensor(x)); raise SystemExit(0)",
    "closed in a batch": "with device.batch(): result = operator(device.tensor(x)); device.close()",
}


@pytest.mark.every_driver
@pytest.mark.parametrize("ending", ENDINGS)
def test_process_ends_well(driver, ending):
    assert run(OPENED + ENDINGS[ending], driver) == [RESULT]


ANY_ORDER = """
import itertools
def collected(order, closing):
    device = Device(index)
    things = {"device": device, "operator": device.compile(desc), "tensor": device.tensor(x)}
    things["result"] = things["operator"](things["tensor"])
    if closing:
        device.close()
    del device
    for name in order:
        del things[name]
        gc.collect()
for order in list(itertools.permutations(("device", "operator", "tensor", "result")))[::3]:
    for closing in (False, True):
        collected(order, closing)
print("well")
"""


@pytest.mark.every_driver
def test_garbage_may_be_collected_in_any_order(driver):
    assert run(PRELUDE + ANY_ORDER, driver) == ["well"]


class Calling:
    """An array whose conversion calls a function."""

    def __init__(self, function):
        self.function = function

    def __array__(self, dtype=None, copy=None):
        self.function()
        return X


def test_no_device_is_closed_in_the_middle_of_its_own_call(driver, monkeypatch):
    """A signal handler or a finalizer may try it anywhere."""
    error = f"^{re.escape(f'device {driver.name} cannot be closed during a call')}$"
    with Device(driver.index) as device:
        operator = device.compile(ARGMAX)
        tensor = operator(device.tensor(X))
        refuses(error, operator, Calling(device.close), error=DeviceError)
        assert operator(X).tolist() == INDICES
        # `elements` reads the memory of the device.
        monkeypatch.setattr("dmlgpu.runtime.tensor.elements", lambda *_: device.close())
        refuses(error, tensor.numpy, error=DeviceError)
        monkeypatch.undo()
        assert tensor.numpy().tolist() == INDICES


@pytest.mark.parametrize("error", [ValueError, MemoryError, KeyboardInterrupt, SystemExit])
def test_exceptions_in_a_call_leave_nothing_behind(driver, error):
    def fail():
        raise error("of the caller")

    with Device(driver.index) as device:
        operator = device.compile(ARGMAX)
        operator(X)
        before = device.cache_info()
        for call in operator, device.tensor, lambda x: argmax(x, device=device):
            refuses("^of the caller$", call, Calling(fail), error=error)
        refuses(r"^TensorDesc|^array", device.tensor, [[1, 2], [3]])
        refuses(r"^ArgmaxOperatorDesc", operator, object())
        assert operator(X).tolist() == INDICES
        after = device.cache_info()
        assert (after.tensor_bytes, after.buffer_bytes) == (before.tensor_bytes, before.buffer_bytes)
