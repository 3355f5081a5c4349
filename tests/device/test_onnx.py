"""ONNX models: ONNX's own tests of the operators, and what they leave out."""

import itertools
import re
import unittest
import warnings

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test import BackendTest
from onnx.backend.test.loader import load_model_tests
from onnx.reference import ReferenceEvaluator

import dmlgpu
from dmlgpu import interop
from tests.support.errors import refuses

UNSUPPORTED, BAD = interop.onnx.UnsupportedError, dmlgpu.DescriptorError


@pytest.fixture
def vulkan(device):
    """The backend's name of an open device."""
    return f"VULKAN:{device.info.index}"


def official_tests():
    """The names of ONNX's tests of models that have only operators of dmlgpu."""
    names = []
    for kind in ("node", "simple", "pytorch-converted", "pytorch-operator"):
        for test in load_model_tests(kind=kind):
            model = test.model or onnx.load(f"{test.model_dir}/model.onnx")
            # Expanded models consist of other operators, or are the same as those that are not expanded.
            others = "_expanded" in test.name or {node.op_type for node in model.graph.node} <= {"Constant"}
            if not others and interop.onnx.is_compatible(model):
                names.append(test.name)
    return names


# Its expected indices count in the inferred shape; those of MaxPool count in its input, which is output_shape. ONNX
# Runtime agrees (github.com/onnx/onnx/issues/2398).
WRONG = "test_maxunpool_export_with_output_shape"


def test_all_official_tests_run(driver):
    prepared = []

    class Backend(interop.onnx.Backend):
        @classmethod
        def prepare(cls, model, device="CPU", **kwargs):
            prepared.append(super().prepare(model, f"VULKAN:{driver.index}", **kwargs))
            return prepared[-1]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from NumPy, which computes expected results
        names = official_tests()
        runner = BackendTest(Backend, __name__)
    assert len(names) == len({*names}) == 219
    for name in {*names} - {WRONG}:
        runner.include(f"^{name}_cpu$")
    result = unittest.TestResult()
    runner.test_suite.run(result)
    assert result.failures == []
    # Sums of float64, which neither DirectML nor dmlgpu has: 8 tests of ReduceLogSumExp, 7 of CumSum, 7 of CumProd.
    assert len(result.errors) == 22
    assert all("DOUBLE is not supported" in text for _, text in result.errors)
    # Each model has one node. The runner counts skipped tests as run, so the backend counts, too.
    assert result.testsRun - len(result.skipped) == 218
    assert sum(representation.executions for representation in prepared) == 218 - 22


def node(op_type, inputs="x", outputs="y", **attributes):
    """A node; names of inputs and outputs have spaces between them."""
    return helper.make_node(op_type, inputs.split(), outputs.split(), **attributes)


