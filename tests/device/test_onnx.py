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

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
UNSUPPORTED, BAD = interop.onnx.UnsupportedError, dmlgpu.DescriptorError

# Tests of sums of float64, which neither DirectML nor dmlgpu has.
REFUSED = {
    f"test_reduce_log_sum_exp_{over}_{values}"
    for over in ("default_axes_keepdims", "do_not_keepdims", "keepdims", "negative_axes_keepdims")
    for values in ("example", "random")
} | {
    f"test_cum{what}_{how}"
    for what in ("prod", "sum")
    for how in (
        "1d",
        "1d_exclusive",
        "1d_reverse",
        "1d_reverse_exclusive",
        "2d_axis_0",
        "2d_axis_1",
        "2d_negative_axis",
    )
}


@pytest.fixture
def vulkan(device):
    """An open device, as the backend takes its name."""
    return f"VULKAN:{device.info.index}"


def official():
    """The names of ONNX's tests of models that have only operators of dmlgpu, by kind."""
    found = {}
    for kind in ("node", "simple", "pytorch-converted", "pytorch-operator"):
        for test in load_model_tests(kind=kind):
            model = test.model or onnx.load(f"{test.model_dir}/model.onnx")
            # What is expanded has the same operators, but for one, which is made of others.
            others = "_expanded" in test.name or {node.op_type for node in model.graph.node} <= {"Constant"}
            if not others and interop.onnx.is_compatible(model):
                found.setdefault("node" if kind == "node" else "file", []).append(test.name)
    return found


@pytest.fixture(scope="module")
def names():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's, where expected results are computed
        return official()


# It takes indices to count in the inferred shape. They count in the input of MaxPool, which is output_shape, as ONNX
# Runtime takes them (github.com/onnx/onnx/issues/2398).
WRONG = "test_maxunpool_export_with_output_shape"


def test_all_official_tests_run(driver, names):
    assert {kind: len(found) for kind, found in names.items()} == {"node": 201, "file": 18}
    prepared = []

    class Backend(interop.onnx.Backend):
        @classmethod
        def prepare(cls, model, device="CPU", **kwargs):
            prepared.append(super().prepare(model, f"VULKAN:{driver.index}", **kwargs))
            return prepared[-1]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runner = BackendTest(Backend, __name__)
    for name in {*names["node"], *names["file"]} - {WRONG}:
        runner.include(f"^{name}_cpu$")
    result = unittest.TestResult()
    runner.test_suite.run(result)
    assert result.failures == []
    refused = {case.id().rpartition(".")[2]: text for case, text in result.errors}
    assert set(refused) == {f"{name}_cpu" for name in REFUSED}
    assert all("DOUBLE is not supported" in text for text in refused.values())
    # A model has one node here. The runner counts what it skips as a success: what ran is counted by the backend.
    assert result.testsRun - len(result.skipped) == 200 + 18
    assert sum(each.executions for each in prepared) == 200 + 18 - len(REFUSED)


def model_of(nodes, inputs, outputs, opset=22, initializers=()):
    """A model; inputs have the types and shapes of arrays. The shapes of outputs are not looked at."""
    declared = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in inputs.items()
    ]
    results = [helper.make_tensor_value_info(name, kind, ()) for name, kind in outputs.items()]
    constants = [onnx.numpy_helper.from_array(x, name) for name, x in dict(initializers).items()]
    graph = helper.make_graph(nodes, "graph", declared, results, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def run(vulkan, nodes, inputs, outputs, **options):
    """The outputs of a model on a device, and what the reference of ONNX has for it."""
    model = model_of(nodes, inputs, outputs, **options)
    return interop.onnx.run_model(model, inputs, vulkan), ReferenceEvaluator(model).run(None, dict(inputs))


def node_of(op_type, count=1, **attributes):
    """A node with so many inputs."""
    return helper.make_node(op_type, ["x", "i", "s"][:count], ["y"], **attributes)


def output_of(vulkan, op_type, *inputs, **attributes):
    """The output of a single node."""
    (y,) = interop.onnx.run_node(node_of(op_type, len(inputs), **attributes), [*inputs], vulkan)
    return y


def unsupported(words, model):
    """A model is refused before anything runs."""
    refuses(f"^{words}", interop.onnx.prepare, model, error=interop.onnx.UnsupportedError)


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
        # More indices than NumPy takes at a time.
        ((1, 1, 9001, 2), {"kernel_shape": [2, 2]}),
    ],
    ids=str,
)
def test_indices_of_maxima_name_them(vulkan, sizes, attributes, storage_order):
    x = values(*sizes)
    node = helper.make_node("MaxPool", ["x"], ["y", "i"], storage_order=storage_order, **attributes)
    got = interop.onnx.run_model(model_of([node], {"x": x}, {"y": FLOAT, "i": INT64}), [x], vulkan)
    (y,) = ReferenceEvaluator(model_of([node_of("MaxPool", **attributes)], {"x": x}, {"y": FLOAT})).run(None, {"x": x})
    assert np.array_equal(got.y, y)
    assert got.i.dtype == np.int64
    planes = x.reshape(-1, *sizes[2:])
    by_index = np.concatenate([plane.reshape(-1, order="F" if storage_order else "C") for plane in planes])
    assert np.array_equal(by_index[got.i], y)


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
        ("MaxPool", 10, (1, 2, 9, 8), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
        ("GlobalAveragePool", 1, (2, 3, 7, 2), {}),
        ("GlobalAveragePool", 22, (2, 3, 7), {}),
    ],
    ids=str,
)
def test_poolings_of_every_opset(vulkan, op_type, opset, sizes, attributes):
    node, x = node_of(op_type, **attributes), values(*sizes)
    got, expected = run(vulkan, [node], {"x": x}, {"y": FLOAT}, opset=opset)
    np.testing.assert_allclose(got.y, expected[0], rtol=1e-6)


