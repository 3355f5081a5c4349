// Shared by the kernels over windows. Windows have a depth, a height and a width; a 4-D tensor has depth 1.

#define POOLING
#include "core/source.glsl"
#include "accumulator.glsl"

uvec3 all_of(uint dimensions[3]) { return uvec3(dimensions[0], dimensions[1], dimensions[2]); }

// How many elements of a window count for an average, along one dimension. The window begins at position `at`, and
// positions begin to end - 1 count. Position 0 is the begin of the padding, so padding that does not count lies before
// `begin`, or from `end` on. Every window has an element that counts.
uint counted(uint at, uint window, uint dilation, uint begin, uint end)
{
    uint before = at < begin ? (begin - at - 1) / dilation + 1 : 0;
    return min(window, (end - 1 - at) / dilation + 1) - before;
}

// PUT sets element `i` of a local array of words. The first element of a word clears the word's other elements.
// STORE_WORD writes a word (or two, of 64 bits) that PUT filled with `count` elements; element `at` of the buffer
// begins it. Elements of the word behind these keep their bits.
#if BITS == 64
#define PUT(words, i, bits) STORE_ELEMENT(words, i, bits)
#define STORE_WORD(words, at, filled, count) \
    { \
        (words)[2 * (at)] = (filled)[0]; \
        (words)[2 * (at) + 1] = (filled)[1]; \
    }
#elif BITS == 32
#define PUT(words, i, bits) (words)[i] = bits;
#define STORE_WORD(words, at, filled, count) (words)[at] = (filled)[0];
#else
#define PUT(words, i, bits) \
    (words)[(i) / ELEMENTS_PER_WORD] = ((i) % ELEMENTS_PER_WORD == 0 ? 0 : (words)[(i) / ELEMENTS_PER_WORD]) \
        | (bits) << ((i) % ELEMENTS_PER_WORD * BITS);
#define STORE_WORD(words, at, filled, count) \
    if ((count) == ELEMENTS_PER_WORD) \
        (words)[(at) / ELEMENTS_PER_WORD] = (filled)[0]; \
    else \
        (words)[(at) / ELEMENTS_PER_WORD] = (filled)[0] | (words)[(at) / ELEMENTS_PER_WORD] & ~0u << ((count) * BITS);
#endif

#ifdef HAS_BIN
#define Stored Long

// The element at `address`; 0, which adds nothing, if the bound segment does not have it. That has `count` elements
// from address `first` on.
Bits element_at(uint address, uint first, uint count)
{
    Bits element = 0;
    if (!SEGMENTED || address - first < count)
        element = LOAD(source, address);
    return element;
}

// The sum of a window's elements, if the bin has all but those that it missed: of `begin`, `begin` + `dilation`, ...
// below `end`. Element (0, 0, 0) is at `address`.
Long whole(Bin bin, uint address, uvec3 begin, uvec3 end, uvec3 dilation, uvec3 stride, uint first, uint count)
{
    Long sum = long_of(bin);
    for (uint z = begin.x; has_missed(bin) && z < end.x; z += min(dilation.x, end.x - z))
        for (uint y = begin.y; y < end.y; y += min(dilation.y, end.y - y))
            for (uint x = begin.z; x < end.z; x += min(dilation.z, end.z - x))
                add_missed(sum, bin, element_at(address + z * stride.x + y * stride.y + x * stride.z, first, count));
    return sum;
}

// The average of a window without a bin, for one that missed an element. The window begins at `at`, counted from the
// begin of the padding.
Bits average_of(uint address, uvec3 at, uvec3 window, uvec3 dilation, uvec3 size, uvec3 stride, uvec3 padding,
                uvec3 counted_begin, uvec3 counted_end)
{
    uvec3 begin, end;
    uint count = 1;
    [[unroll]] for (uint d = 0; d < 3; ++d) {
        uint last = at[d] + min((window[d] - 1) * dilation[d], ~at[d]);
        uint steps_outside = at[d] < padding[d] ? (padding[d] - at[d] - 1) / dilation[d] + 1 : 0;
        begin[d] = at[d] + steps_outside * dilation[d] - padding[d];
        end[d] = last >= padding[d] ? min(size[d] - 1, last - padding[d]) + 1 : 0;
        count *= counted(at[d], window[d], dilation[d], counted_begin[d], counted_end[d]);
    }
    return value_of(whole(closed(), address, begin, end, dilation, stride, 0, 0), count);
}

#else
#define Stored State
#define whole(state, address, begin, end, dilation, stride, first, count) (state)
#define has_missed(state) false
#endif
