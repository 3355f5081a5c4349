#version 430
// Gradients of pooling. An output is the gradient of one element of the pooled tensor: the sum over the windows that
// cover the element, in their row-major order. No two invocations add to one output.
//
// One invocation computes a tile of neighbouring words; a word has two outputs of 16 bits, or one. Along a row it moves
// from one element to the next without dividing, because llvmpipe divides for one invocation after the other.
//
// Without OUTPUTS_ONLY an invocation accumulates a split of the windows that cover one element, and writes a partial
// result for combine.comp. This is a separate module, because one for both would have 33 words of push constants, and
// Vulkan guarantees 32.

#include "core/gradients.glsl"

layout(set = 0, binding = 2) buffer Values { uint values[]; };  // or partials

// Number of elements along dimension d that share the gradient of window number `at`.
uint shares(uint at, uint d)
{
#ifdef SHARES
    return counted(at * window_stride[d], reach[d] + 1, 1, counted_begin[d], counted_end[d]);
#else
    return 1;
#endif
}

// Accumulates the gradient of window number `window`, if it goes to element `number`. The gradient is at `address`, and
// `count` elements share it.
void accumulate_gradient(inout State state, uint window, uint address, uint number, uint count)
{
#ifndef OUTPUTS_ONLY
    if (address - push.source_first >= push.source_count)
        return;
#endif
#ifdef SHARES
    accumulate(state, share_of(operand_of(LOAD(source, address + source_base)), count), window);
#else
#ifndef OUTPUTS_ONLY
    if (window - push.maxima_first >= push.maxima_count)
        return;
#endif
    if (maximum_at(window + maxima_base) == number)
        accumulate(state, operand_of(LOAD(source, address + source_base)), window);
#endif
}

// An element, and the windows begin to end - 1 that can cover it. `at` is its position from the start of the padding:
//
//   window begin - 1   [--------]                 ends before the element
//   window begin            [--------]
//   window end - 1                 [--------]     begins with the element, or before it
//                                  at
//
struct Element {
    uint number;
    uint plane;
    uvec3 at;
    uvec3 begin;
    uvec3 end;
};

Element element_number(uint number)
{
    Element element = Element(number, number, uvec3(0), uvec3(0), uvec3(0));
    [[unroll]] for (int d = 2; d >= 0; --d) {
        uint next = element.plane / size[d], at = element.plane - next * size[d] + start_padding[d];
        element.plane = next;
        element.at[d] = at;
        element.begin[d] = at > reach[d] ? (at - reach[d] - 1) / window_stride[d] + 1 : 0;
        element.end[d] = min(at / window_stride[d] + 1, window_count[d]);
    }
    return element;
}

// The element after this one in its row: at most one window begins with it, and at most one ends before it. The last
// window may end past 2^32, so nothing is added to the position where a window begins.
Element after(Element element)
{
    ++element.number;
    ++element.at.z;
    bool passes = element.at.z > reach.z && element.begin.z * window_stride.z < element.at.z - reach.z;
    element.begin.z += passes ? 1 : 0;
    element.end.z += element.end.z < window_count.z && element.end.z * window_stride.z <= element.at.z ? 1 : 0;
    return element;
}

#ifdef OUTPUTS_ONLY

// The sum of all windows' gradients for an element.
State gathered(Element element)
{
    State state = identity();
    uvec3 begin = element.begin, end = element.end;
    uint first = element.plane * window_count.x, plane_address = element.plane * plane_stride;
    for (uint z = begin.x; z < end.x; ++z) {
        uint shares_depth = shares(z, 0);
        for (uint y = begin.y; y < end.y; ++y) {
            uint row = ((first + z) * window_count.y + y) * window_count.z, shares_row = shares_depth * shares(y, 1);
            uint row_address = plane_address + z * stride.x + y * stride.y;
            for (uint x = begin.z; x < end.z; ++x)
                accumulate_gradient(state, row + x, row_address + x * stride.z, element.number,
                                    shares_row * shares(x, 2));
        }
    }
    return state;
}

void main()
{
    uint first_output = push.first_output, output_count = push.output_count, tile = push.tile * ELEMENTS_PER_WORD;
    Items mine = items_of((output_count - 1) / tile + 1);
    uint item = mine.next;
    for (; item < mine.end; item += ITEM_STRIDE) {
        uint i = item * tile, end = i + min(tile, output_count - i), words[WORDS_PER_ELEMENT];
        while (i < end) {
            // The rest of the row, or of the tile. A loop, because llvmpipe always executes the body of an `if`.
            Element element = element_number(first_output + i);
            uint row_end = i + min(end - i, size.z + start_padding.z - element.at.z);
            for (; i < row_end; ++i, element = after(element)) {
                uint k = i % ELEMENTS_PER_WORD;
                PUT(words, k, value_of(gathered(element), 1))
                if (k == ELEMENTS_PER_WORD - 1 || i == end - 1)
                    STORE_WORD(values, first_output + i - k + values_base, words, k + 1)
            }
        }
    }
    report(item, mine.end);
}

#else

// The sum of an element's gradients from windows begin to end - 1, of those that can cover it.
State gathered(Element element, uint begin, uint end)
{
    State state = identity();
    // Maximum number of windows that cover one element, along each dimension.
    uvec3 most = min(window_count, reach / window_stride + 1);
    for (uint number = begin; number < end; ++number) {
        uint row = number / most.z, depth = row / most.y;
        uvec3 at = element.begin + uvec3(depth, row - depth * most.y, number - row * most.z);
        uint window = ((element.plane * window_count.x + at.x) * window_count.y + at.y) * window_count.z + at.z;
        uint address = element.plane * plane_stride + at.x * stride.x + at.y * stride.y + at.z * stride.z;
        if (all(lessThan(at, element.end)))
            accumulate_gradient(state, window, address, element.number,
                                shares(at.x, 0) * shares(at.y, 1) * shares(at.z, 2));
    }
    return state;
}

void main()
{
    uint first_output = push.first_output, output_count = push.output_count;
    uint split_begin = push.split_begin, split_end = push.split_end, split_size = push.split_size;
    Items mine = items_of(output_count * ((split_end - split_begin - 1) / split_size + 1));
    uint item = mine.next;
    for (; item < mine.end; item += ITEM_STRIDE) {
        uint split = item / output_count, begin = split_begin + split * split_size;
        Element element = element_number(first_output + item - split * output_count);
        State state = gathered(element, begin, begin + min(split_end - begin, split_size));
        STORE_STATE(values, item * STATE_WORDS + values_base, state)
    }
    report(item, mine.end);
}

#endif
