"""The operator descriptors: their names, types and sizes; which descriptions are valid."""

import builtins
import copy
import dataclasses
import itertools
import pickle
import re

import numpy as np
import pytest

import dmlgpu
from dmlgpu import ArgmaxOperatorDesc, DescriptorError, ReduceFunction, ReduceOperatorDesc, TensorDesc
from dmlgpu.descriptors.reduction import ExtremumOperatorDesc
from dmlgpu.testing.cases import (
    CASES,
    ELEMENT_TYPES,
    FLOAT32,
    INDEX_TYPES,
    INT64,
    UINT8,
    UINT32,
    UINT64,
    arg_desc,
    pool_desc,
)

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
def test_fields_are_those_of_the_structure_without_counts(structure):
    name = structure.removeprefix("DML_").removeprefix("BUFFER_").title().replace("_", "")
    fields = [field for field in STRUCTURES[structure].split() if not field.endswith("Count")]
    expected = [re.sub("(?<!^)([A-Z])", r"_\1", field).lower() for field in fields]
    assert [field.name for field in dataclasses.fields(getattr(dmlgpu, name))] == expected


def test_every_name_that_is_promised_is_exported():
    promised = (
        "DataType AxisDirection ReduceFunction TensorDesc ArgmaxOperatorDesc ArgminOperatorDesc ReduceOperatorDesc "
        "MaxPoolingOperatorDesc MaxPooling1OperatorDesc MaxPooling2OperatorDesc argmax argmin max_pooling devices "
        "Device verify DescriptorError DeviceError OutOfMemoryError VerificationError"
    )
    assert set(promised.split()) <= set(dmlgpu.__all__)
    assert all(hasattr(dmlgpu, name) for name in dmlgpu.__all__)
    assert not set(dmlgpu.__all__) & set(dir(builtins))  # a star import leaves these alone
    for error, base in (
        (dmlgpu.DescriptorError, ValueError),
        (dmlgpu.DeviceError, RuntimeError),
        (dmlgpu.OutOfMemoryError, dmlgpu.DeviceError),
        (dmlgpu.OutOfMemoryError, MemoryError),
        (dmlgpu.VerificationError, AssertionError),
    ):
        assert issubclass(error, base)


# Values

# One of every class.
DESCS = list({type(case.desc): case.desc for case in CASES}.values())


@pytest.mark.parametrize(
    "desc", [TensorDesc(FLOAT32, (2, 3), (8, 1), 64), *DESCS], ids=lambda desc: type(desc).__name__
)
def test_descriptors_are_values(desc):
    """What eval() makes of them is equal: test_properties.py."""
    assert pickle.loads(pickle.dumps(desc)) == desc == copy.deepcopy(desc)
    for field in dataclasses.fields(desc):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(desc, field.name, getattr(desc, field.name))


def test_all_descriptors_have_cases():
    public = {name for name in dmlgpu.__all__ if name.endswith("OperatorDesc")} - {"OperatorDesc"}
    assert {type(desc).__name__ for desc in DESCS} == public | {"ExtremumOperatorDesc"}


def test_prints_as_it_is_written():
    source, target = TensorDesc(FLOAT32, (2, 3)), TensorDesc(UINT32, (2, 1))
    desc = ArgmaxOperatorDesc(source, target, [1])
    assert repr(desc) == (
        "ArgmaxOperatorDesc(input_tensor=TensorDesc(DataType.FLOAT32, (2, 3)), "
        "output_tensor=TensorDesc(DataType.UINT32, (2, 1)), axes=(1,), axis_direction=AxisDirection.INCREASING)"
    )
    assert ArgmaxOperatorDesc(source, target, [1], 1).axis_direction is dmlgpu.AxisDirection.DECREASING
    assert ReduceOperatorDesc(1, source, target, [1]).function is ReduceFunction.ARGMIN
    descs = {arg_desc(ArgmaxOperatorDesc, FLOAT32, (2, 3, 4), axes) for axes in itertools.permutations((0, 1, 2))}
    assert [desc.axes for desc in descs] == [(0, 1, 2)]


# Types

