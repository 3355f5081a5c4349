"""The lowest feature level of DirectML that supports an operator with the types of a descriptor."""

from dataclasses import replace

import pytest

import dmlgpu
from dmlgpu import MaxPoolingGradOperatorDesc, ReduceFunction, ReduceOperatorDesc, TensorDesc, feature_level
from dmlgpu.descriptors.feature_levels import FEATURE_LEVELS
from dmlgpu.registry import OPERATORS
from dmlgpu.testing.cases import FLOAT16, FLOAT32, FLOAT64, INT8, INT64, UINT8, UINT32, UINT64, extremum_desc

PLANE = (1, 1, 4, 4)


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
def test_the_first_level_has_the_first_type_of_each_operator(operator):
    first, types = next(iter(FEATURE_LEVELS[operator.name].items()))
    desc = operator.on(operator.samples[0], types[operator.source_field][0])
    tensors = {field: getattr(desc, field, None) for field in types}
    changed = {field: replace(tensor, data_type=types[field][0]) for field, tensor in tensors.items() if tensor}
    assert feature_level(replace(desc, **changed)) == first


def test_a_tensor_has_no_level():
    with pytest.raises(TypeError, match=r"^TensorDesc\(.*\) is not an operator descriptor$"):
        feature_level(TensorDesc(FLOAT32, PLANE))


def argmax(data_type, index_type):
    return dmlgpu.ArgmaxOperatorDesc.of(TensorDesc(data_type, (3, 4)), output_data_type=index_type)


def max_pooling(data_type, index_type):
    return dmlgpu.MaxPooling2OperatorDesc.of(TensorDesc(data_type, PLANE), (2, 2), indices_data_type=index_type)


@pytest.mark.parametrize(
    ("desc", "level"),
    [
        (argmax(FLOAT32, INT64), "3_0"),
        (argmax(INT64, UINT32), "4_1"),
        (argmax(FLOAT64, UINT32), None),
        (ReduceOperatorDesc.of(ReduceFunction.ARGMAX, TensorDesc(FLOAT32, (3, 4)), output_data_type=UINT32), "1_0"),
        (ReduceOperatorDesc.of(ReduceFunction.ARGMAX, TensorDesc(FLOAT32, (3, 4)), output_data_type=INT64), "3_0"),
        (ReduceOperatorDesc.of(ReduceFunction.SUM, TensorDesc(UINT64, (3, 4))), "5_0"),
        (dmlgpu.MaxPoolingOperatorDesc.of(TensorDesc(FLOAT16, PLANE), (2, 2)), "1_0"),
        # Values and indices have different levels.
        (max_pooling(FLOAT32, None), "2_1"),
        (max_pooling(INT8, UINT32), "3_0"),
        (max_pooling(UINT8, UINT64), "5_0"),
        (MaxPoolingGradOperatorDesc.of(TensorDesc(FLOAT32, PLANE), (2, 2)), "3_0"),
        (MaxPoolingGradOperatorDesc.of(TensorDesc(FLOAT32, PLANE), (2, 2), indices_data_type=UINT32), None),
        (dmlgpu.TopKOperatorDesc.of(TensorDesc(INT8, (9,)), 2, indices_data_type=UINT32), "2_1"),
        (extremum_desc(ReduceFunction.MAX, FLOAT32, (3, 4), (1,)), None),
    ],
    ids=str,
)
def test_the_level_is_the_lowest_with_all_types(desc, level):
    assert feature_level(desc) == level
