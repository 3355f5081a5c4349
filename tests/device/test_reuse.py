"""What calls share: buffers, pipelines and recordings; in a batch, also submissions."""

import contextlib
import ctypes
import mmap
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import dmlgpu
from dmlgpu import ArgmaxOperatorDesc, ArgminOperatorDesc, DeviceError, OutOfMemoryError, TensorDesc, argmax
from dmlgpu.testing.cases import FLOAT32, UINT8, UINT32, UNPOOLED, Case, arg_desc, pool_desc
from dmlgpu.testing.fills import any_bits
from tests.support.drivers import discrete, opened_as
from tests.support.errors import refuses

pytestmark = pytest.mark.every_driver

X = np.random.default_rng(0).permutation(600).astype(np.float32).reshape(20, 30)
ROWS = arg_desc(ArgmaxOperatorDesc, FLOAT32, (20, 30), [1])
COLUMNS = arg_desc(ArgmaxOperatorDesc, FLOAT32, (20, 30), [0])
# An axis so long that it needs two passes.
LONG = arg_desc(ArgmaxOperatorDesc, FLOAT32, (1, 100_000), [1])
LONG_CASE = Case("long", LONG, (any_bits,))


def has_maxima(result, x=X, axis=1):
    """Whether an array, or a device tensor, holds the indices of the maxima of x."""
    return np.asarray(result).reshape(-1).tolist() == x.argmax(axis).tolist()


@pytest.fixture
def counts(kp):
    return kp.counts


# Calls


def python_calls(function) -> int:
    """Number of functions, and comprehensions, of dmlgpu that run in a call."""
    names = []
    sys.setprofile(lambda frame, event, _: names.append(frame.f_code.co_filename) if event == "call" else None)
    try:
        function()
    finally:
        sys.setprofile(None)
    return sum(name.startswith(str(Path(dmlgpu.__file__).parent)) for name in names)


@pytest.mark.parametrize(("desc", "most"), [(ROWS, 80), (pool_desc(FLOAT32, (1, 1, 20, 30), (3, 3)), 105)])
def test_a_later_call_does_little_in_python(fresh_unified, desc, most):
    operator, x = fresh_unified.compile(desc), X.reshape(desc.inputs[0].sizes)
    operator(x)
    assert python_calls(lambda: operator(x)) <= most


def test_a_later_call_of_a_function_does_little_more(fresh_unified):
    operator, x = fresh_unified.compile(ROWS), fresh_unified.tensor(X)
    target, out = operator(x), argmax(x, 1)
    argmax(x, 1, out=out)
    calls = lambda: operator(x, out=target), lambda: argmax(x, 1, out=out)
    # The minimum of several calls, because a slow submission would be measured, too.
    of_operator, of_function = (min(python_calls(call) for _ in range(9)) for call in calls)
    assert of_function <= of_operator + 24
    assert has_maxima(out)


def test_functions_keep_no_operator_that_its_device_dropped(fresh_unified, driver):
    x = fresh_unified.tensor(X)
    for _ in range(2):
        assert has_maxima(argmax(x, 1))
        assert fresh_unified.cache_info().operators == 1
        fresh_unified.clear_cache()
        assert fresh_unified.cache_info().operators == 0
    with dmlgpu.Device(driver.index) as other:
        for device in (fresh_unified, other, fresh_unified):
            assert has_maxima(argmax(device.tensor(X), 1))
            assert device.cache_info().operators == 1


def test_what_was_refused_is_recorded_anew(fresh_staged, kp):
    """Vulkan may have refused the end of the recording, which cannot be submitted again."""
    operator, tensor = fresh_staged.compile(ROWS), fresh_staged.tensor(X)
    target = operator(tensor)

    def refuse():
        raise MemoryError

    def new_sequences(step):
        """Number of sequences that a step creates after it was refused."""
        kp.before = refuse
        with pytest.raises(OutOfMemoryError, match="no memory left for a submission"):
            step()
        kp.before = bool
        before = kp.counts["sequences"]
        step()
        return kp.counts["sequences"] - before

    for _ in range(2):
        operator(tensor, out=target)
        assert has_maxima(target)
    assert new_sequences(lambda: operator(tensor, out=target)) == 1
    assert new_sequences(target.numpy) == 1
    assert has_maxima(target)


