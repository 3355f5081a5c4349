"""The arithmetic of windows against lists of their positions."""

import itertools

import pytest

from dmlgpu.descriptors.window import Window

RANGES = {
    "size": range(1, 6),
    "window_size": range(1, 4),
    "stride": range(1, 4),
    "start_padding": range(4),
    "end_padding": range(3),
    "dilation": range(1, 4),
}
WINDOWS = [
    window._replace(output_size=count)
    for window in itertools.starmap(Window, itertools.product(*RANGES.values()))
    for count in (window.fitting, window.rounded(True))
    if count > 0
]


def positions(window: Window) -> list[range]:
    """The positions of each window."""
    begins = [window.begin(i) for i in range(window.output_size)]
    return [range(begin, begin + window.extent, window.dilation) for begin in begins]


def inside(window: Window, row: range) -> list[int]:
    """The positions of a window that hold an element."""
    return [position for position in row if 0 <= position < window.size]


def test_extents_and_counts_are_those_of_the_positions():
    for window in WINDOWS:
        (*_, last), end = positions(window), window.size + window.end_padding
        assert all(len(row) == window.window_size for row in positions(window))
        assert last[-1] + window.start_padding + 1 == window.end
        assert max(0, last[-1] + 1 - window.size) == window.overhang
        many = positions(window._replace(output_size=20))
        assert sum(row[-1] < end for row in many) == max(0, window.fitting)
        rounded = [begin for begin, *_ in many if begin + window.extent - window.stride < end]
        if rounded:
            assert len(rounded) - (rounded[-1] >= window.size) == window.rounded(True)
        assert next((i for i, row in enumerate(positions(window)) if not inside(window, row)), None) == (
            window.first_empty(window.output_size)
        )


def test_a_part_of_the_windows_has_their_elements():
    for window in WINDOWS:
        assert all(len(inside(window, row)) <= window.inside for row in positions(window))
        if window.first_empty(window.output_size) is not None:
            continue
        for begin, end in itertools.combinations(range(window.output_size + 1), 2):
            first, part = window.part(range(begin, end))
            assert 0 <= first <= first + part.size <= window.size
            expected = [inside(window, row) for row in positions(window)[begin:end]]
            assert [[first + position for position in inside(part, row)] for row in positions(part)] == expected


def test_windows_that_cover_elements_are_known():
    for window in WINDOWS:
        spans = [range(row[0], row[-1] + 1) for row in positions(window)]
        over = [{i for i, span in enumerate(spans) if position in span} for position in range(window.size)]
        assert max(map(len, over)) <= window.overlap
        for first, last in itertools.combinations_with_replacement(range(window.size), 2):
            low, high = window.covering(first, last)
            expected = set().union(*over[first : last + 1])
            # Elements between two windows may lie in none.
            assert expected <= set(range(low, high + 1))
            assert not expected or (low, high) == (min(expected), max(expected))
        gradient = window.transposed
        assert gradient.padded == window.size + window.reach
        at = range(0, gradient.size * window.stride, window.stride)
        assert [{i // window.stride for i in row if i in at} for row in positions(gradient)] == over


@pytest.mark.parametrize("padding", [False, True])
def test_averages_count_the_padding_or_only_the_input(padding):
    for window in WINDOWS:
        begin, end = window.counted(padding)
        before, after = padding * window.start_padding, padding * window.end_padding
        assert range(begin - window.start_padding, end - window.start_padding) == range(-before, window.size + after)
