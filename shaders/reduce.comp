#version 450
#extension GL_GOOGLE_include_directive : require
// ARGMAX and ARGMIN over any layout.
// One invocation owns one output: it reads the output's reduced elements, or a stretch of them, in order of their index
// and writes an index, or a record for combine.comp.

#include "constants.glsl"
#include "values.glsl"
#include "best.glsl"
#include "reduction.glsl"

void look(inout Best best, uint address, uint index)
{
    if (!SEGMENTED || address - push.source_first < push.source_count)
        consider(best, LOAD(source, address + push.source_base), index);
}

Best reduce(uint origin, uint begin, uint end)
{
    uint rank = push.kept_rank + push.reduced_rank;
    uint run = push.size[rank - 1], step = push.stride[rank - 1];
    Best best;
    best.index = NONE;
    for (uint index = begin; index < end;) {
        uint address = origin + address_of(index, push.kept_rank, rank);
        uint run_end = min(end, index - index % run + run);
        if (!SEGMENTED && index == begin)
            best = best_of(LOAD(source, address + push.source_base), index);
        for (; run_end - index >= 4; index += 4, address += 4 * step) {
            look(best, address, index);
            look(best, address + step, index + 1);
            look(best, address + 2 * step, index + 2);
            look(best, address + 3 * step, index + 3);
        }
        for (; index < run_end; ++index, address += step)
            look(best, address, index);
    }
    return best;
}

void main()
{
    uint items = push.output_count * stretch_count();
    for (uint item = gl_GlobalInvocationID.x; item < items; item += gl_NumWorkGroups.x * GROUP_SIZE) {
        uint stretch = RECORDS ? item / push.output_count : 0;
        uint i = item - stretch * push.output_count;
        uint begin, end;
        stretch_range(stretch, begin, end);
        write(i, stretch, reduce(address_of(push.first_output + i, 0, push.kept_rank), begin, end));
    }
}
