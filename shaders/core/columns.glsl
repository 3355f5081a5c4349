// Shared by columns.comp and columns_cooperating.comp: reductions where neighbouring outputs read neighbouring
// elements. A row of outputs is along the last kept dimension and has at least COLUMNS columns, one of each output. An
// item is COLUMNS outputs of a row, or one split of their elements:
//
//                outputs of an item
//   elements   [vector][vector][vector][vector]
//      |       [vector][vector][vector][vector]
//      v       [vector][vector][vector][vector]
//
// The last item of a row ends where the row ends. It may share columns with the item before, which writes these.
//
// On a CPU driver, rows of few outputs have OUTPUT_COLUMNS columns of each output if they are contiguous, so that a row
// has enough columns for items. Each column has its own partial result:
//
//   outputs                  0  1  2     0  1  2     0  1  2     0  1  2           4 columns of each of 3 outputs
//   elements of outputs     [ 0  0  0     1  1  1 ]  [ 2  2  2     3  3  3 ]       2 items of 6 columns
//                           [ 4  4  4     5  5  5 ]  [ 6  6  6     7  7  7 ]
//                           [ 5  5  5     6  6  6 ]  [ 7  7  7     8  8  8 ]       the last row ends with the split

#include "core/axes.glsl"

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

uint step_size = push.stride[kept_rank];  // distance of neighbouring elements of a column
uint row_size = push.size[kept_rank - 1], first_row = first_output / row_size;
uint first_column = first_output - first_row * row_size;
// A dispatch has whole rows of outputs, or a part of one row.
uint width = min(row_size, output_count), row_columns = width * OUTPUT_COLUMNS;
uint items_of_row = (row_columns - 1) / COLUMNS + 1, items_of_split = items_of_row * (output_count / width);

// Items are numbered split by split, row by row.
Item item_number(uint number)
{
    Item item;
    item.split = TO_PARTIALS ? number / items_of_split : 0;
    number -= item.split * items_of_split;
    // The item would begin with column `nominal` if it could pass the end of its row.
    uint row = number / items_of_row, nominal = (number - row * items_of_row) * COLUMNS;
    item.column = min(nominal, row_columns - COLUMNS);
    item.first = row * width + item.column;
    item.overlap = nominal - item.column;
    split_range(item.split, item.begin, item.end);
    item.address = address_of_kept(first_row + row, kept_rank - 1) + first_column + item.column + item.begin * step_size
        + source_base;
    return item;
}

Column columns[COLUMNS];  // of an item. Global, because GLSL copies array arguments

// Writes column k, or the state of one split of its elements.
void write_column(Item item, uint k, Column column)
{
    uint address = item.address + k;
    State state = state_of_column(column);
    reload_bits(state, address + (index_of(state) - item.begin) * step_size);
    uint number = OUTPUT_COLUMNS == 1 ? 0 : (item.column + k) / step_size;  // among the columns of its output
#ifdef HAS_INDEX
    state.index += number;
#endif
    write(item.first + k - number * step_size, item.split * OUTPUT_COLUMNS + number, state);
}
