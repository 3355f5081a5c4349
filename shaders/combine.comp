#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// The second pass: combines every output's records and writes one output tensor of any layout.
// One invocation owns one output. Its records stand `output_count` records apart, one from each part of the input.

#include "core/constants.glsl"
#include "core/items.glsl"
#include "core/values.glsl"
#include "core/stores.glsl"
#include "accumulator.glsl"

layout(set = 0, binding = 0) readonly buffer Records { uint records[]; };
layout(set = 0, binding = 1) buffer Target { uint target[]; };

layout(push_constant) uniform Push {
    uint size[8];           // of the output tensor
    uint stride[8];         // in elements
    uint rank;
    uint record_count;
    uint first_output;      // the outputs that have records
    uint output_count;
    uint element_count;     // of an output, along axes
    uint records_base;      // in words
    uint target_first;      // the bound segment of the output tensor: its first element, and how many it has
    uint target_count;
    uint target_base;       // what to add to an address for its place in the buffer, in elements
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
        for (uint d = push.rank; d-- > 0;) {
            address += number % push.size[d] * push.stride[d];
            number /= push.size[d];
        }
        if (address - push.target_first >= push.target_count)
            continue;
        uint at = address + push.target_base;
        State state = combined(i);
        if (VALUES)
            STORE_ELEMENT(target, at, value_of(state, push.element_count))
        else
            STORE_INDEX(target, at, index_of(state))
    }
}
