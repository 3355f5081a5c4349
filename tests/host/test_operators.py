"""The operator descriptors: names, types and sizes, and the rules of valid descriptors."""

import builtins
import copy
import dataclasses
import itertools
import pickle
import re
from functools import partial

import numpy as np
import pytest

import dmlgpu
from dmlgpu import ArgmaxOperatorDesc, DescriptorError, ReduceFunction, ReduceOperatorDesc, TensorDesc
from dmlgpu.descriptors.reduction import ExtremumOperatorDesc
from dmlgpu.registry import OPERATORS
from dmlgpu.testing.cases import CASES, FLOAT32, INT64, UINT8, UINT32, UINT64, arg_desc, pool_desc
from tests.support.errors import refuses

# Names

STRUCTURES = {
    "DML_BUFFER_TENSOR_DESC": "DataType Sizes Strides TotalTensorSizeInBytes",
    "DML_ARGMAX_OPERATOR_DESC": "InputTensor OutputTensor AxisCount Axes AxisDirection",
    "DML_ARGMIN_OPERATOR_DESC": "InputTensor OutputTensor AxisCount Axes AxisDirection",
    "DML_REDUCE_OPERATOR_DESC": "Function InputTensor OutputTensor AxisCount Axes",
    "DML_MAX_POOLING_OPERATOR_DESC": "InputTensor OutputTensor DimensionCount Strides WindowSize StartPadding "
    "EndPadding",
    "DML_MAX_POOLING1_OPERATOR_DESC": "InputTensor OutputTensor OutputIndicesTensor DimensionCount Strides WindowSize "
    "StartPadding EndPadding",
    "DML_MAX_POOLING2_OPERATOR_DESC": "InputTensor OutputTensor OutputIndicesTensor DimensionCount Strides WindowSize "
    "StartPadding EndPadding Dilations",
}


@pytest.mark.parametrize("structure", STRUCTURES)
def test_descriptors_have_the_fields_of_the_structure_without_counts(structure):
    name = structure.removeprefix("DML_").removeprefix("BUFFER_").title().replace("_", "")
    fields = [field for field in STRUCTURES[structure].split() if not field.endswith("Count")]
    expected = [re.sub("(?<!^)([A-Z])", r"_\1", field).lower() for field in fields]
    assert [field.name for field in dataclasses.fields(getattr(dmlgpu, name))] == expected


def test_public_names_exist_and_hide_no_builtins():
    assert all(hasattr(dmlgpu, name) for name in dmlgpu.__all__)
    assert not set(dmlgpu.__all__) & set(dir(builtins))


@pytest.mark.parametrize(
    ("error", "base"),
    [
        (dmlgpu.DescriptorError, ValueError),
        (dmlgpu.DeviceError, RuntimeError),
        (dmlgpu.OutOfMemoryError, dmlgpu.DeviceError),
        (dmlgpu.OutOfMemoryError, MemoryError),
        (dmlgpu.VerificationError, AssertionError),
    ],
)
def test_errors_have_the_bases_that_users_catch(error, base):
    assert issubclass(error, base)


# Values

# A descriptor of each class.
DESCS = list({type(case.desc): case.desc for case in CASES}.values())


@pytest.mark.parametrize(
    "desc", [TensorDesc(FLOAT32, (2, 3), (8, 1), 64), *DESCS], ids=lambda desc: type(desc).__name__
)
def test_descriptors_are_values(desc):
    """test_properties.py evaluates their repr()."""
    assert pickle.loads(pickle.dumps(desc)) == desc == copy.deepcopy(desc)
    for field in dataclasses.fields(desc):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(desc, field.name, getattr(desc, field.name))