def model_of(nodes, inputs, outputs="y", opset=22, constants=()):
    """A model whose inputs have the types and shapes of arrays, and whose constants are initializers.

    dmlgpu ignores the types and shapes of outputs.
    """
    declared = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in inputs.items()
    ]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ()) for name in outputs.split()]
    initializers = [numpy_helper.from_array(x, name) for name, x in dict(constants).items()]
    graph = helper.make_graph(nodes, "graph", declared, results, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def run(vulkan, nodes, inputs, outputs="y", **options):
    """The outputs of a model on a device."""
    return interop.onnx.run_model(model_of(nodes, inputs, outputs, **options), inputs, vulkan)


def run_reference(nodes, inputs, outputs="y", **options):
    """The outputs of a model from ONNX's reference."""
    return ReferenceEvaluator(model_of(nodes, inputs, outputs, **options)).run(None, dict(inputs))


def output_of(vulkan, op_type, *inputs, **attributes):
    """The output of a single node."""
    (y,) = interop.onnx.run_node(node(op_type, "x i s"[: 2 * len(inputs)], **attributes), [*inputs], vulkan)
    return y


def refuses_model(words, model):
    """A model is refused before anything runs."""
    refuses(f"^{words}", interop.onnx.prepare, model, error=UNSUPPORTED)


def values(*sizes, dtype=np.float32):
    return np.random.default_rng(sum(sizes)).permutation(np.arange(np.prod(sizes)) % 251).reshape(sizes).astype(dtype)


@pytest.mark.parametrize("storage_order", [0, 1])
@pytest.mark.parametrize(
    ("sizes", "attributes"),
    [
        ((2, 3, 17), {"kernel_shape": [3], "strides": [2], "pads": [1, 0]}),
        ((2, 3, 9, 8), {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 0, 1]}),
        ((2, 3, 9, 8), {"kernel_shape": [2, 3], "auto_pad": "SAME_LOWER"}),
        ((2, 3, 9, 8), {"kernel_shape": [2, 3], "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
        ((2, 3, 9, 8), {"kernel_shape": [2, 3], "auto_pad": "VALID", "strides": [3, 2], "ceil_mode": 1}),
        ((1, 2, 5, 6, 7), {"kernel_shape": [2, 3, 2], "strides": [2, 2, 3], "ceil_mode": 1}),
        ((1, 2, 5, 6, 7), {"kernel_shape": [2, 2, 2], "dilations": [2, 1, 3]}),
        # A window that is larger than the padded input.
        ((1, 2, 5, 6), {"kernel_shape": [4, 7], "strides": [3, 3], "ceil_mode": 1}),
        ((1, 2, 6, 4), {"kernel_shape": [3, 1], "strides": [2, 1], "dilations": [3, 1], "ceil_mode": 1}),
        # More indices than the 8,192 of NumPy's buffers.
        ((1, 1, 9001, 2), {"kernel_shape": [2, 2]}),
    ],
    ids=str,
)
def test_indices_are_those_of_the_maxima(vulkan, sizes, attributes, storage_order):
    x = values(*sizes)
    y, i = run(vulkan, [node("MaxPool", "x", "y i", storage_order=storage_order, **attributes)], {"x": x}, "y i")
    assert np.array_equal(y, run_reference([node("MaxPool", **attributes)], {"x": x})[0])
    assert i.dtype == np.int64
    planes = x.reshape(-1, *sizes[2:])
    by_index = np.concatenate([plane.reshape(-1, order="F" if storage_order else "C") for plane in planes])
    assert np.array_equal(by_index[i], y)


@pytest.mark.parametrize(
    ("op_type", "opset", "sizes", "attributes"),
    [
        ("AveragePool", 1, (1, 2, 9), {"kernel_shape": [3]}),
        ("AveragePool", 7, (1, 2, 9, 8), {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "count_include_pad": 1}),
        ("AveragePool", 19, (1, 2, 5, 6, 7), {"kernel_shape": [2, 2, 2], "dilations": [1, 2, 3]}),
        (
            "AveragePool",
            19,
            (1, 2, 5, 6),
            {"kernel_shape": [3, 3], "dilations": [2, 3], "strides": [3, 3], "ceil_mode": 1},
        ),
        ("MaxPool", 1, (1, 2, 9, 8), {"kernel_shape": [3, 3], "strides": [2, 2]}),
        ("GlobalAveragePool", 22, (2, 3, 7), {}),
    ],
    ids=str,
)
def test_poolings_of_every_opset_are_those_of_the_reference(vulkan, op_type, opset, sizes, attributes):
    program = [node(op_type, **attributes)], {"x": values(*sizes)}
    np.testing.assert_allclose(run(vulkan, *program, opset=opset), run_reference(*program, opset=opset), rtol=1e-6)


VOLUME, ROWS, IMAGE = values(2, 3, 5, 4, 3), values(3, 4), values(1, 1, 5, 5)
PLANES = np.arange(48, dtype=np.float32).reshape(1, 2, 6, 4)
TALL = {"kernel_shape": [3, 1], "strides": [2, 1], "dilations": [3, 1]}
FLAT = {"kernel_shape": [4, 3], "strides": [4, 3], "pads": [2, 1, 0, 1]}
MAXIMA_OF_3 = np.lib.stride_tricks.sliding_window_view(IMAGE, (3, 3), (2, 3)).max((-1, -2))


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "expected"),
    [
        # ONNX's reference has an additional dimension.
        ("GlobalMaxPool", [VOLUME], {}, VOLUME.max((2, 3, 4), keepdims=True)),
        # A single window may be larger than the input.
        *(
            (op_type, [PLANES], TALL | further, expected)
            for op_type, expected in (
                ("MaxPool", PLANES[:, :, 3:4]),
                ("AveragePool", PLANES[:, :, [0, 3]].mean(2, keepdims=True)),
            )
            for further in ({}, {"ceil_mode": 1}, {"auto_pad": "VALID"})
        ),
        # `auto_pad` VALID ignores `pads`.
        ("MaxPool", [IMAGE], {"kernel_shape": [3, 3], "auto_pad": "VALID", "pads": [1, 1, 1, 1]}, MAXIMA_OF_3),
        # Padding is never negative, although the formula of SAME_UPPER results in -2 along the height.
        (
            "MaxPool",
            [values(1, 1, 9, 8)],
            {"kernel_shape": [1, 1], "strides": [3, 1], "auto_pad": "SAME_UPPER"},
            values(1, 1, 9, 8)[:, :, ::3],
        ),
        # If the kernel is larger than the padded input, its size is the divisor, as in ONNX Runtime.
        *(
            ("AveragePool", [np.ones(sizes, np.float32)], {"count_include_pad": 1, **window}, np.full(ones, mean))
            for sizes, window, ones, mean in (
                ((1, 1, 1), {"kernel_shape": [3], "strides": [3]}, (1, 1, 1), np.float32(1 / 3)),
                ((1, 1, 1, 3), FLAT, (1, 1, 1, 1), np.float32(1 / 6)),
            )
        ),
        # Defaults, and no axes.
        ("ArgMax", [ROWS], {}, ROWS.argmax(0)[None]),
        ("ReduceMax", [ROWS], {}, ROWS.max(keepdims=True)),
        ("ReduceMax", [ROWS, np.array([1])], {"noop_with_empty_axes": 1}, ROWS.max(1, keepdims=True)),
        ("ReduceSumSquare", [ROWS], {"noop_with_empty_axes": 1}, ROWS**2),
    ],
)
def test_single_nodes_have_the_expected_output(vulkan, op_type, inputs, attributes, expected):
    np.testing.assert_array_equal(output_of(vulkan, op_type, *inputs, **attributes), expected, strict=True)


@pytest.mark.parametrize(("opset", "p"), [(1, 3.0), (2, 3)])
@pytest.mark.parametrize(("op_type", "window"), [("LpPool", {"kernel_shape": [4, 5]}), ("GlobalLpPool", {})])
def test_norms_have_integral_powers(vulkan, op_type, window, opset, p):
    x = values(2, 3, 4, 5)
    (norms,) = run(vulkan, [node(op_type, p=p, **window)], {"x": x}, opset=opset)
    np.testing.assert_allclose(norms, (x**3).sum((2, 3), keepdims=True) ** (1 / 3), rtol=1e-6)
    for wrong in (2.5, np.inf, np.nan):
        words, nodes = rf"LpPooling1OperatorDesc\.p: {wrong} is not an integer", [node(op_type, p=wrong, **window)]
        refuses(words, run, vulkan, nodes, {"x": x}, opset=1)


@pytest.mark.parametrize(
    ("op_type", "inputs", "window"),
    [
        ("MaxPool", 1, {"kernel_shape": [1]}),
        ("MaxUnpool", 2, {"kernel_shape": [1]}),
        ("GlobalMaxPool", 1, {}),
        ("GlobalLpPool", 1, {}),
    ],
)
def test_images_have_spatial_dimensions(vulkan, op_type, inputs, window):
    for x in (values(3), values(2, 3)):
        words = rf"^{op_type} \(y\): an input of .* has no spatial dimensions"
        refuses(words, output_of, vulkan, op_type, *[x] * inputs, **window)


