// Shared by the kernels for windows of any size, in any input layout: push constants, and the elements of a window.
// pool_direct.comp explains splits of windows.

#include "core/windows.glsl"

#ifndef OUTPUTS_ONLY
// For averages: the positions that count (counted()). Not push constants: Vulkan guarantees only 32 words of these.
layout(constant_id = 10) const bool COUNTS_PADDING = false;
layout(constant_id = 11) const uint END_PADDING_DEPTH = 0;
layout(constant_id = 12) const uint END_PADDING_HEIGHT = 0;
layout(constant_id = 13) const uint END_PADDING_WIDTH = 0;
#endif

layout(push_constant) uniform Push {
    uint plane_stride;  // of the input's (batch, channel) planes; strides in elements
    uint size[3];  // of the input
    uint stride[3];  // of the input
    uint output_size[3];
    uint window_size[3];
    uint window_stride[3];
    uint dilation[3];
    uint start_padding[3];
    uint first_output;  // the outputs of this dispatch: the first, and how many
    uint output_count;
    uint source_base;  // address + source_base is the offset in the buffer, in elements
#ifdef OUTPUTS_ONLY
    uint indices_base;  // output number + indices_base is the offset of its index
    uint values_base;  // output number + values_base is the offset of its value, in elements
    uint counts_padding;  // whether the padding counts for an average
    uint counted_end[3];  // end of the positions that count: counted()
#else
    uint partials_base;     // offset of the partials, in words
    uint cut;               // the dimension along which splits have split_size steps
    uint split_size;
    uint split_begin;       // the splits of this dispatch: the first, and how many
    uint split_count;
    uint source_first;      // the bound segment of the input: its first element, and the size of a full segment
    uint source_count;
#endif
} push;

// The push constants that every window needs, each read once (kernel.glsl).
uvec3 size = all_of(push.size), stride = all_of(push.stride), output_size = all_of(push.output_size);
uvec3 window_size = all_of(push.window_size), window_stride = all_of(push.window_stride);
uvec3 dilation = all_of(push.dilation), start_padding = all_of(push.start_padding);
uint plane_stride = push.plane_stride, first_output = push.first_output, output_count = push.output_count;
uint source_base = push.source_base, word_count = (output_count - 1) / ELEMENTS_PER_WORD + 1;
#ifdef OUTPUTS_ONLY
uint source_first = 0, source_count = 0, item_count = word_count;
uint indices_base = push.indices_base, values_base = push.values_base;
bool counts_padding = push.counts_padding != 0;
uvec3 counted_end = all_of(push.counted_end);
#else
uint source_first = push.source_first, source_count = push.source_count, item_count = word_count * push.split_count;
uint partials_base = push.partials_base, split_begin = push.split_begin, cut = push.cut, split_size = push.split_size;
bool counts_padding = COUNTS_PADDING;
uvec3 counted_end = start_padding + size + uvec3(END_PADDING_DEPTH, END_PADDING_HEIGHT, END_PADDING_WIDTH);
// One step along each dimension before the cut, all steps along each after it.
uvec3 split_sizes = uvec3(cut == 0 ? split_size : 1,
                          cut == 1       ? split_size
                              : cut == 0 ? window_size.y
                                         : 1,
                          cut == 2 ? split_size : window_size.z);
uvec3 split_counts = (window_size - 1) / split_sizes + 1;
#endif
uvec3 counted_begin = counts_padding ? uvec3(0) : start_padding;

#ifndef OUTPUTS_ONLY
// First step of split number `split` of the dispatch, along each dimension.
uvec3 first_step(uint split)
{
    split += split_begin;
    uint row = split / split_counts.z;
    return uvec3(row / split_counts.y, row % split_counts.y, split % split_counts.z) * split_sizes;
}
#endif

// The elements of a window, or of one split of it, in the input: begin, begin + dilation, ... below `end`.
struct Window {
    uint plane;
    uvec3 begin;
    uvec3 end;
    uint count;  // elements of the whole window that count for an average
};

// The window of output `number`, or a split of it, which begins `offset` after the window's start, and whose last
// element is `reach` after its first.
//
// `at` and `last` count from the start of the padding, `begin` and `end` from the start of the input:
//
//             0          padding              padding + size
//             |          |<------ input ------>|
//   window       x    x    x    x    x           x: an element, `dilation` from the next
//                at      begin     last          steps_outside = 2
//
// Sums saturate at the highest uint. Without SEGMENTED `at` + `offset` is before the end of the input, and cannot
// overflow.
Window window_of(uint number, uvec3 offset, uvec3 reach)
{
    Window window;
    window.count = 1;
    [[unroll]] for (int d = 2; d >= 0; --d) {
        uint next = number / output_size[d], at = (number - next * output_size[d]) * window_stride[d];
        number = next;
        window.count *= counted(at, window_size[d], dilation[d], counted_begin[d], counted_end[d]);
        at += SEGMENTED ? min(offset[d], ~at) : offset[d];
        uint padding = start_padding[d], last = at + min(reach[d], ~at);
        uint steps_outside = at < padding ? (padding - at - 1) / dilation[d] + 1 : 0;
        window.begin[d] = at + steps_outside * dilation[d] - padding;
        window.end[d] = last >= padding ? min(size[d] - 1, last - padding) + 1 : 0;
    }
    window.plane = number;
    // A split of a window may have no element in the input: then `begin` may exceed `end`.
    if (SEGMENTED)
        window.begin = min(window.begin, window.end);
    return window;
}