def test_compiling_makes_all_that_a_call_needs(either, counts):
    operator = either.compile(LONG)
    x = np.zeros((1, 100_000), np.float32)
    counts.clear()
    for i in range(3):
        x[0, 1000 * i] = i + 1
        assert operator(x).item() == 1000 * i
    assert (counts["buffers"], counts["recordings"], counts["submissions"]) == (0, 0, 3)
    assert either.cache_info().pipelines == 2


def in_a_buffer_of(size: int) -> ArgmaxOperatorDesc:
    """An operator on few elements, whose input tensor has this many bytes."""
    return ArgmaxOperatorDesc(TensorDesc(UINT8, (5,), None, size), TensorDesc(UINT32, (1,)), (0,))


SMALL = np.array([1, 3, 2, 0, 3], np.uint8)


def test_a_large_operator_keeps_its_buffers(driver, counts):
    # Operators that nobody compiled may keep 4 MiB of heaps of 32 MiB.
    with opened_as(driver, heaps=(32 << 20,) * len(driver.heaps)) as device:
        small, large = device.compile(in_a_buffer_of(3 << 20)), device.compile(in_a_buffer_of(12 << 20))
        counts.clear()
        for _ in range(2):
            assert large(SMALL).tolist() == small(SMALL).tolist() == [1]
        assert counts["buffers"] == 0
        assert 12 << 20 <= device.cache_info().buffer_bytes <= device.cache_info().buffer_bytes_limit
        del large
        device.clear_cache()
        assert device.cache_info().buffer_bytes == 0
        assert device.cache_info().buffer_bytes_limit < 6 << 20


def test_kept_buffers_make_room_for_partials(driver):
    with opened_as(driver, heaps=(24 << 20,) * len(driver.heaps)) as device:
        x = np.zeros((1, 100_000), np.float32)
        x[0, 77_777] = 1
        # One buffer of 1.5 MiB, one of 20, and one of almost the 2.5 MiB left, which is kept.
        tensor, beside = device.tensor(x), device.tensor(np.zeros(20 << 20, np.uint8))
        device.tensor(np.zeros((5 << 19) - 50_000, np.uint8))
        assert device.cache_info().buffer_bytes > 2 << 20
        assert device.planned(LONG)(tensor).numpy().item() == 77_777
        assert beside.numpy().max() == 0


def test_a_new_shape_of_a_known_kernel_is_not_compiled(fresh_unified, counts):
    def pipelines(more):
        """Number of pipelines after calls with this many more rows or planes."""
        for rows, width in [(20, 30), (33, 64), (8, 60), (1000, 50), (100, 60), (8000, 62)]:
            argmax(np.zeros((rows + more, width), np.float32), 1, device=fresh_unified)
        for planes, height, width in [(1, 8, 8), (6, 9, 7), (5, 200, 300), (8, 32, 32)]:
            x = np.zeros((1, planes + more, height, width), np.float32)
            dmlgpu.max_pooling(x, (2, 2), output_indices=True, device=fresh_unified)
        return fresh_unified.cache_info().pipelines

    assert pipelines(0) == pipelines(1) == pipelines(2) < 10
    assert counts["buffers"] == 1


def test_tensors_of_similar_sizes_use_the_same_buffer(fresh_staged, counts):
    for size in (10, 1000, 9000, 16_000):
        argmax(np.arange(size, dtype=np.float32), device=fresh_staged)
    assert counts["buffers"] <= 3


