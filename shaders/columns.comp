#version 430
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Reductions where neighbouring outputs read neighbouring elements. A row of outputs lies along the last kept dimension
// and has COLUMNS outputs at least. An item is COLUMNS outputs of a row, or one split of their elements. LANES
// invocations share an item:
//
//                outputs of an item
//   elements   [block][block][block][block]   lane 0
//      |       [block][block][block][block]   lane 1
//      v       [block][block][block][block]   lane 0
//
// With WIDE an item is two to four blocks wide, of 16 columns at most: neighbouring invocations read neighbouring cache
// lines of 64 bytes, if elements have 32 bits, and wait for their loads together. Without it, an item is one block wide;
// on a GPU (COOPERATING) an invocation waits for the blocks of IN_FLIGHT rows together.
//
// The last item of a row ends where the row ends. The item before may have some of its columns, too, and writes them.

#define LANES_APART AT_ONCE
#include "core/axes.glsl"
#ifdef COOPERATING
layout(constant_id = 11) const uint LANES = 1;  // invocations that share an item
#endif
#include "core/lanes.glsl"

#ifdef WIDE
const uint COLUMNS = min(4 * BLOCK, 16);  // more states do not fit into registers
#else
const uint COLUMNS = BLOCK;
#endif

#if BITS < 32 && defined(HAS_PACKED_STATES)
#include "accumulators/packed.glsl"
#else
// The state of a column. An element's offset is its distance from the column's first element; offsets ascend.
#define Column State
Column first_of_column() { return empty_from(0); }
Column combine_columns(Column a, Column b) { return combine(a, b); }
State state_of_column(Column column) { return column; }
#endif

#ifdef COOPERATING
shared Column shared_columns[COLUMNS * GROUP_SIZE];
#endif

// Writes output number `i` of the dispatch, or the state of one split of its elements. The elements have numbers `begin`
// to `end` - 1; the first is at `address`, and they are `step_size` apart.
void write_column(Column column, uint i, uint split, uint begin, uint end, uint address, uint step_size)
{
    State state = state_of_column(column);
    RELOAD_BITS(state, RELOADED ? LOAD(source, address + index_of(state) * step_size) : Bits(0))
    write(i, split, whole(shifted(state, begin), address, end - begin, step_size));
}

// The states of no elements, of columns whose first of `count` elements are at `address`.
void begin_columns(out Column columns[COLUMNS], uint count, uint address, uint step_size)
{
    [[unroll]] for (uint k = 0; k < COLUMNS; ++k)
        columns[k] = first_of_column();
#ifdef HAS_BIN
    for (uint i = 0; i < 4; ++i) [[unroll]]
        for (uint k = 0; k < COLUMNS; k += BLOCK) {
            uvec4 block = load_block(address + i * (count / 4) * step_size + k);
            [[unroll]] for (uint l = 0; l < BLOCK; ++l)
                show(columns[k + l], element_of(block, l));
        }
    [[unroll]] for (uint k = 0; k < COLUMNS; ++k)
        place(columns[k]);
#endif
}