@pytest.mark.parametrize("opset", [1, 11])
def test_axes_are_an_attribute(vulkan, opset):
    program = [node("ReduceSum", axes=[0, -1] if opset > 1 else [0, 2], keepdims=0)], {"x": values(3, 4, 5)}
    assert np.array_equal(run(vulkan, *program, opset=opset), run_reference(*program, opset=opset))


@pytest.mark.parametrize("opset", [13, 18])
def test_axes_are_a_constant_an_initializer_or_empty(vulkan, opset):
    x, reduction = values(3, 4, 5), node("ReduceSum", "x axes", keepdims=0)
    for value in ({"value": numpy_helper.from_array(np.array([0, -1]))}, {"value_ints": [0, -1]}):
        (y,) = run(vulkan, [node("Constant", "", "axes", **value), reduction], {"x": x}, opset=opset)
        assert np.array_equal(y, x.sum((0, 2)))
    (y,) = run(vulkan, [reduction], {"x": x}, opset=opset, constants={"axes": np.array([0, -1])})
    assert np.array_equal(y, x.sum((0, 2)))
    (y,) = run(vulkan, [reduction], {"x": x, "axes": np.array([], np.int64)}, opset=opset)
    assert np.array_equal(y, x.sum())


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *itertools.product(("Max", "Min", "Sum", "Prod", "Mean", "LogSum"), (np.float32, np.int32)),
        ("Mean", np.int64),
        ("LogSumExp", np.int64),
        *itertools.product(("Max", "Min"), (np.uint8, np.bool_)),  # ONNX has no sums of these
    ],
)
def test_reductions_of_no_elements_have_the_identity(vulkan, name, dtype):
    reduction = node(f"Reduce{name}", "x axes", keepdims=0)
    (y,) = run(vulkan, [reduction], {"x": np.zeros((2, 0, 3), dtype)}, constants={"axes": np.array([1])})
    mean = 0
    if dtype is np.float32:
        low, high, mean = -np.inf, np.inf, np.nan
    elif dtype is np.bool_:
        low, high = False, True
    else:
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    expected = {"Max": low, "Min": high, "Sum": 0, "Prod": 1, "Mean": mean, "LogSum": low, "LogSumExp": low}[name]
    np.testing.assert_array_equal(y, np.full((2, 3), expected, dtype), strict=True)


