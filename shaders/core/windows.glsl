// Shared by the kernels over windows. Windows have a depth, a height and a width; a 4-D tensor has depth 1.

#define POOLING
#include "core/kernel.glsl"
#include "accumulator.glsl"

uvec3 all_of(uint dimensions[3]) { return uvec3(dimensions[0], dimensions[1], dimensions[2]); }

// Number of elements of a window that count for an average, along one dimension. The window begins at position `at`,
// and positions begin to end - 1 count. Position 0 is the start of the padding, so padding that does not count is
// before `begin`, or from `end` on. Every window has an element that counts.
uint counted(uint at, uint window, uint dilation, uint begin, uint end)
{
    uint before = at < begin ? (begin - at - 1) / dilation + 1 : 0;
    return min(window, (end - 1 - at) / dilation + 1) - before;
}

// PUT sets element `i` of a local array of words. The first element of a word clears the word's other elements.
// STORE_WORD writes a word (two for 64 bits) that PUT filled with `count` elements, of which the first is element `at`
// of the buffer. Later elements of the word keep their bits.
#if BITS >= 32
#define PUT(words, i, bits) STORE_ELEMENT(words, i, bits)
#define STORE_WORD(words, at, filled, count) STORE_ELEMENT(words, at, LOAD_BITS(filled, 0))
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
