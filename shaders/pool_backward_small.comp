#version 430
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Gradients of pooling with small windows, as in pool_backward.comp; those of maxima are added in the same order.
//
// One invocation computes a tile of outputs: some rows of TILE_WIDTH neighbours, a multiple of the windows' stride. So
// the windows that cover an output of a row have the same numbers in every tile, counted from the first that covers any
// output, without a search or a division. Windows of 3, stride 2, padding 1:
//
//   outputs    0 1 2 3 4 5 6 7          TILE_WIDTH = 8; output 0 is the middle element of window 0: PHASE_WIDTH = 1
//   window 0  [...]                     output 1 is its last one, and the first one of window 1
//   window 1      [...]
//   window 2          [...]
//   window 3              [...]
//   window 4                  [...      COLUMNS = 5
//
// The invocation moves down by one row of windows at a time, and writes the rows of outputs up to the next row of
// windows. A ring has the ROWS rows of windows that can cover these: the last one, and those above. In a volume, each
// row has the windows of all DEPTHS that can cover an output. With SHARES the ring has sums of the gradients for an
// output from the windows of a row, of all depths; else the windows' maxima and, unless SEARCHED, their gradients.

#define SMALL_WINDOWS
#include "core/gradients.glsl"
#include "core/tiles.glsl"

// The loops over windows are unrolled, because these are constants. A window's last element is at its size - 1, with a
// dilation, too. PHASE_WIDTH is the position of a tile's first output in the last window that begins with it or before
// it. That window covers the output, as no window is entirely in the padding.
// clang-format off: a table
layout(constant_id = 10) const uint DEPTHS = 1;
layout(constant_id = 11) const uint WINDOW_HEIGHT = 1;
layout(constant_id = 12) const uint WINDOW_WIDTH = 1;
layout(constant_id = 13) const uint STRIDE_HEIGHT = 1;
layout(constant_id = 14) const uint STRIDE_WIDTH = 1;
layout(constant_id = 15) const uint PHASE_WIDTH = 0;
layout(constant_id = 16) const uint TILE_WIDTH = 8;
layout(constant_id = 17) const bool SHARED_WORDS = false;  // two rows of outputs may share a word
layout(constant_id = 18) const bool WHOLE_VECTORS = false;  // tiles, and rows of outputs, consist of vectors
#ifndef SHARES
layout(constant_id = 19) const bool SEARCHED = false;  // add only the gradients that an output gets, in a loop
#endif
// clang-format on

layout(set = 0, binding = 2) buffer Values { uint values[]; };
layout(set = 0, binding = 2) buffer ValueVectors { uvec4 value_vectors[]; };

// Windows before the window of PHASE_WIDTH that cover outputs of the tile, too.
const uint BEFORE = (WINDOW_WIDTH - 1 - PHASE_WIDTH) / STRIDE_WIDTH;
const uint COLUMNS = BEFORE + (TILE_WIDTH - 1 + PHASE_WIDTH) / STRIDE_WIDTH + 1;
// Windows that can cover an output, along a dimension.
const uint ROWS = (WINDOW_HEIGHT - 1) / STRIDE_HEIGHT + 1;
const uint MOST_COLUMNS = (WINDOW_WIDTH - 1) / STRIDE_WIDTH + 1;

// Rows of outputs whose code is unrolled: few, so that it compiles fast, but short loops take longer.
const uint TOGETHER = STRIDE_HEIGHT <= 2 ? STRIDE_HEIGHT : 1;

// Whether the first row of the ring covers a row of outputs, which is row `at` of the windows of the last one. All
// other rows of the ring do.
bool first_covers(uint at)
{
    return WINDOW_HEIGHT % STRIDE_HEIGHT == 0 || at + (ROWS - 1) * STRIDE_HEIGHT < WINDOW_HEIGHT;
}

// A row of windows from one column on. If there is no window, its number is at least the number of windows: before the
// first window it is negative (wrapped around).
struct WindowRow {
    uint column;
    bool covers;   // whether the row exists, and its windows cover outputs of the tile
    uint number;   // of the window in this column
    uint address;  // of its gradient
};

