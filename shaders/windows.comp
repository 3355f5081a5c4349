#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// MAX_POOLING of small windows where the input's width is packed and no output shares a word with the row above it.
// One invocation owns RUN neighbouring outputs of a row and goes down a strip of rows. Of every input row it loads the
// blocks of 16 bytes that the run's windows touch, once, and keeps the best of each window's part of the row in a ring.
// An output is the best of the ring's rows; the output below takes over those that both windows hold.

#include "pooling.glsl"

layout(set = 0, binding = 1) writeonly buffer Indices { uint indices[]; };
layout(set = 0, binding = 1) writeonly buffer IndexBlocks { uvec4 index_blocks[]; };
layout(set = 0, binding = 2) writeonly buffer Values { uint values[]; };
layout(set = 0, binding = 2) writeonly buffer ValueBlocks { uvec4 value_blocks[]; };

layout(push_constant) uniform Push {
    uint plane_stride;      // of the input's (batch, channel) planes; strides in elements
    uint size[3];           // of the input
    uint stride[2];         // of the input, along depth and height; along width it is 1
    uint output_size[3];
    uint window_stride[3];
    uint start_padding[3];
    uint dilation_depth;
    uint row_step;          // input rows from one row of the ring to the next
    uint fresh;             // rows of the ring that an output does not take over from the one above it
    uint strip;             // rows of outputs that an invocation goes down
    uint first_output;      // the outputs that this dispatch computes: whole slabs (of one depth) or rows of one
    uint output_count;
    uint source_base;       // what to add to an address for its place in the buffer, in elements
    uint indices_base;      // what to add to an output's number: in indices
    uint values_base;       // in elements
} push;

const uint RUN = max(4, BLOCK);
const uint SPAN = (RUN - 1) * STRIDE_WIDTH + (WINDOW_WIDTH - 1) * DILATION_WIDTH + 1;  // what a run touches of a row
// The blocks that hold a span: it begins PHASE elements into the first one, or anywhere in it.
const uint BLOCKS = ((ALIGNED ? PHASE : BLOCK - 1) + SPAN + BLOCK - 1) / BLOCK;
const uint BLOCKS_AND_ONE = BLOCKS + 1;
const uint LAST_ROW = (ROWS - 1) * RUN;  // of the ring

// An element that no other is below, at an index that all others are below.
Best nothing()
{
#if BITS == 64
    return Best(uvec2(0), uvec2(0, NUMBER_KIND == INT ? SIGN : 0), NONE);
#else
    return Best(0, NUMBER_KIND == INT ? SIGN : 0, NONE);
#endif
}

// The better of two; of equal ones the one with the lower index.
Best better(Best a, Best b)
{
    // Without || and &&, as is_above.
    bool wins = a.key == b.key ? b.index < a.index : is_above(b.key, a.key);
    return Best(wins ? b.key : a.key, wins ? b.bits : a.bits, wins ? b.index : a.index);
}

// The blocks of a span that begins with element `at` of the buffer, from its first bit on; what is outside the buffer is
// anything.
void load_span(uint at, out uvec4 blocks[BLOCKS_AND_ONE])
{
    // A span may begin in the padding before the buffer: 8 blocks hold the largest padding. A buffer is at least 256
    // bytes smaller than 2^32.
    uint shifted = at + 8 * BLOCK, block = shifted / BLOCK - 8, last = source_blocks.length() - 1;
    [[unroll]] for (uint b = 0; b < BLOCKS; ++b)
        blocks[b] = source_blocks[min(block + b, last)];
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
        [[unroll]] for (uint b = 0; b < BLOCKS; ++b)
            blocks[b] = blocks[b] >> shift | (uvec4(blocks[b].yzw, blocks[b + 1].x) << 1) << (31 - shift);
    }
}

// Element c of a span.
Bits element_at(uvec4 blocks[BLOCKS_AND_ONE], uint c) { return element_of(blocks[c / BLOCK], c % BLOCK); }

