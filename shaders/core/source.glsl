// The input of the kernels over axes and over windows: as words, and as vectors of 16 bytes, the widest loads.

#include "core/kernel.glsl"
#include "core/words.glsl"

layout(set = 0, binding = 1) readonly buffer Source { uint source[]; };
layout(set = 0, binding = 1) readonly buffer SourceVectors { uvec4 source_vectors[]; };

// The bound segment of the input: its first element, and the size of a full segment; address + source_base is the
// offset in the buffer. Kernels set the variables that they need.
uint source_first, source_count, source_base;

// The element at `address`; 0, if the bound segment does not have it.
Bits element_at(uint address)
{
    Bits element = Bits(0);
    if (!SEGMENTED || address - source_first < source_count)
        element = LOAD(source, address + source_base);
    return element;
}

// The vector that begins with element `at` of the buffer, a multiple of VECTOR_SIZE.
uvec4 aligned_vector(uint at) { return source_vectors[at / VECTOR_SIZE]; }

// The vector that begins with element `at` of the buffer. Reads only words that hold its elements.
uvec4 load_vector(uint at)
{
    if (ALIGNED)
        return aligned_vector(at);
#if BITS >= 32
    at *= WORDS_PER_ELEMENT;
    return uvec4(source[at], source[at + 1], source[at + 2], source[at + 3]);
#else
    uint word = at / ELEMENTS_PER_WORD, shift = at % ELEMENTS_PER_WORD * BITS;
    uvec4 low = uvec4(source[word], source[word + 1], source[word + 2], source[word + 3]);
    uint last = source[(at + VECTOR_SIZE - 1) / ELEMENTS_PER_WORD];
    return shift == 0 ? low : (low >> shift) | (uvec4(low.yzw, last) << (32 - shift));
#endif
}