WindowRow window_row(bool covers, uint plane, uint z, uint y, uint column)
{
    uint number = ((plane * window_count.x + z) * window_count.y + y) * window_count.z + column;
    uint address = plane * plane_stride + z * stride.x + y * stride.y + column * stride.z + source_base;
    bool exists = y < window_count.y && z < window_count.x && covers;
    return WindowRow(column, exists, number, address);
}

bool has_window(WindowRow row, uint c) { return row.covers && row.column + c < window_count.z; }

// The gradient of window c of a row; of any element if there is no window.
Operand gradient_of(WindowRow row, uint c)
{
    uint at = has_window(row, c) ? row.address + c * stride.z : 0;
    return operand_of(LOAD(source, at));
}

// The ring; load_row(), which moves it up in depth d and loads its last row; value_at(), the value of output k of a
// row, element `number`. The row of outputs is row `at` of the windows of the ring's last row; begin_row() comes before
// it, with the number of its first output and the ring's first row. Arrays are global: GLSL copies array arguments.

#ifdef SHARES

// Outputs from the start of one window to the start of the next share a sum, or two: the last of them are in one window
// less, unless the stride divides the window. Both sums begin with the nearest window, so the longer one needs one
// addition more.
const uint SUMS_OF_WINDOW = WINDOW_WIDTH % STRIDE_WIDTH == 0 ? 1 : 2, SUMS = (COLUMNS - BEFORE) * SUMS_OF_WINDOW;
const uint LAST_ROW = (ROWS - 1) * SUMS;
State sums[ROWS * SUMS];    // row by row
uint in_row[COLUMNS];       // elements of a window along width that share its gradient
Operand shares[COLUMNS];    // gradients of windows of the last row, for an element

void begin_tile(uint column)
{
    [[unroll]] for (uint c = 0; c < COLUMNS; ++c)
        in_row[c] = counted((column + c) * STRIDE_WIDTH, WINDOW_WIDTH, 1, counted_begin.z, counted_end.z);
}

// Sum i of the last row: its value in the depths before d, and the shares of windows that cover its outputs.
State sum_of_row(uint d, uint i)
{
    State sum = identity();
    if (d > 0)
        sum = sums[LAST_ROW + i];
    [[unroll]] for (uint columns = 0; columns < MOST_COLUMNS; ++columns) {
        if (columns + i % SUMS_OF_WINDOW < MOST_COLUMNS) {
            Operand share = shares[max(BEFORE + i / SUMS_OF_WINDOW, columns) - columns];
            if (d == 0 && columns == 0)
                sum = state_of(share, 0);
            else
                accumulate(sum, share, 0);
        }
    }
    return sum;
}

void load_row(uint d, bool covers, uint plane, uint z, uint y, uint column)
{
    [[unroll]] for (uint i = 0; i < LAST_ROW; ++i) {
        if (d == 0)
            sums[i] = sums[i + SUMS];
    }
    WindowRow row = window_row(covers, plane, z, y, column);
    uint in_slab = counted(z * window_stride.x, reach.x + 1, 1, counted_begin.x, counted_end.x)
        * counted(y * STRIDE_HEIGHT, WINDOW_HEIGHT, 1, counted_begin.y, counted_end.y);
    [[unroll]] for (uint c = 0; c < COLUMNS; ++c) {
        bool is_window = has_window(row, c);
        shares[c] = or_neutral(divided(gradient_of(row, c), is_window ? in_slab * in_row[c] : 1), is_window);
    }
    [[unroll]] for (uint i = 0; i < SUMS; ++i)
        sums[LAST_ROW + i] = sum_of_row(d, i);
}

void begin_row(uint number, uint at, WindowRow first) {}

Bits value_at(uint number, uint at, uint k)
{
    State state = identity();
    uint i = (k + PHASE_WIDTH) / STRIDE_WIDTH * SUMS_OF_WINDOW;
    if ((k + PHASE_WIDTH) % STRIDE_WIDTH >= WINDOW_WIDTH % STRIDE_WIDTH)
        i += SUMS_OF_WINDOW - 1;
    [[unroll]] for (uint rows = 0; rows < ROWS; ++rows) {
        if (rows < ROWS - 1 || first_covers(at)) {
            State sum = sums[LAST_ROW - rows * SUMS + i];
            if (rows == 0)
                state = sum;
            else if (DEPTHS * MOST_COLUMNS == 1)
                state = combine_one(state, sum);
            else
                state = combine(state, sum);
        }
    }
    return value_of(state, 1);
}