def test_transfers_are_recorded_once_for_each_buffer(fresh_staged, counts):
    for i in range(3):
        assert fresh_staged.tensor(X + i).numpy()[0, 0] == X[0, 0] + i
    # Elements that the host wrote are not downloaded.
    assert (counts["buffers"], counts["sequences"], counts["transfers"]) == (1, 1, 3)
    operator, target = fresh_staged.compile(ROWS), fresh_staged.tensor(np.zeros((20, 1), np.uint32))
    tensors = [(x, fresh_staged.tensor(x)) for x in (X, -X)]
    operator(tensors[0][1], out=target).numpy()
    counts.clear()
    for x, tensor in tensors:
        operator(tensor, out=target)
        for _ in range(2):
            assert has_maxima(target, x)
    assert (counts["submissions"], counts["transfers"], counts["sequences"]) == (2, 2, 1)


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_small_arrays_of_a_call_with_several_submissions(either, counts, dtype, monkeypatch):
    monkeypatch.setattr("dmlgpu.runtime.schedule.SUBMISSION_SECONDS", 0)
    x, places = np.arange(1, 65, dtype=dtype).reshape(1, 1, 8, 8), np.arange(64, dtype=np.uint32).reshape(1, 1, 8, 8)
    desc = dmlgpu.MaxUnpoolingOperatorDesc.of(x, (1, 1, 200, 200), indices_data_type=UINT32)
    operator = either.compile(desc)
    for i in range(2):
        counts.clear()
        expected = np.zeros(desc.output_tensor.sizes, dtype)
        expected.reshape(-1)[places * 600 + i] = x
        assert np.array_equal(operator(x, places * 600 + i), expected)
        assert counts["submissions"] > 1


def test_arrays_and_device_tensors_in_one_call(either):
    desc = dmlgpu.MaxPoolingGradOperatorDesc.of(TensorDesc(FLOAT32, (1, 1, 4, 6)), window_size=(2, 2), strides=(2, 2))
    operator = either.compile(desc)
    x = X.reshape(-1)[:24].reshape(1, 1, 4, 6)
    y = np.ones(desc.inputs[1].sizes, np.float32)
    expected = operator(x, y)
    for inputs in ((either.tensor(x), y), (x, either.tensor(y))):
        result = operator(*inputs)
        assert type(result) is np.ndarray
        assert np.array_equal(result, expected)
    target = either.tensor(np.full(desc.outputs[0].sizes, 7, np.float32))
    assert np.array_equal(operator(x, y, out=target), expected)
    assert np.array_equal(target, expected)


# docs/performance.md has the same table of submissions, transfers, copies and barriers.

SMALL_POOL = pool_desc(FLOAT32, (1, 1, 20, 30), (2, 2))
CHAIN = [
    pool_desc(FLOAT32, (1, 1, 20, 30), (2, 2), indices=None),
    pool_desc(FLOAT32, (1, 1, 19, 29), (3, 3), indices=None),
    arg_desc(ArgmaxOperatorDesc, FLOAT32, (1, 1, 17, 27), [2, 3]),
]
MADE_OF = {
    # what: (operators, whether it is given an array, whether it is a batch, unified, staged)
    "device tensors": ([SMALL_POOL], False, False, (1, 0, 0, 0), (1, 0, 0, 0)),
    "small arrays": ([SMALL_POOL], True, False, (1, 0, 0, 0), (1, 0, 3, 0)),
    "device tensors, two passes": ([LONG], False, False, (1, 0, 0, 1), (1, 0, 0, 1)),
    # The upload is a separate submission, so that its copy is not timed as part of the steps.
    "a large array, two passes": ([LONG], True, False, (1, 0, 0, 1), (1, 1, 2, 1)),
    "three operators": (CHAIN, False, False, (3, 0, 0, 0), (3, 0, 0, 0)),
    "three operators in a batch": (CHAIN, False, True, (1, 0, 0, 2), (1, 0, 0, 2)),
}


@pytest.mark.parametrize(("descs", "array", "batch", "unified", "staged"), MADE_OF.values(), ids=MADE_OF)
def test_what_a_call_is_made_of(either, counts, descs, array, batch, unified, staged):
    operators = [either.compile(desc) for desc in descs]
    x = np.random.default_rng(0).standard_normal(descs[0].inputs[0].sizes, dtype=np.float32)
    calls = [(values, values if array else either.tensor(values)) for values in (x, -x)]
    for expected, result in 2 * calls:
        counts.clear()
        with either.batch() if batch else contextlib.nullcontext():
            for operator in operators:
                result = operator(result)
        made = tuple(counts[name] for name in ("submissions", "transfers", "copies", "barriers"))
        assert made == (unified if either.info.unified else staged)
        for desc in descs:
            expected, *_ = dmlgpu.reference(desc, expected)
        assert np.array_equal(result[0] if isinstance(result, tuple) else result, expected)


