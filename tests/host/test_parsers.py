"""A short run of the fuzzing of parsers without coverage: seeds, whole and mutated."""

import random

import pytest

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
# Warnings of Pillow and NumPy about damaged or old files that they can read.
@pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:DeprecationWarning", "ignore:.*:SyntaxWarning")
def test_mutated_input_has_a_result_or_the_promised_error(target):
    test, seeds_of = TARGETS[target]
    seeds, rng = seeds_of(), random.Random(0)
    for data in (b"", *seeds, *(mutated(seeds, rng) for _ in range(300))):
        test(data)
