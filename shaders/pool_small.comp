#version 430
// Pooling over small windows. The elements of an input row are contiguous.
//
// One invocation computes a tile of outputs, row by row: TILE_WIDTH neighbours in each row. Their windows cover a span
// of each input row. The invocation loads the span's vectors once, for all windows.
//
// If windows share input rows with the windows above them, the invocation keeps, for each window and input row, the
// state of the window's elements in that row. These states form a ring of RING_ROWS rows:
//
//   input rows                                the ring, for TILE_WIDTH = 4
//   y      [======= span =======]   ------->  [ window 0 | window 1 | window 2 | window 3 ]   row 0
//   y + 1  [====================]   ------->  [          |          |          |          ]   row 1
//   y + 2  [====================]   ------->  [          |          |          |          ]   row 2
//                                                  |          |          |          |
//   output k combines column k of the ring:     output 0   output 1   output 2   output 3
//
// For each row of the tile, the ring moves up by the windows' stride along height, and FRESH_ROWS input rows are loaded
// at its end. So rows that several windows share are loaded once. Before the first row of outputs, FILLING iterations
// fill the ring, and write no outputs. So every iteration loads FRESH_ROWS rows, a constant: drivers unroll the loop
// over them, and keep only shared rows in registers between iterations. In a volume, a row of the ring combines row y
// of all depths of a window.
//
// A row of the ring combines HELD_ROWS input rows: one if windows share rows, else all rows of a window. In a tile of
// one row, windows share none.

#include "core/spans.glsl"

layout(set = 0, binding = 2) writeonly buffer Indices { uint indices[]; };
layout(set = 0, binding = 2) writeonly buffer IndexVectors { uvec4 index_vectors[]; };
layout(set = 0, binding = 3) buffer Values { uint values[]; };
layout(set = 0, binding = 3) writeonly buffer ValueVectors { uvec4 value_vectors[]; };

// Whether a state of the ring has the elements of one input row alone, and at most 8. accumulate_window() of sums then
// adds them as one operand, and combine_one() combines the states.
const bool SINGLE = WINDOW_DEPTH * HELD_ROWS == 1 && WINDOW_WIDTH <= 8;
#ifndef HAS_PAIRWISE_ADD
#define combine_one combine
#endif

// Per-tile state. Globals, because GLSL copies array arguments.
uint first_columns[TILE_WIDTH];      // each window's first column that is not in the padding
State ring[RING_ROWS * TILE_WIDTH];  // row by row
State states[TILE_WIDTH];            // of a row of outputs
Operand operands[SPAN];              // of an input row

// The first of `at`, `at` + `dilation`, ... that is not in the padding before the input. Coordinates in that padding
// are negative: they wrap around to large numbers.
uint first_inside(uint at, uint padding, uint dilation)
{
    uint steps = at + padding < padding ? (0 - at - 1) / dilation + 1 : 0;
    return at + steps * dilation;
}

// The index of the first element of a row of the input.
uint row_index(uint plane, uint z, uint y) { return ((plane * size.x + z) * size.y + y) * size.z; }

// Sets what all rows of a tile share. `left` is the first column of its first window.
void begin_tile(uint left)
{
    [[unroll]] for (uint k = 0; k < TILE_WIDTH; ++k)
        first_columns[k] = first_inside(left + k * STRIDE_WIDTH, start_padding.z, DILATION_WIDTH);
}

// Moves the rows of the ring up, and resets the last one, for elements of row (z, y) and of later rows. Below the input
// there are none: the states are then identity(), because empty_from() needs the index of an element.
void begin_ring_row(uint plane, uint z, uint y)
{
    uint index = row_index(plane, z, y);
    [[unroll]] for (uint i = 0; i < LAST_ROW; ++i)
        ring[i] = ring[i + TILE_WIDTH];
    [[unroll]] for (uint k = 0; k < TILE_WIDTH; ++k) {
        ring[LAST_ROW + k] = identity();
        if (y < size.y)
            ring[LAST_ROW + k] = empty_from(index + first_columns[k]);
    }
}

// Accumulates a window's elements of a span, from element `first` on. `index` is the index of element 0.
#ifdef HAS_PAIRWISE_ADD
// Adds eight elements in pairs, then their sums in pairs, and so on: no element goes through more than 3 additions
// before accumulate().
void accumulate_window(inout State state, uint first, uint index)
{
    [[unroll]] for (uint eight = 0; eight < (WINDOW_WIDTH + 7) / 8; ++eight) {
        uint begin = 8 * eight;
        Operand parts[4];
        [[unroll]] for (uint w = 0; w < 8; ++w) {
            if (begin + w < WINDOW_WIDTH) {
                Operand element = operands[first + (begin + w) * DILATION_WIDTH];
                parts[w % 4] = w < 4 ? element : joined(parts[w % 4], element);
            }
        }
        if (begin + 1 < WINDOW_WIDTH)
            parts[0] = joined(parts[0], parts[1]);
        if (begin + 3 < WINDOW_WIDTH)
            parts[2] = joined(parts[2], parts[3]);
        if (begin + 2 < WINDOW_WIDTH)
            parts[0] = joined(parts[0], parts[2]);
        if (SINGLE)
            state = state_of(parts[0], index);
        else
            accumulate(state, parts[0], index);
    }
}
#else
void accumulate_window(inout State state, uint first, uint index)
{
    [[unroll]] for (uint w = 0; w < WINDOW_WIDTH; ++w) {
        uint c = first + w * DILATION_WIDTH;
        accumulate(state, operands[c], index + c);
    }
}
#endif

