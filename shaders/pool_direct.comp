#version 430
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Pooling over windows of any size, in any input layout.
// One invocation computes the outputs that share a word: four of 8 bits, two of 16, else one. For each it takes the
// window's elements that lie in the input, in row-major order, and writes value and index. With BLOCKS, the elements in
// a row of a window are contiguous in memory, and most are read in blocks.
//
// Without IN_PLACE an invocation takes one split of its windows, and writes states for combine.comp. A split has
// `split_size` steps along one dimension, the cut; one step along each dimension before the cut; and all steps along
// each dimension behind it. The numbers of the splits of a window of 6 x 4:
//
//   cut along height, 2 steps     0 0 0 0        cut along width, 3 steps     0 0 0 1
//                                 0 0 0 0                                     2 2 2 3
//                                 1 1 1 1                                     4 4 4 5
//                                 ...                                         ...

#include "core/windows.glsl"

#ifdef IN_PLACE
layout(constant_id = 10) const bool BLOCKS = false;
layout(set = 0, binding = 2) writeonly buffer Indices { uint indices[]; };
layout(set = 0, binding = 3) buffer Values { uint values[]; };
#else
// For averages: what counts (counted()). Push constants have no room for it: Vulkan promises 32 words.
layout(constant_id = 10) const bool COUNTS_PADDING = false;
layout(constant_id = 11) const uint END_PADDING_DEPTH = 0;
layout(constant_id = 12) const uint END_PADDING_HEIGHT = 0;
layout(constant_id = 13) const uint END_PADDING_WIDTH = 0;
layout(set = 0, binding = 2) writeonly buffer States { uint stored[]; };
#endif

layout(push_constant) uniform Push {
    uint plane_stride;      // of the input's (batch, channel) planes; strides in elements
    uint size[3];           // of the input
    uint stride[3];         // of the input
    uint output_size[3];
    uint window_size[3];
    uint window_stride[3];
    uint dilation[3];
    uint start_padding[3];
    uint first_output;      // the outputs of this dispatch: the first, and how many
    uint output_count;
    uint source_base;       // address + source_base is the place in the buffer, in elements
#ifdef IN_PLACE
    uint indices_base;      // number of an output + indices_base is the place of its index
    uint values_base;       // number of an output + values_base is the place of its value, in elements
    uint counts_padding;    // whether the padding counts for an average
    uint counted_end[3];    // counted(): where the positions that count end
#else
    uint states_base;       // where states begin, in words
    uint cut;               // the dimension along which splits have split_size steps
    uint split_size;
    uint split_begin;       // the splits of this dispatch: the first, and how many
    uint split_count;
    uint source_first;      // the bound segment of the input: its first element, and the size of a full segment
    uint source_count;
#endif
} push;

// The push constants that every window needs, each read once (kernel.glsl).
uvec3 size, stride, output_size, window_size, window_stride, dilation, start_padding, counted_begin, counted_end;
uint plane_stride, first_output, output_count, source_base, word_count, item_count;
#ifdef IN_PLACE
uint indices_base, values_base;
const uint source_first = 0, source_count = 0;  // SEGMENTED is false
#else
uvec3 split_sizes, split_counts;
uint split_begin, states_base, source_first, source_count;
#endif

void read_push()
{
    size = all_of(push.size);
    stride = all_of(push.stride);
    output_size = all_of(push.output_size);
    window_size = all_of(push.window_size);
    window_stride = all_of(push.window_stride);
    dilation = all_of(push.dilation);
    start_padding = all_of(push.start_padding);
    plane_stride = push.plane_stride;
    first_output = push.first_output;
    output_count = push.output_count;
    source_base = push.source_base;
    word_count = item_count = (output_count - 1) / ELEMENTS_PER_WORD + 1;
#ifdef IN_PLACE
    indices_base = push.indices_base;
    values_base = push.values_base;
    bool counts_padding = push.counts_padding != 0;
    counted_end = all_of(push.counted_end);
#else
    bool counts_padding = COUNTS_PADDING;
    counted_end = start_padding + size + uvec3(END_PADDING_DEPTH, END_PADDING_HEIGHT, END_PADDING_WIDTH);
    item_count *= push.split_count;
    states_base = push.states_base;
    source_first = push.source_first;
    source_count = push.source_count;
    uint cut = push.cut, split_size = push.split_size;
    split_begin = push.split_begin;
    split_sizes = uvec3(cut == 0 ? split_size : 1,
                        cut == 1       ? split_size
                            : cut == 0 ? window_size.y
                                       : 1,
                        cut == 2 ? split_size : window_size.z);
    split_counts = (window_size - 1) / split_sizes + 1;
#endif
    counted_begin = counts_padding ? uvec3(0) : start_padding;
}

// The elements of a window, or of one split of it, that lie in the input: begin, begin + dilation, ... below `end`.
struct Window {
    uint plane;
    uvec3 begin;
    uvec3 end;
    uint count;  // elements of the whole window that count for an average
};

// The window of output `number`. A split of it begins `offset` behind the window's begin, and its last element lies
// `reach` behind its first one.
//
// `at` and `last` count from the begin of the padding, `begin` and `end` from the begin of the input:
//
//             0          padding              padding + size
//             |          |<------ input ------>|
//   window       x    x    x    x    x           x: an element, `dilation` from the next
//                at      begin     last          steps_outside = 2
//
// Sums that would overflow stop at the highest uint. Without SEGMENTED `at` + `offset` lies before the end of the
// input, and fits.
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
    // A split of a window may have no element in the input: then `begin` may be behind `end`.
    if (SEGMENTED)
        window.begin = min(window.begin, window.end);
    return window;
}