# The types of every tensor of a descriptor.
TYPES = {
    (kind, field): set(types)
    for kinds, tensors in (
        (
            (ArgmaxOperatorDesc, dmlgpu.ArgminOperatorDesc, ReduceOperatorDesc),
            {"input": ELEMENT_TYPES, "output": INDEX_TYPES},
        ),
        ((dmlgpu.MaxPoolingOperatorDesc,), {"input": ELEMENT_TYPES, "output": ELEMENT_TYPES}),
        (
            (dmlgpu.MaxPooling1OperatorDesc, dmlgpu.MaxPooling2OperatorDesc),
            {"input": ELEMENT_TYPES, "output": ELEMENT_TYPES, "output_indices": (UINT64, UINT32)},
        ),
    )
    for kind in kinds
    for field, types in ((f"{name}_tensor", types) for name, types in tensors.items())
}
VALID = {
    type(desc): desc
    for desc in (
        arg_desc(ArgmaxOperatorDesc, FLOAT32, (2, 3), [1]),
        arg_desc(dmlgpu.ArgminOperatorDesc, FLOAT32, (2, 3), [1]),
        ReduceOperatorDesc(ReduceFunction.ARGMAX, TensorDesc(FLOAT32, (2, 3)), TensorDesc(UINT32, (2, 1)), [1]),
        next(case.desc for case in CASES if case.id == "max-pooling-4d-float32"),
        next(case.desc for case in CASES if case.id == "max-pooling1-4d-float32"),
        pool_desc(FLOAT32, (1, 2, 5, 5), (2, 2)),
    )
}
by_tensor = pytest.mark.parametrize(("kind", "field"), TYPES, ids=lambda value: getattr(value, "__name__", value))


def with_type(kind, field, data_type):
    """A valid descriptor, but for the type of a tensor."""
    desc = VALID[kind]
    fields = {field}
    if "Pooling" in kind.__name__ and field != "output_indices_tensor" and data_type in ELEMENT_TYPES:
        # Input and output have one type; of another type the field in question is found wrong first.
        fields = {"input_tensor", "output_tensor"}
    changes = {name: dataclasses.replace(getattr(desc, name), data_type=data_type) for name in fields}
    return dataclasses.replace(desc, **changes)


@by_tensor
def test_types_that_are_accepted_and_no_others(kind, field):
    for data_type in set(dmlgpu.DataType) - {dmlgpu.DataType.UNKNOWN}:
        if data_type in TYPES[kind, field]:
            assert getattr(with_type(kind, field, data_type), field).data_type is data_type
        else:
            named = f"^{kind.__name__}.{field}.data_type: {data_type.name} is not supported; allowed are "
            with pytest.raises(DescriptorError, match=named) as caught:
                with_type(kind, field, data_type)
            told = re.findall(r"\b[A-Z]+\d+\b", str(caught.value).split("allowed are")[1])
            assert sorted(told) == sorted(t.name for t in TYPES[kind, field])


@pytest.mark.parametrize(
    "kind", [ArgmaxOperatorDesc, dmlgpu.ArgminOperatorDesc, ReduceOperatorDesc, ExtremumOperatorDesc]
)
def test_an_int32_index_of_the_most_elements(kind):
    """The indices 0 to 2^31 - 1 fit; one element more does not."""

    def desc(size):
        tensors = TensorDesc(UINT8, (1, size)), TensorDesc(dmlgpu.DataType.INT32, (1, 1))
        if kind is ExtremumOperatorDesc:
            return kind.of(ReduceFunction.MAX, tensors[0], (1,), indices_data_type=dmlgpu.DataType.INT32)
        return kind(*tensors, (1,)) if kind is not ReduceOperatorDesc else kind(ReduceFunction.ARGMAX, *tensors, (1,))

    assert desc(2**31).inputs[0].element_count == 2**31
    with pytest.raises(DescriptorError, match="INT32 cannot hold the index of 2147483649 reduced elements"):
        desc(2**31 + 1)


def test_an_extremum_gives_the_value_and_its_index():
    source = TensorDesc(FLOAT32, (2, 3, 4), (24, 8, 1))
    desc = ExtremumOperatorDesc.of("min", source, (2, 0))
    assert (desc.function, desc.axes) == (ReduceFunction.MIN, (0, 2))
    assert desc.inputs == (source,)
    assert desc.outputs == (TensorDesc(FLOAT32, (1, 3, 1)), TensorDesc(UINT64, (1, 3, 1)))
    assert ExtremumOperatorDesc.of("max", source, (0,), indices_data_type=np.int32).outputs[1].data_type.name == "INT32"
    with pytest.raises(
        DescriptorError, match=r"^ExtremumOperatorDesc\.output_indices_tensor\.data_type: None is neither"
    ):
        ExtremumOperatorDesc.of("max", source, (0,), indices_data_type=None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"function": ReduceFunction.SUM}, "function: ReduceFunction.SUM is not allowed; allowed are MAX, MIN"),
        ({"function": 99}, "function: 99 is not allowed"),
        ({"axes": ()}, "axes: () is empty"),
        (
            {"output_tensor": TensorDesc(dmlgpu.DataType.INT32, (2, 1))},
            "output_tensor.data_type: INT32 differs from the input",
        ),
        ({"output_tensor": TensorDesc(FLOAT32, (1, 1))}, "output_tensor.sizes[0]: 1 is wrong"),
        ({"output_indices_tensor": TensorDesc(FLOAT32, (2, 1))}, "output_indices_tensor.data_type: FLOAT32 is not"),
        ({"output_indices_tensor": TensorDesc(UINT32, (2, 3))}, "output_indices_tensor.sizes[1]: 3 is wrong"),
        ({"output_indices_tensor": None}, "output_indices_tensor: None is not a TensorDesc"),
        ({"output_indices_tensor": TensorDesc(UINT32, (2, 1), (0, 1))}, "output_indices_tensor.strides: with strides"),
    ],
    ids=str,
)
def test_an_extremum_checks_its_fields(changes, message):
    desc = ExtremumOperatorDesc.of(ReduceFunction.MAX, TensorDesc(FLOAT32, (2, 3)), (1,))
    with pytest.raises(DescriptorError, match=f"^ExtremumOperatorDesc.{re.escape(message)}"):
        dataclasses.replace(desc, **changes)


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


