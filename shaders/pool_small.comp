#version 430
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Pooling over small windows. The elements of an input row are contiguous.
//
// One invocation computes a tile of outputs, row by row: TILE_WIDTH neighbours in each row. Their windows cover a span
// of each input row. The invocation loads the span's blocks once, for all of them.
//
// Where windows share input rows with the windows above them, the invocation keeps a state for each window and input
// row: that of the window's elements in the row. These states form a ring of RING_ROWS rows:
//
//   input rows                                the ring, for TILE_WIDTH = 4
//   y      [======= span =======]   ------->  [ window 0 | window 1 | window 2 | window 3 ]   row 0
//   y + 1  [====================]   ------->  [          |          |          |          ]   row 1
//   y + 2  [====================]   ------->  [          |          |          |          ]   row 2
//                                                  |          |          |          |
//   output k combines column k of the ring:     output 0   output 1   output 2   output 3
//
// For each row of the tile, the ring moves up by the windows' stride along height, and the same number of fresh input
// rows is loaded at its end. So input rows that several windows share are loaded once. Before the first row of outputs,
// iterations without outputs fill the ring: drivers unroll the loop over fresh rows, as their number is a constant, and
// keep only shared rows from one to the next. In a volume, a row of the ring combines row y of all depths of a window.
//
// Where windows share no rows, as in tiles of one row, the ring is one row: it combines all input rows of a window.

#include "core/windows.glsl"
#include "core/tiles.glsl"

// The loops over a window are unrolled, because these are constants.
// clang-format off: a table
layout(constant_id = 10) const uint WINDOW_DEPTH = 1;
layout(constant_id = 11) const uint WINDOW_HEIGHT = 1;
layout(constant_id = 12) const uint WINDOW_WIDTH = 1;
layout(constant_id = 13) const uint STRIDE_WIDTH = 1;
layout(constant_id = 14) const uint DILATION_DEPTH = 1;
layout(constant_id = 15) const uint DILATION_HEIGHT = 1;
layout(constant_id = 16) const uint DILATION_WIDTH = 1;
layout(constant_id = 17) const uint RING_ROWS = 1;       // rows of the ring: several where windows share input rows
layout(constant_id = 18) const uint FRESH_ROWS = 1;      // by which the ring moves
layout(constant_id = 19) const uint PHASE = 0;           // ALIGNED: where in a block every span begins
layout(constant_id = 20) const uint TILE_WIDTH = 4;             // outputs of a tile in each row
layout(constant_id = 21) const bool WHOLE_BLOCKS = false;  // tiles, and rows of outputs, consist of blocks
layout(constant_id = 22) const bool SHARED_WORDS = false;  // two rows of outputs may share a word
// clang-format on

layout(set = 0, binding = 2) writeonly buffer Indices { uint indices[]; };
layout(set = 0, binding = 2) writeonly buffer IndexBlocks { uvec4 index_blocks[]; };
layout(set = 0, binding = 3) buffer Values { uint values[]; };
layout(set = 0, binding = 3) writeonly buffer ValueBlocks { uvec4 value_blocks[]; };

layout(push_constant) uniform Push {
    uint plane_stride;      // of the input's (batch, channel) planes; strides in elements
    uint size[3];           // of the input
    uint stride[2];         // of the input, along depth and height; along width it is 1
    uint output_size[3];
    uint window_stride[3];
    uint start_padding[3];
    uint counts_padding;    // whether the padding counts for an average
    uint counted_end[3];    // counted(): where the positions that count end
    uint tile_height;       // rows of outputs in a tile
    uint first_output;      // the outputs of this dispatch: whole slabs (of one depth), or rows of one slab
    uint output_count;
    uint source_base;       // address + source_base is the place in the buffer, in elements
    uint indices_base;      // number of an output + indices_base is the place of its index
    uint values_base;       // number of an output + values_base is the place of its value, in elements
} push;

// Elements of a span: from the first one of the first window to the last one of the last window.
const uint SPAN = (TILE_WIDTH - 1) * STRIDE_WIDTH + (WINDOW_WIDTH - 1) * DILATION_WIDTH + 1;
// Blocks that hold a span. ALIGNED: it begins with element PHASE of the first block, else with any element.
const uint BLOCKS = ((ALIGNED ? PHASE : BLOCK - 1) + SPAN + BLOCK - 1) / BLOCK;
const uint BLOCKS_AND_ONE = BLOCKS + 1;  // and a block of zeros, for load_span() to shift in
const uint LAST_ROW = (RING_ROWS - 1) * TILE_WIDTH;  // where the last row of the ring begins
const bool SHARED = RING_ROWS > 1;
// Iterations of a tile that only fill the ring.
const uint FILLING = (RING_ROWS - 1) / FRESH_ROWS;
const uint HELD_ROWS = SHARED ? 1 : WINDOW_HEIGHT;  // input rows of a window in a row of the ring
// Whether take_window() makes one operand of all that a row of the ring has of a window.
const bool SINGLE = WINDOW_DEPTH * HELD_ROWS == 1 && WINDOW_WIDTH <= 8;
#ifndef HAS_PAIRWISE_ADD
#define combine_one combine
#endif

