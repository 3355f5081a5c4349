"""Sums keep to their bounds with all arithmetic that Vulkan allows, in simulated drivers.

The shipped modules run here (`symbolic.py`) with additions, subtractions and multiplications that round to zero, up,
down, or at random up and down; with or without denormals; and with the largest errors that Vulkan allows, 2.5 units in
the last place of quotients and 4.5 of roots.
"""

import math
import operator
import random
import struct
from fractions import Fraction

import numpy as np
import pytest
import z3

from dmlgpu import ReduceFunction, ReduceOperatorDesc, TensorDesc, reference
from dmlgpu.comparison import differences
from dmlgpu.lowering.limits import Limits
from dmlgpu.lowering.lower import lower
from dmlgpu.lowering.plan import Role
from dmlgpu.testing.cases import UINT8, quantized_desc
from tests.support.symbolic import executions

# One invocation. An input has several segments, whose partials are combined.
LIMITS = Limits(segment_bytes=256, group_size=1, group_count=1, simd_width=1)
COUNT = 150
LEAST, LARGEST = 2.0**-126, float(np.finfo(np.float32).max)  # the normal numbers


class Driver:
    """Instructions with floats, on words, with the largest errors that Vulkan allows."""

    def __init__(self, rounding, flushes):
        self.rounding, self.flushes, self.random = rounding, flushes, random.Random(0)
        self.instructions = {
            "FAdd": lambda a, b: self.rounded(a + b),
            "FSub": lambda a, b: self.rounded(a - b),
            "FMul": lambda a, b: self.rounded(a * b),
            "FDiv": lambda a, b: self.off(a / b, 2.5),
            "Sqrt": lambda a: self.off(Fraction(math.sqrt(a)), 4.5),
            "Floor": math.floor,
            "FMax": max,
            "FMin": min,
        }
        comparisons = {"LessThan": "lt", "LessThanEqual": "le", "GreaterThan": "gt", "Equal": "eq"}
        self.comparisons = {f"FOrd{name}": getattr(operator, short) for name, short in comparisons.items()}

    @property
    def floats(self):
        """The instructions by their names, for `executions`."""
        return {
            **{name: lambda *a, do=do: self.word(do(*map(self.number, a))) for name, do in self.instructions.items()},
            **{name: lambda *a, do=do: z3.BoolVal(do(*map(self.number, a))) for name, do in self.comparisons.items()},
            "ConvertUToF": lambda a: self.word(self.rounded(Fraction(a.as_long()))),
            "ConvertSToF": lambda a: self.word(self.rounded(Fraction(a.as_signed_long()))),
            "ConvertFToU": lambda a: z3.BitVecVal(int(self.number(a)), 32),
            "ConvertFToS": lambda a: z3.BitVecVal(int(self.number(a)), 32),
        }

    def number(self, word):
        (value,) = struct.unpack("<f", word.as_long().to_bytes(4, "little"))
        return value if math.isinf(value) else Fraction(0 if self.flushes and abs(value) < LEAST else value)

    def word(self, value):
        """The word of a float; a denormal number becomes 0 if the driver flushes."""
        value = 0 if self.flushes and abs(value) < LEAST else value
        return z3.BitVecVal(int.from_bytes(struct.pack("<f", value), "little"), 32)

    def neighbours(self, exact):
        """The greatest float that is at most a number, and the least one that is at least the number."""
        near = np.float32(exact)
        with np.errstate(over="ignore"):
            low, high = (np.nextafter(near, np.float32(to)) for to in (-np.inf, np.inf))
        return (near if Fraction(float(near)) <= exact else low), (near if Fraction(float(near)) >= exact else high)

    def rounded(self, exact):
        if abs(exact) > LARGEST:
            return math.copysign(LARGEST if self.rounding == "zero" else math.inf, exact)
        low, high = (Fraction(float(value)) for value in self.neighbours(exact))
        rounding = self.rounding if self.rounding != "any" else self.random.choice(("up", "down"))
        return {"up": high, "down": low, "zero": low if exact > 0 else high}[rounding]

    def off(self, exact, units):
        """The float with the largest error, up to these units in the last place."""
        most = Fraction(units) * Fraction(float(np.spacing(np.float32(abs(exact)))))
        low, high = self.neighbours(exact - most)[1], self.neighbours(exact + most)[0]
        return Fraction(float(self.random.choice((low, high))))