def test_a_graph_stays_on_the_device(vulkan, monkeypatch):
    nodes = [
        node("MaxPool", "x", "a", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("AveragePool", "a", "b", kernel_shape=[2, 2]),
        node("ReduceMax", "b", "c", keepdims=0),
        node("ArgMax", "b", "d", axis=-1, keepdims=0, select_last_index=1),
    ]
    downloads, numpy = [], dmlgpu.DeviceTensor.numpy
    monkeypatch.setattr(dmlgpu.DeviceTensor, "numpy", lambda self: downloads.append(self.shape) or numpy(self))
    program = nodes, {"x": values(2, 3, 16, 16)}, "c d"
    for result, expected in zip(run(vulkan, *program), run_reference(*program), strict=True):
        assert np.array_equal(result, expected)
    assert downloads == [(), (2, 3, 7)]


@pytest.mark.parts_of_buffers
def test_independent_nodes_are_submitted_together(driver, kp, monkeypatch):
    nodes, x = [node("ArgMax", "x", name, axis=axis) for axis, name in enumerate("abc")], values(3, 4, 5)
    with dmlgpu.Device(driver.index) as device:
        representation = interop.onnx.prepare(model_of(nodes, {"x": x}, "a b c"), f"VULKAN:{driver.index}")
        monkeypatch.setattr(representation, "device", device)
        representation.run([x])
        before, uploads, tensor = kp.counts["submissions"], [], device.tensor
        monkeypatch.setattr(device, "tensor", lambda x: uploads.append(x.shape) or tensor(x))
        representation.run([x])
        assert kp.counts["submissions"] - before == 1
        assert uploads == [(3, 4, 5)]
        assert representation.executions == 6


def test_outputs_share_no_memory_with_inputs_and_initializers(vulkan):
    x, axes = values(3, 4), np.array([1])
    # Before version 4 of the format, initializers are also inputs.
    model = model_of([node("ReduceMax", "x axes")], {"x": x, "axes": axes}, "y x axes", constants={"axes": axes})
    representation = interop.onnx.prepare(model, vulkan)
    for _ in range(2):
        results = representation.run([x])
        assert np.array_equal(results.y, x.max(1, keepdims=True))
        assert not np.shares_memory(results.x, x)
        results.axes[0] = 0


def test_outputs_of_bools_are_bools(vulkan):
    x = values(4, 5) % 3 == 0
    nodes = [node("ReduceMax", "x axes", "a"), node("ReduceMin", "a", keepdims=0)]
    results = run(vulkan, nodes, {"x": x}, "a y x", constants={"axes": np.array([1])})
    assert [y.dtype for y in results] == [np.bool_] * 3
    assert np.array_equal(results.a, x.any(1, keepdims=True))
    assert results.y == x.any(1).all()
    assert np.array_equal(results.x, x)
    assert not np.shares_memory(results.x, x)
    assert output_of(vulkan, "ArgMax", x).dtype == np.int64


@pytest.mark.parametrize(
    ("op_type", "sizes", "attributes", "expected"),
    [
        ("MaxPool", (0, 3, 8, 8), {"kernel_shape": [2, 2]}, (0, 3, 7, 7)),
        ("AveragePool", (2, 0, 8), {"kernel_shape": [2]}, (2, 0, 7)),
        ("MaxPool", (1, 3, 8, 2), {"kernel_shape": [2, 3]}, (1, 3, 7, 0)),
        ("LpPool", (1, 3, 2), {"kernel_shape": [3]}, (1, 3, 0)),
        ("GlobalMaxPool", (0, 3, 8, 8), {}, (0, 3, 1, 1)),
        ("GlobalLpPool", (0, 3, 8, 8), {}, (0, 3, 1, 1)),
        ("ArgMax", (0, 3), {"axis": 1, "keepdims": 0}, (0,)),
        ("ReduceSum", (0, 3), {"keepdims": 0, "noop_with_empty_axes": 1}, (0, 3)),
        ("MaxUnpool", (0, 3, 8, 8), {"kernel_shape": [2, 2]}, (0, 3, 9, 9)),
        ("CumSum", (2, 0), {}, (2, 0)),
    ],
)
def test_outputs_without_elements_have_shape_and_type(vulkan, op_type, sizes, attributes, expected):
    others = {"MaxUnpool": [np.zeros(sizes, np.int64)], "CumSum": [np.array(1)]}.get(op_type, [])
    y = output_of(vulkan, op_type, np.zeros(sizes, np.float32), *others, **attributes)
    assert (y.shape, y.dtype) == (expected, np.int64 if op_type == "ArgMax" else np.float32)


@pytest.mark.parametrize("storage_order", [0, 1])
@pytest.mark.parametrize(("sizes", "expected"), [((0, 3, 8, 8), (0, 3, 7, 7)), ((1, 1, 1, 8), (1, 1, 0, 7))])
def test_indices_without_elements_have_shape_and_type(vulkan, sizes, expected, storage_order):
    nodes = [
        node("MaxPool", "x", "y i", kernel_shape=[2, 2], storage_order=storage_order),
        node("ReduceMax", "y axes", "z", keepdims=0),
    ]
    x, axes = np.zeros(sizes, np.float32), np.array([3])
    results = run(vulkan, nodes, {"x": x}, "y i z", constants={"axes": axes})
    assert [y.shape for y in results] == [expected, expected, expected[:3]]
    assert results.i.dtype == np.int64


@pytest.mark.parametrize("seed", range(12))
def test_unpooling_writes_every_maximum_to_its_place(vulkan, seed):
    """Sizes are odd, some strides leave elements out, and some windows extend beyond the end."""
    rng = np.random.default_rng(seed)
    rank = 1 + seed % 3
    sizes, window = rng.integers(3, 9, rank), rng.integers(1, 4, rank)
    pads = [*rng.integers(0, window).tolist(), *rng.integers(0, window).tolist()]
    fields = {"kernel_shape": window.tolist(), "strides": rng.integers(1, 4, rank).tolist(), "pads": pads}
    x = rng.permutation(np.arange(1, 1 + 6 * sizes.prod(), dtype=np.float32)).reshape(2, 3, *sizes)
    nodes = [
        node("MaxPool", "x", "y i", ceil_mode=seed % 2, **fields),
        node("MaxUnpool", "y i shape", "z", **fields),
    ]
    results = run(vulkan, nodes, {"x": x}, "y z", constants={"shape": np.array(x.shape)})
    assert np.array_equal(results.z, np.where(np.isin(x, results.y), x, 0))


def test_unpooling_removes_the_padding(vulkan):
    x = values(1, 2, 6, 6) + 1
    window = {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    results = run(
        vulkan, [node("MaxPool", "x", "y i", **window), node("MaxUnpool", "y i", "z", **window)], {"x": x}, "y z"
    )
    assert results.y.shape == (1, 2, 4, 4)
    assert results.z.shape == x.shape
    assert np.array_equal(results.z[results.z != 0], x[results.z != 0])


@pytest.mark.parametrize(("opset", "dtype"), [(1, np.float32), (22, np.float16)])
def test_pooled_regions_equal_reference(vulkan, opset, dtype):
    x, window = values(2, 3, 9, 8).astype(dtype), {"pooled_shape": [2, 3], "spatial_scale": 0.5}
    rois = np.array([[0, 1, 2, 5, 17], [1, 0, 0, 7, 8], [1, 4, -3, 40, 3]], dtype)
    desc = dmlgpu.RoiPoolingOperatorDesc.of(x, (2, 3), 0.5, roi_tensor=rois[None, None])
    nodes = [node("MaxRoiPool", "x rois", **window), node("GlobalMaxPool", "y", "z")]
    results = run(vulkan, nodes, {"x": x, "rois": rois}, "y z", opset=opset)
    (expected,) = dmlgpu.reference(desc, x, rois[None, None])
    np.testing.assert_array_equal(results.y, expected, strict=True)
    np.testing.assert_array_equal(results.z, expected.max((2, 3), keepdims=True), strict=True)
    assert output_of(vulkan, "MaxRoiPool", x, rois[:0], pooled_shape=[2, 3]).shape == (0, 3, 2, 3)
    message = r"MaxRoiPool \(y\): rois of INT64 is not supported; allowed are FLOAT, FLOAT16"
    refuses_model(message, model_of(nodes[:1], {"x": x, "rois": rois.astype(np.int64)}, opset=opset))


@pytest.mark.parametrize("operator", ["CumSum", "CumProd"])
@pytest.mark.parametrize(("exclusive", "reverse"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_cumulative_operators_are_those_of_numpy(vulkan, operator, exclusive, reverse):
    scan, first = (np.multiply.accumulate, 1) if operator == "CumProd" else (np.add.accumulate, 0)
    for dtype, axis in (np.float32, 0), (np.float16, -1), (np.int32, 1), (np.uint64, np.int32(-2)):
        x = (values(3, 4) % 5).astype(dtype)
        lines = np.flip(x, axis) if reverse else x
        expected = scan(lines, axis, dtype)
        if exclusive:
            expected = np.insert(expected, 0, first, axis).take(range(x.shape[axis]), axis)
        expected = np.flip(expected, axis) if reverse else expected
        y = output_of(vulkan, operator, x, np.array(axis), exclusive=exclusive, reverse=reverse)
        np.testing.assert_array_equal(y, expected, strict=True)


@pytest.mark.parametrize(
    ("sizes", "axis", "message"),
    [
        ((2, 0), [2], "CumulativeSummationOperatorDesc.axis: 2 is out of range; allowed are -2 to 1"),
        ((2, 0), [0, 1], r"CumSum (y): axis (0, 1) is not allowed; allowed is one integer"),
        ((2, 3), [-3], "CumulativeSummationOperatorDesc.axis: -3 is out of range"),
    ],
)
def test_other_axes_of_cumulative_operators_are_refused(vulkan, sizes, axis, message):
    refuses(f"^{re.escape(message)}", output_of, vulkan, "CumSum", values(*sizes), np.array(axis))


def top_k_of(x, k, axis, largest):
    """The first k elements of NumPy's stable sort, and their indices."""
    rows = np.flip(x, axis) if largest else x
    order = np.argsort(rows, axis, kind="stable")
    if largest:
        order = x.shape[axis] - 1 - np.flip(order, axis)
    indices = order.take(range(k), axis)
    return np.take_along_axis(x, indices, axis), indices


@pytest.mark.parametrize(
    ("opset", "k_from"),
    [
        (1, "attribute"),
        *itertools.product((10, 11), ("input", "initializer", "constant", "device")),
        *itertools.product((24,), ("input", "initializer", "constant")),
    ],
)
@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_top_k_of_every_opset_is_a_stable_sort(vulkan, axis, opset, k_from):
    """The first of equal elements come first, as in ONNX."""
    x = values(3, 7, 5) % 4
    if axis == 0:
        x[1, 2], x[2, 3] = np.nan, -np.nan
    attributes = {} if axis == -1 else {"axis": axis}
    for k, largest, is_sorted in ((1, 1, 1), (3, 0, 1), (2, 0, 0)):
        if opset >= 11:
            attributes |= {"largest": largest, "sorted": is_sorted}
        inputs, nodes, constants = {"x": x}, [node("TopK", "x k", "y i", **attributes)], {}
        match k_from:
            case "attribute":
                nodes = [node("TopK", "x", "y i", k=k, **attributes)]
            case "input":
                inputs["k"] = np.array([k])
            case "initializer":
                constants["k"] = np.array([k])
            case "constant":
                nodes.insert(0, node("Constant", "", "k", value=numpy_helper.from_array(np.array([k]))))
            case "device":
                nodes.insert(0, node("ReduceMax", "counts", "k", axes=[0]))
                constants["counts"] = np.array([0, k, 1])
        results = run(vulkan, nodes, inputs, "y i", opset=opset, constants=constants)
        expected = top_k_of(x, k, axis, largest if opset >= 11 else 1)
        for ours, theirs in zip(results, expected, strict=True):
            np.testing.assert_array_equal(ours, theirs, strict=True)


@pytest.mark.parametrize(
    ("sizes", "k", "axis", "expected"),
    [((0, 4), 3, -1, (0, 3)), ((3, 4), 0, 0, (0, 4)), ((3, 0), 0, 1, (3, 0)), ((3, 0), 2, 0, (2, 0))],
)
def test_top_k_without_outputs_has_shape_and_type(vulkan, sizes, k, axis, expected):
    inputs = [np.zeros(sizes, np.float32), np.array([k])]
    results = interop.onnx.run_node(node("TopK", "x k", "y i", axis=axis), inputs, vulkan)
    assert [(y.shape, y.dtype) for y in results] == [(expected, np.float32), (expected, np.int64)]


def test_models_that_onnx_refuses_are_refused():
    wrong, x = node("ArgMax", ax=1), values(3, 4)
    refuses("ax", interop.onnx.run_node, wrong, [x], error=onnx.checker.ValidationError)
    refuses("ax", interop.onnx.prepare, model_of([wrong], {"x": x}), error=onnx.checker.ValidationError)


def test_other_operators_are_refused_by_name():
    x = values(1, 1, 4, 4)
    foreign = model_of([node("ArgMax", domain="elsewhere")], {"x": x})
    foreign.opset_import.append(helper.make_opsetid("elsewhere", 1))
    for model, name in (
        (model_of([node("GlobalMaxPool", "x", "a"), node("Relu", "a", name="last")], {"x": x}), r"Relu \(last\)"),
        (foreign, r"elsewhere\.ArgMax \(y\)"),
    ):
        assert not interop.onnx.is_compatible(model)
        refuses_model(f"dmlgpu lacks operators of this model: {name}$", model)


AXES = np.array([1])


def maximum(sizes, constants=()):
    """A model of a maximum whose axes are an input, perhaps with a default among the constants."""
    return model_of([node("ReduceMax", "x axes", keepdims=0)], {"x": values(*sizes), "axes": AXES}, constants=constants)


def test_an_array_may_be_the_single_input(vulkan):
    x = values(1, 3, 1, 1)
    model = model_of([node("GlobalMaxPool")], {"x": x})
    for inputs in (x, [x], (x,), {"x": x}):
        assert np.array_equal(interop.onnx.run_model(model, inputs, vulkan).y, x)


def test_auto_pad_may_be_empty(vulkan):
    window = {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [1, 0, 0, 0], "ceil_mode": 1}
    expected = output_of(vulkan, "MaxPool", IMAGE, **window)
    assert np.array_equal(output_of(vulkan, "MaxPool", IMAGE, auto_pad="", **window), expected)


def test_outputs_may_have_no_name_and_no_shape(vulkan):
    pooling = helper.make_node("MaxPool", ["x"], ["y", ""], kernel_shape=[5, 5])
    assert [y.tolist() for y in interop.onnx.run_node(pooling, [IMAGE], vulkan)] == [[[[[IMAGE.max()]]]]]
    x, model = values(2, 3), maximum((2, 3))
    model.graph.output[0].type.tensor_type.ClearField("shape")
    model.functions.append(minimum_as_maximum("elsewhere"))  # replaces no operator
    assert interop.onnx.run_model(model, [x, AXES], vulkan).y.tolist() == x.max(1).tolist()
    assert not model.graph.output[0].type.tensor_type.HasField("shape")


ROW = values(2, 3)
DEFAULTS = r"\['x'\] and, by name in a dictionary, \['axes'\], (and|not)"


@pytest.mark.parametrize(
    ("defaults", "inputs", "message"),
    [
        (None, ROW, r"\['x', 'axes'\], and 1 are given$"),
        (None, [], r"\['x', 'axes'\], and 0 are given$"),
        (None, [ROW] * 3, r"\['x', 'axes'\], and 3 are given$"),
        (None, {"x": ROW}, r"\['x', 'axes'\], not \['x'\]$"),
        (None, {"x": ROW, "axes": AXES, "z": 1}, r"\['x', 'axes'\], not \['x', 'axes', 'z'\]$"),
        ("inputs", [ROW, AXES], DEFAULTS),
        ("inputs", {"axes": AXES}, DEFAULTS),
        ("constants", {"x": ROW, "axes": AXES}, r"\['x'\], not \['x', 'axes'\]$"),
    ],
)
def test_other_inputs_are_refused(defaults, inputs, message):
    model = maximum((2, 3), {"axes": AXES} if defaults else {})
    if defaults == "constants":
        del model.graph.input[1]
    refuses(rf"^the model's inputs are {message}", interop.onnx.run_model, model, inputs, error=ValueError)


def test_an_input_that_a_node_names_twice_is_passed_once():
    unpooling, x = node("MaxUnpool", "x x", kernel_shape=[1, 1]), values(1, 1, 2, 2)
    message = r"^the model's inputs are \['x'\], and 2 are given$"
    refuses(message, interop.onnx.run_node, unpooling, [x, x], error=ValueError)


@pytest.mark.parametrize("ir_version", [3, 10])
def test_an_initializer_that_is_an_input_is_a_default(vulkan, ir_version):
    x, model = values(2, 3), maximum((2, 3), {"axes": AXES})
    model.ir_version = ir_version
    representation = interop.onnx.prepare(model, vulkan)
    assert representation.run([x]).y.tolist() == representation.run({"x": x}).y.tolist() == x.max(1).tolist()
    assert representation.run({"x": x, "axes": np.array([0])}).y.tolist() == x.max(0).tolist()
    message = r"^input axes: float64 is not allowed; the model declares int64$"
    refuses(message, representation.run, {"x": x, "axes": np.array([0.0])}, error=TypeError)


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (values(2, 3).astype(np.float64), TypeError, "float64 is not allowed; the model declares float32"),
        (values(2, 3).astype(np.int64), TypeError, "int64 is not allowed; the model declares float32"),
        ([[1.0, 2.0, 3.0]] * 2, TypeError, "float64 is not allowed; the model declares float32"),
        (None, BAD, "None cannot be viewed by NumPy as an array"),
        (values(3, 2), ValueError, r"shape \(3, 2\) is not allowed; the model declares \(2, 3\)"),
        (values(2, 3, 1), ValueError, r"shape \(2, 3, 1\) is not allowed; the model declares \(2, 3\)"),
        (np.ma.masked_less(values(2, 3), 2), BAD, "a masked array; a tensor has no mask"),
    ],
)
def test_inputs_have_the_types_and_shapes_of_the_model(x, error, message):
    model = model_of([node("ReduceMax")], {"x": values(2, 3)})
    refuses(f"^input x: {message}", interop.onnx.run_model, model, [x], error=error)


@pytest.mark.parametrize("sizes", [["batch", 3], [None, 3], [None, None], ["batch", "batch"], None, [-1, 3]])
def test_open_sizes_of_the_model_accept_any_size(vulkan, sizes):
    x, model = values(2, 3), maximum((2, 3))
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes))
    representation = interop.onnx.prepare(model, vulkan)
    assert representation.run([x.astype(">f4"), AXES]).y.tolist() == x.max(1).tolist()
    if sizes and sizes[1] == 3:
        size = {"batch": "batch", None: r"\?", -1: r"\?"}[sizes[0]]
        message = rf"^input x: shape \(3, 2\) is not allowed; .* \('{size}', 3\)$"
        refuses(message, representation.run, [x.T, AXES], error=ValueError)


