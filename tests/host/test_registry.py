"""The registry: every operator has a row, which suffices to run, check and measure it."""

from dataclasses import dataclass

import pytest

import dmlgpu
from benchmarks.cases import describe
from dmlgpu import ArgmaxOperatorDesc, DescriptorError, MaxPoolingOperatorDesc, TensorDesc
from dmlgpu.registry import CANONICAL, OPERATORS, Operator, with_outputs
from dmlgpu.testing.cases import UINT8, UINT32, samples

ROWS = {operator.name: operator for operator in OPERATORS}


@dataclass(frozen=True)
class PeakOperatorDesc(ArgmaxOperatorDesc):
    """A new operator, with the oracle and the lowering of ARGMAX."""


PEAK = Operator("PEAK", PeakOperatorDesc, dmlgpu.argmax, ROWS["ARGMAX"].samples[:2], {"output_data_type": (UINT32,)})


def test_every_descriptor_has_a_row_and_every_function_is_public():
    public = {name for name in dmlgpu.__all__ if name.endswith("OperatorDesc")} - {"OperatorDesc"}
    assert {operator.desc.__name__ for operator in OPERATORS} == public
    assert len(ROWS) == len(OPERATORS)
    for operator in OPERATORS:
        assert operator.function is None or operator.function is getattr(dmlgpu, operator.function.__name__)


def test_each_descriptor_is_of_one_operator_and_its_canonical_one_is_computed():
    assert set(ROWS) - {operator.name for operator in CANONICAL} == {
        "REDUCE ARGMAX",
        "REDUCE ARGMIN",
        "AVERAGE_POOLING",
        "LP_POOLING",
        "MAX_POOLING",
        "MAX_POOLING1",
        "TOP_K",
    }
    for operator in OPERATORS:
        for desc in operator.descs():
            assert [other for other in OPERATORS if other.describes(desc)] == [operator]
            (computed,) = (other for other in CANONICAL if other.describes(desc.canonical()))
            assert (computed is operator) == (operator in CANONICAL)


def test_arguments_that_an_operator_lacks_are_ignored():
    window = {"window_size": (2, 2), "dilations": (2, 2), "indices_data_type": UINT32}
    desc = ROWS["MAX_POOLING"].of(TensorDesc(UINT8, (1, 1, 3, 3)), **window, output_sizes=(2, 2))
    assert desc == MaxPoolingOperatorDesc.of(TensorDesc(UINT8, (1, 1, 3, 3)), (2, 2))
    with pytest.raises(DescriptorError, match=r"^ReduceOperatorDesc\.axes\[0\]: 2 is out of range"):
        ROWS["REDUCE ARGMAX"].of(TensorDesc(UINT8, (3, 3)), axes=(2,))


def test_the_default_of_an_option_is_its_first_value():
    desc = ROWS["REDUCE ARGMIN"].of(TensorDesc(UINT8, (3, 3)), axes=(1,))
    assert (desc.function, desc.output_tensor.data_type) == (dmlgpu.ReduceFunction.ARGMIN, dmlgpu.DataType.INT64)
    assert ROWS["MAX_POOLING2"].of(TensorDesc(UINT8, (1, 1, 3, 3)), window_size=(2, 2)).output_indices_tensor is None


def test_all_outputs_are_changed():
    for indices in (None, UINT32):
        desc = ROWS["MAX_POOLING2"].on(ROWS["MAX_POOLING2"].samples[0], UINT8, indices_data_type=indices)
        changed = with_outputs(desc, lambda target: TensorDesc(target.data_type, target.sizes, None, 1 << 20))
        assert [target.size_in_bytes for target in changed.outputs] == [1 << 20] * len(desc.outputs)


def test_a_new_row_has_cases_and_a_description(device):
    cases = samples((PEAK,))
    assert {(case.operator, type(case.desc)) for case in cases} == {("PEAK", PeakOperatorDesc)}
    assert len(cases) == 2 * (3 * 3 + 8 * 2)
    assert [case.verify(device) for case in cases[:3]] == [None] * 3
    assert (
        describe(PEAK.of(TensorDesc(UINT8, (3, 4)), axes=(0, 1)))
        == "PEAK uint8 3x4 axes=(0, 1) axis_direction=AxisDirection.INCREASING -> 1x1"
    )
