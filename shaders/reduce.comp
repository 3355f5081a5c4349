#version 450
#extension GL_GOOGLE_include_directive : require
// ARGMAX and ARGMIN over any layout.
// One invocation owns one output: it reads the output's reduced elements, or a stretch of them, in order of their index
// and writes an index, or a record for combine.comp.

#include "reduction.glsl"

void look(inout Best best, uint address, uint index)
{
    if (!SEGMENTED || address - source_first < source_count)
        consider(best, LOAD(source, address + source_base), index);
}

// `run` elements along the last dimension stand `step` apart.
Best reduce(uint origin, uint begin, uint end, uint rank, uint run, uint step, uint outermost_stride)
{
    Best best;
    best.index = NONE;
    for (uint index = begin; index < end;) {
        uint address = origin + address_of(index, kept_rank, rank, outermost_stride);
        uint run_end = min(end, index - index % run + run);
        if (!SEGMENTED && index == begin)
            best = best_of(LOAD(source, address + source_base), index);
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
    read_push();
    uint rank = kept_rank + push.reduced_rank, run = push.size[rank - 1], step = push.stride[rank - 1];
    uint outermost_stride = push.stride[kept_rank];
    Items mine = items_of(output_count * stretch_count);
    for (uint item = mine.next; item < mine.end; item += BUNDLE) {
        uint stretch = RECORDS ? item / output_count : 0;
        uint i = item - stretch * output_count;
        uint begin, end;
        stretch_range(stretch, begin, end);
        uint origin = address_of_kept(first_output + i, kept_rank);
        write(i, stretch, reduce(origin, begin, end, rank, run, step, outermost_stride));
    }
}
