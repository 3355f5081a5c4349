"""verify() and DMLGPU_VERIFY: a result that differs from the oracle is found and shown."""

import dataclasses
import re

import numpy as np
import pytest

import dmlgpu
from dmlgpu import ArgmaxOperatorDesc, AveragePooling1OperatorDesc, TensorDesc, VerificationError, reference, verify
from dmlgpu.comparison import check_outputs, differences
from dmlgpu.lowering.lower import lower
from dmlgpu.reference.bounds import bounds
from dmlgpu.testing.cases import FLOAT32, UINT64, arg_desc, pool_desc
from tests.support.errors import refuses
from tests.support.limits import LOWERED

X = np.array([[1, 2, 3], [3, 0, 4], [2, 5, 2]], np.float32)
ARGMAX = arg_desc(ArgmaxOperatorDesc, FLOAT32, (3, 3), [1])
POOL = pool_desc(FLOAT32, (1, 1, 3, 3), (2, 2), indices=UINT64)
IMAGE = X.reshape(1, 1, 3, 3)


@pytest.fixture
def wrong_oracle(monkeypatch):
    """An oracle that is wrong in one element, so that right results differ from it."""

    def wrong(desc, *inputs, flags):
        outputs = reference(desc, *inputs)
        outputs[-1].reshape(-1)[1] += 7
        return outputs

    monkeypatch.setattr("dmlgpu.comparison.reference", wrong)


def test_verify_returns_what_the_operator_returns(device):
    assert verify(ARGMAX, X, device=device).tolist() == [[2], [2], [1]]
    values, indices = verify(POOL, IMAGE, device=device)
    assert (values.tolist(), indices.tolist()) == ([[[[3, 4], [5, 5]]]], [[[[3, 5], [7, 7]]]])
    assert verify(ARGMAX, device.tensor(X), device=device).numpy().tolist() == [[2], [2], [1]]


def test_verify_shows_coordinates_both_values_and_the_plan(any_device, wrong_oracle):
    message = (
        "ArgmaxOperatorDesc.output_tensor: 1 of 3 elements differ, the first at (1, 0): "
        f"the device gives {np.uint32(2)!r}, the reference {np.uint32(9)!r}\n{any_device.compile(ARGMAX).plan}"
    )
    refuses(f"^{re.escape(message)}$", verify, ARGMAX, X, error=VerificationError, device=any_device)


def test_verify_names_the_output_that_differs(device, wrong_oracle):
    message = r"^MaxPooling2OperatorDesc\.output_indices_tensor: 1 of 4 elements differ, the first at \(0, 0, 0, 1\): "
    refuses(message, verify, POOL, IMAGE, error=VerificationError, device=device)


def test_verify_checks_its_input_as_an_operator_does(device):
    refuses(r"^ArgmaxOperatorDesc\.input_tensor\.sizes", verify, ARGMAX, X[0], device=device)
    refuses("takes 1 input, 2 were given", verify, ARGMAX, X, X, error=TypeError, device=device)


@pytest.mark.parametrize("value", ["1", "yes"])
def test_environment_checks_every_call(device, wrong_oracle, monkeypatch, value):
    monkeypatch.setenv("DMLGPU_VERIFY", value)
    operator = device.compile(ARGMAX)
    for call in (
        lambda: dmlgpu.argmax(X, 1, device=device),
        lambda: operator(X),
        lambda: operator(device.tensor(X)),
        lambda: operator(X, out=device.tensor(np.zeros((3, 1), np.uint32))),
        lambda: dmlgpu.max_pooling(IMAGE, (2, 2), device=device),
    ):
        refuses("elements differ", call, error=VerificationError)


@pytest.mark.parametrize("value", [None, "0", "false", ""])
def test_calls_are_not_checked_otherwise(device, wrong_oracle, monkeypatch, value):
    if value is not None:
        monkeypatch.setenv("DMLGPU_VERIFY", value)
    assert dmlgpu.argmax(X, 1, device=device).tolist() == [2, 2, 1]


# What counts as a difference

PLAN = lower(pool_desc(FLOAT32, (1, 1, 1, 3), (1, 1), indices=None), LOWERED)


def check(result, x=(1, 2, 3)):
    check_outputs(PLAN, *((np.array(y, np.float32).reshape(1, 1, 1, 3),) for y in (x, result)))


def test_equal_bits_are_no_difference():
    check([1, 2, 3])
    check([np.nan, -0.0, np.inf], [np.nan, -0.0, np.inf])


@pytest.mark.parametrize(
    ("result", "x", "count", "first"),
    [
        # Other bits of an equal value differ, too.
        ([0, -0.0, 0], [0, 0, 0], 1, 1),
        ([0, -np.nan, 0], [0, np.nan, 0], 1, 1),
        ([9, 2, 9], [1, 2, 3], 2, 0),
    ],
)
def test_differences_are_counted(result, x, count, first):
    message = rf"{count} of 3 elements differ, the first at \(0, 0, 0, {first}\): "
    refuses(message, check, result, x, error=VerificationError)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (np.zeros((1, 1, 3, 1), np.float32), r"sizes are \(1, 1, 3, 1\), the reference has \(1, 1, 1, 3\)"),
        (np.zeros((1, 1, 1, 3), np.int32), "type is int32, the reference has float32"),
    ],
)
def test_other_sizes_or_types_are_a_difference(result, message):
    message = rf"^MaxPooling2OperatorDesc\.output_tensor: {message}\n"
    refuses(message, check_outputs, PLAN, (np.zeros((1, 1, 1, 3), np.float32),), (result,), error=VerificationError)


