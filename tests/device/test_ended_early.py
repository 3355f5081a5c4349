"""A loop that the driver ended early: an error, and what was not computed cannot be read."""

from dataclasses import replace

import numpy as np
import pytest

import dmlgpu
from dmlgpu import Device, DeviceError
from dmlgpu.runtime.tuning import device_limits
from tests.support.errors import refuses

X = np.arange(12, dtype=np.float32).reshape(3, 4)
ENDED = r"(?s)^device .* ended a loop of a shader early, so there is no result; .*:\n"
NOT_COMPUTED = r"^a tensor on device .* was not computed: .*; compute it again$"


@pytest.fixture
def ends(fresh, kp):
    """A function after which submissions, from number `after` on, report that a loop was ended early."""

    def from_now_on(*, after=0):
        left = [after]

        def report():
            if kp.dispatches:
                left[0] -= 1
                fresh._engine.kompute._status.view[0] |= 2 if left[0] < 0 else 0

        kp.after = report

    return from_now_on


def batch(device, *calls):
    with device.batch():
        for call in calls:
            call()


def test_the_error_has_the_plan_and_the_device_works_on(fresh, kp, ends):
    ends()
    refuses(ENDED + r".*ArgmaxOperatorDesc.*1\. rows", dmlgpu.argmax, X, error=DeviceError, axis=1, device=fresh)
    kp.after = bool
    assert dmlgpu.argmax(X, axis=1, device=fresh).tolist() == [3, 3, 3]


@pytest.mark.every_driver
def test_the_device_reports_what_a_shader_left(fresh):
    """The status is only in the device's memory: the next submission copies it, and clears it."""
    status = fresh._engine.kompute._status
    status.view[0] = 3
    fresh._engine.kompute._status_upload.eval()
    refuses(ENDED, dmlgpu.argmax, X, error=DeviceError, device=fresh)
    assert dmlgpu.argmax(X, device=fresh) == 11


def test_what_was_not_computed_cannot_be_read(fresh, kp, ends):
    op = fresh.compile(dmlgpu.ArgmaxOperatorDesc.of(X, axes=(1,)))
    x, out = fresh.tensor(X), op(fresh.tensor(X))
    view = out.reshape(-1)
    ends()
    refuses(ENDED, op, x, error=DeviceError, out=out)
    kp.after = bool
    for read in out.numpy, out.bytes, view.numpy, lambda: dmlgpu.max(out), lambda: np.asarray(view):
        refuses(NOT_COMPUTED, read, error=DeviceError)
    assert "not computed" not in repr(out)
    op(x, out=out)
    assert view.tolist() == [3, 3, 3]
    assert (x.numpy() == X).all()


def test_a_batch_keeps_what_was_computed_before(fresh, kp, ends):
    x = fresh.tensor(X)
    with fresh.batch():
        first = dmlgpu.max(x, axis=1)
    later = []
    calls = [lambda: later.append(dmlgpu.max(x, axis=0)), lambda: later.append(dmlgpu.max(later[0]))]
    refuses(ENDED, batch, fresh, *calls, ends, error=DeviceError)
    kp.after = bool
    assert first.tolist() == [3, 7, 11]
    for tensor in later:
        refuses(NOT_COMPUTED, tensor.numpy, error=DeviceError)
    refuses(NOT_COMPUTED, batch, fresh, lambda: dmlgpu.max(later[0]), error=DeviceError)


def test_a_tensor_of_a_batch_that_is_computed_again_can_be_read(fresh, kp, ends):
    op = fresh.compile(dmlgpu.ArgmaxOperatorDesc.of(X, axes=(1,)))
    x, out = fresh.tensor(X), op(fresh.tensor(X))
    refuses(ENDED, batch, fresh, lambda: op(x, out=out), ends, error=DeviceError)
    kp.after = bool
    with fresh.batch():
        op(x, out=out)
        best = dmlgpu.max(out)
    assert (out.tolist(), best.tolist()) == ([[3], [3], [3]], 3)


def test_steps_after_the_one_that_ended_early_do_not_run(fresh, kp, ends, monkeypatch):
    """Each step is a separate submission here; the first one runs."""
    monkeypatch.setattr("dmlgpu.runtime.schedule.SUBMISSION_SECONDS", 0)
    x, tensors = fresh.tensor(X), []
    calls = [lambda f=f: tensors.append(f(x)) for f in (dmlgpu.max, dmlgpu.min, dmlgpu.argmax)]
    refuses(ENDED, batch, fresh, *calls, kp.counts.clear, lambda: ends(after=1), error=DeviceError)
    kp.after = bool
    assert kp.counts["submissions"] == 2
    assert tensors[0].tolist() == 11
    for tensor in tensors[1:]:
        refuses(NOT_COMPUTED, tensor.numpy, error=DeviceError)


def test_a_batch_that_is_interrupted_leaves_nothing_to_read(fresh, kp):
    def interrupt():
        if kp.dispatches:
            raise KeyboardInterrupt

    x, tensors = fresh.tensor(X), []
    with pytest.raises(KeyboardInterrupt):
        batch(fresh, lambda: tensors.append(dmlgpu.max(x, axis=1)), lambda: setattr(kp, "before", interrupt))
    kp.before, (tensor,) = bool, tensors
    refuses(NOT_COMPUTED, tensor.numpy, error=DeviceError)
    assert dmlgpu.max(x).tolist() == 11


@pytest.mark.every_driver
@pytest.mark.parametrize("function", [dmlgpu.max, dmlgpu.sum], ids=lambda function: function.__name__)
@pytest.mark.parametrize("sizes", [(1 << 18, 3), (1 << 18, 8), (5, 1 << 18), (8, 8, 32, 64, 3)], ids=str)
def test_plans_that_are_too_long_give_no_wrong_result(driver, function, sizes):
    """By one vector of eight invocations: llvmpipe of Mesa 22.3 ends their loops, others do not."""
    limits = replace(device_limits(driver), group_size=8, group_count=1, invocation_loads=1 << 28, least_loads=1 << 28)
    x = np.ones(sizes, np.float32)
    with Device(driver.index, limits=limits) as device:
        for axis in range(x.ndim):
            try:
                result = function(x, axis=axis, device=device)
            except DeviceError as error:
                assert "ended a loop of a shader early" in str(error)  # noqa: PT017
                assert driver.name.startswith("llvmpipe")
            else:
                assert (result == (1 if function is dmlgpu.max else sizes[axis])).all()
