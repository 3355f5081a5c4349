"""Operators of PyTorch tensors: PyTorch's results, its autograd and its tracing."""

import copy
import inspect
import itertools
import pickle
import random
from functools import partial

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.library import opcheck

from dmlgpu import DescriptorError, interop

F = torch.nn.functional
ops = torch.ops.dmlgpu
POOLS = [f"{kind}_pool{rank}d" for kind in ("max", "avg") for rank in (1, 2, 3)]
ADAPTIVE = [f"adaptive_{name}" for name in POOLS]
REDUCTIONS = ["argmax", "argmin", "amax", "amin", "sum", "mean"]
MODULES = {  # and arguments of each
    "MaxPool1d": (3, 2, 1, 2, True),
    "MaxPool2d": ((3, 2), 2, 1, 1, False, True),
    "MaxPool3d": (2,),
    "AvgPool1d": (3, 2, 1, True, False),
    "AvgPool2d": (2, None, (1, 0), True, True, 3),
    "AvgPool3d": (2, 1),
    "LPPool2d": (2, (2, 3), None, True),
    "MaxUnpool2d": (2,),
}
SIZES = {name: (1, 2, 4, 4, 4)[: 2 + int(name[-2])] for name in POOLS} | dict.fromkeys(
    (*REDUCTIONS, "topk", "cumsum", "cumprod"), (1, 2, 4, 4)
)


X = torch.ones(1, 2, 4, 4)
# Batch entry, x1, y1, x2 and y2 of each region.
ROIS = torch.tensor([[0.0, 1, 2, 5, 7], [1, 0, 0, 7, 8], [1, 4, -3, 12, 3]])


@pytest.fixture(autouse=True)
def _on_the_driver(driver, monkeypatch):
    monkeypatch.setenv("DMLGPU_DEVICE", str(driver.index))


def called(name, x, **options):
    """A function of an input, and of windows of 2 where it has windows, of 2 elements, or along the last dimension."""
    needed = {"kernel_size": 2} if "pool" in name else {"k": 2} if name == "topk" else {}
    needed = {"dim": -1} if name.startswith("cum") else needed
    return getattr(interop.torch, name)(x, **needed | options)


def values(*sizes, dtype=torch.float32, seed=0):
    """Distinct integers."""
    count = int(np.prod(sizes))
    numbers = torch.randperm(count, generator=torch.Generator().manual_seed(seed)) - count // 2
    return numbers.reshape(sizes).to(dtype)


def with_ties(*sizes, dtype=torch.float32):
    return (values(*sizes) // 7 % 5).to(dtype)


def gradient_of(function, x):
    """The gradient of a weighted sum of all that a function returns, and the result."""
    x = x.clone().requires_grad_()
    result = function(x)
    weights = values(*result.shape, dtype=result.dtype, seed=1)
    return torch.autograd.grad((result * weights).sum(), x)[0], result


def test_names():
    others = "topk", "cumsum", "cumprod", "lp_pool2d", "max_unpool2d", "roi_pool"
    assert sorted(interop.torch.__all__) == sorted([*POOLS, *REDUCTIONS, *others, *ADAPTIVE, *MODULES])


@pytest.mark.parametrize("name", ["lp_pool2d", "max_unpool2d"])
def test_signatures_of_other_pools_are_those_of_pytorch(name):
    ours, theirs = (inspect.signature(getattr(module, name)).parameters for module in (interop.torch, F))
    assert {key: each.default for key, each in ours.items()} == {key: each.default for key, each in theirs.items()}


@pytest.mark.parametrize("name", POOLS + REDUCTIONS)
def test_signatures_are_those_of_pytorch(name):
    ours = inspect.signature(getattr(interop.torch, name)).parameters
    if name.startswith("max_pool"):
        theirs = inspect.signature(getattr(F, f"_{name}")).parameters
        assert {key: each.default for key, each in ours.items()} == {key: each.default for key, each in theirs.items()}
        return
    schema = getattr(torch.ops.aten, name)
    schema = getattr(schema, {"sum": "dim_IntList", "mean": "dim"}.get(name, "default"))._schema
    assert [*ours][1:] == [argument.name for argument in schema.arguments][1:]
    assert [key for key, each in ours.items() if each.kind is each.KEYWORD_ONLY] == [
        argument.name for argument in schema.arguments if argument.kwarg_only
    ]
    assert ours["keepdim" if name in REDUCTIONS else "ceil_mode"].default is False
    if name in POOLS:
        assert ours["count_include_pad"].default is True
        assert name == "avg_pool1d" or ours["divisor_override"].default is None


def random_pool(name, number):
    """A tensor and arguments that PyTorch takes, or refuses; both with a few of each field's kinds."""
    draw = random.Random(f"{name} {number}")
    rank = int(name[-2])

    def entries(lowest, highest):
        each = [draw.randint(lowest, highest) for _ in range(rank)]
        return draw.choice([each[0], each[:1], each, tuple(each)])

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
    ours, theirs = getattr(interop.torch, name), getattr(F, name)
    pooled = refused = 0
    for number in range(150):
        x, arguments = random_pool(name, number)
        try:
            expected = theirs(x, **arguments)
        except RuntimeError as error:
            # PyTorch averages no window that is larger than the input, whatever the padding is; dmlgpu does.
            if "input image" in str(error):
                continue
            with pytest.raises(ValueError, match=rf"^{name}: (padding|kernel_size)=.* (not allowed|not fit)"):
                ours(x, **arguments)
            refused += 1
            continue
        if name.startswith("max") and (expected[0] if arguments["return_indices"] else expected).isinf().any():
            with pytest.raises(DescriptorError, match="lies wholly in the padding"):
                ours(x, **arguments)
            continue
        got = ours(x, **arguments)
        pooled += 1
        if arguments.get("return_indices"):
            assert torch.equal(got[1], expected[1]), (number, arguments)
            got, expected = got[0], expected[0]
        if name.startswith("max"):
            assert torch.equal(got, expected), (number, arguments)
        torch.testing.assert_close(got, expected, msg=lambda text, case=(number, arguments): f"{case}: {text}")
        arguments.pop("return_indices", None)
        if number % 3 == 0:
            gradients = [gradient_of(lambda y, f=f, a=arguments: f(y, **a), x)[0] for f in (ours, theirs)]
            torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-4)
    assert pooled > 80
    assert refused > 10


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("stride", [(2, 1), (5, 3)])
def test_a_dilated_window_that_is_larger_than_the_padded_input(rank, stride):
    x = torch.arange(48.0).reshape(1, 2, *(1,) * (rank - 2), 6, 4)
    size, stride, dilation = ((*(1,) * (rank - 2), *entries) for entries in ((3, 1), stride, (3, 1)))
    ours, theirs = (getattr(module, f"max_pool{rank}d") for module in (interop.torch, F))
    for got, expected in zip(*(f(x, size, stride, 0, dilation, True, True) for f in (ours, theirs)), strict=True):
        assert torch.equal(got, expected)
    gradients = (gradient_of(lambda y, f=f: f(y, size, stride, 0, dilation, True), x)[0] for f in (ours, theirs))
    assert torch.equal(*gradients)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64", "int32", "int16", "int8", "uint8"])
