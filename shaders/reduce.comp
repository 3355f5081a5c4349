#version 450
#extension GL_GOOGLE_include_directive : require
// ARGMAX and ARGMIN over any layout.
// One invocation owns one output: it reads the output's reduced elements, or a stretch of them, in order of their index
// and writes an index, or a record for combine.comp. Kept and reduced dimensions are those of geometry.py: adjacent ones merged, in order.

#include "constants.glsl"
#include "values.glsl"
#include "best.glsl"

layout(set = 0, binding = 0) readonly buffer Source { uint source[]; };
layout(set = 0, binding = 1) writeonly buffer Target { uint target[]; };

layout(push_constant) uniform Push {
    uint size[8];           // the kept dimensions, outermost first, then the reduced ones
    uint stride[8];         // in elements
    uint kept_rank;
    uint reduced_rank;
    uint reduced_begin;     // the reduced elements that this dispatch looks at, ...
    uint reduced_end;
    uint stretch;           // ... and how many of them an invocation
    uint first_output;      // the outputs that it computes
    uint output_count;
    uint source_first;      // the bound segment of the input: its first element, and how many it has
    uint source_count;
    uint source_base;       // what to add to an address for its place in the buffer, in elements
    uint target_base;       // what to add to an output's number: in indices, or for records in words
} push;

// The address of a flat row-major number in dimensions begin to end.
uint address_of(uint number, uint begin, uint end)
{
    uint address = 0;
    for (uint i = end; i-- > begin;) {
        address += number % push.size[i] * push.stride[i];
        number /= push.size[i];
    }
    return address;
}

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
    uint stretches = (push.reduced_end - push.reduced_begin - 1) / push.stretch + 1;
    uint items = push.output_count * stretches;
    for (uint item = gl_GlobalInvocationID.x; item < items; item += gl_NumWorkGroups.x * GROUP_SIZE) {
        uint number = push.first_output + item % push.output_count;
        uint begin = push.reduced_begin + item / push.output_count * push.stretch;
        uint end = push.reduced_end - begin > push.stretch ? begin + push.stretch : push.reduced_end;
        Best best = reduce(address_of(number, 0, push.kept_rank), begin, end);
        if (RECORDS)
            STORE_RECORD(target, item * RECORD_WORDS + push.target_base, best)
        else
            STORE_INDEX(target, number + push.target_base, best.index)
    }
}
