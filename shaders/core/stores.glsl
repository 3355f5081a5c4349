// Writes outputs: indices of 32 or 64 bits, and elements, of which several may share a word.

// Writes number `at` of an array of indices.
#define STORE_INDEX(words, at, index) \
    if (INDEX_WORDS == 2) { \
        (words)[2 * (at)] = index; \
        (words)[2 * (at) + 1] = 0; \
    } else \
        (words)[at] = index;

// PUT sets element `i` of a local array of words. The first element of a word clears the word's other elements.
// STORE_WORD writes a word (or two, of 64 bits) that PUT filled with `count` elements; element `at` of the buffer
// begins it. Elements of the word behind these keep their bits.
// STORE_ELEMENT writes element `at` alone: other invocations may write its neighbours in the word at the same time.
#if BITS == 64
#define PUT(words, i, bits) \
    { \
        (words)[2 * (i)] = (bits).x; \
        (words)[2 * (i) + 1] = (bits).y; \
    }
#define STORE_WORD(words, at, filled, count) \
    { \
        (words)[2 * (at)] = (filled)[0]; \
        (words)[2 * (at) + 1] = (filled)[1]; \
    }
#define STORE_ELEMENT(words, at, bits) PUT(words, at, bits)
#elif BITS == 32
#define PUT(words, i, bits) (words)[i] = bits;
#define STORE_WORD(words, at, filled, count) (words)[at] = (filled)[0];
#define STORE_ELEMENT(words, at, bits) (words)[at] = bits;
#else
#define PUT(words, i, bits) \
    (words)[(i) / ELEMENTS_PER_WORD] = ((i) % ELEMENTS_PER_WORD == 0 ? 0 : (words)[(i) / ELEMENTS_PER_WORD]) \
        | (bits) << ((i) % ELEMENTS_PER_WORD * BITS);
#define STORE_WORD(words, at, filled, count) \
    if ((count) == ELEMENTS_PER_WORD) \
        (words)[(at) / ELEMENTS_PER_WORD] = (filled)[0]; \
    else \
        (words)[(at) / ELEMENTS_PER_WORD] = (filled)[0] | (words)[(at) / ELEMENTS_PER_WORD] & ~0u << ((count) * BITS);
#define STORE_ELEMENT(words, at, bits) \
    { \
        uint shift = (at) % ELEMENTS_PER_WORD * BITS; \
        atomicAnd((words)[(at) / ELEMENTS_PER_WORD], ~(MASK << shift)); \
        atomicOr((words)[(at) / ELEMENTS_PER_WORD], (bits) << shift); \
    }
#endif

// STORE_OF_TILE writes element `at` of the buffer, which is output `k` of a tile's row, if it is `there`; neighbouring
// outputs follow each other. `filled` keeps it until its word is full; with WHOLE_BLOCKS, where tiles and rows of outputs
// consist of blocks, until its block is. There is a branch for each: llvmpipe spills registers where all outputs of a row
// are computed before the first one.
#define STORE_OF_TILE(words, blocks, filled, k, at, bits, there) \
    { \
        PUT(filled, (k) % BLOCK, bits) \
        if (there) { \
            if (WHOLE_BLOCKS && ((k) + 1) % BLOCK == 0) \
                (blocks)[(at) / BLOCK] = uvec4((filled)[0], (filled)[1], (filled)[2], (filled)[3]); \
            if (!WHOLE_BLOCKS && (BITS >= 32 || SHARED_WORDS)) \
                STORE_ELEMENT(words, at, bits) \
            else if (!WHOLE_BLOCKS && ((k) + 1) % ELEMENTS_PER_WORD == 0) \
                (words)[(at) / ELEMENTS_PER_WORD] = (filled)[(k) % BLOCK / ELEMENTS_PER_WORD]; \
        } \
    }
