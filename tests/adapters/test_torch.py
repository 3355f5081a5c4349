"""Operators of PyTorch tensors have PyTorch's results, and support its autograd and its tracing."""

import copy
import inspect
import itertools
import pickle
import random

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.library import opcheck

from dmlgpu import DescriptorError, interop
from tests.support.errors import refuses

pytestmark = pytest.mark.usefixtures("default_device")
F = torch.nn.functional
ops = torch.ops.dmlgpu
POOLS = [f"{kind}_pool{rank}d" for kind in ("max", "avg") for rank in (1, 2, 3)]
ADAPTIVE = [f"adaptive_{name}" for name in POOLS]
REDUCTIONS = ["argmax", "argmin", "amax", "amin", "sum", "mean"]
ALONG_LINES = ["topk", "cumsum", "cumprod"]
# Modules with their arguments.
MODULES = {
    "MaxPool1d": (3, 2, 1, 2, True),
    "MaxPool2d": ((3, 2), 2, 1, 1, False, True),
    "MaxPool3d": (2,),
    "AvgPool1d": (3, 2, 1, True, False),
    "AvgPool2d": (2, None, (1, 0), True, True, 3),
    "AvgPool3d": (2, 1),
    "LPPool2d": (2, (2, 3), None, True),
    "MaxUnpool2d": (2,),
}


def values(*sizes, dtype=torch.float32, seed=0):
    """Distinct integers."""
    count = int(np.prod(sizes))
    numbers = torch.randperm(count, generator=torch.Generator().manual_seed(seed)) - count // 2
    return numbers.reshape(sizes).to(dtype)


def with_ties(*sizes, dtype=torch.float32):
    return (values(*sizes) // 7 % 5).to(dtype)


X = torch.ones(1, 2, 4, 4)
PLACES = torch.tensor([[[[0, 3], [8, 15]]]])
# Batch entry, x1, y1, x2 and y2 of each region.
ROIS = torch.tensor([[0.0, 1, 2, 5, 7], [1, 0, 0, 7, 8], [1, 4, -3, 12, 3]])
# Valid arguments of every function.
ARGUMENTS = {
    **{name: {"input": values(*(1, 2, 4, 4, 4)[: 2 + int(name[-2])]), "kernel_size": 2} for name in POOLS},
    **{name: {"input": values(1, 2, 4, 4)} for name in REDUCTIONS},
    "topk": {"input": values(1, 2, 4, 4), "k": 2},
    **{name: {"input": values(1, 2, 4, 4), "dim": -1} for name in ("cumsum", "cumprod")},
    "lp_pool2d": {"input": X, "norm_type": 2, "kernel_size": 2},
    "max_unpool2d": {"input": torch.ones(1, 1, 2, 2), "indices": PLACES, "kernel_size": 2},
    "roi_pool": {"input": X, "boxes": ROIS, "output_size": 2},
}


def called(name, **changes):
    """A function with its valid arguments, some of which are changed."""
    return getattr(interop.torch, name)(**ARGUMENTS[name] | changes)


def both_of(name, module=torch):
    """dmlgpu's function of a name, and PyTorch's."""
    return getattr(interop.torch, name), getattr(module, name)


def gradient_of(function, x):
    """The gradient of a weighted sum of all that a function returns, and the result."""
    x = x.clone().requires_grad_()
    result = function(x)
    weights = values(*result.shape, dtype=result.dtype, seed=1) + 1  # not 0 if there is one element
    return torch.autograd.grad((result * weights).sum(), x)[0], result


def check_gradients(ours, theirs, x, **tolerance):
    """Two functions have the same results and gradients."""
    for result, expected in zip(gradient_of(ours, x), gradient_of(theirs, x), strict=True):
        torch.testing.assert_close(result, expected, **tolerance)


def second_gradient_of(function, x):
    """The gradient of the sum of the gradient of a function's sum."""
    x = x.clone().requires_grad_()
    (first,) = torch.autograd.grad(function(x).sum(), x, create_graph=True)
    return torch.autograd.grad(first.sum(), x)[0]


def test_the_module_has_the_functions_of_this_file():
    others = "lp_pool2d", "max_unpool2d", "roi_pool"
    assert sorted(interop.torch.__all__) == sorted([*POOLS, *REDUCTIONS, *ALONG_LINES, *others, *ADAPTIVE, *MODULES])


def plain(default):
    """A default, without PyTorch's lists of equal entries; None for an empty list, or no default."""
    if default is inspect.Parameter.empty or default in ((), []):
        return None
    return default[0] if isinstance(default, list) else default


@pytest.mark.parametrize("name", [*POOLS, *REDUCTIONS, *ALONG_LINES, "lp_pool2d", "max_unpool2d"])
def test_signatures_are_those_of_pytorch(name):
    ours = inspect.signature(getattr(interop.torch, name)).parameters.values()
    is_only_named = [(p.name, plain(p.default), p.kind is p.KEYWORD_ONLY) for p in ours]
    if hasattr(torch.ops.aten, name) and not name.startswith("max_"):
        overloads = getattr(torch.ops.aten, name)
        schema = getattr(overloads, {"sum": "dim_IntList", "mean": "dim"}.get(name, "default"))._schema
        expected = [
            (argument.name, plain(argument.default_value), argument.kwarg_only) for argument in schema.arguments
        ]
        assert is_only_named[1:] == expected[1:]
    else:
        theirs = inspect.signature(getattr(F, f"_{name}" if name in POOLS else name)).parameters.values()
        assert is_only_named == [(p.name, plain(p.default), p.kind is p.KEYWORD_ONLY) for p in theirs]


def random_pool(name, number):
    """A tensor and arguments that PyTorch accepts or refuses; each argument takes several forms."""
    draw = random.Random(f"{name} {number}")
    rank = int(name[-2])

    def entries(lowest, highest):
        sizes = [draw.randint(lowest, highest) for _ in range(rank)]
        return draw.choice([sizes[0], sizes[:1], sizes, tuple(sizes)])

    sizes = [draw.randint(draw.choice([1, 3, 3]), 9) for _ in range(rank)]
    x = with_ties(*(draw.randint(1, 3) for _ in range(draw.choice([1, 2]))), *sizes)
    arguments = {
        "kernel_size": entries(1, 4),
        "stride": draw.choice([None, [], (), entries(1, 3), entries(1, 3)]),
        "padding": draw.choice([0, entries(0, 2)]),
        "ceil_mode": draw.random() < 0.5,
    }
    if name.startswith("max"):
        arguments |= {"dilation": draw.choice([1, entries(1, 3)]), "return_indices": draw.random() < 0.5}
    else:
        arguments["count_include_pad"] = draw.random() < 0.5
        if rank > 1:
            arguments["divisor_override"] = draw.choice([None, None, 5, -3])
    return x, arguments


@pytest.mark.parametrize("name", POOLS)
def test_pooling_is_that_of_pytorch(name):
    ours, theirs = both_of(name, F)
    pooled = refused = 0
    for number in range(150):
        x, arguments = random_pool(name, number)
        try:
            expected = theirs(x, **arguments)
        except RuntimeError as error:
            # If a window is larger than the input, PyTorch averages nothing, whatever the padding is; dmlgpu does.
            if "input image" not in str(error):
                words = rf"^{name}: (padding|kernel_size)=.* (not allowed|not fit)"
                refuses(words, ours, x, error=ValueError, **arguments)
                refused += 1
            continue
        maxima = expected[0] if arguments.get("return_indices") else expected
        if name.startswith("max") and maxima.isinf().any():
            refuses("lies wholly in the padding", ours, x, **arguments)
            continue
        tolerance = {"rtol": 0, "atol": 0} if name.startswith("max") else {}
        torch.testing.assert_close(
            ours(x, **arguments), expected, **tolerance, msg=lambda text, case=(number, arguments): f"{case}: {text}"
        )
        pooled += 1
        if number % 3 == 0:
            arguments.pop("return_indices", None)
            gradients = [gradient_of(lambda y, f=f, a=arguments: f(y, **a), x)[0] for f in (ours, theirs)]
            torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-4)
    assert pooled > 80
    assert refused > 10


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64", "int32", "int16", "int8", "uint8"])
@pytest.mark.parametrize(
    ("name", "sizes"), [("max_pool1d", (2, 3, 9)), ("max_pool2d", (2, 2, 5, 6)), ("max_pool3d", (1, 2, 4, 5, 6))]
)
def test_max_pooling_keeps_every_type(name, sizes, dtype):
    x = with_ties(*sizes, dtype=getattr(torch, dtype))
    maxima, indices = getattr(interop.torch, name)(x, 2, return_indices=True)
    # PyTorch lacks some of these types.
    expected, places = getattr(F, name)(x.double(), 2, return_indices=True)
    assert (maxima.dtype, indices.dtype) == (x.dtype, torch.int64)
    assert torch.equal(maxima.double(), expected)
    assert torch.equal(indices, places)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("p", [1, 2, 3, 4, 7])
