#version 430
// Gradients of pooling with small windows. Those of maxima are added in the same order as in pool_backward.comp.
//
// One invocation computes a tile of outputs: some rows of TILE_WIDTH neighbours, a multiple of the windows' stride. It
// moves down STRIDE_HEIGHT rows at a time. So the windows that cover an output have the same numbers in every step,
// counted from the first that covers any output, and are known without a search or a division. Windows of 3, stride 2,
// padding 1:
//
//   outputs    0 1 2 3 4 5 6 7          TILE_WIDTH = 8; output 0 is the middle element of window 0: PHASE_WIDTH = 1
//   window 0  [...]                     output 1 is its last one, and the first one of window 1
//   window 1      [...]
//   window 2          [...]
//   window 3              [...]
//   window 4                  [...      COLUMNS = 5
//
// The gradients of these windows are loaded once, into a ring of ROWS rows, which moves up by one row for the next
// step. In a volume, each row has the windows of all DEPTHS that can cover an output. With SHARES, for averages, the
// ring has sums: what outputs get from the windows of a row, of all depths.

#define SMALL_WINDOWS
#include "core/gradients.glsl"
#include "core/tiles.glsl"

// The loops over windows are unrolled, because these are constants. A window's size includes the gaps of a dilation:
// its last element is at its size - 1. PHASE is the position of a tile's first output in the last window that begins
// with it or before it. That window covers the output, as no window is entirely in the padding.
// clang-format off: a table
layout(constant_id = 10) const uint DEPTHS = 1;
layout(constant_id = 11) const uint WINDOW_HEIGHT = 1;
layout(constant_id = 12) const uint WINDOW_WIDTH = 1;
layout(constant_id = 13) const uint STRIDE_HEIGHT = 1;
layout(constant_id = 14) const uint STRIDE_WIDTH = 1;
layout(constant_id = 15) const uint PHASE_HEIGHT = 0;
layout(constant_id = 16) const uint PHASE_WIDTH = 0;
layout(constant_id = 17) const uint TILE_WIDTH = 8;
layout(constant_id = 18) const bool SHARED_WORDS = false;  // two rows of outputs may share a word
layout(constant_id = 19) const bool WHOLE_VECTORS = false;  // tiles, and rows of outputs, consist of vectors
// clang-format on

layout(set = 0, binding = 2) buffer Values { uint values[]; };
layout(set = 0, binding = 2) buffer ValueVectors { uvec4 value_vectors[]; };

// Windows above the window of PHASE, and to the left of it, that also cover outputs of the tile.
const uint ABOVE = (WINDOW_HEIGHT - 1 - PHASE_HEIGHT) / STRIDE_HEIGHT;
const uint BEFORE = (WINDOW_WIDTH - 1 - PHASE_WIDTH) / STRIDE_WIDTH;
const uint ROWS = ABOVE + (STRIDE_HEIGHT - 1 + PHASE_HEIGHT) / STRIDE_HEIGHT + 1;
const uint COLUMNS = BEFORE + (TILE_WIDTH - 1 + PHASE_WIDTH) / STRIDE_WIDTH + 1;
// Columns of windows that are loaded at a time. With TURNS not all: Mesa 25 compiles 24 basic blocks for each load.
#ifdef TURNS
layout(constant_id = 20) const uint LOADED = 1;
#else
const uint LOADED = COLUMNS;
#endif
// Windows that can cover an output, along a dimension.
const uint MOST_ROWS = (WINDOW_HEIGHT - 1) / STRIDE_HEIGHT + 1;
const uint MOST_COLUMNS = (WINDOW_WIDTH - 1) / STRIDE_WIDTH + 1;

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

// The ring, with or without SHARES, and its functions: move_up() moves it up in depth d; load_windows() moves its last
// row to the left, and loads the last LOADED windows there; gathered() adds up the gradients in the ring for output (a,
// k) of a step, which is element `number`. Arrays are global, because GLSL copies array arguments.

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

// Sum i of the last row: its value for the depths before d, plus the shares of windows that cover its outputs.
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

