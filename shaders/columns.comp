#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Over axes, where neighbouring outputs read neighbouring elements: along the last kept dimension, which has COLUMNS
// of them at least. An item is so many outputs, or a split of their elements. LANES invocations share it:
//
//                outputs of an item
//   elements   [block][block][block][block]   lane 0      With WIDE four blocks, so that neighbouring invocations read
//      |       [block][block][block][block]   lane 1      neighbouring cache lines of 64 bytes, and wait for all of them
//      v       [block][block][block][block]   lane 0      together. On a GPU one block, of as many rows as it LOADS.
//
// Last, partial blocks are read as full ones that end with them; their first columns belong to the item before.

#define LANES_APART AT_ONCE
#include "core/axes.glsl"
#ifdef COOPERATING
layout(constant_id = 11) const uint LANES = 1;  // invocations that share an item
#endif
#include "core/lanes.glsl"

#ifdef WIDE
const uint COLUMNS = min(4 * BLOCK, 16);  // more states are not kept in registers
#else
const uint COLUMNS = BLOCK;
#endif

#if BITS < 32 && defined(HAS_PACKED_STATES)
#include "accumulators/packed.glsl"
#else
// The state of the elements of a column, in order of their offset behind the first one.
#define Column State
Column first_of_column() { return empty_from(0); }
void take_in_column(inout Column column, Bits bits, uint offset, bool taken)
{
    Operand operand = operand_of(bits);
    if (!REPEATABLE)
        operand = or_neutral(operand, taken);
    accumulate(column, operand, offset);
}
Column combine_columns(Column a, Column b) { return combine(a, b); }
State state_of_column(Column column) { return column; }
#endif

#ifdef COOPERATING
shared Column shared_columns[COLUMNS * GROUP_SIZE];
#endif

// Writes output i of the dispatch, or the record of a split of its elements, which begin at `address`.
void write_column(Column column, uint i, uint split, uint begin, uint address, uint step_size)
{
    State state = state_of_column(column);
    RELOAD_BITS(state, RELOADED ? LOAD(source, address + index_of(state) * step_size) : Bits(0))
    write(i, split, shifted(state, begin));
}

void main()
{
    read_push();
    uint row_size = push.size[kept_rank - 1], step_size = push.stride[kept_rank];
    uint first_row = first_output / row_size, first_column = first_output - first_row * row_size;
    outer_stride = kept_rank == 1 ? 0 : outer_stride;  // of the rows
    // Whole rows of outputs, or a part of one.
    uint width = min(row_size, output_count);
    uint items_of_row = (width - 1) / COLUMNS + 1;
    uint item_count = items_of_row * (output_count / width), count = item_count * split_count;
    Items mine = shared_items_of(count);
    for (uint next = mine.next; next < mine.end; next += turn()) {
        uint item = min(next, count - 1);
        uint split = RECORDS ? item / item_count : 0;
        uint number = item - split * item_count, row = number / items_of_row;
        uint owned = (number - row * items_of_row) * COLUMNS, column = min(owned, width - COLUMNS);
        uint begin, end;
        split_range(split, begin, end);
        uint address = address_of_kept(first_row + row, kept_rank - 1) + first_column + column + begin * step_size
            + source_base;
        Column columns[COLUMNS];
        [[unroll]] for (uint k = 0; k < COLUMNS; ++k)
            columns[k] = first_of_column();
        uint at = address + lane() * step_size;
#ifdef COOPERATING
        for (uint offset = lane(); offset < end - begin; offset += LOADS * LANES, at += LOADS * LANES * step_size) {
            // What would lie behind the last row is the first of these, again.
            uvec4 blocks[LOADS][COLUMNS / BLOCK];
            [[unroll]] for (uint r = 0; r < LOADS; ++r) {
                bool taken = r == 0 || offset + r * LANES < end - begin;
                [[unroll]] for (uint k = 0; k < COLUMNS; k += BLOCK)
                    blocks[r][k / BLOCK] = load_block((taken ? at + r * LANES * step_size : at) + k);
            }
            // Unrolled by GPUs' compilers alone: SwiftShader takes minutes, and all memory, for so many branches in a row.
#ifdef HAS_SHIFT
            for (uint k = 0; k < COLUMNS; ++k) {
                Operand greatest = operand_of(element_of(blocks[0][0], k));
                for (uint r = 1; r < LOADS; ++r)
                    greatest = greater(greatest, operand_of(element_of(blocks[r][0], k)));
                prepare(columns[k], greatest);
            }
#endif
            for (uint r = 0; r < LOADS; ++r) {
                bool taken = r == 0 || offset + r * LANES < end - begin;
                [[unroll]] for (uint k = 0; k < COLUMNS; ++k)
                    take_in_column(columns[k], element_of(blocks[r][k / BLOCK], k % BLOCK),
                                   taken ? offset + r * LANES : offset, taken);
            }
        }
#else
        // The same with one load: a loop of one turn would stay one on SwiftShader, and its blocks in memory.
        for (uint offset = 0; offset < end - begin; ++offset, at += step_size) {
            uvec4 blocks[COLUMNS / BLOCK];
            [[unroll]] for (uint k = 0; k < COLUMNS; k += BLOCK)
                blocks[k / BLOCK] = load_block(at + k);
            [[unroll]] for (uint k = 0; k < COLUMNS; ++k) {
                Bits bits = element_of(blocks[k / BLOCK], k % BLOCK);
#ifdef HAS_SHIFT
                prepare(columns[k], operand_of(bits));
#endif
                take_in_column(columns[k], bits, offset, true);
            }
        }
#endif
        uint i = row * width + column, others = owned - column;  // the first outputs are those of the item before
#ifdef COOPERATING
        [[unroll]] for (uint k = 0; k < COLUMNS; ++k)
            shared_columns[k * GROUP_SIZE + gl_LocalInvocationID.x] = columns[k];
        barrier();
        // Each lane combines some of the columns.
        for (uint k = lane(); k < COLUMNS; k += LANES) {
            uint here = k * GROUP_SIZE + gl_LocalInvocationID.x % AT_ONCE;
            Column column_of_all = shared_columns[here];
            for (uint other = 1; other < LANES; ++other)
                column_of_all = combine_columns(column_of_all, shared_columns[here + other * AT_ONCE]);
            if (k >= others && next < count)
                write_column(column_of_all, i + k, split, begin, address + k, step_size);
        }
        barrier();  // the next turn writes where this one reads
#else
        [[unroll]] for (uint k = 0; k < COLUMNS; ++k)
            if (k >= others)
                write_column(columns[k], i + k, split, begin, address + k, step_size);
#endif
    }
}
