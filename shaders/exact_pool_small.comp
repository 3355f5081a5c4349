#version 430
// Exact averages over windows (exact.glsl). Tiles, spans and the ring are those of pool_small.comp; the ring has bins,
// all with one `least`.
//
// A wide window has PIECES pieces of WINDOW_WIDTH columns, and a span covers the columns of one piece. If windows are
// high, there is no ring: from one row of outputs to the next, input rows that windows leave are subtracted, and input
// rows that they reach are added.

#include "core/spans.glsl"

layout(constant_id = 23) const uint WHOLE_WIDTH = 1;  // of a window
layout(constant_id = 24) const bool SUBTRACTS = false;  // windows are high

const uint PIECES = (WHOLE_WIDTH - 1) / WINDOW_WIDTH + 1;
const uint COLUMNS = SPAN + (PIECES - 1) * WINDOW_WIDTH * DILATION_WIDTH;  // columns of the input that a tile covers

layout(set = 0, binding = 2) buffer Values { uint values[]; };
layout(set = 0, binding = 2) writeonly buffer ValueVectors { uvec4 value_vectors[]; };

const uvec3 WINDOW = uvec3(WINDOW_DEPTH, WINDOW_HEIGHT, WHOLE_WIDTH);
const uvec3 DILATION = uvec3(DILATION_DEPTH, DILATION_HEIGHT, DILATION_WIDTH);

uvec3 stride = uvec3(window_stride.xy, STRIDE_WIDTH);  // of windows
// Per-tile state. Globals, because GLSL copies array arguments.
uint least;
uint greatest = 0;                 // the exponent that determines `least`
Bin elements[SPAN];                // of an input row
Bin ring[RING_ROWS * TILE_WIDTH];  // row by row
Bin bins[TILE_WIDTH];              // of a row of outputs

// Chooses `least` for a tile: by the greatest exponent of eight elements of row (z, y), from column `left` on, or of
// tiles before, which falls by 1 from tile to tile.
void choose_least(uint plane, uint z, uint y, uint left)
{
    uint row = plane * plane_stride + min(z, size.x - 1) * depth_stride + min(y, size.y - 1) * row_stride + source_base;
    greatest = max(greatest, 1) - 1;
    for (uint i = 0; i < 8; ++i)
        greatest = max(greatest, finite_exponent(LOAD(source, row + min(left + i * COLUMNS / 8, size.z - 1))));
    least = empty_bin(greatest).least;
}

// Moves the ring up, and empties its last row.
void begin_ring_row()
{
    [[unroll]] for (uint i = 0; i < LAST_ROW; ++i)
        ring[i] = ring[i + TILE_WIDTH];
    [[unroll]] for (uint k = 0; k < TILE_WIDTH; ++k) {
        ring[LAST_ROW + k] = empty_bin(0);
        ring[LAST_ROW + k].least = least;
    }
}

// Adds up to `width` elements of window `k` in a span to the window's bin in the last row of the ring.
void add_window(uint k, uint width)
{
    [[unroll]] for (uint w = 0; w < WINDOW_WIDTH; ++w) {
        // Only the last piece may have fewer columns, by `rest`.
        const uint rest = PIECES * WINDOW_WIDTH - WHOLE_WIDTH;
        if (w + rest < WINDOW_WIDTH || w < width)
            add(ring[LAST_ROW + k], elements[k * STRIDE_WIDTH + w * DILATION_WIDTH]);
        if (w % 2 == 1 || w + 1 == WINDOW_WIDTH)
            propagate_carries(ring[LAST_ROW + k].digits);
    }
}

