"""Accumulators: every kernel does with another one what the contract in accumulator.glsl says.

The other one is the sum of unsigned 32-bit elements: it forgives neither an element too few nor one taken twice. Its
value is the sum and the number of elements that the kernel gives for the output, so that a wrong one shows. Nothing of
it is in the package: an operator, its problem and an accumulator are all that is added.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from dmlgpu import OperatorDesc, TensorDesc
from dmlgpu.descriptors.window import Window
from dmlgpu.lowering.accumulators import Accumulator, Selection
from dmlgpu.lowering.limits import Limits
from dmlgpu.lowering.lower import lower
from dmlgpu.lowering.problem import Axes, OutputTensor, Problem, Result, Source, Windows, problems_of
from dmlgpu.runtime import spirv
from dmlgpu.testing.cases import UINT32, permuted_strides
from dmlgpu.testing.fills import arranged
from tests.support.limits import LOWERED
from tests.support.processes import ROOT
from tests.support.shaders import VARIANTS, build

pytestmark = pytest.mark.every_driver


@dataclass(frozen=True)
class Sum(Accumulator):
    """Those of tests/accumulators/sum.glsl."""

    name: ClassVar = "sum"

    @property
    def needs_count(self):
        return True

    def state_words(self, data_type):
        return 1


@dataclass(frozen=True)
class OverAxes(OperatorDesc):
    """The value of an accumulator over axes."""

    accumulator: Sum | Selection
    input_tensor: TensorDesc
    output_tensor: TensorDesc
    axes: tuple[int, ...]


@dataclass(frozen=True)
class OverWindows(OperatorDesc):
    """The same over windows, dense ones of stride 1, padded at the start."""

    accumulator: Sum | Selection
    input_tensor: TensorDesc
    output_tensor: TensorDesc
    window_size: tuple[int, ...]
    start_padding: tuple[int, ...]


@problems_of.register
def _over_axes(desc: OverAxes) -> tuple[Problem, ...]:
    outputs = (OutputTensor(desc.output_tensor, Result.VALUE),)
    return (Problem((Source(desc.input_tensor),), Axes.of(desc.input_tensor, desc.axes), desc.accumulator, outputs),)


@problems_of.register
def _over_windows(desc: OverWindows) -> tuple[Problem, ...]:
    source, counts = desc.input_tensor, desc.output_tensor.sizes[2:]
    rows = zip(source.sizes[2:], desc.window_size, desc.start_padding, counts, strict=True)
    along = tuple(Window(size, window, start_padding=start, output_size=count) for size, window, start, count in rows)
    outputs = (OutputTensor(desc.output_tensor, Result.VALUE),)
    return (Problem((Source(source),), Windows.of(source, along), desc.accumulator, outputs),)


@pytest.fixture(scope="module", autouse=True)
def modules(tmp_path_factory):
    """The modules of the sum: every kernel, with another accumulator, but those that know theirs, and scans."""
    folder = tmp_path_factory.mktemp("sum")
    shaders = shutil.copytree(ROOT / "shaders", folder / "shaders")
    shutil.copy(ROOT / "tests/accumulators/sum.glsl", shaders / "accumulators")
    load, layout_of = spirv.load, spirv.layout_of
    compiled, layouts = {}, {}
    for kernel, (entry_point, *defines) in VARIANTS.items():
        if kernel.startswith(("top_k", "requantize", "scan")):
            continue
        module = folder / f"{kernel}.spv"
        build.translate(entry_point, (*defines, "BITS=32", "ACCUMULATOR_SUM"), module, shaders)
        compiled[f"{kernel}_sum_32"] = code = module.read_bytes()
        layouts[f"{kernel}_sum_32"] = spirv.Layout(**build.layout(code), sha256="")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(spirv, "load", lambda module: compiled.get(module) or load(module))
        patched.setattr(spirv, "layout_of", lambda module: layouts.get(module) or layout_of(module))
        yield


def elements(tensor, fill):
    return arranged(tensor, lambda dtype, count: fill(count).astype(dtype))


FILLS = {
    "ones": np.ones,
    "any": lambda count: np.random.default_rng(count).integers(0, 1 << 32, count, np.uint32),
}
by_fill = pytest.mark.parametrize("fill", FILLS.values(), ids=FILLS)


def check(device, desc, x, expected, kernel=None):
    result = device.compile(desc, kernel=kernel)(x)
    assert np.array_equal(result, expected)


# A vector has 4 elements: rows of vectors, of one element less and of one more.
@by_fill
@pytest.mark.parametrize(
    ("sizes", "axes", "order"),
    [
        *(((5, size), (1,), (0, 1)) for size in (3, 4, 5, 7, 8, 9, 63, 64, 65, 255, 256, 257, 999)),
        *(((size, 7), (0,), (0, 1)) for size in (2, 3, 255, 256, 257, 999)),
        ((40, 66), (0,), (0, 1)),
        ((40, 64), (0,), (0, 1)),
        ((1, 9001), (1,), (0, 1)),
        ((601, 2, 9), (0,), (0, 1, 2)),
        ((6, 15, 10), (0, 2), (0, 1, 2)),
        ((6, 15, 10), (0, 1, 2), (2, 0, 1)),
    ],
    ids=str,
)
def test_sum_over_axes(mapped, sizes, axes, order, fill):
    source = TensorDesc(UINT32, sizes, permuted_strides(sizes, order))
    target = TensorDesc(UINT32, tuple(1 if axis in axes else size for axis, size in enumerate(sizes)))
    x = elements(source, fill)
    total = x.sum(axes, np.uint32, keepdims=True)
    check(mapped, OverAxes(Sum(), source, target, axes), x, total + np.uint32(x.size // total.size))


def test_sum_of_rows_in_many_splits(device):
    source, target = TensorDesc(UINT32, (2, 3, 70001)), TensorDesc(UINT32, (2, 3, 1))
    x = elements(source, FILLS["any"])
    desc = OverAxes(Sum(), source, target, (2,))
    assert device.compile(desc).plan.partial_bytes
    check(device, desc, x, x.sum(2, np.uint32, keepdims=True) + np.uint32(70001))


@by_fill
@pytest.mark.parametrize(
    ("sizes", "window", "padding"),
    [
        ((2, 3, 9, 12), (3, 3), (1, 2)),
        ((1, 2, 20, 21), (8, 5), (0, 0)),
        ((1, 2, 10, 60), (7, 41), (5, 3)),
        ((2, 1, 5, 6, 11), (2, 3, 2), (1, 0, 1)),
    ],
    ids=str,
)
def test_sum_over_windows(mapped, sizes, window, padding, fill):
    source = TensorDesc(UINT32, sizes)
    spatial = tuple(n + start - size + 1 for n, start, size in zip(sizes[2:], padding, window, strict=True))
    target = TensorDesc(UINT32, sizes[:2] + spatial)
    x = elements(source, fill)
    padded, padded_ones = (
        np.pad(array, [(0, 0), (0, 0), *((start, 0) for start in padding)]) for array in (x, np.ones_like(x))
    )
    windows = np.lib.stride_tricks.sliding_window_view(padded, window, range(2, len(sizes)))
    inside = np.lib.stride_tricks.sliding_window_view(padded_ones, window, range(2, len(sizes)))
    dimensions = tuple(range(-len(window), 0))
    expected = windows.sum(dimensions, np.uint32) + inside.sum(dimensions, np.uint32)
    for kernel in None, "pool_direct":
        check(mapped, OverWindows(Sum(), source, target, window, padding), x, expected, kernel)


def test_these_take_every_kernel():
    taken = set()
    gpu = Limits(1 << 27, 64, 16, simd_width=1024, cooperating=True)
    for limits in (Limits(1 << 27, 64, 16), gpu, LOWERED, replace(LOWERED, cooperating=True)):
        for sizes, axes in (((5, 257), (1,)), ((2999, 7), (0,)), ((40, 64), (0,)), ((6, 35, 10), (0, 2))):
            target = TensorDesc(UINT32, tuple(1 if i in axes else size for i, size in enumerate(sizes)))
            plan = lower(OverAxes(Sum(), TensorDesc(UINT32, sizes), target, axes), limits)
            taken |= {dispatch.shader.module for dispatch in plan.dispatches}
        for sizes, window in (
            ((1, 2, 10, 12), (3, 3)),
            ((1, 2, 20, 21), (8, 5)),
            ((1, 2, 40, 12), (33, 2)),
            ((1, 2, 13, 60), (9, 41)),
        ):
            spatial = tuple(n - size + 1 for n, size in zip(sizes[2:], window, strict=True))
            desc = OverWindows(
                Sum(), TensorDesc(UINT32, sizes), TensorDesc(UINT32, sizes[:2] + spatial), window, (0, 0)
            )
            for kernel in None, "pool_direct":
                taken |= {dispatch.shader.module for dispatch in lower(desc, limits, kernel).dispatches}
    # Those of gradients, of regions, of unpooling, of TOP_K, of quantized elements and scans have tests of their own;
    # only selections load words.
    names = "pool_backward", "roi_pool", "scatter", "scan", "top_k", "requantize"
    others = tuple(kernel for kernel in VARIANTS if kernel.startswith(names) or "shares" in kernel or "words" in kernel)
    assert taken == {f"{kernel}_sum_32" for kernel in VARIANTS if kernel not in others}


_ORDER = "^kernels over axes and windows write the value, then the index, or words$"


def test_what_no_kernel_can_do_is_refused():
    source = TensorDesc(UINT32, (1, 1, 4, 4))
    sources, output = (Source(source),), OutputTensor(source, Result.VALUE)
    with pytest.raises(NotImplementedError, match=_ORDER):
        Problem(sources, Axes.of(source, (3,)), Selection(), (output, output))
    windows = Windows.of(source, (Window(4, 1, output_size=4),) * 2)
    for selection in Selection(minimum=True), Selection(last=True):
        with pytest.raises(NotImplementedError, match=r"^kernels over windows look for the first maximum$"):
            Problem(sources, windows, selection, (output,))
    index = OutputTensor(source, Result.INDEX)
    for outputs in (index, output), (output, output):
        with pytest.raises(NotImplementedError, match=_ORDER):
            Problem(sources, windows, Selection(), outputs)
    assert Problem(sources, windows, Selection(), (output, index)).output_count == 16
