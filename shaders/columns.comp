#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// ARGMAX and ARGMIN where neighbouring outputs read neighbouring elements: along the last kept dimension, which has a
// block of them at least. One invocation owns the outputs of a block of columns, or a stretch of their elements. A last,
// partial block is read as a full one that ends with it; its first columns belong to the invocation before.

#include "reduction.glsl"

#if BITS < 32

// An element's key above its place in the stretch, so that the maximum of these is the winner.
#define State uint
const uint LOW = 0xFFFFFFFFu >> BITS;
State first_state() { return 0; }
void step(inout State state, Bits bits, uint place)
{
    uint reversed = ~place & LOW;
    state = max(state, order_key(bits) << (32 - BITS) | (LAST ? place : reversed));
}
uint place_of(State state) { return (LAST ? state : ~state) & LOW; }

#else

#define State Best
State first_state() { return Best(Bits(0), Bits(0), 0); }
void step(inout State state, Bits bits, uint place)
{
    Bits key = order_key(bits);
    bool above = is_above(key, state.key), not_below = !is_above(state.key, key);
    bool wins = LAST ? not_below : above;
    state.key = wins ? key : state.key;
    state.index = wins ? place : state.index;
}
uint place_of(State state) { return state.index; }

#endif

void main()
{
    read_push();
    uint row_size = push.size[kept_rank - 1], step_size = push.stride[kept_rank];
    uint first_row = first_output / row_size, first_column = first_output - first_row * row_size;
    outer_stride = kept_rank == 1 ? 0 : outer_stride;  // of the rows
    // Whole rows of outputs, or a part of one.
    uint width = min(row_size, output_count);
    uint blocks = (width - 1) / BLOCK + 1;
    uint block_count = blocks * (output_count / width);
    Items mine = items_of(block_count * stretch_count);
    for (uint item = mine.next; item < mine.end; item += BUNDLE) {
        uint stretch = RECORDS ? item / block_count : 0;
        uint number = item - stretch * block_count, row = number / blocks;
        uint owned = (number - row * blocks) * BLOCK, column = min(owned, width - BLOCK);
        uint begin, end;
        stretch_range(stretch, begin, end);
        uint address = address_of_kept(first_row + row, kept_rank - 1) + first_column + column + begin * step_size
            + source_base;
        State states[BLOCK];
        [[unroll]] for (uint k = 0; k < BLOCK; ++k)
            states[k] = first_state();
        uint at = address;
        for (uint place = 0; place < end - begin; ++place, at += step_size) {
            uvec4 block = load_block(at);
            [[unroll]] for (uint k = 0; k < BLOCK; ++k)
                step(states[k], element_of(block, k), place);
        }
        [[unroll]] for (uint k = 0; k < BLOCK; ++k)
            if (column + k >= owned) {
                uint place = place_of(states[k]);
                Bits bits = RECORDS ? LOAD(source, address + place * step_size + k) : Bits(0);
                write(row * width + column + k, stretch, Best(bits, bits, begin + place));
            }
    }
}
