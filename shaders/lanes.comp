#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Reductions as rows.comp, for GPUs: LANES invocations own an output, or a stretch of its elements, together.
// Neighbouring lanes read neighbouring blocks; their states are then combined through shared memory, two by two.

#include "core/axes.glsl"
#include "core/row.glsl"

layout(constant_id = 11) const uint LANES = 1;  // invocations that share an output, a power of 2

shared State states[GROUP_SIZE];

void main()
{
    read_push();
    uint items = output_count * stretch_count, at_once = GROUP_SIZE / LANES;
    uint here = gl_LocalInvocationID.x, lane = here % LANES;
    // All invocations of a group go round equally often, as barriers need: one without an item repeats the last.
    for (uint first = gl_WorkGroupID.x * at_once; first < items; first += gl_NumWorkGroups.x * at_once) {
        uint item = min(first + here / LANES, items - 1);
        uint stretch = RECORDS ? item / output_count : 0;
        uint i = item - stretch * output_count;
        uint begin, end;
        stretch_range(stretch, begin, end);
        uint address = address_of_kept(first_output + i, kept_rank) + source_base;
        State state = state_of_blocks(address, begin, end, lane, LANES);
        RECALL(state, Bits(0))  // not needed before the end
        states[here] = state;
        for (uint step = LANES / 2; step > 0; step /= 2) {
            barrier();  // what the other half wrote is there, and what it read was read
            if (lane < step) {
                state = combine(state, states[here + step]);
                states[here] = state;
            }
        }
        if (lane == 0 && first + here / LANES < items) {
            RECALL(state, RECALLED ? LOAD(source, address + index_of(state)) : Bits(0))
            write(i, stretch, state);
        }
        barrier();  // the next round writes where this one reads
    }
}
