"""ONNX Runtime on the CPU."""

from __future__ import annotations

from typing import Any

from benchmarks.peers import Contender, Peer, UnavailableError, as_outputs, cores, with_one_axis
from dmlgpu import ArgmaxOperatorDesc, MaxPooling2OperatorDesc, OperatorDesc
from tests.cases import Array

# The first version of the operator set whose ArgMax and MaxPool have all that is used here.
_OPSET, _IR_VERSION = 13, 7


class OnnxruntimePeer(Peer):
    """ONNX Runtime: models of one node, between tensors made beforehand."""

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

    def contender(self, desc: OperatorDesc, x: Array) -> Contender:
        if isinstance(desc, ArgmaxOperatorDesc):
            x, axis = with_one_axis(desc, x)
            node = self._helper.make_node("ArgMax", ["x"], ["y0"], axis=axis, keepdims=0)
        elif isinstance(desc, MaxPooling2OperatorDesc):
            node = self._helper.make_node(
                "MaxPool",
                ["x"],
                [f"y{i}" for i in range(len(desc.outputs))],
                kernel_shape=desc.window_size,
                strides=desc.strides,
                pads=[*desc.start_padding, *desc.end_padding],
                dilations=desc.dilations,
            )
        else:
            raise UnavailableError(f"no {type(desc).__name__} in ONNX")
        if not x.flags.c_contiguous:
            raise UnavailableError("takes packed tensors only")
        return self._contender(desc, node, x)

    def _contender(self, desc: OperatorDesc, node: Any, x: Array) -> Contender:
        helper, onnxruntime = self._helper, self._onnxruntime
        source = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        # Without types and sizes of the outputs: ONNX infers them.
        targets = [helper.make_empty_tensor_value_info(name) for name in node.output]
        graph = helper.make_graph([node], "operator", [source], targets)
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
        binding.bind_ortvalue_input("x", onnxruntime.OrtValue.ortvalue_from_numpy(x))
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
