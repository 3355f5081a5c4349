#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Reductions where neighbouring outputs read neighbouring elements: along the last kept dimension, which has a block of
// them at least. One invocation owns the outputs of a block of columns, or a stretch of their elements. A last, partial
// block is read as a full one that ends with it; its first columns belong to the invocation before.

#include "core/axes.glsl"

#if BITS < 32 && defined(HAS_PACKED_STATES)
#include "accumulators/packed.glsl"
#else
// The state of the elements of a column, in order of their offset behind the first one.
#define Column State
Column first_of_column() { return before(0); }
void take_in_column(inout Column column, Bits bits, uint offset) { take(column, operand_of(bits), offset); }
State state_of_column(Column column) { return column; }
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
        Column columns[BLOCK];
        [[unroll]] for (uint k = 0; k < BLOCK; ++k)
            columns[k] = first_of_column();
        uint at = address;
        for (uint offset = 0; offset < end - begin; ++offset, at += step_size) {
            uvec4 block = load_block(at);
            [[unroll]] for (uint k = 0; k < BLOCK; ++k)
                take_in_column(columns[k], element_of(block, k), offset);
        }
        [[unroll]] for (uint k = 0; k < BLOCK; ++k)
            if (column + k >= owned) {
                State state = state_of_column(columns[k]);
                uint i = row * width + column + k;
                uint winner = address + index_of(state) * step_size + k;
                RECALL(state, RECALLED ? LOAD(source, winner) : Bits(0))
                write(i, stretch, shifted(state, begin));
            }
    }
}
