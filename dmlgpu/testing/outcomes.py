"""How a library's result compares with the oracle's."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import dmlgpu
from dmlgpu.comparison import different
from dmlgpu.descriptors.cumulative import CumulativeOperatorDesc
from dmlgpu.descriptors.reduction import ArgOperatorDesc, ExtremumOperatorDesc
from dmlgpu.descriptors.tensor import Array
from dmlgpu.reference.bounds import U, bounds
from dmlgpu.reference.reduction import rows_of
from dmlgpu.testing.isolated import CrashedError, Isolated, RefusedError
from dmlgpu.testing.libraries import Library
from dmlgpu.testing.trials import Trial, arguments, subnormal, trial_of

SAME, REFUSED, CRASHED = "same", "refused", "crashed"
# From the worst to the mildest: a case with several differences has the worst outcome.
DIFFERENCES = ("value", "NaN", "tie", "sign of zero", "rounding")
OUTCOMES = (SAME, *DIFFERENCES, REFUSED, CRASHED)
# An outcome, the elements of a result that have it, and `Outcome.is_open`.
_Mask = tuple[str, Array, bool]


class Outcome(NamedTuple):
    """How a library's result compares with the oracle's."""

    word: str
    """One of OUTCOMES."""
    text: str = ""
    """The first difference, or the library's message."""
    is_open: bool = False
    """Whether no document can decide which value is right: of two zeros, or beyond the range of integers."""


def outcome_of(trial: Trial, library: Library, child: Isolated) -> Outcome | None:
    """Runs a trial; None: the library cannot express it."""
    program = trial.program(library)
    if program is None:
        return None
    try:
        results = child.run(program, trial.inputs)
    except CrashedError as error:
        return Outcome(CRASHED, str(error))
    except RefusedError as error:
        return Outcome(SAME if trial.expected is None else REFUSED, str(error))
    outcome = judge(trial, results, library)
    if outcome.word in DIFFERENCES and _is_flushed(trial, results, library):
        return outcome._replace(text=f"{outcome.text}, as if subnormal floats were 0")
    return outcome


def judge(trial: Trial, results: list[Array], library: Library) -> Outcome:
    """Compares a library's results with the expected ones."""
    if trial.expected is None:
        shapes = ", ".join(f"a result of {result.shape}" for result in results) or "no result"
        return Outcome("value", f"{shapes} instead of an exception")
    if not trial.expected:
        return Outcome(SAME)
    if len(results) != len(trial.expected):
        return Outcome("value", f"{len(results)} results instead of {len(trial.expected)}")
    outcomes = [_outcome_of(trial, i, result, library) for i, result in enumerate(results)]
    return min(outcomes, key=lambda outcome: (*DIFFERENCES, SAME).index(outcome.word))


def _is_flushed(trial: Trial, results: list[Array], library: Library) -> bool:
    """Whether the results are right if subnormal floats count as 0."""
    if trial.desc is None or not subnormal(trial.inputs["x"]).any():
        return False

    def flat(x: Array) -> Array:
        return np.where(subnormal(x), np.copysign(x.dtype.type(0), x), x) if x.dtype.kind == "f" else x

    flushed = trial_of(trial.id, trial.desc, lambda: {name: flat(y) for name, y in trial.inputs.items()})
    return judge(flushed, [flat(y) for y in results], library).word in (SAME, "sign of zero", "tie")


def _outcome_of(trial: Trial, i: int, result: Array, library: Library) -> Outcome:
    assert trial.expected is not None
    desc, right = trial.desc, trial.expected[i]
    if [n for n in result.shape if n != 1] != [n for n in right.shape if n != 1]:
        return Outcome("value", f"a result of {result.shape} instead of {right.shape}")
    if desc is None or right.size == 0:
        return Outcome(SAME)
    result = result.reshape(right.shape)
    if isinstance(desc, ArgOperatorDesc) or i == 1:
        if result.dtype.kind not in "iu":
            return Outcome("value", f"indices of {result.dtype}")
        if library.plane_indices and isinstance(desc, dmlgpu.MaxPooling2OperatorDesc):
            planes = np.arange(np.prod(right.shape[:2])).reshape(*right.shape[:2], *(1,) * (right.ndim - 2))
            result = result + planes * int(np.prod(desc.input_tensor.sizes[2:]))
        masks = _masks_of_indices(trial, result.astype(np.int64), right.astype(np.int64))
    elif result.dtype != right.dtype:
        return Outcome("value", f"a result of {result.dtype} instead of {right.dtype}")
    else:
        is_float = right.dtype.kind == "f"
        masks = _masks_of_floats(trial, i, result, right) if is_float else _masks_of_integers(trial, result, right)
    for word, mask, is_open in masks:
        if mask.any():
            at = tuple(int(n) for n in np.unravel_index(int(mask.argmax()), mask.shape))
            return Outcome(word, f"{result[at].item()!r} instead of {right[at].item()!r} at {at}", is_open)
    return Outcome(SAME)