def test_lp_pool2d_is_that_of_pytorch(p, dtype):
    draw = random.Random(f"{p} {dtype}")
    pooled = 0
    for number in range(15):
        sizes = [*[2] * draw.randint(0, 1), 3, draw.randint(1, 9), draw.randint(1, 9)]
        x = (with_ties(*sizes) - 2).to(dtype) / 2
        x = x.abs() if p % 2 else x
        kernel_size = draw.choice([draw.randint(1, 4), (draw.randint(1, 4), draw.randint(1, 4))])
        arguments = (p, kernel_size, draw.choice([None, (), 1, (3, 2)]), draw.random() < 0.6)
        try:
            # In float32: the powers of PyTorch's float16 lose bits, or overflow.
            expected = gradient_of(lambda y, a=arguments: F.lp_pool2d(y, *a), x.float())
        except RuntimeError:
            words = r"^lp_pool2d: kernel_size=.* does not fit"
            refuses(words, interop.torch.lp_pool2d, x, *arguments, error=ValueError)
            continue
        results = gradient_of(lambda y, a=arguments: interop.torch.lp_pool2d(y, *a), x)
        for ours, theirs in zip(results, expected, strict=True):
            assert ours.dtype == dtype
            # A norm's rounding error counts p - 1 times in its gradient.
            bound = 4 * p * torch.finfo(dtype).eps * theirs.abs().max()
            assert (ours - theirs).abs().max() <= bound, (number, arguments)
        pooled += 1
    assert pooled > 7


def test_lp_pool2d_refuses_negative_elements_for_odd_norms():
    x = with_ties(1, 1, 4, 4) - 2
    words = r"^lp_pool2d: norm_type=3 is odd, and input has negative .* input\.abs\(\)"
    refuses(words, interop.torch.lp_pool2d, x, 3, 2, error=ValueError)
    torch.testing.assert_close(interop.torch.lp_pool2d(x, 2, 2), F.lp_pool2d(x, 2, 2))


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_norm_types_may_be_floats(p):
    x = with_ties(1, 1, 4, 4)
    assert torch.equal(interop.torch.lp_pool2d(x, p, 2), interop.torch.lp_pool2d(x, int(p), 2))
    assert torch.equal(interop.torch.LPPool2d(p, 2)(x), interop.torch.lp_pool2d(x, int(p), 2))


