#version 430
// Reductions where neighbouring outputs read neighbouring elements. A row of outputs is along the last kept dimension
// and has at least COLUMNS columns, one of each output. An item is COLUMNS outputs of a row, or one split of their
// elements. THREADS invocations share an item:
//
//                outputs of an item
//   elements   [vector][vector][vector][vector]   thread 0
//      |       [vector][vector][vector][vector]   thread 1
//      v       [vector][vector][vector][vector]   thread 0
//
// On a CPU driver an item may be two to four vectors wide, at most 16 columns: neighbouring invocations read
// neighbouring cache lines of 64 bytes, if elements have 32 bits, and wait for their loads together. On a GPU
// (COOPERATING) it is one vector wide, and an invocation waits for the vectors of IN_FLIGHT rows together.
//
// The last item of a row ends where the row ends. It may share columns with the item before, which writes these.
//
// On a CPU driver the rows of few outputs that are contiguous have OUTPUT_COLUMNS columns of each output, so that items
// fill them. Each column has its own partial result:
//
//   outputs                  0  1  2     0  1  2     0  1  2     0  1  2           4 columns of each of 3 outputs
//   elements of outputs     [ 0  0  0     1  1  1 ]  [ 2  2  2     3  3  3 ]       2 items of 6 columns
//                           [ 4  4  4     5  5  5 ]  [ 6  6  6     7  7  7 ]
//                           [ 5  5  5     6  6  6 ]  [ 7  7  7     8  8  8 ]       the last row ends with the split

#define THREAD_STRIDE AT_ONCE
#include "core/axes.glsl"
#include "core/cooperating.glsl"

layout(constant_id = 12) const uint ITEM_VECTORS = 1;
layout(constant_id = 13) const uint OUTPUT_COLUMNS = 1;  // more than 1: a dispatch has whole rows, and writes partials
const uint COLUMNS = ITEM_VECTORS * VECTOR_SIZE;

#if BITS < 32 && defined(HAS_INDEX)
#include "accumulators/packed.glsl"
#else
// The state of a column.
#define Column State
Column empty_column(uint index) { return empty_from(index); }
Column combine_columns(Column a, Column b) { return combine(a, b); }
State state_of_column(Column column) { return column; }
#endif

// An item: elements begin to end - 1 of its columns, which are outputs `first`, `first` + 1, ... of the dispatch.
// Element `begin` of the first column is at `address`. The item before has the first `overlap` columns, too, and writes
// them.
struct Item {
    uint first;
    uint column;  // of the row: that of the first one
    uint overlap;
    uint split;
    uint begin;
    uint end;
    uint address;
};

uint step_size;  // distance of neighbouring elements of a column
Column columns[COLUMNS];  // of an item. Global, because GLSL copies array arguments

// Writes column k, or the state of one split of its elements.
void write_column(Item item, uint k, Column column)
{
    uint address = item.address + k;
    State state = state_of_column(column);
    RELOAD_BITS(state, RELOADED ? LOAD(source, address + (index_of(state) - item.begin) * step_size) : Bits(0))
    uint number = OUTPUT_COLUMNS == 1 ? 0 : (item.column + k) / step_size;  // of the columns of its output
#ifdef HAS_INDEX
    state.index += number;
#endif
    write(item.first + k - number * step_size, item.split * OUTPUT_COLUMNS + number, state);
}

#ifdef COOPERATING

// Accumulates IN_FLIGHT rows of an item, every THREADS-th. The first is row number `offset`, and begins at `at`. For
// a row past the last one, the first is loaded instead, and not accumulated. `whole`, a constant: no row is past it.
void accumulate_rows(Item item, uint offset, uint at, bool whole)
{
    uint count = item.end - item.begin;
    uvec4 vectors[IN_FLIGHT][ITEM_VECTORS];
    [[unroll]] for (uint r = 0; r < IN_FLIGHT; ++r) {
        bool is_element = whole || r == 0 || offset + r * THREADS < count;
        [[unroll]] for (uint k = 0; k < COLUMNS; k += VECTOR_SIZE)
            vectors[r][k / VECTOR_SIZE] = load_vector((is_element ? at + r * THREADS * step_size : at) + k);
    }
    // No [[unroll]]: GPUs' compilers unroll without it; SwiftShader takes minutes, and all memory, to compile the
    // branches of an unrolled loop.
#ifdef HAS_SHIFT
    for (uint k = 0; k < COLUMNS; ++k) {
        Operand greatest = operand_of(element_of(vectors[0][0], k));
        for (uint r = 1; r < IN_FLIGHT; ++r)
            greatest = greater(greatest, operand_of(element_of(vectors[r][0], k)));
        prepare(columns[k], greatest);
    }
#endif
#ifdef HAS_PAIRWISE_ADD
    // Adds the rows, then their sum to the state: half the instructions of adding every element to the state.
    for (uint k = 0; k < COLUMNS; ++k) {
        Operand operand = operand_of(element_of(vectors[0][k / VECTOR_SIZE], k % VECTOR_SIZE));
        for (uint r = 1; r < IN_FLIGHT; ++r) {
            Operand next = operand_of(element_of(vectors[r][k / VECTOR_SIZE], k % VECTOR_SIZE));
            operand = joined(operand, or_neutral(next, whole || offset + r * THREADS < count));
        }
        accumulate(columns[k], operand, 0);
    }
#else
    for (uint r = 0; r < IN_FLIGHT; ++r) {
        bool is_element = whole || r == 0 || offset + r * THREADS < count;
        [[unroll]] for (uint k = 0; k < COLUMNS; ++k)
            accumulate_element(columns[k], element_of(vectors[r][k / VECTOR_SIZE], k % VECTOR_SIZE),
                               item.begin + (is_element ? offset + r * THREADS : offset), is_element);
    }
#endif
}