VOLUME, ROWS, IMAGE = values(2, 3, 5, 4, 3), values(3, 4), values(1, 1, 5, 5)
PLANES = np.arange(48, dtype=np.float32).reshape(1, 2, 6, 4)
TALL = {"kernel_shape": [3, 1], "strides": [2, 1], "dilations": [3, 1]}
FLAT = {"kernel_shape": [4, 3], "strides": [4, 3], "pads": [2, 1, 0, 1]}
MAXIMA_OF_3 = np.lib.stride_tricks.sliding_window_view(IMAGE, (3, 3), (2, 3)).max((-1, -2))


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "expected"),
    [
        # ONNX's reference has a dimension more.
        ("GlobalMaxPool", [VOLUME], {}, VOLUME.max((2, 3, 4), keepdims=True)),
        # One window may be larger than the input.
        *(
            (op_type, [PLANES], TALL | further, expected)
            for op_type, expected in (
                ("MaxPool", PLANES[:, :, 3:4]),
                ("AveragePool", PLANES[:, :, [0, 3]].mean(2, keepdims=True)),
            )
            for further in ({}, {"ceil_mode": 1}, {"auto_pad": "VALID"})
        ),
        # VALID ignores pads.
        ("MaxPool", [IMAGE], {"kernel_shape": [3, 3], "auto_pad": "VALID", "pads": [1, 1, 1, 1]}, MAXIMA_OF_3),
        # Padding is never negative: the formula of SAME_UPPER gives -2 here, along height.
        (
            "MaxPool",
            [values(1, 1, 9, 8)],
            {"kernel_shape": [1, 1], "strides": [3, 1], "auto_pad": "SAME_UPPER"},
            values(1, 1, 9, 8)[:, :, ::3],
        ),
        # It may be larger than the padded input: as in ONNX Runtime the size of the kernel divides.
        *(
            ("AveragePool", [np.ones(sizes, np.float32)], {"count_include_pad": 1, **window}, np.full(ones, mean))
            for sizes, window, ones, mean in (
                ((1, 1, 1), {"kernel_shape": [3], "strides": [3]}, (1, 1, 1), np.float32(1 / 3)),
                ((1, 1, 1, 3), FLAT, (1, 1, 1, 1), np.float32(1 / 6)),
            )
        ),
        # Defaults.
        ("ArgMax", [ROWS], {}, ROWS.argmax(0)[None]),
        ("ReduceMax", [ROWS], {}, ROWS.max(keepdims=True)),
        ("ReduceMax", [ROWS, np.array([1])], {"noop_with_empty_axes": 1}, ROWS.max(1, keepdims=True)),
    ],
)
def test_single_nodes(vulkan, op_type, inputs, attributes, expected):
    np.testing.assert_array_equal(output_of(vulkan, op_type, *inputs, **attributes), expected, strict=True)


@pytest.mark.parametrize(("opset", "p"), [(1, 3.0), (2, 3)])
@pytest.mark.parametrize("op_type", ["LpPool", "GlobalLpPool"])
def test_norms_have_whole_powers(vulkan, op_type, opset, p):
    x = values(2, 3, 4, 5)
    options = {} if op_type.startswith("Global") else {"kernel_shape": [4, 5]}

    def norm(p, opset):
        return interop.onnx.run_model(
            model_of([node_of(op_type, p=p, **options)], {"x": x}, {"y": FLOAT}, opset=opset), [x], vulkan
        ).y

    np.testing.assert_allclose(norm(p, opset), (x**3).sum((2, 3), keepdims=True) ** (1 / 3), rtol=1e-6)
    for wrong in (2.5, np.inf, np.nan):
        refuses(rf"LpPooling1OperatorDesc\.p: {wrong} is not an integer", norm, wrong, 1)


@pytest.mark.parametrize("op_type", ["MaxPool", "MaxUnpool", "GlobalMaxPool", "GlobalLpPool"])
def test_images_have_spatial_dimensions(vulkan, op_type):
    options = {} if op_type.startswith("Global") else {"kernel_shape": [1]}
    words = rf"^{op_type} \(y\): an input of .* has no spatial dimensions"
    for x in (values(3), values(2, 3)):
        refuses(words, output_of, vulkan, op_type, *[x] * (2 if op_type == "MaxUnpool" else 1), **options)


@pytest.mark.parametrize("opset", [1, 11, 13, 18])
def test_axes_are_an_attribute_an_initializer_or_a_constant(vulkan, opset):
    x, outputs = values(3, 4, 5), {"y": FLOAT}
    as_attribute = helper.make_node("ReduceSum", ["x"], ["y"], axes=[0, -1] if opset > 1 else [0, 2], keepdims=0)
    as_input = helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)
    if opset < 13:
        got, expected = run(vulkan, [as_attribute], {"x": x}, outputs, opset=opset)
        assert np.array_equal(got.y, expected[0])
        return
    constants = [{"value": onnx.numpy_helper.from_array(np.array([0, -1]))}, {"value_ints": [0, -1]}]
    for constant in (helper.make_node("Constant", [], ["axes"], **each) for each in constants):
        got, expected = run(vulkan, [constant, as_input], {"x": x}, outputs, opset=opset)
        assert np.array_equal(got.y, expected[0])
    got, expected = run(vulkan, [as_input], {"x": x}, outputs, opset=opset, initializers={"axes": np.array([0, -1])})
    assert np.array_equal(got.y, x.sum((0, 2)))
    axes = {"x": x, "axes": np.array([], np.int64)}
    assert np.array_equal(run(vulkan, [as_input], axes, outputs, opset=opset)[0].y, x.sum())