def test_a_model_may_be_a_file_or_bytes(vulkan, tmp_path):
    x, model, path = values(2, 3), maximum((2, 3), {"axes": AXES}), tmp_path / "model.onnx"
    content = model.SerializeToString()
    onnx.save(model, path, save_as_external_data=True, size_threshold=0)
    for source in (path, str(path), content):
        assert interop.onnx.is_compatible(source)
        assert interop.onnx.prepare(source, vulkan).run([x]).y.tolist() == x.max(1).tolist()
    refuses("other.onnx", interop.onnx.prepare, tmp_path / "other.onnx", error=FileNotFoundError)
    refuses("GraphProto", interop.onnx.prepare, model.graph, error=TypeError)


DOUBLE_SUM = r"of DOUBLE is not supported; allowed are FLOAT, FLOAT16, INT64, INT32, UINT64, UINT32$"
DOUBLE_CONSTANT = node("Constant", "", "a", value=numpy_helper.from_array(np.zeros(1)))
POINT = {"kernel_shape": [1, 1]}


@pytest.mark.parametrize(
    ("nodes", "kind", "message"),
    [
        ([node("ReduceSum")], "DOUBLE", rf"ReduceSum \(y\): x {DOUBLE_SUM}"),
        ([node("ReduceMax", "x", "a"), node("ReduceSum", "a")], "DOUBLE", rf"ReduceSum \(y\): a {DOUBLE_SUM}"),
        ([node("ReduceMax", "w", "a"), node("ReduceSum", "a")], "FLOAT", rf"ReduceSum \(y\): a {DOUBLE_SUM}"),
        ([DOUBLE_CONSTANT, node("ReduceSum", "a")], "FLOAT", rf"ReduceSum \(y\): a {DOUBLE_SUM}"),
        ([node("ReduceMean")], "INT32", r"ReduceMean \(y\): x of INT32 is not supported; .* FLOAT16$"),
        ([node("ReduceSum")], "BOOL", r"ReduceSum \(y\): x of BOOL is not supported; allowed"),
        ([node("ArgMax", "x", "a"), node("ReduceMean", "a")], "FLOAT", r"ReduceMean \(y\): a of INT64 is not"),
        ([node("GlobalMaxPool")], "STRING", r"GlobalMaxPool \(y\): x of STRING is not .* UINT8.*BOOL$"),
        ([node("GlobalAveragePool")], "BFLOAT16", r"GlobalAveragePool \(y\): x of BFLOAT16 is not"),
        ([node("GlobalLpPool")], "DOUBLE", r"GlobalLpPool \(y\): x of DOUBLE .* FLOAT, FLOAT16$"),
        ([node("MaxUnpool", "x x", **POINT)], "FLOAT", r"MaxUnpool \(y\): x of FLOAT .* allowed are INT64$"),
        ([node("MaxPool", "x", "a i", **POINT), node("ReduceMean", "i")], "FLOAT", r"ReduceMean \(y\): i of INT64 is"),
        ([node("Constant", "", value_float=1.0)], "FLOAT", r"Constant \(y\): its .* value_float is not supported$"),
    ],
)
def test_types_are_refused_before_anything_runs(nodes, kind, message):
    model = model_of(nodes, {}, constants={"w": np.zeros((1, 1, 2, 2))})
    model.graph.input.append(helper.make_tensor_value_info("x", getattr(TensorProto, kind), (1, 1, 2, 2)))
    refuses_model(message, model)