#else

const uint RING = DEPTHS * ROWS * COLUMNS;  // depth by depth, row by row
uint winners[RING];  // numbers of the elements that get the gradients
Operand gradients[RING];

void begin_tile(uint column) {}

void load_row(uint d, bool covers, uint plane, uint z, uint y, uint column)
{
    uint first = d * ROWS * COLUMNS, last = first + (ROWS - 1) * COLUMNS;
    // Counted from 0: Mesa 25 does not unroll a loop that begins at `first`, and keeps the arrays in memory.
    [[unroll]] for (uint i = 0; i < (ROWS - 1) * COLUMNS; ++i) {
        winners[first + i] = winners[first + i + COLUMNS];
        if (!SEARCHED)
            gradients[first + i] = gradients[first + i + COLUMNS];
    }
    WindowRow row = window_row(covers, plane, z, y, column);
    [[unroll]] for (uint c = 0; c < COLUMNS; ++c) {
        bool is_window = has_window(row, c);
        uint winner = maximum_at(is_window ? row.number + c + maxima_base : 0);
        winners[last + c] = is_window ? winner : NONE;
        if (!SEARCHED)
            gradients[last + c] = gradient_of(row, c);
    }
}

// The windows that can cover an output, in row-major order: rows * MOST_COLUMNS + their number in the row.
const uint MOST = DEPTHS * ROWS * MOST_COLUMNS, WORDS = (MOST + 31) / 32;

// Whether window i of these can cover output k of a row.
bool may_cover(uint i, uint k)
{
    uint columns = MOST_COLUMNS - 1 - i % MOST_COLUMNS;
    return (k + PHASE_WIDTH) % STRIDE_WIDTH + columns * STRIDE_WIDTH < WINDOW_WIDTH;
}
// Its number in the ring. Never less than 0, also where this is not reached: Mesa 22.3 keeps an array with such an
// index in memory.
uint in_ring(uint i, uint k)
{
    uint columns = MOST_COLUMNS - 1 - i % MOST_COLUMNS, last = BEFORE + (k + PHASE_WIDTH) / STRIDE_WIDTH;
    return i / MOST_COLUMNS * COLUMNS + max(last, columns) - columns;
}
// Whether its gradient goes to the output, element `number`.
bool is_winner(uint number, uint at, uint i, uint k)
{
    return winners[in_ring(i, k)] == number && (i / MOST_COLUMNS % ROWS > 0 || first_covers(at));
}

State gathered(uint number, uint at, uint k)
{
    State state = identity();
    bool first = true;
    [[unroll]] for (uint i = 0; i < MOST; ++i) {
        // No `continue`: with one Mesa 25 does not unroll, and keeps the arrays in memory.
        if (may_cover(i, k)) {
            Operand operand = or_neutral(gradients[in_ring(i, k)], is_winner(number, at, i, k));
            if (first)
                state = state_of(operand, 0);
            else
                accumulate(state, operand, 0);
            first = false;
        }
    }
    return state;
}

// With SEARCHED, for each output of a row: WORDS words, with a bit for each window whose gradient it gets; its value.
uint hits[TILE_WIDTH * WORDS];
Bits results[TILE_WIDTH];

// Adds the gradients of the first output in `hits`. Window 0 has the gradient at `address`.
State sum_of_hits(uint address)
{
    State state = identity();
    while (true) {
        uint bits = hits[0], word = 0;
        [[unroll]] for (uint i = 1; i < WORDS; ++i) {
            word = bits == 0 ? i : word;
            bits = bits == 0 ? hits[i] : bits;
        }
        if (bits == 0)
            break;
        uint window = word * 32 + findLSB(bits), row = window / MOST_COLUMNS, c = window - row * MOST_COLUMNS;
        uint distance = row / ROWS * stride.x + row % ROWS * stride.y + c * stride.z;
        accumulate(state, operand_of(LOAD(source, address + distance)), 0);
        [[unroll]] for (uint i = 0; i < WORDS; ++i)
            hits[i] = i == word ? bits & (bits - 1) : hits[i];
    }
    return state;
}

