"""A case as a call of a library, with the oracle's result: what kinds of values it has, and how a result differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dmlgpu import (
    AveragePooling1OperatorDesc,
    AveragePoolingGradOperatorDesc,
    AxisDirection,
    DataType,
    DescriptorError,
    ExecutionFlags,
    LpPooling1OperatorDesc,
    MaxPooling2OperatorDesc,
    MaxPoolingGradOperatorDesc,
    OperatorDesc,
    ReduceFunction,
    ReduceOperatorDesc,
    TensorDesc,
    TopK1OperatorDesc,
    reference,
)
from dmlgpu.comparison import different
from dmlgpu.descriptors.cumulative import CumulativeOperatorDesc, CumulativeProductOperatorDesc
from dmlgpu.descriptors.reduction import ArgmaxOperatorDesc, ArgOperatorDesc, ExtremumOperatorDesc
from dmlgpu.descriptors.tensor import Array, bits
from dmlgpu.descriptors.window import Window as Dimension
from dmlgpu.reference.bounds import U, bounds
from dmlgpu.reference.reduction import rows_of
from dmlgpu.testing.cases import Case, Undescribed
from dmlgpu.testing.isolated import buffer_of
from dmlgpu.testing.libraries import Library, LibraryError, Window

# More elements than a library should have to allocate for padding.
_MOST_PADDED = 1 << 24
KINDS = (
    *("ties", "NaN", "-0", "subnormals", "infinities", "empty", "ceiling mode", "padding", "dilation"),
    *("large indices", "non-contiguous", "none of these"),
)
SAME, REFUSED, CRASHED = "same", "refused", "crashed"
# From the worst on: a case with several has the first.
DIFFERENCES = ("value", "NaN", "tie", "sign of zero", "rounding")


class Outcome(NamedTuple):
    """How a library's result compares with the oracle's."""

    word: str
    """SAME, REFUSED, CRASHED, or one of DIFFERENCES."""
    text: str = ""
    """What differs, or what the library said."""
    is_open: bool = False
    """Whether no document can make either of two zeros right."""


@dataclass(frozen=True)
class Trial:
    """A call of a library."""

    id: str
    function: str
    desc: OperatorDesc | None
    """Canonical; None: there is none."""
    inputs: Mapping[str, Array]
    expected: tuple[Array, ...] | None
    """None: there is no result, and an exception is right. Empty: any result is right."""
    call: Undescribed | None = None
    """If there is no descriptor."""

    def program(self, library: Library) -> str | None:
        """The program that makes the call; None: the library cannot express it.

        Raises:
            LibraryError: the description of the library raised an exception.
        """
        x = self.inputs["x"]
        try:
            text = _undescribed(self.call, library, x) if self.call else _described(self.desc, library, x)
        except Exception as error:
            name = type(library).__name__
            raise LibraryError(f"{name}, of {self.id}: {type(error).__name__}: {error}") from error
        statements = "\n".join(f"{name} = {library.from_numpy.format(name)}" for name in self.inputs)
        return text and f"{statements}\n{text}"

    @property
    def kinds(self) -> tuple[str, ...]:
        """Which of KINDS its inputs, its window and its result are."""
        return tuple(_kinds(self)) or (KINDS[-1],)

    def judge(self, results: list[Array], library: Library) -> Outcome:
        """Compares a library's results with the expected ones."""
        if self.expected is None:
            return Outcome("value", f"{_text(results)} instead of an exception")
        if not self.expected:
            return Outcome(SAME)
        if len(results) != len(self.expected):
            return Outcome("value", f"{len(results)} results instead of {len(self.expected)}")
        outcomes = [self._compared(i, result, library) for i, result in enumerate(results)]
        return min(outcomes, key=lambda outcome: (*DIFFERENCES, SAME).index(outcome.word))

    def _compared(self, i: int, result: Array, library: Library) -> Outcome:
        assert self.expected is not None
        right = self.expected[i]
        if [n for n in result.shape if n != 1] != [n for n in right.shape if n != 1]:
            return Outcome("value", f"a result of {result.shape} instead of {right.shape}")
        is_index = self.desc is not None and (isinstance(self.desc, ArgOperatorDesc) or i == 1)
        result = result.reshape(right.shape)
        if self.desc is None or right.size == 0:
            return Outcome(SAME)
        if is_index:
            if result.dtype.kind not in "iu":
                return Outcome("value", f"indices of {result.dtype}")
            if library.plane_indices and isinstance(self.desc, MaxPooling2OperatorDesc):
                plane = np.prod(right.shape[:2], dtype=int)
                area = int(np.prod(self.desc.input_tensor.sizes[2:]))
                result = result + np.arange(plane).reshape(*right.shape[:2], *(1,) * (right.ndim - 2)) * area
            return self._of_indices(result, right)
        if result.dtype != right.dtype:
            return Outcome("value", f"a result of {result.dtype} instead of {right.dtype}")
        return self._of_values(i, result, right)

    def _of_values(self, i: int, result: Array, right: Array) -> Outcome:
        assert self.desc is not None
        with np.errstate(all="ignore"):
            bound = bounds(self.desc, *self._arguments())[i]
        wrong = different(result, right, bound)
        if right.dtype.kind != "f":
            beyond = self._exceeds(right)
            fits = _first("value", wrong & ~beyond, result, right)
            return fits if fits.word != SAME else _first("value", wrong & beyond, result, right, is_open=True)
        nan, x = np.isnan(result) | np.isnan(right), self.inputs["x"]
        wrong &= ~(np.isnan(result) & np.isnan(right))
        zeros = wrong & (result == 0) & (right == 0)
        if isinstance(self.desc, TopK1OperatorDesc):  # a NaN moves what is sorted
            nan |= _over(self.desc, np.isnan(x), right.shape)
        rounding = np.zeros(wrong.shape, bool)
        if bound is not None:
            rounding = wrong & self._rounds(result, right, bound)
        outcome = _first("NaN", wrong & nan & ~rounding, result, right)
        wrong &= (~nan | rounding) & ~zeros
        if (wrong & ~rounding).any():
            if isinstance(self.desc, MaxPoolingGradOperatorDesc):
                return _first(self._of_gradient(result, right), wrong & ~rounding, result, right)
            return _first("value", wrong & ~rounding, result, right)
        if outcome.word != SAME:
            return outcome
        if zeros.any():
            both = self._has_both_zeros(right.shape)
            outcome = _first("sign of zero", zeros & ~both, result, right)
            return outcome if outcome.word != SAME else _first("sign of zero", zeros, result, right, is_open=True)
        return _first("rounding", rounding, result, right)

    def _exceeds(self, right: Array) -> Array:
        """Which sums or products of integers may leave the range of their type."""
        assert self.desc is not None
        if self.function in ("max", "min") or "index" in self.function or not hasattr(self.desc, "input_tensor"):
            return np.zeros(right.shape, bool)
        x = np.abs(self.inputs["x"].astype(np.float64))
        if "product" in self.function or self.function == "multiply":
            x, largest = np.log2(np.maximum(x, 1)), np.log2(float(np.iinfo(right.dtype).max))
        else:
            x, largest = x ** (2 if self.function == "sum square" else 1), float(np.iinfo(right.dtype).max)
        exceeds: Array = _total(self.desc, x, right.shape) > largest
        return exceeds & (not isinstance(self.desc, MaxPooling2OperatorDesc | TopK1OperatorDesc))

    def _of_gradient(self, result: Array, right: Array) -> str:
        """A gradient at another element of equal ones has the same sum in its plane."""
        if np.isnan(self.inputs["x"]).any() or np.isnan(self.inputs["gradient"]).any():
            return "NaN"
        axes = tuple(range(2, right.ndim))
        moved, stayed = (np.asarray(y, np.float64).sum(axes) for y in (result, right))
        return "tie" if np.allclose(moved, stayed, rtol=1e-3) else "value"

    def _rounds(self, result: Array, right: Array, bound: Array) -> Array:
        """Which values plain sums or products in the result's own type may have, in any order."""
        assert self.desc is not None
        terms = max(4, -(-self.inputs["x"].size // right.size))
        if isinstance(self.desc, CumulativeOperatorDesc):
            terms = right.shape[self.desc.axis]
        if isinstance(self.desc, AveragePooling1OperatorDesc | LpPooling1OperatorDesc):
            terms = int(np.prod(self.desc.window_size)) * getattr(self.desc, "p", 1)
        info = np.finfo(right.dtype)
        # Where a partial result leaves the range of the type, the order of terms decides what follows.
        with np.errstate(invalid="ignore"):  # signalling NaN
            x = np.abs(self._arguments()[0].astype(np.float64))
        usual = np.isfinite(x) & (x > 0)
        with np.errstate(all="ignore"):
            near = np.abs(result.astype(np.float64) - right) <= bound * terms * max(1, float(info.eps) / U)
            logs = np.where(usual, np.log2(np.where(usual, x, 1)), 0)
            highest, lowest = (_total(self.desc, y, right.shape) for y in (np.maximum(logs, 0), np.minimum(logs, 0)))
            power = 2 if self.function in ("l2", "sum square") else getattr(self.desc, "p", 1)
            largest = _total(self.desc, np.where(usual, x, 0) ** power, right.shape) > float(info.max)
        if "product" in self.function or self.function == "multiply":
            return near | (highest >= info.maxexp) | (lowest <= info.minexp)
        return near | (largest & ~np.isfinite(result))

    def _of_indices(self, result: Array, right: Array) -> Outcome:
        assert self.desc is not None
        x, numbers = self.inputs["x"], result.astype(np.int64)
        if not (wrong := numbers != right.astype(np.int64)).any():
            return Outcome(SAME)
        inside, value, best = _elements_at(self.desc, x, numbers, right.astype(np.int64))
        with np.errstate(invalid="ignore"):
            ties = inside & (value == best)
        nan = np.zeros(wrong.shape, bool)
        zeros = np.zeros(wrong.shape, bool)
        if x.dtype.kind == "f":
            nan = inside & ~ties & _over(self.desc, np.isnan(x), right.shape)
            zeros = ties & (value == 0) & (np.signbit(value) != np.signbit(best))
            if isinstance(self.desc, TopK1OperatorDesc):  # -0 before or after +0 moves other zeros
                zeros = ties & (value == 0) & self._has_both_zeros(right.shape)
        for word, where in (
            ("value", wrong & ~ties & ~nan),
            ("NaN", wrong & nan),
            ("tie", wrong & ties & ~zeros & ~nan),
            ("sign of zero", wrong & zeros & ~nan),
        ):
            if where.any():
                return _first(word, where, result, right, is_open=word == "sign of zero")
        return Outcome(SAME)

    def _has_both_zeros(self, sizes: tuple[int, ...]) -> Array:
        """Which outputs depend on zeros of both signs."""
        assert self.desc is not None
        x = self.inputs["x"]
        return _over(self.desc, (x == 0) & np.signbit(x), sizes) & _over(self.desc, (x == 0) & ~np.signbit(x), sizes)

    def flushed(self, results: list[Array], library: Library) -> bool:
        """Whether the results are right if subnormal floats count as 0."""
        x = self.inputs["x"]
        if self.desc is None or not _subnormal(x).any():
            return False
        inputs = {name: _flat(y) for name, y in self.inputs.items()}
        flat = [_flat(y) for y in results]
        return trial_of(self.id, self.desc, inputs).judge(flat, library).word in (SAME, "sign of zero", "tie")

    def _arguments(self) -> tuple[Array, ...]:
        return _arguments(self.desc, self.inputs)


def trials(
    cases: list[Case], others: list[Undescribed], is_wanted: Callable[[str], bool] = lambda name: True
) -> Iterator[Trial]:
    """The cases of functions that libraries have, if `is_wanted` is true of their function and name."""
    for case in cases:
        desc = case.desc.canonical()
        function = _function(desc)
        if not function or case.flags is not ExecutionFlags.NONE or not _is_allocatable(desc):
            continue
        if is_wanted(f"{function} / {case.id}"):
            inputs = dict(zip(("x", "gradient"), case.inputs(), strict=False))
            if isinstance(desc, AveragePoolingGradOperatorDesc):
                x = np.zeros(desc.output_gradient_tensor.sizes, inputs["x"].dtype)
                inputs = {"x": x, "gradient": inputs["x"]}
            yield trial_of(case.id, desc, inputs)
    for other in others:
        function = other.function.replace("_", " ")
        if is_wanted(f"{function} / {other.id}"):
            x = np.zeros(other.sizes, other.data_type.numpy)
            expected = tuple(np.zeros(sizes, x.dtype) for sizes in other.expected or ())
            yield Trial(other.id, function, None, {"x": x}, None if other.expected is None else expected, other)


def trial_of(id: str, desc: OperatorDesc, inputs: Mapping[str, Array]) -> Trial:
    """The trial of a canonical descriptor on inputs of its sizes."""
    return Trial(id, _function(desc), desc, inputs, reference(desc, *_arguments(desc, inputs)))


def _arguments(desc: OperatorDesc | None, inputs: Mapping[str, Array]) -> tuple[Array, ...]:
    return (inputs["gradient"],) if isinstance(desc, AveragePoolingGradOperatorDesc) else tuple(inputs.values())


def _is_allocatable(desc: OperatorDesc) -> bool:
    windows = getattr(desc, "windows", ())
    return bool(np.prod([float(window.padded) for window in windows]) <= _MOST_PADDED)


def _subnormal(x: Array) -> Array:
    if x.dtype.kind != "f":
        return np.zeros(x.shape, bool)
    mask: Array = (x != 0) & (np.abs(x) < np.finfo(x.dtype).tiny)
    return mask


def _flat(x: Array) -> Array:
    """The elements, with zeros in the place of subnormal floats."""
    return np.where(_subnormal(x), np.copysign(x.dtype.type(0), x), x) if x.dtype.kind == "f" else x


def _first(word: str, wrong: Array, result: Array, right: Array, *, is_open: bool = False) -> Outcome:
    """The outcome with the first of the elements that are wrong; SAME if none is."""
    if not wrong.any():
        return Outcome(SAME)
    at = tuple(int(i) for i in np.unravel_index(int(wrong.argmax()), wrong.shape))
    return Outcome(word, f"{_number(result[at])} instead of {_number(right[at])} at {at}", is_open)


def _number(value: Any) -> str:
    return repr(value.item())


def _text(results: list[Array]) -> str:
    return ", ".join(f"a result of {result.shape}" for result in results) or "no result"


def _function(desc: OperatorDesc) -> str:
    """The name of a function that libraries have; empty if few have one."""
    if isinstance(desc, ArgOperatorDesc):
        name = "argmax" if isinstance(desc, ArgmaxOperatorDesc) else "argmin"
        return name if desc.axis_direction is AxisDirection.INCREASING else f"{name}, last"
    if isinstance(desc, ReduceOperatorDesc):
        return desc.function.name.lower().replace("_", " ")
    if isinstance(desc, ExtremumOperatorDesc):
        return f"{desc.function.name.lower()} with index"
    if isinstance(desc, TopK1OperatorDesc):
        return "top-k" if desc.axis_direction is AxisDirection.DECREASING else "top-k, least"
    if isinstance(desc, CumulativeOperatorDesc):
        return f"cumulative {'product' if isinstance(desc, CumulativeProductOperatorDesc) else 'sum'}"
    if isinstance(desc, MaxPooling2OperatorDesc):
        return "max pooling with indices" if desc.output_indices_tensor else "max pooling"
    if isinstance(desc, MaxPoolingGradOperatorDesc):
        return "" if desc.indices_tensor else "max pooling gradient"
    names: dict[type[OperatorDesc], str] = {
        AveragePooling1OperatorDesc: "average pooling",
        AveragePoolingGradOperatorDesc: "average pooling gradient",
        LpPooling1OperatorDesc: "lp pooling",
    }
    return names.get(type(desc), "")


def _described(desc: OperatorDesc | None, library: Library, x: Array) -> str | None:
    """The text of a descriptor's call."""
    if isinstance(desc, ArgOperatorDesc):
        name = "argmax" if isinstance(desc, ArgmaxOperatorDesc) else "argmin"
        return library.reduce(name, x, desc.axes, last=desc.axis_direction is AxisDirection.DECREASING)
    if isinstance(desc, ReduceOperatorDesc):
        return library.reduce(desc.function.name.lower(), x, desc.axes, last=False)
    if isinstance(desc, ExtremumOperatorDesc):
        return library.reduce(f"{desc.function.name.lower()}_with_index", x, desc.axes, last=False)
    if isinstance(desc, TopK1OperatorDesc):
        return library.top_k(x, desc.k, desc.axis, largest=desc.axis_direction is AxisDirection.DECREASING)
    if isinstance(desc, CumulativeOperatorDesc):
        name = "product" if isinstance(desc, CumulativeProductOperatorDesc) else "sum"
        reverse = desc.axis_direction is AxisDirection.DECREASING
        return library.cumulative(name, x, desc.axis, reverse=reverse, exclusive=desc.is_exclusive)
    window = _window(desc)
    if window is None:
        return None
    if isinstance(desc, MaxPoolingGradOperatorDesc | AveragePoolingGradOperatorDesc):
        name = "max" if isinstance(desc, MaxPoolingGradOperatorDesc) else "average"
        return library.pool_grad(name, x, window)
    if isinstance(desc, MaxPooling2OperatorDesc):
        return library.pool("max", x, window, indices=desc.output_indices_tensor is not None)
    return library.pool("lp" if isinstance(desc, LpPooling1OperatorDesc) else "average", x, window, indices=False)


def _window(desc: Any) -> Window | None:
    """The window of a pooling; None: its numbers of windows are rounded down in one dimension and up in another."""
    counts = [
        (line.output_size - line.fitting, bool((line.padded - line.extent) % line.stride)) for line in desc.windows
    ]
    ceil = any(more for more, _ in counts)
    if ceil and any(more != rest for more, rest in counts):
        return None
    options = {name: getattr(desc, name) for name in ("include_padding", "p") if hasattr(desc, name)}
    dilations = getattr(desc, "dilations", (1,) * len(desc.strides))
    return Window(desc.window_size, desc.strides, desc.start_padding, desc.end_padding, dilations, ceil, **options)


def _undescribed(call: Undescribed, library: Library, x: Array) -> str | None:
    """The text of a call that has no descriptor."""
    if call.window is None:
        return library.reduce(call.function, x, call.axes, last=False)
    window = Window(*call.window)
    if call.function == "max_pooling":
        return library.pool("max", x, window, indices=False)
    # A gradient, many times: a write outside of memory seldom ends a process at once.
    counts = [Dimension(*fields).fitting for fields in zip(x.shape[2:], *call.window, strict=True)]
    ones = np.ones((*x.shape[:2], *counts))
    gradient = f"gradient = {library.literal(str(ones.tolist()), x.dtype.name, ones.shape, None)}"
    text = library.pool_grad("max", x, window)
    return text and f"{gradient}\n[{text} for _ in range(200)][0]"


def _kinds(trial: Trial) -> Iterator[str]:
    desc, x = trial.desc, trial.inputs["x"]
    if desc is None:
        yield from ("empty",) if x.size == 0 else ("padding", "dilation")
        return
    if _has_ties(desc, x):
        yield "ties"
    if x.dtype.kind == "f":
        if np.isnan(x).any():
            yield "NaN"
        if ((x == 0) & np.signbit(x)).any():
            yield "-0"
        if _subnormal(x).any():
            yield "subnormals"
        if np.isinf(x).any():
            yield "infinities"
    windows = getattr(desc, "windows", ())
    if any(window.output_size > window.fitting for window in windows):
        yield "ceiling mode"
    if any(window.start_padding or window.end_padding for window in windows):
        yield "padding"
    if any(window.dilation > 1 for window in windows):
        yield "dilation"
    expected = trial.expected or ()
    indices = expected if isinstance(desc, ArgOperatorDesc) else expected[1:]
    if any(int(y.max()) >= 1 << 16 for y in indices):
        yield "large indices"
    if not all(y.flags.c_contiguous for y in trial.inputs.values()):
        yield "non-contiguous"


def _has_ties(desc: OperatorDesc, x: Array) -> bool:
    """Whether several elements could win an output, or follow each other in the order of TOP_K."""
    if isinstance(desc, TopK1OperatorDesc):
        rows, compared = np.sort(np.moveaxis(x, desc.axis, -1)), desc.k
        if desc.axis_direction is AxisDirection.DECREASING:
            rows = rows[..., ::-1]
        return bool((rows[..., 1 : compared + 1] == rows[..., : compared + 1][..., :-1]).any())
    if isinstance(desc, ArgOperatorDesc | ExtremumOperatorDesc):
        rows = np.sort(rows_of(x, desc.axes))
        function = getattr(desc, "function", None)
        if isinstance(desc, ArgmaxOperatorDesc) or function is ReduceFunction.MAX:
            rows = rows[..., ::-1]
        return bool((rows[..., :1] == rows[..., 1:2]).any())
    if isinstance(desc, MaxPooling2OperatorDesc | MaxPoolingGradOperatorDesc):
        # With ranks that let the first, and then the last of equal elements win.
        _, ranks = np.unique(x, return_inverse=True)
        ranks, places = ranks.reshape(-1) * x.size, np.arange(x.size)
        first, last = (_pooled(desc, y.reshape(x.shape), DataType.INT64)[1] for y in (ranks - places, ranks + places))
        return bool((first != last).any())
    return False


def _pooled(desc: Any, x: Array, data_type: DataType) -> tuple[Array, ...]:
    """The maxima of the windows of a pooling, and their indices, of another input."""
    output = getattr(desc, desc.windows_field)
    dilations = getattr(desc, "dilations", (1,) * len(desc.strides))
    pooling = MaxPooling2OperatorDesc(
        TensorDesc(data_type, x.shape), TensorDesc(data_type, output.sizes), TensorDesc(DataType.UINT64, output.sizes),
        desc.strides, desc.window_size, desc.start_padding, desc.end_padding, dilations,
    )  # fmt: skip
    return reference(pooling, x.astype(data_type.numpy))


def _over(desc: OperatorDesc, mask: Array, sizes: tuple[int, ...]) -> Array:
    """For each output whether the mask has any of the elements that it depends on."""
    if isinstance(desc, ArgOperatorDesc | ReduceOperatorDesc | ExtremumOperatorDesc):
        return rows_of(mask, desc.axes).any(-1).reshape(sizes)
    if isinstance(desc, TopK1OperatorDesc | CumulativeOperatorDesc):
        whole: Array = np.broadcast_to(mask.any(desc.axis, keepdims=True), sizes)
        return whole
    if isinstance(desc, MaxPooling2OperatorDesc):
        return _pooled(desc, mask, DataType.UINT8)[0] > 0
    return np.zeros(sizes, bool)


def _total(desc: OperatorDesc, x: Array, sizes: tuple[int, ...]) -> Array:
    """For each output the sum of the elements that it depends on, or of more."""
    if isinstance(desc, ReduceOperatorDesc):
        sums: Array = rows_of(x, desc.axes).sum(-1).reshape(sizes)
        return sums
    axis = desc.axis if isinstance(desc, CumulativeOperatorDesc) else None
    whole: Array = np.broadcast_to(x.sum(axis, keepdims=True), sizes) if axis is not None else np.full(sizes, x.sum())
    return whole


def _elements_at(desc: OperatorDesc, x: Array, indices: Array, right: Array) -> tuple[Array, Array, Array]:
    """Which indices are of elements that an output depends on; these elements, and those that are right."""
    if isinstance(desc, TopK1OperatorDesc):
        inside = (indices >= 0) & (indices < x.shape[desc.axis])
        value, best = (np.take_along_axis(x, np.where(inside, y, 0), desc.axis) for y in (indices, right))
    elif isinstance(desc, MaxPooling2OperatorDesc):
        inside = (indices >= 0) & (indices < x.size)
        flat = np.unravel_index(np.where(inside, indices, 0).ravel(), x.shape)
        places = [line.reshape(indices.shape) for line in flat]
        windows: tuple[Array, ...] = np.indices(indices.shape, sparse=True)
        inside &= (places[0] == windows[0]) & (places[1] == windows[1])
        for d, line in enumerate(desc.windows, 2):
            offset = places[d] - (windows[d] * line.stride - line.start_padding)
            inside &= (offset >= 0) & (offset < line.extent) & (offset % line.dilation == 0)
        value, best = (x.reshape(-1)[np.where(inside, y, 0)] for y in (indices, right))
    else:
        rows = rows_of(x, desc.axes)  # type: ignore[attr-defined]
        inside = (indices >= 0) & (indices < rows.shape[-1])
        at = [np.where(inside, y, 0).reshape(*rows.shape[:-1], 1) for y in (indices, right)]
        value, best = (np.take_along_axis(rows, y, -1).reshape(indices.shape) for y in at)
    return inside, value, best


def smaller(trial: Trial) -> Iterator[Trial]:
    """Trials of the same call on fewer elements, then on simpler ones."""
    desc, x = trial.desc, trial.inputs["x"]
    if desc is None:
        return
    if not x.flags.c_contiguous:
        yield from _resized(trial, np.ascontiguousarray(x))
    for axis, size in enumerate(x.shape):
        half = size // 2
        cuts = [(0, half), (half, size), (0, size - 1), (1, size)] if size > 1 else []
        for first, last in dict.fromkeys(cuts):
            yield from _resized(trial, x[(slice(None),) * axis + (slice(first, last),)])
    if x.ndim == 1 or sum(size > 1 for size in x.shape) == 1:
        axis = int(np.argmax(x.shape))
        for i in range(1, min(x.shape[axis], 12) - 1):
            yield from _resized(trial, np.delete(x, i, axis))
    yield from _simplified(trial)


def _simplified(trial: Trial) -> Iterator[Trial]:
    x = trial.inputs["x"]
    if not x.flags.c_contiguous:
        return
    if x.dtype.kind == "f":
        plain = np.where(np.isnan(x), x.dtype.type(np.nan), x)
        usual = np.isfinite(x) & (x != 0) & ~_subnormal(x)
    else:
        info = np.iinfo(x.dtype)
        plain, usual = x, (x != info.min) & (x != info.max) & (x != 0)
    _, ranks = np.unique(np.abs(plain[usual].astype(np.float64)), return_inverse=True)
    ranked = plain.copy()
    ranked[usual] = (np.sign(plain[usual].astype(np.float64)) * (ranks + 1)).astype(x.dtype)
    for y in ranked, plain:
        if (bits(y) != bits(x)).any():
            yield from _resized(trial, y)


def _resized(trial: Trial, x: Array) -> Iterator[Trial]:
    inputs = {"x": x}
    try:
        desc = _of_sizes(trial.desc, x)
    except DescriptorError:
        return
    if isinstance(desc, MaxPoolingGradOperatorDesc | AveragePoolingGradOperatorDesc):
        gradient = trial.inputs["gradient"][tuple(map(slice, desc.input_gradient_tensor.sizes))]
        if gradient.shape != desc.input_gradient_tensor.sizes:
            return
        inputs["gradient"] = np.ascontiguousarray(gradient)
    yield trial_of(trial.id, desc, inputs)


def _of_sizes(desc: Any, x: Array) -> OperatorDesc:
    """The same operator on another input."""
    source = TensorDesc.of(np.ascontiguousarray(x))
    if isinstance(desc, ArgOperatorDesc):
        resized: OperatorDesc = type(desc).of(source, desc.axes, desc.axis_direction)
    elif isinstance(desc, ReduceOperatorDesc | ExtremumOperatorDesc):
        resized = type(desc).of(desc.function, source, desc.axes)
    elif isinstance(desc, TopK1OperatorDesc):
        resized = TopK1OperatorDesc.of(source, min(desc.k, x.shape[desc.axis]), desc.axis, desc.axis_direction)
    elif isinstance(desc, CumulativeOperatorDesc):
        kind: Any = type(desc)
        resized = kind(source, source, desc.axis, desc.axis_direction, desc.is_exclusive)
    else:
        names = "window_size", "strides", "start_padding", "end_padding", "dilations", "include_padding", "p"
        window = {name: getattr(desc, name) for name in names if hasattr(desc, name)}
        if isinstance(desc, AveragePoolingGradOperatorDesc):
            pooled = AveragePooling1OperatorDesc.of(source, **window).output_tensor
            return AveragePoolingGradOperatorDesc.of(pooled, x.shape, **window)
        packed = type(desc).of(source, **window)
        if any(line.output_size > line.fitting for line in desc.windows):
            counts = [line.fitting + bool((line.padded - line.extent) % line.stride) for line in packed.windows]
            packed = type(desc).of(source, **window, output_sizes=counts)
        resized = packed
        if isinstance(packed, MaxPooling2OperatorDesc) and desc.output_indices_tensor is not None:
            indices = TensorDesc(DataType.UINT64, packed.output_tensor.sizes)
            resized = replace(packed, output_indices_tensor=indices)
    return resized


def lines(trial: Trial, library: Library, program: str) -> list[str]:
    """A program of some five lines that shows a trial with the library alone."""
    from_math = set[str]()
    statements = []
    for name, x in trial.inputs.items():
        strides = None if x.flags.c_contiguous else [stride // x.itemsize for stride in x.strides]
        buffer = x if strides is None else buffer_of(x)
        values, kind = None if _is_plain(buffer) else str(buffer.tolist()), ""
        if _has_unusual_nan(buffer):  # which a list of floats loses
            kind = f"int{8 * x.itemsize}"
            values = str(buffer.view(kind).tolist())
        from_math |= {word for word in ("inf", "nan") if values is not None and word in values}
        statements.append(f"{name} = {library.literal(values, x.dtype.name, x.shape, strides, kind)}")
    *others, expression = [line for line in program.splitlines() if line.partition(" = ")[0] not in trial.inputs]
    imports = [f"from math import {', '.join(sorted(from_math))}"] if from_math else []
    return [*library.imports.splitlines(), *imports, *statements, *others, f"print({expression})"]


def _is_plain(x: Array) -> bool:
    """Whether an array is empty, or has many zeros and nothing else."""
    return x.size == 0 or (x.size > 8 and not bits(x).any())


def _has_unusual_nan(x: Array) -> bool:
    """Whether a NaN has a sign or a payload."""
    return x.dtype.kind == "f" and bool((bits(x[np.isnan(x)]) != bits(np.array(np.nan, x.dtype))).any())
