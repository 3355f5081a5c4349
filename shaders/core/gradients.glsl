// Shared by the kernels for gradients of pooling: their inputs. With SHARES a window divides its gradient among its
// elements. Without, the gradient goes to one element, whose index is in `maxima`.

#include "core/windows.glsl"

#ifdef SHARES
#include "core/shares.glsl"
#else
layout(set = 0, binding = 3) readonly buffer Maxima { uint maxima[]; };

// Index number `at` of `maxima`. No branch: SwiftShader would run both sides of it.
const uint MAXIMA_WORDS = INDEX_WORDS == 2 ? 2 : 1;
uint maximum_at(uint at)
{
    return index_of_words(maxima[at * MAXIMA_WORDS], maxima[at * MAXIMA_WORDS + MAXIMA_WORDS - 1]);
}
#endif

// clang-format off: a table
layout(push_constant) uniform Push {
    uint plane_stride;      // of the windows' (batch, channel) planes; strides in elements
    uint size[3];           // of the pooled tensor, and of the outputs
    uint window_count[3];   // windows along each dimension; `source` has an element for each
    uint stride[3];         // of the source
    uint reach[3];          // from the first element of a window to its last
    uint window_stride[3];
    uint start_padding[3];
    uint first_output;      // the outputs of this dispatch: the first, and how many
    uint output_count;
    uint source_base;       // address + source_base is the offset in the buffer, in elements
    uint values_base;       // output number + values_base is its offset; TO_PARTIALS: offset of the partials, in words
#ifdef SHARES
    uint counts_padding;    // whether the padding gets a share, too
    uint counted_end[3];    // end of the positions that count: counted()
#else
    uint maxima_base;       // window number + maxima_base is its offset in `maxima`
#endif
#ifndef OUTPUTS_ONLY
    uint split_begin;       // range of this dispatch, among the windows that can cover an element
    uint split_end;
    uint split_size;        // windows of a split, which one invocation accumulates
    uint source_first;      // the bound segment of the source: its first element, and the size of a full segment
    uint source_count;
#ifndef SHARES
    uint maxima_first;      // the bound segment of `maxima`, likewise
    uint maxima_count;
#endif
#elif defined(SMALL_WINDOWS)
    uint tile_height;       // rows of a tile, a multiple of the stride
#else
    uint tile;              // words of a tile
#endif
} push;
// clang-format on

// The push constants that every output needs, each read once (kernel.glsl).
uint plane_stride = push.plane_stride, source_base = push.source_base, values_base = push.values_base;
uvec3 size = all_of(push.size), window_count = all_of(push.window_count), stride = all_of(push.stride);
uvec3 reach = all_of(push.reach), window_stride = all_of(push.window_stride);
uvec3 start_padding = all_of(push.start_padding);
#ifdef SHARES
uvec3 counted_begin = push.counts_padding == 0 ? start_padding : uvec3(0), counted_end = all_of(push.counted_end);
#else
uint maxima_base = push.maxima_base;
#endif
