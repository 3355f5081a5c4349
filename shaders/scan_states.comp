#version 430
// Replaces the state of each block by the combined state of those before it in its line, with which the block begins.
// An item is a group of states of a line. If lines have several groups, dispatches with TO_PARTIALS come first, which
// write the combined state of each group; then these are replaced likewise:
//
//   states    [ 3 1 2 ][ 5 1 1 ][ 2 ]       of groups    [ 6 7 2 ]      replaced   [ 0 6 13 ]
//   replaced  [ 0 3 4 ][ 6 11 12 ][ 13 ]

layout(push_constant) uniform Push {
    uint first_item;     // of this dispatch
    uint item_count;
    uint line_count;     // lines are numbered outer * inner_size + inner
    uint inner_size;
    uint block_count;    // of a line
    uint group_count;
    uint group_size;
    uint begins;         // whether groups begin with states
    uint ends;           // whether groups write their last states
    uint state_outer;    // strides of both, in states; groups of a line are neighbours
    uint state_inner;
    uint begin_base;     // in words
    uint end_base;
    uint place_base;     // of the states that are replaced
    uint partials_base;  // of the buffer
} push;

#include "core/kernel.glsl"
#include "accumulator.glsl"

layout(set = 0, binding = 1) buffer States { uint stored[]; };

void main()
{
    uint block_count = push.block_count, group_count = push.group_count, group_size = push.group_size;
    Items mine = items_of(push.item_count);
    uint next = mine.next;
    for (; next < mine.end; next += ITEM_STRIDE) {
        uint item = push.first_item + next, group = item / push.line_count, line = item - group * push.line_count;
        uint outer = line / push.inner_size, inner = line - outer * push.inner_size;
        uint offset = push.partials_base + (outer * push.state_outer + inner * push.state_inner + group) * STATE_WORDS;
        uint begin = group * group_size, count = min(group_size, block_count - begin);
        uint at = push.partials_base + push.place_base + (line * block_count + begin) * STATE_WORDS;
        State state = identity();
        if (push.begins != 0)
            LOAD_STATE(state, stored, push.begin_base + offset)
        for (uint i = 0; i < count; ++i, at += STATE_WORDS) {
            State following;
            LOAD_STATE(following, stored, at)
            State combined = combine(state, following);
            if (!TO_PARTIALS)
                STORE_STATE(stored, at, state)
            state = combined;
        }
        if (push.ends != 0)
            STORE_STATE(stored, push.end_base + offset, state)
    }
    report(next, mine.end);
}
