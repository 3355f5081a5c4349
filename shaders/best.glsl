// The best element so far, and the records that carry one from a first pass to combine.comp.

const uint NONE = 0xFFFFFFFFu;  // no element has this index: a tensor has at most 2^32 - 1 elements
const uint RECORD_WORDS = 1 + WORDS_PER_ELEMENT;  // index, then the bits of the element, low word first

struct Best {
    Bits key;
    Bits bits;
    uint index;
};

Best best_of(Bits bits, uint index) { return Best(order_key(bits), bits, index); }

// Takes a candidate whose index is above that of the best. All by selects, as in order_key.
void consider(inout Best best, Bits bits, uint index)
{
    Bits key = order_key(bits);
    bool above = is_above(key, best.key), not_below = !is_above(best.key, key);
    bool wins = LAST ? not_below : above;
    bool none = best.index == NONE, wins_or_first = wins || none;
    wins = SEGMENTED ? wins_or_first : wins;
    best.key = wins ? key : best.key;
    best.bits = wins ? bits : best.bits;
    best.index = wins ? index : best.index;
}

#if BITS == 64
#define STORE_RECORD(words, at, best) \
    { \
        (words)[at] = (best).index; \
        (words)[(at) + 1] = (best).bits.x; \
        (words)[(at) + 2] = (best).bits.y; \
    }
#define LOAD_RECORD(words, at) \
    Best(order_key(uvec2((words)[(at) + 1], (words)[(at) + 2])), uvec2((words)[(at) + 1], (words)[(at) + 2]), \
         (words)[at])
#else
#define STORE_RECORD(words, at, best) \
    { \
        (words)[at] = (best).index; \
        (words)[(at) + 1] = (best).bits; \
    }
#define LOAD_RECORD(words, at) Best(order_key((words)[(at) + 1]), (words)[(at) + 1], (words)[at])
#endif

// Index `at` of an array of 32- or 64-bit indices.
#define STORE_INDEX(words, at, index) \
    if (INDEX_WORDS == 2) { \
        (words)[2 * (at)] = index; \
        (words)[2 * (at) + 1] = 0; \
    } else \
        (words)[at] = index;