def _masks_of_integers(trial: Trial, result: Array, right: Array) -> list[_Mask]:
    wrong = result != right
    if isinstance(trial.desc, dmlgpu.QuantizedLinearAveragePoolingOperatorDesc):
        near = np.abs(result.astype(np.int64) - right) <= 1
        return [("value", wrong & ~near, False), ("rounding", wrong, False)]
    # Sums and products that may leave the range of their type.
    x, greatest = np.abs(trial.inputs["x"].astype(np.float64)), float(np.iinfo(right.dtype).max)
    if _is_product(trial):
        x, greatest = np.log2(np.maximum(x, 1)), np.log2(greatest)
    beyond = _totals(trial, x ** (2 if trial.function == "sum square" else 1)) > greatest
    if not trial.function.startswith(("sum", "l1", "multiply", "cumulative")):
        beyond[...] = False
    return [("value", wrong & ~beyond, False), ("value", wrong & beyond, True)]


def _masks_of_floats(trial: Trial, i: int, result: Array, right: Array) -> list[_Mask]:
    assert trial.desc is not None
    with np.errstate(all="ignore"):
        bound = bounds(trial.desc, *arguments(trial.desc, trial.inputs))[i]
    wrong = different(result, right, bound) & ~(np.isnan(result) & np.isnan(right))
    if not wrong.any():
        return []
    nan = np.isnan(result) | np.isnan(right)
    if isinstance(trial.desc, dmlgpu.TopK1OperatorDesc):  # a NaN moves what is sorted
        nan |= _depends(trial, np.isnan(trial.inputs["x"]))
    zeros, both = wrong & (result == 0) & (right == 0), _has_both_zeros(trial)
    rounding = wrong & (_rounds(trial, result, right, bound) if bound is not None else False)
    wrong &= ~rounding
    is_gradient = isinstance(trial.desc, dmlgpu.MaxPoolingGradOperatorDesc)
    word = _outcome_of_gradient(trial, result, right) if is_gradient else "value"
    return [
        (word, wrong & ~nan & ~zeros, False),
        ("NaN", wrong & nan, False),
        ("sign of zero", zeros & ~both, False),
        ("sign of zero", zeros, True),
        ("rounding", rounding, False),
    ]


def _outcome_of_gradient(trial: Trial, result: Array, right: Array) -> str:
    """A tie if the gradients of each plane have the right sum, at other elements."""
    if any(np.isnan(y).any() for y in trial.inputs.values()):
        return "NaN"
    axes = tuple(range(2, right.ndim))
    sums, right_sums = (np.asarray(y, np.float64).sum(axes) for y in (result, right))
    return "tie" if np.allclose(sums, right_sums, rtol=1e-3) else "value"


