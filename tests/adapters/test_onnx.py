"""Results of ONNX models are those of ONNX Runtime."""

import random

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from dmlgpu import DescriptorError, interop
from tests.support.errors import refuses


def random_pool(op_type, number):
    """A model of one pooling, and its input."""
    draw = random.Random(f"{op_type} {number}")
    rank = draw.randint(1, 3)

    def entries(lowest, highest):
        return [draw.randint(lowest, highest) for _ in range(rank)]

    window = entries(1, 4)
    attributes = {
        "kernel_shape": window,
        "strides": entries(1, 5),
        "dilations": entries(1, 4),
        "pads": [draw.randint(0, min(2, size - 1)) for size in window * 2],
    }
    # With VALID, ONNX Runtime uses ceil_mode, and dmlgpu does not.
    attributes |= {"auto_pad": "VALID"} if draw.random() < 0.2 else {"ceil_mode": draw.randint(0, 1)}
    outputs = {"y": TensorProto.FLOAT}
    if op_type == "AveragePool":
        attributes["count_include_pad"] = draw.randint(0, 1)
    elif op_type == "MaxPool":
        attributes["storage_order"] = draw.randint(0, 1)
        outputs["i"] = TensorProto.INT64
    x = np.random.default_rng(number).random((draw.randint(0, 2), 2, *entries(1, 7)), np.float32)
    graph = helper.make_graph(
        [helper.make_node(op_type, ["x"], [*outputs], **attributes)],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info(name, kind, [None] * x.ndim) for name, kind in outputs.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), x


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool", "LpPool"])
def test_pooling_is_that_of_onnx_runtime(driver, op_type):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    pooled = refused = 0
    for number in range(150):
        model, x = random_pool(op_type, number)
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        ours = interop.onnx.prepare(model, f"VULKAN:{driver.index}")
        try:
            expected = session.run(None, {"x": x})
        except Exception:
            refuses("does not fit spatial sizes", ours.run, [x])
            refused += 1
            continue
        try:
            results = ours.run([x])
        except DescriptorError as error:
            if "lies wholly in the padding" not in str(error):  # where ONNX Runtime has the least float, or 0
                raise
            continue
        pooled += 1
        for result, array in zip(results, expected, strict=True):
            assert result.shape == array.shape
            np.testing.assert_allclose(result, array, rtol=1e-5, err_msg=str((number, model.graph.node)))
    assert pooled > 75
    assert refused > 5