@pytest.mark.parametrize("p", [1, 2, 3])
def test_windows_of_zeros_have_no_gradient(p):
    assert not gradient_of(lambda y: interop.torch.lp_pool2d(y, p, 2), torch.zeros(1, 1, 4, 4))[0].any()


@pytest.mark.parametrize("window", [(2,), (3, 2, 1), (2, 1), ((3, 2), (2, 3), (1, 0)), (1, 3)])
@pytest.mark.parametrize("sizes", [(2, 3, 7, 8), (3, 9, 9)])
def test_max_unpool2d_is_that_of_pytorch(window, sizes):
    x = values(*sizes)
    maxima, indices = F.max_pool2d(x, *window, return_indices=True)
    for output_size in (None, sizes[-2:], [*sizes[-2:]], (1, 1, *sizes[-2:])):
        ours, theirs = (
            lambda y, unpool=unpool, size=output_size: unpool(y, indices, *window, output_size=size)
            for unpool in both_of("max_unpool2d", F)
        )
        try:
            expected = gradient_of(theirs, maxima)
        except RuntimeError:  # an invalid max index
            refuses(r"^max_unpool2d: index \d+ is not allowed; allowed are 0 to \d+$", ours, maxima, error=ValueError)
            continue
        assert all(map(torch.equal, gradient_of(ours, maxima), expected))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "float64"])
def test_max_unpooling_keeps_every_type(dtype):
    x, indices = F.max_pool2d(values(2, 3, 8, 6), 2, return_indices=True)
    x = (x % 5).to(getattr(torch, dtype))
    result = interop.torch.max_unpool2d(x.mT, indices.mT, 2, output_size=(6, 8))
    assert result.dtype == x.dtype
    assert torch.equal(result.double(), F.max_unpool2d(x.double().mT, indices.mT, 2, output_size=(6, 8)))


def test_the_gradient_of_equal_indices_is_that_of_pytorch():
    indices = torch.arange(96).reshape(2, 3, 4, 4) % 16 // 3
    check_gradients(*(lambda y, f=f: f(y, indices, 1) for f in both_of("max_unpool2d", F)), values(2, 3, 4, 4))


@pytest.mark.parametrize("sizes", [(0, 3, 4, 4), (2, 0, 4, 4)])
def test_max_unpooling_may_have_no_planes(sizes):
    assert interop.torch.max_unpool2d(torch.empty(sizes), torch.empty(sizes).long(), 2).shape == (*sizes[:2], 8, 8)


@pytest.mark.parametrize("size", [7, 16, 200])
def test_a_divisor_of_float16_neither_under_nor_overflows(size):
    x = torch.zeros(1, 1, size, size, dtype=torch.float16)
    x[0, 0, 1, 1] = 1e-5
    x.requires_grad_()
    results = [pool(x, size, divisor_override=1) for pool in both_of("avg_pool2d", F)]
    torch.testing.assert_close(*results)
    torch.testing.assert_close(*(torch.autograd.grad(result.sum() * 2000, x)[0] for result in results))


@pytest.mark.parametrize(("name", "gradient"), [("sum", 2), ("mean", 0.5)])
def test_gradients_of_sums_need_no_elements(name, gradient):
    """Input and result may change before the gradient is computed."""
    x = values(3, 4).requires_grad_()
    y = x * 1
    result = getattr(interop.torch, name)(y, 1)
    y.add_(1)
    result.mul_(2)
    assert torch.equal(torch.autograd.grad(result.sum(), x)[0], torch.full((3, 4), gradient))


def test_a_nan_is_a_maximum_and_the_first_one_has_the_index():
    x = values(1, 1, 4, 4)
    x[0, 0, 0, 1] = x[0, 0, 1, 0] = torch.nan
    maxima, indices = interop.torch.max_pool2d(x, 2, return_indices=True)
    assert torch.equal(maxima.isnan(), F.max_pool2d(x, 2).isnan())
    assert indices[0, 0, 0, 0] == 1


def test_empty_batches_are_pooled():
    x = torch.empty(0, 3, 8, 8, requires_grad=True)
    for result in (interop.torch.max_pool2d(x, 2), interop.torch.avg_pool2d(x, 2)):
        assert result.shape == (0, 3, 4, 4)
        assert torch.autograd.grad(result.sum(), x)[0].shape == x.shape
    assert interop.torch.max_pool2d(x, 2, return_indices=True)[1].shape == (0, 3, 4, 4)


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", [None, 0, -1, 2])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_are_those_of_pytorch(name, dim, keepdim):
    options = {"keepdim": keepdim} | ({} if dim is None and name.startswith("am") else {"dim": dim})
    torch.testing.assert_close(*(function(values(3, 4, 5), **options) for function in both_of(name)))


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", [(), (0, 2), [1, -1], (2, 0, 1), 1])
@pytest.mark.parametrize("name", ["amax", "amin", "sum", "mean"])
def test_gradients_of_reductions_are_those_of_pytorch(name, dim, keepdim):
    check_gradients(*(lambda y, f=f: f(y, dim, keepdim) for f in both_of(name)), with_ties(3, 4, 5))