def _rounds(trial: Trial, result: Array, right: Array, bound: Array) -> Array:
    """For each value whether uncompensated sums or products of the result's type, in any order, may have it."""
    desc, x, info = trial.desc, trial.inputs["x"], np.finfo(right.dtype)
    assert desc is not None
    terms = max(4, -(-x.size // right.size))
    if isinstance(desc, CumulativeOperatorDesc):
        terms = right.shape[desc.axis]
    if isinstance(desc, dmlgpu.AveragePooling1OperatorDesc | dmlgpu.LpPooling1OperatorDesc):
        terms = int(np.prod(desc.window_size)) * getattr(desc, "p", 1)
    with np.errstate(all="ignore"):
        near: Array = np.abs(result.astype(np.float64) - right) <= bound * terms * max(1, float(info.eps) / U)
        # If a partial result leaves the range of the type, the final one depends on the order.
        x = np.abs(arguments(desc, trial.inputs)[0].astype(np.float64))
        magnitudes = np.where(np.isfinite(x) & (x > 0), x, np.nan)
        if _is_product(trial):
            logs = np.nan_to_num(np.log2(magnitudes))
            highest, lowest = _totals(trial, np.maximum(logs, 0)), _totals(trial, np.minimum(logs, 0))
            return near | (highest >= info.maxexp) | (lowest <= info.minexp)
        power = 2 if trial.function in ("l2", "sum square") else getattr(desc, "p", 1)
        largest = _totals(trial, np.nan_to_num(magnitudes) ** power) > float(info.max)
    return near | (largest & ~np.isfinite(result))


def _masks_of_indices(trial: Trial, result: Array, right: Array) -> list[_Mask]:
    wrong = result != right
    if not wrong.any():
        return []
    x = trial.inputs["x"]
    inside, value, best = _elements_at(trial, result, right)
    with np.errstate(invalid="ignore"):
        ties = inside & (value == best)
    nan, zeros = np.zeros(wrong.shape, bool), np.zeros(wrong.shape, bool)
    if x.dtype.kind == "f":
        nan = inside & ~ties & _depends(trial, np.isnan(x))
        zeros = ties & (value == 0) & (np.signbit(value) != np.signbit(best))
        if isinstance(trial.desc, dmlgpu.TopK1OperatorDesc):  # -0 before or after +0 moves other zeros
            zeros = ties & (value == 0) & _has_both_zeros(trial)
    return [
        ("value", wrong & ~ties & ~nan, False),
        ("NaN", wrong & nan, False),
        ("tie", wrong & ties & ~zeros, False),
        ("sign of zero", wrong & zeros, True),
    ]


def _is_product(trial: Trial) -> bool:
    return trial.function in ("multiply", "cumulative product")


def _depends(trial: Trial, mask: Array) -> Array:
    """For each output whether it may depend on one of the input's elements in a mask."""
    if isinstance(trial.desc, dmlgpu.MaxPooling2OperatorDesc | dmlgpu.RoiPoolingOperatorDesc):
        inputs = {**trial.inputs, "x": mask.astype(trial.inputs["x"].dtype)}
        return np.asarray(dmlgpu.reference(trial.desc, *arguments(trial.desc, inputs))[0] > 0)
    return np.asarray(_totals(trial, mask) > 0)


def _has_both_zeros(trial: Trial) -> Array:
    """For each output whether it may depend on zeros of both signs."""
    x = trial.inputs["x"]
    return _depends(trial, (x == 0) & np.signbit(x)) & _depends(trial, (x == 0) & ~np.signbit(x))


def _totals(trial: Trial, x: Array) -> Array:
    """For each output the sum of the elements that it depends on, and perhaps of others."""
    assert trial.expected is not None
    desc, sizes = trial.desc, trial.expected[0].shape
    totals = x.sum()
    if isinstance(desc, ArgOperatorDesc | dmlgpu.ReduceOperatorDesc | ExtremumOperatorDesc):
        totals = rows_of(x, desc.axes).sum(-1).reshape(sizes)
    elif isinstance(desc, dmlgpu.TopK1OperatorDesc | CumulativeOperatorDesc):
        totals = x.sum(desc.axis, keepdims=True)
    return np.broadcast_to(totals, sizes)


def _elements_at(trial: Trial, indices: Array, right: Array) -> tuple[Array, Array, Array]:
    """Whether each index is of an element that its output depends on; these elements; and the right elements."""
    desc, x = trial.desc, trial.inputs["x"]
    if isinstance(desc, dmlgpu.TopK1OperatorDesc):
        inside = (indices >= 0) & (indices < x.shape[desc.axis])
        value, best = (np.take_along_axis(x, np.where(inside, y, 0), desc.axis) for y in (indices, right))
    elif isinstance(desc, dmlgpu.MaxPooling2OperatorDesc):
        inside = (indices >= 0) & (indices < x.size)
        places = np.unravel_index(np.where(inside, indices, 0), x.shape)
        windows: tuple[Array, ...] = np.indices(indices.shape, sparse=True)
        inside &= (places[0] == windows[0]) & (places[1] == windows[1])
        for d, line in enumerate(desc.windows, 2):
            offset = places[d] - (windows[d] * line.stride - line.start_padding)
            inside &= (offset >= 0) & (offset < line.extent) & (offset % line.dilation == 0)
        value, best = (x.reshape(-1)[np.where(inside, y, 0)] for y in (indices, right))
    else:
        rows = rows_of(x, desc.axes)  # type: ignore[union-attr]
        inside = (indices >= 0) & (indices < rows.shape[-1])
        at = [np.where(inside, y, 0).reshape(*rows.shape[:-1], 1) for y in (indices, right)]
        value, best = (np.take_along_axis(rows, y, -1).reshape(indices.shape) for y in at)
    return inside, value, best