@pytest.mark.parametrize(("descs", "submissions"), [([LONG], 2), (CHAIN, 3)], ids=["two passes", "a batch"])
def test_without_barriers_each_dependent_step_is_a_submission(driver, kp, monkeypatch, descs, submissions):
    """The original kp has none."""
    monkeypatch.setattr(kp, "OpMemoryBarrier", None, raising=False)
    with opened_as(driver) as device:
        expected = np.random.default_rng(0).standard_normal(descs[0].inputs[0].sizes, dtype=np.float32)
        operators, result = [device.compile(desc) for desc in descs], device.tensor(expected)
        kp.counts.clear()
        with device.batch():
            for operator in operators:
                result = operator(result)
                expected, *_ = dmlgpu.reference(operator.desc, expected)
        assert (kp.counts["submissions"], kp.counts["barriers"]) == (submissions, 0)
        assert np.array_equal(result, expected)


# Memory that operators hold


def test_buffers_of_a_compiled_operator_are_little_more_than_its_tensors(fresh_staged, kp):
    kept = []
    for desc in (ROWS, LONG, arg_desc(ArgmaxOperatorDesc, UINT8, (5 << 20, 3), [1])):
        before = sum(kp.alive_bytes)
        kept.append(fresh_staged.compile(desc))
        tensors = sum(tensor.size_in_bytes for tensor in (*desc.inputs, *desc.outputs))
        assert sum(kp.alive_bytes) - before <= tensors + (1 << 20)
        assert tensors <= fresh_staged.cache_info().buffer_bytes


def test_pages_of_a_new_buffer_take_no_memory_until_they_are_written_to(fresh_unified, monkeypatch):
    calls = []
    libc = SimpleNamespace(madvise=lambda address, size, advice: calls.append((size.value, advice)))
    monkeypatch.setattr("dmlgpu.runtime.kompute.ctypes", SimpleNamespace(**vars(ctypes) | {"CDLL": lambda _: libc}))
    tensor = fresh_unified.tensor(np.zeros(5 << 20, np.uint8))
    ((size, advice),) = calls
    assert (advice, tensor.nbytes <= size) == (mmap.MADV_DONTNEED, True)


# What is kept


def test_cache_is_shown_and_cleared(either):
    operator = either.compile(ROWS)
    argmax(X, 0, device=either)
    info = either.cache_info()
    assert (info.operators, info.pipelines) == (2, 2)
    assert 0 < info.buffer_bytes <= info.buffer_bytes_limit
    assert info.tensor_bytes == 0
    tensor = either.tensor(X)
    assert either.cache_info().tensor_bytes >= X.nbytes
    either.clear_cache()
    info = either.cache_info()
    assert (info.operators, info.pipelines) == (0, 0)
    assert all(map(has_maxima, (operator(tensor), operator(X))))
    del tensor
    either.clear_cache()
    assert either.cache_info().buffer_bytes == either.cache_info().tensor_bytes == 0


def test_cache_of_the_functions(driver, fresh, monkeypatch):
    monkeypatch.setenv("DMLGPU_DEVICE", str(driver.index))
    dmlgpu.clear_cache()
    argmax(X)
    assert dmlgpu.cache_info() == dmlgpu.functions.open_device().cache_info()
    assert dmlgpu.cache_info().operators == 1
    dmlgpu.clear_cache()
    assert dmlgpu.cache_info().operators == dmlgpu.cache_info().buffer_bytes == 0
    assert has_maxima(argmax(X, 1))
    argmax(X, device=fresh)
    assert dmlgpu.cache_info(device=fresh) == fresh.cache_info()
    dmlgpu.clear_cache(device=fresh)
    assert fresh.cache_info().operators == 0


def test_calls_of_functions_keep_no_more_bytes_than_the_limit(driver):
    with opened_as(driver, heaps=(8 << 20,) * len(driver.heaps)) as device:
        for size in (40_000, 300_000, 80_000, 400_000, 120_000):
            assert argmax(np.zeros(size, np.int64), device=device).item() == 0
            info = device.cache_info()
            assert info.buffer_bytes <= info.buffer_bytes_limit < 2 << 20


