// Elements of 32 bits: an element is a word.

#define Bits uint
const uint WORDS_PER_ELEMENT = 1, ELEMENTS_PER_WORD = 1, VECTOR_SIZE = 4;
const Bits TOP_BIT = 0x80000000u, EVERY_BIT = 0xFFFFFFFFu;

#define LOAD(words, at) (words)[at]
#define STORE_ELEMENT(words, at, bits) (words)[at] = bits;
#define LOAD_BITS(words, at) (words)[at]
#define STORE_BITS(words, at, bits) (words)[at] = bits;
#define PUT(words, i, bits) (words)[i] = bits;
#define STORE_WORD(words, at, filled, count) (words)[at] = (filled)[0];

Bits element_of(uvec4 vector, uint i) { return vector[i]; }
uvec4 unaligned_vector(uint at) { return uvec4(source[at], source[at + 1], source[at + 2], source[at + 3]); }
