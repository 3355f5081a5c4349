"""Smaller trials with the same difference, and programs of some five lines that show it with the library alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np

import dmlgpu
from dmlgpu.descriptors.tensor import Array, bits
from dmlgpu.testing.isolated import buffer_of
from dmlgpu.testing.libraries import Library
from dmlgpu.testing.outcomes import Outcome
from dmlgpu.testing.trials import Trial, subnormal, trial_of

# Maximum numbers of elements that a reproducer shows, and of characters of the right values.
_MOST_SHOWN, _MOST_RIGHT = 1000, 200


def reproducer(trial: Trial, outcome: Outcome, library: Library) -> str:
    """The program; a comment at its end shows the right values, or if these are long, the first difference."""
    if sum(x.size for x in trial.inputs.values()) > _MOST_SHOWN:
        return f"# {trial.id}: its input is too large to print; run with -k {trial.id}"
    right = _right(trial, library)
    comment = f"right: {right}" if len(right) <= _MOST_RIGHT else outcome.text
    return "\n".join(lines(trial, library)) + f"  # {comment}"


def lines(trial: Trial, library: Library) -> list[str]:
    """The program, a statement in each line."""
    program = trial.program(library)
    assert program is not None
    from_math, statements = set[str](), []
    for name, x in trial.inputs.items():
        strides = None if x.flags.c_contiguous else [stride // x.itemsize for stride in x.strides]
        buffer, kind = x if strides is None else buffer_of(x), ""
        # As integers, because a list of floats loses signs and payloads of NaN.
        if x.dtype.kind == "f" and (bits(x[np.isnan(x)]) != bits(x.dtype.type(np.nan))).any():
            kind = f"int{8 * x.itemsize}"
        is_zero = x.size == 0 or (x.size > 8 and not bits(buffer).any())
        values = None if is_zero else str((buffer.view(kind) if kind else buffer).tolist())
        from_math |= {word for word in ("inf", "nan") if values is not None and word in values}
        statements.append(f"{name} = {library.literal(values, x.dtype.name, x.shape, strides, kind)}")
    *others, expression = [line for line in program.splitlines() if line.partition(" = ")[0] not in trial.inputs]
    imports = [f"from math import {', '.join(sorted(from_math))}"] if from_math else []
    return [*library.imports.splitlines(), *imports, *statements, *others, f"print({expression})"]


def _right(trial: Trial, library: Library) -> str:
    if trial.expected is None:
        return "an exception"
    if not trial.expected:
        return "anything, or an exception"
    values = [y.tolist() for y in trial.expected]
    if library.plane_indices and trial.function == "max pooling with indices":
        values[1] = (trial.expected[1] % math.prod(trial.inputs["x"].shape[2:])).tolist()
    return ", ".join(map(str, values))


def smaller(trial: Trial) -> Iterator[Trial]:
    """Trials of the same call on fewer elements, then on simpler ones."""
    if trial.desc is None:
        return
    x = trial.inputs["x"]
    arrays = [] if x.flags.c_contiguous else [np.ascontiguousarray(x)]
    for axis, size in enumerate(x.shape):
        cuts = [(0, size // 2), (size // 2, size), (0, size - 1), (1, size)] if size > 1 else []
        arrays += [x[(slice(None),) * axis + (slice(*cut),)] for cut in dict.fromkeys(cuts)]
    if sum(size > 1 for size in x.shape) == 1:
        axis = int(np.argmax(x.shape))
        arrays += [np.delete(x, i, axis) for i in range(1, min(x.shape[axis], 12) - 1)]
    arrays += _simplified(x) if x.flags.c_contiguous else []
    regions = [{"rois": trial.inputs["rois"][i : i + 1]} for i in range(len(trial.inputs.get("rois", ())))]
    for inputs in [*(regions if len(regions) > 1 else ()), *({"x": y} for y in arrays)]:
        try:
            yield _resized(trial, {**trial.inputs, **inputs})
        except dmlgpu.DescriptorError:
            continue


def _simplified(x: Array) -> list[Array]:
    """Copies in which NaN have no sign and no payload; in the first, ranks replace values that are not special."""
    if x.dtype.kind == "f":
        plain = np.where(np.isnan(x), x.dtype.type(np.nan), x)
        is_usual = np.isfinite(x) & (x != 0) & ~subnormal(x)
    else:
        info = np.iinfo(x.dtype)
        plain, is_usual = x, (x != info.min) & (x != info.max) & (x != 0)
    values = plain[is_usual].astype(np.float64)
    _, ranks = np.unique(np.abs(values), return_inverse=True)
    ranked = plain.copy()
    ranked[is_usual] = (np.sign(values) * (ranks + 1)).astype(x.dtype)
    return [y for y in (ranked, plain) if (bits(y) != bits(x)).any()]


def _resized(trial: Trial, inputs: dict[str, Array]) -> Trial:
    """The trial of the same operator on other inputs; a gradient is cut to its windows.

    Raises:
        dmlgpu.DescriptorError: the operator has no such inputs.
    """
    desc = _desc_of(trial.desc, inputs)
    if "gradient" in inputs:
        sizes = desc.input_gradient_tensor.sizes
        gradient = inputs["gradient"][tuple(map(slice, sizes))]
        if gradient.shape != sizes:
            raise dmlgpu.DescriptorError("the gradient has too few elements")
        inputs["gradient"] = np.ascontiguousarray(gradient)
    return trial_of(trial.id, desc, lambda: inputs)


def _desc_of(desc: Any, inputs: dict[str, Array]) -> Any:
    """The descriptor of the same operator on other inputs."""
    kind, x = type(desc), inputs["x"]
    source = dmlgpu.TensorDesc.of(np.ascontiguousarray(x))
    values = {field.name: getattr(desc, field.name) for field in fields(desc)}
    options = {name: value for name, value in values.items() if not isinstance(value, dmlgpu.TensorDesc | None)}
    options |= {name: value for name, value in values.items() if "_scale_" in name or "_zero_point_" in name}
    match desc:
        case dmlgpu.MaxUnpoolingOperatorDesc():
            return replace(desc, input_tensor=source)
        case dmlgpu.AveragePoolingGradOperatorDesc():
            pooled = dmlgpu.AveragePooling1OperatorDesc.of(source, **options).output_tensor
            return kind.of(pooled, x.shape, **options)
        case dmlgpu.TopK1OperatorDesc():
            options["k"] = min(desc.k, x.shape[desc.axis])
        case dmlgpu.RoiPoolingOperatorDesc():
            options["roi_tensor"] = inputs["rois"][None, None]
        case dmlgpu.MaxPooling2OperatorDesc() if desc.output_indices_tensor:
            options["indices_data_type"] = dmlgpu.DataType.UINT64
    new = kind.of(input_tensor=source, **options)
    if any(window.output_size > window.fitting for window in getattr(desc, "windows", ())):
        counts = [window.fitting + bool((window.padded - window.extent) % window.stride) for window in new.windows]
        new = kind.of(input_tensor=source, **options, output_sizes=counts)
    return new
