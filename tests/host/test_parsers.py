"""A short run of the fuzzing of parsers, without its guide: what targets begin with, whole, cut, flipped and mixed."""

import random
from functools import partial
from tokenize import TokenError

import pytest

from dmlgpu import files
from dmlgpu.tools import dxdispatch, explain
from tests.fuzz.parsers import TARGETS


def mutated(seeds: list[bytes], rng: random.Random) -> bytes:
    data = bytearray(rng.choice(seeds))
    for _ in range(rng.randint(0, 4)):
        at = rng.randint(0, len(data))
        kind = rng.randrange(4)
        if kind == 0:
            del data[at : at + rng.randint(1, 20)]
        elif kind == 1:
            data[at:at] = rng.randbytes(rng.randint(1, 4))
        elif kind == 2 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        else:
            data[at:at] = rng.choice(seeds)[:1000]
    return bytes(data)


@pytest.mark.parametrize("target", TARGETS)
# What Pillow and NumPy find damaged or old but can read.
@pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:DeprecationWarning", "ignore:.*:SyntaxWarning")
def test_a_result_or_the_error_that_is_promised(target):
    test, seeds = TARGETS[target]
    there_are, rng = seeds(), random.Random(0)
    for data in (b"", *there_are, *(mutated(there_are, rng) for _ in range(300))):
        test(data)


@pytest.mark.parametrize(
    ("target", "place", "fault"),
    [
        ("image", ("dmlgpu.tools.demo.load_photograph",), lambda path: None),
        ("operator", (explain, "_sequence"), lambda value: None + value),
        ("document", (dxdispatch._Node, "_is"), lambda self, kind, name: self.value),
        ("array", (files, "_NO_HEADER"), OSError),
    ],
)
def test_a_fault_is_found(monkeypatch, target, place, fault):
    monkeypatch.setattr(*place, fault)
    with pytest.raises((TypeError, AttributeError, UnicodeDecodeError, AssertionError, TokenError)):
        partial(test_a_result_or_the_error_that_is_promised, target)()