// The push constants that every tile needs, each read once (kernel.glsl).
uint plane_stride, depth_stride, row_stride, source_base, indices_base, values_base;
uvec3 size, start_padding, counted_begin, counted_end;

void read_push()
{
    plane_stride = push.plane_stride;
    depth_stride = push.stride[0];
    row_stride = push.stride[1];
    source_base = push.source_base;
    indices_base = push.indices_base;
    values_base = push.values_base;
    size = all_of(push.size);
    start_padding = all_of(push.start_padding);
    counted_begin = push.counts_padding == 0 ? start_padding : uvec3(0);
    counted_end = all_of(push.counted_end);
}

// Of a tile. These are no parameters of functions, as calls copy arrays.
uint first_x[TILE_WIDTH];            // the first column of each window behind the padding
State ring[RING_ROWS * TILE_WIDTH];  // row by row
State states[TILE_WIDTH];            // of a row of outputs
#ifdef HAS_BIN
uint least;                          // of all bins, as the ring combines them
uint greatest = 0;                   // the exponent that `least` goes by
Bin operands[SPAN];                  // of an input row
#else
Operand operands[SPAN];
#endif

// Loads the span that begins with element `at` of the buffer, and shifts it to the begin of `blocks`:
//
//   in the buffer   |   block   |   block   |   block   |
//                          [======= span =======]
//                   |------| phase, in elements: whole words are skipped first, then bits are shifted
//   blocks                 |   block   |   block   |
//
// Elements outside the buffer may have any value; the caller does not take them.
void load_span(uint at, out uvec4 blocks[BLOCKS_AND_ONE])
{
    // In padding before the buffer `at` is negative (wrapped around). No padding is longer than 16 blocks: these are
    // added before the division and subtracted after it. The sum fits a uint, because a buffer ends 256 bytes before
    // 2^32.
    uint shifted = at + 16 * BLOCK, block = shifted / BLOCK - 16, last = source_blocks.length() - 1;
    [[unroll]] for (uint b = 0; b < BLOCKS; ++b)
        blocks[b] = source_blocks[min(block + b, last)];
    if (ALIGNED && PHASE * BITS / 32 == 3)  // of the first block, only the last word: one load is faster than four
        blocks[0] = uvec4(0, 0, 0, source[4 * min(block, last) + 3]);
    blocks[BLOCKS] = uvec4(0);
    uint phase = ALIGNED ? PHASE : shifted % BLOCK;
    uint skipped = phase * BITS / 32, shift = phase * BITS % 32;
    [[unroll]] for (uint b = 0; b < BLOCKS; ++b) {
        if ((skipped & 2) != 0)
            blocks[b] = uvec4(blocks[b].zw, blocks[b + 1].xy);
    }
    [[unroll]] for (uint b = 0; b < BLOCKS; ++b) {
        if ((skipped & 1) != 0)
            blocks[b] = uvec4(blocks[b].yzw, blocks[b + 1].x);
    }
    if (BITS < 32) {
        // Two shifts to the left, because a shift by 32 is undefined.
        [[unroll]] for (uint b = 0; b < BLOCKS; ++b)
            blocks[b] = blocks[b] >> shift | (uvec4(blocks[b].yzw, blocks[b + 1].x) << 1) << (31 - shift);
    }
}

// Element c of a span.
Bits element_at(uvec4 blocks[BLOCKS_AND_ONE], uint c) { return element_of(blocks[c / BLOCK], c % BLOCK); }

// The first of `at`, `at` + `dilation`, ... that is not in the padding before the input, where it is negative (wrapped
// around).
uint first_inside(uint at, uint padding, uint dilation)
{
    uint steps = at + padding < padding ? (0 - at - 1) / dilation + 1 : 0;
    return at + steps * dilation;
}

// The index of the first element of a row of the input.
uint row_index(uint plane, uint z, uint y) { return ((plane * size.x + z) * size.y + y) * size.z; }

