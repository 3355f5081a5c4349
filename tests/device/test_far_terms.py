"""Sums of terms of very different magnitude: every kernel that adds floats keeps what single additions lose.

The greatest term is 2^24 times the others, and the last one is its opposite:

    2^14   0 .. 0   2^-10   0 .. 0   2^-10   0 .. 0   ...   2^-10   0 .. 0   -2^14

2^14 + 2^-10 rounds to 2^14. If a driver ignored `precise`, the result would be 0, or the sum of the small terms of
those invocations that have no great term. The terms are a step apart, so that no two are in a vector, or in four rows
of a column, whose sums may round: so the results are right to the last bits, far below the bound. Some steps leave one
term for each state.
"""

import dataclasses
import itertools

import numpy as np
import pytest

import dmlgpu
from dmlgpu import AveragePooling1OperatorDesc, AveragePoolingGradOperatorDesc, ReduceFunction
from dmlgpu.comparison import differences
from dmlgpu.lowering.limits import Limits
from dmlgpu.lowering.lower import lower
from dmlgpu.runtime import spirv
from dmlgpu.runtime.tuning import device_limits

CPU = Limits(1 << 27, group_size=64, group_count=8, simd_width=8)
GPU = Limits(1 << 27, group_size=64, group_count=64, simd_width=4096, cooperating=True, least_loads=16)
MAPPED = {
    "CPU": CPU,
    "GPU": GPU,
    "CPU-gathers": dataclasses.replace(CPU, gathers=True),
    # With these limits, windows are too long for an invocation, and have splits.
    "CPU-splits": dataclasses.replace(CPU, invocation_loads=75),
    "GPU-splits": dataclasses.replace(GPU, invocation_loads=75),
}
GREAT, SMALL = 2.0**14, 2.0**-10
# The terms of a function that correspond to 2^14, 2^-10 and 0.
TERMS = {
    ReduceFunction.SUM: (GREAT, SMALL, 0),
    ReduceFunction.L2: (4096, 1, 0),
    ReduceFunction.LOG_SUM_EXP: (0, -24 * np.log(2), -np.inf),
    ReduceFunction.MULTIPLY: (2.0**10, 1 + 2.0**-10, 1),
}
SHAPES = (((2, 16384), (1,)), ((4096, 64), (0,)), ((4096, 12), (0,)), ((64, 5, 60), (0, 2)))


