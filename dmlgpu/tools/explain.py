"""Operators as a person types them, and their plans as a person reads them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dmlgpu.descriptors.dtypes import AxisDirection, DataType, ReduceFunction, listed
from dmlgpu.descriptors.operator import OperatorDesc
from dmlgpu.descriptors.pooling import WINDOW_FIELDS
from dmlgpu.descriptors.reduction import INDEX_TYPES
from dmlgpu.descriptors.tensor import TensorDesc
from dmlgpu.errors import DescriptorError, shown
from dmlgpu.lowering.plan import Dispatch, Plan
from dmlgpu.lowering.problem import Role
from dmlgpu.tools.registry import DESCRIPTORS, OPERATORS, Operator

REQUIRED = inspect.Parameter.empty
_DATA_TYPES = {data_type.name: data_type for data_type in DataType if data_type.bits >= 8}
_FLAGS = {"TRUE": True, "FALSE": False}
# Arguments that are no integers, and the words that each takes.
_WORDS: dict[str, Mapping[str, Any]] = {
    "axis_direction": AxisDirection.__members__,
    "function": ReduceFunction.__members__,
    "indices_data_type": {data_type.name: data_type for data_type in INDEX_TYPES},
    "output_data_type": _DATA_TYPES,
    "include_padding": _FLAGS,
    "keepdims": _FLAGS,
    "output_indices": _FLAGS,
}
# Arguments that are one number.
_NUMBERS = ("p",)
# What `of` takes as **window.
_WINDOW = dict.fromkeys(WINDOW_FIELDS) | {"include_padding": False, "p": 2}
_HOW = "the function of REDUCE is an argument, as in: reduce float32 8,100 function=SUM axes=1"


def parse(name: str, data_type: str, sizes: str, arguments: Sequence[str]) -> OperatorDesc:
    """An operator.

    Args:
        name: DirectML's, in any case; REDUCE may have its function behind it.
        data_type: of the input, DirectML's name in any case.
        sizes: of the input, between commas.
        arguments: of the descriptor's `of`, as in `axes=0,1`, `strides=2,2` or `axis_direction=DECREASING`; for the
            input's layout `input_strides=1,4096`.

    Raises:
        DescriptorError: there is no such operator, type or argument, or its value is not allowed.
    """
    kind, _, function = name.upper().partition(" ")
    if kind not in DESCRIPTORS:
        raise DescriptorError(f"operator: {shown(name)} is not allowed; allowed are {', '.join(DESCRIPTORS)}; {_HOW}")
    if data_type.upper() in ReduceFunction.__members__:
        raise DescriptorError(f"type: {shown(data_type)} is not allowed; {_HOW}")
    # By their functions; operators other than REDUCE have none.
    rows = {row.options.get("function", (None,))[0]: row for row in OPERATORS if row.desc is DESCRIPTORS[kind]}
    behind = [f"function={function}"] if function else []
    given = named(name, [*behind, *arguments], _parameters(next(iter(rows.values()))))
    row = rows[given.get("function")]
    types = {each.name: each for each in row.data_types}
    if data_type.upper() not in types:
        raise DescriptorError(
            f"type: {shown(data_type)} is not allowed; allowed are {listed(row.data_types, str.lower)}"
        )
    given = {key: value if key in _NUMBERS else _sequence(value) for key, value in given.items()}
    strides = given.pop("input_strides", None)
    source = TensorDesc(types[data_type.upper()], _sequence(_value("sizes", "sizes", sizes, REQUIRED)), strides)
    desc: OperatorDesc = row.desc.of(**{row.source_field: source}, **given)  # type: ignore[attr-defined]
    return desc


def _parameters(row: Operator) -> dict[str, Any]:
    """The arguments of an operator, and what each is where it is not given."""
    of: Callable[..., OperatorDesc] = row.desc.of  # type: ignore[attr-defined]
    found = {name: default for name, default in _WINDOW.items() if name in row.fields}
    found |= {name: each.default for name, each in inspect.signature(of).parameters.items()}
    others = {"window", "output_data_type", "indices_data_type"} - {*row.options}
    own = {name: default for name, default in found.items() if not name.endswith("_tensor") and name not in others}
    return own | {"input_strides": None}


def named(name: str, arguments: Sequence[str], allowed: Mapping[str, Any]) -> dict[str, Any]:
    """What is written NAME=VALUE, for an operator or a function of this name.

    Args:
        name: what errors call it.
        arguments: as they are written.
        allowed: the names that it knows, and what each is where it is not given, or REQUIRED.

    Raises:
        DescriptorError: an argument is not written so, is unknown, is given twice or missing, or its value is not
            allowed.
    """
    given: dict[str, Any] = {}
    for argument in arguments:
        key, equals, text = argument.partition("=")
        if not equals:
            raise DescriptorError(f"{name}: {shown(argument)} is not allowed; arguments are written NAME=VALUE")
        if key not in allowed:
            raise DescriptorError(f"{name}: {shown(argument)} is not allowed; arguments are {', '.join(allowed)}")
        if key in given:
            raise DescriptorError(f"{name}.{key}: {shown(text)} is not allowed, as {key} is given twice")
        given[key] = _value(f"{name}.{key}", key, text, allowed[key])
    for key, default in allowed.items():
        if default is REQUIRED and key not in given:
            raise DescriptorError(f"{name}.{key}: it is required; allowed are {_allowed(key, default)}")
    return given


def _value(field: str, key: str, text: str, default: Any) -> Any:
    """What is written for an argument: a word that it takes, or integers; None where that is its default."""
    word, words = text.strip().upper(), _WORDS.get(key)
    if word == "NONE" and default is None:
        return None
    if words is not None and word in words:
        return words[word]
    if words is None:
        try:
            numbers = tuple(int(part) for part in text.split(","))
        except ValueError:
            pass
        else:
            return numbers if len(numbers) > 1 else numbers[0]
    raise DescriptorError(f"{field}: {shown(text)} is not allowed; allowed are {_allowed(key, default)}")


def _allowed(key: str, default: Any) -> str:
    """What may be written for an argument."""
    integers = ["integers"] if key in _NUMBERS else ["integers between commas"]
    return ", ".join([*_WORDS.get(key, integers), *["None"] * (default is None)])


def _sequence(value: Any) -> Any:
    """Sizes and axes are sequences, also of one."""
    return (value,) if type(value) is int else value


def rows(plan: Plan) -> Iterator[tuple[str, str, str, str]]:
    """Of every dispatch of a plan the outputs, the shader, what it reads and what it writes."""
    for dispatch in plan.dispatches:
        first, last = dispatch.outputs[0], dispatch.outputs[-1]
        outputs = f"{first:,}" if first == last else f"{first:,} to {last:,}"
        yield outputs, dispatch.shader.module, _bound(plan, dispatch, False), _bound(plan, dispatch, True)


def _bound(plan: Plan, dispatch: Dispatch, written: bool) -> str:
    """The bindings that are written, or all others, by the names of their tensors."""
    names = {
        Role.INPUT: plan.desc.input_fields,
        Role.OUTPUT: plan.desc.output_fields,
        Role.INTERMEDIATE: tuple(f"intermediate {number}" for number in range(len(plan.intermediates))),
        Role.PARTIALS: tuple(f"partials {number}" for number in range(len(plan.partials))),
        Role.RECORDS: ("records",),
    }
    tensors = {Role.INPUT: plan.desc.inputs, Role.OUTPUT: plan.desc.outputs, Role.INTERMEDIATE: plan.intermediates}
    found = []
    for binding in dispatch.bindings:
        if binding.written is written:
            name = names[binding.role][binding.tensor]
            several = binding.role in tensors and len(plan.limits.segments(tensors[binding.role][binding.tensor])) > 1
            found.append(f"{name} segment {binding.segment}" if several else name)
    return ", ".join(dict.fromkeys(found))
