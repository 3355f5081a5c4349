#version 430
// Pooling over windows of any size, in any input layout. One invocation computes the outputs that share a word: four of
// 8 bits, two of 16, else one. For each it accumulates the window's elements in the input, in row-major order, and
// writes value and index. With VECTORS, the elements in a row of a window are contiguous, and most are loaded in
// vectors.
//
// Without OUTPUTS_ONLY an invocation accumulates one split of its windows, and writes partials for combine.comp. This
// is a separate module, because one for both would have 38 words of push constants, and Vulkan guarantees 32. A split
// has `split_size` steps along one dimension, the cut; one step along each dimension before the cut; and all steps
// along each dimension after it. The numbers of the splits of a window of 6 x 4:
//
//   cut along height, 2 steps     0 0 0 0        cut along width, 3 steps     0 0 0 1
//                                 0 0 0 0                                     2 2 2 3
//                                 1 1 1 1                                     4 4 4 5
//                                 ...                                         ...

#include "core/any_windows.glsl"
#include "core/accumulate_at.glsl"

#ifdef OUTPUTS_ONLY
layout(constant_id = 10) const bool VECTORS = false;
layout(set = 0, binding = 2) writeonly buffer Indices { uint indices[]; };
layout(set = 0, binding = 3) buffer Values { uint values[]; };
#else
layout(set = 0, binding = 2) writeonly buffer Partials { uint stored[]; };
#endif

// Accumulates a row of a window. Its first element, `index`, is at `address`; the row ends before `row_end`.
void accumulate_row(inout State state, uint address, uint index, uint row_end)
{
#ifdef OUTPUTS_ONLY
    for (; VECTORS && index < row_end && row_end - index >= VECTOR_SIZE; index += VECTOR_SIZE, address += VECTOR_SIZE) {
        uvec4 vector = load_vector(address);
        [[unroll]] for (uint w = 0; w < VECTOR_SIZE; ++w)
            accumulate(state, operand_of(element_of(vector, w)), index + w);
    }
#endif
    for (; index < row_end; index += min(dilation.z, row_end - index), address += dilation.z * stride.z)
        accumulate_at(state, address, index);
}

// The state of a window's elements. `origin` and `base`: the address and the index of its first column, in row 0 of
// depth 0.
State reduced(Window window)
{
    uvec3 begin = window.begin, end = window.end;
    uint origin = window.plane * plane_stride + begin.z * stride.z + source_base;
    uint base = window.plane * size.x * size.y * size.z + begin.z;
    State state = identity();
    if (!SEGMENTED)
        state = empty_from(base + (begin.x * size.y + begin.y) * size.z);
    // A step stops at the end: with a large dilation z + dilation.x would wrap around.
    for (uint z = begin.x; z < end.x; z += min(dilation.x, end.x - z))
        for (uint y = begin.y; y < end.y; y += min(dilation.y, end.y - y)) {
            uint index = base + (z * size.y + y) * size.z;
            accumulate_row(state, origin + z * stride.x + y * stride.y, index, index + end.z - begin.z);
        }
    return state;
}

#ifdef OUTPUTS_ONLY

// Writes the outputs of a word.
void compute(uint item)
{
    uint i = item * ELEMENTS_PER_WORD, outputs = min(ELEMENTS_PER_WORD, output_count - i);
    uint words[WORDS_PER_ELEMENT];
    for (uint k = 0; k < outputs; ++k) {
        uint number = first_output + i + k;
        Window window = window_of(number, uvec3(0), (window_size - 1) * dilation);
        State state = reduced(window);
        if (INDEX_WORDS != 0)
            STORE_INDEX(indices, number + indices_base, index_of(state))
        if (VALUES)
            PUT(words, k, value_of(state, window.count))
    }
    if (VALUES)
        STORE_WORD(values, first_output + i + values_base, words, outputs)
}

#else

// Writes partials of one split of the outputs that share a word.
void compute(uint item)
{
    uint split = item / word_count;
    uvec3 steps = first_step(split), reach = (min(split_sizes, window_size - steps) - 1) * dilation;
    uint i = (item - split * word_count) * ELEMENTS_PER_WORD, outputs = min(ELEMENTS_PER_WORD, output_count - i);
    for (uint k = 0; k < outputs; ++k) {
        Window window = window_of(first_output + i + k, steps * dilation, reach);
        State state = reduced(window);
        STORE_PARTIAL(stored, (split * output_count + i + k) * PARTIAL_WORDS + partials_base, state, window.count)
    }
}

#endif

void main()
{
    Items mine = items_of(item_count);
    uint item = mine.next;
    for (; item < mine.end; item += ITEM_STRIDE)
        compute(item);
    report(item, mine.end);
}
