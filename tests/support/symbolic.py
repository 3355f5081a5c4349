"""Executes compiled modules with symbols of z3 in their buffers, to find the results of a kernel for any values.

If a branch or a select depends on symbols, all its outcomes are executed. If selects are merged, one term has both
values instead. Addresses, push constants and the number of the invocation are numbers. An unknown instruction raises a
KeyError. Floats are also words: the caller defines their arithmetic.
"""

from __future__ import annotations

import functools
import itertools
import operator
import re
import struct
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import z3

from dmlgpu.lowering.plan import Dispatch
from dmlgpu.runtime import spirv


def _word(number: int) -> Any:
    return z3.BitVecVal(number, 32)


def _any() -> Any:
    """An undefined value may be any value."""
    return z3.FreshConst(z3.BitVecSort(32))


_SIGN = _word(1 << 31)
_OPERATIONS: dict[str, Callable[..., Any]] = {
    "IAdd": operator.add,
    "ISub": operator.sub,
    "IMul": operator.mul,
    "UDiv": z3.UDiv,
    "UMod": z3.URem,
    "Not": operator.invert,
    "BitwiseAnd": operator.and_,
    "BitwiseOr": operator.or_,
    "BitwiseXor": operator.xor,
    "ShiftLeftLogical": operator.lshift,
    "ShiftRightLogical": z3.LShR,
    "IEqual": operator.eq,
    "INotEqual": operator.ne,
    "ULessThan": z3.ULT,
    "UGreaterThan": z3.UGT,
    "UGreaterThanEqual": z3.UGE,
    "ShiftRightArithmetic": operator.rshift,
    "SNegate": operator.neg,
    "SAbs": lambda a: z3.If(a < 0, -a, a),
    "SClamp": lambda a, low, high: z3.If(a < low, low, z3.If(a > high, high, a)),
    "SLessThan": operator.lt,
    "SGreaterThan": operator.gt,
    "SGreaterThanEqual": operator.ge,
    "LogicalEqual": operator.eq,
    "LogicalNot": z3.Not,
    "LogicalAnd": z3.And,
    "LogicalOr": z3.Or,
    "Bitcast": lambda a: a,  # all values are words
    "FNegate": lambda a: a ^ _SIGN,
    "FAbs": lambda a: a & ~_SIGN,
}
# If the comparison is true, the first operand is the result, otherwise the second.
_CHOICES = {"UMin": "ULessThan", "UMax": "UGreaterThan", "SMin": "SLessThan", "SMax": "SGreaterThan"}


def _replaced(tree: Any, path: Sequence[Any], value: Any) -> Any:
    """A copy of a composite, with another value at a path."""
    if not path:
        return value
    at = path[0].as_long()
    return (*tree[:at], _replaced(tree[at], path[1:], value), *tree[at + 1 :])


Buffers = Mapping[int, Sequence[Any]]  # the words at each of a dispatch's bindings
Arithmetic = Mapping[str, Callable[..., Any]]  # instructions with floats, by name


class Instruction(NamedTuple):
    """A line of a disassembled module."""

    result: str | None
    name: str
    operands: list[str]
    """All operands except the result."""


@functools.cache
def instructions(module: str) -> list[Instruction]:
    """An installed module, line by line."""
    command = ["spirv-dis", "--raw-id", "--no-header", "-"]
    text = subprocess.run(command, input=spirv.load(module), capture_output=True, check=True).stdout.decode()
    lines = re.finditer(r"^ *(?:(%\d+) = )?Op(\w+) *(.*)$", text, re.MULTILINE)
    return [Instruction(line[1], line[2], line[3].split()) for line in lines]


