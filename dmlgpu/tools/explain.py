"""Operators as a person types them, and their plans as a person reads them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from dmlgpu.descriptors.dtypes import AxisDirection, DataType, ReduceFunction
from dmlgpu.descriptors.operator import OperatorDesc
from dmlgpu.descriptors.tensor import TensorDesc
from dmlgpu.errors import DescriptorError, shown
from dmlgpu.lowering.plan import Dispatch, Plan
from dmlgpu.lowering.problem import Role
from dmlgpu.tools.registry import OPERATORS

# What an argument may be, besides numbers, sequences of them and None.
_NAMES: dict[str, Any] = {member.name: member for kind in (DataType, AxisDirection, ReduceFunction) for member in kind}
# Arguments that are one number.
_NUMBERS = ("p",)


def parse(name: str, data_type: str, sizes: str, arguments: Sequence[str]) -> OperatorDesc:
    """An operator.

    Args:
        name: one of the registry, in any case.
        data_type: of the input, in any case.
        sizes: of the input, between commas.
        arguments: of the descriptor's `of`, as in `axes=0,1`, `strides=2,2` or `axis_direction=DECREASING`; for the
            input's layout `input_strides=1,4096`.

    Raises:
        DescriptorError: there is no such operator, type or argument, or its value is not allowed.
    """
    row = next((row for row in OPERATORS if row.name == name.upper()), None)
    if row is None:
        allowed = ", ".join(row.name for row in OPERATORS)
        raise DescriptorError(f"operator: {shown(name)} is not allowed; allowed are {allowed}")
    given = {key: values[0] for key, values in row.options.items() if key == "function"}
    given |= {key: value if key in _NUMBERS else _sequence(value) for key, value in named(name, arguments).items()}
    strides = given.pop("input_strides", None)
    member = _NAMES.get(data_type.upper())
    sizes_given = _sequence(_value("sizes", sizes))
    source = TensorDesc(DataType.of(data_type.lower() if member is None else member), sizes_given, strides)
    try:
        desc: OperatorDesc = row.desc.of(**{row.source_field: source}, **given)  # type: ignore[attr-defined]
    except TypeError as error:
        raise DescriptorError(f"{name}: {error}") from None
    return desc


def named(name: str, arguments: Sequence[str]) -> dict[str, Any]:
    """What is written NAME=VALUE, for an operator or a function of this name.

    Raises:
        DescriptorError: an argument is not written so, or its value is none.
    """
    given = {}
    for argument in arguments:
        key, equals, text = argument.partition("=")
        if not equals:
            raise DescriptorError(f"{name}: {argument} is not allowed; arguments are written NAME=VALUE")
        given[key] = _value(f"{name}.{key}", text)
    return given


def _value(field: str, text: str) -> Any:
    if text.upper() in _NAMES:
        return _NAMES[text.upper()]
    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise DescriptorError(
            f"{field}: {shown(text)} is not allowed; allowed are numbers between commas, None and {', '.join(_NAMES)}"
        ) from None
    return value


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
