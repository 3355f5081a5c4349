"""The turns of loops that plans count are those of llvmpipe, which ends loops without a word after 65,535 of them."""

import random

import pytest

import dmlgpu
from dmlgpu import ArgmaxOperatorDesc, TensorDesc
from dmlgpu.lowering.limits import Limits
from dmlgpu.lowering.loops import Loop
from dmlgpu.lowering.lower import lower
from tests.fuzz import large
from tests.fuzz.descriptors import Choices
from tests.support.cases import FLOAT32, UINT8
from tests.support.drivers import DRIVERS, device_of
from tests.support.limits import LIMITS, MAPPINGS
from tests.support.plans import chosen
from tests.support.turns import MOST, Counter


@pytest.fixture(scope="module")
def counter():
    if DRIVERS.get("lavapipe") is None:
        pytest.fail("the Vulkan driver lavapipe was not found; it is the one that counts turns")
    counter = Counter(device_of(DRIVERS["lavapipe"]).index)
    if counter.turns(rows().dispatches[0], 1) < 0:
        pytest.skip("this llvmpipe ends no loops: that of Mesa 22.3 does")
    return counter


def rows():
    """A plan for two cores: 8 rows of 256 blocks for each invocation."""
    limits = Limits(1 << 27, 64, 8, bundle=8)
    return lower(ArgmaxOperatorDesc.of(TensorDesc(FLOAT32, (4096, 1024)), axes=(1,)), limits)


def longest(plan):
    """Of every shader of a plan the dispatch whose loops turn most often."""
    return {d.shader: d for d in sorted(plan.dispatches, key=lambda d: d.iterations)}.values()


def test_a_loop_turns_once_more_for_its_end_and_for_those_inside():
    assert Loop(5).iterations == 6
    assert Loop(3, (Loop(5),)).iterations == 3 * (1 + 6) + 2
    assert Loop(0, (Loop(5), Loop(7, (Loop(1),)))).iterations == 4
    assert Loop(9, (Loop(5),)).most_turns(3 * (1 + 6) + 2) == 3
    assert Loop(9, (Loop(5),)).most_turns(3 * (1 + 6) + 1) == 2
    assert Loop(9, (Loop(5),)).most_turns(1) == 0


def test_turns_are_counted_as_they_are(counter):
    """Blocks are looked at four by four."""
    (dispatch,) = rows().dispatches
    assert dispatch.shader.variant == "rows"
    assert counter.turns(dispatch, 8) == 8 * (1 + 65) + 2


def test_the_counter_sees_the_end(counter):
    """An eighth of the invocations do not come to the end of what is planned for all."""
    limits = Limits(1 << 27, 64, 8, bundle=8)
    (dispatch,) = lower(ArgmaxOperatorDesc.of(TensorDesc(FLOAT32, (64, 512, 512)), axes=(0, 2)), limits).dispatches
    assert counter.turns(dispatch, 8) <= dispatch.iterations <= limits.loop_iterations
    assert counter.turns(dispatch, 1) >= MOST - 1


@pytest.mark.parametrize("cores", [1, 16])
def test_many_short_lines(counter, cores):
    """For each line the loops over its two elements end, and that which computes its address."""
    desc = ArgmaxOperatorDesc.of(TensorDesc(UINT8, (700, 16368, 2), (0, 3, 1)), axes=(1, 2))
    plan = lower(desc, Limits(1 << 27, 64, 4 * cores, bundle=8))
    for dispatch in longest(plan):
        turns = counter.turns(dispatch, plan.limits.group_count)
        assert turns <= dispatch.iterations <= plan.limits.loop_iterations


@pytest.mark.parametrize("seed", range(24))
def test_plans_of_any_size_count_no_less_than_llvmpipe(counter, seed):
    integer = random.Random(seed).randint
    limits, found = large.limits(Choices(integer)), 0
    while found < 2:
        try:
            plan = lower(large.operator(Choices(integer)), limits)
        except dmlgpu.DescriptorError:
            continue  # too much work
        if plan.limits.group_count > 4096:
            continue  # takes long
        found += 1
        for dispatch in longest(plan):
            turns = counter.turns(dispatch, plan.limits.group_count)
            assert turns <= dispatch.iterations <= plan.limits.loop_iterations, f"{plan.desc}\n{limits}\n{dispatch}"


def test_plans_of_every_kernel_count_no_less_than_llvmpipe(counter):
    """One of each kernel, accumulator, width and mapping."""
    done = set()
    for mapping in MAPPINGS:
        for case in chosen(mapping):
            plan = lower(case.desc, LIMITS[mapping])
            for dispatch in longest(plan):
                key = mapping in ("GPU", "split"), dispatch.shader.module
                if key not in done:
                    done.add(key)
                    turns = counter.turns(dispatch, plan.limits.group_count)
                    assert turns <= dispatch.iterations <= plan.limits.loop_iterations, f"{plan.desc}\n{dispatch}"
    assert len(done) > 150


# Planning


@pytest.mark.parametrize("cores", [1, 2, 256])
def test_loops_of_records_keep_to_the_limit(cores):
    """What a first pass leaves is combined in several levels, where it is much."""
    limits = Limits(1 << 27, 64, 4 * cores, bundle=8)
    plan = lower(ArgmaxOperatorDesc.of(TensorDesc(UINT8, (24576, 24576), (1, 24576)), axes=(0, 1)), limits)
    first, *others = [d for d in plan.dispatches if d.shader.variant == "combine"]
    assert first.push["state_count"] > 2048
    assert others[-1].push["state_count"] <= 2048
