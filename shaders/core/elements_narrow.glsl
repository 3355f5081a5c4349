// Elements of 8 or 16 bits: four or two of them share a word.

#define Bits uint
const uint WORDS_PER_ELEMENT = 1, ELEMENTS_PER_WORD = 32 / BITS, VECTOR_SIZE = 128 / BITS;
const Bits TOP_BIT = 1u << (BITS - 1), EVERY_BIT = 0xFFFFFFFFu >> (32 - BITS);

#define LOAD(words, at) (((words)[(at) / ELEMENTS_PER_WORD] >> ((at) % ELEMENTS_PER_WORD * BITS)) & EVERY_BIT)
#define STORE_ELEMENT(words, at, bits) \
    { \
        uint shift = (at) % ELEMENTS_PER_WORD * BITS; \
        atomicAnd((words)[(at) / ELEMENTS_PER_WORD], ~(EVERY_BIT << shift)); \
        atomicOr((words)[(at) / ELEMENTS_PER_WORD], (bits) << shift); \
    }
#define LOAD_BITS(words, at) (words)[at]
#define STORE_BITS(words, at, bits) (words)[at] = bits;
#define PUT(words, i, bits) \
    (words)[(i) / ELEMENTS_PER_WORD] = ((i) % ELEMENTS_PER_WORD == 0 ? 0 : (words)[(i) / ELEMENTS_PER_WORD]) \
        | (bits) << ((i) % ELEMENTS_PER_WORD * BITS);
#define STORE_WORD(words, at, filled, count) \
    if ((count) == ELEMENTS_PER_WORD) \
        (words)[(at) / ELEMENTS_PER_WORD] = (filled)[0]; \
    else \
        (words)[(at) / ELEMENTS_PER_WORD] = (filled)[0] | (words)[(at) / ELEMENTS_PER_WORD] & ~0u << ((count) * BITS);

Bits element_of(uvec4 vector, uint i) { return LOAD(vector, i); }
uvec4 unaligned_vector(uint at)
{
    uint word = at / ELEMENTS_PER_WORD, shift = at % ELEMENTS_PER_WORD * BITS;
    uvec4 low = uvec4(source[word], source[word + 1], source[word + 2], source[word + 3]);
    uint last = source[(at + VECTOR_SIZE - 1) / ELEMENTS_PER_WORD];
    return shift == 0 ? low : (low >> shift) | (uvec4(low.yzw, last) << (32 - shift));
}