QLINEAR = {"domain": "com.microsoft"}


def quantized_model(x, *nodes, **constants):
    """A model of x with nodes of com.microsoft, and scales and zero points as initializers."""
    model = model_of(nodes, {"x": x}, constants=constants)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model


@pytest.mark.parametrize("shape", [(1, 2, 7), (2, 2, 6, 7), (1, 2, 3, 4, 5)], ids=str)
def test_averages_of_quantized_elements_equal_reference(vulkan, shape):
    x = np.random.default_rng(0).integers(-128, 128, shape, np.int8)
    spatial = len(shape) - 2
    window = {"kernel_shape": [2] * spatial, "strides": [2] * spatial, "pads": [1] * 2 * spatial}
    model = quantized_model(
        x,
        node("QLinearAveragePool", "x x_scale x_zero m_scale m_zero", "m", count_include_pad=1, **window, **QLINEAR),
        node("QLinearGlobalAveragePool", "m m_scale m_zero y_scale", **QLINEAR),
        x_scale=np.float32(0.5),
        x_zero=np.int8(-3),
        m_scale=np.float32(0.25),
        m_zero=np.int8(5),
        y_scale=np.float32(0.125),
    )
    prepared = interop.onnx.prepare(model, vulkan)
    (y,) = prepared.run([x])
    assert prepared.executions == 2
    plane = x if spatial > 1 else x[:, :, None]
    sizes = (1, 2) if spatial == 1 else (2,) * spatial
    pads = (0, 1) if spatial == 1 else 1
    options = {"input_zero_point": -3, "output_scale": 0.25, "output_zero_point": 5, "include_padding": True}
    m = dmlgpu.quantized_average_pooling(plane, sizes, input_scale=0.5, strides=sizes, padding=pads, **options)
    m = m.reshape(*m.shape[:2], -1).astype(np.int64)
    expected = np.clip(np.round((m - 5).mean(2) * 2), -128, 127)
    assert (y.dtype, y.tolist()) == (np.int8, expected.reshape(*shape[:2], *(1,) * spatial).tolist())