void move_up(uint d)
{
    [[unroll]] for (uint i = 0; i < LAST_ROW; ++i) {
        if (d == 0)
            sums[i] = sums[i + SUMS];
    }
}

void load_windows(uint d, bool covers, uint plane, uint z, uint y, uint column)
{
    WindowRow row = window_row(covers, plane, z, y, column);
    uint in_slab = counted(z * window_stride.x, reach.x + 1, 1, counted_begin.x, counted_end.x)
        * counted(y * STRIDE_HEIGHT, WINDOW_HEIGHT, 1, counted_begin.y, counted_end.y);
    [[unroll]] for (uint c = 0; c < COLUMNS; ++c) {
        bool is_window = has_window(row, c);
        shares[c] = or_neutral(share_of(gradient_of(row, c), is_window ? in_slab * in_row[c] : 1), is_window);
    }
    [[unroll]] for (uint i = 0; i < SUMS; ++i)
        sums[LAST_ROW + i] = sum_of_row(d, i);
}

State gathered(uint number, uint a, uint k)
{
    State state = identity();
    uint below = (a + PHASE_HEIGHT) % STRIDE_HEIGHT, right = (k + PHASE_WIDTH) % STRIDE_WIDTH;
    uint at = (k + PHASE_WIDTH) / STRIDE_WIDTH * SUMS_OF_WINDOW;
    if (right >= WINDOW_WIDTH % STRIDE_WIDTH)
        at += SUMS_OF_WINDOW - 1;
    [[unroll]] for (uint rows = 0; rows < MOST_ROWS; ++rows) {
        if (below + rows * STRIDE_HEIGHT < WINDOW_HEIGHT) {
            uint r = max(ABOVE + (a + PHASE_HEIGHT) / STRIDE_HEIGHT, rows) - rows;
            State sum = sums[r * SUMS + at];
            if (rows == 0)
                state = sum;
            else if (DEPTHS * MOST_COLUMNS == 1)
                state = combine_one(state, sum);
            else
                state = combine(state, sum);
        }
    }
    return state;
}

#else

const uint RING = DEPTHS * ROWS * COLUMNS;  // depth by depth, row by row
Operand gradients[RING];
uint winners[RING];  // the numbers of the elements that get these gradients

void begin_tile(uint column) {}

void move_up(uint d)
{
    uint first = d * ROWS * COLUMNS;
    // Counted from 0: Mesa 25 does not unroll a loop that begins at `first`, and keeps the arrays in memory.
    [[unroll]] for (uint i = 0; i < (ROWS - 1) * COLUMNS; ++i) {
        gradients[first + i] = gradients[first + i + COLUMNS];
        winners[first + i] = winners[first + i + COLUMNS];
    }
}

void load_windows(uint d, bool covers, uint plane, uint z, uint y, uint column)
{
    uint last = (d * ROWS + ROWS - 1) * COLUMNS, begin = last + COLUMNS - LOADED;
    [[unroll]] for (uint c = 0; c < COLUMNS - LOADED; ++c) {
        gradients[last + c] = gradients[last + c + LOADED];
        winners[last + c] = winners[last + c + LOADED];
    }
    WindowRow row = window_row(covers, plane, z, y, column);
    [[unroll]] for (uint c = 0; c < LOADED; ++c) {
        bool is_window = has_window(row, c);
        gradients[begin + c] = gradient_of(row, c);
        uint winner = maximum_at(is_window ? row.number + c + maxima_base : 0);
        winners[begin + c] = is_window ? winner : NONE;
    }
}