@pytest.mark.parametrize(
    ("name", "sizes"), [("max_pool1d", (2, 3, 9)), ("max_pool2d", (2, 2, 5, 6)), ("max_pool3d", (1, 2, 4, 5, 6))]
)
def test_types_of_max_pooling(name, sizes, dtype):
    x = with_ties(*sizes, dtype=getattr(torch, dtype))
    got, indices = getattr(interop.torch, name)(x, 2, return_indices=True)
    # PyTorch has not all of these types.
    expected, places = getattr(F, name)(x.double(), 2, return_indices=True)
    assert got.dtype == x.dtype
    assert torch.equal(got.double(), expected)
    assert torch.equal(indices, places)
    assert indices.dtype == torch.int64


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("p", [1, 2, 3, 4, 7])
def test_lp_pool2d_is_that_of_pytorch(p, dtype):
    draw = random.Random(f"{p} {dtype}")
    pooled = 0
    for number in range(30):
        sizes = [*[2] * draw.randint(0, 1), 3, draw.randint(1, 9), draw.randint(1, 9)]
        x = (with_ties(*sizes) - 2).to(dtype) / 2
        x = x.abs() if p % 2 else x
        kernel_size = draw.choice([draw.randint(1, 4), (draw.randint(1, 4), draw.randint(1, 4))])
        arguments = (p, kernel_size, draw.choice([None, (), 1, (3, 2)]), draw.random() < 0.6)
        try:
            # In float32: the powers of PyTorch's float16 lose bits, or overflow.
            gradient, expected = gradient_of(lambda y, a=arguments: F.lp_pool2d(y, *a), x.float())
        except RuntimeError:
            with pytest.raises(ValueError, match=r"^lp_pool2d: kernel_size=.* does not fit"):
                interop.torch.lp_pool2d(x, *arguments)
            continue
        got = gradient_of(lambda y, a=arguments: interop.torch.lp_pool2d(y, *a), x)
        for ours, theirs in zip(got, (gradient, expected), strict=True):
            assert ours.dtype == dtype
            # A norm's rounding error counts p - 1 times in its gradient.
            bound = 4 * p * torch.finfo(dtype).eps * theirs.abs().max()
            assert (ours - theirs).abs().max() <= bound, (number, arguments)
        pooled += 1
    assert pooled > 15


def test_lp_pool2d_of_negative_elements():
    x = with_ties(1, 1, 4, 4) - 2
    with pytest.raises(ValueError, match=r"^lp_pool2d: norm_type=3 is odd, and input has negative .* input\.abs\(\)"):
        interop.torch.lp_pool2d(x, 3, 2)
    torch.testing.assert_close(interop.torch.lp_pool2d(x, 2, 2), F.lp_pool2d(x, 2, 2))


def test_norm_types_that_are_floats():
    x = with_ties(1, 1, 4, 4)
    for p in 1.0, 2.0, 3.0:
        assert torch.equal(interop.torch.lp_pool2d(x, p, 2), interop.torch.lp_pool2d(x, int(p), 2))
        assert torch.equal(interop.torch.LPPool2d(p, 2)(x), interop.torch.lp_pool2d(x, int(p), 2))


def test_windows_of_nothing_but_zeros_have_no_gradient():
    for p in (1, 2, 3):
        for pool in (interop.torch.lp_pool2d, F.lp_pool2d):
            assert not gradient_of(lambda y, pool=pool, p=p: pool(y, p, 2), torch.zeros(1, 1, 4, 4))[0].any()


