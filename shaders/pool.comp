#version 450
#extension GL_GOOGLE_include_directive : require
// MAX_POOLING over any input layout.
// One invocation owns one output, or for 8- and 16-bit elements the outputs that share a word: it reads the elements of
// the window that lie in the input, in row-major order, and writes value and index, or a record for combine.comp.
// Three spatial dimensions (depth, height, width); a 4-D tensor has depth 1.

#include "constants.glsl"
#include "values.glsl"
#include "best.glsl"

layout(set = 0, binding = 0) readonly buffer Source { uint source[]; };
layout(set = 0, binding = 1) writeonly buffer Indices { uint indices[]; };  // or records
layout(set = 0, binding = 2) buffer Values { uint values[]; };

layout(push_constant) uniform Push {
    uint plane_stride;      // of the input's (batch, channel) planes; strides in elements
    uint size[3];           // of the input
    uint stride[3];         // of the input
    uint output_size[3];
    uint window_size[3];
    uint window_stride[3];
    uint window_offset[3];  // where the part of the window begins that this dispatch looks at
    uint start_padding[3];
    uint dilation[3];
    uint first_output;      // the outputs that this dispatch computes
    uint output_count;
    uint source_first;      // the bound segment of the input: its first element, and how many it has
    uint source_count;
    uint source_base;       // what to add to an address for its place in the buffer, in elements
    uint indices_base;      // what to add to an output's number: in indices, or for records in words
    uint values_base;       // in elements
} push;

// The elements of a window that lie in the input, along one dimension: `count` of them, the first at `begin`.
void clip(uint i, uint output_coordinate, out uint begin, out uint count)
{
    uint at = output_coordinate * push.window_stride[i] + push.window_offset[i];  // in the padded input
    uint padding = push.start_padding[i], dilation = push.dilation[i];
    uint extent = (push.window_size[i] - 1) * dilation;
    uint last = at + min(extent, ~at);  // may hang over the end by more than a uint holds
    begin = at >= padding ? at - padding : (dilation - (padding - at) % dilation) % dilation;
    uint end = last >= padding ? min(push.size[i], last - padding + 1) : 0;
    count = end > begin ? (end - begin - 1) / dilation + 1 : 0;
}

Best pool(uint number)
{
    uint begin[3], count[3];
    for (int i = 2; i >= 0; --i) {
        clip(i, number % push.output_size[i], begin[i], count[i]);
        number /= push.output_size[i];
    }
    uint plane = number;  // batch * channels + channel
    uint origin = plane * push.plane_stride;
    uint step = push.dilation[2] * push.stride[2];
    Best best;
    best.index = NONE;
    for (uint d = 0; d < count[0]; ++d)
        for (uint h = 0; h < count[1]; ++h) {
            uint z = begin[0] + d * push.dilation[0], y = begin[1] + h * push.dilation[1];
            uint index = ((plane * push.size[0] + z) * push.size[1] + y) * push.size[2] + begin[2];
            uint address = origin + z * push.stride[0] + y * push.stride[1] + begin[2] * push.stride[2];
            if (!SEGMENTED && d == 0 && h == 0)
                best = best_of(LOAD(source, address + push.source_base), index);
            for (uint w = 0; w < count[2]; ++w, address += step, index += push.dilation[2])
                if (!SEGMENTED)
                    consider(best, LOAD(source, address + push.source_base), index);
                else if (address - push.source_first < push.source_count)
                    consider(best, LOAD(source, address + push.source_base), index);
        }
    return best;
}

void main()
{
    uint step = gl_NumWorkGroups.x * GROUP_SIZE * ELEMENTS_PER_WORD;
    for (uint i = gl_GlobalInvocationID.x * ELEMENTS_PER_WORD; i < push.output_count; i += step) {
        uint number = push.first_output + i;
        uint owned = min(ELEMENTS_PER_WORD, push.output_count - i);
        Bits word = Bits(0);
        for (uint k = 0; k < owned; ++k) {
            Best best = pool(number + k);
            if (RECORDS)
                STORE_RECORD(indices, (i + k) * RECORD_WORDS + push.indices_base, best)
            else if (INDEX_WORDS != 0)
                STORE_INDEX(indices, number + k + push.indices_base, best.index)
#if BITS >= 32
            word = best.bits;
#else
            word |= best.bits << (k * BITS);
#endif
        }
        if (VALUES) {
            uint at = (number + push.values_base) / ELEMENTS_PER_WORD * WORDS_PER_ELEMENT;
#if BITS == 64
            values[at] = word.x;
            values[at + 1] = word.y;
#else
            // What lies behind the last output in its word stays.
            if (owned < ELEMENTS_PER_WORD) {
                uint mask = (1u << (owned * BITS)) - 1;
                word |= values[at] & ~mask;
            }
            values[at] = word;
#endif
        }
    }
}