// Adds the elements of row (z, y) to the last row of the ring; with `sign`, the sign bit, subtracts them.
void add_row(uint plane, uint z, uint y, uint left, uint sign)
{
    uint width = y < size.y && z < size.x ? size.z : 0, none = 0, row = plane * plane_stride + z * depth_stride;
    for (uint begin = 0; begin < WHOLE_WIDTH; begin += WINDOW_WIDTH, left += WINDOW_WIDTH * DILATION_WIDTH) {
        uvec4 vectors[VECTORS_AND_ONE];
        load_span(row + y * row_stride + left + source_base, vectors);
        [[unroll]] for (uint c = 0; c < SPAN; ++c) {
            Bits bits = element_of_span(vectors, c);
            if (SUBTRACTS)
                bits ^= sign;
            elements[c] = bin_of(least, left + c < width ? bits : none);
        }
        [[unroll]] for (uint k = 0; k < TILE_WIDTH; ++k)
            add_window(k, WHOLE_WIDTH - begin);
    }
}

// Moves the ring on by FRESH_ROWS, for windows that begin at (front, top, left).
void load_rows(uint plane, uint front, uint top, uint left)
{
    for (uint r = RING_ROWS - FRESH_ROWS; r < RING_ROWS; ++r) {
        begin_ring_row();
        for (uint d = 0; d < WINDOW_DEPTH; ++d) {
            // Unrolled, llvmpipe (Mesa 25) compiles windows of 3 x 3 for a second.
            [[dont_unroll]] for (uint h = 0; h < HELD_ROWS; ++h)
                add_row(plane, front + d * DILATION_DEPTH, top + r + h * DILATION_HEIGHT, left, 0);
        }
    }
}

// Without a ring: adds all rows, or with `below` moves on from the windows above these. One loop does both, because
// drivers compile a function once for each call.
void move_down(uint plane, uint front, uint top, uint left, bool below)
{
    if (!below)
        begin_ring_row();
    uint height = WINDOW_HEIGHT * DILATION_HEIGHT, end = below ? 2 * stride.y : height;
    for (uint d = 0; d < WINDOW_DEPTH; ++d) {
        for (uint y = 0; y < end; y += DILATION_HEIGHT) {
            bool leaves = below && y < stride.y;
            uint from = below ? (leaves ? top - stride.y : top + height - 2 * stride.y) : top;
            add_row(plane, front + d * DILATION_DEPTH, from + y, left, leaves ? TOP_BIT : 0);
        }
    }
}

// Adds up each column of the ring.
void add_columns()
{
    [[unroll]] for (uint k = 0; k < TILE_WIDTH; ++k) {
        bins[k] = ring[k];
        [[unroll]] for (uint h = HELD_ROWS; h < WINDOW_HEIGHT; ++h)
            bins[k] = combine(bins[k], ring[h * DILATION_HEIGHT * TILE_WIDTH + k]);
    }
}

// Number of elements of a window that count for its average. Windows are numbered along each dimension.
uint counted_of(uvec3 window)
{
    uint count = 1;
    [[unroll]] for (uint d = 0; d < 3; ++d)
        count *= counted(window[d] * stride[d], WINDOW[d], DILATION[d], counted_begin[d], counted_end[d]);
    return count;
}

// Adds rows `begin` to `end` - 1 of a window to a sum without a bin; with `sign`, the sign bit, subtracts them.
// `specials` counts NaN, infinities and negative infinities.
void add_rows(inout Long sum, inout uvec3 specials, uint plane, uvec3 window, uint begin, uint end, uint sign)
{
    for (uint z = 0; z < WINDOW_DEPTH; ++z)
        for (uint y = begin; y != end; ++y)
            for (uint x = 0; x < WHOLE_WIDTH; ++x) {
                uvec3 at = window * stride + uvec3(z, y, x) * DILATION - start_padding;
                uint address = plane * plane_stride + at.x * depth_stride + at.y * row_stride + at.z + source_base;
                if (all(lessThan(at, size))) {
                    Bits bits = LOAD(source, address);
                    uvec3 special = uvec3(special_of(bits)) >> uvec3(0, 1, 2) & 1u, less = 0u - special;
                    specials += sign == 0 ? special : less;
                    add(sum, bits ^ sign);
                }
            }
}