@pytest.mark.parametrize("wrong", [0, -1, 0.0, 1.2, torch.inf, torch.nan, True, "2", None])
def test_norm_types_that_are_refused(wrong):
    with pytest.raises(ValueError, match=r"^lp_pool2d: norm_type=.* is not allowed; allowed are integers from 1 on$"):
        interop.torch.lp_pool2d(X, wrong, 2)


@pytest.mark.parametrize("window", [(2,), (3, 2, 1), (2, 1), ((3, 2), (2, 3), (1, 0)), (1, 3)])
@pytest.mark.parametrize("sizes", [(2, 3, 7, 8), (3, 9, 9)])
def test_max_unpool2d_is_that_of_pytorch(window, sizes):
    x = values(*sizes)
    largest, indices = F.max_pool2d(x, *window, return_indices=True)
    for output_size in (None, sizes[-2:], [*sizes[-2:]], (1, 1, *sizes[-2:])):
        options = {"output_size": output_size}
        try:
            theirs = gradient_of(lambda y, o=options: F.max_unpool2d(y, indices, *window, **o), largest)
        except RuntimeError:  # an invalid max index
            with pytest.raises(ValueError, match=r"^max_unpool2d: index \d+ is not allowed; allowed are 0 to \d+$"):
                interop.torch.max_unpool2d(largest, indices, *window, **options)
            continue
        ours = gradient_of(lambda y, o=options: interop.torch.max_unpool2d(y, indices, *window, **o), largest)
        assert all(map(torch.equal, ours, theirs))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "float64"])
def test_types_of_max_unpooling(dtype):
    x, indices = F.max_pool2d(values(2, 3, 8, 6), 2, return_indices=True)
    x = (x % 5).to(getattr(torch, dtype))
    got = interop.torch.max_unpool2d(x.mT, indices.mT, 2, output_size=(6, 8))
    assert got.dtype == x.dtype
    assert torch.equal(got.double(), F.max_unpool2d(x.double().mT, indices.mT, 2, output_size=(6, 8)))


def test_max_unpooling_of_equal_indices_and_of_nothing():
    x = values(2, 3, 4, 4).requires_grad_()
    indices = torch.arange(96).reshape(2, 3, 4, 4) % 16 // 3
    got, expected = (module.max_unpool2d(x, indices, 1) for module in (interop.torch, F))
    assert torch.equal(got, expected)
    gradients = [torch.autograd.grad((y * values(2, 3, 4, 4, seed=1)).sum(), x)[0] for y in (got, expected)]
    assert torch.equal(*gradients)
    for sizes in ((0, 3, 4, 4), (2, 0, 4, 4)):
        assert interop.torch.max_unpool2d(torch.empty(sizes), torch.empty(sizes).long(), 2).shape == (*sizes[:2], 8, 8)


PLACES = torch.tensor([[[[0, 3], [8, 15]]]])


@pytest.mark.parametrize(
    ("indices", "options", "error", "message"),
    [
        (PLACES - 1, {}, ValueError, "index -1 is not allowed; allowed are 0 to 15$"),
        (PLACES + 1, {}, ValueError, "index 16 is not allowed; allowed are 0 to 15$"),
        (PLACES.int(), {}, TypeError, r"indices is of torch\.int32; allowed is torch\.int64: use indices\.long\(\)$"),
        (PLACES.numpy(), {}, TypeError, "indices is ndarray of int64 and .*, not a tensor"),
        (PLACES.to("meta"), {}, ValueError, "indices is on meta"),
        (PLACES[0], {}, ValueError, r"indices of \(1, 2, 2\) are not allowed; input is of \(1, 1, 2, 2\)"),
        (PLACES, {"kernel_size": 2.0}, ValueError, r"kernel_size=2\.0 is not allowed"),
        (PLACES, {"stride": ()}, ValueError, r"stride=\(\) is not allowed"),
        (PLACES, {"padding": -1}, ValueError, "padding=-1 is not allowed"),
        (PLACES, {"padding": 2}, ValueError, r"output_size=\(0, 0\) is not allowed; allowed are sizes from 1 on that"),
        (
            PLACES,
            {"output_size": (6, 4)},
            ValueError,
            r"output_size=\(6, 4\) .* differ from \[4, 4\] by less than .* \[2, 2",
        ),
        (PLACES, {"output_size": (1, 4, 4)}, ValueError, r"output_size=\(1, 4, 4\) is not allowed; .* 1 or 2 integers"),
    ],
    ids=lambda value: "" if isinstance(value, torch.Tensor) else None,
)
def test_unpoolings_that_are_refused(indices, options, error, message):
    with pytest.raises(error, match=f"^max_unpool2d: {message}"):
        interop.torch.max_unpool2d(torch.ones(1, 1, 2, 2), indices, **{"kernel_size": 2} | options)


