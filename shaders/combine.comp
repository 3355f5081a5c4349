#version 450
#extension GL_GOOGLE_include_directive : require
// The second pass: takes the best of every output's records and writes one output tensor of any layout.
// One invocation owns one output. Its records stand `output_count` records apart, one from each part of the input.

#include "constants.glsl"
#include "items.glsl"
#include "values.glsl"
#include "best.glsl"

layout(set = 0, binding = 0) readonly buffer Records { uint records[]; };
layout(set = 0, binding = 1) buffer Target { uint target[]; };

layout(push_constant) uniform Push {
    uint size[8];           // of the output tensor
    uint stride[8];         // in elements
    uint rank;
    uint part_count;
    uint first_output;      // the outputs that have records
    uint output_count;
    uint records_base;      // in words
    uint target_first;      // the bound segment of the output tensor: its first element, and how many it has
    uint target_count;
    uint target_base;       // what to add to an address for its place in the buffer, in elements
} push;

Best combine(uint i)
{
    Best best;
    best.index = NONE;
    for (uint part = 0; part < push.part_count; ++part) {
        uint at = (part * push.output_count + i) * RECORD_WORDS + push.records_base;
        Best other = LOAD_RECORD(records, at);
        bool later = other.index > best.index;
        bool wins = is_above(other.key, best.key) || (!is_above(best.key, other.key) && later == LAST);
        if (other.index != NONE && (wins || best.index == NONE))
            best = other;
    }
    return best;
}

void main()
{
    Items mine = items_of(push.output_count);
    for (uint i = mine.next; i < mine.end; i += BUNDLE) {
        uint number = push.first_output + i, address = 0;
        for (uint d = push.rank; d-- > 0;) {
            address += number % push.size[d] * push.stride[d];
            number /= push.size[d];
        }
        if (address - push.target_first >= push.target_count)
            continue;
        uint at = address + push.target_base;
        Best best = combine(i);
        if (!VALUES)
            STORE_INDEX(target, at, best.index)
        else {
#if BITS == 64
            target[2 * at] = best.bits.x;
            target[2 * at + 1] = best.bits.y;
#elif BITS == 32
            target[at] = best.bits;
#else
            // Other invocations own the neighbours in this word: clear the field, then set it.
            uint shift = at % ELEMENTS_PER_WORD * BITS;
            atomicAnd(target[at / ELEMENTS_PER_WORD], ~(MASK << shift));
            atomicOr(target[at / ELEMENTS_PER_WORD], best.bits << shift);
#endif
        }
    }
}