// Writes row `row` of a tile, unless a bin has missed an element. Returns whether one has.
bool store_row(Tile tile, uint row)
{
    uint missed = 0, words[4];
    add_columns();
    [[unroll]] for (uint k = 0; k < TILE_WIDTH; ++k)
        missed |= uint(SUBTRACTS ? bins[k].missed != 0 : has_missed(bins[k]));
    if (missed == 0) {
        [[unroll]] for (uint k = 0; k < TILE_WIDTH; ++k) {
            uint column = tile.left + k, at = row * output_size.z + column + values_base;
            Bits average = value_of(bins[k], counted_of(uvec3(tile.depth, row - tile.row + tile.top, column)));
            STORE_OF_TILE(values, value_vectors, words, k, at, average, column < output_size.z)
        }
    }
    return missed != 0;
}

// Writes rows `begin` to `end` - 1 of a tile, column by column, without bins.
void store_missed(Tile tile, uint begin, uint end)
{
    uint rows = end - min(begin, end), fresh = stride.y / DILATION_HEIGHT;
    Long sum;
    uvec3 specials;
    for (uint next = 0; next < rows * TILE_WIDTH; ++next) {
        uint k = next / max(rows, 1), row = begin + next - k * rows, column = tile.left + k;
        uvec3 window = uvec3(tile.depth, row - tile.row + tile.top, column);
        bool again = !SUBTRACTS || row == begin;
        if (again) {
            sum = identity();
            specials = uvec3(0);
        }
        // First the rows that only the window above has, then the rows that only this window has.
        for (uint step = again ? 1 : 0; step < 2; ++step) {
            uint first = again ? 0 : step == 0 ? 0 - fresh : WINDOW_HEIGHT - fresh;
            uint count = again ? WINDOW_HEIGHT : fresh;
            add_rows(sum, specials, tile.plane, window, first, first + count, step == 0 ? TOP_BIT : 0);
        }
        uvec3 flags = min(specials, 1);
        sum.specials = flags.x * HAS_NAN | flags.y * HAS_INFINITY | flags.z * HAS_NEGATIVE_INFINITY;
        if (column < output_size.z)
            STORE_ELEMENT(values, row * output_size.z + column + values_base, value_of(sum, counted_of(window)))
    }
}

void main()
{
    Tiles tiles = tiles_of(output_size, TILE_WIDTH, push.tile_height, push.first_output, push.output_count);
    Items mine = items_of(tiles.count);
    uint item = mine.next;
    for (; item < mine.end; item += ITEM_STRIDE) {
        Tile tile = tile_number(item, tiles);
        // The start of the first window in the input; negative (wrapped around) in the padding before the input.
        uvec3 origin = uvec3(tile.depth, tile.top, tile.left) * stride - start_padding;
        uint middle = origin.y + (tile.end - tile.row) / 2 * stride.y + WINDOW_HEIGHT / 2 * DILATION_HEIGHT;
        choose_least(tile.plane, origin.x + WINDOW_DEPTH / 2 * DILATION_DEPTH, middle, origin.z);
        uint top = origin.y - FILLING * FRESH_ROWS, iterations = FILLING + tile.end - tile.row;
        uint missed_begin = tile.end, missed_end = 0;  // rows in which a bin has missed an element
        for (uint i = 0; i < iterations; ++i, top += stride.y) {
            if (SUBTRACTS)
                move_down(tile.plane, origin.x, top, origin.z, i != 0);
            else
                load_rows(tile.plane, origin.x, top, origin.z);
            uint row = tile.row + i - FILLING;
            if (i >= FILLING && store_row(tile, row)) {
                missed_begin = min(missed_begin, row);
                missed_end = row + 1;
            }
        }
        // After the loop over all rows: CPU drivers execute the body of a loop at least once, masked.
        store_missed(tile, missed_begin, missed_end);
    }
    report(item, mine.end);
}