@pytest.mark.parametrize("size", [7, 16, 200])
def test_a_divisor_of_float16_neither_under_nor_overflows(size):
    x = torch.zeros(1, 1, size, size, dtype=torch.float16)
    x[0, 0, 1, 1] = 1e-5
    x.requires_grad_()
    results = []
    for pool in (interop.torch.avg_pool2d, F.avg_pool2d):
        result = pool(x, size, divisor_override=1)
        results.append((result, torch.autograd.grad(result.sum() * 2000, x)[0]))
    for got, expected in zip(*results, strict=True):
        assert got.dtype == torch.float16
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("name", ["sum", "mean"])
def test_sums_need_no_elements_for_their_gradient(name):
    """Both may change before it is computed."""
    x = values(3, 4).requires_grad_()
    y = x * 1
    result = getattr(interop.torch, name)(y, 1)
    y.add_(1)
    result.mul_(2)
    assert torch.equal(torch.autograd.grad(result.sum(), x)[0], torch.full((3, 4), 2 if name == "sum" else 0.5))


def test_a_nan_wins_and_the_first_one_has_the_index():
    x = values(1, 1, 4, 4)
    x[0, 0, 0, 1] = x[0, 0, 1, 0] = torch.nan
    got, indices = interop.torch.max_pool2d(x, 2, return_indices=True)
    expected = F.max_pool2d(x, 2)
    assert torch.equal(got.isnan(), expected.isnan())
    assert indices[0, 0, 0, 0] == 1


def test_pooling_of_empty_batches():
    x = torch.empty(0, 3, 8, 8, requires_grad=True)
    for got in (interop.torch.max_pool2d(x, 2), interop.torch.avg_pool2d(x, 2)):
        assert got.shape == (0, 3, 4, 4)
        assert torch.autograd.grad(got.sum(), x)[0].shape == x.shape
    assert interop.torch.max_pool2d(x, 2, return_indices=True)[1].shape == (0, 3, 4, 4)


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", [None, 0, -1, 2])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_are_those_of_pytorch(name, dim, keepdim):
    x = values(3, 4, 5)
    options = {"keepdim": keepdim} | ({} if dim is None and name.startswith("am") else {"dim": dim})
    got, expected = getattr(interop.torch, name)(x, **options), getattr(torch, name)(x, **options)
    assert got.dtype == expected.dtype
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", [(), (0, 2), [1, -1], (2, 0, 1), 1])
@pytest.mark.parametrize("name", ["amax", "amin", "sum", "mean"])
def test_gradients_of_reductions(name, dim, keepdim):
    x = with_ties(3, 4, 5)
    ours = gradient_of(lambda y: getattr(interop.torch, name)(y, dim, keepdim), x)
    theirs = gradient_of(lambda y: getattr(torch, name)(y, dim, keepdim), x)
    for got, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(got, expected)


def test_gradients_of_gradients_of_reductions():
    x = values(3, 4).requires_grad_()
    results = []
    for module in (interop.torch, torch):
        (first,) = torch.autograd.grad((module.amax(x, 1) ** 2).sum() + module.sum(x) ** 3, x, create_graph=True)
        results.append(torch.autograd.grad(first.sum(), x)[0])
    torch.testing.assert_close(*results)


def test_gradients_of_gradients_of_unpooling():
    x = values(1, 1, 2, 2).requires_grad_()
    results = []
    for module in (interop.torch, F):
        (first,) = torch.autograd.grad((module.max_unpool2d(x, PLACES, 2) ** 3).sum(), x, create_graph=True)
        results.append(torch.autograd.grad(first.sum(), x)[0])
    assert torch.equal(*results)


def test_gradients_of_gradients_of_pooling_are_refused():
    x = values(1, 1, 4, 4).requires_grad_()
    for pool in (interop.torch.max_pool2d, interop.torch.avg_pool2d, lambda y, k: interop.torch.lp_pool2d(y, 2, k)):
        (first,) = torch.autograd.grad((pool(x, 2) ** 2).sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match="no autograd formula was registered"):
            torch.autograd.grad(first.sum(), x)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"])
def test_types_of_reductions(dtype):
    x = (with_ties(4, 6) - 2).to(getattr(torch, dtype))
    for name in ("amax", "amin"):
        assert torch.equal(getattr(interop.torch, name)(x, 1), getattr(torch, name)(x, 1))
    assert torch.equal(interop.torch.argmax(x, 1), torch.from_numpy(x.numpy().argmax(1)))
    assert torch.equal(interop.torch.argmin(x, 1), torch.from_numpy(x.numpy().argmin(1)))
    if dtype != "float64":
        got, expected = interop.torch.sum(x, 1), torch.sum(x, 1)
        assert got.dtype == expected.dtype
        assert torch.equal(got, expected)
    for data_type in (torch.float32, torch.int64, torch.int8, torch.uint8):
        got, expected = interop.torch.sum(x.clamp(min=0), dtype=data_type), torch.sum(x.clamp(min=0), dtype=data_type)
        assert got.dtype == data_type
        assert torch.equal(got, expected)
    torch.testing.assert_close(interop.torch.mean(x, 0, dtype=torch.float32), torch.mean(x, 0, dtype=torch.float32))


def test_the_signature_of_topk_is_pytorch_s():
    schema = torch.ops.aten.topk.default._schema
    ours = inspect.signature(interop.torch.topk).parameters
    assert [*ours][1:] == [argument.name for argument in schema.arguments][1:]
    assert [each.default for each in ours.values()][2:] == [argument.default_value for argument in schema.arguments][2:]


