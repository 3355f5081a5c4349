#version 430
#extension GL_ARB_enhanced_layouts : require
#extension GL_KHR_memory_scope_semantics : require
// Marks each output with the number of an element that has its index, the second step of core/scattered.glsl. An item
// is four elements of the source.

// Address + base is the offset in the buffer, in elements.
layout(push_constant) uniform Push {
    uint first_output;   // the outputs of this dispatch: the first, and how many
    uint output_count;
    uint size[4];        // of source and indices
    uint first_element;  // the elements of this dispatch: the first, a multiple of 4, and how many
    uint element_count;
    uint last_base;
    uint indices_stride[4];
    uint indices_first;  // the bound segment of the indices: its first element, and the size of a full segment
    uint indices_count;
    uint indices_base;
} push;

#define INDICES 1
#include "core/scattered.glsl"

layout(constant_id = 11) const bool REPORTS = false;  // only copy the bit of `scatter` from `again` to the status
layout(constant_id = 12) const bool CHECKED = false;  // do nothing unless `again` is set

void main()
{
    uint first_output = push.first_output, output_count = push.output_count, last_base = push.last_base;
    uint first_element = push.first_element, end = first_element + push.element_count;
    uint again_at = first_output + last_base - 1;
    if (REPORTS) {
        if ((last[again_at] & ENDED_EARLY) != 0)
            atomicOr(status[0], ENDED_EARLY);
        return;
    }
    if (CHECKED && last[again_at] == 0)
        return;
    if (!CHECKED && gl_GlobalInvocationID.x == 0)
        last[again_at] = 0;
    Items mine = items_of((push.element_count - 1) / 4 + 1);
    uint item = mine.next;
    for (; item < mine.end; item += ITEM_STRIDE) {
        uint number = first_element + item * 4;
        uvec4 index = indices_of(number);
        [[unroll]] for (uint k = 0; k < 4; ++k) {
            if (number + k < end && index[k] - first_output < output_count)
                atomicStore(last[index[k] + last_base], number + k + 1, RELAXED);
        }
    }
    report(item, mine.end);
}