def spread(count, step, great, small, none, last):
    """Terms, a step apart."""
    terms = np.full(count, none, np.float64)
    terms[::step] = small
    terms[0], terms[(count - 1) // step * step] = great, last
    return terms


def over_axes(dtype):
    for function, (great, small, none) in TERMS.items():
        for sizes, axes in SHAPES:
            count = int(np.prod([sizes[axis] for axis in axes]))
            for step in (64, 128, 1024):
                last = -great if function is ReduceFunction.SUM else small
                terms = spread(count, step, great, small, none, last)
                shape = [size if axis in axes else 1 for axis, size in enumerate(sizes)]
                x = np.broadcast_to(terms.reshape(shape), sizes).astype(dtype, "C")
                yield dmlgpu.ReduceOperatorDesc.of(function, x, axes), (x,)


def over_windows(dtype):
    # A term for each row of a window. Only some of the windows that share rows have both great terms.
    for window, strides in (
        ((7, 4), (7, 4)),
        ((7, 4), (1, 4)),
        ((8, 4), (8, 4)),
        ((8, 8), (1, 8)),
        ((5, 16), (1, 16)),
        ((33, 4), (33, 4)),
    ):
        above = window[0] // 2 if strides[0] == 1 else 0
        x = np.zeros((1, 2, window[0] + 2 * above, 64), dtype)
        x[..., :: window[1]] = SMALL
        x[:, :, above, :: window[1]], x[:, :, above + window[0] - 1, :: window[1]] = GREAT, -GREAT
        yield AveragePooling1OperatorDesc.of(x, window, strides=strides), (x,)
    # Four large windows, all with both great terms.
    for height, width in ((32, 40), (3, 400)):
        x = np.zeros((1, 2, height + 1, width + 1), dtype)
        x[..., 8::8] = SMALL
        x[:, :, 1, 8], x[:, :, height - 1, (width - 1) // 8 * 8] = GREAT, -GREAT
        yield AveragePooling1OperatorDesc.of(x, (height, width)), (x,)


def over_covering_windows(dtype):
    """Gradients whose middle element is in all windows, and is the maximum of each."""
    # The second has whole words in each row. The last ones use no separable passes: few windows, and a long stride.
    for count, window, stride in ((8, 8, 1), (8, 9, 1), (16, 16, 1), (5, 5, 1), (4, 5, 1), (3, 3, 1), (8, 72, 9)):
        gradient = spread(count * count, 1, GREAT, SMALL, 0, -GREAT).reshape(1, 1, count, count).astype(dtype, "C")
        size, strides = (count - 1) * stride + window, (stride, stride)
        x = np.zeros((1, 1, size, size), dtype)
        x[:, :, window - 1, window - 1] = 1
        yield AveragePoolingGradOperatorDesc.of(gradient, x.shape, (window, window), strides=strides), (gradient,)
        yield dmlgpu.MaxPoolingGradOperatorDesc.of(x, (window, window), strides=strides), (x, gradient)
    # No separable passes, as a stride is longer than the window: along height, where there is one.
    gradient = spread(96, 1, GREAT, SMALL, 0, -GREAT).reshape(1, 1, 1, 96).astype(dtype, "C")
    sizes = (1, 1, 1, 95 * 9 + 864)
    yield AveragePoolingGradOperatorDesc.of(gradient, sizes, (1, 864), strides=(2, 9)), (gradient,)


DOMAINS = {"axes": over_axes, "windows": over_windows, "covering-windows": over_covering_windows}
DTYPES = {"float32": np.float32, "float16": np.float16}
# Axes have splits with any limits. Only gradients have other modules on a driver that gathers.
SETTINGS = {
    (name, mapping, dtype): (domain, limits, DTYPES[dtype])
    for (name, domain), (mapping, limits), dtype in itertools.product(DOMAINS.items(), MAPPED.items(), DTYPES)
    if (domain != over_axes or "splits" not in mapping)
    and (domain == over_covering_windows or "gathers" not in mapping)
}


def params():
    """SwiftShader, which compiles slowly, runs the modules of 32 bits without splits: others add in the same way."""
    for (name, mapping, dtype), values in SETTINGS.items():
        marks = [pytest.mark.every_driver] if dtype == "float32" and "splits" not in mapping else []
        yield pytest.param(*values, id=f"{name}-{mapping}-{dtype}", marks=marks)


@pytest.mark.parametrize(("domain", "limits", "dtype"), [*params()])
def test_far_terms_are_added(driver, open_device, domain, limits, dtype):
    # SwiftShader, which unrolls nothing, compiles items of several vectors for minutes; its plans have none.
    unrolls = limits.cooperating or device_limits(driver).unrolls
    device = open_device(driver.index, dataclasses.replace(limits, unrolls=unrolls))
    info, wrong = np.finfo(dtype), []
    for desc, inputs in domain(dtype):
        op, (expected,) = device.compile(desc), dmlgpu.reference(desc, *inputs)
        result = op(*inputs)
        beyond = list(differences(desc, inputs, (result,), (expected,)))
        off = np.abs(result.astype(np.float64) - expected) > info.eps * np.abs(expected) + info.smallest_subnormal
        # A product rounds once for each factor.
        if beyond or (off.any() and getattr(desc, "function", None) != ReduceFunction.MULTIPLY):
            wrong.append((desc, {dispatch.shader.module for dispatch in op.plan.dispatches}))
    assert wrong == []


def test_every_module_that_adds_or_multiplies_floats_runs():
    modules = {
        dispatch.shader.module
        for domain, limits, dtype in SETTINGS.values()
        for desc, _ in domain(dtype)
        for dispatch in lower(desc, limits).dispatches
    }
    # Those of scans have tests of their own: test_cumulative.py.
    names = {name for name in spirv.layouts() if not name.startswith("scan")}
    assert modules >= {name for name in names if name.rsplit("_", 2)[1] in ("sum", "product", "logsumexp")}