void begin_row(uint number, uint at, WindowRow first)
{
    if (!SEARCHED)
        return;
    [[unroll]] for (uint k = 0; k < TILE_WIDTH; ++k) {
        [[unroll]] for (uint i = 0; i < WORDS; ++i)
            hits[k * WORDS + i] = 0;
        [[unroll]] for (uint i = 0; i < MOST; ++i) {
            if (may_cover(i, k))
                hits[k * WORDS + i / 32] |= is_winner(number + k, at, i, k) ? 1u << i % 32 : 0;
        }
    }
    // Not unrolled: Mesa unrolls no loop around another one that stays. So the words of the next outputs move up.
    [[dont_unroll]] for (uint k = 0; k < TILE_WIDTH; ++k) {
        uint column = BEFORE + (k + PHASE_WIDTH) / STRIDE_WIDTH - (MOST_COLUMNS - 1);
        Bits result = value_of(sum_of_hits(first.address + column * stride.z), 1);
        [[unroll]] for (uint i = 0; i < (TILE_WIDTH - 1) * WORDS; ++i)
            hits[i] = hits[i + WORDS];
        [[unroll]] for (uint i = 0; i < TILE_WIDTH - 1; ++i)
            results[i] = results[i + 1];
        results[TILE_WIDTH - 1] = result;
    }
}

Bits value_at(uint number, uint at, uint k) { return SEARCHED ? results[k] : value_of(gathered(number, at, k), 1); }

#endif

// Writes a row of outputs, if it is `in_tile`: from element `number` on, which has `left_over` - 1 after it in its row.
// It is row `at` of the windows of the ring's last row.
void store_row(bool in_tile, uint number, uint left_over, uint at, WindowRow first)
{
    uint words[4];
    begin_row(number, at, first);
    [[unroll]] for (uint k = 0; k < TILE_WIDTH; ++k) {
        Bits value = value_at(number + k, at, k);
        STORE_OF_TILE(values, value_vectors, words, k, number + k + values_base, value, in_tile && k < left_over)
    }
}

void main()
{
    read_push();
    Tiles tiles = tiles_of(size, TILE_WIDTH, push.tile_height, push.first_output, push.output_count);
    Items mine = items_of(tiles.count);
    uint item = mine.next;
    for (; item < mine.end; item += ITEM_STRIDE) {
        Tile tile = tile_number(item, tiles);
        uint front = tile.depth + start_padding.x, last_depth = front / window_stride.x;
        uint phase = front - last_depth * window_stride.x;
        uint top = tile.top + start_padding.y, at = top % STRIDE_HEIGHT;
        // Rows of windows above that cover the first row of outputs, too. The first iterations only fill the ring with
        // these (pool_small.comp). Before the first row or column of windows numbers are negative (wrapped around): so
        // a window exists if it is below the number of windows.
        uint above = (max(WINDOW_HEIGHT - 1, at) - at) / STRIDE_HEIGHT, y = top / STRIDE_HEIGHT - above;
        uint column = (tile.left + start_padding.z) / STRIDE_WIDTH - BEFORE;
        begin_tile(column);
        for (uint i = 0, row = tile.row; row < tile.end; ++i, ++y) {
            [[unroll]] for (uint d = 0; d < DEPTHS; ++d) {
                uint steps = DEPTHS - 1 - d;
                bool covers = phase + steps * window_stride.x <= reach.x;
                load_row(d, covers, tile.plane, last_depth - steps, y, column);
            }
            if (i < above)
                continue;
            WindowRow first = window_row(true, tile.plane, last_depth - (DEPTHS - 1), y - (ROWS - 1), column);
            for (uint part = 0; part < STRIDE_HEIGHT; part += TOGETHER) {
                [[unroll]] for (uint a = 0; a < TOGETHER; ++a) {
                    uint to = row - at + part + a;
                    bool in_tile = part + a >= at && to < tile.end;
                    store_row(in_tile, to * size.z + tile.left, size.z - tile.left, part + a, first);
                }
            }
            row += STRIDE_HEIGHT - at;
            at = 0;
        }
    }
    report(item, mine.end);
}