@pytest.mark.parametrize(
    ("name", "module", "arguments", "x"),
    [
        ("amax", torch, (1,), values(3, 4)),
        ("sum", torch, (), values(3, 4)),
        ("cumsum", torch, (1,), values(3, 4) % 3),
        ("cumprod", torch, (1,), values(3, 4) % 3),
        ("max_unpool2d", F, (PLACES, 2), values(1, 1, 2, 2)),
    ],
)
def test_gradients_of_gradients_are_those_of_pytorch(name, module, arguments, x):
    functions = (lambda y, f=f: f(y, *arguments) ** 3 for f in both_of(name, module))
    torch.testing.assert_close(*(second_gradient_of(function, x) for function in functions))


def test_gradients_of_gradients_of_pooling_are_refused():
    for pool in (interop.torch.max_pool2d, interop.torch.avg_pool2d, lambda y, k: interop.torch.lp_pool2d(y, 2, k)):
        words = "no autograd formula was registered"
        refuses(words, second_gradient_of, lambda y, pool=pool: pool(y, 2) ** 2, values(1, 1, 4, 4), error=RuntimeError)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"])
def test_reductions_of_every_type_are_those_of_pytorch(dtype):
    x = (with_ties(4, 6) - 2).to(getattr(torch, dtype))
    for name in ("amax", "amin"):
        assert torch.equal(*(function(x, 1) for function in both_of(name)))
    assert torch.equal(interop.torch.argmax(x, 1), torch.from_numpy(x.numpy().argmax(1)))
    assert torch.equal(interop.torch.argmin(x, 1), torch.from_numpy(x.numpy().argmin(1)))
    if dtype != "float64":
        torch.testing.assert_close(*(function(x, 1) for function in both_of("sum")), rtol=0, atol=0)
    for result in (torch.float32, torch.int64, torch.int8, torch.uint8):
        sums = (function(x.clamp(min=0), dtype=result) for function in both_of("sum"))
        torch.testing.assert_close(*sums, rtol=0, atol=0)
    torch.testing.assert_close(*(function(x, 0, dtype=torch.float32) for function in both_of("mean")))


TYPES = ["float16", "float32", "float64", "int8", "int16", "int64", "uint8", "uint16", "uint32", "uint64", "bool"]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("largest", [False, True])
def test_topk_is_that_of_pytorch(largest, dtype):
    """PyTorch's topk orders equal elements arbitrarily; its stable sort keeps their order."""
    x = with_ties(3, 17, 4, dtype=getattr(torch, dtype))
    if x.is_floating_point():
        x[1, ::3] = torch.nan
        x[2, 1::4] = -0.0
        x[0, :2] = -torch.inf
    wide = x.double()  # PyTorch lacks some of these types
    for dim, k in itertools.product((0, 1, 2, -1, -2), (0, 1, 2, 3, 4, 17)):
        if k > x.shape[dim]:
            continue
        result = interop.torch.topk(x, k, dim, largest)
        assert isinstance(result, torch.return_types.topk)
        assert (result.values.dtype, result.indices.dtype) == (x.dtype, torch.int64)
        expected = torch.topk(wide, k, dim, largest)
        torch.testing.assert_close(result.values.double(), expected.values, rtol=0, atol=0, equal_nan=True)
        order = torch.sort(wide, dim=dim, descending=largest, stable=True).indices
        assert torch.equal(result.indices, order.narrow(dim, 0, k))
        unsorted = interop.torch.topk(x, k=k, dim=dim, largest=largest, sorted=False)
        assert torch.equal(unsorted.indices, result.indices)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize(("k", "dim", "largest"), [(3, -1, True), (4, 0, False), (1, 1, True), (0, 1, True)])
def test_gradients_of_topk_are_those_of_pytorch(k, dim, largest, dtype):
    selections = (lambda y, f=f: f(y, k, dim, largest)[0] for f in both_of("topk"))
    check_gradients(*selections, values(4, 5, 6).to(dtype), rtol=0, atol=0)


def test_gradients_of_topk_reach_the_selected_elements():
    x = torch.tensor([2.0, 7.0, 7.0, 7.0, 1.0], requires_grad=True)
    maxima, indices = interop.torch.topk(x, 2)
    (gradient,) = torch.autograd.grad((maxima * torch.tensor([3.0, 5.0])).sum(), x)
    assert (indices.tolist(), indices.requires_grad) == ([1, 2], False)
    assert gradient.tolist() == [0, 3, 5, 0, 0]
    rows = torch.arange(12.0).double().reshape(3, 4).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda y: interop.torch.topk(y, 2, 1)[0] ** 2, rows)


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_cumulative_functions_are_those_of_pytorch(name):
    ours, theirs = both_of(name)
    for dtype in (torch.float32, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool):
        x = (values(3, 4, 5) % 4).to(dtype)
        for view in (x, x.mT, x[0, 0, 0], x[:0], x[:, :0]):
            for dim in range(-max(view.ndim, 1), max(view.ndim, 1)):
                torch.testing.assert_close(ours(view, dim), theirs(view, dim), rtol=0, atol=0)
        torch.testing.assert_close(ours(x, 1, dtype=torch.int8), theirs(x, 1, dtype=torch.int8), rtol=0, atol=0)
    for x in (values(3, 4, 5) / 4, values(3, 4, 5).half() % 3):  # some elements are 0
        check_gradients(lambda y: ours(y, -2), lambda y: theirs(y, -2), x, rtol=1e-2, atol=1e-2)


def test_topk_accepts_a_tensor_without_dimensions():
    x = torch.tensor(3.0, requires_grad=True)
    for dim in (0, -1):
        values, indices = interop.torch.topk(x, 1, dim)
        assert (values.shape, indices.shape, values.item(), indices.item()) == ((), (), 3, 0)
        assert torch.autograd.grad(values * 2, x)[0] == 2


