"""ONNX Runtime on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.peers import Contender, Peer, UnavailableError, as_outputs, cores, with_one_axis
from dmlgpu import (
    ArgmaxOperatorDesc,
    AveragePooling1OperatorDesc,
    LpPooling1OperatorDesc,
    MaxPooling2OperatorDesc,
    MaxUnpoolingOperatorDesc,
    OperatorDesc,
    ReduceFunction,
    ReduceOperatorDesc,
)
from tests.support.cases import Array

# The first version of the operator set that has all that is used here: AveragePool has dilations from it on.
_OPSET, _IR_VERSION = 19, 9
_REDUCTIONS = {
    ReduceFunction.SUM: "ReduceSum",
    ReduceFunction.MAX: "ReduceMax",
    ReduceFunction.AVERAGE: "ReduceMean",
    ReduceFunction.LOG_SUM_EXP: "ReduceLogSumExp",
}


class OnnxruntimePeer(Peer):
    """ONNX Runtime: models of one node, between tensors made beforehand."""

    name = "ONNX"

    def __init__(self) -> None:
        try:
            import onnx.helper
            import onnxruntime
            from onnxruntime.capi import onnxruntime_pybind11_state as state
        except ModuleNotFoundError as error:
            raise UnavailableError("not installed" if error.name == "onnxruntime" else f"needs {error.name}") from None
        self._helper: Any = onnx.helper
        self._onnxruntime: Any = onnxruntime
        self._refusals = (state.NotImplemented, state.InvalidGraph, state.Fail)

    @property
    def description(self) -> str:
        return f"{self._onnxruntime.__version__}, {cores()} threads"

    def argmax(self, desc: ArgmaxOperatorDesc, x: Array) -> Contender:
        rows, axis = with_one_axis(desc, x)
        return self._contender(desc, "ArgMax", [rows], axis=axis, keepdims=0)

    def reduce(self, desc: ReduceOperatorDesc, x: Array) -> Contender:
        rows, axis = with_one_axis(desc, x)
        return self._contender(desc, self._function(_REDUCTIONS, desc), [rows], np.array([axis]), keepdims=0)

    def max_pooling(self, desc: MaxPooling2OperatorDesc, x: Array) -> Contender:
        return self._contender(desc, "MaxPool", [x], **_window(desc))

    def average_pooling(self, desc: AveragePooling1OperatorDesc, x: Array) -> Contender:
        return self._contender(desc, "AveragePool", [x], **_window(desc), count_include_pad=int(desc.include_padding))

    def lp_pooling(self, desc: LpPooling1OperatorDesc, x: Array) -> Contender:
        return self._contender(desc, "LpPool", [x], **_window(desc), p=desc.p)

    def max_unpooling(self, desc: MaxUnpoolingOperatorDesc, x: Array, indices: Array) -> Contender:
        scale = [target // source for target, source in zip(desc.output_tensor.sizes[2:], x.shape[2:], strict=True)]
        return self._contender(desc, "MaxUnpool", [x, indices.astype(np.int64)], kernel_shape=scale, strides=scale)

    def _contender(
        self, desc: OperatorDesc, operator: str, inputs: Sequence[Array], *constants: Array, **attributes: Any
    ) -> Contender:
        """A model of one operator: its inputs come first, and then constants."""
        if not all(x.flags.c_contiguous for x in inputs):
            raise UnavailableError("takes packed tensors only")
        helper, onnxruntime = self._helper, self._onnxruntime
        given = {f"x{i}": x for i, x in enumerate(inputs)}
        fixed = {f"c{i}": x for i, x in enumerate(constants)}
        results = [f"y{i}" for i in range(len(desc.outputs))]
        node = helper.make_node(operator, [*given, *fixed], results, **attributes)
        types = {name: helper.np_dtype_to_tensor_dtype(x.dtype) for name, x in (given | fixed).items()}
        sources = [helper.make_tensor_value_info(name, types[name], x.shape) for name, x in given.items()]
        # Without types and sizes of the outputs: ONNX infers them.
        targets = [helper.make_empty_tensor_value_info(name) for name in results]
        values = [helper.make_tensor(name, types[name], x.shape, x) for name, x in fixed.items()]
        graph = helper.make_graph([node], "operator", sources, targets, values)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = cores()
        options.log_severity_level = 4
        try:
            session = onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        except self._refusals as error:
            raise UnavailableError(str(error).splitlines()[0]) from None
        binding = session.io_binding()
        for name, x in given.items():
            binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(x))
        for output in session.get_outputs():
            kind = output.type.removeprefix("tensor(").removesuffix(")")
            target = onnxruntime.OrtValue.ortvalue_from_shape_and_type(
                output.shape, {"float": "float32"}.get(kind, kind)
            )
            binding.bind_ortvalue_output(output.name, target)

        def run() -> list[Any]:
            session.run_with_iobinding(binding)
            return binding.get_outputs()  # type: ignore[no-any-return]

        return Contender(run, lambda outputs: as_outputs(desc, *(output.numpy() for output in outputs)))


def _window(desc: MaxPooling2OperatorDesc | AveragePooling1OperatorDesc | LpPooling1OperatorDesc) -> dict[str, Any]:
    """As the attributes of a node."""
    return {
        "kernel_shape": desc.window_size,
        "strides": desc.strides,
        "pads": [*desc.start_padding, *desc.end_padding],
        "dilations": desc.dilations,
    }
