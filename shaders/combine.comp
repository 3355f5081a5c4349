#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// The second pass: combines every output's records and writes one output tensor of any layout.
// LANES invocations share an output. Its records stand `output_count` records apart, one from each part of the input.

#define LANES_APART AT_ONCE
#include "core/constants.glsl"
#include "core/items.glsl"
#include "core/values.glsl"
#include "core/stores.glsl"
#include "core/counted.glsl"
#include "accumulator.glsl"
#ifdef COOPERATING
layout(constant_id = 10) const uint LANES = 1;  // invocations that share an item
#endif
#include "core/lanes.glsl"

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
    uint index_step;        // what indices are above those of the output before
#endif
} push;

// What a lane finds in the first `count` records of output i.
State combined(uint i, uint count)
{
    State state = identity();
    for (uint first = lane(); first < count; first += LOADS * LANES) {
        State found[LOADS];
        [[unroll]] for (uint r = 0; r < LOADS; ++r) {
            uint record = min(first + r * LANES, count - 1);
            uint at = (record * push.output_count + i) * STATE_WORDS + push.records_base;
            found[r] = LOAD_STATE(records, at);
        }
        [[unroll]] for (uint r = 0; r < LOADS; ++r)
            if (r == 0 || first + r * LANES < count)
                state = combine(state, found[r]);
    }
    return state;
}

void main()
{
    uint output_count = push.output_count;
    Items mine = shared_items_of(output_count);
    for (uint next = mine.next; next < mine.end; next += turn()) {
        uint i = min(next, output_count - 1);
        uint number = push.first_output + i, address = 0;
#ifdef WINDOWS
        uint count = 1, first_index = 0;
        for (uint d = 5; d-- > 0;) {
            uint next = number / push.size[d], at = number - next * push.size[d];
            address += at * push.stride[d];
            number = next;
            if (d >= 2)
                count *= counted(at * push.window_stride[d - 2], push.window_size[d - 2], push.dilation[d - 2],
                                 push.counted_begin[d - 2], push.counted_end[d - 2]);
        }
#else
        uint count = push.element_count, first_index = number * push.index_step;
        for (uint d = push.rank; d-- > 0;) {
            address += number % push.size[d] * push.stride[d];
            number /= push.size[d];
        }
#endif
        bool here = address - push.target_first < push.target_count;
        uint at = address + push.target_base;
        State state = of_all_lanes(combined(i, here ? push.record_count : 0));
        if (here && lane() == 0 && next < output_count) {
            if (VALUES)
                STORE_ELEMENT(target, at, value_of(state, count))
            else
                STORE_INDEX(target, at, first_index + index_of(state))
        }
    }
}