@pytest.mark.parametrize(("k", "dim", "expected"), [(3, 1, (0, 3, 2)), (0, 0, (0, 4, 2))])
def test_topk_of_no_elements_has_the_right_shape(k, dim, expected):
    assert [result.shape for result in interop.torch.topk(torch.empty(0, 4, 2), k, dim)] == [expected] * 2


def test_reductions_accept_a_tensor_without_dimensions():
    x = torch.tensor(3.0, requires_grad=True)
    for name, dim in itertools.product(REDUCTIONS, (0, -1)):
        result, expected = (function(x, dim) for function in both_of(name))
        assert result.shape == ()
        assert result == expected
    assert torch.autograd.grad(interop.torch.sum(x), x)[0] == 1


def test_reductions_of_no_elements_are_those_of_pytorch():
    x = torch.empty(0, 3)
    assert torch.equal(interop.torch.sum(x, 0), torch.zeros(3))
    assert interop.torch.mean(x, 0).isnan().all()
    assert interop.torch.amax(x, 1).shape == (0,)
    refuses("are empty", interop.torch.amax, x, 0, error=ValueError)


def test_dimensions_of_size_1_are_kept():
    x = values(1, 4, 1, 3)
    for name in REDUCTIONS:
        assert getattr(interop.torch, name)(x, 1).shape == (1, 1, 3)
        assert getattr(interop.torch, name)(x, 0, keepdim=True).shape == (1, 4, 1, 3)
    assert interop.torch.amax(x, (0, 1)).shape == (1, 3)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # which PyTorch calls itself
@pytest.mark.parametrize("name", [*POOLS, *REDUCTIONS, *ALONG_LINES])
def test_a_tangent_is_refused(name):
    x = ARGUMENTS[name]["input"]
    words = rf"^{name}: input has a tangent; gradients in forward mode are not supported"
    refuses(words, torch.func.jvp, lambda y: called(name, input=y), (x,), (x,), error=ValueError)


@pytest.mark.parametrize("return_indices", [False, True])
def test_the_gradient_uses_the_indices_of_the_maxima(monkeypatch, return_indices):
    passed, gradient = [], interop.torch.functions.max_pooling_grad

    def spy(*arguments, indices, **window):
        passed.append(indices)
        return gradient(*arguments, indices=indices, **window)

    monkeypatch.setattr(interop.torch.functions, "max_pooling_grad", spy)
    x = values(2, 3, 6, 6).requires_grad_()
    result = interop.torch.max_pool2d(x, 2, return_indices=return_indices)
    (result[0] if return_indices else result).sum().backward()
    assert np.array_equal(passed[0] % 36, F.max_pool2d(x, 2, return_indices=True)[1])


def test_functions_run_without_autograd():
    x, wide = values(2, 3, 4, 4).requires_grad_(), values(2, 3, 4, 4).double().requires_grad_()
    with torch.inference_mode():
        assert torch.equal(interop.torch.max_pool2d(x, 2), F.max_pool2d(x, 2))
    with torch.no_grad():  # all types are pooled
        assert torch.equal(interop.torch.max_pool2d(wide, 2), F.max_pool2d(wide, 2))
    assert torch.equal(interop.torch.argmax(x), torch.argmax(x))
    gradient = ops.max_pooling_grad(x, values(2, 3, 2, 2), NO_INDICES, [2, 2], [2, 2], [0, 0], [0, 0], [1, 1])
    assert gradient.sum() == values(2, 3, 2, 2).sum()


def views():
    x = values(6, 8, 4)
    negative = torch.complex(x, -x).conj().imag
    assert negative.is_neg()
    return {
        "permuted": x.permute(2, 0, 1),
        "with gaps": x[::2, 1:],
        "expanded": x[:1].expand(5, 8, 4),
        "negative": negative,
    }


@pytest.mark.parametrize("view", views().values(), ids=views())
def test_views_have_the_results_of_pytorch(view):
    assert torch.equal(interop.torch.amax(view, 1), torch.amax(view, 1))
    assert torch.equal(interop.torch.max_pool2d(view, 2), F.max_pool2d(view, 2))
    check_gradients(*(lambda y, pool=pool: pool(y, 2).permute(2, 1, 0) for pool in both_of("avg_pool2d", F)), view)


@pytest.mark.parametrize("name", ADAPTIVE)
def test_adaptive_pooling_is_that_of_pytorch(name):
    rank, (ours, theirs) = int(name[-2]), both_of(name, F)
    x = with_ties(2, 3, *(6, 4, 9)[:rank])
    for size in (1, (3, 2, 9)[:rank], [2, None, 3][:rank])[: rank + 1]:
        check_gradients(*(lambda y, f=f, size=size: f(y, size) for f in (ours, theirs)), x)
        if "max" in name:
            torch.testing.assert_close(ours(x[0], size, True), theirs(x[0], size, True))
    words = rf"^{name}: output_size=.* is not allowed; allowed are {rank} divisors of"
    for wrong in (5, (4, 4, 4)[:rank], 0, (1,) * (rank + 1), 2.0, True):
        refuses(words, ours, x, wrong, error=ValueError)
    words = rf"^{name}: input has 1 dimensions; allowed are {rank + 1} and {rank + 2}"
    refuses(words, ours, x.reshape(-1), 1, error=ValueError)


