"""Where submissions end, where barriers stand, and how the speed of pipelines is learnt, without a device."""

import re
from itertools import islice

import pytest

from dmlgpu.runtime.schedule import Barrier, Step, Timing, learn, submissions


class NamedStep(Step):
    """A step, and the text that says what it reads and writes."""

    def __str__(self) -> str:
        def names(places):
            return "".join(sorted(f"{buffer}{offset or ''}" for buffer, offset in places))

        return f"{names(self.reads)}>{names(self.writes)}"


def step(text: str, timing: Timing | None = None) -> NamedStep:
    """'ab>c' reads a and b and writes c; a1 is another place in the buffer a.

    'a>b*150' should take 150 ms, as its pipeline needs 1 ms per element if no timing is given.
    """
    places, _, elements = text.partition("*")
    reads, writes = (
        frozenset((name, int(offset or 0)) for name, offset in re.findall(r"([a-z])(\d*)", part))
        for part in places.split(">")
    )
    return NamedStep(reads, writes, int(elements or 0), timing or Timing(0.001))


def grouped(*steps: NamedStep, has_barriers: bool = True) -> str:
    """The submissions of steps, apart by '|', with barriers in brackets."""
    return " | ".join(
        " ".join(
            f"[{''.join(sorted(part.buffers))}]" if isinstance(part, Barrier) else str(part) for part in submission
        )
        for submission in submissions(steps, has_barriers=has_barriers)
    )


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("a>b", "a>b"),
        # What does not depend on another.
        ("a>b a>c d>e", "a>b a>c d>e"),
        ("a>a", "a>a"),
        # Reads what another wrote.
        ("a>b b>c", "a>b [b] b>c"),
        ("a>b b>c c>d", "a>b [b] b>c [c] c>d"),
        ("a>b b>c b>d", "a>b [b] b>c b>d"),
        ("a>b c>d bd>e", "a>b c>d [bd] bd>e"),
        ("a>b c>d b>e d>f", "a>b c>d [bd] b>e d>f"),
        # Writes what another wrote.
        ("a>b c>b", "a>b [b] c>b"),
        ("a>a a>a", "a>a [a] a>a"),
        # Writes what another read.
        ("a>b c>a", "a>b [b] c>a"),
        ("a>b b>c d>b", "a>b [b] b>c [c] d>b"),
        ("a>b b>c d>c", "a>b [b] b>c [c] d>c"),
        # After a barrier, steps may overwrite buffers of earlier steps.
        ("a>b b>a", "a>b [b] b>a"),
        ("a>b b>c d>a", "a>b [b] b>c d>a"),
        ("a>b b>c d>b b>e", "a>b [b] b>c [c] d>b [b] b>e"),
        # Places in one buffer are apart; a barrier is for all of it.
        ("x>a y>a1 z>a2", "x>a y>a1 z>a2"),
        ("x>a a1>y", "x>a a1>y"),
        ("a>x y>a1", "a>x y>a1"),
        ("x>a1 a1>y", "x>a1 [a] a1>y"),
        ("x>a1 y>a2 z>b a2>w", "x>a1 y>a2 z>b [ab] a2>w"),
    ],
)
def test_barriers(steps, expected):
    steps = [step(text) for text in steps.split()]
    assert grouped(*steps) == expected
    # Without barriers each of them begins a submission.
    assert grouped(*steps, has_barriers=False) == re.sub(r"\[\w+\]", "|", expected)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("a>b*150 c>d*50 e>f*1", "a>b c>d | e>f"),
        ("a>b*900 c>d*900", "a>b | c>d"),
        ("a>b*900 c>d e>f*100 g>h*100", "a>b | c>d e>f g>h"),
        # No barrier stands at the begin of a submission, and what was written before it is forgotten.
        ("a>b*150 b>c*100 b>d*100", "a>b | b>c b>d"),
        ("a>b*50 b>c*150 d>b*150 b>e*50", "a>b [b] b>c | d>b [b] b>e"),
        ("a>b*150 c>d*100 e>b e>c", "a>b | c>d e>b [bd] e>c"),
    ],
)
def test_submissions_that_would_take_too_long(steps, expected):
    assert grouped(*map(step, steps.split())) == expected


