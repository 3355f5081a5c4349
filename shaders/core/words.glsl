// Elements of BITS bits, and how 32-bit words hold them. A 64-bit element is a (low, high) pair of words.

#if BITS == 64

#define Bits uvec2
const uint WORDS_PER_ELEMENT = 2;
const uint ELEMENTS_PER_WORD = 1;

#else

#define Bits uint
const uint WORDS_PER_ELEMENT = 1;
const uint ELEMENTS_PER_WORD = 32 / BITS;
const uint MASK = 0xFFFFFFFFu >> (32 - BITS);

#endif

// Element `at` of an array of words.
#if BITS == 64
#define LOAD(words, at) uvec2((words)[2 * (at)], (words)[2 * (at) + 1])
#elif BITS == 32
#define LOAD(words, at) (words)[at]
#else
#define LOAD(words, at) (((words)[(at) / ELEMENTS_PER_WORD] >> ((at) % ELEMENTS_PER_WORD * BITS)) & MASK)
#endif

// A vector is 16 bytes of elements, the widest load.
const uint VECTOR_SIZE = 128 / BITS;  // elements of a vector

// Element i of a vector.
Bits element_of(uvec4 vector, uint i)
{
#if BITS == 64
    return i == 0 ? vector.xy : vector.zw;
#elif BITS == 32
    return vector[i];
#else
    return vector[i / ELEMENTS_PER_WORD] >> (i % ELEMENTS_PER_WORD * BITS) & MASK;
#endif
}

const uint NONE = 0xFFFFFFFFu;  // no element has this index: a tensor has at most 2^32 - 1 elements

// An index of the input, of one word or two; NONE if it is 2^32 or more.
uint index_of_words(uint low, uint high) { return INDEX_WORDS != 2 || high == 0 ? low : NONE; }

// Writes number `at` of an array of indices.
#define STORE_INDEX(words, at, index) \
    if (INDEX_WORDS == 2) { \
        (words)[2 * (at)] = index; \
        (words)[2 * (at) + 1] = 0; \
    } else \
        (words)[at] = index;

// STORE_ELEMENT writes element `at` of an array of words, while other invocations may write its neighbours in the word.
#if BITS == 64
#define STORE_ELEMENT(words, at, bits) \
    { \
        (words)[2 * (at)] = (bits).x; \
        (words)[2 * (at) + 1] = (bits).y; \
    }
#elif BITS == 32
#define STORE_ELEMENT(words, at, bits) (words)[at] = bits;
#else
#define STORE_ELEMENT(words, at, bits) \
    { \
        uint shift = (at) % ELEMENTS_PER_WORD * BITS; \
        atomicAnd((words)[(at) / ELEMENTS_PER_WORD], ~(MASK << shift)); \
        atomicOr((words)[(at) / ELEMENTS_PER_WORD], (bits) << shift); \
    }
#endif
