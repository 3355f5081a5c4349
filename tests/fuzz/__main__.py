"""Computes random operators on the drivers under test.

    python -m tests.fuzz MINUTES

The results of valid operators must be those of the oracle, bit for bit, and the bytes around them must stay; an invalid
operator must raise a DescriptorError that names a field. The first failure is simplified, printed as Python, and ends
the run.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from dmlgpu import Device, DeviceInfo
from dmlgpu.lowering.lower import lower
from dmlgpu.registry import CANONICAL, OPERATORS
from tests.fuzz import descriptors
from tests.fuzz.descriptors import Choices
from tests.support import guards
from tests.support.drivers import DRIVERS, device_of, use_drivers_under_test
from tests.support.layouts import check_all_bytes

# Cases of a round. A round has one device, one kind of operator and one type, because pipelines take most of the time.
VALID, INVALID = 2000, 2000
# Cases with more dispatches are skipped, and not counted: low limits can need thousands.
MOST_DISPATCHES = 200
# Seconds for simplifying a failure.
PATIENCE = 60

# A function that makes a case from choices, and raises an error if the case fails.
Test = Callable[[Choices], Any]


class FailureError(Exception):
    """A failing case as Python."""


def recorded(test: Test, make: Callable[[int, int], int]) -> tuple[list[int], Exception | None]:
    """Runs a test; returns its choices, each relative to the low one, and its error."""
    choices: list[int] = []

    def choose(low: int, high: int) -> int:
        choices.append(make(low, high) - low)
        return low + choices[-1]

    try:
        test(Choices(choose))
    except Exception as error:
        return choices, error
    return choices, None


def replayed(test: Test, wanted: list[int]) -> tuple[list[int], Exception | None]:
    """Runs a test with these choices; missing ones are 0, and too high ones are lowered."""
    left = iter(wanted)
    return recorded(test, lambda low, high: min(low + next(left, 0), high))


def simplest(test: Test, choices: list[int], seconds: float) -> list[int]:
    """Fewer and lower choices with which a test raises the same error."""
    end = time.monotonic() + seconds
    _, error = replayed(test, choices)
    while True:
        for simpler in _simpler(choices):
            if time.monotonic() > end:
                return choices
            shorter, other = replayed(test, simpler)
            if type(other) is type(error) and (len(shorter), shorter) < (len(choices), choices):
                choices = shorter
                break
        else:
            return choices


def _simpler(choices: list[int]) -> Iterator[list[int]]:
    for size in (8, 4, 2, 1):
        for i in range(0, len(choices) - size + 1):
            yield choices[:i] + choices[i + size :]
    for i, choice in enumerate(choices):
        for less in sorted({0, choice // 2, choice - 1} - {choice, -1}):
            yield [*choices[:i], less, *choices[i + 1 :]]


class Round:
    """Random operators of a kind and a type, on a device with random limits."""

    def __init__(self, index: int, seed: int) -> None:
        self.choices = Choices(random.Random(seed).randint)
        self.index = index
        # Canonical operators occur more often.
        self.kind = self.choices.of((*CANONICAL * 2, *OPERATORS))
        self.data_type = self.choices.of(self.kind.data_types)
        self.limits = None if self.choices.chance(5) else descriptors.limits(self.choices)
        self.long = self.limits is None or self.limits.segment_bytes > 2048
        # Pipelines depend on windows.
        self.windows = tuple(descriptors.window(self.choices, self.long) for _ in range(3))
        self.case: Callable[[], str] = str

    def run(self, last: TextIO) -> None:
        """Runs all cases; if the process ends, the file `last` has the case that was running."""
        with Device(self.index, limits=self.limits) as device:
            for _ in range(VALID):
                self.run_case(lambda choices: self.valid(device, choices, last))
        for _ in range(INVALID):
            self.run_case(self.invalid)

    def run_case(self, test: Test) -> None:
        choices, error = recorded(test, self.choices.integer)
        if error is not None:
            _, error = replayed(test, simplest(test, choices, PATIENCE))
            sys.set_int_max_str_digits(0)  # otherwise Python refuses to print very large integers
            raise FailureError(self.case()) from error

    def valid(self, device: Device, choices: Choices, last: TextIO) -> None:
        desc = None
        while desc is None or len(lower(desc, device.limits).dispatches) > MOST_DISPATCHES:
            desc = descriptors.operator(choices, self.kind, (self.data_type,), self.windows, self.long)
        data = descriptors.data(choices)
        code = f"with Device({self.index}, limits={self.limits}) as device:\n    "
        code += f"check_all_bytes(device, {desc}, {data})"
        self.case = lambda: code
        last.seek(0)
        last.write(code)
        last.truncate()
        last.flush()
        check_all_bytes(device, desc, data)

    def invalid(self, choices: Choices) -> None:
        refused = False
        while not refused:
            attempt = descriptors.attempt(choices)
            self.case = attempt.__repr__
            refused = attempt.outcome() is None


def fuzz(driver: str, minutes: float, last: TextIO) -> int:
    """Runs rounds on a driver; returns 1 after a failure."""
    guards.install()
    seeds = random.Random()
    info = device_of(DRIVERS[driver])
    begin = time.monotonic()
    rounds = 0
    while time.monotonic() < begin + 60 * minutes:
        seed = seeds.getrandbits(32)
        try:
            Round(info.index, seed).run(last)
        except FailureError as failure:
            traceback.print_exception(failure.__cause__)
            print(f"{driver}, round {seed}, after {rounds * VALID} cases:\n\n{failure}\n", flush=True)
            return 1
        rounds += 1
        if rounds % 20 == 0:
            report(driver, info, rounds, begin)
    report(driver, info, rounds, begin)
    return 0


def report(driver: str, info: DeviceInfo, rounds: int, begin: float) -> None:
    seconds = time.monotonic() - begin
    rate = rounds * VALID / seconds
    print(
        f"{driver} ({info.driver}): {rounds * VALID} valid and {rounds * INVALID} invalid cases in {rounds} rounds, "
        f"{seconds:.0f} s, {rate:.0f} of each a second",
        flush=True,
    )


def main() -> int:
    use_drivers_under_test()
    minutes = float(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        runs = {}
        for driver in DRIVERS:
            last = Path(folder, driver.replace("/", "_"))
            command = [sys.executable, "-X", "faulthandler", "-m", "tests.fuzz", str(minutes), driver, str(last)]
            runs[driver] = subprocess.Popen(command), last
        codes = []
        for driver, (process, last) in runs.items():
            codes.append(process.wait())
            if codes[-1] < 0:
                print(f"{driver}: the process ended with signal {-codes[-1]} in\n\n{last.read_text()}\n")
    return int(any(codes))


if __name__ == "__main__":
    if len(sys.argv) == 4:
        with open(sys.argv[3], "w") as last:
            sys.exit(fuzz(sys.argv[2], float(sys.argv[1]), last))
    sys.exit(main())
