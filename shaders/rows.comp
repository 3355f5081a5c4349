#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Over axes, where the elements of an output follow each other in memory, and are a block at least.
// One invocation computes one output, or one stretch of an output's elements. It reads blocks.

#include "core/axes.glsl"
#include "core/row.glsl"

layout(constant_id = 11) const bool SHORT = false;  // few elements: one look at all is faster than extremes.glsl

#ifdef HAS_EXTREMES
#include "accumulators/extremes.glsl"
#else
State state_of_row(uint address, uint begin, uint end) { return state_of_blocks(address, begin, end, 0, 1); }
#endif

void main()
{
    read_push();
    Items mine = items_of(output_count * stretch_count);
    // Items are numbered stretch by stretch: item = stretch * output_count + i.
    for (uint item = mine.next; item < mine.end; item += BUNDLE) {
        uint stretch = RECORDS ? item / output_count : 0;
        uint i = item - stretch * output_count;
        uint begin, end;
        stretch_range(stretch, begin, end);
        uint address = address_of_kept(first_output + i, kept_rank) + source_base;
        State state = SHORT ? state_of_blocks(address, begin, end, 0, 1) : state_of_row(address, begin, end);
        RECALL(state, RECALLED ? LOAD(source, address + index_of(state)) : Bits(0))
        write(i, stretch, state);
    }
}