def test_output_size_counts_the_extent_of_a_dilated_window():
    # Window 2 x 2 with dilation 2 over 4 x 5: 2 x 3. The documents' formula forgets the dilation, and gives 3 x 4.
    desc = pool_desc(FLOAT32, (1, 1, 4, 5), (2, 2), dilations=(2, 2))
    assert desc.output_tensor.sizes[2:] == (2, 3)
    with pytest.raises(
        DescriptorError, match=r"^MaxPooling2OperatorDesc\.output_tensor\.sizes\[2\]: 3 is wrong; expected 2"
    ):
        dataclasses.replace(desc, output_tensor=TensorDesc(FLOAT32, (1, 1, 3, 4)), output_indices_tensor=None)


def holds_input(size, output, window, stride, start, dilation):
    """Whether each of the windows has an element in the input, by the definition."""
    return all(any(0 <= o * stride - start + k * dilation < size for k in range(window)) for o in range(output))


def test_all_rows_of_a_few_elements_are_accepted_if_every_window_holds_input():
    axes = (range(1, 5), range(1, 4), range(1, 4), range(4), range(4), range(1, 6))
    for size, window, stride, start, end, dilation in itertools.product(*axes):
        steps = size + start + end - 1 - (window - 1) * dilation
        for output in {steps // stride + 1, -(-steps // stride) + 1} if steps >= 0 else {1}:
            valid = steps >= 0 and holds_input(size, output, window, stride, start, dilation)
            row = size, output, window, stride, start, end, dilation
            assert is_accepted(*row) == valid, row


@pytest.mark.parametrize(("output", "allowed"), [(1, "2 along the width, "), (4, "2.* or .*3"), (5, "2.* or .*3")])
def test_an_output_size_that_rounding_does_not_give(output, allowed):
    with pytest.raises(DescriptorError, match=rf"sizes\[3\]: {output} is wrong; expected {allowed}"):
        pool_row(5, output, window=2, stride=2)


def test_canonical_descriptors():
    source, target = TensorDesc(FLOAT32, (2, 3)), TensorDesc(UINT32, (2, 1))
    assert ReduceOperatorDesc(0, source, target, [1]).canonical() == ArgmaxOperatorDesc(source, target, [1])
    assert ReduceOperatorDesc(1, source, target, [1]).canonical() == dmlgpu.ArgminOperatorDesc(source, target, [1])
    new = pool_desc(FLOAT32, (1, 2, 5, 5), (2, 2), indices=None)
    fields = {name: value for name, value in vars(new).items() if name != "dilations"}
    assert dmlgpu.MaxPooling1OperatorDesc(**fields).canonical() == new == new.canonical()
    del fields["output_indices_tensor"]
    assert dmlgpu.MaxPoolingOperatorDesc(**fields).canonical() == new


def test_tensors_in_the_order_of_the_fields():
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
    ("kind", "options", "says"),
    [
        (dmlgpu.MaxPooling1OperatorDesc, {"dilations": (1, 1)}, "no dilations; it has window_size, "),
        (dmlgpu.MaxPooling2OperatorDesc, {"padding": (1, 1)}, "no padding; it has .*, dilations$"),
        (dmlgpu.MaxPoolingOperatorDesc, {"indices_data_type": UINT32}, "no indices_data_type; it has window_size, "),
        (
            dmlgpu.AveragePoolingGradOperatorDesc,
            {"window_size": (2, 2), "dilations": 1},
            "no dilations; it has window_size, strides, start_padding",
        ),
    ],
)
def test_fields_that_a_descriptor_lacks(kind, options, says):
    with pytest.raises(TypeError, match=rf"^{kind.__name__}\.of has {says}"):
        kind.of(TensorDesc(FLOAT32, (2, 3, 8, 9)), (2, 3), **options)


def test_a_device_tensor_gives_its_layout(device):
    tensor = device.tensor(np.zeros((4, 3), np.int64), TensorDesc(INT64, (4, 3), (8, 2)))
    assert ArgmaxOperatorDesc.of(tensor, (0,)) == ArgmaxOperatorDesc.of(tensor.desc, (0,))