@pytest.mark.parametrize("name", ["L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"])
def test_over_no_axes_each_element_is_an_output(vulkan, name):
    x = values(2, 3) / 8 + 1
    node = helper.make_node(f"Reduce{name}", ["x"], ["y"], noop_with_empty_axes=1)
    got, expected = run(vulkan, [node], {"x": x}, {"y": FLOAT}, opset=18)
    np.testing.assert_allclose(got.y, expected[0], rtol=1e-6)
    assert got.y.shape == x.shape


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *itertools.product(("Max", "Min", "Sum", "Prod", "Mean", "LogSum"), (np.float32, np.int32)),
        ("Mean", np.int64),
        ("LogSumExp", np.int64),
        *itertools.product(("Max", "Min"), (np.uint8, np.bool_)),  # ONNX has no sums of these
    ],
)
def test_no_elements(vulkan, name, dtype):
    x = np.zeros((2, 0, 3), dtype)
    node = helper.make_node(f"Reduce{name}", ["x", "axes"], ["y"], keepdims=0)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    model = model_of([node], {"x": x}, {"y": kind}, initializers={"axes": np.array([1])})
    (got,) = interop.onnx.run_model(model, [x], vulkan)
    if dtype is np.float32:
        low, high = -np.inf, np.inf
    else:
        low, high = (False, True) if dtype is np.bool_ else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    assert got.dtype == dtype
    mean = np.nan if dtype is np.float32 else 0
    expected = {"Max": low, "Min": high, "Sum": 0, "Prod": 1, "Mean": mean, "LogSum": low, "LogSumExp": low}[name]
    assert np.array_equal(got, np.full((2, 3), expected, dtype), equal_nan=dtype is np.float32)


def test_a_graph_stays_on_the_device(vulkan, monkeypatch):
    x = values(2, 3, 16, 16)
    nodes = [
        helper.make_node("MaxPool", ["x"], ["a"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("AveragePool", ["a"], ["b"], kernel_shape=[2, 2]),
        helper.make_node("ReduceMax", ["b"], ["c"], keepdims=0),
        helper.make_node("ArgMax", ["b"], ["d"], axis=-1, keepdims=0, select_last_index=1),
    ]
    downloads = []
    numpy = dmlgpu.DeviceTensor.numpy
    monkeypatch.setattr(dmlgpu.DeviceTensor, "numpy", lambda self: downloads.append(self.shape) or numpy(self))
    got, expected = run(vulkan, nodes, {"x": x}, {"c": FLOAT, "d": INT64})
    assert downloads == [(), (2, 3, 7)]
    assert got["c"] == expected[0]
    assert np.array_equal(got["d"], expected[1])


@pytest.mark.parts_of_buffers
def test_what_does_not_depend_is_submitted_together(driver, kp, monkeypatch):
    nodes = [helper.make_node("ArgMax", ["x"], [name], axis=axis) for axis, name in enumerate("abc")]
    x = values(3, 4, 5)
    model = model_of(nodes, {"x": x}, dict.fromkeys("abc", INT64))
    with dmlgpu.Device(driver.index) as device:
        representation = interop.onnx.prepare(model, f"VULKAN:{driver.index}")
        monkeypatch.setattr(representation, "device", device)
        representation.run([x])
        before, uploads, tensor = kp.counts["submissions"], [], device.tensor
        monkeypatch.setattr(device, "tensor", lambda x: uploads.append(x.shape) or tensor(x))
        representation.run([x])
        assert kp.counts["submissions"] - before == 1
        assert uploads == [(3, 4, 5)]
        assert representation.executions == 6


def test_what_is_given_back_is_new(vulkan):
    x, axes = values(3, 4), np.array([1])
    node = helper.make_node("ReduceMax", ["x", "axes"], ["y"])
    outputs = {"y": FLOAT, "x": FLOAT, "axes": INT64}
    # As before version 4, initializers are inputs, too.
    model = model_of([node], {"x": x, "axes": axes}, outputs, initializers={"axes": axes})
    representation = interop.onnx.prepare(model, vulkan)
    for _ in range(2):
        got = representation.run([x])
        assert np.array_equal(got.y, x.max(1, keepdims=True))
        assert not np.shares_memory(got.x, x)
        got.axes[0] = 0


def test_bools_are_bools_again(vulkan):
    x = values(4, 5) % 3 == 0
    nodes = [
        helper.make_node("ReduceMax", ["x", "axes"], ["a"]),
        helper.make_node("ReduceMin", ["a"], ["y"], keepdims=0),
    ]
    outputs = {"a": TensorProto.BOOL, "y": TensorProto.BOOL, "x": TensorProto.BOOL}
    model = model_of(nodes, {"x": x}, outputs, initializers={"axes": np.array([1])})
    got = interop.onnx.run_model(model, {"x": x}, vulkan)
    assert [each.dtype for each in got] == [np.bool_] * 3
    assert np.array_equal(got.a, x.any(1, keepdims=True))
    assert got.y == x.any(1).all()
    (found,) = interop.onnx.run_node(helper.make_node("ArgMax", ["x"], ["y"]), [x], vulkan)
    assert found.dtype == np.int64
    assert np.array_equal(got.x, x)
    assert not np.shares_memory(got.x, x)


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
    ],
)
def test_outputs_of_no_elements(vulkan, op_type, sizes, attributes, expected):
    indices = [np.zeros(sizes, np.int64)] if op_type == "MaxUnpool" else []
    got = output_of(vulkan, op_type, np.zeros(sizes, np.float32), *indices, **attributes)
    assert (got.shape, got.dtype) == (expected, np.int64 if op_type == "ArgMax" else np.float32)


@pytest.mark.parametrize("storage_order", [0, 1])
@pytest.mark.parametrize(("sizes", "expected"), [((0, 3, 8, 8), (0, 3, 7, 7)), ((1, 1, 1, 8), (1, 1, 0, 7))])
def test_indices_of_no_elements(vulkan, sizes, expected, storage_order):
    nodes = [
        helper.make_node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2, 2], storage_order=storage_order),
        helper.make_node("ReduceMax", ["y", "axes"], ["z"], keepdims=0),
    ]
    outputs, axes = {"y": FLOAT, "i": INT64, "z": FLOAT}, np.array([3])
    x = np.zeros(sizes, np.float32)
    got = interop.onnx.run_model(model_of(nodes, {"x": x}, outputs, initializers={"axes": axes}), [x], vulkan)
    assert [each.shape for each in got] == [expected, expected, expected[:3]]
    assert got.i.dtype == np.int64


