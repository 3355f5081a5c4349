#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// MAX_POOLING over any input layout, windows of any size.
// One invocation owns the outputs of a word. For each it reads the elements of the window that lie in the input, in
// row-major order, and writes value and index, or a record for combine.comp.

// With BLOCKS, the elements of a window's row follow each other and are read in blocks.

#include "pooling.glsl"

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
    uint dilation[3];
    uint start_padding[3];
    uint first_output;      // the outputs that this dispatch computes
    uint output_count;
    uint source_first;      // the bound segment of the input: its first element, and how many it has
    uint source_count;
    uint source_base;       // what to add to an address for its place in the buffer, in elements
    uint indices_base;      // what to add to an output's number: in indices, or for records in words
    uint values_base;       // in elements
} push;

void main()
{
    // Read once: llvmpipe gathers a push constant lane by lane wherever it is read.
    uvec3 size = all_of(push.size), stride = all_of(push.stride), output_size = all_of(push.output_size);
    uvec3 window_size = all_of(push.window_size), window_stride = all_of(push.window_stride);
    uvec3 window_offset = all_of(push.window_offset), dilation = all_of(push.dilation);
    uvec3 start_padding = all_of(push.start_padding);
    uint plane_stride = push.plane_stride, first_output = push.first_output, output_count = push.output_count;
    uint source_first = push.source_first, source_count = push.source_count, source_base = push.source_base;
    uint indices_base = push.indices_base, values_base = push.values_base;
    uvec3 reach = (window_size - 1) * dilation;

    Items mine = items_of((output_count - 1) / ELEMENTS_PER_WORD + 1);
    for (uint item = mine.next; item < mine.end; item += BUNDLE) {
        uint i = item * ELEMENTS_PER_WORD, word = 0;
        uint outputs = min(ELEMENTS_PER_WORD, output_count - i);
        for (uint k = 0; k < outputs; ++k) {
            uint number = first_output + i + k, plane = number;
            uvec3 begin, end;
            [[unroll]] for (int d = 2; d >= 0; --d) {
                uint next = plane / output_size[d];
                uint at = (plane - next * output_size[d]) * window_stride[d], offset = window_offset[d];
                plane = next;
                // The elements in the input. `at` and `last` count the padding; what hangs over the end by more than a
                // uint holds stops at the highest one. Whole windows begin in front of the end.
                at += SEGMENTED ? min(offset, ~at) : offset;
                uint padding = start_padding[d], last = at + min(reach[d], ~at);
                uint steps_outside = at < padding ? (padding - at - 1) / dilation[d] + 1 : 0;
                begin[d] = at + steps_outside * dilation[d] - padding;
                end[d] = last >= padding ? min(size[d] - 1, last - padding) + 1 : 0;
            }
            // A part of a window may have none.
            if (SEGMENTED)
                begin = min(begin, end);
            uint origin = plane * plane_stride + begin.z * stride.z + source_base;
            uint base = plane * size.x * size.y * size.z + begin.z;

            Best best;
            best.index = NONE;
            if (!SEGMENTED)
                best = best_of(LOAD(source, origin + begin.x * stride.x + begin.y * stride.y),
                               base + (begin.x * size.y + begin.y) * size.z);
            // The steps stop at the end: a dilation may lead on past 2^32.
            for (uint z = begin.x; z < end.x; z += min(dilation.x, end.x - z))
                for (uint y = begin.y; y < end.y; y += min(dilation.y, end.y - y)) {
                    uint address = origin + z * stride.x + y * stride.y, index = base + (z * size.y + y) * size.z;
                    uint row_end = index + end.z - begin.z;
#ifdef BLOCKS
                    for (; index < row_end && row_end - index >= BLOCK; index += BLOCK, address += BLOCK) {
                        uvec4 block = load_block(address);
                        [[unroll]] for (uint w = 0; w < BLOCK; ++w)
                            consider(best, element_of(block, w), index + w);
                    }
#endif
                    for (; index < row_end; index += min(dilation.z, row_end - index), address += dilation.z * stride.z)
                        if (!SEGMENTED || address - source_base - source_first < source_count)
                            consider(best, LOAD(source, address), index);
                }

            if (RECORDS)
                STORE_RECORD(indices, (i + k) * RECORD_WORDS + indices_base, best)
            else if (INDEX_WORDS != 0)
                STORE_INDEX(indices, number + indices_base, best.index)
            if (VALUES) {
                uint at = (number + values_base) / ELEMENTS_PER_WORD * WORDS_PER_ELEMENT;
#if BITS == 64
                values[at] = best.bits.x;
                values[at + 1] = best.bits.y;
#elif BITS == 32
                values[at] = best.bits;
#else
                word |= best.bits << (k * BITS);
                if (k == ELEMENTS_PER_WORD - 1)
                    values[at] = word;
                else if (k == outputs - 1)
                    // What lies behind the last output in its word stays.
                    values[at] = word | values[at] & ~0u << ((k + 1) * BITS);
#endif
            }
        }
    }
}
