"""ONNX Runtime on the CPU, and on a Vulkan device by its WebGPU provider."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np

import dmlgpu
from benchmarks.peers import Contender, Peer, UnavailableError, as_outputs, cores, first_line, function_of, queued
from dmlgpu.descriptors.tensor import Array

# The first opset in which AveragePool has dilations.
_OPSET, _IR_VERSION = 19, 9
_REDUCTIONS = {
    dmlgpu.ReduceFunction.SUM: "ReduceSum",
    dmlgpu.ReduceFunction.MAX: "ReduceMax",
    dmlgpu.ReduceFunction.AVERAGE: "ReduceMean",
    dmlgpu.ReduceFunction.LOG_SUM_EXP: "ReduceLogSumExp",
}


class OnnxruntimePeer(Peer):
    """ONNX Runtime: models of one node, between tensors that exist before."""

    _memory = "cpu"

    def __init__(self) -> None:
        try:
            import onnx.helper
            import onnxruntime
            from onnxruntime.capi import onnxruntime_pybind11_state as state
        except ModuleNotFoundError as error:
            raise UnavailableError("not installed" if error.name == "onnxruntime" else f"needs {error.name}") from None
        self._helper: Any = onnx.helper
        self._onnxruntime: Any = onnxruntime
        self._refusals = (state.NotImplemented, state.InvalidGraph, state.Fail, state.EPFail, RuntimeError)
        self.description = f"{onnxruntime.__version__}, {cores()} threads"

    def argmax(self, desc: dmlgpu.ArgmaxOperatorDesc, x: Array, axis: int) -> Contender:
        return self._contender(desc, "ArgMax", [x], axis=axis, keepdims=0)

    def reduce(self, desc: dmlgpu.ReduceOperatorDesc, x: Array, axis: int) -> Contender:
        return self._contender(desc, function_of(_REDUCTIONS, desc), [x], np.array([axis]), keepdims=0)

    def max_pooling(self, desc: dmlgpu.MaxPooling2OperatorDesc, x: Array) -> Contender:
        return self._contender(desc, "MaxPool", [x], **_window(desc))

    def average_pooling(self, desc: dmlgpu.AveragePooling1OperatorDesc, x: Array) -> Contender:
        return self._contender(desc, "AveragePool", [x], **_window(desc), count_include_pad=int(desc.include_padding))

    def lp_pooling(self, desc: dmlgpu.LpPooling1OperatorDesc, x: Array) -> Contender:
        return self._contender(desc, "LpPool", [x], **_window(desc), p=desc.p)

    def max_unpooling(self, desc: dmlgpu.MaxUnpoolingOperatorDesc, x: Array, indices: Array) -> Contender:
        scale = [target // source for target, source in zip(desc.output_tensor.sizes[2:], x.shape[2:], strict=True)]
        return self._contender(desc, "MaxUnpool", [x, indices.astype(np.int64)], kernel_shape=scale, strides=scale)

    def roi_pooling(self, desc: dmlgpu.RoiPoolingOperatorDesc, x: Array, rois: Array) -> Contender:
        options = {"pooled_shape": desc.pooled_size, "spatial_scale": desc.spatial_scale}
        return self._contender(desc, "MaxRoiPool", [x, rois[0, 0]], **options)

    def cumulative_sum(self, desc: dmlgpu.CumulativeSummationOperatorDesc, x: Array) -> Contender:
        return self._contender(desc, "CumSum", [x], np.array(desc.axis))

    def top_k(self, desc: dmlgpu.TopK1OperatorDesc, x: Array) -> Contender:
        largest = int(desc.axis_direction is dmlgpu.AxisDirection.DECREASING)
        return self._contender(desc, "TopK", [x], np.array([desc.k]), axis=desc.axis, largest=largest)

    def _contender(
        self, desc: dmlgpu.OperatorDesc, operator: str, inputs: Sequence[Array], *constants: Array, **attributes: Any
    ) -> Contender:
        """A model of one node, whose inputs are `inputs`, then `constants`."""
        if not all(x.flags.c_contiguous for x in inputs):
            raise UnavailableError("needs packed tensors")
        helper, onnxruntime = self._helper, self._onnxruntime
        arrays = {f"x{i}": x for i, x in enumerate(inputs)}
        fixed = {f"c{i}": x for i, x in enumerate(constants)}
        results = [f"y{i}" for i in range(len(desc.outputs))]
        node = helper.make_node(operator, [*arrays, *fixed], results, **attributes)
        types = {name: helper.np_dtype_to_tensor_dtype(x.dtype) for name, x in (arrays | fixed).items()}
        sources = [helper.make_tensor_value_info(name, types[name], x.shape) for name, x in arrays.items()]
        # ONNX infers types and sizes of the outputs.
        targets = [helper.make_empty_tensor_value_info(name) for name in results]
        values = [helper.make_tensor(name, types[name], x.shape, x) for name, x in fixed.items()]
        graph = helper.make_graph([node], "operator", sources, targets, values)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = cores()
        options.log_severity_level = 4
        try:
            session = self._session(model.SerializeToString(), options)
        except self._refusals as error:
            raise UnavailableError(_reason(error)) from None
        binding = session.io_binding()
        for name, x in arrays.items():
            binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(x, self._memory))
        for output in session.get_outputs():
            kind = output.type.removeprefix("tensor(").removesuffix(")")
            target = onnxruntime.OrtValue.ortvalue_from_shape_and_type(
                output.shape, {"float": "float32"}.get(kind, kind), self._memory
            )
            binding.bind_ortvalue_output(output.name, target)

        def run() -> None:
            session.run_with_iobinding(binding)

        return Contender(run, lambda _: as_outputs(desc, tuple(binding.copy_outputs_to_cpu())))

    def _session(self, model: bytes, options: Any) -> Any:
        return self._onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


class WebgpuPeer(OnnxruntimePeer):
    """ONNX Runtime's WebGPU provider, which must not move nodes to the CPU. Each run waits for the device."""

    _memory = "webgpu"

    def __init__(self) -> None:
        super().__init__()
        try:
            import onnxruntime_ep_webgpu as provider
        except ModuleNotFoundError:
            raise UnavailableError("not installed") from None
        if len(dmlgpu.devices()) > 1:
            raise UnavailableError(
                "several devices, and it does not tell which one it uses: name one driver's manifest in VK_DRIVER_FILES"
            )
        # Without this variable, which must be set before the library is loaded, it refuses devices that are CPUs.
        os.environ["ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER"] = "1"
        library = self._onnxruntime
        library.set_default_logger_severity(4)
        # Dawn must not be loaded twice.
        if provider.get_ep_name() not in {device.ep_name for device in library.get_ep_devices()}:
            library.register_execution_provider_library("webgpu", provider.get_library_path())
        self._devices = [device for device in library.get_ep_devices() if device.ep_name == provider.get_ep_name()][:1]
        self.description = f"{library.__version__}, onnxruntime-ep-webgpu {version('onnxruntime-ep-webgpu')}"

    def contender(self, desc: dmlgpu.OperatorDesc, *inputs: Array) -> Contender:
        contender = super().contender(desc, *inputs)
        library, word = self._onnxruntime, np.zeros(1, np.float32)
        # A copy from the device waits for all earlier work; `synchronize_outputs` does not.
        source, target = ([library.OrtValue.ortvalue_from_numpy(word, where)] for where in (self._memory, "cpu"))
        contender = queued(contender.run, partial(library.copy_tensors, source, target), contender.outputs)
        try:
            contender.run()
        except self._refusals as error:
            raise UnavailableError(_reason(error)) from None
        return contender

    def _session(self, model: bytes, options: Any) -> Any:
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        options.add_provider_for_devices(self._devices, {})
        return self._onnxruntime.InferenceSession(model, options)


def _window(
    desc: dmlgpu.MaxPooling2OperatorDesc | dmlgpu.AveragePooling1OperatorDesc | dmlgpu.LpPooling1OperatorDesc,
) -> dict[str, Any]:
    """The window as attributes of a node."""
    return {
        "kernel_shape": desc.window_size,
        "strides": desc.strides,
        "pads": [*desc.start_padding, *desc.end_padding],
        "dilations": desc.dilations,
    }


def _reason(error: Exception) -> str:
    """The message without the position in the library's source."""
    return first_line(error).rpartition(": ")[2]