def executions(
    dispatch: Dispatch, buffers: Buffers, floats: Arithmetic | None = None, *, merges: bool = False
) -> Iterator[tuple[list[Any], Buffers]]:
    """All executions of the first invocation of a dispatch: the conditions of each, and the final buffers.

    `merges`: whether selects are merged, which leaves few executions; no address may depend on a merged select.
    """
    pending: list[list[bool]] = [[]]
    terms: dict[Any, Any] = {}
    while pending:
        run = _Run(dispatch, buffers, floats or {}, pending.pop(), terms, merges=merges)
        assert run.status == 1, "a loop that ended early was reported"
        pending += run.others
        yield run.conditions, run.buffers


def status(dispatch: Dispatch, buffers: Buffers, most_iterations: int) -> int:
    """The final status of the first invocation of a dispatch, if a driver ends each loop after some iterations."""
    return _Run(dispatch, buffers, {}, [], {}, most_iterations).status


class _Run:
    """One execution of a module.

    A pointer is a variable and a path of indices; the variable of a buffer is its binding, and the words per element of
    its declared array.

    Attributes:
        buffers: the words at each binding, finally with those that were written.
        conditions: conditions of the symbols for this execution.
        others: the first decisions of each execution that branches off after those of `ahead`.
        status: the word of the status buffer, which precedes the bindings of the dispatch.
    """

    def __init__(
        self,
        dispatch: Dispatch,
        buffers: Buffers,
        floats: Arithmetic,
        ahead: list[bool],
        terms: dict[Any, Any],
        most_iterations: int = 1 << 32,
        *,
        merges: bool = False,
    ) -> None:
        self.buffers, self.floats = {binding: list(words) for binding, words in buffers.items()}, floats
        self.most_iterations, self.merges = most_iterations, merges
        self.first = int(dispatch.has_status)
        self.buffers[-1] = [_word(1)]
        self.ahead, self.terms = ahead, terms
        self.conditions: list[Any] = []
        self.others: list[list[bool]] = []
        self.decisions: dict[int, bool] = {}  # in order, by the ids of their conditions
        self.constants = spirv.constant_words(dispatch.shader)
        self.push = iter(spirv.push_words(dispatch.shader.module, dispatch.push))
        self.decorations: dict[tuple[str, str], str] = {}
        self.types: dict[str, tuple[str, list[str]]] = {}
        self.values: dict[str, Any] = {}
        self.memory: dict[Any, Any] = {}
        self.functions: dict[str, list[Instruction]] = {}
        main, body = "", None
        for result, name, operands in instructions(dispatch.shader.module):
            if name == "EntryPoint":
                main = operands[1]
            elif name == "Function":
                body = self.functions[result] = []
            elif body is not None:
                body.append((result, name, operands))
            elif name == "Decorate":
                self.decorations[operands[0], operands[1]] = operands[-1]
            elif name.startswith("Type"):
                self.types[result] = name[4:], operands
            elif name in ("Variable", "Undef") or "Constant" in name:
                self.values[result] = self.declared(result, name, operands)
        self.call(main, [])
        self.status: int = self.buffers.pop(-1)[0].as_long()

    def decide(self, condition: Any) -> bool:
        """Whether a condition is true in this execution."""
        if z3.is_true(condition) or z3.is_false(condition):
            return z3.is_true(condition)
        key = condition.get_id()
        if key not in self.decisions:
            decided = [*self.decisions.values()]
            possible = self.ahead[len(decided) : len(decided) + 1]
            if not possible:
                solver = z3.Solver()
                solver.add(self.conditions)
                possible = [value for value in (True, False) if solver.check(condition == value) != z3.unsat]
                self.others += [[*decided, value] for value in possible[1:]]
            self.decisions[key] = possible[0]
            self.conditions.append(condition == possible[0])
        return self.decisions[key]

    def declared(self, result: str, name: str, operands: list[str]) -> Any:
        word = self.constants[int(self.decorations.get((result, "SpecId"), -1))]
        if name in ("ConstantTrue", "ConstantFalse"):
            return z3.BoolVal(name == "ConstantTrue")
        if name in ("SpecConstantTrue", "SpecConstantFalse"):
            return z3.BoolVal(bool(word))
        if name in ("Constant", "SpecConstant"):
            return _word(word if name == "SpecConstant" else self.literal(*operands))
        if name in ("ConstantComposite", "SpecConstantComposite"):
            return tuple(self.values[operand] for operand in operands[1:])
        if name == "SpecConstantOp":
            return self.computed(operands[1], operands[2:])
        return self.variable(result, *operands) if name == "Variable" else self.filled(operands[0], _any)

    def literal(self, type_: str, text: str) -> int:
        if self.types[type_][0] == "Int":
            return int(text)
        number = float.fromhex(text) if "0x" in text else float(text)
        return int.from_bytes(struct.pack("<f", number), "little")

    def variable(self, result: str, pointer: str, storage: str, initial: str = "") -> Any:
        """A pointer to a new variable."""
        pointee = self.types[pointer][1][1]
        if (result, "Binding") in self.decorations:
            (array,) = self.types[pointee][1]
            kind, element = self.types[self.types[array][1][0]]
            binding = int(self.decorations[result, "Binding"]) - self.first
            return (binding, 1 if kind == "Int" else int(element[1])), ()
        if storage == "PushConstant":
            self.memory[result] = self.filled(pointee, lambda: _word(next(self.push)))
        elif storage == "Input":
            # One workgroup; all other built-in variables are numbers from 0 on.
            values = {"NumWorkgroups": (1, 1, 1)}
            self.memory[result] = tuple(map(_word, values.get(self.decorations[result, "BuiltIn"], (0, 0, 0))))
        else:
            self.memory[result] = self.values[initial] if initial else self.filled(pointee, _any)
        return result, ()

    def filled(self, type_: str, make: Callable[[], Any]) -> Any:
        kind, operands = self.types[type_]
        if kind in ("Int", "Float", "Bool"):
            return z3.FreshBool() if kind == "Bool" else make()
        if kind == "Struct":
            return tuple(self.filled(member, make) for member in operands)
        count = int(operands[1]) if kind == "Vector" else self.values[operands[1]].as_long()
        return tuple(self.filled(operands[0], make) for _ in range(count))

    def load(self, variable: Any, path: tuple[Any, ...]) -> Any:
        if variable in self.memory:
            tree = self.memory[variable]
            for at in path:
                tree = tree[at.as_long()]
            return tree
        binding, width = variable
        if len(path) == 2 and width > 1:
            return tuple(self.load(variable, (*path, _word(component))) for component in range(width))
        return self.buffers[binding][self.word(variable, path)]

    def store(self, variable: Any, path: tuple[Any, ...], value: Any) -> None:
        if variable in self.memory:
            self.memory[variable] = _replaced(self.memory[variable], path, value)
        else:
            self.buffers[variable[0]][self.word(variable, path)] = value

    def word(self, variable: Any, path: tuple[Any, ...]) -> int:
        """The index of the word in a buffer that a pointer refers to."""
        _, at, *component = (index.as_long() for index in path)
        return at * variable[1] + sum(component)

    def computed(self, name: str, operands: list[str]) -> Any:
        """The result of an instruction; `operands` are without the type."""
        if name == "ExtInst":
            return self.computed(operands[1], operands[2:])
        if name == "CompositeExtract":
            return functools.reduce(lambda tree, at: tree[int(at)], operands[1:], self.values[operands[0]])
        if name == "CompositeInsert":
            path = [_word(int(at)) for at in operands[2:]]
            return _replaced(self.values[operands[1]], path, self.values[operands[0]])
        if name == "VectorShuffle":
            both = self.values[operands[0]] + self.values[operands[1]]
            return tuple(both[int(at)] for at in operands[2:])
        values = [self.values[operand] for operand in operands]
        if name == "CompositeConstruct":
            return tuple(values)
        if name == "UMulExtended":
            product = z3.ZeroExt(32, values[0]) * z3.ZeroExt(32, values[1])
            return tuple(z3.simplify(z3.Extract(top, top - 31, product)) for top in (31, 63))
        if name in ("All", "Any"):
            return self.applied({"All": "LogicalAnd", "Any": "LogicalOr"}[name], *values[0])
        return self.applied(name, *values)

    def applied(self, name: str, *values: Any) -> Any:
        """An operation on scalars, or on the components of vectors."""
        vectors = [value for value in values if isinstance(value, tuple)]
        if vectors:
            columns = (value if isinstance(value, tuple) else (value,) * len(vectors[0]) for value in values)
            return tuple(self.applied(name, *column) for column in zip(*columns, strict=True))
        if name in self.floats:
            return self.floats[name](*values)
        if name == "Select" or name in _CHOICES:
            *conditions, first, second = values
            (condition,) = conditions or (self.applied(_CHOICES[name], first, second),)
            if self.merges:
                return z3.simplify(z3.If(condition, first, second))
            return first if self.decide(condition) else second
        # A shift by more than 31 bits is undefined.
        if name.startswith("Shift") and not self.decide(self.applied("ULessThan", values[1], _word(32))):
            return _any()
        # Most executions share terms. The cache keeps values alive, so that no other value has their ids.
        key = name, *(value.get_id() for value in values)
        if key not in self.terms:
            self.terms[key] = z3.simplify(_OPERATIONS[name](*values)), values
        return self.terms[key][0]

    def call(self, function: str, arguments: list[Any]) -> Any:
        body, values = self.functions[function], self.values
        labels = {result: at for at, (result, name, _) in enumerate(body) if name == "Label"}
        # The block after each loop, by the loop's first block; and the iterations of each loop.
        ends, header = dict[str, str](), ""
        for result, name, operands in body:
            header = result if name == "Label" else header
            if name == "LoopMerge":
                ends[header] = operands[0]
        iterations = dict.fromkeys(ends, 0)
        at, block = 0, ""
        while True:
            result, name, operands = body[at]
            at += 1
            target = ""
            if name == "FunctionParameter":
                values[result] = arguments.pop(0)
            elif name == "Variable":
                values[result] = self.variable(result, *operands)
            elif name == "Label":
                before, block = block, result
                phis = itertools.takewhile(lambda instruction: instruction[1] == "Phi", body[at:])
                values.update({phi: values[words[words.index(before) - 1]] for phi, _, words in list(phis)})
            elif name == "Branch":
                target = operands[0]
            elif name == "BranchConditional":
                target = operands[1 if self.decide(values[operands[0]]) else 2]
            elif name == "Switch":
                cases = dict(zip(operands[2::2], operands[3::2], strict=True))
                target = cases.get(str(values[operands[0]].as_long()), operands[1])
            elif name in ("Return", "ReturnValue"):
                return values[operands[0]] if operands else None
            elif name == "FunctionCall":
                values[result] = self.call(operands[1], [values[operand] for operand in operands[2:]])
            elif name == "AccessChain":
                variable, path = values[operands[1]]
                values[result] = variable, (*path, *(values[operand] for operand in operands[2:]))
            elif name == "Load":
                values[result] = self.load(*values[operands[1]])
            elif name == "Store":
                self.store(*values[operands[0]], values[operands[1]])
            elif name in ("AtomicAnd", "AtomicOr"):
                pointer, value = values[operands[1]], values[operands[4]]
                values[result] = self.load(*pointer)
                self.store(*pointer, self.applied(f"Bitwise{name[6:]}", values[result], value))
            elif name not in ("Phi", "SelectionMerge", "LoopMerge"):
                values[result] = self.computed(name, operands[1:])
            if target in ends:
                iterations[target] = iterations[target] + 1 if labels[target] < at else 0
                if iterations[target] > self.most_iterations:
                    block, target = target, ends[target]
            at = labels[target] if target else at
