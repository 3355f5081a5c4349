"""What dmlgpu logs: nothing unless asked, then the device, the operators and the calls."""

import logging
import re

import numpy as np
import pytest

import dmlgpu
from tests.support.processes import ROOT, output_of

PROGRAM = """
import numpy as np
import dmlgpu
x = np.zeros((8, 100), np.float32)
for _ in range(2):
    dmlgpu.argmax(x, 1)
print("done")
"""
PLANNED = "ArgmaxOperatorDesc of FLOAT32 (8, 100) to INT64 (8, 1): 1 x rows_selection_32"


def logged(environment, driver, **variables):
    """What the program writes to stderr, a line each."""
    program = f"import sys; sys.stderr = sys.stdout\n{PROGRAM}"
    output = output_of(program, environment={**environment, "DMLGPU_DEVICE": str(driver.index), **variables})
    *lines, done = output.splitlines()
    assert done == "done"
    return lines


@pytest.mark.parametrize("value", [None, "off"])
def test_silent_unless_asked(environment, driver, value):
    assert logged(environment, driver, **({} if value is None else {"DMLGPU_LOG": value})) == []


def test_info_tells_the_device_and_the_operators(environment, driver):
    device, operator = logged(environment, driver, DMLGPU_LOG="info")
    assert re.fullmatch(r"dmlgpu INFO \d+ ms: device .*", device)
    text = f"device {driver.index}, {driver.name}, driver {driver.driver} (DMLGPU_DEVICE: '{driver.index}')"
    assert device.endswith(text)
    assert operator.endswith(f": planned: {PLANNED}")


def test_debug_tells_of_the_cache_and_the_calls(environment, driver):
    lines = logged(environment, driver, DMLGPU_LOG=" Debug ")
    texts = [re.sub(r"^dmlgpu (INFO|DEBUG) \d+ ms: ", r"\1 ", line) for line in lines]
    assert texts[1] == f"INFO planned: {PLANNED}"
    assert texts[3] == f"DEBUG found: {PLANNED}"
    for text in texts[2], texts[4]:
        assert re.fullmatch(r"DEBUG ArgmaxOperatorDesc computed in \d+\.\d{3} ms", text)
    assert len(texts) == 5


def test_a_program_s_own_logging_gets_it(driver, caplog):
    with caplog.at_level(logging.DEBUG, "dmlgpu"), dmlgpu.Device(driver.index) as device:
        with device.batch():
            dmlgpu.argmax(device.tensor(np.zeros(3, np.float32)))
        dmlgpu.verify(dmlgpu.ArgmaxOperatorDesc.of(np.zeros(3, np.float32)), np.zeros(3, np.float32), device=device)
    messages = [record.getMessage() for record in caplog.records]
    assert messages[0].endswith(f"(asked for: {driver.index})")
    assert any(message.startswith("ArgmaxOperatorDesc deferred in ") for message in messages)
    assert messages[-1].startswith("ArgmaxOperatorDesc verified in ")


def test_the_best_device_says_so(caplog):
    with caplog.at_level(logging.INFO, "dmlgpu"), dmlgpu.Device():
        pass
    assert "(the best there is)" in caplog.text


def test_any_other_value_is_an_error(driver, monkeypatch):
    monkeypatch.setenv("DMLGPU_LOG", "warning")
    with pytest.raises(dmlgpu.SettingError) as caught:
        dmlgpu.Device(driver.index)
    allowed = "info, debug, 0, false, no, off"
    assert str(caught.value) == f"DMLGPU_LOG: 'warning' is not allowed; allowed are {allowed}"


def test_logging_goes_through_one_logger():
    for path in (ROOT / "dmlgpu").glob("*.py"):
        assert path.stem == "log" or "getLogger" not in path.read_text(), path
