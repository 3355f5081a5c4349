#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Copies elements of the source to outputs. `places` holds, per output, 1 + the number of the source's element; 0: the
// output is 0. One invocation computes the outputs that share a word, or writes their states for combine.comp.

#include "core/constants.glsl"
#include "core/address.glsl"
#include "core/items.glsl"
#include "core/values.glsl"
#include "core/stores.glsl"
#include "accumulator.glsl"

layout(set = 0, binding = 0) readonly buffer Source { uint source[]; };
layout(set = 0, binding = 1) buffer Values { uint values[]; };  // or states
layout(set = 0, binding = 2) readonly buffer Places { uint places[]; };

layout(push_constant) uniform Push {
    uint size[4];        // of the source
    uint stride[4];      // in elements
    uint source_first;   // the bound segment of the source: its first element, and the size of a full segment
    uint source_count;
    uint places_first;   // the bound segment of `places`, likewise
    uint places_count;
    uint first_output;   // the outputs of this dispatch: the first, and how many
    uint output_count;
    uint source_base;    // address + source_base is the place in the buffer, in elements
    uint values_base;    // number of an output + values_base is its place; TO_STATES: where they begin, in words
    uint places_base;    // number of an output + places_base is its place in `places`
} push;

void main()
{
    uvec4 size = all_of(push.size), stride = all_of(push.stride);
    uint source_first = push.source_first, source_count = push.source_count, source_base = push.source_base;
    uint places_first = push.places_first, places_count = push.places_count, places_base = push.places_base;
    uint first_output = push.first_output, output_count = push.output_count, values_base = push.values_base;
    Items mine = items_of((output_count - 1) / ELEMENTS_PER_WORD + 1);
    for (uint item = mine.next; item < mine.end; item += BUNDLE) {
        uint i = item * ELEMENTS_PER_WORD, words[WORDS_PER_ELEMENT];
        uint outputs = min(ELEMENTS_PER_WORD, output_count - i);
        for (uint k = 0; k < outputs; ++k) {
            uint number = first_output + i + k, place = 0;
            if (!SEGMENTED || number - places_first < places_count)
                place = places[number + places_base];
            uint address = address_of(place - 1, size, stride);
            State state = identity();
            if (place != 0 && (!SEGMENTED || address - source_first < source_count))
                state = state_of(operand_of(LOAD(source, address + source_base)), place - 1);
            if (TO_STATES)
                STORE_STATE(values, (i + k) * STATE_WORDS + values_base, state)
            else
                PUT(words, k, value_of(state, 1))
        }
        if (!TO_STATES)
            STORE_WORD(values, first_output + i + values_base, words, outputs)
    }
}