// Takes the element at `address`, if the bound segment has it.
void take(inout State state, uint address, uint index)
{
#ifdef HAS_BIN
    accumulate(state, element_at(address, source_base + source_first, source_count), index);
#else
    if (!SEGMENTED)
        accumulate(state, operand_of(LOAD(source, address)), index);
    else if (address - source_base - source_first < source_count)
        state = combine(state, state_of(operand_of(LOAD(source, address)), index));
#endif
}

// Takes a row of a window. Element `index`, the first one, is at `address`; the row ends before `row_end`.
void take_row(inout State state, uint address, uint index, uint row_end)
{
#ifdef IN_PLACE
    for (; BLOCKS && index < row_end && row_end - index >= BLOCK; index += BLOCK, address += BLOCK) {
        uvec4 block = load_block(address);
        [[unroll]] for (uint w = 0; w < BLOCK; ++w)
            accumulate(state, operand_of(element_of(block, w)), index + w);
    }
#endif
    for (; index < row_end; index += min(dilation.z, row_end - index), address += dilation.z * stride.z)
        take(state, address, index);
}

State reduced(Window window)
{
    uvec3 begin = window.begin, end = window.end;
    uint origin = window.plane * plane_stride + begin.z * stride.z + source_base;
    uint base = window.plane * size.x * size.y * size.z + begin.z;
#ifdef HAS_BIN
    State state = empty_from(0);
    for (uint i = 0; i < 4; ++i) {
        uvec3 at = (begin + (end - 1 - begin >> i)) * stride;
        show(state,
             element_at(window.plane * plane_stride + source_base + at.x + at.y + at.z, source_base + source_first,
                        source_count));
    }
    place(state);
#else
    State state = identity();
    if (!SEGMENTED)
        state = empty_from(base + (begin.x * size.y + begin.y) * size.z);
#endif
    // A step stops at the end: with a large dilation z + dilation.x would wrap around.
    for (uint z = begin.x; z < end.x; z += min(dilation.x, end.x - z))
        for (uint y = begin.y; y < end.y; y += min(dilation.y, end.y - y)) {
            uint index = base + (z * size.y + y) * size.z;
            take_row(state, origin + z * stride.x + y * stride.y, index, index + end.z - begin.z);
        }
    return state;
}

#ifdef IN_PLACE

// Writes the outputs of a word. Says whether a bin missed an element.
bool compute(uint item)
{
    uint i = item * ELEMENTS_PER_WORD, outputs = min(ELEMENTS_PER_WORD, output_count - i);
    uint words[WORDS_PER_ELEMENT];
    bool missed = false;
    for (uint k = 0; k < outputs; ++k) {
        uint number = first_output + i + k;
        Window window = window_of(number, uvec3(0), (window_size - 1) * dilation);
        State state = reduced(window);
        missed = missed || has_missed(state);
        if (INDEX_WORDS != 0)
            STORE_INDEX(indices, number + indices_base, index_of(state))
        if (VALUES)
            PUT(words, k, value_of(state, window.count))
    }
    if (VALUES)
        STORE_WORD(values, first_output + i + values_base, words, outputs)
    return missed;
}

#if defined(HAS_BIN) && BITS == 32
// Writes the output of an item whose bin missed an element.
void compute_again(uint item)
{
    uint number = first_output + item, plane = number;
    uvec3 at;
    [[unroll]] for (int d = 2; d >= 0; --d) {
        uint next = plane / output_size[d];
        at[d] = (plane - next * output_size[d]) * window_stride[d];
        plane = next;
    }
    values[number + values_base] = average_of(plane * plane_stride + source_base, at, window_size, dilation, size,
                                              stride, start_padding, counted_begin, counted_end);
}
#endif

#else

// Leaves states: of one split, those of the outputs that share a word.
void compute(uint item)
{
    uint split = item / word_count, row = (split_begin + split) / split_counts.z;
    uvec3 steps = uvec3(row / split_counts.y, row % split_counts.y, (split_begin + split) % split_counts.z)
        * split_sizes;
    uvec3 reach = (min(split_sizes, window_size - steps) - 1) * dilation;
    uint i = (item - split * word_count) * ELEMENTS_PER_WORD, outputs = min(ELEMENTS_PER_WORD, output_count - i);
    for (uint k = 0; k < outputs; ++k) {
        Window window = window_of(first_output + i + k, steps * dilation, reach);
        State state = reduced(window);
        Stored sum = whole(state, window.plane * plane_stride + source_base, window.begin, window.end, dilation, stride,
                           source_base + source_first, source_count);
        STORE_WITH_COUNT(stored, (split * output_count + i + k) * STORED_WORDS + states_base, sum, window.count)
    }
}

#endif

void main()
{
    read_push();
    Items mine = items_of(item_count);
    uint item = mine.next;
#if defined(HAS_BIN) && defined(IN_PLACE) && BITS == 32
    while (item < mine.end) {
        uint first_item = item, missed = 0;  // bit i: item i has missed an element
        for (uint turn = 0; turn < 32 && item < mine.end; ++turn, item += BUNDLE)
            missed |= uint(compute(item)) << turn;
        // Drivers for CPUs run the body of a loop once, if only for no item: so it stands here, for 32 items.
        for (; missed != 0; missed &= missed - 1)
            compute_again(first_item + findLSB(missed) * BUNDLE);
    }
#else
    for (; item < mine.end; item += BUNDLE)
        compute(item);
#endif
    report(item, mine.end);
}