@pytest.mark.parametrize("seed", range(12))
def test_every_maximum_goes_back_where_it_was(vulkan, seed):
    """Odd sizes, padding, steps that leave elements over, and windows that hang over the end."""
    rng = np.random.default_rng(seed)
    rank = 1 + seed % 3
    sizes, window = rng.integers(3, 9, rank), rng.integers(1, 4, rank)
    pads = np.concatenate([rng.integers(0, window), rng.integers(0, window)])
    fields = {"kernel_shape": window, "strides": rng.integers(1, 4, rank), "pads": pads}
    fields = {name: found.tolist() for name, found in fields.items()}
    x = rng.permutation(np.arange(1, 1 + 6 * sizes.prod(), dtype=np.float32)).reshape(2, 3, *sizes)
    nodes = [
        helper.make_node("MaxPool", ["x"], ["y", "i"], ceil_mode=int(seed % 2), **fields),
        helper.make_node("MaxUnpool", ["y", "i", "shape"], ["z"], **fields),
    ]
    model = model_of(nodes, {"x": x}, {"y": FLOAT, "z": FLOAT}, initializers={"shape": np.array(x.shape)})
    got = interop.onnx.run_model(model, [x], vulkan)
    assert np.array_equal(got.z, np.where(np.isin(x, got.y), x, 0))


def test_unpooling_takes_off_what_was_padded(vulkan):
    x = values(1, 2, 6, 6) + 1
    window = {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("MaxPool", ["x"], ["y", "i"], **window),
        helper.make_node("MaxUnpool", ["y", "i"], ["z"], **window),
    ]
    model = model_of(nodes, {"x": x}, {"y": FLOAT, "z": FLOAT})
    got = interop.onnx.run_model(model, [x], vulkan)
    assert got.y.shape == (1, 2, 4, 4)
    assert got.z.shape == x.shape
    assert np.array_equal(got.z[got.z != 0], x[got.z != 0])


@pytest.mark.parametrize(("opset", "dtype"), [(1, np.float32), (22, np.float16)])
def test_regions(vulkan, opset, dtype):
    """Also of what another node gives, and without any."""
    x, attributes = values(2, 3, 9, 8).astype(dtype), {"pooled_shape": [2, 3], "spatial_scale": 0.5}
    rois = np.array([[0, 1, 2, 5, 17], [1, 0, 0, 7, 8], [1, 4, -3, 40, 3]], dtype)
    desc = dmlgpu.RoiPoolingOperatorDesc.of(x, (2, 3), 0.5, roi_tensor=rois[None, None])
    nodes = [
        helper.make_node("GlobalMaxPool", ["y"], ["m"]),
        helper.make_node("MaxRoiPool", ["x", "rois"], ["y"], **attributes),
    ][::-1]
    outputs = {name: helper.np_dtype_to_tensor_dtype(x.dtype) for name in "ym"}
    got = interop.onnx.run_model(model_of(nodes, {"x": x, "rois": rois}, outputs, opset), [x, rois], vulkan)
    (expected,) = dmlgpu.reference(desc, x, rois[None, None])
    np.testing.assert_array_equal(got.y, expected, strict=True)
    np.testing.assert_array_equal(got.m, expected.max((2, 3), keepdims=True), strict=True)
    node = helper.make_node("MaxRoiPool", ["x", "rois"], ["y"], pooled_shape=[2, 3])
    assert interop.onnx.run_node(node, [x, rois[:0]], vulkan).y.shape == (0, 3, 2, 3)
    with pytest.raises(
        UNSUPPORTED, match=r"MaxRoiPool \(y\): rois of INT64 is not supported; allowed are FLOAT, FLOAT16"
    ):
        interop.onnx.prepare(model_of(nodes[:1], {"x": x, "rois": rois.astype(np.int64)}, {"y": outputs["y"]}, opset))