State gathered(uint number, uint a, uint k)
{
    State state = identity();
    bool first = true;
    // Windows in row-major order: the first one is furthest above and furthest left.
    uint below = (a + PHASE_HEIGHT) % STRIDE_HEIGHT, right = (k + PHASE_WIDTH) % STRIDE_WIDTH;
    [[unroll]] for (uint d = 0; d < DEPTHS; ++d) {
        [[unroll]] for (uint i = 0; i < MOST_ROWS; ++i) {
            uint rows = MOST_ROWS - 1 - i;
            [[unroll]] for (uint j = 0; j < MOST_COLUMNS; ++j) {
                uint columns = MOST_COLUMNS - 1 - j;
                // No `continue`: with one Mesa 25 does not unroll, and keeps the arrays in memory.
                if (below + rows * STRIDE_HEIGHT < WINDOW_HEIGHT && right + columns * STRIDE_WIDTH < WINDOW_WIDTH) {
                    // max() keeps indices from being negative, even where this is not reached: Mesa 22.3 keeps an array
                    // with such an index in memory.
                    uint r = max(ABOVE + (a + PHASE_HEIGHT) / STRIDE_HEIGHT, rows) - rows;
                    uint c = max(BEFORE + (k + PHASE_WIDTH) / STRIDE_WIDTH, columns) - columns;
                    uint w = (d * ROWS + r) * COLUMNS + c;
                    Operand operand = or_neutral(gradients[w], winners[w] == number);
                    if (first)
                        state = state_of(operand, 0);
                    else
                        accumulate(state, operand, 0);
                    first = false;
                }
            }
        }
    }
    return state;
}

#endif

void load_depths(uint phase, uint plane, uint last_depth, uint y, uint column)
{
    [[unroll]] for (uint d = 0; d < DEPTHS; ++d) {
        if (LOADED == COLUMNS)
            move_up(d);
        uint steps = DEPTHS - 1 - d;
        load_windows(d, phase + steps * window_stride.x <= reach.x, plane, last_depth - steps, y, column);
    }
}

// Writes row `a` of a step, if it is `in_tile`. Its first output is element `number`; from there on, the row of outputs
// has `left_over` elements.
void store_row(uint a, bool in_tile, uint number, uint left_over)
{
    uint words[4];
    [[unroll]] for (uint k = 0; k < TILE_WIDTH; ++k) {
        State state = gathered(number + k, a, k);
        Bits value = value_of(state, 1);
        STORE_OF_TILE(values, value_vectors, words, k, number + k + values_base, value, in_tile && k < left_over)
    }
}

void main()
{
    Tiles tiles = tiles_of(size, TILE_WIDTH, push.tile_height, push.first_output, push.output_count);
    Items mine = items_of(tiles.count);
    uint item = mine.next;
    for (; item < mine.end; item += ITEM_STRIDE) {
        Tile tile = tile_number(item, tiles);
        // The first window of the ring. Before the first window of the input it is negative (wrapped around): so a
        // window exists if it is below the number of windows.
        uint front = tile.depth + start_padding.x, last_depth = front / window_stride.x;
        uint phase = front - last_depth * window_stride.x;
        uint window_row = (tile.top + start_padding.y) / STRIDE_HEIGHT - ABOVE;
        uint column = (tile.left + start_padding.z) / STRIDE_WIDTH - BEFORE;
        begin_tile(column);
        // The first iterations only fill the ring (pool_small.comp).
        uint iterations = ROWS - 1 + (tile.end - tile.row - 1) / STRIDE_HEIGHT + 1;
        for (uint i = 0; i < iterations; ++i) {
#ifdef TURNS
            [[unroll]] for (uint d = 0; d < DEPTHS; ++d)
                move_up(d);
            // Drivers do not know that gl_NumWorkGroups.y is 1, so they do not unroll this loop. Nor would they unroll
            // a loop over depths around it: that is inside. If LOADED does not divide COLUMNS, the first turn loads
            // some windows too many, which later turns move out.
            uint left = ((COLUMNS - 1) / LOADED + 1) * LOADED * gl_NumWorkGroups.y;
            for (; left > 0; left -= LOADED)
                load_depths(phase, tile.plane, last_depth, window_row + i, column + COLUMNS - left);
#else
            load_depths(phase, tile.plane, last_depth, window_row + i, column);
#endif
            if (i < ROWS - 1)
                continue;
            uint row = tile.row + (i - (ROWS - 1)) * STRIDE_HEIGHT;
            [[unroll]] for (uint a = 0; a < STRIDE_HEIGHT; ++a)
                store_row(a, row + a < tile.end, (row + a) * size.z + tile.left, size.z - tile.left);
        }
    }
    report(item, mine.end);
}
