"""While a thread waits for a device, other threads run, and nothing that they do crashes or hangs."""

import pytest

from tests.support.processes import OPENED, RESULT, run

BUSY = (
    OPENED
    + """
from dmlgpu.runtime.kompute import Kompute

big = device.tensor(np.zeros((2048, 4096), np.float32))
reduce = device.compile(ArgmaxOperatorDesc.of(big.desc, axes=(0,)))
reduce(big)
submit, inside, spans = Kompute._submit, threading.Event(), []

def in_a_call(self, sequence):
    inside.set()
    begin = time.perf_counter()
    try:
        submit(self, sequence)
    finally:
        spans.append((begin, time.perf_counter()))

Kompute._submit = in_a_call

def work():
    while True:
        try:
            reduce(big)
        except DeviceError:
            return

thread = threading.Thread(target=work, daemon=True)
"""
)
HEARTBEAT = """
beats = []
def beat():
    while True:
        beats.append(time.perf_counter())
        time.sleep(0.0005)
threading.Thread(target=beat, daemon=True).start()
for _ in range(20):
    reduce(big)
# Count beats in the longest calls, without the first and the last millisecond.
spans.sort(key=lambda span: span[0] - span[1])
inner = [sum(begin + 0.001 < at < end - 0.001 for at in list(beats)) for begin, end in spans[:10]]
print(sorted(inner)[5] > 0)
"""


def test_other_threads_run_during_a_call(driver):
    assert run(BUSY + HEARTBEAT, driver) == [RESULT, "True"]


WHILE_ANOTHER_CALLS = {
    "close": """
device.close()
thread.join()
print(outcome(operator, x).endswith(" is closed"))
""",
    "another device": """
for _ in range(3):
    with Device(index) as other:
        assert other.compile(desc)(x).tolist() == [[2], [2], [1]]
    del other
    gc.collect()
print(thread.is_alive())
""",
    "fork": """
for _ in range(10):
    inside.clear()
    inside.wait()
    child = os.fork()
    if child == 0:
        assert " was opened in process " in outcome(operator, x)
        del tensor, big, reduce, operator
        gc.collect()
        sys.exit()
    assert os.waitpid(child, 0)[1] == 0
print(operator(x).tolist() == [[2], [2], [1]])
""",
    "exit of many threads": """
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
print(True, flush=True)
raise SystemExit(0)
""",
}


@pytest.mark.every_driver
@pytest.mark.parametrize("what", WHILE_ANOTHER_CALLS)
def test_another_thread_in_a_call_disturbs_nothing(driver, what):
    program = f"{BUSY}\nthread.start()\ninside.wait()\n{WHILE_ANOTHER_CALLS[what]}"
    assert run(program, driver) == [RESULT, "True"]