@pytest.mark.parametrize("operator", ["CumSum", "CumProd"])
@pytest.mark.parametrize(("exclusive", "reverse"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_cumulative_operators(vulkan, operator, exclusive, reverse):
    scan, first = (np.multiply.accumulate, 1) if operator == "CumProd" else (np.add.accumulate, 0)
    for dtype, axis in (np.float32, 0), (np.float16, -1), (np.int32, 1), (np.uint64, np.int32(-2)):
        x = (values(3, 4) % 5).astype(dtype)
        lines = np.flip(x, axis) if reverse else x
        expected = scan(lines, axis, dtype)
        if exclusive:
            last = [slice(None)] * 2
            last[axis] = slice(None, -1)
            expected = np.insert(expected, 0, first, axis)[tuple(last)]
        expected = np.flip(expected, axis) if reverse else expected
        node = helper.make_node(operator, ["x", "a"], ["y"], exclusive=exclusive, reverse=reverse)
        (got,) = interop.onnx.run_node(node, [x, np.array(axis)], vulkan)[:1]
        np.testing.assert_array_equal(got, expected, strict=True)


def test_cumulative_operators_of_nothing_and_of_wrong_axes(vulkan):
    node, x = helper.make_node("CumSum", ["x", "a"], ["y"]), np.zeros((2, 0), np.float32)
    assert interop.onnx.run_node(node, [x, np.array(1)], vulkan)[0].shape == (2, 0)
    for array, axis, message in (
        (x, [2], "CumulativeSummationOperatorDesc.axis: 2 is out of range; allowed are -2 to 1"),
        (x, [0, 1], r"CumSum (y): axis (0, 1) is not allowed; allowed is one integer"),
        (np.ones((2, 3), np.float32), [-3], "CumulativeSummationOperatorDesc.axis: -3 is out of range"),
    ):
        refuses(f"^{re.escape(message)}", interop.onnx.run_node, node, [array, np.array(axis)], vulkan)


def first_of(x, k, axis, largest=1):
    """The first k elements by NumPy's stable sort, and their indices."""
    rows = np.flip(x, axis) if largest else x
    order = np.argsort(rows, axis, kind="stable")
    if largest:
        order = x.shape[axis] - 1 - np.flip(order, axis)
    indices = order.take(range(k), axis)
    return np.take_along_axis(x, indices, axis), indices


@pytest.mark.parametrize("opset", [1, 10, 11, 24])
@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_top_k_of_every_opset(vulkan, axis, opset):
    """Each with ties, of which ONNX wants the first."""
    x, outputs = values(3, 7, 5) % 4, {"y": FLOAT, "i": INT64}
    if axis == 0:
        x[1, 2], x[2, 3] = np.nan, -np.nan
    attributes = {} if axis == -1 else {"axis": axis}
    for k, largest, is_sorted in ((1, 1, 1), (3, 0, 1), (2, 0, 0)):
        further = {"largest": largest, "sorted": is_sorted} if opset >= 11 else {}
        largest = further.get("largest", 1)
        if opset == 1:
            node = helper.make_node("TopK", ["x"], ["y", "i"], k=k, **attributes)
            models = [model_of([node], {"x": x}, outputs, opset=1)]
        else:
            node = helper.make_node("TopK", ["x", "k"], ["y", "i"], **attributes, **further)
            tensor = np.array([k])
            constant = helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(tensor))
            maximum = helper.make_node("ReduceMax", ["counts"], ["k"], axes=[0]) if opset < 18 else None
            models = [
                model_of([node], {"x": x, "k": tensor}, outputs, opset=opset),
                model_of([node], {"x": x}, outputs, opset=opset, initializers={"k": tensor}),
                model_of([constant, node], {"x": x}, outputs, opset=opset),
            ]
            if maximum:  # which is on the device
                counts = {"counts": np.array([0, k, 1])}
                models.append(model_of([maximum, node], {"x": x}, outputs, opset=opset, initializers=counts))
        expected = first_of(x, k, axis, largest)
        for model in models:
            inputs = {"x": x, "k": np.array([k])}
            got = interop.onnx.run_model(model, {each.name: inputs[each.name] for each in model.graph.input}, vulkan)
            for ours, theirs in zip(got, expected, strict=True):
                np.testing.assert_array_equal(ours, theirs, strict=True)


@pytest.mark.parametrize(
    ("sizes", "k", "axis", "expected"),
    [((0, 4), 3, -1, (0, 3)), ((3, 4), 0, 0, (0, 4)), ((3, 0), 0, 1, (3, 0)), ((3, 0), 2, 0, (2, 0))],
)
def test_top_k_of_nothing(vulkan, sizes, k, axis, expected):
    node = helper.make_node("TopK", ["x", "k"], ["y", "i"], axis=axis)
    got = interop.onnx.run_node(node, [np.zeros(sizes, np.float32), np.array([k])], vulkan)
    assert [(each.shape, each.dtype) for each in got[:2]] == [(expected, np.float32), (expected, np.int64)]


def test_what_onnx_does_not_allow_is_refused():
    node, x = node_of("ArgMax", ax=1), values(3, 4)
    with pytest.raises(onnx.checker.ValidationError):
        interop.onnx.run_node(node, [x])
    with pytest.raises(onnx.checker.ValidationError):
        interop.onnx.prepare(model_of([node], {"x": x}, {"y": INT64}))


def test_other_operators_are_refused_by_name():
    x = values(1, 1, 4, 4)
    nodes = [helper.make_node("GlobalMaxPool", ["x"], ["a"]), helper.make_node("Relu", ["a"], ["y"], name="last")]
    foreign = model_of([node_of("ArgMax", domain="elsewhere")], {"x": x}, {"y": INT64})
    foreign.opset_import.append(helper.make_opsetid("elsewhere", 1))
    for model, name in (
        (model_of(nodes, {"x": x}, {"y": FLOAT}), r"Relu \(last\)"),
        (foreign, r"elsewhere\.ArgMax \(y\)"),
    ):
        assert not interop.onnx.is_compatible(model)
        unsupported(f"dmlgpu lacks operators of this model: {name}$", model)


def with_axes(sizes, outputs=("y",), initializers=None):
    """A model of a maximum, with axes that are an input, and a default where there are initializers."""
    nodes = [helper.make_node("ReduceMax", ["x", "axes"], ["y"], keepdims=0)]
    inputs = {"x": np.zeros(sizes, np.float32), "axes": np.array([1])}
    return model_of(nodes, inputs, dict.fromkeys(outputs, FLOAT), initializers=initializers or {})


def test_what_is_left_out(vulkan):
    """An array is the single input; auto_pad may be empty, outputs have no name or no shape."""
    x = values(1, 3, 1, 1)
    model = model_of([node_of("GlobalMaxPool")], {"x": x}, {"y": FLOAT})
    for inputs in (x, [x], (x,), {"x": x}):
        assert np.array_equal(interop.onnx.run_model(model, inputs, vulkan).y, x)
    window = {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [1, 0, 0, 0], "ceil_mode": 1}
    expected = output_of(vulkan, "MaxPool", IMAGE, **window)
    assert np.array_equal(output_of(vulkan, "MaxPool", IMAGE, auto_pad="", **window), expected)
    node = helper.make_node("MaxPool", ["x"], ["y", ""], kernel_shape=[5, 5])
    assert [y.tolist() for y in interop.onnx.run_node(node, [IMAGE], vulkan)] == [[[[[IMAGE.max()]]]]]
    x, model = values(2, 3), with_axes((2, 3), ["y"])
    model.graph.output[0].type.tensor_type.ClearField("shape")
    model.functions.append(minimum_as_maximum("elsewhere"))  # which replaces no operator
    assert interop.onnx.run_model(model, [x, np.array([1])], vulkan).y.tolist() == x.max(1).tolist()
    assert not model.graph.output[0].type.tensor_type.HasField("shape")


ROW, AXES = values(2, 3), np.array([1])
DEFAULTS = r"\['x'\] and, by name in a dictionary, \['axes'\], (and|not)"


@pytest.mark.parametrize(
    ("defaults", "inputs", "message"),
    [
        (None, ROW, r"\['x', 'axes'\], and 1 are given$"),
        (None, [], r"\['x', 'axes'\], and 0 are given$"),
        (None, [ROW], r"\['x', 'axes'\], and 1 are given$"),
        (None, [ROW] * 3, r"\['x', 'axes'\], and 3 are given$"),
        (None, {"x": ROW}, r"\['x', 'axes'\], not \['x'\]$"),
        (None, {"x": ROW, "axes": AXES, "z": 1}, r"\['x', 'axes'\], not \['x', 'axes', 'z'\]$"),
        ("inputs", [], DEFAULTS),
        ("inputs", [ROW, AXES], DEFAULTS),
        ("inputs", {"axes": AXES}, DEFAULTS),
        ("constants", {"x": ROW, "axes": AXES}, r"\['x'\], not \['x', 'axes'\]$"),
    ],
)
def test_other_inputs_are_refused(defaults, inputs, message):
    model = with_axes((2, 3), initializers={"axes": AXES} if defaults else None)
    if defaults == "constants":
        del model.graph.input[1]
    refuses(rf"^the model's inputs are {message}", interop.onnx.run_model, model, inputs, error=ValueError)


def test_an_input_that_a_node_names_twice_is_one():
    node, x = helper.make_node("MaxUnpool", ["x", "x"], ["y"], kernel_shape=[1, 1]), values(1, 1, 2, 2)
    message = r"^the model's inputs are \['x'\], and 2 are given$"
    refuses(message, interop.onnx.run_node, node, [x, x], error=ValueError)


@pytest.mark.parametrize("ir_version", [3, 10])
def test_an_initializer_that_is_an_input_is_a_default(vulkan, ir_version):
    x, model = values(2, 3), with_axes((2, 3), initializers={"axes": np.array([1])})
    model.ir_version = ir_version
    representation = interop.onnx.prepare(model, vulkan)
    assert representation.run([x]).y.tolist() == representation.run({"x": x}).y.tolist() == x.max(1).tolist()
    assert representation.run({"x": x, "axes": np.array([0])}).y.tolist() == x.max(0).tolist()
    message = r"^input axes: float64 is not allowed; the model takes int64$"
    refuses(message, representation.run, {"x": x, "axes": np.array([0.0])}, error=TypeError)


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (values(2, 3).astype(np.float64), TypeError, "float64 is not allowed; the model takes float32"),
        (values(2, 3).astype(np.int64), TypeError, "int64 is not allowed; the model takes float32"),
        ([[1.0, 2.0, 3.0]] * 2, TypeError, "float64 is not allowed; the model takes float32"),
        (None, dmlgpu.DescriptorError, "None cannot be viewed by NumPy as an array"),
        (values(3, 2), ValueError, r"shape \(3, 2\) is not allowed; the model takes \(2, 3\)"),
        (values(2, 3, 1), ValueError, r"shape \(2, 3, 1\) is not allowed; the model takes \(2, 3\)"),
        (values(6), ValueError, r"shape \(6,\) is not allowed; the model takes \(2, 3\)"),
        (np.ma.masked_less(values(2, 3), 2), dmlgpu.DescriptorError, "a masked array; a tensor has no mask"),
    ],
)
def test_inputs_are_as_the_model_says(x, error, message):
    model = model_of([helper.make_node("ReduceMax", ["x"], ["y"])], {"x": values(2, 3)}, {"y": FLOAT})
    refuses(f"^input x: {message}", interop.onnx.run_model, model, [x], error=error)