// Sets what all rows of a tile have in common. `left` is where its first window begins.
void begin_tile(uint left)
{
    [[unroll]] for (uint k = 0; k < TILE_WIDTH; ++k)
        first_x[k] = first_inside(left + k * STRIDE_WIDTH, start_padding.z, DILATION_WIDTH);
}

// Moves the ring up, and empties its last row. Elements of row (z, y) and of later ones will be taken into it.
void begin_ring_row(uint plane, uint z, uint y)
{
    uint index = row_index(plane, z, y);
    [[unroll]] for (uint i = 0; i < LAST_ROW; ++i)
        ring[i] = ring[i + TILE_WIDTH];
    [[unroll]] for (uint k = 0; k < TILE_WIDTH; ++k) {
#ifdef HAS_BIN
        ring[LAST_ROW + k] = empty_from(0);
        ring[LAST_ROW + k].least = least;
#else
        ring[LAST_ROW + k] = identity();
        if (y < size.y)
            ring[LAST_ROW + k] = empty_from(index + first_x[k]);
#endif
    }
}

// Takes a window's elements of a span, of which the first is element `first`. Element 0 has this index.
void take_window(inout State state, uint first, uint index)
{
#ifdef HAS_PAIRWISE_ADD
    // Of each eight elements four sums, then the sum of all four: none goes through more than 3 additions before
    // accumulate().
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
#else
    [[unroll]] for (uint w = 0; w < WINDOW_WIDTH; ++w) {
        uint c = first + w * DILATION_WIDTH;
#ifdef HAS_BIN
        add(state, operands[c], w, WINDOW_WIDTH);
#else
        accumulate(state, operands[c], index + c);
#endif
    }
#endif
}

// Takes the span of row (z, y) into the last row of the ring.
void take_span(uint plane, uint z, uint y, uint left)
{
    uint width = y < size.y && z < size.x ? size.z : 0, index = row_index(plane, z, y) + left;
    uvec4 blocks[BLOCKS_AND_ONE];
    load_span(plane * plane_stride + z * depth_stride + y * row_stride + left + source_base, blocks);
    [[unroll]] for (uint c = 0; c < SPAN; ++c) {
        bool taken = left + c < width;
#ifdef HAS_BIN
        operands[c] = bin_of(least, or_neutral(element_at(blocks, c), taken));
#else
        operands[c] = or_neutral(operand_of(element_at(blocks, c)), taken);
#endif
    }
    [[unroll]] for (uint k = 0; k < TILE_WIDTH; ++k)
        take_window(ring[LAST_ROW + k], k * STRIDE_WIDTH, index);
}

// The state of two rows of the ring; `b` is the later one.
State of_rows(State a, State b)
{
#ifdef HAS_INDEX
    // Takes no index of a state, so that registers hold none: a row without elements has none. Without depths, all
    // elements of `b` come after those of `a`.
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
            states[k] = of_rows(states[k], row);
        }
    }
}

#ifdef HAS_BIN
// Chooses `least` for a tile: by eight elements of row (z, y), from column `left` on, and by those of tiles before,
// which count half as much from tile to tile.
void place_bins(uint plane, uint z, uint y, uint left)
{
    uint row = plane * plane_stride + min(z, size.x - 1) * depth_stride + min(y, size.y - 1) * row_stride + source_base;
    Bin bin = empty_from(0);
    bin.least = max(greatest, 1) - 1;
    for (uint i = 0; i < 8; ++i)
        show(bin, LOAD(source, row + min(left + i * SPAN / 8, size.z - 1)));
    greatest = bin.least;
    place(bin);
    least = bin.least;
}
#endif

// Writes the values of a row of the tile, of which the first is output `number`, in this column. The row of outputs has
// `left_over` from there on. `rows` rows of each window count for an average.
void store_values(uint number, uint column, uint left_over, uint rows)
{
    uint words[4];
    [[unroll]] for (uint k = 0; k < TILE_WIDTH; ++k) {
        uint columns
            = counted((column + k) * STRIDE_WIDTH, WINDOW_WIDTH, DILATION_WIDTH, counted_begin.z, counted_end.z);
        Bits value = value_of(states[k], rows * columns);
        STORE_OF_TILE(values, value_blocks, words, k, number + k + values_base, value, k < left_over)
    }
}