def words_of(array):
    content = array.tobytes() + bytes(-array.nbytes % 4)
    return [z3.BitVecVal(word, 32) for word in np.frombuffer(content, np.uint32).tolist()]


def computed(desc, x, driver):
    """The output of an operator on a driver."""
    plan = lower(desc, LIMITS)
    words, segment = words_of(x), LIMITS.segment_bytes // 4
    memory = {Role.OUTPUT: [z3.BitVecVal(0, 32)], Role.PARTIALS: [z3.BitVecVal(0, 32)] * (plan.partial_bytes // 4)}
    for dispatch in plan.dispatches:
        buffers = {
            number: words[segment * b.segment :][:segment] if b.role is Role.INPUT else memory[b.role]
            for number, b in enumerate(dispatch.bindings)
        }
        ((_, written),) = executions(dispatch, buffers, driver.floats)
        memory |= {b.role: written[number] for number, b in enumerate(dispatch.bindings)}
    word = memory[Role.OUTPUT][0].as_long().to_bytes(4, "little")
    return np.frombuffer(word, desc.output_tensor.data_type.numpy)[:1].reshape(desc.output_tensor.sizes)


def elements(kind, dtype):
    rng = np.random.default_rng(0)
    x = {
        "positive": rng.uniform(0.5, 1.5, COUNT),
        "signed": rng.standard_normal(COUNT),
        "wide": rng.standard_normal(COUNT) * 2.0 ** rng.integers(-12, 12, COUNT),
    }[kind]
    return x.astype(dtype).reshape(1, COUNT)


F = ReduceFunction


# AVERAGE includes a sum.
@pytest.mark.parametrize("function", [F.AVERAGE, F.L2, F.LOG_SUM_EXP], ids=lambda function: function.name)
@pytest.mark.parametrize(
    ("rounding", "dtype"),
    [*((rounding, "float32") for rounding in ("zero", "up", "down", "any")), ("zero", "float16"), ("any", "float16")],
)
def test_any_rounding_keeps_to_the_bounds(rounding, function, dtype):
    for kind, flushes in (("positive", True), ("signed", False), ("wide", True)):
        x = elements(kind, dtype)
        desc = ReduceOperatorDesc.of(function, x, (1,))
        y = computed(desc, x, Driver(rounding, flushes))
        assert list(differences(desc, (x,), (y,), reference(desc, x))) == [], kind


@pytest.mark.parametrize("rounding", ["down", "any"])
def test_averages_of_bytes_are_the_same_with_any_rounding(rounding):
    """Averages of three bytes lie halfway between two integers, or next to such a number, or next to an integer."""
    ratio = np.float32([0.5, 1 / 3, 1.5, 2.0**-7, 3])
    for scale in (ratio, np.nextafter(ratio, np.float32(0)), np.nextafter(ratio, np.float32(9))):
        sizes = (1, len(scale), 1, 1)
        desc = quantized_desc(
            TensorDesc(UINT8, (*sizes[:3], 24)), (1, 3), UINT8, sizes, (1,), (1,), None, strides=(1, 3)
        )
        x = np.random.default_rng(0).integers(0, 256, desc.input_tensor.sizes, np.uint8)
        sums = x.reshape(-1, 3).sum(1, dtype=np.uint32)
        inputs = [words_of(array) for array in (sums, scale, np.uint8([7]), np.ones(1, np.float32))]
        *_, scales, zero_points, averages = lower(desc, LIMITS).dispatches
        parameters = [z3.BitVecVal(0, 32)] * 4 * len(scale)
        for dispatch, buffers in (scales, (1, 3)), (zero_points, (2, 2)):
            bound = {number: inputs[i] for number, i in enumerate(buffers)} | {2: parameters}
            ((_, written),) = executions(dispatch, bound, Driver(rounding, flushes=True).floats)
            parameters = written[2]
        outputs = [z3.BitVecVal(0, 32)] * (len(sums) // 4)
        ((_, written),) = executions(
            averages, {0: inputs[0], 1: parameters, 2: outputs}, Driver(rounding, flushes=True).floats
        )
        pooled = np.array([word.as_long() for word in written[2]], np.uint32).view(np.uint8)
        (expected,) = reference(desc, x, scale.reshape(sizes), np.uint8([7]), np.ones(1, np.float32))
        assert pooled.tolist() == expected.reshape(-1).tolist()
