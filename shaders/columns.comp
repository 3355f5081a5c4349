#version 430
// Reductions of columns, for CPU drivers: one invocation per item (core/columns.glsl). An item may be two to four
// vectors wide, with at most 16 columns. With elements of 32 bits these are a cache line of 64 bytes, so neighbouring
// invocations read neighbouring lines, and wait for their loads together.

#include "core/columns.glsl"

// Whether outputs have so few elements that stores take a large part of the time.
layout(constant_id = 14) const bool FEW_ELEMENTS = false;

// Accumulates the elements of an item. accumulate_rows() of columns_cooperating.comp for one row would do the same, but
// SwiftShader keeps its loop of one iteration as a loop, and the vectors in memory.
void accumulate_columns(Item item)
{
    uint count = item.end - item.begin, at = item.address;
    for (uint offset = 0; offset < count; offset += OUTPUT_COLUMNS, at += OUTPUT_COLUMNS * step_size) {
        // The last row may begin with columns that the row before has: `again` of each output, `skipped` in all.
        uint again = OUTPUT_COLUMNS == 1 ? 0 : max(offset + OUTPUT_COLUMNS, count) - count, skipped = again * step_size;
        uvec4 vectors[ITEM_VECTORS];
        [[unroll]] for (uint k = 0; k < COLUMNS; k += VECTOR_SIZE)
            vectors[k / VECTOR_SIZE] = load_vector(at - skipped + k);
        [[unroll]] for (uint k = 0; k < COLUMNS; ++k)
            accumulate_element(columns[k], element_of(vectors[k / VECTOR_SIZE], k % VECTOR_SIZE),
                               item.begin + offset - again, item.column + k >= skipped);
    }
}

void write_columns(Item item)
{
    if (FEW_ELEMENTS) {
        [[unroll]] for (uint k = 0; k < COLUMNS; ++k)
            if (k >= item.overlap)
                write_column(item, k, columns[k]);
        return;
    }
    // This loop ends at `overlap`, which is no constant, so drivers do not unroll it: compiling so many stores may take
    // seconds. It shifts a copy, because shifting `columns` slows accumulate_columns() on llvmpipe (Mesa 22.3).
    Column results[COLUMNS];
    [[unroll]] for (uint k = 0; k < COLUMNS; ++k)
        results[k] = columns[k];
    for (uint k = COLUMNS; k-- > item.overlap;) {
        write_column(item, k, results[COLUMNS - 1]);
        [[unroll]] for (uint other = 1; other < COLUMNS; ++other)
            results[COLUMNS - other] = results[COLUMNS - other - 1];
    }
}

void main()
{
    Items mine = items_of(items_of_split * split_count);
    uint next = mine.next;
    for (; next < mine.end; next += ITEM_STRIDE) {
        Item item = item_number(next);
        [[unroll]] for (uint k = 0; k < COLUMNS; ++k)
            columns[k] = empty_column(min(item.begin, item.end - OUTPUT_COLUMNS));
        accumulate_columns(item);
        write_columns(item);
    }
    report(next, mine.end);
}
