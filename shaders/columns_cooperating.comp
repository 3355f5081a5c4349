#version 430
// Reductions of columns for GPUs (core/columns.glsl). An item is one vector wide, and THREADS invocations share it. An
// invocation waits for the vectors of IN_FLIGHT rows together:
//
//   elements   [vector]   thread 0
//      |       [vector]   thread 1
//      v       [vector]   thread 0

#define COOPERATING
#define THREAD_STRIDE AT_ONCE
#include "core/columns.glsl"
#include "core/cooperating.glsl"

// Accumulates IN_FLIGHT rows of an item, every THREADS-th. The first is row number `offset`, and begins at `at`. For
// a row past the last one, the first is loaded instead, and not accumulated. `whole`, a constant: no row is past it.
void accumulate_rows(Item item, uint offset, uint at, bool whole)
{
    uint count = item.end - item.begin;
    uvec4 vectors[IN_FLIGHT];
    [[unroll]] for (uint r = 0; r < IN_FLIGHT; ++r) {
        bool is_element = whole || r == 0 || offset + r * THREADS < count;
        vectors[r] = load_vector(is_element ? at + r * THREADS * step_size : at);
    }
    // No [[unroll]]: GPUs' compilers unroll without it; SwiftShader takes minutes, and all memory, to compile the
    // branches of an unrolled loop.
#ifdef HAS_SHIFT
    for (uint k = 0; k < COLUMNS; ++k) {
        Operand greatest = operand_of(element_of(vectors[0], k));
        for (uint r = 1; r < IN_FLIGHT; ++r)
            greatest = greater(greatest, operand_of(element_of(vectors[r], k)));
        prepare(columns[k], greatest);
    }
#endif
#ifdef HAS_PAIRWISE_ADD
    // Adds the rows, then their sum to the state: half the instructions of adding every element to the state.
    for (uint k = 0; k < COLUMNS; ++k) {
        Operand operand = operand_of(element_of(vectors[0], k));
        for (uint r = 1; r < IN_FLIGHT; ++r) {
            Operand next = operand_of(element_of(vectors[r], k));
            operand = joined(operand, or_neutral(next, whole || offset + r * THREADS < count));
        }
        accumulate(columns[k], operand, 0);
    }
#else
    for (uint r = 0; r < IN_FLIGHT; ++r) {
        bool is_element = whole || r == 0 || offset + r * THREADS < count;
        [[unroll]] for (uint k = 0; k < COLUMNS; ++k)
            accumulate_element(columns[k], element_of(vectors[r], k),
                               item.begin + (is_element ? offset + r * THREADS : offset), is_element);
    }
#endif
}

// Accumulates this thread's elements of an item.
void accumulate_columns(Item item)
{
    const uint turn = IN_FLIGHT * THREADS;
    uint count = item.end - item.begin, offset = thread(), at = item.address + offset * step_size;
#ifndef HAS_SHIFT  // as in rows_cooperating.comp
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

void main()
{
    uint count = items_of_split * split_count;
    Items mine = shared_items_of(count);
    uint next = mine.next;
    for (; next < mine.end; next += shared_item_stride()) {
        Item item = item_number(min(next, count - 1));
        [[unroll]] for (uint k = 0; k < COLUMNS; ++k)
            columns[k] = empty_column(min(item.begin, item.end - OUTPUT_COLUMNS));
        accumulate_columns(item);
        write_columns(item, next < count);
    }
    report(next, mine.end);
}
