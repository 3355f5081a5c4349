"""The allocator, over buffers that only exist here."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlgpu.memory import ALIGNMENT, Allocator, aligned


class Buffers:
    """Creates and destroys buffers, and knows those that are alive."""

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

    def allocator(self, chunk: int = 1024, keep: int = 0) -> Allocator[int]:
        return Allocator(self.create, self.destroy, chunk=chunk, keep=keep)


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


@pytest.mark.parametrize("chunk", [0, 256, 1024, 4096])
@pytest.mark.parametrize("keep", [0, 2048])
@given(operations=st.lists(OPERATIONS, max_size=60))
@settings(derandomize=True, max_examples=80, deadline=None)
def test_slices_never_overlap_and_everything_comes_back(chunk, keep, operations):
    buffers = Buffers()
    allocator = buffers.allocator(chunk, keep)
    slices = []
    for operation, number in operations:
        if operation == "allocate":
            slices.append(allocator.allocate(number))
            assert slices[-1].size >= number
        elif operation == "release" and slices:
            allocator.release(slices.pop(number % len(slices)))
        elif operation == "collect":
            allocator.collect()
        elif operation == "trim":
            allocator.trim(number)
        check_slices(buffers, slices)
    for part in slices:
        allocator.release(part)
    allocator.collect()
    assert sum(buffers.sizes.values()) <= keep
    allocator.trim(0)
    assert buffers.sizes == {}


@pytest.mark.parametrize(("size", "result"), [(0, 0), (1, 256), (256, 256), (257, 512)])
def test_aligned(size, result):
    assert aligned(size) == result


def test_small_slices_share_a_buffer():
    buffers = Buffers()
    allocator = buffers.allocator(chunk=1024)
    slices = [allocator.allocate(200) for _ in range(4)]
    assert buffers.created == 1
    assert sorted(part.offset for part in slices) == [0, 256, 512, 768]


def test_without_chunks_every_slice_has_a_buffer_of_its_own():
    buffers = Buffers()
    allocator = buffers.allocator(chunk=0)
    assert len({allocator.allocate(200).buffer.handle for _ in range(4)}) == 4


@pytest.mark.parametrize("chunk", [0, 1024])
def test_what_was_released_is_used_again(chunk):
    buffers = Buffers()
    allocator = buffers.allocator(chunk, keep=1024)
    for _ in range(10):
        allocator.release(allocator.allocate(700))
    assert buffers.created == 1


def test_neighbours_that_were_released_become_one():
    buffers = Buffers()
    allocator = buffers.allocator(chunk=1024, keep=1024)
    for part in [allocator.allocate(256) for _ in range(4)]:
        allocator.release(part)
    assert allocator.allocate(1024).offset == 0
    assert buffers.created == 1


def test_a_slice_larger_than_a_chunk_has_a_buffer_of_its_size():
    buffers = Buffers()
    buffers.allocator(chunk=1024).allocate(5000)
    assert list(buffers.sizes.values()) == [aligned(5000)]


def test_releasing_destroys_nothing_yet():
    buffers = Buffers()
    allocator = buffers.allocator()
    allocator.release(allocator.allocate(1))
    assert len(buffers.sizes) == 1
    allocator.collect()
    assert buffers.sizes == {}


def test_the_largest_empty_buffers_go_first():
    buffers = Buffers()
    allocator = buffers.allocator(chunk=0, keep=1000)
    for part in [allocator.allocate(size) for size in (512, 4096, 256)]:
        allocator.release(part)
    allocator.collect()
    assert sorted(buffers.sizes.values()) == [256, 512]


def test_a_buffer_that_cannot_be_made_changes_nothing():
    buffers = Buffers(limit=1024)
    allocator = buffers.allocator()
    part = allocator.allocate(1000)
    with pytest.raises(MemoryError):
        allocator.allocate(1)
    allocator.release(part)
    assert allocator.allocate(1024).offset == 0
