#version 430
// The first step of core/scattered.glsl: sets outputs to 0. An item is 16 bytes of outputs.

#include "core/scattered.glsl"

layout(set = 0, binding = 1) buffer Values { uint values[]; };
layout(set = 0, binding = 1) buffer ValueVectors { uvec4 value_vectors[]; };

// An address in a tensor plus the tensor's base is the offset in its buffer, in elements.
layout(push_constant) uniform Push {
    uint first_output;  // the outputs of this dispatch: the first, and how many
    uint output_count;
    uint size[4];  // of source and indices; outputs have the first two sizes, and those of `plane`
    uint plane[2];
    uint values_stride[4];
    uint values_first;  // the bound segment of the outputs: its first element, and the size of a full segment
    uint values_count;
    uint values_base;
} push;

void main()
{
    uint first_output = push.first_output, output_count = push.output_count, values_base = push.values_base;
    uint values_first = push.values_first, values_count = push.values_count;
    uvec4 size = uvec4(push.size[0], push.size[1], push.plane[0], push.plane[1]), stride = all_of(push.values_stride);
    Items mine = items_of((output_count - 1) / VECTOR_SIZE + 1);
    uint item = mine.next;
    for (; item < mine.end; item += ITEM_STRIDE) {
        uint begin = item * VECTOR_SIZE, count = min(output_count - begin, VECTOR_SIZE);
        if (PACKED && count == VECTOR_SIZE)
            value_vectors[(first_output + begin + values_base) / VECTOR_SIZE] = uvec4(0);
        else
            for (uint i = 0; i < count; ++i) {
                uint address = address_of(first_output + begin + i, size, stride);
                if (is_bound(address, values_first, values_count))
                    STORE_ELEMENT(values, address + values_base, Bits(0))
            }
    }
    report(item, mine.end);
}
