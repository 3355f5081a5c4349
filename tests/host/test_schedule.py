"""Where submissions end, where barriers stand, and how the speed of pipelines is learnt, without a device."""

import re
from itertools import islice

import pytest

from dmlgpu.runtime.schedule import Barrier, Pace, Step, learn, submissions


class Buffer(str):
    """Those in capitals relay."""

    relays = property(str.isupper)


class NamedStep(Step):
    """A step, and the text that says what it reads and writes."""

    def __str__(self) -> str:
        def names(places):
            return "".join(sorted(f"{buffer}{offset or ''}" for buffer, offset in places))

        return f"{names(self.reads)}>{names(self.writes)}"


def step(text: str, pace: Pace | None = None) -> NamedStep:
    """'ab>c' reads a and b and writes c; a1 is another place in the buffer a.

    'a>b*150' should take 150 ms, as its pipeline needs 1 ms per element if no pace is given.
    """
    places, _, elements = text.partition("*")
    reads, writes = (
        frozenset((Buffer(name), int(offset or 0)) for name, offset in re.findall(r"([a-zA-Z])(\d*)", part))
        for part in places.split(">")
    )
    return NamedStep(reads, writes, int(elements or 0), pace or Pace(0.001))


def grouped(*steps: NamedStep) -> str:
    """The submissions of steps, apart by '|', with barriers in brackets."""
    return " | ".join(
        " ".join(
            f"[{''.join(sorted(part.buffers))}]" if isinstance(part, Barrier) else str(part) for part in submission
        )
        for submission in submissions(steps)
    )


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (["a>b"], "a>b"),
        (["a>b", "a>c", "d>e"], "a>b a>c d>e"),
        (["a>b", "b>c"], "a>b | b>c"),
        (["a>B", "B>c"], "a>B [B] B>c"),
        (["a>B", "B>C", "C>D"], "a>B [B] B>C [C] C>D"),
        (["a>B", "c>D", "BD>e"], "a>B c>D [BD] BD>e"),
        (["a>B", "c>d", "Bd>e"], "a>B c>d | Bd>e"),
        (["a>B", "B>c", "B>d"], "a>B [B] B>c B>d"),
        (["a>B", "B>c", "c>d"], "a>B [B] B>c | c>d"),
        (["a>b", "c>b"], "a>b | c>b"),
        (["a>B", "c>B"], "a>B | c>B"),
        (["a>b", "c>a"], "a>b | c>a"),
        (["A>b", "C>A"], "A>b | C>A"),
        (["a>B", "B>c", "d>B", "B>e"], "a>B [B] B>c | d>B [B] B>e"),
        (["a>b", "b>c", "c>d"], "a>b | b>c | c>d"),
        (["a>B", "B>a"], "a>B [B] B>a"),
        (["a>B", "B>c", "d>a"], "a>B [B] B>c d>a"),
        (["a>B", "B>c", "d>B"], "a>B [B] B>c | d>B"),
        (["a>B", "B>c", "e>f", "d>e"], "a>B [B] B>c e>f | d>e"),
        (["a>A", "A>B", "B>c", "A>d"], "a>A [A] A>B [B] B>c A>d"),
        (["a>A", "A>B", "AB>C", "AC>d"], "a>A [A] A>B [B] AB>C [C] AC>d"),
        (["a>b", "c>d", "b>e"], "a>b c>d | b>e"),
        (["a>b*150", "c>d*50", "e>f*1"], "a>b c>d | e>f"),
        (["a>b*900", "c>d*900"], "a>b | c>d"),
        (["a>b*900", "c>d", "e>f*100", "g>h*100"], "a>b | c>d e>f g>h"),
        (["a>B*150", "B>c*100", "B>d*100"], "a>B | B>c B>d"),
        (["a>B*50", "B>c*150", "d>B*150", "B>e*50"], "a>B [B] B>c | d>B [B] B>e"),
    ],
)
def test_submissions(steps, expected):
    assert grouped(*map(step, steps)) == expected


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        # Places in one buffer are apart.
        (["x>a", "y>a1", "z>a2"], "x>a y>a1 z>a2"),
        (["x>a", "a1>y"], "x>a a1>y"),
        (["x>a1", "a1>y"], "x>a1 | a1>y"),
        (["a>x", "y>a1"], "a>x y>a1"),
        # A step may read and write one place.
        (["a>a"], "a>a"),
        (["a>a", "a>a"], "a>a | a>a"),
        # A barrier for one of the places is not enough where another does not relay.
        (["x>A", "y>b", "Ab>z"], "x>A y>b | Ab>z"),
        # A barrier lets a step overwrite what was read before the barrier, not what was read behind it.
        (["x>A", "z>y", "A>z"], "x>A z>y [A] A>z"),
        (["x>A", "A>y", "z>w", "A>z"], "x>A [A] A>y z>w | A>z"),
        # A barrier is only for the buffers that the step behind it reads.
        (["x>A", "y>B", "A>z", "B>w"], "x>A y>B [A] A>z [B] B>w"),
        # What was written is forgotten with the submission, and so are its barriers.
        (["x>A", "A>y", "z>y", "A>w", "v>A", "A>u"], "x>A [A] A>y | z>y A>w | v>A [A] A>u"),
    ],
)
def test_dependencies(steps, expected):
    assert grouped(*map(step, steps)) == expected


