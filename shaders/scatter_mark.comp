#version 430
#extension GL_ARB_enhanced_layouts : require
#extension GL_KHR_memory_scope_semantics : require
// The second step of core/scattered.glsl: marks each output with the number of an element that has its index. An item
// is four elements of the source.

// An address in a tensor plus the tensor's base is the offset in its buffer, in elements.
layout(push_constant) uniform Push {
    uint first_output;   // the outputs of this dispatch: the first, and how many
    uint output_count;
    uint size[4];        // of source and indices
    uint first_element;  // the elements of this dispatch: the first, a multiple of 4, and how many
    uint element_count;
    uint marks_base;     // output number + marks_base is the offset of its mark
    uint indices_stride[4];
    uint indices_first;  // the bound segment of the indices: its first element, and the size of a full segment
    uint indices_count;
    uint indices_base;
} push;

#define INDICES 1
#include "core/scattered.glsl"

layout(constant_id = 11) const bool REPORTS = false;  // only copy the bit that `scatter` set in `again` to the status
layout(constant_id = 12) const bool CHECKED = false;  // do nothing unless `again` is set

void main()
{
    uint first_output = push.first_output, output_count = push.output_count, marks_base = push.marks_base;
    uint first_element = push.first_element, end = first_element + push.element_count;
    uint again_at = first_output + marks_base - 1;
    if (REPORTS) {
        if ((marks[again_at] & ENDED_EARLY) != 0)
            atomicOr(status[0], ENDED_EARLY);
        return;
    }
    if (CHECKED && marks[again_at] == 0)
        return;
    if (!CHECKED && gl_GlobalInvocationID.x == 0)
        marks[again_at] = 0;
    Items mine = items_of((push.element_count - 1) / 4 + 1);
    uint item = mine.next;
    for (; item < mine.end; item += ITEM_STRIDE) {
        uint number = first_element + item * 4;
        uvec4 index = indices_of(number);
        [[unroll]] for (uint k = 0; k < 4; ++k) {
            if (number + k < end && index[k] - first_output < output_count)
                atomicStore(marks[index[k] + marks_base], number + k + 1, RELAXED);
        }
    }
    report(item, mine.end);
}