def recorded(counts, operator, tensor):
    """Whether a call, whose result is right, is recorded anew."""
    counts.clear()
    assert np.array_equal(operator(tensor), dmlgpu.reference(operator.desc, X)[0])
    return counts["recordings"] > 0


@pytest.mark.parametrize("limit", ["_PIPELINES", "_RECORDINGS"])
def test_what_was_unused_for_longest_is_made_anew(fresh, counts, monkeypatch, limit):
    kinds = (ArgmaxOperatorDesc, 0), (ArgmaxOperatorDesc, 1), (ArgminOperatorDesc, 0)
    operators = [fresh.compile(arg_desc(kind, FLOAT32, X.shape, [axis])) for kind, axis in kinds]
    dmlgpu.clear_cache(device=fresh)  # compiling makes a pipeline, and records
    monkeypatch.setattr(f"dmlgpu.runtime.kompute.{limit}", 2)
    tensor = fresh.tensor(X)
    for order, are_recorded in (
        # The first is used again, from its recording, before the third comes.
        ((0, 1, 0, 2), [True, True, False, True]),
        ((0, 2, 1), [False, False, True]),
        ((2, 1, 0), [False, False, True]),
    ):
        assert [recorded(counts, operators[i], tensor) for i in order] == are_recorded
        assert fresh.cache_info().pipelines == (2 if limit == "_PIPELINES" else 3)


def test_pipelines_of_freed_buffers_are_dropped(driver):
    with opened_as(driver, **discrete(driver) | {"heaps": (24 << 20, 24 << 20)}) as device:
        kept = device.tensor(np.zeros(20 << 20, np.uint8))
        operator = device.compile(ROWS)
        operator(X)
        assert device.cache_info().pipelines == 1
        # Before the device raises the error, it frees all buffers without tensors.
        with pytest.raises(OutOfMemoryError):
            device.tensor(np.zeros(8 << 20, np.uint8))
        assert device.cache_info().pipelines == device.cache_info().buffer_bytes == 0
        assert has_maxima(operator(X))
        assert kept.numpy().max() == 0


# Batches


@pytest.mark.parts_of_buffers
def test_independent_calls_are_one_submission(either, counts):
    operators = [(1, either.compile(ROWS)), (0, either.compile(COLUMNS))]
    tensors = [(x, either.tensor(x)) for x in (X, -X)]
    for recordings in 1, 0:
        counts.clear()
        with either.batch():
            results = [(operator(tensor), x, axis) for axis, operator in operators for x, tensor in tensors]
            assert counts["submissions"] == 0
        assert (counts["submissions"], counts["recordings"]) == (1, recordings)
        assert all(has_maxima(*result) for result in results)
        del results


def test_a_batch_keeps_the_order_of_reads_and_writes(either):
    operator, target = either.compile(ROWS), either.tensor(np.zeros((20, 1), np.uint32))
    copy = either.compile(pool_desc(FLOAT32, (1, 1, 20, 30), (1, 1), indices=None))
    x = X.reshape(1, 1, 20, 30)
    a, b, first, second = map(either.tensor, (x, -x, -X, X))
    with either.batch():
        operator(first, out=target)
        operator(second, out=target)
        before = copy(a)
        copy(b, out=a)
        after = copy(a)
    assert has_maxima(target)
    assert np.array_equal(before, x)
    assert np.array_equal(a, -x)
    assert np.array_equal(after, -x)


@pytest.mark.parametrize("verified", ["0", "1"])
def test_reading_in_a_batch(any_device, monkeypatch, verified):
    monkeypatch.setenv("DMLGPU_VERIFY", verified)
    rows, columns = map(any_device.compile, (ROWS, COLUMNS))
    with any_device.batch():
        assert has_maxima(rows(X))
        assert has_maxima(columns(-X), -X, 0)
        assert has_maxima(rows(any_device.tensor(X)))
        later, last = rows(any_device.tensor(X)), rows(any_device.tensor(-X))
        assert later.bytes().view(np.uint32).tolist() == X.argmax(1).tolist()
    assert has_maxima(last, -X)


