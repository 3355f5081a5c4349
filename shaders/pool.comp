#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// MAX_POOLING over any input layout.
// One invocation owns a run of outputs, whole words of them for 8- and 16-bit elements. For each it reads the elements of
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
    uint first_output;      // the outputs that this dispatch computes
    uint output_count;
    uint source_first;      // the bound segment of the input: its first element, and how many it has
    uint source_count;
    uint source_base;       // what to add to an address for its place in the buffer, in elements
    uint indices_base;      // what to add to an output's number: in indices, or for records in words
    uint values_base;       // in elements
} push;

const uint RUN = 4;  // outputs

uint dilation(uint i) { return i == 0 ? DILATION_DEPTH : i == 1 ? DILATION_HEIGHT : DILATION_WIDTH; }

// The first element of a window that lies in the input, along one dimension; `at` counts the padding.
uint first_inside(uint i, uint at)
{
    uint padding = push.start_padding[i];
    return at >= padding ? at - padding : (dilation(i) - (padding - at) % dilation(i)) % dilation(i);
}

// How many elements of a window lie in the input, along one dimension.
uint count_inside(uint i, uint at, uint begin)
{
    uint padding = push.start_padding[i];
    uint last = at + min((push.window_size[i] - 1) * dilation(i), ~at);  // may hang over by more than a uint holds
    uint end = last >= padding ? min(push.size[i], last - padding + 1) : 0;
    return end > begin ? (end - begin - 1) / dilation(i) + 1 : 0;
}

// Element k of a window along one dimension; for one in the padding the first that is not, which changes nothing: it
// is looked at again after, or for the first time before, all others.
uint inside(uint i, uint at, uint k, uint begin)
{
    uint coordinate = at + k * dilation(i) - push.start_padding[i];
    return coordinate < push.size[i] ? coordinate : begin;
}

// The winner of the window of output (plane, coordinate), where plane is batch * channels + channel.
Best pool(uint plane, uint coordinate[3])
{
    uint at[3], begin[3], count[3];
    [[unroll]] for (uint i = 0; i < 3; ++i) {
        at[i] = coordinate[i] * push.window_stride[i] + push.window_offset[i];
        begin[i] = first_inside(i, at[i]);
        count[i] = WINDOW_DEPTH == 0 ? count_inside(i, at[i], begin[i]) : 0;
    }
    uint origin = plane * push.plane_stride;
    Best best;
    best.index = NONE;
    if (!SEGMENTED) {
        uint address = origin + begin[0] * push.stride[0] + begin[1] * push.stride[1] + begin[2] * push.stride[2];
        uint index = ((plane * push.size[0] + begin[0]) * push.size[1] + begin[1]) * push.size[2] + begin[2];
        best = best_of(LOAD(source, address + push.source_base), index);
    }
    for (uint d = 0; d < WINDOW_DEPTH; ++d)
        for (uint h = 0; h < WINDOW_HEIGHT; ++h) {
            uint z = inside(0, at[0], d, begin[0]), y = inside(1, at[1], h, begin[1]);
            uint index = ((plane * push.size[0] + z) * push.size[1] + y) * push.size[2];
            uint row = origin + z * push.stride[0] + y * push.stride[1] + push.source_base;
            for (uint w = 0; w < WINDOW_WIDTH; ++w) {
                uint x = inside(2, at[2], w, begin[2]);
                consider(best, LOAD(source, row + x * push.stride[2]), index + x);
            }
        }
    uint step = dilation(2) * push.stride[2];
    for (uint d = 0; d < count[0]; ++d)
        for (uint h = 0; h < count[1]; ++h) {
            uint z = begin[0] + d * dilation(0), y = begin[1] + h * dilation(1);
            uint index = ((plane * push.size[0] + z) * push.size[1] + y) * push.size[2] + begin[2];
            uint address = origin + z * push.stride[0] + y * push.stride[1] + begin[2] * push.stride[2];
            for (uint w = 0; w < count[2]; ++w, address += step, index += dilation(2))
                if (!SEGMENTED || address - push.source_first < push.source_count)
                    consider(best, LOAD(source, address + push.source_base), index);
        }
    return best;
}

void main()
{
    for (uint i = gl_GlobalInvocationID.x * RUN; i < push.output_count; i += gl_NumWorkGroups.x * GROUP_SIZE * RUN) {
        uint number = push.first_output + i, plane = number;
        uint coordinate[3];
        [[unroll]] for (int d = 2; d >= 0; --d) {
            uint next = plane / push.output_size[d];
            coordinate[d] = plane - next * push.output_size[d];
            plane = next;
        }
        uint word = 0;
        for (uint k = 0; k < min(RUN, push.output_count - i); ++k) {
            Best best = pool(plane, coordinate);
            if (RECORDS)
                STORE_RECORD(indices, (i + k) * RECORD_WORDS + push.indices_base, best)
            else if (INDEX_WORDS != 0)
                STORE_INDEX(indices, number + k + push.indices_base, best.index)
            if (VALUES) {
                uint at = (number + k + push.values_base) / ELEMENTS_PER_WORD * WORDS_PER_ELEMENT;
#if BITS == 64
                values[at] = best.bits.x;
                values[at + 1] = best.bits.y;
#elif BITS == 32
                values[at] = best.bits;
#else
                uint position = k % ELEMENTS_PER_WORD;
                word = (position == 0 ? 0 : word) | best.bits << (position * BITS);
                if (position == ELEMENTS_PER_WORD - 1)
                    values[at] = word;
                else if (i + k == push.output_count - 1)
                    // What lies behind the last output in its word stays.
                    values[at] = word | values[at] & ~0u << ((position + 1) * BITS);
#endif
            }
            // The next output, without a division.
            coordinate[2] += 1;
            [[unroll]] for (uint d = 2; d > 0; --d)
                if (coordinate[d] == push.output_size[d]) {
                    coordinate[d] = 0;
                    coordinate[d - 1] += 1;
                }
            if (coordinate[0] == push.output_size[0]) {
                coordinate[0] = 0;
                plane += 1;
            }
        }
    }
}
