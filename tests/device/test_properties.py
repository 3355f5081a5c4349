"""Any valid descriptor is computed exactly; anything else raises a DescriptorError that names the field."""

import random

import pytest
from hypothesis import HealthCheck, given, settings

import dmlgpu
from dmlgpu import OperatorDesc, TensorDesc, verify
from dmlgpu.lowering.limits import Limits
from dmlgpu.registry import CANONICAL, OPERATORS, inputs_of
from dmlgpu.testing.cases import FLOAT16, INT64, UINT8
from dmlgpu.testing.fills import arranged
from tests.fuzz import descriptors
from tests.fuzz.__main__ import recorded, replayed, simplest
from tests.fuzz.descriptors import Attempt, strategy
from tests.support.layouts import check_all_bytes


def bounded(examples):
    """Settings of Hypothesis: the same examples every time, which share a device."""
    return settings(
        derandomize=True,
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


# Valid descriptors

by_kind = pytest.mark.parametrize("kind", OPERATORS, ids=lambda kind: kind.name)


def descs(kind):
    return strategy(descriptors.operator, kind)


DATA = strategy(descriptors.data)


@by_kind
def test_device_equals_reference_in_every_byte(any_device, kind):
    # Others are planned like these two; functions of REDUCE differ only in their accumulators.
    @bounded(50 if kind.name in ("ARGMAX", "MAX_POOLING2") else 2 if kind.name.startswith("REDUCE") else 5)
    @given(strategy(descriptors.operator, kind, (), (), any_device.limits.segment_bytes > 256), DATA)
    def run(desc, data):
        check_all_bytes(any_device, desc, data)

    run()


# Each has a limit that is the minimum of Vulkan, or far below it, and plans like a GPU or a CPU.
SETTINGS = [
    Limits(128 << 20, 128, 16, cooperating=True),
    Limits(1 << 16, 7, 3, partial_bytes=64, invocation_loads=100, unrolls=False, cooperating=True),
    Limits(512, 128, 1, invocation_loads=250, dispatch_count=1 << 20, unrolls=False),
    Limits(256, 1, 3, partial_bytes=512, dispatch_count=1 << 20, cooperating=True),
]


# Few windows, because each needs another pipeline.
WINDOWS = (((2, 3, 1, 1, 1), (1, 2, 0, 1, 2)), ((1, 2, 1, 0, 1), (2, 2, 1, 1, 1), (1, 18, 3, 4, 1)))


@pytest.mark.parametrize("kind", CANONICAL, ids=lambda kind: kind.name)
def test_results_do_not_depend_on_where_work_is_split(driver, open_device, kind):
    devices = [open_device(driver.index, limits) for limits in SETTINGS]
    types = tuple(data_type for data_type in (UINT8, FLOAT16, INT64) if data_type in kind.data_types)

    @bounded(6 if kind.name in ("ARGMAX", "MAX_POOLING2") else 1 if kind.name.startswith("REDUCE") else 2)
    @given(strategy(descriptors.operator, kind, types, WINDOWS, False), DATA)
    def run(desc, data):
        for device in devices:
            verify(desc, *inputs_of(desc, lambda tensor: arranged(tensor, data)), device=device)

    run()


@by_kind
def test_descriptors_are_values(kind):
    @bounded(50)
    @given(descs(kind))
    def run(desc):
        again = eval(repr(desc), vars(dmlgpu))
        assert again == desc
        assert hash(again) == hash(desc)
        assert desc.canonical().canonical() == desc.canonical()

    run()


def outcome(attempt: Attempt):
    """The result of an attempt; None after a DescriptorError that names the field."""
    result = attempt.outcome()
    if isinstance(result, TensorDesc):
        assert 1 <= result.rank <= 8
        assert 1 <= result.element_count < 2**32
        assert result.reach < 2**32
        assert result.size_in_bytes >= result.minimum_size_in_bytes > 0
    if isinstance(result, TensorDesc | OperatorDesc):
        assert eval(repr(result), vars(dmlgpu)) == result
    return result


@bounded(800)
@given(strategy(descriptors.tensor_attempt))
def test_any_tensor_is_valid_or_a_descriptor_error(attempt):
    outcome(attempt)


@pytest.mark.parametrize("kind", {kind.desc: kind for kind in OPERATORS}.values(), ids=lambda kind: kind.name)
def test_any_fields_are_valid_or_a_descriptor_error(kind):
    """A valid descriptor with some of its fields replaced by anything."""

    @bounded(100)
    @given(strategy(descriptors.operator_attempt, kind))
    def run(attempt):
        outcome(attempt)

    run()


@bounded(300)
@given(strategy(descriptors.reduction_attempt))
def test_any_arguments_of_reductions_are_valid_or_a_descriptor_error(attempt):
    result = outcome(attempt)
    assert result is None or result.size == 0


@bounded(300)
@given(strategy(descriptors.pooling_attempt))
def test_any_arguments_of_poolings_are_valid_or_a_descriptor_error(attempt):
    result = outcome(attempt)
    for output in result if isinstance(result, tuple) else (result,):
        assert output is None or (output.shape[0], output.ndim) == (0, attempt.arguments["x"].ndim)


def test_a_failure_is_made_as_simple_as_it_gets():
    def fails_where_a_row_is_long(choices):
        desc = descriptors.operator(choices, OPERATORS[0])
        assert desc.input_tensor.sizes[-1] < 5, desc

    numbers = random.Random(0)
    error = None
    while error is None:
        choices, error = recorded(fails_where_a_row_is_long, numbers.randint)
    _, error = replayed(fails_where_a_row_is_long, simplest(fails_where_a_row_is_long, choices, seconds=60))
    assert isinstance(error, AssertionError)
    assert "input_tensor=TensorDesc(DataType.FLOAT32, (5,))," in str(error)
