#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// ARGMAX and ARGMIN as rows.comp, for GPUs: LANES invocations own an output, or a stretch of its elements, together.
// Neighbouring lanes read neighbouring blocks; their bests are then combined through shared memory, two by two.

#include "reduction.glsl"
#include "row.glsl"

shared Bits keys[GROUP_SIZE];
shared uint indices[GROUP_SIZE];

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
        begin = min(begin, end - BLOCK);  // a last stretch of less than a block also takes what is before it
        uint address = address_of_kept(first_output + i, kept_rank) + source_base;
        Best best = best_of_blocks(address, begin, end, lane, LANES);
        keys[here] = best.key;
        indices[here] = best.index;
        for (uint step = LANES / 2; step > 0; step /= 2) {
            barrier();  // what the other half wrote is there, and what it read was read
            if (lane < step) {
                Bits key = keys[here + step];
                uint index = indices[here + step];
                bool above = is_above(key, best.key), equal = key == best.key;
                bool better_place = LAST ? index > best.index : index < best.index;
                bool wins = equal ? better_place : above;
                best.key = wins ? key : best.key;
                best.index = wins ? index : best.index;
                keys[here] = best.key;
                indices[here] = best.index;
            }
        }
        if (lane == 0 && first + here / LANES < items) {
            if (RECORDS)
                best.bits = LOAD(source, address + best.index);
            write(i, stretch, best);
        }
        barrier();  // the next round writes where this one reads
    }
}
