#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Outputs that are an element of the source each, or 0: `places` has the number of the element, and 1, or 0.
// One invocation computes the outputs that share a word, or writes their records for combine.comp.

#include "core/constants.glsl"
#include "core/address.glsl"
#include "core/items.glsl"
#include "core/values.glsl"
#include "core/stores.glsl"
#include "accumulator.glsl"

layout(set = 0, binding = 0) readonly buffer Source { uint source[]; };
layout(set = 0, binding = 1) buffer Values { uint values[]; };  // or records
layout(set = 0, binding = 2) readonly buffer Places { uint places[]; };

layout(push_constant) uniform Push {
    uint size[4];        // of the source
    uint stride[4];      // in elements
    uint source_first;   // the bound segment of the source: its first element, and how many it has
    uint source_count;
    uint places_first;   // likewise
    uint places_count;
    uint first_output;   // the outputs that this dispatch computes
    uint output_count;
    uint source_base;    // what to add to an address for its place in the buffer, in elements
    uint values_base;    // in elements, or for records in words
    uint places_base;    // what to add to an output's number
} push;

State picked(uint output_number, uvec4 size, uvec4 stride)
{
    State state = identity();
    if (SEGMENTED && output_number - push.places_first >= push.places_count)
        return state;
    uint number = places[output_number + push.places_base];
    if (number == 0)
        return state;
    uint address = address_of(number - 1, size, stride);
    if (!SEGMENTED || address - push.source_first < push.source_count)
        state = state_of(operand_of(LOAD(source, address + push.source_base)), number - 1);
    return state;
}

void main()
{
    uvec4 size = all_of(push.size), stride = all_of(push.stride);
    uint first_output = push.first_output, output_count = push.output_count, values_base = push.values_base;
    Items mine = items_of((output_count - 1) / ELEMENTS_PER_WORD + 1);
    for (uint item = mine.next; item < mine.end; item += BUNDLE) {
        uint i = item * ELEMENTS_PER_WORD, words[WORDS_PER_ELEMENT];
        uint outputs = min(ELEMENTS_PER_WORD, output_count - i);
        for (uint k = 0; k < outputs; ++k) {
            State state = picked(first_output + i + k, size, stride);
            if (RECORDS)
                STORE_STATE(values, (i + k) * STATE_WORDS + values_base, state)
            else
                PUT(words, k, value_of(state, 1))
        }
        if (!RECORDS)
            STORE_WORD(values, first_output + i + values_base, words, outputs)
    }
}