// Accumulates the span of row (z, y) in the last row of the ring.
void accumulate_span(uint plane, uint z, uint y, uint left)
{
    uint width = y < size.y && z < size.x ? size.z : 0, index = row_index(plane, z, y) + left;
    uvec4 vectors[VECTORS_AND_ONE];
    load_span(plane * plane_stride + z * depth_stride + y * row_stride + left + source_base, vectors);
    [[unroll]] for (uint c = 0; c < SPAN; ++c) {
        bool is_element = left + c < width;
        operands[c] = or_neutral(operand_of(element_of_span(vectors, c)), is_element);
    }
    [[unroll]] for (uint k = 0; k < TILE_WIDTH; ++k)
        accumulate_window(ring[LAST_ROW + k], k * STRIDE_WIDTH, index);
}

// Moves the ring on by FRESH_ROWS, for windows whose first row is `top` of the input, and whose first depth is `front`.
// Their first depth that is not in the padding is `first_z`.
void load_rows(uint plane, uint front, uint first_z, uint top, uint left)
{
    for (uint r = RING_ROWS - FRESH_ROWS; r < RING_ROWS; ++r) {
        begin_ring_row(plane, first_z, SHARED ? top + r : first_inside(top, start_padding.y, DILATION_HEIGHT));
        for (uint d = 0; d < WINDOW_DEPTH; ++d) {
            for (uint h = 0; h < HELD_ROWS; ++h)
                accumulate_span(plane, front + d * DILATION_DEPTH, top + r + h * DILATION_HEIGHT, left);
        }
    }
}

// Combines two rows of the ring; `b` is the later one.
State combine_rows(State a, State b)
{
#ifdef HAS_INDEX
    // If windows have one depth, all elements of `b` come after those of `a`. If no indices are written either,
    // appended() compares none, so the compiler keeps none in registers.
    if (INDEX_WORDS == 0 && WINDOW_DEPTH == 1)
        return appended(a, b);
#endif
    return SINGLE ? combine_one(a, b) : combine(a, b);
}

// Combines each column of the ring.
void combine_columns()
{
    [[unroll]] for (uint k = 0; k < TILE_WIDTH; ++k) {
        states[k] = ring[k];
        [[unroll]] for (uint h = HELD_ROWS; h < WINDOW_HEIGHT; ++h) {
            State row = ring[h * DILATION_HEIGHT * TILE_WIDTH + k];
            states[k] = combine_rows(states[k], row);
        }
    }
}

// Writes the values of a tile's row of outputs. The first is output `number`, in column `column`; from there on its row
// has `left_in_row` outputs more. An average counts `rows` rows of each window.
void store_values(uint number, uint column, uint left_in_row, uint rows)
{
    uint words[4];
    [[unroll]] for (uint k = 0; k < TILE_WIDTH; ++k) {
        uint columns
            = counted((column + k) * STRIDE_WIDTH, WINDOW_WIDTH, DILATION_WIDTH, counted_begin.z, counted_end.z);
        Bits value = value_of(states[k], rows * columns);
        STORE_OF_TILE(values, value_vectors, words, k, number + k + values_base, value, k < left_in_row)
    }
}

// Writes the indices likewise.
void store_indices(uint number, uint left_in_row)
{
    uint words[4];
    [[unroll]] for (uint k = 0; k < TILE_WIDTH; ++k) {
        uint at = number + k + indices_base, i = k * INDEX_WORDS % 4;
        words[i | 1u] = 0;  // the high word of a 64-bit index; after a 32-bit one, the next index overwrites it
        words[i] = index_of(states[k]);
        if (k < left_in_row) {
            if (!WHOLE_VECTORS)
                STORE_INDEX(indices, at, words[i])
            else if (i + INDEX_WORDS == 4)
                index_vectors[at * INDEX_WORDS / 4] = uvec4(words[0], words[1], words[2], words[3]);
        }
    }
}

// Writes row `row` of the tile from the ring.
void store_row(Tile tile, uint row)
{
    uint number = (tile.row + row) * output_size.z + tile.left, left_in_row = output_size.z - tile.left;
    uint z = tile.depth * window_stride.x, y = (tile.top + row) * window_stride.y;
    uint rows = counted(z, WINDOW_DEPTH, DILATION_DEPTH, counted_begin.x, counted_end.x)
        * counted(y, WINDOW_HEIGHT, DILATION_HEIGHT, counted_begin.y, counted_end.y);
    combine_columns();
    if (VALUES)
        store_values(number, tile.left, left_in_row, rows);
    if (INDEX_WORDS != 0)
        store_indices(number, left_in_row);
}

void main()
{
    Tiles tiles = tiles_of(output_size, TILE_WIDTH, push.tile_height, push.first_output, push.output_count);
    Items mine = items_of(tiles.count);
    uint item = mine.next;
    for (; item < mine.end; item += ITEM_STRIDE) {
        Tile tile = tile_number(item, tiles);
        // The start of the first window in the input. In the padding before the input it is negative (wrapped around):
        // so a coordinate is in the input if it is below the input's size.
        uint front = tile.depth * window_stride.x - start_padding.x;
        uint top = tile.top * window_stride.y - start_padding.y - FILLING * FRESH_ROWS;
        uint left = tile.left * STRIDE_WIDTH - start_padding.z;
        uint first_z = first_inside(front, start_padding.x, DILATION_DEPTH);
        begin_tile(left);
        uint iterations = FILLING + tile.end - tile.row;
        for (uint i = 0; i < iterations; ++i, top += window_stride.y) {
            load_rows(tile.plane, front, first_z, top, left);
            if (i >= FILLING)
                store_row(tile, i - FILLING);
        }
    }
    report(item, mine.end);
}
