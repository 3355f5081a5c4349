#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// The second pass: combines every output's records and writes one output tensor of any layout.
// One invocation owns one output. Its records stand `output_count` records apart, one from each part of the input.

#include "core/constants.glsl"
#include "core/items.glsl"
#include "core/values.glsl"
#include "core/stores.glsl"
#include "core/counted.glsl"
#include "accumulator.glsl"

layout(set = 0, binding = 0) readonly buffer Records { uint records[]; };
layout(set = 0, binding = 1) buffer Target { uint target[]; };

layout(push_constant) uniform Push {
    uint record_count;
    uint first_output;      // the outputs that have records
    uint output_count;
    uint records_base;      // in words
    uint target_first;      // the bound segment of the output tensor: its first element, and how many it has
    uint target_count;
    uint target_base;       // what to add to an address for its place in the buffer, in elements
#ifdef WINDOWS  // for averages, which need the number of elements
    uint size[5];           // of the output tensor: batch, channels, depth, height, width
    uint stride[5];         // in elements
    uint window_size[3];
    uint window_stride[3];
    uint dilation[3];
    uint counted_begin[3];  // of the input in its padding, or 0 where the padding counts for an average, too
    uint counted_end[3];
#else
    uint size[8];           // of the output tensor
    uint stride[8];         // in elements
    uint rank;
    uint element_count;     // of an output, along axes
#endif
} push;

State combined(uint i)
{
    State state = identity();
    for (uint record = 0; record < push.record_count; ++record) {
        uint at = (record * push.output_count + i) * STATE_WORDS + push.records_base;
        state = combine(state, LOAD_STATE(records, at));
    }
    return state;
}

void main()
{
    Items mine = items_of(push.output_count);
    for (uint i = mine.next; i < mine.end; i += BUNDLE) {
        uint number = push.first_output + i, address = 0;
#ifdef WINDOWS
        uint count = 1;
        for (uint d = 5; d-- > 0;) {
            uint next = number / push.size[d], at = number - next * push.size[d];
            address += at * push.stride[d];
            number = next;
            if (d >= 2)
                count *= counted(at * push.window_stride[d - 2], push.window_size[d - 2], push.dilation[d - 2],
                                 push.counted_begin[d - 2], push.counted_end[d - 2]);
        }
#else
        uint count = push.element_count;
        for (uint d = push.rank; d-- > 0;) {
            address += number % push.size[d] * push.stride[d];
            number /= push.size[d];
        }
#endif
        if (address - push.target_first >= push.target_count)
            continue;
        uint at = address + push.target_base;
        State state = combined(i);
        if (VALUES)
            STORE_ELEMENT(target, at, value_of(state, count))
        else
            STORE_INDEX(target, at, index_of(state))
    }
}
