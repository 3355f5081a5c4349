#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Reductions where the elements of an output are contiguous in memory, and one block at least. They are read in blocks.
// LANES invocations share an output, or one split of its elements; neighbouring lanes read neighbouring blocks.

#define LANES_APART 1
#include "core/axes.glsl"
#ifdef COOPERATING
layout(constant_id = 11) const uint LANES = 1;  // invocations that share an item
#endif
#include "core/lanes.glsl"
#include "core/row.glsl"

layout(constant_id = 12) const bool SHORT = false;  // few elements: to take each is faster than extremes.glsl

#ifdef HAS_EXTREMES
#include "accumulators/extremes.glsl"
#else
#define state_of_row state_of_blocks
#endif

void main()
{
    read_push();
    uint count = output_count * split_count;
    Items mine = shared_items_of(count);
    // Items are numbered split by split: item = split * output_count + i.
    for (uint next = mine.next; next < mine.end; next += turn()) {
        uint item = min(next, count - 1);
        uint split = TO_STATES ? item / output_count : 0;
        uint i = item - split * output_count;
        uint begin, end;
        split_range(split, begin, end);
        uint address = address_of_kept(first_output + i, kept_rank) + source_base;
        State state = SHORT ? state_of_blocks(address, begin, end) : state_of_row(address, begin, end);
        RELOAD_BITS(state, Bits(0))  // lanes need no bits: they are loaded at the end
        state = of_all_lanes(state);
        if (lane() == 0 && next < count) {
            RELOAD_BITS(state, RELOADED ? LOAD(source, address + index_of(state)) : Bits(0))
            write(i, split, whole(state, address + begin, end - begin, 1));
        }
    }
}