def test_submissions_are_made_while_steps_come():
    steps = [step("a>b*150") for _ in range(5)]
    coming = iter(steps)
    assert list(islice(submissions(coming), 3)) == [[first] for first in steps[:3]]
    assert list(coming) == steps[4:]


# Time


@pytest.mark.parametrize(
    ("milliseconds", "lengths"),
    [
        ((100, 100), [2]),
        ((100, 101), [1, 1]),
        ((1, 1000, 1), [1, 1, 1]),
        ((60,) * 7, [3, 3, 1]),
        ((0,) * 1000, [1000]),
    ],
)
def test_submissions_are_cut_where_they_would_take_too_long(milliseconds, lengths):
    steps = [step(f"a>{'b' if i == 0 else ''}*{count}") for i, count in enumerate(milliseconds)]
    assert [len(submission) for submission in submissions(steps)] == lengths


def test_each_step_takes_time_by_the_speed_of_its_own_pipeline():
    slow, fast = Pace(0.001), Pace(0.0001)
    assert grouped(step("a>b*150", slow), step("c>d*400", fast)) == "a>b c>d"
    assert grouped(step("a>b*150", slow), step("c>d*600", fast)) == "a>b | c>d"


def test_the_speed_is_learnt_from_the_second_run_on():
    pace = Pace(0.001)
    steps = [step("a>b*10", pace), step("c>d*10", pace)]
    assert not learn(steps, 10.0)
    assert pace.seconds == 0.001
    assert not learn(steps, 0.1)
    assert pace.seconds == pytest.approx(0.005)
    assert not learn(steps, 0.01)
    assert pace.seconds == pytest.approx(0.0005)


def test_what_is_over_at_once_tells_nothing():
    pace = Pace(0.001, has_run=True)
    assert not learn([step("a>b*10", pace)], 0.0009)
    assert pace.seconds == 0.001


def test_what_is_over_at_once_has_run():
    pace = Pace(0.001)
    learn([step("a>b*10", pace)], 0.0009)
    learn([step("a>b*10", pace)], 0.1)
    assert pace.seconds == pytest.approx(0.01)


def test_pipelines_of_a_submission_learn_the_same_factor():
    slow, fast = Pace(0.002, has_run=True), Pace(0.001, has_run=True)
    # They should take 20 + 10 + 10 ms, and took three times as long.
    learn([step("a>B*10", slow), step("c>d*10", fast), Barrier((Buffer("B"),)), step("B>e*10", fast)], 0.12)
    assert (slow.seconds, fast.seconds) == (pytest.approx(0.006), pytest.approx(0.003))


def test_no_pipeline_learns_beside_one_that_runs_for_the_first_time():
    known, new = Pace(0.001, has_run=True), Pace(0.001)
    steps = [step("a>b*10", known), step("c>d*10", new)]
    assert not learn(steps, 10.0)
    assert (known.seconds, new.seconds) == (0.001, 0.001)
    learn(steps, 0.1)
    assert known.seconds == new.seconds == pytest.approx(0.005)


@pytest.mark.parametrize(("seconds", "again"), [(0.19, False), (0.21, True)])
def test_a_submission_that_took_too_long_is_cut_anew(seconds, again):
    pace = Pace(0.001, has_run=True)
    steps = [step("a>b*50", pace), step("c>d*50", pace)]
    assert learn(steps, seconds) is again
    assert (grouped(*steps) == "a>b | c>d") is again


def test_a_submission_of_one_step_cannot_be_cut():
    pace = Pace(0.001, has_run=True)
    assert not learn([step("a>b*50", pace)], 10.0)
    assert not learn([Barrier((Buffer("A"),)), step("a>b*50", pace)], 10.0)
    assert pace.seconds == pytest.approx(0.2)


def test_a_step_alone_that_takes_too_long_is_known():
    pace = Pace(0.001)
    alone = [Barrier((Buffer("A"),)), step("a>b*50", pace)]
    for steps, seconds, expected in (
        (alone, 10.0, False),  # the first run is not measured
        (alone, 0.21, True),
        ([*alone, step("c>d*50", pace)], 0.21, False),
        (alone, 0.21, True),
        (alone, 0.19, False),
    ):
        learn(steps, seconds)
        assert pace.is_too_slow is expected
