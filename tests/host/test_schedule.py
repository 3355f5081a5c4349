"""Where submissions end, where barriers are, and measured speeds of pipelines, without a device."""

import re
from itertools import islice

import pytest

from dmlgpu.runtime.schedule import Barrier, Step, Timing, submissions, update_timings


class NamedStep(Step):
    """A step that prints as the text of `step`."""

    def __str__(self) -> str:
        def names(places):
            return "".join(sorted(f"{buffer}{offset or ''}" for buffer, offset in places))

        return f"{names(self.reads)}>{names(self.writes)}"


def step(text: str, timing: Timing | None = None) -> NamedStep:
    """The step 'ab>c' reads a and b, and writes c; a1 is another place in the buffer a.

    Without a timing, 'a>b*150' has 150 elements of 1 ms.
    """
    places, _, elements = text.partition("*")
    reads, writes = (
        frozenset((name, int(offset or 0)) for name, offset in re.findall(r"([a-z])(\d*)", part))
        for part in places.split(">")
    )
    return NamedStep(reads, writes, int(elements or 0), timing or Timing(0.001))


def grouped(*steps: NamedStep, has_barriers: bool = True) -> str:
    """The submissions of steps, separated by '|', with barriers in brackets."""
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
        # Steps are independent.
        ("a>b a>c d>e", "a>b a>c d>e"),
        ("a>a", "a>a"),
        # A step reads the output of another.
        ("a>b b>c c>d", "a>b [b] b>c [c] c>d"),
        ("a>b c>d bd>e", "a>b c>d [bd] bd>e"),
        ("a>b c>d b>e d>f", "a>b c>d [bd] b>e d>f"),
        # A step overwrites the output of another.
        ("a>b c>b", "a>b [b] c>b"),
        # A step overwrites the input of another.
        ("a>b c>a", "a>b [b] c>a"),
        ("a>b b>c d>b b>e", "a>b [b] b>c [c] d>b [b] b>e"),
        # After a barrier, steps may overwrite buffers of earlier steps.
        ("a>b b>c d>a", "a>b [b] b>c d>a"),
        # Places in one buffer are independent; a barrier is for the whole buffer.
        ("x>a y>a1 a2>z", "x>a y>a1 a2>z"),
        ("a>x y>a1", "a>x y>a1"),
        ("x>a1 y>a2 z>b a2>w", "x>a1 y>a2 z>b [ab] a2>w"),
    ],
)
def test_barriers_are_between_dependent_steps(steps, expected):
    steps = [step(text) for text in steps.split()]
    assert grouped(*steps) == expected
    # Without barriers, a submission begins where each barrier was.
    assert grouped(*steps, has_barriers=False) == re.sub(r"\[\w+\]", "|", expected)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("a>b*100 c>d*100", "a>b c>d"),
        ("a>b*150 c>d*50 e>f*1", "a>b c>d | e>f"),
        ("a>b*900 c>d*900", "a>b | c>d"),
        ("a>b*900 c>d e>f*100 g>h*100", "a>b | c>d e>f g>h"),
        # No barrier begins a submission, and earlier submissions need no barrier.
        ("a>b*50 b>c*150 d>b*150 b>e*50", "a>b [b] b>c | d>b [b] b>e"),
        ("a>b*150 c>d*100 e>b e>c", "a>b | c>d e>b [bd] e>c"),
    ],
)
def test_long_submissions_are_cut(steps, expected):
    assert grouped(*map(step, steps.split())) == expected


def test_steps_are_only_generated_when_their_submission_is():
    steps = [step("a>b*150") for _ in range(5)]
    waiting = iter(steps)
    assert list(islice(submissions(waiting, has_barriers=True), 3)) == [[first] for first in steps[:3]]
    assert list(waiting) == steps[4:]


def test_the_speed_is_measured_from_the_second_run_on():
    timing = Timing(0.001)
    steps = [step("a>b*10", timing), step("c>d*10", timing)]
    assert not update_timings(steps, 10.0)
    assert timing.seconds_per_element == 0.001
    assert not update_timings(steps, 0.1)
    assert timing.seconds_per_element == pytest.approx(0.005)
    assert not update_timings(steps, 0.01)
    assert timing.seconds_per_element == pytest.approx(0.0005)


@pytest.mark.parametrize("has_run", [True, False])
def test_a_run_of_less_than_a_millisecond_is_not_measured(has_run):
    timing = Timing(0.001, has_run=has_run)
    assert not update_timings([step("a>b*10", timing)], 0.0009)
    assert timing.seconds_per_element == 0.001
    update_timings([step("a>b*10", timing)], 0.1)
    assert timing.seconds_per_element == pytest.approx(0.01)


def test_pipelines_of_a_submission_change_by_the_same_factor():
    slow, fast = Timing(0.002, has_run=True), Timing(0.001, has_run=True)
    # 40 ms are expected, and 120 ms are measured.
    update_timings([step("a>b*10", slow), step("c>d*10", fast), step("b>e*10", fast)], 0.12)
    assert (slow.seconds_per_element, fast.seconds_per_element) == (pytest.approx(0.006), pytest.approx(0.003))


def test_no_pipeline_is_measured_beside_the_first_run_of_another():
    known, new = Timing(0.001, has_run=True), Timing(0.001)
    steps = [step("a>b*10", known), step("c>d*10", new)]
    assert not update_timings(steps, 10.0)
    assert (known.seconds_per_element, new.seconds_per_element) == (0.001, 0.001)
    update_timings(steps, 0.1)
    assert known.seconds_per_element == new.seconds_per_element == pytest.approx(0.005)


@pytest.mark.parametrize(("seconds", "is_cut"), [(0.19, False), (0.21, True)])
def test_a_submission_that_took_too_long_is_cut_the_next_time(seconds, is_cut):
    timing = Timing(0.001, has_run=True)
    steps = [step("a>b*50", timing), step("c>d*50", timing)]
    assert update_timings(steps, seconds) is is_cut
    assert (grouped(*steps) == "a>b | c>d") is is_cut


def test_a_step_that_takes_too_long_alone_is_marked():
    timing = Timing(0.001)
    alone = [step("a>b*50", timing)]
    for steps, seconds, expected in (
        (alone, 10.0, False),  # the first run is not measured
        (alone, 0.21, True),
        ([*alone, step("c>d*50", timing)], 0.21, False),
        (alone, 0.21, True),
        (alone, 0.19, False),
    ):
        assert not update_timings(steps, seconds) or len(steps) > 1  # a step cannot be cut
        assert timing.is_too_slow is expected
