"""Compares gradients of pooling, and unpooling, with PyTorch's, on random cases.

    python -m tests.torch_gradients [CASES [SEED]]

PyTorch computes in float64, which no float32 or float16 loses anything in. What the drivers under test compute, and the
oracle, must be within the bound of the operator, and for unpooling the same bits. There are no NaN: of several in a
window PyTorch takes the last, and we the first. The first case that differs ends the run.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from typing import Any

import numpy as np
import torch

from dmlgpu import (
    AveragePoolingGradOperatorDesc,
    Device,
    MaxPoolingGradOperatorDesc,
    MaxUnpoolingOperatorDesc,
    OperatorDesc,
    TensorDesc,
    reference,
)
from dmlgpu.comparison import differences
from dmlgpu.descriptors.tensor import Array
from dmlgpu.testing.cases import FLOAT16, FLOAT32, UINT32, UINT64
from dmlgpu.testing.fills import distinct, negative, special_without_nan, ties
from tests.fuzz.descriptors import Choices, Data
from tests.support.drivers import DRIVERS, device_of, use_drivers_under_test

KINDS = AveragePoolingGradOperatorDesc, MaxPoolingGradOperatorDesc, MaxUnpoolingOperatorDesc
FILLS = ties, distinct, negative, special_without_nan

# An operator, its inputs, and what PyTorch makes of them.
Drawn = tuple[OperatorDesc, tuple[Array, ...], Array]


def draw(choices: Choices, kind: type[OperatorDesc]) -> Drawn:
    """A case of an operator, of any window that PyTorch takes: padded alike on both sides, by half of it at most."""
    spatial = 2 if kind is MaxUnpoolingOperatorDesc else choices.integer(2, 3)
    size, stride = ([choices.integer(1, 4) for _ in range(spatial)] for _ in range(2))
    padding = [choices.integer(0, each // 2) for each in size]
    dilation = [choices.integer(1, 3) if kind is MaxPoolingGradOperatorDesc else 1 for _ in size]
    # With as many elements as a window extends over, none lies wholly in the padding.
    lengths = [1 + (w - 1) * d + choices.integer(0, 9) for w, d in zip(size, dilation, strict=True)]
    data_type = choices.of((FLOAT32, FLOAT16))
    x = elements(choices, data_type.numpy, (choices.integer(1, 3), choices.integer(1, 3), *lengths))
    exact = torch.from_numpy(x.astype(np.float64)).requires_grad_()
    steps = {"kernel_size": size, "stride": stride, "padding": padding, "ceil_mode": choices.chance(3)}
    window = {"window_size": size, "strides": stride, "start_padding": padding, "end_padding": padding}

    functional = torch.nn.functional
    if kind is AveragePoolingGradOperatorDesc:
        counted = choices.chance(2)
        pool = functional.avg_pool2d if spatial == 2 else functional.avg_pool3d
        pooled = pool(exact, **steps, count_include_pad=counted)
        gradient = elements(choices, x.dtype, tuple(pooled.shape))
        desc = kind.of(gradient, x.shape, **window, include_padding=counted)
        return desc, (gradient,), backward(pooled, exact, gradient)
    pool = functional.max_pool2d if spatial == 2 else functional.max_pool3d
    pooled, indices = pool(exact, **steps, dilation=dilation, return_indices=True)
    if kind is MaxPoolingGradOperatorDesc:
        gradient = elements(choices, x.dtype, tuple(pooled.shape))
        source = TensorDesc.of(gradient)
        desc = kind.of(x, **window, dilations=dilation, input_gradient_tensor=source)
        return desc, (x, gradient), backward(pooled, exact, gradient)
    del steps["ceil_mode"]
    expected = functional.max_unpool2d(pooled, indices, **steps, output_size=x.shape)
    values = pooled.detach().numpy().astype(x.dtype)
    # PyTorch counts within each plane.
    planes = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], 1, 1) * (x.shape[2] * x.shape[3])
    places = (indices.numpy() + planes).astype(choices.of((UINT32, UINT64)).numpy)
    desc = kind.of(values, x.shape, indices_tensor=places)
    return desc, (values, places), expected.detach().numpy()


def elements(choices: Choices, dtype: np.dtype[Any], sizes: tuple[int, ...]) -> Array:
    count = int(np.prod(sizes))
    return Data(choices.of(FILLS), choices.integer(0, 99))(dtype, count).reshape(sizes)


def backward(pooled: Any, x: Any, gradient: Array) -> Array:
    (found,) = torch.autograd.grad(pooled, x, torch.from_numpy(gradient.astype(np.float64)))
    expected: Array = found.numpy()
    return expected


def check(drawn: Drawn, devices: dict[str, Device]) -> str | None:
    """What differs from PyTorch, and how."""
    desc, inputs, exact = drawn
    with np.errstate(over="ignore", under="ignore"):
        expected = exact.astype(inputs[0].dtype)
    outputs = {name: device.compile(desc)(*inputs) for name, device in devices.items()}
    (outputs["the oracle"],) = reference(desc, *inputs)
    for name, output in outputs.items():
        for _, text in differences(desc, inputs, (output,), (expected,)):
            return f"{name}, with PyTorch as the reference: {text}\n{desc}\n{inputs}"
    return None


def main(count: int = 300, seed: int = 0) -> int:
    use_drivers_under_test()
    devices = {name: Device(device_of(manifest).index) for name, manifest in DRIVERS.items()}
    found: Counter[str] = Counter()
    begin = time.monotonic()
    for number in range(seed, seed + count):
        kind = KINDS[number % len(KINDS)]
        difference = check(draw(Choices(random.Random(number).randint), kind), devices)
        if difference:
            print(f"case {number} (python -m tests.torch_gradients 1 {number}) of {difference}")
            return 1
        found[kind.__name__] += 1
    cases = ", ".join(f"{cases} of {name}" for name, cases in found.items())
    print(
        f"PyTorch {torch.__version__}, {', '.join(devices)}: {cases} in {time.monotonic() - begin:.0f} s, none differs"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