def test_an_exception_in_a_batch_leaves_what_was_called(either):
    operator, tensor = either.compile(ROWS), either.tensor(X)
    results = []
    with pytest.raises(dmlgpu.DescriptorError), either.batch():  # noqa: PT012
        results.append(operator(tensor))
        operator(X[:3])
    assert has_maxima(results[0])
    assert has_maxima(either.compile(COLUMNS)(tensor), X, 0)


@pytest.mark.parts_of_buffers
def test_batches_nest(fresh, counts):
    operator, tensor = fresh.compile(ROWS), fresh.tensor(X)
    with fresh.batch():
        with fresh.batch():
            inner = operator(tensor)
        assert counts["submissions"] == 0
        outer = operator(tensor)
    with fresh.batch():
        pass  # submits nothing
    assert counts["submissions"] == 1
    assert has_maxima(inner)
    assert has_maxima(outer)


def test_tensors_dropped_in_a_batch_live_until_it_is_computed(any_device):
    operator = any_device.compile(ROWS)
    arrays = [np.roll(X, i) for i in range(40)]
    with any_device.batch():
        results = [operator(any_device.tensor(x)) for x in arrays]
    for x, result in zip(arrays, results, strict=True):
        assert has_maxima(result, x)


@pytest.mark.parts_of_buffers
def test_a_batch_of_hundreds_of_calls_is_computed_in_parts(fresh, counts):
    operator, tensor = fresh.compile(ROWS), fresh.tensor(X)
    with fresh.batch():
        results = [operator(tensor) for _ in range(200)]
    assert 1 < counts["submissions"] < 10
    assert all(map(has_maxima, results))


@pytest.mark.parts_of_buffers
@pytest.mark.parametrize("case", [LONG_CASE, *UNPOOLED[:1]], ids=["partials", "between"])
def test_a_batch_of_two_passes_is_one_submission(either, counts, case):
    """The batch is recorded once, although each call has a separate workspace."""
    operator, inputs = either.compile(case.desc), case.inputs()
    (expected,) = dmlgpu.reference(case.desc, *inputs)
    tensors = [either.tensor(x, desc) for x, desc in zip(inputs, case.desc.inputs, strict=True)]
    targets = [either.tensor(np.zeros_like(expected), case.desc.outputs[0]) for _ in range(12)]
    for recordings, buffers in (1, 0 if either.info.unified else len(targets)), (0, 0):
        counts.clear()
        with either.batch():
            for target in targets:
                operator(*tensors, out=target)
        assert (counts["submissions"], counts["buffers"], counts["recordings"]) == (1, buffers, recordings)
        assert all(np.array_equal(target, expected) for target in targets)
    if either.info.unified:
        assert either.cache_info().pipelines == len({dispatch.shader for dispatch in operator.plan.dispatches})


def test_a_batch_computes_its_calls_when_memory_runs_out(driver):
    with opened_as(driver, heaps=(24 << 20,) * len(driver.heaps)) as device:
        desc = in_a_buffer_of(2 << 20)
        operator = device.compile(desc)
        with device.batch():
            for i in range(30):
                result = operator(device.tensor(np.roll(SMALL, i), desc.input_tensor))
            with pytest.raises(OutOfMemoryError):
                device.tensor(np.zeros(25 << 20, np.uint8))
        assert result.numpy().tolist() == [0]


def test_clearing_the_cache_in_a_batch(fresh):
    operator, tensor = fresh.compile(ROWS), fresh.tensor(X)
    with fresh.batch():
        first = operator(tensor)
        fresh.clear_cache()
        second = operator(tensor)
    assert has_maxima(first)
    assert has_maxima(second)


def test_other_threads_join_a_batch(any_device):
    operator, tensor = any_device.compile(ROWS), any_device.tensor(X)
    with any_device.batch(), ThreadPoolExecutor(4) as threads:
        results = [threads.submit(lambda: operator(tensor).numpy()) for _ in range(4)]
        here = operator(tensor)
    assert all(map(has_maxima, (here, *(result.result() for result in results))))


def test_closing_a_device_in_a_batch(driver):
    device = dmlgpu.Device(driver.index)
    with device.batch():
        result = device.compile(ROWS)(device.tensor(X))
        device.close()
    refuses(r"is closed$", result.numpy, error=DeviceError)
