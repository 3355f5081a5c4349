"""The allocator, with buffers that are only numbers."""

import contextlib
import itertools
import math
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlgpu.runtime.memory import ALIGNMENT, Allocator


class Buffers:
    """Creates and destroys buffers, and lists the live ones."""

    def __init__(self, limit: int | None = None) -> None:
        self.sizes: dict[int, int] = {}
        self.created = 0
        self.limit = limit

    def create(self, size: int) -> int:
        if self.limit is not None and sum(self.sizes.values()) + size > self.limit:
            raise MemoryError
        self.created += 1
        self.sizes[self.created] = size
        return self.created

    def destroy(self, handle: int) -> None:
        del self.sizes[handle]

    def allocator(self, step: int = 1024, keep: int = 0, **options) -> Allocator[int]:
        return Allocator(self.create, self.destroy, step=step, keep=keep, **{"shared": True, "most": 1 << 20} | options)


def check_slices(buffers: Buffers, slices: list) -> None:
    """Slices lie in live buffers, aligned, and no two share a byte."""
    for part in slices:
        assert part.offset % ALIGNMENT == 0
        assert part.offset + part.size <= buffers.sizes[part.buffer.handle]
    for a, b in itertools.combinations(slices, 2):
        apart = a.offset + a.size <= b.offset or b.offset + b.size <= a.offset
        assert a.buffer.handle != b.buffer.handle or apart


OPERATIONS = st.one_of(
    st.tuples(st.just("allocate"), st.integers(1, 3000)),
    st.tuples(st.just("release"), st.integers(0, 50)),
    st.tuples(st.just("collect"), st.just(0)),
    st.tuples(st.just("trim"), st.integers(0, 4000)),
)


@pytest.mark.parametrize(
    "options",
    [
        {"shared": False, "step": 256},
        {"shared": False, "step": 1024},
        {"shared": True, "step": 256},
        {"shared": True, "step": 4096},
        {"shared": True, "step": 512, "growth": 4, "most": 2048},
    ],
    ids=str,
)
@pytest.mark.parametrize("keep", [0, 2048])
@given(operations=st.lists(OPERATIONS, max_size=60))
@settings(derandomize=True, max_examples=80, deadline=None)
def test_slices_never_overlap_and_all_memory_is_released(options, keep, operations):
    buffers = Buffers()
    allocator = buffers.allocator(keep=keep, **options)
    slices = []
    for operation, number in operations:
        if operation == "allocate":
            slices.append(allocator.allocate(number))
            assert slices[-1].size == number
        elif operation == "release" and slices:
            del slices[number % len(slices)]
        elif operation == "collect":
            allocator.collect()
        elif operation == "trim":
            allocator.trim(number)
        check_slices(buffers, slices)
        used = (math.ceil(part.size / 256) * 256 if options["shared"] else part.buffer.size for part in slices)
        assert allocator.used_bytes == sum(used)
    slices.clear()
    allocator.collect()
    assert sum(buffers.sizes.values()) == allocator.empty_bytes <= keep
    allocator.trim(0)
    assert buffers.sizes == {}


def test_slices_of_similar_sizes_use_the_same_buffer_in_turn():
    buffers = Buffers()
    allocator = buffers.allocator(shared=False, keep=1 << 20)
    for size in (1, 1000, 300, 1024):
        allocator.allocate(size)
    assert list(buffers.sizes.values()) == [1024]
    for size in (3000, 2100):
        allocator.allocate(size)
    assert list(buffers.sizes.values()) == [1024, 3072]


@pytest.mark.parametrize("shared", [False, True])
def test_released_memory_is_used_again(shared):
    buffers = Buffers()
    allocator = buffers.allocator(shared=shared, keep=1024)
    for _ in range(10):
        allocator.allocate(700)
    assert buffers.created == 1


def test_released_neighbours_become_one_range():
    buffers = Buffers()
    allocator = buffers.allocator(keep=1024)
    slices = [allocator.allocate(256) for _ in range(4)]
    while slices:
        slices.pop(0)
    assert allocator.allocate(1024).offset == 0
    assert buffers.created == 1