@pytest.mark.parametrize("sizes", [["batch", 3], [None, 3], [None, None], ["batch", "batch"], None, [-1, 3]])
def test_sizes_that_the_model_leaves_open(vulkan, sizes):
    x, model = values(2, 3), with_axes((2, 3))
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", FLOAT, sizes))
    representation = interop.onnx.prepare(model, vulkan)
    assert representation.run([x.astype(">f4"), np.array([1])]).y.tolist() == x.max(1).tolist()
    if sizes and sizes[1] == 3:
        size = {"batch": "batch", None: r"\?", -1: r"\?"}[sizes[0]]
        with pytest.raises(ValueError, match=rf"^input x: shape \(3, 2\) is not allowed; .* \('{size}', 3\)$"):
            representation.run([x.T, np.array([1])])


def test_models_in_files_and_bytes(vulkan, tmp_path):
    x, model, path = values(2, 3), with_axes((2, 3), initializers={"axes": np.array([1])}), tmp_path / "model.onnx"
    content = model.SerializeToString()
    onnx.save(model, path, save_as_external_data=True, size_threshold=0)
    for each in (path, str(path), content):
        assert interop.onnx.is_compatible(each)
        assert interop.onnx.prepare(each, vulkan).run([x]).y.tolist() == x.max(1).tolist()
    with pytest.raises(FileNotFoundError):
        interop.onnx.prepare(tmp_path / "other.onnx")
    for wrong in model.graph, 5:
        with pytest.raises(TypeError):
            interop.onnx.prepare(wrong)


DOUBLE_SUM = r"of DOUBLE is not supported; allowed are FLOAT, FLOAT16, INT64, INT32, UINT64, UINT32$"
POINT = {"kernel_shape": [1, 1]}


