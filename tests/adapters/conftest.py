"""Functions without a device argument run on the device of each driver."""

import pytest


@pytest.fixture
def default_device(driver, monkeypatch):
    monkeypatch.setenv("DMLGPU_DEVICE", str(driver.index))
