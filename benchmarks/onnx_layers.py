"""The layers of an ONNX model that dmlgpu has, each beside ONNX Runtime: whether results agree, and what both take.

It runs as `python -m benchmarks.onnx_layers MODEL.onnx`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx

from benchmarks.measure import interleave
from benchmarks.report import Table, digits, duration, show
from dmlgpu import interop
from dmlgpu.errors import import_problem
from tests.support.cases import Array

# Of arithmetic, which each rounds in its own way; what selects elements has none.
_TOLERANCE = 1e-5
_SELECTS = "ArgMax", "ArgMin", "MaxPool", "GlobalMaxPool", "MaxUnpool", "ReduceMax", "ReduceMin"


def layers(model: onnx.ModelProto) -> Iterator[tuple[str, onnx.ModelProto]]:
    """The layers that take one tensor of a known shape, as models of their own, with their names."""
    graph = onnx.shape_inference.infer_shapes(model).graph
    known = {each.name: each for each in (*graph.value_info, *graph.input, *graph.output)}
    constants = {each.name: each for each in graph.initializer}
    for number, node in enumerate(graph.node):
        inputs = [known.get(name) for name in node.input if name and name not in constants]
        outputs = [known.get(name) for name in node.output if name]
        source = inputs[0] if len(inputs) == 1 else None
        if source is None or None in outputs:
            continue
        sizes = [dim.dim_value for dim in source.type.tensor_type.shape.dim]
        given = [constants[name] for name in node.input if name in constants]
        layer = onnx.helper.make_graph([node], "layer", [source], outputs, given)
        alone = onnx.helper.make_model(layer, opset_imports=model.opset_import, ir_version=max(4, model.ir_version))
        if 0 not in sizes and interop.onnx.is_compatible(alone):
            yield f"{number}: {node.op_type} {'x'.join(map(str, sizes))}", alone


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0, or 1 where results differ or there is nothing to compare."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.onnx_layers", description=__doc__.partition("\n")[0])
    parser.add_argument("model", metavar="MODEL.onnx")
    parser.add_argument("--device", default="CPU", help="CPU, for the default device, or VULKAN:SELECTOR")
    parser.add_argument("--rounds", type=int, default=15, help="of samples (default: 15)")
    args = parser.parse_args(arguments)
    from rich.console import Console

    try:
        import onnxruntime
    except ImportError as error:
        parser.error(f"onnxruntime {import_problem(error, 'onnxruntime')}")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # it warns of initializers that are inputs, too
    rows, good = [], True
    for name, layer in layers(onnx.load(args.model)):
        given = layer.graph.input[0]
        session = onnxruntime.InferenceSession(layer.SerializeToString(), options)
        ours = interop.onnx.prepare(layer, args.device)
        x = _values(given)
        runs = {"dmlgpu": partial(ours.run, [x]), "ONNX": partial(session.run, None, {given.name: x})}
        same = _agree(layer.graph.node[0].op_type, *(run() for run in runs.values()))
        good = good and same
        timings = interleave(runs, args.rounds, 5.0, lambda: None)
        medians = timings["dmlgpu"].median, timings["ONNX"].median
        rows.append((name, *map(duration, medians), digits(medians[0] / medians[1]), "yes" if same else "NO"))
    note = "Medians of calls with arrays, uploads and downloads included; below 1 dmlgpu is faster."
    table = Table(args.model, ("layer", "dmlgpu", "ONNX Runtime", "ratio", "same"), tuple(rows), note)
    show(Console(), {}, [table], [])
    return 0 if good and rows else 1


def _values(tensor: onnx.ValueInfoProto) -> Array:
    kind = tensor.type.tensor_type
    sizes = [dim.dim_value for dim in kind.shape.dim]
    values: Array = np.random.default_rng(0).standard_normal(sizes) * 64
    return values.astype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))


def _agree(op_type: str, got: Sequence[Any], expected: Sequence[Any]) -> bool:
    tolerance = 0 if op_type in _SELECTS else _TOLERANCE
    return all(
        (x.dtype, x.shape) == (y.dtype, y.shape)
        and np.allclose(x, y, rtol=tolerance, atol=64 * tolerance, equal_nan=True)
        for x, y in zip(got, expected, strict=True)
    )


if __name__ == "__main__":
    sys.exit(main())