def test_wrong_quantized_models_are_refused(vulkan):
    x, scale = np.zeros((1, 1, 2, 2), np.uint8), np.float32(1)
    inputs = {"inputs": ["x", "s", "", "s"], "outputs": ["y"], **QLINEAR}
    pooling = helper.make_node("QLinearGlobalAveragePool", **inputs, channels_last=1)
    words, model = r"channels_last 1 is not supported; allowed is 0$", quantized_model(x, pooling, s=scale)
    refuses(words, interop.onnx.run_model, model, [x], vulkan, error=UNSUPPORTED)
    pooling = helper.make_node("QLinearGlobalAveragePool", **inputs)
    for dtype, name in (np.float32, "FLOAT"), (np.bool_, "BOOL"):
        message = rf".* x of {name} is not supported; allowed are INT8, UINT8"
        refuses_model(message, quantized_model(x.astype(dtype), pooling, s=scale))


def minimum_as_maximum(domain):
    """A function with the name of an operator."""
    opset = [helper.make_opsetid("", 22)]
    return helper.make_function(domain, "ReduceMax", ["x", "axes"], ["y"], [node("ReduceMin", "x axes")], opset)


def sparse_tensor():
    values, indices = (
        helper.make_tensor("w", TensorProto.FLOAT, [1], [1]),
        helper.make_tensor("", TensorProto.INT64, [1], [1]),
    )
    return helper.make_sparse_tensor(values, indices, [6])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda model: model.graph.sparse_initializer.append(sparse_tensor()),
            "sparse initializers are not supported: w",
        ),
        (
            lambda model: model.functions.append(minimum_as_maximum("")),
            r"dmlgpu lacks operators of this model: ReduceMax \(y\)",
        ),
        (
            lambda model: model.graph.input.append(helper.make_tensor_sequence_value_info("s", 1, None)),
            "inputs other than tensors are not supported: s",
        ),
        (lambda model: setattr(model.opset_import[0], "version", 1000), r"opset 1000 is newer than \d+, of onnx .*"),
    ],
)
def test_unsupported_models_are_refused(change, message):
    model = maximum((2, 3))
    change(model)
    refuses_model(f"{message}$", model)


