"""Parses operators that users type, and formats plans as the rows of a table."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dmlgpu.call import MODES, POSITION_TYPES
from dmlgpu.descriptors.dtypes import DataType, listed
from dmlgpu.descriptors.operator import SELECTED_TYPES, OperatorDesc
from dmlgpu.descriptors.pooling import WINDOW_FIELDS
from dmlgpu.descriptors.reduction import INDEX_TYPES, AxisDirection, ReduceFunction
from dmlgpu.descriptors.tensor import TensorDesc
from dmlgpu.errors import DescriptorError, shown
from dmlgpu.lowering.plan import Dispatch, Plan
from dmlgpu.lowering.problem import Role
from dmlgpu.registry import DESCRIPTORS, OPERATORS, Operator
from dmlgpu.sources import write_instead

_REQUIRED = inspect.Parameter.empty
_FLAGS = {"TRUE": True, "FALSE": False}
# Arguments whose values are words instead of integers, and their words.
_WORDS: dict[str, Mapping[str, Any]] = {
    "axis_direction": AxisDirection.__members__,
    "dtype": {data_type.name: data_type for data_type in INDEX_TYPES},
    "function": ReduceFunction.__members__,
    "indices_data_type": {data_type.name: data_type for data_type in POSITION_TYPES},
    "output_data_type": {data_type.name: data_type for data_type in INDEX_TYPES},
    "exact": _FLAGS,
    "has_exclusive_product": _FLAGS,
    "has_exclusive_sum": _FLAGS,
    "include_padding": _FLAGS,
    "keepdims": _FLAGS,
    "largest": _FLAGS,
    "mode": {mode.upper(): mode for mode in MODES},
    "output_indices": _FLAGS,
    "per_channel": _FLAGS,
    "sorted": _FLAGS,
}
# Types in which sums and means are computed; `dtype` of other functions is the type of indices.
_SUMMED = {data_type.name: data_type for data_type in SELECTED_TYPES if data_type is not DataType.FLOAT64}
_DTYPES = {
    "mean": {name: _SUMMED[name] for name in ("FLOAT32", "FLOAT16")},
    **dict.fromkeys(("cumulative_prod", "cumulative_sum", "prod", "sum"), _SUMMED),
}
# Arguments whose value is one number.
_NUMBERS = "p", "k", "roi_count", "spatial_scale"
# The arguments of `of` in **window, and their defaults.
_WINDOW = dict.fromkeys(WINDOW_FIELDS) | {"include_padding": False, "p": 2}
_REDUCE_ADVICE = "it is an argument of REDUCE, as in: reduce float32 8,100 function={} axis=1"


@dataclass(frozen=True)
class Argument:
    """An argument for users: one of its words, or integers if it has no words."""

    name: str
    default: Any = _REQUIRED
    words: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, parameter: inspect.Parameter, function: str) -> Argument:
        """The argument for a parameter of `function`, a function of arrays."""
        words = _DTYPES.get(function) if parameter.name == "dtype" else None
        return cls(parameter.name, parameter.default, words or _WORDS.get(parameter.name))

    def value(self, field: str, text: str) -> Any:
        """The value of a text; "None" is allowed if None is the default.

        Raises:
            DescriptorError: the text is not allowed; the message calls the argument `field`.
        """
        word = text.strip().upper()
        if word == "NONE" and self.default is None:
            return None
        if self.words is not None and word in self.words:
            return self.words[word]
        if self.words is None:
            try:
                numbers = tuple(self._entry(part) for part in text.split(","))
            except ValueError:
                pass
            else:
                return numbers if len(numbers) > 1 or isinstance(numbers[0], tuple) else numbers[0]
        raise DescriptorError(f"{field}: {shown(text)} is not allowed; allowed are {self}")

    def _entry(self, text: str) -> Any:
        """An integer, or a scale; for padding also a pair, written BEFORE:AFTER."""
        if self.name == "spatial_scale":
            return float(text)
        before, colon, after = text.partition(":" if self.name == "padding" else "\0")
        return (int(before), int(after)) if colon else int(text)

    def __str__(self) -> str:
        numbers = ["integers" if self.name in _NUMBERS else "integers between commas"]
        numbers[0] = "numbers" if self.name == "spatial_scale" else numbers[0]
        numbers[0] += ", or pairs BEFORE:AFTER" * (self.name == "padding")
        return ", ".join([*(numbers if self.words is None else self.words), *["None"] * (self.default is None)])


def parse(
    name: str, data_type: str | None = None, sizes: str | None = None, *, arguments: Sequence[str]
) -> OperatorDesc:
    """Parses an operator.

    Args:
        name: DirectML's name, in upper or lower case; after REDUCE its function may follow, as in `REDUCE SUM`.
        data_type: the type of the input, DirectML's name in upper or lower case; None: it is missing.
        sizes: the sizes of the input, separated by commas; None: they are missing.
        arguments: arguments of the descriptor's `of`, such as `axis=0,1`, `strides=2,2` or `axis_direction=DECREASING`;
            also `input_strides=1,4096`, the strides of the input.

    Raises:
        DescriptorError: there is no such operator, type or argument, or its value is not allowed.
    """
    kind, _, function = name.upper().partition(" ")
    if kind not in DESCRIPTORS:
        member = {"MEAN": "AVERAGE", "PROD": "MULTIPLY"}.get(kind, kind)
        advice = f"allowed are {', '.join(DESCRIPTORS)}"
        if member in ReduceFunction.__members__:
            advice = _REDUCE_ADVICE.format(member)
        raise DescriptorError(f"operator: {shown(name)} is not allowed; {advice}")
    if data_type is not None and data_type.upper() in ReduceFunction.__members__:
        raise DescriptorError(f"type: {shown(data_type)} is not allowed; {_REDUCE_ADVICE.format(data_type.upper())}")
    if data_type is None or sizes is None:
        raise DescriptorError(f"{name}: give its type and sizes, as in: argmax float32 4096,1024 axis=1")
    # By function of REDUCE; other operators have a single row, whose key is None.
    rows = {row.options.get("function", (None,))[0]: row for row in OPERATORS if row.desc is DESCRIPTORS[kind]}
    arguments = [f"function={function}", *arguments] if function else arguments
    values = named(name, arguments, _parameters(next(iter(rows.values()))))
    row = rows[values.get("function")]
    types = {member.name: member for member in row.data_types}
    if data_type.upper() not in types:
        raise DescriptorError(
            f"type: {shown(data_type)} is not allowed; allowed are {listed(row.data_types, str.lower)}"
        )
    plain = *_NUMBERS, "axis", "pooled_size"
    values = {key: value if key in plain else _sequence(value) for key, value in values.items()}
    strides = values.pop("input_strides", None)
    source = TensorDesc(types[data_type.upper()], _sequence(Argument("sizes").value("sizes", sizes)), strides)
    desc: OperatorDesc = row.desc.of(**{row.source_field: source}, **values)  # type: ignore[attr-defined]
    return desc


def _parameters(row: Operator) -> list[Argument]:
    """The arguments that users may pass for an operator."""
    of: Callable[..., OperatorDesc] = row.desc.of  # type: ignore[attr-defined]
    defaults = {name: default for name, default in _WINDOW.items() if name in row.fields}
    defaults |= {name: p.default for name, p in inspect.signature(of).parameters.items()} | {"input_strides": None}
    others = {"window", "output_data_type", "indices_data_type"} - {*row.options}
    names = [name for name in defaults if not name.endswith("_tensor") and name not in others]
    types = {
        name: {member.name: member for member in values if member is not None}
        for name, values in row.options.items()
        if name.endswith("_data_type")
    }
    words = {**_WORDS, **types}
    return [Argument(name, defaults[name], words.get(name)) for name in names]


def named(name: str, arguments: Sequence[str], allowed: Iterable[Argument]) -> dict[str, Any]:
    """Parses the arguments of an operator or a function, written NAME=VALUE.

    Args:
        name: the operator or function, for error messages.
        arguments: the texts.
        allowed: the arguments of the operator or function.

    Raises:
        DescriptorError: an argument is not written NAME=VALUE, is unknown, occurs twice or is missing, or its value is
            not allowed.
    """
    values: dict[str, Any] = {}
    known = {argument.name: argument for argument in allowed}
    for argument in arguments:
        key, equals, text = argument.partition("=")
        if not equals:
            raise DescriptorError(f"{name}: {shown(argument)} is not allowed; arguments are written NAME=VALUE")
        if key not in known:
            raise DescriptorError(f"{name}: {shown(argument)} is not allowed; {write_instead(key, known)}")
        if key in values:
            raise DescriptorError(f"{name}.{key}: {shown(text)} is not allowed, because {key} is given twice")
        values[key] = known[key].value(f"{name}.{key}", text)
    for key, parameter in known.items():
        if parameter.default is _REQUIRED and key not in values:
            raise DescriptorError(f"{name}.{key}: required; allowed are {parameter}")
    return values


def _sequence(value: Any) -> Any:
    """Turns a single integer into a sequence, as sizes and axes are."""
    return (value,) if type(value) is int else value


def rows(plan: Plan) -> Iterator[tuple[str, str, str, str]]:
    """For each dispatch of a plan its outputs, its shader, and the tensors that it reads and writes."""
    for dispatch in plan.dispatches:
        first, last = dispatch.outputs[0], dispatch.outputs[-1]
        outputs = f"{first:,}" if first == last else f"{first:,} to {last:,}"
        yield outputs, dispatch.shader.module, _bound(plan, dispatch, False), _bound(plan, dispatch, True)


def _bound(plan: Plan, dispatch: Dispatch, written: bool) -> str:
    """The names of the tensors that a dispatch writes, or of those that it reads."""
    names = {
        Role.INPUT: plan.desc.input_fields,
        Role.OUTPUT: plan.desc.output_fields,
        Role.TEMPORARY: tuple(f"temporary {number}" for number in range(len(plan.temporaries))),
        Role.PARTIALS: ("partials",),
    }
    texts = []
    for binding in dispatch.bindings:
        if binding.written is written:
            name = names[binding.role][binding.tensor]
            texts.append(f"{name} segment {binding.segment}" if len(plan.segments(binding)) > 1 else name)
    return ", ".join(dict.fromkeys(texts))