// Accumulates this thread's elements of an item.
void accumulate_columns(Item item)
{
    const uint turn = IN_FLIGHT * THREADS;
    uint count = item.end - item.begin, offset = thread(), at = item.address + offset * step_size;
#ifndef HAS_SHIFT  // as in rows.comp
    const uint others = turn - THREADS;
    uint end = REPEATABLE || count < others ? 0 : count - others;
    for (; offset < end; offset += turn, at += turn * step_size)
        accumulate_rows(item, offset, at, true);
#endif
    for (; offset < count; offset += turn, at += turn * step_size)
        accumulate_rows(item, offset, at, false);
}

shared Column shared_columns[COLUMNS * GROUP_SIZE];

// Each thread combines some of the columns, over all threads, and writes them.
void write_columns(Item item, bool writes)
{
    [[unroll]] for (uint k = 0; k < COLUMNS; ++k)
        shared_columns[k * GROUP_SIZE + gl_LocalInvocationID.x] = columns[k];
    barrier();
    for (uint k = thread(); k < COLUMNS; k += THREADS) {
        uint here = k * GROUP_SIZE + gl_LocalInvocationID.x % AT_ONCE;
        Column column = shared_columns[here];
        for (uint other = 1; other < THREADS; ++other)
            column = combine_columns(column, shared_columns[here + other * AT_ONCE]);
        if (k >= item.overlap && writes)
            write_column(item, k, column);
    }
    barrier();  // the next iteration overwrites what this one reads
}

#else

// Accumulates the elements of an item. Not accumulate_rows() for one row: SwiftShader keeps a loop of one iteration as
// a loop, and its vectors in memory.
void accumulate_columns(Item item)
{
    uint count = item.end - item.begin, at = item.address;
    for (uint offset = 0; offset < count; offset += OUTPUT_COLUMNS, at += OUTPUT_COLUMNS * step_size) {
        // Elements of an output, and their columns, that the row before has, too.
        uint again = OUTPUT_COLUMNS == 1 ? 0 : max(offset + OUTPUT_COLUMNS, count) - count, skipped = again * step_size;
        uvec4 vectors[ITEM_VECTORS];
        [[unroll]] for (uint k = 0; k < COLUMNS; k += VECTOR_SIZE)
            vectors[k / VECTOR_SIZE] = load_vector(at - skipped + k);
        [[unroll]] for (uint k = 0; k < COLUMNS; ++k)
            accumulate_element(columns[k], element_of(vectors[k / VECTOR_SIZE], k % VECTOR_SIZE),
                               item.begin + offset - again, item.column + k >= skipped);
    }
}

void write_columns(Item item, bool writes)
{
    if (!TO_PARTIALS) {
        [[unroll]] for (uint k = 0; k < COLUMNS; ++k)
            if (k >= item.overlap)
                write_column(item, k, columns[k]);
        return;
    }
    // Partials have more words. The last column is written first, so that `overlap` bounds the loop: drivers unroll
    // loops between constants, and take seconds to compile so many stores. A copy, because shifting `columns` slows
    // accumulate_columns() on llvmpipe (Mesa 22.3).
    Column results[COLUMNS];
    [[unroll]] for (uint k = 0; k < COLUMNS; ++k)
        results[k] = columns[k];
    for (uint k = COLUMNS; k-- > item.overlap;) {
        write_column(item, k, results[COLUMNS - 1]);
        [[unroll]] for (uint other = 1; other < COLUMNS; ++other)
            results[COLUMNS - other] = results[COLUMNS - other - 1];
    }
}

#endif

void main()
{
    uint row_size = push.size[kept_rank - 1];
    uint first_row = first_output / row_size, first_column = first_output - first_row * row_size;
    step_size = push.stride[kept_rank];
    outer_stride = kept_rank == 1 ? 0 : outer_stride;  // from row to row of outputs
    // A dispatch has whole rows of outputs, or a part of one row.
    uint width = min(row_size, output_count), row_columns = width * OUTPUT_COLUMNS;
    uint items_of_row = (row_columns - 1) / COLUMNS + 1;
    uint item_count = items_of_row * (output_count / width), count = item_count * split_count;
    Items mine = shared_items_of(count);
    uint next = mine.next;
    for (; next < mine.end; next += shared_item_stride()) {
        uint number = min(next, count - 1);
        Item item;
        item.split = TO_PARTIALS ? number / item_count : 0;
        number -= item.split * item_count;
        uint row = number / items_of_row, nominal = (number - row * items_of_row) * COLUMNS;
        item.column = min(nominal, row_columns - COLUMNS);
        item.first = row * width + item.column;
        item.overlap = nominal - item.column;
        split_range(item.split, item.begin, item.end);
        item.address = address_of_kept(first_row + row, kept_rank - 1) + first_column + item.column
            + item.begin * step_size + source_base;
        [[unroll]] for (uint k = 0; k < COLUMNS; ++k)
            columns[k] = empty_column(min(item.begin, item.end - OUTPUT_COLUMNS));
        accumulate_columns(item);
        write_columns(item, next < count);
    }
    report(next, mine.end);
}