TYPES = ["float16", "float32", "float64", "int8", "int16", "int64", "uint8", "uint16", "uint32", "uint64", "bool"]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("largest", [False, True])
def test_topk_is_that_of_pytorch(largest, dtype):
    """Its indices of equal elements are arbitrary; its stable sort has the first ones."""
    x = with_ties(3, 17, 4, dtype=getattr(torch, dtype))
    if x.is_floating_point():
        x[1, ::3] = torch.nan
        x[2, 1::4] = -0.0
        x[0, :2] = -torch.inf
    wide = x.double()  # PyTorch has not all of these types
    for dim, k in itertools.product((0, 1, 2, -1, -2), (0, 1, 2, 3, 4, 17)):
        if k > x.shape[dim]:
            continue
        got = interop.torch.topk(x, k, dim, largest)
        assert isinstance(got, torch.return_types.topk)
        assert (got.values.dtype, got.indices.dtype) == (x.dtype, torch.int64)
        expected = torch.topk(wide, k, dim, largest)
        torch.testing.assert_close(got.values.double(), expected.values, rtol=0, atol=0, equal_nan=True)
        order = torch.sort(wide, dim=dim, descending=largest, stable=True).indices
        assert torch.equal(got.indices, order.narrow(dim, 0, k))
        same = interop.torch.topk(x, k=k, dim=dim, largest=largest, sorted=False)
        assert torch.equal(same.indices, got.indices)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize(("k", "dim", "largest"), [(3, -1, True), (4, 0, False), (1, 1, True), (0, 1, True)])
def test_gradients_of_topk(k, dim, largest, dtype):
    x = values(4, 5, 6).to(dtype)
    ours, theirs = (gradient_of(lambda y, f=f: f(y, k, dim, largest)[0], x) for f in (interop.torch.topk, torch.topk))
    assert ours[0].dtype == dtype
    assert all(map(torch.equal, ours, theirs))


def test_gradients_of_topk_go_to_the_elements_it_found():
    x = torch.tensor([2.0, 7.0, 7.0, 7.0, 1.0], requires_grad=True)
    values, indices = interop.torch.topk(x, 2)
    (gradient,) = torch.autograd.grad((values * torch.tensor([3.0, 5.0])).sum(), x, create_graph=True)
    assert indices.tolist() == [1, 2]
    assert not indices.requires_grad
    assert gradient.tolist() == [0, 3, 5, 0, 0]
    rows = torch.arange(12.0).double().reshape(3, 4).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda y: interop.torch.topk(y, 2, 1)[0] ** 2, rows)


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_cumulative_functions_are_those_of_pytorch(name):
    ours, theirs = getattr(interop.torch, name), getattr(torch, name)
    arguments = getattr(torch.ops.aten, name).default._schema.arguments
    parameters = inspect.signature(ours).parameters
    assert [*parameters][1:] == [argument.name for argument in arguments][1:]
    assert parameters["dtype"].kind is inspect.Parameter.KEYWORD_ONLY
    for dtype in (torch.float32, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool):
        x = (values(3, 4, 5) % 4).to(dtype)
        for each in (x, x.mT, x[0, 0, 0], x[:0], x[:, :0]):
            for dim in range(-max(each.ndim, 1), max(each.ndim, 1)):
                torch.testing.assert_close(ours(each, dim), theirs(each, dim), rtol=0, atol=0)
        torch.testing.assert_close(ours(x, 1, dtype=torch.int8), theirs(x, 1, dtype=torch.int8), rtol=0, atol=0)
    for x in (values(3, 4, 5) / 4, values(3, 4, 5).half() % 3):  # with elements that are 0
        for got, expected in zip(*(gradient_of(lambda y, f=f: f(y, -2), x) for f in (ours, theirs)), strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-2, atol=1e-2)
    x, second = (values(3, 4) % 3).requires_grad_(), []
    for function in (ours, theirs):
        (first,) = torch.autograd.grad((function(x, 1) ** 2).sum(), x, create_graph=True)
        second += torch.autograd.grad(first.square().sum(), x)
    torch.testing.assert_close(*second)


def test_topk_without_dimensions_and_of_nothing():
    x = torch.tensor(3.0, requires_grad=True)
    for dim in (0, -1):
        got = interop.torch.topk(x, 1, dim)
        assert (got.values.shape, got.indices.shape, got.values.item(), got.indices.item()) == ((), (), 3, 0)
        assert torch.autograd.grad(got.values * 2, x)[0] == 2
    nothing = torch.empty(0, 4, 2)
    assert [each.shape for each in interop.torch.topk(nothing, 3, 1)] == [(0, 3, 2)] * 2
    assert [each.shape for each in interop.torch.topk(nothing, 0, 0)] == [(0, 4, 2)] * 2


def test_tensors_without_dimensions_and_of_nothing():
    x = torch.tensor(3.0, requires_grad=True)
    for name in REDUCTIONS:
        for dim in (0, -1):
            got = getattr(interop.torch, name)(x, dim)
            assert got.shape == ()
            assert got == getattr(torch, name)(x, dim)
    assert torch.autograd.grad(interop.torch.sum(x), x)[0] == 1
    nothing = torch.empty(0, 3)
    assert torch.equal(interop.torch.sum(nothing, 0), torch.zeros(3))
    assert interop.torch.mean(nothing, 0).isnan().all()
    assert interop.torch.amax(nothing, 1).shape == (0,)
    with pytest.raises(ValueError, match="are empty"):
        interop.torch.amax(nothing, 0)