@pytest.mark.parametrize(
    ("shared", "size", "buffer"),
    [
        # The size is a multiple of the step, up to a limit, or a multiple of the first slice of a shared buffer.
        *((False, *sizes) for sizes in ((1, 1024), (1024, 1024), (1025, 2048), (4000, 4096), (4100, 4352))),
        *((True, *sizes) for sizes in ((1, 1024), (257, 1024), (513, 768), (1025, 1280), (4100, 4352))),
    ],
)
def test_buffers_are_multiples_of_the_step_or_of_their_first_slice(shared, size, buffer):
    buffers = Buffers()
    buffers.allocator(most=4096, shared=shared).allocate(size)
    assert list(buffers.sizes.values()) == [buffer]


def test_slices_of_one_size_fill_a_heap():
    for size in range(256, 1 << 14, 768):
        buffers = Buffers(limit=1 << 16)
        allocator, slices = buffers.allocator(growth=4, most=1 << 14), []
        with contextlib.suppress(MemoryError):
            while True:
                slices.append(allocator.allocate(size))
        assert len(slices) == (1 << 16) // size


def test_buffers_grow():
    buffers = Buffers()
    allocator = buffers.allocator(growth=4, most=20_480)
    slices = [allocator.allocate(1024) for _ in range(45)]
    assert list(buffers.sizes.values()) == [1024, 4096, 16_384, 20_480, 20_480]
    check_slices(buffers, slices)


@pytest.mark.parametrize("step", [256, 1024])
def test_all_empty_buffers_are_destroyed_before_a_memory_error(step):
    """Kept buffers are destroyed, too, and those that were just released. The second attempt has the smallest size."""
    buffers, attempts = Buffers(), []
    allocator = buffers.allocator(step=step, growth=4, most=1 << 16, keep=1 << 20, shared=False)
    slices = [allocator.allocate(size) for size in (1024, 4096, 1024, 2048)]
    del slices[:2]
    allocator.collect()
    del slices[0]

    def create(size):
        attempts.append((size, sorted(buffers.sizes.values())))
        raise MemoryError

    allocator._create = create
    kept = slices[0].buffer.size
    with pytest.raises(MemoryError):
        allocator.allocate(1 << 15)
    assert [size for size, _ in attempts] == [1 << 16, 1 << 15]
    assert attempts[-1] == (1 << 15, [kept])


def test_a_small_slice_leaves_large_buffers_alone():
    buffers = Buffers(limit=9 * 1024)
    allocator = buffers.allocator(growth=8, keep=1 << 20)
    first = allocator.allocate(1024)
    allocator.allocate(8 * 1024)
    del first
    small = allocator.allocate(256)
    assert buffers.sizes[small.buffer.handle] == 1024
    assert allocator.allocate(8 * 1024).size == 8 * 1024
    del small
    assert len(buffers.sizes) == 2  # a release destroys no buffer


def test_the_least_recently_used_empty_buffers_are_destroyed_first():
    buffers = Buffers()
    allocator = buffers.allocator(shared=False, step=256, keep=1 << 20)
    slices = [allocator.allocate(size) for size in (512, 4096, 256)]
    while slices:
        slices.pop(0)
    allocator.allocate(512)
    assert allocator.empty_bytes == 512 + 4096 + 256
    allocator.trim(1024)
    assert sorted(buffers.sizes.values()) == [256, 512]
    allocator.trim(512)
    assert sorted(buffers.sizes.values()) == [512]


def test_a_buffer_that_cannot_be_created_changes_nothing():
    buffers = Buffers(limit=1024)
    allocator = buffers.allocator()
    part = allocator.allocate(1000)
    with pytest.raises(MemoryError):
        allocator.allocate(1)
    del part
    assert allocator.allocate(1024).offset == 0


@pytest.mark.parametrize("shared", [True, False])
def test_an_interrupt_at_any_line_of_collect_loses_nothing(shared):
    def interrupted(at: int) -> bool:
        allocator = Buffers().allocator(shared=shared, keep=1 << 20)
        slices = [allocator.allocate(size) for size in (256, 512, 256)]
        whole = sum({part.buffer: part.buffer.size for part in slices}.values())
        for i in (2, 0, 0):
            del slices[i]
        lines = itertools.count()

        def trace(frame, event, arg):
            if frame.f_code is not Allocator.collect.__code__:
                return None
            if event == "line" and next(lines) == at:
                raise KeyboardInterrupt
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            allocator.collect()
            return False
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
            assert (allocator.used_bytes, allocator.empty_bytes) == (0, whole)

    assert next(at for at in itertools.count() if not interrupted(at)) > 20
