#version 430
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Reductions where the elements of an output are contiguous in memory, and one block at least. They are read in blocks.
// LANES invocations share an output, or one split of its elements; neighbouring lanes read neighbouring blocks.

#define LANES_APART 1
#include "core/axes.glsl"
#ifdef COOPERATING
layout(constant_id = 11) const uint LANES = 1;  // invocations that share an item
#else
layout(constant_id = 12) const bool SHORT = false;  // to take each element is faster than extremes.glsl
layout(constant_id = 13) const bool ALIGNED_INSIDE = false;  // blocks inside of a row begin at multiples of 16 bytes
#endif
#include "core/lanes.glsl"
#include "core/row.glsl"

// On a GPU each is taken: what extremes.glsl loads again may be in no cache any more.
#if defined(HAS_EXTREMES) && !defined(COOPERATING)
#include "accumulators/extremes.glsl"
State state_of_elements(uint address, uint begin, uint end)
{
    return SHORT ? state_of_blocks(address, begin, end) : state_of_row(address, begin, end);
}
#else
#define state_of_elements state_of_blocks
#endif

// Elements begin to end - 1 of output number `i` of the dispatch. Element 0 is at `address`.
struct Split {
    uint number, i, address, begin, end;
};

// Items are numbered split by split: item = split * output_count + i.
Split split_of(uint item)
{
    Split split;
    split.number = TO_STATES ? item / output_count : 0;
    split.i = item - split.number * output_count;
    split_range(split.number, split.begin, split.end);
    split.address = address_of_kept(first_output + split.i, kept_rank) + source_base;
    return split;
}

// Writes item `next`, and says whether its bin missed an element.
bool reduce(uint next, uint count)
{
    Split split = split_of(min(next, count - 1));
    State state = state_of_elements(split.address, split.begin, split.end);
    RELOAD_BITS(state, Bits(0))  // lanes need no bits: they are loaded at the end
    state = of_all_lanes(state);
    bool writes = lane() == 0 && next < count;
    if (writes) {
        RELOAD_BITS(state, RELOADED ? LOAD(source, split.address + index_of(state)) : Bits(0))
        write(split.i, split.number, state);
    }
    return writes && has_missed(state);
}

void main()
{
    read_push();
    uint count = output_count * split_count;
    Items mine = shared_items_of(count);
    uint next = mine.next;
    while (next < mine.end) {
        uint first = next, missed = 0;  // bit i: item i has missed an element
        for (uint turn = 0; turn < 32 && next < mine.end; ++turn, next += turn_size())
            missed |= uint(reduce(next, count)) << turn;
#ifdef HAS_BIN
        // Drivers for CPUs run the body of a loop once, if only for no item: so it stands here, for 32 items.
        for (; missed != 0; missed &= missed - 1) {
            Split split = split_of(first + findLSB(missed) * turn_size());
            write(split.i, split.number, whole(closed(), split.address + split.begin, split.end - split.begin, 1));
        }
#endif
    }
    report(next, mine.end);
}
