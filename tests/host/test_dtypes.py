"""The enumerations: DirectML's names and numbers."""

import re

import numpy as np
import pytest

from dmlgpu import AxisDirection, DataType, DescriptorError, ReduceFunction
from dmlgpu.descriptors.dtypes import conversion
from dmlgpu.descriptors.reduction import REDUCE_TYPES

DATA_TYPES = "UNKNOWN FLOAT32 FLOAT16 UINT32 UINT16 UINT8 INT32 INT16 INT8 FLOAT64 UINT64 INT64 UINT4 INT4"
REDUCE_FUNCTIONS = "ARGMAX ARGMIN AVERAGE L1 L2 LOG_SUM LOG_SUM_EXP MAX MIN MULTIPLY SUM SUM_SQUARE"


@pytest.mark.parametrize(
    ("enum", "names"),
    [(DataType, DATA_TYPES), (AxisDirection, "INCREASING DECREASING"), (ReduceFunction, REDUCE_FUNCTIONS)],
)
def test_numbers_and_names_are_those_of_directml(enum, names):
    assert {member.name: int(member) for member in enum} == {name: i for i, name in enumerate(names.split())}
    for member in enum:
        assert repr(member) == str(member) == f"{member}"
        assert eval(str(member)) is enum.member(np.int64(member)) is member
        for name in (member.name, member.name.lower(), member.name.title()):
            assert enum.member(name) is member
    for wrong in ("", "max ", "bits", "__str__", True, 1.0, np.float32(1), "1", None, np.array([1])):
        assert enum.member(wrong) is None
    assert AxisDirection.member(DataType.FLOAT32) is None


def test_a_data_type_has_the_bits_and_the_numpy_type_of_its_name():
    bits = {"UNKNOWN": 0, "UINT4": 4, "INT4": 4}
    for data_type in DataType:
        assert data_type.bits == bits.get(data_type.name, int(re.sub(r"\D", "", data_type.name) or 0))
        if data_type.bits < 8:
            with pytest.raises(DescriptorError, match=f"^{data_type} has no NumPy type$"):
                data_type.numpy  # noqa: B018
            continue
        assert data_type.numpy.isnative
        assert data_type.numpy.name == data_type.name.lower()
        assert {DataType.of(data_type.numpy.newbyteorder(order)) for order in "=<>"} == {data_type}
    for name in ("float32", "FLOAT32", "<f4", np.float32, np.dtype(">f4")):
        assert DataType.of(name) is DataType.FLOAT32


@pytest.mark.parametrize("dtype", [complex, object, "U3", "M8[s]", "m8[s]", [("a", "f4")]])
def test_types_that_directml_lacks_are_refused(dtype):
    with pytest.raises(DescriptorError) as caught:
        DataType.of(dtype)
    assert str(caught.value) == (
        f"TensorDesc.data_type: NumPy type {np.dtype(dtype)} has no DirectML data type; allowed are "
        "float32, float16, uint32, uint16, uint8, int32, int16, int8, float64, uint64, int64"
    )


def test_a_conversion_keeps_values_if_an_allowed_type_can():
    how = "; convert the array, as by x.astype(np.{0}), a list by np.asarray(x, np.{0})"
    if np.dtype(np.longdouble) != np.float64:  # as on Windows
        with pytest.raises(DescriptorError) as caught:
            DataType.of(np.longdouble)
        assert how.format("float64") in str(caught.value)
    # A type of the package ml_dtypes.
    assert conversion("bfloat16", DataType) == how.format("float32")
    assert conversion("float64", (DataType.FLOAT16, DataType.FLOAT32)) == how.format("float32") + ", which rounds"
    assert conversion("bool", DataType) == conversion("uint8", DataType) == how.format("int32")
    assert conversion("longdouble", DataType) == how.format("float64") + ", which rounds"
    assert conversion("bool", (DataType.UINT64, DataType.UINT32)) == how.format("uint32")
    assert conversion("bool", (DataType.FLOAT16, DataType.FLOAT32)) == how.format("float32")
    assert conversion("float64", (DataType.UINT64, DataType.UINT32)) == ""
    indices = DataType.INT64, DataType.UINT64, DataType.UINT32
    assert [conversion(name, indices) for name in ("int8", "int32")] == [how.format("int64")] * 2
    assert [conversion(name, indices) for name in ("bool", "uint16")] == [how.format("uint32")] * 2
    assert conversion("int64", (DataType.UINT64, DataType.UINT32)) == ""
    assert conversion("complex64", DataType) == ""


@pytest.mark.parametrize("allowed", {types["input_tensor"] for types in REDUCE_TYPES.values()}, ids=len)
def test_every_type_of_numbers_can_be_converted(allowed):
    """The advice mentions rounding only if the largest number is rounded."""
    assert {DataType.FLOAT32, DataType.FLOAT16} <= set(allowed)
    for data_type in set(DataType) - set(allowed):
        how = conversion(data_type.name.lower(), allowed)
        assert bool(how) == (data_type.bits >= 8)
        if how:
            to = np.dtype(re.search(r"astype\(np\.(\w+)\)", how)[1])
            assert DataType.of(to) in allowed
            limits = np.finfo if data_type.is_float else np.iinfo
            greatest = np.array(limits(data_type.numpy).max)
            with np.errstate(over="ignore"):
                same = int(greatest) == (0 if np.isinf(greatest.astype(to)) else int(greatest.astype(to)))
            assert how.endswith(", which rounds") != same


def test_an_array_of_bool_is_uint8_if_that_is_allowed():
    assert DataType.of(bool) is DataType.of(np.bool_, "X", (DataType.UINT8,)) is DataType.UINT8
    with pytest.raises(DescriptorError, match=r"^X: NumPy type bool has no .* allowed are float32; convert .*float32"):
        DataType.of(bool, "X", (DataType.FLOAT32,))
    with pytest.raises(DescriptorError, match=r"^X: NumPy type bool has no DirectML data type; allowed are uint8$"):
        DataType.of(bool, "X", (DataType.UINT8,), of_input=False)