// Reduces an item: elements begin to end - 1 of its columns. Element `begin` of the first column is at `address`.
// Writes columns as outputs `i`, `i` + 1, ... of the dispatch, but not the first `others`: the item before has these.
#ifdef COOPERATING
void reduce_item(uint i, uint split, bool writes, uint others, uint begin, uint end, uint address, uint step_size)
{
    Column columns[COLUMNS];
    begin_columns(columns, end - begin, address, step_size);
    uint at = address + lane() * step_size;
    for (uint offset = lane(); offset < end - begin; offset += IN_FLIGHT * LANES, at += IN_FLIGHT * LANES * step_size) {
        // Rows behind the last one are not taken: the first of the IN_FLIGHT rows is read in their place.
        uvec4 blocks[IN_FLIGHT][COLUMNS / BLOCK];
        [[unroll]] for (uint r = 0; r < IN_FLIGHT; ++r) {
            bool taken = r == 0 || offset + r * LANES < end - begin;
            [[unroll]] for (uint k = 0; k < COLUMNS; k += BLOCK)
                blocks[r][k / BLOCK] = load_block((taken ? at + r * LANES * step_size : at) + k);
        }
        // No [[unroll]]: GPUs' compilers unroll without it; SwiftShader takes minutes, and all memory, to compile
        // the branches of an unrolled loop.
#ifdef HAS_SHIFT
        for (uint k = 0; k < COLUMNS; ++k) {
            Operand greatest = operand_of(element_of(blocks[0][0], k));
            for (uint r = 1; r < IN_FLIGHT; ++r)
                greatest = greater(greatest, operand_of(element_of(blocks[r][0], k)));
            prepare(columns[k], greatest);
        }
#endif
        for (uint r = 0; r < IN_FLIGHT; ++r) {
            bool taken = r == 0 || offset + r * LANES < end - begin;
            [[unroll]] for (uint k = 0; k < COLUMNS; ++k)
                take_element(columns[k], element_of(blocks[r][k / BLOCK], k % BLOCK),
                             taken ? offset + r * LANES : offset, taken);
        }
    }
    [[unroll]] for (uint k = 0; k < COLUMNS; ++k)
        shared_columns[k * GROUP_SIZE + gl_LocalInvocationID.x] = columns[k];
    barrier();
    // Each lane combines some of the columns, over all lanes.
    for (uint k = lane(); k < COLUMNS; k += LANES) {
        uint here = k * GROUP_SIZE + gl_LocalInvocationID.x % AT_ONCE;
        Column column_of_all = shared_columns[here];
        for (uint other = 1; other < LANES; ++other)
            column_of_all = combine_columns(column_of_all, shared_columns[here + other * AT_ONCE]);
        if (k >= others && writes)
            write_column(column_of_all, i + k, split, begin, end, address + k, step_size);
    }
    barrier();  // the next turn overwrites what this one reads
}
#else
void reduce_item(uint i, uint split, bool writes, uint others, uint begin, uint end, uint address, uint step_size)
{
    Column columns[COLUMNS];
    begin_columns(columns, end - begin, address, step_size);
    uint at = address + lane() * step_size;
    // The same for one load. SwiftShader keeps a loop of one iteration as a loop, and its blocks in memory.
    for (uint offset = 0; offset < end - begin; ++offset, at += step_size) {
        uvec4 blocks[COLUMNS / BLOCK];
        [[unroll]] for (uint k = 0; k < COLUMNS; k += BLOCK)
            blocks[k / BLOCK] = load_block(at + k);
        [[unroll]] for (uint k = 0; k < COLUMNS; ++k) {
            Bits bits = element_of(blocks[k / BLOCK], k % BLOCK);
#ifdef HAS_SHIFT
            prepare(columns[k], operand_of(bits));
#endif
            take_element(columns[k], bits, offset, true);
        }
    }
    [[unroll]] for (uint k = 0; k < COLUMNS; ++k)
        if (k >= others)
            write_column(columns[k], i + k, split, begin, end, address + k, step_size);
}
#endif

void main()
{
    read_push();
    uint row_size = push.size[kept_rank - 1], step_size = push.stride[kept_rank];
    uint first_row = first_output / row_size, first_column = first_output - first_row * row_size;
    outer_stride = kept_rank == 1 ? 0 : outer_stride;  // from row to row of outputs
    // A dispatch has whole rows of outputs, or a part of one row.
    uint width = min(row_size, output_count);
    uint items_of_row = (width - 1) / COLUMNS + 1;
    uint item_count = items_of_row * (output_count / width), count = item_count * split_count;
    Items mine = shared_items_of(count);
    uint next = mine.next;
    for (; next < mine.end; next += turn_size()) {
        uint item = min(next, count - 1);
        uint split = TO_STATES ? item / item_count : 0;
        uint number = item - split * item_count, row = number / items_of_row;
        uint owned = (number - row * items_of_row) * COLUMNS, column = min(owned, width - COLUMNS);
        uint begin, end;
        split_range(split, begin, end);
        uint address = address_of_kept(first_row + row, kept_rank - 1) + first_column + column + begin * step_size
            + source_base;
        uint i = row * width + column, others = owned - column;
        reduce_item(i, split, next < count, others, begin, end, address, step_size);
    }
    report(next, mine.end);
}