void main()
{
    // Read once: llvmpipe gathers a push constant lane by lane wherever it is read.
    uvec3 size = all_of(push.size), output_size = all_of(push.output_size);
    uvec3 window_stride = all_of(push.window_stride), start_padding = all_of(push.start_padding);
    uint plane_stride = push.plane_stride, depth_stride = push.stride[0], row_stride = push.stride[1];
    uint dilation_depth = push.dilation_depth, row_step = push.row_step, strip = push.strip;
    uint source_base = push.source_base, indices_base = push.indices_base, values_base = push.values_base;
    uint shared_fresh = push.fresh;

    uint first_row = push.first_output / output_size.z, row_count = push.output_count / output_size.z;
    uint runs = (output_size.z - 1) / RUN + 1;
    uint height = min(output_size.y, row_count);
    uint strips = (height - 1) / strip + 1;
    Items mine = items_of(row_count / height * strips * runs);
    for (uint item = mine.next; item < mine.end; item += BUNDLE) {
        uint above = item / runs, column = (item - above * runs) * RUN;
        uint above_it = above / strips, row = above_it * height + (above - above_it * strips) * strip;
        uint end = first_row + min(row + strip, (above_it + 1) * height);
        row += first_row;
        uint slab = row / output_size.y, plane = slab / output_size.x;
        uint front = (slab - plane * output_size.x) * window_stride.x - start_padding.x;
        uint top = (row - slab * output_size.y) * window_stride.y - start_padding.y;
        uint left = column * STRIDE_WIDTH - start_padding.z;

        // Elements in the padding get the lowest key. Of a window of equal ones the first in the input wins.
        bool inside[SPAN];
        [[unroll]] for (uint c = 0; c < SPAN; ++c)
            inside[c] = left + c < size.z;
        uint first[RUN];
        [[unroll]] for (uint k = 0; k < RUN; ++k) {
            uint at = left + k * STRIDE_WIDTH, outside = int(at) < 0 ? 0 - at : 0;
            first[k] = at + (outside + DILATION_WIDTH - 1) / DILATION_WIDTH * DILATION_WIDTH;
        }

        Best ring[ROWS * RUN];
        uint fresh = ROWS;
        for (; row < end; ++row, top += window_stride.y, fresh = shared_fresh) {
            for (uint r = ROWS - fresh; r < ROWS; ++r) {
                [[unroll]] for (uint i = 0; i < LAST_ROW; ++i)
                    ring[i] = ring[i + RUN];
                [[unroll]] for (uint k = 0; k < RUN; ++k)
                    ring[LAST_ROW + k] = nothing();
                uint y = top + r * row_step;
                for (uint d = 0; d < WINDOW_DEPTH; ++d) {
                    uint z = front + d * dilation_depth;
                    bool row_inside = y < size.y && z < size.x;
                    uint index = ((plane * size.x + z) * size.y + y) * size.z;
                    uvec4 blocks[BLOCKS_AND_ONE];
                    load_span(plane * plane_stride + z * depth_stride + y * row_stride + left + source_base, blocks);
                    Bits bits[SPAN], keys[SPAN];
                    [[unroll]] for (uint c = 0; c < SPAN; ++c) {
                        bits[c] = element_at(blocks, c);
                        keys[c] = inside[c] ? order_key(bits[c]) : Bits(0);
                    }
                    [[unroll]] for (uint k = 0; k < RUN; ++k) {
                        Best best = nothing();
                        best.index = index + first[k];
                        [[unroll]] for (uint w = 0; w < WINDOW_WIDTH; ++w) {
                            uint c = k * STRIDE_WIDTH + w * DILATION_WIDTH;
                            bool wins = is_above(keys[c], best.key);
                            best.key = wins ? keys[c] : best.key;
                            best.bits = wins ? bits[c] : best.bits;
                            best.index = wins ? index + left + c : best.index;
                        }
                        Best other = better(ring[LAST_ROW + k], best);
                        if (row_inside)
                            ring[LAST_ROW + k] = other;
                    }
                }
            }

            Best best[RUN];
            [[unroll]] for (uint k = 0; k < RUN; ++k) {
                best[k] = ring[k];
                [[unroll]] for (uint h = 1; h < WINDOW_HEIGHT; ++h)
                    best[k] = better(best[k], ring[h * ROW_STEP * RUN + k]);
            }
            uint number = row * output_size.z + column;
            uint left_over = output_size.z - column;  // outputs of this row from here on
            uint written[RUN * BITS / 32];
#if BITS == 64
            [[unroll]] for (uint k = 0; k < RUN; ++k) {
                written[2 * k] = best[k].bits.x;
                written[2 * k + 1] = best[k].bits.y;
            }
#else
            [[unroll]] for (uint k = 0; k < RUN; ++k)
                written[k / ELEMENTS_PER_WORD] = (k % ELEMENTS_PER_WORD == 0 ? 0 : written[k / ELEMENTS_PER_WORD])
                    | best[k].bits << (k % ELEMENTS_PER_WORD * BITS);
#endif
            uint at = (number + values_base) / ELEMENTS_PER_WORD * WORDS_PER_ELEMENT;
            if (WHOLE_RUNS) {
                [[unroll]] for (uint i = 0; i < RUN * BITS / 32; i += 4)
                    value_blocks[(at + i) / 4] = uvec4(written[i], written[i + 1], written[i + 2], written[i + 3]);
                if (INDEX_WORDS == 1) {
                    [[unroll]] for (uint k = 0; k < RUN; k += 4)
                        index_blocks[(number + indices_base + k) / 4]
                            = uvec4(best[k].index, best[k + 1].index, best[k + 2].index, best[k + 3].index);
                }
                if (INDEX_WORDS == 2) {
                    [[unroll]] for (uint k = 0; k < RUN; k += 2)
                        index_blocks[(number + indices_base + k) / 2] = uvec4(best[k].index, 0, best[k + 1].index, 0);
                }
            } else {
                [[unroll]] for (uint i = 0; i < RUN * BITS / 32; ++i)
                    if (i * ELEMENTS_PER_WORD / WORDS_PER_ELEMENT < left_over)
                        values[at + i] = written[i];
                if (INDEX_WORDS != 0) {
                    [[unroll]] for (uint k = 0; k < RUN; ++k)
                        if (k < left_over)
                            STORE_INDEX(indices, number + indices_base + k, best[k].index)
                }
            }
        }
    }
}