def test_every_output_that_differs_is_named():
    expected = reference(POOL, IMAGE)
    assert list(differences(POOL, (IMAGE,), expected, expected)) == []
    (number, text), second = differences(POOL, (IMAGE,), [y + 1 for y in expected], expected)
    assert (number, text.split(":")[0]) == (0, "MaxPooling2OperatorDesc.output_tensor")
    assert second == (
        1,
        "MaxPooling2OperatorDesc.output_indices_tensor: 4 of 4 elements differ, the first at (0, 0, 0, 0): "
        f"the device gives {np.uint64(4)!r}, the reference {np.uint64(3)!r}",
    )
    refuses("shorter", list, differences(POOL, (IMAGE,), expected[:1], expected), error=ValueError)


def test_a_wrong_shader_is_found(device, monkeypatch):
    """The device itself computes the minimum."""
    minimum = lower(arg_desc(dmlgpu.ArgminOperatorDesc, FLOAT32, (3, 3), [1]), device.limits)
    operator = dmlgpu.CompiledOperator(device, ARGMAX)
    monkeypatch.setattr(operator, "plan", dataclasses.replace(minimum, desc=ARGMAX))
    operator._steps.clear()
    message = r"3 of 3 elements differ, the first at \(0, 0\)"
    refuses(message, operator.launch, (X,), verify=True, error=VerificationError)


@pytest.mark.parametrize(
    ("result", "expected", "bound", "count"),
    [
        ([1.5, 2, 3], [1, 2, 3], [0.5, 0, 0], 0),
        ([1.5, 2, 3], [1, 2, 3], [0.25, 9, 9], 1),
        ([np.nan, np.inf, -0.0], [-np.nan, np.inf, 0.0], [0, 0, 0], 0),
        ([np.nan, np.inf, 3], [1, 3e38, np.nan], [9, 9e38, 9], 3),
        ([np.nan, -np.inf, 3], [1, 3e38, np.nan], [np.inf] * 3, 0),
        ([np.inf, 0, 0], [-np.inf, 0, 0], [9, 0, 0], 1),
    ],
)
def test_a_bound_is_the_greatest_difference(monkeypatch, result, expected, bound, count):
    monkeypatch.setattr("dmlgpu.comparison.bounds", lambda desc, x, flags: (np.array(bound, np.float64),))
    desc = arg_desc(ArgmaxOperatorDesc, FLOAT32, (3,), [0])
    texts = [text for _, text in differences(desc, (X,), (np.float32(result),), (np.float32(expected),))]
    assert len(texts) == (count > 0)
    for text in texts:
        assert f"{count} of 3 elements differ, the first at (0,): " in text
        assert text.endswith(f", and at most {bound[0]:.3g} between them is allowed")


# Operators over windows, and their bounds in units of 2^-23 of the value: the error of a sum, 2 for the rounding to the
# output's type, and 8 for a root.
SOURCE = TensorDesc(FLOAT32, (1, 2, 20, 21))
SUMMING = [
    (AveragePooling1OperatorDesc.of(SOURCE, (7, 9), start_padding=(3, 2)), 4 + 2),
    (AveragePooling1OperatorDesc.of(SOURCE, (7, 9), start_padding=(3, 2), include_padding=True), 4 + 2),
    *((dmlgpu.LpPooling1OperatorDesc.of(SOURCE, (7, 9), p=p), (4 + 2 * p) / p + 8 + 2) for p in (1, 2, 3, 10)),
    (dmlgpu.AveragePoolingGradOperatorDesc.of(TensorDesc(FLOAT32, (1, 2, 14, 13)), (20, 21), (7, 9)), 4 + 2 + 2),
    (dmlgpu.MaxPoolingGradOperatorDesc.of(SOURCE, (7, 9)), 4 + 2 + 2),
]
by_operator = pytest.mark.parametrize(
    ("desc", "units"), [pytest.param(*row, id=f"{type(row[0]).__name__}-{i}") for i, row in enumerate(SUMMING)]
)


@by_operator
def test_bounds_of_windows_are_a_few_units_in_the_last_place(desc, units):
    """For values of one sign; for others the bound is at most that of their absolute values."""
    rng = np.random.default_rng(0)
    inputs = [rng.uniform(0.5, 2, tensor.sizes).astype(np.float32) for tensor in desc.inputs]
    (value,), (bound,) = reference(desc, *inputs), bounds(desc, *inputs)
    assert (bound[value == 0] == 2.0**-126).all()
    assert bound[value > 0] == pytest.approx(units * 2.0**-23 * value[value > 0], rel=1e-5)
    signs = rng.choice([-1, 1], inputs[-1].shape).astype(np.float32)
    (mixed,) = bounds(desc, *inputs[:-1], inputs[-1] * signs)
    assert (mixed <= bound).all()


@by_operator
@pytest.mark.parametrize("special", [np.inf, np.nan])
def test_infinities_and_nan_have_no_room(desc, units, special):
    inputs = [np.ones(tensor.sizes, np.float32) for tensor in desc.inputs]
    inputs[-1][0, 0, 10, 10] = special
    (value,), (bound,) = reference(desc, *inputs), bounds(desc, *inputs)
    assert 0 < np.isfinite(value).sum() < value.size
    assert (bound[~np.isfinite(value)] == 0).all()
    assert (bound[np.isfinite(value)] < 1e-3).all()
