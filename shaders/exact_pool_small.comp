#version 430
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Exact averages over small windows (exact.glsl). Tiles, spans and the ring are those of pool_small.comp; the ring has
// bins, all with one `least`.

#include "core/spans.glsl"

layout(set = 0, binding = 2) buffer Values { uint values[]; };
layout(set = 0, binding = 2) writeonly buffer ValueVectors { uvec4 value_vectors[]; };

const uvec3 WINDOW = uvec3(WINDOW_DEPTH, WINDOW_HEIGHT, WINDOW_WIDTH);
const uvec3 DILATION = uvec3(DILATION_DEPTH, DILATION_HEIGHT, DILATION_WIDTH);

uvec3 stride;  // of windows
// Of a tile. These are no parameters of functions, as calls copy arrays.
uint least;
uint greatest = 0;                 // the exponent that `least` goes by
Bin elements[SPAN];                // of an input row
Bin ring[RING_ROWS * TILE_WIDTH];  // row by row
Bin bins[TILE_WIDTH];              // of a row of outputs

// Chooses `least` for a tile: by eight elements of row (z, y), from column `left` on, and by those of tiles before,
// which count half as much from tile to tile.
void choose_least(uint plane, uint z, uint y, uint left)
{
    uint row = plane * plane_stride + min(z, size.x - 1) * depth_stride + min(y, size.y - 1) * row_stride + source_base;
    greatest = max(greatest, 1) - 1;
    for (uint i = 0; i < 8; ++i)
        greatest = max(greatest, finite_exponent(LOAD(source, row + min(left + i * SPAN / 8, size.z - 1))));
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

// Adds the span of row (z, y) to the last row of the ring.
void add_span(uint plane, uint z, uint y, uint left)
{
    uint width = y < size.y && z < size.x ? size.z : 0, none = 0;
    uvec4 vectors[VECTORS_AND_ONE];
    load_span(plane * plane_stride + z * depth_stride + y * row_stride + left + source_base, vectors);
    [[unroll]] for (uint c = 0; c < SPAN; ++c) {
        Bits bits = element_at(vectors, c);
        elements[c] = bin_of(least, left + c < width ? bits : none);
    }
    [[unroll]] for (uint k = 0; k < TILE_WIDTH; ++k) {
        [[unroll]] for (uint w = 0; w < WINDOW_WIDTH; ++w)
            add(ring[LAST_ROW + k], elements[k * STRIDE_WIDTH + w * DILATION_WIDTH], w, WINDOW_WIDTH);
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

// How many elements of a window count for its average. Windows are numbered along each dimension.
uint counted_of(uvec3 window)
{
    uint count = 1;
    [[unroll]] for (uint d = 0; d < 3; ++d)
        count *= counted(window[d] * stride[d], WINDOW[d], DILATION[d], counted_begin[d], counted_end[d]);
    return count;
}

// The sum of a window without a bin.
Long sum_of(uint plane, uvec3 window)
{
    Long sum = identity();
    for (uint z = 0; z < WINDOW_DEPTH; ++z)
        for (uint y = 0; y < WINDOW_HEIGHT; ++y)
            for (uint x = 0; x < WINDOW_WIDTH; ++x) {
                uvec3 at = window * stride + uvec3(z, y, x) * DILATION - start_padding;
                uint address = plane * plane_stride + at.x * depth_stride + at.y * row_stride + at.z + source_base;
                if (all(lessThan(at, size)))
                    add(sum, LOAD(source, address));
            }
    return sum;
}

void main()
{
    read_push();
    stride = uvec3(push.window_stride[0], push.window_stride[1], STRIDE_WIDTH);
    uvec3 output_size = all_of(push.output_size);
    Tiles tiles = tiles_of(output_size, TILE_WIDTH, push.tile_height, push.first_output, push.output_count);
    Items mine = items_of(tiles.count);
    uint item = mine.next;
    for (; item < mine.end; item += ITEM_STRIDE) {
        Tile tile = tile_number(item, tiles);
        // Where the first window begins in the input; negative, that is, wrapped around, in the padding before it.
        uvec3 origin = uvec3(tile.depth, tile.top, tile.left) * stride - start_padding;
        uint middle = origin.y + (tile.end - tile.row) / 2 * stride.y + WINDOW_HEIGHT / 2 * DILATION_HEIGHT;
        choose_least(tile.plane, origin.x + WINDOW_DEPTH / 2 * DILATION_DEPTH, middle, origin.z);
        uint top = origin.y - FILLING * FRESH_ROWS, iterations = FILLING + tile.end - tile.row;
        uint missed_begin = tile.end, missed_end = 0;  // rows in which a bin has missed an element
        for (uint iteration = 0; iteration < iterations; ++iteration, top += stride.y) {
            for (uint r = RING_ROWS - FRESH_ROWS; r < RING_ROWS; ++r) {
                begin_ring_row();
                for (uint d = 0; d < WINDOW_DEPTH; ++d) {
                    for (uint h = 0; h < HELD_ROWS; ++h)
                        add_span(tile.plane, origin.x + d * DILATION_DEPTH, top + r + h * DILATION_HEIGHT, origin.z);
                }
            }
            if (iteration < FILLING)
                continue;
            add_columns();
            uint row = tile.row + iteration - FILLING, missed = 0, words[4];
            [[unroll]] for (uint k = 0; k < TILE_WIDTH; ++k)
                missed |= uint(has_missed(bins[k]));
            if (missed != 0) {
                missed_begin = min(missed_begin, row);
                missed_end = row + 1;
                continue;
            }
            [[unroll]] for (uint k = 0; k < TILE_WIDTH; ++k) {
                uint column = tile.left + k, at = row * output_size.z + column + values_base;
                Bits average = value_of(bins[k], counted_of(uvec3(tile.depth, row - tile.row + tile.top, column)));
                STORE_OF_TILE(values, value_vectors, words, k, at, average, column < output_size.z)
            }
        }
        // Drivers for CPUs run the body of a loop once, if only for no item: so it stands here, for all rows.
        for (uint next = missed_begin * TILE_WIDTH; next < missed_end * TILE_WIDTH; ++next) {
            uint row = next / TILE_WIDTH, column = tile.left + next % TILE_WIDTH;
            uvec3 window = uvec3(tile.depth, row - tile.row + tile.top, column);
            Long sum = sum_of(tile.plane, window);
            if (column < output_size.z)
                values[row * output_size.z + column + values_base] = value_of(sum, counted_of(window));
        }
    }
    report(item, mine.end);
}