@pytest.mark.parametrize(
    ("nodes", "kind", "message"),
    [
        ([("ReduceSum", "x", "y")], "DOUBLE", rf"ReduceSum \(y\): x {DOUBLE_SUM}"),
        ([("ReduceMax", "x", "a"), ("ReduceSum", "a", "y")], "DOUBLE", rf"ReduceSum \(y\): a {DOUBLE_SUM}"),
        ([("ReduceMax", "w", "a"), ("ReduceSum", "a", "y")], "FLOAT", rf"ReduceSum \(y\): a {DOUBLE_SUM}"),
        ([("ReduceMean", "x", "y")], "INT32", r"ReduceMean \(y\): x of INT32 is not supported; .* FLOAT16$"),
        ([("ReduceSum", "x", "y")], "BOOL", r"ReduceSum \(y\): x of BOOL is not supported; allowed"),
        ([("ArgMax", "x", "a"), ("ReduceMean", "a", "y")], "FLOAT", r"ReduceMean \(y\): a of INT64 is not"),
        ([("GlobalMaxPool", "x", "y")], "STRING", r"GlobalMaxPool \(y\): x of STRING is not .* UINT8.*BOOL$"),
        ([("GlobalAveragePool", "x", "y")], "BFLOAT16", r"GlobalAveragePool \(y\): x of BFLOAT16 is not"),
        ([("GlobalLpPool", "x", "y")], "DOUBLE", r"GlobalLpPool \(y\): x of DOUBLE .* FLOAT, FLOAT16$"),
        ([("MaxUnpool", "x x", "y", POINT)], "FLOAT", r"MaxUnpool \(y\): x of FLOAT .* allowed are INT64$"),
        ([("MaxPool", "x", "a i", POINT), ("ReduceMean", "i", "y")], "FLOAT", r"ReduceMean \(y\): i of INT64 is not"),
        (
            [("Constant", "", "c", {"value": numpy_helper.from_array(np.zeros(1))}), ("ReduceSum", "c", "y")],
            *("FLOAT", rf"ReduceSum \(y\): c {DOUBLE_SUM}"),
        ),
        (
            [("Constant", "", "y", {"value_float": 1.0})],
            "FLOAT",
            r"Constant \(y\): its .* value_float is not supported$",
        ),
        ([("Constant", "", "y", {"value_string": "a"})], "FLOAT", r"Constant \(y\): .* value_string is not supported$"),
    ],
)
def test_types_are_refused_before_anything_runs(nodes, kind, message):
    nodes = [
        helper.make_node(op_type, inputs.split(), outputs.split(), **dict(*attributes))
        for op_type, inputs, outputs, *attributes in nodes
    ]
    kind = getattr(TensorProto, kind)
    model = model_of(nodes, {}, {"y": kind}, initializers={"w": np.zeros((1, 1, 2, 2))})
    model.graph.input.append(helper.make_tensor_value_info("x", kind, (1, 1, 2, 2)))
    unsupported(message, model)


QLINEAR = {"domain": "com.microsoft"}


def quantized_model(x, *nodes, **constants):
    """A model of x with nodes of com.microsoft, and scales and zero points as initializers."""
    model = model_of(nodes, {"x": x}, {"y": helper.np_dtype_to_tensor_dtype(x.dtype)}, initializers=constants)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model


@pytest.mark.parametrize("shape", [(1, 2, 7), (2, 2, 6, 7), (1, 2, 3, 4, 5)], ids=str)
def test_averages_of_quantized_elements(vulkan, shape):
    x = np.random.default_rng(0).integers(-128, 128, shape, np.int8)
    spatial = len(shape) - 2
    window = {"kernel_shape": [2] * spatial, "strides": [2] * spatial, "pads": [1] * 2 * spatial}
    names = ["x_scale", "x_zero_point", "m_scale", "m_zero_point", "y_scale"]
    model = quantized_model(
        x,
        helper.make_node("QLinearAveragePool", ["x", *names[:4]], ["m"], count_include_pad=1, **window, **QLINEAR),
        helper.make_node("QLinearGlobalAveragePool", ["m", *names[2:]], ["y"], **QLINEAR),
        x_scale=np.float32(0.5), x_zero_point=np.int8(-3), m_scale=np.float32(0.25), m_zero_point=np.int8(5),
        y_scale=np.float32(0.125),
    )  # fmt: skip
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


def test_quantized_models_that_are_refused(vulkan):
    x, scale = np.zeros((1, 1, 2, 2), np.uint8), np.float32(1)
    node = helper.make_node("QLinearGlobalAveragePool", ["x", "s", "", "s"], ["y"], channels_last=1, **QLINEAR)
    with pytest.raises(UNSUPPORTED, match=r"channels_last 1 is not supported; allowed is 0$"):
        interop.onnx.run_model(quantized_model(x, node, s=scale), [x], vulkan)
    node = helper.make_node("QLinearGlobalAveragePool", ["x", "s", "", "s"], ["y"], **QLINEAR)
    for dtype, name in (np.float32, "FLOAT"), (np.bool_, "BOOL"):
        message = rf".* x of {name} is not supported; allowed are INT8, UINT8"
        unsupported(message, quantized_model(x.astype(dtype), node, s=scale))


def minimum_as_maximum(domain):
    """A function of the name of an operator."""
    nodes = [helper.make_node("ReduceMin", ["x", "axes"], ["y"])]
    return helper.make_function(domain, "ReduceMax", ["x", "axes"], ["y"], nodes, [helper.make_opsetid("", 22)])


def sparse():
    each = (helper.make_tensor(name, kind, [1], [1]) for name, kind in (("w", FLOAT), ("", INT64)))
    return helper.make_sparse_tensor(*each, [6])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda model: model.graph.sparse_initializer.append(sparse()), "sparse initializers are not supported: w"),
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
def test_models_that_are_refused(change, message):
    model = with_axes((2, 3))
    change(model)
    unsupported(f"{message}$", model)