def test_dimensions_of_one_that_are_kept():
    x = values(1, 4, 1, 3)
    for name in REDUCTIONS:
        assert getattr(interop.torch, name)(x, 1).shape == (1, 1, 3)
        assert getattr(interop.torch, name)(x, 0, keepdim=True).shape == (1, 4, 1, 3)
    assert interop.torch.amax(x, (0, 1)).shape == (1, 3)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # which PyTorch calls itself
@pytest.mark.parametrize("name", [*POOLS, *REDUCTIONS, "topk", "cumsum", "cumprod"])
def test_a_tangent_is_not_dropped(name):
    x = values(*SIZES[name])
    with pytest.raises(ValueError, match=rf"^{name}: input has a tangent; gradients in forward mode are not supported"):
        torch.func.jvp(lambda y: called(name, y), (x,), (x,))


@pytest.mark.parametrize("return_indices", [False, True])
def test_maxima_are_found_once_for_values_and_gradient(monkeypatch, return_indices):
    passed = []
    gradient = interop.torch.functions.max_pooling_grad
    monkeypatch.setattr(
        interop.torch.functions,
        "max_pooling_grad",
        lambda *arguments, indices, **window: passed.append(indices) or gradient(*arguments, indices=indices, **window),
    )
    x = values(2, 3, 6, 6).requires_grad_()
    result = interop.torch.max_pool2d(x, 2, return_indices=return_indices)
    (result[0] if return_indices else result).sum().backward()
    expected, indices = F.max_pool2d(x, 2, return_indices=True)
    assert torch.equal(x.grad, torch.autograd.grad(expected.sum(), x)[0])
    assert np.array_equal(passed[0] % 36, indices)


def test_without_and_beside_autograd():
    x = values(2, 3, 4, 4).requires_grad_()
    with torch.inference_mode():
        assert torch.equal(interop.torch.max_pool2d(x, 2), F.max_pool2d(x, 2))
    assert torch.equal(interop.torch.argmax(x), torch.argmax(x))
    gradient = ops.max_pooling_grad(x, values(2, 3, 2, 2), NO_INDICES, [2, 2], [2, 2], [0, 0], [0, 0], [1, 1])
    assert gradient.sum() == values(2, 3, 2, 2).sum()


def test_views():
    x = values(6, 8, 4)
    z = torch.complex(x, -x).conj().imag
    assert z.is_neg()
    for view in (x.permute(2, 0, 1), x[::2, 1:], x[:1].expand(5, 8, 4), z):
        assert torch.equal(interop.torch.amax(view, 1), torch.amax(view, 1))
        assert torch.equal(interop.torch.max_pool2d(view, 2), F.max_pool2d(view, 2))
        gradient = gradient_of(lambda y: interop.torch.avg_pool2d(y, 2).permute(2, 1, 0), view)[0]
        expected = gradient_of(lambda y: F.avg_pool2d(y, 2).permute(2, 1, 0), view)[0]
        torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize("name", ADAPTIVE)
def test_adaptive_pooling_is_that_of_pytorch(name):
    rank, ours, theirs = int(name[-2]), getattr(interop.torch, name), getattr(F, name)
    x = with_ties(2, 3, *(6, 4, 9)[:rank])
    for output_size in (1, (3, 2, 9)[:rank], [2, None, 3][:rank])[: rank + 1]:
        gradient, result = gradient_of(partial(ours, output_size=output_size), x)
        expected_gradient, expected = gradient_of(partial(theirs, output_size=output_size), x)
        torch.testing.assert_close(result, expected)
        torch.testing.assert_close(gradient, expected_gradient)
        if "max" in name:
            torch.testing.assert_close(ours(x[0], output_size, True), theirs(x[0], output_size, True))
    for wrong in (5, (4, 4, 4)[:rank], 0, (1,) * (rank + 1), 2.0, True):
        with pytest.raises(
            ValueError, match=rf"^{name}: output_size=.* is not allowed; allowed are {rank} divisors of"
        ):
            ours(x, wrong)
    with pytest.raises(ValueError, match=rf"^{name}: input has 1 dimensions; allowed are {rank + 1} and {rank + 2}"):
        ours(x.reshape(-1), 1)


