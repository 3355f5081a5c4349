#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// The source's elements are indices of outputs. `places` gets, per output, 1 + the number of the last element that is
// the output's index; 0: there is none. A dispatch with CLEAR sets all places to 0 before. Invocations run in any
// order: atomicMax() keeps the greatest number.

#include "core/constants.glsl"
#include "core/address.glsl"
#include "core/items.glsl"
#include "core/values.glsl"

#ifndef CLEAR
layout(set = 0, binding = 0) readonly buffer Source { uint source[]; };
layout(set = 0, binding = 1) buffer Places { uint places[]; };
#else
layout(set = 0, binding = 0) buffer Places { uint places[]; };
#endif

layout(push_constant) uniform Push {
#ifndef CLEAR
    uint size[4];        // of the indices
    uint stride[4];      // in elements
    uint first_element;  // the elements of this dispatch: the first, and how many
    uint element_count;
    uint source_first;   // the bound segment of the indices: its first element, and the size of a full segment
    uint source_count;
    uint source_base;    // address + source_base is the place in the buffer, in elements
#endif
    uint first_output;   // the outputs whose places are written: the first, and how many
    uint output_count;
    uint places_base;    // number of an output + places_base is its place in `places`
} push;

void main()
{
#ifdef CLEAR
    uint first = push.first_output + push.places_base;
    Items mine = items_of(push.output_count);
    for (uint i = mine.next; i < mine.end; i += BUNDLE)
        places[first + i] = 0;
#else
    uvec4 size = all_of(push.size), stride = all_of(push.stride);
    uint source_first = push.source_first, source_count = push.source_count, source_base = push.source_base;
    uint first_element = push.first_element, places_base = push.places_base;
    uint first_output = push.first_output, output_count = push.output_count;
    Items mine = items_of(push.element_count);
    for (uint i = mine.next; i < mine.end; i += BUNDLE) {
        uint number = first_element + i, address = address_of(number, size, stride);
        if (address - source_first >= source_count)
            continue;
        // All 64 bits count: an index of 2^32 or more is out of range.
#if BITS == 64
        uvec2 index = LOAD(source, address + source_base);
        uint at = index.x;
        bool names = index.y == 0;
#else
        uint at = LOAD(source, address + source_base);
        bool names = true;
#endif
        if (names && at - first_output < output_count)
            atomicMax(places[at + places_base], number + 1);
    }
#endif
}
