// Shared by the kernels for small windows: constants, push constants, and loading a span: the elements of an input row
// that the windows of a tile cover.

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
layout(constant_id = 17) const uint RING_ROWS = 1;       // of pool_small.comp: several if windows share input rows
layout(constant_id = 18) const uint FRESH_ROWS = 1;      // rows by which the ring moves
layout(constant_id = 19) const uint PHASE = 0;           // ALIGNED: the element of a vector at which every span begins
layout(constant_id = 20) const uint TILE_WIDTH = 4;      // outputs of a tile in each row
layout(constant_id = 21) const bool WHOLE_VECTORS = false;   // tiles, and rows of outputs, consist of vectors
layout(constant_id = 22) const bool SHARED_WORDS = false;    // two rows of outputs may share a word
// clang-format on

layout(push_constant) uniform Push {
    uint plane_stride;  // of the input's (batch, channel) planes; strides in elements
    uint size[3];  // of the input
    uint stride[2];  // of the input, along depth and height; along width it is 1
    uint output_size[3];
    uint window_stride[3];
    uint start_padding[3];
    uint counts_padding;  // whether the padding counts for an average
    uint counted_end[3];  // end of the positions that count: counted()
    uint tile_height;  // rows of outputs in a tile
    uint first_output;  // the outputs of this dispatch: whole slabs (of one depth), or rows of one slab
    uint output_count;
    uint source_base;  // address + source_base is the offset in the buffer, in elements
    uint indices_base;  // output number + indices_base is the offset of its index, if indices are written
    uint values_base;  // output number + values_base is the offset of its value, in elements
} push;

// Elements of a span: from the first one of the first window to the last one of the last window.
const uint SPAN = (TILE_WIDTH - 1) * STRIDE_WIDTH + (WINDOW_WIDTH - 1) * DILATION_WIDTH + 1;
// Vectors that hold a span. ALIGNED: the span begins with element PHASE of the first vector, else with any element.
const uint VECTORS = ((ALIGNED ? PHASE : VECTOR_SIZE - 1) + SPAN + VECTOR_SIZE - 1) / VECTOR_SIZE;
const uint VECTORS_AND_ONE = VECTORS + 1;  // and a vector of zeros, for load_span() to shift in
const uint LAST_ROW = (RING_ROWS - 1) * TILE_WIDTH;  // where the last row of the ring begins
const bool SHARED = RING_ROWS > 1;
// Iterations of a tile that only fill the ring.
const uint FILLING = (RING_ROWS - 1) / FRESH_ROWS;
const uint HELD_ROWS = SHARED ? 1 : WINDOW_HEIGHT;  // input rows of a window in a row of the ring

// The push constants that every tile needs, each read once (kernel.glsl).
uint plane_stride = push.plane_stride, depth_stride = push.stride[0], row_stride = push.stride[1];
uint source_base = push.source_base, indices_base = push.indices_base, values_base = push.values_base;
uvec3 size = all_of(push.size), start_padding = all_of(push.start_padding);
uvec3 output_size = all_of(push.output_size), window_stride = all_of(push.window_stride);
uvec3 counted_begin = push.counts_padding == 0 ? start_padding : uvec3(0), counted_end = all_of(push.counted_end);

// Loads the span that begins with element `at` of the buffer, and shifts it to the start of `vectors`:
//
//   in the buffer   |  vector   |  vector   |  vector   |
//                          [======= span =======]
//                   |------| phase, in elements: whole words are skipped first, then bits are shifted
//   vectors                |  vector   |  vector   |
//
// Elements outside the buffer may have any value; the caller does not use them.
void load_span(uint at, out uvec4 vectors[VECTORS_AND_ONE])
{
    // In padding before the buffer `at` is negative (wrapped around). No padding is longer than 16 vectors, which are
    // added before the division and subtracted after it. The sum fits a uint, because a buffer ends 256 bytes before
    // 2^32.
    uint shifted = at + 16 * VECTOR_SIZE, vector = shifted / VECTOR_SIZE - 16, last = source_vectors.length() - 1;
    [[unroll]] for (uint b = 0; b < VECTORS; ++b)
        vectors[b] = source_vectors[min(vector + b, last)];
    if (ALIGNED && PHASE * BITS / 32 == 3)  // only the last word of the first vector: one load is faster than four
        vectors[0] = uvec4(0, 0, 0, source[4 * min(vector, last) + 3]);
    vectors[VECTORS] = uvec4(0);
    uint phase = ALIGNED ? PHASE : shifted % VECTOR_SIZE;
    uint skipped = phase * BITS / 32, shift = phase * BITS % 32;
    [[unroll]] for (uint b = 0; b < VECTORS; ++b) {
        if ((skipped & 2) != 0)
            vectors[b] = uvec4(vectors[b].zw, vectors[b + 1].xy);
    }
    [[unroll]] for (uint b = 0; b < VECTORS; ++b) {
        if ((skipped & 1) != 0)
            vectors[b] = uvec4(vectors[b].yzw, vectors[b + 1].x);
    }
    if (BITS < 32) {
        // Two shifts to the left, because a shift by 32 is undefined.
        [[unroll]] for (uint b = 0; b < VECTORS; ++b)
            vectors[b] = vectors[b] >> shift | (uvec4(vectors[b].yzw, vectors[b + 1].x) << 1) << (31 - shift);
    }
}

// Element c of a span.
Bits element_of_span(uvec4 vectors[VECTORS_AND_ONE], uint c)
{
    return element_of(vectors[c / VECTOR_SIZE], c % VECTOR_SIZE);
}