def test_a_descriptor_prints_as_python():
    desc = ArgmaxOperatorDesc(TensorDesc(FLOAT32, (2, 3)), TensorDesc(UINT32, (2, 1)), [1])
    assert repr(desc) == (
        "ArgmaxOperatorDesc(input_tensor=TensorDesc(DataType.FLOAT32, (2, 3)), "
        "output_tensor=TensorDesc(DataType.UINT32, (2, 1)), axes=(1,), axis_direction=AxisDirection.INCREASING)"
    )


def test_numbers_become_members():
    source, target = TensorDesc(FLOAT32, (2, 3)), TensorDesc(UINT32, (2, 1))
    assert ArgmaxOperatorDesc(source, target, [1], 1).axis_direction is dmlgpu.AxisDirection.DECREASING
    assert ReduceOperatorDesc(1, source, target, [1]).function is ReduceFunction.ARGMIN


def test_axes_are_sorted():
    descs = {arg_desc(ArgmaxOperatorDesc, FLOAT32, (2, 3, 4), axes) for axes in itertools.permutations((0, 1, 2))}
    assert [desc.axes for desc in descs] == [(0, 1, 2)]


# Types


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
def test_tensors_of_other_types_are_refused(operator):
    desc = next(operator.descs())
    for field, types in operator.types.items():
        tensor = getattr(desc, field, None)
        for data_type in set(dmlgpu.DataType) - {dmlgpu.DataType.UNKNOWN, *types} if tensor else ():
            words = f"^{operator.desc.__name__}.{field}.data_type: {data_type.name}.* (is not supported|differs from)"
            other = dataclasses.replace(tensor, data_type=data_type)
            refuses(words, dataclasses.replace, desc, **{field: other})


@pytest.mark.parametrize(
    ("infer", "type_field"),
    [
        (ArgmaxOperatorDesc.of, "output_data_type"),
        (partial(ReduceOperatorDesc.of, "argmax"), "output_data_type"),
        (partial(ExtremumOperatorDesc.of, "max"), "indices_data_type"),
    ],
    ids=["argmax", "reduce", "extremum"],
)
def test_an_int32_index_counts_two_to_the_31_elements(infer, type_field):
    index_type = {type_field: dmlgpu.DataType.INT32}
    assert infer(TensorDesc(UINT8, (1, 2**31)), axis=1, **index_type).outputs[-1].data_type is dmlgpu.DataType.INT32
    words = "INT32 cannot hold the index of 2147483649 reduced elements; allowed are INT64, UINT64, UINT32"
    refuses(words, infer, TensorDesc(UINT8, (1, 2**31 + 1)), axis=1, **index_type)


def test_an_extremum_has_the_value_and_its_index():
    source = TensorDesc(FLOAT32, (2, 3, 4), (24, 8, 1))
    desc = ExtremumOperatorDesc.of("min", source, (2, 0))
    assert (desc.function, desc.axes) == (ReduceFunction.MIN, (0, 2))
    assert desc.inputs == (source,)
    assert desc.outputs == (TensorDesc(FLOAT32, (1, 3, 1)), TensorDesc(UINT64, (1, 3, 1)))
    assert ExtremumOperatorDesc.of("max", source, (0,), indices_data_type=np.int32).outputs[1].data_type.name == "INT32"
    words = r"^ExtremumOperatorDesc\.output_indices_tensor\.data_type: None is neither"
    refuses(words, ExtremumOperatorDesc.of, "max", source, (0,), indices_data_type=None)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("function", ReduceFunction.SUM, "function: ReduceFunction.SUM is not allowed; allowed are MAX, MIN"),
        ("axes", (), "axes: () is empty"),
        ("output_tensor", TensorDesc(INT64, (2, 1)), "output_tensor.data_type: INT64 differs from the input"),
        ("output_indices_tensor", TensorDesc(FLOAT32, (2, 1)), "output_indices_tensor.data_type: FLOAT32 is not"),
        ("output_indices_tensor", TensorDesc(UINT32, (2, 3)), "output_indices_tensor.sizes[1]: 3 is wrong"),
    ],
    ids=str,
)
def test_an_extremum_checks_its_fields(field, value, message):
    desc = ExtremumOperatorDesc.of(ReduceFunction.MAX, TensorDesc(FLOAT32, (2, 3)), (1,))
    refuses(f"^ExtremumOperatorDesc.{re.escape(message)}", dataclasses.replace, desc, **{field: value})


