#version 430
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Combines the states of every output, and writes an output tensor of any layout, or values and indices that are packed.
// If an output has too many states for one invocation, dispatches with TO_STATES come first: they combine each split of
// an output's states to one state. LANES invocations share an output, or one split of its states. The states of an
// output are `output_count` states apart.

#define LANES_APART AT_ONCE
#include "core/constants.glsl"
#include "core/items.glsl"
#include "core/values.glsl"
#include "core/stores.glsl"
#include "core/counted.glsl"
#define COMBINES
#include "accumulator.glsl"
#ifdef COOPERATING
layout(constant_id = 10) const uint LANES = 1;  // invocations that share an item
#endif
#include "core/lanes.glsl"

layout(set = 0, binding = 1) readonly buffer States { uint stored[]; };
// As in axes.glsl.
layout(set = 0, binding = 2) buffer Target { uint target[]; };
#ifdef HAS_INDEX
layout(set = 0, binding = 3) buffer Values { uint values[]; };
#else
#define values target
#define values_base target_base
#endif

layout(push_constant) uniform Push {
    uint state_count;
    uint first_output;      // the outputs of this dispatch: the first, and how many
    uint output_count;
    uint states_base;       // in words
    uint target_first;      // the bound segment of the output: its first element, and the size of a full segment
    uint target_count;
    uint target_base;       // address + target_base is the place in the buffer, in elements
#ifdef HAS_INDEX
    uint values_base;       // the same for values
#endif
#ifdef WINDOWS  // for averages, which divide by the number of elements
    uint size[5];           // of the output tensor: batch, channels, depth, height, width
    uint stride[5];         // in elements
    uint window_size[3];
    uint window_stride[3];
    uint dilation[3];
    uint counted_begin[3];  // counted.glsl: the positions that count for an average
    uint counted_end[3];
#else
    uint size[8];           // of the output tensor
    uint stride[8];         // in elements
    uint rank;
    uint element_count;     // elements of an output, along axes
    uint index_step;        // output number i adds i * index_step to its index
    uint split_size;        // TO_STATES: states of a split
#endif
} push;

// This lane's share of states begin to end - 1 of output i, combined.
State combined(uint i, uint begin, uint end)
{
    State state = identity();
    for (uint first = begin + lane(); first < end; first += IN_FLIGHT * LANES) {
        State found[IN_FLIGHT];
        [[unroll]] for (uint r = 0; r < IN_FLIGHT; ++r) {
            uint number = min(first + r * LANES, end - 1);
            uint at = (number * push.output_count + i) * STATE_WORDS + push.states_base;
            LOAD_STATE(found[r], stored, at)
        }
        [[unroll]] for (uint r = 0; r < IN_FLIGHT; ++r) {
            if (r > 0 && first + r * LANES >= end)
                found[r] = identity();
            state = combine(state, found[r]);
        }
    }
    return state;
}

void main()
{
    uint output_count = push.output_count, state_count = push.state_count, split_size = state_count;
#ifndef WINDOWS
    split_size = TO_STATES ? push.split_size : state_count;
#endif
    uint item_count = output_count * (TO_STATES ? (state_count - 1) / split_size + 1 : 1);
    Items mine = shared_items_of(item_count);
    uint next = mine.next;
    for (; next < mine.end; next += turn_size()) {
        uint item = min(next, item_count - 1);
        uint split = TO_STATES ? item / output_count : 0, i = item - split * output_count;
        uint number = push.first_output + i, address = 0;
#ifdef WINDOWS
        uint count = 1, first_index = 0;
        for (uint d = 5; d-- > 0;) {
            uint outer = number / push.size[d], at = number - outer * push.size[d];
            address += at * push.stride[d];
            number = outer;
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
        bool here = TO_STATES || address - push.target_first < push.target_count;
        uint begin = split * split_size;
        uint end = here ? begin + min(state_count - begin, split_size) : begin;
        State state = of_all_lanes(combined(i, begin, end));
        if (here && lane() == 0 && next < item_count) {
            if (TO_STATES)
                STORE_STATE(target, item * STATE_WORDS + push.target_base, state)
            else {
                if (INDEX_WORDS != 0)
                    STORE_INDEX(target, address + push.target_base, first_index + index_of(state))
                if (VALUES)
                    STORE_ELEMENT(values, address + push.values_base, value_of(state, count))
            }
        }
    }
    report(next, mine.end);
}
