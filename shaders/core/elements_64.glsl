// Elements of 64 bits: an element is two words, a low and a high one.

#define Bits uvec2
const uint WORDS_PER_ELEMENT = 2, ELEMENTS_PER_WORD = 1, VECTOR_SIZE = 2;
const Bits TOP_BIT = uvec2(0, 0x80000000u), EVERY_BIT = uvec2(0xFFFFFFFFu);

#define LOAD_BITS(words, at) uvec2((words)[at], (words)[(at) + 1])
#define STORE_BITS(words, at, bits) (words)[at] = (bits).x, (words)[(at) + 1] = (bits).y;
#define LOAD(words, at) LOAD_BITS(words, 2 * (at))
#define STORE_ELEMENT(words, at, bits) STORE_BITS(words, 2 * (at), bits)
#define PUT(words, i, bits) STORE_BITS(words, 2 * (i), bits)
#define STORE_WORD(words, at, filled, count) STORE_BITS(words, 2 * (at), LOAD_BITS(filled, 0))

Bits element_of(uvec4 vector, uint i) { return i == 0 ? vector.xy : vector.zw; }
uvec4 unaligned_vector(uint at)
{
    at *= 2;
    return uvec4(source[at], source[at + 1], source[at + 2], source[at + 3]);
}