def test_submissions_are_made_while_steps_come():
    steps = [step("a>b*150") for _ in range(5)]
    coming = iter(steps)
    assert list(islice(submissions(coming, has_barriers=True), 3)) == [[first] for first in steps[:3]]
    assert list(coming) == steps[4:]


@pytest.mark.parametrize(
    ("milliseconds", "lengths"),
    [((100, 100), [2]), ((100, 101), [1, 1]), ((1, 1000, 1), [1, 1, 1]), ((60,) * 7, [3, 3, 1]), ((0,) * 1000, [1000])],
)
def test_submissions_are_cut_where_they_would_take_too_long(milliseconds, lengths):
    steps = [step(f"a>{'b' if i == 0 else ''}*{count}") for i, count in enumerate(milliseconds)]
    assert [len(submission) for submission in submissions(steps, has_barriers=True)] == lengths


def test_each_step_takes_time_by_the_speed_of_its_own_pipeline():
    slow, fast = Timing(0.001), Timing(0.0001)
    assert grouped(step("a>b*150", slow), step("c>d*400", fast)) == "a>b c>d"
    assert grouped(step("a>b*150", slow), step("c>d*600", fast)) == "a>b | c>d"


def test_the_speed_is_learnt_from_the_second_run_on():
    timing = Timing(0.001)
    steps = [step("a>b*10", timing), step("c>d*10", timing)]
    assert not learn(steps, 10.0)
    assert timing.seconds_per_element == 0.001
    assert not learn(steps, 0.1)
    assert timing.seconds_per_element == pytest.approx(0.005)
    assert not learn(steps, 0.01)
    assert timing.seconds_per_element == pytest.approx(0.0005)


def test_what_is_over_at_once_has_run_but_tells_nothing():
    for has_run in (True, False):
        timing = Timing(0.001, has_run=has_run)
        assert not learn([step("a>b*10", timing)], 0.0009)
        assert timing.seconds_per_element == 0.001
        learn([step("a>b*10", timing)], 0.1)
        assert timing.seconds_per_element == pytest.approx(0.01)


def test_pipelines_of_a_submission_learn_the_same_factor():
    slow, fast = Timing(0.002, has_run=True), Timing(0.001, has_run=True)
    # They should take 20 + 10 + 10 ms, and took three times as long.
    learn([step("a>b*10", slow), step("c>d*10", fast), step("b>e*10", fast)], 0.12)
    assert (slow.seconds_per_element, fast.seconds_per_element) == (pytest.approx(0.006), pytest.approx(0.003))


def test_no_pipeline_learns_beside_one_that_runs_for_the_first_time():
    known, new = Timing(0.001, has_run=True), Timing(0.001)
    steps = [step("a>b*10", known), step("c>d*10", new)]
    assert not learn(steps, 10.0)
    assert (known.seconds_per_element, new.seconds_per_element) == (0.001, 0.001)
    learn(steps, 0.1)
    assert known.seconds_per_element == new.seconds_per_element == pytest.approx(0.005)


@pytest.mark.parametrize(("seconds", "again"), [(0.19, False), (0.21, True)])
def test_a_submission_that_took_too_long_is_cut_anew(seconds, again):
    timing = Timing(0.001, has_run=True)
    steps = [step("a>b*50", timing), step("c>d*50", timing)]
    assert learn(steps, seconds) is again
    assert (grouped(*steps) == "a>b | c>d") is again
    alone = Timing(0.001, has_run=True)  # which cannot be cut
    assert not learn([step("a>b*50", alone)], 10.0)
    assert alone.seconds_per_element == pytest.approx(0.2)


def test_a_step_alone_that_takes_too_long_is_known():
    timing = Timing(0.001)
    alone = [step("a>b*50", timing)]
    for steps, seconds, expected in (
        (alone, 10.0, False),  # the first run is not measured
        (alone, 0.21, True),
        ([*alone, step("c>d*50", timing)], 0.21, False),
        (alone, 0.21, True),
        (alone, 0.19, False),
    ):
        learn(steps, seconds)
        assert timing.is_too_slow is expected