def roi_pool_of_torchvision(x, rois, size, scale):
    """The result of its kernel for CPUs, with float32 instead of integers."""
    result = np.zeros((len(rois), x.shape[1], *size), np.float32)
    for r, (batch, *corners) in enumerate(rois):
        scaled = np.float32(corners) * np.float32(scale)
        x1, y1, x2, y2 = (np.sign(scaled) * np.floor(abs(scaled.astype(np.float64)) + 0.5)).astype(int)
        spans = []
        for first, last, bins, n in ((y1, y2, size[0], x.shape[2]), (x1, x2, size[1], x.shape[3])):
            step = np.float32(max(last - first + 1, 1)) / np.float32(bins)
            places = np.arange(bins + 1, dtype=np.float32) * step
            begins, ends = np.floor(places[:-1]).astype(int) + first, np.ceil(places[1:]).astype(int) + first
            spans.append([slice(*np.clip(span, 0, n)) for span in zip(begins, ends, strict=True)])
        for (i, rows), (j, columns) in itertools.product(*map(enumerate, spans)):
            elements = x[int(batch), :, rows, columns]
            if elements.size:
                result[r, :, i, j] = elements.max((1, 2))
    return result


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(("size", "scale"), [((2, 3), 1.0), ((7, 7), 0.25), (1, 0.0625)], ids=str)
def test_roi_pool_is_that_of_torchvision(size, scale, dtype):
    x, rng = values(2, 3, 12, 17, dtype=dtype), np.random.default_rng(0)
    corners = rng.integers(-8, 4 * np.array([17, 12, 17, 12]), (40, 4)) / 2 / scale
    rows = torch.from_numpy(np.column_stack([np.arange(40) // 25, corners])).to(dtype)
    pair = (size, size) if isinstance(size, int) else size
    expected = roi_pool_of_torchvision(x.float().numpy(), rows.float().numpy(), pair, scale)
    for boxes in rows, [rows[:25, 1:], rows[25:, 1:]]:
        result = interop.torch.roi_pool(x, boxes, size, scale)
        assert result.dtype == dtype
        assert np.array_equal(result.float().numpy(), expected)
    assert interop.torch.roi_pool(x, [], size).shape == (0, 3, *pair)
    with pytest.raises(RuntimeError, match="no autograd formula"):
        interop.torch.roi_pool(x.clone().requires_grad_(), rows, size).sum().backward()


WINDOW = ([2, 2], [2, 1], [1, 0], [1, 0])
NO_INDICES = torch.empty(0, dtype=torch.int32)


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        ("max_pooling", (values(2, 3, 9, 8), *WINDOW, [1, 1], [2, 3, 5, 7], True)),
        ("max_pooling", (values(3, 9, 8).mT, *WINDOW, [1, 1], [3, 5, 8], False)),
        ("max_pooling_grad", (values(2, 3, 9, 8), values(2, 3, 5, 7), NO_INDICES, *WINDOW, [1, 1])),
        ("max_pooling_grad", (values(2, 3, 9, 8), values(2, 3, 5, 7), torch.zeros(2, 3, 5, 7).int(), *WINDOW, [1, 1])),
        ("average_pooling", (values(2, 3, 9, 8), *WINDOW, True, [2, 3, 5, 7])),
        ("lp_pooling", (values(2, 3, 9, 8), 2, *WINDOW, [2, 3, 5, 7])),
        ("roi_pooling", (values(2, 3, 9, 8), ROIS, [2, 3], 0.5)),
        ("max_unpooling", (values(2, 3, 2, 2), torch.arange(24).reshape(2, 3, 2, 2), [2, 3, 5, 5])),
        ("average_pooling_grad", (values(2, 3, 5, 7), [2, 3, 9, 8], *WINDOW, False)),
        *(("reduce", (values(3, 4, 5), name, [0, 2])) for name in REDUCTIONS),
        ("top_k", (values(3, 4, 5), 2, 1, True)),
        ("top_k", (values(3, 4, 5).mT, 0, 2, False)),
        ("cumulative", (values(3, 4, 5), "cumsum", 1, False)),
        ("cumulative", (values(3, 4, 5) % 3, "cumprod", 2, False)),
    ],
)
def test_operators_pass_the_checks_of_pytorch(operator, arguments):
    if not operator.endswith(("grad", "roi_pooling")):
        arguments = (arguments[0].clone().requires_grad_(), *arguments[1:])
    checks = opcheck(getattr(ops, operator).default, arguments)
    assert len(checks) == 4
    assert {*checks.values()} == {"SUCCESS"}


def network(x):
    maxima, indices = interop.torch.max_pool2d(x, 3, 2, 1, return_indices=True)
    maxima = maxima + interop.torch.max_unpool2d(maxima, indices // 4, 1)
    norms = interop.torch.lp_pool2d(maxima, 2, 2, 1, ceil_mode=True)
    averages = interop.torch.avg_pool2d(norms, 2, ceil_mode=True, divisor_override=3)
    sums = interop.torch.sum(averages, (2, 3)) + interop.torch.amax(x, (2, 3)) - interop.torch.mean(x, (2, 3))
    lines, places = interop.torch.max_pool1d(interop.torch.avg_pool1d(x[:, :, 0], 2), 3, return_indices=True)
    greatest = interop.torch.topk(x, x.shape[2] // 3, 2)
    return sums + greatest.values.sum((2, 3)), indices, interop.torch.argmax(x, 1), lines, places, greatest.indices


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what PyTorch's compiler imports
def test_a_network_may_be_compiled_by_pytorch():
    torch._dynamo.reset()
    compiled = torch.compile(network, fullgraph=True, dynamic=True)
    for sizes in ((2, 3, 9, 8), (1, 3, 12, 15)):
        eager, x = (values(*sizes).requires_grad_() for _ in range(2))
        torch.testing.assert_close(compiled(x), network(eager))
        for source, function in ((x, compiled), (eager, network)):
            sums, _, _, lines, *_ = function(source)
            ((sums**2).sum() + (lines**3).sum()).backward()
        torch.testing.assert_close(x.grad, eager.grad)


@pytest.mark.parametrize("name", MODULES)
def test_modules_are_those_of_pytorch(name):
    ours, theirs = (getattr(module, name)(*MODULES[name]) for module in (interop.torch, torch.nn))
    assert isinstance(ours, type(theirs))
    assert repr(ours) == repr(theirs)
    x = values(2, 3, *(7,) * int(name[-2]))
    options = {}
    if name == "MaxUnpool2d":
        x, options["indices"] = F.max_pool2d(x, 2, return_indices=True)
        options["output_size"] = (7, 7)
    for module in (ours, copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        torch.testing.assert_close(module(x, **options), theirs(x, **options))


def on_device(x, device):
    """A tensor on a device that need not exist."""
    with FakeTensorMode():
        return torch.empty(x.shape, device=device)


@pytest.mark.parametrize("name", [*POOLS, *REDUCTIONS, *ALONG_LINES])
def test_inputs_of_other_kinds_are_refused_with_a_remedy(name):
    x = ARGUMENTS[name]["input"]
    for wrong, error, message in (
        (x.to("meta"), ValueError, "input is on meta; allowed is cpu: a meta tensor has no elements"),
        (x.to_sparse(), ValueError, r"input is torch\.sparse_coo; .* torch\.strided: use input\.to_dense\(\)"),
        (x.bfloat16(), TypeError, r"input is of torch\.bfloat16: convert it, .* input\.float\(\); .* torch\.fl"),
        (x.cfloat(), TypeError, r"input is of torch\.complex64; allowed are torch\.float32"),
        (x.numpy(), TypeError, "input is ndarray of float32 and .*, not a tensor"),
        (on_device(x, "cuda"), ValueError, r"input is on cuda:0; allowed is cpu: use input\.cpu\(\)$"),
    ):
        refuses(f"^{name}: {message}", called, name, error=error, input=wrong)


UNPOOLED = r"output_size=\(6, 4\) .* differ from \[4, 4\] by less than .* \[2, 2"
FLOATS = r"allowed are torch\.float32, torch\.float16$"


@pytest.mark.parametrize(
    ("name", "changes", "error", "message"),
    [
        ("max_pool2d", {"kernel_size": 0}, ValueError, "kernel_size=0 is not allowed; .* from 1 on"),
        ("max_pool2d", {"kernel_size": (2, 2, 2)}, ValueError, r"kernel_size=\(2, 2, 2\) .* are 1 or 2 integers"),
        ("max_pool2d", {"kernel_size": (2, 0)}, ValueError, r"kernel_size=\(2, 0\) is not allowed"),
        ("max_pool2d", {"stride": 0}, ValueError, "stride=0 is not allowed"),
        ("max_pool2d", {"stride": 1, "padding": -1}, ValueError, "padding=-1 is not allowed; .* from 0"),
        ("max_pool2d", {"dilation": 0}, ValueError, "dilation=0 is not allowed"),
        ("max_pool1d", {"stride": (1, 1)}, ValueError, r"stride=\(1, 1\) is .* allowed is 1 integer from 1 on"),
        ("max_pool1d", {"kernel_size": 5}, ValueError, r"kernel_size=5 does not fit an input of \(1, 2, 4\)"),
        ("max_pool3d", {"input": X[0]}, ValueError, "input has 3 dimensions; .* 4 and 5"),
        ("avg_pool1d", {"input": X}, ValueError, "input has 4 dimensions; .* 2 and 3"),
        ("avg_pool2d", {"stride": 1, "padding": 2}, ValueError, "padding=2 is not allowed; .* half"),
        ("avg_pool2d", {"kernel_size": 9}, ValueError, r"kernel_size=9 does not fit an input of \(1, 2"),
        ("avg_pool2d", {"input": X[0, 0]}, ValueError, "input has 2 dimensions; .* 3 and 4"),
        ("avg_pool2d", {"divisor_override": 0}, ValueError, "divisor_override=0 is"),
        ("avg_pool2d", {"divisor_override": 2.0}, ValueError, "divisor_override=2.0 is not .* are integers but 0"),
        ("lp_pool2d", {"ceil_mode": 1}, TypeError, "ceil_mode=1 is not allowed"),
        ("lp_pool2d", {"input": X.double()}, TypeError, r"input is of torch\.float64"),
        ("lp_pool2d", {"input": X[0, 0]}, ValueError, "input has 2 dimensions; .* 3 and 4"),
        *(
            ("lp_pool2d", {"norm_type": p}, ValueError, "norm_type=.* is not allowed; allowed are integers from 1 on$")
            for p in (0, -1, 0.0, 1.2, torch.inf, torch.nan, True, "2", None)
        ),
        ("max_unpool2d", {"indices": PLACES - 1}, ValueError, "index -1 is not allowed; allowed are 0 to 15$"),
        ("max_unpool2d", {"indices": PLACES + 1}, ValueError, "index 16 is not allowed; allowed are 0 to 15$"),
        (
            "max_unpool2d",
            {"indices": PLACES.int()},
            TypeError,
            r"indices is of torch\.int32; .* use indices\.long\(\)$",
        ),
        ("max_unpool2d", {"indices": PLACES.numpy()}, TypeError, "indices is ndarray of int64 and .*, not a tensor"),
        ("max_unpool2d", {"indices": PLACES.to("meta")}, ValueError, "indices is on meta"),
        ("max_unpool2d", {"indices": PLACES[0]}, ValueError, r"indices of \(1, 2, 2\) .* input is of \(1, 1, 2, 2\)"),
        ("max_unpool2d", {"kernel_size": 2.0}, ValueError, r"kernel_size=2\.0 is not allowed"),
        ("max_unpool2d", {"stride": ()}, ValueError, r"stride=\(\) is not allowed"),
        ("max_unpool2d", {"padding": -1}, ValueError, "padding=-1 is not allowed"),
        ("max_unpool2d", {"padding": 2}, ValueError, r"output_size=\(0, 0\) is not allowed; .* from 1 on that"),
        ("max_unpool2d", {"output_size": (6, 4)}, ValueError, UNPOOLED),
        ("max_unpool2d", {"output_size": (1, 4, 4)}, ValueError, r"output_size=\(1, 4, 4\) is .* 1 or 2 integers"),
        ("roi_pool", {"boxes": ROIS.numpy()}, TypeError, "boxes is ndarray of float32 and .*, not a tensor"),
        ("roi_pool", {"boxes": ROIS.double()}, TypeError, r"boxes is of torch\.float64; .* torch\.float32, as input$"),
        ("roi_pool", {"boxes": ROIS[0]}, ValueError, r"boxes of \(5,\) are not allowed; allowed are \(K, 5\)$"),
        ("roi_pool", {"boxes": [ROIS]}, ValueError, r"boxes of \(3, 5\) .* allowed are \(L, 4\) of each batch entry$"),
        ("roi_pool", {"output_size": 0}, ValueError, "output_size=0 is not allowed"),
        ("roi_pool", {"input": X[0]}, ValueError, "input has 3 dimensions; allowed are 4$"),
        *(
            ("topk", {"k": k}, ValueError, f"k={k} is not allowed; allowed are integers from 0 to 4$")
            for k in (-1, 5, 2.0, True, None, 2**63)
        ),
        ("topk", {"input": torch.tensor(1.0), "k": 0}, ValueError, "k=0 is not allowed; .* from 1 to 1$"),
        *(("topk", {"dim": dim}, IndexError, "dim=.* is not allowed; .* from -4 to 3") for dim in (-5, None, (0,))),
        ("cumsum", {"dim": 4}, IndexError, "dim=4 is not allowed; allowed are integers from -4 to 3"),
        ("cumprod", {"dtype": torch.float64}, TypeError, "dtype=torch.float64 is not allowed; allowed are"),
        ("amax", {"dim": 4}, IndexError, "dim=4 is not allowed; allowed are integers from -4 to 3"),
        ("sum", {"input": X.double()}, TypeError, r"input is of torch\.float64: .*; allowed are torch\.float32, "),
        ("sum", {"dtype": torch.bool}, TypeError, r"dtype=torch\.bool is not allowed; allowed are torch\.float32, "),
        ("mean", {"dtype": "float16"}, TypeError, f"dtype=float16 is not allowed; {FLOATS}"),
        ("mean", {"input": X.int()}, TypeError, rf"input is of torch\.int32: .*; {FLOATS}"),
        ("roi_pool", {"spatial_scale": -1.0}, DescriptorError, "-1.0 is not allowed; allowed are numbers above 0"),
        ("amin", {"dim": (0, -4)}, DescriptorError, r"0 of \(0, 0\) is given twice"),
    ],
    ids=lambda value: None if isinstance(value, str) else "",
)
def test_wrong_arguments_are_refused(name, changes, error, message):
    refuses(rf"^({name}|\w+Desc\.\w+): {message}", called, name, error=error, **changes)


def test_gradients_need_floats_of_at_most_32_bits():
    words = r"^max_pool2d with a gradient: input is of torch\.float64: .* input\.float\(\); "
    refuses(words + FLOATS, called, "max_pool2d", error=TypeError, input=X.double().requires_grad_())


@pytest.mark.parametrize("wrong", [1, None, "yes", np.True_])
@pytest.mark.parametrize(
    ("name", "flag"),
    [
        ("max_pool2d", "ceil_mode"),
        ("max_pool3d", "return_indices"),
        ("avg_pool2d", "ceil_mode"),
        ("avg_pool3d", "count_include_pad"),
        ("sum", "keepdim"),
        ("argmax", "keepdim"),
        ("topk", "largest"),
        ("topk", "sorted"),
    ],
)
def test_flags_are_true_or_false(name, flag, wrong):
    words = rf"^{name}: {flag}=.* is not allowed; allowed are True and False$"
    refuses(words, called, name, error=TypeError, **{flag: wrong})


@pytest.mark.parametrize("wrong", [True, 2.0, "2", b"\2", [2, True], (2.0,), range(1, 3)])
def test_integers_are_integers(wrong):
    for field in ("kernel_size", "stride", "padding", "dilation"):
        words = rf"^max_pool2d: {field}=.* is not allowed; allowed are 1 or 2 integers"
        refuses(words, called, "max_pool2d", error=ValueError, **{field: wrong})
    refuses(r"^amax: dim=.* is not allowed; allowed are integers from", called, "amax", error=IndexError, dim=wrong)


def test_integers_may_be_those_of_numpy():
    assert interop.torch.max_pool2d(X, np.int64(2), stride=torch.Size([1, 2])).shape == (1, 2, 3, 2)