# Sizes of poolings


def pool_row(size, output, window, stride=1, start=0, end=0, dilation=1):
    """A descriptor that pools a row of `size` to `output` elements."""
    return dmlgpu.MaxPooling2OperatorDesc(
        TensorDesc(FLOAT32, (1, 1, 1, size)),
        TensorDesc(FLOAT32, (1, 1, 1, output)),
        None,
        (1, stride),
        (1, window),
        (0, start),
        (0, end),
        (1, dilation),
    )


def is_accepted(*args, **kwargs):
    try:
        pool_row(*args, **kwargs)
    except DescriptorError:
        return False
    return True


def holds_input(size, output, window, stride, start, dilation):
    """Whether each window has an element of the input, by a literal search."""
    return all(any(0 <= o * stride - start + k * dilation < size for k in range(window)) for o in range(output))


def test_short_rows_are_accepted_if_every_window_holds_input():
    axes = (range(1, 5), range(1, 4), range(1, 4), range(4), range(4), range(1, 6))
    for size, window, stride, start, end, dilation in itertools.product(*axes):
        steps = size + start + end - 1 - (window - 1) * dilation
        for output in {steps // stride + 1, -(-steps // stride) + 1} if steps >= 0 else {1}:
            valid = steps >= 0 and holds_input(size, output, window, stride, start, dilation)
            row = size, output, window, stride, start, end, dilation
            assert is_accepted(*row) == valid, row


@pytest.mark.parametrize(("output", "expected"), [(1, "2 along the width, "), (4, "2.* or .*3")])
def test_other_output_sizes_than_those_of_rounding_are_refused(output, expected):
    refuses(rf"sizes\[3\]: {output} is wrong; expected {expected}", pool_row, 5, output, window=2, stride=2)


# Inferred tensors


def test_canonical_descriptors_are_equal():
    source, target = TensorDesc(FLOAT32, (2, 3)), TensorDesc(UINT32, (2, 1))
    assert ReduceOperatorDesc(0, source, target, [1]).canonical() == ArgmaxOperatorDesc(source, target, [1])
    assert ReduceOperatorDesc(1, source, target, [1]).canonical() == dmlgpu.ArgminOperatorDesc(source, target, [1])
    new = pool_desc(FLOAT32, (1, 2, 5, 5), (2, 2), indices=None)
    fields = {name: value for name, value in vars(new).items() if name != "dilations"}
    assert dmlgpu.MaxPooling1OperatorDesc(**fields).canonical() == new == new.canonical()
    del fields["output_indices_tensor"]
    assert dmlgpu.MaxPoolingOperatorDesc(**fields).canonical() == new


def test_inputs_and_outputs_have_the_order_of_the_fields():
    desc = pool_desc(FLOAT32, (1, 2, 5, 5), (2, 2), indices=UINT64)
    assert desc.inputs == (desc.input_tensor,)
    assert desc.outputs == (desc.output_tensor, desc.output_indices_tensor)
    assert pool_desc(INT64, (1, 2, 5, 5), (2, 2), indices=None).outputs == (TensorDesc(INT64, (1, 2, 4, 4)),)


@pytest.mark.parametrize("x", [TensorDesc(INT64, (2, 3, 4)), np.zeros((2, 3, 4), np.int64)], ids=["desc", "array"])
def test_outputs_of_reductions_are_inferred(x):
    source = TensorDesc(INT64, (2, 3, 4))
    assert ArgmaxOperatorDesc.of(x, (2, 0)) == ArgmaxOperatorDesc(source, TensorDesc(UINT32, (1, 3, 1)), (0, 2))
    assert ArgmaxOperatorDesc.of(x).axes == (0, 1, 2)
    assert ArgmaxOperatorDesc.of(x, axis=(-1, 0)) == ArgmaxOperatorDesc.of(x, (0, 2))
    assert ReduceOperatorDesc.of("sum", x, axis=-2) == ReduceOperatorDesc.of(ReduceFunction.SUM, x, (1,))
    last = dmlgpu.ArgminOperatorDesc.of(x, [1], dmlgpu.AxisDirection.DECREASING, output_data_type=np.uint64)
    assert last == dmlgpu.ArgminOperatorDesc(
        source, TensorDesc(UINT64, (2, 1, 4)), (1,), dmlgpu.AxisDirection.DECREASING
    )
    reduced = ReduceOperatorDesc.of(ReduceFunction.ARGMIN, x, (0,), output_data_type=INT64)
    assert reduced == ReduceOperatorDesc(ReduceFunction.ARGMIN, source, TensorDesc(INT64, (1, 3, 4)), (0,))


def test_inputs_keep_their_layout():
    x = np.zeros((4, 6), np.int64)[:, ::2]
    assert ArgmaxOperatorDesc.of(x, (0,)).input_tensor == TensorDesc(INT64, (4, 3), (6, 2))
    source = TensorDesc(FLOAT32, (1, 1, 5, 6), (0, 0, 8, 1), 1000)
    assert dmlgpu.MaxPooling2OperatorDesc.of(source, (2, 2)).input_tensor is source


@pytest.mark.parametrize(
    "kind", [dmlgpu.MaxPooling2OperatorDesc, dmlgpu.MaxPooling1OperatorDesc, dmlgpu.MaxPoolingOperatorDesc]
)
def test_outputs_of_pooling_are_inferred(kind):
    source, sizes = TensorDesc(FLOAT32, (2, 3, 8, 9)), (2, 3, 3, 4)
    fields = {"strides": (1, 1), "window_size": (2, 3), "start_padding": (0, 0), "end_padding": (0, 0)}
    options = {"strides": (3, 2), "start_padding": (1, 0), "end_padding": (0, 1)}
    none, indices = {}, {}
    if kind is dmlgpu.MaxPooling2OperatorDesc:
        fields["dilations"], options["dilations"] = (1, 1), (2, 1)
    if kind is not dmlgpu.MaxPoolingOperatorDesc:
        none, indices = {"output_indices_tensor": None}, {"output_indices_tensor": TensorDesc(UINT64, sizes)}
    assert kind.of(source, (2, 3)) == kind(source, TensorDesc(FLOAT32, (2, 3, 7, 7)), **fields, **none)
    expected = kind(source, TensorDesc(FLOAT32, sizes), **fields | options | indices)
    if indices:
        options["indices_data_type"] = "uint64"
    for output in ({}, {"output_sizes": (3, 4)}, {"output_sizes": sizes}):
        assert kind.of(source, (2, 3), **options, **output) == expected


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        (dmlgpu.MaxPooling2OperatorDesc, {"padding": (1, 1)}, "no padding; it has .*, dilations$"),
        (dmlgpu.MaxPoolingOperatorDesc, {"indices_data_type": UINT32}, "no indices_data_type; it has window_size, "),
    ],
)
def test_unknown_arguments_of_poolings_are_refused(kind, options, words):
    words = rf"^{kind.__name__}\.of has {words}"
    refuses(words, kind.of, TensorDesc(FLOAT32, (2, 3, 8, 9)), (2, 3), error=TypeError, **options)


def test_the_input_of_a_device_tensor_has_its_layout(device):
    tensor = device.tensor(np.zeros((4, 3), np.int64), TensorDesc(INT64, (4, 3), (8, 2)))
    assert ArgmaxOperatorDesc.of(tensor, (0,)) == ArgmaxOperatorDesc.of(tensor.desc, (0,))
