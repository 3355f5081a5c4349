"""The log has nothing by default; a level adds the device, the operators and the calls."""

import logging
import re

import numpy as np

import dmlgpu
from tests.support.errors import refuses
from tests.support.processes import output_of

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
    """The lines that the program writes to stderr."""
    program = f"import sys; sys.stderr = sys.stdout\n{PROGRAM}"
    output = output_of(program, environment={**environment, "DMLGPU_DEVICE": str(driver.index), **variables})
    *lines, done = output.splitlines()
    assert done == "done"
    return lines


def test_nothing_is_logged_by_default(environment, driver):
    assert logged(environment, driver) == []


def test_info_logs_the_device_and_the_operators(environment, driver):
    device, operator = logged(environment, driver, DMLGPU_LOG="info")
    assert re.fullmatch(r"dmlgpu INFO \d+ ms: device .*", device)
    text = f"device {driver.index}, {driver.name}, driver {driver.driver} (DMLGPU_DEVICE: '{driver.index}')"
    assert device.endswith(text)
    assert operator.endswith(f": planned: {PLANNED}")


def test_debug_logs_the_calls(environment, driver):
    lines = logged(environment, driver, DMLGPU_LOG=" Debug ")
    texts = [re.sub(r"^dmlgpu (INFO|DEBUG) \d+ ms: ", r"\1 ", line) for line in lines]
    assert texts[1] == f"INFO planned: {PLANNED}"
    for text in texts[2:]:
        assert re.fullmatch(rf"DEBUG computed in \d+\.\d{{3}} ms: {re.escape(PLANNED)}", text)
    assert len(texts) == 4


def test_the_logging_of_a_program_receives_everything(driver, caplog):
    with caplog.at_level(logging.DEBUG, "dmlgpu"), dmlgpu.Device(driver.index) as device:
        with device.batch():
            dmlgpu.argmax(device.tensor(np.zeros(3, np.float32)))
        dmlgpu.verify(dmlgpu.ArgmaxOperatorDesc.of(np.zeros(3, np.float32)), np.zeros(3, np.float32), device=device)
    messages = [record.getMessage() for record in caplog.records]
    assert messages[0].endswith(f"(asked for: {driver.index})")
    assert any(message.startswith("deferred in ") for message in messages)
    assert messages[-1].startswith("verified in ")


def test_the_log_names_the_reason_for_the_device(caplog):
    with caplog.at_level(logging.INFO, "dmlgpu"), dmlgpu.Device():
        pass
    assert "(the best there is)" in caplog.text


def test_any_other_value_is_an_error(driver, monkeypatch):
    monkeypatch.setenv("DMLGPU_LOG", "warning")
    message = "^DMLGPU_LOG: 'warning' is not allowed; allowed are info, debug, 0, false, no, off$"
    refuses(message, dmlgpu.Device, driver.index, error=dmlgpu.SettingError)