PADDINGS = "NOTSET, VALID, SAME_UPPER, SAME_LOWER"
SIZES = r"output_shape \(4, 4\) is not allowed; allowed are 4 sizes that begin .* \(1, 1\)$"
OUT_OF_RANGE = "is out of range; allowed are 1 to 4"


@pytest.mark.parametrize(
    ("op_type", "attributes", "error", "message"),
    [
        ("MaxPool", {"strides": [1]}, UNSUPPORTED, r"strides \[1\] does not match 2 spatial dimensions"),
        ("MaxPool", {"pads": [1, 0, 1]}, UNSUPPORTED, r"pads \[1, 0, 1\] does not match 2 spatial dim"),
        ("MaxPool", {"dilations": [1, 0]}, UNSUPPORTED, r"dilations \[1, 0\] is not allowed; .* integers from 1 on"),
        ("MaxPool", {"pads": [0, 0, -1, 0]}, UNSUPPORTED, r"pads \[0, 0, -1, 0\] is not allowed; .* from 0 on"),
        ("MaxPool", {"kernel_shape": [9, 1]}, BAD, r"kernel_shape \[9, 1\] does not fit spatial sizes \(4, 4\)"),
        ("MaxPool", {"kernel_shape": [2**62, 1]}, BAD, r"kernel_shape .* does not fit spatial sizes \(4, 4\)"),
        ("MaxPool", {"auto_pad": "same_upper"}, UNSUPPORTED, f"auto_pad 'same_upper' is not .* {PADDINGS}$"),
        ("ReduceMax", {"keepdims": 2}, UNSUPPORTED, "keepdims 2 is not .* allowed are 0 and 1$"),
        ("ArgMax", {"select_last_index": 2}, UNSUPPORTED, "select_last_index 2 is not .* allowed are 0 and 1$"),
        ("TopK", {"largest": 2}, UNSUPPORTED, "largest 2 is not .* allowed are 0 and 1$"),
        ("TopK", {"sorted": -1}, UNSUPPORTED, "sorted -1 is not .* allowed are 0 and 1$"),
        ("TopK", {"k": [1, 2]}, BAD, r"K \(1, 2\) is not allowed; allowed is one integer$"),
        ("TopK", {"k": []}, BAD, r"K \(\) is not allowed; allowed is one integer$"),
        ("TopK", {"k": [5]}, BAD, rf"TopK1OperatorDesc\.k: 5 {OUT_OF_RANGE}"),
        ("TopK", {"k": [-1]}, BAD, rf"TopK1OperatorDesc\.k: -1 {OUT_OF_RANGE}"),
        ("TopK", {"x": values(3, 0)}, BAD, r"TopK1OperatorDesc\.k: 1 is out of range; axis 1 of \(3, 0\) is empty"),
        ("TopK", {"k": [0], "axis": 5}, BAD, r"TopK1OperatorDesc\.axis: 5 is out of range; allowed are -4 to 3"),
        ("MaxUnpool", {"i": [4] * 4}, BAD, r"indices of shape \(4,\) .* input of \(1, 1, 4, 4\)$"),
        ("MaxUnpool", {"s": [1, 2, 4, 4]}, BAD, r"output_shape \(1, 2, 4, 4\) .* 4 sizes that begin with \(1, 1\)$"),
        ("MaxUnpool", {"s": [4, 4]}, BAD, SIZES),
        ("MaxUnpool", {"s": [1, 1, 0, 4]}, BAD, r"output_shape \(1, 1, 0, 4\) is not allowed; "),
    ],
)
def test_wrong_attributes_and_inputs_are_refused(op_type, attributes, error, message):
    further = {"TopK": {"k": [1]}, "MaxUnpool": {"i": np.zeros((1, 1, 4, 4)), "s": [1, 1, 5, 5]}}.get(op_type, {})
    inputs = {"x": values(1, 1, 4, 4), **further}
    inputs |= {name: attributes[name] for name in inputs if name in attributes}
    fields = POINT if op_type in ("MaxPool", "MaxUnpool") else {}
    fields = fields | {name: value for name, value in attributes.items() if name not in inputs}
    outputs = "y i" if op_type == "TopK" else "y"
    arrays = [x if name == "x" else np.array(x, np.int64) for name, x in inputs.items()]
    begin = "" if "Desc" in message else rf"{op_type} \(first\): "
    single = node(op_type, " ".join(inputs), outputs, name="first", **fields)
    refuses(f"^{begin}{message}", interop.onnx.run_node, single, arrays, error=error)


def test_a_device_is_selected_by_index_or_name(driver, device):
    assert interop.onnx.supports_device("CPU")
    assert interop.onnx.supports_device(f"VULKAN:{driver.index}")
    assert not interop.onnx.supports_device("CUDA")
    x = values(3, 4)
    for name in (f"VULKAN:{driver.index}", f"VULKAN:{driver.name}"):
        assert output_of(name, "ArgMin", x, axis=1, keepdims=0).tolist() == x.argmin(1).tolist()
    words = "^device: 'CUDA' is not supported; allowed are CPU, VULKAN and VULKAN:SELECTOR$"
    refuses(words, output_of, "CUDA", "ArgMin", x, error=ValueError)
    refuses("99", output_of, "VULKAN:99", "ArgMin", x, error=dmlgpu.DeviceError)