// Likewise the indices.
void store_indices(uint number, uint left_over)
{
    uint words[4];
    [[unroll]] for (uint k = 0; k < TILE_WIDTH; ++k) {
        uint at = number + k + indices_base, i = k * INDEX_WORDS % 4;
        words[i | 1u] = 0;  // the high word of 64 bits
        words[i] = index_of(states[k]);
        if (k < left_over) {
            if (!WHOLE_BLOCKS)
                STORE_INDEX(indices, at, words[i])
            else if (i + INDEX_WORDS == 4)
                index_blocks[at * INDEX_WORDS / 4] = uvec4(words[0], words[1], words[2], words[3]);
        }
    }
}

void main()
{
    read_push();
    uvec3 output_size = all_of(push.output_size);
    uvec3 window_stride = all_of(push.window_stride);

    Tiles tiles = tiles_of(output_size, TILE_WIDTH, push.tile_height, push.first_output, push.output_count);
    Items mine = items_of(tiles.count);
    uint item = mine.next;
    for (; item < mine.end; item += BUNDLE) {
        Tile tile = tile_number(item, tiles);
        // Where the first window begins in the input. In the padding before the input this is negative, that is,
        // wrapped around: so a coordinate is in the input if it is below its size.
        uint front = tile.depth * window_stride.x - start_padding.x;
        uint top = tile.top * window_stride.y - start_padding.y - FILLING * FRESH_ROWS;
        uint left = tile.left * STRIDE_WIDTH - start_padding.z;
        uint first_z = first_inside(front, start_padding.x, DILATION_DEPTH);
        begin_tile(left);

#ifdef HAS_BIN
        place_bins(tile.plane, front + WINDOW_DEPTH / 2 * DILATION_DEPTH,
                   (tile.top + (tile.end - tile.row) / 2) * window_stride.y - start_padding.y
                       + WINDOW_HEIGHT / 2 * DILATION_HEIGHT,
                   left);
        uint missed_begin = tile.end, missed_end = 0;
#endif
        uint iterations = FILLING + tile.end - tile.row;
        for (uint i = 0; i < iterations; ++i, top += window_stride.y) {
            for (uint r = RING_ROWS - FRESH_ROWS; r < RING_ROWS; ++r) {
                begin_ring_row(tile.plane, first_z,
                               SHARED ? top + r : first_inside(top, start_padding.y, DILATION_HEIGHT));
                for (uint d = 0; d < WINDOW_DEPTH; ++d) {
                    for (uint h = 0; h < HELD_ROWS; ++h)
                        take_span(tile.plane, front + d * DILATION_DEPTH, top + r + h * DILATION_HEIGHT, left);
                }
            }
            if (i < FILLING)
                continue;
            combine_columns();
            uint done = i - FILLING, left_over = output_size.z - tile.left;
            uint number = (tile.row + done) * output_size.z + tile.left;
            uint rows
                = counted(tile.depth * window_stride.x, WINDOW_DEPTH, DILATION_DEPTH, counted_begin.x, counted_end.x)
                * counted((tile.top + done) * window_stride.y, WINDOW_HEIGHT, DILATION_HEIGHT, counted_begin.y,
                          counted_end.y);
#ifdef HAS_BIN
            uint missed = 0;
            [[unroll]] for (uint k = 0; k < TILE_WIDTH; ++k)
                missed |= states[k].missed;
            if (BITS == 32 && missed != 0) {
                missed_begin = min(missed_begin, tile.row + done);
                missed_end = tile.row + done + 1;
            } else
#endif
                if (VALUES)
                store_values(number, tile.left, left_over, rows);
            if (INDEX_WORDS != 0)
                store_indices(number, left_over);
        }
#if defined(HAS_BIN) && BITS == 32
        // The rows in which a bin missed an element. Drivers for CPUs run the body of a loop once, if only for no tile:
        // so it stands here, and not in the loop over rows.
        const uvec3 WINDOW = uvec3(WINDOW_DEPTH, WINDOW_HEIGHT, WINDOW_WIDTH);
        const uvec3 DILATION = uvec3(DILATION_DEPTH, DILATION_HEIGHT, DILATION_WIDTH);
        for (uint next = missed_begin * TILE_WIDTH; next < missed_end * TILE_WIDTH; ++next) {
            uint row = next / TILE_WIDTH, y = row - tile.row + tile.top, column = tile.left + next % TILE_WIDTH;
            uvec3 at = uvec3(tile.depth * window_stride.x, y * window_stride.y, column * STRIDE_WIDTH);
            Bits average = average_of(tile.plane * plane_stride + source_base, at, WINDOW, DILATION, size,
                                      uvec3(depth_stride, row_stride, 1), start_padding, counted_begin, counted_end);
            if (column < output_size.z)
                values[row * output_size.z + column + values_base] = average;
        }
#endif
    }
    report(item, mine.end);
}
