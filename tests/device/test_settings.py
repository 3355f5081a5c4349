"""Switches in the environment: the same words everywhere, and an error for all others."""

import json
import re

import numpy as np
import pytest

import dmlgpu
from benchmarks.cli import main as benchmarks
from dmlgpu import SettingError
from dmlgpu.runtime.settings import switch
from dmlgpu.tools import doctor
from dmlgpu.tools.cli import main
from dmlgpu.tools.doctor import BROKEN, ODD
from tests.support.drivers import DRIVERS, set_drivers
from tests.support.errors import refuses

ALLOWED = "allowed are 1, true, yes, on, 0, false, no, off"
ON = ["1", "true", "yes", "on", "True", "YES", " on\n"]
OFF = [None, "", " ", "0", "false", "no", "off", "FALSE", "Off", " 0 "]
WRONG = ["2", "-1", "1.0", "y", "enabled", "tru\u00e9", "true false", "\udcff"]


@pytest.fixture
def verified(monkeypatch):
    """A function that sets DMLGPU_VERIFY, or unsets it."""

    def verified(value):
        monkeypatch.delenv("DMLGPU_VERIFY", raising=False)
        if value is not None:
            monkeypatch.setenv("DMLGPU_VERIFY", value)

    return verified


@pytest.mark.parametrize(("values", "expected"), [(ON, True), (OFF, False)], ids=["on", "off"])
def test_a_switch_is_on_or_off(verified, values, expected):
    for value in values:
        verified(value)
        assert switch("DMLGPU_VERIFY") is expected


@pytest.mark.parametrize("value", WRONG)
def test_any_other_value_is_an_error_that_says_what_is_allowed(verified, value):
    verified(value)
    message = f"DMLGPU_VERIFY: {value!r} is not allowed; {ALLOWED}"
    refuses(f"^{re.escape(message)}$", switch, "DMLGPU_VERIFY", error=SettingError)
    assert issubclass(SettingError, ValueError)


def test_a_call_says_what_is_wrong(device, verified):
    x = np.zeros(3, np.float32)
    operator = device.compile(dmlgpu.ArgmaxOperatorDesc.of(x))
    verified("maybe")
    refuses(r"^DMLGPU_VERIFY: 'maybe' is not allowed; ", operator, x, error=SettingError)


def test_the_command_line_says_what_is_wrong(driver, verified, tmp_path, capsys):
    verified("maybe")
    output = tmp_path / "demo.png"
    assert main(["demo", "--device", str(driver.index), "--output", str(output)]) == 2
    assert capsys.readouterr().err == f"dmlgpu: DMLGPU_VERIFY: 'maybe' is not allowed; {ALLOWED}\n"
    assert not output.exists()


def test_benchmarks_say_what_is_wrong(verified, capsys):
    verified("maybe")
    assert benchmarks([]) == 2
    assert capsys.readouterr().err == f"benchmarks: DMLGPU_VERIFY: 'maybe' is not allowed; {ALLOWED}\n"


@pytest.mark.parametrize(
    ("value", "states"), [("yes", [ODD]), ("maybe", [BROKEN]), ("false", []), ("", []), (None, [])], ids=str
)
def test_doctor_reports_switches(verified, value, states):
    verified(value)
    findings = list(doctor._settings())
    assert [finding.state for finding in findings] == states
    assert all(finding.subject == "DMLGPU_VERIFY" and finding.fix.startswith("unset it") for finding in findings)
    if value == "maybe":
        assert findings[0].text == f"DMLGPU_VERIFY: 'maybe' is not allowed; {ALLOWED}"


def test_a_bad_value_is_no_failure_of_doctor(verified, monkeypatch, capsys):
    set_drivers(monkeypatch.setenv, DRIVERS["lavapipe"])
    verified("maybe")
    assert main(["doctor", "--json"]) == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert [finding["subject"] for finding in findings if finding["state"] == BROKEN] == ["DMLGPU_VERIFY"]