PADDINGS = "NOTSET, VALID, SAME_UPPER, SAME_LOWER"
SIZES = r"output_shape \(4, 4\) is not allowed; allowed are 4 sizes that begin .* \(1, 1\)$"


@pytest.mark.parametrize(
    ("op_type", "attributes", "error", "message"),
    [
        ("MaxPool", {"strides": [1]}, UNSUPPORTED, r"strides \[1\] does not match 2 spatial dimensions"),
        ("MaxPool", {"kernel_shape": [2]}, UNSUPPORTED, r"kernel_shape \[2\] does not match 2 spatial dimensions"),
        ("MaxPool", {"pads": [1, 0, 1]}, UNSUPPORTED, r"pads \[1, 0, 1\] does not match 2 spatial dim"),
        ("MaxPool", {"strides": [0, 1]}, UNSUPPORTED, r"strides \[0, 1\] is not allowed; .* integers from 1 on"),
        ("MaxPool", {"dilations": [1, 0]}, UNSUPPORTED, r"dilations \[1, 0\] is not allowed; .* from 1 on"),
        ("MaxPool", {"pads": [0, 0, -1, 0]}, UNSUPPORTED, r"pads \[0, 0, -1, 0\] is not allowed; .* from 0 on"),
        ("MaxPool", {"kernel_shape": [9, 1]}, BAD, r"kernel_shape \[9, 1\] does not fit spatial sizes \(4, 4\)"),
        ("MaxPool", {"kernel_shape": [2**62, 1]}, BAD, r"kernel_shape .* does not fit spatial sizes \(4, 4\)"),
        ("MaxPool", {"auto_pad": "SAME"}, UNSUPPORTED, f"auto_pad 'SAME' is not .* {PADDINGS}$"),
        ("MaxPool", {"auto_pad": "same_upper"}, UNSUPPORTED, f"auto_pad 'same_upper' is not .* {PADDINGS}$"),
        ("MaxPool", {"auto_pad": "NONE"}, UNSUPPORTED, f"auto_pad 'NONE' is not .* {PADDINGS}$"),
        ("ReduceMax", {"keepdims": 2}, UNSUPPORTED, "keepdims 2 is not .* allowed are 0 and 1$"),
        ("ArgMax", {"select_last_index": 2}, UNSUPPORTED, "select_last_index 2 is not .* allowed are 0 and 1$"),
        ("TopK", {"largest": 2}, UNSUPPORTED, "largest 2 is not .* allowed are 0 and 1$"),
        ("TopK", {"sorted": -1}, UNSUPPORTED, "sorted -1 is not .* allowed are 0 and 1$"),
        ("TopK", {"k": [1, 2]}, BAD, r"K \(1, 2\) is not allowed; allowed is one integer$"),
        ("TopK", {"k": []}, BAD, r"K \(\) is not allowed; allowed is one integer$"),
        ("TopK", {"k": [5]}, BAD, r"TopK1OperatorDesc\.k: 5 is out of range; allowed are 1 to 4"),
        ("TopK", {"k": [-1]}, BAD, r"TopK1OperatorDesc\.k: -1 is out of range; allowed are 1 to 4"),
        ("TopK", {"k": [2**62]}, BAD, r"TopK1OperatorDesc\.k: 4611686018427387904 is out of range"),
        ("TopK", {"x": values(3, 0)}, BAD, r"TopK1OperatorDesc\.k: 1 is out of range; axis 1 of \(3, 0\) is empty"),
        ("TopK", {"k": [0], "axis": 5}, BAD, r"TopK1OperatorDesc\.axis: 5 is out of range; allowed are -4 to 3"),
        ("MaxUnpool", {"i": [4] * 4}, BAD, r"indices of shape \(4,\) .* input of \(1, 1, 4, 4\)$"),
        ("MaxUnpool", {"s": [1, 2, 4, 4]}, BAD, r"output_shape \(1, 2, 4, 4\) .* 4 sizes that begin with \(1, 1\)$"),
        ("MaxUnpool", {"s": [4, 4]}, BAD, SIZES),
        ("MaxUnpool", {"s": [1, 1, 0, 4]}, BAD, r"output_shape \(1, 1, 0, 4\) is not allowed; "),
    ],
)
def test_attributes_and_inputs_that_are_refused(op_type, attributes, error, message):
    further = {"TopK": {"k": [1]}, "MaxUnpool": {"i": np.zeros((1, 1, 4, 4)), "s": [1, 1, 5, 5]}}.get(op_type, {})
    inputs = {"x": values(1, 1, 4, 4), **further}
    inputs |= {name: attributes[name] for name in inputs if name in attributes}
    fields = {"kernel_shape": [1, 1]} if op_type in ("MaxPool", "MaxUnpool") else {}
    fields |= {name: value for name, value in attributes.items() if name not in inputs}
    outputs = ["y", "i"] if op_type == "TopK" else ["y"]
    node = helper.make_node(op_type, [*inputs], outputs, name="first", **fields)
    arrays = [x if name == "x" else np.array(x, np.int64) for name, x in inputs.items()]
    begin = "" if "Desc" in message else rf"{op_type} \(first\): "
    refuses(f"^{begin}{message}", interop.onnx.run_node, node, arrays, error=error)


def test_devices(driver, device):
    assert interop.onnx.supports_device("CPU")
    assert interop.onnx.supports_device(f"VULKAN:{driver.index}")
    assert not interop.onnx.supports_device("CUDA")
    x = values(3, 4)
    for named in (f"VULKAN:{driver.index}", f"VULKAN:{driver.name}"):
        assert output_of(named, "ArgMin", x, axis=1, keepdims=0).tolist() == x.argmin(1).tolist()
    words = "^device: 'CUDA' is not supported; allowed are CPU, VULKAN and VULKAN:SELECTOR$"
    refuses(words, output_of, "CUDA", "ArgMin", x, error=ValueError)
    with pytest.raises(dmlgpu.DeviceError):
        output_of("VULKAN:99", "ArgMin", x)