def roi_pool_of_torchvision(x, rois, size, scale):
    """As its kernel for CPUs computes it, with float32 but where it has integers."""
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
    boxes = torch.from_numpy(np.column_stack([np.arange(40) // 25, corners])).to(dtype)
    pair = (size, size) if isinstance(size, int) else size
    expected = roi_pool_of_torchvision(x.float().numpy(), boxes.float().numpy(), pair, scale)
    for given in boxes, [boxes[:25, 1:], boxes[25:, 1:]]:
        got = interop.torch.roi_pool(x, given, size, scale)
        assert got.dtype == dtype
        torch.testing.assert_close(got.float(), torch.from_numpy(expected), rtol=0, atol=0)
    assert interop.torch.roi_pool(x, [], size).shape == (0, 3, *pair)
    with pytest.raises(RuntimeError, match="no autograd formula"):
        interop.torch.roi_pool(x.clone().requires_grad_(), boxes, size).sum().backward()


WINDOW = ([2, 2], [2, 1], [1, 0], [1, 0])
NO_INDICES = torch.empty(0, dtype=torch.int32)


@pytest.mark.parametrize("needs_gradient", [False, True])
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
def test_operators_are_registered_as_pytorch_wants(operator, arguments, needs_gradient):
    if needs_gradient and not operator.endswith(("grad", "roi_pooling")):
        arguments = (arguments[0].clone().requires_grad_(), *arguments[1:])
    checks = opcheck(getattr(ops, operator).default, arguments)
    assert checks == dict.fromkeys(
        ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"), "SUCCESS"
    )


def network(x):
    largest, indices = interop.torch.max_pool2d(x, 3, 2, 1, return_indices=True)
    largest = largest + interop.torch.max_unpool2d(largest, indices // 4, 1)
    norms = interop.torch.lp_pool2d(largest, 2, 2, 1, ceil_mode=True)
    averages = interop.torch.avg_pool2d(norms, 2, ceil_mode=True, divisor_override=3)
    sums = (
        interop.torch.sum(averages, (2, 3))
        + interop.torch.amax(x, (2, 3))
        - interop.torch.mean(x, (2, 3), keepdim=False)
    )
    lines, places = interop.torch.max_pool1d(interop.torch.avg_pool1d(x[:, :, 0], 2), 3, return_indices=True)
    greatest = interop.torch.topk(x, x.shape[2] // 3, 2)
    return sums + greatest.values.sum((2, 3)), indices, interop.torch.argmax(x, 1), lines, places, greatest.indices


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what PyTorch's compiler imports
def test_compiled_by_pytorch(backend):
    torch._dynamo.reset()
    compiled = torch.compile(network, backend=backend, fullgraph=True, dynamic=True)
    for sizes in ((2, 3, 9, 8), (1, 3, 12, 15)):
        eager = values(*sizes).requires_grad_()
        x = eager.detach().clone().requires_grad_()
        for got, expected in zip(compiled(x), network(eager), strict=True):
            torch.testing.assert_close(got, expected)
        for each, function in ((x, compiled), (eager, network)):
            sums, _, _, lines, *_ = function(each)
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
        got, expected = (each(x, **options) for each in (module, theirs))
        assert isinstance(got, tuple) == isinstance(expected, tuple)
        torch.testing.assert_close(got, expected)


GPUS = "cuda", "xpu", "mps"


def on_device(x, device):
    """A tensor on a device that this machine need not have."""
    with FakeTensorMode():
        return torch.empty(x.shape, device=device)


@pytest.mark.parametrize(
    ("boxes", "options", "error", "message"),
    [
        (ROIS.numpy(), {}, TypeError, "boxes is ndarray of float32 and .*, not a tensor"),
        (ROIS.double(), {}, TypeError, r"boxes is of torch\.float64; allowed is torch\.float32, as input$"),
        (ROIS[0], {}, ValueError, r"boxes of \(5,\) are not allowed; allowed are \(K, 5\)$"),
        ([ROIS], {}, ValueError, r"boxes of \(3, 5\) are not allowed; allowed are \(L, 4\) of each batch entry$"),
        (ROIS, {"output_size": 0}, ValueError, "output_size=0 is not allowed"),
        (ROIS, {"spatial_scale": -1.0}, DescriptorError, "-1.0 is not allowed; allowed are numbers above 0"),
        (ROIS, {"input": X[0]}, ValueError, "input has 3 dimensions; allowed are 4$"),
    ],
    ids=lambda value: "" if isinstance(value, torch.Tensor) else None,
)
def test_regions_that_are_refused(boxes, options, error, message):
    with pytest.raises(error, match=message):
        interop.torch.roi_pool(**{"input": X, "boxes": boxes, "output_size": 2, **options})


@pytest.mark.parametrize("name", [*POOLS, *REDUCTIONS, "topk", "cumsum", "cumprod"])
def test_inputs_that_are_refused(name):
    x = torch.ones(SIZES[name])
    for wrong, error, says in (
        (x.to("meta"), ValueError, "input is on meta; allowed is cpu: a meta tensor has no elements"),
        (x.to_sparse(), ValueError, r"input is torch\.sparse_coo; allowed is torch\.strided: use input\.to_dense\(\)"),
        (
            x.bfloat16(),
            TypeError,
            r"input is of torch\.bfloat16: convert it, .* input\.float\(\); allowed are torch\.fl",
        ),
        (x.cfloat(), TypeError, r"input is of torch\.complex64; allowed are torch\.float32"),
        (x.numpy(), TypeError, "input is ndarray of float32 and .*, not a tensor"),
        *(
            (on_device(x, each), ValueError, rf"input is on {each}:0; allowed is cpu: use input\.cpu\(\)$")
            for each in GPUS
        ),
    ):
        with pytest.raises(error, match=f"^{name}: {says}"):
            called(name, wrong)


@pytest.mark.parametrize(
    ("name", "x", "options", "error", "message"),
    [
        ("max_pool2d", X, {"kernel_size": 0}, ValueError, ": kernel_size=0 is not allowed; .* from 1 on"),
        ("max_pool2d", X, {"kernel_size": (2, 2, 2)}, ValueError, r": kernel_size=\(2, 2, 2\) .* are 1 or 2 integers"),
        ("max_pool2d", X, {"kernel_size": (2, 0)}, ValueError, r": kernel_size=\(2, 0\) is not allowed"),
        ("max_pool2d", X, {"stride": 0}, ValueError, ": stride=0 is not allowed"),
        ("max_pool2d", X, {"stride": 1, "padding": -1}, ValueError, ": padding=-1 is not allowed; .* from 0"),
        ("max_pool2d", X, {"dilation": 0}, ValueError, ": dilation=0 is not allowed"),
        ("avg_pool2d", X, {"stride": 1, "padding": 2}, ValueError, ": padding=2 is not allowed; .* half"),
        ("avg_pool2d", X, {"kernel_size": 9}, ValueError, r": kernel_size=9 does not fit an input of \(1, 2"),
        ("lp_pool2d", X, {"norm_type": 2, "ceil_mode": 1}, TypeError, ": ceil_mode=1 is not allowed"),
        ("lp_pool2d", X.double(), {"norm_type": 2}, TypeError, r": input is of torch\.float64"),
        ("lp_pool2d", X[0, 0], {"norm_type": 2}, ValueError, ": input has 2 dimensions; .* 3 and 4"),
        ("max_pool1d", X[0], {"stride": (1, 1)}, ValueError, r": stride=\(1, 1\) is .* allowed is 1 integer from 1 on"),
        ("max_pool1d", X[0], {"kernel_size": 5}, ValueError, r": kernel_size=5 does not fit an input of \(2, 4, 4\)"),
        ("avg_pool1d", X, {}, ValueError, ": input has 4 dimensions; .* 2 and 3"),
        ("avg_pool2d", X[0, 0], {}, ValueError, ": input has 2 dimensions; .* 3 and 4"),
        ("max_pool3d", X[0], {}, ValueError, ": input has 3 dimensions; .* 4 and 5"),
        ("avg_pool2d", X, {"divisor_override": 0}, ValueError, ": divisor_override=0 is"),
        *(
            ("topk", X, {"k": k}, ValueError, f": k={k} is not allowed; allowed are integers from 0 to 4$")
            for k in (-1, 5, 2.0, True, None, 2**63)
        ),
        ("topk", X[0, 0, 0, 0], {"k": 0}, ValueError, ": k=0 is not allowed; allowed are integers from 1 to 1$"),
        ("topk", X, {"dim": -5}, IndexError, ": dim=-5 is not allowed; allowed are integers from -4 to 3"),
        ("topk", X, {"dim": None}, IndexError, ": dim=None is not allowed"),
        ("cumsum", X, {"dim": 4}, IndexError, ": dim=4 is not allowed; allowed are integers from -4 to 3"),
        ("cumprod", X, {"dtype": torch.float64}, TypeError, ": dtype=torch.float64 is not allowed; allowed are"),
        ("topk", X, {"dim": (0,)}, IndexError, r": dim=\(0,\) is not allowed"),
        ("amax", X, {"dim": 4}, IndexError, ": dim=4 is not allowed; allowed are integers from -4 to 3"),
        ("sum", X.double(), {}, TypeError, r": input is of torch\.float64: .*; allowed are torch\.float32, "),
        (
            "sum",
            X,
            {"dtype": torch.bool},
            TypeError,
            r": dtype=torch\.bool is not allowed; allowed are torch\.float32, ",
        ),
        ("mean", X, {"dtype": "float16"}, TypeError, r": dtype=float16 is not allowed; .*32, torch\.float16$"),
        (
            "mean",
            X.int(),
            {},
            TypeError,
            r": input is of torch\.int32: .*; allowed are torch\.float32, torch\.float16$",
        ),
        (
            "max_pool2d",
            X.double().requires_grad_(),
            {},
            TypeError,
            r" with a gradient: input is of torch\.float64: .* input\.float\(\); allowed are .*32, torch\.float16$",
        ),
    ],
    ids=lambda value: "" if isinstance(value, torch.Tensor) else None,
)
def test_arguments_that_are_refused(name, x, options, error, message):
    with pytest.raises(error, match=f"^{name}{message}"):
        called(name, x, **options)


def test_dimensions_that_are_given_twice_are_refused():
    with pytest.raises(DescriptorError, match=r"0 of \(0, 0\) is given twice"):
        interop.torch.amin(X, (0, -4))


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
    with pytest.raises(TypeError, match=rf"^{name}: {flag}=.* is not allowed; allowed are True and False$"):
        called(name, torch.ones(SIZES[name]), **{flag: wrong})


@pytest.mark.parametrize("wrong", [True, 2.0, "2", b"\2", [2, True], (2.0,), range(1, 3)])
def test_integers_are_integers(wrong):
    for field in ("kernel_size", "stride", "padding", "dilation"):
        with pytest.raises(ValueError, match=rf"^max_pool2d: {field}=.* is not allowed; allowed are 1 or 2 integers"):
            called("max_pool2d", X, **{field: wrong})
    if not isinstance(wrong, (range, bytes)):
        words = r"^avg_pool2d: divisor_override=.* is not allowed; allowed are integers but"
        with pytest.raises(ValueError, match=words):
            called("avg_pool2d", X, divisor_override=wrong)
    with pytest.raises(IndexError, match=r"^amax: dim=.* is not allowed; allowed are integers from -4 to 3"):
        called("amax", X, dim=wrong)
    assert interop.torch.max_pool2d(X, np.int64(2), stride=torch.Size([1, 2])).shape == (1, 2, 3, 2)


def test_without_gradients_all_types_are_pooled():
    x = values(1, 1, 4, 4, dtype=torch.float64).requires_grad_()
    with torch.no_grad():
        assert torch.equal(interop.torch.max_pool2d(x, 2), F.max_pool2d(x, 2))
